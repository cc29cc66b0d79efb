/* test_node.c - tests of nodes: joining in any order; missing, failing and leaving peers; restarts with a
 * higher incarnation; many nodes in one process; more threads than allowed, and their buffers; growing
 * arenas. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../support/cluster.h"
#include "../../support/job.h"
#include "base/bytes.h"
#include "node/arena.h"
#include "node/peer.h"
#include "remote/thread.h"

static struct shared {
    struct job job;
    struct remo_addr addresses[4];
    _Atomic uint32_t opened_count;
    _Atomic int stop;
} * shared;

/* A word in this node's memory, where peers write. */
static uint64_t own_word(const struct remo_region *region, uint64_t index) {
    return __atomic_load_n((const uint64_t *)remo_region_local(region) + index, __ATOMIC_ACQUIRE);
}

/* ---- joining ---- */

static uint32_t random_below(uint32_t *state, uint32_t limit) {
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % limit;
}

static void shuffle(uint32_t *order, uint32_t size, uint32_t *state) {
    for (uint32_t i = 0; i < size; i++) {
        uint32_t at = random_below(state, i + 1);
        order[i] = order[at];
        order[at] = i;
    }
}

/* Nodes are threads of this process, which open at different times, and all at once. */
static int start_orders(struct remo_node *node, void *ctx) {
    static const uint32_t sizes[] = {1, 2, 2, 3, 3, 8, 8};
    uint32_t state = 7;
    (void)ctx;
    for (uint32_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        struct job_node nodes[8] = {{0}};
        struct job job;
        uint32_t size = sizes[k], order[8];
        CHECK_OK(job_make(&job, size));
        shuffle(order, size, &state);
        for (uint32_t i = 0; i < size; i++)
            nodes[i] = (struct job_node){.job = &job,
                                         .rank = order[i],
                                         .fabric = remo_node_fabric(node),
                                         .delay_ms = k % 2 ? 0 : random_below(&state, 40)};
        CHECK_OK(job_open_all(nodes, size));
        for (uint32_t i = 0; i < size; i++) {
            CHECK_EQUAL(remo_node_rank(nodes[i].node), order[i]);
            CHECK_EQUAL(remo_node_size(nodes[i].node), size);
            CHECK(strcmp(remo_node_fabric(nodes[i].node), remo_node_fabric(node)) == 0);
            for (uint32_t peer = 0; peer < size; peer++)
                CHECK_EQUAL(remo_node_peer(nodes[i].node, peer), REMO_PEER_UP);
            CHECK_EQUAL(remo_node_peer(nodes[i].node, size), REMO_PEER_DEAD);
        }
        job_close_all(nodes, size);
        job_remove(&job);
    }
    return 0;
}

static int all_up(struct remo_node *node, void *ctx) {
    (void)ctx;
    for (uint32_t peer = 0; peer < remo_node_size(node); peer++)
        CHECK_EQUAL(remo_node_peer(node, peer), REMO_PEER_UP);
    CHECK_OK(cluster_meet());
    return 0;
}

/* Two of four nodes come; the error lists the two missing ranks, and the last attempt to connect. */
static int missing_peers(struct remo_node *node, void *ctx) {
    struct remo_config options = {.join_timeout_ns = 2 * SECOND};
    struct job_node nodes[2] = {{0}};
    struct job job;
    (void)ctx;
    CHECK_OK(job_make(&job, 4));
    for (uint32_t i = 0; i < 2; i++)
        nodes[i] = (struct job_node){
            .job = &job, .rank = 3 * i, .fabric = remo_node_fabric(node), .options = &options};
    CHECK_EQUAL(job_open_quietly(nodes, 2), 2);
    for (uint32_t i = 0; i < 2; i++) {
        CHECK_EQUAL(-nodes[i].rc, ETIMEDOUT);
        CHECK(nodes[i].took_ns >= 2 * SECOND && in_time(nodes[i].took_ns, 4 * SECOND));
        CHECK(strstr(nodes[i].sentence, "2 of 4 nodes did not join")
              && strstr(nodes[i].sentence, "rank 1, 2"));
    }
    CHECK(strstr(nodes[1].sentence, "no process listens at")); /* rank 3 connects to the lower ranks */
    job_remove(&job);
    return 0;
}

