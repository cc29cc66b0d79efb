/* plot.c - the pictures of `remo bench --plot`: a group of horizontal bars for each result of Remo.
 * Its limit and the peers stand below it. More than GNUPLOT_SERIES_MAX groups go to further
 * files. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "bench/report/gnuplot.h"
#include "bench/report/output.h"

#define WIDTH 900u
#define BAR_PIXELS 15u
#define GAP_PIXELS 12u       /* between two groups */
#define TITLE_PIXELS 72u     /* title and caption */
#define FOOT_PIXELS 36u      /* the axis */
#define CHARACTER_PIXELS 7.7 /* average of the labels */
#define VALUE_ROOM 1.9       /* room for the figure behind the longest bar */
#define NAME_BYTES 48

/* The subject of a bar. Higher numbers are peers, in order of appearance. */
#define SERIES_REMO 0u
#define SERIES_LIMIT 1u
#define SERIES_MAX GNUPLOT_SERIES_MAX

struct bar {
    uint32_t series;
    double ns;
};

struct group {
    char title[112];
    struct bar bars[SERIES_MAX];
    uint32_t bars_count;
};

struct plot {
    struct group *groups;
    uint32_t groups_count;
    char names[SERIES_MAX][NAME_BYTES];
    uint32_t series_count;
    /* the first one with a figure: it has the fabric and the nodes of all */
    const struct bench_result *first;
};

static void put_titles(FILE *out, const struct bench_result *first, uint32_t height) {
    char caption[256];
    gnuplot_caption(caption, sizeof caption);
    fprintf(
        out,
        "set label 1 'Time of one operation (median); shorter is better' at screen 0.5, screen %.4f center "
        "font 'sans,14'\n"
        "set label 2 'fabric %s, %u nodes, %u thread%s each' at screen 0.5, screen %.4f center\n"
        "set label 3 '%s' at screen 0.5, screen %.4f center textcolor rgb '#555555'\n",
        1 - 18.0 / height, first->fabric, first->nodes, first->threads, first->threads == 1 ? "" : "s",
        1 - 40.0 / height, caption, 1 - 58.0 / height);
}

static uint32_t series_of(struct plot *plot, const struct bench_result *peer) {
    char name[NAME_BYTES];
    uint32_t known = SERIES_LIMIT + 1;
    bench_result_peer(peer, name, sizeof name);
    while (known < plot->series_count && strcmp(plot->names[known], name) != 0)
        known++;
    if (known == plot->series_count && known < SERIES_MAX)
        strcpy(plot->names[plot->series_count++], name);
    return known;
}

static void add_bar(struct group *group, uint32_t series, double ns) {
    if (isfinite(ns) && ns > 0 && series < SERIES_MAX && group->bars_count < SERIES_MAX)
        group->bars[group->bars_count++] = (struct bar){series, ns};
}

static void add_group(struct plot *plot, const struct bench_result *own, const struct bench_result *peers,
                      uint32_t peers_count) {
    struct group *group = &plot->groups[plot->groups_count];
    *group = (struct group){0};
    bench_result_title(own, group->title, sizeof group->title);
    if (strcmp(own->object, "machine") != 0) /* such a result is a limit itself */
        add_bar(group, SERIES_REMO, own->p50_ns);
    add_bar(group, SERIES_LIMIT, own->limit_ns);
    for (uint32_t i = 0; i < peers_count; i++)
        if (isfinite(peers[i].p50_ns) && bench_result_matches(own, &peers[i]))
            add_bar(group, series_of(plot, &peers[i]), peers[i].p50_ns);
    if (group->bars_count == 0)
        return;
    plot->groups_count++;
    plot->first = plot->first ? plot->first : own;
}

static uint32_t count_bars(const struct group *groups, uint32_t count) {
    uint32_t bars = 0;
    for (uint32_t i = 0; i < count; i++)
        bars += groups[i].bars_count;
    return bars;
}

/* Return a range in seconds, from a power of ten below the shortest bar to some room behind the
 * longest. */
static void find_range(const struct group *groups, uint32_t count, double *ret_from, double *ret_to) {
    double least = INFINITY, most = 0;
    for (uint32_t g = 0; g < count; g++)
        for (uint32_t b = 0; b < groups[g].bars_count; b++) {
            least = fmin(least, groups[g].bars[b].ns * 1e-9);
            most = fmax(most, groups[g].bars[b].ns * 1e-9);
        }
    *ret_from = pow(10, floor(log10(least / 2)));
    *ret_to = most * pow(most / *ret_from, 0.06) * VALUE_ROOM;
}

/* Write a block of data per series: seconds, place from the top in pixels, and the figure as text.
 * Returns the mask of series with data. */
static uint32_t put_bars(FILE *out, const struct group *groups, uint32_t count, uint32_t series_count) {
    uint32_t present = 0;
    for (uint32_t series = 0; series < series_count; series++) {
        uint32_t y = GAP_PIXELS;
        fprintf(out, "$series%u << END\n", series);
        for (uint32_t g = 0; g < count; g++, y += GAP_PIXELS)
            for (uint32_t b = 0; b < groups[g].bars_count; b++, y += BAR_PIXELS) {
                char value[BENCH_CELL_BYTES];
                if (groups[g].bars[b].series != series)
                    continue;
                present |= 1u << series;
                bench_format_time(groups[g].bars[b].ns, value);
                fprintf(out, "%.4g %u \"%s\"\n", groups[g].bars[b].ns * 1e-9, y + BAR_PIXELS / 2, value);
            }
        fprintf(out, "END\n");
    }
    return present;
}

