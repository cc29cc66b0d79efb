/* test_tree_change.c - changes of the tree: random changes against a model, splits and merges, a full tree,
 * and changes that scans delay. */
#include <stdio.h>

#include "base/random.h"

#include "tree_common.h"

/* ---- random changes: each thread has its own keys, and records their values ---- */

struct actor {
    struct remo_tree *tree;
    struct remo__random dice;
    uint32_t first, stride; /* its keys: first, first + stride, ... */
    uint32_t steps;
    int result;
};

static uint32_t make_key(char *key, uint32_t index) {
    uint32_t mixed = (uint32_t)remo__random_mix(index);
    return (uint32_t)sprintf(key, "%u.%u%.*s", mixed % 100003, index, (int)(mixed % 7), "abcdefg");
}

static bool is_own(const struct actor *self, uint32_t index) {
    return index % self->stride == self->first;
}

/* Check a scan: all keys are in order, all values are whole, and own keys have their recorded values. */
static int judge_scan(const struct actor *self, const char *buffer, const struct remo_tree_result *result) {
    struct remo_tree_entry entry;
    size_t offset = 0;
    struct tree_bytes last = {NULL, 0};
    uint32_t own = 0, expected = 0;
    uint64_t entries = 0;
    CHECK(result->is_complete);
    for (; remo_tree_result_next(buffer, result, &offset, &entry); entries++) {
        struct tree_bytes key = {entry.key.data, (uint32_t)entry.key.bytes};
        char text[32] = "", made[32];
        CHECK(entries == 0 || remo__tree_compare(last, key) < 0);
        last = key;
        memcpy(text, key.data, key.bytes);
        uint32_t index = (uint32_t)strtoul(strchr(text, '.') + 1, NULL, 10),
                 number = number_of(entry.value.data, entry.value.bytes);
        CHECK(index < KEYS_MAX && make_key(made, index) == key.bytes && strcmp(made, text) == 0);
        CHECK(number != 0);
        if (!is_own(self, index))
            continue;
        CHECK_EQUAL(number, atomic_load(&shared->numbers[index]));
        own++;
    }
    CHECK_EQUAL(entries, result->entries);
    for (uint32_t i = self->first; i < KEYS_MAX; i += self->stride)
        expected += atomic_load(&shared->numbers[i]) != 0;
    CHECK_EQUAL(own, expected);
    return 0;
}

static int scan_all(const struct actor *self) {
    size_t cap = (size_t)KEYS_MAX * 64;
    char *buffer = malloc(cap);
    struct remo_tree_result result;
    CHECK(buffer);
    CHECK_OK(remo_tree_scan(self->tree, NULL, buffer, cap, &result));
    CHECK(judge_scan(self, buffer, &result) == 0);
    free(buffer);
    return 0;
}

/* Get an own key and two others, which other actors may be changing. */
static int get_three(const struct actor *self, uint32_t index, uint32_t *ret_number) {
    struct remo_tree_item items[3];
    char keys[3][32], values[3][NUMBER_BYTES_MAX];
    for (uint32_t i = 0; i < 3; i++)
        items[i] = (struct remo_tree_item){.key = {keys[i], make_key(keys[i], (index + i) % KEYS_MAX)},
                                           .value = values[i],
                                           .value_cap = sizeof values[i],
                                           .value_bytes = 77};
    CHECK_OK(remo_tree_get_many(self->tree, items, 3));
    for (uint32_t i = 0; i < 3; i++) {
        bool is_present = items[i].status == 0;
        CHECK(is_present || (items[i].status == -ENOENT && items[i].value_bytes == 0));
        CHECK(!is_present || number_of(items[i].value, items[i].value_bytes) != 0);
    }
    *ret_number = items[0].status == 0 ? number_of(items[0].value, items[0].value_bytes) : 0;
    return 0;
}

