/* bench_suite.h - `remo bench` in the process that was called: starts a job of nodes for each benchmark,
 * several times if asked, collects what they send, runs the peers, and prints. */
#pragma once

#include <stdbool.h>

#include "bench/bench.h"

#define BENCH_RUNS_MAX 32u
#define BENCH_NAMES_MAX 32u
#define BENCH_NODES_MAX 16u

struct bench_suite {
    struct bench_options options;
    const struct bench *benches[BENCH_NAMES_MAX];
    uint32_t benches_count;
    uint32_t runs;
    bool json, peers;
    bool simulated;                  /* fabric sim */
    uint32_t nodes[BENCH_NODES_MAX]; /* simulated: one job for each of these numbers */
    uint32_t nodes_count;
    const char *model;   /* simulated: "name=value,...", or NULL */
    const char *plot;    /* file, or NULL */
    const char *program; /* to start nodes from */
};

/* Returns how many benchmarks failed; their sentences, and nothing else but progress, have gone to standard
 * error. */
uint32_t bench_suite_run(const struct bench_suite *suite);
