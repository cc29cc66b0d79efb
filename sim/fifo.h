/* fifo.h - a linearizability check of FIFO queues, for histories of real runs that are too long for linear.h.
 *
 * All elements are different, and none is pushed twice. Then a history is linearizable if and only if it has
 * none of the faults below, which sorting finds. A call that never ended happened once or not at all, so a
 * pop without end may have taken any element. The capacity is ignored. As in oracle_queue, a pop may report
 * an empty queue while a push is running.
 *
 * Cost:    n log n.
 * Source:  Henzinger, Sezgin and Vafeiadis, CONCUR 2013. */
#pragma once

#include "sim/history.h"

/* As the `key` of a push: its slot is lost, so the element may be lost or be popped late. */
#define FIFO_MAY_BE_LOST 1u

struct fifo_report {
    uint32_t invented;     /* popped, but never pushed, or popped before the push began */
    uint32_t repeated;     /* popped more than once */
    uint32_t lost;         /* pushed, but not popped, beyond the number of pops without end */
    uint32_t out_of_order; /* popped although an element pushed earlier was in the queue */
    uint32_t not_empty;    /* pops that reported an empty queue while an element was in it all the time */
};

/* Judge the QUEUE_PUSH and QUEUE_POP calls of a history. Elements left in the queue at its end
 * count as lost. Returns 0 or -ENOMEM. */
int fifo_check(const struct history *history, struct fifo_report *ret_report);
