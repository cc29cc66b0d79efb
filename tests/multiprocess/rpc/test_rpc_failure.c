/* test_rpc_failure.c - calls whose server fails, pauses or gives no reply: each ends, with its fate, and no
 * handler runs twice or too late. */
#include <pthread.h>

#include "../../support/turns.h"
#include "rpc_service.h"

static struct shared {
    struct service_shared service;
    struct turns turns;
} * shared;

static int finish(struct service *service) {
    CHECK_EQUAL(atomic_load(&shared->service.wrong_count), 0);
    CHECK_OK(cluster_meet());
    remo_rpc_close(service->rpc);
    return 0;
}

static int start(struct service *service, struct remo_rpc_op *op, uint32_t node, uint32_t number,
                 uint64_t timeout_ns) {
    *op = (struct remo_rpc_op){.node = node, .number = number, .timeout_ns = timeout_ns};
    CHECK_OK(remo_rpc_start(service->rpc, op));
    return 0;
}

/* ---- timeouts ---- */

/* Start a call, and cancel it when it has been sent: on `ofi` it may be queued, and never sent. */
static int start_and_cancel(struct service *service) {
    struct remo_rpc_op op;
    do {
        CHECK(start(service, &op, 1, KEEP, REMO_FOREVER) == 0);
        remo_rpc_cancel(&op);
        CHECK_CODE(op.status, -ECANCELED);
    } while (op.fate == REMO_RPC_NOT_SENT);
    CHECK_EQUAL(op.fate, REMO_RPC_UNKNOWN);
    return 0;
}

/* The slots of cancelled calls are used again after their late replies. */
static int late(struct remo_node *node, void *ctx) {
    struct service service;
    uint64_t number = 1;
    (void)ctx;
    CHECK(service_open(node, &shared->service, &service) == 0);
    for (uint32_t round = 0; round < 30; round++) {
        if (service.rank == 0) {
            for (uint32_t i = 0; i < 20; i++)
                CHECK_OK(start_and_cancel(&service));
        } else {
            while (atomic_load(&service.kept_count) < 20 * (round + 1))
                CHECK_OK(remo_rpc_serve(service.rpc, SECOND / 1000));
        }
        CHECK_OK(cluster_meet());
        for (uint32_t i = 0; i < 20 && service.rank == 1; i++)
            CHECK_OK(remo_rpc_reply_later(service.rpc, service.kept[(20 * round + i) % 64], 99, NULL, 0));
        for (uint32_t i = 0; i < 50 && service.rank == 0; i++)
            CHECK_CODE(remo_rpc_call(service.rpc, 1, ADD, &number, 8, NULL, 0, NULL, LONG_TIME), 7);
        CHECK_OK(cluster_meet());
    }
    CHECK_EQUAL(atomic_load(&shared->service.sum[1]), 1500);
    return finish(&service);
}

static int seven(void *ctx, const struct remo_rpc_request *request) {
    (void)ctx, (void)request;
    return 7;
}

/* A call waits until the node has opened the service; a start does not. */
static int opens_late(struct remo_node *node, void *ctx) {
    const struct remo_rpc_handler handler = {.number = 1, .run = seven};
    const struct remo_rpc_options options = {.handlers = &handler, .handler_count = 1};
    uint32_t rank = remo_node_rank(node);
    struct remo_rpc_op op = {.node = 1, .number = 1, .timeout_ns = LONG_TIME};
    struct remo_rpc *rpc;
    (void)ctx;
    if (rank == 1)
        reach_turn(&shared->turns, 1);
    CHECK_OK(remo_rpc_open(remo_node_root(node), "late", &options, &rpc));
    if (rank == 0) {
        CHECK_CODE(remo_rpc_start(rpc, &op), -EAGAIN);
        CHECK_SENTENCE(remo_rpc_call(rpc, 1, 1, NULL, 0, NULL, 0, NULL, SECOND / 50), -ETIMEDOUT,
                       "node 1 has not opened service late");
        begin_turn(&shared->turns, 1);
        CHECK_CODE(remo_rpc_call(rpc, 1, 1, NULL, 0, NULL, 0, NULL, LONG_TIME), 7);
    }
    CHECK_OK(cluster_meet());
    remo_rpc_close(rpc);
    return 0;
}

