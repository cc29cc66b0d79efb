/* ring_record.h - the records of a ring: written over the network, and verified by the receiver.
 *
 * Layout:  record = {u32 size, u32 lap, u64 checksum or seal, payload}, each at a multiple of 16 bytes. If
 *          the next record does not fit before the end of the ring, a filler ends the lap. The checksum
 *          covers size, lap, payload and the position in the stream, so neither a record of an earlier lap
 *          nor a torn record matches. It covers every written byte: a record that matches has all its bytes.
 * Seals:   on a mapped fabric the sender writes the payload first, then the header, and a receiver reads the
 *          header first. So a complete header proves that the payload is complete. Its seal is derived from
 *          size and position: bytes of an earlier lap are a header with probability 2^-64.
 * Masks:   a byte that matches may be a remainder of the last lap that equals the new byte. Where the
 *          network does not order writes, the new byte could then arrive in the next lap, and overwrite the
 *          next record. There the payload is padded to words, and each word is XORed with a key derived from
 *          the position. So a word of an earlier lap equals the expected word with probability 2^-64. When a
 *          record matches, no word of it is in flight. Where writes are ordered, all words of a record
 *          arrive before those of the next lap.
 * Bounds:  `size` comes from another node. It is used only after a check against the ring and the longest
 *          message. A receiver never reads outside [0, capacity) of the ring, whatever the ring contains.
 */
#pragma once

#include <stdbool.h>
#include <string.h>
#include <xxhash.h>

#include "base/bits.h"
#include "base/random.h"
#include "channel/remote.h"

#define REMO__RECORD_HEADER_BYTES 16u
#define REMO__RECORD_FILLER UINT32_MAX                      /* as a size: this record ends the lap */
#define REMO__RECORD_SEAL_STEP UINT64_C(0xd1342543de82ef95) /* any odd number that is random: see the seal */

/* The proof that a record is complete. All nodes of a job use the same. */
enum remo__record_guard {
    REMO__RECORD_CHECKSUM,
    REMO__RECORD_MASK, /* a checksum, and a mask */
    REMO__RECORD_SEAL
};

/* A position in the stream: `position` bytes from its start, at `offset` of the ring in lap number `lap`. */
struct remo__ring_cursor {
    uint64_t capacity;
    uint64_t position;
    uint64_t offset;
    uint32_t lap; /* from 1, so that zeroed memory is no record; wraps */
    enum remo__record_guard guard;
};

enum remo__record_kind { REMO__RECORD_NONE, REMO__RECORD_FILLING, REMO__RECORD_MESSAGE };

/* Return the bytes from one record to the next. */
static inline uint64_t remo__record_bytes(uint32_t size) {
    return remo__align_up((uint64_t)REMO__RECORD_HEADER_BYTES + size, REMO__RECORD_HEADER_BYTES);
}

/* Return the bytes of the longest message. It fits, after a filler, while half of the ring is in use. */
static inline uint64_t remo__record_message_max(uint64_t capacity) {
    return capacity / 4 - REMO__RECORD_HEADER_BYTES;
}

static inline void remo__ring_advance(struct remo__ring_cursor *cursor, uint64_t bytes) {
    cursor->position += bytes;
    cursor->offset += bytes;
    if (cursor->offset == cursor->capacity) {
        cursor->offset = 0;
        cursor->lap++;
    }
}

static inline void remo__ring_next_lap(struct remo__ring_cursor *cursor) {
    remo__ring_advance(cursor, cursor->capacity - cursor->offset);
}

static inline uint64_t remo__record_checksum(const struct remo__ring_cursor *cursor, uint64_t head,
                                             const void *payload, size_t size_bytes) {
    return XXH3_64bits_withSeed(payload, size_bytes, remo__random_mix(cursor->position) ^ head);
}

/* Return the seal: for records of one size, another one at each position. The receiver compares the lap. */
static inline uint64_t remo__record_seal(const struct remo__ring_cursor *cursor, uint64_t head) {
    return remo__random_mix(cursor->position + (uint32_t)head * REMO__RECORD_SEAL_STEP);
}

/* Return the words of a masked payload. */
static inline size_t remo__record_words(uint32_t size) {
    return remo__align_up(size, sizeof(uint64_t)) / sizeof(uint64_t);
}

/* Mask or unmask the payload of the record at `cursor`. */
static inline void remo__record_mask(const struct remo__ring_cursor *cursor, uint64_t *words, size_t count) {
    uint64_t key = remo__random_mix(cursor->position);
    for (size_t i = 0; i < count; i++)
        words[i] ^= key;
}

/* Encode a record with a masked payload (`size` > 0), padded to words. Return the bytes to write. */
static inline uint64_t remo__record_encode_masked(uint64_t *words, const struct remo__ring_cursor *cursor,
                                                  uint64_t head, uint32_t size, const void *payload) {
    size_t count = remo__record_words(size);
    if (payload != words + 2)
        memcpy(words + 2, payload, size);
    memset((char *)(words + 2) + size, 0, count * sizeof *words - size);
    words[1] = remo__record_checksum(cursor, head, words + 2, count * sizeof *words);
    remo__record_mask(cursor, words + 2, count);
    return REMO__RECORD_HEADER_BYTES + count * sizeof *words;
}

/* Return the first word of a record at `cursor`. */
static inline uint64_t remo__record_head(const struct remo__ring_cursor *cursor, uint32_t size) {
    return (uint64_t)cursor->lap << 32 | size;
}

