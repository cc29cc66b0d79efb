/* cases_ops.c - one operation at a time: kinds, sizes, alignments, self, segments, descriptions.
 * Every transfer is checked by the owner and by a read back, and must leave the neighbouring bytes
 * unchanged. */
#include "suite.h"

#include <errno.h>

static const uint64_t sizes[] = {0,  1,   2,   3,   4,   5,   7,    8,    9,     63,     64,
                                 65, 127, 128, 129, 255, 257, 4096, 4099, 65536, 1 << 20};
static const uint64_t shifts[] = {0, 1, 4, 8, 13};

#define GUARD 64u /* bytes on both sides that must not change */

static bool guarded(const char *bytes, uint64_t size_bytes, char guard) {
    for (uint64_t i = 0; i < GUARD; i++) {
        if (bytes[-1 - (int64_t)i] != guard || bytes[size_bytes + i] != guard)
            return false;
    }
    return true;
}

/* Write, check as the owner, read back to another buffer; neighbouring bytes must not change. */
static void write_then_read(struct suite_node *from, struct suite_node *to, struct remo__endpoint *endpoint,
                            uint64_t size_bytes, uint64_t shift, uint64_t local_shift) {
    uint64_t at = 4096 + shift, seed = size_bytes + 3 * shift + 7 * local_shift + from->card.rank;
    char *out = suite_buffer(from, 4096 + local_shift), *in = suite_buffer(from, (2 << 20) + local_shift);
    char *target = suite_memory(to, at);
    memset(target - GUARD, 0x55, size_bytes + 2 * GUARD);
    memset(in - GUARD, 0x66, size_bytes + 2 * GUARD);
    suite_fill(out, size_bytes, seed);
    suite_write(from, endpoint, to->card.rank, at, out, size_bytes);
    suite_flush(from, endpoint, to->card.rank);
    CHECK(suite_filled(target, size_bytes, seed));
    CHECK(guarded(target, size_bytes, 0x55));
    suite_read(from, endpoint, to->card.rank, at, in, size_bytes);
    CHECK(suite_filled(in, size_bytes, seed));
    CHECK(guarded(in, size_bytes, 0x66));
}

static void sizes_on(struct suite_node *from, struct suite_node *to) {
    struct remo__endpoint *endpoint = suite_endpoint(from);
    for (size_t i = 0; i < REMO__ARRAY_COUNT(sizes); i++) {
        for (size_t j = 0; j < REMO__ARRAY_COUNT(shifts); j++) {
            write_then_read(from, to, endpoint, sizes[i], shifts[j], 0);
            if (sizes[i] <= 4099)
                write_then_read(from, to, endpoint, sizes[i], shifts[j], 3);
        }
    }
    from->suite->ops->endpoint_close(endpoint);
}

static void sizes_peer(const struct suite *suite) {
    static struct suite_cluster cluster;
    suite_cluster_open(&cluster, suite, 2);
    sizes_on(&cluster.nodes[0], &cluster.nodes[1]);
    suite_cluster_close(&cluster);
}

static void sizes_self(const struct suite *suite) {
    static struct suite_cluster cluster;
    suite_cluster_open(&cluster, suite, 1);
    sizes_on(&cluster.nodes[0], &cluster.nodes[0]);
    suite_cluster_close(&cluster);
}

/* Sizes above any internal limit, and exactly at the fabric's limit. */
static void sizes_large(const struct suite *suite) {
    static struct suite_cluster cluster;
    suite_cluster_open(&cluster, suite, 2);
    struct suite_node *from = &cluster.nodes[0], *to = &cluster.nodes[1];
    struct remo__endpoint *endpoint = suite_endpoint(from);
    uint64_t large = SUITE_ZONE_BYTES - (1 << 20) - 3, most = from->fabric->caps.message_bytes_max;
    char *out = suite_buffer(from, 1);
    suite_fill(out, large, 42);
    suite_write(from, endpoint, 1, 8191, out, large);
    suite_flush(from, endpoint, 1);
    CHECK(suite_filled(suite_memory(to, 8191), large, 42));
    memset(out, 0, large);
    suite_read(from, endpoint, 1, 8191, out, large);
    CHECK(suite_filled(out, large, 42));
    if (most < large) {
        CHECK_EQ(suite_run(from, endpoint, suite_op(from, REMO__OP_READ, 1, 8191, out, most)), 0);
        CHECK(suite_run(from, endpoint, suite_op(from, REMO__OP_READ, 1, 8191, out, most + 1)) < 0);
    }
    suite->ops->endpoint_close(endpoint);
    suite_cluster_close(&cluster);
}

