/* actor.c - actors, their scheduling points, and the loop that picks the next step.
 * Only one actor runs at a time; every access to network memory is a scheduling point. The model is described
 * in world.h. */
#include "sim/world/actor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "remote/slots.h"
#include "remote/wait.h"
#include "sim/case.h"
#include "sim/memory/cache.h"
#include "sim/world/fault.h"
#include "sim/network/net.h"
#include "sim/world/ready.h"
#include "sim/scheduler.h"
#include "sim/world/threads.h"

#define STEPS_CAP 256u
#define POLL_NS (20 * REMO__NS_PER_MS) /* a wait that spins or polls checks again after this time */
#define IDLE_JUMPS_MAX 4u              /* of POLL_NS each; then to the next deadline */
#define HANG_JUMPS_MAX 64u
#define SWEEP_JUMPS_MAX 128u
#define SHORT_PAUSE_NS UINT64_C(2000000)
#define SETUP_STEPS_MAX 2000000u

static char *stacks[SIM_ACTORS_MAX]; /* kept for the next world */

struct store {
    char *at;
    size_t bytes;
    char data[SIM_STORE_BYTES_MAX];
};

/* Store buffers. They need no restore: the world contains their numbers of stores. */
static struct store stores[SIM_ACTORS_MAX][SIM_STORES_MAX];

/* ---- possible steps ---- */

/* List the possible steps: the actor that ran last, operations, buffered stores, then the other
 * actors. */
static uint32_t possible(struct sim_step *steps) {
    uint32_t count = 0, able = sim_ready(), lingering = sim_world->lingering;
    const struct sim_actor *last = sim_current();
    if (last && (able & 1u << last->index)) {
        sim_step_set(&steps[count++], SIM_STEP_ACTOR, 0, last->index, last->index);
        able &= ~(1u << last->index);
    }
    count += sim_net_steps(steps + count, STEPS_CAP - 2 * SIM_ACTORS_MAX - 1);
    for (uint32_t left = able | lingering; left != 0; left &= left - 1) {
        uint32_t index = (uint32_t)__builtin_ctz(left);
        if (lingering & 1u << index)
            sim_step_set(&steps[count++], SIM_STEP_STORE, 0, index, SIM_ACTORS_MAX + index);
        if (able & 1u << index)
            sim_step_set(&steps[count++], SIM_STEP_ACTOR, 0, index, index);
    }
    return count;
}

/* Return whether half of the slots of a thread of the node are in use although no step is possible: their
 * operations have ended. Completions notify no thread: only a poll of their own thread, or a sweep, frees the
 * slots. Messages may wait for a slot, or for the earlier writes of the thread. */
static bool is_busy(uint32_t node) {
    const struct remo__threads *threads = sim_world->nodes[node]->threads;
    uint32_t count = atomic_load(&threads->count), index = 0;
    while (index < count && threads->of[index]->slots->free_count > threads->of[index]->slots->depth / 2)
        index++;
    return index < count;
}

/* Return whether the node sweeps before time passes: a thread is busy, or was at the last sweep. Messages
 * may be queued after that sweep, if it came too early to send them (POLL_NS of objects/rpc). */
static bool needs_sweep(uint32_t node) {
    bool was_busy = sim_world->was_busy[node];
    sim_world->was_busy[node] = is_busy(node);
    return was_busy || sim_world->was_busy[node];
}

/* Advance time when no step is possible. Returns false if no step will ever be possible. The sweeps of a
 * service thread come last: nothing that is notified may need them. There are two exceptions. In cases with
 * `needs_sweeps`, the first sweeps of a node happen at once if a thread is busy, and one after them. And if a
 * thread pauses again and again for a short time, the sweeps that are due meanwhile happen. */
