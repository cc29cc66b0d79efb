/* test_tree_cost.c - the network operations of each call of the tree, counted. Costs of cursors are in
 * test_tree_cursor.c. */
#include <stdio.h>

#include "tree_common.h"

/* ---- costs ---- */

#define COST_KEYS 400u
#define COST_KEY "%04u........................" /* long keys: few children of a node */

static int insert_cost_keys(struct remo_tree *tree, uint32_t first, uint32_t end) {
    char key[32];
    for (uint32_t i = first; i < end; i++) {
        snprintf(key, sizeof key, COST_KEY, i);
        CHECK_COST(remo_tree_channel(tree), CHECK_OK(change_number(tree, remo_tree_insert, key, i + 1)), 0, 0,
                   0, 0);
    }
    return 0;
}

/* Get all keys. If the thread has cached the inner nodes (is_warm), each get reads one object, the leaf. */
static int get_cost_keys(struct remo_tree *tree, uint32_t end, bool is_warm) {
    struct remo_channel *channel = remo_tree_channel(tree);
    bool is_local = tree->own, is_exact = is_warm;
    char key[32];
    for (uint32_t i = 0; i < end; i++) {
        struct remo_stats before, after;
        snprintf(key, sizeof key, COST_KEY, i);
        remo_channel_stats(channel, &before);
        CHECK_NUMBER(tree, key, i + 1);
        remo_channel_stats(channel, &after);
        uint64_t reads = after.reads - before.reads;
        CHECK(!is_local || reads == 0);
        CHECK(is_local || (is_exact ? reads == 1 : reads >= 1));
        CHECK_EQUAL(after.writes + after.imms + after.atomics, before.writes + before.imms + before.atomics);
    }
    return 0;
}

/* Get keys [first, first + COST_TOGETHER) by one call: one read for each. */
#define COST_TOGETHER 20u

static int get_together_at_cost(struct remo_tree *tree, uint32_t first) {
    struct remo_tree_item items[COST_TOGETHER];
    char keys[COST_TOGETHER][32], values[COST_TOGETHER][NUMBER_BYTES_MAX];
    for (uint32_t i = 0; i < COST_TOGETHER; i++) {
        int bytes = snprintf(keys[i], sizeof keys[i], COST_KEY, first + i);
        items[i] = (struct remo_tree_item){
            .key = {keys[i], (size_t)bytes}, .value = values[i], .value_cap = sizeof values[i]};
    }
    items[1].value_cap = 0;
    CHECK_COST(remo_tree_channel(tree), CHECK_OK(remo_tree_get_many(tree, items, COST_TOGETHER)),
               tree->own ? 0 : COST_TOGETHER, 0, 0, 0);
    for (uint32_t i = 0; i < COST_TOGETHER; i++) {
        CHECK_EQUAL(items[i].status, i == 1 ? -EMSGSIZE : 0);
        CHECK(i == 1 || number_of(items[i].value, items[i].value_bytes) == first + i + 1);
    }
    items[1].value = NULL;
    CHECK_SENTENCE(remo_tree_get_many(tree, items, COST_TOGETHER), -EINVAL, "item 1");
    items[1].key.bytes = 33;
    CHECK_SENTENCE(remo_tree_get_many(tree, items, COST_TOGETHER), -EINVAL, "too long");
    CHECK_OK(remo_tree_get_many(tree, items, 0));
    return 0;
}

#define COST_CHANGES 21u

/* The owner counts the write of a reply perhaps after the caller has received it. Wait until it has counted
 * those of change_at_cost. */
static int await_replies(struct remo_tree *tree, const struct remo_stats *before) {
    struct remo_stats now;
    for (uint32_t i = 0; i < 100000; i++) {
        remo_channel_stats(remo_tree_channel(tree), &now);
        if (now.writes - before->writes >= COST_CHANGES && now.imms - before->imms >= COST_CHANGES)
            return 0;
        cluster_sleep_ms(1);
    }
    CHECK_EQUAL(now.writes - before->writes, COST_CHANGES);
    CHECK_EQUAL(now.imms - before->imms, COST_CHANGES);
    return 0;
}

/* Each change is one call: this node writes one request. */
static int change_at_cost(struct remo_tree *tree) {
    struct remo_channel *channel = remo_tree_channel(tree);
    char key[32];
    snprintf(key, sizeof key, COST_KEY, 7);
    for (uint32_t i = 1; i < COST_CHANGES; i++) {
        struct remo_stats before, after;
        remo_channel_stats(channel, &before);
        CHECK_OK(change_number(tree, i % 2 ? remo_tree_update : remo_tree_upsert, key, 1 + i));
        remo_channel_stats(channel, &after);
        CHECK_EQUAL(after.reads, before.reads);
        CHECK_EQUAL(after.atomics, before.atomics);
        CHECK_EQUAL(after.writes - before.writes, 1);
    }
    CHECK_OK(change_number(tree, remo_tree_update, key, 8));
    return 0;
}

