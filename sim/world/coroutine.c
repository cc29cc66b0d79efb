/* coroutine.c - the stack switch of coroutine.h, for x86-64 and aarch64.
 * It pushes the callee-saved registers onto the stack, then changes the stack pointer. */
#include "sim/world/coroutine.h"

#include <stdint.h>
#include <string.h>

void coroutine_switch_stack(void **from_sp, void *to_sp);

#if defined(__x86_64__)
__asm__(".text\n"
        ".globl coroutine_switch_stack\n"
        ".type coroutine_switch_stack,@function\n"
        "coroutine_switch_stack:\n"
        "    push %rbp\n    push %rbx\n    push %r12\n    push %r13\n    push %r14\n    push %r15\n"
        "    mov %rsp, (%rdi)\n"
        "    mov %rsi, %rsp\n"
        "    pop %r15\n    pop %r14\n    pop %r13\n    pop %r12\n    pop %rbx\n    pop %rbp\n"
        "    ret\n"
        ".size coroutine_switch_stack,.-coroutine_switch_stack\n");
#define SAVED_WORDS 6u
#elif defined(__aarch64__)
__asm__(".text\n"
        ".globl coroutine_switch_stack\n"
        ".type coroutine_switch_stack,%function\n"
        "coroutine_switch_stack:\n"
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
        ".size coroutine_switch_stack,.-coroutine_switch_stack\n");
#else
#error "the simulator switches stacks on x86-64 and aarch64 only"
#endif

void coroutine_make(struct coroutine *coroutine, char *stack, void (*run)(void)) {
    uint64_t *top = (uint64_t *)(stack + COROUTINE_STACK_BYTES) - 2;
    coroutine->stack = stack;
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
    coroutine->sp = top;
}

void coroutine_switch(struct coroutine *from, const struct coroutine *to) {
    coroutine_switch_stack(&from->sp, to->sp);
}
