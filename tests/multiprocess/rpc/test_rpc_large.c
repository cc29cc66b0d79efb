/* test_rpc_large.c - large requests and replies between real nodes: every size, many at the same time, places
 * that the program names, costs, late replies, nodes that are killed or restart, and wrong arguments. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../../support/cluster.h"
#include "../../support/job.h"

#define NODES_MAX 4u
#define LONG_TIME (100 * SECOND)
#define SHORT_MAX REMO_RPC_BYTES_MAX
#define LARGE_MAX REMO_RPC_LARGE_BYTES_MAX

enum handler { MIRROR, GATE, KEEP, PASS_ON, TINY, HANDLERS };

/* The first bytes of each request. */
struct order {
    uint64_t seed, reply_bytes;
};

static struct shared {
    _Atomic uint32_t is_open; /* the gate */
    _Atomic uint32_t started, wrong_count;
} * shared;

struct site {
    struct remo_node *node;
    struct remo_rpc *rpc;
    struct remo_region *region;
    uint32_t rank, size;
    struct remo_rpc_deferred deferred;
    _Atomic uint64_t deferred_seed; /* 0: none */
};

/* ---- data ---- */

static void fill(unsigned char *data, size_t bytes, uint64_t seed) {
    for (size_t i = 0; i < bytes; i++)
        data[i] = (unsigned char)(seed * 31 + i * 7 + i / 256 + i / 65536);
}

static bool is_filled(const unsigned char *data, size_t bytes, uint64_t seed) {
    for (size_t i = 0; i < bytes; i++)
        if (data[i] != (unsigned char)(seed * 31 + i * 7 + i / 256 + i / 65536))
            return false;
    return true;
}

static void make_request(unsigned char *request, size_t bytes, size_t reply_bytes, uint64_t seed) {
    const struct order order = {seed, reply_bytes};
    fill(request, bytes, seed);
    memcpy(request, &order, sizeof order);
}

/* ---- handlers ---- */

static struct order take_order(const struct remo_rpc_request *request) {
    struct order order = {0};
    if (request->bytes >= sizeof order)
        memcpy(&order, request->data, sizeof order);
    const unsigned char *data = request->data;
    size_t skip = sizeof order;
    bool is_right = request->bytes >= skip && (uintptr_t)data % 8 == 0;
    for (size_t i = skip; i < request->bytes && is_right; i++)
        is_right = data[i] == (unsigned char)(order.seed * 31 + i * 7 + i / 256 + i / 65536);
    atomic_fetch_add(&shared->wrong_count, !is_right);
    return order;
}

static int reply_to(const struct remo_rpc_request *request) {
    struct order order = take_order(request);
    unsigned char *reply = malloc(order.reply_bytes + 1);
    if (!reply)
        return -ENOMEM;
    fill(reply, order.reply_bytes, order.seed + 1);
    int rc = remo_rpc_reply(request, 5, reply, order.reply_bytes);
    free(reply);
    return rc;
}

/* LONG */
static int mirror(void *ctx, const struct remo_rpc_request *request) {
    (void)ctx;
    return reply_to(request);
}

/* LONG: wait until the gate opens. */
static int gate(void *ctx, const struct remo_rpc_request *request) {
    const struct site *site = ctx;
    atomic_fetch_add(&shared->started, 1);
    while (!atomic_load(&shared->is_open))
        (void)remo_task_sleep(site->node, SECOND / 1000);
    return reply_to(request);
}

/* SHORT: the thread of the node replies. */
static int keep(void *ctx, const struct remo_rpc_request *request) {
    struct site *site = ctx;
    struct order order = take_order(request);
    int rc = remo_rpc_defer(request, &site->deferred);
    atomic_store(&site->deferred_seed, order.seed);
    return rc;
}

/* SHORT */
static int pass_on(void *ctx, const struct remo_rpc_request *request) {
    const struct site *site = ctx;
    return remo_rpc_forward(request, (site->rank + 1) % site->size, MIRROR, request->data, request->bytes);
}

