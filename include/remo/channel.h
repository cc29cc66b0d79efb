/* channel.h - the base of every object: a name with memory on several nodes.
 *
 * Model:   each participant opens an endpoint of the same name and type below the same parent. An
 *          endpoint has up to REMO_CHANNEL_MEMORIES_MAX named memories, of which each participant
 *          provides its share, and sub-channels. Full names read "map/locks" (sub-channel '/') and
 *          "map/slots.data" (memory '.').
 * Setup:   add memories, then join. Nodes open and close in any order and at any time. Only
 *          remo_channel_wait waits for a peer to open. remo_channel_join returns when the library
 *          at each participant that is up has compared this endpoint with its own. The protocol is
 *          described in docs/internals/join.md.
 * Match:   type, participants, providers and sizes are the same on every participant. A mismatch is
 *          -EPROTO at both nodes, with a sentence that has both descriptions. A node that joins
 *          either of the two later gets the same sentence. The node that joins later cannot use the
 *          channel: its calls return -EPROTO, including those on its own memory. So two nodes that
 *          do not match never both hold one lock. Two nodes are compared if one of them counts the
 *          other as a participant. If the earlier node does not count the later node as a
 *          participant, only the later node gets -EPROTO, and the earlier node continues.
 *          Disjoint sets of participants are separate channels of the same name.
 * Lifetime: an endpoint connects to at most one endpoint of each peer. A node may close immediately
 *           after a successful wait; the wait of its peer still succeeds. After a close, peers get
 *           REMO_CHANNEL_LEFT. Memory is reused when all peers that have its address have closed
 *           too, or have failed. An operation of a closing node may still be in flight after
 *           op_timeout_ns. The memory that it may use is reused after the operation has ended, or
 *           after that node has left or failed. on_cut_off reports that moment.
 * Threads: any. Callbacks run on the node's control thread (join, connect, leave, message) or
 *          service thread (immediate), one at a time on each. They may open channels and send. They
 *          must not wait for peers, close their own channel, or run for long.
 * Cost:    set-up: one or two JOINs, one ANSWERED and one CONNECT from each participant to every
 *          other participant, on the control stream. An open takes one round trip. No cost on the
 *          data path.
 * Source:  LOCO 4. Differs in: open states the set of participants (default: the parent's), so
 *          errors can name a missing node.
 */
#pragma once

#include <remo/node.h>

REMO_BEGIN

#define REMO_CHANNEL_NAME_BYTES_MAX 200u /* of a full name */
#define REMO_CHANNEL_MEMORIES_MAX 4u
#define REMO_CHANNEL_MESSAGE_BYTES_MAX 32768u
#define REMO_CHANNELS_MAX 4096u          /* on one node: open, or closed while a peer has their address */
#define REMO_CHANNEL_IMMEDIATE_MAX 4095u /* largest immediate value */

enum remo_channel_state {
    REMO_CHANNEL_WAITING,
    REMO_CHANNEL_CONNECTED,
    REMO_CHANNEL_LEFT,
    REMO_CHANNEL_DOWN
};

struct remo_channel_options {
    struct remo_nodeset participants;          /* empty: the parent's */
    void *ctx;                                 /* for the callbacks */
    void (*on_join)(void *ctx, uint32_t node); /* the peer has requested the memory of this node */
    /* both nodes can access each other's memory; precedes all messages */
    void (*on_connect)(void *ctx, uint32_t node);
    /* the peer has closed the channel (REMO_CHANNEL_LEFT), or its node has failed or left (DOWN) */
    void (*on_leave)(void *ctx, uint32_t node, enum remo_channel_state state);
    void (*on_message)(void *ctx, uint32_t node, const void *data, size_t size_bytes);
    void (*on_immediate)(void *ctx, uint32_t node, uint32_t value);
    /* No operation of the peer's endpoint reaches this node's memory any more. Follows on_leave. An
     * endpoint that closes between on_join and on_connect has no on_leave; a later endpoint of the
     * peer may connect then. */
    void (*on_cut_off)(void *ctx, uint32_t node);
};

