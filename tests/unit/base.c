/* base.c - unit tests of src/base: errors, log, clock, random numbers, bits, bytes, histogram.
 * Single-threaded; no test depends on another. */
#include "base/bits.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/histogram.h"
#include "base/log.h"
#include "base/random.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit.h"

static void *error_in_other_thread(void *arg) {
    const char **ret_first = arg;
    *ret_first = strdup(remo_last_error());
    remo__fail(-EIO, "of the other thread");
    return NULL;
}

static void test_error_sentence(void **state) {
    (void)state;
    assert_string_equal(remo_last_error(), "");
    errno = 42;
    assert_int_equal(remo__fail(-EINVAL, "name \"%s\" is %d bytes", "x", 3), -EINVAL);
    assert_string_equal(remo_last_error(), "name \"x\" is 3 bytes");
    assert_int_equal(remo__fail_more(-EINVAL, "opening %s", "q"), -EINVAL);
    assert_string_equal(remo_last_error(), "opening q: name \"x\" is 3 bytes");
    assert_int_equal(remo__fail(-EIO, "again: %s", remo_last_error()), -EIO);
    assert_string_equal(remo_last_error(), "again: opening q: name \"x\" is 3 bytes");
    assert_int_equal(remo__fail_static(-ENOENT, "no such key"), -ENOENT);
    assert_string_equal(remo_last_error(), "no such key");
    remo__fail_more(-ENOENT, "get");
    assert_string_equal(remo_last_error(), "get: no such key");
    assert_int_equal(errno, 42);
}

static void test_error_is_per_thread(void **state) {
    (void)state;
    remo__fail(-EIO, "of this thread");
    const char *first = NULL;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, error_in_other_thread, &first), 0);
    pthread_join(thread, NULL);
    assert_string_equal(first, "");
    assert_string_equal(remo_last_error(), "of this thread");
    free((void *)first);
}

static void test_error_too_long(void **state) {
    (void)state;
    char word[REMO__SENTENCE_MAX * 2];
    memset(word, 'a', sizeof word);
    word[sizeof word - 1] = '\0';
    remo__fail(-EIO, "%s", word);
    assert_int_equal(strlen(remo_last_error()), REMO__SENTENCE_MAX - 1);
    remo__fail_more(-EIO, "context");
    assert_int_equal(strlen(remo_last_error()), REMO__SENTENCE_MAX - 1);
    assert_memory_equal(remo_last_error(), "context: aaa", 12);
    remo__fail_more(-EIO, "%s", word);
    assert_int_equal(strlen(remo_last_error()), REMO__SENTENCE_MAX - 1);
}

static void test_error_is_one_line(void **state) {
    (void)state;
    remo__fail(-EINVAL, "the name \"%s\" is wrong", "a\nb\x1b[31m\x7f\t");
    assert_string_equal(remo_last_error(), "the name \"a?b?[31m??\" is wrong");
    remo__fail_more(-EINVAL, "file %s", "x\ry");
    assert_string_equal(remo_last_error(), "file x?y: the name \"a?b?[31m??\" is wrong");
    remo__fail(-EINVAL, "caf\xc3\xa9");
    assert_string_equal(remo_last_error(), "caf\xc3\xa9");
}

static void test_error_names(void **state) {
    (void)state;
    assert_string_equal(remo_error_name(-EHOSTDOWN), "EHOSTDOWN");
    assert_string_equal(remo_error_name(EOWNERDEAD), "EOWNERDEAD");
    assert_string_equal(remo_error_name(0), "OK");
    assert_string_equal(remo_error_name(-100000), "unknown");
    assert_string_equal(remo_error_name(INT_MIN), "unknown");
    assert_string_equal(remo_error_text(-EHOSTDOWN), "a peer has failed or left");
    assert_string_equal(remo_error_text(0), "success");
    assert_string_equal(remo_error_text(ECHILD), "No child processes");
    assert_string_equal(remo_error_text(INT_MIN), "unknown error");
}

