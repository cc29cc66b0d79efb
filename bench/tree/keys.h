/* keys.h - keys and values of 8 bytes for the benchmarks of ordered maps, the same for Remo and its peers.
 * A key is the big-endian form of a scrambled number: the keys of consecutive numbers are spread evenly over
 * all owners. A value belongs to one key, whatever its version. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/random.h"

#define TREE_ZIPF 0.99           /* the skew of points with skewed keys */
#define TREE_SCAN_ENTRIES 5000u  /* of a scan */
#define TREE_KEYS_MAX UINT32_MAX /* numbers of keys are stored in 32 bits */

/* The keys with numbers 0 to count - 1 are always present. */
struct tree_keys {
    uint64_t count;
    double theta;    /* 0: the numbers are uniform */
    uint32_t *draws; /* numbers by frequency, drawn in advance; NULL if theta is 0 */
};

/* An entry of a map. Keys are in the order of memcmp. */
struct tree_record {
    uint64_t key, value;
};

/* A thread or a process that draws numbers. */
struct tree_drawer {
    struct remo__random *random;
    uint32_t next; /* index of the next draw */
};

static inline uint64_t tree_big_endian(uint64_t value) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    return __builtin_bswap64(value);
#else
    return value;
#endif
}

/* Return the key of a number, in the order of bytes of the map. */
static inline uint64_t tree_key(uint64_t number) {
    return tree_big_endian(remo__random_mix(number));
}

static inline uint64_t tree_value(uint64_t key, uint64_t version) {
    return version << 32 | (key & UINT32_MAX);
}

static inline bool tree_value_belongs(uint64_t key, uint64_t value) {
    return (key & UINT32_MAX) == (value & UINT32_MAX);
}

/* Prepare draws of skew `theta`; 0 is uniform. `seed` differs between processes. Returns 0 or -ENOMEM. */
int tree_keys_prepare(struct tree_keys *keys, uint64_t count, double theta, uint64_t seed);
void tree_keys_release(struct tree_keys *keys);
/* Begin to draw, at a random index. */
void tree_drawer_begin(struct tree_drawer *drawer, struct remo__random *random);
/* Draw the number of a key, skewed if `is_skewed`. */
uint64_t tree_draw(const struct tree_keys *keys, struct tree_drawer *drawer, bool is_skewed);

/* Return the number of the `index`-th key that a worker inserts. No other
 * worker inserts it. `workers` is their number. */
static inline uint64_t tree_new_number(const struct tree_keys *keys, uint64_t index, uint64_t workers,
                                       uint64_t worker) {
    return keys->count + index * workers + worker;
}

/* Return whether `count` records are in ascending order of keys, and each value belongs to its key. */
bool tree_records_are_right(const struct tree_record *records, uint64_t count);