/* A request that waits at a paused server until its deadline has passed is not executed. */
static int expired(struct remo_node *node, void *ctx) {
    struct service service;
    struct remo_rpc_handler_stats stats;
    uint64_t number = 5;
    (void)ctx;
    CHECK(service_open(node, &shared->service, &service) == 0);
    record_process(&shared->turns, service.rank);
    CHECK_OK(cluster_meet());
    if (service.rank == 0) {
        struct remo_rpc_op op = {
            .node = 1, .number = ADD, .request = &number, .request_bytes = 8, .timeout_ns = SECOND / 50};
        CHECK_CODE(remo_rpc_call(service.rpc, 1, ADD, &number, 8, NULL, 0, NULL, LONG_TIME), 7);
        pause_node(&shared->turns, 1);
        CHECK_OK(remo_rpc_start(service.rpc, &op));
        CHECK_CODE(remo_rpc_wait(&op), -ETIMEDOUT);
        CHECK_EQUAL(op.fate, REMO_RPC_UNKNOWN);
        resume_node(&shared->turns, 1);
        CHECK_CODE(remo_rpc_call(service.rpc, 1, ADD, &number, 8, NULL, 0, NULL, LONG_TIME), 7);
        begin_turn(&shared->turns, 1);
    } else {
        reach_turn(&shared->turns, 1);
        CHECK_EQUAL(atomic_load(&shared->service.sum[1]), 10);
        CHECK_OK(remo_rpc_stats(service.rpc, ADD, &stats));
        CHECK_EQUAL(stats.requests, 2);
        CHECK_EQUAL(stats.expired, 1);
    }
    return finish(&service);
}

/* A wait for some time leaves the call in flight, even beyond the call's timeout. The late reply states
 * whether the handler has run. */
static int waits_for(struct remo_node *node, void *ctx) {
    struct service service;
    uint64_t number = 5;
    (void)ctx;
    CHECK(service_open(node, &shared->service, &service) == 0);
    record_process(&shared->turns, service.rank);
    CHECK_OK(cluster_meet());
    if (service.rank == 0) {
        struct remo_rpc_op patient = {
            .node = 1, .number = ADD, .request = &number, .request_bytes = 8, .timeout_ns = LONG_TIME};
        struct remo_rpc_op hasty = patient;
        hasty.timeout_ns = SECOND / 50;
        CHECK_CODE(remo_rpc_call(service.rpc, 1, ADD, &number, 8, NULL, 0, NULL, LONG_TIME), 7);
        pause_node(&shared->turns, 1);
        CHECK_OK(remo_rpc_start(service.rpc, &patient));
        CHECK_OK(remo_rpc_start(service.rpc, &hasty));
        CHECK_CODE(remo_rpc_wait_for(&patient, 0), -EINPROGRESS);
        CHECK_CODE(remo_rpc_wait_for(&hasty, SECOND / 20), -EINPROGRESS);
        CHECK(patient.fate == REMO_RPC_IN_FLIGHT && hasty.fate == REMO_RPC_IN_FLIGHT);
        resume_node(&shared->turns, 1);
        CHECK_CODE(remo_rpc_wait_for(&patient, LONG_TIME), 7);
        CHECK_CODE(remo_rpc_wait_for(&patient, 0), 7);
        CHECK_CODE(remo_rpc_wait_for(&hasty, LONG_TIME), -ETIMEDOUT);
        CHECK_EQUAL(hasty.fate, REMO_RPC_NOT_SENT);
        begin_turn(&shared->turns, 1);
    } else {
        reach_turn(&shared->turns, 1);
        CHECK_EQUAL(atomic_load(&shared->service.sum[1]), 10);
    }
    return finish(&service);
}

