/* bits.h - helpers of all layers: cache lines, branch hints, powers of two, alignment. */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Data that one thread writes often does not share a cache line with data of another thread. */
#define REMO__CACHE_LINE 64
#define REMO__CACHE_ALIGNED __attribute__((aligned(REMO__CACHE_LINE)))

#define remo__likely(condition) __builtin_expect(!!(condition), 1)
#define remo__unlikely(condition) __builtin_expect(!!(condition), 0)

#define REMO__ARRAY_COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* The struct of type `type` whose member `member` is at `pointer`. */
#define remo__container_of(pointer, type, member) \
    ((type *)((char *)(1 ? (pointer) : &((type *)0)->member) - offsetof(type, member)))

static inline bool remo__is_power_of_two(uint64_t value) {
    return value != 0 && (value & (value - 1)) == 0;
}

/* The smallest power of two that is at least `value`; 1 for 0; 0 if it needs more than 64 bits. */
static inline uint64_t remo__power_of_two_from(uint64_t value) {
    if (value <= 1)
        return 1;
    int bits = 64 - __builtin_clzll(value - 1);
    return bits == 64 ? 0 : UINT64_C(1) << bits;
}

/* `value` rounded up to a multiple of `alignment`, a power of two. The result must fit in 64 bits. */
static inline uint64_t remo__align_up(uint64_t value, uint64_t alignment) {
    assert(remo__is_power_of_two(alignment));
    assert(value <= UINT64_MAX - (alignment - 1));
    return (value + alignment - 1) & ~(alignment - 1);
}

static inline uint64_t remo__min(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static inline uint64_t remo__max(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}
