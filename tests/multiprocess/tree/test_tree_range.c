/* test_tree_range.c - removals of ranges: random ranges of several owners against a model, with limits; a
 * full tree; cost; wrong ranges; a removal beside insertions, which ends. */
#include <stdio.h>

#include "base/random.h"

#include "tree_common.h"

#define SMALL .node_bytes = 512, .key_bytes_max = 24, .value_bytes_max = NUMBER_BYTES_MAX

/* ---- random ranges against a model ---- */

#define MODEL_KEYS 600u

static void make_key(char key[8], uint32_t index) {
    snprintf(key, 8, "%04u", index);
}

/* Insert the absent keys of this node. */
static int fill_up(struct remo_tree *tree, struct remo__random *random) {
    char key[8];
    for (uint32_t i = 0; i < MODEL_KEYS; i++) {
        uint32_t number = 1 + (uint32_t)remo__random_below(random, 1000);
        make_key(key, i);
        if (atomic_load(&shared->numbers[i]) || remo__random_below(random, 5) == 0)
            continue;
        CHECK_OK(change_number(tree, remo_tree_insert, key, number));
        atomic_store(&shared->numbers[i], number);
    }
    return 0;
}

/* Remove keys [first, end) of the model, `limit` at most. Returns their number. */
static uint64_t remove_from_model(uint32_t first, uint32_t end, uint64_t limit) {
    uint64_t count = 0;
    for (uint32_t i = first; i < end && i < MODEL_KEYS && (limit == 0 || count < limit); i++) {
        count += atomic_load(&shared->numbers[i]) != 0;
        atomic_store(&shared->numbers[i], 0);
    }
    return count;
}

static int remove_random(struct remo_tree *tree, struct remo__random *random) {
    uint32_t first = (uint32_t)remo__random_below(random, MODEL_KEYS), dice = (uint32_t)(first % 16),
             end = first + (uint32_t)remo__random_below(random, MODEL_KEYS);
    char from[8], to[8];
    struct remo_tree_range range = {.from = {from, 4}, .to = {to, 4}};
    uint64_t count = 99;
    make_key(from, first);
    make_key(to, end);
    range.limit = dice & 1 ? 1 + remo__random_below(random, 150) : 0;
    range.flags = (dice & 2 ? REMO_TREE_FROM_EXCLUDED : 0) | (dice & 4 ? REMO_TREE_TO_INCLUDED : 0);
    if (dice & 8)
        range.to.data = NULL;
    uint64_t expected = remove_from_model(first + (dice & 2 ? 1 : 0),
                                          dice & 8 ? MODEL_KEYS : end + (dice & 4 ? 1 : 0), range.limit);
    CHECK_OK(remo_tree_remove_range(tree, &range, dice ? &count : NULL));
    CHECK(dice == 0 || count == expected);
    return 0;
}

/* Compare the number of entries, and some of them, with the model. */
static int expect_model(struct remo_tree *tree) {
    char key[8];
    uint64_t count = 0, expected = 0;
    uint32_t got;
    for (uint32_t i = 0; i < MODEL_KEYS; i++) {
        uint32_t number = atomic_load(&shared->numbers[i]);
        expected += number != 0;
        make_key(key, i);
        if (i % 5 == remo_node_rank(tree->node))
            CHECK_CODE(get_number(tree, key, &got), number ? 0 : -ENOENT);
    }
    CHECK_OK(remo_tree_count(tree, NULL, &count));
    CHECK_EQUAL(count, expected);
    return tree->own ? check_shape(tree, NULL) : 0;
}

/* The nodes fill the tree and remove ranges in turns. */
static int random_ranges(struct remo_node *node, void *ctx) {
    static const struct remo_tree_key boundary = {"02", 2};
    const uint32_t *retain = ctx;
    const struct remo_tree_options options = {.owners = first_nodes(2),
                                              .boundaries = &boundary,
                                              .nodes = 100,
                                              .node_bytes = 512,
                                              .key_bytes_max = 4,
                                              .value_bytes_max = NUMBER_BYTES_MAX,
                                              .retain = *retain};
    struct remo__random random;
    struct remo_tree *tree;
    remo__random_seed(&random, 3 + remo_node_rank(node));
    CHECK(open_tree(node, &options, &tree) == 0);
    for (uint32_t round = 0; round < (is_mapped(node) ? 30u : 6u); round++) {
        if (round % 3 == remo_node_rank(node)) {
            CHECK(fill_up(tree, &random) == 0);
            for (uint32_t i = 0; i < 3; i++)
                CHECK(remove_random(tree, &random) == 0);
        }
        CHECK_OK(cluster_meet());
        CHECK(expect_model(tree) == 0);
        CHECK_OK(cluster_meet());
    }
    return close_tree(tree);
}

