/* case_sync.c - lock and barrier. */
#include <errno.h>
#include <remo/barrier.h>
#include <remo/lock.h>
#include <remo/region.h>
#include <string.h>

#include "sim/case.h"
#include "sim/scheduler.h"

#define FOREVER     REMO_FOREVER
#define WORDS       20u           /* more than two lines */
#define DATA_BYTES  (WORDS * 8u)

struct lock_state {
    struct remo_lock *locks[SIM_NODES_MAX];
    struct remo_region *data[SIM_NODES_MAX];
    struct remo_node *nodes[SIM_NODES_MAX];
    uint32_t inside;                     /* live threads that hold the lock */
    int holder;                          /* node, -1: nobody */
    bool torn_by_death;                  /* a holder died inside */
    uint64_t done;                       /* increments in sections that ended */
};

static void open_lock(void *state, struct remo_node *node, uint32_t rank) {
    struct lock_state *s = state;
    s->nodes[rank] = node;
    s->holder = -1;
    sim_opened(remo_lock_open(remo_node_root(node), "lock", NULL, &s->locks[rank]), "open the lock");
    sim_opened(remo_region_open(remo_node_root(node), "data", DATA_BYTES, NULL, &s->data[rank]), "open the data");
    sim_opened(remo_channel_wait(remo_lock_channel(s->locks[rank]), FOREVER), "wait for the lock");
    sim_opened(remo_channel_wait(remo_region_channel(s->data[rank]), FOREVER), "wait for the data");
}

static void enter(struct lock_state *s, uint32_t rank) {
    if (s->holder >= 0 && sim_world->crashed[s->holder]) {
        s->inside = 0;
        s->torn_by_death = true;
    }
    sim_require(s->inside == 0, "two hold the lock: node %d and node %u", s->holder, rank);
    s->inside++;
    s->holder = (int)rank;
}

static void leave(struct lock_state *s) {
    s->inside--;
    s->holder = -1;
}

/* Read all words at `home`, which must be equal, and write them one higher. After a death they may differ: mend them. */
static void increment(struct lock_state *s, uint32_t rank, uint32_t home, bool after_death, bool silent) {
    uint64_t words[WORDS] = {0};
    int rc = remo_region_read(s->data[rank], home, 0, words, sizeof words, NULL);
    if (rc != 0) {
        sim_require(silent, "read: %d", rc);
        return;
    }
    for (uint32_t i = 1; i < WORDS; i++)
        if (words[i] > words[0] && after_death)
            words[0] = words[i];
        else
            sim_require(words[i] == words[0] || after_death, "the lock protects nothing: word 0 is %llu, word %u is %llu",
                        (unsigned long long)words[0], i, (unsigned long long)words[i]);
    sim_require(words[0] >= s->done, "%llu increments ended before, but only %llu are there", (unsigned long long)s->done,
                (unsigned long long)words[0]);
    for (uint32_t i = WORDS; i-- > 0;)
        words[i] = words[0] + 1;
    rc = remo_region_write(s->data[rank], home, 0, words, sizeof words, 0, NULL);
    sim_require(rc == 0 || silent, "write: %d", rc);
}

/* One critical section; `home` of the data. */
static void section(struct lock_state *s, uint32_t rank, uint32_t home, enum remo_fence_scope fence, uint64_t timeout_ns) {
    int rc = remo_lock_acquire(s->locks[rank], 0, timeout_ns);
    if (rc == -ETIMEDOUT && timeout_ns != FOREVER)
        return;
    bool after_death = rc == -EOWNERDEAD;
    sim_require(rc == 0 || after_death, "acquire: %d (%s)", rc, remo_last_error());
    enter(s, rank);
    sim_require(!s->torn_by_death || after_death, "the last owner died, and node %u was not told", rank);
    increment(s, rank, home, after_death, false);
    if (after_death) {
        sim_require(remo_lock_consistent(s->locks[rank], 0) == 0, "consistent");
        s->torn_by_death = false;
    }
    leave(s);
    rc = remo_lock_release(s->locks[rank], 0, fence);
    sim_require(rc == 0, "release: %d", rc);
    s->done++;
}

