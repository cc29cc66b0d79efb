/* lock_threads.c - threads of one node that want the same lock: they queue in private memory, in order, and
 * hand it over among themselves. */
#include "base/mutant.h"
#include "objects/lock.h"

/* Lives on the stack of the thread that waits. `first` and `granted` are written by others, under the
 * stripe's mutex; a thread that sees `granted` is out of the list already. */
struct remo__lock_waiter {
    struct remo__lock_waiter *next;
    uint32_t index;
    uint32_t thread;
    _Atomic bool first;   /* of its lock: takes the seat when it is open */
    _Atomic bool granted; /* the lock has been handed over to it */
};

static struct remo__lock_waiter **find(struct remo__lock_stripe *stripe, uint32_t index) {
    struct remo__lock_waiter **link = &stripe->first;
    while (*link && (*link)->index != index)
        link = &(*link)->next;
    return link;
}

static void append(struct remo_lock *lock, struct remo__lock_waiter *waiter) {
    struct remo__lock_stripe *stripe = remo__lock_stripe(lock, waiter->index);
    pthread_mutex_lock(&stripe->mutex);
    atomic_store(&waiter->first, *find(stripe, waiter->index) == NULL);
    *stripe->last = waiter;
    stripe->last = &waiter->next;
    atomic_fetch_add(&lock->seats[waiter->index].queued, 1); /* pairs with the look in remo__lock_settle */
    pthread_mutex_unlock(&stripe->mutex);
}

/* The mutex is held. */
static void detach(struct remo_lock *lock, struct remo__lock_stripe *stripe,
                   struct remo__lock_waiter *waiter) {
    struct remo__lock_waiter **link = &stripe->first;
    while (*link != waiter)
        link = &(*link)->next;
    *link = waiter->next;
    if (!*link)
        stripe->last = link;
    struct remo__lock_waiter *next = *find(stripe, waiter->index);
    if (next)
        atomic_store(&next->first, true);
    atomic_fetch_sub(&lock->seats[waiter->index].queued, 1);
}

/* False: it has been handed the lock instead. */
static bool leave(struct remo_lock *lock, struct remo__lock_waiter *waiter) {
    struct remo__lock_stripe *stripe = remo__lock_stripe(lock, waiter->index);
    pthread_mutex_lock(&stripe->mutex);
    bool waits = !atomic_load(&waiter->granted);
    if (waits)
        detach(lock, stripe, waiter);
    pthread_mutex_unlock(&stripe->mutex);
    if (waits && atomic_load(&lock->seats[waiter->index].queued) != 0)
        remo__wake(lock->node); /* another one is the first now */
    return waits;
}

struct turn {
    struct remo_lock *lock;
    struct remo__lock_seat *seat;
    struct remo__lock_waiter waiter;
};

/* 1: granted, or first in line at an open seat. */
static int my_turn(void *ctx) {
    const struct turn *turn = ctx;
    if (atomic_load_explicit(&turn->waiter.granted, memory_order_acquire))
        return 1;
    if (atomic_load_explicit(&turn->waiter.first, memory_order_relaxed)) {
        remo__lock_reopen(turn->lock, turn->waiter.index);
        if (remo__place_open(atomic_load_explicit(&turn->seat->place, memory_order_relaxed)))
            return 1;
    }
    return remo__channel_check_peer(turn->lock->channel, turn->seat->home);
}

int remo__lock_acquire_in_turn(struct remo_lock *lock, uint32_t index, struct remo__thread *thread,
                               uint64_t deadline_ns) {
    struct remo__lock_seat *seat = &lock->seats[index];
    if (remo__lock_is_held_by(seat, thread))
        return remo__lock_fail_deadlock();
    struct turn turn = {.lock = lock, .seat = seat, .waiter = {.index = index, .thread = thread->index}};
    append(lock, &turn.waiter);
    for (;;) {
        int rc = remo__wait(lock->node, my_turn, &turn, deadline_ns);
        if (rc != 0)
            return leave(lock, &turn.waiter) ? rc : 0;
        if (atomic_load_explicit(&turn.waiter.granted, memory_order_acquire))
            return 0;
        uint64_t seen = atomic_load_explicit(&seat->place, memory_order_relaxed);
        if (!remo__place_open(seen)
            || !atomic_compare_exchange_strong(&seat->place, &seen, remo__place_busy(seen)))
            continue; /* a thread that came without seeing us was faster */
        (void)leave(lock, &turn.waiter);
        return remo__lock_enter(lock, index, thread, seen, deadline_ns);
    }
}

bool remo__lock_hand_over(struct remo_lock *lock, uint32_t index) {
    struct remo__lock_seat *seat = &lock->seats[index];
    struct remo__lock_stripe *stripe = remo__lock_stripe(lock, index);
    if (seat->handovers >= REMO_LOCK_HANDOVERS_MAX && !REMO__MUTANT(lock_handovers))
        return false;
    pthread_mutex_lock(&stripe->mutex);
    struct remo__lock_waiter *next = *find(stripe, index);
    if (next) {
        detach(lock, stripe, next);
        seat->handovers++;
        atomic_store_explicit(&seat->owner, next->thread, memory_order_relaxed);
        atomic_store_explicit(&next->granted, true, memory_order_release); /* from here on it may be gone */
    }
    pthread_mutex_unlock(&stripe->mutex);
    if (next)
        remo__wake(lock->node);
    return next != NULL;
}
