/* case.h - a small program on a few nodes that uses one object through its public interface, and what must be
 * true of what it saw. */
#pragma once

#include "sim/fault.h"
#include "sim/history.h"

struct sim_case {
    const char *object, *name, *about;
    uint32_t nodes, threads; /* threads of the program per node */
    size_t state_bytes;
    /* Open the objects of one node; by its first thread. An error is sim_fail. */
    void (*open)(void *state, struct remo_node *node, uint32_t rank);
    /* Close what `open` opened; what it did not is NULL. */
    void (*close)(void *state, uint32_t rank);
    /* What each thread of each node does. */
    void (*body)(void *state, uint32_t rank, uint32_t thread);
    /* When all bodies have ended and no fault can come any more: what each node that is not out must still be
     * able to do, within SIM_CALM_STEPS_MAX for all; by its first thread. Or NULL. */
    void (*after)(void *state, uint32_t rank);
    /* When all have ended, or NULL. */
    void (*check)(void *state);
    const struct oracle *oracle; /* for the history, or NULL */
    const char *profiles;        /* only these, separated by blanks; NULL: all that objects claim */
    bool whole_only;             /* with a fault `after` and `check` judge, and the oracle does not */
    bool goes_on;         /* who is hurt by a failure does not give up: it has a node to live with it */
    bool brings_its_own;  /* fault: none is to come on top */
    uint32_t fault_first; /* nodes from this one on may be struck */
};

extern const struct sim_case *const sim_cases[];
extern const uint32_t sim_cases_count;

/* ---- for bodies ---- */
/* The history of this schedule. Begin and end are steps of the world. */
extern struct history sim_history;
uint32_t sim_begin(uint32_t function, uint64_t key, uint64_t argument, uint64_t second);
void sim_end(uint32_t index, int code, uint64_t result);
/* Take back a call that is known to have had no effect. */
void sim_forget(uint32_t index);
#define sim_require(condition, ...) ((condition) ? (void)0 : sim_fail(__VA_ARGS__))
/* What a call costs its own thread: network operations posted, and turns, which are points where others might
 * have come first. */
struct sim_bound {
    uint64_t posts, turns;
};
struct sim_bound sim_bound_begin(void);
void sim_bound_end(const struct sim_bound *begin, const char *what, uint64_t posts_max, uint64_t turns_max);
/* An open or a wait of the set-up: must be 0. */
void sim_opened(int rc, const char *what);
