/* test_node_ops.c - operations of a node below the objects: reads and writes by address, acks, fences and
 * their costs, statistics, and a peer that does not answer. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../support/cluster.h"

#define BYTES 65536u

static struct shared {
    struct remo_addr addresses[4]; /* of each node's memory in the region */
    _Atomic pid_t pids[4];
} * shared;

static int open_all(struct remo_node *node, struct remo_region **ret_region) {
    uint32_t rank = remo_node_rank(node);
    CHECK_OK(remo_region_open(remo_node_root(node), "data", BYTES, NULL, ret_region));
    CHECK_OK(remo_channel_wait(remo_region_channel(*ret_region), 100 * SECOND));
    CHECK_OK(remo_region_address(*ret_region, rank, 0, &shared->addresses[rank]));
    CHECK_OK(cluster_meet());
    return 0;
}

static struct remo_addr address_of(uint32_t rank, uint64_t offset) {
    struct remo_addr addr = shared->addresses[rank];
    return remo_addr_make(remo_addr_node(addr), remo_addr_incarnation(addr), remo_addr_offset(addr) + offset);
}

/* ---- by address ---- */

static int read_and_write(struct remo_node *node) {
    static const size_t sizes[] = {0, 1, 7, 8, 64, 4096, 50001};
    uint32_t rank = remo_node_rank(node), size = remo_node_size(node);
    unsigned char *written = malloc(BYTES), *found = malloc(BYTES);
    for (size_t i = 0; i < BYTES; i++)
        written[i] = (unsigned char)(i * 13 + rank);
    for (uint32_t turn = 0; turn < size; turn++) { /* one writer to each node at a time */
        uint32_t to = (rank + turn) % size;
        for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
            memset(found, 0, BYTES);
            CHECK_OK(remo_write(node, address_of(to, 3 * k), written, sizes[k], NULL));
            CHECK_OK(remo_fence(node, REMO_FENCE_PAIR, to));
            CHECK_OK(remo_read(node, address_of(to, 3 * k), found, sizes[k], NULL));
            CHECK(memcmp(found, written, sizes[k]) == 0 && found[sizes[k]] == 0);
        }
        CHECK_OK(cluster_meet());
    }
    free(written);
    free(found);
    return 0;
}

static int wrong_addresses(struct remo_node *node) {
    uint64_t word = 1;
    uint32_t rank = remo_node_rank(node);
    struct remo_addr null = {0}, good = address_of(1 - rank, 0);
    struct remo_stats before, after;
    remo_node_stats(node, &before);
    CHECK_SENTENCE(remo_read(node, null, &word, 8, NULL), -EFAULT, "0x0 is not an address");
    CHECK_CODE(remo_write(node, null, &word, 8, NULL), -EFAULT);
    CHECK_SENTENCE(remo_read(node, remo_addr_make(2, 0, 1 << 20), &word, 8, NULL), -EFAULT,
                   "not an address in this job");
    CHECK_CODE(remo_read(node, remo_addr_make(1023, 0, 1 << 20), &word, 8, NULL), -EFAULT);
    CHECK_SENTENCE(remo_read(node, remo_addr_make(1 - rank, 5, remo_addr_offset(good)), &word, 8, NULL),
                   -ESTALE, "incarnation 5");
    CHECK_SENTENCE(remo_write(node, remo_addr_make(rank, 1, remo_addr_offset(good)), &word, 8, NULL), -ESTALE,
                   "incarnation is now 0");
    CHECK_SENTENCE(remo_write(node, remo_addr_make(1 - rank, 0, 1), &word, 8, NULL), -EFAULT,
                   "outside the arena"); /* the fabric's */
    CHECK_CODE(remo_write(node, remo_addr_make(1 - rank, 0, (1ull << 44) - 8), &word, 8, NULL), -EFAULT);
    CHECK_CODE(remo_read(node, good, &word, SIZE_MAX, NULL), -EFAULT);
    CHECK_SENTENCE(remo_read(node, remo_addr_make(1 - rank, 0, 3ull << 30), &word, 8, NULL), -EFAULT,
                   "has not announced memory at offset");
    CHECK_SENTENCE(remo_read(node, good, NULL, 8, NULL), -EINVAL, "NULL");
    CHECK_CODE(remo_write(node, good, NULL, 8, NULL), -EINVAL);
    CHECK_EQUAL(word, 1);
    remo_node_stats(node, &after);
    CHECK(memcmp(&before, &after, sizeof before) == 0);
    return 0;
}