static bool jump(void) {
    uint64_t next = UINT64_MAX;
    struct sim_world *world = sim_world;
    world->idle_jumps++;
    for (uint32_t node = 0; node < SIM_NODES_MAX; node++) {
        if (world->paused[node])
            return true; /* it resumes before the deadlines of its peers */
    }
    if (world->test->needs_sweeps && !sim_profile->mapped && world->idle_jumps <= IDLE_JUMPS_MAX
        && sim_net_sweep(UINT64_MAX, needs_sweep))
        return true;
    for (uint32_t i = 0; i < world->actors_count; i++) {
        const struct sim_actor *actor = &world->actors[i];
        if (actor->state == SIM_PAUSED && !world->crashed[actor->node] && !world->paused[actor->node])
            next = remo__min(next, actor->wake_at);
    }
    if (next == UINT64_MAX || world->idle_jumps > HANG_JUMPS_MAX)
        return world->idle_jumps <= SWEEP_JUMPS_MAX && sim_net_sweep(UINT64_MAX, NULL);
    bool is_short = next <= world->now_ns + SHORT_PAUSE_NS;
    world->now_ns = remo__max(world->now_ns, next);
    if (is_short)
        (void)sim_net_sweep(world->now_ns, NULL);
    sim_trace("* time advances to %llu ns", (unsigned long long)world->now_ns);
    world->stirred = sim_net_count() > 0 ? UINT32_MAX : 0;
    return true;
}

static void describe_hang(void) {
    char text[SIM_FAILURE_BYTES];
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < sim_world->actors_count; i++) {
        const struct sim_actor *actor = &sim_world->actors[i];
        if (actor->role == SIM_PROGRAM && actor->state != SIM_DONE && actor->state != SIM_CRASHED
            && used < sizeof text)
            used += (size_t)snprintf(text + used, sizeof text - used, " node %u thread %u waits in \"%s\";",
                                     actor->node, actor->thread, actor->doing ? actor->doing : "?");
    }
    sim_fail("no step is possible, and no actor has a deadline:%s", text);
}

void sim_memory_changed(uint32_t node) {
    for (uint32_t i = 0; sim_profile->mapped && i < sim_world->nodes_count; i++)
        sim_changed(i);
    if (!sim_profile->mapped)
        sim_changed(node);
}

static void drain_one(struct sim_actor *actor) {
    struct store *buffer = stores[actor->index], store = buffer[0];
    if (--actor->stores_count == 0)
        sim_world->lingering &= ~(1u << actor->index);
    memmove(buffer, buffer + 1, actor->stores_count * sizeof store);
    sim_cache_write(actor->node, store.at, store.data, store.bytes);
    sim_memory_changed(actor->node);
    sim_trace("  store of node %u arrives at %s", actor->node, sim_place(store.at));
}

void sim_linger(struct sim_actor *actor, void *at, const void *data, size_t bytes) {
    if (actor->stores_count == SIM_STORES_MAX && sim_profile->mapped)
        drain_one(actor);
    else if (actor->stores_count == SIM_STORES_MAX)
        sim_drain(actor);
    struct store *store = &stores[actor->index][actor->stores_count++];
    store->at = at;
    store->bytes = bytes;
    memcpy(store->data, data, bytes);
    sim_world->lingering |= 1u << actor->index;
}

bool sim_stores_overlap(const struct sim_actor *actor, const void *at, size_t bytes) {
    const char *from = at;
    for (uint32_t i = 0; i < actor->stores_count; i++) {
        const struct store *store = &stores[actor->index][i];
        if (store->at < from + bytes && from < store->at + store->bytes)
            return true;
    }
    return false;
}

void sim_forward(const struct sim_actor *actor, void *copy, const void *at, size_t bytes) {
    const char *from = at;
    for (uint32_t i = 0; i < actor->stores_count; i++) {
        const struct store *store = &stores[actor->index][i];
        const char *first = store->at > from ? store->at : from;
        const char *end = store->at + store->bytes < from + bytes ? store->at + store->bytes : from + bytes;
        if (first < end)
            memcpy((char *)copy + (first - from), store->data + (first - store->at), (size_t)(end - first));
    }
}

