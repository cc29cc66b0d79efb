/* cases_errors.c - wrong arguments, malformed input from peers, peers that are cut off.
 * Each case expects an error for the operation concerned, and no effect on any other. */
#include "suite.h"

#include <errno.h>
#include <unistd.h>

static struct suite_cluster cluster;

/* The operation fails, and the endpoint remains usable. */
static void refused(struct suite_node *node, struct remo__endpoint *endpoint, struct remo__op op) {
    int status = suite_run(node, endpoint, op);
    CHECK(status < 0 && status != -EAGAIN);
    CHECK(strlen(remo_last_error()) > 0);
    suite_read(node, endpoint, 1, 0, suite_buffer(node, 0), 8);
}

static void out_of_range(const struct suite *suite) {
    suite_cluster_open(&cluster, suite, 2);
    struct suite_node *node = &cluster.nodes[0];
    struct remo__endpoint *endpoint = suite_endpoint(node);
    const struct suite_segment *segment = &cluster.nodes[1].card.segments[0];
    uint64_t end = segment->offset + segment->size_bytes;
    const struct {
        uint64_t offset, size_bytes;
    } ranges[] = {
        {end, 1},
        {end, 8},
        {end - 7, 8},
        {end - 4096, 4097},
        {SUITE_ARENA_BYTES - 8, 8},
        {SUITE_ARENA_BYTES, 8},
        {UINT64_C(1) << 40, 8},
        {UINT64_MAX - 7, 8},
        {UINT64_MAX - 3, 8},
        {UINT64_MAX, 1},
    };
    for (size_t i = 0; i < REMO__ARRAY_COUNT(ranges); i++) {
        for (uint8_t kind = REMO__OP_READ; kind <= REMO__OP_COMPARE_SWAP; kind++) {
            if (kind >= REMO__OP_FETCH_ADD && (ranges[i].size_bytes != 8 || ranges[i].offset % 8 != 0))
                continue;
            struct remo__op op = suite_op(node, kind, 1, 0, suite_buffer(node, 4096), ranges[i].size_bytes);
            op.remote = ranges[i].offset;
            refused(node, endpoint, op);
        }
    }
    struct remo__op last = suite_op(node, REMO__OP_READ, 1, 0, suite_buffer(node, 0), 8);
    last.remote = end - 8;
    CHECK_EQ(suite_run(node, endpoint, last), 0);
    suite->ops->endpoint_close(endpoint);
    suite_cluster_close(&cluster);
}

static void bad_operations(const struct suite *suite) {
    suite_cluster_open(&cluster, suite, 2);
    struct suite_node *node = &cluster.nodes[0];
    struct remo__endpoint *endpoint = suite_endpoint(node);
    void *buffer = suite_buffer(node, 4096);
    const struct remo__op bad[] = {
        suite_op(node, REMO__OP_READ, 2, 0, buffer, 8), /* no such peer */
        suite_op(node, REMO__OP_WRITE, 65535, 0, buffer, 8),
        suite_op(node, REMO__OP_FETCH_ADD, 2, 0, buffer, 8),
        suite_op(node, 4, 1, 0, buffer, 8), /* no such kind */
        suite_op(node, 255, 1, 0, buffer, 8),
        suite_op(node, REMO__OP_FETCH_ADD, 1, 4, buffer, 8), /* not aligned */
        suite_op(node, REMO__OP_COMPARE_SWAP, 1, 1, buffer, 8),
        suite_op(node, REMO__OP_FETCH_ADD, 1, 0, buffer, 4), /* not 8 bytes */
        suite_op(node, REMO__OP_COMPARE_SWAP, 1, 0, buffer, 16),
    };
    for (size_t i = 0; i < REMO__ARRAY_COUNT(bad); i++)
        refused(node, endpoint, bad[i]);

    /* In a batch only the operations before it are accepted. */
    struct remo__op good = suite_op(node, REMO__OP_READ, 1, 0, buffer, 8), batch[3] = {good, bad[0], good};
    uint32_t count = node->fabric->caps.batch_max < 3 ? 1 : 3;
    CHECK_EQ(suite->ops->post(endpoint, batch, count), 1);
    CHECK_EQ(suite_complete(node, endpoint).status, 0);
    CHECK(suite->ops->post(endpoint, batch + 1, count - 1 ? 2 : 1) < 0);
    suite->ops->endpoint_close(endpoint);
    suite_cluster_close(&cluster);
}

