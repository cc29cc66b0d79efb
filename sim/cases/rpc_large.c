/* rpc_large.c - calls with large requests and replies: the handler gets the data of its own call, also after
 * the caller has stopped waiting, and nothing damages the reply, or memory that is in use again. */
#include <errno.h>
#include <remo/region.h>
#include <remo/rpc.h>
#include <string.h>

#include "fabric/access.h"
#include "objects/rpc/rpc.h"
#include "sim/case.h"

#define FOREVER REMO_FOREVER
#define NUMBERS 64u
#define ROUNDS 3u
#define WORDS_MAX 80u /* of a large message: two pieces of a network that copies */
#define LARGE_WORDS 76u
#define SHORT_WORDS 3u
#define GUARD UINT64_C(0x5a5a5a5a5a5a5a5a)
#define SERVE_NS 5000u
#define FORGED 63u

enum handler { ANSWER, PASS_ON, KEEP, STOP, HANDLERS, TRY = HANDLERS };

struct large_state {
    struct remo_rpc *services[SIM_NODES_MAX];
    struct remo_region *regions[SIM_NODES_MAX];
    struct agent {
        struct large_state *state;
        uint32_t rank;
        struct remo_rpc_deferred kept;
        uint64_t kept_number;
        bool has_kept;
    } agents[SIM_NODES_MAX];
    uint32_t nodes;
    uint32_t runs[NUMBERS]; /* of the handler of each call */
    bool has_ended;
};

/* ---- messages ---- */

/* Words that the number of the call and `salt` determine: a damaged message is detected. */
static void make(uint64_t *words, uint32_t count, uint64_t number, uint64_t salt) {
    for (uint32_t i = 0; i < count; i++)
        words[i] = number | (uint64_t)i << 16 | salt << 32;
}

static void check(const void *data, size_t bytes, uint64_t number, uint64_t salt, const char *what) {
    uint64_t words[WORDS_MAX], expected[WORDS_MAX];
    sim_require(bytes >= 8 && bytes <= sizeof words, "%s of %zu bytes", what, bytes);
    memcpy(words, data, bytes);
    make(expected, (uint32_t)(bytes / 8), number, salt);
    sim_require(memcmp(words, expected, bytes) == 0, "%s of call %llu is damaged", what,
                (unsigned long long)number);
}

/* Words of the request and of the reply of a call. */
static uint32_t request_words(uint64_t number) {
    return number % 4 == 3 ? SHORT_WORDS : LARGE_WORDS;
}
static uint32_t reply_words(uint64_t number) {
    return number % 4 == 2 ? SHORT_WORDS : LARGE_WORDS;
}

/* ---- handlers ---- */

static uint64_t number_of(const struct remo_rpc_request *request) {
    uint64_t number = 0;
    if (request->bytes >= 8)
        memcpy(&number, request->data, 8);
    return number & 0xffff;
}

static uint64_t take_request(const struct agent *agent, const struct remo_rpc_request *request) {
    struct large_state *s = agent->state;
    uint64_t number = number_of(request);
    const struct remo_channel *channel = s->services[agent->rank]->transport->channel;
    sim_require(remo_channel_peer(channel, request->node) == REMO_CHANNEL_CONNECTED,
                "executed a request of node %u, which is cut off", request->node);
    check(request->data, request->bytes, number, 1, "a request");
    sim_require(request->bytes == 8 * request_words(number), "a request of %zu bytes", request->bytes);
    s->runs[number % NUMBERS]++;
    sim_require(s->runs[number % NUMBERS] == 1, "the handler of call %llu runs twice",
                (unsigned long long)number);
    return number;
}

/* LONG */
static int answer(void *ctx, const struct remo_rpc_request *request) {
    uint64_t words[WORDS_MAX], number = take_request(ctx, request);
    make(words, reply_words(number), number, 2);
    int rc = remo_rpc_reply(request, 5, words, 8 * reply_words(number));
    check(request->data, request->bytes, number, 1, "a request, after the reply");
    return rc;
}

/* SHORT: its request is short. */
static int pass_on(void *ctx, const struct remo_rpc_request *request) {
    const struct agent *agent = ctx;
    uint32_t next = (agent->rank + 1) % agent->state->nodes;
    check(request->data, request->bytes, number_of(request), 1, "a request");
    return remo_rpc_forward(request, next, ANSWER, request->data, request->bytes);
}

