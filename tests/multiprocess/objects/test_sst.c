/* test_sst.c - shared state tables: every row is whole, monotone and current at every participant. Also
 * costs, waiting, and failed nodes. */
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../../support/cluster.h"

#define NODES_MAX 8u

static struct shared {
    struct {
        _Atomic uint64_t published; /* the last row that the node broadcast and fenced */
        char line[56];
    } nodes[NODES_MAX];
} * shared;

/* Make row n of a node: a word, then bytes computed from it. */
static void make_row(unsigned char *row, size_t size, uint64_t n) {
    for (size_t i = 0; i < size; i++)
        row[i] = (unsigned char)(i < 8 ? n >> 8 * i : n * 17 + i);
}

static uint64_t number_of(const unsigned char *row, size_t size) {
    uint64_t n = 0;
    memcpy(&n, row, size < 8 ? size : 8);
    return n;
}

static int open_sst(struct remo_node *node, size_t row_bytes, struct remo_sst **ret_sst) {
    CHECK_OK(remo_sst_open(remo_node_root(node), "table", row_bytes, NULL, ret_sst));
    CHECK_OK(remo_channel_wait(remo_sst_channel(*ret_sst), 100 * SECOND));
    return 0;
}

static int rows_of(struct remo_node *node, size_t size) {
    struct remo_sst *sst;
    unsigned char row[REMO_SST_ROW_BYTES_MAX], found[REMO_SST_ROW_BYTES_MAX];
    uint32_t rank = remo_node_rank(node), seen = 0;
    if (open_sst(node, size, &sst) != 0)
        return 1;
    for (uint32_t n = remo_sst_next(sst, 0); n < REMO_NODES_MAX; n = remo_sst_next(sst, n + 1)) {
        CHECK_EQUAL(n, seen++);
        CHECK_OK(remo_sst_load(sst, n, found));
        for (size_t i = 0; i < size; i++)
            CHECK(found[i] == 0);
    }
    CHECK_EQUAL(seen, remo_node_size(node));
    CHECK_OK(cluster_meet());
    for (uint64_t n = 1; n < 6; n++) {
        make_row(row, size, n * 10 + rank);
        CHECK_OK(remo_sst_store(sst, row));
        CHECK_OK(remo_sst_load(sst, rank, found));
        CHECK(memcmp(row, found, size) == 0);
        CHECK_OK(cluster_meet());
        for (uint32_t other = 0; other < remo_node_size(node); other++) { /* no node has broadcast yet */
            make_row(row, size, (n - 1) * 10 + other);
            CHECK_OK(remo_sst_load(sst, other, found));
            CHECK(n == 1 || other == rank || memcmp(row, found, size) == 0);
        }
        CHECK_OK(cluster_meet());
        if (n % 2)
            CHECK_OK(remo_sst_push_all(sst, NULL));
        for (uint32_t other = 0; n % 2 == 0 && other < remo_node_size(node); other++)
            CHECK_OK(remo_sst_push(sst, other, NULL));
        CHECK_OK(remo_fence(node, REMO_FENCE_THREAD, 0));
        CHECK_OK(cluster_meet());
        for (uint32_t other = 0; other < remo_node_size(node); other++) {
            make_row(row, size, n * 10 + other);
            CHECK_OK(remo_sst_load(sst, other, found));
            CHECK(memcmp(row, found, size) == 0);
        }
        CHECK_OK(cluster_meet());
    }
    remo_sst_close(sst);
    CHECK_OK(cluster_meet());
    return 0;
}

static int rows(struct remo_node *node, void *ctx) {
    static const size_t sizes[] = {1, 3, 4, 8, 9, 16, 24, 48, 64, 1000, REMO_SST_ROW_BYTES_MAX};
    (void)ctx;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (rows_of(node, sizes[i]) != 0)
            return 1;
    return 0;
}

