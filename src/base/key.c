/* key.c - implements remo/key.h: components appended to a buffer, and read again.
 * Invariants: a call writes within the buffer, and changes a key or a reader only if it succeeds; each value
 * has one encoding, so a component that is read has the bytes of the one that would be appended. The header
 * describes the encoding. */
#include <remo/key.h>

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "base/bits.h"
#include "base/error.h"

#define WORD_BYTES_MAX 8u
#define STRING_END 0u
#define ESCAPE 1u /* escapes both bytes: a byte b is ESCAPE, b + 1 */

/* Return the first number that does not fit into a word of `word_bytes` bytes, or 0 for 8 bytes. */
static uint64_t limit_of(uint32_t word_bytes) {
    return word_bytes == WORD_BYTES_MAX ? 0 : UINT64_C(1) << 8 * word_bytes;
}

static uint64_t sign_of(uint32_t word_bytes) {
    return UINT64_C(1) << (8 * word_bytes - 1);
}

static unsigned char mask_of(enum remo_key_order order) {
    return order == REMO_KEY_DESCENDING ? 0xff : 0;
}

static int check_order(enum remo_key_order order) {
    if (order == REMO_KEY_ASCENDING || order == REMO_KEY_DESCENDING)
        return 0;
    return remo__fail(-EINVAL, "the order %d of a component is unknown; use an order REMO_KEY_...",
                      (int)order);
}

static int check_sizes(uint32_t word_bytes, enum remo_key_order order) {
    if (word_bytes == 0 || word_bytes > WORD_BYTES_MAX)
        return remo__fail(-EINVAL, "an integer of a key cannot have %" PRIu32 " bytes; use 1 to %u",
                          word_bytes, WORD_BYTES_MAX);
    return check_order(order);
}

/* ---- append ---- */

static int check_key(const struct remo_key *key) {
    if ((key->data || key->cap == 0) && key->bytes <= key->cap)
        return 0;
    return remo__fail(-EINVAL,
                      "cannot change a key of %zu bytes in a buffer of %zu bytes at %p: it was not "
                      "initialised; set data and cap to a buffer, and bytes and error to 0",
                      key->bytes, key->cap, (void *)key->data);
}

/* Check that `bytes` further bytes fit. */
static int check_space(const struct remo_key *key, size_t bytes) {
    if (bytes <= key->cap - key->bytes)
        return 0;
    return remo__fail(-EMSGSIZE,
                      "a component of %zu bytes or more does not fit into a key: %zu of %zu bytes are left; "
                      "use a larger buffer",
                      bytes, key->cap - key->bytes, key->cap);
}

static int put_word(struct remo_key *key, uint64_t word, uint32_t word_bytes, enum remo_key_order order) {
    int rc = check_space(key, word_bytes);
    if (rc != 0)
        return rc;
    unsigned char *at = key->data + key->bytes;
    for (uint32_t i = 0; i < word_bytes; i++)
        at[i] = (unsigned char)(word >> 8 * (word_bytes - 1 - i)) ^ mask_of(order);
    key->bytes += word_bytes;
    return 0;
}

int remo_key_put_unsigned(struct remo_key *key, uint64_t value, uint32_t value_bytes,
                          enum remo_key_order order) {
    REMO__REQUIRE(key);
    if (key->error != 0)
        return key->error;
    int rc = check_key(key);
    rc = rc ? rc : check_sizes(value_bytes, order);
    if (rc == 0 && limit_of(value_bytes) != 0 && value >= limit_of(value_bytes))
        rc = remo__fail(-ERANGE,
                        "%" PRIu64 " does not fit into an unsigned integer of %" PRIu32
                        " bytes of a key; use more bytes",
                        value, value_bytes);
    return key->error = rc ? rc : put_word(key, value, value_bytes, order);
}

int remo_key_put_signed(struct remo_key *key, int64_t value, uint32_t value_bytes,
                        enum remo_key_order order) {
    REMO__REQUIRE(key);
    if (key->error != 0)
        return key->error;
    int rc = check_key(key);
    rc = rc ? rc : check_sizes(value_bytes, order);
    if (rc != 0)
        return key->error = rc;
    /* The smallest number of this size becomes 0. */
    uint64_t shifted = (uint64_t)value + sign_of(value_bytes);
    if (limit_of(value_bytes) != 0 && shifted >= limit_of(value_bytes))
        rc = remo__fail(-ERANGE,
                        "%" PRId64 " does not fit into a signed integer of %" PRIu32
                        " bytes of a key; use more bytes",
                        value, value_bytes);
    return key->error = rc ? rc : put_word(key, shifted, value_bytes, order);
}

