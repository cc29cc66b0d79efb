/* rpc.c - remote procedure calls: each handler runs at most once, in order, and each reply reaches its call.
 * Each call ends, also after failures, and also if windows and rings are full. */
#include <errno.h>
#include <remo/region.h>
#include <remo/rpc.h>
#include <string.h>

#include "fabric/access.h"
#include "objects/rpc/rpc.h"
#include "sim/case.h"

#define FOREVER REMO_FOREVER
#define NUMBERS 96u
#define ROUNDS 3u
#define WRITE_FAILED 8 /* status of the handler READ, after a fault */
#define GATE_NS 5000u  /* timeout of a call whose request waits for a task */

enum handler {
    ECHO,
    KEEP,
    PASS_ON,
    COUNT,
    CIRCLE,
    READ,
    HANDLERS,
    LONG_CIRCLE = HANDLERS,
    GATE,
    OPEN,
    LATE,
    HOLD,
    RELEASE
};

#define FORGED 80u /* numbers from here on are those of a faulty node */

struct rpc_state {
    struct remo_rpc *services[SIM_NODES_MAX];
    struct remo_region
        *regions[SIM_NODES_MAX]; /* of the case `order`: a word for each caller, and for each number */
    struct agent {
        struct rpc_state *state;
        uint32_t rank;
        struct remo_rpc_deferred kept;
        bool has_kept;
        struct remo_rpc_deferred held[REMO__RPC_RETIRED_MAX];
        uint32_t held_count;
    } agents[SIM_NODES_MAX];
    uint32_t nodes;
    uint32_t runs[NUMBERS];                               /* of the handler of each number */
    uint32_t expected[SIM_NODES_MAX][SIM_NODES_MAX];      /* next number at a node, of each caller */
    struct remo_rpc_op nested[SIM_NODES_MAX][2 * ROUNDS]; /* calls of handlers */
    struct remo_rpc_deferred waiting[SIM_NODES_MAX][2 * ROUNDS];
    uint32_t nested_count[SIM_NODES_MAX];
    bool is_closing[SIM_NODES_MAX], is_closed[SIM_NODES_MAX];
    bool is_open;                               /* of the cases with a gate */
    uint32_t stage, forged_slot, forged_serial; /* of the case `forged` */
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

static void count_run(const struct agent *agent, const struct remo_rpc_request *request, uint64_t number) {
    struct rpc_state *s = agent->state;
    const struct remo_channel *channel = remo_rpc_channel(s->services[agent->rank]);
    sim_require(remo_channel_peer(channel, request->node) == REMO_CHANNEL_CONNECTED
                    || s->is_closing[request->node],
                "executed a request of node %u, which is cut off", request->node);
    s->runs[number % NUMBERS]++;
    sim_require(s->runs[number % NUMBERS] == 1, "the handler of call %llu runs twice",
                (unsigned long long)number);
}

static int echo(void *ctx, const struct remo_rpc_request *request) {
    struct agent *agent = ctx;
    count_run(agent, request, number_of(request));
    return remo_rpc_reply(request, 5, request->data, request->bytes);
}

/* Reply to the request that was kept before, and keep this one. */
static int keep(void *ctx, const struct remo_rpc_request *request) {
    struct agent *agent = ctx;
    struct remo_rpc_deferred last = agent->kept;
    count_run(agent, request, number_of(request));
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

/* Requests of one thread start in order, and none is lost, unless an operation of its caller failed. */
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

static uint64_t word_of(const struct rpc_state *s, uint32_t rank, uint32_t of) {
    return remo__load((const char *)remo_region_local(s->regions[rank]) + 8 * of);
}

/* The handler sees what its caller has written before, and the caller sees what the handler has written. */
static int read_word(void *ctx, const struct remo_rpc_request *request) {
    const struct agent *agent = ctx;
    const struct rpc_state *s = agent->state;
    uint64_t number = number_of(request), word = word_of(s, agent->rank, request->node);
    sim_require(word >= number || sim_any_hurt(), "the handler of call %llu reads the word %llu",
                (unsigned long long)number, (unsigned long long)word);
    int rc = remo_region_write(s->regions[agent->rank], request->node, 8 * (SIM_NODES_MAX + number), &number,
                               sizeof number, 0, NULL);
    return rc == 0 ? 7 : WRITE_FAILED;
}

static void open_rpc(void *state, struct remo_node *node, uint32_t rank) {
    static const remo_rpc_handler_fn functions[HANDLERS] = {echo, keep, pass_on, count, circle, read_word};
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
    s->services[rank] = NULL;
    s->is_closed[rank] = true;
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
    if (rc == -ENOMEM && op.fate == REMO_RPC_DONE)
        return; /* the handler could not queue its reply */
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

/* Node 1 serves between other work, at first. While callers expect that, they wake its service thread late,
 * but not never. */
static void near_body(void *state, uint32_t rank, uint32_t thread) {
    struct rpc_state *s = state;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint64_t message[8], number = number_at(rank, thread, round);
        size_t bytes = make_message(message, number);
        if (rank == 1) {
            (void)remo_rpc_serve(s->services[1], 0);
            continue;
        }
        int rc = remo_rpc_call(s->services[rank], 1, ECHO, message, bytes, NULL, 0, NULL, FOREVER);
        sim_require(rc == 5 || rc == -EMSGSIZE || sim_excused(rank, 1, rc), "call: %d (%s)", rc,
                    remo_last_error());
    }
}

const struct sim_case sim_case_rpc_near =
    RPC_CASE(.name = "near", .about = "a thread that serves between other work", .nodes = 2, .threads = 1,
             .body = near_body, .after = calls_after);

/* The same for calls that are started, and owe their wake-ups until the thread waits for both, tests one, or
 * cancels it. */
static void near_started_body(void *state, uint32_t rank, uint32_t thread) {
    struct rpc_state *s = state;
    uint64_t messages[4][8];
    struct remo_rpc_op ops[4], *both[2] = {&ops[0], &ops[1]};
    int rc = 0, starts[4] = {0};
    (void)thread;
    for (uint32_t round = 0; rank == 1 && round < ROUNDS; round++)
        (void)remo_rpc_serve(s->services[1], 0);
    if (rank != 0)
        return;
    for (uint32_t i = 0; i < 4; i++) {
        ops[i] = (struct remo_rpc_op){
            .node = 1, .number = ECHO, .request = messages[i], .timeout_ns = FOREVER, .waits = true};
        ops[i].request_bytes = make_message(messages[i], number_at(0, 0, i));
        starts[i] = remo_rpc_start(s->services[0], &ops[i]);
        if (i == 1)
            rc = starts[0] == 0 && starts[1] == 0 ? remo_rpc_wait_all(both, 2) : 0;
        while (i == 2 && starts[2] == 0 && (rc = remo_rpc_test(&ops[2])) == -EINPROGRESS)
            (void)remo_rpc_serve(s->services[0], GATE_NS);
        sim_require(rc == 0 || rc == 5 || sim_excused(0, 1, rc), "wait: %d (%s)", rc, remo_last_error());
    }
    for (uint32_t i = 0; i < 4; i++) {
        remo_rpc_cancel(&ops[i]);
        sim_require(starts[i] == 0 || sim_excused(0, 1, starts[i]), "start: %d", starts[i]);
    }
    while (starts[3] == 0 && ops[3].fate == REMO_RPC_UNKNOWN && s->runs[number_at(0, 0, 3)] == 0
           && !sim_out(0) && !sim_out(1) && !sim_any_hurt())
        (void)remo_rpc_serve(s->services[0], GATE_NS); /* a cancelled request is executed, too */
}

const struct sim_case sim_case_rpc_near_started =
    RPC_CASE(.name = "near_started", .about = "calls that are started, to a thread that serves between work",
             .nodes = 2, .threads = 1, .body = near_started_body, .after = calls_after);

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
        size_t bytes = make_message(message, number);
        if (number % 8 == 7) {
            rc = remo_rpc_call(s->services[0], 1, COUNT, message, bytes, NULL, 0, NULL, FOREVER);
        } else if (number % 8 == 5) {
            started.request_bytes = make_message(started_message, number);
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
        calls_body(state, rank, thread);
        return;
    }
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
             .nodes = 2, .threads = 1, .body = window_body, .after = calls_after);

/* A call is cancelled, and the next one goes to another node: the late reply must not reach it. */
static void cancel_body(void *state, uint32_t rank, uint32_t thread) {
    struct rpc_state *s = state;
    uint64_t message[8];
    struct remo_rpc_op op = {.node = (rank + 1) % s->nodes,
                             .number = ECHO,
                             .request = message,
                             .request_bytes = make_message(message, number_at(rank, thread, 0)),
                             .timeout_ns = FOREVER};
    int rc = remo_rpc_start(s->services[rank], &op);
    remo_rpc_cancel(&op);
    sim_require(rc == 0 || sim_excused(rank, op.node, rc), "start: %d (%s)", rc, remo_last_error());
    call(s, rank, (rank + 2) % s->nodes, ECHO, SIM_ANY, number_at(rank, thread, 1));
}

const struct sim_case sim_case_rpc_cancel =
    RPC_CASE(.name = "cancel", .about = "a call follows a cancelled one, to another node", .nodes = 3,
             .threads = 1, .body = cancel_body, .after = calls_after);

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

/* ---- LONG handlers ---- */

/* Call the same handler at the next node, with the next number, and wait. */
static int long_circle(void *ctx, const struct remo_rpc_request *request) {
    struct agent *agent = ctx;
    struct rpc_state *s = agent->state;
    uint64_t message[8], number = number_of(request);
    count_run(agent, request, number);
    size_t bytes = make_message(message, number + 1);
    int rc = remo_rpc_call(s->services[agent->rank], (agent->rank + 1) % s->nodes, LONG_CIRCLE, message,
                           bytes, NULL, 0, NULL, FOREVER);
    sim_require(number_of(request) == number, "a request changes while its handler waits");
    sim_require(!s->is_closed[agent->rank], "a handler runs after the close of its service");
    return rc == -ELOOP ? 0 : rc < 0 ? rc : rc + 1;
}

static void open_long(void *state, struct remo_node *node, uint32_t rank) {
    struct rpc_state *s = state;
    open_rpc(state, node, rank);
    const struct remo_rpc_handler handler = {
        .number = LONG_CIRCLE, .run = long_circle, .ctx = &s->agents[rank], .kind = REMO_RPC_LONG};
    sim_opened(remo_rpc_handle(s->services[rank], &handler), "handle");
}

/* LONG handlers of all nodes call each other, with one task for each depth. Thread 1 cancels its call, so the
 * service may close while the handler waits, or before it starts. */
static void long_body(void *state, uint32_t rank, uint32_t thread) {
    struct rpc_state *s = state;
    uint64_t message[8], number = 64 + (2 * rank + thread) * REMO_RPC_DEPTH_MAX;
    struct remo_rpc_op op = {.node = (rank + 1) % s->nodes,
                             .number = LONG_CIRCLE,
                             .request = message,
                             .request_bytes = make_message(message, number),
                             .timeout_ns = FOREVER};
    int rc = remo_rpc_start(s->services[rank], &op);
    if (rc == 0 && thread == 1) {
        for (uint32_t round = 0; round < ROUNDS; round++)
            (void)remo_rpc_serve(s->services[rank], 1); /* senders do not wake a node that polls */
        remo_rpc_cancel(&op);
    } else if (rc == 0) {
        rc = remo_rpc_wait(&op);
    }
    sim_require(op.fate != REMO_RPC_NOT_SENT || s->runs[number] == 0,
                "call %llu was not sent, but a handler has run", (unsigned long long)number);
    bool is_refused = rc < 0 && op.fate == REMO_RPC_DONE && sim_any_hurt(); /* a handler could not send */
    if (rc == -ENOSYS || is_refused || (rc < 0 && sim_excused(rank, SIM_ANY, rc)))
        return; /* the handler is registered after the open */
    sim_require(rc == (thread == 1 ? 0 : (int)REMO_RPC_DEPTH_MAX - 1), "circle: %d (%s)", rc,
                remo_last_error());
    call(s, rank, op.node, ECHO, op.node, number_at(rank, thread, 0) + 20);
}

const struct sim_case sim_case_rpc_long = {
    .object = "rpc",
    .name = "long",
    .about = "LONG handlers that call each other in a cycle end; some callers cancel",
    .nodes = 2,
    .threads = 2,
    .state_bytes = sizeof(struct rpc_state),
    .open = open_long,
    .close = close_rpc,
    .body = long_body,
    .after = calls_after};

/* Node 0 cancels calls whose LONG handlers call back. Its retired slots of depth 1 must not delay the calls
 * of greater depths for which these handlers wait: otherwise no reply arrives, and the last call never ends.
 */
#define CANCELLED REMO__RPC_RETIRED_MAX

static void retired_body(void *state, uint32_t rank, uint32_t thread) {
    struct rpc_state *s = state;
    uint64_t messages[CANCELLED][8];
    struct remo_rpc_op ops[CANCELLED] = {0};
    (void)thread;
    if (rank != 0)
        return;
    for (uint32_t i = 0; i < CANCELLED; i++) {
        ops[i] = (struct remo_rpc_op){.node = 1,
                                      .number = LONG_CIRCLE,
                                      .request = messages[i],
                                      .request_bytes = make_message(messages[i], 64 + i * REMO_RPC_DEPTH_MAX),
                                      .timeout_ns = FOREVER};
        int rc = remo_rpc_start(s->services[0], &ops[i]);
        sim_require(rc == 0 || sim_excused(0, 1, rc), "start: %d (%s)", rc, remo_last_error());
    }
    for (uint32_t i = 0; i < CANCELLED; i++)
        remo_rpc_cancel(&ops[i]);
    call(s, 0, 1, ECHO, 1, number_at(0, 0, 0) + 20);
}

const struct sim_case sim_case_rpc_retired = {.object = "rpc",
                                              .name = "retired",
                                              .about = "a call after cancelled ones whose handlers call back",
                                              .nodes = 2,
                                              .threads = 1,
                                              .state_bytes = sizeof(struct rpc_state),
                                              .open = open_long,
                                              .close = close_rpc,
                                              .body = retired_body,
                                              .after = calls_after};

/* ---- posts that overtake calls; one of several calls ---- */

static int hold(void *ctx, const struct remo_rpc_request *request) {
    struct agent *agent = ctx;
    count_run(agent, request, number_of(request));
    return remo_rpc_defer(request, &agent->held[agent->held_count++]);
}

/* A post: reply to the requests that were held. */
static int release(void *ctx, const struct remo_rpc_request *request) {
    struct agent *agent = ctx;
    (void)request;
    while (agent->held_count > 0)
        (void)remo_rpc_reply_later(agent->state->services[agent->rank], agent->held[--agent->held_count], 6,
                                   NULL, 0);
    return 0;
}

static void open_release(void *state, struct remo_node *node, uint32_t rank) {
    struct rpc_state *s = state;
    const struct remo_rpc_handler handlers[] = {
        {.number = HOLD, .run = hold, .ctx = &s->agents[rank]},
        {.number = RELEASE, .run = release, .ctx = &s->agents[rank]},
    };
    open_rpc(state, node, rank);
    for (uint32_t i = 0; i < 2; i++)
        sim_opened(remo_rpc_handle(s->services[rank], &handlers[i]), "handle");
}

static bool start_forever(struct rpc_state *s, struct remo_rpc_op *op, uint32_t to, uint32_t number,
                          uint64_t *message, uint64_t value) {
    *op = (struct remo_rpc_op){.node = to,
                               .number = number,
                               .request = message,
                               .request_bytes = make_message(message, value),
                               .timeout_ns = FOREVER};
    int rc = remo_rpc_start(s->services[0], op);
    sim_require(rc == 0 || sim_excused(0, to, rc), "start: %d (%s)", rc, remo_last_error());
    return rc == 0;
}

static bool post_release(struct rpc_state *s) {
    int rc = remo_rpc_post_queued(s->services[0], 1, RELEASE, NULL, 0);
    sim_require(rc == 0 || sim_excused(0, 1, rc), "post: %d (%s)", rc, remo_last_error());
    return rc == 0;
}

/* Node 1 holds the requests of calls that are cancelled. So the next call is queued, and depends on a post
 * that comes after it. */
static void overtake_body(void *state, uint32_t rank, uint32_t thread) {
    struct rpc_state *s = state;
    uint64_t messages[CANCELLED + 1][8];
    struct remo_rpc_op held[CANCELLED], queued = {0};
    uint32_t count = 0;
    (void)thread;
    while (rank == 0 && count < CANCELLED
           && start_forever(s, &held[count], 1, HOLD, messages[count], number_at(0, 0, count)))
        count++;
    for (uint32_t i = 0; i < count; i++)
        remo_rpc_cancel(&held[i]);
    if (count < CANCELLED || !start_forever(s, &queued, 1, ECHO, messages[count], number_at(0, 0, count)))
        return;
    bool is_posted = post_release(s);
    int rc = is_posted ? remo_rpc_wait(&queued) : 0;
    sim_require(!is_posted || rc == 5 || sim_excused(0, 1, rc), "wait: %d (%s)", rc, remo_last_error());
    remo_rpc_cancel(&queued);
}

const struct sim_case sim_case_rpc_overtake = {.object = "rpc",
                                               .name = "overtake",
                                               .about = "a post that overtakes a call, which depends on it",
                                               .nodes = 2,
                                               .threads = 1,
                                               .state_bytes = sizeof(struct rpc_state),
                                               .open = open_release,
                                               .close = close_rpc,
                                               .body = overtake_body,
                                               .after = calls_after};

/* Judge a call that has ended. */
static void judge_ended(struct remo_rpc_op *op, int expected) {
    int status = remo_rpc_wait(op);
    sim_require(status == expected || sim_excused(0, op->node, status), "call to node %u: %d (%s)", op->node,
                status, remo_last_error());
}

/* Node 1 holds the first call until node 2 has replied to the second one. */
static void any_body(void *state, uint32_t rank, uint32_t thread) {
    struct rpc_state *s = state;
    uint64_t messages[2][8];
    struct remo_rpc_op ops[2] = {0}, *calls[2] = {&ops[0], &ops[1]};
    (void)thread;
    if (rank == 0 && start_forever(s, &ops[0], 1, HOLD, messages[0], number_at(0, 0, 0))
        && start_forever(s, &ops[1], 2, ECHO, messages[1], number_at(0, 0, 1))) {
        int first = remo_rpc_wait_any(calls, 2, FOREVER);
        sim_require(first == 0 || first == 1, "wait: %d (%s)", first, remo_last_error());
        judge_ended(calls[first], first == 1 ? 5 : 0); /* node 1 replies later, unless it fails */
        if (first == 1 && post_release(s)) {
            int rc = remo_rpc_wait_any(calls, 1, FOREVER);
            sim_require(rc == 0, "second wait: %d (%s)", rc, remo_last_error());
            judge_ended(calls[0], 6);
        }
    }
    remo_rpc_cancel(&ops[0]);
    remo_rpc_cancel(&ops[1]);
}

const struct sim_case sim_case_rpc_any = {.object = "rpc",
                                          .name = "any",
                                          .about = "a node waits for one of two calls",
                                          .nodes = 3,
                                          .threads = 1,
                                          .state_bytes = sizeof(struct rpc_state),
                                          .open = open_release,
                                          .close = close_rpc,
                                          .body = any_body,
                                          .after = calls_after};

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
    open_rpc(state, node, rank);
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
                                           .close = close_rpc,
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
                                             .close = close_rpc,
                                             .body = pieces_body};

