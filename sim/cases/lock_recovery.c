/* lock_recovery.c - the lock when operations time out and take effect later, or several nodes fail.
 * One node is slow: its operations are delayed while all nodes are up. */
#include "sim/cases/lock.h"

#include <string.h>

#define SLOW 2u /* the node whose operation is delayed */
#define FAILURES 3u
#define OPENS_BEFORE 1000u /* points, for a flush to end */
#define ORPHANS_MAX 9u     /* more than three nodes have queue words */
#define ORPHAN_WAIT_NS 500u
#define WAITS_BEFORE 100u /* points, for node 1 to wait */
#define UNSENT_MAX 24u    /* a node sends at most this many messages in its rounds */
#define FAILS_BEFORE 100u /* points at most, before a node fails */

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

/* ---- one step under test ---- */

static bool is_posed(void *ctx) {
    return ((const struct lock_state *)ctx)->posed;
}

static bool has_ended(void *ctx) {
    return ((const struct lock_state *)ctx)->ended;
}

static uint64_t word_of_state(const struct lock_state *s, uint32_t rank) {
    return atomic_load(&s->locks[rank]->locals[0].state);
}

/* Leave an operation of the node in flight until sim_delay_end: the flush of a grant. */
static void abandon_flush(const struct lock_state *s) {
    struct remo__thread *thread = remo__thread(s->nodes[SLOW]);
    sim_delay(SLOW, 0, 1);
    sim_require(remo__op_flush(thread, &thread->stats[0], 1, s->nodes[SLOW]->fabric->private_bytes) == 0,
                "flush: %s", remo_last_error());
}

/* Several acquires fail while an operation is in flight. Each leaves another UNSETTLED word. Otherwise a
 * thread that read the first word could make the last one open, while the operation is in flight. */
static void unsettled_body(void *state, uint32_t rank, uint32_t thread) {
    struct lock_state *s = state;
    uint64_t words[FAILURES];
    (void)thread;
    for (uint32_t i = 0; rank == SLOW && i < FAILURES; i++) {
        abandon_flush(s);
        sim_fail_next(SIM_FAIL_POST, SLOW, 0, 1);
        int rc = sim_lock_acquire(s, SLOW, FOREVER);
        sim_require(rc == -EIO, "acquire: %d (%s)", rc, remo_last_error());
        words[i] = word_of_state(s, SLOW);
        sim_require(remo__state_kind(words[i]) == REMO__LOCK_UNSETTLED, "the state is settled");
        for (uint32_t earlier = 0; earlier < i; earlier++)
            sim_require(words[earlier] != words[i], "two UNSETTLED words are 0x%llx",
                        (unsigned long long)words[i]);
        sim_delay_end();
        for (uint32_t turns = OPENS_BEFORE; turns > 0 && word_of_state(s, SLOW) == words[i]; turns--) {
            sim_point("before the flush ends");
            remo__lock_reopen(s->locks[SLOW], 0);
        }
    }
}

LOCK_CASE(lock_unsettled, .name = "unsettled",
          .about = "several acquires of a node fail while an operation is in flight", .nodes = 3,
          .threads = 1, .body = unsettled_body, .after = sim_lock_take_after, .has_own_fault = true);

/* The queue word may need another reset at the release, and a flush of the node is in flight. The
 * release waits for that flush, and succeeds. */
static void slow_reset_body(void *state, uint32_t rank, uint32_t thread) {
    struct lock_state *s = state;
    (void)thread;
    if (rank == 1) {
        sim_until(is_posed, s, "wait until the flush is in flight");
        for (uint32_t turns = sim_choose(40); turns > 0; turns--)
            sim_point("before the flush ends");
        sim_delay_end();
    }
    if (rank != SLOW)
        return;
    sim_require(sim_lock_acquire(s, SLOW, FOREVER) == 0, "acquire: %s", remo_last_error());
    sim_lock_enter(s, SLOW);
    s->locks[SLOW]->locals[0].marks |= REMO__LOCK_UNRESET; /* as after a reset that failed */
    abandon_flush(s);
    s->posed = true;
    sim_changed(1);
    sim_lock_leave(s, SLOW);
    int rc = remo_lock_release(s->locks[SLOW], 0, REMO_FENCE_NONE);
    sim_require(rc == 0, "release: %d (%s)", rc, remo_last_error());
}

