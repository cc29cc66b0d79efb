/* tree_node.c - unit tests of one node of the tree: after any sequence of changes it has the entries of a
 * model, in the order of keys, and the ranges that each change lists are all bytes that it has changed. */
#include "systems/tree/node.h"

#include <stdio.h>
#include <string.h>

#include "base/random.h"
#include "unit.h"

#define BYTES 512u
#define KEYS 200u
#define VALUE_BYTES_MAX 8u
#define ENTRY_BYTES_MAX (TREE_SLOT_BYTES + TREE_ENTRY_BYTES + 8u + VALUE_BYTES_MAX)
#define CHANGES 150u
#define SEEDS 1000u

static unsigned char scratch[TREE_NODE_BYTES_MAX];

static struct tree_bytes text(const char *string) {
    return (struct tree_bytes){string, (uint32_t)strlen(string)};
}

static struct tree_header header_of(const void *node) {
    struct tree_header header;
    memcpy(&header, node, sizeof header);
    return header;
}

static bool is_compact(const void *node) {
    struct tree_header header = header_of(node);
    return remo__tree_is_compact(&header);
}

/* ---- keys and fences ---- */

static void test_compare(void **state) {
    /* ascending */
    const struct tree_bytes keys[] = {{NULL, 0},  {"\0", 1},    {"\0\0", 2},  {"\0a", 2}, {"a", 1},
                                      {"a\0", 2}, {"a\x7f", 2}, {"a\x80", 2}, {"b", 1},   {"\xff", 1}};
    (void)state;
    for (int i = 0; i < 10; i++)
        for (int k = 0; k < 10; k++) {
            int order = remo__tree_compare(keys[i], keys[k]);
            assert_int_equal((order > 0) - (order < 0), (i > k) - (i < k));
        }
}

static void test_fences(void **state) {
    unsigned char node[BYTES];
    struct tree_bytes high = text("fz");
    (void)state;
    remo__tree_node_init(node, BYTES, 0, text("b"), &high);
    assert_true(remo__tree_node_is_valid(node, BYTES, 0));
    assert_false(remo__tree_node_is_valid(node, BYTES, 1));
    assert_int_equal(remo__tree_compare(remo__tree_node_low(node, BYTES), text("b")), 0);
    assert_true(remo__tree_node_high(node, BYTES, &high));
    assert_int_equal(remo__tree_compare(high, text("fz")), 0);
    assert_true(remo__tree_node_covers(node, BYTES, text("b")));
    assert_true(remo__tree_node_covers(node, BYTES, text("fyz")));
    assert_false(remo__tree_node_covers(node, BYTES, text("fz")));
    assert_false(remo__tree_node_covers(node, BYTES, text("a")));
    assert_false(remo__tree_node_covers(node, BYTES, text("")));
    remo__tree_node_init(node, BYTES, 3, (struct tree_bytes){NULL, 0}, NULL);
    assert_true(remo__tree_node_is_valid(node, BYTES, 3));
    assert_false(remo__tree_node_high(node, BYTES, &high));
    assert_true(remo__tree_node_covers(node, BYTES, text("")));
    assert_true(remo__tree_node_covers(node, BYTES, text("\xff\xff")));
    assert_int_equal(remo__tree_node_free(node, BYTES), BYTES - sizeof(struct tree_header));
}

/* Return the mean number of the keys in a leaf whose fingerprint is that of one of them, including it. */
static double keys_per_fingerprint(uint64_t distance, bool is_big_endian) {
    enum { LEAF_KEYS = 128 };
    uint32_t keys[256] = {0}, pairs = 0;
    for (uint64_t i = 0; i < LEAF_KEYS; i++) {
        uint64_t number = UINT64_C(1700000000000000000) + i * distance;
        uint64_t word = is_big_endian ? __builtin_bswap64(number) : number;
        keys[remo__tree_fingerprint((struct tree_bytes){&word, sizeof word})]++;
    }
    for (uint32_t i = 0; i < 256; i++)
        pairs += keys[i] * keys[i];
    return (double)pairs / LEAF_KEYS;
}

