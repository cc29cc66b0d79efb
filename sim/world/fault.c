/* fault.c - the fault of a schedule (fault.h), and the nodes that it has struck.
 * At most one fault strikes per schedule. */
#include "sim/world/fault.h"

struct sim_fault sim_fault;

const char *const sim_fault_names[SIM_FAULT_KINDS] = {
    "", "crash", "pause", "zombie", "cut", "fail-post", "fail-completion", "fail-allocation"};

bool sim_out(uint32_t node) {
    return sim_world->crashed[node] || sim_world->lost[node];
}

bool sim_any_out(void) {
    for (uint32_t node = 0; node < SIM_NODES_MAX; node++)
        if (sim_out(node))
            return true;
    return false;
}

bool sim_hurt(uint32_t node) {
    return sim_world->hurt[node];
}

bool sim_any_hurt(void) {
    for (uint32_t node = 0; node < SIM_NODES_MAX; node++)
        if (sim_hurt(node))
            return true;
    return false;
}

bool sim_fault_hits(enum sim_fault_kind kind, uint64_t n, uint32_t node) {
    if (sim_fault.kind != kind || n != sim_fault.at || sim_faults_over() || !sim_world->running)
        return false;
    sim_trace("* %s at node %u", sim_fault_names[kind], node);
    sim_world->hurt[node] = true;
    return true;
}
