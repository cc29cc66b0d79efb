/* start.h - start one operation of at most the fabric's size, for op.c and write.c. */
#pragma once

#include "remote/slots.h"

/* Start the operation. Blocks until its deadline (0: not at all), while no slot is free or the queue is full.
 * Errors: -EHOSTDOWN, -ETIMEDOUT, those of the fabric's post. */
int remo__start(struct remo__start *start);
/* Ensure progress of operations that the caller has started and does not wait for. */
void remo__ensure_progress(struct remo__thread *thread);
/* Return whether the network can access the buffer itself: it is in the arena, or the fabric is mapped. */
bool remo__is_direct(const struct remo_node *node, const void *buffer);
/* Return the largest size of one operation on such a buffer, or on another one. */
uint64_t remo__piece_bytes_max(const struct remo_node *node, bool is_direct);
