/* test_tree_load.c - loads of sorted entries: all sizes and fill percentages, with changes afterwards; into
 * gaps between other keys; beside scans, gets, snapshots and changes of other nodes, and beside each other;
 * keys of various lengths; every error, after which the first entries are loaded; cost and memory. */
#include <stdio.h>

#include "base/random.h"
#include "objects/versioned/versioned.h"
#include "tree_common.h"

#define SMALL .node_bytes = 512, .key_bytes_max = 24, .value_bytes_max = NUMBER_BYTES_MAX
#define KEY_TEXT_BYTES 40u

enum fault { NONE, EQUAL_KEYS, WRONG_ORDER, LONG_KEY, NO_KEY, LONG_VALUE, NO_VALUE, FOREIGN_KEY, CODE };

/* Keys first, first + step, ... as text of 8 digits and up to 15 letters. */
struct input {
    uint32_t first, count, step;
    uint32_t padding; /* 0: none; otherwise the maximum */
    uint32_t at;      /* entries that were returned */
    uint32_t fault_at;
    enum fault fault;
    void (*pace)(uint32_t at); /* before each entry; NULL: none */
    char key[KEY_TEXT_BYTES];
    unsigned char value[NUMBER_BYTES_MAX];
};

static void make_key(char key[KEY_TEXT_BYTES], uint32_t number, uint32_t padding) {
    uint32_t letters = padding ? number * 2654435761u % (padding + 1) : 0;
    snprintf(key, KEY_TEXT_BYTES, "%08u%.*s", number, (int)letters, "abcdefghijklmnopqrstuvwxyz");
}

static void make_fault(struct input *input, struct remo_tree_entry *entry) {
    switch (input->fault) {
    case EQUAL_KEYS: make_key(input->key, input->first + (input->at - 1) * input->step, 0); break;
    case WRONG_ORDER: entry->key = (struct remo_tree_key){"0\n\\", 3}; break;
    case LONG_KEY: entry->key.bytes = 25; break;
    case NO_KEY: entry->key.data = NULL; break;
    case LONG_VALUE: entry->value.bytes = NUMBER_BYTES_MAX + 1; break;
    case NO_VALUE: entry->value.data = NULL; break;
    case FOREIGN_KEY: entry->key = (struct remo_tree_key){"x", 1}; break;
    default: break;
    }
}

static int next_entry(void *ctx, struct remo_tree_entry *ret_entry) {
    struct input *input = ctx;
    if (input->pace)
        input->pace(input->at);
    if (input->at == input->count)
        return 0;
    uint32_t number = input->first + input->at * input->step;
    make_key(input->key, number, input->padding);
    *ret_entry = (struct remo_tree_entry){.key = {input->key, strlen(input->key)},
                                          .value = {input->value, make_value(input->value, number + 1)}};
    if (input->fault != NONE && input->at == input->fault_at) {
        make_fault(input, ret_entry);
        if (input->fault == CODE)
            return -EILSEQ;
    }
    input->at++;
    return 1;
}

/* Load keys [first, first + count * step). */
static int load(struct remo_tree *tree, uint32_t first, uint32_t count, uint32_t step, uint32_t percent) {
    struct input input = {.first = first, .count = count, .step = step};
    uint64_t loaded = 77;
    CHECK_OK(remo_tree_load(tree, next_entry, &input, percent, &loaded));
    CHECK_EQUAL(loaded, count);
    return 0;
}

static int expect_key(struct remo_tree *tree, uint32_t number, uint32_t padding) {
    char key[KEY_TEXT_BYTES];
    make_key(key, number, padding);
    CHECK_NUMBER(tree, key, number + 1);
    return 0;
}

