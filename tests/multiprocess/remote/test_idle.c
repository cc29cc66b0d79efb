/* test_idle.c - a thread that waits for another node sleeps until it is notified. Each node counts how often
 * its threads went to sleep, which does not depend on the speed of the machine. On ofi this count has no
 * bound: operations in flight are polled until they complete. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>

#include "../../support/cluster.h"

#define SLEEP_MS 3000u
#define SLEEPS_MAX 20u /* a wake-up every 20 ms would make 150 */

#define BLOCKED_NS (10 * SECOND)
#define BLOCKED_SLEEPS_MAX (2 * SLEEPS_MAX) /* of all threads of all nodes; with REMO_TEST_BARS half of it */
#define BLOCKED_PERCENT_MAX 0.1             /* of a processor, all nodes together */

static struct { _Atomic uint64_t sleeps, processor_ns; } * blocked_nodes;

struct objects {
    struct remo_barrier *barrier;
    struct remo_lock *lock;
    struct remo_queue *queue;
    struct remo_ringbuffer *ring;
    struct remo_owned_var *var;
};

static uint64_t count_sleeps(void) {
    struct rusage usage;
    return getrusage(RUSAGE_THREAD, &usage) == 0 ? (uint64_t)usage.ru_nvcsw : 0;
}

static int open_objects(struct remo_channel *root, uint32_t last, struct objects *objects) {
    struct remo_ringbuffer_options options = {.sender = last};
    struct remo_owned_var_options owner = {.owner = last};
    CHECK_OK(remo_barrier_open(root, "barrier", NULL, &objects->barrier));
    CHECK_OK(remo_lock_open(root, "lock", NULL, &objects->lock));
    CHECK_OK(remo_queue_open(root, "queue", NULL, &objects->queue));
    CHECK_OK(remo_ringbuffer_open(root, "ring", &options, &objects->ring));
    CHECK_OK(remo_owned_var_open(root, "var", 8, &owner, &objects->var));
    CHECK_OK(remo_channel_wait(root, 100 * SECOND));
    return 0;
}

static void close_objects(struct objects *objects) {
    remo_owned_var_close(objects->var);
    remo_ringbuffer_close(objects->ring);
    remo_queue_close(objects->queue);
    remo_lock_close(objects->lock);
    remo_barrier_close(objects->barrier);
}

static int wait_at_barrier(struct objects *objects) {
    CHECK_OK(remo_barrier_wait(objects->barrier, REMO_FOREVER));
    return 0;
}

static int wait_at_lock(struct objects *objects) {
    CHECK_OK(remo_lock_acquire(objects->lock, 0, REMO_FOREVER));
    CHECK_OK(remo_lock_release(objects->lock, 0, REMO_FENCE_NONE));
    return 0;
}

static int wait_at_queue(struct objects *objects) {
    uint64_t element;
    size_t size;
    CHECK_OK(remo_queue_pop(objects->queue, &element, sizeof element, &size, REMO_FOREVER));
    return 0;
}

static int wait_at_ring(struct objects *objects) {
    uint64_t message;
    size_t size;
    CHECK_OK(remo_ringbuffer_receive(objects->ring, &message, sizeof message, &size, REMO_FOREVER));
    return 0;
}

static void *wait_in_thread(void *ctx) {
    uint64_t before = count_sleeps();
    bool failed = wait_at_lock(ctx) != 0;
    return failed || count_sleeps() - before > SLEEPS_MAX ? ctx : NULL;
}

/* Two threads of each node: one of them waits for the other. */
static int wait_in_two_threads(struct objects *objects) {
    pthread_t thread;
    void *failed;
    CHECK(pthread_create(&thread, NULL, wait_in_thread, objects) == 0);
    CHECK(wait_at_lock(objects) == 0);
    CHECK(pthread_join(thread, &failed) == 0 && !failed);
    return 0;
}

static int wait_for_change(struct objects *objects) {
    uint64_t none = 0, value;
    CHECK_OK(remo_owned_var_wait(objects->var, &none, &value, REMO_FOREVER));
    return 0;
}

/* Let each of `waiters` continue. */
static int end_queue_waits(struct objects *objects, uint32_t waiters) {
    for (uint64_t i = 0; i < waiters; i++)
        CHECK_OK(remo_queue_push(objects->queue, &i, sizeof i, 100 * SECOND));
    return 0;
}

static int begin_wait(struct objects *objects, size_t wait) {
    if (wait == 1 || wait == 2)
        CHECK_OK(remo_lock_acquire(objects->lock, 0, 100 * SECOND));
    return 0;
}

static int end_wait(struct objects *objects, size_t wait, uint32_t waiters) {
    uint64_t message = 1;
    switch (wait) {
    case 0: CHECK_OK(remo_barrier_wait(objects->barrier, 100 * SECOND)); break;
    case 1:
    case 2: CHECK_OK(remo_lock_release(objects->lock, 0, REMO_FENCE_NONE)); break;
    case 3: CHECK(end_queue_waits(objects, waiters) == 0); break;
    case 4:
        CHECK_OK(remo_ringbuffer_send(objects->ring, &message, sizeof message, 100 * SECOND, NULL));
        break;
    default:
        CHECK_OK(remo_owned_var_store(objects->var, &message));
        CHECK_OK(remo_owned_var_push_all(objects->var, NULL));
    }
    return 0;
}

