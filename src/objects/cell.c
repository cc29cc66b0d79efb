/* cell.c - implements objects/cell.h, which describes layout and order.
 * Invariant: at every moment one of the two slots of a copy is whole, because a push goes to the slot that
 * does not hold the last placed value, and follows the placement of that value. */
#include "objects/cell.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct remo__cell_shape remo__cell_shape(size_t value_bytes, bool is_pushed_only) {
    struct remo__cell_shape shape = {.value_bytes = value_bytes, .bytes = REMO__CACHE_LINE};
    if (is_pushed_only && value_bytes <= sizeof(uint64_t))
        return shape;
    size_t slot = REMO__CELL_HEADER_BYTES + value_bytes;
    /* Two small slots share a cache line. Larger slots begin at one. */
    size_t unit = slot <= REMO__CACHE_LINE / 2 ? REMO__CACHE_LINE / 2 : REMO__CACHE_LINE;
    shape.slot_bytes = remo__align_up(slot, unit);
    shape.bytes = remo__align_up(2 * shape.slot_bytes, REMO__CACHE_LINE);
    return shape;
}

uint64_t remo__cell_checksum(uint64_t sequence, const void *value, size_t value_bytes) {
    return XXH3_64bits_withSeed(value, value_bytes, sequence);
}

/* Copy the value of a slot to `scratch`. Return whether the slot is whole. It is invalidated first, for CPUs
 * without hardware coherence: a reader that found the other slot torn must read here at least the value that
 * was placed before that write began. */
static bool load_slot(const struct remo__cell_shape *shape, const char *slot, void *scratch,
                      uint64_t *ret_sequence) {
    remo__invalidate(slot, shape->slot_bytes);
    uint64_t sequence = remo__load(slot), sum = remo__load(slot + sizeof sequence);
    if (sequence == 0 && sum == 0) {
        memset(scratch, 0, shape->value_bytes);
    } else {
        remo__copy_from(scratch, slot + REMO__CELL_HEADER_BYTES, shape->value_bytes);
        if (remo__cell_checksum(sequence, scratch, shape->value_bytes) != sum)
            return false;
    }
    *ret_sequence = sequence;
    return true;
}

int remo__cell_load(const struct remo__cell_shape *shape, const void *cell, void *scratch,
                    uint64_t *ret_sequence) {
    if (shape->slot_bytes == 0) {
        remo__invalidate(cell, sizeof(uint64_t));
        uint64_t word = remo__load(cell);
        memcpy(scratch, &word, shape->value_bytes);
        *ret_sequence = 0;
        return 0;
    }
    const char *slots[2] = {cell, (const char *)cell + shape->slot_bytes};
    for (uint32_t attempt = 0; attempt < REMO__CELL_ATTEMPTS; attempt++) {
        remo__invalidate(cell, shape->bytes);
        bool newer = remo__load(slots[1]) > remo__load(slots[0]);
        if (load_slot(shape, slots[newer], scratch, ret_sequence)
            || load_slot(shape, slots[!newer], scratch, ret_sequence))
            return 0;
    }
    return -EAGAIN;
}

static bool is_whole(const struct remo__cell_shape *shape, char *slot) {
    const uint64_t *header = (const uint64_t *)(const void *)slot;
    char *value = slot + REMO__CELL_HEADER_BYTES;
    if (header[0] == 0 && header[1] == 0) {
        memset(value, 0, shape->value_bytes);
        return true;
    }
    return remo__cell_checksum(header[0], value, shape->value_bytes) == header[1];
}

uint32_t remo__cell_whole(const struct remo__cell_shape *shape, char *cell) {
    return (is_whole(shape, cell) ? 1 : 0) | (is_whole(shape, cell + shape->slot_bytes) ? 2 : 0);
}

/* ---- the cell of the writer ---- */

int remo__cell_open(struct remo__cell *cell, struct remo_region *region, const struct remo__cell_shape *shape,
                    uint64_t offset) {
    const struct remo_nodeset *all = remo_channel_participants(region->channel);
    *cell = (struct remo__cell){.region = region, .shape = *shape, .offset = offset};
    cell->image = calloc(1, remo__align_up(REMO__CELL_HEADER_BYTES + shape->value_bytes, sizeof(uint64_t)));
    cell->peers = calloc(region->nodes, sizeof *cell->peers);
    cell->next_slots = calloc(region->nodes, sizeof *cell->next_slots);
    cell->last_pushers = calloc(region->nodes, sizeof(struct remo__thread *));
    if (!cell->image || !cell->peers || !cell->next_slots || !cell->last_pushers) {
        remo__cell_close(cell);
        return remo__fail(-ENOMEM, "no memory for a value of %zu bytes", shape->value_bytes);
    }
    for (uint32_t node = remo__nodeset_next(all, 0); node < REMO_NODES_MAX;
         node = remo__nodeset_next(all, node + 1))
        if (node != region->node->rank)
            cell->peers[cell->peer_count++] = (uint16_t)node;
    return 0;
}

