/* fault.c - the fault of a schedule (fault.h), and the nodes that it has struck.
 * At most one fault strikes per schedule. */
#include "sim/world/fault.h"

struct sim_fault sim_fault;

const char *const sim_fault_names[SIM_FAULT_KINDS] = {
    "",     "crash",     "pause",           "zombie",          "cut",
    "lose", "fail-post", "fail-completion", "fail-allocation", "refuse"};

bool sim_out(uint32_t node) {
    bool is_parted = false;
    for (uint32_t i = 0; i < sim_world->parted_count; i++)
        is_parted |= node == sim_world->parted[i].ends;
    return is_parted || sim_world->crashed[node] || sim_world->lost[node];
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
    sim_world->hurt[node] = sim_fault_fails();
    return true;
}

/* ---- failures that a case injects ---- */

static struct sim_failing *failing(enum sim_fault_kind kind) {
    return &sim_world->failing[kind - SIM_FAIL_POST];
}

void sim_fail_next(enum sim_fault_kind kind, uint32_t node, uint32_t skip, uint32_t count) {
    *failing(kind) = (struct sim_failing){.node = node, .skip = skip, .count = count};
}

static bool takes(struct sim_failing *is, uint32_t node) {
    if (node != is->node || is->count == 0)
        return false;
    if (is->skip > 0) {
        is->skip--;
        return false;
    }
    is->count--;
    return true;
}

bool sim_fail_takes(enum sim_fault_kind kind, uint32_t node) {
    return takes(failing(kind), node);
}
