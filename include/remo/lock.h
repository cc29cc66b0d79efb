/* lock.h - ticket locks in network memory: one, or a table of them.
 *
 * Model:   per lock one word at its home {next ticket, flags, now serving}, changed by network atomics only,
 *          and a baton word for each place in the queue. A node draws a ticket; if it is being served, it has
 *          the lock. Otherwise it puts itself on the baton of its ticket and waits for a word in its own
 *          memory. Who releases advances `serving` and, when somebody waits, passes the baton. Threads of one
 *          node queue in its private memory and hand the lock over among themselves, at most
 *          REMO_LOCK_HANDOVERS_MAX times in a row; then it goes back to its home, where other nodes may wait.
 * Layout:  at the home 8 bytes for the word and for each of 2 x participants batons, rounded up to powers of
 *          two and cache lines. At each participant 8 bytes for a grant word, and 64 of private memory.
 * Cost:    nobody else wants it: acquire 1 atomic, release 1 atomic, and the fence asked for. Somebody has
 *          it: acquire 3 atomics (draw, arrive; the baton is set back while the lock is held). Somebody
 *          waits: release 2 atomics and 1 write, which wakes the next owner; 2 atomics more for each ticket
 *          that was given up in between. Waiting costs nothing. Hand-over between threads of a node: nothing.
 *          Giving up: 1 atomic after draw and arrive; the next acquire takes the place up again for 1 atomic.
 *          Timeout 0: 1 atomic if this node was the last to have it or it is held, else 2; nothing when a
 *          thread of this node has it.
 * Order:   FIFO between nodes, FIFO between threads of a node. What was done before a release with a fence
 *          that covers it is visible after the next acquire.
 * Caches:  where no hardware keeps them coherent (see region.h), opening it gives -EOPNOTSUPP.
 * Failure: an owner that dies is cut off first; the next one gets -EOWNERDEAD and owns the lock: repair what
 *          it protects, then remo_lock_consistent; releasing without makes the lock -ENOTRECOVERABLE for
 *          good. A node that dies waiting is passed over. (One that dies just when the lock is passed to it,
 *          or in the middle of a release, may count as an owner.) For this the home asks all participants
 *          that live: one message to each, one back. A dead home: -EHOSTDOWN for everybody; -ENOTCONN when it
 *          closed the table.
 *          A timed acquire that gives up leaves its place in the queue marked; it is passed over, or taken up
 *          again by the node's next acquire. With a timeout of 0 nothing is left.
 * Threads: any. A thread that ends while it holds a lock leaves it held.
 * Source:  LOCO 5.4; Mellor-Crummey and Scott 1991. Differs in: waiters wait on their own memory instead of
 *          polling `now serving`; give-up; owner death.
 */
#pragma once

#include <remo/region.h>

REMO_BEGIN

#define REMO_LOCK_HANDOVERS_MAX 16u

struct remo_lock;

struct remo_lock_options {
    struct remo_nodeset participants; /* empty: the parent's */
    uint32_t count;                   /* locks in the table, the same on every node; default 1 */
    struct remo_nodeset homes;        /* lock i lives at the (i mod n)-th; empty: the first participant */
};

/* Errors: those of remo_channel_open and remo_channel_add_memory. */
REMO_API int remo_lock_open(struct remo_channel *parent, const char *name,
                            const struct remo_lock_options *options, struct remo_lock **ret_lock);
/* No thread of this node holds or waits for any of them. A home that closes takes its locks away. */
REMO_API void remo_lock_close(struct remo_lock *lock);
REMO_API struct remo_channel *remo_lock_channel(struct remo_lock *lock);
REMO_API uint32_t remo_lock_home(const struct remo_lock *lock, uint32_t index);

/* 0 and -EOWNERDEAD: acquired. 0 ns: try once. A thread that has the lock does not get it a second time.
 * Errors: -ETIMEDOUT, -EHOSTDOWN, -ENOTCONN, -ENOTRECOVERABLE, -EINVAL (no such lock). */
REMO_API int remo_lock_acquire(struct remo_lock *lock, uint32_t index, uint64_t timeout_ns);
/* By the thread that acquired. `fence` is done first: REMO_FENCE_NONE when nothing was written, PAIR (with
 * the lock's home) when all was written there, THREAD or GLOBAL otherwise. A failed fence still releases, and
 * is returned. Errors: -EPERM (not held by this thread), -EHOSTDOWN, -ENOTCONN, -EINVAL, those of a fence. */
REMO_API int remo_lock_release(struct remo_lock *lock, uint32_t index, enum remo_fence_scope fence);
/* After -EOWNERDEAD, by the thread that got it: what the lock protects is in order again; the release will
 * say so. Errors: -EPERM, -EINVAL (nothing to repair). */
REMO_API int remo_lock_consistent(struct remo_lock *lock, uint32_t index);

REMO_END
