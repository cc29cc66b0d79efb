/* random.h - fast, seeded, reproducible random numbers (xoshiro256**, Blackman and Vigna 2018).
 * Not for secrets: take secrets from libsodium. */
#pragma once

#include <assert.h>
#include <stdint.h>

/* Threads: not synchronised; use one per thread. */
struct remo__random {
    uint64_t state[4];
};

/* A bijection that mixes all bits (splitmix64); maps consecutive numbers to unrelated numbers. */
static inline uint64_t remo__random_mix(uint64_t value) {
    value += UINT64_C(0x9e3779b97f4a7c15);
    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

/* Any seed is good, 0 included; equal seeds give equal sequences. */
static inline void remo__random_seed(struct remo__random *random, uint64_t seed) {
    for (int i = 0; i < 4; i++)
        random->state[i] = remo__random_mix(seed + (uint64_t)i * UINT64_C(0x9e3779b97f4a7c15));
}

static inline uint64_t remo__random_rotate(uint64_t value, int bits) {
    return value << bits | value >> (64 - bits);
}

/* 64 random bits. */
static inline uint64_t remo__random_next(struct remo__random *random) {
    uint64_t *s = random->state;
    uint64_t result = remo__random_rotate(s[1] * 5, 7) * 9;
    uint64_t shifted = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= shifted;
    s[3] = remo__random_rotate(s[3], 45);
    return result;
}

/* Uniform in [0, count), count > 0. The bias is below count / 2^64. */
static inline uint64_t remo__random_below(struct remo__random *random, uint64_t count) {
    assert(count > 0);
    return (uint64_t)(((unsigned __int128)remo__random_next(random) * count) >> 64);
}

/* Uniform in [0, 1). */
static inline double remo__random_unit(struct remo__random *random) {
    return (double)(remo__random_next(random) >> 11) * 0x1p-53;
}
