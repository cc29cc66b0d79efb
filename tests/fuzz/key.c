/* key.c - fuzzes the reader of keys (remo/key.h): any bytes, read as components of any types.
 * Invariant: a component that is read lies within the key, and appended again it has the same bytes. After an
 * error no further component is read. */
#include <assert.h>
#include <remo/key.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

#define COMPONENTS_MAX 8u
#define SEEDS 4u

/* An input begins with a byte for each component: its kind, order and size. */
static unsigned char code_of(uint32_t kind, uint32_t bytes, enum remo_key_order order) {
    return (unsigned char)(kind | (uint32_t)order << 2 | (bytes - 1) << 3);
}

size_t fuzz_seed(uint32_t n, uint8_t *ret_data) {
    struct remo_key key = {.data = ret_data + COMPONENTS_MAX, .cap = FUZZ_BYTES_MAX - COMPONENTS_MAX};
    if (n >= SEEDS)
        return 0;
    for (uint32_t i = 0; i < COMPONENTS_MAX; i++) {
        uint32_t kind = (i + n) % 4, bytes = kind < 2 ? 1 + (i * 3 + n) % 8 : 1;
        enum remo_key_order order = i / 2 % 2 ? REMO_KEY_DESCENDING : REMO_KEY_ASCENDING;
        ret_data[i] = code_of(kind, bytes, order);
        switch (kind) {
        case 0: remo_key_put_unsigned(&key, 100 + i, bytes, order); break;
        case 1: remo_key_put_signed(&key, -(int64_t)i, bytes, order); break;
        case 2: remo_key_put_double(&key, -1.5 * i, order); break;
        default: remo_key_put_bytes(&key, "a\0\1\2b", 5, order); break;
        }
    }
    assert(key.error == 0);
    return COMPONENTS_MAX + key.bytes;
}

static int copy_string(struct remo_key_reader *reader, enum remo_key_order order, struct remo_key *again) {
    size_t left = reader->bytes - reader->offset, bytes;
    struct remo_key_reader skip = *reader;
    int rc = remo_key_get_bytes(&skip, order, NULL, 0, &bytes);
    if (rc != 0)
        return remo_key_get_bytes(reader, order, NULL, 0, &bytes);
    assert(bytes < left);
    unsigned char *value =
        malloc(bytes + 1); /* the exact size matters: a sanitizer detects writes beyond it */
    assert(value);
    if (bytes > 0)
        assert(remo_key_get_bytes(reader, order, value, bytes - 1, &bytes) != 0 && reader->error == 0);
    rc = remo_key_get_bytes(reader, order, value, bytes, &bytes);
    assert(rc == 0 && skip.offset == reader->offset);
    assert(remo_key_put_bytes(again, value, bytes, order) == 0);
    free(value);
    return rc;
}

/* Read a component, and append it to `again`. */
static int copy_component(struct remo_key_reader *reader, unsigned char code, struct remo_key *again) {
    uint32_t value_bytes = (code >> 3) % 8 + 1u;
    enum remo_key_order order = code >> 2 & 1 ? REMO_KEY_DESCENDING : REMO_KEY_ASCENDING;
    uint64_t number;
    int64_t number_signed;
    double real;
    int rc;
    switch (code & 3) {
    case 0:
        rc = remo_key_get_unsigned(reader, value_bytes, order, &number);
        assert(rc != 0 || remo_key_put_unsigned(again, number, value_bytes, order) == 0);
        return rc;
    case 1:
        rc = remo_key_get_signed(reader, value_bytes, order, &number_signed);
        assert(rc != 0 || remo_key_put_signed(again, number_signed, value_bytes, order) == 0);
        return rc;
    case 2:
        rc = remo_key_get_double(reader, order, &real);
        assert(rc != 0 || remo_key_put_double(again, real, order) == 0);
        return rc;
    default: return copy_string(reader, order, again);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    if (bytes < COMPONENTS_MAX)
        return 0;
    size_t key_bytes = bytes - COMPONENTS_MAX;
    unsigned char *room = malloc(key_bytes + 1);
    assert(room);
    struct remo_key again = {.data = room, .cap = key_bytes};
    struct remo_key_reader reader = {.data = data + COMPONENTS_MAX, .bytes = key_bytes};
    for (uint32_t i = 0; i < COMPONENTS_MAX; i++) {
        size_t before = reader.offset;
        int rc = copy_component(&reader, data[i], &again);
        assert(rc == reader.error && reader.offset <= key_bytes);
        assert(rc == 0 ? reader.offset > before : reader.offset == before);
        assert(again.bytes == reader.offset);
    }
    assert(memcmp(again.data, reader.data, again.bytes) == 0);
    assert((remo_key_get_end(&reader) == 0) == (reader.error == 0 && reader.offset == key_bytes));
    free(room);
    return 0;
}
