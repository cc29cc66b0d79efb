/* tatp.h - the tables of the TATP benchmark (Telecom Application Transaction Processing, version 1.0), their
 * rows, and its transactions. */
#pragma once

#include <remo/table.h>
#include <remo/tx.h>

#include "base/random.h"

#define TATP_TYPES 4u       /* of access information and of special facilities of a subscriber */
#define TATP_START_HOURS 8u /* call forwarding starts at 0, 8 or 16 o'clock */
#define TATP_STARTS 3u

enum tatp_table {
    TATP_SUBSCRIBERS,
    TATP_ACCESS_INFOS,
    TATP_FACILITIES,
    TATP_FORWARDINGS,
    TATP_NUMBERS, /* the index of the subscribers by number */
    TATP_TABLES
};

struct tatp_tables {
    struct remo_table *of[TATP_TABLES];
    struct remo_tx_space *space; /* of all tables but the index, which never changes */
    uint64_t subscribers;        /* numbered from 1 */
};

/* Seven transactions. */
enum tatp_kind {
    TATP_GET_SUBSCRIBER,
    TATP_GET_DESTINATION,
    TATP_GET_ACCESS,
    TATP_UPDATE_SUBSCRIBER,
    TATP_UPDATE_LOCATION,
    TATP_INSERT_FORWARDING,
    TATP_DELETE_FORWARDING,
    TATP_KINDS
};

struct tatp_counts {
    uint64_t tried[TATP_KINDS], found[TATP_KINDS]; /* found: all rows that the transaction needs */
    uint64_t repeated;                             /* attempts that ended with a conflict */
};

/* Open the tables below `parent`. `lookups` is that of table.h. Errors: those of remo_table_open and
 * remo_tx_space_open. */
int tatp_open(struct remo_channel *parent, const char *name, uint64_t subscribers,
              enum remo_table_lookups lookups, struct tatp_tables *ret_tables);
/* Tables that were not opened are NULL. */
void tatp_close(struct tatp_tables *tables);
/* Return how many subscribers, if each were drawn equally often, would have the variance of those that are
 * drawn. The standard draws some more often than others. */
double tatp_spread(uint64_t subscribers);
/* Insert the rows of a subscriber that this node owns. Errors: those of remo_structure_insert. */
int tatp_insert(const struct tatp_tables *tables, uint32_t rank, uint64_t subscriber);
/* Run one transaction of a random kind, and count it. Errors: those of the transactions; -EIO: a row is
 * wrong. */
int tatp_run(const struct tatp_tables *tables, struct remo_tx *tx, struct remo__random *random,
             struct tatp_counts *counts);
