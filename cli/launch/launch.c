/* launch.c - the loop of the launcher: output, ends of nodes, signals and time limits.
 * All events are descriptors of one poll. The calling thread does all the work. */
#include "cli/launch/launch.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/error.h"
#include "bootstrap/roster/ended.h"
#include "cli/launch/folder.h"
#include "cli/launch/node.h"

#define STATUS_TIMEOUT 124 /* as timeout(1) */
#define WATCHES_PER_NODE 3 /* output, errors, end */
#define GROUP_POLL_NS 10000000l
#define DESCRIPTORS_OWN 16 /* signals, and descriptors used briefly to start a node */

/* ---- ending ---- */

static void nodes_signal(struct launch *launch, int number) {
    for (uint32_t i = 0; i < launch->job.nodes; i++) {
        if (launch->nodes[i].pid > 0)
            kill(launch->nodes[i].target, number);
    }
}

/* A signal from the terminal has already reached the launcher's own group. */
static void nodes_signal_others(struct launch *launch, int number) {
    for (uint32_t i = 0; i < launch->job.nodes; i++) {
        if (launch->nodes[i].target < 0)
            kill(launch->nodes[i].target, number);
    }
}

static void nodes_end(struct launch *launch) {
    if (launch->kill_at != REMO_FOREVER)
        return;
    launch->killed = true;
    nodes_signal(launch, SIGTERM);
    launch->kill_at = remo__deadline(LAUNCH_GRACE_NS);
}

static void describe_end(const struct launch *launch, const struct node *node, const siginfo_t *info) {
    const struct remo__host *host = launch->job.places[node->rank].host;
    char where[REMO__HOST_BYTES_MAX + 16];
    if (launch->job.spread)
        snprintf(where, sizeof where, "on %s", host->host);
    else
        snprintf(where, sizeof where, "process %d", (int)node->pid);
    if (info->si_code != CLD_EXITED)
        launch_say(launch, "node %u (%s) was killed by signal %d (%s)", node->rank, where, info->si_status,
                   strsignal(info->si_status));
    else if (info->si_status != 0)
        launch_say(launch, "node %u (%s) ended with status %d", node->rank, where, info->si_status);
}

/* Record the end for nodes that still join (bootstrap/roster/ended.h). Nodes on other hosts have their own
 * folders. */
