/* launch.h - start the nodes of a job, here or on other hosts, and wait for their end.
 *
 * Model:   each node is a child process (on another host: of ssh) with the environment of
 *          bootstrap/roster/environment.h. The nodes share a folder with mode 0700 for their sockets and a
 *          key file with mode 0600. Both are removed at the end, also if the launcher is killed.
 * Signals: SIGINT, SIGTERM and SIGHUP during the call go to all nodes and their children; a second one kills
 *          them. A signal that this process ignores (nohup, a background job of a script) has no effect.
 *          SIGTSTP stops them with the launcher. If the reader of the output closes it, nodes get SIGPIPE at
 *          their next write.
 * Groups:  a node leads a process group, except rank 0 if it reads from the terminal. If the launcher stops a
 *          job, or is killed, the groups get SIGTERM, then SIGKILL after 2 s. Not reached are children in
 *          their own sessions or groups, and children of a rank 0 that reads from the terminal. If a node
 *          ends by itself, its children continue.
 * Terminal: a node that leads a process group is in the background of the terminal. It starts with SIGTTOU
 *          and SIGTTIN ignored, so the terminal does not stop it: its output appears even after `stty
 *          tostop`, and a read from the terminal returns EIO.
 * Ends:    the end of each node is recorded in the folder, so that nodes which still join do not wait for it
 *          (bootstrap/roster/ended.h).
 * Safety:  no secret is on a command line or in the environment; it goes to other hosts through ssh's
 *          standard input.
 * Threads: one call at a time in a process; the calling thread forks, waits and runs the callback. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LAUNCH_LINE_BYTES_MAX 8192u /* longer lines are passed on in pieces */

struct launch_options {     /* zero and NULL select the default */
    const char *name;       /* prefix of messages on standard error; default "remo run" */
    char *const *argv;      /* program and arguments, ended by NULL */
    uint32_t nodes;         /* default: all slots of `hosts_file`, else 1 */
    const char *fabric;     /* REMO_FABRIC of the nodes */
    const char *hosts_file; /* one host a line (bootstrap/roster/hosts.h); default: all nodes here */
    bool pin;               /* pin each node to one of the allowed CPUs, in turn */
    bool tag;               /* print the rank in front of each line of output */
    bool kill_on_failure;   /* a failed node ends all others: SIGTERM, after 2 s SIGKILL */
    bool quiet;             /* no messages about failed nodes */
    int *ret_signal;        /* if set, receives the first signal that arrives during the call */
    int *ret_exec_error;    /* if set, receives the -errno of exec if the program cannot start */
    /* for the whole job, then as kill_on_failure with status 124; default: none */
    uint64_t timeout_ns;
    const char *const *environment; /* "NAME=value" for each node, ended by NULL */
    /* Write the output of rank R, including standard error, to the file rank-R.log of this folder,
     * which is made if missing. Excludes `tag` and `line`. */
    const char *output_folder;
    /* If set, receives the nodes' standard output line by line, instead of this process's own
     * standard output. `line` has no line end, is ended by 0, and is valid during the call. */
    void (*line)(void *ctx, uint32_t rank, const char *line, size_t bytes);
    void *ctx;
};

/* Start the nodes, wait for all, and clean up. *ret_status is 0 if every node ended with 0, else the
 * status of the first that did not: 128 plus the signal that killed it, or 124 after `timeout_ns`. Rank 0
 * gets standard input, unless it is on another host.
 * Errors: -EINVAL, -ENOENT (no such program), -EACCES, -ENOMEM, -EAGAIN...; then nothing runs. */
int launch_nodes(const struct launch_options *options, int *ret_status);
