/* threads.c - queues the threads of one node that wait for the same lock, in private memory.
 * A release hands the lock over to the first of them without a network operation. A thread whose `granted` is
 * set has left the queue, and holds the lock. docs/internals/lock.md describes the protocol. */
#include "objects/lock/lock.h"

#define ROOM_PAUSE_NS REMO__NS_PER_MS /* between reads of a home word without room */

/* On the stack of the waiting thread. Other threads write `first` and `granted`, with the stripe's mutex. */
struct remo__lock_waiter {
    struct remo__lock_waiter *next;
    uint32_t index;
    uint32_t holder;
    _Atomic bool first;   /* of its lock: makes the state BUSY when it is open */
    _Atomic bool granted; /* the lock has been handed over to it */
};

static struct remo__lock_waiter **find_first(struct remo__lock_stripe *stripe, uint32_t index) {
    struct remo__lock_waiter **link = &stripe->first;
    while (*link && (*link)->index != index)
        link = &(*link)->next;
    return link;
}

static void append(struct remo_lock *lock, struct remo__lock_waiter *waiter) {
    struct remo__lock_stripe *stripe = remo__lock_stripe(lock, waiter->index);
    pthread_mutex_lock(&stripe->mutex);
    atomic_store(&waiter->first, *find_first(stripe, waiter->index) == NULL);
    *stripe->last = waiter;
    stripe->last = &waiter->next;
    /* pairs with the load in remo__lock_store_state; fence_before_sleep has the fence for both */
    atomic_fetch_add(&lock->locals[waiter->index].waiters, 1);
    pthread_mutex_unlock(&stripe->mutex);
}

/* Remove a waiter from the queue; the mutex is held. */
static void detach(struct remo_lock *lock, struct remo__lock_stripe *stripe,
                   struct remo__lock_waiter *waiter) {
    struct remo__lock_waiter **link = &stripe->first;
    while (*link != waiter)
        link = &(*link)->next;
    *link = waiter->next;
    if (!*link)
        stripe->last = link;
    struct remo__lock_waiter *next = *find_first(stripe, waiter->index);
    if (next)
        atomic_store(&next->first, true);
    atomic_fetch_sub(&lock->locals[waiter->index].waiters, 1);
}

/* Leave the queue. Returns false if the lock was handed over to the waiter first. */
static bool leave_queue(struct remo_lock *lock, struct remo__lock_waiter *waiter) {
    struct remo__lock_stripe *stripe = remo__lock_stripe(lock, waiter->index);
    pthread_mutex_lock(&stripe->mutex);
    bool waits = !atomic_load(&waiter->granted);
    if (waits)
        detach(lock, stripe, waiter);
    pthread_mutex_unlock(&stripe->mutex);
    if (waits && remo__lock_threads_wait(&lock->locals[waiter->index]))
        remo__wake(lock->node); /* another thread is the first now */
    return waits;
}

struct wait {
    struct remo_lock *lock;
    struct remo__lock_local *local;
    struct remo__lock_waiter waiter;
    bool has_fenced;
    bool is_polling;
};

/* Pairs with the store and the load in remo__lock_store_state, which have no fence. After this either that
 * load returns this thread's increment of `waiters`, or this thread reads that store. Only a thread that is
 * about to sleep needs it. Returns false if the kernel has no such system call: then the wait must poll. */
static bool fence_before_sleep(struct wait *wait) {
#ifndef REMO_SIM
    if (remo__wait_is_last_check() && !wait->has_fenced)
        wait->has_fenced = remo__threads_fence();
    return wait->has_fenced || !remo__wait_is_last_check();
#else
    (void)wait;
    return true;
#endif
}

/* A wait condition: 1 if the lock was handed over, or if the waiter is the first and the state is open.
 * -EAGAIN: the wait must poll. No notification follows the operation whose end an UNSETTLED state awaits. */
