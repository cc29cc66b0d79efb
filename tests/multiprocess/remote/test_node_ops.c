/* test_node_ops.c - operations of a node below the objects: fences and their costs, threads that end with
 * operations in flight, and a peer that does not answer. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../support/cluster.h"
#include "../../support/pause.h"

#define BYTES 65536u

static struct shared { _Atomic pid_t pids[4]; } * shared;

static int open_all(struct remo_node *node, struct remo_region **ret_region) {
    CHECK_OK(remo_region_open(remo_node_root(node), "data", BYTES, NULL, ret_region));
    CHECK_OK(remo_channel_wait(remo_region_channel(*ret_region), 100 * SECOND));
    CHECK_OK(cluster_meet());
    return 0;
}

/* ---- fences ---- */

static uint64_t operations(struct remo_node *node) {
    struct remo_stats stats;
    remo_node_stats(node, &stats);
    return stats.reads + stats.writes + stats.atomics;
}

static int all_fences(struct remo_node *node) {
    for (uint32_t peer = 0; peer < remo_node_size(node); peer++)
        CHECK_OK(remo_fence(node, REMO_FENCE_PAIR, peer));
    CHECK_OK(remo_fence(node, REMO_FENCE_NONE, 0));
    CHECK_OK(remo_fence(node, REMO_FENCE_THREAD, 0));
    CHECK_OK(remo_fence(node, REMO_FENCE_GLOBAL, 0));
    return 0;
}

/* Without writes in flight: no operation. With writes to two peers: at most one read for each, and then
 * none. */
static int fence_costs(struct remo_node *node, void *ctx) {
    struct remo_region *region;
    uint32_t rank = remo_node_rank(node);
    uint64_t word = rank, before;
    (void)ctx;
    if (open_all(node, &region))
        return 1;
    before = operations(node);
    for (int turn = 0; turn < 100; turn++)
        if (all_fences(node))
            return 1;
    CHECK_EQUAL(operations(node), before);
    for (int turn = 0; turn < 20; turn++) {
        CHECK_OK(remo_region_write(region, (rank + 1) % 3, 8 * rank, &word, 8, 0, NULL));
        CHECK_OK(remo_region_write(region, (rank + 2) % 3, 8 * rank, &word, 8, 0, NULL));
        before = operations(node);
        CHECK_OK(remo_fence(node, turn % 2 ? REMO_FENCE_THREAD : REMO_FENCE_GLOBAL, 0));
        CHECK(operations(node) - before <= (strcmp(remo_node_fabric(node), "shm") == 0 ? 0 : 2));
        before = operations(node);
        if (all_fences(node))
            return 1;
        CHECK_EQUAL(operations(node), before);
        CHECK_OK(remo_region_read(region, (rank + 1) % 3, 0, &word, 8, NULL)); /* a read needs no fence */
        CHECK_OK(remo_region_fetch_add(region, (rank + 1) % 3, 128, 1, &word, NULL));
        before = operations(node);
        if (all_fences(node))
            return 1;
        CHECK_EQUAL(operations(node), before);
    }
    CHECK_SENTENCE(remo_fence(node, REMO_FENCE_PAIR, 3), -EINVAL, "node 3");
    CHECK_CODE(remo_fence(node, (enum remo_fence_scope)9, 0), -EINVAL);
    CHECK_OK(cluster_meet());
    remo_region_close(region);
    return 0;
}

struct writer {
    struct remo_region *region;
    uint32_t rank, size;
    uint64_t turn;
    int result;
};

static int write_all(const struct writer *self) {
    uint64_t words[64];
    for (uint32_t i = 0; i < 64; i++)
        words[i] = self->turn;
    for (uint32_t to = 0; to < self->size; to++)
        CHECK_OK(remo_region_write(self->region, to, (1 + self->rank) * sizeof words, words, sizeof words, 0,
                                   NULL));
    return 0;
}

static void *write_thread(void *ctx) {
    struct writer *self = ctx;
    self->result = write_all(self);
    return NULL;
}

/* After the fence all writes are placed, without any further call: the nodes meet by other means, and read
 * their own memory. */