static uint32_t few_retained = 34, many_retained = 200;

/* ---- a full tree, cost, wrong ranges ---- */

static int insert_until_full(struct remo_tree *tree, uint32_t *count) {
    char key[8];
    int rc = 0;
    for (*count = 0; rc == 0; *count += rc == 0) {
        make_key(key, *count);
        rc = change_number(tree, remo_tree_insert, key, 20);
    }
    CHECK_CODE(rc, -ENOSPC);
    return 0;
}

/* Each call removes 64 keys, and the last one finds no more. */
static int remove_at_cost(struct remo_tree *tree, uint32_t keys) {
    struct remo_tree_range all = {.limit = 0};
    struct remo_stats before, after;
    uint64_t count = 0;
    remo_channel_stats(remo_tree_channel(tree), &before);
    CHECK_OK(remo_tree_remove_range(tree, &all, &count));
    remo_channel_stats(remo_tree_channel(tree), &after);
    CHECK_EQUAL(count, keys);
    CHECK_EQUAL(after.reads + after.atomics, before.reads + before.atomics);
    CHECK_EQUAL(after.writes - before.writes, tree->own ? 0 : keys / REMO_TREE_WRITES_MAX + 1);
    return 0;
}

static int wrong_ranges(struct remo_tree *tree) {
    const uint64_t snapshot[2] = {1, 1};
    struct remo_tree_range range = {.from = {"b", 1}, .to = {"a", 1}};
    uint64_t count = 77;
    CHECK_SENTENCE(remo_tree_remove_range(tree, &range, &count), -EINVAL, "after `to`");
    CHECK_EQUAL(count, 0);
    range = (struct remo_tree_range){.flags = REMO_TREE_DESCENDING};
    CHECK_SENTENCE(remo_tree_remove_range(tree, &range, &count), -EINVAL, "descending");
    range.flags = REMO_TREE_KEYS_ONLY;
    CHECK_SENTENCE(remo_tree_remove_range(tree, &range, &count), -EINVAL, "keys only");
    range.flags = 1 << 20;
    CHECK_SENTENCE(remo_tree_remove_range(tree, &range, &count), -EINVAL, "unknown flags");
    range = (struct remo_tree_range){.snapshot = snapshot};
    CHECK_SENTENCE(remo_tree_remove_range(tree, &range, &count), -EINVAL, "snapshot");
    range = (struct remo_tree_range){.from = {"a", 25}};
    CHECK_SENTENCE(remo_tree_remove_range(tree, &range, &count), -EINVAL, "too long");
    range = (struct remo_tree_range){.from = {"0001", 4}, .to = {"0001", 4}}; /* an empty range */
    CHECK_OK(remo_tree_remove_range(tree, &range, &count));
    CHECK_EQUAL(count, 0);
    return 0;
}

static int full(struct remo_node *node, void *ctx) {
    const struct remo_tree_options options = {SMALL, .owners = first_nodes(1), .nodes = 30, .retain = 100};
    struct remo_tree *tree;
    uint32_t count = 0;
    (void)ctx;
    CHECK(open_tree(node, &options, &tree) == 0);
    for (uint32_t rank = 0; rank < 2; rank++) {
        if (remo_node_rank(node) == rank) {
            CHECK(insert_until_full(tree, &count) == 0);
            CHECK(wrong_ranges(tree) == 0);
            CHECK(remove_at_cost(tree, count) == 0);
        }
        CHECK_OK(cluster_meet());
        CHECK(!tree->own || (check_shape(tree, NULL) == 0 && count_unused(tree) == 29));
        CHECK_OK(cluster_meet());
    }
    return close_tree(tree);
}

/* ---- the empty key, and keys that differ by a zero ---- */