/* SHORT: it cannot send a large reply. */
static int tiny(void *ctx, const struct remo_rpc_request *request) {
    static const char large[SHORT_MAX + 1];
    (void)ctx;
    int rc = remo_rpc_reply(request, 0, large, sizeof large);
    atomic_fetch_add(&shared->wrong_count, rc != -EMSGSIZE || !strstr(remo_last_error(), "LONG"));
    return 7;
}

/* ---- open, close ---- */

static int open_site(struct remo_node *node, struct site *ret_site) {
    static const remo_rpc_handler_fn functions[HANDLERS] = {mirror, gate, keep, pass_on, tiny};
    struct remo_rpc_handler handlers[HANDLERS];
    struct remo_rpc_options options = {.handlers = handlers, .handler_count = HANDLERS};
    *ret_site = (struct site){.node = node, .rank = remo_node_rank(node), .size = remo_node_size(node)};
    for (uint32_t i = 0; i < HANDLERS; i++)
        handlers[i] = (struct remo_rpc_handler){.number = i,
                                                .run = functions[i],
                                                .ctx = ret_site,
                                                .kind = i < KEEP ? REMO_RPC_LONG : REMO_RPC_SHORT};
    CHECK_OK(remo_rpc_open(remo_node_root(node), "large", &options, &ret_site->rpc));
    CHECK_OK(remo_region_open(remo_node_root(node), "places", 4 << 20, NULL, &ret_site->region));
    CHECK_OK(remo_channel_wait(remo_node_root(node), LONG_TIME));
    CHECK_OK(cluster_meet());
    return 0;
}

static int finish(struct site *site) {
    CHECK_OK(cluster_meet());
    CHECK_EQUAL(atomic_load(&shared->wrong_count), 0);
    remo_rpc_close(site->rpc);
    remo_region_close(site->region);
    return cluster_meet();
}

/* ---- sizes ---- */

/* Call, and check the reply and the byte behind it. */
static int call_once(struct site *site, uint32_t to, uint32_t number, size_t bytes, size_t reply_bytes,
                     uint64_t seed) {
    unsigned char *request = malloc(bytes + 1), *reply = malloc(reply_bytes + 1);
    size_t found = 0;
    CHECK(request && reply);
    make_request(request, bytes, reply_bytes, seed);
    reply[reply_bytes] = 0xa5;
    CHECK_CODE(remo_rpc_call(site->rpc, to, number, request, bytes, reply, reply_bytes, &found, LONG_TIME),
               5);
    CHECK_EQUAL(found, reply_bytes);
    CHECK(is_filled(reply, reply_bytes, seed + 1));
    CHECK(reply[reply_bytes] == 0xa5);
    free(request);
    free(reply);
    return 0;
}

static const size_t sizes_bytes[] = {16, SHORT_MAX - 1, SHORT_MAX, SHORT_MAX + 1, 65536, 1u << 20, LARGE_MAX};
#define SIZES (sizeof sizes_bytes / sizeof sizes_bytes[0])

static int sizes(struct remo_node *node, void *ctx) {
    struct site site;
    (void)ctx;
    CHECK(open_site(node, &site) == 0);
    for (uint32_t to = 0; to < site.size; to++)
        for (size_t i = 0; i < SIZES; i++) {
            CHECK(call_once(&site, to, MIRROR, sizes_bytes[i], 16, i + to) == 0);
            CHECK(call_once(&site, to, MIRROR, 16, sizes_bytes[i], i + to) == 0);
            CHECK(call_once(&site, to, MIRROR, sizes_bytes[i], sizes_bytes[SIZES - 2 - i % 2], i) == 0);
        }
    return finish(&site);
}

/* ---- many at the same time ---- */

#define WINDOW 12u
#define ROUNDS 10u

struct caller {
    struct site *site;
    uint64_t index;
    int result;
};

