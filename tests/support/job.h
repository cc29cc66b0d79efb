/* job.h - jobs that a test opens itself, with its own options and times: several nodes in one
 * process, or nodes that never start. Their addresses are Unix sockets in one folder. */
#pragma once

#include <remo/remo.h>

#define JOB_NODES_MAX 64u
#define JOB_FOLDER_BYTES 96u

/* The folder and size of a job. Plain bytes: may lie in shared memory. */
struct job {
    char folder[JOB_FOLDER_BYTES];
    uint32_t size;
};

/* Make the folder. */
int job_make(struct job *job, uint32_t size);
/* Remove it, with its sockets. */
void job_remove(const struct job *job);
/* Open the node `rank`. `options`: further members of the config; NULL: none. Unset sizes get small
 * values. */
int job_open(const struct job *job, uint32_t rank, const char *fabric, const struct remo_config *options,
             struct remo_node **ret_node);

/* A node on its own thread, which opens it, and closes it after job_close. */
struct job_node {
    const struct job *job;
    uint32_t rank;
    const char *fabric;
    const struct remo_config *options;
    uint32_t delay_ms; /* before open */
    struct remo_node *node;
    int rc; /* of open */
    char sentence[512];
    uint64_t took_ns;
};

/* Open all nodes of the array at the same time, each on its thread. Returns 0, or the first error
 * after printing it. */
int job_open_all(struct job_node *nodes, uint32_t count);
/* The same, if errors are expected; returns their number. */
uint32_t job_open_quietly(struct job_node *nodes, uint32_t count);
/* The node has been closed. Open it with the incarnation, after `peer` has detected that it left. Returns
 * when it is up for the peer: 0, or the error of open after printing it. */
int job_rejoin(struct job_node *node, uint32_t incarnation, struct remo_node *peer);
/* Close all at the same time. */
void job_close_all(struct job_node *nodes, uint32_t count);
