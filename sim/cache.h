/* cache.h - what CPUs of simulated nodes see of network memory where no hardware keeps their caches
 * coherent (profile cxl_nc).
 *
 * Model:   one memory, and a write-back cache at each node. A load finds its line in the cache, however
 *          old, or fetches it; a store changes the line in the cache alone. At any moment a line may be
 *          written back, whole, or dropped when it is clean. `flush` writes lines back, `invalidate` does
 *          and drops them. Operations of the network are the poster's CPU at work: a read drops its lines
 *          and fetches them, a write goes to the cache and is flushed at once: with it goes what the cache
 *          has of the rest of the line.
 * Scope:   arenas. Buffers that one node alone touches need no cache to be seen as they are.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "sim/scheduler.h"

/* All of these do the plain thing under profiles with coherent CPUs, and outside arenas. */
uint64_t sim_cache_load(uint32_t node, const void *word);
void sim_cache_store(uint32_t node, void *word, uint64_t value);
void sim_cache_read(uint32_t node, void *dst, const void *at, size_t bytes);
void sim_cache_write(uint32_t node, void *at, const void *src, size_t bytes);
/* The source of a write: what this node's CPU has stored there, through the cache or as into any private
 * memory. */
void sim_cache_source(uint32_t node, void *dst, const void *at, size_t bytes);
void sim_cache_flush(uint32_t node, const void *at, size_t bytes);
void sim_cache_invalidate(uint32_t node, const void *at, size_t bytes);

/* A line of this node may be written back or dropped by itself. */
uint32_t sim_cache_lines(uint32_t node);
void sim_cache_lose_one(uint32_t node);
void sim_cache_open(void);
