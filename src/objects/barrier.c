/* barrier.c - implements remo/barrier.h: figure 1(a) of LOCO, where nodes may open late, leave or fail.
 * Invariant: a node arrives in round r + 1 only after it has read the arrivals of all others in round r, so
 * the rows of two nodes differ by at most one round.
 * The protocol is described in docs/internals/barrier.md. */
#include "objects/barrier.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "objects/region.h"

/* After a peer has abandoned the barrier, a node waits this long to detect the failure itself. */
#define DETECT_NS REMO__NS_PER_S

/* Bit of a row: its node has abandoned the barrier, and arrives in no round after that of the row. */
#define ABANDONED (UINT64_C(1) << 63)

struct remo_barrier {
    struct remo_node *node;
    struct remo_channel *channel;
    struct remo_sst *sst;   /* arrivals of each participant: u64 */
    uint64_t round;         /* own arrivals */
    bool all_opened;        /* every participant has opened the barrier, or has failed or left */
    bool has_arrived;       /* in `round`, and the round is not complete yet */
    bool has_announced;     /* the arrival was written to all peers */
    bool has_abandoned;     /* this node arrives in no later round */
    uint64_t abandoned_ns;  /* when this node detected that a peer has abandoned the barrier; 0: none has */
    struct remo_ack writes; /* the writes of the last announcement */
    struct remo__skipped_writes *skipped; /* the same writes: the fence of the next arrival skips them */
    uint32_t behind;                      /* peers[] before this index have arrived in `round` */
    uint32_t peer_count;
    uint16_t peers[REMO_NODES_MAX];
};

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
    for (uint32_t node = remo_sst_next(barrier->sst, 0); node < REMO_NODES_MAX;
         node = remo_sst_next(barrier->sst, node + 1))
        if (node != barrier->node->rank)
            barrier->peers[barrier->peer_count++] = (uint16_t)node;
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
    for (; barrier->behind < barrier->peer_count; barrier->behind++)
        if (remo_channel_peer(remo_sst_channel(barrier->sst), barrier->peers[barrier->behind])
            == REMO_CHANNEL_WAITING)
            return 0;
    return 1;
}

