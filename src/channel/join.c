/* join.c - how endpoints of one name find each other, and how they part.
 *
 * A JOIN describes an endpoint: its name, type, participants and memory. A node with a matching endpoint
 * answers CONNECT with its addresses. A node without one sends a JOIN of its own when it opens the channel, or
 * REFUSE then if it does not count the sender as a participant (early.h).
 *
 * ANSWERED says that a JOIN has been compared, whatever came of it. Of two nodes that do not match, the one
 * whose JOIN is compared later meets the endpoint of the other: so at least one of them is refused before its
 * remo_channel_join returns.
 *
 * When a JOIN arrives at an endpoint that does not know its sender's addresses yet (its own JOIN may have come
 * too early there), it sends its JOIN again, behind its CONNECT: so each pair connects, in whichever order
 * they open, and it ends, because the CONNECT makes the sender know. The second JOIN names the endpoint that
 * it answers (to_id): if the first had not come too early, the pair is whole before the second arrives, and
 * may be closed and open again.
 *
 * A pair is connected when each knows the other's addresses: then whoever sees it first may use them and
 * close at once, and the other will still see the connection before the end. An endpoint takes the addresses
 * of one endpoint of each peer, ever. A CONNECT of another one, or one that reaches nobody, is answered by
 * LEAVE: I do not use your memory, keep it for me no longer. A JOIN of another one is a later life that is
 * meant for our later life.
 *
 * What does not match is answered by REFUSE, with the sentence for both ends. An endpoint that has met a
 * mismatch connects to nobody any more: whoever asks is refused in the same words, so that nobody waits in
 * vain for a channel that cannot become whole. Each pair refuses once; what comes then is a later life too.
 *
 * An endpoint whose addresses we do not know, but that was told ours (granted_id), may give way to another
 * one of the same node: names are unique there, so it was closed before the other was opened, and had it
 * known our addresses, its LEAVE would have come first.
 */
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "channel/message.h"
#include "channel/registry.h"
#include "node/arena.h"

static bool takes_part(const struct remo_channel *channel, uint32_t node) {
    return remo_nodeset_has(&channel->participants, node);
}

static bool provides(const struct remo__memory *memory, uint32_t node) {
    return remo_nodeset_has(&memory->providers, node);
}

/* ---- sending ---- */

/* That the peer is gone is no news; else something will wait for this in vain. */
static int send_frame(struct remo_node *node, uint32_t peer, enum remo__message_type type,
                      const uint8_t *frame, size_t bytes) {
    int rc = remo__node_send(node, peer, (uint16_t)type, frame, bytes);
    if (rc != 0)
        remo__log(&node->log, rc == -EHOSTDOWN ? REMO_LOG_DEBUG : REMO_LOG_ERROR,
                  "a channel's message was lost: %s", remo_last_error());
    return rc == -EHOSTDOWN ? 0 : rc;
}

int remo__join_send(struct remo_channel *channel, uint32_t peer, uint32_t to_id) {
    uint8_t frame[REMO__MESSAGE_BYTES_MAX];
    struct remo__join join = {.id = channel->id, .to_id = to_id, .memory_count = channel->memory_count};
    if (!remo__peer_alive(channel->node, peer))
        return 0; /* it gets ours when it comes up */
    channel->peers[peer].asked = true;
    memcpy(join.name, channel->name, sizeof join.name);
    memcpy(join.type, channel->type, sizeof join.type);
    join.participants = channel->participants;
    for (uint32_t i = 0; i < channel->memory_count; i++) {
        const struct remo__memory *memory = &channel->memories[i];
        memcpy(join.memories[i].name, memory->name, sizeof memory->name);
        join.memories[i].expected_bytes = memory->expected_bytes;
        join.memories[i].providers = memory->providers;
    }
    return send_frame(channel->node, peer, REMO__MESSAGE_JOIN, frame, remo__join_encode(&join, frame));
}

