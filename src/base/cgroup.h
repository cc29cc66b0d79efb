/* cgroup.h - the control groups of this process, versions 1 and 2, whose limits all apply to it. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

struct remo__cgroup {
    bool is_v2;
    char folder[PATH_MAX]; /* of its files */
};

/* Call `visit` for each group that limits the process for `controller` ("cpu", "memory"): its own and all
 * parents that it can see. Without /proc and /sys there is none. Cost: reads /proc/self/cgroup. */
void remo__cgroup_visit(const char *controller, void (*visit)(void *ctx, const struct remo__cgroup *group),
                        void *ctx);

/* Read the number that follows `key` at the start of a line of a group's file; with an empty key, the first
 * number. Returns false if there is none. */
bool remo__cgroup_number(const struct remo__cgroup *group, const char *file, const char *key,
                         uint64_t *ret_value);

/* The same for any file. */
bool remo__file_number(const char *path, const char *key, uint64_t *ret_value);
