/* kv.h - the map from inside: what its files share.
 *
 *   kv.c           open, close, single operations
 *   cursor.c       iteration over all keys
 *   op.c           operations in flight: a window per thread or task, and its changes
 *   worker.c       changes in a window on a network
 *   change.c       each change under the lock of the key's stripe
 *   merge.c        updates of one key that a window holds together
 *   find.c         from a key to the slot that holds it
 *   kept_stripe.c  a stripe that stays locked while a write may be in flight
 *   reclaim.c      slots that a node marked DELETED, but whose record did not arrive
 *   tracker.c      records to the indices of all participants
 *   thread.c       the state of each thread
 *   index.c, slot.c, pool.c: parts that do not depend on each other
 *
 * A file uses only files below it in this list.
 *
 * The protocol, its proof of linearizability, its states after a failure and the size of the index:
 * docs/internals/kv.md. */
#pragma once

#include <remo/kv.h>
#include <remo/lock.h>

#include "systems/kv/index.h"
#include "systems/kv/pool.h"
#include "systems/kv/slot.h"
#include "objects/region.h"
#include "objects/leaf_call.h"

#ifdef REMO_SIM_SMALL
/* As small as possible: the simulator copies all memory for each schedule. */
#define REMO__KV_MESSAGES_MIN 2u
#define REMO__KV_MESSAGES_MAX 2u
#define REMO__KV_DEFERRED_MAX 4u
#define REMO__KV_READS_MAX 4u
#define REMO__KV_TASK_READS_MAX 2u
#define REMO__KV_DEADLINE_POLLS 4u
#define REMO__KV_UPDATES 2u
#else
#define REMO__KV_MESSAGES_MIN 4u    /* in flight from one node, at least: among many nodes */
#define REMO__KV_MESSAGES_MAX 16u   /* at most: among few nodes */
#define REMO__KV_DEFERRED_MAX 1024u /* records of aborted operations and of stale entries, not sent yet */
#define REMO__KV_READS_MAX 126u     /* of a thread, in flight; only on fabrics that are not mapped */
#define REMO__KV_TASK_READS_MAX 8u  /* of a task: there may be many, and each probably has few in flight */
#define REMO__KV_DEADLINE_POLLS 64u /* polls from one check of the deadlines to the next */
#define REMO__KV_UPDATES 64u        /* updates that further ones of their keys can find */
#endif
#define REMO__KV_MESSAGES_OF_ALL 256u         /* from all nodes together, unless each has the minimum */
#define REMO__KV_READS_BYTES (4u << 20)       /* memory for these reads: fewer if slots are large */
#define REMO__KV_TASK_READS_BYTES (64u << 10) /* of a task */
#define REMO__KV_BUFFERS_WORDS 2u             /* of the sets of buffers: a bit for each buffer */
#define REMO__KV_WORKER_SPARES 2u             /* buffers of a worker besides `outgoing` and `image` */
#define REMO__KV_WORKERS_MAX 96u              /* of a thread: three quarters of its workers */
/* With fewer workers and fewer reads in flight, a poll executes no operations of peers. */
#define REMO__KV_POLLED_WORKERS 2u
#define REMO__KV_POLLED_READS 16u
/* The shortest time between two polls that do: after progress, with few workers or many; else the same. */
#define REMO__KV_ARRIVALS_BUSY_NS (50 * REMO__NS_PER_US)
#define REMO__KV_ARRIVALS_BUSY_WORKERS_NS (20 * REMO__NS_PER_US)
#define REMO__KV_ARRIVALS_READS_NS (5 * REMO__NS_PER_US)
#define REMO__KV_ARRIVALS_WORKERS_NS UINT64_C(0)
#define REMO__KV_WORKERS_BYTES (4u << 20) /* of their buffers: fewer workers if slots are large */
#define REMO__KV_LOCK_TRIES_MAX 16u       /* failed attempts in one poll, on a mapped fabric */
#define REMO__KV_QUEUE_TIMEOUT_NS (5 * REMO__NS_PER_US)     /* wait for a lock, at most once in a poll */
#define REMO__KV_RELEASE_TIMEOUT_NS REMO__NS_PER_MS         /* wait for the write under a kept stripe */
#define REMO__KV_RELEASE_INTERVAL_NS (10 * REMO__NS_PER_MS) /* between two attempts to release it */

