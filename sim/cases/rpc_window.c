/* rpc_window.c - several calls of a node in flight: more than its slots, or than the ring of the receiver,
 * holds. Requests start in order, each reply reaches its call, and calls in a cycle end. */
#include "sim/cases/rpc.h"

/* ---- order, and a full ring ---- */

/* More than the ring holds: posts, a call that is started, posts, and a call that waits. */
static void posts_body(void *state, uint32_t rank, uint32_t thread) {
    struct rpc_state *s = state;
    uint64_t message[8], started_message[8];
    struct remo_rpc_op started = {
        .node = 1, .number = COUNT, .request = started_message, .timeout_ns = FOREVER};
    int rc = 0;
    (void)thread;
    if (rank != 0)
        return;
    for (uint64_t number = 0; number < 16 && rc == 0; number++) {
        size_t bytes = sim_rpc_make(message, number);
        if (number % 8 == 7) {
            rc = remo_rpc_call(s->services[0], 1, COUNT, message, bytes, NULL, 0, NULL, FOREVER);
        } else if (number % 8 == 5) {
            started.request_bytes = sim_rpc_make(started_message, number);
            rc = remo_rpc_start(s->services[0], &started);
        } else {
            rc = remo_rpc_post(s->services[0], 1, COUNT, message, bytes);
        }
        if (rc == 0 && number % 8 == 7)
            rc = remo_rpc_wait(&started);
    }
    remo_rpc_cancel(&started);
    if (rc != 0 && sim_excused(0, 1, rc))
        return;
    sim_require(rc == 0, "post or call: %d (%s)", rc, remo_last_error());
    sim_require(s->expected[1][0] == 16, "a call ended before request %u", s->expected[1][0]);
}

const struct sim_case sim_case_rpc_posts =
    RPC_CASE(.name = "posts", .about = "posts and calls round a small ring start in order", .nodes = 2,
             .threads = 1, .body = posts_body);

/* ---- windows ---- */

/* More calls than there are slots, to a handler that replies to the call before. One is cancelled before its
 * reply, and the last one has none. Node 1 calls too, so two of its threads reply. */
static void window_body(void *state, uint32_t rank, uint32_t thread) {
    enum { WINDOW = 4 };
    struct rpc_state *s = state;
    struct remo_rpc_op ops[WINDOW];
    uint64_t messages[WINDOW][8];
    if (rank != 0) {
        sim_rpc_calls_body(state, rank, thread);
        return;
    }
    memset(ops, 0, sizeof ops);
    for (uint32_t i = 0; i < WINDOW; i++) {
        ops[i] =
            (struct remo_rpc_op){.node = 1, .number = KEEP, .request = messages[i], .timeout_ns = FOREVER};
        ops[i].request_bytes = sim_rpc_make(messages[i], i + 1);
        int rc = remo_rpc_start(s->services[0], &ops[i]);
        if (rc != 0) {
            for (uint32_t j = 0; j < i; j++)
                remo_rpc_cancel(&ops[j]);
            sim_require(sim_excused(0, 1, rc), "start: %d (%s)", rc, remo_last_error());
            return;
        }
    }
    int failed = 0;
    remo_rpc_cancel(&ops[1]);
    for (uint32_t i = 0; i < WINDOW - 1 && failed == 0; i++) {
        int rc = i == 1 ? 6 : remo_rpc_wait(&ops[i]);
        failed = rc == 6 ? 0 : rc;
    }
    for (uint32_t i = 0; i < WINDOW; i++)
        remo_rpc_cancel(&ops[i]);
    sim_require(failed == 0 || sim_excused(0, 1, failed), "wait: %d (%s)", failed, remo_last_error());
}

const struct sim_case sim_case_rpc_window =
    RPC_CASE(.name = "window", .about = "more calls than slots; replies are deferred, a call is cancelled",
             .nodes = 2, .threads = 1, .body = window_body, .after = sim_rpc_calls_after);

/* A call is cancelled, and the next one goes to another node: the late reply must not reach it. */
static void cancel_body(void *state, uint32_t rank, uint32_t thread) {
    struct rpc_state *s = state;
    uint64_t message[8];
    struct remo_rpc_op op = {.node = (rank + 1) % s->nodes,
                             .number = ECHO,
                             .request = message,
                             .request_bytes = sim_rpc_make(message, sim_rpc_number_at(rank, thread, 0)),
                             .timeout_ns = FOREVER};
    int rc = remo_rpc_start(s->services[rank], &op);
    remo_rpc_cancel(&op);
    sim_require(rc == 0 || sim_excused(rank, op.node, rc), "start: %d (%s)", rc, remo_last_error());
    sim_rpc_call(s, rank, (rank + 2) % s->nodes, ECHO, SIM_ANY, sim_rpc_number_at(rank, thread, 1));
}

const struct sim_case sim_case_rpc_cancel =
    RPC_CASE(.name = "cancel", .about = "a call follows a cancelled one, to another node", .nodes = 3,
             .threads = 1, .body = cancel_body, .after = sim_rpc_calls_after);

/* Handlers of all nodes call each other, with one slot for each depth. */
static void circle_body(void *state, uint32_t rank, uint32_t thread) {
    struct rpc_state *s = state;
    (void)thread;
    int rc = remo_rpc_call(s->services[rank], (rank + 1) % s->nodes, CIRCLE, NULL, 0, NULL, 0, NULL, FOREVER);
    if (rc < 0 && sim_excused(rank, SIM_ANY, rc))
        return;
    sim_require(rc >= 0 && rc <= (int)REMO_RPC_DEPTH_MAX - 1, "circle: %d (%s)", rc, remo_last_error());
}

const struct sim_case sim_case_rpc_circle =
    RPC_CASE(.name = "circle", .about = "handlers that call each other in a cycle end", .nodes = 2,
             .threads = 2, .body = circle_body);
