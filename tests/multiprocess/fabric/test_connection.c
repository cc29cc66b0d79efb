/* test_connection.c - how fabric verbs connects: with the smaller MTU of both ends, only with the secret,
 * also to a peer that is slow, and without blocking operations on other peers. REMO_TEST_MTU is the MTU that
 * results from the settings in REMO_PROVIDER. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <remo/remo.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../support/cluster.h"
#include "../../support/pause.h"
#include "fabric/verbs/verbs.h"
#include "node/node.h"
#include "remote/op.h"
#include "remote/slots.h"

#define WAIT (50 * SECOND)
#define LONGER_THAN_AN_ATTEMPT_MS 3000u

static _Atomic pid_t *pids; /* of the nodes, [4] */

static struct verbs_fabric *verbs_of_node(struct remo_node *node) {
    return (struct verbs_fabric *)node->fabric;
}

static int open_all(struct remo_node *node, struct remo_region **ret_region) {
    atomic_store(&pids[remo_node_rank(node)], getpid());
    CHECK_OK(remo_region_open(remo_node_root(node), "region", 4096, NULL, ret_region));
    CHECK_OK(remo_channel_wait(remo_region_channel(*ret_region), WAIT));
    CHECK_OK(cluster_meet());
    return 0;
}

static int close_all(struct remo_region *region) {
    CHECK_OK(cluster_meet());
    remo_region_close(region);
    return 0;
}

/* ---- settings ---- */

static int path_mtu(struct ibv_qp *qp, uint32_t *ret_bytes) {
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr made;
    CHECK(ibv_query_qp(qp, &attr, IBV_QP_PATH_MTU, &made) == 0);
    *ret_bytes = 128u << attr.path_mtu;
    return 0;
}

/* Both ends of each connection of this node use the smaller MTU of the two. */
static int mtu_is_agreed(struct remo_node *node, uint32_t peer) {
    struct verbs_fabric *verbs = verbs_of_node(node);
    uint32_t there = atomic_load(&verbs->contacts[peer])->mtu_bytes, bytes = 0;
    uint32_t least = there < verbs->device.mtu_bytes ? there : verbs->device.mtu_bytes, found = 0;
    const char *expected = getenv("REMO_TEST_MTU");
    if (expected)
        CHECK_EQUAL(least, strtoul(expected, NULL, 10));
    for (struct verbs_endpoint *at = verbs->endpoints; at; at = at->next) {
        if (!at->links[peer])
            continue;
        CHECK_OK(path_mtu(at->links[peer]->qp, &bytes));
        CHECK_EQUAL(bytes, least);
        found++;
    }
    CHECK(found > 0);
    for (uint32_t i = 0; i < REMO__VERBS_BUCKETS; i++) {
        for (struct verbs_inbound *at = verbs->target.inbounds[i]; at; at = at->next) {
            CHECK_OK(path_mtu(at->qp, &bytes));
            CHECK(at->rank != peer || bytes == least);
        }
    }
    return 0;
}

static int settings(struct remo_node *node, void *ctx) {
    (void)ctx;
    struct remo_region *region;
    char there[4000], back[4000];
    uint32_t peer = 1 - remo_node_rank(node);
    CHECK_OK(open_all(node, &region));
    for (size_t i = 0; i < sizeof there; i++) /* many packets of the smallest MTU */
        there[i] = (char)(i * 7 + i / 251);
    CHECK_OK(remo_region_write(region, peer, 8, there, sizeof there, 0, NULL));
    CHECK_OK(remo_fence(node, REMO_FENCE_PAIR, peer));
    CHECK_OK(remo_region_read(region, peer, 8, back, sizeof back, NULL));
    CHECK(memcmp(there, back, sizeof there) == 0);
    CHECK_OK(cluster_meet());
    CHECK_OK(mtu_is_agreed(node, peer));
    return close_all(region);
}

