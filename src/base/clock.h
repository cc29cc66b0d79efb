/* clock.h - time and deadlines, in nanoseconds of a monotonic clock.
 * In the simulator time is virtual: the simulator implements these functions. */
#pragma once

#include <remo/error.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define REMO__NS_PER_US UINT64_C(1000)
#define REMO__NS_PER_MS UINT64_C(1000000)
#define REMO__NS_PER_S UINT64_C(1000000000)

#define REMO__FAR_NS (20 * REMO__NS_PER_MS) /* more than the period of the kernel's timer */

#ifdef REMO_SIM
uint64_t remo__now_ns(void);
uint64_t remo__deadline(uint64_t timeout_ns);
static inline uint64_t remo__now_coarse_ns(void) {
    return remo__now_ns();
}
#else
/* Cost: about 20 ns, no system call (vDSO). */
static inline uint64_t remo__now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * REMO__NS_PER_S + (uint64_t)now.tv_nsec;
}

/* The time of the kernel's last timer interrupt: usually at most 10 ms ago. Cost: about 5 ns. */
static inline uint64_t remo__now_coarse_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint64_t)now.tv_sec * REMO__NS_PER_S + (uint64_t)now.tv_nsec;
}

/* The time `timeout_ns` from now. REMO_FOREVER stays REMO_FOREVER; 0 is a deadline already reached. */
static inline uint64_t remo__deadline(uint64_t timeout_ns) {
    if (timeout_ns == REMO_FOREVER)
        return REMO_FOREVER;
    uint64_t deadline;
    return __builtin_add_overflow(remo__now_ns(), timeout_ns, &deadline) ? REMO_FOREVER : deadline;
}
#endif

/* The time left until `deadline`: 0 once it is reached; REMO_FOREVER if `deadline` is REMO_FOREVER. */
static inline uint64_t remo__remaining_ns(uint64_t deadline) {
    if (deadline == REMO_FOREVER)
        return REMO_FOREVER;
    uint64_t now = remo__now_ns();
    return now < deadline ? deadline - now : 0;
}

/* Return whether `deadline` is reached. Costs less than remo__now_ns if it is far. If the kernel's timer is
 * late, so is the result. */
static inline bool remo__is_reached(uint64_t deadline) {
    if (deadline == REMO_FOREVER || deadline > remo__now_coarse_ns() + REMO__FAR_NS)
        return false;
    return remo__now_ns() >= deadline;
}