static void send_connect(struct remo_channel *channel, uint32_t peer, uint32_t to_id) {
    uint8_t frame[REMO__MESSAGE_BYTES_MAX];
    struct remo__connect connect = {.id = channel->id, .to_id = to_id, .memory_count = channel->memory_count};
    for (uint32_t i = 0; i < channel->memory_count; i++) {
        connect.memories[i].offset = channel->memories[i].own_offset;
        connect.memories[i].bytes = channel->memories[i].own_bytes;
    }
    (void)send_frame(channel->node, peer, REMO__MESSAGE_CONNECT, frame,
                     remo__connect_encode(&connect, frame));
}

static void send_leave(struct remo_node *node, uint32_t peer, uint32_t id, uint32_t to_id) {
    uint8_t frame[REMO__MESSAGE_BYTES_MAX];
    struct remo__leave leave = {.id = id, .to_id = to_id};
    (void)send_frame(node, peer, REMO__MESSAGE_LEAVE, frame, remo__leave_encode(&leave, frame));
}

static void send_refuse(struct remo_node *node, uint32_t peer, const struct remo__refuse *refuse) {
    uint8_t frame[REMO__MESSAGE_BYTES_MAX];
    (void)send_frame(node, peer, REMO__MESSAGE_REFUSE, frame, remo__refuse_encode(refuse, frame));
}

static void send_answered(struct remo_node *node, uint32_t peer, uint32_t to_id) {
    uint8_t frame[REMO__MESSAGE_BYTES_MAX];
    struct remo__answered answered = {.to_id = to_id};
    (void)send_frame(node, peer, REMO__MESSAGE_ANSWERED, frame, remo__answered_encode(&answered, frame));
}

/* To the endpoint `to_id` of a participant: the lock is held. Both ends hear of it, in the same words. */
static void refuse(struct remo_channel *channel, uint32_t peer, uint32_t to_id, const char *text) {
    struct remo__refuse frame = {.to_id = to_id};
    snprintf(frame.text, sizeof frame.text, "%s", text);
    channel->peers[peer].refused = true;
    send_refuse(channel->node, peer, &frame);
}

static void set_mismatch(struct remo_channel *channel, const char *text) {
    if (atomic_load(&channel->mismatched))
        return;
    snprintf(channel->error_text, sizeof channel->error_text, "%s", text);
    atomic_store(&channel->mismatched, true);
    remo__log(&channel->node->log, REMO_LOG_ERROR, "%s", text);
}

/* ---- callbacks: never under the lock, and never when close has begun ---- */

/* A channel that a callback opens here cannot wait for the answers, which come by this thread. */
static void begin_handling(struct remo__registry *registry) {
    atomic_store(&registry->control_thread, pthread_self());
    atomic_store(&registry->handling, true);
}

static void end_handling(struct remo__registry *registry) {
    atomic_store(&registry->handling, false);
}

/* What a frame changed for one pair. The channel is held (busy) until it has been told. */
struct news {
    struct remo_channel *channel;
    bool joined, connected;
    uint32_t gone; /* REMO_CHANNEL_LEFT or DOWN; else 0 */
};

static void done_with(struct remo_channel *channel) {
    struct remo_node *node = channel->node;
    atomic_fetch_sub(&channel->busy, 1);
    remo__wake(node);
}

/* The lock is held. */
static void hold_if_news(struct remo_channel *channel, struct news *news) {
    if (!news->joined && !news->connected && !news->gone)
        return;
    news->channel = channel;
    atomic_fetch_add(&channel->busy, 1);
}

static void tell(const struct news *news, uint32_t peer) {
    if (!news->channel)
        return;
    const struct remo_channel_options *options = &news->channel->options;
    if (news->joined && options->on_join)
        options->on_join(options->ctx, peer);
    if (news->connected && options->on_connect)
        options->on_connect(options->ctx, peer);
    if (news->gone && options->on_leave)
        options->on_leave(options->ctx, peer, (enum remo_channel_peer)news->gone);
    done_with(news->channel);
}

/* After either half of a connection came: is it whole now? */
static bool becomes_connected(struct remo__channel_peer *known) {
    if (known->granted_id == 0 || known->granted_id != atomic_load(&known->id)
        || atomic_load(&known->state) != REMO_CHANNEL_WAITING)
        return false;
    known->met = true;
    atomic_store(&known->state, REMO_CHANNEL_CONNECTED);
    return true;
}

