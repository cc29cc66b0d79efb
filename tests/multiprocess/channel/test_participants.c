/* test_participants.c - nodes that open one name with different sets of participants, in every order.
 *
 * Two nodes do not match if their sets differ and one set has the other node. A node that counts such a peer
 * as a participant gets -EPROTO with both sets. So does a node that opens later than an outsider.
 * A node that matches its peers is connected, or gets the sentence of a peer that does not match. */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "../../support/cluster.h"
#include "channel/channel.h"

#define NODES 3u
#define ORDERS 7u /* the six permutations of three nodes, and all nodes at once */

enum { ONLY_0 = 1, ONLY_1 = 2, ONLY_2 = 4, ALL = 7 };

static const uint64_t cases[][NODES] = {
    {ONLY_0 | ONLY_1, ONLY_0 | ONLY_1, ONLY_1 | ONLY_2}, /* node 1 is in both sets */
    {ONLY_0 | ONLY_1, ONLY_1 | ONLY_2, ONLY_1 | ONLY_2},
    {ONLY_0 | ONLY_1, ONLY_0 | ONLY_1, ALL}, /* node 2 is outside the set of the others */
    {ONLY_0 | ONLY_1, ONLY_0 | ONLY_1, ONLY_0 | ONLY_2},
    {ONLY_0 | ONLY_1, ONLY_0 | ONLY_1, ONLY_2}, /* two separate channels */
    {ONLY_0, ONLY_1, ONLY_2},
};
#define CASES (sizeof cases / sizeof cases[0])
#define ROUNDS 60u

static struct {
    _Atomic uint32_t holders[ROUNDS]; /* bit mask of nodes */
    _Atomic pid_t paused;
    atomic_bool is_resumed;
} * shared;

static struct remo_nodeset set_of(uint64_t nodes) {
    return (struct remo_nodeset){.word = {nodes}};
}

/* ---- what is expected ---- */

static bool has(uint64_t set, uint32_t node) {
    return set >> node & 1;
}

static bool mismatched(const uint64_t sets[NODES], uint32_t a, uint32_t b) {
    return sets[a] != sets[b] && (has(sets[a], b) || has(sets[b], a));
}

/* The node counts a peer as a participant that it does not match. */
static bool mismatches(const uint64_t sets[NODES], uint32_t node) {
    for (uint32_t peer = 0; peer < NODES; peer++)
        if (has(sets[node], peer) && sets[node] != sets[peer])
            return true;
    return false;
}

/* Return the turn of a node: 0, 1 or 2. */
static uint32_t turn_of(uint32_t order, uint32_t node) {
    static const uint8_t turns[ORDERS][NODES] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0},
                                                 {2, 0, 1}, {2, 1, 0}, {0, 0, 0}};
    return turns[order][node];
}

/* A peer outside the set of the node counts the node as a participant, and may open before the node. */
static bool may_mismatch(const uint64_t sets[NODES], uint32_t order, uint32_t node) {
    for (uint32_t peer = 0; peer < NODES; peer++)
        if (has(sets[peer], node) && !has(sets[node], peer) && turn_of(order, peer) <= turn_of(order, node))
            return true;
    return false;
}

static bool may_fail(const uint64_t sets[NODES], uint32_t order, uint32_t node) {
    for (uint32_t peer = 0; peer < NODES; peer++)
        if (has(sets[node], peer) && (mismatches(sets, peer) || may_mismatch(sets, order, peer)))
            return true;
    return false;
}

/* The sentence has the sets of two nodes that do not match. */
static bool has_both_descriptions(const uint64_t sets[NODES]) {
    for (uint32_t a = 0; a < NODES; a++)
        for (uint32_t b = 0; b < NODES; b++) {
            char own[REMO__NODESET_TEXT_BYTES], other[REMO__NODESET_TEXT_BYTES], words[256];
            struct remo_nodeset of_a = set_of(sets[a]), of_b = set_of(sets[b]);
            snprintf(words, sizeof words, "has the participants %s on node %u but %s on node %u",
                     remo__nodeset_text(&of_a, own), a, remo__nodeset_text(&of_b, other), b);
            if (mismatched(sets, a, b) && strstr(remo_last_error(), words))
                return true;
        }
    return false;
}

static int check_wait(struct remo_node *node, const uint64_t sets[NODES], uint32_t order) {
    uint32_t rank = remo_node_rank(node);
    int rc = remo_channel_wait(remo_node_root(node), 100 * SECOND);
    if (mismatches(sets, rank))
        CHECK_CODE(rc, -EPROTO);
    else if (!may_fail(sets, order, rank) || rc != -EPROTO)
        CHECK_OK(rc);
    if (rc == -EPROTO)
        CHECK(has_both_descriptions(sets));
    return 0;
}

/* ---- orders ---- */

static int meet_times(uint32_t times) {
    for (uint32_t i = 0; i < times; i++)
        CHECK_OK(cluster_meet());
    return 0;
}

/* ---- objects ---- */

