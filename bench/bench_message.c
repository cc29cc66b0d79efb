/* bench_message.c - ringbuffer and queue. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/error.h"
#include "bench/bench.h"

/* ---- ringbuffer: node 0 sends, all others receive ---- */

#define RING_BYTES (1u << 20)
#define MESSAGE_BYTES_MAX (16u << 10)

/* The first word of a message counts them; this one says that no more will come. */
#define LAST UINT64_MAX

static uint32_t ring_list(const struct bench_options *options, struct bench_point points[BENCH_POINTS_MAX]) {
    static const uint64_t sizes_bytes[] = {64, 1024};
    uint32_t count = options->bytes ? 1 : REMO__ARRAY_COUNT(sizes_bytes);
    for (uint32_t i = 0; i < count; i++) {
        points[i] = (struct bench_point)BENCH_POINT_DEFAULT;
        points[i].bytes = options->bytes ? remo__min(remo__max(options->bytes, 8), MESSAGE_BYTES_MAX)
                                         : sizes_bytes[i];
        points[i].active = 1;
    }
    return count;
}

static int ring_open(struct bench_job *job) {
    struct remo_ringbuffer_options options = {.sender = 0, .capacity_bytes = RING_BYTES};
    struct remo_ringbuffer *ring = NULL;
    int rc = remo_ringbuffer_open(job->channel, "ring", &options, &ring);
    job->state = ring;
    return rc;
}

static void ring_close(struct bench_job *job) {
    remo_ringbuffer_close(job->state);
    job->state = NULL;
}

static int ring_begin(struct bench_thread *thread) {
    thread->state = calloc(1, MESSAGE_BYTES_MAX);
    return thread->state ? 0 : remo__fail(-ENOMEM, "no memory for a message");
}

/* A send returns when there is room: in the long run, at the pace of the slowest receiver. One thread sends.
 */
static int ring_operate(struct bench_thread *thread, uint64_t operations) {
    uint64_t *message = thread->state;
    int rc = 0;
    for (uint64_t i = 0; i < operations && rc == 0; i++) {
        message[0] = thread->number++;
        rc = remo_ringbuffer_send(thread->job->state, message, thread->job->point->bytes, REMO_FOREVER, NULL);
    }
    return rc;
}

static int ring_finish(struct bench_thread *thread) {
    uint64_t *message = thread->state, position;
    int rc = 0;
    if (thread->job->rank == 0 && thread->status == 0) {
        message[0] = LAST;
        rc = remo_ringbuffer_send(thread->job->state, message, thread->job->point->bytes, REMO_FOREVER,
                                  &position);
        rc = rc != 0 ? rc : remo_ringbuffer_wait_received(thread->job->state, position, REMO_FOREVER);
    }
    free(thread->state);
    thread->state = NULL;
    return rc;
}

static int ring_attend(struct bench_thread *thread) {
    uint64_t *message = thread->state, expected = 0;
    for (;;) {
        size_t bytes;
        int rc = remo_ringbuffer_receive(thread->job->state, message, MESSAGE_BYTES_MAX, &bytes,
                                         REMO_FOREVER);
        if (rc != 0)
            return rc;
        if (message[0] == LAST)
            return remo_ringbuffer_acknowledge(thread->job->state);
        if (message[0] != expected || bytes != thread->job->point->bytes)
            return remo__fail(-EIO, "message %llu of the ring came where %llu was expected",
                              (unsigned long long)message[0], (unsigned long long)expected);
        expected++;
    }
}

static double ring_limit(struct bench_job *job, char ret_name[LIMIT_NAME_BYTES]) {
    limit_memcpy_name(job->point->bytes, ret_name);
    return limit_memcpy_ns(bench_scratch(job), BENCH_SCRATCH_BYTES, job->point->bytes);
}

const struct bench bench_ringbuffer = {
    .name = "ringbuffer",
    .object = "ringbuffer",
    .description = "one node sends messages to all others, which receive and check each one",
    .one_thread = true,
    .list = ring_list,
    .open = ring_open,
    .close = ring_close,
    .begin = ring_begin,
    .finish = ring_finish,
    .operate = ring_operate,
    .attend = ring_attend,
    .limit = ring_limit,
};

/* ---- queue: an operation is a push and a pop ---- */

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

/* Everybody pushes before it pops, so that a pop always finds something, if not always its own. */
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
    return 2 *
           limit_fetch_add_contended_ns(line, bench_cpu(job->options, 0, 0), bench_cpu(job->options, 1, 0));
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
