/* queue.h - bounded FIFO queue in network memory: any node pushes, any node pops.
 *
 * Model:   `capacity` slots striped over the participants; a slot's word says for which lap it is free or
 *          by whom it is claimed, and changes by compare-and-swap only. A push claims the first free slot,
 *          and then fills it; a pop copies the first filled one, and then frees it. Two words at the home say
 *          where these about are, and whether anybody waits.
 * Layout:  slot = {u64 claim; u64 checksum; u64 ticket and size; data[slot_bytes]}, cache-line aligned. Home:
 *          256 bytes. Each participant 192 bytes more: bells that peers ring, and whom it has cut off.
 * Cost:    push, not full: 2 atomics and 1 write; pop, not empty: 1 read and 2 atomics. Elements above 1000
 *          bytes: 1 write or read more. One read more for a push where a completed write is not yet placed.
 *          Full: 1 atomic; empty: 1 read, or 2 when an element is just being put there. When other nodes have
 *          pushed (or popped) since this one did: 1 read and 1 atomic (2 reads) more, and 1 atomic when they
 *          do so at the same time. When nodes wait: 1 read, 1 atomic, and 1 write to wake each of them.
 *          Waiting: 3 to 5 atomics when it begins and ends, and a look every 20 ms.
 * Order:   FIFO and linearizable; a push happens before the pop that returns it.
 * Caches:  where no hardware keeps them coherent (see region.h), opening it gives -EOPNOTSUPP.
 * Failure: a dead home: -EHOSTDOWN (-ENOTCONN when it closed the queue). When another participant dies or
 *          closes the queue, calls that wait and the next call of each node get -EHOSTDOWN, once: they have
 *          done nothing. The elements in its slots are lost; the queue goes on without its slots, in order.
 *          A node that dies in the middle of a push has pushed or not; in the middle of a pop, it may
 *          have taken the element with it. Pushes that returned 0, into slots of live nodes, are never lost,
 *          and no element comes out twice. A push returns -EHOSTDOWN or -EIO with a sentence that says so
 *          when its slot's owner went under its hands: then the element was pushed once or not at all.
 *          Timed operations that give up leave nothing behind.
 *          A pop waits for a push that has claimed its slot and is slow to fill it; when it may not wait, it
 *          gives -ETIMEDOUT, as if the queue were empty.
 * Threads: any.
 * Source:  LOCO 5.4; Morrison and Afek, PPoPP 2013. Differs in: slots are claimed by compare-and-swap instead
 *          of tickets by fetch-and-add, so that whoever dies or gives up holds no ticket.
 */
#pragma once

#include <remo/region.h>

REMO_BEGIN

#define REMO_QUEUE_SLOT_BYTES_MAX (1u << 20)

struct remo_queue;

struct remo_queue_options {
    struct remo_nodeset participants; /* empty: the parent's */
    uint32_t home;                    /* a participant; default 0 */
    uint32_t slot_bytes;              /* largest element; default 56, at most REMO_QUEUE_SLOT_BYTES_MAX */
    uint64_t capacity;                /* slots in all, made a multiple of the participants; default 1024 */
};

/* The options must be the same on every node. Errors: those of remo_channel_open, remo_channel_add_memory. */
REMO_API int remo_queue_open(struct remo_channel *parent, const char *name,
                             const struct remo_queue_options *options, struct remo_queue **ret_queue);
/* Takes this node's slots away from the others: they lose what is in them. */
REMO_API void remo_queue_close(struct remo_queue *queue);
REMO_API struct remo_channel *remo_queue_channel(struct remo_queue *queue);

/* Append `size_bytes` (0 to slot_bytes); copied on return. 0 ns: try once.
 * Errors: -ETIMEDOUT (full), -EMSGSIZE, -EHOSTDOWN, -ENOTCONN, -EIO, -EINVAL. */
REMO_API int remo_queue_push(struct remo_queue *queue, const void *data, size_t size_bytes,
                             uint64_t timeout_ns);
/* Remove the first element. 0 ns: try once. The buffer may be overwritten also when there is an error.
 * Errors: -ETIMEDOUT (empty), -EMSGSIZE (buffer_bytes < slot_bytes), -EHOSTDOWN, -ENOTCONN, -EIO, -EINVAL. */
REMO_API int remo_queue_pop(struct remo_queue *queue, void *buffer, size_t buffer_bytes,
                            size_t *ret_size_bytes, uint64_t timeout_ns);

REMO_END
