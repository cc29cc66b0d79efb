/* rpc.c - remote procedure calls: every request is returned to its caller, which checks its number.
 * A node that does not operate serves in its thread until every caller has stopped; a sleeping one leaves the
 * requests to its service thread. The limit is the exchange of the same messages through bare slots. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/error.h"
#include "bench/bench.h"

#define BYTES_DEFAULT 32u
#define WINDOW_DEFAULT 16u
#define SERVE_NS (1 * REMO__NS_PER_MS) /* between two checks for the end */
#define THREAD_SHIFT 48                /* a request's number: the thread, and the number of its call */

static const char asleep[] = "asleep";       /* the server sleeps before each call */
static const char both_ways[] = "both ways"; /* each node calls the next one, and serves while it waits */
static const char forwarded[] = "forwarded"; /* the server forwards to the next node, which replies */
static const char nested[] = "depth 2";      /* the handler calls the caller's node, and then replies */
static const char deferred[] = "deferred";   /* the handler defers, and replies later */

enum handler { ECHO, FORWARD, NEST, DEFER, STOP, ECHO_LARGE, HANDLERS };

/* A call that a handler has started for the request of one calling thread. */
struct inner {
    struct remo_rpc_op op;
    struct remo_rpc_deferred outer;
    struct remo_rpc *rpc;
    char request[REMO_RPC_BYTES_MAX], reply[REMO_RPC_BYTES_MAX];
};

struct state {
    struct remo_rpc *rpc;
    struct bench_job *job;
    struct inner *inner;      /* one for each thread of the job */
    _Atomic uint32_t stopped; /* calling threads that have finished the point */
};

/* One call of a window, and its buffers. */
struct call {
    struct remo_rpc_op op;
    uint64_t number;
    uint64_t *request, *reply;
};

/* ---- points ---- */

static struct bench_point *add_point(struct bench_point **next, const struct bench_options *options,
                                     const char *variant, uint64_t bytes, uint32_t window) {
    struct bench_point *point = (*next)++;
    *point = (struct bench_point)BENCH_POINT_DEFAULT;
    point->variant = variant;
    point->bytes = options->bytes ? remo__min(remo__max(options->bytes, 8), REMO_RPC_LARGE_BYTES_MAX) : bytes;
    point->window = window;
    point->active = variant == both_ways ? options->nodes : bench_active(options);
    return point;
}

/* In the simulator a pause of the caller takes no time, so its server would not sleep. */
static uint32_t rpc_list(const struct bench_options *options, struct bench_point points[BENCH_POINTS_MAX]) {
    static const uint64_t other_sizes_bytes[] = {8, 256, 4096};
    uint32_t window = options->window ? options->window : WINDOW_DEFAULT;
    struct bench_point *next = points;
    if (window == 1 || !options->window) {
        add_point(&next, options, NULL, BYTES_DEFAULT, 1);
        for (size_t i = 0; i < REMO__ARRAY_COUNT(other_sizes_bytes) && !options->bytes; i++)
            add_point(&next, options, NULL, other_sizes_bytes[i], 1);
    }
    if (window > 1)
        add_point(&next, options, NULL, BYTES_DEFAULT, window);
    if (window == 1 || !options->window)
        add_point(&next, options, both_ways, BYTES_DEFAULT, 1);
    if (window > 1)
        add_point(&next, options, both_ways, BYTES_DEFAULT, window);
    if (options->window > 1 || options->bytes > REMO_RPC_BYTES_MAX)
        return (uint32_t)(next - points); /* the other handlers are SHORT */
#ifndef REMO_SIM
    add_point(&next, options, asleep, BYTES_DEFAULT, 1);
#endif
    add_point(&next, options, forwarded, BYTES_DEFAULT, 1);
    add_point(&next, options, nested, BYTES_DEFAULT, 1);
    add_point(&next, options, deferred, BYTES_DEFAULT, 1);
    return (uint32_t)(next - points);
}

static uint32_t handler_of(const struct bench_point *point) {
    if (point->variant == forwarded)
        return FORWARD;
    if (point->variant == nested)
        return NEST;
    if (point->variant == deferred)
        return DEFER;
    return point->bytes > REMO_RPC_BYTES_MAX ? ECHO_LARGE : ECHO;
}

/* ---- the server ---- */

static int run_echo(void *ctx, const struct remo_rpc_request *request) {
    (void)ctx;
    return remo_rpc_reply(request, 0, request->data, request->bytes);
}

static int run_forward(void *ctx, const struct remo_rpc_request *request) {
    const struct state *state = ctx;
    return remo_rpc_forward(request, bench_target(state->job), ECHO, request->data, request->bytes);
}

static int run_defer(void *ctx, const struct remo_rpc_request *request) {
    const struct state *state = ctx;
    struct remo_rpc_deferred later;
    int rc = remo_rpc_defer(request, &later);
    return rc != 0 ? rc : remo_rpc_reply_later(state->rpc, later, 0, request->data, request->bytes);
}