void remo__cell_close(struct remo__cell *cell) {
    free(cell->image);
    free(cell->peers);
    free(cell->next_slots);
    free(cell->last_pushers);
    *cell = (struct remo__cell){0};
}

void remo__cell_store(struct remo__cell *cell, const void *value) {
    const struct remo__cell_shape *shape = &cell->shape;
    char *own = cell->region->memory->own + cell->offset;
    if (shape->slot_bytes == 0) {
        memcpy(cell->image, value, shape->value_bytes);
        remo__store(own, cell->image[0]);
        remo__flush(own, sizeof(uint64_t));
        return;
    }
    cell->sequence++;
    cell->image[0] = cell->sequence;
    cell->image[1] = remo__cell_checksum(cell->sequence, value, shape->value_bytes);
    memcpy(cell->image + 2, value, shape->value_bytes);
    remo__copy_to(own + (cell->sequence & 1) * shape->slot_bytes, cell->image,
                  REMO__CELL_HEADER_BYTES + shape->value_bytes);
    remo__flush(own, shape->bytes); /* peers read it in a pull */
}

/* A push follows the placement of the previous one to the same copy: see "Order" in cell.h. */
static int push_to(struct remo__cell *cell, uint32_t node, struct remo_ack *ack) {
    const struct remo__cell_shape *shape = &cell->shape;
    struct remo__ref ref;
    bool word = shape->slot_bytes == 0;
    size_t bytes = word ? sizeof(uint64_t) : REMO__CELL_HEADER_BYTES + shape->value_bytes;
    uint64_t slot = cell->offset + cell->next_slots[node] * shape->slot_bytes;
    int rc = remo__region_find(cell->region, node, slot, &ref);
    if (rc == 0)
        rc = remo__order_writes(ref.thread, cell->last_pushers[node], node);
    if (rc != 0)
        return rc;
    rc = remo__write(ref, cell->image, bytes, REMO__WRITE_NOTIFY, ack);
    cell->last_pushers[node] = ref.thread;
    /* After a failed push the same slot again: the other one holds the last placed value. */
    if (rc == 0 && !word)
        cell->next_slots[node] ^= 1;
    return rc;
}

int remo__cell_push(struct remo__cell *cell, uint32_t node, struct remo_ack *ack) {
    if (node >= cell->region->nodes)
        return remo__region_refuse(cell->region, node, 0, 0, "push to");
    if (node != cell->region->node->rank)
        return push_to(cell, node, ack);
    remo__wake(cell->region->node);
    return 0;
}

/* Push to the participants that were not connected: wait for those that have not opened the object, and skip
 * those that have failed or left. */
static int push_to_late(struct remo__cell *cell, const struct remo_nodeset *late, struct remo_ack *ack) {
    for (uint32_t node = remo__nodeset_next(late, 0); node < REMO_NODES_MAX;
         node = remo__nodeset_next(late, node + 1)) {
        int rc = push_to(cell, node, ack);
        if (rc != 0 && !remo__is_departure(rc))
            return rc;
    }
    return 0;
}

int remo__cell_push_all(struct remo__cell *cell, struct remo_ack *ack) {
    struct remo_nodeset late = {0};
    bool any_late = false;
    int rc = 0;
    for (uint32_t i = 0; i < cell->peer_count; i++) {
        uint32_t node = cell->peers[i];
        if (remo__unlikely(!remo__memory_is_reachable(cell->region->memory, node))) {
            remo_nodeset_add(&late, node);
            any_late = true;
            continue;
        }
        int one = push_to(cell, node, ack);
        if (remo__unlikely(one != 0) && !remo__is_departure(one) && rc == 0)
            rc = one;
    }
    if (remo__unlikely(any_late) && rc == 0)
        rc = push_to_late(cell, &late, ack);
    remo__wake(cell->region->node);
    return rc;
}
