/* test_tree.c - the tree between real nodes: every code of every call, keys and values of all lengths, random
 * changes against a model, splits and merges, scans, the cost of each call, a full tree, threads, tasks,
 * wrong arguments. Scans of one instant and failures are in test_tree_failure.c. */
#include <stdio.h>

#include "base/random.h"

#include "tree_common.h"

/* Nodes of the minimum size, so that few keys split them. */
#define SMALL .node_bytes = 512, .key_bytes_max = 24, .value_bytes_max = NUMBER_BYTES_MAX

/* ---- an empty tree ---- */

static int expect_nothing(struct remo_tree *tree) {
    char buffer[64];
    size_t bytes = 77;
    struct remo_tree_result result = {.entries = 77, .bytes = 77};
    static const char *const keys[] = {"", "a", "\x80", "\xff\xff\xff\xff\xff\xff\xff\xff\xff"};
    for (uint32_t i = 0; i < 4; i++) {
        CHECK_SENTENCE(remo_tree_get(tree, keys[i], strlen(keys[i]), buffer, sizeof buffer, &bytes), -ENOENT,
                       "no such key");
        CHECK_SENTENCE(remo_tree_update(tree, keys[i], strlen(keys[i]), "v", 1), -ENOENT, "no such key");
        CHECK_SENTENCE(remo_tree_remove(tree, keys[i], strlen(keys[i])), -ENOENT, "no such key");
    }
    CHECK_EQUAL(bytes, 77);
    CHECK_OK(remo_tree_scan(tree, NULL, buffer, sizeof buffer, &result));
    CHECK(result.entries == 0 && result.bytes == 0 && result.is_complete);
    CHECK_OK(remo_tree_scan(tree, NULL, buffer, 0, &result)); /* no room is needed */
    CHECK(result.entries == 0 && result.is_complete);
    return 0;
}

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

/* ---- scans ---- */

#define SCAN_KEYS 300u

/* Keys 000, 002, 004, ... of all owners, with values of 8 bytes. */
static void make_scan_key(char *key, uint32_t number) {
    snprintf(key, 4, "%03u", number % 1000);
}

/* Scan from key number `from` up to `to` (1000: no end), and expect exactly these entries. */
static int scan_numbers(struct remo_tree *tree, uint32_t from, uint32_t to, uint64_t limit, size_t cap,
                        uint32_t entries, bool is_complete) {
    char keys[3][4], buffer[SCAN_KEYS * 16];
    struct remo_tree_range range = {.limit = limit};
    struct remo_tree_result result;
    struct remo_tree_entry entry;
    size_t offset = 0;
    make_scan_key(keys[0], from);
    make_scan_key(keys[1], to);
    range.from = (struct remo_tree_key){from > 0 ? keys[0] : NULL, 3};
    range.to = (struct remo_tree_key){to < 1000 ? keys[1] : NULL, 3};
    memset(buffer, 0x5a, sizeof buffer);
    CHECK_OK(remo_tree_scan(tree, &range, buffer, cap, &result));
    CHECK_EQUAL(result.entries, entries);
    CHECK_EQUAL(result.bytes, 15u * entries);
    CHECK_EQUAL(result.is_complete, is_complete);
    CHECK(cap == sizeof buffer || buffer[cap] == 0x5a);
    for (uint32_t i = 0; i < entries; i++) {
        CHECK(remo_tree_result_next(buffer, &result, &offset, &entry));
        make_scan_key(keys[2], (from + 1) / 2 * 2 + 2 * i);
        CHECK(entry.key.bytes == 3 && memcmp(entry.key.data, keys[2], 3) == 0);
        CHECK(entry.value.bytes == 8 && memcmp(entry.value.data, "12345678", 8) == 0);
    }
    CHECK(!remo_tree_result_next(buffer, &result, &offset, &entry));
    return 0;
}

