/* join.c - the protocol by which endpoints of one name connect and disconnect.
 *
 * Invariant: during its lifetime, an endpoint accepts the addresses of at most one endpoint of each peer.
 * docs/internals/join.md describes the messages, the states of a pair and the proofs. */
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "channel/message.h"
#include "channel/registry.h"
#include "node/arena.h"
#include "remote/fence.h"

static bool is_participant(const struct remo_channel *channel, uint32_t node) {
    return remo_nodeset_has(&channel->participants, node);
}

static bool provides(const struct remo__memory *memory, uint32_t node) {
    return remo_nodeset_has(&memory->providers, node);
}

/* ---- sending ---- */

/* Send a frame. A failed peer is not an error. After any other error, the peer's wait for the frame times
 * out. */
static int send_frame(struct remo_node *node, uint32_t peer, enum remo__message_type type,
                      const uint8_t *frame, size_t bytes) {
    int rc = remo__node_send(node, peer, (uint16_t)type, frame, bytes);
    if (rc != 0)
        remo__log(&node->log, rc == -EHOSTDOWN ? REMO_LOG_DEBUG : REMO_LOG_ERROR,
                  "cannot send a message of a channel, so the peer's wait for it times out: %s",
                  remo_last_error());
    return rc == -EHOSTDOWN ? 0 : rc;
}

int remo__join_send(struct remo_channel *channel, uint32_t peer, uint32_t to_id) {
    uint8_t frame[REMO__MESSAGE_BYTES_MAX];
    struct remo__join join = {.id = channel->id, .to_id = to_id, .memory_count = channel->memory_count};
    if (!remo__peer_is_up(channel->node, peer))
        return 0; /* remo__join_peer_up sends the JOIN */
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

static void send_leave(struct remo_node *node, uint32_t peer, uint32_t id, uint32_t to_id, bool in_flight) {
    uint8_t frame[REMO__MESSAGE_BYTES_MAX];
    struct remo__leave leave = {.id = id, .to_id = to_id, .in_flight = in_flight};
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

/* Refuse the endpoint `to_id` of a participant. Both nodes report the same sentence. The lock is held. */
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

/* ---- callbacks: never called with the lock held, and never after a close has begun ---- */

/* Mark this thread as the one that handles frames. A channel that a callback opens on this thread cannot wait
 * for ANSWERED, because this thread receives it. */
static void begin_handling(struct remo__registry *registry) {
    atomic_store(&registry->control_thread, pthread_self());
    atomic_store(&registry->handling, true);
}

static void end_handling(struct remo__registry *registry) {
    atomic_store(&registry->handling, false);
}

/* The change of one pair, for the callbacks. The channel stays busy until the callbacks have returned. */
struct pair_change {
    struct remo_channel *channel; /* NULL: no change */
    bool joined, connected, cut_off;
    uint32_t ended; /* REMO_CHANNEL_LEFT or DOWN; else 0 */
};

/* Keep the channel busy if the pair has changed. The lock is held. */
static void begin_busy(struct remo_channel *channel, struct pair_change *change) {
    if (!change->joined && !change->connected && !change->ended && !change->cut_off)
        return;
    change->channel = channel;
    atomic_fetch_add(&channel->busy, 1);
}

static void call_back(const struct pair_change *change, uint32_t peer) {
    if (!change->channel)
        return;
    const struct remo_channel_options *options = &change->channel->options;
    if (change->joined && options->on_join)
        options->on_join(options->ctx, peer);
    if (change->connected && options->on_connect)
        options->on_connect(options->ctx, peer);
    if (change->ended && options->on_leave)
        options->on_leave(options->ctx, peer, (enum remo_channel_state)change->ended);
    if (change->cut_off && options->on_cut_off)
        options->on_cut_off(options->ctx, peer);
    remo__channel_release(change->channel);
}

/* Make the pair CONNECTED if each endpoint now has the other's addresses. Returns whether it did. */
static bool becomes_connected(struct remo__channel_peer *known) {
    if (known->granted_id == 0 || known->granted_id != atomic_load(&known->id)
        || atomic_load(&known->state) != REMO_CHANNEL_WAITING)
        return false;
    known->met = true;
    atomic_store(&known->state, REMO_CHANNEL_CONNECTED);
    return true;
}

/* ---- JOIN ---- */

/* Compare the participants. If the sets differ, return false and set `text`. */
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

/* Compare memory `i`: its name, its providers, and the size that the peer expects of this node's share. An
 * endpoint that expects no bytes does not use the memory, so its providers are ignored. */
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
                 "channel %s.%s has the homes %s on node %u but %s on node %u; open it with the same homes "
                 "on every node",
                 channel->name, memory->name, remo__nodeset_text(&memory->providers, own), self,
                 remo__nodeset_text(providers, other), peer);
        return false;
    }
    if (strcmp(join->memories[i].name, memory->name) == 0 && (expected == 0 || expected == memory->own_bytes))
        return true;
    snprintf(text, cap,
             "channel %s.%s: node %u expects %llu bytes on node %u, which has %llu; open it with the same "
             "sizes on every node",
             channel->name, join->memories[i].name, peer, (unsigned long long)expected, self,
             (unsigned long long)memory->own_bytes);
    return false;
}

