#include "kv/kv_slot.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/bits.h"
#include "base/random.h"
#include "node/access.h"

struct remo__kv_shape remo__kv_shape_of(uint32_t key_bytes_max, uint32_t value_bytes_max) {
    struct remo__kv_shape shape = {.key_bytes_max = key_bytes_max, .value_bytes_max = value_bytes_max};
    shape.copies_at = (uint32_t)(8 + remo__align_up(key_bytes_max, 8));
    shape.copy_bytes = (uint32_t)(REMO__KV_COPY_HEAD_BYTES + remo__align_up(value_bytes_max, 8));
    shape.slot_bytes = remo__align_up(shape.copies_at + 2 * (uint64_t)shape.copy_bytes, REMO__CACHE_LINE);
    return shape;
}

uint64_t remo__kv_hash(const void *key, size_t key_bytes) {
    return XXH3_64bits(key, key_bytes);
}

/* Two mixes, not a sum: so that no two of the three inputs can make up for each other. */
static inline uint64_t seal_of(const void *value, uint64_t meta, uint64_t head, uint64_t hash) {
    uint64_t whose = remo__random_mix(hash ^ remo__random_mix(remo__kv_head_generation(head)));
    return XXH3_64bits(value, remo__kv_meta_value_bytes(meta)) ^ remo__random_mix(whose ^ meta);
}

bool remo__kv_slot_has_key(const struct remo__kv_shape *shape, const char *slot, uint64_t head,
                           const struct remo__kv_key *key) {
    if (remo__kv_head_key_bytes(head) != key->bytes_count || key->bytes_count > shape->key_bytes_max)
        return false;
    const char *there = slot + 8, *here = key->bytes;
    size_t left = key->bytes_count;
    for (; left >= 8; left -= 8, there += 8, here += 8) {
        uint64_t word;
        memcpy(&word, here, 8);
        if (remo__load(there) != word)
            return false;
    }
    if (left > 0) {
        uint64_t word = 0, last = remo__load(there);
        memcpy(&word, here, left);
        return memcmp(&word, &last, left) == 0;
    }
    return true;
}

/* Copy the value that `meta` speaks of from the copy at `from`, and say whether it is whole. */
static inline bool take_copy(const struct remo__kv_shape *shape, const char *from, uint64_t head, uint64_t hash,
                             uint64_t meta, void *dst, size_t cap, char *scratch) {
    size_t bytes = remo__kv_meta_value_bytes(meta);
    if (remo__unlikely(bytes > shape->value_bytes_max))
        return false;
    uint64_t seal = remo__load(from);
    void *to = bytes <= cap ? dst : scratch;
    if (remo__likely(bytes > 0))
        remo__copy_from(to, from + REMO__KV_COPY_HEAD_BYTES, bytes);
    return seal == seal_of(to, meta, head, hash);
}

enum remo__kv_seen remo__kv_slot_read(const struct remo__kv_shape *shape, const char *slot, const struct remo__kv_key *key,
                                      void *dst, size_t cap, char *scratch, struct remo__kv_sight *ret_sight) {
    uint64_t head = remo__load(slot);
    ret_sight->head = head;
    if (remo__unlikely(remo__kv_head_state(head) != REMO__KV_VALID || !remo__kv_slot_has_key(shape, slot, head, key)))
        return REMO__KV_SEEN_OTHER;
    const char *copies = slot + shape->copies_at;
    uint64_t meta[2] = {remo__load(copies + 8), remo__load(copies + shape->copy_bytes + 8)};
    uint32_t newer = remo__kv_meta_newer(meta[1], meta[0]) ? 1 : 0;

    for (uint32_t tries = 0; tries < 2; tries++) {
        uint32_t copy = newer ^ tries;
        if (remo__likely(take_copy(shape, copies + copy * shape->copy_bytes, head, key->hash, meta[copy], dst, cap,
                                   scratch))) {
            *ret_sight = (struct remo__kv_sight){.head = head, .meta = meta[copy], .copy = copy};
            return tries == 0 ? REMO__KV_SEEN_GOOD : REMO__KV_SEEN_OLDER;
        }
    }
    return REMO__KV_SEEN_TORN;
}

size_t remo__kv_copy_build(char *image, uint64_t head, uint64_t hash, uint64_t meta, const void *value) {
    size_t bytes = remo__kv_meta_value_bytes(meta);
    uint64_t seal = seal_of(value, meta, head, hash);
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
    /* First of all nobody can take what was here before for a whole value: the head of the new generation. */
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
    /* The other copy claims version 0; it is never looked at while copy 0 is whole. */
    remo__store(slot + remo__kv_copy_at(shape, 1) + 8, remo__kv_meta_make(0, 0));
    return head;
}
