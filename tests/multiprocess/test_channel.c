/* test_channel.c - tests of channels between real nodes: names, sub-channels, participants, late openers,
 * rounds without a pause, mismatches, callbacks, messages, immediates, thousands of channels, many threads,
 * and peers that leave or fail. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../support/cluster.h"
#include "channel/channel.h"

/* The events of one channel that its callbacks have recorded. */
struct events {
    struct remo_channel *channel;
    _Atomic uint32_t joins[8], connects[8], lefts[8], downs[8], messages[8], immediates[8];
    _Atomic uint64_t bytes;
    _Atomic uint32_t wrong;
};

static void on_join(void *ctx, uint32_t node) {
    atomic_fetch_add(&((struct events *)ctx)->joins[node], 1);
}

static void on_connect(void *ctx, uint32_t node) {
    atomic_fetch_add(&((struct events *)ctx)->connects[node], 1);
}

static void on_leave(void *ctx, uint32_t node, enum remo_channel_state state) {
    struct events *events = ctx;
    atomic_fetch_add(state == REMO_CHANNEL_LEFT ? &events->lefts[node] : &events->downs[node], 1);
}

/* Messages are numbered by their sender. Each of their bytes is the low byte of the number. */
static void on_message(void *ctx, uint32_t node, const void *data, size_t size_bytes) {
    struct events *events = ctx;
    const unsigned char *bytes = data;
    uint32_t number = atomic_load(&events->messages[node]);
    if (atomic_load(&events->connects[node]) == 0
        && node != remo_node_rank(remo_channel_node(events->channel)))
        atomic_fetch_add(&events->wrong, 1); /* otherwise the callback could not answer */
    for (size_t i = 0; i < size_bytes; i++)
        if (bytes[i] != (unsigned char)number)
            atomic_fetch_add(&events->wrong, 1);
    atomic_fetch_add(&events->bytes, size_bytes);
    atomic_fetch_add(&events->messages[node], 1); /* last, because the test reads the other fields after it */
}

static void on_immediate(void *ctx, uint32_t node, uint32_t value) {
    struct events *events = ctx;
    if (value != atomic_fetch_add(&events->immediates[node], 1) % (REMO_CHANNEL_IMMEDIATE_MAX + 1))
        atomic_fetch_add(&events->wrong, 1);
}

static int open_channel(struct remo_channel *parent, const char *name, uint64_t bytes, struct events *events,
                        struct remo_channel **ret_channel) {
    struct remo_channel_options options = {.ctx = events,
                                           .on_join = on_join,
                                           .on_connect = on_connect,
                                           .on_leave = on_leave,
                                           .on_message = on_message,
                                           .on_immediate = on_immediate};
    uint32_t memory;
    CHECK_OK(remo_channel_open(parent, name, "test", events ? &options : NULL, ret_channel));
    if (events)
        events->channel = *ret_channel;
    if (bytes > 0) {
        CHECK_OK(remo_channel_add_memory(*ret_channel, "data", bytes, bytes, NULL, &memory));
        CHECK_EQUAL(memory, 0);
    }
    CHECK_OK(remo_channel_join(*ret_channel));
    return 0;
}

/* Wait until the number is reached: callbacks are asynchronous. */
static int await_count(_Atomic uint32_t *number, uint32_t expected) {
    for (uint32_t ms = 0; atomic_load(number) < expected && ms < 100000; ms++)
        cluster_sleep_ms(1);
    CHECK_EQUAL(atomic_load(number), expected);
    return 0;
}

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
    struct remo__thread *thread = remo__thread(node);
    uint64_t at = remo__memory_at(&low->memories[0], 1 - rank, 8);
    CHECK_OK(remo__write(thread, remo__channel_counters(low, thread), 1 - rank, at, &word, 8, 0, NULL));
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
        cluster_sleep_ms(200);
    if (open_channel(remo_node_root(node), "late", 64, &events, &channel))
        return 1;
    if (rank != 2) {
        CHECK_SENTENCE(remo_channel_wait(channel, SECOND / 20), -ETIMEDOUT,
                       "node 2 has not opened channel late");
        CHECK_SENTENCE(remo_channel_send(channel, 2, "x", 1), -ENOTCONN, "not connected to channel late yet");
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

/* Node 1 does not count node 0 as a participant, and refuses it: at once, or when it opens the channel. */
static int is_refused_by_node_1(struct remo_channel *channel) {
    CHECK_SENTENCE(remo_channel_wait(channel, 100 * SECOND), -EPROTO,
                   "the participants nodes 1-2 on node 1 but nodes 0-1 on node 0");
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
    if (rank == 3) /* is no participant */
        return cluster_meet() || cluster_meet() || cluster_meet() || cluster_meet() || cluster_meet()
               || cluster_meet();
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
        if (rank != 0)
            CHECK_OK(remo_channel_wait(channel, 100 * SECOND));
        else
            CHECK_OK(is_refused_by_node_1(channel));
        CHECK_OK(cluster_meet());
        remo_channel_close(channel);
        CHECK_OK(cluster_meet());
    }
    return 0;
}

