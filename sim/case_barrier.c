/* case_barrier.c - the barrier: nobody leaves before all came, what was written before is visible after, and
 * a death ends it for all. */
#include <errno.h>
#include <remo/barrier.h>
#include <remo/region.h>

#include "sim/case.h"

#define FOREVER REMO_FOREVER
#define WORDS 20u /* more than two lines */
#define DATA_BYTES (WORDS * 8u)
#define ROUNDS 3u

struct barrier_state {
    struct remo_barrier *barriers[SIM_NODES_MAX];
    struct remo_region *data[SIM_NODES_MAX];
    uint32_t came[SIM_NODES_MAX];   /* rounds */
    bool ended;                     /* the round of node 0 in case `absent` */
    uint64_t marked[SIM_NODES_MAX]; /* in case `again`: the round in which it wrote between two calls; or 0 */
};

static void open_barrier(void *state, struct remo_node *node, uint32_t rank) {
    struct barrier_state *s = state;
    sim_opened(remo_barrier_open(remo_node_root(node), "barrier", NULL, &s->barriers[rank]), "open");
    sim_opened(remo_region_open(remo_node_root(node), "data", DATA_BYTES, NULL, &s->data[rank]),
               "open the data");
    sim_opened(remo_channel_wait(remo_barrier_channel(s->barriers[rank]), FOREVER), "wait");
    sim_opened(remo_channel_wait(remo_region_channel(s->data[rank]), FOREVER), "wait for the data");
}

static void close_barrier(void *state, uint32_t rank) {
    struct barrier_state *s = state;
    remo_barrier_close(s->barriers[rank]);
    remo_region_close(s->data[rank]);
}

/* Has this node heard of anybody that is gone? */
static bool knows_of_a_death(uint32_t rank) {
    for (uint32_t node = 0; node < sim_world->test->nodes; node++)
        if (remo_node_peer(sim_world->nodes[rank], node) > REMO_PEER_UP)
            return true;
    return false;
}

/* An operation that was made to fail is no reason to stay away: ask again. False: somebody went. */
static bool come(struct barrier_state *s, uint32_t rank) {
    uint32_t round = ++s->came[rank];
    int rc;
    do
        rc = remo_barrier_wait(s->barriers[rank], FOREVER);
    while (rc != 0 && sim_hurt(rank) && sim_excused(rank, SIM_ANY, rc));
    sim_require(rc != -EHOSTDOWN || sim_fault.kind != SIM_CRASH || sim_out(rank) || knows_of_a_death(rank),
                "node %u is told that the round failed, and does not know yet who is gone", rank);
    if (sim_out(rank) || sim_excused(rank, SIM_ANY, rc))
        return false;
    sim_require(rc == 0, "barrier: %d (%s)", rc, remo_last_error());
    for (uint32_t node = 0; node < sim_world->test->nodes; node++)
        sim_require(s->came[node] >= round, "node %u left round %u before node %u came", rank, round, node);
    return true;
}

/* Before each round a node writes the round into the next node's memory; after it everybody reads another's.
 */
static void rounds_body(void *state, uint32_t rank, uint32_t thread) {
    struct barrier_state *s = state;
    uint32_t nodes = sim_world->test->nodes;
    (void)thread;
    for (uint64_t round = 1; round <= 2; round++) {
        uint64_t words[WORDS];
        for (uint32_t i = 0; i < WORDS; i++)
            words[i] = round;
        int rc = remo_region_write(s->data[rank], (rank + 1) % nodes, 0, words, sizeof words, 0, NULL);
        sim_require(rc == 0 || sim_excused(rank, SIM_ANY, rc), "write: %d", rc);
        if (!come(s, rank))
            return;
        uint32_t other = (rank + 2) % nodes;
        rc = remo_region_read(s->data[rank], other, 0, words, sizeof words, NULL);
        if (sim_any_out() || sim_excused(rank, SIM_ANY, rc) || sim_any_hurt())
            continue; /* what was written by or to a node that some have given up, and others not yet, may be
                         lost */
        sim_require(rc == 0, "read: %d", rc);
        for (uint32_t i = 0; i < WORDS; i++)
            sim_require(words[i] >= round, "after round %llu node %u does not see what was written before it",
                        (unsigned long long)round, rank);
    }
}

