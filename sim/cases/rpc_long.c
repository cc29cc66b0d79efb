/* rpc_long.c - LONG handlers, which run in tasks and wait. They neither delay other requests for ever, nor
 * run after the close of their service. */
#include "sim/cases/rpc.h"

/* Call the same handler at the next node, with the next number, and wait. */
static int long_circle(void *ctx, const struct remo_rpc_request *request) {
    struct rpc_agent *agent = ctx;
    struct rpc_state *s = agent->state;
    uint64_t message[8], number = sim_rpc_number(request);
    sim_rpc_count_run(agent, request, number);
    size_t bytes = sim_rpc_make(message, number + 1);
    int rc = remo_rpc_call(s->services[agent->rank], (agent->rank + 1) % s->nodes, LONG_CIRCLE, message,
                           bytes, NULL, 0, NULL, FOREVER);
    sim_require(sim_rpc_number(request) == number, "a request changes while its handler waits");
    sim_require(!s->is_closed[agent->rank], "a handler runs after the close of its service");
    return rc == -ELOOP ? 0 : rc < 0 ? rc : rc + 1;
}

static void open_long(void *state, struct remo_node *node, uint32_t rank) {
    struct rpc_state *s = state;
    sim_rpc_open(state, node, rank);
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
                             .request_bytes = sim_rpc_make(message, number),
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
    sim_rpc_call(s, rank, op.node, ECHO, op.node, sim_rpc_number_at(rank, thread, 0) + 20);
}

const struct sim_case sim_case_rpc_long = {
    .object = "rpc",
    .name = "long",
    .about = "LONG handlers that call each other in a cycle end; some callers cancel",
    .nodes = 2,
    .threads = 2,
    .state_bytes = sizeof(struct rpc_state),
    .open = open_long,
    .close = sim_rpc_close,
    .body = long_body,
    .after = sim_rpc_calls_after};

/* Node 0 cancels calls whose LONG handlers call back. Its retired slots of depth 1 must not delay the calls
 * of greater depths for which these handlers wait: otherwise no reply arrives, and the last call never ends.
 */
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
                                      .request_bytes = sim_rpc_make(messages[i], 64 + i * REMO_RPC_DEPTH_MAX),
                                      .timeout_ns = FOREVER};
        int rc = remo_rpc_start(s->services[0], &ops[i]);
        sim_require(rc == 0 || sim_excused(0, 1, rc), "start: %d (%s)", rc, remo_last_error());
    }
    for (uint32_t i = 0; i < CANCELLED; i++)
        remo_rpc_cancel(&ops[i]);
    sim_rpc_call(s, 0, 1, ECHO, 1, sim_rpc_number_at(0, 0, 0) + 20);
}

const struct sim_case sim_case_rpc_retired = {.object = "rpc",
                                              .name = "retired",
                                              .about = "a call after cancelled ones whose handlers call back",
                                              .nodes = 2,
                                              .threads = 1,
                                              .state_bytes = sizeof(struct rpc_state),
                                              .open = open_long,
                                              .close = sim_rpc_close,
                                              .body = retired_body,
                                              .after = sim_rpc_calls_after};

/* Each node closes its service while LONG handlers of the other may run in it, or wait for a task. */
static void long_close_body(void *state, uint32_t rank, uint32_t thread) {
    struct rpc_state *s = state;
    uint64_t message[8], number = 64 + rank * REMO_RPC_DEPTH_MAX;
    struct remo_rpc_op op = {.node = (rank + 1) % s->nodes,
                             .number = LONG_CIRCLE,
                             .request = message,
                             .request_bytes = sim_rpc_make(message, number),
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
    sim_rpc_close(state, rank);
}

const struct sim_case sim_case_rpc_long_close = {.object = "rpc",
                                                 .name = "long_close",
                                                 .about = "services close while LONG handlers run",
                                                 .nodes = 2,
                                                 .threads = 1,
                                                 .state_bytes = sizeof(struct rpc_state),
                                                 .open = open_long,
                                                 .close = sim_rpc_close,
                                                 .body = long_close_body};

/* LONG: wait for the reply to a deferred request. */
static int gate(void *ctx, const struct remo_rpc_request *request) {
    struct rpc_agent *agent = ctx;
    uint64_t message[8], number = sim_rpc_number(request);
    if (number >= FORGED)
        return 5;
    sim_rpc_count_run(agent, request, number);
    if (agent->state->is_open)
        return 5;
    size_t bytes = sim_rpc_make(message, number + 2);
    return remo_rpc_call(agent->state->services[agent->rank], agent->rank, KEEP, message, bytes, NULL, 0,
                         NULL, FOREVER);
}

static int open_gate(void *ctx, const struct remo_rpc_request *request) {
    struct rpc_agent *agent = ctx;
    (void)request;
    agent->state->is_open = true;
    int rc = remo_rpc_reply_later(agent->state->services[agent->rank], agent->kept, 5, NULL, 0);
    return rc == 0 ? 5 : rc;
}

void sim_rpc_open_gate(void *state, struct remo_node *node, uint32_t rank) {
    struct rpc_state *s = state;
    sim_rpc_open(state, node, rank);
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
        ops[i].request_bytes = sim_rpc_make(messages[i], 64 + 4 * i); /* the handler's call has 2 more */
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
    .open = sim_rpc_open_gate,
    .close = sim_rpc_close,
    .body = long_expired_body};

/* A service closes while its LONG handler waits for the reply to one of its deferred requests. */
static void long_abandon_body(void *state, uint32_t rank, uint32_t thread) {
    struct rpc_state *s = state;
    uint64_t message[8];
    (void)thread;
    if (rank == 0) {
        size_t bytes = sim_rpc_make(message, 64);
        int rc = remo_rpc_call(s->services[0], 1, GATE, message, bytes, NULL, 0, NULL, FOREVER);
        s->is_open = true;
        sim_require(rc == -ENOTCONN || rc == -ENOSYS || (rc < 0 && sim_any_hurt()) || sim_excused(0, 1, rc),
                    "call: %d (%s)", rc, remo_last_error());
        return;
    }
    while (!s->agents[1].has_kept && !s->is_open && !sim_out(0))
        (void)remo_rpc_serve(s->services[1], GATE_NS);
    s->is_closing[1] = true;
    sim_rpc_close(state, 1);
}

const struct sim_case sim_case_rpc_long_abandon = {
    .object = "rpc",
    .name = "long_abandon",
    .about = "a service closes while its LONG handler waits for a deferred reply",
    .nodes = 2,
    .threads = 1,
    .state_bytes = sizeof(struct rpc_state),
    .open = sim_rpc_open_gate,
    .close = sim_rpc_close,
    .body = long_abandon_body};