/* A change of all indices. It is sent as it is: two words. */
struct remo__kv_record {
    uint64_t hash;  /* remo__kv_index_hash; its low 16 bits yield the fingerprint */
    uint64_t entry; /* remo__kv_entry_make, with REMO__KV_RECORD_... in place of the fingerprint */
};
#define REMO__KV_RECORD_ADD UINT64_C(1)
#define REMO__KV_RECORD_REMOVE UINT64_C(2)

#define REMO__KV_BATCH_MAX (REMO__RPC_LEAF_BYTES_MAX / (uint32_t)sizeof(struct remo__kv_record))

/* Records that are sent together. */
struct remo__kv_message {
    struct remo__kv_record records[REMO__KV_BATCH_MAX];
    uint32_t count;
};

/* State in the map of one thread, or of one of its tasks or workers. */
struct remo__kv_thread {
    struct remo_kv *kv;
    struct remo__thread *thread;
    uint32_t holder;                /* thread->holder while the thread or task runs */
    uint32_t tasks_count;           /* entries of `tasks` */
    struct remo__kv_thread **tasks; /* of a thread: the states of its tasks, by index; NULL: none yet */
    /* Of a thread: the states for its workers, a list by next_worker. A worker uses any that is free. */
    struct remo__kv_thread *workers, *next_worker;
    struct remo__kv_thread *free_workers, *next_free; /* those that no worker uses, a list by next_free */
    uint32_t workers_count;
    bool is_used;                        /* by a worker */
    struct remo__kv_thread *window;      /* whose changes that worker makes */
    struct remo__last_error *last_error; /* of the thread or task that has called the last poll */
    struct remo_stats *stats;            /* counters of the region of slots */
    struct remo_kv_op *first, *last;     /* in flight, in the order of their start */
    uint32_t in_flight_count;
    uint32_t reads_count;                          /* operations at REMO__KV_STEP_READ */
    struct remo_kv_op *first_change, *last_change; /* at step QUEUED */
    uint32_t changes_count;                        /* in this list */
    /* [REMO__KV_UPDATES] of a window on a network: the state of the last worker that has begun an update, by
     * hash of the key. NULL in other states. */
    struct remo__kv_thread **updates;
    /* Of a worker: the update that it makes, until it chooses the value; and those merged into it. */
    struct remo_kv_op *update, *first_merged, *last_merged;
    uint32_t locked_count; /* mapped fabrics: operations of this window at steps SEND and ACK */
    uint32_t failed_tries;
    bool is_kept; /* a stripe stays locked: a write of this state to kept_node may still be in flight */
    bool is_releasing;
    uint32_t kept_stripe, kept_node, kept_holder;
    uint64_t kept_next_ns;  /* time of the next attempt to release it */
    uint32_t to_send_count; /* operations at REMO__KV_STEP_SEND */
    uint32_t polls;
    bool is_ack_missing; /* this poll has met a record that is not acknowledged; later ones are not either */
    char *scratch;       /* one slot: a value that does not fit, or is only verified */
    char *outgoing;      /* one slot: a copy that is being written */
    char *image;         /* one slot: read from the network */
    char *second_image;  /* the same, beside a worker that uses this state; NULL: none */
    /* Slots: outgoing, image, and one for each read in flight. NULL on a mapped fabric. */
    char *buffers;
    uint64_t buffers_offset, buffers_bytes; /* in the arena */
    uint64_t buffers_free[REMO__KV_BUFFERS_WORDS];
    /* Buffers that an operation may still access although its call has returned: one of the first
     * `lost_started` of the thread. */
    uint64_t buffers_lost[REMO__KV_BUFFERS_WORDS], lost_started;
    bool has_lost_buffers;
};

struct remo_kv {
    struct remo_channel *channel;
    struct remo_node *node;
    struct remo_region *slots;
    struct remo_lock *locks;
    struct remo__kv_shape shape;
    struct remo__kv_index index;
    uint64_t hash_mask; /* all ones; tests clear bits, so that keys collide */
    bool is_small;      /* keys and values of at most 8 bytes, on a mapped fabric: a slot is one cache line */
    uint32_t stripes, slots_per_node, rank;
    uint32_t messages_max, receiver_count; /* messages in flight; participants but this node */
    uint32_t workers_max;                  /* of a thread */
    _Atomic uint32_t kept_count;           /* stripes that stay locked (kept_stripe.c) */
    const struct remo__memory *memory;     /* of `slots` */
    char *own;                             /* slots of this node */
    struct remo_rpc *trackers;             /* the service that applies records */
    struct remo__kv_message *messages;     /* [messages_max] message n is at n modulo messages_max */
    struct remo_rpc_op *calls;             /* [messages_max][receiver_count] */
    struct remo__thread_observer observer; /* checks the messages that no thread waits for */
    _Atomic(struct remo__kv_thread *) threads[REMO__THREADS_MAX];