struct slot {
    struct remo_rpc_op op;
    uint64_t seed;
    size_t reply_bytes;
    unsigned char *request, *reply;
};

static int start_in(struct site *site, struct slot *slot, uint32_t to, uint32_t number, size_t bytes,
                    size_t reply_bytes, uint64_t seed) {
    *slot = (struct slot){.seed = seed, .reply_bytes = reply_bytes};
    slot->request = malloc(bytes);
    slot->reply = malloc(reply_bytes);
    CHECK(slot->request && slot->reply);
    make_request(slot->request, bytes, reply_bytes, seed);
    slot->op = (struct remo_rpc_op){.node = to,
                                    .number = number,
                                    .request = slot->request,
                                    .request_bytes = bytes,
                                    .reply = slot->reply,
                                    .reply_cap = reply_bytes,
                                    .timeout_ns = LONG_TIME};
    CHECK_OK(remo_rpc_start(site->rpc, &slot->op));
    return 0;
}

static void free_slot(struct slot *slot) {
    free(slot->request);
    free(slot->reply);
}

static int call_window(struct caller *caller) {
    struct slot slots[WINDOW];
    for (uint64_t round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < WINDOW; i++) {
            uint64_t seed = caller->index * 1000 + round * WINDOW + i;
            CHECK(start_in(caller->site, &slots[i], (uint32_t)(seed % caller->site->size), MIRROR,
                           16 + seed * 7919 % 100000, 1 + seed * 104729 % 150000, seed)
                  == 0);
        }
        for (uint32_t i = 0; i < WINDOW; i++) {
            CHECK_CODE(remo_rpc_wait(&slots[i].op), 5);
            CHECK(is_filled(slots[i].reply, slots[i].reply_bytes, slots[i].seed + 1));
            free_slot(&slots[i]);
        }
    }
    return 0;
}

static void *run_caller(void *ctx) {
    struct caller *caller = ctx;
    caller->result = call_window(caller);
    return NULL;
}

static int parallel(struct remo_node *node, void *ctx) {
    enum { THREADS = 3 };
    struct site site;
    struct caller callers[THREADS];
    pthread_t ids[THREADS];
    (void)ctx;
    CHECK(open_site(node, &site) == 0);
    for (uint32_t i = 0; i < THREADS; i++) {
        callers[i] = (struct caller){.site = &site, .index = site.rank * THREADS + i};
        CHECK(pthread_create(&ids[i], NULL, run_caller, &callers[i]) == 0);
    }
    for (uint32_t i = 0; i < THREADS; i++)
        pthread_join(ids[i], NULL);
    for (uint32_t i = 0; i < THREADS; i++)
        CHECK(callers[i].result == 0);
    return finish(&site);
}

/* ---- places ---- */

#define PLACE_BYTES (1u << 20)

/* The request is at the start of the region's share, the place of the reply 1 MiB behind it. */
static struct remo_rpc_op in_places(struct site *site, uint32_t to, uint32_t number, size_t bytes) {
    struct remo_rpc_op op = {.node = to,
                             .number = number,
                             .request_bytes = bytes,
                             .reply_cap = PLACE_BYTES,
                             .timeout_ns = LONG_TIME};
    (void)remo_region_address(site->region, site->rank, 0, &op.request_place);
    (void)remo_region_address(site->region, site->rank, PLACE_BYTES, &op.reply_place);
    return op;
}

static int call_in_places(struct site *site, uint32_t to, size_t bytes, size_t reply_bytes) {
    unsigned char *local = remo_region_local(site->region);
    struct remo_rpc_op op = in_places(site, to, MIRROR, bytes);
    make_request(local, bytes, reply_bytes, bytes);
    memset(local + PLACE_BYTES, 0, PLACE_BYTES);
    CHECK_OK(remo_rpc_start(site->rpc, &op));
    CHECK_CODE(remo_rpc_wait(&op), 5);
    CHECK_EQUAL(op.reply_bytes, reply_bytes);
    CHECK(is_filled(local + PLACE_BYTES, reply_bytes, bytes + 1));
    CHECK_OK(remo_rpc_settle(&op, 0));
    return 0;
}