/* The order of the results, as unsigned numbers, is that of the doubles. */
static uint64_t word_of_double(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits ^ (bits & sign_of(8) ? UINT64_MAX : sign_of(8));
}

static double double_of_word(uint64_t word) {
    double value;
    word ^= word & sign_of(8) ? sign_of(8) : UINT64_MAX;
    memcpy(&value, &word, sizeof value);
    return value;
}

int remo_key_put_double(struct remo_key *key, double value, enum remo_key_order order) {
    REMO__REQUIRE(key);
    if (key->error != 0)
        return key->error;
    int rc = check_key(key);
    rc = rc ? rc : check_order(order);
    return key->error = rc ? rc : put_word(key, word_of_double(value), sizeof value, order);
}

static size_t encoded_bytes(const unsigned char *value, size_t value_bytes) {
    size_t bytes = value_bytes + 1;
    for (size_t i = 0; i < value_bytes; i++)
        bytes += value[i] <= ESCAPE;
    return bytes;
}

static int put_string(struct remo_key *key, const unsigned char *value, size_t value_bytes,
                      unsigned char mask) {
    int rc = check_space(key, value_bytes); /* so the sum below does not overflow */
    rc = rc ? rc : check_space(key, encoded_bytes(value, value_bytes));
    if (rc != 0)
        return rc;
    unsigned char *at = key->data + key->bytes;
    for (size_t i = 0; i < value_bytes; i++) {
        if (value[i] <= ESCAPE)
            *at++ = ESCAPE ^ mask;
        *at++ = (unsigned char)(value[i] <= ESCAPE ? value[i] + 1 : value[i]) ^ mask;
    }
    *at++ = STRING_END ^ mask;
    key->bytes = (size_t)(at - key->data);
    return 0;
}

int remo_key_put_bytes(struct remo_key *key, const void *value, size_t value_bytes,
                       enum remo_key_order order) {
    REMO__REQUIRE(key);
    if (key->error != 0)
        return key->error;
    int rc = check_key(key);
    rc = rc ? rc : check_order(order);
    if (rc == 0 && !value && value_bytes > 0)
        rc = remo__fail_null(__func__, "value");
    return key->error = rc ? rc : put_string(key, value, value_bytes, mask_of(order));
}

int remo_key_prefix_end(struct remo_key *key) {
    REMO__REQUIRE(key);
    if (key->error != 0)
        return key->error;
    int rc = check_key(key);
    if (rc != 0)
        return key->error = rc;
    size_t bytes = key->bytes;
    while (bytes > 0 && key->data[bytes - 1] == 0xff)
        bytes--;
    if (bytes == 0)
        return key->error = remo__fail(-ERANGE,
                                       "a prefix has no end: no key follows all keys that begin with "
                                       "these %zu bytes; scan to the end of the tree",
                                       key->bytes);
    key->data[bytes - 1]++;
    key->bytes = bytes;
    return 0;
}

/* ---- read ---- */

static int check_reader(const struct remo_key_reader *reader) {
    if ((reader->data || reader->bytes == 0) && reader->offset <= reader->bytes)
        return 0;
    return remo__fail(-EINVAL,
                      "cannot read byte %zu of a key of %zu bytes at %p: the reader was not initialised; "
                      "set data and bytes to a key, and offset and error to 0",
                      reader->offset, reader->bytes, reader->data);
}

static int get_word(struct remo_key_reader *reader, uint32_t word_bytes, enum remo_key_order order,
                    uint64_t *ret_word) {
    uint64_t word = 0;
    if (word_bytes > reader->bytes - reader->offset)
        return remo__fail(-EBADMSG,
                          "a key of %zu bytes has no number of %" PRIu32 " bytes at byte %zu; read "
                          "the components that were appended",
                          reader->bytes, word_bytes, reader->offset);
    const unsigned char *at = (const unsigned char *)reader->data + reader->offset;
    for (uint32_t i = 0; i < word_bytes; i++)
        word = word << 8 | (at[i] ^ mask_of(order));
    reader->offset += word_bytes;
    *ret_word = word;
    return 0;
}

