/* suite.h - `remo bench` in the starting process: starts a job of nodes per benchmark and
 * run, collects the results, runs the peers, and prints. */
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
    const char *model;   /* simulated: "name=value,..."; NULL: defaults */
    const char *plot;    /* file; NULL: none */
    const char *program; /* the program of the nodes */
};

/* Run all benchmarks. Returns the number of failures, of Remo's benchmarks and of peers; errors and progress
 * go to standard error. */
uint32_t bench_suite_run(const struct bench_suite *suite);
