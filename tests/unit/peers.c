/* peers.c - unit tests of the runner of peer programs: programs that print, crash, hang, print garbage, or do
 * not exist. The programs are this one, started again with `--fake WHAT`. */
#include "base/clock.h"
#include "bench/peers/peers.h"

#include <remo/error.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../support/patience.h"
#include "unit.h"

#define LINES_MAX 8

struct lines {
    char text[LINES_MAX][1024];
    int count;
};

static void collect(void *ctx, const char *json) {
    struct lines *lines = ctx;
    if (lines->count < LINES_MAX)
        snprintf(lines->text[lines->count], sizeof lines->text[0], "%s", json);
    lines->count++;
}

/* ---- the programs ---- */

static void print_figures(void) {
    puts("some launcher greets you");
    puts("{\"peer\":\"fake\",\"ops\":1}");
    puts("[1,2]");
    puts("{\"peer\":\"fake\",\"ops\":");
    puts("{\"peer\":\"fake\",\"ops\":2}");
    fflush(stdout);
}

static void print_too_much(void) {
    for (int i = 0; i < 100000; i++)
        putchar('x');
    puts("{\"peer\":\"fake\",\"ops\":3}");
    puts("{\"peer\":\"fake\",\"ops\":4}");
    puts("{\"end\":true}");
    fflush(stdout);
    for (int i = 0; i < 100000; i++)
        fputs("noise ", stderr);
}

static int fake(const char *what) {
    if (strcmp(what, "babbles") == 0) {
        print_too_much();
        return 0;
    }
    print_figures();
    if (strcmp(what, "ends-badly") == 0 || strcmp(what, "ends-well") == 0)
        puts("{\"end\":true}");
    fflush(stdout);
    if (strcmp(what, "stubborn") == 0)
        signal(SIGTERM, SIG_IGN);
    if (strcmp(what, "hangs") == 0 || strcmp(what, "stubborn") == 0)
        for (;;)
            pause();
    if (strcmp(what, "leaves-a-child") == 0 && fork() == 0) {
        sleep(40); /* it holds the pipes */
        _exit(0);
    }
    if (strcmp(what, "crashes") == 0)
        raise(SIGKILL);
    fputs("a \"reason\" of its own\n-------\n", stderr);
    return strcmp(what, "ends-well") == 0 ? 0 : 3;
}

/* ---- the tests ---- */

static int run_fake(const char *what, uint64_t timeout_ns, struct lines *ret_lines) {
    const char *const argv[] = {"/proc/self/exe", "--fake", what, NULL};
    struct peers_command command = {.peer = "fake", .bench = "read", .argv = argv, .timeout_ns = timeout_ns};
    memset(ret_lines, 0, sizeof *ret_lines);
    return peers_run_command(&command, collect, ret_lines);
}

static void assert_figures(const struct lines *lines) {
    assert_string_equal(lines->text[0], "{\"peer\":\"fake\",\"ops\":1}");
    assert_string_equal(lines->text[1], "{\"peer\":\"fake\",\"ops\":2}");
}

static void assert_error(const char *line, const char *part) {
    assert_non_null(strstr(line, "{\"peer\":\"fake\",\"bench\":\"read\",\"error\":\""));
    assert_non_null(strstr(line, part));
}

static void test_figures_pass(void **state) {
    (void)state;
    struct lines lines;
    assert_int_equal(run_fake("ends-well", 30 * REMO__NS_PER_S, &lines), 1);
    assert_int_equal(lines.count, 2);
    assert_figures(&lines);
}

static void test_status_after_the_end_does_not_matter(void **state) {
    (void)state;
    struct lines lines;
    assert_int_equal(run_fake("ends-badly", 30 * REMO__NS_PER_S, &lines), 1);
    assert_int_equal(lines.count, 2);
}

static void test_status_before_the_end_is_an_error(void **state) {
    (void)state;
    struct lines lines;
    assert_int_equal(run_fake("stops", 30 * REMO__NS_PER_S, &lines), 0);
    assert_int_equal(lines.count, 3);
    assert_figures(&lines);
    assert_error(lines.text[2], "with status 3: a \\\"reason\\\" of its own\"}");
}