/* Scan all entries: keys first, first + step, ... Returns their number, or UINT64_MAX. */
static uint64_t scan_all(struct remo_tree *tree, struct remo_tree_range range, uint32_t step,
                         uint32_t padding) {
    static char buffer[2 << 20];
    struct remo_tree_result result;
    struct remo_tree_entry entry;
    char key[KEY_TEXT_BYTES];
    size_t offset = 0;
    uint64_t count = 0;
    if (remo_tree_scan(tree, &range, buffer, sizeof buffer, &result) != 0 || !result.is_complete)
        return UINT64_MAX;
    for (; remo_tree_result_next(buffer, &result, &offset, &entry); count++) {
        uint32_t number =
            (uint32_t)(range.flags & REMO_TREE_DESCENDING ? result.entries - 1 - count : count) * step;
        make_key(key, number, padding);
        if (entry.key.bytes != strlen(key) || memcmp(entry.key.data, key, entry.key.bytes) != 0
            || number_of(entry.value.data, entry.value.bytes) != number + 1)
            return UINT64_MAX;
    }
    return count;
}

/* ---- all sizes ---- */

/* Insert keys between those that were loaded, and remove them again. */
static int change_after(struct remo_tree *tree, struct remo__random *random, uint32_t count) {
    char key[KEY_TEXT_BYTES];
    for (uint32_t i = 0; i < 200; i++) {
        uint32_t number = (uint32_t)remo__random_below(random, count) * 2 + 1;
        make_key(key, number, 0);
        int rc = change_number(tree, remo_tree_insert, key, number + 1);
        CHECK(rc == 0 || rc == -EEXIST);
        CHECK(expect_key(tree, number, 0) == 0);
    }
    CHECK(check_shape(tree, NULL) == 0);
    for (uint32_t i = 0; i < count; i++) {
        make_key(key, 2 * i + 1, 0);
        int rc = remo_tree_remove(tree, key, strlen(key));
        CHECK(rc == 0 || rc == -ENOENT);
    }
    return check_shape(tree, NULL);
}

static int load_at_owner(struct remo_tree *tree, uint32_t count, uint32_t percent) {
    struct input input = {.count = count, .step = 2};
    struct shape shape = {0};
    uint64_t loaded = 77;
    CHECK_COST(remo_tree_channel(tree), CHECK_OK(remo_tree_load(tree, next_entry, &input, percent, &loaded)),
               0, 0, 0, 0);
    CHECK_EQUAL(loaded, count);
    CHECK(check_shape(tree, &shape) == 0);
    CHECK_EQUAL(shape.entries, count);
    CHECK(count < 18000 || shape.levels >= 4);
    CHECK(count > 7 || shape.levels == 1);
    return 0;
}

static int clear(struct remo_tree *tree) {
    const struct remo_tree_range all = {.limit = 0};
    struct shape shape = {0};
    CHECK_OK(remo_tree_remove_range(tree, &all, NULL));
    CHECK(check_shape(tree, &shape) == 0);
    CHECK_EQUAL(shape.entries, 0);
    return 0;
}

static int load_size(struct remo_tree *tree, uint32_t count, uint32_t percent) {
    const struct remo_tree_range ascending = {.limit = 0}, descending = {.flags = REMO_TREE_DESCENDING};
    struct remo__random random;
    remo__random_seed(&random, count);
    CHECK(!tree->own || load_at_owner(tree, count, percent) == 0);
    CHECK_OK(cluster_meet());
    CHECK_EQUAL(scan_all(tree, ascending, 2, 0), count);
    for (uint32_t i = 0; i < count; i += 1 + count / 50)
        CHECK(expect_key(tree, i * 2, 0) == 0);
    CHECK_OK(cluster_meet());
    if (tree->own) {
        CHECK(count == 0 || change_after(tree, &random, count) == 0);
        CHECK_EQUAL(scan_all(tree, descending, 2, 0), count);
        CHECK(clear(tree) == 0);
    }
    return cluster_meet();
}