static int scan_at_cost(struct remo_tree *tree, const struct remo_tree_range *range, uint64_t reads) {
    char buffer[COST_KEYS * 64];
    struct remo_tree_result result;
    CHECK_COST(remo_tree_channel(tree), CHECK_OK(remo_tree_scan(tree, range, buffer, sizeof buffer, &result)),
               reads, 0, 0, 0);
    CHECK(result.is_complete);
    return 0;
}

struct costs {
    uint32_t node_bytes, levels;
};

/* Node 0 is the owner. The steps of both nodes are the same. */
static int costs_of(struct remo_node *node, const struct costs *of) {
    const struct remo_tree_options options = {.owners = first_nodes(1),
                                              .nodes = 64,
                                              .node_bytes = of->node_bytes,
                                              .key_bytes_max = 32,
                                              .value_bytes_max = NUMBER_BYTES_MAX};
    const struct remo_tree_range none = {.from = {"x", 1}};
    struct remo_tree *tree;
    bool is_owner = remo_node_rank(node) == 0, is_exact = !is_owner;
    static char buffer[COST_KEYS * 64];
    struct remo_tree_result result;
    struct shape shape = {0};
    struct remo_stats served;
    CHECK(open_tree(node, &options, &tree) == 0);
    CHECK_OK(cluster_meet());
    if (!is_owner) {
        uint32_t number;
        CHECK_CODE(get_number(tree, "0000", &number), -ENOENT);
        CHECK(!is_exact || scan_at_cost(tree, NULL, 2) == 0); /* the version, and the root */
        CHECK_COST(remo_tree_channel(tree),
                   CHECK_CODE(remo_tree_get(tree, "", 99, &number, 4, NULL), -EINVAL), 0, 0, 0, 0);
    }
    CHECK_OK(cluster_meet());
    for (uint32_t keys = COST_KEYS / 2; keys <= COST_KEYS; keys += COST_KEYS / 2) {
        if (is_owner) {
            CHECK(insert_cost_keys(tree, keys - COST_KEYS / 2, keys) == 0);
            CHECK(check_shape(tree, &shape) == 0);
            CHECK_EQUAL(shape.levels, of->levels);
            atomic_store(&shared->count, shape.leaves);
            CHECK(scan_at_cost(tree, NULL, 0) == 0);
        }
        CHECK_OK(cluster_meet());
        CHECK(get_cost_keys(tree, keys, false) == 0); /* this also finds nodes that have moved */
        CHECK(get_cost_keys(tree, keys, true) == 0);
        CHECK(get_together_at_cost(tree, keys - COST_KEYS / 2) == 0);
        uint32_t leaves = atomic_load(&shared->count);
        CHECK_OK(
            remo_tree_scan(tree, NULL, buffer, sizeof buffer, &result)); /* inner nodes have moved, too */
        CHECK(!is_exact || scan_at_cost(tree, &none, 1 + 1) == 0);
        CHECK(!is_exact || scan_at_cost(tree, NULL, 1 + leaves) == 0);
        remo_channel_stats(remo_tree_channel(tree), &served);
        CHECK_OK(cluster_meet());
        CHECK(is_owner ? await_replies(tree, &served) == 0 : change_at_cost(tree) == 0);
        CHECK_OK(cluster_meet());
    }
    return close_tree(tree);
}

static int costs(struct remo_node *node, void *ctx) {
    (void)ctx;
    CHECK(costs_of(node, &(struct costs){2048, 2}) == 0);
    return costs_of(node, &(struct costs){512, 3});
}

/* A scan of one leaf, which moves between two scans. Over a network, the read of the version has 512 bytes
 * and reports the move, and that of the leaf copies a log of 384 bytes and the used part of the base. */
static int costs_after_move(struct remo_node *node, void *ctx) {
    const struct remo_tree_options options = {
        .owners = first_nodes(1), .nodes = 64, .node_bytes = 4096, .value_bytes_max = sizeof(uint64_t)};
    bool is_owner = remo_node_rank(node) == 0;
    struct remo_stats before, after;
    struct remo_tree *tree;
    (void)ctx;
    CHECK(open_tree(node, &options, &tree) == 0);
    for (uint32_t round = 0; round < 2; round++) {
        for (uint64_t i = 0; is_owner && i < 20; i++) /* the log has room for 16 updates at most */
            CHECK_OK(remo_tree_upsert(tree, "key", 3, &i, sizeof i));
        CHECK_OK(cluster_meet());
        if (!is_owner) {
            bool is_reported = round == 0 || !tree->node->mapped;
            remo_channel_stats(remo_tree_channel(tree), &before);
            CHECK(scan_at_cost(tree, NULL, is_reported ? 1 + 2 : 1 + 3) == 0);
            remo_channel_stats(remo_tree_channel(tree), &after);
            CHECK(tree->node->mapped || after.bytes - before.bytes < 512 + 16 + 64 + 384 + 100);
        }
        CHECK_OK(cluster_meet());
    }
    return close_tree(tree);
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(costs, 2),
        CLUSTER_TEST(costs_after_move, 2),
        {0},
    };
    return tree_main(argc, argv, tests);
}
