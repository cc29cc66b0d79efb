/* timed.h - the simulated world with a clock: for how long things take, not for what may happen (world.h).
 *
 * Model:   threads are coroutines, each with its own time; the one that is least far goes on, and so do
 *          events of the network (timed_net.c). Whatever touches network memory, posts, waits or reads the
 *          clock moves a thread's time on, by the costs of model.h. Nothing is reordered but what takes
 *          different time; nothing dies.
 * Same:    the control plane (control.c), memory (heap.c), coroutines, and the floors, as in the other
 *          world; one run is like the next.
 */
#pragma once

#include "sim/world.h"

/* Let a program run on each of `nodes` nodes until all have ended. False: they never will, or sim_fail was
 * called: see sim_failure. */
bool sim_timed_run(uint32_t nodes, void (*program)(void *ctx, uint32_t node), void *ctx);

/* The time of whoever runs: a thread or an event. */
uint64_t sim_timed_now(void);
/* The running thread is busy for so long. */
void sim_timed_spend(uint64_t ns);
/* The running thread does something that others may wait for: it no longer only looks. */
void sim_timed_work(void);
void sim_timed_sleep_until(uint64_t at_ns);
/* Later, at `at_ns`. */
void sim_timed_at(uint64_t at_ns, void (*run)(void *ctx), void *ctx);
