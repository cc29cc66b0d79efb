/* test_event.c - descriptors for event loops, the callback for membership changes, and waiting for any of
 * several acks. An armed event becomes readable after 20 ms in any case, which would hide a lost
 * notification. So tests make many round trips: these delays alone would exceed the limit for a hang. */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "../../support/cluster.h"
#include "../../support/job.h"
#include "../../support/pause.h"

#define ROUNDS 1500u /* x 2 x 20 ms = 60 s: more than PATIENCE_HANG_NS */
#define ARMS 3000u   /* x 20 ms = 60 s: more than PATIENCE_HANG_NS */
#define WAITS 1000u
#define READS_MAX 100000u

static struct shared {
    struct job job;
    _Atomic pid_t pid;      /* of node 1 */
    _Atomic uint32_t armed; /* rounds of channel_closes in which node 0 has armed its event */
} * shared;

/* Poll the descriptor for 100 s. */
static int await(struct remo_event *event) {
    struct pollfd ready = {.fd = remo_event_fd(event), .events = POLLIN};
    int rc = poll(&ready, 1, 100000);
    return rc == 1 && ready.revents == POLLIN ? 0 : -ETIMEDOUT;
}

static int is_readable(const struct remo_event *event) {
    struct pollfd ready = {.fd = remo_event_fd(event), .events = POLLIN};
    return poll(&ready, 1, 0) == 1;
}

/* Receive the next message in an event loop. */
static int receive(struct remo_event *event, struct remo_ringbuffer *ring, uint32_t *ret_value) {
    for (;;) {
        size_t bytes;
        CHECK_OK(remo_event_arm(event));
        int rc = remo_ringbuffer_receive(ring, ret_value, sizeof *ret_value, &bytes, 0);
        if (rc == 0)
            return 0;
        CHECK_CODE(rc, -ETIMEDOUT);
        CHECK_OK(await(event));
    }
}

static int round_trips(struct remo_node *node, struct remo_event *event, struct remo_ringbuffer *out,
                       struct remo_ringbuffer *in) {
    for (uint32_t i = 0; i < ROUNDS; i++) {
        uint32_t got = UINT32_MAX;
        if (remo_node_rank(node) == 0)
            CHECK_OK(remo_ringbuffer_send(out, &i, sizeof i, 100 * SECOND, NULL));
        if (receive(event, in, &got) != 0)
            return 1;
        CHECK_EQUAL(got, i);
        if (remo_node_rank(node) == 1)
            CHECK_OK(remo_ringbuffer_send(out, &i, sizeof i, 100 * SECOND, NULL));
    }
    return 0;
}

/* Messages wake the event loops of both nodes. */
static int messages(struct remo_node *node, void *ctx) {
    struct remo_ringbuffer *rings[2];
    struct remo_event *event;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    for (uint32_t i = 0; i < 2; i++) {
        struct remo_ringbuffer_options options = {.sender = i};
        CHECK_OK(remo_ringbuffer_open(remo_node_root(node), i == 0 ? "zero" : "one", &options, &rings[i]));
    }
    CHECK_OK(remo_channel_wait(remo_node_root(node), 100 * SECOND));
    CHECK_OK(remo_event_open(node, &event));
    uint64_t start = cluster_now_ns();
    if (round_trips(node, event, rings[rank], rings[1 - rank]) != 0)
        return 1;
    CHECK(in_time(cluster_now_ns() - start, 5 * SECOND));
    CHECK_OK(cluster_meet());
    remo_event_close(event);
    for (uint32_t i = 0; i < 2; i++)
        remo_ringbuffer_close(rings[i]);
    return 0;
}

/* Wait for operations that the arming thread has in flight: WAITS times, except for operations that complete
 * at once. */
static int completions(struct remo_node *node, void *ctx) {
    struct remo_region *region;
    struct remo_event *event;
    (void)ctx;
    CHECK_OK(remo_region_open(remo_node_root(node), "region", 4096, NULL, &region));
    CHECK_OK(remo_channel_wait(remo_node_root(node), 100 * SECOND));
    CHECK_OK(remo_event_open(node, &event));
    uint64_t start = cluster_now_ns();
    uint32_t waits = 0;
    for (uint32_t i = 0; i < READS_MAX && waits < WAITS; i++) {
        struct remo_ack ack = REMO_ACK_INIT;
        uint64_t value;
        CHECK_OK(remo_region_read(region, 1 - remo_node_rank(node), 0, &value, sizeof value, &ack));
        while (remo_event_arm(event), remo_ack_test(&ack) == -EINPROGRESS) {
            CHECK_OK(await(event));
            waits++;
        }
        CHECK_OK(remo_ack_test(&ack));
    }
    CHECK(in_time(cluster_now_ns() - start, 4 * SECOND)); /* 7 s if the event ignored completions */
    CHECK_OK(cluster_meet());
    remo_event_close(event);
    remo_region_close(region);
    return 0;
}

