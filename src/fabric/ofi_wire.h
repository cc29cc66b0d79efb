/* ofi_wire.h - what two nodes of the ofi fabric write into each other's memory.
 *
 * Greeting: an endpoint that wants to reach a peer writes a greeting, with its place as the immediate, into
 *           the peer's table of greetings. The peer makes a ring for it and answers with a welcome, message 0
 *           of the answers, which says where the ring is.
 * Request:  head, records, check; written into slot (seq % REMO__OFI_WINDOW) of the ring. The peer executes
 *           the records in order and writes
 * Answer:   head, results, failures, check; into the slot of the same number at the asking endpoint, which
 *           may then use both slots again.
 * Placing:  networks place the bytes of a write in any order and in pieces. Whoever waits for a message looks
 *           at the number in its head, and believes the message when the check at its end fits all of it:
 *           no order of placement, and no torn word, is relied on. To check a large message would take too
 *           long: only its head is checked, and it carries an immediate, which the network delivers when all
 *           of it is placed. Over a byte stream that the waiting thread itself reads into the ring nothing is
 *           needed: what comes before the check is there when the check is.
 * Numbers:  in the order of the machine; nodes whose order differs refuse each other when they connect. All
 *           parts are multiples of 8 bytes. */
#ifndef REMO_FABRIC_OFI_WIRE_H
#define REMO_FABRIC_OFI_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <xxhash.h>

#include "base/bits.h"

#define REMO__OFI_MAGIC UINT32_C(0x0f1e0001) /* and the version */
#define REMO__OFI_WINDOW 8u                  /* messages of an endpoint to a peer that are unanswered */
#define REMO__OFI_FRAGMENT_BYTES (UINT64_C(32) << 10) /* of one operation in one message */
#define REMO__OFI_CHECKED_BYTES 8192u                 /* larger messages are not checked as a whole */
#define REMO__OFI_MESSAGE_BYTES \
    (REMO__OFI_FRAGMENT_BYTES + 256) /* room for a head, a record, a check, more */
#define REMO__OFI_RING_BYTES (REMO__OFI_WINDOW * REMO__OFI_MESSAGE_BYTES)
#define REMO__OFI_ADDRESS_BYTES_MAX 128u /* of an endpoint, in the provider's format */

struct remo__ofi_head {
    uint32_t seq;   /* of requests and answers: 1, 2, ... */
    uint16_t units; /* size of the message in units of 8 bytes, head and check included */
    uint16_t count; /* request: records; answer: failures */
};

/* One operation or a fragment of one. A write is followed by its data, padded to 8 bytes, and the immediate
 * (8 bytes) if it has one; a fetch-add by the addend; a compare-swap by what it compares with and the new
 * value. A read is answered by the data, padded to 8 bytes; an atomic by the old value; a write by nothing. A
 * record that failed is answered by as many bytes of no meaning. */
struct remo__ofi_record {
    uint64_t offset;
    uint32_t size_bytes;
    uint8_t kind;  /* enum remo__op_kind */
    uint8_t flags; /* REMO__OP_NOTIFY, REMO__OP_IMM */
    uint16_t zero;
};

struct remo__ofi_failure {
    uint32_t record; /* its place in the request */
    int32_t status;
};

/* Written into place `endpoint` of the sender's part of the table. */
struct remo__ofi_greeting {
    uint64_t life;      /* of the sender, as it described itself */
    uint64_t seed;      /* for the checks of this pair of rings */
    uint64_t key, base; /* where answers go: slot 0 */
    uint32_t endpoint;
    uint32_t address_bytes;
    uint8_t address[REMO__OFI_ADDRESS_BYTES_MAX];
    uint64_t check;
};

/* Follows the head of message 0. */
struct remo__ofi_welcome {
    uint64_t key, base; /* where requests go: slot 0; REMO__OFI_PROBE_AT: the word for probes */
};

#define REMO__OFI_PROBE_AT \
    REMO__OFI_RING_BYTES /* 8 bytes behind the ring, written to see if the peer is there */

/* Immediates. A greeting's is its place in the table. That of a large request or answer has the bit below,
 * the place of the asking endpoint (requests only), and the slot. */
#define REMO__OFI_PLACED (UINT32_C(1) << 31)
#define REMO__OFI_WOKEN UINT32_MAX /* nothing but a wake-up */
#define REMO__OFI_PLACES_MAX (UINT32_C(1) << 27)

/* For a message of `bytes`, the check included. */
static inline uint32_t remo__ofi_immediate(size_t bytes, bool stream, uint32_t place, uint32_t seq) {
    if (stream || bytes - 8 <= REMO__OFI_CHECKED_BYTES)
        return REMO__OFI_WOKEN;
    return REMO__OFI_PLACED | place * REMO__OFI_WINDOW | seq % REMO__OFI_WINDOW;
}

static inline uint64_t remo__ofi_padded(uint64_t size_bytes) {
    return remo__align_up(size_bytes, 8);
}

static inline uint64_t remo__ofi_slot_at(uint32_t seq) {
    return (uint64_t)(seq % REMO__OFI_WINDOW) * REMO__OFI_MESSAGE_BYTES;
}

/* Of a message without its check: how much the check covers. */
static inline size_t remo__ofi_covered(size_t bytes) {
    return bytes <= REMO__OFI_CHECKED_BYTES ? bytes : sizeof(struct remo__ofi_head);
}

/* `bytes` of head and content are there: write the head and the check. Returns the size of the message. */
static inline size_t remo__ofi_seal(uint8_t *message, size_t bytes, uint32_t seq, uint32_t count,
                                    uint64_t seed) {
    struct remo__ofi_head head = {.seq = seq, .units = (uint16_t)((bytes + 8) / 8), .count = (uint16_t)count};
    memcpy(message, &head, sizeof head);
    uint64_t check = XXH3_64bits_withSeed(message, remo__ofi_covered(bytes), seed);
    memcpy(message + bytes, &check, sizeof check);
    return bytes + sizeof check;
}

/* Is message `seq` in its slot, whole? Then its head, and in `ret_bytes` its size without the check. `placed`
 * has a bit for each slot that an immediate has come for, which is taken back; a stream needs none. */
static inline bool remo__ofi_arrived(const uint8_t *slot, uint32_t seq, uint64_t seed, bool stream,
                                     uint32_t *placed, struct remo__ofi_head *ret_head, size_t *ret_bytes) {
    struct remo__ofi_head head;
    memcpy(&head, slot, sizeof head);
    if (remo__likely(head.seq != seq))
        return false;
    size_t bytes = (size_t)head.units * 8;
    if (bytes < sizeof head + 8 || bytes > REMO__OFI_MESSAGE_BYTES)
        return false;
    bytes -= 8;
    uint32_t bit = UINT32_C(1) << seq % REMO__OFI_WINDOW;
    if (bytes > REMO__OFI_CHECKED_BYTES && !stream && !(*placed & bit))
        return false;
    uint64_t check;
    memcpy(&check, slot + bytes, sizeof check);
    if (check != XXH3_64bits_withSeed(slot, remo__ofi_covered(bytes), seed))
        return false;
    *placed &= ~bit;
    *ret_head = head;
    *ret_bytes = bytes;
    return true;
}

#endif
