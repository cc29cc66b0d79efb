/* lock_ahead.c - the lock when a holder has a hint about the next waiter: one step ends its ticket and grants
 * the next. Each section lasts until all other nodes wait, and the holder has read their queue words. */
#include "sim/cases/lock.h"

#define PAUSE_NS 400u /* longer than the operations before a wait */

static int acquire_and_wait(struct lock_state *s, uint32_t rank, uint64_t timeout_ns) {
    int rc = sim_lock_acquire(s, rank, timeout_ns);
    if (rc != 0 && rc != -EOWNERDEAD)
        return rc;
    sim_lock_enter(s, rank);
    if (rc == -EOWNERDEAD)
        sim_lock_repair(s, rank, false);
    remo__pause(s->nodes[rank], remo__deadline(PAUSE_NS));
    sim_lock_leave(s, rank);
    return 0;
}

static void known_section(struct lock_state *s, uint32_t rank, uint64_t timeout_ns) {
    int rc = acquire_and_wait(s, rank, timeout_ns);
    if ((rc == -ETIMEDOUT && timeout_ns != FOREVER) || sim_excused(rank, HOME, rc))
        return;
    sim_require(rc == 0, "acquire: %d (%s)", rc, remo_last_error());
    do
        rc = remo_lock_release(s->locks[rank], 0, REMO_FENCE_PAIR);
    while (rc == -EAGAIN);
    sim_require(rc == 0 || sim_excused(rank, HOME, rc), "release: %d (%s)", rc, remo_last_error());
}

static void known_body(void *state, uint32_t rank, uint32_t thread) {
    (void)thread;
    for (uint32_t i = 0; i < 3; i++)
        known_section(state, rank, FOREVER);
}

static void known_after(void *state, uint32_t rank) {
    known_section(state, rank, FOREVER);
}

LOCK_CASE(lock_known, .name = "known", .needs_flight = true, .about = "releases that know the next waiter",
          .nodes = 4, .threads = 1, .body = known_body, .after = known_after);

LOCK_CASE(lock_known_continues, .name = "known_continues", .needs_flight = true,
          .about = "as known; a node continues after an operation with unknown outcome", .nodes = 4,
          .threads = 1, .body = known_body, .after = known_after, .continues_after_failure = true);

/* Acquires time out between the moment when the holder reads the queue word and its release. */
static void known_timed_body(void *state, uint32_t rank, uint32_t thread) {
    (void)thread;
    for (uint32_t i = 0; i < 3; i++)
        known_section(state, rank, rank == 0 ? FOREVER : (1 + sim_choose(8)) * PAUSE_NS / 2);
}

LOCK_CASE(lock_known_timed, .name = "known_timed", .needs_flight = true,
          .about = "as known; some acquires time out", .nodes = 4, .threads = 1, .body = known_timed_body,
          .after = known_after);

/* One operation of a release takes effect after its timeout. */
static void known_slow_body(void *state, uint32_t rank, uint32_t thread) {
    struct lock_state *s = state;
    if (rank != SLOW) {
        known_body(state, rank, thread);
        return;
    }
    int rc = acquire_and_wait(s, SLOW, FOREVER);
    sim_require(rc == 0, "acquire: %d (%s)", rc, remo_last_error());
    sim_lock_release_delayed(s);
}

static void known_slow_after(void *state, uint32_t rank) {
    if (rank != SLOW)
        known_section(state, rank, FOREVER);
}

LOCK_CASE(lock_known_slow, .name = "known_slow", .needs_flight = true,
          .about = "as known; an operation of a release takes effect after its timeout", .nodes = 4,
          .threads = 1, .body = known_slow_body, .after = known_slow_after, .has_own_fault = true);

/* ---- a release that ends after its first half ---- */

#define BLOCKED 3u    /* a node that delays its answer to the home */
#define TURNS_MAX 40u /* points, for a change at another node */
#define OTHER_NONCE 9u

static void announce(struct lock_state *s) {
    s->posed = true;
    for (uint32_t node = 0; node < sim_world->nodes_count; node++)
        sim_changed(node);
}

static uint32_t hold(struct lock_state *s) {
    sim_require(sim_lock_acquire(s, SLOW, FOREVER) == 0, "acquire: %s", remo_last_error());
    return (uint32_t)sim_lock_state_of(s, SLOW);
}

