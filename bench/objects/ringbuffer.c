/* ringbuffer.c - node 0 sends, all other nodes receive.
 * Every receiver checks the number of each message. A round trip is two messages, through two rings. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/error.h"
#include "bench/bench.h"

#define RING_BYTES (512u << 10) /* a larger ring would not stay in the second-level cache */
#define MESSAGES_PER_RING 4u    /* at least: a ring for larger messages is larger */

/* The sender builds each message in a loan. On shm with one receiver that is the only copy: the receiver
 * reads the number of the message in place. */
static const char loan_variant[] = "loan";

/* Node 1 answers each message through a second ring: an operation is two hops. */
static const char round_trip[] = "round trip";

struct rings {
    struct remo_ringbuffer *messages;
    struct remo_ringbuffer *answers; /* NULL: this node neither sends nor receives answers */
};

/* The first word of a message counts the messages; this value marks the last one. */
#define LAST UINT64_MAX

static uint64_t message_bytes_max(const struct bench_options *options) {
    return options->bytes ? remo__max(options->bytes, 8) : 1024;
}

static uint32_t ring_list(const struct bench_options *options, struct bench_point points[BENCH_POINTS_MAX]) {
    const uint64_t sizes_bytes[] = {64, message_bytes_max(options)};
    static const char *const variants[] = {NULL, loan_variant, round_trip};
    uint32_t first_size = options->bytes ? 1 : 0, sizes = REMO__ARRAY_COUNT(sizes_bytes) - first_size;
    uint32_t variants_count = options->nodes > 1 ? 3 : 2; /* one node has no peer that answers */
    for (uint32_t i = 0; i < sizes * variants_count; i++) {
        points[i] = (struct bench_point)BENCH_POINT_DEFAULT;
        points[i].bytes = sizes_bytes[first_size + i / variants_count];
        points[i].active = 1;
        points[i].variant = variants[i % variants_count];
    }
    return sizes * variants_count;
}

static void ring_close(struct bench_job *job) {
    struct rings *rings = job->state;
    if (rings) {
        remo_ringbuffer_close(rings->answers);
        remo_ringbuffer_close(rings->messages);
    }
    free(rings);
    job->state = NULL;
}

static int ring_open(struct bench_job *job) {
    uint64_t needed_bytes = MESSAGES_PER_RING * (message_bytes_max(job->options) + 64);
    uint64_t capacity_bytes = remo__max(RING_BYTES, remo__power_of_two_from(needed_bytes));
    struct remo_ringbuffer_options messages = {.sender = 0, .capacity_bytes = capacity_bytes};
    struct remo_ringbuffer_options answers = {.sender = 1, .capacity_bytes = capacity_bytes};
    struct rings *rings = job->state = calloc(1, sizeof *rings);
    if (!rings)
        return remo__fail(-ENOMEM, "no memory for the rings");
    int rc = remo_ringbuffer_open(job->channel, "ring", &messages, &rings->messages);
    remo_nodeset_add(&answers.participants, 0);
    remo_nodeset_add(&answers.participants, 1);
    if (rc == 0 && job->size > 1 && job->rank < 2)
        rc = remo_ringbuffer_open(job->channel, "answers", &answers, &rings->answers);
    return rc;
}

static int ring_begin(struct bench_thread *thread) {
    thread->state = calloc(1, thread->job->point->bytes);
    return thread->state ? 0 : remo__fail(-ENOMEM, "no memory for a message");
}

/* Send a message with the number. */
static int send_one(struct bench_thread *thread, struct remo_ringbuffer *ring, uint64_t number,
                    uint64_t *ret_position) {
    uint64_t *message = thread->state, bytes = thread->job->point->bytes;
    void *loan;
    message[0] = number;
    if (thread->job->point->variant != loan_variant)
        return remo_ringbuffer_send(ring, message, bytes, REMO_FOREVER, ret_position);
    int rc = remo_ringbuffer_loan(ring, bytes, REMO_FOREVER, &loan);
    if (rc != 0)
        return rc;
    memcpy(loan, message, bytes);
    return remo_ringbuffer_commit(ring, bytes, ret_position);
}