LOCK_CASE(lock_slow_reset, .name = "slow_reset",
          .about = "a release repeats a reset while an operation is in flight", .nodes = 3, .threads = 1,
          .body = slow_reset_body, .after = sim_lock_take_after, .has_own_fault = true);

/* The write of a grant word is delayed beyond its timeout, and the first attempts to flush it fail. It
 * must not overwrite a later grant word of the waiter. */
static bool is_waiting(const struct lock_state *s, uint32_t rank) {
    return remo__state_kind(word_of_state(s, rank)) == REMO__LOCK_WAITING;
}

/* Node SLOW acquires the lock, and pauses until node 1 waits for it, usually. The caller releases it. */
static void hold_until_waiting(struct lock_state *s) {
    sim_require(sim_lock_acquire(s, SLOW, FOREVER) == 0, "acquire: %s", remo_last_error());
    sim_lock_enter(s, SLOW);
    s->posed = true;
    sim_changed(0), sim_changed(1);
    for (uint32_t turns = WAITS_BEFORE; turns > 0 && !is_waiting(s, 1); turns--)
        sim_point("wait until node 1 waits");
    sim_lock_leave(s, SLOW);
}

static void slow_grant_body(void *state, uint32_t rank, uint32_t thread) {
    struct lock_state *s = state;
    if (rank != SLOW) {
        sim_until(is_posed, s, "wait until node 2 holds the lock");
        sim_lock_turns_body(state, rank, thread);
        return;
    }
    hold_until_waiting(s);
    sim_delay(SLOW, 2, 1); /* release, grant, write */
    sim_fail_next(SIM_FAIL_POST, SLOW, 3, 1 + sim_choose(2));
    int rc = remo_lock_release(s->locks[SLOW], 0, REMO_FENCE_NONE);
    sim_require(rc == 0 || sim_delay_hit(), "release: %d (%s)", rc, remo_last_error());
    for (uint32_t turns = sim_choose(40); turns > 0; turns--)
        sim_point("before the write takes effect");
    sim_delay_end();
}

LOCK_CASE(lock_slow_grant, .name = "slow_grant",
          .about = "a grant takes effect after its timeout, and its flush cannot be posted at first",
          .nodes = 3, .threads = 1, .body = slow_grant_body, .after = slow_after, .has_own_fault = true);

/* The connection of an operation of a release is lost, while all nodes are up: of the release itself, of the
 * grant at the home, or of the grant word. The next waiter gets the lock nevertheless. */
static void lost_release_body(void *state, uint32_t rank, uint32_t thread) {
    struct lock_state *s = state;
    if (rank != SLOW) {
        sim_until(is_posed, s, "wait until node 2 holds the lock");
        sim_lock_turns_body(state, rank, thread);
        return;
    }
    hold_until_waiting(s);
    uint32_t lost = sim_choose(3);
    sim_lose_next(SLOW, lost, 1);
    int rc = remo_lock_release(s->locks[SLOW], 0, REMO_FENCE_NONE);
    sim_require(rc == 0 || (rc == -EHOSTDOWN && lost < 2), "release: %d (%s)", rc, remo_last_error());
    sim_lose_next(SLOW, 0, 0);
}

LOCK_CASE(lock_lost_release, .name = "lost_release",
          .about = "the connection of an operation of a release is lost", .nodes = 3, .threads = 1,
          .body = lost_release_body, .after = sim_lock_take_after, .has_own_fault = true);

/* The connection of the reset of a queue word is lost. The release repeats the reset, so later tickets can
 * use the word. */
static void lost_reset_body(void *state, uint32_t rank, uint32_t thread) {
    struct lock_state *s = state;
    if (rank == SLOW) {
        hold_until_waiting(s);
        if (is_waiting(s, 1))
            sim_lose_next(1, 0, 1); /* its next operation is the reset */
        sim_require(remo_lock_release(s->locks[SLOW], 0, REMO_FENCE_NONE) == 0, "release: %s",
                    remo_last_error());
        return;
    }
    sim_until(is_posed, s, "wait until node 2 holds the lock");
    for (uint32_t laps = 0; laps < 2; laps++)
        sim_lock_turns_body(state, rank, thread);
}

