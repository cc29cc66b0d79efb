/* rpc_overtake.c - a post that overtakes a call, which depends on it; a wait for one of several calls.
 * Node 1 holds requests until such a post arrives. */
#include "sim/cases/rpc.h"

static int hold(void *ctx, const struct remo_rpc_request *request) {
    struct rpc_agent *agent = ctx;
    sim_rpc_count_run(agent, request, sim_rpc_number(request));
    return remo_rpc_defer(request, &agent->held[agent->held_count++]);
}

/* A post: reply to the requests that were held. */
static int release(void *ctx, const struct remo_rpc_request *request) {
    struct rpc_agent *agent = ctx;
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
    sim_rpc_open(state, node, rank);
    for (uint32_t i = 0; i < 2; i++)
        sim_opened(remo_rpc_handle(s->services[rank], &handlers[i]), "handle");
}

static bool start_forever(struct rpc_state *s, struct remo_rpc_op *op, uint32_t to, uint32_t number,
                          uint64_t *message, uint64_t value) {
    *op = (struct remo_rpc_op){.node = to,
                               .number = number,
                               .request = message,
                               .request_bytes = sim_rpc_make(message, value),
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
           && start_forever(s, &held[count], 1, HOLD, messages[count], sim_rpc_number_at(0, 0, count)))
        count++;
    for (uint32_t i = 0; i < count; i++)
        remo_rpc_cancel(&held[i]);
    if (count < CANCELLED
        || !start_forever(s, &queued, 1, ECHO, messages[count], sim_rpc_number_at(0, 0, count)))
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
                                               .close = sim_rpc_close,
                                               .body = overtake_body,
                                               .after = sim_rpc_calls_after};

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
    if (rank == 0 && start_forever(s, &ops[0], 1, HOLD, messages[0], sim_rpc_number_at(0, 0, 0))
        && start_forever(s, &ops[1], 2, ECHO, messages[1], sim_rpc_number_at(0, 0, 1))) {
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
                                          .close = sim_rpc_close,
                                          .body = any_body,
                                          .after = sim_rpc_calls_after};