static int wrong_places(struct site *site) {
    char reply[8];
    struct remo_addr other;
    CHECK_OK(remo_region_address(site->region, 1 - site->rank, 0, &other));
    struct remo_rpc_op good = in_places(site, 1 - site->rank, MIRROR, 5000), op = good;
    op.reply = reply;
    CHECK_CODE(remo_rpc_start(site->rpc, &op), -EINVAL);
    op = good;
    op.request = reply;
    CHECK_CODE(remo_rpc_start(site->rpc, &op), -EINVAL);
    op = good;
    op.request_bytes = 0;
    CHECK_CODE(remo_rpc_start(site->rpc, &op), -EINVAL);
    op = good;
    op.reply_place = other;
    CHECK_SENTENCE(remo_rpc_start(site->rpc, &op), -EFAULT, "not in the network memory of this node");
    op = good;
    op.request_place = other;
    CHECK_CODE(remo_rpc_start(site->rpc, &op), -EFAULT);
    op = good;
    op.reply_place.word += (uint64_t)1 << 43;
    CHECK_CODE(remo_rpc_start(site->rpc, &op), -EFAULT);
    op = good;
    op.request_bytes = LARGE_MAX + 1;
    CHECK_CODE(remo_rpc_start(site->rpc, &op), -EMSGSIZE);
    CHECK_EQUAL(op.fate, REMO_RPC_NOT_SENT);
    CHECK_OK(remo_rpc_settle(&op, 0));
    CHECK_CODE(remo_rpc_settle(NULL, 0), -EINVAL);
    return 0;
}

static int places(struct remo_node *node, void *ctx) {
    static const size_t lengths[] = {16, SHORT_MAX, SHORT_MAX + 1, PLACE_BYTES};
    struct site site;
    (void)ctx;
    CHECK(open_site(node, &site) == 0);
    for (uint32_t to = 0; to < site.size; to++)
        for (uint32_t i = 0; i < 16; i++)
            CHECK(call_in_places(&site, to, lengths[i % 4], lengths[i / 4]) == 0);
    CHECK(wrong_places(&site) == 0);
    return finish(&site);
}

/* ---- costs ---- */

static uint64_t pieces(const struct remo_node *node, size_t bytes) {
    return strcmp(remo_node_fabric(node), "shm") == 0 ? 1
                                                      : (bytes + REMO_BUFFER_BYTES - 1) / REMO_BUFFER_BYTES;
}

/* Operations of both nodes for one call. */
static int check_cost(struct site *site, size_t bytes, size_t reply_bytes, uint64_t reads,
                      uint64_t reply_writes) {
    struct remo_stats before, after;
    struct remo_channel *channel = remo_rpc_channel(site->rpc);
    remo_channel_stats(channel, &before);
    CHECK_OK(cluster_meet());
    if (site->rank == 0)
        CHECK(call_once(site, 1, MIRROR, bytes, reply_bytes, 3) == 0);
    CHECK_OK(cluster_meet());
    CHECK_REACHES(remo_channel_stats(channel, &after), after.writes - before.writes,
                  site->rank == 1 ? reply_writes : 1);
    CHECK_REACHES(remo_channel_stats(channel, &after), after.imms - before.imms, 1);
    CHECK_EQUAL(after.reads - before.reads, site->rank == 1 ? reads : 0);
    CHECK_EQUAL(after.atomics - before.atomics, 0);
    CHECK_OK(cluster_meet());
    return 0;
}

