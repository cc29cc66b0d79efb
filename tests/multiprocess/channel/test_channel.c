/* test_channel.c - tests of channels between real nodes: names, sub-channels, participants, late openers,
 * rounds without a pause, and peers that leave or fail. */
#include "channel_common.h"

/* ---- names ---- */

static int bad_names(struct remo_channel *root) {
    static const char *const illegal[] = {"a b",  "a/b",         "a.b", "/",   ".",    "a\n",
                                          "\x01", "caf\xc3\xa9", "a,b", "a%s", "a\x7f"};
    struct remo_channel *channel;
    char long_name[65];
    memset(long_name, 'n', 64);
    long_name[64] = '\0';
    CHECK_SENTENCE(remo_channel_open(root, "", "test", NULL, &channel), -EINVAL, "empty");
    CHECK_SENTENCE(remo_channel_open(root, NULL, "test", NULL, &channel), -EINVAL, "empty");
    CHECK_SENTENCE(remo_channel_open(root, long_name, "test", NULL, &channel), -ENAMETOOLONG, "at most 63");
    for (size_t i = 0; i < sizeof illegal / sizeof illegal[0]; i++)
        CHECK_SENTENCE(remo_channel_open(root, illegal[i], "test", NULL, &channel), -EINVAL, "[A-Za-z0-9_-]");
    CHECK_SENTENCE(remo_channel_open(root, "x", NULL, NULL, &channel), -EINVAL, "type");
    CHECK_CODE(remo_channel_open(root, "x", "", NULL, &channel), -EINVAL);
    CHECK_CODE(remo_channel_open(root, "x", long_name, NULL, &channel), -EINVAL);
    CHECK_SENTENCE(remo_channel_open(NULL, "x", "test", NULL, &channel), -EINVAL, "parent");
    CHECK_CODE(remo_channel_open(root, "x", "test", NULL, NULL), -EINVAL);
    long_name[63] = '\0';
    CHECK_OK(remo_channel_open(root, long_name, long_name, NULL, &channel));
    CHECK(strcmp(remo_channel_name(channel), long_name) == 0);
    remo_channel_close(channel);
    return 0;
}

static int bad_memories(struct remo_channel *root) {
    struct remo_channel *channel;
    uint32_t memory;
    CHECK_OK(remo_channel_open(root, "memories", "test", NULL, &channel));
    CHECK_CODE(remo_channel_add_memory(channel, "", 64, 64, NULL, &memory), -EINVAL);
    CHECK_CODE(remo_channel_add_memory(channel, "a.b", 64, 64, NULL, &memory), -EINVAL);
    CHECK_CODE(remo_channel_add_memory(channel, "a_name_too_long_", 64, 64, NULL, &memory), -ENAMETOOLONG);
    CHECK_CODE(remo_channel_add_memory(channel, "a", 64, 64, NULL, NULL), -EINVAL);
    CHECK_SENTENCE(remo_channel_add_memory(channel, "a", 1ull << 45, 64, NULL, &memory), -ENOSPC,
                   "memory a of channel memories");
    CHECK_CODE(remo_channel_add_memory(channel, "a", UINT64_MAX, 64, NULL, &memory), -ENOSPC);
    for (uint32_t i = 0; i < REMO_CHANNEL_MEMORIES_MAX; i++) {
        CHECK_OK(remo_channel_add_memory(channel, "a", 64 * i, 0, NULL, &memory));
        CHECK_EQUAL(memory, i);
        CHECK((remo_channel_memory(channel, i) != NULL) == (i > 0));
    }
    CHECK_SENTENCE(remo_channel_add_memory(channel, "a", 64, 64, NULL, &memory), -EINVAL, "at most 4");
    CHECK(remo_channel_memory(channel, 4) == NULL);
    CHECK_OK(remo_channel_join(channel));
    CHECK_SENTENCE(remo_channel_add_memory(channel, "a", 64, 64, NULL, &memory), -EINVAL, "before join");
    CHECK_OK(remo_channel_wait(channel, 100 * SECOND)); /* with all its memories it matches those of peers */
    remo_channel_close(channel);
    return 0;
}