static int sizes(struct remo_node *node, void *ctx) {
    static const uint32_t counts[] = {0, 1, 2, 7, 14, 15, 16, 17, 30, 200, 1000, 18000},
                          percents[] = {0, 50, 90, 100};
    const struct remo_tree_options options = {SMALL, .owners = first_nodes(1), .nodes = 4000, .retain = 8000};
    struct remo_tree *tree;
    (void)ctx;
    CHECK(open_tree(node, &options, &tree) == 0);
    for (uint32_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        for (uint32_t p = 0; p < 4; p++)
            if (counts[i] < 10000 || (is_mapped(node) && p % 2 == 1))
                CHECK(load_size(tree, counts[i], percents[p]) == 0);
    return close_tree(tree);
}

/* ---- fill, and memory for each entry ---- */

struct words {
    uint64_t at, count, key;
};

static int next_word(void *ctx, struct remo_tree_entry *ret_entry) {
    struct words *words = ctx;
    if (words->at == words->count)
        return 0;
    words->key = __builtin_bswap64(words->at++);
    *ret_entry = (struct remo_tree_entry){.key = {&words->key, 8}, .value = {&words->key, 8}};
    return 1;
}

/* A node of 4096 bytes has a header of 20 bytes, two fences of 8, and 4060 bytes for index and run. A compact
 * leaf needs 16 bytes, a fingerprint and a bit for each entry, and 7 bytes to align the run. An inner
 * node has entries of 19 bytes. */
static int fill(struct remo_node *node, void *ctx) {
    static const struct {
        uint32_t percent, of_leaf;
    } cases[] = {{0, 212}, {50, 118}, {75, 177}, {90, 212}, {100, 236}};
    const struct remo_tree_options options = {.owners = first_nodes(1),
                                              .nodes = 2000,
                                              .node_bytes = 4096,
                                              .key_bytes_max = 8,
                                              .value_bytes_max = 8};
    struct remo_tree *tree;
    (void)ctx;
    CHECK(open_tree(node, &options, &tree) == 0);
    for (uint32_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct words words = {.count = 100000};
        struct shape shape = {0};
        CHECK_OK(remo_tree_load(tree, next_word, &words, cases[i].percent, NULL));
        CHECK(check_shape(tree, &shape) == 0);
        CHECK_EQUAL(shape.entries, words.count);
        CHECK_EQUAL(shape.leaves, (words.count + cases[i].of_leaf - 1) / cases[i].of_leaf);
        CHECK(shape.inner <= 1 + (shape.leaves + 199) / 200);
        CHECK(clear(tree) == 0);
    }
    return close_tree(tree);
}

/* ---- memory ---- */

/* Return the network memory of the nodes in use, without retained extents. */
static uint64_t used_bytes(struct remo_tree *tree) {
    return (uint64_t)(tree->node_count - count_unused(tree)) * tree->nodes->shape.extent_bytes;
}

/* The network memory of entries of 8 + 8 bytes: loaded into full leaves, inserted in a random order, and
 * after all but 1 % of them have been removed. */
static int memory(struct remo_node *node, void *ctx) {
    enum { COUNT = 100000 };
    const struct remo_tree_options options = {.owners = first_nodes(1),
                                              .nodes = 2000,
                                              .node_bytes = 4096,
                                              .key_bytes_max = 8,
                                              .value_bytes_max = 8};
    struct words words = {.count = COUNT};
    struct remo_tree *tree;
    (void)ctx;
    CHECK(open_tree(node, &options, &tree) == 0);
    CHECK_OK(remo_tree_load(tree, next_word, &words, 100, NULL));
    uint64_t loaded = used_bytes(tree);
    CHECK(loaded * 10 <= COUNT * UINT64_C(210));
    CHECK(clear(tree) == 0);
    for (uint64_t i = 0; i < COUNT; i++) {
        uint64_t key = remo__random_mix(i);
        CHECK_OK(remo_tree_insert(tree, &key, sizeof key, &i, sizeof i));
    }
    uint64_t inserted = used_bytes(tree);
    CHECK(inserted <= COUNT * UINT64_C(40));
    for (uint64_t i = 0; i < COUNT; i++) {
        uint64_t key = remo__random_mix(i);
        if (i % 100 != 0)
            CHECK_OK(remo_tree_remove(tree, &key, sizeof key));
    }
    uint64_t left = used_bytes(tree);
    printf("     bytes of an entry: loaded %.1f, inserted %.1f; left by removals: %.1f %%\n",
           (double)loaded / COUNT, (double)inserted / COUNT, 100.0 * (double)left / (double)inserted);
    CHECK(left * 10 <= inserted);
    CHECK(check_shape(tree, NULL) == 0);
    return close_tree(tree);
}

/* ---- keys of various lengths ---- */

/* The fences differ in length, so a full leaf may have no room for the fence of the next one. */
static int lengths(struct remo_node *node, void *ctx) {
    const struct remo_tree_options options = {SMALL, .owners = first_nodes(1), .nodes = 2000, .retain = 4000};
    struct remo_tree *tree;
    (void)ctx;
    CHECK(open_tree(node, &options, &tree) == 0);
    for (uint32_t percent = 50; percent <= 100; percent += 10) {
        struct input input = {.count = 3000, .step = 1, .padding = 1 + percent % 16};
        uint64_t loaded = 77;
        CHECK_OK(remo_tree_load(tree, next_entry, &input, percent, &loaded));
        CHECK_EQUAL(loaded, input.count);
        CHECK(check_shape(tree, NULL) == 0);
        CHECK_EQUAL(scan_all(tree, (struct remo_tree_range){.limit = 0}, 1, input.padding), input.count);
        CHECK(clear(tree) == 0);
    }
    return close_tree(tree);
}

/* A leaf without a high fence has 492 bytes for 15 entries of 31 bytes, and one of up to 27 bytes: it is
 * mixed. If fewer than 8 bytes are free for the fence, the first entry is inserted, and splits the leaf. */
static int no_room_for_fence(struct remo_node *node, void *ctx) {
    const struct remo_tree_options options = {SMALL, .owners = first_nodes(1), .nodes = 100};
    const char value[16] = "";
    struct remo_tree *tree;
    char key[KEY_TEXT_BYTES];
    uint64_t count = 0;
    (void)ctx;
    for (uint32_t free_bytes = 0; free_bytes < 12; free_bytes++) {
        CHECK(open_tree(node, &options, &tree) == 0);
        for (uint32_t i = 0; i < 16; i++) {
            make_key(key, i, 0);
            CHECK_OK(remo_tree_insert(tree, key, 8, value, i < 15 ? 16 : 12 - free_bytes));
        }
        CHECK_EQUAL(count_unused(tree), 99);
        CHECK(load(tree, 16, 100, 1, 100) == 0);
        CHECK(check_shape(tree, NULL) == 0);
        CHECK_OK(remo_tree_count(tree, NULL, &count));
        CHECK_EQUAL(count, 116);
        CHECK(close_tree(tree) == 0);
    }
    return 0;
}

/* ---- several loads, gaps, freezes ---- */

/* Load tens, then the numbers between them, part by part. */
static int gaps(struct remo_node *node, void *ctx) {
    const struct remo_tree_options options = {SMALL, .owners = first_nodes(1), .nodes = 2000};
    struct remo_tree *tree;
    uint64_t version;
    (void)ctx;
    CHECK(open_tree(node, &options, &tree) == 0);
    CHECK(load(tree, 5000, 1, 1, 0) == 0);
    CHECK(load(tree, 0, 30, 100, 100) == 0); /* each entry has a gap of its own */
    for (uint32_t i = 0; i < 30; i++)
        CHECK(load(tree, i * 100 + 1, 99, 1, i % 2 ? 100 : 50) == 0);
    CHECK_OK(remo__tree_freeze(tree, SECOND / 100, &version));
    CHECK(load(tree, 3000, 2000, 1, 0) == 0); /* before the last entry */
    CHECK(load(tree, 5001, 1, 1, 0) == 0);
    for (uint32_t i = 5002; i < 5100; i++)
        CHECK(load(tree, i, 1, 1, 0) == 0);
    struct shape shape = {0};
    CHECK(check_shape(tree, &shape) == 0);
    CHECK_EQUAL(shape.entries, 5100);
    CHECK(shape.leaves < 5100 / 6); /* small loads share leaves */
    CHECK_EQUAL(scan_all(tree, (struct remo_tree_range){.limit = 0}, 1, 0), 5100);
    return close_tree(tree);
}

/* Remove some adjacent keys and load them again, so that a part often ends at the fence of a leaf. */
static int refill(struct remo_node *node, void *ctx) {
    const struct remo_tree_options options = {SMALL, .owners = first_nodes(1), .nodes = 200, .retain = 400};
    enum { COUNT = 600, ROUNDS = 400 };
    struct remo__random random;
    struct remo_tree *tree;
    char key[KEY_TEXT_BYTES];
    (void)ctx;
    remo__random_seed(&random, 6);
    CHECK(open_tree(node, &options, &tree) == 0);
    CHECK(load(tree, 0, COUNT, 1, 100) == 0);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        uint32_t first = (uint32_t)remo__random_below(&random, COUNT - 20);
        uint32_t count = 1 + (uint32_t)remo__random_below(&random, i % 2 ? 20 : 3);
        for (uint32_t number = first; number < first + count; number++) {
            make_key(key, number, 0);
            CHECK_OK(remo_tree_remove(tree, key, strlen(key)));
        }
        CHECK(load(tree, first, count, 1, 50 + i % 51) == 0);
        CHECK(check_shape(tree, NULL) == 0);
    }
    CHECK_EQUAL(scan_all(tree, (struct remo_tree_range){.limit = 0}, 1, 0), COUNT);
    return close_tree(tree);
}

