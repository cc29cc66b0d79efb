/* command.c - runs one program under a deadline, and reports every failure as a line.
 * The program stays in the caller's process group, so an interrupt from the terminal ends it too.
 * It is stopped with SIGTERM, which mpirun passes on to its processes, then with SIGKILL. The
 * programs of this folder end with their parent. */
#include "peers.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define LINE_BYTES_MAX 4096
#define READS_MAX 64
#define TAIL_BYTES 1024
#define SENTENCE_BYTES 512
#define STOP_NS (3 * REMO__NS_PER_S) /* from SIGTERM to SIGKILL */
#define ENVIRONMENT_MAX 1024

extern char **environ;

struct run {
    const struct peers_command *command;
    peers_line line;
    void *ctx;
    pid_t pid;
    int pid_fd, output_fd, errors_fd;
    char text[LINE_BYTES_MAX];
    size_t text_bytes;
    int too_long;          /* the current line is too long and is dropped up to its end */
    char tail[TAIL_BYTES]; /* the end of its standard error */
    size_t tail_bytes;
    int ended, timed_out, status;
};

/* ---- starting ---- */

/* Variables of a launcher (remo bench under mpirun or srun) would mislead the peer's launcher. */
static int is_foreign(const char *variable) {
    static const char *const prefixes[] = {"PMIX_", "PMI_", "OMPI_", "SLURM_", "REMO_"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (strncmp(variable, prefixes[i], strlen(prefixes[i])) == 0)
            return 1;
    return 0;
}

static void make_environment(char *ret_environment[ENVIRONMENT_MAX]) {
    size_t count = 0;
    for (char **at = environ; *at && count < ENVIRONMENT_MAX - 1; at++)
        if (!is_foreign(*at))
            ret_environment[count++] = *at;
    ret_environment[count] = NULL;
}

static int spawn(struct run *run, const int output[2], const int errors[2]) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    char *environment[ENVIRONMENT_MAX];
    make_environment(environment);
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, errors[1], STDERR_FILENO);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    char *const *argv = (char *const *)(uintptr_t)run->command->argv;
    int rc = posix_spawnp(&run->pid, argv[0], &actions, &attributes, argv, environment);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return -rc;
}

/* Returns 0, or -errno with no process and no open descriptor. */
static int start(struct run *run) {
    int output[2], errors[2];
    if (pipe2(output, O_CLOEXEC))
        return -errno;
    int rc = pipe2(errors, O_CLOEXEC) ? -errno : 0;
    if (!rc) {
        rc = spawn(run, output, errors);
        close(errors[1]);
        if (rc)
            close(errors[0]);
    }
    close(output[1]);
    if (rc) {
        close(output[0]);
        return rc;
    }
    run->output_fd = output[0];
    run->errors_fd = errors[0];
    fcntl(run->output_fd, F_SETFL, O_NONBLOCK);
    fcntl(run->errors_fd, F_SETFL, O_NONBLOCK);
    run->pid_fd = pidfd_open(run->pid, 0);
    return 0;
}

/* ---- reading ---- */

/* Pass JSON objects on; drop other output of launchers and libraries. */
static void take_line(struct run *run) {
    run->text[run->text_bytes] = '\0';
    json_t *object = run->too_long ? NULL : json_loadb(run->text, run->text_bytes, 0, NULL);
    if (json_is_object(object)) {
        if (json_is_true(json_object_get(object, "end")))
            run->ended = 1;
        else
            run->line(run->ctx, run->text);
    }
    json_decref(object);
    run->text_bytes = 0;
    run->too_long = 0;
}

static void take_output(struct run *run, const char *bytes, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] == '\n')
            take_line(run);
        else if (run->text_bytes < LINE_BYTES_MAX - 1)
            run->text[run->text_bytes++] = bytes[i];
        else
            run->too_long = 1;
    }
}

static void take_errors(struct run *run, const char *bytes, size_t count) {
    if (count > TAIL_BYTES) {
        bytes += count - TAIL_BYTES;
        count = TAIL_BYTES;
    }
    size_t keep = run->tail_bytes < TAIL_BYTES - count ? run->tail_bytes : TAIL_BYTES - count;
    memmove(run->tail, run->tail + run->tail_bytes - keep, keep);
    memcpy(run->tail + keep, bytes, count);
    run->tail_bytes = keep + count;
}

/* Read the available data, a limited amount at a time, so that endless output cannot delay the
 * deadline. The descriptor becomes -1 at its end. */
