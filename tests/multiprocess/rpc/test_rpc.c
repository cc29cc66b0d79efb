/* test_rpc.c - remote procedure calls between real nodes: data of every size, order, costs, deferred and
 * forwarded replies, a busy thread that serves, calls with `done`, cycles of handlers, wrong arguments. */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "rpc_service.h"

static struct service_shared *shared;

static void fill(unsigned char *data, size_t bytes, uint64_t seed) {
    for (size_t i = 0; i < bytes; i++)
        data[i] = (unsigned char)(seed * 31 + i * 7 + i / 256);
}

static int finish(struct service *service) {
    CHECK_OK(cluster_meet());
    CHECK_EQUAL(atomic_load(&shared->wrong_count), 0);
    remo_rpc_close(service->rpc);
    CHECK_OK(cluster_meet());
    return 0;
}

/* ---- data ---- */

static int call_echo(struct service *service, uint32_t node, size_t bytes, uint64_t seed) {
    unsigned char request[REMO_RPC_BYTES_MAX], reply[REMO_RPC_BYTES_MAX];
    size_t reply_bytes = 12345;
    fill(request, bytes, seed);
    memset(reply, 0x55, sizeof reply);
    CHECK_CODE(
        remo_rpc_call(service->rpc, node, ECHO, request, bytes, reply, sizeof reply, &reply_bytes, LONG_TIME),
        (int)(bytes % 100));
    CHECK_EQUAL(reply_bytes, bytes);
    CHECK(memcmp(request, reply, bytes) == 0);
    return 0;
}

static int sizes(struct remo_node *node, void *ctx) {
    struct service service;
    (void)ctx;
    CHECK(service_open(node, shared, &service) == 0);
    for (size_t bytes = 0; bytes <= REMO_RPC_BYTES_MAX; bytes += bytes < 200 ? 1 : 37)
        for (uint32_t to = 0; to < service.size; to++)
            CHECK(call_echo(&service, to, bytes, bytes + to) == 0);
    for (uint32_t to = 0; to < service.size; to++)
        CHECK(call_echo(&service, to, REMO_RPC_BYTES_MAX, to) == 0);
    return finish(&service);
}

/* ---- threads: each calls every node, and is served by threads that wait too ---- */

#define CALLS 2000u

struct caller {
    struct service *service;
    uint64_t index;
    int result;
};

static void *call_many(void *ctx) {
    struct caller *caller = ctx;
    for (uint64_t i = 0; i < CALLS && caller->result == 0; i++) {
        uint64_t number = caller->index * CALLS + i;
        uint32_t to = (uint32_t)(number % caller->service->size);
        int rc =
            remo_rpc_call(caller->service->rpc, to, ADD, &number, sizeof number, NULL, 0, NULL, LONG_TIME);
        caller->result =
            rc == 7 ? 0 : cluster_fail(__FILE__, __LINE__, "call %llu: %d", (unsigned long long)i, rc);
        if (caller->result == 0 && i % 50 == 0)
            caller->result = call_echo(caller->service, to, (size_t)(number % 3000), number);
    }
    return NULL;
}

static int threads(struct remo_node *node, void *ctx) {
    enum { THREADS = 3 };
    struct service service;
    struct caller callers[THREADS];
    pthread_t ids[THREADS];
    uint64_t total = 0;
    (void)ctx;
    CHECK(service_open(node, shared, &service) == 0);
    for (uint32_t i = 0; i < THREADS; i++) {
        callers[i] = (struct caller){.service = &service, .index = service.rank * THREADS + i};
        CHECK(pthread_create(&ids[i], NULL, call_many, &callers[i]) == 0);
    }
    for (uint32_t i = 0; i < THREADS; i++)
        pthread_join(ids[i], NULL);
    for (uint32_t i = 0; i < THREADS; i++)
        CHECK(callers[i].result == 0);
    CHECK_OK(cluster_meet());
    for (uint32_t i = 0; i < service.size; i++)
        total += atomic_load(&shared->sum[i]);
    uint64_t count = (uint64_t)THREADS * service.size * CALLS;
    CHECK_EQUAL(total, count * (count - 1) / 2); /* each number once */
    return finish(&service);
}

