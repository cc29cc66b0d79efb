/* smallbank.c - the SmallBank benchmark on Remo. 40 % of the transactions use two customers, whose accounts
 * may have different owners. Two sets of tables have the same rows: the first finds them by reads and calls,
 * the second by calls only. A variant locks the rows of the first set early. A transaction in conflict is
 * repeated. After each point, the sum of all accounts must be right. It shows lost and partial changes, but
 * not that a row which was only read has changed: the simulator checks that. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/bits.h"
#include "base/error.h"
#include "bench/tx/runner.h"
#include "bench/tx/smallbank_rows.h"

static const struct tx_sizes sizes = {.mapped = 1000000, .network = 20000, .simulated = 2000};

/* The tables of one way to find rows. */
struct accounts {
    struct remo_table *of[SMALLBANK_TABLES];
    struct remo_tx_space *space, *early; /* with late and with early locks */
    uint64_t customers;
    struct smallbank_counts counts; /* of all points so far; at node 0 */
};

/* The report of a node after a point. */
struct report {
    struct smallbank_counts counts;
    int64_t sum; /* of the accounts that it owns */
};

struct state {
    struct accounts accounts[TX_TABLES];
    uint64_t points; /* how many have ended */
    pthread_mutex_t lock;
    struct smallbank_counts counts; /* of the threads of this node that have finished the point */
};

struct runner {
    struct tx_runner tx;
    const struct accounts *accounts;
    bool is_early;
    struct smallbank_counts counts;
};

static uint32_t smallbank_list(const struct bench_options *options,
                               struct bench_point points[BENCH_POINTS_MAX]) {
    return tx_list(options, &sizes, points);
}

/* ---- the job ---- */

static struct remo_structure *structure_of(const struct accounts *accounts, enum smallbank_table table) {
    return remo_table_structure(accounts->of[table]);
}

static int open_accounts(struct bench_job *job, uint32_t set, struct accounts *ret_accounts) {
    static const char *const names[SMALLBANK_TABLES] = {"savings", "checking"};
    struct remo_structure *structures[SMALLBANK_TABLES];
    char name[32];
    int rc = 0;
    ret_accounts->customers = tx_count_keys(job->options, &sizes);
    const struct remo_table_options table = {.capacity = ret_accounts->customers,
                                             .key_bytes_max = sizeof(uint64_t),
                                             .value_bytes_max = sizeof(struct smallbank_row),
                                             .lookups = tx_lookups[set]};
    for (uint32_t i = 0; i < SMALLBANK_TABLES && rc == 0; i++) {
        snprintf(name, sizeof name, "%s-%u", names[i], set);
        rc = remo_table_open(job->channel, name, &table, &ret_accounts->of[i]);
        structures[i] = structure_of(ret_accounts, i);
    }
    struct remo_tx_space_options space = {.structures = structures, .structure_count = SMALLBANK_TABLES};
    snprintf(name, sizeof name, "bank-%u", set);
    if (rc == 0)
        rc = remo_tx_space_open(job->channel, name, &space, &ret_accounts->space);
    space.locks = REMO_TX_EARLY;
    snprintf(name, sizeof name, "bank-%u-early", set);
    return rc == 0 ? remo_tx_space_open(job->channel, name, &space, &ret_accounts->early) : rc;
}

static int smallbank_open(struct bench_job *job) {
    struct state *state = calloc(1, sizeof *state);
    int rc = 0;
    if (!state)
        return remo__fail(-ENOMEM, "no memory for the benchmark");
    job->state = state;
    pthread_mutex_init(&state->lock, NULL);
    for (uint32_t i = 0; i < TX_TABLES && rc == 0; i++)
        rc = open_accounts(job, i, &state->accounts[i]);
    return rc;
}

static void smallbank_close(struct bench_job *job) {
    struct state *state = job->state;
    if (!state)
        return;
    for (uint32_t i = 0; i < TX_TABLES; i++) {
        remo_tx_space_close(state->accounts[i].space);
        remo_tx_space_close(state->accounts[i].early);
        for (uint32_t table = 0; table < SMALLBANK_TABLES; table++)
            remo_table_close(state->accounts[i].of[table]);
    }
    pthread_mutex_destroy(&state->lock);
    free(state);
    job->state = NULL;
}

