/* test_rpc_long.c - LONG handlers: they wait for a gate, for locks and for calls of each other, while SHORT
 * ones run. Their requests end at the deadline, at the failure of the caller, and at the close of the
 * service. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "../../support/cluster.h"

#define NODES_MAX 4u
#define LONG_TIME (100 * SECOND)
#define WINDOW 100u /* more than LONG handlers of one depth run at the same time */

enum handler { ECHO, KEEP, GATE, CIRCLE, GUARDED, ANSWER, DEFER, PASS_ON, ASK, HANDLERS };

static struct shared {
    _Atomic uint32_t is_open; /* the gate */
    _Atomic uint32_t started[NODES_MAX], ended[NODES_MAX];
    _Atomic uint32_t wrong_count, kept_count, are_refused;
    _Atomic int asked_status;
    _Atomic uint64_t asked_ns;
    _Atomic uint64_t remaining_ns[2]; /* of the request, before and after the call */
    _Atomic uint64_t counter;         /* protected by the lock */
} * shared;

struct site {
    struct remo_node *node;
    struct remo_rpc *rpc;
    struct remo_lock *lock;
    uint32_t rank, size;
    struct remo_rpc_deferred deferred;
};

/* ---- handlers ---- */

static int echo(void *ctx, const struct remo_rpc_request *request) {
    (void)ctx;
    return remo_rpc_reply(request, 5, request->data, request->bytes);
}

/* Never replies. */
static int keep(void *ctx, const struct remo_rpc_request *request) {
    struct site *site = ctx;
    atomic_fetch_add(&shared->kept_count, 1);
    return remo_rpc_defer(request, &site->deferred);
}

/* LONG: wait until the gate opens, and reply with the data, which must not change meanwhile. */
static int gate(void *ctx, const struct remo_rpc_request *request) {
    struct site *site = ctx;
    atomic_fetch_add(&shared->started[site->rank], 1);
    while (!atomic_load(&shared->is_open))
        (void)remo_task_sleep(site->node, SECOND / 1000);
    atomic_fetch_add(&shared->ended[site->rank], 1);
    return remo_rpc_reply(request, 8, request->data, request->bytes);
}

/* LONG: call the next node, until the depth is too large. The status is the number of calls. */
static int circle(void *ctx, const struct remo_rpc_request *request) {
    struct site *site = ctx;
    (void)request;
    int rc =
        remo_rpc_call(site->rpc, (site->rank + 1) % site->size, CIRCLE, NULL, 0, NULL, 0, NULL, REMO_FOREVER);
    return rc == -ELOOP ? 0 : rc < 0 ? rc : rc + 1;
}

/* LONG: add 1 to the counter that the lock protects. */
static int guarded(void *ctx, const struct remo_rpc_request *request) {
    struct site *site = ctx;
    (void)request;
    int rc = remo_lock_acquire(site->lock, 0, REMO_FOREVER);
    if (rc != 0)
        return rc;
    uint64_t counter = atomic_load(&shared->counter);
    remo_task_yield();
    atomic_store(&shared->counter, counter + 1);
    return remo_lock_release(site->lock, 0, REMO_FENCE_PAIR);
}

/* LONG: reply, and then continue. */
static int answer(void *ctx, const struct remo_rpc_request *request) {
    struct site *site = ctx;
    int rc = remo_rpc_reply(request, 9, "nine", 5);
    atomic_fetch_add(&shared->wrong_count, remo_rpc_reply(request, 0, NULL, 0) != -EALREADY);
    (void)remo_task_sleep(site->node, SECOND / 1000);
    int nested = remo_rpc_call(site->rpc, site->rank, ECHO, NULL, 0, NULL, 0, NULL, LONG_TIME);
    atomic_fetch_add(&shared->wrong_count, nested != 5);
    atomic_fetch_add(&shared->wrong_count, remo_rpc_serve(site->rpc, 0) != 0);
    return rc;
}