static int costs(struct remo_node *node, void *ctx) {
    struct site site;
    (void)ctx;
    CHECK(open_site(node, &site) == 0);
    CHECK(check_cost(&site, SHORT_MAX, SHORT_MAX, 0, 1) == 0);
    for (size_t i = 3; i < SIZES; i++) {
        uint64_t count = pieces(node, sizes_bytes[i]);
        CHECK(check_cost(&site, sizes_bytes[i], 16, count, 1) == 0);
        CHECK(check_cost(&site, 16, sizes_bytes[i], 0, 1 + count) == 0);
        CHECK(check_cost(&site, sizes_bytes[i], sizes_bytes[i], count, 1 + count) == 0);
    }
    return finish(&site);
}

/* ---- late replies ---- */

/* Calls time out while their handlers run. Other calls use other blocks meanwhile. Then the gate opens. */
static int late(struct remo_node *node, void *ctx) {
    enum { LATE = 8 };
    struct site site;
    struct remo_rpc_op named;
    struct slot slots[LATE];
    (void)ctx;
    CHECK(open_site(node, &site) == 0);
    if (site.rank == 0) {
        unsigned char *local = remo_region_local(site.region);
        for (uint32_t i = 0; i < LATE; i++)
            CHECK(start_in(&site, &slots[i], 1, GATE, 70000, 200000, i) == 0);
        named = in_places(&site, 1, GATE, 70000);
        make_request(local, 70000, 200000, 77);
        CHECK_OK(remo_rpc_start(site.rpc, &named));
        CHECK_CODE(remo_rpc_settle(&named, 0), -EBUSY);
        while (atomic_load(&shared->started) < LATE + 1)
            CHECK_OK(remo_rpc_serve(site.rpc, SECOND / 1000));
        for (uint32_t i = 0; i < LATE; i++) {
            remo_rpc_cancel(&slots[i].op);
            CHECK_EQUAL(slots[i].op.fate, REMO_RPC_UNKNOWN);
            free_slot(&slots[i]);
        }
        remo_rpc_cancel(&named);
        CHECK_SENTENCE(remo_rpc_settle(&named, SECOND / 50), -ETIMEDOUT, "node 1 may still use");
        for (uint32_t i = 0; i < 3 * LATE; i++)
            CHECK(call_once(&site, i % 2, MIRROR, 70000, 200000, 100 + i) == 0);
        CHECK_EQUAL(remo_rpc_late_count(site.rpc), LATE + 1);
        atomic_store(&shared->is_open, 1);
        for (uint32_t i = 0; i < 3 * LATE; i++)
            CHECK(call_once(&site, 1, MIRROR, 70000, 200000, 200 + i) == 0);
        CHECK_OK(remo_rpc_settle(&named, LONG_TIME));
        CHECK(is_filled(local + PLACE_BYTES, 200000, 78));
        CHECK_REACHES((void)0, LATE + 1 - remo_rpc_late_count(site.rpc), LATE + 1);
    }
    return finish(&site);
}

/* ---- failures ---- */

