/* slab.c - size classes, slabs and blocks of a heap (heap.h).
 *
 * Invariant: only the thread that owns a slab allocates its blocks, and one compare-swap from LIVE ends a
 * block; so a free block cannot be freed again. heap.h describes the states of blocks and slabs. */
#include <stdlib.h>

#include "objects/heap/heap.h"

#define SMALL_SLAB_PAGES 16u
#define SMALL_BLOCK_BYTES (2u * HEAP_PAGE_BYTES) /* above: slabs of LARGE_SLAB_PAGES */
#define LARGE_SLAB_PAGES 64u
#define PARTIAL_PART 8u /* a FULL slab becomes PARTIAL when 1/PARTIAL_PART of its blocks is free */

/* ---- size classes ---- */

static uint32_t class_of(uint64_t bytes) {
    if (bytes <= 128)
        return (uint32_t)((bytes - 1) / HEAP_GRAIN_BYTES);
    uint32_t top = 63 - (uint32_t)__builtin_clzll(bytes - 1); /* of 2^top <= bytes - 1 < 2^(top+1) */
    return 8 + (top - 7) * 8 + ((uint32_t)((bytes - 1) >> (top - 3)) - 8);
}

static uint64_t class_bytes(uint32_t class) {
    if (class < 8)
        return (uint64_t)(class + 1) * HEAP_GRAIN_BYTES;
    return (uint64_t)(9 + (class - 8) % 8) << ((class - 8) / 8 + 4);
}

/* Return the smallest class whose blocks all have the alignment; slabs begin on a page. The search takes 8
 * steps at most, because each doubling ends with a power of two. */
static uint32_t class_for(uint64_t bytes, uint64_t alignment) {
    if (bytes > HEAP_CLASS_BYTES_MAX)
        return HEAP_NO_CLASS;
    uint32_t class = class_of(remo__max(bytes, alignment));
    while (class < HEAP_CLASSES && class_bytes(class) % alignment != 0)
        class ++;
    return class;
}

/* ---- lists of slabs; `lock` is held ---- */

static struct heap_slab **list_of(struct remo_heap *heap, const struct heap_slab *slab) {
    return (atomic_load(&slab->state) == HEAP_SLAB_FULL ? heap->full : heap->partial) + slab->class;
}

static void unlist(struct remo_heap *heap, struct heap_slab *slab) {
    *(slab->prev ? &slab->prev->next : list_of(heap, slab)) = slab->next;
    if (slab->next)
        slab->next->prev = slab->prev;
}

static void enlist(struct remo_heap *heap, struct heap_slab *slab, enum heap_slab_state state) {
    atomic_store(&slab->state, state);
    struct heap_slab **list = list_of(heap, slab);
    slab->prev = NULL;
    slab->next = *list;
    if (slab->next)
        slab->next->prev = slab;
    *list = slab;
}

/* ---- slabs ---- */

static uint32_t capacity_log2(uint32_t words) {
    return words <= 1 ? 0 : 32 - (uint32_t)__builtin_clz(words - 1);
}

static struct heap_slab *new_slab(struct remo_heap *heap, uint32_t words) {
    uint32_t size = capacity_log2(words), capacity = 1u << size;
    struct heap_slab *slab = heap->unused_slabs[size];
    if (slab) {
        heap->unused_slabs[size] = slab->next;
        return slab;
    }
    slab = calloc(1, sizeof *slab + capacity * (sizeof slab->words[0] + sizeof slab->waiting[0]));
    if (!slab) {
        remo__fail(-ENOMEM, "no memory to describe a slab of heap %s",
                   remo_channel_name(heap->region->channel));
        return NULL;
    }
    slab->capacity = capacity;
    slab->waiting = (uint32_t *)(void *)&slab->words[capacity];
    return slab;
}

static void recycle(struct remo_heap *heap, struct heap_slab *slab) {
    struct heap_slab **list = &heap->unused_slabs[capacity_log2(slab->capacity)];
    atomic_store(&slab->state, HEAP_SLAB_UNUSED);
    slab->next = *list;
    *list = slab;
}

