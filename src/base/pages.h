/* pages.h - private memory for tables with random accesses: in huge pages, if the system has them. With small
 * pages most of the accesses would miss the TLB, besides the cache. */
#pragma once

#include <stdint.h>

/* Return `bytes` bytes of zeros, aligned to pages, or NULL: no memory. A page uses memory after its first
 * access. */
void *remo__pages_map(uint64_t bytes);
/* Return them. NULL has no effect. */
void remo__pages_unmap(void *pages, uint64_t bytes);