/* Continue after the last key, until the scan is complete. */
static int scan_on(struct remo_tree *tree, uint64_t limit, size_t cap) {
    char buffer[SCAN_KEYS * 16], from[4], key[4];
    struct remo_tree_range range = {.limit = limit};
    struct remo_tree_result result = {0};
    uint32_t next = 0;
    while (!result.is_complete) {
        struct remo_tree_entry entry;
        size_t offset = 0;
        CHECK_OK(remo_tree_scan(tree, &range, buffer, cap, &result));
        CHECK(result.entries > 0 && (limit == 0 || result.entries <= limit) && result.bytes <= cap);
        for (; remo_tree_result_next(buffer, &result, &offset, &entry); next++) {
            make_scan_key(key, 2 * next);
            CHECK(memcmp(entry.key.data, key, 3) == 0);
        }
        memcpy(from, key, 4); /* the last key and a zero: the next possible key */
        range.from = (struct remo_tree_key){from, 4};
    }
    CHECK_EQUAL(next, SCAN_KEYS);
    return 0;
}

static int scan_ranges(struct remo_tree *tree) {
    size_t all = SCAN_KEYS * 16;
    CHECK(scan_numbers(tree, 0, 1000, 0, all, SCAN_KEYS, true) == 0);
    CHECK(scan_numbers(tree, 0, 600, 0, all, SCAN_KEYS, true) == 0);
    CHECK(scan_numbers(tree, 0, 599, 0, all, SCAN_KEYS, true) == 0);
    CHECK(scan_numbers(tree, 0, 598, 0, all, SCAN_KEYS - 1, true) == 0);
    for (uint32_t from = 1; from < 600; from += 37)
        for (uint32_t to = from; to <= 600; to += 53)
            CHECK(scan_numbers(tree, from, to, 0, all, (to + 1) / 2 - (from + 1) / 2, true) == 0);
    CHECK(scan_numbers(tree, 598, 1000, 0, all, 1, true) == 0);
    CHECK(scan_numbers(tree, 599, 1000, 0, all, 0, true) == 0);
    CHECK(scan_numbers(tree, 99, 99, 0, all, 0, true) == 0);
    CHECK(scan_numbers(tree, 200, 201, 0, 15, 1, true) == 0);
    return 0;
}

static int scan_limits(struct remo_tree *tree) {
    size_t all = SCAN_KEYS * 16;
    CHECK(scan_numbers(tree, 0, 1000, 1, all, 1, false) == 0);
    CHECK(scan_numbers(tree, 0, 1000, SCAN_KEYS - 1, all, SCAN_KEYS - 1, false) == 0);
    CHECK(scan_numbers(tree, 0, 1000, SCAN_KEYS, all, SCAN_KEYS, true) == 0);
    CHECK(scan_numbers(tree, 0, 1000, UINT64_MAX, all, SCAN_KEYS, true) == 0);
    CHECK(scan_numbers(tree, 150, 250, 50, all, 50, true) == 0);
    CHECK(scan_numbers(tree, 150, 250, 49, all, 49, false) == 0);
    CHECK(scan_numbers(tree, 0, 1000, 0, 15, 1, false) == 0);
    CHECK(scan_numbers(tree, 0, 1000, 0, 29, 1, false) == 0);
    CHECK(scan_numbers(tree, 0, 1000, 0, 15 * SCAN_KEYS - 1, SCAN_KEYS - 1, false) == 0);
    CHECK(scan_numbers(tree, 0, 1000, 0, 15 * SCAN_KEYS, SCAN_KEYS, true) == 0);
    CHECK(scan_on(tree, 0, all) == 0);
    CHECK(scan_on(tree, 7, all) == 0);
    CHECK(scan_on(tree, 100, all) == 0);
    CHECK(scan_on(tree, 0, 15 * 11 + 3) == 0);
    return 0;
}

