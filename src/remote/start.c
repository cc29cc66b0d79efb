/* start.c - starts an operation: takes a slot, and posts or defers the operation.
 *
 * Operations to one peer are posted in the order of their starts, so none overtakes a deferred one. A start
 * waits while all slots are in use or the fabric's queue is full, until its deadline. */
#include "remote/start.h"

#include "node/arena.h"
#include "remote/scheduler.h"
#include "remote/wait.h"

/* A wait condition: the operation is posted or deferred. */
static int try_start(void *ctx) {
    struct remo__start *start = ctx;
    const struct remo__slots *slots = start->slots;
    int rc = remo__slots_try_start(start);
    if (rc == 0 && !remo__peer_is_up(slots->node, start->op.peer))
        return remo__peer_fail(slots->node, start->op.peer, "start an operation with");
    return rc;
}

/* The earlier operations of the ack may be complete: then this was the last one for which a task waits. */
static void abandon_start(struct remo_ack *ack) {
    struct remo__task *waiter = remo__ack_task(ack);
    if (__atomic_fetch_sub(&ack->pending, 1, __ATOMIC_RELAXED) == 1 && waiter)
        remo__task_resume(waiter);
}

static int wait_to_start(struct remo__start *start) {
    struct remo_node *node = start->slots->node;
    uint64_t deadline_ns =
        start->deadline_ns == REMO__OP_DEADLINE ? remo__deadline(node->op_timeout_ns) : start->deadline_ns;
    return remo__wait_polling(node, try_start, start, deadline_ns);
}

int remo__start(struct remo__start *start) {
    struct remo_node *node = start->slots->node;
    if (!remo__peer_is_up(node, start->op.peer))
        return remo__peer_fail(node, start->op.peer, "start an operation with");
    const struct remo__scheduler *scheduler = remo__scheduler_of(node);
    start->of_task = !node->mapped && scheduler && scheduler->thread == start->thread;
    start->worker = start->of_task ? remo__holder_worker(start->thread->holder) : 0;
    if (start->ack) {
        remo__ack_set_thread(start->ack, start->thread);
        __atomic_fetch_add(&start->ack->pending, 1, __ATOMIC_RELAXED);
    }
    int rc = try_start(start);
    rc = remo__likely(rc == 1) ? 0 : rc == 0 ? wait_to_start(start) : rc;
    if (rc != 0 && start->ack)
        abandon_start(start->ack);
    return rc;
}

bool remo__is_direct(const struct remo_node *node, const void *buffer) {
    const char *base = remo__arena_base(node->arena);
    return node->mapped
           || ((const char *)buffer >= base
               && (const char *)buffer < base + remo__arena_reserved(node->arena));
}

uint64_t remo__piece_bytes_max(const struct remo_node *node, bool is_direct) {
    uint64_t bytes = node->fabric->caps.message_bytes_max;
    return is_direct ? bytes : remo__min(bytes, REMO__BOUNCE_BYTES);
}

void remo__ensure_progress(struct remo__thread *thread) {
    const struct remo_node *node = thread->node;
    const struct remo__scheduler *scheduler = remo__scheduler_of(node);
    /* Workers return to a call that posts, and wait for each operation that they start; a poll of the program
     * lets them continue. */
    if (node->mapped || (scheduler && scheduler == thread->workers))
        return;
    /* A task may compute before the thread posts its operation. */
    if (!node->fabric->caps.driven_by_device || scheduler)
        remo__request_sweeps(thread->node);
}