/* Receive a message, and store its number. */
static int receive_one(struct bench_thread *thread, struct remo_ringbuffer *ring, uint64_t *ret_number,
                       size_t *ret_bytes) {
    const void *found = thread->state;
    bool is_loan = thread->job->point->variant == loan_variant;
    int rc = is_loan ? remo_ringbuffer_peek(ring, &found, ret_bytes, REMO_FOREVER)
                     : remo_ringbuffer_receive(ring, thread->state, thread->job->point->bytes, ret_bytes,
                                               REMO_FOREVER);
    if (rc != 0)
        return rc;
    memcpy(ret_number, found, sizeof *ret_number);
    return is_loan ? remo_ringbuffer_consume(ring) : 0;
}

static int check_message(const struct bench_thread *thread, uint64_t number, uint64_t expected,
                         size_t bytes) {
    if (number == expected && bytes == thread->job->point->bytes)
        return 0;
    return remo__fail(-EIO, "the benchmark is wrong: message %llu arrived instead of message %llu",
                      (unsigned long long)number, (unsigned long long)expected);
}

static int await_answer(struct bench_thread *thread, uint64_t expected) {
    const struct rings *rings = thread->job->state;
    uint64_t number;
    size_t bytes;
    int rc = receive_one(thread, rings->answers, &number, &bytes);
    return rc != 0 ? rc : check_message(thread, number, expected, bytes);
}

/* A send returns when the ring has room, so on average at the pace of the slowest receiver. One
 * thread sends. */
static int ring_operate(struct bench_thread *thread, uint64_t operations) {
    const struct rings *rings = thread->job->state;
    bool has_answers = thread->job->point->variant == round_trip;
    int rc = 0;
    for (uint64_t i = 0; i < operations && rc == 0; i++) {
        rc = send_one(thread, rings->messages, thread->number, NULL);
        if (rc == 0 && has_answers)
            rc = await_answer(thread, thread->number);
        thread->number++;
    }
    return rc;
}

static int ring_finish(struct bench_thread *thread) {
    const struct rings *rings = thread->job->state;
    uint64_t position;
    int rc = 0;
    if (thread->job->rank == 0 && thread->status == 0) {
        rc = send_one(thread, rings->messages, LAST, &position);
        rc = rc != 0 ? rc : remo_ringbuffer_wait_received(rings->messages, position, REMO_FOREVER);
    }
    free(thread->state);
    thread->state = NULL;
    return rc;
}

static int ring_attend(struct bench_thread *thread) {
    const struct rings *rings = thread->job->state;
    bool answers = thread->job->point->variant == round_trip && thread->job->rank == 1;
    uint64_t number, expected = 0;
    for (;;) {
        size_t bytes = 0;
        int rc = receive_one(thread, rings->messages, &number, &bytes);
        if (rc == 0 && number == LAST)
            return remo_ringbuffer_acknowledge(rings->messages);
        if (rc == 0)
            rc = check_message(thread, number, expected, bytes);
        if (rc == 0 && answers)
            rc = send_one(thread, rings->answers, number, NULL);
        if (rc != 0)
            return rc;
        expected++;
    }
}

/* A stream of messages has a bare ring as its limit, because the lines of all messages move from one
 * processor to the other. A receiver that uses a loan does not read most of the message: such a message has
 * the limit of its copy. A round trip of any size has a ping-pong over one line. */
static double ring_limit(struct bench_job *job, char ret_name[LIMIT_NAME_BYTES]) {
    int a = bench_cpu(job->options, 0, 0), b = bench_cpu(job->options, 1, 0);
    if (job->point->variant == round_trip) {
        snprintf(ret_name, LIMIT_NAME_BYTES, "%s", LIMIT_PINGPONG_1);
        return limit_pingpong_ns(bench_scratch(job), a, b, 1);
    }
    if (job->point->variant != loan_variant || job->point->bytes == LIMIT_RING_MESSAGE_BYTES) {
        limit_ring_name(job->point->bytes, ret_name);
        return limit_ring_ns(bench_scratch(job), job->point->bytes, a, b);
    }
    limit_memcpy_name(job->point->bytes, ret_name);
    return limit_memcpy_ns(bench_scratch(job), BENCH_SCRATCH_BYTES, job->point->bytes);
}

const struct bench bench_ringbuffer = {
    .name = "ringbuffer",
    .object = "ringbuffer",
    .description =
        "one node sends messages to all others, which check each one; in round trips node 1 answers",
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
