/* messages.c - measures the limits of messages between two threads: the ring, the exchange through slots, and
 * wake-ups. A side writes only lines that the other side polls, and its own. */
#include "limit.h"

#include "base/clock.h"
#include "bench/limit/pair.h"

#include <linux/futex.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define WAKE_BUDGET_NS 200000000
#define WAKES_MAX 2000u
#define WAKES_MIN 5u
#define RING_SLOTS 1024u        /* of short messages */
#define RING_BATCH 16u          /* of them, per store of an index; fewer are slower, more are no faster */
#define RING_SLOTS_MIN 8u       /* of long messages */
#define RING_BYTES (512u << 10) /* a larger ring would not stay in the second-level cache */

static size_t round_up(size_t bytes, size_t unit) {
    return (bytes + unit - 1) / unit * unit;
}

/* ---- ring ---- */

/* A message fills a slot. The sender copies it, and then sets its first and last word to its number there: a
 * copy of words that were just stored would wait for all earlier stores. (If it stores the first word before
 * the last one, short messages take half as long again on some processors.) `round` is the index of the side,
 * which publishes it in `word` once per batch. A full ring has no message that is not published, since the
 * slots, `window` of them, are a multiple of the batch. */
static inline char *slot_of(const struct work *work, size_t message_bytes) {
    return work->destination + (work->round & (work->window - 1)) * message_bytes;
}

static inline void publish_batch(struct work *work) {
    uint64_t batch = work->window < RING_SLOTS ? 1 : RING_BATCH; /* a power of two, as the window */
    if ((++work->round & (batch - 1)) == 0)
        atomic_store_explicit(work->word, work->round, memory_order_release);
}

/* Inline, so that the sizes are constants for short messages. */
static inline __attribute__((always_inline)) void send_messages(struct work *work, uint64_t operations,
                                                                size_t message_bytes, size_t piece_bytes) {
    for (uint64_t i = 0; i < operations; i++) {
        if (work->round - work->seen == work->window) {
            limit_await_round(work, work->seen + 1);
            work->seen = atomic_load_explicit(work->peer_word, memory_order_acquire);
        }
        char *slot = slot_of(work, message_bytes);
        limit_copy(slot, work->source, message_bytes, piece_bytes);
        memcpy(slot + message_bytes - sizeof work->round, &work->round, sizeof work->round);
        memcpy(slot, &work->round, sizeof work->round);
        publish_batch(work);
    }
}

static inline __attribute__((always_inline)) void receive_messages(struct work *work, size_t message_bytes,
                                                                   size_t piece_bytes) {
    char *message = work->peer_destination;
    while (!limit_await_round(work, work->round + 1)) {
        work->seen = atomic_load_explicit(work->peer_word, memory_order_acquire);
        while (work->round < work->seen) {
            uint64_t first, last;
            limit_copy(message, slot_of(work, message_bytes), message_bytes, piece_bytes);
            memcpy(&first, message, sizeof first);
            memcpy(&last, message + message_bytes - sizeof last, sizeof last);
            work->wrong_count += first != work->round || last != work->round;
            publish_batch(work);
        }
    }
}

static void run_ring(struct work *work, uint64_t operations) {
    if (work->size_bytes == LIMIT_RING_MESSAGE_BYTES)
        send_messages(work, operations, LIMIT_RING_MESSAGE_BYTES, LIMIT_RING_MESSAGE_BYTES);
    else
        send_messages(work, operations, work->size_bytes, work->piece_bytes);
}

static void receive_ring(struct pair *pair) {
    struct work *work = &pair->work[1];
    if (work->size_bytes == LIMIT_RING_MESSAGE_BYTES)
        receive_messages(work, LIMIT_RING_MESSAGE_BYTES, LIMIT_RING_MESSAGE_BYTES);
    else
        receive_messages(work, work->size_bytes, work->piece_bytes);
}

/* Each side also has a message of its own, at `source` or `peer_destination`. */
static double measure_ring(void *line, char *memory, size_t side_bytes, size_t slots, size_t message_bytes,
                           size_t piece_bytes, int cpu_a, int cpu_b) {
    _Atomic uint64_t *sent = line, *received = (void *)((char *)line + 2 * LINE_BYTES);
    struct pair pair = {.company = receive_ring};
    for (size_t side = 0; side < 2; side++)
        pair.work[side] = (struct work){.run = run_ring,
                                        .pair = &pair,
                                        .word = side == 0 ? sent : received,
                                        .peer_word = side == 0 ? received : sent,
                                        .source = memory,
                                        .peer_destination = memory + side_bytes,
                                        .destination = memory + 2 * side_bytes,
                                        .window = slots,
                                        .size_bytes = message_bytes,
                                        .piece_bytes = piece_bytes};
    atomic_store(sent, 0);
    atomic_store(received, 0);
    double ns = limit_measure_pair(&pair, cpu_a, cpu_b);
    return pair.work[1].wrong_count == 0 ? ns : 0;
}