/* Node 1 is killed while it reads requests and writes replies. The calls end, and calls to node 2 work. */
static int killed(struct remo_node *node, void *ctx) {
    enum { CALLS = 8 };
    struct site site;
    struct slot slots[CALLS];
    uint32_t down = 0;
    (void)ctx;
    CHECK(open_site(node, &site) == 0);
    if (site.rank == 0) {
        struct remo_rpc_op named = in_places(&site, 1, GATE, 70000);
        make_request(remo_region_local(site.region), 70000, 16, 77);
        CHECK_OK(remo_rpc_start(site.rpc, &named));
        while (atomic_load(&shared->started) == 0)
            CHECK_OK(remo_rpc_serve(site.rpc, SECOND / 1000));
        for (uint32_t i = 0; i < CALLS; i++)
            CHECK(start_in(&site, &slots[i], 1, MIRROR, 2u << 20, 3u << 20, i) == 0);
        (void)remo_rpc_wait(&slots[0].op);
        CHECK_OK(cluster_kill(1));
        for (uint32_t i = 0; i < CALLS; i++) {
            int rc = remo_rpc_wait(&slots[i].op);
            CHECK(rc == 5 || rc == -EHOSTDOWN);
            CHECK(rc != 5 || is_filled(slots[i].reply, slots[i].reply_bytes, slots[i].seed + 1));
            down += rc == -EHOSTDOWN;
        }
        CHECK_CODE(remo_rpc_wait(&named), -EHOSTDOWN);
        CHECK_EQUAL(named.fate, REMO_RPC_UNKNOWN);
        CHECK_CODE(remo_rpc_settle(&named, 0), -EHOSTDOWN);
        (void)down; /* node 1 may have replied to all others */
        for (uint32_t i = 0; i < CALLS; i++) {
            free_slot(&slots[i]);
            CHECK(call_once(&site, 2, MIRROR, 2u << 20, 3u << 20, 50 + i) == 0);
        }
    }
    CHECK_OK(cluster_meet());
    CHECK_EQUAL(atomic_load(&shared->wrong_count), 0);
    remo_rpc_close(site.rpc);
    remo_region_close(site.region);
    return 0;
}

/* The caller is killed while node 1 reads its requests and writes replies: node 1 continues. */
static int caller_killed(struct remo_node *node, void *ctx) {
    struct site site;
    (void)ctx;
    CHECK(open_site(node, &site) == 0);
    if (site.rank == 0) {
        struct slot slots[WINDOW];
        cluster_expect_death();
        for (uint64_t round = 0;; round++) {
            for (uint32_t i = 0; i < WINDOW; i++)
                CHECK(start_in(&site, &slots[i], 1, MIRROR, 1u << 20, 1u << 20, round + i) == 0);
            for (uint32_t i = 0; i < WINDOW; i++) {
                CHECK_CODE(remo_rpc_wait(&slots[i].op), 5);
                free_slot(&slots[i]);
            }
            atomic_fetch_add(&shared->started, 1);
        }
    }
    while (atomic_load(&shared->started) < 3)
        cluster_sleep_ms(1);
    if (site.rank == 2)
        CHECK_OK(cluster_kill(0));
    while (remo_node_peer(node, 0) == REMO_PEER_UP)
        cluster_sleep_ms(1);
    for (uint32_t i = 0; i < 10; i++)
        CHECK(call_once(&site, 3 - site.rank, MIRROR, 300000, 300000, i) == 0);
    CHECK_OK(cluster_meet());
    CHECK_EQUAL(atomic_load(&shared->wrong_count), 0);
    remo_rpc_close(site.rpc);
    remo_region_close(site.region);
    return 0;
}

/* ---- a caller that restarts ---- */

struct restart {
    struct remo_node *node;
    int code; /* of the reply; 0: not yet */
    char sentence[128];
    _Atomic uint32_t is_running, is_open, has_ended;
};

/* LONG: reply when the caller has joined again. */
static int reply_after_restart(void *ctx, const struct remo_rpc_request *request) {
    static const char data[300000];
    struct restart *restart = ctx;
    atomic_store(&restart->is_running, 1);
    while (!atomic_load(&restart->is_open))
        (void)remo_task_sleep(restart->node, SECOND / 1000);
    restart->code = remo_rpc_reply(request, 5, data, sizeof data);
    (void)snprintf(restart->sentence, sizeof restart->sentence, "%s", remo_last_error());
    atomic_store(&restart->has_ended, 1);
    return 0;
}

static int open_restart(struct remo_node *node, struct restart *restart, struct remo_rpc **ret_rpc) {
    const struct remo_rpc_handler handler = {
        .number = GATE, .run = reply_after_restart, .ctx = restart, .kind = REMO_RPC_LONG};
    const struct remo_rpc_options options = {.handlers = &handler, .handler_count = 1};
    CHECK_OK(remo_rpc_open(remo_node_root(node), "restart", &options, ret_rpc));
    return 0;
}

