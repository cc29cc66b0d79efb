/* test_owned_var.c - variables with one writer. Pushed and pulled values are whole, never go back, and are
 * not older than the last finished push: for any size, while the owner writes without pause, and if it is
 * killed in the middle of a write. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../../support/cluster.h"

static struct shared {
    _Atomic uint64_t published; /* by the owner, after a push was placed on all nodes */
    _Atomic uint64_t stored;    /* by the owner, before it stores the value */
    _Atomic uint32_t stop;
} * shared;

/* ---- values that reveal torn reads: byte i of value n depends on both ---- */

static void make_value(unsigned char *value, size_t size, uint64_t n) {
    for (size_t i = 0; i < size; i++)
        value[i] = (unsigned char)(i < 8 ? n >> 8 * i : n * 31 + i);
}

static uint64_t number_of(const unsigned char *value, size_t size) {
    uint64_t n = 0;
    for (size_t i = 0; i < 8 && i < size; i++)
        n |= (uint64_t)value[i] << 8 * i;
    return n;
}

static int is_value(const unsigned char *value, size_t size, uint64_t n) {
    for (size_t i = 0; i < size; i++)
        if (value[i] != (unsigned char)(i < 8 ? n >> 8 * i : n * 31 + i))
            return 0;
    return 1;
}

static int open_var(struct remo_node *node, const char *name, size_t bytes, uint32_t owner,
                    struct remo_owned_var **ret_var) {
    struct remo_owned_var_options options = {.owner = owner};
    CHECK_OK(remo_owned_var_open(remo_node_root(node), name, bytes, &options, ret_var));
    CHECK_OK(remo_channel_wait(remo_owned_var_channel(*ret_var), 100 * SECOND));
    return 0;
}

/* ---- visibility of stores, pushes and pulls ---- */

static int steps_of(struct remo_node *node, size_t size) {
    struct remo_owned_var *var;
    uint32_t rank = remo_node_rank(node);
    unsigned char *value = malloc(size), *found = malloc(size);
    if (open_var(node, "value", size, 1, &var) != 0)
        return 1;
    CHECK_OK(remo_owned_var_load(var, found));
    for (size_t i = 0; i < size; i++)
        CHECK(found[i] == 0);
    CHECK_OK(cluster_meet());
    make_value(value, size, 41);
    if (rank == 1) {
        CHECK_OK(remo_owned_var_store(var, value));
        CHECK_OK(remo_owned_var_load(var, found));
        CHECK(memcmp(found, value, size) == 0);
    }
    CHECK_OK(cluster_meet());
    CHECK_OK(remo_owned_var_load(var, found));
    CHECK(rank == 1 || memcmp(found, value, size) != 0); /* not pushed yet */
    CHECK_OK(cluster_meet());
    if (rank == 0) {
        CHECK_OK(remo_owned_var_pull(var, NULL));
        CHECK_OK(remo_owned_var_load(var, found));
        CHECK(memcmp(found, value, size) == 0);
    }
    CHECK_OK(cluster_meet());
    make_value(value, size, 42);
    if (rank == 1) {
        CHECK_OK(remo_owned_var_store(var, value));
        CHECK_OK(remo_owned_var_push(var, 2, NULL));
        CHECK_OK(remo_owned_var_push(var, 1, NULL));
        CHECK_OK(remo_fence(node, REMO_FENCE_THREAD, 0));
    }
    CHECK_OK(cluster_meet());
    CHECK_OK(remo_owned_var_load(var, found));
    CHECK((memcmp(found, value, size) == 0) == (rank != 0));
    CHECK_OK(remo_owned_var_pull(var, found));
    CHECK(memcmp(found, value, size) == 0);
    CHECK_OK(cluster_meet());
    for (uint64_t n = 43; n < 47; n++) {
        make_value(value, size, n);
        if (rank == 1) {
            struct remo_ack ack = REMO_ACK_INIT;
            CHECK_OK(remo_owned_var_store(var, value));
            CHECK_OK(remo_owned_var_push_all(var, &ack));
            CHECK_OK(remo_ack_wait(&ack, 100 * SECOND));
            CHECK_OK(remo_fence(node, REMO_FENCE_THREAD, 0));
        }
        CHECK_OK(cluster_meet());
        CHECK_OK(remo_owned_var_load(var, found));
        CHECK(memcmp(found, value, size) == 0);
        CHECK_OK(cluster_meet());
    }
    free(value);
    free(found);
    remo_owned_var_close(var);
    CHECK_OK(cluster_meet());
    return 0;
}

