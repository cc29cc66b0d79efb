/* tx.h - declarations that the files of transactions share.
 *
 *   tx_queue.c    a structure of its own: a queue, and the transactions that push and pop
 *   tx.c          open and close, begin and end, repetition
 *   items.c       the items of a transaction: reads and changes before the commit
 *   claim.c       precedence of transactions that were in conflict often: both sides
 *   wait.c        wait until a key changes, at the node that runs the transaction
 *   commit.c      commit, at the node that runs the transaction: the coordinator
 *   early.c       early locks, and the commit of a transaction that has some, at the coordinator
 *   coordinate.c  commit, if the items have several owners
 *   finish.c      the end of such a commit
 *   request.c     the requests of a commit, and its results
 *   validate.c    validation
 *   together.c    lookups at the same time
 *   resolve.c     the owner's side: transactions whose coordinator has failed
 *   early_owner.c the owner's side: early locks
 *   record.c      the owner's side: transactions that it has prepared
 *   watch.c       the owner's side: watches of transactions that wait
 *   execute.c     the owner's side: transactions whose items have one owner
 *   steps.h       the steps of a request, under mutexes
 *
 * A file uses only files below it in this list, and structure.h. docs/internals/tx.md has the proof. */
#pragma once

#include <remo/tx.h>

#include "base/random.h"
#include "systems/tx/key_claim.h"
#include "systems/tx/key_watch.h"

#define REMO__TX_NONE UINT32_MAX
/* The keys of a transaction, and their bytes. Smaller in the simulator, which restores all memory for each
 * schedule. */
#ifdef REMO_SIM_SMALL
#define REMO__TX_ITEMS_MAX 8u
#define REMO__TX_BYTES_MAX 1024u
#else
#define REMO__TX_ITEMS_MAX REMO_TX_ITEMS_MAX
#define REMO__TX_BYTES_MAX REMO_TX_BYTES_MAX
#endif
/* Transactions with changes and several owners that a node commits at the same time, in a space. */
#ifdef REMO_SIM_SMALL
#define REMO__TX_COMMITS_MAX 2u
#else
#define REMO__TX_COMMITS_MAX 32u
#endif

/* Transactions of a node that wait at the same time, in a space. The calls that the waits of all spaces have
 * in flight, outside handlers and in LONG ones: fewer than the slots for replies, which other calls need. The
 * slots that these calls, and calls that have ended without a reply, use together when a wait starts. */
#ifdef REMO_SIM_SMALL
#define REMO__TX_WAITS_MAX 2u
#define REMO__TX_CALLS_MAX 2u
#define REMO__TX_SLOTS_MAX 3u
#define REMO__TX_LONG_CALLS_MAX 0u
#define REMO__TX_LONG_SLOTS_MAX 0u
#define REMO__TX_REPORTS_PER_SWEEP 1u
#else
#define REMO__TX_WAITS_MAX 64u
#define REMO__TX_CALLS_MAX 128u
#define REMO__TX_SLOTS_MAX 256u
#define REMO__TX_LONG_CALLS_MAX 32u
#define REMO__TX_LONG_SLOTS_MAX 48u
#define REMO__TX_REPORTS_PER_SWEEP 64u
#endif
/* Conflicts of a transaction before it claims its keys; further ones before it ends its claims. Transactions
 * of a node that claim keys at the same time, in a space. The time limit of a claim, at its owner; each
 * attempt of the transaction renews it. Ages are below REMO__TX_AGE_MAX. */
#define REMO__TX_AGE_MAX (UINT64_C(1) << 62)
#ifdef REMO_SIM_SMALL
#define REMO__TX_CONFLICTS_MAX 1u
#define REMO__TX_CLAIMED_MAX 6u
#define REMO__TX_CLAIMS_MAX 2u
#define REMO__TX_CLAIM_NS REMO__NS_PER_MS
#else
#define REMO__TX_CONFLICTS_MAX 16u
#define REMO__TX_CLAIMED_MAX (2 * REMO__TX_ITEMS_MAX)
#define REMO__TX_CLAIMS_MAX 8u
#define REMO__TX_CLAIM_NS (1000 * REMO__NS_PER_MS)
#endif

