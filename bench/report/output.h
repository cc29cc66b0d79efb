/* output.h - results for people: a table on standard output, a plot in a file. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "bench/report/result.h"

#define BENCH_TABLE_CELLS 8u
#define BENCH_CELL_BYTES 40

/* A table of limited width. Columns that do not fit move to further tables (blocks). */
struct bench_table {
    FILE *out;
    uint32_t columns;
    bool with_peers;
    uint32_t block, blocks_count;              /* the current one, from 1 */
    uint32_t block_of[BENCH_TABLE_CELLS];      /* of each cell */
    uint32_t title_columns[BENCH_TABLE_CELLS]; /* of each block, from index 0 */
};

/* Print the head of the table; then rows: each result of Remo, followed by comparable results of
 * peers, and the remaining results of peers at the end. bench_table_end gets all results again and
 * prints the further blocks and the notes. */
void bench_table_begin(FILE *out, uint32_t columns, bool with_peers, struct bench_table *ret_table);
void bench_table_rows(const struct bench_table *table, const struct bench_result *own, uint32_t own_count,
                      const struct bench_result *peers, uint32_t peers_count);
void bench_table_end(struct bench_table *table, const struct bench_result *own, uint32_t own_count,
                     const struct bench_result *peers, uint32_t peers_count);
/* Print a warning for each result of Remo below its limit. Returns their number. */
uint32_t bench_warn_limits(FILE *out, const struct bench_result *own, uint32_t own_count);

/* Format a time: "2.90 ns", "11.6 us"; "-" if unknown. */
void bench_format_time(double ns, char ret_text[BENCH_CELL_BYTES]);

/* Draw the time of each operation as bars on a logarithmic scale: Remo, the limit, each peer. A picture
 * has at most twelve groups of bars; further ones go to x-2.svg, x-3.svg, ... Needs gnuplot.
 * Errors: -ENOENT (no gnuplot), -EIO, -EINVAL (nothing to plot). */
int bench_plot(const char *file, const struct bench_result *own, uint32_t own_count,
               const struct bench_result *peers, uint32_t peers_count);
/* Draw curves over the number of nodes of the simulated network, with the parameters of its model.
 * Errors as bench_plot. */
int bench_plot_scaling(const char *file, const struct bench_result *results, uint32_t count,
                       const json_t *model);
