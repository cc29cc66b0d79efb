/* lock.c - the lock: one holder at a time, no lost writes, order by ticket, bounded hand-overs.
 * Further cases cover failed nodes, nodes wrongly declared failed, and operations with unknown
 * outcome. */
#include <errno.h>
#include <remo/lock.h>
#include <remo/region.h>
#include <string.h>

#include "objects/lock/lock.h"
#include "sim/case.h"
#include "sim/scheduler.h"

#define FOREVER REMO_FOREVER
#define WORDS 20u /* more than two cache lines */
#define DATA_BYTES (WORDS * 8u)
#define HOME 0u
#define BOUNDS_TURNS 12u /* scheduling points of an acquire that waits only for completions */

struct lock_state {
    struct remo_lock *locks[SIM_NODES_MAX];
    struct remo_region *data[SIM_NODES_MAX];
    struct remo_node *nodes[SIM_NODES_MAX];
    uint32_t inside;        /* live threads that hold the lock */
    int holder;             /* node; -1: none */
    bool torn_by_failure;   /* a holder failed in its section */
    bool repaired;          /* the one fault of the schedule has been repaired */
    bool giving_away;       /* a thread releases the lock with -EOWNERDEAD unrepaired */
    bool given_away;        /* .. and has released it */
    uint64_t done;          /* increments in sections that ended */
    uint64_t last;          /* the last holder's value; 0: none yet */
    uint32_t ticket, turns; /* the ticket of the last holder; its number of turns */
    /* odd: in an acquire; incremented at each begin and end */
    uint32_t asking[SIM_NODES_MAX][SIM_THREADS_MAX];
};

static void open_lock(void *state, struct remo_node *node, uint32_t rank) {
    struct lock_state *s = state;
    s->nodes[rank] = node;
    s->holder = -1;
    sim_opened(remo_lock_open(remo_node_root(node), "lock", NULL, &s->locks[rank]), "open the lock");
    sim_opened(remo_region_open(remo_node_root(node), "data", DATA_BYTES, NULL, &s->data[rank]),
               "open the data");
    sim_opened(remo_channel_wait(remo_lock_channel(s->locks[rank]), FOREVER), "wait for the lock");
    sim_opened(remo_channel_wait(remo_region_channel(s->data[rank]), FOREVER), "wait for the data");
}

static void close_lock(void *state, uint32_t rank) {
    struct lock_state *s = state;
    remo_lock_close(s->locks[rank]);
    remo_region_close(s->data[rank]);
}

/* ---- order ---- */

/* Check the order of tickets. One atomic draws a ticket, so the order of tickets is the order of
 * nodes. Threads of a node share a ticket for a bounded number of turns. */
static void check_order(struct lock_state *s, uint32_t rank) {
    uint32_t ticket = (uint32_t)atomic_load(&s->locks[rank]->locals[0].state);
    if (s->turns > 0 && ticket == s->ticket) {
        sim_require(s->turns <= REMO_LOCK_HANDOVERS_MAX, "the lock was handed over %u times in a row",
                    s->turns);
        s->turns++;
        return;
    }
    sim_require(s->turns == 0 || (int32_t)(ticket - s->ticket) > 0, "ticket %u has the lock after ticket %u",
                ticket, s->ticket);
    s->ticket = ticket;
    s->turns = 1;
}

static void enter(struct lock_state *s, uint32_t rank) {
    if (sim_out(rank))
        return;
    if (s->holder >= 0 && sim_out((uint32_t)s->holder)) {
        s->inside = 0;
        s->torn_by_failure = true;
    }
    sim_require(s->inside == 0, "the lock has two holders: node %d and node %u", s->holder, rank);
    s->inside++;
    s->holder = (int)rank;
    check_order(s, rank);
}

/* A node declared failed in its section, and back before its peers noticed, leaves as usual. */
static void leave(struct lock_state *s, uint32_t rank) {
    if (sim_out(rank) && s->holder != (int)rank)
        return;
    s->inside--;
    s->holder = -1;
}

