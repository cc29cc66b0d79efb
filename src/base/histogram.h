/* histogram.h - a log-linear histogram of durations, of fixed size.
 *
 * Values up to 511 ns are exact. Above that, a bucket spans 1/256 of its power of two, so the error of a
 * percentile is at most 0.2 %. Values above 2^42 ns (73 minutes) count in the last bucket.
 * Threads: not synchronised; use one histogram per thread and merge them. */
#pragma once

#include <stdint.h>

#define REMO__HISTOGRAM_SUB_BITS 8
#define REMO__HISTOGRAM_MAX_BITS 42
#define REMO__HISTOGRAM_BUCKETS \
    ((REMO__HISTOGRAM_MAX_BITS - REMO__HISTOGRAM_SUB_BITS + 1) << REMO__HISTOGRAM_SUB_BITS)

/* 70 KiB; remo__histogram_reset before the first use. */
struct remo__histogram {
    uint64_t count;
    uint64_t sum_ns;
    uint64_t min_ns; /* UINT64_MAX if empty */
    uint64_t max_ns;
    uint64_t buckets[REMO__HISTOGRAM_BUCKETS];
};

void remo__histogram_reset(struct remo__histogram *histogram);

/* Record one value, or `count` equal values. No allocation, no system call: fit for the data path. */
void remo__histogram_record(struct remo__histogram *histogram, uint64_t value_ns);
void remo__histogram_record_many(struct remo__histogram *histogram, uint64_t value_ns, uint64_t count);

/* Add all values of `from` to `into`. */
void remo__histogram_merge(struct remo__histogram *into, const struct remo__histogram *from);

/* The value that `percent` (0 to 100) of all values do not exceed; 0 if empty. */
uint64_t remo__histogram_percentile(const struct remo__histogram *histogram, double percent);

/* Exact; 0 if empty. */
double remo__histogram_mean(const struct remo__histogram *histogram);
uint64_t remo__histogram_min(const struct remo__histogram *histogram);
uint64_t remo__histogram_max(const struct remo__histogram *histogram);

static inline uint64_t remo__histogram_count(const struct remo__histogram *histogram) {
    return histogram->count;
}
