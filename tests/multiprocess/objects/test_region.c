/* test_region.c - regions between real nodes: reads and writes between all nodes, costs and order; late,
 * absent, leaving and failing peers; and every wrong argument. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../../support/cluster.h"
#include "objects/region.h"

#define BYTES 8192u

static int open_all(struct remo_node *node, uint64_t bytes, struct remo_region **ret_region) {
    CHECK_OK(remo_region_open(remo_node_root(node), "data", bytes, NULL, ret_region));
    CHECK_OK(remo_channel_wait(remo_region_channel(*ret_region), 100 * SECOND));
    return 0;
}

/* Each node writes its own pattern to all nodes, then reads the patterns of all nodes from all nodes. */
static void fill(unsigned char *data, size_t size, uint32_t from, uint32_t to) {
    for (size_t i = 0; i < size; i++)
        data[i] = (unsigned char)(i * 7 + from * 31 + to * 101 + size);
}

static int check_share(struct remo_region *region, uint32_t size, uint32_t of, size_t piece, size_t skew) {
    unsigned char *found = malloc(piece), *expected = malloc(piece);
    for (uint32_t from = 0; from < size; from++) {
        fill(expected, piece, from, of);
        memset(found, 0xee, piece);
        CHECK_OK(remo_region_read(region, of, from * (piece + 16) + skew, found, piece, NULL));
        CHECK(memcmp(found, expected, piece) == 0);
    }
    free(found);
    free(expected);
    return 0;
}

static int all_to_all(struct remo_node *node, size_t piece, size_t skew) {
    struct remo_region *region;
    uint32_t rank = remo_node_rank(node), size = remo_node_size(node);
    unsigned char *data = malloc(piece);
    if (open_all(node, size * (piece + 16), &region) != 0)
        return 1;
    for (size_t i = 0; i < remo_region_bytes(region); i++)
        CHECK(((volatile unsigned char *)remo_region_local(region))[i] == 0);
    CHECK_OK(cluster_meet());
    for (uint32_t to = 0; to < size; to++) {
        fill(data, piece, rank, to);
        CHECK_OK(remo_region_write(region, to, rank * (piece + 16) + skew, data, piece, 0, NULL));
        memset(data, 0, piece); /* the write has copied it */
    }
    CHECK_OK(remo_fence(node, REMO_FENCE_THREAD, 0));
    CHECK_OK(cluster_meet());
    for (uint32_t of = 0; of < size; of++)
        if (check_share(region, size, of, piece, skew) != 0)
            return 1;
    free(data);
    CHECK_OK(cluster_meet());
    remo_region_close(region);
    CHECK_OK(cluster_meet());
    return 0;
}

static int sizes(struct remo_node *node, void *ctx) {
    static const size_t pieces[] = {1, 3, 7, 8, 9, 64, 129, 4096, 8192, 8193, 20000};
    (void)ctx;
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++)
        if (all_to_all(node, pieces[i], i % 5) != 0)
            return 1;
    return all_to_all(node, 3u << 20 | 5, 1);
}

/* ---- costs ---- */

