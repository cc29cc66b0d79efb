/* cases_imm.c - immediates, notifications and doorbells.
 * An immediate arrives exactly once, in order, and after its data; no wake-up is lost. */
#include "suite.h"

#include <errno.h>
#include <unistd.h>

static struct suite_cluster cluster;

static int post_imm(struct suite_node *node, struct remo__endpoint *endpoint, uint32_t peer, uint64_t at,
                    const void *local, uint64_t size_bytes, uint32_t imm) {
    struct remo__op op = suite_op(node, REMO__OP_WRITE, peer, at, (void *)local, size_bytes);
    op.flags = REMO__OP_IMM;
    op.imm = imm;
    return node->suite->ops->post(endpoint, &op, 1);
}

/* Send one immediate and wait for its completion; poll while the queue is full. */
static void send_imm(struct suite_node *node, struct remo__endpoint *endpoint, uint32_t peer, uint64_t at,
                     const void *local, uint64_t size_bytes, uint32_t imm) {
    struct remo__op op = suite_op(node, REMO__OP_WRITE, peer, at, (void *)local, size_bytes);
    op.flags = REMO__OP_IMM;
    op.imm = imm;
    CHECK_EQ(suite_run(node, endpoint, op), 0);
}

/* The next immediate; it must come within the limit. */
static struct remo__imm next_imm(struct suite_node *node) {
    struct remo__imm imm;
    uint64_t limit = remo__deadline(SUITE_LIMIT_NS);
    int count;
    while ((count = node->suite->ops->imm_poll(node->fabric, &imm, 1)) == 0) {
        CHECK(remo__now_ns() < limit);
        node->suite->ops->imm_wait(node->fabric, 10 * REMO__NS_PER_MS);
    }
    CHECK_EQ(count, 1);
    return imm;
}

/* ---- an immediate arrives after its data; those of one endpoint arrive in order ---- */

static const uint64_t payload_sizes[] = {8, 1, 100, 5000, 200000};
enum { PAYLOADS = 500 };

static void payload_fill(char *bytes, uint32_t round) {
    suite_fill(bytes, payload_sizes[round % REMO__ARRAY_COUNT(payload_sizes)], round);
}

/* Checks the data at the moment when the immediate arrives. */
static void *payload_receive(void *arg) {
    struct suite_node *node = arg;
    char *expected = malloc(payload_sizes[4]);
    CHECK(expected != NULL);
    uint64_t limit = remo__deadline(SUITE_LIMIT_NS);
    for (uint32_t round = 0; round < PAYLOADS; round++) {
        uint64_t size_bytes = payload_sizes[round % REMO__ARRAY_COUNT(payload_sizes)];
        struct remo__imm imm;
        payload_fill(expected, round);
        suite_store(suite_memory(node, SUITE_ZONE_BYTES - 4096), round + 1); /* ready for the next */
        while (node->suite->ops->imm_poll(node->fabric, &imm, 1) == 0)
            CHECK(remo__now_ns() < limit);
        CHECK(memcmp(suite_memory(node, 100), expected, size_bytes) == 0);
        CHECK_EQ(imm.peer, 1);
        CHECK_EQ(imm.value, round * 3);
    }
    free(expected);
    return NULL;
}

static void imm_payload(const struct suite *suite) {
    suite_cluster_open(&cluster, suite, 3);
    struct suite_node *node = &cluster.nodes[1], *to = &cluster.nodes[2];
    struct remo__endpoint *endpoint = suite_endpoint(node);
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, payload_receive, to), 0);
    for (uint32_t round = 0; round < PAYLOADS; round++) {
        payload_fill(suite_buffer(node, 0), round);
        uint64_t limit = remo__deadline(SUITE_LIMIT_NS);
        while (suite_load(suite_memory(to, SUITE_ZONE_BYTES - 4096)) != round + 1)
            CHECK(remo__now_ns() < limit);
        send_imm(node, endpoint, 2, 100, suite_buffer(node, 0),
                 payload_sizes[round % REMO__ARRAY_COUNT(payload_sizes)], round * 3);
    }
    pthread_join(thread, NULL);
    struct remo__imm extra;
    for (uint32_t i = 0; i < 3; i++)
        CHECK_EQ(suite->ops->imm_poll(cluster.nodes[i].fabric, &extra, 1), 0);
    suite->ops->endpoint_close(endpoint);
    suite_cluster_close(&cluster);
}

