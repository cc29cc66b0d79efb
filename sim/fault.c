/* fault.c - applies the fault of a schedule (fault.h), and judges which errors it excuses.
 * At most one fault strikes per schedule. */
#include "sim/fault.h"

#include <errno.h>

#include "base/error.h"
#include "sim/case.h"
#include "sim/control.h"
#include "sim/net.h"

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

bool sim_excused(uint32_t rank, uint32_t depends_on, int rc) {
    if (rc >= 0)
        return false;
    if (remo_last_error()[0] == '\0')
        sim_fail("error %d has no sentence", rc);
    if (sim_hurt(rank) && !sim_out(rank) && !sim_world->test->continues_after_failure)
        sim_leave();
    if (sim_out(rank) || sim_hurt(rank))
        return true;
    if (sim_any_hurt() && rc == -ETIMEDOUT)
        return true;
    if (rc != -EHOSTDOWN && rc != -ENOTCONN)
        return false;
    return depends_on == SIM_ANY ? sim_any_out() : sim_out(depends_on);
}

void sim_lose(uint32_t node) {
    sim_world->lost[node] = true;
    sim_control_lose(node);
    for (uint32_t i = 0; i < SIM_NODES_MAX; i++)
        sim_changed(i);
}

static void strike(void) {
    uint32_t node = sim_fault.node;
    switch (sim_fault.kind) {
    case SIM_CRASH: sim_crash(node); break;
    case SIM_ZOMBIE:
        sim_trace("* node %u pauses, and is declared failed", node);
        sim_lose(node);
        break;
    case SIM_CUT:
        sim_trace("* node %u is cut off", node);
        sim_lose(node);
        sim_world->severed[node] = true;
        sim_net_sever(node);
        break;
    case SIM_PAUSE: sim_trace("* node %u pauses", node); break;
    default: break;
    }
}

/* If no other step is possible, resume early: the deadlines of peers are not under test. */
static bool still_paused(const struct sim_world *world) {
    return world->idle_jumps == 0 && world->steps + 1 < sim_fault.at + sim_fault.pause_steps;
}

void sim_fault_due(void) {
    struct sim_world *world = sim_world;
    if (!world->running || world->fault_over || sim_fault.at == 0 || sim_fault.kind >= SIM_FAIL_POST)
        return;
    if (world->steps + 1 < sim_fault.at && !sim_faults_over())
        return;
    if (world->steps + 1 == sim_fault.at && !sim_faults_over()) {
        strike();
        world->paused[sim_fault.node] = sim_fault.kind == SIM_PAUSE || sim_fault.kind == SIM_ZOMBIE;
    }
    if (world->paused[sim_fault.node] && still_paused(world))
        return;
    if (world->paused[sim_fault.node])
        sim_trace("* node %u resumes", sim_fault.node);
    world->paused[sim_fault.node] = false;
    world->fault_over = true;
}

bool sim_fault_hits(enum sim_fault_kind kind, uint64_t n, uint32_t node) {
    if (sim_fault.kind != kind || n != sim_fault.at || sim_faults_over() || !sim_world->running)
        return false;
    sim_trace("* %s at node %u", sim_fault_names[kind], node);
    sim_world->hurt[node] = true;
    return true;
}