/* Each node closes its service while LONG handlers of the other may run in it, or wait for a task. */
static void long_close_body(void *state, uint32_t rank, uint32_t thread) {
    struct rpc_state *s = state;
    uint64_t message[8], number = 64 + rank * REMO_RPC_DEPTH_MAX;
    struct remo_rpc_op op = {.node = (rank + 1) % s->nodes,
                             .number = LONG_CIRCLE,
                             .request = message,
                             .request_bytes = make_message(message, number),
                             .timeout_ns = FOREVER};
    (void)thread;
    int rc = remo_rpc_start(s->services[rank], &op);
    if (rank == 1 && rc == 0)
        rc = remo_rpc_wait(&op);
    remo_rpc_cancel(&op);
    sim_require(op.fate != REMO_RPC_NOT_SENT || s->runs[number] == 0,
                "call %llu was not sent, but a handler has run", (unsigned long long)number);
    bool is_refused = op.fate == REMO_RPC_DONE && sim_any_hurt(); /* a handler could not send its call */
    sim_require(rc >= 0 || rc == -ENOTCONN || is_refused || sim_excused(rank, SIM_ANY, rc), "circle: %d (%s)",
                rc, remo_last_error());
    s->is_closing[rank] = true;
    close_rpc(state, rank);
}

const struct sim_case sim_case_rpc_long_close = {.object = "rpc",
                                                 .name = "long_close",
                                                 .about = "services close while LONG handlers run",
                                                 .nodes = 2,
                                                 .threads = 1,
                                                 .state_bytes = sizeof(struct rpc_state),
                                                 .open = open_long,
                                                 .close = close_rpc,
                                                 .body = long_close_body};

