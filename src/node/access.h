/* access.h - how the CPU touches network memory: the only way, so that the simulator sees every access.
 *
 * Peers and the NIC write the same memory at any time. Words are loaded with acquire and stored with release;
 * anything larger may be torn and must carry a check. Words that network atomics change are never stored
 * here.
 *
 * Where no hardware keeps the caches of machines coherent (caps.coherent), what this CPU stored must be
 * flushed before peers may see it, and what peers wrote is seen after the lines were invalidated. No fabric
 * of this version is such a one but the simulator's, so elsewhere both are nothing.
 */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

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

static inline void remo__copy_from(void *dst, const void *network, size_t bytes) {
    remo__mapped_copy_from(dst, network, bytes);
}

static inline void remo__copy_to(void *network, const void *src, size_t bytes) {
    remo__mapped_copy_to(network, src, bytes);
}

static inline void remo__flush(const void *network, size_t bytes) {
    (void)network, (void)bytes;
}

static inline void remo__invalidate(const void *network, size_t bytes) {
    (void)network, (void)bytes;
}
#endif
