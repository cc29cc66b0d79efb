/* gnuplot.h - common parts of the pictures of `remo bench --plot`, which are scripts for
 * gnuplot. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Maximum of bar groups, curves or legend entries per picture. */
#define GNUPLOT_SERIES_MAX 12u

extern const char *const gnuplot_colours[GNUPLOT_SERIES_MAX];

/* Check that pictures can be written to a file of this name. Errors: -EINVAL; the sentence names
 * the suffixes. */
int gnuplot_check(const char *file);
/* Return how many pictures `items_count` groups or curves take; set the range of one picture, from
 * *ret_first to *ret_end - 1. */
uint32_t gnuplot_pages(uint32_t items_count);
void gnuplot_page(uint32_t items_count, uint32_t page, uint32_t *ret_first, uint32_t *ret_end);
/* Write the commands that set a picture's format, size in pixels, and file: x.svg, then x-2.svg,
 * ... */
void gnuplot_output(FILE *out, const char *file, uint32_t page, uint32_t width, uint32_t height);
/* Format the machine and the date: "AMD EPYC, 2 processors, Linux 6.1.0, 2026-01-31". */
void gnuplot_caption(char *ret_text, size_t text_bytes);

/* Coloured squares with names, in rows that begin `top` pixels below the upper edge; and their
 * height. */
struct gnuplot_legend {
    const char *names[GNUPLOT_SERIES_MAX], *colours[GNUPLOT_SERIES_MAX];
    uint32_t count;
};
void gnuplot_legend(FILE *out, const struct gnuplot_legend *legend, uint32_t top, uint32_t width,
                    uint32_t height);
uint32_t gnuplot_legend_pixels(uint32_t count);

/* Execute a script that draws to `file`. Errors: -ENOENT (no gnuplot), -EIO. */
int gnuplot_draw(const char *file, const char *script, size_t script_bytes);