/* ---- order ---- */

static int post_number(struct service *service, uint32_t to, uint64_t number) {
    uint64_t data[128] = {service->rank, number};
    return remo_rpc_post(service->rpc, to, RECORD, data, number % 5 == 0 ? sizeof data : 16);
}

/* Posts and calls of one thread start in order, also if they wait for room. */
static int order(struct remo_node *node, void *ctx) {
    struct service service;
    enum { WINDOW = 100 };
    static struct remo_rpc_op ops[WINDOW];
    uint64_t data[WINDOW][2];
    (void)ctx;
    CHECK(service_open(node, shared, &service) == 0);
    uint32_t to = (service.rank + 1) % service.size;
    for (uint64_t number = 0; number < 5000;) {
        for (uint32_t i = 0; i < 200; i++)
            CHECK_OK(post_number(&service, to, number++));
        for (uint32_t i = 0; i < WINDOW; i++) {
            data[i][0] = service.rank;
            data[i][1] = number++;
            ops[i] = (struct remo_rpc_op){.node = to,
                                          .number = RECORD,
                                          .request = data[i],
                                          .request_bytes = 16,
                                          .timeout_ns = REMO_FOREVER};
            CHECK_OK(remo_rpc_start(service.rpc, &ops[i]));
        }
        for (uint32_t i = 0; i < WINDOW; i++)
            CHECK_OK(remo_rpc_wait(&ops[i]));
    }
    CHECK_EQUAL(atomic_load(&shared->expected[to][service.rank]), 5100);
    return finish(&service);
}

/* ---- several calls ---- */

#define OUTER_CALLS 320u /* in flight from one node, outside handlers */

/* The first call is queued, because the others have all slots: the wait for all takes their replies. */
static int wait_for_all(struct service *service) {
    static struct remo_rpc_op ops[OUTER_CALLS + 1];
    struct remo_rpc_op *calls[OUTER_CALLS + 1];
    for (uint32_t i = OUTER_CALLS; i <= OUTER_CALLS; i--) {
        calls[i] = &ops[i];
        ops[i] = (struct remo_rpc_op){.node = i == 0 ? 1 : 2, .number = ECHO, .timeout_ns = LONG_TIME};
        CHECK_OK(remo_rpc_start(service->rpc, calls[i]));
    }
    CHECK_OK(remo_rpc_wait_all(calls, OUTER_CALLS + 1));
    for (uint32_t i = 0; i <= OUTER_CALLS; i++)
        CHECK(calls[i]->status == 0 && calls[i]->fate == REMO_RPC_DONE);
    CHECK_OK(remo_rpc_wait_all(calls, 2)); /* they have ended */
    ops[0] = (struct remo_rpc_op){.node = 1, .number = KEEP, .timeout_ns = SECOND / 100};
    ops[1] = (struct remo_rpc_op){.node = 2, .number = ECHO, .timeout_ns = LONG_TIME};
    CHECK_OK(remo_rpc_start(service->rpc, calls[0]));
    CHECK_OK(remo_rpc_start(service->rpc, calls[1]));
    CHECK_OK(remo_rpc_wait_all(calls, 2));
    CHECK_CODE(calls[0]->status, -ETIMEDOUT);
    CHECK_CODE(calls[1]->status, 0);
    CHECK_OK(remo_rpc_wait_all(NULL, 0));
    CHECK_SENTENCE(remo_rpc_wait_all(NULL, 1), -EINVAL, "is NULL");
    calls[1] = NULL;
    CHECK_CODE(remo_rpc_wait_all(calls, 2), -EINVAL);
    return 0;
}

