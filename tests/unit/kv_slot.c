/* kv_slot.c - unit tests of the format of the map's slots under torn writes.
 * A reader returns only values that were written whole. */
#include "systems/kv/slot.h"

#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "fabric/access.h"
#include "unit.h"

/* A slot, and the state needed to read it. */
struct bench {
    struct remo__kv_shape shape;
    char *slot, *image, *scratch, *value;
};

static struct bench bench_of(uint32_t key_bytes_max, uint32_t value_bytes_max) {
    struct bench bench = {.shape = remo__kv_shape_of(key_bytes_max, value_bytes_max)};
    bench.slot = aligned_alloc(64, bench.shape.slot_bytes);
    memset(bench.slot, 0, bench.shape.slot_bytes);
    bench.image = aligned_alloc(64, bench.shape.slot_bytes);
    bench.scratch = malloc(bench.shape.copy_bytes);
    bench.value = malloc(value_bytes_max + 1);
    return bench;
}

static void bench_free(struct bench *bench) {
    free(bench->slot);
    free(bench->image);
    free(bench->scratch);
    free(bench->value);
}

static struct remo__kv_key key_of(const void *bytes, size_t count) {
    return (struct remo__kv_key){.bytes = bytes, .bytes_count = count, .hash = remo__kv_hash(bytes, count)};
}

static enum remo__kv_verdict read_slot(struct bench *bench, const struct remo__kv_key *key,
                                       struct remo__kv_snapshot *sight) {
    return remo__kv_slot_read(&bench->shape, bench->slot, key, bench->value, bench->shape.value_bytes_max,
                              bench->scratch, sight);
}

static void insert(struct bench *bench, const struct remo__kv_key *key, const void *value, size_t bytes) {
    uint64_t head = remo__kv_slot_fill(&bench->shape, bench->slot, key, value, bytes, bench->image);
    remo__store(bench->slot, remo__kv_head_with(head, REMO__KV_VALID));
}

/* The data and the position of an update's write. */
static size_t build_update(struct bench *bench, const struct remo__kv_key *key, const void *value,
                           size_t bytes, char **ret_at) {
    struct remo__kv_snapshot sight;
    assert_true(read_slot(bench, key, &sight) != REMO__KV_VERDICT_TORN);
    uint64_t meta = remo__kv_meta_make(remo__kv_meta_version(sight.meta) + 1, bytes);
    *ret_at = bench->slot + remo__kv_copy_at(&bench->shape, sight.copy ^ 1);
    return remo__kv_copy_build(bench->image, sight.head, key->hash, meta, value);
}

static void test_shape(void **state) {
    (void)state;
    assert_int_equal(remo__kv_shape_of(8, 8).slot_bytes, 64);
    assert_int_equal(remo__kv_shape_of(1, 0).slot_bytes, 64);
    assert_int_equal(remo__kv_shape_of(9, 8).slot_bytes, 128);
    struct remo__kv_shape shape = remo__kv_shape_of(REMO__KV_KEY_BYTES_MAX, REMO__KV_VALUE_BYTES_MAX);
    assert_true(shape.slot_bytes > 2 * (uint64_t)REMO__KV_VALUE_BYTES_MAX);
    assert_true(remo__kv_copy_at(&shape, 1) + shape.copy_bytes <= shape.slot_bytes);
}

static void test_sizes(void **state) {
    (void)state;
    static const uint32_t sizes[] = {0, 1, 7, 8, 9, 63, 64, 100, 300, 1000};
    char key[1000], value[1000];
    for (size_t i = 0; i < sizeof key; i++)
        key[i] = (char)(i * 7), value[i] = (char)(i * 13);
    for (size_t k = 1; k < 10; k++) {
        for (size_t v = 0; v < 10; v++) {
            struct bench bench = bench_of(sizes[k], sizes[v]);
            for (uint32_t bytes = 0; bytes <= sizes[v]; bytes += 1 + sizes[v] / 7) {
                struct remo__kv_key mine = key_of(key, sizes[k]);
                struct remo__kv_snapshot sight;
                insert(&bench, &mine, value, bytes);
                assert_int_equal(read_slot(&bench, &mine, &sight), REMO__KV_VERDICT_GOOD);
                assert_int_equal(remo__kv_meta_value_bytes(sight.meta), bytes);
                assert_memory_equal(bench.value, value, bytes);
            }
            bench_free(&bench);
        }
    }
}

static void test_other_keys_and_states(void **state) {
    (void)state;
    struct bench bench = bench_of(20, 20);
    struct remo__kv_snapshot sight;
    struct remo__kv_key mine = key_of("hello world", 11);
    assert_int_equal(read_slot(&bench, &mine, &sight), REMO__KV_VERDICT_OTHER);
    uint64_t head = remo__kv_slot_fill(&bench.shape, bench.slot, &mine, "value", 5, bench.image);
    assert_int_equal(read_slot(&bench, &mine, &sight), REMO__KV_VERDICT_OTHER);
    remo__store(bench.slot, remo__kv_head_with(head, REMO__KV_VALID));
    assert_int_equal(read_slot(&bench, &mine, &sight), REMO__KV_VERDICT_GOOD);
    static const char *const others[] = {"hello worle", "hello worl", "hello world!", "Hello world", "h"};
    for (size_t i = 0; i < 5; i++) {
        struct remo__kv_key other = key_of(others[i], strlen(others[i]));
        assert_int_equal(read_slot(&bench, &other, &sight), REMO__KV_VERDICT_OTHER);
        other.hash = mine.hash;
        assert_int_equal(read_slot(&bench, &other, &sight), REMO__KV_VERDICT_OTHER);
    }
    remo__store(bench.slot, remo__kv_head_with(head, REMO__KV_DELETED));
    assert_int_equal(read_slot(&bench, &mine, &sight), REMO__KV_VERDICT_OTHER);
    bench_free(&bench);
}

