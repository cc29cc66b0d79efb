/* node.h - internals of the launcher: the state of one launch, and functions shared by its files.
 *
 *     launch.c  the loop: signals, time limits, ends of nodes
 *     start.c   fork and exec of one node
 *     output.c  output of nodes that passes through the launcher
 *     job.c     common state of all nodes: addresses and environment
 *     folder.c  the job's folder, with the key
 *     guard.c   cleans up if the launcher is killed
 *
 * Each local node leads a process group, so that a signal reaches its children too. Exceptions stay in the
 * launcher's group: a node that reads from the terminal, because the terminal stops readers of other groups;
 * and ssh, whose end makes the remote shell end the group there. */
#pragma once

#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "cli/launch/guard.h"
#include "cli/launch/job.h"

/* One output of a node that passes through the launcher. */
struct stream {
    int fd; /* -1: not a pipe of the launcher, or at its end */
    size_t bytes;
    char text[LAUNCH_LINE_BYTES_MAX];
};

struct node {
    uint32_t rank;
    pid_t pid;    /* 0: not started. Unreaped until the job ends, so that its number is not reused */
    pid_t target; /* for kill: the process, or its group as -pid */
    int pid_fd;
    int lifeline; /* ssh's standard input; its end ends the remote node. -1: none */
    struct stream out, err;
};

struct launch {
    const struct launch_options *options;
    const char *name;
    struct launch_job job;
    struct launch_guard guard;
    struct node *nodes;
    uint32_t running;
    bool killed; /* the launcher stopped the groups: all members must end */
    int status;  /* of the first node that failed */
    sigset_t mask_before;
    int signal_fd;
    int signals_seen;
    cpu_set_t cpus;
    struct rlimit descriptors_before; /* the nodes get this limit, not the raised one */
    uint64_t deadline, kill_at;       /* REMO_FOREVER: none */
};

/* Print a message on standard error, after the launcher's name; nothing with options->quiet. */
void launch_say(const struct launch *launch, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Read once and pass complete lines on. Returns false if no more data is available now. */
bool launch_stream_read(const struct launch *launch, const struct node *node, bool is_err,
                        struct stream *stream);
/* Pass on the output of an ended node, and close both streams. Children of the node may still hold
 * the pipe; the function does not wait for them. */
void launch_streams_drain(const struct launch *launch, struct node *node);

/* Start one node. After an error behind the fork, the node is kept in `node`, and the caller ends
 * it. */
int launch_node_start(struct launch *launch, struct node *node);
