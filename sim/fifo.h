/* fifo.h - is a long history of a FIFO queue linearizable? For histories of real runs, which are too long for
 * the search of linear.h.
 *
 * All elements are different, and none is pushed twice. Then a history is linearizable exactly if none of the
 * faults below is in it, and they are found by sorting. A call that never ended happened once or not at all:
 * so a pop without end may have taken any element. The capacity is not looked at. As in oracle_queue, a pop
 * may call the queue empty while a push is at work.
 *
 * Cost:    n log n.
 * Source:  Henzinger, Sezgin and Vafeiadis, CONCUR 2013.
 */
#pragma once

#include "sim/history.h"

/* As the `key` of a push: the place of its element is gone, so it may be lost, and may come out late. */
#define FIFO_MAY_BE_LOST 1u

struct fifo_report {
    uint32_t invented;     /* popped and never pushed, or popped before the push began */
    uint32_t repeated;     /* popped more than once */
    uint32_t lost;         /* pushed for sure and not popped, and more of these than pops without end */
    uint32_t out_of_order; /* popped although an element pushed earlier was in the queue */
    uint32_t not_empty;    /* pops that called the queue empty while an element was there all the time */
};

/* Judge the QUEUE_PUSH and QUEUE_POP of a history; elements that are left in the queue at its end count as
 * lost. 0 or -ENOMEM. */
int fifo_check(const struct history *history, struct fifo_report *ret_report);
