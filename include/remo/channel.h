/* channel.h - what every object is: a named thing with memory on several nodes.
 *
 * Model:   each participating node opens an endpoint of the same name and type below the same parent. An
 *          endpoint has up to REMO_CHANNEL_MEMORIES_MAX named memories, of which each participant provides
 *          its share, and sub-channels. Full names read "map/locks" (sub-channel '/') and "map/slots.data"
 *          (memory '.').
 * Setup:   add memories, then join. A JOIN message tells each participant the name, type and memory that is
 *          expected of it; a peer that has a matching endpoint answers CONNECT with its addresses, and one
 *          that has none ignores it (it will send its own JOIN when it opens). So nodes open and close in any
 *          order and at any time, and nothing here waits for a peer except remo_channel_wait. A mismatch of
 *          type or size is an error at both ends that names the channel and both sizes; whoever asks one of
 *          the two later hears of it in the same words. A pair is connected when each knows the other's
 *          addresses; so when one has waited successfully and closes at once, the other's wait still
 *          succeeds.
 * Lives:   an endpoint connects to one endpoint of each peer, ever. After a close, peers see
 *          REMO_CHANNEL_LEFT, and memory is reused only when all peers that knew its address have closed too
 *          or are dead.
 * Threads: any. Callbacks run on the node's control thread (join, connect, leave, message) or service thread
 *          (immediate), one at a time each; they may open channels and send, and must not wait for peers,
 *          close their own channel, or take long.
 * Cost:    set-up: one JOIN and one CONNECT per pair of participants, on the control stream. Nothing on the
 *          data path.
 * Source:  LOCO 4. Differs in: the set of participants is said at open (default: the parent's), so that "who
 *          is missing" can be answered.
 */
#pragma once

#include <remo/node.h>

REMO_BEGIN

#define REMO_CHANNEL_NAME_BYTES_MAX 200u /* of a full name */
#define REMO_CHANNEL_MEMORIES_MAX 4u
#define REMO_CHANNEL_MESSAGE_BYTES_MAX 32768u
#ifndef REMO_CHANNELS_MAX       /* the simulator's nodes are smaller */
#define REMO_CHANNELS_MAX 4096u /* on one node: open, or closed while a peer still knows their memory */
#endif
#define REMO_CHANNEL_IMMEDIATE_MAX 4095u /* largest immediate value */

enum remo_channel_peer { REMO_CHANNEL_WAITING, REMO_CHANNEL_CONNECTED, REMO_CHANNEL_LEFT, REMO_CHANNEL_DOWN };

struct remo_channel_options {
    struct remo_nodeset participants;          /* empty: the parent's */
    void *ctx;                                 /* for the callbacks */
    void (*on_join)(void *ctx, uint32_t node); /* the peer asked for our memory */
    /* each can reach the other's memory; before any message */
    void (*on_connect)(void *ctx, uint32_t node);
    /* it closed, or its node is gone */
    void (*on_leave)(void *ctx, uint32_t node, enum remo_channel_peer state);
    void (*on_message)(void *ctx, uint32_t node, const void *data, size_t size_bytes);
    void (*on_immediate)(void *ctx, uint32_t node, uint32_t value);
};

/* `name`: 1..63 characters of [A-Za-z0-9_-]; `type`: what must match between nodes. `options` may be NULL.
 * Errors: -EINVAL (name), -EEXIST (open here already: same name as another type or size), -ENAMETOOLONG,
 *         -EMFILE, -ENOMEM. */
REMO_API int remo_channel_open(struct remo_channel *parent, const char *name, const char *type,
                               const struct remo_channel_options *options, struct remo_channel **ret_channel);
/* Add the memory `name`: this node provides `own_bytes` (0: none), zeroed; every node of `providers` (empty:
 * every participant) is expected to provide `expected_bytes`. Before join. *ret_memory is its index: 0, 1,
 * ...
 * Errors: -EINVAL, -ENOSPC (the sentence says how much is free), -ENOMEM. */
REMO_API int remo_channel_add_memory(struct remo_channel *channel, const char *name, uint64_t own_bytes,
                                     uint64_t expected_bytes, const struct remo_nodeset *providers,
                                     uint32_t *ret_memory);
/* Tell the participants. Errors: -EINVAL; -ENOMEM, -ENOBUFS: some could not be told, close it. */
REMO_API int remo_channel_join(struct remo_channel *channel);
/* Until every participant is connected to this channel and all its sub-channels (of the root: to every
 * channel).
 * Errors: -ETIMEDOUT (names who is missing), -EPROTO (mismatch; names both sizes), -EHOSTDOWN, -ENOTCONN (it
 *         left). */
REMO_API int remo_channel_wait(struct remo_channel *channel, uint64_t timeout_ns);
/* Closes sub-channels too. Waits for own callbacks to end, not for peers. NULL and half-built are fine. */
REMO_API void remo_channel_close(struct remo_channel *channel);

REMO_API struct remo_node *remo_channel_node(const struct remo_channel *channel);
REMO_API const char *remo_channel_name(const struct remo_channel *channel); /* full name */
REMO_API const struct remo_nodeset *remo_channel_participants(const struct remo_channel *channel);
REMO_API enum remo_channel_peer remo_channel_peer(const struct remo_channel *channel, uint32_t node);

/* Own memory, or NULL. Peers change it under the CPU's feet: read words atomically and more than a word with
 * a check. */
REMO_API void *remo_channel_memory(const struct remo_channel *channel, uint32_t memory);

/* A small message on the control stream: slow (a system call at each end), ordered, reliable while both live.
 * Errors: -ENOTCONN (not connected yet), -EHOSTDOWN, -EMSGSIZE, -ENOBUFS. */
REMO_API int remo_channel_send(struct remo_channel *channel, uint32_t node, const void *data,
                               size_t size_bytes);

/* Network operations of this channel and its sub-channels on this node, all threads, since it was opened. */
REMO_API void remo_channel_stats(const struct remo_channel *channel, struct remo_stats *ret_stats);

REMO_END
