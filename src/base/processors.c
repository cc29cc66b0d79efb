/* processors.c - implements processors.h from sched_getaffinity and the control groups of the processor.
 * A quota grants processor time in each period. More threads than quota / period exhaust it early. */
#include "base/processors.h"

#include <sched.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/bits.h"

uint32_t remo__processors_of_quota(const struct remo__cgroup *group) {
    uint64_t quota_us, period_us;
    if (group->is_v2) { /* one line: "max 100000" or "250000 100000" */
        char key[32];
        if (!remo__cgroup_number(group, "cpu.max", "", &quota_us))
            return UINT32_MAX;
        snprintf(key, sizeof key, "%llu ", (unsigned long long)quota_us);
        if (!remo__cgroup_number(group, "cpu.max", key, &period_us))
            return UINT32_MAX;
    } else if (!remo__cgroup_number(group, "cpu.cfs_quota_us", "", &quota_us) /* -1, so the maximum: none */
               || !remo__cgroup_number(group, "cpu.cfs_period_us", "", &period_us)) {
        return UINT32_MAX;
    }
    if (quota_us == 0 || period_us == 0)
        return UINT32_MAX;
    return (uint32_t)remo__min(quota_us / period_us + (quota_us % period_us != 0), UINT32_MAX);
}

static void find_quota(void *ctx, const struct remo__cgroup *group) {
    struct remo__processors *processors = ctx;
    uint32_t quota = remo__processors_of_quota(group);
    struct stat folder;
    if (quota == UINT32_MAX || quota > processors->quota || stat(group->folder, &folder) != 0)
        return;
    processors->quota = quota;
    processors->quota_group =
        folder.st_ino; /* the same in all namespaces; of equal quotas, the outer group */
}

struct remo__processors remo__processors_available(void) {
    struct remo__processors processors = {.quota = UINT32_MAX};
    cpu_set_t set;
    bool is_known = sched_getaffinity(0, sizeof set, &set) == 0; /* fails above 1024 processors */
    for (uint32_t i = 0; i < REMO__PROCESSORS_MAX; i++) {
        if (is_known && !CPU_ISSET(i, &set))
            continue;
        processors.word[i / 64] |= UINT64_C(1) << i % 64;
        processors.count++;
    }
    remo__cgroup_visit("cpu", find_quota, &processors);
    return processors;
}

bool remo__processors_within(const struct remo__processors *inner, const struct remo__processors *outer) {
    for (uint32_t i = 0; i < REMO__PROCESSORS_MAX / 64; i++)
        if (inner->word[i] & ~outer->word[i])
            return false;
    return true;
}
