/* pages.c - unit test of base/pages.h: memory of all sizes is zero, does not overlap other memory, and is
 * given back completely. */
#include "base/pages.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "unit.h"

static void test_sizes(void **state) {
    static const uint64_t sizes[] = {1, 4096, 4097, (1u << 20) - 1, 1u << 20, (2u << 20) + 1};
    enum { SIZES = sizeof sizes / sizeof sizes[0] };
    unsigned char *pages[SIZES];
    (void)state;
    for (uint32_t i = 0; i < SIZES; i++) {
        pages[i] = remo__pages_map(sizes[i]);
        assert_non_null(pages[i]);
        assert_int_equal((uintptr_t)pages[i] % 4096, 0);
        for (uint64_t at = 0; at < sizes[i]; at += 511)
            assert_int_equal(pages[i][at], 0);
        memset(pages[i], (int)i + 1, sizes[i]);
    }
    for (uint32_t i = 0; i < SIZES; i++) {
        assert_int_equal(pages[i][0], i + 1);
        assert_int_equal(pages[i][sizes[i] - 1], i + 1);
        remo__pages_unmap(pages[i], sizes[i]);
        assert_int_equal(msync(pages[i], 1, MS_ASYNC), -1);
        assert_int_equal(errno, ENOMEM); /* not mapped any more */
        assert_int_equal(msync(pages[i] + (sizes[i] - 1) / 4096 * 4096, 1, MS_ASYNC), -1);
    }
    remo__pages_unmap(NULL, 4096);
    assert_null(remo__pages_map(UINT64_C(1) << 60));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sizes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