struct thread_load {
    struct remo_tree *tree;
    uint32_t first;
    int result;
};

static void *load_of_thread(void *ctx) {
    struct thread_load *part = ctx;
    part->result = load(part->tree, part->first, 3000, 1, 100);
    return NULL;
}

/* Each thread loads keys behind or before those of the other one. */
static int threads(struct remo_node *node, void *ctx) {
    const struct remo_tree_options options = {SMALL, .owners = first_nodes(1), .nodes = 2000};
    struct remo_tree *tree;
    pthread_t ids[2];
    (void)ctx;
    CHECK(open_tree(node, &options, &tree) == 0);
    struct thread_load parts[2] = {{tree, 0, 1}, {tree, 3000, 1}};
    for (uint32_t i = 0; i < 2; i++)
        CHECK(pthread_create(&ids[i], NULL, load_of_thread, &parts[i]) == 0);
    for (uint32_t i = 0; i < 2; i++)
        CHECK(pthread_join(ids[i], NULL) == 0);
    CHECK(parts[0].result == 0 && parts[1].result == 0);
    CHECK(check_shape(tree, NULL) == 0);
    CHECK_EQUAL(scan_all(tree, (struct remo_tree_range){.limit = 0}, 1, 0), 6000);
    return close_tree(tree);
}

