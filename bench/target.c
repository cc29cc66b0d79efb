/* target.c - which nodes operate in a benchmark, and on which memory of which peer.
 * Each node operates on the next one. */
#include "bench/bench.h"
#include "remote/op.h"

#define PAGE_BYTES 4096u

uint32_t bench_target(const struct bench_job *job) {
    return (job->rank + 1) % job->size;
}

void *bench_mapping(struct bench_job *job, struct remo_region *region, uint32_t node, uint64_t offset) {
    struct remo_addr addr;
    if (!job->mapped || remo_region_address(region, node, offset, &addr) != 0)
        return NULL;
    char *base = remo__peer_base(job->node, node);
    return base ? base + remo_addr_offset(addr) : NULL;
}

void *bench_scratch(struct bench_job *job) {
    return bench_mapping(job, job->scratch, bench_target(job), 0);
}

const void *bench_arena(struct bench_job *job, uint64_t *ret_bytes) {
    uint32_t target = bench_target(job);
    *ret_bytes = atomic_load(&job->node->peers[target].mapped_bytes);
    return job->mapped ? remo__peer_base(job->node, target) : NULL;
}

void bench_touch(const struct bench_job *job) {
    for (uint32_t node = 0; node < job->size && job->mapped; node++) {
        const volatile char *base = remo__peer_base(job->node, node);
        uint64_t bytes = atomic_load(&job->node->peers[node].mapped_bytes);
        for (uint64_t at = 0; base && at < bytes; at += PAGE_BYTES)
            (void)base[at];
    }
}

uint32_t bench_points(const struct bench *bench, const struct bench_options *options,
                      struct bench_point ret_points[BENCH_POINTS_MAX]) {
    uint32_t all = bench->list(options, ret_points), count = 0;
    for (uint32_t i = 0; i < all; i++) {
        const char *variant = ret_points[i].variant ? ret_points[i].variant : "";
        if (!options->variant || strcmp(options->variant, variant) == 0)
            ret_points[count++] = ret_points[i];
    }
    return count;
}

uint32_t bench_active(const struct bench_options *options) {
    if (options->active == 0)
        return 1;
    return options->active < options->nodes ? options->active : options->nodes;
}
