/* test_barrier.c - tests of the barrier: no node passes before all have arrived, writes before it are visible
 * after it, and nodes do not wait for failed or closed participants. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../../support/cluster.h"

#define NODES_MAX 20u

static struct shared {
    _Atomic uint64_t rounds[NODES_MAX];
    _Atomic uint64_t killed_at_ns;
} * shared;

static int open_barrier(struct remo_node *node, const char *name, struct remo_barrier **ret_barrier) {
    CHECK_OK(remo_barrier_open(remo_node_root(node), name, NULL, ret_barrier));
    CHECK_OK(remo_channel_wait(remo_barrier_channel(*ret_barrier), 100 * SECOND));
    return 0;
}

/* Many nodes on few processors take long for each round. */
static uint64_t rounds_for(uint32_t size) {
    return size <= 4 ? 500 : 100;
}

/* ---- no node passes early ---- */

static int rounds(struct remo_node *node, void *ctx) {
    struct remo_barrier *barrier;
    uint32_t rank = remo_node_rank(node), size = remo_node_size(node);
    (void)ctx;
    if (open_barrier(node, "barrier", &barrier) != 0)
        return 1;
    for (uint64_t round = 1; round <= rounds_for(size); round++) {
        atomic_store(&shared->rounds[rank], round);
        CHECK_OK(remo_barrier_wait(barrier, round % 3 ? 100 * SECOND : REMO_FOREVER));
        for (uint32_t other = 0; other < size; other++) {
            uint64_t reached = atomic_load(&shared->rounds[other]);
            CHECK(reached == round || reached == round + 1); /* no node is two rounds ahead */
        }
    }
    CHECK_OK(cluster_meet());
    remo_barrier_close(barrier);
    return 0;
}

/* ---- writes before the barrier are visible after it, without an explicit fence ---- */

static int visibility(struct remo_node *node, void *ctx) {
    struct remo_barrier *barrier;
    struct remo_region *region;
    enum { WORDS = 20, BLOCK = 512 };
    uint64_t block[BLOCK / 8];
    uint32_t rank = remo_node_rank(node), size = remo_node_size(node);
    (void)ctx;
    CHECK_OK(remo_region_open(remo_node_root(node), "data", NODES_MAX * BLOCK, NULL, &region));
    if (open_barrier(node, "barrier", &barrier) != 0)
        return 1;
    CHECK_OK(remo_channel_wait(remo_node_root(node), 100 * SECOND));
    const volatile uint64_t *own = remo_region_local(region);
    for (uint64_t round = 1; round <= rounds_for(size); round++) {
        for (uint32_t i = 0; i < WORDS; i++)
            block[i] = round * 100 + rank + i;
        for (uint32_t to = 0; to < size; to++)
            CHECK_OK(remo_region_write(region, to, rank * BLOCK, block, WORDS * 8, 0, NULL));
        CHECK_OK(remo_barrier_wait(barrier, 100 * SECOND));
        for (uint32_t from = 0; from < size; from++)
            for (uint32_t i = 0; i < WORDS; i++)
                CHECK_EQUAL(own[from * BLOCK / 8 + i], round * 100 + from + i);
        CHECK_OK(remo_barrier_wait(barrier, 100 * SECOND));
    }
    remo_barrier_close(barrier);
    remo_region_close(region);
    return 0;
}

/* The number of writes that include/remo/barrier.h states. */
static uint32_t writes_of(uint32_t participants) {
    uint32_t radix = 1;
    while (radix * radix < participants)
        radix++;
    return participants <= 16 ? participants - 1 : radix - 1 + (participants - 1) / radix;
}

static int costs(struct remo_node *node, void *ctx) {
    struct remo_barrier *barrier;
    uint32_t writes = writes_of(remo_node_size(node));
    (void)ctx;
    if (open_barrier(node, "barrier", &barrier) != 0)
        return 1;
    struct remo_channel *channel = remo_barrier_channel(barrier);
    for (uint32_t round = 0; round < 20; round++)
        CHECK_COST(channel, CHECK_OK(remo_barrier_wait(barrier, 100 * SECOND)), 0, writes, 0, writes);
    CHECK_OK(cluster_meet());
    remo_barrier_close(barrier);
    return 0;
}

/* ---- subsets of the nodes, and late nodes ---- */