static void drain(struct run *run, int *fd, void (*take)(struct run *, const char *, size_t)) {
    char bytes[4096];
    ssize_t got = 1;
    for (int reads = 0; *fd >= 0 && got > 0 && reads < READS_MAX; reads++) {
        got = read(*fd, bytes, sizeof bytes);
        if (got > 0)
            take(run, bytes, (size_t)got);
        else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
            close(*fd);
            *fd = -1;
        }
    }
}

static void drain_both(struct run *run) {
    drain(run, &run->output_fd, take_output);
    drain(run, &run->errors_fd, take_errors);
}

/* Read until the program has ended (returns 1) or the deadline is reached. Processes that it left
 * behind may hold the pipes and are not awaited. */
static int attend(struct run *run, uint64_t deadline) {
    while (waitpid(run->pid, &run->status, WNOHANG) == 0) {
        uint64_t left_ns = remo__remaining_ns(deadline);
        if (left_ns == 0)
            return 0;
        struct pollfd fds[3] = {
            {run->pid_fd, POLLIN, 0}, {run->output_fd, POLLIN, 0}, {run->errors_fd, POLLIN, 0}};
        /* Without a pidfd (kernels before 5.3), the end is detected in the next round. */
        uint64_t turn_ns = run->pid_fd >= 0 ? REMO__NS_PER_S : 10 * REMO__NS_PER_MS;
        poll(fds, 3, (int)((left_ns < turn_ns ? left_ns : turn_ns) / REMO__NS_PER_MS) + 1);
        drain_both(run);
    }
    drain_both(run);
    return 1;
}

/* ---- the end ---- */

/* Return the last line of standard error with words (launchers print rules around it). */
static void last_line(const struct run *run, char ret_line[SENTENCE_BYTES / 2]) {
    size_t end = run->tail_bytes;
    ret_line[0] = '\0';
    while (end > 0) {
        size_t begin = end, letters = 0;
        while (begin > 0 && run->tail[begin - 1] != '\n')
            begin--;
        for (size_t i = begin; i < end; i++)
            letters += (run->tail[i] | 32) >= 'a' && (run->tail[i] | 32) <= 'z';
        if (letters > 0) {
            snprintf(ret_line, SENTENCE_BYTES / 2, ": %.*s", (int)(end - begin), run->tail + begin);
            return;
        }
        end = begin > 0 ? begin - 1 : 0;
    }
}

static json_t *make_error(const struct peers_command *command, const char *sentence) {
    return json_pack("{s:s, s:s, s:s*, s:s}", "peer", command->peer, "bench", command->bench, "transport",
                     command->transport, "error", sentence);
}

static void report_error(const struct run *run, const char *sentence) {
    json_t *object = make_error(run->command, sentence);
    if (!object) /* the last line was not UTF-8 */
        object = make_error(run->command, "ended before its time");
    char *text = object ? json_dumps(object, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    if (text)
        run->line(run->ctx, text);
    free(text);
    json_decref(object);
}

static void report_end(const struct run *run) {
    char sentence[SENTENCE_BYTES], words[SENTENCE_BYTES / 2];
    last_line(run, words);
    if (run->timed_out)
        snprintf(sentence, sizeof sentence, "not done after %.1f s, and was stopped%s",
                 (double)run->command->timeout_ns / 1e9, words);
    else if (WIFSIGNALED(run->status))
        snprintf(sentence, sizeof sentence, "ended by signal %d (%s)%s", WTERMSIG(run->status),
                 strsignal(WTERMSIG(run->status)), words);
    else
        snprintf(sentence, sizeof sentence, "ended before its figures were out, with status %d%s",
                 WEXITSTATUS(run->status), words);
    report_error(run, sentence);
}

static void stop(struct run *run) {
    run->timed_out = 1;
    kill(run->pid, SIGTERM);
    if (attend(run, remo__deadline(STOP_NS)))
        return;
    kill(run->pid, SIGKILL);
    attend(run, REMO_FOREVER);
}

int peers_run_command(const struct peers_command *command, peers_line line, void *ctx) {
    struct run run = {
        .command = command, .line = line, .ctx = ctx, .pid_fd = -1, .output_fd = -1, .errors_fd = -1};
    int rc = start(&run);
    if (rc) {
        char sentence[SENTENCE_BYTES];
        snprintf(sentence, sizeof sentence, "cannot start %s: %s", command->argv[0], strerror(-rc));
        report_error(&run, sentence);
        return 0;
    }
    if (!attend(&run, remo__deadline(command->timeout_ns)))
        stop(&run);
    if (!run.ended)
        report_end(&run);
    int fds[] = {run.pid_fd, run.output_fd, run.errors_fd};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    return run.ended;
}