static int step(struct actor *self, bool is_shrinking) {
    uint32_t count = KEYS_MAX / self->stride, index, number, old, got = 0;
    char key[32];
    index = self->first + self->stride * (uint32_t)remo__random_below(&self->dice, count);
    number = 1 + (uint32_t)remo__random_below(&self->dice, UINT32_MAX - 1);
    old = atomic_load(&shared->numbers[index]);
    make_key(key, index);
    switch (remo__random_below(&self->dice, 6)) {
    case 0:
    case 1:
        if (is_shrinking)
            goto removal;
        CHECK_CODE(change_number(self->tree, remo_tree_insert, key, number), old ? -EEXIST : 0);
        number = old ? old : number;
        break;
    case 2: CHECK_CODE(change_number(self->tree, remo_tree_upsert, key, number), 0); break;
    case 3:
    removal:
        CHECK_CODE(remo_tree_remove(self->tree, key, strlen(key)), old ? 0 : -ENOENT);
        number = 0;
        break;
    case 4:
        CHECK_CODE(change_number(self->tree, remo_tree_update, key, number), old ? 0 : -ENOENT);
        number = old ? number : 0;
        break;
    default:
        if (number % 2)
            CHECK(get_three(self, index, &got) == 0);
        else
            CHECK_CODE(get_number(self->tree, key, &got), old ? 0 : -ENOENT);
        CHECK_EQUAL(got, old);
        number = old;
    }
    atomic_store(&shared->numbers[index], number);
    return 0;
}

static int act(struct actor *self) {
    remo__random_seed(&self->dice, self->first);
    for (uint32_t i = 0; i < self->steps; i++) {
        CHECK(step(self, i * 4 / self->steps % 2 == 1) == 0);
        if (i % (self->steps / 16) == 0)
            CHECK(scan_all(self) == 0);
    }
    return 0;
}

static void *run_actor(void *ctx) {
    struct actor *self = ctx;
    self->result = act(self);
    return NULL;
}

/* Remove all keys of this actor. */
static int remove_own(struct actor *self) {
    char key[32];
    for (uint32_t i = self->first; i < KEYS_MAX; i += self->stride) {
        make_key(key, i);
        if (atomic_load(&shared->numbers[i]))
            CHECK_OK(remo_tree_remove(self->tree, key, strlen(key)));
        atomic_store(&shared->numbers[i], 0);
    }
    return 0;
}

/* Compare keys [first, first + count) with the model, by one call. */
static int expect_together(struct remo_tree *tree, uint32_t first, uint32_t count) {
    struct remo_tree_item items[64];
    char keys[64][32], values[64][NUMBER_BYTES_MAX];
    for (uint32_t i = 0; i < count; i++)
        items[i] = (struct remo_tree_item){.key = {keys[i], make_key(keys[i], first + i)},
                                           .value = values[i],
                                           .value_cap = sizeof values[i],
                                           .status = 1};
    CHECK_OK(remo_tree_get_many(tree, items, count));
    for (uint32_t i = 0; i < count; i++) {
        uint32_t number = atomic_load(&shared->numbers[first + i]);
        CHECK_EQUAL(items[i].status, number ? 0 : -ENOENT);
        CHECK(!number || number_of(items[i].value, items[i].value_bytes) == number);
    }
    return 0;
}

/* While nothing changes the tree, compare it with the model: by a scan of all keys, and by gets of
 * a share of them. */
static int expect_model(struct remo_tree *tree) {
    struct actor all = {.tree = tree, .stride = 1};
    char key[32];
    CHECK(scan_all(&all) == 0);
    for (uint32_t first = 0, count; first < KEYS_MAX; first += count) {
        count = remo__min(1 + first % 64, KEYS_MAX - first);
        CHECK(expect_together(tree, first, count) == 0);
    }
    for (uint32_t i = remo_node_rank(tree->node); i < KEYS_MAX; i += 4) {
        uint32_t number = atomic_load(&shared->numbers[i]), got = 0;
        make_key(key, i);
        CHECK_CODE(get_number(tree, key, &got), number ? 0 : -ENOENT);
        CHECK_EQUAL(got, number);
    }
    return tree->own ? check_shape(tree, NULL) : 0;
}

struct random {
    uint32_t owners, threads, steps, steps_over_network;
};

static struct random few_owners = {.owners = 2, .threads = 1, .steps = 15000, .steps_over_network = 500},
                     all_owners = {.owners = 4, .threads = 1, .steps = 30000, .steps_over_network = 600},
                     threads = {.owners = 2, .threads = 2, .steps = 15000, .steps_over_network = 300};

