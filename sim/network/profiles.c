/* profiles.c - the simulated networks: the reorderings that each one forbids (net.h).
 * A profile is data; an object claims a profile if all its cases pass under it. */
#include <string.h>

#include "sim/network/net.h"

const struct sim_profile sim_profiles[] = {
    {.name = "ibta_rc",
     .about = "InfiniBand reliable connections, as the specification orders them",
     .put_put = true,
     .put_get = true,
     .put_rmw = true,
     .get_get = true,
     .rmw_get = true,
     .completion_order = true,
     .line_bytes = 64,
     .inline_bytes = 64},
    {.name = "rc_relaxed",
     .about = "the same with relaxed ordering of PCIe",
     .put_get = true,
     .put_rmw = true,
     .rmw_get = true,
     .completion_order = true,
     .line_bytes = 64,
     .inline_bytes = 64},
    {.name = "efa",
     .about = "scalable reliable datagrams: nothing is ordered, completion means placed",
     .placed = true,
     .line_bytes = 64},
    {.name = "tcp",
     .about = "streams: in order, but a later write may overtake an earlier read",
     .put_put = true,
     .put_get = true,
     .put_rmw = true,
     .get_get = true,
     .rmw_get = true,
     .placed = true,
     .completion_order = true,
     .line_bytes = 64,
     .inline_bytes = 64},
    {.name = "ofi",
     .about = "the target's CPU executes operations in the order of their posts",
     .put_put = true,
     .put_get_same = true,
     .put_rmw = true,
     .get_put = true,
     .get_get = true,
     .get_rmw = true,
     .rmw_get = true,
     .placed = true,
     .completion_order = true,
     .rmw_one_step = true,
     .line_bytes = 64,
     .inline_bytes = 64},
    {.name = "shm",
     .about = "one machine's memory: peers' memory is mapped, and operations are CPU accesses",
     .put_put = true,
     .put_get_same = true,
     .put_rmw = true,
     .get_put = true,
     .get_get = true,
     .get_rmw = true,
     .rmw_get = true,
     .placed = true,
     .completion_order = true,
     .rmw_one_step = true,
     .mapped = true,
     .line_bytes = 64,
     .inline_bytes = 64},
    {.name = "cxl_nc",
     .about = "memory shared by machines, without coherent caches and without atomics",
     .placed = true,
     .line_bytes = 64,
     .inline_bytes = 64,
     .cached = true},
};
const uint32_t sim_profiles_count = sizeof sim_profiles / sizeof sim_profiles[0];
const struct sim_profile *sim_profile = &sim_profiles[0];

const struct sim_profile *sim_profile_find(const char *name) {
    for (uint32_t i = 0; i < sim_profiles_count; i++)
        if (strcmp(sim_profiles[i].name, name) == 0)
            return &sim_profiles[i];
    return NULL;
}
