/* pair.c - runs batches and takes their median, and runs the two threads of a pair (pair.h).
 * A batch is far shorter than a time slice, so other load hits few of them. */
#include "bench/limit/pair.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"

/* long compared with a clock read (40 ns), short compared with a time slice (ms) */
#define BATCH_NS 20000.0
#define BUDGET_NS 15000000      /* per limit; enough for several hundred batches */
#define CONTENTION_NS 100000000 /* to wait for batches in which the other side works */
#define BATCHES_MAX 1000
#define BATCHES_MIN 5 /* of slow operations, even past the budget */
#define SPINS_BEFORE_YIELD 2000

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double limit_median(double *samples, size_t count) {
    qsort(samples, count, sizeof *samples, compare_doubles);
    return samples[count / 2];
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

double limit_measure(struct work *work) {
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
    return limit_median(samples, count);
}

static void *first_side(void *argument) {
    struct pair *pair = argument;
    unsigned spins = 0;
    while (!atomic_load(&pair->running))
        pause_in_spin(++spins, pair->work[0].spins_before_yield);
    pair->result_ns = pair->lead ? pair->lead(pair) : limit_measure(&pair->work[0]);
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

double limit_measure_pair(struct pair *pair, int cpu_a, int cpu_b) {
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