/* Node 1 keeps the first call, and replies to none. The timeout of a call does not end it here. */
static int wait_for_any(struct service *service) {
    struct remo_rpc_op ops[3] = {{.node = 1, .number = KEEP, .timeout_ns = SECOND / 2},
                                 {.node = 2, .number = ECHO, .timeout_ns = LONG_TIME},
                                 {.node = 1, .number = ECHO, .timeout_ns = LONG_TIME}};
    struct remo_rpc_op *calls[3] = {&ops[0], &ops[1], &ops[2]};
    CHECK_OK(remo_rpc_start(service->rpc, calls[0]));
    CHECK_CODE(remo_rpc_wait_any(calls, 1, SECOND * 6 / 10), -EINPROGRESS);
    CHECK(ops[0].fate == REMO_RPC_IN_FLIGHT);
    CHECK_OK(remo_rpc_start(service->rpc, calls[1]));
    CHECK_CODE(remo_rpc_wait_any(calls, 2, LONG_TIME), 1);
    CHECK(ops[1].status == 0 && ops[1].fate == REMO_RPC_DONE && ops[0].fate == REMO_RPC_IN_FLIGHT);
    CHECK_CODE(remo_rpc_wait_any(calls, 2, 0), 1); /* it has ended */
    CHECK_OK(remo_rpc_start(service->rpc, calls[2]));
    CHECK_OK(remo_rpc_wait(calls[2]));
    CHECK_CODE(remo_rpc_wait_any(calls, 3, 0), 1); /* the first in the list */
    CHECK_SENTENCE(remo_rpc_wait_any(calls, 0, 0), -EINVAL, "give 1");
    remo_rpc_cancel(calls[0]);
    calls[1] = NULL;
    CHECK_CODE(remo_rpc_wait_any(calls, 2, 0), -EINVAL);
    return 0;
}

static int waits_for_all(struct remo_node *node, void *ctx) {
    struct service service;
    (void)ctx;
    CHECK(service_open(node, shared, &service) == 0);
    if (service.rank == 0) {
        CHECK(wait_for_any(&service) == 0);
        CHECK(wait_for_all(&service) == 0);
    }
    return finish(&service);
}

/* ---- costs ---- */

static int costs(struct remo_node *node, void *ctx) {
    struct service service;
    struct remo_rpc_handler_stats stats;
    unsigned char data[REMO_RPC_BYTES_MAX] = "";
    (void)ctx;
    CHECK(service_open(node, shared, &service) == 0);
    struct remo_channel *channel = remo_rpc_channel(service.rpc);
    CHECK_OK(cluster_meet());
    if (service.rank == 0) {
        CHECK_COST(channel, CHECK(call_echo(&service, 1, 32, 1) == 0), 0, 1, 0, 1);
        CHECK_COST(channel, CHECK(call_echo(&service, 1, REMO_RPC_BYTES_MAX, 1) == 0), 0, 1, 0, 1);
        for (uint32_t i = 0; i < 2000; i++)
            CHECK_COST(channel, CHECK(call_echo(&service, 1, 8, i) == 0), 0, 1, 0, 1);
        CHECK_COST(channel, CHECK_OK(remo_rpc_post(service.rpc, 1, ECHO, data, 64)), 0, 1, 0, 1);
        uint32_t words[3] = {1, ECHO, 2};
        CHECK_COST(
            channel,
            CHECK_CODE(remo_rpc_call(service.rpc, 1, PASS_ON, words, sizeof words, NULL, 0, NULL, LONG_TIME),
                       2),
            0, 1, 0, 1);
        CHECK_OK(cluster_meet());
    } else {
        CHECK_OK(cluster_meet());
        /* 2002 replies; a forward is a request and a note; the last node replies */
        struct remo_stats net;
        CHECK_REACHES(remo_channel_stats(channel, &net), net.writes, service.rank == 1 ? 2004 : 1);
        CHECK_EQUAL(net.imms, net.writes);
        CHECK_EQUAL(net.reads + net.atomics, 0);
    }
    CHECK_OK(remo_rpc_stats(service.rpc, ECHO, &stats));
    CHECK_EQUAL(stats.requests, service.rank == 1 ? 2003 : 0);
    CHECK_EQUAL(stats.errors, service.rank == 1 ? 1 : 0); /* a reply to the post */
    CHECK_OK(remo_rpc_stats(service.rpc, PASS_ON, &stats));
    CHECK_EQUAL(stats.forwarded, service.rank == 1 ? 1 : 0);
    CHECK_CODE(remo_rpc_stats(service.rpc, HANDLERS, &stats), -ENOENT);
    return finish(&service);
}

/* ---- deferred replies ---- */