static int costs(struct remo_node *node, void *ctx) {
    struct remo_region *region;
    uint64_t word = 1;
    char block[4096] = "";
    uint32_t rank = remo_node_rank(node), other = 1 - rank;
    (void)ctx;
    if (open_all(node, BYTES, &region) != 0)
        return 1;
    struct remo_channel *channel = remo_region_channel(region);
    for (uint32_t to = 0; to < 2; to++) {
        CHECK_COST(channel, CHECK_OK(remo_region_read(region, to, 0, block, sizeof block, NULL)), 1, 0, 0, 0);
        CHECK_COST(channel, CHECK_OK(remo_region_read(region, to, 4096, &word, 8, NULL)), 1, 0, 0, 0);
        CHECK_COST(channel, remo_region_prefetch(region, to, 4096, 8), 0, 0, 0, 0);
        CHECK_COST(channel, remo_region_prefetch(region, to, UINT64_MAX, 8), 0, 0, 0, 0); /* no effect */
        CHECK_COST(channel, CHECK_OK(remo_region_write(region, to, 0, block, sizeof block, 0, NULL)), 0, 1, 0,
                   0);
        CHECK_COST(channel, CHECK_OK(remo_region_write(region, to, 0, &word, 8, REMO_WRITE_NOTIFY, NULL)), 0,
                   1, 0, 1);
        CHECK_COST(channel, CHECK_OK(remo_region_write_immediate(region, to, 0, &word, 8, 5, NULL)), 0, 1, 0,
                   1);
        CHECK_COST(channel, CHECK_OK(remo_region_fetch_add(region, to, 8, 1, &word, NULL)), 0, 0, 1, 0);
        CHECK_COST(channel, CHECK_OK(remo_region_compare_swap(region, to, 8, 0, 0, &word, NULL)), 0, 0, 1, 0);
        CHECK_COST(channel, CHECK_OK(remo_fence(node, REMO_FENCE_GLOBAL, 0)), 0, 0, 0, 0);
    }
    struct remo_addr addr;
    CHECK_COST(channel, CHECK_OK(remo_region_address(region, other, 16, &addr)), 0, 0, 0, 0);
    CHECK_OK(cluster_meet());
    remo_region_close(region);
    return 0;
}

/* ---- acks: a window of operations; results are in place when the ack is complete ---- */

#define WINDOW 300u

static int acks(struct remo_node *node, void *ctx) {
    struct remo_region *region;
    uint64_t written[WINDOW], found[WINDOW], old[WINDOW];
    uint32_t other = 1 - remo_node_rank(node);
    (void)ctx;
    if (open_all(node, 2 * WINDOW * 8, &region) != 0)
        return 1;
    for (uint32_t round = 0; round < 20; round++) {
        struct remo_ack ack = REMO_ACK_INIT;
        for (uint32_t i = 0; i < WINDOW; i++) {
            written[i] = (uint64_t)round << 32 | i;
            CHECK_OK(remo_region_write(region, other, i * 8, &written[i], 8, 0, &ack));
        }
        CHECK_OK(remo_ack_wait(&ack, 100 * SECOND));
        CHECK_OK(remo_fence(node, REMO_FENCE_PAIR, other));
        for (uint32_t i = 0; i < WINDOW; i++) {
            CHECK_OK(remo_region_read(region, other, i * 8, &found[i], 8, &ack));
            CHECK_OK(remo_region_fetch_add(region, other, (WINDOW + i) * 8, i, &old[i], &ack));
        }
        CHECK_OK(remo_ack_wait(&ack, 100 * SECOND));
        CHECK(memcmp(found, written, sizeof found) == 0);
        for (uint32_t i = 0; i < WINDOW; i++)
            CHECK_EQUAL(old[i], (uint64_t)round * i);
    }
    CHECK_OK(cluster_meet());
    remo_region_close(region);
    return 0;
}

/* ---- atomics: no addition of any thread or node is lost ---- */

#define ADDS 2000u /* a tenth on fabrics where each takes long */
#define THREADS 3u

struct adder {
    struct remo_region *region;
    uint32_t adds;
    int result;
};

static int add_and_swap(struct remo_region *region, uint32_t adds) {
    for (uint32_t i = 0; i < adds; i++) {
        uint64_t old, seen;
        CHECK_OK(remo_region_fetch_add(region, 0, 0, 3, &old, NULL));
        CHECK(old % 3 == 0);
        CHECK_OK(remo_region_read(region, 0, 8, &seen, 8, NULL));
        for (;;) {
            CHECK_OK(remo_region_compare_swap(region, 0, 8, seen, seen + 1, &old, NULL));
            if (old == seen)
                break;
            seen = old;
        }
    }
    return 0;
}

static void *adder(void *ctx) {
    struct adder *self = ctx;
    self->result = add_and_swap(self->region, self->adds);
    return NULL;
}

