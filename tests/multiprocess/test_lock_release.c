/* test_lock_release.c - releases whose fence or whose own atomic fails. The lock is handed over only when no
 * write under it is in flight, also after a close, and a late atomic gives it to one node only. One node
 * pauses meanwhile. */
#include <errno.h>
#include <remo/lock.h>
#include <string.h>

#include "turns.h"

#define NODES 3u
#define PAUSED 1u /* node of the data */

static struct shared {
    struct turns turns;
    _Atomic uint32_t inside; /* holders */
} * shared;

static int open_data(struct remo_node *node, struct remo_lock **ret_lock, struct remo_region **ret_data) {
    CHECK_OK(remo_lock_open(remo_node_root(node), "lock", NULL, ret_lock));
    CHECK_OK(remo_channel_wait(remo_lock_channel(*ret_lock), 100 * SECOND));
    CHECK_OK(remo_region_open(remo_node_root(node), "data", 64, NULL, ret_data));
    CHECK_OK(remo_channel_wait(remo_region_channel(*ret_data), 100 * SECOND));
    record_process(&shared->turns, remo_node_rank(node));
    return cluster_meet();
}

/* Open a lock of the nodes that do not pause. */
static int open_of_two(struct remo_node *node, struct remo_lock **ret_lock) {
    struct remo_lock_options options = {0};
    remo_nodeset_add(&options.participants, 0);
    remo_nodeset_add(&options.participants, 2);
    CHECK_OK(remo_lock_open(remo_node_root(node), "of-two", &options, ret_lock));
    CHECK_OK(remo_channel_wait(remo_lock_channel(*ret_lock), 100 * SECOND));
    return 0;
}

/* Write under the lock to a node that pauses. The release fails, since the write may arrive at any time. */
static int write_and_fail(struct remo_lock *lock, struct remo_region *data, uint64_t word) {
    CHECK_OK(remo_lock_acquire(lock, 0, 100 * SECOND));
    CHECK_OK(remo_region_write(data, PAUSED, 0, &word, 8, 0, NULL));
    CHECK_OK(remo_fence(remo_channel_node(remo_lock_channel(lock)), REMO_FENCE_THREAD, 0)); /* connects */
    pause_node(&shared->turns, PAUSED);
    word++;
    CHECK_OK(remo_region_write(data, PAUSED, 0, &word, 8, 0, NULL));
    CHECK_SENTENCE(remo_lock_release(lock, 0, REMO_FENCE_THREAD), -EAGAIN, "still held");
    begin_turn(&shared->turns, 1);
    CHECK_OK(reach_turn(&shared->turns, 2));
    return 0;
}

/* The next holder reads the write that was in flight when the first release failed. */
static int held_until_placed(struct remo_node *node, void *ctx) {
    struct remo_lock *lock;
    struct remo_region *data;
    uint32_t rank = remo_node_rank(node);
    uint64_t word = 0;
    (void)ctx;
    if (open_data(node, &lock, &data) != 0)
        return 1;
    if (rank == 0) {
        if (write_and_fail(lock, data, 7) != 0)
            return 1;
        resume_node(&shared->turns, PAUSED);
        int rc;
        while ((rc = remo_lock_release(lock, 0, REMO_FENCE_THREAD)) == -EAGAIN)
            continue;
        CHECK_OK(rc);
        CHECK_CODE(remo_lock_release(lock, 0, REMO_FENCE_THREAD), -EPERM);
    } else if (rank == 2) {
        CHECK_OK(reach_turn(&shared->turns, 1));
        CHECK_CODE(remo_lock_acquire(lock, 0, 0), -ETIMEDOUT);
        begin_turn(&shared->turns, 2);
        CHECK_OK(remo_lock_acquire(lock, 0, 100 * SECOND));
        CHECK_OK(remo_region_read(data, PAUSED, 0, &word, 8, NULL));
        CHECK_EQUAL(word, 8);
        CHECK_OK(remo_lock_release(lock, 0, REMO_FENCE_NONE));
    }
    CHECK_OK(cluster_meet());
    remo_region_close(data);
    remo_lock_close(lock);
    return 0;
}

