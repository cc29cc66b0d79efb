/* linear.c - tests of the linearizability checkers: histories that are known to be good or bad, some written
 * by hand, and many made at random. */
#include "sim/linear.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>

#include "base/random.h"
#include "sim/fifo.h"
#include "sim/oracle.h"

#define CALLS_MAX 256u

static struct call recorded[CALLS_MAX];
static struct history history = {.calls = recorded, .cap = CALLS_MAX};

static void call(uint32_t function, uint64_t argument, uint64_t second, uint64_t result, uint64_t begin,
                 uint64_t end) {
    const struct call is = {.function = function, .argument = argument, .second = second};
    uint32_t index = history_begin(&history, &is, begin);
    if (end != HISTORY_NEVER)
        history_end(&history, index, 0, result, end);
}

static enum verdict judge(const struct oracle *oracle, uint32_t budget) {
    struct linear *linear = linear_open(budget);
    struct linear_report report;
    enum verdict verdict = linear_check(linear, &history, oracle, &report);
    linear_close(linear);
    history.count = 0;
    history.full = false;
    return verdict;
}

static void registers_by_hand(void **state) {
    (void)state;
    call(WORD_STORE, 1, 0, 0, 1, 2);
    call(WORD_LOAD, 0, 0, 1, 3, 4);
    assert_int_equal(judge(&oracle_word, 1000), LINEAR_YES);
    call(WORD_STORE, 1, 0, 0, 1, 2); /* a later load must return it */
    call(WORD_LOAD, 0, 0, 0, 3, 4);
    assert_int_equal(judge(&oracle_word, 1000), LINEAR_NO);
    call(WORD_STORE, 1, 0, 0, 1, 5); /* an overlapping load need not */
    call(WORD_LOAD, 0, 0, 0, 3, 4);
    assert_int_equal(judge(&oracle_word, 1000), LINEAR_YES);
    call(WORD_STORE, 1, 0, 0, 1, 9); /* once it was loaded, later loads return it */
    call(WORD_LOAD, 0, 0, 1, 2, 3);
    call(WORD_LOAD, 0, 0, 0, 4, 5);
    assert_int_equal(judge(&oracle_word, 1000), LINEAR_NO);
}

static void calls_without_end(void **state) {
    (void)state;
    call(WORD_STORE, 1, 0, 0, 1, HISTORY_NEVER); /* may be applied late, or never */
    call(WORD_LOAD, 0, 0, 0, 3, 4);
    call(WORD_LOAD, 0, 0, 1, 5, 6);
    assert_int_equal(judge(&oracle_word, 1000), LINEAR_YES);
    call(WORD_STORE, 1, 0, 0, 1, HISTORY_NEVER);
    call(WORD_LOAD, 0, 0, 0, 3, 4);
    assert_int_equal(judge(&oracle_word, 1000), LINEAR_YES);
    call(WORD_STORE, 1, 0, 0, 5, HISTORY_NEVER); /* not before its begin */
    call(WORD_LOAD, 0, 0, 1, 3, 4);
    assert_int_equal(judge(&oracle_word, 1000), LINEAR_NO);
    call(COUNTER_ADD, 1, 0, 0, 1, HISTORY_NEVER); /* not twice */
    call(WORD_LOAD, 0, 0, 2, 3, 4);
    assert_int_equal(judge(&oracle_word, 1000), LINEAR_NO);
}

static void counters(void **state) {
    (void)state;
    call(COUNTER_ADD, 1, 0, 0, 1, 10);
    call(COUNTER_ADD, 1, 0, 0, 2, 9); /* two calls got the same number: a lost update */
    assert_int_equal(judge(&oracle_word, 1000), LINEAR_NO);
    call(COUNTER_ADD, 1, 0, 1, 1, 10);
    call(COUNTER_ADD, 1, 0, 0, 2, 9);
    assert_int_equal(judge(&oracle_word, 1000), LINEAR_YES);
}

