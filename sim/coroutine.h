/* coroutine.h - stacks that take turns on one thread. Switching is a dozen instructions and no system call.
 */
#pragma once

#include <stddef.h>

#define COROUTINE_STACK_BYTES (256u << 10)

struct coroutine {
    void *sp;    /* where it stopped */
    char *stack; /* NULL: the thread's own */
};

/* `run` must not return. */
void coroutine_make(struct coroutine *coroutine, char *stack, void (*run)(void));
/* Stop here (remembered in `from`), go on in `to`. */
void coroutine_switch(struct coroutine *from, const struct coroutine *to);