/* After the removal of all keys, only the root is in use, as an empty leaf. */
static int expect_few_nodes(struct remo_tree *tree) {
    struct shape shape = {0};
    CHECK(check_shape(tree, &shape) == 0);
    CHECK_EQUAL(shape.entries, 0);
    CHECK_EQUAL(shape.leaves, 1);
    CHECK_EQUAL(count_unused(tree), tree->node_count - 1);
    return 0;
}

static int random_changes(struct remo_node *node, void *ctx) {
    const struct random *of = ctx;
    static const struct remo_tree_key boundaries[] = {{"2.", 2}, {"40", 2}, {"7", 1}};
    const struct remo_tree_options options = {SMALL, .nodes = 300, .owners = first_nodes(of->owners),
                                              .boundaries = boundaries};
    struct actor actors[2];
    pthread_t ids[2];
    struct remo_tree *tree;
    CHECK(open_tree(node, &options, &tree) == 0);
    for (uint32_t i = 0; i < of->threads; i++) {
        actors[i] = (struct actor){.tree = tree,
                                   .first = remo_node_rank(node) * of->threads + i,
                                   .stride = remo_node_size(node) * of->threads,
                                   .steps = is_mapped(node) ? of->steps : of->steps_over_network};
        CHECK(pthread_create(&ids[i], NULL, run_actor, &actors[i]) == 0);
    }
    for (uint32_t i = 0; i < of->threads; i++) {
        pthread_join(ids[i], NULL);
        CHECK_EQUAL(actors[i].result, 0);
    }
    CHECK_OK(cluster_meet());
    CHECK(expect_model(tree) == 0);
    CHECK_OK(cluster_meet());
    for (uint32_t i = 0; i < of->threads; i++)
        CHECK(remove_own(&actors[i]) == 0);
    CHECK_OK(cluster_meet());
    CHECK(expect_model(tree) == 0);
    CHECK(!tree->own || expect_few_nodes(tree) == 0);
    return close_tree(tree);
}

/* ---- splits and merges: all keys inserted and removed, in several orders, with just enough nodes ---- */

enum order { ASCENDING, DESCENDING, FROM_MIDDLE, MIXED };

struct fill {
    uint32_t node_bytes, key_bytes, value_bytes, keys; /* key_bytes: at least 4 */
    enum order insert, remove;
};

#define FILL_KEYS_MAX 400u

static uint32_t shuffled[FILL_KEYS_MAX];

static void shuffle(uint32_t count) {
    struct remo__random dice;
    remo__random_seed(&dice, count);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t other = (uint32_t)remo__random_below(&dice, i + 1);
        shuffled[i] = shuffled[other];
        shuffled[other] = i;
    }
}

static uint32_t nth(enum order order, uint32_t n, uint32_t count) {
    switch (order) {
    case ASCENDING: return n;
    case DESCENDING: return count - 1 - n;
    case FROM_MIDDLE: return (n + count / 2) % count;
    default: return shuffled[n];
    }
}

static void make_fixed_key(const struct fill *of, char *key, uint32_t index) {
    memset(key, 'x', of->key_bytes);
    for (uint32_t i = 0; i < 4; i++)
        key[i] = (char)('0' + index / (i == 0 ? 1000 : i == 1 ? 100 : i == 2 ? 10 : 1) % 10);
}

static int insert_fixed(struct remo_tree *tree, const struct fill *of) {
    char key[REMO_TREE_KEY_BYTES_MAX], value[REMO_TREE_VALUE_BYTES_MAX];
    for (uint32_t i = 0; i < of->keys; i++) {
        make_fixed_key(of, key, nth(of->insert, i, of->keys));
        memset(value, key[3], of->value_bytes);
        CHECK_OK(remo_tree_insert(tree, key, of->key_bytes, value, of->value_bytes));
    }
    return 0;
}

static int remove_fixed(struct remo_tree *tree, const struct fill *of) {
    char key[REMO_TREE_KEY_BYTES_MAX];
    for (uint32_t i = 0; i < of->keys; i++) {
        make_fixed_key(of, key, nth(of->remove, i, of->keys));
        CHECK_OK(remo_tree_remove(tree, key, of->key_bytes));
    }
    return 0;
}