/* The arenas differ: both nodes report it at once. */
static int other_arena(struct remo_node *node, void *ctx) {
    struct remo_config small = {.arena_bytes = 256u << 20};
    struct job_node nodes[2] = {{0}};
    struct job job;
    (void)ctx;
    CHECK_OK(job_make(&job, 2));
    for (uint32_t i = 0; i < 2; i++)
        nodes[i] = (struct job_node){
            .job = &job, .rank = i, .fabric = remo_node_fabric(node), .options = i ? &small : NULL};
    CHECK_EQUAL(job_open_quietly(nodes, 2), 2);
    for (uint32_t i = 0; i < 2; i++) {
        CHECK(nodes[i].rc == -EPROTO || nodes[i].rc == -EHOSTDOWN); /* -EHOSTDOWN: the peer closed first */
        CHECK(in_time(nodes[i].took_ns, 3 * SECOND));
    }
    CHECK(strstr(nodes[0].sentence, "arena_bytes") || strstr(nodes[1].sentence, "arena_bytes"));
    job_remove(&job);
    return 0;
}

static void *open_and_count(void *ctx) {
    struct job_node *self = ctx;
    uint64_t begin = cluster_now_ns();
    self->rc = job_open(self->job, self->rank, self->fabric, NULL, &self->node);
    self->took_ns = cluster_now_ns() - begin;
    snprintf(self->sentence, sizeof self->sentence, "%s", remo_last_error());
    atomic_fetch_add(&shared->opened_count, 1);
    return NULL;
}

/* One of three nodes is killed while all wait for the fourth, which never comes: the other two stop
 * waiting. */
static int failure_while_joining(struct remo_node *node, void *ctx) {
    uint32_t rank = remo_node_rank(node);
    struct job_node self = {.job = &shared->job, .rank = rank, .fabric = remo_node_fabric(node)};
    pthread_t thread;
    (void)ctx;
    if (rank == 0)
        CHECK_OK(job_make(&shared->job, 4));
    CHECK_OK(cluster_meet());
    CHECK(pthread_create(&thread, NULL, open_and_count, &self) == 0);
    cluster_sleep_ms(2000); /* time to connect to each other, which this test cannot observe */
    CHECK_OK(cluster_meet());
    CHECK_EQUAL(shared->opened_count, 0);
    CHECK_OK(cluster_meet()); /* each node has checked */
    uint64_t killed = cluster_now_ns();
    if (rank == 0)
        CHECK_OK(cluster_kill(2));
    while (rank == 2)
        cluster_sleep_ms(1000);
    pthread_join(thread, NULL);
    CHECK_EQUAL(-self.rc, EHOSTDOWN);
    CHECK(strstr(self.sentence, "node 2 failed"));
    CHECK(in_time(cluster_now_ns() - killed, SECOND));
    CHECK_OK(cluster_meet());
    if (rank == 0)
        job_remove(&shared->job);
    return 0;
}

/* ---- leaving and failing ---- */

static int check_unreachable(struct remo_node *node, uint32_t peer, const char *words) {
    uint64_t word = 1;
    struct remo_addr addr = shared->addresses[peer];
    CHECK_SENTENCE(remo_read(node, addr, &word, 8, NULL), -EHOSTDOWN, words);
    CHECK_SENTENCE(remo_write(node, addr, &word, 8, NULL), -EHOSTDOWN, words);
    struct remo_ack ack = REMO_ACK_INIT;
    CHECK_CODE(remo_read(node, addr, &word, 8, &ack), -EHOSTDOWN);
    CHECK_EQUAL(ack.pending, 0);
    CHECK_OK(remo_fence(node, REMO_FENCE_GLOBAL, 0));
    return 0;
}

static int wait_state(struct remo_node *node, uint32_t peer, enum remo_peer_state state) {
    for (uint32_t ms = 0; remo_node_peer(node, peer) != state && ms < 100000; ms++)
        cluster_sleep_ms(1);
    CHECK_EQUAL(remo_node_peer(node, peer), state);
    return 0;
}

/* A child that node 0 forked holds descriptors of node 2's connection: node 2's failure is detected, and the
 * closed descriptors cause no load. */
