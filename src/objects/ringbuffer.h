/* ringbuffer.h - the inner interface of ring buffers: a ring, and a set with one ring of each participant.
 *
 * Channel: the rings of a set share one channel, so a set costs no more to open than one ring. A ring that is
 *          opened alone is a set with one sender.
 * Memory:  "ring": at each receiver, the records of all senders, one ring after the other in the order of
 *          ranks. "consumed": at each sender, one line for each node. Its first word is the position up to
 *          which that node has consumed the sender's ring, and only that node writes it. */
#pragma once

#include <remo/ringbuffer.h>

#include "objects/ring_record.h"

struct remo__ring_receiver {
    uint16_t node;
    bool is_pending;   /* the last record is still to be written there */
    uint64_t consumed; /* position that it acknowledged last */
};

struct remo_ringbuffer {
    struct remo_channel *channel;                  /* of the set */
    const struct remo__memory *records, *consumed; /* memories of the channel */
    struct remo_node *node;
    uint32_t sender;
    bool is_sender;
    void *ctx;
    void (*on_arrival)(void *ctx);
    struct remo__ring_cursor cursor; /* of the next record to send or to receive */
    /* Sender: the last record, of which a sealed one has only the header there; a loaned message.
     * Receiver: a message that is longer than the buffer, or was peeked and is not sealed. */
    uint64_t *image;
    uint64_t records_at; /* offset of this ring in each receiver's share */
    struct remo__ring_set *set;
    uint32_t direct_bytes_end; /* messages below this size use the short paths; 0: none does */
    /* sender */
    bool all_opened;                        /* every receiver has opened the ring, or has failed or left */
    bool has_pending;                       /* `image` is still to be written to a receiver */
    uint64_t pending_offset, pending_bytes; /* valid while has_pending */
    uint64_t consumed_by_all;
    uint32_t receiver_count;
    struct remo__ring_receiver *receivers;
    char *loan; /* the message that the caller builds; NULL: none */
    size_t loan_bytes;
    /* receiver */
    uint64_t acknowledged;
    struct remo__thread *last_acknowledger; /* NULL: none yet */
    uint64_t caught_up;                     /* the cursor at the last probe that found no message */
    uint32_t found_bytes;                   /* of the message at the cursor */
    bool is_peeked;                         /* the caller uses the message at the cursor in place */
};

struct remo__ring_set_options {
    struct remo_nodeset participants, senders; /* each sender is a participant */
    uint64_t capacity_bytes;                   /* of each ring */
    void (*on_arrival)(void *ctx);             /* of each ring; may be NULL */
    void *ctx;                                 /* for the ring of node 0 */
    size_t ctx_bytes;                          /* from the `ctx` of a node to that of the next one */
};

/* Rings of several senders on one channel. A public ring is a set of one; only the map (kv, its trackers) has
 * a set of several. */
struct remo__ring_set {
    struct remo_channel *channel;
    struct remo_ringbuffer *rings[]; /* [nodes] the ring of each sender; NULL: the node is no sender */
};

/* Open the rings of all senders, without the join: the caller calls remo_channel_join(set->channel) when its
 * object is complete, because callbacks begin then. `type` is that of the channel (at most 63 characters).
 * Errors: those of remo_channel_open and remo_channel_add_memory. */
int remo__ring_set_open(struct remo_channel *parent, const char *name, const char *type,
                        const struct remo__ring_set_options *options, struct remo__ring_set **ret_set);
/* Close the rings. NULL has no effect. */
void remo__ring_set_close(struct remo__ring_set *set);
