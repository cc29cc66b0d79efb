/* record.h - the messages of rpc: requests in the ring of a receiver, and replies in the slots of a caller.
 *
 * Request: {head; proof; call; rest; data}, at a multiple of 64 bytes. The data of a call with places begins
 *          with struct remo__rpc_places. head = {u16 bytes, u16 lap, u8 number,
 *          u4 depth, u4 hops, u8 flags}; call = {u32 serial, u16 slot, u16 origin}; rest = {u32 service,
 *          u32 time}. A record that begins before the end of the ring may end after it, so there are no
 *          fillers: the next record begins at the start.
 * Reply:   {head; sum; result; data}. head = {u16 bytes, u4 hops, u4 kind, u8 node, u32 serial}; result =
 *          {i32 status, u32 credit}.
 * Proof:   on a mapped fabric the sender stores the data first, and the head last: a head of the expected lap
 *          (serial) proves that the record is complete. The proof of a request is its key, XORed with the
 *          head. The key is derived from the position, so older bytes match with probability 2^-64.
 *          Elsewhere proof and sum are checksums of the whole record.
 * Masks:   a byte that matches may be a remainder of an earlier record that equals the new byte. The new byte
 *          could then arrive later, and overwrite the next record: the next request of another thread's
 *          connection, or the reply of another node. So on unmapped fabrics all words behind the head and the
 *          proof are XORed with the key, and an old word equals the new one with probability 2^-64. A record
 *          that matches has no word in flight.
 * Bounds:  all fields come from another node. They are used only after checks. */
#pragma once

#include <string.h>
#include <xxhash.h>

#include "base/bits.h"
#include "base/random.h"
#include "channel/remote.h"

#ifdef REMO_SIM_SMALL
#define REMO__RPC_RING_BYTES 512u
#define REMO__RPC_DATA_MAX 192u
#define REMO__RPC_LARGE_MAX 1000u        /* two operations of a fabric without mapped memory */
#define REMO__RPC_BLOCKS_BYTES_MAX 4096u /* two calls with large requests and replies */
#else
#define REMO__RPC_RING_BYTES (64u << 10)
#define REMO__RPC_DATA_MAX 4096u /* REMO_RPC_BYTES_MAX */
#define REMO__RPC_LARGE_MAX REMO_RPC_LARGE_BYTES_MAX
#define REMO__RPC_BLOCKS_BYTES_MAX REMO_RPC_BLOCKS_BYTES_MAX
#endif

#define REMO__RPC_LINE 64u
#define REMO__RPC_REQUEST_BYTES 32u
#define REMO__RPC_REPLY_BYTES 24u
#define REMO__RPC_PLACES_BYTES 24u                                         /* of struct remo__rpc_places */
#define REMO__RPC_RECORD_MAX (REMO__RPC_PLACES_BYTES + REMO__RPC_DATA_MAX) /* of the data of a request */
#define REMO__RPC_REQUEST_MAX (REMO__RPC_REQUEST_BYTES + REMO__RPC_RECORD_MAX)
#define REMO__RPC_REPLY_MAX (REMO__RPC_REPLY_BYTES + REMO__RPC_DATA_MAX)
/* Bytes of a ring: the last record may end behind the last position. */
#define REMO__RPC_RING_SPAN (REMO__RPC_RING_BYTES + REMO__RPC_DATA_MAX + 2 * REMO__RPC_LINE)

static_assert(REMO__RPC_RING_BYTES % REMO__RPC_LINE == 0 && REMO__RPC_DATA_MAX % REMO__RPC_LINE == 0,
              "records are lines");

enum remo__rpc_flags {
    REMO__RPC_POST = 1,     /* no reply */
    REMO__RPC_HAS_DONE = 2, /* the reply wakes a thread that serves */
    REMO__RPC_HAS_PLACES = 4
};
#define REMO__RPC_FLAGS_SHIFT 48

enum remo__rpc_kind {
    REMO__RPC_REPLIED,   /* by the handler */
    REMO__RPC_REFUSED,   /* no handler has run */
    REMO__RPC_ABANDONED, /* the service closed after the handler had run */
    /* By the handler. The data is a u64: the length of the reply, which is in the place of the call, unless
     * it is longer than the place. */
    REMO__RPC_REPLIED_IN_PLACE
};

/* Of a call with a large request, or a place for a large reply: addresses in the memory of the caller. */
struct remo__rpc_places {
    uint64_t request; /* 0: the request follows in the record */
    uint64_t reply;   /* 0: none */
    uint32_t request_bytes, reply_bytes;
};
static_assert(
    sizeof(struct remo__rpc_places) == REMO__RPC_PLACES_BYTES && REMO__RPC_PLACES_BYTES % 8 == 0
        && REMO__RPC_REQUEST_MAX - REMO__RPC_DATA_MAX <= REMO__RPC_LINE,
    "the data of a handler is aligned to 8 bytes, and a record ends behind the last line of a ring");

/* The words of a request, without lap and proof. */
struct remo__rpc_words {
    uint64_t head, call, rest;
};

static inline uint32_t remo__rpc_bytes(uint64_t head) {
    return head & 0xffff;
}
static inline uint32_t remo__rpc_lap(uint64_t head) {
    return head >> 16 & 0xffff;
}
static inline uint32_t remo__rpc_number(uint64_t head) {
    return head >> 32 & 0xff;
}
static inline uint32_t remo__rpc_depth(uint64_t head) {
    return head >> 40 & 0xf;
}
static inline uint32_t remo__rpc_hops(uint64_t head) {
    return head >> 44 & 0xf;
}
static inline uint32_t remo__rpc_flags(uint64_t head) {
    return head >> REMO__RPC_FLAGS_SHIFT & 0xff;
}
static inline uint32_t remo__rpc_serial(uint64_t call) {
    return (uint32_t)call;
}
static inline uint32_t remo__rpc_slot(uint64_t call) {
    return call >> 32 & 0xffff;
}
static inline uint32_t remo__rpc_origin(uint64_t call) {
    return (uint32_t)(call >> 48);
}
static inline uint32_t remo__rpc_service(uint64_t rest) {
    return (uint32_t)rest;
}
static inline uint32_t remo__rpc_time(uint64_t rest) {
    return (uint32_t)(rest >> 32);
}

