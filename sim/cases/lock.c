/* lock.c - the lock: one holder at a time, no lost writes, order by ticket, bounded hand-overs.
 * The cases here keep data under the lock. Nodes fail, or are wrongly declared failed. */
#include "sim/cases/lock.h"

#include <string.h>

#define WORDS 20u /* more than two cache lines */
#define DATA_BYTES (WORDS * 8u)

void sim_lock_open(void *state, struct remo_node *node, uint32_t rank) {
    struct lock_state *s = state;
    s->nodes[rank] = node;
    s->holder = -1;
    sim_opened(remo_lock_open(remo_node_root(node), "lock", NULL, &s->locks[rank]), "open the lock");
    sim_opened(remo_region_open(remo_node_root(node), "data", DATA_BYTES, NULL, &s->data[rank]),
               "open the data");
    sim_opened(remo_channel_wait(remo_lock_channel(s->locks[rank]), FOREVER), "wait for the lock");
    sim_opened(remo_channel_wait(remo_region_channel(s->data[rank]), FOREVER), "wait for the data");
}

void sim_lock_close(void *state, uint32_t rank) {
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

void sim_lock_enter(struct lock_state *s, uint32_t rank) {
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
void sim_lock_leave(struct lock_state *s, uint32_t rank) {
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

int sim_lock_acquire(struct lock_state *s, uint32_t rank, uint64_t timeout_ns) {
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
bool sim_lock_increment(struct lock_state *s, uint32_t rank, uint32_t home, bool owner_failed) {
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

void sim_lock_repair(struct lock_state *s, uint32_t rank, bool careless) {
    if (careless && !sim_out(rank))
        s->giving_away = true;
    else
        sim_require(remo_lock_consistent(s->locks[rank], 0) == 0, "consistent: %s", remo_last_error());
    s->torn_by_failure = false;
}

void sim_lock_section(struct lock_state *s, uint32_t rank, const struct section *is) {
    int rc = sim_lock_acquire(s, rank, is->timeout_ns);
    if ((rc == -ETIMEDOUT && is->timeout_ns != FOREVER) || rc == -ENOTRECOVERABLE)
        return;
    bool owner_failed = rc == -EOWNERDEAD;
    if (!owner_failed && sim_excused(rank, HOME, rc))
        return;
    sim_require(rc == 0 || owner_failed, "acquire: %d (%s)", rc, remo_last_error());
    sim_lock_enter(s, rank);
    sim_require(!s->torn_by_failure || owner_failed || sim_out(rank),
                "the last owner failed, and node %u did not get -EOWNERDEAD", rank);
    sim_require(!owner_failed || !s->repaired || sim_out(rank), "node %u gets -EOWNERDEAD after the repair",
                rank);
    bool good = sim_lock_increment(s, rank, is->home, owner_failed);
    if (owner_failed)
        sim_lock_repair(s, rank, is->careless);
    sim_lock_leave(s, rank);
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
const struct section sim_lock_at_home = {.home = HOME, .fence = REMO_FENCE_PAIR, .timeout_ns = FOREVER};
const struct section sim_lock_elsewhere = {.home = 1, .fence = REMO_FENCE_THREAD, .timeout_ns = FOREVER};

static void home_after(void *state, uint32_t rank) {
    sim_lock_section(state, rank, &sim_lock_at_home);
}

void sim_lock_pair_body(void *state, uint32_t rank, uint32_t thread) {
    (void)thread;
    sim_lock_section(state, rank, &sim_lock_at_home);
    sim_lock_section(state, rank, &sim_lock_at_home);
}

LOCK_CASE(lock, .name = "sections",
          .about = "critical sections of three nodes; data at the lock's home, pair fence", .nodes = 3,
          .threads = 1, .body = sim_lock_pair_body, .after = home_after);

static void elsewhere_body(void *state, uint32_t rank, uint32_t thread) {
    (void)thread;
    sim_lock_section(state, rank, &sim_lock_elsewhere);
    sim_lock_section(state, rank, &sim_lock_elsewhere);
}

static void elsewhere_after(void *state, uint32_t rank) {
    sim_lock_section(state, rank, &sim_lock_elsewhere);
}

LOCK_CASE(lock_elsewhere, .name = "elsewhere", .about = "data at another node than the lock, thread fence",
          .nodes = 3, .threads = 1, .body = elsewhere_body, .after = elsewhere_after);

/* If a fence fails and the release continues, a late write can overwrite the next holder's data. */
LOCK_CASE(lock_continues, .name = "continues",
          .about = "as elsewhere; a node continues after a failed operation", .nodes = 3, .threads = 1,
          .body = elsewhere_body, .after = elsewhere_after, .continues_after_failure = true);

LOCK_CASE(lock_continues_threads, .name = "continues_threads",
          .about = "as threads; a node continues after a failed operation", .nodes = 2, .threads = 2,
          .body = sim_lock_pair_body, .after = home_after, .continues_after_failure = true);

LOCK_CASE(lock_threads, .name = "threads", .about = "two threads of each node hand over to each other",
          .nodes = 2, .threads = 2, .body = sim_lock_pair_body, .after = home_after);

/* A second thread arrives at any moment of the first thread's section, also during its release. */
static void late_body(void *state, uint32_t rank, uint32_t thread) {
    for (uint32_t turns = thread * sim_choose(40); turns > 0; turns--)
        sim_point("be late");
    sim_lock_section(state, rank, &sim_lock_at_home);
}

LOCK_CASE(lock_late, .name = "late", .about = "a second thread of a node arrives while the first releases",
          .nodes = 2, .threads = 2, .body = late_body, .after = home_after);

/* Some acquires time out; holders are exclusive, and the lock works for all at the end. */
static void timed_body(void *state, uint32_t rank, uint32_t thread) {
    struct section brief = sim_lock_at_home;
    (void)thread;
    brief.timeout_ns = rank == 0 ? FOREVER : 300;
    sim_lock_section(state, rank, &brief);
    brief.timeout_ns = rank == 1 ? 0 : 500;
    sim_lock_section(state, rank, &brief);
    sim_lock_section(state, rank, &sim_lock_at_home);
}

LOCK_CASE(lock_timed, .name = "timed",
          .about = "some acquires time out, and later resume their place in the queue", .nodes = 3,
          .threads = 1, .body = timed_body, .after = home_after);

/* A holder on node 2 that gets -EOWNERDEAD repairs nothing: then, and only then, the lock is lost
 * for all. */
static void careless_body(void *state, uint32_t rank, uint32_t thread) {
    struct section mine = sim_lock_at_home;
    (void)thread;
    mine.careless = rank == 2;
    sim_lock_section(state, rank, &mine);
    sim_lock_section(state, rank, &mine);
}

LOCK_CASE(lock_careless, .name = "careless",
          .about = "a holder with -EOWNERDEAD repairs nothing: the lock is lost for all", .nodes = 4,
          .threads = 1, .body = careless_body, .after = home_after);

static void careless_threads_body(void *state, uint32_t rank, uint32_t thread) {
    struct section mine = sim_lock_at_home;
    mine.careless = rank == 1 && thread == 0;
    sim_lock_section(state, rank, &mine);
    sim_lock_section(state, rank, &mine);
}

LOCK_CASE(lock_careless_threads, .name = "careless_threads",
          .about = "a holder with -EOWNERDEAD repairs nothing; a thread of its node waits", .nodes = 3,
          .threads = 2, .body = careless_threads_body, .after = home_after, .fault_first = 2);

/* Node 2 fails in its section with a write in flight to a node that has not detected the failure.
 * The write must not land in the next holder's section. */
static bool is_inside(void *ctx) {
    return ((const struct lock_state *)ctx)->last != 0 || sim_any_out();
}

static void zombie_body(void *state, uint32_t rank, uint32_t thread) {
    struct lock_state *s = state;
    (void)thread;
    if (rank == 2 && sim_lock_acquire(s, rank, FOREVER) == 0) {
        sim_lock_enter(s, rank);
        (void)sim_lock_increment(s, rank, sim_lock_elsewhere.home, false);
        for (uint32_t turns = sim_choose(16); turns > 0; turns--)
            sim_point("before the crash");
        sim_crash(rank);
        sim_point("crash");
    }
    if (rank == 0) {
        sim_until(is_inside, s, "wait until node 2 holds the lock");
        sim_lock_section(s, rank, &sim_lock_elsewhere);
        sim_lock_section(s, rank, &sim_lock_elsewhere);
    }
}

LOCK_CASE(lock_zombie, .name = "zombie_write", .about = "a holder fails with its last write in flight",
          .nodes = 3, .threads = 1, .body = zombie_body, .after = elsewhere_after, .has_own_fault = true);