/* Write the labels. Returns the length of the longest one. */
static size_t put_labels(FILE *out, const struct group *groups, uint32_t count) {
    size_t longest = 0;
    uint32_t y = GAP_PIXELS;
    fprintf(out, "set ytics scale 0 (");
    for (uint32_t g = 0; g < count; g++) {
        size_t length = strlen(groups[g].title);
        longest = length > longest ? length : longest;
        fprintf(out, "%s\"", g ? ", " : "");
        for (const char *at = groups[g].title; *at; at++) /* gnuplot treats a label as a format */
            fprintf(out, "%s%c", *at == '%' ? "%" : "", *at);
        fprintf(out, "\" %u", y + groups[g].bars_count * BAR_PIXELS / 2);
        y += groups[g].bars_count * BAR_PIXELS + GAP_PIXELS;
    }
    fprintf(out, ")\n");
    return longest;
}

static const char *series_name(const struct plot *plot, uint32_t series) {
    return series == SERIES_REMO    ? "Remo"
           : series == SERIES_LIMIT ? "limit of the hardware"
                                    : plot->names[series];
}

static void put_legend(FILE *out, const struct plot *plot, uint32_t present, uint32_t height) {
    struct gnuplot_legend legend = {.count = 0};
    for (uint32_t series = 0; series < plot->series_count; series++)
        if (present & 1u << series) {
            legend.names[legend.count] = series_name(plot, series);
            legend.colours[legend.count++] = gnuplot_colours[series];
        }
    gnuplot_legend(out, &legend, TITLE_PIXELS, WIDTH, height);
}

static void put_plot(FILE *out, const struct plot *plot, uint32_t present, double from) {
    const char *before = "plot";
    uint32_t half = BAR_PIXELS / 2 - 1;
    for (uint32_t series = 0; series < plot->series_count; series++) {
        if (!(present & 1u << series))
            continue;
        fprintf(
            out,
            "%s $series%u using 1:2:(%g):1:($2-%u):($2+%u) with boxxyerror fs solid 1 noborder lc rgb '%s'",
            before, series, from, half, half, gnuplot_colours[series]);
        fprintf(out, ", $series%u using 1:2:3 with labels left offset 0.6,0 font 'sans,9'", series);
        before = ",";
    }
    fprintf(out, "\n");
}

static void put_page(FILE *out, const char *file, uint32_t page, const struct plot *plot) {
    uint32_t begin, end;
    double from, to;
    gnuplot_page(plot->groups_count, page, &begin, &end);
    const struct group *groups = &plot->groups[begin];
    uint32_t count = end - begin;
    uint32_t inner = count_bars(groups, count) * BAR_PIXELS + (count + 1) * GAP_PIXELS;
    find_range(groups, count, &from, &to);
    uint32_t present = put_bars(out, groups, count, plot->series_count);
    uint32_t head = TITLE_PIXELS + gnuplot_legend_pixels((uint32_t)__builtin_popcount(present));
    uint32_t height = inner + head + FOOT_PIXELS;
    gnuplot_output(out, file, page, WIDTH, height);
    put_titles(out, plot->first, height);
    put_legend(out, plot, present, height);
    size_t longest = put_labels(out, groups, count);
    fprintf(out, "unset key\nset lmargin at screen %.4f\nset rmargin at screen 0.98\n",
            ((double)longest * CHARACTER_PIXELS + 16) / WIDTH);
    fprintf(out, "set tmargin at screen %.4f\nset bmargin at screen %.4f\n", 1 - (double)head / height,
            (double)FOOT_PIXELS / height);
    fprintf(out, "set yrange [%u:0]\nset logscale x\nset xrange [%g:%g]\nset format x '%%.0s %%cs'\n", inner,
            from, to);
    fprintf(out, "set grid xtics\nset border 1\nset xtics nomirror\n");
    put_plot(out, plot, present, from);
    fprintf(out, "reset\n");
}

int bench_plot(const char *file, const struct bench_result *own, uint32_t own_count,
               const struct bench_result *peers, uint32_t peers_count) {
    struct plot plot = {.series_count = SERIES_LIMIT + 1};
    char *script = NULL;
    size_t script_bytes = 0;
    FILE *text = open_memstream(&script, &script_bytes);
    plot.groups = calloc(own_count + 1, sizeof *plot.groups);
    int rc = text && plot.groups ? 0 : remo__fail(-ENOMEM, "cannot plot to %s: no memory", file);
    for (uint32_t i = 0; i < own_count && rc == 0; i++)
        add_group(&plot, &own[i], peers, peers_count);
    if (rc == 0 && plot.groups_count == 0)
        rc = remo__fail(-EINVAL, "cannot plot to %s: nothing was measured", file);
    for (uint32_t page = 0; rc == 0 && page < gnuplot_pages(plot.groups_count); page++)
        put_page(text, file, page, &plot);
    if (text)
        fclose(text);
    if (rc == 0)
        rc = gnuplot_draw(file, script, script_bytes);
    free(script);
    free(plot.groups);
    return rc;
}
