/* stats.h - sums of the counters of a node's threads. Threads: any, at any time. */
#pragma once

#include "remote/thread.h"

/* Add or subtract each counter. */
void remo__stats_add(struct remo_stats *sum, const struct remo_stats *part);
void remo__stats_subtract(struct remo_stats *sum, const struct remo_stats *part);
/* Sum the counters of one struct, including those of earlier threads that used it. */
void remo__stats_of_thread(const struct remo__thread *thread, struct remo_stats *ret_sum);
/* Sum the counters of one channel over all threads. */
void remo__stats_of_slot(struct remo_node *node, uint32_t slot, struct remo_stats *ret_sum);
