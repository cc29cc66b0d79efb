/* measure.h - what the programs that measure peers have in common: their options, the clock, the line they
 * print.
 *
 * An operation of 20 ns cannot be timed by itself. Operations are run in batches of about 20 us (one
 * operation, when it takes longer), and the percentiles are those of the batches' means: p50_ns is what an
 * operation usually costs, p999_ns shows interruptions. ops_per_s counts everything, interruptions too. */
#pragma once

#include <stdint.h>

#define MEASURE_NAME_BYTES 32

/* The same options for every program; one that means nothing to a program is ignored. */
struct measure_options {
    const char *peer;        /* --peer NAME: what to call it in the output */
    const char *bench;       /* --bench NAME */
    double seconds;          /* --seconds S, for each figure */
    uint64_t bytes;          /* --bytes N for read and write; 0: the usual sizes */
    unsigned window;         /* --window N, operations outstanding; 0: the usual ones */
    unsigned active;         /* --active N: how many of the processes work, the others wait in a barrier */
    uint64_t accounts_count; /* --accounts N */
    uint64_t keys_count;     /* --keys N */
    int read_percent;        /* --reads N; -1: the usual ones */
    double zipf;             /* --zipf THETA; 0: uniform */
    int cpus[2];             /* --cpus A,B; process i is pinned to cpus[i % 2], -1: not pinned */
};

/* Parse or exit with a sentence (argp). */
void measure_parse(int argc, char **argv, struct measure_options *ret_options);

/* Pin this process to the processor of process `rank`, and have it die with its parent (mpirun, remo
 * bench). */
void measure_settle(const struct measure_options *options, int rank);

struct measure_result {
    uint64_t ops;
    double seconds;
    double ops_per_s;
    double p50_ns, p99_ns, p999_ns;
};

/* Run `operations` operations and return how many nanoseconds they took. */
typedef double (*measure_batch)(void *ctx, uint64_t operations);

/* Warm up, find the batch size (a multiple of `window`), and run batches for `seconds`. Exits when there is
 * no memory. */
void measure_run(measure_batch batch, void *ctx, unsigned window, double seconds,
                 struct measure_result *ret_result);

/* The figure of several processes that worked at once: rates are added up, the median is averaged, and the
 * tails are those of the worst. */
void measure_merge(const struct measure_result *results, int count, struct measure_result *ret_merged);

/* What one figure is about; a zero or a NULL is left out of the line. */
struct measure_subject {
    const char *bench, *object;
    int nodes;
    uint64_t bytes;
    unsigned window;
    unsigned active;
    uint64_t accounts_count;
    uint64_t keys_count;
    int read_percent; /* -1: left out */
    const char *keys; /* how they are drawn */
};

/* One JSON object on a line of standard output, written at once. */
void measure_print(const struct measure_options *options, const struct measure_subject *subject,
                   const struct measure_result *result);

/* The same with "error" in place of the figures. `sentence` has no characters that JSON must escape. */
void measure_print_error(const struct measure_options *options, const struct measure_subject *subject,
                         const char *sentence);

/* Process 0 says that all figures are out: without this line peers.c takes the end of a program for a
 * crash. */
void measure_print_end(int rank);
