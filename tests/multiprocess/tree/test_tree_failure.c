/* test_tree_failure.c - scans of several owners beside writers at full speed: each scan is of one instant.
 * Owners that open late or never, close, fail or pause; writers and scanners that fail. */
#include <stdio.h>

#include "objects/versioned/versioned.h"
#include "tree_common.h"

#define FILLERS 40u /* keys that a writer inserts and removes at each owner */

static const struct remo_tree_key middle = {"m", 1};

/* Nodes 0 and 1 are the owners, of keys before and from "m". */
static int open_two(struct remo_node *node, struct remo_tree **ret_tree) {
    const struct remo_tree_options options = {.owners = first_nodes(2),
                                              .boundaries = &middle,
                                              .nodes = 200,
                                              .node_bytes = 512,
                                              .key_bytes_max = 24,
                                              .value_bytes_max = NUMBER_BYTES_MAX,
                                              .retain = 8000};
    return open_tree(node, &options, ret_tree);
}

/* ---- writers ---- */

/* In each step, writer w sets its keys a, z, y and b to the number of the step, in this order. So at any
 * instant a >= z >= y >= b >= a - 1. The first and the last key are at owner 0, the others at owner 1. */
static int write_step(struct remo_tree *tree, uint32_t w, uint32_t number) {
    static const char names[] = "azyb";
    char key[16];
    atomic_store(&shared->begun[w], number);
    for (const char *name = names; *name; name++) {
        snprintf(key, sizeof key, "%c%u", *name, w);
        CHECK_OK(change_number(tree, remo_tree_upsert, key, number));
    }
    atomic_store(&shared->ended[w], number);
    /* keys at both owners, so that nodes split and merge */
    bool is_growing = number / FILLERS % 2 == 0;
    for (const char *prefix = "fp"; *prefix; prefix++) {
        snprintf(key, sizeof key, "%c%u.%u", *prefix, w, number % FILLERS);
        CHECK_OK(is_growing ? change_number(tree, remo_tree_upsert, key, number)
                            : remo_tree_remove(tree, key, strlen(key)));
    }
    return 0;
}

static int write_first(struct remo_tree *tree, uint32_t w) {
    for (uint32_t i = 1; i < FILLERS; i++) /* so that each removal finds its key */
        CHECK(write_step(tree, w, i) == 0);
    return write_step(tree, w, 2 * FILLERS);
}

static int write_on(struct remo_tree *tree, uint32_t w, uint32_t readers) {
    for (uint32_t i = 2 * FILLERS + 1; atomic_load(&shared->done) < readers; i++)
        CHECK(write_step(tree, w, i) == 0);
    return 0;
}

/* ---- scanners ---- */

struct numbers {
    uint32_t of[WRITERS_MAX][256]; /* by the first byte of the key */
};

static int read_scan(const char *buffer, const struct remo_tree_result *result, struct numbers *ret) {
    struct remo_tree_entry entry;
    struct tree_bytes last = {NULL, 0};
    size_t offset = 0;
    memset(ret, 0, sizeof *ret);
    while (remo_tree_result_next(buffer, result, &offset, &entry)) {
        const unsigned char *key = entry.key.data;
        struct tree_bytes bytes = {key, (uint32_t)entry.key.bytes};
        CHECK(!last.data || remo__tree_compare(last, bytes) < 0);
        CHECK(number_of(entry.value.data, entry.value.bytes) != 0);
        last = bytes;
        if (entry.key.bytes == 2)
            ret->of[key[1] - '0'][key[0]] = number_of(entry.value.data, entry.value.bytes);
    }
    return 0;
}

