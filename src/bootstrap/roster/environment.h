/* environment.h - environment variables that a launcher sets for a node: `remo run`, or a replacement.
 *
 *     REMO_RANK         rank of this node, from 0; comes together with
 *     REMO_SIZE         number of nodes, from 1 to REMO__NODES_MAX
 *     REMO_JOB          name of this run, unique on the machine (letters, digits, '.', '_', '-');
 *                       default "remo"
 *     REMO_ADDRESSES    the addresses of all ranks, in order, joined by ';'; or, without it,
 *     REMO_JOB_DIR      folder with mode 0700 where rank r listens at unix:<folder>/<r>.sock, and where the
 *                       launcher records nodes that have ended (ended.h)
 *     REMO_KEY_FILE     file with the job's secret, mode 0600; also read when the program gives the addresses
 *     REMO_INCARNATION  how often this rank was started before in this job; default 0
 *
 * The secret itself is never in the environment or on a command line: other users may read both, and logs may
 * contain them.
 */
#pragma once

#define REMO__ENV_RANK "REMO_RANK"
#define REMO__ENV_SIZE "REMO_SIZE"
#define REMO__ENV_JOB "REMO_JOB"
#define REMO__ENV_JOB_DIR "REMO_JOB_DIR"
#define REMO__ENV_ADDRESSES "REMO_ADDRESSES"
#define REMO__ENV_KEY_FILE "REMO_KEY_FILE"
#define REMO__ENV_INCARNATION "REMO_INCARNATION"

/* Settings of a node (node/settings.h) for fields that the program leaves at zero. */
#define REMO__ENV_FABRIC "REMO_FABRIC"
#define REMO__ENV_PROVIDER "REMO_PROVIDER"
#define REMO__ENV_BIND "REMO_BIND"
#define REMO__ENV_MEMORY_DIR "REMO_MEMORY_DIR"
#define REMO__ENV_ARENA_BYTES "REMO_ARENA_BYTES"
#define REMO__ENV_SEGMENT_BYTES "REMO_SEGMENT_BYTES"
#define REMO__ENV_JOIN_TIMEOUT "REMO_JOIN_TIMEOUT"
#define REMO__ENV_OP_TIMEOUT "REMO_OP_TIMEOUT"
#define REMO__ENV_LOG "REMO_LOG"

/* Set by mpirun and srun for the programs that they start. */
#define REMO__ENV_PMIX_NAMESPACE "PMIX_NAMESPACE"
#define REMO__ENV_PMIX_RANK "PMIX_RANK"

/* Numbers of tasks that other launchers set for each task. A shell inside salloc or sbatch has SLURM_NTASKS
 * too; only a process that srun started has SLURM_STEP_ID. */
#define REMO__ENV_SLURM_STEP "SLURM_STEP_ID"
#define REMO__ENV_SLURM_STEP_TASKS "SLURM_STEP_NUM_TASKS"
#define REMO__ENV_SLURM_TASKS "SLURM_NTASKS"
#define REMO__ENV_PMI_TASKS "PMI_SIZE"              /* MPICH and others with Hydra */
#define REMO__ENV_OMPI_TASKS "OMPI_COMM_WORLD_SIZE" /* Open MPI */
