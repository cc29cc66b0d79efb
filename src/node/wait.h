/* wait.h - the one way to wait: spin, then yield, then sleep, until a condition, a deadline, or an error of
 * the condition.
 *
 * `ready` returns 1 when there is nothing more to wait for, 0 to go on, or a negative code, which ends the
 * wait. It looks at memory that somebody rings the node's doorbell for (peers: REMO_WRITE_NOTIFY; this node:
 * remo__wake), and it itself checks that the peers it depends on are alive. It runs often and must be quick.
 * Own operations in flight are driven meanwhile. A sleeper looks again at least every REMO__SLEEP_NS_MAX.
 * Errors: -ETIMEDOUT, and those of `ready`: REMO_FOREVER with a condition that has none cannot fail.
 */
#pragma once

#include "fabric/mapped.h"
#include "node/node.h"

#define REMO__SLEEP_NS_MAX (20 * REMO__NS_PER_MS)

#ifdef REMO_SIM
/* One turn of waiting is one step of a schedule: note what there is to see, look, and if it was not enough
 * pause until something is different. */
uint64_t remo__sim_look(const struct remo_node *node);
void remo__sim_pause(const struct remo_node *node, uint64_t looked, uint64_t deadline_ns);
#endif

int remo__wait(struct remo_node *node, int (*ready)(void *ctx), void *ctx, uint64_t deadline_ns);

/* Wake every waiter of this node, because local memory that it may wait for has changed. */
static inline void remo__wake(struct remo_node *node) {
    remo__mapped_fence();
    if (atomic_load_explicit(&node->doorbell->sleepers, memory_order_relaxed) != 0)
        remo__doorbell_ring(node->doorbell);
}

/* Mutual exclusion between threads of a node around code that waits or uses the network. (Around code that
 * does neither, a pthread mutex is fine.) 0 is unlocked. Fair enough: no order among waiters. */
struct remo__mutex {
    _Atomic uint32_t state; /* 0 free, 1 held, 2 held and somebody waits */
};
int remo__mutex_lock_slow(struct remo_node *node, struct remo__mutex *mutex, uint64_t deadline_ns);

/* Errors: -ETIMEDOUT. */
static inline int remo__mutex_lock(struct remo_node *node, struct remo__mutex *mutex, uint64_t deadline_ns) {
    uint32_t free_state = 0;
    if (remo__likely(atomic_compare_exchange_strong_explicit(&mutex->state, &free_state, 1,
                                                             memory_order_acquire, memory_order_relaxed)))
        return 0;
    return remo__mutex_lock_slow(node, mutex, deadline_ns);
}

static inline void remo__mutex_unlock(struct remo_node *node, struct remo__mutex *mutex) {
    if (atomic_exchange_explicit(&mutex->state, 0, memory_order_release) == 2)
        remo__wake(node);
}
