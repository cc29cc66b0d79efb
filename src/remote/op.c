/* op.c - reads and atomics of any fabric. Without an ack a call waits until its operations are complete, for
 * op_timeout_ns at most. */
#include "remote/op.h"

#include "remote/start.h"

/* Wait for an operation of a caller that passes no ack. `rc` is the result of its start. */
static int wait_own(struct remo__thread *thread, struct remo_ack *own, int rc, const char *what,
                    uint32_t peer) {
    struct remo_node *node = thread->node;
    if (rc == 0)
        rc = remo_ack_wait(own, node->op_timeout_ns);
    remo_ack_cancel(own);
    if (rc == -ETIMEDOUT)
        return remo__peer_timeout(node, peer, what);
    /* the fabric's own sentence, if it is set, has more detail */
    bool has_reason = thread->slots->why_status == rc && remo__peer_is_up(node, peer);
    return rc == -EHOSTDOWN && !has_reason ? remo__peer_fail(node, peer, what) : rc;
}

int remo__op_read(struct remo__thread *thread, struct remo_stats *stats, uint32_t peer, uint64_t offset,
                  void *dst, size_t bytes, struct remo_ack *ack) {
    struct remo_node *node = thread->node;
    struct remo_ack own = REMO_ACK_INIT;
    bool direct = remo__is_direct(node, dst);
    uint64_t piece_max = remo__piece_bytes_max(node, direct), at = 0;
    int rc = 0;
    do {
        uint64_t piece = remo__min(bytes - at, piece_max);
        char *to = (char *)dst + at;
        struct remo__start start = {.slots = thread->slots,
                                    .thread = thread,
                                    .bounce = !direct,
                                    .dst = direct ? NULL : to,
                                    .ack = ack ? ack : &own,
                                    .op = {.kind = REMO__OP_READ,
                                           .flags = ack ? REMO__OP_GATHER : 0,
                                           .peer = (uint16_t)peer,
                                           .remote = offset + at,
                                           .local = to,
                                           .size_bytes = piece}};
        rc = remo__start(&start);
        remo__count(&stats->reads, rc == 0);
        remo__count(&stats->bytes, rc == 0 ? piece : 0);
        at += piece;
    } while (rc == 0 && at < bytes);
    if (!ack)
        return wait_own(thread, &own, rc, "read from", peer);
    remo__ensure_progress(thread);
    return rc;
}

static int post_flush(struct remo__thread *thread, struct remo_stats *stats, uint32_t peer, uint64_t offset,
                      bool tracked, uint64_t deadline_ns) {
    struct remo__start start = {
        .slots = thread->slots,
        .thread = thread,
        .bounce = true,
        .tracked = tracked,
        .flushes = true,
        .deadline_ns = deadline_ns,
        .op = {.kind = REMO__OP_READ, .peer = (uint16_t)peer, .remote = offset, .size_bytes = 8}};
    int rc = remo__start(&start);
    remo__count(&stats->reads, rc == 0);
    remo__count(&stats->bytes, rc == 0 ? 8 : 0);
    remo__ensure_progress(thread);
    return rc;
}

int remo__op_flush(struct remo__thread *thread, struct remo_stats *stats, uint32_t peer, uint64_t offset) {
    return post_flush(thread, stats, peer, offset, true, 0);
}

/* The offset is after the fabric's private part, and never allocated (arena.c). */
int remo__op_flush_writes(struct remo__thread *thread, struct remo_stats *stats, uint32_t peer,
                          uint64_t deadline_ns) {
    return post_flush(thread, stats, peer, thread->node->fabric->private_bytes, false, deadline_ns);
}

int remo__op_atomic(struct remo__thread *thread, struct remo_stats *stats, uint32_t peer, uint64_t offset,
                    uint8_t kind, uint64_t operand, uint64_t compare, uint64_t *ret_old,
                    struct remo_ack *ack) {
    struct remo_node *node = thread->node;
    struct remo_ack own = REMO_ACK_INIT;
    if (!node->fabric->caps.coherent)
        return remo__fail(-EOPNOTSUPP, "fabric %s has no atomics: its memory has no hardware coherence",
                          node->fabric->ops->name);
    struct remo__start start = {.slots = thread->slots,
                                .thread = thread,
                                .bounce = true,
                                .dst = ret_old,
                                .ack = ack ? ack : &own,
                                .op = {.kind = kind,
                                       .peer = (uint16_t)peer,
                                       .remote = offset,
                                       .size_bytes = 8,
                                       .operand = operand,
                                       .compare = compare}};
    int rc = remo__start(&start);
    remo__count(&stats->atomics, rc == 0);
    remo__count(&stats->bytes, rc == 0 ? 8 : 0);
    if (!ack)
        return wait_own(thread, &own, rc, "execute an atomic on", peer);
    remo__ensure_progress(thread);
    return rc;
}
