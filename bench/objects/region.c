/* region.c - read and write: another node's memory, a few bytes and a page.
 * Threads work on separate pages. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/error.h"
#include "bench/bench.h"

#include <errno.h>

#define SPACING_BYTES 4096u /* distance between the memory of two threads */

struct state {
    struct remo_region *region;
    uint64_t spacing_bytes;
};

/* The local buffers of one thread. */
struct buffers {
    char *bytes; /* `window` pieces */
    uint64_t offset;
    uint64_t piece_bytes;
};

static uint32_t list(const struct bench_options *options, struct bench_point points[BENCH_POINTS_MAX]) {
    static const uint64_t sizes_bytes[] = {8, 4096};
    uint32_t count = options->bytes ? 1 : REMO__ARRAY_COUNT(sizes_bytes);
    for (uint32_t i = 0; i < count; i++) {
        points[i] = (struct bench_point)BENCH_POINT_DEFAULT;
        points[i].bytes = options->bytes ? options->bytes : sizes_bytes[i];
        points[i].window = options->window ? options->window : 1;
        points[i].active = bench_active(options);
    }
    return count;
}

static int open_region(struct bench_job *job) {
    struct state *state = calloc(1, sizeof *state);
    if (!state)
        return remo__fail(-ENOMEM, "no memory for the benchmark");
    job->state = state;
    state->spacing_bytes = remo__align_up(remo__max(job->options->bytes, SPACING_BYTES), SPACING_BYTES);
    return remo_region_open(job->channel, "region", state->spacing_bytes * job->size * job->options->threads,
                            NULL, &state->region);
}

static int fill(struct bench_job *job) {
    struct state *state = job->state;
    memset(remo_region_local(state->region), 1, remo_region_bytes(state->region));
    return 0;
}

static void close_region(struct bench_job *job) {
    struct state *state = job->state;
    if (!state)
        return;
    remo_region_close(state->region);
    free(state);
    job->state = NULL;
}

static int begin(struct bench_thread *thread) {
    const struct state *state = thread->job->state;
    const struct bench_point *point = thread->job->point;
    struct buffers *buffers = calloc(1, sizeof *buffers);
    if (!buffers)
        return remo__fail(-ENOMEM, "no memory for the benchmark");
    thread->state = buffers;
    buffers->piece_bytes = remo__align_up(point->bytes, REMO__CACHE_LINE);
    buffers->bytes =
        aligned_alloc(SPACING_BYTES, remo__align_up(buffers->piece_bytes * point->window, SPACING_BYTES));
    if (!buffers->bytes)
        return remo__fail(-ENOMEM, "no memory for %u buffers of %llu bytes", point->window,
                          (unsigned long long)point->bytes);
    memset(buffers->bytes, 2, buffers->piece_bytes * point->window);
    buffers->offset =
        state->spacing_bytes * (thread->job->rank * thread->job->options->threads + thread->index);
    return 0;
}

static int finish(struct bench_thread *thread) {
    struct buffers *buffers = thread->state;
    if (buffers)
        free(buffers->bytes);
    free(buffers);
    thread->state = NULL;
    return 0;
}

static double limit(struct bench_job *job, char ret_name[LIMIT_NAME_BYTES]) {
    limit_memcpy_name(job->point->bytes, ret_name);
    return limit_memcpy_ns(bench_scratch(job), BENCH_SCRATCH_BYTES, job->point->bytes);
}

/* ---- read ---- */

static int read_one_by_one(const struct bench_thread *thread, uint64_t operations) {
    const struct state *state = thread->job->state;
    const struct buffers *buffers = thread->state;
    struct remo_region *region = state->region;
    uint64_t bytes = thread->job->point->bytes, offset = buffers->offset;
    uint32_t target = thread->target;
    char *into = buffers->bytes;
    int rc = 0;
    for (uint64_t i = 0; i < operations && rc == 0; i++)
        rc = remo_region_read(region, target, offset, into, bytes, NULL);
    return rc;
}

static int read_window(const struct bench_thread *thread, uint32_t window) {
    const struct state *state = thread->job->state;
    const struct buffers *buffers = thread->state;
    struct remo_ack ack = REMO_ACK_INIT;
    int rc = 0;
    for (uint32_t i = 0; i < window && rc == 0; i++)
        rc = remo_region_read(state->region, thread->target, buffers->offset,
                              buffers->bytes + i * buffers->piece_bytes, thread->job->point->bytes, &ack);
    int waited = remo_ack_wait(&ack, REMO_FOREVER);
    return rc != 0 ? rc : waited;
}

static int read_operate(struct bench_thread *thread, uint64_t operations) {
    uint32_t window = thread->job->point->window;
    int rc = 0;
    if (window == 1)
        return read_one_by_one(thread, operations);
    for (uint64_t i = 0; i < operations && rc == 0; i += window)
        rc = read_window(thread, window);
    return rc;
}

const struct bench bench_read = {
    .name = "read",
    .object = "region",
    .description = "read another node's memory; 8 B and 4 KiB, or --bytes",
    .list = list,
    .open = open_region,
    .fill = fill,
    .close = close_region,
    .begin = begin,
    .finish = finish,
    .operate = read_operate,
    .network = BENCH_NETWORK_READ,
    .limit = limit,
};

/* ---- write ---- */

static int write_operate(struct bench_thread *thread, uint64_t operations) {
    const struct state *state = thread->job->state;
    const struct buffers *buffers = thread->state;
    struct remo_region *region = state->region;
    struct remo_node *node = thread->job->node;
    uint64_t bytes = thread->job->point->bytes, offset = buffers->offset;
    uint32_t window = thread->job->point->window, target = thread->target;
    const char *from = buffers->bytes;
    int rc = 0;
    for (uint64_t i = 0; i < operations && rc == 0; i += window) {
        for (uint32_t k = 0; k < window && rc == 0; k++)
            rc = remo_region_write(region, target, offset, from, bytes, 0, NULL);
        if (rc == 0)
            rc = remo_fence(node, REMO_FENCE_PAIR, target);
    }
    return rc;
}

static double write_limit(struct bench_job *job, char ret_name[LIMIT_NAME_BYTES]) {
    if (job->point->bytes > sizeof(uint64_t))
        return limit(job, ret_name);
    snprintf(ret_name, LIMIT_NAME_BYTES, "%s", LIMIT_STORE_FENCE);
    return limit_store_fence_ns(bench_scratch(job));
}

const struct bench bench_write = {
    .name = "write",
    .object = "region",
    .description = "write another node's memory, a pair fence after each window; 8 B and 4 KiB, or --bytes",
    .list = list,
    .open = open_region,
    .fill = fill,
    .close = close_region,
    .begin = begin,
    .finish = finish,
    .operate = write_operate,
    .network = BENCH_NETWORK_WRITE,
    .limit = write_limit,
};