/* The ring of a paused server is full: posts fail or queue, calls queue, and calls to others do not wait. */
static int full(struct remo_node *node, void *ctx) {
    struct service service;
    struct remo_rpc_op op;
    static const char data[2000];
    uint64_t posted = 0, queued = 0, number = 1;
    (void)ctx;
    CHECK(service_open(node, &shared->service, &service) == 0);
    record_process(&shared->turns, service.rank);
    CHECK_OK(cluster_meet());
    if (service.rank == 0) {
        int rc;
        pause_node(&shared->turns, 1);
        cluster_set_op_timeout(node, SECOND / 5);
        while ((rc = remo_rpc_post(service.rpc, 1, KEEP, data, sizeof data)) == 0)
            posted++;
        CHECK_CODE(rc, -ETIMEDOUT);
        CHECK(posted >= 20 && posted < 40);
        CHECK(start(&service, &op, 1, ECHO, SECOND / 50) == 0);
        CHECK_CODE(remo_rpc_wait(&op), -ETIMEDOUT);
        CHECK(op.fate == REMO_RPC_NOT_SENT);
        CHECK(start(&service, &op, 1, ECHO, REMO_FOREVER) == 0);
        remo_rpc_cancel(&op);
        CHECK(op.fate == REMO_RPC_NOT_SENT);
        CHECK_CODE(remo_rpc_call(service.rpc, 2, ADD, &number, 8, NULL, 0, NULL, LONG_TIME), 7);
        CHECK(start(&service, &op, 1, ECHO, REMO_FOREVER) == 0);
        CHECK_CODE(remo_rpc_test(&op), -EINPROGRESS);
        while ((rc = remo_rpc_post_queued(service.rpc, 1, KEEP, data, number)) == 0)
            queued++;
        CHECK_CODE(rc, -ENOBUFS);
        CHECK_EQUAL(queued, REMO_RPC_QUEUED_MAX);
        resume_node(&shared->turns, 1);
        CHECK_OK(remo_rpc_wait(&op));
        CHECK_EQUAL(atomic_load(&shared->service.runs[1]), posted + queued + 1); /* they precede the call */
    }
    return finish(&service);
}

/* A paused server gets no call, after many without a reply: they would take the slots of calls to others. */
static int silent(struct remo_node *node, void *ctx) {
    struct service service;
    struct remo_rpc_op op;
    uint64_t number = 1, sent = 0;
    (void)ctx;
    CHECK(service_open(node, &shared->service, &service) == 0);
    record_process(&shared->turns, service.rank);
    CHECK_OK(cluster_meet());
    if (service.rank == 0) {
        pause_node(&shared->turns, 1);
        for (uint32_t i = 0; i < 2 * REMO_RPC_CALLS_MAX; i++) {
            CHECK(start(&service, &op, 1, ECHO, SECOND / 2000) == 0);
            CHECK_CODE(remo_rpc_wait(&op), -ETIMEDOUT);
            sent += op.fate == REMO_RPC_UNKNOWN;
        }
        CHECK_EQUAL(sent, 32);
        CHECK_CODE(remo_rpc_call(service.rpc, 2, ADD, &number, 8, NULL, 0, NULL, LONG_TIME), 7);
        resume_node(&shared->turns, 1);
        CHECK_CODE(remo_rpc_call(service.rpc, 1, ADD, &number, 8, NULL, 0, NULL, LONG_TIME), 7);
    }
    return finish(&service);
}

