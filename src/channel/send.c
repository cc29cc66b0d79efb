/* send.c - send the messages and immediates of a channel. They carry the id of the receiving endpoint, so a
 * frame for an endpoint that has closed reaches no other endpoint. */
#include "base/bytes.h"
#include "channel/message.h"
#include "channel/registry.h"

int remo_channel_send(struct remo_channel *channel, uint32_t node, const void *data, size_t size_bytes) {
    REMO__REQUIRE(channel);
    uint8_t frame[REMO__MESSAGE_USER_HEAD_BYTES + REMO_CHANNEL_MESSAGE_BYTES_MAX];
    if (channel->slot == 0 || node >= channel->node->size || (!data && size_bytes > 0))
        return remo__fail(-EINVAL, "cannot send a message: %s",
                          channel->slot == 0 ? "the root channel has none; open a channel"
                          : node >= channel->node->size
                              ? "the node is not in the job; use a rank below its size"
                              : "data is NULL");
    if (size_bytes > REMO_CHANNEL_MESSAGE_BYTES_MAX)
        return remo__fail(
            -EMSGSIZE, "a message of channel %s has at most %u bytes, not %zu; write larger data to memory",
            channel->name, REMO_CHANNEL_MESSAGE_BYTES_MAX, size_bytes);
    int rc = remo__channel_check_peer(channel, node);
    if (rc != 0)
        return rc;
    if (atomic_load(&channel->peers[node].state) != REMO_CHANNEL_CONNECTED)
        return remo__fail(-ENOTCONN, "node %u is not connected to channel %s yet; see remo_channel_wait",
                          node, channel->name);
    struct remo__writer writer = remo__writer_of(frame, sizeof frame);
    remo__put_u32(&writer, atomic_load(&channel->peers[node].id));
    remo__put_bytes(&writer, data, size_bytes);
    return remo__node_send(channel->node, node, REMO__MESSAGE_USER, frame, (size_t)(writer.at - frame));
}

int remo__channel_write_immediate(const struct remo_channel *channel, struct remo__ref ref, const void *src,
                                  size_t bytes, uint32_t value, struct remo_ack *ack) {
    return remo__channel_write_immediate_flags(channel, ref, src, bytes, value, 0, ack);
}

int remo__channel_write_immediate_flags(const struct remo_channel *channel, struct remo__ref ref,
                                        const void *src, size_t bytes, uint32_t value, uint32_t flags,
                                        struct remo_ack *ack) {
    uint32_t id = atomic_load(&channel->peers[ref.node].id);
    uint32_t imm = id << (32 - REMO__ID_BITS) | (value & REMO_CHANNEL_IMMEDIATE_MAX);
    return remo__op_write(ref, src, bytes, REMO__WRITE_IMM | flags, imm, ack);
}
