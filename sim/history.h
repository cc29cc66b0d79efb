/* history.h - the calls on an object with their results and times: the evidence that checkers judge.
 *
 * Begin and end of a call are times of one clock that all actors share: the simulator's step, or
 * CLOCK_MONOTONIC on one machine. A call that never ended (its node crashed, or the run was cut off) has end
 * HISTORY_NEVER: it happened once, or not at all. The calls are in the caller's memory. In shared memory they
 * outlive the recording process: a process killed in history_begin has recorded no call, one killed in
 * history_end has recorded a call without end. A history has one writer. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HISTORY_NEVER UINT64_MAX
#define HISTORY_NONE (UINT64_MAX - 1) /* as an end: the call had no effect and does not count */

struct call {
    uint32_t actor;
    uint32_t function; /* the oracle's own numbering */
    uint64_t key;      /* calls of different keys are independent and checked apart */
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

/* Record the begin of a call. Returns the index for history_end, or `cap` if the history is
 * full. */
uint32_t history_begin(struct history *history, const struct call *call, uint64_t now);
void history_end(struct history *history, uint32_t index, int code, uint64_t result, uint64_t now);

/* The sequential specification of an object with one key. */
struct oracle {
    const char *name;
    size_t state_bytes; /* at most LINEAR_STATE_BYTES_MAX */
    void (*init)(void *state, uint64_t key);
    /* Apply `call` to `state`. Returns whether its result is possible there. A call that never
     * ended has no result to compare. */
    bool (*step)(void *state, const struct call *call);
    void (*print)(const struct call *call, char *ret_text, size_t cap);
};
