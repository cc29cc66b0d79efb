/* lock_common.h - functions that the tests of locks share: opening a table, steps, and threads that add to
 * words under a lock. */
#pragma once

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "../../support/cluster.h"
#include "base/random.h"
#include "fabric/access.h"
#include "objects/lock/lock.h"
#include "../../support/turns.h"

#define NODES_MAX 8u
#define MS 1000000ull

struct shared {
    struct turns turns;
    _Atomic uint32_t held[16]; /* number of holders now: at most one */
    _Atomic uint32_t log_count;
    _Atomic uint32_t log[4096]; /* the acquirers, in order */
    _Atomic uint64_t killed_at, notified_at[NODES_MAX];
    _Atomic uint32_t stop;
};

extern struct shared *shared; /* of all nodes */

int is_shm(struct remo_node *node);
/* Open a table of `count` locks at `homes` (0: the first participant), and wait for all nodes. */
int open_table(struct remo_node *node, uint32_t count, uint64_t homes, struct remo_lock **ret_lock);
/* Check that no thread of this node is counted as a waiter, that each lock at this home is free, without a
 * ticket, and that all its queue words are 0. */
int check_quiet(const struct remo_lock *lock);
/* Run the tests, each with cleared shared memory. */
int lock_main(int argc, char **argv, const struct cluster_test *tests);

/* A thread that begins the next step of the test as soon as this node waits for the lock. */
struct next {
    struct remo_lock *lock;
    uint32_t turn;
    pthread_t thread;
};

int start_next(struct next *next, struct remo_lock *lock, uint32_t turn);

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

int run_workers(void *(*body)(void *), struct worker *workers, uint32_t count);
/* Add 1 to words 0 and 100 of lock `index`'s block at `home`, by reads and writes that are not atomic. */
int add_one(struct worker *worker, uint32_t index, uint32_t home);