/* Record which threads of this node sleep in an acquire: they began before the current thread. */
static void note_asleep(const struct lock_state *s, uint32_t rank, uint32_t *ret_asking) {
    memset(ret_asking, 0, SIM_THREADS_MAX * sizeof *ret_asking);
    for (uint32_t i = 0; i < sim_world->actors_count; i++) {
        const struct sim_actor *actor = &sim_world->actors[i];
        if (actor->role == SIM_PROGRAM && actor->node == rank && s->asking[rank][actor->thread] % 2
            && actor->state == SIM_PAUSED)
            ret_asking[actor->thread] = s->asking[rank][actor->thread];
    }
}

static int acquire(struct lock_state *s, uint32_t rank, uint64_t timeout_ns) {
    uint32_t thread = sim_current()->thread, before[SIM_THREADS_MAX];
    note_asleep(s, rank, before);
    s->asking[rank][thread]++;
    int rc = remo_lock_acquire(s->locks[rank], 0, timeout_ns);
    s->asking[rank][thread]++;
    for (uint32_t other = 0; other < SIM_THREADS_MAX && (rc == 0 || rc == -EOWNERDEAD) && !sim_out(rank);
         other++)
        sim_require(before[other] == 0 || s->asking[rank][other] != before[other],
                    "thread %u of node %u waits, and thread %u, which began later, has the lock", other, rank,
                    thread);
    if (rc == -ENOTRECOVERABLE && !sim_out(rank))
        sim_require(s->giving_away, "the lock is lost, but no holder released it unrepaired");
    else if ((rc == 0 || rc == -EOWNERDEAD) && !sim_out(rank))
        sim_require(!s->given_away, "the lock was released unrepaired, and node %u has it", rank);
    return rc;
}

/* ---- sections ---- */

/* Return a word {writer:32, count:32}, so that all written words differ. */
static uint64_t word_of(uint64_t count, uint32_t rank) {
    return (uint64_t)(rank + 1) << 32 | (uint32_t)count;
}

/* Return the count of the words. After a failure the words may differ: the highest count. Otherwise
 * they are the last holder's value. A node that continues after a failed operation has written all
 * words or none. */
static uint64_t agree(const struct lock_state *s, uint64_t *words, bool owner_failed) {
    bool torn = owner_failed || (sim_any_hurt() && !sim_world->test->continues_after_failure);
    uint32_t most = (uint32_t)words[0];
    for (uint32_t i = 1; i < WORDS; i++) {
        sim_require(words[i] == words[0] || torn,
                    "the lock protects nothing: word 0 is 0x%llx, word %u is 0x%llx",
                    (unsigned long long)words[0], i, (unsigned long long)words[i]);
        most = remo__max(most, (uint32_t)words[i]);
    }
    sim_require(most >= s->done, "%llu increments ended before, but only %u are present",
                (unsigned long long)s->done, most);
    sim_require(torn || s->last == 0 || words[0] == s->last,
                "the last holder wrote 0x%llx, but the value is 0x%llx", (unsigned long long)s->last,
                (unsigned long long)words[0]);
    return most;
}

/* Read all words at `home`, and write them incremented. Returns whether both succeeded. */
static bool increment(struct lock_state *s, uint32_t rank, uint32_t home, bool owner_failed) {
    uint64_t words[WORDS] = {0};
    int rc = remo_region_read(s->data[rank], home, 0, words, sizeof words, NULL);
    if (sim_out(rank) || sim_out(home) || sim_excused(rank, home, rc))
        return false;
    sim_require(rc == 0, "read: %d", rc);
    uint64_t count = agree(s, words, owner_failed) + 1;
    for (uint32_t i = 0; i < WORDS; i++)
        words[i] = word_of(count, rank);
    uint64_t before = s->last;
    s->last = word_of(count, rank);
    rc = remo_region_write(s->data[rank], home, 0, words, sizeof words, 0, NULL);
    if (rc != 0 && sim_hurt(rank) && sim_world->test->continues_after_failure)
        s->last = before;
    if (sim_out(rank) || sim_excused(rank, home, rc))
        return false;
    sim_require(rc == 0, "write: %d", rc);
    return true;
}

