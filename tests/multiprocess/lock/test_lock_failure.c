/* test_lock_failure.c - the failure of holders, waiters and homes of locks at any moment, a home that
 * pauses, and nodes that leave. */
#include "lock_common.h"

#include <stdlib.h>

static void kill_now(uint32_t rank) {
    atomic_store(&shared->killed_at, cluster_now_ns());
    if (cluster_kill(rank) != 0)
        abort();
}

static int notified_in_time(struct remo_node *node, const char *what) {
    uint64_t after_ns = cluster_now_ns() - atomic_load(&shared->killed_at);
    printf("     node %u: %s %.1f ms after the kill\n", remo_node_rank(node), what, (double)after_ns / 1e6);
    CHECK(in_time(after_ns, 100 * MS));
    return 0;
}

/* Try until the home has recovered the lock of the failed node. */
static int try_until_recovered(struct remo_lock *lock, uint32_t index) {
    int rc = remo_lock_acquire(lock, index, 0);
    for (uint32_t i = 0; rc == -ETIMEDOUT && i < 100000; i++) {
        cluster_sleep_ms(1);
        rc = remo_lock_acquire(lock, index, 0);
    }
    return rc;
}

/* Node 3 fails while it holds the lock; 1 and 2 wait, 0 is the home. The next holder repairs the state. */
static int owner_killed(struct remo_node *node, void *ctx) {
    struct remo_lock *lock;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    if (open_table(node, 4, 0x1, &lock) != 0)
        return 1;
    if (rank == 3) {
        CHECK_OK(remo_lock_acquire(lock, 0, 100 * SECOND));
        CHECK_OK(remo_lock_acquire(lock, 1, 100 * SECOND));
        CHECK_OK(remo_lock_acquire(lock, 3, 100 * SECOND));
        begin_turn(&shared->turns, 1);
        for (;;)
            cluster_sleep_ms(1000);
    }
    CHECK_OK(reach_turn(&shared->turns, 1));
    if (rank == 0) {
        cluster_sleep_ms(30); /* the other nodes wait by now */
        kill_now(3);
    } else {
        int rc = remo_lock_acquire(lock, rank - 1, 100 * SECOND);
        CHECK_CODE(rc, -EOWNERDEAD);
        CHECK(strstr(remo_last_error(), "remo_lock_consistent"));
        if (notified_in_time(node, "has the lock") != 0)
            return 1;
        CHECK_CODE(remo_lock_acquire(lock, rank - 1, 0), -EDEADLK);
        if (rank == 1)
            CHECK_OK(remo_lock_consistent(lock, 0));
        CHECK_OK(remo_lock_release(lock, rank - 1, REMO_FENCE_NONE));
    }
    CHECK_OK(cluster_meet());
    CHECK_OK(remo_lock_acquire(lock, 0, 100 * SECOND));
    CHECK_SENTENCE(remo_lock_consistent(lock, 0), -EINVAL, "needs no repair");
    CHECK_OK(remo_lock_release(lock, 0, REMO_FENCE_NONE));
    for (uint32_t i = 0; i < 3; i++)
        CHECK_SENTENCE(remo_lock_acquire(lock, 1, 100 * SECOND), -ENOTRECOVERABLE, /* on all nodes, in turn */
                       "without remo_lock_consistent");
    CHECK_OK(remo_lock_acquire(lock, 2, 100 * SECOND)); /* never used before */
    CHECK_OK(remo_lock_release(lock, 2, REMO_FENCE_NONE));
    CHECK_OK(cluster_meet());
    if (rank == 2) { /* no node waited for this one, which the home recovers after locks 0 and 1 */
        CHECK_CODE(try_until_recovered(lock, 3), -EOWNERDEAD);
        CHECK_OK(remo_lock_consistent(lock, 3));
        CHECK_OK(remo_lock_release(lock, 3, REMO_FENCE_NONE));
        CHECK_OK(remo_lock_acquire(lock, 3, 0));
        CHECK_OK(remo_lock_release(lock, 3, REMO_FENCE_NONE));
    }
    CHECK_OK(cluster_meet());
    CHECK_OK(check_quiet(lock));
    remo_lock_close(lock);
    return 0;
}

/* A recovery changes no memory beyond the last lock. There the home has its grant words; this one has the
 * form of a lock with an orphaned ticket. */
