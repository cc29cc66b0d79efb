/* barrier.c - implements remo/barrier.h: figure 1(a) of LOCO, where nodes may open late, leave or fail, and a
 * dissemination in stages among many nodes (objects/stages.h).
 * Invariant: a node arrives in round r + 1 only after all others have arrived in round r, so the rows of two
 * nodes differ by at most one round.
 * The protocol is described in docs/internals/barrier.md. */
#include "objects/barrier.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "objects/region.h"
#include "objects/sst.h"
#include "objects/stages.h"

/* After a peer has abandoned the barrier, a node waits this long to detect the failure itself. */
#define DETECT_NS REMO__NS_PER_S

/* Bit of a row: its node has abandoned the barrier, and writes no arrival after that of the row. */
#define ABANDONED (UINT64_C(1) << 63)

/* Whether the late peer has arrived, although its arrival has not reached this node. */
enum answer { UNKNOWN, REQUESTED, ARRIVED, ABSENT };

struct remo_barrier {
    struct remo_node *node;
    struct remo_channel *channel;
    struct remo_sst *sst;   /* arrivals of each participant: u64 */
    uint64_t round;         /* own arrivals */
    bool all_opened;        /* every participant has opened the barrier, or has failed or left */
    bool has_arrived;       /* in `round`, and the round is not complete yet */
    bool has_announced;     /* the arrival was written to all peers of this stage */
    int ended;              /* the error with which this node abandoned the barrier, or 0 */
    enum answer answer;     /* about the late peer */
    uint64_t abandoned_ns;  /* when this node detected that a peer has abandoned the barrier; 0: none has */
    struct remo_ack writes; /* the writes of the last announcement */
    struct remo__skipped_writes *skipped; /* the same writes: the fence of the next arrival skips them */
    struct remo__stages stages;
    uint32_t stage;                  /* the current stage: its first distance (stages.h) */
    uint32_t late;                   /* the distance of the peer that this node waits for */
    char reason[REMO__SENTENCE_MAX]; /* the sentence of `ended` */
    uint16_t peers[REMO_NODES_MAX];  /* by distance from this node, which is peers[0] */
};

/* Return the participant that announces its arrival to this node over `distance`. */
static uint32_t peer_before(const struct remo_barrier *barrier, uint32_t distance) {
    return barrier->peers[barrier->stages.count - distance];
}

static void place_peers(struct remo_barrier *barrier) {
    uint32_t own = barrier->node->rank, count = 0;
    for (uint32_t node = remo_sst_next(barrier->sst, own); node < REMO_NODES_MAX;
         node = remo_sst_next(barrier->sst, node + 1))
        barrier->peers[count++] = (uint16_t)node;
    for (uint32_t node = remo_sst_next(barrier->sst, 0); node < own;
         node = remo_sst_next(barrier->sst, node + 1))
        barrier->peers[count++] = (uint16_t)node;
    barrier->stages = remo__stages_of(count);
}

int remo_barrier_open(struct remo_channel *parent, const char *name,
                      const struct remo_barrier_options *options, struct remo_barrier **ret_barrier) {
    REMO__REQUIRE(ret_barrier);
    struct remo_barrier *barrier = calloc(1, sizeof *barrier);
    struct remo_channel_options channel = {0};
    if (!barrier)
        return remo__fail(-ENOMEM, "no memory for a barrier");
    if (options)
        channel.participants = options->participants;
    int rc = remo_channel_open(parent, name, "barrier", &channel, &barrier->channel);
    if (rc == 0)
        rc = remo__skipped_open(remo_channel_node(barrier->channel), &barrier->skipped);
    if (rc == 0)
        rc = remo_sst_open(barrier->channel, "sst", sizeof barrier->round, NULL, &barrier->sst);
    if (rc == 0)
        rc = remo_channel_join(barrier->channel);
    if (rc != 0) {
        remo_barrier_close(barrier);
        return rc;
    }
    barrier->node = remo_channel_node(barrier->channel);
    place_peers(barrier);
    *ret_barrier = barrier;
    return 0;
}

void remo_barrier_close(struct remo_barrier *barrier) {
    if (!barrier)
        return;
    remo_ack_cancel(&barrier->writes);
    remo_sst_close(barrier->sst);
    remo_channel_close(barrier->channel);
    free(barrier->skipped);
    free(barrier);
}

struct remo_channel *remo_barrier_channel(struct remo_barrier *barrier) {
    return barrier ? barrier->channel : NULL;
}

/* ---- the first round: wait until all participants have opened the barrier ---- */

static int have_all_opened(void *ctx) {
    struct remo_barrier *barrier = ctx;
    int rc = remo__channel_check_match(barrier->channel);
    if (rc != 0)
        return rc;
    for (; barrier->late < barrier->stages.count; barrier->late++)
        if (remo_channel_peer(remo_sst_channel(barrier->sst), peer_before(barrier, barrier->late))
            == REMO_CHANNEL_WAITING)
            return 0;
    return 1;
}