/* Scan all keys, as of one instant between the beginning and the end of the call. */
static int scan_instant(struct remo_tree *tree, uint32_t writers) {
    char buffer[1 << 14];
    struct remo_tree_result result;
    struct numbers numbers;
    uint32_t ended[WRITERS_MAX];
    for (uint32_t w = 0; w < writers; w++)
        ended[w] = atomic_load(&shared->ended[w]);
    CHECK_OK(remo_tree_scan(tree, NULL, buffer, sizeof buffer, &result));
    CHECK(result.is_complete);
    CHECK(read_scan(buffer, &result, &numbers) == 0);
    for (uint32_t w = 0; w < writers; w++) {
        const uint32_t *of = numbers.of[w];
        CHECK(of['a'] >= of['z'] && of['z'] >= of['y'] && of['y'] >= of['b']);
        CHECK(of['b'] + 1 >= of['a'] || of['a'] == 2 * FILLERS);
        CHECK(of['b'] >= ended[w] && of['a'] <= atomic_load(&shared->begun[w]));
    }
    return 0;
}

static int scan_on(struct remo_tree *tree, uint32_t writers, uint32_t scans) {
    for (uint32_t i = 0; i < scans; i++)
        CHECK(scan_instant(tree, writers) == 0);
    return 0;
}

/* Nodes 0 and 2 write, nodes 1 and 3 scan. Nodes 0 and 1 are the owners. */
static int instants(struct remo_node *node, void *ctx) {
    struct remo_tree *tree;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    CHECK(open_two(node, &tree) == 0);
    CHECK(rank % 2 == 1 || write_first(tree, rank / 2) == 0);
    CHECK_OK(cluster_meet());
    if (rank % 2 == 0) {
        CHECK(write_on(tree, rank / 2, 2) == 0);
    } else {
        int result = scan_on(tree, 2, is_mapped(node) ? 15000 : 60);
        atomic_fetch_add(&shared->done, 1);
        CHECK_EQUAL(result, 0);
    }
    CHECK_OK(cluster_meet());
    CHECK(scan_instant(tree, 2) == 0);
    CHECK(!tree->own || check_shape(tree, NULL) == 0);
    return close_tree(tree);
}

/* ---- owners that open late, or never ---- */

static int late_owner(struct remo_node *node, void *ctx) {
    const struct remo_tree_options options = {.owners = first_nodes(2), .boundaries = &middle};
    struct remo_tree *tree;
    struct remo_tree_result result;
    char buffer[64];
    uint32_t number;
    (void)ctx;
    if (remo_node_rank(node) == 0)
        cluster_sleep_ms(100);
    CHECK_OK(remo_tree_open(remo_node_root(node), "tree", &options, &tree));
    CHECK_CODE(get_number(tree, "absent", &number), -ENOENT);
    CHECK_OK(remo_tree_scan(tree, NULL, buffer, sizeof buffer, &result));
    CHECK_OK(change_number(tree, remo_tree_insert, (char[]){(char)('a' + remo_node_rank(node)), 0}, 1));
    CHECK_OK(cluster_meet());
    CHECK_OK(remo_tree_scan(tree, NULL, buffer, sizeof buffer, &result));
    CHECK_EQUAL(result.entries, remo_node_size(node));
    return close_tree(tree);
}

static int absent_owner(struct remo_node *node, void *ctx) {
    const struct remo_tree_options options = {.owners = first_nodes(2), .boundaries = &middle};
    const struct remo_tree_range own = {.from = {"m", 1}};
    struct remo_tree *tree;
    struct remo_tree_result result;
    char buffer[64];
    uint32_t number;
    (void)ctx;
    if (remo_node_rank(node) == 1) {
        CHECK_OK(remo_tree_open(remo_node_root(node), "tree", &options, &tree));
        cluster_set_op_timeout(node, SECOND / 5);
        CHECK_SENTENCE(get_number(tree, "a", &number), -ETIMEDOUT, "node 0");
        CHECK_SENTENCE(change_number(tree, remo_tree_insert, "a", 1), -ETIMEDOUT, "node 0");
        CHECK_CODE(remo_tree_scan(tree, NULL, buffer, sizeof buffer, &result), -ETIMEDOUT);
        CHECK_OK(change_number(tree, remo_tree_insert, "m", 1));
        CHECK_NUMBER(tree, "m", 1);
        CHECK_OK(remo_tree_scan(tree, &own, buffer, sizeof buffer, &result));
        CHECK_EQUAL(result.entries, 1);
        remo_tree_close(tree);
    }
    CHECK_OK(cluster_meet());
    return 0;
}

