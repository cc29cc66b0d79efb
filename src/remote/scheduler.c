/* scheduler.c - implements scheduler.h.
 * Invariants: a PARKED task is in the list `polled` if it has a condition, and in the heap of timers if it
 * has a deadline. is_resumed is set before a task enters the list `resumed`, and cleared after it leaves, so
 * a task is in the list at most once, in any state. */
#include "remote/scheduler.h"

#include <stdlib.h>

#include "base/error.h"

#define LATEST_COUNT 4u     /* conditions that each check includes: of the tasks that have parked last */
#define CHECKS_PER_OTHER 4u /* checks that include one of the others: it is probably not in the cache */
/* The stacks of workers begin at different lines of a page. Otherwise the lines that workers use in quick
 * succession would share a few sets of the first-level cache. */
#define STACK_SHIFTS_BYTES 4096u

static _Atomic uint16_t schedulers_opened;
_Thread_local struct remo__scheduler *remo__scheduler __attribute__((tls_model("initial-exec")));

/* ---- timers ---- */

static void timer_set(struct remo__scheduler *scheduler, uint32_t at, struct remo__task *task) {
    scheduler->timers[at] = task;
    task->timer = at;
}

static void timer_sift_up(struct remo__scheduler *scheduler, uint32_t at, struct remo__task *task) {
    for (; at > 1 && scheduler->timers[at / 2]->deadline_ns > task->deadline_ns; at /= 2)
        timer_set(scheduler, at, scheduler->timers[at / 2]);
    timer_set(scheduler, at, task);
}

static void timer_sift_down(struct remo__scheduler *scheduler, uint32_t at, struct remo__task *task) {
    for (uint32_t child; (child = 2 * at) <= scheduler->timer_count; at = child) {
        if (child < scheduler->timer_count
            && scheduler->timers[child + 1]->deadline_ns < scheduler->timers[child]->deadline_ns)
            child++;
        if (scheduler->timers[child]->deadline_ns >= task->deadline_ns)
            break;
        timer_set(scheduler, at, scheduler->timers[child]);
    }
    timer_set(scheduler, at, task);
}

static void timer_remove(struct remo__scheduler *scheduler, struct remo__task *task) {
    uint32_t at = task->timer;
    struct remo__task *last = scheduler->timers[scheduler->timer_count--];
    task->timer = 0;
    if (last == task)
        return;
    if (at > 1 && scheduler->timers[at / 2]->deadline_ns > last->deadline_ns)
        timer_sift_up(scheduler, at, last);
    else
        timer_sift_down(scheduler, at, last);
}

/* ---- parked tasks ---- */

static void polled_add(struct remo__scheduler *scheduler, struct remo__task *task) {
    task->polled_previous = NULL;
    task->polled_next = scheduler->polled;
    task->polled_number = scheduler->polled_numbers++;
    if (task->polled_next)
        task->polled_next->polled_previous = task;
    else
        scheduler->polled_oldest = task;
    scheduler->polled = task;
    scheduler->polling_count += task->is_polling;
}

static void polled_remove(struct remo__scheduler *scheduler, struct remo__task *task) {
    if (scheduler->polled_cursor == task)
        scheduler->polled_cursor = task->polled_previous;
    if (task->polled_previous)
        task->polled_previous->polled_next = task->polled_next;
    else
        scheduler->polled = task->polled_next;
    if (task->polled_next)
        task->polled_next->polled_previous = task->polled_previous;
    else
        scheduler->polled_oldest = task->polled_previous;
    scheduler->polling_count -= task->is_polling;
}

void remo__scheduler_park(struct remo__scheduler *scheduler, int (*is_ready)(void *ctx), void *ctx,
                          uint64_t deadline_ns, bool is_polling) {
    struct remo__task *task = scheduler->running;
    task->state = REMO__TASK_PARKED;
    task->is_ready = is_ready;
    task->is_ready_ctx = ctx;
    task->deadline_ns = deadline_ns;
    task->is_polling = is_polling;
    if (is_ready)
        polled_add(scheduler, task);
    if (deadline_ns != REMO_FOREVER)
        timer_sift_up(scheduler, ++scheduler->timer_count, task);
}

void remo__scheduler_make_ready(struct remo__task *task, int result) {
    struct remo__scheduler *scheduler = task->scheduler;
    if (task->is_ready)
        polled_remove(scheduler, task);
    if (task->timer != 0)
        timer_remove(scheduler, task);
    task->result = result;
    remo__scheduler_append(scheduler, task);
}

