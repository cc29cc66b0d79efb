/* task.c - tasks: a switch, alone and with many parked tasks; spawn and join.
 * The limit is the stack switch without a scheduler. Tasks that switch run the same function, as those of a
 * server do: the processor then predicts its returns correctly. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/context.h"
#include "base/error.h"
#include "bench/bench.h"

#define PARKED 10000u
#define LIMIT_ROUNDS 9u
#define LIMIT_SWITCHES 100000u

enum point { SWITCH, SWITCH_PARKED, SPAWN, POINTS };
static const char *const names[] = {"switch", "switch, 10000 parked", "spawn and join"};

/* The tasks of one thread. */
struct tasks {
    struct remo_scheduler *scheduler;
    struct remo_lock *lock;
    remo_task_id partner, parked[PARKED];
    uint64_t partner_left; /* yields of the partner */
};

static uint32_t task_list(const struct bench_options *options, struct bench_point points[BENCH_POINTS_MAX]) {
    for (uint32_t i = 0; i < POINTS; i++) {
        points[i] = (struct bench_point)BENCH_POINT_DEFAULT;
        points[i].active = bench_active(options);
        points[i].variant = names[i];
    }
    return POINTS;
}

/* Each thread has a lock of its own node. */
static int task_open(struct bench_job *job) {
    struct remo_lock *lock = NULL;
    struct remo_lock_options options = {.count = BENCH_THREADS_MAX * job->size};
    int rc = remo_lock_open(job->channel, "locks", &options, &lock);
    job->state = lock;
    return rc;
}

static void task_close(struct bench_job *job) {
    remo_lock_close(job->state);
    job->state = NULL;
}

static uint32_t lock_of(const struct bench_thread *thread) {
    return thread->index * thread->job->size + thread->job->rank;
}

static __attribute__((noinline)) int yield_times(void *ctx) {
    uint64_t *left = ctx;
    for (; *left > 0; --*left)
        remo_task_yield();
    return 0;
}

/* Wait for the lock, which the thread holds while it measures. */
static int wait_for_lock(void *ctx) {
    const struct bench_thread *thread = ctx;
    int rc = remo_lock_acquire(thread->job->state, lock_of(thread), REMO_FOREVER);
    return rc != 0 ? rc : remo_lock_release(thread->job->state, lock_of(thread), REMO_FENCE_NONE);
}

static int return_zero(void *ctx) {
    (void)ctx;
    return 0;
}

static int park_tasks(struct bench_thread *thread, struct tasks *tasks) {
    int rc = remo_lock_acquire(tasks->lock, lock_of(thread), REMO_FOREVER);
    for (uint32_t i = 0; i < PARKED && rc == 0; i++)
        rc = remo_task_spawn(tasks->scheduler, wait_for_lock, thread, &tasks->parked[i]);
    remo_task_yield();
    return rc;
}

static bool is_point(const struct bench_thread *thread, enum point point) {
    return thread->job->point->variant == names[point];
}

static int task_begin(struct bench_thread *thread) {
    struct remo_scheduler_options options = {.task_count_max = PARKED + 1,
                                             .stack_bytes = REMO_TASK_STACK_BYTES_MIN};
    struct tasks *tasks = calloc(1, sizeof *tasks);
    if (!tasks)
        return remo__fail(-ENOMEM, "no memory for the benchmark");
    thread->state = tasks;
    tasks->lock = thread->job->state;
    tasks->partner_left = UINT64_MAX;
    int rc = remo_scheduler_open(thread->job->node, &options, &tasks->scheduler);
    if (rc == 0 && is_point(thread, SWITCH_PARKED))
        rc = park_tasks(thread, tasks);
    if (rc == 0 && !is_point(thread, SPAWN))
        rc = remo_task_spawn(tasks->scheduler, yield_times, &tasks->partner_left, &tasks->partner);
    return rc;
}

/* Each yield is one switch: to the partner, or back. */
static int task_operate(struct bench_thread *thread, uint64_t operations) {
    struct tasks *tasks = thread->state;
    int rc = 0;
    uint64_t own_left = operations / 2;
    if (!is_point(thread, SPAWN))
        return yield_times(&own_left);
    for (uint64_t n = 0; n < operations && rc == 0; n++) {
        remo_task_id task;
        rc = remo_task_spawn(tasks->scheduler, return_zero, NULL, &task);
        if (rc == 0)
            rc = remo_task_join(tasks->scheduler, task, REMO_FOREVER, NULL);
    }
    return rc;
}

static int join_parked(struct bench_thread *thread, struct tasks *tasks) {
    int result = 0, rc = remo_lock_release(tasks->lock, lock_of(thread), REMO_FENCE_NONE);
    for (uint32_t i = 0; i < PARKED && rc == 0; i++) {
        rc = remo_task_join(tasks->scheduler, tasks->parked[i], REMO_FOREVER, &result);
        rc = rc == 0 ? result : rc;
    }
    return rc;
}

static int task_finish(struct bench_thread *thread) {
    struct tasks *tasks = thread->state;
    int rc = 0;
    if (tasks->partner != 0) {
        tasks->partner_left = 1;
        rc = remo_task_join(tasks->scheduler, tasks->partner, REMO_FOREVER, NULL);
    }
    if (rc == 0 && tasks->parked[0] != 0)
        rc = join_parked(thread, tasks);
    if (rc == 0)
        rc = remo_scheduler_close(tasks->scheduler);
    free(tasks);
    thread->state = NULL;
    return rc;
}

/* ---- limit ---- */

static struct remo__context contexts[2];

static __attribute__((noinline)) void switch_times(uint32_t from, uint64_t times) {
    for (uint64_t n = 0; n < times; n++)
        remo__context_switch(&contexts[from], &contexts[1 - from]);
}

static void switch_back(void) {
    remo__context_started();
    for (;;)
        switch_times(1, UINT64_MAX);
}

static double time_switches(void) {
    uint64_t start_ns = remo__now_ns();
    switch_times(0, LIMIT_SWITCHES / 2);
    return (double)(remo__now_ns() - start_ns) / LIMIT_SWITCHES;
}

static double task_limit(struct bench_job *job, char ret_name[LIMIT_NAME_BYTES]) {
    double switches = job->point->variant == names[SPAWN] ? 2 : 1, best = INFINITY;
    char *stack = aligned_alloc(64, REMO_TASK_STACK_BYTES_MIN);
    if (!stack)
        return 0;
    remo__context_make(&contexts[1], stack, REMO_TASK_STACK_BYTES_MIN, switch_back);
    for (uint32_t round = 0; round < LIMIT_ROUNDS; round++)
        best = fmin(best, time_switches());
    remo__context_free(&contexts[1]);
    free(stack);
    snprintf(ret_name, LIMIT_NAME_BYTES, switches > 1 ? "two bare stack switches" : "bare stack switch");
    return switches * best;
}

const struct bench bench_task = {
    .name = "task",
    .object = "task",
    .description = "switch to another task of the thread; spawn a task and join it",
    .list = task_list,
    .open = task_open,
    .close = task_close,
    .begin = task_begin,
    .operate = task_operate,
    .finish = task_finish,
    .limit = task_limit,
};
