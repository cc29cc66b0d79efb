/* test_channel_many.c - tests of thousands of channels, and of threads that open and close channels
 * concurrently. */
#include <pthread.h>

#include "channel_common.h"

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

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(thousands, 2),
        CLUSTER_TEST(many_threads, 3),
        CLUSTER_TEST_NAMED("many_threads_in_one", many_threads, 3, .as_threads = 1),
        {0},
    };
    return cluster_main(argc, argv, tests, NULL);
}
