/* suite.c - runs the benchmarks of one call: starts the jobs, collects results, runs peers, prints.
 * A failed benchmark is reported and counted; all others still run. */
#include "cli/bench/suite.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/error.h"
#include "bench/report/output.h"
#include "bench/peers/peers.h"
#include "bench/report/text.h"
#include "cli/bench/job.h"
#include "cli/programs.h"

#define RESULTS_MAX 4096u
#define PASSES_MAX 4u

/* A list that grows. */
struct results {
    struct bench_result *at;
    uint32_t count;
};

struct collector {
    const struct bench_suite *suite;
    struct results own, peers;         /* of the current benchmark */
    struct results all_own, all_peers; /* medians of all benchmarks so far */
    struct bench_table table;
    json_t *model;         /* of the simulated network; NULL until it arrives */
    uint32_t bench_number; /* of the current one, from 1 */
    uint32_t points, points_done;
    const char *bench;
    bool terminal;
    uint32_t failures;        /* benchmarks */
    bool failed, interrupted; /* the current one */
    bool peer_failed;         /* likewise: a peer */
};

static void add(struct results *results, const struct bench_result *result) {
    if (results->count == RESULTS_MAX)
        return;
    if (remo__is_power_of_two(results->count) || results->count == 0) {
        size_t room = results->count ? 2 * (size_t)results->count : 1;
        struct bench_result *at = realloc(results->at, room * sizeof *at);
        if (!at)
            return;
        results->at = at;
    }
    results->at[results->count++] = *result;
}

static void clear(struct results *results) {
    free(results->at);
    *results = (struct results){0};
}

/* ---- progress, on a terminal ---- */

#define BAR_COLUMNS 24

static void show(const struct collector *collector, const char *what) {
    char bar[BAR_COLUMNS + 1];
    const struct bench_suite *suite = collector->suite;
    if (!collector->terminal)
        return;
    double part = collector->points ? (double)collector->points_done / collector->points : 0;
    double done =
        (collector->bench_number - 1 + remo__min((uint64_t)(part * 100), 100) / 100.0) / suite->benches_count;
    for (int i = 0; i < BAR_COLUMNS; i++)
        bar[i] = i < done * BAR_COLUMNS ? '#' : '.';
    bar[BAR_COLUMNS] = '\0';
    char text[160];
    snprintf(text, sizeof text, "[%s] %u/%u %s%s%s", bar, collector->bench_number, suite->benches_count,
             collector->bench, what[0] ? ": " : "", what);
    /* A line that reaches the last column would not be erased as a whole. */
    fprintf(stderr, "\r\033[K%.*s", (int)text_columns(stderr, TEXT_COLUMNS_DEFAULT) - 1, text);
    fflush(stderr);
}

static void hide(const struct collector *collector) {
    if (collector->terminal)
        fprintf(stderr, "\r\033[K");
}

/* ---- objects from the nodes ---- */

static void take_error(struct collector *collector, const struct bench_result *result) {
    /* The first error is the cause; later ones come from nodes that lost their peer. */
    if (!collector->failed) {
        hide(collector);
        fprintf(stderr, "remo bench: %s: %s\n", result->bench, result->error);
        add(&collector->own, result);
    }
    collector->failed = true;
}

static void take_line(void *ctx, const json_t *object) {
    struct collector *collector = ctx;
    const char *progress = json_string_value(json_object_get(object, "progress"));
    struct bench_result result;
    if (progress) {
        char text[64];
        snprintf(text, sizeof text, "%.40s %.0f %%", progress,
                 100 * json_number_value(json_object_get(object, "done")));
        show(collector, text);
    } else if (json_object_get(object, "model")) {
        if (!collector->model)
            collector->model = json_incref(json_object_get(object, "model"));
    } else if (bench_result_parse(object, &result) == 0) {
        if (result.error[0]) {
            take_error(collector, &result);
            return;
        }
        add(&collector->own, &result);
        collector->points_done++;
        show(collector, "");
    }
}

static int run_simulated(struct collector *collector, const struct bench *bench) {
    int rc = 0;
    for (uint32_t i = 0; i < collector->suite->nodes_count && rc == 0; i++) {
        struct bench_suite suite = *collector->suite;
        suite.options.nodes = suite.nodes[i];
        rc = bench_simulated_run(&suite, bench, take_line, collector);
    }
    return rc;
}

