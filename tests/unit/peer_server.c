/* peer_server.c - unit tests of the server that the program of a peer starts: it ends, and its folder is
 * removed, however the program ends. The program is a child process; its server is a shell. */
#include "bench/peers/server.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit.h"

/* The program sends this to the test. */
struct report {
    char folder[64];
    pid_t server;
};

static struct report own; /* of this program */

static void settle(const void *ctx) {
    (void)ctx;
}

/* Start a server that writes its process number to a file of its folder, between two commands. Returns when
 * the file is complete. */
static void start_server(const char *before, const char *after) {
    char line[128];
    const char *const argv[] = {"sh", "-c", line, NULL};
    struct server_endpoint endpoint;
    const char *folder = server_make_folder(NULL);
    FILE *file;
    if (!folder || server_choose_endpoint(false, &endpoint) != 0)
        _exit(10);
    snprintf(line, sizeof line, "%s mkdir -p a/b; >a/b/c; echo $$ >new; mv new pid; %s", before, after);
    server_launch(argv, SIGTERM, settle, NULL);
    snprintf(own.folder, sizeof own.folder, "%s", folder);
    snprintf(line, sizeof line, "%s/pid", folder);
    while (!(file = fopen(line, "r")))
        usleep(1000);
    if (fscanf(file, "%d", &own.server) != 1)
        _exit(11);
    fclose(file);
}

/* Run `program` in a child process, with a server. The child reports first. */
static int run_program(const char *before, void (*program)(void), int signal_number,
                       struct report *ret_report) {
    int fds[2], status;
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    if (pid == 0) {
        start_server(before, "exec sleep 600");
        if (write(fds[1], &own, sizeof own) != sizeof own)
            _exit(12);
        program();
        exit(3);
    }
    assert_true(pid > 0);
    assert_int_equal(read(fds[0], ret_report, sizeof *ret_report), sizeof *ret_report);
    close(fds[0]);
    close(fds[1]);
    if (signal_number)
        assert_int_equal(kill(pid, signal_number), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void assert_removed(const struct report *report) {
    struct stat found;
    assert_int_equal(kill(report->server, 0), -1);
    assert_int_equal(errno, ESRCH);
    assert_int_equal(stat(report->folder, &found), -1);
    assert_int_equal(errno, ENOENT);
}

static void wait_for_signal(void) {
    for (;;)
        pause();
}

static void end(void) {
}

static void end_in_another_process(void) {
    struct stat found;
    int status;
    pid_t pid = fork();
    if (pid == 0)
        exit(0);
    if (waitpid(pid, &status, 0) != pid || !server_is_running() || stat(own.folder, &found) != 0)
        exit(13);
}

static void test_end_of_the_program(void **state) {
    (void)state;
    struct report report;
    assert_int_equal(run_program("", end, 0, &report), 3);
    assert_removed(&report);
}

static void test_signal(void **state) {
    (void)state;
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP, SIGPIPE};
    struct report report;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        assert_int_equal(run_program("", wait_for_signal, numbers[i], &report), 128 + numbers[i]);
        assert_removed(&report);
    }
}

static void test_server_that_ignores_its_signal(void **state) {
    (void)state;
    struct report report;
    assert_int_equal(run_program("trap '' TERM;", end, 0, &report), 3);
    assert_removed(&report);
}

static void test_end_of_another_process(void **state) {
    (void)state;
    struct report report;
    assert_int_equal(run_program("", end_in_another_process, 0, &report), 3);
    assert_removed(&report);
}

static void test_server_that_ends(void **state) {
    (void)state;
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        start_server("", "exit 1");
        int fd = server_await();
        exit(fd == -1 && !server_is_running() ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_end_of_the_program),
        cmocka_unit_test(test_signal),
        cmocka_unit_test(test_server_that_ignores_its_signal),
        cmocka_unit_test(test_end_of_another_process),
        cmocka_unit_test(test_server_that_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
