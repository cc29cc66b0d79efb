/* scheduler.h - the tasks of one thread: which are ready, and what the others wait for.
 *
 * States:  READY (in the run queue), RUNNING (one), PARKED, ENDED (not joined yet), FREE. The thread's own
 *          stack is the task `root`.
 * Parking: a parked task waits for a condition, or until it is resumed. Conditions are checked by whichever
 *          task runs the scheduler (wait.c). Only the condition's own checks cost time: a task that waits to
 *          be resumed is found by its address, and a deadline by a heap of timers.
 * Threads: only the scheduler's thread, except remo__task_resume. */
#pragma once

#include <remo/ack.h>

#include "base/context.h"
#include "memory/stacks.h"
#include "remote/thread.h"

enum remo__task_state {
    REMO__TASK_FREE,
    REMO__TASK_READY,
    REMO__TASK_RUNNING,
    REMO__TASK_PARKED,
    REMO__TASK_ENDED
};

struct remo__task {
    struct remo__context context;
    struct remo__scheduler *scheduler;
    struct remo__last_error *last_error; /* at the top of the stack; NULL: of the thread */
    struct remo__task *next;             /* in the run queue, or the list of free tasks */
    struct remo__task *next_waiter;      /* in the list of a task lock; NULL: in none */
    uint32_t index;                      /* 0: root */
    uint32_t holder;                     /* as remo__thread.holder, while the task runs */
    uint32_t generation;                 /* of the task with this index; part of its id */
    enum remo__task_state state;
    uint32_t timer; /* position in the heap of timers, from 1; 0: none */

    /* PARKED */
    int (*is_ready)(void *ctx); /* NULL: until it is resumed */
    void *is_ready_ctx;
    uint64_t deadline_ns;
    bool is_polling;
    struct remo__task *polled_next, *polled_previous;
    uint64_t polled_number;          /* grows from the oldest to the latest */
    int result;                      /* of the park: 0 or an error */
    struct remo__task *resumed_next; /* in `resumed` */
    _Atomic bool is_resumed;         /* it is in `resumed` */

    void *handling; /* what objects/rpc runs in this task: a LONG handler; NULL: nothing */
    int (*run)(void *ctx);
    void *run_ctx;
    int run_result;
    bool is_detached;
    struct remo__task *joiner;
} REMO__CACHE_ALIGNED;

struct remo__scheduler {
    struct remo_node *node;
    struct remo__thread *thread;
    int *errno_of_thread;
    uint16_t serial; /* number of this scheduler in the process; wraps */
    struct remo__task *running;
    struct remo__task *first_ready, **last_ready; /* the run queue */
    _Atomic uint32_t live_count;                  /* tasks that have not ended, without the root */
    uint32_t task_count;                          /* tasks that are not FREE, without the root */
    uint32_t task_count_max;
    _Atomic uint32_t switches;
    _Atomic bool is_asleep;    /* the thread waits until a task is ready, or is about to */
    bool is_checking;          /* conditions are being checked: they must not park */
    struct remo__task *polled; /* parked with a condition; the latest first */
    struct remo__task *polled_oldest;
    struct remo__task *polled_cursor; /* checked next, besides the latest; NULL: the oldest */
    uint64_t polled_numbers;          /* that of the next task */
    uint64_t lap_end; /* the cursor begins again at the oldest before a task with this number */
    uint32_t checks;
    uint32_t polling_count;     /* of those whose condition changes without notification */
    struct remo__task **timers; /* [1 .. timer_count]: a heap by deadline_ns */
    uint32_t timer_count;
    uint64_t now_ns; /* of workers: the time of this run, read when a worker first needs it; 0: not yet */
    struct remo__task *free;
    struct remo__task *tasks; /* [1 + task_count_max]; tasks[0] is the root */
    struct remo__stacks stacks;
    struct remo__last_error waiting_error; /* of the waits of the scheduler itself */
    struct remo__scheduler *watched_next;  /* this and the following: see watch.c */
    uint32_t switches_seen, looks;
    _Atomic(struct remo__task *) resumed REMO__CACHE_ALIGNED; /* other threads append */
};

/* Return whether a task has not ended. */
static inline bool remo__scheduler_lives(const struct remo__scheduler *scheduler) {
    return atomic_load_explicit(&scheduler->live_count, memory_order_relaxed) > 0;
}

/* Change a counter that only the thread of the scheduler writes. Returns the new value. */
static inline uint32_t remo__scheduler_count(_Atomic uint32_t *counter, uint32_t change) {
    uint32_t value = atomic_load_explicit(counter, memory_order_relaxed) + change;
    atomic_store_explicit(counter, value, memory_order_relaxed);
    return value;
}

/* The scheduler of the calling thread, or NULL. The simulator replaces it when it switches. */
extern _Thread_local struct remo__scheduler *remo__scheduler __attribute__((tls_model("initial-exec")));

/* Return the scheduler if a wait of `node` by the calling thread must park the running task; NULL: the thread
 * waits by itself. */
