/* turn.h - whose turn it is, and how a run ends as a failure: the same in both worlds (world.h, timed.h). */
#pragma once

#include <stdbool.h>

#include "sim/coroutine.h"

#define SIM_FAILURE_BYTES 512u

struct sim_actor;

struct sim_turn {
    struct sim_actor *current; /* NULL: who takes the steps of the world itself */
    struct coroutine itself;
    bool failed;
    char failure[SIM_FAILURE_BYTES];
};
extern struct sim_turn sim_turn;

/* The actor that runs, or NULL. */
static inline struct sim_actor *sim_current(void) {
    return sim_turn.current;
}

/* Stop here, and go on where `to` stopped; NULL: the world itself. */
void sim_switch(struct sim_actor *to);
/* End the run as a failure. From an actor it does not return. */
void sim_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Why it failed, or NULL. */
const char *sim_failure(void);