static void fetch_add_on(struct suite_node *from, struct suite_node *to) {
    struct remo__endpoint *endpoint = suite_endpoint(from);
    uint64_t at = 256, peer = to->card.rank;
    suite_store(suite_memory(to, at - 8), 11);
    suite_store(suite_memory(to, at), 5);
    suite_store(suite_memory(to, at + 8), 22);
    CHECK_EQ(suite_fetch_add(from, endpoint, peer, at, 1), 5);
    CHECK_EQ(suite_fetch_add(from, endpoint, peer, at, 0), 6);
    CHECK_EQ(suite_fetch_add(from, endpoint, peer, at, UINT64_MAX), 6); /* minus one */
    CHECK_EQ(suite_fetch_add(from, endpoint, peer, at, UINT64_C(1) << 63), 5);
    CHECK_EQ(suite_fetch_add(from, endpoint, peer, at, UINT64_C(1) << 63), (UINT64_C(1) << 63) + 5);
    CHECK_EQ(suite_fetch_add(from, endpoint, peer, at, 0), 5);
    suite_flush(from, endpoint, peer);
    CHECK_EQ(suite_load(suite_memory(to, at)), 5);
    CHECK_EQ(suite_load(suite_memory(to, at - 8)), 11);
    CHECK_EQ(suite_load(suite_memory(to, at + 8)), 22);
    from->suite->ops->endpoint_close(endpoint);
}

static void fetch_add(const struct suite *suite) {
    static struct suite_cluster cluster;
    suite_cluster_open(&cluster, suite, 2);
    fetch_add_on(&cluster.nodes[0], &cluster.nodes[1]);
    fetch_add_on(&cluster.nodes[0], &cluster.nodes[0]);
    suite_cluster_close(&cluster);
}

static void compare_swap_on(struct suite_node *from, struct suite_node *to) {
    struct remo__endpoint *endpoint = suite_endpoint(from);
    uint64_t at = 512, peer = to->card.rank, big = UINT64_C(0xfedcba9876543210);
    suite_store(suite_memory(to, at), 1);
    CHECK_EQ(suite_compare_swap(from, endpoint, peer, at, 1, big), 1);
    CHECK_EQ(suite_compare_swap(from, endpoint, peer, at, 1, 2), big); /* no match */
    CHECK_EQ(suite_compare_swap(from, endpoint, peer, at, big ^ (UINT64_C(1) << 63), 3), big);
    CHECK_EQ(suite_compare_swap(from, endpoint, peer, at, big ^ 1, 3), big);
    CHECK_EQ(suite_compare_swap(from, endpoint, peer, at, big, 0), big);
    CHECK_EQ(suite_compare_swap(from, endpoint, peer, at, 0, 9), 0);
    suite_flush(from, endpoint, peer);
    CHECK_EQ(suite_load(suite_memory(to, at)), 9);
    from->suite->ops->endpoint_close(endpoint);
}

static void compare_swap(const struct suite *suite) {
    static struct suite_cluster cluster;
    suite_cluster_open(&cluster, suite, 2);
    compare_swap_on(&cluster.nodes[0], &cluster.nodes[1]);
    compare_swap_on(&cluster.nodes[0], &cluster.nodes[0]);
    suite_cluster_close(&cluster);
}

/* Buffers from the heap and from the stack. */
static void local_anywhere(const struct suite *suite) {
    static struct suite_cluster cluster;
    suite_cluster_open(&cluster, suite, 2);
    struct suite_node *node = &cluster.nodes[0];
    if (node->fabric->caps.local_registered)
        suite_skip("fabric %s takes local buffers from the arena only", suite->ops->name);
    struct remo__endpoint *endpoint = suite_endpoint(node);
    char *heap = malloc(100003), stack[64];
    CHECK(heap != NULL);
    suite_fill(heap, 100003, 1);
    suite_write(node, endpoint, 1, 17, heap, 100003);
    memset(heap, 0, 100003);
    suite_read(node, endpoint, 1, 17, heap, 100003);
    CHECK(suite_filled(heap, 100003, 1));
    suite_read(node, endpoint, 1, 17, stack, sizeof stack);
    CHECK(suite_filled(stack, sizeof stack, 1));
    free(heap);
    suite->ops->endpoint_close(endpoint);
    suite_cluster_close(&cluster);
}

