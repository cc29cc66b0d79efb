/* result.c - results as JSON, comparison, medians, titles (result.h).
 * The tables of figures below define the order of the JSON members. */
#include "bench/report/result.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"

#define RATIO_MIN 0.95

/* The members with figures, in the order of the interface. */
static const struct figure {
    const char *name;
    size_t at;
    bool whole;
} figures[] = {
    {"seconds", offsetof(struct bench_result, seconds), false},
    {"ops", offsetof(struct bench_result, ops), true},
    {"ops_per_s", offsetof(struct bench_result, ops_per_s), true},
    {"p50_ns", offsetof(struct bench_result, p50_ns), false},
    {"p99_ns", offsetof(struct bench_result, p99_ns), false},
    {"p999_ns", offsetof(struct bench_result, p999_ns), false},
    {"limit_ns", offsetof(struct bench_result, limit_ns), false},
};

static const struct figure net_figures[] = {
    {"reads", offsetof(struct bench_result, reads), false},
    {"writes", offsetof(struct bench_result, writes), false},
    {"atomics", offsetof(struct bench_result, atomics), false},
    {"imms", offsetof(struct bench_result, imms), false},
    {"bytes", offsetof(struct bench_result, net_bytes), false},
};

/* Present only if the fabric counts them. */
static const struct figure wire_figures[] = {
    {"work_requests", offsetof(struct bench_result, wire_requests), false},
    {"posts", offsetof(struct bench_result, wire_posts), false},
    {"signalled", offsetof(struct bench_result, wire_signalled), false},
    {"inline", offsetof(struct bench_result, wire_inlined), false},
    {"bytes", offsetof(struct bench_result, wire_bytes), false},
};

/* Each is present only if it applies. */
static const struct figure rare_figures[] = {
    {"reserved_per_live", offsetof(struct bench_result, reserved_per_live), false},
    {"repeats", offsetof(struct bench_result, repeats), false},
};

static double *figure_at(struct bench_result *result, const struct figure *figure) {
    return (double *)((char *)result + figure->at);
}

static double figure_of(const struct bench_result *result, const struct figure *figure) {
    return *(const double *)((const char *)result + figure->at);
}

void bench_result_reset(struct bench_result *result) {
    *result = (struct bench_result){.read_percent = -1, .runs = 1, .ratio = NAN};
    for (size_t i = 0; i < REMO__ARRAY_COUNT(figures); i++)
        *figure_at(result, &figures[i]) = NAN;
    for (size_t i = 0; i < REMO__ARRAY_COUNT(net_figures); i++)
        *figure_at(result, &net_figures[i]) = NAN;
    for (size_t i = 0; i < REMO__ARRAY_COUNT(wire_figures); i++)
        *figure_at(result, &wire_figures[i]) = NAN;
    for (size_t i = 0; i < REMO__ARRAY_COUNT(rare_figures); i++)
        *figure_at(result, &rare_figures[i]) = NAN;
}

/* ---- to JSON ---- */

/* Five digits are more than the accuracy of the measurement. */
static json_t *number(double value, bool whole) {
    if (!isfinite(value))
        return json_null();
    if (whole)
        return json_integer((json_int_t)llround(value));
    char text[40];
    snprintf(text, sizeof text, "%.5g", value);
    return json_real(strtod(text, NULL));
}

static void put_text(json_t *object, const char *name, const char *text) {
    if (text[0])
        json_object_set_new(object, name, json_string(text));
}

static void put_count(json_t *object, const char *name, uint64_t count) {
    if (count)
        json_object_set_new(object, name, json_integer((json_int_t)count));
}

static void put_figures(json_t *object, const struct bench_result *result, const struct figure *list,
                        size_t count) {
    for (size_t i = 0; i < count; i++)
        json_object_set_new(object, list[i].name, number(figure_of(result, &list[i]), list[i].whole));
}

static void put_subject(json_t *object, const struct bench_result *result) {
    put_text(object, "peer", result->peer);
    put_text(object, "transport", result->transport);
    put_text(object, "bench", result->bench);
    put_text(object, "object", result->object);
    put_text(object, "variant", result->variant);
    put_text(object, "fabric", result->fabric);
    put_count(object, "nodes", result->nodes);
    put_count(object, "threads", result->threads);
    put_count(object, "active", result->active);
    json_object_set_new(object, "bytes", json_integer((json_int_t)result->bytes));
    json_object_set_new(object, "window", json_integer(result->window));
    put_count(object, "keys", result->keys_count);
    put_count(object, "accounts", result->accounts_count);
    if (result->read_percent >= 0)
        json_object_set_new(object, "read_percent", json_integer(result->read_percent));
    put_text(object, "distribution", result->distribution);
}

