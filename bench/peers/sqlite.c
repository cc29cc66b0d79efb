/* sqlite.c - SQLite: TATP and SmallBank (transactions.h) by processes that open one database on a tmpfs, with
 * a write-ahead log that is not synchronised. Statements are prepared once. A transaction that changes rows
 * takes the lock for writers when it begins, so it never fails with a conflict.
 * A row has an integer key and its bytes: SQLite finds an integer key faster than several columns. */
#include "bench/peers/transactions.h"

#include <errno.h>
#include <sched.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/bits.h"

#define FOLDER "/dev/shm"
#define FILE_BYTES_MIN (64ull << 20) /* with the log */
#define TATP_KEY_BYTES 1024u         /* of the file, for each subscriber */
#define SMALLBANK_KEY_BYTES 128u     /* the same for each customer */
#define MAP_BYTES (64ull << 30)      /* of the file, that are mapped */
#define COMMIT_KEYS 10000u           /* of a transaction of the population */
#define BUSY_YIELDS 1000             /* of a writer that waits for another one, before it sleeps */
#define BUSY_SLEEP_NS 50000
#define BUSY_TRIES_MAX 1000000 /* at least 50 s */
#define TYPE_BITS 4            /* of a type and of a start in an integer key */

enum statement { STATEMENT_READ, STATEMENT_UPDATE, STATEMENT_INSERT, STATEMENT_DELETE, STATEMENTS };

static const char *const tatp_names[TATP_TABLES] = {"subscribers", "access", "facilities", "forwardings",
                                                    "numbers"};
static const char *const smallbank_names[SMALLBANK_TABLES] = {"savings", "checking"};

/* A connection. */
struct connection {
    sqlite3 *db;
    sqlite3_stmt *begin_read, *begin_write, *commit, *rollback;
    sqlite3_stmt *of[TATP_TABLES][STATEMENTS];
    bool has_changes; /* of the current transaction */
};

static char folder[] = FOLDER "/remo-peer-sqlite-XXXXXX", file[sizeof folder + 16];
static pid_t folder_owner; /* 0: the folder has been removed */

static void remove_folder(void) {
    static const char *const endings[] = {"", "-wal", "-shm"};
    char name[sizeof file + 16];
    if (folder_owner != getpid())
        return;
    for (size_t i = 0; i < REMO__ARRAY_COUNT(endings); i++) {
        snprintf(name, sizeof name, "%s%s", file, endings[i]);
        unlink(name);
    }
    rmdir(folder);
    folder_owner = 0;
}

static struct connection *connection_of(struct transactions *bench) {
    return bench->state;
}

/* ---- statements ---- */

static void check(const struct connection *connection, bool is_right, const char *what) {
    if (!is_right)
        processes_fail("SQLite cannot %s: %s", what, sqlite3_errmsg(connection->db));
}

static void execute(const struct connection *connection, const char *sql) {
    check(connection, sqlite3_exec(connection->db, sql, NULL, NULL, NULL) == SQLITE_OK, sql);
}

static sqlite3_stmt *prepare(const struct connection *connection, const char *sql) {
    sqlite3_stmt *statement = NULL;
    check(connection,
          sqlite3_prepare_v3(connection->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, NULL)
              == SQLITE_OK,
          sql);
    return statement;
}

/* Run a statement without a result. */
static void step(const struct connection *connection, sqlite3_stmt *statement, const char *what) {
    check(connection, sqlite3_step(statement) == SQLITE_DONE, what);
    sqlite3_reset(statement);
}

static void prepare_table(struct connection *connection, unsigned table, const char *name) {
    static const char *const texts[STATEMENTS] = {
        "SELECT row FROM %s WHERE key = ?1", "UPDATE %s SET row = ?2 WHERE key = ?1",
        "INSERT OR IGNORE INTO %s VALUES (?1, ?2)", "DELETE FROM %s WHERE key = ?1"};
    char sql[128];
    for (unsigned i = 0; i < STATEMENTS; i++) {
        snprintf(sql, sizeof sql, texts[i], name);
        connection->of[table][i] = prepare(connection, sql);
    }
}

