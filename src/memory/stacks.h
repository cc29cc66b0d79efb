/* stacks.h - a pool of stacks, each with a guard below it that cannot be accessed.
 *
 * Model:    one mapping. The kernel provides a page of a stack when it is first used.
 * Overflow: an access to a guard is SIGSEGV or SIGBUS. While a pool that reports it is open, the process
 *           handles each of the two whose action was the default before. The handler prints a sentence,
 *           restores the default and raises the signal again, so the process ends as it would without the
 *           handler. The thread that opened the pool gets an alternate signal stack for it, if it has none.
 * Threads:  one thread opens, uses and closes a pool. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REMO__STACK_GUARD_BYTES (64u << 10) /* a multiple of every page size */

struct remo__stacks {
    char *base;
    size_t stride;      /* from one stack to the next; each begins with its guard */
    size_t stack_bytes; /* without the guard; a multiple of the page size */
    uint32_t count;
    bool reports_overflow;
    char *signal_stack; /* NULL: the thread had one */
};

/* Open a pool of `count` stacks of at least `stack_bytes` each. The handler reports overflows of at most one
 * pool of a thread: of this one, if `reports_overflow`.
 * Errors: -ENOMEM. */
int remo__stacks_open(struct remo__stacks *stacks, uint32_t count, size_t stack_bytes, bool reports_overflow);
void remo__stacks_close(struct remo__stacks *stacks);
/* Return the lowest address of a stack. */
static inline char *remo__stacks_at(const struct remo__stacks *stacks, uint32_t index) {
    return stacks->base + index * stacks->stride + (stacks->stride - stacks->stack_bytes);
}
