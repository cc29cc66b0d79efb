/* case_lock.c - the lock: one holder at a time, nothing lost that was written before a release, turns in the
 * order of tickets, hand-overs bounded, and what happens when somebody dies, is taken for dead, or does not
 * know whether an operation happened.
 */
#include <errno.h>
#include <remo/lock.h>
#include <remo/region.h>
#include <string.h>

#include "objects/lock.h"
#include "sim/case.h"
#include "sim/scheduler.h"

#define FOREVER REMO_FOREVER
#define WORDS 20u /* more than two lines */
#define DATA_BYTES (WORDS * 8u)
#define HOME 0u
#define BOUNDS_TURNS 12u /* scheduling points of an acquire that may not wait, but for completions */

struct lock_state {
    struct remo_lock *locks[SIM_NODES_MAX];
    struct remo_region *data[SIM_NODES_MAX];
    struct remo_node *nodes[SIM_NODES_MAX];
    uint32_t inside;        /* live threads that hold the lock */
    int holder;             /* node, -1: nobody */
    bool torn_by_death;     /* a holder went inside */
    bool repaired;          /* what the one fault of a schedule can leave behind has been repaired */
    bool giving_away;       /* somebody releases what he was told to repair, and has not repaired */
    bool given_away;        /* and has done so */
    uint64_t done;          /* increments in sections that ended */
    uint64_t last;          /* what the last holder wrote; 0: nothing yet */
    uint32_t ticket, turns; /* of who entered last; how many have had this ticket */
    uint32_t asking[SIM_NODES_MAX][SIM_THREADS_MAX]; /* odd: in an acquire; one more at each begin and end */
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

/* ---- turns ---- */

/* Tickets are drawn by one atomic each, so their order is the order of nodes; threads of a node share one,
 * for so many turns. */
static void check_turn(struct lock_state *s, uint32_t rank) {
    uint32_t ticket = (uint32_t)atomic_load(&s->locks[rank]->seats[0].place);
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
        s->torn_by_death = true;
    }
    sim_require(s->inside == 0, "two hold the lock: node %d and node %u", s->holder, rank);
    s->inside++;
    s->holder = (int)rank;
    check_turn(s, rank);
}

/* Who was taken for dead inside, and comes back before anybody has noticed, leaves as if nothing had been. */
static void leave(struct lock_state *s, uint32_t rank) {
    if (sim_out(rank) && s->holder != (int)rank)
        return;
    s->inside--;
    s->holder = -1;
}

/* For each thread of this node that is asleep in its acquire which one that is: it was before us. */
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
                    "thread %u of node %u waits, and thread %u, which came later, has the lock", other, rank,
                    thread);
    if (rc == -ENOTRECOVERABLE && !sim_out(rank))
        sim_require(s->giving_away, "the lock is said to be lost, but nobody gave it away");
    else if ((rc == 0 || rc == -EOWNERDEAD) && !sim_out(rank))
        sim_require(!s->given_away, "the lock was given away unrepaired, and node %u has it", rank);
    return rc;
}

/* ---- sections ---- */

/* A word is {writer:32, count:32}, so that no two writes are alike. */
static uint64_t word_of(uint64_t count, uint32_t rank) {
    return (uint64_t)(rank + 1) << 32 | (uint32_t)count;
}

/* After a death the words may differ: then the highest count. Else they are what the last holder wrote. */
static uint64_t agree(const struct lock_state *s, uint64_t *words, bool after_death) {
    bool torn = after_death || sim_any_hurt();
    uint32_t most = (uint32_t)words[0];
    for (uint32_t i = 1; i < WORDS; i++) {
        sim_require(words[i] == words[0] || torn,
                    "the lock protects nothing: word 0 is 0x%llx, word %u is 0x%llx",
                    (unsigned long long)words[0], i, (unsigned long long)words[i]);
        most = remo__max(most, (uint32_t)words[i]);
    }
    sim_require(most >= s->done, "%llu increments ended before, but only %u are there",
                (unsigned long long)s->done, most);
    sim_require(torn || s->last == 0 || words[0] == s->last,
                "the last holder wrote 0x%llx, and 0x%llx is there", (unsigned long long)s->last,
                (unsigned long long)words[0]);
    return most;
}

/* Read all words at `home`, and write them one higher. True: done. */
static bool increment(struct lock_state *s, uint32_t rank, uint32_t home, bool after_death) {
    uint64_t words[WORDS] = {0};
    int rc = remo_region_read(s->data[rank], home, 0, words, sizeof words, NULL);
    if (sim_out(rank) || sim_out(home) || sim_excused(rank, home, rc))
        return false;
    sim_require(rc == 0, "read: %d", rc);
    uint64_t count = agree(s, words, after_death) + 1;
    for (uint32_t i = 0; i < WORDS; i++)
        words[i] = word_of(count, rank);
    s->last = word_of(count, rank);
    rc = remo_region_write(s->data[rank], home, 0, words, sizeof words, 0, NULL);
    if (sim_out(rank) || sim_excused(rank, home, rc))
        return false;
    sim_require(rc == 0, "write: %d", rc);
    return true;
}

struct section {
    uint32_t home; /* of the data */
    enum remo_fence_scope fence;
    uint64_t timeout_ns;
    bool careless; /* repairs nothing */
};

static void repair(struct lock_state *s, uint32_t rank, bool careless) {
    if (careless && !sim_out(rank))
        s->giving_away = true;
    else
        sim_require(remo_lock_consistent(s->locks[rank], 0) == 0, "consistent: %s", remo_last_error());
    s->torn_by_death = false;
}

