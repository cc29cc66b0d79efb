/* tatp.h - the tables of the TATP benchmark on Remo, and transactions in them. */
#pragma once

#include <remo/table.h>
#include <remo/tx.h>

#include "bench/tx/tatp_rows.h"

struct tatp_tables {
    struct remo_table *of[TATP_TABLES];
    struct remo_tx_space *space; /* of all tables but the index, which never changes */
    struct remo_tx_space *early; /* the same, with early locks */
    uint64_t subscribers;        /* numbered from 1 */
};

/* Open the tables below `parent`. `lookups` is that of table.h. Errors: those of remo_table_open and
 * remo_tx_space_open. */
int tatp_open(struct remo_channel *parent, const char *name, uint64_t subscribers,
              enum remo_table_lookups lookups, struct tatp_tables *ret_tables);
/* Tables that were not opened are NULL. */
void tatp_close(struct tatp_tables *tables);
/* Insert the rows of a subscriber that this node owns. Errors: those of remo_structure_insert. */
int tatp_insert(struct tatp_tables *tables, uint32_t rank, uint64_t subscriber);
/* Run one transaction of a random kind, and count it. Errors: those of the transactions; -EIO: a row is
 * wrong. */
int tatp_run(const struct tatp_tables *tables, struct remo_tx *tx, struct remo__random *random,
             struct tatp_counts *counts);
