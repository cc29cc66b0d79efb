/* collective.c - broadcast, reduce, all-reduce, gather and all-gather, from 8 bytes to 1 MiB.
 * Every result is checked by its first and last word. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/error.h"
#include "bench/bench.h"

#ifdef SIM_TIMED /* the simulator's arenas are small */
#define BYTES_MAX 4096u
#else
#define BYTES_MAX BENCH_BYTES_MAX
#endif

enum kind { BROADCAST, REDUCE, ALL_REDUCE, GATHER, ALL_GATHER, KINDS };

static const char *const kind_names[KINDS] = {"broadcast", "reduce", "all_reduce", "gather", "all_gather"};

struct state {
    struct remo_collective *collective;
    uint64_t *words, *result; /* one contribution; all of them */
};

static uint32_t list(const struct bench_options *options, struct bench_point points[BENCH_POINTS_MAX]) {
    static const uint64_t sizes[] = {8, 4096, 65536, BENCH_BYTES_MAX};
    uint32_t count = 0;
    for (uint32_t kind = 0; kind < KINDS; kind++)
        for (uint32_t i = 0; i < (options->bytes ? 1 : sizeof sizes / sizeof sizes[0]); i++) {
            uint64_t bytes = options->bytes ? remo__align_up(options->bytes, 8) : sizes[i];
            if (bytes > BYTES_MAX)
                continue;
            points[count] = (struct bench_point)BENCH_POINT_DEFAULT;
            points[count].variant = kind_names[kind];
            points[count].bytes = bytes;
            points[count++].active = options->nodes;
        }
    return count;
}

static enum kind kind_of(const struct bench_point *point) {
    enum kind kind = BROADCAST;
    while (strcmp(kind_names[kind], point->variant) != 0)
        kind++;
    return kind;
}

static int open_collective(struct bench_job *job) {
    struct state *state = calloc(1, sizeof *state);
    if (!state)
        return remo__fail(-ENOMEM, "no memory for the benchmark");
    job->state = state;
    state->words = calloc(1, BYTES_MAX);
    state->result = calloc(job->size, BYTES_MAX);
    if (!state->words || !state->result)
        return remo__fail(-ENOMEM, "no memory for the contributions of %u nodes", job->size);
    struct remo_collective_options options = {.bytes_max = BYTES_MAX};
    return remo_collective_open(job->channel, "collective", &options, &state->collective);
}

static void close_collective(struct bench_job *job) {
    struct state *state = job->state;
    if (!state)
        return;
    remo_collective_close(state->collective);
    free(state->words);
    free(state->result);
    free(state);
    job->state = NULL;
}

static int call(const struct bench_job *job, enum kind kind, uint64_t bytes) {
    const struct state *state = job->state;
    struct remo_collective *collective = state->collective;
    switch (kind) {
    case BROADCAST: return remo_collective_broadcast(collective, 0, state->words, bytes, REMO_FOREVER);
    case REDUCE:
        return remo_collective_reduce(collective, 0, state->words, state->result, bytes / 8, REMO_NUMBER_U64,
                                      REMO_REDUCTION_SUM, REMO_FOREVER);
    case ALL_REDUCE:
        return remo_collective_all_reduce(collective, state->words, state->result, bytes / 8, REMO_NUMBER_U64,
                                          REMO_REDUCTION_SUM, REMO_FOREVER);
    case GATHER:
        return remo_collective_gather(collective, 0, state->words, state->result, bytes, REMO_FOREVER);
    default: return remo_collective_all_gather(collective, state->words, state->result, bytes, REMO_FOREVER);
    }
}

/* Check a result: every node contributes `number` in its first and last word. */
static bool is_right(const struct bench_job *job, enum kind kind, uint64_t bytes, uint64_t number) {
    const struct state *state = job->state;
    uint64_t last = bytes / 8 - 1, all = job->size - 1;
    if (kind == BROADCAST)
        return state->words[0] == number && state->words[last] == number;
    if (job->rank != 0 && (kind == REDUCE || kind == GATHER))
        return true;
    if (kind == REDUCE || kind == ALL_REDUCE)
        return state->result[0] == number * job->size && state->result[last] == number * job->size;
    return state->result[0] == number && state->result[all * (last + 1) + last] == number;
}

static int operate(struct bench_thread *thread, uint64_t operations) {
    struct bench_job *job = thread->job;
    const struct state *state = job->state;
    enum kind kind = kind_of(job->point);
    uint64_t bytes = job->point->bytes;
    for (uint64_t i = 0; i < operations; i++) {
        uint64_t number = ++thread->number;
        bool writes = kind != BROADCAST || job->rank == 0;
        if (writes)
            state->words[0] = state->words[bytes / 8 - 1] = number;
        int rc = call(job, kind, bytes);
        if (rc != 0)
            return rc;
        if (!is_right(job, kind, bytes, number))
            return remo__fail(-EIO, "%s number %llu has a wrong result at node %u", kind_names[kind],
                              (unsigned long long)number, job->rank);
    }
    return 0;
}

/* Return how often the busiest node must read the bytes of a contribution. */
static double copies_of(enum kind kind, uint32_t nodes) {
    if (kind == BROADCAST)
        return nodes > 1;
    return kind == ALL_REDUCE ? 2.0 * (nodes - 1) / nodes : nodes - 1;
}

static double limit(struct bench_job *job, char ret_name[LIMIT_NAME_BYTES]) {
    double copies = copies_of(kind_of(job->point), job->size);
    snprintf(ret_name, LIMIT_NAME_BYTES, "%s, memcpy %.0f B", LIMIT_BARRIER,
             copies * (double)job->point->bytes);
    return limit_barrier_ns(bench_scratch(job), bench_cpu(job->options, 0, 0), bench_cpu(job->options, 1, 0))
           + copies * limit_memcpy_ns(bench_scratch(job), BENCH_SCRATCH_BYTES, job->point->bytes);
}

const struct bench bench_collective = {
    .name = "collective",
    .object = "collective",
    .description = "broadcast, reduce, all-reduce, gather and all-gather among all nodes, 8 B to 1 MiB",
    .collective = true,
    .list = list,
    .open = open_collective,
    .close = close_collective,
    .operate = operate,
    .limit = limit,
};