static void section(struct lock_state *s, uint32_t rank, const struct section *is) {
    int rc = acquire(s, rank, is->timeout_ns);
    if ((rc == -ETIMEDOUT && is->timeout_ns != FOREVER) || rc == -ENOTRECOVERABLE)
        return;
    bool after_death = rc == -EOWNERDEAD;
    if (!after_death && sim_excused(rank, HOME, rc))
        return;
    sim_require(rc == 0 || after_death, "acquire: %d (%s)", rc, remo_last_error());
    enter(s, rank);
    sim_require(!s->torn_by_death || after_death || sim_out(rank),
                "the last owner died, and node %u was not told", rank);
    sim_require(!after_death || !s->repaired || sim_out(rank),
                "node %u is told of a death that has been repaired", rank);
    bool good = increment(s, rank, is->home, after_death);
    if (after_death)
        repair(s, rank, is->careless);
    leave(s, rank);
    rc = remo_lock_release(s->locks[rank], 0, is->fence);
    if (!sim_excused(rank, is->home, rc) && !sim_excused(rank, HOME, rc)) {
        sim_require(rc == 0, "release: %d (%s)", rc, remo_last_error());
        s->done += good && !sim_out(rank);
        s->repaired |= after_death && !is->careless && !sim_out(rank);
    }
    if (after_death && is->careless && !sim_out(rank) && !sim_hurt(rank))
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

/* A second thread comes at any moment of the first one's section, also while that is about to release. */
static void late_body(void *state, uint32_t rank, uint32_t thread) {
    for (uint32_t turns = thread * sim_choose(40); turns > 0; turns--)
        sim_point("be late");
    section(state, rank, &at_home);
}

const struct sim_case sim_case_lock_late = {.object = "lock",
                                            .name = "late",
                                            .about =
                                                "a second thread of a node comes while the first releases",
                                            .nodes = 2,
                                            .threads = 2,
                                            .state_bytes = sizeof(struct lock_state),
                                            .open = open_lock,
                                            .close = close_lock,
                                            .body = late_body,
                                            .after = home_after};

/* Timeouts: some give up; those that got it are alone; and the lock still works for all at the end. */
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
    .about = "some acquires give up, and take their place in the queue up again",
    .nodes = 3,
    .threads = 1,
    .state_bytes = sizeof(struct lock_state),
    .open = open_lock,
    .close = close_lock,
    .body = timed_body,
    .after = home_after};

/* Who is told of a death on node 2 repairs nothing: then the lock is lost for all, and only then. */
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
    .about = "who is told of a death may not repair, and then the lock is lost for all",
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
    .about = "who is told of a death does not repair, and another thread of its node waits",
    .nodes = 3,
    .threads = 2,
    .state_bytes = sizeof(struct lock_state),
    .open = open_lock,
    .close = close_lock,
    .body = careless_threads_body,
    .after = home_after,
    .fault_first = 2};

/* Node 2 dies in its section, with a write on its way to a node that has not heard of it: it may not land in
 * the next one's section. */
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
            sim_point("be about to die");
        sim_crash(rank);
        sim_point("die");
    }
    if (rank == 0) {
        sim_until(is_inside, s, "wait until the other one is inside");
        section(s, rank, &elsewhere);
        section(s, rank, &elsewhere);
    }
}

const struct sim_case sim_case_lock_zombie = {.object = "lock",
                                              .name = "zombie_write",
                                              .about =
                                                  "a holder dies, and its last write is still on its way",
                                              .nodes = 3,
                                              .threads = 1,
                                              .state_bytes = sizeof(struct lock_state),
                                              .open = open_lock,
                                              .close = close_lock,
                                              .body = zombie_body,
                                              .after = elsewhere_after,
                                              .brings_its_own = true};

/* ---- nothing but the lock ---- */

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
                                             .about =
                                                 "three acquires of each of four nodes, nothing but the lock",
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
    .about = "as turns, and who does not know whether an operation happened goes on",
    .nodes = 4,
    .threads = 1,
    .state_bytes = sizeof(struct lock_state),
    .open = open_lock,
    .close = close_lock,
    .body = turns_body,
    .after = take_after,
    .goes_on = true};

static void laps_body(void *state, uint32_t rank, uint32_t thread) {
    (void)thread;
    for (uint32_t i = 0; i < 8; i++)
        take(state, rank, FOREVER);
}

const struct sim_case sim_case_lock_laps = {
    .object = "lock",
    .name = "laps",
    .about = "more acquires of two nodes than the lock has batons, several times over",
    .nodes = 2,
    .threads = 1,
    .state_bytes = sizeof(struct lock_state),
    .open = open_lock,
    .close = close_lock,
    .body = laps_body,
    .after = take_after};

/* Two threads of node 1 want it all the time; so does node 0, now and then: it must get it. */
static void handover_body(void *state, uint32_t rank, uint32_t thread) {
    uint32_t times = rank == 0 ? 2 * (thread == 0) : REMO_LOCK_HANDOVERS_MAX / 2 + 4;
    for (uint32_t i = 0; i < times; i++)
        take(state, rank, FOREVER);
}

const struct sim_case sim_case_lock_handover = {
    .object = "lock",
    .name = "hand_over",
    .about = "threads of a node that hand over for ever let other nodes in",
    .nodes = 2,
    .threads = 2,
    .state_bytes = sizeof(struct lock_state),
    .open = open_lock,
    .close = close_lock,
    .body = handover_body,
    .after = take_after};

/* With a timeout of 0 an acquire waits for nobody but the network: so many operations, so many turns, whoever
 * is starved. */
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
