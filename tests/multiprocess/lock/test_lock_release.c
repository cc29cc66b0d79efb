/* test_lock_release.c - releases whose fence or whose own atomic fails. The lock is handed over only when no
 * write under it is in flight, also after a close, and a late atomic gives it to one node only. One node
 * pauses meanwhile. */
#include <errno.h>
#include <remo/lock.h>
#include <string.h>

#include "../../support/turns.h"

#define NODES 3u
#define PAUSED 1u /* node of the data */

static struct shared {
    struct turns turns;
    _Atomic uint32_t inside; /* holders */
} * shared;

/* The lock and the data of one node. */
struct setting {
    uint32_t rank;
    struct remo_lock *lock; /* NULL: closed */
    struct remo_region *data;
};

static int setting_open(struct remo_node *node, struct setting *ret_setting) {
    *ret_setting = (struct setting){.rank = remo_node_rank(node)};
    CHECK_OK(remo_lock_open(remo_node_root(node), "lock", NULL, &ret_setting->lock));
    CHECK_OK(remo_channel_wait(remo_lock_channel(ret_setting->lock), 100 * SECOND));
    CHECK_OK(remo_region_open(remo_node_root(node), "data", 64, NULL, &ret_setting->data));
    CHECK_OK(remo_channel_wait(remo_region_channel(ret_setting->data), 100 * SECOND));
    record_process(&shared->turns, ret_setting->rank);
    return cluster_meet();
}

static void lock_close(struct setting *s) {
    remo_lock_close(s->lock);
    s->lock = NULL;
}

