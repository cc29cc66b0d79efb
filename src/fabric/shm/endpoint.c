/* endpoint.c - endpoints of the shm fabric.
 *
 * A post executes its operations; a poll returns their completions. A completion means that the data is
 * placed, so a poll first does the full fence that earlier writes need (mapped.h). */
#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/futex.h"
#include "fabric/mapped.h"
#include "fabric/shm/shm.h"

int remo__shm_endpoint_open(struct remo__fabric *fabric, struct remo__endpoint **ret_endpoint) {
    struct remo__endpoint *endpoint = calloc(1, sizeof *endpoint);
    if (!endpoint)
        return remo__fail(-ENOMEM, "no memory for an endpoint of %zu bytes", sizeof *endpoint);
    endpoint->fabric = shm_of(fabric);
    *ret_endpoint = endpoint;
    return 0;
}

void remo__shm_endpoint_close(struct remo__endpoint *endpoint) {
    free(endpoint);
}

/* ---- one operation ---- */

/* True if [offset, offset + bytes) is mapped. */
static bool window_covers(struct shm_window *window, uint64_t offset, uint64_t bytes) {
    uint32_t count = atomic_load_explicit(&window->range_count, memory_order_acquire);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t have = atomic_load_explicit(&window->ranges[i].bytes, memory_order_acquire);
        uint64_t at = offset - window->ranges[i].offset; /* wraps to a huge value if it lies before */
        if (at <= have && bytes <= have - at)
            return true;
    }
    return false;
}

static int op_check(struct shm_fabric *shm, const struct remo__op *op, char **ret_base) {
    int rc = remo__fabric_check_op(&shm->base, op);
    if (rc < 0)
        return rc;
    struct shm_window *window = atomic_load_explicit(&shm->peers[op->peer].reachable, memory_order_acquire);
    if (!window)
        return remo__fail(-EHOSTDOWN, "node %u is not connected", op->peer);
    if (!window_covers(window, op->remote, op->size_bytes))
        return remo__fail(-EFAULT, "%llu bytes at offset %#llx of node %u are not network memory",
                          (unsigned long long)op->size_bytes, (unsigned long long)op->remote, op->peer);
    *ret_base = window->base;
    return 0;
}

static int write_execute(struct remo__endpoint *endpoint, const struct remo__op *op, char *base) {
    struct shm_fabric *shm = endpoint->fabric;
    struct remo__shm_header *header = (struct remo__shm_header *)base;
    /* Check for a full ring before the data is placed. If other threads fill it meanwhile, the retried post
     * places the data again, which is indistinguishable from a slow placement. */
    if ((op->flags & REMO__OP_IMM) && !remo__shm_imm_room(shm, header))
        return remo__fail_static(-EAGAIN, "the peer's ring of immediates is full; retry");
    remo__mapped_copy_to(base + op->remote, op->local, op->size_bytes);
    endpoint->unfenced = true;
    if (op->flags & REMO__OP_IMM) {
        int rc = remo__shm_imm_send(shm, header, op->imm);
        if (rc < 0)
            return rc;
    }
    if (op->flags & (REMO__OP_NOTIFY | REMO__OP_IMM)) {
        if (remo__mapped_notify(&shm->base.peers[op->peer]))
            endpoint->unfenced = false;
    }
    return 0;
}

static int op_execute(struct remo__endpoint *endpoint, const struct remo__op *op) {
    char *base = NULL;
    int rc = op_check(endpoint->fabric, op, &base);
    if (rc < 0)
        return rc;
    switch ((enum remo__op_kind)op->kind) {
    case REMO__OP_READ: remo__mapped_copy_from(op->local, base + op->remote, op->size_bytes); return 0;
    case REMO__OP_WRITE: return write_execute(endpoint, op, base);
    case REMO__OP_FETCH_ADD:
        *(remo__word64 *)op->local = remo__mapped_fetch_add(base + op->remote, op->operand);
        break;
    case REMO__OP_COMPARE_SWAP:
        *(remo__word64 *)op->local = remo__mapped_compare_swap(base + op->remote, op->compare, op->operand);
        break;
    }
    endpoint->unfenced = false; /* an atomic is a full fence */
    return 0;
}

/* ---- many ---- */

int remo__shm_post(struct remo__endpoint *endpoint, const struct remo__op *ops, uint32_t count) {
    uint32_t i;
    for (i = 0; i < count; i++) {
        if (endpoint->done_tail - endpoint->done_head == REMO__SHM_DEPTH)
            return i > 0 ? (int)i : remo__fail_static(-EAGAIN, "too many operations in flight; poll first");
        int rc = op_execute(endpoint, &ops[i]);
        if (rc < 0)
            return i > 0 ? (int)i : rc;
        endpoint->done[endpoint->done_tail++ % REMO__SHM_DEPTH] =
            (struct remo__completion){.token = ops[i].token, .status = 0};
    }
    return (int)i;
}

int remo__shm_poll(struct remo__endpoint *endpoint, struct remo__completion *done, uint32_t max) {
    uint32_t count = 0;
    if (endpoint->unfenced) { /* a completion means placed, so drain this CPU's store buffer */
        remo__mapped_fence();
        endpoint->unfenced = false;
    }
    while (count < max && endpoint->done_head != endpoint->done_tail)
        done[count++] = endpoint->done[endpoint->done_head++ % REMO__SHM_DEPTH];
    return (int)count;
}

void remo__shm_wait(struct remo__endpoint *endpoint, uint64_t timeout_ns) {
    if (endpoint->done_head != endpoint->done_tail)
        return;
    /* Nothing is in flight and nothing can complete: just sleep, on a word that no thread wakes. */
    _Atomic uint32_t word = 0;
    remo__futex_wait(&word, 0, timeout_ns);
}
