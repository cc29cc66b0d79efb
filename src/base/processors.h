/* processors.h - the processors that a thread may use: its affinity, and the quota of its control groups. */
#pragma once

#include "base/cgroup.h"

#define REMO__PROCESSORS_MAX 1024u /* those with a higher number are not counted */

struct remo__processors {
    uint64_t word[REMO__PROCESSORS_MAX / 64]; /* a bit for each processor of the affinity */
    uint32_t count;                           /* of these; at least 1 */
    uint32_t quota;       /* the smallest of a group, in processors, rounded up; UINT32_MAX: none */
    uint64_t quota_group; /* identifies the group with this quota on the machine; 0: none. Outer groups with
                             larger quotas are not compared. */
};

/* Return the processors of the calling thread. Cost: one system call, and the files of the groups. */
struct remo__processors remo__processors_available(void);

/* Return the processors that the quota of one group grants, rounded up; UINT32_MAX if it has none. */
uint32_t remo__processors_of_quota(const struct remo__cgroup *group);

/* Return whether each processor of `inner` is one of `outer`. */
bool remo__processors_within(const struct remo__processors *inner, const struct remo__processors *outer);
