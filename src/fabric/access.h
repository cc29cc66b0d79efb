/* access.h - all accesses of the CPU to network memory, so that the simulator can schedule each of them.
 *
 * Order:  peers and the network device write the same memory concurrently. A load of a word acquires, a store
 *         releases. Larger data may be torn, and must carry a checksum; on a mapped fabric a word that is
 *         stored after it proves that it is complete. A word that network atomics change is never stored by
 *         the CPU, except on a mapped fabric while no other node changes the word.
 * Caches: where hardware does not keep caches coherent (caps.coherent is false), a store must be flushed
 *         before peers can read it. Lines must be invalidated before this CPU can read peers' writes. Only
 *         the simulator has such a fabric; elsewhere both do nothing. */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/equal.h"
#include "fabric/mapped.h"

#ifdef REMO_SIM
uint64_t remo__load(const void *word);
void remo__store(void *word, uint64_t value);
void remo__copy_from(void *dst, const void *network, size_t bytes);
void remo__copy_to(void *network, const void *src, size_t bytes);
void remo__flush(const void *network, size_t bytes);
void remo__invalidate(const void *network, size_t bytes);
#else
static inline uint64_t remo__load(const void *word) {
    return atomic_load_explicit((const _Atomic uint64_t *)word, memory_order_acquire);
}

static inline void remo__store(void *word, uint64_t value) {
    atomic_store_explicit((_Atomic uint64_t *)word, value, memory_order_release);
}

REMO__MAPPED_INLINE void remo__copy_from(void *dst, const void *network, size_t bytes) {
    remo__mapped_copy_from(dst, network, bytes);
}

REMO__MAPPED_INLINE void remo__copy_to(void *network, const void *src, size_t bytes) {
    remo__mapped_copy_to(network, src, bytes);
}

static inline void remo__flush(const void *network, size_t bytes) {
    (void)network, (void)bytes;
}

static inline void remo__invalidate(const void *network, size_t bytes) {
    (void)network, (void)bytes;
}
#endif

/* Return which of the next REMO__EQUAL_BYTES bytes of network memory are equal to `byte`, as bits. */
REMO__MAPPED_INLINE uint64_t remo__equal_from(const void *network, uint8_t byte) {
#if defined(REMO_SIM) || defined(__SANITIZE_THREAD__)
    char bytes[REMO__EQUAL_BYTES];
    remo__copy_from(bytes, network, sizeof bytes);
    return remo__equal_bytes(bytes, byte);
#else
    uint64_t equal = remo__equal_bytes(network, byte);
    remo__mapped_acquire();
    return equal;
#endif
}
