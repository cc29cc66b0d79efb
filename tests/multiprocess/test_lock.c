/* test_lock.c - locks between nodes and threads: exclusion, order, bounded hand-over, timeouts at any moment,
 * what each step costs, and the failure of holders, waiters and homes at any moment. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../support/cluster.h"
#include "base/random.h"
#include "fabric/access.h"
#include "objects/lock/lock.h"

#define NODES_MAX 8u
#define MS 1000000ull

static struct shared {
    _Atomic uint32_t turn; /* the step of a test whose steps run one after the other */
    _Atomic uint32_t done;
    _Atomic uint32_t held[16]; /* number of holders now: at most one */
    _Atomic uint32_t log_count;
    _Atomic uint32_t log[4096]; /* the acquirers, in order */
    _Atomic uint64_t killed_at, notified_at[NODES_MAX];
    _Atomic uint32_t stop;
} * shared;

static int is_shm(struct remo_node *node) {
    return strcmp(remo_node_fabric(node), "shm") == 0;
}

static int open_table(struct remo_node *node, uint32_t count, uint64_t homes, struct remo_lock **ret_lock) {
    struct remo_lock_options options = {.count = count, .homes.word[0] = homes};
    CHECK_OK(remo_lock_open(remo_node_root(node), "locks", &options, ret_lock));
    CHECK_OK(remo_channel_wait(remo_lock_channel(*ret_lock), 100 * SECOND));
    return cluster_meet();
}

/* Wait for the step `turn`. */
static int reach_turn(uint32_t turn) {
    while (atomic_load(&shared->turn) != turn)
        cluster_sleep_ms(1);
    return 0;
}

/* A thread that begins the next step of the test as soon as this node waits for the lock. */
struct next {
    struct remo_lock *lock;
    uint32_t turn;
    pthread_t thread;
};

static void *take_next_turn(void *ctx) {
    struct next *next = ctx;
    while (remo__state_kind(atomic_load(&next->lock->locals[0].state)) != REMO__LOCK_WAITING)
        sched_yield();
    atomic_store(&shared->turn, next->turn);
    return NULL;
}

static int start_next(struct next *next, struct remo_lock *lock, uint32_t turn) {
    *next = (struct next){.lock = lock, .turn = turn};
    CHECK(pthread_create(&next->thread, NULL, take_next_turn, next) == 0);
    return 0;
}

/* Check that each lock at this home is free, without a ticket, and that all its queue words are 0. */
static int check_quiet(const struct remo_lock *lock) {
    for (uint32_t i = 0; i < lock->count; i++) {
        const uint64_t *words = (const uint64_t *)(lock->words->own + lock->locals[i].offset);
        if (lock->locals[i].home != lock->rank)
            continue;
        CHECK(remo__word_is_free(remo__load(&words[0])));
        for (uint32_t place = 0; place < lock->places; place++)
            CHECK_EQUAL(remo__load(&words[1 + place]), 0);
    }
    return 0;
}

/* ---- many threads on several nodes ---- */

struct worker {
    struct remo_node *node;
    struct remo_lock *lock;
    struct remo_region *data;
    uint32_t index, rounds;
    enum remo_fence_scope fence;
    uint64_t seed, timeout_max_ns;
    uint64_t got, missed;
    int result;
};

static int run_workers(void *(*body)(void *), struct worker *workers, uint32_t count) {
    pthread_t threads[16];
    for (uint32_t i = 0; i < count; i++)
        CHECK(pthread_create(&threads[i], NULL, body, &workers[i]) == 0);
    int result = 0;
    for (uint32_t i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
        result |= workers[i].result;
    }
    return result;
}