/* Replies that an owner owes to one node: to watches, and to those that have ended before. */
#define REMO__TX_REPLIES_MAX (2 * REMO__TX_WAITS_MAX)

/* The handlers in the service of a space. */
enum remo__tx_handler {
    REMO__TX_EXECUTE, /* check conditions and apply changes: all items have one owner */
    REMO__TX_PREPARE, /* check conditions, lock and reserve items, and keep the changes */
    REMO__TX_FINISH,  /* apply the changes, or undo the locks and reservations */
    REMO__TX_RESOLVE, /* the coordinator has failed: what is the outcome? */
    REMO__TX_CONFIRM, /* has this node lost a participant? */
    REMO__TX_WATCH,   /* reply when a key differs from what the caller has read */
    REMO__TX_UNWATCH, /* a post: the caller does not wait any more */
    REMO__TX_LOCK,    /* check a condition, lock or reserve an item, and return it */
    REMO__TX_COMMIT,  /* apply changes of items that are locked or reserved */
    REMO__TX_CLAIM,   /* the caller precedes younger transactions at these keys */
    REMO__TX_UNCLAIM, /* a post: it does not any more */
    REMO__TX_HANDLERS
};

/* The owner's step for an item of a request. */
enum remo__tx_op {
    REMO__TX_CHECK, /* nothing: the transaction has only read it */
    REMO__TX_INSERT,
    REMO__TX_UPDATE,
    REMO__TX_PUT,
    REMO__TX_DELETE,
    REMO__TX_KEEP, /* lock or reserve it early; at the end: unlock or release it */
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
    uint32_t items;
    uint32_t claimant; /* remo__tx_claimant of the transaction, or 0: it claims no keys */
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
    REMO__TX_ANSWER_AGAIN, /* to CONFIRM and WATCH: not yet */
    REMO__TX_ANSWER_MALFORMED
};

/* The data of a reply with CONFLICT. */
struct remo__tx_conflict {
    uint32_t item; /* its index in the request */
    uint32_t kind; /* enum remo_tx_conflict_kind */
};

/* Identifies a transaction with changes and several owners. */
struct remo__tx_id {
    uint64_t sequence; /* ascending, for each coordinator and number */
    uint32_t coordinator;
    uint32_t number; /* below REMO__TX_COMMITS_MAX: one transaction at a time */
};

/* PREPARE: this header; the ranks of the other owners, uint16_t, the decider first, and zeros up to a
 * multiple of 8 bytes; a request. The reply of DONE has, for each item that is only checked, the number of
 * deletes of its group.
 * LOCK: the same; the last rank is that of the receiver, and the request has one item. The reply of DONE is a
 * struct remo__item_reply, whose offset is REMO_STRUCTURE_NOWHERE if the key is absent, and the value.
 * COMMIT: the same, with a request for each owner in the order of the ranks. Before them are their sizes,
 * uint16_t, and zeros up to a multiple of 8 bytes. */
struct remo__tx_prepare {
    struct remo__tx_id id;
    uint32_t owners;
    uint32_t parts; /* COMMIT: as many as owners. Otherwise 0: one request, without its size */
};

/* The part of such a message that concerns this node. */
struct remo__tx_part {
    struct remo__tx_prepare header;
    const char *request;
    size_t bytes;
};

struct remo__tx_finish {
    struct remo__tx_id id;
    uint32_t commits, reserved;
};

/* CONFIRM: has the receiver lost this node? */
struct remo__tx_loss {
    uint32_t node, reserved;
};

/* RESOLVE. The status of the reply is an outcome. */
struct remo__tx_question {
    struct remo__tx_id id;
    uint32_t is_decisive; /* the asked owner precedes the asking one among the owners */
    uint32_t is_for_all;  /* the asked node may be no owner: early locks */
};

/* The keys of a transaction, and what the requests of WATCH add. */
#define REMO__TX_WATCH_BYTES_MAX                                                                         \
    (REMO__TX_BYTES_MAX + REMO__TX_ITEMS_MAX * (sizeof(struct remo__tx_item_request) + sizeof(uint64_t)) \
     + REMO__TX_ITEMS_MAX * (sizeof(struct remo__tx_watch_request) + 8))

