/* relax.h - the processor's hint for a loop that polls memory. */
#pragma once

/* Yield to the sibling hardware thread, or save power, for some tens of cycles. */
static inline void remo__relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}
