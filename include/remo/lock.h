/* lock.h - ticket locks in network memory: one lock, or a table of locks.
 *
 * Model:   each lock has one word at its home {next ticket, flags, now serving}, and one queue word
 *          for each position of the wait queue. Only network atomics change these words. To
 *          acquire, a node draws a ticket. If the ticket is being served, the node holds the lock.
 *          Otherwise the node arrives at the queue word of its ticket, and waits for a grant word
 *          in its own memory; on mapped memory (shm) it reads the grant in the queue word. A release
 *          advances `serving`, and grants the lock to the next waiter.
 *          Threads of one node queue in private memory and hand the lock over locally, at most
 *          REMO_LOCK_HANDOVERS_MAX times in succession. Then a release ends the ticket at the home,
 *          so that waiters of other nodes are served. On mapped memory a node may pause before a draw,
 *          if it has handed the lock over to the only waiter, and that waiter still holds it. Meanwhile
 *          the waiter can acquire the lock again without a hand-over. The pause is learned for each
 *          lock, and takes about 1 us at most. It shrinks if the waiter does not return.
 * Layout:  at the home, 8 bytes for the word and 8 for each queue word. A lock has 2 x participants
 *          queue words, rounded up to a power of two; the total is rounded up to cache lines. At
 *          each participant, 24 bytes for grants, and 64 bytes of private memory (128 if memory is not
 *          mapped).
 * Cost:    network operations. Waiting takes none, and a hand-over between threads of a node takes
 *          none.
 *          - uncontended: acquire 1 atomic, release 1 atomic and the requested fence;
 *          - held by another node: acquire 3 atomics (draw, arrive, and a reset of the queue word
 *            while the lock is held; on mapped memory the reset is a write, and a node to which the
 *            lock is granted soon after the draw does not arrive). If memory is not mapped and there
 *            are 3 participants or more: 1 more read of queue words, without a wait; and no reset, if
 *            the previous holder had a hint about this waiter;
 *          - with a waiter: release 2 atomics and 1 write, which notifies the next holder (on mapped
 *            memory a notification without a write, and none before the waiter arrives), and 2 more
 *            atomics for each skipped ticket. The atomics take 1 round trip together if the holder has
 *            a hint about the next waiter, as in a long queue, otherwise 2. If the holder slept while
 *            it waited, its release has 1 more write, which wakes the waiter after the next one;
 *          - a timed-out acquire: 1 atomic after draw and arrive; the next acquire resumes its
 *            ticket with 1 atomic;
 *          - the next acquire after an operation with unknown outcome: 1 more atomic;
 *          - timeout 0: none if a thread of this node holds the lock; 1 atomic if this node was the
 *            last holder or the lock is held; otherwise 2 atomics.
 * Order:   FIFO between nodes, FIFO between threads of a node. Operations before a release, covered
 *          by its fence, are visible after the next acquire.
 * Caches:  without hardware coherence (see region.h) open returns -EOPNOTSUPP.
 * Failure: if the holder fails, it is cut off first. The next holder gets -EOWNERDEAD and holds the
 *          lock: repair the protected data, then call remo_lock_consistent. After a release without
 *          that call, every acquire returns -ENOTRECOVERABLE. A waiter that fails is skipped. A node
 *          that closes the table is treated like a failed node when its operations have ended. A
 *          node that fails during a hand-over to it, or during a release, may count as a holder. If
 *          the home fails, all calls return -EHOSTDOWN; if it closes the table, -ENOTCONN. A
 *          release hands the lock over only when no write that its fence covers is in flight. It
 *          repeats a failed fence for op_timeout_ns. Then it returns -EAGAIN, and the lock is still
 *          held. If such a write is lost, because it or its target has failed, the release hands
 *          the lock over and returns the error.
 * Threads: any. If a thread ends while it holds a lock, the lock stays held. Tasks (task.h) acquire
 *          and release as threads do: a lock belongs to the task that acquired it.
 * Source:  LOCO 5.4; Mellor-Crummey and Scott 1991. Differs in: waiters wait on their own memory
 *          instead of polling `now serving`; timeouts; recovery after a holder's failure. The
 *          protocol is described in docs/internals/lock.md.
 */
