/* sweep.c - sweeps: the service thread drives operations whose threads do not poll.
 *
 * A write without an ack is in flight when the call returns, and its thread may then compute or sleep. The
 * writing thread wakes the service thread once. The sweeps end when more than QUIET_SWEEPS_MAX in succession
 * have found no such operation. So a thread that posts often causes no further wake-ups. */
#include "remote/scheduler.h"
#include "remote/slots.h"

#define QUIET_SWEEPS_MAX 16u

void remo__request_sweeps(struct remo_node *node) {
    /* Orders the store of in_flight before the load of is_sweeping; pairs with remo__slots_sweep. */
    atomic_thread_fence(memory_order_seq_cst);
    if (!atomic_load_explicit(&node->threads->is_sweeping, memory_order_relaxed)
        && !atomic_exchange(&node->threads->is_sweeping, true))
        node->fabric->ops->imm_wake(node->fabric);
}

/* Operations may stay deferred, because the queue is full or another thread holds the lock. Later polls of
 * this thread post them. If the thread does not poll, only sweeps do, so every fabric needs sweeps here. */
void remo__slots_uncork(struct remo__thread *thread) {
    struct remo__slots *slots = thread->slots;
    remo__slots_set(&slots->cork_depth, slots->cork_depth - 1);
    if (slots->cork_depth > 0)
        return;
    if (!remo__scheduler_of(thread->node)) /* else when no task is ready */
        remo__slots_post_deferred(thread);
    if (remo__slots_get(&slots->deferred_count) > 0)
        remo__request_sweeps(thread->node);
}

/* Drive the operations of threads that have not polled since the last sweep, or have some that are deferred.
 * Returns their number. */
static uint32_t sweep_once(struct remo_node *node, bool *ret_completed) {
    uint32_t count = atomic_load(&node->threads->count), found = 0, left = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct remo__slots *slots = node->threads->of[i]->slots;
        uint32_t polls = atomic_load_explicit(&slots->polls, memory_order_relaxed);
        uint32_t in_flight = remo__slots_get(&slots->in_flight);
        /* a task may poll again and again, and not wait: its operations stay deferred */
        if (in_flight > 0 && (polls == slots->polls_swept || remo__slots_get(&slots->deferred_count) > 0)) {
            found += in_flight;
            left += remo__slots_progress(node->threads->of[i]);
            polls = atomic_load_explicit(&slots->polls, memory_order_relaxed);
        }
        slots->polls_swept = polls;
    }
    *ret_completed = left < found;
    if (left < found)
        remo__wake(node); /* a thread may sleep because it has read these operations as in flight */
    return found;
}

/* Return whether a further sweep is necessary. This thread must not wait for the lock. If another thread has
 * it, a later sweep calls the observers. */
static bool call_observers(struct remo__threads *threads) {
    if (pthread_mutex_trylock(&threads->observers_lock) != 0)
        return true;
    bool more = false;
    for (struct remo__thread_observer *at = threads->observers; at; at = at->next)
        if (at->swept && at->swept(at))
            more = true;
    pthread_mutex_unlock(&threads->observers_lock);
    return more;
}

static bool any_in_flight(const struct remo__threads *threads) {
    uint32_t count = atomic_load(&threads->count);
    for (uint32_t i = 0; i < count; i++)
        if (remo__slots_get(&threads->of[i]->slots->in_flight) > 0)
            return true;
    return false;
}

bool remo__slots_sweep(struct remo_node *node, uint32_t *quiet, bool *ret_completed) {
    *quiet = sweep_once(node, ret_completed) > 0 ? 0 : *quiet + 1;
    (void)call_observers(node->threads);
    if (*quiet <= QUIET_SWEEPS_MAX)
        return true;
    atomic_store(&node->threads->is_sweeping, false);
    atomic_thread_fence(memory_order_seq_cst);
    /* A thread may have ended its operations since the observers were called, or may have requested sweeps
     * before the store. So the observers are called again, after the fence. */
    bool more = any_in_flight(node->threads);
    if (call_observers(node->threads))
        more = true;
    if (more)
        atomic_store(&node->threads->is_sweeping, true);
    *quiet = 0;
    return atomic_load(&node->threads->is_sweeping);
}