static void queues(void **state) {
    (void)state;
    call(QUEUE_PUSH, 1, 0, 0, 1, 2);
    call(QUEUE_PUSH, 2, 0, 0, 3, 4);
    call(QUEUE_POP, 0, 0, 2, 5, 6); /* not in the order of the pushes */
    assert_int_equal(judge(&oracle_queue, 1000), LINEAR_NO);
    call(QUEUE_PUSH, 1, 0, 0, 1, 4);
    call(QUEUE_PUSH, 2, 0, 0, 3, 4);
    call(QUEUE_POP, 0, 0, 2, 5, 6);
    assert_int_equal(judge(&oracle_queue, 1000), LINEAR_YES);
    call(QUEUE_PUSH, 1, 0, 0, 1, 2);
    call(QUEUE_POP, 0, 0, 1, 3, 6);
    call(QUEUE_POP, 0, 0, 1, 4, 5); /* popped twice */
    assert_int_equal(judge(&oracle_queue, 1000), LINEAR_NO);
}

/* Each call takes effect at a known moment between its begin and its end, so the history is good by
 * construction. Then one result is changed to a value that no call stored, so it is bad by construction. */
static void make(struct remo__random *random, uint32_t calls) {
    uint64_t word = 0;
    for (uint32_t i = 0; i < calls; i++) {
        uint64_t at = 100 * (i + 1), begin = at - 1 - remo__random_below(random, 400) % at,
                 end = at + 1 + remo__random_below(random, 400);
        uint64_t value = i + 1, old = word;
        switch (remo__random_below(random, 3)) {
        case 0:
            call(WORD_STORE, value, 0, 0, begin, end);
            word = value;
            break;
        case 1:
            call(COUNTER_ADD, 1000, 0, old, begin, end);
            word += 1000;
            break;
        default: call(WORD_LOAD, 0, 0, old, begin, end); break;
        }
    }
}

static void random_histories(void **state) {
    struct remo__random random;
    (void)state;
    for (uint32_t seed = 0; seed < 500; seed++) {
        remo__random_seed(&random, seed);
        make(&random, 40);
        assert_int_equal(judge(&oracle_word, 100000), LINEAR_YES);
        remo__random_seed(&random, seed);
        make(&random, 40);
        call(WORD_LOAD, 0, 0, 999999999, 2000, 2001);
        assert_int_equal(judge(&oracle_word, 100000), LINEAR_NO);
    }
}

/* ---- long histories of queues ---- */

static void assert_fifo(uint32_t invented, uint32_t repeated, uint32_t lost, uint32_t out_of_order,
                        uint32_t not_empty) {
    struct fifo_report found;
    assert_int_equal(fifo_check(&history, &found), 0);
    history.count = 0;
    assert_int_equal(found.invented, invented);
    assert_int_equal(found.repeated, repeated);
    assert_int_equal(found.lost, lost);
    assert_int_equal(found.out_of_order, out_of_order);
    assert_int_equal(found.not_empty, not_empty);
}

static void empty_pop(uint64_t begin, uint64_t end) {
    const struct call is = {.function = QUEUE_POP};
    history_end(&history, history_begin(&history, &is, begin), -ETIMEDOUT, 0, end);
}

static void fifo_by_hand(void **state) {
    (void)state;
    call(QUEUE_PUSH, 1, 0, 0, 1, 2);
    call(QUEUE_PUSH, 2, 0, 0, 3, 4);
    call(QUEUE_POP, 0, 0, 2, 5, 6); /* the first element is popped later */
    call(QUEUE_POP, 0, 0, 1, 7, 8);
    assert_fifo(0, 0, 0, 1, 0);
    call(QUEUE_PUSH, 1, 0, 0, 1, 2);
    call(QUEUE_PUSH, 2, 0, 0, 3, 4);
    call(QUEUE_POP, 0, 0, 2, 5, 8); /* overlapping pops */
    call(QUEUE_POP, 0, 0, 1, 7, 9);
    assert_fifo(0, 0, 0, 0, 0);
    call(QUEUE_POP, 0, 0, 1, 1, 2);
    call(QUEUE_PUSH, 1, 0, 0, 3, 4);
    call(QUEUE_POP, 0, 0, 7, 5, 6);
    assert_fifo(2, 0, 0, 0, 0);
    call(QUEUE_PUSH, 1, 0, 0, 1, 2);
    call(QUEUE_POP, 0, 0, 1, 3, 4);
    call(QUEUE_POP, 0, 0, 1, 3, 6);
    assert_fifo(0, 1, 0, 0, 0);
    call(QUEUE_PUSH, 1, 0, 0, 1, 2);
    empty_pop(3, 4);
    call(QUEUE_POP, 0, 0, 1, 5, 6);
    empty_pop(7, 8);
    assert_fifo(0, 0, 0, 0, 1);
    call(QUEUE_PUSH, 1, 0, 0, 1, 2);
    call(QUEUE_PUSH, 2, 0, 0, 3, 6); /* slow: the first pop may have timed out because of it */
    empty_pop(3, 4);
    call(QUEUE_POP, 0, 0, 1, 5, 8);
    call(QUEUE_POP, 0, 0, 2, 5, 8);
    assert_fifo(0, 0, 0, 0, 0);
}

