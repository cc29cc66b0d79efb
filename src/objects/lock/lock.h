/* lock.h - internals that the files of the lock share: words, local state, protocol steps.
 *
 *   lock.c           open, and acquire and release without contention
 *   lock/state.c     concurrent changes of the local state
 *   lock/words.c     the words of a lock, at its home
 *   lock/queue.c     the wait queue of a lock: tickets and waits
 *   lock/release.c   ends the ticket of the holder, and grants the next one
 *   lock/ahead.c     hints about the tickets after that of the holder
 *   lock/try.c       acquires with a timeout of 0
 *   lock/threads.c   the wait queue of the threads of one node
 *   lock/recovery.c  at the home: finds orphaned tickets after a failure or a leave
 *   lock/report.c    at every participant: answers the home's queries
 *
 * docs/internals/lock.md describes the protocol, its states and its proofs. */
#pragma once

#include <remo/lock.h>

#include "base/bytes.h"
#include "base/threads_fence.h"
#include "channel/remote.h"

/* ---- words ---- */

/* The home word is {next:32, flags:16, serving:16}. */
#define REMO__LOCK_DRAW (UINT64_C(1) << 32)
#define REMO__LOCK_FLAG_SHIFT 16
#define REMO__LOCK_OWNER_DEAD 1u /* the last holder failed; the next one gets -EOWNERDEAD */
#define REMO__LOCK_LOST 2u       /* the data of a failed holder was not repaired */
#define REMO__LOCK_FLAGS (REMO__LOCK_OWNER_DEAD | REMO__LOCK_LOST)

/* A queue word is {granter + 1:24, flags:7, skip:1, nonce:16, waiter + 1:16}. */
#define REMO__QUEUE_WORD_SKIP (UINT64_C(1) << 32)
#define REMO__QUEUE_WORD_FLAG_SHIFT 33
#define REMO__QUEUE_WORD_GRANTER_SHIFT 40
#define REMO__QUEUE_WORD_WHICH (REMO__QUEUE_WORD_SKIP | 0xffffffffu) /* skip, nonce, waiter */

#define REMO__GRANTER_RECOVERY 1000u /* the home, for a failed node; it sends the grant word as a message */

/* A grant word is {valid:1, cleared:1, granter + 1:12, flags:2, nonce:16, ticket:32}. */
#define REMO__GRANT_FLAG_SHIFT 48
#define REMO__GRANT_GRANTER_SHIFT 50
#define REMO__GRANT_CLEARED (UINT64_C(1) << 62) /* the granter has made the queue word 0 */
#define REMO__GRANT_VALID (UINT64_C(1) << 63)
#define REMO__GRANT_WHICH (REMO__GRANT_VALID | 0xffffffffffffu) /* valid, nonce, ticket */
#define REMO__GRANT_TICKET (REMO__GRANT_VALID | 0xffffffffu)    /* valid, ticket */

/* The words of a lock at each participant. The first two are written together. */
#define REMO__GRANT_BYTES 24u    /* of each lock */
#define REMO__GRANT_SUCCESSOR 8u /* {ticket:32, nonce:16, waiter + 1:16} of the next ticket, as it arrived */
#define REMO__GRANT_NEAR 16u     /* {valid:1, 0:15, nonce:16, ticket:32}: the wait will soon end */

static inline uint32_t remo__word_next(uint64_t word) {
    return (uint32_t)(word >> 32);
}

static inline uint32_t remo__word_flags(uint64_t word) {
    return (uint32_t)(word >> REMO__LOCK_FLAG_SHIFT) & REMO__LOCK_FLAGS;
}

/* Return whether the next draw acquires the lock or, if `word` is the old value of a draw, whether that draw
 * acquired the lock. */
static inline bool remo__word_is_free(uint64_t word) {
    return (uint16_t)(word >> 32) == (uint16_t)word;
}

/* Return the number of pending tickets. */
static inline uint32_t remo__word_pending(uint64_t word) {
    return (uint16_t)((uint32_t)(word >> 32) - (uint32_t)word);
}

