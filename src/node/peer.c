/* peer.c - the peers of a node: their states, and what the control thread does when one joins, leaves or
 * fails.
 *
 * Only the control thread changes the state of a peer. After a failure it takes the steps of
 * remo__peer_on_down in their order, which docs/architecture.md ("One way to fail") describes. */
#include "node/peer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "node/arena.h"

enum remo_peer_state remo_node_peer(const struct remo_node *node, uint32_t peer) {
    if (!node || peer >= node->size)
        return REMO_PEER_DEAD;
    return (enum remo_peer_state)atomic_load(&node->peers[peer].state);
}

int remo__peer_fail(const struct remo_node *node, uint32_t peer, const char *what) {
    switch (remo_node_peer(node, peer)) {
    case REMO_PEER_LEFT: return remo__fail(-EHOSTDOWN, "cannot %s node %u: it has left the job", what, peer);
    case REMO_PEER_JOINING:
        return remo__fail(-EHOSTDOWN, "cannot %s node %u: it has not joined yet", what, peer);
    case REMO_PEER_UP:
        return remo__fail(-EHOSTDOWN,
                          "cannot %s node %u: it failed during the operation, and has joined again", what,
                          peer);
    default:
        return remo__fail(-EHOSTDOWN,
                          "cannot %s node %u: it has failed; operations on other nodes are unaffected", what,
                          peer);
    }
}

int remo__peer_timeout(const struct remo_node *node, uint32_t peer, const char *what) {
    return remo__fail(-ETIMEDOUT,
                      "cannot %s node %u within op_timeout_ns (%llu ms): the node has not failed, but its "
                      "machine or network does not respond",
                      what, peer, (unsigned long long)(node->op_timeout_ns / REMO__NS_PER_MS));
}

/* ---- callbacks of the control thread ---- */

/* Record why a peer cannot join, for remo_node_open, and wake it. The first reason remains. */
static void refuse(struct remo_node *node, uint32_t peer, int rc, const char *why) {
    if (!atomic_load(&node->refused)) {
        snprintf(node->join_error, sizeof node->join_error, "node %u: %s", peer, why);
        node->join_rc = rc;
        atomic_store(&node->refused, true);
    }
    remo__log(&node->log, REMO_LOG_ERROR, "node %u cannot join: %s", peer, why);
    remo__wake(node);
}

static void refuse_arena(struct remo_node *node, uint32_t peer, uint64_t arena_bytes) {
    char why[160];
    snprintf(why, sizeof why,
             "it has reserved %llu MiB for its arena, this node %llu; set the same arena_bytes "
             "(REMO_ARENA_BYTES) on every node, or see ulimit -v",
             (unsigned long long)arena_bytes >> 20,
             (unsigned long long)remo__arena_reserved(node->arena) >> 20);
    refuse(node, peer, -EPROTO, why);
}

void remo__peer_on_up(void *ctx, uint32_t peer, uint32_t incarnation, bool same_machine, const void *hello,
                      size_t hello_bytes) {
    struct remo_node *node = ctx;
    struct remo__reader reader = remo__reader_of(hello, hello_bytes);
    char fabric[16];
    atomic_store(&node->peers[peer].was_connected, true);
    remo__get_string(&reader, fabric, sizeof fabric);
    uint64_t arena_bytes = remo__get_u64(&reader);
    bool arena_is_set = remo__get_u32(&reader) != 0;
    struct remo__processors processors = {0};
    for (uint32_t i = 0; i < REMO__ARRAY_COUNT(processors.word); i++)
        processors.word[i] = remo__get_u64(&reader);
    processors.quota_group = remo__get_u64(&reader);
    size_t blob_bytes = remo__reader_left(&reader);
    const void *blob = remo__get_span(&reader, blob_bytes);
    if (reader.bad) {
        refuse(node, peer, -EPROTO, "it sent a malformed hello; start all nodes from the same build");
        return;
    }
    if (strcmp(fabric, node->fabric->ops->name) != 0) {
        refuse(node, peer, -EPROTO, "it uses another fabric; start all nodes with the same one");
        return;
    }
    if (remo__arena_agree(node->arena, arena_bytes, arena_is_set) != 0) {
        refuse_arena(node, peer, arena_bytes);
        return;
    }
    atomic_store(&node->peers[peer].incarnation, incarnation);
    node->peers[peer].shares_processors =
        same_machine && remo__processors_within(&processors, &node->processors);
    node->peers[peer].shares_quota = same_machine && processors.quota_group == node->processors.quota_group;
    atomic_store(&node->peers[peer].mapped_bytes, 0);
    pthread_mutex_lock(&node->fabric_lock);
    int rc = node->fabric->ops->connect(node->fabric, peer, blob, blob_bytes);
    pthread_mutex_unlock(&node->fabric_lock);
    if (rc == 0)
        rc = remo__arena_announce(node->arena, peer);
    if (rc == 0)
        rc = remo__node_send(node, peer, REMO__NODE_FRAME_READY, NULL, 0);
    if (rc != 0 && rc != -EHOSTDOWN) /* a peer that has ended since is reported as down */
        refuse(node, peer, -EPROTO, remo_last_error());
}

