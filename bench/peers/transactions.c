/* transactions.c - the points of TATP and SmallBank on a store (transactions.h). After each point process 0
 * checks the results of all processes. */
#include "bench/peers/transactions.h"

#include <string.h>

#include "base/clock.h"

/* ---- checks ---- */

static void check_tatp(const struct transactions *bench) {
    struct tatp_counts all = {0};
    char sentence[TATP_SENTENCE_BYTES];
    for (unsigned i = 0; i < bench->processes.count; i++)
        tatp_add_counts(&all, &processes_counts(&bench->processes, i)->tatp);
    if (!tatp_check_shares(&all, bench->keys, sentence))
        processes_fail("%s", sentence);
}

static void check_smallbank(struct transactions *bench) {
    struct smallbank_counts all = {0};
    for (unsigned i = 0; i < bench->processes.count; i++)
        smallbank_add_counts(&all, &processes_counts(&bench->processes, i)->smallbank);
    int64_t sum = bench->store->sum(bench), expected = smallbank_sum(bench->keys, &all);
    if (sum != expected)
        processes_fail("the benchmark is wrong: the sum of all accounts is %lld, not %lld", (long long)sum,
                       (long long)expected);
}

/* ---- points ---- */

static double batch(void *ctx, uint64_t operations) {
    struct transactions *bench = ctx;
    uint64_t start_ns = remo__now_ns();
    for (uint64_t done = 0; done < operations; done += bench->window)
        bench->store->run(bench);
    return (double)(remo__now_ns() - start_ns);
}

static void report(struct transactions *bench, unsigned window) {
    struct measure_result all;
    if (bench->is_tatp)
        check_tatp(bench);
    else
        check_smallbank(bench);
    processes_merge(&bench->processes, &all);
    struct measure_subject subject = {.bench = bench->options->bench,
                                      .object = "tx",
                                      .window = window,
                                      .nodes = (int)bench->processes.count,
                                      .active = bench->processes.count,
                                      .keys_count = bench->keys,
                                      .read_percent = -1};
    measure_print(bench->options, &subject, &all);
}

/* Measure a window; 0: one transaction at a time. */
static void run_point(struct transactions *bench, unsigned window) {
    struct measure_result result;
    bench->window = window ? window : 1;
    processes_barrier(&bench->processes);
    measure_run(batch, bench, bench->window, bench->options->seconds, &result);
    processes_share(&bench->processes, &result, &bench->counts);
    processes_barrier(&bench->processes);
    if (bench->processes.index == 0)
        report(bench, window);
    processes_barrier(&bench->processes);
}

static void run_points(struct transactions *bench) {
    const unsigned *windows = bench->store->windows;
    if (windows[0] == 0)
        run_point(bench, 0);
    else if (bench->options->window)
        run_point(bench, bench->options->window);
    else
        for (unsigned i = 0; i < TRANSACTIONS_WINDOWS_MAX && windows[i]; i++)
            run_point(bench, windows[i]);
    measure_print_end((int)bench->processes.index);
}

static void run_process(struct transactions *bench) {
    bool is_first = bench->processes.index == 0;
    if (is_first)
        bench->store->open(bench);
    processes_barrier(&bench->processes);
    if (!is_first)
        bench->store->open(bench);
    processes_barrier(&bench->processes);
    if (is_first)
        bench->store->fill(bench);
    processes_barrier(&bench->processes);
    if (bench->store->begin)
        bench->store->begin(bench);
    processes_barrier(&bench->processes);
    remo__random_seed(&bench->random, bench->processes.index + 1);
    run_points(bench);
}

int transactions_main(const struct transactions_store *store, int argc, char **argv) {
    struct measure_options options;
    struct transactions bench = {.store = store, .options = &options};
    measure_parse(argc, argv, &options);
    bench.is_tatp = strcmp(options.bench, "tatp") == 0;
    bench.keys = options.keys_count;
    if (!bench.is_tatp && strcmp(options.bench, "smallbank") != 0)
        processes_fail("%s is not a benchmark of %s", options.bench, store->name);
    if (options.window > TRANSACTIONS_WINDOW_MAX)
        processes_fail("a process sends at most %u transactions together; give a smaller --window",
                       TRANSACTIONS_WINDOW_MAX);
    processes_prepare(&bench.processes, &options);
    store->start(&bench);
    processes_start(&bench.processes, &options);
    run_process(&bench);
    return 0;
}