/* A stream of immediates, many in flight, to a thread that sleeps in between. */
static void imm_order(const struct suite *suite) {
    enum { COUNT = 5000 };
    suite_cluster_open(&cluster, suite, 2);
    struct suite_node *node = &cluster.nodes[0], *to = &cluster.nodes[1];
    struct remo__endpoint *endpoint = suite_endpoint(node);
    suite_service_start(to);
    for (uint32_t i = 0; i < COUNT; i++) {
        send_imm(node, endpoint, 1, 0, suite_buffer(node, 0), i % 3 * 8, i);
        if (i % 500 == 0)
            usleep(2000);
    }
    suite_service_expect(to, COUNT);
    suite_service_stop(to);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        CHECK_EQ(to->imms[i].peer, 0);
        CHECK(!node->fabric->caps.writes_ordered || to->imms[i].value == i);
        sum += to->imms[i].value;
    }
    CHECK_EQ(sum, (uint64_t)COUNT * (COUNT - 1) / 2);
    suite->ops->endpoint_close(endpoint);
    suite_cluster_close(&cluster);
}

/* An immediate without data, all 32 bits of it, to the node itself and to a peer. */
static void imm_alone(const struct suite *suite) {
    static const uint32_t values[] = {0, 1, 0x7fffffff, 0x80000000, 0xffffffff, 0x12345678};
    suite_cluster_open(&cluster, suite, 2);
    struct suite_node *node = &cluster.nodes[0];
    struct remo__endpoint *endpoint = suite_endpoint(node);
    for (uint32_t peer = 0; peer < 2; peer++) {
        for (size_t i = 0; i < REMO__ARRAY_COUNT(values); i++) {
            send_imm(node, endpoint, peer, 0, NULL, 0, values[i]);
            struct remo__imm imm = next_imm(&cluster.nodes[peer]);
            CHECK_EQ(imm.peer, 0);
            CHECK_EQ(imm.value, values[i]);
        }
    }
    suite->ops->endpoint_close(endpoint);
    suite_cluster_close(&cluster);
}

/* ---- many senders ---- */

enum { SENDERS = 4, PER_SENDER = 1500 };

struct sender {
    struct suite_node *node;
    uint32_t index;
};

static void *send_many(void *arg) {
    struct sender *sender = arg;
    struct remo__endpoint *endpoint = suite_endpoint(sender->node);
    for (uint32_t i = 0; i < PER_SENDER; i++)
        send_imm(sender->node, endpoint, 2, 0, NULL, 0, sender->index << 16 | i);
    sender->node->suite->ops->endpoint_close(endpoint);
    return NULL;
}

/* Threads of two nodes and the receiver itself send concurrently: nothing is lost, and each thread's order is
 * kept. */
static void imm_many_senders(const struct suite *suite) {
    suite_cluster_open(&cluster, suite, 3);
    struct suite_node *to = &cluster.nodes[2];
    pthread_t threads[SENDERS];
    struct sender senders[SENDERS];
    uint32_t next[SENDERS] = {0};
    for (uint32_t i = 0; i < SENDERS; i++) {
        senders[i] = (struct sender){.node = &cluster.nodes[i % 3], .index = i};
        CHECK_EQ(pthread_create(&threads[i], NULL, send_many, &senders[i]), 0);
    }
    usleep(20000); /* let the senders fill all queues first */
    suite_service_start(to);
    for (uint32_t i = 0; i < SENDERS; i++)
        pthread_join(threads[i], NULL);
    suite_service_expect(to, SENDERS * PER_SENDER);
    suite_service_stop(to);
    for (uint32_t i = 0; i < SENDERS * PER_SENDER; i++) {
        uint32_t sender = to->imms[i].value >> 16, number = to->imms[i].value & 0xffff;
        CHECK(sender < SENDERS && number < PER_SENDER);
        CHECK_EQ(to->imms[i].peer, sender % 3);
        CHECK(!to->fabric->caps.writes_ordered || number == next[sender]);
        next[sender]++;
    }
    for (uint32_t i = 0; i < SENDERS; i++)
        CHECK_EQ(next[i], PER_SENDER);
    suite_cluster_close(&cluster);
}

