/* kv.h - a distributed hash map whose reads take no lock and one network read.
 *
 * Model:   every participant holds slots {state, key, value} in a region and a complete local index key ->
 *          (node, slot). Inserts, updates and deletes take the ticket lock of the key's stripe. An insert
 *          writes a slot of this node, tells all indices through this node's tracker (a ring buffer that a
 *          service thread of each node applies), and makes the slot valid when all have acknowledged. A
 *          delete marks the slot, wherever it is, and tells all.
 * Layout:  slot = {u64 generation|key length|state, key, copy, copy}, copy = {u64 checksum, u64
 *          version|length, value}, each at its longest; rounded up to cache lines. Keys and values of 8 bytes
 *          take one line. The newer copy is the value, an update overwrites the older: no writer that dies
 *          tears the last value, and no reader waits for a writer.
 * Cost:    get = 1 read of a slot; a second one when it was torn, or when two keys share a fingerprint (1 of
 *          15,000 searches). Absent = 0 reads. With n participants, uncontended:
 *          update = 2 atomics (lock) + 1 read + 1 write;
 *          insert = 2 atomics + n-1 writes (woken), and 1 write (woken) by each other participant, which it
 *          waits for;
 *          delete = 2 atomics + 1 read + 1 write + n-1 writes (woken), waiting for none.
 *          Inserts and deletes of one window share their messages: n-1 writes for up to 256 of them.
 * Order:   linearizable, each key. Windows: operations of one thread that are in flight together are
 *          concurrent with each other.
 * Caches:  where no hardware keeps them coherent (see region.h), opening it gives -EOPNOTSUPP.
 * Failure: a key on a dead node: -EHOSTDOWN; on one that has closed the map: -ENOTCONN (also for a key that
 *          is nowhere, if its fingerprint is that of a lost one). The stripes whose lock was there, one key
 *          in n, can only be read any more: insert, update and delete give -EHOSTDOWN, because nobody can
 *          tell whether somebody holds the lock. All else goes on, and a new map with fewer participants
 *          takes what is left. A node that dies in the middle of a
 *          change leaves it done or not done, and nothing to repair. -ETIMEDOUT, after op_timeout_ns: the
 *          change has happened or not, as after every error of a node or network.
 * Source:  LOCO 6 and Appendix C. Differs in: the key stands in the slot and is compared, so keys of any
 *          length and equal fingerprints are safe; two copies of the value; deletes need no acknowledgement;
 *          a window of operations per thread advances by state machines instead of fibers.
 */
#pragma once

#include <remo/channel.h>

REMO_BEGIN

struct remo_kv;

struct remo_kv_options {
    struct remo_nodeset participants;
    uint64_t capacity;        /* keys in all; default 65536. Each node has its share and a tenth */
    uint32_t key_bytes_max;   /* default 64, at most 65535 */
    uint32_t value_bytes_max; /* default 1024, at most 16777215 */
    uint32_t stripes;         /* locks; default 1024 */
};

/* `options` must be the same on every participant (else remo_channel_wait says -EPROTO). Inserts and deletes
 * wait until every participant has opened the map. Memory per node: capacity / participants and a tenth more
 * slots of network memory, each of 8 + longest key + 2 * (16 + longest value) bytes, rounded up to 64; and 17
 * bytes for each key of the capacity for the index.
 * Errors: -EINVAL (an option is out of range; the sentence says which), those of remo_channel_open and
 *         remo_channel_add_memory. */
REMO_API int remo_kv_open(struct remo_channel *parent, const char *name,
                          const struct remo_kv_options *options, struct remo_kv **ret_kv);
/* No operation of this node is in flight. Keys whose slot is here are lost. */
REMO_API void remo_kv_close(struct remo_kv *kv);
REMO_API struct remo_channel *remo_kv_channel(struct remo_kv *kv);

/* ---- one at a time ---------------------------------------------------------------------------------------
 * Errors of all: -EINVAL (empty key), -EMSGSIZE (too long; the sentence names the limit), -EHOSTDOWN,
 *                -ENOTCONN, -ETIMEDOUT.
 * Threads: any, also those that have a window in flight. */
/* -ENOENT; -EMSGSIZE also when the value is longer than `cap` (*ret_value_bytes is then set to what is
 * needed; it may be NULL). What is in `value` after an error is not said. */
REMO_API int remo_kv_get(struct remo_kv *kv, const void *key, size_t key_bytes, void *value, size_t cap,
                         size_t *ret_value_bytes);
/* -EEXIST, -ENOSPC (no free slot on this node; those of keys that others delete come back within moments). */
REMO_API int remo_kv_insert(struct remo_kv *kv, const void *key, size_t key_bytes, const void *value,
                            size_t value_bytes);
/* -ENOENT. */
REMO_API int remo_kv_update(struct remo_kv *kv, const void *key, size_t key_bytes, const void *value,
                            size_t value_bytes);
/* -ENOENT. */
REMO_API int remo_kv_delete(struct remo_kv *kv, const void *key, size_t key_bytes);

/* ---- a window of operations ------------------------------------------------------------------------------
 * An operation lives in the caller's memory, as do its key and value, and all three stay in place until its
 * status is other than -EINPROGRESS. A thread may start as many as it likes; poll advances all operations of
 * this thread on this map, and nothing else does: an insert or delete that was begun holds a lock until its
 * thread polls again. A thread ends its operations before it ends. */
enum remo_kv_kind { REMO_KV_GET, REMO_KV_INSERT, REMO_KV_UPDATE, REMO_KV_DELETE };

struct remo_kv_op {
    enum remo_kv_kind kind; /* in */
    const void *key;        /* in */
    size_t key_bytes;       /* in */
    void *value;            /* in (insert, update) or out (get) */
    size_t value_bytes;     /* in: length, or room (get); out (get): length */
    int status;             /* out: -EINPROGRESS until done */
    uint64_t internal[16];  /* the library's */
};

/* Errors: those of a wrong key or value, at once and also in op->status; -EAGAIN (too many threads). */
REMO_API int remo_kv_start(struct remo_kv *kv, struct remo_kv_op *op);
/* Advance this thread's operations a step; returns how many are still in flight, or -errno. Never sleeps; may
 * spin some microseconds for a lock. */
REMO_API int remo_kv_poll(struct remo_kv *kv);
/* Until `op` is done; returns its status. */
REMO_API int remo_kv_wait(struct remo_kv *kv, struct remo_kv_op *op);

/* Keys in the index as known here; those of dead nodes too, and for moments keys that are being inserted or
 * were deleted. */
REMO_API uint64_t remo_kv_count(const struct remo_kv *kv);

REMO_END
