/* registry.h - all channels of a node: found by name for joins, by id for all other frames. */
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
#define REMO__ID_BITS 20u /* of an immediate; the other bits are its value */

static_assert(REMO__CHANNELS_MAX == 1u << REMO__ID_SLOT_BITS, "a slot fits an id");
static_assert(REMO__CHANNELS_MAX == REMO__COUNTERS_MAX, "every channel has its counters");
static_assert(REMO_CHANNEL_IMMEDIATE_MAX == (1u << (32 - REMO__ID_BITS)) - 1,
              "id and value share an immediate");

/* The closed channels of this node that are leaving: their operations may be in flight (leaving.c). */
struct remo__leaving {
    uint32_t count;
    uint64_t fences; /* number of fences that the helper has begun */
    pthread_t helper;
    bool has_helper;
    _Atomic bool stops;
    pthread_cond_t changed; /* `count` or `stops` */
};

/* The lock protects all fields but the atomic ones. It is never held during a callback, a wait or a network
 * operation. */
struct remo__registry {
    struct remo_node *node;
    struct remo__service *service;
    pthread_mutex_t lock;
    struct remo_channel *buckets[REMO__NAME_BUCKETS]; /* open channels, by full name */
    struct remo_channel *slots[REMO__CHANNELS_MAX];   /* and closed ones that peers may still use */
    uint8_t generations[REMO__CHANNELS_MAX];
    uint32_t next_slot;
    struct remo__early early; /* JOINs for channels that are not open here */
    struct remo_channel *root;
    pthread_mutex_t shared_lock; /* protects the list of shared objects; held while one is opened */
    struct remo__shared *shared;
    _Atomic(pthread_t) control_thread; /* handles frames, runs most callbacks */
    _Atomic bool handling;             /* that thread is handling a frame */
    _Atomic uint64_t changes;          /* of any state that remo_channel_wait examines */
    struct remo__leaving leaving;
};

static inline struct remo__registry *remo__registry(const struct remo_node *node) {
    return node->channels;
}

/* With the lock held. */
struct remo_channel *remo__registry_by_name(struct remo__registry *registry, const char *name);
struct remo_channel *remo__registry_by_id(struct remo__registry *registry, uint32_t id);
int remo__registry_insert(struct remo__registry *registry, struct remo_channel *channel);
void remo__registry_unname(struct remo__registry *registry, struct remo_channel *channel);
/* Free the channel and its memory. Its slot can be reused. */
void remo__registry_destroy(struct remo__registry *registry, struct remo_channel *channel);

/* Make waiters examine their conditions again. */
void remo__registry_changed(struct remo__registry *registry);

/* Send JOIN to the endpoint `to_id` of `peer`, or to the endpoint of this name (0). A peer that has failed is
 * no error. The lock is held. Errors: -ENOMEM, -ENOBUFS. */
int remo__join_send(struct remo_channel *channel, uint32_t peer, uint32_t to_id);
/* Send JOIN to the nodes that sent one before the channel was opened and are not its participants: if their
 * endpoints are still open, these detect the mismatch. The lock is held. Errors: as remo__join_send. */
int remo__join_answer_early(struct remo_channel *channel);
/* Send LEAVE to each peer that has received the endpoint's addresses or sent its own, and count the grants.
 * A LEAVE to any other peer that has received the JOIN withdraws it.
 * `is_fenced`: no operation of this node is in flight. Otherwise the channel is leaving until
 * remo__join_leave_finally, and the caller calls remo__leaving_add. The lock is held. */
void remo__join_leave(struct remo_channel *channel, bool is_fenced);
/* Send the final LEAVE: the operations of a channel that is leaving have ended. Destroys the channel if no
 * peer can use its memory. The lock is held. */
void remo__join_leave_finally(struct remo_channel *channel);

/* Complete all operations of the node, for op_timeout_ns at most. Returns whether they are complete. */
bool remo__leaving_fence(struct remo_node *node);
/* Call remo__join_leave_finally when the operations of a closed channel are complete. The lock is held. */
void remo__leaving_add(struct remo__registry *registry, struct remo_channel *channel);
/* Stop the helper thread. Blocks for op_timeout_ns at most, if a channel is leaving. */
void remo__leaving_stop(struct remo__registry *registry);
/* Hooks of the node. */
void remo__join_peer_up(void *ctx, uint32_t peer);
void remo__join_peer_down(void *ctx, uint32_t peer);
void remo__join_frame(void *ctx, uint32_t peer, uint16_t type, const void *data, size_t bytes);
void remo__deliver_immediate(void *ctx, uint32_t peer, uint32_t value);

/* Close all shared objects of the node. */
void remo__shared_close_all(struct remo__registry *registry);

/* Log a frame of `peer` that cannot be decoded. */
void remo__registry_log_malformed(const struct remo__registry *registry, uint32_t peer, const char *what);
/* Deliver a message of a channel. Threads: control. */
void remo__deliver_message(struct remo__registry *registry, uint32_t peer, const void *frame, size_t bytes);
/* End a callback: the channel may close. */
void remo__channel_release(struct remo_channel *channel);
