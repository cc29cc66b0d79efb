/* guard.c - the guard process (guard.h).
 * It is a fork without exec, and keeps only the pipe and the folder's lock open, so readers of the
 * launcher's output do not wait for it. It has its own session, so signals to the launcher's group
 * do not reach it. */
#include "cli/launch/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "cli/launch/folder.h"

#define DISMISS 0
#define FD_PIPE 3
#define FD_LOCK 4
#define FD_FREE 5         /* descriptors from here on are closed */
#define POLL_NS 20000000l /* between two checks of the targets */

/* ---- in the guard ---- */

struct targets {
    pid_t list[REMO__NODES_MAX];
    uint32_t count;
};

/* Read the next target. Returns false at the end of the pipe. */
static bool target_read(pid_t *ret_target) {
    ssize_t got; /* writes of this size are atomic */
    do
        got = read(FD_PIPE, ret_target, sizeof *ret_target);
    while (got < 0 && errno == EINTR);
    return got == sizeof *ret_target;
}

static bool targets_signal(const struct targets *targets, int number) {
    bool any = false;
    for (uint32_t i = 0; i < targets->count; i++)
        any |= kill(targets->list[i], number) == 0;
    return any;
}

static void targets_end(const struct targets *targets) {
    const struct timespec pause = {.tv_nsec = POLL_NS};
    uint64_t deadline = remo__deadline(LAUNCH_GRACE_NS);
    targets_signal(targets, SIGTERM);
    targets_signal(targets, SIGCONT); /* a stopped process would not end */
    while (targets_signal(targets, 0) && remo__remaining_ns(deadline) > 0)
        nanosleep(&pause, NULL);
    targets_signal(targets, SIGKILL);
}

/* Move the pipe and the lock to descriptors 3 and 4, and close all others. */
static void descriptors_keep(int pipe_fd, int lock_fd) {
    int high_pipe = fcntl(pipe_fd, F_DUPFD, FD_FREE), high_lock = fcntl(lock_fd, F_DUPFD, FD_FREE);
    int null = open("/dev/null", O_RDWR);
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        dup2(null, fd);
    dup2(high_pipe, FD_PIPE);
    dup2(high_lock, FD_LOCK);
    close_range(FD_FREE, ~0u, 0);
}

static _Noreturn void guard_run(const struct launch_job *job, int pipe_fd) {
    struct targets targets = {.count = 0};
    pid_t target;
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    setsid();
    prctl(PR_SET_NAME, "remo-guard");
    descriptors_keep(pipe_fd, job->lock_fd);
    while (target_read(&target)) {
        if (target == DISMISS)
            _exit(0);
        if (targets.count < REMO__NODES_MAX)
            targets.list[targets.count++] = target;
    }
    targets_end(&targets);
    launch_folder_remove(job->folder);
    _exit(0);
}

/* ---- in the launcher ---- */

int launch_guard_open(const struct launch_job *job, struct launch_guard *ret_guard) {
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0)
        return remo__fail(-errno, "cannot make the pipe of the guard process: %s; see ulimit -n",
                          strerror(errno));
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        close(fds[1]);
        guard_run(job, fds[0]);
    }
    int rc = pid < 0 ? -errno : 0;
    close(fds[0]);
    if (rc != 0) {
        close(fds[1]);
        return remo__fail(rc, "cannot start the guard process: %s; see ulimit -u", strerror(-rc));
    }
    *ret_guard = (struct launch_guard){.pid = pid, .fd = fds[1]};
    return 0;
}

/* If the guard was killed, the launcher continues without it. */
void launch_guard_watch(struct launch_guard *guard, pid_t target) {
    ssize_t sent;
    do
        sent = write(guard->fd, &target, sizeof target);
    while (sent < 0 && errno == EINTR);
}

void launch_guard_close(struct launch_guard *guard) {
    launch_guard_watch(guard, DISMISS);
    close(guard->fd);
    while (waitpid(guard->pid, NULL, 0) < 0 && errno == EINTR)
        ;
}
