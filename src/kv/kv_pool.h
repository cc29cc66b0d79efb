/* kv_pool.h - which of this node's own slots are free, in private memory.
 *
 * Slots are given out in the order in which they came back, so that a slot rests as long as possible between
 * two keys.
 * Threads: one at a time. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define REMO__KV_NO_SLOT UINT32_MAX

struct remo__kv_pool {
    uint32_t *ring; /* [slots]: those that came back, from `first` on */
    uint32_t slots;
    uint32_t fresh; /* slots from here on were never used */
    uint32_t first, count;
};

/* Errors: -ENOMEM. */
int remo__kv_pool_open(struct remo__kv_pool *pool, uint32_t slots);
void remo__kv_pool_close(struct remo__kv_pool *pool);
/* REMO__KV_NO_SLOT: all are in use. */
uint32_t remo__kv_pool_take(struct remo__kv_pool *pool);
void remo__kv_pool_give(struct remo__kv_pool *pool, uint32_t slot);

static inline uint32_t remo__kv_pool_free(const struct remo__kv_pool *pool) {
    return pool->slots - pool->fresh + pool->count;
}
