/* cases_threads.c - threads with an endpoint each, and nodes that join and leave while others work.
 * Atomics of all threads add up, and data of different threads does not mix. */
#include "suite.h"

#include <errno.h>
#include <unistd.h>

static struct suite_cluster cluster;

enum { THREADS = 4 };
#define ROUNDS suite_rounds(&cluster.nodes[0], 2000)

struct worker {
    struct suite_node *node;
    uint32_t index, target;
    _Atomic bool *stop; /* NULL: a fixed number of rounds */
    uint64_t rounds;
    pthread_t thread;
};

static void workers_start(struct worker *workers, uint32_t count, void *(*run)(void *)) {
    for (uint32_t i = 0; i < count; i++)
        CHECK_EQ(pthread_create(&workers[i].thread, NULL, run, &workers[i]), 0);
}

static void workers_join(struct worker *workers, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        pthread_join(workers[i].thread, NULL);
}

/* ---- atomics add up ---- */

static void *add_rounds(void *arg) {
    struct worker *worker = arg;
    struct remo__endpoint *endpoint = suite_endpoint(worker->node);
    uint64_t before = 0;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        uint64_t old = suite_fetch_add(worker->node, endpoint, worker->target, 0, 1);
        CHECK(i == 0 || old > before); /* the counter never decreases */
        before = old;
        suite_fetch_add(worker->node, endpoint, worker->target, 8, worker->index + 1);
    }
    worker->node->suite->ops->endpoint_close(endpoint);
    return NULL;
}

static void threads_fetch_add(const struct suite *suite) {
    suite_cluster_open(&cluster, suite, 2);
    struct worker workers[THREADS];
    for (uint32_t i = 0; i < THREADS; i++)
        workers[i] = (struct worker){.node = &cluster.nodes[i % 2], .index = i, .target = 1};
    workers_start(workers, THREADS, add_rounds);
    workers_join(workers, THREADS);
    struct remo__endpoint *endpoint = suite_endpoint(&cluster.nodes[0]);
    CHECK_EQ(suite_fetch_add(&cluster.nodes[0], endpoint, 1, 0, 0), THREADS * ROUNDS);
    CHECK_EQ(suite_fetch_add(&cluster.nodes[0], endpoint, 1, 8, 0), ROUNDS * THREADS * (THREADS + 1) / 2);
    suite->ops->endpoint_close(endpoint);
    suite_cluster_close(&cluster);
}

/* Two threads contend for one word with compare-and-swap, and for a lock in another word. */
static void *swap_rounds(void *arg) {
    struct worker *worker = arg;
    struct suite_node *node = worker->node;
    struct remo__endpoint *endpoint = suite_endpoint(node);
    uint64_t *value = (uint64_t *)suite_buffer(node, worker->index * 64), seen = 0;
    uint64_t limit = remo__deadline(3 * SUITE_LIMIT_NS);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        for (uint64_t old; (old = suite_compare_swap(node, endpoint, 1, 0, seen, seen + 1)) != seen;
             seen = old)
            CHECK(remo__now_ns() < limit);
        seen++;
        while (suite_compare_swap(node, endpoint, 1, 64, 0, worker->index + 1) != 0) {
            CHECK(remo__now_ns() < limit);
            sched_yield();
        }
        suite_read(node, endpoint, 1, 128, value, 8);
        *value += 1;
        suite_write(node, endpoint, 1, 128, value, 8);
        suite_flush(node, endpoint, 1);
        CHECK_EQ(suite_compare_swap(node, endpoint, 1, 64, worker->index + 1, 0), worker->index + 1);
    }
    node->suite->ops->endpoint_close(endpoint);
    return NULL;
}

