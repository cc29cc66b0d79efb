/* demo.h - common parts of `remo demo`. demo.c is the starting process, node.c one of its
 * nodes; records.c reads the data, report.c prints the figures. */
#pragma once

#include <remo/remo.h>
#include <stdbool.h>

#include "base/histogram.h"

#define DEMO_UPDATE_BYTES 24u /* prefix that an update puts in front of a value */
#define DEMO_PROGRESS '#'     /* starts a progress line of a node: "#WHAT DONE ALL" */

struct demo_options {
    const char *file;
    const char *fabric;
    uint32_t nodes;
    double seconds;
    bool worker; /* this process is a node */
};

/* ---- records.c ---- */

struct demo_record {
    const char *key, *value; /* in `text` */
    uint32_t key_bytes, value_bytes;
};

struct demo_records {
    char *text;
    struct demo_record *all;
    uint32_t count;
    uint32_t key_bytes_max, value_bytes_max;
    uint64_t bytes;    /* keys and values */
    uint32_t repeated; /* records skipped because of a repeated key */
    bool packages;
};

/* Read the package records of a dpkg status file (name -> stanza), or lines of key<TAB>value.
 * Errors: -ENOENT, -EACCES..., -EINVAL (no records; a line without a key), -EMSGSIZE, -ENOMEM. */
int demo_records_read(const char *file, struct demo_records *ret_records);
void demo_records_free(struct demo_records *records);

/* Write a record's value after `version` updates to `buffer` (value_bytes_max + DEMO_UPDATE_BYTES);
 * return its length. */
size_t demo_value(const struct demo_record *record, uint32_t version, char *buffer);
/* Return the number of updates that a value has; UINT32_MAX: it is not a value of the record. */
uint32_t demo_version(const struct demo_record *record, const char *value, size_t bytes);

/* ---- node.c ---- */

enum demo_kind { DEMO_GET, DEMO_UPDATE, DEMO_INSERT, DEMO_DELETE, DEMO_KINDS };

struct demo_cost { /* network operations per operation, of all nodes together */
    double reads, writes, atomics, wakes;
};

/* The results of a node, sent to node 0 as they are. */
struct demo_results {
    uint64_t loaded, checked, wrong;
    double load_seconds, work_seconds, check_seconds;
    struct remo__histogram histograms[DEMO_KINDS];
};

/* Run a node; node 0 writes to standard output. Returns the exit status. */
int demo_node(const struct demo_options *options);

/* ---- report.c ---- */

struct demo_limit {
    double ns; /* 0: unknown on this fabric */
    char what[120];
};

void demo_report_start(const struct demo_options *options, const struct demo_records *records);
void demo_report_table(const struct demo_results *sum, const struct demo_cost costs[DEMO_KINDS],
                       const struct demo_limit limits[DEMO_KINDS]);