static_assert(REMO_SECONDS(10) == UINT64_C(10000000000), "a constant expression");

static void test_timeouts(void **state) {
    uint32_t seconds = 5000000; /* more nanoseconds than fit 32 bits */
    (void)state;
    assert_true(REMO_MS(1) == 1000000 && REMO_MS(0) == 0);
    assert_true(REMO_SECONDS(seconds) == UINT64_C(5000000000000000));
    assert_true(REMO_SECONDS(UINT64_C(18446744073)) == UINT64_C(18446744073000000000));
    assert_true(REMO_SECONDS(UINT64_C(18446744074)) == REMO_FOREVER);
    assert_true(REMO_MS(UINT64_MAX) == REMO_FOREVER);
}

static void log_keep(void *ctx, int level, const char *message) {
    snprintf(ctx, 64, "%d %s", level, message);
    errno = 1;
}

static void test_log(void **state) {
    (void)state;
    char kept[64] = "";
    struct remo__log log = {.fn = log_keep, .ctx = kept, .level = REMO_LOG_INFO};
    remo__log(NULL, REMO_LOG_ERROR, "dropped");
    remo__log(&(struct remo__log){0}, REMO_LOG_ERROR, "dropped");
    remo__log(&log, REMO_LOG_DEBUG, "too detailed");
    assert_string_equal(kept, "");
    errno = 42;
    remo__log(&log, REMO_LOG_INFO, "peer %d came", 3);
    assert_string_equal(kept, "3 peer 3 came");
    assert_int_equal(errno, 42);
}

static void test_clock(void **state) {
    (void)state;
    uint64_t before = remo__now_ns();
    uint64_t deadline = remo__deadline(REMO__NS_PER_S);
    assert_true(deadline >= before + REMO__NS_PER_S);
    assert_true(deadline <= remo__now_ns() + REMO__NS_PER_S);
    assert_true(remo__remaining_ns(deadline) <= REMO__NS_PER_S);
    assert_true(remo__remaining_ns(remo__deadline(0)) == 0);
    assert_true(remo__deadline(REMO_FOREVER) == REMO_FOREVER);
    assert_true(remo__deadline(REMO_FOREVER - 1) == REMO_FOREVER);
    assert_true(remo__remaining_ns(REMO_FOREVER) == REMO_FOREVER);
}

static void test_random(void **state) {
    (void)state;
    /* The authors' reference code gives this for the state {1, 2, 3, 4}. */
    struct remo__random reference = {{1, 2, 3, 4}};
    assert_true(remo__random_next(&reference) == 11520);
    assert_true(remo__random_next(&reference) == 0);
    assert_true(remo__random_next(&reference) == 1509978240);
    assert_true(remo__random_mix(0) == UINT64_C(0xe220a8397b1dcdaf));

    struct remo__random one, two;
    remo__random_seed(&one, 7);
    remo__random_seed(&two, 7);
    int seen[10] = {0};
    for (int i = 0; i < 100000; i++) {
        uint64_t value = remo__random_below(&one, 10);
        assert_true(value < 10 && value == remo__random_below(&two, 10));
        seen[value]++;
        double unit = remo__random_unit(&one);
        assert_true(unit >= 0.0 && unit < 1.0 && unit == remo__random_unit(&two));
    }
    for (int i = 0; i < 10; i++)
        assert_true(seen[i] >= 9500 && seen[i] <= 10500);
    remo__random_seed(&two, 8);
    assert_true(remo__random_next(&one) != remo__random_next(&two));
}

struct outer {
    int before;
    int inner;
};