/* WATCH: this header, then a request of items that are only checked. The status of the reply is CONFLICT if
 * a key has changed, DONE if the watch was ended otherwise, AGAIN if it cannot be set now. UNWATCH: only this
 * header. */
struct remo__tx_watch_request {
    uint32_t number, reserved; /* below REMO__TX_WAITS_MAX: one watch at a time */
};

/* CLAIM: this header, then a request whose items have the op KEEP, if the transaction changes them, or
 * CHECK; the owner does not test their conditions. UNCLAIM: only this header. */
struct remo__tx_claim_request {
    uint32_t number, reserved; /* below REMO__TX_CLAIMS_MAX: one transaction at a time */
    uint64_t age;
};

/* The reply of DONE to CLAIM. */
struct remo__tx_claim_reply {
    uint64_t clock;                 /* of the owner */
    uint32_t is_preceded, reserved; /* an older transaction claims one of the keys */
};

/* Identifies the transaction of a node that claims keys with a number, in a space. */
static inline uint32_t remo__tx_claimant(uint32_t node, uint32_t number) {
    return 1 + node * REMO__TX_CLAIMS_MAX + number;
}

enum remo__tx_outcome {
    REMO__TX_PENDING, /* ask again */
    REMO__TX_COMMITTED,
    REMO__TX_ABORTED,
    /* prepared here, and no other owner will send the outcome to this one; or no early lock is here */
    REMO__TX_UNKNOWN,
    REMO__TX_OUTCOMES
};

enum remo__tx_record_state {
    REMO__TX_RECORD_NONE, /* of this sequence number: aborted, or never prepared */
    REMO__TX_RECORD_PREPARED,
    REMO__TX_RECORD_COMMITTED
};

/* A transaction at an owner. Under the mutex of its coordinator's entry, except `call`. */
struct remo__tx_record {
    struct remo_tx_space *space; /* set by the first PREPARE */
    struct remo__tx_id id;
    enum remo__tx_record_state state;
    uint32_t message_bytes;
    uint32_t asked;      /* the owner that `call` asks */
    uint32_t asks_from;  /* index of the next owner to ask */
    uint64_t asks_at_ns; /* not before */
    bool is_asking;
    bool is_early;     /* begun by a LOCK */
    bool is_unsettled; /* COMMITTED, its coordinator was cut off, and others may not have the outcome */
    struct remo__tx_question question;
    struct remo_rpc_op call;
    char message[REMO_RPC_BYTES_MAX]; /* unless NONE: the PREPARE; the LOCKs as one; or the COMMIT */
    char outcome[REMO_RPC_BYTES_MAX]; /* the reply of `call`: a COMMIT */
};

/* Shared by the spaces of a node. */
struct remo__tx_node {
    struct remo__shared shared;
    _Atomic uint32_t calls[2]; /* of waits, in flight: outside handlers, in LONG ones */
    _Atomic uint64_t claim_clock;
};

enum remo__tx_wait_state {
    REMO__TX_WAIT_FREE,
    REMO__TX_WAIT_USED, /* by one thread */
    REMO__TX_WAIT_ENDS  /* an UNWATCH could not be sent yet: sweeps repeat it */
};

/* A transaction that waits, at the node that runs it. */
struct remo__tx_wait {
    _Atomic uint32_t state; /* enum remo__tx_wait_state */
    struct remo__tx_watch_request header;
    uint32_t kind;         /* the index in `calls` of the node */
    uint32_t owners_count; /* calls that are counted there */
    uint32_t calls_count;
    uint64_t owed;                                /* bit i: the owner of call i needs an UNWATCH */
    struct remo_rpc_op calls[REMO__TX_ITEMS_MAX]; /* to the owners, this node too */
    size_t requests_bytes;
    char requests[REMO__TX_WATCH_BYTES_MAX];
};

