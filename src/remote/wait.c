/* wait.c - implements wait.h: spin, then yield, then sleep; in a thread with tasks, park the task. If every
 * node has a processor, a short spin costs less than a wake-up, and the peer probably changes the condition
 * soon. If nodes share a processor, spinning delays the peer. No wake-up is lost: a sleeper counts itself
 * before its last check. */
#include "remote/wait.h"

#include <sched.h>

#include "base/relax.h"
#include "remote/op.h"

#define ATTEMPT_PAUSE_NS_MIN REMO__NS_PER_US
#define ATTEMPT_PAUSE_NS_MAX REMO__NS_PER_MS

#define SWITCHES_PER_POST (8 * REMO__SWITCHES_PER_CHECK) /* while tasks are ready */

#ifndef REMO_SIM
#define CHECKS_BEFORE_SLEEP 200u /* after the spins */
#define CHECKS_PER_ATTEMPT 16u   /* to execute operations that the fabric does not leave to waits */
#define POLL_GAP_NS (400 * REMO__NS_PER_US) /* between two polls of a program that computes between them */
#define OWN_SLEEP_NS_MAX REMO__NS_PER_MS /* while operations are in flight: completions notify no doorbell */

static _Thread_local bool is_last_check, is_extended, sleeps_at_once;
static _Thread_local uint32_t checks_of_thread;
static _Thread_local uint64_t polled_ns, served_ns;   /* last remo__poll_arrivals; the last with an effect */
static _Thread_local struct remo__fabric *counted_by; /* whose waiting_threads includes this thread */
#endif

/* Drive the operations of the calling thread. A thread that is not attached has none, and a wait does not
 * attach it. */
static void drive(struct remo_node *node) {
    struct remo__thread *thread = node->mapped ? NULL : remo__thread_attached(node);
    if (!thread)
        return;
    remo__slots_post_deferred(thread); /* the condition may depend on them */
    (void)remo__slots_progress(thread);
}

#ifdef REMO_SIM
static int wait_long(struct remo_node *node, int (*ready)(void *ctx), void *ctx, uint64_t deadline_ns,
                     bool is_polling) {
    for (uint32_t checks = 0;; checks++) {
        remo__sim_check_begin(node);
        drive(node);
        int rc = ready(ctx);
        remo__sim_check_end(rc != 0);
        if (rc != 0)
            return rc < 0 ? rc : 0;
        if (deadline_ns != REMO_FOREVER && remo__now_ns() >= deadline_ns)
            return remo__fail_static(-ETIMEDOUT, "timed out: the condition of the wait was not met in time");
        remo__sim_pause(node, checks, is_polling, deadline_ns);
    }
}
#else
/* Execute operations of peers, on which the condition may depend, while the fabric leaves them to waiting
 * threads; else rarely, in case the helper thread of the fabric gets no processor. */
static void take_arrivals(const struct remo_node *node, bool is_first) {
    struct remo__fabric *fabric = node->fabric;
    if (node->mapped)
        return;
    if (atomic_load_explicit(&fabric->leaves_arrivals, memory_order_relaxed)
        || ++checks_of_thread % CHECKS_PER_ATTEMPT == 0)
        fabric->ops->take_arrivals(fabric, is_first);
}

/* Sleep until a completion, if operations of this thread are in flight, else until a notification. */
static void sleep_until_change(struct remo_node *node, uint32_t seen, uint64_t left_ns, bool is_polling) {
    struct remo__thread *thread = node->mapped ? NULL : remo__thread_attached(node);
    if (!thread || !remo__slots_sleep(thread, remo__min(left_ns, OWN_SLEEP_NS_MAX)))
        remo__doorbell_sleep(node->doorbell, seen,
                             remo__min(left_ns, is_polling ? REMO__POLL_NS_MAX : REMO__SLEEP_NS_MAX));
}