static int expect_fixed(struct remo_tree *tree, const struct fill *of) {
    size_t cap = (size_t)of->keys * (4 + of->key_bytes + of->value_bytes), offset = 0;
    char *buffer = malloc(cap), key[REMO_TREE_KEY_BYTES_MAX];
    struct remo_tree_result result;
    struct remo_tree_entry entry;
    CHECK(buffer);
    CHECK_OK(remo_tree_scan(tree, NULL, buffer, cap, &result));
    CHECK(result.is_complete && result.entries == of->keys && result.bytes == cap);
    for (uint32_t i = 0; i < of->keys; i++) {
        CHECK(remo_tree_result_next(buffer, &result, &offset, &entry));
        make_fixed_key(of, key, i);
        CHECK(entry.key.bytes == of->key_bytes && memcmp(entry.key.data, key, of->key_bytes) == 0);
        CHECK_EQUAL(entry.value.bytes, of->value_bytes);
    }
    free(buffer);
    return 0;
}

/* Set options->nodes to the number of nodes of a tree with all keys. */
static int count_nodes(struct remo_node *node, const struct fill *of, struct remo_tree_options *options) {
    struct remo_tree *tree;
    options->nodes = 2 * of->keys;
    CHECK(open_tree(node, options, &tree) == 0);
    if (remo_node_rank(node) == 0) {
        CHECK(insert_fixed(tree, of) == 0);
        atomic_store(&shared->count, options->nodes - count_unused(tree));
    }
    CHECK(close_tree(tree) == 0);
    options->nodes = atomic_load(&shared->count);
    return 0;
}

/* Ascending keys fill nodes. */
static int check_fill(struct remo_tree *tree, const struct fill *of) {
    struct shape shape = {0};
    CHECK(check_shape(tree, &shape) == 0);
    CHECK_EQUAL(shape.entries, of->keys);
    CHECK(shape.levels >= 2);
    uint64_t bytes = (uint64_t)of->keys * remo__tree_entry_bytes(of->key_bytes, of->value_bytes),
             usable = of->node_bytes - sizeof(struct tree_header) - 2 * of->key_bytes;
    CHECK(of->insert != ASCENDING || shape.leaves * usable * 3 / 4 <= bytes);
    CHECK(shape.leaves * usable / 3 <= bytes);
    return 0;
}

static int fill_and_empty(struct remo_node *node, const struct fill *of) {
    struct remo_tree_options options = {.owners = first_nodes(1),
                                        .node_bytes = of->node_bytes,
                                        .key_bytes_max = of->key_bytes,
                                        .value_bytes_max = of->value_bytes};
    struct remo_tree *tree;
    shuffle(of->keys);
    CHECK(count_nodes(node, of, &options) == 0);
    CHECK(open_tree(node, &options, &tree) == 0);
    for (uint32_t round = 0; round < 3; round++) {
        bool is_writer = remo_node_rank(node) == (round == 1); /* also by calls */
        CHECK(!is_writer || insert_fixed(tree, of) == 0);
        CHECK_OK(cluster_meet());
        CHECK(expect_fixed(tree, of) == 0);
        CHECK(!tree->own || check_fill(tree, of) == 0);
        CHECK_OK(cluster_meet());
        CHECK(!is_writer || remove_fixed(tree, of) == 0);
        CHECK_OK(cluster_meet());
        CHECK(!tree->own || expect_few_nodes(tree) == 0);
        CHECK_OK(cluster_meet());
    }
    return close_tree(tree);
}

static int all_keys(struct remo_node *node, void *ctx) {
    static const struct fill all[] = {
        {512, 7, 5, 400, ASCENDING, ASCENDING},  {512, 7, 5, 400, DESCENDING, DESCENDING},
        {512, 7, 5, 400, ASCENDING, DESCENDING}, {512, 7, 5, 400, FROM_MIDDLE, FROM_MIDDLE},
        {512, 7, 5, 400, MIXED, MIXED},          {512, 7, 5, 400, MIXED, ASCENDING},
        {512, 8, 8, 400, MIXED, ASCENDING}, /* 22 entries fill a leaf */
        {1024, 30, 80, 300, MIXED, MIXED},
    };
    (void)ctx;
    for (uint32_t i = 0; i < sizeof all / sizeof all[0]; i++)
        CHECK(fill_and_empty(node, &all[i]) == 0);
    return 0;
}

