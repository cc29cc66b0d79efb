/* formats.c - unit tests of the formats of cells and ring records under torn writes.
 *
 * For any subset of placed words of a write, a reader must return the whole new value, the whole old value,
 * or nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "objects/cell.h"
#include "objects/ring_record.h"
#include "unit.h"

static struct remo__random dice;

/* Place some of the words of a write, each with probability `odds` / 64. The other words keep their
 * values. */
static void place_some(void *to, const void *from, size_t bytes, uint64_t odds) {
    for (size_t at = 0; at < bytes; at += 8)
        if (remo__random_below(&dice, 64) < odds)
            memcpy((char *)to + at, (const char *)from + at, remo__min(8, bytes - at));
}

/* ---- cells ---- */

static void fill_value(unsigned char *value, size_t bytes, uint64_t n) {
    for (size_t i = 0; i < bytes; i++)
        value[i] = (unsigned char)(n * 3 + i);
}

static void encode_slot(char *slot, const struct remo__cell_shape *shape, uint64_t n) {
    uint64_t *header = (uint64_t *)(void *)slot;
    fill_value((unsigned char *)slot + REMO__CELL_HEADER_BYTES, shape->value_bytes, n);
    header[0] = n;
    header[1] = remo__cell_checksum(n, slot + REMO__CELL_HEADER_BYTES, shape->value_bytes);
}

/* Value n is being written over value n - 2; the other slot holds n - 1. */
static void tear_cell(const struct remo__cell_shape *shape, char *cell, char *image, unsigned char *found,
                      uint64_t n) {
    unsigned char expected[600];
    uint64_t sequence = UINT64_MAX;
    char *slot = cell + (n & 1) * shape->slot_bytes;
    encode_slot(image, shape, n);
    for (uint64_t odds = 0; odds <= 64; odds += 16) {
        place_some(slot, image, REMO__CELL_HEADER_BYTES + shape->value_bytes, odds);
        assert_int_equal(remo__cell_load(shape, cell, found, &sequence), 0);
        assert_true(sequence == n || (odds < 64 && sequence == n - 1));
        fill_value(expected, shape->value_bytes, sequence);
        if (sequence > 0)
            assert_memory_equal(found, expected, shape->value_bytes);
        uint32_t whole = remo__cell_whole(shape, cell), other = n & 1 ? 1 : 2;
        assert_true(whole == 3 || (whole == other && sequence == n - 1));
    }
}

static void cells_survive_tearing(void **state) {
    static const size_t sizes[] = {1, 8, 9, 16, 17, 40, 100, 600};
    (void)state;
    for (size_t i = 0; i < REMO__ARRAY_COUNT(sizes); i++) {
        struct remo__cell_shape shape = remo__cell_shape(sizes[i], false);
        char *cell = aligned_alloc(64, shape.bytes), *image = malloc(shape.slot_bytes);
        unsigned char found[600];
        memset(cell, 0, shape.bytes);
        for (uint64_t n = 1; n < 2000; n++)
            tear_cell(&shape, cell, image, found, n);
        free(cell);
        free(image);
    }
}

/* A value that was never written whole reads as zero, even if a part of the first write is placed. */
static void cells_begin_with_zero(void **state) {
    struct remo__cell_shape shape = remo__cell_shape(100, false);
    char *cell = aligned_alloc(64, shape.bytes);
    unsigned char found[100], zero[100] = "";
    uint64_t sequence;
    (void)state;
    memset(cell, 0, shape.bytes);
    assert_int_equal(remo__cell_load(&shape, cell, found, &sequence), 0);
    assert_memory_equal(found, zero, sizeof zero);
    memset(cell + REMO__CELL_HEADER_BYTES, 1, 50);
    assert_int_equal(remo__cell_load(&shape, cell, found, &sequence), 0);
    assert_memory_equal(found, zero, sizeof zero);
    assert_int_equal(remo__cell_whole(&shape, cell), 3);
    assert_memory_equal(cell + REMO__CELL_HEADER_BYTES, zero, sizeof zero);
    free(cell);
}

/* Both slots torn: nothing is returned, and the caller's output buffer stays unchanged. */
static void torn_cells_are_refused(void **state) {
    struct remo__cell_shape shape = remo__cell_shape(100, false);
    char *cell = aligned_alloc(64, shape.bytes);
    unsigned char found[100];
    uint64_t sequence = 77;
    (void)state;
    memset(cell, 0x5a, shape.bytes);
    assert_int_equal(remo__cell_load(&shape, cell, found, &sequence), -EAGAIN);
    assert_int_equal(remo__cell_whole(&shape, cell), 0);
    assert_int_equal(sequence, 77);
    free(cell);
}

