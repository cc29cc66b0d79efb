/* peers.c - the table of peers and the start of each one.
 * A program is run by command.c; a peer that is not installed is reported with its packages. */
#include "peers.h"

#include "base/clock.h"
#include "base/error.h"
#include "bench/peers/measure.h"
#include "bench/program.h"

#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ARGUMENTS_MAX 64
#define TEXT_BYTES 40
#define FIGURES_MAX 9                  /* per program: three windows, three shares of reads */
#define START_NS (60 * REMO__NS_PER_S) /* to start, and to fill 100 M accounts */
#define KEY_NS (50 * REMO__NS_PER_US)  /* to insert one key, at worst: PostgreSQL, the rows of a subscriber */

#ifndef PEERS_LIBEXEC
#define PEERS_LIBEXEC "/usr/local/libexec/remo"
#endif

static const char *const one_sided[] = {"read", "write",   "fetch_add", "compare_swap",
                                        "lock", "barrier", "accounts",  NULL};
static const char *const key_value[] = {"kv", NULL};
static const char *const calls[] = {"rpc", NULL};
static const char *const transactions[] = {"smallbank", "tatp", NULL};
static const char *const ordered_map[] = {"tree", "scan", "ycsb", NULL};
static const char *const transactions_and_map[] = {"smallbank", "tatp", "tree", "scan", "ycsb", NULL};

#define OPENMPI "openmpi-bin libopenmpi-dev"

/* Options that OpenMPI's launcher always needs: root, fewer cores than processes, and programs that
 * pin themselves. */
#define LAUNCHER "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"

static const char *const mpi_default[] = {LAUNCHER, NULL};

/* Shared-memory windows, and OpenMPI's shared-memory barrier, which is not its default. */
static const char *const mpi_sm[] = {LAUNCHER,           "--mca", "osc", "sm", "--mca",
                                     "coll_sm_priority", "100",   NULL};

static const struct peer peers[] = {
    {"openmpi-sm", "peer-mpi", "mpirun.openmpi", NULL, OPENMPI, mpi_sm, one_sided, NULL},
    {"openmpi", "peer-mpi", "mpirun.openmpi", NULL, OPENMPI, mpi_default, one_sided, NULL},
    {"openshmem", "peer-oshmem", "oshrun", NULL, OPENMPI, mpi_default, one_sided, NULL},
    {"redis", "peer-redis", "redis-server", NULL, "redis-server", NULL, key_value, "unix"},
    {"redis", "peer-redis", "redis-server", NULL, "redis-server", NULL, key_value, "tcp"},
    {"redis", "peer-redis", "redis-server", NULL, "redis-server", NULL, transactions_and_map, "unix"},
    {"memcached", "peer-memcached", "memcached", NULL, "memcached", NULL, key_value, "unix"},
    {"memcached", "peer-memcached", "memcached", NULL, "memcached", NULL, key_value, "tcp"},
    {"ucx", "peer-ucx", NULL, NULL, "libucx-dev", NULL, calls, NULL},
    {"nng", "peer-nng", NULL, NULL, "libnng-dev", NULL, calls, NULL},
    {"lmdb", "peer-lmdb", NULL, NULL, "liblmdb-dev", NULL, transactions_and_map, NULL},
    {"rocksdb", "peer-rocksdb", NULL, NULL, "librocksdb-dev", NULL, ordered_map, NULL},
    {"sqlite", "peer-sqlite", NULL, NULL, "libsqlite3-dev", NULL, transactions, NULL},
    {"postgresql", "peer-postgresql", "postgres", POSTGRESQL_FOLDERS, "postgresql libpq-dev", NULL,
     transactions, "unix"},
    {0},
};

const struct peer *peers_list(void) {
    return peers;
}

/* ---- programs ---- */

static int is_in_path(const char *command) {
    const char *path = getenv("PATH");
    char file[PATH_MAX];
    for (const char *at = path ? path : "/usr/bin:/bin"; *at;) {
        size_t length = strcspn(at, ":");
        snprintf(file, sizeof file, "%.*s/%s", (int)length, at, command);
        if (length > 0 && access(file, X_OK) == 0)
            return 1;
        at += length + (at[length] == ':');
    }
    return 0;
}

static int is_in_folders(const char *command, const char *folders) {
    char pattern[PATH_MAX];
    glob_t found = {0};
    snprintf(pattern, sizeof pattern, "%s/%s", folders, command);
    int rc = glob(pattern, 0, NULL, &found);
    globfree(&found);
    return rc == 0;
}

static int is_installed(const struct peer *peer) {
    return !peer->command || is_in_path(peer->command)
           || (peer->folders && is_in_folders(peer->command, peer->folders));
}

/* Search the build's own programs first, so that a fresh build does not measure with old ones. */
static int find_program(const char *folder, const char *program, char ret_file[PATH_MAX]) {
    static const char *const beside[] = {"bench/peers", "../bench/peers", "../../bench/peers",
                                         "../libexec/remo"};
    char self[PATH_MAX / 2];
    if (folder) {
        snprintf(ret_file, PATH_MAX, "%s/%s", folder, program);
        return access(ret_file, X_OK) == 0;
    }
    bench_program_path(self, sizeof self);
    char *slash = strrchr(self, '/');
    for (size_t i = 0; slash && i < sizeof beside / sizeof *beside; i++) {
        snprintf(ret_file, PATH_MAX, "%.*s/%s/%s", (int)(slash - self), self, beside[i], program);
        if (access(ret_file, X_OK) == 0)
            return 1;
    }
    snprintf(ret_file, PATH_MAX, "%s/%s", PEERS_LIBEXEC, program);
    return access(ret_file, X_OK) == 0;
}

