/* pmix.h - a roster from the launcher that speaks PMIx (mpirun, srun --mpi=pmix).
 *
 * Each node listens first, on an abstract Unix socket and, where the job spans machines, on TCP; then it
 * publishes where, and rank 0 also a name and a random key for the job. PMIx carries them over channels that
 * the launcher has authenticated.
 */
#pragma once

#include "bootstrap/bootstrap.h"

/* What PMIx says about us. Errors: -EPROTO (there is no server behind the environment), -ENOMEM. */
int remo__pmix_open(struct remo__pmix **ret_pmix, uint32_t *ret_rank, uint32_t *ret_size);
/* Fill job, key, addresses and listen_fd of a roster that has rank and size. Collective over the ranks of the
 * job. Errors: -ETIMEDOUT (a rank did not come within `timeout_ns`; 0 = 30 s), -EPROTO, those of sockets. */
int remo__pmix_exchange(struct remo__pmix *pmix, struct remo__roster *roster, uint64_t timeout_ns);
void remo__pmix_close(struct remo__pmix *pmix);
