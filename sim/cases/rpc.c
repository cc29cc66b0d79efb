/* rpc.c - remote procedure calls: each handler runs at most once, in order, and each reply reaches its call.
 * Each call ends, also after failures, and also if windows and rings are full. */
#include <errno.h>
#include <remo/rpc.h>
#include <string.h>

#include "sim/case.h"

#define FOREVER REMO_FOREVER
#define NUMBERS 64u
#define ROUNDS 3u

enum handler { ECHO, KEEP, PASS_ON, COUNT, CIRCLE, HANDLERS };

struct rpc_state {
    struct remo_rpc *services[SIM_NODES_MAX];
    struct agent {
        struct rpc_state *state;
        uint32_t rank;
        struct remo_rpc_deferred kept;
        bool has_kept;
    } agents[SIM_NODES_MAX];
    uint32_t nodes;
    uint32_t runs[NUMBERS];                               /* of the handler of each number */
    uint32_t expected[SIM_NODES_MAX][SIM_NODES_MAX];      /* next number at a node, of each caller */
    struct remo_rpc_op nested[SIM_NODES_MAX][2 * ROUNDS]; /* calls of handlers */
    struct remo_rpc_deferred waiting[SIM_NODES_MAX][2 * ROUNDS];
    uint32_t nested_count[SIM_NODES_MAX];
};

/* A number, and words that are computed from it: a damaged message is detected. */
static size_t make_message(uint64_t *message, uint64_t number) {
    size_t words = 1 + number % 6;
    for (size_t i = 0; i < words; i++)
        message[i] = number + i * 0x100;
    return words * 8;
}

static void check_message(const void *data, size_t bytes, const char *what) {
    uint64_t message[8], expected[8];
    sim_require(bytes >= 8 && bytes <= sizeof message, "%s of %zu bytes", what, bytes);
    memcpy(message, data, bytes);
    sim_require(make_message(expected, message[0]) == bytes && memcmp(message, expected, bytes) == 0,
                "%s is damaged", what);
}

static uint64_t number_of(const struct remo_rpc_request *request) {
    uint64_t number;
    check_message(request->data, request->bytes, "a request");
    memcpy(&number, request->data, 8);
    return number;
}

/* ---- handlers ---- */

static void count_run(struct rpc_state *s, uint64_t number) {
    s->runs[number % NUMBERS]++;
    sim_require(s->runs[number % NUMBERS] == 1, "the handler of call %llu runs twice",
                (unsigned long long)number);
}

static int echo(void *ctx, const struct remo_rpc_request *request) {
    struct agent *agent = ctx;
    count_run(agent->state, number_of(request));
    return remo_rpc_reply(request, 5, request->data, request->bytes);
}

/* Reply to the request that was kept before, and keep this one. */
static int keep(void *ctx, const struct remo_rpc_request *request) {
    struct agent *agent = ctx;
    struct remo_rpc_deferred last = agent->kept;
    count_run(agent->state, number_of(request));
    int rc = remo_rpc_defer(request, &agent->kept);
    if (agent->has_kept)
        (void)remo_rpc_reply_later(agent->state->services[agent->rank], last, 6, NULL, 0);
    agent->has_kept = true;
    return rc;
}

static int pass_on(void *ctx, const struct remo_rpc_request *request) {
    const struct agent *agent = ctx;
    uint32_t next = (agent->rank + 1) % agent->state->nodes;
    (void)number_of(request);
    return remo_rpc_forward(request, next, ECHO, request->data, request->bytes);
}

/* Requests of one thread start in order, and none is lost while its server is up. */
static int count(void *ctx, const struct remo_rpc_request *request) {
    struct agent *agent = ctx;
    uint32_t *expected = &agent->state->expected[agent->rank][request->node];
    uint64_t number = number_of(request);
    sim_require(number >= *expected, "request %llu starts after request %u", (unsigned long long)number,
                *expected);
    sim_require(number == *expected || sim_hurt(request->node), "request %u is lost", *expected);
    *expected = (uint32_t)number + 1;
    return 0;
}

static void circle_done(struct remo_rpc_op *op) {
    struct agent *agent = op->ctx;
    struct rpc_state *s = agent->state;
    size_t index = (size_t)(op - s->nested[agent->rank]);
    (void)remo_rpc_reply_later(s->services[agent->rank], s->waiting[agent->rank][index],
                               op->status < 0 ? op->status : op->status + 1, NULL, 0);
}