    struct remo__mutex index_mutex REMO__CACHE_ALIGNED; /* protects changes of index and pool */
    struct remo__kv_pool pool;
    struct remo__mutex send_mutex REMO__CACHE_ALIGNED; /* protects messages, calls, and the next fields */
    bool all_opened;               /* every participant has opened the map, or has departed */
    uint64_t sent_number;          /* of the last message; the first has number 1 */
    _Atomic uint64_t acked_number; /* the messages up to this one have ended at all receivers */
    uint32_t deferred_count;
    struct remo__kv_record deferred[REMO__KV_DEFERRED_MAX];
    uint64_t reclaimed_ns; /* time of the last scan of all slots, which had room for all records */
    uint32_t reclaim_slot; /* at which the next scan begins */
    char *reclaim_key;     /* the key of a slot */
};

/* Steps of an operation in flight. Changes: docs/internals/kv.md. */
enum remo__kv_step {
    REMO__KV_STEP_SEARCH,   /* get: search the index for the next entry */
    REMO__KV_STEP_PROBE,    /* get: probe the slot of `entry`, which has been prefetched */
    REMO__KV_STEP_READ,     /* get: a read of the slot into a buffer is in flight */
    REMO__KV_STEP_PREFETCH, /* change: prefetch the slot before the lock is acquired */
    REMO__KV_STEP_START,    /* change: acquire the lock (mapped fabric), or queue the change for a worker */
    REMO__KV_STEP_QUEUED,   /* change: no worker has taken it yet */
    REMO__KV_STEP_CHANGE,   /* change: a worker makes it, or the caller itself */
    REMO__KV_STEP_MERGED,   /* update: completes with an update of the same key, which a worker makes */
    REMO__KV_STEP_SEND,     /* insert, delete: send the record of `entry`; the lock is held */
    REMO__KV_STEP_ACK, /* insert: wait until all receivers have acknowledged `message`; the lock is held */
    REMO__KV_STEP_SETTLED, /* insert, delete: the lock is held; its holder completes the operation */
};

/* The contents of remo_kv_op.internal. */
struct remo__kv_op_state {
    struct remo_kv_op *next, *previous;
    uint64_t hash;
    uint64_t entry;
    struct remo__kv_cursor cursor;
    uint8_t step;
    uint8_t buffer;                /* number of the buffer of the read */
    bool was_probed;               /* this slot was probed, and not GOOD: now OLDER suffices */
    bool is_awaited;               /* a worker, or the caller itself, completes the operation at SETTLED */
    bool is_sent;                  /* SETTLED: the record was sent */
    int16_t outcome;               /* SETTLED: 0, or the error with which the operation is aborted */
    int16_t lost_error;            /* -errno of a node that could not be read and may have the key, or 0 */
    struct remo__kv_thread *owner; /* whose window it is in */
    uint64_t deadline_ns;          /* 0: not set; the first check of the deadlines sets it */
    uint64_t message;              /* number of the message with the record */
    struct remo_ack ack;
    struct remo_kv_op *next_change; /* in the list of first_change or first_merged */
    struct remo__task *worker;      /* that is parked at SEND or ACK; NULL: none */
} __attribute__((may_alias));

_Static_assert(sizeof(struct remo__kv_op_state) <= sizeof((struct remo_kv_op *)0)->internal,
               "the state does not fit in remo_kv_op.internal");

static inline struct remo__kv_op_state *remo__kv_op_state(struct remo_kv_op *op) {
    return (struct remo__kv_op_state *)op->internal;
}

/* ---- thread.c ---- */

/* Return the state of the calling thread or task, and create it if there is none yet. NULL with the sentence
 * set: no memory. */
struct remo__kv_thread *remo__kv_thread_find(struct remo_kv *kv, struct remo__thread *thread);
void remo__kv_threads_close(struct remo_kv *kv);
/* Return a state for a worker that makes changes of this window: one that keeps no stripe and has its
 * buffers; the window's own, if no other is free. NULL: none is free. */
