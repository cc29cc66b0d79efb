/* region.h - a range of network memory on each participant, read and written by all.
 *
 * Model:   every participant (or every provider, when options name them) provides `bytes` bytes.
 * Layout:  plain bytes, zeroed at open, 64-byte aligned.
 * Cost:    read = 1 read; write = 1 write; fetch_add, compare_swap = 1 atomic. What is larger than the fabric
 *          moves at once is split: ofi copies 8 KiB at a time, from and to memory that is no network memory.
 * Order:   none beyond docs/memory-model.md: use fences, locks, or the objects built on regions. Aligned
 *          words of 8 bytes are never torn; anything larger may be, line by line, in any order.
 * Caches:  where no hardware keeps them coherent (CXL without back-invalidation; only simulated in this
 *          version), read and write work, each line (64 bytes) being written by one node only; atomics give
 *          -EOPNOTSUPP. The own share is read and written there by rank, not through remo_region_local.
 * Failure: -EHOSTDOWN when the node is gone, -ENOTCONN when it closed the region. A node that has not opened
 * it
 *          yet is waited for; -ETIMEDOUT after op_timeout_ns.
 * Threads: any, at the same time.
 * Source:  LOCO 5.1.1 (shared_region).
 *
 * Acks: with `ack` = NULL, reads and atomics wait for their result; a write returns when its source has been
 * copied or sent, and the next fence waits for it (and reports its error). With an ack, all return at once
 * and `dst`, `ret_old` are filled when it is done. The source of a write is copied, unless it lies in this
 * node's network memory (a buffer of remo_buffer_get, an own share): that is in use until the ack is done.
 */
#pragma once

#include <remo/channel.h>

REMO_BEGIN

struct remo_region;

struct remo_region_options {
    struct remo_nodeset participants; /* empty: the parent's */
    struct remo_nodeset providers;    /* participants that provide memory; empty: all */
    void *ctx;
    void (*on_immediate)(void *ctx, uint32_t node, uint32_t value); /* service thread; see channel.h */
};

enum remo_write_flags {
    REMO_WRITE_NOTIFY = 1, /* wake waiters of the target node when the data is there */
};

/* *ret_region is set before the first callback. `bytes` must be the same on every participant.
 * Errors: those of remo_channel_open and remo_channel_add_memory. */
REMO_API int remo_region_open(struct remo_channel *parent, const char *name, uint64_t bytes,
                              const struct remo_region_options *options, struct remo_region **ret_region);
REMO_API void remo_region_close(struct remo_region *region);
REMO_API struct remo_channel *remo_region_channel(struct remo_region *region);
REMO_API uint64_t remo_region_bytes(const struct remo_region *region);
/* Own share, or NULL when this node provides none. See remo_channel_memory. */
REMO_API void *remo_region_local(const struct remo_region *region);
/* The address of a byte, for storing in network memory. Errors: -EINVAL, -ENOTCONN, -EHOSTDOWN. */
REMO_API int remo_region_address(const struct remo_region *region, uint32_t node, uint64_t offset,
                                 struct remo_addr *ret_addr);

/* Errors of all: -EINVAL (node or range; the sentence says which), -EHOSTDOWN, -ENOTCONN, -ETIMEDOUT,
 * -EIO. */
REMO_API int remo_region_read(struct remo_region *region, uint32_t node, uint64_t offset, void *dst,
                              size_t size_bytes, struct remo_ack *ack);
REMO_API int remo_region_write(struct remo_region *region, uint32_t node, uint64_t offset, const void *src,
                               size_t size_bytes, uint32_t flags, struct remo_ack *ack);
/* A hint that this thread is about to read or write these bytes, before it waits for a lock, say. Where the
 * memory is mapped, the processor fetches the cache lines meanwhile; elsewhere this does nothing. It changes
 * nothing, fails never, and counts as no operation. At most a few lines: processors have ten or so in flight.
 * */
REMO_API void remo_region_prefetch(const struct remo_region *region, uint32_t node, uint64_t offset,
                                   size_t size_bytes);
/* Write, then hand `value` (0..REMO_CHANNEL_IMMEDIATE_MAX) to the target's on_immediate, after the data is
 * there. Immediates of one thread arrive in the order they were sent. */
REMO_API int remo_region_write_immediate(struct remo_region *region, uint32_t node, uint64_t offset,
                                         const void *src, size_t size_bytes, uint32_t value,
                                         struct remo_ack *ack);
/* 8-byte words, offset a multiple of 8. A word that is changed by these must not be written or stored
 * otherwise: network atomics are atomic among themselves only. `ret_old` may be NULL. */
REMO_API int remo_region_fetch_add(struct remo_region *region, uint32_t node, uint64_t offset,
                                   uint64_t addend, uint64_t *ret_old, struct remo_ack *ack);
REMO_API int remo_region_compare_swap(struct remo_region *region, uint32_t node, uint64_t offset,
                                      uint64_t expected, uint64_t desired, uint64_t *ret_old,
                                      struct remo_ack *ack);

REMO_END