static int await_kept(struct service *service, uint32_t count) {
    while (atomic_load(&service->kept_count) < count)
        CHECK_OK(remo_rpc_serve(service->rpc, SECOND / 1000));
    return 0;
}

static int deferred(struct remo_node *node, void *ctx) {
    struct service service;
    struct remo_rpc_op ops[16];
    char replies[16][8];
    (void)ctx;
    CHECK(service_open(node, shared, &service) == 0);
    if (service.rank == 0) {
        for (uint32_t i = 0; i < 16; i++) {
            ops[i] = (struct remo_rpc_op){
                .node = 1, .number = KEEP, .reply = replies[i], .reply_cap = 8, .timeout_ns = REMO_FOREVER};
            CHECK_OK(remo_rpc_start(service.rpc, &ops[i]));
            CHECK_CODE(remo_rpc_start(service.rpc, &ops[i]), -EBUSY);
            CHECK_CODE(remo_rpc_test(&ops[i]), -EINPROGRESS);
        }
        CHECK_OK(cluster_meet());
        for (uint32_t i = 0; i < 16; i++) {
            CHECK_CODE(remo_rpc_wait(&ops[15 - i]), (int)(15 - i));
            CHECK_EQUAL(ops[15 - i].fate, REMO_RPC_DONE);
            CHECK_EQUAL(ops[15 - i].reply_bytes, 8);
            CHECK(memcmp(replies[15 - i], "deferred", 8) == 0);
        }
    } else {
        CHECK(await_kept(&service, 16) == 0);
        CHECK_OK(cluster_meet());
        for (uint32_t i = 16; i-- > 0;) {
            CHECK_OK(remo_rpc_reply_later(service.rpc, service.kept[i], (int)i, "deferred", 8));
            CHECK_CODE(remo_rpc_reply_later(service.rpc, service.kept[i], 0, NULL, 0), -EALREADY);
        }
        CHECK_CODE(remo_rpc_reply_later(service.rpc, service.kept[0], 0, NULL, 1), -EINVAL);
        struct remo_rpc_deferred wrong = {{UINT64_MAX, UINT64_MAX}};
        CHECK_CODE(remo_rpc_reply_later(service.rpc, wrong, 0, NULL, 0), -EINVAL);
    }
    return finish(&service);
}

/* ---- a busy thread ---- */

#define BUSY HANDLERS

static pthread_t busy_thread;
static bool is_busy;   /* of this node; only the busy thread changes it */
static bool was_found; /* the busy thread has served; the same */

/* The status: 1: the busy thread serves, 0: another one. */
static int whether_busy(void *ctx, const struct remo_rpc_request *request) {
    (void)ctx, (void)request;
    if (!pthread_equal(pthread_self(), busy_thread) || !is_busy)
        return 0;
    was_found = true;
    return 1;
}

/* On one processor the busy thread does not run while a caller waits for it. */
static bool has_processors(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 1;
}

static int open_busy(struct remo_node *node, struct service *ret_service) {
    const struct remo_rpc_handler handler = {.number = BUSY, .run = whether_busy};
    busy_thread = pthread_self();
    CHECK(service_open(node, shared, ret_service) == 0);
    CHECK_OK(remo_rpc_handle(ret_service->rpc, &handler));
    CHECK_OK(cluster_meet());
    return 0;
}

/* A thread serves between other work, and stops doing so without notice. Calls end before and after. */
static int busy(struct remo_node *node, void *ctx) {
    struct service service;
    (void)ctx;
    CHECK(open_busy(node, &service) == 0);
    if (service.rank == 1) {
        is_busy = true;
        while (atomic_load(&shared->sum[0]) == 0)
            CHECK_OK(remo_rpc_serve(service.rpc, 0));
        is_busy = false;
    } else {
        int rc;
        do {
            rc = remo_rpc_call(service.rpc, 1, BUSY, NULL, 0, NULL, 0, NULL, LONG_TIME);
            CHECK(rc == 0 || rc == 1);
        } while (rc == 0 && has_processors());
        atomic_store(&shared->sum[0], 1);
        for (uint32_t i = 0; i < 20; i++)
            CHECK(remo_rpc_call(service.rpc, 1, BUSY, NULL, 0, NULL, 0, NULL, LONG_TIME) >= 0);
    }
    CHECK_OK(cluster_meet());
    return finish(&service);
}

