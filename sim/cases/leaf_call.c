/* leaf_call.c - leaf calls: requests of one node to another start in the order of their calls, in any threads
 * and handlers, also if slots and rings are full. Each call ends, also in a LONG handler whose request has no
 * time left. */
#include "objects/leaf_call.h"

#include <errno.h>
#include <remo/task.h>
#include <string.h>

#include "channel/remote.h"
#include "sim/case.h"

#define FOREVER REMO_FOREVER
#define CALLS 3u   /* of each thread; two threads need more slots than there are */
#define THREADS 2u /* of each node */
#define CALLS_ALL ((CALLS + 1) * THREADS)
#define EXPIRED_NS 5000u /* timeout of the calls of LONG handlers */

enum handler { COUNT, LONG_COUNT };

struct leaf_state {
    struct place {
        struct remo_node *node;
        struct remo_rpc *service;
        uint32_t rank;
        struct remo__mutex mutex; /* held from the choice of a number to the start of its call */
        uint64_t started, executed[SIM_NODES_MAX]; /* the last number of this node, and of each caller here */
        uint64_t numbers[CALLS_ALL];
        struct remo_rpc_op calls[CALLS_ALL];
    } places[SIM_NODES_MAX];
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

/* Start call `index` to the other node. */
static int start(struct place *place, uint32_t index) {
    struct remo_rpc_op *call = &place->calls[index];
    (void)remo__mutex_lock(place->node, &place->mutex, REMO_FOREVER);
    place->numbers[index] = place->started + 1;
    *call = (struct remo_rpc_op){.node = 1 - place->rank,
                                 .number = COUNT,
                                 .request = &place->numbers[index],
                                 .request_bytes = sizeof place->numbers[index]};
    int rc = remo__rpc_start_leaf(place->service, call);
    place->started += rc == 0;
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

/* Start `count` calls from `first` on, and wait for them. Returns the first error. */
static int count_there(struct place *place, uint32_t first, uint32_t count) {
    struct wait wait = {place, first, count};
    int rc = 0;
    for (uint32_t i = 0; i < count && rc == 0; i++)
        rc = start(place, first + i);
    if (rc == 0)
        rc = remo__wait_attempt(place->node, have_ended, &wait, remo__deadline(place->node->op_timeout_ns));
    for (uint32_t i = 0; i < count; i++) {
        remo_rpc_cancel(&place->calls[first + i]); /* no effect, unless a call has failed */
        rc = rc != 0 ? rc : place->calls[first + i].status;
    }
    return rc;
}

/* A LONG handler: the request has the number of a thread of the caller. */
static int count_long(void *ctx, const struct remo_rpc_request *request) {
    struct place *place = ctx;
    uint32_t thread;
    memcpy(&thread, request->data, sizeof thread);
    while (remo_rpc_remaining_ns(place->service) > 0)
        (void)remo_task_sleep(place->node, EXPIRED_NS);
    return count_there(place, CALLS * THREADS + thread, 1);
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
    int rc = count_there(place, CALLS * thread, CALLS);
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
