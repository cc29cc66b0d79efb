/* history.c - records begin and end of calls (history.h).
 * Each entry is complete before it counts, so a killed process leaves no torn entry. */
#include "sim/history.h"

#include <stdatomic.h>

uint32_t history_begin(struct history *history, const struct call *call, uint64_t now) {
    if (history->count == history->cap) {
        history->full = true;
        return history->cap;
    }
    struct call *entry = &history->calls[history->count];
    *entry = *call;
    entry->begin = now;
    entry->end = HISTORY_NEVER;
    /* the entry is complete before it counts, even if the process is killed here */
    atomic_signal_fence(memory_order_release);
    return history->count++;
}

void history_end(struct history *history, uint32_t index, int code, uint64_t result, uint64_t now) {
    if (index >= history->count)
        return;
    history->calls[index].code = code;
    history->calls[index].result = result;
    atomic_signal_fence(memory_order_release);
    history->calls[index].end = now;
}
