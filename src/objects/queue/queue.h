/* queue.h - the parts of the queue that its files share: layout, state, and functions.
 *
 * The protocol, and the proof that it is a FIFO queue, are in docs/internals/queue.md. A slot is
 *     u64 claim             lap:39 | claimed:1 | thread:8 | node:16, network atomics only
 *     u64 checksum          of meta and data; only of an inline element
 *     u64 meta              ticket + 1:40 | size:24
 *     data                  of an inline element: padded to words, and masked; see `data_at` for others
 * An element is inline if it has REMO__QUEUE_INLINE_BYTES at most and the fabric is not mapped.
 * Checksum, meta and data are written without atomics, by the node that claimed the slot. */
#pragma once

#include <errno.h>
#include <remo/queue.h>

#include "channel/remote.h"

/* Inline elements are read and written together with the header of their slot. */
#ifdef REMO_SIM_SMALL
#define REMO__QUEUE_INLINE_BYTES 128u
#else
#define REMO__QUEUE_INLINE_BYTES 1000u
#endif

#define REMO__SLOT_HEAD_BYTES 24u
#define REMO__QUEUE_ALIGNED_BYTES 4096u /* slots of at least this size have their elements at a cache line */
#define REMO__SLOT_CLAIMED (UINT64_C(1) << 24)
#define REMO__SLOT_LAP_SHIFT 25
#define REMO__META_SIZE_BITS 24

/* Offsets in the memory of the home, and at the start of each participant's slots. */
#define REMO__QUEUE_WORD(side) (64u * (side))
#define REMO__QUEUE_WAITERS(side) (128u + 64u * (side)) /* bit sets of nodes, network atomics only */
#define REMO__QUEUE_HOME_BYTES 256u
#define REMO__QUEUE_CUT_OFF 0u                          /* bit set of nodes; stored by the owner */
#define REMO__QUEUE_DOORBELL(side) (64u + 64u * (side)) /* words that peers write to wake this node */
#define REMO__QUEUE_SLOTS 192u

/* The word that a call moves; also the word at which calls of the other kind wait: pops wait at the tail for
 * pushes, pushes at the head for pops. */
enum remo__queue_side { REMO__QUEUE_TAIL = 0, REMO__QUEUE_HEAD = 1 };

/* The slot of a ticket. */
struct remo__queue_slot {
    uint64_t ticket, lap;
    struct remo__ref ref; /* at the owner, for the thread that found the slot */
};

/* The steps of a retraction: wait for the writes of the push, read the claim, free the slot. */
enum remo__queue_retraction {
    REMO__QUEUE_RETRACT_WRITES,
    REMO__QUEUE_RETRACT_READ,
    REMO__QUEUE_RETRACT_SWAP
};

/* A claim of a failed push, which is to be retracted. A thread keeps one at most: its next pushes fail until
 * the claim is retracted. */
struct remo__queue_kept_claim {
    struct remo__queue_slot slot; /* found by the thread that claimed it */
    uint64_t claim;
    uint64_t found; /* the claim word, as the operation of the step returned it */
    enum remo__queue_retraction step;
    struct remo_ack ack;  /* of the operations of the step */
    bool outcome_unknown; /* an attempt to retract it failed, and may have been applied */
    /* This entry of the table has a claim. Only the claiming thread sets the flag; any thread clears it. */
    _Atomic bool is_used;
};

/* Threads of this node that wait at one side. */
struct remo__queue_waiters {
    struct remo__mutex mutex; /* protects this struct, and this node's bit at the home */
    uint32_t thread_count;
    bool is_clear_in_flight; /* an attempt to clear the bit failed, and may be applied later */
    _Atomic bool is_bit_set; /* from the begin of the wait to its end; read without the mutex */
};

struct remo_queue {
    struct remo_node *node;
    struct remo_channel *channel;
    struct remo__memory *home_memory, *slots_memory;
    uint64_t capacity;
    uint32_t slot_bytes;
    uint32_t stride;  /* of slots */
    uint32_t data_at; /* offset of an element in its slot, unless the element is inline */
    uint32_t home;
    uint32_t member_count;
    uint16_t members[REMO_NODES_MAX];
    _Atomic uint32_t departures;          /* participants that failed or left */
    _Atomic uint32_t reported_departures; /* of these, reported to a caller */
    _Atomic uint64_t notify_count;        /* makes each value that is written to a doorbell unique */
    struct remo__queue_waiters waiters[2];
    struct remo__mutex kept_mutex;                         /* protects `kept` */
    struct remo__queue_kept_claim kept[REMO__THREADS_MAX]; /* by thread */
    _Atomic uint32_t kept_count;                           /* entries of `kept` in use */
    struct remo__task_lock turns[REMO__THREADS_MAX];       /* held by the task that pushes; not mapped */
    _Atomic uint64_t hint[2] REMO__CACHE_ALIGNED; /* by side: ticket at which the next search begins */
    _Atomic uint32_t overtaken[2]; /* by side: recent searches that another node had overtaken (slot.c) */
};

