/* bench.c - unit tests of the benchmarks' calculations: skewed keys; results, their JSON and their medians.
 * The expected values follow from the distributions, not from the implementation. */
#include "unit.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/report/output.h"
#include "bench/peers/zipf.h"
#include "bench/report/result.h"
#include "bench/report/text.h"

#define KEYS 1000u
#define DRAWS 1000000u

/* The share of the first ranks must match the distribution. */
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
    strcpy(before.peer, "redis");
    strcpy(before.transport, "tcp");
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
    assert_string_equal(after.transport, "tcp");
    json_decref(object);
    free(text);
}

/* An unknown value is written as null, and read back as unknown. */
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
    runs[3].p99_ns = NAN; /* a value that was not measured does not count */
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
    assert_true(bench_result_matches(&own, &peer)); /* a client of a server is compared with each node */
    assert_false(bench_result_same(&own, &peer));
    struct bench_result over_tcp = peer, over_unix = peer;
    strcpy(over_tcp.transport, "tcp");
    strcpy(over_unix.transport, "unix");
    assert_false(bench_result_same(&over_tcp, &over_unix));
    peer.window = 128;
    assert_false(bench_result_matches(&own, &peer));
    peer.window = 3;
    strcpy(peer.distribution, "uniform");
    assert_false(bench_result_matches(&own, &peer));
    strcpy(own.bench, "lock");
    strcpy(peer.bench, "lock");
    peer.distribution[0] = '\0';
    assert_false(bench_result_matches(&own, &peer)); /* elsewhere the number of nodes must be equal */
    peer.active = 0;
    assert_true(bench_result_matches(&own, &peer));
    strcpy(own.variant, "contended");
    assert_true(bench_result_matches(&own, &peer));
    strcpy(own.bench, "rpc");
    strcpy(peer.bench, "rpc");
    assert_false(bench_result_matches(&own, &peer)); /* a peer calls a server that polls */
    own.variant[0] = '\0';
    assert_true(bench_result_matches(&own, &peer));
    strcpy(own.object, "tree");
    strcpy(peer.object, "tree");
    strcpy(own.bench, "scan");
    strcpy(peer.bench, "scan");
    strcpy(own.variant, "after load");
    strcpy(peer.variant, "after updates");
    assert_false(bench_result_matches(&own, &peer)); /* a peer of the ordered map has the same points */
    strcpy(peer.variant, "after load");
    assert_true(bench_result_matches(&own, &peer));
    peer.window = own.window + 1;
    assert_false(bench_result_competes(&own, &peer));
    strcpy(own.object, "tx");
    strcpy(peer.object, "tx");
    assert_true(bench_result_competes(&own, &peer)); /* with any window */
    assert_false(bench_result_matches(&own, &peer));
    peer.active = own.active + 1;
    assert_false(bench_result_competes(&own, &peer));
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

/* ---- the table ---- */

/* No operation is faster than the hardware: a faster figure is marked, and reported by name. */
static void a_time_below_its_limit_is_reported(void **state) {
    (void)state;
    struct bench_result results[] = {make_result(4), make_result(1.96), make_result(1.5), make_result(NAN)};
    char *text = NULL;
    size_t text_bytes = 0;
    for (size_t i = 0; i < 4; i++)
        results[i].ratio = results[i].p50_ns / results[i].limit_ns;
    strcpy(results[2].bench, "read");
    assert_false(bench_result_beats_limit(&results[0]));
    assert_false(bench_result_beats_limit(&results[1])); /* printed as 1.0 */
    assert_true(bench_result_beats_limit(&results[2]));
    assert_false(bench_result_beats_limit(&results[3]));
    FILE *out = open_memstream(&text, &text_bytes);
    assert_int_equal(bench_warn_limits(out, results, 4), 1);
    fclose(out);
    assert_non_null(strstr(text, "warning: read 8 B"));
    assert_non_null(strstr(text, "1.50 ns is below its limit of 2.00 ns (memcpy)"));
    free(text);
    out = open_memstream(&text, &text_bytes);
    struct bench_table table;
    bench_table_begin(out, 200, false, &table);
    bench_table_rows(&table, results, 3, NULL, 0);
    fclose(out);
    assert_non_null(strstr(text, " 0.8!"));
    assert_non_null(strstr(text, " 1.0 "));
    free(text);
}

