/* limit.c - unit tests of the physical limits with which benchmarks are compared.
 * All limits are measured and plausible, and leave no processes or files behind. */
#include "base/clock.h"
#include "bench/limit/limit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit.h"

#define MAPPING_BYTES (2u << 20)
#define LIMITS_COUNT 27
#define ACCOUNTS_COUNT 1000

struct seen {
    int count;
    double load_ns, memcpy_4k_ns, memcpy_1m_ns;
};

static void note(void *ctx, const char *name, double ns) {
    struct seen *seen = ctx;
    seen->count++;
    assert_true(ns > 0 && ns < 1e9);
    if (strcmp(name, LIMIT_LOAD) == 0)
        seen->load_ns = ns;
    else if (strcmp(name, "memcpy 4 KiB from the same mapping") == 0)
        seen->memcpy_4k_ns = ns;
    else if (strcmp(name, "memcpy 1 MiB from the same mapping") == 0)
        seen->memcpy_1m_ns = ns;
}

static uint64_t sum(const uint64_t *accounts) {
    uint64_t total = 0;
    for (int i = 0; i < ACCOUNTS_COUNT; i++)
        total += accounts[i];
    return total;
}

/* Both sides on one processor: the test must pass on a machine with a single processor. */
static void test_list(void **state) {
    (void)state;
    static uint64_t accounts[ACCOUNTS_COUNT];
    struct seen seen = {0};
    char *mapping = aligned_alloc(64, MAPPING_BYTES);
    assert_non_null(mapping);
    memset(mapping, 7, MAPPING_BYTES);
    for (int i = 0; i < ACCOUNTS_COUNT; i++)
        accounts[i] = 100;
    struct limit_place place = {.mapping = mapping,
                                .mapping_bytes = MAPPING_BYTES,
                                .accounts = accounts,
                                .accounts_count = ACCOUNTS_COUNT};
    assert_int_equal(limit_list(&place, note, &seen), 0);
    assert_int_equal(seen.count, LIMITS_COUNT);
    assert_true(seen.load_ns < seen.memcpy_4k_ns);
    assert_true(seen.memcpy_4k_ns < seen.memcpy_1m_ns);
    assert_true(sum(accounts) == ACCOUNTS_COUNT * 100);
    for (size_t i = LIMIT_LINE_BYTES; i < MAPPING_BYTES; i++)
        assert_int_equal(mapping[i], 7);
    free(mapping);
}

static void test_small_mapping_leaves_out_large_copies(void **state) {
    (void)state;
    static _Alignas(64) char mapping[4096];
    struct seen seen = {0};
    struct limit_place place = {.mapping = mapping, .mapping_bytes = sizeof mapping};
    assert_int_equal(limit_list(&place, note, &seen), 0);
    assert_int_equal(seen.count, LIMITS_COUNT - 3); /* 1 MiB twice, and the transfer */
}

static void test_bad_places(void **state) {
    (void)state;
    static _Alignas(64) char mapping[4096];
    struct seen seen = {0};
    struct limit_place place = {.mapping = mapping + 8, .mapping_bytes = 1024};
    assert_int_equal(limit_list(&place, note, &seen), -EINVAL);
    place = (struct limit_place){.mapping = mapping, .mapping_bytes = 64};
    assert_int_equal(limit_list(&place, note, &seen), -EINVAL);
    place = (struct limit_place){.mapping = mapping, .mapping_bytes = sizeof mapping, .cpu_b = 100000};
    assert_int_equal(limit_list(&place, note, &seen), -EIO);
    assert_true(limit_memcpy_ns(mapping, sizeof mapping, sizeof mapping + 1) == 0);
    assert_true(limit_read_sealed_ns(mapping, sizeof mapping, 128, LIMIT_IN_FLIGHT_MAX + 1) == 0);
}

static void test_names(void **state) {
    (void)state;
    char name[LIMIT_NAME_BYTES];
    limit_memcpy_name(8, name);
    assert_string_equal(name, "memcpy 8 B from the same mapping");
    limit_memcpy_random_name(1536, name);
    assert_string_equal(name, "memcpy 1536 B at random offsets of the same mapping");
    limit_read_sealed_name(128, 8, name);
    assert_string_equal(name, "copy and hash 128 B at random offsets, 8 in flight");
    limit_exchange_name(4096, 1, name);
    assert_string_equal(name, "exchange of 4 KiB through slots");
    limit_exchange_name(32, 16, name);
    assert_string_equal(name, "exchange of 32 B through slots, window 16");
    limit_ring_name(64 << 10, name);
    assert_string_equal(name, "ring of 1 sender and 1 receiver, 64 KiB");
    limit_transfer_name(100000000, name);
    assert_string_equal(name, "transfer between 2 of 100 M accounts, no lock");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list),
        cmocka_unit_test(test_small_mapping_leaves_out_large_copies),
        cmocka_unit_test(test_bad_places),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
