/* test_tree_apply.c - compare_put, and several writes at one instant: codes, order, limits and cost; random
 * applies against a model, until no node is free; scans that see all writes of an apply or none. */
#include <stdio.h>

#include "base/random.h"

#include "tree_common.h"

#define SMALL .node_bytes = 512, .key_bytes_max = 24, .value_bytes_max = NUMBER_BYTES_MAX

/* ---- compare_put ---- */

static int compare_all(struct remo_tree *tree, const char *key) {
    size_t bytes = strlen(key);
    CHECK_SENTENCE(remo_tree_compare_put(tree, key, bytes, "", 0, "v", 1), -ENOENT, "no such key");
    CHECK_OK(remo_tree_insert(tree, key, bytes, "abc", 3));
    CHECK_SENTENCE(remo_tree_compare_put(tree, key, bytes, "abd", 3, "new", 3), -ESTALE, "not the expected");
    CHECK_CODE(remo_tree_compare_put(tree, key, bytes, "ab", 2, "new", 3), -ESTALE);
    CHECK_CODE(remo_tree_compare_put(tree, key, bytes, "abc\0", 4, "new", 3), -ESTALE);
    char value[8];
    size_t value_bytes;
    CHECK_OK(remo_tree_get(tree, key, bytes, value, sizeof value, &value_bytes));
    CHECK(value_bytes == 3 && memcmp(value, "abc", 3) == 0);
    CHECK_OK(remo_tree_compare_put(tree, key, bytes, "abc", 3, "", 0));
    CHECK_OK(remo_tree_compare_put(tree, key, bytes, "", 0, "longer", 6));
    CHECK_OK(remo_tree_get(tree, key, bytes, value, sizeof value, &value_bytes));
    CHECK(value_bytes == 6 && memcmp(value, "longer", 6) == 0);
    return remo_tree_remove(tree, key, bytes);
}

/* The request of the longest values does not fit into a call: this does not depend on the calling node. */
static int compare_long(struct remo_tree *tree) {
    static char value[3000];
    CHECK_OK(remo_tree_upsert(tree, "k", 1, value, 2000));
    CHECK_OK(remo_tree_compare_put(tree, "k", 1, value, 2000, value, 2089));
    CHECK_SENTENCE(remo_tree_compare_put(tree, "k", 1, value, 2089, value, 2001), -EMSGSIZE,
                   "maximum is 4090");
    CHECK_SENTENCE(remo_tree_compare_put(tree, "k", 1, value, 3001, value, 1), -EINVAL, "too long");
    CHECK_SENTENCE(remo_tree_compare_put(tree, "k", 1, value, 1, value, 3001), -EINVAL, "too long");
    return 0;
}

#define ADDITIONS 300u

/* All nodes add to one counter. */
static int count_up(struct remo_tree *tree) {
    uint64_t value, sum;
    size_t bytes;
    for (uint32_t i = 0; i < ADDITIONS;) {
        CHECK_OK(remo_tree_get(tree, "counter", 7, &value, sizeof value, &bytes));
        sum = value + 1;
        int rc = remo_tree_compare_put(tree, "counter", 7, &value, sizeof value, &sum, sizeof sum);
        CHECK(rc == 0 || rc == -ESTALE);
        i += rc == 0;
    }
    CHECK_OK(cluster_meet());
    CHECK_OK(remo_tree_get(tree, "counter", 7, &value, sizeof value, &bytes));
    CHECK_EQUAL(value, 2 * ADDITIONS);
    return 0;
}

static int compare_put(struct remo_node *node, void *ctx) {
    const struct remo_tree_options options = {
        .owners = first_nodes(1), .node_bytes = 32768, .value_bytes_max = 3000};
    const uint64_t zero = 0;
    struct remo_tree *tree;
    (void)ctx;
    CHECK(open_tree(node, &options, &tree) == 0);
    for (uint32_t rank = 0; rank < 2; rank++) {
        if (remo_node_rank(node) == rank) {
            CHECK_OK(compare_all(tree, "a"));
            CHECK(compare_long(tree) == 0);
            CHECK_OK(remo_tree_upsert(tree, "counter", 7, &zero, sizeof zero));
        }
        CHECK_OK(cluster_meet());
    }
    CHECK(count_up(tree) == 0);
    return close_tree(tree);
}