static int subsets(struct remo_node *node, void *ctx) {
    struct remo_barrier *pair, *all;
    struct remo_barrier_options options = {0};
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    remo_nodeset_add(&options.participants, rank & ~1u);
    remo_nodeset_add(&options.participants, rank | 1u);
    char name[16];
    snprintf(name, sizeof name, "pair%u", rank / 2);
    CHECK_OK(remo_barrier_open(remo_node_root(node), name, &options, &pair));
    CHECK_OK(remo_barrier_open(remo_node_root(node), "all", NULL, &all));
    for (uint32_t i = 0; i < 100 * (1 + rank / 2); i++) /* the pairs do not wait for each other */
        CHECK_OK(remo_barrier_wait(pair, 100 * SECOND));
    CHECK_OK(remo_barrier_wait(all, 100 * SECOND));
    remo_barrier_close(pair);
    remo_barrier_close(all);
    options = (struct remo_barrier_options){0};
    remo_nodeset_add(&options.participants, (rank + 1) % 4);
    CHECK_SENTENCE(remo_barrier_open(remo_node_root(node), "x", &options, &all), -EINVAL, "participants");
    remo_barrier_close(NULL);
    CHECK_OK(cluster_meet());
    return 0;
}

static int timeouts(struct remo_node *node, void *ctx) {
    struct remo_barrier *barrier;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    /* First node 2 has not opened the barrier, then it has not arrived. The arrival of this node counts
     * once. */
    if (rank != 2) {
        CHECK_OK(remo_barrier_open(remo_node_root(node), "barrier", NULL, &barrier));
        CHECK_SENTENCE(remo_barrier_wait(barrier, SECOND / 50), -ETIMEDOUT, "has not opened barrier");
        CHECK_CODE(remo_barrier_wait(barrier, 0), -ETIMEDOUT);
    }
    CHECK_OK(cluster_meet());
    if (rank == 2)
        CHECK_OK(remo_barrier_open(remo_node_root(node), "barrier", NULL, &barrier));
    CHECK_OK(remo_channel_wait(remo_barrier_channel(barrier), 100 * SECOND));
    if (rank != 2) {
        CHECK_SENTENCE(remo_barrier_wait(barrier, SECOND / 50), -ETIMEDOUT, "has not arrived in round 1");
        CHECK_CODE(remo_barrier_wait(barrier, 0), -ETIMEDOUT);
    }
    CHECK_OK(cluster_meet());
    uint64_t begin = cluster_now_ns();
    CHECK_OK(remo_barrier_wait(barrier, 100 * SECOND));
    CHECK(in_time(cluster_now_ns() - begin, SECOND));
    for (uint32_t round = 0; round < 50; round++)
        CHECK_OK(remo_barrier_wait(barrier, 100 * SECOND));
    CHECK_OK(cluster_meet());
    remo_barrier_close(barrier);
    return 0;
}

/* ---- two barriers at a time, one thread each ---- */

struct walker {
    struct remo_barrier *barrier;
    int result;
};

static void *walk(void *ctx) {
    struct walker *walker = ctx;
    for (uint32_t round = 0; round < 300 && walker->result == 0; round++)
        walker->result = remo_barrier_wait(walker->barrier, 100 * SECOND);
    return NULL;
}

static int threads(struct remo_node *node, void *ctx) {
    struct walker walkers[3];
    pthread_t ids[3];
    (void)ctx;
    for (int i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof name, "b%d", i);
        walkers[i] = (struct walker){0};
        CHECK_OK(remo_barrier_open(remo_node_root(node), name, NULL, &walkers[i].barrier));
    }
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&ids[i], NULL, walk, &walkers[i]) == 0);
    for (int i = 0; i < 3; i++)
        pthread_join(ids[i], NULL);
    for (int i = 0; i < 3; i++)
        CHECK_OK(walkers[i].result);
    CHECK_OK(cluster_meet());
    for (int i = 0; i < 3; i++)
        remo_barrier_close(walkers[i].barrier);
    return 0;
}

/* ---- failing and leaving ---- */

/* Node 1 kills node 0 while all others wait. Every survivor gets the error in time, also from the next
 * call. */