static int steps(struct remo_node *node, void *ctx) {
    static const size_t sizes[] = {1,  4,    8,    9,    16,   17,    48,
                                   64, 1000, 1024, 1025, 5000, 20000, REMO_OWNED_VAR_BYTES_MAX};
    (void)ctx;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (steps_of(node, sizes[i]) != 0)
            return 1;
    return 0;
}

static int costs(struct remo_node *node, void *ctx) {
    static const size_t sizes[] = {8, 64, 4000};
    unsigned char value[4000] = "";
    (void)ctx;
    for (size_t i = 0; i < 3; i++) {
        struct remo_owned_var *var;
        if (open_var(node, "value", sizes[i], 0, &var) != 0)
            return 1;
        struct remo_channel *channel = remo_owned_var_channel(var);
        if (remo_node_rank(node) == 0) {
            struct remo_ack ack = REMO_ACK_INIT;
            CHECK_COST(channel, CHECK_OK(remo_owned_var_store(var, value)), 0, 0, 0, 0);
            CHECK_COST(channel, CHECK_OK(remo_owned_var_push(var, 1, NULL)), 0, 1, 0, 1);
            CHECK_COST(channel, CHECK_OK(remo_owned_var_push(var, 0, NULL)), 0, 0, 0, 0);
            CHECK_COST(channel, CHECK_OK(remo_owned_var_push_all(var, &ack)), 0, 3, 0, 3);
            CHECK_OK(remo_ack_wait(&ack, 100 * SECOND));
            CHECK_COST(channel, CHECK_OK(remo_owned_var_pull(var, value)), 0, 0, 0, 0);
        } else {
            CHECK_COST(channel, CHECK_OK(remo_owned_var_pull(var, value)), 1, 0, 0, 0);
        }
        CHECK_COST(channel, CHECK_OK(remo_owned_var_load(var, value)), 0, 0, 0, 0);
        CHECK_OK(cluster_meet());
        remo_owned_var_close(var);
        CHECK_OK(cluster_meet());
    }
    return 0;
}

static int errors(struct remo_node *node, void *ctx) {
    struct remo_owned_var *var;
    struct remo_owned_var_options options = {.owner = 1};
    struct remo_channel *root = remo_node_root(node);
    uint64_t word = 0;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    CHECK_SENTENCE(remo_owned_var_open(root, "v", 0, NULL, &var), -EINVAL, "0 bytes");
    CHECK_SENTENCE(remo_owned_var_open(root, "v", REMO_OWNED_VAR_BYTES_MAX + 1, NULL, &var), -EINVAL,
                   "1048577");
    CHECK_SENTENCE(remo_owned_var_open(NULL, "v", 8, NULL, &var), -EINVAL, "parent");
    remo_nodeset_add(&options.participants, rank);
    options.owner = 1 - rank;
    CHECK_SENTENCE(remo_owned_var_open(root, "v", 8, &options, &var), -EINVAL, "owner");
    options = (struct remo_owned_var_options){.owner = 1};
    CHECK_OK(remo_owned_var_open(root, "v", 8, &options, &var));
    CHECK_OK(remo_channel_wait(root, 100 * SECOND));
    if (rank == 0) {
        CHECK_SENTENCE(remo_owned_var_store(var, &word), -EPERM, "node 1");
        CHECK_SENTENCE(remo_owned_var_push(var, 1, NULL), -EPERM, "v belongs to node 1");
        CHECK_CODE(remo_owned_var_push_all(var, NULL), -EPERM);
    } else {
        CHECK_CODE(remo_owned_var_push(var, 7, NULL), -EINVAL);
        CHECK_CODE(remo_owned_var_store(var, NULL), -EINVAL);
    }
    CHECK_CODE(remo_owned_var_load(var, NULL), -EINVAL);
    CHECK_CODE(remo_owned_var_wait(var, NULL, &word, 0), -EINVAL);
    CHECK_CODE(remo_owned_var_wait(var, &word, &word, 0), -ETIMEDOUT);
    CHECK_CODE(remo_owned_var_wait(var, &word, &word, SECOND / 50), -ETIMEDOUT);
    CHECK_OK(cluster_meet());
    remo_owned_var_close(var);
    remo_owned_var_close(NULL);
    CHECK_OK(cluster_meet());
    CHECK_OK(remo_owned_var_open(root, "w", 16u << rank, NULL, &var));
    CHECK_SENTENCE(remo_channel_wait(root, 100 * SECOND), -EPROTO, "16 bytes");
    CHECK(strstr(remo_last_error(), "32 bytes") && strstr(remo_last_error(), "channel w"));
    CHECK_OK(cluster_meet());
    remo_owned_var_close(var);
    CHECK_OK(cluster_meet());
    options.owner = rank;
    CHECK_OK(remo_owned_var_open(root, "x", 16, &options, &var));
    CHECK_SENTENCE(remo_channel_wait(root, 100 * SECOND), -EPROTO, "of node 0");
    CHECK_OK(cluster_meet());
    remo_owned_var_close(var);
    return 0;
}