/* Random fingerprints would give 1.5. */
static void test_fingerprints(void **state) {
    const uint64_t distances[] = {1,           2,    8,     10,       16,        256,
                                  1000,        1024, 10946, 1000000,  100000000, 1000000000,
                                  60000000000, 4096, 65536, 10000000, 24,        102334155};
    (void)state;
    for (uint32_t i = 0; i < sizeof distances / sizeof distances[0]; i++)
        for (int big = 0; big < 2; big++)
            assert_true(keys_per_fingerprint(distances[i], big) < 3);
}

/* An unused node has zeros, and is not valid. */
static void test_unused(void **state) {
    unsigned char node[BYTES] = {0};
    (void)state;
    for (uint32_t level = 0; level < 256; level++)
        assert_false(remo__tree_node_is_valid(node, BYTES, level));
}

/* ---- random changes of a leaf, against a model ---- */

struct model {
    struct remo__random dice;
    char keys[KEYS][9];
    bool is_present[KEYS];
    unsigned char values[KEYS][VALUE_BYTES_MAX];
    uint32_t value_bytes[KEYS], count;
    bool has_one_size, is_mostly_one;    /* of values; with keys of one size, too */
    uint32_t compact_count, mixed_count; /* packings */
};

static void open_model(struct model *model, uint64_t seed) {
    *model = (struct model){.has_one_size = seed % 4 > 1, .is_mostly_one = seed % 4 == 1};
    remo__random_seed(&model->dice, seed);
    for (uint32_t i = 0; i < KEYS; i++)
        snprintf(model->keys[i], sizeof model->keys[i], "k%03u%.*s", i,
                 model->has_one_size || model->is_mostly_one ? 4 : (int)remo__random_below(&model->dice, 5),
                 "wxyz");
}

/* The keys of the model are in ascending order. */
static void expect_model(const struct model *model, const void *node) {
    struct tree_walk forwards, backwards, from;
    struct tree_entry entry;
    struct tree_place place;
    struct tree_bytes lowest = {NULL, 0};
    uint32_t last = KEYS;
    assert_true(remo__tree_node_is_valid(node, BYTES, 0));
    assert_true(remo__tree_node_is_whole(node, BYTES));
    assert_int_equal(header_of(node).count, model->count);
    assert_true(remo__tree_walk_begin(&forwards, node, BYTES, &lowest));
    for (uint32_t k = 0; k < KEYS; k++) {
        struct tree_bytes key = text(model->keys[k]);
        assert_true(remo__tree_node_find(node, BYTES, key, &place));
        assert_int_equal(place.offset != 0, model->is_present[k]);
        assert_true(remo__tree_walk_begin(&from, node, BYTES, &key));
        assert_true(remo__tree_walk_begin(&backwards, node, BYTES, &key));
        assert_int_equal(remo__tree_walk_previous(&backwards, &entry), last < KEYS);
        if (last < KEYS)
            assert_int_equal(remo__tree_compare(entry.key, text(model->keys[last])), 0);
        if (!model->is_present[k])
            continue;
        last = k;
        assert_int_equal(remo__tree_walk_next(&from, &entry), 1);
        assert_int_equal(remo__tree_compare(entry.key, key), 0);
        assert_int_equal(remo__tree_walk_next(&forwards, &entry), 1);
        assert_int_equal(remo__tree_compare(entry.key, key), 0);
        assert_true(remo__tree_place_entry(node, BYTES, &place, &entry));
        assert_int_equal(entry.value.bytes, model->value_bytes[k]);
        assert_memory_equal(entry.value.data, model->values[k], entry.value.bytes);
    }
    assert_int_equal(remo__tree_walk_next(&forwards, &entry), 0);
    assert_true(remo__tree_walk_begin(&backwards, node, BYTES, NULL));
    for (uint32_t k = KEYS; k-- > 0;) {
        if (!model->is_present[k])
            continue;
        assert_int_equal(remo__tree_walk_previous(&backwards, &entry), 1);
        assert_int_equal(remo__tree_compare(entry.key, text(model->keys[k])), 0);
    }
    assert_int_equal(remo__tree_walk_previous(&backwards, &entry), 0);
}

