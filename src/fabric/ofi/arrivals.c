/* arrivals.c - threads that wait execute requests of peers, and the target thread rests meanwhile.
 *
 * Invariant: while `leaves_arrivals` is set, the target thread is awake, in a lease, or about to be woken. It
 * executes requests again after a lease in which no waiting thread has executed one. docs/internals/ofi.md
 * ("Threads that execute requests") has the states, and the longest delay of a request. */
#include "base/clock.h"
#include "fabric/ofi/ofi.h"

/* The target thread does not rest for this time after a delayed request: the first iteration of a wait has
 * executed it, and no thread had called take_arrivals for longer than a lease. So delayed requests are rare
 * even if the program computes between its waits. */
#define KEEP_NS (5 * REMO__NS_PER_MS)

static bool is_kept(struct ofi_fabric *ofi, uint64_t now) {
    return now < atomic_load_explicit(&ofi->target.keeps_until_ns, memory_order_relaxed);
}

void remo__ofi_arrivals_leave(struct ofi_fabric *ofi) {
    uint64_t now = remo__now_ns();
    if (atomic_load(&ofi->base.waiting_threads) == 0 || is_kept(ofi, now))
        return;
    atomic_store(&ofi->target.taken_ns, now);
    atomic_store(&ofi->base.leaves_arrivals, true);
}

bool remo__ofi_arrivals_renew(struct ofi_fabric *ofi, uint64_t *seen) {
    uint64_t before = *seen;
    *seen = atomic_load(&ofi->base.arrivals_taken);
    if (*seen == before)
        atomic_store(&ofi->base.leaves_arrivals, false);
    return atomic_load(&ofi->base.leaves_arrivals);
}

/* The target thread may sleep until bytes arrive. This thread has read bytes, perhaps of more requests than
 * it has executed. So it wakes the target thread, which executes the others if no thread does so during a
 * lease. */
static void begin_lease(struct ofi_fabric *ofi, uint64_t now) {
    if (!is_kept(ofi, now))
        atomic_store(&ofi->base.leaves_arrivals, true);
    remo__ofi_target_wake(&ofi->target);
}

/* This thread has executed requests. `since_ns`: for so long no thread had called take_arrivals, and the
 * requests may have waited; 0: this was not the first iteration of a wait in a lease. */
static void count_taken(struct ofi_fabric *ofi, uint64_t now, uint64_t since_ns) {
    atomic_fetch_add(&ofi->base.arrivals_taken, 1);
    if (since_ns <= REMO__OFI_LEASE_NS)
        return;
    atomic_store(&ofi->target.keeps_until_ns, now + KEEP_NS);
    atomic_store(&ofi->base.leaves_arrivals, false);
}

void remo__ofi_take_arrivals(struct remo__fabric *fabric, bool is_first) {
    struct ofi_fabric *ofi = ofi_of(fabric);
    struct ofi_target *target = &ofi->target;
    if (atomic_load(&fabric->is_leaving))
        pthread_mutex_lock(&target->lock); /* what another thread withholds must be sent */
    else if (pthread_mutex_trylock(&target->lock) != 0)
        return;
    uint64_t now = remo__now_ns();
    uint64_t taken_ns = atomic_exchange(&target->taken_ns, now);
    uint64_t since_ns = now > taken_ns ? now - taken_ns : 0; /* a lease may have begun since `now` */
    bool is_left = atomic_load(&fabric->leaves_arrivals), has_events;
    bool withholds = !atomic_load(&fabric->is_leaving);
    bool has_executed = remo__ofi_target_serve(ofi, withholds ? now : REMO__OFI_AT_ONCE, &has_events);
    if (!is_left && (has_executed || has_events || target->stalled))
        begin_lease(ofi, now);
    if (has_executed)
        count_taken(ofi, now, is_left && is_first ? since_ns : 0);
    pthread_mutex_unlock(&target->lock);
}