static int costs(struct remo_node *node, void *ctx) {
    static const size_t sizes[] = {8, 64, 4096};
    unsigned char row[4096] = "";
    uint32_t rank = remo_node_rank(node), size = remo_node_size(node);
    (void)ctx;
    for (size_t i = 0; i < 3; i++) {
        struct remo_sst *sst;
        struct remo_ack ack = REMO_ACK_INIT;
        if (open_sst(node, sizes[i], &sst) != 0)
            return 1;
        struct remo_channel *channel = remo_sst_channel(sst);
        CHECK_COST(channel, CHECK_OK(remo_sst_store(sst, row)), 0, 0, 0, 0);
        CHECK_COST(channel, CHECK_OK(remo_sst_push_all(sst, &ack)), 0, size - 1, 0, size - 1);
        CHECK_OK(remo_ack_wait(&ack, 100 * SECOND));
        CHECK_OK(remo_ack_test(&ack));
        CHECK_COST(channel, CHECK_OK(remo_sst_push(sst, (rank + 1) % size, NULL)), 0, 1, 0, 1);
        CHECK_COST(channel, CHECK_OK(remo_sst_push(sst, rank, NULL)), 0, 0, 0, 0);
        CHECK_COST(channel, CHECK_OK(remo_sst_load(sst, (rank + 1) % size, row)), 0, 0, 0, 0);
        CHECK_COST(channel, remo_sst_next(sst, 0), 0, 0, 0, 0);
        CHECK_OK(cluster_meet());
        remo_sst_close(sst);
        CHECK_OK(cluster_meet());
    }
    return 0;
}

static int errors(struct remo_node *node, void *ctx) {
    struct remo_sst *sst;
    struct remo_sst_options options = {0};
    uint64_t row = 1;
    struct remo_channel *root = remo_node_root(node);
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    CHECK_SENTENCE(remo_sst_open(root, "t", 0, NULL, &sst), -EINVAL, "0 bytes");
    CHECK_SENTENCE(remo_sst_open(root, "t", REMO_SST_ROW_BYTES_MAX + 1, NULL, &sst), -EINVAL, "4097");
    CHECK_SENTENCE(remo_sst_open(NULL, "t", 8, NULL, &sst), -EINVAL, "parent");
    remo_nodeset_add(&options.participants, 0);
    remo_nodeset_add(&options.participants, 2);
    if (rank == 1) {
        CHECK_SENTENCE(remo_sst_open(root, "t", 8, &options, &sst), -EINVAL, "participants");
        CHECK_OK(cluster_meet());
        return 0;
    }
    CHECK_OK(remo_sst_open(root, "t", 8, &options, &sst));
    CHECK_OK(remo_channel_wait(root, 100 * SECOND));
    CHECK_EQUAL(remo_sst_next(sst, 0), 0);
    CHECK_EQUAL(remo_sst_next(sst, 1), 2);
    CHECK_EQUAL(remo_sst_next(sst, 3), REMO_NODES_MAX);
    CHECK_SENTENCE(remo_sst_load(sst, 1, &row), -EINVAL, "node 1 has no row in t");
    CHECK_CODE(remo_sst_load(sst, 3, &row), -EINVAL);
    CHECK_CODE(remo_sst_load(sst, 0, NULL), -EINVAL);
    CHECK_CODE(remo_sst_store(sst, NULL), -EINVAL);
    CHECK_CODE(remo_sst_push(sst, 1, NULL), -EINVAL);
    CHECK_CODE(remo_sst_push(sst, 9, NULL), -EINVAL);
    CHECK_CODE(remo_sst_wait(sst, NULL, NULL, 0), -EINVAL);
    CHECK_OK(cluster_meet());
    remo_sst_close(sst);
    remo_sst_close(NULL);
    return 0;
}

/* ---- load: all nodes write their rows, and read all rows ---- */

static int check_rows(struct remo_sst *sst, size_t size, uint64_t *before) {
    unsigned char row[REMO_SST_ROW_BYTES_MAX], expected[REMO_SST_ROW_BYTES_MAX];
    for (uint32_t n = remo_sst_next(sst, 0); n < REMO_NODES_MAX; n = remo_sst_next(sst, n + 1)) {
        uint64_t published = atomic_load(&shared->nodes[n].published);
        int rc = remo_sst_load(sst, n, row);
        if (rc == -EAGAIN)
            continue;
        CHECK_OK(rc);
        uint64_t number = number_of(row, size);
        make_row(expected, size, number);
        CHECK(number == 0 || memcmp(row, expected, size) == 0);
        CHECK(number >= before[n] && number >= published);
        before[n] = number;
    }
    return 0;
}

static int hammer(struct remo_node *node, void *ctx) {
    static const size_t sizes[] = {8, 24, 64, 1000, 4096};
    (void)ctx;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct remo_sst *sst;
        unsigned char row[REMO_SST_ROW_BYTES_MAX];
        uint64_t before[NODES_MAX] = {0};
        uint32_t rank = remo_node_rank(node);
        if (open_sst(node, sizes[i], &sst) != 0)
            return 1;
        CHECK_OK(cluster_meet());
        uint64_t end = cluster_now_ns() + SECOND / 4;
        for (uint64_t n = 1; cluster_now_ns() < end; n++) {
            make_row(row, sizes[i], n);
            CHECK_OK(remo_sst_store(sst, row));
            CHECK_OK(remo_sst_push_all(sst, NULL));
            if (n % 7 == 0) {
                CHECK_OK(remo_fence(node, REMO_FENCE_THREAD, 0));
                atomic_store(&shared->nodes[rank].published, n);
            }
            if (check_rows(sst, sizes[i], before) != 0)
                return 1;
        }
        CHECK_OK(cluster_meet());
        atomic_store(&shared->nodes[rank].published, 0);
        remo_sst_close(sst);
        CHECK_OK(cluster_meet());
    }
    return 0;
}