/* ---- mismatches ---- */

static int expect_mismatch(struct remo_node *node, const char *type, uint32_t memories, uint64_t bytes,
                           const char *words, const char *more) {
    struct remo_channel *channel;
    uint32_t memory;
    CHECK_OK(remo_channel_open(remo_node_root(node), "odd", type, NULL, &channel));
    for (uint32_t i = 0; i < memories; i++)
        CHECK_OK(remo_channel_add_memory(channel, i ? "more" : "data", bytes, bytes, NULL, &memory));
    CHECK_OK(remo_channel_join(channel));
    CHECK_SENTENCE(remo_channel_wait(channel, 100 * SECOND), -EPROTO, words);
    CHECK(strstr(remo_last_error(), "channel odd"));
    if (!strstr(remo_last_error(), more)) /* the peer is a round ahead; its sizes differ too */
        printf("     mismatch with another round: %s\n", remo_last_error());
    CHECK_SENTENCE(remo_channel_wait(remo_node_root(node), 100 * SECOND), -EPROTO, words);
    /* The nodes do not meet here: a channel of the next round must not be taken for this one. */
    remo_channel_close(channel);
    return 0;
}

static int mismatch(struct remo_node *node, void *ctx) {
    struct remo_channel *channel;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    for (uint32_t round = 0; round < 20; round++) {
        if (rank == round % 2)
            cluster_sleep_ms(round % 3 * 5);
        if (expect_mismatch(node, "test", 1, 4096 << rank, "4096", "8192"))
            return 1;
        CHECK_OK(cluster_meet());
        if (expect_mismatch(node, rank ? "apple" : "pear", 1, 64, "apple", "pear"))
            return 1;
        CHECK_OK(cluster_meet());
        if (expect_mismatch(node, "test", 1 + rank, 64, "memories on node", "same options"))
            return 1;
        if (open_channel(remo_node_root(node), "odd", 64, NULL, &channel))
            return 1;
        CHECK_OK(remo_channel_wait(channel, 100 * SECOND));
        CHECK_OK(cluster_meet());
        remo_channel_close(channel);
    }
    return 0;
}

/* Nodes 0 and 1 do not match. Node 2 joins after they have detected it, or before, and gets an error too: its
 * own mismatch or, if it matches both, theirs. */
struct mismatch_of_peers {
    uint64_t own[3], expected[3];
    const char *words; /* words in the error of node 2 */
};

static int open_as_third(struct remo_node *node, const struct mismatch_of_peers *of, bool last) {
    struct remo_channel *channel;
    struct remo_nodeset providers = {0};
    uint32_t memory, rank = remo_node_rank(node);
    remo_nodeset_add(&providers, 1);
    for (uint32_t i = 0; i < 3 && of->own[0] > 0; i++)
        remo_nodeset_add(&providers, i);
    CHECK_OK(remo_channel_open(remo_node_root(node), "odd", "test", NULL, &channel));
    CHECK_OK(
        remo_channel_add_memory(channel, "data", of->own[rank], of->expected[rank], &providers, &memory));
    if (last && rank == 2)
        CHECK_OK(cluster_meet());
    CHECK_OK(remo_channel_join(channel));
    if (!last && rank == 2)
        CHECK_OK(cluster_meet());
    CHECK_SENTENCE(remo_channel_wait(channel, 100 * SECOND), -EPROTO, "channel odd.data: node ");
    CHECK(strstr(remo_last_error(), " expects ") && strstr(remo_last_error(), ", which has "));
    if (last && rank == 2)
        CHECK(strstr(remo_last_error(), of->words));
    if (last && rank != 2)
        CHECK_OK(cluster_meet());
    CHECK_OK(cluster_meet());
    remo_channel_close(channel);
    return 0;
}

