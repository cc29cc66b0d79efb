/* lmdb.c - LMDB: the transactions of TATP, by processes that map one file of a tmpfs.
 * The file is not synchronised: a commit makes no system call for durability, as with Remo. Each table is a
 * database of the environment, with integer keys except in the index. Each process resets and renews one
 * read-only transaction. To keep cursors at their rows for the next read or update was tried: it saves no
 * time. */
#include "measure.h"

#include "base/clock.h"
#include "bench/objects/tatp_rows.h"

#include <errno.h>
#include <lmdb.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FOLDER "/dev/shm"
#define PROCESSES_MAX 64u            /* of --active */
#define SUBSCRIBER_BYTES 1024u       /* of the file, for each subscriber; 420 are used by the population */
#define FILE_BYTES_MIN (64ull << 20) /* room for old versions of pages that transactions replace */
#define COMMIT_SUBSCRIBERS 10000u    /* of a transaction of the population */
#define TYPE_BITS 4                  /* of a type and of a start in an integer key */

/* Shared by the processes. */
struct shared {
    _Atomic unsigned arrived; /* at barriers, so far */
    /* written when the process has finished */
    struct measure_result results[PROCESSES_MAX];
    struct tatp_counts counts[PROCESSES_MAX];
};

/* The databases, as seen by one process. */
struct store {
    const struct measure_options *options;
    struct shared *shared;
    unsigned process, processes, barriers;
    MDB_env *env;
    MDB_dbi tables[TATP_TABLES];
    MDB_txn *reader;  /* renewed for each transaction that only reads */
    MDB_txn *txn;     /* the current one */
    bool has_changes; /* of the current one */
    struct remo__random random;
    struct tatp_counts counts;
};

static char folder[] = FOLDER "/remo-peer-lmdb-XXXXXX";
static pid_t folder_owner; /* 0: the folder has been removed */

static void remove_folder(void) {
    static const char *const files[] = {"data.mdb", "lock.mdb"};
    char file[sizeof folder + 16];
    if (folder_owner != getpid())
        return;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(file, sizeof file, "%s/%s", folder, files[i]);
        unlink(file);
    }
    rmdir(folder);
    folder_owner = 0;
}

__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...) {
    va_list values;
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    fputc('\n', stderr);
    exit(1);
}

static void check(int rc, const char *what) {
    if (rc != 0)
        fail("LMDB cannot %s: %s", what, mdb_strerror(rc));
}

/* Wait until every process has arrived. If another process has ended, it has printed the reason: process 0
 * detects this, and ends. All others end with process 0. */
