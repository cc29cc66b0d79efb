/* patience.h - what a test may say about time. On a machine that others use too, nobody can promise any: a
 * test fails only for what amounts to a hang, or to spinning. With REMO_TEST_BARS=1 in the environment, for a
 * quiet machine, the bars themselves are judged. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#define PATIENCE_HANG_NS 45000000000ull

static inline bool patience_judges_bars(void) {
    const char *bars = getenv("REMO_TEST_BARS");
    return bars && *bars == '1';
}

/* Did what took so long end by itself, or only because something gave up? */
static inline bool in_time(uint64_t took_ns, uint64_t bar_ns) {
    return took_ns < (patience_judges_bars() || bar_ns > PATIENCE_HANG_NS ? bar_ns : PATIENCE_HANG_NS);
}

/* Did a process that waited for so long sleep? One that spins uses all it gets; `bar` is a part of a core. */
static inline bool slept_through(uint64_t used_ns, uint64_t waited_ns, double bar) {
    return (double)used_ns < (double)waited_ns * (patience_judges_bars() ? bar : 0.4);
}