static void inner_done(struct remo_rpc_op *op) {
    struct inner *inner = op->ctx;
    (void)remo_rpc_reply_later(inner->rpc, inner->outer, op->status, inner->reply, op->reply_bytes);
}

static int run_nest(void *ctx, const struct remo_rpc_request *request) {
    const struct state *state = ctx;
    uint64_t number;
    memcpy(&number, request->data, sizeof number);
    struct inner *inner =
        &state->inner[request->node * state->job->options->threads + (uint32_t)(number >> THREAD_SHIFT)];
    memcpy(inner->request, request->data, request->bytes);
    inner->rpc = state->rpc;
    inner->op = (struct remo_rpc_op){.node = request->node,
                                     .number = ECHO,
                                     .request = inner->request,
                                     .request_bytes = request->bytes,
                                     .reply = inner->reply,
                                     .reply_cap = sizeof inner->reply,
                                     .timeout_ns = REMO_FOREVER,
                                     .done = inner_done,
                                     .ctx = inner};
    int rc = remo_rpc_defer(request, &inner->outer);
    if (rc != 0)
        return rc;
    rc = remo_rpc_start(state->rpc, &inner->op);
    return rc == 0 ? 0 : remo_rpc_reply_later(state->rpc, inner->outer, rc, NULL, 0);
}

static int run_stop(void *ctx, const struct remo_rpc_request *request) {
    struct state *state = ctx;
    (void)request;
    atomic_fetch_add(&state->stopped, 1);
    return 0;
}

/* Serve until every calling thread has stopped. */
static int rpc_attend(struct bench_thread *thread) {
    struct state *state = thread->job->state;
    uint32_t callers = thread->job->point->active * thread->job->options->threads;
    int rc = 0;
    if (thread->job->point->variant == asleep)
        return 0;
    while (rc == 0 && atomic_load(&state->stopped) < callers)
        rc = remo_rpc_serve(state->rpc, SERVE_NS);
    atomic_fetch_sub(&state->stopped, callers);
    return rc;
}

/* ---- the job ---- */

static int rpc_open(struct bench_job *job) {
    struct state *state = calloc(1, sizeof *state);
    if (!state)
        return remo__fail(-ENOMEM, "no memory for the benchmark");
    job->state = state;
    state->job = job;
    state->inner = calloc((size_t)job->size * job->options->threads, sizeof *state->inner);
    if (!state->inner)
        return remo__fail(-ENOMEM, "no memory for the benchmark");
    const struct remo_rpc_handler handlers[HANDLERS] = {
        {ECHO, run_echo, state, REMO_RPC_SHORT}, {FORWARD, run_forward, state, REMO_RPC_SHORT},
        {NEST, run_nest, state, REMO_RPC_SHORT}, {DEFER, run_defer, state, REMO_RPC_SHORT},
        {STOP, run_stop, state, REMO_RPC_SHORT}, {ECHO_LARGE, run_echo, state, REMO_RPC_LONG}};
    struct remo_rpc_options options = {.handlers = handlers, .handler_count = HANDLERS};
    return remo_rpc_open(job->channel, "rpc", &options, &state->rpc);
}

static void rpc_close(struct bench_job *job) {
    struct state *state = job->state;
    if (!state)
        return;
    remo_rpc_close(state->rpc);
    free(state->inner);
    free(state);
    job->state = NULL;
}

static int rpc_begin(struct bench_thread *thread) {
    const struct bench_point *point = thread->job->point;
    size_t buffer_bytes = remo__align_up(point->bytes, REMO__CACHE_LINE);
    size_t calls_bytes = remo__align_up(point->window * sizeof(struct call), REMO__CACHE_LINE);
    size_t all_bytes = calls_bytes + 2 * point->window * buffer_bytes;
    struct call *calls = aligned_alloc(REMO__CACHE_LINE, all_bytes);
    if (!calls)
        return remo__fail(-ENOMEM, "no memory for %u calls", point->window);
    memset(calls, 0, all_bytes);
    thread->state = calls;
    for (uint32_t i = 0; i < point->window; i++) {
        char *buffers = (char *)calls + calls_bytes + 2 * i * buffer_bytes;
        calls[i].request = (uint64_t *)(void *)buffers;
        calls[i].reply = (uint64_t *)(void *)(buffers + buffer_bytes);
        calls[i].op = (struct remo_rpc_op){.node = thread->target,
                                           .number = handler_of(point),
                                           .request = calls[i].request,
                                           .request_bytes = point->bytes,
                                           .reply = calls[i].reply,
                                           .reply_cap = point->bytes,
                                           .timeout_ns = REMO_FOREVER};
    }
    return 0;
}

static int report_stop(const struct bench_thread *thread) {
    const struct state *state = thread->job->state;
    int rc = 0;
    for (uint32_t node = thread->job->point->active; node < thread->job->size && rc == 0; node++)
        rc = remo_rpc_call(state->rpc, node, STOP, NULL, 0, NULL, 0, NULL, REMO_FOREVER);
    return rc;
}

