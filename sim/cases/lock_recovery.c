/* lock_recovery.c - the lock when operations time out and take effect later, or several nodes fail.
 * One node is slow: its operations are delayed while all nodes are up. */
#include "sim/cases/lock.h"

#include <string.h>

#include "node/arena.h"

#define LATE 3u           /* the node that opens the lock late */
#define LATE_BYTES 65536u /* at least what the lock and the threads need there */
#define FAILURES 3u
#define ORPHANS_MAX 9u /* more than three nodes have queue words */
#define ORPHAN_WAIT_NS 500u
#define WAITS_BEFORE 100u /* points, for a state of a node */
#define UNSENT_MAX 24u    /* a node sends at most this many messages in its rounds */
#define BRIEF_NS (REMO__LOCK_REMIND_NS / 4)
#define BRIEF_MAX 20u /* acquires: several reminders */
#define LONG_HOLD_NS (40 * REMO__LOCK_REMIND_NS)
#define LONG_HOLD_ROUNDS 24u /* two for each recount, and some for messages */
#define FAILS_BEFORE 100u    /* points at most, before a node fails */

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

/* ---- one step under test ---- */

bool sim_lock_is_posed(void *ctx) {
    return ((const struct lock_state *)ctx)->posed;
}

bool sim_lock_has_ended(void *ctx) {
    return ((const struct lock_state *)ctx)->ended;
}

uint64_t sim_lock_state_of(const struct lock_state *s, uint32_t rank) {
    return atomic_load(&s->locks[rank]->locals[0].state);
}

/* Leave an operation of the node in flight until sim_delay_end: a write to memory that nothing uses. */
static void abandon_write(const struct lock_state *s) {
    static const uint64_t word;
    struct remo__thread *thread = remo__thread(s->nodes[SLOW]);
    struct remo_ack ack = REMO_ACK_INIT;
    sim_delay(SLOW, 0, 1);
    struct remo__ref unused = {
        .thread = thread, .stats = thread->stats, .node = 1, .at = s->nodes[SLOW]->fabric->private_bytes};
    int rc = remo__op_write(unused, &word, sizeof word, REMO__WRITE_EXEMPT | REMO__WRITE_TRACKED, 0, &ack);
    sim_require(rc == 0, "write: %s", remo_last_error());
    remo_ack_cancel(&ack);
}

void sim_lock_until_idle(const struct lock_state *s, uint32_t rank) {
    remo__pause(s->nodes[rank], remo__deadline(REMO__NS_PER_MS));
}

/* Several acquires fail while an operation is in flight. Each leaves another UNSETTLED word. Otherwise a
 * thread that read the first word could make the last one open, while the operation is in flight. */
static void unsettled_body(void *state, uint32_t rank, uint32_t thread) {
    struct lock_state *s = state;
    uint64_t words[FAILURES];
    (void)thread;
    for (uint32_t i = 0; rank == SLOW && i < FAILURES; i++) {
        abandon_write(s);
        sim_fail_next(SIM_FAIL_POST, SLOW, 0, 1);
        int rc = sim_lock_acquire(s, SLOW, FOREVER);
        sim_require(rc == -EIO, "acquire: %d (%s)", rc, remo_last_error());
        words[i] = sim_lock_state_of(s, SLOW);
        sim_require(remo__state_kind(words[i]) == REMO__LOCK_UNSETTLED, "the state is settled");
        for (uint32_t earlier = 0; earlier < i; earlier++)
            sim_require(words[earlier] != words[i], "two UNSETTLED words are 0x%llx",
                        (unsigned long long)words[i]);
        sim_delay_end();
        sim_lock_until_idle(s, SLOW); /* the write ends */
        remo__lock_reopen(s->locks[SLOW], 0);
    }
}

LOCK_CASE(lock_unsettled, .name = "unsettled", .needs_flight = true,
          .about = "several acquires of a node fail while an operation is in flight", .nodes = 3,
          .threads = 1, .body = unsettled_body, .after = sim_lock_take_after, .has_own_fault = true);

