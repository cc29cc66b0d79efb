/* leaf_call.c - leaf calls: requests of one node to another start in the order of their calls, in any threads
 * and handlers, also if slots and rings are full. Each call ends, also in a LONG handler whose request has no
 * time left, while another node pauses, and if its reply is malformed. */
#include "objects/leaf_call.h"

#include <errno.h>
#include <remo/task.h>
#include <string.h>

#include "channel/remote.h"
#include "objects/rpc/rpc.h"
#include "sim/case.h"

#define FOREVER REMO_FOREVER
#define CALLS 3u   /* of each thread; two threads need more slots than there are */
#define THREADS 2u /* of each node */
#define CALLS_ALL ((CALLS + 1) * THREADS)
#define EXPIRED_NS 5000u /* timeout of the calls of LONG handlers */

enum handler { COUNT, LONG_COUNT, FAULTY };

struct leaf_state {
    struct place {
        struct remo_node *node;
        struct remo_rpc *service;
        uint32_t rank;
        struct remo__mutex mutex;         /* held from the choice of a number to the start of its call */
        uint64_t started[SIM_NODES_MAX];  /* the last number, for each node */
        uint64_t executed[SIM_NODES_MAX]; /* the last number here, of each caller */
        uint64_t numbers[CALLS_ALL];
        struct remo_rpc_op calls[CALLS_ALL];
    } places[SIM_NODES_MAX];
    bool is_paused, may_resume, has_ended; /* of the case `leaf_paused` */
};

static int count(void *ctx, const struct remo_rpc_request *request) {
    struct place *place = ctx;
    uint64_t number;
    sim_require(request->bytes == sizeof number, "a request of %zu bytes", request->bytes);
    memcpy(&number, request->data, sizeof number);
    sim_require(number == place->executed[request->node] + 1, "request %llu follows request %llu",
                (unsigned long long)number, (unsigned long long)place->executed[request->node]);
    place->executed[request->node] = number;
    return 0;
}

/* Start call `index` to node `to`. */
static int start(struct place *place, uint32_t to, uint32_t index) {
    struct remo_rpc_op *call = &place->calls[index];
    (void)remo__mutex_lock(place->node, &place->mutex, REMO_FOREVER);
    place->numbers[index] = place->started[to] + 1;
    *call = (struct remo_rpc_op){.node = to,
                                 .number = COUNT,
                                 .request = &place->numbers[index],
                                 .request_bytes = sizeof place->numbers[index]};
    int rc = remo__rpc_start_leaf(place->service, call);
    place->started[to] += rc == 0;
    remo__mutex_unlock(place->node, &place->mutex);
    return rc;
}

struct wait {
    struct place *place;
    uint32_t first, count;
};

/* An attempt: check all calls, because each one may need the slot of another one. */
static int have_ended(void *ctx) {
    const struct wait *wait = ctx;
    int all = 1;
    for (uint32_t i = 0; i < wait->count; i++)
        if (!remo__rpc_leaf_has_ended(&wait->place->calls[wait->first + i]))
            all = 0;
    if (!all)
        remo__rpc_leaf_serve(wait->place->service);
    return all;
}

/* Wait for `count` calls from `first` on. Returns the first error. */
static int await_calls(struct place *place, uint32_t first, uint32_t count) {
    struct wait wait = {place, first, count};
    int rc = remo__wait_attempt(place->node, have_ended, &wait, remo__deadline(place->node->op_timeout_ns));
    for (uint32_t i = 0; i < count; i++) {
        remo_rpc_cancel(&place->calls[first + i]); /* no effect, unless a call has failed */
        rc = rc != 0 ? rc : place->calls[first + i].status;
    }
    return rc;
}

/* Start `count` calls to node `to` from `first` on, and wait for them. Returns the first error. */
static int count_there(struct place *place, uint32_t to, uint32_t first, uint32_t count) {
    int rc = 0;
    for (uint32_t i = 0; i < count && rc == 0; i++)
        rc = start(place, to, first + i);
    if (rc == 0)
        return await_calls(place, first, count);
    for (uint32_t i = 0; i < count; i++)
        remo_rpc_cancel(&place->calls[first + i]);
    return rc;
}