static int wait_opened(struct remo_barrier *barrier, uint64_t timeout_ns) {
    barrier->behind = 0;
    int rc = remo__wait(barrier->node, have_all_opened, barrier, remo__deadline(timeout_ns));
    if (rc == -ETIMEDOUT)
        return remo__fail(rc, "node %u has not opened barrier %s yet", barrier->peers[barrier->behind],
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

static int arrive(struct remo_barrier *barrier, uint64_t timeout_ns) {
    if (!barrier->has_arrived) {
        int rc = remo__wait_attempt(barrier->node, fence_writes, barrier, remo__deadline(timeout_ns));
        if (rc != 0)
            return remo__fail_more(rc, "barrier %s: this node has not arrived",
                                   remo_channel_name(barrier->channel));
        barrier->round++;
        barrier->has_arrived = true;
        barrier->has_announced = false;
        barrier->behind = 0;
        remo_sst_store(barrier->sst, &barrier->round);
        remo__skipped_begin(barrier->skipped, remo__thread(barrier->node));
    }
    if (barrier->has_announced)
        return 0;
    int rc = remo_sst_push_all(barrier->sst, &barrier->writes);
    if (rc == 0)
        remo__skipped_end(barrier->skipped);
    else
        remo__skipped_drop(barrier->skipped);
    barrier->has_announced = rc == 0;
    return rc;
}

static uint64_t load_row(const struct remo_barrier *barrier, uint32_t node) {
    uint64_t row = 0;
    return remo_sst_load(barrier->sst, node, &row) == 0 ? row : 0;
}

static bool peer_has_arrived(const struct remo_barrier *barrier, uint32_t node) {
    return (load_row(barrier, node) & ~ABANDONED) >= barrier->round;
}

/* A peer has abandoned the barrier, because a participant has failed. Return whether this round fails too:
 * after this node has detected a failure or leave itself, so that a caller that gets -EHOSTDOWN finds the
 * failed node; or after DETECT_NS, in case only the peer and the failed node have lost each other. */
static bool is_abandonment_confirmed(struct remo_barrier *barrier) {
    for (uint32_t i = 0; i < barrier->peer_count; i++)
        if (remo__channel_check_peer(remo_sst_channel(barrier->sst), barrier->peers[i]) != 0)
            return true;
    if (barrier->abandoned_ns == 0)
        barrier->abandoned_ns = remo__now_ns();
    return remo__now_ns() - barrier->abandoned_ns > DETECT_NS;
}

/* Check a peer whose arrival was not read yet. A peer that arrived and then failed or left does not fail the
 * round. So its row is read once more after the departure was detected: a channel reports a departure after
 * all writes of the peer were placed. 1: the peer has arrived; 0: not yet; or the error of the round.
 * -EAGAIN: not yet, and from now on the result depends on the time. */
static int check_peer(struct remo_barrier *barrier, uint32_t node) {
    int rc = remo__channel_check_peer(remo_sst_channel(barrier->sst), node);
    bool has_abandoned = rc == 0 && (load_row(barrier, node) & ABANDONED);
    if (remo__likely(rc == 0 && !has_abandoned))
        return 0;
    if (peer_has_arrived(barrier, node))
        return 1;
    bool is_first = barrier->abandoned_ns == 0;
    if (has_abandoned && !is_abandonment_confirmed(barrier))
        return is_first ? -EAGAIN : 0;
    if (has_abandoned)
        rc = remo__fail(-EHOSTDOWN, "node %u has abandoned the barrier, because a participant failed or left",
                        node);
    return remo__fail_more(rc, "barrier %s, round %llu", remo_channel_name(barrier->channel),
                           (unsigned long long)barrier->round);
}

/* The peer that this node waits for is up, and may arrive late. The round fails immediately if another peer
 * has failed before its arrival. */
static int check_other_peers(struct remo_barrier *barrier) {
    for (uint32_t i = barrier->behind + 1; i < barrier->peer_count; i++) {
        int rc = check_peer(barrier, barrier->peers[i]);
        if (remo__unlikely(rc < 0))
            return rc;
    }
    return 0;
}

static int have_all_arrived(void *ctx) {
    struct remo_barrier *barrier = ctx;
    for (; barrier->behind < barrier->peer_count; barrier->behind++) {
        uint32_t node = barrier->peers[barrier->behind];
        int rc = peer_has_arrived(barrier, node) ? 1 : check_peer(barrier, node);
        if (rc != 1)
            return rc < 0 ? rc : check_other_peers(barrier);
    }
    return 1;
}

/* A peer that received the arrival of the failed node passes the round that fails here, and waits for this
 * node in the next round. This write ends that wait. Its errors are ignored: a peer that it does not reach
 * has lost this node, and detects that. */
void remo__barrier_abandon(struct remo_barrier *barrier) {
    char sentence[REMO__SENTENCE_MAX];
    uint64_t row = barrier->round | ABANDONED;
    if (barrier->has_abandoned)
        return;
    barrier->has_abandoned = true;
    snprintf(sentence, sizeof sentence, "%s", remo_last_error());
    remo_sst_store(barrier->sst, &row);
    (void)remo_sst_push_all(barrier->sst, &barrier->writes);
    remo__fail(-EHOSTDOWN, "%s", sentence);
}

/* All peers have arrived in this round, so they have read this node's arrival in the previous round. That
 * write is placed, and so are earlier writes on the same connections. */
static void complete_round(struct remo_barrier *barrier) {
    barrier->has_arrived = false;
    remo__skipped_placed(barrier->skipped);
}

/* An abandonment is confirmed after DETECT_NS, and no notification marks that time. So the wait polls from
 * the first abandonment (-EAGAIN) on. */
static int await_arrivals(struct remo_barrier *barrier, uint64_t deadline_ns) {
    int rc = -EAGAIN;
    if (remo__likely(barrier->abandoned_ns == 0))
        rc = remo__wait(barrier->node, have_all_arrived, barrier, deadline_ns);
    if (remo__unlikely(rc == -EAGAIN))
        rc = remo__wait_polling(barrier->node, have_all_arrived, barrier, deadline_ns);
    return rc;
}

int remo_barrier_wait(struct remo_barrier *barrier, uint64_t timeout_ns) {
    REMO__REQUIRE(barrier);
    int rc = remo__likely(barrier->all_opened) ? 0 : wait_opened(barrier, timeout_ns);
    if (rc == 0)
        rc = arrive(barrier, timeout_ns);
    if (rc != 0)
        return rc;
    /* The deadline is computed after the announcement, while it is in flight. */
    rc = await_arrivals(barrier, remo__deadline(timeout_ns));
    if (rc == 0)
        complete_round(barrier);
    else if (rc == -ETIMEDOUT)
        return remo__fail(
            rc, "node %u has not arrived in round %llu of %s yet; the arrival of this node remains valid",
            barrier->peers[barrier->behind], (unsigned long long)barrier->round,
            remo_channel_name(barrier->channel));
    else
        remo__barrier_abandon(barrier);
    return rc;
}
