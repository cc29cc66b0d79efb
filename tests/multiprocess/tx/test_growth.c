/* test_growth.c - a hash table grows 1000-fold between real nodes, and no lookup misses a key. All nodes
 * put and delete keys at the same time. */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../support/cluster.h"

#define LONG_TIME (100 * SECOND)
#define NODES 3u
#define KEYS_FIRST 16u /* expected keys of each node */
#define GROWTH 1000u
#define KEYS (KEYS_FIRST * GROWTH)

/* Node 0 owns all keys that the test uses. */
struct shared {
    _Atomic uint64_t present[NODES]; /* keys that each node has inserted, in the order of its keys */
    uint64_t keys[KEYS];
};
static struct shared *shared;

/* ---- open ---- */

static int open_table(struct remo_node *node, const struct remo_table_options *options,
                      struct remo_table **ret_table) {
    CHECK_OK(remo_table_open(remo_node_root(node), "table", options, ret_table));
    CHECK_OK(remo_channel_wait(remo_structure_channel(remo_table_structure(*ret_table)), LONG_TIME));
    uint64_t key = 0;
    for (uint32_t i = 0; i < KEYS && remo_node_rank(node) == 0;
         i += remo_table_owner(*ret_table, &key, 8) == 0)
        shared->keys[i] = ++key;
    CHECK_OK(cluster_meet());
    return 0;
}

static int close_table(struct remo_table *table) {
    CHECK_OK(cluster_meet());
    remo_table_close(table);
    CHECK_OK(cluster_meet());
    return 0;
}

/* ---- lookups ---- */

/* The results of the lookups of a node. */
struct lookups {
    uint64_t count, calls, missed;
    uint32_t times_ns[1u << 20]; /* a ring */
};

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

static int look_up(struct remo_table *table, uint64_t key, struct lookups *lookups) {
    uint64_t value[10] = {0}, before_ns = now_ns();
    enum remo_lookup_way way = REMO_LOOKUP_WAY_LOCAL;
    int rc =
        remo_structure_lookup(remo_table_structure(table), &key, sizeof key, value, sizeof value, NULL, &way);
    uint64_t ns = now_ns() - before_ns;
    lookups->times_ns[lookups->count++ % (1u << 20)] = ns < UINT32_MAX ? (uint32_t)ns : UINT32_MAX;
    lookups->missed += rc == -ENOENT;
    lookups->calls += way == REMO_LOOKUP_WAY_CALL;
    CHECK(rc == 0 || rc == -ENOENT);
    CHECK(rc != 0 || value[0] == key);
    return 0;
}

static int compare(const void *one, const void *other) {
    uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;
    return a < b ? -1 : a > b;
}

/* No key was missed. The times are only printed, because they depend on the load of the machine. */
static int report(struct lookups *lookups, const char *what) {
    uint64_t count = lookups->count < 1u << 20 ? lookups->count : 1u << 20;
    qsort(lookups->times_ns, count, sizeof lookups->times_ns[0], compare);
    fprintf(stderr, "%s: %llu lookups, %llu missed, %llu calls, p50 %u ns, p99.9 %u ns\n", what,
            (unsigned long long)lookups->count, (unsigned long long)lookups->missed,
            (unsigned long long)lookups->calls, lookups->times_ns[count / 2],
            lookups->times_ns[count - count / 1000 - 1]);
    CHECK_EQUAL(lookups->missed, 0);
    return 0;
}

/* ---- growth ---- */

/* Nodes 0 and 2 insert the keys with even and odd numbers. */
static int insert_keys(struct remo_table *table, uint32_t rank) {
    for (uint64_t i = rank / 2; i < KEYS; i += 2) {
        uint64_t key = shared->keys[i];
        CHECK_OK(remo_structure_insert(remo_table_structure(table), &key, sizeof key, &key, sizeof key));
        atomic_store(&shared->present[rank], i + 1);
    }
    return 0;
}

/* Look up random keys that are present, until all are. */
static int look_up_keys(struct remo_table *table, struct lookups *lookups) {
    uint64_t random = 12345, first = 0, second = 0;
    while (first + second < 2 * KEYS - 1) {
        first = atomic_load(&shared->present[0]);
        second = atomic_load(&shared->present[2]);
        random = random * 6364136223846793005u + 1442695040888963407u;
        uint64_t i = (random >> 33) % KEYS;
        if (i < (i % 2 == 0 ? first : second))
            CHECK(look_up(table, shared->keys[i], lookups) == 0);
    }
    return 0;
}