static int circle(void *ctx, const struct remo_rpc_request *request) {
    struct agent *agent = ctx;
    struct rpc_state *s = agent->state;
    uint32_t index = s->nested_count[agent->rank]++;
    if (index >= 2 * ROUNDS)
        return 0;
    struct remo_rpc_op *op = &s->nested[agent->rank][index];
    *op = (struct remo_rpc_op){.node = (agent->rank + 1) % s->nodes,
                               .number = CIRCLE,
                               .timeout_ns = FOREVER,
                               .done = circle_done,
                               .ctx = agent};
    int rc = remo_rpc_defer(request, &s->waiting[agent->rank][index]);
    if (rc == 0 && (rc = remo_rpc_start(s->services[agent->rank], op)) != 0)
        rc = remo_rpc_reply_later(s->services[agent->rank], s->waiting[agent->rank][index],
                                  rc == -ELOOP ? 0 : rc, NULL, 0);
    return rc;
}

static void open_rpc(void *state, struct remo_node *node, uint32_t rank) {
    static const remo_rpc_handler_fn functions[HANDLERS] = {echo, keep, pass_on, count, circle};
    struct rpc_state *s = state;
    struct remo_rpc_handler handlers[HANDLERS];
    struct remo_rpc_options options = {.handlers = handlers, .handler_count = HANDLERS};
    s->nodes = remo_node_size(node);
    s->agents[rank] = (struct agent){.state = s, .rank = rank};
    for (uint32_t i = 0; i < HANDLERS; i++)
        handlers[i] = (struct remo_rpc_handler){.number = i, .run = functions[i], .ctx = &s->agents[rank]};
    sim_opened(remo_rpc_open(remo_node_root(node), "service", &options, &s->services[rank]), "open");
    sim_opened(remo_channel_wait(remo_rpc_channel(s->services[rank]), FOREVER), "wait");
}

static void close_rpc(void *state, uint32_t rank) {
    struct rpc_state *s = state;
    remo_rpc_close(s->services[rank]);
}

/* ---- one call at a time ---- */

/* Call, and check that the outcome agrees with what the handler has done. */
static void call(struct rpc_state *s, uint32_t rank, uint32_t to, enum handler handler, uint32_t depends_on,
                 uint64_t number) {
    uint64_t message[8], reply[8];
    size_t bytes = make_message(message, number);
    struct remo_rpc_op op = {.node = to,
                             .number = handler,
                             .request = message,
                             .request_bytes = bytes,
                             .reply = reply,
                             .reply_cap = sizeof reply,
                             .timeout_ns = FOREVER};
    int rc = remo_rpc_start(s->services[rank], &op);
    if (rc == 0)
        rc = remo_rpc_wait(&op);
    uint32_t runs = s->runs[number % NUMBERS];
    sim_require(op.fate != REMO_RPC_DONE || rc < 0 || runs == 1,
                "call %llu has ended, but no handler has run", (unsigned long long)number);
    sim_require(op.fate != REMO_RPC_NOT_SENT || runs == 0, "call %llu was not sent, but a handler has run",
                (unsigned long long)number);
    /* a node that cannot forward a request replies with the error */
    bool is_refused = rc < 0 && op.fate == REMO_RPC_DONE && handler == PASS_ON && sim_any_hurt();
    if (rc < 0 && (is_refused || sim_excused(rank, depends_on, rc)))
        return;
    sim_require(rc == 5, "call: %d (%s)", rc, remo_last_error());
    sim_require(op.reply_bytes == bytes, "a reply of %zu bytes", op.reply_bytes);
    check_message(reply, bytes, "a reply");
    sim_require(reply[0] == number, "call %llu has the reply of call %llu", (unsigned long long)number,
                (unsigned long long)reply[0]);
}

static uint64_t number_at(uint32_t rank, uint32_t thread, uint32_t round) {
    return rank * 20 + thread * 8 + round + 1;
}

static void calls_body(void *state, uint32_t rank, uint32_t thread) {
    struct rpc_state *s = state;
    for (uint32_t round = 0; round < ROUNDS; round++)
        call(s, rank, (rank + 1 + round) % s->nodes, ECHO, SIM_ANY, number_at(rank, thread, round));
}

/* Survivors call each other. */
static void calls_after(void *state, uint32_t rank) {
    struct rpc_state *s = state;
    for (uint32_t to = 0; to < s->nodes; to++)
        if (!sim_out(to))
            call(s, rank, to, ECHO, to, number_at(rank, 0, 8 + to) + 3);
}

