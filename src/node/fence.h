/* fence.h - fences for objects: one that is repeated until it has succeeded, and one that skips an object's
 * own notification writes.
 *
 * A fence fails in two ways. Transient: a flush could not be posted or did not complete in time; writes may
 * still be in flight, and a later fence may succeed. Loss: a write failed, or its target did; nothing of it
 * is in flight, and the loss is returned once. An object that hands data to another node after a fence must
 * repeat a fence that failed for a transient reason: a write that arrives after the hand-over overwrites what
 * the next node writes.
 *
 * An object that tells its peers of a step by one write each (a barrier's arrivals) and fences before the
 * next step would flush nothing but its own news, by a read to each peer. It need not: the next news goes the
 * same way, behind the last, and what peers say in turn proves that earlier news has arrived. For all other
 * fences, and for other threads', the news counts like any write until then.
 */
#pragma once

#include "node/node.h"

/* Fence until all writes that `scope` covers are placed or lost, for op_timeout_ns at most.
 * 0: nothing is in flight; *ret_loss is 0 or the error of a lost write, whose sentence is set.
 * Errors: -EINVAL, or that of the last attempt: writes may be in flight; *ret_loss is 0, and a later fence
 *         returns a loss that was found. */
int remo__fence_settle(struct remo__thread *thread, enum remo_fence_scope scope, uint32_t peer,
                       int *ret_loss);
/* The same for what `thread` has written to `peer`, as by remo__fence_placed (op.h); for `timeout_ns`. */
int remo__fence_settle_peer(struct remo__thread *thread, uint32_t peer, uint64_t timeout_ns, int *ret_loss);

/* Return whether no thread of this node has an operation on `peer` in flight, or a write that may not be placed
 * yet. Does not block; for a node whose fence has failed. */
bool remo__peer_quiescent(const struct remo_node *node, uint32_t peer);

struct remo__news;

/* For one object of the node; freed with free. */
int remo__news_open(struct remo_node *node, struct remo__news **ret_news);
/* Around what `thread` writes to tell of a step; all that it wrote before is placed. */
void remo__news_begin(struct remo__news *news, struct remo__thread *thread);
void remo__news_end(struct remo__news *news);
/* In place of the end: it was not told to all, and other writes may come in between before it is. The next
 * fence leaves nothing out. */
void remo__news_drop(struct remo__news *news);
/* The peers have shown that they saw the news before the latest, or are gone. */
void remo__news_placed(struct remo__news *news);
/* A global fence, but for the latest news of the calling thread. */
int remo__fence_but(struct remo_node *node, const struct remo__news *news);