static int locate(const struct peer *peer, const char *folder, char ret_file[PATH_MAX]) {
    if (!is_installed(peer))
        return remo__fail(-ENOENT, "cannot find %s; install the peer: apt-get install %s", peer->command,
                          peer->packages);
    if (!find_program(folder, peer->program, ret_file))
        return remo__fail(
            -ENOENT,
            "cannot find %s: its packages were missing when Remo was built; apt-get install %s; then run "
            "./remo bench --peers, or build and install Remo again",
            peer->program, peer->packages);
    return 0;
}

int peers_check(const struct peer *peer, const char *folder) {
    char file[PATH_MAX];
    return locate(peer, folder, file);
}

/* ---- one program ---- */

/* An argument list with memory for numbers. */
struct arguments {
    const char *argv[ARGUMENTS_MAX];
    size_t count;
    char texts[16][TEXT_BYTES];
    size_t texts_count;
};

static void add(struct arguments *arguments, const char *argument) {
    if (arguments->count < ARGUMENTS_MAX - 1)
        arguments->argv[arguments->count++] = argument;
}

__attribute__((format(printf, 3, 4))) static void add_option(struct arguments *arguments, const char *option,
                                                             const char *format, ...) {
    if (arguments->texts_count == sizeof arguments->texts / sizeof *arguments->texts)
        return;
    char *text = arguments->texts[arguments->texts_count++];
    va_list values;
    va_start(values, format);
    vsnprintf(text, TEXT_BYTES, format, values);
    va_end(values);
    add(arguments, option);
    add(arguments, text);
}

static void add_launcher(struct arguments *arguments, const struct peer *peer, unsigned nodes) {
    if (!peer->launcher)
        return;
    add(arguments, peer->command);
    for (size_t i = 0; peer->launcher[i]; i++)
        add(arguments, peer->launcher[i]);
    add_option(arguments, "-n", "%u", nodes ? nodes : 2);
}

/* Omitted options get their defaults in measure.c. */
static void add_options(struct arguments *arguments, const struct peers_options *options) {
    if (options->seconds > 0)
        add_option(arguments, "--seconds", "%.3f",
                   options->seconds > MEASURE_SECONDS_MIN ? options->seconds : MEASURE_SECONDS_MIN);
    if (options->bytes)
        add_option(arguments, "--bytes", "%llu", (unsigned long long)options->bytes);
    if (options->window)
        add_option(arguments, "--window", "%u", options->window);
    if (options->active)
        add_option(arguments, "--active", "%u", options->active);
    if (options->accounts_count)
        add_option(arguments, "--accounts", "%llu", (unsigned long long)options->accounts_count);
    if (options->keys_count)
        add_option(arguments, "--keys", "%llu", (unsigned long long)options->keys_count);
    if (options->read_percent >= 0)
        add_option(arguments, "--reads", "%d", options->read_percent);
    if (options->zipf > 0)
        add_option(arguments, "--zipf", "%.4f", options->zipf);
    add_option(arguments, "--cpus", "%d,%d", options->cpus[0], options->cpus[1]);
}

static uint64_t timeout_for(const struct peers_options *options) {
    double seconds = options->seconds > 0 ? options->seconds : 1;
    if (options->timeout_ns)
        return options->timeout_ns;
    return START_NS + (uint64_t)(2 * FIGURES_MAX * seconds * 1e9) + options->keys_count * KEY_NS;
}

/* The sentence and the names come from the table: no character needs an escape. */
static void report_skipped(const struct peer *peer, const char *bench, peers_line line, void *ctx) {
    char text[REMO__SENTENCE_MAX + 128];
    char transport[48] = "";
    if (peer->transport)
        snprintf(transport, sizeof transport, ",\"transport\":\"%s\"", peer->transport);
    snprintf(text, sizeof text, "{\"peer\":\"%s\",\"bench\":\"%s\"%s,\"skipped\":\"%s\"}", peer->name, bench,
             transport, remo_last_error());
    line(ctx, text);
}

static void run_one(const struct peer *peer, const char *bench, const struct peers_options *options,
                    peers_line line, void *ctx) {
    struct arguments arguments = {0};
    char file[PATH_MAX];
    if (locate(peer, options->folder, file)) {
        report_skipped(peer, bench, line, ctx);
        return;
    }
    add_launcher(&arguments, peer, options->nodes);
    add(&arguments, file);
    add_option(&arguments, "--peer", "%s", peer->name);
    add_option(&arguments, "--bench", "%s", bench);
    if (peer->transport)
        add_option(&arguments, "--transport", "%s", peer->transport);
    add_options(&arguments, options);
    struct peers_command command = {.peer = peer->name,
                                    .bench = bench,
                                    .transport = peer->transport,
                                    .argv = arguments.argv,
                                    .timeout_ns = timeout_for(options)};
    peers_run_command(&command, line, ctx);
}

int peers_run(const char *name, const char *bench, const struct peers_options *options, peers_line line,
              void *ctx) {
    int found = 0;
    if (!options || !line)
        return remo__fail(-EINVAL, "peers_run needs options and a function for the lines");
    for (const struct peer *peer = peers; peer->name; peer++) {
        if (name && strcmp(peer->name, name) != 0)
            continue;
        found = 1;
        for (size_t i = 0; peer->benches[i]; i++)
            if (!bench || strcmp(peer->benches[i], bench) == 0)
                run_one(peer, peer->benches[i], options, line, ctx);
    }
    return found ? 0 : remo__fail(-ENOENT, "no peer is called %s; see remo bench --help", name);
}
