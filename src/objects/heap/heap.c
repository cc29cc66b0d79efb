/* heap.c - implements remo/heap.h: open, close, and the checks of arguments.
 *
 * Blocks are in heap/slab.c, their memory is in heap/page.c, and the reuse of retired blocks is in
 * heap/grace.c. heap.h describes the states of blocks and slabs. */
#include "objects/heap/heap.h"

#include <stddef.h>
#include <stdlib.h>

/* ---- open and close ---- */

/* An observer of struct remo_heap: release the slabs and the pin of a thread that ends. */
static void thread_ended(struct remo__thread_observer *observer, struct remo__thread *thread) {
    struct remo_heap *heap =
        (struct remo_heap *)(void *)((char *)observer - offsetof(struct remo_heap, observer));
    struct heap_thread *state = heap->threads[thread->index];
    if (!state)
        return;
    remo__heap_slabs_disown(heap, state);
    remo__heap_grace_unpin(heap, thread, state);
}

static int open_parts(struct remo_heap *heap, struct remo_channel *parent, const char *name,
                      const struct remo_channel_options *channel) {
    int rc = remo__region_open(parent, name, "heap", "pins", (uint64_t)REMO__THREADS_MAX * HEAP_PIN_BYTES,
                               channel, NULL, &heap->region);
    if (rc != 0)
        return rc;
    heap->node = heap->region->node;
    heap->rank = heap->node->rank;
    heap->chunk_count = (remo__arena_reserved(heap->node->arena) + HEAP_CHUNK_BYTES - 1) / HEAP_CHUNK_BYTES;
    heap->chunks = calloc(heap->chunk_count, sizeof heap->chunks[0]);
    if (!heap->chunks)
        return remo__fail(-ENOMEM, "no memory for the table of a heap");
    for (uint32_t node = 0; node < heap->node->size; node++)
        if (remo_node_peer(heap->node, node) > REMO_PEER_UP)
            remo_nodeset_add(&heap->absent, node);
    rc = remo__heap_grace_open(heap);
    if (rc != 0)
        return rc;
    heap->observer.ended = thread_ended;
    remo__thread_observe(heap->node, &heap->observer);
    return remo_channel_join(heap->region->channel);
}

int remo_heap_open(struct remo_channel *parent, const char *name, const struct remo_heap_options *options,
                   struct remo_heap **ret_heap) {
    REMO__REQUIRE(ret_heap);
    struct remo_channel_options channel = {0};
    int rc =
        remo__select_participants(parent, options ? &options->participants : NULL, &channel.participants);
    if (rc != 0)
        return rc;
    struct remo_heap *heap = calloc(1, sizeof *heap);
    if (!heap)
        return remo__fail(-ENOMEM, "no memory for a heap");
    heap->limit_bytes = options && options->limit_bytes ? options->limit_bytes : UINT64_MAX;
    pthread_mutex_init(&heap->lock, NULL);
    rc = open_parts(heap, parent, name, &channel);
    if (rc != 0) {
        remo_heap_close(heap);
        return rc;
    }
    *ret_heap = heap;
    return 0;
}

void remo_heap_close(struct remo_heap *heap) {
    if (!heap)
        return;
    if (heap->node)
        remo__thread_unobserve(heap->node, &heap->observer);
    bool is_unused = heap->reserved_bytes == 0 || remo__heap_grace_last(heap);
    if (!is_unused)
        remo__log(&heap->node->log, REMO_LOG_WARNING,
                  "closing heap %s: %llu bytes stay allocated until the node closes: %s",
                  remo_channel_name(heap->region->channel), (unsigned long long)heap->reserved_bytes,
                  remo_last_error());
    remo__heap_slabs_close(heap);
    remo__heap_pages_close(heap, is_unused);
    remo__heap_grace_close(heap);
    for (uint32_t i = 0; i < REMO__THREADS_MAX; i++)
        free(heap->threads[i]);
    remo_region_close(heap->region);
    pthread_mutex_destroy(&heap->lock);
    free(heap);
}

struct remo_channel *remo_heap_channel(struct remo_heap *heap) {
    return heap ? remo_region_channel(heap->region) : NULL;
}

/* ---- blocks ---- */

static uint32_t own_incarnation(const struct remo_heap *heap) {
    return atomic_load_explicit(&heap->node->peers[heap->rank].incarnation, memory_order_relaxed)
           & ((1u << REMO_ADDR_INCARNATION_BITS) - 1);
}