static int participant_fails(struct remo_node *node, void *ctx) {
    struct remo_barrier *barrier;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    if (open_barrier(node, "barrier", &barrier) != 0)
        return 1;
    for (uint32_t round = 0; round < 20; round++)
        CHECK_OK(remo_barrier_wait(barrier, 100 * SECOND));
    CHECK_OK(cluster_meet());
    if (rank == 0) {
        cluster_sleep_ms(60000);
        return 1;
    }
    if (rank == 1) {
        cluster_sleep_ms(30); /* until all others sleep in the barrier */
        atomic_store(&shared->killed_at_ns, cluster_now_ns());
        CHECK_OK(cluster_kill(0));
    }
    CHECK_SENTENCE(remo_barrier_wait(barrier, 100 * SECOND), -EHOSTDOWN, "round 21");
    CHECK(in_time(cluster_now_ns() - atomic_load(&shared->killed_at_ns), SECOND / 10));
    CHECK_SENTENCE(remo_barrier_wait(barrier, REMO_FOREVER), -EHOSTDOWN, "node 0");
    CHECK_OK(cluster_meet());
    remo_barrier_close(barrier);
    return 0;
}

/* Node 0 waits for node 1, which is slow, and detects the failure of node 2 nevertheless. */
static int failure_behind_slow_peer(struct remo_node *node, void *ctx) {
    struct remo_barrier *barrier;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    if (open_barrier(node, "barrier", &barrier) != 0)
        return 1;
    CHECK_OK(remo_barrier_wait(barrier, 100 * SECOND));
    CHECK_OK(cluster_meet());
    if (rank == 2) {
        cluster_sleep_ms(60000);
        return 1;
    }
    if (rank == 1)
        CHECK_OK(cluster_kill(2));
    else
        CHECK_SENTENCE(remo_barrier_wait(barrier, 100 * SECOND), -EHOSTDOWN, "node 2");
    CHECK_OK(cluster_meet());
    if (rank == 1)
        CHECK_CODE(remo_barrier_wait(barrier, 100 * SECOND), -EHOSTDOWN);
    CHECK_OK(cluster_meet());
    remo_barrier_close(barrier);
    return 0;
}

/* Node 0 announces its arrival to nodes 1 to 5, 10 and 15 only. They are late; all others detect the failure
 * nevertheless. */
static int failure_behind_slow_stages(struct remo_node *node, void *ctx) {
    struct remo_barrier *barrier;
    uint32_t rank = remo_node_rank(node);
    bool is_late = rank <= 5 || rank % 5 == 0;
    (void)ctx;
    if (open_barrier(node, "barrier", &barrier) != 0)
        return 1;
    CHECK_OK(remo_barrier_wait(barrier, 100 * SECOND));
    CHECK_OK(cluster_meet());
    if (rank == 0) {
        cluster_sleep_ms(60000);
        return 1;
    }
    if (rank == 1)
        CHECK_OK(cluster_kill(0));
    if (!is_late)
        CHECK_SENTENCE(remo_barrier_wait(barrier, 100 * SECOND), -EHOSTDOWN, "node 0");
    CHECK_OK(cluster_meet());
    if (is_late)
        CHECK_CODE(remo_barrier_wait(barrier, 100 * SECOND), -EHOSTDOWN);
    CHECK_OK(cluster_meet());
    remo_barrier_close(barrier);
    return 0;
}

/* Wait until the sentence of a timeout names node 0: the announcements of others may still be in flight. */
static int time_out_at_node_0(struct remo_barrier *barrier, const char *sentence) {
    do
        CHECK_SENTENCE(remo_barrier_wait(barrier, SECOND / 50), -ETIMEDOUT, "has not arrived in round 1");
    while (!strstr(remo_last_error(), "node 0"));
    CHECK(strstr(remo_last_error(), sentence));
    return 0;
}

/* In the second stage the sentence of a timeout names a range of participants. Nodes 0 and 16 arrive last.
 * The others receive the announcements of the first stage, and wait for that of node 0 in the second one. */
static int timeouts_of_stages(struct remo_node *node, void *ctx) {
    static const char of_five[] = "node 0, or one of the 4 participants before it, has not arrived";
    static const char of_two[] = "node 0, or the participant before it, has not arrived";
    struct remo_barrier *barrier;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    if (open_barrier(node, "barrier", &barrier) != 0)
        return 1;
    if (rank % 5 != 0 && rank != 16)
        CHECK_CODE(remo_barrier_wait(barrier, 0), -ETIMEDOUT);
    CHECK_OK(cluster_meet());
    for (uint32_t turn = 5; turn <= 15; turn += 5) { /* each needs the announcement of the one before it */
        if (rank == turn)
            CHECK_OK(time_out_at_node_0(barrier, turn < 15 ? of_five : of_two));
        CHECK_OK(cluster_meet());
    }
    CHECK_OK(remo_barrier_wait(barrier, 100 * SECOND));
    CHECK_OK(cluster_meet());
    remo_barrier_close(barrier);
    return 0;
}

