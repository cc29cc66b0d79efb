/* channel.h - the channel from inside: what objects use on their data path.
 */
#pragma once

#include <remo/channel.h>

#include "node/op.h"
#include "node/wait.h"

/* Not an offset: the peer's share of this memory cannot be reached (not connected, left, down, or it provides
 * none). */
#define REMO__NO_OFFSET UINT64_MAX
#define REMO__TYPE_BYTES_MAX 63u
#define REMO__MEMORY_NAME_BYTES_MAX 15u
#define REMO__MISMATCH_BYTES 512u /* a sentence, its end included */
#define REMO__NODESET_TEXT_BYTES 64u

struct remo__memory {
    char name[REMO__MEMORY_NAME_BYTES_MAX + 1];
    uint64_t own_bytes, expected_bytes;
    struct remo_nodeset providers;
    uint64_t own_offset;       /* REMO__NO_OFFSET when own_bytes is 0 */
    char *own;                 /* its CPU address */
    _Atomic uint64_t *offsets; /* [size] where each peer's share starts in its arena; own one included */
};

/* What this endpoint knows of one peer's. Changed under the registry's lock. */
struct remo__channel_peer {
    _Atomic uint32_t state; /* enum remo_channel_state; CONNECTED once each knows the other's addresses */
    _Atomic uint32_t id;    /* of the endpoint there whose addresses we know, 0: none yet */
    uint32_t granted_id;    /* of the endpoint there that was told ours, 0: none */
    bool met;               /* was CONNECTED */
    bool asked;             /* was sent our JOIN */
    _Atomic bool awaited;   /* was sent our first JOIN, and has not compared it yet */
    /* it was told of a mismatch here, or has told us: it will come again in a later life */
    bool refused;
};

struct remo_channel {
    struct remo_node *node;
    uint32_t id;   /* what messages and immediates of peers name: slot and generation */
    uint32_t slot; /* index of its counters in every thread */
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
    _Atomic bool mismatched; /* error_text says how */
    char error_text[REMO__MISMATCH_BYTES];
    _Atomic uint32_t busy; /* callbacks that run now */
    bool closing;
    uint32_t grants; /* closed here: peers that still know our addresses */
    struct remo_stats stats_at_open;
};

/* The calling thread's counters for this channel. */
static inline struct remo_stats *remo__channel_counters(const struct remo_channel *channel,
                                                        struct remo__thread *thread) {
    return &thread->stats[channel->slot];
}

/* Where [offset, offset+bytes) of `node`'s share of memory starts in its arena. The caller checked the range
 * against the size of the memory. REMO__NO_OFFSET: see remo__channel_reach. */
static inline uint64_t remo__memory_at(const struct remo__memory *memory, uint32_t node, uint64_t offset) {
    uint64_t start = atomic_load_explicit(&memory->offsets[node], memory_order_relaxed);
    return remo__unlikely(start == REMO__NO_OFFSET) ? REMO__NO_OFFSET : start + offset;
}

/* The memory of `node` cannot be reached: waits (up to the node's op_timeout) while it is still expected to
 * connect. 0: it can be reached now. Errors with sentences: -EHOSTDOWN, -ENOTCONN (it left), -ETIMEDOUT,
 * -EPROTO, -EINVAL (no participant). */
int remo__channel_reach(struct remo_channel *channel, uint32_t node);

/* In a wait condition: 0 while `node` takes part and lives (or is still to come), else -EHOSTDOWN or
 * -ENOTCONN with the sentence. */
int remo__channel_check_peer(const struct remo_channel *channel, uint32_t node);

/* Write and deliver an immediate to the same channel at `node`. */
int remo__channel_write_immediate(struct remo_channel *channel, const struct remo__memory *memory,
                                  uint32_t node, uint64_t offset, const void *src, size_t bytes,
                                  uint32_t value, struct remo_ack *ack);

/* Members of a set in rank order: how many, the first one >= from, the n-th. */
uint32_t remo__nodeset_count(const struct remo_nodeset *set);
uint32_t remo__nodeset_next(const struct remo_nodeset *set, uint32_t from); /* REMO_NODES_MAX: none */
uint32_t remo__nodeset_nth(const struct remo_nodeset *set, uint32_t n);     /* REMO_NODES_MAX: none */
bool remo__nodeset_equal(const struct remo_nodeset *a, const struct remo_nodeset *b);
/* Describe a set: "nodes 0-3,7", "node 2". A long set ends with "...". Returns `ret_text`. */
const char *remo__nodeset_text(const struct remo_nodeset *set, char ret_text[REMO__NODESET_TEXT_BYTES]);
