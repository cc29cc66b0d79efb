/* thread.c - the target thread: executes requests of peers, and sleeps while there are none.
 *
 * libfabric's automatic progress takes 23 us for an 8-byte read (tcp;ofi_rxm 1.17, two cores), because its
 * thread sleeps after every message. This thread takes 8 us, because it polls for a while after each wake-up:
 * twice as long as the last time if the sleep was short, else half as long. */
#include <poll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/helper.h"
#include "fabric/ofi/ofi.h"

#define AWAKE_NS_MIN (20 * REMO__NS_PER_US)
#define AWAKE_NS_MAX REMO__NS_PER_MS
#define SOON_NS (100 * REMO__NS_PER_US) /* a shorter sleep began too early */
#define ROUNDS_PER_CHECK 64u            /* some 50 us */
#define CROWDED_SLEEPS 16u
#define SLEEP_MS_MAX 5000                /* bounds the delay if a wake-up were lost; none is known to be */
#define SLEEP_MS_UNTRUSTED 1             /* the provider has no reliable descriptor */
#define WATCH_DOUBLINGS_MAX 2u           /* 4 ms between checks of endpoints */
#define IDLE_CHECKS_MAX 16u              /* consecutive checks without need for help, before checks stop */
#define SLICE_NS (100 * REMO__NS_PER_US) /* the shortest time slice that the kernel grants */
#define TAKEN_OFTEN 4u /* calls of take_arrivals that have executed a request, during one lease */
#define HELP_INTERVAL_NS (2 * REMO__NS_PER_MS) /* during leases */

static bool serve_once(struct ofi_fabric *ofi) {
    struct ofi_target *target = &ofi->target;
    bool has_events;
    pthread_mutex_lock(&target->lock);
    bool busy = remo__ofi_target_serve(ofi, REMO__OFI_AT_ONCE, &has_events);
    pthread_mutex_unlock(&target->lock);
    return busy;
}

/* Help endpoints whose threads do not drive them. They notify this thread once. From then on it checks, first
 * after a millisecond and then less often, until no endpoint has needed help for a while. A thread that waits
 * for a connection always has queued operations, and drives them itself. With many nodes on one machine,
 * checks every millisecond took a large part of the processors. */
static void help(struct ofi_fabric *ofi) {
    struct ofi_target *target = &ofi->target;
    if (!atomic_load(&target->is_watching)) {
        target->watch_doublings = 0;
        return;
    }
    if (target->watch_doublings < WATCH_DOUBLINGS_MAX)
        target->watch_doublings++;
    if (remo__ofi_endpoints_help(ofi)) {
        target->idle_checks = 0;
    } else if (++target->idle_checks >= IDLE_CHECKS_MAX) {
        target->idle_checks = 0;
        atomic_exchange(&target->is_watching, false);
        if (remo__ofi_endpoints_help(ofi)) /* a thread may have read `is_watching` before and not notified */
            atomic_store(&target->is_watching, true);
    }
}

static int sleep_ms(struct ofi_target *target) {
    bool trusted = target->port.fd >= 0 && target->port.net->stream;
    if (target->stalled || !trusted)
        return SLEEP_MS_UNTRUSTED;
    return atomic_load(&target->is_watching) ? SLEEP_MS_UNTRUSTED << target->watch_doublings : SLEEP_MS_MAX;
}

/* Sleep until a message arrives. Returns the time slept; 0 if there is work already. */
static uint64_t sleep_idle(struct ofi_fabric *ofi) {
    struct ofi_target *target = &ofi->target;
    help(ofi);
    pthread_mutex_lock(&target->lock);
    bool may = remo__ofi_target_may_sleep(ofi);
    int timeout_ms = sleep_ms(target);
    pthread_mutex_unlock(&target->lock);
    if (!may)
        return 0;
    struct pollfd fds[2] = {{.fd = target->wake_fd, .events = POLLIN},
                            {.fd = target->port.fd, .events = POLLIN}};
    uint64_t start = remo__now_ns();
    poll(fds, target->port.fd >= 0 ? 2 : 1, timeout_ms);
    uint64_t count;
    if ((fds[0].revents & POLLIN) && read(target->wake_fd, &count, sizeof count) < 0)
        return 0;
    return remo__now_ns() - start;
}

/* Sleep for a lease of `lease_ns`. Neither a message nor a wake-up ends this sleep; rest() calls help() for
 * the endpoints that have requested it. */