static int forked_child(struct remo_node *node, void *ctx) {
    uint32_t rank = remo_node_rank(node);
    struct remo_channel *channel;
    pid_t child = -1;
    (void)ctx;
    CHECK_OK(remo_channel_wait(remo_node_root(node), 100 * SECOND));
    if (rank == 0 && (child = fork()) == 0) {
        for (;;)
            pause();
    }
    CHECK_OK(cluster_meet());
    while (rank == 2)
        cluster_sleep_ms(1000);
    if (rank == 0)
        CHECK_OK(cluster_kill(2));
    if (wait_state(node, 2, REMO_PEER_DEAD))
        return 1;
    uint64_t before = cluster_processor_ns();
    cluster_sleep_ms(300);
    CHECK(slept_through(cluster_processor_ns() - before, SECOND * 3 / 10,
                        0.1)); /* the control thread has no work */
    struct remo_channel_options two = {0};
    remo_nodeset_add(&two.participants, 0);
    remo_nodeset_add(&two.participants, 1);
    CHECK_OK(remo_channel_open(remo_node_root(node), "after", "test", &two, &channel));
    CHECK_OK(remo_channel_join(channel));
    CHECK_OK(remo_channel_wait(channel, 100 * SECOND));
    CHECK_OK(cluster_meet());
    remo_channel_close(channel);
    if (child > 0)
        CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
    return 0;
}

/* Node 1 leaves, node 2 fails; nodes 0 and 3 report the difference, and continue. */
static int left_and_failed(struct remo_node *node, void *ctx) {
    uint32_t rank = remo_node_rank(node);
    struct remo_region *region;
    struct remo_node *second;
    uint64_t word = 3;
    (void)ctx;
    if (rank == 0)
        CHECK_OK(job_make(&shared->job, 4));
    CHECK_OK(cluster_meet());
    CHECK_OK(job_open(&shared->job, rank, remo_node_fabric(node), NULL, &second));
    CHECK_OK(remo_region_open(remo_node_root(second), "data", 64, NULL, &region));
    CHECK_OK(remo_channel_wait(remo_node_root(second), 100 * SECOND));
    CHECK_OK(remo_region_address(region, rank, 0, &shared->addresses[rank]));
    CHECK_OK(cluster_meet());
    CHECK_OK(remo_write(second, shared->addresses[(rank + 1) % 4], &word, 8, NULL));
    CHECK_OK(remo_fence(second, REMO_FENCE_THREAD, 0));
    CHECK_OK(cluster_meet());
    if (rank == 1) {
        remo_region_close(region);
        remo_node_close(second);
    }
    if (rank == 0)
        CHECK_OK(cluster_kill(2));
    while (rank == 2)
        cluster_sleep_ms(1000);
    if (rank != 1) {
        if (wait_state(second, 1, REMO_PEER_LEFT) || wait_state(second, 2, REMO_PEER_DEAD))
            return 1;
        if (check_unreachable(second, 1, "node 1: it has left")
            || check_unreachable(second, 2, "node 2: it has failed"))
            return 1;
        CHECK_OK(remo_write(second, shared->addresses[3 - rank], &word, 8, NULL));
        CHECK_OK(remo_fence(second, REMO_FENCE_THREAD, 0));
    }
    CHECK_OK(cluster_meet());
    if (rank != 1) {
        remo_region_close(region);
        remo_node_close(second);
    }
    CHECK_OK(cluster_meet());
    if (rank == 0)
        job_remove(&shared->job);
    return 0;
}

/* A node that left joins again with the next incarnation: addresses of the first one are stale, new ones
 * work. */