/* Let node 1 call node 0, leave, and join with the next incarnation. */
static int call_and_restart(struct job_node *nodes, struct restart *restart, struct remo_rpc *rpc) {
    static char reply[300000];
    char request = 1;
    struct remo_rpc_op op = {.node = 0,
                             .number = GATE,
                             .request = &request,
                             .request_bytes = 1,
                             .reply = reply,
                             .reply_cap = sizeof reply,
                             .timeout_ns = LONG_TIME};
    CHECK_OK(remo_rpc_start(rpc, &op));
    while (!atomic_load(&restart->is_running))
        CHECK_OK(remo_rpc_serve(rpc, SECOND / 1000));
    remo_rpc_cancel(&op);
    remo_rpc_close(rpc);
    remo_node_close(nodes[1].node);
    CHECK_OK(job_rejoin(&nodes[1], 1, nodes[0].node));
    return 0;
}

/* The place of a large reply is in the memory of an earlier incarnation. */
static int caller_restarted(struct remo_node *node, void *ctx) {
    struct job_node nodes[2] = {{0}};
    struct remo_rpc *rpcs[2];
    struct restart restart = {0};
    struct job job;
    (void)ctx;
    CHECK_OK(job_make(&job, 2));
    for (uint32_t i = 0; i < 2; i++)
        nodes[i] = (struct job_node){.job = &job, .rank = i, .fabric = remo_node_fabric(node)};
    CHECK_OK(job_open_all(nodes, 2));
    restart.node = nodes[0].node;
    for (uint32_t i = 0; i < 2; i++)
        CHECK(open_restart(nodes[i].node, &restart, &rpcs[i]) == 0);
    CHECK_OK(remo_channel_wait(remo_rpc_channel(rpcs[1]), LONG_TIME));
    CHECK(call_and_restart(nodes, &restart, rpcs[1]) == 0);
    atomic_store(&restart.is_open, 1);
    while (!atomic_load(&restart.has_ended))
        cluster_sleep_ms(1);
    CHECK_CODE(restart.code, -EHOSTDOWN);
    CHECK(strstr(restart.sentence, "cannot reply to node 1") != NULL);
    remo_rpc_close(rpcs[0]);
    job_close_all(nodes, 2);
    job_remove(&job);
    return 0;
}

/* ---- deferred, forwarded, with `done` ---- */

static int answer_later(struct site *site) {
    enum { BYTES = 300000 };
    uint64_t seed;
    unsigned char *reply = malloc(BYTES);
    CHECK(reply);
    while ((seed = atomic_load(&site->deferred_seed)) == 0)
        CHECK_OK(remo_rpc_serve(site->rpc, SECOND / 1000));
    fill(reply, BYTES, seed + 1);
    CHECK_OK(remo_rpc_reply_later(site->rpc, site->deferred, 5, reply, BYTES));
    CHECK_CODE(remo_rpc_reply_later(site->rpc, site->deferred, 5, reply, BYTES), -EALREADY);
    free(reply);
    return 0;
}

static void set_flag(struct remo_rpc_op *op) {
    atomic_store((_Atomic uint32_t *)op->ctx, 1);
}

static int with_done(struct site *site) {
    enum { BYTES = 90000 };
    static unsigned char request[BYTES], reply[BYTES];
    static _Atomic uint32_t is_done;
    atomic_store(&is_done, 0);
    make_request(request, BYTES, BYTES, 9);
    struct remo_rpc_op op = {.node = 1,
                             .number = MIRROR,
                             .request = request,
                             .request_bytes = BYTES,
                             .reply = reply,
                             .reply_cap = BYTES,
                             .timeout_ns = LONG_TIME,
                             .done = set_flag,
                             .ctx = (void *)&is_done};
    CHECK_OK(remo_rpc_start(site->rpc, &op));
    while (!atomic_load(&is_done))
        CHECK_OK(remo_rpc_serve(site->rpc, SECOND / 1000));
    CHECK_EQUAL(op.status, 5);
    CHECK(is_filled(reply, BYTES, 10));
    return 0;
}