/* LONG: wait for the reply to a deferred request. */
static int gate(void *ctx, const struct remo_rpc_request *request) {
    struct agent *agent = ctx;
    uint64_t message[8], number = number_of(request);
    if (number >= FORGED)
        return 5;
    count_run(agent, request, number);
    if (agent->state->is_open)
        return 5;
    size_t bytes = make_message(message, number + 2);
    return remo_rpc_call(agent->state->services[agent->rank], agent->rank, KEEP, message, bytes, NULL, 0,
                         NULL, FOREVER);
}

static int open_gate(void *ctx, const struct remo_rpc_request *request) {
    struct agent *agent = ctx;
    (void)request;
    agent->state->is_open = true;
    int rc = remo_rpc_reply_later(agent->state->services[agent->rank], agent->kept, 5, NULL, 0);
    return rc == 0 ? 5 : rc;
}

static void open_expired(void *state, struct remo_node *node, uint32_t rank) {
    struct rpc_state *s = state;
    open_rpc(state, node, rank);
    const struct remo_rpc_handler handlers[] = {
        {.number = GATE, .run = gate, .ctx = &s->agents[rank], .kind = REMO_RPC_LONG},
        {.number = OPEN, .run = open_gate, .ctx = &s->agents[rank]}};
    for (uint32_t i = 0; i < 2; i++)
        sim_opened(remo_rpc_handle(s->services[rank], &handlers[i]), "handle");
}

