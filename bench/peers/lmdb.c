/* lmdb.c - LMDB: transactions by processes that map one file of a tmpfs (lmdb_store.h).
 * The file is not synchronised: a commit makes no system call for durability, as with Remo. Each table is a
 * database of the environment. */
#include "bench/peers/lmdb_store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"

#define FOLDER "/dev/shm"
#define FILE_BYTES_MIN (64ull << 20) /* room for old versions of pages that transactions replace */
#define COMMIT_KEYS 10000u           /* of a transaction of the population */

static const struct lmdb_workload *const workloads[] = {&lmdb_tatp, &lmdb_smallbank, &lmdb_tree, &lmdb_scan,
                                                        &lmdb_ycsb};

static char folder[] = FOLDER "/remo-peer-lmdb-XXXXXX";
static pid_t folder_owner; /* 0: the folder has been removed */

static void remove_folder(void) {
    static const char *const files[] = {"data.mdb", "lock.mdb"};
    char file[sizeof folder + 16];
    if (folder_owner != getpid())
        return;
    for (size_t i = 0; i < REMO__ARRAY_COUNT(files); i++) {
        snprintf(file, sizeof file, "%s/%s", folder, files[i]);
        unlink(file);
    }
    rmdir(folder);
    folder_owner = 0;
}

/* ---- the environment ---- */

static size_t file_bytes(const struct lmdb_store *store) {
    return FILE_BYTES_MIN + store->options->keys_count * store->workload->key_bytes;
}

static void open_environment(struct lmdb_store *store) {
    unsigned flags = MDB_NOSYNC | MDB_NOMETASYNC | MDB_WRITEMAP | MDB_NOTLS;
    lmdb_check(mdb_env_create(&store->env), "create an environment");
    lmdb_check(mdb_env_set_maxdbs(store->env, LMDB_TABLES_MAX), "set the number of databases");
    lmdb_check(mdb_env_set_mapsize(store->env, file_bytes(store)), "set the size of the map");
    lmdb_check(mdb_env_open(store->env, folder, flags, 0600), "open the environment");
}

static void open_tables(struct lmdb_store *store, unsigned flags) {
    const struct lmdb_workload *workload = store->workload;
    MDB_txn *txn;
    lmdb_check(mdb_txn_begin(store->env, NULL, flags & MDB_CREATE ? 0 : MDB_RDONLY, &txn), "begin");
    for (unsigned i = 0; workload->tables[i]; i++) {
        unsigned kind = workload->text_keys >> i & 1 ? 0 : MDB_INTEGERKEY;
        lmdb_check(mdb_dbi_open(txn, workload->tables[i], flags | kind, &store->tables[i]), "open a table");
    }
    lmdb_check(mdb_txn_commit(txn), "commit");
}

/* Open the transaction for reads, and read all rows, so that few transactions wait for a page fault. */
static void open_reader(struct lmdb_store *store) {
    MDB_cursor *cursor;
    MDB_val key, row;
    lmdb_check(mdb_txn_begin(store->env, NULL, MDB_RDONLY, &store->reader), "begin");
    for (unsigned i = 0; store->workload->tables[i]; i++) {
        lmdb_check(mdb_cursor_open(store->reader, store->tables[i], &cursor), "open a cursor");
        while (mdb_cursor_get(cursor, &key, &row, MDB_NEXT) == 0)
            (void)*(const volatile char *)row.mv_data;
        mdb_cursor_close(cursor);
    }
    mdb_txn_reset(store->reader);
}

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

/* Return how many operations a call of `run` makes. */
static unsigned window_of(const struct lmdb_store *store) {
    return store->point->is_scan ? store->entries : 1;
}

static double batch(void *ctx, uint64_t operations) {
    struct lmdb_store *store = ctx;
    uint64_t start_ns = remo__now_ns();
    store->paused_ns = 0;
    for (uint64_t done = 0; done < operations; done += window_of(store))
        store->point->run(store);
    return (double)(remo__now_ns() - start_ns - store->paused_ns);
}

/* ---- the processes ---- */

static void report(struct lmdb_store *store) {
    struct measure_result all;
    union transaction_counts counts = {0};
    char distribution[32] = "uniform";
    if (store->options->zipf > 0)
        snprintf(distribution, sizeof distribution, "zipf %.2f", store->options->zipf);
    for (unsigned i = 0; i < store->processes.count && store->workload->add_counts; i++)
        store->workload->add_counts(&counts, processes_counts(&store->processes, i));
    lmdb_begin(store, true);
    store->workload->check(store, &counts);
    lmdb_end(store);
    processes_merge(&store->processes, &all);
    struct measure_subject subject = {.bench = store->workload->bench,
                                      .object = store->workload->object,
                                      .variant = store->point->variant,
                                      .window = store->point->is_scan ? store->entries : 0,
                                      .nodes = (int)store->processes.count,
                                      .active = store->processes.count,
                                      .keys_count = store->options->keys_count,
                                      .keys = store->workload->has_distribution ? distribution : NULL,
                                      .read_percent = -1};
    measure_print(store->options, &subject, &all);
}

/* Measure the current point in all processes. */
static void run_point(struct lmdb_store *store) {
    const struct lmdb_workload *workload = store->workload;
    struct measure_result result;
    if (workload->begin)
        workload->begin(store);
    processes_barrier(&store->processes);
    measure_run(batch, store, window_of(store), store->options->seconds, &result);
    if (workload->finish)
        workload->finish(store);
    processes_share(&store->processes, &result, &store->counts);
    processes_barrier(&store->processes);
    if (store->processes.index == 0)
        report(store);
    processes_barrier(&store->processes);
}

static void run_points(struct lmdb_store *store) {
    for (store->point = store->workload->points; store->point->run; store->point++)
        if (!store->point->is_uniform || store->options->zipf <= 0)
            run_point(store);
    measure_print_end((int)store->processes.index);
}

static void run_process(struct lmdb_store *store) {
    if (store->processes.index == 0)
        open_environment(store);
    processes_barrier(&store->processes);
    if (store->processes.index != 0)
        open_environment(store);
    processes_barrier(&store->processes);
    if (store->processes.index == 0) {
        remove_folder(); /* its files remain until the processes end */
        open_tables(store, MDB_CREATE);
        fill(store);
    }
    processes_barrier(&store->processes);
    if (store->processes.index != 0)
        open_tables(store, 0);
    open_reader(store);
    remo__random_seed(&store->random, store->processes.index + 1);
    run_points(store);
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
    store.workload = find_workload(options.bench);
    processes_check_room(FOLDER, file_bytes(&store), "the file of LMDB");
    processes_prepare(&store.processes, &options);
    if (!mkdtemp(folder))
        processes_fail("cannot make the folder %s: %s", folder, strerror(errno));
    folder_owner = getpid();
    atexit(remove_folder);
    processes_start(&store.processes, &options);
    run_process(&store);
    return 0;
}