/* ---- beside readers ---- */

/* Let the readers make a call for some entries each. */
static void await_readers(uint32_t at) {
    if (at % 64 != 0)
        return;
    uint32_t count = atomic_load(&shared->count);
    while (!atomic_load(&shared->done) && atomic_load(&shared->count) < count + 2)
        cluster_sleep_ms(1);
}

/* Each scan returns the first entries of the input, and a later scan not fewer. */
static int scan_beside(struct remo_tree *tree, uint32_t count) {
    uint64_t last = 0, entries = 0;
    for (uint32_t i = 0; last < count; i++) {
        entries = scan_all(tree, (struct remo_tree_range){.flags = i % 2 ? REMO_TREE_DESCENDING : 0}, 1, 0);
        CHECK(entries != UINT64_MAX);
        CHECK(entries >= last && entries <= count);
        last = entries;
        atomic_fetch_add(&shared->count, 1);
    }
    return 0;
}

/* A key that is present follows only present keys. A snapshot has the first entries, and keeps them. */
static int get_beside(struct remo_tree *tree, uint32_t count) {
    struct remo__random random;
    uint64_t snapshot[1], again;
    char key[KEY_TEXT_BYTES];
    uint32_t number;
    remo__random_seed(&random, 5);
    do {
        uint32_t high = (uint32_t)remo__random_below(&random, count), low = high - high / 7;
        make_key(key, high, 0);
        int rc = get_number(tree, key, &number);
        CHECK(rc == 0 || rc == -ENOENT);
        CHECK(rc != 0 || expect_key(tree, low, 0) == 0);
        CHECK_OK(remo_tree_snapshot(tree, snapshot));
        uint64_t entries = scan_all(tree, (struct remo_tree_range){.snapshot = snapshot}, 1, 0);
        again = scan_all(tree, (struct remo_tree_range){.snapshot = snapshot}, 1, 0);
        CHECK(entries != UINT64_MAX && again == entries);
        atomic_fetch_add(&shared->count, 1);
    } while (again < count);
    return 0;
}

