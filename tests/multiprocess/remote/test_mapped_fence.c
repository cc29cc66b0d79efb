/* test_mapped_fence.c - the fences of mapped memory. Two threads each store a word, execute a fence, and load
 * the other's word: at least one of them reads the other's store. Each row has another call of the library as
 * the fence of the first thread; that of the second thread is an atomic, or is executed for both threads.
 * Without a fence, a store may remain in the store buffer during the load, and then both threads read old
 * words. */
#include <pthread.h>
#include <sched.h>

#include "../../support/cluster.h"
#include "objects/heap/heap.h"
#include "objects/region.h"
#include "remote/fence.h"

#define ROUNDS 4000u /* of each row */
#define ROUNDS_MIN 50u
#define ROW_NS (5 * SECOND) /* on a busy machine a row has fewer rounds, but ROUNDS_MIN at least */
#define END UINT64_MAX      /* instead of a round */
#define COLD 16u            /* stores in front of the first thread's store: they fill its store buffer */
#define LINE 64u
#define PAUSES 256u /* the second thread starts up to about 300 ns later */
#define SPINS 4096u /* before a thread leaves the processor to the other */

struct test {
    _Alignas(LINE) _Atomic uint64_t word; /* of the second thread */
    _Alignas(LINE) _Atomic uint64_t ready, go, done, judged;
    struct {
        _Alignas(LINE) _Atomic uint64_t word;
    } cold[COLD];
    const struct row *row;
    struct remo_node *node;
    struct remo_region *region;
    struct remo_heap *heap;
    const char *pin; /* of the first thread */
    bool has_read;   /* the first thread has read the store of the second */
    int rc;          /* of the calls of the first thread */
    cpu_set_t processors;
    uint64_t rounds; /* of this row */
    uint64_t wrong;  /* of them: rounds in which neither thread has read the other's store */
};

/* `first` and `second` store, execute a fence, load, and return whether they have read the other's store. */
struct row {
    const char *name;
    bool (*first)(struct test *test, uint64_t round);
    bool (*second)(struct test *test, uint64_t round);
    void (*end)(struct test *test); /* on the first thread, after the loads; may be NULL */
    int (*fence)(struct test *test);
};

/* ---- a write to a region, and a fence ---- */

static bool write_first(struct test *test, uint64_t round) {
    int rc = remo_region_write(test->region, 0, 0, &round, sizeof round, 0, NULL);
    int fence_rc = test->row->fence(test);
    bool has_read = atomic_load_explicit(&test->word, memory_order_relaxed) == round;
    test->rc |= rc | fence_rc;
    return has_read;
}

static bool write_second(struct test *test, uint64_t round) {
    atomic_exchange(&test->word, round);
    return remo__load(remo_region_local(test->region)) == round;
}

static int fence_thread(struct test *test) {
    return remo_fence(test->node, REMO_FENCE_THREAD, 0);
}

static int fence_retry(struct test *test) {
    return remo__fence_retry(remo__thread(test->node), REMO_FENCE_PAIR, 0, NULL);
}

static int fence_retry_peer(struct test *test) {
    return remo__fence_retry_peer(remo__thread(test->node), 0, SECOND, NULL);
}

static int fence_peer(struct test *test) {
    struct remo__thread *thread = remo__thread(test->node);
    return remo__fence_peer(thread, thread, 0);
}

static int fence_writer(struct test *test) {
    struct remo__thread *thread = remo__thread(test->node);
    return remo__fence_writer(thread, thread, 0);
}

static int fence_leave(struct test *test) {
    return remo__fence_leave(test->node);
}

/* ---- the wake-up of a sleeper ---- */

/* A waker that reads the sleeper's count notifies the doorbell. */
static bool wake_first(struct test *test, uint64_t round) {
    struct remo__doorbell *bell = test->node->doorbell;
    uint32_t before = atomic_load_explicit(&bell->seq, memory_order_relaxed);
    remo__store(remo_region_local(test->region), round);
    remo__wake(test->node);
    return atomic_load(&bell->seq) != before;
}

/* The writer executes no fence if the sleeper does so for both. */
static bool notify_first(struct test *test, uint64_t round) {
    struct remo__doorbell *bell = test->node->doorbell;
    uint32_t before = atomic_load_explicit(&bell->seq, memory_order_relaxed);
    test->rc |= remo_region_write(test->region, 0, 0, &round, sizeof round, REMO_WRITE_NOTIFY, NULL);
    return atomic_load(&bell->seq) != before;
}

static bool wake_second(struct test *test, uint64_t round) {
    remo__doorbell_add_sleeper(test->node->doorbell);
    return remo__load(remo_region_local(test->region)) == round;
}

static void wake_end(struct test *test) {
    atomic_fetch_sub(&test->node->doorbell->sleepers, 1);
}

/* ---- the pin of a heap ---- */

static bool pin_first(struct test *test, uint64_t round) {
    int rc = remo_heap_pin(test->heap);
    bool has_read = atomic_load_explicit(&test->word, memory_order_relaxed) == round;
    test->rc |= rc;
    return has_read;
}

