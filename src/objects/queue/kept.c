/* kept.c - retracts the claims of failed pushes, and keeps those that cannot be retracted yet.
 * Invariant: a claim is retracted only when no write of its push is in flight. The calls that retract kept
 * claims do not wait: they start an operation if they can, and a later call takes its result.
 * docs/internals/queue.md, "Failed pushes", describes the steps. */
#include <assert.h>

#include "objects/queue/queue.h"

#define RETRIES_MAX 2u /* of a retraction that fails */

static struct remo__queue_kept_claim *own_entry(const struct remo__queue_op *op) {
    return &op->queue->kept[op->thread->index];
}

/* Start the operation of the next step, before the deadline (0: without waiting). The read follows the writes
 * on their connection: when it is complete, they are placed. */
static int start_next(struct remo__queue_op *op, struct remo__queue_kept_claim *kept, uint64_t deadline_ns) {
    const struct remo__queue_slot *slot = &kept->slot;
    enum remo__queue_retraction next = kept->step + 1;
    struct remo__ref ref = slot->ref;
    /* Only a thread itself changes its counters, and another thread may have claimed the slot. */
    ref.stats = remo__channel_counters(op->queue->channel, op->thread);
    int rc = next == REMO__QUEUE_RETRACT_READ
                 ? remo__op_start_read(ref, &kept->found, sizeof kept->found, &kept->ack, deadline_ns)
                 : remo__op_start_compare_swap(ref, kept->claim, remo__queue_free_claim(slot->lap + 1),
                                               &kept->found, &kept->ack, deadline_ns);
    if (rc == 0)
        kept->step = next;
    return rc;
}

/* Forget the result of a failed read or compare-swap. The next step is a new read. A compare-swap that is
 * applied late has no effect: the word never has the value of the claim again. */
static void restart(struct remo__queue_kept_claim *kept) {
    remo_ack_cancel(&kept->ack);
    kept->outcome_unknown = kept->outcome_unknown || kept->step == REMO__QUEUE_RETRACT_SWAP;
    kept->step = REMO__QUEUE_RETRACT_WRITES;
}

/* Advance a retraction without waiting for the owner. Operations start before the deadline (0: without
 * waiting). Returns 0 if the slot is free and the element was not pushed. Returns 1 if a pop has removed the
 * element, or (outcome_unknown) an earlier attempt has freed the slot.
 * Errors: those of the operations; -ETIMEDOUT: the next one has not started; -EINPROGRESS: an operation of
 *         the step is in flight. */
static int advance(struct remo__queue_op *op, struct remo__queue_kept_claim *kept, uint64_t deadline_ns) {
    int rc = remo_ack_test(&kept->ack);
    while (rc != -EINPROGRESS) {
        enum remo__queue_retraction done = kept->step;
        if (done == REMO__QUEUE_RETRACT_WRITES) {
            remo_ack_cancel(&kept->ack); /* a failed write is no longer in flight either */
        } else if (rc != 0) {
            restart(kept);
            return rc;
        } else if (kept->found != kept->claim) {
            return 1;
        } else if (done == REMO__QUEUE_RETRACT_SWAP) {
            return 0;
        }
        rc = start_next(op, kept, deadline_ns);
        if (rc != 0)
            return rc;
        rc = remo_ack_test(&kept->ack);
    }
    return rc;
}

/* Advance a retraction, and wait for its read and compare-swap. It does not wait for writes in flight: the
 * push has waited for them already. Errors: those of advance. */
static int advance_and_wait(struct remo__queue_op *op, struct remo__queue_kept_claim *kept) {
    uint64_t deadline_ns = remo__deadline(op->queue->node->op_timeout_ns);
    int rc = advance(op, kept, deadline_ns);
    while (rc == -EINPROGRESS && kept->step != REMO__QUEUE_RETRACT_WRITES
           && remo_ack_wait(&kept->ack, remo__remaining_ns(deadline_ns)) != -ETIMEDOUT)
        rc = advance(op, kept, deadline_ns);
    return rc;
}

/* Keep a claim, so that later calls retract it. The entry is free: otherwise the push would have failed
 * at its start. */
static void keep_claim(struct remo__queue_op *op, struct remo__queue_kept_claim *kept) {
    struct remo_queue *queue = op->queue;
    struct remo__queue_kept_claim *entry = own_entry(op);
    if (kept->step != REMO__QUEUE_RETRACT_WRITES)
        restart(kept); /* the operation in flight refers to *kept */
    (void)remo__mutex_lock(queue->node, &queue->kept_mutex, REMO_FOREVER);
    assert(!entry->is_used);
    *entry = *kept;
    entry->ack = (struct remo_ack)REMO_ACK_INIT;
    remo_ack_join(&entry->ack, &kept->ack);
    atomic_store(&entry->is_used, true);
    atomic_fetch_add(&queue->kept_count, 1);
    remo__mutex_unlock(queue->node, &queue->kept_mutex);
    remo_ack_cancel(&kept->ack);
    remo__wake(queue->node); /* threads that wait behind the claim advance the retraction */
}

