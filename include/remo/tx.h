/* tx.h - transactions: read and change several items of structures; all changes take effect, or none.
 *
 * Model:   a transaction reads and changes items of tables and other structures (structure.h). Its changes
 *          stay private until remo_tx_commit. Commit succeeds only if all values that the transaction has
 *          read are still current. Then its changes become visible together. Otherwise it returns
 *          -EAGAIN, nothing has changed, and the program runs the transaction again.
 * Use:     open the structures; remo_tx_space_open with the same structures in the same order on all nodes;
 *          remo_channel_wait. For a table, pass remo_table_structure; for a queue (tx_queue.h),
 *          remo_tx_queue_structure. Each thread or task opens a transaction object, and calls remo_tx_run
 *          with a function that reads and changes items. Or it calls remo_tx_begin, the functions that read
 *          and change items, and remo_tx_commit. See examples/bank.c and examples/outbox.c.
 * Wait:    a transaction whose values do not permit a result yet can wait until one of them changes: the
 *          function that remo_tx_run calls returns REMO_TX_WAIT, and runs again after a change. So a consumer
 *          sleeps until a queue has an element. A transaction that reads keys and then waits watches these
 *          keys. The thread sleeps and does not poll, unless no watch can be set. See remo_tx_wait.
 * Owners:  a transaction reads and changes items of any owners. It is cheapest if all items have one owner:
 *          in a table, `partition_bytes` selects which keys have the same owner.
 * Cost:    network operations, if no item belongs to this node:
 *          - the first read of a key: a lookup (structure.h), normally 1 read. Later reads: none;
 *          - remo_tx_read_many: the same lookups, first the reads at the same time, then the calls; a lookup
 *            more for each key whose item was locked or changing. A commit without changes validates all keys
 *            that were looked up at the same time;
 *          - insert, update and delete: as a read of the key. put: none; a delete after a put: a lookup;
 *          - commit without changes: none for the key that was looked up last, unless it was locked. For
 *            each other present key: 1 read of 8 bytes, all at the same time. For each other absent key: the
 *            read or call that did not find the key is repeated, all reads at the same time, then all calls;
 *          - commit with changes, all keys have one owner: 1 call (rpc.h);
 *          - commit with changes otherwise, if items of k other nodes change: k calls at the same time; the
 *            validation of all keys that were only read; then, unless k is 0, 1 call, and k - 1 more for
 *            which the commit does not wait. A change of an item of this node needs no operation.
 *          So a transaction without changes that finds n keys normally takes n + (n - 1) reads.
 *          With early locks (see Locks) instead:
 *          - remo_tx_read_for_update, and the first insert, update, put or delete of a key: 1 call;
 *          - commit with changes, if items of k other nodes are locked: the validation of all keys that were
 *            only read; then, unless k is 0, 1 call, and k - 1 more for which the commit does not wait. Each
 *            of them has the changes of all k owners. For each absent key that was only read, whose owner has
 *            locked another key: 2 calls more;
 *          - the end of a transaction with locks and without changes, also its abort: k calls for which it
 *            does not wait.
 *          So a change of one item takes 2 calls, and of n items of one owner n + 1.
 *          A wait: 1 call to each owner of keys that the transaction has read, also to this node. The owner
 *          replies when a key changes, or at once if one has changed already. Then 1 post to each other
 *          owner, which replies.
 *          A change of a key sends 1 reply to each transaction that waits for it: up to 16 for each structure
 *          before the change returns, and so before the reply to a commit. The service thread of the owner
 *          sends the others: up to 64 for each structure per millisecond. On fabrics that do not order
 *          writes, a reply may wait for a fence: for op_timeout_ns at most, if the waiting node pauses. While
 *          no transaction waits for a key of its group (structure.h), a change of the key loads a few
 *          additional words at its owner. Otherwise it compares one word for each watched key of the group,
 *          once per waiting transaction.
 * Order:   strictly serializable: committed transactions, and the lookups and changes of structure.h, take
 *          effect one at a time, each between its start and its end.
 *          Before the commit, each value that a transaction has read was current at some moment, but
 *          perhaps not all at the same moment. The values are certain to be consistent with each other only
 *          when remo_tx_commit or remo_tx_check has returned 0. If inconsistent values could cause an invalid
 *          access or an endless loop, call remo_tx_check before using them.
 * Conflict: the versions of items are compared, not their values. If a key was absent, a change of another
 *          key of its place or group (structure.h) can cause a conflict too, for remo_tx_check and for each
 *          commit that is not one call. The growth of a table can cause conflicts as well. A put of a key
 *          that the transaction has not read is in conflict only if the item is locked. See Precedence for
 *          transactions that are in conflict again and again.
 * Precedence: with late locks, a transaction of remo_tx_run that was in conflict 16 times in succession
 *          claims the keys of its last attempt at their owners. Until the claims end, no younger transaction
 *          can commit a change of these keys or, if one was absent, of the keys of its group (structure.h):
 *          its commit returns -EAGAIN, and remo_tx_last_conflict returns REMO_TX_LOCKED. Transactions can
 *          still read the keys. The age of a transaction is fixed when it first claims keys; transactions
 *          without claims are younger. The transaction waits while an older one claims one of the same keys,
 *          unless both only read it, and then repeats its attempt. So if each attempt uses the same keys, the
 *          transaction succeeds when the locks that it meets have been released, and the older transactions
 *          have ended.
 *          Exceptions: transactions with early locks, or without remo_tx_run; changes by functions of
 *          structure.h; the growth of a table. At most 8 transactions of a node in a space claim keys at the
 *          same time; others repeat as before. If the keys of one owner need more than REMO_RPC_BYTES_MAX (24
 *          bytes and the key each, and 24 bytes once), some of them are not claimed.
 *          A claim lasts for at most 1 s after the last attempt: so a node that pauses delays others
 *          for no longer, and an attempt that takes longer has no precedence. A wait of the `body`
 *          (REMO_TX_WAIT), or an -EAGAIN of its own, ends the claims. So does the failure of the node. After
 *          2 * REMO_TX_ITEMS_MAX further conflicts the claims end too, and the transaction later gets a new
 *          age. A `body` must not wait for a transaction that changes keys which it uses.
 *          Cost: after each conflict from the 16th on, 1 call to each owner, all at the same time, repeated
 *          while the transaction waits for older ones; 1 post to each owner that an attempt no longer uses,
 *          and at the end 1 post to each owner. During these calls the transaction counts as one of the 32
 *          commits (see Locks); if these have not ended, it claims no keys. Other transactions: no network
 *          operation; a change of a key in a group with claims reads the clock, and compares each.
 * Caches:  see structure.h.
 * Locks:   a commit with changes, if its keys have several owners, locks the items that it changes, from its
 *          first calls until their owners have the outcome. Meanwhile other transactions that use these
 *          items are in conflict. Lookups and changes of these items wait (structure.h). A lookup in a
 *          transaction does not wait if its read finds the item. The commit itself never waits for a lock. At
 *          most 32 such commits of a node in a space run at the same time; others wait.
 *          A space with REMO_TX_EARLY locks each item when a transaction reads it for update, or changes its
 *          key: present items and absent keys, whatever their owner. The item stays locked until
 *          remo_tx_commit, remo_tx_abort, remo_tx_wait or remo_tx_close, or until the node of the transaction
 *          fails: a lock has no time limit. So a `body` must not wait for other transactions, or pause for
 *          long. In such a space no function waits for a lock. If the owner finds the item locked,
 *          remo_tx_read and the functions that change a key return -EAGAIN at once. The transaction can then
 *          only abort. So transactions do not deadlock. But a lookup of structure.h waits for locks, also for
 *          those of its own thread. From its first lock to its end, a transaction counts as one of the 32
 *          commits.
 *          Which to choose: late locks are the default. They take fewer messages and less time: reads need no
 *          call, and all keys of one owner are committed by one call. In `remo bench smallbank` and `tatp`
 *          early locks make 0.51 to 0.88 times as many transactions, and 0.17 to 0.65 times as many if most
 *          attempts are in conflict, because they are held for longer. Choose early locks if transactions
 *          work for long with the values that they have read. Once such a transaction has locked its keys,
 *          shorter transactions cannot make its commit fail, and a conflict shows before the work. The spaces
 *          of all nodes may differ, and two spaces with the same structures may have different locks.
 * Failure: a transaction is applied completely or not at all, on all nodes that are up. Items of a node that
 *          fails are lost.
 *          If an owner fails or closes the space, the waits for its keys end with -EHOSTDOWN or -ENOTCONN at
 *          once. If a node fails while its transaction waits, the owners end its watches.
 *          If the node that runs the transaction fails during a commit, the owners find out the outcome, and
 *          unlock the items, some milliseconds after they have detected the failure. The decider is the first
 *          owner of changed items that is not the node that runs the transaction. If both nodes fail
 *          together, the remaining owners abort the transaction, unless one of them has applied it. A lookup
 *          at the decider may have returned the changes before the decider failed.
 *          If an owner fails before it has prepared, or before keys of it that were only read are validated,
 *          the commit returns -EHOSTDOWN, and nothing has changed. With early locks: also if this node
 *          detects, before the decision, the failure of an owner that has locked an item. The decider is then
 *          the owner of the first lock that is not the node that runs the transaction. If that node fails at
 *          any time, the owners unlock the items in the same way.
 *          If the decider fails later, the commit waits until all nodes have detected this, and returns
 *          -EHOSTDOWN. The transaction is committed, unless this node has lost all other nodes because it
 *          counts as failed for them. If the others do not detect the failure of the decider within
 *          op_timeout_ns, the commit returns -ETIMEDOUT. If this node detects the failure before it asks the
 *          decider to commit, nothing has changed. If another owner fails later, the commit returns 0.
 *          After -EHOSTDOWN, -ENOTCONN or -ETIMEDOUT of a commit with changes, remo_tx_settle states the
 *          outcome, or waits until it is known. Either all changes are applied, perhaps after the commit has
 *          returned, or none is.
 *          Close a space when no transaction of any node is in progress: a node that closes it counts as
 *          failed for the transactions of others. The last calls of a commit may follow its return. So if a
 *          node fails while others close the space, its last transaction may remain applied at only some of
 *          the owners.
 * Threads: a transaction object is used by one thread or task at a time, different objects concurrently. Do
 *          not use transactions in a SHORT handler or a `done` function (rpc.h): they may wait, and return
 *          -EDEADLK only if a call is needed. LONG handlers may use them. A change of a key by a function of
 *          structure.h, or by another transaction object, is in conflict with a transaction of the same
 *          thread that has read it. On shm lookups and commits first serve requests, as the lookups of
 *          structure.h do (see its Threads). A wait for a change also serves (rpc.h, Serving): its thread
 *          must not hold a mutex that a handler acquires.
 *          At most 16 LONG handlers of a depth run at a node (rpc.h). If all of them wait for changes, no
 *          other LONG request of this depth starts, also none that would make the change.
 * Memory:  a transaction object takes about 28 KiB. A space is one service of rpc.h. It reserves 550 KiB of
 *          address space per node of the job and 5 MiB once; most of it takes no memory before its first use.
 *          A call takes up to 32 KiB of the stack.
 * Source:  Storm 5.3, 5.4: early locks. By default, items are locked only during the commit, as in FaRM.
 *          Differs in: a commit validates absent keys too; without changes it skips the key that was looked
 *          up last; one call commits if all keys have one owner; owners find out the outcome without
 *          replicas.
 *          docs/internals/tx.md has the proof.
 */
