/* turn.h - the running actor, and the failure of a run: the same in both worlds (world.h,
 * timed.h). */
#pragma once

#include <stdbool.h>

#include "base/context.h"

#define SIM_FAILURE_BYTES 512u
#define SIM_STACK_BYTES (256u << 10)

struct sim_actor;

struct sim_turn {
    struct sim_actor *current; /* NULL: the world itself, which takes the steps */
    struct remo__context itself;
    bool failed;
    char failure[SIM_FAILURE_BYTES];
};
extern struct sim_turn sim_turn;

/* Runs when an actor ends: the destructor of its thread-local data. NULL: none yet. */
extern void (*sim_thread_exit)(void *value);

/* Return the running actor, or NULL. */
static inline struct sim_actor *sim_current(void) {
    return sim_turn.current;
}

/* Suspend the current actor and resume `to`; NULL: the world itself. */
void sim_switch(struct sim_actor *to);
/* End the run as a failure. Does not return to an actor. */
void sim_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Return the cause of the failure, or NULL. */
const char *sim_failure(void);
