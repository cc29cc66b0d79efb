/* kv.h - the map from inside: what its files share.
 *
 *   kv.c          open, close, the calls for one operation at a time
 *   kv_find.c     from a key to the slot that holds it
 *   kv_change.c   what each change does under the lock of the key's stripe
 *   kv_cursor.c   the walk over all keys
 *   kv_op.c       operations in flight: a window per thread
 *   kv_tracker.c  telling all indices, and being told
 *   kv_reclaim.c  slots that a dead node left half deleted
 *   kv_thread.c   what each thread has
 *   kv_index, kv_slot, kv_pool: parts that know nothing of the others
 *
 * Why it is linearizable (LOCO, Appendix C, adapted: the key in the slot is compared, and no counter).
 *  Changes of a key exclude each other by the lock of its stripe, also after the death of an owner, who is
 *  cut off before the lock passes on. Update takes effect when the last word of its copy is placed, insert
 *  when its slot becomes VALID, delete when it becomes DELETED. All of them take effect before they return,
 *  because they fence before they release.
 *
 *  A get that returns a value: kv_slot.h shows a moment in the read of the slot at which it was the value of
 *  this key.
 *
 *  A get that returns -ENOENT has searched its whole index and found no entry whose slot was VALID with this
 *  key. Take the lives of the key (from VALID to DELETED) that touch the time of the get. Between two lives
 *  there is a gap, for the second insert took the lock after the first delete. So unless a single life spans
 *  the whole get, the key is absent at some moment of it, and there the get takes effect. A life that spans
 *  the get is found: its entry was in this index before it began (the insert waits for everybody's
 *  acknowledgement before VALID) and leaves it after it ended (DELETED is placed before anybody is told); a
 *  search meets every entry that is there all the time (kv_index.h); and its slot is read as VALID with this
 *  key.
 *
 *  A fetch_add and a compare_put are updates whose value depends on the one that they read under the lock.
 *
 *  A cursor visits each place of the index once. An entry of a key that is present all the time is in one
 *  place all the time (kv_index.h), so the cursor meets it once. What it returns is a read of the slot as in
 *  a get, of the generation that the entry names: the seal covers the hash of the key, so the key is whole.
 *
 *  Stale entries, which point to a slot that is deleted or has another key by now, are therefore harmless:
 *  they cost a read. That is why a slot may be used again as soon as its owner has heard of the delete, and
 *  why nobody waits for the others to hear of it.
 *
 * What the death of a node leaves behind. Each step of a change leaves the map consistent, so the next owner
 *  of the stripe has nothing to repair: a torn copy is ignored and overwritten (kv_slot.h); a slot that a
 *  dead node was inserting is on the dead node; a slot marked DELETED is deleted, whoever was told. Slots of
 *  which the owner was not told are found again by kv_reclaim.c; an entry of which only we were not told
 *  costs a read when its key is searched, until a change under the lock meets it and takes it out.
 *
 * How large the index must be. An entry in the index of X stands for a slot in use, or for a life that has
 *  ended and of whose end a message is in a ring towards X or being sent: a sender sends one at a time, its
 *  ring holds REMO__KV_TRACKER_BYTES. Leftovers of the dead are at most one for each lock they held. */
#pragma once

#include <remo/kv.h>
#include <remo/lock.h>
#include <remo/ringbuffer.h>

#include "kv/kv_index.h"
#include "kv/kv_pool.h"
#include "kv/kv_slot.h"
#include "node/access.h"
#include "objects/region.h"

#ifdef REMO_SIM_SMALL
#define REMO__KV_TRACKER_BYTES \
    (4u << 10) /* the simulator copies the whole world at every start: all is as small as it can be */
#define REMO__KV_BATCH_MAX 16u
#define REMO__KV_UNSENT_MAX 32u
#define REMO__KV_READS_MAX 4u
#define REMO__KV_DEADLINE_POLLS 4u
#else
#define REMO__KV_TRACKER_BYTES (64u << 10) /* ring of each sender at each receiver */
#define REMO__KV_BATCH_MAX 256u            /* records in one message */
#define REMO__KV_UNSENT_MAX 1024u          /* records of operations that gave up before they could be sent */
#define REMO__KV_READS_MAX 62u             /* of a thread, in flight; on fabrics that are not mapped */
#define REMO__KV_DEADLINE_POLLS 64u        /* deadlines are looked at once in so many polls */
#endif
#define REMO__KV_READS_BYTES (4u << 20)          /* room for their slots: large ones are fewer */
#define REMO__KV_LOCK_TRIES 4u                   /* that fail, in one poll */
#define REMO__KV_QUEUE_NS (20 * REMO__NS_PER_US) /* for a lock, at most once in a poll */
#define REMO__KV_SETTLE_NS REMO__NS_PER_MS       /* for a write that could not be placed before */
#define REMO__KV_KEPT_NS (10 * REMO__NS_PER_MS)  /* between two attempts to do so */

