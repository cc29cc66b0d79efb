/* heap_common.h - functions that the tests of heaps share: opening a heap, blocks, sizes, and the memory that
 * all nodes share. */
#pragma once

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../../support/turns.h"

#define MIB (1ull << 20)

struct heap_shared {
    struct remo_addr addr;
    _Atomic uint32_t step;
    struct turns turns;
};

static struct heap_shared *shared;

static inline int open_heap(struct remo_node *node, uint64_t limit_bytes, struct remo_heap **ret_heap) {
    struct remo_heap_options options = {.limit_bytes = limit_bytes};
    CHECK_OK(remo_heap_open(remo_node_root(node), "heap", &options, ret_heap));
    CHECK_OK(remo_channel_wait(remo_heap_channel(*ret_heap), 100 * SECOND));
    return 0;
}

/* Open the heap, and allocate a block on each node. Node 1 is pinned. */
static inline int open_pinned(struct remo_node *node, uint64_t bytes, struct remo_heap **ret_heap,
                              struct remo_addr *ret_addr) {
    if (open_heap(node, 0, ret_heap) != 0)
        return 1;
    if (remo_node_rank(node) == 1)
        CHECK_OK(remo_heap_pin(*ret_heap));
    CHECK_OK(remo_heap_alloc(*ret_heap, bytes, 0, ret_addr));
    return cluster_meet();
}

/* Allocate a block, and retire it. */
static inline int retire_new(struct remo_heap *heap, uint64_t bytes) {
    struct remo_addr addr;
    CHECK_OK(remo_heap_alloc(heap, bytes, 0, &addr));
    CHECK_OK(remo_heap_retire(heap, addr));
    return 0;
}

static inline struct remo_heap_sizes sizes_of(struct remo_heap *heap) {
    struct remo_heap_sizes sizes;
    remo_heap_stats(heap, &sizes);
    return sizes;
}

static inline void clear_shared(void) {
    memset(shared, 0, sizeof *shared);
}

static inline int heap_main(int argc, char **argv, const struct cluster_test *tests) {
    shared = cluster_shared(sizeof *shared);
    return cluster_main(argc, argv, tests, clear_shared);
}
