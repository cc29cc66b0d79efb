/* cases_queue.c - many operations at once: batches, full queues, closing with operations in flight.
 * Every accepted operation completes exactly once. */
#include "suite.h"

#include <errno.h>

/* Post all of `ops`; poll whenever the queue is full, and at the end. Each token, the index of its operation,
 * must come once. */
static void run_all(struct suite_node *node, struct remo__endpoint *endpoint, struct remo__op *ops,
                    uint32_t count) {
    bool *seen = calloc(count, sizeof *seen);
    CHECK(seen != NULL);
    uint32_t posted = 0, completed = 0;
    uint64_t limit = remo__deadline(SUITE_LIMIT_NS);
    for (uint32_t i = 0; i < count; i++)
        ops[i].token = i;
    while (completed < count) {
        CHECK(remo__now_ns() < limit);
        if (posted < count) {
            uint32_t batch = (uint32_t)remo__min(count - posted, node->fabric->caps.batch_max);
            int rc = node->suite->ops->post(endpoint, ops + posted, batch);
            CHECK(rc == -EAGAIN || (rc >= 1 && rc <= (int)batch));
            posted += rc > 0 ? (uint32_t)rc : 0;
        }
        struct remo__completion done[7];
        int polled = node->suite->ops->poll(endpoint, done, REMO__ARRAY_COUNT(done));
        CHECK(polled >= 0 && polled <= (int)REMO__ARRAY_COUNT(done));
        for (int i = 0; i < polled; i++) {
            CHECK_EQ(done[i].status, 0);
            CHECK(done[i].token < posted && !seen[done[i].token]);
            seen[done[i].token] = true;
            completed++;
        }
        if (polled == 0)
            node->suite->ops->wait(endpoint, REMO__NS_PER_MS);
    }
    struct remo__completion extra;
    CHECK_EQ(node->suite->ops->poll(endpoint, &extra, 1), 0);
    free(seen);
}

/* Reads, writes and atomics mixed, to a peer and to self, many times the depth of the queue. */
static void batches(const struct suite *suite) {
    static struct suite_cluster cluster;
    enum { COUNT = 3000, SLOT = 64 };
    suite_cluster_open(&cluster, suite, 2);
    struct suite_node *node = &cluster.nodes[0];
    struct remo__endpoint *endpoint = suite_endpoint(node);
    struct remo__op *ops = calloc(COUNT, sizeof *ops);
    CHECK(ops != NULL);
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t peer = i % 3 != 0;
        char *buffer = suite_buffer(node, (uint64_t)i * SLOT);
        suite_fill(buffer, SLOT, i);
        ops[i] = suite_op(node, REMO__OP_WRITE, peer, (uint64_t)i * SLOT, buffer, 1 + i % SLOT);
    }
    run_all(node, endpoint, ops, COUNT);
    suite_flush(node, endpoint, 0);
    suite_flush(node, endpoint, 1);
    for (uint32_t i = 0; i < COUNT; i++) {
        CHECK(suite_filled(suite_memory(&cluster.nodes[i % 3 != 0], (uint64_t)i * SLOT), 1 + i % SLOT, i));
        memset(suite_buffer(node, (uint64_t)i * SLOT), 0, SLOT);
        ops[i].kind = REMO__OP_READ;
        if (i % 5 == 0) {
            uint64_t counter = UINT64_C(1) << 20;
            ops[i] = suite_op(node, REMO__OP_FETCH_ADD, i % 3 != 0, counter,
                              suite_buffer(node, (uint64_t)i * SLOT), 8);
            ops[i].operand = 1;
        }
    }
    run_all(node, endpoint, ops, COUNT);
    for (uint32_t i = 0; i < COUNT; i++)
        CHECK(i % 5 == 0 || suite_filled(suite_buffer(node, (uint64_t)i * SLOT), 1 + i % SLOT, i));
    uint64_t sum =
        suite_fetch_add(node, endpoint, 0, 1 << 20, 0) + suite_fetch_add(node, endpoint, 1, 1 << 20, 0);
    CHECK_EQ(sum, COUNT / 5);
    free(ops);
    suite->ops->endpoint_close(endpoint);
    suite_cluster_close(&cluster);
}

