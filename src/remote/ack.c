/* ack.c - implements remo/ack.h.
 *
 * An ack counts its operations in flight. Each of their slots points to the ack, and its completion lowers
 * the count (slots.c). Slots change under their lock, so join and cancel redirect them under that lock. */
#include <remo/ack.h>
#include <string.h>

#include "remote/op.h"
#include "remote/slots.h"

int remo__op_fail(struct remo__slots *slots, int status) {
    char reason[REMO__SENTENCE_MAX] = "";
    (void)remo__mutex_lock(slots->node, &slots->lock, REMO_FOREVER);
    if (slots->reason_status == status)
        memcpy(reason, slots->reason, sizeof reason);
    remo__mutex_unlock(slots->node, &slots->lock);
    return reason[0] ? remo__fail(status, "%s", reason)
                     : remo__fail_static(
                         status, "an operation failed: its peer has failed or left, or has rejected it");
}

int remo_ack_test(struct remo_ack *ack) {
    REMO__REQUIRE(ack);
    if (remo__ack_pending(ack)) {
        struct remo__thread *thread = remo__ack_thread(ack);
        if (remo__slots_get(&thread->slots->cork_depth) == 0)
            remo__slots_post_deferred(thread); /* a task may call this again and again, and not wait */
        remo__slots_progress(thread);
    }
    if (remo__ack_pending(ack))
        return remo__fail_static(-EINPROGRESS, "operations of this ack are still in flight");
    const struct remo__thread *thread = remo__ack_thread(ack);
    return ack->status == 0 ? 0 : remo__op_fail(thread->slots, ack->status);
}

struct any {
    struct remo_ack *const *acks;
    uint32_t count;
    uint32_t index; /* of the first ack that is complete */
};

static bool is_any_complete(struct any *any) {
    for (any->index = 0; any->index < any->count; any->index++)
        if (any->acks[any->index] && !remo__ack_pending(any->acks[any->index]))
            return true;
    return false;
}

/* A wait condition. Acks of one thread usually follow each other, so each thread is driven about once. */
static int any_done(void *ctx) {
    struct any *any = ctx;
    struct remo__thread *driven = NULL;
    for (any->index = 0; any->index < any->count; any->index++) {
        struct remo_ack *ack = any->acks[any->index];
        if (!ack)
            continue;
        if (remo__ack_pending(ack) && remo__ack_thread(ack) != driven) {
            driven = remo__ack_thread(ack);
            remo__slots_progress(driven);
        }
        if (!remo__ack_pending(ack))
            return 1;
    }
    return 0;
}

/* Return the first ack that is not NULL, or NULL. */
static const struct remo_ack *first_ack(struct remo_ack *const *acks, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        if (acks[i])
            return acks[i];
    return NULL;
}

/* Set what the completion of the acks resumes: a task, or nothing (NULL). Completions hold the lock too. */
static void set_waiter(const struct any *any, struct remo__thread *thread, struct remo__task *task) {
    (void)remo__mutex_lock(thread->node, &thread->slots->lock, REMO_FOREVER);
    for (uint32_t i = 0; i < any->count; i++)
        if (any->acks[i] && any->acks[i]->thread)
            any->acks[i]->thread = task ? remo__ack_waiter(task) : thread;
    remo__mutex_unlock(thread->node, &thread->slots->lock);
}

static bool are_of_thread(const struct any *any, const struct remo__thread *thread) {
    for (uint32_t i = 0; i < any->count; i++)
        if (any->acks[i] && any->acks[i]->thread && remo__ack_thread(any->acks[i]) != thread)
            return false;
    return true;
}

/* Park the running task once, until an ack is complete: the completion resumes it. */
static int park(struct any *any, struct remo__scheduler *scheduler, uint64_t deadline_ns) {
    int rc = 0;
    set_waiter(any, scheduler->thread, scheduler->running);
    /* set_waiter may have parked this task, and the last other one may have ended */
    if (!is_any_complete(any) && remo__scheduler_of(scheduler->node))
        rc = remo__wait_resumed(scheduler->node, deadline_ns);
    set_waiter(any, scheduler->thread, NULL);
    return rc;
}

/* Wait until one of the acks is complete. */
static int wait_any(struct any *any, uint64_t timeout_ns) {
    if (is_any_complete(any))
        return 0;
    struct remo_node *node = remo__ack_thread(first_ack(any->acks, any->count))->node;
    uint64_t deadline_ns = remo__deadline(timeout_ns);
    struct remo__scheduler *scheduler;
    int rc = 0;
    /* Tasks do not poll: operations of all tasks are posted together, when none is ready. A thread that waits
     * after its last task has ended does not park. */
    while (rc == 0 && (scheduler = remo__scheduler_of(node)) && are_of_thread(any, scheduler->thread)) {
        rc = park(any, scheduler, deadline_ns);
        if (is_any_complete(any))
            return 0;
    }
    struct remo__thread *thread = remo__ack_thread(first_ack(any->acks, any->count));
    if (!node->mapped && remo__slots_get(&thread->slots->cork_depth) == 0)
        remo__slots_post_deferred(thread); /* a task may call this again and again with timeout 0 */
    if (any_done(any))
        return 0;
    return rc ? rc : remo__wait_polling(node, any_done, any, deadline_ns);
}