/* Return the addend that releases `ticket`. It adds 1 to `serving`, without a carry into the flags. */
static inline uint64_t remo__word_step(uint32_t ticket) {
    return (uint16_t)ticket == UINT16_MAX ? UINT64_C(1) - 0x10000 : 1;
}

static inline uint64_t remo__queue_word_arrive(uint32_t node, uint16_t nonce) {
    return (uint64_t)nonce << 16 | (node + 1);
}

static inline uint64_t remo__queue_word_grant(uint32_t granter, uint32_t flags) {
    return (uint64_t)(granter + 1) << REMO__QUEUE_WORD_GRANTER_SHIFT
           | (uint64_t)flags << REMO__QUEUE_WORD_FLAG_SHIFT;
}

static inline bool remo__queue_word_is_granted(uint64_t queue_word) {
    return queue_word >> REMO__QUEUE_WORD_GRANTER_SHIFT != 0;
}

static inline uint32_t remo__queue_word_flags(uint64_t queue_word) {
    return (uint32_t)(queue_word >> REMO__QUEUE_WORD_FLAG_SHIFT) & REMO__LOCK_FLAGS;
}

/* Return the node that waits, or UINT32_MAX before it has arrived. */
static inline uint32_t remo__queue_word_waiter(uint64_t queue_word) {
    return (uint32_t)(queue_word & 0xffff) - 1;
}

/* Return the word if it shows an arrival without SKIP and without a grant, otherwise 0. */
static inline uint64_t remo__queue_word_arrived(uint64_t queue_word) {
    return queue_word >> 32 == 0 && (queue_word & 0xffff) != 0 ? queue_word : 0;
}

/* Return the grant word for the waiter of a granted queue word. */
static inline uint64_t remo__grant_of(uint64_t queue_word, uint32_t ticket) {
    return REMO__GRANT_VALID | (queue_word >> REMO__QUEUE_WORD_GRANTER_SHIFT) << REMO__GRANT_GRANTER_SHIFT
           | (uint64_t)remo__queue_word_flags(queue_word) << REMO__GRANT_FLAG_SHIFT
           | (queue_word >> 16 & 0xffff) << 32 | ticket;
}

/* ---- local state ---- */

/* The state word of a lock on this node is {used:1, state:8, nonce:16, ticket:32}. While it is BUSY, one
 * thread of this node is changing the ticket, and the word may lag behind the home. In all other states
 * the word is exact. Only remo__lock_publish, remo__lock_set_state and remo__lock_reopen end BUSY and
 * UNSETTLED, because a report may wait for that. Any thread may change FREE, GUARDED or SKIPPED to BUSY
 * (remo__lock_make_busy). Any thread may change UNSETTLED to GUARDED when the operation has ended. All other
 * changes are made by the thread that made the state BUSY, holds the lock, or waits for it. */
enum remo__lock_state {
    REMO__LOCK_FREE = 0,
    REMO__LOCK_BUSY = 1,
    REMO__LOCK_HELD = 2,
    REMO__LOCK_WAITING = 3,   /* has arrived at the queue word of the ticket */
    REMO__LOCK_SKIPPED = 4,   /* timed out; the next acquire resumes the ticket if it can */
    REMO__LOCK_UNSETTLED = 5, /* no ticket; an operation that timed out may still be applied */
    REMO__LOCK_GUARDED = 6    /* FREE, but earlier tickets of this node may be pending: remo__lock_guard */
};

static inline uint64_t remo__state_word(enum remo__lock_state kind, uint16_t nonce, uint32_t ticket) {
    return UINT64_C(1) << 56 | (uint64_t)kind << 48 | (uint64_t)nonce << 32 | ticket;
}

static inline enum remo__lock_state remo__state_kind(uint64_t state) {
    return (enum remo__lock_state)(state >> 48 & 0xff);
}

static inline uint16_t remo__state_nonce(uint64_t state) {
    return (uint16_t)(state >> 32);
}

static inline uint64_t remo__state_busy(uint64_t state) {
    return (state & ~(UINT64_C(0xff) << 48)) | (uint64_t)REMO__LOCK_BUSY << 48;
}

