/* arena.h - the network memory of one node: address space reserved once, committed by segments, given out in
 * pieces.
 *
 * One first-fit allocator with coalescing serves every object of the node. It is used at open and close only,
 * never on the data path. The arena grows by at least a sixteenth of itself, so that a large one has few
 * segments. Each new segment is registered with the fabric and announced to all peers before any address
 * inside it leaves this node; the control stream keeps that order.
 */
#pragma once

#include "node/node.h"

struct remo__arena_config {
    uint64_t arena_bytes, segment_bytes;
    bool is_set;   /* exactly arena_bytes, or an error; else less if there is no address space for it */
    uint32_t more; /* reservations of the same size that the fabric will make for peers */
    const char *memory_dir;
};

int remo__arena_open(struct remo_node *node, const struct remo__arena_config *config,
                     struct remo__arena **ret_arena);
/* A peer has reserved `bytes`. Sizes that were set must be equal; else the arena does not grow beyond the smallest
 * reservation of the job. Control thread. Errors: -EPROTO, without a sentence. */
int remo__arena_agree(struct remo__arena *arena, uint64_t bytes, bool is_set);
/* All nodes have joined, and objects use the memory: from here on the size stays. */
void remo__arena_settle(struct remo__arena *arena);
void remo__arena_close(struct remo__arena *arena);
/* Register the first segment; the fabric is open now. */
int remo__arena_start(struct remo__arena *arena);
/* Zeroed memory, 64-byte aligned (2 MiB from 1 MiB on, for huge pages). Errors: -ENOSPC, -ENOMEM. Threads:
 * any. */
int remo__arena_alloc(struct remo__arena *arena, uint64_t bytes, uint64_t *ret_offset);
void remo__arena_free(struct remo__arena *arena, uint64_t offset, uint64_t bytes);
/* Announce all segments so far to a peer that just came (control thread). */
int remo__arena_announce(struct remo__arena *arena, uint32_t peer);

/* The peer is gone: announce nothing to it any more. */
void remo__arena_forget(struct remo__arena *arena, uint32_t peer);

char *remo__arena_base(const struct remo__arena *arena);
/* The first offset that is given out: what lies before is the fabric's, and what fences read. */
uint64_t remo__arena_first(const struct remo__arena *arena);
uint64_t remo__arena_reserved(const struct remo__arena *arena);
bool remo__arena_is_set(const struct remo__arena *arena);

#ifdef REMO_SIM
/* From here on the arena is zero: nothing there was ever given out. */
uint64_t remo__arena_used(const struct remo__arena *arena);
#endif
