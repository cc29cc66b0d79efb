/* page.c - chunks and runs of pages of a heap (heap.h).
 *
 * Chunks are in bins by the logarithm of their longest free run, so a search examines at most one chunk that
 * does not fit. Invariant: the table has chunks for exactly the memory that the heap has taken from the
 * arena. All functions but remo__heap_slab_at and remo__heap_pages_close run under `lock`. */
#include <stdlib.h>

#include "objects/heap/heap.h"

#define NO_BIN HEAP_RUN_BINS

static uint32_t log2_of(uint64_t value) {
    return 63 - (uint32_t)__builtin_clzll(value);
}

static void bin_remove(struct remo_heap *heap, struct heap_chunk *chunk) {
    if (chunk->bin == NO_BIN)
        return;
    *(chunk->prev ? &chunk->prev->next : &heap->bins[chunk->bin]) = chunk->next;
    if (chunk->next)
        chunk->next->prev = chunk->prev;
    chunk->bin = NO_BIN;
}

static void bin_insert(struct remo_heap *heap, struct heap_chunk *chunk, uint32_t bin) {
    chunk->bin = bin;
    chunk->prev = NULL;
    chunk->next = heap->bins[bin];
    if (chunk->next)
        chunk->next->prev = chunk;
    heap->bins[bin] = chunk;
}

static struct heap_slab *slab_of_page(const struct heap_chunk *chunk, uint64_t page) {
    return atomic_load_explicit(&chunk->slabs[page], memory_order_acquire);
}

/* Return the length of the longest free run, and the first page of the first run of `pages`, or
 * HEAP_CHUNK_PAGES. */
static uint32_t longest_run(const struct heap_chunk *chunk, uint64_t pages, uint32_t *ret_first) {
    uint32_t longest = 0, run = 0;
    *ret_first = HEAP_CHUNK_PAGES;
    for (uint32_t page = 0; page < HEAP_CHUNK_PAGES; page++) {
        run = slab_of_page(chunk, page) ? 0 : run + 1;
        if (run == pages && *ret_first == HEAP_CHUNK_PAGES)
            *ret_first = page + 1 - run;
        longest = run > longest ? run : longest;
    }
    return longest;
}

static void set_table(struct remo_heap *heap, const struct heap_chunk *chunk, struct heap_chunk *value) {
    for (uint64_t at = 0; at < chunk->bytes; at += HEAP_CHUNK_BYTES)
        atomic_store_explicit(&heap->chunks[(chunk->start + at) / HEAP_CHUNK_BYTES], value,
                              memory_order_release);
}

static struct heap_chunk *new_chunk(struct remo_heap *heap) {
    struct heap_chunk *chunk = heap->unused_chunks;
    if (chunk) {
        heap->unused_chunks = chunk->next;
        return chunk;
    }
    chunk = calloc(1, sizeof *chunk);
    if (!chunk) {
        remo__fail(-ENOMEM, "no memory to describe a chunk of heap %s",
                   remo_channel_name(heap->region->channel));
        return NULL;
    }
    chunk->next_of_all = heap->all_chunks;
    heap->all_chunks = chunk;
    return chunk;
}

static void recycle_chunk(struct remo_heap *heap, struct heap_chunk *chunk) {
    chunk->bytes = 0;
    chunk->next = heap->unused_chunks;
    heap->unused_chunks = chunk;
}

/* Take a piece of the arena as a chunk. */
static int grow(struct remo_heap *heap, uint64_t bytes, struct heap_chunk **ret_chunk) {
    const char *name = remo_channel_name(heap->region->channel);
    if (bytes > heap->limit_bytes || heap->reserved_bytes > heap->limit_bytes - bytes)
        return remo__fail(
            -ENOSPC,
            "cannot extend heap %s by %llu bytes: it has %llu of its limit of %llu bytes; raise "
            "limit_bytes in struct remo_heap_options",
            name, (unsigned long long)bytes, (unsigned long long)heap->reserved_bytes,
            (unsigned long long)heap->limit_bytes);
    struct heap_chunk *chunk = new_chunk(heap);
    if (!chunk)
        return -ENOMEM;
    int rc = remo__arena_alloc_aligned(heap->node->arena, bytes, HEAP_CHUNK_BYTES, &chunk->start);
    if (rc != 0) {
        recycle_chunk(heap, chunk);
        return remo__fail_more(rc, "extending heap %s", name);
    }
    chunk->bytes = bytes;
    chunk->free_pages = HEAP_CHUNK_PAGES;
    chunk->bin = NO_BIN;
    set_table(heap, chunk, chunk);
    heap->reserved_bytes += bytes;
    *ret_chunk = chunk;
    return 0;
}