static int second_incarnation(struct remo_node *node, void *ctx) {
    struct job_node nodes[2] = {{0}};
    struct remo_region *regions[2];
    struct remo_addr first, second;
    struct job job;
    uint64_t word = 8;
    (void)ctx;
    CHECK_OK(job_make(&job, 2));
    for (uint32_t i = 0; i < 2; i++)
        nodes[i] = (struct job_node){.job = &job, .rank = i, .fabric = remo_node_fabric(node)};
    CHECK_OK(job_open_all(nodes, 2));
    for (uint32_t i = 0; i < 2; i++)
        CHECK_OK(remo_region_open(remo_node_root(nodes[i].node), "data", 64, NULL, &regions[i]));
    CHECK_OK(remo_channel_wait(remo_region_channel(regions[0]), 100 * SECOND));
    CHECK_OK(remo_region_address(regions[0], 1, 0, &first));
    CHECK_OK(remo_write(nodes[0].node, first, &word, 8, NULL));
    CHECK_OK(remo_fence(nodes[0].node, REMO_FENCE_THREAD, 0));
    remo_region_close(regions[1]);
    remo_node_close(nodes[1].node);
    if (wait_state(nodes[0].node, 1, REMO_PEER_LEFT))
        return 1;
    CHECK_OK(job_rejoin(&nodes[1], 1, nodes[0].node));
    CHECK_SENTENCE(remo_read(nodes[0].node, first, &word, 8, NULL), -ESTALE, "incarnation 0 of node 1");
    CHECK_CODE(remo_write(nodes[0].node, first, &word, 8, NULL), -ESTALE);
    CHECK_CODE(remo_region_read(regions[0], 1, 0, &word, 8, NULL),
               -ENOTCONN); /* an endpoint connects once to each peer */
    remo_region_close(regions[0]);
    for (uint32_t i = 0; i < 2; i++)
        CHECK_OK(remo_region_open(remo_node_root(nodes[i].node), "data", 64, NULL, &regions[i]));
    for (uint32_t i = 0; i < 2; i++)
        CHECK_OK(remo_channel_wait(remo_region_channel(regions[i]), 100 * SECOND));
    CHECK_OK(remo_region_address(regions[0], 1, 0, &second));
    CHECK_EQUAL(remo_addr_incarnation(second), 1);
    CHECK_OK(remo_write(nodes[0].node, second, &word, 8, NULL));
    CHECK_OK(remo_fence(nodes[0].node, REMO_FENCE_THREAD, 0));
    CHECK_EQUAL(own_word(regions[1], 0), word);
    for (uint32_t i = 0; i < 2; i++)
        remo_region_close(regions[i]);
    job_close_all(nodes, 2);
    job_remove(&job);
    return 0;
}

/* ---- threads ---- */

struct worker {
    struct remo_node *node;
    struct remo_region *region;
    pthread_barrier_t *here, *go;
    int rc;
    char sentence[256];
    struct remo_stats stats;
};

/* Use the node, wait until all threads are attached, use the node again, and end. */
static void *work(void *ctx) {
    struct worker *self = ctx;
    uint64_t word = 0;
    self->rc = remo_region_fetch_add(self->region, 0, 0, 1, &word, NULL);
    snprintf(self->sentence, sizeof self->sentence, "%s", self->rc ? remo_last_error() : "");
    if (self->here)
        pthread_barrier_wait(self->here);
    if (self->go)
        pthread_barrier_wait(self->go);
    if (self->rc == 0)
        self->rc = remo_region_read(self->region, 0, 0, &word, 8, NULL);
    if (self->rc == 0)
        remo_thread_stats(self->node, &self->stats);
    return NULL;
}

/* At most four threads, with the one that opened the node. The fifth gets an error; when a thread ends,
 * another one can attach. */
static int too_many_threads(struct remo_node *node, void *ctx) {
    struct remo_config options = {.threads_max = 4};
    struct remo_node *small;
    struct remo_region *region;
    struct worker workers[4];
    pthread_t threads[4];
    pthread_barrier_t here, go;
    struct job job;
    (void)ctx;
    CHECK_OK(job_make(&job, 1));
    CHECK_OK(job_open(&job, 0, remo_node_fabric(node), &options, &small));
    CHECK_OK(remo_region_open(remo_node_root(small), "data", 64, NULL, &region));
    CHECK_OK(remo_region_fetch_add(region, 0, 0, 1, NULL, NULL));
    pthread_barrier_init(&here, NULL, 4);
    pthread_barrier_init(&go, NULL, 4);
    for (int i = 0; i < 3; i++) {
        workers[i] = (struct worker){.node = small, .region = region, .here = &here, .go = &go};
        CHECK(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
    }
    pthread_barrier_wait(&here); /* all three are attached */
    workers[3] = (struct worker){.node = small, .region = region};
    CHECK(pthread_create(&threads[3], NULL, work, &workers[3]) == 0);
    pthread_join(threads[3], NULL);
    CHECK_EQUAL(-workers[3].rc, EAGAIN);
    CHECK(strstr(workers[3].sentence, "threads_max"));
    pthread_barrier_wait(&go);
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        CHECK_OK(workers[i].rc);
    }
    for (int i = 0; i < 50; i++) { /* state of ended threads is reused */
        workers[0] = (struct worker){.node = small, .region = region};
        CHECK(pthread_create(&threads[0], NULL, work, &workers[0]) == 0);
        pthread_join(threads[0], NULL);
        CHECK_OK(workers[0].rc);
    }
    struct remo_stats stats;
    remo_node_stats(small, &stats);
    CHECK_EQUAL(stats.atomics, 1 + 3 + 50);
    CHECK_EQUAL(stats.reads, 3 + 50);
    CHECK_EQUAL(stats.bytes, 8 * (54 + 53));
    remo_region_close(region);
    remo_node_close(small);
    job_remove(&job);
    pthread_barrier_destroy(&here);
    pthread_barrier_destroy(&go);
    return 0;
}

