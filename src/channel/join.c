/* join.c - how endpoints of one name find each other: JOIN, CONNECT, REFUSE, LEAVE, and messages between them.
 *
 * JOIN says: here is an endpoint of this name and type, and this much memory I expect of you. Who has a matching endpoint answers CONNECT with its
 * addresses; who has none ignores it. When a JOIN arrives at an endpoint that is itself not connected to the sender (its own JOIN came too early
 * there), it sends its JOIN again, behind its CONNECT: so each pair connects, whoever opens first, and it ends,
 * because the CONNECT that goes before makes the sender connected.
 *
 * An endpoint deals with one endpoint of each peer, ever: the first whose id it learns. A JOIN of another id is a later life that is
 * meant for our later life. LEAVE says: I use your memory no more, and mine must not be used. A CONNECT that reaches nobody is
 * answered by LEAVE, so that its sender does not keep the memory for us.
 */
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "channel/registry.h"
#include "node/arena.h"

enum {
    JOIN = REMO__FRAME_CHANNELS,
    CONNECT,
    REFUSE,
    LEAVE,
    MESSAGE
};

#define FRAME_BYTES 2048u /* of all but MESSAGE */

static bool takes_part(const struct remo_channel *channel, uint32_t node) {
    return remo_nodeset_has(&channel->participants, node);
}

static bool provides(const struct remo__memory *memory, uint32_t node) {
    return remo_nodeset_has(&memory->providers, node);
}

static void send_written(struct remo_channel *channel, uint32_t peer, uint16_t type, const uint8_t *frame,
                         const struct remo__writer *writer) {
    if (remo__node_send(channel->node, peer, type, frame, (size_t)(writer->at - frame)) != 0)
        remo__log(&channel->node->log, REMO_LOG_DEBUG, "channel %s: %s", channel->name, remo_last_error());
}

void remo__join_send(struct remo_channel *channel, uint32_t peer) {
    uint8_t frame[FRAME_BYTES];
    struct remo__writer writer = remo__writer_of(frame, sizeof frame);
    if (!remo__peer_alive(channel->node, peer))
        return; /* it gets ours when it comes up */
    remo__put_u32(&writer, channel->id);
    remo__put_string(&writer, channel->name);
    remo__put_string(&writer, channel->type);
    remo__put_u32(&writer, channel->memory_count);
    for (uint32_t i = 0; i < channel->memory_count; i++) {
        const struct remo__memory *memory = &channel->memories[i];
        remo__put_string(&writer, memory->name);
        remo__put_u64(&writer, provides(memory, peer) ? memory->expected_bytes : 0);
    }
    send_written(channel, peer, JOIN, frame, &writer);
}

static void send_connect(struct remo_channel *channel, uint32_t peer, uint32_t to_id) {
    uint8_t frame[FRAME_BYTES];
    struct remo__writer writer = remo__writer_of(frame, sizeof frame);
    remo__put_u32(&writer, channel->id);
    remo__put_u32(&writer, to_id);
    remo__put_u32(&writer, channel->memory_count);
    for (uint32_t i = 0; i < channel->memory_count; i++) {
        remo__put_u64(&writer, channel->memories[i].own_offset);
        remo__put_u64(&writer, channel->memories[i].own_bytes);
    }
    send_written(channel, peer, CONNECT, frame, &writer);
}

static void send_leave(struct remo_node *node, uint32_t peer, uint32_t from_id, uint32_t to_id) {
    uint8_t frame[8];
    struct remo__writer writer = remo__writer_of(frame, sizeof frame);
    remo__put_u32(&writer, from_id);
    remo__put_u32(&writer, to_id);
    (void)remo__node_send(node, peer, LEAVE, frame, sizeof frame); /* it fails only for a peer that is gone */
}

static void set_mismatch(struct remo_channel *channel, const char *text) {
    if (atomic_load(&channel->mismatched))
        return;
    snprintf(channel->error_text, sizeof channel->error_text, "%s", text);
    atomic_store(&channel->mismatched, true);
}

/* Both ends hear of it, in the same words. */
static void refuse(struct remo_channel *channel, uint32_t peer, uint32_t to_id, const char *text) {
    uint8_t frame[FRAME_BYTES];
    struct remo__writer writer = remo__writer_of(frame, sizeof frame);
    remo__put_u32(&writer, to_id);
    remo__put_string(&writer, text);
    send_written(channel, peer, REFUSE, frame, &writer);
    set_mismatch(channel, text);
    remo__log(&channel->node->log, REMO_LOG_ERROR, "%s", text);
}

/* ---- JOIN ---- */