/* ---- hammering: a regular register ---- */

struct reader {
    struct remo_owned_var *var;
    size_t size;
    int pulls;
    _Atomic uint64_t *newest_read; /* the newest value that a completed load or pull of this node returned */
    uint64_t looked, changes;
    int result;
};

static int read_on(struct reader *self) {
    unsigned char *value = malloc(self->size);
    uint64_t before = 0;
    do {
        uint64_t published = atomic_load(&shared->published), newest_read = atomic_load(self->newest_read);
        int rc = self->pulls ? remo_owned_var_pull(self->var, value) : remo_owned_var_load(self->var, value);
        if (rc == -EAGAIN)
            continue;
        CHECK_OK(rc);
        uint64_t n = number_of(value, self->size);
        if (self->size >= 8)
            CHECK(n == 0 || is_value(value, self->size, n)); /* whole */
        CHECK(self->size < 4 || n >= published);             /* not older than the last completed push */
        CHECK(self->size < 4 || n >= newest_read);           /* never back, for any thread of this node */
        CHECK(self->size < 4 || n <= atomic_load(&shared->stored));
        for (uint64_t old = newest_read;
             old < n && !atomic_compare_exchange_weak(self->newest_read, &old, n);)
            continue;
        self->changes += n != before;
        self->looked++;
        before = n;
        if (self->looked % 64 == 0)
            sched_yield();
    } while (!atomic_load(&shared->stop));
    free(value);
    return 0;
}

static void *reader_thread(void *ctx) {
    struct reader *self = ctx;
    self->result = read_on(self);
    return NULL;
}

static int readers(struct remo_owned_var *var, size_t size) {
    _Atomic uint64_t newest_read = 0;
    struct reader readers[3];
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) {
        readers[i] = (struct reader){.var = var, .size = size, .pulls = i == 0, .newest_read = &newest_read};
        CHECK(pthread_create(&threads[i], NULL, reader_thread, &readers[i]) == 0);
    }
    int result = 0;
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        result |= readers[i].result;
    }
    CHECK_OK(result);
    for (int i = 0; i < 3; i++)
        CHECK(readers[i].looked > 0);
    return 0;
}

/* Three stores for each push, so that pulls overtake pushes. */
static int write_on(struct remo_node *node, struct remo_owned_var *var, size_t size, uint64_t duration_ns) {
    unsigned char *value = malloc(size);
    uint64_t end = cluster_now_ns() + duration_ns;
    for (uint64_t n = 1; cluster_now_ns() < end; n++) {
        make_value(value, size, n);
        atomic_store(&shared->stored, n);
        CHECK_OK(remo_owned_var_store(var, value));
        if (n % 3 != 0)
            continue;
        CHECK_OK(remo_owned_var_push_all(var, NULL));
        CHECK_OK(remo_fence(node, REMO_FENCE_THREAD, 0));
        atomic_store(&shared->published, n);
    }
    atomic_store(&shared->stop, 1);
    free(value);
    return 0;
}

static int hammer(struct remo_node *node, void *ctx) {
    static const size_t sizes[] = {8, 40, 200, 3000, 40000};
    (void)ctx;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct remo_owned_var *var;
        if (open_var(node, "value", sizes[i], 0, &var) != 0)
            return 1;
        CHECK_OK(cluster_meet());
        int result =
            remo_node_rank(node) == 0 ? write_on(node, var, sizes[i], SECOND / 4) : readers(var, sizes[i]);
        atomic_store(&shared->stop, 1); /* the other nodes stop if this one has failed */
        CHECK_OK(result);
        CHECK_OK(cluster_meet());
        if (remo_node_rank(node) == 0)
            memset(shared, 0, sizeof *shared);
        remo_owned_var_close(var);
        CHECK_OK(cluster_meet());
    }
    return 0;
}

/* Threads of the owner push in turn: a push of one thread does not undo a store of another. */
struct turn {
    struct remo_node *node;
    struct remo_owned_var *var;
    pthread_mutex_t *lock;
    uint64_t *n;
    int result;
};