struct section {
    uint32_t home; /* of the data */
    enum remo_fence_scope fence;
    uint64_t timeout_ns;
    bool careless; /* does not repair the state after -EOWNERDEAD */
};

static void repair(struct lock_state *s, uint32_t rank, bool careless) {
    if (careless && !sim_out(rank))
        s->giving_away = true;
    else
        sim_require(remo_lock_consistent(s->locks[rank], 0) == 0, "consistent: %s", remo_last_error());
    s->torn_by_failure = false;
}

static void section(struct lock_state *s, uint32_t rank, const struct section *is) {
    int rc = acquire(s, rank, is->timeout_ns);
    if ((rc == -ETIMEDOUT && is->timeout_ns != FOREVER) || rc == -ENOTRECOVERABLE)
        return;
    bool owner_failed = rc == -EOWNERDEAD;
    if (!owner_failed && sim_excused(rank, HOME, rc))
        return;
    sim_require(rc == 0 || owner_failed, "acquire: %d (%s)", rc, remo_last_error());
    enter(s, rank);
    sim_require(!s->torn_by_failure || owner_failed || sim_out(rank),
                "the last owner failed, and node %u did not get -EOWNERDEAD", rank);
    sim_require(!owner_failed || !s->repaired || sim_out(rank), "node %u gets -EOWNERDEAD after the repair",
                rank);
    bool good = increment(s, rank, is->home, owner_failed);
    if (owner_failed)
        repair(s, rank, is->careless);
    leave(s, rank);
    do /* the lock is still held: retry, up to the limit of steps */
        rc = remo_lock_release(s->locks[rank], 0, is->fence);
    while (rc == -EAGAIN);
    if (!sim_excused(rank, is->home, rc) && !sim_excused(rank, HOME, rc)) {
        sim_require(rc == 0, "release: %d (%s)", rc, remo_last_error());
        s->done += good && !sim_out(rank);
        s->repaired |= owner_failed && !is->careless && !sim_out(rank);
    }
    if (owner_failed && is->careless && !sim_out(rank) && !sim_hurt(rank))
        s->given_away = true;
}

/* ---- cases ---- */

/* Data at the lock's home: a pair fence is enough. */
static const struct section at_home = {.home = HOME, .fence = REMO_FENCE_PAIR, .timeout_ns = FOREVER};
static const struct section elsewhere = {.home = 1, .fence = REMO_FENCE_THREAD, .timeout_ns = FOREVER};

static void home_after(void *state, uint32_t rank) {
    section(state, rank, &at_home);
}

static void pair_body(void *state, uint32_t rank, uint32_t thread) {
    (void)thread;
    section(state, rank, &at_home);
    section(state, rank, &at_home);
}

const struct sim_case sim_case_lock = {
    .object = "lock",
    .name = "sections",
    .about = "critical sections of three nodes; data at the lock's home, pair fence",
    .nodes = 3,
    .threads = 1,
    .state_bytes = sizeof(struct lock_state),
    .open = open_lock,
    .close = close_lock,
    .body = pair_body,
    .after = home_after};

static void elsewhere_body(void *state, uint32_t rank, uint32_t thread) {
    (void)thread;
    section(state, rank, &elsewhere);
    section(state, rank, &elsewhere);
}

static void elsewhere_after(void *state, uint32_t rank) {
    section(state, rank, &elsewhere);
}

const struct sim_case sim_case_lock_elsewhere = {.object = "lock",
                                                 .name = "elsewhere",
                                                 .about = "data at another node than the lock, thread fence",
                                                 .nodes = 3,
                                                 .threads = 1,
                                                 .state_bytes = sizeof(struct lock_state),
                                                 .open = open_lock,
                                                 .close = close_lock,
                                                 .body = elsewhere_body,
                                                 .after = elsewhere_after};