static void garbage(struct remo__registry *registry, uint32_t peer, const char *what) {
    remo__log(&registry->node->log, REMO_LOG_ERROR, "node %u sent a %s that makes no sense; it was dropped",
              peer, what);
}

/* ---- JOIN ---- */

/* Compare who participates. False with `text` when the sets differ. */
static bool same_participants(const struct remo_channel *channel, uint32_t peer,
                              const struct remo__join *join, char *text, size_t cap) {
    char own[REMO__NODESET_TEXT_BYTES], other[REMO__NODESET_TEXT_BYTES];
    if (remo__nodeset_equal(&channel->participants, &join->participants))
        return true;
    snprintf(text, cap,
             "channel %s has the participants %s on node %u but %s on node %u; name the same participants "
             "on every node",
             channel->name, remo__nodeset_text(&channel->participants, own), channel->node->rank,
             remo__nodeset_text(&join->participants, other), peer);
    return false;
}

/* Compare memory `i`: its name, its providers, and the bytes expected of this node. An endpoint that expects
 * no bytes does not use the memory, so its providers mean nothing. */
static bool same_memory(const struct remo_channel *channel, uint32_t peer, const struct remo__join *join,
                        uint32_t i, char *text, size_t cap) {
    const struct remo__memory *memory = &channel->memories[i];
    char own[REMO__NODESET_TEXT_BYTES], other[REMO__NODESET_TEXT_BYTES];
    const struct remo_nodeset *providers = &join->memories[i].providers;
    uint32_t self = channel->node->rank;
    uint64_t expected = remo_nodeset_has(providers, self) ? join->memories[i].expected_bytes : 0;
    bool used_by_both = join->memories[i].expected_bytes > 0 && memory->expected_bytes > 0;
    if (used_by_both && !remo__nodeset_equal(&memory->providers, providers)) {
        snprintf(text, cap,
                 "channel %s.%s lives at %s on node %u but at %s on node %u; open it with the same homes on "
                 "every node",
                 channel->name, memory->name, remo__nodeset_text(&memory->providers, own), self,
                 remo__nodeset_text(providers, other), peer);
        return false;
    }
    if (strcmp(join->memories[i].name, memory->name) == 0
        && (expected == 0 || expected == memory->own_bytes))
        return true;
    snprintf(text, cap,
             "channel %s.%s: node %u expects %llu bytes on node %u, which has %llu; open it with the same "
             "sizes on every node",
             channel->name, join->memories[i].name, peer, (unsigned long long)expected, self,
             (unsigned long long)memory->own_bytes);
    return false;
}

/* The sender must describe the channel as this endpoint does: every option that decides where state lives or
 * how it is laid out is part of the type, of the participants or of a memory. False with `text`, which has
 * both descriptions, when it does not. */
static bool matches(const struct remo_channel *channel, uint32_t peer, const struct remo__join *join,
                    char *text, size_t cap) {
    uint32_t self = channel->node->rank;
    if (!same_participants(channel, peer, join, text, cap)) /* first: sizes depend on it */
        return false;
    if (strcmp(join->type, channel->type) != 0) {
        snprintf(text, cap,
                 "channel %s is a %s on node %u but a %s on node %u; open it as the same on every node",
                 channel->name, channel->type, self, join->type, peer);
        return false;
    }
    if (join->memory_count != channel->memory_count) {
        snprintf(text, cap,
                 "channel %s has %u memories on node %u but %u on node %u; open it with the same options on "
                 "every node",
                 channel->name, channel->memory_count, self, join->memory_count, peer);
        return false;
    }
    for (uint32_t i = 0; i < join->memory_count; i++)
        if (!same_memory(channel, peer, join, i, text, cap))
            return false;
    return true;
}

/* The sender counts this node among its participants, and this endpoint does not count the sender. Only the
 * sender is refused: the participants of this endpoint may be complete without it. */
static void refuse_stranger(struct remo_channel *channel, uint32_t peer, const struct remo__join *join) {
    struct remo__refuse frame = {.to_id = join->id};
    (void)same_participants(channel, peer, join, frame.text, sizeof frame.text);
    send_refuse(channel->node, peer, &frame);
}