static void fifo_with_failures(void **state) {
    (void)state;
    call(QUEUE_PUSH, 1, 0, 0, 1, 2);
    call(QUEUE_PUSH, 2, 0, 0, 3, HISTORY_NEVER); /* pushed or not */
    call(QUEUE_POP, 0, 0, 0, 5, HISTORY_NEVER);  /* took the first element, or none */
    assert_fifo(0, 0, 0, 0, 0);
    call(QUEUE_PUSH, 1, 0, 0, 1, 2);
    call(QUEUE_PUSH, 2, 0, 0, 3, 4);
    call(QUEUE_POP, 0, 0, 0, 5, HISTORY_NEVER); /* not both elements */
    assert_fifo(0, 0, 1, 0, 0);
    call(QUEUE_PUSH, 1, 0, 0, 1, 2);
    call(QUEUE_PUSH, 2, 0, 0, 3, HISTORY_NEVER); /* pushed: it was popped before the first element */
    call(QUEUE_POP, 0, 0, 2, 5, 6);
    call(QUEUE_POP, 0, 0, 1, 7, 8);
    assert_fifo(0, 0, 0, 1, 0);
    call(QUEUE_PUSH, 1, 0, 0, 1, 2);
    history.calls[0].key = FIFO_MAY_BE_LOST;
    call(QUEUE_PUSH, 2, 0, 0, 3, 4);
    call(QUEUE_POP, 0, 0, 2, 5, 6);
    assert_fifo(0, 0, 0, 0, 0);
}

/* Both checkers accept the same histories. There are only two elements, so that the capacity does not
 * matter. */
static void fifo_against_search(void **state) {
    struct remo__random random;
    uint32_t bad = 0, good_ones = 0;
    (void)state;
    remo__random_seed(&random, 1);
    for (uint32_t i = 0; i < 2000; i++) {
        uint64_t elements[2] = {1 + remo__random_below(&random, 2)};
        elements[1] = 3 - elements[0];
        for (uint32_t k = 0; k < 2; k++) {
            uint64_t push = remo__random_below(&random, 40), pop = remo__random_below(&random, 40);
            call(QUEUE_PUSH, k + 1, 0, 0, push, push + 1 + remo__random_below(&random, 20));
            call(QUEUE_POP, 0, 0, elements[k], pop, pop + 1 + remo__random_below(&random, 20));
        }
        struct fifo_report found;
        assert_int_equal(fifo_check(&history, &found), 0);
        bool good = found.invented + found.repeated + found.lost + found.out_of_order + found.not_empty == 0;
        enum verdict verdict = judge(&oracle_queue, 1000);
        assert_int_equal(good, verdict == LINEAR_YES);
        bad += verdict == LINEAR_NO;
        good_ones += good;
    }
    assert_true(bad > 200 && good_ones > 200);
}

static void exhausted_budget_fails(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 30; i++)
        call(WORD_STORE, i, 0, 0, 1, 100);
    call(WORD_LOAD, 0, 0, 777, 200, 201);
    assert_int_equal(judge(&oracle_word, 1000), LINEAR_BUDGET);
    for (uint32_t i = 0; i <= CALLS_MAX; i++)
        call(WORD_LOAD, 0, 0, 0, i + 1, i + 1);
    assert_int_equal(judge(&oracle_word, 1000), LINEAR_BUDGET);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(registers_by_hand),
                                       cmocka_unit_test(calls_without_end),
                                       cmocka_unit_test(counters),
                                       cmocka_unit_test(queues),
                                       cmocka_unit_test(random_histories),
                                       cmocka_unit_test(fifo_by_hand),
                                       cmocka_unit_test(fifo_with_failures),
                                       cmocka_unit_test(fifo_against_search),
                                       cmocka_unit_test(exhausted_budget_fails)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