/* A table of that width; the caller frees it. */
static char *print_table(uint32_t columns, bool with_peers) {
    struct bench_result own[] = {make_result(4.25), make_result(1.5e9)},
                        peers[] = {make_result(17), make_result(18)};
    struct bench_table table;
    char *text = NULL;
    size_t text_bytes = 0;
    uint32_t peers_count = with_peers ? 2 : 0;
    own[1].window = 128;
    own[1].reads = 12.34;
    own[1].atomics = 0.99;
    own[1].writes = 12.34;
    strcpy(peers[0].peer, "memcached");
    strcpy(peers[0].transport, "unix");
    strcpy(peers[1].peer, "redis");
    strcpy(peers[1].skipped, "cannot find redis-server; install the peer: apt-get install redis-server");
    FILE *out = open_memstream(&text, &text_bytes);
    bench_table_begin(out, columns, with_peers, &table);
    bench_table_rows(&table, own, 2, peers, peers_count);
    bench_table_end(&table, own, 2, peers, peers_count);
    fclose(out);
    return text;
}

static uint32_t count_word(const char *text, const char *word) {
    uint32_t count = 0;
    for (const char *at = strstr(text, word); at; at = strstr(at + 1, word))
        count++;
    return count;
}

/* On any terminal: no line is longer, no word is broken, and no figure is missing or repeated. */
static void a_table_fits_its_width(void **state) {
    (void)state;
    static const char *const words[] = {"memcached,", "apt-get",           "redis-server\n", "4.25 ns",
                                        "8.50 ns",    "12.8 ns",           "1.50 s",         "3.00 s",
                                        "4.50 s",     "12.3r 0.99a 12.3w", "p99.9"};
    for (uint32_t columns = TEXT_COLUMNS_MIN; columns <= 200; columns++) {
        char *text = print_table(columns, true);
        for (const char *line = text; *line; line += strcspn(line, "\n") + 1)
            assert_true(strcspn(line, "\n") <= columns);
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
            assert_non_null(strstr(text, words[i]));
        assert_int_equal(count_word(text, "4.25 ns"), 1);
        assert_int_equal(count_word(text, "12.3r 0.99a 12.3w"), 1);
        free(text);
    }
}

static void columns_without_peers_are_fewer(void **state) {
    (void)state;
    char *text = print_table(100, false);
    assert_null(strstr(text, "vs. peer"));
    assert_int_equal(count_word(text, "one operation   "), 1); /* one table is enough */
    free(text);
    text = print_table(80, false);
    assert_int_equal(count_word(text, "one operation   "), 2);
    free(text);
}

/* Rounding must not add a digit: 99.96 is not 100.0. */
static void times_have_three_digits(void **state) {
    static const struct {
        double ns;
        const char *text;
    } times[] = {{9.994, "9.99 ns"}, {9.996, "10.0 ns"}, {99.94, "99.9 ns"}, {99.96, "100 ns"},
                 {999, "999 ns"},    {1e3, "1.00 us"},   {99960, "100 us"},  {2.5e9, "2.50 s"}};
    (void)state;
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        char text[BENCH_CELL_BYTES];
        bench_format_time(times[i].ns, text);
        assert_string_equal(text, times[i].text);
    }
}

static void text_is_broken_between_words(void **state) {
    (void)state;
    char *text = NULL;
    size_t text_bytes = 0;
    FILE *out = open_memstream(&text, &text_bytes);
    text_wrap(out, "one two  three incomprehensibilities four", 10, 4, 2);
    fclose(out);
    assert_string_equal(text, "one\n  two\n  three\n  incomprehensibilities\n  four\n");
    free(text);
}

static void the_width_of_a_pipe_is_that_of_the_environment(void **state) {
    (void)state;
    FILE *out = tmpfile();
    unsetenv("COLUMNS");
    assert_int_equal(text_columns(out, 100), 100);
    setenv("COLUMNS", "72", 1);
    assert_int_equal(text_columns(out, 100), 72);
    setenv("COLUMNS", "3", 1);
    assert_int_equal(text_columns(out, 100), TEXT_COLUMNS_MIN);
    setenv("COLUMNS", "wide", 1);
    assert_int_equal(text_columns(out, 100), 100);
    unsetenv("COLUMNS");
    fclose(out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zipf_is_skewed_as_asked),
        cmocka_unit_test(one_key_is_always_drawn),
        cmocka_unit_test(a_result_survives_its_json),
        cmocka_unit_test(an_unknown_figure_is_null),
        cmocka_unit_test(what_is_no_result_is_refused),
        cmocka_unit_test(medians_are_taken_of_each_figure),
        cmocka_unit_test(peers_match_what_they_measured),
        cmocka_unit_test(titles_say_what_was_done),
        cmocka_unit_test(a_time_below_its_limit_is_reported),
        cmocka_unit_test(a_table_fits_its_width),
        cmocka_unit_test(columns_without_peers_are_fewer),
        cmocka_unit_test(times_have_three_digits),
        cmocka_unit_test(text_is_broken_between_words),
        cmocka_unit_test(the_width_of_a_pipe_is_that_of_the_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
