#include "cli/launch.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/error.h"
#include "cli/launch_job.h"

#define GRACE_NS (2 * REMO__NS_PER_S) /* from SIGTERM to SIGKILL */
#define STATUS_TIMEOUT 124            /* as timeout(1) */
#define DRAIN_READS_MAX 1024

/* One output of a node that passes through here. */
struct stream {
    int fd; /* -1: not ours, or at its end */
    size_t bytes;
    char text[LAUNCH_LINE_BYTES_MAX];
};

struct node {
    uint32_t rank;
    pid_t pid; /* 0: not started, or waited for */
    int pid_fd;
    int lifeline; /* ssh's standard input; its end ends the node over there. -1: none */
    struct stream out, err;
};

struct launch {
    const struct launch_options *options;
    const char *name;
    struct launch_job job;
    struct node *nodes;
    uint32_t running;
    int status; /* of the first node that failed */
    sigset_t mask_before;
    int signal_fd;
    int signals_seen;
    cpu_set_t cpus;
    uint64_t deadline, kill_at; /* REMO_FOREVER: none */
};

static void say(const struct launch *launch, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void say(const struct launch *launch, const char *format, ...) {
    char text[512];
    va_list arguments;
    if (launch->options->quiet)
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "%s: %s\n", launch->name, text);
}

/* ---- output -------------------------------------------------------------------------------------------- */

static void line_out(const struct launch *launch, const struct node *node, bool is_err, char *line,
                     size_t bytes) {
    const struct launch_options *options = launch->options;
    line[bytes] = '\0';
    if (options->line && !is_err) {
        options->line(options->ctx, node->rank, line, bytes);
        return;
    }
    FILE *to = is_err ? stderr : stdout;
    if (options->tag)
        fprintf(to, "[%u] ", node->rank);
    fwrite(line, 1, bytes, to);
    fputc('\n', to);
    fflush(to);
}

static void lines_out(const struct launch *launch, const struct node *node, bool is_err,
                      struct stream *stream, bool at_end) {
    char *start = stream->text, *end;
    size_t left = stream->bytes;
    while ((end = memchr(start, '\n', left))) {
        line_out(launch, node, is_err, start, (size_t)(end - start));
        left -= (size_t)(end - start) + 1;
        start = end + 1;
    }
    if (left > 0 && (at_end || left == sizeof stream->text - 1)) {
        line_out(launch, node, is_err, start, left);
        left = 0;
    }
    memmove(stream->text, start, left);
    stream->bytes = left;
}

static void stream_close(const struct launch *launch, const struct node *node, bool is_err,
                         struct stream *stream) {
    if (stream->fd < 0)
        return;
    lines_out(launch, node, is_err, stream, true);
    close(stream->fd);
    stream->fd = -1;
}

/* False when nothing more is there now. */
static bool stream_read(const struct launch *launch, const struct node *node, bool is_err,
                        struct stream *stream) {
    if (stream->fd < 0)
        return false;
    ssize_t got = read(stream->fd, stream->text + stream->bytes, sizeof stream->text - 1 - stream->bytes);
    if (got < 0)
        return errno == EINTR;
    if (got == 0) {
        stream_close(launch, node, is_err, stream);
        return false;
    }
    stream->bytes += (size_t)got;
    lines_out(launch, node, is_err, stream, false);
    return true;
}

/* The node has ended: take what it wrote, but do not wait for children of its own that still hold the pipe.
 */
static void streams_drain(const struct launch *launch, struct node *node) {
    for (int i = 0; i < DRAIN_READS_MAX && stream_read(launch, node, false, &node->out); i++)
        ;
    for (int i = 0; i < DRAIN_READS_MAX && stream_read(launch, node, true, &node->err); i++)
        ;
    stream_close(launch, node, false, &node->out);
    stream_close(launch, node, true, &node->err);
}

/* ---- starting one node --------------------------------------------------------------------------------- */

