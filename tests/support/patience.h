/* patience.h - limits of time in tests. On a shared machine no time is guaranteed, so a test fails
 * only for a hang or for spinning. With REMO_TEST_BARS=1 in the environment, on a quiet machine,
 * the bars themselves are checked. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#define PATIENCE_HANG_NS 45000000000ull

static inline bool patience_judges_bars(void) {
    const char *bars = getenv("REMO_TEST_BARS");
    return bars && *bars == '1';
}

/* Return whether an action ended in time, not only at a deadline. */
static inline bool in_time(uint64_t took_ns, uint64_t bar_ns) {
    return took_ns < (patience_judges_bars() || bar_ns > PATIENCE_HANG_NS ? bar_ns : PATIENCE_HANG_NS);
}

/* Return whether a process slept while it waited: a spinning one uses a whole core. `bar` is a part
 * of a core. */
static inline bool slept_through(uint64_t used_ns, uint64_t waited_ns, double bar) {
    return (double)used_ns < (double)waited_ns * (patience_judges_bars() ? bar : 0.4);
}
