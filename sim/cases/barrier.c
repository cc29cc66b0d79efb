/* barrier.c - the barrier: no node leaves a round before all participants have arrived.
 * Data written before the round is visible after it, and the failure of a node ends the round for
 * all. */
#include <errno.h>
#include <remo/barrier.h>
#include <remo/region.h>

#include "sim/case.h"
#include "sim/network/net.h"

#define FOREVER REMO_FOREVER
#define WORDS 20u /* more than two cache lines */
#define DATA_BYTES (WORDS * 8u)
#define ROUNDS 3u

struct barrier_state {
    struct remo_barrier *barriers[SIM_NODES_MAX];
    struct remo_region *data[SIM_NODES_MAX];
    uint32_t arrived[SIM_NODES_MAX]; /* rounds begun */
    bool ended;                      /* the round of node 0 in case `absent` */
    /* in case `again`: the round in which it wrote between two calls; or 0 */
    uint64_t marked[SIM_NODES_MAX];
    bool missed[SIM_NODES_MAX]; /* in case `outside`: the node did not read the other's write */
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

/* Return whether this node has detected the failure of any node. */
static bool has_detected_failure(uint32_t rank) {
    for (uint32_t node = 0; node < sim_world->test->nodes; node++)
        if (remo_node_peer(sim_world->nodes[rank], node) > REMO_PEER_UP)
            return true;
    return false;
}

/* Enter one round; repeat a call that was made to fail. Returns false if a participant has
 * failed. */
static bool arrive(struct barrier_state *s, uint32_t rank) {
    uint32_t round = ++s->arrived[rank];
    int rc;
    do
        rc = remo_barrier_wait(s->barriers[rank], FOREVER);
    while (rc != 0 && sim_hurt(rank) && sim_excused(rank, SIM_ANY, rc));
    sim_require(rc != -EHOSTDOWN || sim_fault.kind != SIM_CRASH || sim_out(rank)
                    || has_detected_failure(rank),
                "the round fails on node %u, which has not detected a failed node", rank);
    if (sim_out(rank) || sim_excused(rank, SIM_ANY, rc))
        return false;
    sim_require(rc == 0, "barrier: %d (%s)", rc, remo_last_error());
    for (uint32_t node = 0; node < sim_world->test->nodes; node++)
        sim_require(s->arrived[node] >= round, "node %u left round %u before node %u arrived", rank, round,
                    node);
    return true;
}

/* Before each round a node writes to the next node; after the round all nodes read another node's
 * data. */
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
        if (!arrive(s, rank))
            return;
        uint32_t other = (rank + 2) % nodes;
        rc = remo_region_read(s->data[rank], other, 0, words, sizeof words, NULL);
        if (sim_any_out() || sim_excused(rank, SIM_ANY, rc) || sim_any_hurt())
            continue; /* a write by or to a node that some have declared failed may be lost */
        sim_require(rc == 0, "read: %d", rc);
        for (uint32_t i = 0; i < WORDS; i++)
            sim_require(words[i] >= round,
                        "after round %llu node %u does not read the data written before it",
                        (unsigned long long)round, rank);
    }
}

/* With all participants, one more round succeeds. After a failure every participant gets an error
 * at once. */
static void after(void *state, uint32_t rank) {
    struct barrier_state *s = state;
    bool done = arrive(s, rank);
    sim_require(done != sim_any_out(), "a round after the end: %s",
                done ? "a participant has failed, and it returns 0" : "no participant has failed");
}

const struct sim_case sim_case_barrier = {
    .object = "barrier",
    .name = "rounds",
    .about = "no node leaves before all arrived; earlier writes are visible after",
    .nodes = 3,
    .threads = 1,
    .state_bytes = sizeof(struct barrier_state),
    .open = open_barrier,
    .close = close_barrier,
    .body = rounds_body,
    .after = after};

/* The fence of a round flushes no earlier arrival, if the network keeps the order of writes. */
static void check_reads(uint32_t rank) {
    struct remo_stats stats;
    remo_thread_stats(sim_world->nodes[rank], &stats);
    sim_require(stats.reads == 0 || sim_fault.kind != SIM_NO_FAULT || !sim_profile->put_put,
                "%llu reads without a failure or other operations", (unsigned long long)stats.reads);
}

static void failures_body(void *state, uint32_t rank, uint32_t thread) {
    (void)thread;
    for (uint32_t round = 0; round < ROUNDS; round++)
        if (!arrive(state, rank))
            return;
    check_reads(rank);
}

const struct sim_case sim_case_barrier_failures = {
    .object = "barrier",
    .name = "failures",
    .about = "rounds in which a node may fail: no node hangs or leaves early",
    .nodes = 3,
    .threads = 1,
    .state_bytes = sizeof(struct barrier_state),
    .open = open_barrier,
    .close = close_barrier,
    .body = failures_body,
    .after = after,
    .continues_after_failure = true};

static bool may_arrive(void *ctx) {
    const struct barrier_state *s = ctx;
    return s->arrived[2] > 0 || (sim_out(2) && s->ended);
}

