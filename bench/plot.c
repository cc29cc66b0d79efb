/* plot.c - the plot of `remo bench`, drawn by gnuplot. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/error.h"
#include "bench/output.h"

#define SERIES_MAX 16u
#define BAR_PIXELS 14u
#define MARGIN_PIXELS 160u

/* The peers that have a figure, in the order in which they come. */
struct series {
    const char *peers[SERIES_MAX];
    uint32_t count;
};

static void find_series(const struct bench_result *results, uint32_t count, struct series *ret_series) {
    ret_series->count = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t known = 0;
        if (!results[i].peer[0] || !isfinite(results[i].p50_ns))
            continue;
        while (known < ret_series->count && strcmp(ret_series->peers[known], results[i].peer) != 0)
            known++;
        if (known == ret_series->count && known < SERIES_MAX)
            ret_series->peers[ret_series->count++] = results[i].peer;
    }
}

static void put_value(FILE *out, double value) {
    if (isfinite(value) && value > 0)
        fprintf(out, " %.3f", value);
    else
        fprintf(out, " ?");
}

static double peer_value(const struct bench_result *own, const char *peer, const struct bench_result *results,
                         uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(results[i].peer, peer) == 0 && isfinite(results[i].p50_ns)
            && bench_result_matches(own, &results[i]))
            return results[i].p50_ns;
    return NAN;
}

/* A line for each result of Remo: its title, its own figure, the limit, each peer's. Returns how many. */
static uint32_t put_data(FILE *out, const struct bench_result *results, uint32_t count,
                         const struct series *series) {
    uint32_t rows = 0;
    fprintf(out, "$data << END\n");
    for (uint32_t i = 0; i < count; i++) {
        char title[112];
        if (results[i].peer[0] || !isfinite(results[i].p50_ns))
            continue;
        bench_result_title(&results[i], title, sizeof title);
        fprintf(out, "\"%s\"", title);
        put_value(out, results[i].p50_ns);
        put_value(out, results[i].limit_ns);
        for (uint32_t p = 0; p < series->count; p++)
            put_value(out, peer_value(&results[i], series->peers[p], results, count));
        fprintf(out, "\n");
        rows++;
    }
    fprintf(out, "END\n");
    return rows;
}

void bench_plot_output(FILE *out, const char *file) {
    fprintf(out, "set output '");
    for (; *file; file++) {
        if (*file == '\'') /* doubled, it does not end the name */
            fputc('\'', out);
        fputc(*file, out);
    }
    fprintf(out, "'\n");
}

static void put_plot(FILE *out, const char *file, uint32_t rows, const struct series *series) {
    uint32_t width = MARGIN_PIXELS + rows * (series->count + 3) * BAR_PIXELS;
    fprintf(out, "set terminal svg size %u,560 noenhanced background rgb 'white'\n",
            width < 640 ? 640 : width);
    bench_plot_output(out, file);
    fprintf(out,
            "set title 'remo bench: time per operation (median), less is better'\n"
            "set ylabel 'ns'\nset logscale y\nset grid ytics\nset key outside right top\nset bmargin 12\n"
            "set datafile missing '?'\nset style data histogram\nset style histogram clustered gap 1\n"
            "set style fill solid 0.85 border -1\nset xtics rotate by -40 nomirror\n"
            "plot $data using 2:xtic(1) title 'Remo' lc rgb '#1b6ca8', "
            "$data using 3 title 'physical limit' lc rgb '#b0b0b0'");
    for (uint32_t p = 0; p < series->count; p++)
        fprintf(out, ", $data using %u title '%s'", p + 4, series->peers[p]);
    fprintf(out, "\n");
}

int bench_plot_draw(const char *file, const char *script, size_t script_bytes) {
    FILE *gnuplot = popen("gnuplot", "w");
    int status = -1;
    if (gnuplot) {
        fwrite(script, 1, script_bytes, gnuplot);
        status = pclose(gnuplot);
    }
    if (status != -1 && WIFEXITED(status) && WEXITSTATUS(status) == 127)
        return remo__fail(-ENOENT, "gnuplot is not installed (apt-get install gnuplot-nox)");
    return status == 0 ? 0 : remo__fail(-EIO, "gnuplot could not write %s; see above", file);
}

int bench_plot(const char *file, const struct bench_result *results, uint32_t count) {
    struct series series;
    char *script = NULL;
    size_t script_bytes = 0;
    FILE *text = open_memstream(&script, &script_bytes);
    if (!text)
        return remo__fail(-ENOMEM, "no memory for the plot");
    find_series(results, count, &series);
    uint32_t rows = put_data(text, results, count, &series);
    put_plot(text, file, rows, &series);
    fclose(text);
    int rc = rows > 0 ? bench_plot_draw(file, script, script_bytes)
                      : remo__fail(-EINVAL, "there is no figure to plot");
    free(script);
    return rc;
}
