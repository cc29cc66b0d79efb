/* task.h - cooperative tasks: many waits in one thread.
 *
 * Model:   a scheduler belongs to one thread and one node. A task is a function with its own stack,
 *          which the thread runs until the task waits, yields, sleeps or ends. A wait of the
 *          library inside a task parks it, and another task runs. When all tasks are parked, the
 *          thread sleeps. The thread's own stack takes part as a further task: its waits let the
 *          tasks run.
 * Use:     open a scheduler, spawn tasks, join them, close the scheduler.
 * State:   errno, the sentence of remo_last_error() and the locks that it holds belong to each
 *          task. All other state of the thread is shared: thread-local variables, the
 *          floating-point environment, the signal mask.
 * Objects: two tasks are two threads for every rule about threads in the other headers, also if one
 *          thread runs both. The following belongs to the thread, and its tasks share it:
 *          - fences: a fence covers the writes of all tasks of the thread, and one of the tasks
 *            gets the error of a lost write;
 *          - the buffers of remo_buffer_get, and remo_thread_stats;
 *          - the window of a map (remo_kv_start): remo_kv_poll advances the operations of all
 *            tasks;
 *          - a pin of a heap: the thread is pinned while one of its tasks is.
 * Waits:   a task may call everything that its thread may call. A wait of another node than the
 *          scheduler's, and a system call that blocks, stop the whole thread. A task that computes
 *          for long without a wait delays the others: let it call remo_task_yield.
 * Cost:    no network operation. A switch takes about 10 ns, spawn and join together less than
 *          100 ns. After open, no call allocates memory or makes a system call, except to sleep
 *          when all tasks are parked. A parked task costs nothing until its deadline, a completion
 *          of its operation, or a notification of the node.
 * Order:   tasks that can run do so in turn (FIFO).
 * Failure: a failed peer ends waits of tasks as it ends those of threads.
 * Threads: only the thread that opened a scheduler may use it.
 * Stacks:  each stack ends at a page that cannot be accessed. If the program handles neither SIGSEGV
 *          nor SIGBUS when the first scheduler is opened, an overflow prints a sentence to standard
 *          error; then the signal ends the process.
 * Source:  Storm 5.3 and GAM 4 run several requests per thread by hand-written state machines. Not
 *          in LOCO.
 */
#pragma once

#include <remo/node.h>
#include <stddef.h>

REMO_BEGIN

/* Default and limits of struct remo_scheduler_options. */
#define REMO_TASKS_DEFAULT 256u
#define REMO_TASKS_MAX 65536u
#define REMO_TASK_STACK_BYTES_DEFAULT (128u << 10)
#define REMO_TASK_STACK_BYTES_MIN (16u << 10)
#define REMO_TASK_STACK_BYTES_MAX (1u << 30)

struct remo_scheduler;

/* A task of a scheduler, as a value; 0 is no task. */
typedef uint64_t remo_task_id;

struct remo_scheduler_options {
    uint32_t task_count_max; /* tasks that exist at the same time; 0: REMO_TASKS_DEFAULT */
    size_t stack_bytes;      /* of each task, rounded up to whole pages; 0: the default */
};

/* Open the scheduler of the calling thread for `node`. `options` NULL: all defaults. Does not block.
 * Errors:
 *   -EINVAL  an argument is NULL, or an option is out of range
 *   -EBUSY   this thread has a scheduler already
 *   -ENOMEM  no memory, or too many mappings for the stacks (vm.max_map_count)
 *   others   those of the thread's first call: see remo_node_open */
REMO_API int remo_scheduler_open(struct remo_node *node, const struct remo_scheduler_options *options,
                                 struct remo_scheduler **ret_scheduler);
/* Close the scheduler, before its node and before the end of its thread. NULL has no effect.
 * Errors:
 *   -EBUSY  a task has not ended or was not joined: join it first
 *   -EPERM  the caller is a task, or another thread has opened the scheduler */
REMO_API int remo_scheduler_close(struct remo_scheduler *scheduler);

/* Add a task that calls `run(ctx)`. It runs first when the caller waits or yields. With `ret_task`,
 * the task exists until remo_task_join; with NULL, until it ends. Does not block.
 * Errors:
 *   -EINVAL  `scheduler` or `run` is NULL
 *   -EAGAIN  task_count_max tasks exist: join one
 *   -EPERM   another thread has opened the scheduler */
REMO_API int remo_task_spawn(struct remo_scheduler *scheduler, int (*run)(void *ctx), void *ctx,
                             remo_task_id *ret_task);
/* Wait until `task` has ended, and release it. *ret_result: the value that its function returned
 * (NULL: ignored). Blocks up to `timeout_ns`.
 * Errors:
 *   -ETIMEDOUT  the task has not ended; it may be joined later
 *   -EDEADLK    the caller is `task`
 *   -ESTALE     `task` is no task of this scheduler, or was joined before
 *   -EBUSY      another task is joining `task`
 *   -EINVAL     `scheduler` is NULL
 *   -EPERM      another thread has opened the scheduler */
REMO_API int remo_task_join(struct remo_scheduler *scheduler, remo_task_id task, uint64_t timeout_ns,
                            int *ret_result);
/* Let all other tasks of this thread that can run do so once. Without effect in a thread without a
 * scheduler. */
REMO_API void remo_task_yield(void);
/* Park the calling task, or let the calling thread sleep, for at least `duration_ns`.
 * Errors:
 *   -EINVAL  `duration_ns` is REMO_FOREVER, or `node` is NULL */
REMO_API int remo_task_sleep(struct remo_node *node, uint64_t duration_ns);
/* Return the calling task; 0 on a thread's own stack. */
REMO_API remo_task_id remo_task_current(void);

REMO_END
