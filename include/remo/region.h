/* region.h - a range of network memory on each participant, which all participants read and write.
 *
 * Model:   every participant (or every provider, if options name them) provides `bytes` bytes.
 * Layout:  plain bytes, zeroed at open, aligned to 64 bytes.
 * Cost:    read = 1 read; write = 1 write; fetch_add, compare_swap = 1 atomic. Operations larger
 *          than the fabric's limit are split: ofi copies 8 KiB at a time from and to memory that is
 *          not network memory.
 * Order:   none beyond docs/memory-model.md: use fences, locks, or objects built on regions.
 *          Aligned words of 8 bytes are never torn. Larger data may be torn by lines, in any order.
 * Caches:  "without hardware coherence" means CXL without back-invalidation, which this version
 *          only simulates. There read and write work if only one node writes each line of 64 bytes.
 *          Atomics return -EOPNOTSUPP. A node accesses its own share by rank, not through
 *          remo_region_local.
 * Failure: -EHOSTDOWN if the node has failed, -ENOTCONN if it has closed the region. Operations
 *          wait for a node that has not opened the region; -ETIMEDOUT after op_timeout_ns.
 * Threads: any, concurrently.
 * Source:  LOCO 5.1.1 (shared_region).
 *
 * Without an ack (`ack` is NULL), reads and atomics block until their result is in place. A write
 * returns when its source has been copied or sent; the next fence waits for it and reports its
 * error. With an ack, all operations return immediately, and `dst` and `ret_old` are valid when the
 * ack is complete. The source of a write is copied, unless it is in this node's network memory (a
 * buffer of remo_buffer_get, or this node's share). Such a source is in use until the ack is
 * complete.
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
    REMO_WRITE_NOTIFY = 1, /* notify the target node when the data is placed */
};

/* Open the region `name` below `parent`; `options` may be NULL. `bytes` is the same on every
 * participant. Does not wait for peers to open. *ret_region is set before the first callback.
 * Errors: those of remo_channel_open and remo_channel_add_memory. */
REMO_API int remo_region_open(struct remo_channel *parent, const char *name, uint64_t bytes,
                              const struct remo_region_options *options, struct remo_region **ret_region);
/* Close the region; NULL has no effect. */
REMO_API void remo_region_close(struct remo_region *region);
REMO_API struct remo_channel *remo_region_channel(struct remo_region *region);
REMO_API uint64_t remo_region_bytes(const struct remo_region *region);
/* Return this node's share, or NULL if it provides none. See remo_channel_memory. */
REMO_API void *remo_region_local(const struct remo_region *region);
/* Return the address of a byte, which network memory can store. Does not block.
 * Errors:
 *   -EINVAL     `node` provides no such byte
 *   -ENOTCONN   `node` is not connected
 *   -EHOSTDOWN  `node` has failed */
REMO_API int remo_region_address(const struct remo_region *region, uint32_t node, uint64_t offset,
                                 struct remo_addr *ret_addr);

/* Read from or write to the share of `node`. `flags`: enum remo_write_flags. Blocks for
 * op_timeout_ns at most.
 * Errors of all operations:
 *   -EINVAL     `node` or the range is wrong; the sentence names it
 *   -EHOSTDOWN  `node` has failed
 *   -ENOTCONN   `node` has closed the region
 *   -ETIMEDOUT  `node` does not answer, or has not opened the region
 *   -EIO        the network reported an error */
REMO_API int remo_region_read(struct remo_region *region, uint32_t node, uint64_t offset, void *dst,
                              size_t size_bytes, struct remo_ack *ack);
REMO_API int remo_region_write(struct remo_region *region, uint32_t node, uint64_t offset, const void *src,
                               size_t size_bytes, uint32_t flags, struct remo_ack *ack);
/* Hint that this thread will soon read or write these bytes, for example before it waits for a
 * lock. On mapped memory the processor fetches the cache lines meanwhile; on other memory the call
 * has no effect. On arm64 it fetches them for writing: the last writer loses its copy. The call
 * never fails or blocks, and does not count as an operation. Prefetch a few lines only: processors
 * keep about ten in flight. */
REMO_API void remo_region_prefetch(const struct remo_region *region, uint32_t node, uint64_t offset,
                                   size_t size_bytes);
/* Write, then pass `value` (0..REMO_CHANNEL_IMMEDIATE_MAX) to the target's on_immediate when the
 * data is placed. Immediates of one thread arrive in the order of their calls. */
REMO_API int remo_region_write_immediate(struct remo_region *region, uint32_t node, uint64_t offset,
                                         const void *src, size_t size_bytes, uint32_t value,
                                         struct remo_ack *ack);
/* Add to a word of 8 bytes, or replace it by `desired` if it equals `expected`. `offset` is a
 * multiple of 8. Change a word by these calls only: network atomics are atomic among themselves,
 * not with writes or CPU stores. *ret_old is the value before the change; `ret_old` may be NULL. */
REMO_API int remo_region_fetch_add(struct remo_region *region, uint32_t node, uint64_t offset,
                                   uint64_t addend, uint64_t *ret_old, struct remo_ack *ack);
REMO_API int remo_region_compare_swap(struct remo_region *region, uint32_t node, uint64_t offset,
                                      uint64_t expected, uint64_t desired, uint64_t *ret_old,
                                      struct remo_ack *ack);

REMO_END
