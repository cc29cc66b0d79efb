/* test_ofi_arrivals.c - fabric ofi: a thread that waits executes requests of peers, and the target thread
 * takes over when no thread waits. The tests examine counters and states, not time. */
#include <pthread.h>
#include <remo/remo.h>
#include <stdatomic.h>

#include "../../support/cluster.h"
#include "fabric/fabric.h"
#include "node/node.h"
#include "remote/wait.h"

#define ROUNDS_MAX 20000u
#define HAND_BACKS 10u
#define OPERATIONS 50u

static struct shared {
    _Atomic uint32_t last_round; /* of a series of barriers; UINT32_MAX: not decided yet */
    _Atomic bool is_finished;    /* node 0 has completed its operations */
} * shared;

static bool leaves_arrivals(const struct remo_node *node) {
    return atomic_load(&node->fabric->leaves_arrivals);
}

static uint64_t arrivals_taken(const struct remo_node *node) {
    return atomic_load(&node->fabric->arrivals_taken);
}

/* Wait at barriers until the thread of node 1 executes requests. Node 1 decides the last round before it
 * arrives there, so node 0 learns of it in that round. */
static int wait_until_left(struct remo_node *node, struct remo_barrier *barrier) {
    uint64_t before = arrivals_taken(node);
    for (uint32_t round = 1; round <= ROUNDS_MAX; round++) {
        bool is_last = (leaves_arrivals(node) && arrivals_taken(node) > before) || round == ROUNDS_MAX;
        if (remo_node_rank(node) == 1 && is_last)
            atomic_store(&shared->last_round, round);
        CHECK_OK(remo_barrier_wait(barrier, 100 * SECOND));
        if (atomic_load(&shared->last_round) <= round)
            return 0;
    }
    return 0;
}

static int open_barrier(struct remo_node *node, struct remo_barrier **ret_barrier) {
    CHECK_OK(remo_barrier_open(remo_node_root(node), "barrier", NULL, ret_barrier));
    CHECK_OK(remo_channel_wait(remo_barrier_channel(*ret_barrier), 100 * SECOND));
    atomic_store(&shared->last_round, UINT32_MAX);
    atomic_store(&shared->is_finished, false);
    CHECK_OK(cluster_meet());
    return 0;
}

/* The thread at the barrier executes requests of its peer. */
static int waiting_thread_executes(struct remo_node *node, void *ctx) {
    struct remo_barrier *barrier;
    (void)ctx;
    uint64_t before = arrivals_taken(node);
    if (open_barrier(node, &barrier) || wait_until_left(node, barrier))
        return 1;
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 1)
        CHECK(arrivals_taken(node) > before);
    remo_barrier_close(barrier);
    return 0;
}

static int operate(struct remo_region *region) {
    for (uint64_t i = 0, old, word; i < OPERATIONS; i++) {
        CHECK_OK(remo_region_write(region, 1, 8, &i, sizeof i, 0, NULL));
        CHECK_OK(remo_region_read(region, 1, 8, &word, sizeof word, NULL));
        CHECK_EQUAL(word, i);
        CHECK_OK(remo_region_fetch_add(region, 1, 0, 1, &old, NULL));
    }
    return 0;
}

/* Compute outside the library until node 0 has completed its operations. No waiting thread executes them. */
static int compute(struct remo_node *node) {
    uint64_t before = arrivals_taken(node);
    volatile uint64_t sum = 0;
    for (uint64_t i = 0; !atomic_load(&shared->is_finished); i++)
        sum = sum * 31 + i;
    CHECK_EQUAL(arrivals_taken(node), before);
    return 0;
}

