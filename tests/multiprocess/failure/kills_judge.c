/* kills_judge.c - judges a run: the recorded calls of all nodes, together, must be linearizable, as the
 * objects promise. Counters and the queue are also checked for lost and repeated changes. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "kills.h"
#include "sim/fifo.h"
#include "sim/linear.h"
#include "sim/oracle.h"

#define BUDGET (1u << 16) /* of states for one key; usual is one for each call */

/* The calls of all nodes on one object. */
static struct history merged;

static void merge(enum kills_object object, struct kills_verdict *verdict) {
    static struct call calls[KILLS_NODES * KILLS_CALLS_MAX];
    merged = (struct history){.calls = calls, .cap = KILLS_NODES * KILLS_CALLS_MAX};
    for (uint32_t rank = 0; rank < KILLS_NODES; rank++) {
        const struct history *one = &kills_run->nodes[rank].histories[object];
        memcpy(&calls[merged.count], one->calls, one->count * sizeof calls[0]);
        merged.count += one->count;
        merged.full |= one->full;
    }
    for (uint32_t i = 0; i < merged.count; i++)
        verdict->acknowledged += calls[i].end < HISTORY_NONE && calls[i].code == 0
                                 && calls[i].function != MAP_GET && calls[i].function != WORD_LOAD;
}

