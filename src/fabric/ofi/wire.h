/* wire.h - the messages that two nodes of the ofi fabric write into each other's memory.
 *
 * Offer:    an endpoint writes an offer into its entry of the peer's table of offers, with the index of the
 *           entry as the immediate. The peer creates a ring for the endpoint and answers with an acceptance,
 *           message 0 of the answers, which contains the position of the ring.
 * Request:  head, records, check; written into slot (seq % REMO__OFI_WINDOW) of the ring. The peer executes
 *           the records in order and writes the answer.
 * Answer:   head, results, failures, check; written into the slot of the same number at the requesting
 *           endpoint, which may then reuse both slots. If all records of requests are UNAWAITED writes, and
 *           none has failed, the peer may withhold their answers. The next answer then answers all of them:
 *           its slot has the number of the first request, its head the number of the last one.
 * Placing:  networks place the bytes of a write in any order and in pieces. A receiver polls the number in
 *           the head, and accepts the message when the check at its end matches the whole message. So no
 *           order of placement is assumed, and torn words are detected. Checking a large message would take
 *           too long, so its check covers only the head. Its immediate completes it, because the network
 *           delivers that after all bytes are placed. A byte stream that the receiving thread itself reads
 *           into the ring needs no immediate: all bytes before the check are placed before the check.
 * Numbers:  in native byte order; nodes with different byte orders refuse to connect. All parts are multiples
 *           of 8 bytes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <xxhash.h>

#include "base/bits.h"

#define REMO__OFI_MAGIC UINT32_C(0x0f1e0003) /* and the version */
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

/* One operation, or a fragment of it. Operands follow the record. Write: the data, padded to 8 bytes, and the
 * immediate (8 bytes) if there is one. Fetch-add: the addend. Compare-swap: the expected and the new value.
 * The result of a read is the data, padded to 8 bytes; of an atomic the old value; of a write nothing. The
 * result of a failed record has the same size and undefined content. */
struct remo__ofi_record {
    uint64_t offset;
    uint32_t size_bytes;
    uint8_t kind;  /* enum remo__op_kind */
    uint8_t flags; /* REMO__OP_NOTIFY, REMO__OP_IMM, REMO__OP_UNAWAITED */
    uint16_t zero;
};

struct remo__ofi_failure {
    uint32_t record; /* index in all requests of the answer */
    int32_t status;
};

/* Written into entry `endpoint` of the sender's part of the table. */
struct remo__ofi_offer {
    uint64_t incarnation; /* the sender's, as in its description */
    uint64_t seed;        /* for the checks of this pair of rings */
    uint64_t key, base;   /* of the answers: slot 0 */
    uint32_t endpoint;
    uint32_t address_bytes;
    uint8_t address[REMO__OFI_ADDRESS_BYTES_MAX];
    uint64_t check;
};

/* Follows the head of message 0. */
struct remo__ofi_acceptance {
    uint64_t key, base; /* of the requests: slot 0; the word for probes is at REMO__OFI_PROBE_AT */
};

#define REMO__OFI_PROBE_AT \
    REMO__OFI_RING_BYTES /* 8 bytes after the ring, written to detect a lost connection */

/* Immediates. The immediate of an offer is the index of its entry. The immediate of a large request or answer
 * has the bit below, then the source and the slot. The source of a request is the entry of its endpoint; the
 * source of an answer is the rank of its node. */
#define REMO__OFI_PLACED (UINT32_C(1) << 31)
#define REMO__OFI_WOKEN UINT32_MAX /* only a wake-up */
#define REMO__OFI_ENTRIES_MAX (UINT32_C(1) << 27)

/* The immediate of a message of `bytes`, the check included. */
static inline uint32_t remo__ofi_immediate(size_t bytes, bool stream, uint32_t source, uint32_t seq) {
    if (stream || bytes - 8 <= REMO__OFI_CHECKED_BYTES)
        return REMO__OFI_WOKEN;
    return REMO__OFI_PLACED | source * REMO__OFI_WINDOW | seq % REMO__OFI_WINDOW;
}

static inline uint64_t remo__ofi_padded(uint64_t size_bytes) {
    return remo__align_up(size_bytes, 8);
}

static inline uint64_t remo__ofi_slot_at(uint32_t seq) {
    return (uint64_t)(seq % REMO__OFI_WINDOW) * REMO__OFI_MESSAGE_BYTES;
}

/* The bytes that the check covers, of a message of `bytes` without its check. */
static inline size_t remo__ofi_covered(size_t bytes) {
    return bytes <= REMO__OFI_CHECKED_BYTES ? bytes : sizeof(struct remo__ofi_head);
}

/* Write the head and the check of a message with `bytes` of head and content. Returns its total size. */
static inline size_t remo__ofi_seal(uint8_t *message, size_t bytes, uint32_t seq, uint32_t count,
                                    uint64_t seed) {
    struct remo__ofi_head head = {.seq = seq, .units = (uint16_t)((bytes + 8) / 8), .count = (uint16_t)count};
    memcpy(message, &head, sizeof head);
    uint64_t check = XXH3_64bits_withSeed(message, remo__ofi_covered(bytes), seed);
    memcpy(message + bytes, &check, sizeof check);
    return bytes + sizeof check;
}

/* True if a message with a number from `seq` to `last` is completely placed in the slot of `seq`. Returns its
 * head, and in `ret_bytes` its size without the check. `placed` has a bit for each slot whose immediate has
 * arrived; the bit is cleared. A stream needs no bit. */
static inline bool remo__ofi_arrived(const uint8_t *slot, uint32_t seq, uint32_t last, uint64_t seed,
                                     bool stream, uint32_t *placed, struct remo__ofi_head *ret_head,
                                     size_t *ret_bytes) {
    struct remo__ofi_head head;
    memcpy(&head, slot, sizeof head);
    if (remo__likely(head.seq - seq > last - seq))
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