static int by_address(struct remo_node *node, void *ctx) {
    struct remo_region *region;
    (void)ctx;
    if (open_all(node, &region) || read_and_write(node))
        return 1;
    CHECK_OK(cluster_meet());
    if (wrong_addresses(node))
        return 1;
    CHECK_OK(cluster_meet());
    remo_region_close(region);
    return 0;
}

/* ---- statistics ---- */

struct counted {
    struct remo_node *node;
    struct remo_region *region;
    uint32_t times;
    int result;
    struct remo_stats stats;
    _Atomic int *stop;
};

static int count_on(struct counted *self) {
    uint32_t other = 1 - remo_node_rank(self->node);
    unsigned char data[40] = {0};
    for (uint32_t i = 0; i < self->times; i++) {
        CHECK_OK(remo_region_read(self->region, other, 64, data, 40, NULL));
        CHECK_OK(remo_region_write(self->region, other, 64, data, 24, 0, NULL));
        CHECK_OK(remo_region_write(self->region, other, 64, data, 8, REMO_WRITE_NOTIFY, NULL));
        CHECK_OK(remo_region_fetch_add(self->region, other, 0, 1, NULL, NULL));
    }
    remo_thread_stats(self->node, &self->stats);
    return 0;
}

static void *count(void *ctx) {
    struct counted *self = ctx;
    self->result = count_on(self);
    return NULL;
}

/* Any thread can read the statistics at any time; they only increase. */
static void *read_statistics(void *ctx) {
    struct counted *self = ctx;
    struct remo_stats before = {0};
    while (self->result == 0 && !atomic_load(self->stop)) {
        struct remo_stats now, of_channel;
        remo_node_stats(self->node, &now);
        remo_channel_stats(remo_region_channel(self->region), &of_channel);
        self->result = now.reads < before.reads || now.writes < before.writes || now.bytes < before.bytes;
        before = now;
    }
    return NULL;
}