static int scan_errors(struct remo_tree *tree) {
    char buffer[64];
    struct remo_tree_result result;
    struct remo_tree_range range = {.from = {"5", 1}, .to = {"49", 2}};
    CHECK_SENTENCE(remo_tree_scan(tree, NULL, buffer, 14, &result), -EMSGSIZE, "14 bytes");
    CHECK_SENTENCE(remo_tree_scan(tree, NULL, buffer, 0, &result), -EMSGSIZE, "first entry");
    CHECK_SENTENCE(remo_tree_scan(tree, &range, buffer, 64, &result), -EINVAL, "`from` is after `to`");
    range = (struct remo_tree_range){.from = {"5", 25}};
    CHECK_SENTENCE(remo_tree_scan(tree, &range, buffer, 64, &result), -EINVAL, "too long");
    range = (struct remo_tree_range){.to = {"5", SIZE_MAX}};
    CHECK_SENTENCE(remo_tree_scan(tree, &range, buffer, 64, &result), -EINVAL, "too long");
    range = (struct remo_tree_range){.flags = 16};
    CHECK_SENTENCE(remo_tree_scan(tree, &range, buffer, 64, &result), -EINVAL, "unknown flags 0x10");
    range = (struct remo_tree_range){.snapshot = (uint64_t[3]){1, 1}};
    CHECK_SENTENCE(remo_tree_scan(tree, &range, buffer, 64, &result), -EINVAL, "remo_tree_snapshot");
    range = (struct remo_tree_range){.snapshot = (uint64_t[3]){1, 1, UINT64_MAX - 1}, .from = {"3", 1}};
    CHECK_CODE(remo_tree_scan(tree, &range, buffer, 64, &result), -EINVAL); /* a version in the future */
    range = (struct remo_tree_range){.to = {"", 0}};                        /* all keys are after it */
    CHECK_OK(remo_tree_scan(tree, &range, buffer, 64, &result));
    CHECK(result.entries == 0 && result.is_complete);
    range = (struct remo_tree_range){.from = {"a", 1}};
    CHECK_OK(remo_tree_scan(tree, &range, buffer, 0, &result));
    CHECK(result.entries == 0 && result.is_complete);
    return 0;
}

/* ---- ranges of every kind, against a model ---- */

struct expected {
    uint32_t numbers[SCAN_KEYS], count; /* in the order of the scan */
};

/* The tree has the even numbers below 2 * SCAN_KEYS. `to` 1000: no end. */
static void expect_range(uint32_t from, uint32_t to, uint32_t flags, struct expected *ret) {
    ret->count = 0;
    for (uint32_t i = 0; i < SCAN_KEYS; i++) {
        uint32_t number = 2 * (flags & REMO_TREE_DESCENDING ? SCAN_KEYS - 1 - i : i);
        bool is_in = number > from || (number == from && (from == 0 || !(flags & REMO_TREE_FROM_EXCLUDED)));
        if (is_in && (number < to || (number == to && flags & REMO_TREE_TO_INCLUDED)))
            ret->numbers[ret->count++] = number;
    }
}

static int compare_scan(struct remo_tree *tree, const struct remo_tree_range *range,
                        const struct expected *expected) {
    static char buffer[SCAN_KEYS * 16];
    struct remo_tree_result result;
    struct remo_tree_entry entry;
    size_t offset = 0, value_bytes = range->flags & REMO_TREE_KEYS_ONLY ? 0 : 8;
    uint64_t count, entries = expected->count;
    if (range->limit != 0 && range->limit < entries)
        entries = range->limit;
    CHECK_OK(remo_tree_scan(tree, range, buffer, sizeof buffer, &result));
    CHECK_EQUAL(result.entries, entries);
    CHECK_EQUAL(result.is_complete, entries == expected->count);
    CHECK_EQUAL(result.bytes, entries * (7 + value_bytes));
    for (uint32_t i = 0; i < entries; i++) {
        char key[4];
        make_scan_key(key, expected->numbers[i]);
        CHECK(remo_tree_result_next(buffer, &result, &offset, &entry));
        CHECK(entry.key.bytes == 3 && memcmp(entry.key.data, key, 3) == 0);
        CHECK(entry.value.bytes == value_bytes && memcmp(entry.value.data, "12345678", value_bytes) == 0);
    }
    CHECK(!remo_tree_result_next(buffer, &result, &offset, &entry));
    CHECK_OK(remo_tree_count(tree, range, &count));
    CHECK_EQUAL(count, entries);
    return 0;
}