/* SHORT: a thread of the node replies. */
static int keep(void *ctx, const struct remo_rpc_request *request) {
    struct agent *agent = ctx;
    agent->kept_number = take_request(agent, request);
    int rc = remo_rpc_defer(request, &agent->kept);
    agent->has_kept = rc == 0;
    return rc;
}

static int stop(void *ctx, const struct remo_rpc_request *request) {
    const struct agent *agent = ctx;
    (void)request;
    agent->state->has_ended = true;
    return 5;
}

static void open_large(void *state, struct remo_node *node, uint32_t rank) {
    struct large_state *s = state;
    s->nodes = remo_node_size(node);
    s->agents[rank] = (struct agent){.state = s, .rank = rank};
    const struct remo_rpc_handler handlers[HANDLERS] = {
        {.number = ANSWER, .run = answer, .ctx = &s->agents[rank], .kind = REMO_RPC_LONG},
        {.number = PASS_ON, .run = pass_on, .ctx = &s->agents[rank]},
        {.number = KEEP, .run = keep, .ctx = &s->agents[rank]},
        {.number = STOP, .run = stop, .ctx = &s->agents[rank]}};
    struct remo_rpc_options options = {.handlers = handlers, .handler_count = HANDLERS};
    sim_opened(remo_rpc_open(remo_node_root(node), "service", &options, &s->services[rank]), "open");
    sim_opened(remo_channel_wait(remo_rpc_channel(s->services[rank]), FOREVER), "wait");
}

static void close_large(void *state, uint32_t rank) {
    struct large_state *s = state;
    remo_rpc_close(s->services[rank]);
    remo_region_close(s->regions[rank]);
    s->services[rank] = NULL;
    s->regions[rank] = NULL;
}

/* ---- calls ---- */

/* A call, and its buffers. */
struct large_call {
    struct remo_rpc_op op;
    uint64_t number;
    uint64_t request[WORDS_MAX], reply[WORDS_MAX];
};

static void prepare(struct large_call *call, uint32_t to, enum handler handler, uint64_t number) {
    memset(call, 0, sizeof *call);
    call->number = number;
    make(call->request, request_words(number), number, 1);
    call->op = (struct remo_rpc_op){.node = to,
                                    .number = handler,
                                    .request = call->request,
                                    .request_bytes = 8 * request_words(number),
                                    .reply = call->reply,
                                    .reply_cap = sizeof call->reply,
                                    .timeout_ns = FOREVER};
}

/* Judge a call that has ended with `rc`. Returns whether it has its reply. */
static bool judge(const struct large_state *s, const struct large_call *call, uint32_t rank,
                  const void *reply, int rc) {
    uint32_t runs = s->runs[call->number % NUMBERS];
    sim_require(call->op.fate != REMO_RPC_DONE || rc < 0 || runs == 1,
                "call %llu has ended, but no handler has run", (unsigned long long)call->number);
    sim_require(call->op.fate != REMO_RPC_NOT_SENT || runs == 0,
                "call %llu was not sent, but a handler has run", (unsigned long long)call->number);
    /* the server could not read the request, or not write the reply */
    bool is_hurt = rc < 0 && sim_any_hurt() && !sim_hurt(rank);
    if (is_hurt || (rc < 0 && sim_excused(rank, SIM_ANY, rc)))
        return false;
    sim_require(rc == 5, "call %llu: %d (%s)", (unsigned long long)call->number, rc, remo_last_error());
    sim_require(call->op.reply_bytes == 8 * reply_words(call->number), "a reply of %zu bytes",
                call->op.reply_bytes);
    check(reply, call->op.reply_bytes, call->number, 2, "a reply");
    return true;
}

static void call_once(struct large_state *s, uint32_t rank, uint32_t to, enum handler handler,
                      uint64_t number) {
    struct large_call call;
    prepare(&call, to, handler, number);
    int rc = remo_rpc_start(s->services[rank], &call.op);
    if (rc == 0)
        rc = remo_rpc_wait(&call.op);
    (void)judge(s, &call, rank, call.reply, rc);
}

static uint64_t number_at(uint32_t rank, uint32_t round) {
    return rank * 8 + round + 1;
}