/* Add 1 to words 0 and 100 of lock `index`'s block at `home`, by reads and writes that are not atomic. */
static int add_one(struct worker *worker, uint32_t index, uint32_t home) {
    uint64_t offset = 1024ull * index, first, last;
    CHECK_EQUAL(atomic_fetch_add(&shared->held[index], 1), 0);
    CHECK_OK(remo_region_read(worker->data, home, offset, &first, 8, NULL));
    CHECK_OK(remo_region_read(worker->data, home, offset + 800, &last, 8, NULL));
    CHECK_EQUAL(first, last);
    first++;
    CHECK_OK(remo_region_write(worker->data, home, offset, &first, 8, 0, NULL));
    CHECK_OK(remo_region_write(worker->data, home, offset + 800, &first, 8, 0, NULL));
    CHECK_EQUAL(atomic_fetch_sub(&shared->held[index], 1), 1);
    return 0;
}

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
            atomic_store(&shared->turn, 1);
            CHECK_OK(reach_turn(nodes));
            CHECK_OK(remo_lock_release(lock, 0, REMO_FENCE_NONE));
        } else {
            struct next next;
            uint32_t place = 1 + (rank - 1 + round) % (nodes - 1);
            CHECK_OK(reach_turn(place));
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
            while (atomic_load(&lock->locals[0].queued) != i + 1)
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

/* ---- costs ---- */

#define COST(lock, call, code, atomics, writes) \
    CHECK_COST(remo_lock_channel(lock), CHECK_CODE(call, code), 0, writes, atomics, writes)

static int uncontended_costs(struct remo_lock *lock, uint32_t rank) {
    if (rank == 1) {
        for (uint32_t i = 0; i < 3; i++) {
            COST(lock, remo_lock_acquire(lock, 0, SECOND), 0, 1, 0);
            COST(lock, remo_lock_release(lock, 0, REMO_FENCE_THREAD), 0, 1, 0);
            COST(lock, remo_lock_acquire(lock, 0, 0), 0, 1, 0); /* this node was the last holder */
            COST(lock, remo_lock_acquire(lock, 0, 0), -EDEADLK, 0, 0);
            COST(lock, remo_lock_release(lock, 0, REMO_FENCE_NONE), 0, 1, 0);
        }
    }
    CHECK_OK(cluster_meet());
    if (rank == 2)
        COST(lock, remo_lock_acquire(lock, 0, 0), 0, 2, 0); /* another node was the last holder */
    CHECK_OK(cluster_meet());
    if (rank == 1) {
        COST(lock, remo_lock_acquire(lock, 0, 0), -ETIMEDOUT, 1, 0);
        COST(lock, remo_lock_acquire(lock, 0, 0), -ETIMEDOUT, 1, 0);
    }
    CHECK_OK(cluster_meet());
    if (rank == 2)
        COST(lock, remo_lock_release(lock, 0, REMO_FENCE_NONE), 0, 1, 0);
    return cluster_meet();
}

static int contended_costs(struct remo_lock *lock, uint32_t rank) {
    if (rank == 2) {
        CHECK_OK(remo_lock_acquire(lock, 0, 100 * SECOND));
        atomic_store(&shared->turn, 1);
        CHECK_OK(reach_turn(2));
        COST(lock, remo_lock_release(lock, 0, REMO_FENCE_NONE), 0, 2, 1);
    } else if (rank == 1) {
        CHECK_OK(reach_turn(1));
        COST(lock, remo_lock_acquire(lock, 0, 20 * MS), -ETIMEDOUT, 3, 0); /* draw, arrive, set SKIP */
        COST(lock, remo_lock_acquire(lock, 0, 20 * MS), -ETIMEDOUT, 2, 0); /* clear SKIP, set SKIP */
        struct next next;
        CHECK_OK(start_next(&next, lock, 2));
        COST(lock, remo_lock_acquire(lock, 0, 100 * SECOND), 0, 2, 0); /* clear SKIP, reset the queue word */
        COST(lock, remo_lock_release(lock, 0, REMO_FENCE_NONE), 0, 1, 0);
        pthread_join(next.thread, NULL);
    }
    return cluster_meet();
}

static int handed_over_costs(struct remo_lock *lock, uint32_t rank) {
    atomic_store(&shared->turn, 0);
    CHECK_OK(cluster_meet());
    if (rank == 2) {
        CHECK_OK(remo_lock_acquire(lock, 0, 100 * SECOND));
        atomic_store(&shared->turn, 1);
        CHECK_OK(reach_turn(2));
        COST(lock, remo_lock_release(lock, 0, REMO_FENCE_NONE), 0, 2, 1); /* advance, grant; notify */
    } else if (rank == 1) {
        CHECK_OK(reach_turn(1));
        struct next next;
        CHECK_OK(start_next(&next, lock, 2));
        COST(lock, remo_lock_acquire(lock, 0, 100 * SECOND), 0, 3, 0); /* draw, arrive, reset */
        COST(lock, remo_lock_release(lock, 0, REMO_FENCE_NONE), 0, 1, 0);
        pthread_join(next.thread, NULL);
    }
    return cluster_meet();
}

static int costs(struct remo_node *node, void *ctx) {
    struct remo_lock *lock;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    if (open_table(node, 2, 0x1, &lock) != 0)
        return 1;
    CHECK_OK(uncontended_costs(lock, rank));
    CHECK_OK(contended_costs(lock, rank));
    CHECK_OK(handed_over_costs(lock, rank));
    CHECK_OK(check_quiet(lock));
    remo_lock_close(lock);
    return 0;
}

/* A wait for a lock takes nearly no processor time. */
static int waiting_is_free(struct remo_node *node, void *ctx) {
    struct remo_lock *lock;
    (void)ctx;
    if (open_table(node, 1, 0, &lock) != 0)
        return 1;
    if (remo_node_rank(node) == 0) {
        CHECK_OK(remo_lock_acquire(lock, 0, 100 * SECOND));
        CHECK_OK(cluster_meet());
        cluster_sleep_ms(1000);
        CHECK_OK(remo_lock_release(lock, 0, REMO_FENCE_NONE));
    } else {
        CHECK_OK(cluster_meet());
        uint64_t before = cluster_processor_ns();
        CHECK_OK(remo_lock_acquire(lock, 0, 100 * SECOND));
        CHECK(slept_through(cluster_processor_ns() - before, SECOND, 0.04));
        CHECK_OK(remo_lock_release(lock, 0, REMO_FENCE_NONE));
    }
    CHECK_OK(cluster_meet());
    remo_lock_close(lock);
    return 0;
}

/* ---- failures ---- */

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
        atomic_store(&shared->turn, 1);
        for (;;)
            cluster_sleep_ms(1000);
    }
    CHECK_OK(reach_turn(1));
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
    if (rank == 2) { /* no node waited for this one */
        CHECK_CODE(remo_lock_acquire(lock, 3, 0), -EOWNERDEAD);
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
            CHECK_OK(dies == 3 ? 0 : reach_turn(3));
            CHECK_CODE(remo_lock_acquire(lock, 0, 100 * SECOND), dies == 3 ? 0 : -EOWNERDEAD);
            if (dies == 2)
                CHECK_OK(remo_lock_consistent(lock, 0));
            atomic_store(&shared->turn, dies);
            for (;;)
                cluster_sleep_ms(1000);
        }
        if (rank == 0) {
            CHECK_OK(reach_turn(dies));
            kill_now(dies);
        }
    }
    if (rank == 1) {
        CHECK_OK(reach_turn(2));
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
        atomic_store(&shared->turn, 3);
        CHECK_OK(reach_turn(1));
        CHECK_OK(remo_lock_release(lock, 0, REMO_FENCE_NONE));
    } else if (rank > 1) {
        CHECK_OK(reach_turn(rank));
        struct next next;
        CHECK_OK(start_next(&next, lock, rank == 3 ? 2 : 4));
        CHECK_OK(remo_lock_acquire(lock, 0, 100 * SECOND));
        pthread_join(next.thread, NULL);
        CHECK_OK(notified_in_time(node, "has the lock"));
        CHECK_OK(remo_lock_release(lock, 0, REMO_FENCE_NONE));
    } else {
        CHECK_OK(reach_turn(4));
        kill_now(3);
        /* Nodes 1, 3, 2 drew tickets 0, 1, 2. Until SKIP is set, a release could grant ticket 1. */
        const char *queue_word = lock->words->own + 8 * remo__lock_queue_word(lock, 1);
        while (!(remo__load(queue_word) & REMO__QUEUE_WORD_SKIP))
            cluster_sleep_ms(1);
        atomic_store(&shared->turn, 1);
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
    while (remo_node_peer(node, 3) == REMO_PEER_UP)
        cluster_sleep_ms(1);
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

/* Pause this process. */
static int pause_self(uint32_t ms) {
    pid_t self = getpid(), waker = fork();
    CHECK(waker >= 0);
    if (waker == 0) {
        cluster_sleep_ms(ms);
        kill(self, SIGCONT);
        _exit(0);
    }
    raise(SIGSTOP);
    CHECK(waitpid(waker, NULL, 0) == waker);
    return 0;
}

/* The acquire of node 1 times out with unknown outcome: the home draws the ticket when it resumes. No node
 * waits for that ticket without end. */
static int home_that_stalls(struct remo_node *node, void *ctx) {
    struct remo_lock *lock;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    if (open_table(node, 1, 0x1, &lock) != 0)
        return 1;
    for (uint32_t round = 0; round < 3; round++) {
        CHECK_OK(remo_lock_acquire(lock, 0, 100 * SECOND));
        CHECK_OK(remo_lock_release(lock, 0, REMO_FENCE_NONE));
        CHECK_OK(cluster_meet());
        if (rank == 1)
            cluster_sleep_ms(50);
        int rc = rank == 1 ? remo_lock_acquire(lock, 0, 100 * SECOND) : 0;
        CHECK(rc == -ETIMEDOUT || rc == 0); /* 0: the home paused too late */
        if (rank == 1 && rc == 0)
            CHECK_OK(remo_lock_release(lock, 0, REMO_FENCE_NONE));
        if (rank == 0)
            CHECK_OK(pause_self(3000));
        CHECK_OK(cluster_meet());
        rc = remo_lock_acquire(lock, 0, 100 * SECOND);
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

static void setup(void) {
    memset(shared, 0, sizeof *shared);
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(one_lock_excludes, 4),
        CLUSTER_TEST(threads_exclude, 4),
        CLUSTER_TEST(pair_fence_is_enough, 4),
        CLUSTER_TEST(nodes_in_order, 4),
        CLUSTER_TEST(threads_in_order, 2),
        CLUSTER_TEST(crowd_starves_nobody, 2),
        CLUSTER_TEST(timeouts_never_wedge, 3),
        CLUSTER_TEST(costs, 3),
        CLUSTER_TEST(waiting_is_free, 2),
        CLUSTER_TEST(owner_killed, 4),
        CLUSTER_TEST(repairer_killed, 4),
        CLUSTER_TEST(waiter_killed, 4),
        CLUSTER_TEST(home_killed, 4),
        CLUSTER_TEST(killed_anywhere, 4),
        CLUSTER_TEST(leaver_is_passed_over, 3),
        CLUSTER_TEST(home_that_stalls, 3, .op_timeout_ns = SECOND, .only_on = "ofi"),
        CLUSTER_TEST(serving_wraps_around, 2),
        CLUSTER_TEST(own_lock_again, 2),
        CLUSTER_TEST(refusals, 2),
        {0},
    };
    shared = cluster_shared(sizeof *shared);
    return cluster_main(argc, argv, tests, setup);
}
