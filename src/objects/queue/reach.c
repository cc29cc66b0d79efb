/* reach.c - reports departures of participants, and timeouts of the network.
 * A call reports a departure unless an earlier call has reported it. */
#include "objects/queue/queue.h"

bool remo__queue_has_departed(const struct remo_queue *queue, uint32_t node) {
    enum remo_channel_state state = remo_channel_peer(queue->channel, node);
    enum remo_peer_state node_state = remo_node_peer(queue->node, node);
    return state == REMO_CHANNEL_LEFT || state == REMO_CHANNEL_DOWN || node_state == REMO_PEER_DEAD
           || node_state == REMO_PEER_LEFT;
}

int remo__queue_report_departure(struct remo__queue_op *op) {
    struct remo_queue *queue = op->queue;
    uint32_t departures = atomic_load_explicit(&queue->departures, memory_order_acquire);
    if (remo__likely(departures == op->seen_departures))
        return 0;
    atomic_store_explicit(&queue->reported_departures, departures, memory_order_relaxed);
    return remo__fail(
        -EHOSTDOWN,
        "a participant of queue %s has failed or left; the elements in its slots are lost, all others are "
        "in place; call again to continue without it",
        remo_channel_name(queue->channel));
}

int remo__queue_convert_timeout(const struct remo__queue_op *op, int rc) {
    return rc == -ETIMEDOUT ? remo__fail_more(-EIO, "queue %s", remo_channel_name(op->queue->channel)) : rc;
}