static int fences_flush(struct remo_node *node, void *ctx) {
    struct writer writer = {.rank = remo_node_rank(node), .size = remo_node_size(node)};
    pthread_t thread;
    (void)ctx;
    if (open_all(node, &writer.region))
        return 1;
    const uint64_t *own = remo_region_local(writer.region);
    for (writer.turn = 1; writer.turn <= 60; writer.turn++) {
        if (writer.turn % 3 == 0) { /* written by another thread, which has ended */
            CHECK(pthread_create(&thread, NULL, write_thread, &writer) == 0);
            pthread_join(thread, NULL);
            CHECK_OK(writer.result);
            CHECK_OK(remo_fence(node, REMO_FENCE_GLOBAL, 0));
        } else {
            if (write_all(&writer))
                return 1;
            for (uint32_t to = 0; writer.turn % 3 == 1 && to < writer.size; to++) {
                uint64_t word;
                CHECK_OK(remo_region_read(writer.region, to, (1 + writer.rank) * 512, &word, 8,
                                          NULL)); /* the read that confirms the write */
                CHECK_EQUAL(word, writer.turn);
            }
            CHECK_OK(remo_fence(node, REMO_FENCE_THREAD, 0));
        }
        CHECK_OK(cluster_meet());
        for (uint32_t from = 0; from < writer.size; from++)
            for (uint32_t i = 0; i < 64; i++)
                CHECK_EQUAL(__atomic_load_n(&own[(1 + from) * 64 + i], __ATOMIC_ACQUIRE), writer.turn);
        CHECK_OK(cluster_meet());
    }
    remo_region_close(writer.region);
    return 0;
}

/* ---- threads that end with operations in flight ---- */

struct short_thread {
    struct remo_node *node;
    struct remo_region *region;
    uint32_t slot, turn;
    int result;
};

/* Write to all nodes, from a buffer of this thread or from the stack, and end without waiting. */
static int write_and_end(const struct short_thread *self) {
    uint64_t *words, stack[16];
    void *buffer;
    CHECK_OK(remo_buffer_get(self->node, &buffer));
    words = self->turn % 2 ? buffer : stack;
    for (uint32_t i = 0; i < 16; i++)
        words[i] = self->turn;
    for (uint32_t to = 0; to < remo_node_size(self->node); to++)
        CHECK_OK(remo_region_write(self->region, to,
                                   8192 + (remo_node_rank(self->node) * 8 + self->slot) * 128, words, 128,
                                   self->slot % 2 ? REMO_WRITE_NOTIFY : 0, NULL));
    if (self->turn % 2 == 0)
        remo_buffer_put(self->node, buffer);
    return 0;
}

static void *short_thread_main(void *ctx) {
    struct short_thread *self = ctx;
    self->result = write_and_end(self);
    return NULL;
}

static void *fence_thread(void *ctx) {
    return (void *)(intptr_t)remo_fence(ctx, REMO_FENCE_THREAD, 0);
}

/* A global fence covers the writes of threads that have ended. */
static int short_threads(struct remo_node *node, void *ctx) {
    enum { SHORT_THREADS = 6, TURNS = 25 };
    struct short_thread short_threads[SHORT_THREADS];
    pthread_t threads[SHORT_THREADS];
    struct remo_region *region;
    (void)ctx;
    if (open_all(node, &region))
        return 1;
    const uint64_t *own = remo_region_local(region);
    for (uint32_t turn = 1; turn <= TURNS; turn++) {
        for (uint32_t i = 0; i < SHORT_THREADS; i++) {
            short_threads[i] = (struct short_thread){.node = node, .region = region, .slot = i, .turn = turn};
            CHECK(pthread_create(&threads[i], NULL, short_thread_main, &short_threads[i]) == 0);
            CHECK_OK(remo_fence(node, REMO_FENCE_GLOBAL, 0));
        }
        for (uint32_t i = 0; i < SHORT_THREADS; i++) {
            pthread_join(threads[i], NULL);
            CHECK_OK(short_threads[i].result);
        }
        CHECK_OK(remo_fence(node, REMO_FENCE_GLOBAL, 0));
        CHECK_OK(cluster_meet());
        for (uint32_t from = 0; from < remo_node_size(node); from++)
            for (uint32_t i = 0; i < SHORT_THREADS; i++)
                for (uint32_t word = 0; word < 16; word++)
                    CHECK_EQUAL(__atomic_load_n(&own[1024 + (from * 8 + i) * 16 + word], __ATOMIC_ACQUIRE),
                                turn);
        CHECK_OK(cluster_meet());
    }
    remo_region_close(region);
    return 0;
}

