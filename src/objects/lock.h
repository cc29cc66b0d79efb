/* lock.h - the lock from inside: tickets, batons, seats, and what is asked when a node dies.
 *
 * Home word: {next:32, flags:16, serving:16}, changed by network atomics only. A draw adds 1 to `next`; the
 * old value is the ticket, which has the lock if its low 16 bits are `serving`. A release adds 1 to `serving`
 * (the releaser knows its ticket, so it knows when that wraps around, and lets no carry into the flags).
 *
 * Baton: one word for each place in the queue, ticket % places; 0 as long as nobody has used it for the
 * ticket. Two parties add to it. Who waits with the ticket ARRIVES {node, nonce}; who releases the ticket
 * before it GRANTS {granter, flags}. Who comes second learns from the old value what the first did: the
 * waiter that the lock is its own, the granter whom to tell. A waiter that gives up swaps SKIP in, which
 * succeeds only before the grant; a granter that finds SKIP passes over. Who got the lock by its baton, or
 * passed over it, sets it back to 0 before `serving` moves past that ticket.
 *
 * Seat: what a node has at one lock, at most one ticket: it waits with it, holds it, or has given it up. A
 * ticket given up is taken up again by swapping SKIP out. If that fails it has been passed over, or is being
 * passed over at this moment, and another one is drawn.
 *
 * A place is never used for two tickets at once. The tickets in [serving, next) were drawn by different
 * nodes, except that the one which is being passed over (so it is `serving`) may belong to a node that has
 * drawn another one since: they are at most participants + 1, which is no more than `places`. So ticket t +
 * places is drawn when `serving` is past t, and then the baton of t has been set back. A late attempt to take
 * up a ticket finds another node or another nonce there, and fails.
 *
 * Grant word: one for each lock in the memory of each participant, put there by granters. It repeats ticket
 * and nonce, so what an earlier grant left there means nothing. Two granters never write it at the same time:
 * a waiter that was granted the lock waits until it has seen the word, also when it learned of the grant
 * while giving up; and where a grant comes by message (recovery), the granter whose word is missing is dead
 * and cut off.
 *
 * Order: what was fenced before a release comes before the atomic that releases, which comes before the draw,
 * or the grant, by which the next owner has the lock. */
#pragma once

#include <remo/lock.h>

#include "base/bytes.h"
#include "channel/channel.h"

/* ---- words ---- */

#define REMO__LOCK_DRAW (UINT64_C(1) << 32)
#define REMO__LOCK_FLAG_SHIFT 16
#define REMO__LOCK_OWNER_DEAD 1u /* the last owner died; who acquires is told */
#define REMO__LOCK_LOST 2u       /* what the dead owner left was not repaired */
#define REMO__LOCK_FLAGS (REMO__LOCK_OWNER_DEAD | REMO__LOCK_LOST)

#define REMO__BATON_SKIP (UINT64_C(1) << 32)
#define REMO__BATON_FLAG_SHIFT 33
#define REMO__BATON_GRANTER_SHIFT 40

#define REMO__GRANTER_RECOVERY 1000u /* granted by the home on behalf of a dead node, and told by message */

#define REMO__GRANT_FLAG_SHIFT 48
#define REMO__GRANT_GRANTER_SHIFT 50
#define REMO__GRANT_VALID (UINT64_C(1) << 63)
#define REMO__GRANT_WHICH (REMO__GRANT_VALID | 0xffffffffffffu) /* valid, nonce, ticket */

static inline uint32_t remo__word_next(uint64_t word) {
    return (uint32_t)(word >> 32);
}

static inline uint32_t remo__word_flags(uint64_t word) {
    return (uint32_t)(word >> REMO__LOCK_FLAG_SHIFT) & REMO__LOCK_FLAGS;
}

/* Does the next one to draw have the lock? Equally: the one that drew and got this old value. */
static inline bool remo__word_free(uint64_t word) {
    return (uint16_t)(word >> 32) == (uint16_t)word;
}

/* What the release of `ticket` adds: 1 to `serving`, without a carry into the flags. */
static inline uint64_t remo__word_step(uint32_t ticket) {
    return (uint16_t)ticket == UINT16_MAX ? UINT64_C(1) - 0x10000 : 1;
}

static inline uint64_t remo__baton_arrive(uint32_t node, uint16_t nonce) {
    return (uint64_t)nonce << 16 | (node + 1);
}

