/* pool.c - implements pool.h.
 *
 * Invariant: slots from `fresh` on were never used; of the others, exactly the free ones are in the ring. */
#include "systems/kv/pool.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/error.h"

int remo__kv_pool_open(struct remo__kv_pool *pool, uint32_t slots, const struct remo__mutex *mutex) {
    uint32_t *ring = malloc((size_t)slots * sizeof *ring);
    if (!ring)
        return remo__fail(-ENOMEM, "no memory for the list of %u free slots", slots);
    *pool = (struct remo__kv_pool){.ring = ring, .slots = slots, .mutex = mutex};
    return 0;
}

void remo__kv_pool_close(struct remo__kv_pool *pool) {
    free(pool->ring);
    pool->ring = NULL;
}

static bool is_locked(const struct remo__kv_pool *pool) {
    return !pool->mutex || atomic_load_explicit(&pool->mutex->state, memory_order_relaxed) != 0;
}

uint32_t remo__kv_pool_take(struct remo__kv_pool *pool) {
    assert(is_locked(pool));
    if (pool->fresh < pool->slots)
        return pool->fresh++;
    if (pool->count == 0)
        return REMO__KV_NO_SLOT;
    uint32_t slot = pool->ring[pool->first];
    pool->first = pool->first + 1 == pool->slots ? 0 : pool->first + 1;
    pool->count--;
    return slot;
}

void remo__kv_pool_give(struct remo__kv_pool *pool, uint32_t slot) {
    assert(is_locked(pool) && slot < pool->fresh && pool->count < pool->slots);
    uint64_t at = (uint64_t)pool->first + pool->count++;
    pool->ring[at < pool->slots ? at : at - pool->slots] = slot;
}