/* LONG */
static int defer(void *ctx, const struct remo_rpc_request *request) {
    struct site *site = ctx;
    struct remo_rpc_deferred deferred;
    int rc = remo_rpc_defer(request, &deferred);
    if (request->bytes > 0)
        (void)remo_task_sleep(site->node, SECOND / 1000);
    return rc == 0 ? remo_rpc_reply_later(site->rpc, deferred, 10, request->data, request->bytes) : rc;
}

/* LONG */
static int pass_on(void *ctx, const struct remo_rpc_request *request) {
    struct site *site = ctx;
    (void)remo_task_sleep(site->node, SECOND / 1000);
    return remo_rpc_forward(request, (site->rank + 1) % site->size, DEFER, request->data, request->bytes);
}

/* LONG: call a handler that never replies. The call has the remaining time of this request. */
static int ask(void *ctx, const struct remo_rpc_request *request) {
    struct site *site = ctx;
    uint64_t start_ns = cluster_now_ns();
    (void)request;
    atomic_store(&shared->remaining_ns[0], remo_rpc_remaining_ns(site->rpc));
    int rc = remo_rpc_call(site->rpc, site->rank, KEEP, NULL, 0, NULL, 0, NULL, REMO_FOREVER);
    atomic_store(&shared->asked_ns, cluster_now_ns() - start_ns);
    atomic_store(&shared->remaining_ns[1], remo_rpc_remaining_ns(site->rpc));
    atomic_store(&shared->asked_status, rc);
    return rc;
}

/* ---- open, close ---- */

static int open_site(struct remo_node *node, struct site *ret_site) {
    static const remo_rpc_handler_fn functions[HANDLERS] = {echo,   keep,  gate,    circle, guarded,
                                                            answer, defer, pass_on, ask};
    struct remo_rpc_handler handlers[HANDLERS];
    struct remo_rpc_options options = {.handlers = handlers, .handler_count = HANDLERS};
    *ret_site = (struct site){.node = node, .rank = remo_node_rank(node), .size = remo_node_size(node)};
    for (uint32_t i = 0; i < HANDLERS; i++)
        handlers[i] = (struct remo_rpc_handler){.number = i,
                                                .run = functions[i],
                                                .ctx = ret_site,
                                                .kind = i < GATE ? REMO_RPC_SHORT : REMO_RPC_LONG};
    CHECK_OK(remo_lock_open(remo_node_root(node), "lock", NULL, &ret_site->lock));
    CHECK_OK(remo_channel_wait(remo_lock_channel(ret_site->lock), LONG_TIME));
    CHECK_OK(remo_rpc_open(remo_node_root(node), "long", &options, &ret_site->rpc));
    CHECK_OK(remo_channel_wait(remo_rpc_channel(ret_site->rpc), LONG_TIME));
    CHECK_OK(cluster_meet());
    return 0;
}

static int finish(struct site *site) {
    CHECK_OK(cluster_meet());
    CHECK_EQUAL(atomic_load(&shared->wrong_count), 0);
    remo_rpc_close(site->rpc);
    remo_lock_close(site->lock);
    CHECK_OK(cluster_meet());
    return 0;
}

struct window {
    struct remo_rpc_op ops[WINDOW];
    uint64_t numbers[WINDOW], replies[WINDOW];
};

static int start_window(struct site *site, struct window *window, uint32_t node, uint32_t number,
                        uint64_t timeout_ns) {
    for (uint32_t i = 0; i < WINDOW; i++) {
        window->numbers[i] = i + 1000;
        window->replies[i] = 0;
        window->ops[i] = (struct remo_rpc_op){.node = node,
                                              .number = number,
                                              .request = &window->numbers[i],
                                              .request_bytes = 8,
                                              .reply = &window->replies[i],
                                              .reply_cap = 8,
                                              .timeout_ns = timeout_ns};
        CHECK_OK(remo_rpc_start(site->rpc, &window->ops[i]));
    }
    return 0;
}