static inline uint64_t remo__rpc_head_make(size_t bytes, uint32_t number, uint32_t depth, uint32_t hops,
                                           uint32_t flags) {
    return (uint64_t)bytes | (uint64_t)number << 32 | (uint64_t)depth << 40 | (uint64_t)hops << 44
           | (uint64_t)flags << REMO__RPC_FLAGS_SHIFT;
}
static inline uint64_t remo__rpc_call_make(uint32_t origin, uint32_t slot, uint32_t serial) {
    return (uint64_t)origin << 48 | (uint64_t)slot << 32 | serial;
}

/* ---- positions ---- */

static inline uint64_t remo__rpc_offset(uint64_t position) {
    return position % REMO__RPC_RING_BYTES;
}
/* From 1, so that zeroed memory is no record; wraps. */
static inline uint64_t remo__rpc_lap_of(uint64_t position) {
    return (position / REMO__RPC_RING_BYTES + 1) & 0xffff;
}
static inline uint64_t remo__rpc_key(uint64_t position) {
    return remo__random_mix(position);
}
/* Return the position after a record at `position`: the next line, or the start of the next lap. */
static inline uint64_t remo__rpc_position_after(uint64_t position, size_t bytes) {
    uint64_t end = position + remo__align_up(REMO__RPC_REQUEST_BYTES + bytes, REMO__RPC_LINE);
    uint64_t lap_end = position - remo__rpc_offset(position) + REMO__RPC_RING_BYTES;
    return end < lap_end ? end : lap_end;
}

/* ---- masked records ---- */

static inline size_t remo__rpc_words_of(size_t bytes) {
    return remo__align_up(bytes, sizeof(uint64_t)) / sizeof(uint64_t);
}

static inline void remo__rpc_mask(uint64_t *words, size_t count, uint64_t key) {
    for (size_t i = 0; i < count; i++)
        words[i] ^= key;
}

static inline uint64_t remo__rpc_sum(const uint64_t *words, size_t count, uint64_t head, uint64_t key) {
    return XXH3_64bits_withSeed(words, count * sizeof *words, head ^ key);
}

/* Copy `bytes` to `words`, and pad them with zeros. */
static inline void remo__rpc_pad(uint64_t *words, const void *data, size_t bytes) {
    if (bytes > 0)
        words[remo__rpc_words_of(bytes) - 1] = 0;
    if (bytes > 0)
        memcpy(words, data, bytes);
}

/* Encode a request; return its bytes. `image` has REMO__RPC_REQUEST_MAX bytes. */
static inline size_t remo__rpc_encode_request(uint64_t *image, const struct remo__rpc_words *words,
                                              const void *data, uint64_t key) {
    size_t bytes = remo__rpc_bytes(words->head), count = 2 + remo__rpc_words_of(bytes);
    image[0] = words->head;
    image[2] = words->call;
    image[3] = words->rest;
    remo__rpc_pad(image + 4, data, bytes);
    image[1] = remo__rpc_sum(image + 2, count, words->head, key);
    remo__rpc_mask(image + 2, count, key);
    return (2 + count) * sizeof *image;
}

/* Decode a request of which head and size are checked. `image` gets all words but the first two. */
static inline bool remo__rpc_decode_request(const char *record, uint64_t head, uint64_t key,
                                            uint64_t *ret_image) {
    uint64_t sum = remo__load(record + 8);
    size_t count = 2 + remo__rpc_words_of(remo__rpc_bytes(head));
    remo__copy_from(ret_image, record + 16, count * sizeof *ret_image);
    remo__rpc_mask(ret_image, count, key);
    return sum == remo__rpc_sum(ret_image, count, head, key);
}

static inline uint64_t remo__rpc_reply_head(size_t bytes, uint32_t hops, enum remo__rpc_kind kind,
                                            uint32_t node, uint32_t serial) {
    return (uint64_t)bytes | (uint64_t)hops << 16 | (uint64_t)kind << 20 | (uint64_t)(node & 0xff) << 24
           | (uint64_t)serial << 32;
}

static inline size_t remo__rpc_encode_reply(uint64_t *image, uint64_t head, uint64_t result, const void *data,
                                            uint64_t key) {
    size_t bytes = head & 0xffff, count = 1 + remo__rpc_words_of(bytes);
    uint64_t *rest = image + 2; /* sum at 1, then the result and the data, so that one sum covers both */
    image[0] = head;
    rest[0] = result;
    remo__rpc_pad(rest + 1, data, bytes);
    image[1] = remo__rpc_sum(rest, count, head, key);
    remo__rpc_mask(rest, count, key);
    return (2 + count) * sizeof *image;
}

/* `image` gets the result and the data. */
static inline bool remo__rpc_decode_reply(const char *reply, uint64_t head, uint64_t key,
                                          uint64_t *ret_image) {
    uint64_t sum = remo__load(reply + 8);
    size_t count = 1 + remo__rpc_words_of(head & 0xffff);
    remo__copy_from(ret_image, reply + 16, count * sizeof *ret_image);
    remo__rpc_mask(ret_image, count, key);
    return sum == remo__rpc_sum(ret_image, count, head, key);
}
