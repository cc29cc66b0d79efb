/* job.h - the job of nodes of one benchmark, as its starting process sees it. */
#pragma once

#include <jansson.h>

#include "cli/bench/suite.h"

#define BENCH_ARGUMENTS_MAX 32
#define BENCH_ARGUMENT_BYTES 48

/* A command line with its memory. */
struct bench_arguments {
    char *argv[BENCH_ARGUMENTS_MAX];
    char texts[BENCH_ARGUMENTS_MAX][BENCH_ARGUMENT_BYTES];
    int count;
};

/* Append the user's options as arguments of a node. */
void bench_job_arguments(const struct bench_suite *suite, struct bench_arguments *arguments);

/* As bench_job_run, on the simulated network: one other program contains all nodes. */
int bench_simulated_run(const struct bench_suite *suite, const struct bench *bench,
                        void (*line)(void *ctx, const json_t *object), void *ctx);

/* Start the nodes, pass each object that they send to `line`, and return when all have ended.
 * Errors: -EIO (a node failed), -ETIMEDOUT (the nodes were stopped at the deadline), -EINTR (a signal to this
 * process ended them), and those of launch_nodes. */
int bench_job_run(const struct bench_suite *suite, const struct bench *bench,
                  void (*line)(void *ctx, const json_t *object), void *ctx);
