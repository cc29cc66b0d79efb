/* kept_stripe.c - a stripe that stays locked after its change, while a write of the change may be in flight.
 *
 * Invariant: the stripe is released only when the write is no longer in flight, because a late write would
 * overwrite the next holder's change. A thread, task or worker keeps at most one stripe, because it makes no
 * other change before the release. */
#include <errno.h>

#include "systems/kv/kv.h"

int remo__kv_keep_locked(struct remo_kv *kv, struct remo__kv_thread *mine, uint32_t stripe, uint32_t node) {
    mine->is_kept = true;
    mine->kept_stripe = stripe;
    mine->kept_node = node;
    mine->kept_holder = mine->thread->holder;
    atomic_fetch_add_explicit(&kv->kept_count, 1, memory_order_relaxed);
    return remo__fail_more(-ETIMEDOUT, "map %s: the outcome of the change is unknown",
                           remo_channel_name(kv->channel));
}

/* The holder may be a worker or task that has ended: its thread releases for it. */
static int release_as_holder(struct remo_kv *kv, struct remo__kv_thread *mine) {
    uint32_t holder = mine->thread->holder;
    mine->thread->holder = mine->kept_holder;
    int rc = remo_lock_release(kv->locks, mine->kept_stripe, REMO_FENCE_NONE);
    mine->thread->holder = holder;
    return rc == -EAGAIN ? -ETIMEDOUT : 0; /* other errors do not concern this call */
}

static int try_release(struct remo_kv *kv, struct remo__kv_thread *mine) {
    if (remo__now_ns() < mine->kept_next_ns || mine->is_releasing)
        return -ETIMEDOUT;
    mine->is_releasing = true; /* the fence may park: no other task may try meanwhile */
    int rc = remo__fence_retry_peer(mine->thread, mine->kept_node, REMO__KV_RELEASE_TIMEOUT_NS, NULL);
    if (rc == 0)
        rc = release_as_holder(kv, mine);
    mine->is_releasing = false;
    if (rc != 0)
        mine->kept_next_ns = remo__deadline(REMO__KV_RELEASE_INTERVAL_NS);
    return rc;
}

/* Returns 0 also if no stripe is kept. */
int remo__kv_release_kept(struct remo_kv *kv, struct remo__kv_thread *mine) {
    if (mine->is_kept && try_release(kv, mine) != 0)
        return -ETIMEDOUT;
    if (mine->is_kept)
        atomic_fetch_sub_explicit(&kv->kept_count, 1, memory_order_relaxed);
    mine->is_kept = false;
    return 0;
}

/* A release may park. Meanwhile another task may replace the array `tasks`, so each iteration reads it
 * again. */
void remo__kv_release_all(struct remo_kv *kv, const struct remo__thread *thread) {
    struct remo__kv_thread *of_thread = atomic_load(&kv->threads[thread->index]);
    (void)remo__kv_release_kept(kv, of_thread);
    for (struct remo__kv_thread *own = of_thread->workers; own; own = own->next_worker)
        (void)remo__kv_release_kept(kv, own);
    for (uint32_t i = 0; i < of_thread->tasks_count; i++)
        if (of_thread->tasks[i])
            (void)remo__kv_release_kept(kv, of_thread->tasks[i]);
}

static int release_again(void *ctx) {
    struct remo__kv_thread *mine = ctx;
    return remo__kv_release_kept(mine->kv, mine) == 0;
}

int remo__kv_await_kept(struct remo_kv *kv, struct remo__kv_thread *mine, uint64_t deadline_ns) {
    int rc = remo__wait_attempt(kv->node, release_again, mine, deadline_ns);
    return rc == 0 ? 0
                   : remo__fail(rc,
                                "an operation on %s timed out: the write of an earlier change may still be "
                                "in flight; try again",
                                remo_channel_name(kv->channel));
}