static int by_key(const void *a, const void *b) {
    const struct call *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* ---- keys, one after the other ---- */

static void print_calls(const struct history *history, const struct oracle *oracle) {
    uint64_t start = history->calls[0].begin;
    for (uint32_t i = 0; i < history->count; i++) {
        const struct call *call = &history->calls[i];
        char text[128], when[32] = "never ended";
        oracle->print(call, text, sizeof text);
        if (call->end == HISTORY_NONE)
            continue;
        if (call->end != HISTORY_NEVER)
            snprintf(when, sizeof when, "to %llu", (unsigned long long)(call->end - start));
        fprintf(stderr, "    node %u: %s, from %llu ns %s\n", call->actor, text,
                (unsigned long long)(call->begin - start), when);
    }
}

static void judge_key(struct linear *linear, const struct history *history, const struct oracle *oracle,
                      struct kills_verdict *verdict) {
    struct linear_report report;
    enum verdict found = linear_check(linear, history, oracle, &report);
    if (found == LINEAR_YES)
        return;
    verdict->wrong++;
    fprintf(stderr, "%s, key %llu: %s\n", oracle->name, (unsigned long long)history->calls[0].key,
            found == LINEAR_NO ? "no order of these calls explains their results"
                               : "too many calls to decide whether an order explains them");
    print_calls(history, oracle);
}

/* Count the changes of a counter that were lost or repeated, by its last value and the recorded calls. */
static void judge_counter(const struct history *history, struct kills_verdict *verdict) {
    uint64_t certain_count = 0, possible_count = 0, last = 0;
    bool was_read = false;
    for (uint32_t i = 0; i < history->count; i++) {
        const struct call *call = &history->calls[i];
        certain_count += call->function == COUNTER_ADD && call->end < HISTORY_NONE;
        possible_count += call->function == COUNTER_ADD && call->end == HISTORY_NEVER;
        if (call->function == WORD_LOAD && call->end < HISTORY_NONE) {
            was_read = true;
            last = call->result;
        }
    }
    if (was_read && last < certain_count)
        verdict->lost += certain_count - last;
    if (was_read && last > certain_count + possible_count)
        verdict->repeated += last - certain_count - possible_count;
}

static int judge_keys(const struct oracle *oracle, struct kills_verdict *verdict) {
    struct linear *linear = linear_open(BUDGET);
    if (!linear)
        return 1;
    qsort(merged.calls, merged.count, sizeof merged.calls[0], by_key);
    for (uint32_t i = 0, next; i < merged.count; i = next) {
        for (next = i + 1; next < merged.count && merged.calls[next].key == merged.calls[i].key;)
            next++;
        struct history one = {.calls = &merged.calls[i], .cap = next - i, .count = next - i};
        judge_key(linear, &one, oracle, verdict);
        if (oracle == &oracle_word)
            judge_counter(&one, verdict);
    }
    linear_close(linear);
    return 0;
}

/* ---- the queue ---- */

static uint64_t element_of(const struct call *call) {
    return call->function == QUEUE_PUSH ? call->argument : call->result;
}

static int by_element(const void *a, const void *b) {
    const struct call *x = *(const struct call *const *)a, *y = *(const struct call *const *)b;
    if (element_of(x) != element_of(y))
        return element_of(x) < element_of(y) ? -1 : 1;
    return (int)x->function - (int)y->function;
}

/* Elements in a slot of a failed node may be lost, or be popped late. `second` of a call is the ticket after
 * that of the element, which yields its slot; 0 if unknown. */
static void excuse_failed_slots(void) {
    static struct call *sorted[KILLS_NODES * KILLS_CALLS_MAX];
    for (uint32_t i = 0; i < merged.count; i++)
        sorted[i] = &merged.calls[i];
    qsort(sorted, merged.count, sizeof sorted[0], by_element);
    for (uint32_t i = 0, push = 0; i < merged.count; i++) {
        if (element_of(sorted[i]) != element_of(sorted[push]))
            push = i;
        uint64_t ticket = sorted[i]->second;
        if (ticket != 0 && kills_is_victim((uint32_t)((ticket - 1) % KILLS_QUEUE_CAPACITY % KILLS_NODES)))
            sorted[push]->key = FIFO_MAY_BE_LOST;
    }
}

/* Until all nodes have detected a failure, a node may find the queue empty at a slot that its peers skip.
 * Forget these pops. A push that found the queue full then is kept: before the failure it may have claimed a
 * slot of the failed node, at which earlier pops waited. */
static void forget_early_empty(void) {
    uint64_t first = HISTORY_NEVER, settled = atomic_load(&kills_run->settled_ns);
    for (uint32_t i = 0; i < kills_run->victim_count; i++) {
        uint64_t killed = atomic_load(&kills_run->nodes[kills_run->victims[i].rank].killed_ns);
        first = killed < first ? killed : first;
    }
    for (uint32_t i = 0; i < merged.count; i++) {
        struct call *call = &merged.calls[i];
        if (call->function == QUEUE_POP && call->code != 0 && call->end < HISTORY_NONE && call->end >= first
            && call->begin <= settled)
            call->end = HISTORY_NONE;
    }
}

static int judge_queue(struct kills_verdict *verdict) {
    struct fifo_report found;
    excuse_failed_slots();
    forget_early_empty();
    if (fifo_check(&merged, &found) != 0)
        return 1;
    if (kills_is_victim(KILLS_QUEUE_HOME))
        found.lost = 0; /* the whole queue is lost */
    verdict->lost += found.lost;
    verdict->repeated += found.repeated;
    verdict->wrong += found.invented + found.out_of_order + found.not_empty;
    if (found.lost + found.repeated + found.invented + found.out_of_order + found.not_empty > 0)
        fprintf(stderr,
                "queue: %u elements lost, %u repeated, %u never pushed, %u out of order; %u wrongly empty\n",
                found.lost, found.repeated, found.invented, found.out_of_order, found.not_empty);
    return 0;
}

int kills_judge(struct kills_verdict *ret_verdict) {
    *ret_verdict = (struct kills_verdict){0};
    merge(KILLS_MAP, ret_verdict);
    if (judge_keys(&oracle_map, ret_verdict))
        return 1;
    merge(KILLS_VALUE, ret_verdict);
    if (judge_keys(&oracle_word, ret_verdict))
        return 1;
    merge(KILLS_QUEUE, ret_verdict);
    return judge_queue(ret_verdict);
}