/* A watch at an owner. Under the mutex of the entry of its node. */
struct remo__tx_watch {
    struct remo__key_watch watch;
    struct remo_tx_space *space;       /* set by the first WATCH, as `node` */
    uint32_t node;                     /* which waits */
    bool is_set;                       /* the reply is not owed yet */
    struct remo_rpc_deferred deferred; /* the reply */
    uint32_t count;                    /* of its entries */
    struct remo__key_watch_entry entries[REMO__TX_ITEMS_MAX];
};

/* The keys that a transaction claims at an owner. Under the mutex of the entry of its node: two sets, of
 * which one is empty except while the other one replaces it. */
struct remo__tx_claim {
    uint32_t current; /* the index of the last set that was added */
    struct remo__tx_claim_set {
        struct remo__key_claim claim;
        uint32_t count; /* of its entries */
        struct remo__key_claim_entry entries[REMO__TX_ITEMS_MAX];
    } sets[2];
};

/* A reply that this node owes to one that waits. */
struct remo__tx_reply {
    struct remo_rpc_deferred deferred;
    enum remo__tx_answer answer;
};

/* The transactions of one coordinator at this owner. */
struct remo__tx_peer {
    pthread_mutex_t mutex;
    _Atomic bool is_cut_off; /* it has failed or left, or has closed the space: its messages have no effect */
    _Atomic bool was_connected;
    _Atomic uint32_t losses;         /* how often it was cut off */
    struct remo__tx_record *records; /* [REMO__TX_COMMITS_MAX] */
    struct remo__tx_watch *watches;  /* [REMO__TX_WAITS_MAX] */
    uint32_t watches_count;          /* of these, those that are set */
    bool drops_watches;              /* the node was cut off: end its watches */
    uint32_t replies_count;          /* to watches that are set, and those that threads send or sweeps will */
    uint32_t unsent_count;           /* of these, those that sweeps send */
    struct remo__tx_reply *unsent;   /* [REMO__TX_REPLIES_MAX] */
    struct remo__tx_claim *claims;   /* [REMO__TX_CLAIMS_MAX] */
};

struct remo__tx_commit;

struct remo_tx_space {
    struct remo_node *node;
    struct remo_channel *channel;
    struct remo_rpc *rpc; /* a service below the channel */
    struct remo_structure *structures[REMO_TX_STRUCTURES_MAX];
    uint32_t structure_count;
    bool is_early; /* REMO_TX_EARLY */
    _Atomic bool is_closing;
    _Atomic uint32_t unsettled;      /* records of this node that are PREPARED or is_unsettled */
    struct remo__tx_peer *peers;     /* [size] */
    struct remo__tx_record *records; /* of all peers; their pages take no memory before their first use */
    struct remo__tx_commit *commits; /* [REMO__TX_COMMITS_MAX], likewise */
    struct remo__tx_watch *watches;  /* of all peers, likewise */
    struct remo__tx_reply *unsent;   /* of all peers, likewise */
    struct remo__tx_claim *claims;   /* of all peers, likewise */
    struct remo__tx_wait *waits;     /* [REMO__TX_WAITS_MAX], likewise */
    struct remo__tx_node *shared;
    _Atomic uint32_t claim_numbers;  /* bit i: a transaction of this node claims keys with the number i */
    _Atomic uint32_t ending_waits;   /* entries of `waits` in the state ENDS */
    _Atomic uint32_t reporters;      /* threads that report watches */
    _Atomic bool must_sweep_watches; /* a peer drops watches, or has unsent replies */
    struct remo__thread_observer observer;
};

/* A key that the transaction has read or changed. */
struct remo__tx_item {
    struct remo_structure_key key; /* its data is in the transaction's bytes */
    uint32_t structure, owner;
    struct remo__evidence evidence; /* of its state before the transaction; PROOF_NONE: not looked up */
    bool was_locked; /* the evidence was found while another transaction was changing the item */
    bool is_held;    /* this transaction has locked or reserved it early */
    bool is_changed; /* by this transaction; then: */
    bool is_present; /* it has the value below */
    uint16_t value_bytes;
    uint16_t value_at; /* in the transaction's bytes */
};

enum remo__tx_state { REMO__TX_ENDED, REMO__TX_ACTIVE };

