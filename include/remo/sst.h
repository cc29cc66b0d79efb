/* sst.h - shared state table: one row per participant, written by it, readable by all from local memory.
 *
 * Model:   each participant owns one row of `row_bytes` and has copies of all others. Zero at the beginning.
 * Layout:  rows in rank order, each its own cache lines. A row of at most 8 bytes is one aligned word; a
 *          larger one has the format of owned_var.
 * Cost:    store, load, next: none. broadcast to n participants: n-1 writes, one ack. push: 1 write. Targets
 *          are woken when asleep.
 * Order:   each row is a regular register whose copies never go back; rows are independent. A row of at most
 *          8 bytes is atomic by alignment.
 * Caches:  works where no hardware keeps them coherent (see region.h): each line has one writer.
 * Failure: the row of a dead node keeps its last value, even when it died in the middle of a push
 *          (remo_channel_peer tells who is gone); a broadcast passes over the dead and waits for participants
 *          that have not opened the table yet. No whole row in 64 attempts: -EAGAIN.
 * Threads: load, next, wait: any, at the same time. store, push, broadcast: one at a time.
 * Source:  LOCO 5.1.2; Derecho. Differs in: rows are laid out in one region instead of one channel each.
 */
#pragma once

#include <remo/region.h>

REMO_BEGIN

#define REMO_SST_ROW_BYTES_MAX 4096u

struct remo_sst;

struct remo_sst_options {
    struct remo_nodeset participants; /* empty: the parent's */
};

/* `row_bytes` must be the same on every participant. Errors: those of remo_region_open. */
REMO_API int remo_sst_open(struct remo_channel *parent, const char *name, size_t row_bytes,
                           const struct remo_sst_options *options, struct remo_sst **ret_sst);
REMO_API void remo_sst_close(struct remo_sst *sst);
REMO_API struct remo_channel *remo_sst_channel(struct remo_sst *sst);

/* Set the own row, here only. */
REMO_API int remo_sst_store(struct remo_sst *sst, const void *row);
/* The row of `node` as known here. Errors: -EAGAIN (torn), -EINVAL (no participant). */
REMO_API int remo_sst_load(struct remo_sst *sst, uint32_t node, void *ret_row);
/* The own row to one participant, or to every other one that lives; it is placed after the next fence.
 * Errors: -EINVAL, -ETIMEDOUT (not opened yet); push alone: -EHOSTDOWN, -ENOTCONN. */
REMO_API int remo_sst_push(struct remo_sst *sst, uint32_t node, struct remo_ack *ack);
REMO_API int remo_sst_broadcast(struct remo_sst *sst, struct remo_ack *ack);
/* Participants in rank order: the first one >= `from`, or REMO_NODES_MAX.
 * for (n = remo_sst_next(s, 0); n < REMO_NODES_MAX; n = remo_sst_next(s, n + 1)) */
REMO_API uint32_t remo_sst_next(const struct remo_sst *sst, uint32_t from);
/* Until `ready` says nonzero (negative: an error, returned). It is called again whenever a row may have
 * changed or a participant is gone: whom it depends on only it knows, so it asks remo_channel_peer about
 * them. A store of this node is seen with its next push, or within 20 ms. Errors: -ETIMEDOUT, -EINVAL. */
REMO_API int remo_sst_wait(struct remo_sst *sst, int (*ready)(void *ctx, struct remo_sst *sst), void *ctx,
                           uint64_t timeout_ns);

REMO_END