double limit_ring_ns(void *line, size_t message_bytes, int cpu_a, int cpu_b) {
    size_t side_bytes = round_up(message_bytes, SEPARATION_BYTES), slots = RING_SLOTS;
    while (slots > RING_SLOTS_MIN && slots * message_bytes > RING_BYTES)
        slots /= 2;
    size_t all_bytes = 2 * side_bytes + round_up(slots * message_bytes, SEPARATION_BYTES);
    char *memory = aligned_alloc(SEPARATION_BYTES, all_bytes);
    if (!memory)
        return 0;
    memset(memory, 0, all_bytes);
    double ns = measure_ring(line, memory, side_bytes, slots, message_bytes, message_bytes, cpu_a, cpu_b);
    if (message_bytes > PIECE_BYTES) {
        double pieces_ns =
            measure_ring(line, memory, side_bytes, slots, message_bytes, PIECE_BYTES, cpu_a, cpu_b);
        ns = pieces_ns < ns ? pieces_ns : ns;
    }
    free(memory);
    return ns;
}

/* ---- exchange ---- */

/* The first side sends requests and receives replies; `round` counts its requests, and `seen` its replies.
 * The slots of requests begin at `destination` of the first side, those of replies at that of the second
 * one. A message is complete when its slot has its number, counted from 1. `word` is not zero while the
 * other side sleeps, which never happens here. */
struct slot {
    _Atomic uint64_t number;
    char data[];
};

static struct slot *exchange_slot(const struct work *work, char *slots, uint64_t index) {
    return (struct slot *)(void *)(slots + index % work->window * work->slot_bytes);
}

/* Fence and look once per half a window; window 1 has no half. */
static void look_for_sleeper(struct work *work, uint64_t count) {
    if (work->window > 1 && count % (work->window / 2) != 0)
        return;
    atomic_thread_fence(memory_order_seq_cst);
    work->wrong_count += atomic_load_explicit(work->word, memory_order_relaxed) != 0;
}

static int await_number(struct work *work, const struct slot *slot, uint64_t number) {
    unsigned spins = 0;
    while (atomic_load_explicit(&slot->number, memory_order_acquire) != number) {
        if (limit_stopped(work->pair))
            return 1;
        pause_in_spin(++spins, work->spins_before_yield);
    }
    return 0;
}

static void send_request(struct work *work) {
    struct slot *slot = exchange_slot(work, work->destination, work->round++);
    limit_copy(slot->data, work->source, work->size_bytes, work->piece_bytes);
    memcpy(slot->data, &work->round, sizeof work->round);
    atomic_store_explicit(&slot->number, work->round, memory_order_release);
    look_for_sleeper(work, work->round);
}

static void receive_reply(struct work *work) {
    const struct slot *slot = exchange_slot(work, work->peer_destination, work->seen++);
    char *into = (char *)(uintptr_t)work->source + work->size_bytes;
    uint64_t number;
    if (await_number(work, slot, work->seen))
        return;
    limit_copy(into, slot->data, work->size_bytes, work->piece_bytes);
    memcpy(&number, into, sizeof number);
    work->wrong_count += number != work->seen;
}

static void run_exchange(struct work *work, uint64_t operations) {
    uint64_t half = work->window > 1 ? work->window / 2 : 1;
    for (uint64_t i = 0; i < operations; i++) {
        send_request(work);
        bool is_full = work->round - work->seen == work->window;
        for (uint64_t k = 0; is_full && k < half; k++)
            receive_reply(work);
    }
}

static void answer_requests(struct pair *pair) {
    struct work *work = &pair->work[1];
    for (;;) {
        const struct slot *request = exchange_slot(work, work->peer_destination, work->round);
        struct slot *reply = exchange_slot(work, work->destination, work->round);
        if (await_number(work, request, work->round + 1))
            return;
        limit_copy(reply->data, request->data, work->size_bytes, work->piece_bytes);
        atomic_store_explicit(&reply->number, ++work->round, memory_order_release);
        look_for_sleeper(work, work->round);
    }
}

