/* registry.h - all channels of a node: by name for joins, by id for everything that follows. */
#pragma once

#include "channel/early.h"

#ifdef REMO_SIM_SMALL
#define REMO__CHANNELS_MAX 64u
#define REMO__NAME_BUCKETS 64u
#define REMO__ID_SLOT_BITS 6u
#else
#define REMO__CHANNELS_MAX REMO_CHANNELS_MAX
#define REMO__NAME_BUCKETS 1024u
#define REMO__ID_SLOT_BITS 12u
#endif
#define REMO__ID_BITS 20u /* the rest of an immediate is its value */

static_assert(REMO__CHANNELS_MAX == 1u << REMO__ID_SLOT_BITS, "a slot fits an id");
static_assert(REMO__CHANNELS_MAX == REMO__COUNTERS_MAX, "every channel has its counters");
static_assert(REMO_CHANNEL_IMMEDIATE_MAX == (1u << (32 - REMO__ID_BITS)) - 1,
              "id and value share an immediate");

/* The lock is held around looking and changing, never around callbacks, waits or network operations. */
struct remo__registry {
    struct remo_node *node;
    pthread_mutex_t lock;
    struct remo_channel *buckets[REMO__NAME_BUCKETS]; /* open ones, by full name */
    struct remo_channel *slots[REMO__CHANNELS_MAX];   /* and closed ones whose memory peers still know */
    uint8_t generations[REMO__CHANNELS_MAX];
    uint32_t next_slot;
    struct remo__early early; /* JOINs for channels that are not open here */
    struct remo_channel *root;
    _Atomic(pthread_t) control_thread; /* where frames are handled and most callbacks run */
    _Atomic bool handling;             /* a frame, at this moment */
    _Atomic uint64_t changes;          /* of any state that remo_channel_wait looks at */
};

static inline struct remo__registry *remo__registry(const struct remo_node *node) {
    return node->channels;
}

/* With the lock held. */
struct remo_channel *remo__registry_by_name(struct remo__registry *registry, const char *name);
struct remo_channel *remo__registry_by_id(struct remo__registry *registry, uint32_t id);
int remo__registry_insert(struct remo__registry *registry, struct remo_channel *channel);
void remo__registry_unname(struct remo__registry *registry, struct remo_channel *channel);
/* Give the memory back and free the struct; its slot may be used again. */
void remo__registry_destroy(struct remo__registry *registry, struct remo_channel *channel);

/* Something changed: waiters look again. */
void remo__registry_changed(struct remo__registry *registry);

/* The protocol (join.c). JOIN to `peer`, for its endpoint `to_id`, or for whichever has the name (0); the
 * lock is held. Errors: -ENOMEM, -ENOBUFS; a peer that is gone is none. */
int remo__join_send(struct remo_channel *channel, uint32_t peer, uint32_t to_id);
/* Refuse the nodes that asked for the channel before it was opened and are not its participants. The lock is
 * held. */
void remo__join_refuse_early(struct remo_channel *channel);
/* Tell everybody who knows the endpoint that it is gone; counts its grants. The lock is held. */
void remo__join_leave(struct remo_channel *channel);
/* Hooks of the node. */
void remo__join_peer_up(void *ctx, uint32_t peer);
void remo__join_peer_down(void *ctx, uint32_t peer);
void remo__join_frame(void *ctx, uint32_t peer, uint16_t type, const void *data, size_t bytes);
void remo__join_immediate(void *ctx, uint32_t peer, uint32_t value);
