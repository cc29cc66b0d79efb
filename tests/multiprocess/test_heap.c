/* test_heap.c - the run-time allocator: sizes, alignments, bad input, exhaustion, frees by any thread. Also
 * grace periods, costs, and participants that are pinned, absent, or fail. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../support/cluster.h"

#define MIB (1ull << 20)
#define CLASS_BYTES_MAX 32768u

static struct shared {
    struct remo_addr addr;
    _Atomic uint32_t step;
} * shared;

static int open_heap(struct remo_node *node, uint64_t limit_bytes, struct remo_heap **ret_heap) {
    struct remo_heap_options options = {.limit_bytes = limit_bytes};
    CHECK_OK(remo_heap_open(remo_node_root(node), "heap", &options, ret_heap));
    CHECK_OK(remo_channel_wait(remo_heap_channel(*ret_heap), 100 * SECOND));
    return 0;
}

static struct remo_heap_sizes sizes_of(struct remo_heap *heap) {
    struct remo_heap_sizes sizes;
    remo_heap_stats(heap, &sizes);
    return sizes;
}

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

/* ---- bad input: a code and a sentence, and no block is lost ---- */

static int wrong_addresses(struct remo_heap *heap, uint32_t rank, struct remo_addr good) {
    uint64_t offset = remo_addr_offset(good);
    uint32_t incarnation = remo_addr_incarnation(good);
    struct remo_addr null = {0};
    CHECK_SENTENCE(remo_heap_free(heap, null), -EFAULT, "null");
    CHECK_SENTENCE(remo_heap_free(heap, remo_addr_make(rank + 1, incarnation, offset)), -EINVAL,
                   "free it at its own node");
    CHECK_SENTENCE(remo_heap_free(heap, remo_addr_make(rank, incarnation + 1, offset)), -ESTALE, "stale");
    CHECK_SENTENCE(remo_heap_free(heap, remo_addr_make(rank, incarnation, offset + 1)), -EINVAL,
                   "blocks of 112 bytes begin at");
    CHECK_CODE(remo_heap_free(heap, remo_addr_make(rank, incarnation, offset + 16)), -EINVAL);
    CHECK_CODE(remo_heap_retire(heap, remo_addr_make(rank, incarnation, offset + 100)), -EINVAL);
    CHECK_SENTENCE(remo_heap_free(heap, remo_addr_make(rank, incarnation, 64)), -EFAULT, "another object");
    CHECK_CODE(remo_heap_free(heap, remo_addr_make(rank, incarnation, (1ull << 44) - 16)), -EFAULT);
    CHECK(remo_heap_local(heap, null) == NULL && remo_heap_local(NULL, good) == NULL);
    CHECK(remo_heap_local(heap, remo_addr_make(rank + 1, incarnation, offset)) == NULL);
    return 0;
}

