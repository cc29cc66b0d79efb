/* test_tree_scan.c - scans of ranges of every kind, and snapshots. Scans of several owners as of one instant,
 * beside changes, are in test_tree_failure.c. */
#include <stdio.h>

#include "base/random.h"

#include "tree_common.h"

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

/* ---- buffers of each size, and each limit ---- */

#define PART_KEYS 90u
#define PART_KEY_BYTES 8u
#define PARTS_BYTES (PART_KEYS * (TREE_ENTRY_BYTES + PART_KEY_BYTES + NUMBER_BYTES_MAX))

/* The entries of a range, as a scan returns them. */
struct parts {
    char bytes[PARTS_BYTES];
    size_t ends[PART_KEYS + 1]; /* of the first n entries */
    uint32_t count;
};

static void make_part_key(char *key, uint32_t number) {
    snprintf(key, PART_KEY_BYTES + 1, "%08u", number % PART_KEYS);
}

/* Phase 0 has two of three keys, and entries of 16 bytes. Phase 1 adds the others, half of them with other
 * sizes. */
static uint32_t part_bytes(uint32_t number) {
    return number % 6 == 2 ? number % (NUMBER_BYTES_MAX + 1) : 16 - PART_KEY_BYTES;
}

static int insert_parts(struct remo_tree *tree, uint32_t phase) {
    char key[PART_KEY_BYTES + 1], value[NUMBER_BYTES_MAX];
    for (uint32_t i = 0; i < PART_KEYS; i++) {
        uint32_t number = i * 37 % PART_KEYS;
        if ((number % 3 == 2) != (phase == 1))
            continue;
        make_part_key(key, number);
        memset(value, (int)number, sizeof value);
        CHECK_OK(remo_tree_insert(tree, key, PART_KEY_BYTES, value, part_bytes(number)));
    }
    return 0;
}

static void expect_parts(uint32_t phase, uint32_t from, uint32_t to, struct parts *ret) {
    ret->count = 0;
    ret->ends[0] = 0;
    for (uint32_t number = from; number < to; number++) {
        char key[PART_KEY_BYTES + 1], value[NUMBER_BYTES_MAX];
        if (number % 3 == 2 && phase == 0)
            continue;
        make_part_key(key, number);
        memset(value, (int)number, sizeof value);
        size_t end = ret->ends[ret->count++];
        ret->ends[ret->count] =
            end
            + remo__tree_write_entry(ret->bytes + end, (struct tree_bytes){key, PART_KEY_BYTES},
                                     (struct tree_bytes){value, part_bytes(number)});
    }
}

/* The buffer has exactly `cap` bytes, so that AddressSanitizer detects accesses behind it. */
static int scan_part(struct remo_tree *tree, const struct remo_tree_range *range, size_t cap,
                     const struct parts *parts) {
    uint32_t entries = 0;
    char *buffer = malloc(cap);
    struct remo_tree_result result;
    CHECK(buffer);
    while (entries < parts->count && parts->ends[entries + 1] <= cap
           && (range->limit == 0 || entries < range->limit))
        entries++;
    int rc = remo_tree_scan(tree, range, buffer, cap, &result);
    CHECK_EQUAL(rc, entries == 0 ? -EMSGSIZE : 0);
    CHECK(entries == 0 || result.entries == entries);
    CHECK(entries == 0 || result.bytes == parts->ends[entries]);
    CHECK(entries == 0 || result.is_complete == (entries == parts->count));
    CHECK(entries == 0 || memcmp(buffer, parts->bytes, result.bytes) == 0);
    free(buffer);
    return 0;
}

static int scan_parts(struct remo_tree *tree, uint32_t phase, uint32_t from, uint32_t to) {
    static struct parts parts;
    char keys[2][PART_KEY_BYTES + 1];
    struct remo_tree_range range = {.from = {keys[0], PART_KEY_BYTES}, .to = {keys[1], PART_KEY_BYTES}};
    make_part_key(keys[0], from);
    make_part_key(keys[1], to);
    expect_parts(phase, from, to, &parts);
    size_t all = parts.ends[parts.count];
    size_t step = is_mapped(tree->node) ? 1 : 7; /* over a network, fewer */
    for (size_t cap = 1; cap <= all + 200; cap += step)
        CHECK(scan_part(tree, &range, cap, &parts) == 0);
    for (range.limit = 1; range.limit <= parts.count + 10; range.limit += step) {
        CHECK(scan_part(tree, &range, all, &parts) == 0);
        CHECK(scan_part(tree, &range, all + 1000, &parts) == 0);
    }
    return 0;
}

/* Each leaf has a run and a tail. In phase 1, some leaves are mixed. */
static int parts(struct remo_node *node, void *ctx) {
    static const struct remo_tree_key boundaries[] = {{"00000040", 8}, {"00000070", 8}};
    const struct remo_tree_options options = {SMALL, .boundaries = boundaries};
    struct remo_tree *tree;
    (void)ctx;
    CHECK(open_tree(node, &options, &tree) == 0);
    for (uint32_t phase = 0; phase < 2 && remo_node_rank(node) == 0; phase++) {
        CHECK(insert_parts(tree, phase) == 0);
        CHECK(scan_parts(tree, phase, 0, PART_KEYS - 1) == 0);
        CHECK(scan_parts(tree, phase, 10, 35) == 0);
        CHECK(scan_parts(tree, phase, 23, 60) == 0);
    }
    return close_tree(tree);
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

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(scans, 3),
        CLUSTER_TEST(parts, 3),
        CLUSTER_TEST(snapshots, 3),
        {0},
    };
    return tree_main(argc, argv, tests);
}
