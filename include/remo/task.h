/* task.h - cooperative tasks: many waits in one thread.
 *
 * Model:   a scheduler belongs to one thread and one node. A task is a function with its own stack,
 *          which the thread runs until the task waits, yields, sleeps or ends. A wait of the
 *          library inside a task parks it, and another task runs. When all tasks are parked, the
 *          thread sleeps. The code that opened the scheduler is scheduled like a task, without an
 *          id: tasks run only while it waits, yields or sleeps.
 * Use:     open a scheduler, spawn tasks, join them, close the scheduler.
 * State:   errno, the sentence of remo_last_error() and the locks that it holds belong to each
 *          task. A task must release its locks before it ends. All other state of the thread is
 *          shared: thread-local variables, the floating-point environment, the signal mask.
 * Objects: a rule about threads in another header holds for tasks too, even for tasks of one
 *          thread. The following state is an exception: it belongs to the thread, and its tasks
 *          share it:
 *          - fences: a fence covers the writes of all tasks of the thread. The first fence after a
 *            lost write returns its error, so the error may reach a task that did not write;
 *          - the buffers of remo_buffer_get, and remo_thread_stats;
 *          - a pin of a heap: the thread is pinned while any of its tasks is.
 * Waits:   a task may call every function of the library except remo_scheduler_close. A wait on an
 *          object of another struct remo_node, or a system call that blocks, blocks the whole
 *          thread. A call that need not wait does not switch: a task that computes for long, or
 *          repeats calls with timeout 0, delays the other tasks; call remo_task_yield in between.
 *          If a thread with tasks has not switched for 5 to 15 s, the node logs a warning. A
 *          function that a wait calls (remo_sst_wait) must not wait itself, and must not use a map.
 * Network: while tasks of the thread have not ended, operations of the thread and its tasks are
 *          deferred, so that those to one peer share messages. They are posted when no task is
 *          ready; at one switch in 256; when remo_ack_test, remo_kv_poll or remo_kv_wait is called;
 *          when remo_ack_wait times out; and when the thread has as many operations in flight as
 *          it can have (128). Otherwise the service thread posts them after about 10 ms.
 * Cost:    no network operation. A switch takes about 10 ns, spawn and join together less than
 *          100 ns. After open, no call allocates memory or makes a system call, except to sleep
 *          when all tasks are parked. A task parked in a sleep, a join or an ack wait costs nothing
 *          until it resumes. Every other wait has a condition. The scheduler checks a few of them
 *          when no task is ready, else at one switch in 32, and all before the thread sleeps.
 * Memory:  open reserves address space for task_count_max stacks and their guards. The first use of
 *          a page allocates it; close releases all. With the default vm.max_map_count, Linux permits
 *          about 32,000 stacks in a process.
 * Order:   tasks run in the order in which they became ready. Tasks that wait for one condition
 *          become ready in any order.
 * Failure: a wait of a task fails with the same errors as a wait of a thread.
 * Threads: only the thread that opened a scheduler may use it.
 * Stacks:  below each stack is a guard of REMO_TASK_GUARD_BYTES. While a scheduler is open, Remo
 *          handles SIGSEGV and SIGBUS, each only if its action was the default when the first one
 *          was opened. The handler reports an overflow on standard error; then the signal ends the
 *          process. A function with a larger frame than the guard can step over it.
 * Source:  Storm 5.3 and GAM 4 run several requests per thread with hand-written state machines.
 *          LOCO has no tasks.
 */
#pragma once

#include <remo/node.h>
#include <stddef.h>

REMO_BEGIN

/* Default and limits of struct remo_scheduler_options. */
#define REMO_TASKS_DEFAULT 256u
#define REMO_TASKS_MAX 65536u
#define REMO_TASK_STACK_BYTES_DEFAULT (128u << 10)
#define REMO_TASK_GUARD_BYTES (64u << 10)
#define REMO_TASK_STACK_BYTES_MIN (64u << 10)
#define REMO_TASK_STACK_BYTES_MAX (1u << 30)

struct remo_scheduler;

/* Identifies a task of an open scheduler; 0 is never a task. */
typedef uint64_t remo_task_id;

struct remo_scheduler_options {
    uint32_t task_count_max; /* tasks that exist at the same time; 0: REMO_TASKS_DEFAULT */
    size_t stack_bytes;      /* of each task, rounded up to whole pages; 0: the default */
};

/* Open the scheduler of the calling thread for `node`. `options` NULL: all defaults. Does not block.
 * Errors:
 *   -EINVAL  `node` or `ret_scheduler` is NULL, or an option is out of range
 *   -EBUSY   this thread has a scheduler already
 *   -ENOMEM  no memory, or too many mappings for the stacks (vm.max_map_count)
 *   -EAGAIN  the thread cannot be attached: threads_max threads are (node.h)
 *   others   the endpoint of the thread cannot be opened */
REMO_API int remo_scheduler_open(struct remo_node *node, const struct remo_scheduler_options *options,
                                 struct remo_scheduler **ret_scheduler);
/* Close the scheduler. Call it before remo_node_close and before the thread ends; otherwise the
 * behaviour is undefined. NULL has no effect.
 * Errors:
 *   -EBUSY  a task has not ended, or has not been joined: join the tasks that have an id, and wait
 *           until the others have ended
 *   -EPERM  the caller is a task, or another thread has opened the scheduler */
REMO_API int remo_scheduler_close(struct remo_scheduler *scheduler);

/* Create a task that calls `run(ctx)`. The task is ready at once, behind the tasks that are ready
 * already; it starts when the caller waits or yields. If `ret_task` is NULL, the task is released at
 * its end and cannot be joined; otherwise remo_task_join releases it. Does not block.
 * Errors:
 *   -EINVAL  `scheduler` or `run` is NULL
 *   -EAGAIN  task_count_max tasks exist: join one, or wait until a task without an id has ended
 *   -EPERM   another thread has opened the scheduler */
REMO_API int remo_task_spawn(struct remo_scheduler *scheduler, int (*run)(void *ctx), void *ctx,
                             remo_task_id *ret_task);
/* Wait until `task` has ended, store its function's result in *ret_result (NULL: discard it), and
 * release the task. Blocks for `timeout_ns` at most.
 * Errors:
 *   -ETIMEDOUT  the task has not ended; it may be joined later
 *   -EDEADLK    the caller is `task`; longer cycles of joins are not detected
 *   -ESTALE     no task to join has this id: it was joined, was spawned without `ret_task`, or
 *               belongs to another scheduler
 *   -EBUSY      another task is joining `task`
 *   -EINVAL     `scheduler` is NULL
 *   -EPERM      another thread has opened the scheduler */
REMO_API int remo_task_join(struct remo_scheduler *scheduler, remo_task_id task, uint64_t timeout_ns,
                            int *ret_result);
/* Let the tasks that are ready run once, then continue. One switch in 32 also checks parked tasks,
 * so a parked task may become ready only after many yields. No effect in a thread without a
 * scheduler. */
REMO_API void remo_task_yield(void);
/* Park the calling task, or pause the calling thread, for at least `duration_ns`.
 * Errors:
 *   -EINVAL  `duration_ns` is REMO_FOREVER, or `node` is NULL */
REMO_API int remo_task_sleep(struct remo_node *node, uint64_t duration_ns);
/* Return the id of the calling task; 0 outside tasks. */
REMO_API remo_task_id remo_task_current(void);

REMO_END