static uint32_t choose_size(struct model *model) {
    bool is_random = model->is_mostly_one ? remo__random_below(&model->dice, 32) == 0 : !model->has_one_size;
    return is_random ? (uint32_t)remo__random_below(&model->dice, VALUE_BYTES_MAX + 1) : VALUE_BYTES_MAX;
}

/* Insert, replace or remove one entry. Returns false if there was no room. */
static bool change(struct model *model, void *node, struct tree_ranges *ret_ranges) {
    uint32_t k = (uint32_t)remo__random_below(&model->dice, KEYS);
    uint64_t word = remo__random_next(&model->dice);
    struct tree_bytes value = {&word, choose_size(model)};
    bool is_done = true, is_present = true;
    struct tree_place place;
    assert_true(remo__tree_node_find(node, BYTES, text(model->keys[k]), &place));
    if (place.offset == 0) {
        is_done = remo__tree_node_insert(node, BYTES, text(model->keys[k]), value, ret_ranges);
        model->count += is_done;
    } else if (remo__random_below(&model->dice, 2) == 0) {
        is_done = remo__tree_node_replace(node, BYTES, &place, value, ret_ranges);
    } else {
        remo__tree_node_remove(node, BYTES, &place, ret_ranges);
        is_present = false;
        model->count--;
    }
    if (!is_done)
        return false;
    model->is_present[k] = is_present;
    model->value_bytes[k] = value.bytes;
    memcpy(model->values[k], &word, value.bytes);
    return true;
}

/* Change the node, until it is nearly full or for some time. */
static void change_often(struct model *model, unsigned char *node) {
    unsigned char copy[BYTES];
    memcpy(copy, node, BYTES);
    for (uint32_t i = 0; i < CHANGES; i++) {
        struct tree_ranges ranges = {.count = 99};
        bool has_room = change(model, node, &ranges);
        assert_true(ranges.count <= TREE_RANGES_MAX);
        for (uint32_t r = 0; r < ranges.count; r++) {
            assert_true(ranges.ranges[r].bytes > 0); /* as a commit requires */
            memcpy(copy + ranges.ranges[r].offset, node + ranges.ranges[r].offset, ranges.ranges[r].bytes);
        }
        assert_memory_equal(copy, node, BYTES); /* also if there was no room */
        if (has_room)
            continue;
        uint32_t free_bytes = remo__tree_node_free(node, BYTES);
        remo__tree_node_pack(node, BYTES, scratch);
        memcpy(copy, node, BYTES);
        assert_int_equal(header_of(node).run, model->count);
        assert_int_equal(header_of(node).end, header_of(node).tail);
        assert_true(remo__tree_node_free(node, BYTES) >= free_bytes); /* more if it becomes compact */
        assert_true(!model->has_one_size || is_compact(node));
        is_compact(node) ? model->compact_count++ : model->mixed_count++;
        free_bytes = remo__tree_node_free(node, BYTES);
        expect_model(model, node);
        if (free_bytes < ENTRY_BYTES_MAX)
            return;
    }
}

/* Remove an entry of the run, and insert it again, if the tail has room: then the run has a removed entry. */
static void move_to_tail(void *node, uint32_t index) {
    unsigned char before[BYTES];
    struct tree_entry entry;
    struct tree_place place;
    struct tree_ranges ranges;
    memcpy(before, node, BYTES);
    assert_true(remo__tree_node_entry(before, BYTES, index, &entry));
    assert_true(remo__tree_node_find(node, BYTES, entry.key, &place) && place.offset != 0);
    remo__tree_node_remove(node, BYTES, &place, &ranges);
    if (!remo__tree_node_insert(node, BYTES, entry.key, entry.value, &ranges))
        memcpy(node, before, BYTES);
}