static void test_bits(void **state) {
    (void)state;
    assert_false(remo__is_power_of_two(0));
    assert_true(remo__is_power_of_two(1) && remo__is_power_of_two(UINT64_C(1) << 63));
    assert_false(remo__is_power_of_two(6));
    assert_true(remo__power_of_two_from(0) == 1 && remo__power_of_two_from(1) == 1);
    assert_true(remo__power_of_two_from(3) == 4 && remo__power_of_two_from(4) == 4);
    assert_true(remo__power_of_two_from(UINT64_C(1) << 63) == UINT64_C(1) << 63);
    assert_true(remo__power_of_two_from(UINT64_MAX) == 0);
    assert_true(remo__align_up(0, 64) == 0 && remo__align_up(1, 64) == 64 && remo__align_up(64, 64) == 64);
    assert_true(remo__align_up(5, 1) == 5);
    assert_true(remo__min(1, 2) == 1 && remo__max(1, 2) == 2);
    struct outer outer;
    assert_ptr_equal(remo__container_of(&outer.inner, struct outer, inner), &outer);
    assert_int_equal(REMO__ARRAY_COUNT(((int[7]){0})), 7);
}

static void test_bytes_round_trip(void **state) {
    (void)state;
    uint8_t buffer[64];
    struct remo__writer writer = remo__writer_of(buffer, sizeof buffer);
    remo__put_u8(&writer, 0x12);
    remo__put_u16(&writer, 0x3456);
    remo__put_u32(&writer, 0x789abcde);
    remo__put_u64(&writer, UINT64_C(0x0123456789abcdef));
    remo__put_string(&writer, "name");
    remo__put_string(&writer, "");
    remo__put_bytes(&writer, "xyz", 3);
    assert_false(writer.bad);
    size_t length = (size_t)(writer.at - buffer);
    assert_int_equal(length, 1 + 2 + 4 + 8 + 6 + 2 + 3);
    assert_memory_equal(buffer, "\x12\x56\x34\xde\xbc\x9a\x78\xef", 8);

    /* The whole message decodes. A truncated one is bad, and no read passes its end: each lies in its own
     * heap block, so that AddressSanitizer checks this. */
    for (size_t cut = 0; cut <= length; cut++) {
        uint8_t *copy = malloc(cut + !cut);
        memcpy(copy, buffer, cut);
        struct remo__reader reader = remo__reader_of(copy, cut);
        char name[5], empty[1], bytes[3];
        uint8_t u8 = remo__get_u8(&reader);
        uint16_t u16 = remo__get_u16(&reader);
        uint32_t u32 = remo__get_u32(&reader);
        uint64_t u64 = remo__get_u64(&reader);
        remo__get_string(&reader, name, sizeof name);
        remo__get_string(&reader, empty, sizeof empty);
        remo__get_bytes(&reader, bytes, sizeof bytes);
        assert_int_equal(remo__reader_complete(&reader), cut == length);
        assert_int_equal(!!reader.bad, cut != length);
        if (cut == length) {
            assert_true(u8 == 0x12 && u16 == 0x3456 && u32 == 0x789abcde);
            assert_true(u64 == UINT64_C(0x0123456789abcdef));
            assert_string_equal(name, "name");
            assert_memory_equal(bytes, "xyz", 3);
        } else {
            assert_memory_equal(bytes, "\0\0\0", 3);
        }
        assert_string_equal(empty, "");
        free(copy);
    }
}

static void test_bytes_refused(void **state) {
    (void)state;
    char string[4];
    struct remo__reader reader = remo__reader_of("\4\0abcd", 6); /* no room for the terminator */
    remo__get_string(&reader, string, sizeof string);
    assert_true(reader.bad && string[0] == '\0');
    reader = remo__reader_of("\3\0a\0c", 5); /* a 0 inside */
    remo__get_string(&reader, string, sizeof string);
    assert_true(reader.bad && string[0] == '\0');
    reader = remo__reader_of("\xff\xff", 2); /* longer than the message */
    remo__get_string(&reader, string, sizeof string);
    assert_true(reader.bad && remo__get_u8(&reader) == 0);
    reader = remo__reader_of("ab", 2);
    assert_null(remo__get_span(&reader, SIZE_MAX));
    assert_null(remo__get_span(&reader, 1)); /* once bad, always bad */
    reader = remo__reader_of("ab", 2);
    remo__get_u8(&reader);
    assert_false(remo__reader_complete(&reader)); /* bytes left over */

    char buffer[4] = {'.', '.', '.', '.'};
    struct remo__writer writer = remo__writer_of(buffer, sizeof buffer);
    remo__put_string(&writer, "abc");
    assert_true(writer.bad);
    remo__put_u8(&writer, 1);
    assert_memory_equal(buffer, "....", 4);
    char *longest = calloc(1, 70000 + 1);
    char *room = malloc(80000);
    memset(longest, 'a', 70000);
    writer = remo__writer_of(room, 80000);
    remo__put_string(&writer, longest);
    assert_true(writer.bad && writer.at == (uint8_t *)room);
    free(room);
    free(longest);
}