static void test_crash_is_an_error(void **state) {
    (void)state;
    struct lines lines;
    assert_int_equal(run_fake("crashes", 30 * REMO__NS_PER_S, &lines), 0);
    assert_int_equal(lines.count, 3);
    assert_figures(&lines);
    assert_error(lines.text[2], "ended by signal 9 (Killed)");
}

static void test_hang_is_an_error(void **state) {
    (void)state;
    struct lines lines;
    uint64_t start_ns = remo__now_ns();
    assert_int_equal(run_fake("hangs", REMO__NS_PER_S, &lines), 0);
    assert_true(in_time(remo__now_ns() - start_ns, 3 * REMO__NS_PER_S));
    assert_int_equal(lines.count, 3);
    assert_figures(&lines);
    assert_error(lines.text[2], "not done after 1.0 s, and was stopped");
}

static void test_hang_that_ignores_sigterm(void **state) {
    (void)state;
    struct lines lines;
    uint64_t start_ns = remo__now_ns();
    assert_int_equal(run_fake("stubborn", REMO__NS_PER_S, &lines), 0);
    assert_true(in_time(remo__now_ns() - start_ns, 8 * REMO__NS_PER_S));
    assert_int_equal(lines.count, 3);
    assert_error(lines.text[2], "not done after 1.0 s, and was stopped");
}

static void test_child_left_behind_is_not_waited_for(void **state) {
    (void)state;
    struct lines lines;
    uint64_t start_ns = remo__now_ns();
    assert_int_equal(run_fake("leaves-a-child", 20 * REMO__NS_PER_S, &lines), 0);
    assert_true(in_time(remo__now_ns() - start_ns, 10 * REMO__NS_PER_S));
    assert_int_equal(lines.count, 3);
}

static void test_long_lines_are_dropped(void **state) {
    (void)state;
    struct lines lines;
    assert_int_equal(run_fake("babbles", 30 * REMO__NS_PER_S, &lines), 1);
    assert_int_equal(lines.count, 1);
    assert_string_equal(lines.text[0], "{\"peer\":\"fake\",\"ops\":4}");
}

static void test_missing_program(void **state) {
    (void)state;
    const char *const argv[] = {"no-such-program-anywhere", NULL};
    struct peers_command command = {
        .peer = "fake", .bench = "read", .argv = argv, .timeout_ns = REMO__NS_PER_S};
    struct lines lines = {0};
    assert_int_equal(peers_run_command(&command, collect, &lines), 0);
    assert_int_equal(lines.count, 1);
    assert_error(lines.text[0], "cannot start no-such-program-anywhere: No such file or directory");
}

static void test_unknown_peer(void **state) {
    (void)state;
    struct peers_options options = PEERS_OPTIONS_DEFAULT;
    struct lines lines = {0};
    assert_int_equal(peers_run("nobody", NULL, &options, collect, &lines), -ENOENT);
    assert_non_null(strstr(remo_last_error(), "nobody"));
    assert_int_equal(lines.count, 0);
}

