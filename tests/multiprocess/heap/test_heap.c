/* test_heap.c - allocation: sizes, alignments, exhaustion, and frees by any thread.
 * Bad input and failures are in test_heap_failure.c, grace periods in test_heap_reclaim.c. */
#include "objects/heap/heap.h"
#include "heap_common.h"

#define CLASS_BYTES_MAX 32768u

/* ---- sizes ---- */

/* Fill a block with bytes computed from its address and size. */
static void fill(struct remo_heap *heap, struct remo_addr addr, uint64_t bytes) {
    memset(remo_heap_local(heap, addr), (int)((addr.word >> 4 ^ bytes) & 0xff), bytes);
}

static int check_filled(struct remo_heap *heap, struct remo_addr addr, uint64_t bytes) {
    const unsigned char *at = remo_heap_local(heap, addr);
    for (uint64_t i = 0; i < bytes; i++)
        CHECK(at[i] == ((addr.word >> 4 ^ bytes) & 0xff));
    return 0;
}

/* Allocate three blocks of a size, which must not overlap. The padding is limited. */
static int one_size(struct remo_heap *heap, uint64_t bytes, uint64_t alignment) {
    struct remo_addr addrs[3];
    uint64_t before = sizes_of(heap).live_bytes;
    for (int i = 0; i < 3; i++) {
        CHECK_OK(remo_heap_alloc(heap, bytes, alignment, &addrs[i]));
        CHECK_EQUAL(remo_addr_offset(addrs[i]) % (alignment ? alignment : 16), 0);
        CHECK(((uintptr_t)remo_heap_local(heap, addrs[i]) & ((alignment ? alignment : 16) - 1)) == 0);
        fill(heap, addrs[i], bytes);
    }
    uint64_t each = (sizes_of(heap).live_bytes - before) / 3;
    if (alignment == 0)
        CHECK(each >= bytes && (bytes <= 128 ? each < bytes + 16 : 8 * each <= 9 * bytes + 8 * 16));
    for (int i = 0; i < 3; i++)
        if (check_filled(heap, addrs[i], bytes) != 0)
            return 1;
    for (int i = 0; i < 3; i++)
        CHECK_OK(remo_heap_free(heap, addrs[i]));
    CHECK_EQUAL(sizes_of(heap).live_bytes, before);
    return 0;
}

static int all_sizes(struct remo_node *node, void *ctx) {
    struct remo_heap *heap;
    (void)ctx;
    if (open_heap(node, 0, &heap) != 0)
        return 1;
    for (uint64_t bytes = 1; bytes <= CLASS_BYTES_MAX + 5000; bytes += bytes < 300 ? 1 : bytes / 19)
        if (one_size(heap, bytes, 0) != 0)
            return 1;
    static const uint64_t large[] = {32769, 65536, 1000000, MIB, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 5 * MIB};
    for (size_t i = 0; i < sizeof large / sizeof large[0]; i++)
        if (one_size(heap, large[i], 0) != 0)
            return 1;
    for (uint64_t alignment = 1; alignment <= REMO_HEAP_ALIGNMENT_MAX; alignment *= 2)
        for (uint64_t bytes = 1; bytes <= MIB; bytes = 5 * bytes + 1)
            if (one_size(heap, bytes, alignment) != 0)
                return 1;
    CHECK_EQUAL(sizes_of(heap).live_bytes, 0);
    remo_heap_close(heap);
    return 0;
}

/* ---- exhaustion and recovery ---- */

struct list {
    struct remo_addr *addrs;
    uint64_t count, capacity;
};

/* Allocate blocks until there is no memory. */
static int exhaust(struct remo_heap *heap, uint64_t bytes, struct list *list) {
    int rc;
    list->count = 0;
    while (list->count < list->capacity
           && (rc = remo_heap_alloc(heap, bytes, 0, &list->addrs[list->count])) == 0)
        list->count++;
    CHECK(list->count < list->capacity);
    CHECK_EQUAL(-rc, ENOSPC);
    CHECK(strstr(remo_last_error(), "raise limit_bytes") != NULL);
    return 0;
}

static int free_all(struct remo_heap *heap, struct list *list) {
    for (uint64_t i = 0; i < list->count; i++)
        CHECK_OK(remo_heap_free(heap, list->addrs[i]));
    list->count = 0;
    return 0;
}

