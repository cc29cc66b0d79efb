/* test_tree.c - the tree between real nodes: every code of every call, keys and values of all lengths,
 * boundaries, tasks, wrong arguments. Other programs test changes, scans, costs and failures. */
#include <stdio.h>

#include "tree_common.h"

/* ---- an empty tree ---- */

static int empty(struct remo_node *node, void *ctx) {
    const struct remo_tree_options one_owner = {.owners = first_nodes(1)};
    struct remo_tree *tree;
    (void)ctx;
    CHECK(open_tree(node, NULL, &tree) == 0);
    CHECK(expect_nothing(tree) == 0);
    CHECK(close_tree(tree) == 0);
    CHECK(open_tree(node, &one_owner, &tree) == 0);
    CHECK(expect_nothing(tree) == 0);
    return close_tree(tree);
}

/* ---- every call and code, at the owner and at the other node ---- */

static int call_all(struct remo_tree *tree, const char *key) {
    uint32_t number;
    CHECK_OK(change_number(tree, remo_tree_insert, key, 1));
    CHECK_NUMBER(tree, key, 1);
    CHECK_SENTENCE(change_number(tree, remo_tree_insert, key, 2), -EEXIST, "has this key already");
    CHECK_NUMBER(tree, key, 1);
    CHECK_OK(change_number(tree, remo_tree_update, key, 3)); /* of another size */
    CHECK_NUMBER(tree, key, 3);
    CHECK_OK(change_number(tree, remo_tree_update, key, 3 + 21)); /* of the same size */
    CHECK_NUMBER(tree, key, 24);
    CHECK_OK(change_number(tree, remo_tree_upsert, key, 4));
    CHECK_NUMBER(tree, key, 4);
    CHECK_OK(remo_tree_remove(tree, key, strlen(key)));
    CHECK_SENTENCE(get_number(tree, key, &number), -ENOENT, "no such key");
    CHECK_SENTENCE(remo_tree_remove(tree, key, strlen(key)), -ENOENT, "no such key");
    CHECK_SENTENCE(change_number(tree, remo_tree_update, key, 5), -ENOENT, "no such key");
    CHECK_OK(change_number(tree, remo_tree_upsert, key, 6));
    CHECK_NUMBER(tree, key, 6);
    CHECK_OK(remo_tree_remove(tree, key, strlen(key)));
    return 0;
}

/* A value of 0 bytes may be NULL. */
static int call_without_value(struct remo_tree *tree, const char *key) {
    char value[8];
    size_t bytes = 77;
    CHECK_OK(remo_tree_insert(tree, key, strlen(key), NULL, 0));
    CHECK_OK(remo_tree_update(tree, key, strlen(key), NULL, 0));
    CHECK_OK(remo_tree_upsert(tree, key, strlen(key), NULL, 0));
    CHECK_OK(remo_tree_get(tree, key, strlen(key), value, sizeof value, &bytes));
    CHECK_EQUAL(bytes, 0);
    CHECK_OK(remo_tree_remove(tree, key, strlen(key)));
    return 0;
}

static int codes(struct remo_node *node, void *ctx) {
    const struct remo_tree_key boundary = {"m", 1};
    const struct remo_tree_options options = {.boundaries = &boundary};
    struct remo_tree *tree;
    (void)ctx;
    CHECK(open_tree(node, &options, &tree) == 0);
    for (uint32_t rank = 0; rank < 2; rank++) {
        if (remo_node_rank(node) == rank) {
            CHECK(call_all(tree, "l") == 0);
            CHECK(call_all(tree, "m") == 0);
            CHECK(call_without_value(tree, "lv") == 0);
            CHECK(call_without_value(tree, "mv") == 0);
            CHECK(expect_nothing(tree) == 0);
        }
        CHECK_OK(cluster_meet());
    }
    /* a change of one node is visible to the other */
    CHECK_OK(change_number(tree, remo_tree_insert, remo_node_rank(node) ? "la" : "ma", 7));
    CHECK_OK(cluster_meet());
    CHECK_NUMBER(tree, remo_node_rank(node) ? "ma" : "la", 7);
    CHECK_SENTENCE(change_number(tree, remo_tree_insert, remo_node_rank(node) ? "ma" : "la", 8), -EEXIST,
                   "already");
    return close_tree(tree);
}

/* ---- keys and values of all lengths ---- */

