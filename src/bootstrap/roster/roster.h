/* roster.h - the roster: the nodes of the job and their addresses.
 *
 * A roster holds rank, size, job name, one address per rank and a credential. It comes from the program
 * (config.addresses), from `remo run` (environment), or from PMIx (mpirun, srun). The rest of the library
 * does not depend on the source.
 *
 * Address forms: "unix:/path/of/socket", "tcp:host:port" (host: name, IPv4, [IPv6]). The forms of one node
 * are joined by ','; a connection uses the first form that works for both ends (unix on the same machine
 * only). An address without a unix form gets one added: nodes of one machine always connect by Unix socket.
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
    uint32_t incarnation; /* 0 for the first start of this rank in this job */
    char job[REMO__JOB_BYTES_MAX];
    char (*addresses)[REMO__ADDRESS_BYTES_MAX]; /* [size] */
    uint8_t key[REMO__KEY_BYTES];
    int has_key;
    int use_munge;
    int listen_fd[2];        /* sockets already bound for this node's addresses (PMIx); -1: bind by address */
    char *job_dir;           /* the folder of `remo run` (REMO_JOB_DIR), or NULL */
    struct remo__pmix *pmix; /* non-NULL while PMIx must be finalized */
};

struct remo__bootstrap_config { /* values from the program; zero and NULL mean "not given" */
    uint32_t rank, size;
    const char *job;
    const char *const *addresses; /* [size] */
    const char *hosts_file;       /* one address a line, '#' comments; rank from `rank` */
    const char *key_file;         /* mode 0600, owned by this user, 32 bytes or 64 hex digits */
    uint64_t timeout_ns;
    struct remo__log log;
};

/* Build the roster from `config`, else from REMO_* of `remo run`, else from PMIx, else for a job of one node.
 * Errors: -EINVAL    malformed or contradictory input (the sentence names file and line), or a launcher
 *                    without PMIx started several tasks and the program gives no size
 *         -EACCES    other users can read the key file, or a non-loopback address has no credential
 *         -ENOENT    a file does not exist
 *         -ETIMEDOUT PMIx: a rank did not open its node in time */
int remo__roster_open(const struct remo__bootstrap_config *config, struct remo__roster **ret_roster);
void remo__roster_close(struct remo__roster *roster);
