/* test_kills.c - four nodes work on a map, a queue and values behind locks; one or two of them are killed at
 * a random moment. Acknowledged operations on live homes are not lost or repeated, others are applied once or
 * not at all, and no call hangs. The checkers of the simulator judge the recorded calls (kills_judge.c). */
#include <getopt.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/histogram.h"
#include "base/random.h"
#include "kills.h"

/* test_kills [--fabric F] [--runs N] [--seed S]
 *
 * A failed run prints its seed; --seed S --runs 1 repeats its plan. The time from the kill of a lock's holder
 * to the next acquire is printed with its limit: 100 ms for p99, which REMO_TEST_BARS=1 enforces. */

#define RUNS 32u
#define WORDS_FEW 9u /* more than one cache line */
#define TURNS_MAX 400u
#define DELAY_NS_MAX (SECOND / 1000)
#define RECOVERY_BAR_NS (SECOND / 10)

struct kills_run *kills_run;

struct arguments {
    const char *fabric;
    uint32_t runs;
    uint64_t seed;
};

static struct total {
    uint32_t kills, in_state[KILLS_STATES];
    struct kills_verdict verdict;
    struct remo__histogram recovery;
} total;

static int parse(int argc, char **argv, struct arguments *arguments) {
    static const struct option options[] = {{"fabric", required_argument, NULL, 'f'},
                                            {"runs", required_argument, NULL, 'r'},
                                            {"seed", required_argument, NULL, 's'},
                                            {0}};
    int option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 'f': arguments->fabric = optarg; break;
        case 'r': arguments->runs = (uint32_t)atoi(optarg); break;
        case 's': arguments->seed = strtoull(optarg, NULL, 10); break;
        default: return 1;
        }
    }
    return 0;
}

/* Plan a run: the work and the victims depend on the seed in a fixed order, the moments are random. */
static void plan(uint64_t seed) {
    struct remo__random random;
    memset(kills_run, 0, offsetof(struct kills_run, nodes));
    for (uint32_t rank = 0; rank < KILLS_NODES; rank++) {
        struct kills_node *node = &kills_run->nodes[rank];
        memset(node, 0, offsetof(struct kills_node, calls));
        for (uint32_t i = 0; i < KILLS_OBJECTS; i++)
            node->histories[i] = (struct history){.calls = node->calls[i], .cap = KILLS_CALLS_MAX};
    }
    remo__random_seed(&random, seed);
    kills_run->seed = seed;
    /* Many calls of the queue, because they are so short that kills rarely hit one. */
    static const uint32_t weights[4][KILLS_OBJECTS] = {{20, 20, 1}, {1, 1000, 1}, {1, 20, 20}, {20, 20, 1}};
    /* fetch_add needs values of one word. */
    static const uint32_t words[3] = {WORDS_FEW, KILLS_WORDS_MAX, 1};
    memcpy(kills_run->weight, weights[seed % 4], sizeof kills_run->weight);
    kills_run->updates_percent = seed % 4 == 3 ? 95 : 30;
    kills_run->words = words[seed / 3 % 3];
    kills_run->victim_count = remo__random_below(&random, 4) == 0 ? 2 : 1;
    kills_run->victims[0].rank = (uint32_t)(seed / 4 % KILLS_NODES);
    kills_run->victims[1].rank =
        (kills_run->victims[0].rank + 1 + (uint32_t)remo__random_below(&random, KILLS_NODES - 1))
        % KILLS_NODES;
    for (uint32_t i = 0; i < kills_run->victim_count; i++) {
        kills_run->victims[i].turns = (uint32_t)remo__random_below(&random, TURNS_MAX);
        kills_run->victims[i].delay_ns = remo__random_below(&random, DELAY_NS_MAX);
    }
}

static void add_up(const struct kills_verdict *verdict) {
    for (uint32_t i = 0; i < kills_run->victim_count; i++) {
        total.kills++;
        total.in_state[atomic_load(&kills_run->nodes[kills_run->victims[i].rank].state)]++;
    }
    for (uint32_t i = 0; i < kills_run->recoveries && i < KILLS_RECOVERY_MAX; i++)
        remo__histogram_record(&total.recovery, kills_run->recovery_ns[i]);
    total.verdict.acknowledged += verdict->acknowledged;
    total.verdict.lost += verdict->lost;
    total.verdict.repeated += verdict->repeated;
    total.verdict.wrong += verdict->wrong;
}

static int run_one(const struct arguments *arguments, uint64_t seed) {
    static const struct cluster_test test =
        CLUSTER_TEST_NAMED("kills", kills_work, KILLS_NODES, .op_timeout_ns = 600 * SECOND);
    struct kills_verdict verdict = {0};
    plan(seed);
    int result = cluster_run(&test, arguments->fabric);
    if (result == 77)
        return result;
    if (result == 0)
        result = kills_judge(&verdict);
    add_up(&verdict);
    result |= verdict.lost + verdict.repeated + verdict.wrong > 0;
    if (result != 0)
        fprintf(stderr, "repeat with --fabric %s --seed %llu --runs 1 (kills node %u, and %u more)\n",
                arguments->fabric, (unsigned long long)seed, kills_run->victims[0].rank,
                kills_run->victim_count - 1);
    return result;
}

static int report(const struct arguments *arguments, uint32_t failed) {
    const struct kills_verdict *verdict = &total.verdict;
    const uint32_t *in = total.in_state;
    uint64_t p99 = remo__histogram_percentile(&total.recovery, 99);
    bool good = failed == 0 && (p99 <= RECOVERY_BAR_NS || !patience_judges_bars());
    printf("%-4s %s: %u runs, %u failed; %u kills: in the map %u, in the queue %u, in an acquire %u, with a "
           "lock %u, between %u\n",
           good ? "ok" : "FAIL", arguments->fabric, arguments->runs, failed, total.kills, in[KILLS_IN_MAP],
           in[KILLS_IN_QUEUE], in[KILLS_IN_ACQUIRE], in[KILLS_IN_SECTION], in[KILLS_BETWEEN]);
    printf("     %llu changes acknowledged: %llu lost, %llu repeated, %llu histories out of order\n",
           (unsigned long long)verdict->acknowledged, (unsigned long long)verdict->lost,
           (unsigned long long)verdict->repeated, (unsigned long long)verdict->wrong);
    printf("     from the kill of a lock's holder to the next acquire, %llu times: p50 %.2f ms, p99 %.2f ms, "
           "max %.2f ms; p99 is %s the limit of %.0f ms\n",
           (unsigned long long)remo__histogram_count(&total.recovery),
           (double)remo__histogram_percentile(&total.recovery, 50) / 1e6, (double)p99 / 1e6,
           (double)remo__histogram_max(&total.recovery) / 1e6, p99 > RECOVERY_BAR_NS ? "beyond" : "within",
           (double)RECOVERY_BAR_NS / 1e6);
    return !good;
}

int main(int argc, char **argv) {
    struct arguments arguments = {.fabric = "shm", .runs = RUNS, .seed = 1};
    uint32_t failed = 0;
    if (parse(argc, argv, &arguments) != 0)
        return 2;
    kills_run = cluster_shared(sizeof *kills_run);
    remo__histogram_reset(&total.recovery);
    for (uint32_t run = 0; run < arguments.runs; run++) {
        int result = run_one(&arguments, arguments.seed + run);
        if (result == 77)
            return 77;
        failed += result != 0;
    }
    return report(&arguments, failed);
}
