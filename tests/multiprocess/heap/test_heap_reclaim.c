/* test_heap_reclaim.c - the network operations of each call, as the header states them, and grace periods:
 * retired blocks are not reused while a thread is pinned. */
#include "heap_common.h"

/* ---- costs ---- */

#define COST(heap, call, code, reads) \
    CHECK_COST(remo_heap_channel(heap), CHECK_CODE(call, code), reads, 0, 0, 0)

/* Calls without a network operation. Writes under the pin belong to no heap. */
static int local_costs(struct remo_heap *heap, struct remo_addr peers_block) {
    struct remo_node *node = remo_channel_node(remo_heap_channel(heap));
    uint64_t words[4] = {1, 2, 3, 4}, found[4];
    struct remo_addr small, large;
    COST(heap, remo_heap_alloc(heap, 32, 0, &small), 0, 0);
    COST(heap, remo_heap_alloc(heap, 3 * MIB, 0, &large), 0, 0);
    COST(heap, remo_heap_free(heap, small), 0, 0);
    COST(heap, remo_heap_free(heap, large), 0, 0);
    COST(heap, remo_heap_pin(heap), 0, 0);
    COST(heap, remo_heap_pin(heap), 0, 0);
    COST(heap, remo_write(node, peers_block, words, sizeof words, NULL), 0, 0);
    COST(heap, remo_heap_unpin(heap), 0, 0);
    COST(heap, remo_heap_unpin(heap), 0, 0);
    COST(heap, remo_heap_unpin(heap), -EINVAL, 0);
    CHECK_OK(remo_read(node, peers_block, found, sizeof found, NULL));
    CHECK(memcmp(found, words, sizeof words) == 0);
    return 0;
}

/* A reclaim reads the pins of each peer once. Only each REMO_HEAP_BATCHth retire does so too. */
static int reclaim_costs(struct remo_heap *heap, uint32_t peers) {
    struct remo_addr addrs[REMO_HEAP_BATCH];
    for (uint32_t i = 0; i < REMO_HEAP_BATCH; i++)
        CHECK_OK(remo_heap_alloc(heap, 32, 0, &addrs[i]));
    for (uint32_t i = 0; i < REMO_HEAP_BATCH; i++)
        COST(heap, remo_heap_retire(heap, addrs[i]), 0, i < REMO_HEAP_BATCH - 1 ? 0 : peers);
    COST(heap, remo_heap_reclaim(heap, 0), 0, 0);
    CHECK_OK(remo_heap_alloc(heap, 32, 0, &addrs[0]));
    COST(heap, remo_heap_retire(heap, addrs[0]), 0, 0);
    COST(heap, remo_heap_reclaim(heap, 0), 0, peers);
    COST(heap, remo_heap_reclaim(heap, 0), 0, 0);
    CHECK_EQUAL(sizes_of(heap).retired_bytes, 0);
    return 0;
}

/* Node 1 is pinned. Its pins are read once per attempt, and those of other nodes once per grace period. */
static int pinned_costs(struct remo_heap *heap, uint32_t rank, uint32_t peers) {
    struct remo_addr addr;
    CHECK_OK(remo_heap_alloc(heap, 32, 0, &addr));
    if (rank == 1)
        CHECK_OK(remo_heap_pin(heap));
    CHECK_OK(cluster_meet());
    if (rank == 0) {
        CHECK_OK(remo_heap_retire(heap, addr));
        COST(heap, remo_heap_reclaim(heap, 0), -ETIMEDOUT, peers);
        COST(heap, remo_heap_reclaim(heap, 0), -ETIMEDOUT, 1);
    }
    CHECK_OK(cluster_meet());
    if (rank == 1)
        CHECK_OK(remo_heap_unpin(heap));
    CHECK_OK(cluster_meet());
    if (rank == 0) {
        CHECK(retire_new(heap, 32) == 0);
        COST(heap, remo_heap_reclaim(heap, 0), 0, 1 + peers); /* the end of one grace period, and the next */
    }
    return 0;
}

static int costs(struct remo_node *node, void *ctx) {
    struct remo_heap *heap;
    struct remo_addr addr;
    uint32_t rank = remo_node_rank(node), peers = remo_node_size(node) - 1;
    (void)ctx;
    if (open_heap(node, 0, &heap) != 0)
        return 1;
    CHECK_OK(remo_heap_alloc(heap, 32, 0, &addr));
    if (rank == 0)
        shared->addr = addr;
    CHECK_OK(cluster_meet());
    CHECK_OK(local_costs(heap, shared->addr));
    if (rank == 1)
        CHECK_SENTENCE(remo_heap_free(heap, shared->addr), -EINVAL, "node 1 cannot free a block of node 0");
    CHECK_OK(cluster_meet());
    CHECK_OK(reclaim_costs(heap, peers));
    CHECK_OK(cluster_meet());
    CHECK_OK(pinned_costs(heap, rank, peers));
    CHECK_OK(cluster_meet());
    remo_heap_close(heap);
    return 0;
}

/* ---- grace periods ---- */