/* ---- apply: codes, order and limits ---- */

static struct remo_tree_write write_of(enum remo_tree_kind kind, const char *key, const char *value) {
    return (struct remo_tree_write){
        .kind = kind, .key = {key, strlen(key)}, .value = {value, value ? strlen(value) : 0}};
}

static int expect_text(struct remo_tree *tree, const char *key, const char *text) {
    char value[64];
    size_t bytes;
    if (!text) {
        CHECK_CODE(remo_tree_get(tree, key, strlen(key), value, sizeof value, &bytes), -ENOENT);
        return 0;
    }
    CHECK_OK(remo_tree_get(tree, key, strlen(key), value, sizeof value, &bytes));
    CHECK(bytes == strlen(text) && memcmp(value, text, bytes) == 0);
    return 0;
}

/* Each write sees the effects of the writes before it. */
static int apply_in_order(struct remo_tree *tree) {
    struct remo_tree_write writes[] = {
        write_of(REMO_TREE_INSERT, "a", "1"),  write_of(REMO_TREE_UPDATE, "a", "22"),
        write_of(REMO_TREE_INSERT, "b", "3"),  write_of(REMO_TREE_REMOVE, "b", NULL),
        write_of(REMO_TREE_UPSERT, "c", "4"),  write_of(REMO_TREE_COMPARE_PUT, "a", "333"),
        write_of(REMO_TREE_REMOVE, "c", NULL), write_of(REMO_TREE_INSERT, "c", "5"),
    };
    uint32_t failed = 77;
    writes[5].expected = (struct remo_tree_key){"22", 2};
    CHECK_OK(remo_tree_apply(tree, writes, 8, &failed));
    CHECK_EQUAL(failed, 8);
    CHECK(expect_text(tree, "a", "333") == 0);
    CHECK(expect_text(tree, "b", NULL) == 0);
    CHECK(expect_text(tree, "c", "5") == 0);
    CHECK_SENTENCE(remo_tree_apply(tree, writes, 8, &failed), -EEXIST,
                   "write 0 failed: the tree has this key");
    CHECK_EQUAL(failed, 0);
    return 0;
}

/* Write `index` of five fails, and none has an effect. */
static int fail_at(struct remo_tree *tree, uint32_t index, const struct remo_tree_write *wrong, int code) {
    struct remo_tree_write writes[] = {
        write_of(REMO_TREE_REMOVE, "a", NULL), write_of(REMO_TREE_UPSERT, "b", "x"),
        write_of(REMO_TREE_UPDATE, "c", "x"),  write_of(REMO_TREE_INSERT, "d", "x"),
        write_of(REMO_TREE_INSERT, "e", "x"),
    };
    uint32_t failed = 77;
    writes[index] = *wrong;
    CHECK_CODE(remo_tree_apply(tree, writes, 5, &failed), code);
    CHECK_EQUAL(failed, index);
    CHECK_CODE(remo_tree_apply(tree, writes, 5, NULL), code);
    CHECK(expect_text(tree, "a", "333") == 0);
    CHECK(expect_text(tree, "b", NULL) == 0);
    CHECK(expect_text(tree, "c", "5") == 0);
    CHECK(expect_text(tree, "d", NULL) == 0);
    return expect_text(tree, "e", NULL);
}