static int growth(struct remo_node *node, void *ctx) {
    const struct remo_table_options options = {.capacity = NODES * KEYS_FIRST};
    struct lookups *lookups = calloc(1, sizeof *lookups);
    struct remo_table *table;
    (void)ctx;
    CHECK(lookups && open_table(node, &options, &table) == 0);
    CHECK(
        (remo_node_rank(node) == 1 ? look_up_keys(table, lookups) : insert_keys(table, remo_node_rank(node)))
        == 0);
    CHECK(remo_node_rank(node) != 1 || report(lookups, "during growth") == 0);
    CHECK_OK(cluster_meet());
    memset(lookups, 0, sizeof *lookups);
    for (uint32_t i = 0; i < KEYS && remo_node_rank(node) != 0; i++)
        CHECK(look_up(table, shared->keys[i], lookups) == 0);
    CHECK(remo_node_rank(node) == 0 || report(lookups, "afterwards") == 0);
    CHECK(lookups->calls < KEYS / 2); /* one for each key in an overflow chain */
    free(lookups);
    return close_table(table);
}

/* ---- changes beside growth ---- */

/* Each node inserts keys, deletes some of them, and looks up new and old ones. */
static int changes(struct remo_node *node, void *ctx) {
    const struct remo_table_options options = {.capacity = NODES, .width = 2, .slots_percent = 150};
    struct remo_table *table;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    CHECK(open_table(node, &options, &table) == 0);
    struct remo_structure *structure = remo_table_structure(table);
    for (uint32_t i = rank; i < 3000; i += NODES) {
        uint64_t key = shared->keys[i], old = shared->keys[i / 2 / NODES * NODES + rank], value[10];
        CHECK_OK(remo_structure_put(structure, &key, sizeof key, &key, sizeof key));
        int expected = i / NODES % 4 == 1 ? -ENOENT : 0;
        if (expected != 0)
            CHECK_OK(remo_structure_delete(structure, &key, sizeof key));
        CHECK_CODE(remo_structure_lookup(structure, &key, sizeof key, value, sizeof value, NULL, NULL),
                   expected);
        expected = i / 2 / NODES % 4 == 1 ? -ENOENT : 0;
        CHECK_CODE(remo_structure_lookup(structure, &old, sizeof old, value, sizeof value, NULL, NULL),
                   expected);
    }
    return close_table(table);
}

/* A table that may not grow has no room for many keys. */
static int fixed(struct remo_node *node, void *ctx) {
    const struct remo_table_options options = {.capacity = 100, .capacity_max = 100};
    struct remo_table *table;
    int rc = 0;
    (void)ctx;
    CHECK(open_table(node, &options, &table) == 0);
    for (uint32_t i = 0; i < KEYS && rc == 0 && remo_node_rank(node) == 1; i++)
        rc = remo_structure_insert(remo_table_structure(table), &shared->keys[i], 8, &i, sizeof i);
    if (remo_node_rank(node) == 1)
        CHECK_SENTENCE(rc, -ENOSPC, "delete keys");
    return close_table(table);
}

/* Tables with few overflow items grow before they are loaded, also for one transaction with many keys. */
static int room(struct remo_node *node, void *ctx) {
    const struct remo_table_options options = {.capacity = 100, .slots_percent = 100, .overflow_percent = 10};
    const struct remo_table_options small = {.capacity = 10};
    struct remo_table *table;
    struct remo_tx *tx;
    struct remo_tx_space *space;
    (void)ctx;
    CHECK(open_table(node, &options, &table) == 0);
    for (uint32_t i = 0; i < 5000; i++)
        CHECK_OK(remo_structure_insert(remo_table_structure(table), &shared->keys[i], 8, &i, sizeof i));
    CHECK(close_table(table) == 0);
    CHECK(open_table(node, &small, &table) == 0);
    struct remo_structure *structure = remo_table_structure(table);
    const struct remo_tx_space_options spaces = {.structures = &structure, .structure_count = 1};
    CHECK_OK(remo_tx_space_open(remo_node_root(node), "tx", &spaces, &space));
    CHECK_OK(remo_tx_open(space, &tx));
    CHECK_OK(remo_tx_begin(tx));
    for (uint32_t i = 0; i < REMO_TX_ITEMS_MAX; i++)
        CHECK_OK(remo_tx_put(tx, structure, &shared->keys[i], 8, &i, sizeof i));
    CHECK_OK(remo_tx_commit(tx));
    remo_tx_close(tx);
    remo_tx_space_close(space);
    return close_table(table);
}

static const struct cluster_test tests[] = {
    CLUSTER_TEST(growth, NODES),
    CLUSTER_TEST(changes, NODES),
    CLUSTER_TEST(fixed, 2),
    CLUSTER_TEST(room, 1),
    {0},
};

static void clear_shared(void) {
    memset((void *)shared, 0, sizeof *shared);
}

int main(int argc, char **argv) {
    shared = cluster_shared(sizeof *shared);
    return cluster_main(argc, argv, tests, clear_shared);
}
