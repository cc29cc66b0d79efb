/* kv.h - a distributed hash map whose reads take no lock and one network read.
 *
 * Model:   every participant holds slots {state, key, value, checksum} in a region and a complete local index key -> (node, slot).
 *          Inserts, updates and deletes take the ticket lock of the key's stripe. An insert writes its slot here, tells all
 *          indices through this node's tracker (a ring buffer that a service thread of each node applies), and then makes the slot valid; a
 *          delete is the reverse.
 * Layout:  slot = {u64 checksum, u64 version|valid|lengths, key, value}, a multiple of 8 bytes, at most one cache line when it fits.
 * Cost:    get = 1 read (again only when torn, or when two keys share a fingerprint); absent = 0 reads. update = 2 atomics + 1 read + 1 write (lock, slot), uncontended.
 *          insert, delete = update + one ring-buffer message to every other participant and its acknowledgement.
 * Order:   linearizable, each key. Windows: operations of one thread that are in flight together are concurrent with each other.
 * Failure: keys on a dead node: -EHOSTDOWN. Others go on. A holder of a stripe that died: its half-done operation is finished or undone by the
 *          next owner of the stripe.
 * Source:  LOCO 6 and Appendix C. Differs in: the key stands in the slot and is compared, so keys of any length and equal
 *          fingerprints are safe; a window of operations per thread advances by state machines instead of fibers.
 */
#pragma once

#include <remo/channel.h>

REMO_BEGIN

struct remo_kv;

struct remo_kv_options {
    struct remo_nodeset participants;
    uint64_t capacity;                  /* keys in all; default 65536. Each node provides its share, and a little more */
    uint32_t key_bytes_max;             /* default 64 */
    uint32_t value_bytes_max;           /* default 1024 */
    uint32_t stripes;                   /* locks; default 1024 */
};

/* `options` must be the same on every participant. Memory per node: capacity / participants * 1.1 slots of fixed size (longest key + longest value + 24)
 * of network memory, and about 13 bytes * capacity for the index. */
REMO_API int remo_kv_open(struct remo_channel *parent, const char *name, const struct remo_kv_options *options,
                          struct remo_kv **ret_kv);
REMO_API void remo_kv_close(struct remo_kv *kv);
REMO_API struct remo_channel *remo_kv_channel(struct remo_kv *kv);

/* ---- one at a time -----------------------------------------------------------------------------------------------
 * Errors of all: -EINVAL (empty key), -EMSGSIZE (too long; the sentence names the limit), -EHOSTDOWN, -ETIMEDOUT. */
/* -ENOENT; -EMSGSIZE also when the value is longer than `cap` (*ret_value_bytes is then set to what is needed). */
REMO_API int remo_kv_get(struct remo_kv *kv, const void *key, size_t key_bytes, void *value, size_t cap, size_t *ret_value_bytes);
/* -EEXIST, -ENOSPC (no free slot on this node). */
REMO_API int remo_kv_insert(struct remo_kv *kv, const void *key, size_t key_bytes, const void *value, size_t value_bytes);
/* -ENOENT. */
REMO_API int remo_kv_update(struct remo_kv *kv, const void *key, size_t key_bytes, const void *value, size_t value_bytes);
/* -ENOENT. */
REMO_API int remo_kv_delete(struct remo_kv *kv, const void *key, size_t key_bytes);

/* ---- a window of operations --------------------------------------------------------------------------------------
 * An operation lives in the caller's memory from start until remo_kv_op_done, as do its key and value. A thread may start as many as it
 * likes; poll advances all operations of this thread on this map. */
enum remo_kv_kind { REMO_KV_GET, REMO_KV_INSERT, REMO_KV_UPDATE, REMO_KV_DELETE };

struct remo_kv_op {
    enum remo_kv_kind kind;             /* in */
    const void *key;                    /* in */
    size_t key_bytes;                   /* in */
    void *value;                        /* in (insert, update) or out (get) */
    size_t value_bytes;                 /* in: length, or room (get); out (get): length */
    int status;                         /* out: -EINPROGRESS until done */
    uint64_t internal[16];              /* the library's */
};

REMO_API int remo_kv_start(struct remo_kv *kv, struct remo_kv_op *op);
/* Advance this thread's operations a step; returns how many are still in flight, or -errno. Never sleeps. */
REMO_API int remo_kv_poll(struct remo_kv *kv);
/* Until `op` is done; returns its status. */
REMO_API int remo_kv_wait(struct remo_kv *kv, struct remo_kv_op *op);

/* Keys in the index as known here. */
REMO_API uint64_t remo_kv_count(const struct remo_kv *kv);

REMO_END