#pragma once

#include <remo/structure.h>

REMO_BEGIN

#define REMO_TX_STRUCTURES_MAX 16u
#define REMO_TX_ITEMS_MAX 64u /* keys of one transaction */
/* Of one transaction: its keys, the values read, and each new value, even if a later one replaces it. With
 * changes the limit of the request applies too: see remo_tx_commit. */
#define REMO_TX_BYTES_MAX 16384u
/* The function that remo_tx_run calls returns this value to wait for a change. It is not an errno code. */
#define REMO_TX_WAIT (-4096)

struct remo_tx_space;
struct remo_tx;

/* When a transaction locks the items that it changes (see Locks). */
enum remo_tx_locks {
    REMO_TX_LATE, /* during its commit */
    REMO_TX_EARLY /* when it reads them for update, or changes them */
};

struct remo_tx_space_options {
    struct remo_nodeset participants;         /* empty: the parent's; each must have opened all structures */
    struct remo_structure *const *structures; /* open, the same in the same order on every participant */
    uint32_t structure_count;                 /* 1 to REMO_TX_STRUCTURES_MAX */
    enum remo_tx_locks locks;                 /* 0: REMO_TX_LATE; of the transactions of this node */
};

/* Open the transaction space `name` below `parent`. If the structures of two nodes differ, remo_channel_wait
 * returns -EPROTO. Close the space before its structures. Does not wait for peers to open.
 * Errors:
 *   -EINVAL  an argument or a structure is NULL, structure_count is out of range, a structure is listed
 *            twice, or `locks` is unknown
 *   -ENOMEM  no memory
 *   others   those of remo_rpc_open */