struct remo_tx {
    struct remo_tx_space *space;
    enum remo__tx_state state;
    enum remo_tx_fate fate; /* of the last commit */
    uint32_t items_count;
    uint32_t last;          /* the item that was looked up last, or REMO__TX_NONE */
    size_t bytes_used;      /* keys and values */
    uint32_t conflict_item; /* the item of the last conflict, or REMO__TX_NONE */
    enum remo_tx_conflict_kind conflict_kind;
    struct remo__tx_item items[REMO__TX_ITEMS_MAX];
    char bytes[REMO__TX_BYTES_MAX];
    struct remo__tx_commit *held; /* the entry of a transaction with early locks; NULL: it has none */
    int lock_error;               /* a key could not be locked, or is: the transaction can only abort; or 0 */
    /* In remo_tx_run: its claims of keys. */
    uint32_t claimant; /* 0: none, and the next two are not set */
    struct remo__tx_claim_request claim;
    struct remo_nodeset claim_owners; /* that may have keys which it claims */
    /* The last commit, while its fate is PENDING: its entry, if it has several owners, or its call. */
    struct remo__tx_commit *pending;
    struct remo_rpc_op call;
    struct remo__tx_conflict found; /* the reply of the call */
    char request[REMO_RPC_BYTES_MAX];
};

/* Seed the random pauses of a transaction, not by its address: the simulator repeats schedules. */
static inline void remo__tx_seed_pauses(const struct remo_tx *tx, struct remo__random *ret_random) {
    struct remo_node *node = tx->space->node;
    const struct remo__thread *thread = remo__thread(node);
    uint64_t threads = (uint64_t)node->rank << 32 | (thread ? thread->index : 0);
    remo__random_seed(ret_random, remo__now_ns() ^ remo__random_mix(threads));
}

/* ---- execute.c ---- */

/* Check the conditions of a request, and apply all its changes or none. *ret_conflict is set if the
 * answer is CONFLICT. The request must not change during the call. */
enum remo__tx_answer remo__tx_execute(struct remo_tx_space *space, const void *request, size_t bytes,
                                      struct remo__tx_conflict *ret_conflict);
/* The handler of EXECUTE; `ctx` is the space, also below. */
int remo__tx_handle_execute(void *ctx, const struct remo_rpc_request *request);

/* ---- record.c ---- */

/* Execute a PREPARE of `coordinator`. The message must not change during the call. *ret_conflict is set if
 * the answer is CONFLICT. If it is DONE, *ret_count is the number of items that are only checked, and
 * ret_deletes[] the numbers of deletes of their groups. Negative: -ENOTCONN. */
int remo__tx_prepare(struct remo_tx_space *space, uint32_t coordinator, const void *message, size_t bytes,
                     struct remo__tx_conflict *ret_conflict, uint64_t *ret_deletes, uint32_t *ret_count);
/* Execute a FINISH of `coordinator`. It may be repeated. */
enum remo__tx_answer remo__tx_finish(struct remo_tx_space *space, uint32_t coordinator,
                                     const struct remo__tx_finish *message);
/* Decode a PREPARE, LOCK or COMMIT. Returns false if it is malformed before its request. */
bool remo__tx_decode(const struct remo_tx_space *space, uint32_t coordinator, const char *message,
                     size_t bytes, struct remo__tx_part *ret_part);
/* The mutex of the coordinator's entry is held, also below. Return DONE if a PREPARE or LOCK may use the
 * record, CONFLICT if it may not yet, or -ENOTCONN. */
int remo__tx_record_refuse(const struct remo_tx_space *space, uint32_t coordinator,
                           const struct remo__tx_record *record, struct remo__tx_conflict *ret_conflict);
/* Begin a record that is PREPARED: its items are locked or reserved. */
void remo__tx_record_begin(struct remo_tx_space *space, struct remo__tx_record *record,
                           const struct remo__tx_id *id, uint32_t coordinator, const void *message,
                           size_t bytes);
/* End a record that is PREPARED. */
void remo__tx_record_end(struct remo__tx_record *record, bool commits);
/* End a record that a LOCK has begun: apply the changes of a COMMIT. After MALFORMED it has not ended. */
enum remo__tx_answer remo__tx_record_commit(struct remo__tx_record *record, const void *message,
                                            size_t bytes);
