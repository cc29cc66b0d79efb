/* queue.c - an operation is a push and a pop.
 * Uncontended by one node, then contended by all nodes. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/bits.h"
#include "base/error.h"
#include "bench/bench.h"

#define ELEMENT_BYTES 56u
#define CAPACITY 4096u
/* Fewer slots if they are larger: more bytes would not stay in the second-level cache. */
#define SLOTS_BYTES (512u << 10)

static uint64_t element_bytes(const struct bench_options *options) {
    return options->bytes ? remo__min(options->bytes, REMO_QUEUE_SLOT_BYTES_MAX) : ELEMENT_BYTES;
}

static uint32_t queue_list(const struct bench_options *options, struct bench_point points[BENCH_POINTS_MAX]) {
    points[0] = (struct bench_point)BENCH_POINT_DEFAULT;
    points[0].bytes = element_bytes(options);
    points[0].active = bench_active(options);
    points[1] = points[0];
    points[1].variant = "contended";
    points[1].active = options->nodes;
    return options->nodes * options->threads > 1 ? 2 : 1;
}

static int queue_open(struct bench_job *job) {
    uint64_t bytes = element_bytes(job->options);
    uint64_t fewest = (uint64_t)job->size * job->options->threads; /* each thread pushes before it pops */
    uint64_t capacity = remo__max(fewest, remo__min(CAPACITY, SLOTS_BYTES / bytes));
    struct remo_queue_options options = {
        .home = 1 % job->size, .slot_bytes = (uint32_t)bytes, .capacity = capacity};
    struct remo_queue *queue = NULL;
    int rc = remo_queue_open(job->channel, "queue", &options, &queue);
    job->state = queue;
    return rc;
}

static void queue_close(struct bench_job *job) {
    remo_queue_close(job->state);
    job->state = NULL;
}

static int queue_begin(struct bench_thread *thread) {
    thread->state = calloc(1, thread->job->point->bytes);
    return thread->state ? 0 : remo__fail(-ENOMEM, "no memory for an element");
}

static int queue_finish(struct bench_thread *thread) {
    free(thread->state);
    thread->state = NULL;
    return 0;
}

/* Each thread pushes before it pops, so a pop always finds an element, though not always its
 * own. */
static int queue_operate(struct bench_thread *thread, uint64_t operations) {
    struct remo_queue *queue = thread->job->state;
    size_t pushed_bytes = thread->job->point->bytes, popped_bytes;
    int rc = 0;
    for (uint64_t i = 0; i < operations && rc == 0; i++) {
        rc = remo_queue_push(queue, thread->state, pushed_bytes, REMO_FOREVER);
        if (rc == 0)
            rc = remo_queue_pop(queue, thread->state, pushed_bytes, &popped_bytes, REMO_FOREVER);
    }
    return rc;
}

/* The limit is that of two tickets, or that of two copies if these take longer. */
static double queue_limit(struct bench_job *job, char ret_name[LIMIT_NAME_BYTES]) {
    char copy_name[LIMIT_NAME_BYTES];
    void *line = bench_scratch(job);
    bool is_contended = job->point->variant != NULL;
    int a = bench_cpu(job->options, 0, 0), b = bench_cpu(job->options, 1, 0);
    double ticket_ns = is_contended ? limit_fetch_add_contended_ns(line, a, b) : limit_fetch_add_ns(line);
    double copy_ns = limit_memcpy_ns(line, BENCH_SCRATCH_BYTES, job->point->bytes);
    limit_memcpy_name(job->point->bytes, copy_name);
    const char *ticket_name = is_contended ? LIMIT_FETCH_ADD_CONTENDED : LIMIT_FETCH_ADD;
    snprintf(ret_name, LIMIT_NAME_BYTES, "2 x %.*s", LIMIT_NAME_BYTES - 5,
             copy_ns > ticket_ns ? copy_name : ticket_name);
    return 2 * (copy_ns > ticket_ns ? copy_ns : ticket_ns);
}

const struct bench bench_queue = {
    .name = "queue",
    .object = "queue",
    .description = "push an element and pop one (both are one operation); then all nodes at once",
    .list = queue_list,
    .open = queue_open,
    .close = queue_close,
    .begin = queue_begin,
    .finish = queue_finish,
    .operate = queue_operate,
    .limit = queue_limit,
};