/* Without polls the queue is full at its depth; then each poll makes room again. */
static void full_queue(const struct suite *suite) {
    static struct suite_cluster cluster;
    suite_cluster_open(&cluster, suite, 2);
    struct suite_node *node = &cluster.nodes[0];
    struct remo__endpoint *endpoint = suite_endpoint(node);
    uint32_t depth = node->fabric->caps.depth, posted = 0, completed = 0;
    CHECK(depth > 0 && node->fabric->caps.batch_max > 0 && node->fabric->caps.message_bytes_max > 0);
    struct remo__op op = suite_op(node, REMO__OP_READ, 1, 0, suite_buffer(node, 0), 8);
    int rc;
    CHECK_EQ(suite_run(node, endpoint, op), 0); /* connects */
    while ((rc = suite->ops->post(endpoint, &op, 1)) == 1) {
        posted++;
        CHECK(posted <= depth);
    }
    CHECK_EQ(rc, -EAGAIN);
    CHECK_EQ(posted, depth);
    for (uint32_t round = 0; round < 3 * depth; round++) {
        CHECK_EQ(suite_complete(node, endpoint).status, 0);
        completed++;
        CHECK_EQ(suite->ops->post(endpoint, &op, 1), 1);
        posted++;
    }
    while (completed < posted) {
        CHECK_EQ(suite_complete(node, endpoint).status, 0);
        completed++;
    }
    struct remo__completion extra;
    CHECK_EQ(suite->ops->poll(endpoint, &extra, 1), 0);
    suite->ops->endpoint_close(endpoint);
    suite_cluster_close(&cluster);
}

/* Of a batch larger than the room left, the first operations are accepted. */
static void partial_batch(const struct suite *suite) {
    static struct suite_cluster cluster;
    suite_cluster_open(&cluster, suite, 2);
    struct suite_node *node = &cluster.nodes[0];
    struct remo__endpoint *endpoint = suite_endpoint(node);
    uint32_t depth = node->fabric->caps.depth,
             batch = (uint32_t)remo__min(node->fabric->caps.batch_max, depth);
    struct remo__op *ops = calloc(batch, sizeof *ops);
    CHECK(ops != NULL);
    uint64_t posted = 0;
    suite_read(node, endpoint, 1, 0, suite_buffer(node, 0), 8); /* connects */
    for (int rc = 0; rc != -EAGAIN;) {
        for (uint32_t i = 0; i < batch; i++) {
            ops[i] = suite_op(node, REMO__OP_READ, 1, 0, suite_buffer(node, 0), 8);
            ops[i].token = posted + i;
        }
        rc = suite->ops->post(endpoint, ops, batch);
        CHECK(rc == -EAGAIN || (rc > 0 && rc <= (int)batch));
        posted += rc > 0 ? (uint32_t)rc : 0;
        CHECK(posted <= depth);
    }
    CHECK_EQ(posted, depth);
    uint64_t sum = 0;
    for (uint64_t i = 0; i < posted; i++)
        sum += suite_complete(node, endpoint).token;
    CHECK_EQ(sum, posted * (posted - 1) / 2);
    free(ops);
    suite->ops->endpoint_close(endpoint);
    suite_cluster_close(&cluster);
}

/* Endpoints and fabrics close with operations in flight; no other endpoint is affected. */
static void close_outstanding(const struct suite *suite) {
    static struct suite_cluster cluster;
    suite_cluster_open(&cluster, suite, 2);
    struct suite_node *node = &cluster.nodes[0];
    struct remo__endpoint *other = suite_endpoint(node);
    for (uint32_t round = 0; round < 20; round++) {
        struct remo__endpoint *endpoint = suite_endpoint(node);
        if (round % 2) /* in other rounds it may close before it is connected */
            suite_read(node, endpoint, 1, 0, suite_buffer(node, 0), 8);
        for (uint32_t i = 0; i < node->fabric->caps.depth; i++) {
            struct remo__op op = suite_op(node, i % 2 ? REMO__OP_READ : REMO__OP_WRITE, 1, 4096,
                                          suite_buffer(node, i % 2 ? 1 << 20 : 2 << 20), 1 + i * 100 % 65536);
            if (suite->ops->post(endpoint, &op, 1) != 1)
                break;
        }
        suite->ops->endpoint_close(endpoint);
        CHECK_EQ(suite_fetch_add(node, other, 1, 0, 1), round);
    }
    struct remo__op op = suite_op(node, REMO__OP_WRITE, 1, 4096, suite_buffer(node, 0), 1 << 20);
    CHECK_EQ(suite_post(node, other, &op), 1);
    suite->ops->endpoint_close(other);
    suite_cluster_close(&cluster);
}

const struct suite_case suite_cases_queue[] = {
    {"batches", batches},
    {"full_queue", full_queue},
    {"partial_batch", partial_batch},
    {"close_outstanding", close_outstanding},
    {NULL, NULL},
};