static bool too_long(const struct sim_world *world) {
    unsigned long long steps = world->steps;
    if (sim_faults_over() && world->steps > world->faults_over_step + SIM_RECOVERY_STEPS_MAX)
        sim_fail("the surviving nodes have not ended %u steps after all faults: they make no progress",
                 SIM_RECOVERY_STEPS_MAX);
    else if (world->steps > (world->running ? SIM_STEPS_MAX : SETUP_STEPS_MAX))
        sim_fail("the program has not ended after %llu steps: it makes no progress", steps);
    else
        return false;
    return true;
}

/* Return whether all programs have ended and, where all nodes close at the end, the library's
 * threads too. */
static bool is_over(const struct sim_world *world) {
    bool over = world->running && world->programs_left == 0;
    for (uint32_t i = 0; over && sim_fault_fails() && i < world->actors_count; i++)
        over = world->actors[i].state == SIM_DONE;
    return over;
}

/* Take steps until one is an actor's step; switch to that actor. */
void sim_schedule(void) {
    struct sim_step steps[STEPS_CAP];
    if (sim_current())
        sim_ready_stopped(sim_current());
    for (;;) {
        struct sim_world *world = sim_world;
        if (sim_turn.failed || is_over(world)) {
            sim_switch(NULL);
            return;
        }
        sim_fault_due();
        uint32_t count = possible(steps);
        if (count == 0 && (!world->running || !jump())) {
            if (world->running)
                describe_hang();
            sim_switch(NULL);
            return;
        }
        if (count == 0)
            continue;
        world->steps++;
        if (too_long(world))
            continue;
        const struct sim_step *step = &steps[sim_scheduler_pick(steps, count)];
        if (step->kind == SIM_STEP_NET) {
            world->idle_jumps = 0;
            sim_net_do(step);
        } else if (step->kind == SIM_STEP_STORE) {
            drain_one(&world->actors[step->index]);
        } else {
            struct sim_actor *next = &world->actors[step->index];
            world->stirred |= 1u << step->index;
            sim_ready_taken(next);
            if (next != sim_current())
                sim_switch(next);
            return;
        }
    }
}

/* ---- scheduling points ---- */

void sim_point(const char *what) {
    struct sim_actor *actor = sim_current();
    if (!actor)
        return;
    if (!actor->is_checking)
        sim_changed(actor->node);
    actor->doing = what;
    actor->state = SIM_READY;
    actor->turns++;
    sim_schedule();
}

void sim_until(bool (*until)(void *ctx), void *ctx, const char *what) {
    struct sim_actor *actor = sim_current();
    if (!actor) {
        if (!until(ctx))
            sim_fail("the scheduler itself cannot wait in \"%s\"", what);
        return;
    }
    sim_drain(actor);
    sim_changed(actor->node);
    while (!until(ctx)) {
        actor->doing = what;
        actor->until = until;
        actor->until_ctx = ctx;
        actor->state = SIM_UNTIL;
        sim_schedule();
    }
}

void sim_drain(struct sim_actor *actor) {
    /* Earlier loads of the actor have passed these stores: other actors may run between. */
    if (sim_profile->mapped && actor && actor == sim_current() && actor->stores_count > 0)
        sim_point("drain the store buffer");
    while (actor && actor->stores_count > 0)
        drain_one(actor);
}

void sim_notify(uint32_t node) {
    struct sim_world *world = sim_world;
    for (uint32_t left = world->ready.of_node[node]; left != 0; left &= left - 1)
        world->actors[__builtin_ctz(left)].wakes++;
    sim_changed(node);
}

/* Where memory is mapped, a notifier skips a node without sleepers. So the last check before a sleep begins
 * by counting the actor, as in wait.c; the count is an atomic. The sleeper executes the fence of notifiers
 * that execute none. Other actors notify without reading the count. */
