/* arena.h - the network memory of one node.
 *
 * Model: address space is reserved once, and committed in segments. A first-fit allocator with coalescing
 *        serves all objects of the node, when they open and close, never on the data path. The arena grows by
 *        at least a sixteenth of its size, so a large arena has few segments.
 * Order: a new segment is registered with the fabric and announced to all peers before an address inside it
 *        leaves this node. The control stream keeps that order. */
#pragma once

#include "node/node.h"

struct remo__arena_config {
    uint64_t arena_bytes, segment_bytes;
    bool is_set; /* the program or user has set arena_bytes: reserve exactly that; else perhaps less */
    uint32_t peer_windows; /* reservations of the same size that the fabric makes for peers */
    const char *memory_dir;
};

/* Reserve address space. Errors: -ENOMEM. */
int remo__arena_open(struct remo_node *node, const struct remo__arena_config *config,
                     struct remo__arena **ret_arena);
/* Limit the arena to a peer's reservation of `bytes`. Sizes that were set must be equal; otherwise the
 * smallest reservation of the job is the limit. Threads: control. Errors: -EPROTO, without a sentence. */
int remo__arena_agree(struct remo__arena *arena, uint64_t bytes, bool is_set);
/* Fix the limit: all nodes have joined, and objects may rely on it. */
void remo__arena_freeze(struct remo__arena *arena);
void remo__arena_close(struct remo__arena *arena);
/* Create and register the first segment. The fabric must be open. */
int remo__arena_start(struct remo__arena *arena);
/* Allocate zeroed memory, aligned to 64 bytes, or from 1 MiB on to 2 MiB for huge pages. Grows the arena if
 * needed. Threads: any. Errors: -ENOSPC, -ENOMEM. */
int remo__arena_alloc(struct remo__arena *arena, uint64_t bytes, uint64_t *ret_offset);
/* The same with an alignment: a power of two of at least 64. */
int remo__arena_alloc_aligned(struct remo__arena *arena, uint64_t bytes, uint64_t alignment,
                              uint64_t *ret_offset);
/* Free memory of remo__arena_alloc, with the same `bytes`. Threads: any. */
void remo__arena_free(struct remo__arena *arena, uint64_t offset, uint64_t bytes);
/* Announce all segments to a peer that has connected, and later ones when they are made. Threads: control. */
int remo__arena_announce(struct remo__arena *arena, uint32_t peer);
/* Announce no more segments to a peer that has left or failed. */
void remo__arena_forget(struct remo__arena *arena, uint32_t peer);

char *remo__arena_base(const struct remo__arena *arena);
/* Return the lowest offset of objects' memory. Below are the fabric's private part, and the word that fences
 * read. */
uint64_t remo__arena_first(const struct remo__arena *arena);
uint64_t remo__arena_reserved(const struct remo__arena *arena);
bool remo__arena_is_set(const struct remo__arena *arena);

#ifdef REMO_SIM
/* Return the end of the part that was ever allocated. The arena after it is zero. */
uint64_t remo__arena_used(const struct remo__arena *arena);
#endif