#define RPC_CASE(...)                                                                                   \
    {                                                                                                   \
        .object = "rpc", .state_bytes = sizeof(struct rpc_state), .open = open_rpc, .close = close_rpc, \
        __VA_ARGS__                                                                                     \
    }

const struct sim_case sim_case_rpc_calls =
    RPC_CASE(.name = "calls", .about = "calls between two nodes, with data of many sizes", .nodes = 2,
             .threads = 1, .body = calls_body, .after = calls_after);
const struct sim_case sim_case_rpc_threads =
    RPC_CASE(.name = "threads", .about = "calls of two threads on each of three nodes", .nodes = 3,
             .threads = 2, .body = calls_body, .after = calls_after);

/* ---- forwarded ---- */

static void forward_body(void *state, uint32_t rank, uint32_t thread) {
    struct rpc_state *s = state;
    for (uint32_t round = 0; round < ROUNDS; round++)
        call(s, rank, (rank + 1 + round) % s->nodes, round % 2 == 0 ? PASS_ON : ECHO, SIM_ANY,
             number_at(rank, thread, round));
}

const struct sim_case sim_case_rpc_forward =
    RPC_CASE(.name = "forward", .about = "another node replies, and any of them fails", .nodes = 3,
             .threads = 1, .body = forward_body, .after = calls_after);

/* ---- order, and a full ring ---- */

static void posts_body(void *state, uint32_t rank, uint32_t thread) {
    struct rpc_state *s = state;
    uint64_t message[8];
    (void)thread;
    if (rank != 0)
        return;
    for (uint64_t number = 0; number < 12; number++) {
        size_t bytes = make_message(message, number);
        int rc = number % 4 == 3
                     ? remo_rpc_call(s->services[0], 1, COUNT, message, bytes, NULL, 0, NULL, FOREVER)
                     : remo_rpc_post(s->services[0], 1, COUNT, message, bytes);
        if (rc != 0 && sim_excused(0, 1, rc))
            return;
        sim_require(rc == 0, "post or call: %d (%s)", rc, remo_last_error());
    }
    sim_require(s->expected[1][0] == 12, "a call ended before request %u", s->expected[1][0]);
}

const struct sim_case sim_case_rpc_posts =
    RPC_CASE(.name = "posts", .about = "posts and calls round a small ring start in order", .nodes = 2,
             .threads = 1, .body = posts_body);

/* ---- windows ---- */

/* More calls than there are slots, to a handler that replies to the call before. The last one is
 * cancelled. */
static void window_body(void *state, uint32_t rank, uint32_t thread) {
    enum { WINDOW = 4 };
    struct rpc_state *s = state;
    struct remo_rpc_op ops[WINDOW];
    uint64_t messages[WINDOW][8];
    (void)thread;
    if (rank != 0)
        return;
    memset(ops, 0, sizeof ops);
    for (uint32_t i = 0; i < WINDOW; i++) {
        ops[i] =
            (struct remo_rpc_op){.node = 1, .number = KEEP, .request = messages[i], .timeout_ns = FOREVER};
        ops[i].request_bytes = make_message(messages[i], i + 1);
        int rc = remo_rpc_start(s->services[0], &ops[i]);
        if (rc != 0) {
            for (uint32_t j = 0; j < i; j++)
                remo_rpc_cancel(&ops[j]);
            sim_require(sim_excused(0, 1, rc), "start: %d (%s)", rc, remo_last_error());
            return;
        }
    }
    int failed = 0;
    for (uint32_t i = 0; i < WINDOW - 1 && failed == 0; i++) {
        int rc = remo_rpc_wait(&ops[i]);
        failed = rc == 6 ? 0 : rc;
    }
    for (uint32_t i = 0; i < WINDOW; i++)
        remo_rpc_cancel(&ops[i]);
    sim_require(failed == 0 || sim_excused(0, 1, failed), "wait: %d (%s)", failed, remo_last_error());
}

const struct sim_case sim_case_rpc_window =
    RPC_CASE(.name = "window", .about = "more calls than slots; replies are deferred, a call is cancelled",
             .nodes = 2, .threads = 1, .body = window_body, .after = calls_after);

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
    RPC_CASE(.name = "circle", .about = "handlers that call each other in a circle end", .nodes = 2,
             .threads = 2, .body = circle_body);