static inline uint64_t remo__baton_grant(uint32_t granter, uint32_t flags) {
    return (uint64_t)(granter + 1) << REMO__BATON_GRANTER_SHIFT | (uint64_t)flags << REMO__BATON_FLAG_SHIFT;
}

static inline bool remo__baton_granted(uint64_t baton) {
    return baton >> REMO__BATON_GRANTER_SHIFT != 0;
}

static inline uint32_t remo__baton_flags(uint64_t baton) {
    return (uint32_t)(baton >> REMO__BATON_FLAG_SHIFT) & REMO__LOCK_FLAGS;
}

/* Who waits there; UINT32_MAX: nobody yet. */
static inline uint32_t remo__baton_waiter(uint64_t baton) {
    return (uint32_t)(baton & 0xffff) - 1;
}

/* The grant word that tells the waiter of a granted baton. */
static inline uint64_t remo__grant_of(uint64_t baton, uint32_t ticket) {
    return REMO__GRANT_VALID | (baton >> REMO__BATON_GRANTER_SHIFT) << REMO__GRANT_GRANTER_SHIFT
           | (uint64_t)remo__baton_flags(baton) << REMO__GRANT_FLAG_SHIFT | (baton >> 16 & 0xffff) << 32
           | ticket;
}

/* ---- seats ---- */

/* A seat's place: {used:1, state:8, nonce:16, ticket:32}. BUSY: one thread of this node is drawing, arriving,
 * releasing or passing on, so that what the place says is not to be relied on; every other state is a true
 * statement about the ticket. Only whoever made it BUSY, owns the lock or is the one who waits changes it,
 * but from FREE and SKIPPED any thread makes it BUSY by compare-and-swap. */
enum remo__lock_state {
    REMO__LOCK_FREE = 0,
    REMO__LOCK_BUSY = 1,
    REMO__LOCK_HELD = 2,
    REMO__LOCK_WAITING = 3, /* on the baton of the ticket */
    REMO__LOCK_SKIPPED = 4, /* given up; takes it up again if it is not too late */
    /* no ticket; an operation that timed out is still in flight, and may be applied at any time */
    REMO__LOCK_UNSETTLED = 5
};

static inline uint64_t remo__place(enum remo__lock_state state, uint16_t nonce, uint32_t ticket) {
    return UINT64_C(1) << 56 | (uint64_t)state << 48 | (uint64_t)nonce << 32 | ticket;
}

static inline enum remo__lock_state remo__place_state(uint64_t place) {
    return (enum remo__lock_state)(place >> 48 & 0xff);
}

static inline uint16_t remo__place_nonce(uint64_t place) {
    return (uint16_t)(place >> 32);
}

static inline uint64_t remo__place_busy(uint64_t place) {
    return (place & ~(UINT64_C(0xff) << 48)) | (uint64_t)REMO__LOCK_BUSY << 48;
}

static inline bool remo__place_open(uint64_t place) {
    enum remo__lock_state state = remo__place_state(place);
    return state == REMO__LOCK_FREE || state == REMO__LOCK_SKIPPED;
}

/* Marks. UNSURE: a release failed, and it is unknown whether it was applied. */
enum { REMO__LOCK_TOLD_DEAD = 1, REMO__LOCK_REPAIRED = 2, REMO__LOCK_UNRESET = 4, REMO__LOCK_UNSURE = 8 };

struct remo__lock_seat {
    _Atomic uint64_t place;
    _Atomic uint64_t told;   /* a grant word that came by message; written by the control thread */
    _Atomic uint64_t passed; /* {1:1, ticket:32}: the last ticket that was given up and passed over */
    uint64_t offset;         /* of the home word in the home's memory */
    struct remo_ack reset;   /* of setting our baton back, while we hold the lock */
    _Atomic uint16_t queued; /* threads of this node that wait for one another */
    _Atomic uint16_t owner;  /* index of the thread that holds the lock */
    uint32_t untold; /* if `is_untold`: the ticket whose grant failed half-way; of who made the place BUSY */
    uint16_t home;
    int16_t loss;      /* an error that a release found and could not return; the owner's */
    uint8_t handovers; /* in a row; the owner's */
    uint8_t marks;     /* the owner's */
    bool is_untold;
    bool doubt; /* an operation at the home may have happened or not; of whoever made the place BUSY */
} REMO__CACHE_ALIGNED;

static_assert(sizeof(struct remo__lock_seat) == REMO__CACHE_LINE,
              "an uncontended acquire touches one line of the node's own");

#define REMO__LOCK_STRIPES 16u

