/* ringbuffer.c - node 0 sends, all other nodes receive.
 * Every receiver checks the number of each message. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/error.h"
#include "bench/bench.h"

#define RING_BYTES (1u << 20)
#define MESSAGE_BYTES_MAX (128u << 10)

/* The sender builds each message in a loan. On shm with one receiver that is the only copy: the receiver
 * reads the number of the message in place. */
#define LOAN "loan"

/* The first word of a message counts the messages; this value marks the last one. */
#define LAST UINT64_MAX

static uint32_t ring_list(const struct bench_options *options, struct bench_point points[BENCH_POINTS_MAX]) {
    static const uint64_t sizes_bytes[] = {64, 1024};
    uint32_t count = options->bytes ? 1 : REMO__ARRAY_COUNT(sizes_bytes);
    for (uint32_t i = 0; i < 2 * count; i++) {
        points[i] = (struct bench_point)BENCH_POINT_DEFAULT;
        points[i].bytes =
            options->bytes ? remo__min(remo__max(options->bytes, 8), MESSAGE_BYTES_MAX) : sizes_bytes[i / 2];
        points[i].active = 1;
        points[i].variant = i % 2 == 0 ? NULL : LOAN;
    }
    return 2 * count;
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

/* Send a message with the number. */
static int send_one(struct bench_thread *thread, uint64_t number, uint64_t *ret_position) {
    struct remo_ringbuffer *ring = thread->job->state;
    uint64_t *message = thread->state, bytes = thread->job->point->bytes;
    void *loan;
    message[0] = number;
    if (!thread->job->point->variant)
        return remo_ringbuffer_send(ring, message, bytes, REMO_FOREVER, ret_position);
    int rc = remo_ringbuffer_loan(ring, bytes, REMO_FOREVER, &loan);
    if (rc != 0)
        return rc;
    memcpy(loan, message, bytes);
    return remo_ringbuffer_commit(ring, bytes, ret_position);
}

/* A send returns when the ring has room, so on average at the pace of the slowest receiver. One
 * thread sends. */
static int ring_operate(struct bench_thread *thread, uint64_t operations) {
    int rc = 0;
    for (uint64_t i = 0; i < operations && rc == 0; i++)
        rc = send_one(thread, thread->number++, NULL);
    return rc;
}

static int ring_finish(struct bench_thread *thread) {
    uint64_t position;
    int rc = 0;
    if (thread->job->rank == 0 && thread->status == 0) {
        rc = send_one(thread, LAST, &position);
        rc = rc != 0 ? rc : remo_ringbuffer_wait_received(thread->job->state, position, REMO_FOREVER);
    }
    free(thread->state);
    thread->state = NULL;
    return rc;
}

/* Receive a message, and store its number. */
static int receive_one(struct bench_thread *thread, uint64_t *ret_number, size_t *ret_bytes) {
    struct remo_ringbuffer *ring = thread->job->state;
    const void *found = thread->state;
    bool is_loan = thread->job->point->variant;
    int rc = is_loan
                 ? remo_ringbuffer_peek(ring, &found, ret_bytes, REMO_FOREVER)
                 : remo_ringbuffer_receive(ring, thread->state, MESSAGE_BYTES_MAX, ret_bytes, REMO_FOREVER);
    if (rc != 0)
        return rc;
    memcpy(ret_number, found, sizeof *ret_number);
    return is_loan ? remo_ringbuffer_consume(ring) : 0;
}

static int ring_attend(struct bench_thread *thread) {
    uint64_t number, expected = 0;
    for (;;) {
        size_t bytes = 0;
        int rc = receive_one(thread, &number, &bytes);
        if (rc != 0)
            return rc;
        if (number == LAST)
            return remo_ringbuffer_acknowledge(thread->job->state);
        if (number != expected || bytes != thread->job->point->bytes)
            return remo__fail(-EIO, "the benchmark is wrong: message %llu arrived instead of message %llu",
                              (unsigned long long)number, (unsigned long long)expected);
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
