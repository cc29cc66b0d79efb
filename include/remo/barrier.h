/* barrier.h - nobody leaves before all have come, and what was written before is visible after.
 *
 * Model:   each participant counts its arrivals in its row of an SST and waits until no row is behind its
 *          own. Reusable.
 * Layout:  one word per participant, at each of them.
 * Cost:    n-1 writes (woken when asleep), and a global fence: nothing when nothing is unfenced but the last
 *          arrival.
 * Order:   operations of a node before its arrival (all its threads that happened before) are visible to all
 *          after the barrier.
 * Caches:  works where no hardware keeps them coherent (see region.h).
 * Failure: a participant that dies or leaves before it came to this round: -EHOSTDOWN (or -ENOTCONN) at every
 *          other, within the time it takes to notice; the barrier is then of no further use. One that came
 *          first and then went does no harm. One that dies on the way has told some and not others: those
 *          pass, and get -EHOSTDOWN in the next round. -ETIMEDOUT: this node's arrival stands, call again to
 *          go on waiting; but while some participant has not opened the barrier at all, or when the fence
 *          fails (its error is returned), this node has not arrived.
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

/* Errors: those of remo_sst_open. */
REMO_API int remo_barrier_open(struct remo_channel *parent, const char *name,
                               const struct remo_barrier_options *options, struct remo_barrier **ret_barrier);
REMO_API void remo_barrier_close(struct remo_barrier *barrier);
REMO_API struct remo_channel *remo_barrier_channel(struct remo_barrier *barrier);
/* Errors: -ETIMEDOUT, -EHOSTDOWN, -ENOTCONN, -EPROTO (a participant opened something else), those of a
 * fence. */
REMO_API int remo_barrier_wait(struct remo_barrier *barrier, uint64_t timeout_ns);

REMO_END
