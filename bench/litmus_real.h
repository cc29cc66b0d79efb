/* litmus_real.h - the litmus programs (litmus.h) on a real network of this machine: which outcomes are
 * seen. */
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
    uint32_t failures;                         /* outcomes seen that `caps` excludes */
};

/* Three node processes run each program over and over for `seconds`. Errors, with a sentence: -ENODEV and
 * others of the fabric, -ETIMEDOUT, -EIO (a node failed). */
int litmus_run(const char *fabric, double seconds, struct litmus_report *ret_report);
/* Does the fabric exclude the outcome of this row? */
bool litmus_excludes(const struct remo__fabric_caps *caps, uint32_t row);
/* A table for people; or one JSON object a line: what ran, then the rows. */
void litmus_print(FILE *out, const struct litmus_report *report);
void litmus_print_json(FILE *out, const struct litmus_report *report);
