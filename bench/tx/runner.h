/* runner.h - what the benchmarks of transactions share: their two sets of tables, threads that run
 * transactions in one or several tasks, and counts of all nodes. */
#pragma once

#include <remo/table.h>
#include <remo/tx.h>

#include "bench/bench.h"

/* The ways in which a set of tables finds its rows. */
#define TX_TABLES 2u
extern const enum remo_table_lookups tx_lookups[TX_TABLES];

/* A variant: a set of tables, and when its transactions lock. */
struct tx_config {
    const char *name;
    uint32_t tables;
    enum remo_tx_locks locks;
};
#define TX_CONFIGS 3u
extern const struct tx_config tx_configs[TX_CONFIGS];

/* The number of rows, by --keys or the fabric. */
struct tx_sizes {
    uint64_t mapped, network, simulated;
};

/* List a point with one task and one with several, for each variant; all nodes operate. Returns their
 * number. */
uint32_t tx_list(const struct bench_options *options, const struct tx_sizes *sizes,
                 struct bench_point ret_points[BENCH_POINTS_MAX]);
uint64_t tx_count_keys(const struct bench_options *options, const struct tx_sizes *sizes);
/* Return the variant of the current point. */
const struct tx_config *tx_config_of(const struct bench_job *job);

/* Runs the transactions of a thread, in tasks or in the thread itself. */
struct tx_runner {
    struct bench_thread *thread;
    struct bench_tasks tasks;
    struct remo_tx *txs[BENCH_WINDOW_MAX]; /* one for each task */
    uint32_t txs_count;
    /* Run one transaction. Returns 0 or the error that ends the point. */
    int (*run)(struct tx_runner *runner, struct remo_tx *tx);
};

/* Open the transaction objects and the scheduler of a point. `point_number`: how many points have ended; it
 * changes the seed of the thread. Errors: those of remo_tx_open and remo_scheduler_open. */
int tx_runner_open(struct tx_runner *runner, struct bench_thread *thread, struct remo_tx_space *space,
                   uint64_t point_number, int (*run)(struct tx_runner *runner, struct remo_tx *tx));
static inline int tx_runner_operate(struct tx_runner *runner, uint64_t operations) {
    return bench_tasks_operate(&runner->tasks, operations);
}
/* End the transactions in flight. Also after tx_runner_open has failed. Errors: those of
 * remo_scheduler_close, and of these transactions. */
int tx_runner_close(struct tx_runner *runner);

/* Collect the counts of all nodes, at the end of a point. At node 0, *ret_all is an array with an element for
 * each node; elsewhere it is NULL. Errors: those of remo_region_write and remo_barrier_wait. */
int tx_collect(struct bench_job *job, const void *counts, size_t bytes, const void **ret_all);
