/* workers.c - implements workers.h: a second scheduler of the thread, whose root is the caller of
 * remo__workers_run. The root is READY whenever a worker runs. So a worker that parks always finds a task to
 * which it can switch, and never sleeps. */
#include "remote/workers.h"

#include <remo/task.h>

#include "remote/op.h"

int remo__worker_start(struct remo__thread *thread, int (*run)(void *ctx), void *ctx) {
    if (!thread->workers) {
        int rc = remo__scheduler_open(thread, thread->index | REMO__HOLDER_WORKER, REMO__WORKERS_MAX,
                                      REMO_TASK_STACK_BYTES_MIN, false, &thread->workers);
        if (rc != 0)
            return remo__fail(rc,
                              "cannot start the workers of a thread: no memory for %u stacks; raise ulimit "
                              "-v, or vm.max_map_count by %u for each thread, or use fewer threads",
                              REMO__WORKERS_MAX, 2 * REMO__WORKERS_MAX);
    }
    if (!remo__task_spawn(thread->workers, run, ctx, true))
        return remo__fail_static(-EAGAIN, "all workers of the thread are in use");
    return 0;
}

static void run_ready(struct remo__scheduler *workers) {
    if (!workers->node->mapped)
        (void)remo__slots_progress(workers->thread);
    /* A worker that waits for a lock must not wait until no other is ready: it may hold the lock already. */
    (void)remo__scheduler_check(workers, true);
    if (workers->timer_count > 0)
        remo__scheduler_expire(workers);
    while (workers->first_ready) {
        remo__scheduler_append(workers, workers->running);
        remo__scheduler_switch(workers);
    }
}

void remo__workers_run(struct remo__thread *thread) {
    struct remo__scheduler *workers = thread->workers, *scheduler = remo__scheduler;
    if (!workers || !remo__scheduler_lives(workers))
        return;
    struct remo__task *root = &workers->tasks[0];
    struct remo__last_error *last_error = remo__last_error_of_task;
    uint32_t holder = thread->holder;
    root->context = (struct remo__context){0}; /* the caller may be another task than last time */
    root->last_error = last_error;
    root->holder = holder;
    remo__scheduler = workers;
    uint32_t depth =
        thread->node->mapped ? 0 : remo__slots_recork(thread, 0); /* a worker that parks sets 0 */
    workers->now_ns = 0;
    run_ready(workers);
    if (depth > 0)
        (void)remo__slots_recork(thread, depth);
    remo__scheduler = scheduler;
    remo__last_error_of_task = last_error;
    thread->holder = holder;
}

uint32_t remo__workers_count(const struct remo__thread *thread) {
    return thread->workers ? thread->workers->task_count : 0;
}

void remo__worker_report(struct remo__last_error *of_task) {
    struct remo__last_error *own = remo__last_error_of_task;
    const char *sentence = remo_last_error();
    int code = remo__sentence_code();
    remo__last_error_of_task = of_task;
    remo__fail(code, "%s", sentence);
    remo__last_error_of_task = own;
}
