/* slot.c - implements slot.h: layout, long keys, and writing of slots.
 *
 * Invariant: a reader that probes a slot while it is filled accepts no contents of an earlier generation. */
#include "systems/kv/slot.h"

struct remo__kv_shape remo__kv_shape_of(uint32_t key_bytes_max, uint32_t value_bytes_max) {
    struct remo__kv_shape shape = {.key_bytes_max = key_bytes_max, .value_bytes_max = value_bytes_max};
    shape.copies_at = (uint32_t)(8 + remo__align_up(key_bytes_max, 8));
    shape.copy_bytes = (uint32_t)(REMO__KV_COPY_HEAD_BYTES + remo__align_up(value_bytes_max, 8));
    shape.slot_bytes = remo__align_up(shape.copies_at + 2 * (uint64_t)shape.copy_bytes, REMO__CACHE_LINE);
    return shape;
}

bool remo__kv_slot_has_long_key(const char *slot, const struct remo__kv_key *key) {
    const char *there = slot + 8, *here = key->bytes;
    size_t left = key->bytes_count;
    uint64_t word = 0;
    for (; left >= 8; left -= 8, there += 8, here += 8) {
        memcpy(&word, here, 8);
        if (remo__load(there) != word)
            return false;
    }
    if (left == 0)
        return true;
    uint64_t last = remo__load(there);
    memcpy(&word, here, left);
    return memcmp(&word, &last, left) == 0;
}

bool remo__kv_slot_read_older(const struct remo__kv_shape *shape, const char *slot, uint64_t hash,
                              struct remo__kv_snapshot snapshot, void *dst, size_t cap, char *scratch) {
    const char *from = slot + remo__kv_copy_at(shape, snapshot.copy);
    return remo__kv_copy_read(shape, from, snapshot.head, hash, snapshot.meta, dst, cap, scratch);
}

size_t remo__kv_copy_build(char *image, uint64_t head, uint64_t hash, uint64_t meta, const void *value) {
    size_t bytes = remo__kv_meta_value_bytes(meta);
    uint64_t seal = remo__kv_seal(remo__kv_value_sum(value, bytes), meta, head, hash);
    memcpy(image, &seal, 8);
    memcpy(image + 8, &meta, 8);
    if (bytes > 0)
        memcpy(image + REMO__KV_COPY_HEAD_BYTES, value, bytes);
    size_t padded = remo__align_up(bytes, 8);
    memset(image + REMO__KV_COPY_HEAD_BYTES + bytes, 0, padded - bytes);
    return REMO__KV_COPY_HEAD_BYTES + padded;
}

uint64_t remo__kv_slot_fill(const struct remo__kv_shape *shape, char *slot, const struct remo__kv_key *key,
                            const void *value, size_t value_bytes, char *scratch) {
    uint32_t generation = remo__kv_head_generation(remo__load(slot)) + 1;
    uint64_t head = remo__kv_head_make(generation, key->bytes_count, REMO__KV_INSERTING);
    /* The new generation comes first: it invalidates the seals of the old copies. */
    remo__store(slot, head);
    size_t whole = key->bytes_count & ~(size_t)7;
    remo__copy_to(slot + 8, key->bytes, whole);
    if (whole < key->bytes_count) {
        uint64_t last = 0;
        memcpy(&last, (const char *)key->bytes + whole, key->bytes_count - whole);
        remo__store(slot + 8 + whole, last);
    }
    size_t bytes = remo__kv_copy_build(scratch, head, key->hash, remo__kv_meta_make(1, value_bytes), value);
    remo__copy_to(slot + remo__kv_copy_at(shape, 0), scratch, bytes);
    /* The other copy has version 0, so readers use copy 0. */
    remo__store(slot + remo__kv_copy_at(shape, 1) + 8, remo__kv_meta_make(0, 0));
    return head;
}
