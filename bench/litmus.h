/* litmus.h - the rows of the memory model's table of transitions, each as a few operations of three nodes
 * and an outcome in question.
 *
 * One description, two runners. tests/sim/litmus.c runs it on simulated networks, and knows for each what
 * must be reachable and what never. litmus_real.c runs it on a real network, many times, and reports what
 * was seen: an outcome that may happen and never did is no news there, one that the fabric's capabilities
 * exclude is a failure.
 *
 * Nodes 0 and 2 work on the memory of node 1, whose CPU looks on. Thread 1 of node 0 takes part in some
 * rows.
 */
#pragma once

#include <remo/region.h>
#include <stdatomic.h>
#include <stdbool.h>

#define LITMUS_NODES 3u
#define LITMUS_X 0u
#define LITMUS_Y 64u      /* another line */
#define LITMUS_BYTES 512u /* of each node's region */

/* What all actors share besides the network. Clear at the beginning of each run, but for nodes and
 * regions. */
struct litmus {
    struct remo_region *regions[LITMUS_NODES];
    struct remo_node *nodes[LITMUS_NODES];
    _Atomic bool flag; /* one actor tells another */
    _Atomic uint32_t arrived;
    uint64_t seen[4];
    _Atomic int odd; /* the outcome in question was seen */
};

/* What excludes the outcome. */
enum litmus_rule {
    LITMUS_ALWAYS,  /* nothing does: it may happen on every network */
    LITMUS_NEVER,   /* the memory model does, on every network */
    LITMUS_PUT_PUT, /* these: if the network keeps such operations in order */
    LITMUS_PUT_GET,
    LITMUS_PUT_RMW,
    LITMUS_GET_PUT,
    LITMUS_GET_GET,
    LITMUS_RMW_PUT,
    LITMUS_RMW_GET,
    LITMUS_PLACED,      /* a completed put is placed */
    LITMUS_COMPLETIONS, /* completions come in order */
    LITMUS_COHERENT,    /* atomics are atomic with everything */
    LITMUS_CACHED,      /* CPUs see at once what was placed */
    LITMUS_RULES
};

struct litmus_row {
    const char *row; /* of the table in the memory model */
    const char *program, *outcome;
    void (*body)(struct litmus *litmus, uint32_t node, uint32_t thread);
    enum litmus_rule rule;
    bool threads; /* thread 1 of node 0 takes part */
    bool atomics; /* there must be some */
};

extern const struct litmus_row litmus_rows[];
extern const uint32_t litmus_rows_count;

/* ---- the runner provides ---- */

/* Another actor may go on here. */
void litmus_point(const char *what);
/* Wait until `is`; returns early when the run is given up. */
void litmus_until(bool (*is)(void *ctx), void *ctx, const char *what);
/* May a loop that looks at memory look again? `look`: how often it has. */
bool litmus_again(uint32_t look);
/* An operation failed: the run is void. May return. */
void litmus_fail(const char *what, int rc);
