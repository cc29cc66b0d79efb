/* tree_common.h - functions that the tests of the tree share: open and close, values that reveal torn reads,
 * and a walk through the nodes of an owner. */
#pragma once

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../../support/turns.h"
#include "systems/tree/tree.h"

#define KEYS_MAX 1200u       /* of the random changes */
#define NUMBER_BYTES_MAX 24u /* of the value of a number */
#define WRITERS_MAX 2u

/* Nodes of the minimum size, so that few keys split them. */
#define SMALL .node_bytes = 512, .key_bytes_max = 24, .value_bytes_max = NUMBER_BYTES_MAX

struct tree_shared {
    _Atomic uint32_t numbers[KEYS_MAX]; /* the value of each key; 0: absent */
    _Atomic uint32_t begun[WRITERS_MAX], ended[WRITERS_MAX];
    _Atomic uint32_t done, count;
    _Atomic uint64_t frozen_ns; /* the time of the last freeze */
    uint64_t snapshot[4];       /* written before the nodes meet */
    struct turns turns;
};

static struct tree_shared *shared;

static inline int open_tree(struct remo_node *node, const struct remo_tree_options *options,
                            struct remo_tree **ret_tree) {
    CHECK_OK(remo_tree_open(remo_node_root(node), "tree", options, ret_tree));
    CHECK_OK(remo_channel_wait(remo_tree_channel(*ret_tree), 100 * SECOND));
    return 0;
}

/* Freeze the owner of this node: only thaws end this freeze. */
static inline int freeze_until_thawed(struct remo_tree *tree) {
    uint64_t version;
    CHECK_OK(remo__tree_freeze(tree, SECOND, &version));
    CHECK_OK(remo__mutex_lock(tree->node, &tree->own->mutex, REMO_FOREVER));
    tree->own->frozen_until_ns = cluster_now_ns() + 1000 * SECOND;
    remo__mutex_unlock(tree->node, &tree->own->mutex);
    return 0;
}

static inline int close_tree(struct remo_tree *tree) {
    CHECK_OK(cluster_meet());
    remo_tree_close(tree);
    CHECK_OK(cluster_meet());
    return 0;
}

static inline bool is_mapped(const struct remo_node *node) {
    return strcmp(remo_node_fabric(node), "shm") == 0;
}

static inline struct remo_nodeset first_nodes(uint32_t count) {
    return (struct remo_nodeset){.word = {(UINT64_C(1) << count) - 1}};
}

/* ---- values that contain a number, which determines all bytes ---- */

static inline uint32_t make_value(unsigned char *value, uint32_t number) {
    uint32_t bytes = 4 + number % (NUMBER_BYTES_MAX - 3);
    memcpy(value, &number, sizeof number);
    for (uint32_t i = sizeof number; i < bytes; i++)
        value[i] = (unsigned char)(number * 31 + i);
    return bytes;
}

/* Return the number of a value, or 0 if the value is not whole. */
static inline uint32_t number_of(const void *value, size_t bytes) {
    unsigned char expected[NUMBER_BYTES_MAX];
    uint32_t number = 0;
    if (bytes >= sizeof number)
        memcpy(&number, value, sizeof number);
    return make_value(expected, number) == bytes && memcmp(expected, value, bytes) == 0 ? number : 0;
}

typedef int change_fn(struct remo_tree *tree, const void *key, size_t key_bytes, const void *value,
                      size_t value_bytes);

/* Change a key, a string, to the value of a number. */
static inline int change_number(struct remo_tree *tree, change_fn *change, const char *key, uint32_t number) {
    unsigned char value[NUMBER_BYTES_MAX];
    uint32_t bytes = make_value(value, number);
    return change(tree, key, strlen(key), value, bytes);
}

/* Get the number of a key, a string. */
static inline int get_number(struct remo_tree *tree, const char *key, uint32_t *ret_number) {
    unsigned char value[NUMBER_BYTES_MAX];
    size_t bytes = 0;
    int rc = remo_tree_get(tree, key, strlen(key), value, sizeof value, &bytes);
    if (rc == 0)
        *ret_number = number_of(value, bytes);
    return rc;
}

#define CHECK_NUMBER(tree, key, number)         \
    do {                                        \
        uint32_t got_ = UINT32_MAX;             \
        CHECK_OK(get_number(tree, key, &got_)); \
        CHECK_EQUAL(got_, number);              \
    } while (0)

