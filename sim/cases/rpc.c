/* rpc.c - remote procedure calls: each handler runs at most once, in order, and each reply reaches its call.
 * Each call ends, also after failures, and also if windows and rings are full. */
#include "sim/cases/rpc.h"

#include "fabric/access.h"

size_t sim_rpc_make(uint64_t *message, uint64_t number) {
    size_t words = 1 + number % 6;
    for (size_t i = 0; i < words; i++)
        message[i] = number + i * 0x100;
    return words * 8;
}

static void check_message(const void *data, size_t bytes, const char *what) {
    uint64_t message[8], expected[8];
    sim_require(bytes >= 8 && bytes <= sizeof message, "%s of %zu bytes", what, bytes);
    memcpy(message, data, bytes);
    sim_require(sim_rpc_make(expected, message[0]) == bytes && memcmp(message, expected, bytes) == 0,
                "%s is damaged", what);
}

uint64_t sim_rpc_number(const struct remo_rpc_request *request) {
    uint64_t number;
    check_message(request->data, request->bytes, "a request");
    memcpy(&number, request->data, 8);
    return number;
}

/* ---- handlers ---- */

void sim_rpc_count_run(const struct rpc_agent *agent, const struct remo_rpc_request *request,
                       uint64_t number) {
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
    struct rpc_agent *agent = ctx;
    sim_rpc_count_run(agent, request, sim_rpc_number(request));
    return remo_rpc_reply(request, 5, request->data, request->bytes);
}

/* Reply to the request that was kept before, and keep this one. */
static int keep(void *ctx, const struct remo_rpc_request *request) {
    struct rpc_agent *agent = ctx;
    struct remo_rpc_deferred last = agent->kept;
    sim_rpc_count_run(agent, request, sim_rpc_number(request));
    int rc = remo_rpc_defer(request, &agent->kept);
    if (agent->has_kept)
        (void)remo_rpc_reply_later(agent->state->services[agent->rank], last, 6, NULL, 0);
    agent->has_kept = true;
    return rc;
}

static int pass_on(void *ctx, const struct remo_rpc_request *request) {
    const struct rpc_agent *agent = ctx;
    uint32_t next = (agent->rank + 1) % agent->state->nodes;
    (void)sim_rpc_number(request);
    return remo_rpc_forward(request, next, ECHO, request->data, request->bytes);
}

/* Requests of one thread start in order, and none is lost, unless an operation of its caller failed. */
static int count(void *ctx, const struct remo_rpc_request *request) {
    struct rpc_agent *agent = ctx;
    uint32_t *expected = &agent->state->expected[agent->rank][request->node];
    uint64_t number = sim_rpc_number(request);
    sim_require(number >= *expected, "request %llu starts after request %u", (unsigned long long)number,
                *expected);
    sim_require(number == *expected || sim_hurt(request->node), "request %u is lost", *expected);
    *expected = (uint32_t)number + 1;
    return 0;
}

static void circle_done(struct remo_rpc_op *op) {
    struct rpc_agent *agent = op->ctx;
    struct rpc_state *s = agent->state;
    size_t index = (size_t)(op - s->nested[agent->rank]);
    (void)remo_rpc_reply_later(s->services[agent->rank], s->waiting[agent->rank][index],
                               op->status < 0 ? op->status : op->status + 1, NULL, 0);
}

