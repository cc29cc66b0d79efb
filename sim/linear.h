/* linear.h - a linearizability check: the search of Wing and Gong with Lowe's memoisation, key by key.
 *
 * Model:   a history is linearizable if its calls have a total order that the oracle accepts, in which no
 *          call precedes a call that had ended before it began. Calls that never ended may be placed
 *          anywhere after their begin, or left out.
 * Cost:    exponential at worst; the cache of (calls placed, state) makes typical histories nearly linear.
 *          A search that exceeds its budget has no verdict, which counts as a failure.
 * Source:  Wing and Gong 1993; Lowe 2017; Horn and Kroening 2015 (split by key). */
#pragma once

#include "sim/history.h"

#define LINEAR_STATE_BYTES_MAX 64u
#define LINEAR_CALLS_MAX 128u /* of one key */

enum verdict { LINEAR_YES, LINEAR_NO, LINEAR_BUDGET };

struct linear_report {
    uint64_t key;   /* the first key that fails */
    uint64_t nodes; /* states visited, all keys */
};

/* Memory for searches, allocated once and reused. */
struct linear;
struct linear *linear_open(uint32_t budget_nodes);
void linear_close(struct linear *linear);
enum verdict linear_check(struct linear *linear, const struct history *history, const struct oracle *oracle,
                          struct linear_report *ret_report);
