/* collective.h - the parts of a collective that its files share: state, layout, and functions.
 * The rounds of a collective, and the proof that two blocks suffice, are in docs/internals/collective.md. */
#pragma once

#include <remo/collective.h>

#include "objects/barrier.h"
#include "objects/region.h"

#ifdef REMO_SIM_SMALL
#define REMO__COLLECTIVE_PIECE_BYTES 64u /* few steps, on all paths, for the simulator */
#define REMO__COLLECTIVE_WHOLE_BYTES 32u
#define REMO__COLLECTIVE_LANDINGS 2u
#else
#define REMO__COLLECTIVE_PIECE_BYTES (64u << 10) /* moved by one read */
#define REMO__COLLECTIVE_WHOLE_BYTES (16u << 10) /* largest all-reduce that each node computes alone */
#define REMO__COLLECTIVE_LANDINGS 8u             /* reads in flight */
#endif
#define REMO__COLLECTIVE_HEADER_BYTES 16u /* of a contribution or a part: the packed call and its round */

enum remo__round_state {
    REMO__ROUND_IDLE,
    REMO__ROUND_PUBLISHED,
    REMO__ROUND_ALL_PUBLISHED,
    REMO__ROUND_REDUCED,
    REMO__ROUND_ALL_REDUCED
};

enum remo__call_kind {
    REMO__CALL_BROADCAST,
    REMO__CALL_REDUCE,
    REMO__CALL_ALL_REDUCE,
    REMO__CALL_GATHER,
    REMO__CALL_ALL_GATHER
};

/* The arguments of a call. */
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
    uint32_t count, index;          /* participants; index of this node among them */
    uint64_t round;
    uint64_t current; /* the call of the round, packed */
    enum remo__round_state state;
    int ended;     /* 0, or the error that all later calls return */
    uint64_t *sum; /* a piece of a reduction */
    struct remo_ack acks[REMO__COLLECTIVE_LANDINGS];
    uint16_t nodes[REMO_NODES_MAX]; /* ranks of the participants */
};

/* Return the offset of part `index` of `count` in the data of an all-reduce, a multiple of a word. */
static inline uint64_t remo__part_begin(uint64_t bytes, uint32_t index, uint32_t count) {
    return bytes / 8 * index / count * 8;
}

static inline uint64_t remo__part_bytes(uint64_t bytes, uint32_t index, uint32_t count) {
    return remo__part_begin(bytes, index + 1, count) - remo__part_begin(bytes, index, count);
}

/* Return the offset of part `index` in a contribution to a large all-reduce: there each part has a header. */
static inline uint64_t remo__part_at(const struct remo_collective *collective, uint64_t bytes,
                                     uint32_t index) {
    return (uint64_t)index * REMO__COLLECTIVE_HEADER_BYTES
           + remo__part_begin(bytes, index, collective->count);
}

/* ---- collective/move.c ---- */

/* Return the offset of the contributions of this round in the region, the same at every participant. */
static inline uint64_t remo__contribution_at(const struct remo_collective *collective) {
    return collective->round % 2 * collective->contribution_bytes;
}

/* Read the contributions that the call needs. `is_part`: read only this node's part of an all-reduce, and
 * reduce it into the result block, after the header.
 * Errors: those of remo_region_read; -EPROTO: a peer made another call. */
int remo__collective_read(struct remo_collective *collective, const struct remo__collective_call *call,
                          bool is_part);
/* Read the reduced parts of a large all-reduce. Errors: those of remo__collective_read. */
int remo__collective_read_parts(struct remo_collective *collective, const struct remo__collective_call *call);

/* ---- collective/reduce.c ---- */

/* Combine each number of `sum` with that at the same offset of `from`, in network memory. */
void remo__collective_combine(uint64_t *sum, const char *from, size_t bytes, enum remo_number number,
                              enum remo_reduction reduction);