/* Without a receiver, post finally returns -EAGAIN, or the queue is full. Then all accepted immediates
 * arrive. */
static void imm_full(const struct suite *suite) {
    enum { MOST = 20000 };
    suite_cluster_open(&cluster, suite, 2);
    struct suite_node *node = &cluster.nodes[0], *to = &cluster.nodes[1];
    struct remo__endpoint *endpoint = suite_endpoint(node);
    struct remo__completion done[16];
    uint32_t taken = 0, completed = 0, received = 0, idle = 0;
    suite_read(node, endpoint, 1, 0, suite_buffer(node, 0), 8); /* connects */
    while (taken < MOST && idle < 1000) {                       /* until there is no more progress */
        int rc = post_imm(node, endpoint, 1, 0, NULL, 0, taken);
        CHECK(rc == 1 || rc == -EAGAIN);
        taken += rc == 1;
        int polled = suite->ops->poll(endpoint, done, REMO__ARRAY_COUNT(done));
        CHECK(polled >= 0);
        for (int i = 0; i < polled; i++)
            CHECK_EQ(done[i].status, 0);
        completed += (uint32_t)polled;
        idle = rc == 1 || polled > 0 ? 0 : idle + 1;
    }
    CHECK(taken > 0);
    uint64_t limit = remo__deadline(SUITE_LIMIT_NS);
    while (received < taken || completed < taken) {
        struct remo__imm imms[16];
        int count = suite->ops->imm_poll(to->fabric, imms, REMO__ARRAY_COUNT(imms));
        CHECK(count >= 0 && remo__now_ns() < limit);
        for (int i = 0; i < count; i++, received++)
            CHECK(!node->fabric->caps.writes_ordered || imms[i].value == received);
        completed += (uint32_t)suite->ops->poll(endpoint, done, REMO__ARRAY_COUNT(done));
    }
    CHECK_EQ(received, taken);
    send_imm(node, endpoint, 1, 0, NULL, 0, 77); /* works again */
    CHECK_EQ(next_imm(to).value, 77);
    suite->ops->endpoint_close(endpoint);
    suite_cluster_close(&cluster);
}

/* A post to the node itself that returns -EAGAIN has not placed its data. Otherwise its repetition could
 * overwrite newer data. */
static void imm_refused(const struct suite *suite) {
    enum { MOST = 20000 };
    suite_cluster_open(&cluster, suite, 1);
    struct suite_node *node = &cluster.nodes[0];
    struct remo__endpoint *endpoint = suite_endpoint(node);
    struct remo__completion done[16];
    uint64_t *words = (uint64_t *)suite_buffer(node, 0);
    uint32_t taken = 0, idle = 0;
    suite_read(node, endpoint, 0, 0, words, 8); /* connects */
    suite_store(suite_memory(node, 0), 0);
    while (taken < MOST && idle < 1000) { /* until there is no more progress */
        words[taken] = taken + 1;
        int rc = post_imm(node, endpoint, 0, 0, &words[taken], 8, taken);
        CHECK(rc == 1 || rc == -EAGAIN);
        CHECK(rc == 1 || suite_load(suite_memory(node, 0)) <= taken);
        taken += rc == 1;
        int polled = suite->ops->poll(endpoint, done, REMO__ARRAY_COUNT(done));
        CHECK(polled >= 0);
        idle = rc == 1 || polled > 0 ? 0 : idle + 1;
    }
    CHECK(taken > 0);
    suite->ops->endpoint_close(endpoint);
    suite_cluster_close(&cluster);
}