/* What the child needs, all of it made before the fork: afterwards it may call nothing that takes a lock. */
struct start {
    char **words, **environment;
    char *input;                   /* for ssh's standard input */
    int in, out, err;              /* to become 0, 1, 2; -1: as they are */
    int lifeline;                  /* our end of `in`, for ssh */
    int out_read, err_read;        /* our ends */
    int failed_read, failed_write; /* errno of a failed exec */
    cpu_set_t cpus;
    pid_t parent;
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

static int start_make(const struct launch *launch, uint32_t rank, struct start *ret_start) {
    const struct launch_options *options = launch->options;
    *ret_start = (struct start){.in = -1,
                                .out = -1,
                                .err = -1,
                                .lifeline = -1,
                                .out_read = -1,
                                .err_read = -1,
                                .failed_read = -1,
                                .failed_write = -1,
                                .parent = getpid()};
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
    return rc == 0 ? 0 : remo__fail(rc, "cannot make pipes for node %u: %s", rank, strerror(-rc));
}

static _Noreturn void child_run(const struct launch *launch, const struct start *start) {
    extern char **environ;
    int fds[3] = {start->in, start->out, start->err};
    char *const *words = start->words ? start->words : launch->options->argv;
    bool ready = prctl(PR_SET_PDEATHSIG, SIGTERM) == 0 && getppid() == start->parent;
    for (int i = 0; ready && i < 3; i++)
        ready = fds[i] < 0 || dup2(fds[i], i) == i;
    if (ready && launch->options->pin)
        ready = sched_setaffinity(0, sizeof start->cpus, &start->cpus) == 0;
    sigprocmask(SIG_SETMASK, &launch->mask_before, NULL);
    if (ready) {
        if (!start->words) /* ssh keeps our own environment: agent, home */
            environ = start->environment;
        execvp(words[0], words);
    }
    int error = errno;
    ssize_t ignored = write(start->failed_write, &error, sizeof error);
    (void)ignored;
    _exit(127);
}

/* The key and the environment for the other host. They fit a socket's buffer, but a dead ssh must not take us
 * along. */
static void input_send(int fd, const char *text) {
    size_t bytes = strlen(text), at = 0;
    while (at < bytes) {
        ssize_t sent = send(fd, text + at, bytes - at, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR)
            return; /* its end will be reported */
        at += sent > 0 ? (size_t)sent : 0;
    }
}

static int exec_result(struct start *start) {
    int error = 0;
    ssize_t got;
    close(start->failed_write);
    start->failed_write = -1;
    do
        got = read(start->failed_read, &error, sizeof error);
    while (got < 0 && errno == EINTR);
    return got == sizeof error ? -error : 0;
}

static int exec_fail(const struct launch *launch, const struct start *start, int rc) {
    const char *program = start->words ? start->words[0] : launch->options->argv[0];
    if (rc == -ENOENT)
        return remo__fail(rc, "there is no program %s; give its path or check PATH", program);
    return remo__fail(rc, "cannot start %s: %s", program, strerror(-rc));
}

static void node_keep(struct launch *launch, struct node *node, struct start *start, pid_t pid) {
    node->pid = pid;
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

static int node_start(struct launch *launch, struct node *node) {
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
    rc = exec_result(&start);
    if (rc != 0) {
        waitpid(pid, NULL, 0);
        rc = exec_fail(launch, &start, rc);
        goto out;
    }
    node_keep(launch, node, &start, pid);
    if (node->pid_fd < 0)
        rc = remo__fail(-errno, "cannot watch node %u: %s", node->rank, strerror(errno));
    else if (node->lifeline >= 0)
        input_send(node->lifeline, start.input);
out:
    start_close(&start);
    return rc;
}

/* ---- ending -------------------------------------------------------------------------------------------- */

static void nodes_signal(struct launch *launch, int number) {
    for (uint32_t i = 0; i < launch->job.nodes; i++) {
        if (launch->nodes[i].pid > 0)
            kill(launch->nodes[i].pid, number);
    }
}

static void nodes_end(struct launch *launch) {
    if (launch->kill_at != REMO_FOREVER)
        return;
    nodes_signal(launch, SIGTERM);
    launch->kill_at = remo__deadline(GRACE_NS);
}

static void describe_end(const struct launch *launch, const struct node *node, pid_t pid, int status) {
    const struct remo__host *host = launch->job.places[node->rank].host;
    char where[REMO__HOST_BYTES_MAX + 16];
    if (launch->job.spread)
        snprintf(where, sizeof where, "on %s", host->host);
    else
        snprintf(where, sizeof where, "process %d", (int)pid);
    if (WIFSIGNALED(status))
        say(launch, "node %u (%s) was killed by signal %d (%s)", node->rank, where, WTERMSIG(status),
            strsignal(WTERMSIG(status)));
    else if (WEXITSTATUS(status) != 0)
        say(launch, "node %u (%s) ended with status %d", node->rank, where, WEXITSTATUS(status));
}

static void node_ended(struct launch *launch, struct node *node) {
    int status = 0;
    pid_t pid = node->pid;
    if (waitpid(pid, &status, WNOHANG) != pid)
        return;
    node->pid = 0;
    launch->running--;
    streams_drain(launch, node);
    close(node->pid_fd);
    if (node->lifeline >= 0)
        close(node->lifeline);
    node->pid_fd = node->lifeline = -1;
    int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (code == 0)
        return;
    /* What we or the user ended is no news. */
    if (launch->kill_at == REMO_FOREVER && launch->signals_seen == 0)
        describe_end(launch, node, pid, status);
    if (launch->status == 0)
        launch->status = code;
    if (launch->options->kill_on_failure)
        nodes_end(launch);
}

/* The terminal sends its signals to all processes in the foreground, so the nodes have those already. */
static void signal_arrived(struct launch *launch) {
    struct signalfd_siginfo info;
    if (read(launch->signal_fd, &info, sizeof info) != sizeof info)
        return;
    if (launch->signals_seen == 0 && launch->options->ret_signal)
        *launch->options->ret_signal = (int)info.ssi_signo;
    if (launch->signals_seen++ > 0)
        nodes_signal(launch, SIGKILL);
    else if (info.ssi_code != SI_KERNEL)
        nodes_signal(launch, (int)info.ssi_signo);
}

static void deadlines_check(struct launch *launch) {
    if (remo__remaining_ns(launch->deadline) == 0) {
        launch->deadline = REMO_FOREVER;
        say(launch, "%u nodes have not ended after %.0f s; they are stopped", launch->running,
            (double)launch->options->timeout_ns / 1e9);
        launch->status = launch->status ? launch->status : STATUS_TIMEOUT;
        nodes_end(launch);
    }
    if (launch->kill_at != REMO_FOREVER && remo__remaining_ns(launch->kill_at) == 0) {
        nodes_signal(launch, SIGKILL);
        launch->kill_at = remo__deadline(GRACE_NS);
    }
}

/* ---- the loop ------------------------------------------------------------------------------------------ */

static int wait_ms(const struct launch *launch) {
    uint64_t left = remo__min(remo__remaining_ns(launch->deadline), remo__remaining_ns(launch->kill_at));
    return left == REMO_FOREVER ? -1 : (int)remo__min(left / REMO__NS_PER_MS + 1, 60 * 1000);
}

static void serve_round(struct launch *launch, struct pollfd *fds) {
    uint32_t nodes = launch->job.nodes;
    fds[0] = (struct pollfd){.fd = launch->signal_fd, .events = POLLIN};
    for (uint32_t i = 0; i < nodes; i++) {
        struct node *node = &launch->nodes[i];
        fds[1 + 3 * i] = (struct pollfd){.fd = node->pid_fd, .events = POLLIN};
        fds[2 + 3 * i] = (struct pollfd){.fd = node->out.fd, .events = POLLIN};
        fds[3 + 3 * i] = (struct pollfd){.fd = node->err.fd, .events = POLLIN};
    }
    if (poll(fds, 1 + 3 * (nfds_t)nodes, wait_ms(launch)) > 0) {
        if (fds[0].revents)
            signal_arrived(launch);
        for (uint32_t i = 0; i < nodes; i++) {
            struct node *node = &launch->nodes[i];
            if (fds[2 + 3 * i].revents)
                stream_read(launch, node, false, &node->out);
            if (fds[3 + 3 * i].revents)
                stream_read(launch, node, true, &node->err);
            if (fds[1 + 3 * i].revents)
                node_ended(launch, node);
        }
    }
    deadlines_check(launch);
}

/* Some nodes could not be started: the others have no use. */
static void nodes_abandon(struct launch *launch) {
    nodes_signal(launch, SIGKILL);
    for (uint32_t i = 0; i < launch->job.nodes; i++) {
        struct node *node = &launch->nodes[i];
        if (node->pid > 0)
            waitpid(node->pid, NULL, 0);
        int fds[] = {node->pid_fd, node->lifeline, node->out.fd, node->err.fd};
        for (size_t k = 0; k < sizeof fds / sizeof fds[0]; k++) {
            if (fds[k] >= 0)
                close(fds[k]);
        }
    }
}

static int nodes_run(struct launch *launch) {
    uint32_t nodes = launch->job.nodes;
    struct pollfd *fds = calloc(1 + 3 * (size_t)nodes, sizeof *fds);
    launch->nodes = calloc(nodes, sizeof *launch->nodes);
    int rc = fds && launch->nodes ? 0 : remo__fail(-ENOMEM, "no memory for %u nodes", nodes);
    for (uint32_t i = 0; rc == 0 && i < nodes; i++) {
        struct node *node = &launch->nodes[i];
        node->rank = i;
        node->pid_fd = node->lifeline = node->out.fd = node->err.fd = -1;
    }
    for (uint32_t i = 0; rc == 0 && i < nodes; i++) {
        rc = node_start(launch, &launch->nodes[i]);
        if (rc != 0)
            nodes_abandon(launch);
    }
    while (rc == 0 && launch->running > 0)
        serve_round(launch, fds);
    free(launch->nodes);
    free(fds);
    return rc;
}

/* Closed standard streams would lend their numbers to our pipes. */
static void standard_streams_open(void) {
    int fd;
    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

/* Signals are read from a descriptor while nodes run, and are as before afterwards. */
static int signals_take(struct launch *launch) {
    sigset_t taken;
    sigemptyset(&taken);
    sigaddset(&taken, SIGINT);
    sigaddset(&taken, SIGTERM);
    sigaddset(&taken, SIGHUP);
    launch->signal_fd = signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
    if (launch->signal_fd < 0)
        return remo__fail(-errno, "cannot wait for signals: %s", strerror(errno));
    pthread_sigmask(SIG_BLOCK, &taken, &launch->mask_before);
    return 0;
}

int launch_nodes(const struct launch_options *options, int *ret_status) {
    struct launch launch = {
        .options = options, .name = options->name ? options->name : "remo run", .kill_at = REMO_FOREVER};
    launch.deadline = options->timeout_ns ? remo__deadline(options->timeout_ns) : REMO_FOREVER;
    if (!options->argv || !options->argv[0])
        return remo__fail(-EINVAL, "no program to start");
    if (sched_getaffinity(0, sizeof launch.cpus, &launch.cpus) != 0)
        return remo__fail(-errno, "cannot ask for the CPUs allowed: %s", strerror(errno));
    standard_streams_open();
    int rc = launch_job_open(options, &launch.job);
    if (rc != 0)
        return rc;
    rc = signals_take(&launch);
    if (rc == 0) {
        rc = nodes_run(&launch);
        pthread_sigmask(SIG_SETMASK, &launch.mask_before, NULL);
        close(launch.signal_fd);
    }
    launch_job_close(&launch.job);
    if (rc == 0)
        *ret_status = launch.status;
    return rc;
}
