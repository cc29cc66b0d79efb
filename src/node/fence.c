/* fence.c - pair, thread and global fences, each by the cheapest means the fabric allows.
 *
 * Mapped fabrics: stores of this CPU become visible in order; only a later load may overtake them, which one
 * CPU fence forbids. What other threads of this node wrote is placed already: "happened before this call"
 * means that we have seen something they stored later. Others: reads and atomics are done when they have
 * completed. Writes are placed when they have completed (caps.completion_placed) or when a read of the same
 * endpoint from the same peer, posted later, has (caps.read_flushes). Between operations of one endpoint to
 * one peer, ordered writes need nothing at all.
 */
#include "base/mutant.h"
#include "node/slots.h"

/* Where the flushing read looks: past the fabric's private part, never given out (arena.c). */
static uint64_t flush_offset(const struct remo_node *node) {
    return node->fabric->private_bytes;
}

struct drain {
    struct remo__slots *slots;
    struct remo__thread *thread;
    uint32_t first, end; /* peers */
    bool writes;
};

static int drained(void *ctx) {
    const struct drain *drain = ctx;
    remo__slots_progress(drain->thread);
    for (uint32_t peer = drain->first; peer < drain->end; peer++) {
        const struct remo__slots_peer *of = &drain->slots->peers[peer];
        if (remo__slots_get(&of->others) > 0 || (drain->writes && remo__slots_get(&of->writes) > 0))
            return 0;
    }
    return 1;
}

/* Another thread may have got further at the same time. */
static void advance(_Atomic uint64_t *flushed, uint64_t written) {
    uint64_t before = atomic_load(flushed);
    while (before < written && !atomic_compare_exchange_weak(flushed, &before, written))
        continue;
}

/* A read behind the writes of `thread` to each peer of the range that may have unplaced ones. Counted as
 * ours. */
static int flush(struct remo__thread *me, struct remo__thread *thread, uint32_t first, uint32_t end) {
    struct remo_node *node = me->node;
    struct remo_ack ack = REMO_ACK_INIT;
    uint64_t scratch[1], written[REMO_NODES_MAX];
    int rc = 0;
    for (uint32_t peer = first; peer < end; peer++) {
        const struct remo__slots_peer *of = &thread->slots->peers[peer];
        written[peer] = atomic_load(&of->written);
        if (written[peer] == atomic_load(&of->flushed) || !remo__peer_alive(node, peer))
            continue;
        int one =
            remo__op_read(thread, &me->stats[0], peer, flush_offset(node), scratch, sizeof scratch, &ack);
        rc = rc ? rc : one;
    }
    int waited = remo_ack_wait(&ack, node->op_timeout_ns);
    remo_ack_cancel(&ack);
    rc = rc ? rc : waited;
    for (uint32_t peer = first; peer < end && rc == 0; peer++)
        advance(&thread->slots->peers[peer].flushed, written[peer]);
    return rc;
}

/* Errors of writes that nobody waited for. */
static int collect_errors(struct remo__thread *thread, uint32_t first, uint32_t end) {
    int rc = 0;
    for (uint32_t peer = first; peer < end; peer++) {
        struct remo__slots_peer *of = &thread->slots->peers[peer];
        int error = atomic_load(&of->error) ? atomic_exchange(&of->error, 0) : 0;
        if (error != 0)
            rc = remo__fail(
                error,
                "a write to node %u since the last fence failed (%s); whether it was applied is unknown",
                peer, remo_error_name(error));
    }
    return rc;
}

static int fence_slots(struct remo__thread *me, struct remo__thread *thread, uint32_t first, uint32_t end,
                       bool pair) {
    const struct remo__fabric_caps *caps = &me->node->fabric->caps;
    bool ordered = pair && (caps->writes_ordered || REMO__MUTANT(fence_pair_unordered));
    struct drain drain = {.slots = thread->slots,
                          .thread = thread,
                          .first = first,
                          .end = end,
                          .writes = !ordered && caps->completion_placed && !REMO__MUTANT(fence_drain)};
    int rc = 0;
    if (!ordered && !caps->completion_placed && !REMO__MUTANT(fence_flush))
        rc = flush(me, thread, first, end);
    int waited =
        drained(&drain) ? 0 : remo__wait(me->node, drained, &drain, remo__deadline(me->node->op_timeout_ns));
    rc = rc ? rc : waited;
    int told = thread == me ? collect_errors(thread, first, end) : 0; /* others' errors are told to them */
    return rc ? rc : told;
}

int remo_fence(struct remo_node *node, enum remo_fence_scope scope, uint32_t peer) {
    if (remo__unlikely((scope == REMO_FENCE_PAIR && peer >= node->size)
                       || (uint32_t)scope > REMO_FENCE_GLOBAL))
        return remo__fail(-EINVAL, "a fence of scope %d with node %u makes no sense in a job of %u nodes",
                          (int)scope, peer, node->size);
    struct remo__thread *thread = remo__thread(node);
    if (remo__unlikely(!thread))
        return -EAGAIN;
#ifdef REMO_SIM
    remo__sim_turn("fence");
#endif
    if (node->mapped) {
        if (thread->unfenced && scope != REMO_FENCE_NONE)
            remo__mapped_fence();
        thread->unfenced = thread->unfenced && scope == REMO_FENCE_NONE;
        return 0;
    }
    if (scope == REMO_FENCE_NONE)
        return 0;
    if (scope == REMO_FENCE_PAIR)
        return fence_slots(thread, thread, peer, peer + 1, true);
    int rc = fence_slots(thread, thread, 0, node->size, false);
    uint32_t count = scope == REMO_FENCE_GLOBAL && !REMO__MUTANT(fence_other_threads) ? atomic_load(&node->threads_count) : 0;
    for (uint32_t i = 0; i < count; i++) {
        int other =
            node->threads[i] == thread ? 0 : fence_slots(thread, node->threads[i], 0, node->size, false);
        rc = rc ? rc : other;
    }
    return rc;
}