/* On a device without ibv_wr_*, the fabric posts by ibv_post_send: the same operations at the same cost. */
static int plain_posts(struct remo_node *node, void *ctx) {
    (void)ctx;
    struct remo_region *region;
    struct remo__fabric_wire before, after;
    uint64_t word = 5, old;
    verbs_of_node(node)->device.native_posts = false;
    CHECK_OK(open_all(node, &region));
    if (remo_node_rank(node) == 0) {
        CHECK_OK(remo_region_read(region, 1, 0, &old, 8, NULL)); /* connects */
        node->fabric->ops->wire(node->fabric, &before);
        CHECK_OK(remo_region_write(region, 1, 0, &word, 8, 0, NULL));
        CHECK_OK(remo_region_write(region, 1, 8, &word, 8, REMO_WRITE_NOTIFY, NULL));
        CHECK_OK(remo_region_fetch_add(region, 1, 0, 2, &old, NULL));
        CHECK_EQUAL(old, 5);
        CHECK_OK(remo_region_compare_swap(region, 1, 0, 7, 9, &old, NULL));
        CHECK_EQUAL(old, 7);
        CHECK_OK(remo_region_read(region, 1, 0, &old, 8, NULL));
        CHECK_EQUAL(old, 9);
        node->fabric->ops->wire(node->fabric, &after);
        CHECK_EQUAL(after.requests - before.requests, 5);
        CHECK_EQUAL(after.posts - before.posts, 5);
        CHECK_EQUAL(after.inlined - before.inlined, 2);
    }
    return close_all(region);
}

/* ---- the secret ---- */

static void secret_spoil(struct remo_node *node, uint32_t peer) {
    atomic_load(&verbs_of_node(node)->contacts[peer])->secret[0] ^= 0xff;
}

/* A node without the secret cannot connect, and the peer stays up; with the secret it connects. */
static int wrong_secret(struct remo_node *node, void *ctx) {
    (void)ctx;
    struct remo_region *region;
    uint64_t word = 0;
    CHECK_OK(open_all(node, &region));
    if (remo_node_rank(node) == 0) {
        secret_spoil(node, 1);
        CHECK_SENTENCE(remo_region_read(region, 1, 0, &word, 8, NULL), -ETIMEDOUT, "op_timeout_ns");
        CHECK_EQUAL(remo_node_peer(node, 1), REMO_PEER_UP);
        secret_spoil(node, 1); /* restore it */
        int rc;
        uint64_t deadline = cluster_now_ns() + WAIT;
        while ((rc = remo_region_read(region, 1, 0, &word, 8, NULL)) == -ETIMEDOUT
               && cluster_now_ns() < deadline)
            continue;
        CHECK_OK(rc);
    }
    return close_all(region);
}

/* ---- slow and failed peers ---- */

/* Start a process that sends a signal to a node after some time. */
static int signal_later(uint32_t rank, int signal_number, uint32_t ms) {
    pid_t pid = fork();
    if (pid == 0) {
        cluster_sleep_ms(ms);
        kill(atomic_load(&pids[rank]), signal_number);
        _exit(0);
    }
    CHECK(pid > 0);
    return 0;
}

/* A peer that pauses for longer than one attempt to connect is connected when it continues, within the
 * caller's deadline. Operations on other peers do not wait for it. */
static int slow_peer(struct remo_node *node, void *ctx) {
    (void)ctx;
    struct remo_region *region;
    uint64_t word = 7, found = 0;
    struct remo_ack slow_ack = REMO_ACK_INIT, ack = REMO_ACK_INIT;
    CHECK_OK(open_all(node, &region));
    if (remo_node_rank(node) == 0) {
        CHECK(process_pause(atomic_load(&pids[1])) == 0);
        struct remo__thread *thread = remo__thread(node);
        remo__cork(thread);
        CHECK_OK(remo_region_write(region, 1, 0, &word, 8, 0, &slow_ack));
        CHECK_OK(remo_region_write(region, 2, 0, &word, 8, 0, &ack));
        remo__uncork(thread);
        CHECK_OK(remo_ack_wait(&ack, WAIT));
        CHECK_OK(remo_region_read(region, 2, 0, &found, 8, NULL));
        CHECK_EQUAL(found, 7);
        CHECK_CODE(remo_ack_test(&slow_ack), -EINPROGRESS);
        CHECK_OK(signal_later(1, SIGCONT, LONGER_THAN_AN_ATTEMPT_MS));
        CHECK_OK(remo_ack_wait(&slow_ack, WAIT));
        CHECK_OK(remo_region_read(region, 1, 0, &found, 8, NULL));
        CHECK_EQUAL(found, 7);
        wait(NULL);
    }
    return close_all(region);
}

