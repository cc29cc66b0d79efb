/* fabric.c - the parts of fabric.h that all fabrics share: doorbells, and the check of operations.
 *
 * Doorbells lose no wake-up. The notifier executes a full fence, or the sleeper does so for both; then the
 * notifier reads `sleepers`. The sleeper counts itself and then checks its condition. It reads `seen_seq`
 * before that check, so the futex does not sleep after a notification in between. */
#include "fabric/fabric.h"

#include <errno.h>

#include "base/error.h"
#include "base/futex.h"
#include "base/threads_fence.h"
#include "fabric/mapped.h"

/* ---- doorbells ---- */

void remo__doorbell_notify(struct remo__doorbell *bell) {
    atomic_fetch_add(&bell->seq, 1);
    remo__futex_wake_all(&bell->seq);
}

/* On arm64 an atomic addition is not a full fence. */
void remo__doorbell_add_sleeper(struct remo__doorbell *bell) {
    atomic_fetch_add(&bell->sleepers, 1);
    remo__mapped_fence();
    if (atomic_load_explicit(&bell->sleepers_fence, memory_order_relaxed))
        remo__machine_fence();
}

void remo__doorbell_sleep(struct remo__doorbell *bell, uint32_t seen_seq, uint64_t timeout_ns) {
    remo__futex_wait(&bell->seq, seen_seq, timeout_ns);
}

/* ---- operations ---- */

int remo__fabric_check_op(const struct remo__fabric *fabric, const struct remo__op *op) {
    bool is_atomic = op->kind == REMO__OP_FETCH_ADD || op->kind == REMO__OP_COMPARE_SWAP;
    if (op->peer >= fabric->size)
        return remo__fail(-EINVAL, "no peer %u in a job of %u nodes", op->peer, fabric->size);
    if (op->kind > REMO__OP_COMPARE_SWAP)
        return remo__fail(-EINVAL, "no operation of kind %u exists", op->kind);
    if (is_atomic && (op->size_bytes != sizeof(uint64_t) || op->remote % sizeof(uint64_t) != 0))
        return remo__fail(-EINVAL,
                          "an atomic needs 8 bytes at a multiple of 8, not %llu bytes at offset %#llx",
                          (unsigned long long)op->size_bytes, (unsigned long long)op->remote);
    if (op->kind != REMO__OP_WRITE && (op->flags & (REMO__OP_NOTIFY | REMO__OP_IMM)))
        return remo__fail(-EINVAL, "only a write can notify or carry an immediate");
    if (op->size_bytes > fabric->caps.message_bytes_max)
        return remo__fail(-EMSGSIZE, "an operation of %llu bytes is too large: at most %llu",
                          (unsigned long long)op->size_bytes,
                          (unsigned long long)fabric->caps.message_bytes_max);
    if ((op->flags & REMO__OP_INLINE) && op->size_bytes > fabric->caps.inline_bytes)
        return remo__fail(-EMSGSIZE, "%llu bytes are too many for an inline write: at most %u",
                          (unsigned long long)op->size_bytes, fabric->caps.inline_bytes);
    return 0;
}

/* ---- entries of fabrics without connections, helper threads or counters ---- */

bool remo__fabric_never_lost(struct remo__fabric *fabric, uint32_t peer) {
    (void)fabric, (void)peer;
    return false;
}

void remo__fabric_takes_none(struct remo__fabric *fabric, bool is_first) {
    (void)fabric, (void)is_first;
}

void remo__fabric_wire_none(struct remo__fabric *fabric, struct remo__fabric_wire *ret_wire) {
    (void)fabric;
    *ret_wire = (struct remo__fabric_wire){0};
}