struct lengths {
    uint32_t node_bytes, key_bytes, value_bytes;
};

static void fill(unsigned char *bytes, size_t count, uint32_t seed) {
    for (size_t i = 0; i < count; i++)
        bytes[i] = (unsigned char)(seed * 13 + i * 7);
}

static int change_lengths(struct remo_tree *tree, const struct lengths *of, uint32_t key_bytes) {
    unsigned char key[REMO_TREE_KEY_BYTES_MAX + 1], value[REMO_TREE_VALUE_BYTES_MAX + 1],
        got[REMO_TREE_VALUE_BYTES_MAX + 1];
    const uint32_t sizes[] = {0, of->value_bytes, 1, of->value_bytes / 2, 0};
    size_t bytes = 0;
    memset(key, 'k', sizeof key);
    for (uint32_t i = 0; i < 5; i++) {
        fill(value, sizes[i], i + key_bytes);
        CHECK_OK((i == 0 ? remo_tree_insert : remo_tree_update)(tree, key, key_bytes, value, sizes[i]));
        memset(got, 0x5a, sizeof got);
        CHECK_OK(remo_tree_get(tree, key, key_bytes, got, sizes[i], &bytes)); /* exactly enough */
        CHECK_EQUAL(bytes, sizes[i]);
        CHECK(memcmp(got, value, bytes) == 0 && got[bytes] == 0x5a);
        if (sizes[i] > 0) {
            bytes = 0;
            CHECK_SENTENCE(remo_tree_get(tree, key, key_bytes, got, sizes[i] - 1, &bytes), -EMSGSIZE,
                           "larger");
            CHECK_EQUAL(bytes, sizes[i]);
        }
    }
    CHECK_SENTENCE(remo_tree_update(tree, key, key_bytes, value, of->value_bytes + 1), -EINVAL, "too long");
    fill(value, of->value_bytes, key_bytes);
    CHECK_OK(remo_tree_upsert(tree, key, key_bytes, value, of->value_bytes));
    return 0;
}

static int expect_lengths(struct remo_tree *tree, const struct lengths *of, const uint32_t *lengths,
                          uint32_t count) {
    unsigned char buffer[4 * (4 + REMO_TREE_KEY_BYTES_MAX + REMO_TREE_VALUE_BYTES_MAX)],
        value[REMO_TREE_VALUE_BYTES_MAX];
    struct remo_tree_result result;
    struct remo_tree_entry entry;
    size_t offset = 0;
    CHECK_OK(remo_tree_scan(tree, NULL, buffer, sizeof buffer, &result));
    CHECK(result.is_complete && result.entries == count);
    for (uint32_t i = 0; i < count; i++) {
        CHECK(remo_tree_result_next(buffer, &result, &offset, &entry));
        fill(value, of->value_bytes, lengths[i]);
        CHECK_EQUAL(entry.key.bytes, lengths[i]);
        CHECK_EQUAL(entry.value.bytes, of->value_bytes);
        CHECK(memcmp(entry.value.data, value, of->value_bytes) == 0);
    }
    CHECK(!remo_tree_result_next(buffer, &result, &offset, &entry));
    CHECK_EQUAL(offset, result.bytes);
    return 0;
}

/* Keys that are prefixes of each other: the shorter is first. */
static int lengths_of(struct remo_node *node, const struct lengths *of) {
    const struct remo_tree_options options = {.owners = first_nodes(1),
                                              .node_bytes = of->node_bytes,
                                              .key_bytes_max = of->key_bytes,
                                              .value_bytes_max = of->value_bytes};
    const uint32_t all[] = {0, 1, of->key_bytes / 2, of->key_bytes};
    uint32_t count = of->key_bytes > 3 ? 4 : 2;
    unsigned char key[REMO_TREE_KEY_BYTES_MAX + 1] = {0};
    struct remo_tree *tree;
    size_t bytes;
    CHECK(open_tree(node, &options, &tree) == 0);
    for (uint32_t rank = 0; rank < 2; rank++) {
        for (uint32_t i = count; i-- > 0 && remo_node_rank(node) == rank;)
            CHECK(change_lengths(tree, of, all[i]) == 0);
        CHECK_OK(cluster_meet());
        CHECK(expect_lengths(tree, of, all, count) == 0);
        CHECK_OK(cluster_meet());
        memset(key, 'k', sizeof key);
        for (uint32_t i = 0; i < count && remo_node_rank(node) == rank; i++)
            CHECK_OK(remo_tree_remove(tree, key, all[i]));
        CHECK_OK(cluster_meet());
    }
    CHECK_SENTENCE(remo_tree_get(tree, key, of->key_bytes + 1, key, 1, &bytes), -EINVAL, "too long");
    CHECK_SENTENCE(remo_tree_insert(tree, key, of->key_bytes + 1, "", 0), -EINVAL, "too long");
    CHECK_SENTENCE(remo_tree_upsert(tree, key, SIZE_MAX, "", 0), -EINVAL, "too long");
    CHECK_SENTENCE(remo_tree_remove(tree, key, of->key_bytes + 1), -EINVAL, "too long");
    return close_tree(tree);
}

