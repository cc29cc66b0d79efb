/* litmus.h - litmus tests: the rows of the memory model's table of transitions, as programs of three nodes
 * with an outcome in question.
 *
 * Two runners share these programs. tests/sim/litmus.c runs them on simulated networks, where each outcome
 * must be reachable or impossible. real.c runs them many times on a real network and counts outcomes:
 * one that may happen need not be seen, one that the fabric's capabilities exclude is a failure.
 *
 * Nodes 0 and 2 operate on the memory of node 1, whose CPU polls it. Thread 1 of node 0 takes part in some
 * rows. */
#pragma once

#include <remo/region.h>
#include <stdatomic.h>
#include <stdbool.h>

#define LITMUS_NODES 3u
#define LITMUS_X 0u
#define LITMUS_Y 64u      /* another line */
#define LITMUS_BYTES 512u /* per node */

/* State shared by the actors besides the network; cleared before each run, except nodes and
 * regions. */
struct litmus {
    struct remo_region *regions[LITMUS_NODES];
    struct remo_node *nodes[LITMUS_NODES];
    _Atomic bool flag; /* a signal between actors */
    _Atomic uint32_t arrived;
    uint64_t seen[4];
    _Atomic int odd; /* the outcome in question was seen */
};

/* The rule that excludes the outcome. */
enum litmus_rule {
    LITMUS_ALWAYS,        /* none: it may happen on every network */
    LITMUS_FLIGHT,        /* no operation is in flight: the memory is mapped */
    LITMUS_NEVER,         /* the memory model, on every network */
    LITMUS_PUT_PUT,       /* from here on: the network keeps such operations in order */
    LITMUS_PUT_GET,       /* of the same word */
    LITMUS_PUT_GET_OTHER, /* of another word */
    LITMUS_PUT_RMW,
    LITMUS_GET_PUT,
    LITMUS_GET_GET,
    LITMUS_RMW_PUT,
    LITMUS_RMW_GET,
    LITMUS_PLACED,      /* a completed put is placed */
    LITMUS_COMPLETIONS, /* completions arrive in order */
    LITMUS_COHERENT,    /* atomics are atomic with all accesses */
    LITMUS_CACHED,      /* CPUs see placed data at once */
    LITMUS_RULES
};

struct litmus_row {
    const char *row; /* in the table of the memory model */
    const char *program, *outcome;
    void (*body)(struct litmus *litmus, uint32_t node, uint32_t thread);
    enum litmus_rule rule;
    bool threads; /* thread 1 of node 0 takes part */
    bool atomics; /* the network must have atomics */
};

extern const struct litmus_row litmus_rows[];
extern const uint32_t litmus_rows_count;

/* ---- the runner provides: wait.c, tests/sim/litmus.c ---- */

/* Set `flag`, after all earlier stores of the caller. */
void litmus_signal(struct litmus *s);
/* A point where another actor may run. */
void litmus_point(const char *what);
/* Wait until `is` returns true; returns early if the run was aborted. */
void litmus_until(bool (*is)(void *ctx), void *ctx, const char *what);
/* Return whether a polling loop may poll again, after `look` polls. */
bool litmus_again(uint32_t look);
/* Report the failure of an operation, which voids the run. May return. */
void litmus_fail(const char *what, int rc);
