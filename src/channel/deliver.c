/* deliver.c - deliver messages and immediates that arrive to the callbacks of their channel.
 * Invariant: a channel is held during a callback, and its close waits until it is released. So no callback
 * runs after the close. */
#include "channel/message.h"
#include "channel/registry.h"

/* Return the open channel of the id, held, or NULL. */
static struct remo_channel *hold_open(struct remo__registry *registry, uint32_t id) {
    pthread_mutex_lock(&registry->lock);
    struct remo_channel *channel = remo__registry_by_id(registry, id);
    if (channel && (channel->closing || channel->slot == 0))
        channel = NULL;
    if (channel)
        atomic_fetch_add(&channel->busy, 1);
    pthread_mutex_unlock(&registry->lock);
    return channel;
}

void remo__channel_release(struct remo_channel *channel) {
    struct remo_node *node = channel->node;
    atomic_fetch_sub(&channel->busy, 1);
    remo__wake(node);
}

void remo__deliver_message(struct remo__registry *registry, uint32_t peer, const void *frame, size_t bytes) {
    const void *data;
    size_t data_bytes;
    uint32_t to_id;
    if (!remo__user_decode(frame, bytes, &to_id, &data, &data_bytes)) {
        remo__registry_log_malformed(registry, peer, "message");
        return;
    }
    struct remo_channel *channel = hold_open(registry, to_id);
    if (!channel)
        return;
    if (channel->options.on_message && remo_nodeset_has(&channel->participants, peer))
        channel->options.on_message(channel->options.ctx, peer, data, data_bytes);
    remo__channel_release(channel);
}

void remo__deliver_immediate(void *ctx, uint32_t peer, uint32_t value) {
    struct remo_channel *channel = hold_open(ctx, value >> (32 - REMO__ID_BITS));
    if (!channel)
        return;
    if (channel->options.on_immediate && remo_nodeset_has(&channel->participants, peer))
        channel->options.on_immediate(channel->options.ctx, peer, value & REMO_CHANNEL_IMMEDIATE_MAX);
    remo__channel_release(channel);
}