static inline struct remo__scheduler *remo__scheduler_of(const struct remo_node *node) {
    struct remo__scheduler *scheduler = remo__scheduler;
    return remo__unlikely(scheduler != NULL) && scheduler->node == node && remo__scheduler_lives(scheduler)
                   && !scheduler->is_checking
               ? scheduler
               : NULL;
}

/* Return whether a task runs, and not the root. */
static inline bool remo__is_in_task(const struct remo__scheduler *scheduler) {
    return scheduler->running->index != 0;
}

/* Open a scheduler of `thread`. `first_holder`: the holder of the root; the index of a task is added to it
 * (thread.h). `reports_overflow`: see stacks.h. The caller sets remo__scheduler. Errors: -ENOMEM. */
int remo__scheduler_open(struct remo__thread *thread, uint32_t first_holder, uint32_t task_count_max,
                         size_t stack_bytes, bool reports_overflow, struct remo__scheduler **ret_scheduler);
void remo__scheduler_close(struct remo__scheduler *scheduler);

/* Make a task READY that starts in `entry`. NULL: all tasks are in use. */
struct remo__task *remo__scheduler_add(struct remo__scheduler *scheduler, void (*entry)(void));
/* task.c: make a task that runs `run`. NULL: all tasks are in use. */
struct remo__task *remo__task_spawn(struct remo__scheduler *scheduler, int (*run)(void *ctx), void *ctx,
                                    bool is_detached);
/* Make an ENDED task FREE, or the running one, which never runs again. */
void remo__scheduler_remove(struct remo__task *task);

/* Change the running task to PARKED. Its caller then calls remo__scheduler_switch. */
void remo__scheduler_park(struct remo__scheduler *scheduler, int (*is_ready)(void *ctx), void *ctx,
                          uint64_t deadline_ns, bool is_polling);
/* Change a parked task to READY; remo__scheduler_park's caller finds `result`. */
void remo__scheduler_make_ready(struct remo__task *task, int result);
/* Make a task READY, behind all others. */
static inline void remo__scheduler_append(struct remo__scheduler *scheduler, struct remo__task *task) {
    task->state = REMO__TASK_READY;
    task->next = NULL;
    *scheduler->last_ready = task;
    scheduler->last_ready = &task->next;
}

/* Run the first READY task. Returns when the caller's task runs again. */
static inline void remo__scheduler_switch(struct remo__scheduler *scheduler) {
    struct remo__task *from = scheduler->running, *to = scheduler->first_ready;
    scheduler->first_ready = to->next;
    if (!to->next)
        scheduler->last_ready = &scheduler->first_ready;
    to->state = REMO__TASK_RUNNING;
    scheduler->running = to;
    scheduler->thread->holder = to->holder;
    remo__last_error_of_task = to->last_error;
    if (to == from)
        return;
    int saved_errno = *scheduler->errno_of_thread;
    remo__context_switch(&from->context, &to->context);
    *scheduler->errno_of_thread = saved_errno;
}

/* Make the tasks READY that were resumed, and those whose condition holds: the latest few are checked, and
 * the others in turn, one in several calls; or all. Returns whether a task is READY. */
bool remo__scheduler_check(struct remo__scheduler *scheduler, bool all);
/* Make the tasks READY whose deadline has passed, with -ETIMEDOUT. */
void remo__scheduler_expire(struct remo__scheduler *scheduler);
/* Return the earliest deadline, or REMO_FOREVER. */
static inline uint64_t remo__scheduler_deadline(const struct remo__scheduler *scheduler) {
    return scheduler->timer_count > 0 ? scheduler->timers[1]->deadline_ns : REMO_FOREVER;
}

/* Resume a task that is parked in remo__wait_resumed. If the task is in another state, its next such wait may
 * return early. The memory of the task must stay valid during the call. Threads: any. */
void remo__task_resume(struct remo__task *task);

/* ---- acks ---- */

/* `thread` of an ack for which a task waits is the task, with the lowest bit set. */
static inline void *remo__ack_waiter(struct remo__task *task) {
    return (char *)task + 1;
}

/* Return the thread of the ack; NULL: the ack has none. */
static inline struct remo__thread *remo__ack_thread(const struct remo_ack *ack) {
    return (uintptr_t)ack->thread & 1 ? ((struct remo__task *)((char *)ack->thread - 1))->scheduler->thread
                                      : ack->thread;
}

/* Set the thread of the ack. A task of the thread that waits for the ack still does. */
static inline void remo__ack_set_thread(struct remo_ack *ack, struct remo__thread *thread) {
    if (remo__ack_thread(ack) != thread)
        ack->thread = thread;
}

/* Return the task that waits for the ack, or NULL. */
static inline struct remo__task *remo__ack_task(const struct remo_ack *ack) {
    return (uintptr_t)ack->thread & 1 ? (struct remo__task *)((char *)ack->thread - 1) : NULL;
}
