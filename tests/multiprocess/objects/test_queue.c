/* test_queue.c - tests of the queue between nodes and threads: order, exactly once, full and empty, waiting,
 * sizes, the cost of each call, and the failure of pushers, poppers and slot owners at any moment. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../support/cluster.h"
#include "base/random.h"
#include "fabric/access.h"
#include "objects/queue/queue.h"

#define MS 1000000ull
#define PRODUCERS 16u
#define ELEMENTS_MAX 200000u

/* The state of element `number` of a producer. */
enum { ACKED = 1, UNKNOWN = 2, ON_FAILED = 4, POPPED = 8 };

static struct shared {
    _Atomic uint32_t turn, stop, pushing;
    _Atomic uint64_t popped;
    _Atomic uint64_t killed_at;
    _Atomic uint32_t acked[PRODUCERS];
    _Atomic uint32_t owner[PRODUCERS][ELEMENTS_MAX]; /* of the slot, plus 1 */
    _Atomic uint8_t state[PRODUCERS][ELEMENTS_MAX];
} * shared;

static int is_shm(struct remo_node *node) {
    return strcmp(remo_node_fabric(node), "shm") == 0;
}

static int open_queue(struct remo_node *node, uint32_t slot_bytes, uint64_t capacity, uint32_t home,
                      struct remo_queue **ret_queue) {
    struct remo_queue_options options = {.home = home, .slot_bytes = slot_bytes, .capacity = capacity};
    CHECK_OK(remo_queue_open(remo_node_root(node), "queue", &options, ret_queue));
    CHECK_OK(remo_channel_wait(remo_queue_channel(*ret_queue), 100 * SECOND));
    return cluster_meet();
}

/* ---- one node after the other ---- */

static int push_number(struct remo_queue *queue, uint64_t number, uint64_t timeout_ns) {
    return remo_queue_push(queue, &number, sizeof number, timeout_ns);
}

static int pop_number(struct remo_queue *queue, uint64_t expected) {
    uint64_t buffer[7] = {0};
    size_t size = 0;
    CHECK_OK(remo_queue_pop(queue, buffer, sizeof buffer, &size, 0));
    CHECK_EQUAL(size, 8);
    CHECK_EQUAL(buffer[0], expected);
    return 0;
}

/* Nodes fill and empty the queue in turn; the capacity is rounded up to 3 x 4. */
static int laps(struct remo_node *node, void *ctx) {
    struct remo_queue *queue;
    uint64_t buffer[7];
    size_t size;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    if (open_queue(node, 0, 10, 1, &queue) != 0)
        return 1;
    for (uint32_t lap = 0; lap < 9; lap++) {
        if (lap % 3 == rank) {
            for (uint64_t i = 0; i < 12; i++)
                CHECK_OK(push_number(queue, 100 * lap + i, 0));
            CHECK_SENTENCE(push_number(queue, 0, 0), -ETIMEDOUT, "full");
        }
        CHECK_OK(cluster_meet());
        if (lap / 3 == rank) {
            for (uint64_t i = 0; i < 12; i++)
                if (pop_number(queue, 100 * lap + i) != 0)
                    return 1;
            CHECK_SENTENCE(remo_queue_pop(queue, buffer, sizeof buffer, &size, 0), -ETIMEDOUT, "empty");
        }
        CHECK_OK(cluster_meet());
    }
    remo_queue_close(queue);
    return 0;
}

