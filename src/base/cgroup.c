/* cgroup.c - implements cgroup.h from /proc/self/cgroup, whose lines are "4:cpu,cpuacct:/a/b" (version 1) and
 * "0::/a/b" (version 2). A limit of a group applies to all groups below it. */
#include "base/cgroup.h"

#include <stdio.h>
#include <string.h>

#define DEPTH_MAX 64 /* levels of control groups that are read */

bool remo__file_number(const char *path, const char *key, uint64_t *ret_value) {
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    char line[256];
    bool found = false;
    size_t key_length = strlen(key);
    while (!found && fgets(line, sizeof line, file)) {
        unsigned long long value;
        if (strncmp(line, key, key_length) == 0 && sscanf(line + key_length, "%llu", &value) == 1) {
            *ret_value = value;
            found = true;
        }
    }
    fclose(file);
    return found;
}

bool remo__cgroup_number(const struct remo__cgroup *group, const char *file, const char *key,
                         uint64_t *ret_value) {
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/%s", group->folder, file);
    return length > 0 && (size_t)length < sizeof path && remo__file_number(path, key, ret_value);
}

/* Return whether a list "cpu,cpuacct" has the controller. */
static bool has_controller(const char *list, const char *controller) {
    size_t length = strlen(controller);
    for (const char *at = list; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, controller, length) == 0 && (at[length] == ',' || at[length] == '\0'))
            return true;
    }
    return false;
}

/* Visit the group of one line and its parents. */
static void visit_line(char *line, const char *controller,
                       void (*visit)(void *ctx, const struct remo__cgroup *group), void *ctx) {
    char *controllers = strchr(line, ':');
    char *path = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!path)
        return;
    *path++ = '\0';
    controllers++;
    path[strcspn(path, "\n")] = '\0';
    struct remo__cgroup group = {.is_v2 = controllers[0] == '\0'};
    if (!group.is_v2 && !has_controller(controllers, controller))
        return;
    if (strcmp(path, "/") == 0)
        *path = '\0';
    for (int depth = 0; depth < DEPTH_MAX; depth++) {
        int length = snprintf(group.folder, sizeof group.folder, "/sys/fs/cgroup%s%s%s",
                              group.is_v2 ? "" : "/", group.is_v2 ? "" : controller, path);
        if (length > 0 && (size_t)length < sizeof group.folder)
            visit(ctx, &group);
        char *slash = strrchr(path, '/');
        if (!slash)
            break;
        *slash = '\0'; /* finally "": the root that this process can see */
    }
}

void remo__cgroup_visit(const char *controller, void (*visit)(void *ctx, const struct remo__cgroup *group),
                        void *ctx) {
    FILE *file = fopen("/proc/self/cgroup", "re");
    if (!file)
        return;
    char line[PATH_MAX];
    while (fgets(line, sizeof line, file))
        visit_line(line, controller, visit, ctx);
    fclose(file);
}