/* Make a slab of free blocks; its state is not set. `lock` is held. */
static int make_slab(struct remo_heap *heap, uint32_t class, uint64_t block_bytes, uint64_t pages,
                     struct heap_slab **ret_slab) {
    uint64_t grains = block_bytes / HEAP_GRAIN_BYTES;
    uint32_t count = class == HEAP_NO_CLASS ? 1 : (uint32_t)(pages * HEAP_PAGE_BYTES / block_bytes);
    uint32_t words = (count + HEAP_BITS - 1) / HEAP_BITS;
    struct heap_slab *slab = new_slab(heap, words);
    if (!slab)
        return -ENOMEM;
    slab->class = class;
    slab->block_bytes = block_bytes;
    slab->reciprocal = ((1ull << 32) + grains - 1) / grains;
    slab->block_count = count;
    slab->word_count = words;
    slab->cursor = 0;
    int rc = remo__heap_pages_take(heap, slab, pages); /* enters it into the table, so it comes last */
    if (rc != 0) {
        recycle(heap, slab);
        return rc;
    }
    *ret_slab = slab;
    return 0;
}

/* Return a mask of the blocks of a word: the last word may have less than HEAP_BITS. */
static uint32_t blocks_in(const struct heap_slab *slab, uint32_t word) {
    uint32_t rest = slab->block_count - word * HEAP_BITS;
    return rest >= HEAP_BITS ? UINT32_MAX : (1u << rest) - 1;
}

static uint32_t count_free(struct heap_slab *slab) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < slab->word_count; i++)
        count += (uint32_t)__builtin_popcount(~(uint32_t)atomic_load(&slab->words[i]) & blocks_in(slab, i));
    return count;
}

static bool is_empty(struct heap_slab *slab) {
    for (uint32_t i = 0; i < slab->word_count; i++)
        if (atomic_load(&slab->words[i]) != 0)
            return false;
    return true;
}

static uint32_t partial_from(const struct heap_slab *slab) {
    return (uint32_t)remo__max(slab->block_count / PARTIAL_PART, 1);
}

/* Move a slab that no thread owns to the state that its free blocks require. `lock` is held. */
static void relist(struct remo_heap *heap, struct heap_slab *slab) {
    if (atomic_load(&slab->state) == HEAP_SLAB_FULL && atomic_load(&slab->freed) >= partial_from(slab)) {
        unlist(heap, slab);
        enlist(heap, slab, HEAP_SLAB_PARTIAL);
    }
    if (atomic_load(&slab->state) == HEAP_SLAB_PARTIAL && is_empty(slab)) {
        unlist(heap, slab);
        remo__heap_pages_give(heap, slab);
        recycle(heap, slab);
    }
}

/* End the ownership of a slab. A free after the state is FULL counts itself; count_free finds all earlier
 * ones. `lock` is held. */
static void disown(struct remo_heap *heap, struct heap_slab *slab) {
    atomic_store(&slab->freed, 0);
    enlist(heap, slab, HEAP_SLAB_FULL);
    atomic_fetch_add(&slab->freed, count_free(slab));
    relist(heap, slab);
}

/* Find or make a slab with free blocks, which is in no list. `lock` is held. */
static int find_slab(struct remo_heap *heap, uint32_t class, struct heap_slab **ret_slab) {
    uint64_t bytes = class_bytes(class);
    struct heap_slab *slab = heap->partial[class];
    if (!slab) {
        int rc = make_slab(heap, class, bytes,
                           bytes <= SMALL_BLOCK_BYTES ? SMALL_SLAB_PAGES : LARGE_SLAB_PAGES, ret_slab);
        if (rc == 0)
            return 0;
        for (slab = heap->full[class]; slab && count_free(slab) == 0;)
            slab = slab->next;
        if (!slab)
            return rc;
    }
    unlist(heap, slab);
    *ret_slab = slab;
    return 0;
}

/* End the ownership of all slabs of a thread. `lock` is held. */
static void disown_all(struct remo_heap *heap, struct heap_thread *state) {
    for (uint32_t class = 0; class < HEAP_CLASSES; class ++)
        if (state->slabs[class]) {
            disown(heap, state->slabs[class]);
            state->slabs[class] = NULL;
        }
}