/* A LONG handler waits until node 0 calls OPEN. This call has no free slot: one belongs to the call of the
 * handler, one to a call whose request waits for a task, and the last one to a call that has timed out, until
 * the server refuses its request. */
static void long_expired_body(void *state, uint32_t rank, uint32_t thread) {
    struct rpc_state *s = state;
    enum { CALLS = 3 }; /* all slots of depth 1 */
    static_assert(REMO__RPC_SLOTS - (REMO_RPC_DEPTH_MAX - 1) * REMO__RPC_SLOTS_OF_DEPTH == CALLS, "slots");
    uint64_t messages[CALLS][8];
    struct remo_rpc_op ops[CALLS] = {
        {.timeout_ns = FOREVER}, {.timeout_ns = FOREVER}, {.timeout_ns = GATE_NS}};
    int rc = 0;
    (void)thread;
    while (rank == 1 && !s->is_open && !sim_out(0)) /* no message wakes a node that polls */
        (void)remo_rpc_serve(s->services[1], GATE_NS);
    if (rank != 0)
        return;
    for (uint32_t i = 0; i < CALLS; i++) {
        ops[i].node = 1;
        ops[i].number = GATE;
        ops[i].request = messages[i];
        ops[i].request_bytes = make_message(messages[i], 64 + 4 * i); /* the handler's call has 2 more */
    }
    rc = remo_rpc_start(s->services[0], &ops[0]);
    while (rc == 0 && !s->agents[1].has_kept && (rc = remo_rpc_test(&ops[0])) == -EINPROGRESS)
        rc = remo_rpc_serve(s->services[0], GATE_NS);
    for (uint32_t i = 1; i < CALLS && rc == 0; i++)
        rc = remo_rpc_start(s->services[0], &ops[i]);
    if (rc == 0)
        rc = remo_rpc_wait(&ops[2]);
    sim_require((s->runs[68] == 0 && s->runs[72] == 0) || sim_out(0),
                "a LONG request starts, although all tasks wait");
    if (rc == -ETIMEDOUT)
        rc = remo_rpc_call(s->services[0], 1, OPEN, NULL, 0, NULL, 0, NULL, FOREVER);
    for (uint32_t i = 0; i < 2 && rc == 5; i++)
        rc = remo_rpc_wait(&ops[i]);
    for (uint32_t i = 0; i < CALLS; i++)
        remo_rpc_cancel(&ops[i]);
    s->is_open = true;
    bool is_refused =
        ops[0].fate == REMO_RPC_DONE && sim_any_hurt(); /* the handler could not send its call */
    sim_require(rc == 5 || rc == -ENOSYS || is_refused || sim_excused(0, 1, rc), "call: %d (%s)", rc,
                remo_last_error());
}