/* A thread that cannot attach can close a channel, and waits for its running callback. */
static void *close_channel(void *ctx) {
    remo_channel_close(ctx);
    return NULL;
}

static void slow_message(void *ctx, uint32_t node, const void *data, size_t size_bytes) {
    _Atomic int *stage = ctx;
    (void)node, (void)data, (void)size_bytes;
    atomic_store(stage, 1);
    cluster_sleep_ms(100);
    atomic_store(stage, 2);
}

static int unattached_thread_closes(struct remo_node *node, void *ctx) {
    _Atomic int stage = 0;
    struct remo_config options = {.threads_max = 1};
    struct remo_channel_options channel_options = {.ctx = &stage, .on_message = slow_message};
    struct remo_node *small;
    struct remo_channel *channel;
    pthread_t thread;
    struct job job;
    (void)ctx;
    CHECK_OK(job_make(&job, 1));
    CHECK_OK(job_open(&job, 0, remo_node_fabric(node), &options, &small));
    CHECK_OK(remo_fence(small, REMO_FENCE_THREAD, 0)); /* this thread attaches; no other can */
    CHECK_OK(remo_channel_open(remo_node_root(small), "slow", "test", &channel_options, &channel));
    CHECK_OK(remo_channel_join(channel));
    CHECK_OK(remo_channel_send(channel, 0, "x", 1));
    while (atomic_load(&stage) == 0)
        cluster_sleep_ms(1);
    CHECK(pthread_create(&thread, NULL, close_channel, channel) == 0);
    pthread_join(thread, NULL);
    CHECK_EQUAL(stage, 2);
    remo_node_close(small);
    job_remove(&job);
    return 0;
}

/* An observer that waits, in the end of one thread, for the end of another thread. */
struct patient {
    struct remo__thread_observer observer;
    _Atomic uint32_t ends;
};

static void wait_for_both(struct remo__thread_observer *observer, struct remo__thread *thread) {
    struct patient *patient = (struct patient *)observer;
    (void)thread;
    atomic_fetch_add(&patient->ends, 1);
    while (atomic_load(&patient->ends) < 2)
        cluster_sleep_ms(1);
}

static void *attach(void *ctx) {
    (void)remo_fence(ctx, REMO_FENCE_THREAD, 0);
    return NULL;
}

/* The end of a thread that waits in an object does not delay the end of another thread. */
static int threads_end_at_once(struct remo_node *node, void *ctx) {
    struct patient patient = {.observer.ended = wait_for_both};
    pthread_t threads[2];
    (void)ctx;
    remo__thread_observe(node, &patient.observer);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, attach, node) == 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    remo__thread_unobserve(node, &patient.observer);
    CHECK_EQUAL(patient.ends, 2);
    return 0;
}