/* Execute the half of a release of node SLOW that makes the queue word of the next ticket 0. */
static void clear_next(const struct lock_state *s, uint32_t ticket, uint64_t arrived) {
    uint64_t old = 0;
    int rc = remo__lock_swap(s->locks[SLOW], 0, remo__thread(s->nodes[SLOW]),
                             remo__lock_queue_word(s->locks[SLOW], ticket + 1), arrived, 0, &old);
    sim_require(rc == 0 && old == arrived, "the next node does not wait: %d, 0x%llx", rc,
                (unsigned long long)old);
}

static void add(const struct lock_state *s, uint32_t word, uint64_t addend) {
    int rc = remo__lock_add(s->locks[SLOW], 0, remo__thread(s->nodes[SLOW]), word, addend, NULL, NULL);
    sim_require(rc == 0, "add: %d", rc);
}

enum half { REPEATED, ABANDONED, GRANTED };

/* Node 1 waits, and node SLOW has made its queue word 0. Then the release has an unknown outcome: SLOW
 * repeats it, or the home ends the ticket, or the home has ended it and granted the next one without a
 * claim. */
static void half_body(void *state, uint32_t rank, uint32_t thread) {
    struct lock_state *s = state;
    (void)thread;
    if (rank == 1) {
        sim_until(sim_lock_is_posed, s, "wait until node 2 holds the lock");
        sim_lock_take_soon(s, rank);
    }
    if (rank != SLOW)
        return;
    struct remo__lock_local *local = &s->locks[SLOW]->locals[0];
    uint32_t ticket = hold(s);
    announce(s);
    sim_lock_until_state(s, 1, REMO__LOCK_WAITING);
    uint64_t waiter = sim_lock_state_of(s, 1);
    bool waits = remo__state_kind(waiter) == REMO__LOCK_WAITING;
    enum half half = (enum half)sim_choose(3);
    if (waits)
        clear_next(s, ticket, remo__queue_word_arrive(1, remo__state_nonce(waiter)));
    if (!waits || half == REPEATED) {
        local->marks |= waits ? REMO__LOCK_UNSURE | REMO__LOCK_SWAPPED : 0;
        int rc = remo_lock_release(s->locks[SLOW], 0, REMO_FENCE_NONE);
        sim_require(rc == 0, "release: %d (%s)", rc, remo_last_error());
        return;
    }
    if (half == GRANTED) {
        add(s, 0, remo__word_step(ticket));
        add(s, remo__lock_queue_word(s->locks[SLOW], ticket + 1),
            remo__queue_word_grant(REMO__GRANTER_RECOVERY, 0));
    }
    remo__lock_end(s->locks[SLOW], 0, -EIO, remo__state_nonce(sim_lock_state_of(s, SLOW)), ticket);
}

LOCK_CASE(lock_known_half, .name = "known_half", .needs_flight = true,
          .about = "a release has cleared the queue word of the next waiter, and fails", .nodes = 3,
          .threads = 1, .body = half_body, .after = sim_lock_take_after, .has_own_fault = true);

/* Node 1 waits for the next ticket. In its release, node SLOW resets the queue word of node 1 and fails to
 * advance `serving`, and a round skips SLOW's ticket. The home grants at the empty word. Then node 1 crashes
 * while it holds the lock. */
static void dead_body(void *state, uint32_t rank, uint32_t thread) {
    struct lock_state *s = state;
    (void)thread;
    if (rank == 1) {
        sim_until(sim_lock_is_posed, s, "wait until node 2 holds the lock");
        int rc = sim_lock_acquire(s, rank, FOREVER);
        sim_require(rc == 0 || rc == -EOWNERDEAD, "acquire: %d (%s)", rc, remo_last_error());
        if (!s->ended) {
            (void)remo_lock_release(s->locks[rank], 0, REMO_FENCE_NONE);
            return;
        }
        sim_lock_enter(s, rank);
        sim_crash(rank);
        sim_point("crash");
    }
    if (rank != SLOW)
        return;
    uint32_t ticket = hold(s);
    announce(s);
    sim_lock_until_state(s, 1, REMO__LOCK_WAITING);
    uint64_t waiter = sim_lock_state_of(s, 1);
    if (remo__state_kind(waiter) != REMO__LOCK_WAITING) {
        (void)remo_lock_release(s->locks[SLOW], 0, REMO_FENCE_NONE);
        return;
    }
    s->ended = true;
    add(s, remo__lock_queue_word(s->locks[SLOW], ticket), REMO__QUEUE_WORD_SKIP);
    clear_next(s, ticket, remo__queue_word_arrive(1, remo__state_nonce(waiter)));
    remo__lock_end(s->locks[SLOW], 0, -EIO, remo__state_nonce(sim_lock_state_of(s, SLOW)), ticket);
}