/* Encode the header of a sealed record at `cursor`. */
static inline void remo__record_encode_sealed(uint64_t *image, const struct remo__ring_cursor *cursor,
                                              uint32_t size) {
    uint64_t head = remo__record_head(cursor, size);
    image[0] = head;
    image[1] = remo__record_seal(cursor, head);
}

/* Encode the record at `cursor` into `image`, which has room for it. The payload may be in its place there
 * already. Return the number of bytes to write. A sealed record has only its header in the image: the caller
 * writes the payload before it. */
static inline uint64_t remo__record_encode(void *image, const struct remo__ring_cursor *cursor, uint32_t size,
                                           const void *payload) {
    uint32_t payload_bytes = size == REMO__RECORD_FILLER ? 0 : size;
    uint64_t head = remo__record_head(cursor, size), *words = image;
    if (cursor->guard == REMO__RECORD_SEAL) {
        remo__record_encode_sealed(words, cursor, size);
        return REMO__RECORD_HEADER_BYTES;
    }
    words[0] = head;
    if (remo__unlikely(cursor->guard == REMO__RECORD_MASK && payload_bytes > 0))
        return remo__record_encode_masked(words, cursor, head, size, payload);
    words[1] = remo__record_checksum(cursor, head, payload, payload_bytes);
    if (payload_bytes > 0 && payload != words + 2)
        memcpy(words + 2, payload, payload_bytes);
    return REMO__RECORD_HEADER_BYTES + payload_bytes;
}

/* Unmask the payload at `network` into `scratch`. Return whether it matches the checksum. */
static inline bool remo__record_unmask(const struct remo__ring_cursor *cursor, uint64_t head, uint64_t sum,
                                       const void *network, uint64_t *scratch) {
    size_t count = remo__record_words((uint32_t)head);
    remo__copy_from(scratch, network, count * sizeof *scratch);
    remo__record_mask(cursor, scratch, count);
    return sum == remo__record_checksum(cursor, head, scratch, count * sizeof *scratch);
}

/* Return whether a record of this size, which is no filler, may be at `cursor`. */
static inline bool remo__record_fits(const struct remo__ring_cursor *cursor, uint32_t size) {
    return size <= remo__record_message_max(cursor->capacity)
           && remo__record_bytes(size) <= cursor->capacity - cursor->offset;
}

/* As remo__record_decode, for a sealed record. */
static inline enum remo__record_kind remo__record_decode_sealed(const char *ring,
                                                                const struct remo__ring_cursor *cursor,
                                                                void *buffer, size_t buffer_bytes,
                                                                uint32_t *ret_size) {
    const char *record = ring + cursor->offset;
    uint64_t head = remo__load(record), seal = remo__load(record + sizeof head); /* before the payload */
    uint32_t size = (uint32_t)head;
    if (head >> 32 != cursor->lap || seal != remo__record_seal(cursor, head))
        return REMO__RECORD_NONE;
    if (size == REMO__RECORD_FILLER)
        return REMO__RECORD_FILLING;
    if (!remo__record_fits(cursor, size))
        return REMO__RECORD_NONE;
    if (size <= buffer_bytes)
        remo__copy_from(buffer, record + REMO__RECORD_HEADER_BYTES, size);
    *ret_size = size;
    return REMO__RECORD_MESSAGE;
}

/* As remo__record_decode, for a record with a checksum. */
static __attribute__((noinline, unused)) enum remo__record_kind
remo__record_decode_summed(const char *ring, const struct remo__ring_cursor *cursor, void *buffer,
                           size_t buffer_bytes, void *scratch, uint32_t *ret_size) {
    const char *record = ring + cursor->offset;
    uint64_t head = remo__load(record), sum = remo__load(record + sizeof head);
    uint32_t size = (uint32_t)head;
    if (head >> 32 != cursor->lap)
        return REMO__RECORD_NONE;
    if (size == REMO__RECORD_FILLER)
        return sum == remo__record_checksum(cursor, head, NULL, 0) ? REMO__RECORD_FILLING : REMO__RECORD_NONE;
    if (!remo__record_fits(cursor, size))
        return REMO__RECORD_NONE;
    const char *network = record + REMO__RECORD_HEADER_BYTES;
    void *to = size <= buffer_bytes ? buffer : scratch;
    bool matches;
    if (remo__unlikely(cursor->guard == REMO__RECORD_MASK && size > 0)) {
        matches = remo__record_unmask(cursor, head, sum, network, scratch);
        if (to != scratch)
            memcpy(to, scratch, size);
    } else {
        remo__copy_from(to, network, size);
        matches = sum == remo__record_checksum(cursor, head, to, size);
    }
    if (!matches)
        return REMO__RECORD_NONE;
    *ret_size = size;
    return REMO__RECORD_MESSAGE;
}

/* Decode the record at `cursor`. A message is copied to `buffer`. If the buffer is too small, it is copied to
 * `scratch` (which has room for the longest); a sealed one is not copied. Return REMO__RECORD_NONE if the
 * checksum or seal does not match; the buffer's contents are undefined then. `scratch` is aligned to
 * words. */
static inline enum remo__record_kind remo__record_decode(const char *ring,
                                                         const struct remo__ring_cursor *cursor, void *buffer,
                                                         size_t buffer_bytes, void *scratch,
                                                         uint32_t *ret_size) {
    return cursor->guard == REMO__RECORD_SEAL
               ? remo__record_decode_sealed(ring, cursor, buffer, buffer_bytes, ret_size)
               : remo__record_decode_summed(ring, cursor, buffer, buffer_bytes, scratch, ret_size);
}