/* An element that fits is popped into a buffer below slot_bytes; a larger one stays in the queue. */
static int pops_into_small_buffers(struct remo_queue *queue, uint32_t slot_bytes, const unsigned char *sent,
                                   unsigned char *buffer) {
    size_t small = slot_bytes / 2, found = 7;
    CHECK_CODE(remo_queue_pop(queue, buffer, 0, &found, 0), -ETIMEDOUT);
    CHECK_OK(remo_queue_push(queue, sent, small, 100 * SECOND));
    CHECK_OK(remo_queue_push(queue, sent, slot_bytes, 100 * SECOND));
    memset(buffer, 0xee, slot_bytes);
    CHECK_OK(remo_queue_pop(queue, buffer, small, &found, 100 * SECOND));
    CHECK(found == small && memcmp(buffer, sent, small) == 0 && buffer[small] == 0xee);
    for (uint32_t i = 0; i < 2; i++) {
        memset(buffer, 0xee, slot_bytes);
        CHECK_SENTENCE(remo_queue_pop(queue, buffer, slot_bytes - 1, &found, i * 100 * SECOND), -EMSGSIZE,
                       "a larger buffer");
        CHECK_EQUAL(found, slot_bytes);
        CHECK_EQUAL(buffer[slot_bytes - 1], 0xee);
    }
    CHECK_OK(remo_queue_pop(queue, buffer, found, &found, 100 * SECOND));
    CHECK(found == slot_bytes && memcmp(buffer, sent, slot_bytes) == 0);
    return 0;
}

/* All slots are full at the same time. None overlaps another. */
static int fills_all_slots(struct remo_queue *queue, uint32_t slot_bytes, unsigned char *sent,
                           unsigned char *buffer) {
    size_t found;
    for (uint32_t i = 0; i < 6; i++) {
        memset(sent, (int)i + 1, slot_bytes);
        CHECK_OK(remo_queue_push(queue, sent, slot_bytes, 100 * SECOND));
    }
    for (uint32_t i = 0; i < 6; i++) {
        memset(sent, (int)i + 1, slot_bytes);
        CHECK_OK(remo_queue_pop(queue, buffer, slot_bytes, &found, 100 * SECOND));
        CHECK(found == slot_bytes && memcmp(buffer, sent, slot_bytes) == 0);
    }
    return 0;
}

static int sizes_of(struct remo_node *node, uint32_t slot_bytes) {
    struct remo_queue *queue;
    uint32_t rank = remo_node_rank(node);
    unsigned char *sent = malloc(slot_bytes), *buffer = malloc(slot_bytes);
    if (open_queue(node, slot_bytes, 6, 0, &queue) != 0)
        return 1;
    for (uint32_t i = 0; i < 40; i++) {
        size_t size = i < 3 ? i : i < 6 ? slot_bytes - (i - 3) : slot_bytes * (i - 6) / 40, found;
        if (size > slot_bytes)
            continue;
        for (size_t at = 0; at < size; at++)
            sent[at] = (unsigned char)(at * 7 + i);
        if (i % 2 == rank)
            CHECK_OK(remo_queue_push(queue, size ? sent : NULL, size, 100 * SECOND));
        else
            CHECK_OK(remo_queue_pop(queue, buffer, slot_bytes, &found, 100 * SECOND));
        if (i % 2 != rank)
            CHECK(found == size && memcmp(buffer, sent, size) == 0);
        CHECK_OK(cluster_meet());
    }
    if (rank == 0) {
        CHECK_SENTENCE(remo_queue_push(queue, sent, slot_bytes + 1, 0), -EMSGSIZE, "slot_bytes");
        if (fills_all_slots(queue, slot_bytes, sent, buffer) != 0)
            return 1;
        if (pops_into_small_buffers(queue, slot_bytes, sent, buffer) != 0)
            return 1;
    }
    CHECK_OK(cluster_meet());
    remo_queue_close(queue);
    free(sent);
    free(buffer);
    return 0;
}

