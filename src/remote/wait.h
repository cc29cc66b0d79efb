/* wait.h - the only way to wait: spin, then yield, then sleep, until a condition holds.
 *
 * Condition: `ready` returns 1 if the condition holds, 0 to continue, or a negative code, which ends the
 *            wait. A change of what it reads must notify the node's doorbell (peers: REMO_WRITE_NOTIFY; this
 *            node: remo__wake). For any other condition call remo__wait_polling. The condition checks itself
 *            that the peers on which it depends are up. It is called often, and must not block. If it
 *            depends on a completion, it polls.
 * Progress:  a wait drives the thread's own operations in flight. While it is awake, it also executes
 *            operations of peers, if the fabric leaves them to threads that wait. A sleep ends after
 *            REMO__SLEEP_NS_MAX at most, and the condition is checked again. No wait relies on that: in the
 *            simulator a sleep ends only by a notification, a completion or its deadline.
 * Tasks:     a wait by a task, or by a thread that has tasks, parks the task. Another task then checks the
 *            condition. Waits inside a condition do not park: they block the thread.
 * Errors:    -ETIMEDOUT (never with REMO_FOREVER), and those of `ready`. */
#pragma once

#include "fabric/mapped.h"
#include "remote/scheduler.h"

#define REMO__SLEEP_NS_MAX (10 * REMO__NS_PER_S)
#define REMO__POLL_NS_MAX (20 * REMO__NS_PER_MS)
#define REMO__SWITCHES_PER_CHECK 32u /* between two checks of parked tasks, while tasks are ready */

#ifdef REMO_SIM
/* One iteration of a wait is one step of a schedule. Begin to check the condition. */
void remo__sim_check_begin(const struct remo_node *node);
/* End the check. If the condition ends the wait after a sleep that no notification has ended, the schedule
 * fails. */
void remo__sim_check_end(bool ends_wait);
/* Pause until a change that the node can observe, or sleep until a notification. `checks`: earlier pauses of
 * this wait. `is_polling`: never sleep. */
void remo__sim_pause(const struct remo_node *node, uint32_t checks, bool is_polling, uint64_t deadline_ns);
/* See remo__retry_begin and remo__retry_end. */
void remo__sim_retry_begin(void);
void remo__sim_retry_end(bool has_succeeded);
#endif

/* Wait until `ready(ctx)` returns a value other than 0. Returns 0 or an error (above). Threads: any. */
int remo__wait(struct remo_node *node, int (*ready)(void *ctx), void *ctx, uint64_t deadline_ns);
/* Wait as remo__wait does, for a condition that can change without a notification: an attempt that may be
 * refused, operations of other threads, a time. It is checked again after REMO__POLL_NS_MAX at most. */
int remo__wait_polling(struct remo_node *node, int (*ready)(void *ctx), void *ctx, uint64_t deadline_ns);

/* Begin a retry: repeat an attempt after a wait that has timed out, in case a notification was lost. Call
 * this only if each change that lets the attempt succeed notifies this thread. No effect in normal builds. */
static inline void remo__retry_begin(void) {
#ifdef REMO_SIM
    remo__sim_retry_begin();
#endif
}
/* End the retry, if one has begun. In the simulator the schedule fails if the attempt succeeded although no
 * change of another thread was about to notify. */
static inline void remo__retry_end(bool has_succeeded) {
#ifdef REMO_SIM
    remo__sim_retry_end(has_succeeded);
#else
    (void)has_succeeded;
#endif
}

/* Repeat an attempt that may itself wait or use the network, until it returns a value other than 0. It runs
 * as often as the condition of remo__wait_polling. Returns and errors as above. */
int remo__wait_attempt(struct remo_node *node, int (*attempt)(void *ctx), void *ctx, uint64_t deadline_ns);

/* Execute remo__relax `count` times, before a probe of memory that a peer is changing now. Returns at once if
 * peers may need this processor, or tasks may be ready. */
void remo__relax_awake(const struct remo_node *node, uint32_t count);

/* A learned pause, in 1/16 of remo__relax. A probe that comes too early takes the line from the peer that is
 * about to write it, and the right time depends on the machine and on the peer. So a pause grows if the probe
 * after it was too early, otherwise it shrinks slowly: eight of nine probes come at the right time. */
#define REMO__PAUSE_UNIT 16u
#define REMO__PAUSE_MAX (20u * REMO__PAUSE_UNIT)

static inline uint16_t remo__pause_learn(uint16_t pause, bool was_early) {
    if (!was_early)
        return (uint16_t)(pause - (pause > 0));
    return (uint16_t)remo__min(pause + REMO__PAUSE_UNIT / 2, REMO__PAUSE_MAX);
}

