/* gnuplot.c - files, captions and legends of pictures, and the call of gnuplot (gnuplot.h).
 * All texts are quoted or filtered, so no name can inject a command. */
#include "bench/report/gnuplot.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/error.h"

#define LEGEND_COLUMNS 4u
#define LEGEND_COLUMN_PIXELS 210u
#define LEGEND_ROW_PIXELS 19u
#define LEGEND_GAP_PIXELS 6u
#define LEGEND_FIRST 1000 /* first number of its labels and objects; others use lower ones */

static const char *const suffixes[] = {"svg", "png"};

const char *const gnuplot_colours[GNUPLOT_SERIES_MAX] = {"#1b6ca8", "#b4b4b4", "#e07b00", "#2e8b57",
                                                         "#c0392b", "#7d4fa0", "#8c564b", "#17a2b8",
                                                         "#e377c2", "#9a9a00", "#333333", "#7fb0d8"};

/* ---- files ---- */

static const char *suffix_of(const char *file) {
    const char *dot = strrchr(file, '.');
    for (size_t i = 0; dot && i < REMO__ARRAY_COUNT(suffixes); i++)
        if (strcasecmp(dot + 1, suffixes[i]) == 0)
            return suffixes[i];
    return NULL;
}

int gnuplot_check(const char *file) {
    if (!suffix_of(file))
        return remo__fail(-EINVAL,
                          "cannot plot to '%s': unknown kind of picture; end the name in .svg or .png", file);
    return 0;
}

/* "x.svg", "x-2.svg", ... */
static void name_page(const char *file, uint32_t page, char ret_file[PATH_MAX]) {
    int stem = (int)(strrchr(file, '.') - file);
    if (page == 0)
        snprintf(ret_file, PATH_MAX, "%s", file);
    else
        snprintf(ret_file, PATH_MAX, "%.*s-%u%s", stem, file, page + 1, file + stem);
}

uint32_t gnuplot_pages(uint32_t items_count) {
    return (items_count + GNUPLOT_SERIES_MAX - 1) / GNUPLOT_SERIES_MAX;
}

void gnuplot_page(uint32_t items_count, uint32_t page, uint32_t *ret_first, uint32_t *ret_end) {
    uint32_t pages = gnuplot_pages(items_count);
    *ret_first = items_count * page / pages;
    *ret_end = items_count * (page + 1) / pages;
}

void gnuplot_output(FILE *out, const char *file, uint32_t page, uint32_t width, uint32_t height) {
    char name[PATH_MAX];
    const char *terminal = strcmp(suffix_of(file), "png") == 0 ? "pngcairo" : "svg";
    name_page(file, page, name);
    fprintf(out, "set terminal %s size %u,%u noenhanced font 'sans,11' background rgb 'white'\n", terminal,
            width, height);
    fprintf(out, "set output '");
    for (const char *at = name; *at; at++) {
        if (*at == '\'') /* a doubled quote does not end the name */
            fputc('\'', out);
        fputc(*at, out);
    }
    fprintf(out, "'\n");
}

int gnuplot_draw(const char *file, const char *script, size_t script_bytes) {
    FILE *gnuplot = popen("gnuplot", "w");
    int status = -1;
    if (gnuplot) {
        fwrite(script, 1, script_bytes, gnuplot);
        status = pclose(gnuplot);
    }
    if (status != -1 && WIFEXITED(status) && WEXITSTATUS(status) == 127)
        return remo__fail(-ENOENT, "cannot draw %s: gnuplot is not installed; apt-get install gnuplot-nox",
                          file);
    return status == 0 ? 0 : remo__fail(-EIO, "cannot write %s: gnuplot failed; see its message above", file);
}

/* ---- the caption ---- */

static void describe_machine(char *ret_text, size_t text_bytes) {
    char line[256], model[128] = "";
    struct utsname name = {0};
    FILE *file = fopen("/proc/cpuinfo", "re");
    uname(&name);
    while (file && !model[0] && fgets(line, sizeof line, file))
        if (strncmp(line, "model name", 10) == 0 && strchr(line, ':'))
            snprintf(model, sizeof model, "%.100s", strchr(line, ':') + 2);
    if (file)
        fclose(file);
    model[strcspn(model, "\n")] = '\0';
    snprintf(ret_text, text_bytes, "%s, %ld processors, Linux %.30s", model[0] ? model : name.machine,
             sysconf(_SC_NPROCESSORS_ONLN), name.release);
    for (char *at = ret_text; *at; at++) /* the text stands between quotes */
        if (*at == '\'' || *at == '"' || *at == '\\' || !isprint((unsigned char)*at))
            *at = ' ';
}

void gnuplot_caption(char *ret_text, size_t text_bytes) {
    char machine[200], day[16];
    time_t now = time(NULL);
    struct tm local;
    localtime_r(&now, &local);
    strftime(day, sizeof day, "%Y-%m-%d", &local);
    describe_machine(machine, sizeof machine);
    snprintf(ret_text, text_bytes, "%s, %s", machine, day);
}

/* ---- the legend ---- */

uint32_t gnuplot_legend_pixels(uint32_t count) {
    return (count + LEGEND_COLUMNS - 1) / LEGEND_COLUMNS * LEGEND_ROW_PIXELS + LEGEND_GAP_PIXELS;
}

/* gnuplot's own legend changes its shape with the lengths of the names, and then overlaps the
 * title. */
void gnuplot_legend(FILE *out, const struct gnuplot_legend *legend, uint32_t top, uint32_t width,
                    uint32_t height) {
    uint32_t columns = legend->count < LEGEND_COLUMNS ? legend->count : LEGEND_COLUMNS;
    double left = (width - columns * LEGEND_COLUMN_PIXELS) / 2.0;
    for (uint32_t i = 0; i < legend->count; i++) {
        double x = left + i % LEGEND_COLUMNS * LEGEND_COLUMN_PIXELS;
        double y = height - top - (i / LEGEND_COLUMNS + 0.5) * LEGEND_ROW_PIXELS;
        fprintf(out,
                "set object %u rectangle from screen %.4f, screen %.4f to screen %.4f, screen %.4f "
                "fc rgb '%s' fs solid noborder\n"
                "set label %u '%s' at screen %.4f, screen %.4f left\n",
                LEGEND_FIRST + i, x / width, (y - 5) / height, (x + 22) / width, (y + 5) / height,
                legend->colours[i], LEGEND_FIRST + i, legend->names[i], (x + 30) / width, y / height);
    }
}
