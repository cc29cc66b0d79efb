/* cycles.c - unit tests of the judge of histories (tests/support/cycles.h). Histories that are wrong in one
 * way each are rejected, right ones are accepted. Random serial histories, whose operations overlap in time,
 * are accepted, and rejected after one change. */
#include "unit.h"

#include <stdlib.h>
#include <string.h>

#include "../support/cycles.h"
#include "base/random.h"

#define ACTORS 4u
#define OPS 4096u /* of an actor */
#define ACCESSES 8u

static struct cycles_op ops[ACTORS][OPS];
static struct cycles_access accesses[ACTORS][OPS * ACCESSES];
static struct cycles_history actors[ACTORS];
static struct cycles_report report;
static char *text; /* the printed judgement */

static int clear(void **state) {
    (void)state;
    for (uint32_t i = 0; i < ACTORS; i++)
        actors[i] = (struct cycles_history){.ops = ops[i], .accesses = accesses[i]};
    return 0;
}

static int release(void **state) {
    (void)state;
    free(text);
    text = NULL;
    return 0;
}

#define READ(key_, seen_) \
    { .key = (key_), .kind = CYCLES_READ, .seen = (seen_) }
#define WRITE(key_, seen_) \
    { .key = (key_), .kind = CYCLES_WRITE, .seen = (seen_) }
#define DELETE(key_, seen_) \
    { .key = (key_), .kind = CYCLES_DELETE, .seen = (seen_) }

/* Add an operation, and return its id. */
static uint32_t add(uint32_t actor, uint64_t begin, uint64_t end, enum cycles_outcome outcome, uint32_t count,
                    const struct cycles_access *list) {
    struct cycles_history *history = &actors[actor];
    history->ops[history->op_count] = (struct cycles_op){.begin = begin,
                                                         .end = end,
                                                         .first_access = history->access_count,
                                                         .access_count = count,
                                                         .outcome = outcome};
    memcpy(&history->accesses[history->access_count], list, count * sizeof list[0]);
    history->access_count += count;
    return cycles_id(actor, history->op_count++);
}

#define ADD(actor, begin, end, outcome, ...)                                                                \
    add(actor, begin, end, outcome, sizeof((struct cycles_access[]){__VA_ARGS__}) / sizeof(accesses[0][0]), \
        (struct cycles_access[]){__VA_ARGS__})
#define DONE(actor, begin, end, ...) ADD(actor, begin, end, CYCLES_COMMITTED, __VA_ARGS__)

static int judge(void) {
    size_t bytes;
    free(text);
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    int rc = cycles_judge(actors, ACTORS, out, &report);
    fclose(out);
    return rc;
}

static void expect_right(void) {
    if (judge() != 0)
        fail_msg("rejected:\n%s", text);
    assert_int_equal(report.errors + report.cycle, 0);
}

static void expect_cycle(uint32_t length) {
    assert_int_equal(judge(), 1);
    assert_int_equal(report.errors, 0);
    assert_int_equal(report.cycle, length);
    assert_non_null(strstr(text, "no order explains"));
}

static void expect_error(const char *words) {
    assert_int_equal(judge(), 1);
    assert_true(report.errors > 0);
    assert_non_null(strstr(text, words));
}

/* ---- right histories ---- */

static void test_right(void **state) {
    (void)state;
    expect_right(); /* no operation */
    uint32_t a = DONE(0, 1, 2, WRITE(1, 0), WRITE(2, 0));
    uint32_t b = DONE(1, 3, 9, WRITE(1, a), READ(2, a));
    DONE(2, 4, 8, READ(1, a), READ(2, a)); /* overlaps b, and is before it */
    uint32_t d = DONE(3, 10, 11, DELETE(1, b), WRITE(2, a));
    DONE(0, 12, 13, READ(1, 0), READ(2, d), READ(3, 0));
    uint32_t e = DONE(1, 14, 15, WRITE(1, 0));
    DONE(2, 16, 17, READ(1, e));
    ADD(3, 18, 19, CYCLES_NOT_COMMITTED, WRITE(1, a)); /* has no effect, so it may have seen anything */
    expect_right();
    assert_int_equal(report.ops, 7);
    assert_int_equal(report.presences, 3);
    assert_int_equal(report.unordered, 0);
}