static int mismatch_of_peers(struct remo_node *node, void *ctx) {
    static const struct mismatch_of_peers of[] = {
        {{4096, 8192, 4096}, {4096, 8192, 4096}, "8192"},
        {{4096, 8192, 16384}, {4096, 8192, 16384}, "16384"},
        {{0, 4096, 0}, {8192, 4096, 4096}, "node 0 expects 8192 bytes on node 1, which has 4096"},
    };
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    for (uint32_t i = 0; i < 3; i++) {
        if (open_as_third(node, &of[i], true))
            return 1;
        CHECK_OK(cluster_meet());
        if (i == 2) /* node 2 could connect to both before they detect the mismatch */
            break;
        if (rank != 2)
            CHECK_OK(cluster_meet());
        if (open_as_third(node, &of[i], false))
            return 1;
        CHECK_OK(cluster_meet());
    }
    struct remo_channel *channel; /* the next channel of the name works */
    if (open_channel(remo_node_root(node), "odd", 64, NULL, &channel))
        return 1;
    CHECK_OK(remo_channel_wait(channel, 100 * SECOND));
    CHECK_OK(cluster_meet());
    remo_channel_close(channel);
    return 0;
}

/* ---- a JOIN that arrives late ---- */

/* Node 0 closes its endpoint, and opens the next one with another size, after the CONNECT that completes the
 * pair and before the JOIN that node 1 has sent behind it. This JOIN belongs to the first endpoint; it is not
 * a mismatch of the second. For this, the JOINs must cross, so the threads that receive frames are
 * blocked. */
struct reopening {
    struct remo_node *node;
    struct remo_channel *parent; /* not joined, so joins below it do not wait for answers */
    _Atomic uint32_t held, go_on;
    struct remo_channel *_Atomic second;
    int rc;
};

static void hold_frames(void *ctx, uint32_t peer, const void *data, size_t size_bytes) {
    struct reopening *r = ctx;
    (void)peer, (void)data, (void)size_bytes;
    atomic_store(&r->held, 1);
    while (!atomic_load(&r->go_on))
        cluster_sleep_ms(1);
}

/* Runs in the callback of the first channel, while no frame is received: open the second channel as soon as
 * the first is closed. */
static void reopen_at_once(void *ctx, uint32_t peer) {
    struct reopening *r = ctx;
    struct remo_channel *second;
    uint32_t memory;
    (void)peer;
    while ((r->rc = remo_channel_open(r->parent, "again", "test", NULL, &second)) == -EEXIST)
        cluster_sleep_ms(1);
    r->rc = r->rc ? r->rc : remo_channel_add_memory(second, "data", 128, 128, NULL, &memory);
    r->rc = r->rc ? r->rc : remo_channel_join(second);
    atomic_store(&r->second, second);
}

static int cross_joins(struct remo_node *node, struct reopening *r, struct remo_channel **ret_first) {
    struct remo_channel_options holder = {.ctx = r, .on_message = hold_frames};
    struct remo_channel_options options = {.ctx = r,
                                           .on_connect = remo_node_rank(node) ? NULL : reopen_at_once};
    struct remo_channel *hold;
    uint32_t memory;
    CHECK_OK(remo_channel_open(remo_node_root(node), "hold", "test", &holder, &hold));
    CHECK_OK(remo_channel_join(hold));
    CHECK_OK(remo_channel_wait(hold, 100 * SECOND));
    CHECK_OK(remo_channel_send(hold, 1 - remo_node_rank(node), "", 0));
    if (await_count(&r->held, 1))
        return 1;
    CHECK_OK(cluster_meet());
    CHECK_OK(remo_channel_open(remo_node_root(node), "parent", "test", NULL, &r->parent));
    CHECK_OK(remo_channel_open(r->parent, "again", "test", &options, ret_first));
    CHECK_OK(remo_channel_add_memory(*ret_first, "data", 64, 64, NULL, &memory));
    CHECK_OK(remo_channel_join(*ret_first));
    CHECK_OK(cluster_meet());
    atomic_store(&r->go_on, 1);
    return 0;
}

