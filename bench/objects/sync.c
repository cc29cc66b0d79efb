/* sync.c - barrier and lock.
 * The lock is measured uncontended, then contended by all nodes. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "bench/bench.h"

/* ---- barrier ---- */

static uint32_t barrier_list(const struct bench_options *options,
                             struct bench_point points[BENCH_POINTS_MAX]) {
    points[0] = (struct bench_point)BENCH_POINT_DEFAULT;
    points[0].active = options->nodes;
    return 1;
}

static int barrier_open(struct bench_job *job) {
    struct remo_barrier *barrier = NULL;
    int rc = remo_barrier_open(job->channel, "barrier", NULL, &barrier);
    job->state = barrier;
    return rc;
}

static void barrier_close(struct bench_job *job) {
    remo_barrier_close(job->state);
    job->state = NULL;
}

static int barrier_operate(struct bench_thread *thread, uint64_t operations) {
    struct remo_barrier *barrier = thread->job->state;
    int rc = 0;
    for (uint64_t i = 0; i < operations && rc == 0; i++)
        rc = remo_barrier_wait(barrier, REMO_FOREVER);
    return rc;
}

/* The limit for two nodes is two flags; more nodes need more. */
static double barrier_limit(struct bench_job *job, char ret_name[LIMIT_NAME_BYTES]) {
    snprintf(ret_name, LIMIT_NAME_BYTES, "%s", LIMIT_BARRIER);
    return limit_barrier_ns(bench_scratch(job), bench_cpu(job->options, 0, 0), bench_cpu(job->options, 1, 0));
}

const struct bench bench_barrier = {
    .name = "barrier",
    .object = "barrier",
    .description = "all nodes meet",
    .collective = true,
    .list = barrier_list,
    .open = barrier_open,
    .close = barrier_close,
    .operate = barrier_operate,
    .limit = barrier_limit,
};

/* ---- lock ---- */

/* Each thread has its own lock at each other node; the last lock is shared by all. */
struct locks {
    struct remo_lock *lock;
    uint32_t shared;
};

static bool is_contended(const struct bench_point *point) {
    return point->variant && strcmp(point->variant, "contended") == 0;
}

static uint32_t lock_list(const struct bench_options *options, struct bench_point points[BENCH_POINTS_MAX]) {
    points[0] = (struct bench_point)BENCH_POINT_DEFAULT;
    points[0].active = bench_active(options);
    points[1] = points[0];
    points[1].variant = "contended";
    points[1].active = options->nodes;
    return options->nodes * options->threads > 1 ? 2 : 1;
}

/* Return this thread's own lock at its target: the home of lock i is node i mod n. */
static uint32_t own_lock(const struct bench_thread *thread) {
    const struct bench_job *job = thread->job;
    return (job->rank * job->options->threads + thread->index) * job->size + thread->target;
}

static int lock_open(struct bench_job *job) {
    struct locks *locks = calloc(1, sizeof *locks);
    if (!locks)
        return remo__fail(-ENOMEM, "no memory for the benchmark");
    job->state = locks;
    locks->shared = job->size * job->options->threads * job->size;
    struct remo_lock_options options = {.count = locks->shared + 1};
    for (uint32_t node = 0; node < job->size; node++)
        remo_nodeset_add(&options.homes, node);
    return remo_lock_open(job->channel, "locks", &options, &locks->lock);
}

static void lock_close(struct bench_job *job) {
    struct locks *locks = job->state;
    if (!locks)
        return;
    remo_lock_close(locks->lock);
    free(locks);
    job->state = NULL;
}

static int lock_operate(struct bench_thread *thread, uint64_t operations) {
    const struct locks *locks = thread->job->state;
    struct remo_lock *lock = locks->lock;
    uint32_t index = is_contended(thread->job->point) ? locks->shared : own_lock(thread);
    int rc = 0;
    for (uint64_t i = 0; i < operations && rc == 0; i++) {
        rc = remo_lock_acquire(lock, index, REMO_FOREVER);
        if (rc == 0)
            rc = remo_lock_release(lock, index, REMO_FENCE_NONE);
    }
    return rc;
}

/* A contended lock has the same limit: one node may hold it several times in succession. If two nodes share
 * it evenly, the time of an operation of one node is at least twice the limit. */
static double lock_limit(struct bench_job *job, char ret_name[LIMIT_NAME_BYTES]) {
    snprintf(ret_name, LIMIT_NAME_BYTES, "%s", LIMIT_LOCK);
    return limit_lock_ns(bench_scratch(job));
}

const struct bench bench_lock = {
    .name = "lock",
    .object = "lock",
    .description = "acquire and release an uncontended lock at another node; then all nodes the same lock",
    .list = lock_list,
    .open = lock_open,
    .close = lock_close,
    .operate = lock_operate,
    .limit = lock_limit,
};