/* What the sender expects must be what we provide; false with `text` when it is not. */
static bool matches(const struct remo_channel *channel, uint32_t peer, const char *type, struct remo__reader *reader, char *text,
                    size_t cap) {
    uint32_t count = remo__get_u32(reader), self = channel->node->rank;
    if (strcmp(type, channel->type) != 0) {
        snprintf(text, cap, "channel %s is a %s on node %u but a %s on node %u", channel->name, channel->type, self, type, peer);
        return false;
    }
    if (count != channel->memory_count) {
        snprintf(text, cap, "channel %s has %u memories on node %u but %u on node %u", channel->name, channel->memory_count, self,
                 count, peer);
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct remo__memory *memory = &channel->memories[i];
        char name[REMO__MEMORY_NAME_BYTES_MAX + 1];
        remo__get_string(reader, name, sizeof name);
        uint64_t expected = remo__get_u64(reader);
        if (strcmp(name, memory->name) == 0 && (expected == 0 || expected == memory->own_bytes))
            continue;
        snprintf(text, cap, "channel %s.%s: node %u expects %llu bytes on node %u, which has %llu", channel->name, name, peer,
                 (unsigned long long)expected, self, (unsigned long long)memory->own_bytes);
        return false;
    }
    return true;
}

/* The lock is held. True: it is a new peer of ours, tell the owner. */
static bool accept_join(struct remo_channel *channel, uint32_t peer, uint32_t from_id, const char *type,
                        struct remo__reader *reader) {
    struct remo__channel_peer *known = &channel->peers[peer];
    char text[sizeof channel->error_text];
    uint32_t id = atomic_load(&known->id);
    bool other_life = (id != 0 && id != from_id) || (known->granted_id != 0 && known->granted_id != from_id)
        || atomic_load(&known->state) > REMO_CHANNEL_CONNECTED;
    if (!channel->joined || !takes_part(channel, peer) || other_life)
        return false;
    if (!matches(channel, peer, type, reader, text, sizeof text)) {
        refuse(channel, peer, from_id, text);
        return false;
    }
    bool first = known->granted_id == 0;
    known->granted_id = from_id;
    send_connect(channel, peer, from_id);
    if (id == 0)
        remo__join_send(channel, peer);
    return first;
}

/* ---- running callbacks: never under the lock, and never when close has begun ---- */

static void done_with(struct remo_channel *channel) {
    struct remo_node *node = channel->node;
    atomic_fetch_sub(&channel->busy, 1);
    remo__wake(node);
}

static void on_join(struct remo__registry *registry, uint32_t peer, struct remo__reader *reader) {
    char name[REMO_CHANNEL_NAME_BYTES_MAX + 1], type[REMO__TYPE_BYTES_MAX + 1];
    uint32_t from_id = remo__get_u32(reader);
    remo__get_string(reader, name, sizeof name);
    remo__get_string(reader, type, sizeof type);
    pthread_mutex_lock(&registry->lock);
    struct remo_channel *channel = remo__registry_by_name(registry, name);
    bool tell = channel && channel->parent && from_id != 0 && accept_join(channel, peer, from_id, type, reader);
    if (tell)
        atomic_fetch_add(&channel->busy, 1);
    pthread_mutex_unlock(&registry->lock);
    if (!tell)
        return;
    if (channel->options.on_join)
        channel->options.on_join(channel->options.ctx, peer);
    done_with(channel);
}

/* ---- CONNECT ---- */

/* The peer's words are checked: what it says it has must be what we expect, inside memory we can reach. */
static bool accept_addresses(struct remo_channel *channel, uint32_t peer, struct remo__reader *reader) {
    uint64_t reachable = atomic_load(&channel->node->peers[peer].mapped_bytes), offsets[REMO_CHANNEL_MEMORIES_MAX];
    if (remo__get_u32(reader) != channel->memory_count)
        return false;
    for (uint32_t i = 0; i < channel->memory_count; i++) {
        const struct remo__memory *memory = &channel->memories[i];
        offsets[i] = remo__get_u64(reader);
        uint64_t bytes = remo__get_u64(reader);
        if (!provides(memory, peer) || memory->expected_bytes == 0) {
            offsets[i] = REMO__NO_OFFSET;
            continue;
        }
        if (bytes != memory->expected_bytes || bytes > reachable || offsets[i] > reachable - bytes || offsets[i] % 64 != 0)
            return false;
    }
    if (!remo__reader_complete(reader))
        return false;
    for (uint32_t i = 0; i < channel->memory_count; i++)
        atomic_store(&channel->memories[i].offsets[peer], offsets[i]);
    return true;
}