static int join_of_closed_endpoint(struct remo_node *node, void *ctx) {
    struct reopening r = {.node = node};
    struct remo_channel *first;
    (void)ctx;
    if (cross_joins(node, &r, &first))
        return 1;
    /* remo_channel_wait would wait for the callback, which waits for this thread. */
    while (remo_channel_peer(first, 1 - remo_node_rank(node)) == REMO_CHANNEL_WAITING)
        cluster_sleep_ms(1);
    remo_channel_close(first);
    if (remo_node_rank(node) == 1)
        reopen_at_once(&r, 0);
    CHECK_OK(r.rc);
    CHECK_OK(remo_channel_wait(r.second, 100 * SECOND));
    CHECK_OK(cluster_meet());
    remo_channel_close(r.parent);
    return 0;
}

/* ---- messages and immediates ---- */

static int send_all(struct remo_channel *channel, uint32_t to, uint32_t count, size_t most, uint64_t *sum) {
    unsigned char *data = malloc(most);
    for (uint32_t i = 0; i < count; i++) {
        size_t size = i % 5 == 0 ? most : (size_t)i * 37 % (most + 1);
        int rc;
        memset(data, (int)(i & 0xff), size);
        while ((rc = remo_channel_send(channel, to, data, size)) == -ENOBUFS)
            cluster_sleep_ms(1);
        CHECK_OK(rc);
        *sum += size;
    }
    free(data);
    return 0;
}

static int messages(struct remo_node *node, void *ctx) {
    enum { COUNT = 600 };
    struct events events = {0};
    struct remo_channel *channel;
    uint32_t size = remo_node_size(node);
    unsigned char data[8] = {0};
    uint64_t sum = 0;
    (void)ctx;
    if (open_channel(remo_node_root(node), "talk", 0, &events, &channel))
        return 1;
    CHECK_OK(remo_channel_wait(channel, 100 * SECOND));
    for (uint32_t to = 0; to < size; to++) {
        sum = 0;
        if (send_all(channel, to, COUNT, REMO_CHANNEL_MESSAGE_BYTES_MAX, &sum))
            return 1;
    }
    for (uint32_t from = 0; from < size; from++)
        if (await_count(&events.messages[from], COUNT))
            return 1;
    CHECK_EQUAL(events.wrong, 0);
    CHECK_EQUAL(events.bytes, size * sum);
    CHECK_SENTENCE(remo_channel_send(channel, 0, data, REMO_CHANNEL_MESSAGE_BYTES_MAX + 1), -EMSGSIZE,
                   "32768");
    CHECK_CODE(remo_channel_send(channel, 0, NULL, 1), -EINVAL);
    CHECK_CODE(remo_channel_send(channel, size, data, 1), -EINVAL);
    CHECK_OK(cluster_meet());
    remo_channel_close(channel);
    return 0;
}

/* A callback that opens, sends and closes channels itself. */
struct echo {
    struct remo_node *node;
    struct remo_channel *channel, *extra;
    _Atomic uint32_t events;
    _Atomic int rc;
};

static void answer(void *ctx, uint32_t from, const void *data, size_t size_bytes) {
    struct echo *echo = ctx;
    uint32_t turns;
    memcpy(&turns, data, sizeof turns);
    int rc = size_bytes == sizeof turns ? 0 : -EPROTO;
    if (rc == 0 && turns % 10 == 0) {
        remo_channel_close(echo->extra);
        echo->extra = NULL;
        rc = remo_channel_open(remo_node_root(echo->node), "extra", "test", NULL, &echo->extra);
        rc = rc ? rc : remo_channel_join(echo->extra);
    }
    turns++;
    if (rc == 0 && turns < 200)
        rc = remo_channel_send(echo->channel, from, &turns, sizeof turns);
    if (rc != 0)
        atomic_store(&echo->rc, rc);
    atomic_fetch_add(&echo->events, 1);
}

