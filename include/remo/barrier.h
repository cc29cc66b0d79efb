/* barrier.h - all participants arrive before any participant continues.
 *
 * Model:   each participant counts its arrivals in its row of an SST, and waits until no row is
 *          behind its own. Reusable. More than 16 participants meet in two stages: each writes its
 *          row first to its neighbours in the order of ranks, then to one participant of each other
 *          group of neighbours.
 * Layout:  one word per participant, in the memory of each participant.
 * Cost:    n-1 writes (notify) up to n = 16. Above, k-1 + (n-1)/k writes (notify), where k is the
 *          square root of n, rounded up, and the quotient is rounded down: 10 writes with 32
 *          participants, 21 with 128. In addition a global fence, which costs nothing if only the
 *          writes of the previous arrival are unfenced. On shm it is a fence of the CPU after the
 *          announcement, and two of them above 16 participants.
 * Order:   operations of a node before its arrival are visible to all nodes after the barrier. They
 *          include those of other threads that happened before the arrival.
 * Caches:  works without hardware coherence (see region.h).
 * Failure: if a participant fails (or leaves) before it arrives, every other participant gets
 *          -EHOSTDOWN (or -ENOTCONN) as soon as the failure is detected. The barrier is then
 *          unusable: later calls return the same error. The failure of a participant whose call has
 *          returned 0 does not affect the round. If a participant fails while it announces its
 *          arrival, some peers pass this round, and get -EHOSTDOWN in the next. Up to 16
 *          participants announce their arrivals when their calls begin. With more, a participant
 *          may still announce its arrival until its call returns 0. After -ETIMEDOUT the arrival of
 *          this node remains valid: call again to continue waiting. With more than 16 participants
 *          the others may be waiting for that call. In two cases this node has not arrived: a
 *          participant has not opened the barrier, or the fence has failed (its error is returned).
 * Threads: one thread of a node at a time.
 * Source:  LOCO 4.1, figure 1(a); two stages: Hensgen, Finkel and Manber, 1988.
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
/* Arrive, and wait for all other participants. Each wait has the full `timeout_ns`: in the first
 * round until all participants have opened the barrier, then for the fence, then for the arrivals of
 * the others. The fence can exceed its timeout by twice op_timeout_ns. With more than 16
 * participants, each read from a peer after a departure can exceed it by op_timeout_ns.
 * Errors:
 *   -ETIMEDOUT  a participant has not arrived; the sentence names it, or a group to which it belongs
 *   -EHOSTDOWN  a participant has failed
 *   -ENOTCONN   a participant has closed the barrier
 *   -EPROTO     a participant opened another object under this name
 *   others      those of remo_fence, remo_sst_push and remo_region_read; call again */
REMO_API int remo_barrier_wait(struct remo_barrier *barrier, uint64_t timeout_ns);

REMO_END
