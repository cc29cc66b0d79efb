/* ringbuffer.h - messages of mixed sizes from one node to many, in order, each to all receivers.
 *
 * Model:   the sender writes each message into a ring at every receiver (every participant but
 *          itself). Each receiver acknowledges consumed messages by a word at the sender. The sender
 *          reuses space that all receivers that are up have acknowledged.
 * Layout:  per receiver `capacity_bytes`. A message is {u32 size, u32 lap, u64 checksum, payload},
 *          aligned to 16 bytes, and never wraps. A filler of 16 bytes ends a lap that has no room
 *          for the next message. On a fabric that does not order writes the payload is masked. On
 *          shm the header is written after the payload, and needs no checksum of it.
 * Cost:    send to n receivers: n writes (notify, or with an immediate), and n more per lap for the
 *          filler. receive: none, except 1 write to acknowledge every consumed half of the ring, or
 *          on request. Copies of a message on shm: 1 by a send for each receiver, 1 by a receive;
 *          none by a loan to a single receiver, none by a peek. Elsewhere the library copies it
 *          once more at each side, and computes its checksum.
 * Order:   each receiver gets every message once, in the order of sends.
 * Caches:  without hardware coherence (see region.h) open returns -EOPNOTSUPP.
 * Failure: if the ring is full, the sender waits for the slowest receiver that is up (-ETIMEDOUT:
 *          nothing was sent). The sender skips failed receivers, and waits for receivers that have
 *          not opened the ring. If the sender fails, receivers get all complete messages, then
 *          -EHOSTDOWN; if it closes the ring, then -ENOTCONN. A message of a failed sender may have
 *          reached some receivers only. If an acknowledgement fails, the following calls of receive
 *          repeat it.
 * Threads: send, loan, commit, cancel and wait_received: one thread at a time. receive, peek,
 *          consume and acknowledge: one thread at a time.
 * Source:  LOCO 5.4; FaRM. Differs in: each record carries its lap, and a checksum that covers its
 *          position in the stream, instead of relying on zeroed memory or, except on shm, on write
 *          order.
 */
#pragma once

#include <remo/channel.h>

REMO_BEGIN

struct remo_ringbuffer;

struct remo_ringbuffer_options {
    struct remo_nodeset participants; /* empty: the parent's */
    uint32_t sender;                  /* a participant; default 0 */
    uint64_t capacity_bytes;          /* default 64 KiB; a multiple of 64, from 256 to 4 GiB */
    void *ctx;
    /* Called by the service thread when a message may have arrived; sends then carry immediates.
     * Set at every participant (the sender's is never called) or at none. */
    void (*on_arrival)(void *ctx);
};

/* Open the ring buffer `name` below `parent`; `options` may be NULL. Sender, capacity and the
 * presence of on_arrival are the same on every participant. Does not wait for peers to open.
 * *ret_ring is set before the first on_arrival.
 * Errors: those of remo_region_open. */
REMO_API int remo_ringbuffer_open(struct remo_channel *parent, const char *name,
                                  const struct remo_ringbuffer_options *options,
                                  struct remo_ringbuffer **ret_ring);
/* Close the ring buffer; NULL has no effect. */
REMO_API void remo_ringbuffer_close(struct remo_ringbuffer *ring);
REMO_API struct remo_channel *remo_ringbuffer_channel(struct remo_ringbuffer *ring);
/* Return the longest message in bytes: a quarter of the capacity, less 16. */
REMO_API size_t remo_ringbuffer_message_bytes_max(const struct remo_ringbuffer *ring);

/* Sender: send a message to all receivers; copied on return. Blocks up to `timeout_ns` while the
 * ring is full, then for op_timeout_ns at most while no write can start. *ret_position (may be
 * NULL) is the position for remo_ringbuffer_wait_received. After success the message reaches every
 * receiver that is up: if a write could not start, the next call repeats it first, or reports the
 * error. If a write fails later although its receiver is up, the next fence of this thread returns
 * the error. The receiver may get no further message then.
 * Errors:
 *   -EPERM      this node is not the sender
 *   -EMSGSIZE   the message is longer than remo_ringbuffer_message_bytes_max
 *   -EINVAL     an argument is NULL
 *   -EBUSY      a message is loaned
 *   -ETIMEDOUT  the ring is full, or a receiver has not opened it; nothing was sent
 *   -EPROTO     a participant opened another object under this name */
