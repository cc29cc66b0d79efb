/* test_lock.c - locks between nodes and threads without failures: exclusion, order, bounded hand-over,
 * timeouts at any moment, wrap-around of tickets, and bad arguments. */
#include "lock_common.h"

#include <sched.h>

static int add_many(struct worker *worker) {
    struct remo__random random;
    remo__random_seed(&random, worker->seed);
    for (uint32_t i = 0; i < worker->rounds; i++) {
        uint32_t index = (uint32_t)remo__random_below(&random, worker->lock->count);
        uint32_t home = worker->fence == REMO_FENCE_PAIR ? remo_lock_home(worker->lock, index) : 0;
        CHECK_OK(remo_lock_acquire(worker->lock, index, 100 * SECOND));
        if (add_one(worker, index, home) != 0)
            return 1;
        CHECK_OK(remo_lock_release(worker->lock, index, worker->fence));
    }
    return 0;
}

static void *add_many_thread(void *ctx) {
    struct worker *worker = ctx;
    worker->result = add_many(worker);
    return NULL;
}

static int sum_up(struct worker *worker, uint64_t expected) {
    uint64_t sum = 0, value;
    for (uint32_t index = 0; index < worker->lock->count; index++) {
        uint32_t home = worker->fence == REMO_FENCE_PAIR ? remo_lock_home(worker->lock, index) : 0;
        CHECK_OK(remo_region_read(worker->data, home, 1024ull * index, &value, 8, NULL));
        sum += value;
    }
    CHECK_EQUAL(sum, expected);
    return 0;
}

static int exclude(struct remo_node *node, uint32_t locks, enum remo_fence_scope fence, uint32_t threads) {
    struct worker workers[16], first = {.node = node, .fence = fence, .rounds = is_shm(node) ? 2000 : 150};
    CHECK_OK(remo_region_open(remo_node_root(node), "data", 1024 * 16, NULL, &first.data));
    if (open_table(node, locks, locks > 1 ? 0xe : 0x2, &first.lock) != 0)
        return 1;
    for (uint32_t i = 0; i < threads; i++) {
        workers[i] = first;
        workers[i].seed = remo_node_rank(node) * 100 + i;
    }
    CHECK_OK(run_workers(add_many_thread, workers, threads));
    CHECK_OK(cluster_meet());
    CHECK_OK(sum_up(&first, (uint64_t)remo_node_size(node) * threads * first.rounds));
    CHECK_OK(check_quiet(first.lock));
    CHECK_OK(cluster_meet());
    remo_lock_close(first.lock);
    remo_region_close(first.data);
    return 0;
}

static int one_lock_excludes(struct remo_node *node, void *ctx) {
    (void)ctx;
    return exclude(node, 1, REMO_FENCE_THREAD, 1);
}

static int threads_exclude(struct remo_node *node, void *ctx) {
    (void)ctx;
    return exclude(node, 2, REMO_FENCE_THREAD, 3);
}

/* A write at the home needs only a pair fence, also when the lock goes to another thread of the node. */
static int pair_fence_is_enough(struct remo_node *node, void *ctx) {
    (void)ctx;
    return exclude(node, 3, REMO_FENCE_PAIR, 3);
}

/* ---- order ---- */

static int nodes_in_order(struct remo_node *node, void *ctx) {
    struct remo_lock *lock;
    uint32_t rank = remo_node_rank(node), nodes = remo_node_size(node);
    (void)ctx;
    if (open_table(node, 1, 0x2, &lock) != 0)
        return 1;
    for (uint32_t round = 0; round < 5; round++) {
        if (rank == 0) {
            CHECK_OK(remo_lock_acquire(lock, 0, 100 * SECOND));
            atomic_store(&shared->log_count, 0);
            begin_turn(&shared->turns, 1);
            CHECK_OK(reach_turn(&shared->turns, nodes));
            CHECK_OK(remo_lock_release(lock, 0, REMO_FENCE_NONE));
        } else {
            struct next next;
            uint32_t place = 1 + (rank - 1 + round) % (nodes - 1);
            CHECK_OK(reach_turn(&shared->turns, place));
            CHECK_OK(start_next(&next, lock, place + 1));
            CHECK_OK(remo_lock_acquire(lock, 0, 100 * SECOND));
            CHECK_EQUAL(atomic_fetch_add(&shared->log_count, 1), place - 1);
            pthread_join(next.thread, NULL);
            CHECK_OK(remo_lock_release(lock, 0, REMO_FENCE_NONE));
        }
        CHECK_OK(cluster_meet());
    }
    CHECK_OK(check_quiet(lock));
    remo_lock_close(lock);
    return 0;
}