static void return_chunk(struct remo_heap *heap, struct heap_chunk *chunk) {
    set_table(heap, chunk, NULL);
    remo__arena_free(heap->node->arena, chunk->start, chunk->bytes);
    heap->reserved_bytes -= chunk->bytes;
    recycle_chunk(heap, chunk);
}

/* Put the chunk into the bin of its longest free run. One chunk without slabs is kept; a second one is
 * returned to the arena. */
static void rebin(struct remo_heap *heap, struct heap_chunk *chunk) {
    uint32_t first, top = log2_of(HEAP_CHUNK_PAGES), longest = longest_run(chunk, 0, &first);
    bin_remove(heap, chunk);
    if (longest == HEAP_CHUNK_PAGES && heap->bins[top])
        return_chunk(heap, chunk);
    else if (longest > 0)
        bin_insert(heap, chunk, log2_of(longest));
}

/* Return a chunk with a free run of `pages`, and the first page of the run, or NULL. In a bin above that of
 * `pages`, the longest run of each chunk fits. */
static struct heap_chunk *find_run(struct remo_heap *heap, uint64_t pages, uint32_t *ret_first) {
    for (uint32_t bin = log2_of(pages); bin < HEAP_RUN_BINS; bin++) {
        struct heap_chunk *chunk = heap->bins[bin];
        if (chunk && longest_run(chunk, pages, ret_first) >= pages)
            return chunk;
    }
    return NULL;
}

static void enter(struct heap_chunk *chunk, uint64_t first, uint64_t pages, struct heap_slab *slab) {
    for (uint64_t page = first; page < first + pages; page++)
        atomic_store_explicit(&chunk->slabs[page], slab, memory_order_release);
}

int remo__heap_pages_take(struct remo_heap *heap, struct heap_slab *slab, uint64_t pages) {
    uint32_t first = 0;
    bool is_huge = pages > HEAP_CHUNK_PAGES;
    struct heap_chunk *chunk = is_huge ? NULL : find_run(heap, pages, &first);
    int rc = 0;
    if (!chunk)
        rc = grow(heap, is_huge ? pages * HEAP_PAGE_BYTES : HEAP_CHUNK_BYTES, &chunk);
    if (rc != 0)
        return rc;
    first = chunk->free_pages == HEAP_CHUNK_PAGES ? 0 : first;
    slab->start = chunk->start + (uint64_t)first * HEAP_PAGE_BYTES;
    slab->bytes = pages * HEAP_PAGE_BYTES;
    uint32_t taken = (uint32_t)remo__min(pages, HEAP_CHUNK_PAGES);
    enter(chunk, first, taken, slab);
    chunk->free_pages -= taken;
    if (!is_huge)
        rebin(heap, chunk);
    return 0;
}

void remo__heap_pages_give(struct remo_heap *heap, const struct heap_slab *slab) {
    struct heap_chunk *chunk = atomic_load(&heap->chunks[slab->start / HEAP_CHUNK_BYTES]);
    uint32_t pages = (uint32_t)remo__min(slab->bytes / HEAP_PAGE_BYTES, HEAP_CHUNK_PAGES);
    enter(chunk, (slab->start - chunk->start) / HEAP_PAGE_BYTES, pages, NULL);
    chunk->free_pages += pages;
    if (chunk->bytes > HEAP_CHUNK_BYTES)
        return_chunk(heap, chunk);
    else
        rebin(heap, chunk);
}

struct heap_slab *remo__heap_slab_at(const struct remo_heap *heap, uint64_t offset) {
    if (offset / HEAP_CHUNK_BYTES >= heap->chunk_count)
        return NULL;
    const struct heap_chunk *chunk =
        atomic_load_explicit(&heap->chunks[offset / HEAP_CHUNK_BYTES], memory_order_acquire);
    if (remo__unlikely(!chunk))
        return NULL;
    if (remo__unlikely(chunk->bytes > HEAP_CHUNK_BYTES)) {
        struct heap_slab *slab = slab_of_page(chunk, 0);
        return slab && offset - slab->start < slab->bytes ? slab
                                                          : NULL; /* the end of the chunk may be unused */
    }
    return slab_of_page(chunk, offset % HEAP_CHUNK_BYTES / HEAP_PAGE_BYTES);
}

void remo__heap_pages_close(struct remo_heap *heap, bool to_arena) {
    while (heap->all_chunks) {
        struct heap_chunk *chunk = heap->all_chunks;
        heap->all_chunks = chunk->next_of_all;
        if (chunk->bytes > 0 && to_arena)
            remo__arena_free(heap->node->arena, chunk->start, chunk->bytes);
        free(chunk);
    }
    free(heap->chunks);
}
