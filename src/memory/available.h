/* available.h - the amount of memory that can be allocated without invoking the out-of-memory killer. */
#pragma once

#include <stdint.h>

/* Allocations leave this much free for other programs. */
#define REMO__MEMORY_SPARE_BYTES (UINT64_C(64) << 20)

/* The bytes available on the machine and in every control group (version 1 or 2) of this process. The file
 * cache, which the kernel reclaims, counts as free. UINT64_MAX if no limit is known. Cost: reads files of
 * /proc and
 * /sys. */
uint64_t remo__memory_available(void);

/* The number of reserved huge pages of `page_bytes` that are free. */
uint64_t remo__memory_huge_pages_free(uint64_t page_bytes);
