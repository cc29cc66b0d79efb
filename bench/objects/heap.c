/* heap.c - heap: an operation frees a random block of a full table and allocates another.
 * The limit is malloc and free of the C library. The fragmentation is that at the end of a point. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/error.h"
#include "bench/bench.h"

#define LIVE_BYTES (4u << 20) /* of each thread, about */
#define MIXED_BYTES 512u      /* the usual size of a mixed point */
#define CACHED_BYTES 1024u    /* the largest block in the cache of a thread of the C library, about */
#define LIMIT_ROUNDS 9u
#define LIMIT_OPERATIONS 100000u

static const uint64_t sizes_bytes[] = {16, 64, 256, 1024, 4096};
#define SIZES (uint32_t)(sizeof sizes_bytes / sizeof sizes_bytes[0])

struct heaps {
    struct remo_heap *heap;
    uint64_t *blocks[BENCH_THREADS_MAX]; /* addresses, of each thread */
};

/* One point per size, and one of sizes from 16 to 4096 bytes: each doubling is equally frequent. */
static uint32_t heap_list(const struct bench_options *options, struct bench_point points[BENCH_POINTS_MAX]) {
    for (uint32_t i = 0; i <= SIZES; i++) {
        points[i] = (struct bench_point)BENCH_POINT_DEFAULT;
        points[i].active = bench_active(options);
        points[i].bytes = i < SIZES ? sizes_bytes[i] : 0;
        points[i].variant = i < SIZES ? "replace" : "replace mixed";
    }
    return SIZES + 1;
}

static int heap_open(struct bench_job *job) {
    struct heaps *heaps = calloc(1, sizeof *heaps);
    if (!heaps)
        return remo__fail(-ENOMEM, "no memory for the benchmark");
    job->state = heaps;
    return remo_heap_open(job->channel, "heap", NULL, &heaps->heap);
}

static void heap_close(struct bench_job *job) {
    struct heaps *heaps = job->state;
    if (heaps)
        remo_heap_close(heaps->heap);
    free(heaps);
    job->state = NULL;
}

static uint32_t block_count(const struct bench_point *point) {
    return LIVE_BYTES / (uint32_t)(point->bytes ? point->bytes : MIXED_BYTES);
}

static uint64_t next_size(const struct bench_point *point, struct remo__random *random) {
    if (point->bytes != 0)
        return point->bytes;
    uint64_t number = remo__random_next(random), least = 16ull << number % 8;
    return least + (number >> 32) % (least + 1);
}

static int take(struct bench_thread *thread, uint64_t *block) {
    const struct heaps *heaps = thread->job->state;
    struct remo_addr addr = {0};
    int rc = remo_heap_alloc(heaps->heap, next_size(thread->job->point, &thread->random), 0, &addr);
    *block = addr.word;
    return rc;
}

static int heap_begin(struct bench_thread *thread) {
    struct heaps *heaps = thread->job->state;
    uint32_t count = block_count(thread->job->point);
    uint64_t *blocks = calloc(count, sizeof *blocks);
    if (!blocks)
        return remo__fail(-ENOMEM, "no memory for the benchmark");
    heaps->blocks[thread->index] = blocks;
    int rc = 0;
    for (uint32_t i = 0; i < count && rc == 0; i++)
        rc = take(thread, &blocks[i]);
    return rc;
}

static int heap_operate(struct bench_thread *thread, uint64_t operations) {
    const struct heaps *heaps = thread->job->state;
    uint64_t *blocks = heaps->blocks[thread->index];
    uint32_t count = block_count(thread->job->point);
    int rc = 0;
    for (uint64_t n = 0; n < operations && rc == 0; n++) {
        uint64_t *block = &blocks[remo__random_below(&thread->random, count)];
        rc = remo_heap_free(heaps->heap, (struct remo_addr){*block});
        rc = rc == 0 ? take(thread, block) : rc;
    }
    return rc;
}

/* Determine the fragmentation, and free the blocks of all threads. */
static int heap_check(struct bench_job *job) {
    struct heaps *heaps = job->state;
    struct remo_heap_sizes sizes;
    remo_heap_stats(heaps->heap, &sizes);
    job->reserved_per_live = sizes.live_bytes ? (double)sizes.reserved_bytes / (double)sizes.live_bytes : 0;
    int rc = 0;
    for (uint32_t thread = 0; thread < BENCH_THREADS_MAX; thread++) {
        uint64_t *blocks = heaps->blocks[thread];
        for (uint32_t i = 0; blocks && i < block_count(job->point) && rc == 0; i++)
            rc = remo_heap_free(heaps->heap, (struct remo_addr){blocks[i]});
        free(blocks);
        heaps->blocks[thread] = NULL;
    }
    return rc;
}

/* Return the time of malloc and free of one block; 0: no memory. */
static double time_malloc(const struct bench_point *point, struct remo__random *random) {
    uint64_t start_ns = remo__now_ns();
    for (uint32_t n = 0; n < LIMIT_OPERATIONS; n++) {
        void *volatile block = malloc(
            remo__min(next_size(point, random), CACHED_BYTES)); /* volatile: the compiler keeps the calls */
        if (!block)
            return 0;
        free(block);
    }
    return (double)(remo__now_ns() - start_ns) / LIMIT_OPERATIONS;
}

/* A block that was just freed is the cheapest one to allocate. Blocks above CACHED_BYTES are slower in the C
 * library than here, so they are no limit. */
static double heap_limit(struct bench_job *job, char ret_name[LIMIT_NAME_BYTES]) {
    struct remo__random random;
    remo__random_seed(&random, 1);
    double best = time_malloc(job->point, &random);
    for (uint32_t round = 1; round < LIMIT_ROUNDS; round++)
        best = fmin(best, time_malloc(job->point, &random));
    snprintf(ret_name, LIMIT_NAME_BYTES, "malloc and free of one block of at most 1 KiB");
    return best;
}

const struct bench bench_heap = {
    .name = "heap",
    .object = "heap",
    .description = "free a random block of 4 MiB of blocks and allocate another (both are one operation)",
    .list = heap_list,
    .open = heap_open,
    .close = heap_close,
    .begin = heap_begin,
    .operate = heap_operate,
    .check = heap_check,
    .limit = heap_limit,
};
