/* fifo.c - the check of fifo.h: sorts calls by element, then elements by the end of their push.
 * Each element has an interval in which it was certainly in the queue. */
#include "sim/fifo.h"

#include <errno.h>
#include <stdlib.h>

#include "sim/oracle.h"

/* An element that was certainly in the queue, at least from `in` to the begin of its pop, at most
 * to `out`. */
struct element {
    uint64_t push_begin, in, pop_begin, out;
    uint64_t latest_pop_begin; /* of all elements up to this one, in the order of `in` */
};

struct fifo {
    const struct call **calls; /* calls with an effect, sorted by element, the push first */
    struct element *elements;  /* sorted by `in` */
    uint32_t call_count, element_count, missing;
    uint32_t open_pops; /* without end */
    uint64_t first_open_pop;
    struct fifo_report report;
};

static bool is_empty_pop(const struct call *call) {
    return call->function == QUEUE_POP && call->end < HISTORY_NONE && call->code != 0;
}

static uint64_t element_of(const struct call *call) {
    return call->function == QUEUE_PUSH ? call->argument : call->result;
}

static int by_element(const void *a, const void *b) {
    const struct call *x = *(const struct call *const *)a, *y = *(const struct call *const *)b;
    uint64_t x_id = element_of(x), y_id = element_of(y);
    if (x_id != y_id)
        return x_id < y_id ? -1 : 1;
    return (int)x->function - (int)y->function;
}

static int by_in(const void *a, const void *b) {
    const struct element *x = a, *y = b;
    return (x->in > y->in) - (x->in < y->in);
}

static void collect(struct fifo *fifo, const struct history *history) {
    fifo->first_open_pop = HISTORY_NEVER;
    for (uint32_t i = 0; i < history->count; i++) {
        const struct call *call = &history->calls[i];
        if (call->end == HISTORY_NONE || (call->end != HISTORY_NEVER && call->code != 0))
            continue;
        if (call->function == QUEUE_POP && call->end == HISTORY_NEVER) {
            fifo->open_pops++;
            if (call->begin < fifo->first_open_pop)
                fifo->first_open_pop = call->begin;
        } else {
            fifo->calls[fifo->call_count++] = call;
        }
    }
    qsort(fifo->calls, fifo->call_count, sizeof *fifo->calls, by_element);
}

/* Add the element of these calls, which are all calls about one element. */
static void add_element(struct fifo *fifo, const struct call **calls, uint32_t count) {
    const struct call *push = calls[0], *pop = count > 1 ? calls[1] : NULL;
    if (push->function != QUEUE_PUSH) {
        fifo->report.invented++;
        return;
    }
    fifo->report.repeated += count > 2;
    fifo->report.invented += pop && pop->end < push->begin;
    if (push->key == FIFO_MAY_BE_LOST || (!pop && push->end == HISTORY_NEVER))
        return;
    struct element element = {
        .push_begin = push->begin, .in = push->end, .pop_begin = fifo->first_open_pop, .out = HISTORY_NEVER};
    if (pop) {
        element.pop_begin = pop->begin;
        element.out = pop->end;
        element.in = push->end < pop->end ? push->end : pop->end;
    }
    fifo->missing += !pop;
    if (pop || fifo->open_pops > 0) /* a lost element would be missing in every check */
        fifo->elements[fifo->element_count++] = element;
}

static void match(struct fifo *fifo) {
    for (uint32_t i = 0, next; i < fifo->call_count; i = next) {
        for (next = i + 1;
             next < fifo->call_count && element_of(fifo->calls[next]) == element_of(fifo->calls[i]);)
            next++;
        add_element(fifo, &fifo->calls[i], next - i);
    }
    fifo->report.lost = fifo->missing > fifo->open_pops ? fifo->missing - fifo->open_pops : 0;
    qsort(fifo->elements, fifo->element_count, sizeof *fifo->elements, by_in);
    uint64_t latest = 0;
    for (uint32_t i = 0; i < fifo->element_count; i++) {
        latest = fifo->elements[i].pop_begin > latest ? fifo->elements[i].pop_begin : latest;
        fifo->elements[i].latest_pop_begin = latest;
    }
}

/* Return the latest begin of a pop among the elements that were certainly in the queue before
 * `time`; 0: there are none. */
static uint64_t latest_pop_before(const struct fifo *fifo, uint64_t time) {
    uint32_t low = 0, high = fifo->element_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (fifo->elements[middle].in < time)
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 ? fifo->elements[low - 1].latest_pop_begin : 0;
}

static bool push_at_work(const struct history *history, const struct call *during) {
    for (uint32_t i = 0; i < history->count; i++) {
        const struct call *call = &history->calls[i];
        if (call->function == QUEUE_PUSH && call->end != HISTORY_NONE && call->begin <= during->end
            && call->end >= during->begin)
            return true;
    }
    return false;
}

static void count_faults(struct fifo *fifo, const struct history *history) {
    for (uint32_t i = 0; i < fifo->element_count; i++) {
        const struct element *element = &fifo->elements[i];
        fifo->report.out_of_order += latest_pop_before(fifo, element->push_begin) > element->out;
    }
    for (uint32_t i = 0; i < history->count; i++) {
        const struct call *call = &history->calls[i];
        if (is_empty_pop(call) && latest_pop_before(fifo, call->begin) > call->end)
            fifo->report.not_empty += !push_at_work(history, call);
    }
}

int fifo_check(const struct history *history, struct fifo_report *ret_report) {
    struct fifo fifo = {.calls = malloc((history->count + 1) * sizeof *fifo.calls),
                        .elements = malloc((history->count + 1) * sizeof *fifo.elements)};
    int rc = fifo.calls && fifo.elements ? 0 : -ENOMEM;
    if (rc == 0) {
        collect(&fifo, history);
        match(&fifo);
        count_faults(&fifo, history);
        *ret_report = fifo.report;
    }
    free(fifo.calls);
    free(fifo.elements);
    return rc;
}