/* One thread uses several nodes in turn; threads outlive nodes, and nodes outlive threads. */
static int several_nodes(struct remo_node *node, void *ctx) {
    struct remo_node *nodes[3];
    struct remo_region *regions[3];
    struct worker worker;
    pthread_t thread;
    struct job job;
    uint64_t old;
    (void)ctx;
    CHECK_OK(job_make(&job, 1));
    for (int turn = 0; turn < 3; turn++) {
        for (int i = 0; i < 3; i++) {
            CHECK_OK(job_open(&job, 0, remo_node_fabric(node), NULL, &nodes[i]));
            CHECK_OK(remo_region_open(remo_node_root(nodes[i]), "data", 64, NULL, &regions[i]));
        }
        for (uint32_t n = 0; n < 30; n++) {
            CHECK_OK(remo_region_fetch_add(regions[n % 3], 0, 8, 1, &old, NULL));
            CHECK_EQUAL(old, n / 3);
        }
        worker = (struct worker){.node = nodes[1], .region = regions[1]};
        CHECK(pthread_create(&thread, NULL, work, &worker) == 0);
        pthread_join(thread, NULL);
        CHECK_OK(worker.rc);
        CHECK_EQUAL(worker.stats.atomics, 1);
        for (int i = 0; i < 3; i++)
            remo_region_close(regions[i]);
        for (int i = 0; i < 3; i++)
            remo_node_close(nodes[(i + turn) % 3]);
    }
    job_remove(&job);
    return 0;
}

/* ---- buffers ---- */

static void *take_buffers(void *ctx) {
    struct worker *self = ctx;
    void *buffer;
    self->rc = 0;
    for (uint32_t i = 0; self->rc == 0 && i < REMO_BUFFERS_PER_THREAD; i++)
        self->rc = remo_buffer_get(self->node, &buffer); /* never returned */
    return NULL;
}

static int buffers(struct remo_node *node, void *ctx) {
    void *all[REMO_BUFFERS_PER_THREAD], *more;
    struct worker worker = {.node = node};
    pthread_t thread;
    (void)ctx;
    for (int turn = 0; turn < 3; turn++) {
        for (uint32_t i = 0; i < REMO_BUFFERS_PER_THREAD; i++) {
            CHECK_OK(remo_buffer_get(node, &all[i]));
            CHECK((uintptr_t)all[i] % 64 == 0);
            memset(all[i], (int)i, REMO_BUFFER_BYTES);
        }
        CHECK_SENTENCE(remo_buffer_get(node, &more), -ENOBUFS, "remo_buffer_put");
        for (uint32_t i = 0; i < REMO_BUFFERS_PER_THREAD; i++) {
            CHECK(((unsigned char *)all[i])[0] == i && ((unsigned char *)all[i])[REMO_BUFFER_BYTES - 1] == i);
            if (turn != 1)
                remo_buffer_put(node, all[(i * 5 + (uint32_t)turn) % REMO_BUFFERS_PER_THREAD]);
        }
        for (uint32_t i = 0; turn == 1 && i < REMO_BUFFERS_PER_THREAD; i++)
            remo_buffer_put(node, all[REMO_BUFFERS_PER_THREAD - 1 - i]);
    }
    remo_buffer_put(node, NULL);
    remo_buffer_put(node, &worker); /* not a buffer of this thread: logged, without effect */
    remo_buffer_put(node, (char *)all[0] + 1);
    for (int turn = 0; turn < 3; turn++) { /* the end of a thread frees its buffers */
        CHECK(pthread_create(&thread, NULL, take_buffers, &worker) == 0);
        pthread_join(thread, NULL);
        CHECK_OK(worker.rc);
    }
    CHECK_OK(cluster_meet());
    return 0;
}

/* ---- growing ---- */

/* One thread of each node writes to the next node and reads the word back, until it is stopped. */
static void *write_repeatedly(void *ctx) {
    struct worker *self = ctx;
    uint32_t next = (remo_node_rank(self->node) + 1) % remo_node_size(self->node);
    for (uint64_t n = 1; self->rc == 0 && !atomic_load(&shared->stop); n++) {
        uint64_t word = n, found = 0;
        self->rc = remo_region_write(self->region, next, 8, &word, 8, 0, NULL);
        self->rc = self->rc ? self->rc : remo_region_read(self->region, next, 8, &found, 8, NULL);
        if (self->rc == 0 && found != n)
            self->rc = -EIO;
        usleep(100); /* leave the processors to the other nodes */
    }
    snprintf(self->sentence, sizeof self->sentence, "%s", remo_last_error());
    return NULL;
}

