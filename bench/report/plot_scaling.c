/* plot_scaling.c - the curves of `remo bench --fabric sim --plot`: figures over the number of nodes.
 * The parameters of the model are printed below the curves. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/error.h"
#include "bench/report/gnuplot.h"
#include "bench/report/output.h"

#define CURVES_MAX 96u
#define WIDTH 1100u
#define CURVES_PIXELS 380u
#define CAPTION_PIXELS 28u
#define TITLE_PIXELS 30u
#define AXIS_PIXELS 50u
#define NAME_BYTES 112
#define LINE_PIXELS 15u
#define COLUMNS 3u /* of parameters below the curves */

struct curves {
    const struct bench_result *first[CURVES_MAX]; /* result of each curve */
    uint32_t count;
};

/* Points of one curve differ only in the number of nodes, and of operating nodes. */
static bool same_curve(const struct bench_result *a, const struct bench_result *b) {
    return strcmp(a->bench, b->bench) == 0 && strcmp(a->variant, b->variant) == 0 && a->bytes == b->bytes
           && a->window == b->window && a->read_percent == b->read_percent
           && strcmp(a->distribution, b->distribution) == 0;
}

static void find_curves(const struct bench_result *results, uint32_t count, struct curves *ret_curves) {
    ret_curves->count = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t known = 0;
        if (!isfinite(results[i].p50_ns))
            continue;
        while (known < ret_curves->count && !same_curve(ret_curves->first[known], &results[i]))
            known++;
        if (known == ret_curves->count && known < CURVES_MAX)
            ret_curves->first[ret_curves->count++] = &results[i];
    }
}

static void put_data(FILE *out, const struct bench_result *results, uint32_t count,
                     const struct curves *curves) {
    for (uint32_t c = 0; c < curves->count; c++) {
        fprintf(out, "$curve%u << END\n", c);
        for (uint32_t i = 0; i < count; i++)
            if (isfinite(results[i].p50_ns) && same_curve(curves->first[c], &results[i]))
                fprintf(out, "%u %.4f %.1f\n", results[i].nodes, results[i].p50_ns / 1e3,
                        results[i].ops_per_s);
        fprintf(out, "END\n");
    }
}

static void name_curve(const struct bench_result *result, char ret_name[NAME_BYTES]) {
    char reads[24] = "";
    if (result->read_percent >= 0)
        snprintf(reads, sizeof reads, " %d %% get", result->read_percent);
    snprintf(ret_name, NAME_BYTES, "%s%s%s%s", result->bench, result->variant[0] ? " " : "", result->variant,
             reads);
}

static void put_legend(FILE *out, const struct curves *curves, uint32_t first, uint32_t end,
                       uint32_t height) {
    struct gnuplot_legend legend = {.count = end - first};
    char names[GNUPLOT_SERIES_MAX][NAME_BYTES];
    for (uint32_t c = 0; c < legend.count; c++) {
        name_curve(curves->first[first + c], names[c]);
        legend.names[c] = names[c];
        legend.colours[c] = gnuplot_colours[c];
    }
    gnuplot_legend(out, &legend, CAPTION_PIXELS, WIDTH, height);
}

static void put_curves(FILE *out, uint32_t first, uint32_t end, uint32_t column) {
    fprintf(out, "plot ");
    for (uint32_t c = first; c < end; c++)
        fprintf(out, "%s$curve%u using 1:%u with linespoints lw 2 pt 7 ps 0.5 lc rgb '%s'",
                c > first ? ", " : "", c, column, gnuplot_colours[c - first]);
    fprintf(out, "\n");
}

/* The axis ends with the data. */
static void find_range(const struct bench_result *results, uint32_t count, double *ret_from, double *ret_to) {
    uint32_t least = UINT32_MAX, most = 0;
    for (uint32_t i = 0; i < count; i++) {
        least = results[i].nodes < least ? results[i].nodes : least;
        most = results[i].nodes > most ? results[i].nodes : most;
    }
    *ret_from = least / 1.1;
    *ret_to = most * 1.1;
}

