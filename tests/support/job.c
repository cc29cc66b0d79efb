/* job.c - jobs with options of the test's own (job.h).
 * All nodes of a job connect through Unix sockets in its folder. */
#include "job.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cluster.h"

#define ARENA_BYTES (1ull << 30)
#define SEGMENT_BYTES (4ull << 20)
#define JOIN_NS 100000000000ull

static void path_of(const struct job *job, uint32_t rank, char *ret_path, size_t cap) {
    snprintf(ret_path, cap, "%s/%u", job->folder, rank);
}

int job_make(struct job *job, uint32_t size) {
    const char *tmp = getenv("TMPDIR");
    job->size = size;
    snprintf(job->folder, sizeof job->folder, "%s/remo-job-XXXXXX", tmp && strlen(tmp) < 64 ? tmp : "/tmp");
    return mkdtemp(job->folder) ? 0 : -1;
}

void job_remove(const struct job *job) {
    char path[JOB_FOLDER_BYTES + 16];
    for (uint32_t rank = 0; rank < JOB_NODES_MAX; rank++) {
        path_of(job, rank, path, sizeof path);
        unlink(path);
    }
    rmdir(job->folder);
}

int job_open(const struct job *job, uint32_t rank, const char *fabric, const struct remo_config *options,
             struct remo_node **ret_node) {
    char text[JOB_NODES_MAX][JOB_FOLDER_BYTES + 24];
    const char *addresses[JOB_NODES_MAX];
    struct remo_config config = options ? *options : (struct remo_config){0};
    for (uint32_t i = 0; i < job->size; i++) {
        char path[JOB_FOLDER_BYTES + 16];
        path_of(job, i, path, sizeof path);
        snprintf(text[i], sizeof text[i], "unix:%s", path);
        addresses[i] = text[i];
    }
    config.fabric = config.fabric ? config.fabric : fabric;
    config.rank = rank;
    config.size = config.size ? config.size : job->size;
    config.addresses = config.addresses ? config.addresses : addresses;
    config.job = config.job ? config.job : strrchr(job->folder, '/') + 1;
    config.arena_bytes = config.arena_bytes ? config.arena_bytes : ARENA_BYTES;
    config.segment_bytes = config.segment_bytes ? config.segment_bytes : SEGMENT_BYTES;
    config.join_timeout_ns = config.join_timeout_ns ? config.join_timeout_ns : JOIN_NS;
    return remo_node_open(&config, ret_node);
}

static void *open_one(void *ctx) {
    struct job_node *self = ctx;
    cluster_sleep_ms(self->delay_ms);
    uint64_t begin = cluster_now_ns();
    self->node = NULL;
    self->rc = job_open(self->job, self->rank, self->fabric, self->options, &self->node);
    self->took_ns = cluster_now_ns() - begin;
    snprintf(self->sentence, sizeof self->sentence, "%s", self->rc ? remo_last_error() : "");
    return NULL;
}

static void *close_one(void *ctx) {
    struct job_node *self = ctx;
    cluster_sleep_ms(self->delay_ms);
    remo_node_close(self->node);
    self->node = NULL;
    return NULL;
}

static void at_once(struct job_node *nodes, uint32_t count, void *(*run)(void *ctx)) {
    pthread_t threads[JOB_NODES_MAX];
    for (uint32_t i = 0; i < count; i++) {
        if (pthread_create(&threads[i], NULL, run, &nodes[i]) != 0) {
            perror("a thread for a node");
            exit(1);
        }
    }
    for (uint32_t i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}

uint32_t job_open_quietly(struct job_node *nodes, uint32_t count) {
    uint32_t failed = 0;
    at_once(nodes, count, open_one);
    for (uint32_t i = 0; i < count; i++)
        failed += nodes[i].rc != 0;
    return failed;
}

int job_open_all(struct job_node *nodes, uint32_t count) {
    at_once(nodes, count, open_one);
    for (uint32_t i = 0; i < count; i++) {
        if (nodes[i].rc != 0) {
            fprintf(stderr, "node %u: open is %d %s; last error: %s\n", nodes[i].rank, nodes[i].rc,
                    remo_error_name(nodes[i].rc), nodes[i].sentence);
            return nodes[i].rc;
        }
    }
    return 0;
}

int job_rejoin(struct job_node *node, uint32_t incarnation, struct remo_node *peer) {
    char text[16];
    while (remo_node_peer(peer, node->rank) == REMO_PEER_UP)
        cluster_sleep_ms(1);
    snprintf(text, sizeof text, "%u", incarnation);
    setenv("REMO_INCARNATION", text, 1);
    int rc = job_open_all(node, 1);
    unsetenv("REMO_INCARNATION");
    while (rc == 0 && remo_node_peer(peer, node->rank) != REMO_PEER_UP)
        cluster_sleep_ms(1);
    return rc;
}

void job_close_all(struct job_node *nodes, uint32_t count) {
    at_once(nodes, count, close_one);
}