LOCK_CASE(lock_lost_reset, .name = "lost_reset", .about = "the connection of a reset is lost", .nodes = 3,
          .threads = 1, .body = lost_reset_body, .after = sim_lock_take_after, .has_own_fault = true);

/* A release of node SLOW is lost, so a waiter depends on a round of the home. One message of the round cannot
 * be sent, by any node. The reminder of a waiting node makes the sender repeat it. */
static void unsent_body(void *state, uint32_t rank, uint32_t thread) {
    struct lock_state *s = state;
    if (rank != SLOW) {
        sim_until(is_posed, s, "wait until node 2 holds the lock");
        sim_lock_turns_body(state, rank, thread);
        return;
    }
    hold_until_waiting(s);
    sim_lose_next(SLOW, sim_choose(3), 1);
    sim_fail_next(SIM_FAIL_ALLOCATION, sim_choose(3), sim_choose(UNSENT_MAX), 1);
    int rc = remo_lock_release(s->locks[SLOW], 0, REMO_FENCE_NONE);
    sim_require(rc == 0 || rc == -EHOSTDOWN, "release: %d (%s)", rc, remo_last_error());
    sim_lose_next(SLOW, 0, 0);
}

LOCK_CASE(lock_unsent, .name = "unsent", .about = "a message of a search for orphaned tickets cannot be sent",
          .nodes = 3, .threads = 1, .body = unsent_body, .after = slow_after, .has_own_fault = true);

/* Node 1 holds the lock while all draws of another node return an error, but are applied. The orphaned
 * tickets never fill the wait queue, and the lock works after the release. */
static void orphans_body(void *state, uint32_t rank, uint32_t thread) {
    struct lock_state *s = state;
    (void)thread;
    if (rank == 1) {
        sim_require(sim_lock_acquire(s, rank, FOREVER) == 0, "acquire: %s", remo_last_error());
        sim_lock_enter(s, rank);
        s->posed = true;
        sim_changed(SLOW);
        sim_until(has_ended, s, "hold the lock");
        sim_lock_leave(s, rank);
        sim_require(remo_lock_release(s->locks[rank], 0, REMO_FENCE_NONE) == 0, "release: %s",
                    remo_last_error());
    }
    if (rank != SLOW)
        return;
    sim_until(is_posed, s, "wait until node 1 holds the lock");
    bool loses = sim_choose(2) == 0;
    for (uint32_t i = 0; i < ORPHANS_MAX; i++) {
        uint32_t skip = i > 0; /* of a guarded draw, the second operation */
        if (loses)
            sim_lose_next(SLOW, skip, 1);
        else
            sim_fail_next(SIM_FAIL_COMPLETION, SLOW, skip, 1);
        int rc = sim_lock_acquire(s, SLOW, ORPHAN_WAIT_NS);
        sim_require(rc == (loses ? -EHOSTDOWN : -EIO) || rc == -ETIMEDOUT, "acquire: %d (%s)", rc,
                    remo_last_error());
    }
    sim_fail_next(SIM_FAIL_COMPLETION, SLOW, 0, 0);
    sim_lose_next(SLOW, 0, 0);
    s->ended = true;
    sim_changed(1);
}

LOCK_CASE(lock_orphans, .name = "orphans",
          .about = "draws of a node fail, but are applied, while another holds the lock", .nodes = 3,
          .threads = 1, .body = orphans_body, .after = sim_lock_take_after, .has_own_fault = true);

/* ---- several events ---- */

/* Return whether the home has ended the ticket of the failed holder. */
static bool is_resolved(const struct lock_state *s) {
    uint64_t word;
    memcpy(&word, s->locks[HOME]->words->own, sizeof word);
    return (uint16_t)word != 0 || remo__word_flags(word) != 0;
}

static uint32_t round_of(const struct lock_state *s, uint32_t rank) {
    return s->locks[rank]->reports[0].round;
}

static bool is_queried(void *ctx) {
    const struct lock_state *s = ctx;
    return round_of(s, 1) != s->round;
}