static int recovery_ends_at_last_lock(struct remo_node *node, void *ctx) {
    struct remo_lock *lock;
    (void)ctx;
    if (open_table(node, 1, 0x1, &lock) != 0)
        return 1;
    if (remo_node_rank(node) == 1) {
        CHECK_OK(remo_lock_acquire(lock, 0, 100 * SECOND));
        begin_turn(&shared->turns, 1);
        for (;;)
            cluster_sleep_ms(1000);
    }
    CHECK_OK(reach_turn(&shared->turns, 1));
    CHECK(lock->grants->own == lock->words->own + lock->stride);
    remo__store(lock->grants->own, REMO__LOCK_DRAW);
    kill_now(1);
    CHECK_CODE(remo_lock_acquire(lock, 0, 100 * SECOND), -EOWNERDEAD);
    CHECK_EQUAL(remo__load(lock->grants->own), REMO__LOCK_DRAW);
    CHECK_OK(remo_lock_consistent(lock, 0));
    CHECK_OK(remo_lock_release(lock, 0, REMO_FENCE_NONE));
    remo_lock_close(lock);
    return 0;
}

/* The repairing node fails too, after remo_lock_consistent and before the release: the next holder gets
 * -EOWNERDEAD again. */
static int repairer_killed(struct remo_node *node, void *ctx) {
    struct remo_lock *lock;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    if (open_table(node, 1, 0x1, &lock) != 0)
        return 1;
    for (uint32_t dies = 3; dies > 1; dies--) {
        if (rank == dies) {
            CHECK_OK(dies == 3 ? 0 : reach_turn(&shared->turns, 3));
            CHECK_CODE(remo_lock_acquire(lock, 0, 100 * SECOND), dies == 3 ? 0 : -EOWNERDEAD);
            if (dies == 2)
                CHECK_OK(remo_lock_consistent(lock, 0));
            begin_turn(&shared->turns, dies);
            for (;;)
                cluster_sleep_ms(1000);
        }
        if (rank == 0) {
            CHECK_OK(reach_turn(&shared->turns, dies));
            kill_now(dies);
        }
    }
    if (rank == 1) {
        CHECK_OK(reach_turn(&shared->turns, 2));
        CHECK_CODE(remo_lock_acquire(lock, 0, 100 * SECOND), -EOWNERDEAD);
        CHECK_OK(remo_lock_consistent(lock, 0));
        CHECK_OK(remo_lock_release(lock, 0, REMO_FENCE_NONE));
        CHECK_OK(remo_lock_acquire(lock, 0, 100 * SECOND));
        CHECK_OK(remo_lock_release(lock, 0, REMO_FENCE_NONE));
    }
    CHECK_OK(cluster_meet());
    CHECK_OK(check_quiet(lock));
    remo_lock_close(lock);
    return 0;
}

/* 1 holds, 3 waits and fails, 2 waits behind it: the ticket of 3 is skipped, without -EOWNERDEAD. */
static int waiter_killed(struct remo_node *node, void *ctx) {
    struct remo_lock *lock;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    if (open_table(node, 1, 0x1, &lock) != 0)
        return 1;
    if (rank == 1) {
        CHECK_OK(remo_lock_acquire(lock, 0, 100 * SECOND));
        begin_turn(&shared->turns, 3);
        CHECK_OK(reach_turn(&shared->turns, 1));
        CHECK_OK(remo_lock_release(lock, 0, REMO_FENCE_NONE));
    } else if (rank > 1) {
        CHECK_OK(reach_turn(&shared->turns, rank));
        struct next next;
        CHECK_OK(start_next(&next, lock, rank == 3 ? 2 : 4));
        CHECK_OK(remo_lock_acquire(lock, 0, 100 * SECOND));
        pthread_join(next.thread, NULL);
        CHECK_OK(notified_in_time(node, "has the lock"));
        CHECK_OK(remo_lock_release(lock, 0, REMO_FENCE_NONE));
    } else {
        CHECK_OK(reach_turn(&shared->turns, 4));
        kill_now(3);
        /* Nodes 1, 3, 2 drew tickets 0, 1, 2. Until SKIP is set, a release could grant ticket 1. */
        const char *queue_word = lock->words->own + 8 * remo__lock_queue_word(lock, 1);
        while (!(remo__load(queue_word) & REMO__QUEUE_WORD_SKIP))
            cluster_sleep_ms(1);
        begin_turn(&shared->turns, 1);
    }
    CHECK_OK(cluster_meet());
    CHECK_OK(check_quiet(lock));
    remo_lock_close(lock);
    return 0;
}