static int all_sizes(struct remo_node *node, void *ctx) {
    static const uint32_t sizes[] = {1,    8,    56,   57,   999,    1000,
                                     1001, 4095, 4096, 9000, 300000, REMO_QUEUE_SLOT_BYTES_MAX};
    (void)ctx;
    for (uint32_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (sizes_of(node, sizes[i]) != 0)
            return 1;
    return 0;
}

/* ---- many at once ---- */

struct worker {
    struct remo_node *node;
    struct remo_queue *queue;
    uint32_t producer, rounds;
    uint64_t seed;
    int result;
};

struct element {
    uint32_t producer, number;
    uint64_t check;
};

static struct element make_element(uint32_t producer, uint32_t number) {
    return (struct element){producer, number, remo__random_mix((uint64_t)producer << 32 | number)};
}

static int push_many(struct worker *worker) {
    for (uint32_t i = 0; i < worker->rounds; i++) {
        struct element element = make_element(worker->producer, i);
        CHECK_OK(remo_queue_push(worker->queue, &element, sizeof element, 100 * SECOND));
    }
    return 0;
}

/* Each consumer gets the elements of a producer in order, and each element once. */
static int record_popped(const struct element *element, size_t size, int64_t *last) {
    CHECK_EQUAL(size, sizeof *element);
    CHECK(element->producer < PRODUCERS && element->number < ELEMENTS_MAX);
    CHECK_EQUAL(element->check, make_element(element->producer, element->number).check);
    CHECK_EQUAL(atomic_fetch_or(&shared->state[element->producer][element->number], POPPED) & POPPED, 0);
    CHECK(last[element->producer] < (int64_t)element->number);
    last[element->producer] = element->number;
    return 0;
}

static int pop_many(struct worker *worker, uint64_t total) {
    int64_t last[PRODUCERS];
    struct element element;
    size_t size;
    memset(last, 0xff, sizeof last);
    while (atomic_load(&shared->popped) < total) {
        int rc = remo_queue_pop(worker->queue, &element, sizeof element, &size, 20 * MS);
        if (rc == -ETIMEDOUT)
            continue;
        CHECK_OK(rc);
        if (record_popped(&element, size, last) != 0)
            return 1;
        atomic_fetch_add(&shared->popped, 1);
    }
    return 0;
}

static void *push_thread(void *ctx) {
    struct worker *worker = ctx;
    worker->result = push_many(worker);
    return NULL;
}

static void *pop_thread(void *ctx) {
    struct worker *worker = ctx;
    worker->result = pop_many(worker, (uint64_t)worker->rounds * 2 * remo_node_size(worker->node));
    return NULL;
}

/* Each node has two threads that push and two that pop, with far more elements than slots. */
static int each_once_in_order(struct remo_node *node, void *ctx) {
    struct worker workers[4];
    pthread_t threads[4];
    struct remo_queue *queue;
    (void)ctx;
    if (open_queue(node, sizeof(struct element), 64, 0, &queue) != 0)
        return 1;
    for (uint32_t i = 0; i < 4; i++) {
        workers[i] = (struct worker){.node = node,
                                     .queue = queue,
                                     .producer = remo_node_rank(node) * 2 + i,
                                     .rounds = is_shm(node) ? 5000 : 400};
        CHECK(pthread_create(&threads[i], NULL, i < 2 ? push_thread : pop_thread, &workers[i]) == 0);
    }
    for (uint32_t i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        CHECK_OK(workers[i].result);
    }
    CHECK_EQUAL(shared->popped, workers[0].rounds * 2ull * remo_node_size(node));
    CHECK_OK(cluster_meet());
    remo_queue_close(queue);
    return 0;
}

/* ---- waiting ---- */

static int blocked_calls_wake_up(struct remo_node *node, void *ctx) {
    struct remo_queue *queue;
    uint32_t rank = remo_node_rank(node);
    uint64_t buffer[7], begin, slept;
    size_t size;
    (void)ctx;
    if (open_queue(node, 0, 4, 2, &queue) != 0)
        return 1;
    for (uint32_t i = 0; i < 20; i++) {
        begin = cluster_now_ns();
        if (rank == 0) {
            CHECK_OK(remo_queue_pop(queue, buffer, sizeof buffer, &size, 100 * SECOND));
            CHECK_EQUAL(buffer[0], i);
            slept = cluster_now_ns() - begin;
            CHECK(in_time(slept, 5 * SECOND));
        } else if (rank == 1) {
            cluster_sleep_ms(5);
            CHECK_OK(push_number(queue, i, 0));
        }
        CHECK_OK(cluster_meet());
    }
    for (uint64_t i = 0; rank == 1 && i < 6; i++)
        CHECK_OK(push_number(queue, i, 0)); /* now full: 3 nodes, so 6 slots */
    CHECK_OK(cluster_meet());
    for (uint32_t i = 0; i < 20; i++) {
        begin = cluster_now_ns();
        if (rank == 1) {
            CHECK_OK(push_number(queue, 6 + i, 100 * SECOND));
            slept = cluster_now_ns() - begin;
            CHECK(in_time(slept, 5 * SECOND));
        } else if (rank == 0) {
            cluster_sleep_ms(5);
            if (pop_number(queue, i) != 0)
                return 1;
        }
        CHECK_OK(cluster_meet());
    }
    remo_queue_close(queue);
    return 0;
}

static int timeouts(struct remo_node *node, void *ctx) {
    struct remo_queue *queue;
    uint64_t buffer[7], begin;
    size_t size;
    (void)ctx;
    if (open_queue(node, 0, 2, 0, &queue) != 0)
        return 1;
    for (uint64_t ms = 0; ms < 50; ms += 7) {
        begin = cluster_now_ns();
        CHECK_SENTENCE(remo_queue_pop(queue, buffer, sizeof buffer, &size, ms * MS), -ETIMEDOUT, "empty");
        CHECK(cluster_now_ns() - begin >= ms * MS);
        CHECK(in_time(cluster_now_ns() - begin, (ms + 5000) * MS));
    }
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 0) {
        CHECK_OK(push_number(queue, 1, 0));
        CHECK_OK(push_number(queue, 2, 0));
    }
    CHECK_OK(cluster_meet());
    for (uint64_t ms = 0; ms < 50; ms += 7) {
        begin = cluster_now_ns();
        CHECK_SENTENCE(push_number(queue, 9, ms * MS), -ETIMEDOUT, "full");
        CHECK(cluster_now_ns() - begin >= ms * MS);
    }
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 1) { /* the failed pushes left no element */
        CHECK_OK(pop_number(queue, 1));
        CHECK_OK(pop_number(queue, 2));
        CHECK_CODE(remo_queue_pop(queue, buffer, sizeof buffer, &size, 0), -ETIMEDOUT);
    }
    CHECK_OK(cluster_meet());
    for (uint32_t i = 0; remo_node_rank(node) == 0 && i < 32; i++) /* and no waiter at the home */
        CHECK_EQUAL(remo__load(queue->home_memory->own + REMO__QUEUE_WAITERS(0) + i % 12 * 8), 0);
    CHECK_OK(cluster_meet());
    remo_queue_close(queue);
    return 0;
}