/* Insert the accounts of a customer that this node owns. */
static int insert_own(const struct accounts *accounts, uint32_t rank, uint64_t customer) {
    const struct smallbank_row row = {customer, SMALLBANK_INITIAL};
    int rc = 0;
    for (uint32_t table = 0; table < SMALLBANK_TABLES && rc == 0; table++)
        if (remo_table_owner(accounts->of[table], &customer, sizeof customer) == rank)
            rc = remo_structure_insert(structure_of(accounts, table), &customer, sizeof customer, &row,
                                       sizeof row);
    return rc;
}

static int smallbank_fill(struct bench_job *job) {
    const struct state *state = job->state;
    uint64_t customers = state->accounts[0].customers;
    int rc = 0;
    for (uint64_t customer = 0; customer < customers && rc == 0; customer++) {
        bench_progress(job, "inserting accounts", customer, customers);
        for (uint32_t i = 0; i < TX_TABLES && rc == 0; i++)
            rc = insert_own(&state->accounts[i], job->rank, customer);
    }
    if (rc == 0)
        rc = remo_barrier_wait(job->barrier, REMO_FOREVER);
    if (rc == 0)
        bench_touch(job);
    return rc;
}

/* ---- transactions ---- */

/* A transaction, until it is committed. */
struct run {
    const struct accounts *accounts;
    struct remo_tx *tx;
    bool is_early;
    struct smallbank_call call;
    uint64_t attempts;
};

static int fail_account(uint64_t customer) {
    return remo__fail(-EIO, "the benchmark is wrong: customer %llu has no account of %zu bytes",
                      (unsigned long long)customer, sizeof(struct smallbank_row));
}

/* Return whether the transaction changes an account that it reads. */
static bool changes(const struct smallbank_call *call, enum smallbank_table table) {
    return !call->only_reads && (call->kind != SMALLBANK_WRITE_CHECK || table == SMALLBANK_CHECKING);
}

/* Lock the accounts that change, one after another. */
static int tx_lock(const struct run *run, const struct smallbank_account *accounts, uint32_t count,
                   struct smallbank_row *ret_rows) {
    int rc = 0;
    for (uint32_t i = 0; i < count && rc == 0; i++) {
        size_t bytes = 0;
        rc = (changes(&run->call, accounts[i].table) ? remo_tx_read_for_update : remo_tx_read)(
            run->tx, structure_of(run->accounts, accounts[i].table), &accounts[i].customer,
            sizeof accounts[i].customer, &ret_rows[i], sizeof ret_rows[i], &bytes);
        if (rc == -ENOENT || (rc == 0 && bytes != sizeof ret_rows[i]))
            rc = fail_account(accounts[i].customer);
    }
    return rc;
}

static int tx_read(void *tx, const struct smallbank_account *accounts, uint32_t count,
                   struct smallbank_row *ret_rows) {
    const struct run *run = tx;
    struct remo_tx_lookup lookups[SMALLBANK_READS_MAX];
    if (run->is_early && !run->call.only_reads)
        return tx_lock(run, accounts, count, ret_rows);
    for (uint32_t i = 0; i < count; i++)
        lookups[i] = (struct remo_tx_lookup){.structure = structure_of(run->accounts, accounts[i].table),
                                             .key = &accounts[i].customer,
                                             .key_bytes = sizeof accounts[i].customer,
                                             .value = &ret_rows[i],
                                             .cap = sizeof ret_rows[i]};
    int rc = remo_tx_read_many(run->tx, lookups, count);
    for (uint32_t i = 0; i < count && rc == 0; i++)
        if (lookups[i].status != 0 || lookups[i].value_bytes != sizeof ret_rows[i])
            rc = fail_account(accounts[i].customer);
    return rc;
}

static int tx_update(void *tx, enum smallbank_table table, const struct smallbank_row *row) {
    const struct run *run = tx;
    return remo_tx_update(run->tx, structure_of(run->accounts, table), &row->customer, sizeof row->customer,
                          row, sizeof *row);
}

static int fail_row(uint64_t customer, uint64_t other) {
    return remo__fail(-EIO, "the benchmark is wrong: the account of customer %llu belongs to %llu",
                      (unsigned long long)customer, (unsigned long long)other);
}

static int run_attempt(void *ctx, struct remo_tx *tx) {
    static const struct smallbank_store store = {tx_read, tx_update, fail_row};
    struct run *run = ctx;
    run->tx = tx;
    run->attempts++;
    return smallbank_execute(&run->call, &store, run);
}

