/* ack.h - what is still to happen of operations that were started.
 *
 * Model:   a caller-owned value that counts unfinished operations. Give the same ack to several operations
 *          and it is done when all of them are (a whole broadcast is one ack); join two acks with
 *          remo_ack_join.
 * Cost:    none of its own. Waiting drives the operations of the thread that started them. On a fabric that
 *          completes at once (shm) an ack is never touched.
 * Order:   done means that results are in place (reads, atomics) or that the source may be reused (writes);
 *          whether a write is visible at its target is what fences say (fence.h).
 * Failure: the status is that of the first operation that failed: -EHOSTDOWN when the peer died, and it may
 *          then have happened or not.
 * Threads: one thread starts operations on an ack; any one thread at a time tests or waits.
 * Life:    an ack must stay in place while it is pending. remo_ack_cancel lets go of it at any time: the
 *          operations go on, and nothing is written to the ack or to result buffers any more.
 * Source:  LOCO 5.2. Differs in: a counter in the caller's memory instead of a bit set in the library's.
 */
#pragma once

#include <remo/error.h>

REMO_BEGIN

struct remo_ack {
    void *thread; /* the library's: who started the operations */
    uint32_t pending;
    int32_t status;
};

#define REMO_ACK_INIT \
    { 0, 0, 0 }

/* -EINPROGRESS while anything is pending, else 0 or the first error. Never waits. */
REMO_API int remo_ack_test(struct remo_ack *ack);
/* As test, after waiting up to `timeout_ns`. Errors: -ETIMEDOUT (still pending), or that of the operation. */
REMO_API int remo_ack_wait(struct remo_ack *ack, uint64_t timeout_ns);
/* `into` now also stands for what `from` stood for; `from` is done. Both of one thread. */
REMO_API void remo_ack_join(struct remo_ack *into, struct remo_ack *from);
REMO_API void remo_ack_cancel(struct remo_ack *ack);

REMO_END
