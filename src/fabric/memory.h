/* memory.h - how much memory may still be allocated without something being killed for it. */
#ifndef REMO_FABRIC_MEMORY_H
#define REMO_FABRIC_MEMORY_H

#include <stdint.h>

/* What allocations leave free, for everything else on the machine. */
#define REMO__MEMORY_SPARE_BYTES (UINT64_C(64) << 20)

/* What the machine and every control group above this process (version 1 or 2) still have, in bytes; the file
 * cache, which the kernel gives back, counts as free. UINT64_MAX when nothing is known. Reads a few files of
 * /proc and /sys. */
uint64_t remo__memory_available(void);

/* How many huge pages of `page_bytes` are reserved and nobody's. */
uint64_t remo__memory_huge_pages_free(uint64_t page_bytes);

#endif
