/* test_atomic_var.c - words that all nodes change: no change is lost or repeated, wherever the words are.
 * Also costs, and the failure of a home. */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../../support/cluster.h"

#define NODES_MAX 8u
#define TOKENS 500u

static struct shared {
    uint8_t returned_count[NODES_MAX * TOKENS + 1]; /* number of exchanges that returned the token */
} * shared;

static int open_var(struct remo_node *node, const struct remo_atomic_var_options *options,
                    struct remo_atomic_var **ret_var) {
    CHECK_OK(remo_atomic_var_open(remo_node_root(node), "words", options, ret_var));
    CHECK_OK(remo_channel_wait(remo_atomic_var_channel(*ret_var), 100 * SECOND));
    return 0;
}

/* Each word is a counter. `count` words, striped or not, for every number of nodes up to that of the job. */
static int count_with(struct remo_node *node, uint64_t count, enum remo_atomic_var_place place,
                      uint32_t home) {
    struct remo_atomic_var_options options = {.count = count, .place = place, .home = home};
    struct remo_atomic_var *var;
    uint64_t old, value, total = 0;
    enum { ROUNDS = 50 };
    if (open_var(node, &options, &var) != 0)
        return 1;
    count = count ? count : 1;
    for (uint64_t i = 0; i < count; i++) {
        CHECK_OK(remo_atomic_var_load(var, i, &value, NULL));
        CHECK_EQUAL(value, 0);
    }
    CHECK_OK(cluster_meet());
    for (uint32_t round = 0; round < ROUNDS; round++)
        for (uint64_t i = 0; i < count; i++) {
            if (round % 2) {
                CHECK_OK(remo_atomic_var_fetch_add(var, i, i + 1, &old, NULL));
                CHECK_EQUAL(old % (i + 1), 0);
                continue;
            }
            CHECK_OK(remo_atomic_var_load(var, i, &value, NULL));
            for (;;) {
                CHECK_OK(remo_atomic_var_compare_swap(var, i, value, value + i + 1, &old, NULL));
                if (old == value)
                    break;
                value = old;
            }
        }
    CHECK_OK(cluster_meet());
    for (uint64_t i = 0; i < count; i++) {
        CHECK_OK(remo_atomic_var_load(var, i, &value, NULL));
        CHECK_EQUAL(value, ROUNDS * (i + 1) * remo_node_size(node));
        total += value;
    }
    CHECK(total > 0);
    CHECK_OK(cluster_meet());
    remo_atomic_var_close(var);
    CHECK_OK(cluster_meet());
    return 0;
}

static int counters(struct remo_node *node, void *ctx) {
    (void)ctx;
    if (count_with(node, 0, REMO_ATOMIC_VAR_AT_HOME, 0) != 0
        || count_with(node, 1, REMO_ATOMIC_VAR_STRIPED, 1) != 0)
        return 1;
    if (count_with(node, 37, REMO_ATOMIC_VAR_AT_HOME, 2) != 0)
        return 1;
    for (uint64_t count = 2; count < 9; count++)
        if (count_with(node, count, REMO_ATOMIC_VAR_STRIPED, 0) != 0)
            return 1;
    return 0;
}

/* The words of a striped array are distinct, and spread evenly. */
static int stripes(struct remo_node *node, void *ctx) {
    struct remo_atomic_var_options options = {.count = 1000, .place = REMO_ATOMIC_VAR_STRIPED};
    struct remo_atomic_var *var;
    uint64_t value;
    (void)ctx;
    if (open_var(node, &options, &var) != 0)
        return 1;
    CHECK_OK(cluster_meet());
    for (uint64_t i = remo_node_rank(node); i < 1000; i += remo_node_size(node))
        CHECK_OK(remo_atomic_var_store(var, i, i * i + 1));
    CHECK_OK(cluster_meet());
    for (uint64_t i = 0; i < 1000; i++) {
        CHECK_OK(remo_atomic_var_load(var, i, &value, NULL));
        CHECK_EQUAL(value, i * i + 1);
    }
    const uint64_t *own = remo_channel_memory(remo_atomic_var_channel(var), 0);
    uint64_t share = (1000 + remo_node_size(node) - 1) / remo_node_size(node), here = 0;
    for (uint64_t i = 0; i < share; i++)
        here += own[i] != 0;
    CHECK(here == share || here == share - 1);
    CHECK_OK(cluster_meet());
    remo_atomic_var_close(var);
    return 0;
}