/* Sleep once, unless the condition holds after this thread is counted as a sleeper. */
static int sleep_once(struct remo_node *node, int (*ready)(void *ctx), void *ctx, uint64_t deadline_ns,
                      bool is_polling) {
    struct remo__doorbell *bell = node->doorbell;
    uint32_t seen = atomic_load(&bell->seq);
    bool was_last_check = is_last_check;
    remo__doorbell_add_sleeper(bell); /* a notifier reads the count, or `ready` finds the change */
    drive(node);                      /* before the check: a completion notifies no doorbell */
    is_last_check = true;
    is_extended = false;
    int rc = ready(ctx);
    is_last_check = was_last_check; /* `ready` of another wait may contain this one */
    if (rc == 0 && !is_extended) {
        atomic_fetch_sub(&node->fabric->waiting_threads, 1);
        sleep_until_change(node, seen, remo__remaining_ns(deadline_ns), is_polling);
        atomic_fetch_add(&node->fabric->waiting_threads, 1);
    }
    atomic_fetch_sub(&bell->sleepers, 1);
    return rc;
}

static int wait_awake(struct remo_node *node, int (*ready)(void *ctx), void *ctx, uint64_t deadline_ns,
                      bool is_polling) {
    uint32_t spins = sleeps_at_once ? 0 : node->threads->spins;
    uint32_t checks = sleeps_at_once ? 0 : spins + CHECKS_BEFORE_SLEEP;
    bool is_first = true;
    for (uint32_t i = 0;; i += i < checks) {
        take_arrivals(node, is_first);
        is_first = false;
        drive(node);
        is_extended = false;
        int rc = ready(ctx);
        if (rc == 0 && (i >= spins || is_extended) && deadline_ns != REMO_FOREVER
            && remo__now_ns() >= deadline_ns)
            return remo__fail_static(-ETIMEDOUT, "timed out: the condition of the wait was not met in time");
        if (rc == 0 && i == checks && !is_extended)
            rc = sleep_once(node, ready, ctx, deadline_ns, is_polling);
        if (is_extended && checks > 0)
            i = 0;
        if (rc != 0)
            return rc < 0 ? rc : 0;
        if (i < spins)
            remo__relax();
        else if (i < checks)
            sched_yield();
    }
}

static int wait_long(struct remo_node *node, int (*ready)(void *ctx), void *ctx, uint64_t deadline_ns,
                     bool is_polling) {
    struct remo__fabric *fabric = node->fabric, *before = counted_by;
    if (node->mapped || before == fabric) /* `ready` of another wait may contain this one */
        return wait_awake(node, ready, ctx, deadline_ns, is_polling);
    atomic_fetch_add(&fabric->waiting_threads, 1);
    counted_by = fabric;
    int rc = wait_awake(node, ready, ctx, deadline_ns, is_polling);
    counted_by = before;
    atomic_fetch_sub(&fabric->waiting_threads, 1);
    return rc;
}
#endif

#ifdef REMO_SIM
void remo__poll_arrivals(const struct remo_node *node, uint64_t interval_ns) {
    (void)node;
    (void)interval_ns;
}
#else
/* Each call of take_arrivals costs system calls, and the answers are smaller if requests are executed sooner.
 * So callers give an interval. */
void remo__poll_arrivals(const struct remo_node *node, uint64_t interval_ns) {
    struct remo__fabric *fabric = node->fabric;
    uint64_t now = remo__now_ns();
    bool is_first = now - polled_ns > POLL_GAP_NS;
    polled_ns = now;
    if (node->mapped || now - served_ns < interval_ns)
        return;
    served_ns = now;
    atomic_store_explicit(&fabric->arrivals_polled, true, memory_order_relaxed);
    fabric->ops->take_arrivals(fabric, is_first);
}
#endif

void remo__relax_awake(const struct remo_node *node, uint32_t count) {
#ifdef REMO_SIM
    (void)node, (void)count;
#else
    if (sleeps_at_once || node->threads->spins <= REMO__SPINS_CROWDED || remo__scheduler_of(node))
        return;
    for (uint32_t i = 0; i < count; i++)
        remo__relax();
#endif
}

void remo__wait_extend(void) {
#ifndef REMO_SIM
    is_extended = true;
#endif
}

void remo__wait_sleep_at_once(void) {
#ifndef REMO_SIM
    sleeps_at_once = true;
#endif
}