/* Node 0 has connected, but has not made its root: its version is 0. */
static int no_root(struct remo_node *node, void *ctx) {
    const struct remo_tree_options options = {.owners = first_nodes(2), .boundaries = &middle};
    struct remo_tree *tree;
    struct remo_tree_result result;
    uint64_t versions[2], version = 0;
    char buffer[64];
    (void)ctx;
    CHECK(open_tree(node, &options, &tree) == 0);
    char *word = tree->nodes->region->memory->own;
    if (remo_node_rank(node) == 0) {
        version = remo__load(word);
        remo__store(word, 0);
    }
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 1) {
        uint64_t timeout = SECOND / 5, before = cluster_set_op_timeout(node, timeout);
        do { /* on a slow machine, a read of the version may time out */
            CHECK_CODE(remo_tree_snapshot(tree, versions), -ETIMEDOUT);
            cluster_set_op_timeout(node, timeout *= 2);
        } while (!strstr(remo_last_error(), "an owner has not opened it"));
        CHECK_CODE(remo_tree_scan(tree, NULL, buffer, sizeof buffer, &result), -ETIMEDOUT);
        cluster_set_op_timeout(node, before);
    }
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 0)
        remo__store(word, version);
    CHECK_OK(cluster_meet());
    CHECK_OK(remo_tree_snapshot(tree, versions));
    CHECK(versions[0] > 0 && versions[1] > 0);
    return close_tree(tree);
}

/* ---- owners that close or fail ---- */

/* Each call for keys of node 0 returns `code`; keys of node 1 are unaffected. */
static int expect_lost(struct remo_tree *tree, int code) {
    const struct remo_tree_range lost = {.to = {"m", 1}}, other = {.from = {"m", 1}};
    struct remo_tree_result result;
    char buffer[1 << 14], key[] = "n0";
    uint32_t number = 100 + remo_node_rank(tree->node);
    key[1] = (char)('0' + remo_node_rank(tree->node));
    CHECK_SENTENCE(get_number(tree, "a0", &number), code, "node 0");
    CHECK_SENTENCE(change_number(tree, remo_tree_insert, key + 1, 1), code, "node 0");
    CHECK_CODE(change_number(tree, remo_tree_upsert, "b", 1), code);
    CHECK_CODE(change_number(tree, remo_tree_update, "b", 1), code);
    CHECK_CODE(remo_tree_remove(tree, "b", 1), code);
    CHECK_SENTENCE(remo_tree_scan(tree, &lost, buffer, sizeof buffer, &result), code, "node 0");
    CHECK_CODE(remo_tree_scan(tree, NULL, buffer, sizeof buffer, &result), code);
    CHECK_OK(change_number(tree, remo_tree_insert, key, number));
    CHECK_NUMBER(tree, key, number);
    CHECK_OK(remo_tree_scan(tree, &other, buffer, sizeof buffer, &result));
    CHECK(result.entries > 0 && result.is_complete);
    CHECK(!tree->own || check_shape(tree, NULL) == 0);
    return 0;
}

static int owner_closes(struct remo_node *node, void *ctx) {
    struct remo_tree *tree;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    CHECK(open_two(node, &tree) == 0);
    CHECK(rank != 2 || write_first(tree, 0) == 0);
    CHECK_OK(cluster_meet());
    CHECK(scan_instant(tree, 1) == 0);
    CHECK_OK(cluster_meet());
    if (rank == 0)
        remo_tree_close(tree);
    CHECK_OK(cluster_meet());
    if (rank > 0) {
        while (remo_channel_peer(remo_tree_channel(tree), 0) == REMO_CHANNEL_CONNECTED)
            cluster_sleep_ms(1);
        CHECK(expect_lost(tree, -ENOTCONN) == 0);
    }
    CHECK_OK(cluster_meet());
    if (rank > 0)
        remo_tree_close(tree);
    CHECK_OK(cluster_meet());
    return 0;
}

