/* collective.h - collectives from inside: what the rounds, the reads and the arithmetic share.
 *
 * A round is one call. Its states at a node:
 *
 *   IDLE --publish--> PUBLISHED --barrier--> MET --reads--> IDLE
 *                                             |
 *                       (large all-reduce)    +--reads, publish the part--> REDUCED --barrier--> MET_AGAIN
 *                                                                           MET_AGAIN --reads--> IDLE
 *
 * A call that ends with an error that may pass leaves its state, and goes on from there when it is repeated.
 *
 * Why two blocks of contributions suffice. The block of round r is written again in round r + 2, after the
 * barrier of r + 1. Every node comes to that barrier after its reads of round r. A part is written after the
 * first barrier of its round, so one block is enough for it.
 *
 * Why no node waits for ever when node D fails. A node P that cannot read from D in round r makes no call after
 * it, but others may already wait for P in the barrier of r + 1, to which D may have come. So P fails the
 * barrier (remo__barrier_give_up): they get -EHOSTDOWN there. For the same reason no node reads a block that
 * its owner could not complete: the barrier before the read fails. */
#pragma once

#include <remo/collective.h>

#include "base/mutant.h"
#include "objects/barrier.h"
#include "objects/region.h"

#ifdef REMO_SIM_SMALL
#define REMO__COLLECTIVE_PIECE_BYTES 64u /* the simulator: few steps, and all paths in them */
#define REMO__COLLECTIVE_WHOLE_BYTES 32u
#define REMO__COLLECTIVE_LANDINGS 2u
#else
#define REMO__COLLECTIVE_PIECE_BYTES (64u << 10) /* moved by one read */
#define REMO__COLLECTIVE_WHOLE_BYTES (16u << 10) /* of an all-reduce that every node does by itself */
#define REMO__COLLECTIVE_LANDINGS 8u             /* reads in flight */
#endif
#define REMO__COLLECTIVE_HEADER_BYTES 16u /* of a contribution or a part: the call, packed, and its round */

enum remo__round_state {
    REMO__ROUND_IDLE,
    REMO__ROUND_PUBLISHED,
    REMO__ROUND_MET,
    REMO__ROUND_REDUCED,
    REMO__ROUND_MET_AGAIN
};

enum remo__call_kind {
    REMO__CALL_BROADCAST,
    REMO__CALL_REDUCE,
    REMO__CALL_ALL_REDUCE,
    REMO__CALL_GATHER,
    REMO__CALL_ALL_GATHER
};

/* What the caller asked for. */
struct remo__collective_call {
    enum remo__call_kind kind;
    uint32_t root; /* index among the participants */
    enum remo_number number;
    enum remo_reduction reduction;
    const void *send;
    char *receive;
    size_t bytes; /* of one contribution */
};

struct remo_collective {
    struct remo_node *node;
    struct remo_channel *channel;
    struct remo_region *blocks;
    struct remo_barrier *barrier;
    char *own; /* of the region */
    uint32_t bytes_max;
    uint32_t piece_bytes; /* of one read, without the header */
    uint32_t landing_bytes;
    uint64_t result_at, landing_at; /* offsets in the region */
    uint64_t contribution_bytes;    /* of one of the two blocks */
    uint32_t count, index;          /* participants; this node's place among them */
    uint64_t round;
    uint64_t current; /* the call of the round, packed */
    enum remo__round_state state;
    int ended;     /* 0, or the error that ended it for good */
    uint64_t *sum; /* a piece of a reduction */
    struct remo_ack acks[REMO__COLLECTIVE_LANDINGS];
    uint16_t nodes[REMO_NODES_MAX]; /* ranks of the participants */
};

/* Where part `index` of `count` of an all-reduce begins in the elements: a multiple of a word. */
static inline uint64_t remo__part_begin(uint64_t bytes, uint32_t index, uint32_t count) {
    return bytes / 8 * index / count * 8;
}

/* Where part `index` begins in a contribution to a large all-reduce: there, each part has a header. */
static inline uint64_t remo__part_at(const struct remo_collective *collective, uint64_t bytes,
                                     uint32_t index) {
    return (uint64_t)index * REMO__COLLECTIVE_HEADER_BYTES
           + remo__part_begin(bytes, index, collective->count);
}

/* ---- collective_move.c ---- */

/* Where the contributions of this round start in every participant's memory. */
static inline uint64_t remo__contribution_at(const struct remo_collective *collective) {
    return REMO__MUTANT(collective_blocks) ? 0 : collective->round % 2 * collective->contribution_bytes;
}

/* Read what the call needs of the contributions: for all of it, or (`part`) for this node's part of an
 * all-reduce, which goes to the result block behind its header.
 * Errors: those of remo_region_read; -EPROTO (a peer made another call). */
int remo__collective_read(struct remo_collective *collective, const struct remo__collective_call *call,
                          bool part);
/* Read the parts of a large all-reduce. Errors: those of remo__collective_read. */
int remo__collective_read_parts(struct remo_collective *collective, const struct remo__collective_call *call);

/* ---- collective_reduce.c ---- */

/* sum[i] = sum[i] combined with the word i of network memory at `from`. */
void remo__collective_combine(uint64_t *sum, const char *from, size_t bytes, enum remo_number number,
                              enum remo_reduction reduction);
