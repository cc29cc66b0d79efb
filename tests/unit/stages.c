/* stages.c - tests that each participant of a barrier learns of the arrivals of all others, and counts the
 * announcements. */
#include <stdlib.h>
#include <string.h>

#include "objects/stages.h"
#include "unit.h"

#define COUNT_MAX 256u

/* Run a round, and set the arrivals that a participant learns of, by the distance before it. All participants
 * are alike. Return the number of its announcements. */
static uint32_t announce(const struct remo__stages *stages, bool has_arrived[COUNT_MAX]) {
    uint32_t announcements = 0, stage = 1;
    has_arrived[0] = true;
    for (bool is_last = false; !is_last; stage *= stages->radix) {
        bool before[COUNT_MAX];
        memcpy(before, has_arrived, sizeof before);
        uint32_t end = remo__stage_end(stages, stage);
        is_last = remo__stage_is_last(stages, stage);
        for (uint32_t distance = stage; distance < end; distance += stage, announcements++) {
            assert_true(remo__stages_have(stages, distance));
            for (uint32_t known = 0; known < stages->count; known++)
                if (before[known])
                    has_arrived[(known + distance) % stages->count] = true;
            /* The barrier relies on this order: all peers at smaller distances have arrived. */
            for (uint32_t known = 0; known < remo__min(distance + stage, stages->count); known++)
                assert_true(has_arrived[known]);
        }
    }
    return announcements;
}

static void reach_all(void **state) {
    (void)state;
    for (uint32_t count = 1; count <= COUNT_MAX; count++) {
        struct remo__stages stages = remo__stages_of(count);
        bool has_arrived[COUNT_MAX] = {false};
        uint32_t announcements = announce(&stages, has_arrived), distances = 0;
        for (uint32_t distance = 0; distance < count; distance++) {
            assert_true(has_arrived[distance]);
            distances += distance > 0 && remo__stages_have(&stages, distance);
        }
        assert_int_equal(announcements, distances);
        if (count <= REMO__ONE_STAGE_MAX)
            assert_int_equal(announcements, count - 1);
    }
}

static void costs(void **state) {
    static const struct {
        uint32_t count, announcements;
    } rows[] = {{16, 15}, {17, 7}, {32, 10}, {64, 14}, {128, 21}, {256, 30}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct remo__stages stages = remo__stages_of(rows[i].count);
        bool has_arrived[COUNT_MAX] = {false};
        assert_int_equal(announce(&stages, has_arrived), rows[i].announcements);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(reach_all), cmocka_unit_test(costs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
