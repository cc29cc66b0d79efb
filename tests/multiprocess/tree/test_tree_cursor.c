/* test_tree_cursor.c - cursors: steps and seeks in both directions against a model, beside changes, as of a
 * snapshot, past an owner that has failed; their cost, and wrong arguments. */
#include <stdio.h>

#include "base/random.h"

#include "tree_common.h"

#define KEYS 300u /* present: the even numbers below 2 * KEYS */
#define ENTRY_BYTES 15u
#define NO_LIMIT UINT64_MAX

static const struct remo_tree_key boundaries[] = {{"2", 1}, {"250", 3}}; /* one leaf, and many */

static struct remo_tree_key make_cursor_key(char *key, uint32_t number) {
    snprintf(key, 4, "%03u", number % 1000);
    return (struct remo_tree_key){key, 3};
}

static int open_filled(struct remo_node *node, uint32_t owners, struct remo_tree **ret_tree) {
    const struct remo_tree_options options = {SMALL, .owners = first_nodes(owners),
                                              .boundaries = owners > 1 ? boundaries : NULL};
    CHECK(open_tree(node, &options, ret_tree) == 0);
    for (uint32_t i = remo_node_rank(node); i < KEYS; i += remo_node_size(node)) {
        char key[4];
        make_cursor_key(key, 2 * i);
        CHECK_OK(remo_tree_insert(*ret_tree, key, 3, "12345678", 8));
    }
    CHECK_OK(cluster_meet());
    return 0;
}

/* ---- a model of a cursor over entries that do not change ---- */

struct model {
    uint32_t numbers[KEYS], count; /* of the range, ascending */
    bool is_descending;
    uint32_t left, right; /* 1 + index of the entries to which steps lead; 0, count + 1: none */
    uint64_t limit;       /* entries that it still returns */
};

static void model_open(struct model *model, uint32_t from, uint32_t to, const struct remo_tree_range *range) {
    *model = (struct model){.is_descending = range->flags & REMO_TREE_DESCENDING, .right = 1};
    for (uint32_t number = 0; number < 2 * KEYS; number += 2) {
        bool is_above = !range->from.data || number > from
                        || (number == from && !(range->flags & REMO_TREE_FROM_EXCLUDED)),
             is_below =
                 !range->to.data || number < to || (number == to && range->flags & REMO_TREE_TO_INCLUDED);
        if (is_above && is_below)
            model->numbers[model->count++] = number;
    }
    model->left = model->count;
    model->limit = range->limit > 0 ? range->limit : NO_LIMIT;
}

static void model_seek(struct model *model, uint32_t number) {
    model->left = 0;
    while (model->left < model->count
           && (model->is_descending ? model->numbers[model->left] <= number
                                    : model->numbers[model->left] < number))
        model->left++;
    model->right = model->left + 1;
}

/* Return the number of the entry to which a step leads, or UINT32_MAX. */
static uint32_t model_step(struct model *model, bool is_next) {
    bool is_left = is_next == model->is_descending;
    uint32_t to = is_left ? model->left : model->right;
    if (model->limit == 0)
        return UINT32_MAX;
    bool is_end = to == 0 || to == model->count + 1;
    model->left = is_end ? (is_left ? 0 : model->count) : to - 1;
    model->right = model->left + (is_end ? 1 : 2);
    model->limit -= !is_end && model->limit != NO_LIMIT;
    return is_end ? UINT32_MAX : model->numbers[to - 1];
}

static int expect_step(struct remo_tree_cursor *cursor, struct model *model, bool is_next, bool has_value) {
    struct remo_tree_entry entry = {0};
    uint32_t number = model_step(model, is_next);
    char key[4];
    int rc = (is_next ? remo_tree_cursor_next : remo_tree_cursor_prev)(cursor, &entry);
    CHECK_EQUAL(rc, number != UINT32_MAX);
    if (rc == 0)
        return 0;
    make_cursor_key(key, number);
    CHECK(entry.key.bytes == 3 && memcmp(entry.key.data, key, 3) == 0);
    CHECK_EQUAL(entry.value.bytes, has_value ? 8 : 0);
    CHECK(!has_value || memcmp(entry.value.data, "12345678", 8) == 0);
    return 0;
}