const struct sim_case sim_case_rpc_long_expired = {
    .object = "rpc",
    .name = "long_expired",
    .about = "a LONG request is refused at its deadline, while all tasks wait",
    .nodes = 2,
    .threads = 1,
    .state_bytes = sizeof(struct rpc_state),
    .open = open_expired,
    .close = close_rpc,
    .body = long_expired_body};

/* A service closes while its LONG handler waits for the reply to one of its deferred requests. */
static void long_abandon_body(void *state, uint32_t rank, uint32_t thread) {
    struct rpc_state *s = state;
    uint64_t message[8];
    (void)thread;
    if (rank == 0) {
        size_t bytes = make_message(message, 64);
        int rc = remo_rpc_call(s->services[0], 1, GATE, message, bytes, NULL, 0, NULL, FOREVER);
        s->is_open = true;
        sim_require(rc == -ENOTCONN || rc == -ENOSYS || (rc < 0 && sim_any_hurt()) || sim_excused(0, 1, rc),
                    "call: %d (%s)", rc, remo_last_error());
        return;
    }
    while (!s->agents[1].has_kept && !s->is_open && !sim_out(0))
        (void)remo_rpc_serve(s->services[1], GATE_NS);
    s->is_closing[1] = true;
    close_rpc(state, 1);
}