static int run_one(struct tx_runner *tx_runner, struct remo_tx *tx) {
    struct runner *runner = remo__container_of(tx_runner, struct runner, tx);
    struct run run = {.accounts = runner->accounts,
                      .is_early = runner->is_early,
                      .call = smallbank_draw(runner->accounts->customers, &tx_runner->thread->random)};
    int rc = remo_tx_run(tx, run_attempt, &run, REMO_FOREVER);
    if (rc != 0)
        return rc;
    smallbank_count(&runner->counts, &run.call);
    runner->counts.repeated += run.attempts - 1;
    return 0;
}

static int smallbank_begin(struct bench_thread *thread) {
    const struct state *state = thread->job->state;
    struct runner *runner = calloc(1, sizeof *runner);
    if (!runner)
        return remo__fail(-ENOMEM, "no memory for the benchmark");
    thread->state = runner;
    const struct tx_config *config = tx_config_of(thread->job);
    runner->accounts = &state->accounts[config->tables];
    runner->is_early = config->locks == REMO_TX_EARLY;
    return tx_runner_open(&runner->tx, thread,
                          runner->is_early ? runner->accounts->early : runner->accounts->space, state->points,
                          run_one);
}

static int smallbank_operate(struct bench_thread *thread, uint64_t operations) {
    struct runner *runner = thread->state;
    return tx_runner_operate(&runner->tx, operations);
}

static int smallbank_finish(struct bench_thread *thread) {
    struct state *state = thread->job->state;
    struct runner *runner = thread->state;
    if (!runner)
        return 0;
    int rc = tx_runner_close(&runner->tx);
    pthread_mutex_lock(&state->lock);
    smallbank_add_counts(&state->counts, &runner->counts);
    pthread_mutex_unlock(&state->lock);
    free(runner);
    thread->state = NULL;
    return rc;
}

/* ---- check ---- */

/* Add up the accounts that this node owns. */
static int sum_own(const struct bench_job *job, const struct accounts *accounts, int64_t *ret_sum) {
    int rc = 0;
    *ret_sum = 0;
    for (uint64_t customer = 0; customer < accounts->customers; customer++)
        for (uint32_t table = 0; table < SMALLBANK_TABLES; table++) {
            struct smallbank_row row;
            if (remo_table_owner(accounts->of[table], &customer, sizeof customer) != job->rank)
                continue;
            rc = remo_structure_lookup(structure_of(accounts, table), &customer, sizeof customer, &row,
                                       sizeof row, NULL, NULL);
            if (rc != 0)
                return rc;
            *ret_sum += row.balance;
        }
    return 0;
}

static int check_sum(const struct accounts *accounts, int64_t sum) {
    int64_t expected = smallbank_sum(accounts->customers, &accounts->counts);
    return sum == expected
               ? 0
               : remo__fail(-EIO, "the benchmark is wrong: the sum of all accounts is %lld, not %lld",
                            (long long)sum, (long long)expected);
}

static int smallbank_check(struct bench_job *job) {
    struct state *state = job->state;
    struct accounts *accounts = &state->accounts[tx_config_of(job)->tables];
    struct smallbank_counts all = {0};
    struct report own = {.counts = state->counts};
    const void *collected = NULL;
    int64_t sum = 0;
    state->points++;
    state->counts = all;
    int rc = sum_own(job, accounts, &own.sum);
    if (rc == 0)
        rc = tx_collect(job, &own, sizeof own, &collected);
    if (!collected)
        return rc;
    const struct report *of = collected;
    for (uint32_t node = 0; node < job->size; node++) {
        smallbank_add_counts(&all, &of[node].counts);
        sum += of[node].sum;
    }
    smallbank_add_counts(&accounts->counts, &all);
    job->repeats = all.tried > 0 ? (double)all.repeated / (double)all.tried : 0;
    return check_sum(accounts, sum);
}

const struct bench bench_smallbank = {
    .name = "smallbank",
    .object = "tx",
    .description =
        "SmallBank: transactions on the accounts of 1 M customers (--keys), often of two owners, in "
        "1 and 8 tasks (--window): found by reads and calls, by calls only, and with early locks",
    .list = smallbank_list,
    .open = smallbank_open,
    .fill = smallbank_fill,
    .close = smallbank_close,
    .begin = smallbank_begin,
    .operate = smallbank_operate,
    .finish = smallbank_finish,
    .check = smallbank_check,
};