/* Run in one direction for some steps, then seek, turn, or go on. */
static int walk_randomly(struct remo_tree_cursor *cursor, struct model *model, struct remo__random *random,
                         bool has_value) {
    for (uint32_t i = 0; i < 30; i++) {
        bool is_next = remo__random_below(random, 2);
        uint32_t steps = (uint32_t)remo__random_below(random, i % 3 == 0 ? 400 : 6);
        char key[4];
        if (i > 0 && remo__random_below(random, 3) == 0) {
            uint32_t number = (uint32_t)remo__random_below(random, 620);
            make_cursor_key(key, number);
            CHECK_OK(remo_tree_cursor_seek(cursor, key, 3));
            model_seek(model, number);
        } else if (remo__random_below(random, 8) == 0) {
            CHECK_OK(remo_tree_cursor_seek(cursor, NULL, 0));
            model->left = model->count;
            model->right = 1;
        }
        for (uint32_t step = 0; step < steps; step++)
            CHECK(expect_step(cursor, model, is_next, has_value) == 0);
    }
    return 0;
}

/* Ranges of every kind: all flags, limits, snapshots and sizes of the buffer. */
static int walks(struct remo_node *node, void *ctx) {
    static const uint16_t rooms[] = {0, ENTRY_BYTES, 2 * ENTRY_BYTES, 100, 1000, 5000};
    struct remo_tree *tree;
    struct remo__random random;
    uint64_t snapshot[4];
    (void)ctx;
    CHECK(open_filled(node, 3, &tree) == 0);
    CHECK_OK(remo_tree_snapshot(tree, snapshot));
    remo__random_seed(&random, 1 + remo_node_rank(node));
    for (uint32_t i = 0; i < (is_mapped(node) ? 480 : 96); i++) {
        char keys[2][4];
        uint32_t from = (uint32_t)remo__random_below(&random, 620),
                 to = from + (uint32_t)remo__random_below(&random, 620 - from);
        struct remo_tree_range range = {
            .flags = i % 16, .snapshot = i % 3 == 0 ? snapshot : NULL, .limit = i % 7 == 0 ? 1 + i % 60 : 0};
        range.from = i % 5 == 0 ? (struct remo_tree_key){0} : make_cursor_key(keys[0], from);
        range.to = i % 11 == 0 ? (struct remo_tree_key){0} : make_cursor_key(keys[1], to);
        struct remo_tree_cursor *cursor;
        struct model model;
        CHECK_OK(remo_tree_cursor_open(tree, &range, rooms[i % 6], &cursor));
        memset(keys, 0, sizeof keys); /* the cursor has copies */
        model_open(&model, from, to, &range);
        int result = walk_randomly(cursor, &model, &random, !(range.flags & REMO_TREE_KEYS_ONLY));
        remo_tree_cursor_close(cursor);
        if (result != 0)
            return fprintf(stderr, "range %u: from %u to %u, flags %u\n", i, from, to, range.flags), 1;
    }
    return close_tree(tree);
}

/* ---- beside changes ---- */

/* Walk over all keys. Even numbers stay; odd ones are inserted and removed. A descending walk uses `prev`. */
static int walk_beside_changes(struct remo_tree *tree, bool is_descending) {
    struct remo_tree_cursor *cursor;
    struct remo_tree_entry entry;
    uint32_t stayed = 0;
    char last[4] = "", key[4];
    int rc;
    CHECK_OK(remo_tree_cursor_open(tree, NULL, 300, &cursor));
    while ((rc = (is_descending ? remo_tree_cursor_prev : remo_tree_cursor_next)(cursor, &entry)) == 1) {
        CHECK_EQUAL(entry.key.bytes, 3);
        memcpy(key, entry.key.data, 3);
        key[3] = 0;
        uint32_t number = (uint32_t)atoi(key);
        CHECK(last[0] == 0 || (is_descending ? strcmp(key, last) < 0 : strcmp(key, last) > 0));
        memcpy(last, key, 4);
        CHECK(number_of(entry.value.data, entry.value.bytes) != 0 || number % 2 == 0);
        stayed += number % 2 == 0;
    }
    CHECK_CODE(rc, 0);
    CHECK_EQUAL(stayed, KEYS);
    remo_tree_cursor_close(cursor);
    return 0;
}