void sim_lock_release_after_write(struct lock_state *s) {
    sim_require(sim_lock_acquire(s, SLOW, FOREVER) == 0, "acquire: %s", remo_last_error());
    sim_lock_enter(s, SLOW);
    s->locks[SLOW]->locals[0].marks |= REMO__LOCK_UNRESET; /* as after a reset that failed */
    abandon_write(s);
    s->posed = true;
    sim_changed(HOME), sim_changed(1);
    sim_lock_leave(s, SLOW);
    int rc = remo_lock_release(s->locks[SLOW], 0, REMO_FENCE_NONE);
    sim_require(rc == 0, "release: %d (%s)", rc, remo_last_error());
}

/* The queue word may need another reset at the release, and a write of the node is in flight. The
 * release waits for that write, and succeeds. */
static void slow_reset_body(void *state, uint32_t rank, uint32_t thread) {
    struct lock_state *s = state;
    (void)thread;
    if (rank == 1) {
        sim_until(sim_lock_is_posed, s, "wait until the write is in flight");
        for (uint32_t turns = sim_choose(40); turns > 0; turns--)
            sim_point("before the write ends");
        sim_delay_end();
    }
    if (rank == SLOW)
        sim_lock_release_after_write(s);
}

LOCK_CASE(lock_slow_reset, .name = "slow_reset",
          .about = "a release repeats a reset while an operation is in flight", .nodes = 3, .threads = 1,
          .body = slow_reset_body, .after = sim_lock_take_after, .has_own_fault = true);

static bool is_waiting(const struct lock_state *s, uint32_t rank) {
    return remo__state_kind(sim_lock_state_of(s, rank)) == REMO__LOCK_WAITING;
}

/* Node SLOW acquires the lock, and pauses until node 1 waits for it, usually. The caller releases it. */
static void hold_until_waiting(struct lock_state *s) {
    sim_require(sim_lock_acquire(s, SLOW, FOREVER) == 0, "acquire: %s", remo_last_error());
    sim_lock_enter(s, SLOW);
    s->posed = true;
    for (uint32_t node = 0; node < sim_world->nodes_count; node++)
        sim_changed(node);
    for (uint32_t turns = WAITS_BEFORE; turns > 0 && !is_waiting(s, 1); turns--)
        sim_point("wait until node 1 waits");
    sim_lock_leave(s, SLOW);
}

/* Node SLOW acquires the lock first: returns true there, when it has to release the lock. Other nodes then
 * take `laps` laps of turns: returns false after them. */
static bool holds_first(struct lock_state *s, uint32_t rank, uint32_t thread, uint32_t laps) {
    if (rank == SLOW) {
        hold_until_waiting(s);
        return true;
    }
    sim_until(sim_lock_is_posed, s, "wait until node 2 holds the lock");
    for (; laps > 0; laps--)
        sim_lock_turns_body(s, rank, thread);
    return false;
}

/* The write of a grant word is delayed beyond its timeout. If it overwrites a later grant word of the waiter,
 * the waiter gets the later grant by message. */
static void slow_grant_body(void *state, uint32_t rank, uint32_t thread) {
    struct lock_state *s = state;
    if (!holds_first(s, rank, thread, 1))
        return;
    sim_delay(SLOW, 2, 1); /* release, grant, write */
    int rc = remo_lock_release(s->locks[SLOW], 0, REMO_FENCE_NONE);
    sim_require(rc == 0 || sim_delay_hit(), "release: %d (%s)", rc, remo_last_error());
    for (uint32_t turns = sim_choose(40); turns > 0; turns--)
        sim_point("before the write takes effect");
    sim_delay_end();
}

LOCK_CASE(lock_slow_grant, .name = "slow_grant", .about = "a grant takes effect after its timeout",
          .nodes = 3, .threads = 1, .body = slow_grant_body, .after = slow_after, .has_own_fault = true);

static uint32_t round_of(const struct lock_state *s, uint32_t rank) {
    return s->locks[rank]->reports[0].round;
}

void sim_lock_request_recount(struct lock_state *s, uint32_t rank) {
    static const uint8_t message[] = {REMO__LOCK_RECOUNT};
    sim_require(remo_channel_send(remo_lock_channel(s->locks[rank]), HOME, message, sizeof message) == 0,
                "recount: %s", remo_last_error());
}