/* Split a copy of the node for an insertion of `key`, and merge the halves. */
static void split_and_merge(const struct model *model, const void *node, const char *key) {
    unsigned char left[BYTES], right[BYTES];
    struct tree_bytes high, low;
    struct tree_entry entry;
    uint32_t count = header_of(node).count, stay;
    memcpy(left, node, BYTES);
    remo__tree_node_split(left, right, BYTES, text(key), scratch);
    stay = header_of(left).count;
    assert_true(remo__tree_node_is_valid(left, BYTES, 0) && remo__tree_node_is_valid(right, BYTES, 0));
    assert_true(stay > 0 && stay < count);
    assert_int_equal(stay + header_of(right).count, count);
    low = remo__tree_node_low(right, BYTES);
    assert_true(remo__tree_node_high(left, BYTES, &high));
    assert_int_equal(remo__tree_compare(low, high), 0);
    assert_true(remo__tree_node_entry(right, BYTES, 0, &entry));
    assert_int_equal(remo__tree_compare(entry.key, low), 0);
    assert_int_equal(remo__tree_compare(remo__tree_node_low(left, BYTES), remo__tree_node_low(node, BYTES)),
                     0);
    assert_int_equal(remo__tree_node_high(right, BYTES, &high), header_of(node).kind == TREE_NODE);
    if (*key == 'z')
        assert_int_equal(stay, count - 1); /* ascending insertions fill nodes */
    move_to_tail(left, stay / 2);
    move_to_tail(right, (count - stay) / 2);
    unsigned char before[BYTES];
    memcpy(before, left, BYTES);
    if (remo__tree_node_merge(left, right, BYTES, scratch))
        expect_model(model, left);
    else
        assert_memory_equal(left, before, BYTES);
}

static void test_changes(void **state) {
    static struct model model;
    uint32_t compact_count = 0, mixed_count = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        unsigned char node[BYTES];
        struct tree_bytes high = text("l");
        open_model(&model, seed);
        remo__tree_node_init(node, BYTES, 0, seed % 2 ? text("k") : text(""), seed % 3 ? &high : NULL);
        change_often(&model, node);
        expect_model(&model, node);
        if (model.count < 2)
            continue;
        split_and_merge(&model, node, model.keys[remo__random_below(&model.dice, KEYS)]);
        split_and_merge(&model, node, "z");
        split_and_merge(&model, node, "");
        compact_count += model.compact_count;
        mixed_count += model.mixed_count;
    }
    assert_true(compact_count > SEEDS && mixed_count > SEEDS);
}

/* ---- at the limits of the node ---- */

static struct tree_bytes number_key(char *text_of, uint32_t number) {
    snprintf(text_of, 12, "%04u", number);
    return (struct tree_bytes){text_of, 4};
}

/* Insert ascending keys until the packed node is full. Returns their number. */
static uint32_t fill_bytes(unsigned char *node, uint32_t bytes, const struct tree_bytes values[2]) {
    struct tree_ranges ranges;
    char key[12];
    remo__tree_node_init(node, bytes, 0, text(""), NULL);
    for (uint32_t count = 0;; count++) {
        if (remo__tree_node_insert(node, bytes, number_key(key, count), values[count % 2], &ranges))
            continue;
        assert_int_equal(ranges.count, 0);
        remo__tree_node_pack(node, bytes, scratch);
        if (!remo__tree_node_insert(node, bytes, number_key(key, count), values[count % 2], &ranges))
            return count;
    }
}

static uint32_t fill(unsigned char *node, const struct tree_bytes values[2]) {
    return fill_bytes(node, BYTES, values);
}

/* Replace all values in place, and remove all entries. */
static void empty(unsigned char *node, uint32_t count, const struct tree_bytes values[2]) {
    struct tree_ranges ranges;
    struct tree_place place;
    char key[12];
    for (uint32_t i = 0; i < 2 * count; i++) {
        assert_true(remo__tree_node_find(node, BYTES, number_key(key, i % count), &place)
                    && place.offset != 0);
        if (i < count)
            assert_true(remo__tree_node_replace(node, BYTES, &place, values[i % 2], &ranges));
        else
            remo__tree_node_remove(node, BYTES, &place, &ranges);
        assert_int_equal(ranges.count, i < count ? 1 : 2);
    }
    assert_true(remo__tree_node_is_whole(node, BYTES));
    assert_int_equal(remo__tree_node_free(node, BYTES), BYTES - sizeof(struct tree_header));
    remo__tree_node_pack(node, BYTES, scratch);
    assert_true(remo__tree_node_insert(node, BYTES, number_key(key, 0), values[0], &ranges));
}