void remo__heap_slabs_disown(struct remo_heap *heap, struct heap_thread *state) {
    pthread_mutex_lock(&heap->lock);
    disown_all(heap, state);
    pthread_mutex_unlock(&heap->lock);
}

/* Exchange the thread's slab of a class, or NULL, for one with free blocks. */
static int exchange_slab(struct remo_heap *heap, struct heap_thread *state, uint32_t class) {
    struct heap_slab *slab;
    pthread_mutex_lock(&heap->lock);
    if (state->slabs[class])
        disown(heap, state->slabs[class]);
    state->slabs[class] = NULL;
    int rc = find_slab(heap, class, &slab);
    if (remo__unlikely(rc == -ENOSPC)) {
        disown_all(heap, state);
        rc = find_slab(heap, class, &slab);
    }
    if (rc == 0) {
        slab->cursor = 0;
        atomic_store(&slab->state, HEAP_SLAB_OWNED);
        state->slabs[class] = slab;
    }
    pthread_mutex_unlock(&heap->lock);
    return rc;
}

/* ---- allocation ---- */

/* Take a free block of a slab of this thread. Return false if all words were visited once. Only this thread
 * sets allocated bits, so a free block stays free. */
static bool take_from(struct heap_slab *slab, uint32_t *ret_index) {
    for (; slab->cursor < slab->word_count; slab->cursor++) {
        uint32_t i = slab->cursor;
        uint64_t word = atomic_load_explicit(&slab->words[i], memory_order_relaxed);
        uint32_t unused = ~(uint32_t)word & blocks_in(slab, i);
        if (unused == 0)
            continue;
        uint32_t bit = (uint32_t)__builtin_ctz(unused);
        atomic_fetch_or(&slab->words[i], 1ull << bit); /* acquires the free of the block */
        *ret_index = i * HEAP_BITS + bit;
        return true;
    }
    return false;
}

static int take_large(struct remo_heap *heap, struct heap_thread *state, uint64_t bytes,
                      struct heap_block *ret_block) {
    struct heap_slab *slab;
    if (bytes > heap->chunk_count * HEAP_CHUNK_BYTES)
        return remo__fail(-ENOSPC, "cannot allocate %llu bytes: the arena has %llu bytes",
                          (unsigned long long)bytes,
                          (unsigned long long)remo__arena_reserved(heap->node->arena));
    bytes = remo__align_up(bytes, HEAP_PAGE_BYTES);
    pthread_mutex_lock(&heap->lock);
    int rc = make_slab(heap, HEAP_NO_CLASS, bytes, bytes / HEAP_PAGE_BYTES, &slab);
    if (remo__unlikely(rc == -ENOSPC)) {
        disown_all(heap, state);
        rc = make_slab(heap, HEAP_NO_CLASS, bytes, bytes / HEAP_PAGE_BYTES, &slab);
    }
    if (rc == 0) {
        atomic_store(&slab->freed, 0);
        atomic_store(&slab->words[0], 1);
        enlist(heap, slab, HEAP_SLAB_FULL);
    }
    pthread_mutex_unlock(&heap->lock);
    if (rc == 0)
        *ret_block = (struct heap_block){.slab = slab};
    return rc;
}

int remo__heap_block_take(struct remo_heap *heap, uint64_t size_bytes, uint64_t alignment,
                          struct heap_block *ret_block) {
    struct remo__thread *thread;
    struct heap_thread *state;
    uint32_t class = class_for(size_bytes, alignment);
    int rc = remo__heap_thread(heap, &thread, &state);
    if (remo__unlikely(rc != 0))
        return rc;
    if (remo__unlikely(class == HEAP_NO_CLASS))
        return take_large(heap, state, size_bytes, ret_block);
    while (remo__unlikely(!state->slabs[class] || !take_from(state->slabs[class], &ret_block->index)))
        if ((rc = exchange_slab(heap, state, class)) != 0)
            return rc;
    ret_block->slab = state->slabs[class];
    return 0;
}

/* ---- the end of blocks ---- */

/* Return the index of the block at a distance from the start of its slab. The product is exact: a slab of
 * several blocks has less than 2^15 grains, and a block at most 2^11. */
