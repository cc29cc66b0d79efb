/* tatp_rows.h - the rows of the TATP benchmark (Telecom Application Transaction Processing, version 1.0), and
 * its transactions on any store: Remo's tables (tatp_tables.c) or a competitor (bench/peers). So all stores
 * do the same work. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/random.h"

#define TATP_TYPES 4u  /* of access information and of special facilities of a subscriber */
#define TATP_STARTS 3u /* of call forwarding: 0, 8 and 16 o'clock */
#define TATP_NUMBER_DIGITS 15u
#define TATP_SENTENCE_BYTES 160u

enum tatp_table {
    TATP_SUBSCRIBERS,
    TATP_ACCESS_INFOS,
    TATP_FACILITIES,
    TATP_FORWARDINGS,
    TATP_NUMBERS, /* the index of the subscribers by number; it never changes */
    TATP_TABLES
};

struct tatp_key {
    uint64_t subscriber;  /* from 1 */
    uint32_t type, start; /* from 1; 0: the key does not have it */
};

/* ---- rows ---- */

struct tatp_subscriber {
    uint64_t number;
    char sub_nbr[16]; /* 15 digits */
    uint32_t msc_location, vlr_location;
    uint8_t bit[10], hex[10], byte2[10], unused[2];
};

struct tatp_access_info {
    uint32_t number;
    uint8_t data1, data2;
    char data3[3], data4[5], unused[2];
};

struct tatp_facility {
    uint32_t number;
    uint8_t is_active, error_cntrl, data_a;
    char data_b[5], unused[4];
};

struct tatp_forwarding {
    uint8_t end_time;
    char numberx[15];
};

/* Return the size of a row. In the index a key is the digits of a number, and a row is a subscriber, of 8
 * bytes. */
size_t tatp_row_bytes(enum tatp_table table);
/* Write the digits of the number of a subscriber, and a terminating zero. */
void tatp_make_number(char ret_digits[TATP_NUMBER_DIGITS + 1], uint64_t subscriber);
/* Draw a call forwarding. */
struct tatp_forwarding tatp_make_forwarding(struct remo__random *random, uint64_t end_time);
/* Generate the rows of a subscriber, except its number. They are the same in each call. In each table the
 * keys ascend. Stops when `insert` fails, and returns its error. */
int tatp_populate(uint64_t subscriber,
                  int (*insert)(void *ctx, enum tatp_table table, const struct tatp_key *key, const void *row,
                                size_t bytes),
                  void *ctx);

/* ---- transactions ---- */

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

/* A transaction. */
struct tatp_call {
    enum tatp_kind kind;
    struct tatp_key key; /* of its subscriber, with the type and start that it uses */
    uint64_t end_time;
    struct remo__random *random;
    bool only_reads, has_number; /* has_number: it finds its subscriber by number first */
    bool found;                  /* all rows that the transaction needs */
};

/* Operations of a store, as part of a transaction `tx`. Each returns 0 or an error, which ends the
 * transaction. */
struct tatp_store {
    /* Errors: -ENOENT. */
    int (*read)(void *tx, enum tatp_table table, const struct tatp_key *key, void *ret_row, size_t bytes);
    /* Replace a row that the transaction has read. */
    int (*update)(void *tx, enum tatp_table table, const struct tatp_key *key, const void *row, size_t bytes);
    /* Errors: -EEXIST. */
    int (*insert)(void *tx, enum tatp_table table, const struct tatp_key *key, const void *row, size_t bytes);
    /* Errors: -ENOENT. */
    int (*remove)(void *tx, enum tatp_table table, const struct tatp_key *key);
    /* Report that the row of a subscriber belongs to another one. Returns an error. */
    int (*fail)(uint64_t subscriber, uint64_t other);
};

/* Draw a transaction: its kind with the frequencies of the standard, and its subscriber with the distribution
 * of the standard, which is not uniform. `random` must remain valid while the transaction runs. */
struct tatp_call tatp_draw(uint64_t subscribers, struct remo__random *random);
/* Run a transaction once, and set `found`. It may run again after a conflict. Returns 0 or the error of the
 * store. */
int tatp_execute(struct tatp_call *call, const struct tatp_store *store, void *tx);

/* ---- counts ---- */

struct tatp_counts {
    uint64_t tried[TATP_KINDS], found[TATP_KINDS];
    uint64_t repeated; /* attempts that ended with a conflict */
};

/* Count a transaction that has ended. */
void tatp_count(struct tatp_counts *counts, const struct tatp_call *call);
void tatp_add_counts(struct tatp_counts *to, const struct tatp_counts *counts);
/* Return whether the shares of transactions that found their rows are those that follow from the population.
 * If not, write a sentence. */
bool tatp_check_shares(const struct tatp_counts *counts, uint64_t subscribers,
                       char ret_sentence[TATP_SENTENCE_BYTES]);