/* ---- rows ---- */

static int read_row(const struct connection *connection, unsigned table, int64_t key, void *ret_row,
                    size_t bytes) {
    sqlite3_stmt *statement = connection->of[table][STATEMENT_READ];
    sqlite3_bind_int64(statement, 1, key);
    int rc = sqlite3_step(statement);
    check(connection, rc == SQLITE_ROW || rc == SQLITE_DONE, "read a row");
    if (rc == SQLITE_ROW && (size_t)sqlite3_column_bytes(statement, 0) != bytes)
        processes_fail("the benchmark is wrong: a row of %d bytes instead of %zu",
                       sqlite3_column_bytes(statement, 0), bytes);
    if (rc == SQLITE_ROW)
        memcpy(ret_row, sqlite3_column_blob(statement, 0), bytes);
    sqlite3_reset(statement);
    return rc == SQLITE_ROW ? 0 : -ENOENT;
}

/* Run a statement that changes a row. Returns whether it has changed one. */
static bool change_row(struct connection *connection, unsigned table, enum statement kind, int64_t key,
                       const void *row, size_t bytes) {
    sqlite3_stmt *statement = connection->of[table][kind];
    sqlite3_bind_int64(statement, 1, key);
    if (row)
        sqlite3_bind_blob(statement, 2, row, (int)bytes, SQLITE_STATIC);
    step(connection, statement, "change a row");
    bool has_changed = sqlite3_changes(connection->db) > 0;
    connection->has_changes |= has_changed;
    return has_changed;
}

/* ---- connections ---- */

/* Another process commits. It takes some microseconds, so a sleep would take longer. */
static int wait_for_writer(void *ctx, int tries) {
    (void)ctx;
    if (tries < BUSY_YIELDS)
        sched_yield();
    else
        nanosleep(&(struct timespec){.tv_nsec = BUSY_SLEEP_NS}, NULL);
    return tries < BUSY_TRIES_MAX;
}

static void start(struct transactions *bench) {
    uint64_t key_bytes = bench->is_tatp ? TATP_KEY_BYTES : SMALLBANK_KEY_BYTES;
    processes_check_room(FOLDER, FILE_BYTES_MIN + bench->keys * key_bytes, "the file of SQLite");
    if (!mkdtemp(folder))
        processes_fail("cannot make the folder %s: %s", folder, strerror(errno));
    folder_owner = getpid();
    atexit(remove_folder);
    snprintf(file, sizeof file, "%s/data", folder);
}

static void make_tables(const struct transactions *bench, const struct connection *connection) {
    char sql[128];
    unsigned tables = bench->is_tatp ? TATP_NUMBERS : SMALLBANK_TABLES;
    for (unsigned i = 0; i < tables; i++) {
        snprintf(sql, sizeof sql, "CREATE TABLE %s (key INTEGER PRIMARY KEY, row BLOB)",
                 bench->is_tatp ? tatp_names[i] : smallbank_names[i]);
        execute(connection, sql);
    }
    if (bench->is_tatp)
        execute(connection, "CREATE TABLE numbers (key TEXT PRIMARY KEY, row INTEGER) WITHOUT ROWID");
}

static void open_database(struct transactions *bench) {
    struct connection *connection = calloc(1, sizeof *connection);
    char map[64];
    if (!connection)
        processes_fail("no memory for the connection");
    bench->state = connection;
    /* A process has one thread. */
    sqlite3_config(SQLITE_CONFIG_SINGLETHREAD);
    sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
    check(connection, sqlite3_open(file, &connection->db) == SQLITE_OK, "open the database");
    sqlite3_busy_handler(connection->db, wait_for_writer, NULL);
    execute(connection, "PRAGMA journal_mode = WAL");
    execute(connection, "PRAGMA synchronous = OFF");
    snprintf(map, sizeof map, "PRAGMA mmap_size = %llu", MAP_BYTES);
    execute(connection, map);
    if (bench->processes.index == 0)
        make_tables(bench, connection);
    unsigned tables = bench->is_tatp ? TATP_TABLES : SMALLBANK_TABLES;
    for (unsigned i = 0; i < tables; i++)
        prepare_table(connection, i, bench->is_tatp ? tatp_names[i] : smallbank_names[i]);
    connection->begin_read = prepare(connection, "BEGIN");
    connection->begin_write = prepare(connection, "BEGIN IMMEDIATE");
    connection->commit = prepare(connection, "COMMIT");
    connection->rollback = prepare(connection, "ROLLBACK");
}

