/* kv.h - a distributed hash map: a get takes no lock and one network read.
 *
 * Model:   every participant holds slots {state, key, value} in a region, and a complete local
 *          index key -> (node, slot). Inserts, updates and deletes acquire the ticket lock of the
 *          key's stripe. An insert fills a slot of this node, announces it to all indices, and
 *          makes it valid when all participants have acknowledged. A delete marks the slot at its
 *          node, and then announces the removal. Announcements are remote procedure calls (rpc.h) of
 *          a service of the map. The threads that serve apply them (rpc.h, Serving). On shared
 *          memory a thread in a function of this header also does, while one of its changes waits
 *          for acknowledgements or for a free message, and in remo_kv_close. Such a thread runs the
 *          SHORT handlers and `done` functions of all services of the node. It must hold no lock
 *          that one of these functions acquires. Callbacks of the node's service thread may then
 *          run up to 1 ms later, on networks up to 2 ms.
 * Layout:  slot = {u64 generation|key length|state, key, copy, copy}, copy = {u64 checksum, u64
 *          version|length, value}. Key and values have their maximum length; a slot is rounded up
 *          to cache lines. Keys and values of 8 bytes fit one line. The newer copy is the value. An
 *          update overwrites the older copy, so a writer that fails does not damage the last value,
 *          and readers never wait for a writer.
 * Cost:    get = 1 read of a slot. A second read follows a torn read, or a fingerprint that two
 *          keys share (1 of 15,000 searches). get of an absent key = 0 reads. With n participants,
 *          uncontended:
 *          - update, fetch_add, compare_put: 2 atomics (lock) + 1 read + 1 write; no write if the
 *            operation is refused, no read if the key is absent;
 *          - insert: 2 atomics + n-1 requests, 1 write (notify) each; then a wait for n-1 replies,
 *            each 1 write (notify) of the other participant;
 *          - put: an update if the key is present, an insert if it is absent;
 *          - delete: 2 atomics + 1 read + 1 write + n-1 requests, 1 write (notify) each; it does not
 *            wait for the replies;
 *          - next: 1 read for each entry that it visits: one per key, and briefly those of deleted
 *            keys.
 *          On a network, updates of one key that are in a window together can share the 2 atomics,
 *          the read and the write of one of them, whose value then overwrites those of the others.
 *          Inserts and deletes of one window share their messages: n-1 requests and replies for up
 *          to 256 of them on shared memory, for up to 97 on a network.
 * Order:   linearizable, for each key. Operations of one thread that are in flight together are
 *          concurrent with each other. Each key and value that a cursor returns was in the map at
 *          some moment of that call; a cursor is not a snapshot of the map.
 * Caches:  without hardware coherence (see region.h) open returns -EOPNOTSUPP.
 * Failure: keys on a failed node: -EHOSTDOWN; on a node that has closed the map: -ENOTCONN. An
 *          absent key gets the same error if its fingerprint equals that of a lost key. Keys whose
 *          stripe has its lock on a failed node (one key in n) become read-only: changes return
 *          -EHOSTDOWN. All other keys are unaffected. To change all remaining keys again, copy them
 *          into a new map with fewer participants. A change that a node had begun when it failed is
 *          applied or not applied, and leaves nothing to repair. After -ETIMEDOUT (op_timeout_ns),
 *          as after every error of a node or the network, the outcome of the change is unknown.
 *          While its write may still arrive, its stripe stays locked: changes of keys of the stripe
 *          return -ETIMEDOUT. If the change was a single one, the next single change of its thread
 *          or task, of any key, waits until the stripe is unlocked. Changes of a window do not wait.
 *          When the node answers or has failed, the next get, next, poll or wait unlocks all such
 *          stripes of the calling thread and its tasks. A single change is sure to unlock only the
 *          stripe for which it waits. So call one of those four before the thread ends.
 *          While a participant pauses, inserts return -ETIMEDOUT. When all messages of this node
 *          (remo_kv_open) are in flight, deletes also take op_timeout_ns, and return 0. Gets and
 *          updates continue. But on fabrics whose operations need the processor of the target (ofi),
 *          those of keys whose slot or lock is on the paused participant return -ETIMEDOUT. All maps of
 *          a node share 64 calls to participants, and each participant keeps at most 16. So maps in
 *          which no participant pauses work as usual. But if 4 nodes pause and keep all calls,
 *          inserts of all maps of the node return -ETIMEDOUT until one resumes or fails.
 *          A node that starts again after a failure cannot use a map with nodes that stayed (rpc.h,
 *          Failure): remo_kv_open and remo_channel_wait return 0, and inserts return -ETIMEDOUT on
 *          all participants.
 * Threads: any, also in LONG handlers of any depth (rpc.h): operations of the map do not count as
 *          nested calls. SHORT handlers and `done` functions must not use the map, except to start
 *          an operation.
 *          Operations of tasks (task.h) overlap as those of threads do, changes too. Each task
 *          has a window of its own. On a network a window has at most 126 reads in flight, that of a
 *          task 8, fewer if slots are large (Memory); the others wait for a buffer. Also on a
 *          network, the windows of a thread and its tasks execute at most 96 changes at a time, and
 *          each window one more; fewer than 96 if slots are larger than 10 KiB. These limits hold
 *          for each map. On all maps together the windows of a thread and its tasks execute at most
 *          128 changes at a time. The other changes wait.
 * Memory:  that of remo_kv_open, and that of rpc.h for the node.
 *          Until the map closes, each thread and task that has used it has a slot and 1 KiB in
 *          private memory. On a network it also has buffers in the arena: 2 slots, and 1 for each
 *          read in flight, for reads at most 4 MiB (task: 64 KiB) and one slot. Each of the 96
 *          changes at a time has 4 slots in the arena, and 1 slot and 0.5 KiB in private memory.
 *          Those in the arena take 4 MiB at most for a thread with its tasks, or 4 slots if these
 *          are larger. The first change of a window of a thread, on any map, also reserves address
 *          space for 128 stacks of 64 KiB and their guards, until the thread ends. Each change that
 *          is executed uses a few pages of a stack.
 * Source:  LOCO 6 and Appendix C. Differs in: a get compares the key in the slot, so keys may have
 *          any length and share fingerprints; two copies of the value; deletes need no
 *          acknowledgement; gets of a window are advanced by state machines, not by user-level
 *          threads. The proof is in docs/internals/kv.md.
 */
