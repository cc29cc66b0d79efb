/* ringbuffer.h - messages of mixed sizes from one node to many, in order, each to all.
 *
 * Model:   the sender writes each message into a ring at every receiver; receivers acknowledge what they consumed in an SST, and the
 *          sender reuses what all live receivers are done with.
 * Layout:  per receiver `capacity_bytes`; a message is {u32 size, u32 lap, u64 checksum, payload}, 16-byte aligned; it never wraps: a filler
 *          record closes a lap.
 * Cost:    send to n receivers: n writes (woken when asleep, or delivering an immediate). receive: none; an acknowledgement of 1 write for
 *          every half ring consumed, or when asked.
 * Order:   each receiver gets every message once, in the order sent.
 * Failure: a full ring: the sender waits for the slowest live receiver (-ETIMEDOUT: nothing was sent). A dead receiver is left out and does
 *          not stop the sender. A dead sender: what arrived whole is received, then -EHOSTDOWN.
 * Threads: send: one thread at a time. receive: one thread at a time.
 * Source:  LOCO 5.4; FaRM. Differs in: the record carries its lap and a checksum instead of relying on write order or zeroed memory.
 */
#pragma once

#include <remo/sst.h>

REMO_BEGIN

struct remo_ringbuffer;

struct remo_ringbuffer_options {
    struct remo_nodeset participants;
    uint32_t sender;
    uint64_t capacity_bytes;            /* default 64 KiB; a multiple of 64 */
    void *ctx;
    void (*on_arrival)(void *ctx);      /* service thread: something may be there to receive; makes sends carry immediates */
};

REMO_API int remo_ringbuffer_open(struct remo_channel *parent, const char *name, const struct remo_ringbuffer_options *options,
                                  struct remo_ringbuffer **ret_ring);
REMO_API void remo_ringbuffer_close(struct remo_ringbuffer *ring);
REMO_API struct remo_channel *remo_ringbuffer_channel(struct remo_ringbuffer *ring);
REMO_API size_t remo_ringbuffer_message_bytes_max(const struct remo_ringbuffer *ring); /* a quarter of the capacity, less headers */

/* Sender. *ret_position (may be NULL): for remo_ringbuffer_wait_received. Errors: -EPERM, -EMSGSIZE, -ETIMEDOUT. */
REMO_API int remo_ringbuffer_send(struct remo_ringbuffer *ring, const void *message, size_t size_bytes, uint64_t timeout_ns,
                                  uint64_t *ret_position);
/* Sender: until every live receiver acknowledged everything up to `position`. */
REMO_API int remo_ringbuffer_wait_received(struct remo_ringbuffer *ring, uint64_t position, uint64_t timeout_ns);
/* Receiver. Copies the next message. Errors: -ETIMEDOUT (none), -EMSGSIZE (needs *ret_size_bytes; stays), -EHOSTDOWN, -EPERM. */
REMO_API int remo_ringbuffer_receive(struct remo_ringbuffer *ring, void *buffer, size_t buffer_bytes, size_t *ret_size_bytes,
                                     uint64_t timeout_ns);
/* Receiver: acknowledge what was received so far, now. */
REMO_API int remo_ringbuffer_acknowledge(struct remo_ringbuffer *ring);

REMO_END