/* Set ret_owners[] (of REMO_NODES_MAX) to the owners of a record, the decider first. LOCKs do not have the
 * owners after this node: instead of these, set all other nodes. Returns their number. */
uint32_t remo__tx_record_owners(const struct remo__tx_record *record, uint16_t *ret_owners);
/* Return whether this node has lost `node`: no message of its endpoint has an effect from now on. */
bool remo__tx_has_lost(const struct remo_tx_space *space, uint32_t node);
int remo__tx_handle_prepare(void *ctx, const struct remo_rpc_request *request);
int remo__tx_handle_finish(void *ctx, const struct remo_rpc_request *request);
int remo__tx_handle_confirm(void *ctx, const struct remo_rpc_request *request);

/* ---- resolve.c ---- */

/* Return the answer to a question of the owner `asker`. ret_message (of REMO_RPC_BYTES_MAX): if the answer is
 * COMMITTED, and the asking owner does not have its changes, the COMMIT; otherwise *ret_bytes is 0. */
enum remo__tx_outcome remo__tx_answer_question(struct remo_tx_space *space, uint32_t asker,
                                               const struct remo__tx_question *question, char *ret_message,
                                               uint32_t *ret_bytes);
int remo__tx_handle_resolve(void *ctx, const struct remo_rpc_request *request);
/* A coordinator was cut off. The mutex of its entry is held. */
void remo__tx_unsettle(struct remo_tx_space *space, uint32_t coordinator);
/* Continue to resolve the transactions of coordinators that have failed. Returns whether any is left. */
bool remo__tx_resolve_all(struct remo_tx_space *space);
/* The space closes: end all questions. */
void remo__tx_resolve_stop(struct remo_tx_space *space);

/* ---- early_owner.c ---- */

/* The result of a LOCK. */
struct remo__tx_locked {
    struct remo__tx_conflict conflict; /* CONFLICT */
    struct remo__owner_found found;    /* DONE; the caller sets `value` and `cap` */
};

/* Execute a LOCK of `coordinator`. The message must not change during the call. Negative: -ENOTCONN. */
int remo__tx_execute_lock(struct remo_tx_space *space, uint32_t coordinator, const void *message,
                          size_t bytes, struct remo__tx_locked *ret_locked);
/* Execute a COMMIT of `coordinator`, likewise. It may be repeated. */
enum remo__tx_answer remo__tx_execute_commit(struct remo_tx_space *space, uint32_t coordinator,
                                             const void *message, size_t bytes);
int remo__tx_handle_lock(void *ctx, const struct remo_rpc_request *request);
int remo__tx_handle_commit(void *ctx, const struct remo_rpc_request *request);

/* ---- watch.c ---- */

int remo__tx_handle_watch(void *ctx, const struct remo_rpc_request *request);
int remo__tx_handle_unwatch(void *ctx, const struct remo_rpc_request *request);
/* Report the watches of all structures of the space that are due. No mutex is held. */
void remo__tx_report(struct remo_tx_space *space);
/* A peer was cut off: let sweeps end its watches. The peer's mutex is held. */
void remo__tx_drop_watches(struct remo_tx_space *space, uint32_t node);
/* End the watches of peers that were cut off, report those that are due, and send replies that could not be
 * sent before. No mutex is held. Returns whether any is left. */
bool remo__tx_sweep_watches(struct remo_tx_space *space);
/* The space closes, and gets no more watches: end all. The service replies when it closes. */
void remo__tx_stop_watches(struct remo_tx_space *space);

/* ---- claim.c ---- */

int remo__tx_handle_claim(void *ctx, const struct remo_rpc_request *request);
int remo__tx_handle_unclaim(void *ctx, const struct remo_rpc_request *request);
/* The space closes: remove all claims at this node. It gets no more. */
void remo__tx_stop_claims(struct remo_tx_space *space);
/* An attempt of the transaction was in conflict: claim all its keys, instead of those of an earlier attempt.
 * Keys whose owner does not answer until the deadline, or all keys if other transactions use all numbers or
 * all entries of commits, are not claimed. Returns whether an older transaction claims one of the keys, so
 * another attempt would fail. 1 call to each owner, all at the same time; 1 post to each owner of the earlier
 * attempt that this one has not used. */