static int await_count(const _Atomic uint32_t *count, uint32_t least) {
    for (uint32_t i = 0; atomic_load(count) < least; i++) {
        CHECK(i < 50000);
        cluster_sleep_ms(1);
    }
    return 0;
}

/* Wait until so many requests of GATE wait for a task. */
static int await_queued(const struct site *site, uint64_t queued) {
    struct remo_rpc_handler_stats stats = {.queued = UINT64_MAX};
    for (uint32_t i = 0; stats.queued != queued; i++) {
        CHECK(i < 50000);
        CHECK_OK(remo_rpc_stats(site->rpc, GATE, &stats));
        cluster_sleep_ms(1);
    }
    return 0;
}

/* ---- each way to reply ---- */

static int replies(struct remo_node *node, void *ctx) {
    struct site site;
    char reply[8];
    size_t bytes;
    struct remo_rpc_handler_stats stats;
    (void)ctx;
    CHECK(open_site(node, &site) == 0);
    for (uint32_t round = 0; round < 20; round++)
        for (uint32_t to = 0; to < site.size; to++) {
            CHECK_CODE(remo_rpc_call(site.rpc, to, ANSWER, NULL, 0, reply, sizeof reply, &bytes, LONG_TIME),
                       9);
            CHECK(bytes == 5 && strcmp(reply, "nine") == 0);
            CHECK_CODE(remo_rpc_call(site.rpc, to, DEFER, "ten", 4, reply, sizeof reply, &bytes, LONG_TIME),
                       10);
            CHECK(bytes == 4 && strcmp(reply, "ten") == 0);
            CHECK_CODE(
                remo_rpc_call(site.rpc, to, PASS_ON, "pass", 5, reply, sizeof reply, &bytes, LONG_TIME), 10);
            CHECK(bytes == 5 && strcmp(reply, "pass") == 0);
        }
    CHECK_OK(cluster_meet());
    CHECK_OK(remo_rpc_post(site.rpc, (site.rank + 1) % site.size, ANSWER, NULL, 0));
    CHECK_CODE(remo_rpc_call(site.rpc, (site.rank + 1) % site.size, ECHO, NULL, 0, NULL, 0, NULL, LONG_TIME),
               5); /* the post has arrived before */
    CHECK_OK(cluster_meet());
    CHECK_REACHES(CHECK_OK(remo_rpc_stats(site.rpc, ANSWER, &stats)), stats.timed, 20 * site.size);
    CHECK_EQUAL(stats.requests, stats.timed);
    CHECK_EQUAL(stats.errors, 1); /* the post */
    CHECK(stats.timed_ns >= stats.requests * (SECOND / 1000));
    CHECK(stats.timed_ns_max >= SECOND / 1000 && stats.timed_ns_max <= stats.timed_ns);
    CHECK_OK(remo_rpc_stats(site.rpc, PASS_ON, &stats));
    CHECK_EQUAL(stats.forwarded, 20 * site.size);
    CHECK_EQUAL(stats.queued, 0);
    struct remo_rpc_handler wrong = {.number = 60, .run = echo, .kind = (enum remo_rpc_kind)2};
    CHECK_SENTENCE(remo_rpc_handle(site.rpc, &wrong), -EINVAL, "kind");
    return finish(&site);
}

/* The network operations are those of SHORT handlers. */
static int costs(struct remo_node *node, void *ctx) {
    struct site site;
    struct remo_stats before, after;
    (void)ctx;
    CHECK(open_site(node, &site) == 0);
    struct remo_channel *channel = remo_rpc_channel(site.rpc);
    atomic_store(&shared->is_open, 1);
    remo_channel_stats(channel, &before);
    CHECK_OK(cluster_meet());
    for (uint64_t i = 0; i < 100 && site.rank == 0; i++)
        CHECK_COST(channel,
                   CHECK_CODE(remo_rpc_call(site.rpc, 1, GATE, &i, sizeof i, NULL, 0, NULL, LONG_TIME), 8), 0,
                   1, 0, 1);
    CHECK_OK(cluster_meet());
    CHECK_REACHES(remo_channel_stats(channel, &after), after.writes - before.writes, 100);
    CHECK_EQUAL(after.reads - before.reads + after.atomics - before.atomics, 0);
    return finish(&site);
}

