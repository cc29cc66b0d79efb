/* slots.h - the operations in flight of one thread; the internals that files of this folder share.
 *
 * Fields change only under the lock. Fields marked (A) are also read without it, so remo__slots_set writes
 * them and remo__slots_get reads them. */
#pragma once

#include "remote/op.h"
#include "remote/wait.h"
#include "remote/workers.h"

struct remo__slot {
    struct remo_ack *ack; /* NULL: the operation has none, or it was cancelled */
    void *dst;            /* reads and atomics: the result is copied here; NULL: it is not copied */
    char *bounce;         /* the block that the network accesses instead of the caller's buffer */
    uint64_t word;        /* the bounce block on mapped fabrics */
    uint32_t bytes;
    uint16_t peer;
    uint8_t kind;
    bool busy;
    bool exempt;  /* a write that only remo__fence_leave flushes */
    bool tracked; /* remo__op_abandoned counts it at any peer */
    bool flushes; /* a read that flushes writes: those up to number `places` are placed when it is complete */
    uint32_t worker; /* that has started it; 0: none */
    uint64_t places;
    uint64_t number; /* `started` when it was posted or deferred */
};

/* Operations of a worker in flight, to all peers. */
struct remo__slots_worker {
    uint32_t writes, others; /* (A) */
};

struct remo__slots_peer {
    uint32_t writes, others; /* (A) in flight */
    /* The first error of a write without an ack: for the next fence of its thread, and for a global fence of
     * another thread that runs earlier. Noted and taken under the lock; read also without it. */
    _Atomic int thread_error, global_error;
    /* If completion does not mean placed, the writes to the peer have the numbers 1, 2, ... */
    _Atomic uint64_t posted;   /* number of the last write */
    _Atomic uint64_t written;  /* number of the last write that is not exempt */
    _Atomic uint64_t flushing; /* a flush read in flight places all writes up to this one */
    _Atomic uint64_t flushed;  /* all writes up to this one are placed */
    _Atomic int flush_status;  /* of the last flush read that failed */
};

struct remo__slots {
    struct remo__mutex lock;
    struct remo_node *node;
    struct remo__endpoint *endpoint;
    uint64_t bounce_offset;
    uint32_t depth, free_count;
    uint32_t in_flight;              /* (A) */
    uint32_t completed;              /* (A) number of operations completed so far; wraps */
    _Atomic uint64_t started;        /* number of operations posted or deferred so far */
    uint32_t cork_depth;             /* (A) above 0: operations are deferred; only the owner changes it */
    uint32_t deferred_count;         /* (A) deferred operations; they count as in flight */
    _Atomic uint32_t polls;          /* number of polls of the endpoint; wraps */
    uint32_t polls_swept;            /* `polls` at the service thread's last sweep */
    int reason_status;               /* status of the last operation that failed with a sentence */
    char reason[REMO__SENTENCE_MAX]; /* and the sentence */
    uint16_t free[REMO__SLOTS_MAX];
    struct remo__slot slot[REMO__SLOTS_MAX];
    struct remo__op deferred[REMO__SLOTS_MAX];
    struct remo__slots_worker workers[REMO__WORKERS_MAX + 1]; /* by index; [0]: of all others */
    struct remo__slots_peer peers[];                          /* [size] */
};

/* An operation to start: of at most the size that the fabric moves at once. */
struct remo__start {
    struct remo__slots *slots;
    struct remo__thread *thread;
    struct remo__op op;
    bool bounce; /* the network accesses the slot's bounce block instead of the caller's buffer */
    bool exempt; /* this and the next two: see struct remo__slot */
    bool tracked;
    bool flushes;
    bool of_task;    /* other tasks may run before the thread waits: defer the operation */
    uint32_t worker; /* the caller; 0: the caller is no worker */
    const void *src; /* a write through the bounce block: the source to copy into the block */
    void *dst;       /* a read or atomic through the block: where the result is copied to, or NULL */
    struct remo_ack *ack;
    uint64_t deadline_ns; /* 0: do not wait; or REMO__OP_DEADLINE */
};

#define REMO__OP_DEADLINE UINT64_C(1) /* op_timeout_ns after the start begins to wait: it rarely does */

/* Post or defer the operation if a slot is free and the fabric's queue has room. Never blocks. Returns 1, 0
 * (retry later), or the error of the post. */
int remo__slots_try_start(struct remo__start *start);
/* Post a read that flushes all writes of `thread` to `peer`. Blocks until `deadline_ns` while no slot is
 * free. Does not wait for the read, which counts in `others`. Errors: those of remo__start. */
int remo__op_flush_writes(struct remo__thread *thread, struct remo_stats *stats, uint32_t peer,
                          uint64_t deadline_ns);
/* Return whether one of the first `count` operations that these slots have started is in flight to the peer.
 * Writes count only if `writes`; `worker`: operations of others do not count, unless it is 0. Also true while
 * another thread uses the slots. */
bool remo__slots_has_early(struct remo__slots *slots, uint32_t peer, bool writes, uint64_t count,
                           uint32_t worker);
/* Set the sentence of an operation of these slots that failed with `status`. Returns `status`. */
int remo__op_fail(struct remo__slots *slots, int status);

static inline uint32_t remo__slots_get(const uint32_t *counter) {
    return __atomic_load_n(counter, __ATOMIC_ACQUIRE);
}

static inline void remo__slots_set(uint32_t *counter, uint32_t value) {
    __atomic_store_n(counter, value, __ATOMIC_RELEASE);
}

/* Raise `flushed` to at least `number`. Another thread may raise it concurrently. */
static inline void remo__slots_advance(_Atomic uint64_t *flushed, uint64_t number) {
    uint64_t before = atomic_load(flushed);
    while (before < number && !atomic_compare_exchange_weak(flushed, &before, number))
        continue;
}

/* Record the error of a write without an ack, unless an earlier error is recorded. The lock is held. */
static inline void remo__slots_note_error(struct remo__slots_peer *peer, int status) {
    if (atomic_load(&peer->global_error) == 0)
        atomic_store(&peer->global_error, status);
    if (atomic_load(&peer->thread_error) == 0)
        atomic_store(&peer->thread_error, status);
}
