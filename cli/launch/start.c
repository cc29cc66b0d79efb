/* start.c - starts one node: pipes, fork, exec.
 * All memory is allocated before the fork, because the child of a process with threads must not
 * take a lock. The failure of a child arrives through a pipe that closes on exec. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/launch/node.h"

/* Why a child did not become the program. */
struct failure {
    int error;    /* -errno; 0: none */
    bool is_exec; /* else the child could not be prepared */
};

/* The child's resources, made before the fork: afterwards no function that takes a lock may be
 * called. */
struct start {
    char **words, **environment;
    char *input;                   /* for ssh's standard input */
    int in, out, err;              /* to become 0, 1, 2; -1: inherited */
    int lifeline;                  /* the launcher's end of `in`, for ssh */
    int out_read, err_read;        /* the launcher's ends */
    int failed_read, failed_write; /* struct failure */
    cpu_set_t cpus;
    pid_t parent;
    bool own_group;
};

static void start_close(struct start *start) {
    int *fds[] = {&start->in,       &start->out,      &start->err,         &start->lifeline,
                  &start->out_read, &start->err_read, &start->failed_read, &start->failed_write};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        if (*fds[i] >= 0)
            close(*fds[i]);
        *fds[i] = -1;
    }
    launch_words_free(start->words);
    launch_environment_free(start->environment);
    if (start->input)
        explicit_bzero(start->input, strlen(start->input));
    free(start->input);
}

static int pipe_make(int *ret_read, int *ret_write) {
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0)
        return -errno;
    *ret_read = fds[0];
    *ret_write = fds[1];
    return 0;
}

static int output_open(const char *folder, uint32_t rank, struct start *start) {
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/rank-%u.log", folder, rank) >= (int)sizeof path)
        return -ENAMETOOLONG;
    start->out = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
    start->err = start->out < 0 ? -1 : fcntl(start->out, F_DUPFD_CLOEXEC, 0);
    return start->err < 0 ? -errno : 0;
}

static int start_streams(const struct launch *launch, uint32_t rank, struct start *start) {
    const struct launch_options *options = launch->options;
    int rc = pipe_make(&start->failed_read, &start->failed_write), pair[2];
    if (rc == 0 && launch->job.places[rank].remote) {
        rc = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0 ? 0 : -errno;
        if (rc == 0) {
            start->in = pair[0];
            start->lifeline = pair[1];
        }
    } else if (rc == 0 && rank > 0) {
        start->in = open("/dev/null", O_RDONLY | O_CLOEXEC);
        rc = start->in < 0 ? -errno : 0;
    }
    if (rc == 0 && (options->line || options->tag))
        rc = pipe_make(&start->out_read, &start->out);
    if (rc == 0 && options->tag)
        rc = pipe_make(&start->err_read, &start->err);
    if (rc == 0 && options->output_folder)
        rc = output_open(options->output_folder, rank, start);
    return rc;
}

static cpu_set_t cpu_of_rank(const cpu_set_t *allowed, uint32_t rank) {
    cpu_set_t one;
    uint32_t skip = rank % (uint32_t)CPU_COUNT(allowed);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, allowed) && skip-- == 0)
            CPU_SET(cpu, &one);
    }
    return one;
}

/* Return whether standard input is a terminal from which this process may read. */
static bool in_foreground(void) {
    return isatty(STDIN_FILENO) && tcgetpgrp(STDIN_FILENO) == getpgrp();
}

static int start_make(const struct launch *launch, uint32_t rank, struct start *ret_start) {
    const struct launch_options *options = launch->options;
    *ret_start =
        (struct start){.in = -1,
                       .out = -1,
                       .err = -1,
                       .lifeline = -1,
                       .out_read = -1,
                       .err_read = -1,
                       .failed_read = -1,
                       .failed_write = -1,
                       .parent = getpid(),
                       .own_group = !launch->job.places[rank].remote && (rank > 0 || !in_foreground())};
    ret_start->cpus = options->pin ? cpu_of_rank(&launch->cpus, rank) : launch->cpus;
    ret_start->environment = launch_environment(&launch->job, options, rank);
    bool remote = launch->job.places[rank].remote;
    if (remote) {
        ret_start->words = launch_ssh_words(&launch->job, options, rank);
        ret_start->input = launch_ssh_input(&launch->job, options, rank);
    }
    if (!ret_start->environment || (remote && (!ret_start->words || !ret_start->input)))
        return remo__fail(-ENOMEM, "no memory to start node %u", rank);
    int rc = start_streams(launch, rank, ret_start);
    return rc == 0 ? 0
                   : remo__fail(rc, "cannot open the streams of node %u: %s%s", rank, strerror(-rc),
                                rc == -EMFILE ? "; raise the limit of descriptors (ulimit -n)" : "");
}

