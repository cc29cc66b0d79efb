/* lock.h - ticket locks in network memory: one, or a table of them.
 *
 * Model:   per lock one word at its home {next ticket:32, flags:16, now serving:16}, changed by network atomics only, and one baton word for
 *          each place in the queue. A node draws a ticket; if it is being served, it has the lock. Otherwise it puts itself
 *          on the baton of its ticket and waits for a word in its own memory. Whoever releases advances `serving` and, when
 *          somebody waits, passes the baton. Threads of one node queue locally and hand the lock over among themselves, at most
 *          REMO_LOCK_HANDOVERS_MAX times in a row while another node waits.
 * Layout:  home: word, then `participants` batons of 8 bytes. Elsewhere: one grant word per lock.
 * Cost:    uncontended: acquire 1 atomic, release 1 atomic, plus the fence asked for. Contended: acquire 2 atomics; release 2 atomics + 1 write
 *          that wakes the next owner; waiting costs nothing on the network. Hand-over between threads of a node: none.
 * Order:   FIFO between nodes, FIFO between threads of a node. What was done before a release with a fence that covers it is
 *          visible after the next acquire.
 * Failure: a node that dies holding the lock is cut off first; the next owner gets -EOWNERDEAD and owns it: repair what the lock protects, then
 *          remo_lock_consistent; releasing without makes the lock -ENOTRECOVERABLE for good. A node that dies waiting
 *          is passed over. A dead home: -EHOSTDOWN for everybody.
 *          A timed acquire that gives up leaves its place in the queue marked; it is passed over, or taken up again by the
 *          node's next acquire.
 * Source:  LOCO 5.4; Mellor-Crummey and Scott 1991. Differs in: waiters wait on their own memory instead of polling `now serving`; give-up;
 *          owner death.
 */
#pragma once

#include <remo/region.h>

REMO_BEGIN

#define REMO_LOCK_HANDOVERS_MAX 16u

struct remo_lock;

struct remo_lock_options {
    struct remo_nodeset participants;
    uint32_t count;                     /* locks in the table; default 1 */
    struct remo_nodeset homes;          /* lock i lives at the (i mod n)-th of these; empty: all at the first participant */
};

REMO_API int remo_lock_open(struct remo_channel *parent, const char *name, const struct remo_lock_options *options,
                            struct remo_lock **ret_lock);
/* No thread holds or waits for any of them. */
REMO_API void remo_lock_close(struct remo_lock *lock);
REMO_API struct remo_channel *remo_lock_channel(struct remo_lock *lock);
REMO_API uint32_t remo_lock_home(const struct remo_lock *lock, uint32_t index);

/* 0 and -EOWNERDEAD: acquired. Errors: -ETIMEDOUT, -EHOSTDOWN, -ENOTRECOVERABLE, -EINVAL, -ENOTCONN. 0 ns: try once. */
REMO_API int remo_lock_acquire(struct remo_lock *lock, uint32_t index, uint64_t timeout_ns);
/* By the thread that acquired. `fence` is done first: REMO_FENCE_NONE when nothing was written, PAIR (with the lock's home)
 * when all was written there, THREAD or GLOBAL otherwise. A failed fence still releases, and is returned.
 * Errors: -EPERM (not held), -EHOSTDOWN. */
REMO_API int remo_lock_release(struct remo_lock *lock, uint32_t index, enum remo_fence_scope fence);
/* After -EOWNERDEAD: what the lock protects is in order again. */
REMO_API int remo_lock_consistent(struct remo_lock *lock, uint32_t index);

REMO_END
