/* test_heap_failure.c - bad input of a heap, and participants that are absent, pause, leave or fail: no block
 * is lost or reused too early. */
#include "heap_common.h"

/* ---- bad input: a code and a sentence, and no block is lost ---- */

static int wrong_addresses(struct remo_heap *heap, uint32_t rank, struct remo_addr good) {
    uint64_t offset = remo_addr_offset(good);
    uint32_t incarnation = remo_addr_incarnation(good);
    struct remo_addr null = {0};
    CHECK_SENTENCE(remo_heap_free(heap, null), -EFAULT, "null");
    CHECK_SENTENCE(remo_heap_free(heap, remo_addr_make(rank + 1, incarnation, offset)), -EINVAL,
                   "free it at its own node");
    CHECK_SENTENCE(remo_heap_free(heap, remo_addr_make(rank, incarnation + 1, offset)), -ESTALE, "stale");
    CHECK_SENTENCE(remo_heap_free(heap, remo_addr_make(rank, incarnation, offset + 1)), -EINVAL,
                   "blocks of 112 bytes begin at");
    CHECK_CODE(remo_heap_free(heap, remo_addr_make(rank, incarnation, offset + 16)), -EINVAL);
    CHECK_CODE(remo_heap_retire(heap, remo_addr_make(rank, incarnation, offset + 100)), -EINVAL);
    CHECK_SENTENCE(remo_heap_free(heap, remo_addr_make(rank, incarnation, 64)), -EFAULT, "another object");
    CHECK_CODE(remo_heap_free(heap, remo_addr_make(rank, incarnation, (1ull << 44) - 16)), -EFAULT);
    CHECK(remo_heap_local(heap, null) == NULL && remo_heap_local(NULL, good) == NULL);
    CHECK(remo_heap_local(heap, remo_addr_make(rank + 1, incarnation, offset)) == NULL);
    return 0;
}

static int bad_input(struct remo_node *node, void *ctx) {
    struct remo_heap *heap;
    struct remo_addr good, other, last;
    (void)ctx;
    if (open_heap(node, 0, &heap) != 0)
        return 1;
    CHECK_SENTENCE(remo_heap_alloc(heap, 0, 0, &good), -EINVAL, "0 bytes");
    CHECK_SENTENCE(remo_heap_alloc(heap, 8, 24, &good), -EINVAL, "alignment of 24");
    CHECK_SENTENCE(remo_heap_alloc(heap, 8, 2 * REMO_HEAP_ALIGNMENT_MAX, &good), -EINVAL, "4096");
    CHECK_CODE(remo_heap_alloc(heap, UINT64_MAX, 0, &good), -ENOSPC);
    CHECK_CODE(remo_heap_alloc(heap, 1ull << 50, 0, &good), -ENOSPC);
    CHECK_SENTENCE(remo_heap_unpin(heap), -EINVAL, "has not pinned");
    CHECK_OK(remo_heap_alloc(heap, 100, 0, &good));
    CHECK_OK(remo_heap_alloc(heap, 100, 0, &other));
    if (wrong_addresses(heap, remo_node_rank(node), good) != 0)
        return 1;
    CHECK_EQUAL(sizes_of(heap).live_bytes, 224);
    CHECK_OK(remo_heap_free(heap, good));
    CHECK_SENTENCE(remo_heap_free(heap, good), -EALREADY, "free already");
    CHECK_CODE(remo_heap_retire(heap, good), -EALREADY);
    CHECK_OK(remo_heap_retire(heap, other));
    CHECK_SENTENCE(remo_heap_retire(heap, other), -EALREADY, "retired already");
    CHECK_CODE(remo_heap_free(heap, other), -EALREADY);
    CHECK_EQUAL(sizes_of(heap).retired_bytes, 112);
    CHECK_OK(remo_heap_reclaim(heap, 0));
    CHECK_CODE(remo_heap_free(heap, other), -EALREADY);
    CHECK_EQUAL(sizes_of(heap).retired_bytes + sizes_of(heap).live_bytes, 0);
    CHECK_OK(remo_heap_alloc(heap, 3 * MIB, 0, &last));
    CHECK_CODE(remo_heap_free(heap, (struct remo_addr){last.word + 2 * MIB}), -EINVAL);
    CHECK_CODE(remo_heap_free(heap, (struct remo_addr){last.word + 3 * MIB}), -EFAULT);
    CHECK(remo_heap_local(heap, (struct remo_addr){last.word + 3 * MIB - 1}) != NULL);
    CHECK(remo_heap_local(heap, (struct remo_addr){last.word + 3 * MIB}) == NULL);
    CHECK_OK(remo_heap_free(heap, last));
    CHECK_CODE(remo_heap_free(heap, last), -EFAULT);
    remo_heap_close(heap);
    remo_heap_close(NULL);
    return 0;
}