/* News for all indices. On the wire: two words. */
struct remo__kv_record {
    uint64_t hash;  /* the index's; its low bits are those in the entry */
    uint64_t entry; /* remo__kv_entry_make; REMO__KV_RECORD_REMOVE in place of the fingerprint: take it out */
};
#define REMO__KV_RECORD_ADD UINT64_C(1)
#define REMO__KV_RECORD_REMOVE UINT64_C(2)

struct remo__kv_tracker {
    struct remo_kv *kv;
    struct remo_ringbuffer *ring;
    uint32_t sender;
};

/* One thread's part of the map. */
struct remo__kv_thread {
    struct remo_kv *kv;
    struct remo__thread *thread;
    struct remo_stats *stats;        /* of the slots */
    struct remo_kv_op *first, *last; /* in flight, in the order of their start */
    uint32_t in_flight;
    uint32_t locks_held;
    bool is_kept; /* a stripe stays locked, since a write of ours to a node may still be in flight */
    uint32_t kept_stripe, kept_node;
    uint64_t kept_next_ns; /* no attempt to release the kept stripe before */
    uint32_t to_send;      /* operations whose record is to be sent */
    uint32_t failed_tries;
    uint32_t polls;
    bool acks_missing; /* the last look found the oldest record not acknowledged yet */
    uint64_t acked;    /* all of the own tracker up to here */
    char *scratch;     /* one slot: a value that does not fit, or is only checked */
    char *outgoing;    /* one slot: a copy on its way to the network */
    char *image;       /* one slot, read from the network */
    char *
        buffers; /* slots: those two, and as many as can be read at a time; NULL where the fabric is mapped */
    uint64_t buffers_offset, buffers_bytes; /* in the arena */
    uint64_t buffers_free;                  /* bit set */
};

struct remo_kv {
    struct remo_channel *channel;
    struct remo_node *node;
    struct remo_region *slots;
    struct remo_lock *locks;
    struct remo__kv_shape shape;
    struct remo__kv_index index;
    uint64_t hash_mask; /* all ones; tests make keys collide with it */
    bool small;         /* slots are lines in memory that is mapped, keys and values at most 8 bytes */
    uint32_t stripes, slots_per_node, rank;
    const _Atomic uint64_t *offsets;   /* where the slots of each node start in its arena */
    char *own;                         /* own slots */
    struct remo__kv_tracker *trackers; /* [node->size] */
    _Atomic(struct remo__kv_thread *) threads[REMO__THREADS_MAX];

    struct remo__mutex index_mutex REMO__CACHE_ALIGNED; /* changes of index and pool */
    struct remo__kv_pool pool;
    uint64_t reclaimed_ns;                             /* when kv_reclaim.c last looked */
    struct remo__mutex send_mutex REMO__CACHE_ALIGNED; /* the own tracker and what follows */
    uint32_t unsent_count;
    struct remo__kv_record unsent[REMO__KV_UNSENT_MAX];
};

/* A state of an operation in flight. */
enum remo__kv_step {
    REMO__KV_STEP_SEARCH,  /* get: go on in the index */
    REMO__KV_STEP_LOOK,    /* get: look at the slot of `entry`, which is on its way to the cache */
    REMO__KV_STEP_LANDING, /* get: the slot is being read into a landing */
    REMO__KV_STEP_PEEK,    /* change: ask for the slot before the lock is taken */
    REMO__KV_STEP_LOCK,    /* change: take the lock and do it */
    REMO__KV_STEP_SEND,    /* insert, delete: `entry` is to be told to all; the lock is held */
    REMO__KV_STEP_ACK,     /* insert: told, up to `position` */
};

