/* heap.h - run-time allocator of network memory: each participant allocates blocks of its own
 * arena, and any node reads and writes them by address.
 *
 * Model:   each participant has its own heap of blocks, and allocates and frees them; peers access
 *          them with remo_read and remo_write. A heap is a channel, because reuse depends on its
 *          participants. A block whose address peers may have is retired, and is reused after a grace
 *          period. Grace period: a reader pins the heap while it uses addresses. A pin is a word in
 *          the reader's own network memory. The owner of retired blocks reads the pins of all
 *          participants. It frees a batch of blocks when each thread that was pinned has unpinned
 *          since.
 * Layout:  72 size classes: multiples of 16 bytes up to 128, then 8 per doubling up to 32 KiB. A
 *          block above 128 bytes has at most 12.5 % padding. Blocks of a class fill slabs of 64 KiB
 *          (above 8 KiB: 256 KiB) without headers; at most 9 % of a slab is left over. A larger block
 *          is a run of 4 KiB pages in a chunk of 2 MiB; above 2 MiB, a chunk of its own. All metadata
 *          is in private memory: writes of peers cannot damage the allocator.
 * Cost:    alloc, free, retire, pin: no network operation; O(1), no lock and no system call, except
 *          once per slab and for blocks above 32 KiB. unpin: a THREAD fence. An attempt to reclaim: 1
 *          read per other participant at most, or 2 if an earlier grace period has not ended. The
 *          reads overlap. Every REMO_HEAP_BATCH calls, retire includes one attempt. A thread keeps
 *          at most one slab per size class.
 * Order:   an access by an address that was loaded under a pin precedes the reuse of its block.
 * Caches:  works without hardware coherence (see region.h), if each line of 64 bytes has one
 *          writer: allocate blocks with an alignment of 64 there.
 * Failure: blocks of a failed node are lost: -EHOSTDOWN, and -ESTALE after its restart. Pins of a
 *          participant that has failed and is cut off, or has left, no longer count. A participant
 *          that has not opened the heap, and a thread that stays pinned, delay reuse. No call waits
 *          for them, except reclaim and close, within their time limits.
 * Threads: any, concurrently; any thread of the owner frees a block. A pin belongs to its
 *          thread, which is pinned while any of its tasks (task.h) is. The end of a thread ends its
 *          pins as unpin does, and leaves its slabs to other threads.
 * Source:  slabs of one thread, with frees by any thread: mimalloc (Leijen, Zorn and de Moura,
 *          2019); grace periods: read-copy-update (Desnoyers et al., 2012). Differs in: allocation
 *          state is a bitmap outside the blocks, and a reader is polled by a network read.
 */
#pragma once

#include <remo/channel.h>

REMO_BEGIN

#define REMO_HEAP_ALIGNMENT_MAX 4096u
#define REMO_HEAP_BATCH 256u /* retired blocks from one attempt to reclaim to the next */

struct remo_heap;

struct remo_heap_options {
    struct remo_nodeset participants; /* empty: the parent's */
    uint64_t limit_bytes;             /* of the arena, for this node's blocks; 0: no limit */
};

/* Open the heap `name` below `parent`; `options` may be NULL. `limit_bytes` may differ between
 * nodes. Does not wait for peers to open.
 * Errors: those of remo_region_open. */
REMO_API int remo_heap_open(struct remo_channel *parent, const char *name,
                            const struct remo_heap_options *options, struct remo_heap **ret_heap);
/* Close the heap and free all blocks of this node. Before this call remove all references to the
 * blocks, and unpin all threads of this node. Waits for op_timeout_ns at most until no peer is
 * pinned. If a peer is still pinned then, the blocks stay allocated until the node closes. NULL has
 * no effect. */
REMO_API void remo_heap_close(struct remo_heap *heap);
REMO_API struct remo_channel *remo_heap_channel(struct remo_heap *heap);