/* Nodes exchange unique tokens: each token is returned once, or is the last one in the word. */
static int exchanges(struct remo_node *node, void *ctx) {
    struct remo_atomic_var *var;
    uint64_t old;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    if (open_var(node, NULL, &var) != 0)
        return 1;
    CHECK_OK(cluster_meet());
    for (uint32_t i = 0; i < TOKENS; i++) {
        CHECK_OK(remo_atomic_var_exchange(var, 0, rank * TOKENS + i + 1, &old));
        CHECK(old <= NODES_MAX * TOKENS);
        __atomic_fetch_add(&shared->returned_count[old], 1, __ATOMIC_RELAXED);
    }
    CHECK_OK(cluster_meet());
    CHECK_OK(remo_atomic_var_load(var, 0, &old, NULL));
    for (uint32_t token = 0; token <= TOKENS * remo_node_size(node); token++)
        CHECK_EQUAL(shared->returned_count[token], token != old);
    CHECK_OK(cluster_meet());
    remo_atomic_var_close(var);
    return 0;
}

static int costs(struct remo_node *node, void *ctx) {
    struct remo_atomic_var_options options = {.count = 2, .place = REMO_ATOMIC_VAR_STRIPED};
    struct remo_atomic_var *var;
    uint64_t value;
    (void)ctx;
    if (open_var(node, &options, &var) != 0)
        return 1;
    struct remo_channel *channel = remo_atomic_var_channel(var);
    for (uint32_t turn = 0; turn < 2; turn++) {
        for (uint64_t i = 0; turn == remo_node_rank(node) && i < 2;
             i++) { /* local and remote, while all other nodes are idle */
            CHECK_COST(channel, CHECK_OK(remo_atomic_var_load(var, i, &value, NULL)), 1, 0, 0, 0);
            CHECK_COST(channel, CHECK_OK(remo_atomic_var_fetch_add(var, i, 1, NULL, NULL)), 0, 0, 1, 0);
            CHECK_COST(channel, CHECK_OK(remo_atomic_var_compare_swap(var, i, 9, 9, &value, NULL)), 0, 0, 1,
                       0);
            CHECK_COST(channel, CHECK_OK(remo_atomic_var_store(var, i, 5)), 1, 0, 1, 0);
            CHECK_COST(channel, CHECK_OK(remo_atomic_var_exchange(var, i, 6, &value)), 1, 0, 1, 0);
            CHECK_EQUAL(value, 5);
        }
        CHECK_OK(cluster_meet());
    }
    struct remo_ack ack = REMO_ACK_INIT;
    uint64_t sums[64];
    for (uint32_t i = 0; remo_node_rank(node) == 0 && i < 64; i++)
        CHECK_OK(remo_atomic_var_fetch_add(var, 1, 1, &sums[i], &ack));
    CHECK_OK(remo_ack_wait(&ack, 100 * SECOND));
    for (uint32_t i = 1; remo_node_rank(node) == 0 && i < 64; i++)
        CHECK_EQUAL(sums[i], sums[0] + i);
    CHECK_OK(cluster_meet());
    remo_atomic_var_close(var);
    return 0;
}

