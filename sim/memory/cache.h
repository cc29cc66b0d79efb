/* cache.h - CPU caches of nodes whose hardware does not keep them coherent (profile cxl_nc).
 *
 * Model:   one memory, and a write-back cache per node. A load finds its line in the cache, however stale, or
 *          fetches it. A store changes only the cached line. At any time a whole line may be written back,
 *          or dropped if it is clean. `flush` writes lines back; `invalidate` also drops them. Network
 *          operations run on the poster's CPU. A read drops its lines and fetches them again. A write goes
 *          through the cache and is flushed at once, with the cached rest of the line.
 * Scope:   arenas. A buffer that only one node accesses needs no cache. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "sim/scheduler.h"

/* Under profiles with coherent CPUs, and outside arenas, these functions access memory directly. */
uint64_t sim_cache_load(uint32_t node, const void *word);
void sim_cache_read(uint32_t node, void *dst, const void *at, size_t bytes);
void sim_cache_write(uint32_t node, void *at, const void *src, size_t bytes);
/* Copy the source of a write as this node's CPU sees it: from its cache, or from private memory. */
void sim_cache_source(uint32_t node, void *dst, const void *at, size_t bytes);
void sim_cache_flush(uint32_t node, const void *at, size_t bytes);
void sim_cache_invalidate(uint32_t node, const void *at, size_t bytes);

/* Return how many lines of this node may be written back or dropped spontaneously. */
uint32_t sim_cache_lines(uint32_t node);
void sim_cache_lose_one(uint32_t node);
void sim_cache_open(void);