static int apply_fails(struct remo_tree *tree) {
    static const char long_text[65] = "................................................................";
    struct remo_tree_write stale = write_of(REMO_TREE_COMPARE_PUT, "c", "x"),
                           wrong[] = {write_of(REMO_TREE_INSERT, "c", "x"),
                                      write_of(REMO_TREE_UPDATE, "ab", "x"),
                                      write_of(REMO_TREE_REMOVE, "ab", NULL),
                                      write_of((enum remo_tree_kind)5, "f", "x"),
                                      write_of(REMO_TREE_UPSERT, long_text, "x"),
                                      write_of(REMO_TREE_UPSERT, "f", long_text),
                                      write_of(REMO_TREE_UPSERT, "x", "x")}; /* of another owner */
    static const int codes[] = {-EEXIST, -ENOENT, -ENOENT, -EINVAL, -EINVAL, -EINVAL, -EXDEV};
    for (uint32_t i = 0; i < 7; i++)
        for (uint32_t at = 1; at < 5; at += 3)
            CHECK(fail_at(tree, at, &wrong[i], codes[i]) == 0);
    wrong[5] = write_of(REMO_TREE_UPSERT, "a", "x");
    CHECK_SENTENCE(remo_tree_apply(tree, &wrong[5], 2, NULL), -EXDEV, "separately");
    for (uint32_t at = 0; at < 5; at += 4)
        CHECK(fail_at(tree, at, &stale, -ESTALE) == 0);
    return 0;
}

static int apply_limits(struct remo_tree *tree) {
    struct remo_tree_write writes[REMO_TREE_WRITES_MAX + 1];
    static const char value[NUMBER_BYTES_MAX + 1] = "......................."; /* 23 bytes */
    uint32_t failed;
    for (uint32_t i = 0; i <= REMO_TREE_WRITES_MAX; i++)
        writes[i] = write_of(REMO_TREE_UPSERT, "long key", "v");
    CHECK_SENTENCE(remo_tree_apply(tree, writes, REMO_TREE_WRITES_MAX + 1, &failed), -EINVAL, "from 1 to 64");
    CHECK_SENTENCE(remo_tree_apply(tree, writes, 0, &failed), -EINVAL, "from 1 to 64");
    CHECK_OK(remo_tree_apply(tree, writes, REMO_TREE_WRITES_MAX, &failed));
    for (uint32_t i = 0; i < REMO_TREE_WRITES_MAX; i++) {
        writes[i] = write_of(REMO_TREE_COMPARE_PUT, "01234567", value);
        writes[i].expected = writes[i].value;
    }
    /* 64 * (8 + 8 + 23 + 23) = 3968 bytes fit */
    CHECK_CODE(remo_tree_apply(tree, writes, REMO_TREE_WRITES_MAX, &failed), -ENOENT);
    CHECK_EQUAL(failed, 0);
    for (uint32_t i = 0; i < REMO_TREE_WRITES_MAX; i++)
        writes[i].key = (struct remo_tree_key){"0123456789ab", 12}; /* 64 * 66 = 4224 bytes */
    CHECK_SENTENCE(remo_tree_apply(tree, writes, REMO_TREE_WRITES_MAX, &failed), -EMSGSIZE, "fewer at once");
    CHECK_EQUAL(failed, REMO_TREE_WRITES_MAX);
    return remo_tree_remove(tree, "long key", 8);
}

static int apply_codes(struct remo_node *node, void *ctx) {
    const struct remo_tree_key boundary = {"m", 1};
    const struct remo_tree_options options = {SMALL, .boundaries = &boundary};
    struct remo_tree *tree;
    (void)ctx;
    CHECK(open_tree(node, &options, &tree) == 0);
    for (uint32_t rank = 0; rank < 2; rank++) {
        if (remo_node_rank(node) == rank) {
            CHECK(apply_in_order(tree) == 0);
            CHECK(apply_fails(tree) == 0);
            CHECK(apply_limits(tree) == 0);
            CHECK_OK(remo_tree_remove(tree, "a", 1));
            CHECK_OK(remo_tree_remove(tree, "c", 1));
        }
        CHECK_OK(cluster_meet());
        CHECK(check_shape(tree, NULL) == 0);
    }
    return close_tree(tree);
}

/* ---- random applies against a model ---- */

#define MODEL_KEYS 500u
#define BATCHES 400u

