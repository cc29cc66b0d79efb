/* test_idle.c - a thread that waits for another node sleeps until it is notified. Each node counts how often
 * its thread went to sleep, which does not depend on the speed of the machine. On ofi this count has no
 * bound: operations in flight are polled until they complete. */
#include <sys/resource.h>

#include "../../support/cluster.h"

#define SLEEP_MS 3000u
#define SLEEPS_MAX 20u /* a wake-up every 20 ms would make 150 */

struct objects {
    struct remo_barrier *barrier;
    struct remo_lock *lock;
    struct remo_queue *queue;
    struct remo_ringbuffer *ring;
};

static uint64_t count_sleeps(void) {
    struct rusage usage;
    return getrusage(RUSAGE_THREAD, &usage) == 0 ? (uint64_t)usage.ru_nvcsw : 0;
}

static int open_objects(struct remo_channel *root, uint32_t last, struct objects *objects) {
    struct remo_ringbuffer_options options = {.sender = last};
    CHECK_OK(remo_barrier_open(root, "barrier", NULL, &objects->barrier));
    CHECK_OK(remo_lock_open(root, "lock", NULL, &objects->lock));
    CHECK_OK(remo_queue_open(root, "queue", NULL, &objects->queue));
    CHECK_OK(remo_ringbuffer_open(root, "ring", &options, &objects->ring));
    CHECK_OK(remo_channel_wait(root, 100 * SECOND));
    return 0;
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

/* Let each of `waiters` continue. */
static int end_queue_waits(struct objects *objects, uint32_t waiters) {
    for (uint64_t i = 0; i < waiters; i++)
        CHECK_OK(remo_queue_push(objects->queue, &i, sizeof i, 100 * SECOND));
    return 0;
}

static int idle(struct remo_node *node, void *ctx) {
    static int (*const waits[])(struct objects *) = {wait_at_barrier, wait_at_lock, wait_at_queue,
                                                     wait_at_ring};
    static const char *const names[] = {"barrier", "lock", "queue", "ring buffer"};
    struct objects objects;
    uint32_t last = remo_node_size(node) - 1;
    uint64_t message = 1;
    (void)ctx;
    if (open_objects(remo_node_root(node), last, &objects) != 0)
        return 1;
    for (size_t i = 0; i < sizeof waits / sizeof waits[0]; i++) {
        if (remo_node_rank(node) == last && i == 1)
            CHECK_OK(remo_lock_acquire(objects.lock, 0, 100 * SECOND));
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
        if (i == 0)
            CHECK_OK(remo_barrier_wait(objects.barrier, 100 * SECOND));
        else if (i == 1)
            CHECK_OK(remo_lock_release(objects.lock, 0, REMO_FENCE_NONE));
        else if (i == 2)
            CHECK(end_queue_waits(&objects, last) == 0);
        else
            CHECK_OK(remo_ringbuffer_send(objects.ring, &message, sizeof message, 100 * SECOND, NULL));
    }
    CHECK_OK(cluster_meet());
    remo_ringbuffer_close(objects.ring);
    remo_queue_close(objects.queue);
    remo_lock_close(objects.lock);
    remo_barrier_close(objects.barrier);
    return 0;
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {CLUSTER_TEST(idle, 4), {0}};
    return cluster_main(argc, argv, tests, NULL);
}