bool remo__wait_is_last_check(void) {
#ifdef REMO_SIM
    return true;
#else
    return is_last_check;
#endif
}

/* ---- tasks ---- */

/* A wait condition of the whole scheduler. */
static int can_run(void *ctx) {
    return remo__scheduler_check(ctx, remo__wait_is_last_check());
}

static void find_ready_tasks(struct remo__scheduler *scheduler) {
    /* Ready tasks start further operations, which then share posts with those that are deferred. */
    if (!scheduler->first_ready
        || atomic_load_explicit(&scheduler->switches, memory_order_relaxed) % SWITCHES_PER_POST == 0)
        drive(scheduler->node);
    (void)remo__scheduler_check(scheduler, false);
    if (scheduler->timer_count > 0)
        remo__scheduler_expire(scheduler);
}

/* Sentences of these waits belong to no task. */
void remo__find_task(struct remo__scheduler *scheduler) {
    struct remo__last_error *before = remo__last_error_of_task;
    remo__last_error_of_task = &scheduler->waiting_error;
    find_ready_tasks(scheduler);
    atomic_store_explicit(&scheduler->is_asleep, !scheduler->first_ready, memory_order_relaxed);
    while (!scheduler->first_ready) {
        if (wait_long(scheduler->node, can_run, scheduler, remo__scheduler_deadline(scheduler),
                      scheduler->polling_count > 0)
            != 0)
            remo__scheduler_expire(scheduler);
    }
    atomic_store_explicit(&scheduler->is_asleep, false, memory_order_relaxed);
    remo__last_error_of_task = before;
}

static int park(struct remo__scheduler *scheduler, int (*ready)(void *ctx), void *ctx, uint64_t deadline_ns,
                bool is_polling) {
    struct remo__task *task = scheduler->running;
    /* Another task must not wait for operations that only this one would post. */
    uint32_t depth = scheduler->node->mapped ? 0 : remo__slots_recork(scheduler->thread, 0);
    remo__scheduler_park(scheduler, ready, ctx, deadline_ns, is_polling);
    remo__run_tasks(scheduler);
    if (remo__unlikely(depth > 0))
        (void)remo__slots_recork(scheduler->thread, depth);
    return task->result;
}

/* A wait condition that is never true. */
static int never(void *ctx) {
    (void)ctx;
    return 0;
}

int remo__wait_parked(struct remo__scheduler *scheduler, uint64_t deadline_ns) {
    int rc = park(scheduler, NULL, NULL, deadline_ns, false);
    return rc == -ETIMEDOUT ? remo__fail_static(rc, "timed out: nothing has resumed the task in time") : rc;
}

int remo__wait_resumed(struct remo_node *node, uint64_t deadline_ns) {
    struct remo__scheduler *scheduler = remo__scheduler_of(node);
    if (!scheduler)
        return remo__wait(node, never, NULL, deadline_ns);
    if (remo__is_reached(deadline_ns))
        return remo__fail_static(-ETIMEDOUT, "timed out: no time is left to wait");
    return remo__wait_parked(scheduler, deadline_ns);
}

/* Pause between two attempts. During the pause a worker may set the sentence of the task's operation. */
static void pause_attempts(struct remo_node *node, uint64_t deadline_ns) {
    struct remo__scheduler *scheduler = remo__scheduler_of(node);
    if (scheduler)
        (void)park(scheduler, NULL, NULL, deadline_ns, false);
    else
        (void)remo__wait_resumed(node, deadline_ns);
}

/* Inside a task an attempt runs on the task's own stack, so its waits park the task. */
static int repeat_attempt(struct remo_node *node, int (*attempt)(void *ctx), void *ctx,
                          uint64_t deadline_ns) {
    uint64_t pause_ns = ATTEMPT_PAUSE_NS_MIN;
    for (;;) {
        int rc = attempt(ctx);
        if (rc != 0)
            return rc < 0 ? rc : 0;
        if (deadline_ns != REMO_FOREVER && remo__now_ns() >= deadline_ns)
            return remo__fail_static(-ETIMEDOUT, "timed out: no attempt was successful in time");
        pause_attempts(node, remo__min(deadline_ns, remo__deadline(pause_ns)));
        pause_ns = remo__min(2 * pause_ns, ATTEMPT_PAUSE_NS_MAX);
    }
}