REMO_API int remo_tx_space_open(struct remo_channel *parent, const char *name,
                                const struct remo_tx_space_options *options,
                                struct remo_tx_space **ret_space);
/* Close the space, after its transaction objects; not in a handler or a `done` function (rpc.h). NULL has
 * no effect. Waits until the calls of peers that run here have returned, until the owners of items have
 * the outcome of the transactions of this node, and until this node has the outcome of the transactions that
 * it has prepared. With early locks of peers, also waits until their transactions that have locked items here
 * have ended; such a lock has no time limit. If an owner has failed during a commit, waits until all nodes
 * have detected this. */
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
/* Copy the value of the key: the one that this transaction has set, or else the one that its first lookup of
 * the key found. Parameters and blocking: as in remo_structure_lookup. -ENOENT is a result that the
 * commit validates too; so are -ENOENT and -EEXIST of the changes below. After an error of "others" call
 * remo_tx_abort. After the other errors the transaction continues.
 * Errors:
 *   -ENOENT     the key is absent
 *   -EMSGSIZE   the value is longer than `cap`, the key is longer than key_bytes_max, or the transaction
 *               would have more than REMO_TX_BYTES_MAX bytes
 *   -ENOBUFS    the transaction has REMO_TX_ITEMS_MAX keys
 *   -EINVAL     an argument is NULL, the key is empty, or the structure is not one of the space
 *   -ESTALE     the transaction has not begun, or it has ended
 *   -EAGAIN     REMO_TX_EARLY: the key is locked (see Locks). Return -EAGAIN from `body`, or abort
 *   others      those of remo_structure_lookup */
