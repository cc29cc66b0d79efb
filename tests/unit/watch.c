/* watch.c - which schedulers remo__watch_look reports, and how often.
 * Each look is due at once, so nothing depends on time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "remote/watch.h"

static uint32_t wakes, warnings;
static char warning[256];

static void count_wake(struct remo__fabric *fabric) {
    (void)fabric;
    wakes++;
}

static void keep_warning(void *ctx, int level, const char *message) {
    (void)ctx;
    assert_int_equal(level, REMO_LOG_WARNING);
    strncpy(warning, message, sizeof warning - 1);
    warnings++;
}

static const struct remo__fabric_ops ops = {.imm_wake = count_wake};
static struct remo__fabric fabric = {.ops = &ops};
static struct remo__threads threads;
static struct remo_node node;
static struct remo__thread thread = {.node = &node, .index = 7};
static struct remo__scheduler schedulers[3];

static int setup(void **state) {
    (void)state;
    node = (struct remo_node){
        .fabric = &fabric, .threads = &threads, .log = {.fn = keep_warning, .level = REMO_LOG_WARNING}};
    remo__watch_init(&threads.watch);
    for (uint32_t i = 0; i < 3; i++)
        schedulers[i] = (struct remo__scheduler){.node = &node, .thread = &thread, .live_count = 4};
    wakes = warnings = 0;
    return 0;
}

static int teardown(void **state) {
    (void)state;
    remo__watch_destroy(&threads.watch);
    return 0;
}

static void look(uint32_t times) {
    while (times-- > 0) {
        threads.watch.due_ns = 0;
        assert_int_equal(remo__watch_look(&node), REMO__WATCH_PERIOD_NS);
    }
}

static void test_no_scheduler(void **state) {
    (void)state;
    assert_true(remo__watch_look(&node) == REMO_FOREVER);
    remo__watch_add(&schedulers[0]);
    assert_int_equal(wakes, 1);
    remo__watch_add(&schedulers[1]); /* the service thread looks already */
    assert_int_equal(wakes, 1);
    remo__watch_remove(&schedulers[0]);
    remo__watch_remove(&schedulers[1]);
    assert_true(remo__watch_look(&node) == REMO_FOREVER);
}

static void test_reports_once(void **state) {
    (void)state;
    schedulers[0].switches = 10;
    remo__watch_add(&schedulers[0]);
    look(2); /* the process may have been stopped before the second */
    assert_int_equal(warnings, 0);
    look(1);
    assert_int_equal(warnings, 1);
    assert_non_null(strstr(warning, "thread 7 "));
    assert_non_null(strstr(warning, " 4 tasks "));
    assert_non_null(strstr(warning, "5000 ms"));
    look(5);
    assert_int_equal(warnings, 1);
    schedulers[0].switches++;
    look(3);
    assert_int_equal(warnings, 2);
    remo__watch_remove(&schedulers[0]);
}

static void test_not_reported(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 3; i++)
        remo__watch_add(&schedulers[i]);
    schedulers[0].live_count = 0;   /* no task waits */
    schedulers[1].is_asleep = true; /* no task is ready */
    for (uint32_t i = 0; i < 6; i++) {
        schedulers[2].switches++;
        look(1);
    }
    assert_int_equal(warnings, 0);
    schedulers[1].is_asleep = false; /* the looks during its sleep do not count */
    schedulers[2].live_count = 0;
    look(1);
    assert_int_equal(warnings, 0);
    look(1);
    assert_int_equal(warnings, 1);
    for (uint32_t i = 0; i < 3; i++)
        remo__watch_remove(&schedulers[i]);
}

static void test_removed(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        schedulers[i].switches = 1;
        remo__watch_add(&schedulers[i]);
    }
    look(1);
    remo__watch_remove(&schedulers[1]); /* between the others */
    remo__watch_remove(&schedulers[2]); /* the first of the list */
    look(2);
    assert_int_equal(warnings, 1);
    remo__watch_remove(&schedulers[0]);
    assert_null(threads.watch.first);
}

static void test_not_due(void **state) {
    (void)state;
    schedulers[0].switches = 1;
    remo__watch_add(&schedulers[0]);
    look(1);
    uint64_t due_ns = threads.watch.due_ns;
    for (uint32_t i = 0; i < 3; i++)
        assert_true(remo__watch_look(&node) <= REMO__WATCH_PERIOD_NS);
    if (threads.watch.due_ns == due_ns) /* else this test has waited for five seconds */
        assert_int_equal(schedulers[0].looks, 0);
    remo__watch_remove(&schedulers[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_no_scheduler, setup, teardown),
        cmocka_unit_test_setup_teardown(test_reports_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_not_reported, setup, teardown),
        cmocka_unit_test_setup_teardown(test_removed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_not_due, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