static int bad_calls(struct remo_node *node) {
    struct remo_channel *root = remo_node_root(node), *channel;
    struct remo_channel_options options = {0};
    uint32_t memory;
    remo_nodeset_add(&options.participants, 0);
    remo_nodeset_add(&options.participants, remo_node_size(node));
    CHECK_SENTENCE(remo_channel_open(root, "x", "test", &options, &channel), -EINVAL,
                   "not a node of this job");
    options.participants = (struct remo_nodeset){0};
    remo_nodeset_add(&options.participants, 1 - remo_node_rank(node));
    CHECK_SENTENCE(remo_channel_open(root, "x", "test", &options, &channel), -EINVAL,
                   "among the participants");
    CHECK_CODE(remo_channel_join(root), -EINVAL);
    CHECK_CODE(remo_channel_join(NULL), -EINVAL);
    CHECK_SENTENCE(remo_channel_send(root, 0, "x", 1), -EINVAL, "root");
    CHECK_CODE(remo_channel_add_memory(root, "a", 64, 64, NULL, &memory), -EINVAL);
    CHECK_EQUAL(remo_channel_peer(root, 1 - remo_node_rank(node)), REMO_CHANNEL_CONNECTED);
    CHECK_EQUAL(remo_channel_peer(root, 7), REMO_CHANNEL_DOWN);
    remo_channel_close(NULL);
    remo_channel_close(root); /* it ends with its node */
    CHECK_OK(remo_channel_open(root, "x", "test", NULL, &channel));
    CHECK_SENTENCE(remo_channel_open(root, "x", "test", NULL, &channel), -EEXIST,
                   "open on this node already");
    CHECK_SENTENCE(remo_channel_open(root, "x", "other", NULL, &channel), -EEXIST,
                   "x is open on this node as a test");
    CHECK_SENTENCE(remo_channel_wait(channel, SECOND / 100), -ETIMEDOUT, "not joined");
    remo_channel_close(channel);          /* without a join */
    CHECK_OK(remo_channel_wait(root, 0)); /* no channel is open */
    return 0;
}

static int names(struct remo_node *node, void *ctx) {
    (void)ctx;
    if (bad_names(remo_node_root(node)) || bad_memories(remo_node_root(node)) || bad_calls(node))
        return 1;
    CHECK_OK(cluster_meet());
    return 0;
}

/* ---- sub-channels ---- */

static int sub_channels(struct remo_node *node, void *ctx) {
    struct remo_channel *root = remo_node_root(node), *map, *locks, *low, *deep[8], *parent;
    uint32_t rank = remo_node_rank(node), depth = 0;
    struct remo_stats stats;
    uint64_t word = 1;
    char name[61];
    (void)ctx;
    if (open_channel(root, "map", 64, NULL, &map))
        return 1;
    if (rank == 0)
        CHECK_OK(remo_channel_wait(map, 100 * SECOND));
    CHECK_OK(cluster_meet());
    if (open_channel(map, "locks", 64, NULL, &locks))
        return 1;
    if (rank == 1)
        CHECK_OK(cluster_meet());
    if (open_channel(locks, "low", 64, NULL, &low))
        return 1;
    if (rank == 0) { /* the wait of the parent covers the whole tree */
        CHECK_SENTENCE(remo_channel_wait(map, SECOND / 20), -ETIMEDOUT,
                       "node 1 has not opened channel map/locks/low");
        CHECK_OK(cluster_meet());
    }
    CHECK_OK(remo_channel_wait(map, 100 * SECOND));
    CHECK(strcmp(remo_channel_name(low), "map/locks/low") == 0);
    struct remo__ref ref;
    CHECK_OK(remo__memory_find(&low->memories[0], remo__thread(node), 1 - rank, 8, &ref));
    CHECK_OK(remo__write(ref, &word, sizeof word, 0, NULL));
    remo_channel_stats(map, &stats);
    CHECK_EQUAL(stats.writes, 1);
    memset(name, 'n', 60);
    name[60] = '\0';
    for (parent = root; remo_channel_open(parent, name, "test", NULL, &deep[depth]) == 0;
         parent = deep[depth++])
        CHECK(depth < 7);
    CHECK(strstr(remo_last_error(), "at most 200"));
    CHECK_EQUAL(depth, 3);
    remo_channel_close(deep[0]);
    CHECK_OK(cluster_meet());
    remo_channel_close(map); /* with its sub-channels */
    CHECK_OK(remo_channel_open(root, "map", "test", NULL, &map));
    CHECK_OK(remo_channel_open(map, "locks", "test", NULL, &locks));
    remo_channel_close(map);
    CHECK_OK(cluster_meet());
    return 0;
}

/* ---- order of opens and closes ---- */

/* Each node opens, and closes, in another order. */
static int any_order(struct remo_node *node, void *ctx) {
    enum { CHANNELS = 16 };
    struct remo_channel *channels[CHANNELS];
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    for (uint32_t round = 0; round < 10; round++) {
        for (uint32_t i = 0; i < CHANNELS; i++) {
            uint32_t which = (i * (2 * rank + 1) + rank * round) % CHANNELS;
            char name[16];
            snprintf(name, sizeof name, "c%u", which);
            if (open_channel(remo_node_root(node), name, 64, NULL, &channels[which]))
                return 1;
        }
        CHECK_OK(remo_channel_wait(remo_node_root(node), 100 * SECOND));
        for (uint32_t i = 0; i < CHANNELS; i++)
            for (uint32_t peer = 0; peer < remo_node_size(node); peer++)
                CHECK(remo_channel_peer(channels[i], peer) == REMO_CHANNEL_CONNECTED
                      || remo_channel_peer(channels[i], peer) == REMO_CHANNEL_LEFT);
        for (uint32_t i = 0; i < CHANNELS; i++)
            remo_channel_close(channels[(i * (2 * rank + 3) + round) % CHANNELS]);
    }
    CHECK_OK(cluster_meet());
    return 0;
}

