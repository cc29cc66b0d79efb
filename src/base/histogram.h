/* histogram.h - how long things took: a log-linear histogram of fixed size.
 *
 * Values up to 511 ns are kept exactly; above that a bucket is 1/256 of its power of two wide, so that a
 * percentile is off by 0.2 % at most. Values beyond 2^42 ns (73 minutes) count as that.
 * Not synchronised: one per thread, merged at the end. */
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
    uint64_t min_ns; /* UINT64_MAX while empty */
    uint64_t max_ns;
    uint64_t buckets[REMO__HISTOGRAM_BUCKETS];
};

void remo__histogram_reset(struct remo__histogram *histogram);

/* Note one value, or `count` equal ones. No allocation, no system call: may stand on the data path. */
void remo__histogram_record(struct remo__histogram *histogram, uint64_t value_ns);
void remo__histogram_record_many(struct remo__histogram *histogram, uint64_t value_ns, uint64_t count);

/* Add all that `from` holds to `into`. */
void remo__histogram_merge(struct remo__histogram *into, const struct remo__histogram *from);

/* The value that `percent` (0 to 100) of all values do not exceed; 0 while empty. */
uint64_t remo__histogram_percentile(const struct remo__histogram *histogram, double percent);

/* These are exact; 0 while empty. */
double remo__histogram_mean(const struct remo__histogram *histogram);
uint64_t remo__histogram_min(const struct remo__histogram *histogram);
uint64_t remo__histogram_max(const struct remo__histogram *histogram);

static inline uint64_t remo__histogram_count(const struct remo__histogram *histogram) {
    return histogram->count;
}
