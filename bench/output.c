/* output.c - the table of `remo bench`. */
#include "bench/output.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TITLE_COLUMNS 50

static void format_time(char ret_text[16], double ns) {
    static const struct {
        double from, unit;
        const char *name;
    } scales[] = {{1e9, 1e9, "s"}, {1e6, 1e6, "ms"}, {1e3, 1e3, "us"}, {0, 1, "ns"}};
    size_t i = 0;
    if (!isfinite(ns)) {
        snprintf(ret_text, 16, "-");
        return;
    }
    while (ns < scales[i].from)
        i++;
    double value = ns / scales[i].unit;
    snprintf(ret_text, 16, "%.*f %s", value < 10 ? 2 : value < 100 ? 1 : 0, value, scales[i].name);
}

static void format_rate(char ret_text[16], double per_s) {
    static const char *const units[] = {"", " k", " M", " G"};
    size_t unit = 0;
    if (!isfinite(per_s)) {
        snprintf(ret_text, 16, "-");
        return;
    }
    while (per_s >= 1000 && unit < 3) {
        per_s /= 1000;
        unit++;
    }
    snprintf(ret_text, 16, "%.*f%s/s", per_s < 10 ? 2 : per_s < 100 ? 1 : 0, per_s, units[unit]);
}

static void format_factor(char ret_text[16], double factor) {
    if (isfinite(factor))
        snprintf(ret_text, 16, "%.*f", factor < 100 ? 1 : 0, factor);
    else
        snprintf(ret_text, 16, "-");
}

/* "1 r 2 a 1 w": reads, atomics and writes for one operation; those with a wake-up in brackets. */
static void format_net(char ret_text[40], const struct bench_result *result) {
    const struct {
        double count;
        const char *name;
    } parts[] = {{result->reads, "r"}, {result->atomics, "a"}, {result->writes, "w"}};
    size_t used = 0;
    ret_text[0] = '\0';
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (isfinite(parts[i].count) && parts[i].count >= 0.005)
            used += (size_t)snprintf(ret_text + used, 40 - used, "%s%.3g %s", used ? " " : "",
                                     round(parts[i].count * 100) / 100, parts[i].name);
    if (used == 0)
        snprintf(ret_text, 40, "%s", isfinite(result->reads) ? "none" : "-");
}

/* How many times faster than the peer. Where both have several processes at work on the same thing, what
 * counts is what they get done together; else the usual time of an operation, which other load on the machine
 * spoils less. */
static double times_faster(const struct bench_result *own, const struct bench_result *peer) {
    return own->active > 1 && own->active == peer->active ? own->ops_per_s / peer->ops_per_s
                                                          : peer->p50_ns / own->p50_ns;
}

/* Of those peers that measured the same, the one that comes closest; NAN when none did. */
static double best_factor(const struct bench_result *own, const struct bench_result *peers, uint32_t count) {
    double best = NAN;
    for (uint32_t i = 0; i < count; i++)
        if (isfinite(peers[i].p50_ns) && bench_result_matches(own, &peers[i]))
            best = fmin(best, times_faster(own, &peers[i]));
    return best;
}

static void print_row(FILE *out, const struct bench_result *result, const char *title, double factor,
                      bool with_peers) {
    char rate[16], p50[16], p99[16], p999[16], limit[16], ratio[16], net[40], times[16];
    format_rate(rate, result->ops_per_s);
    format_time(p50, result->p50_ns);
    format_time(p99, result->p99_ns);
    format_time(p999, result->p999_ns);
    format_time(limit, result->limit_ns);
    format_factor(ratio, result->ratio);
    format_net(net, result);
    fprintf(out, "%-*s %10s %8s %8s %8s %8s %6s  %-15s", TITLE_COLUMNS, title, rate, p50, p99, p999, limit,
            ratio, net);
    if (with_peers && isfinite(factor)) {
        format_factor(times, factor);
        fprintf(out, " %s x", times);
    }
    fprintf(out, "\n");
}

static void print_peer(FILE *out, const struct bench_result *peer, bool with_title) {
    char title[160], subject[112] = "";
    if (with_title)
        bench_result_title(peer, subject, sizeof subject);
    snprintf(title, sizeof title, "  %s%s%s", peer->peer, subject[0] ? ": " : "", subject);
    if (peer->skipped[0])
        fprintf(out, "%s: left out: %s\n", title, peer->skipped);
    else if (peer->error[0])
        fprintf(out, "%s: failed: %s\n", title, peer->error);
    else
        print_row(out, peer, title, NAN, false);
}

void bench_table_head(FILE *out, bool with_peers) {
    fprintf(out, "%-*s %10s %8s %8s %8s %8s %6s  %-15s%s\n", TITLE_COLUMNS, "one operation", "ops/s", "p50",
            "p99", "p99.9", "limit", "ratio", "network ops", with_peers ? " times the best peer" : "");
    fflush(out);
}

void bench_table_rows(FILE *out, const struct bench_result *own, uint32_t own_count,
                      const struct bench_result *peers, uint32_t peers_count, bool with_peers) {
    char *printed = calloc(peers_count + 1, 1);
    for (uint32_t i = 0; i < own_count; i++) {
        char title[112];
        if (own[i].error[0]) {
            fprintf(out, "%-*s %10s\n", TITLE_COLUMNS, own[i].bench, "failed");
            continue;
        }
        bench_result_title(&own[i], title, sizeof title);
        print_row(out, &own[i], title, best_factor(&own[i], peers, peers_count), with_peers);
        for (uint32_t p = 0; printed && p < peers_count; p++) {
            if (printed[p] || !isfinite(peers[p].p50_ns) || !bench_result_matches(&own[i], &peers[p]))
                continue;
            print_peer(out, &peers[p], false);
            printed[p] = 1;
        }
    }
    for (uint32_t p = 0; printed && p < peers_count; p++)
        if (!printed[p])
            print_peer(out, &peers[p], true);
    free(printed);
    fflush(out);
}

void bench_table_foot(FILE *out) {
    fprintf(
        out,
        "\nops/s: all nodes together. p50, p99, p99.9: one operation of one thread; short ones in batches "
        "of 20 us.\n"
        "limit: what the hardware needs in the same run (--json says what was measured); ratio: p50 / "
        "limit.\n"
        "network ops: reads, atomics and writes on a node's memory for one operation.\n");
}