/* Operations may take effect in another order than they begin or end, if they overlap. */
static void test_right_overlap(void **state) {
    (void)state;
    uint32_t a = DONE(0, 10, 100, WRITE(1, 0));
    uint32_t b = DONE(1, 5, 90, WRITE(1, a));
    DONE(2, 1, 95, READ(1, b));
    DONE(3, 2, 96, READ(1, 0));
    DONE(3, 97, 98, READ(1, b));
    expect_right();
}

/* Presences that overlap in time have no order, and readers may be between them. */
static void test_right_presences(void **state) {
    (void)state;
    uint32_t a = DONE(0, 1, 100, WRITE(1, 0)), b = DONE(1, 1, 100, WRITE(1, 0));
    DONE(2, 1, 100, DELETE(1, a));
    DONE(3, 1, 100, DELETE(1, b));
    DONE(2, 1, 100, READ(1, 0));
    DONE(2, 101, 102, READ(1, 0));
    expect_right();
    assert_int_equal(report.unordered, 2);
    uint32_t c = DONE(0, 103, 104, WRITE(1, 0));
    DONE(1, 105, 106, READ(1, c));
    expect_right();
}

/* ---- wrong ones ---- */

static void test_lost_update(void **state) {
    (void)state;
    uint32_t a = DONE(0, 1, 2, WRITE(1, 0));
    DONE(1, 3, 9, WRITE(1, a));
    DONE(2, 4, 8, WRITE(1, a));
    expect_cycle(2);
}

static void test_stale_read(void **state) {
    (void)state;
    uint32_t a = DONE(0, 1, 2, WRITE(1, 0));
    DONE(1, 3, 4, WRITE(1, a));
    DONE(2, 5, 6, READ(1, a));
    expect_cycle(2);
}

/* The write that ended is lost: a later one replaces the version before it. */
static void test_lost_write(void **state) {
    (void)state;
    uint32_t a = DONE(0, 1, 2, WRITE(1, 0)), b;
    DONE(1, 3, 4, WRITE(1, a), WRITE(2, 0));
    b = DONE(2, 5, 6, WRITE(1, a));
    DONE(3, 7, 8, READ(1, b));
    expect_cycle(2);
}

static void test_write_skew(void **state) {
    (void)state;
    uint32_t a = DONE(0, 1, 2, WRITE(1, 0), WRITE(2, 0));
    DONE(1, 3, 9, READ(1, a), WRITE(2, a));
    DONE(2, 4, 8, READ(2, a), WRITE(1, a));
    expect_cycle(2);
    assert_non_null(strstr(text, "read the version that the next one replaced (key"));
}

/* Two readers see two independent writes in different orders. */
static void test_disagreement(void **state) {
    (void)state;
    uint32_t a = DONE(0, 1, 100, WRITE(1, 0)), b = DONE(1, 1, 100, WRITE(2, 0));
    DONE(2, 1, 100, READ(1, a), READ(2, 0));
    DONE(3, 1, 100, READ(2, b), READ(1, 0));
    expect_cycle(4);
}

/* Serial in the order of keys, but not in real time: the second operation did not overlap the first one. */
static void test_real_time(void **state) {
    (void)state;
    uint32_t a = DONE(0, 1, 2, WRITE(1, 0), WRITE(2, 0));
    uint32_t b = DONE(1, 10, 30, WRITE(1, a));
    DONE(2, 11, 12, READ(1, b));
    DONE(2, 13, 14, READ(1, a));
    expect_cycle(3);
    assert_non_null(strstr(text, "which ended before the next one began"));
}

/* The operation between the end of one and the begin of the next one is far away in time. */
static void test_real_time_chain(void **state) {
    (void)state;
    uint32_t a = DONE(0, 1, 2, WRITE(1, 0)), other = 0;
    DONE(1, 3, 4, WRITE(1, a));
    for (uint32_t i = 0; i < 1000; i++)
        other = DONE(2, 10 + 2 * i, 11 + 2 * i, WRITE(2, other));
    DONE(3, 5000, 5001, READ(1, a));
    expect_cycle(2);
}

