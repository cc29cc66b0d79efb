/* test_lock_cost.c - the network operations of each step of a lock, as its header states them, and the
 * processor time of a wait. */
#include <string.h>

#include "lock_common.h"

#define COST(lock, call, code, atomics) COST_OF(lock, call, code, atomics, 0, 0)
#define COST_OF(lock, call, code, atomics, writes, notifications) \
    CHECK_COST(remo_lock_channel(lock), CHECK_CODE(call, code), 0, writes, atomics, notifications)
/* Of an acquire that another node has granted: without mapped memory, 1 more read. */
#define COST_GRANTED(lock, call, code, atomics, writes) \
    CHECK_COST(remo_lock_channel(lock), CHECK_CODE(call, code), 1 - mapped, writes, atomics, 0)

/* 1 on a mapped fabric: there a grant is no write, and the reset of a queue word is no atomic. */
static uint32_t mapped;

static int uncontended_costs(struct remo_lock *lock, uint32_t rank) {
    if (rank == 1) {
        for (uint32_t i = 0; i < 3; i++) {
            COST(lock, remo_lock_acquire(lock, 0, SECOND), 0, 1);
            COST(lock, remo_lock_release(lock, 0, REMO_FENCE_THREAD), 0, 1);
            COST(lock, remo_lock_acquire(lock, 0, 0), 0, 1); /* this node was the last holder */
            COST(lock, remo_lock_acquire(lock, 0, 0), -EDEADLK, 0);
            COST(lock, remo_lock_release(lock, 0, REMO_FENCE_NONE), 0, 1);
        }
    }
    CHECK_OK(cluster_meet());
    if (rank == 2)
        COST(lock, remo_lock_acquire(lock, 0, 0), 0, 2); /* another node was the last holder */
    CHECK_OK(cluster_meet());
    if (rank == 1) {
        COST(lock, remo_lock_acquire(lock, 0, 0), -ETIMEDOUT, 1);
        COST(lock, remo_lock_acquire(lock, 0, 0), -ETIMEDOUT, 1);
    }
    CHECK_OK(cluster_meet());
    if (rank == 2)
        COST(lock, remo_lock_release(lock, 0, REMO_FENCE_NONE), 0, 1);
    return cluster_meet();
}

static int contended_costs(struct remo_lock *lock, uint32_t rank) {
    if (rank == 2) {
        CHECK_OK(remo_lock_acquire(lock, 0, 100 * SECOND));
        begin_turn(&shared->turns, 1);
        CHECK_OK(reach_turn(&shared->turns, 2));
        COST_OF(lock, remo_lock_release(lock, 0, REMO_FENCE_NONE), 0, 2, 1 - mapped, 1);
    } else if (rank == 1) {
        CHECK_OK(reach_turn(&shared->turns, 1));
        COST(lock, remo_lock_acquire(lock, 0, 20 * MS), -ETIMEDOUT, 3); /* draw, arrive, set SKIP */
        COST(lock, remo_lock_acquire(lock, 0, 20 * MS), -ETIMEDOUT, 2); /* clear SKIP, set SKIP */
        struct next next;
        CHECK_OK(start_next(&next, lock, 2));
        /* clear SKIP, reset the queue word */
        COST_GRANTED(lock, remo_lock_acquire(lock, 0, 100 * SECOND), 0, 2 - mapped, mapped);
        COST(lock, remo_lock_release(lock, 0, REMO_FENCE_NONE), 0, 1);
        pthread_join(next.thread, NULL);
    }
    return cluster_meet();
}

static int handed_over_costs(struct remo_lock *lock, uint32_t rank) {
    begin_turn(&shared->turns, 0);
    CHECK_OK(cluster_meet());
    if (rank == 2) {
        CHECK_OK(remo_lock_acquire(lock, 0, 100 * SECOND));
        begin_turn(&shared->turns, 1);
        CHECK_OK(reach_turn(&shared->turns, 2));
        COST_OF(lock, remo_lock_release(lock, 0, REMO_FENCE_NONE), 0, 2, 1 - mapped,
                1); /* advance, grant; notify */
    } else if (rank == 1) {
        CHECK_OK(reach_turn(&shared->turns, 1));
        struct next next;
        CHECK_OK(start_next(&next, lock, 2));
        /* draw, arrive, reset */
        COST_GRANTED(lock, remo_lock_acquire(lock, 0, 100 * SECOND), 0, 3 - mapped, mapped);
        COST(lock, remo_lock_release(lock, 0, REMO_FENCE_NONE), 0, 1);
        pthread_join(next.thread, NULL);
    }
    return cluster_meet();
}

/* Node 1 reads the queue word of node 2 while it holds the lock. So its release resets that word. */
static int known_costs(struct remo_lock *lock, uint32_t rank) {
    struct next next;
    begin_turn(&shared->turns, 0);
    CHECK_OK(cluster_meet());
    if (rank == 0) {
        CHECK_OK(remo_lock_acquire(lock, 0, 100 * SECOND));
        begin_turn(&shared->turns, 1);
        CHECK_OK(reach_turn(&shared->turns, 3));
        CHECK_OK(remo_lock_release(lock, 0, REMO_FENCE_NONE));
        return cluster_meet();
    }
    CHECK_OK(reach_turn(&shared->turns, rank));
    CHECK_OK(start_next(&next, lock, rank + 1));
    if (rank == 1) {
        COST_GRANTED(lock, remo_lock_acquire(lock, 0, 100 * SECOND), 0, 3 - mapped, mapped);
        if (!mapped)
            CHECK_OK(remo_ack_wait(&lock->aheads[0].read, 100 * SECOND));
        COST_OF(lock, remo_lock_release(lock, 0, REMO_FENCE_NONE), 0, 2, 1 - mapped, 1);
    } else {
        COST_GRANTED(lock, remo_lock_acquire(lock, 0, 100 * SECOND), 0, 2,
                     mapped); /* no reset by an atomic */
        COST(lock, remo_lock_release(lock, 0, REMO_FENCE_NONE), 0, 1);
    }
    pthread_join(next.thread, NULL);
    return cluster_meet();
}

static int costs(struct remo_node *node, void *ctx) {
    struct remo_lock *lock;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    mapped = strcmp(remo_node_fabric(node), "shm") == 0;
    if (open_table(node, 2, 0x1, &lock) != 0)
        return 1;
    CHECK_OK(uncontended_costs(lock, rank));
    CHECK_OK(contended_costs(lock, rank));
    CHECK_OK(handed_over_costs(lock, rank));
    CHECK_OK(known_costs(lock, rank));
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
        uint64_t before = cluster_processor_ns(), begin = cluster_now_ns();
        CHECK_OK(remo_lock_acquire(lock, 0, 100 * SECOND));
        CHECK(slept_through(cluster_processor_ns() - before, cluster_now_ns() - begin, 0.04));
        CHECK_OK(remo_lock_release(lock, 0, REMO_FENCE_NONE));
    }
    CHECK_OK(cluster_meet());
    remo_lock_close(lock);
    return 0;
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(costs, 3),
        CLUSTER_TEST(waiting_is_free, 2),
        {0},
    };
    return lock_main(argc, argv, tests);
}
