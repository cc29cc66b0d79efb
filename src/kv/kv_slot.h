/* kv_slot.h - a slot of the map in network memory: its format, and how it is read without trusting it.
 *
 * Layout:  {u64 head; key; copy 0; copy 1}, copy = {u64 seal; u64 meta; value}; keys and values at their
 *          longest, rounded up to 8 bytes; the slot rounded up to cache lines. With keys and values of 8
 *          bytes it is exactly one line.
 *          head = {generation:32, key length:16, state:16}; it changes by single stores only.
 *          meta = {version:40, value length:24}.
 *          seal = checksum over value, meta, generation, and the hash of the key.
 * Copies:  the newer of both is the value. An update writes the older one, in one write: so a writer that
 *          dies in the middle leaves the value that was acknowledged last, and readers never wait for a
 *          writer.
 * Trust:   all that is read is a word loaded once, checked against the limits, and used only if the seal is
 *          good.
 *
 * What a read may conclude. Words of a slot are read at different times, in any order (memory model, rows 15
 * and 16). Writers of a slot exclude each other; each generation of a slot is valid from one moment to one
 * later moment, and versions grow by one in it.
 *  GOOD   the copy that claims the higher version is whole (version v). It was complete when the last of its
 *         words was read, and the write of v+1 was not complete when the other copy's claim was read, since
 *         that was lower. One of those two moments, or the end of the write of v between them, is a moment in
 *         the read at which v was the value.
 *  OLDER  the copy that claims the higher version is torn; the other one is whole, with version v. In a
 *         first look that says nothing: v+1 may have been the value before we came, and v+2 and half of v+3
 *         been written since we read v. But in a later look, begun when one that was not GOOD had ended, v
 *         was the value at some moment since that one began. For else v+1 was complete before it; v+2, which
 *         overwrites v, had not got to the words of v that the later look still met; so v+3 was not begun,
 *         and the earlier look had met v+1 whole and nothing newer, and was GOOD. (If the slot had another
 *         generation then, v+1 of this one was not complete.) So a reader gets past a writer that has died
 *         or sleeps.
 *  TORN   neither is whole: the reader was overtaken by two writes. Read again. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/mutant.h"
#include "base/bits.h"
#include "base/random.h"
#include "node/access.h"

#define REMO__KV_KEY_BYTES_MAX 65535u
#define REMO__KV_VALUE_BYTES_MAX ((1u << 24) - 1)
#define REMO__KV_COPY_HEAD_BYTES 16u

enum remo__kv_state {
    REMO__KV_FREE = 0,
    REMO__KV_INSERTING = 1, /* whole, but not yet in every index */
    REMO__KV_VALID = 2,
    REMO__KV_DELETED = 3,
};

/* Where things are in the slots of one map. */
struct remo__kv_shape {
    uint32_t key_bytes_max, value_bytes_max;
    uint32_t copies_at;  /* offset of copy 0 */
    uint32_t copy_bytes; /* from copy to copy */
    uint64_t slot_bytes;
};

struct remo__kv_key {
    const void *bytes;
    size_t bytes_count;
    uint64_t hash; /* all 64 bits of it */
};

/* What a read saw. */
struct remo__kv_sight {
    uint64_t head; /* 0: the slot is not this key's, or nothing was read yet */
    uint64_t meta; /* of the whole copy */
    uint32_t copy;
};

enum remo__kv_seen {
    REMO__KV_SEEN_OTHER, /* another key, or not valid */
    REMO__KV_SEEN_GOOD,
    REMO__KV_SEEN_OLDER,
    REMO__KV_SEEN_TORN,
};

/* The lengths were checked against the limits above. */
struct remo__kv_shape remo__kv_shape_of(uint32_t key_bytes_max, uint32_t value_bytes_max);

/* Build copy `copy` at `image`; returns how many bytes, a multiple of 8. `value` may be NULL when it has 0
 * bytes. */
size_t remo__kv_copy_build(char *image, uint64_t head, uint64_t hash, uint64_t meta, const void *value);

/* Make the own, unused slot at `slot` hold key and value in a new generation, state INSERTING. Returns its
 * new head. */
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

/* All ones if the version of `a` is above that of `b`, else 0: a mask, because a branch on it would be
 * guessed wrong every other time. Versions are numbers of 40 bits that wrap. */
static inline uint64_t remo__kv_meta_newer_mask(uint64_t a, uint64_t b) {
    int64_t behind = (int64_t)(((b >> 24) - (a >> 24)) << 24); /* negative: a is ahead */
    return (uint64_t)(behind >> 63);
}

/* Offset of a copy in its slot. */
static inline uint64_t remo__kv_copy_at(const struct remo__kv_shape *shape, uint32_t copy) {
    return shape->copies_at + (uint64_t)copy * shape->copy_bytes;
}

/* ---- checksums ---- */