static void *take_in_turn(void *ctx) {
    struct worker *worker = ctx;
    worker->result = remo_lock_acquire(worker->lock, 0, 100 * SECOND);
    atomic_store(&shared->log[atomic_fetch_add(&shared->log_count, 1)], worker->index);
    worker->result |= remo_lock_release(worker->lock, 0, REMO_FENCE_NONE);
    return NULL;
}

static int threads_in_order(struct remo_node *node, void *ctx) {
    struct worker workers[8];
    pthread_t threads[8];
    struct remo_lock *lock;
    (void)ctx;
    if (open_table(node, 1, 0, &lock) != 0)
        return 1;
    if (remo_node_rank(node) == 1) {
        CHECK_OK(remo_lock_acquire(lock, 0, 100 * SECOND));
        for (uint32_t i = 0; i < 8; i++) {
            workers[i] = (struct worker){.lock = lock, .index = i};
            CHECK(pthread_create(&threads[i], NULL, take_in_turn, &workers[i]) == 0);
            while (atomic_load(&lock->locals[0].waiters) != i + 1)
                sched_yield();
        }
        struct remo_stats before, after;
        remo_channel_stats(remo_lock_channel(lock), &before);
        CHECK_OK(remo_lock_release(lock, 0, REMO_FENCE_NONE));
        for (uint32_t i = 0; i < 8; i++) {
            pthread_join(threads[i], NULL);
            CHECK_OK(workers[i].result);
            CHECK_EQUAL(shared->log[i], i);
        }
        remo_channel_stats(remo_lock_channel(lock), &after);
        CHECK_EQUAL(after.atomics - before.atomics,
                    1); /* the release by the last thread: a hand-over costs nothing */
    }
    CHECK_OK(cluster_meet());
    remo_lock_close(lock);
    return 0;
}

/* ---- sleeping threads ---- */

static _Atomic uint32_t threads_fences;

bool __real_remo__threads_fence(void);
bool __wrap_remo__threads_fence(void);
/* The linker replaces the library's calls by this one (meson.build). */
bool __wrap_remo__threads_fence(void) {
    bool is_done = __real_remo__threads_fence();
    atomic_fetch_add(&threads_fences, 1);
    return is_done;
}

/* A thread that waits for a lock of its node executes the fence for the releasing thread before it sleeps.
 * Without the fence a wake-up may be lost, and then the thread sleeps for REMO__POLL_NS_MAX. */
static int sleepers_fence(struct remo_node *node, void *ctx) {
    struct worker worker = {.index = 0};
    pthread_t thread;
    (void)ctx;
    if (open_table(node, 1, 0, &worker.lock) != 0)
        return 1;
    atomic_store(&threads_fences, 0);
    CHECK_OK(remo_lock_acquire(worker.lock, 0, 100 * SECOND));
    CHECK(pthread_create(&thread, NULL, take_in_turn, &worker) == 0);
    while (atomic_load(&threads_fences) == 0)
        sched_yield();
    CHECK_OK(remo_lock_release(worker.lock, 0, REMO_FENCE_NONE));
    pthread_join(thread, NULL);
    CHECK_OK(worker.result);
    CHECK_OK(check_quiet(worker.lock));
    remo_lock_close(worker.lock);
    return 0;
}

/* ---- bounded hand-over ---- */

static void *hammer(void *ctx) {
    struct worker *worker = ctx;
    while (!atomic_load(&shared->stop) && worker->result == 0) {
        worker->result = remo_lock_acquire(worker->lock, 0, 100 * SECOND);
        worker->got++;
        for (volatile int i = 0; i < 200; i++)
            continue;
        if (worker->result == 0)
            worker->result = remo_lock_release(worker->lock, 0, REMO_FENCE_NONE);
    }
    return NULL;
}

/* The threads of one node acquire the lock all the time. Another node gets it again and again, each time
 * after at most REMO_LOCK_HANDOVERS_MAX hand-overs. */
