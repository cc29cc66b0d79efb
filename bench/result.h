/* result.h - one figure: of Remo or of a peer, of one run or the median of several.
 *
 * Its JSON is the interface of `remo bench --json`. A figure that was not measured is null there, NAN here.
 */
#pragma once

#include <jansson.h>
#include <stdint.h>

struct bench_result {
    char peer[32]; /* "" : Remo */
    char bench[32], object[32], variant[64], fabric[16];
    uint32_t nodes, threads;
    uint32_t active; /* nodes that operated; 0: not said */
    uint64_t bytes;
    uint32_t window;
    uint64_t keys_count, accounts_count;
    int read_percent;      /* -1: does not apply */
    char distribution[24]; /* of keys: "uniform", "zipf 0.99" */
    uint32_t runs;         /* that this is the median of */
    uint32_t batch;        /* operations timed together; 0: not said */
    double seconds, ops, ops_per_s;
    double p50_ns, p99_ns, p999_ns;
    double limit_ns, ratio;
    char limit[96];
    double reads, writes, atomics, imms, net_bytes; /* network operations per operation */
    double wire_requests, wire_posts, wire_signalled, wire_inlined, wire_bytes; /* fabric verbs: likewise */
    char error[400];                                                            /* instead of figures */
    char skipped[200]; /* likewise: not there to be measured */
};

/* Empty, with every figure unknown. */
void bench_result_reset(struct bench_result *result);
/* One line without its end, to be freed; NULL without memory. */
char *bench_result_format(const struct bench_result *result);
/* Errors: -EINVAL when it is not an object with "bench". Unknown members are ignored. */
int bench_result_parse(const json_t *object, struct bench_result *ret_result);
/* Do both measure the same thing? What one of them does not say does not count. Peers are not compared. */
int bench_result_matches(const struct bench_result *a, const struct bench_result *b);
/* Do both also belong to the same peer, and to the same point of it? */
int bench_result_same(const struct bench_result *a, const struct bench_result *b);
/* The median of each figure over several runs of the same point. */
void bench_result_median(const struct bench_result *const *results, uint32_t count,
                         struct bench_result *ret_result);
/* "read 4 KiB", "kv, 50 % reads, window 128, zipf 0.99". */
void bench_result_title(const struct bench_result *result, char *ret_text, size_t text_bytes);