/* Write the parameters, in columns at the bottom. Labels are numbered from `label` on. */
static void put_model(FILE *out, const json_t *model, uint32_t height, size_t label) {
    size_t index;
    const json_t *parameter;
    uint32_t rows = ((uint32_t)json_array_size(model) + COLUMNS - 1) / COLUMNS;
    fprintf(
        out,
        "set label %zu 'Simulated on this model (docs/simulator.md); computation between accesses to network "
        "memory is free:' at screen 0.02, screen %.4f font 'sans,10'\n",
        label, (double)(rows + 1) * LINE_PIXELS / height);
    json_array_foreach(model, index, parameter) {
        uint32_t column = (uint32_t)index / rows, row = (uint32_t)index % rows;
        fprintf(out, "set label %zu '%s = %lld' at screen %.4f, screen %.4f font 'sans,10'\n",
                index + label + 1, json_string_value(json_object_get(parameter, "name")),
                (long long)json_integer_value(json_object_get(parameter, "value")), 0.02 + 0.33 * column,
                (double)(rows - row) * LINE_PIXELS / height);
    }
}

static void put_page(FILE *out, const char *file, uint32_t page, const struct curves *curves,
                     const double range[2], const json_t *model) {
    uint32_t first, end;
    char caption[256];
    gnuplot_page(curves->count, page, &first, &end);
    uint32_t below = ((uint32_t)json_array_size(model) / COLUMNS + 3) * LINE_PIXELS + AXIS_PIXELS;
    uint32_t above = CAPTION_PIXELS + gnuplot_legend_pixels(end - first) + TITLE_PIXELS;
    uint32_t height = CURVES_PIXELS + above + below;
    gnuplot_caption(caption, sizeof caption);
    gnuplot_output(out, file, page, WIDTH, height);
    fprintf(out, "set multiplot\nunset key\n");
    fprintf(out,
            "set label 1 'fabric sim, computed on %s' at screen 0.5, screen %.4f center textcolor rgb "
            "'#555555'\n",
            caption, 1 - 14.0 / height);
    put_legend(out, curves, first, end, height);
    put_model(out, model, height, 2);
    fprintf(out, "set bmargin at screen %.4f\nset tmargin at screen %.4f\n", (double)below / height,
            1 - (double)above / height);
    fprintf(out, "set logscale xy\nset grid\nset xlabel 'nodes'\nset xtics (2, 4, 8, 16, 32, 64, 128)\n");
    fprintf(out, "set xrange [%g:%g]\nset lmargin at screen 0.07\nset rmargin at screen 0.48\n", range[0],
            range[1]);
    fprintf(out, "set title 'Time of one operation (median), us; less is better'\n");
    put_curves(out, first, end, 2);
    fprintf(out, "unset label\nunset object\nset lmargin at screen 0.57\nset rmargin at screen 0.98\n");
    fprintf(out, "set title 'Operations per second, all nodes together; more is better'\n");
    fprintf(out, "set format y '%%.0s %%c'\n");
    put_curves(out, first, end, 3);
    fprintf(out, "unset multiplot\nreset\n");
}

int bench_plot_scaling(const char *file, const struct bench_result *results, uint32_t count,
                       const json_t *model) {
    struct curves curves;
    char *script = NULL;
    size_t script_bytes = 0;
    double range[2];
    find_curves(results, count, &curves);
    if (curves.count == 0)
        return remo__fail(-EINVAL, "cannot plot to %s: nothing was measured", file);
    FILE *text = open_memstream(&script, &script_bytes);
    if (!text)
        return remo__fail(-ENOMEM, "cannot plot to %s: no memory", file);
    put_data(text, results, count, &curves);
    find_range(results, count, &range[0], &range[1]);
    for (uint32_t page = 0; page < gnuplot_pages(curves.count); page++)
        put_page(text, file, page, &curves, range, model);
    fclose(text);
    int rc = gnuplot_draw(file, script, script_bytes);
    free(script);
    return rc;
}