static void threads_compare_swap(const struct suite *suite) {
    suite_cluster_open(&cluster, suite, 2);
    struct worker workers[2];
    for (uint32_t i = 0; i < 2; i++)
        workers[i] = (struct worker){.node = &cluster.nodes[i], .index = i};
    workers_start(workers, 2, swap_rounds);
    workers_join(workers, 2);
    struct remo__endpoint *endpoint = suite_endpoint(&cluster.nodes[0]);
    CHECK_EQ(suite_fetch_add(&cluster.nodes[0], endpoint, 1, 0, 0), 2 * ROUNDS);
    suite_read(&cluster.nodes[0], endpoint, 1, 128, suite_buffer(&cluster.nodes[0], 0), 8);
    CHECK_EQ(*(uint64_t *)suite_buffer(&cluster.nodes[0], 0), 2 * ROUNDS);
    suite->ops->endpoint_close(endpoint);
    suite_cluster_close(&cluster);
}

/* The owner's CPU also changes the word, if the fabric's atomics are coherent with it. */
static void atomics_coherent(const struct suite *suite) {
    suite_cluster_open(&cluster, suite, 2);
    if (!cluster.nodes[0].fabric->caps.atomics_coherent)
        suite_skip("atomics of fabric %s are not atomic with those of the CPU", suite->ops->name);
    struct worker worker = {.node = &cluster.nodes[0], .index = 0, .target = 1};
    workers_start(&worker, 1, add_rounds);
    _Atomic uint64_t *word = (_Atomic uint64_t *)suite_memory(&cluster.nodes[1], 0);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        atomic_fetch_add(word, 1);
        uint64_t seen = atomic_load(word);
        while (!atomic_compare_exchange_weak(word, &seen, seen + 1))
            ;
    }
    workers_join(&worker, 1);
    CHECK_EQ(atomic_load(word), 3 * ROUNDS);
    suite_cluster_close(&cluster);
}

/* ---- separate data for each thread ---- */

static void *copy_rounds(void *arg) {
    struct worker *worker = arg;
    struct suite_node *node = worker->node;
    struct remo__endpoint *endpoint = suite_endpoint(node);
    char *out = suite_buffer(node, worker->index * UINT64_C(65536)), *in = out + 32768;
    uint64_t at = worker->index * UINT64_C(65536);
    for (uint64_t i = 0; worker->stop ? !atomic_load(worker->stop) : i < 500; i++) {
        uint64_t size_bytes = 1 + i * 977 % 32768;
        suite_fill(out, size_bytes, i + worker->index);
        suite_write(node, endpoint, worker->target, at + i % 8, out, size_bytes);
        memset(in, 0, size_bytes);
        suite_read(node, endpoint, worker->target, at + i % 8, in, size_bytes);
        CHECK(suite_filled(in, size_bytes, i + worker->index));
        worker->rounds++;
    }
    node->suite->ops->endpoint_close(endpoint);
    return NULL;
}

static void threads_copy(const struct suite *suite) {
    suite_cluster_open(&cluster, suite, 3);
    struct worker workers[THREADS];
    for (uint32_t i = 0; i < THREADS; i++)
        workers[i] = (struct worker){.node = &cluster.nodes[i % 2], .index = i, .target = (i + 1) % 3};
    workers_start(workers, THREADS, copy_rounds);
    workers_join(workers, THREADS);
    suite_cluster_close(&cluster);
}

/* ---- nodes that join and leave ---- */

static void join_late(const struct suite *suite, struct suite_node *late, uint32_t rank) {
    suite_node_open(late, suite, rank, 3);
    for (uint32_t i = 0; i < 2; i++) {
        suite_node_meet(&cluster.nodes[i], &late->card);
        suite_node_meet(late, &cluster.nodes[i].card);
    }
    suite_node_meet(late, &late->card);
}

