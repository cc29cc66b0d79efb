/* threads_fence.c - the asymmetric fence: of two threads that each store one word and load the other's, at
 * least one reads the other's store, although the hot thread executes no fence. */
#include "base/threads_fence.h"

#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>

#define ROUNDS 10000u
#define COLD 16u /* stores in front of the hot thread's store: they fill its store buffer */
#define LINE 64u
#define SPINS 16384u /* before the thread leaves the processor to the other */

static struct {
    _Alignas(LINE) _Atomic uint32_t hot;
    _Alignas(LINE) _Atomic uint32_t hot_saw;
    _Alignas(LINE) _Atomic uint32_t slow;
    _Alignas(LINE) _Atomic uint32_t round, ready, done;
    struct {
        _Alignas(LINE) _Atomic uint32_t word;
    } cold[COLD];
} words;

/* Store to lines that the other thread has just written: each store waits for its line. */
static void store_cold(uint32_t value) {
    for (uint32_t i = 0; i < COLD; i++)
        atomic_store_explicit(&words.cold[i].word, value, memory_order_relaxed);
}

static void wait_until(_Atomic uint32_t *word, uint32_t value) {
    for (uint32_t i = 0; atomic_load(word) != value; i++)
        if (i % SPINS == SPINS - 1)
            sched_yield();
}

static void *run_hot(void *ctx) {
    (void)ctx;
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        atomic_store(&words.ready, round);
        wait_until(&words.round, round);
        store_cold(round);
        atomic_store_explicit(&words.hot, round, memory_order_relaxed);
        remo__threads_fence_hot();
        atomic_store_explicit(&words.hot_saw, atomic_load_explicit(&words.slow, memory_order_relaxed),
                              memory_order_relaxed);
        atomic_store_explicit(&words.done, round, memory_order_release);
    }
    return NULL;
}

int main(void) {
    pthread_t thread;
    uint32_t wrong = 0;
    if (!remo__threads_fence()) {
        printf("skipped: this kernel has no expedited membarrier\n");
        return 77;
    }
    if (pthread_create(&thread, NULL, run_hot, NULL) != 0)
        return 1;
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        wait_until(&words.ready, round);
        store_cold(0);
        atomic_store(&words.round, round);
        for (volatile uint32_t pause = round % 64; pause > 0; pause--)
            continue;
        atomic_exchange(&words.slow, round);
        (void)remo__threads_fence();
        uint32_t saw = atomic_load_explicit(&words.hot, memory_order_relaxed);
        wait_until(&words.done, round);
        wrong += saw != round && atomic_load(&words.hot_saw) != round;
    }
    pthread_join(thread, NULL);
    printf("%u rounds, in %u neither thread read the other's store\n", ROUNDS, wrong);
    return wrong != 0;
}