/* ---- cycles ---- */

/* LONG handlers of all nodes call each other, in more calls than there are tasks. */
static int circles(struct remo_node *node, void *ctx) {
    struct site site;
    static struct window windows[NODES_MAX];
    (void)ctx;
    CHECK(open_site(node, &site) == 0);
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t to = 0; to < site.size; to++)
            CHECK(start_window(&site, &windows[to], to, CIRCLE, REMO_FOREVER) == 0);
        for (uint32_t to = 0; to < site.size; to++)
            for (uint32_t i = 0; i < WINDOW; i++)
                CHECK_CODE(remo_rpc_wait(&windows[to].ops[i]), REMO_RPC_DEPTH_MAX - 1);
    }
    return finish(&site);
}

/* LONG handlers wait for a lock, on all nodes. */
static int locks(struct remo_node *node, void *ctx) {
    struct site site;
    static struct window windows[NODES_MAX];
    (void)ctx;
    CHECK(open_site(node, &site) == 0);
    for (uint32_t to = 0; to < site.size; to++)
        CHECK(start_window(&site, &windows[to], to, GUARDED, REMO_FOREVER) == 0);
    for (uint32_t to = 0; to < site.size; to++)
        for (uint32_t i = 0; i < WINDOW; i++)
            CHECK_OK(remo_rpc_wait(&windows[to].ops[i]));
    CHECK_OK(cluster_meet());
    CHECK_EQUAL(atomic_load(&shared->counter), site.size * site.size * WINDOW);
    return finish(&site);
}

/* ---- a closed gate ---- */

/* LONG handlers that wait, and LONG requests that wait for them, delay no SHORT request. Their requests take
 * several times the room of the ring. */
static int delays(struct remo_node *node, void *ctx) {
    struct site site;
    static struct window window;
    static char data[REMO_RPC_BYTES_MAX];
    (void)ctx;
    CHECK(open_site(node, &site) == 0);
    if (site.rank == 0) {
        CHECK(start_window(&site, &window, 1, GATE, REMO_FOREVER) == 0);
        for (uint32_t i = 0; i < 1000; i++)
            CHECK_CODE(remo_rpc_call(site.rpc, 1, ECHO, data, sizeof data, NULL, 0, NULL, LONG_TIME), 5);
        CHECK_OK(cluster_meet());
        CHECK_OK(cluster_meet());
        atomic_store(&shared->is_open, 1);
        for (uint32_t i = 0; i < WINDOW; i++) {
            CHECK_CODE(remo_rpc_wait(&window.ops[i]), 8);
            CHECK_EQUAL(window.replies[i], i + 1000);
        }
    } else {
        CHECK_OK(cluster_meet());
        CHECK(await_count(&shared->started[1], REMO_RPC_LONG_MAX) == 0);
        CHECK(await_queued(&site, WINDOW - REMO_RPC_LONG_MAX) == 0);
        CHECK_EQUAL(atomic_load(&shared->started[1]), REMO_RPC_LONG_MAX);
        CHECK_OK(cluster_meet());
    }
    return finish(&site);
}