static inline bool remo__state_is_open(uint64_t state) {
    enum remo__lock_state kind = remo__state_kind(state);
    return kind == REMO__LOCK_FREE || kind == REMO__LOCK_SKIPPED || kind == REMO__LOCK_GUARDED;
}

static inline bool remo__state_is_exact(uint64_t state) {
    enum remo__lock_state kind = remo__state_kind(state);
    return kind != REMO__LOCK_BUSY && kind != REMO__LOCK_UNSETTLED;
}

/* The word `found` of a report that waits is {is_found:1, kind:3, number of the wait:28, ticket:32}. */
#define REMO__FOUND (UINT64_C(1) << 63)
#define REMO__FOUND_KIND_SHIFT 60
#define REMO__FOUND_WAIT_SHIFT 32
#define REMO__FOUND_WAITS_MAX ((1u << (REMO__FOUND_KIND_SHIFT - REMO__FOUND_WAIT_SHIFT)) - 1)

static inline uint64_t remo__found_of(uint64_t wait, uint64_t state) {
    return REMO__FOUND | (uint64_t)remo__state_kind(state) << REMO__FOUND_KIND_SHIFT | wait | (uint32_t)state;
}

/* Return the state without its nonce, which a report does not need. */
static inline uint64_t remo__found_state(uint64_t found) {
    return remo__state_word((enum remo__lock_state)(found >> REMO__FOUND_KIND_SHIFT & 7), 0, (uint32_t)found);
}

/* Marks of a held lock. UNRESET: the queue word may still be nonzero. UNSURE: a release failed with unknown
 * outcome. SWAPPED: that release may have made the queue word of the next ticket 0. AHEAD: the holder may
 * have hints about the next waiters (lock/ahead.c). */
enum {
    REMO__LOCK_GOT_OWNERDEAD = 1,
    REMO__LOCK_REPAIRED = 2,
    REMO__LOCK_UNRESET = 4,
    REMO__LOCK_UNSURE = 8,
    REMO__LOCK_SWAPPED = 16,
    REMO__LOCK_AHEAD = 32
};

/* The state of one lock on this node. Fields marked "busy" belong to the thread that made the state BUSY,
 * fields marked "holder" to the thread that holds the lock. */
struct remo__lock_local {
    _Atomic uint64_t state;
    _Atomic uint64_t message_grant; /* a grant word received by message; written by the control thread */
    uint64_t offset;                /* of the home word in the home's memory */
    struct remo_ack reset;          /* resets the queue word while the lock is held */
    _Atomic uint32_t waiters;       /* threads of this node in the queue of lock/threads.c, and the flag
                                     * REMO__LOCK_REPORT_WAITS; one load finds both */
    _Atomic uint32_t last_skipped;  /* the last ticket of this node that was skipped, if has_skipped */
    _Atomic uint32_t owner;         /* the thread or task that holds the lock (remo__thread.holder) */
    uint16_t home;
    uint16_t waits_since_s;       /* busy: begin of the first wait since the last grant or REMIND, or 0 */
    uint16_t look_pause;          /* busy: learned, between looks at a mapped queue word */
    uint16_t draw_pause : 9;      /* busy: learned, before a draw after handed_over */
    uint16_t handed_over : 1;     /* busy: the last release handed the lock over to the only waiter */
    uint16_t outcome_unknown : 1; /* busy: an operation at the home may have been applied */
    uint8_t loss;                 /* holder: an error that a release found and did not return, as errno */
    uint8_t handovers;            /* holder: consecutive local hand-overs */
    uint8_t marks;                /* holder */
    _Atomic bool has_skipped;     /* stored after last_skipped; the control thread reads both at any time */
} REMO__CACHE_ALIGNED;

static_assert(sizeof(struct remo__lock_local) == REMO__CACHE_LINE,
              "an uncontended acquire touches one private cache line");
static_assert(REMO__PAUSE_MAX < 1u << 9, "draw_pause holds each pause");

/* Hints about the tickets after that of the holder, to which the fields belong. */
struct remo__lock_ahead {
    struct remo_ack read; /* of `words` */
    uint64_t words[2];    /* queue words of `count` tickets from `first` on */
    uint64_t successor;   /* the queue word of the next ticket, from the granter; 0: unknown */
    uint32_t first;
    uint8_t count;
    bool has_slept; /* the holder has slept before its grant: probably the next waiters sleep too */
} REMO__CACHE_ALIGNED;

