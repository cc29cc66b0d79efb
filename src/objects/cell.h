/* cell.h - a value with one writer in network memory: an owned_var, or a row of an SST.
 *
 * Model:   the writer holds the value in its share, and each reader a copy in its share, at the same offset.
 *          The writer pushes the value to the copies; a reader may also read the writer's share. Only the
 *          writer changes them.
 * Layout:  a word: one aligned word of 8 bytes. All other values: two slots of {u64 sequence, u64 checksum,
 *          value}, written alternately. The checksum covers the sequence. All zeros are sequence 0, with the
 *          value zero. While one slot is being written, the other one holds the previous value. So readers
 *          do not wait for a preempted writer, and a writer that fails during a write loses no value.
 * Order:   the newest whole slot never returns to an older value, and is not older than the last complete
 *          push (a regular register). A push overwrites a slot only after the previous push, to the other
 *          slot, was placed (remo__order_writes). A reader that finds a slot torn has read a part of
 *          push k; so push k - 1 is placed in the other slot, which it reads next. Both fail only if two
 *          more pushes happened meanwhile; then the reader starts again. Words need no slots. But the age of
 *          two words cannot be compared, so words are only pushed, never pulled.
 */
#pragma once

#include "objects/region.h"

/* Attempts to find a whole slot. Each fails only if the value was written twice meanwhile. */
#define REMO__CELL_ATTEMPTS 64u
#define REMO__CELL_HEADER_BYTES 16u

struct remo__cell_shape {
    size_t value_bytes;
    size_t slot_bytes; /* from one slot to the next; 0: the cell is a word */
    size_t bytes;      /* of the cell, a multiple of a cache line */
};

/* Return the shape of a cell for values of this size. `is_pushed_only`: the cell may be a word. */
struct remo__cell_shape remo__cell_shape(size_t value_bytes, bool is_pushed_only);
/* Return the checksum of a slot. */
uint64_t remo__cell_checksum(uint64_t sequence, const void *value, size_t value_bytes);

/* Copy the newest whole value of a cell to `scratch`. *ret_sequence is its sequence, or 0 for a word.
 * Errors: -EAGAIN, without a sentence: both slots were torn in every attempt. */
int remo__cell_load(const struct remo__cell_shape *shape, const void *cell, void *scratch,
                    uint64_t *ret_sequence);

/* Return the whole slots of a cell that was read into private memory: bit 0, bit 1. */
uint32_t remo__cell_whole(const struct remo__cell_shape *shape, char *cell);

/* Return the larger sequence of both slots. Its slot may be torn. */
static inline uint64_t remo__cell_peek(const struct remo__cell_shape *shape, const char *cell) {
    return remo__max(remo__load(cell), remo__load(cell + shape->slot_bytes));
}

/* The cell of a writer. Used by one thread at a time. */
struct remo__cell {
    struct remo_region *region;
    struct remo__cell_shape shape;
    uint64_t offset; /* of the cell in every share */
    uint64_t sequence;
    uint64_t *image; /* the last stored slot; in private memory, so that a write copies it immediately */
    uint32_t peer_count;
    uint16_t *peers;                    /* all other participants, in the order of ranks */
    uint8_t *next_slots;                /* [nodes] the slot of the next push */
    struct remo__thread **last_pushers; /* [nodes] thread of the last push to the node, or NULL */
};

/* Open the cell at `offset` of `region`. Errors: -ENOMEM. */
int remo__cell_open(struct remo__cell *cell, struct remo_region *region, const struct remo__cell_shape *shape,
                    uint64_t offset);
void remo__cell_close(struct remo__cell *cell);
/* Set the value in this node's share. Copies receive it by the next push. */
void remo__cell_store(struct remo__cell *cell, const void *value);
/* Write the last stored value to the copy of `node`, and notify the node. Cost: 1 write; to this node itself
 * only a wake-up. Errors: those of remo_region_write. */
int remo__cell_push(struct remo__cell *cell, uint32_t node, struct remo_ack *ack);
/* Push to all other participants that are up. Blocks for op_timeout_ns at most, while a participant has not
 * opened the object.
 * Errors: the first one of a push, except -EHOSTDOWN and -ENOTCONN. */
int remo__cell_push_all(struct remo__cell *cell, struct remo_ack *ack);