static int echoes(struct remo_node *node, void *ctx) {
    struct echo echo = {.node = node};
    struct remo_channel_options options = {.ctx = &echo, .on_message = answer};
    uint32_t rank = remo_node_rank(node), zero = 0;
    (void)ctx;
    CHECK_OK(remo_channel_open(remo_node_root(node), "echo", "test", &options, &echo.channel));
    CHECK_OK(remo_channel_join(echo.channel));
    CHECK_OK(remo_channel_wait(echo.channel, 100 * SECOND));
    if (rank == 0)
        CHECK_OK(remo_channel_send(echo.channel, 1, &zero, sizeof zero));
    if (await_count(&echo.events, 100))
        return 1;
    CHECK_OK(echo.rc);
    CHECK_OK(cluster_meet());
    remo_channel_close(echo.channel);
    remo_channel_close(echo.extra);
    return 0;
}

static int immediates(struct remo_node *node, void *ctx) {
    enum { COUNT = 20000 };
    struct events events = {0};
    struct remo_channel *channel;
    uint32_t rank = remo_node_rank(node), size = remo_node_size(node);
    (void)ctx;
    if (open_channel(remo_node_root(node), "now", 64, &events, &channel))
        return 1;
    CHECK_OK(remo_channel_wait(channel, 100 * SECOND));
    for (uint64_t i = 0; i < COUNT; i++) {
        uint32_t value = (uint32_t)(i % (REMO_CHANNEL_IMMEDIATE_MAX + 1));
        for (uint32_t to = 0; to < size; to++)
            CHECK_OK(remo__channel_write_immediate(channel, &channel->memories[0], to, rank * 8, &i, 8, value,
                                                   NULL));
    }
    for (uint32_t from = 0; from < size; from++)
        if (await_count(&events.immediates[from], COUNT))
            return 1;
    CHECK_EQUAL(events.wrong, 0);
    CHECK_OK(cluster_meet());
    remo_channel_close(channel);
    return 0;
}

/* ---- many ---- */

/* Open a channel. A closed one counts until its peers have reported that they closed it. */
static int open_when_possible(struct remo_channel *parent, const char *name,
                              struct remo_channel **ret_channel) {
    int rc = -EMFILE;
    for (uint32_t ms = 0; rc == -EMFILE && ms < 100000; ms++) {
        rc = remo_channel_open(parent, name, "test", NULL, ret_channel);
        if (rc == -EMFILE)
            cluster_sleep_ms(1);
    }
    CHECK_OK(rc);
    return 0;
}

static int open_thousands(struct remo_node *node, uint32_t count, struct remo_channel **channels) {
    for (uint32_t i = 0; i < count; i++) {
        uint32_t which = remo_node_rank(node) ? count - 1 - i : i, memory;
        char name[16];
        snprintf(name, sizeof name, "c%u", which);
        if (open_when_possible(remo_node_root(node), name, &channels[which]))
            return 1;
        CHECK_OK(remo_channel_add_memory(channels[which], "data", 64, 64, NULL, &memory));
        CHECK_OK(remo_channel_join(channels[which]));
    }
    CHECK_OK(remo_channel_wait(remo_node_root(node), 100 * SECOND));
    CHECK_OK(cluster_meet());
    return 0;
}