#define REMO__LOCK_STRIPES 16u

/* The wait queues of this node's threads, for the locks that remo__lock_stripe maps to this stripe. */
struct remo__lock_stripe {
    pthread_mutex_t mutex; /* held for a few instructions, never in a wait or a network operation */
    struct remo__lock_waiter *first;
    struct remo__lock_waiter **last;
} REMO__CACHE_ALIGNED;

/* In `waiters`, set by the control thread: its report waits until the state is neither BUSY nor UNSETTLED. */
#define REMO__LOCK_REPORT_WAITS (UINT32_C(1) << 31)

/* Return whether threads of this node are in the queue of lock/threads.c. */
static inline bool remo__lock_threads_wait(const struct remo__lock_local *local) {
    return (atomic_load_explicit(&local->waiters, memory_order_relaxed) & ~REMO__LOCK_REPORT_WAITS) != 0;
}

struct remo__lock_recovery;

/* A query of one home, until this node has answered it. Only the control thread writes it, except `found`. */
struct remo__lock_report {
    bool is_requested;
    uint32_t round;
    uint32_t waits;             /* for the state of a lock: the number of the last wait */
    _Atomic uint64_t found;     /* by another thread, for the present wait; 0: the report does not wait */
    _Atomic uint32_t next;      /* lock to report; the service thread reads it */
    struct remo_nodeset failed; /* answer when this node has cut them off too */
};

struct remo_lock {
    struct remo_node *node;
    struct remo_channel *channel;
    struct remo__memory *words;  /* home words and queue words, at the homes */
    struct remo__memory *grants; /* [count] words at each participant */
    struct remo__lock_local *locals;
    uint32_t count;
    uint32_t rank;
    uint32_t places;      /* queue words of a lock: a power of two */
    uint32_t guarded_max; /* pending tickets beyond which a guarded draw waits */
    uint32_t stride;      /* bytes of a lock at its home */
    uint32_t home_count;
    uint16_t homes[REMO_NODES_MAX];
    struct remo__lock_report *reports;    /* [home_count] */
    bool report_continues;                /* a REPORT_CONTINUE is queued; control thread only */
    struct remo__lock_recovery *recovery; /* NULL if this node is not a home */
    /* Return the node that claims to wait for `ticket` of a lock of this home, which the present round
     * resolves, or REMO_NODES_MAX. */
    uint32_t (*claimant)(const struct remo_lock *lock, uint32_t index, uint32_t ticket);
    bool has_unsent_grant; /* a grant by message waits for a connection; control thread only */
    struct remo__thread_observer observer; /* of sweeps, for a report that waits for an operation */
    struct remo__lock_ahead *aheads;       /* [count]; NULL if memory is mapped, or for two participants */
    struct remo__lock_stripe stripes[REMO__LOCK_STRIPES];
};

static inline struct remo__lock_stripe *remo__lock_stripe(struct remo_lock *lock, uint32_t index) {
    return &lock->stripes[index / lock->home_count % REMO__LOCK_STRIPES];
}

/* If a report waits for the state, and the state is exact, give it to the report. */
void remo__lock_report_resume(struct remo_lock *lock, const struct remo__lock_local *local);
/* The same, and wake the queued threads: `waiters` is not 0. */
void remo__lock_notify_waiters(struct remo_lock *lock, const struct remo__lock_local *local,
                               uint32_t waiters);
/* Give the report a state that was exact at some time since `found` was `wait`, and make it continue. Without
 * effect if that wait has ended. */
void remo__lock_report_give(struct remo_lock *lock, const struct remo__lock_local *local, uint64_t wait,
                            uint64_t state);
/* Make the report continue, on the control thread. */
int remo__lock_report_send_continue(struct remo_lock *lock);
/* Change an open state to BUSY. Returns false if the state is not open. *ret_previous is the state before. */
bool remo__lock_make_busy(struct remo_lock *lock, struct remo__lock_local *local, uint64_t *ret_previous);
/* Make an UNSETTLED state GUARDED if the operation has ended. Any thread may call this. */
void remo__lock_reopen(struct remo_lock *lock, uint32_t index);