/* ---- transactions ---- */

static void begin(struct connection *connection, bool only_reads) {
    connection->has_changes = false;
    step(connection, only_reads ? connection->begin_read : connection->begin_write, "begin");
}

static void end(struct connection *connection) {
    step(connection, connection->has_changes ? connection->commit : connection->rollback,
         "end a transaction");
}

/* Return the integer key. The keys of a subscriber are adjacent. */
static int64_t integer_of(unsigned table, const struct tatp_key *key) {
    if (table == TATP_SUBSCRIBERS)
        return (int64_t)key->subscriber;
    return (int64_t)((key->subscriber << TYPE_BITS | key->type) << TYPE_BITS | key->start);
}

static int tatp_read(void *tx, enum tatp_table table, const struct tatp_key *key, void *ret_row,
                     size_t bytes) {
    return read_row(tx, table, integer_of(table, key), ret_row, bytes);
}

static int tatp_update(void *tx, enum tatp_table table, const struct tatp_key *key, const void *row,
                       size_t bytes) {
    if (!change_row(tx, table, STATEMENT_UPDATE, integer_of(table, key), row, bytes))
        processes_fail("the benchmark is wrong: a row that was read is missing");
    return 0;
}

static int tatp_insert(void *tx, enum tatp_table table, const struct tatp_key *key, const void *row,
                       size_t bytes) {
    return change_row(tx, table, STATEMENT_INSERT, integer_of(table, key), row, bytes) ? 0 : -EEXIST;
}

static int tatp_remove(void *tx, enum tatp_table table, const struct tatp_key *key) {
    return change_row(tx, table, STATEMENT_DELETE, integer_of(table, key), NULL, 0) ? 0 : -ENOENT;
}

static int tatp_fail(uint64_t subscriber, uint64_t other) {
    processes_fail("the benchmark is wrong: the row of subscriber %llu belongs to %llu",
                   (unsigned long long)subscriber, (unsigned long long)other);
}

static void find_by_number(const struct connection *connection, uint64_t subscriber) {
    char digits[TATP_NUMBER_DIGITS + 1];
    sqlite3_stmt *statement = connection->of[TATP_NUMBERS][STATEMENT_READ];
    tatp_make_number(digits, subscriber);
    sqlite3_bind_text(statement, 1, digits, TATP_NUMBER_DIGITS, SQLITE_STATIC);
    check(connection, sqlite3_step(statement) == SQLITE_ROW, "find a number");
    if ((uint64_t)sqlite3_column_int64(statement, 0) != subscriber)
        processes_fail("the benchmark is wrong: the number of subscriber %llu has another row",
                       (unsigned long long)subscriber);
    sqlite3_reset(statement);
}

static void run_tatp(struct transactions *bench) {
    static const struct tatp_store store = {tatp_read, tatp_update, tatp_insert, tatp_remove, tatp_fail};
    struct connection *connection = connection_of(bench);
    struct tatp_call call = tatp_draw(bench->keys, &bench->random);
    /* One statement is a transaction. */
    bool is_single = call.kind == TATP_GET_SUBSCRIBER || call.kind == TATP_GET_ACCESS;
    if (!is_single)
        begin(connection, call.only_reads);
    if (call.has_number)
        find_by_number(connection, call.key.subscriber);
    (void)tatp_execute(&call, &store, connection); /* an error ends the process */
    if (!is_single)
        end(connection);
    tatp_count(&bench->counts.tatp, &call);
}