/* A LONG handler: the request has the number of a thread of the caller. */
static int count_long(void *ctx, const struct remo_rpc_request *request) {
    struct place *place = ctx;
    uint32_t thread;
    memcpy(&thread, request->data, sizeof thread);
    while (remo_rpc_remaining_ns(place->service) > 0)
        (void)remo_task_sleep(place->node, EXPIRED_NS);
    return count_there(place, 1 - place->rank, CALLS * THREADS + thread, 1);
}

static void open_leaf(void *state, struct remo_node *node, uint32_t rank) {
    struct place *place = &((struct leaf_state *)state)->places[rank];
    struct remo_rpc_handler handlers[] = {
        {.number = COUNT, .run = count, .ctx = place},
        {.number = LONG_COUNT, .run = count_long, .ctx = place, .kind = REMO_RPC_LONG}};
    struct remo_rpc_options options = {.handlers = handlers, .handler_count = 2};
    place->node = node;
    place->rank = rank;
    sim_opened(remo_rpc_open(remo_node_root(node), "service", &options, &place->service), "open");
    sim_opened(remo_channel_wait(remo_rpc_channel(place->service), FOREVER), "wait");
}

static void close_leaf(void *state, uint32_t rank) {
    remo_rpc_close(((struct leaf_state *)state)->places[rank].service);
}

static void leaf_body(void *state, uint32_t rank, uint32_t thread) {
    struct place *place = &((struct leaf_state *)state)->places[rank];
    int rc = count_there(place, 1 - rank, CALLS * thread, CALLS);
    sim_require(rc == 0 || sim_excused(rank, 1 - rank, rc), "leaf calls: %d (%s)", rc, remo_last_error());
    rc = remo_rpc_call(place->service, 1 - rank, LONG_COUNT, &thread, sizeof thread, NULL, 0, NULL,
                       EXPIRED_NS);
    sim_require(rc == 0 || rc == -ETIMEDOUT || sim_excused(rank, 1 - rank, rc), "LONG call: %d (%s)", rc,
                remo_last_error());
}

const struct sim_case sim_case_rpc_leaf = {.object = "rpc",
                                           .name = "leaf",
                                           .about =
                                               "leaf calls of two threads and of LONG handlers, in order",
                                           .nodes = 2,
                                           .threads = THREADS,
                                           .state_bytes = sizeof(struct leaf_state),
                                           .open = open_leaf,
                                           .close = close_leaf,
                                           .body = leaf_body,
                                           .continues_after_failure = true};

/* ---- a node that pauses ---- */

#define PAUSED 2u
static_assert(CALLS > REMO__RPC_LEAF_SLOTS_OF_PEER && CALLS >= REMO__RPC_LEAF_SLOTS,
              "the calls to the node that pauses need all slots");

static bool is_paused(void *ctx) {
    return ((const struct leaf_state *)ctx)->is_paused;
}

static bool may_resume(void *ctx) {
    return ((const struct leaf_state *)ctx)->may_resume;
}

/* Execute no request of node 0 until node 0 has called node 1. */
static void pause_node(struct leaf_state *s) {
    struct place *place = &s->places[PAUSED];
    struct remo__rpc_transport *transport = place->service->transport;
    remo__rpc_lock(transport, &transport->peers[0].receive_mutex);
    s->is_paused = true;
    sim_until(may_resume, s, "wait until node 0 has called node 1");
    remo__rpc_unlock_ring(transport, 0);
    while (!s->has_ended)
        (void)remo_rpc_serve(place->service, EXPIRED_NS);
}

/* Cancel a call that is queued as a thread that the node cannot attach. */
static void cancel_detached(struct place *place, struct remo_rpc_op *call) {
    struct remo_node *node = place->node;
    struct remo__thread *threads = remo__threads_of_os_thread;
    const struct remo__tls tls = remo__tls;
    uint32_t threads_max = node->threads_max;
    remo__threads_of_os_thread = NULL;
    remo__tls = (struct remo__tls){0};
    node->threads_max = atomic_load(&node->threads->count);
    remo_rpc_cancel(call);
    sim_require(!remo__thread(node), "the thread is attached");
    node->threads_max = threads_max;
    remo__tls = tls;
    remo__threads_of_os_thread = threads;
    sim_require(call->status == -ECANCELED, "a queued call is not cancelled");
}