/* Write or scan until owner 0 has failed. */
static int use_until_failure(struct remo_tree *tree) {
    char buffer[1 << 14];
    struct remo_tree_result result;
    int rc = 0;
    for (uint32_t i = 1; rc == 0; i++) {
        if (remo_node_rank(tree->node) == 2)
            rc = change_number(tree, remo_tree_upsert, i % 2 ? "a0" : "z0", i);
        else
            rc = remo_tree_scan(tree, NULL, buffer, sizeof buffer, &result);
        atomic_fetch_add(&shared->count, 1);
    }
    CHECK_CODE(rc, -EHOSTDOWN);
    return 0;
}

static int owner_fails(struct remo_node *node, void *ctx) {
    struct remo_tree *tree;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    CHECK(open_two(node, &tree) == 0);
    CHECK(rank != 2 || write_first(tree, 0) == 0);
    CHECK_OK(cluster_meet());
    if (rank == 0)
        for (uint32_t i = 1;; i++)
            CHECK_OK(change_number(tree, remo_tree_upsert, i % 2 ? "c" : "x", i));
    if (rank == 3) {
        while (atomic_load(&shared->count) < 100)
            cluster_sleep_ms(1);
        CHECK_OK(cluster_kill(0));
    } else {
        CHECK(use_until_failure(tree) == 0);
    }
    cluster_await_cut_off(node, 0);
    CHECK(expect_lost(tree, -EHOSTDOWN) == 0);
    CHECK_OK(cluster_meet());
    remo_tree_close(tree);
    return 0;
}

/* ---- writers and scanners that fail ---- */

/* Insert keys in ascending order, until the node is killed. */
static int insert_on(struct remo_tree *tree) {
    char key[16];
    for (uint32_t i = 0; i < 100000; i++) {
        snprintf(key, sizeof key, "%c%06u", i % 2 ? 'a' : 'z', i % 100);
        atomic_store(&shared->begun[0], i + 1);
        CHECK_OK(i / 100 % 2 ? remo_tree_remove(tree, key, strlen(key))
                             : change_number(tree, remo_tree_insert, key, i + 1));
        atomic_store(&shared->ended[0], i + 1);
        if (i % 100 == 99)
            cluster_sleep_ms(1);
    }
    return 1;
}

/* All changes that returned were made. The change in flight was made or not. No other change was made. */
static int expect_inserted(struct remo_tree *tree) {
    uint32_t ended = atomic_load(&shared->ended[0]), begun = atomic_load(&shared->begun[0]);
    char key[16];
    for (uint32_t k = 0; k < 100; k++) {
        uint32_t number = 0, last = ended / 100 * 100 + k; /* the last change of this key */
        if (last >= ended)
            last = last >= 100 ? last - 100 : UINT32_MAX;
        bool is_present = last != UINT32_MAX && last / 100 % 2 == 0;
        snprintf(key, sizeof key, "%c%06u", k % 2 ? 'a' : 'z', k);
        int rc = get_number(tree, key, &number);
        CHECK(rc == 0 || rc == -ENOENT);
        if (begun > ended && (begun - 1) % 100 == k && (rc == 0) != is_present)
            continue;
        CHECK_CODE(rc, is_present ? 0 : -ENOENT);
        CHECK(!is_present || number == last + 1);
    }
    return 0;
}

static int writer_fails(struct remo_node *node, void *ctx) {
    struct remo_tree *tree;
    (void)ctx;
    CHECK(open_two(node, &tree) == 0);
    CHECK_OK(cluster_meet()); /* all nodes have opened before one fails */
    if (remo_node_rank(node) == 2)
        return insert_on(tree);
    if (remo_node_rank(node) == 1) {
        while (atomic_load(&shared->ended[0]) < 450)
            cluster_sleep_ms(1);
        CHECK_OK(cluster_kill(2));
    }
    cluster_await_cut_off(node, 2);
    cluster_sleep_ms(50); /* for a request that has already reached the owner */
    CHECK_OK(cluster_meet());
    CHECK(expect_inserted(tree) == 0);
    CHECK(check_shape(tree, NULL) == 0);
    return close_tree(tree);
}