static void barrier(struct store *store) {
    unsigned all = ++store->barriers * store->processes;
    atomic_fetch_add(&store->shared->arrived, 1);
    while (atomic_load(&store->shared->arrived) < all) {
        bool ended = store->process == 0 && waitpid(-1, NULL, WNOHANG) > 0;
        if (ended && atomic_load(&store->shared->arrived) < all)
            exit(1);
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
}

/* ---- the environment ---- */

static size_t file_bytes(const struct measure_options *options) {
    return FILE_BYTES_MIN + options->keys_count * SUBSCRIBER_BYTES;
}

/* The file is sparse: without this check, a full tmpfs would end the processes by a signal. */
static void check_room(const struct measure_options *options) {
    struct statvfs tmpfs;
    if (statvfs(FOLDER, &tmpfs) != 0)
        fail("cannot make the file of LMDB: " FOLDER ": %s; mount a tmpfs there", strerror(errno));
    if ((double)tmpfs.f_bavail * (double)tmpfs.f_frsize < (double)file_bytes(options))
        fail("cannot make the file of LMDB: " FOLDER
             " has less than %zu MiB left; enlarge it, or give fewer --keys",
             file_bytes(options) >> 20);
}

static void open_environment(struct store *store) {
    unsigned flags = MDB_NOSYNC | MDB_NOMETASYNC | MDB_WRITEMAP | MDB_NOTLS;
    check(mdb_env_create(&store->env), "create an environment");
    check(mdb_env_set_maxdbs(store->env, TATP_TABLES), "set the number of databases");
    check(mdb_env_set_mapsize(store->env, file_bytes(store->options)), "set the size of the map");
    check(mdb_env_open(store->env, folder, flags, 0600), "open the environment");
}

static void open_tables(struct store *store, unsigned flags) {
    static const char *const names[TATP_TABLES] = {"subscribers", "access", "facilities", "forwardings",
                                                   "numbers"};
    MDB_txn *txn;
    check(mdb_txn_begin(store->env, NULL, flags & MDB_CREATE ? 0 : MDB_RDONLY, &txn), "begin");
    for (unsigned i = 0; i < TATP_TABLES; i++)
        check(
            mdb_dbi_open(txn, names[i], flags | (i == TATP_NUMBERS ? 0 : MDB_INTEGERKEY), &store->tables[i]),
            "open a table");
    check(mdb_txn_commit(txn), "commit");
}

/* Open the transaction for reads, and read all rows, so that few transactions wait for a page fault. */
static void open_reader(struct store *store) {
    MDB_cursor *cursor;
    MDB_val key, row;
    check(mdb_txn_begin(store->env, NULL, MDB_RDONLY, &store->reader), "begin");
    for (unsigned i = 0; i < TATP_TABLES; i++) {
        check(mdb_cursor_open(store->reader, store->tables[i], &cursor), "open a cursor");
        while (mdb_cursor_get(cursor, &key, &row, MDB_NEXT) == 0)
            (void)*(const volatile char *)row.mv_data;
        mdb_cursor_close(cursor);
    }
    mdb_txn_reset(store->reader);
}

/* ---- rows ---- */

static MDB_val value_of(const void *data, size_t bytes) {
    return (MDB_val){.mv_size = bytes, .mv_data = (void *)(uintptr_t)data};
}

/* Return the integer key. The keys of a subscriber are adjacent. */
static size_t integer_of(enum tatp_table table, const struct tatp_key *key) {
    if (table == TATP_SUBSCRIBERS)
        return key->subscriber;
    return (key->subscriber << TYPE_BITS | key->type) << TYPE_BITS | key->start;
}

static int read_row(void *tx, enum tatp_table table, const struct tatp_key *key, void *ret_row,
                    size_t bytes) {
    const struct store *store = tx;
    size_t integer = integer_of(table, key);
    MDB_val name = value_of(&integer, sizeof integer), row;
    int rc = mdb_get(store->txn, store->tables[table], &name, &row);
    if (rc == MDB_NOTFOUND)
        return -ENOENT;
    check(rc, "read a row");
    if (row.mv_size != bytes)
        fail("the benchmark is wrong: a row of %zu bytes instead of %zu", row.mv_size, bytes);
    memcpy(ret_row, row.mv_data, bytes);
    return 0;
}

static int put_row(struct store *store, enum tatp_table table, const struct tatp_key *key, const void *row,
                   size_t bytes, unsigned flags) {
    size_t integer = integer_of(table, key);
    MDB_val name = value_of(&integer, sizeof integer), value = value_of(row, bytes);
    return mdb_put(store->txn, store->tables[table], &name, &value, flags);
}

static int update_row(void *tx, enum tatp_table table, const struct tatp_key *key, const void *row,
                      size_t bytes) {
    struct store *store = tx;
    check(put_row(store, table, key, row, bytes, 0), "update a row");
    store->has_changes = true;
    return 0;
}

static int insert_row(void *tx, enum tatp_table table, const struct tatp_key *key, const void *row,
                      size_t bytes) {
    struct store *store = tx;
    int rc = put_row(store, table, key, row, bytes, MDB_NOOVERWRITE);
    if (rc == MDB_KEYEXIST)
        return -EEXIST;
    check(rc, "insert a row");
    store->has_changes = true;
    return 0;
}

static int remove_row(void *tx, enum tatp_table table, const struct tatp_key *key) {
    struct store *store = tx;
    size_t integer = integer_of(table, key);
    MDB_val name = value_of(&integer, sizeof integer);
    int rc = mdb_del(store->txn, store->tables[table], &name, NULL);
    if (rc == MDB_NOTFOUND)
        return -ENOENT;
    check(rc, "delete a row");
    store->has_changes = true;
    return 0;
}

static int fail_row(uint64_t subscriber, uint64_t other) {
    fail("the benchmark is wrong: the row of subscriber %llu belongs to %llu", (unsigned long long)subscriber,
         (unsigned long long)other);
}

/* ---- the population: keys ascend, so rows are appended ---- */

static int append_row(void *ctx, enum tatp_table table, const struct tatp_key *key, const void *row,
                      size_t bytes) {
    check(put_row(ctx, table, key, row, bytes, MDB_APPEND), "append a row");
    return 0;
}

static void append_number(const struct store *store, uint64_t subscriber) {
    char digits[TATP_NUMBER_DIGITS + 1];
    tatp_make_number(digits, subscriber);
    MDB_val name = value_of(digits, TATP_NUMBER_DIGITS), value = value_of(&subscriber, sizeof subscriber);
    check(mdb_put(store->txn, store->tables[TATP_NUMBERS], &name, &value, MDB_APPEND), "append a number");
}

static void fill(struct store *store) {
    uint64_t subscribers = store->options->keys_count;
    for (uint64_t subscriber = 1; subscriber <= subscribers; subscriber++) {
        if (!store->txn)
            check(mdb_txn_begin(store->env, NULL, 0, &store->txn), "begin");
        append_number(store, subscriber);
        (void)tatp_populate(subscriber, append_row, store);
        if (subscriber % COMMIT_SUBSCRIBERS == 0 || subscriber == subscribers) {
            check(mdb_txn_commit(store->txn), "commit");
            store->txn = NULL;
        }
    }
}

/* ---- transactions ---- */

static void begin(struct store *store, bool only_reads) {
    store->has_changes = false;
    store->txn = store->reader;
    if (only_reads)
        check(mdb_txn_renew(store->reader), "renew a transaction");
    else
        check(mdb_txn_begin(store->env, NULL, 0, &store->txn), "begin");
}

static void end(struct store *store) {
    if (store->txn == store->reader)
        mdb_txn_reset(store->reader);
    else if (store->has_changes)
        check(mdb_txn_commit(store->txn), "commit");
    else
        mdb_txn_abort(store->txn);
}

/* Find a subscriber in the same transaction: another one for the index would take more time. */
static void find_by_number(const struct store *store, uint64_t subscriber) {
    char digits[TATP_NUMBER_DIGITS + 1];
    tatp_make_number(digits, subscriber);
    MDB_val name = value_of(digits, TATP_NUMBER_DIGITS), value;
    check(mdb_get(store->txn, store->tables[TATP_NUMBERS], &name, &value), "find a number");
    if (value.mv_size != sizeof subscriber || memcmp(value.mv_data, &subscriber, sizeof subscriber) != 0)
        fail("the benchmark is wrong: the number of subscriber %llu has another row",
             (unsigned long long)subscriber);
}

static void run_transaction(struct store *store) {
    static const struct tatp_store operations = {read_row, update_row, insert_row, remove_row, fail_row};
    struct tatp_call call = tatp_draw(store->options->keys_count, &store->random);
    begin(store, call.only_reads);
    if (call.has_number)
        find_by_number(store, call.key.subscriber);
    (void)tatp_execute(&call, &operations, store); /* an error ends the process */
    end(store);
    tatp_count(&store->counts, &call);
}

static double batch(void *ctx, uint64_t operations) {
    uint64_t start_ns = remo__now_ns();
    for (uint64_t i = 0; i < operations; i++)
        run_transaction(ctx);
    return (double)(remo__now_ns() - start_ns);
}

/* ---- the processes ---- */

static void report(const struct store *store) {
    struct measure_result all;
    struct tatp_counts counts = {0};
    char sentence[TATP_SENTENCE_BYTES];
    for (unsigned i = 0; i < store->processes; i++)
        tatp_add_counts(&counts, &store->shared->counts[i]);
    if (!tatp_check_shares(&counts, store->options->keys_count, sentence))
        fail("%s", sentence);
    measure_merge(store->shared->results, (int)store->processes, &all);
    struct measure_subject subject = {.bench = "tatp",
                                      .object = "tx",
                                      .nodes = (int)store->processes,
                                      .active = store->processes,
                                      .keys_count = store->options->keys_count,
                                      .read_percent = -1};
    measure_print(store->options, &subject, &all);
    measure_print_end(0);
}

static void run_process(struct store *store) {
    measure_settle(store->options, (int)store->process);
    if (store->process == 0)
        open_environment(store);
    barrier(store);
    if (store->process != 0)
        open_environment(store);
    barrier(store);
    if (store->process == 0) {
        remove_folder(); /* its files remain until the processes end */
        open_tables(store, MDB_CREATE);
        fill(store);
    }
    barrier(store);
    if (store->process != 0)
        open_tables(store, 0);
    open_reader(store);
    remo__random_seed(&store->random, store->process + 1);
    barrier(store);
    measure_run(batch, store, 1, store->options->seconds, &store->shared->results[store->process]);
    store->shared->counts[store->process] = store->counts;
    barrier(store);
    if (store->process == 0)
        report(store);
}

int main(int argc, char **argv) {
    struct measure_options options;
    struct store store = {.options = &options};
    measure_parse(argc, argv, &options);
    check_room(&options);
    store.processes = options.active;
    store.shared =
        mmap(NULL, sizeof *store.shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (store.shared == MAP_FAILED)
        fail("no memory to share");
    if (!mkdtemp(folder))
        fail("cannot make the folder %s: %s", folder, strerror(errno));
    folder_owner = getpid();
    atexit(remove_folder);
    for (unsigned i = 1; i < store.processes && store.process == 0; i++) {
        pid_t pid = fork();
        if (pid < 0)
            fail("cannot start a process: %s", strerror(errno));
        store.process = pid == 0 ? i : 0;
    }
    run_process(&store);
    return 0;
}