static int home_killed(struct remo_node *node, void *ctx) {
    struct remo_lock *lock;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    if (open_table(node, 2, 0x9, &lock) != 0) /* lock 0 at node 0, lock 1 at node 3 */
        return 1;
    if (rank == 1)
        CHECK_OK(remo_lock_acquire(lock, 1, 100 * SECOND));
    CHECK_OK(cluster_meet());
    if (rank == 3)
        for (;;)
            cluster_sleep_ms(1000);
    if (rank == 0) {
        cluster_sleep_ms(30);
        kill_now(3);
    } else if (rank == 2) {
        CHECK_CODE(remo_lock_acquire(lock, 1, 100 * SECOND), -EHOSTDOWN);
        CHECK_OK(notified_in_time(node, "detects the failure of the home"));
    }
    cluster_await_cut_off(node, 3);
    if (rank == 1)
        CHECK_CODE(remo_lock_release(lock, 1, REMO_FENCE_NONE), -EHOSTDOWN);
    CHECK_CODE(remo_lock_acquire(lock, 1, SECOND), -EHOSTDOWN);
    CHECK_CODE(remo_lock_acquire(lock, 1, 0), -EHOSTDOWN);
    CHECK_CODE(remo_lock_release(lock, 1, REMO_FENCE_NONE), -EPERM);
    CHECK_OK(remo_lock_acquire(lock, 0, 100 * SECOND)); /* the other home is up */
    CHECK_OK(remo_lock_release(lock, 0, REMO_FENCE_NONE));
    CHECK_OK(cluster_meet());
    remo_lock_close(lock);
    return 0;
}

/* ---- failures at any moment ---- */

/* Both words of a block are equal whenever the lock is free. A holder that failed in between leaves them
 * different, by its own step at most. */
static int repair(struct worker *worker, uint32_t index, uint64_t *largest) {
    uint64_t offset = 1024ull * index, first, last;
    atomic_store(&shared->held[index], 0);
    CHECK_OK(remo_region_read(worker->data, 0, offset, &first, 8, NULL));
    CHECK_OK(remo_region_read(worker->data, 0, offset + 800, &last, 8, NULL));
    CHECK(first == last || first == last + 1);
    *largest = first;
    CHECK_OK(remo_region_write(worker->data, 0, offset + 800, &first, 8, 0, NULL));
    return 0;
}

static int work_among_deaths(struct worker *worker) {
    struct remo__random random;
    uint64_t largest;
    remo__random_seed(&random, worker->seed);
    while (!atomic_load(&shared->stop)) {
        uint32_t index = (uint32_t)remo__random_below(&random, worker->lock->count);
        bool patient = remo__random_below(&random, 2) == 0;
        int rc =
            remo_lock_acquire(worker->lock, index,
                              patient ? 100 * SECOND : remo__random_below(&random, worker->timeout_max_ns));
        if (rc == -ETIMEDOUT && !patient)
            continue;
        CHECK(rc == 0 || rc == -EOWNERDEAD);
        worker->missed += rc == -EOWNERDEAD;
        if (rc == -EOWNERDEAD) {
            if (repair(worker, index, &largest) != 0)
                return 1;
            CHECK_OK(remo_lock_consistent(worker->lock, index));
        }
        if (add_one(worker, index, 0) != 0)
            return 1;
        CHECK_OK(remo_lock_release(worker->lock, index, REMO_FENCE_THREAD));
        worker->got++;
    }
    return 0;
}

static void *work_thread(void *ctx) {
    struct worker *worker = ctx;
    worker->result = work_among_deaths(worker);
    return NULL;
}

static int kill_the_last(struct remo_node *node) {
    struct remo__random random;
    remo__random_seed(&random, cluster_now_ns());
    for (uint32_t victim = remo_node_size(node) - 1; victim > 1; victim--) {
        cluster_sleep_ms(5 + (uint32_t)remo__random_below(&random, 20));
        for (uint64_t i = remo__random_below(&random, 1000000); i > 0; i--)
            __asm__ volatile("");
        kill_now(victim);
    }
    cluster_sleep_ms(60);
    atomic_store(&shared->stop, 1);
    return 0;
}