/* Node 1 leaves a wait in which it has executed requests, and computes. Its target thread takes over. */
static int target_takes_over(struct remo_node *node, void *ctx) {
    struct remo_barrier *barrier;
    struct remo_region *region;
    uint64_t sum = 0;
    (void)ctx;
    CHECK_OK(remo_region_open(remo_node_root(node), "region", 4096, NULL, &region));
    CHECK_OK(remo_channel_wait(remo_region_channel(region), 100 * SECOND));
    if (open_barrier(node, &barrier))
        return 1;
    for (uint32_t i = 0; i < HAND_BACKS; i++) {
        if (wait_until_left(node, barrier))
            return 1;
        if (remo_node_rank(node) == 0) {
            CHECK(operate(region) == 0);
            atomic_store(&shared->is_finished, true);
        } else {
            CHECK(compute(node) == 0);
        }
        CHECK_OK(cluster_meet());
        atomic_store(&shared->last_round, UINT32_MAX);
        atomic_store(&shared->is_finished, false);
        CHECK_OK(cluster_meet());
    }
    CHECK_OK(remo_region_read(region, 1, 0, &sum, sizeof sum, NULL));
    CHECK_EQUAL(sum, HAND_BACKS * OPERATIONS);
    CHECK_OK(cluster_meet());
    remo_barrier_close(barrier);
    remo_region_close(region);
    return 0;
}

/* Without requests the leases end. */
static int lease_ends(struct remo_node *node, void *ctx) {
    struct remo_barrier *barrier;
    (void)ctx;
    if (open_barrier(node, &barrier) || wait_until_left(node, barrier))
        return 1;
    CHECK_OK(cluster_meet());
    uint64_t deadline = cluster_now_ns() + 100 * SECOND;
    while (leaves_arrivals(node) && cluster_now_ns() < deadline)
        cluster_sleep_ms(1);
    CHECK(!leaves_arrivals(node));
    CHECK_OK(cluster_meet());
    remo_barrier_close(barrier);
    return 0;
}

/* ---- a wait inside the condition of another wait ---- */

struct nested {
    struct remo_node *node;
    bool is_inside;
    _Atomic bool is_ended;
    int rc;
};

static int is_ended(void *ctx) {
    return atomic_load(&((const struct nested *)ctx)->is_ended);
}

static int wait_inside(void *ctx) {
    struct nested *nested = ctx;
    if (!nested->is_inside) { /* the first attempt precedes the outer wait */
        nested->is_inside = true;
        return 0;
    }
    int rc = remo__wait(nested->node, is_ended, nested, REMO_FOREVER);
    return rc == 0 ? 1 : rc;
}

static void *wait_nested(void *ctx) {
    struct nested *nested = ctx;
    nested->rc = remo__wait_attempt(nested->node, wait_inside, nested, REMO_FOREVER);
    return NULL;
}

/* A thread that sleeps in the inner wait is not counted as one that executes requests. */
static int sleeper_is_not_counted(struct remo_node *node, void *ctx) {
    struct nested nested = {.node = node};
    const struct remo__fabric *fabric = node->fabric;
    pthread_t thread;
    (void)ctx;
    CHECK(pthread_create(&thread, NULL, wait_nested, &nested) == 0);
    while (atomic_load(&node->doorbell->sleepers) == 0)
        cluster_sleep_ms(1);
    uint64_t deadline = cluster_now_ns() + 20 * SECOND;
    while (atomic_load(&fabric->waiting_threads) != 0 && cluster_now_ns() < deadline)
        cluster_sleep_ms(1);
    CHECK_EQUAL(atomic_load(&fabric->waiting_threads), 0);
    atomic_store(&nested.is_ended, true);
    remo__wake(node);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_OK(nested.rc);
    CHECK_EQUAL(atomic_load(&fabric->waiting_threads), 0);
    return 0;
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(waiting_thread_executes, 2),
        CLUSTER_TEST(target_takes_over, 2),
        CLUSTER_TEST(lease_ends, 2),
        CLUSTER_TEST(sleeper_is_not_counted, 1),
        {0},
    };
    shared = cluster_shared(sizeof *shared);
    return cluster_main(argc, argv, tests, NULL);
}
