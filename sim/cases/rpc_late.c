/* rpc_late.c - messages whose words are placed late, or not together: no message is accepted early, and no
 * word of an old one damages the next. A handler sees the writes before its request. */
#include "sim/cases/rpc.h"

/* ---- late words ---- */

/* Two requests fill the ring. The words of the first message are zero, as in new memory. So a node could
 * accept the message although they are still to be placed, and they could damage the next record at their
 * place: the reply of node 2, or the third request, which another thread sends. */
#define LATE_WORDS (REMO__RPC_DATA_MAX / sizeof(uint64_t))

static int reply_same(void *ctx, const struct remo_rpc_request *request) {
    (void)ctx;
    return remo_rpc_reply(request, 5, request->data, request->bytes);
}

static void open_late(void *state, struct remo_node *node, uint32_t rank) {
    struct rpc_state *s = state;
    const struct remo_rpc_handler handler = {.number = LATE, .run = reply_same, .ctx = &s->agents[rank]};
    sim_rpc_open(state, node, rank);
    sim_opened(remo_rpc_handle(s->services[rank], &handler), "handle");
}

static void call_late(struct rpc_state *s, uint32_t to, uint64_t word) {
    uint64_t message[LATE_WORDS], reply[LATE_WORDS] = {0};
    size_t bytes = 0;
    for (uint32_t i = 0; i < LATE_WORDS; i++)
        message[i] = word;
    int rc = remo_rpc_call(s->services[0], to, LATE, message, sizeof message, reply, sizeof reply, &bytes,
                           FOREVER);
    if (rc < 0 && sim_excused(0, to, rc))
        return;
    sim_require(rc == 5, "call: %d (%s)", rc, remo_last_error());
    sim_require(bytes == sizeof reply && memcmp(reply, message, bytes) == 0, "a reply is damaged");
}

static bool has_begun(void *ctx) {
    return ((const struct rpc_state *)ctx)->stage > 0;
}

static void late_body(void *state, uint32_t rank, uint32_t thread) {
    struct rpc_state *s = state;
    if (rank == 0 && thread == 0) {
        call_late(s, 1, 0);
        s->stage = 1;
    } else if (rank == 0) {
        sim_until(has_begun, s, "wait until the first call has ended");
        call_late(s, 2, 2);
        call_late(s, 1, 3);
        call_late(s, 1, 4);
    }
}

const struct sim_case sim_case_rpc_late = {.object = "rpc",
                                           .name = "late",
                                           .about = "messages whose last words are placed late",
                                           .nodes = 3,
                                           .threads = 2,
                                           .state_bytes = sizeof(struct rpc_state),
                                           .open = open_late,
                                           .close = sim_rpc_close,
                                           .body = late_body};

/* The last probe of a thread may find a request of which a line is not placed yet, while the service thread
 * probes the ring, too. A poll after a sweep may come too late for it. */
static void pieces_body(void *state, uint32_t rank, uint32_t thread) {
    struct rpc_state *s = state;
    uint64_t message[LATE_WORDS];
    struct remo_rpc_op ops[2] = {0};
    int rc = 0;
    (void)thread;
    memset(message, 1 + (int)rank, sizeof message);
    s->services[rank]->transport->next_poll_ns = FOREVER;
    for (uint32_t i = 0; i < 2 && rc == 0; i++) {
        ops[i] = (struct remo_rpc_op){.node = 1 - rank,
                                      .number = LATE,
                                      .request = message,
                                      .request_bytes = sizeof message,
                                      .timeout_ns = SIM_OP_TIMEOUT_NS};
        rc = remo_rpc_start(s->services[rank], &ops[i]);
    }
    for (uint32_t i = 0; i < 2 && rc >= 0; i++)
        rc = remo_rpc_wait(&ops[i]);
    for (uint32_t i = 0; i < 2; i++)
        remo_rpc_cancel(&ops[i]);
    sim_require(rc == 5 || sim_excused(rank, 1 - rank, rc), "call: %d (%s)", rc, remo_last_error());
}

const struct sim_case sim_case_rpc_pieces = {.object = "rpc",
                                             .name = "pieces",
                                             .about = "requests of several lines, which two threads find",
                                             .nodes = 2,
                                             .threads = 1,
                                             .state_bytes = sizeof(struct rpc_state),
                                             .open = open_late,
                                             .close = sim_rpc_close,
                                             .body = pieces_body};

/* ---- order of messages and writes ---- */

static void open_order(void *state, struct remo_node *node, uint32_t rank) {
    struct rpc_state *s = state;
    sim_rpc_open(state, node, rank);
    sim_opened(remo_region_open(remo_node_root(node), "words", 16 * SIM_NODES_MAX, NULL, &s->regions[rank]),
               "open");
    sim_opened(remo_channel_wait(remo_region_channel(s->regions[rank]), FOREVER), "wait");
}

static void close_order(void *state, uint32_t rank) {
    struct rpc_state *s = state;
    sim_rpc_close(state, rank); /* its handlers use the region */
    remo_region_close(s->regions[rank]);
}

static void order_body(void *state, uint32_t rank, uint32_t thread) {
    struct rpc_state *s = state;
    uint32_t to = (rank + 1) % s->nodes;
    uint64_t message[8];
    (void)thread;
    for (uint64_t number = 1; number <= 4; number++) {
        size_t bytes = sim_rpc_make(message, number);
        int rc = remo_region_write(s->regions[rank], to, 8 * rank, &number, sizeof number, 0, NULL);
        bool posts = number % 2 != 0;
        if (rc == 0)
            rc = posts ? remo_rpc_post(s->services[rank], to, READ, message, bytes)
                       : remo_rpc_call(s->services[rank], to, READ, message, bytes, NULL, 0, NULL, FOREVER);
        if (rc == WRITE_FAILED || (rc < 0 && sim_excused(rank, to, rc)))
            return;
        sim_require(rc == (posts ? 0 : 7), "write, post or call: %d (%s)", rc, remo_last_error());
        uint64_t word = sim_rpc_word(s, rank, SIM_NODES_MAX + (uint32_t)number);
        sim_require(posts || word == number || sim_any_hurt(), "the caller of %llu reads the word %llu",
                    (unsigned long long)number, (unsigned long long)word);
    }
}

const struct sim_case sim_case_rpc_order = {
    .object = "rpc",
    .name = "order",
    .about = "a handler sees the writes of its caller, and the caller those of the handler",
    .nodes = 2,
    .threads = 1,
    .state_bytes = sizeof(struct rpc_state),
    .open = open_order,
    .close = close_order,
    .body = order_body};