/* What is in remo_kv_op.internal. */
struct remo__kv_run {
    struct remo_kv_op *next, *previous;
    uint64_t hash;
    uint64_t deadline_ns; /* 0: it has not had to wait so far */
    uint64_t entry;
    uint64_t position;
    struct remo_ack ack;
    struct remo__kv_cursor cursor;
    int16_t lost; /* an entry of the fingerprint is on a node that cannot be reached: its error */
    uint8_t step;
    uint8_t landing; /* number of a buffer */
    bool looked;     /* at this slot, and it was not whole: see OLDER in kv_slot.h */
} __attribute__((may_alias));

_Static_assert(sizeof(struct remo__kv_run) <= sizeof((struct remo_kv_op *)0)->internal,
               "an operation has no room for its state");

static inline struct remo__kv_run *remo__kv_run(struct remo_kv_op *op) {
    return (struct remo__kv_run *)op->internal;
}

/* ---- kv_thread.c ---- */

struct remo__kv_thread *remo__kv_thread_make(struct remo_kv *kv, struct remo__thread *thread);
void remo__kv_threads_close(struct remo_kv *kv);
/* A buffer's number, or -1: all are in use. */
int remo__kv_buffer_take(struct remo__kv_thread *mine);
void remo__kv_buffer_give(struct remo__kv_thread *mine, uint32_t index);
char *remo__kv_buffer(const struct remo__kv_thread *mine, uint32_t index);
/* The network may still use `outgoing` or `image`, after an operation that did not end in time: put another
 * in its place, or NULL. */
void remo__kv_buffer_lose(struct remo__kv_thread *mine, char **buffer);
/* Before one of those two is used. Errors: -ENOBUFS, if it was lost and could not be replaced. */
int remo__kv_buffer_need(struct remo__kv_thread *mine, char **buffer);

/* ---- small things ---- */

