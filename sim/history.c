#include "sim/history.h"

uint32_t history_begin(struct history *history, const struct call *call, uint64_t now) {
    if (history->count == HISTORY_CALLS_MAX) {
        history->full = true;
        return HISTORY_CALLS_MAX;
    }
    struct call *entry = &history->calls[history->count];
    *entry = *call;
    entry->begin = now;
    entry->end = HISTORY_NEVER;
    return history->count++;
}

void history_end(struct history *history, uint32_t index, int code, uint64_t result, uint64_t now) {
    if (index >= history->count)
        return;
    history->calls[index].code = code;
    history->calls[index].result = result;
    history->calls[index].end = now;
}
