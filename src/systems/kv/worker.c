/* worker.c - changes in a window on a network: workers of the thread make them; they hold the locks and wait.
 * Invariant: a change is in the queue of its window while its step is QUEUED. "Windows" in
 * docs/internals/kv.md. */
#include "systems/kv/kv.h"

/* ---- the queue ---- */

static void append_change(struct remo__kv_thread *mine, struct remo_kv_op *op) {
    remo__kv_op_state(op)->step = REMO__KV_STEP_QUEUED;
    remo__kv_op_state(op)->next_change = NULL;
    if (mine->first_change)
        remo__kv_op_state(mine->last_change)->next_change = op;
    else
        mine->first_change = op;
    mine->last_change = op;
    mine->changes_count++;
}

void remo__kv_queue_change(struct remo__kv_thread *mine, struct remo_kv_op *op) {
    if (!remo__kv_try_merge(mine, op))
        append_change(mine, op);
}

static struct remo_kv_op *take_change(struct remo__kv_thread *mine) {
    struct remo_kv_op *op = mine->first_change;
    if (!op)
        return NULL;
    mine->first_change = remo__kv_op_state(op)->next_change;
    mine->changes_count--;
    remo__kv_op_state(op)->step = REMO__KV_STEP_CHANGE;
    return op;
}

void remo__kv_unqueue_change(struct remo__kv_thread *mine, const struct remo_kv_op *op) {
    struct remo_kv_op *all = mine->first_change, *next;
    mine->first_change = NULL;
    mine->changes_count = 0;
    for (; all; all = next) {
        next = remo__kv_op_state(all)->next_change;
        if (all != op)
            append_change(mine, all);
    }
}

/* ---- workers ---- */

/* Complete the updates that are merged into that of the worker. */
static void complete_merged(struct remo__kv_thread *own, int status) {
    struct remo_kv_op *next;
    for (struct remo_kv_op *op = remo__kv_take_merged(own); op; op = next) {
        next = remo__kv_op_state(op)->next_change;
        remo__kv_complete(own->window, op, status);
    }
}

/* Make a change of the window, in a worker. If a poll aborts it, the poll sets the sentence. */
static void make_change(struct remo_kv *kv, struct remo__kv_thread *own, struct remo_kv_op *op) {
    struct remo__kv_op_state *state = remo__kv_op_state(op);
    state->is_awaited = true;
    remo__kv_offer_update(own, op);
    int status = remo__kv_lock_and_change(kv, own, op);
    if (status == -EINPROGRESS) {
        state->deadline_ns = 0; /* of the record */
        state->worker = remo__scheduler->running;
        while (state->step != REMO__KV_STEP_SETTLED)
            (void)remo__wait_resumed(kv->node, REMO_FOREVER);
        status = remo__kv_change_finish(kv, op);
    }
    if (status < 0 && state->outcome == 0)
        remo__worker_report(state->owner->last_error);
    remo__kv_complete(state->owner, op, status);
    complete_merged(own, status);
}

/* A worker makes changes until none is left, or until it can make no more. */
static int work(void *ctx) {
    struct remo__kv_thread *own = ctx;
    struct remo_kv_op *op;
    while (remo__kv_worker_is_able(own) && (op = take_change(own->window)) != NULL)
        if (!remo__kv_try_merge(own->window, op))
            make_change(own->kv, own, op);
    remo__kv_worker_give(own);
    return 0;
}

void remo__kv_run_workers(struct remo_kv *kv, struct remo__kv_thread *mine) {
    struct remo__kv_thread *own;
    int rc = 0;
    for (uint32_t i = 0; i < mine->changes_count && (own = remo__kv_worker_take(kv, mine)) != NULL; i++) {
        rc = remo__worker_start(mine->thread, work, own);
        if (rc != 0) {
            remo__kv_worker_give(own);
            break;
        }
    }
    remo__workers_run(mine->thread);
    struct remo_kv_op *op;
    while (rc == -ENOMEM && (op = take_change(mine)) != NULL)
        remo__kv_complete(mine, op, rc);
}