static void on_connect(struct remo__registry *registry, uint32_t peer, struct remo__reader *reader) {
    uint32_t from_id = remo__get_u32(reader), to_id = remo__get_u32(reader);
    pthread_mutex_lock(&registry->lock);
    struct remo_channel *channel = remo__registry_by_id(registry, to_id);
    bool tell = false;
    if (!channel || !channel->parent || channel->closing) {
        send_leave(registry->node, peer, to_id, from_id);
    } else if (takes_part(channel, peer) && atomic_load(&channel->peers[peer].id) == 0 && from_id != 0) {
        tell = accept_addresses(channel, peer, reader);
        if (tell) {
            atomic_store(&channel->peers[peer].id, from_id);
            atomic_store(&channel->peers[peer].state, REMO_CHANNEL_CONNECTED);
            atomic_fetch_add(&channel->busy, 1);
        } else {
            set_mismatch(channel, "a peer answered with memory that is not what was asked for");
        }
    }
    pthread_mutex_unlock(&registry->lock);
    if (!tell)
        return;
    if (channel->options.on_connect)
        channel->options.on_connect(channel->options.ctx, peer);
    done_with(channel);
}

static void on_refuse(struct remo__registry *registry, struct remo__reader *reader) {
    char text[sizeof((struct remo_channel *)0)->error_text];
    uint32_t to_id = remo__get_u32(reader);
    remo__get_string(reader, text, sizeof text);
    pthread_mutex_lock(&registry->lock);
    struct remo_channel *channel = remo__registry_by_id(registry, to_id);
    if (channel && channel->parent)
        set_mismatch(channel, text);
    pthread_mutex_unlock(&registry->lock);
}

/* ---- LEAVE, and the death of a peer ---- */

/* The peer uses our addresses no more; the lock is held. */
static void end_grant(struct remo__registry *registry, struct remo_channel *channel, uint32_t peer) {
    if (channel->peers[peer].granted_id == 0)
        return;
    channel->peers[peer].granted_id = 0;
    if (channel->closing && channel->grants > 0 && --channel->grants == 0 && !channel->parent)
        remo__registry_destroy(registry, channel);
}

/* Mark the peer as gone for an open channel; true when the owner must be told. The lock is held. */
static bool mark_gone(struct remo_channel *channel, uint32_t peer, enum remo_channel_peer state) {
    struct remo__channel_peer *known = &channel->peers[peer];
    if (!takes_part(channel, peer) || atomic_load(&known->state) > REMO_CHANNEL_CONNECTED)
        return false;
    for (uint32_t i = 0; i < channel->memory_count; i++)
        atomic_store(&channel->memories[i].offsets[peer], REMO__NO_OFFSET);
    atomic_store(&known->state, state);
    atomic_fetch_add(&channel->busy, 1);
    return true;
}

static void tell_gone(struct remo_channel *channel, uint32_t peer, enum remo_channel_peer state) {
    if (channel->options.on_leave)
        channel->options.on_leave(channel->options.ctx, peer, state);
    done_with(channel);
}

static void on_leave(struct remo__registry *registry, uint32_t peer, struct remo__reader *reader) {
    uint32_t from_id = remo__get_u32(reader), to_id = remo__get_u32(reader);
    pthread_mutex_lock(&registry->lock);
    struct remo_channel *channel = remo__registry_by_id(registry, to_id);
    bool ours = channel && channel->slot != 0
        && (atomic_load(&channel->peers[peer].id) == from_id || channel->peers[peer].granted_id == from_id);
    bool tell = ours && !channel->closing && mark_gone(channel, peer, REMO_CHANNEL_LEFT);
    if (ours)
        end_grant(registry, channel, peer);
    pthread_mutex_unlock(&registry->lock);
    if (tell)
        tell_gone(channel, peer, REMO_CHANNEL_LEFT);
}

void remo__join_leave(struct remo_channel *channel) {
    for (uint32_t peer = 0; peer < channel->node->size; peer++) {
        struct remo__channel_peer *known = &channel->peers[peer];
        uint32_t id = atomic_load(&known->id) ? atomic_load(&known->id) : known->granted_id;
        if (peer == channel->node->rank || id == 0 || !remo__peer_alive(channel->node, peer))
            continue;
        channel->grants += known->granted_id != 0;
        send_leave(channel->node, peer, channel->id, id);
    }
}

