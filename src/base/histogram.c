/* histogram.c - implements histogram.h.
 *
 * A bucket is the top SUB_BITS + 1 bits of its values, and a shift. Every value has exactly one bucket, so
 * recording is an index computation and an increment. */
#include "base/histogram.h"

#include "base/bits.h"

#include <string.h>

#define SUB_BITS REMO__HISTOGRAM_SUB_BITS
#define SUB_COUNT (UINT64_C(1) << SUB_BITS)
#define VALUE_MAX ((UINT64_C(1) << REMO__HISTOGRAM_MAX_BITS) - 1)

/* Shift 0 holds the exact values 0 .. 2 * SUB_COUNT - 1. Each further shift adds SUB_COUNT buckets, because
 * the top bit of its values is always set. */
static size_t bucket_of(uint64_t value) {
    value = remo__min(value, VALUE_MAX);
    if (value < SUB_COUNT)
        return value;
    unsigned shift = 63 - (unsigned)__builtin_clzll(value) - SUB_BITS;
    return (shift << SUB_BITS) + (value >> shift);
}

/* The middle of a bucket. */
static uint64_t bucket_value(size_t index) {
    if (index < 2 * SUB_COUNT)
        return index;
    unsigned shift = (unsigned)(index >> SUB_BITS) - 1;
    uint64_t low = (SUB_COUNT + (index & (SUB_COUNT - 1))) << shift;
    return low + ((UINT64_C(1) << shift) >> 1);
}

void remo__histogram_reset(struct remo__histogram *histogram) {
    memset(histogram, 0, sizeof *histogram);
    histogram->min_ns = UINT64_MAX;
}

void remo__histogram_record(struct remo__histogram *histogram, uint64_t value_ns) {
    remo__histogram_record_many(histogram, value_ns, 1);
}

void remo__histogram_record_many(struct remo__histogram *histogram, uint64_t value_ns, uint64_t count) {
    if (count == 0)
        return;
    histogram->count += count;
    histogram->sum_ns += value_ns * count;
    histogram->min_ns = remo__min(histogram->min_ns, value_ns);
    histogram->max_ns = remo__max(histogram->max_ns, value_ns);
    histogram->buckets[bucket_of(value_ns)] += count;
}

void remo__histogram_merge(struct remo__histogram *into, const struct remo__histogram *from) {
    into->count += from->count;
    into->sum_ns += from->sum_ns;
    into->min_ns = remo__min(into->min_ns, from->min_ns);
    into->max_ns = remo__max(into->max_ns, from->max_ns);
    for (size_t i = 0; i < REMO__HISTOGRAM_BUCKETS; i++)
        into->buckets[i] += from->buckets[i];
}

uint64_t remo__histogram_percentile(const struct remo__histogram *histogram, double percent) {
    if (histogram->count == 0)
        return 0;
    double wanted = percent / 100.0 * (double)histogram->count;
    uint64_t seen = 0;
    for (size_t i = 0; i < REMO__HISTOGRAM_BUCKETS; i++) {
        seen += histogram->buckets[i];
        if (seen > 0 && (double)seen >= wanted)
            return remo__min(remo__max(bucket_value(i), histogram->min_ns), histogram->max_ns);
    }
    return histogram->max_ns;
}

double remo__histogram_mean(const struct remo__histogram *histogram) {
    return histogram->count ? (double)histogram->sum_ns / (double)histogram->count : 0.0;
}

uint64_t remo__histogram_min(const struct remo__histogram *histogram) {
    return histogram->count ? histogram->min_ns : 0;
}

uint64_t remo__histogram_max(const struct remo__histogram *histogram) {
    return histogram->max_ns;
}
