/* environment.h - what a launcher tells a node: the environment of `remo run`, or of what takes its place.
 *
 *     REMO_RANK         rank of this node, from 0; comes together with
 *     REMO_SIZE         number of nodes, from 1 to REMO__NODES_MAX
 *     REMO_JOB          name of this run, unique on the machine (letters, digits, '.', '_', '-');
 *                       default "remo"
 *     REMO_ADDRESSES    the addresses of all ranks, in order, joined by ';'; or, without it,
 *     REMO_JOB_DIR      folder with mode 0700 where rank r listens at unix:<folder>/<r>.sock
 *     REMO_KEY_FILE     file with the job's secret, mode 0600; also read when the program gives the addresses
 *     REMO_INCARNATION  how often this rank was started before in this job; default 0
 *
 * The secret itself is never in the environment nor on a command line: both can be read by others or end up
 * in logs.
 */
#pragma once

#define REMO__ENV_RANK "REMO_RANK"
#define REMO__ENV_SIZE "REMO_SIZE"
#define REMO__ENV_JOB "REMO_JOB"
#define REMO__ENV_JOB_DIR "REMO_JOB_DIR"
#define REMO__ENV_ADDRESSES "REMO_ADDRESSES"
#define REMO__ENV_KEY_FILE "REMO_KEY_FILE"
#define REMO__ENV_INCARNATION "REMO_INCARNATION"

/* What mpirun and srun set for a program that they start. */
#define REMO__ENV_PMIX_NAMESPACE "PMIX_NAMESPACE"
#define REMO__ENV_PMIX_RANK "PMIX_RANK"
