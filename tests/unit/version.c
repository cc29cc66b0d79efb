/* version.c - unit test of the version.
 * The versions of the headers, of the library and of the project are equal. */
#include <remo/version.h>
#include <stdio.h>
#include <string.h>

#include "unit.h"

static void test_one_version(void **state) {
    (void)state;
    char numbers[32];
    snprintf(numbers, sizeof numbers, "%d.%d.%d", REMO_VERSION_MAJOR, REMO_VERSION_MINOR, REMO_VERSION_PATCH);
    assert_string_equal(REMO_VERSION, PROJECT_VERSION);
    assert_string_equal(REMO_VERSION, numbers);
    assert_string_equal(remo_version(), REMO_VERSION);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_version)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