/* Threads of this node that wait for one another, in order; one list for a sixteenth of the locks. */
struct remo__lock_stripe {
    pthread_mutex_t mutex; /* held for a few instructions, never around a wait or the network */
    struct remo__lock_waiter *first;
    struct remo__lock_waiter **last;
} REMO__CACHE_ALIGNED;

struct remo__lock_recovery;
struct remo__lock_report;

struct remo_lock {
    struct remo_node *node;
    struct remo_channel *channel;
    struct remo__memory *words;  /* home words and batons, at the homes */
    struct remo__memory *grants; /* [count] words at each participant */
    struct remo__lock_seat *seats;
    uint32_t count;
    uint32_t rank;
    uint32_t places; /* batons of a lock: a power of two */
    uint32_t stride; /* bytes of a lock at its home */
    uint32_t home_count;
    uint16_t homes[REMO_NODES_MAX];
    struct remo__lock_report *reports;    /* [home_count] */
    struct remo__lock_recovery *recovery; /* NULL: no lock lives here */
    struct remo__lock_stripe stripes[REMO__LOCK_STRIPES];
};

static inline struct remo__lock_stripe *remo__lock_stripe(struct remo_lock *lock, uint32_t index) {
    return &lock->stripes[index / lock->home_count % REMO__LOCK_STRIPES];
}

/* The place is BUSY and ours: make it something else, and let threads of this node see. A waiter says
 * `queued` before it looks at the place, we store the place before we look at `queued`; there is no fence
 * between our two, but a waiter looks for far longer than a store buffer takes to drain before it sleeps. */
static inline void remo__lock_settle(struct remo_lock *lock, struct remo__lock_seat *seat, uint64_t place) {
    atomic_store_explicit(&seat->place, place, memory_order_release);
    if (remo__unlikely(atomic_load_explicit(&seat->queued, memory_order_relaxed) != 0))
        remo__wake(lock->node);
}

/* Does the thread hold the lock? The owner is stored before the place becomes HELD, so a thread that reads
 * HELD, and its own index as the owner, is the owner. */
static inline bool remo__lock_is_held_by(const struct remo__lock_seat *seat,
                                         const struct remo__thread *thread) {
    uint64_t place = atomic_load_explicit(&seat->place, memory_order_acquire);
    return remo__place_state(place) == REMO__LOCK_HELD
           && atomic_load_explicit(&seat->owner, memory_order_relaxed) == thread->index;
}

static inline int remo__lock_fail_deadlock(void) {
    return remo__fail_static(-EDEADLK,
                             "cannot acquire the lock: this thread holds it already; release it first");
}

/* ---- tickets and batons (lock_queue.c) ---- */

/* The seat is BUSY and ours, and was `seen` before: draw, or take up the ticket given up, and wait. */
int remo__lock_enter(struct remo_lock *lock, uint32_t index, struct remo__thread *thread, uint64_t seen,
                     uint64_t deadline_ns);
/* As enter, after a draw that returned `drawn`. */
int remo__lock_drawn(struct remo_lock *lock, uint32_t index, struct remo__thread *thread, uint64_t seen,
                     uint64_t drawn, uint64_t deadline_ns);
/* Take it if nobody holds or waits; leaves nothing behind if not. */
int remo__lock_try(struct remo_lock *lock, uint32_t index, struct remo__thread *thread);
/* Give a held lock back to its home; it has nothing to hand over to. `fence` is that of the release. */
int remo__lock_leave(struct remo_lock *lock, uint32_t index, struct remo__thread *thread,
                     enum remo_fence_scope fence);
/* The seat is BUSY, and the release of its ticket failed with `rc`. The home is about to end the ticket for
 * us, but after a pair fence only our own release is ordered behind our writes: first all of it must be over.
 * -EAGAIN: it is not; the seat is HELD again with `marks`. Otherwise `rc`. */
int remo__lock_release_failed(struct remo_lock *lock, uint32_t index, struct remo__thread *thread,
                              uint8_t marks, int rc);
/* -EAGAIN and its sentence: writes may be in flight, so the lock must not be handed over. */
int remo__lock_still_held(const struct remo_lock *lock, uint32_t index);
/* `ticket` has been served, and left `word` behind: grant the following ones until one is not given up. */
int remo__lock_pass_on(struct remo_lock *lock, uint32_t index, struct remo__thread *thread, uint32_t ticket,
                       uint64_t word, bool by_message);