int remo__wait_attempt(struct remo_node *node, int (*attempt)(void *ctx), void *ctx, uint64_t deadline_ns) {
    return remo__scheduler_of(node) ? repeat_attempt(node, attempt, ctx, deadline_ns)
                                    : remo__wait_polling(node, attempt, ctx, deadline_ns);
}

/* The tasks that wait for a lock are a circular list. */
static void append_waiter(struct remo__task_lock *lock, struct remo__task *task) {
    task->next_waiter = lock->last ? lock->last->next_waiter : task;
    if (lock->last)
        lock->last->next_waiter = task;
    lock->last = task;
}

static void remove_waiter(struct remo__task_lock *lock, struct remo__task *task) {
    struct remo__task *before = lock->last;
    while (before->next_waiter != task)
        before = before->next_waiter;
    before->next_waiter = task->next_waiter;
    if (lock->last == task)
        lock->last = before == task ? NULL : before;
    task->next_waiter = NULL;
}

int remo__task_lock_slow(struct remo_node *node, struct remo__task_lock *lock, uint64_t deadline_ns) {
    struct remo__scheduler *scheduler = remo__scheduler_of(node);
    if (!scheduler)
        return remo__fail(-EDEADLK, "a task of this thread is in such a call; a condition must not wait");
    struct remo__task *task = scheduler->running;
    int rc = 0;
    append_waiter(lock, task);
    while (rc == 0 && task->next_waiter)
        rc = remo__wait_resumed(node, deadline_ns);
    if (!task->next_waiter)
        return 0;
    remove_waiter(lock, task);
    return rc;
}

void remo__task_unlock_slow(struct remo__task_lock *lock) {
    struct remo__task *first = lock->last->next_waiter;
    remove_waiter(lock, first);
    if (first->state == REMO__TASK_PARKED)
        remo__scheduler_make_ready(first, 0);
}

/* ---- wait ---- */

static int wait(struct remo_node *node, int (*ready)(void *ctx), void *ctx, uint64_t deadline_ns,
                bool is_polling) {
    int rc = ready(ctx);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    if (remo__is_reached(deadline_ns))
        return remo__fail_static(
            -ETIMEDOUT, "timed out: the condition of the wait is not met, and no time is left to wait");
    struct remo__scheduler *scheduler = remo__scheduler_of(node);
    return remo__unlikely(scheduler != NULL) ? park(scheduler, ready, ctx, deadline_ns, is_polling)
                                             : wait_long(node, ready, ctx, deadline_ns, is_polling);
}

int remo__wait(struct remo_node *node, int (*ready)(void *ctx), void *ctx, uint64_t deadline_ns) {
    return wait(node, ready, ctx, deadline_ns, false);
}

int remo__wait_polling(struct remo_node *node, int (*ready)(void *ctx), void *ctx, uint64_t deadline_ns) {
    return wait(node, ready, ctx, deadline_ns, true);
}

void remo__pause(struct remo_node *node, uint64_t deadline_ns) {
    while (remo__wait_resumed(node, deadline_ns) == 0)
        continue;
}

/* A wait condition: the mutex is free. If it is held, its holder will notify. A condition must not acquire
 * it: the holder would be a task that does not run yet. */
static int is_free(void *ctx) {
    struct remo__mutex *mutex = ctx;
    uint32_t held = 1;
    (void)atomic_compare_exchange_strong(&mutex->state, &held, 2); /* in the order of wait.h, too */
    return held == 0;
}

int remo__mutex_lock_slow(struct remo_node *node, struct remo__mutex *mutex, uint64_t deadline_ns) {
    int rc = 0;
    while (rc == 0 && atomic_exchange(&mutex->state, 2) != 0)
        rc = remo__wait(node, is_free, mutex, deadline_ns);
    return rc;
}
