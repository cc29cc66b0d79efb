/* channel.h - the internal interface of the channel, for the data path of objects. */
#pragma once

#include <remo/channel.h>

#include "node/arena.h"
#include "remote/op.h"
#include "remote/wait.h"

/* In place of an offset: this node cannot reach the peer's share of the memory (the peer is not connected,
 * has left or failed, or provides none). */
#define REMO__NO_OFFSET UINT64_MAX
#define REMO__TYPE_BYTES_MAX 63u
#define REMO__MEMORY_NAME_BYTES_MAX 15u
#define REMO__MISMATCH_BYTES 512u /* of a sentence and its terminator */
#define REMO__NODESET_TEXT_BYTES 64u

#define REMO__MEMORY_EXTENSIONS_MAX 32u

/* A piece of this node's arena that belongs to its share, besides the first piece. */
struct remo__memory_extension {
    uint64_t offset, bytes;
};

struct remo__memory {
    const struct remo_channel *channel;
    char name[REMO__MEMORY_NAME_BYTES_MAX + 1];
    uint64_t own_bytes, expected_bytes;
    struct remo_nodeset providers;
    uint64_t own_offset;                       /* REMO__NO_OFFSET if own_bytes is 0 */
    char *own;                                 /* its CPU address */
    _Atomic uint64_t *offsets;                 /* [size] of each node's share, in its arena */
    struct remo__memory_extension *extensions; /* [REMO__MEMORY_EXTENSIONS_MAX]; NULL: none */
    uint32_t extensions_count;
};

/* One pair: this endpoint and a peer's. Changed under the registry's lock. */
struct remo__channel_peer {
    _Atomic uint32_t state;  /* enum remo_channel_state; CONNECTED when each has the other's addresses */
    _Atomic uint32_t id;     /* the peer's endpoint whose addresses this one has; 0: none yet */
    uint32_t granted_id;     /* the peer's endpoint that has received our addresses; 0: none */
    bool met;                /* was CONNECTED */
    _Atomic bool is_cut_off; /* no operation of the peer reaches this node's memory any more */
    uint32_t leaving_id;     /* after close: the peer's endpoint that awaits the final LEAVE; 0: none */
    bool asked;              /* our JOIN was sent */
    _Atomic bool awaited;    /* our first JOIN was sent, and ANSWERED has not arrived */
    uint32_t early_id;       /* the outsider's endpoint that our JOIN answers; 0: none */
    _Atomic bool refused;    /* REFUSE was sent or received; a later JOIN is of a later incarnation */
};

struct remo_channel {
    struct remo_node *node;
    uint32_t id;   /* in messages and immediates of peers: slot and generation */
    uint32_t slot; /* index of its counters in each thread */
    struct remo__memory memories[REMO_CHANNEL_MEMORIES_MAX];
    uint32_t memory_count;
    struct remo__channel_peer *peers; /* [size] */
    struct remo_nodeset participants;
    struct remo_channel_options options;
    struct remo_channel *parent, *first_child, *next_sibling;
    struct remo_channel *next_in_bucket;
    char name[REMO_CHANNEL_NAME_BYTES_MAX + 1];
    char type[REMO__TYPE_BYTES_MAX + 1];
    bool joined;
    bool is_shared;          /* see struct remo__shared */
    _Atomic bool mismatched; /* error_text has the sentence */
    char error_text[REMO__MISMATCH_BYTES];
    _Atomic uint32_t busy; /* running callbacks */
    bool closing;
    uint32_t grants; /* after close: peers that may still use our addresses, and 1 while it is leaving */
    uint64_t leaving_fence; /* after close: number of the fence that completes its operations (leaving.c) */
    struct remo_stats stats_at_open;
};

/* Return the calling thread's counters of this channel. */
static inline struct remo_stats *remo__channel_counters(const struct remo_channel *channel,
                                                        struct remo__thread *thread) {
    return &thread->stats[channel->slot];
}

/* Return whether this node can reach the share of `node` now. */
static inline bool remo__memory_is_reachable(const struct remo__memory *memory, uint32_t node) {
    return atomic_load_explicit(&memory->offsets[node], memory_order_relaxed) != REMO__NO_OFFSET;
}

/* Set *ret_ref to `offset` in the share of `node`. Returns false if this node cannot reach the share now. The
 * caller has checked the range against the size of the memory. */
static inline __attribute__((always_inline)) bool remo__memory_find_now(const struct remo__memory *memory,
                                                                        struct remo__thread *thread,
                                                                        uint32_t node, uint64_t offset,
                                                                        struct remo__ref *ret_ref) {
    uint64_t start = atomic_load_explicit(&memory->offsets[node], memory_order_relaxed);
    if (remo__unlikely(start == REMO__NO_OFFSET))
        return false;
    *ret_ref = remo__ref_make(thread, remo__channel_counters(memory->channel, thread), node, start + offset);
    return true;
}

/* Return the CPU address of `offset` in the share of `node`, or NULL if the node is not mapped, or this node
 * cannot reach the share now. Does not need an attached thread. */
static inline const char *remo__memory_mapped(const struct remo__memory *memory, uint32_t node,
                                              uint64_t offset) {
    const char *base = remo__peer_base(memory->channel->node, node);
    uint64_t start = atomic_load_explicit(&memory->offsets[node], memory_order_relaxed);
    return base && start != REMO__NO_OFFSET ? base + start + offset : NULL;
}

/* Take `bytes` bytes of zeros from the arena for this node's share, until the channel is destroyed.
 * *ret_offset is the distance from the first byte of the share, modulo 2^64. Peers access the extension by
 * this offset, after remo__memory_reaches. Takes as long as the arena needs to grow. Threads: one at a time.
 * Errors: -ENOSPC, -ENOMEM. */