void remo__join_refuse_early(struct remo_channel *channel) {
    struct remo__join join;
    uint32_t peer;
    while (remo__early_take(&remo__registry(channel->node)->early, channel->name, &peer, &join))
        if (!takes_part(channel, peer))
            refuse_stranger(channel, peer, &join);
}

/* May this pair connect? If not, the peer is refused. */
static bool welcome(struct remo_channel *channel, uint32_t peer, const struct remo__join *join) {
    char text[REMO__MISMATCH_BYTES];
    if (!matches(channel, peer, join, text, sizeof text)) {
        refuse(channel, peer, join->id, text);
        set_mismatch(channel, text);
        return false;
    }
    if (!atomic_load(&channel->mismatched))
        return true;
    if (channel->peers[peer].granted_id != join->id) /* else it knows our addresses: its CONNECT is refused */
        refuse(channel, peer, join->id, channel->error_text);
    return false;
}

/* The lock is held. */
static void answer_join(struct remo_channel *channel, uint32_t peer, const struct remo__join *join,
                        struct news *news) {
    struct remo__channel_peer *known = &channel->peers[peer];
    uint32_t id = atomic_load(&known->id);
    if (known->refused || atomic_load(&known->state) > REMO_CHANNEL_CONNECTED
        || (id != 0 && id != join->id))
        return;
    if (!takes_part(channel, peer)) {
        refuse_stranger(channel, peer, join);
        return;
    }
    if (!welcome(channel, peer, join))
        return;
    news->joined = known->granted_id != join->id;
    known->granted_id = join->id;
    send_connect(channel, peer, join->id);
    if (id == 0)
        (void)remo__join_send(channel, peer, join->id);
    news->connected = becomes_connected(known);
    hold_if_news(channel, news);
}

static void on_join(struct remo__registry *registry, uint32_t peer, const void *frame, size_t bytes) {
    struct remo__join join;
    struct news news = {0};
    if (!remo__join_decode(frame, bytes, &join) || !remo_nodeset_has(&join.participants, peer)) {
        garbage(registry, peer, "JOIN");
        return;
    }
    pthread_mutex_lock(&registry->lock);
    struct remo_channel *channel = remo__registry_by_name(registry, join.name);
    if (channel && channel->joined && (join.to_id == 0 || join.to_id == channel->id))
        answer_join(channel, peer, &join, &news);
    else if (join.to_id == 0)
        remo__early_keep(&registry->early, peer, &join);
    if (join.to_id == 0)
        send_answered(registry->node, peer, join.id);
    pthread_mutex_unlock(&registry->lock);
    tell(&news, peer);
}

/* ---- CONNECT ---- */

/* The peer's words are checked: what it says it has must be what we expect, inside memory we can reach. */
static bool accept_addresses(struct remo_channel *channel, uint32_t peer,
                             const struct remo__connect *connect) {
    uint64_t reachable = atomic_load(&channel->node->peers[peer].mapped_bytes),
             offsets[REMO_CHANNEL_MEMORIES_MAX];
    char text[REMO__MISMATCH_BYTES];
    bool answers = connect->memory_count == channel->memory_count, in_reach = true;
    for (uint32_t i = 0; answers && i < channel->memory_count; i++) {
        const struct remo__memory *memory = &channel->memories[i];
        uint64_t offset = connect->memories[i].offset, bytes = connect->memories[i].bytes;
        bool used = provides(memory, peer) && memory->expected_bytes > 0;
        offsets[i] = used ? offset : REMO__NO_OFFSET;
        answers = !used || (bytes == memory->expected_bytes && offset % REMO__CACHE_LINE == 0);
        in_reach = in_reach && (!used || (bytes <= reachable && offset <= reachable - bytes));
    }
    if (!answers || !in_reach) {
        snprintf(
            text, sizeof text, "channel %s: node %u %s", channel->name, peer,
            answers
                ? "has its memory where this node cannot reach it; the log says why it could not be mapped"
                : "answered with other memory than it was asked for; start all nodes from the same build");
        set_mismatch(channel, text);
        return false;
    }
    for (uint32_t i = 0; i < channel->memory_count; i++)
        atomic_store(&channel->memories[i].offsets[peer], offsets[i]);
    return true;
}

