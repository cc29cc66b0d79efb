/* peers.h - what a user would take instead of Remo, measured by a small program each, on the same
 * processors.
 *
 * A program runs one benchmark and prints one JSON object per figure, in the format of `remo bench --json`
 * with "peer" in it, and {"end":true} when all are out. Nothing that a program does harms the caller:
 * whatever goes wrong becomes a line with "error", and what is not installed one with "skipped", both with
 * "peer" and "bench".
 *
 * Threads: any, but each call starts processes and waits for them. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct peer {
    const char *name;    /* "openmpi-sm" */
    const char *program; /* built in this folder: "peer-mpi" */
    const char *command; /* must be in PATH: "mpirun.openmpi" */
    const char *package; /* of Debian, that has the command */
    const char *const
        *launcher; /* options of the command that go before -n; NULL: the program starts it itself */
    const char *const *benches; /* NULL at the end */
};

/* Start from PEERS_OPTIONS_DEFAULT; a zero is the default too, where it has no meaning of its own. */
struct peers_options {
    unsigned nodes;  /* processes; the servers have one client whatever this says */
    double seconds;  /* for each figure */
    uint64_t bytes;  /* of a read and a write; 0: the usual sizes */
    unsigned window; /* 0: the usual ones */
    unsigned active; /* how many processes work at once where one is enough */
    uint64_t accounts_count;
    uint64_t keys_count;
    int read_percent;    /* -1: 100, 50 and 0 */
    double zipf;         /* 0: uniform keys */
    int cpus[2];         /* node i is pinned to cpus[i % 2]; -1: not pinned */
    uint64_t timeout_ns; /* for one program; 0: long enough for what it was asked to do */
    const char *folder;  /* of the programs; NULL: where the build or the installation put them */
};

#define PEERS_OPTIONS_DEFAULT                                          \
    {                                                                  \
        .nodes = 2, .seconds = 1, .read_percent = -1, .cpus = { 0, 1 } \
    }

/* Called for each line, without its end, in the order in which they come. */
typedef void (*peers_line)(void *ctx, const char *json);

/* All peers; the array ends with one whose name is NULL. */
const struct peer *peers_list(void);

/* 0, or -ENOENT with a sentence (remo_last_error) when the peer cannot run here. `folder` as in the
 * options. */
int peers_check(const struct peer *peer, const char *folder);

/* Run `bench` on the peer of this name (NULL: on every one that has it; NULL for `bench`: all that the peer
 * has). Peers that have no such benchmark are passed over without a line. Errors: -ENOENT (no peer of this
 * name), -EINVAL. Failures of the programs are lines, not errors. */
int peers_run(const char *peer, const char *bench, const struct peers_options *options, peers_line line,
              void *ctx);

/* What peers_run does for one program: run `argv` (NULL at its end, found in PATH), pass its JSON objects
 * on, and say so in a line when it did not come to its end. Returns 1 when it did, 0 when not. */
struct peers_command {
    const char *peer, *bench; /* for the lines of this side */
    const char *const *argv;
    uint64_t timeout_ns;
};
int peers_run_command(const struct peers_command *command, peers_line line, void *ctx);