struct remo__kv_thread *remo__kv_worker_take(struct remo_kv *kv, struct remo__kv_thread *mine);
/* Return the state: its worker has ended. */
void remo__kv_worker_give(struct remo__kv_thread *own);
/* Return whether a worker can make a change with the state. */
bool remo__kv_worker_is_able(struct remo__kv_thread *own);
/* Take a buffer, and return its number; -1 if all are in use. */
int remo__kv_buffer_take(struct remo__kv_thread *mine);
void remo__kv_buffer_give(struct remo__kv_thread *mine, uint32_t index);
char *remo__kv_buffer(const struct remo__kv_thread *mine, uint32_t index);
/* The network may still use the buffer, after an operation that timed out. It is free again when the
 * operation has ended. */
void remo__kv_buffer_lose(struct remo__kv_thread *mine, uint32_t index);
/* As above, and replace it by another buffer, or NULL if all are in use: `outgoing`, `image` or
 * `second_image`. */
void remo__kv_buffer_replace(struct remo__kv_thread *mine, char **buffer);
/* Make sure that `outgoing`, `image` or `second_image` is not NULL. Errors: -ENOBUFS (all buffers are in
 * use). */
int remo__kv_buffer_ensure(struct remo__kv_thread *mine, char **buffer);
/* Make `second_image` a buffer for reads of the window again: the thread or task reads into it in no call. */
void remo__kv_second_image_give(struct remo__kv_thread *mine);

/* ---- inline functions ---- */

/* Return the state of the calling thread or task. NULL with the sentence set if the thread cannot be
 * attached, or memory is missing; callers return remo__last_code(). */
static inline struct remo__kv_thread *remo__kv_thread(struct remo_kv *kv) {
    struct remo__thread *thread = remo__thread(kv->node);
    if (remo__unlikely(!thread))
        return NULL;
    struct remo__kv_thread *mine = atomic_load_explicit(&kv->threads[thread->index], memory_order_acquire);
    return remo__likely(mine && mine->holder == thread->holder) ? mine : remo__kv_thread_find(kv, thread);
}

static inline uint64_t remo__kv_index_hash(const struct remo_kv *kv, uint64_t hash) {
    return hash & kv->hash_mask;
}

static inline uint32_t remo__kv_stripe_of(const struct remo_kv *kv, uint64_t hash) {
    return (uint32_t)(((hash >> 16 & UINT32_MAX) * kv->stripes) >> 32);
}

static inline uint64_t remo__kv_slot_at(const struct remo_kv *kv, uint32_t slot) {
    return slot * kv->shape.slot_bytes;
}

static inline struct remo__kv_key remo__kv_key_of(const struct remo_kv_op *op, uint64_t hash) {
    return (struct remo__kv_key){.bytes = op->key, .bytes_count = op->key_bytes, .hash = hash};
}

static inline bool remo__kv_key_fits(const struct remo_kv *kv, const void *key, size_t key_bytes) {
    return key_bytes > 0 && key_bytes <= kv->shape.key_bytes_max && key;
}

/* Remove the operation from those in flight, and set its status. */
static inline void remo__kv_complete(struct remo__kv_thread *mine, struct remo_kv_op *op, int status) {
    struct remo__kv_op_state *state = remo__kv_op_state(op);
    if (state->previous)
        remo__kv_op_state(state->previous)->next = state->next;
    else
        mine->first = state->next;
    if (state->next)
        remo__kv_op_state(state->next)->previous = state->previous;
    else
        mine->last = state->previous;
    mine->in_flight_count--;
    op->status = status;
}

/* ---- reclaim.c ---- */

/* Return the slots of this node to the pool that are DELETED and still have an index entry, and defer records
 * that remove these entries. All such slots once a second, otherwise those among the next 64 slots. */
void remo__kv_reclaim(struct remo_kv *kv);
/* Do the same for one slot, at any time. */
void remo__kv_reclaim_slot(struct remo_kv *kv, uint32_t slot);

/* ---- tracker.c ---- */

int remo__kv_trackers_open(struct remo_kv *kv);
void remo__kv_trackers_close(struct remo_kv *kv);
/* Send one message with the deferred records, and with as many of `records` (at most REMO__KV_BATCH_MAX) as
 * fit, at least half of REMO__KV_BATCH_MAX. This node has then applied them. Does not block.
 * *ret_sent_count of `records`, the first, were sent, in message *ret_number.
 * Errors: -ETIMEDOUT (all messages are in flight, or a participant has not opened the map; keeps the
 * sentence, which may explain an operation that the poll has completed), -EPROTO. */