/* A write without an ack is placed although its thread makes no more calls, and although its thread has
 * ended. */
static int placed_without_calls(struct remo_node *node, void *ctx) {
    struct short_thread short_thread = {.node = node};
    uint32_t rank = remo_node_rank(node);
    pthread_t thread;
    (void)ctx;
    if (open_all(node, &short_thread.region))
        return 1;
    const uint64_t *own = remo_region_local(short_thread.region);
    for (short_thread.turn = 1; short_thread.turn <= 20; short_thread.turn++) {
        if (short_thread.turn % 3 == 0) {
            CHECK(pthread_create(&thread, NULL, short_thread_main, &short_thread) == 0);
            pthread_join(thread, NULL);
            CHECK_OK(short_thread.result);
        } else {
            CHECK_OK(write_and_end(&short_thread));
        }
        uint32_t from = 1 - rank, ms = 0;
        while (__atomic_load_n(&own[1024 + from * 8 * 16 + 15], __ATOMIC_ACQUIRE) != short_thread.turn
               && ms++ < 100000)
            cluster_sleep_ms(1);
        CHECK_EQUAL(__atomic_load_n(&own[1024 + from * 8 * 16 + 15], __ATOMIC_ACQUIRE), short_thread.turn);
        CHECK_OK(cluster_meet());
    }
    CHECK_OK(remo_fence(node, REMO_FENCE_GLOBAL, 0));
    CHECK_OK(cluster_meet());
    remo_region_close(short_thread.region);
    return 0;
}

/* ---- a peer that does not answer ---- */

/* shm, verbs: the peer's memory is accessible although its threads are stopped. */
static int paused_with_memory(struct remo_node *node, struct remo_region *region) {
    uint64_t word = 5, found = 0;
    CHECK_OK(remo_region_write(region, 1, 0, &word, 8, REMO_WRITE_NOTIFY, NULL));
    CHECK_OK(remo_fence(node, REMO_FENCE_PAIR, 1));
    CHECK_OK(remo_region_read(region, 1, 0, &found, 8, NULL));
    CHECK_EQUAL(found, 5);
    CHECK_OK(remo_region_fetch_add(region, 1, 8, 1, &word, NULL));
    return 0;
}

/* ofi: every operation ends in time, and an ack can be cancelled. */
static int paused_without_memory(struct remo_node *node, struct remo_region *region) {
    struct remo_ack ack = REMO_ACK_INIT, joined = REMO_ACK_INIT;
    uint64_t word = 5, canceled = 42, begin = cluster_now_ns(), before = cluster_set_op_timeout(node, SECOND);
    CHECK_SENTENCE(remo_region_read(region, 1, 0, &word, 8, NULL), -ETIMEDOUT, "op_timeout_ns");
    CHECK_CODE(remo_region_fetch_add(region, 1, 8, 1, &word, NULL), -ETIMEDOUT);
    CHECK_EQUAL(word, 5);
    CHECK_OK(remo_region_read(region, 1, 0, &canceled, 8, &ack));
    CHECK_CODE(remo_ack_test(&ack), -EINPROGRESS);
    CHECK_CODE(remo_ack_wait(&ack, SECOND / 20), -ETIMEDOUT);
    remo_ack_join(&joined, &ack);
    CHECK_OK(remo_ack_test(&ack));
    CHECK_CODE(remo_ack_test(&joined), -EINPROGRESS);
    remo_ack_cancel(&joined);
    CHECK_OK(remo_ack_wait(&joined, 0));
    CHECK_OK(remo_region_write(region, 1, 16, &word, 8, 0, NULL));
    CHECK_CODE(remo_fence(node, REMO_FENCE_THREAD, 0), -ETIMEDOUT);
    CHECK_CODE(remo_fence(node, REMO_FENCE_GLOBAL, 0), -ETIMEDOUT);
    CHECK_EQUAL(remo_node_peer(node, 1), REMO_PEER_UP);
    CHECK(in_time(cluster_now_ns() - begin, 8 * SECOND));
    kill(atomic_load(&shared->pids[1]), SIGCONT);
    cluster_set_op_timeout(node, before);
    for (uint32_t turn = 0; turn < 50 && remo_fence(node, REMO_FENCE_THREAD, 0) != 0; turn++)
        continue;
    CHECK_OK(remo_region_read(region, 1, 16, &word, 8, NULL));
    CHECK_EQUAL(word, 5); /* the later write has arrived */
    CHECK_EQUAL(canceled, 42);
    return 0;
}