/* ---- waiting ---- */

static int all_reached(void *ctx, struct remo_sst *sst) {
    for (uint32_t n = remo_sst_next(sst, 0); n < REMO_NODES_MAX; n = remo_sst_next(sst, n + 1)) {
        uint64_t row;
        if (remo_sst_load(sst, n, &row) != 0 || row < *(uint64_t *)ctx)
            return 0;
    }
    return 1;
}

static int refuses(void *ctx, struct remo_sst *sst) {
    (void)ctx;
    (void)sst;
    return -EDEADLK;
}

static int waiting(struct remo_node *node, void *ctx) {
    struct remo_sst *sst;
    (void)ctx;
    if (open_sst(node, 8, &sst) != 0)
        return 1;
    for (uint64_t round = 1; round <= 200; round++) {
        if (round % 50 == 0 && remo_node_rank(node) == 0)
            cluster_sleep_ms(40);
        uint64_t begin = cluster_now_ns();
        CHECK_OK(remo_sst_store(sst, &round));
        CHECK_OK(remo_sst_push_all(sst, NULL));
        CHECK_OK(remo_sst_wait(sst, all_reached, &round, 100 * SECOND));
        CHECK(in_time(cluster_now_ns() - begin, SECOND));
    }
    uint64_t never = 1000;
    CHECK_CODE(remo_sst_wait(sst, all_reached, &never, SECOND / 20), -ETIMEDOUT);
    CHECK_CODE(remo_sst_wait(sst, refuses, NULL, REMO_FOREVER), -EDEADLK);
    CHECK_OK(cluster_meet());
    remo_sst_close(sst);
    return 0;
}

/* ---- failed nodes: their rows stay, and they cost nothing ---- */

static int is_down(void *ctx, struct remo_sst *sst) {
    return remo_channel_peer(remo_sst_channel(sst), *(uint32_t *)ctx) == REMO_CHANNEL_DOWN;
}

static int failing(struct remo_node *node, void *ctx) {
    struct remo_sst *sst;
    unsigned char row[200], found[200];
    uint32_t rank = remo_node_rank(node), victim = 2;
    (void)ctx;
    if (open_sst(node, sizeof row, &sst) != 0)
        return 1;
    make_row(row, sizeof row, 100 + rank);
    CHECK_OK(remo_sst_store(sst, row));
    CHECK_OK(remo_sst_push_all(sst, NULL));
    CHECK_OK(remo_fence(node, REMO_FENCE_THREAD, 0));
    CHECK_OK(cluster_meet());
    if (rank == victim) {
        cluster_sleep_ms(60000);
        return 1;
    }
    uint64_t begin = cluster_now_ns();
    if (rank == 0)
        CHECK_OK(cluster_kill(victim));
    CHECK_OK(remo_sst_wait(sst, is_down, &victim, 100 * SECOND));
    CHECK(in_time(cluster_now_ns() - begin, SECOND / 10));
    CHECK_OK(remo_sst_load(sst, victim, found));
    make_row(row, sizeof row, 100 + victim);
    CHECK(memcmp(found, row, sizeof row) == 0);
    CHECK_CODE(remo_sst_push(sst, victim, NULL), -EHOSTDOWN);
    CHECK_COST(remo_sst_channel(sst), CHECK_OK(remo_sst_push_all(sst, NULL)), 0, 2, 0, 2);
    CHECK_OK(cluster_meet());
    remo_sst_close(sst);
    return 0;
}

static void setup(void) {
    memset(shared, 0, sizeof *shared);
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(rows, 3),
        CLUSTER_TEST(costs, 4),
        CLUSTER_TEST(errors, 3),
        CLUSTER_TEST(hammer, 3),
        CLUSTER_TEST_NAMED("hammer_threads", hammer, 3, .as_threads = 1),
        CLUSTER_TEST(waiting, 4),
        CLUSTER_TEST(failing, 4),
        {0}};
    shared = cluster_shared(sizeof *shared);
    return cluster_main(argc, argv, tests, setup);
}