int remo__kv_send_records(struct remo_kv *kv, const struct remo__kv_record *records, uint32_t count,
                          uint32_t *ret_sent_count, uint64_t *ret_number);
/* Return whether all receivers have acknowledged the messages of this node up to `number`, or have
 * departed. */
bool remo__kv_is_acked(struct remo_kv *kv, struct remo__kv_thread *mine, uint64_t number);
/* Defer a record until the next message is sent, or until a sweep finds a free message. Drop it if
 * REMO__KV_DEFERRED_MAX records are deferred. */
void remo__kv_defer_record(struct remo_kv *kv, const struct remo__kv_record *record);
/* Send deferred records while messages are free. Does not block. The caller holds send_mutex. */
void remo__kv_send_deferred(struct remo_kv *kv);
/* Remove an entry of this node whose period has ended from the index, return its slot to the pool, and defer
 * a record that removes it from the other indices. Returns false without effect if the entry is absent, or
 * REMO__KV_DEFERRED_MAX records are deferred. The caller holds send_mutex. */
bool remo__kv_free_stale(struct remo_kv *kv, uint64_t hash, uint64_t entry);

/* ---- kept_stripe.c ---- */

/* Keep the stripe locked: a write to `node` under it may still be in flight, and would overwrite a change of
 * the next holder. Return -ETIMEDOUT with the sentence set. */
int remo__kv_keep_locked(struct remo_kv *kv, struct remo__kv_thread *mine, uint32_t stripe, uint32_t node);
/* Release the kept stripe of this state, if any, when its write is no longer in flight. Waits for the write
 * for at most REMO__KV_RELEASE_TIMEOUT_NS, once in REMO__KV_RELEASE_INTERVAL_NS.
 * Errors: -ETIMEDOUT (it stays locked). */
int remo__kv_release_kept(struct remo_kv *kv, struct remo__kv_thread *mine);
/* Repeat remo__kv_release_kept until it returns 0. Errors: -ETIMEDOUT (the deadline has passed). */
int remo__kv_await_kept(struct remo_kv *kv, struct remo__kv_thread *mine, uint64_t deadline_ns);
/* Try to release all stripes of the map that the thread, its tasks and its workers keep. A get, a next and a
 * poll call it, because the next change may come much later. A single change polls only while its record is
 * not acknowledged; before, it releases only the stripe of its own state. */
void remo__kv_release_all(struct remo_kv *kv, const struct remo__thread *thread);
static inline void remo__kv_try_release_kept(struct remo_kv *kv, const struct remo__kv_thread *mine) {
    if (remo__unlikely(atomic_load_explicit(&kv->kept_count, memory_order_relaxed) != 0))
        remo__kv_release_all(kv, mine->thread);
}

/* ---- find.c ---- */

/* Return the CPU address of the slot of `entry`, or NULL if its node is not mapped. */
static inline const char *remo__kv_mapped(const struct remo_kv *kv, const struct remo__kv_thread *mine,
                                          uint64_t entry) {
    struct remo__ref ref;
    uint64_t offset = remo__kv_slot_at(kv, remo__kv_entry_slot(entry));
    return remo__likely(
               remo__memory_find_now(kv->memory, mine->thread, remo__kv_entry_node(entry), offset, &ref))
               ? remo__ref_mapped(ref)
               : NULL;
}

/* Do the same, where slots are one cache line. `entry` may be 0, if it was removed after its fingerprint was
 * read: the result is NULL. */
static inline const char *remo__kv_mapped_small(const struct remo_kv *kv, const struct remo__kv_thread *mine,
                                                uint64_t entry) {
    struct remo__ref ref;
    uint64_t offset = (uint64_t)remo__kv_entry_slot(entry) * REMO__CACHE_LINE;
    return remo__likely(
               remo__memory_find_now(kv->memory, mine->thread, remo__kv_entry_node(entry), offset, &ref)
               && entry != 0)
               ? remo__ref_mapped(ref)
               : NULL;
}

/* Read the slot of `entry` once, as remo__kv_slot_read does. Errors: those of remo_region_read. */
int remo__kv_probe(struct remo_kv *kv, struct remo__kv_thread *mine, const struct remo__kv_key *key,
                   uint64_t entry, void *dst, size_t cap, enum remo__kv_verdict *ret_verdict,
                   struct remo__kv_snapshot *ret_snapshot);

/* Count one read of the slot of `entry`. *ret_slot is the slot in place on a mapped fabric, else a copy,
 * which is valid until the next read of the caller. Errors: those of remo_region_read. */
