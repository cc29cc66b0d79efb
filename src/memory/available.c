/* available.c - implements available.h from /proc/meminfo and the control groups' files.
 *
 * The result is the minimum over the machine and all visible groups, because every limit applies. */
#include "memory/available.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysinfo.h>

#include "base/bits.h"

#define CGROUP_DEPTH_MAX 64 /* levels of control groups that are read */

/* File names of the two versions of control groups; their meaning is the same. */
struct cgroup_kind {
    const char *root, *limit, *usage;
};
static const struct cgroup_kind cgroup_v1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                             "memory.usage_in_bytes"};
static const struct cgroup_kind cgroup_v2 = {"/sys/fs/cgroup", "memory.max", "memory.current"};

/* Read the number that follows `key` at the start of a line of a file; with an empty key, the first
 * number. */
static bool file_number(const char *path, const char *key, uint64_t *ret_value) {
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

static bool cgroup_number(const char *root, const char *group, const char *file, const char *key,
                          uint64_t *ret_value) {
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s%s/%s", root, group, file);
    return length > 0 && (size_t)length < sizeof path && file_number(path, key, ret_value);
}

/* The bytes that one group has left: its limit less its usage, where reclaimable file cache is not usage. */
static uint64_t cgroup_left(const struct cgroup_kind *kind, const char *group) {
    uint64_t limit, usage, inactive = 0, active = 0;
    if (!cgroup_number(kind->root, group, kind->limit, "", &limit) /* "max": no limit */
        || !cgroup_number(kind->root, group, kind->usage, "", &usage))
        return UINT64_MAX;
    cgroup_number(kind->root, group, "memory.stat", "inactive_file ", &inactive);
    cgroup_number(kind->root, group, "memory.stat", "active_file ", &active);
    usage -= remo__min(usage, inactive + active);
    return limit > usage ? limit - usage : 0;
}

/* The bytes left in the group of a line of /proc/self/cgroup ("4:memory:/a/b" or "0::/a/b") and its
 * parents. */
static uint64_t cgroup_line_left(char *line) {
    char *controllers = strchr(line, ':');
    char *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group)
        return UINT64_MAX;
    *group++ = '\0';
    controllers++;
    group[strcspn(group, "\n")] = '\0';
    const struct cgroup_kind *kind;
    if (strcmp(controllers, "memory") == 0)
        kind = &cgroup_v1;
    else if (controllers[0] == '\0')
        kind = &cgroup_v2;
    else
        return UINT64_MAX;
    uint64_t left = UINT64_MAX;
    for (int depth = 0; depth < CGROUP_DEPTH_MAX; depth++) {
        left = remo__min(left, cgroup_left(kind, strcmp(group, "/") == 0 ? "" : group));
        char *slash = strrchr(group, '/');
        if (!slash)
            break;
        *slash = '\0'; /* finally "": the root that this process can see */
    }
    return left;
}

static uint64_t cgroups_left(void) {
    FILE *file = fopen("/proc/self/cgroup", "re");
    if (!file)
        return UINT64_MAX;
    char line[PATH_MAX];
    uint64_t left = UINT64_MAX;
    while (fgets(line, sizeof line, file))
        left = remo__min(left, cgroup_line_left(line));
    fclose(file);
    return left;
}

/* The fallback without /proc counts free memory only, not reclaimable memory. */
static uint64_t machine_left(void) {
    uint64_t kib;
    struct sysinfo info;
    if (file_number("/proc/meminfo", "MemAvailable:", &kib))
        return kib << 10;
    return sysinfo(&info) == 0 ? (uint64_t)info.freeram * info.mem_unit : UINT64_MAX;
}

uint64_t remo__memory_available(void) {
    return remo__min(machine_left(), cgroups_left());
}

uint64_t remo__memory_huge_pages_free(uint64_t page_bytes) {
    char path[PATH_MAX];
    uint64_t counts[2] = {0, 0};
    static const char *const names[2] = {"free_hugepages", "resv_hugepages"};
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "/sys/kernel/mm/hugepages/hugepages-%llukB/%s",
                 (unsigned long long)(page_bytes >> 10), names[i]);
        if (!file_number(path, "", &counts[i]))
            return 0;
    }
    return counts[0] > counts[1] ? counts[0] - counts[1] : 0;
}
