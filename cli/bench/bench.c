/* bench.c - `remo bench`: its options.
 * The measurement itself is in suite.c; the benchmarks are in bench/. */
#include <argp.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "bench/litmus/real.h"
#include "bench/program.h"
#include "bench/report/gnuplot.h"
#include "cli/bench/suite.h"
#include "cli/commands.h"
#include "fabric/fabric.h"

#define LITMUS "litmus"
#define SIMULATED "sim"
#define SIMULATED_NODES_MAX 128
#define SIMULATED_SECONDS 0.001
#define SIMULATED_KEYS 2000
#define NODES_MIN 2
#define VARIANT_LENGTH_MAX 32u
#define NODES_DEFAULT 2
#define KEYS_MAX (1ull << 32)
#define ACCOUNTS_MAX (1ull << 34)

struct request {
    struct bench_suite suite;
    bool list, worker; /* worker: this process is a node, and sends its results to standard output */
    bool litmus;       /* count reorderings instead of measuring */
};

enum key {
    KEY_WORKER = 256,
    KEY_NODES,
    KEY_THREADS,
    KEY_SECONDS,
    KEY_JSON,
    KEY_PEERS,
    KEY_PLOT,
    KEY_RUNS,
    KEY_PIN,
    KEY_NO_PIN,
    KEY_BYTES,
    KEY_WINDOW,
    KEY_KEYS,
    KEY_ACCOUNTS,
    KEY_READS,
    KEY_ZIPF,
    KEY_ACTIVE,
    KEY_VARIANT,
    KEY_LIST,
    KEY_FABRIC,
    KEY_MODEL,
};

static const struct argp_option option_list[] = {
    {"nodes", KEY_NODES, "N", 0,
     "node processes to start here (2); sim: A..B goes from A to B, doubling (2..32)", 0},
    {"threads", KEY_THREADS, "T", 0, "threads of each node that operate (1)", 0},
    {"fabric", KEY_FABRIC, "F", 0, "shm, ofi or verbs (shm); sim: a simulated network with a clock", 0},
    {"seconds", KEY_SECONDS, "S", 0, "time for each figure (1; sim: 0.001, of its clock)", 0},
    {"runs", KEY_RUNS, "R", 0, "measure everything R times and print medians (1)", 0},
    {"active", KEY_ACTIVE, "N", 0,
     "nodes that operate at the same time while the others sleep (1; all where the benchmark needs all)", 0},
    {"pin", KEY_PIN, 0, 0, "pin each thread to a processor, in turn (the default)", 0},
    {"no-pin", KEY_NO_PIN, 0, 0, "do not pin threads to processors", 0},
    {"bytes", KEY_BYTES, "B", 0, "read, write, ringbuffer, queue, rpc: this size instead of the usual ones",
     1},
    {"window", KEY_WINDOW, "W", 0,
     "read, write, fetch_add, kv, kv_insert, rpc: operations in flight; lookup, tatp, smallbank: tasks of a "
     "thread; scan (5000), mixed (5000 to 10,000): entries of a scan",
     1},
    {"keys", KEY_KEYS, "K", 0,
     "kv, kv_insert: room in the map, of which 80 % is filled (10 M; 100 k on a network); lookup, tree, "
     "scan, ycsb, mixed: keys (1 M; 20 k on a network); tatp, smallbank: subscribers, customers",
     1},
    {"reads", KEY_READS, "P", 0, "kv: this percentage of gets only, the rest are updates", 1},
    {"zipf", KEY_ZIPF, "THETA", 0, "kv, tree, scan, ycsb, mixed: this skew of the keys only; 0 is uniform",
     1},
    {"accounts", KEY_ACCOUNTS, "N", 0, "accounts: how many (100 M; 1 M on a network)", 1},
    {"variant", KEY_VARIANT, "NAME", 0,
     "measure only this variant, such as 'calls only'; '': the one without a name", 1},
    {"model", KEY_MODEL, "NAME=VALUE,...", 0, "sim: change these parameters of the network", 1},
    {"json", KEY_JSON, 0, 0, "print one JSON object a line instead of a table", 2},
    {"peers", KEY_PEERS, 0, 0,
     "measure Open MPI, OpenSHMEM, Redis, memcached, UCX, nng, LMDB, RocksDB, SQLite and PostgreSQL as well, "
     "if they are installed",
     2},
    {"plot", KEY_PLOT, "FILE", 0,
     "draw the figures to this .svg or .png file, and from the 13th on to FILE-2, ...; needs gnuplot", 2},
    {"list", KEY_LIST, 0, 0, "list the benchmarks, and exit", 2},
    {"worker", KEY_WORKER, 0, OPTION_HIDDEN, 0, 2},
    {0},
};