static void count_sleeper(struct sim_actor *actor) {
    sim_drain(actor);
    sim_world->bells[actor->node].bell.sleepers++;
    sim_point("execute the fence of the notifiers");
    for (uint32_t i = 0; i < sim_world->actors_count; i++)
        if (sim_sleepers_fence(sim_world->actors[i].node, actor->node))
            sim_drain(&sim_world->actors[i]);
    actor->is_counted = true;
}

static void uncount_sleeper(struct sim_actor *actor) {
    if (actor->is_counted)
        sim_world->bells[actor->node].bell.sleepers--;
    actor->is_counted = false;
}

/* Return the endpoint of the calling thread, or NULL. */
static const struct remo__endpoint *own_endpoint(const struct remo_node *node, bool only_in_flight) {
    const struct remo__thread *thread = node->mapped ? NULL : remo__thread_attached(node);
    if (!thread || (only_in_flight && remo__slots_get(&thread->slots->in_flight) == 0))
        return NULL;
    return thread->slots->endpoint;
}

void remo__sim_check_begin(const struct remo_node *node) {
    struct sim_actor *actor = sim_current();
    if (!actor)
        return;
    uncount_sleeper(actor); /* an earlier wait timed out, or its condition contains this wait */
    if (actor->counts_next)
        count_sleeper(actor);
    actor->counts_next = false;
    actor->is_checking = true;
    actor->seen_version = sim_world->version[node->rank];
    actor->seen_wakes = actor->wakes;
    actor->awaits = own_endpoint(node, false);
}

/* A change after the end of the sleep may still be about to notify. */
void remo__sim_check_end(bool ends_wait) {
    struct sim_actor *actor = sim_current();
    if (!actor)
        return;
    if (ends_wait && actor->has_slept && actor->wakes == actor->slept_wakes
        && actor->woken_version == sim_world->version[actor->node])
        sim_fail("node %u thread %u slept until its deadline, and then its condition ended the wait: a "
                 "notification is missing",
                 actor->node, actor->thread);
    actor->has_slept = false;
    if (ends_wait)
        uncount_sleeper(actor);
}

/* A wait spins for up to three checks before it sleeps; the step number decides. */
void remo__sim_pause(const struct remo_node *node, uint32_t checks, bool is_polling, uint64_t deadline_ns) {
    struct sim_actor *actor = sim_current();
    if (!actor) {
        sim_fail("a check waits for the network");
        return;
    }
    sim_drain(actor);
    actor->is_checking = false;
    actor->awaits = own_endpoint(node, true);
    actor->is_sleeping =
        actor->is_counted || (!is_polling && checks >= (sim_world->steps * 2654435761u >> 13 & 3));
    if (sim_profile->mapped && actor->is_sleeping && !actor->is_counted) {
        actor->counts_next = true;
        return;
    }
    if (!actor->is_sleeping && sim_world->version[node->rank] != actor->seen_version)
        sim_scheduler_yield(actor->index);
    actor->doing = "wait";
    uint64_t check_at = sim_world->now_ns + POLL_NS;
    if (sim_world->idle_jumps > IDLE_JUMPS_MAX) /* if the wait has no deadline, its condition may have one */
        check_at = deadline_ns != REMO_FOREVER ? deadline_ns : sim_world->now_ns + SIM_OP_TIMEOUT_NS;
    actor->wake_at = actor->is_sleeping ? deadline_ns : remo__min(check_at, deadline_ns);
    actor->state = SIM_PAUSED;
    sim_trace(actor->is_sleeping ? "sleeps until %llu ns" : "pauses until %llu ns",
              (unsigned long long)actor->wake_at);
    sim_schedule();
    actor->has_slept = actor->is_sleeping;
    actor->slept_wakes = actor->seen_wakes;
    actor->is_sleeping = false;
    uncount_sleeper(actor);
}

void remo__sim_retry_begin(void) {
    if (sim_current())
        sim_world->retrying |= 1u << sim_current()->index;
}

/* Return the actors that change nothing by themselves: those in a retry, and the service thread of the node,
 * which the operations of the retry wake. */
