/* output.h - what a person sees of results: a table on standard output, a plot in a file. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "bench/result.h"

/* The head of the table; then the results of Remo in `own`, each with those of `peers` that measured the same
 * below it, and the peers' others at the end. Without peers, `peers_count` is 0. */
void bench_table_head(FILE *out, bool with_peers);
void bench_table_rows(FILE *out, const struct bench_result *own, uint32_t own_count,
                      const struct bench_result *peers, uint32_t peers_count, bool with_peers);
/* What the columns mean. */
void bench_table_foot(FILE *out);

/* Bars of the time per operation, on a logarithmic scale: Remo, the limit, each peer. Needs gnuplot.
 * Errors: -ENOENT (no gnuplot), -EIO, -EINVAL (nothing to plot), with a sentence. */
int bench_plot(const char *file, const struct bench_result *results, uint32_t count);
/* Curves over the number of nodes, of the simulated network, with the parameters of its model. */
int bench_plot_scaling(const char *file, const struct bench_result *results, uint32_t count,
                       const json_t *model);
/* For plots: the line that names the output; what gnuplot makes of a script. */
void bench_plot_output(FILE *out, const char *file);
int bench_plot_draw(const char *file, const char *script, size_t script_bytes);