/* The holder fails. While the home searches, another node requests one recount after the other. The search
 * ends nevertheless. */
static void recounts_body(void *state, uint32_t rank, uint32_t thread) {
    static const uint8_t message[] = {REMO__LOCK_RECOUNT};
    struct lock_state *s = state;
    (void)thread;
    if (rank == SLOW) {
        sim_require(sim_lock_acquire(s, rank, FOREVER) == 0, "acquire: %s", remo_last_error());
        sim_lock_enter(s, rank);
        s->posed = true;
        sim_changed(HOME);
        sim_crash(rank);
        sim_point("crash");
    }
    for (uint32_t i = 0; rank == 1 && i < 2; i++) {
        sim_until(is_queried, s, "wait for a query of the home");
        s->round = round_of(s, 1);
        sim_require(i == 0 || is_resolved(s), "the search began again, and has resolved nothing");
        sim_require(remo_channel_send(remo_lock_channel(s->locks[1]), HOME, message, sizeof message) == 0,
                    "recount: %s", remo_last_error());
    }
    if (rank == HOME) {
        sim_until(is_posed, s, "wait until node 2 holds the lock");
        sim_lock_take(s, rank, FOREVER);
    }
}

LOCK_CASE(lock_recounts, .name = "recounts", .about = "a search for orphaned tickets ends despite RECOUNTs",
          .nodes = 3, .threads = 1, .body = recounts_body, .after = sim_lock_take_after,
          .has_own_fault = true);

/* Nodes 2 and 3 fail, each at any step of its turns. */
static void failures_body(void *state, uint32_t rank, uint32_t thread) {
    if (thread == 0)
        sim_lock_turns_body(state, rank, thread);
    if (thread == 0 || rank < 2)
        return;
    for (uint32_t turns = sim_choose(FAILS_BEFORE); turns > 0; turns--)
        sim_point("before the failure");
    sim_crash(rank);
    sim_point("crash");
}

LOCK_CASE(lock_two_failures, .name = "two_failures", .about = "two of four nodes fail", .nodes = 4,
          .threads = 2, .body = failures_body, .after = sim_lock_take_after, .has_own_fault = true);

/* ---- a close whose operations are not complete ---- */

/* Node SLOW acquires the lock, writes, and releases it, with one of these operations delayed. It then closes
 * the table. Returns after the close; the operation may take effect later. */
static void close_delayed(struct lock_state *s) {
    int rc = sim_lock_acquire(s, SLOW, FOREVER);
    sim_require(rc == 0, "acquire: %d (%s)", rc, remo_last_error());
    sim_lock_enter(s, SLOW);
    sim_delay(SLOW, 1 + sim_choose(3), 1); /* the read of the data is not delayed */
    (void)sim_lock_increment(s, SLOW, sim_lock_elsewhere.home, false);
    sim_lock_leave(s, SLOW);
    s->nodes[SLOW]->op_timeout_ns = 400; /* expires even while other nodes make steps */
    rc = remo_lock_release(s->locks[SLOW], 0, sim_lock_elsewhere.fence);
    sim_require(rc == 0 || rc == -EAGAIN || rc == -ETIMEDOUT, "release: %d (%s)", rc, remo_last_error());
    remo_lock_close(s->locks[SLOW]);
    s->locks[SLOW] = NULL;
}

static void leaving_body(void *state, uint32_t rank, uint32_t thread) {
    (void)thread;
    if (rank != SLOW) {
        sim_lock_section(state, rank, &sim_lock_elsewhere);
        sim_lock_section(state, rank, &sim_lock_elsewhere);
        return;
    }
    close_delayed(state);
    for (uint32_t turns = sim_choose(40); turns > 0; turns--)
        sim_point("before the operation takes effect");
    sim_delay_end();
}

static void leaving_after(void *state, uint32_t rank) {
    if (rank != SLOW)
        sim_lock_section(state, rank, &sim_lock_elsewhere);
}

LOCK_CASE(lock_leaving, .name = "leaving",
          .about = "a node closes the lock; a write or a release of it takes effect after the close",
          .nodes = 3, .threads = 1, .body = leaving_body, .after = leaving_after, .has_own_fault = true);