const struct sim_case sim_case_rpc_long_abandon = {
    .object = "rpc",
    .name = "long_abandon",
    .about = "a service closes while its LONG handler waits for a deferred reply",
    .nodes = 2,
    .threads = 1,
    .state_bytes = sizeof(struct rpc_state),
    .open = open_expired,
    .close = close_rpc,
    .body = long_abandon_body};

/* ---- a faulty node ---- */

/* Send a request in the name of node 0 to node 1. */
static void forge(struct rpc_state *s, uint32_t number, uint32_t hops, uint32_t slot, uint32_t serial) {
    struct remo_rpc *rpc = s->services[2];
    uint64_t message[8];
    size_t bytes = make_message(message, FORGED);
    const struct remo__rpc_words words = {.head = remo__rpc_head_make(bytes, number, 1, hops, 0),
                                          .call = remo__rpc_call_make(0, slot, serial),
                                          .rest = remo__rpc_rest(rpc, 1, FOREVER)};
    (void)remo__rpc_send_message(remo__thread(rpc->node), rpc, 1, words, message, false);
}

/* Wait until another node has reached the stage. */
static bool await_stage(struct rpc_state *s, uint32_t rank, uint32_t stage) {
    while (s->stage < stage && !sim_out(0) && !sim_out(1) && !sim_out(2) && !sim_any_hurt())
        (void)remo_rpc_serve(s->services[rank], GATE_NS);
    return s->stage >= stage;
}