static int zeros(struct remo_node *node, void *ctx) {
    static const struct remo_tree_key boundary = {"a\0", 2};
    static const struct {
        struct remo_tree_range range;
        uint64_t removed; /* of "", "a", "a\0", "a\0\0", "b" */
    } cases[] = {
        {{.to = {"", 0}}, 0},
        {{.to = {"", 0}, .flags = REMO_TREE_TO_INCLUDED}, 1},
        {{.from = {"", 0}, .to = {"a", 1}, .flags = REMO_TREE_FROM_EXCLUDED}, 0},
        {{.from = {"a", 1}, .to = {"a", 1}, .flags = REMO_TREE_TO_INCLUDED}, 1},
        {{.from = {"a", 1}, .flags = REMO_TREE_FROM_EXCLUDED, .limit = 1}, 1},
        {{.from = {"a\0", 2}, .to = {"b", 1}, .flags = REMO_TREE_FROM_EXCLUDED}, 1},
        {{.limit = 4}, 4},
        {{.from = {NULL, 0}}, 5},
    };
    static const struct remo_tree_key keys[] = {{"", 0}, {"a", 1}, {"a\0", 2}, {"a\0\0", 3}, {"b", 1}};
    const struct remo_tree_options options = {SMALL, .owners = first_nodes(2), .boundaries = &boundary};
    struct remo_tree *tree;
    uint64_t count;
    (void)ctx;
    CHECK(open_tree(node, &options, &tree) == 0);
    for (uint32_t i = 0; i < sizeof cases / sizeof cases[0] && remo_node_rank(node) == 1; i++) {
        for (uint32_t k = 0; k < 5; k++)
            CHECK_OK(remo_tree_upsert(tree, keys[k].data, keys[k].bytes, "v", 1));
        CHECK_OK(remo_tree_remove_range(tree, &cases[i].range, &count));
        CHECK_EQUAL(count, cases[i].removed);
        CHECK_OK(remo_tree_count(tree, NULL, &count));
        CHECK_EQUAL(count, 5 - cases[i].removed);
    }
    return close_tree(tree);
}

/* ---- beside insertions ---- */

/* A removal continues behind the keys that it has removed: a key that is inserted before them stays. */
static int continue_behind(struct remo_tree *tree) {
    struct tree_removal removal = {.limit = 1000};
    struct tree_removed removed;
    char key[8];
    for (uint32_t i = 0; i < 100; i++) {
        make_key(key, 100 + i);
        CHECK_OK(change_number(tree, remo_tree_insert, key, 20));
    }
    CHECK_OK(remo__tree_remove_some(tree, &removal, &removed));
    CHECK(removed.count == REMO_TREE_WRITES_MAX && !removed.is_done);
    CHECK_OK(change_number(tree, remo_tree_insert, "0000", 21));
    char next[8];
    CHECK(removed.next_bytes == 5);
    memcpy(next, removed.next, 5);
    removal.from = (struct tree_bytes){next, 5};
    CHECK_OK(remo__tree_remove_some(tree, &removal, &removed));
    CHECK(removed.count == 100 - REMO_TREE_WRITES_MAX && removed.is_done);
    CHECK_NUMBER(tree, "0000", 21);
    return remo_tree_remove(tree, "0000", 4);
}

/* Node 1 inserts ever smaller keys while node 2 removes all. No key is lost or counted twice. */
static int beside_insertions(struct remo_node *node, void *ctx) {
    const struct remo_tree_options options = {SMALL, .owners = first_nodes(1), .nodes = 8000};
    const struct remo_tree_range all = {.limit = 0};
    struct remo_tree *tree;
    char key[16];
    uint64_t removed = 0, count = 0, left = 0;
    uint32_t inserted = 0;
    (void)ctx;
    CHECK(open_tree(node, &options, &tree) == 0);
    CHECK(!tree->own || continue_behind(tree) == 0);
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 1) {
        while (!atomic_load(&shared->done) && inserted < 15000) {
            snprintf(key, sizeof key, "%08u", 99999999 - inserted++);
            CHECK_OK(change_number(tree, remo_tree_insert, key, 20));
            atomic_store(&shared->count, inserted);
        }
    } else if (remo_node_rank(node) == 2) {
        for (uint32_t i = 0; i < 10; i++) {
            CHECK_OK(remo_tree_remove_range(tree, &all, &count));
            removed += count;
        }
        atomic_store(&shared->done, 1);
    }
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 2) {
        CHECK_OK(remo_tree_count(tree, NULL, &left));
        CHECK_EQUAL(removed + left, atomic_load(&shared->count));
    }
    CHECK(!tree->own || check_shape(tree, NULL) == 0);
    return close_tree(tree);
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST_NAMED("random ranges", random_ranges, 3, .ctx = &many_retained),
        CLUSTER_TEST_NAMED("random ranges, few retained", random_ranges, 3, .ctx = &few_retained),
        CLUSTER_TEST(full, 2),
        CLUSTER_TEST(zeros, 2),
        CLUSTER_TEST(beside_insertions, 3),
        {0},
    };
    return tree_main(argc, argv, tests);
}
