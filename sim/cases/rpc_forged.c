/* rpc_forged.c - a faulty node: it sends requests in the name of another one. The calls of that node end,
 * and no forged request runs in its place. */
#include "sim/cases/rpc.h"

/* Send a request of the given depth in the name of node 0 to node 1. */
static void forge_at(struct rpc_state *s, uint32_t depth, uint32_t number, uint32_t hops, uint32_t slot,
                     uint32_t serial) {
    struct remo_rpc *rpc = s->services[2];
    uint64_t message[8];
    size_t bytes = sim_rpc_make(message, FORGED);
    const struct remo__rpc_words words = {.head = remo__rpc_head_make(bytes, number, depth, hops, 0),
                                          .call = remo__rpc_call_make(0, slot, serial),
                                          .rest = remo__rpc_rest(rpc, 1, FOREVER)};
    (void)remo__rpc_send_message(remo__thread(rpc->node), rpc, 1, words, message, false);
}

static void forge(struct rpc_state *s, uint32_t number, uint32_t hops, uint32_t slot, uint32_t serial) {
    forge_at(s, 1, number, hops, slot, serial);
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
        ops[i].request_bytes = sim_rpc_make(messages[i], 64 + i);
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
    sim_rpc_call(s, 2, 1, ECHO, SIM_ANY, sim_rpc_number_at(2, 0, 0)); /* all have arrived before */
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
    .open = sim_rpc_open_gate,
    .close = sim_rpc_close,
    .body = forged_body,
    .has_own_fault = true};

/* Node 2 names node 0 as the caller of a request that cannot be from it. Its ring is broken. */
static void name_another(struct rpc_state *s, uint32_t rank, uint32_t depth, uint32_t hops) {
    if (rank == 2) {
        forge_at(s, depth, ECHO, hops, 0, 1000);
        int rc = remo_rpc_call(s->services[2], 1, OPEN, NULL, 0, NULL, 0, NULL, GATE_NS);
        sim_require(!s->is_open && s->runs[FORGED] == 0, "node 1 serves a faulty node: %d", rc);
    }
    if (rank == 0)
        sim_rpc_call(s, 0, 1, ECHO, 1, sim_rpc_number_at(0, 0, 0));
}

/* The request was not forwarded. */
static void named_body(void *state, uint32_t rank, uint32_t thread) {
    (void)thread;
    name_another(state, rank, 1, 0);
}

/* The request is a leaf request, which no node forwards. */
static void named_leaf_body(void *state, uint32_t rank, uint32_t thread) {
    (void)thread;
    name_another(state, rank, REMO__RPC_LEAF_DEPTH, 1);
}

const struct sim_case sim_case_rpc_named_leaf = {
    .object = "rpc",
    .name = "named_leaf",
    .about = "a node names another one as the caller of a leaf request",
    .nodes = 3,
    .threads = 1,
    .state_bytes = sizeof(struct rpc_state),
    .open = sim_rpc_open_gate,
    .close = sim_rpc_close,
    .body = named_leaf_body,
    .has_own_fault = true};

const struct sim_case sim_case_rpc_named = {.object = "rpc",
                                            .name = "named",
                                            .about =
                                                "a node names another one as the caller of its own request",
                                            .nodes = 3,
                                            .threads = 1,
                                            .state_bytes = sizeof(struct rpc_state),
                                            .open = sim_rpc_open_gate,
                                            .close = sim_rpc_close,
                                            .body = named_body,
                                            .has_own_fault = true};
