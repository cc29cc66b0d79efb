/* heap.h - the state of a heap, and the interface between its files.
 *
 * Model:  a chunk is a piece of the arena, aligned to its size. A slab is a run of pages of one chunk with
 *         blocks of one size. A block above HEAP_CLASS_BYTES_MAX has a slab of its own, and one above
 *         HEAP_CHUNK_BYTES a chunk of its own.
 * Blocks: a word of a slab has two bits for each of 32 blocks: allocated (low half) and retired (high half).
 *         A block is FREE (00), LIVE (01) or RETIRED (11). FREE to LIVE: only the thread that owns the slab.
 *         LIVE to FREE or RETIRED: any thread, by one compare-swap, so each block is freed once. RETIRED to
 *         FREE: only the end of a grace period.
 * Slabs:  a thread allocates from an OWNED slab until it has visited all words once. The slab is then FULL
 *         or, if an eighth of its blocks is free, PARTIAL, where the next thread finds it. States change
 *         under `lock`.
 * Memory: descriptors of slabs and chunks are not returned to the C library before the heap closes. So a
 *         wrong address can be looked up at any time. */
#pragma once

#include <remo/heap.h>

#include "objects/region.h"

/* A power of two of pages; the simulator copies all memory for each schedule, so it has small pages. */
#ifdef REMO_SIM_SMALL
#define HEAP_PAGE_BYTES 64u
#define HEAP_CHUNK_PAGES 64u
#define HEAP_PAGE_BITS 6u
#else
#define HEAP_PAGE_BYTES REMO_HEAP_ALIGNMENT_MAX
#define HEAP_CHUNK_PAGES 512u
#define HEAP_PAGE_BITS 12u
#endif
#define HEAP_CHUNK_BYTES ((uint64_t)HEAP_PAGE_BYTES * HEAP_CHUNK_PAGES)
#define HEAP_GRAIN_BYTES 16u                              /* the smallest block, and the least alignment */
#define HEAP_CLASS_BYTES_MAX (8u * HEAP_PAGE_BYTES)       /* larger blocks are runs of pages */
#define HEAP_CLASSES (8u + 8u * (HEAP_PAGE_BITS + 3 - 7)) /* 8 up to 128 bytes, 8 per doubling above */
#define HEAP_NO_CLASS HEAP_CLASSES                        /* of a slab with one block */
#define HEAP_BITS 32u                                     /* blocks in a word */
#define HEAP_RUN_BINS 10u                                 /* 2^i <= free run < 2^(i+1) pages */
#define HEAP_CAPACITIES 8u                                /* 1 to 128 words */
#define HEAP_PIN_BYTES 32u /* of a thread's pin: one read has all pins of a participant, on every fabric */

enum heap_slab_state { HEAP_SLAB_OWNED, HEAP_SLAB_PARTIAL, HEAP_SLAB_FULL, HEAP_SLAB_UNUSED };

/* A thread that has freed a block, or that looks up a wrong address, may read the slab while another thread
 * initialises it for other blocks. So the fields that it reads are atomic. A mixture of old and new values is
 * harmless: only a LIVE block ends, and the thread examines the state of the slab again under `lock`. */
struct heap_slab {
    _Atomic uint64_t start, bytes; /* arena offset, and pages */
    _Atomic uint64_t block_bytes;
    _Atomic uint64_t reciprocal; /* of the block size in grains; see index_at */
    _Atomic uint32_t block_count, word_count;
    uint32_t class;
    uint32_t cursor;   /* the word that the owner searches next */
    uint32_t capacity; /* words[]; constant */
    _Atomic uint32_t state;
    _Atomic uint32_t freed;        /* FULL: at least the number of free blocks */
    struct heap_slab *next, *prev; /* of its class, or unused */
    _Atomic bool in_limbo;         /* it has retired blocks that no grace period covers */
    struct heap_slab *next_in_limbo, *next_in_grace;
    uint32_t *waiting; /* [capacity] blocks of the current grace period */
    _Atomic uint64_t words[];
};

struct heap_chunk {
    uint64_t start;
    _Atomic uint64_t bytes;         /* > HEAP_CHUNK_BYTES: one block; a lookup reads it at any time */
    struct heap_chunk *next, *prev; /* of its bin, or unused */
    struct heap_chunk *next_of_all;
    uint32_t bin; /* HEAP_RUN_BINS: in none */
    uint32_t free_pages;
    _Atomic(struct heap_slab *) slabs[HEAP_CHUNK_PAGES]; /* of each page; NULL: the page is free */
};

/* A thread, by the index of its struct remo__thread. */
struct heap_thread {
    uint64_t pin;               /* its last value: peers can write the word in network memory */
    uint32_t pin_depth, unpins; /* unpins: number of those that have ended the outermost pin */
    struct heap_slab *slabs[HEAP_CLASSES];
};

