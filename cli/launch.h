/* launch.h - start the nodes of a job, here or on other hosts, and see them through to their end.
 *
 * Model:   each node is a child process (on another host: of ssh) with the environment of
 *          bootstrap/environment.h. The nodes share a folder with mode 0700 for their sockets and a key file
 *          with mode 0600; both are removed at the end.
 * Signals: SIGINT, SIGTERM and SIGHUP that arrive during the call go to all nodes; a second one kills them.
 * Safety:  no secret is on a command line or in the environment; it goes to other hosts through ssh's
 *          standard input.
 * Threads: one call at a time in a process; the calling thread forks, waits and runs the callback.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LAUNCH_LINE_BYTES_MAX 8192u /* longer lines are handed over in pieces */

struct launch_options {     /* zero and NULL mean "not said" */
    const char *name;       /* in front of messages on standard error; default "remo run" */
    char *const *argv;      /* program and arguments, ended by NULL */
    uint32_t nodes;         /* default: all slots of `hosts_file`, else 1 */
    const char *fabric;     /* REMO_FABRIC of the nodes */
    const char *hosts_file; /* one host a line (bootstrap/hosts.h); default: all nodes here */
    bool pin;               /* each node to one CPU of those allowed here, in turn */
    bool tag;               /* put the rank in front of each line of output */
    bool kill_on_failure;   /* the first node that fails ends the others: SIGTERM, after 2 s SIGKILL */
    bool quiet;             /* no messages about nodes that fail */
    int *ret_signal;        /* if set, gets the first signal that arrives during the call */
    uint64_t timeout_ns;    /* for the whole job, then as kill_on_failure with status 124; default: none */
    const char *const *environment; /* "NAME=value" for each node, ended by NULL */
    /* If set, gets what the nodes write to standard output, line by line, instead of this process's own
     * standard output. `line` has no line end, is ended by 0, and is valid during the call. */
    void (*line)(void *ctx, uint32_t rank, const char *line, size_t bytes);
    void *ctx;
};

/* Start, wait for all, clean up. *ret_status: 0 when every node ended with 0, else the status of the first
 * that did not (128 plus the signal that killed it; 124 after `timeout_ns`). Standard input goes to rank 0,
 * unless that is on another host. Errors: -EINVAL, -ENOENT (no such program), -EACCES, -ENOMEM, -EAGAIN...
 * with the sentence set; then nothing runs. */
int launch_nodes(const struct launch_options *options, int *ret_status);