/* Nodes 0 and 1 work on each other while node 2 joins, works, and leaves, many times. */
static void come_and_go(const struct suite *suite) {
    _Atomic bool stop = false;
    for (uint32_t i = 0; i < 2; i++)
        suite_node_open(&cluster.nodes[i], suite, i, 3);
    for (uint32_t i = 0; i < 4; i++)
        suite_node_meet(&cluster.nodes[i / 2], &cluster.nodes[i % 2].card);
    struct worker workers[2];
    for (uint32_t i = 0; i < 2; i++)
        workers[i] = (struct worker){.node = &cluster.nodes[i], .index = i, .target = 1 - i, .stop = &stop};
    workers_start(workers, 2, copy_rounds);
    struct remo__endpoint *endpoint = suite_endpoint(&cluster.nodes[0]);
    struct remo__op op =
        suite_op(&cluster.nodes[0], REMO__OP_READ, 2, 0, suite_buffer(&cluster.nodes[0], 1 << 20), 8);
    CHECK_EQ(suite_run(&cluster.nodes[0], endpoint, op), -EHOSTDOWN); /* it has not joined */
    for (uint32_t life = 0; life < 12; life++) {
        static struct suite_node late;
        join_late(suite, &late, 2);
        struct remo__endpoint *own = suite_endpoint(&late);
        for (uint32_t i = 0; i < 2; i++)
            suite_fetch_add(&late, own, i, SUITE_ZONE_BYTES - 4096, 1);
        CHECK_EQ(suite_fetch_add(&cluster.nodes[0], endpoint, 2, 0, 5), 0); /* its memory is fresh */
        struct remo__op imm = suite_op(&late, REMO__OP_WRITE, 0, 0, NULL, 0);
        imm.flags = REMO__OP_IMM;
        imm.imm = life;
        CHECK_EQ(suite_run(&late, own, imm), 0); /* not taken before the node leaves */
        suite->ops->endpoint_close(own);
        for (uint32_t i = 0; i < 2; i++)
            suite->ops->disconnect(cluster.nodes[i].fabric, 2);
        CHECK_EQ(suite_run(&cluster.nodes[0], endpoint, op), -EHOSTDOWN);
        suite_node_close(&late);
    }
    CHECK_EQ(suite_fetch_add(&cluster.nodes[0], endpoint, 1, SUITE_ZONE_BYTES - 4096, 0), 12);
    atomic_store(&stop, true);
    workers_join(workers, 2);
    CHECK(workers[0].rounds > 0 && workers[1].rounds > 0);
    suite->ops->endpoint_close(endpoint);
    for (uint32_t i = 0; i < 2; i++)
        suite_node_close(&cluster.nodes[i]);
}

/* An immediate that an earlier incarnation sent is not delivered as one of the next incarnation. */
static void imm_of_the_dead(const struct suite *suite) {
    static struct suite_node late;
    for (uint32_t i = 0; i < 2; i++)
        suite_node_open(&cluster.nodes[i], suite, i, 3);
    for (uint32_t i = 0; i < 4; i++)
        suite_node_meet(&cluster.nodes[i / 2], &cluster.nodes[i % 2].card);
    for (uint32_t life = 0; life < 4; life++) {
        join_late(suite, &late, 2);
        struct remo__endpoint *endpoint = suite_endpoint(&late);
        struct remo__op op = suite_op(&late, REMO__OP_WRITE, 0, 0, NULL, 0);
        op.flags = REMO__OP_IMM;
        for (uint32_t i = 0; i < 50; i++) {
            op.imm = life * 100 + i;
            CHECK_EQ(suite_run(&late, endpoint, op), 0);
        }
        struct remo__imm imm = {0};
        uint64_t limit = remo__deadline(SUITE_LIMIT_NS);
        while (life % 2 && suite->ops->imm_poll(cluster.nodes[0].fabric, &imm, 1) == 0)
            CHECK(remo__now_ns() < limit);
        if (life % 2) {
            CHECK_EQ(imm.peer, 2);
            CHECK_EQ(imm.value, life * 100);
        }
        suite->ops->endpoint_close(endpoint);
        for (uint32_t i = 0; i < 2; i++)
            suite->ops->disconnect(cluster.nodes[i].fabric, 2);
        suite_node_close(&late);
    }
    for (uint32_t i = 0; i < 2; i++)
        suite_node_close(&cluster.nodes[i]);
}

const struct suite_case suite_cases_threads[] = {
    {"threads_fetch_add", threads_fetch_add},
    {"threads_compare_swap", threads_compare_swap},
    {"threads_copy", threads_copy},
    {"atomics_coherent", atomics_coherent},
    {"come_and_go", come_and_go},
    {"imm_of_the_dead", imm_of_the_dead},
    {NULL, NULL},
};