/* ---- participants that are absent, leave or fail ---- */

static int absent(struct remo_node *node, void *ctx) {
    struct remo_heap *heap;
    struct remo_addr addr;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    if (rank == 1)
        CHECK_OK(cluster_meet());
    CHECK_OK(remo_heap_open(remo_node_root(node), "heap", NULL, &heap));
    if (rank == 0) {
        CHECK(retire_new(heap, 64) == 0);
        CHECK_SENTENCE(remo_heap_reclaim(heap, 0), -ETIMEDOUT, "node 1 has not opened the heap");
        CHECK_OK(cluster_meet());
        CHECK_OK(remo_channel_wait(remo_heap_channel(heap), 100 * SECOND));
        CHECK_OK(remo_heap_reclaim(heap, 0));
        CHECK_OK(remo_heap_alloc(heap, 64, 0, &addr));
    }
    CHECK_OK(cluster_meet());
    if (rank == 1)
        remo_heap_close(heap);
    CHECK_OK(cluster_meet());
    if (rank == 0) {
        CHECK_OK(remo_heap_retire(heap, addr));
        CHECK_OK(remo_heap_reclaim(heap, 100 * SECOND)); /* node 1 has left */
        remo_heap_close(heap);
    }
    return 0;
}

/* Node 1 is killed while it is pinned. */
static int failing(struct remo_node *node, void *ctx) {
    struct remo_heap *heap;
    struct remo_addr addr;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    if (open_pinned(node, 64, &heap, &addr) != 0)
        return 1;
    if (rank != 1) {
        CHECK_OK(remo_heap_retire(heap, addr));
        CHECK_CODE(remo_heap_reclaim(heap, 0), -ETIMEDOUT);
    }
    CHECK_OK(cluster_meet());
    if (rank == 1) {
        cluster_sleep_ms(60000);
        return 1;
    }
    if (rank == 0)
        CHECK_OK(cluster_kill(1));
    CHECK_OK(remo_heap_reclaim(heap, 100 * SECOND));
    CHECK_EQUAL(sizes_of(heap).retired_bytes, 0);
    CHECK_OK(cluster_meet());
    remo_heap_close(heap);
    return 0;
}

/* Open the heap, and connect node 0 to all others before a node pauses: a paused node cannot connect. */
static int open_connected(struct remo_node *node, struct remo_heap **ret_heap) {
    struct remo_addr addr;
    if (open_heap(node, 0, ret_heap) != 0)
        return 1;
    record_process(&shared->turns, remo_node_rank(node));
    CHECK_OK(remo_heap_alloc(*ret_heap, 64, 0, &addr));
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) != 0)
        return 0;
    CHECK_OK(remo_heap_retire(*ret_heap, addr));
    CHECK_OK(remo_heap_reclaim(*ret_heap, 100 * SECOND));
    return retire_new(*ret_heap, 64);
}

static void *run_reclaim(void *ctx) {
    return remo_heap_reclaim(ctx, 0) == 0 ? NULL : ctx;
}