static void small_cells_share_a_line(void **state) {
    (void)state;
    assert_int_equal(remo__cell_shape(8, true).bytes, 64);
    assert_int_equal(remo__cell_shape(8, true).slot_bytes, 0);
    assert_int_equal(remo__cell_shape(16, false).bytes, 64);
    assert_int_equal(remo__cell_shape(17, false).bytes, 128);
    assert_int_equal(remo__cell_shape(48, false).slot_bytes, 64);
    assert_int_equal(remo__cell_shape(49, false).slot_bytes, 128);
}

/* ---- ring records ---- */

#define CAPACITY 1024u

struct stream {
    char *ring, *image, *scratch;
    struct remo__ring_cursor cursor;
};

static struct stream stream_open(enum remo__record_guard guard) {
    struct stream stream = {.ring = aligned_alloc(64, CAPACITY),
                            .image = malloc(CAPACITY),
                            .scratch = malloc(CAPACITY),
                            .cursor = {.capacity = CAPACITY, .lap = 1, .guard = guard}};
    memset(stream.ring, 0, CAPACITY);
    return stream;
}

static void stream_close(struct stream *stream) {
    free(stream->ring);
    free(stream->image);
    free(stream->scratch);
}

static enum remo__record_kind decode(struct stream *stream, unsigned char *found, uint32_t *ret_size) {
    return remo__record_decode(stream->ring, &stream->cursor, found, CAPACITY, stream->scratch, ret_size);
}

static void close_lap(struct stream *stream) {
    uint32_t size;
    unsigned char found[CAPACITY];
    uint64_t bytes = remo__record_encode(stream->image, &stream->cursor, REMO__RECORD_FILLER, NULL);
    memcpy(stream->ring + stream->cursor.offset, stream->image, bytes);
    assert_int_equal(decode(stream, found, &size), REMO__RECORD_FILLING);
    remo__ring_next_lap(&stream->cursor);
}

/* Every record is placed word by word over remains of earlier laps. */
static void check_tearing(enum remo__record_guard guard) {
    struct stream stream = stream_open(guard);
    bool masked = guard == REMO__RECORD_MASK;
    unsigned char message[CAPACITY], found[CAPACITY];
    for (uint32_t n = 0; n < 20000; n++) {
        uint32_t size = (uint32_t)remo__random_below(&dice, remo__record_message_max(CAPACITY) + 1), got = 0;
        memset(message, (int)n, size);
        if (remo__record_bytes(size) > CAPACITY - stream.cursor.offset)
            close_lap(&stream);
        uint64_t bytes = remo__record_encode(stream.image, &stream.cursor, size, message);
        assert_int_equal(bytes, REMO__RECORD_HEADER_BYTES + (masked ? remo__align_up(size, 8) : size));
        for (uint64_t odds = 0; odds <= 64; odds += 16) {
            place_some(stream.ring + stream.cursor.offset, stream.image, bytes, odds);
            enum remo__record_kind kind = decode(&stream, found, &got);
            if (kind == REMO__RECORD_NONE && odds < 64)
                continue;
            assert_int_equal(kind, REMO__RECORD_MESSAGE);
            assert_int_equal(got, size);
            assert_memory_equal(found, message, size);
        }
        remo__ring_advance(&stream.cursor, remo__record_bytes(size));
        assert_int_equal(decode(&stream, found, &got), REMO__RECORD_NONE);
    }
    assert_true(stream.cursor.lap > 1000);
    stream_close(&stream);
}

static void records_survive_tearing(void **state) {
    (void)state;
    check_tearing(REMO__RECORD_CHECKSUM);
}

static void masked_records_survive_tearing(void **state) {
    (void)state;
    check_tearing(REMO__RECORD_MASK);
}

/* A masked record does not match before its last word is in place, even if the message equals the memory. */
static void late_words_are_awaited(void **state) {
    (void)state;
    for (uint32_t masked = 0; masked < 2; masked++)
        for (uint32_t size = 1; size <= 64; size++) {
            struct stream stream = stream_open(masked ? REMO__RECORD_MASK : REMO__RECORD_CHECKSUM);
            unsigned char message[64] = {0}, found[CAPACITY];
            uint32_t got = 0;
            uint64_t bytes = remo__record_encode(stream.image, &stream.cursor, size, message);
            memcpy(stream.ring, stream.image, (bytes - 1) / 8 * 8);
            assert_int_equal(decode(&stream, found, &got), masked ? REMO__RECORD_NONE : REMO__RECORD_MESSAGE);
            memcpy(stream.ring, stream.image, bytes);
            assert_int_equal(decode(&stream, found, &got), REMO__RECORD_MESSAGE);
            assert_int_equal(got, size);
            assert_memory_equal(found, message, size);
            stream_close(&stream);
        }
}