static int lengths(struct remo_node *node, void *ctx) {
    static const struct lengths all[] = {{4096, 64, 256},
                                         {512, 1, 63},
                                         {512, 63, 1},
                                         {601, 33, 41}, /* nodes are not aligned */
                                         {32768, REMO_TREE_KEY_BYTES_MAX, 1},
                                         {32768, 1, REMO_TREE_VALUE_BYTES_MAX},
                                         {32768, REMO_TREE_KEY_BYTES_MAX, 4090 - REMO_TREE_KEY_BYTES_MAX}};
    (void)ctx;
    for (uint32_t i = 0; i < sizeof all / sizeof all[0]; i++)
        CHECK(lengths_of(node, &all[i]) == 0);
    return 0;
}

/* ---- boundaries ---- */

static int given_boundaries(struct remo_node *node) {
    static const struct remo_tree_key boundaries[] = {{"b", 1}, {"b\0", 2}};
    const struct remo_tree_options options = {.boundaries = boundaries};
    struct remo_tree *tree;
    CHECK(open_tree(node, &options, &tree) == 0);
    CHECK_EQUAL(remo_tree_owner(tree, "", 0), 0);
    CHECK_EQUAL(remo_tree_owner(tree, "a\xff\xff", 3), 0);
    CHECK_EQUAL(remo_tree_owner(tree, "b", 1), 1);
    CHECK_EQUAL(remo_tree_owner(tree, "b\0", 2), 2);
    CHECK_EQUAL(remo_tree_owner(tree, "b\0\0", 3), 2);
    CHECK_EQUAL(remo_tree_owner(tree, "\xff", 1), 2);
    return close_tree(tree);
}

/* The owners are nodes 1 and 2: the first has keys below 0x80. */
static int default_boundaries(struct remo_node *node) {
    struct remo_tree_options options = {.key_bytes_max = 1, .value_bytes_max = NUMBER_BYTES_MAX};
    struct remo_tree *tree;
    remo_nodeset_add(&options.owners, 1);
    remo_nodeset_add(&options.owners, 2);
    CHECK(open_tree(node, &options, &tree) == 0);
    CHECK_EQUAL(remo_tree_owner(tree, "", 0), 1);
    CHECK_EQUAL(remo_tree_owner(tree, "\x7f", 1), 1);
    CHECK_EQUAL(remo_tree_owner(tree, "\x7f\xff\xff\xff\xff\xff\xff\xff\xff", 9), 1);
    CHECK_EQUAL(remo_tree_owner(tree, "\x80", 1), 2);
    CHECK_EQUAL(remo_tree_owner(tree, "\x80\0\0\0\0\0\0\0", 8), 2);
    for (uint32_t i = 1 + remo_node_rank(node); i < 256; i += 3)
        CHECK_OK(change_number(tree, remo_tree_insert, (char[]){(char)i, 0}, i));
    CHECK_OK(cluster_meet());
    for (uint32_t i = 1; i < 256; i++)
        CHECK_NUMBER(tree, ((char[]){(char)i, 0}), i);
    CHECK(!tree->own || check_shape(tree, NULL) == 0);
    return close_tree(tree);
}

/* The third of three owners begins at 2^65 / 3. */
static int three_owners(struct remo_node *node) {
    struct remo_tree *tree;
    CHECK(open_tree(node, NULL, &tree) == 0);
    CHECK_EQUAL(remo_tree_owner(tree, "\x55\x55\x55\x55\x55\x55\x55\x54", 8), 0);
    CHECK_EQUAL(remo_tree_owner(tree, "\x55\x55\x55\x55\x55\x55\x55\x55", 8), 1);
    CHECK_EQUAL(remo_tree_owner(tree, "\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xa9", 8), 1);
    CHECK_EQUAL(remo_tree_owner(tree, "\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa", 8), 2);
    return close_tree(tree);
}

