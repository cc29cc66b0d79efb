/* world.c - the simulated world: set-up, save and restore, and the phases of each node's program.
 * A node's program opens the node and its objects before the save, and runs its body after it. */
#include "sim/world/world.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "node/arena.h"
#include "sim/world/actor.h"
#include "sim/case.h"
#include "sim/memory/heap.h"
#include "sim/network/net.h"
#include "sim/world/ready.h"
#include "sim/scheduler.h"

/* ---- the program of a node ---- */

static bool go(void *ctx) {
    (void)ctx;
    return sim_world->running;
}

static bool are_faults_over(void *ctx) {
    (void)ctx;
    return sim_faults_over();
}

static bool node_is_open(void *ctx) {
    return *(struct remo_node *const *)ctx != NULL;
}

static void open_node(struct sim_actor *actor) {
    static const char *const addresses[] = {"unix:0", "unix:1", "unix:2", "unix:3"};
    const struct sim_case *test = sim_world->test;
    struct remo_config config = {.fabric = "sim",
                                 .rank = actor->node,
                                 .size = test->nodes,
                                 .addresses = addresses,
                                 .job = "sim",
                                 .arena_bytes = SIM_ARENA_BYTES,
                                 .segment_bytes = SIM_ARENA_BYTES,
                                 .threads_max = SIM_THREADS_MAX + 3,
                                 .op_timeout_ns = SIM_OP_TIMEOUT_NS};
    struct remo_node *node = NULL;
    if (remo_node_open(&config, &node) != 0)
        sim_fail("node %u does not open: %s", actor->node, remo_last_error());
    test->open(sim_world->state, node, actor->node);
    sim_world->nodes[actor->node] = node;
}

static void close_node(struct sim_actor *actor) {
    struct sim_world *world = sim_world;
    struct remo_node *node = world->nodes[actor->node];
    world->test->close(world->state, actor->node);
    remo_node_close(node);
    world->nodes[actor->node] = NULL;
}

static bool all_done_after(void *ctx) {
    (void)ctx;
    return sim_world->after_left == 0;
}

/* Run the phases after the body: the liveness phase and, for an injected failure, closing. */
static void end_node(struct sim_actor *actor) {
    struct sim_world *world = sim_world;
    sim_until(are_faults_over, NULL, "wait for all bodies to end");
    if (world->test->after && !sim_out(actor->node))
        world->test->after(world->state, actor->node);
    world->after_left--;
    if (!sim_fault_fails() || !world->test->close)
        return;
    sim_until(all_done_after, NULL, "wait for all nodes before closing");
    close_node(actor);
}

/* Close all objects of the current actor's node, leave the job, and end the actor's body. */
static void __attribute__((noreturn)) leave(void) {
    struct sim_actor *actor = sim_current();
    sim_trace("closes all objects and leaves");
    sim_world->lost[actor->node] = true;
    sim_world->partings++;
    sim_ready_recheck_all();
    close_node(actor);
    sim_body_ended(actor);
    sim_world->after_left--;
    sim_end_actor(actor);
}

bool sim_excused(uint32_t rank, uint32_t depends_on, int rc) {
    if (rc >= 0)
        return false;
    if (remo_last_error()[0] == '\0')
        sim_fail("error %d has no sentence", rc);
    if (sim_hurt(rank) && !sim_out(rank) && !sim_world->test->continues_after_failure)
        leave();
    if (sim_out(rank) || sim_hurt(rank))
        return true;
    if (sim_any_hurt() && rc == -ETIMEDOUT)
        return true;
    if (rc != -EHOSTDOWN && rc != -ENOTCONN)
        return false;
    return depends_on == SIM_ANY ? sim_any_out() : sim_out(depends_on);
}

static void *program(void *ctx) {
    struct sim_actor *actor = ctx;
    struct sim_world *world = sim_world;
    struct remo_stats stats;
    if (actor->thread == 0)
        open_node(actor);
    else
        sim_until(node_is_open, &world->nodes[actor->node], "wait for the node to open");
    remo_thread_stats(world->nodes[actor->node], &stats); /* attaches the thread */
    sim_until(go, NULL, "begin");
    world->test->body(world->state, actor->node, actor->thread);
    sim_body_ended(actor);
    if (actor->thread == 0)
        end_node(actor);
    return NULL;
}

/* ---- set-up and restore ---- */

static void set_up(const struct sim_case *test) {
    sim_world = sim_calloc(1, sizeof *sim_world);
    sim_world->test = test;
    sim_world->nodes_count = test->nodes;
    sim_world->state = sim_calloc(1, test->state_bytes ? test->state_bytes : 8);
    sim_world->programs_left = sim_world->bodies_left = test->nodes * test->threads;
    sim_net_open();
    for (uint32_t thread = 0; thread < test->threads; thread++)
        for (uint32_t node = 0; node < test->nodes; node++) {
            struct sim_actor *actor = sim_spawn(node, thread, SIM_PROGRAM, program, NULL);
            actor->run_ctx = actor;
        }
}

static void save(void) {
    struct sim_extent extents[SIM_ACTORS_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < sim_world->actors_count; i++) {
        const struct sim_actor *actor = &sim_world->actors[i];
        char *sp = actor->context.sp, *top = actor->context.stack + SIM_STACK_BYTES;
        extents[count++] = (struct sim_extent){.from = sp, .bytes = (size_t)(top - sp)};
    }
    if (sim_net_count() > 0)
        sim_fail("operations are in flight after the set-up");
    sim_net_forget();
    for (uint32_t node = 0; node < sim_world->test->nodes && sim_world->nodes[node]; node++)
        sim_heap_arena_used(remo__arena_base(sim_world->nodes[node]->arena),
                            remo__arena_used(sim_world->nodes[node]->arena));
    sim_world->running = true;
    sim_world->steps = 0;
    sim_world->allocations_before = sim_heap_allocations();
    sim_heap_save(extents, count);
}

bool sim_world_open(const struct sim_case *test) {
    const struct sim_schedule in_turn = {.policy = SIM_IN_TURN};
    sim_turn.failed = false;
    sim_heap_open();
    set_up(test);
    sim_scheduler_begin(&in_turn);
    sim_schedule();
    for (uint32_t node = 0; node < test->nodes && !sim_turn.failed; node++)
        if (!sim_world->nodes[node])
            sim_fail("the set-up of node %u does not end", node);
    if (!sim_turn.failed)
        save();
    return !sim_turn.failed;
}

void sim_world_close(void) {
    sim_heap_close();
    sim_world = NULL;
}

bool sim_world_run(void) {
    sim_turn.failed = false;
    sim_heap_restore();
    sim_history.count = 0;
    sim_history.full = false;
    sim_schedule();
    if (!sim_turn.failed && sim_world->test->check)
        sim_world->test->check(sim_world->state);
    return !sim_turn.failed;
}
