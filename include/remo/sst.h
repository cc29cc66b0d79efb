/* sst.h - shared state table: each participant writes one row, and reads all rows locally.
 *
 * Model:   each participant owns one row of `row_bytes` and has copies of all other rows, initially
 *          zero.
 * Layout:  rows in the order of ranks, each in cache lines of its own. A row of at most 8 bytes is
 *          one aligned word; a larger one has the format of owned_var.
 * Cost:    store, load, next: none. push: 1 write. push_all to n participants: n-1 writes,
 *          one ack. The writes notify their target.
 * Order:   each row is a regular register whose copies never return to an older value; rows are
 *          independent. A row of at most 8 bytes is atomic.
 * Caches:  works without hardware coherence (see region.h): each line has one writer.
 * Failure: the row of a failed node keeps its last value, even after a failure during a push.
 *          remo_channel_peer reports the failure. push_all skips failed participants, and waits for
 *          participants that have not opened the table. -EAGAIN after 64 torn reads of a row.
 * Threads: load, next, wait: any, concurrently. store, push, push_all: one at a time.
 * Source:  LOCO 5.1.2; Derecho. Differs in: all rows are in one region instead of one channel each.
 */
#pragma once

#include <remo/region.h>

REMO_BEGIN

#define REMO_SST_ROW_BYTES_MAX 4096u

struct remo_sst;

struct remo_sst_options {
    struct remo_nodeset participants; /* empty: the parent's */
};

/* Open the table `name` below `parent`; `options` may be NULL. `row_bytes` (at most
 * REMO_SST_ROW_BYTES_MAX) is the same on every participant. Does not wait for peers to open.
 * Errors: those of remo_region_open. */
REMO_API int remo_sst_open(struct remo_channel *parent, const char *name, size_t row_bytes,
                           const struct remo_sst_options *options, struct remo_sst **ret_sst);
/* Close the table; NULL has no effect. */
REMO_API void remo_sst_close(struct remo_sst *sst);
REMO_API struct remo_channel *remo_sst_channel(struct remo_sst *sst);

/* Set this node's row in local memory. Does not block. Errors: -EINVAL (NULL). */
REMO_API int remo_sst_store(struct remo_sst *sst, const void *row);
/* Copy the row of `node` from local memory. Does not block.
 * Errors:
 *   -EAGAIN  every attempt was a torn read
 *   -EINVAL  `node` is not a participant */
REMO_API int remo_sst_load(struct remo_sst *sst, uint32_t node, void *ret_row);
/* Write this node's row to one participant (push), or to all others that are up (push_all). The
 * next fence places it. Blocks for op_timeout_ns at most, while a participant has not opened the
 * table.
 * Errors:
 *   -EINVAL     `node` is not a participant
 *   -ETIMEDOUT  a participant has not opened the table
 *   -EHOSTDOWN  push: `node` has failed
 *   -ENOTCONN   push: `node` has closed the table */
REMO_API int remo_sst_push(struct remo_sst *sst, uint32_t node, struct remo_ack *ack);
REMO_API int remo_sst_push_all(struct remo_sst *sst, struct remo_ack *ack);
/* Return the first participant with a rank >= `from`, or REMO_NODES_MAX. A loop over participants:
 * for (n = remo_sst_next(s, 0); n < REMO_NODES_MAX; n = remo_sst_next(s, n + 1)) */
REMO_API uint32_t remo_sst_next(const struct remo_sst *sst, uint32_t from);
/* Wait until `ready` returns nonzero; a negative result is an error, which the call returns.
 * `ready` runs again when a row may have changed and at each membership change. It must not wait. It
 * checks the participants that it depends on with remo_channel_peer. The wait detects a store of this node at
 * the node's next push, or within 20 ms. Blocks up to `timeout_ns`.
 * Errors:
 *   -ETIMEDOUT  `ready` returned 0 until the deadline
 *   -EINVAL     an argument is NULL */
REMO_API int remo_sst_wait(struct remo_sst *sst, int (*ready)(void *ctx, struct remo_sst *sst), void *ctx,
                           uint64_t timeout_ns);

REMO_END