/* The condition that is being checked does not hold, but has had an effect: the wait stays awake as if it had
 * just begun. */
void remo__wait_extend(void);

/* Let the waits of the calling thread sleep at once, from now on. A helper thread of the library calls this:
 * the thread for which it waits may need the processor on which it would spin. */
void remo__wait_sleep_at_once(void);

/* Execute operations of peers, as a wait does. A call that the program repeats, and that does not wait, calls
 * this each time: the fabric may leave these operations to it. No effect if the last call of the thread that
 * had an effect was less than `interval_ns` ago. Does not block. */
void remo__poll_arrivals(const struct remo_node *node, uint64_t interval_ns);

/* Return whether the current check is the last before the wait sleeps. The thread is already counted as a
 * sleeper. Threads: those that check a condition. */
bool remo__wait_is_last_check(void);

/* Park the calling task until remo__task_resume or the deadline; it may return early. A thread without tasks
 * waits until the deadline. Errors: -ETIMEDOUT. */
int remo__wait_resumed(struct remo_node *node, uint64_t deadline_ns);
/* Do the same in a task of the scheduler. The deadline has not passed yet. */
int remo__wait_parked(struct remo__scheduler *scheduler, uint64_t deadline_ns);
/* Find the tasks that are ready, and wait until one is. */
void remo__find_task(struct remo__scheduler *scheduler);
/* Run other tasks. The caller has changed the state of the running task: it is no longer RUNNING. Returns
 * when that task runs again. */
static inline void remo__run_tasks(struct remo__scheduler *scheduler) {
    bool checks = remo__scheduler_count(&scheduler->switches, 1) % REMO__SWITCHES_PER_CHECK == 0;
    if (remo__unlikely(!scheduler->first_ready || checks))
        remo__find_task(scheduler);
    remo__scheduler_switch(scheduler);
}

/* Pause between two attempts, until the deadline. Sets the sentence of a wait that timed out. */
void remo__pause(struct remo_node *node, uint64_t deadline_ns);

/* Mutual exclusion between the tasks of one thread, for the state of that thread. All zero is unlocked.
 * Waiting tasks acquire it in FIFO order. */
struct remo__task_lock {
    bool is_held;
    struct remo__task *last; /* of the tasks that wait; NULL: none waits */
};
int remo__task_lock_slow(struct remo_node *node, struct remo__task_lock *lock, uint64_t deadline_ns);
void remo__task_unlock_slow(struct remo__task_lock *lock);

/* Errors: -ETIMEDOUT (never with REMO_FOREVER); -EDEADLK in a condition of a wait, which must not wait. */
static inline int remo__task_lock(struct remo_node *node, struct remo__task_lock *lock,
                                  uint64_t deadline_ns) {
    if (remo__unlikely(lock->is_held))
        return remo__task_lock_slow(node, lock, deadline_ns);
    lock->is_held = true;
    return 0;
}

static inline void remo__task_unlock(struct remo__task_lock *lock) {
    if (remo__unlikely(lock->last != NULL))
        remo__task_unlock_slow(lock);
    else
        lock->is_held = false;
}

/* Mutual exclusion between threads of a node, for code that waits or uses the network. (Other code uses a
 * pthread mutex.) All zero is unlocked. Waiters have no order.
 * Leaving work to the holder: a thread whose attempt fails stores a mark, and tries again; each holder looks
 * for the mark after its release. Either the second attempt is successful, or a holder finds the mark: all
 * operations on the mutex and the mark are sequentially consistent. */
struct remo__mutex {
    _Atomic uint32_t state; /* 0: free; 1: held; 2: held, and a thread may be waiting */
};
int remo__mutex_lock_slow(struct remo_node *node, struct remo__mutex *mutex, uint64_t deadline_ns);

/* Acquire the mutex. With REMO_FOREVER it cannot fail. Errors: -ETIMEDOUT. */
static inline int remo__mutex_lock(struct remo_node *node, struct remo__mutex *mutex, uint64_t deadline_ns) {
    uint32_t free_state = 0;
    if (remo__likely(atomic_compare_exchange_strong_explicit(&mutex->state, &free_state, 1,
                                                             memory_order_acquire, memory_order_relaxed)))
        return 0;
    return remo__mutex_lock_slow(node, mutex, deadline_ns);
}

/* Acquire the mutex if it is free, and return whether it was. Never waits, and sets no sentence. */
static inline bool remo__mutex_try_lock(struct remo__mutex *mutex) {
    uint32_t free_state = 0;
    return atomic_compare_exchange_strong(&mutex->state, &free_state, 1);
}

static inline void remo__mutex_unlock(struct remo_node *node, struct remo__mutex *mutex) {
    if (atomic_exchange(&mutex->state, 0) == 2)
        remo__wake(node);
}