static void run_nodes(struct collector *collector, const struct bench *bench) {
    struct bench_result failure;
    int rc = collector->suite->simulated ? run_simulated(collector, bench)
                                         : bench_job_run(collector->suite, bench, take_line, collector);
    collector->interrupted = rc == -EINTR;
    if (rc == 0 || collector->failed)
        return;
    bench_result_reset(&failure);
    snprintf(failure.bench, sizeof failure.bench, "%s", bench->name);
    snprintf(failure.error, sizeof failure.error, "%s", remo_last_error());
    take_error(collector, &failure);
}

/* ---- peers ---- */

static void take_peer(void *ctx, const char *text) {
    struct collector *collector = ctx;
    struct bench_result result;
    json_t *object = json_loads(text, 0, NULL);
    if (object && bench_result_parse(object, &result) == 0) {
        add(&collector->peers, &result);
        collector->peer_failed |= result.error[0] != '\0';
        show(collector, result.peer);
    }
    json_decref(object);
}

/* Run the peers on the points of this benchmark: once per number of operating nodes and per skew of
 * the keys. */
static void run_peers(struct collector *collector, const struct bench *bench) {
    const struct bench_options *options = &collector->suite->options;
    struct bench_point points[BENCH_POINTS_MAX], passes[PASSES_MAX];
    uint32_t count = bench->list ? bench_points(bench, options, points) : 0, passes_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t known = 0;
        while (known < passes_count
               && (passes[known].active != points[i].active || passes[known].zipf != points[i].zipf))
            known++;
        if (known == passes_count && known < PASSES_MAX)
            passes[passes_count++] = points[i];
    }
    for (uint32_t i = 0; i < passes_count; i++) {
        struct peers_options peers = PEERS_OPTIONS_DEFAULT;
        peers.nodes = options->nodes;
        peers.seconds = options->seconds;
        peers.bytes = options->bytes;
        peers.window = options->window;
        peers.active = passes[i].active;
        peers.accounts_count = points[count - 1].accounts_count;
        peers.keys_count = passes[i].keys_count;
        peers.read_percent = options->read_percent;
        peers.zipf = passes[i].zipf > 0 ? passes[i].zipf : 0;
        for (uint32_t node = 0; node < 2; node++)
            peers.cpus[node] = options->pin ? bench_cpu(options, node, 0) : -1;
        show(collector, "peers");
        peers_run(NULL, bench->name, &peers, take_peer, collector);
    }
}

/* ---- medians ---- */

/* Reduce the runs of each point to their median, in the order of the first run. */
static void reduce(const struct results *results, struct results *ret_medians) {
    bool *used = calloc(results->count + 1, sizeof *used);
    *ret_medians = (struct results){0};
    for (uint32_t i = 0; used && i < results->count; i++) {
        const struct bench_result *same[BENCH_RUNS_MAX];
        struct bench_result median;
        uint32_t count = 0;
        for (uint32_t k = i; k < results->count && !used[i]; k++)
            if (!used[k] && bench_result_same(&results->at[i], &results->at[k]) && count < BENCH_RUNS_MAX) {
                same[count++] = &results->at[k];
                used[k] = k != i;
            }
        if (count == 0)
            continue;
        bench_result_median(same, count, &median);
        add(ret_medians, &median);
    }
    free(used);
}

static void print_json(const struct results *results) {
    for (uint32_t i = 0; i < results->count; i++) {
        char *text = bench_result_format(&results->at[i]);
        if (text)
            puts(text);
        free(text);
    }
    fflush(stdout);
}

static void print(struct collector *collector) {
    struct results own, peers;
    reduce(&collector->own, &own);
    reduce(&collector->peers, &peers);
    hide(collector);
    if (collector->suite->json) {
        print_json(&own);
        print_json(&peers);
    } else {
        bench_table_rows(&collector->table, own.at, own.count, peers.at, peers.count);
    }
    fflush(stdout);
    bench_warn_limits(stderr, own.at, own.count);
    for (uint32_t i = 0; i < own.count; i++)
        add(&collector->all_own, &own.at[i]);
    for (uint32_t i = 0; i < peers.count; i++)
        add(&collector->all_peers, &peers.at[i]);
    clear(&own);
    clear(&peers);
}