static int beside_readers(struct remo_node *node, void *ctx) {
    const struct remo_tree_options options = {SMALL, .owners = first_nodes(1), .nodes = 1000, .retain = 8000};
    uint32_t count = is_mapped(node) ? 6000 : 2000;
    struct remo_tree *tree;
    (void)ctx;
    CHECK(open_tree(node, &options, &tree) == 0);
    if (remo_node_rank(node) == 0) {
        struct input input = {.count = count, .step = 1, .pace = await_readers};
        CHECK_OK(remo_tree_load(tree, next_entry, &input, 100, NULL));
        CHECK(check_shape(tree, NULL) == 0);
    } else {
        CHECK(remo_node_rank(node) == 1 ? scan_beside(tree, count) == 0 : get_beside(tree, count) == 0);
        atomic_store(&shared->done, 1); /* the load waits for none any more */
    }
    return close_tree(tree);
}

/* ---- beside changes ---- */

#define LOADED_KEYS 1200u

/* Let each writer make a change for each entry. */
static void await_writers(uint32_t at) {
    while (at < LOADED_KEYS && (atomic_load(&shared->ended[0]) < at || atomic_load(&shared->ended[1]) < at))
        cluster_sleep_ms(at % 16 == 0);
    atomic_store(&shared->begun[0], at);
}

/* Node 1 inserts a key between two of the load, anywhere. Node 2 removes keys that were loaded. */
static int change_beside(struct remo_tree *tree) {
    struct remo__random random;
    char key[KEY_TEXT_BYTES];
    uint32_t rank = remo_node_rank(tree->node);
    remo__random_seed(&random, rank);
    for (uint32_t i = 0; i < LOADED_KEYS; i++) {
        if (rank == 1) {
            uint32_t number = (i * 7 % LOADED_KEYS) * 3 + 1;
            make_key(key, number, 0);
            CHECK_OK(change_number(tree, remo_tree_insert, key, number + 1));
        } else {
            uint32_t index = (uint32_t)remo__random_below(&random, 1 + atomic_load(&shared->begun[0]));
            make_key(key, index * 3, 0);
            int rc = remo_tree_remove(tree, key, strlen(key));
            CHECK(rc == 0 || rc == -ENOENT);
            atomic_fetch_add(&shared->numbers[index % KEYS_MAX], rc == 0);
        }
        atomic_fetch_add(&shared->ended[rank - 1], 1);
    }
    return 0;
}

