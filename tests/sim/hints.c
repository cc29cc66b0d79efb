/* hints.c - the table that names, for each mutant, the case that detects it soonest: all its names exist, and
 * an unknown name is reported. */
#include "sim/campaign.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void all_names_exist(void **state) {
    const struct sim_hint *hint;
    uint32_t count = 0;
    (void)state;
    for (; (hint = sim_hint_at(count)) != NULL; count++)
        assert_true(sim_hint_check(hint));
    assert_true(count > 0);
}

static void unknown_names_are_reported(void **state) {
    const struct sim_hint known = *sim_hint_at(0);
    struct sim_hint hint = known;
    (void)state;
    hint.mutant = "nope";
    assert_false(sim_hint_check(&hint));
    hint = known;
    hint.object = "nope";
    assert_false(sim_hint_check(&hint));
    hint = known;
    hint.test = "nope";
    assert_false(sim_hint_check(&hint));
    hint = known;
    hint.profile = "nope";
    assert_false(sim_hint_check(&hint));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_names_exist),
                                       cmocka_unit_test(unknown_names_are_reported)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
