/* test_channel_messages.c - tests of messages and immediates of channels: order, sizes, and answers that
 * callbacks send. */
#include "channel_common.h"

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
        for (uint32_t to = 0; to < size; to++) {
            struct remo__ref ref;
            CHECK_OK(remo__memory_find(&channel->memories[0], remo__thread(node), to, rank * 8, &ref));
            CHECK_OK(remo__channel_write_immediate(channel, ref, &i, sizeof i, value, NULL));
        }
    }
    for (uint32_t from = 0; from < size; from++)
        if (await_count(&events.immediates[from], COUNT))
            return 1;
    CHECK_EQUAL(events.wrong, 0);
    CHECK_OK(cluster_meet());
    remo_channel_close(channel);
    return 0;
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(messages, 3),
        CLUSTER_TEST(echoes, 2),
        CLUSTER_TEST(immediates, 3),
        {0},
    };
    return cluster_main(argc, argv, tests, NULL);
}