/* A request whose time is over before a task becomes free is not executed. */
static int expires(struct remo_node *node, void *ctx) {
    struct site site;
    static struct window busy, late;
    struct remo_rpc_handler_stats stats;
    (void)ctx;
    CHECK(open_site(node, &site) == 0);
    if (site.rank == 0) {
        CHECK(start_window(&site, &busy, 1, GATE, REMO_FOREVER) == 0);
        CHECK(await_count(&shared->started[1], REMO_RPC_LONG_MAX) == 0);
        CHECK(start_window(&site, &late, 1, GATE, SECOND / 2) == 0);
        for (uint32_t i = 0; i < WINDOW; i++)
            CHECK_CODE(remo_rpc_wait(&late.ops[i]), -ETIMEDOUT);
        while (!atomic_load(&shared->are_refused))
            cluster_sleep_ms(1);
        atomic_store(&shared->is_open, 1);
        for (uint32_t i = 0; i < WINDOW; i++)
            CHECK_CODE(remo_rpc_wait(&busy.ops[i]), 8);
    } else { /* on some fabrics the time counts from the arrival */
        CHECK_REACHES(CHECK_OK(remo_rpc_stats(site.rpc, GATE, &stats)), stats.expired, WINDOW);
        atomic_store(&shared->are_refused, 1);
        CHECK_REACHES(CHECK_OK(remo_rpc_stats(site.rpc, GATE, &stats)), stats.requests, WINDOW);
        CHECK_EQUAL(stats.expired, WINDOW);
    }
    return finish(&site);
}

/* All tasks wait for deferred replies. Requests behind them are refused at their deadline, so these keep
 * no slots: more would be retired than a node may have. The server polls, so nothing else wakes its helper.
 * Then it closes: the deferred replies come first. */
static int refuses(struct remo_node *node, void *ctx) {
    struct site site;
    static struct remo_rpc_op ops[REMO_RPC_LONG_MAX];
    static struct window late;
    struct remo_rpc_handler_stats stats;
    (void)ctx;
    CHECK(open_site(node, &site) == 0);
    if (site.rank == 0) {
        for (uint32_t i = 0; i < REMO_RPC_LONG_MAX; i++) {
            ops[i] = (struct remo_rpc_op){.node = 1, .number = ASK, .timeout_ns = REMO_FOREVER};
            CHECK_OK(remo_rpc_start(site.rpc, &ops[i]));
        }
        CHECK(await_count(&shared->kept_count, REMO_RPC_LONG_MAX) == 0);
        CHECK(start_window(&site, &late, 1, ASK, SECOND / 5) == 0);
        for (uint32_t i = 0; i < WINDOW; i++)
            CHECK_CODE(remo_rpc_wait(&late.ops[i]), -ETIMEDOUT);
        CHECK_CODE(remo_rpc_call(site.rpc, 1, ECHO, NULL, 0, NULL, 0, NULL, LONG_TIME), 5);
        atomic_store(&shared->is_open, 1);
        for (uint32_t i = 0; i < REMO_RPC_LONG_MAX; i++)
            CHECK_CODE(remo_rpc_wait(&ops[i]), -ENOTCONN);
        return finish(&site);
    }
    while (!atomic_load(&shared->is_open))
        CHECK_OK(remo_rpc_serve(site.rpc, 0));
    for (uint32_t i = 0; i < 10000; i++) {
        CHECK_OK(remo_rpc_stats(site.rpc, ASK, &stats));
        if (stats.expired == WINDOW)
            break;
        cluster_sleep_ms(1);
    }
    CHECK_EQUAL(stats.expired, WINDOW);
    CHECK_EQUAL(stats.requests, REMO_RPC_LONG_MAX);
    CHECK_EQUAL(stats.queued, 0);
    remo_rpc_close(site.rpc);
    remo_lock_close(site.lock);
    CHECK_OK(cluster_meet());
    CHECK_OK(cluster_meet());
    return 0;
}

/* The call of a LONG handler has the remaining time of its request. A request that expires before its handler
 * has made the call is repeated, with more time. */