/* A call of this node to itself, which starts again until the program stops it. */
struct endless {
    struct remo_rpc *rpc;
    struct remo_rpc_op op;
    _Atomic bool must_stop, has_ended;
};

static void start_again(struct remo_rpc_op *op) {
    struct endless *endless = op->ctx;
    if (atomic_load(&endless->must_stop) || remo_rpc_start(endless->rpc, op) != 0)
        atomic_store(&endless->has_ended, true);
}

/* Each poll of the caller finds a request. The caller still wakes the other node. */
static int call_in_flood(struct service *service) {
    static struct endless endless;
    endless = (struct endless){.rpc = service->rpc,
                               .op = {.node = service->rank,
                                      .number = BUSY,
                                      .timeout_ns = REMO_FOREVER,
                                      .done = start_again,
                                      .ctx = &endless}};
    CHECK_OK(remo_rpc_start(service->rpc, &endless.op));
    int rc = remo_rpc_call(service->rpc, 1, BUSY, NULL, 0, NULL, 0, NULL, LONG_TIME);
    atomic_store(&endless.must_stop, true);
    while (!atomic_load(&endless.has_ended))
        CHECK_OK(remo_rpc_serve(service->rpc, 0));
    CHECK_CODE(rc, 0);
    return 0;
}

/* A thread that served between other work stops, while its caller serves without a pause. */
static int busy_caller(struct remo_node *node, void *ctx) {
    struct service service;
    int rc;
    (void)ctx;
    CHECK(open_busy(node, &service) == 0);
    if (service.rank == 1) {
        is_busy = true;
        while (!was_found && atomic_load(&shared->sum[0]) == 0)
            CHECK_OK(remo_rpc_serve(service.rpc, 0));
        cluster_sleep_ms(10); /* a wake-up that was sent arrives, and the thread serves again */
        CHECK_OK(remo_rpc_serve(service.rpc, 0));
        is_busy = false;
    } else {
        do {
            rc = remo_rpc_call(service.rpc, 1, BUSY, NULL, 0, NULL, 0, NULL, LONG_TIME);
            CHECK(rc == 0 || rc == 1);
        } while (rc == 0 && has_processors());
        atomic_store(&shared->sum[0], 1);
    }
    CHECK_OK(cluster_meet());
    if (service.rank == 0)
        CHECK(call_in_flood(&service) == 0);
    CHECK_OK(cluster_meet());
    return finish(&service);
}

/* ---- forwarding ---- */

static int forwarding(struct remo_node *node, void *ctx) {
    struct service service;
    uint32_t first = 99;
    size_t bytes;
    (void)ctx;
    CHECK(service_open(node, shared, &service) == 0);
    for (uint32_t round = 0; round < 300; round++)
        for (uint32_t hops = 0; hops <= 4; hops++) {
            uint32_t words[6] = {hops, ECHO};
            uint32_t to = (service.rank + round) % service.size, last = to;
            for (uint32_t i = 0; i < hops; i++)
                words[2 + i] = last = (service.rank + round * (i + 2)) % service.size;
            int rc =
                remo_rpc_call(service.rpc, to, PASS_ON, words, 8 + 4 * hops, &first, 4, &bytes, LONG_TIME);
            CHECK_CODE(rc, hops < 4 ? (int)last : -ELOOP); /* a call has depth 1 */
            CHECK_EQUAL(first, 0);
        }
    return finish(&service);
}

/* ---- done ---- */

#define DONE_WINDOW 700u /* more than there are slots */

struct done_calls {
    struct service *service;
    struct remo_rpc_op ops[DONE_WINDOW];
    uint64_t numbers[DONE_WINDOW];
    _Atomic uint64_t started, ended;
    _Atomic uint32_t wrong_count;
};

static void restart(struct remo_rpc_op *op) {
    struct done_calls *calls = op->ctx;
    uint64_t number = atomic_fetch_add(&calls->started, 1);
    if (op->status != 7 || op->fate != REMO_RPC_DONE)
        atomic_fetch_add(&calls->wrong_count, 1);
    calls->numbers[op - calls->ops] = number;
    if (number < 20 * DONE_WINDOW && remo_rpc_start(calls->service->rpc, op) != 0)
        atomic_fetch_add(&calls->wrong_count, 1);
    atomic_fetch_add(&calls->ended, 1);
}