static int idle(struct remo_node *node, void *ctx) {
    static int (*const waits[])(struct objects *) = {wait_at_barrier, wait_at_lock, wait_in_two_threads,
                                                     wait_at_queue,   wait_at_ring, wait_for_change};
    static const char *const names[] = {"barrier", "lock",        "lock, with two threads",
                                        "queue",   "ring buffer", "variable"};
    struct objects objects;
    uint32_t last = remo_node_size(node) - 1;
    (void)ctx;
    if (open_objects(remo_node_root(node), last, &objects) != 0)
        return 1;
    for (size_t i = 0; i < sizeof waits / sizeof waits[0]; i++) {
        if (remo_node_rank(node) == last)
            CHECK(begin_wait(&objects, i) == 0);
        CHECK_OK(cluster_meet());
        if (remo_node_rank(node) != last) {
            uint64_t before = count_sleeps();
            CHECK(waits[i](&objects) == 0);
            uint64_t sleeps = count_sleeps() - before;
            printf("     node %u at the %s: %llu sleeps\n", remo_node_rank(node), names[i],
                   (unsigned long long)sleeps);
            CHECK(sleeps <= SLEEPS_MAX);
            continue;
        }
        cluster_sleep_ms(SLEEP_MS);
        CHECK(end_wait(&objects, i, last) == 0);
    }
    CHECK_OK(cluster_meet());
    close_objects(&objects);
    return 0;
}

/* ---- the whole process, while each node waits for another object ---- */

/* Return how often the threads of this process went to sleep. */
static uint64_t count_all_sleeps(void) {
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_nvcsw : 0;
}

/* Each node waits at another object until the timeout. The last node holds the lock. */
static int wait_until_timeout(struct objects *objects, uint32_t rank) {
    uint64_t word;
    size_t size;
    switch (rank) {
    case 0: CHECK_CODE(remo_barrier_wait(objects->barrier, BLOCKED_NS), -ETIMEDOUT); break;
    case 1: CHECK_CODE(remo_lock_acquire(objects->lock, 0, BLOCKED_NS), -ETIMEDOUT); break;
    case 2:
        CHECK_CODE(remo_queue_pop(objects->queue, &word, sizeof word, &size, BLOCKED_NS), -ETIMEDOUT);
        break;
    default:
        CHECK_CODE(remo_ringbuffer_receive(objects->ring, &word, sizeof word, &size, BLOCKED_NS), -ETIMEDOUT);
    }
    return 0;
}

static int blocked(struct remo_node *node, void *ctx) {
    struct objects objects;
    uint32_t rank = remo_node_rank(node), last = remo_node_size(node) - 1;
    (void)ctx;
#ifdef __SANITIZE_THREAD__
    printf("     skipped: a thread of ThreadSanitizer wakes up all the time\n");
    return 0;
#endif
    if (open_objects(remo_node_root(node), 0, &objects) != 0)
        return 1;
    if (rank == last)
        CHECK_OK(remo_lock_acquire(objects.lock, 0, 100 * SECOND));
    CHECK_OK(cluster_meet());
    uint64_t sleeps = count_all_sleeps(), processor_ns = cluster_processor_ns();
    CHECK(wait_until_timeout(&objects, rank) == 0);
    atomic_fetch_add(&blocked_nodes->sleeps, count_all_sleeps() - sleeps);
    atomic_fetch_add(&blocked_nodes->processor_ns, cluster_processor_ns() - processor_ns);
    CHECK_OK(cluster_meet());
    if (rank == 0) {
        uint64_t all = atomic_load(&blocked_nodes->sleeps);
        double percent = 100.0 * (double)atomic_load(&blocked_nodes->processor_ns) / BLOCKED_NS;
        printf("     all nodes: %llu sleeps, %.3f %% of a processor\n", (unsigned long long)all, percent);
        CHECK(all <= (patience_judges_bars() ? BLOCKED_SLEEPS_MAX / 2 : BLOCKED_SLEEPS_MAX));
        CHECK(!patience_judges_bars() || percent <= BLOCKED_PERCENT_MAX);
    }
    if (rank == last)
        CHECK_OK(remo_lock_release(objects.lock, 0, REMO_FENCE_NONE));
    CHECK_OK(cluster_meet());
    close_objects(&objects);
    return 0;
}

static void setup(void) {
    memset(blocked_nodes, 0, sizeof *blocked_nodes);
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {CLUSTER_TEST(idle, 4), CLUSTER_TEST(blocked, 4), {0}};
    blocked_nodes = cluster_shared(sizeof *blocked_nodes);
    return cluster_main(argc, argv, tests, setup);
}
