/* measure.h - common parts of the programs that measure peers: options, clock, output.
 *
 * An operation of 20 ns cannot be timed alone. Operations run in batches of about 20 us (one operation, if
 * it takes longer), and percentiles are those of the batches' means: p50_ns is the usual cost of an
 * operation, p999_ns shows interruptions. ops_per_s includes interruptions. */
#pragma once

#include <stdint.h>

#define MEASURE_NAME_BYTES 32
#define MEASURE_SECONDS_MIN 0.01
#define MEASURE_TCP "tcp"
#define MEASURE_UNIX "unix"
#define POSTGRESQL_FOLDERS "/usr/lib/postgresql/*/bin" /* of its programs in Debian, which are not in PATH */

/* The options of all programs; a program ignores those that do not concern it. */
struct measure_options {
    const char *peer;        /* --peer NAME: its name in the output */
    const char *bench;       /* --bench NAME */
    const char *transport;   /* --transport NAME, of a server: MEASURE_TCP or MEASURE_UNIX; NULL: none */
    double seconds;          /* --seconds S, for each figure; at least MEASURE_SECONDS_MIN */
    uint64_t bytes;          /* --bytes N for read and write; 0: the default sizes */
    unsigned window;         /* --window N, operations outstanding; 0: the defaults */
    unsigned active;         /* --active N: processes that operate; others, if any, wait in a barrier */
    uint64_t accounts_count; /* --accounts N */
    uint64_t keys_count;     /* --keys N */
    int read_percent;        /* --reads N; -1: the defaults */
    double zipf;             /* --zipf THETA; 0: uniform */
    int cpus[2];             /* --cpus A,B; process i is pinned to cpus[i % 2], -1: not pinned */
};

/* Parse the options, or exit with an error (argp). */
void measure_parse(int argc, char **argv, struct measure_options *ret_options);

/* Pin this process to the processor of process `rank`, and let it end with its parent (mpirun, remo
 * bench). */
void measure_settle(const struct measure_options *options, int rank);

struct measure_result {
    uint64_t ops;
    double seconds;
    double ops_per_s;
    double p50_ns, p99_ns, p999_ns;
};

/* Run `operations` operations and return their time in nanoseconds. */
typedef double (*measure_batch)(void *ctx, uint64_t operations);

/* Warm up, find the batch size (a multiple of `window`), and run batches for `seconds`. Exits
 * without memory. */
void measure_run(measure_batch batch, void *ctx, unsigned window, double seconds,
                 struct measure_result *ret_result);

/* Merge the figures of processes that ran together: the sum of rates, the mean of medians, the
 * worst tails. */
void measure_merge(const struct measure_result *results, int count, struct measure_result *ret_merged);

/* The subject of a figure; members that are zero or NULL are omitted from the line. */
struct measure_subject {
    const char *bench, *object, *variant;
    int nodes;
    unsigned threads; /* of each node; 0: 1 */
    uint64_t bytes;
    unsigned window;
    unsigned active;
    uint64_t accounts_count;
    uint64_t keys_count;
    int read_percent; /* -1: omitted */
    const char *keys; /* their distribution */
};

/* Print one JSON object as a line of standard output, written at once. */
void measure_print(const struct measure_options *options, const struct measure_subject *subject,
                   const struct measure_result *result);

/* Print "error" in place of the figures. `sentence` has no characters that JSON must escape. */
void measure_print_error(const struct measure_options *options, const struct measure_subject *subject,
                         const char *sentence);

/* Process 0 prints that all figures are complete; without this line, peers.c reports a crash. */
void measure_print_end(int rank);
