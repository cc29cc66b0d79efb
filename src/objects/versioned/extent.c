/* extent.c - finds the state of an object in its extent.
 * Invariant: each field of an image is checked against the shape before its use, because the image may be
 * torn, or of another use of the extent. docs/internals/versioned.md proves that the state is correct. */
#include <string.h>
#include <xxhash.h>

#include "base/random.h"
#include "objects/versioned/versioned.h"

static uint32_t size_of(uint64_t place) {
    return (uint32_t)(place & (REMO__VERSIONED_ENDS - 1));
}

static uint32_t offset_of(uint64_t place) {
    return (uint32_t)(place >> 32);
}

/* ---- seals ---- */

/* The generation makes the seals of each use of an extent different. */
uint64_t remo__versioned_seal_base(const struct remo__versioned_shape *shape,
                                   const struct remo__versioned_image *image) {
    const void *header = &image->header.base_version;
    size_t bytes = sizeof image->header - offsetof(struct remo__versioned_header, base_version);
    uint64_t seed =
        XXH3_64bits_withSeed(header, bytes, remo__random_mix(remo__versioned_generation(image->header.head)));
    return XXH3_64bits_withSeed(image->records + shape->log_words, 8 * (size_t)image->header.used, seed);
}

uint64_t remo__versioned_seal_record(uint64_t generation, uint32_t at,
                                     const struct remo__versioned_record *record, const void *data,
                                     uint32_t size_bytes) {
    uint64_t seed = remo__random_mix(remo__random_mix(generation) + at);
    seed = remo__random_mix(seed ^ record->version);
    return XXH3_64bits_withSeed(data, size_bytes, remo__random_mix(seed ^ record->place));
}

/* ---- judge ---- */

/* Load the record at word `at`, without its data. By words: a load of more bytes would wait until the words,
 * which have just been copied one by one, are in the cache. */
static struct remo__versioned_record record_at(const uint64_t *records, uint32_t at) {
    return (struct remo__versioned_record){
        .version = records[at], .place = records[at + 1], .seal = records[at + 2]};
}

/* Return whether a record is within `left` words, and its range within the object. */
static inline bool is_valid(uint32_t object_bytes, uint64_t place, uint32_t left) {
    uint32_t size = size_of(place);
    return size > 0 && (uint64_t)offset_of(place) + size <= object_bytes
           && remo__versioned_record_words(size) <= left;
}

static bool is_whole(const struct remo__versioned_image *image, uint32_t at) {
    const struct remo__versioned_record record = record_at(image->records, at);
    const void *data = image->records + at + REMO__VERSIONED_RECORD_BYTES / 8;
    return record.seal
           == remo__versioned_seal_record(remo__versioned_generation(image->header.head), at, &record, data,
                                          size_of(record.place));
}

/* Find the state in the records, the first `used` words. Returns false if a record without a seal is not
 * valid. Inlined for each value of has_seals: without seals the loop is short. */
static inline __attribute__((always_inline)) bool
walk_records(const struct remo__versioned_shape *shape, const struct remo__versioned_image *image,
             uint32_t used, uint64_t version, bool has_seals, struct remo__versioned_state *ret_state) {
    const uint64_t *record = image->records, *end = record + used;
    uint64_t state_version = image->header.base_version, parts = 0;
    const uint64_t *state_end = record;
    uint32_t object_bytes = shape->object_bytes;
    bool is_cut = false, has_later = false;
    while (record < end) {
        uint32_t left = (uint32_t)(end - record);
        bool is_complete =
            left >= REMO__VERSIONED_RECORD_BYTES / 8 && is_valid(object_bytes, record[1], left);
        if (!has_seals && remo__unlikely(!is_complete))
            return false;
        is_cut = has_seals && !(is_complete && is_whole(image, (uint32_t)(record - image->records)));
        has_later = !is_cut && record[0] > version;
        if (remo__unlikely(is_cut || has_later))
            break;
        uint64_t record_version = record[0], place = record[1];
        parts |= remo__versioned_parts(shape, offset_of(place), size_of(place));
        record += remo__versioned_record_words(size_of(place));
        if (place & REMO__VERSIONED_ENDS) {
            state_version = record_version;
            state_end = record;
        }
    }
    *ret_state = (struct remo__versioned_state){
        .version = state_version,
        .words = (uint32_t)(state_end - image->records),
        .is_cut = is_cut,
        .has_later = has_later,
        .is_pending = !is_cut && image->header.head & REMO__VERSIONED_PENDING,
        .parts = parts,
    };
    return true;
}

/* Of its own, because the calls of the hash need registers that the walk without seals would lack. */
static __attribute__((noinline)) void walk_sealed(const struct remo__versioned_shape *shape,
                                                  const struct remo__versioned_image *image, uint32_t used,
                                                  uint64_t version, struct remo__versioned_state *ret_state) {
    (void)walk_records(shape, image, used, version, true, ret_state);
}

enum remo__versioned_verdict remo__versioned_judge(const struct remo__versioned_shape *shape,
                                                   const struct remo__versioned_image *image, uint32_t object,
                                                   uint64_t generation, uint64_t version, bool has_seals,
                                                   struct remo__versioned_state *ret_state) {
    const struct remo__versioned_header *header = &image->header;
    uint32_t used = remo__versioned_used(header->head);
    if (remo__versioned_generation(header->head) != generation)
        return REMO__VERSIONED_REUSED;
    if (used > shape->log_words || header->object != object || header->used > shape->base_bytes / 8
        || (has_seals && header->seal != remo__versioned_seal_base(shape, image)))
        return REMO__VERSIONED_DAMAGED;
    if (header->base_version > version)
        return REMO__VERSIONED_LATER;
    if (has_seals)
        walk_sealed(shape, image, used, version, ret_state);
    else if (!walk_records(shape, image, used, version, false, ret_state))
        return REMO__VERSIONED_DAMAGED;
    return REMO__VERSIONED_STATE;
}

/* Copy the data of a record; up to 16 bytes without a call of memcpy. */
static void copy_data(char *dst, const char *src, uint32_t bytes) {
    if (bytes >= 8 && bytes <= 16) {
        uint64_t first, last;
        memcpy(&first, src, 8);
        memcpy(&last, src + bytes - 8, 8);
        memcpy(dst, &first, 8);
        memcpy(dst + bytes - 8, &last, 8);
    } else if (bytes >= 4 && bytes < 8) {
        uint32_t first, last;
        memcpy(&first, src, 4);
        memcpy(&last, src + bytes - 4, 4);
        memcpy(dst, &first, 4);
        memcpy(dst + bytes - 4, &last, 4);
    } else {
        memcpy(dst, src, bytes);
    }
}

void remo__versioned_overlay(const uint64_t *records, uint32_t words, uint32_t offset, void *dst,
                             uint32_t bytes) {
    for (const uint64_t *end = records + words; records < end;) {
        uint64_t place = records[1];
        uint32_t start = offset_of(place), size = size_of(place);
        if (start < offset + bytes && offset < start + size) {
            uint32_t first = remo__max(start, offset), last = remo__min(start + size, offset + bytes);
            copy_data((char *)dst + (first - offset),
                      (const char *)records + REMO__VERSIONED_RECORD_BYTES + (first - start), last - first);
        }
        records += remo__versioned_record_words(size);
    }
}
