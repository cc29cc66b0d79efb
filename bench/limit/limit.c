/* limit.c - measures the limits of limit.h: copies, atomics, ping-pong, barrier, transfers; and the list of
 * all. Messages between two threads are in messages.c. Every figure is a median over batches; the two sides
 * of a pair never share a pair of cache lines. */
#include "limit.h"

#include "base/clock.h"
#include "bench/limit/pair.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define WARM_UP_NS 120000000 /* until the page tables of a large mapping are cached */

/* ---- copies ---- */

static void run_load(struct work *work, uint64_t operations) {
    const volatile uint64_t *source = (const volatile uint64_t *)work->source;
    for (uint64_t i = 0; i < operations; i++) {
        uint64_t value = *source;
        __asm__ volatile("" : : "r"(value));
    }
}

static void run_memcpy(struct work *work, uint64_t operations) {
    char *destination = work->destination;
    const char *source = work->source;
    size_t size_bytes = work->size_bytes, piece_bytes = work->piece_bytes;
    for (uint64_t i = 0; i < operations; i++)
        limit_copy(destination, source, size_bytes, piece_bytes);
}

static void run_memcpy_random(struct work *work, uint64_t operations) {
    size_t size_bytes = work->size_bytes, piece_bytes = work->piece_bytes;
    size_t step = size_bytes < LINE_BYTES ? size_bytes : LINE_BYTES;
    uint64_t places = (work->source_bytes - size_bytes) / step + 1;
    char *destination = work->destination;
    const char *source = work->source;
    for (uint64_t i = 0; i < operations; i++)
        limit_copy(destination, source + remo__random_below(&work->random, places) * step, size_bytes,
                   piece_bytes);
}

/* Return a random line. It depends on what was read before, so that the processor cannot begin to read it
 * earlier. */
static inline const char *next_line(struct work *work, uint64_t places) {
    uint64_t number = remo__random_next(&work->random) ^ work->seen;
    return work->source + (uint64_t)(((unsigned __int128)number * places) >> 64) * LINE_BYTES;
}

static inline void prefetch(const char *place, size_t size_bytes) {
    for (size_t at = 0; at < size_bytes; at += LINE_BYTES)
        __builtin_prefetch(place + at);
}

static void run_read_sealed(struct work *work, uint64_t operations) {
    size_t size_bytes = work->size_bytes, window = work->window, ahead_bytes = window > 1 ? size_bytes : 0;
    uint64_t places = (work->source_bytes - size_bytes) / LINE_BYTES + 1;
    const char *next[LIMIT_IN_FLIGHT_MAX];
    for (size_t i = 0; i < window; i++)
        prefetch(next[i] = next_line(work, places), ahead_bytes);
    for (uint64_t i = 0, oldest = 0; i < operations; i++) {
        const char **place = &next[oldest];
        limit_copy(work->destination, *place, size_bytes, size_bytes);
        work->seen += XXH3_64bits_withSeed(work->destination + LIMIT_UNSEALED_BYTES,
                                           size_bytes - LIMIT_UNSEALED_BYTES, 1);
        prefetch(*place = next_line(work, places), ahead_bytes);
        oldest = oldest + 1 < window ? oldest + 1 : 0;
    }
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
    double ns = limit_measure(&work);
    if (size_bytes > PIECE_BYTES) {
        work.piece_bytes = PIECE_BYTES;
        double pieces_ns = limit_measure(&work);
        ns = pieces_ns < ns ? pieces_ns : ns;
    }
    free(destination);
    return ns;
}

double limit_load_ns(const void *mapping) {
    struct work work = {.run = run_load, .source = mapping};
    return limit_measure(&work);
}

double limit_memcpy_ns(const void *mapping, size_t mapping_bytes, size_t size_bytes) {
    return measure_copy(run_memcpy, mapping, mapping_bytes, size_bytes);
}

double limit_memcpy_random_ns(const void *mapping, size_t mapping_bytes, size_t size_bytes) {
    return measure_copy(run_memcpy_random, mapping, mapping_bytes, size_bytes);
}

