/* sweep.c - unit tests of the end of the service thread's sweeps. No sweep may be missing for an operation or
 * an observer that waits, whatever another thread does between two steps of the last sweep. */
#include "unit.h"

#include "remote/op.h"
#include "remote/slots.h"

#define SWEEPS_MAX 1000u

static struct remo_node node;
static uint32_t quiet;

/* Observes each sweep, and waits for an operation at one call. */
static struct observer {
    struct remo__thread_observer base;
    uint32_t calls, waits_at; /* 0: never */
} observer;

static bool on_swept(struct remo__thread_observer *base) {
    struct observer *self = (struct observer *)base;
    return ++self->calls == self->waits_at;
}

static int open_node(void **state) {
    (void)state;
    node = (struct remo_node){.size = 1};
    assert_int_equal(remo__threads_open(&node), 0);
    atomic_store(&node.threads->is_sweeping, true);
    quiet = 0;
    observer = (struct observer){.base.swept = on_swept};
    remo__thread_observe(&node, &observer.base);
    return 0;
}

static int close_node(void **state) {
    (void)state;
    atomic_store(&node.threads->count, 0); /* the test owns its thread */
    remo__threads_close(&node);
    return 0;
}

static bool sweep(void) {
    bool completed = true, goes_on = remo__slots_sweep(&node, &quiet, &completed);
    assert_false(completed);
    assert_int_equal(goes_on, atomic_load(&node.threads->is_sweeping));
    return goes_on;
}

/* Returns the number of sweeps up to the last one. */
static uint32_t sweep_to_end(void) {
    uint32_t sweeps = 1;
    while (sweep())
        assert_true(++sweeps < SWEEPS_MAX);
    return sweeps;
}

static void test_end(void **state) {
    (void)state;
    uint32_t sweeps = sweep_to_end();
    assert_true(sweeps > 1);
    assert_int_equal(observer.calls, sweeps + 1); /* again at the end */
}

/* An observer begins to wait during the last sweep: after its call, but before `is_sweeping` is false. So it
 * has requested no sweeps, and only the second call of the last sweep finds it. */
static void test_observer_waits(void **state) {
    (void)state;
    uint32_t sweeps = sweep_to_end();
    for (uint32_t last = 0; last < 2; last++) {
        atomic_store(&node.threads->is_sweeping, true);
        quiet = 0;
        observer.calls = 0;
        observer.waits_at = sweeps + last;
        uint32_t until = sweep_to_end();
        assert_int_equal(until, last == 0 ? sweeps : 2 * sweeps);
    }
}

/* The lock of the observers is held: the sweep does not wait for it, and does not end the sweeps. */
static void test_lock_is_held(void **state) {
    (void)state;
    pthread_mutex_lock(&node.threads->observers_lock);
    for (uint32_t i = 0; i < SWEEPS_MAX; i++)
        assert_true(sweep());
    pthread_mutex_unlock(&node.threads->observers_lock);
    assert_int_equal(observer.calls, 0);
    sweep_to_end();
}

/* An operation in flight keeps the sweeps running, also if its own thread polls before each of them. */
static void test_in_flight(void **state) {
    (void)state;
    static struct remo__slots slots;
    static struct remo__thread thread;
    slots = (struct remo__slots){.in_flight = 1};
    thread = (struct remo__thread){.node = &node, .slots = &slots};
    node.threads->of[0] = &thread;
    atomic_store(&node.threads->count, 1);
    for (uint32_t i = 0; i < SWEEPS_MAX; i++) {
        atomic_fetch_add(&slots.polls, 1);
        assert_true(sweep());
    }
    slots.in_flight = 0;
    sweep_to_end();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_end, open_node, close_node),
        cmocka_unit_test_setup_teardown(test_observer_waits, open_node, close_node),
        cmocka_unit_test_setup_teardown(test_lock_is_held, open_node, close_node),
        cmocka_unit_test_setup_teardown(test_in_flight, open_node, close_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