/* Arming enables one signal, and clears an earlier one. */
static int armed_once(struct remo_node *node, void *ctx) {
    struct remo_event *event;
    (void)ctx;
    CHECK_OK(remo_event_open(node, &event));
    cluster_sleep_ms(60);
    CHECK(!is_readable(event)); /* not armed yet */
    CHECK_OK(remo_event_arm(event));
    CHECK_OK(await(event)); /* no event occurs: readable after 20 ms */
    CHECK(is_readable(event));
    CHECK_OK(remo_event_arm(event));
    CHECK_OK(remo_event_arm(event));
    CHECK_OK(await(event));
    remo_event_close(event);
    CHECK_OK(remo_event_open(node, &event));
    CHECK_OK(remo_event_arm(event));
    remo_event_close(event); /* while armed */
    return 0;
}

/* Arming an armed event does not wait for the sleep of its thread, of 20 ms. */
static int armed_again(struct remo_node *node, void *ctx) {
    struct remo_event *event;
    (void)ctx;
    CHECK_OK(remo_event_open(node, &event));
    uint64_t start = cluster_now_ns();
    for (uint32_t i = 0; i < ARMS; i++) {
        CHECK_OK(remo_event_arm(event));
        usleep(200); /* usually the thread sleeps then */
    }
    CHECK(in_time(cluster_now_ns() - start, 5 * SECOND));
    remo_event_close(event);
    return 0;
}

/* An idle event loop sleeps. */
static int idle(struct remo_node *node, void *ctx) {
    struct remo_event *event;
    (void)ctx;
    CHECK_OK(remo_event_open(node, &event));
    uint64_t start = cluster_now_ns(), used = cluster_processor_ns();
    while (cluster_now_ns() - start < SECOND) {
        CHECK_OK(remo_event_arm(event));
        CHECK_OK(await(event));
    }
    CHECK(slept_through(cluster_processor_ns() - used, cluster_now_ns() - start, 0.01));
    remo_event_close(event);
    return 0;
}

static int wrong_calls(struct remo_node *node, void *ctx) {
    struct remo_event *event;
    struct rlimit limit, none;
    (void)ctx;
    CHECK_SENTENCE(remo_event_open(NULL, &event), -EINVAL, "NULL");
    CHECK_SENTENCE(remo_event_open(node, NULL), -EINVAL, "NULL");
    CHECK_SENTENCE(remo_event_arm(NULL), -EINVAL, "NULL");
    CHECK_SENTENCE(remo_event_fd(NULL), -EINVAL, "NULL");
    remo_event_close(NULL);
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    none = limit;
    none.rlim_cur = 0;
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    int rc = remo_event_open(node, &event);
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    CHECK_SENTENCE(rc, -EMFILE, "ulimit -n");
    return 0;
}

/* ---- membership ---- */

#define CLOSES 3000u /* x 20 ms = 60 s: more than PATIENCE_HANG_NS */

/* Node 1 closes its endpoint, and then node 0 its own, while the event of node 0 is armed. */
static int channel_closes(struct remo_node *node, void *ctx) {
    struct remo_event *event;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    CHECK_OK(remo_event_open(node, &event));
    uint64_t start = cluster_now_ns();
    for (uint32_t i = 0; i < CLOSES; i++) {
        struct remo_region *region;
        CHECK_OK(remo_region_open(remo_node_root(node), "closing", 64, NULL, &region));
        CHECK_OK(remo_channel_wait(remo_region_channel(region), 100 * SECOND));
        while (rank == 1 && atomic_load(&shared->armed) <= i)
            sched_yield();
        while (rank == 0 && remo_event_arm(event) == 0
               && remo_channel_peer(remo_region_channel(region), 1) != REMO_CHANNEL_LEFT) {
            atomic_store(&shared->armed, i + 1);
            CHECK_OK(await(event));
        }
        remo_region_close(region);
    }
    CHECK(in_time(cluster_now_ns() - start, 10 * SECOND)); /* 60 s if the event ignored the closes */
    if (rank == 0)
        CHECK_OK(await(event)); /* armed before the last close */
    remo_event_close(event);
    return 0;
}

/* Node 1 is paused and then killed while node 0 has an operation on it in flight and an armed event. Where
 * memory is mapped, the operation is complete at once. */
