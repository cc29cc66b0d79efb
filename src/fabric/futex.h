/* futex.h - sleep on a word of shared memory, wake whoever sleeps there.
 *
 * The word may be mapped at different addresses in different processes. Waking is cheap to miss and safe to
 * repeat: every sleep may end early, and the caller looks at its condition again. */
#ifndef REMO_FABRIC_FUTEX_H
#define REMO_FABRIC_FUTEX_H

#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

/* No sleep lasts longer: a waker that was killed between its store and its wake-up costs its peer this
 * much. */
#define REMO__FUTEX_SLEEP_MAX_NS REMO__NS_PER_S

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

#endif
