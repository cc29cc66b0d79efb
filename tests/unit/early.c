/* early.c - unit tests of the table of early JOINs, which it has from peers whose channel this node has not
 * opened yet. A take, a remove and a failure end the entries that they concern, and no others. */
#include "channel/early.h"

#include "unit.h"

static struct remo__early early;

static int clear(void **state) {
    (void)state;
    early = (struct remo__early){0};
    return 0;
}

static void check_taken(const char *name, uint32_t peer, uint32_t id) {
    uint32_t found_peer = 0, found_id = 0;
    assert_true(remo__early_take(&early, name, &found_peer, &found_id));
    assert_int_equal(found_peer, peer);
    assert_int_equal(found_id, id);
}

static void check_absent(const char *name) {
    uint32_t peer, id;
    assert_false(remo__early_take(&early, name, &peer, &id));
}

static void test_take(void **state) {
    (void)state;
    remo__early_keep(&early, 1, "a", 10);
    remo__early_keep(&early, 2, "b", 20);
    remo__early_keep(&early, 3, "a", 30);
    check_taken("a", 1, 10);
    check_taken("a", 3, 30);
    check_absent("a");
    check_taken("b", 2, 20);
    check_absent("b");
}

static void test_remove(void **state) {
    (void)state;
    remo__early_keep(&early, 1, "a", 10);
    remo__early_keep(&early, 1, "b", 11);
    remo__early_keep(&early, 2, "c", 10);
    remo__early_remove(&early, 1, 10);
    check_absent("a");
    check_taken("b", 1, 11);
    check_taken("c", 2, 10);
}

/* A failure removes the JOINs of the failed peer, and no others. */
static void test_forget(void **state) {
    (void)state;
    remo__early_keep(&early, 1, "a", 10);
    remo__early_keep(&early, 2, "b", 20);
    remo__early_keep(&early, 1, "c", 11);
    remo__early_forget(&early, 1);
    check_absent("a");
    check_absent("c");
    check_taken("b", 2, 20);
}

/* A new entry replaces the oldest. */
static void test_full(void **state) {
    (void)state;
    for (uint32_t i = 0; i < REMO__EARLY_JOINS_MAX; i++)
        remo__early_keep(&early, 1, i == 0 ? "first" : "other", i + 1);
    check_taken("other", 1, 2);
    remo__early_keep(&early, 2, "last", 7);
    check_absent("first");
    check_taken("last", 2, 7);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_take, clear),
        cmocka_unit_test_setup(test_remove, clear),
        cmocka_unit_test_setup(test_forget, clear),
        cmocka_unit_test_setup(test_full, clear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