static int boundaries(struct remo_node *node, void *ctx) {
    (void)ctx;
    CHECK(given_boundaries(node) == 0);
    CHECK(default_boundaries(node) == 0);
    return three_owners(node);
}

/* Nodes whose owners or boundaries differ do not use the tree: a key could have two owners. */
static int refused(struct remo_node *node, const struct remo_tree_options *options) {
    char value[8];
    size_t bytes;
    struct remo_tree_result result;
    struct remo_tree *tree;
    CHECK_OK(remo_tree_open(remo_node_root(node), "tree", options, &tree));
    CHECK_SENTENCE(remo_channel_wait(remo_tree_channel(tree), 100 * SECOND), -EPROTO, "tree(");
    CHECK_OK(cluster_meet());
    CHECK_SENTENCE(remo_tree_insert(tree, "x", 1, "y", 1), -EPROTO, "tree(");
    CHECK_SENTENCE(remo_tree_get(tree, "x", 1, value, sizeof value, &bytes), -EPROTO, "tree(");
    CHECK_SENTENCE(remo_tree_scan(tree, NULL, value, sizeof value, &result), -EPROTO, "tree(");
    return close_tree(tree);
}

static int different_options(struct remo_node *node, void *ctx) {
    const struct remo_tree_key boundary = {remo_node_rank(node) ? "a" : "y", 1};
    (void)ctx;
    CHECK(refused(node,
                  &(struct remo_tree_options){.owners = first_nodes(1), .retain = 300 + remo_node_rank(node)})
          == 0);
    return refused(node, &(struct remo_tree_options){.owners = first_nodes(2), .boundaries = &boundary});
}

/* ---- tasks: the calls of several tasks of one thread overlap ---- */

#define TASKS 8u
#define TASK_STEPS 60u

struct tasks {
    struct remo_tree *tree;
    uint32_t next, in_flight, in_flight_max;
};

static int change_in_task(struct tasks *tasks, uint32_t number) {
    char key[16], buffer[2048];
    struct remo_tree_result result;
    struct remo_tree_range range = {.from = {key, 2}, .limit = 5};
    for (uint32_t i = 1; i <= TASK_STEPS; i++) {
        snprintf(key, sizeof key, "%02u.%u", number, i % 20);
        tasks->in_flight++;
        tasks->in_flight_max =
            tasks->in_flight > tasks->in_flight_max ? tasks->in_flight : tasks->in_flight_max;
        CHECK_OK(change_number(tasks->tree, remo_tree_upsert, key, i));
        CHECK_NUMBER(tasks->tree, key, i);
        CHECK_OK(remo_tree_scan(tasks->tree, &range, buffer, sizeof buffer, &result));
        CHECK(result.entries > 0);
        tasks->in_flight--;
        remo_task_yield();
    }
    return 0;
}

static int run_task(void *ctx) {
    struct tasks *tasks = ctx;
    return change_in_task(tasks, tasks->next++);
}

static int tasks(struct remo_node *node, void *ctx) {
    const struct remo_tree_key boundary = {"04", 2};
    const struct remo_tree_options options = {SMALL, .owners = first_nodes(2), .boundaries = &boundary};
    struct tasks tasks = {.next = remo_node_rank(node) * TASKS};
    struct remo_scheduler *scheduler;
    remo_task_id ids[TASKS];
    (void)ctx;
    CHECK(open_tree(node, &options, &tasks.tree) == 0);
    CHECK_OK(remo_scheduler_open(node, NULL, &scheduler));
    for (uint32_t i = 0; i < TASKS; i++)
        CHECK_OK(remo_task_spawn(scheduler, run_task, &tasks, &ids[i]));
    for (uint32_t i = 0; i < TASKS; i++) {
        int result = -1;
        CHECK_OK(remo_task_join(scheduler, ids[i], REMO_FOREVER, &result));
        CHECK_CODE(result, 0);
    }
    CHECK(is_mapped(node) || tasks.tree->own || tasks.in_flight_max == TASKS);
    CHECK_OK(remo_scheduler_close(scheduler));
    CHECK_OK(cluster_meet());
    CHECK(!tasks.tree->own || check_shape(tasks.tree, NULL) == 0);
    return close_tree(tasks.tree);
}