/* ---- the suite ---- */

static void run_bench(struct collector *collector, const struct bench *bench) {
    const struct bench_suite *suite = collector->suite;
    struct bench_point points[BENCH_POINTS_MAX];
    collector->bench = bench->name;
    collector->failed = collector->peer_failed = false;
    collector->points = suite->runs * (bench->list ? bench_points(bench, &suite->options, points) : 1);
    collector->points *= suite->simulated ? suite->nodes_count : 1;
    collector->points_done = 0;
    for (uint32_t run = 0; run < suite->runs && !collector->failed; run++) {
        show(collector, "");
        run_nodes(collector, bench);
        if (suite->peers && !collector->failed)
            run_peers(collector, bench);
    }
    print(collector);
    clear(&collector->own);
    clear(&collector->peers);
}

/* Check the plot's file and gnuplot before any measurement. A new file is removed again: a measurement may
 * fail or be interrupted. */
static int check_plot(const char *file) {
    bool is_new = access(file, F_OK) != 0;
    FILE *plot = fopen(file, "ae");
    if (!plot)
        return remo__fail(-errno, "cannot write %s: %s", file, strerror(errno));
    fclose(plot);
    if (is_new)
        unlink(file);
    if (!cli_is_in_path("gnuplot"))
        return remo__fail(-ENOENT, "gnuplot is not installed (apt-get install gnuplot-nox)");
    return 0;
}

/* Print the parameters of the simulated network. */
static void print_model(const struct collector *collector) {
    size_t index;
    const json_t *parameter;
    if (!collector->model)
        return;
    if (collector->suite->json) {
        json_t *line = json_pack("{s:O}", "model", collector->model);
        json_dumpf(line, stdout, JSON_COMPACT);
        printf("\n");
        json_decref(line);
        return;
    }
    uint32_t columns = collector->table.columns, indent = columns < 80 ? 6 : 36;
    printf("\n");
    text_wrap(stdout,
              "The network is simulated, with the parameters below (--model NAME=VALUE,... changes them). "
              "Computation between accesses to network memory is free.",
              columns, 0, 0);
    json_array_foreach(collector->model, index, parameter) {
        printf("  %-22s %9lld  ", json_string_value(json_object_get(parameter, "name")),
               (long long)json_integer_value(json_object_get(parameter, "value")));
        if (columns < 80)
            printf("\n%*s", (int)indent, "");
        text_wrap(stdout, json_string_value(json_object_get(parameter, "source")), columns, indent, indent);
    }
}

static void run_benches(struct collector *collector) {
    const struct bench_suite *suite = collector->suite;
    if (!suite->json)
        bench_table_begin(stdout, text_columns(stdout, TEXT_COLUMNS_DEFAULT), suite->peers,
                          &collector->table);
    for (uint32_t i = 0; i < suite->benches_count && !collector->interrupted; i++) {
        collector->bench_number = i + 1;
        run_bench(collector, suite->benches[i]);
        collector->failures += collector->failed || collector->peer_failed;
    }
    if (!suite->json)
        bench_table_end(&collector->table, collector->all_own.at, collector->all_own.count,
                        collector->all_peers.at, collector->all_peers.count);
    print_model(collector);
}

uint32_t bench_suite_run(const struct bench_suite *suite) {
    struct collector collector = {.suite = suite, .terminal = isatty(STDERR_FILENO)};
    int rc = suite->plot ? check_plot(suite->plot) : 0;
    if (rc == 0)
        run_benches(&collector);
    if (rc == 0 && suite->plot)
        rc = collector.model ? bench_plot_scaling(suite->plot, collector.all_own.at, collector.all_own.count,
                                                  collector.model)
                             : bench_plot(suite->plot, collector.all_own.at, collector.all_own.count,
                                          collector.all_peers.at, collector.all_peers.count);
    if (rc != 0)
        fprintf(stderr, "remo bench: --plot: %s\n", remo_last_error());
    clear(&collector.all_own);
    clear(&collector.all_peers);
    json_decref(collector.model);
    return collector.failures + (rc != 0);
}