double limit_read_sealed_ns(const void *mapping, size_t mapping_bytes, size_t size_bytes, size_t in_flight) {
    char destination[LIMIT_SEALED_BYTES_MAX];
    if (size_bytes < LIMIT_UNSEALED_BYTES || size_bytes > mapping_bytes || size_bytes > sizeof destination
        || in_flight == 0 || in_flight > LIMIT_IN_FLIGHT_MAX)
        return 0;
    struct work work = {.run = run_read_sealed,
                        .source = mapping,
                        .source_bytes = mapping_bytes,
                        .size_bytes = size_bytes,
                        .destination = destination,
                        .window = in_flight};
    remo__random_seed(&work.random, 1);
    return limit_measure(&work);
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
    return limit_measure(&work);
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

static void contend(struct pair *pair) {
    struct work *work = &pair->work[1];
    while (!limit_stopped(pair)) {
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
    return limit_measure_pair(&pair, cpu_a, cpu_b);
}

double limit_fetch_add_contended_ns(void *line, int cpu_a, int cpu_b) {
    struct work work = {.run = run_fetch_add, .word = line};
    return measure_contended(&work, cpu_a, cpu_b);
}

double limit_lock_contended_ns(void *line, int cpu_a, int cpu_b) {
    struct work work = {.run = run_lock, .word = line, .guarded = (uint64_t *)((char *)line + LINE_BYTES)};
    return measure_contended(&work, cpu_a, cpu_b);
}

/* Over one line both sides write the same word in turn: the first odd values, the second even ones.
 * Over two lines each side has its own word. A side reads `peer_word`. */
static void run_pingpong(struct work *work, uint64_t operations) {
    for (uint64_t i = 0; i < operations; i++) {
        work->round += 2;
        atomic_store_explicit(work->word, work->round - 1, memory_order_release);
        limit_await_round(work, work->round);
    }
}

static void answer_pingpong(struct pair *pair) {
    struct work *work = &pair->work[1];
    for (work->round = 1; !limit_await_round(work, work->round); work->round += 2)
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
    return limit_measure_pair(&pair, cpu_a, cpu_b);
}

static int pass_barrier(struct work *work) {
    work->round++;
    atomic_store_explicit(work->word, work->round, memory_order_release);
    return limit_await_round(work, work->round);
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
    return limit_measure_pair(&pair, cpu_a, cpu_b);
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
    return limit_measure(&work);
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

void limit_read_sealed_name(size_t size_bytes, size_t in_flight, char ret_name[LIMIT_NAME_BYTES]) {
    char size[24];
    format_bytes(size, size_bytes);
    snprintf(ret_name, LIMIT_NAME_BYTES, "copy and hash %s at random offsets, %u in flight", size,
             (unsigned)in_flight);
}

void limit_ring_name(size_t message_bytes, char ret_name[LIMIT_NAME_BYTES]) {
    char size[24];
    format_bytes(size, message_bytes);
    snprintf(ret_name, LIMIT_NAME_BYTES, "ring of 1 sender and 1 receiver, %s", size);
}

void limit_exchange_name(size_t size_bytes, size_t window, char ret_name[LIMIT_NAME_BYTES]) {
    char size[24], with_window[24] = "";
    format_bytes(size, size_bytes);
    if (window > 1)
        snprintf(with_window, sizeof with_window, ", window %u", (unsigned)window);
    snprintf(ret_name, LIMIT_NAME_BYTES, "exchange of %s through slots%s", size, with_window);
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

static void list_sealed_reads(const struct limit_place *place, struct listing *listing) {
    static const size_t in_flight[] = {1, 8};
    char name[LIMIT_NAME_BYTES];
    for (size_t i = 0; i < sizeof in_flight / sizeof *in_flight; i++) {
        limit_read_sealed_name(LIMIT_SEALED_BYTES, in_flight[i], name);
        report(listing, name,
               limit_read_sealed_ns(place->mapping, place->mapping_bytes, LIMIT_SEALED_BYTES, in_flight[i]));
    }
}

static void list_rings(void *line, const struct limit_place *place, struct listing *listing) {
    static const size_t sizes_bytes[] = {LIMIT_RING_MESSAGE_BYTES, 64 << 10};
    char name[LIMIT_NAME_BYTES];
    for (size_t i = 0; i < sizeof sizes_bytes / sizeof *sizes_bytes; i++) {
        limit_ring_name(sizes_bytes[i], name);
        report(listing, name, limit_ring_ns(line, sizes_bytes[i], place->cpu_a, place->cpu_b));
    }
}

static void list_exchanges(const struct limit_place *place, struct listing *listing) {
    static const size_t windows[] = {1, 16};
    char name[LIMIT_NAME_BYTES];
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        limit_exchange_name(LIMIT_EXCHANGE_BYTES, windows[i], name);
        report(listing, name,
               limit_exchange_ns(LIMIT_EXCHANGE_BYTES, windows[i], place->cpu_a, place->cpu_b));
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
    list_sealed_reads(place, &listing);
    report(&listing, LIMIT_FETCH_ADD, limit_fetch_add_ns(line));
    report(&listing, LIMIT_COMPARE_SWAP, limit_compare_swap_ns(line));
    report(&listing, LIMIT_STORE_FENCE, limit_store_fence_ns(line));
    report(&listing, LIMIT_LOCK, limit_lock_ns(line));
    report(&listing, LIMIT_FETCH_ADD_CONTENDED, limit_fetch_add_contended_ns(line, a, b));
    report(&listing, LIMIT_LOCK_CONTENDED, limit_lock_contended_ns(line, a, b));
    report(&listing, LIMIT_PINGPONG_1, limit_pingpong_ns(line, a, b, 1));
    report(&listing, LIMIT_PINGPONG_2, limit_pingpong_ns(line, a, b, 2));
    report(&listing, LIMIT_BARRIER, limit_barrier_ns(line, a, b));
    list_rings(line, place, &listing);
    list_exchanges(place, &listing);
    report(&listing, LIMIT_WAKE, limit_wake_ns(line, a, b));
    report(&listing, LIMIT_WAKE_POLLED, limit_wake_polled_ns(line, a, b));
    if (place->accounts) {
        char name[LIMIT_NAME_BYTES];
        limit_transfer_name(place->accounts_count, name);
        report(&listing, name, limit_transfer_ns(place->accounts, place->accounts_count));
    }
    return listing.rc;
}
