/* bench.c - what the benchmarks calculate with: skewed keys; results, their JSON and their medians. */
#include "unit.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/peers/zipf.h"
#include "bench/result.h"

#define KEYS 1000u
#define DRAWS 1000000u

/* The share of the first ranks must be what the distribution says. */
static void zipf_is_skewed_as_asked(void **state) {
    (void)state;
    static const double thetas[] = {0.5, 0.9, 0.99};
    for (size_t t = 0; t < sizeof thetas / sizeof *thetas; t++) {
        uint64_t counts[KEYS] = {0};
        struct remo__random random;
        struct zipf zipf;
        double zeta = 0, first_ten = 0;
        remo__random_seed(&random, 7);
        zipf_prepare(&zipf, KEYS, thetas[t]);
        for (uint32_t i = 0; i < DRAWS; i++) {
            uint64_t rank = zipf_next(&zipf, &random);
            assert_true(rank < KEYS);
            counts[rank]++;
        }
        for (uint32_t rank = 0; rank < KEYS; rank++)
            zeta += pow(rank + 1, -thetas[t]);
        for (uint32_t rank = 0; rank < 10; rank++)
            first_ten += (double)counts[rank] / DRAWS;
        double expected_ten = 0;
        for (uint32_t rank = 0; rank < 10; rank++)
            expected_ten += pow(rank + 1, -thetas[t]) / zeta;
        assert_true(fabs((double)counts[0] / DRAWS - 1 / zeta) < 0.005);
        assert_true(fabs(first_ten - expected_ten) < 0.03 * expected_ten + 0.005);
        assert_true(counts[KEYS - 1] > 0);
    }
}

static void one_key_is_always_drawn(void **state) {
    (void)state;
    struct remo__random random;
    struct zipf zipf;
    remo__random_seed(&random, 1);
    zipf_prepare(&zipf, 1, 0.99);
    for (uint32_t i = 0; i < 1000; i++)
        assert_int_equal(zipf_next(&zipf, &random), 0);
}

/* ---- results ---- */

static struct bench_result make_result(double p50_ns) {
    struct bench_result result;
    bench_result_reset(&result);
    strcpy(result.bench, "kv");
    strcpy(result.object, "kv");
    strcpy(result.fabric, "shm");
    strcpy(result.distribution, "zipf 0.99");
    strcpy(result.limit, "memcpy");
    result.nodes = 2;
    result.threads = 1;
    result.bytes = 8;
    result.window = 3;
    result.read_percent = 50;
    result.seconds = 1;
    result.ops = 123456789;
    result.ops_per_s = 123456789;
    result.p50_ns = p50_ns;
    result.p99_ns = 2 * p50_ns;
    result.p999_ns = 3 * p50_ns;
    result.limit_ns = 2;
    result.reads = 1;
    result.writes = result.atomics = result.imms = 0;
    result.net_bytes = 8;
    return result;
}

static void a_result_survives_its_json(void **state) {
    (void)state;
    struct bench_result before = make_result(8.125), after;
    before.ratio = before.p50_ns / before.limit_ns;
    char *text = bench_result_format(&before);
    assert_non_null(text);
    assert_null(strchr(text, '\n'));
    json_t *object = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_int_equal(bench_result_parse(object, &after), 0);
    assert_true(bench_result_same(&before, &after));
    assert_true(after.p50_ns == before.p50_ns && after.ops == before.ops && after.ratio == before.ratio);
    assert_true(after.reads == 1 && after.net_bytes == 8);
    assert_string_equal(after.limit, "memcpy");
    json_decref(object);
    free(text);
}

/* What is not known is null, and comes back as that. */
static void an_unknown_figure_is_null(void **state) {
    (void)state;
    struct bench_result before, after;
    bench_result_reset(&before);
    strcpy(before.bench, "limits");
    char *text = bench_result_format(&before);
    assert_non_null(strstr(text, "\"p99_ns\":null"));
    assert_non_null(strstr(text, "\"limit\":null"));
    json_t *object = json_loads(text, 0, NULL);
    assert_int_equal(bench_result_parse(object, &after), 0);
    assert_true(isnan(after.p99_ns) && isnan(after.limit_ns) && isnan(after.ratio) && isnan(after.reads));
    json_decref(object);
    free(text);
}

static void what_is_no_result_is_refused(void **state) {
    (void)state;
    static const char *const texts[] = {"{}", "[]", "{\"bench\":1}", "{\"progress\":\"loading\"}"};
    struct bench_result result;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        json_t *value = json_loads(texts[i], 0, NULL);
        assert_int_equal(bench_result_parse(value, &result), -EINVAL);
        json_decref(value);
    }
}

static void medians_are_taken_of_each_figure(void **state) {
    (void)state;
    struct bench_result runs[] = {make_result(30), make_result(10), make_result(20), make_result(1000),
                                  make_result(5)};
    const struct bench_result *pointers[] = {&runs[0], &runs[1], &runs[2], &runs[3], &runs[4]};
    struct bench_result median;
    runs[3].p99_ns = NAN; /* one that was not measured does not count */
    bench_result_median(pointers, 5, &median);
    assert_true(median.p50_ns == 20 && median.ratio == 10 && median.runs == 5);
    assert_true(median.p99_ns == 30);
}

static void peers_match_what_they_measured(void **state) {
    (void)state;
    struct bench_result own = make_result(10), peer = make_result(100);
    strcpy(peer.peer, "redis");
    own.active = 2;
    peer.active = 1;
    assert_true(bench_result_matches(&own, &peer)); /* a client of a server stands against each node */
    assert_false(bench_result_same(&own, &peer));
    peer.window = 128;
    assert_false(bench_result_matches(&own, &peer));
    peer.window = 3;
    strcpy(peer.distribution, "uniform");
    assert_false(bench_result_matches(&own, &peer));
    strcpy(own.bench, "lock");
    strcpy(peer.bench, "lock");
    peer.distribution[0] = '\0';
    assert_false(bench_result_matches(&own, &peer)); /* elsewhere it matters how many there are */
    peer.active = 0;
    assert_true(bench_result_matches(&own, &peer));
}

static void titles_say_what_was_done(void **state) {
    (void)state;
    struct bench_result result = make_result(1);
    char title[112];
    bench_result_title(&result, title, sizeof title);
    assert_string_equal(title, "kv 50 % get, window 3, zipf 0.99");
    bench_result_reset(&result);
    strcpy(result.bench, "read");
    result.bytes = 4096;
    result.window = 1;
    bench_result_title(&result, title, sizeof title);
    assert_string_equal(title, "read 4 KiB");
    strcpy(result.bench, "accounts");
    strcpy(result.object, "transfer");
    result.bytes = 0;
    bench_result_title(&result, title, sizeof title);
    assert_string_equal(title, "accounts transfer");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zipf_is_skewed_as_asked),        cmocka_unit_test(one_key_is_always_drawn),
        cmocka_unit_test(a_result_survives_its_json),     cmocka_unit_test(an_unknown_figure_is_null),
        cmocka_unit_test(what_is_no_result_is_refused),   cmocka_unit_test(medians_are_taken_of_each_figure),
        cmocka_unit_test(peers_match_what_they_measured), cmocka_unit_test(titles_say_what_was_done),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
