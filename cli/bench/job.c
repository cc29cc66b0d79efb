/* job.c - starts the nodes of one benchmark and reads the JSON objects that they send.
 * A deadline bounds the job, so a hanging node cannot block `remo bench`. */
#include "cli/bench/job.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "cli/launch/launch.h"

#define STATUS_TIMEOUT 124
#define STATUS_SIGNAL 128
#define START_NS (120 * REMO__NS_PER_S) /* to start and to end, at worst */
#define POINT_NS (5 * REMO__NS_PER_S)   /* in addition to the requested time: limits, checks */
#define KEY_NS (100 * REMO__NS_PER_US)  /* to insert one key, at worst */

/* ---- the command line of a node ---- */

__attribute__((format(printf, 2, 3))) static void append(struct bench_arguments *arguments,
                                                         const char *format, ...) {
    if (arguments->count == BENCH_ARGUMENTS_MAX - 1)
        return;
    char *text = arguments->texts[arguments->count];
    va_list values;
    va_start(values, format);
    vsnprintf(text, BENCH_ARGUMENT_BYTES, format, values);
    va_end(values);
    arguments->argv[arguments->count++] = text;
}

/* Pass every option, so that all nodes use the same values. */
static void make_arguments(const struct bench_suite *suite, const struct bench *bench,
                           struct bench_arguments *ret_arguments) {
    *ret_arguments = (struct bench_arguments){.count = 1};
    ret_arguments->argv[0] = (char *)(uintptr_t)suite->program;
    append(ret_arguments, "bench");
    append(ret_arguments, "%s", bench->name);
    append(ret_arguments, "--worker");
    append(ret_arguments, "--fabric=%s", suite->options.fabric);
    if (!suite->options.pin)
        append(ret_arguments, "--no-pin");
    bench_job_arguments(suite, ret_arguments);
}

void bench_job_arguments(const struct bench_suite *suite, struct bench_arguments *ret_arguments) {
    const struct bench_options *options = &suite->options;
    append(ret_arguments, "--nodes=%u", options->nodes);
    append(ret_arguments, "--threads=%u", options->threads);
    append(ret_arguments, "--seconds=%.6f", options->seconds);
    if (options->active)
        append(ret_arguments, "--active=%u", options->active);
    if (options->bytes)
        append(ret_arguments, "--bytes=%llu", (unsigned long long)options->bytes);
    if (options->window)
        append(ret_arguments, "--window=%u", options->window);
    if (options->keys_count)
        append(ret_arguments, "--keys=%llu", (unsigned long long)options->keys_count);
    if (options->accounts_count)
        append(ret_arguments, "--accounts=%llu", (unsigned long long)options->accounts_count);
    if (options->read_percent >= 0)
        append(ret_arguments, "--reads=%d", options->read_percent);
    if (options->zipf >= 0)
        append(ret_arguments, "--zipf=%.4f", options->zipf);
    if (options->variant)
        append(ret_arguments, "--variant=%s", options->variant);
}

/* ---- the job ---- */

struct intake {
    void (*line)(void *ctx, const json_t *object);
    void *ctx;
};

static void take_line(void *ctx, uint32_t rank, const char *text, size_t bytes) {
    const struct intake *intake = ctx;
    (void)rank;
    json_t *object = json_loadb(text, bytes, 0, NULL);
    if (json_is_object(object))
        intake->line(intake->ctx, object);
    json_decref(object);
}

/* Return a deadline that every working benchmark meets. */
static uint64_t timeout_for(const struct bench_suite *suite, const struct bench *bench) {
    struct bench_point points[BENCH_POINTS_MAX];
    uint32_t count = bench->list ? bench_points(bench, &suite->options, points) : 1;
    uint64_t timeout_ns = START_NS, keys_count = 0;
    for (uint32_t i = 0; bench->list && i < count; i++)
        keys_count = points[i].keys_count > keys_count ? points[i].keys_count : keys_count;
    timeout_ns += count * (POINT_NS + (uint64_t)(2 * suite->options.seconds * 1e9));
    return timeout_ns + keys_count * KEY_NS;
}

int bench_job_run(const struct bench_suite *suite, const struct bench *bench,
                  void (*line)(void *ctx, const json_t *object), void *ctx) {
    struct bench_arguments arguments;
    struct intake intake = {.line = line, .ctx = ctx};
    struct launch_options options = {.name = "remo bench",
                                     .nodes = suite->options.nodes,
                                     .fabric = suite->options.fabric,
                                     .kill_on_failure = true,
                                     .quiet = true,
                                     .line = take_line,
                                     .ctx = &intake};
    int status, signal_number = 0;
    make_arguments(suite, bench, &arguments);
    options.argv = arguments.argv;
    options.timeout_ns = timeout_for(suite, bench);
    options.ret_signal = &signal_number;
    int rc = launch_nodes(&options, &status);
    if (rc == 0 && signal_number != 0)
        return remo__fail(-EINTR, "stopped by signal %d (%s)", signal_number, strsignal(signal_number));
    if (rc != 0 || status == 0)
        return rc;
    if (status == STATUS_TIMEOUT)
        return remo__fail(-ETIMEDOUT, "the nodes timed out after %.0f s and were stopped",
                          (double)options.timeout_ns / 1e9);
    if (status > STATUS_SIGNAL)
        return remo__fail(-EIO, "a node was killed by signal %d (%s)", status - STATUS_SIGNAL,
                          strsignal(status - STATUS_SIGNAL));
    return remo__fail(-EIO, "a node ended with status %d", status);
}