/* Check one condition. Its sentence belongs to its task, which may hold locks. Returns the next task of the
 * list. */
static struct remo__task *check_one(struct remo__task *task) {
    struct remo__task *next = task->polled_next;
    remo__last_error_of_task = task->last_error;
    task->scheduler->thread->holder = task->holder;
    int rc = task->is_ready(task->is_ready_ctx);
    if (rc != 0)
        remo__scheduler_make_ready(task, rc < 0 ? rc : 0);
    return next;
}

static void take_resumed(struct remo__scheduler *scheduler) {
    if (!atomic_load_explicit(&scheduler->resumed, memory_order_relaxed))
        return;
    struct remo__task *next, *first = NULL;
    struct remo__task *task = atomic_exchange_explicit(&scheduler->resumed, NULL, memory_order_acquire);
    for (; task; task = next) { /* the list has the latest first */
        next = task->resumed_next;
        task->resumed_next = first;
        first = task;
    }
    for (task = first; task; task = next) {
        next = task->resumed_next;
        /* Pairs with the exchange in remo__task_resume: the change before a resume that found the flag set is
         * visible to the task. */
        atomic_exchange_explicit(&task->is_resumed, false, memory_order_acq_rel);
        if (task->state == REMO__TASK_PARKED && !task->is_ready)
            remo__scheduler_make_ready(task, 0);
    }
}

/* Begin to check conditions: they must not park, because no task is running. */
static struct remo__last_error *check_begin(struct remo__scheduler *scheduler) {
    take_resumed(scheduler);
    scheduler->is_checking = true;
    return remo__last_error_of_task;
}

/* A condition may have driven the operation for which another task waits. */
static void check_end(struct remo__scheduler *scheduler, struct remo__last_error *before) {
    scheduler->is_checking = false;
    remo__last_error_of_task = before;
    take_resumed(scheduler);
}

/* Check one of the conditions, from the oldest to the latest. Tasks are usually served in this order, so the
 * next one is found at once, even among many. A lap ends before the tasks that have parked since it began:
 * otherwise it would never end if tasks park often. */
static void check_other(struct remo__scheduler *scheduler) {
    struct remo__task *task = scheduler->polled_cursor;
    if (!task || task->polled_number >= scheduler->lap_end) {
        task = scheduler->polled_oldest;
        scheduler->lap_end = scheduler->polled_numbers;
    }
    scheduler->polled_cursor = task->polled_previous;
    (void)check_one(task);
}

bool remo__scheduler_check(struct remo__scheduler *scheduler, bool all) {
    struct remo__last_error *before = check_begin(scheduler);
    struct remo__task *task = scheduler->polled;
    for (uint32_t i = 0; task && (all || i < LATEST_COUNT); i++)
        task = check_one(task);
    if (task && ++scheduler->checks % CHECKS_PER_OTHER == 0)
        check_other(scheduler);
    check_end(scheduler, before);
    return scheduler->first_ready != NULL;
}

/* The condition of the task may hold, and not have been checked since. */
/* A task without a condition sets its own sentence, or keeps the one that a worker has set for it. */
static void expire_one(struct remo__task *task) {
    int rc = -ETIMEDOUT;
    if (task->is_ready)
        (void)check_one(task);
    if (task->state != REMO__TASK_PARKED)
        return;
    remo__last_error_of_task = task->last_error;
    if (task->is_ready)
        rc = remo__fail_static(rc, "timed out: the condition of the wait was not met in time");
    remo__scheduler_make_ready(task, rc);
}

void remo__scheduler_expire(struct remo__scheduler *scheduler) {
    if (!remo__is_reached(remo__scheduler_deadline(scheduler)))
        return;
    uint64_t now = remo__now_ns();
    struct remo__last_error *before = check_begin(scheduler);
    while (scheduler->timer_count > 0 && remo__scheduler_deadline(scheduler) <= now)
        expire_one(scheduler->timers[1]);
    check_end(scheduler, before);
}

void remo__task_resume(struct remo__task *task) {
    struct remo__scheduler *scheduler = task->scheduler;
    if (remo__scheduler == scheduler && task->state == REMO__TASK_PARKED && !task->is_ready) {
        remo__scheduler_make_ready(task, 0);
        return;
    }
    if (atomic_exchange_explicit(&task->is_resumed, true, memory_order_acq_rel))
        return;
    struct remo__task *first = atomic_load_explicit(&scheduler->resumed, memory_order_relaxed);
    do
        task->resumed_next = first;
    while (!atomic_compare_exchange_weak_explicit(&scheduler->resumed, &first, task, memory_order_release,
                                                  memory_order_relaxed));
    if (remo__scheduler != scheduler)
        remo__wake(scheduler->node);
}