static void bad_open(const struct suite *suite) {
    struct remo__fabric *fabric = NULL;
    static const uint32_t wrong[][2] = {{0, 0}, {1, 1}, {7, 3}};
    for (size_t i = 0; i < REMO__ARRAY_COUNT(wrong); i++) {
        struct remo__fabric_config config = suite_config(suite, wrong[i][0], wrong[i][1]);
        CHECK(suite->ops->open(&config, &fabric) < 0);
        CHECK(strlen(remo_last_error()) > 0);
        CHECK(fabric == NULL);
    }
}

/* ---- descriptions of peers ---- */

static void garbage_connect(const struct suite *suite) {
    static struct suite_node node, other;
    suite_node_open(&node, suite, 0, 3);
    suite_node_open(&other, suite, 1, 3);
    uint8_t blob[REMO__BLOB_BYTES_MAX] = {0};
    CHECK(suite->ops->connect(node.fabric, 1, blob, 0) < 0);
    CHECK(suite->ops->connect(node.fabric, 1, blob, sizeof blob) < 0);
    memset(blob, 0xff, sizeof blob);
    CHECK(suite->ops->connect(node.fabric, 1, blob, sizeof blob) < 0);
    for (size_t size_bytes = 0; size_bytes < other.card.blob_bytes; size_bytes++) /* truncated */
        CHECK(suite->ops->connect(node.fabric, 1, other.card.blob, size_bytes) < 0);
    CHECK(suite->ops->connect(node.fabric, 3, other.card.blob, other.card.blob_bytes) < 0);
    CHECK(suite->ops->connect(node.fabric, UINT32_MAX, other.card.blob, other.card.blob_bytes) < 0);
    size_t blob_bytes = 12345;
    CHECK(suite->ops->describe(node.fabric, blob, 1, &blob_bytes) < 0);
    CHECK_EQ(blob_bytes, 12345);
    suite_node_meet(&node, &other.card); /* the valid description still works */
    suite_node_meet(&node, &node.card);
    suite_node_meet(&other, &node.card);
    struct remo__endpoint *endpoint = suite_endpoint(&node);
    suite_read(&node, endpoint, 1, 0, suite_buffer(&node, 0), 8);
    suite->ops->endpoint_close(endpoint);
    suite_node_close(&node);
    suite_node_close(&other);
}

