/* lmdb_store.h - the environment of LMDB as one process uses it, and benchmarks that run transactions in it.
 * A function that fails prints a sentence, and ends the process. */
#pragma once

#include <lmdb.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/random.h"
#include "bench/peers/measure.h"
#include "bench/peers/processes.h"
#include "bench/tree/mix.h"

#define LMDB_TABLES_MAX 8u
#define LMDB_POINTS_MAX 8u

/* The databases, as seen by one process. */
struct lmdb_store {
    const struct lmdb_workload *workload;
    const struct lmdb_point *point;
    const struct measure_options *options;
    struct processes processes;
    MDB_env *env;
    MDB_dbi tables[LMDB_TABLES_MAX];
    MDB_txn *reader;  /* renewed for each transaction that only reads */
    MDB_txn *txn;     /* the current one */
    bool has_changes; /* of the current one */
    struct remo__random random;
    union transaction_counts counts;
    uint64_t paused_ns; /* set by `run`: time since the last timing that is not counted */

    /* of benchmarks of the ordered map (lmdb_tree.c) */
    struct tree_keys keys;
    struct mix_worker worker;
    uint64_t changes;   /* of the point, by this process */
    MDB_cursor *cursor; /* of store->reader */
    struct tree_record *records;
    unsigned entries; /* of a scan */
};

/* A figure to measure. */
struct lmdb_point {
    const char *variant;                   /* NULL: none */
    void (*run)(struct lmdb_store *store); /* one transaction; of a scan: a window of entries */
    bool is_uniform;                       /* not measured with --zipf */
    bool is_scan;                          /* an operation is an entry */
};

/* A benchmark. */
struct lmdb_workload {
    const char *bench, *object;
    const char *tables[LMDB_TABLES_MAX]; /* NULL after the last one */
    uint32_t text_keys;                  /* bit i: the keys of table i are texts, and not integers */
    size_t key_bytes;                    /* of the file, for each key of --keys */
    /* Insert the rows of key `key`, from 1 to the number of keys. Called with ascending keys. */
    void (*insert)(struct lmdb_store *store, uint64_t key);
    /* Before and after each point, in each process; may be NULL. */
    void (*begin)(struct lmdb_store *store);
    void (*finish)(struct lmdb_store *store);
    struct lmdb_point points[LMDB_POINTS_MAX]; /* `run` of the one after the last is NULL */
    bool has_distribution;                     /* of keys, by --zipf */
    /* Add up the counts of a process; may be NULL. */
    void (*add_counts)(union transaction_counts *to, const union transaction_counts *counts);
    /* Check the result of all processes after each point; store->reader is active. */
    void (*check)(const struct lmdb_store *store, const union transaction_counts *all);
};

extern const struct lmdb_workload lmdb_tatp, lmdb_smallbank, lmdb_tree, lmdb_scan, lmdb_ycsb;

/* End the process unless `rc` is 0. */
void lmdb_check(int rc, const char *what);
MDB_val lmdb_value(const void *data, size_t bytes);

/* Begin and end a transaction. One that has no changes is aborted. */
void lmdb_begin(struct lmdb_store *store, bool only_reads);
void lmdb_end(struct lmdb_store *store);
/* Rows with integer keys, in store->txn. Return 0, or the error of LMDB; read: -ENOENT. */
int lmdb_read(const struct lmdb_store *store, unsigned table, size_t key, void *ret_row, size_t bytes);
int lmdb_put(struct lmdb_store *store, unsigned table, size_t key, const void *row, size_t bytes,
             unsigned flags);