static void test_histogram_exact(void **state) {
    (void)state;
    static struct remo__histogram histogram;
    remo__histogram_reset(&histogram);
    assert_true(remo__histogram_percentile(&histogram, 50) == 0 && remo__histogram_mean(&histogram) == 0.0);
    assert_true(remo__histogram_min(&histogram) == 0 && remo__histogram_max(&histogram) == 0);
    for (uint64_t value = 1; value <= 100; value++)
        remo__histogram_record(&histogram, value);
    assert_true(remo__histogram_count(&histogram) == 100);
    assert_true(remo__histogram_percentile(&histogram, 0) == 1);
    assert_true(remo__histogram_percentile(&histogram, 50) == 50);
    assert_true(remo__histogram_percentile(&histogram, 99) == 99);
    assert_true(remo__histogram_percentile(&histogram, 99.9) == 100);
    assert_true(remo__histogram_percentile(&histogram, 100) == 100);
    assert_true(remo__histogram_mean(&histogram) == 50.5);
    remo__histogram_record_many(&histogram, 7, 0);
    assert_true(remo__histogram_count(&histogram) == 100);
}

static void test_histogram_precision(void **state) {
    (void)state;
    static struct remo__histogram histogram, sum;
    remo__histogram_reset(&sum);
    struct remo__random random;
    remo__random_seed(&random, 1);
    for (int i = 0; i < 20000; i++) {
        uint64_t value = remo__random_next(&random) >> (22 + remo__random_below(&random, 42));
        remo__histogram_reset(&histogram);
        remo__histogram_record(&histogram, value);
        remo__histogram_record_many(&histogram, 0, 1);
        remo__histogram_record_many(&histogram, UINT64_C(1) << 41, 1);
        uint64_t middle = remo__histogram_percentile(&histogram, 50);
        uint64_t expected = remo__min(value, UINT64_C(1) << 41);
        double error = (double)middle - (double)expected;
        assert_true(error <= 0.002 * (double)expected && -error <= 0.002 * (double)expected);
        if (i % 100 == 0)
            remo__histogram_merge(&sum, &histogram);
    }
    assert_true(remo__histogram_count(&sum) == 600);
    assert_true(remo__histogram_min(&sum) == 0 && remo__histogram_max(&sum) >= UINT64_C(1) << 41);
    remo__histogram_reset(&histogram);
    remo__histogram_record(&histogram, UINT64_MAX);
    remo__histogram_merge(&sum, &histogram);
    assert_true(remo__histogram_max(&sum) == UINT64_MAX);
    assert_true(remo__histogram_percentile(&sum, 100) >= (UINT64_C(1) << 42) - (UINT64_C(1) << 34));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_error_sentence),
        cmocka_unit_test(test_error_is_per_thread),
        cmocka_unit_test(test_error_too_long),
        cmocka_unit_test(test_error_is_one_line),
        cmocka_unit_test(test_error_names),
        cmocka_unit_test(test_timeouts),
        cmocka_unit_test(test_log),
        cmocka_unit_test(test_clock),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_bytes_round_trip),
        cmocka_unit_test(test_bytes_refused),
        cmocka_unit_test(test_histogram_exact),
        cmocka_unit_test(test_histogram_precision),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