static int beside_changes(struct remo_node *node, void *ctx) {
    const struct remo_tree_options options = {SMALL, .owners = first_nodes(1), .nodes = 1000, .retain = 8000};
    struct remo_tree *tree;
    char key[KEY_TEXT_BYTES];
    uint32_t number;
    uint64_t loaded = 77;
    (void)ctx;
    CHECK(open_tree(node, &options, &tree) == 0);
    if (remo_node_rank(node) == 0) {
        struct input input = {.count = LOADED_KEYS, .step = 3, .pace = await_writers};
        CHECK_OK(remo_tree_load(tree, next_entry, &input, 50, &loaded));
        CHECK_EQUAL(loaded, LOADED_KEYS);
    } else {
        CHECK(change_beside(tree) == 0);
    }
    CHECK_OK(cluster_meet());
    for (uint32_t i = 0; i < LOADED_KEYS; i++) {
        uint32_t removals = atomic_load(&shared->numbers[i]);
        CHECK(removals <= 1);
        make_key(key, i * 3, 0);
        CHECK_CODE(get_number(tree, key, &number), removals ? -ENOENT : 0);
        CHECK(expect_key(tree, i * 3 + 1, 0) == 0);
    }
    CHECK(!tree->own || check_shape(tree, NULL) == 0);
    return close_tree(tree);
}

/* ---- errors ---- */

/* Load 100 keys, of which entry 40 is wrong: 40 are loaded. */
static int load_wrong(struct remo_tree *tree, enum fault fault, int code, const char *words) {
    struct input input = {.count = 100, .step = 1, .fault = fault, .fault_at = 40};
    struct shape shape = {0};
    uint64_t loaded = 77;
    CHECK_SENTENCE(remo_tree_load(tree, next_entry, &input, 0, &loaded), code, words);
    CHECK_EQUAL(loaded, 40);
    CHECK(strstr(remo_last_error(), "entry 40 "));
    CHECK(check_shape(tree, &shape) == 0);
    CHECK_EQUAL(shape.entries, 40);
    CHECK_OK(load(tree, 40, 60, 1, 0)); /* the rest */
    CHECK(check_shape(tree, &shape) == 0);
    CHECK_EQUAL(shape.entries, 100);
    return clear(tree);
}

static int load_present(struct remo_tree *tree) {
    struct input input = {.first = 20, .count = 100, .step = 1}, first = {.first = 70, .count = 1, .step = 1};
    uint64_t loaded = 77;
    struct shape shape = {0};
    CHECK(load(tree, 70, 1, 1, 0) == 0);
    CHECK_SENTENCE(remo_tree_load(tree, next_entry, &input, 0, &loaded), -EEXIST,
                   "key '00000070' is in the tree");
    CHECK(strstr(remo_last_error(), "entry 50 "));
    CHECK_EQUAL(loaded, 50);
    CHECK_SENTENCE(remo_tree_load(tree, next_entry, &first, 0, &loaded), -EEXIST, "entry 0 ");
    CHECK_EQUAL(loaded, 0);
    CHECK(check_shape(tree, &shape) == 0);
    CHECK_EQUAL(shape.entries, 51);
    return clear(tree);
}