/* A node may close after the last round at once; the round succeeds on all other nodes. */
static int close_after_round(struct remo_node *node, void *ctx) {
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    for (uint32_t turn = 0; turn < rounds_for(remo_node_size(node)) / 4; turn++) {
        struct remo_barrier *barrier;
        if (open_barrier(node, "barrier", &barrier) != 0)
            return 1;
        if (turn % 4 == rank)
            cluster_sleep_ms(1);
        CHECK_OK(remo_barrier_wait(barrier, 100 * SECOND));
        CHECK_OK(remo_barrier_wait(barrier, 100 * SECOND));
        remo_barrier_close(barrier);
        CHECK_OK(cluster_meet());
    }
    return 0;
}

static int close_before_round(struct remo_node *node, void *ctx) {
    struct remo_barrier *barrier;
    (void)ctx;
    if (open_barrier(node, "barrier", &barrier) != 0)
        return 1;
    CHECK_OK(remo_barrier_wait(barrier, 100 * SECOND));
    if (remo_node_rank(node) != 0)
        CHECK_SENTENCE(remo_barrier_wait(barrier, 100 * SECOND), -ENOTCONN, "node 0 has closed");
    remo_barrier_close(barrier);
    CHECK_OK(cluster_meet());
    return 0;
}

/* ---- a waiting node uses no processor time ---- */

static int idle(struct remo_node *node, void *ctx) {
    struct remo_barrier *barrier;
    enum { SECONDS = 2 };
    (void)ctx;
    if (open_barrier(node, "barrier", &barrier) != 0)
        return 1;
    CHECK_OK(remo_barrier_wait(barrier, 100 * SECOND));
    CHECK_OK(cluster_meet());
    uint64_t begin = cluster_processor_ns();
    if (remo_node_rank(node) == 0)
        cluster_sleep_ms(SECONDS * 1000);
    CHECK_OK(remo_barrier_wait(barrier, 100 * SECOND));
    uint64_t used = cluster_processor_ns() - begin;
    CHECK(slept_through(used, SECONDS * SECOND, 0.01)); /* 4 nodes: together at most 4 % of a core */
    CHECK_OK(cluster_meet());
    remo_barrier_close(barrier);
    return 0;
}

static void setup(void) {
    memset(shared, 0, sizeof *shared);
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(rounds, 4),
        CLUSTER_TEST_NAMED("rounds_of_1", rounds, 1),
        CLUSTER_TEST_NAMED("rounds_of_9", rounds, 9),
        CLUSTER_TEST_NAMED("rounds_of_20", rounds, 20),
        CLUSTER_TEST_NAMED("rounds_threads", rounds, 3, .as_threads = 1),
        CLUSTER_TEST(visibility, 3),
        CLUSTER_TEST_NAMED("visibility_of_17", visibility, 17),
        CLUSTER_TEST(costs, 4),
        CLUSTER_TEST_NAMED("costs_of_20", costs, 20),
        CLUSTER_TEST(subsets, 4),
        CLUSTER_TEST(timeouts, 3),
        CLUSTER_TEST(timeouts_of_stages, 17),
        CLUSTER_TEST(threads, 3),
        CLUSTER_TEST(participant_fails, 4),
        CLUSTER_TEST(failure_behind_slow_peer, 3),
        CLUSTER_TEST(failure_behind_slow_stages, 17),
        CLUSTER_TEST_NAMED("participant_fails_5", participant_fails, 5),
        CLUSTER_TEST_NAMED("participant_fails_18", participant_fails, 18),
        CLUSTER_TEST(close_after_round, 4),
        CLUSTER_TEST_NAMED("close_after_round_18", close_after_round, 18),
        CLUSTER_TEST(close_before_round, 3),
        CLUSTER_TEST(idle, 4),
        {0}};
    shared = cluster_shared(sizeof *shared);
    return cluster_main(argc, argv, tests, setup);
}
