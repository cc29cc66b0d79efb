/* region.h - the state of the region's cases.
 *
 *   atomic.c   publication of data, and the cases of atomic_var
 *   fence.c    fences whose flush or whose write fails or is delayed */
#pragma once

#include <remo/region.h>

#include "sim/case.h"

struct region_state {
    struct remo_region *regions[SIM_NODES_MAX];
    struct remo_node *nodes[SIM_NODES_MAX];
};

/* Open and close the region of one node. */
void sim_region_open(void *state, struct remo_node *node, uint32_t rank);
void sim_region_close(void *state, uint32_t rank);
