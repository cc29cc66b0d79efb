/* pair.h - how limits are measured: the input of a batch, and the two sides of a limit with two threads.
 * For the files of this folder. */
#pragma once

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/random.h"
#include "base/relax.h"

#define LINE_BYTES 64
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
    struct pair *pair;           /* of works that wait for the other side */
    _Atomic uint64_t *peer_word;
    uint64_t round;
    uint64_t seen;          /* of messages: the index of the other side, when last read */
    uint64_t wrong_count;   /* of messages with another number than expected */
    char *peer_destination; /* of messages: where the other side writes */
    size_t window, slot_bytes;
    int polls;                      /* for an answer to a wake-up */
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

/* Copy in pieces of at most `piece_bytes`. */
static inline void limit_copy(char *to, const char *from, size_t size_bytes, size_t piece_bytes) {
    for (; size_bytes > piece_bytes; size_bytes -= piece_bytes) {
        memcpy(to, from, piece_bytes);
        to += piece_bytes;
        from += piece_bytes;
    }
    memcpy(to, from, size_bytes);
    forget_memory();
}

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
    double (*lead)(struct pair *pair); /* of the first side; NULL: limit_measure */
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

static inline int limit_stopped(struct pair *pair) {
    return atomic_load_explicit(&pair->stop, memory_order_relaxed);
}

/* Wait until the other side has reached `round`. Returns 0, or 1 if `stop` is set. */
static inline int limit_await_round(struct work *work, uint64_t round) {
    unsigned spins = 0;
    while (atomic_load_explicit(work->peer_word, memory_order_acquire) < round) {
        if (limit_stopped(work->pair))
            return 1;
        pause_in_spin(++spins, work->spins_before_yield);
    }
    return 0;
}

/* Sort the samples, and return their median. */
double limit_median(double *samples, size_t count);
/* Return the median time of one operation over the batches. */
double limit_measure(struct work *work);
/* Run both sides of a pair, each on its processor, and return the result of the first one; 0 if a thread
 * could not start. */
double limit_measure_pair(struct pair *pair, int cpu_a, int cpu_b);
