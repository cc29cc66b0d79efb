/* lock_release.c - the lock when operations of a release time out or cannot be posted.
 * Node SLOW releases, while all nodes are up. A release that returns -EAGAIN leaves the lock held. */
#include "sim/cases/lock.h"

void sim_lock_release_delayed(struct lock_state *s) {
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
        sim_lock_pair_body(state, rank, thread);
        return;
    }
    int rc = sim_lock_acquire(s, SLOW, FOREVER);
    sim_require(rc == 0, "acquire: %d (%s)", rc, remo_last_error());
    sim_lock_enter(s, SLOW);
    (void)sim_lock_increment(s, SLOW, HOME, false);
    sim_lock_leave(s, SLOW);
    sim_lock_release_delayed(s);
}

static void slow_pair_after(void *state, uint32_t rank) {
    if (rank != SLOW)
        sim_lock_section(state, rank, &sim_lock_at_home);
}

LOCK_CASE(lock_slow_pair, .name = "slow_pair",
          .about = "an operation of a release with a pair fence takes effect after its timeout", .nodes = 3,
          .threads = 1, .body = slow_pair_body, .after = slow_pair_after, .has_own_fault = true);

/* The release cannot be posted while a write of the section is in flight. Without the release no operation
 * orders that write before the next holder's, so the lock is still held until the write is placed. */
static void unplaced_body(void *state, uint32_t rank, uint32_t thread) {
    struct lock_state *s = state;
    if (rank != SLOW) {
        sim_lock_pair_body(state, rank, thread);
        return;
    }
    int rc = sim_lock_acquire(s, SLOW, FOREVER);
    sim_require(rc == 0, "acquire: %d (%s)", rc, remo_last_error());
    sim_lock_enter(s, SLOW);
    sim_delay(SLOW, 1, 1); /* a read, then the write */
    (void)sim_lock_increment(s, SLOW, HOME, false);
    sim_fail_next(SIM_FAIL_POST, SLOW, 0, 1);
    rc = remo_lock_release(s->locks[SLOW], 0, REMO_FENCE_PAIR);
    sim_require(rc == -EAGAIN || !sim_delay_hit(), "release: %d (%s) while a write is in flight", rc,
                remo_last_error());
    sim_delay_end();
    sim_fail_next(SIM_FAIL_POST, SLOW, 0, 0); /* the fence before the release may have failed instead */
    sim_lock_leave(s, SLOW);
    while (rc == -EAGAIN)
        rc = remo_lock_release(s->locks[SLOW], 0, REMO_FENCE_PAIR);
    sim_require(rc == 0 || !sim_delay_hit(), "release again: %d (%s)", rc, remo_last_error());
}

LOCK_CASE(lock_unplaced, .name = "unplaced", .needs_flight = true,
          .about = "a release cannot be posted while a write of the section is in flight", .nodes = 3,
          .threads = 1, .body = unplaced_body, .after = slow_pair_after, .has_own_fault = true);

/* A release times out, so it may still take effect. Until then a release without a fence does not end the
 * ticket either: the home word does not show the outcome yet. */
static void unsure_body(void *state, uint32_t rank, uint32_t thread) {
    struct lock_state *s = state;
    if (rank != SLOW) {
        sim_lock_turns_body(state, rank, thread);
        return;
    }
    int rc = sim_lock_acquire(s, SLOW, FOREVER);
    sim_require(rc == 0, "acquire: %d (%s)", rc, remo_last_error());
    sim_delay(SLOW, 0, 1);
    rc = remo_lock_release(s->locks[SLOW], 0, REMO_FENCE_PAIR);
    sim_require(rc == -EAGAIN, "release: %d (%s) while it is in flight", rc, remo_last_error());
    rc = remo_lock_release(s->locks[SLOW], 0, REMO_FENCE_NONE);
    sim_require(rc == -EAGAIN, "release again: %d (%s) while the first is in flight", rc, remo_last_error());
    sim_delay_end();
    while (rc == -EAGAIN)
        rc = remo_lock_release(s->locks[SLOW], 0, REMO_FENCE_NONE);
    sim_require(rc == 0, "release at last: %d (%s)", rc, remo_last_error());
}

LOCK_CASE(lock_unsure, .name = "unsure", .needs_flight = true,
          .about = "a release without a fence follows one that timed out", .nodes = 3, .threads = 1,
          .body = unsure_body, .after = sim_lock_take_after, .has_own_fault = true);