static int failure_while_armed(struct remo_node *node, void *ctx) {
    struct remo_region *region;
    struct remo_event *event;
    struct remo_ack ack = REMO_ACK_INIT;
    uint64_t value;
    (void)ctx;
    CHECK_OK(remo_region_open(remo_node_root(node), "region", 4096, NULL, &region));
    CHECK_OK(remo_channel_wait(remo_region_channel(region), 100 * SECOND));
    if (remo_node_rank(node) == 1)
        atomic_store(&shared->pid, getpid());
    CHECK_OK(cluster_meet());
    while (remo_node_rank(node) == 1)
        cluster_sleep_ms(1000);
    CHECK_OK(remo_event_open(node, &event));
    CHECK(process_pause(atomic_load(&shared->pid)) == 0);
    CHECK_OK(remo_region_read(region, 1, 0, &value, sizeof value, &ack));
    CHECK_OK(remo_event_arm(event));
    CHECK_OK(cluster_kill(1));
    while (remo_event_arm(event),
           remo_ack_test(&ack) == -EINPROGRESS || remo_node_peer(node, 1) == REMO_PEER_UP)
        CHECK_OK(await(event));
    int rc = remo_ack_test(&ack);
    CHECK(rc == 0 || rc == -EHOSTDOWN);
    CHECK_EQUAL(remo_node_peer(node, 1), REMO_PEER_DEAD);
    while ((rc = remo_region_read(region, 1, 0, &value, sizeof value, NULL)) == 0) /* until it is cut off */
        cluster_sleep_ms(1);
    CHECK_CODE(rc, -EHOSTDOWN);
    remo_event_close(event); /* while armed */
    remo_region_close(region);
    return 0;
}

struct changes {
    _Atomic uint32_t up, left, failed;
};

static void count_change(void *ctx, uint32_t peer, enum remo_peer_state state) {
    struct changes *changes = ctx;
    if (peer == 0 || peer > 2)
        abort();
    cluster_sleep_ms(20); /* remo_node_open waits for the callbacks */
    if (state == REMO_PEER_UP)
        changes->up++;
    else if (state == REMO_PEER_LEFT)
        changes->left++;
    else
        changes->failed++;
}

/* The events of a job of three nodes, at rank 0: rank 1 leaves, then rank 2 fails. */
static int membership(struct remo_node *node, void *ctx) {
    struct changes changes = {0};
    struct remo_config options = {.on_peer = count_change, .on_peer_ctx = &changes};
    struct remo_node *member;
    struct remo_event *event;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    if (rank == 0)
        CHECK_OK(job_make(&shared->job, 3));
    CHECK_OK(cluster_meet());
    CHECK_OK(job_open(&shared->job, rank, remo_node_fabric(node), rank == 0 ? &options : NULL, &member));
    CHECK_OK(cluster_meet());
    if (rank == 1)
        remo_node_close(member);
    if (rank == 1)
        CHECK_OK(cluster_meet());
    if (rank == 2) {
        CHECK_OK(cluster_meet());
        cluster_expect_death();
        raise(SIGKILL);
    }
    if (rank != 0)
        return 0;
    CHECK_EQUAL(changes.up, 2);
    CHECK_OK(remo_event_open(member, &event));
    while (remo_event_arm(event), changes.left == 0)
        CHECK_OK(await(event));
    CHECK_EQUAL(changes.failed, 0);
    CHECK_OK(cluster_meet());
    while (remo_event_arm(event), changes.failed == 0)
        CHECK_OK(await(event));
    CHECK_EQUAL(changes.left, 1);
    CHECK_EQUAL(remo_node_peer(member, 2), REMO_PEER_DEAD);
    remo_event_close(event);
    remo_node_close(member);
    CHECK_EQUAL(changes.failed, 1);
    job_remove(&shared->job);
    return 0;
}

/* Open an object in the callback. */
struct opening {
    struct remo_node *_Atomic node;
    struct remo_region *region;
    _Atomic int rc; /* 1: not called yet */
    uint64_t took_ns;
};

static void open_region(void *ctx, uint32_t peer, enum remo_peer_state state) {
    struct opening *opening = ctx;
    struct remo_node *node = atomic_load(&opening->node);
    if (peer != 1 || state != REMO_PEER_LEFT || !node)
        return;
    uint64_t start = cluster_now_ns();
    int rc = remo_region_open(remo_node_root(node), "late", 64, NULL, &opening->region);
    opening->took_ns = cluster_now_ns() - start;
    atomic_store(&opening->rc, rc);
}

