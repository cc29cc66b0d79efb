/* output.c - the table of `remo bench`, fitted to the terminal.
 * Columns that do not fit beside the title move, the less important first, to further tables at the
 * end. */
#include "bench/report/output.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "bench/report/text.h"

#define TITLE_COLUMNS_MIN 24u
#define TITLE_COLUMNS_NARROW 22u /* on terminals below 48 columns */
#define CELL_COLUMNS_MAX 18u
#define TITLE_COLUMNS_MAX 52u
#define TITLE_INDENT 4 /* of the title's further lines */
#define PEER_INDENT 2

/* Return the decimals that give three digits after rounding. */
static int decimals_of(double value) {
    return value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
}

void bench_format_time(double ns, char ret_text[BENCH_CELL_BYTES]) {
    static const struct {
        double from, unit;
        const char *name;
    } scales[] = {{1e9, 1e9, "s"}, {1e6, 1e6, "ms"}, {1e3, 1e3, "us"}, {0, 1, "ns"}};
    size_t i = 0;
    if (!isfinite(ns)) {
        snprintf(ret_text, BENCH_CELL_BYTES, "-");
        return;
    }
    while (ns < scales[i].from)
        i++;
    double value = ns / scales[i].unit;
    snprintf(ret_text, BENCH_CELL_BYTES, "%.*f %s", decimals_of(value), value, scales[i].name);
}

static void format_rate(char ret_text[BENCH_CELL_BYTES], double per_s) {
    static const char *const units[] = {"", " k", " M", " G"};
    size_t unit = 0;
    if (!isfinite(per_s)) {
        snprintf(ret_text, BENCH_CELL_BYTES, "-");
        return;
    }
    while (per_s >= 1000 && unit < 3) {
        per_s /= 1000;
        unit++;
    }
    snprintf(ret_text, BENCH_CELL_BYTES, "%.*f%s/s", decimals_of(per_s), per_s, units[unit]);
}

static void format_factor(char ret_text[BENCH_CELL_BYTES], double factor) {
    if (isfinite(factor))
        snprintf(ret_text, BENCH_CELL_BYTES, "%.*f", factor < 100 ? 1 : 0, factor);
    else
        snprintf(ret_text, BENCH_CELL_BYTES, "-");
}

/* Format operations per benchmark operation, as in "1r 2a 1w": reads, atomics, writes. */
static void format_net(char ret_text[BENCH_CELL_BYTES], const struct bench_result *result) {
    const struct {
        double count;
        char name;
    } parts[] = {{result->reads, 'r'}, {result->atomics, 'a'}, {result->writes, 'w'}};
    size_t used = 0;
    ret_text[0] = '\0';
    for (size_t i = 0; i < REMO__ARRAY_COUNT(parts); i++) {
        double scale = parts[i].count < 1 ? 100 : 10;
        if (isfinite(parts[i].count) && parts[i].count >= 0.005)
            used += (size_t)snprintf(ret_text + used, BENCH_CELL_BYTES - used, "%s%.3g%c", used ? " " : "",
                                     round(parts[i].count * scale) / scale, parts[i].name);
    }
    if (used == 0)
        snprintf(ret_text, BENCH_CELL_BYTES, "%s", isfinite(result->reads) ? "none" : "-");
}

/* Return how many times faster than the peer. If several processes of both operate on the same
 * object, compare their total rate; otherwise compare medians, which other load affects less. */
static double times_faster(const struct bench_result *own, const struct bench_result *peer) {
    return own->active > 1 && own->active == peer->active ? own->ops_per_s / peer->ops_per_s
                                                          : peer->p50_ns / own->p50_ns;
}

/* Return the smallest factor among comparable peers; NAN if there is none. */
static double best_factor(const struct bench_result *own, const struct bench_result *peers, uint32_t count) {
    double best = NAN;
    for (uint32_t i = 0; i < count; i++)
        if (isfinite(peers[i].p50_ns) && bench_result_competes(own, &peers[i]))
            best = fmin(best, times_faster(own, &peers[i]));
    return best;
}

/* ---- columns ---- */

enum cell { CELL_RATE, CELL_P50, CELL_P99, CELL_P999, CELL_LIMIT, CELL_RATIO, CELL_NET, CELL_FACTOR, CELLS };