/* Node 2 inserts and removes odd numbers, which splits and merges leaves. Nodes 0 and 1 walk. */
static int beside_changes(struct remo_node *node, void *ctx) {
    struct remo_tree *tree;
    (void)ctx;
    CHECK(open_filled(node, 2, &tree) == 0);
    if (remo_node_rank(node) == 2) {
        for (uint32_t i = 0; atomic_load(&shared->done) < 2; i++) {
            char key[4];
            make_cursor_key(key, 1 + i % KEYS * 2);
            CHECK_OK(i / KEYS % 2 == 0 ? change_number(tree, remo_tree_insert, key, 1 + i)
                                       : remo_tree_remove(tree, key, 3));
        }
    } else {
        int result = 0;
        for (uint32_t i = 0; i < (is_mapped(node) ? 400 : 20) && result == 0; i++)
            result = walk_beside_changes(tree, i % 2);
        atomic_fetch_add(&shared->done, 1);
        CHECK_EQUAL(result, 0);
    }
    return close_tree(tree);
}

/* The cursor was opened before the changes, and reads its pages after them. */
static int as_of_snapshot(struct remo_node *node, void *ctx) {
    struct remo_tree *tree;
    struct remo_tree_cursor *cursor;
    struct model model;
    uint64_t snapshot[4];
    struct remo_tree_range range = {.snapshot = snapshot};
    (void)ctx;
    CHECK(open_filled(node, 3, &tree) == 0);
    CHECK_OK(remo_tree_snapshot(tree, snapshot));
    CHECK_OK(remo_tree_cursor_open(tree, &range, 100, &cursor));
    model_open(&model, 0, 0, &range);
    memset(snapshot, 0, sizeof snapshot);
    CHECK(expect_step(cursor, &model, true, true) == 0);
    CHECK_OK(cluster_meet());
    for (uint32_t i = remo_node_rank(node); i < KEYS; i += 3) {
        char key[4];
        make_cursor_key(key, 2 * i);
        CHECK_OK(i % 2 ? remo_tree_remove(tree, key, 3) : remo_tree_update(tree, key, 3, "new", 3));
    }
    CHECK_OK(cluster_meet());
    for (uint32_t i = 0; i < 2 * KEYS + 2; i++)
        CHECK(expect_step(cursor, &model, i < KEYS, true) == 0);
    remo_tree_cursor_close(cursor);
    return close_tree(tree);
}

/* ---- cost ---- */

/* Seek and make one step: 1 read of the version, unless there is a snapshot, and those of the leaves of a
 * page of 32 entries. A scan reads up to 15 leaves below a parent at the same time, as many as it estimates
 * from the leaves before; the page may need those below two parents. The other steps in the page are free. */
static int seek_at_cost(struct remo_tree *tree, struct remo_tree_cursor *cursor, uint32_t number,
                        bool is_current) {
    struct remo_channel *channel = remo_tree_channel(tree);
    struct remo_stats before, after;
    struct remo_tree_entry entry;
    char key[4];
    make_cursor_key(key, number);
    CHECK_COST(channel, CHECK_OK(remo_tree_cursor_seek(cursor, key, 3)), 0, 0, 0, 0);
    remo_channel_stats(channel, &before);
    CHECK_CODE(remo_tree_cursor_next(cursor, &entry), 1);
    remo_channel_stats(channel, &after);
    uint64_t reads = after.reads - before.reads;
    CHECK(reads >= 1u + is_current && reads <= 30u + is_current);
    CHECK_EQUAL(after.writes + after.imms + after.atomics, before.writes + before.imms + before.atomics);
    CHECK_COST(channel,
               for (uint32_t i = 0; i < 100; i++) CHECK_CODE(
                   (i / 25 % 2 ? remo_tree_cursor_prev : remo_tree_cursor_next)(cursor, &entry), 1),
               0, 0, 0, 0);
    return 0;
}