/* ---- wrong options ---- */

static int wrong_sizes(struct remo_channel *root) {
    static const struct remo_tree_options wrong[] = {
        {.node_bytes = 511},
        {.node_bytes = 32769},
        {.node_bytes = UINT32_MAX},
        {.node_bytes = 2048}, /* 64 + 256 > 2048 / 8 */
        {.node_bytes = 512, .key_bytes_max = 32, .value_bytes_max = 33},
        {.node_bytes = 32768, .key_bytes_max = REMO_TREE_KEY_BYTES_MAX + 1, .value_bytes_max = 1},
        {.node_bytes = 32768, .key_bytes_max = 1, .value_bytes_max = REMO_TREE_VALUE_BYTES_MAX + 1},
        {.node_bytes = 32768, .key_bytes_max = 1024, .value_bytes_max = 3067}, /* a request is too long */
        {.key_bytes_max = UINT32_MAX, .value_bytes_max = 2},
        {.key_bytes_max = 1, .value_bytes_max = UINT32_MAX},
        {.retain = 33},
        {.nodes = UINT32_MAX},
        {.nodes = REMO_VERSIONED_OBJECTS_MAX + 1},
        {.retain = UINT32_MAX},
    };
    static const char *const words[] = {"node_bytes = 511",
                                        "node_bytes = 32769",
                                        "node_bytes = 4294967295",
                                        "eighth",
                                        "eighth",
                                        "1025",
                                        "3073",
                                        "4090",
                                        "4294967295",
                                        "4294967295",
                                        "retain = 33",
                                        "4294967295",
                                        "8388609",
                                        "retain"};
    struct remo_tree *tree = NULL;
    for (uint32_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        CHECK_SENTENCE(remo_tree_open(root, "t", &wrong[i], &tree), -EINVAL, words[i]);
    CHECK(!tree);
    return 0;
}

static int wrong_boundaries(struct remo_channel *root) {
    static const struct remo_tree_key wrong[][2] = {{{"b", 1}, {"b", 1}},
                                                    {{"b", 1}, {"a", 1}},
                                                    {{"a\0", 2}, {"a", 1}},
                                                    {{NULL, 1}, {"a", 1}},
                                                    {{"a", 1}, {NULL, 0}}};
    const char long_key[65] = "";
    const struct remo_tree_key too_long[] = {{long_key, 65}, {"a", 1}};
    struct remo_tree *tree = NULL;
    struct remo_tree_options options = {0};
    for (uint32_t i = 0; i < 5; i++) {
        options.boundaries = wrong[i];
        CHECK_SENTENCE(remo_tree_open(root, "t", &options, &tree), -EINVAL, "boundary");
    }
    options.boundaries = too_long;
    CHECK_SENTENCE(remo_tree_open(root, "t", &options, &tree), -EINVAL, "boundary 0");
    return 0;
}

static int errors(struct remo_node *node, void *ctx) {
    struct remo_channel *root = remo_node_root(node);
    struct remo_tree *tree = NULL;
    struct remo_tree_options options = {0};
    (void)ctx;
    CHECK(wrong_sizes(root) == 0);
    CHECK(wrong_boundaries(root) == 0);
    remo_nodeset_add(&options.participants, remo_node_rank(node));
    remo_nodeset_add(&options.owners, (remo_node_rank(node) + 1) % 3);
    CHECK_SENTENCE(remo_tree_open(root, "t", &options, &tree), -EINVAL, "owner");
    CHECK_CODE(remo_tree_open(root, "a/b", NULL, &tree), -EINVAL);
    CHECK(!tree);
    /* the failed attempts have left nothing behind */
    CHECK(open_tree(node, NULL, &tree) == 0);
    CHECK(expect_nothing(tree) == 0);
    return close_tree(tree);
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(empty, 3),
        CLUSTER_TEST(codes, 2),
        CLUSTER_TEST(lengths, 2),
        CLUSTER_TEST(boundaries, 3),
        CLUSTER_TEST(different_options, 2),
        CLUSTER_TEST(tasks, 3),
        CLUSTER_TEST(errors, 3),
        {0},
    };
    return tree_main(argc, argv, tests);
}
