/* pmix.h - a roster from a launcher with PMIx (mpirun, srun --mpi=pmix).
 *
 * Each node first listens on an abstract Unix socket and, if the job spans machines, on TCP. Then it
 * publishes its address. Rank 0 also publishes a name and a random key for the job. PMIx transports these
 * values over channels that the launcher has authenticated.
 */
#pragma once

#include "bootstrap/roster/roster.h"

/* Read rank and size from PMIx. Errors: -ENODEV (libpmix is not installed), -EPROTO (the environment names no
 * reachable server), -ENOMEM. */
int remo__pmix_open(struct remo__pmix **ret_pmix, uint32_t *ret_rank, uint32_t *ret_size);
/* Fill job, key, addresses and listen_fd of a roster that has rank and size. Collective over the ranks of the
 * job. Errors: -ETIMEDOUT (a rank did not call within `timeout_ns`; 0 = 30 s), -EPROTO, those of sockets. */
int remo__pmix_exchange(struct remo__pmix *pmix, struct remo__roster *roster, uint64_t timeout_ns);
void remo__pmix_close(struct remo__pmix *pmix);
