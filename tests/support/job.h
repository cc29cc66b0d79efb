/* job.h - jobs that a test opens by itself, with options of its own: at other moments than the cluster does,
 * several nodes in one process, nodes that never come. Their addresses are Unix sockets in one folder.
 */
#pragma once

#include <remo/remo.h>

#define JOB_NODES_MAX 64u
#define JOB_FOLDER_BYTES 96u

/* One place where nodes meet: the folder, and how many they are. Plain bytes: may lie in shared memory. */
struct job {
    char folder[JOB_FOLDER_BYTES];
    uint32_t size;
};

/* Make the folder. */
int job_make(struct job *job, uint32_t size);
/* Remove it, with the sockets in it. */
void job_remove(const struct job *job);
/* Open the node `rank`. `options`: what else the config shall say; NULL: nothing. Sizes that are not said are
 * small ones. */
int job_open(const struct job *job, uint32_t rank, const char *fabric, const struct remo_config *options,
             struct remo_node **ret_node);

/* A node on a thread of its own: opened there, and closed there after job_close. */
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

/* Open all that are in the array, each on its thread, at the same time; 0 or the first error, which is
 * printed. */
int job_open_all(struct job_node *nodes, uint32_t count);
/* The same, where errors are expected: how many there were. */
uint32_t job_open_quietly(struct job_node *nodes, uint32_t count);
/* Close all at the same time. */
void job_close_all(struct job_node *nodes, uint32_t count);
