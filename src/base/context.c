/* context.c - the stack switch of context.h, for x86-64 and aarch64.
 * It pushes the callee-saved registers onto the stack, then changes the stack pointer. */
#include "base/context.h"

#include <stdint.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#elif defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

#if defined(__x86_64__)
__asm__(".text\n"
        ".globl remo__context_switch_stack\n"
        ".hidden remo__context_switch_stack\n"
        ".type remo__context_switch_stack,@function\n"
        "remo__context_switch_stack:\n"
        "    push %rbp\n    push %rbx\n    push %r12\n    push %r13\n    push %r14\n    push %r15\n"
        "    mov %rsp, (%rdi)\n"
        "    mov %rsi, %rsp\n"
        "    pop %r15\n    pop %r14\n    pop %r13\n    pop %r12\n    pop %rbx\n    pop %rbp\n"
        "    ret\n"
        ".size remo__context_switch_stack,.-remo__context_switch_stack\n");
#define SAVED_WORDS 6u
#elif defined(__aarch64__)
__asm__(".text\n"
        ".globl remo__context_switch_stack\n"
        ".hidden remo__context_switch_stack\n"
        ".type remo__context_switch_stack,%function\n"
        "remo__context_switch_stack:\n"
        "    sub sp, sp, #160\n"
        "    stp x19, x20, [sp]\n    stp x21, x22, [sp, #16]\n    stp x23, x24, [sp, #32]\n"
        "    stp x25, x26, [sp, #48]\n    stp x27, x28, [sp, #64]\n    stp x29, x30, [sp, #80]\n"
        "    stp d8, d9, [sp, #96]\n    stp d10, d11, [sp, #112]\n    stp d12, d13, [sp, #128]\n"
        "    stp d14, d15, [sp, #144]\n"
        "    mov x9, sp\n    str x9, [x0]\n    mov sp, x1\n"
        "    ldp x19, x20, [sp]\n    ldp x21, x22, [sp, #16]\n    ldp x23, x24, [sp, #32]\n"
        "    ldp x25, x26, [sp, #48]\n    ldp x27, x28, [sp, #64]\n    ldp x29, x30, [sp, #80]\n"
        "    ldp d8, d9, [sp, #96]\n    ldp d10, d11, [sp, #112]\n    ldp d12, d13, [sp, #128]\n"
        "    ldp d14, d15, [sp, #144]\n"
        "    add sp, sp, #160\n    ret\n"
        ".size remo__context_switch_stack,.-remo__context_switch_stack\n");
#else
#error "stacks are switched on x86-64 and aarch64 only"
#endif

#if defined(__SANITIZE_ADDRESS__)
static _Thread_local struct remo__context *switched_from;

/* A context runs again. AddressSanitizer then returns the stack of the one that ran before: this is the only
 * way to find the bounds of a thread's own stack. */
static void finish_switch(void *fake_stack) {
    const void *stack;
    size_t stack_bytes;
    __sanitizer_finish_switch_fiber(fake_stack, &stack, &stack_bytes);
    if (!switched_from->stack_bytes) {
        switched_from->stack = (char *)(uintptr_t)stack;
        switched_from->stack_bytes = stack_bytes;
    }
}

void remo__context_started(void) {
    finish_switch(NULL);
}
#endif

void remo__context_make(struct remo__context *context, char *stack, size_t stack_bytes, void (*run)(void)) {
    uint64_t *top = (uint64_t *)(stack + stack_bytes) - 2;
    remo__context_free(context);
    *context = (struct remo__context){.stack = stack, .stack_bytes = stack_bytes};
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(stack,
                                  stack_bytes); /* frames of an earlier context, which never returned */
#endif
#if defined(__x86_64__)
    top[1] = 0;                      /* the return address of `run`: none */
    *top = (uint64_t)(uintptr_t)run; /* at a multiple of 16, as the stack is after a call */
    top -= SAVED_WORDS;
    memset(top, 0, SAVED_WORDS * sizeof *top);
#else
    top -= 20;
    memset(top, 0, 160);
    top[11] = (uint64_t)(uintptr_t)run; /* x30 */
#endif
    context->sp = top;
#if defined(__SANITIZE_THREAD__)
    context->sanitizer = __tsan_create_fiber(0);
#endif
}

#if defined(__SANITIZE_ADDRESS__)
void remo__context_switch(struct remo__context *from, struct remo__context *to) {
    switched_from = from;
    __sanitizer_start_switch_fiber(&from->sanitizer, to->stack, to->stack_bytes);
    remo__context_switch_stack(&from->sp, to->sp);
    finish_switch(from->sanitizer);
}
#elif defined(__SANITIZE_THREAD__)
void remo__context_switch(struct remo__context *from, struct remo__context *to) {
    from->sanitizer = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(to->sanitizer, 0);
    remo__context_switch_stack(&from->sp, to->sp);
}
#endif

void remo__context_free(struct remo__context *context) {
#if defined(__SANITIZE_THREAD__)
    if (context->sanitizer)
        __tsan_destroy_fiber(context->sanitizer);
#endif
    *context = (struct remo__context){0};
}
