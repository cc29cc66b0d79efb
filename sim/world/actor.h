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

#define SIM_STORE_BYTES_MAX 32u
/* Put a store of at most SIM_STORE_BYTES_MAX bytes into the actor's store buffer. A full buffer is drained:
 * where memory is mapped, its first store, else all. */
void sim_linger(struct sim_actor *actor, void *at, const void *data, size_t bytes);
/* Overwrite a copy of the memory at `at` with the stores in the actor's buffer, which the actor itself
 * sees. */
void sim_forward(const struct sim_actor *actor, void *copy, const void *at, size_t bytes);
/* Return whether a store to [at, at + bytes) is in the buffer. */
bool sim_stores_overlap(const struct sim_actor *actor, const void *at, size_t bytes);
/* Note a change of memory: where memory is mapped, the CPU of each node may wait for it. */
void sim_memory_changed(uint32_t node);