/* Data at the lock's home: a pair fence is enough. */
static void pair_body(void *state, uint32_t rank, uint32_t thread) {
    (void)thread;
    section(state, rank, 0, REMO_FENCE_PAIR, FOREVER);
    section(state, rank, 0, REMO_FENCE_PAIR, FOREVER);
}

const struct sim_case sim_case_lock = {
    .object = "lock", .name = "sections", .about = "critical sections of three nodes; data at the lock's home, pair fence", .nodes = 3,
    .threads = 1, .state_bytes = sizeof(struct lock_state), .open = open_lock, .body = pair_body, .may_crash = true,
    .crash_first = 1};

static void thread_body(void *state, uint32_t rank, uint32_t thread) {
    (void)thread;
    section(state, rank, 1, REMO_FENCE_THREAD, FOREVER);
    section(state, rank, 1, REMO_FENCE_THREAD, FOREVER);
}

const struct sim_case sim_case_lock_elsewhere = {
    .object = "lock", .name = "elsewhere", .about = "data at another node than the lock, thread fence", .nodes = 3, .threads = 1,
    .state_bytes = sizeof(struct lock_state), .open = open_lock, .body = thread_body};

static void threads_body(void *state, uint32_t rank, uint32_t thread) {
    (void)thread;
    section(state, rank, 0, REMO_FENCE_PAIR, FOREVER);
    section(state, rank, 0, REMO_FENCE_PAIR, FOREVER);
}

const struct sim_case sim_case_lock_threads = {
    .object = "lock", .name = "threads", .about = "two threads of each node hand over to each other", .nodes = 2, .threads = 2,
    .state_bytes = sizeof(struct lock_state), .open = open_lock, .body = threads_body};

/* A second thread comes at any moment of the first one's section, also while that is about to release. */
static void late_body(void *state, uint32_t rank, uint32_t thread) {
    for (uint32_t turns = thread * sim_choose(40); turns > 0; turns--)
        sim_point("be late");
    section(state, rank, 0, REMO_FENCE_PAIR, FOREVER);
}

const struct sim_case sim_case_lock_late = {
    .object = "lock", .name = "late", .about = "a second thread of a node comes while the first releases", .nodes = 2, .threads = 2,
    .state_bytes = sizeof(struct lock_state), .open = open_lock, .body = late_body};

/* Timeouts: some give up; those that got it are alone; and the lock still works for all at the end. */
static void timed_body(void *state, uint32_t rank, uint32_t thread) {
    struct lock_state *s = state;
    (void)thread;
    section(s, rank, 0, REMO_FENCE_PAIR, rank == 0 ? FOREVER : 300);
    section(s, rank, 0, REMO_FENCE_PAIR, rank == 1 ? 0 : 500);
    section(s, rank, 0, REMO_FENCE_PAIR, FOREVER);
}

const struct sim_case sim_case_lock_timed = {
    .object = "lock", .name = "timed", .about = "some acquires give up, and take their place in the queue up again", .nodes = 3,
    .threads = 1, .state_bytes = sizeof(struct lock_state), .open = open_lock, .body = timed_body, .may_crash = true, .crash_first = 1};

/* ---- nothing but the lock ---- */

static void fifo_body(void *state, uint32_t rank, uint32_t thread) {
    struct lock_state *s = state;
    (void)thread;
    for (uint32_t i = 0; i < 3; i++) {
        sim_require(remo_lock_acquire(s->locks[rank], 0, FOREVER) == 0, "acquire");
        enter(s, rank);
        sim_point("inside");
        leave(s);
        sim_require(remo_lock_release(s->locks[rank], 0, REMO_FENCE_NONE) == 0, "release");
    }
}

const struct sim_case sim_case_lock_turns = {
    .object = "lock", .name = "turns", .about = "three acquires of each of four nodes, nothing but the lock", .nodes = 4, .threads = 1,
    .state_bytes = sizeof(struct lock_state), .open = open_lock, .body = fifo_body};

