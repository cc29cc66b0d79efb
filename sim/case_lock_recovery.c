/* case_lock_recovery.c - the lock when operations time out and take effect later, or several nodes fail.
 * One node is slow: its operations are delayed while all nodes are up. */
#include "sim/case_lock.h"

#define SLOW 2u /* the node whose operation is delayed */

/* Returns false after the timeout of a delayed operation: node SLOW then holds nothing. */
static bool take_delayed(struct lock_state *s, uint64_t timeout_ns) {
    int rc = sim_lock_acquire(s, SLOW, timeout_ns);
    if (rc != 0 && rc != -EOWNERDEAD) {
        sim_require(rc == -ETIMEDOUT && (timeout_ns != FOREVER || sim_delay_hit()), "acquire: %d (%s)", rc,
                    remo_last_error());
        return !sim_delay_hit();
    }
    sim_lock_enter(s, SLOW);
    sim_point("inside");
    if (rc == -EOWNERDEAD)
        sim_lock_repair(s, SLOW, false);
    sim_lock_leave(s, SLOW);
    rc = remo_lock_release(s->locks[SLOW], 0, REMO_FENCE_NONE);
    sim_require(rc == 0 || (rc == -ETIMEDOUT && sim_delay_hit()), "release: %d (%s)", rc, remo_last_error());
    return rc == 0;
}

/* One operation of a node is delayed beyond its timeout, while the home is up. It takes effect during
 * the recount or after it. The node does not use the lock again. */
static void slow_body(void *state, uint32_t rank, uint32_t thread) {
    if (rank != SLOW) {
        sim_lock_turns_body(state, rank, thread);
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
        sim_lock_take(state, rank, FOREVER);
}

LOCK_CASE(lock_slow_none, .name = "slow_none",
          .about = "an operation of an acquire or a release takes effect after its timeout", .nodes = 3,
          .threads = 1, .body = slow_body, .after = slow_after, .has_own_fault = true);

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
        sim_lock_pair_body(state, rank, thread);
        return;
    }
    int rc = sim_lock_acquire(s, SLOW, FOREVER);
    sim_require(rc == 0, "acquire: %d (%s)", rc, remo_last_error());
    sim_lock_enter(s, SLOW);
    (void)sim_lock_increment(s, SLOW, HOME, false);
    sim_lock_leave(s, SLOW);
    release_delayed(s);
}

static void slow_pair_after(void *state, uint32_t rank) {
    if (rank != SLOW)
        sim_lock_section(state, rank, &sim_lock_at_home);
}

LOCK_CASE(lock_slow_pair, .name = "slow_pair",
          .about = "an operation of a release with a pair fence takes effect after its timeout", .nodes = 3,
          .threads = 1, .body = slow_pair_body, .after = slow_pair_after, .has_own_fault = true);
