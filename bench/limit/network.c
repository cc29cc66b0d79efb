/* network.c - the limit on fabrics that are not mapped: the same operation with libfabric alone.
 * It is measured between the same two nodes, before and after each point. Node 0 measures; node 1
 * polls until node 0 ends the round. If the limit cannot be measured, it is omitted. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "bench/limit/bare_ofi.h"
#include "bench/bench.h"

#define SECONDS_MAX 0.1
#define ATTEND_NS (20 * REMO__NS_PER_S) /* node 0 ends much earlier */
#define BLOB_OFFSET 0u                  /* in the scratch memory */
#define ROUND_OFFSET BARE_OFI_BLOB_BYTES

/* Exchange the blobs through the scratch memory. A failed endpoint sends zeros, which the other
 * side refuses. */
static int meet(struct bench_job *job) {
    char blob[BARE_OFI_BLOB_BYTES] = {0};
    if (job->rank < 2) {
        if (bare_ofi_open(getenv("REMO_PROVIDER"), &job->bare) == 0)
            bare_ofi_describe(job->bare, blob);
        int rc = remo_region_write(job->scratch, 1 - job->rank, BLOB_OFFSET, blob, sizeof blob, 0, NULL);
        if (rc != 0)
            return rc;
    }
    int rc = remo_barrier_wait(job->barrier, REMO_FOREVER);
    const char *theirs = remo_region_local(job->scratch);
    if (rc == 0 && job->bare && bare_ofi_connect(job->bare, theirs + BLOB_OFFSET) != 0) {
        bare_ofi_close(job->bare);
        job->bare = NULL;
    }
    return rc;
}

static void attend(struct bench_job *job) {
    const char *scratch = remo_region_local(job->scratch);
    const _Atomic uint64_t *round = (const _Atomic uint64_t *)(scratch + ROUND_OFFSET);
    uint64_t deadline = remo__deadline(ATTEND_NS);
    while (atomic_load_explicit(round, memory_order_acquire) < job->bare_rounds
           && remo__remaining_ns(deadline) > 0)
        for (int i = 0; i < 64; i++)
            if (job->bare)
                bare_ofi_poll(job->bare);
}

static double measure(struct bench_job *job, char ret_name[LIMIT_NAME_BYTES]) {
    uint64_t bytes = job->point->bytes;
    double seconds = job->options->seconds < SECONDS_MAX ? job->options->seconds : SECONDS_MAX, ns = 0;
    bool writes = job->bench->network == BENCH_NETWORK_WRITE;
    if (job->bare)
        ns = writes ? bare_ofi_write_ns(job->bare, bytes, seconds)
                    : bare_ofi_read_ns(job->bare, bytes, seconds);
    snprintf(ret_name, LIMIT_NAME_BYTES, "bare %s of %llu B%s, the target polling",
             writes ? "fi_write" : "fi_read", (unsigned long long)bytes,
             writes ? " to its local completion" : "");
    return ns;
}

int bench_network_limit(struct bench_job *job, double *ret_ns, char ret_name[LIMIT_NAME_BYTES]) {
    int rc = job->bare_rounds == 0 ? meet(job) : 0;
    job->bare_rounds++;
    if (rc != 0 || job->rank > 1)
        return rc;
    if (job->rank == 1) {
        attend(job);
        return 0;
    }
    *ret_ns = measure(job, ret_name);
    return remo_region_write(job->scratch, 1, ROUND_OFFSET, &job->bare_rounds, sizeof job->bare_rounds, 0,
                             NULL);
}

void bench_network_close(struct bench_job *job) {
    bare_ofi_close(job->bare);
    job->bare = NULL;
}
