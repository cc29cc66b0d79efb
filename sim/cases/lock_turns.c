/* lock_turns.c - the lock alone, without data: turns, laps of the queue words, hand-overs, and acquires
 * that may not wait. */
#include "sim/cases/lock.h"

#define BOUNDS_TURNS 12u /* scheduling points of an acquire that waits only for completions */

void sim_lock_take(struct lock_state *s, uint32_t rank, uint64_t timeout_ns) {
    int rc = sim_lock_acquire(s, rank, timeout_ns);
    if ((rc == -ETIMEDOUT && timeout_ns != FOREVER) || (rc != -EOWNERDEAD && sim_excused(rank, HOME, rc)))
        return;
    sim_require(rc == 0 || rc == -EOWNERDEAD, "acquire: %d (%s)", rc, remo_last_error());
    sim_lock_enter(s, rank);
    sim_point("inside");
    if (rc == -EOWNERDEAD)
        sim_lock_repair(s, rank, false);
    sim_lock_leave(s, rank);
    rc = remo_lock_release(s->locks[rank], 0, REMO_FENCE_NONE);
    sim_require(rc == 0 || sim_excused(rank, HOME, rc), "release: %d (%s)", rc, remo_last_error());
}

void sim_lock_take_soon(struct lock_state *s, uint32_t rank) {
    uint64_t begin_ns = remo__now_ns();
    sim_lock_take(s, rank, FOREVER);
    sim_require(remo__now_ns() - begin_ns < REMO__LOCK_REMIND_NS, "the grant waited for a reminder");
}

void sim_lock_turns_body(void *state, uint32_t rank, uint32_t thread) {
    (void)thread;
    for (uint32_t i = 0; i < 3; i++)
        sim_lock_take(state, rank, FOREVER);
}

void sim_lock_take_after(void *state, uint32_t rank) {
    sim_lock_take(state, rank, FOREVER);
}

LOCK_CASE(lock_turns, .name = "turns", .about = "three acquires of each of four nodes, without data",
          .nodes = 4, .threads = 1, .body = sim_lock_turns_body, .after = sim_lock_take_after);

LOCK_CASE(lock_failures, .name = "failures",
          .about = "as turns; a node continues after an operation with unknown outcome", .nodes = 4,
          .threads = 1, .body = sim_lock_turns_body, .after = sim_lock_take_after,
          .continues_after_failure = true);

static void laps_body(void *state, uint32_t rank, uint32_t thread) {
    (void)thread;
    for (uint32_t i = 0; i < 8; i++)
        sim_lock_take(state, rank, FOREVER);
}

LOCK_CASE(lock_laps, .name = "laps", .about = "many more acquires of two nodes than the lock has grant words",
          .nodes = 2, .threads = 1, .body = laps_body, .after = sim_lock_take_after);

/* Two threads of node 1 acquire the lock all the time; node 0 must get it now and then. */
static void handover_body(void *state, uint32_t rank, uint32_t thread) {
    uint32_t times = rank == 0 ? 2 * (thread == 0) : REMO_LOCK_HANDOVERS_MAX / 2 + 4;
    for (uint32_t i = 0; i < times; i++)
        sim_lock_take(state, rank, FOREVER);
}

LOCK_CASE(lock_handover, .name = "hand_over",
          .about = "threads of a node that hand over without end let other nodes in", .nodes = 2,
          .threads = 2, .body = handover_body, .after = sim_lock_take_after);

/* With a timeout of 0 an acquire waits only for the network: a bounded number of operations and
 * turns, even under starvation. */
static void try_body(void *state, uint32_t rank, uint32_t thread) {
    struct lock_state *s = state;
    (void)thread;
    for (uint32_t i = 0; i < 3; i++) {
        struct sim_bound bound = sim_bound_begin();
        int rc = sim_lock_acquire(s, rank, 0);
        sim_bound_end(&bound, "an acquire with a timeout of 0", 4, BOUNDS_TURNS);
        if (rc != 0 && rc != -EOWNERDEAD)
            continue;
        sim_lock_enter(s, rank);
        if (rc == -EOWNERDEAD)
            sim_lock_repair(s, rank, false);
        sim_lock_leave(s, rank);
        (void)remo_lock_release(s->locks[rank], 0, REMO_FENCE_NONE);
    }
}

LOCK_CASE(lock_tries, .name = "tries",
          .about = "acquires that may not wait end within a bound of operations and turns", .nodes = 3,
          .threads = 1, .body = try_body, .after = sim_lock_take_after);