static uint32_t idle_actors(uint32_t node) {
    const struct sim_world *world = sim_world;
    uint32_t idle = world->retrying;
    for (uint32_t left = world->ready.of_node[node]; left != 0; left &= left - 1)
        if (world->actors[__builtin_ctz(left)].role == SIM_SERVICE)
            idle |= left & -left;
    return idle;
}

/* At a jump of time every actor was waiting, and no operation was in flight. So the first retry that succeeds
 * after it needs a notification that was never sent, unless an actor that is not idle has run since. */
void remo__sim_retry_end(bool has_succeeded) {
    const struct sim_actor *actor = sim_current();
    struct sim_world *world = sim_world;
    uint32_t own = actor ? 1u << actor->index : 0;
    if (has_succeeded && (world->retrying & own) && !(world->stirred & ~idle_actors(actor->node)))
        sim_fail("node %u thread %u slept until its retry, which succeeded: a notification is missing",
                 actor->node, actor->thread);
    world->retrying &= ~own;
}

/* ---- actors ---- */

static bool never(void *ctx) {
    (void)ctx;
    return false;
}

void sim_end_actor(struct sim_actor *actor) {
    if (sim_thread_exit)
        sim_thread_exit(NULL);
    sim_drain(actor);
    actor->state = SIM_DONE;
    if (actor->role == SIM_PROGRAM)
        sim_world->programs_left--;
    sim_changed(actor->node);
    for (;;) {
        sim_schedule();
        sim_until(never, NULL, "nothing");
    }
}

static void actor_main(void) {
    remo__context_started();
    struct sim_actor *actor = sim_current();
    (void)actor->run(actor->run_ctx);
    sim_end_actor(actor);
}

struct sim_actor *sim_spawn(uint32_t node, uint32_t thread, enum sim_role role, void *(*run)(void *ctx),
                            void *ctx) {
    struct sim_world *world = sim_world;
    if (world->actors_count == SIM_ACTORS_MAX) {
        sim_fail("too many actors");
        return NULL;
    }
    struct sim_actor *actor = &world->actors[world->actors_count];
    char **stack = &stacks[world->actors_count];
    if (!*stack)
        *stack = aligned_alloc(64, SIM_STACK_BYTES);
    *actor = (struct sim_actor){.index = world->actors_count,
                                .node = node,
                                .thread = thread,
                                .role = role,
                                .state = SIM_READY,
                                .run = run,
                                .run_ctx = ctx};
    remo__context_make(&actor->context, *stack, SIM_STACK_BYTES, actor_main);
    world->actors_count++;
    sim_ready_add(actor);
    return actor;
}

int sim_thread_create(pthread_t *ret_thread, void *(*run)(void *ctx), void *ctx) {
    const struct sim_actor *made = sim_spawn(sim_current()->node, 0, SIM_SERVICE, run, ctx);
    if (!made)
        return 11; /* EAGAIN */
    *ret_thread = (pthread_t)made->index;
    return 0;
}

void sim_spawn_control(uint32_t node, void *(*run)(void *ctx), void *ctx) {
    (void)sim_spawn(node, 0, SIM_CONTROL, run, ctx);
}

static bool is_done(void *ctx) {
    const struct sim_actor *actor = ctx;
    return actor->state == SIM_DONE;
}

int sim_thread_join(pthread_t thread) {
    sim_until(is_done, &sim_world->actors[(uint32_t)thread], "join a thread");
    return 0;
}

int sim_yield(void) {
    if (sim_current())
        sim_scheduler_yield(sim_current()->index);
    sim_point("yield");
    return 0;
}

/* ---- time ---- */

uint64_t remo__now_ns(void) {
    return sim_world->now_ns += 10;
}

uint64_t remo__deadline(uint64_t timeout_ns) {
    uint64_t deadline;
    if (timeout_ns == REMO_FOREVER || __builtin_add_overflow(remo__now_ns(), timeout_ns, &deadline))
        return REMO_FOREVER;
    return deadline;
}