static int atomics(struct remo_node *node, void *ctx) {
    struct remo_region *region;
    struct adder adders[THREADS];
    pthread_t threads[THREADS];
    uint64_t words[2];
    uint32_t adds = strcmp(remo_node_fabric(node), "shm") == 0 ? ADDS : ADDS / 10;
    (void)ctx;
    if (open_all(node, BYTES, &region) != 0)
        return 1;
    for (uint32_t i = 0; i < THREADS; i++) {
        adders[i] = (struct adder){.region = region, .adds = adds};
        CHECK(pthread_create(&threads[i], NULL, adder, &adders[i]) == 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        CHECK_OK(adders[i].result);
    }
    CHECK_OK(cluster_meet());
    CHECK_OK(remo_region_read(region, 0, 0, words, sizeof words, NULL));
    CHECK_EQUAL(words[0], 3ull * adds * THREADS * remo_node_size(node));
    CHECK_EQUAL(words[1], 1ull * adds * THREADS * remo_node_size(node));
    CHECK_OK(cluster_meet());
    remo_region_close(region);
    return 0;
}

/* ---- order: a fence between data and flag ---- */

/* Wait without a call that could make progress: writes are placed without one. */
static int await_word(struct remo_node *node, const volatile uint64_t *word, uint64_t value) {
    while (*word < value) {
        CHECK(remo_node_peer(node, 1 - remo_node_rank(node)) == REMO_PEER_UP);
        sched_yield();
    }
    return 0;
}

static int publish(struct remo_node *node, void *ctx) {
    struct remo_region *region;
    enum { ROUNDS = 2000, WORDS = 24 };
    uint64_t data[WORDS];
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    if (open_all(node, BYTES, &region) != 0)
        return 1;
    const volatile uint64_t *own = remo_region_local(region);
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        if (rank == 0) {
            for (uint32_t i = 0; i < WORDS; i++)
                data[i] = round * 1000 + i;
            CHECK_OK(remo_region_write(region, 1, 256, data, sizeof data, 0, NULL));
            CHECK_OK(remo_fence(node, REMO_FENCE_PAIR, 1));
            CHECK_OK(remo_region_write(region, 1, 0, &round, 8, 0, NULL));
            if (await_word(node, own, round) != 0)
                return 1;
        } else {
            if (await_word(node, own, round) != 0)
                return 1;
            atomic_thread_fence(memory_order_acquire);
            for (uint32_t i = 0; i < WORDS; i++)
                CHECK_EQUAL(own[32 + i], round * 1000 + i);
            CHECK_OK(remo_region_write(region, 0, 0, &round, 8, 0, NULL));
        }
    }
    CHECK_OK(cluster_meet());
    remo_region_close(region);
    return 0;
}

/* ---- immediates: data is placed when the callback runs, in order, none is lost ---- */

struct listener {
    struct remo_region *region;
    _Atomic uint32_t seen, wrong;
};

static void listen_immediate(void *ctx, uint32_t from, uint32_t value) {
    struct listener *listener = ctx;
    const volatile uint64_t *own = remo_region_local(listener->region);
    uint32_t seen = atomic_load(&listener->seen);
    if (from != 0 || value != seen % 4000 || own[value] < seen)
        atomic_fetch_add(&listener->wrong, 1);
    atomic_store(&listener->seen, seen + 1);
}

static int immediates(struct remo_node *node, void *ctx) {
    struct listener listener = {0};
    struct remo_region_options options = {.ctx = &listener, .on_immediate = listen_immediate};
    enum { COUNT = 10000 };
    (void)ctx;
    CHECK_OK(remo_region_open(remo_node_root(node), "data", 32000, &options, &listener.region));
    CHECK_OK(remo_channel_wait(remo_region_channel(listener.region), 100 * SECOND));
    for (uint64_t i = 0; remo_node_rank(node) == 0 && i < COUNT; i++)
        CHECK_OK(
            remo_region_write_immediate(listener.region, 1, i % 4000 * 8, &i, 8, (uint32_t)(i % 4000), NULL));
    for (uint32_t ms = 0; remo_node_rank(node) == 1 && atomic_load(&listener.seen) < COUNT && ms < 100000;
         ms++)
        cluster_sleep_ms(1);
    if (remo_node_rank(node) == 1) {
        CHECK_EQUAL(listener.seen, COUNT);
        CHECK_EQUAL(listener.wrong, 0);
    }
    CHECK_OK(cluster_meet());
    remo_region_close(listener.region);
    return 0;
}