static void garbage_segment(const struct suite *suite) {
    static struct suite_node node, other;
    suite_node_open(&node, suite, 0, 2);
    suite_node_open(&other, suite, 1, 2);
    const struct suite_segment *good = &other.card.segments[0];
    uint8_t blob[REMO__BLOB_BYTES_MAX];
    memset(blob, 0xff, sizeof blob);
    /* No peer is connected yet. */
    CHECK(suite->ops->map_segment(node.fabric, 1, 0, good->offset, good->size_bytes, good->blob,
                                  good->blob_bytes, good->fd)
          < 0);
    CHECK_EQ(suite->ops->connect(node.fabric, 1, other.card.blob, other.card.blob_bytes), 0);
    CHECK_EQ(suite->ops->connect(other.fabric, 0, node.card.blob, node.card.blob_bytes), 0);
    const struct {
        uint32_t peer, index;
        uint64_t offset, size_bytes;
        size_t blob_bytes;
    } wrong[] = {
        {2, 0, good->offset, good->size_bytes, good->blob_bytes},
        {1, REMO__SEGMENTS_MAX, good->offset, good->size_bytes, good->blob_bytes},
        {1, 0, SUITE_ARENA_BYTES, good->size_bytes, good->blob_bytes},
        {1, 0, SUITE_ARENA_BYTES - 4096, good->size_bytes, good->blob_bytes},
        {1, 0, UINT64_MAX - 4095, 8192, good->blob_bytes},
        {1, 0, good->offset, SUITE_ARENA_BYTES + 4096, good->blob_bytes},
        {1, 0, good->offset, UINT64_MAX, good->blob_bytes},
        {1, 0, good->offset, 0, good->blob_bytes},
        {1, 0, good->offset, good->size_bytes, 0},
        {1, 0, good->offset, good->size_bytes, good->blob_bytes - 1},
    };
    for (size_t i = 0; i < REMO__ARRAY_COUNT(wrong); i++) {
        CHECK(suite->ops->map_segment(node.fabric, wrong[i].peer, wrong[i].index, wrong[i].offset,
                                      wrong[i].size_bytes, good->blob, wrong[i].blob_bytes, good->fd)
              < 0);
        CHECK(strlen(remo_last_error()) > 0);
    }
    CHECK(suite->ops->map_segment(node.fabric, 1, 0, good->offset, good->size_bytes, blob, sizeof blob,
                                  good->fd)
          < 0);
    suite_node_map(&node, &other.card, 0);
    size_t blob_bytes = 12345;
    CHECK(suite->ops->add_segment(node.fabric, 1, SUITE_ARENA_BYTES, 4096, good->fd, blob, sizeof blob,
                                  &blob_bytes)
          < 0);
    CHECK(suite->ops->add_segment(node.fabric, REMO__SEGMENTS_MAX, 0, 4096, good->fd, blob, sizeof blob,
                                  &blob_bytes)
          < 0);
    CHECK_EQ(blob_bytes, 12345);
    struct remo__endpoint *endpoint = suite_endpoint(&node);
    suite_read(&node, endpoint, 1, 0, suite_buffer(&node, 0), 8);
    suite->ops->endpoint_close(endpoint);
    suite_node_close(&node);
    suite_node_close(&other);
}

/* ---- peers that are cut off ---- */

#define CUT_NS REMO__NS_PER_S /* bound on the time until all operations to the peer have ended */

static void disconnected(const struct suite *suite) {
    suite_cluster_open(&cluster, suite, 3);
    struct suite_node *node = &cluster.nodes[0];
    struct remo__endpoint *endpoint = suite_endpoint(node);
    suite_write(node, endpoint, 1, 0, suite_buffer(node, 0), 4096);
    uint32_t in_flight = 0;
    for (uint32_t i = 0; i < node->fabric->caps.depth; i++) {
        struct remo__op op = suite_op(node, REMO__OP_WRITE, 1, 0, suite_buffer(node, 0), 65536);
        if (suite->ops->post(endpoint, &op, 1) != 1)
            break;
        in_flight++;
    }
    uint64_t start = remo__now_ns();
    suite->ops->disconnect(node->fabric, 1);
    CHECK(!atomic_load(&node->fabric->peers[1].connected));
    CHECK(atomic_load(&node->fabric->peers[1].base) == NULL);
    for (; in_flight > 0; in_flight--) {
        int status = suite_complete(node, endpoint).status;
        CHECK(status == 0 || status == -EHOSTDOWN || status == -ECANCELED || status == -EIO);
    }
    for (uint8_t kind = REMO__OP_READ; kind <= REMO__OP_COMPARE_SWAP; kind++)
        CHECK_EQ(suite_run(node, endpoint, suite_op(node, kind, 1, 0, suite_buffer(node, 0), 8)), -EHOSTDOWN);
    CHECK(in_time(remo__now_ns() - start, CUT_NS));
    suite->ops->disconnect(node->fabric, 1); /* repeated, and unknown peers: no effect */
    suite->ops->disconnect(node->fabric, 3);
    suite_write(node, endpoint, 2, 0, suite_buffer(node, 0), 4096);
    suite_write(node, endpoint, 0, 0, suite_buffer(node, 0), 4096);
    suite->ops->endpoint_close(endpoint);
    suite_cluster_close(&cluster);
}