static int bad_input(struct remo_node *node, void *ctx) {
    struct remo_heap *heap;
    struct remo_addr good, other, last;
    (void)ctx;
    if (open_heap(node, 0, &heap) != 0)
        return 1;
    CHECK_SENTENCE(remo_heap_alloc(heap, 0, 0, &good), -EINVAL, "0 bytes");
    CHECK_SENTENCE(remo_heap_alloc(heap, 8, 24, &good), -EINVAL, "alignment of 24");
    CHECK_SENTENCE(remo_heap_alloc(heap, 8, 2 * REMO_HEAP_ALIGNMENT_MAX, &good), -EINVAL, "4096");
    CHECK_CODE(remo_heap_alloc(heap, UINT64_MAX, 0, &good), -ENOSPC);
    CHECK_CODE(remo_heap_alloc(heap, 1ull << 50, 0, &good), -ENOSPC);
    CHECK_SENTENCE(remo_heap_unpin(heap), -EINVAL, "has not pinned");
    CHECK_OK(remo_heap_alloc(heap, 100, 0, &good));
    CHECK_OK(remo_heap_alloc(heap, 100, 0, &other));
    if (wrong_addresses(heap, remo_node_rank(node), good) != 0)
        return 1;
    CHECK_EQUAL(sizes_of(heap).live_bytes, 224);
    CHECK_OK(remo_heap_free(heap, good));
    CHECK_SENTENCE(remo_heap_free(heap, good), -EALREADY, "free already");
    CHECK_CODE(remo_heap_retire(heap, good), -EALREADY);
    CHECK_OK(remo_heap_retire(heap, other));
    CHECK_SENTENCE(remo_heap_retire(heap, other), -EALREADY, "retired already");
    CHECK_CODE(remo_heap_free(heap, other), -EALREADY);
    CHECK_EQUAL(sizes_of(heap).retired_bytes, 112);
    CHECK_OK(remo_heap_reclaim(heap, 0));
    CHECK_CODE(remo_heap_free(heap, other), -EALREADY);
    CHECK_EQUAL(sizes_of(heap).retired_bytes + sizes_of(heap).live_bytes, 0);
    CHECK_OK(remo_heap_alloc(heap, 3 * MIB, 0, &last));
    CHECK_CODE(remo_heap_free(heap, (struct remo_addr){last.word + 2 * MIB}), -EINVAL);
    CHECK_OK(remo_heap_free(heap, last));
    CHECK_CODE(remo_heap_free(heap, last), -EFAULT);
    remo_heap_close(heap);
    remo_heap_close(NULL);
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

struct exchange {
    struct remo_heap *heap;
    _Atomic uint64_t ring[THREADS][RING]; /* addresses, from thread i to thread i + 1 */
    _Atomic uint32_t errors;
};

struct exchanger {
    struct exchange *exchange;
    uint32_t index;
};

static uint64_t bytes_of(uint32_t number) {
    static const uint64_t bytes[] = {16, 24, 64, 200, 1024, 5000, 8192, 20000, 50000};
    return bytes[number * 7 % (sizeof bytes / sizeof bytes[0])];
}

/* Put a new block into the ring of the next thread. Its first words are its size and address. */
static void produce(struct exchanger *me, uint32_t number) {
    struct exchange *x = me->exchange;
    struct remo_addr addr;
    uint64_t bytes = bytes_of(number);
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
    if (words[0] != bytes_of(number) || words[1] != addr.word)
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
    (void)ctx;
    CHECK(x != NULL);
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

/* ---- peers ---- */

static int access(struct remo_node *node, void *ctx) {
    struct remo_heap *heap;
    uint32_t rank = remo_node_rank(node), size = remo_node_size(node);
    uint64_t words[4] = {1, 2, 3, rank}, found[4];
    struct remo_addr addr;
    (void)ctx;
    if (open_heap(node, 0, &heap) != 0)
        return 1;
    struct remo_channel *channel = remo_heap_channel(heap);
    CHECK_COST(channel, CHECK_OK(remo_heap_alloc(heap, 32, 0, &addr)), 0, 0, 0, 0);
    if (rank == 0)
        shared->addr = addr;
    CHECK_OK(cluster_meet());
    if (rank == 1)
        CHECK_OK(remo_write(node, shared->addr, words, sizeof words, NULL));
    CHECK_OK(remo_fence(node, REMO_FENCE_THREAD, 0));
    CHECK_OK(cluster_meet());
    CHECK_COST(channel, CHECK_OK(remo_heap_pin(heap)), 0, 0, 0, 0);
    CHECK_OK(remo_heap_pin(heap));
    CHECK_OK(remo_read(node, shared->addr, found, sizeof found, NULL));
    CHECK(found[0] == 1 && found[3] == 1);
    CHECK_OK(remo_heap_unpin(heap));
    CHECK_COST(channel, CHECK_OK(remo_heap_unpin(heap)), 0, 0, 0, 0);
    CHECK_CODE(remo_heap_unpin(heap), -EINVAL);
    CHECK_OK(cluster_meet());
    if (rank == 1)
        CHECK_SENTENCE(remo_heap_free(heap, shared->addr), -EINVAL, "node 1 cannot free a block of node 0");
    CHECK_COST(channel, CHECK_OK(remo_heap_retire(heap, addr)), 0, 0, 0, 0);
    CHECK_COST(channel, CHECK_OK(remo_heap_reclaim(heap, 0)), size - 1, 0, 0, 0);
    CHECK_COST(channel, CHECK_OK(remo_heap_reclaim(heap, 0)), 0, 0, 0, 0);
    CHECK_EQUAL(sizes_of(heap).retired_bytes, 0);
    CHECK_OK(cluster_meet());
    remo_heap_close(heap);
    return 0;
}

/* Node 1 pins; node 0 retires a block, which is not reused until node 1 unpins. Later pins do not delay. */
static int grace(struct remo_node *node, void *ctx) {
    struct remo_heap *heap;
    struct remo_addr addr, next;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    if (open_heap(node, 0, &heap) != 0)
        return 1;
    if (rank == 1)
        CHECK_OK(remo_heap_pin(heap));
    CHECK_OK(remo_heap_alloc(heap, 8192, 0, &addr));
    CHECK_OK(cluster_meet());
    if (rank == 0) {
        CHECK_OK(remo_heap_retire(heap, addr));
        CHECK_SENTENCE(remo_heap_reclaim(heap, 0), -ETIMEDOUT, "node 1 is still pinned");
        CHECK_SENTENCE(remo_heap_reclaim(heap, SECOND / 20), -ETIMEDOUT, "node 1 is still pinned");
        for (int i = 0; i < 100; i++) {
            CHECK_OK(remo_heap_alloc(heap, 8192, 0, &next));
            CHECK(next.word != addr.word);
        }
        CHECK_EQUAL(sizes_of(heap).retired_bytes, 8192);
    }
    CHECK_OK(cluster_meet());
    if (rank == 1) {
        CHECK_OK(remo_heap_unpin(heap));
        CHECK_OK(remo_heap_pin(heap));
    }
    CHECK_OK(cluster_meet());
    if (rank == 0) {
        CHECK_OK(remo_heap_reclaim(heap, 0));
        CHECK_EQUAL(sizes_of(heap).retired_bytes, 0);
        CHECK_CODE(remo_heap_retire(heap, addr), -EALREADY);
    }
    CHECK_OK(cluster_meet());
    if (rank == 1)
        CHECK_OK(remo_heap_unpin(heap));
    CHECK_OK(cluster_meet());
    remo_heap_close(heap);
    return 0;
}

static void *run_unpin(void *ctx) {
    struct remo_heap *heap = ctx;
    if (remo_heap_pin(heap) != 0)
        return heap;
    atomic_store(&shared->step, 1);
    while (atomic_load(&shared->step) != 2)
        sched_yield();
    return remo_heap_unpin(heap) == 0 ? NULL : heap;
}

/* A pin of another thread of the owner delays too; reclaim waits for its unpin. */
static int own_pin(struct remo_node *node, void *ctx) {
    struct remo_heap *heap;
    struct remo_addr addr;
    pthread_t id;
    void *failed;
    (void)ctx;
    if (open_heap(node, 0, &heap) != 0)
        return 1;
    CHECK_OK(remo_heap_alloc(heap, 64, 0, &addr));
    CHECK_OK(pthread_create(&id, NULL, run_unpin, heap));
    while (atomic_load(&shared->step) != 1)
        sched_yield();
    CHECK_OK(remo_heap_retire(heap, addr));
    CHECK_SENTENCE(remo_heap_reclaim(heap, 0), -ETIMEDOUT, "node 0 is still pinned");
    atomic_store(&shared->step, 2);
    CHECK_OK(remo_heap_reclaim(heap, 100 * SECOND));
    CHECK_EQUAL(sizes_of(heap).retired_bytes, 0);
    CHECK_OK(pthread_join(id, &failed));
    CHECK(failed == NULL);
    remo_heap_close(heap);
    return 0;
}

/* Retired blocks are reused without a call of reclaim. */
static int automatic(struct remo_node *node, void *ctx) {
    struct remo_heap *heap;
    struct remo_addr addr;
    (void)ctx;
    if (open_heap(node, 4 * MIB, &heap) != 0)
        return 1;
    for (uint32_t i = 0; i < 20000; i++) {
        CHECK_OK(remo_heap_alloc(heap, 4096, 0, &addr));
        CHECK_OK(remo_heap_retire(heap, addr));
    }
    CHECK_OK(cluster_meet());
    remo_heap_close(heap);
    return 0;
}

/* ---- participants that are absent, leave or fail ---- */

static int absent(struct remo_node *node, void *ctx) {
    struct remo_heap *heap;
    struct remo_addr addr;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    if (rank == 1)
        CHECK_OK(cluster_meet());
    CHECK_OK(remo_heap_open(remo_node_root(node), "heap", NULL, &heap));
    if (rank == 0) {
        CHECK_OK(remo_heap_alloc(heap, 64, 0, &addr));
        CHECK_OK(remo_heap_retire(heap, addr));
        CHECK_SENTENCE(remo_heap_reclaim(heap, 0), -ETIMEDOUT, "node 1 has not opened the heap");
        CHECK_OK(cluster_meet());
        CHECK_OK(remo_channel_wait(remo_heap_channel(heap), 100 * SECOND));
        CHECK_OK(remo_heap_reclaim(heap, 0));
        CHECK_OK(remo_heap_alloc(heap, 64, 0, &addr));
    }
    CHECK_OK(cluster_meet());
    if (rank == 1)
        remo_heap_close(heap);
    CHECK_OK(cluster_meet());
    if (rank == 0) {
        CHECK_OK(remo_heap_retire(heap, addr));
        CHECK_OK(remo_heap_reclaim(heap, 100 * SECOND)); /* node 1 has left */
        remo_heap_close(heap);
    }
    return 0;
}

/* Node 1 is killed while it is pinned. */
static int failing(struct remo_node *node, void *ctx) {
    struct remo_heap *heap;
    struct remo_addr addr;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    if (open_heap(node, 0, &heap) != 0)
        return 1;
    if (rank == 1)
        CHECK_OK(remo_heap_pin(heap));
    CHECK_OK(remo_heap_alloc(heap, 64, 0, &addr));
    CHECK_OK(cluster_meet());
    if (rank != 1) {
        CHECK_OK(remo_heap_retire(heap, addr));
        CHECK_CODE(remo_heap_reclaim(heap, 0), -ETIMEDOUT);
    }
    CHECK_OK(cluster_meet());
    if (rank == 1) {
        cluster_sleep_ms(60000);
        return 1;
    }
    if (rank == 0)
        CHECK_OK(cluster_kill(1));
    CHECK_OK(remo_heap_reclaim(heap, 100 * SECOND));
    CHECK_EQUAL(sizes_of(heap).retired_bytes, 0);
    CHECK_OK(cluster_meet());
    remo_heap_close(heap);
    return 0;
}

/* The memory of a heap that is closed while a peer is pinned stays allocated. */
static int close_pinned(struct remo_node *node, void *ctx) {
    struct remo_heap *heap;
    struct remo_addr addr;
    uint32_t rank = remo_node_rank(node);
    uint64_t word = 0;
    (void)ctx;
    if (open_heap(node, 0, &heap) != 0)
        return 1;
    CHECK_OK(remo_heap_alloc(heap, 64, 0, &addr));
    *(uint64_t *)remo_heap_local(heap, addr) = 77;
    if (rank == 1)
        CHECK_OK(remo_heap_pin(heap));
    else
        shared->addr = addr;
    CHECK_OK(cluster_meet());
    if (rank == 0) {
        remo_heap_close(heap);
        CHECK_OK(remo_heap_open(remo_node_root(node), "second", NULL, &heap));
        struct remo_addr next;
        CHECK_OK(remo_heap_alloc(heap, 64, 0, &next));
        CHECK(next.word != addr.word);
        memset(remo_heap_local(heap, next), 0, 64);
    }
    CHECK_OK(cluster_meet());
    if (rank == 1) {
        CHECK_OK(remo_read(node, shared->addr, &word, sizeof word, NULL));
        CHECK_EQUAL(word, 77);
        CHECK_OK(remo_heap_unpin(heap));
    }
    CHECK_OK(cluster_meet());
    remo_heap_close(heap);
    return 0;
}

static void setup(void) {
    memset(shared, 0, sizeof *shared);
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(all_sizes, 1),
        CLUSTER_TEST(bad_input, 1),
        CLUSTER_TEST(exhaustion, 1),
        CLUSTER_TEST(reopening, 2),
        CLUSTER_TEST(threads, 2),
        CLUSTER_TEST(double_frees, 1),
        CLUSTER_TEST(access, 3),
        CLUSTER_TEST_NAMED("access_threads", access, 3, .as_threads = 1),
        CLUSTER_TEST(grace, 2),
        CLUSTER_TEST(own_pin, 1),
        CLUSTER_TEST(automatic, 2),
        CLUSTER_TEST(absent, 2),
        CLUSTER_TEST(failing, 3),
        CLUSTER_TEST(close_pinned, 2, .op_timeout_ns = SECOND / 2),
        {0}};
    shared = cluster_shared(sizeof *shared);
    return cluster_main(argc, argv, tests, setup);
}