/* Close both when all nodes have ended their part. */
static int setting_close(struct setting *s) {
    CHECK_OK(cluster_meet());
    remo_region_close(s->data);
    lock_close(s);
    return 0;
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
static int write_and_fail(const struct setting *s) {
    uint64_t word = 7;
    CHECK_OK(remo_lock_acquire(s->lock, 0, 100 * SECOND));
    CHECK_OK(remo_region_write(s->data, PAUSED, 0, &word, 8, 0, NULL));
    CHECK_OK(remo_fence(remo_channel_node(remo_lock_channel(s->lock)), REMO_FENCE_THREAD, 0)); /* connects */
    pause_node(&shared->turns, PAUSED);
    word++;
    CHECK_OK(remo_region_write(s->data, PAUSED, 0, &word, 8, 0, NULL));
    CHECK_SENTENCE(remo_lock_release(s->lock, 0, REMO_FENCE_THREAD), -EAGAIN, "still held");
    begin_turn(&shared->turns, 1);
    CHECK_OK(reach_turn(&shared->turns, 2));
    return 0;
}

/* Release the lock when its writes are placed, or lost. */
static int release_when_placed(struct remo_lock *lock) {
    int rc;
    while ((rc = remo_lock_release(lock, 0, REMO_FENCE_THREAD)) == -EAGAIN)
        continue;
    return rc;
}

/* The next holder reads the write that was in flight when the first release failed. */
static int held_until_placed(struct remo_node *node, void *ctx) {
    struct setting s;
    uint64_t word = 0;
    (void)ctx;
    if (setting_open(node, &s) != 0)
        return 1;
    if (s.rank == 0) {
        if (write_and_fail(&s) != 0)
            return 1;
        resume_node(&shared->turns, PAUSED);
        CHECK_OK(release_when_placed(s.lock));
        CHECK_CODE(remo_lock_release(s.lock, 0, REMO_FENCE_THREAD), -EPERM);
    } else if (s.rank == 2) {
        CHECK_OK(reach_turn(&shared->turns, 1));
        CHECK_CODE(remo_lock_acquire(s.lock, 0, 0), -ETIMEDOUT);
        begin_turn(&shared->turns, 2);
        CHECK_OK(remo_lock_acquire(s.lock, 0, 100 * SECOND));
        CHECK_OK(remo_region_read(s.data, PAUSED, 0, &word, 8, NULL));
        CHECK_EQUAL(word, 8);
        CHECK_OK(remo_lock_release(s.lock, 0, REMO_FENCE_NONE));
    }
    return setting_close(&s);
}

/* The node of the data fails, so no write to it is in flight: the release succeeds, and returns the loss. */
static int released_with_loss(struct remo_node *node, void *ctx) {
    struct setting s;
    (void)ctx;
    if (setting_open(node, &s) != 0)
        return 1;
    if (s.rank == PAUSED)
        for (;;)
            cluster_sleep_ms(1000);
    if (s.rank == 0) {
        if (write_and_fail(&s) != 0)
            return 1;
        CHECK_OK(cluster_kill(PAUSED));
        CHECK_CODE(release_when_placed(s.lock), -EHOSTDOWN);
        CHECK_CODE(remo_lock_release(s.lock, 0, REMO_FENCE_THREAD), -EPERM);
    } else {
        CHECK_OK(reach_turn(&shared->turns, 1));
        CHECK_CODE(remo_lock_acquire(s.lock, 0, 0), -ETIMEDOUT);
        begin_turn(&shared->turns, 2);
        CHECK_OK(remo_lock_acquire(s.lock, 0, 100 * SECOND)); /* its holder is up: no repair */
        CHECK_OK(remo_lock_release(s.lock, 0, REMO_FENCE_NONE));
    }
    return setting_close(&s);
}

/* A node closes the lock while its release fails: the next holder gets -EOWNERDEAD. */
static int closed_while_held(struct remo_node *node, void *ctx) {
    struct setting s;
    (void)ctx;
    if (setting_open(node, &s) != 0)
        return 1;
    if (s.rank == 0) {
        CHECK_OK(reach_turn(&shared->turns, 1));
        CHECK_CODE(remo_lock_acquire(s.lock, 0, 0), -ETIMEDOUT);
        begin_turn(&shared->turns, 2);
        CHECK_CODE(remo_lock_acquire(s.lock, 0, 100 * SECOND), -EOWNERDEAD);
        CHECK_OK(remo_lock_consistent(s.lock, 0));
        CHECK_OK(remo_lock_release(s.lock, 0, REMO_FENCE_NONE));
    } else if (s.rank == 2 && write_and_fail(&s) != 0) {
        return 1;
    }
    if (s.rank == 2) {
        lock_close(&s);
        resume_node(&shared->turns, PAUSED); /* the home queries all participants */
    }
    return setting_close(&s);
}

/* A node closes the lock with a write under it in flight, to a node that does not participate in the lock.
 * The lock has no next holder until the write is placed. */
static int closed_with_write_in_flight(struct remo_node *node, void *ctx) {
    struct setting s;
    struct remo_lock *all;
    uint64_t word = 0;
    (void)ctx;
    if (setting_open(node, &s) != 0)
        return 1;
    all = s.lock;
    s.lock = NULL;
    if (s.rank != PAUSED && open_of_two(node, &s.lock) != 0)
        return 1;
    CHECK_OK(cluster_meet());
    if (s.rank == 0) {
        CHECK_OK(reach_turn(&shared->turns, 1));
        begin_turn(&shared->turns, 2);
        while (remo_channel_peer(remo_lock_channel(s.lock), 2) != REMO_CHANNEL_LEFT)
            cluster_sleep_ms(1);
        CHECK_CODE(remo_lock_acquire(s.lock, 0, SECOND), -ETIMEDOUT);
        resume_node(&shared->turns, PAUSED);
        CHECK_CODE(remo_lock_acquire(s.lock, 0, 100 * SECOND), -EOWNERDEAD);
        CHECK_OK(remo_region_read(s.data, PAUSED, 0, &word, 8, NULL));
        CHECK_EQUAL(word, 8);
    } else if (s.rank == 2) {
        CHECK(write_and_fail(&s) == 0);
        lock_close(&s);
    }
    int rc = setting_close(&s);
    remo_lock_close(all);
    return rc;
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
        int rc = remo_lock_release(lock, 0, REMO_FENCE_NONE);
        CHECK(rc == 0 || rc == -ETIMEDOUT); /* a node was paused: the release takes effect later */
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
    struct setting s;
    (void)ctx;
    if (setting_open(node, &s) != 0)
        return 1;
    CHECK(use_in_turn(s.lock) == 0); /* connects */
    CHECK_OK(cluster_meet());
    for (uint32_t turn = 0; turn < 3; turn++) {
        int rc = s.rank == 2 ? release_without_answer(s.lock) : 0;
        if (s.rank == 2)
            resume_node(&shared->turns, 0);
        CHECK(rc == 0);
        CHECK(use_in_turn(s.lock) == 0);
        CHECK_OK(cluster_meet());
    }
    return setting_close(&s);
}

/* After a release without an answer, the lock becomes usable although a read from another node is in flight:
 * the read cannot change the lock. */
static int read_does_not_count(struct remo_node *node, void *ctx) {
    struct setting s;
    uint64_t word;
    (void)ctx;
    if (setting_open(node, &s) != 0)
        return 1;
    lock_close(&s);
    if (s.rank != PAUSED && open_of_two(node, &s.lock) != 0)
        return 1;
    if (s.lock)
        CHECK(use_in_turn(s.lock) == 0); /* connects */
    if (s.rank == 2)
        CHECK_OK(remo_region_read(s.data, PAUSED, 0, &word, 8, NULL));
    CHECK_OK(cluster_meet());
    if (s.rank == 2) {
        pause_node(&shared->turns, PAUSED);
        CHECK_CODE(remo_region_read(s.data, PAUSED, 0, &word, 8, NULL), -ETIMEDOUT);
        int rc = release_without_answer(s.lock);
        resume_node(&shared->turns, 0);
        CHECK(rc == 0);
        CHECK(use_in_turn(s.lock) == 0);
        resume_node(&shared->turns, PAUSED);
    }
    return setting_close(&s);
}

/* A node closes the lock with its release in flight, while the home pauses. */
static int closed_with_release_in_flight(struct remo_node *node, void *ctx) {
    struct setting s;
    (void)ctx;
    if (setting_open(node, &s) != 0)
        return 1;
    CHECK(use_in_turn(s.lock) == 0); /* connects */
    CHECK_OK(cluster_meet());
    if (s.rank == 2) {
        int rc = release_without_answer(s.lock);
        lock_close(&s);
        resume_node(&shared->turns, 0);
        CHECK(rc == 0);
    } else {
        CHECK(use_in_turn(s.lock) == 0);
    }
    return setting_close(&s);
}

static void setup(void) {
    memset(shared, 0, sizeof *shared);
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(held_until_placed, NODES, .op_timeout_ns = 5 * SECOND, .only_on = "ofi"),
        CLUSTER_TEST(released_with_loss, NODES, .op_timeout_ns = 5 * SECOND, .only_on = "ofi"),
        CLUSTER_TEST(closed_while_held, NODES, .op_timeout_ns = 5 * SECOND, .only_on = "ofi"),
        CLUSTER_TEST(closed_with_write_in_flight, NODES, .op_timeout_ns = 5 * SECOND, .only_on = "ofi"),
        CLUSTER_TEST(closed_with_release_in_flight, NODES, .op_timeout_ns = 3 * SECOND, .only_on = "ofi"),
        CLUSTER_TEST(read_does_not_count, NODES, .op_timeout_ns = 3 * SECOND, .only_on = "ofi"),
        CLUSTER_TEST(released_late, NODES, .op_timeout_ns = SECOND, .only_on = "ofi"),
        {0},
    };
    shared = cluster_shared(sizeof *shared);
    return cluster_main(argc, argv, tests, setup);
}