struct batch {
    struct remo_tree_write writes[REMO_TREE_WRITES_MAX];
    char keys[REMO_TREE_WRITES_MAX][8];
    unsigned char values[REMO_TREE_WRITES_MAX][NUMBER_BYTES_MAX];
    uint32_t numbers[MODEL_KEYS]; /* the model after the apply */
};

/* Add a random write. Returns the code that it should have. */
static int add_write(struct batch *batch, uint32_t i, struct remo__random *random, bool is_shrinking,
                     uint32_t first) {
    uint32_t key = (first + (uint32_t)remo__random_below(random, 1 + MODEL_KEYS / 4)) % MODEL_KEYS;
    uint32_t *number = &batch->numbers[key], next = 1 + (uint32_t)remo__random_below(random, 1000);
    bool is_present = *number != 0, is_wrong = remo__random_below(random, 300) == 0;
    struct remo_tree_write *write = &batch->writes[i];
    snprintf(batch->keys[i], sizeof batch->keys[i], "%04u", key);
    write->kind = is_present == is_wrong     ? REMO_TREE_INSERT
                  : is_shrinking || is_wrong ? REMO_TREE_REMOVE
                                             : REMO_TREE_UPDATE;
    if (remo__random_below(random, 4) == 0 && !is_shrinking)
        write->kind = REMO_TREE_UPSERT;
    write->key = (struct remo_tree_key){batch->keys[i], 4};
    write->value = (struct remo_tree_key){batch->values[i], make_value(batch->values[i], next)};
    if (write->kind == REMO_TREE_INSERT && is_shrinking && !is_present && remo__random_below(random, 8))
        write->kind = REMO_TREE_UPSERT;
    int rc = write->kind == REMO_TREE_INSERT && is_present                                         ? -EEXIST
             : (write->kind == REMO_TREE_UPDATE || write->kind == REMO_TREE_REMOVE) && !is_present ? -ENOENT
                                                                                                   : 0;
    if (rc == 0)
        *number = write->kind == REMO_TREE_REMOVE ? 0 : next;
    return rc;
}

/* Apply random writes. The result must be that of the model, or -ENOSPC. */
static int apply_random(struct remo_tree *tree, struct batch *batch, struct remo__random *random,
                        bool is_shrinking, uint32_t *full_count) {
    uint32_t count = 1 + (uint32_t)remo__random_below(random, REMO_TREE_WRITES_MAX), failed, expected = count;
    uint32_t first = (uint32_t)remo__random_below(random, MODEL_KEYS);
    int code = 0;
    for (uint32_t i = 0; i < MODEL_KEYS; i++)
        batch->numbers[i] = atomic_load(&shared->numbers[i]);
    for (uint32_t i = 0; i < count; i++) {
        int rc = add_write(batch, i, random, is_shrinking, first);
        if (rc != 0 && code == 0) {
            code = rc;
            expected = i;
        }
    }
    int rc = remo_tree_apply(tree, batch->writes, count, &failed);
    if (rc == -ENOSPC) {
        CHECK(failed <= expected && failed < count);
        *full_count += 1;
        return 0;
    }
    CHECK_EQUAL(rc, code);
    CHECK_EQUAL(failed, expected);
    for (uint32_t i = 0; i < MODEL_KEYS && rc == 0; i++)
        atomic_store(&shared->numbers[i], batch->numbers[i]);
    return 0;
}

static int expect_numbers(struct remo_tree *tree) {
    char key[8];
    uint32_t number;
    for (uint32_t i = 0; i < MODEL_KEYS; i++) {
        uint32_t expected = atomic_load(&shared->numbers[i]);
        snprintf(key, sizeof key, "%04u", i);
        if (expected)
            CHECK_NUMBER(tree, key, expected);
        else
            CHECK_CODE(get_number(tree, key, &number), -ENOENT);
    }
    return 0;
}