static int circle(void *ctx, const struct remo_rpc_request *request) {
    struct rpc_agent *agent = ctx;
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

uint64_t sim_rpc_word(const struct rpc_state *s, uint32_t rank, uint32_t of) {
    return remo__load((const char *)remo_region_local(s->regions[rank]) + 8 * of);
}

/* The handler sees what its caller has written before, and the caller sees what the handler has written. */
static int read_word(void *ctx, const struct remo_rpc_request *request) {
    const struct rpc_agent *agent = ctx;
    const struct rpc_state *s = agent->state;
    uint64_t number = sim_rpc_number(request), word = sim_rpc_word(s, agent->rank, request->node);
    sim_require(word >= number || sim_any_hurt(), "the handler of call %llu reads the word %llu",
                (unsigned long long)number, (unsigned long long)word);
    int rc = remo_region_write(s->regions[agent->rank], request->node, 8 * (SIM_NODES_MAX + number), &number,
                               sizeof number, 0, NULL);
    return rc == 0 ? 7 : WRITE_FAILED;
}

/* Open the service of a node, with the handlers before HANDLERS. */
static void start_service(struct rpc_state *s, struct remo_node *node, uint32_t rank) {
    static const remo_rpc_handler_fn functions[HANDLERS] = {echo, keep, pass_on, count, circle, read_word};
    struct remo_rpc_handler handlers[HANDLERS];
    struct remo_rpc_options options = {.handlers = handlers, .handler_count = HANDLERS};
    s->nodes = remo_node_size(node);
    s->agents[rank] = (struct rpc_agent){.state = s, .rank = rank};
    for (uint32_t i = 0; i < HANDLERS; i++)
        handlers[i] = (struct remo_rpc_handler){.number = i, .run = functions[i], .ctx = &s->agents[rank]};
    sim_opened(remo_rpc_open(remo_node_root(node), "service", &options, &s->services[rank]), "open");
}

void sim_rpc_open(void *state, struct remo_node *node, uint32_t rank) {
    struct rpc_state *s = state;
    start_service(s, node, rank);
    sim_opened(remo_channel_wait(remo_rpc_channel(s->services[rank]), FOREVER), "wait");
}

void sim_rpc_close(void *state, uint32_t rank) {
    struct rpc_state *s = state;
    remo_rpc_close(s->services[rank]);
    s->services[rank] = NULL;
    s->is_closed[rank] = true;
}

/* ---- one call at a time ---- */

void sim_rpc_call(struct rpc_state *s, uint32_t rank, uint32_t to, enum rpc_handler handler,
                  uint32_t depends_on, uint64_t number) {
    uint64_t message[8], reply[8];
    size_t bytes = sim_rpc_make(message, number);
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

uint64_t sim_rpc_number_at(uint32_t rank, uint32_t thread, uint32_t round) {
    return rank * 20 + thread * 8 + round + 1;
}

void sim_rpc_calls_body(void *state, uint32_t rank, uint32_t thread) {
    struct rpc_state *s = state;
    for (uint32_t round = 0; round < ROUNDS; round++)
        sim_rpc_call(s, rank, (rank + 1 + round) % s->nodes, ECHO, SIM_ANY,
                     sim_rpc_number_at(rank, thread, round));
}

void sim_rpc_calls_after(void *state, uint32_t rank) {
    struct rpc_state *s = state;
    for (uint32_t to = 0; to < s->nodes; to++)
        if (!sim_out(to))
            sim_rpc_call(s, rank, to, ECHO, to, sim_rpc_number_at(rank, 0, 8 + to) + 3);
}

const struct sim_case sim_case_rpc_calls =
    RPC_CASE(.name = "calls", .about = "calls between two nodes, with data of many sizes", .nodes = 2,
             .threads = 1, .body = sim_rpc_calls_body, .after = sim_rpc_calls_after);
const struct sim_case sim_case_rpc_threads =
    RPC_CASE(.name = "threads", .about = "calls of two threads on each of three nodes", .nodes = 3,
             .threads = 2, .body = sim_rpc_calls_body, .after = sim_rpc_calls_after);

/* Node 1 serves between other work, at first. While callers expect that, they wake its service thread late,
 * but not never. */
static void near_body(void *state, uint32_t rank, uint32_t thread) {
    struct rpc_state *s = state;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint64_t message[8], number = sim_rpc_number_at(rank, thread, round);
        size_t bytes = sim_rpc_make(message, number);
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
             .body = near_body, .after = sim_rpc_calls_after);

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
        ops[i].request_bytes = sim_rpc_make(messages[i], sim_rpc_number_at(0, 0, i));
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
    while (starts[3] == 0 && ops[3].fate == REMO_RPC_UNKNOWN && s->runs[sim_rpc_number_at(0, 0, 3)] == 0
           && !sim_out(0) && !sim_out(1) && !sim_any_hurt())
        (void)remo_rpc_serve(s->services[0], GATE_NS); /* a cancelled request is executed, too */
}

const struct sim_case sim_case_rpc_near_started =
    RPC_CASE(.name = "near_started", .about = "calls that are started, to a thread that serves between work",
             .nodes = 2, .threads = 1, .body = near_started_body, .after = sim_rpc_calls_after);

/* ---- forwarded ---- */

static void forward_body(void *state, uint32_t rank, uint32_t thread) {
    struct rpc_state *s = state;
    for (uint32_t round = 0; round < ROUNDS; round++)
        sim_rpc_call(s, rank, (rank + 1 + round) % s->nodes, round % 2 == 0 ? PASS_ON : ECHO, SIM_ANY,
                     sim_rpc_number_at(rank, thread, round));
}

const struct sim_case sim_case_rpc_forward =
    RPC_CASE(.name = "forward", .about = "another node replies, and any of them fails", .nodes = 3,
             .threads = 1, .body = forward_body, .after = sim_rpc_calls_after);

/* Node 0 opens its first service after it has detected the failure of node 2. Node 1 may forward the call
 * before it detects this failure. */
static void open_departed(void *state, struct remo_node *node, uint32_t rank) {
    struct rpc_state *s = state;
    s->members[rank] = node;
    if (rank != 0)
        start_service(s, node, rank);
}

static bool is_met(const struct rpc_state *s, uint32_t rank, uint32_t peer) {
    return s->services[rank] && remo__rpc_is_up(s->services[rank]->transport, peer)
           && remo_channel_peer(remo_rpc_channel(s->services[rank]), peer) == REMO_CHANNEL_CONNECTED;
}

static bool is_met_by_1(void *ctx) {
    return is_met(ctx, 1, 2);
}

static bool has_met_1(void *ctx) {
    return is_met(ctx, 0, 1);
}

static bool has_departed_2(void *ctx) {
    return remo_node_peer(((const struct rpc_state *)ctx)->members[0], 2) > REMO_PEER_UP;
}

static void departed_body(void *state, uint32_t rank, uint32_t thread) {
    struct rpc_state *s = state;
    (void)thread;
    if (rank == 2) {
        sim_until(is_met_by_1, s, "wait until node 1 can forward");
        sim_crash(2);
    }
    if (rank != 0)
        return;
    sim_until(has_departed_2, s, "wait until node 2 has failed");
    start_service(s, s->members[0], 0);
    sim_until(has_met_1, s, "wait for node 1");
    sim_rpc_call(s, 0, 1, PASS_ON, SIM_ANY, sim_rpc_number_at(0, 0, 0));
}

const struct sim_case sim_case_rpc_departed = {
    .object = "rpc",
    .name = "departed",
    .about = "a call is forwarded to a node that failed before the caller opened a service",
    .nodes = 3,
    .threads = 1,
    .state_bytes = sizeof(struct rpc_state),
    .open = open_departed,
    .close = sim_rpc_close,
    .body = departed_body,
    .has_own_fault = true};