/* ---- participants ---- */

static int some_take_part(struct remo_node *node, void *ctx) {
    struct remo_region *region;
    struct remo_region_options options = {0};
    uint64_t word = 77;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    remo_nodeset_add(&options.participants, 0);
    remo_nodeset_add(&options.participants, 2);
    remo_nodeset_add(&options.providers, 2);
    if (rank == 1) {
        CHECK_SENTENCE(remo_region_open(remo_node_root(node), "pair", 64, &options, &region), -EINVAL,
                       "participants");
    } else {
        CHECK_OK(remo_region_open(remo_node_root(node), "pair", 64, &options, &region));
        CHECK_OK(remo_channel_wait(remo_region_channel(region), 100 * SECOND));
        CHECK((remo_region_local(region) != NULL) == (rank == 2));
        CHECK_SENTENCE(remo_region_read(region, 0, 0, &word, 8, NULL), -EINVAL,
                       "node 0 provides no memory to pair");
        CHECK_SENTENCE(remo_region_read(region, 1, 0, &word, 8, NULL), -EINVAL, "node 1");
        CHECK_OK(remo_region_write(region, 2, rank * 8, &word, 8, 0, NULL));
        CHECK_OK(remo_fence(node, REMO_FENCE_PAIR, 2));
        CHECK_OK(remo_region_read(region, 2, rank * 8, &word, 8, NULL));
        CHECK_EQUAL(word, 77);
    }
    CHECK_OK(cluster_meet());
    if (rank != 1)
        remo_region_close(region);
    return 0;
}

/* remo_channel_wait waits for a node that opens late, and names a node that never opens. */
static int late(struct remo_node *node, void *ctx) {
    struct remo_region *region, *lonely;
    uint64_t word = 5;
    (void)ctx;
    if (remo_node_rank(node) == 1)
        cluster_sleep_ms(300);
    CHECK_OK(remo_region_open(remo_node_root(node), "late", 64, NULL, &region));
    CHECK_OK(remo_region_write(region, 1 - remo_node_rank(node), 0, &word, 8, 0, NULL));
    if (remo_node_rank(node) == 0) {
        uint64_t begin = cluster_now_ns();
        CHECK_OK(remo_region_open(remo_node_root(node), "lonely", 64, NULL, &lonely));
        cluster_set_op_timeout(node, 3 * SECOND);
        CHECK_SENTENCE(remo_region_read(lonely, 1, 0, &word, 8, NULL), -ETIMEDOUT,
                       "node 1 has not opened channel lonely");
        CHECK(cluster_now_ns() - begin >= 2 * SECOND);
        CHECK_SENTENCE(remo_channel_wait(remo_region_channel(lonely), SECOND / 10), -ETIMEDOUT, "node 1");
        CHECK_OK(remo_region_read(lonely, 0, 0, &word, 8, NULL));
        remo_region_close(lonely);
    }
    CHECK_OK(cluster_meet());
    remo_region_close(region);
    return 0;
}

static int mismatch(struct remo_node *node, void *ctx) {
    struct remo_region *region;
    struct remo_sst *sst;
    uint64_t word;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    CHECK_OK(remo_region_open(remo_node_root(node), "sized", 4096u << rank, NULL, &region));
    CHECK_SENTENCE(remo_channel_wait(remo_region_channel(region), 100 * SECOND), -EPROTO, "sized");
    CHECK(strstr(remo_last_error(), "4096") && strstr(remo_last_error(), "8192"));
    CHECK_SENTENCE(remo_region_read(region, 1 - rank, 0, &word, 8, NULL), -EPROTO, "8192");
    remo_region_close(region);
    CHECK_OK(cluster_meet());
    if (rank == 0) {
        CHECK_OK(remo_region_open(remo_node_root(node), "typed", 4096, NULL, &region));
        CHECK_SENTENCE(remo_channel_wait(remo_region_channel(region), 100 * SECOND), -EPROTO, "typed");
        CHECK_SENTENCE(remo_sst_open(remo_node_root(node), "typed", 8, NULL, &sst), -EEXIST, "typed");
        remo_region_close(region);
    } else {
        CHECK_OK(remo_sst_open(remo_node_root(node), "typed", 8, NULL, &sst));
        CHECK_SENTENCE(remo_channel_wait(remo_sst_channel(sst), 100 * SECOND), -EPROTO, "region");
        remo_sst_close(sst);
    }
    CHECK_OK(cluster_meet());
    return 0;
}

