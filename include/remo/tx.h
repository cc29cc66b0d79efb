/* tx.h - transactions: reads and changes of several items of structures, all of them or none.
 *
 * Model:   a transaction reads and changes items of tables and other structures (structure.h). Its changes
 *          stay private until remo_tx_commit. Commit succeeds only if all values that the transaction has
 *          read are still current. Then its changes become visible together. Otherwise it returns
 *          -EAGAIN, nothing has changed, and the program runs the transaction again.
 * Use:     open the structures; remo_tx_space_open with the same structures in the same order on all nodes;
 *          remo_channel_wait. Each thread or task opens a transaction object, and calls remo_tx_run with
 *          its transaction as a function. Or it calls remo_tx_begin, reads and changes, and remo_tx_commit.
 * Owners:  a transaction that only reads may read items of any owners. One that changes items may read and
 *          change items of one owner only (-EXDEV). In a table, `partition_bytes` selects which keys have
 *          the same owner.
 * Cost:    network operations, if no item belongs to this node:
 *          - the first read of a key: a lookup (structure.h), normally 1 read. Later ones: none;
 *          - insert, update and delete: the same, unless the transaction has read the key. put: none;
 *          - commit without changes: nothing for the last key that was looked up. For each other present
 *            key 1 read of 8 bytes, all at the same time. For each absent key: its lookup once more;
 *          - commit with changes: 1 call (rpc.h).
 *          So a transaction without changes that finds n keys takes n + (n - 1) reads.
 * Order:   strictly serializable: committed transactions, and the lookups and changes of structure.h, take
 *          effect one at a time, each between its begin and its end.
 *          Each value that a transaction reads was current at some time. But values of several keys are
 *          known to be consistent with each other only after remo_tx_commit or remo_tx_check has returned 0.
 *          Code that two inconsistent values could damage must call remo_tx_check before it uses them.
 * Caches:  see structure.h.
 * Failure: nothing to repair: an owner executes the changes of a transaction in one step. After -EHOSTDOWN,
 *          -ENOTCONN or -ETIMEDOUT of a commit with changes the outcome is unknown: all changes are applied
 *          once, or none is, perhaps later.
 * Threads: a transaction object is used by one thread or task at a time; different ones concurrently.
 * Source:  Storm 5.3, 5.4, with the late locks of FaRM: reads do not lock. Differs in: an absent key is
 *          validated too; the last key is not read again; changes have one owner. The proof:
 *          docs/internals/tx.md.
 */
#pragma once

#include <remo/structure.h>

REMO_BEGIN

#define REMO_TX_STRUCTURES_MAX 16u
#define REMO_TX_ITEMS_MAX 64u    /* keys of one transaction */
#define REMO_TX_BYTES_MAX 16384u /* of one transaction: its keys, the values read, and each new value */

struct remo_tx_space;
struct remo_tx;

struct remo_tx_space_options {
    struct remo_nodeset participants;         /* empty: the parent's; each participates in each structure */
    struct remo_structure *const *structures; /* open, the same in the same order on every participant */
    uint32_t structure_count;                 /* 1 to REMO_TX_STRUCTURES_MAX */
};

/* Open the transaction space `name` below `parent`. If the structures of two nodes differ, remo_channel_wait
 * returns -EPROTO. Close it before its structures. Does not wait for peers to open.
 * Errors:
 *   -EINVAL  an argument or a structure is NULL, structure_count is out of range, or a structure is there
 *            twice
 *   -ENOMEM  no memory
 *   others   those of remo_rpc_open */
REMO_API int remo_tx_space_open(struct remo_channel *parent, const char *name,
                                const struct remo_tx_space_options *options,
                                struct remo_tx_space **ret_space);
/* Close the space, after its transaction objects; not in a handler or a `done` function (rpc.h). NULL has no
 * effect. Waits until the calls of peers that run here have returned. */
REMO_API void remo_tx_space_close(struct remo_tx_space *space);
/* Return the channel of the space, for remo_channel_wait; NULL if `space` is NULL. */
REMO_API struct remo_channel *remo_tx_space_channel(struct remo_tx_space *space);

/* Allocate a transaction object, for any number of transactions, one after another. Does not block.
 * Errors:
 *   -EINVAL  an argument is NULL
 *   -ENOMEM  no memory */
REMO_API int remo_tx_open(struct remo_tx_space *space, struct remo_tx **ret_tx);
/* Free the object; a transaction that has not ended is aborted. NULL has no effect. */
REMO_API void remo_tx_close(struct remo_tx *tx);

/* ---- one transaction ---- */

/* Begin a transaction. Does not block.
 * Errors:
 *   -EINVAL  `tx` is NULL
 *   -EBUSY   the last transaction has not ended: commit or abort it */
