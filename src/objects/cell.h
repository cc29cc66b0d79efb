/* cell.h - a value with one writer, kept in network memory: an owned_var, or a row of an SST.
 *
 * Model:   the writer has the value in its own share, and a copy in the share of every reader, at the same
 *          offset. It writes (`push`) the copies; a reader may also read the writer's share. Nobody else
 *          writes any of them.
 * Layout:  a word: one aligned word of 8 bytes. Everything else: two slots of {u64 sequence, u64 checksum,
 *          value}, written in turn. The checksum covers the sequence. All zero is sequence 0: the value is
 *          zero.
 *          Why two: while one slot is being written the other one holds the value before it, whole. So a
 *          reader is not held up by a writer that was preempted, and loses nothing to one that died, in the
 *          middle of a write.
 * Order:   the newest slot that is whole never goes back, and is never older than the last finished push (a
 *          regular register): a push begins to overwrite a slot only after the push before it, to the other
 *          slot, has been placed. That is what `order` in cell.c sees to. A reader that finds a slot torn has
 *          seen part of a push k, so push k - 1 is placed, in the other slot, which it reads next; both can
 *          only fail if two more pushes went by, and then it starts again. A word needs none of this: but
 *          nothing tells which of two copies of it is newer, so it can be pushed only.
 */
#pragma once

#include "node/access.h"
#include "objects/region.h"

/* Attempts to find a slot whole; each fails only if the value was written twice meanwhile. */
#define REMO__CELL_ATTEMPTS 64u
#define REMO__CELL_HEADER_BYTES 16u

struct remo__cell_shape {
    size_t value_bytes;
    size_t slot_bytes; /* from one slot to the next; 0: a word */
    size_t bytes;      /* of the cell, a multiple of a cache line */
};

/* A cell for values of this size; a word, if they fit one and `word` says that they are pushed only. */
struct remo__cell_shape remo__cell_shape(size_t value_bytes, bool word);
uint64_t remo__cell_sum(uint64_t sequence, const void *value, size_t value_bytes);

/* The newest whole value of a cell to `scratch`, and its sequence (of a word: 0). -EAGAIN, without a
 * sentence, when both slots stay torn. */
int remo__cell_load(const struct remo__cell_shape *shape, const void *cell, void *scratch,
                    uint64_t *ret_sequence);

/* Which slots are whole in a cell that was read into private memory: bit 0, bit 1. */
uint32_t remo__cell_whole(const struct remo__cell_shape *shape, char *cell);

/* The larger sequence of the two slots; the slot may be torn. */
static inline uint64_t remo__cell_peek(const struct remo__cell_shape *shape, const char *cell) {
    return remo__max(remo__load(cell), remo__load(cell + shape->slot_bytes));
}

/* The own cell: one thread at a time. */
struct remo__cell {
    struct remo_region *region;
    struct remo__cell_shape shape;
    uint64_t offset; /* of the cell in every share */
    uint64_t sequence;
    uint64_t *image; /* one slot as it is sent; private memory, so that a write takes a copy at once */
    struct remo__thread *pusher; /* who pushed last; NULL: nobody yet */
    uint32_t others_count;
    uint16_t *others; /* participants but this node, in rank order */
    uint8_t *turns;   /* [nodes] the slot for the next push */
};

int remo__cell_open(struct remo__cell *cell, struct remo_region *region, const struct remo__cell_shape *shape,
                    uint64_t offset);
void remo__cell_close(struct remo__cell *cell);
void remo__cell_store(struct remo__cell *cell, const void *value);
/* 1 write, which wakes; to this node itself: nothing but waking. */
int remo__cell_push(struct remo__cell *cell, uint32_t node, struct remo_ack *ack);
/* A push to each other participant that lives. Who has not opened yet is waited for, up to op_timeout_ns. */
int remo__cell_push_all(struct remo__cell *cell, struct remo_ack *ack);
