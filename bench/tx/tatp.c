/* tatp.c - the TATP benchmark: transactions on the subscribers of a telephone network, 80 % of which only
 * read (Storm 6.2.3). Two sets of tables have the same rows: the first finds them by reads and calls, the
 * second by calls only. A variant locks the rows of the first set early. Each node draws from all
 * subscribers, also those of other owners. A transaction in conflict is repeated. After each point, the
 * shares of transactions that found their rows must be those that follow from the population. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/error.h"
#include "bench/tx/runner.h"
#include "bench/tx/tatp.h"

static const struct tx_sizes sizes = {.mapped = 1000000, .network = 20000, .simulated = 1000};

struct state {
    struct tatp_tables tables[TX_TABLES];
    uint64_t subscribers, points; /* points: how many have ended */
    pthread_mutex_t lock;
    struct tatp_counts counts; /* of the threads of this node that have finished the point */
};

struct runner {
    struct tx_runner tx;
    const struct tatp_tables *tables;
    struct tatp_counts counts;
};

static uint32_t tatp_list(const struct bench_options *options, struct bench_point points[BENCH_POINTS_MAX]) {
    return tx_list(options, &sizes, points);
}

/* ---- the job ---- */

static int tatp_open_all(struct bench_job *job) {
    struct state *state = calloc(1, sizeof *state);
    int rc = 0;
    if (!state)
        return remo__fail(-ENOMEM, "no memory for the benchmark");
    job->state = state;
    pthread_mutex_init(&state->lock, NULL);
    state->subscribers = tx_count_keys(job->options, &sizes);
    for (uint32_t i = 0; i < TX_TABLES && rc == 0; i++) {
        char name[16];
        snprintf(name, sizeof name, "tatp-%u", i);
        rc = tatp_open(job->channel, name, state->subscribers, tx_lookups[i], &state->tables[i]);
    }
    return rc;
}

static void tatp_close_all(struct bench_job *job) {
    struct state *state = job->state;
    if (!state)
        return;
    for (uint32_t i = 0; i < TX_TABLES; i++)
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
        for (uint32_t i = 0; i < TX_TABLES && rc == 0; i++)
            rc = tatp_insert(&state->tables[i], job->rank, subscriber);
    }
    if (rc == 0)
        rc = remo_barrier_wait(job->barrier, REMO_FOREVER);
    if (rc == 0)
        bench_touch(job);
    return rc;
}

/* ---- transactions ---- */

static int run_one(struct tx_runner *tx_runner, struct remo_tx *tx) {
    struct runner *runner = remo__container_of(tx_runner, struct runner, tx);
    return tatp_run(runner->tables, tx, &tx_runner->thread->random, &runner->counts);
}

static int tatp_begin(struct bench_thread *thread) {
    const struct state *state = thread->job->state;
    struct runner *runner = calloc(1, sizeof *runner);
    if (!runner)
        return remo__fail(-ENOMEM, "no memory for the benchmark");
    thread->state = runner;
    const struct tx_config *config = tx_config_of(thread->job);
    runner->tables = &state->tables[config->tables];
    return tx_runner_open(&runner->tx, thread,
                          config->locks == REMO_TX_EARLY ? runner->tables->early : runner->tables->space,
                          state->points, run_one);
}

static int tatp_operate(struct bench_thread *thread, uint64_t operations) {
    struct runner *runner = thread->state;
    return tx_runner_operate(&runner->tx, operations);
}

static int tatp_finish(struct bench_thread *thread) {
    struct state *state = thread->job->state;
    struct runner *runner = thread->state;
    if (!runner)
        return 0;
    int rc = tx_runner_close(&runner->tx);
    pthread_mutex_lock(&state->lock);
    tatp_add_counts(&state->counts, &runner->counts);
    pthread_mutex_unlock(&state->lock);
    free(runner);
    thread->state = NULL;
    return rc;
}

/* ---- check ---- */

static int tatp_check(struct bench_job *job) {
    struct state *state = job->state;
    struct tatp_counts all = {0};
    char sentence[TATP_SENTENCE_BYTES];
    const void *collected;
    int rc = tx_collect(job, &state->counts, sizeof state->counts, &collected);
    state->counts = all;
    state->points++;
    if (!collected)
        return rc;
    const struct tatp_counts *of = collected;
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
                   "(--window): found by reads and calls, by calls only, and with early locks",
    .list = tatp_list,
    .open = tatp_open_all,
    .fill = tatp_fill,
    .close = tatp_close_all,
    .begin = tatp_begin,
    .operate = tatp_operate,
    .finish = tatp_finish,
    .check = tatp_check,
};
