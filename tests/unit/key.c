/* key.c - unit tests of remo/key.h: the order of memcmp of keys is that of their values, for random pairs of
 * each type and of tuples, ascending and descending; what is read equals what was appended; no call writes
 * beyond the buffer. */
#include <remo/key.h>

#include <errno.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/bits.h"
#include "base/error.h"
#include "base/random.h"
#include "unit.h"

#define PAIRS 200000u
#define STRING_BYTES_MAX 6u
#define COMPONENTS_MAX 4u
#define KEY_BYTES_MAX (COMPONENTS_MAX * (2 * STRING_BYTES_MAX + 1))

enum kind { UNSIGNED, SIGNED, DOUBLE, STRING, KINDS };

struct component {
    uint64_t word; /* of an integer, or the bits of a double */
    unsigned char string[STRING_BYTES_MAX];
    size_t bytes; /* of the string */
};

/* The common properties of the components at one position. */
struct type {
    enum kind kind;
    uint32_t bytes; /* of an integer */
    enum remo_key_order order;
};

static double double_of(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint64_t bits_of(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* ---- a model of the order ---- */

static int compare_memory(const void *a, size_t a_bytes, const void *b, size_t b_bytes) {
    int order = memcmp(a, b, remo__min(a_bytes, b_bytes));
    return order ? (order > 0) - (order < 0) : (a_bytes > b_bytes) - (a_bytes < b_bytes);
}

/* As totalOrder of IEEE 754, by the sign, the comparison of C, and the payloads of NaNs. */
static int compare_doubles(double a, double b) {
    int sign_a = signbit(a) != 0, sign_b = signbit(b) != 0;
    if (sign_a != sign_b)
        return sign_b - sign_a;
    if (!isnan(a) && !isnan(b))
        return (a > b) - (a < b);
    uint64_t payload_a = isnan(a) ? bits_of(a) << 12 : 0, payload_b = isnan(b) ? bits_of(b) << 12 : 0;
    int order = (payload_a > payload_b) - (payload_a < payload_b);
    return sign_a ? -order : order;
}

static int compare_component(const struct type *type, const struct component *a, const struct component *b) {
    int order = 0;
    switch (type->kind) {
    case UNSIGNED: order = (a->word > b->word) - (a->word < b->word); break;
    case SIGNED: order = ((int64_t)a->word > (int64_t)b->word) - ((int64_t)a->word < (int64_t)b->word); break;
    case DOUBLE: order = compare_doubles(double_of(a->word), double_of(b->word)); break;
    default: order = compare_memory(a->string, a->bytes, b->string, b->bytes); break;
    }
    return type->order == REMO_KEY_DESCENDING ? -order : order;
}

/* ---- random values, often equal or close to each other ---- */

static uint64_t random_word(struct remo__random *dice, const struct type *type) {
    static const double doubles[] = {0.0, -0.0, 1, -1, INFINITY, -INFINITY, NAN, -NAN, DBL_MIN, -DBL_MIN};
    uint64_t word = remo__random_next(dice), shift = 64 - 8 * (uint64_t)type->bytes;
    if (type->kind == DOUBLE)
        return word % 4 ? bits_of(doubles[word % REMO__ARRAY_COUNT(doubles)]) ^ (word >> 8 & 1)
                        : remo__random_next(dice);
    if (word % 4 > 0) /* an edge: 0, the largest or smallest number, or a neighbour of it */
        word = (word % 4 - 1) * (UINT64_C(1) << 63 >> shift) - 1 + (word >> 8) % 3;
    /* Arithmetic for a signed number. */
    return type->kind == SIGNED ? (uint64_t)((int64_t)(word << shift) >> shift) : word << shift >> shift;
}

static struct component random_component(struct remo__random *dice, const struct type *type) {
    static const unsigned char alphabet[] = {0, 1, 2, 3, 0xfe, 0xff};
    struct component value = {.bytes = 0};
    if (type->kind != STRING) {
        value.word = random_word(dice, type);
        return value;
    }
    value.bytes = (size_t)remo__random_below(dice, STRING_BYTES_MAX + 1);
    for (size_t i = 0; i < value.bytes; i++)
        value.string[i] = alphabet[remo__random_below(dice, sizeof alphabet)];
    return value;
}

static struct type random_type(struct remo__random *dice, enum kind kind) {
    return (struct type){.kind = kind,
                         .bytes = 1 + (uint32_t)remo__random_below(dice, 8),
                         .order = (enum remo_key_order)remo__random_below(dice, 2)};
}

/* ---- append and read ---- */

static int put(struct remo_key *key, const struct type *type, const struct component *value) {
    switch (type->kind) {
    case UNSIGNED: return remo_key_put_unsigned(key, value->word, type->bytes, type->order);
    case SIGNED: return remo_key_put_signed(key, (int64_t)value->word, type->bytes, type->order);
    case DOUBLE: return remo_key_put_double(key, double_of(value->word), type->order);
    default: return remo_key_put_bytes(key, value->string, value->bytes, type->order);
    }
}

static int get(struct remo_key_reader *reader, const struct type *type, struct component *ret) {
    double number = 0;
    int64_t number_signed = 0;
    int rc;
    switch (type->kind) {
    case UNSIGNED: return remo_key_get_unsigned(reader, type->bytes, type->order, &ret->word);
    case SIGNED:
        rc = remo_key_get_signed(reader, type->bytes, type->order, &number_signed);
        ret->word = (uint64_t)number_signed;
        return rc;
    case DOUBLE:
        rc = remo_key_get_double(reader, type->order, &number);
        ret->word = bits_of(number);
        return rc;
    default: return remo_key_get_bytes(reader, type->order, ret->string, sizeof ret->string, &ret->bytes);
    }
}

/* Append components, read them again, and compare. */
static struct remo_key key_of(unsigned char *room, const struct type *types, const struct component *values,
                              uint32_t count) {
    struct remo_key key = {.data = room, .cap = KEY_BYTES_MAX};
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(put(&key, &types[i], &values[i]), 0);
    struct remo_key_reader reader = {.data = key.data, .bytes = key.bytes};
    for (uint32_t i = 0; i < count; i++) {
        struct component value = {.bytes = 0};
        assert_int_equal(get(&reader, &types[i], &value), 0);
        assert_int_equal(value.word, values[i].word);
        assert_int_equal(value.bytes, values[i].bytes);
        assert_memory_equal(value.string, values[i].string, STRING_BYTES_MAX);
    }
    assert_int_equal(remo_key_get_end(&reader), 0);
    return key;
}

static void check_pair(struct remo__random *dice, const struct type *types, uint32_t count) {
    struct component a[COMPONENTS_MAX], b[COMPONENTS_MAX];
    unsigned char room_a[KEY_BYTES_MAX], room_b[KEY_BYTES_MAX];
    int expected = 0;
    for (uint32_t i = 0; i < count; i++) {
        a[i] = random_component(dice, &types[i]);
        b[i] = remo__random_below(dice, 2) ? a[i] : random_component(dice, &types[i]);
        expected = expected ? expected : compare_component(&types[i], &a[i], &b[i]);
    }
    struct remo_key key_a = key_of(room_a, types, a, count), key_b = key_of(room_b, types, b, count);
    assert_int_equal(compare_memory(key_a.data, key_a.bytes, key_b.data, key_b.bytes), expected);
}

static void test_order_of_components(void **state) {
    struct remo__random dice;
    (void)state;
    remo__random_seed(&dice, 1);
    for (enum kind kind = 0; kind < KINDS; kind++)
        for (uint32_t i = 0; i < PAIRS; i++) {
            struct type type = random_type(&dice, kind);
            check_pair(&dice, &type, 1);
        }
}

static void test_order_of_tuples(void **state) {
    struct remo__random dice;
    struct type types[COMPONENTS_MAX];
    (void)state;
    remo__random_seed(&dice, 2);
    for (uint32_t i = 0; i < PAIRS; i++) {
        uint32_t count = 1 + (uint32_t)remo__random_below(&dice, COMPONENTS_MAX);
        for (uint32_t k = 0; k < count; k++)
            types[k] = random_type(&dice, (enum kind)remo__random_below(&dice, KINDS));
        check_pair(&dice, types, count);
    }
}

/* ---- the encoding itself, which is the same on all machines ---- */

static void check_bytes(const struct remo_key *key, const char *expected, size_t bytes) {
    assert_int_equal(key->error, 0);
    assert_int_equal(key->bytes, bytes);
    assert_memory_equal(key->data, expected, bytes);
}

static void test_encoding(void **state) {
    unsigned char room[32];
    (void)state;
    struct remo_key key = {.data = room, .cap = sizeof room};
    remo_key_put_unsigned(&key, 0x010203, 3, REMO_KEY_ASCENDING);
    remo_key_put_signed(&key, -2, 2, REMO_KEY_ASCENDING);
    remo_key_put_unsigned(&key, 1, 1, REMO_KEY_DESCENDING);
    check_bytes(&key, "\x01\x02\x03\x7f\xfe\xfe", 6);
    key.bytes = 0;
    remo_key_put_double(&key, 1, REMO_KEY_ASCENDING);
    remo_key_put_double(&key, -0.0, REMO_KEY_ASCENDING);
    check_bytes(&key, "\xbf\xf0\0\0\0\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff", 16);
    key.bytes = 0;
    remo_key_put_bytes(&key, "a\0b\1\2", 5, REMO_KEY_ASCENDING);
    remo_key_put_bytes(&key, "\0", 1, REMO_KEY_DESCENDING);
    remo_key_put_bytes(&key, NULL, 0, REMO_KEY_ASCENDING);
    check_bytes(&key, "a\1\1b\1\2\2\0\xfe\xfe\xff\0", 12);
}

/* The keys in [prefix, end of the prefix) are those that begin with the prefix. */
static void test_prefix_end(void **state) {
    unsigned char room[8];
    (void)state;
    struct remo_key key = {.data = room, .cap = sizeof room};
    remo_key_put_bytes(&key, "ab", 2, REMO_KEY_ASCENDING);
    assert_int_equal(remo_key_prefix_end(&key), 0);
    check_bytes(&key, "ab\1", 3);
    key = (struct remo_key){.data = room, .cap = sizeof room};
    remo_key_put_unsigned(&key, 0x12ffff, 3, REMO_KEY_ASCENDING);
    assert_int_equal(remo_key_prefix_end(&key), 0);
    check_bytes(&key, "\x13", 1);
    key = (struct remo_key){.data = room, .cap = sizeof room};
    remo_key_put_unsigned(&key, 0xffff, 2, REMO_KEY_ASCENDING);
    assert_int_equal(remo_key_prefix_end(&key), -ERANGE);
    assert_non_null(strstr(remo_last_error(), "these 2 bytes; scan to the end of the tree"));
    assert_int_equal(key.bytes, 2);
    key = (struct remo_key){.data = room, .cap = sizeof room};
    assert_int_equal(remo_key_prefix_end(&key), -ERANGE);
}

/* ---- limits and errors ---- */

/* In a buffer of each size: all components that fit, and nothing beyond. */
static void test_capacity(void **state) {
    static const struct type types[] = {
        {UNSIGNED, 4, REMO_KEY_ASCENDING}, {STRING, 0, REMO_KEY_ASCENDING}, {DOUBLE, 0, REMO_KEY_ASCENDING}};
    static const struct component values[] = {
        {.word = 7}, {.string = {0, 1, 2}, .bytes = 3}, {.word = UINT64_C(1) << 62}};
    static const size_t ends[] = {0, 4, 10, 18};
    (void)state;
    for (size_t cap = 0; cap <= ends[3]; cap++) {
        unsigned char room[32], untouched[32];
        memset(room, 0xee, sizeof room);
        memset(untouched, 0xee, sizeof untouched);
        struct remo_key key = {.data = room, .cap = cap};
        size_t fit = 0;
        while (fit < 3 && put(&key, &types[fit], &values[fit]) == 0)
            fit++;
        assert_true(ends[fit] <= cap && (fit == 3 || ends[fit + 1] > cap));
        assert_int_equal(key.bytes, ends[fit]);
        assert_int_equal(key.error, fit == 3 ? 0 : -EMSGSIZE);
        assert_true(fit == 3 || strstr(remo_last_error(), "use a larger buffer"));
        assert_memory_equal(room + ends[fit], untouched, sizeof room - ends[fit]);
        /* A shorter component does not follow one that has failed. */
        assert_int_equal(remo_key_put_unsigned(&key, 1, 1, REMO_KEY_ASCENDING), -EMSGSIZE);
        assert_int_equal(key.bytes, ends[fit]);
    }
}

static void test_ranges(void **state) {
    (void)state;
    for (uint32_t bytes = 1; bytes <= 8; bytes++) {
        unsigned char room[32];
        struct remo_key key = {.data = room, .cap = sizeof room};
        uint64_t top = UINT64_MAX >> (64 - 8 * bytes);
        int64_t high = (int64_t)(top >> 1), low = -high - 1;
        assert_int_equal(remo_key_put_unsigned(&key, top, bytes, REMO_KEY_ASCENDING), 0);
        assert_int_equal(remo_key_put_signed(&key, high, bytes, REMO_KEY_ASCENDING), 0);
        assert_int_equal(remo_key_put_signed(&key, low, bytes, REMO_KEY_DESCENDING), 0);
        if (bytes == 8)
            break;
        assert_int_equal(remo_key_put_unsigned(&key, top + 1, bytes, REMO_KEY_ASCENDING), -ERANGE);
        assert_non_null(strstr(remo_last_error(), "use more bytes"));
        assert_int_equal(key.error, -ERANGE);
        key.error = 0;
        assert_int_equal(remo_key_put_signed(&key, high + 1, bytes, REMO_KEY_ASCENDING), -ERANGE);
        key.error = 0;
        assert_int_equal(remo_key_put_signed(&key, low - 1, bytes, REMO_KEY_ASCENDING), -ERANGE);
        assert_int_equal(key.bytes, 3 * bytes);
    }
}

static void expect_invalid(int rc, const char *words) {
    assert_int_equal(rc, -EINVAL);
    assert_non_null(strstr(remo_last_error(), words));
}

static void test_bad_keys(void **state) {
    unsigned char room[32];
    struct remo_key good = {.data = room, .cap = sizeof room}, key = good;
    (void)state;
    expect_invalid(remo_key_put_unsigned(NULL, 1, 1, REMO_KEY_ASCENDING), "key");
    expect_invalid(remo_key_put_signed(NULL, 1, 1, REMO_KEY_ASCENDING), "key");
    expect_invalid(remo_key_put_double(NULL, 1, REMO_KEY_ASCENDING), "key");
    expect_invalid(remo_key_put_bytes(NULL, "", 0, REMO_KEY_ASCENDING), "key");
    expect_invalid(remo_key_prefix_end(NULL), "key");
    expect_invalid(remo_key_put_unsigned(&key, 0, 0, REMO_KEY_ASCENDING), "use 1 to 8");
    assert_int_equal(remo_key_put_double(&key, 1, REMO_KEY_ASCENDING), -EINVAL); /* kept */
    key = good;
    expect_invalid(remo_key_put_signed(&key, 0, 9, REMO_KEY_ASCENDING), "use 1 to 8");
    key = good;
    expect_invalid(remo_key_put_double(&key, 0, (enum remo_key_order)2), "REMO_KEY_");
    key = good;
    expect_invalid(remo_key_put_bytes(&key, NULL, 1, REMO_KEY_ASCENDING), "value");
    assert_int_equal(key.bytes, 0);
    key = (struct remo_key){.cap = 8};
    expect_invalid(remo_key_put_bytes(&key, "", 0, REMO_KEY_ASCENDING), "set data and cap");
    key = (struct remo_key){.data = room, .cap = 8, .bytes = 9};
    expect_invalid(remo_key_put_unsigned(&key, 0, 1, REMO_KEY_ASCENDING), "set data and cap");
    key.error = 0;
    expect_invalid(remo_key_prefix_end(&key), "set data and cap");
}

static struct remo_key_reader reader_of(const char *data, size_t bytes) {
    return (struct remo_key_reader){.data = data, .bytes = bytes};
}

static void test_malformed(void **state) {
    static const struct {
        const char *data;
        size_t bytes;
        enum remo_key_order order;
    } strings[] = {{"", 0, REMO_KEY_ASCENDING},        {"ab", 2, REMO_KEY_ASCENDING},
                   {"a\1", 2, REMO_KEY_ASCENDING},     {"a\1\0", 3, REMO_KEY_ASCENDING},
                   {"a\1\3\0", 4, REMO_KEY_ASCENDING}, {"a\1\1", 3, REMO_KEY_ASCENDING},
                   {"ab\0", 3, REMO_KEY_DESCENDING},   {"\xfe\xff\xff", 3, REMO_KEY_DESCENDING}};
    char room[8];
    size_t bytes;
    uint64_t word = 5;
    (void)state;
    for (size_t i = 0; i < REMO__ARRAY_COUNT(strings); i++) {
        struct remo_key_reader reader = reader_of(strings[i].data, strings[i].bytes);
        assert_int_equal(remo_key_get_bytes(&reader, strings[i].order, room, sizeof room, &bytes), -EBADMSG);
        assert_non_null(strstr(remo_last_error(), "read the components that were appended"));
        assert_int_equal(reader.error, -EBADMSG);
        assert_int_equal(reader.offset, 0);
    }
    struct remo_key_reader reader = reader_of("\1\2\3", 3);
    assert_int_equal(remo_key_get_unsigned(&reader, 4, REMO_KEY_ASCENDING, &word), -EBADMSG);
    assert_int_equal(remo_key_get_unsigned(&reader, 1, REMO_KEY_ASCENDING, &word), -EBADMSG); /* kept */
    assert_int_equal(remo_key_get_end(&reader), -EBADMSG);
    assert_int_equal(word, 5);
    reader = reader_of("\1\2\3", 3);
    assert_int_equal(remo_key_get_unsigned(&reader, 2, REMO_KEY_ASCENDING, &word), 0);
    assert_int_equal(remo_key_get_end(&reader), -EBADMSG);
    assert_non_null(strstr(remo_last_error(), "1 bytes of a key of 3 bytes are left"));
}

static void test_string_too_long(void **state) {
    struct remo_key_reader reader = reader_of("abc\0\7", 5);
    char room[4] = "xyz";
    size_t bytes = 0;
    uint64_t word;
    (void)state;
    assert_int_equal(remo_key_get_bytes(&reader, REMO_KEY_ASCENDING, room, 2, &bytes), -EMSGSIZE);
    assert_int_equal(bytes, 3);
    assert_string_equal(room, "xyz");
    assert_int_equal(remo_key_get_bytes(&reader, REMO_KEY_ASCENDING, room, 3, &bytes), 0);
    assert_string_equal(room, "abc");
    reader = reader_of("abc\0\7", 5);
    bytes = 0;
    assert_int_equal(remo_key_get_bytes(&reader, REMO_KEY_ASCENDING, NULL, 0, &bytes), 0); /* skip it */
    assert_int_equal(bytes, 3);
    assert_int_equal(remo_key_get_unsigned(&reader, 1, REMO_KEY_ASCENDING, &word), 0);
    assert_int_equal(word, 7);
}

static void test_bad_readers(void **state) {
    struct remo_key_reader good = reader_of("abc\0", 4), reader = good;
    uint64_t word;
    size_t bytes;
    (void)state;
    expect_invalid(remo_key_get_unsigned(NULL, 1, REMO_KEY_ASCENDING, &word), "reader");
    expect_invalid(remo_key_get_bytes(NULL, REMO_KEY_ASCENDING, NULL, 0, &bytes), "reader");
    expect_invalid(remo_key_get_end(NULL), "reader");
    expect_invalid(remo_key_get_signed(&reader, 1, REMO_KEY_ASCENDING, NULL), "ret_value");
    reader = good;
    expect_invalid(remo_key_get_double(&reader, REMO_KEY_ASCENDING, NULL), "ret_value");
    reader = good;
    expect_invalid(remo_key_get_bytes(&reader, REMO_KEY_ASCENDING, NULL, 0, NULL), "ret_value_bytes");
    reader = good;
    expect_invalid(remo_key_get_bytes(&reader, (enum remo_key_order)7, NULL, 0, &bytes), "REMO_KEY_");
    reader = good;
    expect_invalid(remo_key_get_unsigned(&reader, 0, REMO_KEY_ASCENDING, &word), "use 1 to 8");
    reader = (struct remo_key_reader){.bytes = 1};
    expect_invalid(remo_key_get_end(&reader), "set data and bytes");
    reader = good;
    reader.offset = 5;
    expect_invalid(remo_key_get_unsigned(&reader, 1, REMO_KEY_ASCENDING, &word), "set data and bytes");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_of_components),
        cmocka_unit_test(test_order_of_tuples),
        cmocka_unit_test(test_encoding),
        cmocka_unit_test(test_prefix_end),
        cmocka_unit_test(test_capacity),
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_bad_keys),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_string_too_long),
        cmocka_unit_test(test_bad_readers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