static int smallbank_read(void *tx, const struct smallbank_account *accounts, uint32_t count,
                          struct smallbank_row *ret_rows) {
    for (uint32_t i = 0; i < count; i++)
        if (read_row(tx, accounts[i].table, (int64_t)accounts[i].customer, &ret_rows[i], sizeof ret_rows[i])
            != 0)
            processes_fail("the benchmark is wrong: customer %llu has no account",
                           (unsigned long long)accounts[i].customer);
    return 0;
}

static int smallbank_update(void *tx, enum smallbank_table table, const struct smallbank_row *row) {
    if (!change_row(tx, table, STATEMENT_UPDATE, (int64_t)row->customer, row, sizeof *row))
        processes_fail("the benchmark is wrong: an account that was read is missing");
    return 0;
}

static int smallbank_fail(uint64_t customer, uint64_t other) {
    processes_fail("the benchmark is wrong: the account of customer %llu belongs to %llu",
                   (unsigned long long)customer, (unsigned long long)other);
}

static void run_smallbank(struct transactions *bench) {
    static const struct smallbank_store store = {smallbank_read, smallbank_update, smallbank_fail};
    struct connection *connection = connection_of(bench);
    struct smallbank_call call = smallbank_draw(bench->keys, &bench->random);
    begin(connection, call.only_reads);
    (void)smallbank_execute(&call, &store, connection); /* an error ends the process */
    end(connection);
    smallbank_count(&bench->counts.smallbank, &call);
}

static void run(struct transactions *bench) {
    if (bench->is_tatp)
        run_tatp(bench);
    else
        run_smallbank(bench);
}

/* ---- the population ---- */

static void insert_subscriber(struct connection *connection, uint64_t subscriber) {
    char digits[TATP_NUMBER_DIGITS + 1];
    sqlite3_stmt *statement = connection->of[TATP_NUMBERS][STATEMENT_INSERT];
    tatp_make_number(digits, subscriber);
    sqlite3_bind_text(statement, 1, digits, TATP_NUMBER_DIGITS, SQLITE_STATIC);
    sqlite3_bind_int64(statement, 2, (int64_t)subscriber);
    step(connection, statement, "insert a number");
    (void)tatp_populate(subscriber, tatp_insert, connection); /* an error ends the process */
}

static void insert_customer(struct connection *connection, uint64_t customer) {
    const struct smallbank_row row = {customer, SMALLBANK_INITIAL};
    for (unsigned table = 0; table < SMALLBANK_TABLES; table++)
        (void)change_row(connection, table, STATEMENT_INSERT, (int64_t)customer, &row, sizeof row);
}

static void fill(struct transactions *bench) {
    struct connection *connection = connection_of(bench);
    remove_folder(); /* each process has opened its files: they remain until the processes end */
    for (uint64_t i = 0; i < bench->keys; i++) {
        if (i % COMMIT_KEYS == 0)
            begin(connection, false);
        if (bench->is_tatp)
            insert_subscriber(connection, i + 1);
        else
            insert_customer(connection, i);
        if ((i + 1) % COMMIT_KEYS == 0 || i + 1 == bench->keys)
            end(connection);
    }
}

static int64_t sum(struct transactions *bench) {
    int64_t all = 0;
    for (uint64_t i = 0; i < bench->keys; i++)
        for (unsigned table = 0; table < SMALLBANK_TABLES; table++) {
            const struct smallbank_account account = {table, i};
            struct smallbank_row row;
            (void)smallbank_read(connection_of(bench), &account, 1, &row);
            all += row.balance;
        }
    return all;
}

int main(int argc, char **argv) {
    static const struct transactions_store sqlite = {
        .name = "SQLite", .start = start, .open = open_database, .fill = fill, .run = run, .sum = sum};
    return transactions_main(&sqlite, argc, argv);
}
