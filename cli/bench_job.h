/* bench_job.h - one job of nodes for one benchmark, from outside. */
#pragma once

#include <jansson.h>

#include "cli/bench_suite.h"

#define BENCH_ARGUMENTS_MAX 32
#define BENCH_ARGUMENT_BYTES 48

/* A command line, with room of its own. */
struct bench_arguments {
    char *argv[BENCH_ARGUMENTS_MAX];
    char texts[BENCH_ARGUMENTS_MAX][BENCH_ARGUMENT_BYTES];
    int count;
};

/* Append what the user asked for, in words for whoever runs the nodes. */
void bench_job_arguments(const struct bench_suite *suite, struct bench_arguments *arguments);

/* As bench_job_run, on the simulated network: all nodes are in one other program. */
int bench_simulated_run(const struct bench_suite *suite, const struct bench *bench,
                        void (*line)(void *ctx, const json_t *object), void *ctx);

/* Start the nodes, hand each object that they send to `line`, and return when all have ended.
 * Errors, with a sentence: -EIO (a node failed), -ETIMEDOUT (they took far too long, and were stopped),
 * -EINTR (a signal to this process ended them), others. */
int bench_job_run(const struct bench_suite *suite, const struct bench *bench,
                  void (*line)(void *ctx, const json_t *object), void *ctx);