REMO_API int remo_ringbuffer_send(struct remo_ringbuffer *ring, const void *message, size_t size_bytes,
                                  uint64_t timeout_ns, uint64_t *ret_position);
/* Sender: reserve room for a message of up to `size_bytes`, and set *ret_message to where the caller
 * builds it, aligned to 16 bytes. The contents are undefined. The memory is valid until the commit,
 * the cancel or the close; there is one loan at a time. Blocks as a send does.
 * Errors: those of remo_ringbuffer_send. */
REMO_API int remo_ringbuffer_loan(struct remo_ringbuffer *ring, size_t size_bytes, uint64_t timeout_ns,
                                  void **ret_message);
/* Sender: send the first `size_bytes` of the loaned message, as a send does. Blocks for
 * op_timeout_ns at most, while no write can start.
 * Errors:
 *   -EPERM      this node is not the sender
 *   -EINVAL     no message is loaned, or `ring` is NULL
 *   -EMSGSIZE   `size_bytes` is more than the loan; the message stays loaned */
REMO_API int remo_ringbuffer_commit(struct remo_ringbuffer *ring, size_t size_bytes, uint64_t *ret_position);
/* Sender: end the loan without a message; no effect without a loan.
 * Errors:
 *   -EPERM      this node is not the sender
 *   -EINVAL     `ring` is NULL */
REMO_API int remo_ringbuffer_cancel(struct remo_ringbuffer *ring);
/* Sender: wait until every receiver that is up has acknowledged all messages up to `position`.
 * Receivers acknowledge every half ring, and when they call remo_ringbuffer_acknowledge. Blocks up
 * to `timeout_ns`.
 * Errors:
 *   -EPERM      this node is not the sender
 *   -EINVAL     `position` is beyond the last message
 *   -ETIMEDOUT  a receiver has not acknowledged */
REMO_API int remo_ringbuffer_wait_received(struct remo_ringbuffer *ring, uint64_t position,
                                           uint64_t timeout_ns);
/* Receiver: remove the next message and copy it to `buffer`. The contents of `buffer` are undefined
 * after an error. Blocks up to `timeout_ns`.
 * Errors:
 *   -ETIMEDOUT  no message arrived
 *   -EMSGSIZE   the message has *ret_size_bytes, more than `buffer_bytes`; it stays in the ring
 *   -EHOSTDOWN  the sender has failed
 *   -ENOTCONN   the sender has closed the ring
 *   -EPERM      this node is not a receiver
 *   -EINVAL     an argument is NULL */
REMO_API int remo_ringbuffer_receive(struct remo_ringbuffer *ring, void *buffer, size_t buffer_bytes,
                                     size_t *ret_size_bytes, uint64_t timeout_ns);
/* Receiver: find the next message, and set *ret_message and *ret_size_bytes to it. It stays in the
 * ring, where it is valid until remo_ringbuffer_consume or remo_ringbuffer_receive removes it, or
 * the close; do not change it. Blocks up to `timeout_ns`.
 * Errors: those of remo_ringbuffer_receive, except -EMSGSIZE. */
REMO_API int remo_ringbuffer_peek(struct remo_ringbuffer *ring, const void **ret_message,
                                  size_t *ret_size_bytes, uint64_t timeout_ns);
/* Receiver: remove the message of the last peek.
 * Errors:
 *   -EPERM      this node is not a receiver
 *   -EINVAL     no message was peeked since the last was removed, or `ring` is NULL */
REMO_API int remo_ringbuffer_consume(struct remo_ringbuffer *ring);
/* Receiver: acknowledge all received messages. Cost: 1 write; none if all are acknowledged.
 * Errors:
 *   -EPERM      this node is not a receiver
 *   -EHOSTDOWN  the sender has failed */
REMO_API int remo_ringbuffer_acknowledge(struct remo_ringbuffer *ring);

REMO_END