/* Compare the sender's description of the channel with this endpoint. Every option that determines where
 * state is stored or how it is laid out is part of the type, the participants or a memory. If the two differ,
 * return false and set `text`, which has both descriptions. */
static bool matches(const struct remo_channel *channel, uint32_t peer, const struct remo__join *join,
                    char *text, size_t cap) {
    uint32_t self = channel->node->rank;
    if (!same_participants(channel, peer, join, text, cap)) /* first: sizes depend on the participants */
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

/* Refuse the endpoint of an outsider. This endpoint does not wait for the outsider, and is not affected. */
static void refuse_outsider(struct remo_channel *channel, uint32_t peer, const struct remo__join *join) {
    struct remo__refuse frame = {.to_id = join->id};
    (void)same_participants(channel, peer, join, frame.text, sizeof frame.text);
    remo__log(&channel->node->log, REMO_LOG_WARNING, "%s", frame.text);
    send_refuse(channel->node, peer, &frame);
}

int remo__join_answer_early(struct remo_channel *channel) {
    uint32_t peer, id;
    int rc = 0;
    while (rc == 0 && remo__early_take(&remo__registry(channel->node)->early, channel->name, &peer, &id)) {
        if (is_participant(channel, peer))
            continue; /* remo_channel_join sends a participant a JOIN */
        channel->peers[peer].early_id = id;
        atomic_store(&channel->peers[peer].awaited, remo__peer_is_up(channel->node, peer));
        rc = remo__join_send(channel, peer, id);
    }
    return rc;
}

/* Return whether this pair may connect; refuse the peer otherwise. */
static bool accept_join(struct remo_channel *channel, uint32_t peer, const struct remo__join *join) {
    char text[REMO__MISMATCH_BYTES];
    if (!matches(channel, peer, join, text, sizeof text)) {
        refuse(channel, peer, join->id, text);
        set_mismatch(channel, text);
        return false;
    }
    if (!atomic_load(&channel->mismatched))
        return true;
    if (channel->peers[peer].granted_id
        != join->id) /* else the peer has this endpoint's addresses, and its CONNECT is refused */
        refuse(channel, peer, join->id, channel->error_text);
    return false;
}

/* Answer a JOIN to an open endpoint. The lock is held. */
static void answer_join(struct remo_channel *channel, uint32_t peer, const struct remo__join *join,
                        struct pair_change *change) {
    struct remo__channel_peer *known = &channel->peers[peer];
    uint32_t id = atomic_load(&known->id);
    if (!is_participant(channel, peer)) {
        refuse_outsider(channel, peer, join);
        return;
    }
    if (known->refused || atomic_load(&known->state) > REMO_CHANNEL_CONNECTED || (id != 0 && id != join->id))
        return;
    if (!accept_join(channel, peer, join))
        return;
    change->joined = known->granted_id != join->id;
    known->granted_id = join->id;
    send_connect(channel, peer, join->id);
    if (id == 0)
        (void)remo__join_send(channel, peer, join->id);
    change->connected = becomes_connected(known);
    begin_busy(channel, change);
}

static void on_join(struct remo__registry *registry, uint32_t peer, const void *frame, size_t bytes) {
    struct remo__join join;
    struct pair_change change = {0};
    if (!remo__join_decode(frame, bytes, &join) || !remo_nodeset_has(&join.participants, peer)) {
        remo__registry_log_malformed(registry, peer, "JOIN");
        return;
    }
    pthread_mutex_lock(&registry->lock);
    struct remo_channel *channel = remo__registry_by_name(registry, join.name);
    if (channel && channel->joined && (join.to_id == 0 || join.to_id == channel->id))
        answer_join(channel, peer, &join, &change);
    else if (join.to_id == 0)
        remo__early_keep(&registry->early, peer, join.name, join.id);
    if (join.to_id == 0 || !remo_nodeset_has(&join.participants, registry->node->rank))
        send_answered(registry->node, peer, join.id);
    pthread_mutex_unlock(&registry->lock);
    call_back(&change, peer);
}

/* ---- CONNECT ---- */

/* Check and record the peer's addresses. The sizes must be as expected, and the ranges must be inside memory
 * that this node can access. */
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
        snprintf(text, sizeof text, "channel %s: node %u %s", channel->name, peer,
                 answers
                     ? "provides memory that this node cannot access; the log has the reason"
                     : "provides other memory than this node expects; start all nodes from the same build");
        set_mismatch(channel, text);
        return false;
    }
    for (uint32_t i = 0; i < channel->memory_count; i++)
        atomic_store(&channel->memories[i].offsets[peer], offsets[i]);
    return true;
}