static int wait_opened(struct remo_barrier *barrier, uint64_t timeout_ns) {
    barrier->late = 1;
    int rc = remo__wait(barrier->node, have_all_opened, barrier, remo__deadline(timeout_ns));
    if (rc == -ETIMEDOUT)
        return remo__fail(rc, "node %u has not opened barrier %s yet", peer_before(barrier, barrier->late),
                          remo_channel_name(barrier->channel));
    barrier->all_opened = rc == 0;
    return rc;
}

/* ---- a round ---- */

/* Wait for the writes of the last announcement. The failure of a target is no error: it may have arrived
 * before it failed. The writes have an ack, so no fence returns that failure either. */
static int finish_announcement(struct remo_barrier *barrier) {
    int rc = remo__ack_settle(&barrier->writes, barrier->node->op_timeout_ns);
    return rc == -EHOSTDOWN ? 0 : rc;
}

/* A wait condition: place all writes of this node before its arrival. Writes to a failed node need no
 * placement, so the fence is repeated after -EHOSTDOWN. Other errors end the wait. */
static int fence_writes(void *ctx) {
    struct remo_barrier *barrier = ctx;
    int rc = remo__fence_except(barrier->node, barrier->skipped);
    int announced = finish_announcement(barrier);
    if (rc != 0 && rc != -EHOSTDOWN)
        return rc;
    return announced != 0 ? announced : rc == 0;
}

static void begin_wait_for(struct remo_barrier *barrier, uint32_t distance) {
    barrier->late = distance;
    barrier->answer = UNKNOWN;
}

static void begin_stage(struct remo_barrier *barrier, uint32_t stage) {
    barrier->stage = stage;
    barrier->has_announced = false;
    begin_wait_for(barrier, stage);
}

/* Place all writes of this node before its arrival. In mapped memory the arrival becomes visible after them
 * in any case, so run_stages fences after the announcement, while the arrivals of the peers are under way. */
static int place_writes(struct remo_barrier *barrier, uint64_t timeout_ns) {
    if (remo__likely(barrier->node->mapped && !remo__ack_pending(&barrier->writes)))
        return 0;
    return remo__wait_attempt(barrier->node, fence_writes, barrier, remo__deadline(timeout_ns));
}

/* Begin a round, unless one is incomplete. Between two calls the program may have written to a peer of the
 * first stage, and no announcement of this round follows that write. So the next fence skips nothing. */
static int arrive(struct remo_barrier *barrier, uint64_t timeout_ns) {
    if (barrier->has_arrived) {
        if (!barrier->has_announced || !remo__stage_is_last(&barrier->stages, barrier->stage))
            remo__skipped_drop(barrier->skipped);
        return 0;
    }
    struct remo__thread *thread = remo__thread(barrier->node);
    int rc = remo__likely(thread != NULL) ? place_writes(barrier, timeout_ns) : remo__last_code();
    if (remo__unlikely(rc != 0))
        return remo__fail_more(rc, "barrier %s: this node has not arrived",
                               remo_channel_name(barrier->channel));
    barrier->round++;
    barrier->has_arrived = true;
    begin_stage(barrier, 1);
    remo_sst_store(barrier->sst, &barrier->round);
    if (!barrier->node->mapped)
        remo__skipped_begin(barrier->skipped, thread);
    return 0;
}

/* Write the arrival to the peers of this stage. A peer that has failed or left needs none. */
static int announce(struct remo_barrier *barrier) {
    const struct remo__stages *stages = &barrier->stages;
    uint32_t end = remo__stage_end(stages, barrier->stage);
    if (barrier->has_announced)
        return 0;
    for (uint32_t distance = barrier->stage; distance < end; distance += barrier->stage) {
        int rc = remo_sst_push(barrier->sst, barrier->peers[distance], &barrier->writes);
        if (remo__unlikely(rc != 0) && !remo__is_departure(rc))
            return rc;
    }
    barrier->has_announced = true;
    if (remo__stage_is_last(stages, barrier->stage))
        remo__skipped_end(barrier->skipped);
    return 0;
}

static uint64_t load_row(const struct remo_barrier *barrier, uint32_t node) {
    uint64_t row = 0;
    return remo_sst_load(barrier->sst, node, &row) == 0 ? row : 0;
}

static bool has_reached(const struct remo_barrier *barrier, uint64_t row) {
    return (row & ~ABANDONED) >= barrier->round;
}

static bool peer_has_arrived(const struct remo_barrier *barrier, uint32_t node) {
    return has_reached(barrier, load_row(barrier, node));
}

