/* tx.h - declarations that the files of transactions share.
 *
 *   tx.c        open and close, begin and end, repetition
 *   commit.c    validation and commit, at the node that runs the transaction
 *   items.c     the items of a transaction: reads and changes before the commit
 *   execute.c   the owner's side: it checks conditions and applies changes under mutexes
 *
 * A file uses only files below it in this list, and structure.h. docs/internals/tx.md has the proof. */
#pragma once

#include <remo/tx.h>

#include "systems/tx/structure.h"

#define REMO__TX_HANDLER 0u /* its number in the service of a space */
#define REMO__TX_NONE UINT32_MAX

/* The owner's step for an item of a request. */
enum remo__tx_op {
    REMO__TX_CHECK, /* nothing: the transaction has only read it */
    REMO__TX_INSERT,
    REMO__TX_UPDATE,
    REMO__TX_PUT,
    REMO__TX_DELETE,
    REMO__TX_OPS
};

/* The condition of a step. */
enum remo__tx_condition {
    REMO__TX_ALWAYS,
    REMO__TX_SAME,   /* its item is at `offset`, and has the head `head` */
    REMO__TX_ABSENT, /* it is absent */
    REMO__TX_CONDITIONS
};

/* A request: this header, then for each item a header, its key and its value. */
struct remo__tx_request {
    uint32_t items, reserved;
};
struct remo__tx_item_request {
    uint8_t op, condition, structure, reserved;
    uint16_t key_bytes, value_bytes;
    uint64_t offset, head;
};

/* The owner's answer; also the status of the reply, which has no data unless it is CONFLICT. */
enum remo__tx_answer {
    REMO__TX_ANSWER_DONE,
    REMO__TX_ANSWER_CONFLICT,
    REMO__TX_ANSWER_NO_ROOM,
    REMO__TX_ANSWER_MALFORMED
};

/* The data of a reply with CONFLICT. */
struct remo__tx_conflict {
    uint32_t item; /* its index in the request */
    uint32_t kind; /* enum remo_tx_conflict_kind */
};

struct remo_tx_space {
    struct remo_node *node;
    struct remo_channel *channel;
    struct remo_rpc *rpc; /* a service below the channel */
    struct remo_structure *structures[REMO_TX_STRUCTURES_MAX];
    uint32_t structure_count;
};

/* A key that the transaction has read or changed. */
struct remo__tx_item {
    struct remo_structure_key key; /* its data is in the transaction's bytes */
    uint32_t structure, owner;
    struct remo__evidence evidence; /* of its state before the transaction; PROOF_NONE: not looked up */
    bool was_locked; /* the evidence was found while another transaction was changing the item */
    bool is_changed; /* by this transaction; then: */
    bool is_present; /* it has the value below */
    uint16_t value_bytes;
    uint16_t value_at; /* in the transaction's bytes */
};

enum remo__tx_state { REMO__TX_ENDED, REMO__TX_ACTIVE };

struct remo_tx {
    struct remo_tx_space *space;
    enum remo__tx_state state;
    uint32_t items_count;
    uint32_t last;          /* the item that was looked up last, or REMO__TX_NONE */
    size_t bytes_used;      /* keys and values */
    uint32_t conflict_item; /* the item of the last conflict, or REMO__TX_NONE */
    enum remo_tx_conflict_kind conflict_kind;
    struct remo__tx_item items[REMO_TX_ITEMS_MAX];
    char bytes[REMO_TX_BYTES_MAX];
};

/* ---- execute.c ---- */

/* Check the conditions of a request, and apply all its changes or none. *ret_conflict is set if the
 * answer is CONFLICT. The request must not change during the call. */
enum remo__tx_answer remo__tx_execute(struct remo_tx_space *space, const void *request, size_t bytes,
                                      struct remo__tx_conflict *ret_conflict);
/* The handler of calls; `ctx` is the space. */
int remo__tx_handle(void *ctx, const struct remo_rpc_request *request);

/* ---- items.c ---- */

/* Return -EINVAL if the transaction is NULL, and -ESTALE if it is not active. */
int remo__tx_check_active(const struct remo_tx *tx);

/* ---- commit.c ---- */

/* Validate all items, or all but the last lookup if it needs no validation. */
int remo__tx_validate(struct remo_tx *tx, bool with_last);
/* Validate, and apply the changes. */
int remo__tx_apply(struct remo_tx *tx);