static int waiting_is_free(struct remo_node *node, void *ctx) {
    struct remo_queue *queue;
    uint64_t buffer[7];
    size_t size;
    (void)ctx;
    if (open_queue(node, 0, 4, 0, &queue) != 0)
        return 1;
    uint64_t before = cluster_processor_ns(), begin = cluster_now_ns();
    if (remo_node_rank(node) == 0)
        cluster_sleep_ms(1000);
    if (remo_node_rank(node) == 0)
        CHECK_OK(push_number(queue, 1, 0));
    else
        CHECK_OK(remo_queue_pop(queue, buffer, sizeof buffer, &size, 100 * SECOND));
    CHECK(slept_through(cluster_processor_ns() - before, cluster_now_ns() - begin, 0.04));
    CHECK_OK(cluster_meet());
    remo_queue_close(queue);
    return 0;
}

/* ---- costs ---- */

#define COST(queue, call, code, reads, writes, atomics) \
    CHECK_COST(remo_queue_channel(queue), CHECK_CODE(call, code), reads, writes, atomics, 0)

static int costs(struct remo_node *node, void *ctx) {
    struct remo_queue *queue, *large;
    struct remo_queue_options options = {.slot_bytes = 2000, .capacity = 4};
    uint64_t buffer[250] = {0};
    size_t size;
    uint32_t rank = remo_node_rank(node);
    uint32_t placed = strcmp(remo_node_fabric(node), "verbs")
                      == 0; /* on verbs, a read is needed to confirm that a write is placed */
    uint32_t apart = strcmp(remo_node_fabric(node), "shm") == 0; /* header and data are separate operations */
    (void)ctx;
    CHECK_OK(remo_queue_open(remo_node_root(node), "large", &options, &large));
    CHECK_OK(remo_channel_wait(remo_queue_channel(large), 100 * SECOND));
    if (open_queue(node, 0, 8, 2, &queue) != 0)
        return 1;
    for (uint32_t i = 0; i < 20; i++) {
        if (rank == 0)
            COST(queue, push_number(queue, i, 0), 0, placed, 1 + apart, 2);
        if (rank == 0)
            COST(large, remo_queue_push(large, buffer, 2000, 0), 0, 2 * placed, 2, 2);
        CHECK_OK(cluster_meet());
        if (rank == 1)
            COST(queue, remo_queue_pop(queue, buffer, 56, &size, 0), 0, 1 + apart, 0, 2);
        if (rank == 1)
            COST(large, remo_queue_pop(large, buffer, 2000, &size, 0), 0, 2, 0, 2);
        CHECK_OK(cluster_meet());
    }
    if (rank == 1)
        COST(queue, remo_queue_pop(queue, buffer, 56, &size, 0), -ETIMEDOUT, 1, 0, 0);
    CHECK_OK(cluster_meet());
    if (rank == 2) { /* the hint is stale: one more access to a slot, and one to the word */
        COST(queue, push_number(queue, 1, 0), 0, 1 + placed, 1 + apart, 3);
        COST(queue, remo_queue_pop(queue, buffer, 56, &size, 0), 0, 3 + apart, 0, 2);
        for (uint32_t i = 0; i < 9; i++)
            COST(queue, push_number(queue, i, 0), 0, placed, 1 + apart, 2);
        COST(queue, push_number(queue, 9, 0), -ETIMEDOUT, 0, 0, 1);
    }
    CHECK_OK(cluster_meet());
    if (rank == 0) { /* a call that finds the queue full or empty raises the hint for the next one */
        COST(queue, push_number(queue, 9, 0), -ETIMEDOUT, 1, 0, 2);
        COST(queue, push_number(queue, 9, 0), -ETIMEDOUT, 0, 0, 1);
    }
    CHECK_OK(cluster_meet());
    for (uint32_t i = 0; rank == 2 && i < 9; i++)
        COST(queue, remo_queue_pop(queue, buffer, 56, &size, 0), 0, 1 + apart, 0, 2);
    CHECK_OK(cluster_meet());
    if (rank == 0) {
        COST(queue, remo_queue_pop(queue, buffer, 56, &size, 0), -ETIMEDOUT, 3, 0, 0);
        COST(queue, remo_queue_pop(queue, buffer, 56, &size, 0), -ETIMEDOUT, 1, 0, 0);
    }
    CHECK_OK(cluster_meet());
    remo_queue_close(queue);
    remo_queue_close(large);
    return 0;
}