/* Node `node` has abandoned the barrier, because a participant has failed or left. Return the error of this
 * round after this node has detected a departure itself, so that its caller finds the departed node; or after
 * DETECT_NS, in case only the peer and the failed node have lost each other. Before, return -EAGAIN once,
 * which ends the wait, then 0. */
static int confirm_abandonment(struct remo_barrier *barrier, uint32_t node) {
    for (uint32_t distance = 1; distance < barrier->stages.count; distance++) {
        int rc = remo__channel_check_peer(remo_sst_channel(barrier->sst), barrier->peers[distance]);
        if (rc != 0)
            return remo__fail_more(rc, "node %u has abandoned the barrier", node);
    }
    bool is_first = barrier->abandoned_ns == 0;
    if (is_first)
        barrier->abandoned_ns = remo__now_ns();
    if (remo__now_ns() - barrier->abandoned_ns <= DETECT_NS)
        return is_first ? -EAGAIN : 0;
    return remo__fail(-EHOSTDOWN, "node %u has abandoned the barrier, because a participant failed or left",
                      node);
}

/* A peer that announces nothing to this node has failed or left. If it left after it had completed the round,
 * all participants have arrived, among them the late peer. So the round fails if the late peer has not
 * arrived. Else this node continues to wait for the late peer, which does the same. */
static int check_departed(struct remo_barrier *barrier, int departure) {
    if (barrier->answer == ABSENT)
        return departure;
    if (barrier->answer == ARRIVED)
        return 0;
    barrier->answer = REQUESTED;
    return -EAGAIN;
}

/* Check a peer whose arrival was not read yet. A peer that arrived and then failed or left does not fail the
 * round. So its row is read once more after the departure was detected: a channel reports a departure after
 * all writes of the peer were placed. 1: the peer has arrived; 0: not yet; or the error of the round.
 * -EAGAIN: not yet, and the wait ends: from now on the result depends on the time, or on an answer. */
static int check_peer(struct remo_barrier *barrier, uint32_t distance) {
    uint32_t node = peer_before(barrier, distance);
    int rc = remo__channel_check_peer(remo_sst_channel(barrier->sst), node);
    bool has_abandoned = rc == 0 && (load_row(barrier, node) & ABANDONED);
    if (remo__likely(rc == 0 && !has_abandoned))
        return 0;
    if (peer_has_arrived(barrier, node))
        return 1;
    if (has_abandoned)
        rc = confirm_abandonment(barrier, node);
    else if (!remo__stages_have(&barrier->stages, distance))
        rc = check_departed(barrier, rc);
    if (rc == 0 || rc == -EAGAIN)
        return rc;
    return remo__fail_more(rc, "barrier %s, round %llu", remo_channel_name(barrier->channel),
                           (unsigned long long)barrier->round);
}

/* The peer that this node waits for is up, and may arrive late. The round fails immediately if another peer
 * has failed before its arrival. All peers at smaller distances have arrived. */
static int check_other_peers(struct remo_barrier *barrier) {
    for (uint32_t distance = barrier->late + 1; distance < barrier->stages.count; distance++) {
        int rc = check_peer(barrier, distance);
        if (remo__unlikely(rc < 0))
            return rc;
    }
    return 0;
}

/* A wait condition: all peers have announced their arrivals over the distances of this stage. */
static int is_stage_complete(void *ctx) {
    struct remo_barrier *barrier = ctx;
    uint32_t end = remo__stage_end(&barrier->stages, barrier->stage);
    while (barrier->late < end) {
        bool has_arrived = peer_has_arrived(barrier, peer_before(barrier, barrier->late));
        int rc = has_arrived ? 1 : check_peer(barrier, barrier->late);
        if (rc != 1)
            return rc < 0 ? rc : check_other_peers(barrier);
        begin_wait_for(barrier, barrier->late + barrier->stage);
    }
    return 1;
}

/* Return whether this node has announced its arrival in this round over the distance, or has completed the
 * round. */
static bool has_announced_to(const struct remo_barrier *barrier, uint32_t distance) {
    uint32_t end =
        barrier->has_announced ? remo__stage_end(&barrier->stages, barrier->stage) : barrier->stage;
    return !barrier->has_arrived || (distance < end && remo__stages_have(&barrier->stages, distance));
}

/* Write to the peers to which this node has announced its arrival in this round, or to all others: it
 * announces no arrival after the one in the row. */
static void announce_end(struct remo_barrier *barrier, bool has_announced) {
    uint64_t row = (barrier->round - !has_announced) | ABANDONED;
    remo_sst_store(barrier->sst, &row);
    for (uint32_t distance = 1; distance < barrier->stages.count; distance++)
        if (has_announced_to(barrier, distance) == has_announced)
            (void)remo_sst_push(barrier->sst, barrier->peers[distance], &barrier->writes);
}