/* Allocate `size_bytes` (1 or more) of this node's network memory. The content is undefined.
 * `alignment` is a power of two of at most REMO_HEAP_ALIGNMENT_MAX, or 0: 16 bytes. Peers can use
 * the address immediately. Does not block, except to commit memory.
 * Errors:
 *   -EINVAL  the size is 0, or the alignment is wrong
 *   -ENOSPC  the arena or limit_bytes is exhausted: free blocks, or reclaim retired ones
 *   -ENOMEM  no memory
 *   -EAGAIN  too many threads use the node
 *   -EPROTO  a peer opened another object under this name */
REMO_API int remo_heap_alloc(struct remo_heap *heap, uint64_t size_bytes, uint64_t alignment,
                             struct remo_addr *ret_addr);
/* Return the CPU address of a byte of this node's blocks, or NULL if `addr` is no address of this
 * heap on this node. Peers may modify the memory concurrently (region.h). Does not block. */
REMO_API void *remo_heap_local(const struct remo_heap *heap, struct remo_addr addr);
/* Free a block of this node immediately. Call this only if no peer uses the address from now on, and
 * all writes of peers to the block are placed. Does not block. An error changes nothing. If the
 * address was allocated again after an earlier free, a repeated free frees the new block.
 * Errors:
 *   -EINVAL   the block belongs to another node, or `addr` is not the first byte of a block
 *   -ESTALE   the address belongs to an earlier incarnation of this node
 *   -EFAULT   the address is not in this heap, or no longer: its slab was empty
 *   -EALREADY the block is free or retired */
REMO_API int remo_heap_free(struct remo_heap *heap, struct remo_addr addr);
/* Free a block of this node after a grace period: when all threads that are pinned now have
 * unpinned. Before this call remove the last reference to the block from network memory, and fence:
 * later pins must not find the address. Every REMO_HEAP_BATCH calls, one call includes
 * remo_heap_reclaim without a timeout, and blocks for op_timeout_ns at most.
 * Errors: those of remo_heap_free. */
REMO_API int remo_heap_retire(struct remo_heap *heap, struct remo_addr addr);
/* Wait until all blocks that this node retired before this call are free. Repeats attempts for
 * up to `timeout_ns` (0: one attempt). An attempt reads the pins of all participants at once, and
 * blocks for op_timeout_ns at most, however many of them do not answer.
 * Errors:
 *   -ETIMEDOUT  a participant is pinned, has not opened the heap, or does not answer: the sentence
 *               names it; or another thread of this node reclaims */
REMO_API int remo_heap_reclaim(struct remo_heap *heap, uint64_t timeout_ns);

/* Pin the heap: blocks whose addresses this thread loads from now on are not reused until the thread
 * unpins. Pins nest. Does not block.
 * Errors: -EAGAIN, -ENOMEM, -ENOSPC, -EPROTO as in remo_heap_alloc. */
REMO_API int remo_heap_pin(struct remo_heap *heap);
/* Unpin the heap, after the writes of this thread are placed (a THREAD fence). Addresses loaded
 * under the pin must not be used again, and operations with an ack must be complete. Blocks for
 * op_timeout_ns at most.
 * Errors:
 *   -EINVAL     this thread has not pinned the heap
 *   -ETIMEDOUT  a write is still in flight: the thread stays pinned
 *   others      those of remo_fence for a lost write: the thread is unpinned */
REMO_API int remo_heap_unpin(struct remo_heap *heap);

/* Bytes of this node's blocks, with their padding. `reserved`: taken from the arena; `live`:
 * allocated and not retired; `retired`: not free yet. */
struct remo_heap_sizes {
    uint64_t reserved_bytes, live_bytes, retired_bytes;
};
/* Return the sizes. Cost: visits all slabs, while no thread can take a new one. */
REMO_API void remo_heap_stats(struct remo_heap *heap, struct remo_heap_sizes *ret_sizes);

REMO_END
