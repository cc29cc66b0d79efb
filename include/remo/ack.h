/* ack.h - acknowledgement: reports the completion of operations.
 *
 * Model:   a value in the caller's memory that counts incomplete operations. Several operations may
 *          share one ack, which is complete when all of them are complete. So a broadcast needs one
 *          ack. remo_ack_join merges two acks.
 * Cost:    no network operation. A test or a wait drives all operations of the thread that started
 *          those of the ack. A fabric that completes operations immediately (shm) never changes an
 *          ack.
 * Order:   when a read or an atomic is complete, its result is in place. When a write is complete,
 *          its source may be reused; a fence makes the write visible at its target (remo_fence in
 *          node.h).
 * Failure: the status is that of the first operation that failed. After -EHOSTDOWN (the peer has
 *          failed) the outcome of the operation is unknown.
 * Threads: one thread starts operations on an ack. Any one thread at a time tests or waits.
 * Lifetime: keep an ack in place until it is complete, or until remo_ack_cancel.
 * Source:  LOCO 5.2. Differs in: a counter in the caller's memory instead of a bit set in the
 *          library's memory.
 */
#pragma once

#include <remo/error.h>

REMO_BEGIN

struct remo_ack {
    void *thread; /* the library's: the thread that started the operations */
    uint32_t pending;
    int32_t status;
};

#define REMO_ACK_INIT \
    { 0, 0, 0 }

/* Return the status of `ack`. Does not block.
 * Errors:
 *   -EINPROGRESS  an operation is pending
 *   others        those of the first operation that failed */
REMO_API int remo_ack_test(struct remo_ack *ack);
/* Wait until `ack` is complete, and return its status. Blocks up to `timeout_ns`.
 * Errors:
 *   -ETIMEDOUT  an operation is still pending
 *   others      those of the first operation that failed */
REMO_API int remo_ack_wait(struct remo_ack *ack, uint64_t timeout_ns);
/* Wait until one of `count` acks is complete, and set *ret_index to the first complete one;
 * remo_ack_test returns its status. Entries that are NULL are skipped, so a loop can drop handled
 * acks. Blocks up to `timeout_ns`.
 * Errors:
 *   -ETIMEDOUT  no ack is complete
 *   -EINVAL     an argument is NULL, or every entry is */
REMO_API int remo_ack_wait_any(struct remo_ack *const *acks, uint32_t count, uint64_t timeout_ns,
                               uint32_t *ret_index);
/* Move the pending operations and the status of `from` to `into`; `from` is then complete. One
 * thread has started the operations of both. Does not block. */
REMO_API void remo_ack_join(struct remo_ack *into, struct remo_ack *from);
/* Detach `ack` from its operations, at any time. The operations continue, but no longer write to
 * the ack or to result buffers. Does not block. */
REMO_API void remo_ack_cancel(struct remo_ack *ack);

REMO_END
