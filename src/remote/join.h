/* join.h - wait until all nodes of the job have joined. */
#pragma once

#include "node/node.h"

/* Blocks for join_timeout_ns at most. Errors: those of remo_node_open. */
int remo__join_wait(struct remo_node *node);
