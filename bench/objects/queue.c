/* queue.c - an operation is a push and a pop.
 * Uncontended by one node, then contended by all nodes. */
#include <stdio.h>

#include "bench/bench.h"

#define ELEMENT_BYTES 56u

static uint32_t queue_list(const struct bench_options *options, struct bench_point points[BENCH_POINTS_MAX]) {
    points[0] = (struct bench_point)BENCH_POINT_DEFAULT;
    points[0].bytes = ELEMENT_BYTES;
    points[0].active = bench_active(options);
    points[1] = points[0];
    points[1].variant = "contended";
    points[1].active = options->nodes;
    return options->nodes * options->threads > 1 ? 2 : 1;
}

static int queue_open(struct bench_job *job) {
    struct remo_queue_options options = {
        .home = 1 % job->size, .slot_bytes = ELEMENT_BYTES, .capacity = 4096};
    struct remo_queue *queue = NULL;
    int rc = remo_queue_open(job->channel, "queue", &options, &queue);
    job->state = queue;
    return rc;
}

static void queue_close(struct bench_job *job) {
    remo_queue_close(job->state);
    job->state = NULL;
}

/* Each thread pushes before it pops, so a pop always finds an element, though not always its
 * own. */
static int queue_operate(struct bench_thread *thread, uint64_t operations) {
    struct remo_queue *queue = thread->job->state;
    char element[ELEMENT_BYTES] = {1};
    size_t bytes;
    int rc = 0;
    for (uint64_t i = 0; i < operations && rc == 0; i++) {
        rc = remo_queue_push(queue, element, sizeof element, REMO_FOREVER);
        if (rc == 0)
            rc = remo_queue_pop(queue, element, sizeof element, &bytes, REMO_FOREVER);
    }
    return rc;
}

static double queue_limit(struct bench_job *job, char ret_name[LIMIT_NAME_BYTES]) {
    void *line = bench_scratch(job);
    if (!job->point->variant) {
        snprintf(ret_name, LIMIT_NAME_BYTES, "2 x %s", LIMIT_FETCH_ADD);
        return 2 * limit_fetch_add_ns(line);
    }
    snprintf(ret_name, LIMIT_NAME_BYTES, "2 x %s", LIMIT_FETCH_ADD_CONTENDED);
    return 2
           * limit_fetch_add_contended_ns(line, bench_cpu(job->options, 0, 0), bench_cpu(job->options, 1, 0));
}

const struct bench bench_queue = {
    .name = "queue",
    .object = "queue",
    .description = "push an element and pop one (both are one operation); then all nodes at once",
    .list = queue_list,
    .open = queue_open,
    .close = queue_close,
    .operate = queue_operate,
    .limit = queue_limit,
};