/* The node of the data fails, so no write to it is in flight: the release succeeds, and returns the loss. */
static int released_with_loss(struct remo_node *node, void *ctx) {
    struct remo_lock *lock;
    struct remo_region *data;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    if (open_data(node, &lock, &data) != 0)
        return 1;
    if (rank == PAUSED)
        for (;;)
            cluster_sleep_ms(1000);
    if (rank == 0) {
        if (write_and_fail(lock, data, 7) != 0)
            return 1;
        CHECK_OK(cluster_kill(PAUSED));
        int rc;
        while ((rc = remo_lock_release(lock, 0, REMO_FENCE_THREAD)) == -EAGAIN)
            continue;
        CHECK_CODE(rc, -EHOSTDOWN);
        CHECK_CODE(remo_lock_release(lock, 0, REMO_FENCE_THREAD), -EPERM);
    } else {
        CHECK_OK(reach_turn(&shared->turns, 1));
        CHECK_CODE(remo_lock_acquire(lock, 0, 0), -ETIMEDOUT);
        begin_turn(&shared->turns, 2);
        CHECK_OK(remo_lock_acquire(lock, 0, 100 * SECOND)); /* its holder is up: no repair */
        CHECK_OK(remo_lock_release(lock, 0, REMO_FENCE_NONE));
    }
    CHECK_OK(cluster_meet());
    remo_region_close(data);
    remo_lock_close(lock);
    return 0;
}

/* A node closes the lock while its release fails: the next holder gets -EOWNERDEAD. */
static int closed_while_held(struct remo_node *node, void *ctx) {
    struct remo_lock *lock;
    struct remo_region *data;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    if (open_data(node, &lock, &data) != 0)
        return 1;
    if (rank == 0)
        CHECK_OK(reach_turn(&shared->turns, 1));
    if (rank == 0) {
        CHECK_CODE(remo_lock_acquire(lock, 0, 0), -ETIMEDOUT);
        begin_turn(&shared->turns, 2);
        CHECK_CODE(remo_lock_acquire(lock, 0, 100 * SECOND), -EOWNERDEAD);
        CHECK_OK(remo_lock_consistent(lock, 0));
        CHECK_OK(remo_lock_release(lock, 0, REMO_FENCE_NONE));
    } else if (rank == 2 && write_and_fail(lock, data, 7) != 0) {
        return 1;
    }
    if (rank == 2) {
        remo_lock_close(lock);
        lock = NULL;
        resume_node(&shared->turns, PAUSED); /* the home queries all participants */
    }
    CHECK_OK(cluster_meet());
    remo_region_close(data);
    remo_lock_close(lock);
    return 0;
}

/* A node closes the lock with a write under it in flight, to a node that does not participate in the lock.
 * The lock has no next holder until the write is placed. */
static int closed_with_write_in_flight(struct remo_node *node, void *ctx) {
    struct remo_lock *all, *lock = NULL;
    struct remo_region *data;
    uint32_t rank = remo_node_rank(node);
    uint64_t word = 0;
    (void)ctx;
    if (open_data(node, &all, &data) != 0)
        return 1;
    if (rank != PAUSED && open_of_two(node, &lock) != 0)
        return 1;
    CHECK_OK(cluster_meet());
    if (rank == 0) {
        CHECK_OK(reach_turn(&shared->turns, 1));
        begin_turn(&shared->turns, 2);
        while (remo_channel_peer(remo_lock_channel(lock), 2) != REMO_CHANNEL_LEFT)
            cluster_sleep_ms(1);
        CHECK_CODE(remo_lock_acquire(lock, 0, SECOND), -ETIMEDOUT);
        resume_node(&shared->turns, PAUSED);
        CHECK_CODE(remo_lock_acquire(lock, 0, 100 * SECOND), -EOWNERDEAD);
        CHECK_OK(remo_region_read(data, PAUSED, 0, &word, 8, NULL));
        CHECK_EQUAL(word, 8);
    } else if (rank == 2) {
        CHECK(write_and_fail(lock, data, 7) == 0);
        remo_lock_close(lock);
        lock = NULL;
    }
    CHECK_OK(cluster_meet());
    remo_region_close(data);
    remo_lock_close(lock);
    remo_lock_close(all);
    return 0;
}

/* Acquire the lock, and check that no other node holds it. */
static int enter(struct remo_lock *lock) {
    int rc;
    while ((rc = remo_lock_acquire(lock, 0, 100 * SECOND)) == -ETIMEDOUT) /* while the home pauses */
        continue;
    CHECK(rc == 0 || rc == -EOWNERDEAD);
    CHECK_EQUAL(atomic_fetch_add(&shared->inside, 1), 0);
    if (rc == -EOWNERDEAD)
        CHECK_OK(remo_lock_consistent(lock, 0));
    atomic_fetch_sub(&shared->inside, 1);
    return 0;
}

static int use_in_turn(struct remo_lock *lock) {
    for (uint32_t i = 0; i < 50; i++) {
        if (enter(lock) != 0)
            return 1;
        CHECK_OK(remo_lock_release(lock, 0, REMO_FENCE_NONE));
    }
    return 0;
}

