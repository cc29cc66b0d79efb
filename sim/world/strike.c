/* strike.c - applies the fault of a schedule to its node: a crash, a pause, a loss of contact.
 * Faults end with the last body; see fault.h. */
#include "sim/network/streams.h"
#include "sim/world/fault.h"
#include "sim/network/net.h"
#include "sim/scheduler.h"

void sim_body_ended(struct sim_actor *actor) {
    struct sim_world *world = sim_world;
    if (actor->role != SIM_PROGRAM || actor->body_ended)
        return;
    actor->body_ended = true;
    world->after_left += actor->thread == 0 && !world->crashed[actor->node];
    if (--world->bodies_left > 0)
        return;
    world->faults_over_step = world->steps;
    sim_scheduler_end_faults();
}

void sim_crash(uint32_t node) {
    struct sim_world *world = sim_world;
    if (world->crashed[node])
        return;
    sim_trace("* node %u crashes", node);
    world->crashed[node] = true;
    world->ready.crashed |= world->ready.of_node[node];
    world->partings++;
    for (uint32_t i = 0; i < world->actors_count; i++) {
        struct sim_actor *actor = &world->actors[i];
        if (actor->node != node)
            continue;
        actor->stores_count = 0;
        world->lingering &= ~(1u << i);
        if (actor->role == SIM_PROGRAM && actor->state != SIM_DONE)
            world->programs_left--;
        sim_body_ended(actor);
        if (actor->state != SIM_DONE)
            actor->state = SIM_CRASHED;
    }
    sim_net_crash(node);
    for (uint32_t i = 0; i < SIM_NODES_MAX; i++)
        sim_changed(i);
}

void sim_lose(uint32_t node) {
    sim_world->lost[node] = true;
    sim_control_lose(node);
    for (uint32_t i = 0; i < SIM_NODES_MAX; i++)
        sim_changed(i);
}

void sim_part(uint32_t stays, uint32_t ends, uint32_t steps) {
    struct sim_world *world = sim_world;
    if (world->parted_count == SIM_PARTED_MAX || (world->parted_count == 0 && sim_any_out()))
        return;
    sim_trace("* nodes %u and %u lose their stream", stays, ends);
    world->parted[world->parted_count++] = (struct sim_parted){stays, ends, world->steps + steps};
    sim_control_part(stays, ends);
    sim_changed(stays);
    sim_changed(ends);
}

static void end_parted(struct sim_world *world) {
    for (uint32_t i = 0; i < world->parted_count; i++) {
        uint32_t node = world->parted[i].ends;
        if (world->steps < world->parted[i].until || world->lost[node])
            continue;
        sim_trace("* node %u ends its streams", node);
        world->ends[node] = true;
        sim_lose(node);
    }
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
    end_parted(world);
    if (!world->running || world->fault_over || sim_fault.at == 0 || sim_fault.kind >= SIM_LOSE)
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