/* Calls are started again in `done`. No thread of the program serves: the service thread does all. */
static int done(struct remo_node *node, void *ctx) {
    struct service service;
    static struct done_calls calls;
    (void)ctx;
    CHECK(service_open(node, shared, &service) == 0);
    calls.service = &service;
    atomic_store(&calls.started, DONE_WINDOW);
    for (uint32_t i = 0; i < DONE_WINDOW; i++) {
        calls.numbers[i] = i;
        calls.ops[i] = (struct remo_rpc_op){.node = i % service.size,
                                            .number = ADD,
                                            .request = &calls.numbers[i],
                                            .request_bytes = 8,
                                            .timeout_ns = i % 2 ? REMO_FOREVER : LONG_TIME,
                                            .done = restart,
                                            .ctx = &calls};
        CHECK_OK(remo_rpc_start(service.rpc, &calls.ops[i]));
    }
    while (atomic_load(&calls.ended) < 20 * DONE_WINDOW)
        cluster_sleep_ms(1);
    CHECK_CODE(remo_rpc_wait(&calls.ops[0]), -EINVAL); /* no other thread uses the call any more */
    CHECK_CODE(remo_rpc_test(&calls.ops[0]), -EINVAL);
    CHECK_EQUAL(atomic_load(&calls.wrong_count), 0);
    CHECK_OK(cluster_meet());
    uint64_t total = 0, count = 20 * DONE_WINDOW;
    for (uint32_t i = 0; i < service.size; i++)
        total += atomic_load(&shared->sum[i]);
    CHECK_EQUAL(total, service.size * (count * (count - 1) / 2));
    return finish(&service);
}

/* Handlers call each other in a cycle, in all windows at once. */
static int circles(struct remo_node *node, void *ctx) {
    struct service service;
    enum { WINDOW = 200 };
    static struct remo_rpc_op ops[WINDOW];
    (void)ctx;
    CHECK(service_open(node, shared, &service) == 0);
    for (uint32_t round = 0; round < 5; round++) {
        for (uint32_t i = 0; i < WINDOW; i++) {
            ops[i] =
                (struct remo_rpc_op){.node = i % service.size, .number = CIRCLE, .timeout_ns = REMO_FOREVER};
            CHECK_OK(remo_rpc_start(service.rpc, &ops[i]));
        }
        for (uint32_t i = 0; i < WINDOW; i++)
            CHECK_CODE(remo_rpc_wait(&ops[i]), REMO_RPC_DEPTH_MAX - 1);
    }
    return finish(&service);
}

/* ---- wrong arguments ---- */

