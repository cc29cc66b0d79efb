/* ringbuffer.h - messages of mixed sizes from one node to many, in order, each to all.
 *
 * Model:   the sender writes each message into a ring at every receiver (every participant but itself);
 *          receivers acknowledge what they consumed in an SST, and the sender reuses what all live receivers
 *          are done with.
 * Layout:  per receiver `capacity_bytes`; a message is {u32 size, u32 lap, u64 checksum, payload}, 16-byte
 *          aligned; it never wraps: a filler of 16 bytes closes a lap that has no room for it.
 * Cost:    send to n receivers: n writes (woken when asleep, or delivering an immediate); once per lap n
 *          more, of the filler. receive: none; an acknowledgement of 1 write for every half ring consumed, or
 *          when asked.
 * Order:   each receiver gets every message once, in the order sent.
 * Caches:  where no hardware keeps them coherent (see region.h), opening it gives -EOPNOTSUPP.
 * Failure: a full ring: the sender waits for the slowest live receiver (-ETIMEDOUT: nothing was sent). A dead
 *          receiver is left out and does not stop the sender; one that has not opened the ring yet does. A
 *          dead sender: what arrived whole is received, then -EHOSTDOWN; -ENOTCONN when it closed the ring.
 *          Sent by a node that died, a message may have reached some receivers only.
 * Threads: send and wait_received: one thread at a time. receive and acknowledge: one thread at a time.
 * Source:  LOCO 5.4; FaRM. Differs in: the record carries its lap, and a checksum that covers its place in
 *          the stream, instead of relying on write order or zeroed memory.
 */
#pragma once

#include <remo/sst.h>

REMO_BEGIN

struct remo_ringbuffer;

struct remo_ringbuffer_options {
    struct remo_nodeset participants; /* empty: the parent's */
    uint32_t sender;                  /* a participant; default 0 */
    uint64_t capacity_bytes;          /* default 64 KiB; a multiple of 64, from 256 to 4 GiB */
    void *ctx;
    /* Service thread: something may be there to receive; makes sends carry immediates. Given at every
     * participant (the sender's is never called) or at none. */
    void (*on_arrival)(void *ctx);
};

/* *ret_ring is set before the first on_arrival. Sender, capacity and whether there is an on_arrival must be
 * the same on every participant. Errors: those of remo_region_open. */
REMO_API int remo_ringbuffer_open(struct remo_channel *parent, const char *name,
                                  const struct remo_ringbuffer_options *options,
                                  struct remo_ringbuffer **ret_ring);
REMO_API void remo_ringbuffer_close(struct remo_ringbuffer *ring);
REMO_API struct remo_channel *remo_ringbuffer_channel(struct remo_ringbuffer *ring);
/* A quarter of the capacity, less 16. */
REMO_API size_t remo_ringbuffer_message_bytes_max(const struct remo_ringbuffer *ring);

/* Sender. *ret_position (may be NULL): for remo_ringbuffer_wait_received. 0: the message reaches every
 * receiver that lives; should writing it have failed, the next call does it again first, or tells. Errors:
 * -EPERM, -EMSGSIZE, -EINVAL, -ETIMEDOUT, -EPROTO. */
REMO_API int remo_ringbuffer_send(struct remo_ringbuffer *ring, const void *message, size_t size_bytes,
                                  uint64_t timeout_ns, uint64_t *ret_position);
/* Sender: until every live receiver acknowledged everything up to `position`. They do so for every half ring,
 * or when they call remo_ringbuffer_acknowledge. Errors: -EPERM, -EINVAL (not sent yet), -ETIMEDOUT. */
REMO_API int remo_ringbuffer_wait_received(struct remo_ringbuffer *ring, uint64_t position,
                                           uint64_t timeout_ns);
/* Receiver. Copies the next message; `buffer` may be written to even when there is none. Errors: -ETIMEDOUT
 * (none), -EMSGSIZE (needs *ret_size_bytes; it stays), -EHOSTDOWN, -ENOTCONN, -EPERM, -EINVAL. */
REMO_API int remo_ringbuffer_receive(struct remo_ringbuffer *ring, void *buffer, size_t buffer_bytes,
                                     size_t *ret_size_bytes, uint64_t timeout_ns);
/* Receiver: acknowledge what was received so far, now. Nothing new: no write. Errors: -EPERM, -EHOSTDOWN. */
REMO_API int remo_ringbuffer_acknowledge(struct remo_ringbuffer *ring);

REMO_END
