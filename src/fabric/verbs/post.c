/* post.c - translates operations into work requests, and posts a run of operations to one peer at once.
 *
 * A link records every work request before it is posted, so its completion always finds the operation. An
 * operation is posted completely or not at all. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "fabric/verbs/verbs.h"

/* The work requests of one post to one link. */
struct batch {
    struct verbs_endpoint *endpoint;
    struct verbs_link *link;
    uint32_t count; /* of endpoint->requests */
    uint64_t bytes;
};

/* ---- checks ---- */

/* True if segments cover [offset, offset + bytes) without a gap. */
static bool covered(const struct verbs_segments *segments, uint64_t offset, uint64_t bytes) {
    uint64_t end;
    if (__builtin_add_overflow(offset, bytes, &end))
        return false;
    if (bytes == 0)
        return verbs_segment_at(segments, offset) || (offset > 0 && verbs_segment_at(segments, offset - 1));
    while (offset < end) { /* ends: each iteration passes a segment */
        const struct verbs_segment *segment = verbs_segment_at(segments, offset);
        if (!segment)
            return false;
        offset = segment->offset + segment->bytes;
    }
    return true;
}

static bool inlined(const struct verbs_fabric *verbs, const struct remo__op *op) {
    return op->kind == REMO__OP_WRITE && op->size_bytes <= verbs->device.inline_bytes;
}

/* The offset of a local buffer in the arena, which is its address for the device. */
static uint64_t local_offset(const struct verbs_fabric *verbs, const void *local) {
    return (uint64_t)((const char *)local - verbs->arena); /* outside: larger than any segment's end */
}

static int op_check(const struct verbs_fabric *verbs, const struct remo__op *op,
                    struct verbs_contact **ret_contact) {
    int rc = remo__fabric_check_op(&verbs->base, op);
    if (rc < 0)
        return rc;
    struct verbs_contact *contact = atomic_load_explicit(&verbs->contacts[op->peer], memory_order_acquire);
    if (!contact)
        return remo__fail(-EHOSTDOWN, "node %u is not connected", op->peer);
    if (!covered(&contact->segments, op->remote, op->size_bytes))
        return remo__fail(-EFAULT, "%llu bytes at offset %#llx of node %u are not network memory",
                          (unsigned long long)op->size_bytes, (unsigned long long)op->remote, op->peer);
    if (op->size_bytes > 0 && !inlined(verbs, op)
        && !covered(&verbs->own, local_offset(verbs, op->local), op->size_bytes))
        return remo__fail(-EFAULT, "a local buffer of %llu bytes is not in the arena, as this fabric needs",
                          (unsigned long long)op->size_bytes);
    *ret_contact = contact;
    return 0;
}

/* ---- work requests ---- */

static struct ibv_send_wr *request_add(struct batch *batch, enum ibv_wr_opcode opcode, const void *local,
                                       uint32_t key, uint64_t bytes) {
    uint32_t at = batch->count++;
    struct ibv_send_wr *request = &batch->endpoint->requests[at];
    struct ibv_sge *piece = &batch->endpoint->pieces[at];
    *piece = (struct ibv_sge){.addr = (uintptr_t)local, .length = (uint32_t)bytes, .lkey = key};
    *request = (struct ibv_send_wr){.opcode = opcode, .sg_list = piece, .num_sge = bytes > 0};
    batch->bytes += bytes;
    return request;
}

static void atomic_add(struct batch *batch, const struct remo__op *op, const struct verbs_segment *at,
                       uint32_t key, uint64_t local) {
    bool add = op->kind == REMO__OP_FETCH_ADD;
    struct ibv_send_wr *request =
        request_add(batch, add ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_ATOMIC_CMP_AND_SWP,
                    (const void *)(uintptr_t)local, key, sizeof(uint64_t));
    request->wr.atomic.remote_addr = op->remote;
    request->wr.atomic.rkey = at->key;
    request->wr.atomic.compare_add = add ? op->operand : op->compare;
    request->wr.atomic.swap = op->operand;
}