static int take_turns(struct turn *self) {
    unsigned char value[100];
    for (uint64_t end = cluster_now_ns() + SECOND / 5; cluster_now_ns() < end;) {
        pthread_mutex_lock(self->lock);
        make_value(value, sizeof value, ++*self->n);
        atomic_store(&shared->stored, *self->n);
        int rc = remo_owned_var_store(self->var, value);
        rc = rc ? rc : remo_owned_var_push_all(self->var, NULL);
        pthread_mutex_unlock(self->lock);
        CHECK_OK(rc);
    }
    return 0;
}

static void *turn_thread(void *ctx) {
    struct turn *self = ctx;
    self->result = take_turns(self);
    return NULL;
}

static int owner_threads(struct remo_node *node, void *ctx) {
    struct remo_owned_var *var;
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    uint64_t n = 0;
    (void)ctx;
    if (open_var(node, "value", 100, 0, &var) != 0)
        return 1;
    if (remo_node_rank(node) == 0) {
        struct turn turns[3];
        pthread_t threads[3];
        for (int i = 0; i < 3; i++) {
            turns[i] = (struct turn){.node = node, .var = var, .lock = &lock, .n = &n};
            CHECK(pthread_create(&threads[i], NULL, turn_thread, &turns[i]) == 0);
        }
        for (int i = 0; i < 3; i++) {
            pthread_join(threads[i], NULL);
            CHECK_OK(turns[i].result);
        }
        CHECK_OK(remo_fence(node, REMO_FENCE_GLOBAL, 0));
        atomic_store(&shared->published, n);
        atomic_store(&shared->stop, 1);
    } else if (readers(var, 100) != 0) {
        return 1;
    }
    CHECK_OK(cluster_meet());
    unsigned char value[100];
    CHECK_OK(remo_owned_var_load(var, value));
    CHECK(is_value(value, sizeof value, atomic_load(&shared->published)));
    CHECK_OK(cluster_meet());
    remo_owned_var_close(var);
    return 0;
}

/* ---- waiting ---- */

static int waiting(struct remo_node *node, void *ctx) {
    struct remo_owned_var *var;
    uint64_t value = 0, latest;
    enum { ROUNDS = 300 };
    (void)ctx;
    if (open_var(node, "value", 8, 0, &var) != 0)
        return 1;
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        if (remo_node_rank(node) == 0) {
            if (round % 100 == 0)
                cluster_sleep_ms(30); /* until the other nodes sleep */
            CHECK_OK(remo_owned_var_store(var, &round));
            CHECK_OK(remo_owned_var_push_all(var, NULL));
        } else {
            uint64_t begin = cluster_now_ns();
            CHECK_OK(remo_owned_var_wait(var, &value, &latest, 100 * SECOND));
            CHECK(latest > value && in_time(cluster_now_ns() - begin, SECOND));
            value = latest;
            if (value == ROUNDS)
                break;
        }
    }
    CHECK_OK(cluster_meet());
    remo_owned_var_close(var);
    return 0;
}

/* ---- late, absent and failed nodes ---- */

static int late_and_absent(struct remo_node *node, void *ctx) {
    struct remo_owned_var *var;
    struct remo_owned_var_options options = {.owner = 0};
    uint64_t value = 9, found = 0;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    for (uint32_t i = 0; i < 3; i++)
        remo_nodeset_add(&options.participants, i);
    if (rank == 2)
        cluster_sleep_ms(200);
    if (rank != 3)
        CHECK_OK(remo_owned_var_open(remo_node_root(node), "v", 8, &options, &var));
    if (rank == 0) { /* waits for node 2; node 3 is not a participant */
        CHECK_OK(remo_owned_var_store(var, &value));
        CHECK_COST(remo_owned_var_channel(var), CHECK_OK(remo_owned_var_push_all(var, NULL)), 0, 2, 0, 2);
        CHECK_SENTENCE(remo_owned_var_push(var, 3, NULL), -EINVAL, "node 3 is not a participant");
    } else if (rank < 3) {
        CHECK_OK(remo_owned_var_wait(var, &found, &found, 100 * SECOND));
        CHECK_EQUAL(found, 9);
    }
    CHECK_OK(cluster_meet());
    if (rank == 3)
        return 0;
    if (rank == 1)
        remo_owned_var_close(var);
    CHECK_OK(cluster_meet());
    value = 10;
    if (rank == 0) { /* a node that left is skipped */
        while (remo_channel_peer(remo_owned_var_channel(var), 1) == REMO_CHANNEL_CONNECTED)
            cluster_sleep_ms(1);
        CHECK_OK(remo_owned_var_store(var, &value));
        CHECK_COST(remo_owned_var_channel(var), CHECK_OK(remo_owned_var_push_all(var, NULL)), 0, 1, 0, 1);
        CHECK_CODE(remo_owned_var_push(var, 1, NULL), -ENOTCONN);
    } else if (rank == 2) {
        CHECK_OK(remo_owned_var_wait(var, &found, &found, 100 * SECOND));
        CHECK_EQUAL(found, 10);
    }
    CHECK_OK(cluster_meet());
    if (rank != 1)
        remo_owned_var_close(var);
    return 0;
}