static const char documentation[] =
    "Start nodes on this machine, measure Remo's objects, and print each figure beside the limit of the "
    "hardware for the same work. Without a NAME, measure everything, which takes minutes; --list prints the "
    "names."
    "\vExamples:\n"
    "  remo bench read lock\n"
    "  remo bench kv --keys 100k --peers --plot kv.svg\n"
    "  remo bench barrier --nodes 4 --json | jq '{bench, p50_ns, ratio}'\n\n"
    "Operations shorter than 500 ns are timed in batches of about 20 us, because reading the clock takes 20 "
    "ns; percentiles are those of the means of batches. Longer operations are timed one by one, from the end "
    "of the operation before. With a window, times are per operation.\n\n"
    "The table fits the terminal; in a pipe it has 100 columns, or COLUMNS of the environment. Exit status: "
    "1 "
    "if something could not be measured; everything else is still measured.";

/* Parse a whole number in [minimum, maximum], with an optional suffix k, M or G; exit on an
 * error. */
static uint64_t parse_count(const char *text, uint64_t minimum, uint64_t maximum, struct argp_state *state) {
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10), scale = 1;
    if (end != text && (*end == 'k' || *end == 'M' || *end == 'G')) {
        scale = *end == 'k' ? 1000 : *end == 'M' ? 1000000 : 1000000000;
        end++;
    }
    if (errno || end == text || *end || *text == '-' || value > maximum / scale || value * scale < minimum)
        argp_error(state, "'%s' is not a number from %llu to %llu", text, (unsigned long long)minimum,
                   (unsigned long long)maximum);
    return value * scale;
}

static double parse_real(const char *text, double minimum, double maximum, struct argp_state *state) {
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= minimum && value <= maximum))
        argp_error(state, "'%s' is not a number from %g to %g", text, minimum, maximum);
    return value;
}

static const char *parse_fabric(const char *name, struct argp_state *state) {
    char known[128] = "";
    if (remo__fabric_find(name) || strcmp(name, SIMULATED) == 0)
        return name;
    for (uint32_t i = 0; remo__fabric_at(i); i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", remo__fabric_at(i)->name);
    }
    argp_error(state, "there is no fabric '%s'; this build has: %s, " SIMULATED, name, known);
    return NULL;
}

/* Parse "N" or, for the simulated network, "A..B". */
static void parse_nodes(const char *text, struct bench_suite *suite, struct argp_state *state) {
    const char *dots = strstr(text, "..");
    char first_text[16];
    if (!dots || dots - text >= (ptrdiff_t)sizeof first_text) {
        suite->nodes[0] = suite->options.nodes =
            (uint32_t)parse_count(text, NODES_MIN, REMO_NODES_MAX, state);
        suite->nodes_count = 1;
        return;
    }
    memcpy(first_text, text, (size_t)(dots - text));
    first_text[dots - text] = '\0';
    uint64_t first = parse_count(first_text, NODES_MIN, SIMULATED_NODES_MAX, state);
    uint64_t last = parse_count(dots + 2, first, SIMULATED_NODES_MAX, state);
    suite->nodes_count = 0;
    for (uint64_t nodes = first; nodes < last; nodes *= 2)
        suite->nodes[suite->nodes_count++] = (uint32_t)nodes;
    suite->nodes[suite->nodes_count++] = (uint32_t)last;
    suite->options.nodes = (uint32_t)last;
}

static void add_name(struct request *request, const char *name, struct argp_state *state) {
    struct bench_suite *suite = &request->suite;
    const struct bench *bench = bench_find(name);
    if (strcmp(name, LITMUS) == 0) {
        request->litmus = true;
        return;
    }
    if (!bench) {
        char known[256] = "";
        for (size_t i = 0, used = 0; bench_list[i] && used < sizeof known; i++)
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "",
                                     bench_list[i]->name);
        argp_error(state, "there is no benchmark '%s'; choose from: %s, " LITMUS, name, known);
    }
    if (suite->benches_count == BENCH_NAMES_MAX)
        argp_error(state, "more than %u benchmarks in one call", BENCH_NAMES_MAX);
    suite->benches[suite->benches_count++] = bench;
}

/* Set the defaults of the simulated network. */
static void simulate(struct bench_suite *suite, struct argp_state *state) {
    static const char *const names[] = {"kv", "barrier", "lock"};
    struct bench_options *options = &suite->options;
    suite->simulated = true;
    options->pin = false;
    options->seconds = options->seconds > 0 ? options->seconds : SIMULATED_SECONDS;
    options->keys_count = options->keys_count ? options->keys_count : SIMULATED_KEYS;
    options->window = options->window ? options->window : 1;
    options->zipf = options->zipf < 0 ? 0 : options->zipf;
    if (suite->nodes_count == 0)
        parse_nodes("2..32", suite, state);
    if (suite->peers)
        argp_error(state, "--peers measures this machine, and --fabric " SIMULATED " a simulated network");
    if (options->nodes > SIMULATED_NODES_MAX)
        argp_error(state, "the simulated network has at most %d nodes", SIMULATED_NODES_MAX);
    for (size_t i = 0; suite->benches_count == 0 && i < sizeof names / sizeof *names; i++)
        suite->benches[i] = bench_find(names[i]);
    suite->benches_count = suite->benches_count ? suite->benches_count : sizeof names / sizeof *names;
    for (uint32_t i = 0; i < suite->benches_count; i++)
        if (suite->benches[i]->report)
            argp_error(state, "'%s' measures this machine, not a network; leave it out",
                       suite->benches[i]->name);
}