/* All combinations of flags, with and without limits and snapshots. */
static int scan_kinds(struct remo_tree *tree) {
    uint64_t snapshot[4];
    struct remo__random random;
    CHECK_EQUAL(remo_tree_owners(tree), 3);
    CHECK_OK(remo_tree_snapshot(tree, snapshot));
    remo__random_seed(&random, 1 + remo_node_rank(tree->node));
    for (uint32_t i = 0; i < 480; i++) {
        char keys[2][4];
        struct expected expected;
        uint32_t from = (uint32_t)remo__random_below(&random, 620), to = from;
        to += i % 5 == 0 ? i % 3 : (uint32_t)remo__random_below(&random, 620 - from);
        from = i % 7 == 0 ? 0 : from;
        to = i % 11 == 0 ? 1000 : to;
        struct remo_tree_range range = {.flags = i % 16, .snapshot = i % 3 == 0 ? snapshot : NULL};
        range.limit = i % 4 == 0 ? 1 + remo__random_below(&random, 60) : 0;
        make_scan_key(keys[0], from);
        make_scan_key(keys[1], to);
        range.from = (struct remo_tree_key){from > 0 ? keys[0] : NULL, 3};
        range.to = (struct remo_tree_key){to < 1000 ? keys[1] : NULL, 3};
        expect_range(from, to, range.flags, &expected);
        if (compare_scan(tree, &range, &expected) != 0)
            return fprintf(stderr, "from %u to %u, flags %u, limit %llu\n", from, to, range.flags,
                           (unsigned long long)range.limit),
                   1;
    }
    return 0;
}

