/* context.h - stacks that run in turn on one thread. A switch saves and
 * restores the registers that a call preserves, without a system call.
 *
 * A context is suspended, or it is the one that runs on its thread. AddressSanitizer and ThreadSanitizer are
 * informed of each switch. The simulator's actors and the tasks of remote/scheduler.h use this. */
#pragma once

#include <stddef.h>

struct remo__context {
    void *sp;    /* stack pointer while suspended */
    char *stack; /* lowest address; NULL: the thread's own stack */
    size_t stack_bytes;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    void *sanitizer; /* its record of the context */
#endif
};

/* Prepare a context that starts in `run`, which must not return. Its first statement must be
 * remo__context_started. *context is zero, or a context that is suspended for good. */
void remo__context_make(struct remo__context *context, char *stack, size_t stack_bytes, void (*run)(void));
/* Save the registers that a call preserves on the stack, store the stack pointer, and continue on the other
 * stack. */
void remo__context_switch_stack(void **from_sp, void *to_sp);
/* Suspend the current context, saved in `from`, and resume `to`. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
void remo__context_switch(struct remo__context *from, struct remo__context *to);
#else
static inline void remo__context_switch(struct remo__context *from, struct remo__context *to) {
    remo__context_switch_stack(&from->sp, to->sp);
}
#endif
/* Release the sanitizer's record of a suspended context. */
void remo__context_free(struct remo__context *context);

#if defined(__SANITIZE_ADDRESS__)
void remo__context_started(void);
#else
static inline void remo__context_started(void) {
}
#endif
