/* ready.c - the masks of ready.h.
 * An actor is in `able`, or in `paused`, or in `in_until`; its bit moves when its condition becomes true. */
#include "sim/world/ready.h"

#include "sim/world/fault.h"

static uint32_t bit_of(const struct sim_actor *actor) {
    return 1u << actor->index;
}

static void set_able(struct sim_ready *ready, const struct sim_actor *actor, bool able) {
    ready->able = able ? ready->able | bit_of(actor) : ready->able & ~bit_of(actor);
}

/* Wake all actors whose sleep is over, and find the end of the next sleep. */
static void wake(struct sim_world *world) {
    struct sim_ready *ready = &world->ready;
    ready->wake_at = UINT64_MAX;
    for (uint32_t left = ready->paused; left != 0; left &= left - 1) {
        struct sim_actor *actor = &world->actors[__builtin_ctz(left)];
        if (world->now_ns >= actor->wake_at) {
            actor->woken_version = world->version[actor->node];
            set_able(ready, actor, true);
            ready->paused &= ~bit_of(actor);
        } else {
            ready->wake_at = remo__min(ready->wake_at, actor->wake_at);
        }
    }
}

/* Check the condition of one actor. */
static void recheck(struct sim_world *world, const struct sim_actor *actor) {
    struct sim_ready *ready = &world->ready;
    if (actor->state == SIM_UNTIL) {
        set_able(ready, actor, actor->until(actor->until_ctx));
    } else if (actor->is_sleeping ? actor->wakes != actor->seen_wakes
                                  : world->version[actor->node] != actor->seen_version) {
        set_able(ready, actor, true);
        ready->paused &= ~bit_of(actor);
    }
}

uint32_t sim_ready(void) {
    struct sim_world *world = sim_world;
    struct sim_ready *ready = &world->ready;
    uint32_t again =
        (ready->recheck & (ready->paused | ready->in_until)) | (ready->in_until & ready->programs);
    uint32_t paused = world->paused[sim_fault.node] ? ready->of_node[sim_fault.node] : 0;
    ready->recheck = 0;
    for (; again != 0; again &= again - 1)
        recheck(world, &world->actors[__builtin_ctz(again)]);
    if (world->now_ns >= ready->wake_at)
        wake(world);
    return ready->able & ~(paused | ready->crashed);
}

void sim_ready_add(const struct sim_actor *actor) {
    struct sim_ready *ready = &sim_world->ready;
    ready->of_node[actor->node] |= bit_of(actor);
    ready->programs |= actor->role == SIM_PROGRAM ? bit_of(actor) : 0;
    set_able(ready, actor, true);
}

void sim_ready_taken(struct sim_actor *actor) {
    struct sim_ready *ready = &sim_world->ready;
    actor->state = SIM_READY;
    set_able(ready, actor, true);
    ready->paused &= ~bit_of(actor);
    ready->in_until &= ~bit_of(actor);
}

void sim_ready_stopped(const struct sim_actor *actor) {
    struct sim_ready *ready = &sim_world->ready;
    ready->recheck |= ready->of_node[actor->node];
    if (actor->state == SIM_READY)
        return;
    set_able(ready, actor, false);
    if (actor->state == SIM_UNTIL)
        ready->in_until |= bit_of(actor);
    if (actor->state != SIM_PAUSED)
        return;
    ready->paused |= bit_of(actor);
    ready->wake_at = remo__min(ready->wake_at, actor->wake_at);
}
