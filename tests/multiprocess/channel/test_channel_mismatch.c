/* test_channel_mismatch.c - tests of channels that nodes open differently: types, memories, sizes, a third
 * node, and the JOIN of a closed endpoint, which is no mismatch. */
#include "channel_common.h"

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

/* Node 0 accepts the endpoint of node 1, which refuses that of node 0: node 0 does not get its addresses. The
 * close of node 1 ends the use of node 0's memory, which on_cut_off reports. */
static void count_cut_off(void *ctx, uint32_t node) {
    atomic_fetch_add(&((struct events *)ctx)->downs[node], 1);
}

static int cut_off_of_unknown(struct remo_node *node, void *ctx) {
    struct events events = {0};
    struct remo_channel_options options = {.ctx = &events, .on_join = on_join, .on_cut_off = count_cut_off};
    struct remo_channel *channel;
    uint32_t memory, rank = remo_node_rank(node);
    (void)ctx;
    CHECK_OK(remo_channel_open(remo_node_root(node), "odd", "test", &options, &channel));
    CHECK_OK(remo_channel_add_memory(channel, "data", 64, rank ? 64 : 128, NULL, &memory));
    if (rank == 1)
        CHECK_OK(cluster_meet());
    CHECK_OK(remo_channel_join(channel));
    if (rank == 0) {
        CHECK_OK(cluster_meet());
        if (await_count(&events.joins[1], 1) || await_count(&events.downs[1], 1))
            return 1;
        CHECK(remo_channel_peer(channel, 1) == REMO_CHANNEL_WAITING);
    }
    remo_channel_close(channel);
    CHECK_OK(cluster_meet());
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

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(mismatch, 2),
        CLUSTER_TEST(mismatch_of_peers, 3),
        CLUSTER_TEST(cut_off_of_unknown, 2),
        CLUSTER_TEST(join_of_closed_endpoint, 2),
        {0},
    };
    return cluster_main(argc, argv, tests, NULL);
}
