/* bench_job.h - one job of nodes for one benchmark, from outside. */
#pragma once

#include <jansson.h>

#include "cli/bench_suite.h"

/* Start the nodes, hand each object that they send to `line`, and return when all have ended.
 * Errors, with a sentence: -EIO (a node failed), -ETIMEDOUT (they took far too long, and were stopped),
 * -EINTR (a signal to this process ended them), others. */
int bench_job_run(const struct bench_suite *suite, const struct bench *bench,
                  void (*line)(void *ctx, const json_t *object), void *ctx);