/* If a fence fails and the release continues, a late write can overwrite the next holder's data. */
const struct sim_case sim_case_lock_settled = {.object = "lock",
                                               .name = "settled",
                                               .about =
                                                   "as elsewhere; a node continues after a failed operation",
                                               .nodes = 3,
                                               .threads = 1,
                                               .state_bytes = sizeof(struct lock_state),
                                               .open = open_lock,
                                               .close = close_lock,
                                               .body = elsewhere_body,
                                               .after = elsewhere_after,
                                               .continues_after_failure = true};

const struct sim_case sim_case_lock_settled_threads = {
    .object = "lock",
    .name = "settled_threads",
    .about = "as threads; a node continues after a failed operation",
    .nodes = 2,
    .threads = 2,
    .state_bytes = sizeof(struct lock_state),
    .open = open_lock,
    .close = close_lock,
    .body = pair_body,
    .after = home_after,
    .continues_after_failure = true};

const struct sim_case sim_case_lock_threads = {.object = "lock",
                                               .name = "threads",
                                               .about = "two threads of each node hand over to each other",
                                               .nodes = 2,
                                               .threads = 2,
                                               .state_bytes = sizeof(struct lock_state),
                                               .open = open_lock,
                                               .close = close_lock,
                                               .body = pair_body,
                                               .after = home_after};

/* A second thread arrives at any moment of the first thread's section, also during its release. */
static void late_body(void *state, uint32_t rank, uint32_t thread) {
    for (uint32_t turns = thread * sim_choose(40); turns > 0; turns--)
        sim_point("be late");
    section(state, rank, &at_home);
}

const struct sim_case sim_case_lock_late = {.object = "lock",
                                            .name = "late",
                                            .about =
                                                "a second thread of a node arrives while the first releases",
                                            .nodes = 2,
                                            .threads = 2,
                                            .state_bytes = sizeof(struct lock_state),
                                            .open = open_lock,
                                            .close = close_lock,
                                            .body = late_body,
                                            .after = home_after};

/* Some acquires time out; holders are exclusive, and the lock works for all at the end. */
static void timed_body(void *state, uint32_t rank, uint32_t thread) {
    struct section brief = at_home;
    (void)thread;
    brief.timeout_ns = rank == 0 ? FOREVER : 300;
    section(state, rank, &brief);
    brief.timeout_ns = rank == 1 ? 0 : 500;
    section(state, rank, &brief);
    section(state, rank, &at_home);
}

const struct sim_case sim_case_lock_timed = {
    .object = "lock",
    .name = "timed",
    .about = "some acquires time out, and later resume their place in the queue",
    .nodes = 3,
    .threads = 1,
    .state_bytes = sizeof(struct lock_state),
    .open = open_lock,
    .close = close_lock,
    .body = timed_body,
    .after = home_after};

/* A holder on node 2 that gets -EOWNERDEAD repairs nothing: then, and only then, the lock is lost
 * for all. */
static void careless_body(void *state, uint32_t rank, uint32_t thread) {
    struct section mine = at_home;
    (void)thread;
    mine.careless = rank == 2;
    section(state, rank, &mine);
    section(state, rank, &mine);
}

const struct sim_case sim_case_lock_careless = {
    .object = "lock",
    .name = "careless",
    .about = "a holder with -EOWNERDEAD repairs nothing: the lock is lost for all",
    .nodes = 4,
    .threads = 1,
    .state_bytes = sizeof(struct lock_state),
    .open = open_lock,
    .close = close_lock,
    .body = careless_body,
    .after = home_after};

static void careless_threads_body(void *state, uint32_t rank, uint32_t thread) {
    struct section mine = at_home;
    mine.careless = rank == 1 && thread == 0;
    section(state, rank, &mine);
    section(state, rank, &mine);
}