void sim_lock_until_state(const struct lock_state *s, uint32_t rank, enum remo__lock_state kind) {
    for (uint32_t turns = WAITS_BEFORE; turns > 0 && remo__state_kind(sim_lock_state_of(s, rank)) != kind;
         turns--)
        sim_point("wait for the state of a node");
}

/* Node SLOW grants the lock to node 1, and the write of the grant word is in flight until the acquire of
 * node 1 has ended. The acquire ends although it cannot leave its ticket. */
static void late_grant_body(void *state, uint32_t rank, uint32_t thread) {
    struct lock_state *s = state;
    (void)thread;
    if (rank == 1) {
        sim_until(sim_lock_is_posed, s, "wait until node 2 holds the lock");
        uint64_t begin_ns = remo__now_ns();
        sim_lock_take(s, rank, REMO__NS_PER_S);
        sim_require(remo__now_ns() - begin_ns < 3 * SIM_OP_TIMEOUT_NS, "the acquire exceeds its timeout");
        s->ended = true;
        sim_changed(SLOW);
    }
    if (rank != SLOW)
        return;
    hold_until_waiting(s);
    sim_delay(SLOW, 2, 1); /* release, grant, write */
    int rc = remo_lock_release(s->locks[SLOW], 0, REMO_FENCE_NONE);
    sim_require(rc == 0 || sim_delay_hit(), "release: %d (%s)", rc, remo_last_error());
    sim_until(sim_lock_has_ended, s, "wait until the acquire of node 1 has ended");
    sim_delay_end();
}

LOCK_CASE(lock_late_grant, .name = "late_grant",
          .about = "an acquire times out after the grant, and the grant word does not arrive", .nodes = 3,
          .threads = 1, .body = late_grant_body, .after = sim_lock_take_after, .has_own_fault = true);

/* Release the lock on node SLOW. The grant word of node 1 goes to memory that nothing uses, as if a late
 * write overwrote it at once. */
static void release_without_word(const struct lock_state *s) {
    const struct remo__memory *grants = s->locks[SLOW]->grants;
    uint64_t offset = atomic_load(&grants->offsets[1]);
    atomic_store(&grants->offsets[1], s->nodes[SLOW]->fabric->private_bytes);
    int rc = remo_lock_release(s->locks[SLOW], 0, REMO_FENCE_NONE);
    sim_require(rc == 0, "release: %d (%s)", rc, remo_last_error());
    atomic_store(&grants->offsets[1], offset);
}

/* An acquire of node 1 times out after the grant, whose word is overwritten. The acquire succeeds. */
static void late_grant_lost_body(void *state, uint32_t rank, uint32_t thread) {
    struct lock_state *s = state;
    (void)thread;
    if (rank == 1) {
        sim_until(sim_lock_is_posed, s, "wait until node 2 holds the lock");
        int rc = sim_lock_acquire(s, rank, REMO__NS_PER_S);
        sim_require(rc == 0, "acquire: %d (%s)", rc, remo_last_error());
        sim_lock_enter(s, rank);
        sim_lock_leave(s, rank);
        rc = remo_lock_release(s->locks[rank], 0, REMO_FENCE_NONE);
        sim_require(rc == 0, "release: %d (%s)", rc, remo_last_error());
    }
    if (rank != SLOW)
        return;
    hold_until_waiting(s);
    release_without_word(s);
}

LOCK_CASE(lock_late_grant_lost, .name = "late_grant_lost",
          .about = "an acquire times out after the grant, and the grant word is overwritten", .nodes = 3,
          .threads = 1, .body = late_grant_lost_body, .after = sim_lock_take_after, .has_own_fault = true);

/* Nodes SLOW and 1 lose each other: SLOW detects a failure of node 1. The home is connected to both, and
 * sends the grant of SLOW to node 1 before the first reminder of node 1. */