int remo_key_get_unsigned(struct remo_key_reader *reader, uint32_t value_bytes, enum remo_key_order order,
                          uint64_t *ret_value) {
    REMO__REQUIRE(reader);
    if (reader->error != 0)
        return reader->error;
    int rc = ret_value ? check_reader(reader) : remo__fail_null(__func__, "ret_value");
    rc = rc ? rc : check_sizes(value_bytes, order);
    return reader->error = rc ? rc : get_word(reader, value_bytes, order, ret_value);
}

int remo_key_get_signed(struct remo_key_reader *reader, uint32_t value_bytes, enum remo_key_order order,
                        int64_t *ret_value) {
    uint64_t shifted;
    int rc = remo_key_get_unsigned(reader, value_bytes, order, ret_value ? &shifted : NULL);
    if (rc == 0)
        *ret_value = (int64_t)(shifted - sign_of(value_bytes));
    return rc;
}

int remo_key_get_double(struct remo_key_reader *reader, enum remo_key_order order, double *ret_value) {
    uint64_t word;
    int rc = remo_key_get_unsigned(reader, sizeof word, order, ret_value ? &word : NULL);
    if (rc == 0)
        *ret_value = double_of_word(word);
    return rc;
}

struct string_bounds {
    size_t bytes; /* of the string */
    size_t end;   /* the offset after its end */
};

/* Find the end of a string, and verify each of its bytes. */
static int measure(const struct remo_key_reader *reader, unsigned char mask, struct string_bounds *ret) {
    const unsigned char *data = reader->data;
    size_t at = reader->offset, bytes = 0;
    for (; at < reader->bytes && (data[at] ^ mask) != STRING_END; at++, bytes++)
        if ((data[at] ^ mask) == ESCAPE) {
            at++;
            if (at < reader->bytes && (data[at] ^ mask) - 1u > ESCAPE)
                return remo__fail(-EBADMSG,
                                  "the byte %u at byte %zu of a key cannot be in a string; read the "
                                  "components that were appended",
                                  data[at], at);
        }
    if (at >= reader->bytes)
        return remo__fail(-EBADMSG,
                          "a string at byte %zu of a key of %zu bytes does not end; read the "
                          "components that were appended",
                          reader->offset, reader->bytes);
    *ret = (struct string_bounds){.bytes = bytes, .end = at + 1};
    return 0;
}

static void copy_string(const unsigned char *from, unsigned char mask, size_t bytes, unsigned char *into) {
    for (size_t i = 0; i < bytes; i++) {
        into[i] = *from++ ^ mask;
        if (into[i] == ESCAPE)
            into[i] = (unsigned char)((*from++ ^ mask) - 1);
    }
}

int remo_key_get_bytes(struct remo_key_reader *reader, enum remo_key_order order, void *value, size_t cap,
                       size_t *ret_value_bytes) {
    struct string_bounds bounds = {0, 0};
    REMO__REQUIRE(reader);
    if (reader->error != 0)
        return reader->error;
    int rc = ret_value_bytes ? check_reader(reader) : remo__fail_null(__func__, "ret_value_bytes");
    rc = rc ? rc : check_order(order);
    rc = rc ? rc : measure(reader, mask_of(order), &bounds);
    if (rc != 0)
        return reader->error = rc;
    *ret_value_bytes = bounds.bytes;
    if (value && bounds.bytes > cap)
        return remo__fail(-EMSGSIZE,
                          "a string of a key has %zu bytes, but the buffer has %zu; repeat the call "
                          "with a larger buffer",
                          bounds.bytes, cap);
    if (value)
        copy_string((const unsigned char *)reader->data + reader->offset, mask_of(order), bounds.bytes,
                    value);
    reader->offset = bounds.end;
    return 0;
}

int remo_key_get_end(struct remo_key_reader *reader) {
    REMO__REQUIRE(reader);
    if (reader->error != 0)
        return reader->error;
    int rc = check_reader(reader);
    if (rc == 0 && reader->offset < reader->bytes)
        rc = remo__fail(-EBADMSG,
                        "%zu bytes of a key of %zu bytes are left; read the components that were "
                        "appended",
                        reader->bytes - reader->offset, reader->bytes);
    return reader->error = rc;
}