/* End `ticket`, adding `change` to the word's flags (as they stand in the word); pass on. */
int remo__lock_end_ticket(struct remo_lock *lock, uint32_t index, struct remo__thread *thread,
                          uint32_t ticket, uint64_t change, bool by_message);
/* Serve `ticket`: grant its baton. 1: it was given up, and its baton has been set back. */
int remo__lock_grant(struct remo_lock *lock, uint32_t index, struct remo__thread *thread, uint32_t ticket,
                     uint32_t flags, bool by_message);
/* Bring a grant word to the node that waits. */
int remo__lock_tell(struct remo_lock *lock, uint32_t index, struct remo__thread *thread, uint32_t waiter,
                    uint64_t grant, bool by_message);
/* Atomics on the `word`-th word of the lock at its home: 0 the home word, 1 + place a baton. */
int remo__lock_add(struct remo_lock *lock, uint32_t index, struct remo__thread *thread, uint32_t word,
                   uint64_t addend, uint64_t *ret_old, struct remo_ack *ack);
int remo__lock_swap(struct remo_lock *lock, uint32_t index, struct remo__thread *thread, uint32_t word,
                    uint64_t expected, uint64_t desired, uint64_t *ret_old);
/* Leave the BUSY state after an operation that returned `rc`, without a ticket: FREE, or UNSETTLED while an
 * operation that timed out may still be applied. If the outcome is unknown, ask the home for a recount: now,
 * and when the node next draws a ticket that is not served at once. */
void remo__lock_end(struct remo_lock *lock, uint32_t index, int rc, uint16_t nonce, uint32_t ticket);
/* Make an UNSETTLED state FREE if the operation has ended. Any thread may call this. */
void remo__lock_reopen(struct remo_lock *lock, uint32_t index);

static inline uint32_t remo__lock_baton(const struct remo_lock *lock, uint32_t ticket) {
    return 1 + (ticket & (lock->places - 1));
}

/* ---- threads of one node (lock_threads.c) ---- */

int remo__lock_acquire_in_turn(struct remo_lock *lock, uint32_t index, struct remo__thread *thread,
                               uint64_t deadline_ns);
/* Give a held lock to the next thread of this node; false: there is none. */
bool remo__lock_hand_over(struct remo_lock *lock, uint32_t index);

/* ---- death (lock_recovery.c: the home; lock_report.c: everybody). All on the control thread. ---- */

enum remo__lock_message {
    REMO__LOCK_QUERY = 1, /* home to all: u32 round, the dead: which tickets of my locks have you? */
    REMO__LOCK_ANSWER,    /* back: u32 round, u8 last, u16 count, count x {u32 index, u32 ticket, u8 kind} */
    REMO__LOCK_GRANT,     /* home to a waiter whose granter died: u32 index, u64 grant word */
    REMO__LOCK_RECOUNT,   /* anybody to the home */
    REMO__LOCK_REPORT_ON, /* to oneself: go on with answers */
    REMO__LOCK_RECOVER_ON /* to oneself: u32 round: go on with recovery */
};

/* UNTOLD: not the answerer's own ticket, but one that it may have granted without telling who waits, since an
 * operation failed. */
enum { REMO__CLAIM_HOLD = 1, REMO__CLAIM_WAIT = 2, REMO__CLAIM_GIVEN_UP = 4, REMO__CLAIM_UNTOLD = 16 };

#define REMO__CLAIM_BYTES 9u

int remo__lock_recovery_open(struct remo_lock *lock);
void remo__lock_recovery_close(struct remo_lock *lock);
void remo__lock_recovery_start(struct remo_lock *lock);
void remo__lock_recovery_connected(struct remo_lock *lock, uint32_t node);
void remo__lock_recovery_message(struct remo_lock *lock, uint32_t from, const void *data, size_t bytes);
/* A grant by message could not be sent yet. */
void remo__lock_recovery_untold(struct remo_lock *lock);
/* Does the node know our addresses? Else it cannot have a ticket here. */
bool remo__lock_knows_us(const struct remo_lock *lock, uint32_t node);
/* Is the node gone for this channel, and cut off from our memory? */
bool remo__lock_gone(const struct remo_lock *lock, uint32_t node);

int remo__lock_report_open(struct remo_lock *lock);
void remo__lock_report_close(struct remo_lock *lock);
void remo__lock_report_on(struct remo_lock *lock);
void remo__lock_report_message(struct remo_lock *lock, uint32_t from, const void *data, size_t bytes);
