/* suite.c - runs the cases, each in its own process, and reports their results.
 * A case that crashes or hangs fails alone: the parent process only waits and counts. */
#include "suite.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define CASE_SECONDS_MAX 150u
#define SKIPPED 77

static const struct suite_case *const case_lists[] = {
    suite_cases_ops,     suite_cases_queue,  suite_cases_order,     suite_cases_imm,
    suite_cases_threads, suite_cases_errors, suite_cases_processes,
};

_Noreturn void suite_fail(const char *file, int line, const char *format, ...) {
    va_list args;
    va_start(args, format);
    flockfile(stderr);
    fprintf(stderr, "%s:%d: ", file, line);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    funlockfile(stderr);
    va_end(args);
    _exit(1); /* not exit: other threads still run */
}

_Noreturn void suite_skip(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fputs("SKIPPED: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    _exit(SKIPPED);
}

static const struct suite_case *case_at(size_t n) {
    for (size_t i = 0; i < REMO__ARRAY_COUNT(case_lists); i++) {
        for (const struct suite_case *item = case_lists[i]; item->name; item++) {
            if (n-- == 0)
                return item;
        }
    }
    return NULL;
}

static const struct suite_case *case_find(const char *name) {
    const struct suite_case *item;
    for (size_t n = 0; (item = case_at(n)); n++) {
        if (strcmp(item->name, name) == 0)
            return item;
    }
    return NULL;
}

static int case_run(const struct suite *suite, const struct suite_case *item) {
    struct remo__fabric_config config = suite_config(suite, 0, 1);
    int rc = suite->ops->probe(&config);
    if (rc == -ENODEV || rc == -ENOSYS)
        suite_skip("this machine has no fabric %s: %s", suite->ops->name, remo_last_error());
    CHECK_EQ(rc, 0);
    alarm(CASE_SECONDS_MAX); /* a case that hangs has failed */
    item->run(suite);
    return 0;
}

/* Returns the exit status of the case, 1 if it ended by a signal. */
static int case_fork(const struct suite *suite, const struct suite_case *item) {
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        exit(case_run(suite, item));
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        suite_fail(__FILE__, __LINE__, "cannot fork: %s", strerror(errno));
    if (WIFSIGNALED(status))
        fprintf(stderr, "ended by signal %d\n", WTERMSIG(status));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static int run_all(const struct suite *suite) {
    int passed = 0, failed = 0, skipped = 0;
    const struct suite_case *item;
    for (size_t n = 0; (item = case_at(n)); n++) {
        uint64_t start = remo__now_ns();
        int status = case_fork(suite, item);
        *(status == 0 ? &passed : status == SKIPPED ? &skipped : &failed) += 1;
        printf("%-7s %s %s (%.2f s)\n",
               status == 0         ? "passed"
               : status == SKIPPED ? "skipped"
                                   : "FAILED",
               suite->ops->name, item->name, (double)(remo__now_ns() - start) / 1e9);
    }
    printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    return failed > 0 ? 1 : passed > 0 ? 0 : SKIPPED;
}

/* Compare the cases with the list in meson.build, where each case is a test of its own. */
static int check_listed(int count, char **names) {
    int missing = 0;
    for (int i = 0; i < count; i++) {
        if (!case_find(names[i])) {
            fprintf(stderr, "there is no case %s\n", names[i]);
            missing++;
        }
    }
    const struct suite_case *item;
    for (size_t n = 0; (item = case_at(n)); n++) {
        int i = 0;
        while (i < count && strcmp(names[i], item->name) != 0)
            i++;
        if (i == count) {
            fprintf(stderr, "case %s is missing in meson.build\n", item->name);
            missing++;
        }
    }
    return missing > 0;
}

int suite_main(const struct suite *suite, int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 1)
        return run_all(suite);
    if (strcmp(argv[1], "--listed") == 0)
        return check_listed(argc - 2, argv + 2);
    const struct suite_case *item = argc == 2 ? case_find(argv[1]) : NULL;
    if (item)
        return case_run(suite, item);
    fprintf(stderr, "usage: %s [CASE]\n", argv[0]);
    for (size_t n = 0; (item = case_at(n)); n++)
        fprintf(stderr, "  %s\n", item->name);
    return 2;
}
