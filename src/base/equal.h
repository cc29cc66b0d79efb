/* equal.h - which of 64 bytes are equal to a byte: 16 at once where the CPU can. */
#pragma once

#include <stdint.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define REMO__EQUAL_BYTES 64u /* that are compared at once */

/* Return which of the next 16 bytes are equal to `byte`, as bits. */
static inline uint64_t remo__equal_some(const void *place, uint8_t byte) {
#ifdef __SSE2__
    __m128i some = _mm_loadu_si128(place), wanted = _mm_set1_epi8((char)byte);
    return (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(some, wanted));
#else
    uint64_t equal = 0;
    for (uint32_t i = 0; i < 16; i++)
        equal |= (uint64_t)(((const uint8_t *)place)[i] == byte) << i;
    return equal;
#endif
}

/* The same for the next REMO__EQUAL_BYTES bytes. */
static inline uint64_t remo__equal_bytes(const void *place, uint8_t byte) {
    const char *bytes = place;
    return remo__equal_some(bytes, byte) | remo__equal_some(bytes + 16, byte) << 16
           | remo__equal_some(bytes + 32, byte) << 32 | remo__equal_some(bytes + 48, byte) << 48;
}