REMO_API int remo_tx_read(struct remo_tx *tx, struct remo_structure *structure, const void *key,
                          size_t key_bytes, void *value, size_t cap, size_t *ret_value_bytes);
/* Read a key that the transaction will change. In a space with REMO_TX_LATE this is remo_tx_read. With
 * REMO_TX_EARLY, lock the key, also if it is absent, until the transaction ends: its state cannot change
 * before. If the transaction has read the key before, the result is the same again. The functions below that
 * change a key do this first, remo_tx_put too. Does not wait for the lock of another transaction. With
 * REMO_TX_EARLY, if the key cannot be locked, or there is no room for its value, nothing can be committed:
 * further functions that lock a key return this error too, and so does remo_tx_commit. Call remo_tx_abort.
 * Blocks for op_timeout_ns at most, the first time in a transaction for twice as long. Cost with
 * REMO_TX_EARLY: 1 call (rpc.h); none if this node owns the key, or the transaction has locked it.
 * Errors: those of remo_tx_read, and with REMO_TX_EARLY
 *   -EAGAIN     the key is locked by another transaction, or has changed since this one has read it: see
 *               remo_tx_last_conflict. Return -EAGAIN from `body`, or abort and begin again
 *   -ENOSPC     the key is absent, and its owner has no room for it
 *   -EMSGSIZE   also if the locked keys of an owner need more than REMO_RPC_BYTES_MAX together: see
 *               remo_tx_commit
 *   -EDEADLK    the caller is a SHORT handler or a `done` function
 *   -EHOSTDOWN, -ENOTCONN  the owner has failed or left, or has closed the space
 *   -ETIMEDOUT  the owner does not answer, or 32 commits and transactions with locks of this node have not
 *               ended */