/* Meanwhile open regions that need more and more segments, and access their first and last words. */
static int growing(struct remo_node *node, void *ctx) {
    enum { REGIONS = 12 };
    struct worker worker = {.node = node};
    struct remo_region *regions[REGIONS];
    uint32_t rank = remo_node_rank(node), size = remo_node_size(node), next = (rank + 1) % size;
    pthread_t thread;
    (void)ctx;
    CHECK_OK(remo_region_open(remo_node_root(node), "busy", 64, NULL, &worker.region));
    CHECK_OK(remo_channel_wait(remo_region_channel(worker.region), 100 * SECOND));
    CHECK(pthread_create(&thread, NULL, write_repeatedly, &worker) == 0);
    for (uint32_t turn = 0; turn < 2; turn++) {
        for (uint32_t i = 0; i < REGIONS; i++) {
            char name[16];
            uint64_t bytes = (3u << 20) + i * 4096, word = rank * 1000 + i, found = 0;
            snprintf(name, sizeof name, "r%u", i);
            CHECK_OK(remo_region_open(remo_node_root(node), name, bytes, NULL, &regions[i]));
            CHECK_OK(remo_channel_wait(remo_region_channel(regions[i]), 100 * SECOND));
            CHECK_EQUAL(own_word(regions[i], i + 1), 0);
            CHECK_OK(remo_region_write(regions[i], next, 0, &word, 8, 0, NULL));
            CHECK_OK(remo_region_write(regions[i], next, bytes - 8, &word, 8, 0, NULL));
            CHECK_OK(remo_fence(node, REMO_FENCE_PAIR, next));
            CHECK_OK(remo_region_read(regions[i], next, bytes - 8, &found, 8, NULL));
            CHECK_EQUAL(found, word);
        }
        CHECK_OK(cluster_meet());
        for (uint32_t i = 0; i < REGIONS; i++) {
            uint64_t before = (rank + size - 1) % size * 1000 + i;
            CHECK_EQUAL(own_word(regions[i], 0), before);
            remo_region_close(regions[i]);
        }
        CHECK_OK(cluster_meet());
    }
    atomic_store(&shared->stop, 1);
    pthread_join(thread, NULL);
    if (worker.rc != 0)
        fprintf(stderr, "%s\n", worker.sentence);
    CHECK_OK(worker.rc);
    CHECK_OK(cluster_meet());
    remo_region_close(worker.region);
    return 0;
}

static void setup(void) {
    memset(shared, 0, sizeof *shared);
}

/* A peer is refused if its hello ends within a field. The node is its own peer here. */
static int malformed_hello(struct remo_node *node, void *ctx) {
    uint8_t hello[64];
    struct remo__writer writer = remo__writer_of(hello, sizeof hello);
    (void)ctx;
    remo__put_string(&writer, node->fabric->ops->name);
    remo__put_u64(&writer, remo__arena_reserved(node->arena));
    remo__put_u32(&writer, remo__arena_is_set(node->arena));
    remo__put_bytes(&writer, "7 bytes", 7);
    remo__peer_on_up(node, 0, 0, true, hello, (size_t)(writer.at - hello));
    CHECK(atomic_load(&node->refused));
    CHECK(strstr(node->join_error, "malformed"));
    return 0;
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(start_orders, 1),
        CLUSTER_TEST_NAMED("two", all_up, 2),
        CLUSTER_TEST_NAMED("eight", all_up, 8),
        CLUSTER_TEST_NAMED("eight_threads", all_up, 8, .as_threads = 1),
        CLUSTER_TEST_NAMED("sixty_four", all_up, 64, .only_on = "shm"),
        CLUSTER_TEST(missing_peers, 1),
        CLUSTER_TEST(other_arena, 1),
        CLUSTER_TEST(failure_while_joining, 3),
        CLUSTER_TEST(forked_child, 3),
        CLUSTER_TEST(left_and_failed, 4),
        CLUSTER_TEST(second_incarnation, 1),
        CLUSTER_TEST(too_many_threads, 1),
        CLUSTER_TEST(unattached_thread_closes, 1),
        CLUSTER_TEST(threads_end_at_once, 1),
        CLUSTER_TEST(several_nodes, 1),
        CLUSTER_TEST(buffers, 2),
        CLUSTER_TEST(growing, 3),
        CLUSTER_TEST(malformed_hello, 1),
        {0}};
    shared = cluster_shared(sizeof *shared);
    return cluster_main(argc, argv, tests, setup);
}
