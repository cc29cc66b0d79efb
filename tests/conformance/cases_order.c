/* cases_order.c - order and visibility as the capabilities state them, and the fence flag.
 * A case is skipped if the fabric lacks the capability that it checks. */
#include "suite.h"

#include "fabric/mapped.h"

static struct suite_cluster cluster;
#define ROUNDS suite_rounds(&cluster.nodes[0], 2000)

/* An earlier read or atomic must not see the data of a later, fenced write of the same endpoint. */
static void fence_flag(const struct suite *suite) {
    suite_cluster_open(&cluster, suite, 2);
    struct suite_node *node = &cluster.nodes[0];
    struct remo__endpoint *endpoint = suite_endpoint(node);
    uint64_t *in = (uint64_t *)suite_buffer(node, 0), *old = in + 8, *out = in + 16;
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        struct remo__op ops[3] = {
            suite_op(node, REMO__OP_READ, 1, 0, in, 8),
            suite_op(node, REMO__OP_FETCH_ADD, 1, 64, old, 8),
            suite_op(node, REMO__OP_WRITE, 1, 0, out, 8),
        };
        ops[1].operand = 1;
        ops[2].flags = REMO__OP_FENCE;
        *out = round;
        *in = *old = UINT64_MAX;
        for (uint32_t i = 0; i < 3; i++)
            CHECK_EQ(suite_post(node, endpoint, &ops[i]), 1);
        for (uint32_t i = 0; i < 3; i++)
            CHECK_EQ(suite_complete(node, endpoint).status, 0);
        CHECK_EQ(*in, round - 1);
        CHECK_EQ(*old, round - 1);
    }
    suite->ops->endpoint_close(endpoint);
    suite_cluster_close(&cluster);
}

/* The owner's next load sees a completed write. */
static void completion_placed(const struct suite *suite) {
    suite_cluster_open(&cluster, suite, 2);
    struct suite_node *node = &cluster.nodes[0];
    if (!node->fabric->caps.completion_placed)
        suite_skip("on fabric %s a completion does not mean placed", suite->ops->name);
    struct remo__endpoint *endpoint = suite_endpoint(node);
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        uint64_t *out = (uint64_t *)suite_buffer(node, 0);
        *out = round;
        CHECK_EQ(suite_run(node, endpoint, suite_op(node, REMO__OP_WRITE, 1, 0, out, 8)), 0);
        CHECK_EQ(suite_load(suite_memory(&cluster.nodes[1], 0)), round);
    }
    suite->ops->endpoint_close(endpoint);
    suite_cluster_close(&cluster);
}

/* A completed read implies that earlier writes are placed, also large ones. */
static void read_flushes(const struct suite *suite) {
    suite_cluster_open(&cluster, suite, 2);
    struct suite_node *node = &cluster.nodes[0];
    if (!node->fabric->caps.read_flushes)
        suite_skip("on fabric %s a read does not flush writes", suite->ops->name);
    struct remo__endpoint *endpoint = suite_endpoint(node);
    enum { BYTES = 100000 };
    for (uint64_t round = 1; round <= 200; round++) {
        suite_fill(suite_buffer(node, 0), BYTES, round);
        struct remo__op write = suite_op(node, REMO__OP_WRITE, 1, 0, suite_buffer(node, 0), BYTES);
        struct remo__op read = suite_op(node, REMO__OP_READ, 1, 1 << 20, suite_buffer(node, 1 << 20), 8);
        write.token = 1, read.token = 2;
        CHECK_EQ(suite_post(node, endpoint, &write), 1);
        CHECK_EQ(suite_post(node, endpoint, &read), 1);
        bool read_done = false;
        for (uint32_t i = 0; i < 2; i++) {
            struct remo__completion done = suite_complete(node, endpoint);
            CHECK_EQ(done.status, 0);
            read_done |= done.token == 2;
            if (read_done)
                CHECK(suite_filled(suite_memory(&cluster.nodes[1], 0), BYTES, round));
        }
    }
    suite->ops->endpoint_close(endpoint);
    suite_cluster_close(&cluster);
}

/* ---- reads behind writes: nodes 0 and 2 each write a word at node 1 and then read the other's ---- */

static struct {
    _Atomic uint64_t came[2]; /* rounds that each node has begun */
    _Atomic uint64_t read[2]; /* rounds that each node has ended */
    uint64_t seen[2];
} crossing;

static void await_round(_Atomic uint64_t *counter, uint64_t round) {
    uint64_t limit = remo__deadline(SUITE_LIMIT_NS);
    for (uint32_t turn = 0; atomic_load(counter) < round; turn++) {
        CHECK(remo__now_ns() < limit);
        if (turn % 1000 == 999)
            sched_yield();
    }
}