/* ---- failures ---- */

/* One thread pushes at each node, so its hint yields the slot of an element. */
static int push_during_failures(struct worker *worker) {
    for (uint32_t i = 0; !atomic_load(&shared->stop) && i < ELEMENTS_MAX; i++) {
        struct element element = make_element(worker->producer, i);
        int rc = remo_queue_push(worker->queue, &element, sizeof element, 5 * MS);
        if (rc == -ETIMEDOUT) {
            i--;
            continue;
        }
        CHECK(rc == 0 || rc == -EHOSTDOWN);
        uint64_t ticket = worker->queue->hint[REMO__QUEUE_TAIL] - 1;
        uint32_t owner =
            worker->queue->members[ticket % worker->queue->capacity % worker->queue->member_count];
        atomic_store(&shared->owner[worker->producer][i], owner + 1);
        atomic_fetch_or(&shared->state[worker->producer][i], rc == 0 ? ACKED : UNKNOWN);
        atomic_fetch_add(&shared->acked[worker->producer], rc == 0);
        if (i > ELEMENTS_MAX / 2) /* the test takes long: save some elements for its end */
            cluster_sleep_ms(1);
    }
    return 0;
}

static int pop_during_failures(struct worker *worker) {
    int64_t last[PRODUCERS];
    struct element element;
    size_t size;
    for (uint32_t quiet = 0; quiet < 3;) {
        int rc = remo_queue_pop(worker->queue, &element, sizeof element, &size, 10 * MS);
        CHECK(rc == 0 || rc == -EHOSTDOWN || rc == -ETIMEDOUT);
        quiet = rc == 0 || atomic_load(&shared->pushing) != 0 ? 0 : quiet + 1;
        /* Until all nodes have detected a failure, elements in the failed node's slots may be popped late. */
        memset(last, 0xff, sizeof last);
        if (rc == 0 && record_popped(&element, size, last) != 0)
            return 1;
    }
    return 0;
}