static _Noreturn void child_run(const struct launch *launch, const struct start *start) {
    extern char **environ;
    int fds[3] = {start->in, start->out, start->err};
    char *const *words = start->words ? start->words : launch->options->argv;
    bool ready = prctl(PR_SET_PDEATHSIG, SIGTERM) == 0 && getppid() == start->parent;
    if (ready && start->own_group) /* in the background of the terminal, where it must not stop */
        ready =
            setpgid(0, 0) == 0 && signal(SIGTTOU, SIG_IGN) != SIG_ERR && signal(SIGTTIN, SIG_IGN) != SIG_ERR;
    for (int i = 0; ready && i < 3; i++)
        ready = fds[i] < 0 || dup2(fds[i], i) == i;
    if (ready && launch->options->pin)
        ready = sched_setaffinity(0, sizeof start->cpus, &start->cpus) == 0;
    sigprocmask(SIG_SETMASK, &launch->mask_before, NULL);
    if (ready)
        ready = setrlimit(RLIMIT_NOFILE, &launch->descriptors_before) == 0;
    if (ready) {
        if (!start->words) /* ssh keeps the launcher's environment: agent, home */
            environ = start->environment;
        execvp(words[0], words);
    }
    struct failure failure = {.error = -errno, .is_exec = ready};
    ssize_t ignored = write(start->failed_write, &failure, sizeof failure);
    (void)ignored;
    _exit(127);
}

/* Send the key and the environment to the other host. They fit the socket's buffer; MSG_NOSIGNAL
 * survives an ended ssh. */
static void input_send(int fd, const char *text) {
    size_t bytes = strlen(text), at = 0;
    while (at < bytes) {
        ssize_t sent = send(fd, text + at, bytes - at, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR)
            return; /* its end will be reported */
        at += sent > 0 ? (size_t)sent : 0;
    }
}

static struct failure exec_result(struct start *start) {
    struct failure failure = {0};
    ssize_t got;
    close(start->failed_write);
    start->failed_write = -1;
    do
        got = read(start->failed_read, &failure, sizeof failure);
    while (got < 0 && errno == EINTR);
    return got == sizeof failure ? failure : (struct failure){0};
}

static int exec_fail(const struct launch *launch, const struct start *start, const struct failure *failure) {
    const char *program = start->words ? start->words[0] : launch->options->argv[0];
    if (failure->is_exec && !start->words && launch->options->ret_exec_error)
        *launch->options->ret_exec_error = failure->error;
    if (failure->is_exec && failure->error == -ENOENT)
        return remo__fail(failure->error, "there is no program %s; give its path or check PATH", program);
    return remo__fail(failure->error, "cannot start %s: %s", program, strerror(-failure->error));
}

static void node_keep(struct launch *launch, struct node *node, struct start *start, pid_t pid) {
    node->pid = pid;
    node->target = start->own_group ? -pid : pid;
    node->pid_fd = pidfd_open(pid, 0);
    node->lifeline = start->lifeline;
    node->out.fd = start->out_read;
    node->err.fd = start->err_read;
    start->lifeline = start->out_read = start->err_read = -1;
    if (node->out.fd >= 0)
        fcntl(node->out.fd, F_SETFL, O_NONBLOCK);
    if (node->err.fd >= 0)
        fcntl(node->err.fd, F_SETFL, O_NONBLOCK);
    launch->running++;
}

int launch_node_start(struct launch *launch, struct node *node) {
    struct start start;
    int rc = start_make(launch, node->rank, &start);
    if (rc != 0)
        goto out;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        child_run(launch, &start);
    if (pid < 0) {
        rc = remo__fail(-errno, "cannot start node %u: %s", node->rank, strerror(errno));
        goto out;
    }
    struct failure failure = exec_result(&start);
    if (failure.error != 0) {
        waitpid(pid, NULL, 0);
        rc = exec_fail(launch, &start, &failure);
        goto out;
    }
    node_keep(launch, node, &start, pid);
    launch_guard_watch(&launch->guard, node->target);
    if (node->pid_fd < 0)
        rc = remo__fail(-errno, "cannot watch node %u: %s", node->rank, strerror(errno));
    else if (node->lifeline >= 0)
        input_send(node->lifeline, start.input);
out:
    start_close(&start);
    return rc;
}