/* One call of push or pop. */
struct remo__queue_op {
    struct remo_queue *queue;
    struct remo__thread *thread;
    enum remo__queue_side side; /* the word that the call moves */
    uint32_t seen_departures;
    const void *data; /* push */
    void *buffer;     /* pop */
    size_t buffer_bytes;
    size_t size_bytes;    /* of the element */
    bool is_too_large;    /* pop: the element does not fit the buffer */
    bool has_copy;        /* failed pop: the element is in the buffer, and was removed or not */
    bool has_retracted;   /* a claim, and has not notified the waiters yet */
    uint64_t deadline_ns; /* of the wait; 0 before it */
};

/* The claim word of a slot that is free for a lap. */
static inline uint64_t remo__queue_free_claim(uint64_t lap) {
    return lap << REMO__SLOT_LAP_SHIFT;
}

/* ---- queue/reach.c ---- */

/* Find a word of the queue at its home. Errors: those of remo__memory_find. */
static inline __attribute__((always_inline)) int
remo__queue_find_home(const struct remo__queue_op *op, uint64_t offset, struct remo__ref *ret_ref) {
    return remo__memory_find(op->queue->home_memory, op->thread, op->queue->home, offset, ret_ref);
}
/* Return -EHOSTDOWN, and mark all departures as reported, if a participant failed or left whose departure had
 * not been reported when the call began; otherwise 0. */
int remo__queue_report_departure(struct remo__queue_op *op);
/* Return whether the node has failed, or has left the job or the queue. */
bool remo__queue_has_departed(const struct remo_queue *queue, uint32_t node);

/* Turn the timeout of a network operation into -EIO: for callers -ETIMEDOUT means a full or empty queue. */
int remo__queue_convert_timeout(const struct remo__queue_op *op, int rc);

/* ---- queue/slot.c ---- */

/* Try once to push or to pop. `ctx` is a struct remo__queue_op; these are wait conditions of remo__wait.
 * Return 1 if done, 0 if the queue is full or empty, or if other nodes were faster until the deadline.
 * Errors: those of remo_queue_push and remo_queue_pop, without -ETIMEDOUT. */
int remo__queue_try_push(void *ctx);
int remo__queue_try_pop(void *ctx);
/* ---- queue/kept.c ---- */

/* Retract a claim, or keep it if that fails. Blocks for the operations of the retraction. Returns 1 if a pop
 * has removed the element, 0 if the element was not pushed.
 * Errors: those of the operations; -EINPROGRESS, -EIO: the outcome of the push is unknown. */
int remo__queue_retract_or_keep(struct remo__queue_op *op, struct remo__queue_kept_claim *kept);
/* Advance the retraction of claims that earlier calls kept, without waiting for the owners of their slots. A
 * claim is dropped if its slot's owner has failed or left. */
void remo__queue_retract_kept_claims(struct remo__queue_op *op);
/* Retract the claim that an earlier push of this thread kept. Blocks for op_timeout_ns at most, and not for
 * writes of that push. Errors: -EIO: the claim is still kept. */
int remo__queue_retract_own_claim(struct remo__queue_op *op);
/* At close: drop the kept claims. The owners of their slots cut this node off, and pops free the slots. */
void remo__queue_drop_kept_claims(struct remo_queue *queue);

/* ---- queue/wait.c ---- */

/* Notify all nodes that wait at the side. Blocks until the doorbells are written, for op_timeout_ns at most
 * for each operation. A failed operation is repeated. */
void remo__queue_notify_waiters(struct remo__queue_op *op, enum remo__queue_side side);
/* Move the side's word to `to`, unless it is there or beyond, and notify the nodes that wait for that.
 * `expected`: the value that the word probably has. Cost: 1 atomic if it has, without waiters. */
void remo__queue_advance(struct remo__queue_op *op, uint64_t expected, uint64_t to);
/* Repeat `attempt` until it returns a value other than 0.
 * Errors: -ETIMEDOUT at the deadline of `op`; those of `try`; -EHOSTDOWN and -ENOTCONN of the home. */
int remo__queue_wait(struct remo__queue_op *op, int (*attempt)(void *ctx));
