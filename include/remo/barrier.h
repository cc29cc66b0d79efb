/* barrier.h - all participants arrive before any participant continues.
 *
 * Model:   each participant counts its arrivals in its row of an SST, and waits until no row is
 *          behind its own. Reusable.
 * Layout:  one word per participant, in the memory of each participant.
 * Cost:    n-1 writes (notify), and a global fence. The fence costs nothing if only the writes of
 *          the previous arrival are unfenced.
 * Order:   operations of a node before its arrival are visible to all nodes after the barrier. They
 *          include those of other threads that happened before the arrival.
 * Caches:  works without hardware coherence (see region.h).
 * Failure: if a participant fails (or leaves) before it arrives, every other participant gets
 *          -EHOSTDOWN (or -ENOTCONN) as soon as the failure is detected. The barrier is then
 *          unusable. A failure after the arrival does not affect the round. If a participant
 *          fails while announcing its arrival, peers that received the announcement pass this round
 *          and get -EHOSTDOWN in the next. After -ETIMEDOUT the arrival of this node remains valid:
 *          call again to continue waiting. There are two exceptions, in which this node has not
 *          arrived: a participant has not opened the barrier, or the fence failed (its error is
 *          returned).
 * Threads: one thread of a node at a time.
 * Source:  LOCO 4.1, figure 1(a).
 */
#pragma once

#include <remo/sst.h>

REMO_BEGIN

struct remo_barrier;

struct remo_barrier_options {
    struct remo_nodeset participants; /* empty: the parent's */
};

/* Open the barrier `name` below `parent`; `options` may be NULL. Does not wait for peers to open.
 * Errors: those of remo_sst_open. */
REMO_API int remo_barrier_open(struct remo_channel *parent, const char *name,
                               const struct remo_barrier_options *options, struct remo_barrier **ret_barrier);
/* Close the barrier; NULL has no effect. */
REMO_API void remo_barrier_close(struct remo_barrier *barrier);
REMO_API struct remo_channel *remo_barrier_channel(struct remo_barrier *barrier);
/* Arrive, and wait for all other participants. Blocks up to `timeout_ns`.
 * Errors:
 *   -ETIMEDOUT  a participant has not arrived; the sentence names it
 *   -EHOSTDOWN  a participant has failed
 *   -ENOTCONN   a participant has closed the barrier
 *   -EPROTO     a participant opened another object under this name
 *   others      those of remo_fence */
REMO_API int remo_barrier_wait(struct remo_barrier *barrier, uint64_t timeout_ns);

REMO_END