_Static_assert(CELLS == BENCH_TABLE_CELLS, "output.h has room for each");
_Static_assert(TEXT_COLUMNS_MIN >= TITLE_COLUMNS_NARROW + CELL_COLUMNS_MAX, "each cell fits beside a title");

/* In the order of the table. `columns` includes the gap before the cell. */
static const struct {
    const char *name;
    uint32_t columns;
} cells[CELLS] = {
    [CELL_RATE] = {"ops/s", 10},
    [CELL_P50] = {"p50", 8},
    [CELL_P99] = {"p99", 8},
    [CELL_P999] = {"p99.9", 8},
    [CELL_LIMIT] = {"limit", 8},
    [CELL_RATIO] = {"ratio", 7},
    [CELL_NET] = {"network ops", CELL_COLUMNS_MAX},
    [CELL_FACTOR] = {"vs. peer", 10},
};

/* The first ones go to the first table. */
static const enum cell by_importance[CELLS] = {CELL_P50,    CELL_LIMIT, CELL_RATIO, CELL_RATE,
                                               CELL_FACTOR, CELL_P99,   CELL_NET,   CELL_P999};

static void lay_out(struct bench_table *table) {
    uint32_t left = table->with_peers ? CELLS : CELLS - 1; /* without peers, there is no CELL_FACTOR */
    uint32_t title_columns = table->columns < 48 ? TITLE_COLUMNS_NARROW : TITLE_COLUMNS_MIN;
    while (left > 0) {
        uint32_t block = ++table->blocks_count, room = table->columns - title_columns;
        for (uint32_t i = 0; i < CELLS; i++) {
            enum cell cell = by_importance[i];
            if (table->block_of[cell] || cells[cell].columns > room
                || (cell == CELL_FACTOR && !table->with_peers))
                continue;
            table->block_of[cell] = block;
            room -= cells[cell].columns;
            left--;
        }
        room += title_columns;
        table->title_columns[block - 1] = room < TITLE_COLUMNS_MAX ? room : TITLE_COLUMNS_MAX;
    }
}

static void format_cell(enum cell cell, const struct bench_result *result, double factor,
                        char ret_text[BENCH_CELL_BYTES]) {
    switch (cell) {
    case CELL_RATE: format_rate(ret_text, result->ops_per_s); break;
    case CELL_P50: bench_format_time(result->p50_ns, ret_text); break;
    case CELL_P99: bench_format_time(result->p99_ns, ret_text); break;
    case CELL_P999: bench_format_time(result->p999_ns, ret_text); break;
    case CELL_LIMIT: bench_format_time(result->limit_ns, ret_text); break;
    case CELL_NET: format_net(ret_text, result); break;
    case CELL_RATIO:
        format_factor(ret_text, result->ratio);
        if (bench_result_beats_limit(result))
            strcat(ret_text, "!");
        break;
    case CELL_FACTOR:
        format_factor(ret_text, factor);
        if (isfinite(factor))
            strcat(ret_text, " x");
        break;
    case CELLS: break;
    }
}

/* Print the title's first line with the cells, then the rest of the title. `result` NULL: head of
 * the table. */
static void print_row(const struct bench_table *table, uint32_t indent, const char *title,
                      const struct bench_result *result, double factor) {
    uint32_t columns = table->title_columns[table->block - 1] - indent;
    size_t length = text_fitting(title, columns - 1);
    fprintf(table->out, "%*s%-*.*s", (int)indent, "", (int)columns, (int)length, title);
    for (enum cell cell = 0; cell < CELLS; cell++) {
        char text[BENCH_CELL_BYTES] = "";
        if (table->block_of[cell] != table->block)
            continue;
        if (result)
            format_cell(cell, result, factor, text);
        fprintf(table->out, " %*s", (int)cells[cell].columns - 1, result ? text : cells[cell].name);
    }
    fprintf(table->out, "\n");
    title += length;
    title += strspn(title, " ");
    if (*title) {
        fprintf(table->out, "%*s", TITLE_INDENT, "");
        text_wrap(table->out, title, columns + indent - 1, TITLE_INDENT, TITLE_INDENT);
    }
}

/* A failure is printed in the first table only. */
static void print_failure(const struct bench_table *table, const char *title, const char *what,
                          const char *why) {
    char text[700];
    if (table->block != 1)
        return;
    snprintf(text, sizeof text, "%s: %s: %s", title, what, why);
    fprintf(table->out, "%*s", PEER_INDENT, "");
    text_wrap(table->out, text, table->columns, PEER_INDENT, TITLE_INDENT);
}