static int ways(struct remo_node *node, void *ctx) {
    struct site site;
    (void)ctx;
    CHECK(open_site(node, &site) == 0);
    if (site.rank == 1)
        CHECK(answer_later(&site) == 0);
    if (site.rank == 0) {
        CHECK(call_once(&site, 1, KEEP, 16, 300000, 8) == 0);
        CHECK(call_once(&site, 1, PASS_ON, SHORT_MAX, 300000, 8) == 0);
        CHECK(with_done(&site) == 0);
    }
    return finish(&site);
}

/* ---- wrong arguments ---- */

static int wrong_calls(struct site *site) {
    static unsigned char data[LARGE_MAX + 1], reply[65536];
    size_t bytes = 0;
    struct remo_rpc *rpc = site->rpc;
    struct remo_rpc_op op = {
        .node = 1, .number = TINY, .request = data, .request_bytes = SHORT_MAX + 1, .timeout_ns = LONG_TIME};
    CHECK_SENTENCE(remo_rpc_call(rpc, 1, MIRROR, data, sizeof data, NULL, 0, NULL, LONG_TIME), -EMSGSIZE,
                   "the maximum is 16777216");
    CHECK_CODE(remo_rpc_call(rpc, 1, MIRROR, NULL, 5000, NULL, 0, NULL, LONG_TIME), -EINVAL);
    CHECK_OK(remo_rpc_start(rpc, &op));
    CHECK_SENTENCE(remo_rpc_wait(&op), -EMSGSIZE, "is SHORT");
    CHECK_EQUAL(op.fate, REMO_RPC_NOT_SENT);
    CHECK_CODE(remo_rpc_call(rpc, 1, TINY, data, SHORT_MAX, reply, sizeof reply, &bytes, LONG_TIME), 7);
    CHECK_CODE(remo_rpc_post(rpc, 1, MIRROR, data, SHORT_MAX + 1), -EMSGSIZE);
    make_request(data, 16, 70000, 1);
    CHECK_SENTENCE(remo_rpc_call(rpc, 1, MIRROR, data, 16, reply, sizeof reply, &bytes, LONG_TIME), -EMSGSIZE,
                   "70000 bytes, the buffer 65536");
    CHECK_EQUAL(bytes, 70000);
    CHECK_CODE(remo_rpc_call(rpc, 1, MIRROR, data, 16, reply, 100, &bytes, LONG_TIME), -EMSGSIZE);
    CHECK_EQUAL(bytes, 70000);
    CHECK_CODE(remo_rpc_call(rpc, 1, MIRROR, data, 16, NULL, 0, &bytes, LONG_TIME), 5); /* discarded */
    CHECK_EQUAL(bytes, 70000);
    return 0;
}

static int wrong(struct remo_node *node, void *ctx) {
    struct site site;
    (void)ctx;
    CHECK(open_site(node, &site) == 0);
    if (site.rank == 0)
        CHECK(wrong_calls(&site) == 0);
    return finish(&site);
}

static void reset(void) {
    memset(shared, 0, sizeof *shared);
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(sizes, 2),
        CLUSTER_TEST(parallel, 3),
        CLUSTER_TEST(places, 2),
        CLUSTER_TEST(costs, 2),
        CLUSTER_TEST(late, 2),
        CLUSTER_TEST(killed, 3),
        CLUSTER_TEST(ways, 3),
        CLUSTER_TEST(caller_killed, 3),
        CLUSTER_TEST(caller_restarted, 1),
        CLUSTER_TEST(wrong, 2),
        CLUSTER_TEST_NAMED("parallel_threads", parallel, 2, .as_threads = 1),
        {0}};
    shared = cluster_shared(sizeof *shared);
    return cluster_main(argc, argv, tests, reset);
}