static void *push_failures_thread(void *ctx) {
    struct worker *worker = ctx;
    worker->result = push_during_failures(worker);
    return NULL;
}

static void *pop_failures_thread(void *ctx) {
    struct worker *worker = ctx;
    worker->result = pop_during_failures(worker);
    return NULL;
}

static void kill_now(uint32_t rank) {
    atomic_store(&shared->killed_at, cluster_now_ns());
    if (cluster_kill(rank) != 0)
        abort();
}

/* Wait until nodes 0 and 1 have pushed `more` elements each, whichever other nodes fail. */
static int await_pushes(uint32_t more) {
    uint32_t first[2] = {atomic_load(&shared->acked[0]), atomic_load(&shared->acked[1])};
    for (uint32_t rank = 0; rank < 2; rank++)
        while (atomic_load(&shared->acked[rank]) - first[rank] < more)
            cluster_sleep_ms(1);
    return 0;
}

static int kill_last_nodes(struct remo_node *node) {
    struct remo__random random;
    remo__random_seed(&random, cluster_now_ns());
    CHECK_OK(await_pushes(10));
    for (uint32_t victim = remo_node_size(node) - 1; victim > 1; victim--) {
        cluster_sleep_ms((uint32_t)remo__random_below(&random, 15));
        for (uint64_t i = remo__random_below(&random, 1000000); i > 0; i--)
            __asm__ volatile("");
        kill_now(victim);
    }
    while (remo_node_peer(node, 2) == REMO_PEER_UP)
        cluster_sleep_ms(1);
    CHECK_OK(await_pushes(50));
    atomic_store(&shared->stop, 1);
    return 0;
}

/* Acknowledged elements in slots of nodes that are up were popped once, except at most one per failed popper.
 * No element was popped twice (note_popped). */
static int judge(uint32_t nodes) {
    uint32_t lost = 0;
    for (uint32_t producer = 0; producer < nodes; producer++) {
        for (uint32_t i = 0; i < ELEMENTS_MAX && (shared->state[producer][i] & (ACKED | UNKNOWN)); i++) {
            uint8_t state = shared->state[producer][i];
            bool is_on_survivor = shared->owner[producer][i] - 1 < 2;
            lost += (state & ACKED) && is_on_survivor && !(state & POPPED);
        }
    }
    CHECK(lost <= nodes - 2);
    return 0;
}