static void lost_pair_body(void *state, uint32_t rank, uint32_t thread) {
    struct lock_state *s = state;
    (void)thread;
    if (rank == 1) {
        sim_until(sim_lock_is_posed, s, "wait until node 2 holds the lock");
        sim_lock_take_soon(s, rank);
    }
    if (rank != SLOW)
        return;
    hold_until_waiting(s);
    atomic_store(&s->nodes[SLOW]->peers[1].state, REMO_PEER_DEAD);
    int rc = remo_lock_release(s->locks[SLOW], 0, REMO_FENCE_NONE);
    sim_require(rc == 0, "release: %d (%s)", rc, remo_last_error());
    atomic_store(&s->nodes[SLOW]->peers[1].state, REMO_PEER_UP);
}

LOCK_CASE(lock_lost_pair, .name = "lost_pair",
          .about = "a holder detects a failure of a waiter that is up at the home", .nodes = 3, .threads = 1,
          .body = lost_pair_body, .after = sim_lock_take_after, .has_own_fault = true);

/* A release of node SLOW is lost, so a waiter depends on a round of the home. One message of the round cannot
 * be sent, by any node. The reminder of a waiting node makes the sender repeat it. */
static void unsent_body(void *state, uint32_t rank, uint32_t thread) {
    struct lock_state *s = state;
    if (!holds_first(s, rank, thread, 1))
        return;
    sim_fail_next(SIM_FAIL_COMPLETION, SLOW, sim_choose(3), 1);
    sim_fail_next(SIM_FAIL_ALLOCATION, sim_choose(3), sim_choose(UNSENT_MAX), 1);
    int rc = remo_lock_release(s->locks[SLOW], 0, REMO_FENCE_NONE);
    sim_require(rc == 0 || rc == -EIO, "release: %d (%s)", rc, remo_last_error());
    sim_fail_next(SIM_FAIL_COMPLETION, SLOW, 0, 0);
}

LOCK_CASE(lock_unsent, .name = "unsent", .about = "a message of a search for orphaned tickets cannot be sent",
          .nodes = 3, .threads = 1, .body = unsent_body, .after = slow_after, .has_own_fault = true);

/* The set-up of nodes other than LATE. */
static void open_early(void *state, struct remo_node *node, uint32_t rank) {
    struct lock_state *s = state;
    s->nodes[rank] = node;
    s->holder = -1;
    if (rank == LATE) { /* each schedule restores the memory that the set-up has allocated */
        uint64_t offset;
        sim_opened(remo__arena_alloc(node->arena, LATE_BYTES, &offset), "allocate");
        remo__arena_free(node->arena, offset, LATE_BYTES);
        return;
    }
    sim_opened(remo_lock_open(remo_node_root(node), "lock", NULL, &s->locks[rank]), "open the lock");
}

static void open_late(struct lock_state *s) {
    sim_opened(remo_lock_open(remo_node_root(s->nodes[LATE]), "lock", NULL, &s->locks[LATE]),
               "open the lock");
}

/* The home sends a grant of node SLOW to node 1 by message. If the home has no memory for the message, it
 * sends it again when node LATE connects, and not only after a reminder. */
static void unsent_grant_body(void *state, uint32_t rank, uint32_t thread) {
    struct lock_state *s = state;
    (void)thread;
    if (rank == 1) {
        sim_until(sim_lock_is_posed, s, "wait until node 2 holds the lock");
        uint64_t begin_ns = remo__now_ns();
        sim_lock_take(s, rank, FOREVER);
        sim_require(!s->ended || remo__now_ns() - begin_ns < REMO__LOCK_REMIND_NS,
                    "the grant waited for a reminder");
    }
    if (rank == LATE) {
        sim_until(sim_lock_is_posed, s, "wait until node 2 holds the lock");
        sim_lock_until_idle(s, rank);
        sim_fail_next(SIM_FAIL_ALLOCATION, HOME, 0, 0);
        s->ended = s->locks[HOME]->has_unsent_grant;
        open_late(s);
    }
    if (rank != SLOW)
        return;
    hold_until_waiting(s);
    release_without_word(s);
    sim_fail_next(SIM_FAIL_ALLOCATION, HOME, sim_choose(UNSENT_MAX), 1);
    sim_lock_request_recount(s, SLOW);
}