/* ---- sleeping ---- */

/* imm_wait ends by its timeout, and by imm_wake, also if that was called before. */
static void imm_wait_ends(const struct suite *suite) {
    suite_cluster_open(&cluster, suite, 1);
    struct suite_node *node = &cluster.nodes[0];
    struct remo__imm imm;
    while (suite->ops->imm_poll(node->fabric, &imm, 1) != 0)
        CHECK(false); /* no immediate was sent */
    uint64_t start = remo__now_ns();
    suite->ops->imm_wait(node->fabric, 20 * REMO__NS_PER_MS);
    CHECK(in_time(remo__now_ns() - start, 5 * REMO__NS_PER_S));
    start = remo__now_ns();
    for (uint32_t round = 0; round < 30; round++) { /* in total less than 30 sleeps of maximum length */
        suite_service_start(node);
        if (round % 2)
            usleep(3000); /* let it fall asleep */
        suite_service_stop(node);
        free(node->imms);
        node->imms = NULL;
    }
    CHECK(in_time(remo__now_ns() - start, REMO__NS_PER_S));
    start = remo__now_ns(); /* pending before the wait: a wake-up, an immediate */
    suite->ops->imm_wake(node->fabric);
    suite->ops->imm_wait(node->fabric, REMO_FOREVER);
    struct remo__endpoint *endpoint = suite_endpoint(node);
    for (uint32_t i = 0; i < 10; i++) {
        send_imm(node, endpoint, 0, 0, NULL, 0, i);
        usleep(1000);
        suite->ops->imm_wait(node->fabric, REMO_FOREVER);
        CHECK_EQ(next_imm(node).value, i);
    }
    CHECK(in_time(remo__now_ns() - start, 900 * REMO__NS_PER_MS));
    suite->ops->endpoint_close(endpoint);
    suite_cluster_close(&cluster);
}

/* Each immediate wakes the service thread. */
static void imm_wakes(const struct suite *suite) {
    suite_cluster_open(&cluster, suite, 2);
    struct suite_node *node = &cluster.nodes[0], *to = &cluster.nodes[1];
    struct remo__endpoint *endpoint = suite_endpoint(node);
    uint32_t rounds = suite_rounds(node, 100), stalls = 0;
    suite_service_start(to);
    for (uint32_t round = 1; round <= rounds; round++) {
        if (round % 10 == 0)
            usleep(300); /* mostly it sleeps by now; else it is on its way to */
        uint64_t start = remo__now_ns();
        send_imm(node, endpoint, 1, 0, NULL, 0, round);
        while (atomic_load(&to->imm_count) != round)
            CHECK(remo__now_ns() - start < SUITE_LIMIT_NS);
        CHECK(suite_woken(&stalls, start));
    }
    suite->ops->endpoint_close(endpoint);
    suite_cluster_close(&cluster);
}

struct sleeper {
    struct suite_node *node;
    uint64_t at;
    uint32_t rounds;
};

/* Waits as the node does: increment `sleepers`, check once more, sleep. One long sleep for each round. */
static void *sleep_for_flags(void *arg) {
    struct sleeper *sleeper = arg;
    struct remo__doorbell *bell = sleeper->node->fabric->doorbell;
    uint32_t stalls = 0;
    for (uint64_t round = 1; round <= sleeper->rounds; round++) {
        uint64_t start = remo__now_ns();
        remo__doorbell_add_sleeper(bell);
        for (;;) {
            uint32_t seq = atomic_load(&bell->seq);
            if (suite_load(suite_memory(sleeper->node, sleeper->at)) >= round)
                break;
            CHECK(remo__now_ns() - start < SUITE_LIMIT_NS);
            remo__doorbell_sleep(bell, seq, REMO_FOREVER);
        }
        atomic_fetch_sub(&bell->sleepers, 1);
        CHECK(suite_woken(&stalls, start));
        suite_store(suite_memory(sleeper->node, sleeper->at + 4096), round);
    }
    return NULL;
}