/* The peer is cut off while threads work on it. Each thread's operations end with an error. */
static void *until_down(void *arg) {
    struct suite_node *node = arg;
    struct remo__endpoint *endpoint = suite_endpoint(node);
    static _Atomic uint32_t number;
    char *buffer = suite_buffer(node, atomic_fetch_add(&number, 1) * UINT64_C(65536));
    int status;
    do
        status = suite_run(node, endpoint, suite_op(node, REMO__OP_READ, 1, 0, buffer, 20000));
    while (status == 0);
    CHECK(status == -EHOSTDOWN || status == -ECANCELED || status == -EIO);
    CHECK_EQ(suite_run(node, endpoint, suite_op(node, REMO__OP_READ, 1, 0, buffer, 8)), -EHOSTDOWN);
    node->suite->ops->endpoint_close(endpoint);
    return NULL;
}

static void disconnect_under_load(const struct suite *suite) {
    enum { THREADS = 3 };
    suite_cluster_open(&cluster, suite, 2);
    struct suite_node *node = &cluster.nodes[0], *peer = &cluster.nodes[1];
    pthread_t threads[THREADS];
    for (uint32_t i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, until_down, node), 0);
    usleep(50000);
    uint64_t start = remo__now_ns();
    suite->ops->disconnect(node->fabric, 1);
    suite_node_close(peer); /* releases its memory too */
    for (uint32_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK(in_time(remo__now_ns() - start, CUT_NS));
    cluster.size = 1;
    suite_cluster_close(&cluster);
}

/* Cut a peer off and connect it again, many times, in the same processes: all operations work as before. */
static void reconnect(const struct suite *suite) {
    suite_cluster_open(&cluster, suite, 2);
    struct suite_node *node = &cluster.nodes[0], *peer = &cluster.nodes[1];
    struct remo__endpoint *endpoint = suite_endpoint(node);
    for (uint64_t round = 0; round < 20; round++) {
        CHECK_EQ(suite_fetch_add(node, endpoint, 1, 0, 1), round);
        suite->ops->disconnect(node->fabric, 1);
        suite->ops->disconnect(peer->fabric, 0);
        CHECK_EQ(suite_run(node, endpoint, suite_op(node, REMO__OP_READ, 1, 0, suite_buffer(node, 0), 8)),
                 -EHOSTDOWN);
        suite_node_meet(peer, &node->card);
        suite_node_meet(node, &peer->card);
        struct remo__op op = suite_op(node, REMO__OP_WRITE, 1, 0, NULL, 0);
        op.flags = REMO__OP_IMM;
        op.imm = (uint32_t)round;
        CHECK_EQ(suite_run(node, endpoint, op), 0);
        struct remo__imm imm;
        uint64_t limit = remo__deadline(SUITE_LIMIT_NS);
        while (suite->ops->imm_poll(peer->fabric, &imm, 1) == 0)
            CHECK(remo__now_ns() < limit);
        CHECK_EQ(imm.value, round);
    }
    suite->ops->endpoint_close(endpoint);
    suite_cluster_close(&cluster);
}

const struct suite_case suite_cases_errors[] = {
    {"out_of_range", out_of_range},
    {"bad_operations", bad_operations},
    {"bad_open", bad_open},
    {"garbage_connect", garbage_connect},
    {"garbage_segment", garbage_segment},
    {"disconnected", disconnected},
    {"disconnect_under_load", disconnect_under_load},
    {"reconnect", reconnect},
    {NULL, NULL},
};
