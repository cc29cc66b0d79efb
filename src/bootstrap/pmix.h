/* pmix.h - a roster from the launcher that speaks PMIx (mpirun, srun --mpi=pmix).
 *
 * Each node listens first, on an abstract Unix socket and, where the job spans machines, on TCP; then it
 * publishes where, and rank 0 also a name and a random key for the job. PMIx carries them over channels that
 * the launcher has authenticated.
 */
#pragma once

#include "bootstrap/bootstrap.h"

/* Fill rank, size, job, addresses, key, listen_fd and pmix of a zeroed roster. Collective over the ranks of
 * the job. Errors: -EINVAL (`config` contradicts PMIx), -ETIMEDOUT (a rank did not come within
 * config->timeout_ns), -EPROTO, -ENOMEM. */
int remo__pmix_join(const struct remo__bootstrap_config *config, struct remo__roster *roster);
void remo__pmix_leave(struct remo__pmix *pmix);
