/* history.h - what was asked of an object and what it answered, and when: the evidence that checkers judge.
 *
 * A call has a begin and an end in any clock that all actors share: the simulator's step, or CLOCK_MONOTONIC
 * on one machine. A call that never ended (its node crashed, or the run was cut off) has end HISTORY_NEVER:
 * it happened once, or not at all. The calls are in the caller's memory. In memory that processes share they
 * outlive who recorded them: a process killed in the middle of history_begin has recorded nothing, and in the
 * middle of history_end a call without end. A history has one writer.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HISTORY_NEVER UINT64_MAX
#define HISTORY_NONE (UINT64_MAX - 1) /* as an end: the call did nothing, and counts for nothing */

struct call {
    uint32_t actor;
    uint32_t function; /* the oracle's own numbering */
    uint64_t key;      /* calls of different keys are independent: checked apart */
    uint64_t argument, second;
    uint64_t result;
    int code; /* 0 or -errno */
    uint64_t begin, end;
};

struct history {
    struct call *calls;
    uint32_t cap;
    uint32_t count;
    bool full; /* calls were lost: no verdict is possible */
};

/* The index for history_end; `cap` when there is no room. */
uint32_t history_begin(struct history *history, const struct call *call, uint64_t now);
void history_end(struct history *history, uint32_t index, int code, uint64_t result, uint64_t now);

/* What an object of one key would do if calls came one at a time. */
struct oracle {
    const char *name;
    size_t state_bytes; /* at most LINEAR_STATE_BYTES_MAX */
    void (*init)(void *state, uint64_t key);
    /* Do `call` in `state`: true if its result is possible there. A call that never ended has no result to
     * compare. */
    bool (*step)(void *state, const struct call *call);
    void (*print)(const struct call *call, char *ret_text, size_t cap);
};
