/* mapped.c - unit tests of the inline operations on mapped memory.
 * Every size and alignment, as a constant and as a variable. */
#include "fabric/mapped.h"

#include "unit.h"

#define BYTES 8192u

static unsigned char source[BYTES + 64], target[BYTES + 64];

static void check_copy(size_t size, size_t from, size_t to, void (*copy)(void *, const void *, size_t)) {
    for (size_t i = 0; i < sizeof target; i++) {
        source[i] = (unsigned char)(i * 7 + (i >> 8));
        target[i] = 0xaa;
    }
    copy(target + to, source + from, size);
    for (size_t i = 0; i < sizeof target; i++) {
        unsigned char expected = i < to || i >= to + size ? 0xaa : source[i - to + from];
        if (target[i] != expected)
            fail_msg("%zu bytes from +%zu to +%zu: byte %zu is %u, not %u", size, from, to, i, target[i],
                     expected);
    }
}

static void copy_from(void *to, const void *from, size_t size) {
    remo__mapped_copy_from(to, from, size);
}

static void copy_to(void *to, const void *from, size_t size) {
    remo__mapped_copy_to(to, from, size);
}

static void test_every_size(void **state) {
    (void)state;
    for (size_t size = 0; size <= 300; size++) {
        for (size_t shift = 0; shift < 9; shift++) {
            check_copy(size, 16 + shift, 32, copy_from);
            check_copy(size, 16, 24 + shift, copy_from);
            check_copy(size, 16 + shift, 32, copy_to);
            check_copy(size, 16, 24 + shift, copy_to);
        }
    }
    check_copy(4096, 16, 32, copy_from);
    check_copy(BYTES, 1, 2, copy_to);
}

#define CONSTANT(size)                                                         \
    static void copy_from_##size(void *to, const void *from, size_t ignored) { \
        (void)ignored;                                                         \
        remo__mapped_copy_from(to, from, size);                                \
    }                                                                          \
    static void copy_to_##size(void *to, const void *from, size_t ignored) {   \
        (void)ignored;                                                         \
        remo__mapped_copy_to(to, from, size);                                  \
    }
CONSTANT(1)
CONSTANT(2)
CONSTANT(4)
CONSTANT(8)
CONSTANT(24)
CONSTANT(4096)

static void test_constant_sizes(void **state) {
    (void)state;
    for (size_t shift = 0; shift < 9; shift++) {
#define CHECK_BOTH(size)                                \
    check_copy(size, 16 + shift, 32, copy_from_##size); \
    check_copy(size, 16, 24 + shift, copy_to_##size)
        CHECK_BOTH(1);
        CHECK_BOTH(2);
        CHECK_BOTH(4);
        CHECK_BOTH(8);
        CHECK_BOTH(24);
        CHECK_BOTH(4096);
    }
}

static void test_atomics(void **state) {
    (void)state;
    uint64_t word = 5;
    assert_int_equal(remo__mapped_fetch_add(&word, 3), 5);
    assert_int_equal(remo__mapped_fetch_add(&word, UINT64_MAX), 8);
    assert_int_equal(remo__mapped_compare_swap(&word, 6, 1), 7);
    assert_int_equal(word, 7);
    assert_int_equal(remo__mapped_compare_swap(&word, 7, 1), 7);
    assert_int_equal(word, 1);
}

static void test_notify(void **state) {
    (void)state;
    struct remo__doorbell bell = {0};
    struct remo__fabric_peer peer = {.doorbell = &bell};
    assert_true(remo__mapped_notify(&peer)); /* no sleeper: no notification */
    assert_int_equal(bell.seq, 0);
    bell.sleepers = 1;
    assert_true(remo__mapped_notify(&peer));
    assert_int_equal(bell.seq, 1);
    peer.sleepers_fence = true;
    assert_false(remo__mapped_notify(&peer));
    assert_int_equal(bell.seq, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_size),
        cmocka_unit_test(test_constant_sizes),
        cmocka_unit_test(test_atomics),
        cmocka_unit_test(test_notify),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
