/* group_file.h - files of a control group in a folder of a test. */
#pragma once

#include <limits.h>
#include <stdio.h>

#include "base/cgroup.h"
#include "unit.h"

static inline void write_group_file(const struct remo__cgroup *group, const char *name, const char *text) {
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/%s", group->folder, name);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}
