/* lock_report.c - the lock when a query of the home arrives while a thread changes the ticket of its node.
 * The state is BUSY then, and the report waits: for one end of BUSY at most. */
#include "remote/slots.h"
#include "sim/cases/lock.h"

#define RECOUNTS 6u
#define TRIES 20u

static struct remo__lock_report *report_of(const struct lock_state *s, uint32_t rank) {
    return &s->locks[rank]->reports[0];
}

/* Return the number of the wait, or 0 if the report does not wait, or has a state. */
static uint64_t wait_of(const struct lock_state *s, uint32_t rank) {
    uint64_t found = atomic_load(&report_of(s, rank)->found);
    return found & REMO__FOUND ? 0 : found;
}

/* A report waits once for each query at most, however often the state changes. */
static void check_waits(const struct lock_state *s, uint32_t rank) {
    const struct remo__lock_report *report = report_of(s, rank);
    sim_require(report->waits <= report->round, "%u waits for a state in %u rounds", report->waits,
                report->round);
}

/* Node SLOW is BUSY in a release until an operation ends, and a query arrives. The operation ends after some
 * time, and time advances only when no node can make a step: the report does not poll. When the release ends,
 * the report continues without a reminder. */
static void report_body(void *state, uint32_t rank, uint32_t thread) {
    struct lock_state *s = state;
    (void)thread;
    if (rank != SLOW)
        sim_until(sim_lock_is_posed, s, "wait until the write is in flight");
    if (rank == HOME) {
        sim_lock_until_state(s, SLOW, REMO__LOCK_BUSY);
        sim_lock_request_recount(s, rank);
    }
    if (rank == 1) {
        sim_lock_until_idle(s, rank);
        sim_delay_end();
    }
    if (rank != SLOW)
        return;
    sim_lock_release_after_write(s);
    sim_lock_until_idle(s, SLOW);
    sim_require(!report_of(s, SLOW)->is_requested, "the report does not continue");
}

LOCK_CASE(lock_report, .name = "report", .about = "a query arrives at a node that waits in a release",
          .nodes = 3, .threads = 1, .body = report_body, .after = sim_lock_take_after, .has_own_fault = true);

/* A thread may be late with a state for an earlier wait, or with a state of another lock. */
static void give_late_states(const struct lock_state *s, uint64_t earlier) {
    struct remo_lock *lock = s->locks[SLOW];
    uint64_t wait = wait_of(s, SLOW);
    if (wait == 0 || earlier == 0)
        return;
    remo__lock_report_give(lock, &lock->locals[0], earlier, remo__state_word(REMO__LOCK_FREE, 0, 0));
    remo__lock_report_resume(lock, &lock->locals[1]);
    sim_require(wait_of(s, SLOW) == wait, "the report takes a state of another wait, or of another lock");
}

/* A table of two locks. */
static void open_two(void *state, struct remo_node *node, uint32_t rank) {
    struct lock_state *s = state;
    struct remo_lock_options options = {.count = 2};
    s->nodes[rank] = node;
    s->holder = -1;
    sim_opened(remo_lock_open(remo_node_root(node), "lock", &options, &s->locks[rank]), "open the locks");
    sim_opened(remo_channel_wait(remo_lock_channel(s->locks[rank]), FOREVER), "wait for the locks");
}

/* As report; node SLOW acquires the lock again at once, and is BUSY until another operation ends. The report
 * does not wait for that one; a report to a later query does. Time advances only when no node can make a
 * step. */
static void hot_body(void *state, uint32_t rank, uint32_t thread) {
    struct lock_state *s = state;
    (void)thread;
    if (rank != SLOW)
        sim_until(sim_lock_is_posed, s, "wait until the write is in flight");
    if (rank == HOME) {
        sim_lock_until_state(s, SLOW, REMO__LOCK_BUSY);
        sim_lock_request_recount(s, rank);
    }
    if (rank == 1) {
        sim_lock_until_idle(s, rank);
        uint32_t round = report_of(s, SLOW)->round;
        uint64_t wait = wait_of(s, SLOW);
        sim_delay_end();
        sim_until(sim_lock_has_ended, s, "wait until node 2 begins its acquire");
        sim_lock_until_idle(s, rank);
        sim_require(wait == 0 || !report_of(s, SLOW)->is_requested || report_of(s, SLOW)->round != round,
                    "the report waits for a second operation");
        sim_lock_request_recount(s, rank);
        sim_lock_until_idle(s, rank);
        give_late_states(s, wait);
        sim_delay_end();
    }
    if (rank != SLOW)
        return;
    sim_lock_release_after_write(s);
    sim_delay(SLOW, 0, 1);
    s->ended = true;
    sim_changed(1);
    sim_lock_take(s, SLOW, FOREVER);
    check_waits(s, SLOW);
}