/* A request that a handler has forwarded waits for room. The service closes meanwhile. */
static int closes_queued(struct remo_node *node, void *ctx) {
    struct service service;
    struct remo_rpc_op op = {.number = PASS_ON, .timeout_ns = REMO_FOREVER};
    static const char data[2000];
    static const uint32_t words[] = {1, ECHO, 1};
    (void)ctx;
    CHECK(service_open(node, &shared->service, &service) == 0);
    record_process(&shared->turns, service.rank);
    CHECK_OK(cluster_meet());
    if (service.rank == 0) {
        pause_node(&shared->turns, 1);
        cluster_set_op_timeout(node, SECOND / 5);
        while (remo_rpc_post(service.rpc, 1, ECHO, data, sizeof data) == 0)
            continue;
        begin_turn(&shared->turns, 1);
        while (atomic_load(&shared->service.runs[0]) < 1)
            cluster_sleep_ms(1);
        remo_rpc_close(service.rpc);
        resume_node(&shared->turns, 1);
        CHECK_OK(cluster_meet());
        return 0;
    }
    if (service.rank == 2) {
        reach_turn(&shared->turns, 1);
        op.request = words;
        op.request_bytes = sizeof words;
        CHECK_OK(remo_rpc_start(service.rpc, &op));
        CHECK_CODE(remo_rpc_wait(&op), 1);
    }
    return finish(&service);
}

/* ---- failures ---- */

struct waiter {
    struct service *service;
    int rc;
};

static void *wait_kept(void *ctx) {
    struct waiter *waiter = ctx;
    waiter->rc = remo_rpc_call(waiter->service->rpc, 1, KEEP, NULL, 0, NULL, 0, NULL, REMO_FOREVER);
    return NULL;
}

static _Atomic int done_status;
static void note_done(struct remo_rpc_op *op) {
    atomic_store(&done_status, op->status);
}

/* A call with `done` ends at its deadline, although this node makes no other call and receives nothing. If
 * the request has reached the server late, it was refused, and the next call has more time. */
static int done_expires(struct remo_node *node, void *ctx) {
    struct service service;
    struct remo_rpc_op op = {.node = 1, .number = KEEP, .timeout_ns = SECOND / 50, .done = note_done};
    (void)ctx;
    CHECK(service_open(node, &shared->service, &service) == 0);
    CHECK_OK(cluster_meet());
    if (service.rank == 0) {
        do {
            atomic_store(&done_status, 0);
            CHECK_OK(remo_rpc_start(service.rpc, &op));
            while (atomic_load(&done_status) == 0)
                cluster_sleep_ms(1);
            CHECK_CODE(atomic_load(&done_status), -ETIMEDOUT);
            op.timeout_ns *= 2;
        } while (op.fate == REMO_RPC_NOT_SENT);
        CHECK_EQUAL(op.fate, REMO_RPC_UNKNOWN);
    }
    return finish(&service);
}

/* The server fails while calls wait in each way: in a call, started, with `done`, forwarded. */
static int server_fails(struct remo_node *node, void *ctx) {
    struct service service;
    struct remo_rpc_op started, with_done, forwarded;
    struct waiter waiter = {&service, 0};
    pthread_t thread;
    uint32_t words[3] = {1, KEEP, 1};
    (void)ctx;
    CHECK(service_open(node, &shared->service, &service) == 0);
    CHECK_OK(cluster_meet());
    if (service.rank == 1) {
        cluster_expect_death();
        CHECK_OK(remo_rpc_serve(service.rpc, REMO_FOREVER));
    }
    if (service.rank == 0) {
        CHECK(pthread_create(&thread, NULL, wait_kept, &waiter) == 0);
        CHECK(start(&service, &started, 1, KEEP, REMO_FOREVER) == 0);
        with_done =
            (struct remo_rpc_op){.node = 1, .number = KEEP, .timeout_ns = REMO_FOREVER, .done = note_done};
        CHECK_OK(remo_rpc_start(service.rpc, &with_done));
        forwarded = (struct remo_rpc_op){.node = 2,
                                         .number = PASS_ON,
                                         .request = words,
                                         .request_bytes = sizeof words,
                                         .timeout_ns = REMO_FOREVER};
        CHECK_OK(remo_rpc_start(service.rpc, &forwarded));
        while (atomic_load(&shared->service.runs[1]) < 4)
            cluster_sleep_ms(1);
        cluster_kill(1);
        CHECK_CODE(remo_rpc_wait(&started), -EHOSTDOWN);
        CHECK_EQUAL(started.fate, REMO_RPC_UNKNOWN);
        CHECK_SENTENCE(remo_rpc_wait(&forwarded), -EHOSTDOWN, "forwarded");
        pthread_join(thread, NULL);
        CHECK_CODE(waiter.rc, -EHOSTDOWN);
        while (atomic_load(&done_status) == 0)
            cluster_sleep_ms(1);
        CHECK_CODE(atomic_load(&done_status), -EHOSTDOWN);
        cluster_await_cut_off(node, 1);
        CHECK_CODE(remo_rpc_start(service.rpc, &started), -EHOSTDOWN);
        CHECK_EQUAL(started.fate, REMO_RPC_NOT_SENT);
        CHECK_CODE(remo_rpc_post(service.rpc, 1, ECHO, NULL, 0), -EHOSTDOWN);
    }
    if (service.rank == 0)
        for (uint64_t number = 1; number < 1000; number++)
            CHECK_CODE(remo_rpc_call(service.rpc, 2, ADD, &number, 8, NULL, 0, NULL, LONG_TIME), 7);
    return finish(&service);
}

