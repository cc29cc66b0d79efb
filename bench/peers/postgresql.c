/* postgresql.c - PostgreSQL: transactions (transactions.h) by clients of a server that this program starts.
 * The database is on a tmpfs, and nothing is synchronised. A transaction is one prepared statement. A process
 * sends the statements of a window together (libpq's pipeline mode); each is committed by itself.
 * PostgreSQL refuses to run as root. Its server then runs as another user. */
#include "bench/peers/postgresql.h"

#include <errno.h>
#include <glob.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "bench/peers/server.h"

#define UNPRIVILEGED_USER 65534
#define PARENT "/dev/shm"
#define BUFFERS_MIN_MIB 64u
#define KEYS_PER_BUFFER_MIB 700u /* 1.5 KB for each subscriber: all rows are in memory */
#define FOLDER_BYTES_MIN (256ull << 20)
#define TATP_KEY_BYTES 2048u     /* of the folder, for each subscriber */
#define SMALLBANK_KEY_BYTES 256u /* the same for each customer */
#define CONNECT_NS (60 * REMO__NS_PER_S)
#define ROWS_BYTES 4096u /* the rows of a key in a table */
#define COPY_BYTES 65536u
#define SQL_BYTES 256u

static const struct postgresql_workload *workload_of(const struct transactions *bench) {
    return bench->is_tatp ? &postgresql_tatp : &postgresql_smallbank;
}

/* ---- the server ---- */

static char folder[64], program[256], initdb[256], data[80];
static const struct passwd *user; /* of the server; NULL: this one */

