/* test_node_access.c - operations of a node by address: reads and writes of all sizes, addresses that are
 * refused, acks, and statistics. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../../support/cluster.h"

#define BYTES 65536u

static struct shared { struct remo_addr addresses[4]; /* of each node's memory in the region */ } * shared;

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
    CHECK_SENTENCE(remo_fetch_add(node, address_of(1 - rank, 4), 1, &word, NULL), -EINVAL, "multiple of 8");
    CHECK_CODE(remo_compare_swap(node, address_of(1 - rank, 1), 0, 1, &word, NULL), -EINVAL);
    CHECK_CODE(remo_fetch_add(node, null, 1, &word, NULL), -EFAULT);
    CHECK_CODE(
        remo_compare_swap(node, remo_addr_make(1 - rank, 5, remo_addr_offset(good)), 0, 1, &word, NULL),
        -ESTALE);
    CHECK_EQUAL(word, 1);
    remo_node_stats(node, &after);
    CHECK(memcmp(&before, &after, sizeof before) == 0);
    return 0;
}

#define ADDS 500u

/* All nodes add to two words of node 0, with and without an ack, and take turns in a third one. */
static int count_together(struct remo_node *node) {
    uint32_t size = remo_node_size(node);
    struct remo_stats before, after;
    struct remo_ack ack = REMO_ACK_INIT;
    uint64_t old = UINT64_MAX, last = 0;
    remo_thread_stats(node, &before);
    for (uint32_t i = 0; i < ADDS; i++) {
        CHECK_OK(remo_fetch_add(node, address_of(0, 0), 1, &old, NULL));
        CHECK(i == 0 || old > last);
        last = old;
        CHECK_OK(remo_fetch_add(node, address_of(0, 8), 2, NULL, &ack));
        CHECK_OK(remo_ack_wait(&ack, 100 * SECOND));
    }
    remo_thread_stats(node, &after);
    CHECK_EQUAL(after.atomics - before.atomics, 2 * ADDS);
    CHECK_OK(cluster_meet());
    CHECK_OK(remo_fetch_add(node, address_of(0, 0), 0, &old, NULL));
    CHECK_EQUAL(old, size * ADDS);
    CHECK_OK(remo_fetch_add(node, address_of(0, 8), 0, &old, NULL));
    CHECK_EQUAL(old, 2 * size * ADDS);
    for (uint64_t mine = remo_node_rank(node); mine < 20; mine += size)
        do /* until it is this node's turn */
            CHECK_OK(remo_compare_swap(node, address_of(0, 16), mine, mine + 1, &old, NULL));
        while (old != mine);
    CHECK_OK(cluster_meet());
    CHECK_OK(remo_compare_swap(node, address_of(0, 16), 0, 1, &old, NULL));
    CHECK_EQUAL(old, 20);
    return 0;
}

static int atomics_by_address(struct remo_node *node, void *ctx) {
    struct remo_region *region;
    (void)ctx;
    if (open_all(node, &region) || count_together(node))
        return 1;
    CHECK_OK(cluster_meet());
    remo_region_close(region);
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

static void setup(void) {
    memset(shared, 0, sizeof *shared);
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {CLUSTER_TEST(by_address, 2, .op_timeout_ns = 3 * SECOND),
                                                CLUSTER_TEST(atomics_by_address, 2),
                                                CLUSTER_TEST(statistics, 2),
                                                CLUSTER_TEST(acks, 2),
                                                {0}};
    shared = cluster_shared(sizeof *shared);
    return cluster_main(argc, argv, tests, setup);
}