static void large_body(void *state, uint32_t rank, uint32_t thread) {
    struct large_state *s = state;
    for (uint32_t round = 0; round < ROUNDS; round++)
        call_once(s, rank, (rank + 1 + round) % s->nodes, ANSWER, number_at(rank, 4 * thread + round));
}

static void large_after(void *state, uint32_t rank) {
    struct large_state *s = state;
    for (uint32_t to = 0; to < s->nodes; to++)
        if (!sim_out(to))
            call_once(s, rank, to, ANSWER, 24 + rank * 2 + to);
}

#define LARGE_CASE(...)                                                                                 \
    {                                                                                                   \
        .object = "rpc", .state_bytes = sizeof(struct large_state), .threads = 1, .close = close_large, \
        __VA_ARGS__                                                                                     \
    }

const struct sim_case sim_case_rpc_large =
    LARGE_CASE(.name = "large", .about = "calls with large requests and replies", .nodes = 2,
               .open = open_large, .body = large_body, .after = large_after);

/* ---- after the caller has stopped waiting ---- */

/* A call is cancelled, and the next one goes to another node. It would get the same block, if it were free:
 * then the first server would read the request of the second call, or damage its reply. */
static void large_cancel_body(void *state, uint32_t rank, uint32_t thread) {
    struct large_state *s = state;
    struct large_call call;
    (void)thread;
    if (rank != 0)
        return;
    prepare(&call, 1, ANSWER, 1);
    int rc = remo_rpc_start(s->services[0], &call.op);
    remo_rpc_cancel(&call.op);
    sim_require(rc == 0 || sim_excused(0, 1, rc), "start: %d (%s)", rc, remo_last_error());
    call_once(s, 0, 2, ANSWER, 4);
    call_once(s, 0, 2, ANSWER, 5);
}

const struct sim_case sim_case_rpc_large_cancel =
    LARGE_CASE(.name = "large_cancel", .about = "a large call follows a cancelled one, to another node",
               .nodes = 3, .open = open_large, .body = large_cancel_body);

/* The server counts as failed while it reads or writes. Survivors call each other with the next block. */
static void large_failed_after(void *state, uint32_t rank) {
    struct large_state *s = state;
    for (uint32_t i = 0; i < 3; i++)
        for (uint32_t to = 0; to < s->nodes; to++)
            if (!sim_out(to) && to != rank)
                call_once(s, rank, to, ANSWER, 16 + rank * 9 + i * 3 + to);
}

static void large_failed_body(void *state, uint32_t rank, uint32_t thread) {
    (void)thread;
    if (rank == 0)
        call_once(state, 0, 2, ANSWER, 1);
    else if (rank == 1)
        call_once(state, 1, 2, ANSWER, 4);
}

const struct sim_case sim_case_rpc_large_failed =
    LARGE_CASE(.name = "large_failed", .about = "a server fails while it reads a request or writes a reply",
               .nodes = 3, .open = open_large, .body = large_failed_body, .after = large_failed_after,
               .fault_first = 2);

/* ---- places of the program ---- */

static void open_places(void *state, struct remo_node *node, uint32_t rank) {
    struct large_state *s = state;
    open_large(state, node, rank);
    sim_opened(remo_region_open(remo_node_root(node), "places", 4 * WORDS_MAX * 8, NULL, &s->regions[rank]),
               "open");
    sim_opened(remo_channel_wait(remo_region_channel(s->regions[rank]), FOREVER), "wait");
}

static char *at_word(const struct large_state *s, uint32_t rank, uint32_t word) {
    return (char *)remo_region_local(s->regions[rank]) + 8 * word;
}

static struct remo_addr address_of(const struct large_state *s, uint32_t rank, uint32_t word) {
    struct remo_addr addr = {0};
    int rc = remo_region_address(s->regions[rank], rank, 8 * word, &addr);
    sim_require(rc == 0, "address: %d (%s)", rc, remo_last_error());
    return addr;
}

static void fill(const struct large_state *s, uint32_t rank, uint32_t word, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        remo__store(at_word(s, rank, word + i), GUARD);
}

static void check_guard(const struct large_state *s, uint32_t rank, uint32_t word, uint32_t count,
                        const char *what) {
    for (uint32_t i = 0; i < count; i++)
        sim_require(remo__load(at_word(s, rank, word + i)) == GUARD, "a server writes %s", what);
}

