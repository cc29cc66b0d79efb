/* tasks.c - the tasks in which a thread of a benchmark operates (bench.h).
 * Each task begins its next operation when it has ended one, also between two timings. */
#include "bench/bench.h"
#include "remote/wait.h"

int bench_tasks_open(struct bench_tasks *tasks, struct remo_node *node, uint32_t count,
                     int (*run)(struct bench_tasks *tasks, uint32_t task)) {
    struct remo_scheduler_options options = {.task_count_max = count};
    tasks->node = node;
    tasks->count = count;
    tasks->run = run;
    return count > 1 ? remo_scheduler_open(node, &options, &tasks->scheduler) : 0;
}

static bool has_reached(const struct bench_tasks *tasks) {
    return tasks->ended >= tasks->goal || tasks->rc != 0;
}

/* A task: operate until the point ends. */
static int run_all(void *ctx) {
    struct bench_tasks *tasks = ctx;
    uint32_t task = tasks->started++;
    while (!tasks->stops && tasks->rc == 0) {
        int rc = tasks->run(tasks, task);
        tasks->rc = rc != 0 ? rc : tasks->rc;
        tasks->ended++;
        if (tasks->waiter && has_reached(tasks)) {
            remo__task_resume(tasks->waiter);
            tasks->waiter = NULL;
        }
    }
    return tasks->rc;
}

/* Let the tasks run until the goal is reached. */
static void run_tasks(struct bench_tasks *tasks) {
    for (; tasks->spawned < tasks->count && tasks->rc == 0; tasks->spawned += tasks->rc == 0)
        tasks->rc = remo_task_spawn(tasks->scheduler, run_all, tasks, &tasks->ids[tasks->spawned]);
    while (!has_reached(tasks)) {
        tasks->waiter = remo__scheduler->running;
        (void)remo__wait_resumed(tasks->node, REMO_FOREVER);
    }
}

int bench_tasks_operate(struct bench_tasks *tasks, uint64_t operations) {
    tasks->goal += operations;
    if (tasks->scheduler)
        run_tasks(tasks);
    for (; !tasks->scheduler && !has_reached(tasks); tasks->ended++)
        tasks->rc = tasks->run(tasks, 0);
    return tasks->rc;
}

int bench_tasks_close(struct bench_tasks *tasks) {
    tasks->stops = true;
    for (uint32_t i = 0; i < tasks->spawned; i++)
        (void)remo_task_join(tasks->scheduler, tasks->ids[i], REMO_FOREVER, NULL);
    int rc = tasks->scheduler ? remo_scheduler_close(tasks->scheduler) : 0;
    tasks->scheduler = NULL;
    return rc != 0 ? rc : tasks->rc;
}