static int inherits(struct remo_node *node, void *ctx) {
    struct site site;
    uint32_t calls = 0;
    (void)ctx;
    CHECK(open_site(node, &site) == 0);
    if (site.rank == 0) {
        for (; calls < 8 && atomic_load(&shared->kept_count) == 0; calls++)
            CHECK_CODE(remo_rpc_call(site.rpc, 1, ASK, NULL, 0, NULL, 0, NULL, SECOND / 5 << calls),
                       -ETIMEDOUT);
        for (uint32_t i = 0; i < 50000 && atomic_load(&shared->asked_status) == 0; i++)
            cluster_sleep_ms(1);
        CHECK_CODE(atomic_load(&shared->asked_status), -ETIMEDOUT);
        CHECK(atomic_load(&shared->asked_ns) < LONG_TIME);
        CHECK(atomic_load(&shared->remaining_ns[0]) <= SECOND / 5 << (calls - 1));
        CHECK(atomic_load(&shared->remaining_ns[1]) < 2048); /* deadlines in messages are rounded */
        CHECK(remo_rpc_remaining_ns(site.rpc) == REMO_FOREVER);
        CHECK(atomic_load(&shared->kept_count) >= 1 && atomic_load(&shared->kept_count) <= calls);
    }
    return finish(&site);
}

/* The server polls, so requests do not wake it. Its helper sleeps in a LONG handler, which waits for a reply.
 * Each further LONG request wakes the helper: its sleep alone would last for longer than the timeout. */
static int wakes(struct remo_node *node, void *ctx) {
    struct site site;
    struct remo_rpc_op op = {.node = 1, .number = ASK, .timeout_ns = REMO_FOREVER};
    (void)ctx;
    CHECK(open_site(node, &site) == 0);
    if (site.rank == 0) {
        CHECK_OK(remo_rpc_start(site.rpc, &op));
        CHECK(await_count(&shared->kept_count, 1) == 0);
        for (uint32_t i = 0; i < 2000; i++)
            CHECK_CODE(remo_rpc_call(site.rpc, 1, DEFER, NULL, 0, NULL, 0, NULL, LONG_TIME), 10);
        atomic_store(&shared->is_open, 1);
        CHECK_OK(remo_rpc_wait(&op));
    } else {
        while (!atomic_load(&shared->is_open))
            CHECK_OK(remo_rpc_serve(site.rpc, 0));
        CHECK_OK(remo_rpc_reply_later(site.rpc, site.deferred, 0, NULL, 0));
        CHECK_OK(remo_rpc_serve(site.rpc, SECOND / 10));
    }
    return finish(&site);
}

/* ---- failures ---- */

/* A caller fails: its requests that have not started are discarded. Other callers are served. */
static int caller_fails(struct remo_node *node, void *ctx) {
    struct site site;
    static struct window window;
    (void)ctx;
    CHECK(open_site(node, &site) == 0);
    if (site.rank == 1) {
        cluster_expect_death();
        CHECK(start_window(&site, &window, 0, GATE, REMO_FOREVER) == 0);
        CHECK_OK(cluster_meet());
        for (uint32_t i = 0; i < WINDOW; i++)
            (void)remo_rpc_wait(&window.ops[i]);
        return 1;
    }
    if (site.rank == 0) {
        CHECK(await_queued(&site, WINDOW - REMO_RPC_LONG_MAX) == 0);
        CHECK_OK(cluster_meet());
        CHECK(await_queued(&site, WINDOW - REMO_RPC_LONG_MAX + 1) == 0);
        cluster_kill(1);
        cluster_await_cut_off(node, 1);
        atomic_store(&shared->is_open, 1);
        CHECK(await_queued(&site, 0) == 0);
    } else {
        uint64_t number = 7;
        CHECK_OK(cluster_meet());
        CHECK_CODE(remo_rpc_call(site.rpc, 0, GATE, &number, 8, NULL, 0, NULL, LONG_TIME), 8);
        CHECK_EQUAL(atomic_load(&shared->started[0]), REMO_RPC_LONG_MAX + 1);
    }
    return finish(&site);
}