/* Find the newest version. */
static void find_programs(void) {
    glob_t found = {0};
    const char *bin = NULL;
    if (glob(POSTGRESQL_FOLDERS, 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++)
            if (!bin || strverscmp(found.gl_pathv[i], bin) > 0)
                bin = found.gl_pathv[i];
    snprintf(program, sizeof program, "%s%spostgres", bin ? bin : "", bin ? "/" : "");
    snprintf(initdb, sizeof initdb, "%s%sinitdb", bin ? bin : "", bin ? "/" : "");
    globfree(&found);
}

/* Called in a process of the server, which ends with this program. */
static void become_user(const void *ctx) {
    server_share_processors(ctx);
    if (user && (setgroups(0, NULL) != 0 || setgid(user->pw_gid) != 0 || setuid(user->pw_uid) != 0)) {
        fprintf(stderr, "cannot become the user %s: %s\n", user->pw_name, strerror(errno));
        _exit(1);
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a change of the user resets it */
}

static void choose_user(void) {
    if (geteuid() != 0)
        return;
    user = getpwnam("postgres");
    if (!user)
        user = getpwuid(UNPRIVILEGED_USER);
    if (!user || chown(folder, user->pw_uid, user->pw_gid) != 0)
        processes_fail("cannot start PostgreSQL as root: there is no user postgres; run as another user");
}

/* Make an empty cluster of databases. */
static void initialise(const struct measure_options *options) {
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        become_user(options);
        if (!freopen("/dev/null", "w", stdout) || chdir(folder) != 0)
            _exit(126);
        execlp(initdb, initdb, "-D", data, "-U", "remo", "-A", "trust", "-E", "UTF8", "--no-locale",
               "--no-sync", "--no-instructions", (char *)NULL);
        fprintf(stderr, "cannot start %s: %s\n", initdb, strerror(errno));
        _exit(127);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
        processes_fail("%s failed", initdb);
}

static void launch(const struct transactions *bench) {
    char sockets[96], buffers[48], connections[32];
    snprintf(sockets, sizeof sockets, "unix_socket_directories=%s", folder);
    snprintf(buffers, sizeof buffers, "shared_buffers=%lluMB",
             (unsigned long long)(BUFFERS_MIN_MIB + bench->keys / KEYS_PER_BUFFER_MIB));
    snprintf(connections, sizeof connections, "max_connections=%u", bench->processes.count + 8);
    const char *const argv[] = {program,
                                "-D",
                                data,
                                "-c",
                                "listen_addresses=",
                                "-c",
                                sockets,
                                "-c",
                                buffers,
                                "-c",
                                connections,
                                "-c",
                                "fsync=off",
                                "-c",
                                "synchronous_commit=off",
                                "-c",
                                "full_page_writes=off",
                                "-c",
                                "wal_level=minimal",
                                "-c",
                                "max_wal_senders=0",
                                "-c",
                                "plan_cache_mode=force_generic_plan",
                                "-c",
                                "log_min_messages=fatal",
                                NULL};
    server_launch(argv, SIGQUIT, become_user, bench->options);
}

static void start(struct transactions *bench) {
    uint64_t key_bytes = bench->is_tatp ? TATP_KEY_BYTES : SMALLBANK_KEY_BYTES;
    processes_check_room(PARENT, FOLDER_BYTES_MIN + bench->keys * key_bytes, "the folder of PostgreSQL");
    const char *made = server_make_folder(PARENT);
    if (!made)
        exit(1);
    snprintf(folder, sizeof folder, "%s", made);
    snprintf(data, sizeof data, "%s/data", folder);
    find_programs();
    choose_user();
    initialise(bench->options);
    launch(bench);
}

/* ---- statements ---- */

static PGconn *connection_of(const struct transactions *bench) {
    return bench->state;
}

static void fail(PGconn *connection, const char *what) {
    const char *reason = PQerrorMessage(connection); /* several lines; the first one is enough */
    processes_fail("PostgreSQL cannot %s: %.*s", what, (int)strcspn(reason, "\n"), reason);
}

static void execute(PGconn *connection, const char *sql) {
    PGresult *result = PQexec(connection, sql);
    if (PQresultStatus(result) != PGRES_COMMAND_OK && PQresultStatus(result) != PGRES_TUPLES_OK
        && PQresultStatus(result) != PGRES_COPY_IN)
        fail(connection, sql);
    PQclear(result);
}

/* ---- the population ---- */

static void make_table(PGconn *connection, const struct postgresql_table *table) {
    char sql[SQL_BYTES];
    snprintf(sql, sizeof sql, "CREATE UNLOGGED TABLE %s (%s)", table->name, table->columns);
    execute(connection, sql);
}

static void copy(PGconn *connection, const char *bytes, size_t count) {
    if (PQputCopyData(connection, bytes, (int)count) != 1)
        fail(connection, "copy rows");
}

static void fill_table(PGconn *connection, const struct postgresql_table *table, uint64_t keys) {
    char sql[SQL_BYTES];
    static char lines[COPY_BYTES];
    size_t used = 0;
    snprintf(sql, sizeof sql, "COPY %s FROM STDIN", table->name);
    execute(connection, sql);
    for (uint64_t key = 0; key < keys; key++) {
        used += table->rows(key, lines + used, sizeof lines - used);
        if (used > COPY_BYTES - ROWS_BYTES || key + 1 == keys) {
            copy(connection, lines, used);
            used = 0;
        }
    }
    if (PQputCopyEnd(connection, NULL) != 1)
        fail(connection, "copy rows");
    PGresult *result = PQgetResult(connection);
    if (PQresultStatus(result) != PGRES_COMMAND_OK)
        fail(connection, "copy rows");
    PQclear(result);
    PQclear(PQgetResult(connection));
    snprintf(sql, sizeof sql, "ALTER TABLE %s ADD PRIMARY KEY (%s)", table->name, table->keys);
    execute(connection, sql);
    if (table->index) {
        snprintf(sql, sizeof sql, "CREATE UNIQUE INDEX ON %s (%s)", table->name, table->index);
        execute(connection, sql);
    }
}

static void fill(struct transactions *bench) {
    const struct postgresql_workload *workload = workload_of(bench);
    PGconn *connection = connection_of(bench);
    for (const struct postgresql_table *table = workload->tables; table->name; table++) {
        make_table(connection, table);
        fill_table(connection, table, bench->keys);
    }
    execute(connection, "VACUUM ANALYZE");
    if (workload->functions)
        execute(connection, workload->functions);
}

/* ---- the processes ---- */

/* Wait until the server accepts connections. */
static void open_connection(struct transactions *bench) {
    char where[128];
    uint64_t deadline = remo__deadline(CONNECT_NS);
    PGconn *connection = NULL;
    server_share_processors(bench->options);
    snprintf(where, sizeof where, "host=%s dbname=postgres user=remo", folder);
    do {
        PQfinish(connection);
        nanosleep(&(struct timespec){.tv_nsec = 10 * REMO__NS_PER_MS}, NULL);
        connection = PQconnectdb(where);
    } while (PQstatus(connection) != CONNECTION_OK && remo__remaining_ns(deadline) > 0
             && (bench->processes.index > 0 || server_is_running()));
    if (PQstatus(connection) != CONNECTION_OK)
        fail(connection, "accept a connection");
    bench->state = connection;
}

static void prepare(struct transactions *bench) {
    const struct postgresql_workload *workload = workload_of(bench);
    PGconn *connection = connection_of(bench);
    for (unsigned kind = 0; kind < workload->kinds; kind++) {
        const char name[] = {(char)('a' + kind), '\0'};
        PGresult *result = PQprepare(connection, name, workload->statements[kind], 0, NULL);
        if (PQresultStatus(result) != PGRES_COMMAND_OK)
            fail(connection, "prepare a statement");
        PQclear(result);
    }
    if (PQenterPipelineMode(connection) != 1)
        fail(connection, "enter the pipeline mode");
}

static void send_statement(PGconn *connection, unsigned kind,
                           const struct postgresql_parameters *parameters) {
    const char name[] = {(char)('a' + kind), '\0'};
    const char *values[POSTGRESQL_PARAMETERS_MAX];
    for (unsigned i = 0; i < parameters->count; i++)
        values[i] = parameters->texts[i];
    if (PQsendQueryPrepared(connection, name, (int)parameters->count, values, NULL, NULL, 1) != 1
        || PQpipelineSync(connection) != 1)
        fail(connection, "take a statement");
}

/* A statement yields its result, a NULL, and the end of its transaction. */
static void receive_result(struct transactions *bench, unsigned i) {
    PGconn *connection = connection_of(bench);
    PGresult *result = PQgetResult(connection);
    if (PQresultStatus(result) != PGRES_COMMAND_OK && PQresultStatus(result) != PGRES_TUPLES_OK)
        fail(connection, "run a transaction");
    workload_of(bench)->take(bench, i, result);
    PQclear(result);
    PQclear(PQgetResult(connection));
    result = PQgetResult(connection);
    if (PQresultStatus(result) != PGRES_PIPELINE_SYNC)
        fail(connection, "end a transaction");
    PQclear(result);
}

static void run(struct transactions *bench) {
    for (unsigned i = 0; i < bench->window; i++) {
        struct postgresql_parameters parameters = {.count = 0};
        unsigned kind = workload_of(bench)->draw(bench, i, &parameters);
        send_statement(connection_of(bench), kind, &parameters);
    }
    for (unsigned i = 0; i < bench->window; i++)
        receive_result(bench, i);
}

static int64_t sum(struct transactions *bench) {
    PGconn *connection = connection_of(bench);
    if (PQexitPipelineMode(connection) != 1)
        fail(connection, "leave the pipeline mode");
    PGresult *result = PQexecParams(connection,
                                    "SELECT ((SELECT sum(balance) FROM savings) "
                                    "+ (SELECT sum(balance) FROM checking))::bigint",
                                    0, NULL, NULL, NULL, NULL, 1);
    if (PQresultStatus(result) != PGRES_TUPLES_OK)
        fail(connection, "add up the accounts");
    int64_t all = postgresql_integer(result, 0, sizeof all);
    PQclear(result);
    if (PQenterPipelineMode(connection) != 1)
        fail(connection, "enter the pipeline mode");
    return all;
}

int main(int argc, char **argv) {
    static const struct transactions_store postgresql = {.name = "PostgreSQL",
                                                         .windows = {1, 8, 128},
                                                         .start = start,
                                                         .open = open_connection,
                                                         .fill = fill,
                                                         .begin = prepare,
                                                         .run = run,
                                                         .sum = sum};
    return transactions_main(&postgresql, argc, argv);
}
