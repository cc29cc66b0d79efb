/* slots.h - the operations in flight of one thread; shared by op.c, ack.c and fence.c.
 *
 * Everything is changed under the lock. What is marked (A) is looked at without it, so it is changed by
 * remo__slots_set.
 */
#pragma once

#include "node/op.h"
#include "node/wait.h"

struct remo__slot {
    struct remo_ack *ack; /* NULL: nobody waits, or nobody any more */
    void *dst;            /* reads and atomics: where the result is copied to; NULL: nowhere */
    char *bounce;
    uint64_t word; /* bounce block on mapped fabrics */
    uint32_t bytes;
    uint16_t peer;
    uint8_t kind;
    bool busy;
    bool settled; /* a write that no fence counts */
};

struct remo__slots_peer {
    uint32_t writes, others; /* (A) in flight */
    _Atomic int error;       /* of a write that nobody waited for; told by the next fence of its thread */
    /* the same, for a global fence of another thread, which may come first, or alone */
    _Atomic int untold;
    _Atomic uint64_t written; /* writes ever posted, where completion does not mean placed */
    _Atomic uint64_t flushed; /* so many of them are known to be placed */
};

struct remo__slots {
    struct remo__mutex lock;
    struct remo_node *node;
    struct remo__endpoint *endpoint;
    uint64_t bounce_offset;
    uint32_t depth, free_count;
    uint32_t in_flight;      /* (A) */
    uint32_t completed;      /* (A) operations, ever; wraps */
    uint32_t cork_depth;     /* (A) the owner's: hold operations back */
    uint32_t held_count;     /* (A) operations held back; they count as in flight */
    _Atomic uint32_t driven; /* how often somebody looked for completions */
    uint32_t driven_seen;    /* by the service thread, at its last sweep */
    int why_status;          /* of the last operation that failed with a reason */
    char why[REMO__SENTENCE_MAX];
    uint16_t free[REMO__SLOTS_MAX];
    struct remo__slot slot[REMO__SLOTS_MAX];
    struct remo__op held[REMO__SLOTS_MAX];
    struct remo__slots_peer peers[]; /* [size] */
};

/* Set the sentence for an operation of these slots that failed with `status`, and return that. */
int remo__slots_fail(struct remo__slots *slots, int status);

static inline uint32_t remo__slots_get(const uint32_t *counter) {
    return __atomic_load_n(counter, __ATOMIC_ACQUIRE);
}

static inline void remo__slots_set(uint32_t *counter, uint32_t value) {
    __atomic_store_n(counter, value, __ATOMIC_RELEASE);
}
