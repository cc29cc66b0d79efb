/* ringbuffer.h - the inner interface of ring buffers.
 *
 * Memory:  "ring": at each receiver, the records. "consumed": at the sender, one line for each node. Its
 *          first word is the position up to which that node has consumed the ring, and only that node writes
 *          it. */
#pragma once

#include <remo/ringbuffer.h>

#include "objects/ring_record.h"

struct remo__ring_receiver {
    uint16_t node;
    bool is_pending;   /* the last record is still to be written there */
    uint64_t consumed; /* position that it acknowledged last */
};

struct remo_ringbuffer {
    struct remo_channel *channel;
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
    uint16_t pause;                         /* learned, after a message that came alone */
    uint32_t found_bytes;                   /* of the message at the cursor */
    bool is_peeked;                         /* the caller uses the message at the cursor in place */
};