LOCK_CASE_OPENED(lock_unsent_grant, open_early, .name = "unsent_grant",
                 .about = "a grant by message cannot be sent, and then another node opens the lock",
                 .nodes = 4, .threads = 1, .body = unsent_grant_body, .after = sim_lock_take_after,
                 .has_own_fault = true);

/* The same; node 1 never waits as long as the time between reminders. */
static void brief_body(void *state, uint32_t rank, uint32_t thread) {
    struct lock_state *s = state;
    if (rank != 1) {
        if (rank == SLOW)
            unsent_body(state, rank, thread);
        return;
    }
    sim_until(sim_lock_is_posed, s, "wait until node 2 holds the lock");
    for (uint32_t i = 0; i < BRIEF_MAX && s->ticket == 0; i++)
        sim_lock_take(s, rank, BRIEF_NS);
    sim_require(s->ticket != 0, "node 1 did not get the lock in %u acquires", BRIEF_MAX);
}

LOCK_CASE(lock_unsent_brief, .name = "unsent_brief",
          .about = "as unsent; the waiting node times out and waits again", .nodes = 3, .threads = 1,
          .body = brief_body, .after = slow_after, .has_own_fault = true);

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
        sim_until(sim_lock_has_ended, s, "hold the lock");
        sim_lock_leave(s, rank);
        sim_require(remo_lock_release(s->locks[rank], 0, REMO_FENCE_NONE) == 0, "release: %s",
                    remo_last_error());
    }
    if (rank != SLOW)
        return;
    sim_until(sim_lock_is_posed, s, "wait until node 1 holds the lock");
    for (uint32_t i = 0; i < ORPHANS_MAX; i++) {
        uint32_t skip = i > 0; /* of a guarded draw, the second operation */
        sim_fail_next(SIM_FAIL_COMPLETION, SLOW, skip, 1);
        int rc = sim_lock_acquire(s, SLOW, ORPHAN_WAIT_NS);
        sim_require(rc == -EIO || rc == -ETIMEDOUT, "acquire: %d (%s)", rc, remo_last_error());
    }
    sim_fail_next(SIM_FAIL_COMPLETION, SLOW, 0, 0);
    s->ended = true;
    sim_changed(1);
}

LOCK_CASE(lock_orphans, .name = "orphans",
          .about = "draws of a node fail, but are applied, while another holds the lock", .nodes = 3,
          .threads = 1, .body = orphans_body, .after = sim_lock_take_after, .has_own_fault = true);

/* Node SLOW holds the lock for long, and node 1 waits. The home begins few rounds. */
static void long_hold_body(void *state, uint32_t rank, uint32_t thread) {
    struct lock_state *s = state;
    if (rank == HOME || !holds_first(s, rank, thread, 1))
        return;
    uint32_t before = round_of(s, SLOW);
    remo__pause(s->nodes[SLOW], remo__deadline(LONG_HOLD_NS));
    uint32_t rounds = round_of(s, SLOW) - before;
    sim_require(rounds <= LONG_HOLD_ROUNDS, "the home began %u rounds", rounds);
    sim_require(remo_lock_release(s->locks[SLOW], 0, REMO_FENCE_NONE) == 0, "release: %s", remo_last_error());
}

LOCK_CASE(lock_long_hold, .name = "long_hold", .about = "a node waits while another holds the lock for long",
          .nodes = 3, .threads = 1, .body = long_hold_body, .after = sim_lock_take_after,
          .has_own_fault = true);

/* ---- several events ---- */

/* Return whether the home has ended the ticket of the failed holder. */
static bool is_resolved(const struct lock_state *s) {
    uint64_t word;
    memcpy(&word, s->locks[HOME]->words->own, sizeof word);
    return (uint16_t)word != 0 || remo__word_flags(word) != 0;
}

static bool is_queried(void *ctx) {
    const struct lock_state *s = ctx;
    return round_of(s, 1) != s->round;
}

/* The holder fails. While the home searches, another node requests one recount after the other. The search
 * ends nevertheless. */
static void recounts_body(void *state, uint32_t rank, uint32_t thread) {
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
        sim_lock_request_recount(s, rank);
    }
    if (rank == HOME) {
        sim_until(sim_lock_is_posed, s, "wait until node 2 holds the lock");
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
