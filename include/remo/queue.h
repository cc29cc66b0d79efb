/* queue.h - bounded FIFO queue in network memory: any node pushes, any node pops.
 *
 * Model:   two ticket counters at the home; `capacity` slots striped over the participants. A push takes a tail ticket and fills that
 *          slot; a pop takes a head ticket and empties that slot. Each slot carries a turn that says whose it is.
 * Layout:  slot = {u64 turn; u64 checksum; u32 size; data[slot_bytes]}, cache-line aligned.
 * Cost:    push, not full = 1 atomic + 1 write + ...; pop, not empty = ...: see the numbers in the tests.
 * Order:   FIFO and linearizable; a push happens before the pop that returns it.
 * Failure: a dead home: -EHOSTDOWN. A dead slot owner: -EHOSTDOWN for operations on its slots. A node that dies between taking a ticket
 *          and using it: its place is passed over.
 *          Timed operations that give up leave nothing behind. Acknowledged pushes on live nodes are never lost.
 * Source:  LOCO 5.4; Morrison and Afek, PPoPP 2013.
 */
#pragma once

#include <remo/region.h>

REMO_BEGIN

#define REMO_QUEUE_SLOT_BYTES_MAX (1u << 20)

struct remo_queue;

struct remo_queue_options {
    struct remo_nodeset participants;
    uint32_t home;                      /* a participant; default 0 */
    uint32_t slot_bytes;                /* largest element; default 56 */
    uint64_t capacity;                  /* slots in all, rounded up to a multiple of the participants; default 1024 */
};

REMO_API int remo_queue_open(struct remo_channel *parent, const char *name, const struct remo_queue_options *options,
                             struct remo_queue **ret_queue);
REMO_API void remo_queue_close(struct remo_queue *queue);
REMO_API struct remo_channel *remo_queue_channel(struct remo_queue *queue);

/* Append `size_bytes` (<= slot_bytes); copied on return. 0 ns: try once. Errors: -EINVAL -EMSGSIZE -ETIMEDOUT (full) -EHOSTDOWN. */
REMO_API int remo_queue_push(struct remo_queue *queue, const void *data, size_t size_bytes, uint64_t timeout_ns);
/* Errors: -ETIMEDOUT (empty), -EMSGSIZE (buffer_bytes < slot_bytes), -EHOSTDOWN. */
REMO_API int remo_queue_pop(struct remo_queue *queue, void *buffer, size_t buffer_bytes, size_t *ret_size_bytes,
                            uint64_t timeout_ns);

REMO_END