bool remo__tx_claim(struct remo_tx *tx, uint64_t deadline_ns);
/* End all claims of the transaction. 1 post to each owner, which may wait for the fence of a post (rpc.h). */
void remo__tx_unclaim(struct remo_tx *tx);

/* ---- wait.c ---- */

int remo__tx_open_waits(struct remo_tx_space *space);
void remo__tx_close_waits(struct remo_tx_space *space);
/* Continue to end waits. Returns whether any is left. */
bool remo__tx_sweep_waits(struct remo_tx_space *space);
/* Wait until a key that the transaction has read may have changed. */
int remo__tx_wait(struct remo_tx *tx, uint64_t deadline_ns);

/* ---- items.c ---- */

/* Return -EINVAL if the transaction is NULL, and -ESTALE if it is not active. */
int remo__tx_check_active(const struct remo_tx *tx);

/* ---- validate.c ---- */

enum remo__tx_scope {
    REMO__TX_ALL,
    REMO__TX_ALL_BUT_LAST, /* or all, if the last lookup needs validation */
    REMO__TX_READ_ONLY     /* items that the transaction does not change */
};

static inline bool remo__tx_is_absence(const struct remo__tx_item *item) {
    return item->evidence.proof == REMO__PROOF_PLACE || item->evidence.proof == REMO__PROOF_DELETES;
}

/* Return whether the item belongs to the transaction: it was changed, or a lookup has succeeded. */
static inline bool remo__tx_is_used(const struct remo__tx_item *item) {
    return item->is_changed || item->evidence.proof != REMO__PROOF_NONE;
}

enum remo__tx_op remo__tx_op_of(const struct remo__tx_item *item);
int remo__tx_conflict(struct remo_tx *tx, uint32_t item, enum remo_tx_conflict_kind kind);
int remo__tx_validate(struct remo_tx *tx, enum remo__tx_scope scope);

/* ---- together.c ---- */

#define REMO__TX_TOGETHER_BYTES 16384u /* of what is read, or of requests and replies, at the same time */

/* The read of a place. The key of the item may be there. */
struct remo__tx_read {
    struct remo__tx_item *item;
    struct remo_structure_place place;
    char *data;
};

/* Reads that are in flight at the same time. Before the first one is added, `count` and `bytes` are 0. */
struct remo__tx_reads {
    uint32_t count;
    size_t bytes;
    struct remo__tx_read reads[REMO__TX_ITEMS_MAX];
    char data[REMO__TX_TOGETHER_BYTES] __attribute__((aligned(REMO__CACHE_LINE)));
};

/* Returns false if there is no room for the place. */
bool remo__tx_add_read(struct remo__tx_reads *reads, struct remo__tx_item *item,
                       const struct remo_structure_place *place);
/* Read all places. */
int remo__tx_read_all(const struct remo_tx *tx, struct remo__tx_reads *reads);

/* The result of remo__structure_find_by_owner for an item. */
struct remo__tx_found {
    int rc;
    const void *value;
    size_t bytes;
    struct remo__evidence evidence;
};

typedef int remo__tx_end_fn(struct remo_tx *tx, struct remo__tx_item *item,
                            const struct remo__tx_found *found, void *ctx);
/* Let the owners look up the items of a set (bit i: item i), at the same time if there is room, and call
 * `end` with each result. Ends at the first error of `end`, and returns it. */
int remo__tx_find_by_owners(struct remo_tx *tx, uint64_t set, remo__tx_end_fn *end, void *ctx);

/* ---- request.c ---- */

/* Append an item to a request, at *bytes of `capacity`, and advance *bytes. Returns false if it has no
 * room. */
bool remo__tx_append(const struct remo_tx *tx, const struct remo__tx_item *item, enum remo__tx_op op,
                     char *request, size_t capacity, size_t *bytes);