static int crowd_starves_nobody(struct remo_node *node, void *ctx) {
    struct worker workers[4];
    struct remo_lock *lock;
    (void)ctx;
    if (open_table(node, 1, 0x2, &lock) != 0)
        return 1;
    if (remo_node_rank(node) == 0) {
        for (uint32_t i = 0; i < 4; i++)
            workers[i] = (struct worker){.lock = lock};
        CHECK_OK(run_workers(hammer, workers, 4));
        uint64_t got = 0;
        struct remo_stats stats;
        for (uint32_t i = 0; i < 4; i++)
            got += workers[i].got;
        remo_channel_stats(remo_lock_channel(lock), &stats);
        CHECK(stats.atomics * (1 + REMO_LOCK_HANDOVERS_MAX) >= 2 * got);
    } else {
        for (uint32_t i = 0; i < (is_shm(node) ? 500 : 100); i++) {
            CHECK_OK(remo_lock_acquire(lock, 0, 100 * SECOND));
            CHECK_OK(remo_lock_release(lock, 0, REMO_FENCE_NONE));
        }
        atomic_store(&shared->stop, 1);
    }
    CHECK_OK(cluster_meet());
    CHECK_OK(check_quiet(lock));
    remo_lock_close(lock);
    return 0;
}

/* ---- timeouts ---- */

static int give_up_at_random(struct worker *worker) {
    struct remo__random random;
    remo__random_seed(&random, worker->seed);
    for (uint32_t i = 0; i < worker->rounds; i++) {
        uint32_t index = (uint32_t)remo__random_below(&random, worker->lock->count);
        uint64_t timeout_ns =
            remo__random_below(&random, 8) == 0 ? 0 : remo__random_below(&random, worker->timeout_max_ns);
        int rc = remo_lock_acquire(worker->lock, index, timeout_ns);
        CHECK(rc == 0 || rc == -ETIMEDOUT);
        worker->missed += rc != 0;
        worker->got += rc == 0;
        if (rc != 0)
            continue;
        if (add_one(worker, index, 0) != 0)
            return 1;
        if (remo__random_below(&random, 16) == 0)
            cluster_sleep_ms(1);
        CHECK_OK(remo_lock_release(worker->lock, index, REMO_FENCE_THREAD));
    }
    return 0;
}

static void *give_up_thread(void *ctx) {
    struct worker *worker = ctx;
    worker->result = give_up_at_random(worker);
    return NULL;
}

static int timeouts_never_wedge(struct remo_node *node, void *ctx) {
    struct worker workers[2], first = {.node = node,
                                       .rounds = is_shm(node) ? 4000 : 600,
                                       .timeout_max_ns = is_shm(node) ? 300000 : 2 * MS};
    (void)ctx;
    CHECK_OK(remo_region_open(remo_node_root(node), "data", 1024 * 16, NULL, &first.data));
    if (open_table(node, 2, 0x3, &first.lock) != 0)
        return 1;
    for (uint32_t i = 0; i < 2; i++) {
        workers[i] = first;
        workers[i].seed = 7 + remo_node_rank(node) * 100 + i;
    }
    CHECK_OK(run_workers(give_up_thread, workers, 2));
    CHECK(workers[0].missed + workers[1].missed > 0);
    CHECK_OK(cluster_meet());
    for (uint32_t index = 0; index < 2; index++) { /* on every node, so that no skipped ticket is left */
        CHECK_OK(remo_lock_acquire(first.lock, index, 100 * SECOND));
        CHECK_OK(remo_lock_release(first.lock, index, REMO_FENCE_NONE));
    }
    CHECK_OK(cluster_meet());
    CHECK_OK(check_quiet(first.lock));
    CHECK_OK(cluster_meet());
    remo_lock_close(first.lock);
    remo_region_close(first.data);
    return 0;
}

/* ---- wrap-around: the low half of the ticket, the flags above it ---- */

static int serving_wraps_around(struct remo_node *node, void *ctx) {
    struct remo_lock *lock;
    (void)ctx;
    if (open_table(node, 1, 0x1, &lock) != 0)
        return 1;
    if (remo_node_rank(node) == 0)
        remo__store(lock->words->own, UINT64_C(0xffffffe0) << 32 | 0xffe0); /* not used yet */
    CHECK_OK(cluster_meet());
    for (uint32_t i = 0; i < 40; i++) {
        CHECK_OK(remo_lock_acquire(lock, 0, SECOND * 10));
        CHECK_EQUAL(atomic_fetch_add(&shared->held[0], 1), 0);
        CHECK_EQUAL(atomic_fetch_sub(&shared->held[0], 1), 1);
        CHECK_OK(remo_lock_release(lock, 0, REMO_FENCE_NONE));
    }
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 0)
        CHECK_EQUAL(remo__load(lock->words->own), (0xffffffe0u + 80ull) << 32 | ((0xffe0 + 80) & 0xffff));
    CHECK_OK(cluster_meet());
    remo_lock_close(lock);
    return 0;
}

/* ---- bad arguments ---- */

