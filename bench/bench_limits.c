/* bench_limits.c - the limits of this machine on the memory of another node, and the table of benchmarks.
 * A limit is measured, not computed (limit.h). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "bench/bench.h"

#define MAPPING_BYTES (64u << 20)

extern const struct bench bench_read, bench_write, bench_fetch_add, bench_compare_swap, bench_barrier,
    bench_lock, bench_owned_var, bench_sst, bench_ringbuffer, bench_queue, bench_kv, bench_kv_insert,
    bench_accounts, bench_collective, bench_heap, bench_task, bench_rpc, bench_lookup, bench_tatp,
    bench_smallbank, bench_versioned, bench_tree, bench_scan, bench_ycsb, bench_mixed;

static int open_memory(struct bench_job *job) {
    struct remo_region *region = NULL;
    int rc = remo_region_open(job->channel, "memory", MAPPING_BYTES, NULL, &region);
    job->state = region;
    return rc;
}

/* Touch the memory, so that page faults are not measured. */
static int fill(struct bench_job *job) {
    memset(remo_region_local(job->state), 1, MAPPING_BYTES);
    return remo_barrier_wait(job->barrier, REMO_FOREVER);
}

static void close_memory(struct bench_job *job) {
    remo_region_close(job->state);
    job->state = NULL;
}

static void emit(void *ctx, const char *name, double ns) {
    struct bench_job *job = ctx;
    struct bench_result result;
    bench_result_reset(&result);
    snprintf(result.object, sizeof result.object, "machine");
    snprintf(result.variant, sizeof result.variant, "%s", name);
    result.p50_ns = ns;
    result.ops_per_s = 1e9 / ns;
    result.limit_ns = ns;
    result.ratio = 1;
    snprintf(result.limit, sizeof result.limit, "%s", name);
    bench_emit(job, &result);
}

/* On a network, use the node's own memory. */
static int report(struct bench_job *job) {
    struct limit_place place = {.mapping_bytes = MAPPING_BYTES,
                                .cpu_a = bench_cpu(job->options, 0, 0),
                                .cpu_b = bench_cpu(job->options, 1, 0)};
    place.mapping = bench_mapping(job, job->state, bench_target(job), 0);
    if (!place.mapping)
        place.mapping = remo_region_local(job->state);
    int rc = limit_list(&place, emit, job);
    return rc == 0 ? 0
                   : remo__fail(rc, "cannot measure a limit: no memory, or no thread; close other programs, "
                                    "or raise ulimit -u");
}

static const struct bench bench_limits = {
    .name = "limits",
    .object = "machine",
    .description = "what the hardware needs for copies, atomics, ping-pong, barrier, messages, wake-ups",
    .open = open_memory,
    .fill = fill,
    .close = close_memory,
    .report = report,
};

const struct bench *const bench_list[] = {
    &bench_limits,
    &bench_read,
    &bench_write,
    &bench_fetch_add,
    &bench_compare_swap,
    &bench_barrier,
    &bench_lock,
    &bench_owned_var,
    &bench_sst,
    &bench_ringbuffer,
    &bench_queue,
    &bench_rpc,
    &bench_lookup,
    &bench_tatp,
    &bench_smallbank,
    &bench_versioned,
    &bench_tree,
    &bench_scan,
    &bench_ycsb,
    &bench_mixed,
    &bench_accounts,
    &bench_kv,
    &bench_kv_insert,
    &bench_collective,
    &bench_heap,
    &bench_task,
    NULL,
};

const struct bench *bench_find(const char *name) {
    for (size_t i = 0; bench_list[i]; i++)
        if (strcmp(bench_list[i]->name, name) == 0)
            return bench_list[i];
    return NULL;
}