static void cross(struct suite_node *node, struct remo__endpoint *endpoint, uint32_t side, uint64_t round) {
    uint64_t *words = (uint64_t *)suite_buffer(node, 0);
    words[0] = round;
    struct remo__op ops[2] = {suite_op(node, REMO__OP_WRITE, 1, side * 4096, words, 8),
                              suite_op(node, REMO__OP_READ, 1, (1 - side) * 4096, words + 8, 8)};
    atomic_store(&crossing.came[side], round);
    await_round(&crossing.came[1 - side], round);
    for (uint32_t i = 0; i < 2; i++)
        CHECK_EQ(suite_post(node, endpoint, &ops[i]), 1);
    for (uint32_t i = 0; i < 2; i++)
        CHECK_EQ(suite_complete(node, endpoint).status, 0);
    crossing.seen[side] = words[8];
    atomic_store(&crossing.read[side], round);
    await_round(&crossing.read[1 - side], round);
}

static void *cross_from_node_2(void *arg) {
    struct remo__endpoint *endpoint = suite_endpoint(arg);
    for (uint64_t round = 1; round <= ROUNDS; round++)
        cross(arg, endpoint, 1, round);
    ((struct suite_node *)arg)->suite->ops->endpoint_close(endpoint);
    return NULL;
}

static void reads_behind_writes(const struct suite *suite) {
    suite_cluster_open(&cluster, suite, 3);
    struct suite_node *node = &cluster.nodes[0];
    if (!node->fabric->caps.read_flushes)
        suite_skip("on fabric %s a read may pass a write of another word", suite->ops->name);
    struct remo__endpoint *endpoint = suite_endpoint(node);
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, cross_from_node_2, &cluster.nodes[2]), 0);
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        cross(node, endpoint, 0, round);
        CHECK(crossing.seen[0] >= round || crossing.seen[1] >= round);
    }
    pthread_join(thread, NULL);
    suite->ops->endpoint_close(endpoint);
    suite_cluster_close(&cluster);
}

/* ---- writes in order: node 0 writes a payload and then a flag; node 1 polls the flag ---- */

#define PAYLOAD 1000u

static void *payload_check(void *arg) {
    struct suite_node *node = arg;
    uint64_t limit = remo__deadline(SUITE_LIMIT_NS);
    for (uint64_t seen = 0; seen < ROUNDS;) {
        uint64_t now = suite_load(suite_memory(node, 8192));
        CHECK(now >= seen && remo__now_ns() < limit);
        if (now == seen) {
            sched_yield();
            continue;
        }
        char copy[PAYLOAD];
        remo__mapped_copy_from(copy, suite_memory(node, 0), sizeof copy);
        /* Later rounds may be replacing the payload: each byte is of this round or of a later one. */
        for (uint32_t i = 0; i < PAYLOAD; i++)
            CHECK((uint8_t)(copy[i] - (char)now) < 128);
        seen = now;
        suite_store(suite_memory(node, 16384), seen);
    }
    return NULL;
}

static void writes_ordered(const struct suite *suite) {
    suite_cluster_open(&cluster, suite, 2);
    struct suite_node *node = &cluster.nodes[0];
    if (!node->fabric->caps.writes_ordered)
        suite_skip("fabric %s does not keep writes in order", suite->ops->name);
    struct remo__endpoint *endpoint = suite_endpoint(node);
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, payload_check, &cluster.nodes[1]), 0);
    uint64_t *ack = (uint64_t *)suite_buffer(node, 65536);
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        char *payload = suite_buffer(node, round % 2 * 4096);
        uint64_t *flag = (uint64_t *)suite_buffer(node, 16384 + round % 2 * 64);
        memset(payload, (int)(round & 255), PAYLOAD);
        *flag = round;
        struct remo__op ops[2] = {suite_op(node, REMO__OP_WRITE, 1, 0, payload, PAYLOAD),
                                  suite_op(node, REMO__OP_WRITE, 1, 8192, flag, 8)};
        for (uint32_t i = 0; i < 2; i++)
            CHECK_EQ(suite_post(node, endpoint, &ops[i]), 1);
        for (uint32_t i = 0; i < 2; i++)
            CHECK_EQ(suite_complete(node, endpoint).status, 0);
        /* No more than 100 rounds ahead of the checker, for its arithmetic. */
        uint64_t limit = remo__deadline(SUITE_LIMIT_NS);
        do {
            suite_read(node, endpoint, 1, 16384, ack, 8);
            CHECK(remo__now_ns() < limit);
        } while (*ack + 100 < round);
    }
    pthread_join(thread, NULL);
    suite->ops->endpoint_close(endpoint);
    suite_cluster_close(&cluster);
}