static void print_peer(const struct bench_table *table, const struct bench_result *peer, bool with_subject) {
    char title[192], name[48], subject[112] = "";
    if (with_subject)
        bench_result_title(peer, subject, sizeof subject);
    bench_result_peer(peer, name, sizeof name);
    snprintf(title, sizeof title, "%s%s%s", name, subject[0] ? ": " : "", subject);
    if (peer->skipped[0])
        print_failure(table, title, "left out", peer->skipped);
    else if (peer->error[0])
        print_failure(table, title, "failed", peer->error);
    else
        print_row(table, PEER_INDENT, title, peer, NAN);
}

/* ---- the table ---- */

void bench_table_begin(FILE *out, uint32_t columns, bool with_peers, struct bench_table *ret_table) {
    *ret_table = (struct bench_table){.out = out, .columns = columns, .with_peers = with_peers, .block = 1};
    lay_out(ret_table);
    print_row(ret_table, 0, "one operation", NULL, NAN);
    fflush(out);
}

void bench_table_rows(const struct bench_table *table, const struct bench_result *own, uint32_t own_count,
                      const struct bench_result *peers, uint32_t peers_count) {
    char *printed = calloc(peers_count + 1, 1);
    for (uint32_t i = 0; i < own_count; i++) {
        char title[112];
        if (own[i].error[0]) {
            if (table->block == 1)
                fprintf(table->out, "%s: failed\n", own[i].bench);
            continue;
        }
        bench_result_title(&own[i], title, sizeof title);
        print_row(table, 0, title, &own[i], best_factor(&own[i], peers, peers_count));
        for (uint32_t p = 0; printed && p < peers_count; p++) {
            if (printed[p] || !isfinite(peers[p].p50_ns) || !bench_result_matches(&own[i], &peers[p]))
                continue;
            print_peer(table, &peers[p], false);
            printed[p] = 1;
        }
    }
    for (uint32_t p = 0; printed && p < peers_count; p++)
        if (!printed[p])
            print_peer(table, &peers[p], true);
    free(printed);
    fflush(table->out);
}

static void print_note(const struct bench_table *table, const char *text) {
    text_wrap(table->out, text, table->columns, 0, 2);
}

static void print_foot(const struct bench_table *table) {
    fprintf(table->out, "\n");
    print_note(table,
               "ops/s: all nodes together. p50, p99, p99.9: one operation of one thread; short operations "
               "in batches of 20 us.");
    print_note(
        table,
        "limit: time of the hardware for the same work, in the same run; --json names it. ratio: p50 / "
        "limit; ! marks a ratio below 1: one of the two is wrong.");
    print_note(table,
               "network ops: reads (r), atomics (a) and writes (w) on a node's memory for one operation.");
    if (table->with_peers)
        print_note(table, "vs. peer: how many times faster than the fastest peer.");
}

void bench_table_end(struct bench_table *table, const struct bench_result *own, uint32_t own_count,
                     const struct bench_result *peers, uint32_t peers_count) {
    while (own_count > 0 && table->block < table->blocks_count) {
        table->block++;
        fprintf(table->out, "\n");
        print_row(table, 0, "one operation", NULL, NAN);
        bench_table_rows(table, own, own_count, peers, peers_count);
    }
    print_foot(table);
}

uint32_t bench_warn_limits(FILE *out, const struct bench_result *own, uint32_t own_count) {
    uint32_t warnings = 0;
    for (uint32_t i = 0; i < own_count; i++) {
        char title[112], p50[BENCH_CELL_BYTES], limit[BENCH_CELL_BYTES];
        if (!bench_result_beats_limit(&own[i]))
            continue;
        bench_result_title(&own[i], title, sizeof title);
        bench_format_time(own[i].p50_ns, p50);
        bench_format_time(own[i].limit_ns, limit);
        fprintf(
            out,
            "remo bench: warning: %s: %s is below its limit of %s (%s): one of the two is wrong; repeat the "
            "benchmark on a quiet machine, and report it if the warning remains\n",
            title, p50, limit, own[i].limit);
        warnings++;
    }
    return warnings;
}