static int killed_anywhere(struct remo_node *node, void *ctx) {
    struct worker workers[2];
    pthread_t threads[2];
    struct remo_queue *queue;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    if (open_queue(node, sizeof(struct element), 16, 0, &queue) != 0)
        return 1;
    if (rank == 0)
        atomic_store(&shared->pushing, 1);
    CHECK_OK(cluster_meet());
    for (uint32_t i = 0; i < 2; i++) {
        workers[i] = (struct worker){.node = node, .queue = queue, .producer = rank};
        CHECK(pthread_create(&threads[i], NULL, i ? pop_failures_thread : push_failures_thread, &workers[i])
              == 0);
    }
    if (rank == 0)
        CHECK_OK(kill_last_nodes(node));
    pthread_join(threads[0], NULL);
    CHECK_OK(workers[0].result);
    CHECK_OK(cluster_meet());
    atomic_store(&shared->pushing, 0);
    pthread_join(threads[1], NULL);
    CHECK_OK(workers[1].result);
    CHECK_OK(cluster_meet());
    if (rank == 0) {
        CHECK_OK(judge(remo_node_size(node)));
    }
    CHECK_OK(cluster_meet());
    remo_queue_close(queue);
    return 0;
}

static int check_detection_time(struct remo_node *node) {
    uint64_t after_ns = cluster_now_ns() - atomic_load(&shared->killed_at);
    printf("     node %u: detected the failure %.1f ms after the kill\n", remo_node_rank(node),
           (double)after_ns / 1e6);
    CHECK(in_time(after_ns, 100 * MS));
    return 0;
}

/* Waiting calls return the error once, in time; then the queue continues without the slots of the failed
 * node. */
static int waiters_get_error_once(struct remo_node *node, void *ctx) {
    struct remo_queue *queue;
    uint64_t buffer[7];
    size_t size;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    if (open_queue(node, 0, 4, 0, &queue) != 0)
        return 1;
    if (rank == 3)
        for (;;)
            cluster_sleep_ms(1000);
    if (rank == 0) {
        cluster_sleep_ms(30);
        kill_now(3);
        while (atomic_load(&queue->departures) == 0) /* until the queue detects it */
            cluster_sleep_ms(1);
        CHECK_SENTENCE(push_number(queue, 1, SECOND), -EHOSTDOWN, "call again");
    } else {
        CHECK_SENTENCE(remo_queue_pop(queue, buffer, sizeof buffer, &size, 100 * SECOND), -EHOSTDOWN,
                       "call again");
        CHECK_OK(check_detection_time(node));
        CHECK_CODE(remo_queue_pop(queue, buffer, sizeof buffer, &size, MS), -ETIMEDOUT);
    }
    CHECK_OK(cluster_meet());
    for (uint32_t lap = 0; lap < 4; lap++) {
        for (uint64_t i = 0; rank == 1 && i < 3; i++)
            CHECK_OK(push_number(queue, i, 0));
        if (rank == 1)
            CHECK_CODE(push_number(queue, 3, 0), -ETIMEDOUT); /* 3 slots are left */
        CHECK_OK(cluster_meet());
        for (uint64_t i = 0; rank == 2 && i < 3; i++)
            CHECK_OK(pop_number(queue, i));
        CHECK_OK(cluster_meet());
    }
    remo_queue_close(queue);
    return 0;
}

static int home_killed(struct remo_node *node, void *ctx) {
    struct remo_queue *queue;
    uint64_t buffer[7];
    size_t size;
    (void)ctx;
    if (open_queue(node, 0, 4, 2, &queue) != 0)
        return 1;
    if (remo_node_rank(node) == 2)
        for (;;)
            cluster_sleep_ms(1000);
    if (remo_node_rank(node) == 0) {
        cluster_sleep_ms(30);
        kill_now(2);
        cluster_await_cut_off(node, 2);
    } else {
        CHECK_CODE(remo_queue_pop(queue, buffer, sizeof buffer, &size, 100 * SECOND), -EHOSTDOWN);
        CHECK_OK(check_detection_time(node));
    }
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_CODE(push_number(queue, 1, SECOND), -EHOSTDOWN);
        CHECK_CODE(remo_queue_pop(queue, buffer, sizeof buffer, &size, SECOND), -EHOSTDOWN);
    }
    CHECK_OK(cluster_meet());
    remo_queue_close(queue);
    return 0;
}