static void sleep_lease(struct ofi_target *target, uint64_t lease_ns) {
    struct pollfd woken = {.fd = target->wake_fd, .events = POLLIN};
    uint64_t now = remo__now_ns(), until = now + lease_ns, count;
    for (; now < until; now = remo__now_ns()) {
        struct timespec left = {.tv_nsec = (long)(until - now)};
        if (ppoll(&woken, 1, &left, NULL) > 0 && read(target->wake_fd, &count, sizeof count) < 0)
            return;
    }
}

/* The end of a lease costs the polling thread 5 to 10 us: two switches, on the same processor, and a timer.
 * A thread that waits sleeps after a while, and then requests wait for the end of the lease. So leases become
 * longer only if a thread polls, or if waiting threads have just executed requests often. `taken`: how often,
 * during the last lease. */
static uint64_t next_lease_ns(struct ofi_fabric *ofi, uint64_t lease_ns, uint64_t taken) {
    bool is_polled = atomic_exchange(&ofi->base.arrivals_polled, false);
    bool is_awaited = taken >= TAKEN_OFTEN && atomic_load(&ofi->base.waiting_threads) > 0;
    return is_polled || is_awaited ? remo__min(2 * lease_ns, REMO__OFI_LEASE_NS_MAX) : REMO__OFI_LEASE_NS;
}

/* Rest while waiting threads execute requests. */
static void rest(struct ofi_fabric *ofi) {
    uint64_t seen = atomic_load(&ofi->base.arrivals_taken), lease_ns = REMO__OFI_LEASE_NS, slept_ns = 0;
    do {
        sleep_lease(&ofi->target, lease_ns);
        slept_ns += lease_ns;
        if (slept_ns >= HELP_INTERVAL_NS) {
            help(ofi);
            slept_ns = 0;
        }
        lease_ns = next_lease_ns(ofi, lease_ns, atomic_load(&ofi->base.arrivals_taken) - seen);
    } while (remo__ofi_arrivals_renew(ofi, &seen) && !atomic_load(&ofi->target.stop));
}

/* The number of involuntary context switches of this thread. */
static long preemption_count(void) {
    struct rusage usage;
    return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nivcsw : 0;
}

/* Poll for `awake_ns`, or until this thread is preempted, or until it leaves requests to waiting threads.
 * Returns false if it was preempted. */
static bool poll_requests(struct ofi_fabric *ofi, uint64_t awake_ns) {
    bool was_busy = false;
    long before = preemption_count();
    uint64_t until = remo__now_ns() + awake_ns;
    for (uint32_t rounds = 1; !atomic_load_explicit(&ofi->target.stop, memory_order_relaxed); rounds++) {
        if (atomic_load_explicit(&ofi->base.leaves_arrivals, memory_order_relaxed))
            return true;
        if (serve_once(ofi))
            was_busy = true;
        if (was_busy)
            remo__ofi_arrivals_leave(ofi);
        if (rounds % ROUNDS_PER_CHECK == 0 && preemption_count() != before)
            return false;
        if (remo__now_ns() >= until)
            break;
    }
    return preemption_count() == before;
}

/* Request short time slices, which let this thread interrupt a program that computes on the same processor.
 * Needs Linux 6.12; otherwise, or if the request is refused, nothing changes. Measured: 2.9 ms for an answer
 * without. The call also sets the nice value, to that of the process: otherwise a program of higher priority
 * would starve its own target thread. */
static void request_short_slices(void) {
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime_ns, deadline_ns, period_ns;
    } attributes = {.size = sizeof attributes, .nice = getpriority(PRIO_PROCESS, 0), .runtime_ns = SLICE_NS};
    syscall(SYS_sched_setattr, 0, &attributes, 0);
}

static void *target_run(void *arg) {
    struct ofi_fabric *ofi = arg;
    request_short_slices();
    uint64_t awake_ns = AWAKE_NS_MIN;
    uint32_t crowded = 0; /* iterations without polling left, because other threads need the processor */
    while (!atomic_load(&ofi->target.stop)) {
        if (!poll_requests(ofi, crowded > 0 ? 0 : awake_ns))
            crowded = CROWDED_SLEEPS;
        else if (crowded > 0)
            crowded--;
        if (atomic_load(&ofi->base.leaves_arrivals))
            rest(ofi);
        uint64_t slept_ns = sleep_idle(ofi);
        if (slept_ns < SOON_NS)
            awake_ns = remo__min(awake_ns * 2, AWAKE_NS_MAX);
        else
            awake_ns = remo__max(awake_ns / 2, AWAKE_NS_MIN);
    }
    return NULL;
}

int remo__ofi_target_start(struct ofi_fabric *ofi) {
    struct ofi_target *target = &ofi->target;
    int rc = remo__helper_start(&target->thread, "remo-target", target_run, ofi);
    target->started = rc == 0;
    return rc;
}
