/* op.c - reads and atomics of any fabric. Without an ack a call waits until its operations are complete, for
 * op_timeout_ns at most. */
#include "remote/op.h"

#include <assert.h>

#include "remote/scheduler.h"
#include "remote/start.h"

/* Wait for an operation of a caller that passes no ack. `rc` is the result of its start. */
static int wait_own(struct remo__ref ref, struct remo_ack *own, int rc, const char *what) {
    struct remo_node *node = ref.thread->node;
    if (remo__scheduler_of(node)) /* another task may compute before the thread posts the operations */
        remo__ensure_progress(ref.thread);
    if (rc == 0)
        rc = remo__ack_await(own, node->op_timeout_ns);
    if (rc != 0)
        remo_ack_cancel(own);
    if (rc == -ETIMEDOUT)
        return remo__peer_timeout(node, ref.node, what);
    return rc == -EHOSTDOWN ? remo__peer_fail(node, ref.node, what) : rc;
}

/* Start a read of one piece. */
static int start_read(struct remo__ref ref, void *dst, size_t bytes, uint8_t flags, struct remo_ack *ack,
                      uint64_t deadline_ns) {
    bool direct = remo__is_direct(ref.thread->node, dst);
    struct remo__start start = {.slots = ref.thread->slots,
                                .thread = ref.thread,
                                .bounce = !direct,
                                .dst = direct ? NULL : dst,
                                .ack = ack,
                                .deadline_ns = deadline_ns,
                                .op = {.kind = REMO__OP_READ,
                                       .flags = flags,
                                       .peer = (uint16_t)ref.node,
                                       .remote = ref.at,
                                       .local = dst,
                                       .size_bytes = bytes}};
    int rc = remo__start(&start);
    remo__count(&ref.stats->reads, rc == 0);
    remo__count(&ref.stats->bytes, rc == 0 ? bytes : 0);
    return rc;
}

int remo__op_read(struct remo__ref ref, void *dst, size_t bytes, struct remo_ack *ack) {
    struct remo_node *node = ref.thread->node;
    struct remo_ack own = remo__ack_awaited(ref.thread);
    uint64_t piece_max = remo__piece_bytes_max(node, remo__is_direct(node, dst)), at = 0;
    uint8_t flags = ack ? REMO__OP_GATHER : 0;
    int rc = 0;
    do {
        uint64_t piece = remo__min(bytes - at, piece_max);
        rc = start_read(remo__ref_after(ref, at), (char *)dst + at, piece, flags, ack ? ack : &own,
                        REMO__OP_DEADLINE);
        at += piece;
    } while (rc == 0 && at < bytes);
    if (!ack)
        return wait_own(ref, &own, rc, "read from");
    remo__ensure_progress(ref.thread);
    return rc;
}

int remo__op_start_read(struct remo__ref ref, void *dst, size_t bytes, struct remo_ack *ack,
                        uint64_t deadline_ns) {
    assert(bytes <= REMO__BOUNCE_BYTES);
    int rc = start_read(ref, dst, bytes, REMO__OP_GATHER, ack, deadline_ns);
    remo__ensure_progress(ref.thread);
    return rc;
}

/* The offset is after the fabric's private part, and never allocated (arena.c). */
int remo__op_flush_writes(struct remo__thread *thread, struct remo_stats *stats, uint32_t peer,
                          uint64_t deadline_ns) {
    struct remo__start start = {.slots = thread->slots,
                                .thread = thread,
                                .bounce = true,
                                .flushes = true,
                                .deadline_ns = deadline_ns,
                                .op = {.kind = REMO__OP_READ,
                                       .peer = (uint16_t)peer,
                                       .remote = thread->node->fabric->private_bytes,
                                       .size_bytes = 8}};
    int rc = remo__start(&start);
    remo__count(&stats->reads, rc == 0);
    remo__count(&stats->bytes, rc == 0 ? 8 : 0);
    remo__ensure_progress(thread);
    return rc;
}

static int start_atomic(struct remo__ref ref, uint8_t kind, uint64_t operand, uint64_t compare,
                        uint64_t *ret_old, struct remo_ack *ack, uint64_t deadline_ns) {
    const struct remo__fabric *fabric = ref.thread->node->fabric;
    if (!fabric->caps.coherent)
        return remo__fail(-EOPNOTSUPP, "fabric %s has no atomics: its memory has no hardware coherence",
                          fabric->ops->name);
    struct remo__start start = {.slots = ref.thread->slots,
                                .thread = ref.thread,
                                .bounce = true,
                                .dst = ret_old,
                                .ack = ack,
                                .deadline_ns = deadline_ns,
                                .op = {.kind = kind,
                                       .peer = (uint16_t)ref.node,
                                       .remote = ref.at,
                                       .size_bytes = 8,
                                       .operand = operand,
                                       .compare = compare}};
    int rc = remo__start(&start);
    remo__count(&ref.stats->atomics, rc == 0);
    remo__count(&ref.stats->bytes, rc == 0 ? 8 : 0);
    return rc;
}

int remo__op_atomic(struct remo__ref ref, uint8_t kind, uint64_t operand, uint64_t compare, uint64_t *ret_old,
                    struct remo_ack *ack) {
    struct remo_ack own = remo__ack_awaited(ref.thread);
    int rc = start_atomic(ref, kind, operand, compare, ret_old, ack ? ack : &own, REMO__OP_DEADLINE);
    if (!ack)
        return wait_own(ref, &own, rc, "execute an atomic on");
    remo__ensure_progress(ref.thread);
    return rc;
}

int remo__op_start_compare_swap(struct remo__ref ref, uint64_t expected, uint64_t desired, uint64_t *ret_old,
                                struct remo_ack *ack, uint64_t deadline_ns) {
    int rc = start_atomic(ref, REMO__OP_COMPARE_SWAP, desired, expected, ret_old, ack, deadline_ns);
    remo__ensure_progress(ref.thread);
    return rc;
}