#pragma once

#include <remo/channel.h>

REMO_BEGIN

struct remo_kv;

struct remo_kv_options {
    struct remo_nodeset participants;
    uint64_t capacity;        /* keys in the map; default 65536. A node gets slots for its share and 10 % */
    uint32_t key_bytes_max;   /* default 64, at most 65535 */
    uint32_t value_bytes_max; /* default 1024, at most 16777215 */
    uint32_t stripes;         /* locks; default 1024 */
};

/* Open the map `name` below `parent`; `options` may be NULL. The options are the same on every
 * participant; otherwise remo_channel_wait returns -EPROTO. Does not wait for peers to open;
 * inserts and deletes do. Memory per node: 1.1 * capacity / participants slots of network memory,
 * each of 8 + key_bytes_max + 2 * (16 + value_bytes_max) bytes, rounded up to 64. Private memory:
 * 17 bytes for each key of the capacity; at most 8 MiB for keys that nodes are deleting; 16 messages
 * (above 16 participants 256 / participants, but at least 4), each of 4 KiB and 0.25 KiB for each
 * other participant. The map has 4 channels, and is a service of rpc.h.
 * Errors:
 *   -EINVAL  an option is out of range; the sentence names it
 *   -EMFILE  this node has REMO_RPC_SERVICES_MAX services (rpc.h); close some
 *   others   those of remo_rpc_open */
REMO_API int remo_kv_open(struct remo_channel *parent, const char *name,
                          const struct remo_kv_options *options, struct remo_kv **ret_kv);
/* Close the map. First complete all operations of this node. Keys with a slot on this node are
 * lost. NULL has no effect. Waits until all messages of this node are in the rings of the peers
 * (rpc.h), for op_timeout_ns at most. A node that pauses keeps at most 16 calls of all maps together
 * (Failure, above); further messages have no room. So while a node pauses, the close of each map
 * with such a message takes op_timeout_ns, and a thread that closes several maps waits as often. If
 * a delete has found no free message, and its record has not been sent since, peers keep a stale
 * entry: one more read in each search for the key. A peer keeps the entry until it changes the key,
 * or until the node of the slot frees the slot. */
REMO_API void remo_kv_close(struct remo_kv *kv);
REMO_API struct remo_channel *remo_kv_channel(struct remo_kv *kv);