static int statistics(struct remo_node *node, void *ctx) {
    enum { THREADS = 3 };
    struct remo_region *region;
    struct counted threads[THREADS], reader;
    pthread_t ids[THREADS], reader_thread;
    struct remo_stats before, after, of_channel;
    _Atomic int stop = 0;
    uint64_t sum = 0;
    (void)ctx;
    if (open_all(node, &region))
        return 1;
    remo_node_stats(node, &before);
    reader = (struct counted){.node = node, .region = region, .stop = &stop};
    CHECK(pthread_create(&reader_thread, NULL, read_statistics, &reader) == 0);
    for (uint32_t i = 0; i < THREADS; i++) {
        threads[i] = (struct counted){.node = node, .region = region, .times = 100 * (i + 1)};
        CHECK(pthread_create(&ids[i], NULL, count, &threads[i]) == 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        pthread_join(ids[i], NULL);
        CHECK_OK(threads[i].result);
        CHECK_EQUAL(threads[i].stats.atomics, threads[i].times);
        CHECK_EQUAL(threads[i].stats.writes, 2 * threads[i].times);
        CHECK_EQUAL(threads[i].stats.imms, threads[i].times);
        CHECK_EQUAL(threads[i].stats.reads, threads[i].times);
        CHECK_EQUAL(threads[i].stats.bytes, (40 + 24 + 8 + 8) * threads[i].times);
        sum += threads[i].times;
    }
    atomic_store(&stop, 1);
    pthread_join(reader_thread, NULL);
    CHECK_OK(reader.result);
    remo_node_stats(node, &after);
    remo_channel_stats(remo_region_channel(region), &of_channel);
    CHECK_EQUAL(after.reads - before.reads, sum);
    CHECK_EQUAL(after.writes - before.writes, 2 * sum);
    CHECK_EQUAL(after.atomics - before.atomics, sum);
    CHECK_EQUAL(after.imms - before.imms, sum);
    CHECK_EQUAL(of_channel.bytes, 80 * sum);
    CHECK_OK(remo_read(node, address_of(remo_node_rank(node), 0), &sum, 8,
                       NULL)); /* by address: counted for the root channel */
    remo_channel_stats(remo_node_root(node), &after);
    CHECK(after.reads > of_channel.reads);
    CHECK_OK(cluster_meet());
    remo_region_close(region);
    CHECK_OK(remo_region_open(remo_node_root(node), "fresh", 64, NULL,
                              &region)); /* may reuse the counters of the closed region */
    remo_channel_stats(remo_region_channel(region), &after);
    CHECK_EQUAL(after.reads + after.writes + after.atomics + after.bytes, 0);
    CHECK_OK(cluster_meet());
    remo_region_close(region);
    return 0;
}

/* ---- acks ---- */

static int acks(struct remo_node *node, void *ctx) {
    struct remo_ack first = REMO_ACK_INIT, second = REMO_ACK_INIT, none = REMO_ACK_INIT;
    uint32_t other = 1 - remo_node_rank(node);
    uint64_t a = 0, b = 0, word = 77;
    struct remo_region *region;
    int rc;
    (void)ctx;
    if (open_all(node, &region))
        return 1;
    CHECK_OK(remo_ack_test(&none));
    CHECK_OK(remo_ack_wait(&none, 0));
    remo_ack_cancel(&none);
    remo_ack_join(&none, &none);
    CHECK_OK(remo_region_write(region, other, 0, &word, 8, 0, &first));
    CHECK_OK(remo_ack_wait(&first, 100 * SECOND));
    CHECK_OK(remo_fence(node, REMO_FENCE_PAIR, other));
    for (uint32_t turn = 0; turn < 200; turn++) {
        a = b = 0;
        CHECK_OK(remo_region_read(region, other, 0, &a, 8, &first));
        CHECK_OK(remo_region_read(region, other, 0, &b, 8, &second));
        remo_ack_join(&second, &first);
        CHECK_OK(remo_ack_test(&first)); /* it has no operations any more */
        if (turn % 2)
            CHECK_OK(remo_ack_wait(&second, 100 * SECOND));
        while ((rc = remo_ack_test(&second)) == -EINPROGRESS)
            continue;
        CHECK_OK(rc);
        CHECK(a == 77 && b == 77);
        CHECK_OK(remo_region_read(region, other, 0, &a, 8, &first)); /* in flight; cancelled below */
        remo_ack_cancel(&first);
        CHECK_OK(remo_ack_test(&first));
    }
    CHECK_OK(remo_fence(node, REMO_FENCE_THREAD, 0));
    CHECK_OK(cluster_meet());
    remo_region_close(region);
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
    uint64_t word = 5, canceled = 42, begin = cluster_now_ns();
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
        uint64_t word, turn = 0;
        while (remo_region_read(region, 1, 0, &word, 8, NULL) == -ETIMEDOUT && turn < 100)
            turn++; /* connects */
        kill(atomic_load(&shared->pids[1]), SIGSTOP);
        cluster_sleep_ms(20);
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
    kill(atomic_load(pid), SIGSTOP);
    cluster_sleep_ms(20);
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
        kill(atomic_load(&shared->pids[to]), SIGSTOP);
    }
    cluster_sleep_ms(20);
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
        kill(atomic_load(&shared->pids[1]), SIGSTOP);
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
        CLUSTER_TEST(by_address, 2, .op_timeout_ns = 3 * SECOND),
        CLUSTER_TEST(statistics, 2),
        CLUSTER_TEST(acks, 2),
        CLUSTER_TEST(fence_costs, 3),
        CLUSTER_TEST(fences_flush, 3),
        CLUSTER_TEST_NAMED("fences_flush_threads", fences_flush, 2, .as_threads = 1),
        CLUSTER_TEST(short_threads, 3),
        CLUSTER_TEST_NAMED("short_threads_in_one", short_threads, 2, .as_threads = 1),
        CLUSTER_TEST(placed_without_calls, 2),
        CLUSTER_TEST(paused, 2, .op_timeout_ns = SECOND),
        CLUSTER_TEST(orphans, 2, .op_timeout_ns = SECOND, .only_on = "ofi"),
        CLUSTER_TEST(losses, 4, .op_timeout_ns = SECOND, .only_on = "ofi"),
        CLUSTER_TEST(starved, 2, .op_timeout_ns = 100 * SECOND, .only_on = "ofi"),
        {0}};
    shared = cluster_shared(sizeof *shared);
    return cluster_main(argc, argv, tests, setup);
}