int remo__kv_slot_open(struct remo_kv *kv, struct remo__kv_thread *mine, uint64_t entry,
                       const char **ret_slot);

/* The entry and the slot of a key. */
struct remo__kv_location {
    uint64_t entry;
    struct remo__kv_snapshot snapshot;
};

/* Find the key, and leave its value in mine->scratch. The caller has locked the stripe. The search removes
 * stale entries that it finds, if no record that is in flight does so.
 * Errors: -ENOENT; -EHOSTDOWN, -ENOTCONN (not found, but it may be on a node that cannot be reached);
 *         -ENOBUFS; -ETIMEDOUT; -EIO (the slot is damaged). */
int remo__kv_find_locked(struct remo_kv *kv, struct remo__kv_thread *mine, const struct remo__kv_key *key,
                         struct remo__kv_location *ret_place);

/* Set the sentence for a key that does not fit, and return -EINVAL or -EMSGSIZE. */
int remo__kv_refuse_key(const struct remo_kv *kv, size_t key_bytes);
/* Set the sentence for a value that is longer than the caller's buffer, and return -EMSGSIZE. */
int remo__kv_refuse_capacity(size_t bytes, size_t cap);
/* Set the sentence for a search without a result. Return `lost_error`, the error of a node that could not be
 * read, or -ENOENT if it is 0. */
int remo__kv_fail_not_found(int lost_error);

/* ---- merge.c ---- */

/* A worker begins the change. If it is an update, further ones of its key can be merged into it. */
void remo__kv_offer_update(struct remo__kv_thread *own, struct remo_kv_op *op);
/* Merge an update into one of the same key that a worker of the window makes, if the worker has not chosen
 * the value yet. Returns false if there is none. */
bool remo__kv_try_merge(struct remo__kv_thread *mine, struct remo_kv_op *op);
/* Return the update whose value is to be written: the last one that is merged into `op`, else `op` itself. It
 * overwrites the others at once. Later updates are not merged into it. */
struct remo_kv_op *remo__kv_choose_update(struct remo__kv_thread *own, struct remo_kv_op *op);
/* Remove the updates that are merged into that of the worker, and return the first; the others follow by
 * next_change. Their status is that of the worker's update. */
struct remo_kv_op *remo__kv_take_merged(struct remo__kv_thread *own);

/* ---- change.c ---- */

/* Acquire the stripe of the key with this hash. Errors: -ETIMEDOUT (0: it is not free), and those of
 * remo_lock_acquire. */
int remo__kv_lock(struct remo_kv *kv, struct remo__kv_thread *mine, uint64_t hash, uint64_t timeout_ns);
/* With the stripe locked, make the change up to step SEND, or completely. Blocks. Returns the status of the
 * operation: -EINPROGRESS at step SEND, with the stripe still locked. */
int remo__kv_change(struct remo_kv *kv, struct remo__kv_thread *mine, struct remo_kv_op *op);
/* Acquire the stripe, which may take op_timeout_ns, and make the change. Returns as remo__kv_change. */
int remo__kv_lock_and_change(struct remo_kv *kv, struct remo__kv_thread *mine, struct remo_kv_op *op);
/* Complete or abort an insert or delete at step SETTLED, as the holder of its stripe, and release the stripe.
 * Returns the status of the operation. */
int remo__kv_change_finish(struct remo_kv *kv, struct remo_kv_op *op);
/* Return the record of an insert or delete. */
struct remo__kv_record remo__kv_record_of(const struct remo_kv *kv, const struct remo_kv_op *op);

/* ---- worker.c ---- */

/* Queue a change for a worker, or merge it into one that a worker makes. */
void remo__kv_queue_change(struct remo__kv_thread *mine, struct remo_kv_op *op);
/* Remove a change from the queue. */
void remo__kv_unqueue_change(struct remo__kv_thread *mine, const struct remo_kv_op *op);
/* Start workers, and run those that are ready. Changes for which there is none stay in the queue. */
void remo__kv_run_workers(struct remo_kv *kv, struct remo__kv_thread *mine);

/* ---- op.c ---- */

/* Make a change, and wait for it. Errors: as of remo_kv_start and remo_kv_wait. */
int remo__kv_run(struct remo_kv *kv, struct remo_kv_op *op);

/* ---- kv.c ---- */

/* For tests: reduce hashes in the index to these bits. On all nodes, before the first operation. */
void remo__kv_set_hash_mask(struct remo_kv *kv, uint64_t mask);