/* The tree is empty. */
static inline int expect_nothing(struct remo_tree *tree) {
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

/* ---- the nodes of this owner ---- */

struct shape {
    uint32_t levels, inner, leaves;
    uint64_t entries;
};

static inline struct tree_header header_of(const void *image) {
    struct tree_header header;
    memcpy(&header, image, sizeof header);
    return header;
}

static inline bool is_equal(struct tree_bytes a, struct tree_bytes b) {
    return remo__tree_compare(a, b) == 0;
}

/* Check the entries of a leaf, which are between the fences. */
static inline int check_leaf(const void *image, uint32_t bytes) {
    struct tree_bytes low = remo__tree_node_low(image, bytes), high, last = low;
    bool has_high = remo__tree_node_high(image, bytes, &high);
    struct tree_entry entry;
    struct tree_walk entries;
    uint32_t count = 0;
    CHECK(remo__tree_node_is_whole(image, bytes));
    CHECK(remo__tree_walk_begin(&entries, image, bytes, &low));
    for (; remo__tree_walk_next(&entries, &entry) == 1; count++) {
        struct tree_place place;
        CHECK(remo__tree_compare(last, entry.key) < (count == 0 ? 1 : 0));
        CHECK(!has_high || remo__tree_compare(entry.key, high) < 0);
        CHECK(remo__tree_node_find(image, bytes, entry.key, &place) && place.offset != 0);
        CHECK(place.index == UINT32_MAX
              || ((const uint8_t *)image)[remo__tree_fingerprints_at(&entries.header) + place.index]
                     == remo__tree_fingerprint(entry.key));
        last = entry.key;
    }
    CHECK_EQUAL(count, header_of(image).count);
    return 0;
}

/* Check the node and all nodes below it. `high` may be NULL. */
static inline int walk(struct remo_tree *tree, uint32_t object, uint32_t depth, struct tree_bytes low,
                       const struct tree_bytes *high, struct shape *shape) {
    uint32_t bytes = tree->node_bytes;
    unsigned char *image = malloc(bytes);
    struct tree_bytes fence, last = low;
    CHECK(image);
    CHECK_OK(remo_versioned_read(tree->nodes, tree->node->rank, object, image, NULL));
    struct tree_header header = header_of(image);
    if (depth == 0)
        shape->levels = header.level + 1u;
    CHECK_EQUAL(header.level, shape->levels - 1 - depth);
    CHECK(remo__tree_node_is_valid(image, bytes, header.level));
    CHECK(is_equal(remo__tree_node_low(image, bytes), low));
    CHECK_EQUAL(remo__tree_node_high(image, bytes, &fence), high != NULL);
    CHECK(!high || is_equal(fence, *high));
    CHECK(header.level == 0 || header.count > 0);
    const void *kept = tree->own->kept[object]; /* the owner keeps exactly the inner nodes */
    CHECK(header.level > 0 ? kept && memcmp(kept, image, bytes) == 0 : !kept);
    header.level > 0 ? shape->inner++ : shape->leaves++;
    shape->entries += header.level > 0 ? 0 : header.count;
    CHECK(header.level > 0 || check_leaf(image, bytes) == 0);
    for (uint32_t i = 0; i < header.count && header.level > 0; i++) {
        struct tree_entry entry, next;
        uint32_t child = 0;
        CHECK(remo__tree_node_entry(image, bytes, i, &entry));
        bool has_next = i + 1u < header.count && remo__tree_node_entry(image, bytes, i + 1, &next);
        if (i == 0)
            entry.key = low;
        CHECK(i == 0 ? remo__tree_compare(last, entry.key) <= 0 : remo__tree_compare(last, entry.key) < 0);
        CHECK(!high || remo__tree_compare(entry.key, *high) < 0);
        last = entry.key;
        CHECK_EQUAL(entry.value.bytes, sizeof child);
        memcpy(&child, entry.value.data, sizeof child);
        CHECK(child != TREE_ROOT && child < tree->node_count);
        CHECK(walk(tree, child, depth + 1, entry.key, has_next ? &next.key : high, shape) == 0);
    }
    free(image);
    return 0;
}

static inline uint32_t count_unused(struct remo_tree *tree) {
    if (remo__mutex_lock(tree->node, &tree->own->mutex, REMO_FOREVER) != 0)
        abort();
    uint32_t count = tree->own->free_count;
    remo__mutex_unlock(tree->node, &tree->own->mutex);
    return count;
}

/* The caller holds the mutex: other threads have changed the state that this thread reads. */
static inline int check_nodes(struct remo_tree *tree, struct shape *shape) {
    struct tree_bytes low = {"", 0};
    const struct tree_bytes *high = NULL;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < tree->owner_count; i++)
        if (tree->owners[i] == tree->node->rank) {
            low = i > 0 ? tree->boundaries[i - 1] : low;
            high = i + 1 < tree->owner_count ? &tree->boundaries[i] : NULL;
        }
    CHECK(walk(tree, TREE_ROOT, 0, low, high, shape) == 0);
    CHECK_EQUAL(shape->inner + shape->leaves + tree->own->free_count, tree->node_count);
    for (uint32_t i = 0; i < tree->node_count; i++)
        kept += tree->own->kept[i] != NULL;
    CHECK_EQUAL(kept, shape->inner);
    return 0;
}

/* Check the tree of this owner while nothing changes it: each node is in use once, or unused. */
static inline int check_shape(struct remo_tree *tree, struct shape *ret_shape) {
    struct shape shape = {0};
    CHECK_OK(remo__mutex_lock(tree->node, &tree->own->mutex, REMO_FOREVER));
    int result = check_nodes(tree, &shape);
    remo__mutex_unlock(tree->node, &tree->own->mutex);
    if (ret_shape)
        *ret_shape = shape;
    return result;
}

static inline void clear_shared(void) {
    memset((void *)shared, 0, sizeof *shared);
}

static inline int tree_main(int argc, char **argv, const struct cluster_test *tests) {
    shared = cluster_shared(sizeof *shared);
    return cluster_main(argc, argv, tests, clear_shared);
}
