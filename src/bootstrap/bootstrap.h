/* bootstrap.h - who is in the job, and how to reach them: three ways, one result.
 *
 * A roster says rank, size, job name, an address per rank and a credential. It comes from the program
 * (config.addresses), from `remo run` (environment), or from PMIx (mpirun, srun). Nothing else of the
 * library knows which.
 *
 * Address forms: "unix:/path/of/socket", "tcp:host:port" (host: name, IPv4, [IPv6]). Several forms of one
 * node are joined by ',' and the first that both ends can use is taken (unix only on the same machine). An
 * address without a unix form gets one of its own accord: nodes of one machine always meet by Unix socket.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/log.h"

#define REMO__NODES_MAX 256u
#define REMO__JOB_BYTES_MAX 64u
#define REMO__KEY_BYTES 32u
#define REMO__ADDRESS_BYTES_MAX 256u

struct remo__pmix;

struct remo__roster {
    uint32_t rank, size;
    uint32_t incarnation; /* 0 for the first life of this rank in this job */
    char job[REMO__JOB_BYTES_MAX];
    char (*addresses)[REMO__ADDRESS_BYTES_MAX]; /* [size] */
    uint8_t key[REMO__KEY_BYTES];
    int has_key;
    int use_munge;
    int listen_fd[2];        /* sockets already bound for our own address(es) (PMIx), -1: bind by address */
    struct remo__pmix *pmix; /* non-NULL while PMIx must be finalized */
};

struct remo__bootstrap_config { /* what the program said; zero and NULL mean "not said" */
    uint32_t rank, size;
    const char *job;
    const char *const *addresses; /* [size] */
    const char *hosts_file;       /* one address a line, '#' comments; rank from `rank` */
    const char *key_file;         /* 0600, owned by us, 32 bytes or 64 hex digits */
    uint64_t timeout_ns;
    struct remo__log log;
};

/* Program's words first, then REMO_* of `remo run`, then PMIx, else a job of one node.
 * Errors: -EINVAL (malformed or contradictory, the sentence names file and line), -EACCES (key file readable
 * by others, or a non-loopback address without a credential), -ENOENT, -ETIMEDOUT. */
int remo__roster_open(const struct remo__bootstrap_config *config, struct remo__roster **ret_roster);
void remo__roster_close(struct remo__roster *roster);