/* A mixed entry needs 7 bytes besides key and value. */
static void test_full_mixed(void **state) {
    const struct tree_bytes values[2] = {text("aaaa"), text("aaaaaa")},
                            others[2] = {text("bbbb"), text("bbbbbb")};
    unsigned char node[BYTES];
    (void)state;
    uint32_t count = fill(node, values);
    assert_false(is_compact(node));
    assert_int_equal(count, (BYTES - sizeof(struct tree_header)) / 16);
    assert_true(remo__tree_node_free(node, BYTES) < 16);
    empty(node, count, others);
}

/* A compact entry needs a fingerprint and a bit, and the last ones more, because they are in the tail. */
static void test_full_compact(void **state) {
    const struct tree_bytes values[2] = {text("aaaaaaaa"), text("aaaaaaaa")},
                            others[2] = {text("bbbbbbbb"), text("bbbbbbbb")};
    unsigned char node[BYTES];
    (void)state;
    uint32_t count = fill(node, values), room = BYTES - sizeof(struct tree_header);
    assert_true(is_compact(node));
    assert_true(count > room / 19 && count * 13 + count / 8 <= room); /* 25 mixed, up to 37 compact */
    assert_true(count * 13 + count / 8 + TREE_RUN_ALIGN + 20 > room);
    empty(node, count, others);
}

/* ---- from one form to the other ---- */

/* An entry of another size is in the tail of a compact leaf. Packing makes the leaf mixed, and compact again
 * after the entry has left. */
static void test_forms(void **state) {
    struct tree_bytes value = text("12345678"), longer = text("123456789");
    unsigned char node[BYTES];
    struct tree_ranges ranges;
    struct tree_place place;
    struct tree_entry entry;
    char key[12];
    (void)state;
    remo__tree_node_init(node, BYTES, 0, text(""), NULL);
    for (uint32_t i = 0; i < 7; i++)
        assert_true(remo__tree_node_insert(node, BYTES, number_key(key, i), value, &ranges));
    remo__tree_node_pack(node, BYTES, scratch);
    assert_true(is_compact(node));
    uint32_t free_bytes = remo__tree_node_free(node, BYTES);
    assert_true(remo__tree_node_find(node, BYTES, number_key(key, 3), &place));
    assert_true(remo__tree_node_replace(node, BYTES, &place, longer, &ranges));
    assert_true(is_compact(node) && remo__tree_node_is_whole(node, BYTES));
    assert_int_equal(header_of(node).count, 7);
    assert_int_equal(remo__tree_node_free(node, BYTES), remo__tree_node_room(node, BYTES) - 7 * 19 - 1);
    for (uint32_t round = 0; round < 2; round++) {
        assert_true(remo__tree_node_find(node, BYTES, number_key(key, 3), &place) && place.offset != 0);
        assert_true(remo__tree_place_entry(node, BYTES, &place, &entry));
        assert_int_equal(remo__tree_compare(entry.value, longer), 0);
        remo__tree_node_pack(node, BYTES, scratch);
        assert_false(is_compact(node));
    }
    assert_true(remo__tree_node_find(node, BYTES, number_key(key, 3), &place));
    assert_true(remo__tree_node_replace(node, BYTES, &place, value, &ranges));
    assert_true(remo__tree_node_is_whole(node, BYTES));
    remo__tree_node_pack(node, BYTES, scratch);
    assert_true(is_compact(node));
    assert_int_equal(remo__tree_node_free(node, BYTES), free_bytes);
}

/* A full compact leaf of small entries is split above all keys, so that the left half stays nearly full. Then
 * the largest entry of another size arrives in that half: both halves of its split have room. */