static void add_all(struct bench_suite *suite) {
    while (bench_list[suite->benches_count]) {
        suite->benches[suite->benches_count] = bench_list[suite->benches_count];
        suite->benches_count++;
    }
}

/* Parse the options that the nodes need. */
static error_t parse_measurement(int key, const char *text, struct bench_options *options,
                                 struct argp_state *state) {
    switch (key) {
    case KEY_THREADS: options->threads = (uint32_t)parse_count(text, 1, BENCH_THREADS_MAX, state); break;
    case KEY_ACTIVE: options->active = (uint32_t)parse_count(text, 1, REMO_NODES_MAX, state); break;
    case KEY_FABRIC: options->fabric = parse_fabric(text, state); break;
    case KEY_SECONDS: options->seconds = parse_real(text, 0.0001, 3600, state); break;
    case KEY_PIN: options->pin = true; break;
    case KEY_NO_PIN: options->pin = false; break;
    case KEY_BYTES: options->bytes = parse_count(text, 1, BENCH_BYTES_MAX, state); break;
    case KEY_WINDOW: options->window = (uint32_t)parse_count(text, 1, BENCH_WINDOW_MAX, state); break;
    case KEY_KEYS: options->keys_count = parse_count(text, 100, KEYS_MAX, state); break;
    case KEY_ACCOUNTS: options->accounts_count = parse_count(text, 1000, ACCOUNTS_MAX, state); break;
    case KEY_READS: options->read_percent = (int)parse_count(text, 0, 100, state); break;
    case KEY_ZIPF: options->zipf = parse_real(text, 0, 0.999, state); break;
    case KEY_VARIANT:
        if (strlen(text) > VARIANT_LENGTH_MAX)
            argp_error(state, "no variant has a name of more than %u characters", VARIANT_LENGTH_MAX);
        options->variant = text;
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static error_t parse_option(int key, char *text, struct argp_state *state) {
    struct request *request = state->input;
    struct bench_suite *suite = &request->suite;
    switch (key) {
    case KEY_NODES: parse_nodes(text, suite, state); break;
    case KEY_MODEL: suite->model = text; break;
    case KEY_JSON: suite->json = true; break;
    case KEY_PEERS: suite->peers = true; break;
    case KEY_PLOT:
        if (gnuplot_check(text) != 0)
            argp_error(state, "%s", remo_last_error());
        suite->plot = text;
        break;
    case KEY_RUNS: suite->runs = (uint32_t)parse_count(text, 1, BENCH_RUNS_MAX, state); break;
    case KEY_LIST: request->list = true; break;
    case KEY_WORKER: request->worker = true; break;
    case ARGP_KEY_ARG: add_name(request, text, state); break;
    case ARGP_KEY_END:
        if (request->litmus && suite->benches_count > 0)
            argp_error(state, LITMUS " measures nothing; run it alone");
        if (strcmp(suite->options.fabric, SIMULATED) == 0)
            simulate(suite, state);
        else if (suite->nodes_count > 1 || suite->model)
            argp_error(state, "--nodes A..B and --model are for --fabric " SIMULATED);
        if (suite->options.seconds == 0)
            suite->options.seconds = 1;
        if (suite->benches_count == 0 && !request->litmus)
            add_all(suite);
        break;
    default: return parse_measurement(key, text, &suite->options, state);
    }
    return 0;
}

static int print_list(void) {
    for (size_t i = 0; bench_list[i]; i++)
        printf("%-14s %s\n", bench_list[i]->name, bench_list[i]->description);
    printf("%-14s %s\n", LITMUS,
           "which reorderings of operations are seen on this fabric; --seconds for each row; by itself");
    return 0;
}

static int run_litmus(const struct bench_suite *suite) {
    struct litmus_report report;
    int rc = litmus_run(suite->options.fabric, suite->options.seconds, &report);
    if (rc != 0) {
        fprintf(stderr, "remo bench: " LITMUS ": %s\n", remo_last_error());
        return 1;
    }
    if (suite->json)
        litmus_print_json(stdout, &report);
    else
        litmus_print(stdout, &report);
    return report.failures > 0;
}

int cli_bench(int argc, char **argv) {
    static const struct argp parser = {option_list, parse_option, "[NAME...]", documentation,
                                       NULL,        NULL,         NULL};
    char program[PATH_MAX];
    struct request request = {0};
    struct bench_options *options = &request.suite.options;
    *options = (struct bench_options){
        .fabric = "shm", .nodes = NODES_DEFAULT, .threads = 1, .pin = true, .read_percent = -1, .zipf = -1};
    request.suite.runs = 1;
    bench_program_path(program, sizeof program);
    request.suite.program = program;
    bench_find_cpus(options);
    argp_err_exit_status = 2;
    if (argp_parse(&parser, argc, argv, 0, NULL, &request))
        return 2;
    if (request.list)
        return print_list();
    if (request.litmus)
        return run_litmus(&request.suite);
    if (request.worker)
        return bench_work(request.suite.benches[0], options, STDOUT_FILENO) == 0 ? 0 : 1;
    return bench_suite_run(&request.suite) == 0 ? 0 : 1;
}