/* Many regions, which each node opens and closes in another order, again and again. */
static int any_order(struct remo_node *node, void *ctx) {
    enum { REGIONS = 12, ROUNDS = 5 };
    struct remo_region *regions[REGIONS];
    uint32_t rank = remo_node_rank(node), size = remo_node_size(node);
    (void)ctx;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < REGIONS; i++) {
            uint32_t which = (i * (2 * rank + 1) + rank) % REGIONS;
            char name[32];
            if (REGIONS % (2 * rank + 1) == 0 && rank > 0)
                which = REGIONS - 1 - i;
            snprintf(name, sizeof name, "r%u", which);
            CHECK_OK(remo_region_open(remo_node_root(node), name, 64 * (which + 1), NULL, &regions[which]));
        }
        CHECK_OK(remo_channel_wait(remo_node_root(node), 100 * SECOND));
        for (uint32_t i = 0; i < REGIONS; i++) {
            uint64_t word = round * 100 + i, found = 0;
            CHECK_OK(remo_region_write(regions[i], (rank + 1) % size, 8, &word, 8, 0, NULL));
            CHECK_OK(remo_fence(node, REMO_FENCE_PAIR, (rank + 1) % size));
            CHECK_OK(remo_region_read(regions[i], (rank + 1) % size, 8, &found, 8, NULL));
            CHECK_EQUAL(found, word);
        }
        CHECK_OK(cluster_meet());
        for (uint32_t i = 0; i < REGIONS; i++)
            remo_region_close(regions[(i + rank * 3) % REGIONS]);
        CHECK_OK(cluster_meet());
    }
    return 0;
}

/* ---- leaving and failing ---- */

static int leaving(struct remo_node *node, void *ctx) {
    struct remo_region *region, *other;
    uint64_t word = 1;
    int rc = 0;
    (void)ctx;
    if (open_all(node, 64, &region) != 0)
        return 1;
    CHECK_OK(remo_region_open(remo_node_root(node), "stays", 64, NULL, &other));
    CHECK_OK(remo_channel_wait(remo_region_channel(other), 100 * SECOND));
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 1) {
        remo_region_close(region);
    } else {
        for (uint32_t ms = 0; ms < 100000 && rc == 0; ms++, cluster_sleep_ms(1))
            rc = remo_region_read(region, 1, 0, &word, 8, NULL);
        CHECK_EQUAL(-rc, ENOTCONN);
        CHECK_SENTENCE(remo_region_write(region, 1, 0, &word, 8, 0, NULL), -ENOTCONN,
                       "has closed channel data");
        CHECK_CODE(remo_region_fetch_add(region, 1, 0, 1, &word, NULL), -ENOTCONN);
        CHECK_CODE(remo_region_write_immediate(region, 1, 0, &word, 8, 1, NULL), -ENOTCONN);
        CHECK_OK(remo_region_read(region, 0, 0, &word, 8, NULL));
        CHECK_OK(remo_region_read(other, 1, 0, &word, 8, NULL));
        remo_region_close(region);
    }
    CHECK_OK(cluster_meet());
    remo_region_close(other);
    return 0;
}