const struct sim_case sim_case_lock_careless_threads = {
    .object = "lock",
    .name = "careless_threads",
    .about = "a holder with -EOWNERDEAD repairs nothing; a thread of its node waits",
    .nodes = 3,
    .threads = 2,
    .state_bytes = sizeof(struct lock_state),
    .open = open_lock,
    .close = close_lock,
    .body = careless_threads_body,
    .after = home_after,
    .fault_first = 2};

/* Node 2 fails in its section with a write in flight to a node that has not detected the failure.
 * The write must not land in the next holder's section. */
static bool is_inside(void *ctx) {
    return ((const struct lock_state *)ctx)->last != 0 || sim_any_out();
}

static void zombie_body(void *state, uint32_t rank, uint32_t thread) {
    struct lock_state *s = state;
    (void)thread;
    if (rank == 2 && acquire(s, rank, FOREVER) == 0) {
        enter(s, rank);
        (void)increment(s, rank, elsewhere.home, false);
        for (uint32_t turns = sim_choose(16); turns > 0; turns--)
            sim_point("before the crash");
        sim_crash(rank);
        sim_point("crash");
    }
    if (rank == 0) {
        sim_until(is_inside, s, "wait until node 2 holds the lock");
        section(s, rank, &elsewhere);
        section(s, rank, &elsewhere);
    }
}

const struct sim_case sim_case_lock_zombie = {.object = "lock",
                                              .name = "zombie_write",
                                              .about = "a holder fails with its last write in flight",
                                              .nodes = 3,
                                              .threads = 1,
                                              .state_bytes = sizeof(struct lock_state),
                                              .open = open_lock,
                                              .close = close_lock,
                                              .body = zombie_body,
                                              .after = elsewhere_after,
                                              .has_own_fault = true};

/* ---- only the lock ---- */

static void take(struct lock_state *s, uint32_t rank, uint64_t timeout_ns) {
    int rc = acquire(s, rank, timeout_ns);
    if ((rc == -ETIMEDOUT && timeout_ns != FOREVER) || (rc != -EOWNERDEAD && sim_excused(rank, HOME, rc)))
        return;
    sim_require(rc == 0 || rc == -EOWNERDEAD, "acquire: %d (%s)", rc, remo_last_error());
    enter(s, rank);
    sim_point("inside");
    if (rc == -EOWNERDEAD)
        repair(s, rank, false);
    leave(s, rank);
    rc = remo_lock_release(s->locks[rank], 0, REMO_FENCE_NONE);
    sim_require(rc == 0 || sim_excused(rank, HOME, rc), "release: %d (%s)", rc, remo_last_error());
}

static void turns_body(void *state, uint32_t rank, uint32_t thread) {
    (void)thread;
    for (uint32_t i = 0; i < 3; i++)
        take(state, rank, FOREVER);
}

static void take_after(void *state, uint32_t rank) {
    take(state, rank, FOREVER);
}

const struct sim_case sim_case_lock_turns = {.object = "lock",
                                             .name = "turns",
                                             .about = "three acquires of each of four nodes, without data",
                                             .nodes = 4,
                                             .threads = 1,
                                             .state_bytes = sizeof(struct lock_state),
                                             .open = open_lock,
                                             .close = close_lock,
                                             .body = turns_body,
                                             .after = take_after};

const struct sim_case sim_case_lock_failures = {
    .object = "lock",
    .name = "failures",
    .about = "as turns; a node continues after an operation with unknown outcome",
    .nodes = 4,
    .threads = 1,
    .state_bytes = sizeof(struct lock_state),
    .open = open_lock,
    .close = close_lock,
    .body = turns_body,
    .after = take_after,
    .continues_after_failure = true};

static void laps_body(void *state, uint32_t rank, uint32_t thread) {
    (void)thread;
    for (uint32_t i = 0; i < 8; i++)
        take(state, rank, FOREVER);
}

const struct sim_case sim_case_lock_laps = {
    .object = "lock",
    .name = "laps",
    .about = "many more acquires of two nodes than the lock has grant words",
    .nodes = 2,
    .threads = 1,
    .state_bytes = sizeof(struct lock_state),
    .open = open_lock,
    .close = close_lock,
    .body = laps_body,
    .after = take_after};

