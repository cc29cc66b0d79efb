/* measure.c - options, time and output of the programs that measure peers (measure.h).
 * Operations are timed in batches, as in `remo bench`. */
#include "measure.h"

#include "base/clock.h"

#include <argp.h>
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#define BATCH_NS 20000.0
#define SAMPLES_MAX (1u << 18)
#define WARM_UP_SECONDS_MAX 0.1
#define OPERATIONS_MAX (1ull << 24)

/* ---- options ---- */

static const struct argp_option option_list[] = {
    {"peer", 'p', "NAME", 0, "name to print", 0},
    {"bench", 'b', "NAME", 0, "benchmark to run", 0},
    {"transport", 't', "NAME", 0, "how a server is reached: " MEASURE_TCP " or " MEASURE_UNIX, 0},
    {"seconds", 's', "S", 0, "time for each figure (1)", 0},
    {"bytes", 'n', "N", 0, "size of a read or a write", 0},
    {"window", 'w', "N", 0, "operations outstanding", 0},
    {"active", 'a', "N", 0, "processes that work while the others wait (1)", 0},
    {"accounts", 'A', "N", 0, "accounts (100000000)", 0},
    {"keys", 'k', "N", 0, "keys (1000000)", 0},
    {"reads", 'r', "PERCENT", 0, "share of reads", 0},
    {"zipf", 'z', "THETA", 0, "skew of the keys (0: uniform)", 0},
    {"cpus", 'c', "A,B", 0, "processors to pin to (0,1)", 0},
    {0},
};

/* Parse a whole number in [minimum, maximum], or exit. */
static uint64_t parse_count(const char *text, uint64_t minimum, uint64_t maximum, struct argp_state *state) {
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno || end == text || *end || *text == '-' || value < minimum || value > maximum)
        argp_error(state, "'%s' is not a number from %llu to %llu", text, (unsigned long long)minimum,
                   (unsigned long long)maximum);
    return value;
}

static double parse_real(const char *text, double minimum, double maximum, struct argp_state *state) {
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= minimum && value <= maximum))
        argp_error(state, "'%s' is not a number from %g to %g", text, minimum, maximum);
    return value;
}

static error_t parse_option(int key, char *argument, struct argp_state *state) {
    struct measure_options *options = state->input;
    switch (key) {
    case 'p': options->peer = argument; break;
    case 'b': options->bench = argument; break;
    case 't':
        if (strcmp(argument, MEASURE_TCP) != 0 && strcmp(argument, MEASURE_UNIX) != 0)
            argp_error(state, "'%s' is neither " MEASURE_TCP " nor " MEASURE_UNIX, argument);
        options->transport = argument;
        break;
    case 's': options->seconds = parse_real(argument, MEASURE_SECONDS_MIN, 3600, state); break;
    case 'n': options->bytes = parse_count(argument, 1, 1 << 20, state); break;
    case 'w': options->window = (unsigned)parse_count(argument, 1, 1024, state); break;
    case 'a': options->active = (unsigned)parse_count(argument, 1, 64, state); break;
    case 'A': options->accounts_count = parse_count(argument, 1000, 1ull << 34, state); break;
    case 'k': options->keys_count = parse_count(argument, 1, 1ull << 34, state); break;
    case 'r': options->read_percent = (int)parse_count(argument, 0, 100, state); break;
    case 'z': options->zipf = parse_real(argument, 0, 0.999, state); break;
    case 'c':
        if (sscanf(argument, "%d,%d", &options->cpus[0], &options->cpus[1]) != 2)
            argp_error(state, "'%s' is not two processors, like 0,1", argument);
        break;
    case ARGP_KEY_ARG: argp_error(state, "'%s' is not an option", argument); break;
    case ARGP_KEY_END:
        if (!options->bench || !options->peer)
            argp_error(state, "--bench and --peer are needed");
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

void measure_parse(int argc, char **argv, struct measure_options *ret_options) {
    static const struct argp parser = {.options = option_list,
                                       .parser = parse_option,
                                       .doc = "Measures one peer of Remo; `remo bench --peers` runs it."};
    *ret_options = (struct measure_options){.seconds = 1,
                                            .active = 1,
                                            .accounts_count = 100000000,
                                            .keys_count = 1000000,
                                            .read_percent = -1,
                                            .cpus = {0, 1}};
    if (argp_parse(&parser, argc, argv, 0, NULL, ret_options))
        exit(1);
}

void measure_settle(const struct measure_options *options, int rank) {
    int cpu = options->cpus[rank % 2];
    cpu_set_t set;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (cpu < 0)
        return;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set))
        fprintf(stderr, "cannot pin to processor %d: %s\n", cpu, strerror(errno));
}

/* ---- time ---- */

