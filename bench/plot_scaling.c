/* plot_scaling.c - the curves of `remo bench --fabric sim --plot`: figures over the number of nodes, with
 * the model that they are figures of. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/bits.h"
#include "base/error.h"
#include "bench/output.h"

#define CURVES_MAX 24u
#define WIDTH 1100u
#define HEIGHT 460u
#define LINE_PIXELS 15u
#define COLUMNS 3u /* of parameters below the curves */

struct curves {
    const struct bench_result *first[CURVES_MAX]; /* of each */
    uint32_t count;
};

/* Points of one curve differ in nothing but the number of nodes, and of those that operate. */
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

static void put_curves(FILE *out, const struct curves *curves, uint32_t column) {
    fprintf(out, "plot ");
    for (uint32_t c = 0; c < curves->count; c++) {
        const struct bench_result *result = curves->first[c];
        fprintf(out, "%s$curve%u using 1:%u with linespoints lw 2 pt 7 ps 0.5 title '%s", c ? ", " : "", c,
                column, result->bench);
        if (result->variant[0])
            fprintf(out, " %s", result->variant);
        if (result->read_percent >= 0)
            fprintf(out, ", %d %% get", result->read_percent);
        fprintf(out, "'");
    }
    fprintf(out, "\n");
}

/* What the figures are figures of, in columns at the bottom. */
static void put_model(FILE *out, const json_t *model, uint32_t height) {
    size_t index;
    const json_t *parameter;
    uint32_t rows = ((uint32_t)json_array_size(model) + COLUMNS - 1) / COLUMNS;
    fprintf(out,
            "set label 1 'Simulated on this model (docs/simulator.md); computing between touches of network "
            "memory costs nothing:' "
            "at screen 0.02, screen %.4f font ',10'\n",
            (double)(rows + 1) * LINE_PIXELS / height);
    json_array_foreach(model, index, parameter) {
        uint32_t column = (uint32_t)index / rows, row = (uint32_t)index % rows;
        fprintf(out, "set label %zu '%s = %lld' at screen %.4f, screen %.4f font ',10'\n", index + 2,
                json_string_value(json_object_get(parameter, "name")),
                (long long)json_integer_value(json_object_get(parameter, "value")), 0.02 + 0.33 * column,
                (double)(rows - row) * LINE_PIXELS / height);
    }
}

static void put_script(FILE *out, const char *file, const struct bench_result *results, uint32_t count,
                       const struct curves *curves, const json_t *model) {
    uint32_t below = ((uint32_t)json_array_size(model) / COLUMNS + 3) * LINE_PIXELS, height = HEIGHT + below;
    double bottom = (double)(below + 45) / height;
    put_data(out, results, count, curves);
    fprintf(out, "set terminal svg size %u,%u noenhanced background rgb 'white'\n", WIDTH, height);
    bench_plot_output(out, file);
    fprintf(out, "set multiplot\n");
    put_model(out, model, height);
    fprintf(out,
            "set bmargin at screen %.3f\nset tmargin at screen 0.93\nset logscale xy\nset grid\nset xlabel "
            "'nodes'\n"
            "set xtics (2, 4, 8, 16, 32, 64, 128)\nset key left top\n",
            bottom);
    fprintf(out, "set lmargin at screen 0.07\nset rmargin at screen 0.48\nset title 'time of one operation "
                 "(median), us'\n");
    put_curves(out, curves, 2);
    for (size_t i = 1; i <= json_array_size(model) + 1; i++)
        fprintf(out, "unset label %zu\n", i);
    fprintf(out, "set lmargin at screen 0.57\nset rmargin at screen 0.98\nset title 'operations per second, "
                 "all nodes together'\n"
                 "set format y '%%.0s %%c'\n");
    fprintf(out, "unset key\n");
    put_curves(out, curves, 3);
    fprintf(out, "unset multiplot\n");
}

int bench_plot_scaling(const char *file, const struct bench_result *results, uint32_t count,
                       const json_t *model) {
    struct curves curves;
    char *script = NULL;
    size_t script_bytes = 0;
    find_curves(results, count, &curves);
    if (curves.count == 0)
        return remo__fail(-EINVAL, "there is no figure to plot");
    FILE *text = open_memstream(&script, &script_bytes);
    if (!text)
        return remo__fail(-ENOMEM, "no memory for the plot");
    put_script(text, file, results, count, &curves, model);
    fclose(text);
    int rc = bench_plot_draw(file, script, script_bytes);
    free(script);
    return rc;
}
