/* timed.h - the simulated world with a clock: it measures durations; world.h explores orders.
 *
 * Model:   threads are contexts, each with its own time. The thread or network event (net.c) with the
 *          earliest time runs next. Accesses to network memory, posts, waits and clock reads advance a
 *          thread's time by the costs of model.h. Order follows from time alone; no node fails.
 * Shared:  the control plane (control.c), memory (heap.c), contexts and the library are those of the other
 *          world. Runs are deterministic. */
#pragma once

#include "sim/world/world.h"

/* Run a program on each of `nodes` nodes until all have ended. Returns false if no event is left,
 * or after sim_fail; see sim_failure. */
bool sim_timed_run(uint32_t nodes, void (*program)(void *ctx, uint32_t node), void *ctx);

/* The two parts of it: set up the world, and run the nodes on a network that is open. */
bool sim_timed_open(uint32_t nodes, void (*program)(void *ctx, uint32_t node), void *ctx);
bool sim_timed_start(void);

/* Return the time of the running thread or event. */
uint64_t sim_timed_now(void);
/* Advance the time of the running thread. */
void sim_timed_spend(uint64_t ns);
/* Note that the running thread changes state that others may wait for; it no longer only polls. */
void sim_timed_work(void);
void sim_timed_sleep_until(uint64_t at_ns);
/* Call `run` at `at_ns`. */
void sim_timed_at(uint64_t at_ns, void (*run)(void *ctx), void *ctx);