/* The first call waits in its handler. The second one needs the only task too. */
static void victim(struct rpc_state *s) {
    uint64_t messages[2][8];
    struct remo_rpc_op ops[2] = {{.node = 1, .number = GATE, .request = messages[0], .timeout_ns = FOREVER},
                                 {.node = 1, .number = GATE, .request = messages[1], .timeout_ns = FOREVER}};
    const struct remo__rpc_transport *transport = s->services[0]->transport;
    for (uint32_t i = 0; i < 2; i++)
        ops[i].request_bytes = make_message(messages[i], 64 + i);
    int rc = remo_rpc_start(s->services[0], &ops[0]);
    while (rc == 0 && !s->agents[1].has_kept && (rc = remo_rpc_test(&ops[0])) == -EINPROGRESS)
        rc = remo_rpc_serve(s->services[0], GATE_NS);
    if (rc == 0) {
        s->forged_slot =
            (uint32_t)(atomic_load(&transport->free_slots[0]) & 0xffff) - 1; /* of the next call */
        s->forged_serial = atomic_load(&transport->slot[s->forged_slot].serial) + 1;
        s->stage = 1;
        bool is_forged = await_stage(s, 0, 2);
        rc = remo_rpc_start(s->services[0], &ops[1]);
        s->stage = 3;
        if (is_forged && rc == 0 && (rc = remo_rpc_wait(&ops[1])) == 5)
            rc = remo_rpc_wait(&ops[0]);
        sim_require(!is_forged || rc == 5 || sim_any_hurt() || sim_excused(0, SIM_ANY, rc), "call: %d (%s)",
                    rc, remo_last_error());
    }
    sim_require(rc != 5 || s->runs[65] == 1, "a forged request takes the place of the genuine one");
    for (uint32_t i = 0; i < 2; i++)
        remo_rpc_cancel(&ops[i]);
    s->stage = 9;
}