/* Accept the addresses if they are for an open endpoint of this node. Returns false if this node will not use
 * them. The lock is held. */
static bool answer_connect(struct remo_channel *channel, uint32_t peer, const struct remo__connect *connect,
                           struct pair_change *change) {
    if (!channel || channel->slot == 0 || !is_participant(channel, peer))
        return false;
    struct remo__channel_peer *known = &channel->peers[peer];
    uint32_t id = atomic_load(&known->id);
    if (id == connect->id)
        return true; /* a repetition; a close sends the LEAVE */
    if (channel->closing || id != 0 || known->refused || atomic_load(&known->state) != REMO_CHANNEL_WAITING)
        return false;
    if (atomic_load(&channel->mismatched) || !accept_addresses(channel, peer, connect)) {
        refuse(channel, peer, connect->id, channel->error_text);
        return false;
    }
    atomic_store(&known->id, connect->id);
    change->connected = becomes_connected(known);
    begin_busy(channel, change);
    return true;
}

static void on_connect(struct remo__registry *registry, uint32_t peer, const void *frame, size_t bytes) {
    struct remo__connect connect;
    struct pair_change change = {0};
    if (!remo__connect_decode(frame, bytes, &connect)) {
        remo__registry_log_malformed(registry, peer, "CONNECT");
        return;
    }
    pthread_mutex_lock(&registry->lock);
    if (!answer_connect(remo__registry_by_id(registry, connect.to_id), peer, &connect, &change))
        send_leave(registry->node, peer, connect.to_id, connect.id, false);
    pthread_mutex_unlock(&registry->lock);
    call_back(&change, peer);
}

static void on_refuse(struct remo__registry *registry, uint32_t peer, const void *frame, size_t bytes) {
    struct remo__refuse refuse;
    if (!remo__refuse_decode(frame, bytes, &refuse)) {
        remo__registry_log_malformed(registry, peer, "REFUSE");
        return;
    }
    pthread_mutex_lock(&registry->lock);
    struct remo_channel *channel = remo__registry_by_id(registry, refuse.to_id);
    if (channel && channel->slot != 0) {
        channel->peers[peer].refused = true;
        set_mismatch(channel, refuse.text);
    }
    pthread_mutex_unlock(&registry->lock);
}

