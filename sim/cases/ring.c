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

/* Send a message; repeat a send that was made to fail, since it sent nothing. */
static void send_one(struct ring_state *s, uint32_t number) {
    unsigned char message[64];
    int rc;
    for (size_t i = 0; i < size_of(number); i++)
        message[i] = byte_of(number, i);
    do
        rc = remo_ringbuffer_send(s->rings[0], message, size_of(number), FOREVER, NULL);
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
    int rc = remo_ringbuffer_receive(s->rings[rank], message, sizeof message, &size, FOREVER);
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

static void ring_body(void *state, uint32_t rank, uint32_t thread) {
    (void)thread;
    for (uint32_t number = 0; number < MESSAGES; number++)
        if (rank == 0)
            send_one(state, number);
        else if (!receive_one(state, rank, number))
            return;
    if (rank == 0) /* the next call repairs a failed part of the last message */
        (void)remo_ringbuffer_wait_received(((struct ring_state *)state)->rings[0], 0, 0);
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
