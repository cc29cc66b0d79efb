/* task.c - implements remo/task.h on the scheduler (scheduler.h) and its waits (wait.h).
 * A task's id is {serial number of the scheduler:16, generation:31, index:17}. So the id of a joined task is
 * not valid again before 2^31 tasks have used its index. */
#include <assert.h>
#include <remo/task.h>

#include "remote/op.h"
#include "remote/scheduler.h"
#include "remote/wait.h"
#include "remote/watch.h"

static int check_caller(const struct remo_scheduler *scheduler, const char *what) {
    if ((const struct remo__scheduler *)scheduler == remo__scheduler)
        return 0;
    return remo__fail(-EPERM, "cannot %s: another thread has opened the scheduler; call from that thread",
                      what);
}

/* The public type has no definition: it is a struct remo__scheduler. */
static struct remo__scheduler *scheduler_of(struct remo_scheduler *scheduler) {
    return (struct remo__scheduler *)scheduler;
}

#define INDEX_BITS 17
#define SERIAL_SHIFT 48

static_assert(REMO_TASKS_MAX < 1u << INDEX_BITS, "an id has the index of its task");

static remo_task_id id_of(const struct remo__task *task) {
    uint64_t generation = task->generation & (UINT32_MAX >> 1);
    return (uint64_t)task->scheduler->serial << SERIAL_SHIFT | generation << INDEX_BITS | task->index;
}

/* Return the task with the id, or NULL if there is none, or none to join. */
static struct remo__task *find_task(const struct remo__scheduler *scheduler, remo_task_id id) {
    uint32_t index = (uint32_t)id & ((1u << INDEX_BITS) - 1);
    if (index == 0 || index > scheduler->task_count_max)
        return NULL;
    struct remo__task *task = &scheduler->tasks[index];
    return task->state != REMO__TASK_FREE && id_of(task) == id && !task->is_detached ? task : NULL;
}

/* ---- open, close ---- */

int remo_scheduler_open(struct remo_node *node, const struct remo_scheduler_options *options,
                        struct remo_scheduler **ret_scheduler) {
    static const struct remo_scheduler_options all_default;
    const struct remo_scheduler_options *chosen = options ? options : &all_default;
    REMO__REQUIRE(node);
    REMO__REQUIRE(ret_scheduler);
    uint32_t count = chosen->task_count_max ? chosen->task_count_max : REMO_TASKS_DEFAULT;
    size_t stack_bytes = chosen->stack_bytes ? chosen->stack_bytes : REMO_TASK_STACK_BYTES_DEFAULT;
    if (count > REMO_TASKS_MAX)
        return remo__fail(-EINVAL, "cannot open a scheduler of %u tasks: the limit is %u", count,
                          REMO_TASKS_MAX);
    if (stack_bytes < REMO_TASK_STACK_BYTES_MIN || stack_bytes > REMO_TASK_STACK_BYTES_MAX)
        return remo__fail(-EINVAL,
                          "cannot open a scheduler with stack_bytes = %zu: give from %u to %u bytes, or 0",
                          stack_bytes, REMO_TASK_STACK_BYTES_MIN, REMO_TASK_STACK_BYTES_MAX);
    if (remo__scheduler)
        return remo__fail(-EBUSY, "cannot open a scheduler: this thread has one already; close it first");
    struct remo__thread *thread = remo__thread(node);
    if (!thread)
        return remo__last_code();
    int rc = remo__scheduler_open(thread, thread->index, count, stack_bytes, true, &remo__scheduler);
    if (rc != 0)
        return rc;
    remo__watch_add(remo__scheduler);
    *ret_scheduler = (struct remo_scheduler *)remo__scheduler;
    return 0;
}

int remo_scheduler_close(struct remo_scheduler *scheduler) {
    if (!scheduler)
        return 0;
    int rc = check_caller(scheduler, "close a scheduler");
    if (rc != 0)
        return rc;
    if (remo_task_current() != 0)
        return remo__fail(-EPERM,
                          "cannot close a scheduler: the caller is one of its tasks; close it from the "
                          "thread's own stack");
    uint32_t count = scheduler_of(scheduler)->task_count;
    if (count > 0)
        return remo__fail(-EBUSY,
                          "cannot close a scheduler: %u tasks have not ended or have not been joined; join "
                          "them, or wait until those without an id have ended",
                          count);
    remo__watch_remove(scheduler_of(scheduler));
    while (!remo__ops_settled(scheduler_of(scheduler)->thread)) /* bounded by the poll of another thread */
        (void)remo__wait_resumed(scheduler_of(scheduler)->node, remo__deadline(REMO__NS_PER_US));
    remo__scheduler_close(scheduler_of(scheduler));
    remo__scheduler = NULL;
    return 0;
}

