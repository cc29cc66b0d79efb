/* stats.h - sums over the counters of a node's threads. */
#pragma once

#include "node/node.h"

void remo__stats_add(struct remo_stats *sum, const struct remo_stats *part);
void remo__stats_subtract(struct remo_stats *sum, const struct remo_stats *part);
/* All counters of one part, whoever had it. */
void remo__stats_of_thread(const struct remo__thread *thread, struct remo_stats *ret_sum);
/* One channel's counters, all threads. */
void remo__stats_of_slot(struct remo_node *node, uint32_t slot, struct remo_stats *ret_sum);