/* The owner is killed while it pushes large values: the last published value, or a newer one, stays readable
 * and whole. */
static int owner_fails(struct remo_node *node, void *ctx) {
    struct remo_owned_var *var;
    enum { SIZE = 60000 };
    static unsigned char value[SIZE], found[SIZE];
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    if (open_var(node, "value", SIZE, 0, &var) != 0)
        return 1;
    CHECK_OK(cluster_meet());
    if (rank == 0)
        return write_on(node, var, SIZE, 1000 * SECOND);
    if (rank == 1) {
        while (atomic_load(&shared->published) < 50)
            sched_yield();
        CHECK_OK(cluster_kill(0));
    }
    CHECK_OK(remo_owned_var_load(var, value));
    int rc = 0;
    uint64_t begin = cluster_now_ns();
    while (rc == 0 || rc == -EAGAIN)
        rc = remo_owned_var_wait(var, value, value, 100 * SECOND);
    CHECK_EQUAL(-rc, EHOSTDOWN);
    CHECK(in_time(cluster_now_ns() - begin, 5 * SECOND));
    CHECK_OK(remo_owned_var_load(var, found));
    CHECK(is_value(found, SIZE, number_of(found, SIZE)));
    CHECK(number_of(found, SIZE) >= atomic_load(&shared->published));
    CHECK(memcmp(found, value, SIZE) == 0);
    begin = cluster_now_ns();
    for (rc = 0; rc == 0 && cluster_now_ns() < begin + 100 * SECOND;) /* until it is cut off */
        rc = remo_owned_var_pull(var, found);
    CHECK_SENTENCE(rc, -EHOSTDOWN, "node 0");
    CHECK_OK(cluster_meet());
    remo_owned_var_close(var);
    return 0;
}

/* A participant with a copy fails: a push to it fails, and push_all skips it. */
static int copy_fails(struct remo_node *node, void *ctx) {
    struct remo_owned_var *var;
    uint32_t rank = remo_node_rank(node);
    uint64_t value = 5, found = 0;
    (void)ctx;
    if (open_var(node, "value", sizeof value, 0, &var) != 0)
        return 1;
    CHECK_OK(cluster_meet());
    if (rank == 1) {
        cluster_sleep_ms(60000);
        return 1;
    }
    if (rank == 0) {
        int rc;
        CHECK_OK(cluster_kill(1));
        CHECK_OK(remo_owned_var_store(var, &value));
        while ((rc = remo_owned_var_push(var, 1, NULL)) == 0) /* until it is cut off */
            cluster_sleep_ms(1);
        CHECK_CODE(rc, -EHOSTDOWN);
        rc = remo_fence(node, REMO_FENCE_THREAD,
                        0); /* returns the loss of an earlier push, if there was one */
        CHECK(rc == 0 || rc == -EHOSTDOWN);
        CHECK_OK(remo_owned_var_push_all(var, NULL));
        CHECK_OK(remo_fence(node, REMO_FENCE_THREAD, 0));
    } else {
        while (found != value)
            CHECK_OK(remo_owned_var_wait(var, &found, &found, 100 * SECOND));
    }
    CHECK_OK(cluster_meet());
    remo_owned_var_close(var);
    return 0;
}

static void setup(void) {
    memset(shared, 0, sizeof *shared);
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(steps, 3),
        CLUSTER_TEST(costs, 4),
        CLUSTER_TEST(errors, 2),
        CLUSTER_TEST(hammer, 3),
        CLUSTER_TEST_NAMED("hammer_threads", hammer, 2, .as_threads = 1),
        CLUSTER_TEST(owner_threads, 2),
        CLUSTER_TEST(waiting, 3),
        CLUSTER_TEST(late_and_absent, 4),
        CLUSTER_TEST(owner_fails, 3),
        CLUSTER_TEST(copy_fails, 3),
        CLUSTER_TEST_NAMED("owner_fails_2", owner_fails, 2),
        CLUSTER_TEST_NAMED("owner_fails_4", owner_fails, 4),
        {0}};
    shared = cluster_shared(sizeof *shared);
    return cluster_main(argc, argv, tests, setup);
}