/* Store the state, then read `waiters`. The CPU could exchange the two here. A thread that has changed
 * `waiters` executes the fence for both before it reads the state: remo__threads_fence in lock/report.c and
 * lock/threads.c. */
static inline uint32_t remo__lock_store_state(struct remo__lock_local *local, uint64_t state) {
    atomic_store_explicit(&local->state, state, memory_order_release);
    remo__threads_fence_hot();
    return atomic_load_explicit(&local->waiters, memory_order_relaxed);
}

/* Replace the BUSY state by one that no other thread changes. */
static inline void remo__lock_publish(struct remo_lock *lock, struct remo__lock_local *local,
                                      uint64_t state) {
    if (remo__unlikely((remo__lock_store_state(local, state) & REMO__LOCK_REPORT_WAITS) != 0))
        remo__lock_report_resume(lock, local);
}

/* Replace the BUSY state by one that a queued thread of this node may change to BUSY, and wake the queued
 * threads. */
static inline void remo__lock_set_state(struct remo_lock *lock, struct remo__lock_local *local,
                                        uint64_t state) {
    uint32_t waiters = remo__lock_store_state(local, state);
    if (remo__unlikely(waiters != 0))
        remo__lock_notify_waiters(lock, local, waiters);
}

/* Return whether the thread holds the lock. The owner is stored before the state becomes HELD, so a thread
 * that reads HELD and its own index as the owner holds the lock. */
static inline bool remo__lock_is_held_by(const struct remo__lock_local *local,
                                         const struct remo__thread *thread) {
    uint64_t state = atomic_load_explicit(&local->state, memory_order_acquire);
    return remo__state_kind(state) == REMO__LOCK_HELD
           && atomic_load_explicit(&local->owner, memory_order_relaxed) == thread->holder;
}

static inline int remo__lock_fail_deadlock(void) {
    return remo__fail_static(-EDEADLK,
                             "cannot acquire the lock: this thread holds it already; release it first");
}

/* ---- the wait queue at the home (lock/queue.c, lock/release.c, lock/words.c) ---- */

/* Resume the skipped ticket, or draw one, and wait. The state is BUSY and was `previous` before.
 * Errors: those of remo_lock_acquire. */
int remo__lock_join_queue(struct remo_lock *lock, uint32_t index, struct remo__thread *thread,
                          uint64_t previous, uint64_t deadline_ns);
/* The same, after a draw for which the home word was `drawn`. */
int remo__lock_use_ticket(struct remo_lock *lock, uint32_t index, struct remo__thread *thread,
                          uint64_t previous, uint64_t drawn, uint64_t deadline_ns);
/* Make the state HELD, from BUSY or WAITING, with the flags of the home word. Returns the result of the
 * acquire. Errors: those of remo_lock_acquire. */
int remo__lock_take(struct remo_lock *lock, uint32_t index, struct remo__thread *thread, uint16_t nonce,
                    uint32_t ticket, uint32_t flags);
/* Acquire the lock if it is free; leave no ticket otherwise (lock/try.c). */
int remo__lock_try(struct remo_lock *lock, uint32_t index, struct remo__thread *thread);
/* End the ticket of a held lock at its home, and grant the lock to the next waiter. `fence` is the scope that
 * the caller of the release passed. Errors: those of remo_lock_release. */
int remo__lock_return(struct remo_lock *lock, uint32_t index, struct remo__thread *thread,
                      enum remo_fence_scope fence);
/* Wait until all operations of a release that failed with `rc` have ended; the state is BUSY. The home later
 * ends the ticket instead. After a pair fence this node's release is ordered after its writes, but the home's
 * atomic is not, so the writes must have ended first. Returns `rc`, or -EAGAIN if operations are still in
 * flight: then the state is HELD again, with `marks`. */
int remo__lock_release_failed(struct remo_lock *lock, uint32_t index, struct remo__thread *thread,
                              uint8_t marks, int rc);