int remo_heap_alloc(struct remo_heap *heap, uint64_t size_bytes, uint64_t alignment,
                    struct remo_addr *ret_addr) {
    REMO__REQUIRE(heap);
    REMO__REQUIRE(ret_addr);
    alignment = alignment ? alignment : HEAP_GRAIN_BYTES;
    if (remo__unlikely(size_bytes == 0))
        return remo__fail(-EINVAL, "cannot allocate 0 bytes: pass the size of the block");
    if (remo__unlikely(!remo__is_power_of_two(alignment) || alignment > HEAP_PAGE_BYTES))
        return remo__fail(
            -EINVAL, "cannot allocate with an alignment of %llu: it must be a power of two of at most %u",
            (unsigned long long)alignment, HEAP_PAGE_BYTES);
    int rc = remo__channel_check_match(heap->region->channel);
    struct heap_block block;
    if (rc == 0)
        rc = remo__heap_block_take(heap, size_bytes, alignment, &block);
    if (remo__unlikely(rc != 0))
        return rc;
    *ret_addr = remo_addr_make(heap->rank, own_incarnation(heap),
                               block.slab->start + block.index * block.slab->block_bytes);
    return 0;
}

/* Return the error of an address that is not one of this incarnation of the node. */
static int check_own(const struct remo_heap *heap, struct remo_addr addr) {
    const char *name = remo_channel_name(heap->region->channel);
    if (addr.word == 0)
        return remo__fail(-EFAULT, "cannot free a block of heap %s: the address is null", name);
    if (remo_addr_node(addr) != heap->rank)
        return remo__fail(-EINVAL,
                          "node %u cannot free a block of node %u in heap %s: free it at its own node",
                          heap->rank, remo_addr_node(addr), name);
    return remo__fail(-ESTALE,
                      "cannot free a block of heap %s: its address is stale: it has incarnation %u of node "
                      "%u, whose incarnation is now %u",
                      name, remo_addr_incarnation(addr), heap->rank, own_incarnation(heap));
}

static bool is_own(const struct remo_heap *heap, struct remo_addr addr) {
    return addr.word - remo_addr_offset(addr) == remo_addr_make(heap->rank, own_incarnation(heap), 0).word
           && addr.word != 0;
}

static int end_block(struct remo_heap *heap, struct remo_addr addr, bool retire,
                     struct heap_block *ret_block) {
    if (remo__unlikely(!is_own(heap, addr)))
        return check_own(heap, addr);
    int rc = remo__heap_block_find(heap, remo_addr_offset(addr), ret_block);
    return rc == 0 ? remo__heap_block_end(heap, *ret_block, retire) : rc;
}

int remo_heap_free(struct remo_heap *heap, struct remo_addr addr) {
    REMO__REQUIRE(heap);
    struct heap_block block;
    return end_block(heap, addr, false, &block);
}

int remo_heap_retire(struct remo_heap *heap, struct remo_addr addr) {
    REMO__REQUIRE(heap);
    struct heap_block block;
    int rc = end_block(heap, addr, true, &block);
    if (rc != 0)
        return rc;
    remo__heap_grace_note(heap, block.slab);
    if (atomic_fetch_add(&heap->retired_count, 1) % REMO_HEAP_BATCH == REMO_HEAP_BATCH - 1)
        (void)remo_heap_reclaim(heap, 0); /* after a failed attempt the blocks wait for the next one */
    return 0;
}

void *remo_heap_local(const struct remo_heap *heap, struct remo_addr addr) {
    if (!heap || !is_own(heap, addr) || !remo__heap_slab_at(heap, remo_addr_offset(addr)))
        return NULL;
    return remo__arena_base(heap->node->arena) + remo_addr_offset(addr);
}

/* ---- statistics ---- */

static void add_slab(struct heap_slab *slab, struct remo_heap_sizes *sizes) {
    for (uint32_t i = 0; i < slab->word_count; i++) {
        uint64_t word = atomic_load(&slab->words[i]);
        uint32_t retired = (uint32_t)(word >> HEAP_BITS), live = (uint32_t)word & ~retired;
        sizes->live_bytes += (uint64_t)__builtin_popcount(live) * slab->block_bytes;
        sizes->retired_bytes += (uint64_t)__builtin_popcount(retired) * slab->block_bytes;
    }
}

void remo_heap_stats(struct remo_heap *heap, struct remo_heap_sizes *ret_sizes) {
    if (!heap || !ret_sizes)
        return;
    pthread_mutex_lock(&heap->lock);
    *ret_sizes = (struct remo_heap_sizes){.reserved_bytes = heap->reserved_bytes};
    for (struct heap_chunk *chunk = heap->all_chunks; chunk; chunk = chunk->next_of_all) {
        struct heap_slab *last = NULL;
        for (uint32_t page = 0; chunk->bytes > 0 && page < HEAP_CHUNK_PAGES; page++) {
            struct heap_slab *slab = atomic_load(&chunk->slabs[page]);
            if (slab && slab != last)
                add_slab(slab, ret_sizes);
            last = slab;
        }
    }
    pthread_mutex_unlock(&heap->lock);
}