static void end_record(const struct launch *launch, const struct node *ended, int code) {
    char line[REMO__ENDED_LINE_BYTES_MAX];
    snprintf(line, sizeof line, "%u %d\n", ended->rank, code & 0xff);
    launch_folder_note_end(&launch->job, line);
    for (uint32_t i = 0; i < launch->job.nodes; i++) {
        if (launch->nodes[i].lifeline >= 0)
            send(launch->nodes[i].lifeline, line, strlen(line), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
}

static void node_ended(struct launch *launch, struct node *node) {
    siginfo_t info = {0};
    if (waitid(P_PID, (id_t)node->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != node->pid)
        return;
    launch->running--;
    launch_streams_drain(launch, node);
    close(node->pid_fd);
    if (node->lifeline >= 0)
        close(node->lifeline);
    node->pid_fd = node->lifeline = -1;
    int code = info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
    end_record(launch, node, code);
    if (code == 0)
        return;
    /* Ends caused by the launcher or the user are not reported. */
    if (launch->kill_at == REMO_FOREVER && launch->signals_seen == 0)
        describe_end(launch, node, &info);
    if (launch->status == 0)
        launch->status = code;
    if (launch->options->kill_on_failure)
        nodes_end(launch);
}

/* A signal from the terminal also stops the nodes' groups, until the launcher continues. */
static void job_pause(struct launch *launch, bool from_terminal) {
    sigset_t stop;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTSTP);
    if (from_terminal)
        nodes_signal_others(launch, SIGTSTP);
    else
        nodes_signal(launch, SIGTSTP);
    raise(SIGTSTP);
    pthread_sigmask(SIG_UNBLOCK, &stop, NULL); /* the launcher stops here */
    pthread_sigmask(SIG_BLOCK, &stop, NULL);
    nodes_signal(launch, SIGCONT);
}

/* Close the outputs whose reader has left. Then nodes with a pipe get SIGPIPE, as they would
 * without the launcher. */
static void outputs_close(struct launch *launch) {
    for (uint32_t i = 0; i < launch->job.nodes; i++) {
        struct node *node = &launch->nodes[i];
        int *fds[] = {ferror(stdout) ? &node->out.fd : NULL, ferror(stderr) ? &node->err.fd : NULL};
        for (size_t k = 0; k < sizeof fds / sizeof fds[0]; k++) {
            if (!fds[k] || *fds[k] < 0)
                continue;
            close(*fds[k]);
            *fds[k] = -1;
        }
    }
}

static void signal_arrived(struct launch *launch) {
    struct signalfd_siginfo info;
    if (read(launch->signal_fd, &info, sizeof info) != sizeof info)
        return;
    bool from_terminal = info.ssi_code == SI_KERNEL;
    int number = (int)info.ssi_signo;
    if (number == SIGPIPE) {
        outputs_close(launch);
        return;
    }
    if (number == SIGTSTP) {
        job_pause(launch, from_terminal);
        return;
    }
    if (launch->signals_seen == 0 && launch->options->ret_signal)
        *launch->options->ret_signal = number;
    if (launch->signals_seen++ > 0) {
        launch->killed = true;
        nodes_signal(launch, SIGKILL);
    } else if (from_terminal) {
        nodes_signal_others(launch, number);
    } else {
        nodes_signal(launch, number);
    }
}

static void deadlines_check(struct launch *launch) {
    if (remo__remaining_ns(launch->deadline) == 0) {
        launch->deadline = REMO_FOREVER;
        launch_say(launch, "%u nodes have not ended after %.0f s; they are stopped", launch->running,
                   (double)launch->options->timeout_ns / 1e9);
        launch->status = launch->status ? launch->status : STATUS_TIMEOUT;
        nodes_end(launch);
    }
    if (launch->kill_at != REMO_FOREVER && remo__remaining_ns(launch->kill_at) == 0) {
        nodes_signal(launch, SIGKILL);
        launch->kill_at = remo__deadline(LAUNCH_GRACE_NS);
    }
}

/* ---- the loop ---- */

static int wait_ms(const struct launch *launch) {
    uint64_t left = remo__min(remo__remaining_ns(launch->deadline), remo__remaining_ns(launch->kill_at));
    return left == REMO_FOREVER ? -1 : (int)remo__min(left / REMO__NS_PER_MS + 1, 60 * 1000);
}

/* The descriptors watched in one round. Only open ones are listed: poll refuses more entries than
 * RLIMIT_NOFILE, used or not. */
struct watch {
    enum { WATCH_OUT, WATCH_ERR, WATCH_END } kind;
    struct node *node;
};

struct watches {
    struct pollfd *fds;   /* [0] is the signal descriptor */
    struct watch *source; /* of fds[1 + i] */
    nfds_t count;
};

static void watch_add(struct watches *watches, struct node *node, int kind, int fd) {
    if (fd < 0)
        return;
    watches->source[watches->count - 1] = (struct watch){.kind = kind, .node = node};
    watches->fds[watches->count++] = (struct pollfd){.fd = fd, .events = POLLIN};
}

static void watches_fill(const struct launch *launch, struct watches *watches) {
    watches->fds[0] = (struct pollfd){.fd = launch->signal_fd, .events = POLLIN};
    watches->count = 1;
    /* the end last: output written before it comes first */
    for (uint32_t i = 0; i < launch->job.nodes; i++) {
        struct node *node = &launch->nodes[i];
        watch_add(watches, node, WATCH_OUT, node->out.fd);
        watch_add(watches, node, WATCH_ERR, node->err.fd);
        watch_add(watches, node, WATCH_END, node->pid_fd);
    }
}

static void watch_serve(struct launch *launch, const struct watch *watch) {
    struct node *node = watch->node;
    switch (watch->kind) {
    case WATCH_OUT: launch_stream_read(launch, node, false, &node->out); break;
    case WATCH_ERR: launch_stream_read(launch, node, true, &node->err); break;
    case WATCH_END: node_ended(launch, node); break;
    }
}

static int serve_round(struct launch *launch, struct watches *watches) {
    watches_fill(launch, watches);
    int ready = poll(watches->fds, watches->count, wait_ms(launch));
    if (ready < 0 && errno != EINTR)
        return remo__fail(-errno, "cannot wait for the nodes: %s; the nodes are killed", strerror(errno));
    if (ready > 0) {
        if (watches->fds[0].revents)
            signal_arrived(launch);
        for (nfds_t i = 1; i < watches->count; i++) {
            if (watches->fds[i].revents)
                watch_serve(launch, &watches->source[i - 1]);
        }
    }
    deadlines_check(launch);
    return 0;
}

static bool groups_signal(const struct launch *launch, int number) {
    bool any = false;
    for (uint32_t i = 0; i < launch->job.nodes; i++)
        any |= launch->nodes[i].target < 0 && kill(launch->nodes[i].target, number) == 0;
    return any;
}

/* Wait for all processes. If the launcher stopped the job, children left behind by nodes are killed
 * too; otherwise they continue. A process group keeps its number as long as it has a member. */
static void nodes_reap(struct launch *launch) {
    const struct timespec pause = {.tv_nsec = GROUP_POLL_NS};
    for (uint32_t i = 0; i < launch->job.nodes; i++) {
        if (launch->nodes[i].pid > 0)
            waitpid(launch->nodes[i].pid, NULL, 0);
    }
    if (!launch->killed)
        return;
    while (launch->kill_at != REMO_FOREVER && remo__remaining_ns(launch->kill_at) > 0
           && groups_signal(launch, 0))
        nanosleep(&pause, NULL);
    groups_signal(launch, SIGKILL);
}

/* Kill all nodes and close all descriptors after an error of the launcher. */
static void nodes_abandon(struct launch *launch) {
    launch->killed = true;
    nodes_signal(launch, SIGKILL);
    for (uint32_t i = 0; i < launch->job.nodes; i++) {
        struct node *node = &launch->nodes[i];
        int fds[] = {node->pid_fd, node->lifeline, node->out.fd, node->err.fd};
        for (size_t k = 0; k < sizeof fds / sizeof fds[0]; k++) {
            if (fds[k] >= 0)
                close(fds[k]);
        }
    }
}

static int nodes_start(struct launch *launch) {
    for (uint32_t i = 0; i < launch->job.nodes; i++) {
        struct node *node = &launch->nodes[i];
        node->rank = i;
        node->pid_fd = node->lifeline = node->out.fd = node->err.fd = -1;
    }
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < launch->job.nodes; i++)
        rc = launch_node_start(launch, &launch->nodes[i]);
    return rc;
}

static int nodes_run(struct launch *launch) {
    uint32_t nodes = launch->job.nodes;
    struct watches watches = {.fds = calloc(1 + WATCHES_PER_NODE * (size_t)nodes, sizeof *watches.fds),
                              .source = calloc(WATCHES_PER_NODE * (size_t)nodes, sizeof *watches.source)};
    launch->nodes = calloc(nodes, sizeof *launch->nodes);
    int rc = -ENOMEM;
    if (!watches.fds || !watches.source || !launch->nodes) {
        remo__fail(rc, "no memory for %u nodes", nodes);
        goto out;
    }
    rc = nodes_start(launch);
    while (rc == 0 && launch->running > 0)
        rc = serve_round(launch, &watches);
    if (rc != 0)
        nodes_abandon(launch);
    nodes_reap(launch);
out:
    free(launch->nodes);
    free(watches.source);
    free(watches.fds);
    return rc;
}

static int output_folder_make(const struct launch_options *options) {
    const char *folder = options->output_folder;
    assert(!folder || (!options->tag && !options->line));
    if (!folder || mkdir(folder, 0777) == 0 || errno == EEXIST)
        return 0;
    return remo__fail(-errno,
                      "cannot make the output folder %s: %s; make its parent folder first, or name another",
                      folder, strerror(errno));
}

/* Raise the soft limit of descriptors as needed. The lowest free descriptor shows how many are open
 * already. */
static int descriptors_provide(struct launch *launch) {
    const struct launch_options *options = launch->options;
    rlim_t need = DESCRIPTORS_OWN;
    int lowest = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0);
    if (lowest >= 0) {
        need += (rlim_t)lowest;
        close(lowest);
    }
    for (uint32_t i = 0; i < launch->job.nodes; i++)
        need += 1u + (options->line || options->tag) + options->tag + launch->job.places[i].remote;
    if (getrlimit(RLIMIT_NOFILE, &launch->descriptors_before) != 0)
        return remo__fail(-errno, "cannot read the limit of descriptors: %s", strerror(errno));
    struct rlimit limit = launch->descriptors_before;
    if (limit.rlim_cur >= need)
        return 0;
    if (limit.rlim_max < need)
        return remo__fail(-EMFILE,
                          "cannot start %u nodes: the launcher needs %llu descriptors and the hard limit is "
                          "%llu; raise it (ulimit -Hn), or start fewer nodes",
                          launch->job.nodes, (unsigned long long)need, (unsigned long long)limit.rlim_max);
    limit.rlim_cur = need;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        return remo__fail(-errno, "cannot raise the limit of descriptors to %llu: %s; see ulimit -n",
                          (unsigned long long)need, strerror(errno));
    return 0;
}