static void split_twice(uint32_t bytes) {
    static unsigned char node[TREE_NODE_BYTES_MAX], left[TREE_NODE_BYTES_MAX], right[TREE_NODE_BYTES_MAX];
    static char large[TREE_NODE_BYTES_MAX / TREE_ENTRIES_MIN];
    const struct tree_bytes values[2] = {text(""), text("")};
    struct tree_ranges ranges;
    char key[12];
    uint32_t count = fill_bytes(node, bytes, values) - 1;
    assert_true(header_of(node).used > remo__tree_node_room(node, bytes));
    remo__tree_node_split(node, right, bytes, text("a"), scratch);
    assert_int_equal(header_of(node).count, count);
    for (uint32_t i = 0; i < count; i += 1 + count / 64) {
        struct tree_bytes value = {large, bytes / TREE_ENTRIES_MIN - 5}, between = number_key(key, i);
        key[4] = 'x';
        between.bytes = 5;
        memcpy(left, node, bytes);
        assert_false(remo__tree_node_has_room(left, bytes, between.bytes, value.bytes));
        remo__tree_node_split(left, right, bytes, between, scratch);
        bool is_right = remo__tree_compare(remo__tree_node_low(right, bytes), between) <= 0;
        unsigned char *half = is_right ? right : left;
        assert_true(remo__tree_node_insert(half, bytes, between, value, &ranges));
        remo__tree_node_pack(half, bytes, scratch);
        assert_true(!is_compact(half) && remo__tree_node_is_whole(half, bytes));
        assert_true(remo__tree_node_is_whole(is_right ? left : right, bytes));
    }
}

static void test_split_twice(void **state) {
    (void)state;
    split_twice(BYTES);
    split_twice(TREE_NODE_BYTES_MAX);
}

/* A full compact leaf of small entries can be split for the largest entry of another size, wherever the entry
 * belongs, and both halves have room in both forms. */
static void test_split_compact(void **state) {
    const struct tree_bytes values[2] = {text(""), text("")};
    unsigned char node[BYTES], left[BYTES], right[BYTES], large[BYTES / TREE_ENTRIES_MIN] = "";
    struct tree_ranges ranges;
    char key[12];
    (void)state;
    uint32_t count = fill(node, values);
    assert_true(is_compact(node));
    for (uint32_t i = 0; i <= count; i++) {
        struct tree_bytes value = {large, sizeof large - 5}, between = number_key(key, i);
        key[4] = 'x';
        between.bytes = 5;
        if (header_of(node).used > remo__tree_node_room(node, BYTES))
            assert_false(remo__tree_node_has_room(node, BYTES, between.bytes, value.bytes));
        memcpy(left, node, BYTES);
        remo__tree_node_split(left, right, BYTES, between, scratch);
        assert_true(is_compact(left) && is_compact(right));
        bool is_right = remo__tree_compare(remo__tree_node_low(right, BYTES), between) <= 0;
        unsigned char *half = is_right ? right : left;
        assert_true(remo__tree_node_insert(half, BYTES, between, value, &ranges));
        remo__tree_node_pack(half, BYTES, scratch);
        assert_true(!is_compact(half) && remo__tree_node_is_whole(half, BYTES));
        assert_true(remo__tree_node_is_valid(half, BYTES, 0));
        assert_true(remo__tree_node_is_whole(is_right ? left : right, BYTES));
    }
}

/* A header whose run is not between index and tail is not valid, even if a product overflows. */
static void test_damaged_compact(void **state) {
    const struct tree_bytes values[2] = {text("aaaaaaaa"), text("aaaaaaaa")};
    unsigned char node[BYTES];
    uint32_t overflows = 0;
    (void)state;
    (void)fill(node, values);
    remo__tree_node_pack(node, BYTES, scratch);
    struct tree_header good = header_of(node);
    for (uint32_t i = 0; i < 6; i++) {
        struct tree_header bad = good;
        bad.run = (uint16_t)(bad.run + (i == 0) - (i == 1));
        bad.key_bytes = (uint16_t)(bad.key_bytes + (i == 2));
        bad.value_bytes = (uint16_t)(bad.value_bytes - (i == 3));
        bad.tail = (uint16_t)(bad.tail - (i == 4));
        bad.level = i == 5;
        memcpy(node, &bad, sizeof bad);
        assert_false(remo__tree_node_is_valid(node, BYTES, bad.level));
    }
    for (uint32_t run = 32768; run < 65536; run++) { /* in 32 bits, the end of the run would be the tail */
        struct tree_header bad = {.kind = TREE_LAST, .run = (uint16_t)run, .key_bytes = 0xfffe};
        uint64_t stride = ((UINT64_C(1) << 32) + 400 - remo__tree_run_at(&bad)) / run,
                 end = remo__tree_run_at(&bad) + run * stride - (UINT64_C(1) << 32);
        if (end > 400 || stride < bad.key_bytes || stride > bad.key_bytes + 0xffffu)
            continue;
        bad.value_bytes = (uint16_t)(stride - bad.key_bytes);
        bad.tail = bad.end = (uint16_t)end;
        memcpy(node, &bad, sizeof bad);
        assert_false(remo__tree_node_is_valid(node, BYTES, 0));
        overflows++;
    }
    assert_true(overflows > 0);
    memcpy(node, &good, sizeof good);
    assert_true(remo__tree_node_is_valid(node, BYTES, 0));
}

