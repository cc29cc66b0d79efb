/* ready.h - which actors can go on now: kept from step to step, and asked again only where something
 * happened.
 *
 * Who pauses waits for its node's version or its hour. Who waits in sim_until is asked: a thread of the
 * library when something changed at its node or a thread of that has run, for it waits for nothing elsewhere;
 * one of the program, which may wait for anything, before every step.
 */
#pragma once

#include <assert.h>

#include "sim/world.h"

static_assert(SIM_ACTORS_MAX <= 32, "each has a bit");

/* Of all actors, a bit each: those that can go on. */
uint32_t sim_ready(void);
/* A new one, which can. */
void sim_ready_add(const struct sim_actor *actor);
/* This one goes on. */
void sim_ready_taken(struct sim_actor *actor);
/* This one has stopped. Its state says until when. */
void sim_ready_stopped(const struct sim_actor *actor);
/* What anybody waits for may have changed. */
static inline void sim_ready_ask_all(void) {
    sim_world->ready.news = UINT32_MAX;
}