/* Open, wait, close, and begin again, each node at its own pace: closes of a node meet opens of its peer.
 * Every wait succeeds, since all nodes do the same number of rounds. */
static int rounds(struct remo_node *node, void *ctx) {
    struct remo_channel *channel;
    uint32_t rank = remo_node_rank(node), state = 99 + rank;
    (void)ctx;
    for (uint32_t round = 0; round < 400; round++) {
        struct events events = {0};
        if (open_channel(remo_node_root(node), "again", 4096, &events, &channel))
            return 1;
        CHECK_OK(remo_channel_wait(channel, 100 * SECOND));
        for (uint32_t peer = 0; peer < remo_node_size(node); peer++)
            CHECK(peer == rank || events.connects[peer] <= 1);
        state = state * 1664525u + 1013904223u;
        if (state >> 24 < 8)
            cluster_sleep_ms(state >> 16 & 3);
        remo_channel_close(channel);
        CHECK_EQUAL(events.wrong, 0);
    }
    /* rounds_all keeps the node open until all nodes have done their rounds. */
    return 0;
}

static int rounds_all(struct remo_node *node, void *ctx) {
    int result = rounds(node, ctx);
    CHECK_OK(cluster_meet());
    return result;
}

static int late(struct remo_node *node, void *ctx) {
    struct events events = {0};
    struct remo_channel *channel;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    if (rank == 2)
        CHECK_OK(cluster_meet()); /* nodes 0 and 1 are connected, and have checked that node 2 is not */
    if (open_channel(remo_node_root(node), "late", 64, &events, &channel))
        return 1;
    if (rank != 2) {
        if (await_count(&events.connects[1 - rank], 1))
            return 1;
        CHECK_SENTENCE(remo_channel_wait(channel, SECOND / 20), -ETIMEDOUT,
                       "node 2 has not opened channel late");
        CHECK_SENTENCE(remo_channel_send(channel, 2, "x", 1), -ENOTCONN, "not connected to channel late yet");
        CHECK_OK(cluster_meet());
    }
    CHECK_OK(remo_channel_wait(channel, 100 * SECOND));
    for (uint32_t peer = 0; peer < 3; peer++) {
        if (peer == rank)
            continue;
        if (await_count(&events.joins[peer], 1) || await_count(&events.connects[peer], 1))
            return 1;
    }
    CHECK_OK(cluster_meet());
    if (rank == 1)
        remo_channel_close(channel);
    if (rank != 1 && await_count(&events.lefts[1], 1))
        return 1;
    if (rank != 1) {
        CHECK_EQUAL(remo_channel_peer(channel, 1), REMO_CHANNEL_LEFT);
        CHECK_SENTENCE(remo_channel_send(channel, 1, "x", 1), -ENOTCONN, "node 1 has closed channel late");
        CHECK_OK(remo_channel_wait(channel, 0)); /* it was connected */
    }
    CHECK_OK(cluster_meet());
    if (rank != 1)
        remo_channel_close(channel);
    return 0;
}

/* ---- participants ---- */

/* Nodes 0 and 1 do not match: the later one gets the sentence of the earlier one. Node 0 counts node 1 as a
 * participant and gets it in any order; node 1 does not count node 0, and continues if it is earlier. Node 2
 * matches node 1: it is connected, or refused if node 1 is the later one. */
static int wait_for_group(struct remo_node *node, struct remo_channel *channel, uint32_t late) {
    int rc = remo_channel_wait(channel, 100 * SECOND);
    uint32_t rank = remo_node_rank(node);
    if (rc == 0 && (rank == 2 || (rank == 1 && late == 0)))
        return 0;
    CHECK(rank == 0 || late == 1);
    CHECK_SENTENCE(rc, -EPROTO,
                   late == 0 ? "the participants nodes 1-2 on node 1 but nodes 0-1 on node 0"
                             : "the participants nodes 0-1 on node 0 but nodes 1-2 on node 1");
    return 0;
}

