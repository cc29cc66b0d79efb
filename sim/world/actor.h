/* actor.h - actors of the simulated world (world.h), and the loop that picks steps. */
#pragma once

#include "sim/world/world.h"

/* Take steps until one is an actor's step; switch to that actor. Outside actors, returns when the schedule
 * has ended or failed. */
void sim_schedule(void);

/* Add an actor that runs `run(ctx)`. Returns NULL after sim_fail if there are too many. */
struct sim_actor *sim_spawn(uint32_t node, uint32_t thread, enum sim_role role, void *(*run)(void *ctx),
                            void *ctx);
/* End the current actor. */
void sim_end_actor(struct sim_actor *actor) __attribute__((noreturn));

/* Put a store into the actor's store buffer. */
void sim_linger(struct sim_actor *actor, uint64_t *word, uint64_t value);
