/* finish.h - the entries of commits with several owners, at the coordinator, and how they end.
 *
 * Model:   an entry is in use until each participant that may have prepared has executed a FINISH, or has
 *          failed. So a later transaction with the same number finds no record that is PREPARED.
 *          The CLAIMs of a transaction (claim.c) use an entry too, until their calls have ended.
 * Losses:  a participant that the coordinator has lost may be up for other nodes, and abort. So a transaction
 *          that commits without the decider is applied nowhere else until all nodes to which the coordinator
 *          is connected have confirmed that they have lost it too (CONFIRM), and each participant that is
 *          lost meanwhile. If a participant is lost later, the entry stays in use until these nodes have
 *          confirmed that loss: until then the participant may be up for them, and ask them for the outcome.
 * Threads: the thread that commits uses the entry until the decision. From then on `mutex` protects it, and
 *          the service thread continues the commit. */
#pragma once

#include "systems/tx/tx.h"

/* The keys and values of a transaction, and what the requests add. */
#define REMO__TX_REQUESTS_BYTES_MAX                                                                      \
    (REMO__TX_BYTES_MAX + REMO__TX_ITEMS_MAX * (sizeof(struct remo__tx_item_request) + sizeof(uint64_t)) \
     + REMO__TX_ITEMS_MAX * (sizeof(struct remo__tx_prepare) + 8 + REMO__TX_ITEMS_MAX * sizeof(uint16_t)))

enum remo__tx_phase {
    REMO__TX_FREE,
    REMO__TX_PREPARING,  /* its thread uses the entry */
    REMO__TX_DECIDING,   /* the decider has not answered: the call to it continues */
    REMO__TX_CONFIRMING, /* the transaction commits without the decider; it is not applied yet */
    REMO__TX_FINISHING   /* the outcome is applied */
};

/* The state of a call of an entry: a FINISH, or a CONFIRM. */
enum remo__tx_delivery { REMO__TX_NOTHING_DUE, REMO__TX_DUE, REMO__TX_IN_FLIGHT };

/* An owner of items that change; of a claim, an owner of any items. */
struct remo__tx_participant {
    struct remo__tx_commit *commit;
    uint32_t node;
    bool needs_finish; /* it may have prepared, or has locked items */
    bool is_informed;  /* it has executed FINISH, or the coordinator has lost it */
    _Atomic uint32_t delivery;
    size_t request_at, request_bytes;  /* PREPARE, COMMIT or CLAIM */
    uint32_t losses;                   /* of the node, before its first LOCK */
    uint32_t count;                    /* of numbers of deletes in its reply */
    uint8_t items[REMO__TX_ITEMS_MAX]; /* the transaction's item for each item of the request */
    uint64_t reply[REMO__TX_ITEMS_MAX];
    struct remo__tx_finish finish;
    struct remo_rpc_op call; /* PREPARE, then FINISH; or CLAIM */
};

/* The next question to a node: whether it has lost a participant. */
struct remo__tx_confirmation {
    uint32_t loss, node; /* an index of `losses`, and the node to ask */
    uint64_t asks_at_ns; /* not before */
    _Atomic uint32_t delivery;
    struct remo__tx_loss message;
    struct remo_rpc_op call;
};

#define REMO__TX_PARTICIPANTS_MAX (REMO__TX_ITEMS_MAX + 1) /* with early locks: this node, and all owners */

/* A commit. This node comes first among the participants if it is one, then the decider. With early locks
 * this node is always there, and needs_finish is set if it owns locked items. */
struct remo__tx_commit {
    struct remo_tx_space *space;
    struct remo__tx_id id;
    _Atomic uint32_t phase;
    _Atomic uint32_t unfinished; /* calls of FINISH, confirmation, and 1 while the thread uses the entry */
    bool is_own;                 /* participants[0] is this node */
    bool is_early;               /* the items were locked before the commit */
    uint32_t count;
    pthread_mutex_t mutex;
    bool commits;
    uint32_t losses_count; /* participants that were lost, and were to commit */
    uint32_t losses[REMO__TX_PARTICIPANTS_MAX];
    struct remo__tx_confirmation confirmation;
    size_t requests_bytes;
    char requests[REMO__TX_REQUESTS_BYTES_MAX];
    struct remo__tx_participant participants[REMO__TX_PARTICIPANTS_MAX];
};

/* ---- finish.c ---- */

/* Add a participant that has not prepared. */
struct remo__tx_participant *remo__tx_add_participant(struct remo__tx_commit *commit, uint32_t node);
/* Set the call of a participant to the message of the outcome, without a timeout and `done`. */
void remo__tx_set_outcome_call(struct remo__tx_participant *participant, bool commits);

/* The outcome is decided: apply it at all participants that may have prepared and are not informed.
 * `lost`: the decider, if it was lost during the decision; or NULL. */
void remo__tx_finish_all(struct remo__tx_commit *commit, bool commits, struct remo__tx_participant *lost);
/* The decider does not answer: continue the call to it without this thread. */
void remo__tx_decide_later(struct remo__tx_commit *commit);
/* End one use that `unfinished` counts. */
void remo__tx_drop(struct remo__tx_commit *commit);

/* ---- coordinate.c ---- */

enum remo__tx_owners { REMO__TX_OWNERS_OF_CHANGES, REMO__TX_OWNERS_OF_ALL /* items */ };

/* Add the owners of items of the transaction as participants, and set is_own. */
void remo__tx_find_participants(struct remo__tx_commit *commit, const struct remo_tx *tx,
                                enum remo__tx_owners which);
/* Start calls with the requests of all participants but this node. */
void remo__tx_start_calls(struct remo__tx_commit *commit, enum remo__tx_handler number, uint64_t timeout_ns);
/* Wait until all of them have ended. Their statuses and replies are in the participants. */
void remo__tx_await_calls(struct remo__tx_commit *commit);