/* A record from 2^32 laps ago, whose lap number is the same, is not accepted as a new record. */
static void old_records_stay_old(void **state) {
    struct stream stream = stream_open(REMO__RECORD_CHECKSUM);
    unsigned char found[CAPACITY];
    uint32_t size;
    (void)state;
    uint64_t bytes = remo__record_encode(stream.image, &stream.cursor, 5, "hello");
    memcpy(stream.ring, stream.image, bytes);
    assert_int_equal(decode(&stream, found, &size), REMO__RECORD_MESSAGE);
    stream.cursor.position += (uint64_t)CAPACITY << 32;
    assert_int_equal(decode(&stream, found, &size), REMO__RECORD_NONE);
    stream_close(&stream);
}

/* A sealed record matches when its header is complete, and never by the bytes of another position. */
static void seals_prove_headers(void **state) {
    struct stream stream = stream_open(REMO__RECORD_SEAL);
    unsigned char found[CAPACITY];
    uint32_t size = 0;
    (void)state;
    for (uint32_t n = 0; n < 2000; n++) {
        char message[16];
        snprintf(message, sizeof message, "message %u", n);
        if (stream.cursor.capacity - stream.cursor.offset < 48)
            close_lap(&stream);
        char *record = stream.ring + stream.cursor.offset;
        memcpy(record + REMO__RECORD_HEADER_BYTES, message, sizeof message);
        assert_int_equal(decode(&stream, found, &size), REMO__RECORD_NONE);
        assert_int_equal(remo__record_encode(stream.image, &stream.cursor, sizeof message, message),
                         REMO__RECORD_HEADER_BYTES);
        uint64_t seal = remo__load(record + 8);
        memcpy(record, stream.image, 8); /* the size and the lap without the seal */
        assert_int_equal(decode(&stream, found, &size), REMO__RECORD_NONE);
        memcpy(record + 8, stream.image + 8, 8);
        assert_int_not_equal(seal, remo__load(record + 8));
        assert_int_equal(decode(&stream, found, &size), REMO__RECORD_MESSAGE);
        assert_int_equal(size, sizeof message);
        assert_memory_equal(found, message, sizeof message);
        assert_int_equal(remo__record_decode(stream.ring, &stream.cursor, found, 3, NULL, &size),
                         REMO__RECORD_MESSAGE); /* it is not copied */
        assert_int_equal(size, sizeof message);
        remo__ring_advance(&stream.cursor, remo__record_bytes(sizeof message));
    }
    stream.cursor.position += (uint64_t)CAPACITY << 32;
    assert_int_equal(decode(&stream, found, &size), REMO__RECORD_NONE);
    stream_close(&stream);
}

/* A read into a buffer that is too small writes nothing beyond its end; the message is still verified. */
static void check_small_buffer(enum remo__record_guard guard) {
    struct stream stream = stream_open(guard);
    unsigned char found[32] = "1234567"; /* so long that the compiler does not warn */
    uint32_t size = 0;
    memcpy(stream.ring, stream.image, remo__record_encode(stream.image, &stream.cursor, 8, "abcdefgh"));
    assert_int_equal(remo__record_decode(stream.ring, &stream.cursor, found, 7, stream.scratch, &size),
                     REMO__RECORD_MESSAGE);
    assert_int_equal(size, 8);
    assert_memory_equal(found, "1234567", 8);
    assert_int_equal(remo__record_decode(stream.ring, &stream.cursor, found, 8, stream.scratch, &size),
                     REMO__RECORD_MESSAGE);
    assert_memory_equal(found, "abcdefgh", 8);
    stream_close(&stream);
}

static void small_buffers(void **state) {
    (void)state;
    check_small_buffer(REMO__RECORD_CHECKSUM);
    check_small_buffer(REMO__RECORD_MASK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cells_survive_tearing),   cmocka_unit_test(cells_begin_with_zero),
        cmocka_unit_test(torn_cells_are_refused),  cmocka_unit_test(small_cells_share_a_line),
        cmocka_unit_test(records_survive_tearing), cmocka_unit_test(masked_records_survive_tearing),
        cmocka_unit_test(late_words_are_awaited),  cmocka_unit_test(old_records_stay_old),
        cmocka_unit_test(seals_prove_headers),     cmocka_unit_test(small_buffers)};
    remo__random_seed(&dice, 4711);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