static int exhaustion(struct remo_node *node, void *ctx) {
    static const uint64_t bytes[] = {16, 48, 1000, 8192, 9000, 32768, 40000, 700000, 2 * MIB};
    struct list list = {.capacity = MIB};
    struct remo_heap *heap;
    (void)ctx;
    list.addrs = calloc(list.capacity, sizeof list.addrs[0]);
    CHECK(list.addrs != NULL);
    if (open_heap(node, 6 * MIB, &heap) != 0)
        return 1;
    for (size_t round = 0; round < 2; round++)
        for (size_t i = 0; i < sizeof bytes / sizeof bytes[0]; i++) {
            if (exhaust(heap, bytes[i], &list) != 0)
                return 1;
            CHECK(sizes_of(heap).live_bytes >= (bytes[i] < 700000 ? 9 : 6) * 6 * MIB / 10);
            CHECK_EQUAL(sizes_of(heap).reserved_bytes, 6 * MIB);
            for (uint64_t at = 7; at < list.count; at += list.count / 2 + 8) { /* each block is found again */
                struct remo_addr again;
                CHECK_OK(remo_heap_free(heap, list.addrs[at]));
                CHECK_OK(remo_heap_alloc(heap, bytes[i], 0, &again));
                CHECK_EQUAL(again.word, list.addrs[at].word);
            }
            if (free_all(heap, &list) != 0)
                return 1;
            CHECK_EQUAL(sizes_of(heap).live_bytes, 0);
        }
    remo_heap_close(heap);
    free(list.addrs);
    return 0;
}

/* A block is inside its chunk, although the free pages at the end of an earlier chunk nearly suffice. A block
 * of exactly these pages uses them. */
static int ends_of_chunks(struct remo_node *node, void *ctx) {
    struct remo_heap *heap;
    struct remo_addr first, next, last;
    const uint64_t rest = 15 * (uint64_t)HEAP_PAGE_BYTES; /* a run of pages, not a size class */
    (void)ctx;
    CHECK_OK(remo_heap_open(remo_node_root(node), "ends", NULL, &heap));
    CHECK_OK(remo_heap_alloc(heap, HEAP_CHUNK_BYTES - rest, 0, &first));
    CHECK_OK(remo_heap_alloc(heap, rest + HEAP_PAGE_BYTES, 0, &next));
    CHECK_OK(remo_heap_alloc(heap, rest, 0, &last));
    CHECK(remo_addr_offset(next) % HEAP_CHUNK_BYTES + rest + HEAP_PAGE_BYTES <= HEAP_CHUNK_BYTES);
    CHECK_EQUAL(remo_addr_offset(last), remo_addr_offset(first) + HEAP_CHUNK_BYTES - rest);
    remo_heap_close(heap);
    return 0;
}

/* The memory of a closed heap is used again. */
static int reopening(struct remo_node *node, void *ctx) {
    uint64_t first = 0;
    (void)ctx;
    for (int round = 0; round < 20; round++) {
        struct remo_heap *heap;
        struct remo_addr small, large;
        if (open_heap(node, 0, &heap) != 0)
            return 1;
        CHECK_OK(remo_heap_alloc(heap, 64, 0, &small));
        CHECK_OK(remo_heap_alloc(heap, 7 * MIB, 0, &large));
        CHECK_OK(remo_heap_retire(heap, small));
        CHECK(round == 0 || first == small.word + large.word);
        first = small.word + large.word;
        CHECK_OK(cluster_meet());
        remo_heap_close(heap);
        CHECK_OK(cluster_meet());
    }
    return 0;
}

/* ---- threads: each frees the blocks of another ---- */

#define THREADS 4u
#define EXCHANGED 20000u
#define RING 64u

/* Sizes of the blocks that threads exchange: of all kinds; and large blocks, whose slabs are often emptied
 * and initialised for another class. */
struct exchange_sizes {
    uint32_t count;
    uint64_t bytes[9];
};

static struct exchange_sizes sizes_of_all_kinds = {9, {16, 24, 64, 200, 1024, 5000, 8192, 20000, 50000}};
static struct exchange_sizes large_sizes = {4, {9000, 13000, 20000, 32768}};

struct exchange {
    struct remo_heap *heap;
    const struct exchange_sizes *sizes;
    _Atomic uint64_t ring[THREADS][RING]; /* addresses, from thread i to thread i + 1 */
    _Atomic uint32_t errors;
};

struct exchanger {
    struct exchange *exchange;
    uint32_t index;
};

static uint64_t bytes_of(const struct exchange *exchange, uint32_t number) {
    return exchange->sizes->bytes[number * 7 % exchange->sizes->count];
}

/* Put a new block into the ring of the next thread. Its first words are its size and address. */
static void produce(struct exchanger *me, uint32_t number) {
    struct exchange *x = me->exchange;
    struct remo_addr addr;
    uint64_t bytes = bytes_of(x, number);
    if (remo_heap_alloc(x->heap, bytes, 0, &addr) != 0) {
        atomic_fetch_add(&x->errors, 1);
        return;
    }
    uint64_t *words = remo_heap_local(x->heap, addr);
    words[0] = bytes;
    words[1] = addr.word;
    _Atomic uint64_t *slot = &x->ring[me->index][number % RING];
    while (atomic_load(slot) != 0)
        sched_yield();
    atomic_store(slot, addr.word);
}

