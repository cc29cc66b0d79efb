/* barrier.c - see remo/barrier.h: figure 1(a) of LOCO, for nodes that may come late, leave and die. */
#include "objects/barrier.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mutant.h"
#include "node/fence.h"
#include "objects/region.h"

#define HEARSAY_NS REMO__NS_PER_S

/* In a row, beside its arrivals: its node gave up the round that it came to last. */
#define GAVE_UP (UINT64_C(1) << 63)

struct remo_barrier {
    struct remo_node *node;
    struct remo_channel *channel;
    struct remo_sst *sst;    /* arrivals of each participant: u64 */
    uint64_t round;          /* own arrivals */
    bool met;                /* nobody is still to open the barrier */
    bool arrived;            /* in `round`, and not yet let go */
    bool told;               /* and the others were told */
    bool gave_up;            /* and will never be let go */
    uint64_t heard_ns;       /* since when another is known to have given up; 0: none is */
    struct remo_ack telling; /* the writes that tell them */
    struct remo__news *news; /* the same for fences */
    uint32_t behind;         /* others[] before this one have come to `round` */
    uint32_t others_count;
    uint16_t others[REMO_NODES_MAX];
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
        rc = remo__news_open(remo_channel_node(barrier->channel), &barrier->news);
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
            barrier->others[barrier->others_count++] = (uint16_t)node;
    *ret_barrier = barrier;
    return 0;
}

void remo_barrier_close(struct remo_barrier *barrier) {
    if (!barrier)
        return;
    remo_ack_cancel(&barrier->telling);
    remo_sst_close(barrier->sst);
    remo_channel_close(barrier->channel);
    free(barrier->news);
    free(barrier);
}

struct remo_channel *remo_barrier_channel(struct remo_barrier *barrier) {
    return barrier ? barrier->channel : NULL;
}

/* ---- nobody can be told before he has opened the barrier ---- */

static int nobody_is_late(void *ctx) {
    struct remo_barrier *barrier = ctx;
    int rc = remo__channel_check_match(barrier->channel);
    if (rc != 0)
        return rc;
    for (; barrier->behind < barrier->others_count; barrier->behind++)
        if (remo_channel_peer(remo_sst_channel(barrier->sst), barrier->others[barrier->behind])
            == REMO_CHANNEL_WAITING)
            return 0;
    return 1;
}

static int meet(struct remo_barrier *barrier, uint64_t timeout_ns) {
    barrier->behind = 0;
    int rc = remo__wait(barrier->node, nobody_is_late, barrier, remo__deadline(timeout_ns));
    if (rc == -ETIMEDOUT)
        return remo__fail(rc, "node %u has not opened barrier %s yet", barrier->others[barrier->behind],
                          remo_channel_name(barrier->channel));
    barrier->met = rc == 0;
    return rc;
}

/* ---- a round ---- */

/* What told the others of the last round is over. That one of them died, who may have come first, does no
 * harm: so it must not be for a fence to tell, ours or the user's. */
static int finish_telling(struct remo_barrier *barrier) {
    int rc = remo_ack_wait(&barrier->telling, barrier->node->op_timeout_ns);
    remo_ack_cancel(&barrier->telling);
    return rc == -EHOSTDOWN ? 0 : rc;
}

/* A wait condition. What was written to a node that died is for nobody to see, so it is no reason to keep the
 * others waiting: again, when the death is known. Other errors are told. */
static int fenced(void *ctx) {
    struct remo_barrier *barrier = ctx;
    int rc = REMO__MUTANT(barrier_fence) ? 0 : remo__fence_but(barrier->node, barrier->news);
    int told = finish_telling(barrier);
    if (rc != 0 && (rc != -EHOSTDOWN || REMO__MUTANT(barrier_dead_fence)))
        return rc;
    return told != 0 ? told : rc == 0;
}

static int arrive(struct remo_barrier *barrier, uint64_t timeout_ns) {
    if (!barrier->arrived) {
        int rc = remo__wait(barrier->node, fenced, barrier, remo__deadline(timeout_ns));
        if (rc != 0)
            return remo__fail_more(rc, "barrier %s: this node has not arrived",
                                   remo_channel_name(barrier->channel));
        barrier->round++;
        barrier->arrived = true;
        barrier->told = false;
        barrier->behind = 0;
        remo_sst_store(barrier->sst, &barrier->round);
        remo__news_begin(barrier->news, remo__thread(barrier->node));
    }
    if (barrier->told)
        return 0;
    int rc = remo_sst_push_all(barrier->sst, &barrier->telling);
    if (rc == 0 || REMO__MUTANT(barrier_news_drop))
        remo__news_end(barrier->news);
    else
        remo__news_drop(barrier->news);
    barrier->told = rc == 0 || REMO__MUTANT(barrier_told);
    return rc;
}