/* Leaves have about 20 entries; each node reads through all owners. */
static int scans(struct remo_node *node, void *ctx) {
    static const struct remo_tree_key boundaries[] = {{"2", 1}, {"250", 3}}; /* one leaf, and many */
    const struct remo_tree_options options = {SMALL, .boundaries = boundaries};
    struct remo_tree *tree;
    (void)ctx;
    CHECK(open_tree(node, &options, &tree) == 0);
    for (uint32_t i = remo_node_rank(node); i < SCAN_KEYS; i += 3) {
        char key[4];
        make_scan_key(key, 2 * i);
        CHECK_OK(remo_tree_insert(tree, key, 3, "12345678", 8));
    }
    CHECK_OK(cluster_meet());
    CHECK(scan_ranges(tree) == 0);
    CHECK(scan_limits(tree) == 0);
    CHECK(scan_kinds(tree) == 0);
    CHECK(scan_errors(tree) == 0);
    return close_tree(tree);
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

/* ---- snapshots ---- */

/* Expect the value of each key as of the snapshot, by scans in both directions and by gets. */
static int expect_snapshot(struct remo_tree *tree, const uint64_t *snapshot, uint32_t number) {
    static char buffer[SCAN_KEYS * 40];
    for (uint32_t descending = 0; descending < 2; descending++) {
        struct remo_tree_range range = {.flags = descending, .snapshot = snapshot};
        struct remo_tree_result result;
        struct remo_tree_entry entry;
        size_t offset = 0;
        CHECK_OK(remo_tree_scan(tree, &range, buffer, sizeof buffer, &result));
        CHECK_EQUAL(result.entries, SCAN_KEYS);
        while (remo_tree_result_next(buffer, &result, &offset, &entry))
            CHECK_EQUAL(number_of(entry.value.data, entry.value.bytes), number);
    }
    for (uint32_t i = 0; i < SCAN_KEYS; i += 7) {
        char key[4], value[NUMBER_BYTES_MAX];
        size_t bytes;
        make_scan_key(key, i);
        CHECK_OK(remo_tree_get_at(tree, snapshot, key, 3, value, sizeof value, &bytes));
        CHECK_EQUAL(number_of(value, bytes), number);
    }
    return 0;
}

/* Change the keys of this node's share. */
static int change_all(struct remo_tree *tree, uint32_t number) {
    for (uint32_t i = remo_node_rank(tree->node); i < SCAN_KEYS; i += remo_node_size(tree->node)) {
        char key[4];
        make_scan_key(key, i);
        CHECK_OK(change_number(tree, remo_tree_upsert, key, number));
    }
    return 0;
}

/* Change a key of this owner until the snapshot of its keys is not retained. */
static int outdate(struct remo_tree *tree, const uint64_t *snapshot) {
    char first[] = {(char)('0' + remo_node_rank(tree->node)), '0', '0'}, last = (char)(first[0] + 1),
         value[8];
    const struct remo_tree_range range = {.from = {first, 1}, .to = {&last, 1}, .snapshot = snapshot};
    uint64_t count;
    size_t bytes;
    int rc = 0, get_rc = 0;
    for (uint32_t i = 0; (rc == 0 || get_rc == 0) && i < 100000; i++) {
        CHECK_OK(remo_tree_upsert(tree, first, 1, &i, sizeof i));
        if (i % 64 != 0)
            continue;
        rc = remo_tree_count(tree, &range, &count);
        get_rc = remo_tree_get_at(tree, snapshot, first, 3, value, sizeof value, &bytes);
        CHECK((rc == 0 || rc == -ESTALE) && (get_rc == 0 || get_rc == -ESTALE));
    }
    CHECK(rc == -ESTALE && get_rc == -ESTALE);
    return 0;
}

/* Node 0 passes a snapshot to the others. All read it, while the keys change, and later, when they are
 * removed. At last it is not retained. */
static int snapshots(struct remo_node *node, void *ctx) {
    static const struct remo_tree_key boundaries[] = {{"1", 1}, {"2", 1}};
    const struct remo_tree_options options = {SMALL, .boundaries = boundaries, .retain = 400};
    struct remo_tree *tree;
    struct remo_tree_owner_stats stats;
    (void)ctx;
    CHECK(open_tree(node, &options, &tree) == 0);
    CHECK(change_all(tree, 1) == 0);
    CHECK_OK(cluster_meet());
    CHECK_OK(remo_tree_stats(tree, &stats));
    CHECK(stats.levels == 2 && stats.nodes > 2 && stats.nodes_max == tree->node_count);
    if (remo_node_rank(node) == 0)
        CHECK_OK(remo_tree_snapshot(tree, shared->snapshot));
    CHECK_OK(cluster_meet());
    CHECK(change_all(tree, 2 + remo_node_rank(node)) == 0); /* beside the reads of others */
    CHECK(expect_snapshot(tree, shared->snapshot, 1) == 0);
    CHECK_OK(cluster_meet());
    for (uint32_t i = remo_node_rank(node); i < SCAN_KEYS; i += remo_node_size(node)) {
        char key[4];
        make_scan_key(key, i);
        CHECK_OK(remo_tree_remove(tree, key, 3));
    }
    CHECK_OK(cluster_meet());
    CHECK(expect_snapshot(tree, shared->snapshot, 1) == 0);
    CHECK(expect_nothing(tree) == 0);
    CHECK_OK(cluster_meet());
    CHECK(outdate(tree, shared->snapshot) == 0);
    return close_tree(tree);
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
    uint64_t version, freeze_ns = SECOND / 10;
    (void)ctx;
    CHECK(open_tree(node, &options, &tree) == 0);
    for (uint32_t i = 0; i < 2 && tree->own; i++) { /* only thaws end this delay */
        CHECK_OK(remo__tree_freeze(tree, freeze_ns, &version));
        tree->own->frozen_until_ns = cluster_now_ns() + 1000 * SECOND;
    }
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
        CLUSTER_TEST_NAMED("changes, two owners", random_changes, 4, .ctx = &few_owners),
        CLUSTER_TEST_NAMED("changes, four owners", random_changes, 4, .ctx = &all_owners),
        CLUSTER_TEST_NAMED("changes, nodes of a process", random_changes, 4, .ctx = &few_owners,
                           .as_threads = 1),
        CLUSTER_TEST_NAMED("changes, two threads", random_changes, 3, .ctx = &threads),
        CLUSTER_TEST(all_keys, 2),
        CLUSTER_TEST(long_fences, 2),
        CLUSTER_TEST(scans, 3),
        CLUSTER_TEST(snapshots, 3),
        CLUSTER_TEST(boundaries, 3),
        CLUSTER_TEST(different_options, 2),
        CLUSTER_TEST(costs, 2),
        CLUSTER_TEST(full, 2),
        CLUSTER_TEST(frozen, 2),
        CLUSTER_TEST(thawed, 2),
        CLUSTER_TEST(tasks, 3),
        CLUSTER_TEST(errors, 3),
        {0},
    };
    return tree_main(argc, argv, tests);
}