LOCK_CASE_OPENED(lock_report_hot, open_two, .name = "report_hot",
                 .about = "as report; the node acquires the lock again at once", .nodes = 3, .threads = 1,
                 .body = hot_body, .after = sim_lock_take_after, .has_own_fault = true);

/* The report of node SLOW has a state for an earlier query when another query arrives. The later report does
 * not use it. */
static void again_body(void *state, uint32_t rank, uint32_t thread) {
    struct lock_state *s = state;
    (void)thread;
    if (rank != SLOW) {
        sim_until(sim_lock_is_posed, s, "wait until node 2 holds the lock");
        if (rank == HOME)
            remo__lock_recovery_start(s->locks[HOME]); /* as after a failure: without another query before */
        sim_lock_take(s, rank, FOREVER);
        return;
    }
    sim_require(sim_lock_acquire(s, SLOW, FOREVER) == 0, "acquire: %s", remo_last_error());
    sim_lock_enter(s, SLOW);
    report_of(s, SLOW)->is_requested = true;
    atomic_store(&report_of(s, SLOW)->found, remo__found_of(UINT64_C(1) << REMO__FOUND_WAIT_SHIFT, 0));
    s->posed = true;
    sim_changed(HOME);
    sim_changed(1);
    sim_lock_until_idle(s, SLOW);
    sim_lock_leave(s, SLOW);
    int rc = remo_lock_release(s->locks[SLOW], 0, REMO_FENCE_NONE);
    sim_require(rc == 0, "release: %d (%s)", rc, remo_last_error());
}

LOCK_CASE(lock_report_again, .name = "report_again",
          .about = "a query arrives at a node that has a state for an earlier query", .nodes = 3,
          .threads = 1, .body = again_body, .after = sim_lock_take_after, .has_own_fault = true);

/* Two threads of node SLOW try the lock again and again, while node 1 holds it. If a report waits when a try
 * begins, and the try makes the state BUSY, the report has a state. */
static void try_once(struct lock_state *s) {
    uint64_t wait = wait_of(s, SLOW);
    struct sim_bound before = sim_bound_begin();
    int rc = remo_lock_acquire(s->locks[SLOW], 0, 0);
    struct sim_bound after = sim_bound_begin();
    sim_require(rc == -ETIMEDOUT, "acquire: %d (%s)", rc, remo_last_error());
    sim_require(wait == 0 || wait_of(s, SLOW) != wait || after.posts == before.posts,
                "a thread changed the state, and the report still waits");
    check_waits(s, SLOW);
}

static void tries_body(void *state, uint32_t rank, uint32_t thread) {
    struct lock_state *s = state;
    if (rank == 1 && thread == 0) {
        sim_require(sim_lock_acquire(s, rank, FOREVER) == 0, "acquire: %s", remo_last_error());
        sim_lock_enter(s, rank);
        s->posed = true;
        sim_changed(HOME), sim_changed(SLOW);
        sim_until(sim_lock_has_ended, s, "hold the lock");
        sim_lock_leave(s, rank);
        sim_require(remo_lock_release(s->locks[rank], 0, REMO_FENCE_NONE) == 0, "release: %s",
                    remo_last_error());
        return;
    }
    sim_until(sim_lock_is_posed, s, "wait until node 1 holds the lock");
    for (uint32_t i = 0; rank == HOME && thread == 0 && i < RECOUNTS; i++) {
        sim_lock_request_recount(s, rank);
        for (uint32_t turns = sim_choose(40); turns > 0; turns--)
            sim_point("before the next recount");
    }
    for (uint32_t i = 0; rank == SLOW && i < TRIES; i++) {
        sim_point("before a try");
        try_once(s);
    }
    if (rank == SLOW && ++s->threads_ended == 2) {
        s->ended = true;
        sim_changed(1);
    }
}

LOCK_CASE(lock_report_tries, .name = "report_tries",
          .about = "queries arrive at a node whose threads try the lock all the time", .nodes = 3,
          .threads = 2, .body = tries_body, .after = sim_lock_take_after, .has_own_fault = true);

/* A report waits while node SLOW releases the lock. The release times out, and its operation ends later, when
 * no thread of node SLOW uses the lock. The release has requested sweeps, and the report continues after one,
 * without a reminder. */