/* Most keys and values have 8 bytes: then it is a few instructions. Fewer, and the processor begins the next
 * get while this one waits for memory. */
static inline uint64_t remo__kv_hash(const void *bytes, size_t count) {
    uint64_t word;
    if (remo__unlikely(count != 8))
        return XXH3_64bits(bytes, count);
    memcpy(&word, bytes, 8);
    return remo__random_mix(word);
}

/* Of a value: what goes into the seal. */
static inline uint64_t remo__kv_value_sum(const void *value, size_t count) {
    uint64_t word;
    if (remo__unlikely(count != 8))
        return XXH3_64bits(value, count);
    memcpy(&word, value, 8);
    return word;
}

/* The factors keep the four apart before they are mixed. */
static inline uint64_t remo__kv_seal(uint64_t value_sum, uint64_t meta, uint64_t head, uint64_t hash) {
    return remo__random_mix((REMO__MUTANT(kv_key_sum) ? 0 : hash) + value_sum * UINT64_C(0xc2b2ae3d27d4eb4f)
                            + meta * UINT64_C(0xd6e8feb86659fd93)
                            + (REMO__MUTANT(kv_generation) ? 0 : remo__kv_head_generation(head))
                                  * UINT64_C(0x9fb21c651e98df25));
}

/* ---- reading ---- */

/* A key of a length that is not 8, and is that of the slot's key. */
bool remo__kv_slot_has_long_key(const char *slot, const struct remo__kv_key *key);

/* Is the slot this key's, in any state? (What a copy holds does not matter.) */
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

/* Copy the value that `meta` speaks of from the copy at `from`, and say whether it is whole. */
static inline bool remo__kv_copy_take(const struct remo__kv_shape *shape, const char *from, uint64_t head,
                                      uint64_t hash, uint64_t meta, void *dst, size_t cap, char *scratch) {
    size_t bytes = remo__kv_meta_value_bytes(meta);
    if (remo__unlikely(bytes > shape->value_bytes_max))
        return false;
    uint64_t seal = remo__load(from);
    void *to = bytes <= cap ? dst : scratch;
    if (remo__likely(bytes > 0))
        remo__copy_from(to, from + REMO__KV_COPY_HEAD_BYTES, bytes);
    return seal == remo__kv_seal(remo__kv_value_sum(to, bytes), meta, head, hash)
           || REMO__MUTANT(kv_checksum);
}

/* The newer copy is torn: the rest of a read. Is the other one, of which `sight` speaks, whole? */
bool remo__kv_slot_read_older(const struct remo__kv_shape *shape, const char *slot, uint64_t hash,
                              struct remo__kv_sight sight, void *dst, size_t cap, char *scratch);

/* Read the slot at `slot` (network memory, or a copy of it), which is aligned to 8 bytes. The value is copied
 * to `dst` when it fits there, and to `scratch` (value_bytes_max bytes, rounded up to 8) when not: bytes
 * beyond its length, and what was read without success, are left there too. *ret_sight has the head that was
 * seen, and the rest of it when the result is GOOD or OLDER. */
static inline __attribute__((always_inline)) enum remo__kv_seen
remo__kv_slot_read(const struct remo__kv_shape *shape, const char *slot, const struct remo__kv_key *key,
                   void *dst, size_t cap, char *scratch, struct remo__kv_sight *ret_sight) {
    uint64_t head = remo__load(slot);
    ret_sight->head = head;
    if (remo__unlikely((remo__kv_head_state(head) != REMO__KV_VALID && !REMO__MUTANT(kv_valid))
                       || (!remo__kv_slot_has_key(shape, slot, head, key) && !REMO__MUTANT(kv_key))))
        return REMO__KV_SEEN_OTHER;
    const char *copies = slot + shape->copies_at;
    uint64_t meta0 = remo__load(copies + 8), meta1 = remo__load(copies + shape->copy_bytes + 8);
    uint64_t newer = REMO__MUTANT(kv_newer) ? 0 : remo__kv_meta_newer_mask(meta1, meta0),
             meta = meta0 ^ ((meta0 ^ meta1) & newer);
    const char *copy = copies + (shape->copy_bytes & newer);
    if (remo__likely(remo__kv_copy_take(shape, copy, head, key->hash, meta, dst, cap, scratch))) {
        *ret_sight = (struct remo__kv_sight){.head = head, .meta = meta, .copy = (uint32_t)newer & 1};
        return REMO__KV_SEEN_GOOD;
    }
    *ret_sight =
        (struct remo__kv_sight){.head = head, .meta = meta ^ meta0 ^ meta1, .copy = ~(uint32_t)newer & 1};
    bool whole = remo__kv_slot_read_older(shape, slot, key->hash, *ret_sight, dst, cap, scratch);
    return whole ? REMO__KV_SEEN_OLDER : REMO__KV_SEEN_TORN;
}