/* One node is killed while its peers read its memory without pause. */
static int failing(struct remo_node *node, void *ctx) {
    struct remo_region *region;
    uint64_t word = 1;
    uint32_t rank = remo_node_rank(node);
    int rc = 0;
    (void)ctx;
    if (open_all(node, 64, &region) != 0)
        return 1;
    CHECK_OK(cluster_meet());
    uint64_t begin = cluster_now_ns();
    if (rank == 2) {
        cluster_sleep_ms(60000);
        return 1;
    }
    if (rank == 0)
        CHECK_OK(cluster_kill(2));
    while (rc == 0 && cluster_now_ns() - begin < 100 * SECOND)
        rc = remo_region_read(region, 2, 0, &word, 8, NULL);
    CHECK_EQUAL(-rc, EHOSTDOWN);
    CHECK(in_time(cluster_now_ns() - begin, SECOND / 10));
    while (remo_node_peer(node, 2) != REMO_PEER_DEAD)
        cluster_sleep_ms(1);
    CHECK_SENTENCE(remo_region_write(region, 2, 0, &word, 8, 0, NULL), -EHOSTDOWN, "node 2");
    CHECK_CODE(remo_region_fetch_add(region, 2, 0, 1, &word, NULL), -EHOSTDOWN);
    CHECK_CODE(remo_region_compare_swap(region, 2, 0, 1, 2, &word, NULL), -EHOSTDOWN);
    CHECK_OK(remo_region_write(region, 1 - rank, 0, &word, 8, 0, NULL));
    CHECK_OK(remo_fence(node, REMO_FENCE_PAIR, 1 - rank));
    CHECK_OK(cluster_meet());
    remo_region_close(region);
    return 0;
}

/* ---- wrong arguments ---- */

static int wrong_open(struct remo_node *node) {
    struct remo_region *region;
    struct remo_region_options options = {0};
    struct remo_channel *root = remo_node_root(node);
    CHECK_SENTENCE(remo_region_open(NULL, "x", 64, NULL, &region), -EINVAL, "remo_node_root");
    CHECK_SENTENCE(remo_region_open(root, "", 64, NULL, &region), -EINVAL, "empty");
    CHECK_SENTENCE(remo_region_open(root, "a/b", 64, NULL, &region), -EINVAL, "a/b");
    CHECK_SENTENCE(remo_region_open(root, "x", 0, NULL, &region), -EINVAL, "0 bytes");
    CHECK_SENTENCE(remo_region_open(root, "x", 1ull << 50, NULL, &region), -ENOSPC, "arena_bytes");
    remo_nodeset_add(&options.participants, 0);
    remo_nodeset_add(&options.providers, 1);
    CHECK_SENTENCE(remo_region_open(root, "x", 64, &options, &region), -EINVAL, "node 1 is to provide");
    remo_nodeset_add(&options.participants, 200);
    options.providers = (struct remo_nodeset){0};
    CHECK_SENTENCE(remo_region_open(root, "x", 64, &options, &region), -EINVAL, "200");
    remo_region_close(NULL);
    return 0;
}

static int wrong(struct remo_node *node, void *ctx) {
    struct remo_region *region;
    struct remo_addr addr;
    uint64_t word = 0;
    (void)ctx;
    if (wrong_open(node) != 0 || open_all(node, 64, &region) != 0)
        return 1;
    struct remo_channel *channel = remo_region_channel(region);
    struct remo_stats before, after;
    remo_channel_stats(channel, &before);
    CHECK_SENTENCE(remo_region_read(region, 1, 0, &word, 8, NULL), -EINVAL, "nodes 0 to 0");
    CHECK_SENTENCE(remo_region_read(region, 0, 57, &word, 8, NULL), -EINVAL, "64 bytes");
    CHECK_SENTENCE(remo_region_read(region, 0, UINT64_MAX - 3, &word, 8, NULL), -EINVAL,
                   "offset 18446744073709551612");
    CHECK_CODE(remo_region_write(region, 0, 8, &word, SIZE_MAX, 0, NULL), -EINVAL);
    CHECK_SENTENCE(remo_region_write(region, 0, 8, &word, 8, 2, NULL), -EINVAL, "flags");
    CHECK_SENTENCE(remo_region_write(region, 0, 8, NULL, 8, 0, NULL), -EINVAL, "NULL");
    CHECK_SENTENCE(remo_region_read(region, 0, 8, NULL, 8, NULL), -EINVAL, "NULL");
    CHECK_SENTENCE(remo_region_fetch_add(region, 0, 4, 1, &word, NULL), -EINVAL, "multiple of 8");
    CHECK_SENTENCE(remo_region_fetch_add(region, 0, 64, 1, &word, NULL), -EINVAL, "64");
    CHECK_SENTENCE(remo_region_compare_swap(region, 0, 12, 1, 1, &word, NULL), -EINVAL, "multiple of 8");
    CHECK_SENTENCE(remo_region_write_immediate(region, 0, 0, &word, 8, 4096, NULL), -EINVAL, "4095");
    CHECK_CODE(remo_region_write_immediate(region, 0, 60, &word, 8, 1, NULL), -EINVAL);
    CHECK_CODE(remo_region_address(region, 0, 65, &addr), -EINVAL);
    CHECK_OK(remo_region_read(region, 0, 64, &word, 0, NULL));
    CHECK_OK(remo_region_fetch_add(region, 0, 56, 7, NULL, NULL));
    CHECK_OK(remo_region_read(region, 0, 56, &word, 8, NULL));
    CHECK_EQUAL(word, 7);
    remo_channel_stats(channel, &after);
    CHECK_EQUAL(after.reads + after.writes + after.atomics - before.reads - before.writes - before.atomics,
                3);
    CHECK_SENTENCE(remo_region_open(remo_node_root(node), "data", 64, NULL, &region), -EEXIST, "data");
    remo_region_close(region);
    return 0;
}

