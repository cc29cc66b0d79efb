/* slot.c - the slots of an endpoint's operations: free, queued on a link, in flight, done.
 *
 * An operation occupies one slot from its post to the poll of its completion. A queue links its slots through
 * `next`, so no step allocates memory. */
#include "fabric/ofi/ofi.h"

static void fifo_push(struct ofi_endpoint *endpoint, struct ofi_fifo *fifo, uint16_t slot) {
    endpoint->slots[slot].next = REMO__OFI_NONE;
    if (fifo->count++ == 0)
        fifo->head = slot;
    else
        endpoint->slots[fifo->tail].next = slot;
    fifo->tail = slot;
}

static uint16_t fifo_pop(struct ofi_endpoint *endpoint, struct ofi_fifo *fifo) {
    assert(fifo->count > 0);
    uint16_t slot = fifo->head;
    fifo->head = endpoint->slots[slot].next;
    fifo->count--;
    return slot;
}

uint16_t remo__ofi_slot_take(struct ofi_endpoint *endpoint, const struct remo__op *op) {
    uint16_t index = endpoint->free[--endpoint->free_count];
    struct ofi_slot *slot = &endpoint->slots[index];
    slot->op = *op;
    slot->sent_bytes = 0;
    slot->left_bytes = op->size_bytes;
    slot->unanswered = 0;
    slot->status = 0;
    slot->all_sent = false;
    if ((op->flags & REMO__OP_INLINE) && op->kind == REMO__OP_WRITE && op->size_bytes > 0) {
        memcpy(slot->copy, op->local, op->size_bytes);
        slot->op.local = slot->copy;
    }
    return index;
}

/* ---- operations that wait on a link ---- */

static void count_queued(struct ofi_endpoint *endpoint, int32_t more) {
    uint32_t queued = atomic_load_explicit(&endpoint->queued, memory_order_relaxed);
    atomic_store_explicit(&endpoint->queued, queued + (uint32_t)more, memory_order_relaxed);
}

static bool is_urgent(const struct ofi_slot *slot) {
    return !(slot->op.flags & REMO__OP_GATHER);
}

void remo__ofi_slot_queue(struct ofi_link *link, uint16_t index) {
    const struct ofi_slot *slot = &link->endpoint->slots[index];
    count_queued(link->endpoint, 1);
    fifo_push(link->endpoint, &link->queue, index);
    link->queue_bytes += sizeof(struct remo__ofi_record) + slot->op.size_bytes;
    link->urgent_count += is_urgent(slot);
}

uint16_t remo__ofi_slot_unqueue(struct ofi_link *link) {
    count_queued(link->endpoint, -1);
    uint16_t index = fifo_pop(link->endpoint, &link->queue);
    link->urgent_count -= is_urgent(&link->endpoint->slots[index]);
    return index;
}

/* ---- completions ---- */

void remo__ofi_slot_finish(struct ofi_endpoint *endpoint, uint16_t slot, int status) {
    endpoint->slots[slot].status = status;
    fifo_push(endpoint, &endpoint->done, slot);
}

bool remo__ofi_slot_poll(struct ofi_endpoint *endpoint, struct remo__completion *ret_done) {
    if (endpoint->done.count == 0)
        return false;
    uint16_t slot = fifo_pop(endpoint, &endpoint->done);
    *ret_done = (struct remo__completion){.token = endpoint->slots[slot].op.token,
                                          .status = endpoint->slots[slot].status};
    endpoint->free[endpoint->free_count++] = slot;
    return true;
}
