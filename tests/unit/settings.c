/* settings.c - unit tests of a node's settings.
 * The program's fields precede the environment, which precedes the defaults; malformed values are
 * rejected. */
#include "unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "bootstrap/roster/environment.h"
#include "node/settings.h"

static int set_up(void **state) {
    (void)state;
    static const char *const names[] = {
        REMO__ENV_FABRIC,       REMO__ENV_PROVIDER,    REMO__ENV_BIND,
        REMO__ENV_MEMORY_DIR,   REMO__ENV_ARENA_BYTES, REMO__ENV_SEGMENT_BYTES,
        REMO__ENV_JOIN_TIMEOUT, REMO__ENV_OP_TIMEOUT,  REMO__ENV_LOG};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unsetenv(names[i]);
    return 0;
}

static struct remo__settings read_of(const struct remo_config *config) {
    struct remo__settings settings;
    assert_int_equal(remo__settings_read(config, &settings), 0);
    return settings;
}

static void numbers(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes, ns; /* 0: refused */
    } cases[] = {
        {"1", 1, REMO__NS_PER_S},
        {"512M", 512ull << 20, 0},
        {"2T", 2ull << 40, 0},
        {"0.5", 0, REMO__NS_PER_S / 2},
        {"1.000000001", 0, REMO__NS_PER_S + 1},
        {"18446744073", 18446744073ull, 18446744073ull * REMO__NS_PER_S},
        {"18446744073709551615", UINT64_MAX, 0},
        {"18446744073709551616", 0, 0},
        {"18446744073.709551615", 0, 0}, /* equals REMO_FOREVER */
        {"18446744073.709551616", 0, 0},
        {"16777216T", 0, 0},
        {"", 0, 0},
        {"0", 0, 0},
        {"0.0", 0, 0},
        {"-1", 0, 0},
        {" 1", 0, 0},
        {"1 ", 0, 0},
        {"1.", 0, 0},
        {".5", 0, 0},
        {"1.0000000001", 0, 0},
        {"1e3", 0, 0},
        {"K", 0, 0},
        {"1KB", 0, 0},
        {"1k", 0, 0},
        {"1s", 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t bytes = 0, ns = 0;
        assert_int_equal(remo__bytes_parse(cases[i].text, &bytes), cases[i].bytes != 0);
        assert_int_equal(bytes, cases[i].bytes);
        assert_int_equal(remo__seconds_parse(cases[i].text, &ns), cases[i].ns != 0);
        assert_int_equal(ns, cases[i].ns);
    }
}

static void order(void **state) {
    (void)state;
    const struct remo_config nothing = {0}, program = {.fabric = "ofi",
                                                       .arena_bytes = 1 << 30,
                                                       .segment_bytes = 2 << 20,
                                                       .join_timeout_ns = 7,
                                                       .op_timeout_ns = 8};
    struct remo__settings settings = read_of(&nothing);
    assert_null(settings.fabric);
    assert_int_equal(settings.arena_bytes, 64ull << 30);
    assert_int_equal(settings.join_timeout_ns, 30 * REMO__NS_PER_S);
    assert_int_equal(settings.op_timeout_ns, 10 * REMO__NS_PER_S);
    setenv(REMO__ENV_FABRIC, "verbs", 1);
    setenv(REMO__ENV_ARENA_BYTES, "3G", 1);
    setenv(REMO__ENV_SEGMENT_BYTES, "4M", 1);
    setenv(REMO__ENV_JOIN_TIMEOUT, "5", 1);
    setenv(REMO__ENV_OP_TIMEOUT, "0.006", 1);
    settings = read_of(&nothing);
    assert_string_equal(settings.fabric, "verbs");
    assert_int_equal(settings.arena_bytes, 3ull << 30);
    assert_int_equal(settings.segment_bytes, 4 << 20);
    assert_int_equal(settings.join_timeout_ns, 5 * REMO__NS_PER_S);
    assert_int_equal(settings.op_timeout_ns, 6 * REMO__NS_PER_MS);
    settings = read_of(&program);
    assert_string_equal(settings.fabric, "ofi");
    assert_int_equal(settings.arena_bytes, 1 << 30);
    assert_int_equal(settings.segment_bytes, 2 << 20);
    assert_int_equal(settings.join_timeout_ns, 7);
    assert_int_equal(settings.op_timeout_ns, 8);
    setenv(REMO__ENV_JOIN_TIMEOUT, "", 1);
    assert_int_equal(read_of(&nothing).join_timeout_ns, 30 * REMO__NS_PER_S);
}

static void wrong_values(void **state) {
    (void)state;
    static const struct {
        const char *name, *value;
    } cases[] = {{REMO__ENV_ARENA_BYTES, "many"}, {REMO__ENV_ARENA_BYTES, "1024T"},
                 {REMO__ENV_SEGMENT_BYTES, "0"},  {REMO__ENV_JOIN_TIMEOUT, "soon"},
                 {REMO__ENV_OP_TIMEOUT, "-1"},    {REMO__ENV_LOG, "loud"}};
    const struct remo_config nothing = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct remo__settings settings;
        set_up(NULL);
        setenv(cases[i].name, cases[i].value, 1);
        assert_int_equal(remo__settings_read(&nothing, &settings), -EINVAL);
        assert_non_null(strstr(remo_last_error(), i == 1 ? "arena_bytes" : cases[i].name));
    }
    set_up(NULL);
}

static void take(void *ctx, int level, const char *message) {
    (void)ctx, (void)level, (void)message;
}

/* REMO_LOG prints if the program sets no log function, and is the level if it sets a function without a
 * level. */
static void log_levels(void **state) {
    (void)state;
    const struct remo_config silent = {0}, own = {.log = take},
                             both = {.log = take, .log_level = REMO_LOG_ERROR};
    assert_null(read_of(&silent).log.fn);
    assert_int_equal(read_of(&own).log.level, REMO_LOG_WARNING);
    setenv(REMO__ENV_LOG, "debug", 1);
    assert_non_null(read_of(&silent).log.fn);
    assert_int_equal(read_of(&silent).log.level, REMO_LOG_DEBUG);
    assert_true(read_of(&own).log.fn == take);
    assert_int_equal(read_of(&own).log.level, REMO_LOG_DEBUG);
    assert_int_equal(read_of(&both).log.level, REMO_LOG_ERROR);
    set_up(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers),
        cmocka_unit_test(order),
        cmocka_unit_test(wrong_values),
        cmocka_unit_test(log_levels),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