/* The load fills the tree. After a removal, it continues. */
static int load_full(struct remo_tree *tree) {
    struct input input = {.count = 100000, .step = 1};
    struct shape shape = {0};
    uint64_t loaded = 77, rest = 77;
    CHECK_SENTENCE(remo_tree_load(tree, next_entry, &input, 100, &loaded), -ENOSPC, "more nodes");
    CHECK(check_shape(tree, &shape) == 0);
    CHECK_EQUAL(shape.entries, loaded);
    CHECK(loaded > 50 * 10 && count_unused(tree) < 2);
    const struct remo_tree_range all = {.limit = 300};
    CHECK_OK(remo_tree_remove_range(tree, &all, NULL));
    input = (struct input){.first = (uint32_t)loaded, .count = 100000, .step = 1};
    CHECK_SENTENCE(remo_tree_load(tree, next_entry, &input, 100, &rest), -ENOSPC, "more nodes");
    CHECK(rest > 100);
    CHECK(check_shape(tree, &shape) == 0);
    CHECK_EQUAL(shape.entries, loaded + rest - 300);
    CHECK(expect_key(tree, (uint32_t)(loaded + rest) - 1, 0) == 0);
    return clear(tree);
}

static int errors(struct remo_node *node, void *ctx) {
    static const struct remo_tree_key boundary = {"a", 1};
    const struct remo_tree_options options = {SMALL, .owners = first_nodes(2), .boundaries = &boundary,
                                              .nodes = 60, .retain = 200};
    struct input input = {.count = 10, .step = 1};
    struct remo_tree *tree;
    uint64_t loaded = 77;
    (void)ctx;
    CHECK(open_tree(node, &options, &tree) == 0);
    CHECK_SENTENCE(remo_tree_load(NULL, next_entry, &input, 0, &loaded), -EINVAL, "tree");
    CHECK_EQUAL(loaded, 0);
    CHECK_SENTENCE(remo_tree_load(tree, NULL, &input, 0, NULL), -EINVAL, "next");
    if (remo_node_rank(node) == 0) {
        CHECK_SENTENCE(remo_tree_load(tree, next_entry, &input, 49, NULL), -EINVAL, "from 50 to 100");
        CHECK_SENTENCE(remo_tree_load(tree, next_entry, &input, 101, NULL), -EINVAL, "from 50 to 100");
        CHECK_EQUAL(input.at, 0);
        CHECK(load_wrong(tree, EQUAL_KEYS, -EINVAL, "key '00000039' is not above") == 0);
        CHECK(load_wrong(tree, WRONG_ORDER, -EINVAL, "key '0\\x0a\\x5c' is not above") == 0);
        CHECK(load_wrong(tree, LONG_KEY, -EINVAL, "longer than key_bytes_max") == 0);
        CHECK(load_wrong(tree, NO_KEY, -EINVAL, "NULL") == 0);
        CHECK(load_wrong(tree, LONG_VALUE, -EINVAL, "key '00000040' has a value that is NULL, or longer")
              == 0);
        CHECK(load_wrong(tree, NO_VALUE, -EINVAL, "value that is NULL") == 0);
        CHECK(load_wrong(tree, FOREIGN_KEY, -EXDEV, "key 'x' belongs to another owner") == 0);
        CHECK(load_wrong(tree, CODE, -EILSEQ, "has returned") == 0);
        CHECK(load_present(tree) == 0);
        CHECK(load_full(tree) == 0);
    } else if (remo_node_rank(node) == 1) {
        CHECK_SENTENCE(remo_tree_load(tree, next_entry, &input, 0, &loaded), -EXDEV, "entry 0 ");
    } else {
        CHECK_SENTENCE(remo_tree_load(tree, next_entry, &input, 0, &loaded), -EPERM, "not an owner");
        CHECK_EQUAL(input.at, 0);
    }
    return close_tree(tree);
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(sizes, 2),
        CLUSTER_TEST(fill, 1),
        CLUSTER_TEST(memory, 1),
        CLUSTER_TEST(lengths, 1),
        CLUSTER_TEST(no_room_for_fence, 1),
        CLUSTER_TEST(gaps, 1),
        CLUSTER_TEST(refill, 1),
        CLUSTER_TEST(threads, 1),
        CLUSTER_TEST(beside_readers, 3),
        CLUSTER_TEST(beside_changes, 3),
        CLUSTER_TEST(errors, 3),
        {0},
    };
    return tree_main(argc, argv, tests);
}