static void dead_after(void *state, uint32_t rank) {
    struct lock_state *s = state;
    int rc = sim_lock_acquire(s, rank, FOREVER);
    sim_require(s->holder != 1 || sim_out(rank) || rc == -EOWNERDEAD,
                "node 1 failed in its section, and node %u gets %d", rank, rc);
    s->holder = -1;
    if (rc == -EOWNERDEAD)
        (void)remo_lock_consistent(s->locks[rank], 0);
    (void)remo_lock_release(s->locks[rank], 0, REMO_FENCE_NONE);
}

LOCK_CASE(lock_known_dead, .name = "known_dead", .needs_flight = true,
          .about = "a waiter to which the home sends its grant crashes in its section", .nodes = 3,
          .threads = 1, .body = dead_body, .after = dead_after, .has_own_fault = true);

static bool has_answered(const struct lock_state *s, uint32_t rank, uint32_t round) {
    return s->locks[rank]->reports[0].round != round && !s->locks[rank]->reports[0].is_requested;
}

static bool has_skip(const struct lock_state *s, uint32_t ticket) {
    uint64_t word = 0;
    struct remo_lock *lock = s->locks[SLOW];
    int rc = remo__lock_add(lock, 0, remo__thread(s->nodes[SLOW]), remo__lock_queue_word(lock, ticket), 0,
                            &word, NULL);
    return rc == 0 && (word & REMO__QUEUE_WORD_SKIP) != 0;
}

/* Node SLOW makes the queue word of a waiter 0 after it has answered the home. The home skips the ticket of
 * that waiter, which no node claims, after that. Node BLOCKED delays the end of the round until then. */
static void skipped_body(void *state, uint32_t rank, uint32_t thread) {
    struct lock_state *s = state;
    struct remo_lock *lock = s->locks[rank];
    (void)thread;
    if (rank == HOME) {
        sim_until(sim_lock_is_posed, s, "wait until node 2 holds the lock");
        remo__lock_recovery_start(lock);
    }
    if (rank != SLOW)
        return;
    uint32_t ticket = hold(s), round = s->locks[SLOW]->reports[0].round;
    uint64_t arrived = remo__queue_word_arrive(1, OTHER_NONCE), free_state = 0;
    struct remo_lock *blocked = s->locks[BLOCKED];
    sim_require(remo__lock_make_busy(blocked, &blocked->locals[0], &free_state), "node 3 is not free");
    add(s, 0, REMO__LOCK_DRAW);
    add(s, remo__lock_queue_word(lock, ticket + 1), arrived);
    announce(s);
    for (uint32_t turns = TURNS_MAX; turns > 0 && !has_answered(s, SLOW, round); turns--)
        sim_lock_until_idle(s, SLOW);
    sim_require(has_answered(s, SLOW, round), "node 2 does not answer");
    atomic_store(&lock->locals[0].state, remo__state_busy(sim_lock_state_of(s, SLOW)));
    clear_next(s, ticket, arrived);
    remo__lock_set_state(blocked, &blocked->locals[0], free_state);
    for (uint32_t turns = TURNS_MAX; turns > 0 && !has_skip(s, ticket + 1); turns--)
        sim_lock_until_idle(s, SLOW);
    sim_require(has_skip(s, ticket + 1), "the home does not skip the ticket");
    add(s, 0, remo__word_step(ticket));
    remo__lock_end(lock, 0, 0, remo__state_nonce(sim_lock_state_of(s, SLOW)), ticket);
}

static void skipped_after(void *state, uint32_t rank) {
    uint64_t begin_ns = remo__now_ns();
    sim_lock_take(state, rank, FOREVER);
    sim_require(remo__now_ns() - begin_ns < REMO__LOCK_REMIND_NS, "the skipped ticket waited for a reminder");
}

LOCK_CASE(lock_known_skipped, .name = "known_skipped", .needs_flight = true,
          .about = "the home skips a ticket while a release grants it", .nodes = 4, .threads = 1,
          .body = skipped_body, .after = skipped_after, .has_own_fault = true);