/* Node 0 is the owner. */
static int cost(struct remo_node *node, void *ctx) {
    struct remo_tree *tree;
    struct remo_tree_cursor *cursor, *past;
    struct remo_tree_entry entry;
    uint64_t snapshot[4];
    (void)ctx;
    CHECK(open_filled(node, 1, &tree) == 0);
    CHECK_OK(remo_tree_snapshot(tree, snapshot));
    CHECK_COST(remo_tree_channel(tree), CHECK_OK(remo_tree_cursor_open(tree, NULL, 0, &cursor)), 0, 0, 0, 0);
    CHECK_OK(
        remo_tree_cursor_open(tree, &(struct remo_tree_range){.snapshot = snapshot, .flags = 0}, 0, &past));
    for (uint32_t i = 0; i < KEYS + 1; i++) /* the thread caches the inner nodes and the places of leaves */
        CHECK_CODE(remo_tree_cursor_next(cursor, &entry), i < KEYS);
    if (tree->own)
        CHECK_COST(remo_tree_channel(tree), CHECK_OK(walk_beside_changes(tree, true)), 0, 0, 0, 0);
    for (uint32_t i = 0; i < 500 && !tree->own; i += 77) {
        CHECK(seek_at_cost(tree, cursor, i, true) == 0);
        CHECK(seek_at_cost(tree, past, i, false) == 0);
    }
    remo_tree_cursor_close(cursor);
    remo_tree_cursor_close(past);
    return close_tree(tree);
}

/* ---- an owner that fails ---- */

/* The keys of node 1 are lost: from "2" up to "250". */
static int walk_past_lost(struct remo_tree *tree, bool is_descending) {
    struct remo_tree_range range = {.flags = is_descending ? REMO_TREE_DESCENDING : 0};
    struct remo_tree_cursor *cursor;
    struct remo_tree_entry entry;
    uint32_t lost = 0, before = 0, count = 0;
    int rc;
    CHECK_OK(remo_tree_cursor_open(tree, &range, 0, &cursor));
    while ((rc = remo_tree_cursor_next(cursor, &entry)) != 0) {
        count += rc == 1;
        lost += rc != 1;
        before = rc == 1 ? before : count;
        CHECK(rc == 1 || rc == -EHOSTDOWN);
    }
    CHECK_EQUAL(lost, 1);
    CHECK_EQUAL(before, is_descending ? 175 : 100);
    CHECK_EQUAL(count, 275);
    CHECK_OK(remo_tree_cursor_seek(cursor, "2", 1)); /* a key of node 1 */
    CHECK_CODE(remo_tree_cursor_next(cursor, &entry), -EHOSTDOWN);
    CHECK_CODE(remo_tree_cursor_next(cursor, &entry), 1);
    CHECK(memcmp(entry.key.data, is_descending ? "198" : "250", 3) == 0);
    remo_tree_cursor_close(cursor);
    return 0;
}

static int owner_fails(struct remo_node *node, void *ctx) {
    struct remo_tree *tree;
    (void)ctx;
    CHECK(open_filled(node, 3, &tree) == 0);
    if (remo_node_rank(node) == 1)
        for (;;)
            cluster_sleep_ms(1000);
    if (remo_node_rank(node) == 2)
        CHECK_OK(cluster_kill(1));
    cluster_await_cut_off(node, 1);
    CHECK(walk_past_lost(tree, false) == 0);
    CHECK(walk_past_lost(tree, true) == 0);
    CHECK_OK(cluster_meet());
    remo_tree_close(tree);
    return 0;
}

/* ---- errors at the first key of an owner ---- */

static int expect_key(int rc, const struct remo_tree_entry *entry, const char *key) {
    CHECK_CODE(rc, 1);
    CHECK(entry->key.bytes == 3 && memcmp(entry->key.data, key, 3) == 0);
    return 0;
}