/* A peer that received the arrival of the failed node passes the round that fails here, and waits for this
 * node in the next round. This write ends that wait. Its errors are ignored: a peer that it does not reach
 * has lost this node, and detects that. */
void remo__barrier_abandon(struct remo_barrier *barrier) {
    if (barrier->ended != 0)
        return;
    barrier->ended = remo__last_code();
    snprintf(barrier->reason, sizeof barrier->reason, "%s", remo_last_error());
    announce_end(barrier, false);
    announce_end(barrier, true);
    remo__fail(barrier->ended, "%s", barrier->reason);
}

/* Read the row of the late peer in the memory of that peer. If the peer has failed or left, the next check
 * detects that. Returns -EAGAIN, so that the wait continues, or a transient error of the read. */
static int ask_late_peer(struct remo_barrier *barrier) {
    uint64_t row = 0;
    int rc = remo__sst_read(barrier->sst, peer_before(barrier, barrier->late), &row);
    barrier->answer = rc != 0 ? UNKNOWN : has_reached(barrier, row) ? ARRIVED : ABSENT;
    if (rc == 0 || remo__is_departure(rc))
        return -EAGAIN;
    return remo__fail_more(rc, "barrier %s, round %llu: cannot read whether node %u has arrived",
                           remo_channel_name(barrier->channel), (unsigned long long)barrier->round,
                           peer_before(barrier, barrier->late));
}

/* In the second stage the announcement of the late peer implies arrivals of the peers before it. */
static int report_timeout(struct remo_barrier *barrier) {
    uint32_t others = remo__min(barrier->stage, barrier->stages.count - barrier->late) - 1;
    char range[64] = "";
    if (others == 1)
        snprintf(range, sizeof range, ", or the participant before it,");
    else if (others > 1)
        snprintf(range, sizeof range, ", or one of the %u participants before it,", others);
    return remo__fail(
        -ETIMEDOUT,
        "node %u%s has not arrived in round %llu of %s yet; the arrival of this node remains valid",
        peer_before(barrier, barrier->late), range, (unsigned long long)barrier->round,
        remo_channel_name(barrier->channel));
}

/* An abandonment is confirmed after DETECT_NS, and no notification marks that time. So the wait polls from
 * the first abandonment (-EAGAIN) on. */
static int await_stage(struct remo_barrier *barrier, uint64_t deadline_ns) {
    int rc;
    do {
        rc = remo__likely(barrier->abandoned_ns == 0)
                 ? remo__wait(barrier->node, is_stage_complete, barrier, deadline_ns)
                 : remo__wait_polling(barrier->node, is_stage_complete, barrier, deadline_ns);
        if (remo__unlikely(rc == -EAGAIN && barrier->answer == REQUESTED))
            rc = ask_late_peer(barrier);
    } while (remo__unlikely(rc == -EAGAIN));
    return remo__unlikely(rc == -ETIMEDOUT) ? report_timeout(barrier) : rc;
}

/* In mapped memory, place the writes of this node and its announcement. The fence lasts until this CPU has
 * taken the line of the announcement from the peer. Without it the next probe would take the line of the
 * peer's arrival from the peer, which is about to write it. Errors: those of remo_fence. */
static int place_announcement(const struct remo_barrier *barrier) {
    return barrier->node->mapped ? remo_fence(barrier->node, REMO_FENCE_GLOBAL, 0) : 0;
}

/* Announce the arrival in the current stage and the later ones, and wait for those of the peers. The deadline
 * is computed after the first announcement, while it is in flight. */
static int run_stages(struct remo_barrier *barrier, uint64_t timeout_ns) {
    uint64_t deadline_ns = 0;
    for (;;) {
        int rc = announce(barrier);
        if (rc != 0)
            return rc;
        if (deadline_ns == 0)
            deadline_ns = remo__deadline(timeout_ns);
        rc = place_announcement(barrier);
        if (rc == 0)
            rc = await_stage(barrier, deadline_ns);
        if (rc != 0)
            return rc;
        if (remo__stage_is_last(&barrier->stages, barrier->stage))
            return 0;
        begin_stage(barrier, barrier->stage * barrier->stages.radix);
    }
}

int remo_barrier_wait(struct remo_barrier *barrier, uint64_t timeout_ns) {
    REMO__REQUIRE(barrier);
    if (remo__unlikely(barrier->ended != 0))
        return remo__fail(barrier->ended, "%s", barrier->reason);
    int rc = remo__likely(barrier->all_opened) ? 0 : wait_opened(barrier, timeout_ns);
    if (rc == 0)
        rc = arrive(barrier, timeout_ns);
    if (rc != 0)
        return rc;
    rc = run_stages(barrier, timeout_ns);
    if (rc == 0)
        barrier->has_arrived = false;
    else if (remo__is_departure(rc))
        remo__barrier_abandon(barrier);
    return rc;
}