static int killed_anywhere(struct remo_node *node, void *ctx) {
    struct worker workers[2], first = {.node = node, .timeout_max_ns = is_shm(node) ? 100000 : 2 * MS};
    uint32_t rank = remo_node_rank(node);
    pthread_t threads[2];
    (void)ctx;
    CHECK_OK(remo_region_open(remo_node_root(node), "data", 1024 * 16, NULL, &first.data));
    if (open_table(node, 3, 0x3, &first.lock) != 0)
        return 1;
    for (uint32_t i = 0; i < 2; i++) {
        workers[i] = first;
        workers[i].seed = cluster_now_ns() + rank * 100 + i;
        CHECK(pthread_create(&threads[i], NULL, work_thread, &workers[i]) == 0);
    }
    if (rank == 0)
        CHECK_OK(kill_the_last(node));
    for (uint32_t i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        CHECK_OK(workers[i].result);
    }
    CHECK_OK(cluster_meet());
    for (uint32_t index = 0; index < 3; index++) {
        int rc = remo_lock_acquire(first.lock, index, 100 * SECOND);
        CHECK(rc == 0 || rc == -EOWNERDEAD);
        if (rc != 0)
            CHECK_OK(remo_lock_consistent(first.lock, index));
        CHECK_OK(remo_lock_release(first.lock, index, REMO_FENCE_NONE));
    }
    CHECK_OK(cluster_meet());
    CHECK_OK(check_quiet(first.lock));
    CHECK_OK(cluster_meet());
    remo_lock_close(first.lock);
    remo_region_close(first.data);
    return 0;
}

/* A node closes the table; its skipped tickets are skipped. */
static int leaver_is_passed_over(struct remo_node *node, void *ctx) {
    struct remo_lock *lock;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    if (open_table(node, 1, 0x1, &lock) != 0)
        return 1;
    if (rank == 1)
        CHECK_OK(remo_lock_acquire(lock, 0, 100 * SECOND));
    CHECK_OK(cluster_meet());
    if (rank == 2) {
        CHECK_CODE(remo_lock_acquire(lock, 0, 10 * MS), -ETIMEDOUT);
        remo_lock_close(lock);
        lock = NULL;
    }
    CHECK_OK(cluster_meet());
    if (rank == 1)
        CHECK_OK(remo_lock_release(lock, 0, REMO_FENCE_NONE));
    if (rank == 0)
        CHECK_OK(remo_lock_acquire(lock, 0, 100 * SECOND));
    if (rank == 0)
        CHECK_OK(remo_lock_release(lock, 0, REMO_FENCE_NONE));
    CHECK_OK(cluster_meet());
    if (rank == 0)
        CHECK_OK(check_quiet(lock));
    remo_lock_close(lock);
    return 0;
}

/* ---- a home that pauses ---- */

/* Acquire the lock while its home, node 0, is paused. Returns as remo_lock_acquire. */
static int acquire_from_paused(struct remo_node *node, struct remo_lock *lock) {
    uint64_t before = node->op_timeout_ns;
    pause_node(&shared->turns, 0);
    node->op_timeout_ns = 200 * MS;
    int rc = remo_lock_acquire(lock, 0, 100 * SECOND);
    node->op_timeout_ns = before;
    resume_node(&shared->turns, 0);
    return rc;
}

/* The acquire of node 1 times out with unknown outcome: the home draws the ticket when it resumes. No node
 * waits for that ticket without end. */
static int home_that_stalls(struct remo_node *node, void *ctx) {
    struct remo_lock *lock;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    record_process(&shared->turns, rank);
    if (open_table(node, 1, 0x1, &lock) != 0)
        return 1;
    for (uint32_t round = 0; round < 3; round++) {
        CHECK_OK(remo_lock_acquire(lock, 0, 100 * SECOND));
        CHECK_OK(remo_lock_release(lock, 0, REMO_FENCE_NONE));
        CHECK_OK(cluster_meet());
        if (rank == 1)
            CHECK_CODE(acquire_from_paused(node, lock), -ETIMEDOUT);
        CHECK_OK(cluster_meet());
        int rc = remo_lock_acquire(lock, 0, 100 * SECOND);
        CHECK(rc == 0 || rc == -EOWNERDEAD); /* the orphaned ticket may have been served */
        if (rc != 0)
            CHECK_OK(remo_lock_consistent(lock, 0));
        CHECK_OK(remo_lock_release(lock, 0, REMO_FENCE_NONE));
        CHECK_OK(cluster_meet());
    }
    CHECK_OK(check_quiet(lock));
    remo_lock_close(lock);
    return 0;
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(owner_killed, 4),
        CLUSTER_TEST(recovery_ends_at_last_lock, 2),
        CLUSTER_TEST(repairer_killed, 4),
        CLUSTER_TEST(waiter_killed, 4),
        CLUSTER_TEST(home_killed, 4),
        CLUSTER_TEST(killed_anywhere, 4),
        CLUSTER_TEST(leaver_is_passed_over, 3),
        CLUSTER_TEST(home_that_stalls, 3, .only_on = "ofi"),
        {0},
    };
    return lock_main(argc, argv, tests);
}