/* ---- spawn, join ---- */

/* The first function of every task. */
static void task_main(void) {
    remo__context_started();
    struct remo__scheduler *scheduler = remo__scheduler;
    struct remo__task *task = scheduler->running;
    task->run_result = task->run(task->run_ctx);
    remo__scheduler_count(&scheduler->live_count, UINT32_MAX);
    task->state = REMO__TASK_ENDED;
    if (task->joiner && task->joiner->state == REMO__TASK_PARKED)
        remo__scheduler_make_ready(task->joiner, 0);
    if (task->is_detached)
        remo__scheduler_remove(task); /* its stack is in use until the switch */
    remo__run_tasks(scheduler);
}

struct remo__task *remo__task_spawn(struct remo__scheduler *scheduler, int (*run)(void *ctx), void *ctx,
                                    bool is_detached) {
    struct remo__task *task = remo__scheduler_add(scheduler, task_main);
    if (remo__unlikely(!task))
        return NULL;
    task->run = run;
    task->run_ctx = ctx;
    task->is_detached = is_detached;
    return task;
}

int remo_task_spawn(struct remo_scheduler *scheduler, int (*run)(void *ctx), void *ctx,
                    remo_task_id *ret_task) {
    REMO__REQUIRE(scheduler);
    REMO__REQUIRE(run);
    int rc = check_caller(scheduler, "spawn a task");
    if (remo__unlikely(rc != 0))
        return rc;
    struct remo__task *task = remo__task_spawn(scheduler_of(scheduler), run, ctx, !ret_task);
    if (remo__unlikely(!task))
        return remo__fail(-EAGAIN,
                          "cannot spawn a task: %u tasks exist; join one, wait for an end, or raise "
                          "task_count_max in struct remo_scheduler_options",
                          scheduler_of(scheduler)->task_count);
    if (ret_task)
        *ret_task = id_of(task);
    return 0;
}

/* Check the join of `task`, which may be NULL. */
static int check_join(const struct remo__scheduler *scheduler, const struct remo__task *task,
                      remo_task_id id) {
    if (!task)
        return remo__fail(-ESTALE,
                          "cannot join task %#llx: no task of this scheduler that can be joined has this id",
                          (unsigned long long)id);
    if (task == scheduler->running)
        return remo__fail(-EDEADLK, "cannot join task %#llx: it is the caller, and would wait for itself",
                          (unsigned long long)id);
    if (task->joiner)
        return remo__fail(-EBUSY, "cannot join task %#llx: another task is joining it",
                          (unsigned long long)id);
    return 0;
}

int remo_task_join(struct remo_scheduler *scheduler, remo_task_id id, uint64_t timeout_ns, int *ret_result) {
    REMO__REQUIRE(scheduler);
    int rc = check_caller(scheduler, "join a task");
    if (remo__unlikely(rc != 0))
        return rc;
    struct remo__scheduler *own = scheduler_of(scheduler);
    struct remo__task *task = find_task(own, id);
    rc = check_join(own, task, id);
    if (remo__unlikely(rc != 0))
        return rc;
    uint64_t deadline_ns = task->state == REMO__TASK_ENDED ? 0 : remo__deadline(timeout_ns);
    task->joiner = own->running;
    while (task->state != REMO__TASK_ENDED && rc == 0)
        rc = remo__wait_resumed(own->node, deadline_ns);
    task->joiner = NULL;
    if (task->state != REMO__TASK_ENDED)
        return remo__fail(rc,
                          "cannot join task %#llx: it has not ended within the timeout; join it again later",
                          (unsigned long long)id);
    if (ret_result)
        *ret_result = task->run_result;
    remo__scheduler_remove(task);
    return 0;
}

/* ---- the running task ---- */

void remo_task_yield(void) {
    struct remo__scheduler *scheduler = remo__scheduler;
    if (!scheduler || !remo__scheduler_lives(scheduler) || scheduler->is_checking)
        return;
    remo__scheduler_append(scheduler, scheduler->running);
    remo__run_tasks(scheduler);
}

int remo_task_sleep(struct remo_node *node, uint64_t duration_ns) {
    REMO__REQUIRE(node);
    if (duration_ns == REMO_FOREVER)
        return remo__fail(-EINVAL, "cannot sleep: the duration is REMO_FOREVER; give a shorter one");
    struct remo__sentence before = remo__sentence_get();
    remo__pause(node, remo__deadline(duration_ns));
    remo__sentence_put(before);
    return 0;
}

remo_task_id remo_task_current(void) {
    const struct remo__scheduler *scheduler = remo__scheduler;
    return scheduler && remo__is_in_task(scheduler) ? id_of(scheduler->running) : 0;
}