REMO_API int remo_tx_read_for_update(struct remo_tx *tx, struct remo_structure *structure, const void *key,
                                     size_t key_bytes, void *value, size_t cap, size_t *ret_value_bytes);
/* A key for remo_tx_read_many, and its result. */
struct remo_tx_lookup {
    struct remo_structure *structure;
    const void *key;
    size_t key_bytes;
    void *value; /* `cap` bytes; may be NULL if `cap` is 0 */
    size_t cap;
    size_t value_bytes; /* set: of the value; 0 if it was not read */
    int status; /* set: 0, -ENOENT or -EMSGSIZE, as remo_tx_read returns them; or the returned error */
};
/* Read several keys, as remo_tx_read does for each. The reads of keys that the transaction has not looked up
 * are in flight at the same time, up to 16 KiB at a time. Then come the calls for keys that reads do not
 * find, up to 16 calls and 16 KiB of requests and replies at the same time. Keys whose items were locked or
 * changing follow, one after another. So if a read finds each key, and all fit in 16 KiB, this takes the time
 * of one read. Absent keys are no error of this function. Blocks at most as long as the lookups one after
 * another.
 * Errors: those of remo_tx_read, for any key. Then all keys have this `status`, and no value was copied.
 * Except
 *   -EMSGSIZE  if `value_bytes` of a key is larger than `cap`: all other keys were read
 *   -ENOBUFS   `count` is larger than REMO_TX_ITEMS_MAX, or the transaction would have more keys
 *   -EINVAL    also if `lookups` is NULL, and `count` is not 0 */
REMO_API int remo_tx_read_many(struct remo_tx *tx, struct remo_tx_lookup *lookups, uint32_t count);
/* Insert an absent key (insert), replace the value of a present key (update), do whichever applies (put), or
 * delete a present key (delete). The change takes effect when the transaction commits. `value` may be NULL if
 * `value_bytes` is 0.
 * Errors: those of remo_tx_read_for_update, and
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
/* Validate all keys that the transaction has read: return 0 if all results were current at one moment during
 * this call. The transaction continues, even after -EAGAIN: then abort it, or return -EAGAIN from `body`.
 * Blocks: op_timeout_ns limits the reads of all present keys together, and those of each absent key. Cost:
 * that of a commit without changes, plus the validation of the key that was looked up last.
 * Errors:
 *   -EAGAIN  a key has changed or is locked; see remo_tx_last_conflict
 *   -ESTALE  the transaction has not begun, or it has ended
 *   others   those of remo_structure_lookup */