static int errors(struct remo_node *node, void *ctx) {
    struct remo_atomic_var_options options = {.home = 7};
    struct remo_atomic_var *var;
    struct remo_channel *root = remo_node_root(node);
    uint64_t value;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    CHECK_SENTENCE(remo_atomic_var_open(root, "w", &options, &var), -EINVAL, "node 7");
    options = (struct remo_atomic_var_options){.place = (enum remo_atomic_var_place)5};
    CHECK_SENTENCE(remo_atomic_var_open(root, "w", &options, &var), -EINVAL, "place 5");
    options = (struct remo_atomic_var_options){.count = UINT64_MAX};
    CHECK_CODE(remo_atomic_var_open(root, "w", &options, &var), -EINVAL);
    options = (struct remo_atomic_var_options){.count = 1ull << 40};
    CHECK_CODE(remo_atomic_var_open(root, "w", &options, &var), rank == 0 ? -ENOSPC : 0);
    if (rank == 1)
        remo_atomic_var_close(var);
    CHECK_OK(cluster_meet());
    options = (struct remo_atomic_var_options){.count = 3};
    CHECK_OK(remo_atomic_var_open(root, "v", &options, &var));
    CHECK_OK(remo_channel_wait(root, 100 * SECOND));
    CHECK_SENTENCE(remo_atomic_var_load(var, 3, &value, NULL), -EINVAL, "v has no word 3");
    CHECK_CODE(remo_atomic_var_fetch_add(var, UINT64_MAX, 1, &value, NULL), -EINVAL);
    CHECK_CODE(remo_atomic_var_compare_swap(var, 3, 0, 0, &value, NULL), -EINVAL);
    CHECK_SENTENCE(remo_atomic_var_compare_swap(var, 0, 0, 0, NULL, NULL), -EINVAL, "ret_old");
    CHECK_CODE(remo_atomic_var_store(var, 3, 1), -EINVAL);
    CHECK_CODE(remo_atomic_var_exchange(var, 3, 1, &value), -EINVAL);
    CHECK_CODE(remo_atomic_var_load(var, 0, NULL, NULL), -EINVAL);
    CHECK_OK(cluster_meet());
    remo_atomic_var_close(var);
    remo_atomic_var_close(NULL);
    CHECK_OK(cluster_meet());
    options.home = rank;
    CHECK_OK(remo_atomic_var_open(root, "x", &options, &var));
    CHECK_SENTENCE(remo_channel_wait(root, 100 * SECOND), -EPROTO, "at node 1");
    CHECK_OK(cluster_meet());
    remo_atomic_var_close(var);
    return 0;
}

static int home_fails(struct remo_node *node, void *ctx) {
    struct remo_atomic_var_options options = {.count = 3, .place = REMO_ATOMIC_VAR_STRIPED};
    struct remo_atomic_var *var;
    uint64_t value;
    int rc = 0;
    (void)ctx;
    if (open_var(node, &options, &var) != 0)
        return 1;
    CHECK_OK(cluster_meet());
    uint64_t begin = cluster_now_ns();
    if (remo_node_rank(node) == 1) {
        cluster_sleep_ms(60000);
        return 1;
    }
    if (remo_node_rank(node) == 0)
        CHECK_OK(cluster_kill(1));
    while (rc == 0 && cluster_now_ns() - begin < 100 * SECOND)
        rc = remo_atomic_var_fetch_add(var, 1, 1, &value, NULL);
    CHECK_EQUAL(-rc, EHOSTDOWN);
    CHECK_CODE(remo_atomic_var_exchange(var, 1, 1, &value), -EHOSTDOWN);
    CHECK_OK(remo_atomic_var_fetch_add(var, 0, 1, &value, NULL));
    CHECK_OK(remo_atomic_var_fetch_add(var, 2, 1, &value, NULL));
    CHECK_OK(cluster_meet());
    remo_atomic_var_close(var);
    return 0;
}

static void setup(void) {
    memset(shared, 0, sizeof *shared);
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(counters, 3),
        CLUSTER_TEST_NAMED("counters_threads", counters, 4, .as_threads = 1),
        CLUSTER_TEST(stripes, 3),
        CLUSTER_TEST_NAMED("stripes_of_7", stripes, 7),
        CLUSTER_TEST(exchanges, 3),
        CLUSTER_TEST(costs, 2),
        CLUSTER_TEST(errors, 2),
        CLUSTER_TEST(home_fails, 3),
        {0}};
    shared = cluster_shared(sizeof *shared);
    return cluster_main(argc, argv, tests, setup);
}