static void on_answered(struct remo__registry *registry, uint32_t peer, const void *frame, size_t bytes) {
    struct remo__answered answered;
    if (!remo__answered_decode(frame, bytes, &answered)) {
        remo__registry_log_malformed(registry, peer, "ANSWERED");
        return;
    }
    pthread_mutex_lock(&registry->lock);
    struct remo_channel *channel = remo__registry_by_id(registry, answered.to_id);
    if (channel && channel->slot != 0)
        atomic_store(&channel->peers[peer].awaited, false);
    pthread_mutex_unlock(&registry->lock);
}

/* ---- LEAVE, and the failure of a peer ---- */

/* End the peer's grant: the peer no longer uses this endpoint's addresses. The end of the last grant frees a
 * closed channel. The lock is held. */
static void end_grant(struct remo__registry *registry, struct remo_channel *channel, uint32_t peer) {
    if (channel->peers[peer].granted_id == 0)
        return;
    channel->peers[peer].granted_id = 0;
    if (channel->closing && --channel->grants == 0 && !channel->parent)
        remo__registry_destroy(registry, channel);
}

/* End the pair of an open channel. `is_cut_off`: no operation of the peer reaches this node's memory any
 * more. Otherwise a later call with is_cut_off follows. The lock is held. */
static void end_pair(struct remo_channel *channel, uint32_t peer, enum remo_channel_state state,
                     bool is_cut_off, struct pair_change *change) {
    struct remo__channel_peer *known = &channel->peers[peer];
    if (channel->closing || !is_participant(channel, peer))
        return;
    if (atomic_load(&known->state) <= REMO_CHANNEL_CONNECTED) {
        for (uint32_t i = 0; i < channel->memory_count; i++)
            atomic_store(&channel->memories[i].offsets[peer], REMO__NO_OFFSET);
        atomic_store(&known->state, state);
        change->ended = state;
    }
    change->cut_off = is_cut_off && !known->is_cut_off;
    known->is_cut_off = known->is_cut_off || is_cut_off;
    begin_busy(channel, change);
}

/* Report the final LEAVE of an endpoint that is granted but not known: it may have used this node's memory. A
 * later endpoint of the peer may still connect, so `is_cut_off` of the pair stays false. The lock is held. */
static void report_unknown(struct remo_channel *channel, struct pair_change *change) {
    change->cut_off = !channel->closing;
    begin_busy(channel, change);
}

/* The endpoint `id` of a peer has closed, and has withdrawn its JOIN. A join that has answered it stops
 * waiting, because the peer may be paused. The lock is held. */
static void withdraw(struct remo__registry *registry, uint32_t peer, uint32_t id) {
    remo__early_remove(&registry->early, peer, id);
    for (uint32_t slot = 1; slot < REMO__CHANNELS_MAX; slot++) {
        const struct remo_channel *channel = registry->slots[slot];
        if (channel && channel->peers[peer].early_id == id)
            atomic_store(&channel->peers[peer].awaited, false);
    }
}

static void on_leave(struct remo__registry *registry, uint32_t peer, const void *frame, size_t bytes) {
    struct remo__leave leave;
    struct pair_change change = {0};
    if (!remo__leave_decode(frame, bytes, &leave)) {
        remo__registry_log_malformed(registry, peer, "LEAVE");
        return;
    }
    pthread_mutex_lock(&registry->lock);
    struct remo_channel *channel = remo__registry_by_id(registry, leave.to_id);
    if (leave.to_id == 0)
        withdraw(registry, peer, leave.id);
    if (channel && channel->slot != 0) {
        bool is_final = !leave.in_flight;
        uint32_t id = atomic_load(&channel->peers[peer].id);
        bool ends_grant = channel->peers[peer].granted_id == leave.id && is_final;
        if (id == leave.id)
            end_pair(channel, peer, REMO_CHANNEL_LEFT, is_final, &change);
        else if (id == 0 && ends_grant)
            report_unknown(channel, &change);
        if (ends_grant)
            end_grant(registry, channel, peer);
    }
    pthread_mutex_unlock(&registry->lock);
    call_back(&change, peer);
}