void remo__join_peer_up(void *ctx, uint32_t peer) {
    struct remo__registry *registry = ctx;
    pthread_mutex_lock(&registry->lock);
    for (uint32_t slot = 1; slot < REMO_CHANNELS_MAX; slot++) {
        struct remo_channel *channel = registry->slots[slot];
        if (channel && channel->joined && !channel->closing && takes_part(channel, peer))
            remo__join_send(channel, peer);
    }
    pthread_mutex_unlock(&registry->lock);
    remo__registry_changed(registry);
}

void remo__join_peer_down(void *ctx, uint32_t peer) {
    struct remo__registry *registry = ctx;
    for (uint32_t slot = 1; slot < REMO_CHANNELS_MAX; slot++) {
        pthread_mutex_lock(&registry->lock);
        struct remo_channel *channel = registry->slots[slot];
        bool tell = channel && !channel->closing && mark_gone(channel, peer, REMO_CHANNEL_DOWN);
        if (channel)
            end_grant(registry, channel, peer);
        pthread_mutex_unlock(&registry->lock);
        if (tell)
            tell_gone(channel, peer, REMO_CHANNEL_DOWN);
    }
    remo__registry_changed(registry);
}

/* ---- messages and immediates ---- */

int remo_channel_send(struct remo_channel *channel, uint32_t node, const void *data, size_t size_bytes) {
    uint8_t frame[REMO_CHANNEL_MESSAGE_BYTES_MAX + 8];
    if (size_bytes > REMO_CHANNEL_MESSAGE_BYTES_MAX)
        return remo__fail(-EMSGSIZE, "a channel message has at most %u bytes, not %zu", REMO_CHANNEL_MESSAGE_BYTES_MAX, size_bytes);
    if (node >= channel->node->size || atomic_load(&channel->peers[node].state) != REMO_CHANNEL_CONNECTED)
        return remo__fail(-ENOTCONN, "node %u is not connected to channel %s", node, channel->name);
    struct remo__writer writer = remo__writer_of(frame, sizeof frame);
    remo__put_u32(&writer, atomic_load(&channel->peers[node].id));
    remo__put_bytes(&writer, data, size_bytes);
    return remo__node_send(channel->node, node, MESSAGE, frame, (size_t)(writer.at - frame));
}

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

static void on_message(struct remo__registry *registry, uint32_t peer, struct remo__reader *reader) {
    struct remo_channel *channel = hold_open(registry, remo__get_u32(reader));
    if (!channel)
        return;
    size_t bytes = remo__reader_left(reader);
    const void *data = remo__get_span(reader, bytes);
    if (channel->options.on_message && takes_part(channel, peer) && data)
        channel->options.on_message(channel->options.ctx, peer, data, bytes);
    done_with(channel);
}

void remo__join_frame(void *ctx, uint32_t peer, uint16_t type, const void *data, size_t bytes) {
    struct remo__registry *registry = ctx;
    struct remo__reader reader = remo__reader_of(data, bytes);
    switch (type) {
    case JOIN:
        on_join(registry, peer, &reader);
        break;
    case CONNECT:
        on_connect(registry, peer, &reader);
        break;
    case REFUSE:
        on_refuse(registry, &reader);
        break;
    case LEAVE:
        on_leave(registry, peer, &reader);
        break;
    case MESSAGE:
        on_message(registry, peer, &reader);
        return;
    default:
        remo__log(&registry->node->log, REMO_LOG_WARNING, "node %u sent a frame of unknown type %u", peer, type);
    }
    remo__registry_changed(registry);
}

void remo__join_immediate(void *ctx, uint32_t peer, uint32_t value) {
    struct remo_channel *channel = hold_open(ctx, value >> (32 - REMO__ID_BITS));
    if (!channel)
        return;
    if (channel->options.on_immediate && takes_part(channel, peer))
        channel->options.on_immediate(channel->options.ctx, peer, value & REMO_CHANNEL_IMMEDIATE_MAX);
    done_with(channel);
}

int remo__channel_write_immediate(struct remo_channel *channel, const struct remo__memory *memory, uint32_t node, uint64_t offset,
                                  const void *src, size_t bytes, uint32_t value, struct remo_ack *ack) {
    struct remo__thread *thread = remo__thread(channel->node);
    if (!thread)
        return -EAGAIN;
    uint64_t at = remo__memory_at(memory, node, offset);
    if (at == REMO__NO_OFFSET)
        return remo__fail(-ENOTCONN, "node %u is not connected to channel %s", node, channel->name);
    uint32_t imm = atomic_load(&channel->peers[node].id) << (32 - REMO__ID_BITS) | (value & REMO_CHANNEL_IMMEDIATE_MAX);
    return remo__op_write(thread, remo__channel_counters(channel, thread), node, at, src, bytes, REMO__WRITE_IMM, imm, ack);
}