#define REPLY_AT WORDS_MAX /* word of the place of the reply; that of the request is at 0 */

static void prepare_places(const struct large_state *s, struct large_call *call, uint32_t rank, uint32_t to,
                           uint64_t number) {
    prepare(call, to, ANSWER, number);
    remo__copy_to(at_word(s, rank, 0), call->request, sizeof call->request);
    fill(s, rank, REPLY_AT, 2 * WORDS_MAX);
    call->op.request = call->op.reply = NULL;
    call->op.request_place = address_of(s, rank, 0);
    call->op.reply_place = address_of(s, rank, REPLY_AT);
}

/* A short reply, a large one, and one that is too long for its place. */
static void large_places_body(void *state, uint32_t rank, uint32_t thread) {
    struct large_state *s = state;
    struct large_call call;
    uint64_t reply[WORDS_MAX];
    (void)thread;
    for (uint64_t i = 1; i <= 3 && rank == 0; i++) {
        prepare_places(s, &call, 0, 1, i);
        if (i == 3)
            call.op.reply_cap = 8 * (LARGE_WORDS - 1);
        int rc = remo_rpc_start(s->services[0], &call.op);
        rc = rc == 0 ? remo_rpc_wait(&call.op) : rc;
        if (i == 3 && rc == -EMSGSIZE) {
            sim_require(call.op.reply_bytes == 8 * LARGE_WORDS, "a reply of %zu bytes", call.op.reply_bytes);
            check_guard(s, 0, REPLY_AT, 2 * WORDS_MAX, "a reply that is too long");
            return;
        }
        remo__copy_from(reply, at_word(s, 0, REPLY_AT), sizeof reply);
        sim_require(i < 3 || rc < 0, "a reply is longer than its place");
        if (!judge(s, &call, 0, reply, rc))
            return;
        check_guard(s, 0, REPLY_AT + reply_words(i), WORDS_MAX, "behind a reply");
    }
}

const struct sim_case sim_case_rpc_large_places =
    LARGE_CASE(.name = "large_places", .about = "requests and replies in places that the program names",
               .nodes = 2, .open = open_places, .body = large_places_body);

/* After remo_rpc_settle the program uses the places of a cancelled call for something else. */
static void large_settle_body(void *state, uint32_t rank, uint32_t thread) {
    struct large_state *s = state;
    struct large_call call;
    (void)thread;
    if (rank != 0)
        return;
    prepare_places(s, &call, 0, 1, 1);
    int rc = remo_rpc_start(s->services[0], &call.op);
    sim_require(rc == 0 || sim_excused(0, 1, rc), "start: %d (%s)", rc, remo_last_error());
    remo_rpc_cancel(&call.op);
    rc = rc == 0 ? remo_rpc_settle(&call.op, FOREVER) : rc;
    if (rc == -EHOSTDOWN && sim_excused(0, 1, rc))
        return;
    sim_require(rc == 0 || (rc < 0 && sim_excused(0, 1, rc)), "settle: %d (%s)", rc, remo_last_error());
    fill(s, 0, 0, 3 * WORDS_MAX);
    call_once(s, 0, 1, ANSWER, 4);
    call_once(s, 0, 1, ANSWER, 5);
    check_guard(s, 0, 0, 3 * WORDS_MAX, "a place after it was settled");
}

const struct sim_case sim_case_rpc_large_settle =
    LARGE_CASE(.name = "large_settle", .about = "places of a cancelled call are used for something else",
               .nodes = 2, .open = open_places, .body = large_settle_body);

/* ---- all blocks are in use ---- */

/* Two calls take all blocks. When they have ended, a call takes a block of another size. */
static void large_full_body(void *state, uint32_t rank, uint32_t thread) {
    struct large_state *s = state;
    struct large_call calls[3] = {0};
    int rc = 0;
    (void)thread;
    static_assert(16 * WORDS_MAX > REMO__RPC_BLOCKS_BYTES_MAX / 4, "a block takes half of the limit");
    for (uint32_t i = 0; i < 3 && rank == 0 && rc == 0; i++) {
        prepare(&calls[i], 1, ANSWER, i == 0 ? 1 : 3 + i);
        rc = remo_rpc_start(s->services[0], &calls[i].op);
        sim_require(rc == (i < 2 ? 0 : -ENOBUFS) || (rc < 0 && sim_excused(0, 1, rc)),
                    "start of call %u: %d (%s)", i, rc, remo_last_error());
    }
    if (rc == -ENOBUFS && judge(s, &calls[0], 0, calls[0].reply, remo_rpc_wait(&calls[0].op))
        && judge(s, &calls[1], 0, calls[1].reply, remo_rpc_wait(&calls[1].op)))
        call_once(s, 0, 1, ANSWER, 3);
    for (uint32_t i = 0; i < 2; i++)
        remo_rpc_cancel(&calls[i].op);
}

