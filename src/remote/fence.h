/* fence.h - fences for objects: a fence that retries, and a fence that skips notification writes.
 *
 * Failure: a fence fails in two ways. Transient: a flush was not posted or did not complete in time. Writes
 *          may still be in flight, and a later fence may succeed. Loss: a write or its target has failed.
 *          The write is not in flight. The next fence of the writing thread returns the loss, and so does a
 *          global fence of another thread that runs earlier. An object that passes data to another node
 *          after a fence must retry a transient failure. Otherwise a late write could overwrite data of the
 *          next node.
 *
 * Exempt:  only remo__fence_leave flushes a REMO__WRITE_EXEMPT write (op.h), and no fence returns its loss.
 *
 * Skipped: a barrier writes its arrival to peers, and fences before its next arrival. If the program has
 *          written nothing in between, the fence would flush only the previous arrival, by a read from each
 *          of these peers. The flush is unnecessary: the next arrival follows the previous one on the same
 *          connections, and the completion of the next round proves that the previous arrival is placed. So
 *          the barrier's own fence skips these writes (remo__fence_except). All other fences cover them. */
#pragma once

#include <remo/ack.h>

#include "remote/thread.h"

/* Fence, and retry transient failures for op_timeout_ns at most. Returns 0 if all writes that `scope` covers
 * are placed or lost. *ret_loss is then 0, or the error of a lost write, whose sentence is set. `ret_loss`
 * may be NULL: later fences return the losses.
 * Errors: -EINVAL, or that of the last attempt: writes may be in flight; *ret_loss is 0, and a later fence
 *         returns the loss. */
int remo__fence_retry(struct remo__thread *thread, enum remo_fence_scope scope, uint32_t peer, int *ret_loss);
/* The same for all writes of `thread` to `peer` (remo__fence_peer in op.h), for `timeout_ns` at most. */
int remo__fence_retry_peer(struct remo__thread *thread, uint32_t peer, uint64_t timeout_ns, int *ret_loss);

/* Place a write of the calling thread to `peer`, started with `ack` (remo__ack_awaited), for `timeout_ns` at
 * most. Returns 0 if the write is placed or lost; remo__fenced_status tells. Other writes may be in flight.
 * Errors: those of a fence: the write may be in flight. */
int remo__fence_write(struct remo__thread *thread, uint32_t peer, struct remo_ack *ack, uint64_t timeout_ns);
/* Return the outcome of a write to `peer` whose ack has ended with `status`, after a fence has returned 0.
 * Without caps.completion_placed, a write that is complete is lost if the peer failed before the fence had
 * placed it. Errors: `status`; -EHOSTDOWN: the write may be lost. */
int remo__fenced_status(const struct remo_node *node, uint32_t peer, int status);

/* Fence all operations of the node, exempt writes too, and retry as remo__fence_retry. For the close of a
 * channel: a late exempt write could overwrite memory that is reused. Threads: any. The calling thread need
 * not be attached, and the call does not attach it. Errors: those of remo__fence_retry. */
int remo__fence_leave(struct remo_node *node);

/* Return whether no thread of this node has an operation on `peer` in flight, or a write, exempt or not,
 * that may not be placed yet. Does not block. For callers whose fence has failed. */
bool remo__peer_quiescent(const struct remo_node *node, uint32_t peer);

/* Return whether this holds for all peers that are up. */
bool remo__node_quiescent(const struct remo_node *node);

struct remo__skipped_writes; /* one round of notification writes, of one thread to any peers */

/* Allocate a round for one object of the node. Release it by free. Errors: -ENOMEM. */
int remo__skipped_open(struct remo_node *node, struct remo__skipped_writes **ret_skipped);
/* Begin a round: it consists of the writes of `thread` until remo__skipped_end. The caller has just called
 * remo__fence_except, so all earlier writes are placed, except those of the previous round. */
void remo__skipped_begin(struct remo__skipped_writes *skipped, struct remo__thread *thread);
/* End the round, after all its writes are posted. */
void remo__skipped_end(struct remo__skipped_writes *skipped);
/* Discard the round, because other writes of the thread may lie between its writes. The next fence skips
 * nothing. */
void remo__skipped_drop(struct remo__skipped_writes *skipped);
/* Do a global fence that skips the latest round, if the calling thread wrote it. Errors: those of
 * remo_fence. */
int remo__fence_except(struct remo_node *node, const struct remo__skipped_writes *skipped);
