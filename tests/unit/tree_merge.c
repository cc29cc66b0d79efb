/* tree_merge.c - unit tests of the merge of a scan: of random compact leaves with tails, and of random parts
 * of them, it writes the entries that a walk finds, and at most a group behind them. Of a damaged leaf it
 * may write any entries, but not more bytes. */
#include "systems/tree/scan.h"

#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/random.h"
#include "unit.h"

#define BYTES 512u
#define KEYS 10000u
#define KEY_BYTES 4u
#define VALUE_BYTES_MAX 24u
#define GROUP_BYTES (TREE_MERGED_GROUP * TREE_MERGED_BYTES)
#define PLACED_GROUP_BYTES (TREE_MERGED_GROUP * (TREE_ENTRY_BYTES + TREE_MERGED_BYTES))
#define SEEDS 2000u
#define PARTS 10u
#define DAMAGES 20u
#define UNUSED 0xa5

static struct tree_bytes make_key(char *text, uint64_t number) {
    snprintf(text, KEY_BYTES + 1, "%04u", (uint32_t)number);
    return (struct tree_bytes){text, KEY_BYTES};
}

/* Insert random keys, in a mixed tail with values of some other sizes. */
static void insert(struct remo__random *random, void *leaf, uint32_t count, bool is_mixed) {
    for (uint32_t i = 0; i < count; i++) {
        char text[KEY_BYTES + 1], value[VALUE_BYTES_MAX];
        struct tree_ranges ranges;
        struct tree_place place;
        struct tree_bytes key = make_key(text, remo__random_below(random, KEYS)),
                          bytes = {value, TREE_MERGED_BYTES - KEY_BYTES};
        memset(value, (int)remo__random_below(random, 256), sizeof value);
        if (is_mixed && remo__random_below(random, 3) == 0)
            bytes.bytes = (uint32_t)remo__random_below(random, VALUE_BYTES_MAX);
        assert_true(remo__tree_node_find(leaf, BYTES, key, &place));
        if (place.offset == 0)
            (void)remo__tree_node_insert(leaf, BYTES, key, bytes, &ranges);
    }
}

/* Make a compact leaf with a tail. */
static void make_leaf(struct remo__random *random, char *leaf) {
    char scratch[BYTES];
    uint32_t rounds = 1 + (uint32_t)remo__random_below(random, 3);
    remo__tree_node_init(leaf, BYTES, 0, (struct tree_bytes){NULL, 0}, NULL);
    for (uint32_t i = 0; i < rounds; i++) {
        insert(random, leaf, TREE_TAIL_MAX, false);
        remo__tree_node_pack(leaf, BYTES, scratch);
    }
    insert(random, leaf, (uint32_t)remo__random_below(random, TREE_TAIL_MAX + 1),
           remo__random_below(random, 2));
}

/* Begin a walk at a random key, and draw the end of the part to merge. Returns false if it is empty. */
static bool draw_part(struct remo__random *random, const char *leaf, struct tree_walk *walk,
                      uint32_t *ret_end) {
    char text[KEY_BYTES + 1];
    struct tree_bytes from = {NULL, 0};
    if (remo__random_below(random, 2))
        from = make_key(text, remo__random_below(random, KEYS));
    if (!remo__tree_walk_begin(walk, leaf, BYTES, &from) || walk->index == walk->run)
        return false;
    *ret_end = remo__random_below(random, 2)
                   ? walk->run
                   : walk->index + 1 + (uint32_t)remo__random_below(random, walk->run - walk->index);
    return true;
}

/* Write the entries of the walk before index `end` of the run, and move it behind them. Returns their number
 * and bytes. */
static uint32_t write_entries(struct tree_walk *walk, uint32_t end, char *place, size_t *ret_bytes) {
    struct tree_entry entry;
    uint32_t count = 0;
    *ret_bytes = 0;
    for (; walk->index < end; count++) {
        assert_int_equal(remo__tree_walk_next(walk, &entry), 1);
        *ret_bytes += remo__tree_write_entry(place + *ret_bytes, entry.key, entry.value);
    }
    return count;
}

static void assert_unused(const char *place, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        assert_int_equal((unsigned char)place[i], UNUSED);
}

static void merge_part(struct remo__random *random, const char *leaf) {
    static char merged[8 * BYTES], expected[8 * BYTES];
    struct tree_walk walk, reference;
    uint32_t end;
    size_t bytes, expected_bytes;
    if (!draw_part(random, leaf, &walk, &end))
        return;
    reference = walk;
    memset(merged, UNUSED, sizeof merged);
    uint32_t count = remo__tree_scan_merge(&walk, end, merged, &bytes);
    assert_int_equal(count, write_entries(&reference, end, expected, &expected_bytes));
    assert_int_equal(bytes, expected_bytes);
    assert_memory_equal(merged, expected, bytes);
    assert_int_equal(walk.index, reference.index);
    assert_int_equal(walk.tail, reference.tail);
    assert_unused(merged + bytes + PLACED_GROUP_BYTES, sizeof merged - bytes - PLACED_GROUP_BYTES);
}

static void test_merge(void **state) {
    static char leaf[BYTES + GROUP_BYTES]; /* a merge may read behind it */
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct remo__random random;
        remo__random_seed(&random, seed);
        make_leaf(&random, leaf);
        for (uint32_t i = 0; i < PARTS; i++)
            merge_part(&random, leaf);
    }
}

/* ---- damaged leaves ---- */

/* Merge a part of a leaf of which some bytes were changed, as far as a scan does. */
static void merge_damaged(struct remo__random *random, const char *leaf) {
    static char merged[8 * BYTES], damaged[BYTES + GROUP_BYTES];
    struct tree_header header;
    struct tree_walk walk;
    uint32_t end;
    size_t bytes;
    memcpy(damaged, leaf, sizeof damaged);
    memcpy(&header, damaged, sizeof header);
    for (uint32_t i = 0; i < 4; i++) /* mostly in the tail */
        damaged[remo__random_below(random, 4) ? header.tail + remo__random_below(random, BYTES - header.tail)
                                              : remo__random_below(random, BYTES)] =
            (char)remo__random_below(random, 256);
    memcpy(&header, damaged, sizeof header);
    if (!remo__tree_node_is_valid(damaged, BYTES, 0) || !remo__tree_is_compact(&header)
        || remo__tree_stride(&header) != TREE_MERGED_BYTES || !draw_part(random, damaged, &walk, &end))
        return;
    size_t room = (end - walk.index) * (size_t)(TREE_ENTRY_BYTES + TREE_MERGED_BYTES) + header.end
                  - header.tail + PLACED_GROUP_BYTES;
    memset(merged, UNUSED, sizeof merged);
    (void)remo__tree_scan_merge(&walk, end, merged, &bytes);
    assert_true(bytes <= room);
    assert_unused(merged + room, sizeof merged - room);
}

static void test_damaged(void **state) {
    static char leaf[BYTES + GROUP_BYTES];
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct remo__random random;
        remo__random_seed(&random, seed);
        make_leaf(&random, leaf);
        for (uint32_t i = 0; i < DAMAGES; i++)
            merge_damaged(&random, leaf);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merge),
        cmocka_unit_test(test_damaged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