static int open_lock(struct remo_channel *root, uint64_t set, void **ret_object) {
    struct remo_lock_options options = {.participants = set_of(set)};
    return remo_lock_open(root, "x", &options, (struct remo_lock **)ret_object);
}

static int open_channel(struct remo_channel *root, uint64_t set, void **ret_object) {
    struct remo_channel_options options = {.participants = set_of(set)};
    struct remo_channel *channel;
    uint32_t memory;
    CHECK_OK(remo_channel_open(root, "x", "test", &options, &channel));
    CHECK_OK(remo_channel_add_memory(channel, "data", 64, 64, NULL, &memory));
    *ret_object = channel;
    return remo_channel_join(channel);
}

static void close_lock(void *object) {
    remo_lock_close(object);
}

static void close_channel(void *object) {
    remo_channel_close(object);
}

static struct object {
    int (*open)(struct remo_channel *root, uint64_t set, void **ret_object);
    void (*close)(void *object);
} channel_object = {open_channel, close_channel}, lock_object = {open_lock, close_lock};

static int open_in_order(struct remo_node *node, const struct object *of, const uint64_t sets[NODES],
                         uint32_t order) {
    uint32_t rank = remo_node_rank(node), turn = turn_of(order, rank);
    void *object;
    if (meet_times(1 + turn))
        return 1;
    CHECK_OK(of->open(remo_node_root(node), sets[rank], &object));
    if (meet_times(NODES - turn) || check_wait(node, sets, order))
        return 1;
    CHECK_OK(cluster_meet());
    of->close(object);
    CHECK_OK(cluster_meet()); /* so that the next object does not connect to this one */
    return 0;
}

static int all_orders(struct remo_node *node, void *ctx) {
    for (uint32_t i = 0; i < CASES; i++)
        for (uint32_t order = 0; order < ORDERS; order++)
            if (open_in_order(node, ctx, cases[i], order))
                return fprintf(stderr, "in case %u, order %u\n", i, order), 1;
    return 0;
}

/* ---- mutual exclusion ---- */

static int acquire_at_once(struct remo_node *node, const uint64_t sets[NODES], uint32_t round) {
    uint32_t rank = remo_node_rank(node);
    _Atomic uint32_t *holders = &shared->holders[round];
    void *lock;
    CHECK_OK(cluster_meet());
    CHECK_OK(open_lock(remo_node_root(node), sets[rank], &lock));
    int rc = remo_lock_acquire(lock, 0, 0);
    CHECK(rc == 0 || rc == -EPROTO || rc == -ETIMEDOUT);
    if (rc == 0)
        atomic_fetch_or(holders, 1u << rank);
    CHECK_OK(cluster_meet());
    for (uint32_t peer = 0; peer < NODES && rc == 0; peer++)
        CHECK(!mismatched(sets, rank, peer) || !has(atomic_load(holders), peer));
    CHECK_OK(cluster_meet());
    if (rc == 0) { /* the home of the lock may have refused this node since */
        rc = remo_lock_release(lock, 0, REMO_FENCE_NONE);
        CHECK(rc == 0 || rc == -EPROTO);
    }
    CHECK_OK(cluster_meet());
    remo_lock_close(lock);
    return 0;
}

/* All nodes open the lock at the same time: two nodes that do not match never both hold it. */
static int never_both(struct remo_node *node, void *ctx) {
    (void)ctx;
    for (uint32_t round = 0; round < ROUNDS; round++)
        if (acquire_at_once(node, cases[round % CASES], round))
            return fprintf(stderr, "in case %u\n", (uint32_t)(round % CASES)), 1;
    return 0;
}

/* ---- an endpoint that was closed before its peer opened the name ---- */

/* Node 2 counts node 1 as a participant, and closes. Then node 1 opens the name without node 2: no
 * mismatch. */
static int closed_before(struct remo_node *node, void *ctx) {
    struct remo_channel *root = remo_node_root(node);
    uint32_t rank = remo_node_rank(node);
    void *channel;
    (void)ctx;
    if (rank == 2) {
        CHECK_OK(open_channel(root, ONLY_1 | ONLY_2, &channel));
        close_channel(channel);
    }
    CHECK_OK(cluster_meet());
    CHECK_OK(open_channel(root, rank == 2 ? ONLY_2 : ONLY_0 | ONLY_1, &channel));
    CHECK_OK(remo_channel_wait(channel, 100 * SECOND));
    CHECK_OK(cluster_meet());
    CHECK_OK(remo_channel_wait(channel, 100 * SECOND));
    close_channel(channel);
    return 0;
}

/* ---- an outsider that closes, and pauses ---- */

static _Atomic(struct remo_channel *) joining;
static atomic_bool is_held;

/* Hold the control thread until the join waits for an answer of node 2. */
static void hold_until_join(void *ctx, uint32_t from, const void *data, size_t bytes) {
    struct remo_channel *channel;
    (void)ctx, (void)from, (void)data, (void)bytes;
    atomic_store(&is_held, true);
    while (!(channel = atomic_load(&joining)) || !atomic_load(&channel->peers[2].awaited))
        usleep(1000);
}