/* Set the sentence for a release that keeps the lock, because writes may be in flight. Returns -EAGAIN. */
int remo__lock_still_held(const struct remo_lock *lock, uint32_t index);
/* Results of a grant besides 0 and errors. REMO__LOCK_GRANT_LOST: this node has lost contact with the waiter,
 * or the waiter has closed the table. The release has succeeded. In the recount that remo__lock_end requests,
 * the home sends the grant or ends the ticket. */
enum { REMO__LOCK_TICKET_SKIPPED = 1, REMO__LOCK_GRANT_LOST = 2 };

/* Grant the lock to the first ticket after `ticket` that is not skipped, and end the skipped ones. `word` is
 * the home word after `ticket` has ended. `by_message`: the home acts for a failed node. */
int remo__lock_grant_next(struct remo_lock *lock, uint32_t index, struct remo__thread *thread,
                          uint32_t ticket, uint64_t word, bool by_message);
/* End `ticket`, add `change` to the flags of the home word, and grant the next ticket. */
int remo__lock_end_ticket(struct remo_lock *lock, uint32_t index, struct remo__thread *thread,
                          uint32_t ticket, uint64_t change, bool by_message);
/* Grant `ticket` at its queue word. Returns REMO__LOCK_TICKET_SKIPPED if the ticket has SKIP; then its
 * queue word is 0 again. */
int remo__lock_grant(struct remo_lock *lock, uint32_t index, struct remo__thread *thread, uint32_t ticket,
                     uint32_t flags, bool by_message);
/* Send a grant word to the waiter: by a write, or by message, which never returns REMO__LOCK_GRANT_LOST. */
int remo__lock_send_grant(struct remo_lock *lock, uint32_t index, struct remo__thread *thread,
                          uint32_t waiter, uint64_t grant, bool by_message);
/* Find a word of the lock at its home. Word 0 is the home word, 1 + n is queue word n. */
static inline __attribute__((always_inline)) int
remo__lock_find_word(const struct remo_lock *lock, uint32_t index, struct remo__thread *thread, uint32_t word,
                     struct remo__ref *ret_ref) {
    const struct remo__lock_local *local = &lock->locals[index];
    return remo__memory_find(lock->words, thread, local->home, local->offset + 8 * (uint64_t)word, ret_ref);
}
/* Execute an atomic on a word of the lock at its home. */
int remo__lock_add(struct remo_lock *lock, uint32_t index, struct remo__thread *thread, uint32_t word,
                   uint64_t addend, uint64_t *ret_old, struct remo_ack *ack);
int remo__lock_swap(struct remo_lock *lock, uint32_t index, struct remo__thread *thread, uint32_t word,
                    uint64_t expected, uint64_t desired, uint64_t *ret_old);
/* Change the BUSY state to FREE after an operation that returned `rc`; the node has no ticket. If `rc` is not
 * 0 although the home is up, the outcome is unknown. Then the new state is GUARDED, or UNSETTLED while the
 * operation may still be applied. Request a recount now, and again when the node next draws a ticket that is
 * not served immediately. */
void remo__lock_end(struct remo_lock *lock, uint32_t index, int rc, uint16_t nonce, uint32_t ticket);

/* The time between reminders for one lock; in the simulator longer than op_timeout_ns. */
#ifdef REMO_SIM_SMALL
#define REMO__LOCK_REMIND_S 60u
#else
#define REMO__LOCK_REMIND_S 10u
#endif
#define REMO__LOCK_REMIND_NS (REMO__LOCK_REMIND_S * REMO__NS_PER_S)

/* Send REMIND to the home if this node has waited for the lock for that time, in one acquire or in several
 * that timed out. The state is BUSY or WAITING. Returns the time at which the next REMIND is due. */
uint64_t remo__lock_remind(struct remo_lock *lock, uint32_t index);

/* Return 1 if the wait queue has room for a ticket of a node whose earlier tickets may be pending.
 * Otherwise return 0 or an error; the state is then no longer BUSY. The state is BUSY at the call, and was
 * `previous`, which is GUARDED, before. docs/internals/lock.md has the proof. */
int remo__lock_guard(struct remo_lock *lock, uint32_t index, struct remo__thread *thread, uint64_t previous);