/* Fences take a quarter of a node. */
static int long_fences(struct remo_node *node, void *ctx) {
    static const struct fill all[] = {{512, 58, 4, 200, MIXED, MIXED}, {512, 63, 1, 200, ASCENDING, MIXED}};
    (void)ctx;
    for (uint32_t i = 0; i < 2; i++)
        CHECK(fill_and_empty(node, &all[i]) == 0);
    return 0;
}

/* ---- a tree without free nodes ---- */

#define FULL_KEYS 400u

static void make_full_key(char *key, uint32_t i) {
    snprintf(key, 8, "%04u", i * 7919 % FULL_KEYS);
}

/* Insert all keys, of which some must fail. `present` states which keys are in the tree. */
static int fill_up(struct remo_tree *tree, bool *present, uint32_t *ret_count) {
    char key[8];
    uint32_t failures = 0;
    *ret_count = 0;
    for (uint32_t i = 0; i < FULL_KEYS; i++) {
        make_full_key(key, i);
        int rc = change_number(tree, i % 2 ? remo_tree_insert : remo_tree_upsert, key, 1 + i);
        present[i] = rc == 0;
        *ret_count += present[i];
        if (rc == 0)
            continue;
        CHECK_CODE(rc, -ENOSPC);
        CHECK(strstr(remo_last_error(), "open the tree with more nodes"));
        failures++;
    }
    CHECK(failures > 10);
    return 0;
}

/* Updates of the same size succeed; others succeed, or have no effect. */
static int update_full(struct remo_tree *tree, const bool *present) {
    char key[8];
    for (uint32_t i = 0; i < FULL_KEYS; i++) {
        uint32_t number = 1 + i, got;
        make_full_key(key, i);
        if (!present[i]) {
            CHECK_CODE(get_number(tree, key, &got), -ENOENT);
            CHECK_CODE(remo_tree_remove(tree, key, 4), -ENOENT);
            continue;
        }
        CHECK_NUMBER(tree, key, number);
        number += 21;
        CHECK_OK(change_number(tree, i % 2 ? remo_tree_update : remo_tree_upsert, key, number));
        CHECK_NUMBER(tree, key, number);
        int rc = change_number(tree, remo_tree_update, key, number + 5);
        CHECK(rc == 0 || rc == -ENOSPC);
        CHECK_NUMBER(tree, key, number + (rc == 0 ? 5 : 0));
        CHECK_OK(change_number(tree, remo_tree_update, key, number + (rc == 0 ? 26 : 21)));
    }
    return 0;
}

static int fill_tree(struct remo_tree *tree, struct remo_node *node) {
    bool present[FULL_KEYS];
    uint32_t count = 0, first = 0;
    char key[8];
    for (uint32_t round = 0; round < 3; round++) {
        if (remo_node_rank(node) == round % 2) {
            CHECK(fill_up(tree, present, &count) == 0);
            if (round > 0)
                CHECK_EQUAL(count, atomic_load(&shared->count));
            atomic_store(&shared->count, count);
            CHECK(update_full(tree, present) == 0);
            for (uint32_t i = FULL_KEYS; i-- > 0;) {
                make_full_key(key, i);
                CHECK_CODE(remo_tree_remove(tree, key, 4), present[i] ? 0 : -ENOENT);
                if (present[i] && ++first % 16 == 0) { /* there is room again */
                    CHECK_OK(change_number(tree, remo_tree_insert, key, 1));
                    CHECK_OK(remo_tree_remove(tree, key, 4));
                }
            }
        }
        CHECK_OK(cluster_meet());
        CHECK(!tree->own || check_shape(tree, NULL) == 0);
        CHECK(!tree->own || expect_few_nodes(tree) == 0);
        CHECK_OK(cluster_meet());
    }
    return 0;
}

static int full(struct remo_node *node, void *ctx) {
    (void)ctx;
    for (uint32_t nodes = 1; nodes <= 12; nodes += is_mapped(node) ? 1 : nodes) {
        const struct remo_tree_options options = {SMALL, .nodes = nodes, .owners = first_nodes(1)};
        struct remo_tree *tree;
        CHECK(open_tree(node, &options, &tree) == 0);
        CHECK(fill_tree(tree, node) == 0);
        CHECK(close_tree(tree) == 0);
    }
    return 0;
}

