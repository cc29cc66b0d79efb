/* case_streams.c - ring buffer and queue. */
#include <errno.h>
#include <remo/queue.h>
#include <remo/ringbuffer.h>
#include <string.h>

#include "sim/case.h"
#include "sim/oracle.h"

#define FOREVER REMO_FOREVER

/* ---- ring buffer: order, no loss, no duplicate, nothing torn ---- */

#define MESSAGES       9u
#define RING_BYTES     256u

struct ring_state {
    struct remo_ringbuffer *rings[SIM_NODES_MAX];
    uint64_t sent;                       /* messages */
};

static void open_ring(void *state, struct remo_node *node, uint32_t rank) {
    struct ring_state *s = state;
    struct remo_ringbuffer_options options = {.capacity_bytes = RING_BYTES};
    sim_opened(remo_ringbuffer_open(remo_node_root(node), "ring", &options, &s->rings[rank]), "open");
    sim_opened(remo_channel_wait(remo_ringbuffer_channel(s->rings[rank]), FOREVER), "wait");
}

static size_t size_of(uint32_t number) {
    static const size_t sizes[] = {8, 40, 1, 0, 30, 48};
    return sizes[number % (sizeof sizes / sizeof sizes[0])];
}

static unsigned char byte_of(uint32_t number, size_t at) {
    return (unsigned char)(17 * number + at + 1);
}

static void send_all(struct ring_state *s) {
    unsigned char message[64];
    for (uint32_t number = 0; number < MESSAGES; number++) {
        for (size_t i = 0; i < size_of(number); i++)
            message[i] = byte_of(number, i);
        int rc = remo_ringbuffer_send(s->rings[0], message, size_of(number), FOREVER, NULL);
        sim_require(rc == 0, "send: %d (%s)", rc, remo_last_error());
        s->sent = number + 1;
    }
}

static void receive_all(struct ring_state *s, uint32_t rank) {
    unsigned char message[64];
    for (uint32_t number = 0; number < MESSAGES; number++) {
        size_t size = 0;
        int rc = remo_ringbuffer_receive(s->rings[rank], message, sizeof message, &size, FOREVER);
        if (rc == -EHOSTDOWN && sim_world->crashed[0])
            return;
        sim_require(rc == 0, "receive: %d (%s)", rc, remo_last_error());
        sim_require(size == size_of(number), "message %u has %zu bytes instead of %zu", number, size, size_of(number));
        for (size_t i = 0; i < size; i++)
            sim_require(message[i] == byte_of(number, i), "byte %zu of message %u is wrong", i, number);
    }
}

static void ring_body(void *state, uint32_t rank, uint32_t thread) {
    (void)thread;
    if (rank == 0)
        send_all(state);
    else
        receive_all(state, rank);
}

const struct sim_case sim_case_ringbuffer = {
    .object = "ringbuffer", .name = "laps", .about = "messages of many sizes round a small ring, to two receivers", .nodes = 3,
    .threads = 1, .state_bytes = sizeof(struct ring_state), .open = open_ring, .body = ring_body, .may_crash = true, .crash_first = 0};

/* ---- queue ---- */

struct queue_state {
    struct remo_queue *queues[SIM_NODES_MAX];
};

static void open_queue(void *state, struct remo_node *node, uint32_t rank, uint32_t slot_bytes) {
    struct queue_state *s = state;
    struct remo_queue_options options = {.capacity = ORACLE_QUEUE_CAPACITY, .slot_bytes = slot_bytes};
    sim_opened(remo_queue_open(remo_node_root(node), "queue", &options, &s->queues[rank]), "open");
    sim_opened(remo_channel_wait(remo_queue_channel(s->queues[rank]), FOREVER), "wait");
}

static void open_small(void *state, struct remo_node *node, uint32_t rank) {
    open_queue(state, node, rank, 120);
}

#define ELEMENT_WORDS 15u

static int push(struct remo_queue *queue, uint64_t number, uint64_t timeout_ns) {
    uint64_t element[ELEMENT_WORDS];
    for (uint32_t i = 0; i < ELEMENT_WORDS; i++)
        element[i] = number;
    uint32_t call = sim_begin(QUEUE_PUSH, 0, number, 0);
    int rc = remo_queue_push(queue, element, sizeof element, timeout_ns);
    if (rc == 0 || rc == -ETIMEDOUT)
        sim_end(call, rc, 0);
    return rc;
}

static int pop(struct remo_queue *queue, uint64_t timeout_ns) {
    uint64_t element[ELEMENT_WORDS] = {0};
    size_t size = 0;
    uint32_t call = sim_begin(QUEUE_POP, 0, 0, 0);
    int rc = remo_queue_pop(queue, element, sizeof element, &size, timeout_ns);
    for (uint32_t i = 1; i < ELEMENT_WORDS && rc == 0; i++)
        sim_require(element[i] == element[0] && size == sizeof element, "a torn element was popped");
    if (rc == 0 || rc == -ETIMEDOUT)
        sim_end(call, rc, element[0]);
    return rc;
}

static void must(int rc) {
    sim_require(rc == 0 || rc == -ETIMEDOUT, "queue: %d (%s)", rc, remo_last_error());
}

static void queue_body(void *state, uint32_t rank, uint32_t thread) {
    struct remo_queue *queue = ((struct queue_state *)state)->queues[rank];
    (void)thread;
    must(push(queue, 10 * rank + 1, 0));
    must(pop(queue, 0));
    must(push(queue, 10 * rank + 2, 0));
    must(pop(queue, 0));
}

const struct sim_case sim_case_queue = {
    .object = "queue", .name = "tries", .about = "pushes and pops of two nodes that do not wait; two slots", .nodes = 2, .threads = 1,
    .state_bytes = sizeof(struct queue_state), .open = open_small, .body = queue_body, .oracle = &oracle_queue};

static void queue_threads_body(void *state, uint32_t rank, uint32_t thread) {
    struct remo_queue *queue = ((struct queue_state *)state)->queues[rank];
    for (uint32_t i = 0; i < 2; i++)
        if (thread == 0)
            must(push(queue, 10 * rank + i + 1, 0));
        else
            must(pop(queue, 0));
}

const struct sim_case sim_case_queue_threads = {
    .object = "queue", .name = "threads", .about = "of each node one thread pushes and one pops", .nodes = 2, .threads = 2,
    .state_bytes = sizeof(struct queue_state), .open = open_small, .body = queue_threads_body, .oracle = &oracle_queue};

/* Producers and consumers that wait: all that is pushed is popped. */
static void queue_wait_body(void *state, uint32_t rank, uint32_t thread) {
    struct remo_queue *queue = ((struct queue_state *)state)->queues[rank];
    (void)thread;
    for (uint32_t i = 0; i < 4; i++) {
        int rc = rank == 0 ? push(queue, i + 1, FOREVER) : pop(queue, FOREVER);
        sim_require(rc == 0, "queue: %d (%s)", rc, remo_last_error());
    }
}

const struct sim_case sim_case_queue_wait = {
    .object = "queue", .name = "waits", .about = "a producer and a consumer that wait for each other", .nodes = 2, .threads = 1,
    .state_bytes = sizeof(struct queue_state), .open = open_small, .body = queue_wait_body, .oracle = &oracle_queue};
