/* limit.c - measures the limits of limit.h: copies, atomics, ping-pong, barrier, ring, transfers.
 * Every figure is a median over batches; the two sides of a pair never share a pair of cache
 * lines. */
#include "limit.h"

#include "base/clock.h"
#include "base/random.h"
#include "base/relax.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* long compared with a clock read (40 ns), short compared with a time slice (ms) */
#define BATCH_NS 20000.0
#define BUDGET_NS 15000000      /* per limit; enough for several hundred batches */
#define CONTENTION_NS 100000000 /* to wait for batches in which the other side works */
#define WARM_UP_NS 120000000    /* until the page tables of a large mapping are cached */
#define BATCHES_MAX 1000
#define BATCHES_MIN 5 /* of slow operations, even past the budget */
#define SPINS_BEFORE_YIELD 2000
#define LINE_BYTES 64
#define RING_SLOTS 1024  /* the whole ring fits the second-level cache */
#define RING_BATCH 16    /* messages per store of an index; fewer are slower, more are no faster */
#define PIECE_BYTES 2048 /* above this size glibc uses `rep movsb`, which is slow to start */
/* Distance between data written by different threads: processors prefetch lines in pairs. */
#define SEPARATION_BYTES 128

struct pair;

/* The input of a batch; each kind of work uses the members that it needs. */
struct work {
    _Alignas(SEPARATION_BYTES) void (*run)(struct work *work, uint64_t operations);
    const char *source;
    size_t source_bytes;
    size_t size_bytes, piece_bytes; /* piece_bytes: limit of one memcpy */
    char *destination;
    _Atomic uint64_t *word;
    volatile uint64_t *guarded; /* by the lock in `word`; may be NULL */
    uint64_t *accounts;
    size_t accounts_count;
    struct remo__random random;
    unsigned spins_before_yield; /* in waits for another thread */
    struct pair *pair;           /* of the ping-pong or the barrier */
    _Atomic uint64_t *peer_word;
    uint64_t round;
    uint64_t seen;                  /* of the ring: the index of the other side, when last read */
    uint64_t wrong_count;           /* of the ring: messages with another number than expected */
    _Atomic uint64_t *rival_rounds; /* batches of the contending side; may be NULL */
};

static inline void forget_memory(void) {
    __asm__ volatile("" ::: "memory");
}