static void test_aborted_read(void **state) {
    (void)state;
    uint32_t a = ADD(0, 1, 2, CYCLES_NOT_COMMITTED, WRITE(1, 0));
    DONE(1, 3, 4, READ(1, a));
    expect_error("key 1: 1.0 has seen the version 0.0, whose writer did not commit");
}

static void test_unwritten(void **state) {
    (void)state;
    uint32_t a = DONE(0, 1, 2, WRITE(1, 0));
    DONE(1, 3, 4, READ(2, a));
    expect_error("key 2: 1.0 has seen the version 0.0, which was never written");
    clear(state);
    DONE(1, 3, 4, READ(2, cycles_id(3, 17)));
    expect_error("which was never written");
}

static void test_half_visible(void **state) {
    (void)state;
    uint32_t a = DONE(0, 1, 2, WRITE(1, 0), WRITE(2, 0));
    uint32_t b = DONE(1, 3, 9, WRITE(1, a), WRITE(2, a));
    DONE(2, 4, 8, READ(1, b), READ(2, a));
    expect_cycle(2);
}

/* The same for a transaction of unknown outcome: what one key shows must be true for the other. */
static void test_half_done(void **state) {
    (void)state;
    uint32_t a = DONE(0, 1, 2, WRITE(1, 0), WRITE(2, 0));
    uint32_t b = ADD(1, 3, CYCLES_NEVER, CYCLES_UNKNOWN, WRITE(1, a), WRITE(2, a));
    DONE(2, 10, 11, READ(1, b));
    DONE(2, 12, 13, READ(2, a));
    expect_cycle(2);
    assert_int_equal(report.proven, 1);
    clear(state);
    a = DONE(0, 1, 2, WRITE(1, 0), WRITE(2, 0)); /* its delete was executed, its write was not */
    ADD(1, 3, CYCLES_NEVER, CYCLES_UNKNOWN, DELETE(1, a), WRITE(2, a));
    DONE(2, 10, 11, READ(1, 0));
    DONE(2, 12, 13, READ(2, a));
    expect_cycle(3);
    clear(state);
    a = DONE(0, 1, 2, WRITE(1, 0), WRITE(2, 0)); /* a later presence proves the delete */
    ADD(1, 3, CYCLES_NEVER, CYCLES_UNKNOWN, DELETE(1, a), WRITE(2, a));
    DONE(2, 10, 11, WRITE(1, 0));
    DONE(2, 12, 13, READ(2, a));
    assert_int_equal(judge(), 1);
    assert_true(report.cycle > 0);
}

static void test_unknown_right(void **state) {
    (void)state;
    uint32_t a = DONE(0, 1, 2, WRITE(1, 0), WRITE(2, 0));
    ADD(1, 3, CYCLES_NEVER, CYCLES_UNKNOWN, WRITE(1, a), DELETE(2, a)); /* not executed */
    uint32_t b = ADD(2, 3, CYCLES_NEVER, CYCLES_UNKNOWN, WRITE(1, a));
    ADD(3, 3, CYCLES_NEVER, CYCLES_UNKNOWN, DELETE(2, a));
    DONE(0, 4, 5, READ(1, a), READ(2, a));
    DONE(0, 10, 11, READ(1, b), READ(2, a));
    DONE(0, 12, 13, READ(1, b), READ(2, 0));
    DONE(0, 14, 15, WRITE(2, 0));
    expect_right();
    assert_int_equal(report.unknown, 3);
}

