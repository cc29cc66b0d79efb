/* runner.c - threads that run transactions (runner.h).
 * Each task has its own transaction object. */
#include "bench/tx/runner.h"

#include <string.h>

#include "base/bits.h"

#define TASKS_DEFAULT 8u

const enum remo_table_lookups tx_lookups[TX_TABLES] = {REMO_TABLE_READS_FIRST, REMO_TABLE_CALLS_ONLY};
const struct tx_config tx_configs[TX_CONFIGS] = {
    {"one-two-sided", 0, REMO_TX_LATE}, {"calls only", 1, REMO_TX_LATE}, {"early locks", 0, REMO_TX_EARLY}};

/* ---- points ---- */

uint64_t tx_count_keys(const struct bench_options *options, const struct tx_sizes *sizes) {
#ifdef REMO_SIM
    uint64_t otherwise = sizes->simulated;
#else
    uint64_t otherwise = strcmp(options->fabric, "shm") == 0 ? sizes->mapped : sizes->network;
#endif
    return options->keys_count ? options->keys_count : otherwise;
}

uint32_t tx_list(const struct bench_options *options, const struct tx_sizes *sizes,
                 struct bench_point ret_points[BENCH_POINTS_MAX]) {
    uint32_t count = 0;
    for (uint32_t config = 0; config < TX_CONFIGS; config++)
        for (uint32_t many = 0; many < (options->window ? 1u : 2u); many++) {
            struct bench_point *point = &ret_points[count++];
            *point = (struct bench_point)BENCH_POINT_DEFAULT;
            point->variant = tx_configs[config].name;
            point->keys_count = tx_count_keys(options, sizes);
            point->window = options->window ? options->window : many ? TASKS_DEFAULT : 1;
            point->active = options->active ? bench_active(options) : options->nodes;
        }
    return count;
}

const struct tx_config *tx_config_of(const struct bench_job *job) {
    const struct tx_config *config = tx_configs;
    while (config->name != job->point->variant)
        config++;
    return config;
}

/* ---- runners ---- */

static int run_in_task(struct bench_tasks *tasks, uint32_t task) {
    struct tx_runner *runner = remo__container_of(tasks, struct tx_runner, tasks);
    return runner->run(runner, runner->txs[task]);
}

int tx_runner_open(struct tx_runner *runner, struct bench_thread *thread, struct remo_tx_space *space,
                   uint64_t point_number, int (*run)(struct tx_runner *runner, struct remo_tx *tx)) {
    uint32_t window = thread->job->point->window;
    int rc = 0;
    runner->thread = thread;
    runner->run = run;
    /* Every point begins with the same seed. Without a change of the seed, inserts would find the rows that
     * the last point has inserted. */
    remo__random_seed(&thread->random, remo__random_next(&thread->random) + point_number);
    for (; runner->txs_count < window && rc == 0; runner->txs_count++)
        rc = remo_tx_open(space, &runner->txs[runner->txs_count]);
    return rc == 0 ? bench_tasks_open(&runner->tasks, thread->job->node, window, run_in_task) : rc;
}

int tx_runner_close(struct tx_runner *runner) {
    int rc = bench_tasks_close(&runner->tasks);
    for (uint32_t i = 0; i < runner->txs_count; i++)
        remo_tx_close(runner->txs[i]);
    return rc;
}

int tx_collect(struct bench_job *job, const void *counts, size_t bytes, const void **ret_all) {
    int rc = remo_region_write(job->scratch, 0, job->rank * bytes, counts, bytes, 0, NULL);
    if (rc == 0)
        rc = remo_barrier_wait(job->barrier, REMO_FOREVER);
    *ret_all = rc == 0 && job->rank == 0 ? remo_region_local(job->scratch) : NULL;
    return rc;
}