/* On one processor, the other thread runs only when this one yields. */
static inline void pause_in_spin(unsigned spins, unsigned spins_before_yield) {
    if (spins % spins_before_yield == 0)
        sched_yield();
    else
        remo__relax();
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Return whether the other side has worked since the last call, if the work contends with it.
 * Otherwise a batch would count as contended while the system runs another program on the other
 * side's processor. */
static int was_contended(struct work *work) {
    if (!work->rival_rounds)
        return 1;
    uint64_t before = work->round;
    work->round = atomic_load_explicit(work->rival_rounds, memory_order_relaxed);
    return work->round != before;
}

static double timed_batch(struct work *work, uint64_t operations) {
    uint64_t start_ns = remo__now_ns();
    work->run(work, operations);
    return (double)(remo__now_ns() - start_ns);
}

/* Return the median time of one operation over the batches. */
static double measure(struct work *work) {
    static const uint64_t operations_max = 1ull << 24;
    double samples[BATCHES_MAX];
    uint64_t operations = 1;
    /* Twice: an interruption may make one batch seem long enough. */
    while ((timed_batch(work, operations) < BATCH_NS || timed_batch(work, operations) < BATCH_NS)
           && operations < operations_max)
        operations *= 2;
    uint64_t deadline = remo__deadline(BUDGET_NS), contention_deadline_ns = remo__now_ns() + CONTENTION_NS;
    size_t count = 0;
    do {
        samples[count] = timed_batch(work, operations) / (double)operations;
        count += was_contended(work) || remo__now_ns() > contention_deadline_ns;
    } while (count < BATCHES_MAX && (count < BATCHES_MIN || remo__remaining_ns(deadline) > 0));
    qsort(samples, count, sizeof *samples, compare_doubles);
    return samples[count / 2];
}

/* ---- copies ---- */

static void run_load(struct work *work, uint64_t operations) {
    const volatile uint64_t *source = (const volatile uint64_t *)work->source;
    for (uint64_t i = 0; i < operations; i++) {
        uint64_t value = *source;
        __asm__ volatile("" : : "r"(value));
    }
}

static inline void copy(char *to, const char *from, size_t size_bytes, size_t piece_bytes) {
    for (; size_bytes > piece_bytes; size_bytes -= piece_bytes) {
        memcpy(to, from, piece_bytes);
        to += piece_bytes;
        from += piece_bytes;
    }
    memcpy(to, from, size_bytes);
    forget_memory();
}

static void run_memcpy(struct work *work, uint64_t operations) {
    char *destination = work->destination;
    const char *source = work->source;
    size_t size_bytes = work->size_bytes, piece_bytes = work->piece_bytes;
    for (uint64_t i = 0; i < operations; i++)
        copy(destination, source, size_bytes, piece_bytes);
}

static void run_memcpy_random(struct work *work, uint64_t operations) {
    size_t size_bytes = work->size_bytes, piece_bytes = work->piece_bytes;
    size_t step = size_bytes < LINE_BYTES ? size_bytes : LINE_BYTES;
    uint64_t places = (work->source_bytes - size_bytes) / step + 1;
    char *destination = work->destination;
    const char *source = work->source;
    for (uint64_t i = 0; i < operations; i++)
        copy(destination, source + remo__random_below(&work->random, places) * step, size_bytes, piece_bytes);
}

/* Copy in one memcpy or in pieces, whichever is faster. */
static double measure_copy(void (*run)(struct work *, uint64_t), const void *mapping, size_t mapping_bytes,
                           size_t size_bytes) {
    if (size_bytes == 0 || size_bytes > mapping_bytes)
        return 0;
    char *destination = aligned_alloc(LINE_BYTES, (size_bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES);
    if (!destination)
        return 0;
    memset(destination, 0, size_bytes);
    struct work work = {.run = run,
                        .source = mapping,
                        .source_bytes = mapping_bytes,
                        .size_bytes = size_bytes,
                        .piece_bytes = size_bytes,
                        .destination = destination};
    remo__random_seed(&work.random, 1);
    double ns = measure(&work);
    if (size_bytes > PIECE_BYTES) {
        work.piece_bytes = PIECE_BYTES;
        double pieces_ns = measure(&work);
        ns = pieces_ns < ns ? pieces_ns : ns;
    }
    free(destination);
    return ns;
}

double limit_load_ns(const void *mapping) {
    struct work work = {.run = run_load, .source = mapping};
    return measure(&work);
}

double limit_memcpy_ns(const void *mapping, size_t mapping_bytes, size_t size_bytes) {
    return measure_copy(run_memcpy, mapping, mapping_bytes, size_bytes);
}

double limit_memcpy_random_ns(const void *mapping, size_t mapping_bytes, size_t size_bytes) {
    return measure_copy(run_memcpy_random, mapping, mapping_bytes, size_bytes);
}

/* ---- one word ---- */

static void run_fetch_add(struct work *work, uint64_t operations) {
    for (uint64_t i = 0; i < operations; i++)
        atomic_fetch_add(work->word, 1);
}

static void run_compare_swap(struct work *work, uint64_t operations) {
    uint64_t expected = atomic_load(work->word);
    for (uint64_t i = 0; i < operations; i++)
        if (atomic_compare_exchange_strong(work->word, &expected, expected + 1))
            expected++;
}

static void run_store_fence(struct work *work, uint64_t operations) {
    for (uint64_t i = 0; i < operations; i++) {
        atomic_store_explicit(work->word, i, memory_order_relaxed);
        atomic_thread_fence(memory_order_seq_cst);
    }
}

static void run_lock(struct work *work, uint64_t operations) {
    _Atomic uint64_t *lock = work->word;
    for (uint64_t i = 0; i < operations; i++) {
        unsigned spins = 0;
        uint64_t expected = 0;
        while (!atomic_compare_exchange_strong_explicit(lock, &expected, 1, memory_order_acquire,
                                                        memory_order_relaxed)) {
            while (atomic_load_explicit(lock, memory_order_relaxed) != 0)
                pause_in_spin(++spins, work->spins_before_yield);
            expected = 0;
        }
        if (work->guarded)
            *work->guarded += 1;
        atomic_store_explicit(lock, 0, memory_order_release);
    }
}

static double measure_word(void (*run)(struct work *, uint64_t), void *line) {
    struct work work = {.run = run, .word = line};
    atomic_store(work.word, 0);
    return measure(&work);
}

double limit_fetch_add_ns(void *line) {
    return measure_word(run_fetch_add, line);
}

double limit_compare_swap_ns(void *line) {
    return measure_word(run_compare_swap, line);
}

double limit_store_fence_ns(void *line) {
    return measure_word(run_store_fence, line);
}

double limit_lock_ns(void *line) {
    return measure_word(run_lock, line);
}

/* ---- two threads ---- */

/* The first side measures; the second side responds until `stop` is set.
 *
 * Invariant: each side writes its own `work` in every round, and both read `stop` in every spin, so none of
 * these shares a line, or a pair of lines, with another one. Without the separation, the writes of one side
 * invalidate the line that the other side polls, and the result measures this layout. */
struct pair {
    struct work work[2];
    _Alignas(SEPARATION_BYTES) _Atomic int stop;
    _Alignas(SEPARATION_BYTES) _Atomic uint64_t rounds; /* of contention by the second side */
    _Alignas(SEPARATION_BYTES) void (*company)(struct pair *pair);
    double result_ns;
    _Atomic int running; /* the second side has started */
};

_Static_assert(sizeof(struct work) % SEPARATION_BYTES == 0 && _Alignof(struct pair) >= SEPARATION_BYTES,
               "the works of two sides are separated");
_Static_assert(offsetof(struct pair, stop) - offsetof(struct pair, work[1]) >= SEPARATION_BYTES
                   && offsetof(struct pair, stop) % SEPARATION_BYTES == 0,
               "the flag that both sides poll is separated from the works");
_Static_assert(offsetof(struct pair, rounds) - offsetof(struct pair, stop) >= SEPARATION_BYTES
                   && offsetof(struct pair, company) - offsetof(struct pair, rounds) >= SEPARATION_BYTES,
               "the flag that both sides poll, and the counter that one side writes, have their own lines");

static int stopped(struct pair *pair) {
    return atomic_load_explicit(&pair->stop, memory_order_relaxed);
}

static void *first_side(void *argument) {
    struct pair *pair = argument;
    unsigned spins = 0;
    while (!atomic_load(&pair->running))
        pause_in_spin(++spins, pair->work[0].spins_before_yield);
    pair->result_ns = measure(&pair->work[0]);
    atomic_store(&pair->stop, 1);
    return NULL;
}

static void *second_side(void *argument) {
    struct pair *pair = argument;
    atomic_store(&pair->running, 1);
    pair->company(pair);
    return NULL;
}

static int start_on_cpu(int cpu, void *(*body)(void *), struct pair *pair, pthread_t *ret_thread) {
    pthread_attr_t attributes;
    cpu_set_t set;
    if (cpu < 0 || cpu >= CPU_SETSIZE)
        return -EINVAL;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    int rc = pthread_attr_init(&attributes);
    if (rc)
        return -rc;
    rc = pthread_attr_setaffinity_np(&attributes, sizeof set, &set);
    if (!rc)
        rc = pthread_create(ret_thread, &attributes, body, pair);
    pthread_attr_destroy(&attributes);
    return -rc;
}

static double measure_pair(struct pair *pair, int cpu_a, int cpu_b) {
    pthread_t first, second;
    for (int side = 0; side < 2; side++)
        pair->work[side].spins_before_yield = cpu_a == cpu_b ? 1 : SPINS_BEFORE_YIELD;
    if (start_on_cpu(cpu_b, second_side, pair, &second))
        return 0;
    if (start_on_cpu(cpu_a, first_side, pair, &first))
        atomic_store(&pair->stop, 1);
    else
        pthread_join(first, NULL);
    pthread_join(second, NULL);
    return pair->result_ns;
}

static void contend(struct pair *pair) {
    struct work *work = &pair->work[1];
    while (!stopped(pair)) {
        work->run(work, 16);
        atomic_fetch_add_explicit(&pair->rounds, 1, memory_order_relaxed);
        if (work->spins_before_yield == 1)
            sched_yield();
    }
}

static double measure_contended(const struct work *work, int cpu_a, int cpu_b) {
    struct pair pair = {.work = {*work, *work}, .company = contend};
    atomic_store(work->word, 0);
    if (cpu_a != cpu_b) /* on one processor, a side works only when the other one yields */
        pair.work[0].rival_rounds = &pair.rounds;
    return measure_pair(&pair, cpu_a, cpu_b);
}

double limit_fetch_add_contended_ns(void *line, int cpu_a, int cpu_b) {
    struct work work = {.run = run_fetch_add, .word = line};
    return measure_contended(&work, cpu_a, cpu_b);
}

double limit_lock_contended_ns(void *line, int cpu_a, int cpu_b) {
    struct work work = {.run = run_lock, .word = line, .guarded = (uint64_t *)((char *)line + LINE_BYTES)};
    return measure_contended(&work, cpu_a, cpu_b);
}

/* Wait until the other side has reached `round`. Returns 0, or 1 if `stop` is set. */
static int await_round(struct work *work, uint64_t round) {
    unsigned spins = 0;
    while (atomic_load_explicit(work->peer_word, memory_order_acquire) < round) {
        if (stopped(work->pair))
            return 1;
        pause_in_spin(++spins, work->spins_before_yield);
    }
    return 0;
}

/* Over one line both sides write the same word in turn: the first odd values, the second even ones.
 * Over two lines each side has its own word. A side reads `peer_word`. */
static void run_pingpong(struct work *work, uint64_t operations) {
    for (uint64_t i = 0; i < operations; i++) {
        work->round += 2;
        atomic_store_explicit(work->word, work->round - 1, memory_order_release);
        await_round(work, work->round);
    }
}

static void answer_pingpong(struct pair *pair) {
    struct work *work = &pair->work[1];
    for (work->round = 1; !await_round(work, work->round); work->round += 2)
        atomic_store_explicit(work->word, work->round + 1, memory_order_release);
}

double limit_pingpong_ns(void *line, int cpu_a, int cpu_b, int lines_count) {
    _Atomic uint64_t *word_a = line;
    _Atomic uint64_t *word_b = lines_count < 2 ? word_a : (void *)((char *)line + 2 * LINE_BYTES);
    struct pair pair = {.company = answer_pingpong};
    pair.work[0] = (struct work){.run = run_pingpong, .pair = &pair, .word = word_a, .peer_word = word_b};
    pair.work[1] = (struct work){.pair = &pair, .word = word_b, .peer_word = word_a};
    atomic_store(word_a, 0);
    atomic_store(word_b, 0);
    return measure_pair(&pair, cpu_a, cpu_b);
}

static int pass_barrier(struct work *work) {
    work->round++;
    atomic_store_explicit(work->word, work->round, memory_order_release);
    return await_round(work, work->round);
}

static void run_barrier(struct work *work, uint64_t operations) {
    for (uint64_t i = 0; i < operations; i++)
        pass_barrier(work);
}

static void join_barriers(struct pair *pair) {
    while (!pass_barrier(&pair->work[1]))
        continue;
}

double limit_barrier_ns(void *line, int cpu_a, int cpu_b) {
    /* Two lines apart, to avoid coupling by the adjacent-line prefetcher. */
    _Atomic uint64_t *word_a = line;
    _Atomic uint64_t *word_b = (void *)((char *)line + 2 * LINE_BYTES);
    struct pair pair = {.company = join_barriers};
    pair.work[0] = (struct work){.run = run_barrier, .pair = &pair, .word = word_a, .peer_word = word_b};
    pair.work[1] = (struct work){.pair = &pair, .word = word_b, .peer_word = word_a};
    atomic_store(word_a, 0);
    atomic_store(word_b, 0);
    return measure_pair(&pair, cpu_a, cpu_b);
}

/* ---- ring ---- */

/* A message fills a slot. The sender copies it, and then sets its first and last word to its number there: a
 * copy of words that were just stored would wait for all earlier stores. `round` is the index of the side,
 * which publishes it in `word` once per batch. A full ring has no message that is not published, since the
 * slots are a multiple of the batch. */
struct message {
    uint64_t words[LIMIT_RING_MESSAGE_BYTES / sizeof(uint64_t)];
};

_Static_assert(RING_SLOTS % RING_BATCH == 0, "a full ring ends with a batch");

static struct message *slot_of(const struct work *work) {
    return (struct message *)(void *)work->destination + work->round % RING_SLOTS;
}

static void publish_batch(struct work *work) {
    if (++work->round % RING_BATCH == 0)
        atomic_store_explicit(work->word, work->round, memory_order_release);
}

static void run_ring(struct work *work, uint64_t operations) {
    const size_t last = sizeof(struct message) / sizeof(uint64_t) - 1;
    const struct message message = {{0}};
    for (uint64_t i = 0; i < operations; i++) {
        if (work->round - work->seen == RING_SLOTS) {
            await_round(work, work->seen + 1);
            work->seen = atomic_load_explicit(work->peer_word, memory_order_acquire);
        }
        struct message *slot = slot_of(work);
        copy((char *)slot, (const char *)&message, sizeof message, sizeof message);
        slot->words[0] = slot->words[last] = work->round;
        publish_batch(work);
    }
}

static void receive_ring(struct pair *pair) {
    const size_t last = sizeof(struct message) / sizeof(uint64_t) - 1;
    struct work *work = &pair->work[1];
    struct message message;
    while (!await_round(work, work->round + 1)) {
        work->seen = atomic_load_explicit(work->peer_word, memory_order_acquire);
        while (work->round < work->seen) {
            copy((char *)&message, (const char *)slot_of(work), sizeof message, sizeof message);
            work->wrong_count += message.words[0] != work->round || message.words[last] != work->round;
            publish_batch(work);
        }
    }
}

double limit_ring_ns(void *line, int cpu_a, int cpu_b) {
    _Atomic uint64_t *sent = line, *received = (void *)((char *)line + 2 * LINE_BYTES);
    struct message *slots = aligned_alloc(SEPARATION_BYTES, RING_SLOTS * sizeof *slots);
    if (!slots)
        return 0;
    memset(slots, 0, RING_SLOTS * sizeof *slots);
    struct pair pair = {.company = receive_ring};
    pair.work[0] = (struct work){
        .run = run_ring, .pair = &pair, .word = sent, .peer_word = received, .destination = (char *)slots};
    pair.work[1] =
        (struct work){.pair = &pair, .word = received, .peer_word = sent, .destination = (char *)slots};
    atomic_store(sent, 0);
    atomic_store(received, 0);
    double ns = measure_pair(&pair, cpu_a, cpu_b);
    free(slots);
    return pair.work[1].wrong_count == 0 ? ns : 0;
}

/* ---- accounts ---- */

static void run_transfer(struct work *work, uint64_t operations) {
    for (uint64_t i = 0; i < operations; i++) {
        uint64_t from = remo__random_below(&work->random, work->accounts_count);
        uint64_t to = remo__random_below(&work->random, work->accounts_count);
        uint64_t amount = (from ^ to) & 0xff;
        work->accounts[from] -= amount;
        work->accounts[to] += amount;
    }
}

double limit_transfer_ns(uint64_t *accounts, size_t accounts_count) {
    if (!accounts || accounts_count == 0)
        return 0;
    struct work work = {.run = run_transfer, .accounts = accounts, .accounts_count = accounts_count};
    remo__random_seed(&work.random, 1);
    uint64_t deadline = remo__deadline(WARM_UP_NS);
    while (remo__remaining_ns(deadline) > 0)
        run_transfer(&work, 1000);
    return measure(&work);
}

/* ---- names and the list ---- */

/* Format 8 B, 4 KiB, 1 MiB by powers of 1024; 100 M by powers of 1000. */
static void format_scaled(char *ret_text, size_t text_bytes, size_t value, size_t base,
                          const char *const units[3]) {
    size_t unit = 0;
    while (unit < 2 && value >= base && value % base == 0) {
        value /= base;
        unit++;
    }
    snprintf(ret_text, text_bytes, "%zu%s", value, units[unit]);
}

static void format_bytes(char ret_text[24], size_t size_bytes) {
    format_scaled(ret_text, 24, size_bytes, 1024, (const char *const[]){" B", " KiB", " MiB"});
}

void limit_memcpy_name(size_t size_bytes, char ret_name[LIMIT_NAME_BYTES]) {
    char size[24];
    format_bytes(size, size_bytes);
    snprintf(ret_name, LIMIT_NAME_BYTES, "memcpy %s from the same mapping", size);
}

void limit_memcpy_random_name(size_t size_bytes, char ret_name[LIMIT_NAME_BYTES]) {
    char size[24];
    format_bytes(size, size_bytes);
    snprintf(ret_name, LIMIT_NAME_BYTES, "memcpy %s at random offsets of the same mapping", size);
}

void limit_transfer_name(size_t accounts_count, char ret_name[LIMIT_NAME_BYTES]) {
    char count[24];
    format_scaled(count, sizeof count, accounts_count, 1000, (const char *const[]){"", " k", " M"});
    snprintf(ret_name, LIMIT_NAME_BYTES, "transfer between 2 of %s accounts, no lock", count);
}

struct listing {
    void (*each)(void *ctx, const char *name, double ns);
    void *ctx;
    int rc;
};

static void report(struct listing *listing, const char *name, double ns) {
    if (ns > 0)
        listing->each(listing->ctx, name, ns);
    else
        listing->rc = -EIO;
}

static void list_copies(const struct limit_place *place, struct listing *listing) {
    static const size_t sizes_bytes[] = {8, 64, 4096, 1 << 20};
    char name[LIMIT_NAME_BYTES];
    for (size_t i = 0; i < sizeof sizes_bytes / sizeof *sizes_bytes; i++) {
        size_t size_bytes = sizes_bytes[i];
        if (size_bytes > place->mapping_bytes)
            continue;
        limit_memcpy_name(size_bytes, name);
        report(listing, name, limit_memcpy_ns(place->mapping, place->mapping_bytes, size_bytes));
        limit_memcpy_random_name(size_bytes, name);
        report(listing, name, limit_memcpy_random_ns(place->mapping, place->mapping_bytes, size_bytes));
    }
}

int limit_list(const struct limit_place *place, void (*each)(void *ctx, const char *name, double ns),
               void *ctx) {
    void *line = place->mapping;
    int a = place->cpu_a, b = place->cpu_b;
    struct listing listing = {.each = each, .ctx = ctx};
    if (!line || (uintptr_t)line % LINE_BYTES != 0 || place->mapping_bytes < LIMIT_LINE_BYTES)
        return -EINVAL;
    report(&listing, LIMIT_LOAD, limit_load_ns(line));
    list_copies(place, &listing);
    report(&listing, LIMIT_FETCH_ADD, limit_fetch_add_ns(line));
    report(&listing, LIMIT_COMPARE_SWAP, limit_compare_swap_ns(line));
    report(&listing, LIMIT_STORE_FENCE, limit_store_fence_ns(line));
    report(&listing, LIMIT_LOCK, limit_lock_ns(line));
    report(&listing, LIMIT_FETCH_ADD_CONTENDED, limit_fetch_add_contended_ns(line, a, b));
    report(&listing, LIMIT_LOCK_CONTENDED, limit_lock_contended_ns(line, a, b));
    report(&listing, LIMIT_PINGPONG_1, limit_pingpong_ns(line, a, b, 1));
    report(&listing, LIMIT_PINGPONG_2, limit_pingpong_ns(line, a, b, 2));
    report(&listing, LIMIT_BARRIER, limit_barrier_ns(line, a, b));
    report(&listing, LIMIT_RING, limit_ring_ns(line, a, b));
    if (place->accounts) {
        char name[LIMIT_NAME_BYTES];
        limit_transfer_name(place->accounts_count, name);
        report(&listing, name, limit_transfer_ns(place->accounts, place->accounts_count));
    }
    return listing.rc;
}
