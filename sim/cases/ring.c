/* ring.c - the ring buffer: messages arrive in order, none lost, repeated or torn.
 * A failed node delays no other node. */
#include <errno.h>
#include <remo/ringbuffer.h>
#include <string.h>

#include "sim/case.h"

#define FOREVER REMO_FOREVER

#define MESSAGES 9u
#define RING_BYTES 256u

struct ring_state {
    struct remo_ringbuffer *rings[SIM_NODES_MAX];
    struct remo_node *nodes[SIM_NODES_MAX];
    uint32_t sent, fenced; /* messages */
    uint32_t acknowledged; /* messages; in the case "takers" only */
};

static void open_ring(void *state, struct remo_node *node, uint32_t rank) {
    struct ring_state *s = state;
    struct remo_ringbuffer_options options = {.capacity_bytes = RING_BYTES};
    s->nodes[rank] = node;
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

static void close_ring(void *state, uint32_t rank) {
    remo_ringbuffer_close(((struct ring_state *)state)->rings[rank]);
}

/* Build the message in a loan that is longer. */
static int send_loan(struct remo_ringbuffer *ring, const unsigned char *message, size_t size) {
    void *loan;
    int rc = remo_ringbuffer_loan(ring, 48, FOREVER, &loan);
    if (rc != 0)
        return rc;
    memcpy(loan, message, size);
    return remo_ringbuffer_commit(ring, size, NULL);
}

/* Receive a message by a peek. */
static int receive_peek(struct remo_ringbuffer *ring, unsigned char *message, size_t *ret_size) {
    const void *found;
    int rc = remo_ringbuffer_peek(ring, &found, ret_size, FOREVER);
    if (rc != 0)
        return rc;
    memcpy(message, found, *ret_size);
    return remo_ringbuffer_consume(ring);
}

/* Send a message; repeat a send that was made to fail, since it sent nothing. */
static void send_one(struct ring_state *s, uint32_t number) {
    unsigned char message[64];
    int rc;
    for (size_t i = 0; i < size_of(number); i++)
        message[i] = byte_of(number, i);
    do
        rc = number % 2 == 0 ? remo_ringbuffer_send(s->rings[0], message, size_of(number), FOREVER, NULL)
                             : send_loan(s->rings[0], message, size_of(number));
    while (rc != 0 && sim_hurt(0) && !sim_out(0));
    sim_require(rc == 0 || sim_excused(0, SIM_ANY, rc), "send: %d (%s)", rc, remo_last_error());
    s->sent = number + 1;
    if (number % 3 == 2 && remo_fence(s->nodes[0], REMO_FENCE_THREAD, 0) == 0 && !sim_out(0) && !sim_hurt(0))
        s->fenced = s->sent;
}

/* Receive a message. Returns false if the sender or this node has failed. */
static bool receive_one(struct ring_state *s, uint32_t rank, uint32_t number) {
    unsigned char message[64];
    size_t size = 0;
    int rc = number % 3 != 0
                 ? remo_ringbuffer_receive(s->rings[rank], message, sizeof message, &size, FOREVER)
                 : receive_peek(s->rings[rank], message, &size);
    sim_require(rc == 0 || sim_out(rank) || number >= s->fenced,
                "the sender has failed, and its message %u, sent and fenced, is lost", number);
    if (rc != 0 && sim_excused(rank, 0, rc))
        return false;
    sim_require(rc == 0, "receive: %d (%s)", rc, remo_last_error());
    sim_require(size == size_of(number), "message %u has %zu bytes instead of %zu", number, size,
                size_of(number));
    for (size_t i = 0; i < size; i++)
        sim_require(message[i] == byte_of(number, i), "byte %zu of message %u is wrong", i, number);
    return true;
}

/* The next call of the sender repairs a failed part of the last message. */
static void repair_last(struct ring_state *s, uint32_t rank) {
    if (rank == 0)
        (void)remo_ringbuffer_wait_received(s->rings[0], 0, 0);
}

static void ring_body(void *state, uint32_t rank, uint32_t thread) {
    (void)thread;
    for (uint32_t number = 0; number < MESSAGES; number++)
        if (rank == 0)
            send_one(state, number);
        else if (!receive_one(state, rank, number))
            return;
    repair_last(state, rank);
}

/* The sender continues with the surviving receivers; after its failure no receiver waits. */
static void ring_after(void *state, uint32_t rank) {
    struct ring_state *s = state;
    unsigned char message[64];
    size_t size;
    for (uint32_t number = MESSAGES; number < MESSAGES + 3 && !sim_out(0); number++)
        if (rank == 0)
            send_one(s, number);
        else
            sim_require(receive_one(s, rank, number), "a message of a live sender does not arrive");
    if (rank == 0 || !sim_out(0))
        return;
    int rc;
    while ((rc = remo_ringbuffer_receive(s->rings[rank], message, sizeof message, &size, FOREVER)) == 0)
        continue; /* messages that had arrived before */
    sim_require(rc == -EHOSTDOWN, "receive from a failed sender: %d", rc);
}

const struct sim_case sim_case_ringbuffer = {
    .object = "ringbuffer",
    .name = "laps",
    .about = "messages of many sizes round a small ring, to two receivers",
    .nodes = 3,
    .threads = 1,
    .state_bytes = sizeof(struct ring_state),
    .open = open_ring,
    .close = close_ring,
    .body = ring_body,
    .after = ring_after};

/* ---- late words ---- */

/* Each lap has the same sizes, and fills the ring. The messages of even laps end with words that are zero, as
 * in new memory. So a receiver could accept such a message although its end is still to be placed. */
#define LATE_LAPS 3u
static const size_t late_sizes[] = {0, 48, 48, 48, 32};
#define LATE_PER_LAP (sizeof late_sizes / sizeof late_sizes[0])
#define WORDS_MAX 6u

/* Send a message of words at node 0, or receive it at node 1. Returns false if a node has failed. */
static bool pass_words(struct ring_state *s, uint32_t rank, const uint64_t *message, size_t size) {
    uint64_t found[WORDS_MAX] = {0};
    size_t found_size = 0;
    int rc;
    do
        rc = rank == 0 ? remo_ringbuffer_send(s->rings[0], message, size, FOREVER, NULL)
                       : remo_ringbuffer_receive(s->rings[1], found, sizeof found, &found_size, FOREVER);
    while (rc != 0 && sim_hurt(0) && !sim_any_out());
    if (rc != 0 && sim_excused(rank, SIM_ANY, rc))
        return false;
    sim_require(rc == 0, "send or receive: %d (%s)", rc, remo_last_error());
    sim_require(rank == 0 || (found_size == size && memcmp(found, message, size) == 0),
                "a message of %zu bytes is damaged", size);
    return true;
}

static void late_body(void *state, uint32_t rank, uint32_t thread) {
    uint64_t message[WORDS_MAX];
    (void)thread;
    for (uint32_t number = 0; number < LATE_LAPS * LATE_PER_LAP; number++) {
        for (uint32_t i = 0; i < WORDS_MAX; i++)
            message[i] = i >= 4 && number / LATE_PER_LAP % 2 == 0 ? 0 : number + 1;
        if (!pass_words(state, rank, message, late_sizes[number % LATE_PER_LAP]))
            return;
    }
    repair_last(state, rank);
}

const struct sim_case sim_case_ring_late = {.object = "ringbuffer",
                                            .name = "late",
                                            .about = "messages whose last words are placed late",
                                            .nodes = 2,
                                            .threads = 1,
                                            .state_bytes = sizeof(struct ring_state),
                                            .open = open_ring,
                                            .close = close_ring,
                                            .body = late_body};

/* ---- credit ---- */

/* The receiver acknowledges messages 2 and 5. Message 8 makes the third acknowledgement due: its failure must
 * not leave the sender without room for the next message, whose filler and record take 112 bytes. */
static const size_t credit_sizes[] = {0, 48, 48, 48, 32, 16, 48, 32, 48, 48, 48, 48};

static void credit_body(void *state, uint32_t rank, uint32_t thread) {
    struct ring_state *s = state;
    uint64_t message[WORDS_MAX];
    (void)thread;
    for (uint32_t number = 0; number < sizeof credit_sizes / sizeof credit_sizes[0]; number++) {
        for (uint32_t i = 0; i < WORDS_MAX; i++)
            message[i] = number + 1;
        if (!pass_words(s, rank, message, credit_sizes[number]))
            return;
    }
    repair_last(s, rank);
}

const struct sim_case sim_case_ring_credit = {
    .object = "ringbuffer",
    .name = "credit",
    .about = "a receiver that has drained the ring repeats an acknowledgement",
    .nodes = 2,
    .threads = 1,
    .state_bytes = sizeof(struct ring_state),
    .open = open_ring,
    .close = close_ring,
    .body = credit_body,
    .continues_after_failure = true};

/* ---- threads that take turns ---- */

#define TAKEN 6u

struct taker {
    const struct ring_state *state;
    uint32_t number;
};

static bool is_my_message(void *ctx) {
    const struct taker *mine = ctx;
    return mine->state->acknowledged == mine->number || sim_any_out();
}

/* Receive and acknowledge every second message. */
static void take_messages(struct ring_state *s, uint32_t rank, uint32_t thread) {
    for (struct taker mine = {.state = s, .number = thread}; mine.number < TAKEN; mine.number += 2) {
        const uint64_t message[] = {mine.number + 1};
        sim_until(is_my_message, &mine, "wait for the other thread");
        if (s->acknowledged != mine.number || !pass_words(s, rank, message, sizeof message))
            return;
        int rc;
        do
            rc = remo_ringbuffer_acknowledge(s->rings[rank]);
        while (rc != 0 && sim_hurt(rank) && !sim_any_out());
        sim_require(rc == 0 || sim_excused(rank, 0, rc), "acknowledge: %d (%s)", rc, remo_last_error());
        sim_order_stores();
        s->acknowledged = mine.number + 1;
    }
}

/* The sender waits for the last acknowledgement: an earlier one must not replace it. */
static void takers_body(void *state, uint32_t rank, uint32_t thread) {
    struct ring_state *s = state;
    if (rank != 0)
        take_messages(s, rank, thread);
    if (rank != 0 || thread != 0)
        return;
    uint64_t position = 0;
    for (uint64_t number = 1; number <= TAKEN; number++) {
        int rc;
        do
            rc = remo_ringbuffer_send(s->rings[0], &number, sizeof number, FOREVER, &position);
        while (rc != 0 && sim_hurt(0) && !sim_any_out());
    }
    int rc = remo_ringbuffer_wait_received(s->rings[0], position, FOREVER);
    sim_require(rc == 0 || sim_excused(0, SIM_ANY, rc), "wait: %d (%s)", rc, remo_last_error());
}

const struct sim_case sim_case_ring_takers = {.object = "ringbuffer",
                                              .name = "takers",
                                              .about = "two threads of a receiver acknowledge in turn",
                                              .nodes = 2,
                                              .threads = 2,
                                              .state_bytes = sizeof(struct ring_state),
                                              .open = open_ring,
                                              .close = close_ring,
                                              .body = takers_body};