double limit_exchange_ns(size_t size_bytes, size_t window, int cpu_a, int cpu_b) {
    size_t slot_bytes = round_up(sizeof(struct slot) + size_bytes, LINE_BYTES);
    size_t side_bytes = round_up(slot_bytes * window, SEPARATION_BYTES);
    size_t all_bytes = round_up(2 * side_bytes + SEPARATION_BYTES + 2 * size_bytes, SEPARATION_BYTES);
    char *memory = aligned_alloc(SEPARATION_BYTES, all_bytes);
    if (!memory)
        return 0;
    memset(memory, 0, all_bytes);
    struct pair pair = {.company = answer_requests};
    for (size_t side = 0; side < 2; side++)
        pair.work[side] = (struct work){.run = run_exchange,
                                        .pair = &pair,
                                        .destination = memory + side * side_bytes,
                                        .peer_destination = memory + (1 - side) * side_bytes,
                                        .word = (void *)(memory + 2 * side_bytes),
                                        .source = memory + 2 * side_bytes + SEPARATION_BYTES,
                                        .size_bytes = size_bytes,
                                        .piece_bytes = PIECE_BYTES,
                                        .slot_bytes = slot_bytes,
                                        .window = window};
    double ns = limit_measure_pair(&pair, cpu_a, cpu_b);
    free(memory);
    return pair.work[0].wrong_count + pair.work[1].wrong_count == 0 ? ns : 0;
}

/* ---- wake-ups ---- */

/* A futex of 32 bits holds the number of the last wake-up. The waits are bounded, so that the second side
 * observes `stop`. */
static bool futex_sleep(_Atomic uint32_t *futex, uint32_t seen) {
    const struct timespec limit = {.tv_nsec = 10 * REMO__NS_PER_MS};
    return syscall(SYS_futex, futex, FUTEX_WAIT_PRIVATE, seen, &limit, NULL, 0) == 0;
}

static bool futex_wake(_Atomic uint32_t *futex, uint32_t number) {
    atomic_store(futex, number);
    return syscall(SYS_futex, futex, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0) == 1;
}

/* Wait for the number of the other side. Returns whether this side slept, or -1 at the end. */
static int await_wake(struct work *work, uint32_t number) {
    _Atomic uint32_t *own = (_Atomic uint32_t *)work->peer_word;
    unsigned spins = 0;
    int slept = 0;
    while (atomic_load(own) != number) {
        if (limit_stopped(work->pair))
            return -1;
        if (work->polls)
            pause_in_spin(++spins, work->spins_before_yield);
        else
            slept |= futex_sleep(own, number - 1);
    }
    return slept;
}

static void answer_wakes(struct pair *pair) {
    struct work *work = &pair->work[1];
    for (uint32_t number = 1; await_wake(work, number) >= 0; number++)
        futex_wake((_Atomic uint32_t *)work->word, number);
}

static double lead_wakes(struct pair *pair) {
    static const struct timespec pause = {.tv_nsec = LIMIT_WAKE_PAUSE_NS};
    struct work *work = &pair->work[0];
    double samples[WAKES_MAX];
    size_t count = 0;
    uint64_t deadline = remo__deadline(WAKE_BUDGET_NS);
    bool must_sleep = !work->polls && work->spins_before_yield > 1;
    for (uint32_t n = 1; n <= WAKES_MAX && (count < WAKES_MIN || remo__remaining_ns(deadline) > 0); n++) {
        nanosleep(&pause, NULL);
        uint64_t start_ns = remo__now_ns();
        bool woke = futex_wake((_Atomic uint32_t *)work->word, n);
        int slept = await_wake(work, n);
        samples[count] = (double)(remo__now_ns() - start_ns);
        count += woke && (slept || !must_sleep);
    }
    return count > 0 ? limit_median(samples, count) : 0;
}

static double measure_wake(void *line, int cpu_a, int cpu_b, bool polls) {
    _Atomic uint64_t *word_a = line, *word_b = (void *)((char *)line + 2 * LINE_BYTES);
    struct pair pair = {.company = answer_wakes, .lead = lead_wakes};
    pair.work[0] = (struct work){.pair = &pair, .word = word_b, .peer_word = word_a, .polls = polls};
    pair.work[1] = (struct work){.pair = &pair, .word = word_a, .peer_word = word_b};
    atomic_store(word_a, 0);
    atomic_store(word_b, 0);
    return limit_measure_pair(&pair, cpu_a, cpu_b);
}

double limit_wake_ns(void *line, int cpu_a, int cpu_b) {
    return measure_wake(line, cpu_a, cpu_b, false);
}

double limit_wake_polled_ns(void *line, int cpu_a, int cpu_b) {
    return measure_wake(line, cpu_a, cpu_b, true);
}