/* The buffer of an inline write may be reused at once. */
static void inline_reuse(const struct suite *suite) {
    static struct suite_cluster cluster;
    suite_cluster_open(&cluster, suite, 2);
    struct suite_node *node = &cluster.nodes[0];
    uint64_t size_bytes = remo__min(node->fabric->caps.inline_bytes, 256);
    if (size_bytes < 8)
        suite_skip("fabric %s inlines no writes", suite->ops->name);
    struct remo__endpoint *endpoint = suite_endpoint(node);
    char *buffer = suite_buffer(node, 0);
    for (uint64_t round = 1; round <= 200; round++) {
        struct remo__op op = suite_op(node, REMO__OP_WRITE, 1, round * 256, buffer, size_bytes);
        op.flags = REMO__OP_INLINE;
        suite_fill(buffer, size_bytes, round);
        CHECK_EQ(suite_post(node, endpoint, &op), 1);
        memset(buffer, 0xee, size_bytes);
        CHECK_EQ(suite_complete(node, endpoint).status, 0);
    }
    suite_flush(node, endpoint, 1);
    for (uint64_t round = 1; round <= 200; round++)
        CHECK(suite_filled(suite_memory(&cluster.nodes[1], round * 256), size_bytes, round));
    suite->ops->endpoint_close(endpoint);
    suite_cluster_close(&cluster);
}

/* A segment that is added after all nodes are connected. */
static void segment_later(const struct suite *suite) {
    static struct suite_cluster cluster;
    suite_cluster_open(&cluster, suite, 2);
    struct suite_node *from = &cluster.nodes[0], *to = &cluster.nodes[1];
    struct remo__endpoint *endpoint = suite_endpoint(from);
    for (uint32_t index = 1; index < SUITE_SEGMENTS_MAX; index++) {
        suite_node_grow(to, UINT64_C(2) << 20);
        suite_node_map(to, &to->card, index);
        suite_node_map(from, &to->card, index);
        uint64_t offset = to->card.segments[index].offset, at = offset - to->zone + 12345;
        char *buffer = suite_buffer(from, 0);
        suite_fill(buffer, 10000, index);
        suite_write(from, endpoint, 1, at, buffer, 10000);
        suite_flush(from, endpoint, 1);
        CHECK(suite_filled(to->arena + offset + 12345, 10000, index));
        CHECK_EQ(suite_fetch_add(from, endpoint, 1, offset - to->zone, 7), 0);
    }
    suite->ops->endpoint_close(endpoint);
    suite_cluster_close(&cluster);
}

/* Each of eight nodes writes to each, then reads the other nodes' data. */
static void all_pairs(const struct suite *suite) {
    static struct suite_cluster cluster;
    enum { NODES = 8, BYTES = 3000 };
    suite_cluster_open(&cluster, suite, NODES);
    for (uint32_t i = 0; i < NODES; i++) {
        struct suite_node *node = &cluster.nodes[i];
        struct remo__endpoint *endpoint = suite_endpoint(node);
        for (uint32_t j = 0; j < NODES; j++) {
            suite_fill(suite_buffer(node, 0), BYTES, 100 * i + j);
            suite_write(node, endpoint, j, 4096 * i, suite_buffer(node, 0), BYTES);
            suite_flush(node, endpoint, j);
        }
        suite->ops->endpoint_close(endpoint);
    }
    for (uint32_t i = 0; i < NODES; i++) {
        struct suite_node *node = &cluster.nodes[i];
        struct remo__endpoint *endpoint = suite_endpoint(node);
        for (uint32_t j = 0; j < NODES; j++) {
            uint32_t writer = (i + j) % NODES;
            suite_read(node, endpoint, j, 4096 * writer, suite_buffer(node, 0), BYTES);
            CHECK(suite_filled(suite_buffer(node, 0), BYTES, 100 * writer + j));
        }
        suite->ops->endpoint_close(endpoint);
    }
    suite_cluster_close(&cluster);
}

/* Every fabric of this build is found by its name, and only by it. */
static void names(const struct suite *suite) {
    CHECK(remo__fabric_find(suite->ops->name) == suite->ops);
    CHECK(remo__fabric_find("no such fabric") == NULL);
    CHECK(remo__fabric_find(NULL) == NULL);
    CHECK(remo__fabric_at(0) != NULL);
    for (uint32_t n = 0; remo__fabric_at(n); n++)
        CHECK(remo__fabric_find(remo__fabric_at(n)->name) == remo__fabric_at(n));
}

const struct suite_case suite_cases_ops[] = {
    {"sizes_peer", sizes_peer},
    {"sizes_self", sizes_self},
    {"sizes_large", sizes_large},
    {"fetch_add", fetch_add},
    {"compare_swap", compare_swap},
    {"local_anywhere", local_anywhere},
    {"inline_reuse", inline_reuse},
    {"segment_later", segment_later},
    {"all_pairs", all_pairs},
    {"names", names},
    {NULL, NULL},
};
