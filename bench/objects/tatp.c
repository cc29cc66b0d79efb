/* tatp.c - the TATP benchmark: transactions on the subscribers of a telephone network, 80 % of which only
 * read (Storm 6.2.3). Two sets of tables have the same rows: the first finds them by reads and calls, the
 * second by calls only. Each node draws from all subscribers, also those of other owners. A transaction in
 * conflict is repeated. After each point, the shares of transactions that found their rows must be those that
 * follow from the population. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "bench/bench.h"
#include "bench/objects/tatp.h"

#define TASKS_DEFAULT 8u
#define SUBSCRIBERS_MAPPED 1000000u
#define SUBSCRIBERS_NETWORK 20000u
#define SUBSCRIBERS_SIMULATED 1000u

static const struct config {
    const char *name;
    enum remo_table_lookups lookups;
} configs[] = {{"one-two-sided", REMO_TABLE_READS_FIRST}, {"calls only", REMO_TABLE_CALLS_ONLY}};
#define CONFIGS (sizeof configs / sizeof configs[0])

struct state {
    struct tatp_tables tables[CONFIGS];
    uint64_t subscribers, points; /* points: how many have ended */
    pthread_mutex_t lock;
    struct tatp_counts counts; /* of the threads of this node that have finished the point */
};

/* A thread that runs transactions, itself or in tasks. */
struct runner {
    struct bench_thread *thread;
    const struct tatp_tables *tables;
    struct remo_scheduler *scheduler; /* NULL: the thread runs them itself */
    struct remo_tx *txs[BENCH_WINDOW_MAX];
    uint32_t tasks, next; /* next: the transaction object of the next task */
    uint64_t left;        /* transactions that no task has started yet */
    int rc;
    struct tatp_counts counts;
};

static uint64_t count_subscribers(const struct bench_options *options) {
#ifdef REMO_SIM
    uint64_t otherwise = SUBSCRIBERS_SIMULATED;
#else
    uint64_t otherwise = strcmp(options->fabric, "shm") == 0 ? SUBSCRIBERS_MAPPED : SUBSCRIBERS_NETWORK;
#endif
    return options->keys_count ? options->keys_count : otherwise;
}

static uint32_t tatp_list(const struct bench_options *options, struct bench_point points[BENCH_POINTS_MAX]) {
    uint32_t count = 0;
    for (uint32_t config = 0; config < CONFIGS; config++)
        for (uint32_t many = 0; many < (options->window ? 1u : 2u); many++) {
            struct bench_point *point = &points[count++];
            *point = (struct bench_point)BENCH_POINT_DEFAULT;
            point->variant = configs[config].name;
            point->keys_count = count_subscribers(options);
            point->window = options->window ? options->window : many ? TASKS_DEFAULT : 1;
            point->active = options->active ? bench_active(options) : options->nodes;
        }
    return count;
}

static const struct tatp_tables *tables_of(const struct bench_job *job) {
    const struct state *state = job->state;
    uint32_t config = 0;
    while (configs[config].name != job->point->variant)
        config++;
    return &state->tables[config];
}

/* ---- the job ---- */

static int tatp_open_all(struct bench_job *job) {
    struct state *state = calloc(1, sizeof *state);
    int rc = 0;
    if (!state)
        return remo__fail(-ENOMEM, "no memory for the benchmark");
    job->state = state;
    pthread_mutex_init(&state->lock, NULL);
    state->subscribers = count_subscribers(job->options);
    for (uint32_t i = 0; i < CONFIGS && rc == 0; i++) {
        char name[16];
        snprintf(name, sizeof name, "tatp-%u", i);
        rc = tatp_open(job->channel, name, state->subscribers, configs[i].lookups, &state->tables[i]);
    }
    return rc;
}

static void tatp_close_all(struct bench_job *job) {
    struct state *state = job->state;
    if (!state)
        return;
    for (uint32_t i = 0; i < CONFIGS; i++)
        tatp_close(&state->tables[i]);
    pthread_mutex_destroy(&state->lock);
    free(state);
    job->state = NULL;
}

/* Each node inserts the rows that it owns. */
static int tatp_fill(struct bench_job *job) {
    struct state *state = job->state;
    int rc = 0;
    for (uint64_t subscriber = 1; subscriber <= state->subscribers && rc == 0; subscriber++) {
        bench_progress(job, "inserting rows", subscriber, state->subscribers);
        for (uint32_t i = 0; i < CONFIGS && rc == 0; i++)
            rc = tatp_insert(&state->tables[i], job->rank, subscriber);
    }
    return rc == 0 ? remo_barrier_wait(job->barrier, REMO_FOREVER) : rc;
}