static void test_absent(void **state) {
    (void)state;
    uint32_t a = DONE(0, 1, 2, WRITE(1, 0));
    DONE(1, 3, 4, READ(1, 0)); /* a scan that misses a committed insert */
    expect_cycle(2);
    clear(state);
    a = DONE(0, 1, 2, WRITE(1, 0));
    DONE(1, 3, 4, DELETE(1, a));
    DONE(2, 5, 6, READ(1, a));
    expect_cycle(2);
    clear(state);
    a = DONE(0, 1, 2, WRITE(1, 0)); /* absent before the delete, and present before the insert */
    DONE(2, 10, 20, READ(1, 0), READ(2, 0));
    DONE(1, 30, 40, DELETE(1, a));
    DONE(1, 41, 42, WRITE(1, 0));
    assert_int_equal(judge(), 1);
    assert_true(report.cycle > 0);
}

static void test_inserted_twice(void **state) {
    (void)state;
    DONE(0, 1, 2, WRITE(1, 0));
    DONE(1, 3, 4, WRITE(1, 0));
    expect_error("key 1: 0.0 inserted it, and 1.0 inserted it again, but it was not deleted in between");
    clear(state);
    uint32_t a = DONE(0, 1, 2, WRITE(1, 0)), b = DONE(1, 3, 4, WRITE(1, 0));
    DONE(2, 5, 6, DELETE(1, a));
    DONE(3, 5, 6, DELETE(1, b));
    assert_int_equal(judge(), 1);
    assert_true(report.cycle > 0);
}

/* Two scans that disagree on the order of an insert and a delete of different keys. */
static void test_scans_disagree(void **state) {
    (void)state;
    uint32_t a = DONE(0, 1, 2, WRITE(1, 0));
    uint32_t b = DONE(0, 10, 100, WRITE(2, 0));
    DONE(1, 10, 100, DELETE(1, a));
    DONE(2, 10, 100, READ(1, a), READ(2, b));
    DONE(3, 10, 100, READ(1, 0), READ(2, 0));
    expect_cycle(4);
}

static void test_ignored(void **state) {
    (void)state;
    uint32_t a = DONE(0, 1, 2, WRITE(1, 0));
    DONE(1, 3, 4, WRITE(1, a));
    DONE(2, 5, 6, {.key = 1, .kind = CYCLES_IGNORED, .seen = a});
    expect_right();
}

/* ---- random ones ---- */

#define KEYS 12u
#define STEP 10u

static struct remo__random random_state;

static uint32_t dice(uint32_t limit) {
    return (uint32_t)remo__random_below(&random_state, limit);
}

/* Add an operation that takes effect at time `at`, or an unknown one that does not; `versions` are those of
 * the keys. */
static void add_random(uint32_t *versions, uint64_t at, uint32_t jitter) {
    struct cycles_access list[ACCESSES];
    uint32_t actor = dice(ACTORS), count = 1 + dice(4), first = dice(KEYS), stride = 1 + 2 * dice(2);
    uint32_t id = cycles_id(actor, actors[actor].op_count);
    bool is_unknown = dice(16) == 0, has_effect = !is_unknown || dice(2);
    stride = stride == 3 ? 5 : 1; /* coprime to the number of keys */
    for (uint32_t i = 0; i < count; i++) {
        uint32_t key = (first + i * stride) % KEYS, kind = dice(3);
        if (kind == CYCLES_DELETE && versions[key] == CYCLES_ABSENT)
            kind = CYCLES_READ;
        list[i] = (struct cycles_access){.key = key, .kind = kind, .seen = versions[key]};
        if (kind != CYCLES_READ && has_effect)
            versions[key] = kind == CYCLES_DELETE ? CYCLES_ABSENT : id;
    }
    add(actor, at - dice(jitter), is_unknown ? CYCLES_NEVER : at + dice(jitter),
        is_unknown ? CYCLES_UNKNOWN : CYCLES_COMMITTED, count, list);
}

static void add_serial(uint64_t seed, uint32_t count) {
    uint32_t versions[KEYS] = {0};
    clear(NULL);
    remo__random_seed(&random_state, seed);
    uint32_t jitter = 1 + dice(8 * STEP);
    for (uint32_t i = 0; i < count; i++)
        add_random(versions, 1000 + STEP * i, jitter);
    struct cycles_access all[KEYS];
    for (uint32_t key = 0; key < KEYS; key++)
        all[key] = (struct cycles_access){.key = key, .kind = CYCLES_READ, .seen = versions[key]};
    add(0, 2000 + STEP * count, 2001 + STEP * count, CYCLES_COMMITTED, KEYS, all);
}