/* Node 1 does not arrive until node 2 has arrived, or until node 0 has detected the failure of node
 * 2. */
static void absent_body(void *state, uint32_t rank, uint32_t thread) {
    struct barrier_state *s = state;
    (void)thread;
    if (rank == 1)
        sim_until(may_arrive, s, "wait before arriving");
    (void)arrive(s, rank);
    s->ended |= rank == 0;
}

const struct sim_case sim_case_barrier_absent = {
    .object = "barrier",
    .name = "absent",
    .about = "a failure ends a round although another node has not arrived",
    .nodes = 3,
    .threads = 1,
    .state_bytes = sizeof(struct barrier_state),
    .open = open_barrier,
    .close = close_barrier,
    .body = absent_body,
    .after = after,
    .fault_first = 2};

#define MARK 100u

/* Write marks to the next node. */
static void mark(struct barrier_state *s, uint32_t rank, uint64_t round) {
    uint64_t words[WORDS];
    for (uint32_t i = 0; i < WORDS; i++)
        words[i] = MARK;
    uint32_t next = (rank + 1) % sim_world->test->nodes;
    if (remo_region_write(s->data[rank], next, 0, words, sizeof words, 0, NULL) == 0)
        s->marked[rank] = round;
}

/* Check the marks of other nodes; a read after the node's own write would force its placement. */
static void check_marks(struct barrier_state *s, uint32_t rank, uint64_t round) {
    uint32_t nodes = sim_world->test->nodes;
    for (uint32_t node = 0; node < nodes; node++) {
        if (node == rank)
            continue;
        uint64_t words[WORDS], marked = s->marked[node];
        int rc = remo_region_read(s->data[rank], (node + 1) % nodes, 0, words, sizeof words, NULL);
        for (uint32_t i = 0; i < WORDS && rc == 0 && marked != 0 && marked < round && !sim_any_out(); i++)
            sim_require(words[i] == MARK,
                        "after round %llu node %u does not read the data of node %u from round %llu",
                        (unsigned long long)round, rank, node, (unsigned long long)marked);
    }
}

/* A failed call may have announced the arrival already. The node writes and calls again; its peers
 * must see the write after the next round at the latest. */
static void again_body(void *state, uint32_t rank, uint32_t thread) {
    struct barrier_state *s = state;
    (void)thread;
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        int rc;
        ++s->arrived[rank];
        while ((rc = remo_barrier_wait(s->barriers[rank], FOREVER)) != 0 && sim_hurt(rank) && !sim_any_out())
            mark(s, rank, round);
        if (sim_out(rank) || sim_excused(rank, SIM_ANY, rc))
            return;
        sim_require(rc == 0, "barrier: %d (%s)", rc, remo_last_error());
        check_marks(s, rank, round);
    }
}

const struct sim_case sim_case_barrier_again = {.object = "barrier",
                                                .name = "again",
                                                .about = "after an error a node writes and calls again",
                                                .nodes = 3,
                                                .threads = 1,
                                                .state_bytes = sizeof(struct barrier_state),
                                                .open = open_barrier,
                                                .close = close_barrier,
                                                .body = again_body,
                                                .after = after,
                                                .continues_after_failure = true};

/* ---- a node that does not participate ---- */

static void open_outside(void *state, struct remo_node *node, uint32_t rank) {
    struct barrier_state *s = state;
    struct remo_barrier_options options = {0};
    remo_nodeset_add(&options.participants, 0);
    remo_nodeset_add(&options.participants, 1);
    sim_opened(remo_region_open(remo_node_root(node), "data", DATA_BYTES, NULL, &s->data[rank]),
               "open the data");
    sim_opened(remo_channel_wait(remo_region_channel(s->data[rank]), FOREVER), "wait for the data");
    if (rank == 2)
        return;
    sim_opened(remo_barrier_open(remo_node_root(node), "barrier", &options, &s->barriers[rank]), "open");
    sim_opened(remo_channel_wait(remo_barrier_channel(s->barriers[rank]), FOREVER), "wait");
}

/* Node 0 writes a word, arrives, and reads the word of node 2, which writes, fences and reads. At least one
 * of the two must read the other's write. Without the fence of the barrier both reads may pass the writes. */
static void outside_body(void *state, uint32_t rank, uint32_t thread) {
    struct barrier_state *s = state;
    uint64_t one = 1, own = 64 * (rank / 2), other = 64 - own, seen = 1;
    (void)thread;
    if (rank != 1)
        sim_require(remo_region_write(s->data[rank], 1, own, &one, 8, 0, NULL) == 0, "write");
    int rc = rank == 2 ? remo_fence(sim_world->nodes[rank], REMO_FENCE_PAIR, 1)
                       : remo_barrier_wait(s->barriers[rank], FOREVER);
    sim_require(rc == 0, "fence or barrier: %d (%s)", rc, remo_last_error());
    if (rank != 1)
        sim_require(remo_region_read(s->data[rank], 1, other, &seen, 8, NULL) == 0, "read");
    s->missed[rank] = seen == 0;
}

static void check_outside(void *state) {
    const struct barrier_state *s = state;
    sim_require(!s->missed[0] || !s->missed[2], "neither node read the other's write");
}