/* Note the result of a retraction: after 0, or 1 with an unknown outcome, it has freed the slot. */
static void note_retracted(struct remo__queue_op *op, const struct remo__queue_kept_claim *kept, int rc) {
    op->has_retracted = op->has_retracted || rc == 0 || (rc == 1 && kept->outcome_unknown);
}

/* Notify the waiters of both sides if this call has retracted a claim: a pop can pass the ticket, and a push
 * can claim the slot. Not while a mutex is held, because the notification blocks. */
static void notify_of_retraction(struct remo__queue_op *op) {
    if (!op->has_retracted)
        return;
    op->has_retracted = false;
    remo__queue_notify_waiters(op, REMO__QUEUE_TAIL);
    remo__queue_notify_waiters(op, REMO__QUEUE_HEAD);
}

int remo__queue_retract_or_keep(struct remo__queue_op *op, struct remo__queue_kept_claim *kept) {
    int rc = -EIO;
    for (uint32_t i = 0; i <= RETRIES_MAX && rc < 0 && rc != -EINPROGRESS && !remo__is_departure(rc); i++)
        rc = advance_and_wait(op, kept);
    if (rc < 0 && !remo__is_departure(rc))
        keep_claim(op, kept);
    else
        remo_ack_cancel(&kept->ack);
    note_retracted(op, kept, rc);
    notify_of_retraction(op);
    return rc == 1 && kept->outcome_unknown ? -EIO : rc;
}

/* Advance the retraction of a kept claim; the mutex is held. The entry is free if the claim is retracted, or
 * if its slot's owner has failed or left. Returns whether an operation of the retraction is in flight, or
 * waits for a free slot of its thread. */
static bool advance_kept(struct remo__queue_op *op, struct remo__queue_kept_claim *kept) {
    int rc = advance(op, kept, 0);
    if (rc < 0 && !remo__is_departure(rc))
        return rc == -ETIMEDOUT || (rc == -EINPROGRESS && kept->step != REMO__QUEUE_RETRACT_WRITES);
    note_retracted(op, kept, rc);
    remo_ack_cancel(&kept->ack);
    atomic_store(&kept->is_used, false);
    atomic_fetch_sub(&op->queue->kept_count, 1);
    return false;
}

void remo__queue_retract_kept_claims(struct remo__queue_op *op) {
    struct remo_queue *queue = op->queue;
    if (remo__mutex_lock(queue->node, &queue->kept_mutex, remo__deadline(0)) != 0)
        return; /* another thread retracts them */
    for (uint32_t i = 0; i < REMO__THREADS_MAX; i++)
        if (atomic_load(&queue->kept[i].is_used))
            (void)advance_kept(op, &queue->kept[i]);
    remo__mutex_unlock(queue->node, &queue->kept_mutex);
    notify_of_retraction(op);
}

/* A wait condition: the claim of this thread is retracted. Fails if no operation of the retraction is in
 * flight or about to start: the next push retries. */
static int is_retracted(void *ctx) {
    struct remo__queue_op *op = ctx;
    struct remo_queue *queue = op->queue;
    struct remo__queue_kept_claim *kept = own_entry(op);
    if (!atomic_load(&kept->is_used))
        return 1;
    if (remo__mutex_lock(queue->node, &queue->kept_mutex, remo__deadline(0)) != 0)
        return 0; /* another thread advances it */
    bool continues = atomic_load(&kept->is_used) && advance_kept(op, kept);
    remo__mutex_unlock(queue->node, &queue->kept_mutex);
    if (!atomic_load(&kept->is_used))
        return 1;
    return continues ? 0 : -EIO;
}

int remo__queue_retract_own_claim(struct remo__queue_op *op) {
    struct remo_queue *queue = op->queue;
    if (remo__likely(atomic_load_explicit(&queue->kept_count, memory_order_relaxed) == 0))
        return 0;
    int rc = remo__wait_polling(queue->node, is_retracted, op, remo__deadline(queue->node->op_timeout_ns));
    notify_of_retraction(op);
    if (rc == 0)
        return 0;
    return remo__fail(
        -EIO,
        "cannot push to queue %s: an earlier push of this thread has failed, and may still write "
        "to its slot at node %u; push again when the node answers",
        remo_channel_name(queue->channel), own_entry(op)->slot.ref.node);
}

void remo__queue_drop_kept_claims(struct remo_queue *queue) {
    for (uint32_t i = 0; i < REMO__THREADS_MAX; i++)
        remo_ack_cancel(&queue->kept[i].ack);
}