/* The home pauses, and the release without a fence times out. Its atomic is applied when the home resumes. */
static int release_without_answer(struct remo_lock *lock) {
    if (enter(lock) != 0)
        return 1;
    pause_node(&shared->turns, 0);
    CHECK_SENTENCE(remo_lock_release(lock, 0, REMO_FENCE_NONE), -ETIMEDOUT, "node 0");
    CHECK_CODE(remo_lock_release(lock, 0, REMO_FENCE_NONE), -EPERM);
    CHECK_CODE(remo_lock_acquire(lock, 0, 0), -ETIMEDOUT);
    CHECK_CODE(remo_lock_acquire(lock, 0, SECOND / 10), -ETIMEDOUT);
    return 0;
}

/* After a late release the lock has one holder at a time, and works for all nodes. */
static int released_late(struct remo_node *node, void *ctx) {
    struct remo_lock *lock;
    struct remo_region *data;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    if (open_data(node, &lock, &data) != 0)
        return 1;
    CHECK(use_in_turn(lock) == 0); /* connects */
    CHECK_OK(cluster_meet());
    for (uint32_t turn = 0; turn < 3; turn++) {
        int rc = rank == 2 ? release_without_answer(lock) : 0;
        if (rank == 2)
            resume_node(&shared->turns, 0);
        CHECK(rc == 0);
        CHECK(use_in_turn(lock) == 0);
        CHECK_OK(cluster_meet());
    }
    remo_region_close(data);
    remo_lock_close(lock);
    return 0;
}

/* After a release without an answer, the lock becomes usable although a read from another node is in flight:
 * the read cannot change the lock. */
static int read_does_not_count(struct remo_node *node, void *ctx) {
    struct remo_lock *lock;
    struct remo_region *data;
    uint64_t word;
    (void)ctx;
    if (open_data(node, &lock, &data) != 0)
        return 1;
    remo_lock_close(lock);
    lock = NULL;
    if (remo_node_rank(node) != PAUSED && open_of_two(node, &lock) != 0)
        return 1;
    if (lock)
        CHECK(use_in_turn(lock) == 0); /* connects */
    if (remo_node_rank(node) == 2)
        CHECK_OK(remo_region_read(data, PAUSED, 0, &word, 8, NULL));
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 2) {
        pause_node(&shared->turns, PAUSED);
        CHECK_CODE(remo_region_read(data, PAUSED, 0, &word, 8, NULL), -ETIMEDOUT);
        int rc = release_without_answer(lock);
        resume_node(&shared->turns, 0);
        CHECK(rc == 0);
        CHECK(use_in_turn(lock) == 0);
        resume_node(&shared->turns, PAUSED);
    }
    CHECK_OK(cluster_meet());
    remo_region_close(data);
    remo_lock_close(lock);
    return 0;
}

/* A node closes the lock with its release in flight, while the home pauses. */
static int closed_with_release_in_flight(struct remo_node *node, void *ctx) {
    struct remo_lock *lock;
    struct remo_region *data;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    if (open_data(node, &lock, &data) != 0)
        return 1;
    CHECK(use_in_turn(lock) == 0); /* connects */
    CHECK_OK(cluster_meet());
    if (rank == 2) {
        int rc = release_without_answer(lock);
        remo_lock_close(lock);
        lock = NULL;
        resume_node(&shared->turns, 0);
        CHECK(rc == 0);
    } else {
        CHECK(use_in_turn(lock) == 0);
    }
    CHECK_OK(cluster_meet());
    remo_region_close(data);
    remo_lock_close(lock);
    return 0;
}

static void setup(void) {
    memset(shared, 0, sizeof *shared);
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(held_until_placed, NODES, .op_timeout_ns = 10 * SECOND, .only_on = "ofi"),
        CLUSTER_TEST(released_with_loss, NODES, .op_timeout_ns = 10 * SECOND, .only_on = "ofi"),
        CLUSTER_TEST(closed_while_held, NODES, .op_timeout_ns = 10 * SECOND, .only_on = "ofi"),
        CLUSTER_TEST(closed_with_write_in_flight, NODES, .op_timeout_ns = 10 * SECOND, .only_on = "ofi"),
        CLUSTER_TEST(closed_with_release_in_flight, NODES, .op_timeout_ns = 3 * SECOND, .only_on = "ofi"),
        CLUSTER_TEST(read_does_not_count, NODES, .op_timeout_ns = 3 * SECOND, .only_on = "ofi"),
        CLUSTER_TEST(released_late, NODES, .op_timeout_ns = SECOND, .only_on = "ofi"),
        {0},
    };
    shared = cluster_shared(sizeof *shared);
    return cluster_main(argc, argv, tests, setup);
}
