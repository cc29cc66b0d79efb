/* ring_record.c - fuzzes the ring that a sender writes: any bytes, at any position. The receiver reads only
 * the ring, and writes only its buffers. Input: u8 flags, u8 capacity in lines of 64 less 4, u16 position in
 * units of 16 bytes, u16 lap, u16 capacity of the buffer, the ring. */
#include "objects/ring_record.h"

#include <assert.h>
#include <stdlib.h>

#include "fuzz.h"

#define PREFIX_BYTES 8u

enum { GOOD_SUM = 1, GOOD_LAP = 2, MASKED = 4, SEALED = 8 };

static enum remo__record_guard guard_of(uint8_t flags) {
    return flags & SEALED ? REMO__RECORD_SEAL : flags & MASKED ? REMO__RECORD_MASK : REMO__RECORD_CHECKSUM;
}

/* Write the right checksum, as a malicious sender would: without it a fuzzer does not reach the code behind
 * the check. */
static void mend(char *ring, const struct remo__ring_cursor *cursor, uint8_t flags) {
    uint64_t *words = (uint64_t *)(void *)(ring + cursor->offset);
    if (flags & GOOD_LAP)
        words[0] = (uint64_t)cursor->lap << 32 | (uint32_t)words[0];
    uint32_t size = (uint32_t)words[0];
    uint64_t room = cursor->capacity - cursor->offset - REMO__RECORD_HEADER_BYTES;
    if (!(flags & GOOD_SUM))
        return;
    if (cursor->guard == REMO__RECORD_SEAL) {
        words[1] = remo__record_seal(cursor, words[0]);
        return;
    }
    uint32_t message_bytes = size == REMO__RECORD_FILLER ? 0 : (uint32_t)remo__min(size, room);
    bool is_masked = cursor->guard == REMO__RECORD_MASK;
    size_t count = is_masked ? remo__record_words(message_bytes) : 0;
    remo__record_mask(cursor, words + 2, count);
    words[1] =
        remo__record_checksum(cursor, words[0], words + 2, is_masked ? count * sizeof *words : message_bytes);
    remo__record_mask(cursor, words + 2, count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    if (bytes < PREFIX_BYTES)
        return 0;
    uint64_t capacity = 64 * (4 + (uint64_t)data[1]);
    uint32_t place = (data[2] | data[3] << 8) % (uint32_t)(capacity / 16),
             lap = (uint32_t)(data[4] | data[5] << 8);
    size_t room = (size_t)(data[6] | data[7] << 8), most = remo__record_message_max(capacity);
    struct remo__ring_cursor cursor = {.capacity = capacity,
                                       .offset = 16 * place,
                                       .lap = lap + 1,
                                       .position = lap * capacity + 16 * place,
                                       .guard = guard_of(data[0])};
    char *ring = aligned_alloc(64, capacity), *buffer = malloc(room ? room : 1),
         *scratch = malloc(most ? most : 1);
    assert(ring && buffer && scratch);
    memset(ring, 0, capacity);
    memcpy(ring, data + PREFIX_BYTES, remo__min(capacity, bytes - PREFIX_BYTES));
    mend(ring, &cursor, data[0]);
    uint32_t size = 0;
    enum remo__record_kind kind = remo__record_decode(ring, &cursor, buffer, room, scratch, &size);
    if (kind == REMO__RECORD_MESSAGE) {
        uint64_t *payload = (uint64_t *)(void *)(ring + cursor.offset + REMO__RECORD_HEADER_BYTES);
        assert(size <= most && remo__record_bytes(size) <= capacity - cursor.offset);
        if (cursor.guard == REMO__RECORD_MASK)
            remo__record_mask(&cursor, payload, remo__record_words(size));
        if (size <= room || cursor.guard != REMO__RECORD_SEAL)
            assert(memcmp(size <= room ? buffer : scratch, payload, size) == 0);
    }
    free(ring);
    free(buffer);
    free(scratch);
    return 0;
}

/* A message, one at the end of its lap, the longest one, an empty one, a filler; each with and without
 * `mend`, and with each guard. */
size_t fuzz_seed(uint32_t n, uint8_t *ret_data) {
    static const struct {
        uint32_t size;
        uint16_t place;
    } records[] = {{5, 0}, {16, 14}, {48, 3}, {0, 15}, {REMO__RECORD_FILLER, 9}};
    static const uint8_t guards[] = {0, MASKED, SEALED};
    uint8_t flag = guards[n / 2 % 3];
    uint32_t index = n / 6;
    if (index >= sizeof records / sizeof records[0])
        return 0;
    uint64_t image[64] = {0};
    char payload[256];
    const struct remo__ring_cursor cursor = {.capacity = 256,
                                             .offset = records[index].place * 16u,
                                             .lap = 1,
                                             .position = records[index].place * 16u,
                                             .guard = guard_of(flag)};
    memset(payload, 'x', sizeof payload);
    memset(ret_data, 0, PREFIX_BYTES + 256);
    ret_data[0] = (uint8_t)((n & 1 ? GOOD_SUM | GOOD_LAP : 0) | flag);
    ret_data[2] = (uint8_t)records[index].place;
    ret_data[6] = 64;
    uint64_t length = remo__record_encode(image, &cursor, records[index].size, payload);
    memcpy(ret_data + PREFIX_BYTES + cursor.offset, image, length); /* a sealed payload stays zero */
    return PREFIX_BYTES + 256;
}