/* The first entry of the last owner does not fit in the buffer: the cursor stays at the last entry of the
 * owner before, and does not return it again. */
static int too_long(struct remo_node *node, void *ctx) {
    struct remo_tree *tree;
    struct remo_tree_cursor *cursor;
    struct remo_tree_entry entry;
    (void)ctx;
    CHECK(open_filled(node, 3, &tree) == 0);
    if (remo_node_rank(node) == 0)
        CHECK_OK(remo_tree_update(tree, "250", 3, "123456789", 9));
    CHECK_OK(cluster_meet());
    for (uint32_t pages = 1; pages <= 2; pages++) { /* of one entry, and of the rest of an owner */
        CHECK_OK(remo_tree_cursor_open(tree, NULL, ENTRY_BYTES * (pages == 1 ? 1 : 40), &cursor));
        CHECK_OK(remo_tree_cursor_seek(cursor, pages == 1 ? "248" : "240", 3));
        for (uint32_t i = pages == 1 ? 248 : 240; i < 248; i += 2)
            CHECK_CODE(remo_tree_cursor_next(cursor, &entry), 1);
        CHECK(expect_key(remo_tree_cursor_next(cursor, &entry), &entry, "248") == 0);
        for (uint32_t i = 0; i < 2 && pages == 1; i++)
            CHECK_SENTENCE(remo_tree_cursor_next(cursor, &entry), -EMSGSIZE, "15 bytes");
        CHECK(expect_key(remo_tree_cursor_prev(cursor, &entry), &entry, "246") == 0);
        CHECK(expect_key(remo_tree_cursor_next(cursor, &entry), &entry, "248") == 0);
        remo_tree_cursor_close(cursor);
    }
    CHECK_OK(remo_tree_cursor_open(tree, NULL, ENTRY_BYTES, &cursor));
    CHECK_OK(remo_tree_cursor_seek(cursor, "252", 3));
    CHECK_CODE(remo_tree_cursor_prev(cursor, &entry), -EMSGSIZE);
    CHECK(expect_key(remo_tree_cursor_next(cursor, &entry), &entry, "252") == 0);
    remo_tree_cursor_close(cursor);
    return close_tree(tree);
}

/* Keys that are shorter than 8 bytes are divided evenly, too. */
static int short_keys(struct remo_node *node, void *ctx) {
    struct remo_tree *tree;
    struct remo_tree_entry entry;
    uint64_t removed;
    (void)ctx;
    for (uint32_t key_bytes = 1; key_bytes <= 4; key_bytes += 3) {
        const struct remo_tree_options options = {
            .node_bytes = 512, .key_bytes_max = key_bytes, .value_bytes_max = 8};
        struct remo_tree_cursor *cursor;
        CHECK(open_tree(node, &options, &tree) == 0);
        for (uint32_t i = remo_node_rank(node); i < 26; i += remo_node_size(node))
            CHECK_OK(remo_tree_insert(tree, &(char){(char)(10 * i)}, 1, "v", 1));
        CHECK_OK(cluster_meet());
        CHECK_OK(remo_tree_cursor_open(tree, NULL, 0, &cursor));
        for (uint32_t i = 0; i < 26; i++) {
            CHECK_CODE(remo_tree_cursor_next(cursor, &entry), 1);
            CHECK(*(const unsigned char *)entry.key.data == 10 * i);
        }
        for (uint32_t i = 0; i < 26; i++)
            CHECK_CODE(remo_tree_cursor_prev(cursor, &entry), i < 25);
        remo_tree_cursor_close(cursor);
        CHECK_OK(cluster_meet());
        if (remo_node_rank(node) == 0)
            CHECK_OK(remo_tree_remove_range(tree, &(struct remo_tree_range){.flags = 0}, &removed));
        CHECK(remo_node_rank(node) != 0 || removed == 26);
        CHECK(close_tree(tree) == 0);
    }
    return 0;
}

/* ---- wrong arguments ---- */

