/* ready.h - the set of actors that can run now, updated incrementally where something changed.
 *
 * A paused actor waits for a time, and for its node's version or, if it sleeps, for a notification or a
 * completion. An actor in sim_until waits for a condition. The condition of a library thread is checked after
 * a change at its node, or after a thread of its node has run: it depends on nothing else. The condition of a
 * program thread may depend on anything and is checked before every step. */
#pragma once

#include <assert.h>

#include "sim/world/world.h"

static_assert(SIM_ACTORS_MAX <= 32, "each has a bit");

/* Return the mask of all actors that can run. */
uint32_t sim_ready(void);
/* Add an actor, ready to run. */
void sim_ready_add(const struct sim_actor *actor);
/* Note that this actor runs now. */
void sim_ready_taken(struct sim_actor *actor);
/* Note that this actor has stopped; its state holds the condition to resume. */
void sim_ready_stopped(const struct sim_actor *actor);
/* Check all conditions again before the next step. */
static inline void sim_ready_recheck_all(void) {
    sim_world->ready.recheck = UINT32_MAX;
}