/* Append the items of `owner` to a request, at *bytes of `capacity`, and advance *bytes. `is_single`: all
 * items have this owner; otherwise items that were present, and do not change, are left out. If the
 * transaction has early locks, only items that are locked early are appended. ret_items[i] is the item of the
 * transaction that is item i of the request. Errors: -EMSGSIZE. */
int remo__tx_request(const struct remo_tx *tx, uint32_t owner, bool is_single, char *request, size_t capacity,
                     size_t *bytes, uint8_t *ret_items);
/* Return the result of an owner's answer. */
int remo__tx_result(struct remo_tx *tx, enum remo__tx_answer answer, const struct remo__tx_conflict *found,
                    const uint8_t *items);
/* Return 0 if this node may use its shares of all structures of the transaction. */
int remo__tx_check_shares(const struct remo_tx *tx);
/* Return 0 if this thread may call other nodes, and wait. */
int remo__tx_check_waits(const struct remo_tx_space *space);

/* ---- finish.c ---- */

/* Continue commits that have been decided. Returns whether any is left. */
bool remo__tx_continue_all(struct remo_tx_space *space);

/* ---- coordinate.c ---- */

/* Commit a transaction with changes and several owners, and set its fate. */
int remo__tx_coordinate(struct remo_tx *tx);
/* Take an entry. While REMO__TX_COMMITS_MAX commits are in progress, serve, so that their calls end. */
int remo__tx_take_entry(struct remo_tx_space *space, struct remo__tx_commit **ret_commit);
/* Do the same without a wait. Returns NULL if no entry is free. */
struct remo__tx_commit *remo__tx_try_take_entry(struct remo_tx_space *space);
/* Decide to commit: all participants have prepared, and the transaction is valid. */
int remo__tx_decide(struct remo__tx_commit *commit);
/* A commit has the result `rc`: set the fate, and keep or drop the entry. Returns `rc`. */
int remo__tx_end_commit(struct remo_tx *tx, struct remo__tx_commit *commit, int rc);
/* Wait until the fate of such a commit is not PENDING any more. Errors: -ETIMEDOUT, and those of
 * remo_rpc_serve. */
int remo__tx_await_outcome(struct remo_tx *tx, uint64_t deadline_ns);
/* Serve for a moment, and continue commits. A thread that waits for commits repeats it. */
int remo__tx_serve(struct remo_tx_space *space);
int remo__tx_open_commits(struct remo_tx_space *space);
/* Wait until no commit is in progress. */
void remo__tx_await_commits(struct remo_tx_space *space);
void remo__tx_free_commits(struct remo_tx_space *space);

/* ---- early.c ---- */

/* Lock an item of a transaction at its owner, and find it. A later call for the item returns its first
 * result, or -EAGAIN: it has changed since its lookup. Results: as remo__structure_find; -EAGAIN: a conflict;
 * -ENOSPC: no room to reserve an absent key. After an error other than -ENOENT the transaction can only
 * abort. */
int remo__tx_lock(struct remo_tx *tx, struct remo__tx_item *item, void *value, size_t cap,
                  size_t *ret_value_bytes, struct remo__evidence *ret_evidence);
/* Return -EHOSTDOWN if an owner of early locks has failed, even if it has started again: it has lost them. */
int remo__tx_check_owners(struct remo__tx_commit *commit);
/* Commit a transaction with early locks; `has_changes`: or only unlock its items. Sets its fate. */
int remo__tx_commit_held(struct remo_tx *tx, bool has_changes);
/* Unlock and release all items that the transaction has locked early. Waits for nothing. */
void remo__tx_release_held(struct remo_tx *tx);

/* ---- commit.c ---- */

/* Validate, and apply the changes. Sets the fate, unless it is NOT_COMMITTED, or COMMITTED and 0 is
 * returned. */
int remo__tx_apply(struct remo_tx *tx);
/* Wait until the fate is not PENDING any more. Errors: as remo__tx_await_outcome. */
int remo__tx_settle(struct remo_tx *tx, uint64_t timeout_ns);
/* Do not wait for the fate any more. */
void remo__tx_forget(struct remo_tx *tx);
