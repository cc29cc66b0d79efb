/* lmdb.c - LMDB, by processes that map one file of a tmpfs (lmdb_store.h): TATP and SmallBank, or the ordered
 * map (lmdb_tree.c). Each table is a database of the environment. */
#include "bench/peers/lmdb_store.h"

#include <string.h>

#include "base/bits.h"
#include "base/clock.h"

#define COMMIT_KEYS 10000u /* of a transaction of the population */

static const struct lmdb_workload *const workloads[] = {&lmdb_tatp, &lmdb_smallbank};

/* ---- work ---- */

static void fill(struct lmdb_store *store) {
    uint64_t keys = store->options->keys_count;
    for (uint64_t key = 1; key <= keys; key++) {
        if (!store->txn)
            lmdb_check(mdb_txn_begin(store->env, NULL, 0, &store->txn), "begin");
        store->workload->insert(store, key);
        if (key % COMMIT_KEYS == 0 || key == keys) {
            lmdb_check(mdb_txn_commit(store->txn), "commit");
            store->txn = NULL;
        }
    }
}

static double batch(void *ctx, uint64_t operations) {
    struct lmdb_store *store = ctx;
    uint64_t start_ns = remo__now_ns();
    for (uint64_t done = 0; done < operations; done++)
        store->workload->run(store);
    return (double)(remo__now_ns() - start_ns);
}

/* ---- the processes ---- */

static void report(struct lmdb_store *store) {
    struct measure_result all;
    union transaction_counts counts = {0};
    for (unsigned i = 0; i < store->processes.count; i++)
        store->workload->add_counts(&counts, processes_counts(&store->processes, i));
    lmdb_begin(store, true);
    store->workload->check(store, &counts);
    lmdb_end(store);
    processes_merge(&store->processes, &all);
    struct measure_subject subject = {.bench = store->workload->bench,
                                      .object = "tx",
                                      .nodes = (int)store->processes.count,
                                      .active = store->processes.count,
                                      .keys_count = store->options->keys_count,
                                      .read_percent = -1};
    measure_print(store->options, &subject, &all);
}

/* Measure in all processes. */
static void run_point(struct lmdb_store *store) {
    struct measure_result result;
    processes_barrier(&store->processes);
    measure_run(batch, store, 1, store->options->seconds, &result);
    processes_share(&store->processes, &result, &store->counts);
    processes_barrier(&store->processes);
    if (store->processes.index == 0)
        report(store);
    processes_barrier(&store->processes);
    measure_print_end((int)store->processes.index);
}

static void run_process(struct lmdb_store *store) {
    if (store->processes.index == 0)
        lmdb_open(store);
    processes_barrier(&store->processes);
    if (store->processes.index != 0)
        lmdb_open(store);
    processes_barrier(&store->processes);
    if (store->processes.index == 0) {
        lmdb_remove_folder();
        lmdb_open_tables(store, MDB_CREATE);
        fill(store);
    }
    processes_barrier(&store->processes);
    if (store->processes.index != 0)
        lmdb_open_tables(store, 0);
    lmdb_open_reader(store);
    remo__random_seed(&store->random, store->processes.index + 1);
    run_point(store);
}

static const struct lmdb_workload *find_workload(const char *bench) {
    for (size_t i = 0; i < REMO__ARRAY_COUNT(workloads); i++)
        if (strcmp(workloads[i]->bench, bench) == 0)
            return workloads[i];
    processes_fail("%s is not a benchmark of LMDB", bench);
}

int main(int argc, char **argv) {
    struct measure_options options;
    struct lmdb_store store = {.options = &options};
    measure_parse(argc, argv, &options);
    if (ordered_has(options.bench))
        return ordered_main(&lmdb_ordered, argc, argv);
    store.workload = find_workload(options.bench);
    store.tables = &store.workload->tables;
    processes_prepare(&store.processes, &options);
    lmdb_make_folder(&store);
    processes_start(&store.processes, &options);
    run_process(&store);
    return 0;
}