static int is_turn(void *ctx) {
    struct wait *wait = ctx;
    bool may_sleep = fence_before_sleep(wait);
    if (atomic_load_explicit(&wait->waiter.granted, memory_order_acquire))
        return 1;
    if (atomic_load_explicit(&wait->waiter.first, memory_order_relaxed)) {
        remo__lock_reopen(wait->lock, wait->waiter.index);
        uint64_t state = atomic_load_explicit(&wait->local->state, memory_order_relaxed);
        if (remo__state_is_open(state))
            return 1;
        may_sleep = may_sleep && remo__state_kind(state) != REMO__LOCK_UNSETTLED;
    }
    int rc = remo__channel_check_peer(wait->lock->channel, wait->local->home);
    return rc == 0 && !may_sleep && !wait->is_polling ? -EAGAIN : rc;
}

static int await_turn(struct wait *wait, uint64_t deadline_ns) {
    wait->has_fenced = wait->is_polling = false;
    int rc = remo__wait(wait->lock->node, is_turn, wait, deadline_ns);
    if (rc != -EAGAIN)
        return rc;
    wait->is_polling = true;
    return remo__wait_polling(wait->lock->node, is_turn, wait, deadline_ns);
}

/* A wait condition: the lock was handed over. */
static int is_granted(void *ctx) {
    const struct wait *wait = ctx;
    return atomic_load_explicit(&wait->waiter.granted, memory_order_acquire)
               ? 1
               : remo__channel_check_peer(wait->lock->channel, wait->local->home);
}

/* Return 1 if this node may draw a ticket; the state stays BUSY. If the wait queue at the home has no room
 * for a guarded draw, pause and return 0. Return an error if it ends the acquire. */
static int wait_for_room(struct wait *wait, struct remo__thread *thread, uint64_t previous,
                         uint64_t deadline_ns) {
    if (remo__state_kind(previous) != REMO__LOCK_GUARDED)
        return 1;
    (void)remo__lock_remind(wait->lock, wait->waiter.index);
    int rc = remo__lock_guard(wait->lock, wait->waiter.index, thread, previous);
    if (rc != 0)
        return rc;
    uint64_t pause_end_ns = remo__deadline(ROOM_PAUSE_NS);
    rc = remo__wait(wait->lock->node, is_granted, wait, remo__min(deadline_ns, pause_end_ns));
    return rc == -ETIMEDOUT && pause_end_ns < deadline_ns ? 0 : rc;
}

int remo__lock_acquire_in_turn(struct remo_lock *lock, uint32_t index, struct remo__thread *thread,
                               uint64_t deadline_ns) {
    struct remo__lock_local *local = &lock->locals[index];
    if (remo__lock_is_held_by(local, thread))
        return remo__lock_fail_deadlock();
    struct wait wait = {.lock = lock, .local = local, .waiter = {.index = index, .holder = thread->holder}};
    append(lock, &wait.waiter);
    for (;;) {
        int rc = await_turn(&wait, deadline_ns);
        if (rc != 0)
            return leave_queue(lock, &wait.waiter) ? rc : 0;
        if (atomic_load_explicit(&wait.waiter.granted, memory_order_acquire))
            return 0;
        uint64_t previous;
        if (!remo__lock_make_busy(lock, local, &previous))
            continue; /* another thread acquired the lock before this one had queued */
        rc = wait_for_room(&wait, thread, previous, deadline_ns);
        if (rc == 0)
            continue;
        if (rc < 0)
            return leave_queue(lock, &wait.waiter) ? rc : 0;
        (void)leave_queue(lock, &wait.waiter);
        return remo__lock_join_queue(lock, index, thread, previous, deadline_ns);
    }
}

bool remo__lock_hand_over(struct remo_lock *lock, uint32_t index) {
    struct remo__lock_local *local = &lock->locals[index];
    struct remo__lock_stripe *stripe = remo__lock_stripe(lock, index);
    if (local->handovers >= REMO_LOCK_HANDOVERS_MAX)
        return false;
    pthread_mutex_lock(&stripe->mutex);
    struct remo__lock_waiter *next = *find_first(stripe, index);
    if (next) {
        detach(lock, stripe, next);
        local->handovers++;
        atomic_store_explicit(&local->owner, next->holder, memory_order_relaxed);
        atomic_store_explicit(&next->granted, true, memory_order_release); /* the waiter may end now */
    }
    pthread_mutex_unlock(&stripe->mutex);
    if (next)
        remo__wake(lock->node);
    return next != NULL;
}
