/* tasks.c - the tasks in which a thread of a benchmark operates (bench.h).
 * Each call spawns its tasks and joins them, so no task runs between two calls. */
#include "bench/bench.h"

int bench_run_tasks(struct remo_scheduler *scheduler, uint32_t tasks, int (*run)(void *ctx), void *ctx) {
    remo_task_id ids[BENCH_WINDOW_MAX];
    uint32_t spawned = 0;
    int rc = 0;
    if (!scheduler)
        return run(ctx);
    for (; spawned < tasks && rc == 0; spawned += rc == 0)
        rc = remo_task_spawn(scheduler, run, ctx, &ids[spawned]);
    for (uint32_t i = 0; i < spawned; i++) {
        int result = 0;
        (void)remo_task_join(scheduler, ids[i], REMO_FOREVER, &result);
        rc = rc != 0 ? rc : result;
    }
    return rc;
}
