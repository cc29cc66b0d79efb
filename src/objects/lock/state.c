/* state.c - the changes of a local state that threads of a node make concurrently, and a report that waits.
 * A state that is given to the report was exact at some time after the wait began. docs/internals/lock.md,
 * "Reports", has the proof. */
#include "objects/lock/lock.h"

/* Other threads may run between the steps of a thread that finds a waiting report. */
static void switch_in_simulator(void) {
#ifdef REMO_SIM
    remo__sim_turn("report");
#endif
}

static struct remo__lock_report *report_of(const struct remo_lock *lock,
                                           const struct remo__lock_local *local) {
    return &lock->reports[(uint32_t)(local - lock->locals) % lock->home_count];
}

int remo__lock_report_send_continue(struct remo_lock *lock) {
    const uint8_t message[] = {REMO__LOCK_REPORT_CONTINUE};
    return remo_channel_send(lock->channel, lock->rank, message, sizeof message);
}

/* Return `found` if the report waits for the state of this lock, otherwise 0. The flag in `waiters` may have
 * been read earlier; the report may wait for another lock by now. */
static uint64_t read_wait(const struct remo_lock *lock, const struct remo__lock_local *local) {
    struct remo__lock_report *report = report_of(lock, local);
    atomic_thread_fence(memory_order_acquire); /* callers read the flag relaxed; `found` is at least as new */
    switch_in_simulator();
    uint64_t wait = atomic_load(&report->found);
    bool waits = (wait & REMO__FOUND) == 0 && atomic_load(&report->next) == (uint32_t)(local - lock->locals);
    return waits ? wait : 0;
}

/* Each wait has its own number, so a state that was found for an earlier wait is not mistaken for one of this
 * wait. If the message cannot be sent, the report continues when the home repeats its query. */
void remo__lock_report_give(struct remo_lock *lock, const struct remo__lock_local *local, uint64_t wait,
                            uint64_t state) {
    switch_in_simulator();
    bool given =
        atomic_compare_exchange_strong(&report_of(lock, local)->found, &wait, remo__found_of(wait, state));
    if (given)
        (void)remo__lock_report_send_continue(lock);
}

/* The state is read after `found`, so it was exact during the wait. If it is BUSY, another thread has changed
 * it since, and calls this function when it ends BUSY. */
void remo__lock_report_resume(struct remo_lock *lock, const struct remo__lock_local *local) {
    uint64_t wait = read_wait(lock, local);
    uint64_t state = atomic_load(&local->state);
    if (wait == 0)
        return;
    if (remo__state_kind(state) == REMO__LOCK_UNSETTLED)
        remo__request_sweeps(lock->node);
    if (remo__state_is_exact(state))
        remo__lock_report_give(lock, local, wait, state);
}

void remo__lock_notify_waiters(struct remo_lock *lock, const struct remo__lock_local *local,
                               uint32_t waiters) {
    if (waiters & REMO__LOCK_REPORT_WAITS)
        remo__lock_report_resume(lock, local);
    if (waiters != REMO__LOCK_REPORT_WAITS)
        remo__wake(lock->node);
}

/* No two UNSETTLED words are equal, because each has its own nonce. So if the state has become UNSETTLED
 * again since it was read, because of a later operation, the compare-and-swap fails. A thread that waits
 * while the state is UNSETTLED polls it (lock/threads.c), so it needs no notification. */
void remo__lock_reopen(struct remo_lock *lock, uint32_t index) {
    struct remo__lock_local *local = &lock->locals[index];
    uint64_t state = atomic_load(&local->state);
    if (remo__state_kind(state) != REMO__LOCK_UNSETTLED || remo__op_abandoned(lock->node, local->home))
        return;
    uint64_t open = remo__state_word(REMO__LOCK_GUARDED, remo__state_nonce(state), (uint32_t)state);
    if (!atomic_compare_exchange_strong(&local->state, &state, open))
        return;
    if (atomic_load(&local->waiters) & REMO__LOCK_REPORT_WAITS)
        remo__lock_report_resume(lock, local);
}

/* If a report waits, it gets the state before the change, which was exact at the change. So a state that is
 * BUSY most of the time delays no report. */
bool remo__lock_make_busy(struct remo_lock *lock, struct remo__lock_local *local, uint64_t *ret_previous) {
    uint64_t wait = 0;
    if (atomic_load(&local->waiters) & REMO__LOCK_REPORT_WAITS)
        wait = read_wait(lock, local);
    uint64_t previous = atomic_load_explicit(&local->state, memory_order_relaxed);
    if (!remo__state_is_open(previous)
        || !atomic_compare_exchange_strong(&local->state, &previous, remo__state_busy(previous)))
        return false;
    if (wait != 0)
        remo__lock_report_give(lock, local, wait, previous);
    *ret_previous = previous;
    return true;
}
