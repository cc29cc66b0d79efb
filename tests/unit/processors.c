/* processors.c - tests the processors of a thread: its affinity, and the quotas of control groups of both
 * versions, in a folder of its own. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/processors.h"
#include "group_file.h"

static void put_away(const struct remo__cgroup *group, const char *name) {
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/%s", group->folder, name);
    assert_int_equal(unlink(path), 0);
}

static void quotas(void **state) {
    static const struct {
        const char *text;
        uint32_t count;
    } rows[] = {
        {"max 100000\n", UINT32_MAX}, {"100000 100000\n", 1},   {"250000 100000\n", 3}, {"1000 100000\n", 1},
        {"0 100000\n", UINT32_MAX},   {"100000\n", UINT32_MAX}, {"", UINT32_MAX}};
    struct remo__cgroup group = {.is_v2 = true, .folder = "/tmp/remo-unit-XXXXXX"};
    (void)state;
    assert_non_null(mkdtemp(group.folder));
    assert_int_equal(remo__processors_of_quota(&group), UINT32_MAX); /* no file */
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        write_group_file(&group, "cpu.max", rows[i].text);
        assert_int_equal(remo__processors_of_quota(&group), rows[i].count);
    }
    put_away(&group, "cpu.max");
    group.is_v2 = false;
    write_group_file(&group, "cpu.cfs_period_us", "100000\n");
    write_group_file(&group, "cpu.cfs_quota_us", "-1\n");
    assert_int_equal(remo__processors_of_quota(&group), UINT32_MAX);
    write_group_file(&group, "cpu.cfs_quota_us", "150000\n");
    assert_int_equal(remo__processors_of_quota(&group), 2);
    put_away(&group, "cpu.cfs_period_us");
    put_away(&group, "cpu.cfs_quota_us");
    assert_int_equal(rmdir(group.folder), 0);
}

static void affinity(void **state) {
    cpu_set_t before, one;
    (void)state;
    if (sched_getaffinity(0, sizeof before, &before) != 0)
        skip();
    struct remo__processors all = remo__processors_available();
    assert_in_range(all.count, 1, CPU_COUNT(&before));
    uint32_t first = 0;
    while (!CPU_ISSET(first, &before))
        first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    struct remo__processors pinned = remo__processors_available();
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_int_equal(pinned.count, 1);
    assert_int_equal(pinned.word[first / 64], UINT64_C(1) << first % 64);
    assert_true(remo__processors_within(&pinned, &all));
    assert_true(remo__processors_within(&pinned, &pinned));
    assert_int_equal(remo__processors_within(&all, &pinned), CPU_COUNT(&before) == 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(quotas), cmocka_unit_test(affinity)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
