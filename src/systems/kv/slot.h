/* slot.h - a slot of the map in network memory: its format, and how a reader verifies it.
 *
 * Layout:  {u64 head; key; copy 0; copy 1}, copy = {u64 seal; u64 meta; value}. Keys and values at their
 *          maximum length, rounded up to 8 bytes; the slot rounded up to cache lines. With keys and values of
 *          8 bytes it is exactly one line.
 *          head = {generation:32, key length:16, state:16}; it changes by single stores only.
 *          meta = {version:40, value length:24}.
 *          seal = checksum over value, meta, generation, and the hash of the key.
 * Copies:  the copy with the higher version is the value. An update writes the other copy, in one write.
 * Reading: a reader loads each word once, checks it against the limits, and uses it only if the seal is
 *          right. Words are read at different times, in any order (docs/memory-model.md).
 * Verdict: GOOD, OLDER, TORN or OTHER; docs/internals/kv.md states what each of them proves. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/bits.h"
#include "base/random.h"
#include "channel/remote.h"

#define REMO__KV_KEY_BYTES_MAX 65535u
#define REMO__KV_VALUE_BYTES_MAX ((1u << 24) - 1)
#define REMO__KV_COPY_HEAD_BYTES 16u

enum remo__kv_state {
    REMO__KV_FREE = 0,
    REMO__KV_INSERTING = 1, /* complete, but not yet in every index */
    REMO__KV_VALID = 2,
    REMO__KV_DELETED = 3,
};

/* The layout of the slots of one map. */
struct remo__kv_shape {
    uint32_t key_bytes_max, value_bytes_max;
    uint32_t copies_at;  /* offset of copy 0 */
    uint32_t copy_bytes; /* from copy 0 to copy 1 */
    uint64_t slot_bytes;
};

struct remo__kv_key {
    const void *bytes;
    size_t bytes_count;
    uint64_t hash; /* all 64 bits, without hash_mask */
};

/* The words of a slot that a read has returned. */
struct remo__kv_snapshot {
    uint64_t head;
    uint64_t meta; /* of the whole copy */
    uint32_t copy; /* number of the whole copy */
};

enum remo__kv_verdict {
    REMO__KV_VERDICT_OTHER, /* another key, or not VALID */
    REMO__KV_VERDICT_GOOD,  /* the newer copy is whole */
    REMO__KV_VERDICT_OLDER, /* the newer copy is torn, the older one is whole */
    REMO__KV_VERDICT_TORN,  /* both copies are torn */
};

/* Return the layout for these lengths, which are within the limits above. */
struct remo__kv_shape remo__kv_shape_of(uint32_t key_bytes_max, uint32_t value_bytes_max);

/* Build a copy at `image`, and return its bytes, a multiple of 8. `value` may be NULL if it has 0 bytes. */
size_t remo__kv_copy_build(char *image, uint64_t head, uint64_t hash, uint64_t meta, const void *value);

/* Fill the free slot at `slot`, on this node, with key and value: a new generation in state INSERTING.
 * `scratch` has room for a copy. Returns the new head. */
uint64_t remo__kv_slot_fill(const struct remo__kv_shape *shape, char *slot, const struct remo__kv_key *key,
                            const void *value, size_t value_bytes, char *scratch);

/* ---- words ---- */

static inline uint64_t remo__kv_head_make(uint32_t generation, size_t key_bytes, enum remo__kv_state state) {
    return (uint64_t)generation << 32 | (uint64_t)(key_bytes & 0xffff) << 16 | (uint64_t)state;
}

static inline uint32_t remo__kv_head_generation(uint64_t head) {
    return (uint32_t)(head >> 32);
}

static inline uint32_t remo__kv_head_key_bytes(uint64_t head) {
    return (uint32_t)(head >> 16) & 0xffff;
}

static inline enum remo__kv_state remo__kv_head_state(uint64_t head) {
    return (enum remo__kv_state)(head & 0xffff);
}

static inline uint64_t remo__kv_head_with(uint64_t head, enum remo__kv_state state) {
    return (head & ~UINT64_C(0xffff)) | (uint64_t)state;
}

static inline uint64_t remo__kv_meta_make(uint64_t version, size_t value_bytes) {
    return version << 24 | (value_bytes & REMO__KV_VALUE_BYTES_MAX);
}

static inline uint64_t remo__kv_meta_version(uint64_t meta) {
    return meta >> 24;
}

static inline uint32_t remo__kv_meta_value_bytes(uint64_t meta) {
    return (uint32_t)meta & REMO__KV_VALUE_BYTES_MAX;
}

/* Return all ones if the version of `a` is higher than that of `b`, else 0. It is a mask, because half of the
 * branches on it would be mispredicted. Versions are numbers of 40 bits that wrap. */
static inline uint64_t remo__kv_meta_newer_mask(uint64_t a, uint64_t b) {
    int64_t behind = (int64_t)(((b >> 24) - (a >> 24)) << 24); /* negative: a is ahead */
    return (uint64_t)(behind >> 63);
}

/* Return the offset of a copy in its slot. */
static inline uint64_t remo__kv_copy_at(const struct remo__kv_shape *shape, uint32_t copy) {
    return shape->copies_at + (uint64_t)copy * shape->copy_bytes;
}