/* Node 1 pins; node 0 retires a block, which is not reused until node 1 unpins. Later pins do not delay. */
static int grace(struct remo_node *node, void *ctx) {
    struct remo_heap *heap;
    struct remo_addr addr, next;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    if (open_pinned(node, 8192, &heap, &addr) != 0)
        return 1;
    if (rank == 0) {
        CHECK_OK(remo_heap_retire(heap, addr));
        CHECK_SENTENCE(remo_heap_reclaim(heap, 0), -ETIMEDOUT, "node 1 is still pinned");
        CHECK_SENTENCE(remo_heap_reclaim(heap, SECOND / 20), -ETIMEDOUT, "node 1 is still pinned");
        for (int i = 0; i < 100; i++) {
            CHECK_OK(remo_heap_alloc(heap, 8192, 0, &next));
            CHECK(next.word != addr.word);
        }
        CHECK_EQUAL(sizes_of(heap).retired_bytes, 8192);
    }
    CHECK_OK(cluster_meet());
    if (rank == 1) {
        CHECK_OK(remo_heap_unpin(heap));
        CHECK_OK(remo_heap_pin(heap));
    }
    CHECK_OK(cluster_meet());
    if (rank == 0) {
        CHECK_OK(remo_heap_reclaim(heap, 0));
        CHECK_EQUAL(sizes_of(heap).retired_bytes, 0);
        CHECK_CODE(remo_heap_retire(heap, addr), -EALREADY);
    }
    CHECK_OK(cluster_meet());
    if (rank == 1)
        CHECK_OK(remo_heap_unpin(heap));
    CHECK_OK(cluster_meet());
    remo_heap_close(heap);
    return 0;
}

static void *run_unpin(void *ctx) {
    struct remo_heap *heap = ctx;
    if (remo_heap_pin(heap) != 0)
        return heap;
    atomic_store(&shared->step, 1);
    while (atomic_load(&shared->step) != 2)
        sched_yield();
    return remo_heap_unpin(heap) == 0 ? NULL : heap;
}

/* A pin of another thread of the owner delays too; reclaim waits for its unpin. */
static int own_pin(struct remo_node *node, void *ctx) {
    struct remo_heap *heap;
    struct remo_addr addr;
    pthread_t id;
    void *failed;
    (void)ctx;
    if (open_heap(node, 0, &heap) != 0)
        return 1;
    CHECK_OK(remo_heap_alloc(heap, 64, 0, &addr));
    CHECK_OK(pthread_create(&id, NULL, run_unpin, heap));
    while (atomic_load(&shared->step) != 1)
        sched_yield();
    CHECK_OK(remo_heap_retire(heap, addr));
    CHECK_SENTENCE(remo_heap_reclaim(heap, 0), -ETIMEDOUT, "node 0 is still pinned");
    atomic_store(&shared->step, 2);
    CHECK_OK(remo_heap_reclaim(heap, 100 * SECOND));
    CHECK_EQUAL(sizes_of(heap).retired_bytes, 0);
    CHECK_OK(pthread_join(id, &failed));
    CHECK(failed == NULL);
    remo_heap_close(heap);
    return 0;
}

/* Pin the heap twice, take a slab, and write to a block of node 0. The thread then ends. */
static void *run_ending(void *ctx) {
    struct remo_heap *heap = ctx;
    struct remo_addr addr;
    uint64_t word = 77;
    if (remo_heap_pin(heap) != 0 || remo_heap_pin(heap) != 0 || remo_heap_alloc(heap, 64, 0, &addr) != 0
        || remo_heap_free(heap, addr) != 0)
        return heap;
    struct remo_node *node = remo_channel_node(remo_heap_channel(heap));
    return remo_write(node, shared->addr, &word, sizeof word, NULL) == 0 ? NULL : heap;
}

/* The end of a thread ends its pin, after its write is placed. Others use its slabs: with one chunk as the
 * limit, a block of the whole chunk fits. The next thread with the same index is not pinned. */
static int ended_thread(struct remo_node *node, void *ctx) {
    struct remo_heap *heap;
    struct remo_addr addr;
    uint64_t word = 0;
    void *failed;
    (void)ctx;
    if (open_heap(node, 2 * MIB, &heap) != 0)
        return 1;
    if (remo_node_rank(node) == 0)
        CHECK_OK(remo_heap_alloc(heap, 64, 0, &shared->addr));
    CHECK_OK(cluster_meet());
    for (int round = 0; round < 3; round++) {
        pthread_t id;
        CHECK_OK(pthread_create(&id, NULL, run_ending, heap));
        CHECK_OK(pthread_join(id, &failed));
        CHECK(failed == NULL);
        CHECK_OK(cluster_meet());
        if (remo_node_rank(node) == 0) {
            CHECK_OK(remo_read(node, shared->addr, &word, sizeof word, NULL));
            CHECK_EQUAL(word, 77);
            CHECK_OK(remo_heap_retire(heap, shared->addr));
            CHECK_OK(remo_heap_reclaim(heap, 0));
            CHECK_OK(remo_heap_alloc(heap, 2 * MIB, 0, &addr));
            CHECK_OK(remo_heap_free(heap, addr));
            CHECK_OK(remo_heap_alloc(heap, 64, 0, &shared->addr));
        }
        CHECK_OK(cluster_meet());
    }
    remo_heap_close(heap);
    return 0;
}

/* Retired blocks are reused without a call of reclaim. */
static int automatic(struct remo_node *node, void *ctx) {
    struct remo_heap *heap;
    (void)ctx;
    if (open_heap(node, 4 * MIB, &heap) != 0)
        return 1;
    for (uint32_t i = 0; i < 20000; i++)
        CHECK(retire_new(heap, 4096) == 0);
    CHECK_OK(cluster_meet());
    remo_heap_close(heap);
    return 0;
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(costs, 3),
        CLUSTER_TEST_NAMED("costs_threads", costs, 3, .as_threads = 1),
        CLUSTER_TEST(grace, 2),
        CLUSTER_TEST(own_pin, 1),
        CLUSTER_TEST(ended_thread, 2),
        CLUSTER_TEST(automatic, 2),
        {0}};
    return heap_main(argc, argv, tests);
}