/* Two threads of node 1 acquire the lock all the time; node 0 must get it now and then. */
static void handover_body(void *state, uint32_t rank, uint32_t thread) {
    uint32_t times = rank == 0 ? 2 * (thread == 0) : REMO_LOCK_HANDOVERS_MAX / 2 + 4;
    for (uint32_t i = 0; i < times; i++)
        take(state, rank, FOREVER);
}

const struct sim_case sim_case_lock_handover = {
    .object = "lock",
    .name = "hand_over",
    .about = "threads of a node that hand over without end let other nodes in",
    .nodes = 2,
    .threads = 2,
    .state_bytes = sizeof(struct lock_state),
    .open = open_lock,
    .close = close_lock,
    .body = handover_body,
    .after = take_after};

/* With a timeout of 0 an acquire waits only for the network: a bounded number of operations and
 * turns, even under starvation. */
static void try_body(void *state, uint32_t rank, uint32_t thread) {
    struct lock_state *s = state;
    (void)thread;
    for (uint32_t i = 0; i < 3; i++) {
        struct sim_bound bound = sim_bound_begin();
        int rc = acquire(s, rank, 0);
        sim_bound_end(&bound, "an acquire with a timeout of 0", 4, BOUNDS_TURNS);
        if (rc != 0 && rc != -EOWNERDEAD)
            continue;
        enter(s, rank);
        if (rc == -EOWNERDEAD)
            repair(s, rank, false);
        leave(s, rank);
        (void)remo_lock_release(s->locks[rank], 0, REMO_FENCE_NONE);
    }
}

const struct sim_case sim_case_lock_tries = {
    .object = "lock",
    .name = "tries",
    .about = "acquires that may not wait end within a bound of operations and turns",
    .nodes = 3,
    .threads = 1,
    .state_bytes = sizeof(struct lock_state),
    .open = open_lock,
    .close = close_lock,
    .body = try_body,
    .after = take_after};

/* ---- operations that time out, and take effect later ---- */

#define SLOW 2u /* the node whose operation is delayed */

/* Returns false after the timeout of a delayed operation: node SLOW then holds nothing. */
static bool take_delayed(struct lock_state *s, uint64_t timeout_ns) {
    int rc = acquire(s, SLOW, timeout_ns);
    if (rc != 0 && rc != -EOWNERDEAD) {
        sim_require(rc == -ETIMEDOUT && (timeout_ns != FOREVER || sim_delay_hit()), "acquire: %d (%s)", rc,
                    remo_last_error());
        return !sim_delay_hit();
    }
    enter(s, SLOW);
    sim_point("inside");
    if (rc == -EOWNERDEAD)
        repair(s, SLOW, false);
    leave(s, SLOW);
    rc = remo_lock_release(s->locks[SLOW], 0, REMO_FENCE_NONE);
    sim_require(rc == 0 || (rc == -ETIMEDOUT && sim_delay_hit()), "release: %d (%s)", rc, remo_last_error());
    return rc == 0;
}

/* One operation of a node is delayed beyond its timeout, while the home is up. It takes effect during
 * the recount or after it. The node does not use the lock again. */
static void slow_body(void *state, uint32_t rank, uint32_t thread) {
    if (rank != SLOW) {
        turns_body(state, rank, thread);
        return;
    }
    sim_delay(SLOW, sim_choose(14), 1);
    for (uint32_t i = 0; i < 3; i++)
        if (!take_delayed(state, i == 1 ? 300 : FOREVER))
            break;
    for (uint32_t turns = sim_choose(40); turns > 0; turns--)
        sim_point("before the operation takes effect");
    sim_delay_end();
}

static void slow_after(void *state, uint32_t rank) {
    if (rank != SLOW)
        take(state, rank, FOREVER);
}