/* The calling thread's part; NULL with the sentence set: there is no room (-EAGAIN) or no memory. */
static inline struct remo__kv_thread *remo__kv_thread(struct remo_kv *kv) {
    struct remo__thread *thread = remo__thread(kv->node);
    if (remo__unlikely(!thread))
        return NULL;
    struct remo__kv_thread *mine = atomic_load_explicit(&kv->threads[thread->index], memory_order_acquire);
    return remo__likely(mine != NULL) ? mine : remo__kv_thread_make(kv, thread);
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

/* The sentence for a key that does not fit: -EINVAL or -EMSGSIZE. */
int remo__kv_refuse_key(const struct remo_kv *kv, size_t key_bytes);
/* The sentence for a value that is longer than the caller has room for: -EMSGSIZE. */
int remo__kv_no_room(size_t bytes, size_t cap);

/* Tests: let hashes differ in these bits only. On all nodes, before the first operation. */
void remo__kv_set_hash_mask(struct remo_kv *kv, uint64_t mask);

/* ---- kv_find.c ---- */

/* Where the CPU sees a slot of a node that is mapped, or NULL. */
static inline const char *remo__kv_mapped(const struct remo_kv *kv, const struct remo__kv_thread *mine,
                                          uint64_t entry) {
    uint32_t node = remo__kv_entry_node(entry);
    uint64_t at = remo__memory_at(kv->slots->memory, node, remo__kv_slot_at(kv, remo__kv_entry_slot(entry)));
    const char *base = remo__peer_base(mine->thread, node);
    return remo__likely(base != NULL && at != REMO__NO_OFFSET) ? base + at : NULL;
}

/* The same where slots are one line. An entry that is changing under us may be 0: then node 0 and a slot that
 * does not exist. */
static inline const char *remo__kv_mapped_small(const struct remo_kv *kv, const struct remo__kv_thread *mine,
                                                uint64_t entry) {
    uint32_t node = remo__kv_entry_node(entry);
    uint64_t start = atomic_load_explicit(&kv->offsets[node], memory_order_relaxed);
    const char *base = remo__peer_base(mine->thread, node);
    if (remo__unlikely(!base || start == REMO__NO_OFFSET || entry == 0))
        return NULL;
    return base + start + (uint64_t)remo__kv_entry_slot(entry) * REMO__CACHE_LINE;
}

/* One read of the slot of `entry`; the value goes to `dst` as in remo__kv_slot_read. Errors: those of
 * remo_region_read. */
int remo__kv_look(struct remo_kv *kv, struct remo__kv_thread *mine, const struct remo__kv_key *key,
                  uint64_t entry, void *dst, size_t cap, enum remo__kv_seen *ret_seen,
                  struct remo__kv_sight *ret_sight);

/* Count one read of the slot of `entry`, and return where the CPU sees it: in place, or a copy in mine->image.
 * Errors: those of remo_region_read. */
int remo__kv_slot_open(struct remo_kv *kv, struct remo__kv_thread *mine, uint64_t entry,
                       const char **ret_slot);

/* The error of a read whose target has failed, or has closed the map. */
static inline bool remo__kv_cannot_reach(int rc) {
    return rc == -EHOSTDOWN || rc == -ENOTCONN;
}

/* What a key's slot looked like. */
struct remo__kv_place {
    uint64_t entry;
    struct remo__kv_sight sight;
};

/* Find the key, whose stripe the caller has locked. Entries that are stale for certain are taken out of the
 * index on the way.
 * Errors: -ENOENT; -EHOSTDOWN, -ENOTCONN: not found, but it may be on a node that cannot be reached;
 *         -ETIMEDOUT; -EIO. */
int remo__kv_find_locked(struct remo_kv *kv, struct remo__kv_thread *mine, const struct remo__kv_key *key,
                         struct remo__kv_place *ret_place);

/* Set the sentence for what a search ended with: nothing, or nodes that could not be asked (`lost`, or 0). */
int remo__kv_not_found(int lost);

/* ---- kv_change.c ---- */

/* Take the key's stripe and do what can be done at once. 0: done or not, see op->status and its step.
 * -ETIMEDOUT: the lock was not free within `timeout_ns` (0: try once). */
int remo__kv_change(struct remo_kv *kv, struct remo__kv_thread *mine, struct remo_kv_op *op,
                    uint64_t timeout_ns);
/* All have acknowledged the insert: now it is valid. */
void remo__kv_insert_finish(struct remo_kv *kv, struct remo__kv_thread *mine, struct remo_kv_op *op);
/* Release the kept stripe if the write under it is over; an attempt takes 1 ms at most, and there is one in
 * 10 ms. Errors: -ETIMEDOUT (the stripe stays locked). */
int remo__kv_release_kept(struct remo_kv *kv, struct remo__kv_thread *mine);
/* For calls that make no change: the thread may make none for long. */
static inline void remo__kv_try_kept(struct remo_kv *kv, struct remo__kv_thread *mine) {
    if (remo__unlikely(mine->is_kept))
        (void)remo__kv_release_kept(kv, mine);
}
/* Everybody is told, or will be: the delete is done. */
void remo__kv_delete_finish(struct remo_kv *kv, struct remo__kv_thread *mine, struct remo_kv_op *op);
/* Give up an operation that has the lock, at step SEND or ACK. */
void remo__kv_change_undo(struct remo_kv *kv, struct remo__kv_thread *mine, struct remo_kv_op *op,
                          int status);
struct remo__kv_record remo__kv_record_of(const struct remo_kv *kv, const struct remo_kv_op *op);

/* ---- kv_op.c ---- */

/* Check and begin; the operation is in flight afterwards. */
int remo__kv_start(struct remo_kv *kv, struct remo__kv_thread *mine, struct remo_kv_op *op);
/* Take it out of flight. */
void remo__kv_done(struct remo__kv_thread *mine, struct remo_kv_op *op, int status);

/* ---- kv_tracker.c ---- */

int remo__kv_trackers_open(struct remo_kv *kv);
void remo__kv_trackers_close(struct remo_kv *kv);
/* Send the records of this thread's operations. 0: all are sent; -ETIMEDOUT: some must wait for room; or an
 * error. */
int remo__kv_flush(struct remo_kv *kv, struct remo__kv_thread *mine);
/* Has everybody acknowledged the own tracker up to `position`? */
bool remo__kv_acked(struct remo_kv *kv, struct remo__kv_thread *mine, uint64_t position);
/* Keep a record until the next message goes out. */
void remo__kv_send_later(struct remo_kv *kv, const struct remo__kv_record *record);

/* ---- kv_reclaim.c ---- */

/* Look for own slots that are deleted but in use as far as the pool knows; how many came back. The index
 * mutex is held. */
uint32_t remo__kv_reclaim(struct remo_kv *kv);