int remo_ack_wait(struct remo_ack *ack, uint64_t timeout_ns) {
    REMO__REQUIRE(ack);
    if (remo__ack_pending(ack)) {
        struct any any = {.acks = &ack, .count = 1};
        int rc = wait_any(&any, timeout_ns);
        if (rc != 0)
            return rc;
    }
    return remo_ack_test(ack);
}

/* The first operation is not started yet, so no completion reads the waiter. */
struct remo_ack remo__ack_awaited(struct remo__thread *thread) {
    struct remo_ack ack = REMO_ACK_INIT;
    struct remo__scheduler *scheduler = thread->node->mapped ? NULL : remo__scheduler_of(thread->node);
    if (scheduler && scheduler->thread == thread)
        ack.thread = remo__ack_waiter(scheduler->running);
    return ack;
}

/* Workers run briefly, so one reading of the clock serves all of them in a run. */
static uint64_t deadline_of(struct remo__scheduler *scheduler, uint64_t timeout_ns) {
    uint64_t deadline_ns;
    if (scheduler != scheduler->thread->workers)
        return remo__deadline(timeout_ns);
    if (scheduler->now_ns == 0)
        scheduler->now_ns = remo__now_ns();
    return __builtin_add_overflow(scheduler->now_ns, timeout_ns, &deadline_ns) ? REMO_FOREVER : deadline_ns;
}

/* The ack has its waiter since before the start, so a wait takes no lock. The last other task may end while
 * this one is parked: then remo_ack_wait waits. */
int remo__ack_await(struct remo_ack *ack, uint64_t timeout_ns) {
    struct remo__thread *thread = remo__ack_thread(ack);
    struct remo__scheduler *scheduler;
    uint64_t deadline_ns = 0;
    int rc = 0;
    while (rc == 0 && remo__ack_pending(ack) && remo__ack_task(ack)
           && (scheduler = remo__scheduler_of(thread->node)) && scheduler->thread == thread) {
        deadline_ns = deadline_ns ? deadline_ns : deadline_of(scheduler, timeout_ns);
        rc = remo__wait_parked(scheduler, deadline_ns);
    }
    if (!remo__ack_pending(ack))
        ack->thread = thread; /* nothing is to be resumed any more */
    else if (rc == 0)
        return remo_ack_wait(ack, timeout_ns);
    else
        return rc;
    return ack->status == 0 ? 0 : remo__op_fail(thread->slots, ack->status);
}

int remo_ack_wait_any(struct remo_ack *const *acks, uint32_t count, uint64_t timeout_ns,
                      uint32_t *ret_index) {
    if (!acks || !ret_index || !first_ack(acks, count))
        return remo__fail(-EINVAL, "cannot wait for any of %u acks: none is given, or ret_index is NULL",
                          acks ? count : 0);
    struct any any = {.acks = acks, .count = count};
    int rc = wait_any(&any, timeout_ns);
    if (rc == 0)
        *ret_index = any.index;
    return rc;
}

/* Redirect the operations of `from` to `into`, or to no ack (NULL). Returns their number. The lock
 * is held. */
static uint32_t redirect(struct remo__slots *slots, const struct remo_ack *from, struct remo_ack *into) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < slots->depth; i++) {
        struct remo__slot *slot = &slots->slot[i];
        if (!slot->busy || slot->ack != from)
            continue;
        slot->ack = into;
        if (!into)
            slot->dst = NULL;
        count++;
    }
    return count;
}

/* Make an ack complete. A task that waits for it continues. */
static void reset(struct remo_ack *ack) {
    struct remo__task *waiter = remo__ack_task(ack);
    *ack = (struct remo_ack)REMO_ACK_INIT;
    if (waiter)
        remo__task_resume(waiter);
}

void remo_ack_join(struct remo_ack *into, struct remo_ack *from) {
    if (!into || !from || into == from)
        return;
    struct remo__thread *thread = remo__ack_thread(from);
    if (remo__ack_pending(from)) {
        (void)remo__mutex_lock(thread->node, &thread->slots->lock, REMO_FOREVER);
        uint32_t moved = redirect(thread->slots, from, into);
        __atomic_fetch_add(&into->pending, moved, __ATOMIC_RELAXED);
        remo__ack_set_thread(into, thread);
        remo__mutex_unlock(thread->node, &thread->slots->lock);
    }
    if (into->status == 0 && from->status != 0) {
        into->status = from->status;
        remo__ack_set_thread(into, thread);
    }
    reset(from);
}

void remo_ack_cancel(struct remo_ack *ack) {
    if (!ack)
        return;
    if (remo__ack_pending(ack)) {
        struct remo__thread *thread = remo__ack_thread(ack);
        (void)remo__mutex_lock(thread->node, &thread->slots->lock, REMO_FOREVER);
        (void)redirect(thread->slots, ack, NULL);
        remo__mutex_unlock(thread->node, &thread->slots->lock);
    }
    reset(ack);
}

int remo__ack_settle(struct remo_ack *ack, uint64_t timeout_ns) {
    int rc = remo_ack_wait(ack, timeout_ns);
    remo_ack_cancel(ack);
    return rc;
}