/* One attempt to reclaim reads the pins of nodes 2 and 3 while node 1 pauses. */
static int overlapping(struct remo_node *node, void *ctx) {
    struct remo_heap *heap;
    struct remo_stats before, now;
    pthread_t id;
    void *failed;
    (void)ctx;
    if (open_connected(node, &heap) != 0)
        return 1;
    if (remo_node_rank(node) == 0) {
        struct remo_channel *channel = remo_heap_channel(heap);
        pause_node(&shared->turns, 1);
        remo_channel_stats(channel, &before);
        CHECK_OK(pthread_create(&id, NULL, run_reclaim, heap));
        do
            remo_channel_stats(channel, &now);
        while (now.reads - before.reads < 3);
        resume_node(&shared->turns, 1);
        CHECK_OK(pthread_join(id, &failed));
        CHECK(failed == NULL);
    }
    CHECK_OK(cluster_meet());
    remo_heap_close(heap);
    return 0;
}

/* Two nodes pause. Together they delay an attempt by one op_timeout_ns. */
static int silent(struct remo_node *node, void *ctx) {
    struct remo_heap *heap;
    (void)ctx;
    if (open_connected(node, &heap) != 0)
        return 1;
    if (remo_node_rank(node) == 0) {
        struct remo_channel *channel = remo_heap_channel(heap);
        pause_node(&shared->turns, 1);
        pause_node(&shared->turns, 2);
        cluster_set_op_timeout(node, SECOND / 2);
        uint64_t begin = cluster_now_ns();
        CHECK_COST(channel, CHECK_SENTENCE(remo_heap_reclaim(heap, 0), -ETIMEDOUT, "has not answered"), 3, 0,
                   0, 0);
        CHECK(in_time(cluster_now_ns() - begin, 3 * SECOND / 4));
        resume_node(&shared->turns, 1);
        resume_node(&shared->turns, 2);
        CHECK_OK(remo_heap_reclaim(heap, 100 * SECOND));
        CHECK_EQUAL(sizes_of(heap).retired_bytes, 0);
    }
    CHECK_OK(cluster_meet());
    remo_heap_close(heap);
    return 0;
}

/* The memory of a heap that is closed while a peer is pinned stays allocated. */
static int close_pinned(struct remo_node *node, void *ctx) {
    struct remo_heap *heap;
    struct remo_addr addr;
    uint32_t rank = remo_node_rank(node);
    uint64_t word = 0;
    (void)ctx;
    if (open_heap(node, 0, &heap) != 0)
        return 1;
    CHECK_OK(remo_heap_alloc(heap, 64, 0, &addr));
    *(uint64_t *)remo_heap_local(heap, addr) = 77;
    if (rank == 1)
        CHECK_OK(remo_heap_pin(heap));
    else
        shared->addr = addr;
    CHECK_OK(cluster_meet());
    if (rank == 0) {
        uint64_t before = cluster_set_op_timeout(node, SECOND / 2);
        remo_heap_close(heap);
        cluster_set_op_timeout(node, before);
        CHECK_OK(remo_heap_open(remo_node_root(node), "second", NULL, &heap));
        struct remo_addr next;
        CHECK_OK(remo_heap_alloc(heap, 64, 0, &next));
        CHECK(next.word != addr.word);
        memset(remo_heap_local(heap, next), 0, 64);
    }
    CHECK_OK(cluster_meet());
    if (rank == 1) {
        CHECK_OK(remo_read(node, shared->addr, &word, sizeof word, NULL));
        CHECK_EQUAL(word, 77);
        CHECK_OK(remo_heap_unpin(heap));
    }
    CHECK_OK(cluster_meet());
    remo_heap_close(heap);
    return 0;
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {CLUSTER_TEST(bad_input, 1),
                                                CLUSTER_TEST(absent, 2),
                                                CLUSTER_TEST(failing, 3),
                                                CLUSTER_TEST(overlapping, 4, .only_on = "ofi"),
                                                CLUSTER_TEST(silent, 4, .only_on = "ofi"),
                                                CLUSTER_TEST(close_pinned, 2),
                                                {0}};
    return heap_main(argc, argv, tests);
}