const struct sim_case sim_case_rpc_large_full =
    LARGE_CASE(.name = "large_full", .about = "the blocks of large calls reach their limit", .nodes = 2,
               .open = open_large, .body = large_full_body);

/* ---- forwarded, deferred ---- */

static void large_forward_body(void *state, uint32_t rank, uint32_t thread) {
    struct large_state *s = state;
    (void)thread;
    if (rank != 0)
        return;
    call_once(s, 0, 1, PASS_ON, 3); /* a short request, and a large reply */
    call_once(s, 0, 2, PASS_ON, 7);
    call_once(s, 0, 1, ANSWER, 1);
}

const struct sim_case sim_case_rpc_large_forward =
    LARGE_CASE(.name = "large_forward", .about = "another node writes a large reply to its place", .nodes = 3,
               .open = open_large, .body = large_forward_body);

/* Node 1 keeps a request, and a thread replies. */
static void large_defer_body(void *state, uint32_t rank, uint32_t thread) {
    struct large_state *s = state;
    struct agent *agent = &s->agents[rank];
    uint64_t words[WORDS_MAX];
    (void)thread;
    if (rank == 0) {
        call_once(s, 0, 1, KEEP, 3);
        (void)remo_rpc_call(s->services[0], 1, STOP, NULL, 0, NULL, 0, NULL, FOREVER);
        s->has_ended = true;
        return;
    }
    while (!agent->has_kept && !s->has_ended && !sim_out(0) && !sim_out(1))
        (void)remo_rpc_serve(s->services[1], SERVE_NS);
    if (!agent->has_kept)
        return;
    make(words, LARGE_WORDS, agent->kept_number, 2);
    int rc = remo_rpc_reply_later(s->services[1], agent->kept, 5, words, 8 * LARGE_WORDS);
    if (rc != 0 && !sim_any_out() && sim_any_hurt()) /* nothing was sent: try once more */
        rc = remo_rpc_reply_later(s->services[1], agent->kept, -EIO, NULL, 0);
    sim_require(rc == 0 || rc == -EALREADY || sim_excused(1, 0, rc), "reply later: %d (%s)", rc,
                remo_last_error());
}

const struct sim_case sim_case_rpc_large_defer =
    LARGE_CASE(.name = "large_defer", .about = "a thread sends the large reply to a deferred request",
               .nodes = 2, .open = open_large, .body = large_defer_body);

/* ---- failed writes ---- */

/* LONG: reply. If this fails, another node replies. */
static int try_reply(void *ctx, const struct remo_rpc_request *request) {
    uint64_t words[WORDS_MAX], number = take_request(ctx, request);
    make(words, LARGE_WORDS, number, 2);
    int rc = remo_rpc_reply(request, 5, words, 8 * LARGE_WORDS);
    return rc == 0 ? 0 : remo_rpc_forward(request, 2, STOP, NULL, 0);
}

static void open_delayed(void *state, struct remo_node *node, uint32_t rank) {
    struct large_state *s = state;
    open_large(state, node, rank);
    const struct remo_rpc_handler handler = {
        .number = TRY, .run = try_reply, .ctx = &s->agents[rank], .kind = REMO_RPC_LONG};
    sim_opened(remo_rpc_handle(s->services[rank], &handler), "handle");
    sim_opened(remo_channel_wait(remo_rpc_channel(s->services[rank]), FOREVER), "wait");
}

/* The write of a large reply is delayed until it has timed out, and longer. If node 2 replied in the
 * meantime, node 0 would use its block for the next call, and the late write would damage it. */