/* A participant closes the queue: this is reported once, as a failure is. Then the home closes it. */
static int participants_close(struct remo_node *node, void *ctx) {
    struct remo_queue *queue;
    uint64_t buffer[7];
    size_t size;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    if (open_queue(node, 0, 4, 0, &queue) != 0)
        return 1;
    if (rank == 2)
        remo_queue_close(queue);
    else
        CHECK_SENTENCE(remo_queue_pop(queue, buffer, sizeof buffer, &size, 100 * SECOND), -EHOSTDOWN,
                       "call again");
    CHECK_OK(cluster_meet());
    if (rank == 1) {
        CHECK_OK(push_number(queue, 1, 0));
        CHECK_OK(pop_number(queue, 1));
    }
    CHECK_OK(cluster_meet());
    if (rank == 0)
        remo_queue_close(queue);
    while (rank == 1 && atomic_load(&queue->departures) < 2) /* until the queue detects it */
        cluster_sleep_ms(1);
    if (rank == 1) {
        CHECK_CODE(push_number(queue, 1, 100 * SECOND), -EHOSTDOWN);
        CHECK_CODE(push_number(queue, 1, 100 * SECOND), -ENOTCONN);
        CHECK_CODE(remo_queue_pop(queue, buffer, sizeof buffer, &size, 100 * SECOND), -ENOTCONN);
        remo_queue_close(queue);
    }
    CHECK_OK(cluster_meet());
    return 0;
}

/* ---- invalid arguments ---- */

static int refusals(struct remo_node *node, void *ctx) {
    struct remo_queue *queue, *other;
    struct remo_channel *root = remo_node_root(node);
    struct remo_queue_options homeless = {.home = 7}, wide = {.slot_bytes = REMO_QUEUE_SLOT_BYTES_MAX + 1},
                              endless = {.capacity = 1ull << 40};
    size_t size;
    char byte = 0;
    (void)ctx;
    CHECK_SENTENCE(remo_queue_open(root, "bad", &homeless, &queue), -EINVAL, "node 7");
    CHECK_SENTENCE(remo_queue_open(root, "bad", &wide, &queue), -EINVAL, "slot_bytes");
    CHECK_SENTENCE(remo_queue_open(root, "bad", &endless, &queue), -EINVAL, "capacity");
    CHECK_SENTENCE(remo_queue_open(root, "", NULL, &queue), -EINVAL, "empty");
    CHECK_CODE(remo_queue_open(NULL, "a", NULL, &queue), -EINVAL);
    if (open_queue(node, 0, 0, 0, &queue) != 0)
        return 1;
    CHECK_CODE(remo_queue_push(queue, NULL, 1, 0), -EINVAL);
    CHECK_CODE(remo_queue_push(NULL, &byte, 1, 0), -EINVAL);
    CHECK_CODE(remo_queue_pop(queue, NULL, 56, &size, 0), -EINVAL);
    struct remo_queue_options differ = {.slot_bytes = 50 + remo_node_rank(node)};
    CHECK_OK(remo_queue_open(root, "wrong", &differ, &other));
    CHECK_SENTENCE(remo_channel_wait(remo_queue_channel(other), 100 * SECOND), -EPROTO, "wrong");
    CHECK_OK(cluster_meet());
    remo_queue_close(other);
    remo_queue_close(queue);
    remo_queue_close(NULL);
    return 0;
}

static void setup(void) {
    memset(shared, 0, sizeof *shared);
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(laps, 3),
        CLUSTER_TEST(all_sizes, 2),
        CLUSTER_TEST(each_once_in_order, 4),
        CLUSTER_TEST(blocked_calls_wake_up, 3),
        CLUSTER_TEST(timeouts, 2),
        CLUSTER_TEST(waiting_is_free, 2),
        CLUSTER_TEST(costs, 3),
        CLUSTER_TEST(killed_anywhere, 4),
        CLUSTER_TEST(waiters_get_error_once, 4),
        CLUSTER_TEST(home_killed, 3),
        CLUSTER_TEST(participants_close, 3),
        CLUSTER_TEST(refusals, 2),
        {0},
    };
    shared = cluster_shared(sizeof *shared);
    return cluster_main(argc, argv, tests, setup);
}
