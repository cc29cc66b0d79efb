#include "kv/kv_pool.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/error.h"

int remo__kv_pool_open(struct remo__kv_pool *pool, uint32_t slots) {
    uint32_t *next = malloc((size_t)slots * sizeof *next);
    if (!next)
        return remo__fail(-ENOMEM, "no memory for a list of %u slots", slots);
    *pool = (struct remo__kv_pool){.next = next, .slots = slots};
    return 0;
}

void remo__kv_pool_close(struct remo__kv_pool *pool) {
    free(pool->next);
    pool->next = NULL;
}

static void append(struct remo__kv_pool *pool, struct remo__kv_chain *chain, uint32_t slot) {
    assert(slot < pool->fresh);
    if (chain->count++ == 0)
        chain->first = slot;
    else
        pool->next[chain->last] = slot;
    chain->last = slot;
}

static uint32_t remove_first(struct remo__kv_pool *pool, struct remo__kv_chain *chain) {
    if (chain->count == 0)
        return REMO__KV_NO_SLOT;
    uint32_t slot = chain->first;
    if (--chain->count > 0)
        chain->first = pool->next[slot];
    return slot;
}

uint32_t remo__kv_pool_take(struct remo__kv_pool *pool) {
    if (pool->fresh < pool->slots)
        return pool->fresh++;
    return remove_first(pool, &pool->free);
}

void remo__kv_pool_give(struct remo__kv_pool *pool, uint32_t slot) {
    append(pool, &pool->free, slot);
}

void remo__kv_pool_owe(struct remo__kv_pool *pool, uint32_t slot) {
    append(pool, &pool->owed, slot);
}

uint32_t remo__kv_pool_settle(struct remo__kv_pool *pool) {
    return remove_first(pool, &pool->owed);
}
