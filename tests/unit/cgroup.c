/* cgroup.c - unit tests of the walk over the control groups of a process. The linker replaces fopen
 * (meson.build), so /proc/self/cgroup has the contents of the test. */
#include "base/cgroup.h"

#include <stdio.h>
#include <string.h>

#include "unit.h"

static char text[8192];
static char visited[16384]; /* "2 FOLDER\n" for each group of version 2 */

FILE *__wrap_fopen64(const char *path, const char *mode);
FILE *__wrap_fopen64(const char *path, const char *mode) {
    assert_string_equal(path, "/proc/self/cgroup");
    return text[0] ? fmemopen(text, strlen(text), mode) : NULL;
}

static uint32_t visit_count;

static void record(void *ctx, const struct remo__cgroup *group) {
    size_t length = strlen(visited);
    assert_ptr_equal(ctx, text);
    visit_count++;
    snprintf(visited + length, sizeof visited - length, "%d %s\n", group->is_v2 ? 2 : 1, group->folder);
}

static void check(const char *controller, const char *lines, const char *expected) {
    visited[0] = '\0';
    snprintf(text, sizeof text, "%s", lines);
    remo__cgroup_visit(controller, record, text);
    assert_string_equal(visited, expected);
}

static void test_parents(void **state) {
    (void)state;
    check("cpu", "0::/a/b\n", "2 /sys/fs/cgroup/a/b\n2 /sys/fs/cgroup/a\n2 /sys/fs/cgroup\n");
    check("cpu", "0::/\n", "2 /sys/fs/cgroup\n");
    check("memory", "0::/a\n", "2 /sys/fs/cgroup/a\n2 /sys/fs/cgroup\n");
}

/* Version 1 has a hierarchy for each controller; a name must match as a whole. */
static void test_controllers(void **state) {
    static const char lines[] = "9:cpuset:/s\n4:cpu,cpuacct:/a\n3:name=systemd:/u\n2:memory:/m\n";
    (void)state;
    check("cpu", lines, "1 /sys/fs/cgroup/cpu/a\n1 /sys/fs/cgroup/cpu\n");
    check("cpuacct", lines, "1 /sys/fs/cgroup/cpuacct/a\n1 /sys/fs/cgroup/cpuacct\n");
    check("memory", lines, "1 /sys/fs/cgroup/memory/m\n1 /sys/fs/cgroup/memory\n");
    check("pids", lines, "");
}

static void test_malformed(void **state) {
    char deep[2048] = "0::";
    (void)state;
    check("cpu", "", "");
    check("cpu", "\n0\n0:\n:\n", "");
    for (int i = 0; i < 500; i++)
        strcat(deep, "/d");
    snprintf(text, sizeof text, "%s\n", deep);
    visit_count = 0;
    remo__cgroup_visit("cpu", record, text);
    assert_int_equal(visit_count, 64); /* the bound */
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_parents), cmocka_unit_test(test_controllers),
                                       cmocka_unit_test(test_malformed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