/* Nodes 0 and 2 of a job open a region in the callback for the leave of node 1, both at the same time: their
 * control threads must not wait for each other. */
static int open_in_callback(struct remo_node *node, void *ctx) {
    struct opening opening = {.rc = 1};
    struct remo_config options = {
        .on_peer = open_region, .on_peer_ctx = &opening, .op_timeout_ns = 20 * SECOND};
    struct remo_node *member;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    if (rank == 0)
        CHECK_OK(job_make(&shared->job, 3));
    CHECK_OK(cluster_meet());
    CHECK_OK(job_open(&shared->job, rank, remo_node_fabric(node), &options, &member));
    atomic_store(&opening.node, member);
    CHECK_OK(cluster_meet());
    if (rank == 1)
        remo_node_close(member);
    for (uint32_t ms = 0; rank != 1 && atomic_load(&opening.rc) == 1 && ms < 100000; ms++)
        cluster_sleep_ms(1);
    if (rank != 1) {
        CHECK(atomic_load(&opening.rc) != 1);
        CHECK(opening.took_ns < 10 * SECOND); /* no wait for the answer of the other node */
        uint64_t word = rank;
        CHECK_OK(atomic_load(&opening.rc));
        CHECK_OK(remo_region_write(opening.region, 2 - rank, 8, &word, sizeof word, 0, NULL));
        CHECK_OK(remo_fence(member, REMO_FENCE_THREAD, 0));
    }
    CHECK_OK(cluster_meet());
    if (rank != 1) {
        remo_region_close(opening.region);
        remo_node_close(member);
    }
    CHECK_OK(cluster_meet());
    if (rank == 0)
        job_remove(&shared->job);
    return 0;
}

/* ---- any of several acks ---- */

static int any_ack(struct remo_node *node, void *ctx) {
    enum { READS_AT_ONCE = 8 };
    struct remo_region *region;
    struct remo_ack acks[READS_AT_ONCE] = {0}, *waiting[READS_AT_ONCE] = {0};
    uint64_t values[READS_AT_ONCE] = {0};
    uint32_t index = 99;
    (void)ctx;
    CHECK_OK(remo_region_open(remo_node_root(node), "region", 4096, NULL, &region));
    CHECK_OK(remo_channel_wait(remo_node_root(node), 100 * SECOND));
    CHECK_SENTENCE(remo_ack_wait_any(waiting, READS_AT_ONCE, 0, &index), -EINVAL, "none is given");
    CHECK_SENTENCE(remo_ack_wait_any(NULL, 1, 0, &index), -EINVAL, "acks");
    for (uint64_t i = 0; i < READS_AT_ONCE; i++)
        CHECK_OK(remo_region_write(region, remo_node_rank(node), 8 * i, &(uint64_t){i + 1}, 8, 0, NULL));
    CHECK_OK(remo_fence(node, REMO_FENCE_THREAD, 0));
    CHECK_OK(cluster_meet());
    for (uint32_t i = 0; i < READS_AT_ONCE; i++) {
        waiting[i] = &acks[i];
        CHECK_OK(remo_region_read(region, 1 - remo_node_rank(node), 8ull * i, &values[i], 8, waiting[i]));
    }
    CHECK_SENTENCE(remo_ack_wait_any(waiting, READS_AT_ONCE, 0, NULL), -EINVAL, "ret_index");
    for (uint32_t done = 0; done < READS_AT_ONCE; done++) {
        index = 99;
        CHECK_OK(remo_ack_wait_any(waiting, READS_AT_ONCE, 100 * SECOND, &index));
        CHECK(index < READS_AT_ONCE && waiting[index] == &acks[index]);
        CHECK_OK(remo_ack_test(waiting[index]));
        CHECK_EQUAL(values[index], index + 1);
        waiting[index] = NULL;
    }
    CHECK_OK(cluster_meet());
    remo_region_close(region);
    return 0;
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(messages, 2),
        CLUSTER_TEST(completions, 2),
        CLUSTER_TEST(armed_once, 1),
        CLUSTER_TEST(armed_again, 1),
        CLUSTER_TEST(idle, 2),
        CLUSTER_TEST(wrong_calls, 1),
        CLUSTER_TEST(membership, 3),
        CLUSTER_TEST(any_ack, 2),
        CLUSTER_TEST(open_in_callback, 3),
        CLUSTER_TEST(channel_closes, 2),
        CLUSTER_TEST(failure_while_armed, 2),
        {0},
    };
    shared = cluster_shared(sizeof *shared);
    return cluster_main(argc, argv, tests, NULL);
}