/* ---- tasks ---- */

struct remo__task *remo__scheduler_add(struct remo__scheduler *scheduler, void (*entry)(void)) {
    struct remo__task **link = &scheduler->free;
    /* A task that has ended and is FREE runs until the switch. It checks conditions, which may spawn. */
    if (*link && *link == scheduler->running)
        link = &(*link)->next;
    struct remo__task *task = *link;
    if (!task)
        return NULL;
    *link = task->next;
    scheduler->task_count++;
    remo__scheduler_count(&scheduler->live_count, 1);
    char *stack = remo__stacks_at(&scheduler->stacks, task->index - 1);
    size_t stack_bytes = scheduler->stacks.stack_bytes - remo__align_up(sizeof *task->last_error, 64);
    if (task->holder & REMO__HOLDER_WORKER)
        stack_bytes -= task->index * REMO__CACHE_LINE % STACK_SHIFTS_BYTES;
    task->last_error = (struct remo__last_error *)(stack + stack_bytes);
    task->last_error->sentence = NULL;
    task->last_error->code = 0;
    task->generation++;
    task->joiner = NULL;
    remo__context_make(&task->context, stack, stack_bytes, entry);
    remo__scheduler_append(scheduler, task);
    return task;
}

void remo__scheduler_remove(struct remo__task *task) {
    struct remo__scheduler *scheduler = task->scheduler;
    task->state = REMO__TASK_FREE;
    task->next = scheduler->free;
    scheduler->free = task;
    scheduler->task_count--;
}

/* ---- open, close ---- */

static void init_tasks(struct remo__scheduler *scheduler, uint32_t first_holder) {
    for (uint32_t i = scheduler->task_count_max + 1; i-- > 0;) {
        struct remo__task *task = &scheduler->tasks[i];
        *task = (struct remo__task){.scheduler = scheduler,
                                    .index = i,
                                    .holder = first_holder + (i << REMO__HOLDER_TASK_SHIFT),
                                    .next = scheduler->free};
        if (i > 0)
            scheduler->free = task;
    }
    scheduler->running = &scheduler->tasks[0];
    scheduler->running->state = REMO__TASK_RUNNING;
    scheduler->running->next = NULL;
    scheduler->last_ready = &scheduler->first_ready;
}

int remo__scheduler_open(struct remo__thread *thread, uint32_t first_holder, uint32_t task_count_max,
                         size_t stack_bytes, bool reports_overflow, struct remo__scheduler **ret_scheduler) {
    size_t tasks_bytes = (1 + (size_t)task_count_max) * sizeof(struct remo__task);
    struct remo__scheduler *scheduler = aligned_alloc(REMO__CACHE_LINE, sizeof *scheduler);
    struct remo__task *tasks = aligned_alloc(REMO__CACHE_LINE, tasks_bytes);
    struct remo__task **timers = calloc(2 + (size_t)task_count_max, sizeof(struct remo__task *));
    int rc = 0;
    if (!scheduler || !tasks || !timers) {
        rc = remo__fail(-ENOMEM, "cannot open a scheduler of %u tasks: no memory; lower task_count_max",
                        task_count_max);
        goto fail;
    }
    *scheduler = (struct remo__scheduler){.node = thread->node,
                                          .thread = thread,
                                          .errno_of_thread = &errno,
                                          .serial = atomic_fetch_add(&schedulers_opened, 1) + 1,
                                          .task_count_max = task_count_max,
                                          .timers = timers,
                                          .tasks = tasks};
    rc = remo__stacks_open(&scheduler->stacks, task_count_max, stack_bytes, reports_overflow);
    if (rc != 0)
        goto fail;
    init_tasks(scheduler, first_holder);
    *ret_scheduler = scheduler;
    return 0;
fail:
    free(timers);
    free(tasks);
    free(scheduler);
    return rc;
}

void remo__scheduler_close(struct remo__scheduler *scheduler) {
    for (uint32_t i = 1; i <= scheduler->task_count_max; i++)
        remo__context_free(&scheduler->tasks[i].context);
    remo__stacks_close(&scheduler->stacks);
    free(scheduler->timers);
    free(scheduler->tasks);
    free(scheduler);
}