/* The server fails while its LONG handlers run. */
static int server_fails(struct remo_node *node, void *ctx) {
    struct site site;
    static struct window window;
    (void)ctx;
    CHECK(open_site(node, &site) == 0);
    if (site.rank == 1) {
        cluster_expect_death();
        (void)remo_rpc_serve(site.rpc, REMO_FOREVER);
        return 1;
    }
    if (site.rank == 0) {
        CHECK(start_window(&site, &window, 1, GATE, REMO_FOREVER) == 0);
        CHECK(await_count(&shared->started[1], REMO_RPC_LONG_MAX) == 0);
        cluster_kill(1);
        uint32_t sent = 0;
        for (uint32_t i = 0; i < WINDOW; i++) {
            CHECK_CODE(remo_rpc_wait(&window.ops[i]), -EHOSTDOWN);
            CHECK(window.ops[i].fate != REMO_RPC_DONE);
            sent += window.ops[i].fate == REMO_RPC_UNKNOWN; /* the others were still queued, on `ofi` */
        }
        CHECK(sent >= REMO_RPC_LONG_MAX);
    }
    return finish(&site);
}

static uint32_t count_refused(struct window *window) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < WINDOW; i++)
        count += remo_rpc_test(&window->ops[i]) == -ENOTCONN;
    return count;
}

static void *close_service(void *ctx) {
    struct site *site = ctx;
    remo_rpc_close(site->rpc);
    return NULL;
}

/* The service closes: requests that have not started are refused, and the close waits for the others. */
static int closes(struct remo_node *node, void *ctx) {
    struct site site;
    static struct window window;
    pthread_t thread;
    uint32_t done = 0, refused = 0;
    (void)ctx;
    CHECK(open_site(node, &site) == 0);
    if (site.rank == 0) {
        CHECK(start_window(&site, &window, 1, GATE, REMO_FOREVER) == 0);
        while (count_refused(&window) < WINDOW - REMO_RPC_LONG_MAX)
            cluster_sleep_ms(1);
        atomic_store(&shared->are_refused, 1);
        for (uint32_t i = 0; i < WINDOW; i++) {
            int rc = remo_rpc_wait(&window.ops[i]);
            CHECK(rc == 8 || rc == -ENOTCONN);
            CHECK(window.ops[i].fate == (rc == 8 ? REMO_RPC_DONE : REMO_RPC_NOT_SENT));
            done += rc == 8;
            refused += rc == -ENOTCONN;
        }
        CHECK_EQUAL(done, REMO_RPC_LONG_MAX);
        CHECK_EQUAL(refused, WINDOW - REMO_RPC_LONG_MAX);
        return finish(&site);
    }
    CHECK(await_count(&shared->started[1], REMO_RPC_LONG_MAX) == 0);
    CHECK(await_queued(&site, WINDOW - REMO_RPC_LONG_MAX) == 0);
    CHECK(pthread_create(&thread, NULL, close_service, &site) == 0);
    while (!atomic_load(&shared->are_refused))
        cluster_sleep_ms(1);
    CHECK_EQUAL(atomic_load(&shared->ended[1]), 0);
    atomic_store(&shared->is_open, 1);
    pthread_join(thread, NULL); /* the last handler wakes the thread that closes */
    CHECK_EQUAL(atomic_load(&shared->ended[1]), REMO_RPC_LONG_MAX);
    remo_lock_close(site.lock);
    CHECK_OK(cluster_meet());
    CHECK_OK(cluster_meet());
    return 0;
}

static void setup(void) {
    memset(shared, 0, sizeof *shared);
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(replies, 3),
        CLUSTER_TEST_NAMED("replies_threads", replies, 2, .as_threads = 1),
        CLUSTER_TEST(costs, 2),
        CLUSTER_TEST(circles, 3),
        CLUSTER_TEST_NAMED("circles_alone", circles, 1),
        CLUSTER_TEST(locks, 3),
        CLUSTER_TEST(delays, 2),
        CLUSTER_TEST(expires, 2),
        CLUSTER_TEST(refuses, 2),
        CLUSTER_TEST(inherits, 2),
        CLUSTER_TEST(wakes, 2),
        CLUSTER_TEST(caller_fails, 3),
        CLUSTER_TEST(server_fails, 3),
        CLUSTER_TEST(closes, 2),
        {0}};
    shared = cluster_shared(sizeof *shared);
    return cluster_main(argc, argv, tests, setup);
}
