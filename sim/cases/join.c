/* join.c - joins of nodes that open one name with different sets of participants (docs/internals/join.md).
 * Two nodes that do not match are never both usable after their joins. A node whose participants all match is
 * not affected by a node outside its set that joins later. */
#include <remo/channel.h>

#include "channel/registry.h"
#include "sim/case.h"
#include "sim/scheduler.h"

#define NODES 3u
#define BYTES 64u

enum { ONLY_0 = 1, ONLY_1 = 2, ONLY_2 = 4, ALL = 7 };

static const uint64_t sets_of[][NODES] = {
    {ONLY_0 | ONLY_1, ONLY_0 | ONLY_1, ONLY_1 | ONLY_2}, /* node 1 is in both sets */
    {ONLY_0 | ONLY_1, ONLY_1 | ONLY_2, ONLY_1 | ONLY_2},
    {ONLY_0 | ONLY_1, ONLY_0 | ONLY_1, ALL}, /* node 2 is outside the set of the others */
    {ONLY_0, ONLY_0 | ONLY_1, ALL},
    {ONLY_0, ONLY_0 | ONLY_1, ONLY_2},
};

struct join_state {
    struct remo_node *nodes[NODES];
    struct remo_channel *channels[NODES];
    bool is_chosen;
    uint64_t sets[NODES];
    bool joined[NODES];               /* the join has returned */
    bool joined_before[NODES][NODES]; /* [of a peer][of a node]: before the join of the node began */
    bool usable[NODES];               /* without a mismatch when the join returned */
    bool is_closed;                   /* withdrawn: node 2 has closed its channel */
};

static void open_node(void *state, struct remo_node *node, uint32_t rank) {
    ((struct join_state *)state)->nodes[rank] = node;
}

static void close_channel(void *state, uint32_t rank) {
    remo_channel_close(((struct join_state *)state)->channels[rank]);
}

static void join(struct join_state *s, uint32_t rank, uint64_t set) {
    struct remo_channel_options options = {.participants = {.word = {set}}};
    struct remo_channel *root = remo_node_root(s->nodes[rank]);
    uint32_t memory;
    sim_opened(remo_channel_open(root, "x", "test", &options, &s->channels[rank]), "open");
    sim_opened(remo_channel_add_memory(s->channels[rank], "data", BYTES, BYTES, NULL, &memory), "add memory");
    sim_opened(remo_channel_join(s->channels[rank]), "join");
}

/* ---- all nodes join ---- */

static bool has(uint64_t set, uint32_t node) {
    return set >> node & 1;
}

/* The sets differ, and node `a` counts node `b` as a participant. */
static bool counts_wrongly(const struct join_state *s, uint32_t a, uint32_t b) {
    return s->sets[a] != s->sets[b] && has(s->sets[a], b);
}

static bool is_mismatched(const struct join_state *s, uint32_t node) {
    return atomic_load(&s->channels[node]->mismatched);
}

static void sets_body(void *state, uint32_t rank, uint32_t thread) {
    struct join_state *s = state;
    (void)thread;
    if (!s->is_chosen) {
        uint32_t choice = sim_choose(sizeof sets_of / sizeof sets_of[0]);
        for (uint32_t node = 0; node < NODES; node++)
            s->sets[node] = sets_of[choice][node];
        s->is_chosen = true;
    }
    for (uint32_t peer = 0; peer < NODES; peer++)
        s->joined_before[peer][rank] = s->joined[peer];
    join(s, rank, s->sets[rank]);
    s->usable[rank] = !is_mismatched(s, rank);
    s->joined[rank] = true;
}

/* Return whether no peer can have set the mismatch at this node: each peer of its set matches it and has no
 * mismatch, and each other peer that counts this node as a participant joined later. */
static bool is_unaffected(const struct join_state *s, uint32_t node) {
    for (uint32_t peer = 0; peer < NODES; peer++) {
        bool is_outsider = !has(s->sets[node], peer);
        if (!is_outsider && (counts_wrongly(s, node, peer) || (peer != node && is_mismatched(s, peer))))
            return false;
        if (is_outsider && counts_wrongly(s, peer, node) && !s->joined_before[node][peer])
            return false;
    }
    return true;
}

static void sets_after(void *state, uint32_t rank) {
    const struct join_state *s = state;
    for (uint32_t peer = 0; peer < NODES; peer++) {
        bool is_wrong = counts_wrongly(s, rank, peer);
        sim_require(!is_wrong || is_mismatched(s, rank), "node %u counts node %u, and has no mismatch", rank,
                    peer);
        sim_require(!is_wrong || !s->usable[rank] || !s->usable[peer], "nodes %u and %u are both usable",
                    rank, peer);
    }
    sim_require(!is_unaffected(s, rank) || !is_mismatched(s, rank), "node %u has a mismatch: %s", rank,
                s->channels[rank]->error_text);
}

const struct sim_case sim_case_join_sets = {.object = "channel",
                                            .name = "sets",
                                            .about = "nodes join a channel with different participants",
                                            .nodes = NODES,
                                            .threads = 1,
                                            .state_bytes = sizeof(struct join_state),
                                            .open = open_node,
                                            .close = close_channel,
                                            .body = sets_body,
                                            .after = sets_after,
                                            .has_own_fault = true};

/* ---- a JOIN that is kept, and withdrawn by the close of its endpoint ---- */

static bool is_withdrawn(void *ctx) {
    const struct join_state *s = ctx;
    const struct remo__early *early = &remo__registry(s->nodes[1])->early;
    for (uint32_t i = 0; i < REMO__EARLY_JOINS_MAX; i++)
        if (early->joins[i].id != 0 && early->joins[i].peer == 2)
            return false;
    return s->is_closed;
}

/* Node 1 keeps the JOIN of node 2 only until node 2 closes: a later join must not wait for node 2. */
static void withdrawn_body(void *state, uint32_t rank, uint32_t thread) {
    struct join_state *s = state;
    (void)thread;
    if (rank == 2) {
        join(s, rank, ONLY_1 | ONLY_2);
        remo_channel_close(s->channels[rank]);
        s->channels[rank] = NULL;
        s->is_closed = true;
        return;
    }
    if (rank == 1)
        sim_until(is_withdrawn, s, "wait until the JOIN is withdrawn");
    join(s, rank, ONLY_0 | ONLY_1);
    sim_opened(remo_channel_wait(s->channels[rank], REMO_FOREVER), "wait");
}

const struct sim_case sim_case_join_withdrawn = {.object = "channel",
                                                 .name = "withdrawn",
                                                 .about =
                                                     "a node closes before a peer has opened the channel",
                                                 .nodes = NODES,
                                                 .threads = 1,
                                                 .state_bytes = sizeof(struct join_state),
                                                 .open = open_node,
                                                 .close = close_channel,
                                                 .body = withdrawn_body,
                                                 .has_own_fault = true};