/* ---- checksums ---- */

/* Hash a key. The usual 8 bytes take few instructions: the fewer a get has, the more the processor overlaps
 * the next get with the cache misses of this one. */
static inline uint64_t remo__kv_hash(const void *bytes, size_t count) {
    uint64_t word;
    if (remo__unlikely(count != 8))
        return XXH3_64bits(bytes, count);
    memcpy(&word, bytes, 8);
    return remo__random_mix(word);
}

/* Return the checksum of a value, one input of the seal. */
static inline uint64_t remo__kv_value_sum(const void *value, size_t count) {
    uint64_t word;
    if (remo__unlikely(count != 8))
        return XXH3_64bits(value, count);
    memcpy(&word, value, 8);
    return word;
}

/* Return the seal. Distinct factors keep the four inputs independent before they are mixed. */
static inline uint64_t remo__kv_seal(uint64_t value_sum, uint64_t meta, uint64_t head, uint64_t hash) {
    return remo__random_mix(hash + value_sum * UINT64_C(0xc2b2ae3d27d4eb4f)
                            + meta * UINT64_C(0xd6e8feb86659fd93)
                            + remo__kv_head_generation(head) * UINT64_C(0x9fb21c651e98df25));
}

/* ---- reading ---- */

/* Compare a key whose length is not 8 with the key of the slot, which has the same length. */
bool remo__kv_slot_has_long_key(const char *slot, const struct remo__kv_key *key);

/* Return whether the slot has this key, in any state. The copies are not examined. */
static inline bool remo__kv_slot_has_key(const struct remo__kv_shape *shape, const char *slot, uint64_t head,
                                         const struct remo__kv_key *key) {
    if (remo__kv_head_key_bytes(head) != key->bytes_count || key->bytes_count > shape->key_bytes_max)
        return false;
    uint64_t word;
    if (remo__unlikely(key->bytes_count != 8))
        return remo__kv_slot_has_long_key(slot, key);
    memcpy(&word, key->bytes, 8);
    return remo__load(slot + 8) == word;
}

/* Read the value from the copy at `from`, with the length in `meta`, and return whether the copy is whole. */
static inline __attribute__((always_inline)) bool remo__kv_copy_read(const struct remo__kv_shape *shape,
                                                                     const char *from, uint64_t head,
                                                                     uint64_t hash, uint64_t meta, void *dst,
                                                                     size_t cap, char *scratch) {
    size_t bytes = remo__kv_meta_value_bytes(meta);
    if (remo__unlikely(bytes > shape->value_bytes_max))
        return false;
    uint64_t seal = remo__load(from);
    void *to = bytes <= cap ? dst : scratch;
    if (remo__likely(bytes > 0))
        remo__copy_from(to, from + REMO__KV_COPY_HEAD_BYTES, bytes);
    return seal == remo__kv_seal(remo__kv_value_sum(to, bytes), meta, head, hash);
}

/* Read the older copy, given by `snapshot`, after the newer one was torn, and return whether it is whole. */
bool remo__kv_slot_read_older(const struct remo__kv_shape *shape, const char *slot, uint64_t hash,
                              struct remo__kv_snapshot snapshot, void *dst, size_t cap, char *scratch);

/* Read the slot at `slot` (network memory, or a copy of it), which is aligned to 8 bytes. The value is copied
 * to `dst` if it fits, else to `scratch` (value_bytes_max bytes, rounded up to 8); bytes beyond its length,
 * and those of an unsuccessful read, are undefined. *ret_snapshot has the head; after GOOD and OLDER, all. */
static inline __attribute__((always_inline)) enum remo__kv_verdict
remo__kv_slot_read(const struct remo__kv_shape *shape, const char *slot, const struct remo__kv_key *key,
                   void *dst, size_t cap, char *scratch, struct remo__kv_snapshot *ret_snapshot) {
    uint64_t head = remo__load(slot);
    ret_snapshot->head = head;
    if (remo__unlikely(remo__kv_head_state(head) != REMO__KV_VALID
                       || !remo__kv_slot_has_key(shape, slot, head, key)))
        return REMO__KV_VERDICT_OTHER;
    const char *copies = slot + shape->copies_at;
    uint64_t meta0 = remo__load(copies + 8), meta1 = remo__load(copies + shape->copy_bytes + 8);
    uint64_t newer = remo__kv_meta_newer_mask(meta1, meta0), meta = meta0 ^ ((meta0 ^ meta1) & newer);
    const char *copy = copies + (shape->copy_bytes & newer);
    if (remo__likely(remo__kv_copy_read(shape, copy, head, key->hash, meta, dst, cap, scratch))) {
        *ret_snapshot = (struct remo__kv_snapshot){.head = head, .meta = meta, .copy = (uint32_t)newer & 1};
        return REMO__KV_VERDICT_GOOD;
    }
    *ret_snapshot =
        (struct remo__kv_snapshot){.head = head, .meta = meta ^ meta0 ^ meta1, .copy = ~(uint32_t)newer & 1};
    bool whole = remo__kv_slot_read_older(shape, slot, key->hash, *ret_snapshot, dst, cap, scratch);
    return whole ? REMO__KV_VERDICT_OLDER : REMO__KV_VERDICT_TORN;
}