/* ---- reads in order: node 1 counts x up before y; node 0 reads y before x ---- */

static _Atomic bool counting;

static void *count_up(void *arg) {
    struct suite_node *node = arg;
    for (uint64_t value = 1; atomic_load(&counting); value++) {
        suite_store(suite_memory(node, 0), value);
        suite_store(suite_memory(node, 4096), value);
    }
    return NULL;
}

static void reads_ordered(const struct suite *suite) {
    suite_cluster_open(&cluster, suite, 2);
    struct suite_node *node = &cluster.nodes[0];
    if (!node->fabric->caps.reads_ordered)
        suite_skip("fabric %s does not keep reads in order", suite->ops->name);
    struct remo__endpoint *endpoint = suite_endpoint(node);
    pthread_t thread;
    atomic_store(&counting, true);
    CHECK_EQ(pthread_create(&thread, NULL, count_up, &cluster.nodes[1]), 0);
    uint64_t *x = (uint64_t *)suite_buffer(node, 0), *y = x + 8;
    for (uint32_t round = 0; round < 2 * ROUNDS; round++) {
        struct remo__op ops[2] = {suite_op(node, REMO__OP_READ, 1, 4096, y, 8),
                                  suite_op(node, REMO__OP_READ, 1, 0, x, 8)};
        for (uint32_t i = 0; i < 2; i++)
            CHECK_EQ(suite_post(node, endpoint, &ops[i]), 1);
        for (uint32_t i = 0; i < 2; i++)
            CHECK_EQ(suite_complete(node, endpoint).status, 0);
        CHECK(*x >= *y);
    }
    atomic_store(&counting, false);
    pthread_join(thread, NULL);
    suite->ops->endpoint_close(endpoint);
    suite_cluster_close(&cluster);
}

/* ---- aligned words are never torn, in transfers of any size ---- */

static const uint64_t whole_sizes[] = {8, 64, 128, 136, 1000, 4096, 20000};
static _Atomic uint32_t whole_phase; /* index of the current size; the end when it is out of range */

static void *write_patterns(void *arg) {
    struct suite_node *node = arg;
    struct remo__endpoint *endpoint = suite_endpoint(node);
    uint32_t phase;
    for (uint32_t round = 0; (phase = atomic_load(&whole_phase)) < REMO__ARRAY_COUNT(whole_sizes); round++) {
        memset(suite_buffer(node, 0), (int)(round & 255), whole_sizes[phase]);
        suite_write(node, endpoint, 1, 0, suite_buffer(node, 0), whole_sizes[phase]);
    }
    node->suite->ops->endpoint_close(endpoint);
    return NULL;
}

static void words_whole(const struct suite *suite) {
    suite_cluster_open(&cluster, suite, 3);
    struct suite_node *node = &cluster.nodes[0];
    struct remo__endpoint *endpoint = suite_endpoint(node);
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, write_patterns, &cluster.nodes[2]), 0);
    for (uint32_t phase = 0; phase < REMO__ARRAY_COUNT(whole_sizes); phase++) {
        atomic_store(&whole_phase, phase);
        uint32_t rounds = ROUNDS / 4 * (node->fabric->caps.mapped && whole_sizes[phase] <= 64 ? 40 : 1);
        for (uint32_t round = 0; round < rounds; round++) {
            const uint64_t *words = (const uint64_t *)suite_buffer(node, 0);
            suite_read(node, endpoint, 1, 0, suite_buffer(node, 0), whole_sizes[phase]);
            for (uint64_t i = 0; i < whole_sizes[phase] / 8; i++)
                CHECK_EQ(words[i], (words[i] & 255) * UINT64_C(0x0101010101010101));
        }
    }
    atomic_store(&whole_phase, REMO__ARRAY_COUNT(whole_sizes));
    pthread_join(thread, NULL);
    suite->ops->endpoint_close(endpoint);
    suite_cluster_close(&cluster);
}

const struct suite_case suite_cases_order[] = {
    {"fence_flag", fence_flag},         {"completion_placed", completion_placed},
    {"read_flushes", read_flushes},     {"reads_behind_writes", reads_behind_writes},
    {"writes_ordered", writes_ordered}, {"reads_ordered", reads_ordered},
    {"words_whole", words_whole},       {NULL, NULL},
};