char *bench_result_format(const struct bench_result *result) {
    json_t *object = json_object();
    put_subject(object, result);
    put_text(object, "error", result->error);
    put_text(object, "skipped", result->skipped);
    if (!result->error[0] && !result->skipped[0]) {
        put_count(object, "runs", result->runs);
        put_count(object, "batch", result->batch);
        put_figures(object, result, figures, REMO__ARRAY_COUNT(figures));
        json_object_set_new(object, "limit", result->limit[0] ? json_string(result->limit) : json_null());
        json_object_set_new(object, "ratio", number(result->ratio, false));
        json_t *net = json_object();
        put_figures(net, result, net_figures, REMO__ARRAY_COUNT(net_figures));
        json_object_set_new(object, "net", net);
        json_t *wire = json_object();
        put_figures(wire, result, wire_figures, REMO__ARRAY_COUNT(wire_figures));
        if (isfinite(result->wire_requests))
            json_object_set(object, "verbs", wire);
        json_decref(wire);
        for (size_t i = 0; i < REMO__ARRAY_COUNT(rare_figures); i++)
            if (isfinite(figure_of(result, &rare_figures[i])))
                put_figures(object, result, &rare_figures[i], 1);
    }
    char *text = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(6));
    json_decref(object);
    return text;
}

/* ---- from JSON ---- */

static void take_text(const json_t *object, const char *name, char *ret_text, size_t text_bytes) {
    const char *text = json_string_value(json_object_get(object, name));
    snprintf(ret_text, text_bytes, "%s", text ? text : "");
}

static uint64_t take_count(const json_t *object, const char *name) {
    json_int_t value = json_integer_value(json_object_get(object, name));
    return value > 0 ? (uint64_t)value : 0;
}

static void take_figures(const json_t *object, struct bench_result *result, const struct figure *list,
                         size_t count) {
    for (size_t i = 0; i < count; i++) {
        const json_t *value = json_object_get(object, list[i].name);
        *figure_at(result, &list[i]) = json_is_number(value) ? json_number_value(value) : NAN;
    }
}

int bench_result_parse(const json_t *object, struct bench_result *ret_result) {
    struct bench_result result;
    if (!json_is_object(object) || !json_is_string(json_object_get(object, "bench")))
        return -EINVAL;
    bench_result_reset(&result);
    take_text(object, "peer", result.peer, sizeof result.peer);
    take_text(object, "transport", result.transport, sizeof result.transport);
    take_text(object, "bench", result.bench, sizeof result.bench);
    take_text(object, "object", result.object, sizeof result.object);
    take_text(object, "variant", result.variant, sizeof result.variant);
    take_text(object, "fabric", result.fabric, sizeof result.fabric);
    take_text(object, "distribution", result.distribution, sizeof result.distribution);
    take_text(object, "limit", result.limit, sizeof result.limit);
    take_text(object, "error", result.error, sizeof result.error);
    take_text(object, "skipped", result.skipped, sizeof result.skipped);
    result.nodes = (uint32_t)take_count(object, "nodes");
    result.threads = (uint32_t)take_count(object, "threads");
    result.active = (uint32_t)take_count(object, "active");
    result.window = (uint32_t)take_count(object, "window");
    result.batch = (uint32_t)take_count(object, "batch");
    result.runs = (uint32_t)take_count(object, "runs");
    result.bytes = take_count(object, "bytes");
    result.keys_count = take_count(object, "keys");
    result.accounts_count = take_count(object, "accounts");
    const json_t *reads = json_object_get(object, "read_percent");
    result.read_percent = json_is_integer(reads) ? (int)json_integer_value(reads) : -1;
    take_figures(object, &result, figures, REMO__ARRAY_COUNT(figures));
    const json_t *ratio = json_object_get(object, "ratio");
    result.ratio = json_is_number(ratio) ? json_number_value(ratio) : NAN;
    take_figures(json_object_get(object, "net"), &result, net_figures, REMO__ARRAY_COUNT(net_figures));
    take_figures(json_object_get(object, "verbs"), &result, wire_figures, REMO__ARRAY_COUNT(wire_figures));
    take_figures(object, &result, rare_figures, REMO__ARRAY_COUNT(rare_figures));
    *ret_result = result;
    return 0;
}

/* ---- comparing ---- */

static bool texts_match(const char *a, const char *b) {
    return !a[0] || !b[0] || strcmp(a, b) == 0;
}

static bool counts_match(uint64_t a, uint64_t b) {
    return !a || !b || a == b;
}

int bench_result_matches(const struct bench_result *a, const struct bench_result *b) {
    /* A server's one client compares with each node, so kv ignores `active`. */
    bool compare_active = strcmp(a->bench, "kv") != 0;
    /* The peers with calls have only the points without a variant. The peers of the ordered map have
     * points with the same names. */
    bool compare_variant = strcmp(a->bench, "rpc") == 0 || strcmp(a->object, "tree") == 0;
    return strcmp(a->bench, b->bench) == 0 && texts_match(a->object, b->object)
           && counts_match(a->bytes, b->bytes) && counts_match(a->window, b->window)
           && counts_match(a->accounts_count, b->accounts_count)
           && (!compare_active || counts_match(a->active, b->active))
           && (!compare_variant || strcmp(a->variant, b->variant) == 0)
           && (a->read_percent < 0 || b->read_percent < 0 || a->read_percent == b->read_percent)
           && texts_match(a->distribution, b->distribution);
}

