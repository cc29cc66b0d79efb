/* peers.h - alternatives to Remo, each measured by a small program on the same processors.
 *
 * A program runs one benchmark and prints one JSON object per figure, in the format of `remo bench --json`
 * with "peer" in it, and {"end":true} after the last one. No failure of a program harms the caller: it
 * becomes a line with "error", and a missing program one with "skipped", both with "peer" and "bench".
 *
 * Threads: any, but each call starts processes and waits for them. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct peer {
    const char *name;            /* "openmpi-sm" */
    const char *program;         /* built in this folder: "peer-mpi" */
    const char *command;         /* must be installed: "mpirun.openmpi"; NULL: the program needs none */
    const char *folders;         /* a pattern of folders besides PATH that may have the command, or NULL */
    const char *packages;        /* of Debian: for the command and for the build */
    const char *const *launcher; /* options of the command before -n; NULL: the program starts it */
    const char *const *benches;  /* NULL at the end */
    const char *transport;       /* of a server: "unix" or "tcp" (loopback); NULL: none */
};

/* Start from PEERS_OPTIONS_DEFAULT; a zero is the default too, unless zero is a value. */
struct peers_options {
    unsigned nodes;  /* processes of openmpi and openshmem */
    double seconds;  /* per figure; at least MEASURE_SECONDS_MIN are measured */
    uint64_t bytes;  /* of a read and a write; 0: the default sizes */
    unsigned window; /* 0: the defaults */
    unsigned active; /* processes that operate at once where one is enough, or that run transactions */
    uint64_t accounts_count;
    uint64_t keys_count;
    int read_percent;    /* -1: 100, 50 and 0 */
    double zipf;         /* 0: uniform keys */
    int cpus[2];         /* node i is pinned to cpus[i % 2]; -1: not pinned */
    uint64_t timeout_ns; /* per program; 0: computed from the work */
    const char *folder;  /* of the programs; NULL: of the build or the installation */
};

#define PEERS_OPTIONS_DEFAULT                                          \
    {                                                                  \
        .nodes = 2, .seconds = 1, .read_percent = -1, .cpus = { 0, 1 } \
    }

/* Called for each line, without its end, in order of arrival. */
typedef void (*peers_line)(void *ctx, const char *json);

/* All peers; the array ends with one whose name is NULL. */
const struct peer *peers_list(void);

/* Check that a peer can run here. Returns 0, or -ENOENT with a sentence that names the packages to
 * install and, for a missing program, how to build it. `folder` as in the options. */
int peers_check(const struct peer *peer, const char *folder);

/* Run `bench` on the peer of this name. `name` NULL: every peer that has it; `bench` NULL: all that the
 * peer has. Peers without the benchmark are skipped silently. Failures of programs are lines, not errors.
 * Errors: -ENOENT (no peer of this name), -EINVAL. */
int peers_run(const char *peer, const char *bench, const struct peers_options *options, peers_line line,
              void *ctx);

/* Run one program for peers_run: `argv` (NULL at its end, found in PATH). Pass its JSON objects on,
 * and add a line if it fails. Returns 1 if it completed, else 0. */
struct peers_command {
    const char *peer, *bench; /* for lines of this side */
    const char *transport;    /* likewise; may be NULL */
    const char *const *argv;
    uint64_t timeout_ns;
};
int peers_run_command(const struct peers_command *command, peers_line line, void *ctx);
