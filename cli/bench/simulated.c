/* simulated.c - a benchmark on the simulated network.
 * One program, remo-sim-bench, contains all nodes, and sends the objects that nodes would send. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/programs.h"
#include "cli/bench/job.h"

static int start(const char *path, char *const *argv, pid_t *ret_pid, FILE **ret_lines) {
    int pipes[2];
    if (pipe(pipes) != 0)
        return remo__fail(-errno, "no pipe for %s: %s", path, strerror(errno));
    *ret_pid = fork();
    if (*ret_pid == 0) {
        dup2(pipes[1], STDOUT_FILENO);
        close(pipes[0]);
        close(pipes[1]);
        execv(path, argv);
        _exit(127);
    }
    close(pipes[1]);
    *ret_lines = *ret_pid > 0 ? fdopen(pipes[0], "r") : NULL;
    if (*ret_lines)
        return 0;
    close(pipes[0]);
    return remo__fail(-EAGAIN, "cannot start %s: %s", path, strerror(errno));
}

int bench_simulated_run(const struct bench_suite *suite, const struct bench *bench,
                        void (*line)(void *ctx, const json_t *object), void *ctx) {
    struct bench_arguments arguments = {.count = 2};
    char path[PATH_MAX], *text = NULL;
    size_t room = 0;
    pid_t pid = -1;
    FILE *lines;
    int status = 0;
    cli_beside("remo-sim-bench", path, sizeof path);
    arguments.argv[0] = path;
    arguments.argv[1] = (char *)(uintptr_t)bench->name;
    bench_job_arguments(suite, &arguments);
    char model[4096];
    snprintf(model, sizeof model, "--model=%s", suite->model);
    if (suite->model)
        arguments.argv[arguments.count++] = model;
    int rc = start(path, arguments.argv, &pid, &lines);
    if (rc != 0)
        return rc;
    while (getline(&text, &room, lines) > 0) {
        json_t *object = json_loads(text, 0, NULL);
        if (json_is_object(object))
            line(ctx, object);
        json_decref(object);
    }
    free(text);
    fclose(lines);
    waitpid(pid, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        return remo__fail(-ENOENT, "cannot start %s; build Remo with -Dsim=true", path);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGINT)
        return remo__fail(-EINTR, "stopped by signal %d", SIGINT);
    return status == 0 ? 0 : remo__fail(-EIO, "the simulation ended with status 0x%x", (unsigned)status);
}