/* The nodes apply writes in turns. If the tree has few nodes, some applies find no free node. */
static int random_batches(struct remo_node *node, void *ctx) {
    bool is_full = ctx != NULL;
    const struct remo_tree_options options = {SMALL, .owners = first_nodes(1), .nodes = is_full ? 18 : 200,
                                              .retain = 100};
    static struct batch batch;
    struct remo__random random;
    struct remo_tree *tree;
    uint32_t full_count = 0;
    remo__random_seed(&random, 7 + remo_node_rank(node));
    CHECK(open_tree(node, &options, &tree) == 0);
    for (uint32_t round = 0; round < 12; round++) {
        for (uint32_t i = 0; i < BATCHES / 12 && round % 2 == remo_node_rank(node); i++)
            CHECK(apply_random(tree, &batch, &random, round % 4 > 1, &full_count) == 0);
        CHECK_OK(cluster_meet());
        CHECK(remo_node_rank(node) != 0 || check_shape(tree, NULL) == 0);
        CHECK(expect_numbers(tree) == 0);
        CHECK_OK(cluster_meet());
    }
    CHECK((full_count > 0) == is_full);
    return close_tree(tree);
}

/* ---- one instant, and one call ---- */

#define TOGETHER 32u
#define CHANGES 300u

/* Set the values of all keys, which are in several leaves, to the same number. */
static int apply_number(struct remo_tree *tree, uint32_t number) {
    static struct batch batch;
    uint32_t bytes = make_value(batch.values[0], number);
    for (uint32_t i = 0; i < TOGETHER; i++) {
        snprintf(batch.keys[i], sizeof batch.keys[i], "%04u", i * 31);
        batch.writes[i] = (struct remo_tree_write){
            .kind = REMO_TREE_UPSERT, .key = {batch.keys[i], 4}, .value = {batch.values[0], bytes}};
    }
    return remo_tree_apply(tree, batch.writes, TOGETHER, NULL);
}

static int scan_together(struct remo_tree *tree, uint32_t *last) {
    static char buffer[TOGETHER * 64];
    struct remo_tree_result result;
    struct remo_tree_entry entry;
    size_t offset = 0;
    uint32_t number = 0;
    CHECK_OK(remo_tree_scan(tree, NULL, buffer, sizeof buffer, &result));
    CHECK_EQUAL(result.entries, TOGETHER);
    while (remo_tree_result_next(buffer, &result, &offset, &entry)) {
        uint32_t found = number_of(entry.value.data, entry.value.bytes);
        CHECK(found > 0 && (number == 0 || found == number));
        number = found;
    }
    CHECK(number >= *last);
    *last = number;
    return 0;
}

static int one_instant(struct remo_node *node, void *ctx) {
    const struct remo_tree_options options = {SMALL, .owners = first_nodes(1)};
    struct remo_tree *tree;
    uint32_t last = 0;
    (void)ctx;
    CHECK(open_tree(node, &options, &tree) == 0);
    CHECK(remo_node_rank(node) != 1 || apply_number(tree, 1) == 0);
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 1) {
        for (uint32_t i = 0; i < CHANGES; i++)
            CHECK_OK(apply_number(tree, 2 + i));
        atomic_store(&shared->done, 1);
    } else {
        while (!atomic_load(&shared->done))
            CHECK(scan_together(tree, &last) == 0);
        CHECK(scan_together(tree, &last) == 0);
        CHECK_EQUAL(last, 1 + CHANGES);
    }
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 1) {
        struct remo_stats before, after;
        remo_channel_stats(remo_tree_channel(tree), &before);
        CHECK_OK(apply_number(tree, 7));
        remo_channel_stats(remo_tree_channel(tree), &after);
        CHECK_EQUAL(after.reads - before.reads + after.atomics - before.atomics, 0);
        CHECK_EQUAL(after.writes - before.writes, 1); /* the request */
    }
    return close_tree(tree);
}

/* ---- limits at the owner ---- */