static void laps_body(void *state, uint32_t rank, uint32_t thread) {
    struct lock_state *s = state;
    (void)thread;
    for (uint32_t i = 0; i < 8; i++) {
        int rc = remo_lock_acquire(s->locks[rank], 0, FOREVER);
        sim_require(rc == 0, "acquire: %d (%s)", rc, remo_last_error());
        enter(s, rank);
        leave(s);
        rc = remo_lock_release(s->locks[rank], 0, REMO_FENCE_NONE);
        sim_require(rc == 0, "release: %d (%s)", rc, remo_last_error());
    }
}

const struct sim_case sim_case_lock_laps = {
    .object = "lock", .name = "laps", .about = "more acquires of two nodes than the lock has batons, several times over", .nodes = 2,
    .threads = 1, .state_bytes = sizeof(struct lock_state), .open = open_lock, .body = laps_body};

/* ---- barrier ---- */

struct barrier_state {
    struct remo_barrier *barriers[SIM_NODES_MAX];
    struct remo_region *data[SIM_NODES_MAX];
    uint32_t came[SIM_NODES_MAX];        /* rounds */
};

static void open_barrier(void *state, struct remo_node *node, uint32_t rank) {
    struct barrier_state *s = state;
    sim_opened(remo_barrier_open(remo_node_root(node), "barrier", NULL, &s->barriers[rank]), "open");
    sim_opened(remo_region_open(remo_node_root(node), "data", DATA_BYTES, NULL, &s->data[rank]), "open the data");
    sim_opened(remo_channel_wait(remo_barrier_channel(s->barriers[rank]), FOREVER), "wait");
    sim_opened(remo_channel_wait(remo_region_channel(s->data[rank]), FOREVER), "wait for the data");
}

/* Before each round a node writes the round into the next node's memory; after it everybody reads everybody's. */
static void barrier_body(void *state, uint32_t rank, uint32_t thread) {
    struct barrier_state *s = state;
    uint32_t nodes = sim_world->test->nodes;
    (void)thread;
    for (uint64_t round = 1; round <= 2; round++) {
        uint64_t words[WORDS];
        for (uint32_t i = 0; i < WORDS; i++)
            words[i] = round;
        sim_require(remo_region_write(s->data[rank], (rank + 1) % nodes, 0, words, sizeof words, 0, NULL) == 0, "write");
        s->came[rank]++;
        int rc = remo_barrier_wait(s->barriers[rank], FOREVER);
        sim_require(rc == 0, "barrier: %d (%s)", rc, remo_last_error());
        for (uint32_t node = 0; node < nodes; node++)
            sim_require(s->came[node] >= round, "node %u left round %llu before node %u came", rank, (unsigned long long)round, node);
        uint32_t other = (rank + 2) % nodes;
        sim_require(remo_region_read(s->data[rank], other, 0, words, sizeof words, NULL) == 0, "read");
        for (uint32_t i = 0; i < WORDS; i++)
            sim_require(words[i] >= round, "after round %llu node %u does not see what was written before it", (unsigned long long)round,
                        rank);
    }
}

const struct sim_case sim_case_barrier = {
    .object = "barrier", .name = "rounds", .about = "nobody leaves before all came; what was written before is visible after", .nodes = 3,
    .threads = 1, .state_bytes = sizeof(struct barrier_state), .open = open_barrier, .body = barrier_body};

static void barrier_crash_body(void *state, uint32_t rank, uint32_t thread) {
    struct barrier_state *s = state;
    (void)thread;
    for (uint32_t round = 1; round <= 3; round++) {
        s->came[rank] = round;
        int rc = remo_barrier_wait(s->barriers[rank], FOREVER);
        if (rc == -EHOSTDOWN)
            return;
        sim_require(rc == 0, "barrier: %d", rc);
        for (uint32_t node = 0; node < sim_world->test->nodes; node++)
            sim_require(s->came[node] >= round, "node %u left round %u before node %u came", rank, round, node);
    }
}

const struct sim_case sim_case_barrier_crash = {
    .object = "barrier", .name = "death", .about = "rounds in which somebody may die: nobody hangs, nobody leaves early", .nodes = 3,
    .threads = 1, .state_bytes = sizeof(struct barrier_state), .open = open_barrier, .body = barrier_crash_body, .may_crash = true,
    .crash_first = 0};