int bench_result_competes(const struct bench_result *own, const struct bench_result *peer) {
    struct bench_result any_window = *peer;
    if (strcmp(own->object, "tx") == 0)
        any_window.window = 0;
    return bench_result_matches(own, &any_window);
}

int bench_result_same(const struct bench_result *a, const struct bench_result *b) {
    return strcmp(a->peer, b->peer) == 0 && strcmp(a->transport, b->transport) == 0
           && strcmp(a->bench, b->bench) == 0 && a->nodes == b->nodes && strcmp(a->object, b->object) == 0
           && strcmp(a->variant, b->variant) == 0 && a->bytes == b->bytes && a->window == b->window
           && a->active == b->active && a->read_percent == b->read_percent
           && strcmp(a->distribution, b->distribution) == 0;
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of(const struct bench_result *const *results, uint32_t count,
                        const struct figure *figure) {
    double values[64];
    uint32_t known = 0;
    for (uint32_t i = 0; i < count && known < REMO__ARRAY_COUNT(values); i++) {
        double value = figure_of(results[i], figure);
        if (isfinite(value))
            values[known++] = value;
    }
    if (known == 0)
        return NAN;
    qsort(values, known, sizeof *values, compare_doubles);
    return known % 2 ? values[known / 2] : (values[known / 2 - 1] + values[known / 2]) / 2;
}

void bench_result_median(const struct bench_result *const *results, uint32_t count,
                         struct bench_result *ret_result) {
    struct bench_result median = *results[0];
    for (size_t i = 0; i < REMO__ARRAY_COUNT(figures); i++)
        *figure_at(&median, &figures[i]) = median_of(results, count, &figures[i]);
    for (size_t i = 0; i < REMO__ARRAY_COUNT(net_figures); i++)
        *figure_at(&median, &net_figures[i]) = median_of(results, count, &net_figures[i]);
    for (size_t i = 0; i < REMO__ARRAY_COUNT(wire_figures); i++)
        *figure_at(&median, &wire_figures[i]) = median_of(results, count, &wire_figures[i]);
    for (size_t i = 0; i < REMO__ARRAY_COUNT(rare_figures); i++)
        *figure_at(&median, &rare_figures[i]) = median_of(results, count, &rare_figures[i]);
    median.ratio = median.p50_ns / median.limit_ns;
    median.runs = count;
    *ret_result = median;
}

bool bench_result_beats_limit(const struct bench_result *result) {
    return isfinite(result->ratio) && result->ratio < RATIO_MIN;
}

/* ---- text for people ---- */

static void format_bytes(char ret_text[32], uint64_t bytes) {
    static const char *const units[] = {"B", "KiB", "MiB"};
    size_t unit = 0;
    while (unit < 2 && bytes >= 1024 && bytes % 1024 == 0) {
        bytes /= 1024;
        unit++;
    }
    snprintf(ret_text, 32, "%llu %s", (unsigned long long)bytes, units[unit]);
}

void bench_result_peer(const struct bench_result *result, char *ret_text, size_t text_bytes) {
    const char *transport = result->transport;
    if (strcmp(transport, "tcp") == 0)
        transport = "TCP";
    else if (strcmp(transport, "unix") == 0)
        transport = "Unix socket";
    snprintf(ret_text, text_bytes, "%s%s%s", result->peer, transport[0] ? ", " : "", transport);
}

void bench_result_title(const struct bench_result *result, char *ret_text, size_t text_bytes) {
    char bytes[40] = "", reads[24] = "", window[24] = "", distribution[40] = "", nodes[24] = "",
         memory[48] = "";
    const char *variant = result->variant;
    bool is_kv = strcmp(result->bench, "kv") == 0;
    if (result->bytes && !is_kv) {
        bytes[0] = ' ';
        format_bytes(bytes + 1, result->bytes);
    }
    if (result->read_percent >= 0)
        snprintf(reads, sizeof reads, " %d %% get", result->read_percent);
    if (result->window > 1 || is_kv)
        snprintf(window, sizeof window, ", window %u", result->window);
    if (result->distribution[0])
        snprintf(distribution, sizeof distribution, ", %s", result->distribution);
    if (!variant[0] && strcmp(result->bench, "accounts") == 0)
        variant = result->object;
    if (strcmp(result->object, "machine") == 0) { /* a limit needs no further title */
        snprintf(ret_text, text_bytes, "%s", variant);
        return;
    }
    if (strcmp(result->fabric, "sim") == 0)
        snprintf(nodes, sizeof nodes, ", %u nodes", result->nodes);
    if (isfinite(result->reserved_per_live))
        snprintf(memory, sizeof memory, ", %.2f B reserved per B", result->reserved_per_live);
    snprintf(ret_text, text_bytes, "%s%s%s%s%s%s%s%s%s", result->bench, variant[0] ? " " : "", variant, bytes,
             reads, window, distribution, nodes, memory);
}