/* Calls to a node that pauses keep some slots only, so a call to another node ends. When the node has
 * resumed, the slots of the calls that were cancelled are free again. */
static void call_both(struct leaf_state *s) {
    struct place *place = &s->places[0];
    int rc = 0;
    sim_until(is_paused, s, "wait until a node pauses");
    for (uint32_t i = 0; i < CALLS && rc == 0; i++)
        rc = start(place, PAUSED, i);
    sim_require(rc == 0, "start: %d (%s)", rc, remo_last_error());
    cancel_detached(place, &place->calls[CALLS - 1]);
    place->started[PAUSED]--;
    for (uint32_t i = 0; i < CALLS - 1; i++)
        remo_rpc_cancel(&place->calls[i]);
    rc = count_there(place, 1, CALLS, 1);
    sim_require(rc == 0, "call to a node that is not paused: %d (%s)", rc, remo_last_error());
    s->may_resume = true;
    rc = count_there(place, PAUSED, 0, CALLS);
    sim_require(rc == 0, "calls to a node that was paused: %d (%s)", rc, remo_last_error());
    s->has_ended = true;
}

static void paused_body(void *state, uint32_t rank, uint32_t thread) {
    (void)thread;
    if (rank == PAUSED)
        pause_node(state);
    else if (rank == 0)
        call_both(state);
}

const struct sim_case sim_case_rpc_leaf_paused = {.object = "rpc",
                                                  .name = "leaf_paused",
                                                  .about =
                                                      "leaf calls to a node that pauses, and to another one",
                                                  .nodes = 3,
                                                  .threads = 1,
                                                  .state_bytes = sizeof(struct leaf_state),
                                                  .open = open_leaf,
                                                  .close = close_leaf,
                                                  .body = paused_body,
                                                  .has_own_fault = true};

/* ---- a node that is faulty ---- */

static int reply_malformed(void *ctx, const struct remo_rpc_request *request) {
    struct remo__rpc_turn *turn = request->state;
    (void)ctx;
    turn->is_replied = true;
    return remo__rpc_send_reply(turn->transport, turn->thread, turn->rpc, &turn->words,
                                REMO__RPC_REPLIED_IN_PLACE, 0, NULL, 0);
}

static void open_faulty(void *state, struct remo_node *node, uint32_t rank) {
    struct place *place = &((struct leaf_state *)state)->places[rank];
    const struct remo_rpc_handler handler = {.number = FAULTY, .run = reply_malformed};
    open_leaf(state, node, rank);
    sim_opened(remo_rpc_handle(place->service, &handler), "handle");
}

/* A call whose reply is malformed ends. Its slot is not used again, so the next call uses another one. */
static void faulty_body(void *state, uint32_t rank, uint32_t thread) {
    struct place *place = &((struct leaf_state *)state)->places[rank];
    place->calls[0] = (struct remo_rpc_op){.node = 1, .number = FAULTY};
    if (rank != 0 || thread != 0)
        return;
    int rc = remo__rpc_start_leaf(place->service, &place->calls[0]);
    uint32_t slot = place->calls[0].own.slot;
    if (rc == 0)
        rc = await_calls(place, 0, 1);
    sim_require(rc == -EPROTO && place->calls[0].fate == REMO_RPC_UNKNOWN, "a malformed reply: %d (%s)", rc,
                remo_last_error());
    rc = count_there(place, 1, 0, 1);
    sim_require(rc == 0 && place->calls[0].own.slot != slot, "the next call: %d (%s)", rc, remo_last_error());
}

const struct sim_case sim_case_rpc_leaf_faulty = {.object = "rpc",
                                                  .name = "leaf_faulty",
                                                  .about = "a leaf call whose reply is malformed",
                                                  .nodes = 2,
                                                  .threads = 1,
                                                  .state_bytes = sizeof(struct leaf_state),
                                                  .open = open_faulty,
                                                  .close = close_leaf,
                                                  .body = faulty_body,
                                                  .has_own_fault = true};
