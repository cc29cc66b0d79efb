/* lmdb_store.h - the environment of LMDB as one process uses it, and its benchmarks.
 * A function that fails prints a sentence, and ends the process. */
#pragma once

#include <lmdb.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/random.h"
#include "bench/peers/measure.h"
#include "bench/peers/ordered.h"
#include "bench/peers/processes.h"

#define LMDB_TABLES_MAX 8u

struct lmdb_tables {
    const char *names[LMDB_TABLES_MAX]; /* NULL after the last one */
    uint32_t text_keys;                 /* bit i: the keys of table i are texts, and not integers */
    size_t key_bytes;                   /* of the file, for each key of --keys */
};

/* The databases, as seen by one process. */
struct lmdb_store {
    const struct lmdb_tables *tables;
    const struct measure_options *options;
    MDB_env *env;
    MDB_dbi dbis[LMDB_TABLES_MAX];
    MDB_txn *reader;    /* renewed for each transaction that only reads */
    MDB_txn *txn;       /* the current one */
    bool has_changes;   /* of the current one */
    MDB_cursor *cursor; /* of `reader`; NULL: none is open */

    /* of TATP and SmallBank (lmdb.c) */
    const struct lmdb_workload *workload;
    struct processes processes;
    struct remo__random random;
    union transaction_counts counts;
};

/* A benchmark of transactions. */
struct lmdb_workload {
    const char *bench;
    struct lmdb_tables tables;
    /* Insert the rows of key `key`, from 1 to the number of keys. Called with ascending keys. */
    void (*insert)(struct lmdb_store *store, uint64_t key);
    void (*run)(struct lmdb_store *store); /* one transaction */
    /* Add up the counts of a process. */
    void (*add_counts)(union transaction_counts *to, const union transaction_counts *counts);
    /* Check the result of all processes; store->reader is active. */
    void (*check)(const struct lmdb_store *store, const union transaction_counts *all);
};

extern const struct lmdb_workload lmdb_tatp, lmdb_smallbank;
extern const struct ordered_store lmdb_ordered;

/* Make the folder of the file, on a tmpfs. The program removes it when it ends. */
void lmdb_make_folder(const struct lmdb_store *store);
/* Remove it now: its files remain until the processes that have opened them end. */
void lmdb_remove_folder(void);
void lmdb_open(struct lmdb_store *store);
/* Open the tables, or make them (`flags` MDB_CREATE). */
void lmdb_open_tables(struct lmdb_store *store, unsigned flags);
/* Open the transaction for reads, and read all rows, so that few transactions wait for a page fault. */
void lmdb_open_reader(struct lmdb_store *store);

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