static int compare_floats(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Return the size of a batch, found while warming up. */
static uint64_t find_batch(measure_batch batch, void *ctx, unsigned window, double seconds) {
    double budget_seconds = seconds / 10 < WARM_UP_SECONDS_MAX ? seconds / 10 : WARM_UP_SECONDS_MAX;
    uint64_t deadline = remo__deadline((uint64_t)(budget_seconds * 1e9));
    uint64_t operations = window;
    do {
        /* Twice: an interruption may make one batch seem long enough. */
        if (batch(ctx, operations) < BATCH_NS && batch(ctx, operations) < BATCH_NS
            && operations < OPERATIONS_MAX)
            operations *= 2;
    } while (remo__remaining_ns(deadline) > 0);
    return operations;
}

void measure_run(measure_batch batch, void *ctx, unsigned window, double seconds,
                 struct measure_result *ret_result) {
    float *samples = malloc(SAMPLES_MAX * sizeof *samples);
    if (!samples) {
        fprintf(stderr, "no memory for the samples\n");
        exit(1);
    }
    uint64_t operations = find_batch(batch, ctx, window, seconds);
    uint64_t deadline = remo__deadline((uint64_t)(seconds * 1e9));
    uint64_t count = 0, batches = 0;
    double total_ns = 0;
    do {
        double took_ns = batch(ctx, operations);
        total_ns += took_ns;
        batches++;
        /* In a very long run, the first samples are kept. */
        if (count < SAMPLES_MAX)
            samples[count++] = (float)(took_ns / (double)operations);
    } while (remo__remaining_ns(deadline) > 0);
    qsort(samples, count, sizeof *samples, compare_floats);
    uint64_t ops = batches * operations;
    *ret_result = (struct measure_result){.ops = ops,
                                          .seconds = total_ns / 1e9,
                                          .ops_per_s = (double)ops * 1e9 / total_ns,
                                          .p50_ns = samples[count / 2],
                                          .p99_ns = samples[count * 99 / 100],
                                          .p999_ns = samples[count * 999 / 1000]};
    free(samples);
}

void measure_merge(const struct measure_result *results, int count, struct measure_result *ret_merged) {
    struct measure_result merged = {0};
    for (int i = 0; i < count; i++) {
        merged.ops += results[i].ops;
        merged.ops_per_s += results[i].ops_per_s;
        merged.p50_ns += results[i].p50_ns / count;
        merged.seconds = fmax(merged.seconds, results[i].seconds);
        merged.p99_ns = fmax(merged.p99_ns, results[i].p99_ns);
        merged.p999_ns = fmax(merged.p999_ns, results[i].p999_ns);
    }
    *ret_merged = merged;
}

/* ---- output ---- */

/* A line is formatted before it is written, so that lines of several processes do not mix. */
struct line {
    char text[1024];
    size_t used;
};

__attribute__((format(printf, 2, 3))) static void append(struct line *line, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line->text + line->used, sizeof line->text - line->used, format, arguments);
    va_end(arguments);
    if (length > 0 && (size_t)length < sizeof line->text - line->used)
        line->used += (size_t)length;
}

static void begin_line(struct line *line, const struct measure_options *options,
                       const struct measure_subject *subject) {
    line->used = 0;
    append(line, "{\"peer\":\"%s\",\"bench\":\"%s\",\"object\":\"%s\",\"nodes\":%d,\"threads\":%u",
           options->peer, subject->bench, subject->object, subject->nodes,
           subject->threads ? subject->threads : 1);
    if (subject->variant)
        append(line, ",\"variant\":\"%s\"", subject->variant);
    if (options->transport)
        append(line, ",\"transport\":\"%s\"", options->transport);
    if (subject->bytes)
        append(line, ",\"bytes\":%llu", (unsigned long long)subject->bytes);
    if (subject->window)
        append(line, ",\"window\":%u", subject->window);
    if (subject->active)
        append(line, ",\"active\":%u", subject->active);
    if (subject->accounts_count)
        append(line, ",\"accounts\":%llu", (unsigned long long)subject->accounts_count);
    if (subject->keys_count)
        append(line, ",\"keys\":%llu", (unsigned long long)subject->keys_count);
    if (subject->keys)
        append(line, ",\"distribution\":\"%s\"", subject->keys);
    if (subject->read_percent >= 0)
        append(line, ",\"read_percent\":%d", subject->read_percent);
}

void measure_print(const struct measure_options *options, const struct measure_subject *subject,
                   const struct measure_result *result) {
    struct line line;
    begin_line(&line, options, subject);
    append(&line, ",\"seconds\":%.3f,\"ops\":%llu,\"ops_per_s\":%.0f", result->seconds,
           (unsigned long long)result->ops, result->ops_per_s);
    append(&line, ",\"p50_ns\":%.2f,\"p99_ns\":%.2f,\"p999_ns\":%.2f}\n", result->p50_ns, result->p99_ns,
           result->p999_ns);
    fwrite(line.text, 1, line.used, stdout);
    fflush(stdout);
}

void measure_print_error(const struct measure_options *options, const struct measure_subject *subject,
                         const char *sentence) {
    struct line line;
    begin_line(&line, options, subject);
    append(&line, ",\"error\":\"%s\"}\n", sentence);
    fwrite(line.text, 1, line.used, stdout);
    fflush(stdout);
}

void measure_print_end(int rank) {
    if (rank != 0)
        return;
    fputs("{\"end\":true}\n", stdout);
    fflush(stdout);
}