/* One grace period; only the thread that holds `busy` uses it. */
struct heap_grace {
    _Atomic bool busy;
    bool is_active;
    _Atomic uint64_t begun, ended; /* number of grace periods */
    struct heap_slab *slabs;       /* slabs with waiting blocks */
    struct remo_nodeset pending;   /* participants that may use waiting blocks */
    struct remo_nodeset read;      /* participants whose pins are in `pinned` */
    uint64_t *pinned;              /* [size][REMO__THREADS_MAX] the pins of that time; 0: has unpinned */
    char *pins;                    /* [size][PINS_BYTES] a copy of each participant's pins */
    struct remo_ack *acks;         /* [size] of the reads of pins */
};

struct remo_heap {
    struct remo_region
        *region; /* the pins of each participant: one word per thread, odd while it is pinned */
    struct remo_node *node;
    uint32_t rank;
    struct remo_nodeset absent; /* nodes that had left or failed before the open */
    uint64_t limit_bytes;
    pthread_mutex_t lock; /* of slabs' states and lists, chunks, pages */
    uint64_t reserved_bytes;
    struct heap_slab *partial[HEAP_CLASSES + 1], *full[HEAP_CLASSES + 1];
    struct heap_slab *unused_slabs[HEAP_CAPACITIES]; /* by the logarithm of their capacity */
    struct heap_chunk *bins[HEAP_RUN_BINS], *unused_chunks, *all_chunks;
    uint64_t chunk_count;                 /* entries of the table */
    _Atomic(struct heap_chunk *) *chunks; /* by offset / HEAP_CHUNK_BYTES */
    struct heap_thread *threads[REMO__THREADS_MAX];
    struct remo__thread_observer observer; /* releases the slabs and the pin of a thread that ends */
    _Atomic(struct heap_slab *) limbo;
    _Atomic uint64_t retired_count;
    struct heap_grace grace;
};

/* ---- heap/page.c: chunks and pages; `lock` is held ---- */

/* Take a run of `pages` for one slab: set its start and bytes, and enter it for all pages. Errors: -ENOSPC,
 * -ENOMEM. */
int remo__heap_pages_take(struct remo_heap *heap, struct heap_slab *slab, uint64_t pages);
/* Return the pages of a slab. */
void remo__heap_pages_give(struct remo_heap *heap, const struct heap_slab *slab);
/* Return the slab at an arena offset, or NULL. Threads: any, without the lock. */
struct heap_slab *remo__heap_slab_at(const struct remo_heap *heap, uint64_t offset);
/* Free all memory. `to_arena`: return the chunks to the arena. */
void remo__heap_pages_close(struct remo_heap *heap, bool to_arena);

/* ---- heap/slab.c: size classes, slabs, blocks ---- */

struct heap_block {
    struct heap_slab *slab;
    uint32_t index;
};

int remo__heap_block_take(struct remo_heap *heap, uint64_t size_bytes, uint64_t alignment,
                          struct heap_block *ret_block);
/* Find the LIVE block that begins at `offset`, an arena offset of this node. Errors: as remo_heap_free. */
int remo__heap_block_find(const struct remo_heap *heap, uint64_t offset, struct heap_block *ret_block);
/* Change a block from LIVE to FREE or, if `retire`, to RETIRED. Errors: -EALREADY. */
int remo__heap_block_end(struct remo_heap *heap, struct heap_block block, bool retire);
/* Change blocks of a word from RETIRED to FREE; `mask` has a bit for each. */
void remo__heap_blocks_release(struct remo_heap *heap, struct heap_slab *slab, uint32_t word, uint32_t mask);
/* End the ownership of all slabs of a thread. */
void remo__heap_slabs_disown(struct remo_heap *heap, struct heap_thread *state);
void remo__heap_slabs_close(struct remo_heap *heap);

/* ---- heap/grace.c: pins and grace periods ---- */

int remo__heap_grace_open(struct remo_heap *heap);
void remo__heap_grace_close(struct remo_heap *heap);
/* Unpin a thread that ends. If its writes are not placed within op_timeout_ns, the pin lasts until the next
 * thread with the same index unpins or ends. */
void remo__heap_grace_unpin(struct remo_heap *heap, struct remo__thread *thread, struct heap_thread *state);
/* Record that a block of the slab was retired. */
void remo__heap_grace_note(struct remo_heap *heap, struct heap_slab *slab);
/* Wait until no participant uses any block of this node, for op_timeout_ns at most. Return whether that is
 * so. */
bool remo__heap_grace_last(struct remo_heap *heap);

/* ---- heap/thread.c ---- */

/* Return the calling thread's state. Errors: -EAGAIN, -ENOMEM. */
int remo__heap_thread(struct remo_heap *heap, struct remo__thread **ret_thread,
                      struct heap_thread **ret_state);
