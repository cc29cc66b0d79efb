/* result.h - one figure of Remo or of a peer, from one run or the median of several.
 *
 * Its JSON is the interface of `remo bench --json`. An unmeasured figure is null there, NAN here. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct bench_result {
    char peer[32];     /* "": Remo */
    char transport[8]; /* of a peer that is a server: "unix" or "tcp" (loopback) */
    char bench[32], object[32], variant[64], fabric[16];
    uint32_t nodes, threads;
    uint32_t active; /* nodes that operated; 0: unknown */
    uint64_t bytes;
    uint32_t window;
    uint64_t keys_count, accounts_count;
    int read_percent;      /* -1: does not apply */
    char distribution[24]; /* of keys: "uniform", "zipf 0.99" */
    uint32_t runs;         /* number of runs behind the median */
    uint32_t batch;        /* operations timed together; 0: unknown */
    double seconds, ops, ops_per_s;
    double p50_ns, p99_ns, p999_ns;
    double limit_ns, ratio;
    char limit[96];
    double reads, writes, atomics, imms, net_bytes; /* network operations per operation */
    /* of fabric verbs, per operation */
    double wire_requests, wire_posts, wire_signalled, wire_inlined, wire_bytes;
    double reserved_per_live; /* bytes of memory taken per byte in use; NAN: does not apply */
    double repeats;           /* repeated attempts per transaction, after conflicts; NAN: does not apply */
    char error[400];          /* instead of figures */
    char skipped[256];        /* reason why the peer was not measured */
};

/* Initialise an empty result; every figure is unknown. */
void bench_result_reset(struct bench_result *result);
/* Format as one line of JSON without a line end, to be freed. Returns NULL without memory. */
char *bench_result_format(const struct bench_result *result);
/* Parse an object; unknown members are ignored. Errors: -EINVAL (not an object with "bench"). */
int bench_result_parse(const json_t *object, struct bench_result *ret_result);
/* Return whether both measure the same operation. Unknown members match; peers are not compared. */
int bench_result_matches(const struct bench_result *a, const struct bench_result *b);
/* Return whether a result of Remo is compared with that of a peer. Unlike bench_result_matches, the windows
 * of transactions may differ: a server needs a larger one. */
int bench_result_competes(const struct bench_result *own, const struct bench_result *peer);
/* Return whether both also belong to the same peer and point. */
int bench_result_same(const struct bench_result *a, const struct bench_result *b);
/* Compute the median of each figure over several runs of one point. */
void bench_result_median(const struct bench_result *const *results, uint32_t count,
                         struct bench_result *ret_result);
/* Format the peer and its transport: "redis, TCP". */
void bench_result_peer(const struct bench_result *result, char *ret_text, size_t text_bytes);
/* Format a title: "read 4 KiB", "kv, 50 % reads, window 128, zipf 0.99". */
void bench_result_title(const struct bench_result *result, char *ret_text, size_t text_bytes);
/* Return whether the time is below its limit by more than 5 %, the difference between equal
 * times in one run. No operation is faster than the hardware: then the limit or the benchmark is
 * wrong. */
bool bench_result_beats_limit(const struct bench_result *result);