/* Node 2 occupies the place of a LONG request of node 0 before it arrives, and again afterwards. */
static void forged_body(void *state, uint32_t rank, uint32_t thread) {
    struct rpc_state *s = state;
    (void)thread;
    if (rank == 0)
        victim(s);
    if (rank != 2 || !await_stage(s, 2, 1) || s->stage == 9)
        return;
    forge(s, GATE, 1, s->forged_slot, 1000);
    call(s, 2, 1, ECHO, SIM_ANY, number_at(2, 0, 0)); /* all have arrived before */
    s->stage = 2;
    if (!await_stage(s, 2, 3) || s->stage == 9)
        return;
    forge(s, GATE, 1, s->forged_slot, s->forged_serial);
    forge(s, GATE, 1, s->forged_slot, 1000);
    (void)remo_rpc_call(s->services[2], 1, OPEN, NULL, 0, NULL, 0, NULL, FOREVER);
}

const struct sim_case sim_case_rpc_forged = {
    .object = "rpc",
    .name = "forged",
    .about = "a node sends LONG requests in the name of another one, whose calls end nevertheless",
    .nodes = 3,
    .threads = 1,
    .state_bytes = sizeof(struct rpc_state),
    .open = open_expired,
    .close = close_rpc,
    .body = forged_body,
    .has_own_fault = true};

/* Node 2 names node 0 as the caller of a request that was not forwarded. Its ring is broken. */
static void named_body(void *state, uint32_t rank, uint32_t thread) {
    struct rpc_state *s = state;
    (void)thread;
    if (rank == 2) {
        forge(s, ECHO, 0, 0, 1000);
        int rc = remo_rpc_call(s->services[2], 1, OPEN, NULL, 0, NULL, 0, NULL, GATE_NS);
        sim_require(!s->is_open && s->runs[FORGED] == 0, "node 1 serves a faulty node: %d", rc);
    }
    if (rank == 0)
        call(s, 0, 1, ECHO, 1, number_at(0, 0, 0));
}

const struct sim_case sim_case_rpc_named = {.object = "rpc",
                                            .name = "named",
                                            .about =
                                                "a node names another one as the caller of its own request",
                                            .nodes = 3,
                                            .threads = 1,
                                            .state_bytes = sizeof(struct rpc_state),
                                            .open = open_expired,
                                            .close = close_rpc,
                                            .body = named_body,
                                            .has_own_fault = true};

/* ---- order of messages and writes ---- */

static void open_order(void *state, struct remo_node *node, uint32_t rank) {
    struct rpc_state *s = state;
    open_rpc(state, node, rank);
    sim_opened(remo_region_open(remo_node_root(node), "words", 16 * SIM_NODES_MAX, NULL, &s->regions[rank]),
               "open");
    sim_opened(remo_channel_wait(remo_region_channel(s->regions[rank]), FOREVER), "wait");
}

static void close_order(void *state, uint32_t rank) {
    struct rpc_state *s = state;
    close_rpc(state, rank); /* its handlers use the region */
    remo_region_close(s->regions[rank]);
}

static void order_body(void *state, uint32_t rank, uint32_t thread) {
    struct rpc_state *s = state;
    uint32_t to = (rank + 1) % s->nodes;
    uint64_t message[8];
    (void)thread;
    for (uint64_t number = 1; number <= 4; number++) {
        size_t bytes = make_message(message, number);
        int rc = remo_region_write(s->regions[rank], to, 8 * rank, &number, sizeof number, 0, NULL);
        bool posts = number % 2 != 0;
        if (rc == 0)
            rc = posts ? remo_rpc_post(s->services[rank], to, READ, message, bytes)
                       : remo_rpc_call(s->services[rank], to, READ, message, bytes, NULL, 0, NULL, FOREVER);
        if (rc == WRITE_FAILED || (rc < 0 && sim_excused(rank, to, rc)))
            return;
        sim_require(rc == (posts ? 0 : 7), "write, post or call: %d (%s)", rc, remo_last_error());
        uint64_t word = word_of(s, rank, SIM_NODES_MAX + (uint32_t)number);
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