/* ---- inner nodes ---- */

/* An inner node with children 10, 11, ... for the ranges that begin with the low fence, b, c, ... */
static void make_inner(unsigned char *node, const char *low, const char *keys, uint32_t first_child) {
    remo__tree_node_init(node, BYTES, 1, text(low), NULL);
    for (uint32_t i = 0; i <= strlen(keys); i++) {
        struct tree_bytes key = {keys + i - 1, 1};
        if (i == 0)
            key = (struct tree_bytes){NULL, 0};
        assert_true(remo__tree_node_insert_child(node, BYTES, i, key, first_child + i, scratch));
    }
}

static uint32_t child_of(const void *node, const char *key) {
    uint32_t index = 99, child = 0;
    assert_true(remo__tree_node_child(node, BYTES, text(key), &index, &child));
    assert_true(index < header_of(node).count);
    return child;
}

static void expect_children(const void *node) {
    assert_int_equal(child_of(node, "a"), 10);
    assert_int_equal(child_of(node, "azz"), 10);
    assert_int_equal(child_of(node, "b"), 11);
    assert_int_equal(child_of(node, "bb"), 11);
    assert_int_equal(child_of(node, "c"), 12);
    assert_int_equal(child_of(node, "d"), 13);
    assert_int_equal(child_of(node, "zz"), 13);
}

/* After a split the first key of the right node is its fence; after a merge it is a key again. */
static void test_inner(void **state) {
    unsigned char node[BYTES], right[BYTES], whole[BYTES];
    uint32_t index, child;
    (void)state;
    make_inner(node, "", "bcd", 10);
    expect_children(node);
    assert_int_equal(child_of(node, ""), 10);
    memcpy(whole, node, BYTES);
    remo__tree_node_split(node, right, BYTES, text("bb"), scratch);
    assert_true(remo__tree_node_is_valid(right, BYTES, 1) && remo__tree_node_is_valid(node, BYTES, 1));
    for (const char *key = "abcd"; *key; key++) {
        const char string[] = {*key, 0};
        const void *half = remo__tree_node_covers(node, BYTES, text(string)) ? node : right;
        assert_true(remo__tree_node_covers(half, BYTES, text(string)));
        assert_int_equal(child_of(half, string), child_of(whole, string));
    }
    assert_true(remo__tree_node_merge(node, right, BYTES, scratch));
    expect_children(node);
    remo__tree_node_remove_child(node, BYTES, 2, scratch);
    assert_int_equal(child_of(node, "c"), 11);
    assert_int_equal(child_of(node, "d"), 13);
    remo__tree_node_init(node, BYTES, 1, text(""), NULL);
    assert_false(remo__tree_node_child(node, BYTES, text("a"), &index, &child)); /* no entry */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compare),         cmocka_unit_test(test_fences),
        cmocka_unit_test(test_fingerprints),    cmocka_unit_test(test_unused),
        cmocka_unit_test(test_changes),         cmocka_unit_test(test_full_mixed),
        cmocka_unit_test(test_full_compact),    cmocka_unit_test(test_forms),
        cmocka_unit_test(test_split_compact),   cmocka_unit_test(test_split_twice),
        cmocka_unit_test(test_damaged_compact), cmocka_unit_test(test_inner),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