REMO_API int remo_tx_check(struct remo_tx *tx);
/* Commit the transaction: validate what it has read, apply its changes, and end it. It ends after an error
 * too. Blocks: if all keys have one owner, and some change, for op_timeout_ns at most; without changes, as
 * remo_tx_check; otherwise as remo_tx_check, plus 4 times op_timeout_ns.
 * Errors:
 *   -EAGAIN     a key has changed since the transaction read it, or is locked: nothing has changed, see
 *               remo_tx_last_conflict. If that returns -ENOENT: too many threads use the node (node.h)
 *   -ENOSPC     no room at the owner for a new key; nothing has changed
 *   -EMSGSIZE   a request of a commit with changes is longer than REMO_RPC_BYTES_MAX (rpc.h). It has
 *               8 bytes; for each key of the owner 24 bytes and the key; and the last new value of each
 *               changed key. If the keys have several owners: 32 bytes more, and 2 bytes for each owner.
 *               With REMO_TX_EARLY one request has this for all keys that are locked at other nodes, and 12
 *               bytes more for each owner. Nothing has changed
 *   -EHOSTDOWN  an owner has failed or left (see Failure)
 *   -ENOTCONN   an owner has closed the space (see Failure)
 *   -ETIMEDOUT  an owner does not answer (see Failure), or 32 commits of this node have not ended
 *   -ESTALE     the transaction has not begun, or it has ended
 *   -EINVAL     `tx` is NULL
 *   others      those of remo_structure_lookup and remo_rpc_call */
REMO_API int remo_tx_commit(struct remo_tx *tx);

/* The outcome of a transaction. If it is UNKNOWN, the only owner has failed or closed the space before it
 * answered, this node has lost all other nodes, or the memory of an owner is damaged. */
enum remo_tx_fate {
    REMO_TX_NOT_COMMITTED, /* nothing has changed, and nothing will */
    REMO_TX_COMMITTED,     /* all owners that are up apply the changes, perhaps after a moment */
    REMO_TX_PENDING,       /* one of the two, but not known yet: an owner does not answer */
    REMO_TX_UNKNOWN        /* one of the two; this node will not know */
};
/* Wait until the fate of the last transaction is not PENDING. Call it after an error of remo_tx_commit or
 * remo_tx_run, if it matters whether the transaction is committed. If all owners are up, the fate is not
 * UNKNOWN. Blocks only if the commit returned -ETIMEDOUT, and for `timeout_ns` at most; may be repeated.
 * After remo_tx_begin, the fate is that of the new transaction. While it is PENDING, and the keys have
 * several owners, the commit counts as one that runs (see Locks), until remo_tx_settle returns 0,
 * remo_tx_begin or remo_tx_close. *ret_fate is set after errors too, except -EINVAL and -EBUSY. No network
 * operation.
 * Errors:
 *   -EINVAL     an argument is NULL
 *   -EBUSY      the transaction has not ended
 *   -ETIMEDOUT  the fate is still PENDING
 *   others      those of remo_rpc_serve */
REMO_API int remo_tx_settle(struct remo_tx *tx, uint64_t timeout_ns, enum remo_tx_fate *ret_fate);
/* End the transaction without its changes. No effect on NULL or a transaction that has ended. No network
 * operation; with REMO_TX_EARLY 1 call to each owner of a lock, for which it does not wait. */
REMO_API void remo_tx_abort(struct remo_tx *tx);