/* ---- single operations ----
 *
 * Block; op_timeout_ns limits each wait.
 * Errors of all calls:
 *   -EINVAL     the key is empty, or a pointer is NULL
 *   -EMSGSIZE   the key or value is too long; the sentence names the limit
 *   -EHOSTDOWN  a node that the operation needs has failed
 *   -ENOTCONN   a node that the operation needs has closed the map
 *   -ETIMEDOUT  the outcome of a change is unknown, or the stripe is locked
 *   -EAGAIN     too many threads use the node
 *   -ENOMEM     no memory for the state of the thread or task, or for the stacks of the changes of
 *               its window
 *   -ENOSPC     no room in the arena for the buffers of the thread or task
 *   -ENOBUFS    operations in flight, or those that timed out, use all buffers of the thread or task
 * Threads: any, including threads with a window in flight. */

/* Copy the value of the key to `value`. Its contents are undefined after an error.
 * Errors:
 *   -ENOENT    the key is absent
 *   -EMSGSIZE  the value is longer than `cap`; *ret_value_bytes (may be NULL) is its length */
REMO_API int remo_kv_get(struct remo_kv *kv, const void *key, size_t key_bytes, void *value, size_t cap,
                         size_t *ret_value_bytes);
/* Insert the key. Waits until all participants that are up have acknowledged.
 * Errors:
 *   -EEXIST  the key is present
 *   -ENOSPC  this node has no free slot; slots of keys deleted by peers become free shortly
 *            after */
REMO_API int remo_kv_insert(struct remo_kv *kv, const void *key, size_t key_bytes, const void *value,
                            size_t value_bytes);
/* Replace the value of the key.
 * Errors:
 *   -ENOENT  the key is absent */
REMO_API int remo_kv_update(struct remo_kv *kv, const void *key, size_t key_bytes, const void *value,
                            size_t value_bytes);
/* Insert the key, or update it if it is present.
 * Errors:
 *   -ENOSPC  the key is absent, and this node has no free slot */
REMO_API int remo_kv_put(struct remo_kv *kv, const void *key, size_t key_bytes, const void *value,
                         size_t value_bytes);
/* Add `delta` to the value, a uint64_t in the byte order of the machine; the sum wraps. *ret_old
 * (may be NULL) is the value before. The call does not create the key: insert it first with its
 * initial value, and ignore -EEXIST.
 * Errors:
 *   -ENOENT  the key is absent
 *   -EINVAL  the length of the value is not 8 bytes */
REMO_API int remo_kv_fetch_add(struct remo_kv *kv, const void *key, size_t key_bytes, uint64_t delta,
                               uint64_t *ret_old);
/* Replace the value of the key by `value` if it equals `expected`, in length and in every byte. The
 * call compares values, not versions: a get returns no version, and a version has no meaning after
 * a delete and an insert. To detect a value that changed and changed back, keep a counter in it.
 * Errors:
 *   -ESTALE  the value differs from `expected`; nothing has changed
 *   -ENOENT  the key is absent */
REMO_API int remo_kv_compare_put(struct remo_kv *kv, const void *key, size_t key_bytes, const void *expected,
                                 size_t expected_bytes, const void *value, size_t value_bytes);
/* Delete the key. After 0 the key is absent on all nodes. After -ETIMEDOUT, or another error of a
 * node or the network, the outcome is unknown: the deletion may take effect after the return. To
 * determine the outcome, repeat the call. 0 and -ENOENT are definite: -ENOENT then means that an
 * earlier attempt took effect, or that another node deleted the key.
 * Errors:
 *   -ENOENT  the key is absent */
REMO_API int remo_kv_delete(struct remo_kv *kv, const void *key, size_t key_bytes);

/* ---- a window of operations ----
 *
 * An operation, its key and its value are in the caller's memory, and must stay in place while the
 * status of the operation is -EINPROGRESS. A thread may start any number of operations. Only poll
 * and wait advance them: all operations of the thread on the map together. Their network operations
 * overlap, and those to one peer share messages. A change in flight may hold a lock, or be the next
 * in the queue of one, until its thread polls again: other changes of keys of that stripe wait. A
 * thread must complete its operations before it ends. A task counts as a thread here. */