/* ---- different addresses of the same bytes ---- */

static int addresses(struct remo_node *node, void *ctx) {
    struct remo_region *region;
    struct remo_addr addr;
    uint64_t word = 4711, found = 0;
    uint32_t other = 1 - remo_node_rank(node);
    (void)ctx;
    if (open_all(node, BYTES, &region) != 0)
        return 1;
    CHECK_OK(remo_region_address(region, other, 128, &addr));
    CHECK_EQUAL(remo_addr_node(addr), other);
    CHECK_OK(remo_write(node, addr, &word, 8, NULL));
    CHECK_OK(remo_fence(node, REMO_FENCE_PAIR, other));
    CHECK_OK(remo_region_read(region, other, 128, &found, 8, NULL));
    CHECK_EQUAL(found, word);
    CHECK_OK(cluster_meet());
    remo_region_close(region);
    return 0;
}

struct detached {
    const struct remo_region *region;
    uint32_t other;
};

/* On a thread that has not used the node: the calls need none of its resources, so none can be exhausted. */
static void *use_detached(void *argument) {
    const struct detached *detached = argument;
    struct remo_addr addr;
    intptr_t rc = remo_region_address(detached->region, detached->other, 128, &addr);
    remo_region_prefetch(detached->region, detached->other, 128, 8);
    return (void *)(rc == 0 && remo__thread_attached(detached->region->node) ? 1 : rc);
}

static int unattached(struct remo_node *node, void *ctx) {
    struct remo_region *region;
    pthread_t thread;
    void *result;
    (void)ctx;
    if (open_all(node, BYTES, &region) != 0)
        return 1;
    struct detached detached = {.region = region, .other = 1 - remo_node_rank(node)};
    CHECK_EQUAL(pthread_create(&thread, NULL, use_detached, &detached), 0);
    CHECK_EQUAL(pthread_join(thread, &result), 0);
    CHECK(result == NULL);
    CHECK_OK(cluster_meet());
    remo_region_close(region);
    return 0;
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(sizes, 3),          CLUSTER_TEST_NAMED("sizes_threads", sizes, 3, .as_threads = 1),
        CLUSTER_TEST(costs, 2),          CLUSTER_TEST(acks, 2),
        CLUSTER_TEST(atomics, 3),        CLUSTER_TEST_NAMED("atomics_threads", atomics, 2, .as_threads = 1),
        CLUSTER_TEST(publish, 2),        CLUSTER_TEST(immediates, 2),
        CLUSTER_TEST(some_take_part, 3), CLUSTER_TEST(late, 2),
        CLUSTER_TEST(mismatch, 2),       CLUSTER_TEST(any_order, 4),
        CLUSTER_TEST(leaving, 2),        CLUSTER_TEST(failing, 3),
        CLUSTER_TEST(wrong, 1),          CLUSTER_TEST(addresses, 2),
        CLUSTER_TEST(unattached, 2),     {0},
    };
    return cluster_main(argc, argv, tests, NULL);
}