void remo__join_leave(struct remo_channel *channel, bool is_fenced) {
    for (uint32_t peer = 0; peer < channel->node->size; peer++) {
        struct remo__channel_peer *known = &channel->peers[peer];
        uint32_t id = atomic_load(&known->id) ? atomic_load(&known->id) : known->granted_id;
        if (id == 0 && known->asked && remo__peer_is_up(channel->node, peer))
            send_leave(channel->node, peer, channel->id, 0, false); /* the peer may have kept the JOIN */
        if (peer == channel->node->rank || id == 0)
            continue;
        channel->grants += known->granted_id != 0;
        if (!remo__peer_is_up(channel->node, peer))
            continue; /* remo__join_peer_down ends the grant, after the peer was cut off */
        known->leaving_id = is_fenced ? 0 : id;
        send_leave(channel->node, peer, channel->id, id, !is_fenced);
    }
    channel->grants += !is_fenced; /* operations in flight may access this node's memory too */
}

void remo__join_leave_finally(struct remo_channel *channel) {
    for (uint32_t peer = 0; peer < channel->node->size; peer++)
        if (channel->peers[peer].leaving_id != 0)
            send_leave(channel->node, peer, channel->id, channel->peers[peer].leaving_id, false);
    channel->leaving_fence = 0;
    if (--channel->grants == 0 && !channel->parent)
        remo__registry_destroy(remo__registry(channel->node), channel);
}

void remo__join_peer_up(void *ctx, uint32_t peer) {
    struct remo__registry *registry = ctx;
    atomic_store(&registry->control_thread, pthread_self()); /* on_peer runs next */
    pthread_mutex_lock(&registry->lock);
    for (uint32_t slot = 1; slot < REMO__CHANNELS_MAX; slot++) {
        struct remo_channel *channel = registry->slots[slot];
        if (channel && channel->joined && !channel->closing && is_participant(channel, peer)
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
    for (uint32_t slot = 1; slot < REMO__CHANNELS_MAX; slot++) {
        struct pair_change change = {0};
        pthread_mutex_lock(&registry->lock);
        struct remo_channel *channel = registry->slots[slot];
        if (channel) {
            channel->peers[peer].leaving_id = 0;
            atomic_store(&channel->peers[peer].awaited, false);
            end_pair(channel, peer, REMO_CHANNEL_DOWN, true, &change);
            end_grant(registry, channel, peer);
        }
        pthread_mutex_unlock(&registry->lock);
        call_back(&change, peer);
    }
    end_handling(registry);
    remo__registry_changed(registry);
}

/* ---- frames that arrive ---- */

void remo__join_frame(void *ctx, uint32_t peer, uint16_t type, const void *data, size_t bytes) {
    struct remo__registry *registry = ctx;
    begin_handling(registry);
    switch (type) {
    case REMO__MESSAGE_JOIN: on_join(registry, peer, data, bytes); break;
    case REMO__MESSAGE_CONNECT: on_connect(registry, peer, data, bytes); break;
    case REMO__MESSAGE_REFUSE: on_refuse(registry, peer, data, bytes); break;
    case REMO__MESSAGE_LEAVE: on_leave(registry, peer, data, bytes); break;
    case REMO__MESSAGE_ANSWERED: on_answered(registry, peer, data, bytes); break;
    case REMO__MESSAGE_USER: remo__deliver_message(registry, peer, data, bytes); break;
    default: remo__registry_log_malformed(registry, peer, "message of unknown type");
    }
    end_handling(registry);
    if (type != REMO__MESSAGE_USER)
        remo__registry_changed(registry);
}
