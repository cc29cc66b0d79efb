/* layout.h - shared state of the shm fabric, at the start of segment 0 of every arena.
 *
 * Layout:  a header: magic, size, the node's doorbell, the word that its service thread sleeps on, and one
 *          pending bit for each sender. Then one ring of immediates for each sender.
 * Ring:    many producers (the threads of the sending process), one consumer (the service thread of the
 *          owner). A slot is one word, {turn, value}: free for lap n when turn = 2n, full when turn = 2n + 1.
 *          A producer fills the slot at `tail` with one compare-and-swap, then advances `tail`; if it fails
 *          to, the next producer does. So a killed producer never blocks the ring.
 *          The consumer keeps its position in private memory and frees each slot for the next lap.
 * Trust:   every peer can write all of this. The owner trusts only its private position in each ring, and
 *          takes 32 uninterpreted bits from a slot. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "base/bits.h"
#include "fabric/fabric.h"

#define REMO__SHM_MAGIC UINT64_C(0x32304d48534d4552) /* "REMSHM02", the layout's version included */
#define REMO__SHM_RING_SLOTS 256u
#define REMO__SHM_PAGE_BYTES 4096u

struct remo__shm_ring {
    REMO__CACHE_ALIGNED _Atomic uint64_t tail; /* at most the position of the first slot that is not full */
    REMO__CACHE_ALIGNED _Atomic uint64_t slots[REMO__SHM_RING_SLOTS]; /* turn << 32 | value */
};

/* A sender sets its bit in `pending`, then reads `sleeping`. The service thread sets `sleeping`, reads
 * `pending` once more, then sleeps. All four accesses are sequentially consistent, so no wake-up is lost. */
struct remo__shm_service {
    _Atomic uint32_t seq;
    _Atomic uint32_t sleeping;
};

struct remo__shm_header {
    uint64_t magic;
    uint32_t size; /* nodes of the job: determines the layout below */
    REMO__CACHE_ALIGNED struct remo__doorbell bell;
    REMO__CACHE_ALIGNED struct remo__shm_service service;
    REMO__CACHE_ALIGNED _Atomic uint64_t pending[]; /* one bit per sender */
};

static inline uint64_t remo__shm_rings_offset(uint32_t size) {
    uint64_t words = ((uint64_t)size + 63) / 64;
    return remo__align_up(sizeof(struct remo__shm_header) + words * sizeof(uint64_t), REMO__CACHE_LINE);
}

static inline uint64_t remo__shm_private_bytes(uint32_t size) {
    return remo__align_up(remo__shm_rings_offset(size) + (uint64_t)size * sizeof(struct remo__shm_ring),
                          REMO__SHM_PAGE_BYTES);
}

/* The ring that `sender` fills. `size` is this node's own value, never read from the header. */
static inline struct remo__shm_ring *remo__shm_ring(struct remo__shm_header *header, uint32_t size,
                                                    uint32_t sender) {
    struct remo__shm_ring *rings = (void *)((char *)header + remo__shm_rings_offset(size));
    return &rings[sender];
}

/* The slot's word while free, and while full, at position `at` of the ring's unbounded sequence. */
static inline uint64_t remo__shm_slot_free(uint64_t at) {
    return (uint64_t)(uint32_t)(at / REMO__SHM_RING_SLOTS * 2) << 32;
}

static inline uint64_t remo__shm_slot_full(uint64_t at, uint32_t value) {
    return (uint64_t)(uint32_t)(at / REMO__SHM_RING_SLOTS * 2 + 1) << 32 | value;
}
