/* rpc_service.c - implements rpc_service.h: handlers that reply in every way.
 * Each counts its runs in memory that all processes share. */
#include <stdlib.h>

#include "rpc_service.h"

static int count_run(struct service *service) {
    atomic_fetch_add(&service->shared->runs[service->rank], 1);
    return 0;
}

/* Reply with the data. */
static int echo(void *ctx, const struct remo_rpc_request *request) {
    count_run(ctx);
    return remo_rpc_reply(request, (int)(request->bytes % 100), request->data, request->bytes);
}

/* Add a number. The return value is the reply. */
static int add(void *ctx, const struct remo_rpc_request *request) {
    struct service *service = ctx;
    uint64_t number;
    count_run(service);
    if (request->bytes != sizeof number)
        return -EINVAL;
    memcpy(&number, request->data, sizeof number);
    atomic_fetch_add(&service->shared->sum[service->rank], number);
    return 7;
}

/* Keep the request, for a thread that replies later. */
static int keep(void *ctx, const struct remo_rpc_request *request) {
    struct service *service = ctx;
    count_run(service);
    uint32_t index = atomic_load(&service->kept_count);
    int rc = remo_rpc_defer(request, &service->kept[index % 64]);
    atomic_store(&service->kept_count, index + 1);
    return rc;
}

/* Reply, and try all ways that are refused. */
static int answer(void *ctx, const struct remo_rpc_request *request) {
    struct service *service = ctx;
    struct remo_rpc_deferred deferred;
    static const char large[REMO_RPC_BYTES_MAX + 1];
    int wrong = 0;
    count_run(service);
    wrong += remo_rpc_reply(request, 0, large, sizeof large) != -EMSGSIZE;
    wrong += remo_rpc_reply(request, 0, NULL, 1) != -EINVAL;
    wrong += remo_rpc_reply(NULL, 0, NULL, 0) != -EINVAL;
    wrong += remo_rpc_reply(request, 5, "five", 5) != 0;
    wrong += remo_rpc_reply(request, 6, "six", 4) != -EALREADY;
    wrong += remo_rpc_defer(request, &deferred) != -EALREADY;
    wrong += remo_rpc_forward(request, service->rank, ECHO, NULL, 0) != -EALREADY;
    wrong += remo_rpc_serve(service->rpc, 1) != -EDEADLK;
    wrong += remo_rpc_serve(service->rpc, 0) != 0; /* it serves nothing */
    wrong += remo_rpc_call(service->rpc, service->rank, ECHO, NULL, 0, NULL, 0, NULL, 0) != -EDEADLK;
    atomic_fetch_add(&service->shared->wrong_count, (uint64_t)wrong);
    return -EIO; /* not used: it has replied */
}

/* {u32 hops, u32 next handler, u32 nodes...}: forward to the first node, or act as the next handler. A next
 * handler that does not exist is called by the last forward. */
static int pass_on(void *ctx, const struct remo_rpc_request *request) {
    struct service *service = ctx;
    const uint32_t *words = request->data;
    uint32_t next[16];
    count_run(service);
    if (request->bytes < 8 || request->bytes > sizeof next)
        return -EINVAL;
    if (words[0] == 0)
        return words[1] == KEEP ? keep(ctx, request) : remo_rpc_reply(request, (int)service->rank, words, 4);
    memcpy(next, words, 8);
    next[0]--;
    memcpy(next + 2, words + 3, request->bytes - 12);
    uint32_t number = next[0] == 0 && words[1] >= HANDLERS ? words[1] : PASS_ON;
    return remo_rpc_forward(request, words[2], number, next, request->bytes - 4);
}

/* {u32 caller, u32 -, u64 number}: the numbers of each calling node come in order. */
static int record(void *ctx, const struct remo_rpc_request *request) {
    struct service *service = ctx;
    uint64_t number;
    count_run(service);
    memcpy(&number, (const char *)request->data + 8, sizeof number);
    _Atomic uint64_t *expected = &service->shared->expected[service->rank][request->node % NODES_MAX];
    if (atomic_load(expected) != number)
        atomic_fetch_add(&service->shared->wrong_count, 1);
    atomic_store(expected, number + 1);
    return 0;
}

/* A call of a handler, and the request that waits for it. */
struct circle_call {
    struct remo_rpc_op op;
    struct service *service;
    struct remo_rpc_deferred deferred;
    uint32_t word;
};

static void circle_done(struct remo_rpc_op *op) {
    struct circle_call *circle = op->ctx;
    int status = op->status < 0 ? op->status : op->status + 1;
    int rc = remo_rpc_reply_later(circle->service->rpc, circle->deferred, status, NULL, 0);
    if (rc != 0 && rc != -EALREADY && rc != -EHOSTDOWN)
        atomic_fetch_add(&circle->service->shared->wrong_count, 1);
    free(circle);
}

/* Call the same handler at the next node, until the depth is too large. The status is the number of calls. */
static int circle(void *ctx, const struct remo_rpc_request *request) {
    struct service *service = ctx;
    struct circle_call *circle = calloc(1, sizeof *circle);
    count_run(service);
    if (!circle)
        return -ENOMEM;
    circle->service = service;
    circle->op = (struct remo_rpc_op){.node = (service->rank + 1) % service->size,
                                      .number = CIRCLE,
                                      .request = &circle->word,
                                      .request_bytes = 4,
                                      .timeout_ns = REMO_FOREVER,
                                      .done = circle_done,
                                      .ctx = circle};
    /* The request is deferred before the call starts, because the call may end at once. */
    int rc = remo_rpc_defer(request, &circle->deferred);
    if (rc == 0)
        rc = remo_rpc_start(service->rpc, &circle->op);
    if (rc == 0)
        return 0;
    int status = rc == -ELOOP ? 0 : rc;
    rc = remo_rpc_reply_later(service->rpc, circle->deferred, status, NULL, 0);
    free(circle);
    return rc;
}

int service_open(struct remo_node *node, struct service_shared *shared, struct service *ret_service) {
    static const remo_rpc_handler_fn functions[HANDLERS] = {echo, add, keep, answer, pass_on, record, circle};
    struct remo_rpc_handler handlers[HANDLERS];
    struct remo_rpc_options options = {.handlers = handlers, .handler_count = HANDLERS};
    *ret_service =
        (struct service){.rank = remo_node_rank(node), .size = remo_node_size(node), .shared = shared};
    for (uint32_t i = 0; i < HANDLERS; i++)
        handlers[i] = (struct remo_rpc_handler){.number = i, .run = functions[i], .ctx = ret_service};
    CHECK_OK(remo_rpc_open(remo_node_root(node), "service", &options, &ret_service->rpc));
    CHECK_OK(remo_channel_wait(remo_rpc_channel(ret_service->rpc), LONG_TIME));
    CHECK_OK(cluster_meet()); /* a handler calls other nodes */
    return 0;
}