static int codes(struct remo_node *node, void *ctx) {
    struct remo_tree *tree;
    struct remo_tree_cursor *cursor = NULL;
    struct remo_tree_entry entry;
    uint64_t zeros[4] = {0};
    (void)ctx;
    CHECK(open_filled(node, 3, &tree) == 0);
    const struct remo_tree_range wrong[] = {
        {.from = {"b", 1}, .to = {"a", 1}}, {.flags = 16}, {.from = {"x", 25}}, {.snapshot = zeros}};
    static const char *const words[] = {"`from` is after `to`", "unknown flags 0x10", "too long",
                                        "remo_tree_snapshot"};
    for (uint32_t i = 0; i < 4; i++)
        CHECK_SENTENCE(remo_tree_cursor_open(tree, &wrong[i], 0, &cursor), -EINVAL, words[i]);
    CHECK_SENTENCE(remo_tree_cursor_open(tree, NULL, (1u << 30) + 1, &cursor), -EINVAL, "1073741824");
    CHECK(!cursor);
    CHECK_OK(remo_tree_cursor_open(tree, NULL, ENTRY_BYTES - 1, &cursor));
    for (uint32_t i = 0; i < 3; i++) /* the cursor does not move */
        CHECK_SENTENCE(remo_tree_cursor_next(cursor, &entry), -EMSGSIZE, "14 bytes");
    CHECK_SENTENCE(remo_tree_cursor_seek(cursor, "x", 25), -EINVAL, "too long");
    CHECK_OK(remo_tree_cursor_seek(cursor, "x", 1));
    CHECK_CODE(remo_tree_cursor_next(cursor, &entry), 0);
    CHECK(close_tree(tree) == 0);
    remo_tree_cursor_close(cursor); /* after the tree */
    remo_tree_cursor_close(NULL);
    return 0;
}

/* ---- damage ---- */

/* A leaf has a key that is longer than key_bytes_max, for which the cursor has no memory. */
static int damaged(struct remo_node *node, void *ctx) {
    const struct remo_tree_options options = {SMALL, .owners = first_nodes(1)};
    static const char key[200] = "key";
    char leaf[512];
    struct tree_ranges ranges;
    struct remo_tree *tree;
    struct remo_tree_cursor *cursor;
    struct remo_tree_entry entry;
    (void)ctx;
    CHECK(open_tree(node, &options, &tree) == 0);
    remo__tree_node_init(leaf, sizeof leaf, 0, (struct tree_bytes){NULL, 0}, NULL);
    CHECK(remo__tree_node_insert(leaf, sizeof leaf, (struct tree_bytes){"a", 1}, (struct tree_bytes){"b", 1},
                                 &ranges));
    CHECK(remo__tree_node_insert(leaf, sizeof leaf, (struct tree_bytes){key, 100},
                                 (struct tree_bytes){"b", 1}, &ranges));
    const struct remo_versioned_change change = {
        .object = TREE_ROOT, .size_bytes = sizeof leaf, .data = leaf};
    if (remo_node_rank(node) == 0)
        CHECK_OK(remo_versioned_commit(tree->nodes, &change, 1, NULL));
    CHECK_OK(cluster_meet());
    CHECK_OK(remo_tree_cursor_open(tree, NULL, 0, &cursor));
    CHECK_CODE(remo_tree_cursor_next(cursor, &entry), 1);
    for (uint32_t i = 0; i < 2; i++)
        CHECK_SENTENCE(remo_tree_cursor_next(cursor, &entry), -EPROTO, "node 0 is damaged");
    remo_tree_cursor_close(cursor);
    return close_tree(tree);
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(walks, 3),          CLUSTER_TEST(beside_changes, 3),
        CLUSTER_TEST(as_of_snapshot, 3), CLUSTER_TEST(cost, 2),
        CLUSTER_TEST(owner_fails, 3),    CLUSTER_TEST(too_long, 3),
        CLUSTER_TEST(short_keys, 3),     CLUSTER_TEST(codes, 3),
        CLUSTER_TEST(damaged, 2),        {0},
    };
    return tree_main(argc, argv, tests);
}
