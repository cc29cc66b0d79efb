/* heap.c - the heap of heap.h: free lists by size class, in a range that sim_heap_save copies.
 * All allocator state that changes during a schedule lies inside the range (struct notes). */
#include "sim/memory/heap.h"

#include "sim/world/fault.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define CLASSES 256u                           /* of sizes */
/* A release does not free one; a node reserves two at its open. */
#define ARENAS_MAX (128u + 4u * SIM_NODES_MAX)
#define EXTRAS_MAX 64u
#define HEADER_BYTES 64u

struct block { /* in front of each piece; one cache line, so that pieces are aligned to 64 bytes */
    uint32_t size_class;
    uint32_t magic;
    struct block *next; /* while it is free */
};

#define MAGIC 0x5a5a1234u

struct arena {
    char *base;
    size_t bytes;
    size_t saved; /* bytes in use at the save */
};

/* At the start of the heap: saved and restored with it. */
struct notes {
    size_t used;
    uint64_t blocks, allocations;
    struct block *free[CLASSES];
};

static struct {
    char *base;
    struct arena arenas[ARENAS_MAX];
    uint32_t arenas_count;
    char *copy;
    size_t copy_bytes;
    size_t heap_saved;
    struct sim_extent extras[EXTRAS_MAX];
    uint32_t extras_count;
} heap;

static struct notes *notes(void) {
    return (struct notes *)heap.base;
}

/* Return the size class: multiples of 64 up to 512 bytes, then eight classes per doubling. Small
 * steps keep the restored memory small. */
static uint32_t class_of(size_t bytes) {
    if (bytes <= 512)
        return (uint32_t)((bytes + 63 + (bytes == 0)) / 64);
    uint32_t doubling = 63 - (uint32_t)__builtin_clzll(bytes - 1);
    return (doubling - 9) * 8 + (uint32_t)((bytes - 1) >> (doubling - 3)) + 1;
}

static size_t bytes_of(uint32_t size_class) {
    if (size_class <= 8)
        return (size_t)size_class * 64;
    return (size_t)((size_class - 9) % 8 + 9) << ((size_class - 9) / 8 + 6);
}

