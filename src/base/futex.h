/* futex.h - sleep on a word of shared memory, and wake its sleepers.
 *
 * Processes may map the word at different addresses. A sleep may end early, so the caller checks its
 * condition again; a superfluous wake-up is harmless. */
#pragma once

#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

/* The longest sleep. It bounds the delay if a waker is killed between its store and its wake-up, and its
 * failure is not detected before. */
#define REMO__FUTEX_SLEEP_MAX_NS (10 * REMO__NS_PER_S)

/* Sleep while *word == seen, at most `timeout_ns` (REMO_FOREVER: until the bound above). */
static inline void remo__futex_wait(_Atomic uint32_t *word, uint32_t seen, uint64_t timeout_ns) {
    if (timeout_ns > REMO__FUTEX_SLEEP_MAX_NS)
        timeout_ns = REMO__FUTEX_SLEEP_MAX_NS;
    struct timespec relative = {.tv_sec = (time_t)(timeout_ns / REMO__NS_PER_S),
                                .tv_nsec = (long)(timeout_ns % REMO__NS_PER_S)};
    syscall(SYS_futex, word, FUTEX_WAIT, seen, &relative, NULL, 0);
}

static inline void remo__futex_wake_all(_Atomic uint32_t *word) {
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