/* Take the addresses, if they are for us; the lock is held. False: they will not be used. */
static bool answer_connect(struct remo_channel *channel, uint32_t peer, const struct remo__connect *connect,
                           struct news *news) {
    if (!channel || channel->slot == 0 || channel->closing || !takes_part(channel, peer))
        return false;
    struct remo__channel_peer *known = &channel->peers[peer];
    uint32_t id = atomic_load(&known->id);
    if (id == connect->id)
        return true; /* said twice */
    if (id != 0 || known->refused || atomic_load(&known->state) != REMO_CHANNEL_WAITING)
        return false;
    if (atomic_load(&channel->mismatched) || !accept_addresses(channel, peer, connect)) {
        refuse(channel, peer, connect->id, channel->error_text);
        return false;
    }
    atomic_store(&known->id, connect->id);
    news->connected = becomes_connected(known);
    hold_if_news(channel, news);
    return true;
}

static void on_connect(struct remo__registry *registry, uint32_t peer, const void *frame, size_t bytes) {
    struct remo__connect connect;
    struct news news = {0};
    if (!remo__connect_decode(frame, bytes, &connect)) {
        garbage(registry, peer, "CONNECT");
        return;
    }
    pthread_mutex_lock(&registry->lock);
    if (!answer_connect(remo__registry_by_id(registry, connect.to_id), peer, &connect, &news))
        send_leave(registry->node, peer, connect.to_id, connect.id);
    pthread_mutex_unlock(&registry->lock);
    tell(&news, peer);
}

static void on_refuse(struct remo__registry *registry, uint32_t peer, const void *frame, size_t bytes) {
    struct remo__refuse refuse;
    if (!remo__refuse_decode(frame, bytes, &refuse)) {
        garbage(registry, peer, "REFUSE");
        return;
    }
    pthread_mutex_lock(&registry->lock);
    struct remo_channel *channel = remo__registry_by_id(registry, refuse.to_id);
    if (channel && channel->slot != 0 && takes_part(channel, peer)) {
        channel->peers[peer].refused = true;
        set_mismatch(channel, refuse.text);
    }
    pthread_mutex_unlock(&registry->lock);
}

static void on_answered(struct remo__registry *registry, uint32_t peer, const void *frame, size_t bytes) {
    struct remo__answered answered;
    if (!remo__answered_decode(frame, bytes, &answered)) {
        garbage(registry, peer, "ANSWERED");
        return;
    }
    pthread_mutex_lock(&registry->lock);
    struct remo_channel *channel = remo__registry_by_id(registry, answered.to_id);
    if (channel && channel->slot != 0)
        atomic_store(&channel->peers[peer].awaited, false);
    pthread_mutex_unlock(&registry->lock);
}

/* ---- LEAVE, and the death of a peer ---- */

/* The peer uses our addresses no more; the lock is held. The channel may be gone afterwards. */
static void end_grant(struct remo__registry *registry, struct remo_channel *channel, uint32_t peer) {
    if (channel->peers[peer].granted_id == 0)
        return;
    channel->peers[peer].granted_id = 0;
    if (channel->closing && --channel->grants == 0 && !channel->parent)
        remo__registry_destroy(registry, channel);
}

/* Mark the peer as gone for an open channel; the lock is held. */
static void mark_gone(struct remo_channel *channel, uint32_t peer, enum remo_channel_peer state,
                      struct news *news) {
    struct remo__channel_peer *known = &channel->peers[peer];
    if (channel->closing || !takes_part(channel, peer) || atomic_load(&known->state) > REMO_CHANNEL_CONNECTED)
        return;
    for (uint32_t i = 0; i < channel->memory_count; i++)
        atomic_store(&channel->memories[i].offsets[peer], REMO__NO_OFFSET);
    atomic_store(&known->state, state);
    news->gone = state;
    hold_if_news(channel, news);
}

static void on_leave(struct remo__registry *registry, uint32_t peer, const void *frame, size_t bytes) {
    struct remo__leave leave;
    struct news news = {0};
    if (!remo__leave_decode(frame, bytes, &leave)) {
        garbage(registry, peer, "LEAVE");
        return;
    }
    pthread_mutex_lock(&registry->lock);
    struct remo_channel *channel = remo__registry_by_id(registry, leave.to_id);
    if (channel && channel->slot != 0) {
        if (atomic_load(&channel->peers[peer].id) == leave.id)
            mark_gone(channel, peer, REMO_CHANNEL_LEFT, &news);
        if (channel->peers[peer].granted_id == leave.id)
            end_grant(registry, channel, peer);
    }
    pthread_mutex_unlock(&registry->lock);
    tell(&news, peer);
}

