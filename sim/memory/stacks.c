/* stacks.c - the stacks of tasks in the simulated heap: they are part of a world's state, and have no guard
 * page. */
#include "memory/stacks.h"

#include "base/bits.h"
#include "base/error.h"
#include "sim/memory/heap.h"

int remo__stacks_open(struct remo__stacks *stacks, uint32_t count, size_t stack_bytes,
                      bool reports_overflow) {
    (void)reports_overflow;
    *stacks = (struct remo__stacks){.count = count, .stack_bytes = remo__align_up(stack_bytes, 64)};
    stacks->stride = stacks->stack_bytes;
    stacks->base = sim_aligned_alloc(64, count * stacks->stride);
    return stacks->base ? 0 : remo__fail(-ENOMEM, "no memory for %u stacks", count);
}

void remo__stacks_close(struct remo__stacks *stacks) {
    sim_free(stacks->base);
}