static int refusals(struct remo_node *node, void *ctx) {
    struct remo_lock *lock, *other;
    struct remo_channel *root = remo_node_root(node);
    struct remo_lock_options beyond = {.homes.word[0] = 0x10}, many = {.count = 1u << 25};
    (void)ctx;
    CHECK_SENTENCE(remo_lock_open(root, "bad", &beyond, &lock), -EINVAL, "node 4");
    CHECK_SENTENCE(remo_lock_open(root, "bad", &many, &lock), -EINVAL, "the limit is");
    CHECK_SENTENCE(remo_lock_open(root, "a b", NULL, &lock), -EINVAL, "a b");
    CHECK_CODE(remo_lock_open(NULL, "a", NULL, &lock), -EINVAL);
    if (open_table(node, 3, 0, &lock) != 0)
        return 1;
    CHECK_SENTENCE(remo_lock_acquire(lock, 3, 0), -EINVAL, "from 0 to 2");
    CHECK_SENTENCE(remo_lock_release(lock, 3, REMO_FENCE_NONE), -EINVAL, "from 0 to 2");
    CHECK_SENTENCE(remo_lock_release(lock, 1, REMO_FENCE_NONE), -EPERM, "does not hold it");
    CHECK_SENTENCE(remo_lock_consistent(lock, 1), -EPERM, "does not hold it");
    CHECK_CODE(remo_lock_acquire(NULL, 0, 0), -EINVAL);
    struct remo_lock_options wrong = {.count = 5 + remo_node_rank(node)};
    CHECK_OK(remo_lock_open(root, "wrong", &wrong, &other));
    CHECK_SENTENCE(remo_channel_wait(remo_lock_channel(other), 100 * SECOND), -EPROTO, "wrong");
    CHECK_OK(cluster_meet());
    remo_lock_close(other);
    remo_lock_close(lock);
    remo_lock_close(NULL);
    return 0;
}

/* ---- a thread that acquires its own lock again ---- */

static int deadlocks_with_itself(struct remo_lock *lock, uint32_t index) {
    CHECK_SENTENCE(remo_lock_acquire(lock, index, 0), -EDEADLK, "this thread holds it already");
    CHECK_SENTENCE(remo_lock_acquire(lock, index, SECOND), -EDEADLK, "this thread holds it already");
    CHECK_SENTENCE(remo_lock_acquire(lock, index, REMO_FOREVER), -EDEADLK, "this thread holds it already");
    return 0;
}

static void *try_from_another_thread(void *ctx) {
    struct remo_lock *lock = ctx;
    return (void *)(intptr_t)remo_lock_acquire(lock, 1, 0);
}

static int own_lock_again(struct remo_node *node, void *ctx) {
    struct remo_lock *lock;
    pthread_t thread;
    void *result;
    (void)ctx;
    if (open_table(node, 2, 0, &lock) != 0)
        return 1;
    CHECK_OK(remo_lock_acquire(lock, 0, 100 * SECOND)); /* also on the other node, which may have waited */
    if (deadlocks_with_itself(lock, 0))
        return 1;
    CHECK_SENTENCE(remo_lock_release(lock, 0, (enum remo_fence_scope)4), -EINVAL, "is not a fence scope");
    CHECK_SENTENCE(remo_lock_release(lock, 0, (enum remo_fence_scope) - 1), -EINVAL, "is not a fence scope");
    CHECK_OK(remo_lock_release(lock, 0, REMO_FENCE_NONE));
    CHECK_OK(cluster_meet());
    CHECK_OK(remo_lock_acquire(lock, 1, 100 * SECOND));
    CHECK_EQUAL(pthread_create(&thread, NULL, try_from_another_thread, lock), 0);
    CHECK_EQUAL(pthread_join(thread, &result), 0);
    CHECK_EQUAL(-(intptr_t)result, ETIMEDOUT); /* another thread may wait */
    CHECK_OK(remo_lock_release(lock, 1, REMO_FENCE_NONE));
    CHECK_OK(cluster_meet());
    remo_lock_close(lock);
    return 0;
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(one_lock_excludes, 4),
        CLUSTER_TEST(threads_exclude, 4),
        CLUSTER_TEST(pair_fence_is_enough, 4),
        CLUSTER_TEST(nodes_in_order, 4),
        CLUSTER_TEST(threads_in_order, 2),
        CLUSTER_TEST(sleepers_fence, 1),
        CLUSTER_TEST(crowd_starves_nobody, 2),
        CLUSTER_TEST(timeouts_never_wedge, 3),
        CLUSTER_TEST(serving_wraps_around, 2),
        CLUSTER_TEST(own_lock_again, 2),
        CLUSTER_TEST(refusals, 2),
        {0},
    };
    return lock_main(argc, argv, tests);
}