int remo__memory_extend(struct remo__memory *memory, uint64_t bytes, uint64_t *ret_offset);

/* Return whether this node reaches the bytes at `offset` in an extension of the share of `node`: whether they
 * are in the part of that node's arena that objects use and that the node has announced. */
static inline bool remo__memory_reaches(const struct remo__memory *memory, uint32_t node, uint64_t offset,
                                        uint64_t bytes) {
    struct remo_node *self = memory->channel->node;
    uint64_t start = atomic_load_explicit(&memory->offsets[node], memory_order_relaxed);
    uint64_t reachable = atomic_load_explicit(&self->peers[node].mapped_bytes, memory_order_acquire);
    uint64_t at = start + offset;
    return start != REMO__NO_OFFSET && at >= remo__arena_first(self->arena) && bytes <= reachable
           && at <= reachable - bytes;
}

/* Wait until `node` has opened the channel, and return the offset of its share in its arena. */
int remo__memory_wait(const struct remo__memory *memory, uint32_t node, uint64_t *ret_start)
    __attribute__((cold));

/* Set *ret_ref to `offset` in the share of `node`. Blocks for op_timeout_ns at most, while the node has not
 * opened the channel. Errors, with sentences: -EHOSTDOWN, -ENOTCONN (closed by the peer), -ETIMEDOUT,
 * -EPROTO, -EINVAL (not a participant, or no provider). */
static inline __attribute__((always_inline)) int remo__memory_find(const struct remo__memory *memory,
                                                                   struct remo__thread *thread, uint32_t node,
                                                                   uint64_t offset,
                                                                   struct remo__ref *ret_ref) {
    uint64_t start = atomic_load_explicit(&memory->offsets[node], memory_order_relaxed);
    if (remo__unlikely(start == REMO__NO_OFFSET)) {
        uint64_t found; /* a separate variable, so that `start` stays in a register */
        int rc = remo__memory_wait(memory, node, &found);
        if (rc != 0)
            return rc;
        start = found;
    }
    *ret_ref = remo__ref_make(thread, remo__channel_counters(memory->channel, thread), node, start + offset);
    return 0;
}

/* Set *ret_addr to the address of `offset` in the share of `node`. Does not need an attached thread. Blocks,
 * and fails, as remo__memory_find. */
int remo__memory_address(const struct remo__memory *memory, uint32_t node, uint64_t offset,
                         struct remo_addr *ret_addr);

/* Return whether an operation ended with `rc` because its target has failed or left (-EHOSTDOWN), or has
 * closed the channel (-ENOTCONN). */
static inline bool remo__is_departure(int rc) {
    return rc == -EHOSTDOWN || rc == -ENOTCONN;
}

/* For wait conditions: return 0 if `node` may still answer (it is up, or has not joined yet), else -EHOSTDOWN
 * or -ENOTCONN with the sentence. */
int remo__channel_check_peer(const struct remo_channel *channel, uint32_t node);
/* Return whether the node is up and connected: the common case of remo__channel_check_peer, inline. */
static inline bool remo__channel_is_connected(const struct remo_channel *channel, uint32_t node) {
    return atomic_load(&channel->peers[node].state) == REMO_CHANNEL_CONNECTED
           && atomic_load(&channel->node->peers[node].state) == REMO_PEER_UP;
}

/* Return whether the join of `node` may have returned: it returns after this node has granted it the
 * addresses of its memory (docs/internals/join.md). */
bool remo__channel_may_have_opened(const struct remo_channel *channel, uint32_t node);

/* Return whether no operation of `node` on this channel reaches this node's memory any more: on_cut_off has
 * been or is about to be called. */
static inline bool remo__channel_is_cut_off(const struct remo_channel *channel, uint32_t node) {
    return channel->peers[node].is_cut_off;
}

/* Write to a memory of the channel, and deliver the immediate `value` to the same channel at that node. */
int remo__channel_write_immediate(const struct remo_channel *channel, struct remo__ref ref, const void *src,
                                  size_t bytes, uint32_t value, struct remo_ack *ack);

/* The same with flags (REMO__WRITE_...). */
int remo__channel_write_immediate_flags(const struct remo_channel *channel, struct remo__ref ref,
                                        const void *src, size_t bytes, uint32_t value, uint32_t flags,
                                        struct remo_ack *ack);

/* ---- objects that belong to a node instead of a user (shared.c) ---- */

/* The base of such an object. Its channel is a child of the root, and a wait for all channels skips it. NULL:
 * the object has none. */
struct remo__shared {
    const void *key; /* identifies the kind of object */
    struct remo_channel *channel;
    void (*close)(struct remo__shared *shared); /* called by remo_node_close: closes the channel too */
    struct remo__shared *next;
};

/* Return the shared object of this key. At the first call, `open` makes it, without joining its channel,
 * and this call joins the channel. Errors: those of `open` and remo_channel_join. */
int remo__shared_get(struct remo_node *node, const void *key,
                     int (*open)(struct remo_node *node, struct remo__shared **ret_shared),
                     struct remo__shared **ret_shared);

/* The number of members of a set; in rank order, the first >= from. */
uint32_t remo__nodeset_count(const struct remo_nodeset *set);
uint32_t remo__nodeset_next(const struct remo_nodeset *set, uint32_t from); /* REMO_NODES_MAX: none */
bool remo__nodeset_equal(const struct remo_nodeset *a, const struct remo_nodeset *b);
/* Describe a set: "nodes 0-3,7", "node 2". A long set ends with "...". Returns `ret_text`. */
const char *remo__nodeset_text(const struct remo_nodeset *set, char ret_text[REMO__NODESET_TEXT_BYTES]);