static int thousands(struct remo_node *node, void *ctx) {
    enum { MOST = REMO_CHANNELS_MAX - 1 };
    static struct remo_channel *channels[MOST];
    struct remo_channel *more;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    const uint32_t count = 1000;
#else
    const uint32_t count = 4000;
#endif
    uint32_t rank = remo_node_rank(node);
    uint64_t begin = cluster_now_ns();
    (void)ctx;
    for (uint32_t turn = 0; turn < 2; turn++) {
        if (open_thousands(node, count, channels))
            return 1;
        for (uint32_t i = 0; i < count; i++)
            remo_channel_close(channels[(i * 7 + rank) % count]);
        CHECK_OK(cluster_meet());
    }
    if (rank == 0)
        printf("     %u channels opened and closed twice: %.0f ms\n", count,
               (double)(cluster_now_ns() - begin) / 1e6);
    for (uint32_t i = 0; i < MOST; i++) {
        char name[16];
        snprintf(name, sizeof name, "d%u", i);
        if (open_when_possible(remo_node_root(node), name, &channels[i]))
            return 1;
    }
    CHECK_SENTENCE(remo_channel_open(remo_node_root(node), "more", "test", NULL, &more), -EMFILE,
                   "close some");
    remo_channel_close(channels[0]);
    CHECK_OK(remo_channel_open(remo_node_root(node), "more", "test", NULL, &more));
    CHECK_OK(cluster_meet());
    return 0; /* the node closes the other channels */
}

struct opener {
    struct remo_channel *parent;
    uint32_t number, alone;
    _Atomic uint32_t *winners;
    pthread_barrier_t *barrier;
    int result;
};

/* Each thread opens channels with its own names; then all threads open one name, and one of them succeeds. */
static int open_repeatedly(struct opener *self) {
    uint32_t rank = remo_node_rank(remo_channel_node(self->parent));
    for (uint32_t round = 0; round < 15; round++) {
        struct events events = {0};
        struct remo_channel *channel, *same;
        char name[32];
        uint64_t sum = 0;
        snprintf(name, sizeof name, "t%u-%u", self->number, round % 3);
        if (open_channel(self->parent, name, 256, &events, &channel))
            return 1;
        CHECK_OK(remo_channel_wait(channel, 100 * SECOND));
        for (uint32_t to = 0; to < 3; to++)
            if (to != rank && send_all(channel, to, 3, 100, &sum))
                return 1;
        for (uint32_t from = 0; from < 3; from++)
            if (from != rank && await_count(&events.messages[from], 3))
                return 1;
        CHECK_EQUAL(events.wrong, 0);
        remo_channel_close(channel);
        pthread_barrier_wait(self->barrier);
        snprintf(name, sizeof name, "same%u", round);
        int rc = remo_channel_open(self->parent, name, "test", NULL, &same);
        CHECK(rc == 0 || rc == -EEXIST);
        atomic_fetch_add(self->winners, rc == 0);
        pthread_barrier_wait(self->barrier);
        CHECK_EQUAL(*self->winners, round + 1);
        if (rc == 0)
            remo_channel_close(same);
        pthread_barrier_wait(self->barrier);
    }
    return 0;
}

static void *open_thread(void *ctx) {
    struct opener *self = ctx;
    self->result = open_repeatedly(self);
    if (self->result != 0)
        exit(1); /* the other threads wait at the barrier */
    return NULL;
}

static int many_threads(struct remo_node *node, void *ctx) {
    enum { THREADS = 8 };
    struct opener openers[THREADS];
    pthread_t threads[THREADS];
    pthread_barrier_t barrier;
    struct remo_channel *parent;
    _Atomic uint32_t winners = 0;
    (void)ctx;
    if (open_channel(remo_node_root(node), "parent", 64, NULL, &parent))
        return 1;
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (uint32_t i = 0; i < THREADS; i++) {
        openers[i] = (struct opener){.parent = parent, .number = i, .winners = &winners, .barrier = &barrier};
        CHECK(pthread_create(&threads[i], NULL, open_thread, &openers[i]) == 0);
    }
    for (uint32_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&barrier);
    CHECK_OK(cluster_meet());
    remo_channel_close(parent);
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
        CLUSTER_TEST(mismatch, 2),
        CLUSTER_TEST(mismatch_of_peers, 3),
        CLUSTER_TEST(join_of_closed_endpoint, 2),
        CLUSTER_TEST(messages, 3),
        CLUSTER_TEST(echoes, 2),
        CLUSTER_TEST(immediates, 3),
        CLUSTER_TEST(thousands, 2),
        CLUSTER_TEST(many_threads, 3),
        CLUSTER_TEST_NAMED("many_threads_in_one", many_threads, 3, .as_threads = 1),
        CLUSTER_TEST(node_fails, 3),
        {0}};
    return cluster_main(argc, argv, tests, NULL);
}