/* An operation for a peer that is not connected is posted later, even if its thread makes no more calls. */
static int posted_without_calls(struct remo_node *node, void *ctx) {
    (void)ctx;
    struct remo_region *region;
    uint64_t word = 7, found = 0;
    CHECK_OK(open_all(node, &region));
    if (remo_node_rank(node) == 0) {
        CHECK(process_pause(atomic_load(&pids[1])) == 0);
        struct remo__thread *thread = remo__thread(node);
        remo__cork(thread);
        CHECK_OK(remo_region_write(region, 1, 0, &word, 8, 0, NULL));
        remo__uncork(thread);
        kill(atomic_load(&pids[1]), SIGCONT);
    } else {
        uint64_t deadline = cluster_now_ns() + WAIT;
        while (found != 7 && cluster_now_ns() < deadline) {
            CHECK_OK(remo_region_read(region, 1, 0, &found, 8, NULL));
            cluster_sleep_ms(1);
        }
        CHECK_EQUAL(found, 7);
    }
    return close_all(region);
}

/* A peer that fails before it is connected is reported as failed, not as a timeout. */
static int failure_before_connection(struct remo_node *node, void *ctx) {
    (void)ctx;
    struct remo_region *region;
    uint64_t word = 0;
    CHECK_OK(open_all(node, &region));
    if (remo_node_rank(node) == 1) {
        cluster_expect_death();
        cluster_meet();
        for (;;) /* until it is killed */
            pause();
    }
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 0) {
        CHECK(process_pause(atomic_load(&pids[1])) == 0);
        CHECK_OK(signal_later(1, SIGKILL, 200));
        CHECK_CODE(remo_region_read(region, 1, 0, &word, 8, NULL), -EHOSTDOWN);
        wait(NULL);
    }
    return close_all(region);
}

/* ---- an event that the kernel discards ---- */

/* Hold the target thread between the poll that reports an event and the call that reads it. */
static _Atomic int hold, held;

int poll(struct pollfd *fds, nfds_t count, int timeout_ms) {
    struct timespec timeout = {.tv_sec = timeout_ms / 1000, .tv_nsec = (long)(timeout_ms % 1000) * 1000000};
    int rc = ppoll(fds, count, timeout_ms < 0 ? NULL : &timeout, NULL);
    char name[16] = "";
    pthread_getname_np(pthread_self(), name, sizeof name);
    if (rc > 0 && atomic_load(&hold) && strcmp(name, "remo-target") == 0) {
        atomic_store(&held, 1);
        while (atomic_load(&hold))
            cluster_sleep_ms(1);
    }
    return rc;
}

static void disconnect(struct remo_node *node, uint32_t peer) {
    struct remo__thread *thread = remo__thread(node);
    (void)remo__mutex_lock(node, &thread->slots->lock, REMO_FOREVER);
    for (struct verbs_endpoint *at = verbs_of_node(node)->endpoints; at; at = at->next)
        if (at->links[peer])
            remo__verbs_link_free(at->links[peer]);
    remo__mutex_unlock(node, &thread->slots->lock);
}

/* The kernel discards the events of a connection that is destroyed. The target's thread must not wait for an
 * event that poll has reported: the wait would never end, and the node would not close. */
static int event_discarded(struct remo_node *node, void *ctx) {
    (void)ctx;
    struct remo_region *region;
    uint64_t word = 0;
    CHECK_OK(open_all(node, &region));
    CHECK_OK(remo_region_read(region, 1 - remo_node_rank(node), 0, &word, 8, NULL)); /* connects */
    CHECK_OK(cluster_meet()); /* so that the connection of node 1 is complete */
    atomic_store(&hold, remo_node_rank(node) == 0);
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 1) {
        disconnect(node, 0);
    } else {
        uint64_t deadline = cluster_now_ns() + WAIT;
        while (!atomic_load(&held) && cluster_now_ns() < deadline)
            cluster_sleep_ms(1);
        CHECK(atomic_load(&held));
        remo__verbs_target_cut_off(verbs_of_node(node), 1);
        atomic_store(&hold, 0);
    }
    return close_all(region);
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(settings, 2, .only_on = "verbs"),
        CLUSTER_TEST(plain_posts, 2, .only_on = "verbs"),
        CLUSTER_TEST(wrong_secret, 2, .op_timeout_ns = SECOND, .only_on = "verbs"),
        CLUSTER_TEST(slow_peer, 3, .only_on = "verbs"),
        CLUSTER_TEST(posted_without_calls, 2, .only_on = "verbs"),
        CLUSTER_TEST(failure_before_connection, 3, .only_on = "verbs"),
        CLUSTER_TEST(event_discarded, 2, .only_on = "verbs"),
        {0},
    };
    pids = cluster_shared(4 * sizeof *pids);
    return cluster_main(argc, argv, tests, NULL);
}