/* A pin is odd while its thread has pinned the heap. */
static bool pin_second(struct test *test, uint64_t round) {
    atomic_exchange(&test->word, round);
    return remo__load(test->pin) % 2 == 1;
}

static void pin_end(struct test *test) {
    test->rc |= remo_heap_unpin(test->heap);
}

static const struct row rows[] = {
    {"remo_fence", write_first, write_second, NULL, fence_thread},
    {"remo__fence_retry", write_first, write_second, NULL, fence_retry},
    {"remo__fence_retry_peer", write_first, write_second, NULL, fence_retry_peer},
    {"remo__fence_peer", write_first, write_second, NULL, fence_peer},
    {"remo__fence_writer", write_first, write_second, NULL, fence_writer},
    {"remo__fence_leave", write_first, write_second, NULL, fence_leave},
    {"remo__wake", wake_first, wake_second, wake_end, NULL},
    {"REMO_WRITE_NOTIFY", notify_first, wake_second, wake_end, NULL},
    {"remo_heap_pin", pin_first, pin_second, pin_end, NULL},
};

/* ---- rounds ---- */

/* Bind the calling thread to the processor `number` of those that the process may use. Two threads that share
 * a processor read all stores of each other. */
static void bind(const struct test *test, uint32_t number) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (size_t i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &test->processors) && number-- == 0)
            CPU_SET(i, &set);
    (void)sched_setaffinity(0, sizeof set, &set);
}

/* Store to lines that the other thread has just written: each store waits for its line. */
static void store_cold(struct test *test, uint64_t value) {
    for (uint32_t i = 0; i < COLD; i++)
        atomic_store_explicit(&test->cold[i].word, value, memory_order_relaxed);
}

/* Wait for a value, or END. Returns false after END. */
static bool wait_until(_Atomic uint64_t *word, uint64_t value) {
    uint64_t now;
    for (uint32_t i = 0; (now = atomic_load(word)) != value && now != END; i++)
        if (i % SPINS == SPINS - 1)
            sched_yield();
    return now != END;
}

static void *run_second(void *ctx) {
    struct test *test = ctx;
    bind(test, 1);
    for (uint64_t round = 1; wait_until(&test->ready, round); round++) {
        store_cold(test, 0);
        atomic_store(&test->go, round);
        for (volatile uint64_t pause = round % PAUSES; pause > 0; pause--)
            continue;
        bool has_read = test->row->second(test, round);
        wait_until(&test->done, round);
        test->wrong += !has_read && !test->has_read;
        atomic_store(&test->judged, round);
    }
    return NULL;
}

static void run_first(struct test *test) {
    bind(test, 0);
    uint64_t end_ns = remo__deadline(ROW_NS);
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        if (round > ROUNDS_MIN && remo__remaining_ns(end_ns) == 0)
            break;
        test->rounds = round;
        atomic_store(&test->ready, round);
        wait_until(&test->go, round);
        store_cold(test, round);
        test->has_read = test->row->first(test, round);
        atomic_store(&test->done, round);
        wait_until(&test->judged, round);
        if (test->row->end)
            test->row->end(test);
    }
    atomic_store(&test->ready, END);
}

static int run_row(struct test *test, const struct row *row) {
    pthread_t thread;
    test->row = row;
    test->ready = test->go = test->done = test->judged = test->word = test->wrong = 0;
    remo__store(remo_region_local(test->region), 0);
    CHECK(pthread_create(&thread, NULL, run_second, test) == 0);
    run_first(test);
    pthread_join(thread, NULL);
    CHECK_OK(test->rc);
    if (test->wrong != 0)
        return cluster_fail(__FILE__, __LINE__, "%s: in %llu of %llu rounds neither read the other's store",
                            row->name, (unsigned long long)test->wrong, (unsigned long long)test->rounds);
    return 0;
}

static int fences(struct remo_node *node, void *ctx) {
    struct test *test = ctx;
    test->node = node;
    CHECK_OK(remo_region_open(remo_node_root(node), "word", LINE, NULL, &test->region));
    CHECK_OK(remo_heap_open(remo_node_root(node), "heap", NULL, &test->heap));
    test->pin = test->heap->region->memory->own + (uint64_t)remo__thread(node)->index * HEAP_PIN_BYTES;
    for (uint32_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (run_row(test, &rows[i]) != 0)
            return 1;
    remo_heap_close(test->heap);
    remo_region_close(test->region);
    return 0;
}

int main(int argc, char **argv) {
    static struct test test;
    const struct cluster_test tests[] = {CLUSTER_TEST(fences, 1, .ctx = &test), {0}};
    if (sched_getaffinity(0, sizeof test.processors, &test.processors) != 0
        || CPU_COUNT(&test.processors) < 2) {
        printf("skipped: the two threads need a processor each\n");
        return 77;
    }
    return cluster_main(argc, argv, tests, NULL);
}