static int open_held(struct remo_node *node, struct remo_channel **ret_held) {
    struct remo_channel_options options = {.on_message = hold_until_join};
    CHECK_OK(remo_channel_open(remo_node_root(node), "held", "test", &options, ret_held));
    CHECK_OK(remo_channel_join(*ret_held));
    CHECK_OK(remo_channel_wait(*ret_held, 100 * SECOND));
    return cluster_meet();
}

/* Node 2 closes while the control thread of node 1 is held, and pauses. */
static int close_and_pause(struct remo_channel *channel) {
    if (meet_times(1))
        return 1;
    close_channel(channel);
    atomic_store(&shared->paused, getpid());
    raise(SIGSTOP);
    atomic_store(&shared->is_resumed, true);
    return 0;
}

/* Repeated, because on a slow machine the node may not have stopped itself yet. */
static void resume(void) {
    while (!atomic_load(&shared->is_resumed)) {
        kill(atomic_load(&shared->paused), SIGCONT);
        cluster_sleep_ms(1);
    }
}

static int join_without(struct remo_node *node, struct remo_channel *held) {
    struct remo_channel_options options = {.participants = set_of(ONLY_0 | ONLY_1)};
    struct remo_channel *channel;
    CHECK_OK(remo_channel_send(held, 1, "hold", 4));
    while (!atomic_load(&is_held))
        cluster_sleep_ms(1);
    if (meet_times(1))
        return 1;
    while (atomic_load(&shared->paused) == 0)
        cluster_sleep_ms(1);
    cluster_sleep_ms(20); /* the node stops itself next */
    CHECK_OK(remo_channel_open(remo_node_root(node), "x", "test", &options, &channel));
    atomic_store(&joining, channel);
    int rc = remo_channel_join(channel);
    resume();
    CHECK_OK(rc);
    remo_channel_close(channel);
    return 0;
}

/* Node 1 opens the name after the close of node 2, before it receives that. Node 2 does not answer. */
static int closed_and_paused(struct remo_node *node, void *ctx) {
    uint32_t rank = remo_node_rank(node);
    struct remo_channel *held;
    void *channel;
    (void)ctx;
    if (open_held(node, &held))
        return 1;
    if (rank == 2)
        CHECK_OK(open_channel(remo_node_root(node), ONLY_1 | ONLY_2, &channel));
    CHECK_OK(cluster_meet());
    if (rank == 2 ? close_and_pause(channel) : rank == 1 ? join_without(node, held) : meet_times(1))
        return 1;
    CHECK_OK(cluster_meet());
    remo_channel_close(held);
    return 0;
}

/* ---- an outsider ---- */

/* Nodes 0 and 1 use a heap. Node 2 opens the name with all nodes: it is refused, and the heap stays
 * usable. */
static int outsider(struct remo_node *node, void *ctx) {
    uint32_t rank = remo_node_rank(node);
    struct remo_heap_options options = {.participants = set_of(rank == 2 ? ALL : ONLY_0 | ONLY_1)};
    struct remo_heap *heap = NULL;
    struct remo_addr addr;
    (void)ctx;
    if (rank != 2)
        CHECK_OK(remo_heap_open(remo_node_root(node), "x", &options, &heap));
    if (rank != 2)
        CHECK_OK(remo_channel_wait(remo_heap_channel(heap), 100 * SECOND));
    CHECK_OK(cluster_meet());
    if (rank == 2) {
        CHECK_OK(remo_heap_open(remo_node_root(node), "x", &options, &heap));
        CHECK_CODE(remo_channel_wait(remo_heap_channel(heap), 100 * SECOND), -EPROTO);
        CHECK_SENTENCE(remo_heap_alloc(heap, 64, 0, &addr), -EPROTO, "nodes 0-2 on node 2");
    }
    CHECK_OK(cluster_meet());
    if (rank != 2) {
        CHECK_OK(remo_channel_wait(remo_heap_channel(heap), 100 * SECOND));
        CHECK_OK(remo_heap_alloc(heap, 64, 0, &addr));
        CHECK_OK(remo_heap_pin(heap));
        CHECK_OK(remo_heap_unpin(heap));
    }
    CHECK_OK(cluster_meet());
    remo_heap_close(heap);
    return 0;
}

static void setup(void) {
    memset(shared, 0, sizeof *shared);
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST_NAMED("channel", all_orders, NODES, .ctx = &channel_object),
        CLUSTER_TEST_NAMED("lock", all_orders, NODES, .ctx = &lock_object),
        CLUSTER_TEST(never_both, NODES),
        CLUSTER_TEST(closed_before, NODES),
        CLUSTER_TEST(closed_and_paused, NODES),
        CLUSTER_TEST(outsider, NODES),
        {0},
    };
    shared = cluster_shared(sizeof *shared);
    return cluster_main(argc, argv, tests, setup);
}