static void wake_rounds(struct suite_node *from, struct suite_node *to, uint8_t flags) {
    struct sleeper sleeper = {.node = to, .at = flags * 8192, .rounds = suite_rounds(from, 50)};
    struct remo__endpoint *endpoint = suite_endpoint(from);
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, sleep_for_flags, &sleeper), 0);
    for (uint64_t round = 1; round <= sleeper.rounds; round++) {
        if (round % 10 == 0)
            usleep(300); /* mostly it sleeps by now; else it is on its way to */
        for (volatile uint64_t spin = 0; spin < round % 128; spin++)
            ; /* at each stage of falling asleep */
        uint64_t *flag = (uint64_t *)suite_buffer(from, 0);
        *flag = round;
        struct remo__op op = suite_op(from, REMO__OP_WRITE, to->card.rank, sleeper.at, flag, 8);
        op.flags = flags;
        CHECK_EQ(suite_run(from, endpoint, op), 0);
        uint64_t limit = remo__deadline(SUITE_LIMIT_NS);
        while (suite_load(suite_memory(to, sleeper.at + 4096)) < round)
            CHECK(remo__now_ns() < limit);
    }
    pthread_join(thread, NULL);
    from->suite->ops->endpoint_close(endpoint);
}

/* A write that notifies wakes a thread of the target that sleeps on the doorbell; so does one with an
 * immediate. */
static void notify_wakes(const struct suite *suite) {
    suite_cluster_open(&cluster, suite, 2);
    struct suite_node *from = &cluster.nodes[0], *to = &cluster.nodes[1];
    suite_service_start(from);
    suite_service_start(to);
    wake_rounds(from, to, REMO__OP_NOTIFY);
    wake_rounds(from, to, REMO__OP_IMM);
    wake_rounds(to, to, REMO__OP_NOTIFY);
    suite_service_expect(to, suite_rounds(to, 50)); /* one per immediate, none for a notification */
    suite_service_expect(from, 0);
    suite_cluster_close(&cluster);
}

static void *notify_soon(void *arg) {
    usleep(20000);
    remo__doorbell_notify(arg);
    return NULL;
}

/* The doorbell alone: notified before the sleep, notified during it, a timeout. */
static void doorbell(const struct suite *suite) {
    (void)suite;
    struct remo__doorbell bell = {0};
    uint64_t start = remo__now_ns();
    remo__doorbell_notify(&bell);
    remo__doorbell_sleep(&bell, 0, REMO_FOREVER);
    CHECK(in_time(remo__now_ns() - start, 500 * REMO__NS_PER_MS));
    CHECK_EQ(atomic_load(&bell.seq), 1);
    remo__doorbell_sleep(&bell, 1, 0);
    remo__doorbell_sleep(&bell, 1, 5 * REMO__NS_PER_MS);
    uint64_t deadline = remo__deadline(SUITE_LIMIT_NS);
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, notify_soon, &bell), 0);
    start = remo__now_ns();
    while (atomic_load(&bell.seq) == 1) {
        CHECK(remo__now_ns() < deadline);
        remo__doorbell_sleep(&bell, 1, REMO_FOREVER);
    }
    CHECK(in_time(remo__now_ns() - start, 900 * REMO__NS_PER_MS));
    pthread_join(thread, NULL);
}

const struct suite_case suite_cases_imm[] = {
    {"imm_payload", imm_payload},
    {"imm_order", imm_order},
    {"imm_alone", imm_alone},
    {"imm_many_senders", imm_many_senders},
    {"imm_full", imm_full},
    {"imm_refused", imm_refused},
    {"imm_wait_ends", imm_wait_ends},
    {"imm_wakes", imm_wakes},
    {"notify_wakes", notify_wakes},
    {"doorbell", doorbell},
    {NULL, NULL},
};