static int paused(struct remo_node *node, void *ctx) {
    struct remo_region *region;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    atomic_store(&shared->pids[rank], getpid());
    if (open_all(node, &region))
        return 1;
    if (rank == 0) {
        uint64_t word;
        CHECK_OK(remo_region_read(region, 1, 0, &word, 8, NULL)); /* connects */
        CHECK(process_pause(atomic_load(&shared->pids[1])) == 0);
        int result = strcmp(remo_node_fabric(node), "ofi") == 0 ? paused_without_memory(node, region)
                                                                : paused_with_memory(node, region);
        kill(atomic_load(&shared->pids[1]), SIGCONT);
        CHECK_OK(result);
    }
    CHECK_OK(cluster_meet());
    remo_region_close(region);
    return 0;
}

/* A thread that has ended leaves a write to a peer that does not answer. A global fence of another thread
 * returns the result of the write, once. */
static int lose_write(struct remo_node *node, struct short_thread *short_thread, uint32_t peer,
                      _Atomic pid_t *pid) {
    pthread_t thread;
    CHECK(process_pause(atomic_load(pid)) == 0);
    CHECK(pthread_create(&thread, NULL, short_thread_main, short_thread) == 0);
    pthread_join(thread, NULL);
    CHECK_OK(short_thread->result);
    CHECK_SENTENCE(remo_fence(node, REMO_FENCE_GLOBAL, 0), -ETIMEDOUT, "node 1 within op_timeout_ns");
    CHECK_OK(cluster_kill(peer));
    int rc;
    while ((rc = remo_fence(node, REMO_FENCE_GLOBAL, 0)) == -ETIMEDOUT)
        continue;
    CHECK_CODE(rc, -EHOSTDOWN);
    CHECK(strstr(remo_last_error(), "a write to node 1"));
    CHECK_OK(remo_fence(node, REMO_FENCE_GLOBAL, 0));
    CHECK(pthread_create(&thread, NULL, fence_thread, node) == 0); /* reuses the ended thread's state */
    void *result;
    pthread_join(thread, &result);
    CHECK(result == NULL);
    return 0;
}

static int orphans(struct remo_node *node, void *ctx) {
    struct short_thread short_thread = {.node = node, .turn = 1};
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    atomic_store(&shared->pids[rank], getpid());
    if (open_all(node, &short_thread.region))
        return 1;
    if (rank == 1) {
        cluster_expect_death();
        cluster_meet(); /* does not return: the node is killed */
        return 1;
    }
    cluster_set_op_timeout(node, SECOND);
    if (lose_write(node, &short_thread, 1, &shared->pids[1]))
        return 1;
    remo_region_close(short_thread.region);
    return 0;
}