/* ---- transactions ---- */

static int open_transactions(struct runner *runner) {
    int rc = 0;
    for (uint32_t i = 0; i < runner->tasks && rc == 0; i++)
        rc = remo_tx_open(runner->tables->space, &runner->txs[i]);
    struct remo_scheduler_options options = {.task_count_max = runner->tasks};
    if (rc == 0 && runner->tasks > 1)
        rc = remo_scheduler_open(runner->thread->job->node, &options, &runner->scheduler);
    return rc;
}

static int tatp_begin(struct bench_thread *thread) {
    const struct state *state = thread->job->state;
    struct runner *runner = calloc(1, sizeof *runner);
    if (!runner)
        return remo__fail(-ENOMEM, "no memory for the benchmark");
    thread->state = runner;
    runner->thread = thread;
    runner->tables = tables_of(thread->job);
    runner->tasks = thread->job->point->window;
    /* Every point begins with the same seed. Without a change of it, inserts would find the rows that the
     * last point has inserted. */
    remo__random_seed(&thread->random, remo__random_next(&thread->random) + state->points);
    return open_transactions(runner);
}

/* A task, or the thread: run transactions while some are left. */
static int run_rest(void *ctx) {
    struct runner *runner = ctx;
    struct remo_tx *tx = runner->txs[runner->next++];
    while (runner->left > 0 && runner->rc == 0) {
        runner->left--;
        int rc = tatp_run(runner->tables, tx, &runner->thread->random, &runner->counts);
        runner->rc = rc != 0 ? rc : runner->rc;
    }
    return runner->rc;
}

static int tatp_operate(struct bench_thread *thread, uint64_t operations) {
    struct runner *runner = thread->state;
    runner->left = operations;
    runner->next = 0;
    return bench_run_tasks(runner->scheduler, runner->tasks, run_rest, runner);
}

static int tatp_finish(struct bench_thread *thread) {
    struct state *state = thread->job->state;
    struct runner *runner = thread->state;
    if (!runner)
        return 0;
    int rc = runner->scheduler ? remo_scheduler_close(runner->scheduler) : 0;
    for (uint32_t i = 0; i < runner->tasks; i++)
        remo_tx_close(runner->txs[i]);
    pthread_mutex_lock(&state->lock);
    tatp_add_counts(&state->counts, &runner->counts);
    pthread_mutex_unlock(&state->lock);
    free(runner);
    thread->state = NULL;
    return rc;
}

/* ---- check ---- */

/* Collect the counts of all nodes at node 0, in its scratch memory. */
static int tatp_check(struct bench_job *job) {
    struct state *state = job->state;
    struct tatp_counts all = {0};
    char sentence[TATP_SENTENCE_BYTES];
    int rc = remo_region_write(job->scratch, 0, job->rank * sizeof all, &state->counts, sizeof all, 0, NULL);
    if (rc == 0)
        rc = remo_barrier_wait(job->barrier, REMO_FOREVER);
    state->counts = all;
    state->points++;
    if (rc != 0 || job->rank != 0)
        return rc;
    const struct tatp_counts *of = remo_region_local(job->scratch);
    for (uint32_t node = 0; node < job->size; node++)
        tatp_add_counts(&all, &of[node]);
    double count = 0;
    for (uint32_t kind = 0; kind < TATP_KINDS; kind++)
        count += (double)all.tried[kind];
    job->repeats = count > 0 ? (double)all.repeated / count : 0;
    return tatp_check_shares(&all, state->subscribers, sentence) ? 0 : remo__fail(-EIO, "%s", sentence);
}

const struct bench bench_tatp = {
    .name = "tatp",
    .object = "tx",
    .description = "Storm 6.2.3: the transactions of TATP on 1 M subscribers (--keys), in 1 and 8 tasks "
                   "(--window): found by reads and calls, and by calls only",
    .list = tatp_list,
    .open = tatp_open_all,
    .fill = tatp_fill,
    .close = tatp_close_all,
    .begin = tatp_begin,
    .operate = tatp_operate,
    .finish = tatp_finish,
    .check = tatp_check,
};