const struct sim_case sim_case_lock_slow_none = {
    .object = "lock",
    .name = "slow_none",
    .about = "an operation of an acquire or a release takes effect after its timeout",
    .nodes = 3,
    .threads = 1,
    .state_bytes = sizeof(struct lock_state),
    .open = open_lock,
    .close = close_lock,
    .body = slow_body,
    .after = slow_after,
    .has_own_fault = true};

static void release_delayed(struct lock_state *s) {
    int rc;
    sim_delay(SLOW, sim_choose(3), 1);
    do {
        rc = remo_lock_release(s->locks[SLOW], 0, REMO_FENCE_PAIR);
        if (rc == -EAGAIN && sim_choose(2) == 0)
            sim_delay_end();
    } while (rc == -EAGAIN);
    sim_require(rc == 0 || (rc == -ETIMEDOUT && sim_delay_hit()), "release: %d (%s)", rc, remo_last_error());
    for (uint32_t turns = sim_choose(40); turns > 0; turns--)
        sim_point("before the operation takes effect");
    sim_delay_end();
}

static void slow_pair_body(void *state, uint32_t rank, uint32_t thread) {
    struct lock_state *s = state;
    if (rank != SLOW) {
        pair_body(state, rank, thread);
        return;
    }
    int rc = acquire(s, SLOW, FOREVER);
    sim_require(rc == 0, "acquire: %d (%s)", rc, remo_last_error());
    enter(s, SLOW);
    (void)increment(s, SLOW, HOME, false);
    leave(s, SLOW);
    release_delayed(s);
}

static void slow_pair_after(void *state, uint32_t rank) {
    if (rank != SLOW)
        section(state, rank, &at_home);
}

const struct sim_case sim_case_lock_slow_pair = {
    .object = "lock",
    .name = "slow_pair",
    .about = "an operation of a release with a pair fence takes effect after its timeout",
    .nodes = 3,
    .threads = 1,
    .state_bytes = sizeof(struct lock_state),
    .open = open_lock,
    .close = close_lock,
    .body = slow_pair_body,
    .after = slow_pair_after,
    .has_own_fault = true};

/* ---- a close whose operations are not complete ---- */

/* Node SLOW acquires the lock, writes, and releases it, with one of these operations delayed. It then closes
 * the table. Returns after the close; the operation may take effect later. */
static void close_delayed(struct lock_state *s) {
    int rc = acquire(s, SLOW, FOREVER);
    sim_require(rc == 0, "acquire: %d (%s)", rc, remo_last_error());
    enter(s, SLOW);
    sim_delay(SLOW, 1 + sim_choose(3), 1); /* the read of the data is not delayed */
    (void)increment(s, SLOW, elsewhere.home, false);
    leave(s, SLOW);
    s->nodes[SLOW]->op_timeout_ns = 400; /* expires even while other nodes make steps */
    rc = remo_lock_release(s->locks[SLOW], 0, elsewhere.fence);
    sim_require(rc == 0 || rc == -EAGAIN || rc == -ETIMEDOUT, "release: %d (%s)", rc, remo_last_error());
    remo_lock_close(s->locks[SLOW]);
    s->locks[SLOW] = NULL;
}

static void leaving_body(void *state, uint32_t rank, uint32_t thread) {
    if (rank != SLOW) {
        elsewhere_body(state, rank, thread);
        return;
    }
    close_delayed(state);
    for (uint32_t turns = sim_choose(40); turns > 0; turns--)
        sim_point("before the operation takes effect");
    sim_delay_end();
}

static void leaving_after(void *state, uint32_t rank) {
    if (rank != SLOW)
        section(state, rank, &elsewhere);
}

const struct sim_case sim_case_lock_leaving = {
    .object = "lock",
    .name = "leaving",
    .about = "a node closes the lock; a write or a release of it takes effect after the close",
    .nodes = 3,
    .threads = 1,
    .state_bytes = sizeof(struct lock_state),
    .open = open_lock,
    .close = close_lock,
    .body = leaving_body,
    .after = leaving_after,
    .has_own_fault = true};