/* The delay of a failed scanner ends when its time has passed. */
static int scanner_fails(struct remo_node *node, void *ctx) {
    struct remo_tree *tree;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    CHECK(open_two(node, &tree) == 0);
    CHECK(rank != 2 || write_first(tree, 0) == 0);
    CHECK_OK(cluster_meet());
    if (rank == 3)
        for (;; atomic_fetch_add(&shared->count, 1))
            CHECK(scan_instant(tree, 1) == 0);
    if (rank == 0) {
        while (atomic_load(&shared->count) < 30)
            cluster_sleep_ms(1);
        CHECK_OK(cluster_kill(3));
        uint32_t killed_at = atomic_load(&shared->ended[0]);
        while (atomic_load(&shared->ended[0]) < killed_at + 100)
            cluster_sleep_ms(1);
        atomic_store(&shared->done, 1);
    } else if (rank == 2) {
        CHECK(write_on(tree, 0, 1) == 0);
    }
    CHECK_OK(cluster_meet());
    CHECK(scan_instant(tree, 1) == 0);
    CHECK(!tree->own || check_shape(tree, NULL) == 0);
    return close_tree(tree);
}

/* ---- an owner that pauses ---- */

/* On shm gets and scans continue. Over a network they time out, because the owner's process serves them.
 * Changes time out everywhere. */
static int use_paused(struct remo_node *node, struct remo_tree *tree) {
    char buffer[1 << 14];
    struct remo_tree_result result;
    uint32_t number;
    for (uint32_t i = 0; i < (is_mapped(node) ? 20 : 1); i++) {
        CHECK_CODE(get_number(tree, "a0", &number), is_mapped(node) ? 0 : -ETIMEDOUT);
        CHECK_CODE(remo_tree_scan(tree, NULL, buffer, sizeof buffer, &result),
                   is_mapped(node) ? 0 : -ETIMEDOUT);
    }
    CHECK_CODE(change_number(tree, remo_tree_insert, "paused", 1), -ETIMEDOUT);
    CHECK_CODE(change_number(tree, remo_tree_update, "a0", 5), -ETIMEDOUT);
    return 0;
}

static int owner_paused(struct remo_node *node, void *ctx) {
    const struct remo_tree_options options = {.owners = first_nodes(1), .value_bytes_max = NUMBER_BYTES_MAX};
    struct remo_tree *tree;
    (void)ctx;
    CHECK(open_tree(node, &options, &tree) == 0);
    record_process(&shared->turns, remo_node_rank(node));
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 1) {
        uint32_t number = 1, other = 5;
        CHECK(write_first(tree, 0) == 0);
        uint64_t before = cluster_set_op_timeout(node, SECOND / 5);
        pause_node(&shared->turns, 0);
        int result = use_paused(node, tree);
        resume_node(&shared->turns, 0);
        CHECK_EQUAL(result, 0);
        cluster_set_op_timeout(node, before);
        int rc = get_number(tree, "paused", &number);
        CHECK(rc == -ENOENT || (rc == 0 && number == 1));
        CHECK_OK(get_number(tree, "a0", &other));
        CHECK(other == 5 || other == 2 * FILLERS);
    }
    CHECK_OK(cluster_meet());
    CHECK(!tree->own || check_shape(tree, NULL) == 0);
    return close_tree(tree);
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(instants, 4),     CLUSTER_TEST(late_owner, 3),
        CLUSTER_TEST(absent_owner, 2), CLUSTER_TEST(no_root, 2),
        CLUSTER_TEST(owner_closes, 3), CLUSTER_TEST(owner_fails, 4),
        CLUSTER_TEST(writer_fails, 3), CLUSTER_TEST(scanner_fails, 4),
        CLUSTER_TEST(owner_paused, 2), {0},
    };
    return tree_main(argc, argv, tests);
}