/* 64 writes rewrite more nodes than are retained. The call fails without effect. */
static int few_retained(struct remo_node *node, void *ctx) {
    const struct remo_tree_options options = {SMALL, .owners = first_nodes(1), .nodes = 1000, .retain = 34};
    static struct batch batch;
    static char key[8];
    struct remo_tree *tree;
    uint32_t failed, number, unused;
    (void)ctx;
    CHECK(open_tree(node, &options, &tree) == 0);
    for (uint32_t i = 0; i < 1200 && remo_node_rank(node) == 0; i++) {
        snprintf(key, sizeof key, "%04u", i * 8);
        CHECK_OK(change_number(tree, remo_tree_insert, key, 21));
    }
    CHECK_OK(cluster_meet());
    unused = remo_node_rank(node) == 0 ? count_unused(tree) : 0;
    for (uint32_t i = 0; i < REMO_TREE_WRITES_MAX; i++) {
        snprintf(batch.keys[i], sizeof batch.keys[i], "%04u", i * 144 + 1);
        batch.writes[i] =
            (struct remo_tree_write){.kind = REMO_TREE_INSERT,
                                     .key = {batch.keys[i], 4},
                                     .value = {batch.values[i], make_value(batch.values[i], 20)}};
    }
    CHECK_SENTENCE(remo_tree_apply(tree, batch.writes, REMO_TREE_WRITES_MAX, &failed), -EMSGSIZE,
                   "apply fewer writes at once");
    CHECK_EQUAL(failed, REMO_TREE_WRITES_MAX);
    CHECK_CODE(get_number(tree, batch.keys[0], &number), -ENOENT);
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 0) {
        CHECK_EQUAL(count_unused(tree), unused);
        CHECK(check_shape(tree, NULL) == 0);
        CHECK_OK(remo_tree_apply(tree, batch.writes, 10, &failed));
        CHECK(check_shape(tree, NULL) == 0);
    }
    return close_tree(tree);
}

/* Return the next of 1200 ascending keys, for a load. */
static int next_small(void *ctx, struct remo_tree_entry *ret_entry) {
    static char key[9], value[32];
    uint32_t *next = ctx;
    if (*next == 1200)
        return 0;
    snprintf(key, sizeof key, "%07u0", (*next)++);
    *ret_entry = (struct remo_tree_entry){.key = {key, 8}, .value = {value, sizeof value}};
    return 1;
}

/* More leaves change than `retain`, but in nodes of 1024 bytes the log has room for 8 + 32 bytes. */
static int small_nodes(struct remo_node *node, void *ctx) {
    enum { WRITES = 48 };
    const struct remo_tree_options options = {.node_bytes = 1024,
                                              .key_bytes_max = 8,
                                              .value_bytes_max = 32,
                                              .owners = first_nodes(1),
                                              .nodes = 1000,
                                              .retain = 34};
    struct remo_tree_write writes[WRITES];
    char keys[WRITES][9], value[32] = "";
    struct remo_tree *tree;
    uint32_t failed, next = 0;
    uint64_t count;
    (void)ctx;
    CHECK(open_tree(node, &options, &tree) == 0);
    for (uint32_t i = 0; i < WRITES; i++) {
        snprintf(keys[i], sizeof keys[i], "%07u5", i * 20 + 1);
        writes[i] = (struct remo_tree_write){
            .kind = REMO_TREE_INSERT, .key = {keys[i], 8}, .value = {value, sizeof value}};
    }
    if (remo_node_rank(node) == 0) {
        CHECK_OK(remo_tree_load(tree, next_small, &next, 60, &count));
        CHECK_OK(remo_tree_apply(tree, writes, WRITES, &failed));
    }
    return close_tree(tree);
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(compare_put, 2),
        CLUSTER_TEST_NAMED("apply, codes", apply_codes, 2),
        CLUSTER_TEST_NAMED("apply, random", random_batches, 2),
        CLUSTER_TEST_NAMED("apply, no free node", random_batches, 2, .ctx = ""),
        CLUSTER_TEST_NAMED("apply, one instant", one_instant, 2),
        CLUSTER_TEST_NAMED("apply, few retained", few_retained, 2),
        CLUSTER_TEST_NAMED("apply, small nodes", small_nodes, 2),
        {0},
    };
    return tree_main(argc, argv, tests);
}
