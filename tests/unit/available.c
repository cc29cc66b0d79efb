/* available.c - unit tests of the available memory under the limits of control groups. The linker replaces
 * the walk over the groups of this process by one over folders of the test (meson.build). */
#include "memory/available.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "group_file.h"

#define GROUPS_MAX 2u
#define MIB (UINT64_C(1) << 20)

static struct remo__cgroup groups[GROUPS_MAX];
static uint32_t group_count;

void __wrap_remo__cgroup_visit(const char *controller,
                               void (*visit)(void *ctx, const struct remo__cgroup *group), void *ctx);
void __wrap_remo__cgroup_visit(const char *controller,
                               void (*visit)(void *ctx, const struct remo__cgroup *group), void *ctx) {
    assert_string_equal(controller, "memory");
    for (uint32_t i = 0; i < group_count; i++)
        visit(ctx, &groups[i]);
}

static struct remo__cgroup *add_group(bool is_v2) {
    struct remo__cgroup *group = &groups[group_count++];
    group->is_v2 = is_v2;
    snprintf(group->folder, sizeof group->folder, "/tmp/remo-available-XXXXXX");
    assert_non_null(mkdtemp(group->folder));
    return group;
}

static int remove_groups(void **state) {
    static const char *const names[] = {"memory.max", "memory.current", "memory.limit_in_bytes",
                                        "memory.usage_in_bytes", "memory.stat"};
    char path[PATH_MAX + 32];
    (void)state;
    for (; group_count > 0; group_count--) {
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
            snprintf(path, sizeof path, "%s/%s", groups[group_count - 1].folder, names[i]);
            unlink(path);
        }
        rmdir(groups[group_count - 1].folder);
    }
    return 0;
}

/* 4 MiB of 32 are in use; of these, 1 MiB is inactive and 2 MiB are active file cache. */
static void test_file_cache(void **state) {
    (void)state;
    const struct remo__cgroup *group = add_group(true);
    write_group_file(group, "memory.max", "33554432\n");
    write_group_file(group, "memory.current", "4194304\n");
    assert_int_equal(remo__memory_available(), 28 * MIB);
    write_group_file(group, "memory.stat", "anon 1048576\ninactive_file 1048576\nactive_file 2097152\n");
    assert_int_equal(remo__memory_available(), 31 * MIB);
    write_group_file(group, "memory.stat", "inactive_file 1048576\nactive_file 9097152\n");
    assert_int_equal(remo__memory_available(), 32 * MIB); /* read later than the usage */
}

/* The lowest limit applies; version 1 has other names. */
static void test_groups(void **state) {
    (void)state;
    const struct remo__cgroup *group = add_group(true), *old = add_group(false);
    uint64_t unlimited = remo__memory_available();
    assert_true(unlimited > 8 * MIB);
    write_group_file(group, "memory.max", "max\n");
    write_group_file(group, "memory.current", "4194304\n");
    assert_true(remo__memory_available() > 8 * MIB);
    write_group_file(old, "memory.limit_in_bytes", "8388608\n");
    write_group_file(old, "memory.usage_in_bytes", "5242880\n");
    assert_int_equal(remo__memory_available(), 3 * MIB);
    write_group_file(group, "memory.max", "6291456\n");
    assert_int_equal(remo__memory_available(), 2 * MIB);
    write_group_file(group, "memory.current", "8388608\n"); /* above the limit */
    assert_int_equal(remo__memory_available(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_file_cache, remove_groups),
        cmocka_unit_test_teardown(test_groups, remove_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
