/* pool.h - the free slots of this node, in private memory.
 *
 * Order:   slots are reused in the order in which they became free, so that a slot stays unused as long as
 *          possible between two keys.
 * Threads: one at a time, the holder of `mutex`. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "channel/remote.h"

#define REMO__KV_NO_SLOT UINT32_MAX

struct remo__kv_pool {
    uint32_t *ring; /* [slots]: `count` free slots, from `first` on */
    uint32_t slots;
    uint32_t fresh; /* slots from here on were never used */
    uint32_t first, count;
    const struct remo__mutex *mutex; /* NULL: one thread has the pool */
};

/* Create a pool of `slots` free slots. Errors: -ENOMEM. */
int remo__kv_pool_open(struct remo__kv_pool *pool, uint32_t slots, const struct remo__mutex *mutex);
void remo__kv_pool_close(struct remo__kv_pool *pool);
/* Take a free slot; REMO__KV_NO_SLOT if all are in use. */
uint32_t remo__kv_pool_take(struct remo__kv_pool *pool);
/* Return a slot to the pool. */
void remo__kv_pool_give(struct remo__kv_pool *pool, uint32_t slot);

/* Return the number of free slots. */
static inline uint32_t remo__kv_pool_free(const struct remo__kv_pool *pool) {
    return pool->slots - pool->fresh + pool->count;
}
