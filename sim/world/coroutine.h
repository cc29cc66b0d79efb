/* coroutine.h - stacks that run in turn on one thread. A switch takes a dozen instructions, no
 * system call. */
#pragma once

#include <stddef.h>

#define COROUTINE_STACK_BYTES (256u << 10)

struct coroutine {
    void *sp;    /* stack pointer while suspended */
    char *stack; /* NULL: the thread's own */
};

/* Prepare a coroutine that starts in `run`, which must not return. */
void coroutine_make(struct coroutine *coroutine, char *stack, void (*run)(void));
/* Suspend the current coroutine, saved in `from`, and resume `to`. */
void coroutine_switch(struct coroutine *from, const struct coroutine *to);