static int groups(struct remo_node *node, void *ctx) {
    struct remo_channel_options options = {0};
    struct remo_channel *channel;
    uint32_t rank = remo_node_rank(node), partner = (rank + 2) % 4;
    (void)ctx;
    remo_nodeset_add(&options.participants, rank);
    remo_nodeset_add(&options.participants, partner); /* {0, 2} and {1, 3}: two channels of one name */
    CHECK_OK(remo_channel_open(remo_node_root(node), "group", "test", &options, &channel));
    CHECK_OK(remo_channel_join(channel));
    CHECK_OK(remo_channel_wait(channel, 100 * SECOND));
    CHECK_EQUAL(remo_channel_peer(channel, partner), REMO_CHANNEL_CONNECTED);
    CHECK_EQUAL(remo_channel_peer(channel, (rank + 1) % 4), REMO_CHANNEL_WAITING);
    CHECK(remo_nodeset_has(remo_channel_participants(channel), partner));
    CHECK(!remo_nodeset_has(remo_channel_participants(channel), (rank + 1) % 4));
    CHECK_OK(cluster_meet());
    remo_channel_close(channel);
    CHECK_OK(cluster_meet());
    for (uint32_t meetings = 0; rank == 3 && meetings < 8; meetings++) /* node 3 is no participant */
        CHECK_OK(cluster_meet());
    if (rank == 3)
        return 0;
    options.participants = (struct remo_nodeset){0};
    remo_nodeset_add(&options.participants, rank);
    remo_nodeset_add(&options.participants, rank == 0 ? 1 : 3 - rank); /* nodes 0 and 1 disagree */
    for (uint32_t late = 0; late < 2; late++) {
        if (rank == late)
            CHECK_OK(cluster_meet());
        CHECK_OK(remo_channel_open(remo_node_root(node), "group", "test", &options, &channel));
        CHECK_OK(remo_channel_join(channel));
        if (rank != late)
            CHECK_OK(cluster_meet());
        CHECK_OK(cluster_meet()); /* all have opened the channel */
        if (wait_for_group(node, channel, late))
            return 1;
        CHECK_OK(cluster_meet());
        remo_channel_close(channel);
        CHECK_OK(cluster_meet());
    }
    return 0;
}

/* ---- failure of a node ---- */

static int node_fails(struct remo_node *node, void *ctx) {
    struct events events = {0};
    struct remo_channel *channel, *after, *waiting;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    if (open_channel(remo_node_root(node), "mortal", 64, &events, &channel))
        return 1;
    CHECK_OK(remo_channel_wait(channel, 100 * SECOND));
    CHECK_OK(cluster_meet());
    while (rank == 2)
        cluster_sleep_ms(1000);
    if (open_channel(remo_node_root(node), "never", 64, NULL, &waiting))
        return 1;
    uint64_t begin = cluster_now_ns();
    if (rank == 0)
        CHECK_OK(cluster_kill(2));
    CHECK_SENTENCE(remo_channel_wait(waiting, 100 * SECOND), -EHOSTDOWN, "node 2 has failed");
    CHECK(in_time(cluster_now_ns() - begin, SECOND));
    if (await_count(&events.downs[2], 1))
        return 1;
    CHECK_EQUAL(events.lefts[2], 0);
    CHECK_EQUAL(remo_channel_peer(channel, 2), REMO_CHANNEL_DOWN);
    CHECK_SENTENCE(remo_channel_wait(channel, 100 * SECOND), -EHOSTDOWN, "node 2 has failed");
    CHECK_SENTENCE(remo_channel_send(channel, 2, "x", 1), -EHOSTDOWN, "node 2");
    CHECK_OK(remo_channel_send(channel, 1 - rank, "\0", 1));
    if (await_count(&events.messages[1 - rank], 1))
        return 1;
    if (open_channel(remo_node_root(node), "after", 64, NULL, &after)) /* opened after the failure */
        return 1;
    begin = cluster_now_ns();
    CHECK_SENTENCE(remo_channel_wait(after, 100 * SECOND), -EHOSTDOWN, "node 2 has failed");
    CHECK(in_time(cluster_now_ns() - begin, SECOND));
    CHECK_EQUAL(remo_channel_peer(after, 2), REMO_CHANNEL_DOWN);
    CHECK_OK(cluster_meet());
    remo_channel_close(channel);
    remo_channel_close(waiting);
    remo_channel_close(after);
    return 0;
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(names, 2),
        CLUSTER_TEST(sub_channels, 2),
        CLUSTER_TEST(any_order, 4),
        CLUSTER_TEST_NAMED("rounds", rounds_all, 2),
        CLUSTER_TEST_NAMED("rounds_of_4", rounds_all, 4),
        CLUSTER_TEST_NAMED("rounds_threads", rounds_all, 3, .as_threads = 1),
        CLUSTER_TEST(late, 3),
        CLUSTER_TEST(groups, 4),
        CLUSTER_TEST(node_fails, 3),
        {0},
    };
    return cluster_main(argc, argv, tests, NULL);
}