#pragma once

#include <remo/region.h>

REMO_BEGIN

#define REMO_LOCK_HANDOVERS_MAX 16u

struct remo_lock;

struct remo_lock_options {
    struct remo_nodeset participants; /* empty: the parent's */
    uint32_t count;                   /* locks in the table, the same on every node; default 1 */
    struct remo_nodeset homes;        /* lock i is at the (i mod n)-th; empty: the first participant */
};

/* Open the table `name` below `parent`; `options` may be NULL. The options are the same on every
 * participant. Does not wait for peers to open.
 * Errors: those of remo_channel_open and remo_channel_add_memory. */
REMO_API int remo_lock_open(struct remo_channel *parent, const char *name,
                            const struct remo_lock_options *options, struct remo_lock **ret_lock);
/* Close the table. First release all its locks that threads of this node hold, and end all waits
 * for them. When a home closes the table, its locks are lost to all participants. NULL has no
 * effect. */
REMO_API void remo_lock_close(struct remo_lock *lock);
REMO_API struct remo_channel *remo_lock_channel(struct remo_lock *lock);
/* Return the home of lock `index`. */
REMO_API uint32_t remo_lock_home(const struct remo_lock *lock, uint32_t index);

/* Acquire lock `index`. The caller holds the lock if the call returns 0 or -EOWNERDEAD. Blocks up
 * to `timeout_ns` (0: try once). If a hand-over to this node is in progress at that time, blocks
 * until it ends, for op_timeout_ns at most. Locks are not recursive. Threads: any.
 * Errors:
 *   -EOWNERDEAD       acquired, but the previous holder failed: repair the protected data
 *   -ETIMEDOUT        the lock was not free, or a hand-over to this node did not end in time,
 *                     because a node or the network is paused. In the second case the home grants
 *                     the lock to another waiter, or frees it, and the next holder gets -EOWNERDEAD
 *   -EDEADLK          this thread holds the lock; returned immediately, with any timeout
 *   -EHOSTDOWN        the home has failed
 *   -ENOTCONN         the home has closed the table
 *   -ENOTRECOVERABLE  a holder failed, and its data was not repaired
 *   -EINVAL           there is no such lock */
REMO_API int remo_lock_acquire(struct remo_lock *lock, uint32_t index, uint64_t timeout_ns);
/* Release lock `index`, in the thread that acquired it. `fence` precedes the release:
 * REMO_FENCE_NONE if the thread wrote nothing, PAIR if it wrote to the lock's home only, otherwise
 * THREAD or GLOBAL. Blocks for op_timeout_ns at most, unless the hand-over itself takes longer.
 * Errors:
 *   -EAGAIN  the lock is still held, because writes may still arrive: their target is paused and
 *            has not failed, or operations cannot be posted. Call release again until it succeeds,
 *            and do not use the protected data before that. Closing the table or the node counts
 *            as a failure in this state: the next holder gets -EOWNERDEAD
 *   -EINVAL  there is no such lock or fence; the call had no effect
 *   -EPERM   this thread does not hold the lock; the call had no effect
 *   -ETIMEDOUT  the home did not answer in time. This thread no longer holds the lock. The home
 *            hands the lock over when it answers again; the next holder may get -EOWNERDEAD. Until
 *            then this node cannot acquire the lock. If operations are in flight, a release with
 *            REMO_FENCE_NONE returns this error, and any other release returns -EAGAIN
 *   others   the lock is released, and the home has failed (-EHOSTDOWN) or has closed the table
 *            (-ENOTCONN), or a write under the lock was lost (-EIO, ...). To repair the
 *            protected data before the next holder reads it, call remo_fence first and release
 *            after the repair */
REMO_API int remo_lock_release(struct remo_lock *lock, uint32_t index, enum remo_fence_scope fence);
/* Declare the protected data repaired, after -EOWNERDEAD and in the thread that got it. Takes
 * effect at the release. Does not block.
 * Errors:
 *   -EPERM   this thread does not hold the lock
 *   -EINVAL  there is no such lock, or its previous holder did not fail */
REMO_API int remo_lock_consistent(struct remo_lock *lock, uint32_t index);

REMO_END