/* Add a read or write, split so that no piece crosses the end of a local or remote segment. */
static void pieces_add(struct batch *batch, const struct remo__op *op, const struct verbs_contact *contact) {
    const struct verbs_fabric *verbs = batch->endpoint->verbs;
    bool brief = inlined(verbs, op), notify = op->flags & REMO__OP_NOTIFY && !(op->flags & REMO__OP_IMM);
    enum ibv_wr_opcode opcode = op->kind == REMO__OP_READ ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
    uint64_t local = local_offset(verbs, op->local), remote = op->remote, left = op->size_bytes;
    do {
        const struct verbs_segment *there = verbs_segment_at(&contact->segments, remote);
        const struct verbs_segment *here = brief || left == 0 ? NULL : verbs_segment_at(&verbs->own, local);
        uint64_t piece = there ? remo__min(left, there->offset + there->bytes - remote) : left;
        if (here)
            piece = remo__min(piece, here->offset + here->bytes - local);
        const char *from =
            brief ? (const char *)op->local + (remote - op->remote) : (const char *)(uintptr_t)local;
        struct ibv_send_wr *request = request_add(batch, opcode, from, here ? here->key : 0, piece);
        request->send_flags = brief && piece > 0 ? IBV_SEND_INLINE : 0;
        request->wr.rdma.remote_addr = remote;
        request->wr.rdma.rkey = there ? there->key : 0;
        if (notify && piece == left)
            request->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
        left -= piece;
        remote += piece;
        local += piece;
    } while (left > 0);
}

static void op_add(struct batch *batch, const struct remo__op *op, const struct verbs_contact *contact) {
    const struct verbs_fabric *verbs = batch->endpoint->verbs;
    uint32_t first = batch->count;
    struct verbs_link *link = batch->link;
    if (op->kind == REMO__OP_FETCH_ADD || op->kind == REMO__OP_COMPARE_SWAP) {
        uint64_t local = local_offset(verbs, op->local);
        atomic_add(batch, op, verbs_segment_at(&contact->segments, op->remote),
                   verbs_segment_at(&verbs->own, local)->key, local);
    } else if (op->size_bytes > 0 || !(op->flags & REMO__OP_IMM)) {
        pieces_add(batch, op, contact);
    }
    if (op->flags & REMO__OP_IMM) {
        struct ibv_send_wr *request = request_add(batch, IBV_WR_SEND_WITH_IMM, NULL, 0, 0);
        request->imm_data = htonl(op->imm);
    }
    if (op->flags & REMO__OP_FENCE)
        batch->endpoint->requests[first].send_flags |= IBV_SEND_FENCE;
    for (uint32_t i = first; i < batch->count; i++) {
        uint32_t number = link->head++;
        batch->endpoint->requests[i].wr_id = (uint64_t)op->peer << 48 | (uint64_t)link->serial << 32 | number;
        link->sent[number % REMO__VERBS_SENDS_MAX] =
            (struct verbs_sent){.token = op->token, .last = i + 1 == batch->count};
    }
}

/* ---- posting ---- */

static void native_one(struct ibv_qp_ex *native, const struct ibv_send_wr *request) {
    native->wr_id = request->wr_id;
    native->wr_flags = request->send_flags; /* includes inline: rxe needs the flag, others ignore it */
    switch (request->opcode) {
    case IBV_WR_RDMA_READ:
        ibv_wr_rdma_read(native, request->wr.rdma.rkey, request->wr.rdma.remote_addr);
        break;
    case IBV_WR_RDMA_WRITE_WITH_IMM:
        ibv_wr_rdma_write_imm(native, request->wr.rdma.rkey, request->wr.rdma.remote_addr, request->imm_data);
        break;
    case IBV_WR_SEND_WITH_IMM: ibv_wr_send_imm(native, request->imm_data); break;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
        ibv_wr_atomic_fetch_add(native, request->wr.atomic.rkey, request->wr.atomic.remote_addr,
                                request->wr.atomic.compare_add);
        break;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
        ibv_wr_atomic_cmp_swp(native, request->wr.atomic.rkey, request->wr.atomic.remote_addr,
                              request->wr.atomic.compare_add, request->wr.atomic.swap);
        break;
    default: ibv_wr_rdma_write(native, request->wr.rdma.rkey, request->wr.rdma.remote_addr); break;
    }
    if (request->send_flags & IBV_SEND_INLINE)
        ibv_wr_set_inline_data(native, (void *)(uintptr_t)request->sg_list->addr, request->sg_list->length);
    else
        ibv_wr_set_sge_list(native, (size_t)request->num_sge, request->sg_list);
}