static uint32_t index_at(const struct heap_slab *slab, uint64_t distance) {
    return slab->block_count == 1 ? 0 : (uint32_t)(distance / HEAP_GRAIN_BYTES * slab->reciprocal >> 32);
}

int remo__heap_block_find(const struct remo_heap *heap, uint64_t offset, struct heap_block *ret_block) {
    struct heap_slab *slab = remo__heap_slab_at(heap, offset);
    if (remo__unlikely(!slab))
        return remo__fail(-EFAULT,
                          "no block of heap %s is at offset %llu: the block was freed before, or the address "
                          "is that of another object",
                          remo_channel_name(heap->region->channel), (unsigned long long)offset);
    uint32_t index = index_at(slab, offset - slab->start);
    if (remo__unlikely(offset - slab->start != index * slab->block_bytes || index >= slab->block_count
                       || index / HEAP_BITS >= slab->capacity))
        return remo__fail(-EINVAL,
                          "no block of heap %s begins at offset %llu: blocks of %llu bytes begin at offset "
                          "%llu; pass the address that remo_heap_alloc returned",
                          remo_channel_name(heap->region->channel), (unsigned long long)offset,
                          (unsigned long long)slab->block_bytes, (unsigned long long)slab->start);
    *ret_block = (struct heap_block){.slab = slab, .index = index};
    return 0;
}

/* Update the state of a slab after `count` blocks became free. `word` is the new value of their word. */
static void after_free(struct remo_heap *heap, struct heap_slab *slab, uint32_t count, uint64_t word) {
    uint32_t state = atomic_load(&slab->state);
    if (remo__likely(state == HEAP_SLAB_OWNED))
        return;
    bool is_full = state == HEAP_SLAB_FULL;
    if (is_full && atomic_fetch_add(&slab->freed, count) + count < partial_from(slab))
        return;
    if (!is_full && (word != 0 || !is_empty(slab)))
        return;
    pthread_mutex_lock(&heap->lock);
    relist(heap, slab);
    pthread_mutex_unlock(&heap->lock);
}

int remo__heap_block_end(struct remo_heap *heap, struct heap_block block, bool retire) {
    _Atomic uint64_t *at = &block.slab->words[block.index / HEAP_BITS];
    uint64_t live = 1ull << block.index % HEAP_BITS, retired = live << HEAP_BITS, next;
    uint64_t word = atomic_load_explicit(at, memory_order_relaxed);
    do {
        if (remo__unlikely((word & (live | retired)) != live))
            return remo__fail(-EALREADY, "the block of %llu bytes of heap %s is %s already",
                              (unsigned long long)block.slab->block_bytes,
                              remo_channel_name(heap->region->channel), word & live ? "retired" : "free");
        next = retire ? word | retired : word & ~live;
    } while (!atomic_compare_exchange_weak(at, &word, next));
    if (!retire)
        after_free(heap, block.slab, 1, next);
    return 0;
}

void remo__heap_blocks_release(struct remo_heap *heap, struct heap_slab *slab, uint32_t word, uint32_t mask) {
    uint64_t both = mask | (uint64_t)mask << HEAP_BITS;
    uint64_t before = atomic_fetch_and(&slab->words[word], ~both);
    after_free(heap, slab, (uint32_t)__builtin_popcount(mask), before & ~both);
}

void remo__heap_slabs_close(struct remo_heap *heap) {
    for (struct heap_chunk *chunk = heap->all_chunks; chunk; chunk = chunk->next_of_all)
        for (uint32_t page = 0; chunk->bytes > 0 && page < HEAP_CHUNK_PAGES; page++) {
            struct heap_slab *slab = atomic_load(&chunk->slabs[page]);
            uint64_t pages = slab ? slab->bytes / HEAP_PAGE_BYTES : 1;
            free(slab);
            page += (uint32_t)remo__min(pages, HEAP_CHUNK_PAGES) - 1;
        }
    for (uint32_t i = 0; i < HEAP_CAPACITIES; i++)
        while (heap->unused_slabs[i]) {
            struct heap_slab *slab = heap->unused_slabs[i];
            heap->unused_slabs[i] = slab->next;
            free(slab);
        }
}