static int rpc_finish(struct bench_thread *thread) {
    bool operates = thread->job->rank < thread->job->point->active;
    int rc = operates && thread->job->point->variant != asleep ? report_stop(thread) : 0;
    free(thread->state);
    thread->state = NULL;
    return rc;
}

/* ---- the caller ---- */

static void prepare_call(struct bench_thread *thread, struct call *call) {
    call->number = ((uint64_t)thread->index << THREAD_SHIFT) + ++thread->number;
    call->request[0] = call->number;
}

static int check_reply(const struct bench_thread *thread, const struct call *call, size_t bytes) {
    if (call->reply[0] == call->number && bytes == thread->job->point->bytes)
        return 0;
    return remo__fail(-EIO, "the benchmark is wrong: reply %llu of %zu bytes to call %llu of %llu bytes",
                      (unsigned long long)call->reply[0], bytes, (unsigned long long)call->number,
                      (unsigned long long)thread->job->point->bytes);
}

static int call_once(struct bench_thread *thread) {
    const struct state *state = thread->job->state;
    struct call *call = thread->state;
    size_t bytes = 0;
    prepare_call(thread, call);
    int rc = remo_rpc_call(state->rpc, call->op.node, call->op.number, call->request, call->op.request_bytes,
                           call->reply, call->op.reply_cap, &bytes, REMO_FOREVER);
    return rc != 0 ? rc : check_reply(thread, call, bytes);
}

static int wait_for(const struct bench_thread *thread, struct call *call) {
    int rc = remo_rpc_wait(&call->op);
    return rc != 0 ? rc : check_reply(thread, call, call->op.reply_bytes);
}

/* Keep the window full, and wait for the oldest call; at the end wait for all. After an error, the other
 * calls are cancelled, because they use memory of this thread. */
static int call_in_window(struct bench_thread *thread, uint64_t operations) {
    const struct state *state = thread->job->state;
    uint32_t window = thread->job->point->window;
    struct call *calls = thread->state;
    uint64_t started = 0, ended = 0;
    int rc = 0;
    while (rc == 0 && ended < operations) {
        if (started == operations || started - ended == window) {
            rc = wait_for(thread, &calls[ended++ % window]);
            continue;
        }
        prepare_call(thread, &calls[started % window]);
        rc = remo_rpc_start(state->rpc, &calls[started % window].op);
        started += rc == 0;
    }
    for (; ended < started; ended++)
        remo_rpc_cancel(&calls[ended % window].op);
    return rc;
}

/* A pause lets the threads of the server sleep; it is not counted. */
static void pause_before_call(struct bench_thread *thread) {
    static const struct timespec pause = {.tv_nsec = LIMIT_WAKE_PAUSE_NS};
    uint64_t start_ns = remo__now_ns();
    nanosleep(&pause, NULL);
    thread->paused_ns += remo__now_ns() - start_ns;
}

static int rpc_operate(struct bench_thread *thread, uint64_t operations) {
    const struct bench_point *point = thread->job->point;
    int rc = 0;
    if (point->window > 1)
        return call_in_window(thread, operations);
    for (uint64_t i = 0; i < operations && rc == 0; i++) {
        if (point->variant == asleep)
            pause_before_call(thread);
        rc = call_once(thread);
    }
    return rc;
}

/* ---- the limit ---- */

/* The caller of a sleeping server can poll. A call at depth 2 is two exchanges. With two nodes the forwarded
 * request returns to the caller's node, so a forwarded call costs one exchange; with more nodes, more. */
static double rpc_limit(struct bench_job *job, char ret_name[LIMIT_NAME_BYTES]) {
    const struct bench_point *point = job->point;
    char name[LIMIT_NAME_BYTES];
    int a = bench_cpu(job->options, 0, 0), b = bench_cpu(job->options, 1, 0);
    uint32_t exchanges = point->variant == nested ? 2 : 1;
    if (point->variant == asleep) {
        snprintf(ret_name, LIMIT_NAME_BYTES, "%s", LIMIT_WAKE_POLLED);
        return limit_wake_polled_ns(bench_scratch(job), a, b);
    }
    limit_exchange_name(point->bytes, point->window, name);
    snprintf(ret_name, LIMIT_NAME_BYTES, "%s%.*s", exchanges > 1 ? "2 x " : "", LIMIT_NAME_BYTES - 5, name);
    return exchanges * limit_exchange_ns(point->bytes, point->window, a, b);
}

const struct bench bench_rpc = {
    .name = "rpc",
    .object = "rpc",
    .description = "call a handler that returns the request: sizes, a window, a sleeping server, both ways, "
                   "forwarded, depth 2, deferred",
    .list = rpc_list,
    .open = rpc_open,
    .close = rpc_close,
    .begin = rpc_begin,
    .finish = rpc_finish,
    .operate = rpc_operate,
    .attend = rpc_attend,
    .network = BENCH_NETWORK_READ,
    .limit = rpc_limit,
};
