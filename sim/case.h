/* case.h - a case: a small program on a few nodes that uses one object through its public interface, and the
 * conditions that its results must satisfy. */
#pragma once

#include "sim/world/fault.h"
#include "sim/history.h"

struct sim_case {
    const char *object, *name, *about;
    uint32_t nodes, threads; /* program threads per node */
    size_t state_bytes;
    /* Open the objects of one node, on its first thread. Report an error with sim_fail. */
    void (*open)(void *state, struct remo_node *node, uint32_t rank);
    /* Close the objects that `open` opened; an object that was not opened is NULL. */
    void (*close)(void *state, uint32_t rank);
    /* The program of one thread. */
    void (*body)(void *state, uint32_t rank, uint32_t thread);
    /* Run after all bodies and all faults, on the first thread of each node that has not failed.
     * The calls must succeed within SIM_RECOVERY_STEPS_MAX steps for all nodes together. NULL: none. */
    void (*after)(void *state, uint32_t rank);
    /* Run after all threads have ended. NULL: none. */
    void (*check)(void *state);
    const struct oracle *oracle; /* judges the history; NULL: none */
    /* profile names; NULL: all that the object claims */
    const char *profiles;
    bool needs_flight;            /* operations or their connection fail in flight: not on mapped memory */
    bool whole_only;              /* with a fault, only `after` and `check` judge, not the oracle */
    bool continues_after_failure; /* a node continues after a failed operation instead of leaving */
    bool has_own_fault;           /* injects its own fault; the campaign adds none */
    bool relies_on_end;           /* on mapped memory a node has failed only when its process has ended */
    bool needs_sweeps;            /* so many operations that messages wait for their ends: see actor.c */
    uint32_t fault_first;         /* faults strike this node and later ones only */
};

extern const struct sim_case *const sim_cases[];
extern const uint32_t sim_cases_count;

/* ---- for bodies ---- */
/* The history of this schedule. Begin and end are steps of the world. */
extern struct history sim_history;
uint32_t sim_begin(uint32_t function, uint64_t key, uint64_t argument, uint64_t second);
void sim_end(uint32_t index, int code, uint64_t result);
/* Remove a call that is known to have had no effect. */
void sim_forget(uint32_t index);
#define sim_require(condition, ...) ((condition) ? (void)0 : sim_fail(__VA_ARGS__))
/* The cost of a call to its own thread: network operations posted, and turns. A turn is a point at
 * which other actors may run first. */
struct sim_bound {
    uint64_t posts, turns;
};
struct sim_bound sim_bound_begin(void);
void sim_bound_end(const struct sim_bound *begin, const char *what, uint64_t posts_max, uint64_t turns_max);
/* Require that an open or a wait of the set-up returned 0. */
void sim_opened(int rc, const char *what);
/* Order the stores of the thread before its next change of the state of the case, which has no store buffer,
 * as the CPU orders two stores. Only mapped memory needs it. */
void sim_order_stores(void);
#define SIM_ANY UINT32_MAX
/* Return whether a call on node `rank` may fail with `rc`: because `depends_on` (SIM_ANY: any node)
 * is out, or because the node itself is out or hurt. An error without a sentence is never excused.
 * A hurt node leaves here: the call does not return. */
bool sim_excused(uint32_t rank, uint32_t depends_on, int rc);