static bool consume(struct exchanger *me, uint32_t number) {
    struct exchange *x = me->exchange;
    _Atomic uint64_t *slot = &x->ring[(me->index + THREADS - 1) % THREADS][number % RING];
    struct remo_addr addr = {atomic_exchange(slot, 0)};
    if (addr.word == 0)
        return false;
    const uint64_t *words = remo_heap_local(x->heap, addr);
    if (words[0] != bytes_of(x, number) || words[1] != addr.word)
        atomic_fetch_add(&x->errors, 1);
    if ((number % 5 == 0 ? remo_heap_retire(x->heap, addr) : remo_heap_free(x->heap, addr)) != 0)
        atomic_fetch_add(&x->errors, 1);
    return true;
}

static void *run_exchanger(void *ctx) {
    struct exchanger *me = ctx;
    uint32_t consumed = 0;
    for (uint32_t number = 0; number < EXCHANGED; number++) {
        while (number - consumed >= RING / 2) /* so no ring is full */
            if (consume(me, consumed))
                consumed++;
            else
                sched_yield();
        produce(me, number);
    }
    while (consumed < EXCHANGED)
        if (consume(me, consumed))
            consumed++;
        else
            sched_yield();
    return NULL;
}

static int threads(struct remo_node *node, void *ctx) {
    struct exchange *x = calloc(1, sizeof *x);
    struct exchanger exchangers[THREADS];
    pthread_t ids[THREADS];
    CHECK(x != NULL);
    x->sizes = ctx;
    if (open_heap(node, 0, &x->heap) != 0)
        return 1;
    for (uint32_t i = 0; i < THREADS; i++) {
        exchangers[i] = (struct exchanger){.exchange = x, .index = i};
        CHECK_OK(pthread_create(&ids[i], NULL, run_exchanger, &exchangers[i]));
    }
    for (uint32_t i = 0; i < THREADS; i++)
        CHECK_OK(pthread_join(ids[i], NULL));
    CHECK_EQUAL(atomic_load(&x->errors), 0);
    CHECK_OK(cluster_meet());
    CHECK_OK(remo_heap_reclaim(x->heap, 100 * SECOND));
    CHECK_EQUAL(sizes_of(x->heap).live_bytes + sizes_of(x->heap).retired_bytes, 0);
    CHECK_OK(cluster_meet());
    remo_heap_close(x->heap);
    free(x);
    return 0;
}

/* Many threads free the same blocks: each block is freed once. */
struct race {
    struct remo_heap *heap;
    struct remo_addr addrs[1000];
    _Atomic uint32_t freed, refused, others;
};

static void *run_race(void *ctx) {
    struct race *race = ctx;
    for (uint32_t i = 0; i < 1000; i++) {
        int rc =
            i % 3 ? remo_heap_free(race->heap, race->addrs[i]) : remo_heap_retire(race->heap, race->addrs[i]);
        atomic_fetch_add(rc == 0 ? &race->freed : rc == -EALREADY ? &race->refused : &race->others, 1);
    }
    return NULL;
}

static int double_frees(struct remo_node *node, void *ctx) {
    struct race *race = calloc(1, sizeof *race);
    struct remo_addr kept;
    pthread_t ids[THREADS];
    (void)ctx;
    CHECK(race != NULL);
    if (open_heap(node, 0, &race->heap) != 0)
        return 1;
    CHECK_OK(remo_heap_alloc(race->heap, 32, 0, &kept)); /* keeps the slab */
    for (uint32_t i = 0; i < 1000; i++)
        CHECK_OK(remo_heap_alloc(race->heap, 32, 0, &race->addrs[i]));
    for (uint32_t i = 0; i < THREADS; i++)
        CHECK_OK(pthread_create(&ids[i], NULL, run_race, race));
    for (uint32_t i = 0; i < THREADS; i++)
        CHECK_OK(pthread_join(ids[i], NULL));
    CHECK_EQUAL(atomic_load(&race->freed), 1000);
    CHECK_EQUAL(atomic_load(&race->refused), 1000 * (THREADS - 1));
    CHECK_EQUAL(sizes_of(race->heap).live_bytes, 32);
    remo_heap_close(race->heap);
    free(race);
    return 0;
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(all_sizes, 1),
        CLUSTER_TEST(ends_of_chunks, 1),
        CLUSTER_TEST(exhaustion, 1),
        CLUSTER_TEST(reopening, 2),
        CLUSTER_TEST(threads, 2, .ctx = &sizes_of_all_kinds),
        CLUSTER_TEST_NAMED("threads_large", threads, 2, .ctx = &large_sizes),
        CLUSTER_TEST(double_frees, 1),
        {0}};
    return heap_main(argc, argv, tests);
}