void remo__join_leave(struct remo_channel *channel) {
    for (uint32_t peer = 0; peer < channel->node->size; peer++) {
        struct remo__channel_peer *known = &channel->peers[peer];
        uint32_t id = atomic_load(&known->id) ? atomic_load(&known->id) : known->granted_id;
        if (peer == channel->node->rank || id == 0)
            continue;
        if (!remo__peer_alive(channel->node, peer)) {
            /* A dead peer keeps nothing; that it is dead may not have been told here yet. */
            known->granted_id = 0;
            continue;
        }
        channel->grants += known->granted_id != 0;
        send_leave(channel->node, peer, channel->id, id);
    }
}

void remo__join_peer_up(void *ctx, uint32_t peer) {
    struct remo__registry *registry = ctx;
    atomic_store(&registry->control_thread, pthread_self()); /* on_peer runs next */
    pthread_mutex_lock(&registry->lock);
    for (uint32_t slot = 1; slot < REMO_CHANNELS_MAX; slot++) {
        struct remo_channel *channel = registry->slots[slot];
        if (channel && channel->joined && !channel->closing && takes_part(channel, peer)
            && atomic_load(&channel->peers[peer].state) == REMO_CHANNEL_WAITING
            && !channel->peers[peer].asked)
            (void)remo__join_send(channel, peer, 0);
    }
    pthread_mutex_unlock(&registry->lock);
    remo__registry_changed(registry);
}

void remo__join_peer_down(void *ctx, uint32_t peer) {
    struct remo__registry *registry = ctx;
    begin_handling(registry);
    pthread_mutex_lock(&registry->lock);
    remo__early_forget(&registry->early, peer);
    pthread_mutex_unlock(&registry->lock);
    for (uint32_t slot = 1; slot < REMO_CHANNELS_MAX; slot++) {
        struct news news = {0};
        pthread_mutex_lock(&registry->lock);
        struct remo_channel *channel = registry->slots[slot];
        if (channel) {
            mark_gone(channel, peer, REMO_CHANNEL_DOWN, &news);
            end_grant(registry, channel, peer);
        }
        pthread_mutex_unlock(&registry->lock);
        tell(&news, peer);
    }
    end_handling(registry);
    remo__registry_changed(registry);
}

/* ---- messages and immediates that arrive ---- */

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

static void on_message(struct remo__registry *registry, uint32_t peer, const void *frame, size_t bytes) {
    const void *data;
    size_t data_bytes;
    uint32_t to_id;
    if (!remo__user_decode(frame, bytes, &to_id, &data, &data_bytes)) {
        garbage(registry, peer, "message");
        return;
    }
    struct remo_channel *channel = hold_open(registry, to_id);
    if (!channel)
        return;
    if (channel->options.on_message && takes_part(channel, peer))
        channel->options.on_message(channel->options.ctx, peer, data, data_bytes);
    done_with(channel);
}

void remo__join_frame(void *ctx, uint32_t peer, uint16_t type, const void *data, size_t bytes) {
    struct remo__registry *registry = ctx;
    begin_handling(registry);
    switch (type) {
    case REMO__MESSAGE_JOIN: on_join(registry, peer, data, bytes); break;
    case REMO__MESSAGE_CONNECT: on_connect(registry, peer, data, bytes); break;
    case REMO__MESSAGE_REFUSE: on_refuse(registry, peer, data, bytes); break;
    case REMO__MESSAGE_LEAVE: on_leave(registry, peer, data, bytes); break;
    case REMO__MESSAGE_ANSWERED: on_answered(registry, peer, data, bytes); break;
    case REMO__MESSAGE_USER: on_message(registry, peer, data, bytes); break;
    default: garbage(registry, peer, "message of unknown type");
    }
    end_handling(registry);
    if (type != REMO__MESSAGE_USER)
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
