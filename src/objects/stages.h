/* stages.h - the stages in which the participants of a barrier announce their arrivals.
 *
 * Model:    the distance from one participant to another is the number of steps between them in the cyclic
 *           order of ranks. In the first stage each participant announces its arrival over the distances 1,
 *           2, ..., radix - 1, in the second stage over radix, 2 * radix, ... It waits for the announcements
 *           of its peers over the same distances before it ends the stage. An announcement of the second
 *           stage implies the arrivals of the radix - 1 participants before its sender.
 * Radix:    one stage, in which each participant announces its arrival to all others, up to
 *           REMO__ONE_STAGE_MAX participants. Above, the square root of their number, because each of the
 *           two stages then has about the same number of announcements.
 * Measured: in the simulated network, 64 participants take 8.6 us with one stage and 6.2 us with two; 30 take
 *           4.6 and 4.7 us, 18 take 3.4 and 3.9 us (docs/internals/barrier.md).
 * Source:   Hensgen, Finkel and Manber, 1988, with radix 2 and as many stages as necessary. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/bits.h"

#ifdef REMO_SIM_SMALL
#define REMO__ONE_STAGE_MAX 3u
#else
#define REMO__ONE_STAGE_MAX 16u
#endif

struct remo__stages {
    uint32_t count; /* participants */
    uint32_t radix;
};

static inline struct remo__stages remo__stages_of(uint32_t count) {
    uint32_t radix = count;
    if (count > REMO__ONE_STAGE_MAX)
        for (radix = 2; radix * radix < count;)
            radix++;
    return (struct remo__stages){.count = count, .radix = radix};
}

/* A stage is named by its first distance: 1, or the radix. Return the end of its distances. */
static inline uint32_t remo__stage_end(const struct remo__stages *stages, uint32_t stage) {
    return remo__min(stage * stages->radix, stages->count);
}

static inline bool remo__stage_is_last(const struct remo__stages *stages, uint32_t stage) {
    return remo__stage_end(stages, stage) == stages->count;
}

/* Return whether a participant announces its arrival over the distance, in any stage. */
static inline bool remo__stages_have(const struct remo__stages *stages, uint32_t distance) {
    return distance < stages->radix || distance % stages->radix == 0;
}