/* Open an endpoint `name` (1..63 characters of [A-Za-z0-9_-]) below `parent`. `type` is the same on
 * every participant. `options` may be NULL. Does not block; remo_channel_join announces the
 * endpoint.
 * Errors:
 *   -EINVAL        the name or the type is invalid
 *   -EEXIST        this node has an open channel of this name
 *   -ENAMETOOLONG  the full name is too long
 *   -EMFILE        this node has REMO_CHANNELS_MAX channels
 *   -ENOMEM        no memory */
REMO_API int remo_channel_open(struct remo_channel *parent, const char *name, const char *type,
                               const struct remo_channel_options *options, struct remo_channel **ret_channel);
/* Add the memory `name`, before join. This node provides `own_bytes` (0: none), zeroed. Every node
 * of `providers` (empty: every participant) is expected to provide `expected_bytes`. *ret_memory is
 * the index of the memory: 0, 1, ...
 * Errors:
 *   -EINVAL  an argument is wrong, or the channel has joined
 *   -ENOSPC  the arena is full; the sentence states the free size
 *   -ENOMEM  no memory */
REMO_API int remo_channel_add_memory(struct remo_channel *channel, const char *name, uint64_t own_bytes,
                                     uint64_t expected_bytes, const struct remo_nodeset *providers,
                                     uint32_t *ret_memory);
/* Announce the channel to the participants. Blocks until the participants that are up have compared
 * it, for op_timeout_ns at most. Does not block in a callback on the control thread, nor below a
 * channel that has not joined (its join blocks). Later calls report a mismatch. After an error
 * close the channel.
 * Errors:
 *   -EINVAL            `channel` is NULL, or the root channel
 *   -ENOMEM, -ENOBUFS  no memory for the message
 *   -ETIMEDOUT         a participant does not answer, or another node that has announced a channel of
 *                      this name with this node as a participant */
REMO_API int remo_channel_join(struct remo_channel *channel);
/* Wait until every participant is connected to this channel and to all its sub-channels (root: to
 * every channel). Blocks up to `timeout_ns`.
 * Errors:
 *   -ETIMEDOUT  a participant has not opened a channel; the sentence names both
 *   -EPROTO     mismatch; the sentence has both descriptions
 *   -EHOSTDOWN  a participant has failed
 *   -ENOTCONN   a participant has closed the channel */
REMO_API int remo_channel_wait(struct remo_channel *channel, uint64_t timeout_ns);
/* Close the channel and its sub-channels. Waits for the end of this channel's callbacks, and for
 * op_timeout_ns at most for operations of this node; does not wait for peers to close. If operations
 * are still in flight, a helper thread completes them, and peers are notified then (on_cut_off). NULL
 * has no effect. The channel need not have joined. */
REMO_API void remo_channel_close(struct remo_channel *channel);

REMO_API struct remo_node *remo_channel_node(const struct remo_channel *channel);
REMO_API const char *remo_channel_name(const struct remo_channel *channel); /* full name */
REMO_API const struct remo_nodeset *remo_channel_participants(const struct remo_channel *channel);
/* Return the state of the connection to `node`. Does not block. */
REMO_API enum remo_channel_state remo_channel_peer(const struct remo_channel *channel, uint32_t node);

/* Return this node's share of the memory, or NULL if it provides none. Peers may modify it
 * concurrently: read words atomically, and verify larger data with a checksum. */
REMO_API void *remo_channel_memory(const struct remo_channel *channel, uint32_t memory);

/* Send a message of up to REMO_CHANNEL_MESSAGE_BYTES_MAX bytes on the control stream, to on_message
 * of `node`. Messages are ordered, and reliable while both nodes are up. Cost: a system call on
 * each node.
 * Errors:
 *   -ENOTCONN   `node` is not connected
 *   -EHOSTDOWN  `node` has failed
 *   -EMSGSIZE   the message is too long
 *   -ENOBUFS    the stream is full, or no memory */
REMO_API int remo_channel_send(struct remo_channel *channel, uint32_t node, const void *data,
                               size_t size_bytes);

/* Return the network operations of this channel and its sub-channels on this node, in all threads,
 * since the open. */
REMO_API void remo_channel_stats(const struct remo_channel *channel, struct remo_stats *ret_stats);

REMO_END