const struct sim_case sim_case_barrier_outside = {
    .object = "barrier",
    .name = "outside",
    .about = "writes before the barrier are visible to a node that does not participate",
    .nodes = 3,
    .threads = 1,
    .state_bytes = sizeof(struct barrier_state),
    .open = open_outside,
    .close = close_barrier,
    .body = outside_body,
    .check = check_outside,
    .has_own_fault = true};

/* ---- two stages: with four participants in the simulator (objects/stages.h) ---- */

const struct sim_case sim_case_barrier_stages = {
    .object = "barrier",
    .name = "stages",
    .about = "two stages: no node leaves before all arrived; earlier writes are visible after",
    .nodes = 4,
    .threads = 1,
    .state_bytes = sizeof(struct barrier_state),
    .open = open_barrier,
    .close = close_barrier,
    .body = rounds_body,
    .after = after};

const struct sim_case sim_case_barrier_stages_fail = {
    .object = "barrier",
    .name = "stages_fail",
    .about = "two stages in which a node may fail: no node hangs or leaves early",
    .nodes = 4,
    .threads = 1,
    .state_bytes = sizeof(struct barrier_state),
    .open = open_barrier,
    .close = close_barrier,
    .body = failures_body,
    .after = after,
    .continues_after_failure = true};

static bool may_follow(void *ctx) {
    const struct barrier_state *s = ctx;
    return s->arrived[3] > 0 || (sim_out(3) && s->ended);
}

/* Node 3 announces nothing to node 2. Nodes 0 and 1 do not arrive until node 3 has arrived, or until node 2
 * has detected the failure of node 3. */
static void stages_absent_body(void *state, uint32_t rank, uint32_t thread) {
    struct barrier_state *s = state;
    (void)thread;
    if (rank < 2)
        sim_until(may_follow, s, "wait before arriving");
    (void)arrive(s, rank);
    s->ended |= rank == 2;
}

const struct sim_case sim_case_barrier_stages_absent = {
    .object = "barrier",
    .name = "stages_absent",
    .about = "a failure ends a round at a node to which the failed one announces nothing",
    .nodes = 4,
    .threads = 1,
    .state_bytes = sizeof(struct barrier_state),
    .open = open_barrier,
    .close = close_barrier,
    .body = stages_absent_body,
    .after = after,
    .fault_first = 3};

static bool has_ended(void *ctx) {
    return ((const struct barrier_state *)ctx)->ended;
}

/* Node 3 leaves after the first round, which the others complete nevertheless. The second round fails at node
 * 2 although nodes 0 and 1 have not arrived, and then at these. */
static void stages_leave_body(void *state, uint32_t rank, uint32_t thread) {
    struct barrier_state *s = state;
    (void)thread;
    (void)arrive(s, rank);
    if (rank == 3) {
        remo_barrier_close(s->barriers[rank]);
        s->barriers[rank] = NULL;
        return;
    }
    if (rank < 2)
        sim_until(has_ended, s, "wait before arriving");
    int rc = remo_barrier_wait(s->barriers[rank], FOREVER);
    sim_require(rc == -ENOTCONN || rc == -EHOSTDOWN, "a round without node 3: %d (%s)", rc,
                remo_last_error());
    s->ended |= rank == 2;
}

const struct sim_case sim_case_barrier_stages_leave = {
    .object = "barrier",
    .name = "stages_leave",
    .about = "a node leaves after a round that other nodes have not completed yet",
    .nodes = 4,
    .threads = 1,
    .state_bytes = sizeof(struct barrier_state),
    .open = open_barrier,
    .close = close_barrier,
    .body = stages_leave_body,
    .has_own_fault = true};

#define TRIES 3u

/* Calls time out between the stages. The node writes and calls again; its peers must see the write after the
 * next round at the latest. */
static void stages_again_body(void *state, uint32_t rank, uint32_t thread) {
    struct barrier_state *s = state;
    (void)thread;
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        int rc = -ETIMEDOUT;
        ++s->arrived[rank];
        for (uint32_t i = 0; i < TRIES && rc == -ETIMEDOUT; i++)
            if ((rc = remo_barrier_wait(s->barriers[rank], 0)) == -ETIMEDOUT)
                mark(s, rank, round);
        while (rc == -ETIMEDOUT || (rc != 0 && sim_hurt(rank) && !sim_any_out()))
            rc = remo_barrier_wait(s->barriers[rank], FOREVER);
        if (sim_out(rank) || sim_excused(rank, SIM_ANY, rc))
            return;
        sim_require(rc == 0, "barrier: %d (%s)", rc, remo_last_error());
        check_marks(s, rank, round);
    }
}

const struct sim_case sim_case_barrier_stages_again = {
    .object = "barrier",
    .name = "stages_again",
    .about = "between the stages a node times out, writes and calls again",
    .nodes = 4,
    .threads = 1,
    .state_bytes = sizeof(struct barrier_state),
    .open = open_barrier,
    .close = close_barrier,
    .body = stages_again_body,
    .after = after,
    .continues_after_failure = true};