static void test_random_right(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        add_serial(seed, 400);
        expect_right();
    }
}

/* Let a read return the version that a committed operation replaced before the read began. */
static bool make_stale(void) {
    struct cycles_history *history = &actors[dice(ACTORS)];
    const struct cycles_op *reader = &history->ops[dice(history->op_count)];
    struct cycles_access *read = &history->accesses[reader->first_access];
    if (reader->outcome != CYCLES_COMMITTED || read->kind != CYCLES_READ)
        return false;
    for (uint32_t actor = 0; actor < ACTORS; actor++) {
        for (uint32_t i = 0; i < actors[actor].op_count; i++) {
            const struct cycles_op *op = &actors[actor].ops[i];
            for (uint32_t j = 0; j < op->access_count; j++) {
                const struct cycles_access *access = &actors[actor].accesses[op->first_access + j];
                if (op->outcome != CYCLES_COMMITTED || op->end >= reader->begin || access->key != read->key
                    || access->kind == CYCLES_READ || access->seen == CYCLES_ABSENT
                    || access->seen == read->seen)
                    continue;
                read->seen = access->seen;
                return true;
            }
        }
    }
    return false;
}

static void test_random_stale(void **state) {
    (void)state;
    uint32_t changed = 0;
    for (uint64_t seed = 0; seed < 300; seed++) {
        add_serial(seed, 400);
        if (!make_stale())
            continue;
        changed++;
        assert_int_equal(judge(), 1);
    }
    assert_true(changed > 50);
}

/* Let an operation that has ended have no effect, although a later operation used its key. */
static void test_random_lost(void **state) {
    (void)state;
    uint32_t changed = 0;
    for (uint64_t seed = 0; seed < 300; seed++) {
        add_serial(seed, 400);
        struct cycles_history *history = &actors[1];
        struct cycles_op *last = &history->ops[history->op_count - 1 - dice(20)];
        struct cycles_access *access = &history->accesses[last->first_access];
        if (last->outcome != CYCLES_COMMITTED || access->kind != CYCLES_READ || access->seen == 0)
            continue;
        access->kind = CYCLES_WRITE; /* the version is replaced, but others see it later */
        changed++;
        assert_int_equal(judge(), 1);
    }
    assert_true(changed > 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_right, clear, release),
        cmocka_unit_test_setup_teardown(test_right_overlap, clear, release),
        cmocka_unit_test_setup_teardown(test_right_presences, clear, release),
        cmocka_unit_test_setup_teardown(test_lost_update, clear, release),
        cmocka_unit_test_setup_teardown(test_stale_read, clear, release),
        cmocka_unit_test_setup_teardown(test_lost_write, clear, release),
        cmocka_unit_test_setup_teardown(test_write_skew, clear, release),
        cmocka_unit_test_setup_teardown(test_disagreement, clear, release),
        cmocka_unit_test_setup_teardown(test_real_time, clear, release),
        cmocka_unit_test_setup_teardown(test_real_time_chain, clear, release),
        cmocka_unit_test_setup_teardown(test_aborted_read, clear, release),
        cmocka_unit_test_setup_teardown(test_unwritten, clear, release),
        cmocka_unit_test_setup_teardown(test_half_visible, clear, release),
        cmocka_unit_test_setup_teardown(test_half_done, clear, release),
        cmocka_unit_test_setup_teardown(test_unknown_right, clear, release),
        cmocka_unit_test_setup_teardown(test_absent, clear, release),
        cmocka_unit_test_setup_teardown(test_inserted_twice, clear, release),
        cmocka_unit_test_setup_teardown(test_scans_disagree, clear, release),
        cmocka_unit_test_setup_teardown(test_ignored, clear, release),
        cmocka_unit_test_setup_teardown(test_random_right, clear, release),
        cmocka_unit_test_setup_teardown(test_random_stale, clear, release),
        cmocka_unit_test_setup_teardown(test_random_lost, clear, release),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