static void test_peers_not_built_are_skipped(void **state) {
    static const char *const stores[][2] = {{"redis", "apt-get install redis-server"},
                                            {"lmdb", "apt-get install liblmdb-dev"},
                                            {"sqlite", "apt-get install libsqlite3-dev"},
                                            {"postgresql", "apt-get install postgresql libpq-dev"}};
    char start[80];
    (void)state;
    struct peers_options options = PEERS_OPTIONS_DEFAULT;
    struct lines lines = {0};
    options.folder = "/nonexistent";
    assert_int_equal(peers_run("redis", "kv", &options, collect, &lines), 0);
    assert_int_equal(lines.count, 2);
    assert_non_null(
        strstr(lines.text[0], "{\"peer\":\"redis\",\"bench\":\"kv\",\"transport\":\"unix\",\"skipped\":\""));
    assert_non_null(
        strstr(lines.text[1], "{\"peer\":\"redis\",\"bench\":\"kv\",\"transport\":\"tcp\",\"skipped\":\""));
    assert_int_equal(peers_run("ucx", NULL, &options, collect, &lines), 0); /* it needs no command */
    assert_int_equal(lines.count, 3);
    assert_non_null(strstr(lines.text[2], "{\"peer\":\"ucx\",\"bench\":\"rpc\",\"skipped\":\""));
    assert_non_null(strstr(lines.text[2], "apt-get install libucx-dev"));
    assert_int_equal(peers_run(NULL, "tatp", &options, collect, &lines), 0);
    assert_int_equal(lines.count, 7);
    for (unsigned i = 0; i < sizeof stores / sizeof *stores; i++) {
        snprintf(start, sizeof start, "{\"peer\":\"%s\",\"bench\":\"tatp\",", stores[i][0]);
        assert_memory_equal(lines.text[3 + i], start, strlen(start));
        assert_non_null(strstr(lines.text[3 + i], "\"skipped\":\""));
        assert_non_null(strstr(lines.text[3 + i], stores[i][1]));
    }
    assert_int_equal(peers_check(&peers_list()[0], options.folder), -ENOENT);
    assert_non_null(strstr(remo_last_error(), "apt-get install openmpi-bin libopenmpi-dev"));
}

static void script_write(const char *folder, const char *name, const char *text) {
    char file[128];
    snprintf(file, sizeof file, "%s/%s", folder, name);
    FILE *script = fopen(file, "w");
    assert_non_null(script);
    fprintf(script, "#!/bin/sh\n%s\n", text);
    assert_int_equal(fchmod(fileno(script), 0700), 0);
    assert_int_equal(fclose(script), 0);
}

/* Less than a program accepts is not passed on. */
static void test_short_times_are_raised(void **state) {
    (void)state;
    struct peers_options options = PEERS_OPTIONS_DEFAULT;
    struct lines lines = {0};
    char folder[] = "/tmp/remo-test-peers-XXXXXX", file[128], path[4096];
    assert_non_null(mkdtemp(folder));
    script_write(folder, "redis-server", "");
    script_write(folder, "peer-redis", "echo \"{\\\"arguments\\\":\\\"$*\\\"}\"; echo '{\"end\":true}'");
    const char *path_before = getenv("PATH");
    snprintf(path, sizeof path, "%s:%s", folder, path_before);
    char *restored = strdup(path_before);
    setenv("PATH", path, 1);
    options.folder = folder;
    options.seconds = 0.0001;
    int rc = peers_run("redis", "kv", &options, collect, &lines);
    setenv("PATH", restored, 1);
    free(restored);
    snprintf(file, sizeof file, "%s/redis-server", folder);
    unlink(file);
    snprintf(file, sizeof file, "%s/peer-redis", folder);
    unlink(file);
    rmdir(folder);
    assert_int_equal(rc, 0);
    assert_int_equal(lines.count, 2);
    assert_non_null(strstr(lines.text[0], "--seconds 0.010 "));
}

static void test_benches_without_a_rival_are_passed_over(void **state) {
    (void)state;
    struct peers_options options = PEERS_OPTIONS_DEFAULT;
    struct lines lines = {0};
    assert_int_equal(peers_run(NULL, "sst", &options, collect, &lines), 0);
    assert_int_equal(lines.count, 0);
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "--fake") == 0)
        return fake(argv[2]);
    if (getenv("MESON_EXE_WRAPPER")) {
        puts("skipped: an emulated program cannot start itself");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_figures_pass),
        cmocka_unit_test(test_status_after_the_end_does_not_matter),
        cmocka_unit_test(test_status_before_the_end_is_an_error),
        cmocka_unit_test(test_crash_is_an_error),
        cmocka_unit_test(test_hang_is_an_error),
        cmocka_unit_test(test_hang_that_ignores_sigterm),
        cmocka_unit_test(test_child_left_behind_is_not_waited_for),
        cmocka_unit_test(test_long_lines_are_dropped),
        cmocka_unit_test(test_missing_program),
        cmocka_unit_test(test_unknown_peer),
        cmocka_unit_test(test_peers_not_built_are_skipped),
        cmocka_unit_test(test_short_times_are_raised),
        cmocka_unit_test(test_benches_without_a_rival_are_passed_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
