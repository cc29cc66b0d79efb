/* test_rpc_ring.c - a request that a thread has left to the holder of its ring's mutex is served, also if the
 * holder does not serve: it closes a service, or returns credit. A poll returns whether it has served a
 * request. The tests write such requests and marks themselves, and send no wake-up. */
#include "rpc_service.h"

#include "objects/rpc/rpc.h"

static struct service_shared *shared;

/* Leave a request in the node's own ring: after the next release of the mutex nothing else announces it. */
static int leave_request(struct service *service, struct remo_node *node, uint64_t number) {
    struct remo__rpc_transport *transport = service->rpc->transport;
    struct remo__rpc_peer *peer = &transport->peers[service->rank];
    const struct remo__rpc_words words = {.head =
                                              remo__rpc_head_make(sizeof number, ADD, 1, 0, REMO__RPC_POST),
                                          .call = remo__rpc_call_make(service->rank, 0, 0),
                                          .rest = remo__rpc_rest(service->rpc, service->rank, REMO_FOREVER)};
    remo__rpc_lock(transport, &peer->send_mutex);
    int rc = remo__rpc_send(transport, remo__thread(node), service->rpc->channel->slot, service->rank, words,
                            &number);
    remo__rpc_unlock(transport, &peer->send_mutex);
    CHECK_EQUAL(rc, 1);
    atomic_store(&peer->is_missed, true);
    return 0;
}

/* Wait, without serving, until a handler has run so many times. */
static int await_runs(const struct service *service, uint64_t count) {
    uint64_t deadline_ns = cluster_now_ns() + LONG_TIME;
    while (atomic_load(&shared->runs[service->rank]) < count && cluster_now_ns() < deadline_ns)
        cluster_sleep_ms(1);
    CHECK_EQUAL(atomic_load(&shared->runs[service->rank]), count);
    return 0;
}

static int left_to_close(struct remo_node *node, void *ctx) {
    struct service service;
    struct remo_rpc *other;
    (void)ctx;
    CHECK(service_open(node, shared, &service) == 0);
    CHECK_OK(remo_rpc_open(remo_node_root(node), "other", NULL, &other));
    CHECK(leave_request(&service, node, 1) == 0);
    remo_rpc_close(other);
    CHECK(await_runs(&service, 1) == 0);
    remo_rpc_close(service.rpc);
    return 0;
}

static int left_to_credit(struct remo_node *node, void *ctx) {
    struct service service;
    (void)ctx;
    CHECK(service_open(node, shared, &service) == 0);
    struct remo__rpc_transport *transport = service.rpc->transport;
    atomic_store(&transport->peers[service.rank].owes_credit, true);
    atomic_store(&transport->chores, 1);
    CHECK(leave_request(&service, node, 1) == 0);
    remo__rpc_do_chores(transport, remo__thread(node));
    CHECK_EQUAL(atomic_load(&transport->chores), 0);
    CHECK(await_runs(&service, 1) == 0);
    remo_rpc_close(service.rpc);
    return 0;
}

/* The service thread may be faster in some rounds. */
static int polls(struct remo_node *node, void *ctx) {
    struct service service;
    uint64_t count = 0;
    bool has_served = false;
    (void)ctx;
    CHECK(service_open(node, shared, &service) == 0);
    struct remo__rpc_transport *transport = service.rpc->transport;
    for (uint32_t round = 0; round < 100 && !has_served; round++) {
        for (uint32_t i = 0; i < 5; i++)
            CHECK(leave_request(&service, node, ++count) == 0);
        has_served = remo__rpc_poll(transport, remo__thread(node));
        CHECK(await_runs(&service, count) == 0);
    }
    CHECK(has_served);
    CHECK(!remo__rpc_poll(transport, remo__thread(node)));
    remo_rpc_close(service.rpc);
    return 0;
}

/* A wake-up is counted as part of its request, and not again for the channel of the transport. */
static int wakes(struct remo_node *node, void *ctx) {
    struct service service;
    struct remo_stats stats;
    (void)ctx;
    CHECK(service_open(node, shared, &service) == 0);
    struct remo__rpc_transport *transport = service.rpc->transport;
    for (uint64_t count = 1; count <= 10; count++) {
        CHECK(leave_request(&service, node, count) == 0);
        remo__rpc_wake(transport, remo__thread(node), service.rank);
        CHECK(await_runs(&service, count) == 0);
    }
    remo_channel_stats(transport->channel, &stats);
    CHECK_EQUAL(stats.imms, 0);
    remo_channel_stats(remo_rpc_channel(service.rpc), &stats);
    CHECK_EQUAL(stats.imms, 10);
    remo_rpc_close(service.rpc);
    return 0;
}

static void setup(void) {
    memset(shared, 0, sizeof *shared);
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {CLUSTER_TEST(left_to_close, 1),
                                                CLUSTER_TEST(left_to_credit, 1),
                                                CLUSTER_TEST(polls, 1),
                                                CLUSTER_TEST(wakes, 1, .only_on = "shm"),
                                                {0}};
    shared = cluster_shared(sizeof *shared);
    return cluster_main(argc, argv, tests, setup);
}