static uint64_t row_of(const struct remo_barrier *barrier, uint32_t node) {
    uint64_t row = 0;
    return remo_sst_load(barrier->sst, node, &row) == 0 ? row : 0;
}

static bool has_come(const struct remo_barrier *barrier, uint32_t node) {
    return (row_of(barrier, node) & ~GAVE_UP) + REMO__MUTANT(barrier_round) >= barrier->round;
}

/* Another has given up because somebody is gone. This node will hear who by itself, and whoever is told that
 * a round fails may rely on that; unless the two of them alone have lost each other. */
static bool believed(struct remo_barrier *barrier) {
    for (uint32_t i = 0; i < barrier->others_count; i++)
        if (remo__channel_check_peer(remo_sst_channel(barrier->sst), barrier->others[i]) != 0)
            return true;
    if (barrier->heard_ns == 0)
        barrier->heard_ns = remo__now_ns();
    return remo__now_ns() - barrier->heard_ns > HEARSAY_NS;
}

/* Who came and then went does not hold up the round; that he went may be seen before that he came, so look at
 * his row once more. Channels see to it that what a peer wrote is there before the news that it left. Who
 * gave up an earlier round comes to no other. 1: he came; 0: not yet. */
static int look_after(struct remo_barrier *barrier, uint32_t node) {
    int rc = remo__channel_check_peer(remo_sst_channel(barrier->sst), node);
    bool gave_up = rc == 0 && (row_of(barrier, node) & GAVE_UP);
    if (remo__likely(rc == 0 && !gave_up))
        return 0;
    if (has_come(barrier, node) && !REMO__MUTANT(barrier_came_first))
        return 1;
    if (gave_up && !REMO__MUTANT(barrier_believed) && !believed(barrier))
        return 0;
    if (gave_up)
        rc = remo__fail(-EHOSTDOWN, "node %u gave up the round before, since another was gone", node);
    return remo__fail_more(rc, "barrier %s, round %llu", remo_channel_name(barrier->channel),
                           (unsigned long long)barrier->round);
}

/* The one we wait for lives, and may take its time; but if one further on is gone nobody need wait for
 * that. */
static int look_after_rest(struct remo_barrier *barrier) {
    for (uint32_t i = barrier->behind + 1; i < barrier->others_count; i++) {
        int rc = look_after(barrier, barrier->others[i]);
        if (remo__unlikely(rc < 0))
            return rc;
    }
    return 0;
}

static int all_have_come(void *ctx) {
    struct remo_barrier *barrier = ctx;
    for (; barrier->behind < barrier->others_count; barrier->behind++) {
        uint32_t node = barrier->others[barrier->behind];
        int rc = has_come(barrier, node) ? 1 : look_after(barrier, node);
        if (rc != 1)
            return rc < 0 || REMO__MUTANT(barrier_rest) ? rc : look_after_rest(barrier);
    }
    return 1;
}

/* Who passed the round that this node gives up, because the one that died told him more, waits for this node
 * in the next: in vain, so let him know. Best effort: whom this does not reach has lost this node, and knows
 * that. */
void remo__barrier_give_up(struct remo_barrier *barrier) {
    char sentence[REMO__SENTENCE_MAX];
    uint64_t row = barrier->round | GAVE_UP;
    if (barrier->gave_up || REMO__MUTANT(barrier_give_up))
        return;
    barrier->gave_up = true;
    snprintf(sentence, sizeof sentence, "%s", remo_last_error());
    remo_sst_store(barrier->sst, &row);
    (void)remo_sst_push_all(barrier->sst, &barrier->telling);
    remo__fail(-EHOSTDOWN, "%s", sentence);
}

/* Who came to this round has seen that this node came to the last one: so that news is placed, and what went
 * before it the same way. */
static void pass(struct remo_barrier *barrier) {
    barrier->arrived = false;
    remo__news_placed(barrier->news);
}

int remo_barrier_wait(struct remo_barrier *barrier, uint64_t timeout_ns) {
    REMO__REQUIRE(barrier);
    int rc = remo__likely(barrier->met) ? 0 : meet(barrier, timeout_ns);
    if (rc == 0)
        rc = arrive(barrier, timeout_ns);
    if (rc != 0)
        return rc;
    /* The clock is read after the others were told, while they are on their way. */
    rc = remo__wait(barrier->node, all_have_come, barrier, remo__deadline(timeout_ns));
    if (rc == 0)
        pass(barrier);
    else if (rc == -ETIMEDOUT)
        return remo__fail(rc, "node %u has not come to round %llu of %s yet; this node's arrival stands",
                          barrier->others[barrier->behind], (unsigned long long)barrier->round,
                          remo_channel_name(barrier->channel));
    else
        remo__barrier_give_up(barrier);
    return rc;
}