static int requests_post(struct batch *batch) {
    struct ibv_send_wr *requests = batch->endpoint->requests, *bad;
    struct ibv_qp_ex *native = batch->link->native;
    if (native) {
        ibv_wr_start(native);
        for (uint32_t i = 0; i < batch->count; i++)
            native_one(native, &requests[i]);
        return ibv_wr_complete(native);
    }
    for (uint32_t i = 0; i + 1 < batch->count; i++)
        requests[i].next = &requests[i + 1];
    return ibv_post_send(batch->link->qp, requests, &bad);
}

static void count(uint64_t *at, uint64_t by) {
    __atomic_store_n(at, *at + by, __ATOMIC_RELAXED); /* one writer */
}

/* Post the batch. It is counted before the peer can see it. After an error of the device the link is lost. */
static void batch_post(struct batch *batch) {
    struct verbs_endpoint *endpoint = batch->endpoint;
    uint64_t inlines = 0;
    endpoint->requests[batch->count - 1].send_flags |= IBV_SEND_SIGNALED;
    for (uint32_t i = 0; i < batch->count; i++)
        inlines += (endpoint->requests[i].send_flags & IBV_SEND_INLINE) != 0;
    count(&endpoint->wire.requests, batch->count);
    count(&endpoint->wire.posts, 1);
    count(&endpoint->wire.signalled, 1);
    count(&endpoint->wire.inlined, inlines);
    count(&endpoint->wire.bytes, batch->bytes);
    int error = requests_post(batch);
    if (error == 0)
        return;
    snprintf(endpoint->why, sizeof endpoint->why, "device %s rejects work requests: %s",
             endpoint->verbs->device.name, strerror(error));
    remo__log(&endpoint->verbs->base.log, REMO_LOG_ERROR, "%s", endpoint->why);
    remo__verbs_link_lose(endpoint, batch->link);
}

static uint32_t room(const struct verbs_endpoint *endpoint, const struct verbs_link *link) {
    return endpoint->verbs->device.sends - (link->head - link->tail);
}

/* Add operations to the batch, as long as they go to the same peer and there is room. Returns 0, or the error
 * of ops[0]. */
static int batch_fill(struct batch *batch, const struct remo__op *ops, uint32_t max, uint32_t *ret_taken) {
    struct verbs_endpoint *endpoint = batch->endpoint;
    struct verbs_contact *contact = NULL;
    uint32_t taken = 0;
    int rc = 0;
    for (; taken < max; taken++) {
        if (taken > 0 && ops[taken].peer != ops[0].peer)
            break;
        if ((rc = op_check(endpoint->verbs, &ops[taken], &contact)) < 0)
            break;
        if (endpoint->in_flight == REMO__VERBS_DEPTH) {
            rc = remo__fail_static(-EAGAIN, "too many operations in flight; poll first");
            break;
        }
        if (taken == 0 && (rc = remo__verbs_link_get(endpoint, contact, &batch->link)) < 0)
            break;
        if (batch->link->contact != contact || room(endpoint, batch->link) < REMO__VERBS_PIECES_MAX) {
            rc = remo__fail_static(-EAGAIN, "too many work requests in flight to one peer; poll first");
            break;
        }
        op_add(batch, &ops[taken], contact);
        endpoint->in_flight++;
    }
    *ret_taken = taken;
    return taken > 0 ? 0 : rc;
}

int remo__verbs_post(struct remo__endpoint *public, const struct remo__op *ops, uint32_t count_wanted) {
    struct verbs_endpoint *endpoint = (struct verbs_endpoint *)public;
    uint32_t wanted = (uint32_t)remo__min(count_wanted, REMO__VERBS_BATCH_MAX), taken = 0;
    int rc = 0;
    while (taken < wanted && rc == 0) { /* one iteration for each run of operations to the same peer */
        struct batch batch = {.endpoint = endpoint};
        uint32_t run = 0;
        rc = batch_fill(&batch, ops + taken, wanted - taken, &run);
        if (run > 0)
            batch_post(&batch);
        taken += run;
    }
    return taken > 0 || count_wanted == 0 ? (int)taken : rc;
}