static int wrong_calls(struct service *service) {
    static const char data[REMO_RPC_BYTES_MAX + 1];
    char reply[8];
    size_t bytes = 0;
    struct remo_rpc *rpc = service->rpc;
    struct remo_rpc_op op = {.node = 1, .number = ECHO, .timeout_ns = REMO_FOREVER};
    CHECK_SENTENCE(remo_rpc_call(rpc, 1, 63, NULL, 0, NULL, 0, NULL, LONG_TIME), -ENOSYS, "no handler 63");
    CHECK_CODE(remo_rpc_call(rpc, 1, 64, NULL, 0, NULL, 0, NULL, LONG_TIME), -EINVAL);
    CHECK_CODE(remo_rpc_call(rpc, 2, ECHO, NULL, 0, NULL, 0, NULL, LONG_TIME), -EINVAL);
    CHECK_CODE(remo_rpc_call(rpc, 1, ECHO, NULL, 1, NULL, 0, NULL, LONG_TIME), -EINVAL);
    CHECK_SENTENCE(remo_rpc_call(rpc, 1, ECHO, data, sizeof data, NULL, 0, NULL, LONG_TIME), -EMSGSIZE,
                   "4096");
    CHECK_SENTENCE(remo_rpc_call(rpc, 1, ECHO, data, 100, reply, sizeof reply, &bytes, LONG_TIME), -EMSGSIZE,
                   "100 bytes");
    CHECK_EQUAL(bytes, 100);
    CHECK_CODE(remo_rpc_call(rpc, 1, ADD, data, 3, NULL, 0, NULL, LONG_TIME), -EINVAL); /* of the handler */
    CHECK_CODE(remo_rpc_call(rpc, 1, ANSWER, NULL, 0, reply, sizeof reply, &bytes, LONG_TIME), 5);
    CHECK(bytes == 5 && strcmp(reply, "five") == 0);
    CHECK_CODE(remo_rpc_wait(&op), -EINVAL);
    CHECK_CODE(remo_rpc_test(&op), -EINVAL);
    remo_rpc_cancel(&op);
    remo_rpc_cancel(NULL);
    op.number = 63;
    CHECK_OK(remo_rpc_start(rpc, &op));
    CHECK_CODE(remo_rpc_wait(&op), -ENOSYS);
    CHECK_EQUAL(op.fate, REMO_RPC_NOT_SENT);
    CHECK_CODE(remo_rpc_wait(&op), -ENOSYS); /* it has ended */
    static const uint32_t forwarded_to_none[] = {1, 63, 0};
    op.number = PASS_ON;
    op.request = forwarded_to_none;
    op.request_bytes = sizeof forwarded_to_none;
    CHECK_OK(remo_rpc_start(rpc, &op));
    CHECK_CODE(remo_rpc_wait(&op), -ENOSYS);
    CHECK_EQUAL(op.fate, REMO_RPC_UNKNOWN); /* the handler that forwarded it has run */
    op.number = 64;
    CHECK_CODE(remo_rpc_start(rpc, &op), -EINVAL);
    CHECK_EQUAL(op.fate, REMO_RPC_NOT_SENT);
    CHECK_CODE(remo_rpc_post(rpc, 1, ECHO, data, sizeof data), -EMSGSIZE);
    CHECK_CODE(remo_rpc_post(rpc, 7, ECHO, data, 1), -EINVAL);
    return 0;
}

static int ignore(void *ctx, const struct remo_rpc_request *request) {
    (void)ctx, (void)request;
    return 0;
}

static int wrong(struct remo_node *node, void *ctx) {
    struct service service;
    (void)ctx;
    CHECK(service_open(node, shared, &service) == 0);
    if (service.rank == 0)
        CHECK(wrong_calls(&service) == 0);
    struct remo_rpc_handler handler = {.number = ECHO};
    CHECK_CODE(remo_rpc_handle(service.rpc, &handler), -EINVAL);
    handler.run = ignore;
    CHECK_SENTENCE(remo_rpc_handle(service.rpc, &handler), -EEXIST, "handler 0 already");
    handler.number = 64;
    CHECK_CODE(remo_rpc_handle(service.rpc, &handler), -EINVAL);
    struct remo_rpc *rpc = NULL;
    struct remo_rpc_options options = {.handler_count = 1};
    CHECK_CODE(remo_rpc_open(remo_node_root(node), "other", &options, &rpc), -EINVAL);
    CHECK_CODE(remo_rpc_open(remo_node_root(node), "service", NULL, &rpc), -EEXIST);
    CHECK(!rpc);
    return finish(&service);
}

static void setup(void) {
    memset(shared, 0, sizeof *shared);
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(sizes, 3),
        CLUSTER_TEST_NAMED("sizes_threads", sizes, 2, .as_threads = 1),
        CLUSTER_TEST_NAMED("sizes_alone", sizes, 1),
        CLUSTER_TEST(threads, 3),
        CLUSTER_TEST(order, 3),
        CLUSTER_TEST(waits_for_all, 3),
        CLUSTER_TEST(costs, 3),
        CLUSTER_TEST(deferred, 2),
        CLUSTER_TEST(busy, 2),
        CLUSTER_TEST(busy_caller, 2),
        CLUSTER_TEST(forwarding, 4),
        CLUSTER_TEST(done, 2),
        CLUSTER_TEST(circles, 3),
        CLUSTER_TEST(wrong, 2),
        {0}};
    shared = cluster_shared(sizeof *shared);
    return cluster_main(argc, argv, tests, setup);
}
