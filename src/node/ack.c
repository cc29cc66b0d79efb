/* ack.c - see remo/ack.h. */
#include <remo/ack.h>

#include "node/slots.h"

int remo_ack_test(struct remo_ack *ack) {
    if (remo__ack_pending(ack))
        remo__slots_progress(ack->thread);
    if (remo__ack_pending(ack))
        return remo__fail_static(-EINPROGRESS, "operations of this ack are still in flight");
    const struct remo__thread *thread = ack->thread;
    return ack->status == 0 ? 0 : remo__slots_fail(thread->slots, ack->status);
}

static int done(void *ctx) {
    struct remo_ack *ack = ctx;
    if (remo__ack_pending(ack))
        remo__slots_progress(ack->thread);
    return !remo__ack_pending(ack);
}

int remo_ack_wait(struct remo_ack *ack, uint64_t timeout_ns) {
    if (remo__ack_pending(ack)) {
        const struct remo__thread *thread = ack->thread;
        int rc = remo__wait(thread->node, done, ack, remo__deadline(timeout_ns));
        if (rc != 0)
            return rc;
    }
    return remo_ack_test(ack);
}

/* Point the operations of `from` to `into` (NULL: to nobody); how many. The lock is held. */
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

void remo_ack_join(struct remo_ack *into, struct remo_ack *from) {
    if (into == from)
        return;
    if (remo__ack_pending(from)) {
        struct remo__thread *thread = from->thread;
        (void)remo__mutex_lock(thread->node, &thread->slots->lock, REMO_FOREVER);
        uint32_t moved = redirect(thread->slots, from, into);
        __atomic_fetch_add(&into->pending, moved, __ATOMIC_RELAXED);
        into->thread = thread;
        remo__mutex_unlock(thread->node, &thread->slots->lock);
    }
    if (into->status == 0 && from->status != 0) {
        into->status = from->status;
        into->thread = from->thread;
    }
    *from = (struct remo_ack)REMO_ACK_INIT;
}

void remo_ack_cancel(struct remo_ack *ack) {
    if (remo__ack_pending(ack)) {
        struct remo__thread *thread = ack->thread;
        (void)remo__mutex_lock(thread->node, &thread->slots->lock, REMO_FOREVER);
        (void)redirect(thread->slots, ack, NULL);
        remo__mutex_unlock(thread->node, &thread->slots->lock);
    }
    *ack = (struct remo_ack)REMO_ACK_INIT;
}
