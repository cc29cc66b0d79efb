/* available.c - implements available.h from /proc/meminfo and the control groups' files.
 *
 * The result is the minimum over the machine and all visible groups, because every limit applies. */
#include "memory/available.h"

#include <stdio.h>
#include <sys/sysinfo.h>

#include "base/bits.h"
#include "base/cgroup.h"

/* The bytes that one group has left: its limit less its usage, where reclaimable file cache is not usage. */
static void limit_left(void *ctx, const struct remo__cgroup *group) {
    uint64_t *left = ctx, limit, usage, inactive = 0, active = 0;
    /* "max" as the limit: none */
    if (!remo__cgroup_number(group, group->is_v2 ? "memory.max" : "memory.limit_in_bytes", "", &limit)
        || !remo__cgroup_number(group, group->is_v2 ? "memory.current" : "memory.usage_in_bytes", "", &usage))
        return;
    remo__cgroup_number(group, "memory.stat", "inactive_file ", &inactive);
    remo__cgroup_number(group, "memory.stat", "active_file ", &active);
    usage -= remo__min(usage, inactive + active);
    *left = remo__min(*left, limit > usage ? limit - usage : 0);
}

/* The fallback without /proc counts free memory only, not reclaimable memory. */
static uint64_t machine_left(void) {
    uint64_t kib;
    struct sysinfo info;
    if (remo__file_number("/proc/meminfo", "MemAvailable:", &kib))
        return kib << 10;
    return sysinfo(&info) == 0 ? (uint64_t)info.freeram * info.mem_unit : UINT64_MAX;
}

uint64_t remo__memory_available(void) {
    uint64_t left = machine_left();
    remo__cgroup_visit("memory", limit_left, &left);
    return left;
}

uint64_t remo__memory_huge_pages_free(uint64_t page_bytes) {
    char path[PATH_MAX];
    uint64_t counts[2] = {0, 0};
    static const char *const names[2] = {"free_hugepages", "resv_hugepages"};
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "/sys/kernel/mm/hugepages/hugepages-%llukB/%s",
                 (unsigned long long)(page_bytes >> 10), names[i]);
        if (!remo__file_number(path, "", &counts[i]))
            return 0;
    }
    return counts[0] > counts[1] ? counts[0] - counts[1] : 0;
}
