/* real.h - run the litmus programs (litmus.h) on a real network of this machine, and count
 * outcomes. */
#pragma once

#include <stdint.h>
#include <stdio.h>

#include "fabric/fabric.h"

#define LITMUS_ROWS_MAX 32u

struct litmus_count {
    uint64_t runs, seen;
};

struct litmus_report {
    char fabric[16];
    struct remo__fabric_caps caps;
    struct litmus_count rows[LITMUS_ROWS_MAX]; /* as in litmus_rows */
    uint32_t failures;                         /* outcomes seen although `caps` excludes them */
};

/* Run each program repeatedly for `seconds`, on three node processes.
 * Errors: -ENODEV and other errors of the fabric, -ETIMEDOUT, -EIO (a node failed). */
int litmus_run(const char *fabric, double seconds, struct litmus_report *ret_report);
/* Return whether the fabric excludes the outcome of this row. */
bool litmus_excludes(const struct remo__fabric_caps *caps, uint32_t row);
/* Print a table, or one JSON object a line: the run, then the rows. */
void litmus_print(FILE *out, const struct litmus_report *report);
void litmus_print_json(FILE *out, const struct litmus_report *report);