/* An update that stops after any word, in any order, leaves the old value or the new value. */
static void test_torn_update(void **state) {
    (void)state;
    struct bench bench = bench_of(8, 40);
    struct remo__kv_key key = key_of("12345678", 8);
    struct remo__random random;
    remo__random_seed(&random, 3);
    char old[40], new[40];
    memset(old, 'a', sizeof old);
    insert(&bench, &key, old, sizeof old);
    for (uint32_t round = 0; round < 20000; round++) {
        memset(new, 'a' + 1 + (int)(round % 20), sizeof new);
        char *at;
        size_t bytes = build_update(&bench, &key, new, sizeof new, &at);
        uint64_t written = remo__random_below(&random, UINT64_C(1) << bytes / 8);
        for (size_t i = 0; i < bytes / 8; i++)
            if (written >> i & 1)
                memcpy(at + 8 * i, bench.image + 8 * i, 8);
        struct remo__kv_snapshot sight;
        enum remo__kv_verdict seen = read_slot(&bench, &key, &sight);
        assert_true(seen == REMO__KV_VERDICT_GOOD || seen == REMO__KV_VERDICT_OLDER);
        if (memcmp(at, bench.image, bytes) == 0) /* an earlier attempt may have left the missing words */
            memcpy(old, new, sizeof old);
        assert_memory_equal(bench.value, old, sizeof old);
    }
    bench_free(&bench);
}

/* A mix of words of two generations is never accepted as a value. */
static void test_reuse(void **state) {
    (void)state;
    struct bench bench = bench_of(8, 16);
    struct remo__kv_key key = key_of("12345678", 8);
    insert(&bench, &key, "aaaaaaaaaaaaaaaa", 16);
    char *before = malloc(bench.shape.slot_bytes);
    memcpy(before, bench.slot, bench.shape.slot_bytes);
    insert(&bench, &key, "bbbbbbbbbbbbbbbb", 16);
    char *after = malloc(bench.shape.slot_bytes);
    memcpy(after, bench.slot, bench.shape.slot_bytes);
    size_t words = bench.shape.slot_bytes / 8;
    for (uint32_t mask = 0; mask < 1u << 10; mask++) {
        for (size_t i = 0; i < words; i++)
            memcpy(bench.slot + 8 * i, (i >= 10 || mask >> i & 1 ? after : before) + 8 * i, 8);
        struct remo__kv_snapshot sight;
        enum remo__kv_verdict seen = read_slot(&bench, &key, &sight);
        if (seen == REMO__KV_VERDICT_GOOD || seen == REMO__KV_VERDICT_OLDER)
            assert_true(memcmp(bench.value, "aaaaaaaaaaaaaaaa", 16) == 0
                        || memcmp(bench.value, "bbbbbbbbbbbbbbbb", 16) == 0);
    }
    free(before);
    free(after);
    bench_free(&bench);
}

static void test_versions_wrap(void **state) {
    (void)state;
    uint64_t last = remo__kv_meta_make((UINT64_C(1) << 40) - 1, 5),
             first = remo__kv_meta_make(UINT64_C(1) << 40, 5);
    assert_int_equal(remo__kv_meta_version(first), 0);
    assert_true(remo__kv_meta_newer_mask(first, last) == UINT64_MAX);
    assert_true(remo__kv_meta_newer_mask(last, first) == 0);
    assert_true(remo__kv_meta_newer_mask(last, last) == 0);
    assert_true(remo__kv_meta_newer_mask(remo__kv_meta_make(2, 1), remo__kv_meta_make(1, 9)) == UINT64_MAX);
    assert_true(remo__kv_meta_newer_mask(remo__kv_meta_make(0, 9), remo__kv_meta_make(1, 0)) == 0);
    assert_int_equal(remo__kv_meta_value_bytes(last), 5);
}

static void test_small_buffer(void **state) {
    (void)state;
    struct bench bench = bench_of(8, 16);
    struct remo__kv_key key = key_of("k", 1);
    insert(&bench, &key, "0123456789abcdef", 16);
    struct remo__kv_snapshot sight;
    char small[4] = "xyz";
    assert_int_equal(remo__kv_slot_read(&bench.shape, bench.slot, &key, small, 3, bench.scratch, &sight),
                     REMO__KV_VERDICT_GOOD);
    assert_string_equal(small, "xyz");
    assert_int_equal(remo__kv_meta_value_bytes(sight.meta), 16);
    assert_int_equal(remo__kv_slot_read(&bench.shape, bench.slot, &key, NULL, 0, bench.scratch, &sight),
                     REMO__KV_VERDICT_GOOD);
    bench_free(&bench);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shape),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_other_keys_and_states),
        cmocka_unit_test(test_torn_update),
        cmocka_unit_test(test_reuse),
        cmocka_unit_test(test_versions_wrap),
        cmocka_unit_test(test_small_buffer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