REMO_API int remo_tx_begin(struct remo_tx *tx);
/* Copy the value of the key, as the transaction sees it, with its own changes. Parameters and `cap`: as in
 * remo_structure_lookup. The transaction continues after each error except -ESTALE and those that
 * "others" means; after those only remo_tx_abort is useful.
 * Errors:
 *   -ENOENT     the key is absent
 *   -EMSGSIZE   the value is longer than `cap`, the key is longer than key_bytes_max, or the transaction
 *               would have more than REMO_TX_BYTES_MAX bytes
 *   -ENOBUFS    the transaction has REMO_TX_ITEMS_MAX keys
 *   -EINVAL     an argument is NULL, the key is empty, or the structure is not one of the space
 *   -ESTALE     the transaction has not begun, or it has ended
 *   others      those of remo_structure_lookup */
REMO_API int remo_tx_read(struct remo_tx *tx, struct remo_structure *structure, const void *key,
                          size_t key_bytes, void *value, size_t cap, size_t *ret_value_bytes);
/* Insert an absent key (insert), replace the value of a present key (update), or do what applies (put);
 * delete a present key. The change takes effect when the transaction commits. `value` may be NULL if
 * `value_bytes` is 0.
 * Errors: those of remo_tx_read, and
 *   -EEXIST    insert: the key is present
 *   -ENOENT    update, delete: the key is absent
 *   -EMSGSIZE  the value is longer than value_bytes_max */
REMO_API int remo_tx_insert(struct remo_tx *tx, struct remo_structure *structure, const void *key,
                            size_t key_bytes, const void *value, size_t value_bytes);
REMO_API int remo_tx_update(struct remo_tx *tx, struct remo_structure *structure, const void *key,
                            size_t key_bytes, const void *value, size_t value_bytes);
REMO_API int remo_tx_put(struct remo_tx *tx, struct remo_structure *structure, const void *key,
                         size_t key_bytes, const void *value, size_t value_bytes);
REMO_API int remo_tx_delete(struct remo_tx *tx, struct remo_structure *structure, const void *key,
                            size_t key_bytes);
/* Check whether all values that the transaction has read are current at one time, during this call. Blocks
 * for op_timeout_ns for each owner at most. Cost: that of a commit without changes, and of the last key.
 * Errors:
 *   -EAGAIN  a value has changed; see remo_tx_last_conflict
 *   -ESTALE  the transaction has not begun, or it has ended
 *   others   those of remo_structure_lookup */
REMO_API int remo_tx_check(struct remo_tx *tx);
/* End the transaction, and apply its changes. After any error except -EINVAL it has ended too.
 * Errors:
 *   -EAGAIN     a key has changed since the transaction read it; see remo_tx_last_conflict
 *   -ENOSPC     no room at the owner for a new key; nothing has changed
 *   -EXDEV      it changes items, and has read or changed items of several owners; nothing has changed
 *   -EMSGSIZE   it changes items, and its request is longer than REMO_RPC_BYTES_MAX (rpc.h): 8 bytes, 24 and
 *               the key for each item, and each new value; nothing has changed
 *   -EHOSTDOWN  the owner has failed or left (see Failure)
 *   -ENOTCONN   the owner has closed the space (see Failure)
 *   -ETIMEDOUT  the owner does not answer (see Failure)
 *   -ESTALE     the transaction has not begun, or it has ended
 *   -EINVAL     `tx` is NULL
 *   others      those of remo_structure_lookup and remo_rpc_call */
REMO_API int remo_tx_commit(struct remo_tx *tx);
/* End the transaction without its changes. No effect on NULL or a transaction that has ended. No network
 * operation. */
REMO_API void remo_tx_abort(struct remo_tx *tx);

/* Run `body(ctx, tx)` as a transaction: begin, `body`, and commit if it returned 0. After -EAGAIN of the
 * commit, or if `body` returned -EAGAIN, pause for a random time, at first up to 1 us, at most 1 ms, and
 * repeat. Any other result of `body` aborts the transaction, and is returned. `body` must not begin, commit
 * or abort; it may run several times, also with values that are not consistent with each other (see Order).
 * Errors:
 *   -EINVAL     `tx` or `body` is NULL
 *   -EBUSY      the last transaction has not ended
 *   -ETIMEDOUT  also: every attempt within `timeout_ns` was in conflict; nothing has changed, and
 *               remo_tx_last_conflict returns 0
 *   others      those of `body` and remo_tx_commit */
REMO_API int remo_tx_run(struct remo_tx *tx, int (*body)(void *ctx, struct remo_tx *tx), void *ctx,
                         uint64_t timeout_ns);

/* ---- conflicts ---- */

enum remo_tx_conflict_kind {
    REMO_TX_CHANGED, /* the item was changed or deleted, or its memory has another key */
    REMO_TX_LOCKED,  /* another transaction was changing it */
    REMO_TX_APPEARED /* the key was absent, and was perhaps inserted */
};

struct remo_tx_conflict {
    struct remo_structure *structure;
    const void *key; /* valid until the next remo_tx_begin or remo_tx_close */
    size_t key_bytes;
    enum remo_tx_conflict_kind kind;
};
/* Return why the last remo_tx_commit or remo_tx_check of this object returned -EAGAIN.
 * Errors:
 *   -ENOENT  it did not
 *   -EINVAL  an argument is NULL */
REMO_API int remo_tx_last_conflict(const struct remo_tx *tx, struct remo_tx_conflict *ret_conflict);

REMO_END