void remo__peer_on_denied(void *ctx, uint32_t peer, const char *why) {
    struct remo_node *node = ctx;
    if (!atomic_load(&node->refused))
        refuse(node, peer, -EACCES, why);
}

static int map_segment(struct remo_node *node, uint32_t peer, const void *data, size_t bytes, int fd) {
    struct remo__reader reader = remo__reader_of(data, bytes);
    uint32_t index = remo__get_u32(&reader);
    uint64_t offset = remo__get_u64(&reader), segment_bytes = remo__get_u64(&reader);
    uint32_t blob_bytes = remo__get_u32(&reader);
    const void *blob = remo__get_span(&reader, blob_bytes);
    uint64_t reserved = remo__arena_reserved(node->arena), end;
    if (!remo__reader_complete(&reader) || index >= REMO__SEGMENTS_MAX || blob_bytes > REMO__BLOB_BYTES_MAX
        || __builtin_add_overflow(offset, segment_bytes, &end) || end > reserved
        || offset != atomic_load(&node->peers[peer].mapped_bytes))
        return remo__fail(-EPROTO, "it announced an invalid segment");
    pthread_mutex_lock(&node->fabric_lock);
    int rc = node->fabric->ops->map_segment(node->fabric, peer, index, offset, segment_bytes, blob,
                                            blob_bytes, fd);
    pthread_mutex_unlock(&node->fabric_lock);
    if (rc == 0)
        atomic_store(&node->peers[peer].mapped_bytes, end);
    return rc;
}

static void report_peer(struct remo_node *node, uint32_t peer) {
    if (!node->on_peer)
        return;
    atomic_store(&node->reporting, true);
    node->on_peer(node->on_peer_ctx, peer, remo_node_peer(node, peer));
    atomic_store(&node->reporting, false);
}

void remo__peer_on_frame(void *ctx, uint32_t peer, uint16_t type, const void *data, size_t bytes, int fd) {
    struct remo_node *node = ctx;
    if (type == REMO__NODE_FRAME_SEGMENT) {
        if (map_segment(node, peer, data, bytes, fd) != 0)
            refuse(node, peer, -EPROTO, remo_last_error());
    } else if (type == REMO__NODE_FRAME_READY && atomic_load(&node->peers[peer].mapped_bytes) > 0) {
        atomic_store(&node->peers[peer].state, REMO_PEER_UP);
        remo__log(&node->log, REMO_LOG_INFO, "node %u is up", peer);
        node->hooks.peer_up(node->hooks.ctx, peer);
        report_peer(node, peer);
        atomic_store(&node->peers[peer].reported, true);
    } else if (type >= REMO__NODE_FRAME_CHANNELS) {
        node->hooks.frame(node->hooks.ctx, peer, type, data, bytes);
    }
    if (fd >= 0)
        close(fd);
    remo__wake(node);
}

/* After a loss the order of operations on the peer, and the outcome of those in flight, would be unknown. So
 * the control plane lets one of the two nodes fail. */
void remo__peer_on_wake(void *ctx) {
    struct remo_node *node = ctx;
    if (!atomic_exchange(&node->has_loss, false))
        return;
    for (uint32_t peer = 0; peer < node->size; peer++)
        if (peer != node->rank && node->fabric->ops->is_lost(node->fabric, peer))
            remo__control_lose(node->control, peer);
}

/* All states change before any peer is cut off. Otherwise a thread could detect the failure of one peer, and
 * release a lock at another one that still counts this node as up. */
void remo__peer_on_end(void *ctx) {
    struct remo_node *node = ctx;
    for (uint32_t peer = 0; peer < node->size; peer++) {
        uint32_t up = REMO_PEER_UP;
        if (peer != node->rank)
            atomic_compare_exchange_strong(&node->peers[peer].state, &up, REMO_PEER_DEAD);
    }
    remo__wake(node);
}

/* The order is essential. First the state: no new operation starts, and waiters detect the change. Then the
 * cut-off: operations in flight end. Then the hooks: channels and objects are notified. The arena comes last,
 * because another thread may hold its lock. */
void remo__peer_on_down(void *ctx, uint32_t peer, int reason) {
    struct remo_node *node = ctx;
    atomic_store(&node->peers[peer].state, reason == 0 ? REMO_PEER_LEFT : REMO_PEER_DEAD);
    remo__log(&node->log, reason == 0 ? REMO_LOG_INFO : REMO_LOG_WARNING, "node %u %s", peer,
              reason == 0 ? "has left" : "has failed");
    remo__wake(node);
    pthread_mutex_lock(&node->fabric_lock);
    node->fabric->ops->disconnect(node->fabric, peer);
    pthread_mutex_unlock(&node->fabric_lock);
    remo__wake(node);
    node->hooks.peer_down(node->hooks.ctx, peer);
    report_peer(node, peer);
    remo__wake(node);
    remo__arena_forget(node->arena, peer);
}