/* A fence that times out, because node 3 pauses, leaves the lost writes to nodes 1 and 2 to later fences. */
static int lose_writes(struct remo_node *node, struct remo_region *region) {
    uint64_t word = 5;
    for (uint32_t to = 1; to < 4; to++) {
        CHECK_OK(remo_region_write(region, to, 0, &word, 8, 0, NULL));
        CHECK_OK(remo_fence(node, REMO_FENCE_PAIR, to)); /* connects */
        CHECK(process_pause(atomic_load(&shared->pids[to])) == 0);
    }
    cluster_set_op_timeout(node, SECOND);
    for (uint32_t to = 1; to < 4; to++)
        CHECK_OK(remo_region_write(region, to, 0, &word, 8, 0, NULL));
    for (uint32_t to = 1; to < 3; to++) {
        CHECK_OK(cluster_kill(to));
        while (remo_node_peer(node, to) != REMO_PEER_DEAD)
            cluster_sleep_ms(1);
    }
    CHECK_SENTENCE(remo_fence(node, REMO_FENCE_THREAD, 0), -ETIMEDOUT, "node 3");
    kill(atomic_load(&shared->pids[3]), SIGCONT);
    CHECK_SENTENCE(remo_fence(node, REMO_FENCE_PAIR, 2), -EHOSTDOWN, "a write to node 2");
    CHECK_SENTENCE(remo_fence(node, REMO_FENCE_PAIR, 1), -EHOSTDOWN, "a write to node 1");
    int rc;
    while ((rc = remo_fence(node, REMO_FENCE_THREAD, 0)) == -ETIMEDOUT)
        continue;
    CHECK_OK(rc);
    CHECK_OK(remo_fence(node, REMO_FENCE_GLOBAL, 0));
    return 0;
}

static int losses(struct remo_node *node, void *ctx) {
    struct remo_region *region;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    atomic_store(&shared->pids[rank], getpid());
    if (open_all(node, &region))
        return 1;
    if (rank == 1 || rank == 2) {
        cluster_expect_death();
        for (;;)
            cluster_sleep_ms(1000);
    }
    int rc = rank == 0 ? lose_writes(node, region) : 0;
    if (rc != 0)
        kill(atomic_load(&shared->pids[3]), SIGCONT);
    CHECK(rc == 0);
    CHECK_OK(cluster_meet());
    remo_region_close(region);
    return 0;
}

/* A peer that has no processor for as long as it may take is not dead: a link to it that is being made waits.
 */
static int starved(struct remo_node *node, void *ctx) {
    struct short_thread short_thread = {.node = node, .turn = 1};
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    atomic_store(&shared->pids[rank], getpid());
    if (open_all(node, &short_thread.region))
        return 1;
    const uint64_t *own = remo_region_local(short_thread.region);
    if (rank == 0) {
        pthread_t thread;
        CHECK(process_pause(atomic_load(&shared->pids[1])) == 0);
        int rc = pthread_create(&thread, NULL, short_thread_main, &short_thread);
        if (rc == 0) {
            pthread_join(thread, NULL);
            rc = short_thread.result;
        }
        cluster_sleep_ms(5500);
        kill(atomic_load(&shared->pids[1]), SIGCONT);
        CHECK_OK(rc);
        CHECK_OK(remo_fence(node, REMO_FENCE_GLOBAL, 0));
    }
    CHECK_OK(cluster_meet());
    if (rank == 1)
        CHECK_EQUAL(__atomic_load_n(&own[1024], __ATOMIC_ACQUIRE), 1);
    CHECK_OK(cluster_meet());
    remo_region_close(short_thread.region);
    return 0;
}

static void setup(void) {
    memset(shared, 0, sizeof *shared);
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(fence_costs, 3),
        CLUSTER_TEST(fences_flush, 3),
        CLUSTER_TEST_NAMED("fences_flush_threads", fences_flush, 2, .as_threads = 1),
        CLUSTER_TEST(short_threads, 3),
        CLUSTER_TEST_NAMED("short_threads_in_one", short_threads, 2, .as_threads = 1),
        CLUSTER_TEST(placed_without_calls, 2),
        CLUSTER_TEST(paused, 2),
        CLUSTER_TEST(orphans, 2, .only_on = "ofi"),
        CLUSTER_TEST(losses, 4, .only_on = "ofi"),
        CLUSTER_TEST(starved, 2, .op_timeout_ns = 100 * SECOND, .only_on = "ofi"),
        {0}};
    shared = cluster_shared(sizeof *shared);
    return cluster_main(argc, argv, tests, setup);
}