/* ---- scans delay changes ---- */

/* Insert keys until a node splits: the last change before the delay takes an index. */
static int split_node(struct remo_tree *tree, uint32_t *count) {
    uint32_t unused = count_unused(tree);
    for (char key[8]; count_unused(tree) == unused; ++*count) {
        snprintf(key, sizeof key, "%04u", *count);
        CHECK_OK(change_number(tree, remo_tree_insert, key, 1 + *count));
    }
    return 0;
}

static int frozen(struct remo_node *node, void *ctx) {
    const struct remo_tree_options options = {SMALL, .owners = first_nodes(1)};
    struct remo_tree *tree;
    uint32_t count = 0;
    (void)ctx;
    CHECK(open_tree(node, &options, &tree) == 0);
    for (uint32_t i = 0; i < 8; i++) {
        uint64_t version;
        if (tree->own) {
            CHECK(split_node(tree, &count) == 0);
            atomic_store(&shared->count, count);
            atomic_store(&shared->frozen_ns, cluster_now_ns());
            CHECK_OK(remo__tree_freeze(tree, (i + 1) * SECOND / 1000, &version));
        }
        CHECK_OK(cluster_meet());
        if (!tree->own || i % 2 == 0) {
            CHECK_OK(change_number(tree, remo_tree_upsert, tree->own ? "own" : "other", 1 + i));
            CHECK(cluster_now_ns() - atomic_load(&shared->frozen_ns) >= (i + 1) * SECOND / 1000);
        }
        CHECK_OK(cluster_meet());
        CHECK(!tree->own || check_shape(tree, NULL) == 0);
        for (uint32_t k = 0; k < atomic_load(&shared->count); k++) {
            char key[16];
            snprintf(key, sizeof key, "%04u", k);
            CHECK_NUMBER(tree, key, 1 + k);
        }
        CHECK_OK(cluster_meet());
    }
    return close_tree(tree);
}

/* Two nodes freeze an owner. The first thaw does not end the delay, the second does. */
static int thawed(struct remo_node *node, void *ctx) {
    const struct remo_tree_options options = {SMALL, .owners = first_nodes(1)};
    struct remo_tree *tree;
    (void)ctx;
    CHECK(open_tree(node, &options, &tree) == 0);
    for (uint32_t i = 0; i < 2 && tree->own; i++)
        CHECK(freeze_until_thawed(tree) == 0);
    CHECK_OK(cluster_meet());
    for (uint32_t freezes = 2; freezes-- > 0;) {
        if (!tree->own)
            CHECK_OK(remo_rpc_post(tree->rpc, 0, TREE_THAW, NULL, 0));
        for (uint32_t left = freezes + 1; tree->own && left != freezes; cluster_sleep_ms(1)) {
            CHECK_OK(remo__mutex_lock(node, &tree->own->mutex, REMO_FOREVER));
            left = tree->own->freezes;
            CHECK_EQUAL(tree->own->frozen_until_ns == 0, left == 0);
            remo__mutex_unlock(node, &tree->own->mutex);
        }
        CHECK_OK(cluster_meet());
    }
    CHECK_OK(change_number(tree, remo_tree_upsert, tree->own ? "own" : "other", 1));
    return close_tree(tree);
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST_NAMED("changes, two owners", random_changes, 4, .ctx = &few_owners),
        CLUSTER_TEST_NAMED("changes, four owners", random_changes, 4, .ctx = &all_owners),
        CLUSTER_TEST_NAMED("changes, nodes of a process", random_changes, 4, .ctx = &few_owners,
                           .as_threads = 1),
        CLUSTER_TEST_NAMED("changes, two threads", random_changes, 3, .ctx = &threads),
        CLUSTER_TEST(all_keys, 2),
        CLUSTER_TEST(long_fences, 2),
        CLUSTER_TEST(full, 2),
        CLUSTER_TEST(frozen, 2),
        CLUSTER_TEST(thawed, 2),
        {0},
    };
    return tree_main(argc, argv, tests);
}