/* Return the number of the queue word of `ticket`, for remo__lock_add. */
static inline uint32_t remo__lock_queue_word(const struct remo_lock *lock, uint32_t ticket) {
    return 1 + (ticket & (lock->places - 1));
}

/* ---- tickets after that of the holder (lock/ahead.c) ---- */

int remo__lock_ahead_open(struct remo_lock *lock, uint32_t participants);
void remo__lock_ahead_close(struct remo_lock *lock);
/* Note what the granter has written about the next ticket, and begin to read further queue words. The caller
 * holds the lock by `ticket`, and `aheads` is not NULL. After an error the next waiter is unknown. */
void remo__lock_look_ahead(struct remo_lock *lock, uint32_t index, struct remo__thread *thread,
                           uint32_t ticket, bool has_slept);
/* Return the queue word of a ticket as its waiter arrived, or 0 if it is unknown. Never blocks. The word may
 * have changed since. */
uint64_t remo__lock_arrived_ahead(const struct remo_lock *lock, uint32_t index, uint32_t ticket);
/* Wake the waiter of `ticket`, which is granted soon, if it is known and probably sleeps. Never blocks. */
void remo__lock_wake_ahead(struct remo_lock *lock, uint32_t index, struct remo__thread *thread,
                           uint32_t ticket);

/* ---- threads of one node (lock/threads.c) ---- */

/* Acquire the lock after the threads of this node that wait for it. Errors: those of remo_lock_acquire. */
int remo__lock_acquire_in_turn(struct remo_lock *lock, uint32_t index, struct remo__thread *thread,
                               uint64_t deadline_ns);
/* Hand a held lock over to the next thread of this node. Returns false if no thread waits, or after
 * REMO_LOCK_HANDOVERS_MAX consecutive hand-overs. */
bool remo__lock_hand_over(struct remo_lock *lock, uint32_t index);

/* ---- recovery (lock/recovery.c at the home, lock/report.c at all); on the control thread ---- */

enum remo__lock_message {
    REMO__LOCK_QUERY = 1, /* home to all: u32 round, the failed nodes */
    REMO__LOCK_ANSWER,  /* to the home: u32 round, u8 last, u16 count, {u32 index, ticket, u8 kind}[count] */
    REMO__LOCK_GRANT,   /* home to a waiter whose granter failed: u32 index, u64 grant word */
    REMO__LOCK_RECOUNT, /* to the home, after an operation with unknown outcome */
    REMO__LOCK_REMIND,  /* to the home, from a node that waits: repeat what could not be sent, or recount */
    REMO__LOCK_REPORT_CONTINUE,  /* to the node itself */
    REMO__LOCK_RECOVERY_CONTINUE /* to the node itself: u32 round */
};

/* Send a message without contents to a node. Errors are ignored (lock/words.c). */
void remo__lock_send_type(struct remo_lock *lock, uint32_t node, enum remo__lock_message type);

/* Kinds of claims, combined by bitwise or. */
enum { REMO__CLAIM_HELD = 1, REMO__CLAIM_WAITING = 2, REMO__CLAIM_SKIPPED = 4 };

#define REMO__CLAIM_BYTES 9u

int remo__lock_recovery_open(struct remo_lock *lock);
void remo__lock_recovery_close(struct remo_lock *lock);
void remo__lock_recovery_start(struct remo_lock *lock);
void remo__lock_recovery_connected(struct remo_lock *lock, uint32_t node);
void remo__lock_recovery_message(struct remo_lock *lock, uint32_t from, const void *data, size_t bytes);
/* Return whether the node has the addresses of this home. A node without them has no ticket here. */
bool remo__lock_has_our_addresses(const struct remo_lock *lock, uint32_t node);
/* Return whether the node has failed or left the channel, and is cut off from this node's memory. */
bool remo__lock_is_cut_off(const struct remo_lock *lock, uint32_t node);

int remo__lock_report_open(struct remo_lock *lock);
void remo__lock_report_close(struct remo_lock *lock);
void remo__lock_report_continue(struct remo_lock *lock);
void remo__lock_report_message(struct remo_lock *lock, uint32_t from, const void *data, size_t bytes);