/* A caller fails: the server continues, and its deferred reply is refused. */
static int caller_fails(struct remo_node *node, void *ctx) {
    struct service service;
    (void)ctx;
    CHECK(service_open(node, &shared->service, &service) == 0);
    CHECK_OK(cluster_meet());
    if (service.rank == 1) {
        cluster_expect_death();
        (void)remo_rpc_call(service.rpc, 0, KEEP, NULL, 0, NULL, 0, NULL, REMO_FOREVER);
        return 1;
    }
    if (service.rank == 0) {
        while (atomic_load(&service.kept_count) < 1)
            CHECK_OK(remo_rpc_serve(service.rpc, SECOND / 1000));
        cluster_kill(1);
        cluster_await_cut_off(node, 1);
        int rc = remo_rpc_reply_later(service.rpc, service.kept[0], 0, NULL, 0);
        CHECK(rc == -EALREADY || rc == -EHOSTDOWN);
    }
    return finish(&service);
}

/* A service closes while its requests are deferred. */
static int closes(struct remo_node *node, void *ctx) {
    struct service service;
    struct remo_rpc_op op;
    (void)ctx;
    CHECK(service_open(node, &shared->service, &service) == 0);
    CHECK_OK(cluster_meet());
    if (service.rank == 0) {
        CHECK(start(&service, &op, 1, KEEP, REMO_FOREVER) == 0);
        CHECK_CODE(remo_rpc_wait(&op), -ENOTCONN);
        CHECK_EQUAL(op.fate, REMO_RPC_UNKNOWN);
        while (remo_channel_peer(remo_rpc_channel(service.rpc), 1) == REMO_CHANNEL_CONNECTED)
            cluster_sleep_ms(1);
        CHECK_CODE(remo_rpc_call(service.rpc, 1, ECHO, NULL, 0, NULL, 0, NULL, LONG_TIME), -ENOTCONN);
        return finish(&service);
    }
    while (atomic_load(&service.kept_count) < 1)
        cluster_sleep_ms(1); /* the service thread serves */
    remo_rpc_close(service.rpc);
    CHECK_OK(cluster_meet());
    return 0;
}

static void setup(void) {
    memset(shared, 0, sizeof *shared);
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {CLUSTER_TEST(late, 2),
                                                CLUSTER_TEST(opens_late, 2),
                                                CLUSTER_TEST(expired, 2, .only_on = "shm"),
                                                CLUSTER_TEST(waits_for, 2, .only_on = "shm"),
                                                CLUSTER_TEST(full, 3, .only_on = "shm"),
                                                CLUSTER_TEST(silent, 3, .only_on = "shm"),
                                                CLUSTER_TEST(closes_queued, 3, .only_on = "shm"),
                                                CLUSTER_TEST(done_expires, 2),
                                                CLUSTER_TEST(server_fails, 3),
                                                CLUSTER_TEST(caller_fails, 2),
                                                CLUSTER_TEST(closes, 2),
                                                {0}};
    shared = cluster_shared(sizeof *shared);
    return cluster_main(argc, argv, tests, setup);
}