void sim_heap_open(void) {
    heap.base = mmap(NULL, SIM_HEAP_BYTES, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (heap.base == MAP_FAILED) {
        perror("the simulated heap");
        exit(1);
    }
    notes()->used = (sizeof(struct notes) + HEADER_BYTES - 1) / HEADER_BYTES * HEADER_BYTES;
    heap.arenas_count = 0;
    heap.copy = NULL;
}

void sim_heap_close(void) {
    munmap(heap.base, SIM_HEAP_BYTES);
    for (uint32_t i = 0; i < heap.arenas_count; i++)
        munmap(heap.arenas[i].base, heap.arenas[i].bytes);
    free(heap.copy);
    memset(&heap, 0, sizeof heap);
}

/* Return whether this allocation must fail, as the fault demands. */
static bool fails(const struct notes *n) {
#ifdef SIM_TIMED
    (void)n;
    return false;
#else
    return sim_world && sim_world->running && sim_current()
           && (sim_fault_hits(SIM_FAIL_ALLOCATION, n->allocations - sim_world->allocations_before,
                              sim_current()->node)
               || sim_fail_takes(SIM_FAIL_ALLOCATION, sim_current()->node));
#endif
}

void *sim_malloc(size_t bytes) {
    struct notes *n = notes();
    uint32_t size_class = class_of(bytes);
    n->allocations++;
    if (fails(n))
        return NULL;
    struct block *block = n->free[size_class];
    if (block) {
        n->free[size_class] = block->next;
    } else {
        size_t whole = HEADER_BYTES + bytes_of(size_class);
        if (n->used + whole > SIM_HEAP_BYTES)
            return NULL;
        block = (struct block *)(heap.base + n->used);
        n->used += whole;
    }
    *block = (struct block){.size_class = size_class, .magic = MAGIC};
    n->blocks++;
    return (char *)block + HEADER_BYTES;
}

void *sim_calloc(size_t count, size_t bytes) {
    size_t before = notes()->used;
    void *at = sim_malloc(count * bytes);
#ifdef SIM_TIMED /* no restore happens, so fresh memory is still zero */
    if (notes()->used > before)
        return at;
#endif
    (void)before;
    return at ? memset(at, 0, count * bytes) : NULL;
}

void sim_free(void *at) {
    if (!at)
        return;
    struct block *block = (struct block *)((char *)at - HEADER_BYTES);
    assert(block->magic == MAGIC);
    block->magic = 0;
    block->next = notes()->free[block->size_class];
    notes()->free[block->size_class] = block;
    notes()->blocks--;
}

void *sim_realloc(void *at, size_t bytes) {
    if (!at)
        return sim_malloc(bytes);
    const struct block *block = (const struct block *)((char *)at - HEADER_BYTES);
    size_t had = bytes_of(block->size_class);
    if (bytes <= had)
        return at;
    void *moved = sim_malloc(bytes);
    if (!moved)
        return NULL;
    memcpy(moved, at, had);
    sim_free(at);
    return moved;
}

void *sim_aligned_alloc(size_t alignment, size_t bytes) {
    assert(alignment <= HEADER_BYTES);
    (void)alignment;
    return sim_malloc(bytes);
}

char *sim_strdup(const char *text) {
    char *copy = sim_malloc(strlen(text) + 1);
    return copy ? strcpy(copy, text) : NULL;
}

void *sim_mmap(size_t bytes) {
    void *at = sim_calloc(1, bytes);
    return at ? at : MAP_FAILED;
}

int sim_munmap(void *at, size_t bytes) {
    (void)bytes;
    for (uint32_t i = 0; i < heap.arenas_count; i++)
        if (heap.arenas[i].base == at)
            return 0;
    sim_free(at);
    return 0;
}

char *sim_heap_arena(size_t bytes) {
    struct arena *arena = &heap.arenas[heap.arenas_count];
    if (heap.arenas_count == ARENAS_MAX)
        return NULL;
    arena->base =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (arena->base == MAP_FAILED)
        return NULL;
    arena->bytes = bytes;
    heap.arenas_count++;
    return arena->base;
}

void sim_heap_arena_used(const char *base, size_t used) {
    for (uint32_t i = 0; i < heap.arenas_count; i++)
        if (heap.arenas[i].base == base)
            heap.arenas[i].saved = used;
}

static size_t copy_out(size_t at, const void *from, size_t bytes) {
    if (heap.copy)
        memcpy(heap.copy + at, from, bytes);
    return at + bytes;
}

static size_t save_all(void) {
    size_t at = copy_out(0, heap.base, heap.heap_saved);
    for (uint32_t i = 0; i < heap.arenas_count; i++)
        at = copy_out(at, heap.arenas[i].base, heap.arenas[i].saved);
    for (uint32_t i = 0; i < heap.extras_count; i++)
        at = copy_out(at, heap.extras[i].from, heap.extras[i].bytes);
    return at;
}

void sim_heap_save(const struct sim_extent *extras, uint32_t extras_count) {
    assert(extras_count <= EXTRAS_MAX);
    heap.heap_saved = notes()->used;
    heap.extras_count = extras_count;
    memcpy(heap.extras, extras, extras_count * sizeof *extras);
    free(heap.copy);
    heap.copy = NULL;
    heap.copy_bytes = save_all();
    heap.copy = malloc(heap.copy_bytes);
    if (!heap.copy) {
        perror("a copy of the simulated heap");
        exit(1);
    }
    (void)save_all();
}

void sim_heap_restore(void) {
    size_t at = heap.heap_saved;
    memcpy(heap.base, heap.copy, at);
    for (uint32_t i = 0; i < heap.arenas_count; at += heap.arenas[i].saved, i++)
        memcpy(heap.arenas[i].base, heap.copy + at, heap.arenas[i].saved);
    for (uint32_t i = 0; i < heap.extras_count; at += heap.extras[i].bytes, i++)
        memcpy(heap.extras[i].from, heap.copy + at, heap.extras[i].bytes);
}

size_t sim_heap_saved_bytes(void) {
    return heap.copy_bytes;
}

uint64_t sim_heap_blocks(void) {
    return notes()->blocks;
}

uint64_t sim_heap_allocations(void) {
    return notes()->allocations;
}