static void large_delayed_body(void *state, uint32_t rank, uint32_t thread) {
    enum { TIMEOUTS = 12 }; /* more than node 1 needs to fail */
    struct large_state *s = state;
    struct large_call call;
    (void)thread;
    for (uint32_t i = 0; rank == 2 && i < TIMEOUTS && !s->has_ended; i++)
        (void)remo_rpc_serve(s->services[2], SIM_OP_TIMEOUT_NS);
    if (rank == 2)
        sim_delay_end();
    if (rank != 0)
        return;
    prepare(&call, 1, TRY, 3);
    sim_delay(1, 0, 2);
    int rc = remo_rpc_start(s->services[0], &call.op);
    rc = rc == 0 ? remo_rpc_wait(&call.op) : rc;
    sim_require(rc == 5 || rc == -ENOSYS, "call: %d (%s)", rc, remo_last_error());
    s->has_ended = true;
    for (uint32_t i = 0; i < 4; i++)
        call_once(s, 0, 2, ANSWER, 4 + i);
}

const struct sim_case sim_case_rpc_large_delayed =
    LARGE_CASE(.name = "large_delayed", .about = "a write of a large reply is late, and times out",
               .nodes = 3, .open = open_delayed, .body = large_delayed_body, .needs_flight = true,
               .has_own_fault = true);

/* ---- a faulty node ---- */

/* Send a request of node 2 to node 1, in which `places` are wrong. Its ring is broken. */
static void forge(struct large_state *s, struct remo__rpc_places places) {
    struct remo_rpc *rpc = s->services[2];
    uint64_t image[REMO__RPC_RECORD_MAX / sizeof(uint64_t)], words[WORDS_MAX];
    make(words, SHORT_WORDS, FORGED, 1);
    remo__rpc_large_compose(&places, words, image);
    size_t bytes = sizeof places + (places.request != 0 ? 0 : places.request_bytes);
    const struct remo__rpc_words record = {.head =
                                               remo__rpc_head_make(bytes, ANSWER, 1, 0, REMO__RPC_HAS_PLACES),
                                           .call = remo__rpc_call_make(2, 0, 1000),
                                           .rest = remo__rpc_rest(rpc, 1, FOREVER)};
    (void)remo__rpc_send_message(remo__thread(rpc->node), rpc, 1, record, image, false);
    int rc = remo_rpc_call(rpc, 1, STOP, NULL, 0, NULL, 0, NULL, SERVE_NS);
    sim_require(!s->has_ended && s->runs[FORGED] == 0, "node 1 serves a faulty node: %d", rc);
}

/* The place of the reply is at node 0. */
static void large_forged_body(void *state, uint32_t rank, uint32_t thread) {
    struct large_state *s = state;
    struct remo_addr place = {0};
    (void)thread;
    if (rank == 0)
        call_once(s, 0, 1, ANSWER, 3);
    if (rank != 2)
        return;
    int rc = remo_region_address(s->regions[2], 0, 8 * REPLY_AT, &place);
    sim_require(rc == 0, "address: %d (%s)", rc, remo_last_error());
    forge(s, (struct remo__rpc_places){
                 .reply = place.word, .request_bytes = 8 * SHORT_WORDS, .reply_bytes = 8 * LARGE_WORDS});
}

static void forged_check(void *state) {
    struct large_state *s = state;
    sim_require(s->runs[FORGED] == 0, "the handler of a malformed request runs");
}

const struct sim_case sim_case_rpc_large_forged =
    LARGE_CASE(.name = "large_forged",
               .about = "a node names memory of another one as the place of its reply", .nodes = 3,
               .open = open_places, .body = large_forged_body, .check = forged_check, .has_own_fault = true);

/* A request is longer than the largest one. */
static void large_sizes_body(void *state, uint32_t rank, uint32_t thread) {
    struct large_state *s = state;
    (void)thread;
    if (rank == 0)
        call_once(s, 0, 1, ANSWER, 3);
    if (rank == 2)
        forge(s, (struct remo__rpc_places){.request = address_of(s, 2, 0).word,
                                           .request_bytes = REMO__RPC_LARGE_MAX + 8});
}

const struct sim_case sim_case_rpc_large_sizes =
    LARGE_CASE(.name = "large_sizes", .about = "a node names a request that is too long", .nodes = 3,
               .open = open_places, .body = large_sizes_body, .check = forged_check, .has_own_fault = true);