/* Open closed standard streams, so that pipes do not get their numbers. */
static void standard_streams_open(void) {
    int fd;
    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

/* Read signals from a descriptor while nodes run; signals_return restores the mask. */
static int signals_take(struct launch *launch) {
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
    sigset_t taken;
    sigemptyset(&taken);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        struct sigaction action;
        /* A blocked signal is queued even if it is ignored. */
        if (sigaction(ends[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN)
            sigaddset(&taken, ends[i]);
    }
    sigaddset(&taken, SIGPIPE);
    sigaddset(&taken, SIGTSTP);
    launch->signal_fd = signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
    if (launch->signal_fd < 0)
        return remo__fail(-errno, "cannot wait for signals: %s", strerror(errno));
    pthread_sigmask(SIG_BLOCK, &taken, &launch->mask_before);
    return 0;
}

/* A pending SIGPIPE must not end the program after the launch. */
static void signals_return(struct launch *launch) {
    const struct timespec now = {0};
    sigset_t broken;
    sigemptyset(&broken);
    sigaddset(&broken, SIGPIPE);
    while (sigtimedwait(&broken, NULL, &now) > 0)
        ;
    pthread_sigmask(SIG_SETMASK, &launch->mask_before, NULL);
    close(launch->signal_fd);
}

static int job_run(struct launch *launch) {
    int rc = output_folder_make(launch->options);
    if (rc == 0)
        rc = descriptors_provide(launch);
    if (rc == 0)
        rc = launch_guard_open(&launch->job, &launch->guard);
    if (rc == 0) {
        rc = nodes_run(launch);
        launch_guard_close(&launch->guard);
    }
    if (launch->descriptors_before.rlim_max > 0)
        setrlimit(RLIMIT_NOFILE, &launch->descriptors_before);
    return rc;
}

int launch_nodes(const struct launch_options *options, int *ret_status) {
    struct launch launch = {
        .options = options, .name = options->name ? options->name : "remo run", .kill_at = REMO_FOREVER};
    launch.deadline = options->timeout_ns ? remo__deadline(options->timeout_ns) : REMO_FOREVER;
    if (!options->argv || !options->argv[0])
        return remo__fail(-EINVAL, "no program to start");
    if (sched_getaffinity(0, sizeof launch.cpus, &launch.cpus) != 0)
        return remo__fail(-errno, "cannot read the allowed CPUs: %s", strerror(errno));
    standard_streams_open();
    int rc = signals_take(&launch);
    if (rc != 0)
        return rc;
    rc = launch_job_open(options, &launch.job);
    if (rc == 0) {
        rc = job_run(&launch);
        launch_job_close(&launch.job);
    }
    signals_return(&launch);
    if (rc == 0)
        *ret_status = launch.status;
    return rc;
}