static void unsettled_body(void *state, uint32_t rank, uint32_t thread) {
    struct lock_state *s = state;
    uint32_t quiet = 0;
    bool completed;
    (void)thread;
    if (rank == HOME) {
        sim_until(sim_lock_is_posed, s, "wait until node 2 holds the lock");
        sim_lock_until_state(s, SLOW, REMO__LOCK_BUSY);
        sim_lock_request_recount(s, rank);
    }
    if (rank != SLOW)
        return;
    sim_require(sim_lock_acquire(s, SLOW, FOREVER) == 0, "acquire: %s", remo_last_error());
    sim_delay(SLOW, 0, 1);
    s->posed = true;
    sim_changed(HOME);
    int rc = remo_lock_release(s->locks[SLOW], 0, REMO_FENCE_NONE);
    sim_require(rc == 0 || (rc == -ETIMEDOUT && sim_delay_hit()), "release: %d (%s)", rc, remo_last_error());
    sim_require(rc == 0 || atomic_load(&s->nodes[SLOW]->threads->is_sweeping), "no sweep is requested");
    sim_delay_end();
    sim_lock_until_idle(s, SLOW);
    (void)remo__slots_sweep(s->nodes[SLOW], &quiet, &completed); /* as the service thread */
    sim_lock_until_idle(s, SLOW);
    sim_require(!report_of(s, SLOW)->is_requested, "the report does not continue");
}

static void unsettled_after(void *state, uint32_t rank) {
    if (rank != SLOW)
        sim_lock_take(state, rank, FOREVER);
}

LOCK_CASE(lock_report_unsettled, .name = "report_unsettled",
          .about = "as report; the operation ends after the release has timed out", .nodes = 3, .threads = 1,
          .body = unsettled_body, .after = unsettled_after, .has_own_fault = true);

/* Node 2 holds lock 0, and an operation on lock 1 is delayed. So the report sends a part of its answer, with
 * the claim on lock 0, and waits; an allocation fails. The next query must get that claim too. */
static void dropped_body(void *state, uint32_t rank, uint32_t thread) {
    struct lock_state *s = state;
    (void)thread;
    if (rank != SLOW)
        sim_until(sim_lock_is_posed, s, "wait until node 2 holds the lock");
    if (rank == HOME) {
        for (uint32_t turns = 100;
             turns > 0 && remo__state_kind(atomic_load(&s->locks[SLOW]->locals[1].state)) != REMO__LOCK_BUSY;
             turns--)
            sim_point("wait for the state of a node");
        sim_fail_next(SIM_FAIL_ALLOCATION, SLOW, sim_choose(6), 1);
        remo__lock_recovery_start(s->locks[HOME]);
    }
    if (rank == 1) {
        sim_lock_until_idle(s, rank);
        sim_delay_end();
        int rc = sim_lock_acquire(s, rank, FOREVER);
        sim_require(rc == 0 || rc == -EOWNERDEAD, "acquire: %d", rc);
        sim_lock_enter(s, rank);
        sim_lock_leave(s, rank);
        (void)remo_lock_release(s->locks[rank], 0, REMO_FENCE_NONE);
    }
    if (rank != SLOW)
        return;
    sim_require(sim_lock_acquire(s, SLOW, FOREVER) == 0, "acquire: %s", remo_last_error());
    sim_require(remo_lock_acquire(s->locks[SLOW], 1, FOREVER) == 0, "acquire: %s", remo_last_error());
    sim_lock_enter(s, SLOW);
    sim_delay(SLOW, 0, 1);
    s->posed = true;
    sim_changed(HOME);
    sim_changed(1);
    (void)remo_lock_release(s->locks[SLOW], 1, REMO_FENCE_NONE);
    sim_lock_until_idle(s, SLOW);
    sim_fail_next(SIM_FAIL_ALLOCATION, SLOW, 0, 0);
    sim_lock_leave(s, SLOW);
    (void)remo_lock_release(s->locks[SLOW], 0, REMO_FENCE_NONE);
}

LOCK_CASE_OPENED(lock_report_dropped, open_two, .name = "report_dropped",
                 .about = "a part of an answer cannot be sent", .nodes = 3, .threads = 1,
                 .body = dropped_body, .has_own_fault = true);

/* The home queries node 1, because node 2 has failed. The write of node 2 could still land at node 1, so the
 * report waits until node 1 has cut off node 2. */
static void cut_off_body(void *state, uint32_t rank, uint32_t thread) {
    struct lock_state *s = state;
    struct remo__lock_report *report = report_of(s, rank);
    (void)thread;
    if (rank != 1)
        return;
    remo_nodeset_add(&report->failed, SLOW);
    report->is_requested = true;
    remo__lock_report_continue(s->locks[rank]);
    sim_require(report->is_requested, "the report does not wait until the failed node is cut off");
    report->is_requested = false;
    report->failed = (struct remo_nodeset){0};
}

LOCK_CASE(lock_report_cut_off, .name = "report_cut_off",
          .about = "a query arrives before the failed node is cut off", .nodes = 3, .threads = 1,
          .body = cut_off_body, .after = sim_lock_take_after, .has_own_fault = true);