/* End the transaction without its changes, also after an error, and wait until a key that it has read may
 * have changed. Then the program calls remo_tx_begin and repeats its reads, which return the new values.
 * Blocks for `timeout_ns` at most; in a LONG handler also until the deadline of its request at most. On
 * fabrics that do not order writes, the start and the end may also wait for fences (rpc.h, Cost).
 * Returns 0 if a result that the transaction has read is not current any more, even if it changed before the
 * call. For a key that was present, each update, put or delete counts, even if the value is the same again.
 * A key that was read as absent counts as changed while it is present. A change that a commit has prepared,
 * but not applied yet, does not count. A key counts as read after any lookup by this transaction, also by
 * remo_tx_insert, update and delete. So all keys on which the decision to wait depends end the wait. It may
 * also end without a change of these keys:
 *   - the bucket of the key in a table has been divided since the key was read: the wait ends at once;
 *   - no watch can be set. Then the function pauses for a random time up to 1 ms and returns 0, so the
 *     program polls. Reasons: an owner has not opened the space, or cannot send replies to this node now;
 *     64 transactions of this node already wait in the space; the waits of all spaces of this node would have
 *     more than 128 calls to owners in flight (32 in LONG handlers); or these calls, and calls that have
 *     ended without a reply, would take more than 256 slots (48 in LONG handlers).
 * If an owner pauses, the slots of waits that have ended stay in use until it resumes or fails: see rpc.h,
 * Failure, and remo_rpc_late_count. Waits leave 64 slots to other calls (16 to those of LONG handlers).
 * A transaction with changes can wait, too; the wait discards the changes.
 * One change wakes all transactions that wait for the key. All but one will probably be in conflict, and wait
 * again. In a task, parks the task.
 * Errors:
 *   -ETIMEDOUT  no key has changed in time. With 0, always: no owner is called
 *   -EHOSTDOWN  an owner of a key has failed or left
 *   -ENOTCONN   an owner has closed the space
 *   -EDEADLK    the caller is a SHORT handler or a `done` function
 *   -EINVAL     `tx` is NULL, or the transaction has read no key
 *   -EMSGSIZE   the keys of one owner need more than REMO_RPC_BYTES_MAX: 24 bytes and the key each, and 16
 *               bytes once
 *   -ESTALE     the transaction has not begun, or it has ended
 *   others      those of remo_rpc_start */
REMO_API int remo_tx_wait(struct remo_tx *tx, uint64_t timeout_ns);

/* Run `body(ctx, tx)` as a transaction: begin, `body`, and commit if it returned 0. If the
 * commit is in conflict, or `body` returns -EAGAIN, pause for a random time and repeat, unless `timeout_ns`
 * has passed. The limit of the pause doubles from 1 us to 1 ms. With late locks, after 16 conflicts in
 * succession the transaction precedes younger ones (see Precedence). If `body` returns REMO_TX_WAIT, call
 * remo_tx_wait for the time that is left, and repeat at once. `timeout_ns` does not interrupt an attempt;
 * 0: one attempt. Any other result of `body` aborts the transaction, and is returned. `body` must
 * not begin, commit, abort or wait; it may run several times, even with values that are not consistent with
 * each other (see Order).
 * Errors:
 *   -EINVAL     `tx` or `body` is NULL
 *   -EBUSY      the last transaction has not ended
 *   -ETIMEDOUT  every attempt within `timeout_ns` returned -EAGAIN: nothing has changed, and
 *               remo_tx_last_conflict returns 0, unless `body` returned an -EAGAIN of its own. Or an
 *               -ETIMEDOUT of `body`, of the wait, or of the commit: remo_tx_last_conflict returns -ENOENT
 *   others      those of `body`, remo_tx_wait and remo_tx_commit */
REMO_API int remo_tx_run(struct remo_tx *tx, int (*body)(void *ctx, struct remo_tx *tx), void *ctx,
                         uint64_t timeout_ns);

/* ---- conflicts ---- */

enum remo_tx_conflict_kind {
    REMO_TX_CHANGED, /* the item was changed or deleted, or its memory has another key */
    REMO_TX_LOCKED,  /* another transaction was changing it, or precedes this one */
    REMO_TX_APPEARED /* the key was absent, and may have been inserted */
};

struct remo_tx_conflict {
    struct remo_structure *structure;
    const void *key; /* valid until the next remo_tx_begin or remo_tx_close */
    size_t key_bytes;
    enum remo_tx_conflict_kind kind;
};
/* Return the key for which the last remo_tx_commit or remo_tx_check since remo_tx_begin returned -EAGAIN, and
 * the kind of conflict; with REMO_TX_EARLY also that of a read or change. If several keys are in conflict,
 * return one of them. Does not block.
 * Errors:
 *   -ENOENT  the last such call did not report a conflict, or there was no such call
 *   -EINVAL  an argument is NULL */
REMO_API int remo_tx_last_conflict(const struct remo_tx *tx, struct remo_tx_conflict *ret_conflict);

REMO_END