enum remo_kv_kind {
    REMO_KV_GET,
    REMO_KV_INSERT,
    REMO_KV_UPDATE,
    REMO_KV_DELETE,
    REMO_KV_PUT,
    REMO_KV_FETCH_ADD,
    REMO_KV_COMPARE_PUT
};

struct remo_kv_op {
    enum remo_kv_kind kind; /* in */
    const void *key;        /* in */
    size_t key_bytes;       /* in */
    void *value;            /* in (insert, update, put, compare_put) or out (get; fetch_add: the old value) */
    size_t value_bytes;     /* in: length, or capacity (get, fetch_add); out (get, fetch_add): length */
    int status;             /* out: -EINPROGRESS until the operation is complete */
    uint64_t internal[16];  /* the library's */
    const void *expected;   /* in (compare_put) */
    size_t expected_bytes;  /* in (compare_put) */
    uint64_t delta;         /* in (fetch_add); `value` may be NULL then, with value_bytes = 0 */
};

/* Start an operation. Does not block.
 * Errors (op->status has them too): those of a wrong key or value, and
 *   -EAGAIN  too many threads use the node
 *   -ENOMEM, -ENOSPC  no memory for the state of the thread, or no room for it in the arena */
REMO_API int remo_kv_start(struct remo_kv *kv, struct remo_kv_op *op);
/* Advance this thread's operations on the map. On shared memory the call advances each by one step,
 * and waits up to 5 us for one lock. While a change waits for acknowledgements or for a free message,
 * the call also serves requests of all services that have arrived (rpc.h). On a network it advances
 * each get by one step, and the changes until each must wait for the network or for a lock, and in
 * place of serving it sends queued requests. While the thread executes 2 or more
 * changes, the call also executes operations of peers on this node's memory: at most one message of each
 * peer's thread. It waits only after a change has timed out (Failure, above): up to 1 ms for the write
 * of each such change, at most once in 10 ms. Returns the number of operations in flight, or -errno.
 * Errors:
 *   -EAGAIN  too many threads use the node
 *   -ENOMEM, -ENOSPC  no memory for the state of the thread, or no room for it in the arena */
REMO_API int remo_kv_poll(struct remo_kv *kv);
/* Wait until `op` is complete, and return its status. op_timeout_ns limits each wait.
 * Errors: those of the operation, and
 *   -EPERM  another thread or task has started it */
REMO_API int remo_kv_wait(struct remo_kv *kv, struct remo_kv_op *op);

/* ---- all keys ---- */

/* A position in the index of this node: a value of the caller, which needs no close. */
struct remo_kv_cursor {
    uint64_t internal[2]; /* the library's */
};

#define REMO_KV_CURSOR_INIT \
    {                       \
        { 0, 0 }            \
    }

/* Return the next key and its value, and advance the cursor. The order of keys is unspecified. A
 * key that is present from the first call to the last is returned exactly once. A key that is
 * inserted or deleted between them is returned at most once for each insert. With value = NULL and
 * value_cap = 0 the value is not copied; ret_value_bytes may be NULL. The contents of `key` and
 * `value` are undefined after an error. Blocks; op_timeout_ns limits each wait.
 * Threads: any; one at a time for each cursor.
 * Errors:
 *   -ENOENT     no more keys
 *   -EHOSTDOWN  the node of the entry has failed; the cursor advances, and the next call continues
 *   -ENOTCONN   the node of the entry has closed the map; the cursor advances, and the next call
 *               continues
 *   -EMSGSIZE   the key or the value is longer than its buffer: *ret_key_bytes is set, and
 *               *ret_value_bytes if the key fits. Buffers of key_bytes_max and value_bytes_max
 *               always suffice
 *   -ETIMEDOUT  the node of the entry does not answer
 *   -EINVAL     an argument is wrong
 *   -EAGAIN     too many threads use the node
 *   -ENOMEM     no memory for the state of the thread
 *   -ENOSPC     no room in the arena for the buffers of the thread
 * After -EMSGSIZE and the errors below it, the cursor stays at the entry. */
REMO_API int remo_kv_next(struct remo_kv *kv, struct remo_kv_cursor *cursor, void *key, size_t key_cap,
                          size_t *ret_key_bytes, void *value, size_t value_cap, size_t *ret_value_bytes);

/* Return the number of keys in the index of this node. It includes keys of failed nodes and,
 * briefly, keys during an insert or after a delete. Does not block. */
REMO_API uint64_t remo_kv_count(const struct remo_kv *kv);

REMO_END