/* All are there: one round more. Somebody went: an error for everybody, at once. */
static void after(void *state, uint32_t rank) {
    struct barrier_state *s = state;
    bool went = come(s, rank);
    sim_require(went != sim_any_out(), "a round after the end: %s",
                went ? "somebody is missing, and it ends well" : "nobody is missing");
}

const struct sim_case sim_case_barrier = {
    .object = "barrier",
    .name = "rounds",
    .about = "nobody leaves before all came; what was written before is visible after",
    .nodes = 3,
    .threads = 1,
    .state_bytes = sizeof(struct barrier_state),
    .open = open_barrier,
    .close = close_barrier,
    .body = rounds_body,
    .after = after};

static void death_body(void *state, uint32_t rank, uint32_t thread) {
    (void)thread;
    for (uint32_t round = 0; round < ROUNDS; round++)
        if (!come(state, rank))
            return;
}

const struct sim_case sim_case_barrier_death = {
    .object = "barrier",
    .name = "death",
    .about = "rounds in which somebody may die: nobody hangs, nobody leaves early",
    .nodes = 3,
    .threads = 1,
    .state_bytes = sizeof(struct barrier_state),
    .open = open_barrier,
    .close = close_barrier,
    .body = death_body,
    .after = after,
    .goes_on = true};

static bool may_come(void *ctx) {
    const struct barrier_state *s = ctx;
    return s->came[2] > 0 || (sim_out(2) && s->ended);
}

/* Node 1 stays away until node 2 has come, or node 0 has heard that it never will. */
static void absent_body(void *state, uint32_t rank, uint32_t thread) {
    struct barrier_state *s = state;
    (void)thread;
    if (rank == 1)
        sim_until(may_come, s, "stay away");
    (void)come(s, rank);
    s->ended |= rank == 0;
}

const struct sim_case sim_case_barrier_absent = {
    .object = "barrier",
    .name = "absent",
    .about = "a death ends a round although somebody else who lives stays away",
    .nodes = 3,
    .threads = 1,
    .state_bytes = sizeof(struct barrier_state),
    .open = open_barrier,
    .close = close_barrier,
    .body = absent_body,
    .after = after,
    .fault_first = 2};

#define MARK 100u

/* To the next node. */
static void mark(struct barrier_state *s, uint32_t rank, uint64_t round) {
    uint64_t words[WORDS];
    for (uint32_t i = 0; i < WORDS; i++)
        words[i] = MARK;
    uint32_t next = (rank + 1) % sim_world->test->nodes;
    if (remo_region_write(s->data[rank], next, 0, words, sizeof words, 0, NULL) == 0)
        s->marked[rank] = round;
}

/* Those of others: a read behind the own one would push it out. */
static void look_for_marks(struct barrier_state *s, uint32_t rank, uint64_t round) {
    uint32_t nodes = sim_world->test->nodes;
    for (uint32_t node = 0; node < nodes; node++) {
        if (node == rank)
            continue;
        uint64_t words[WORDS], marked = s->marked[node];
        int rc = remo_region_read(s->data[rank], (node + 1) % nodes, 0, words, sizeof words, NULL);
        for (uint32_t i = 0; i < WORDS && rc == 0 && marked != 0 && marked < round && !sim_any_out(); i++)
            sim_require(words[i] == MARK,
                        "after round %llu node %u does not see what node %u wrote in round %llu",
                        (unsigned long long)round, rank, node, (unsigned long long)marked);
    }
}

/* Who is told of an error has perhaps arrived already; it writes, and calls again. After the next round, at
 * the latest, that is seen. */
static void again_body(void *state, uint32_t rank, uint32_t thread) {
    struct barrier_state *s = state;
    (void)thread;
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        int rc;
        ++s->came[rank];
        while ((rc = remo_barrier_wait(s->barriers[rank], FOREVER)) != 0 && sim_hurt(rank) && !sim_any_out())
            mark(s, rank, round);
        if (sim_out(rank) || sim_excused(rank, SIM_ANY, rc))
            return;
        sim_require(rc == 0, "barrier: %d (%s)", rc, remo_last_error());
        look_for_marks(s, rank, round);
    }
}

const struct sim_case sim_case_barrier_again = {.object = "barrier",
                                                .name = "again",
                                                .about = "who is told of an error writes, and calls again",
                                                .nodes = 3,
                                                .threads = 1,
                                                .state_bytes = sizeof(struct barrier_state),
                                                .open = open_barrier,
                                                .close = close_barrier,
                                                .body = again_body,
                                                .after = after,
                                                .goes_on = true};
