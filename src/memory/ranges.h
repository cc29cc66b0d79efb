/* ranges.h - a first-fit allocator of ranges. It handles offsets and never accesses the memory.
 *
 * Model:   the free ranges, in a list that is sorted by offset; adjacent ranges are merged.
 * Threads: one at a time. */
#pragma once

#include <stdint.h>

struct remo__range;

/* A zeroed struct is empty. */
struct remo__ranges {
    struct remo__range *first;
};

/* Add a free range, which must not overlap another free range.
 * Errors: -ENOMEM, and the range is not added. */
int remo__ranges_add(struct remo__ranges *ranges, uint64_t offset, uint64_t bytes);
/* Cut `bytes` out of the first free range that fits. `align`: of the offset, a power of two.
 * Errors: -ENOMEM; -ENOSPC, without a sentence: none fits. */
int remo__ranges_take(struct remo__ranges *ranges, uint64_t bytes, uint64_t align, uint64_t *ret_offset);
/* Free the list; it is empty afterwards. */
void remo__ranges_clear(struct remo__ranges *ranges);
