/* smallbank_rows.h - the SmallBank benchmark (Alomari et al., ICDE 2008): the savings and checking accounts
 * of customers, and transactions on any store: Remo's tables (smallbank.c) or a competitor (bench/peers). So
 * all stores do the same work. Amounts are in cents. Frequencies and hot customers are those of FaSST:
 * 90 % of the accesses use 4 % of the customers. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/random.h"

#define SMALLBANK_INITIAL 1000000 /* balance of each account at first */

/* The amounts of transactions. */
#define SMALLBANK_DEPOSIT 130
#define SMALLBANK_PAYMENT 500
#define SMALLBANK_SAVING 2020
#define SMALLBANK_CHECK 500
#define SMALLBANK_PENALTY 100 /* for a check that is not covered */

enum smallbank_table { SMALLBANK_SAVINGS, SMALLBANK_CHECKING, SMALLBANK_TABLES };

/* An account. Its key is the customer, from 0. */
struct smallbank_row {
    uint64_t customer;
    int64_t balance;
};

enum smallbank_kind {
    SMALLBANK_AMALGAMATE, /* move all of one customer to the checking account of another one */
    SMALLBANK_BALANCE,
    SMALLBANK_DEPOSIT_CHECKING,
    SMALLBANK_SEND_PAYMENT, /* between the checking accounts of two customers */
    SMALLBANK_TRANSACT_SAVINGS,
    SMALLBANK_WRITE_CHECK,
    SMALLBANK_KINDS
};

/* A transaction. */
struct smallbank_call {
    enum smallbank_kind kind;
    uint64_t customers[2];
    bool only_reads;
    bool is_refused; /* it found too little money, and changed nothing */
    int64_t added;   /* to the sum of all accounts */
};

/* The key of an account. */
struct smallbank_account {
    enum smallbank_table table;
    uint64_t customer;
};

#define SMALLBANK_READS_MAX 3u /* of one call of `read` */

/* Operations of a store, as part of a transaction `tx`. Each returns 0 or an error, which ends the
 * transaction. */
struct smallbank_store {
    /* Read `count` accounts: ret_rows[i] is accounts[i]. */
    int (*read)(void *tx, const struct smallbank_account *accounts, uint32_t count,
                struct smallbank_row *ret_rows);
    /* Replace a row that the transaction has read. */
    int (*update)(void *tx, enum smallbank_table table, const struct smallbank_row *row);
    /* Report that the account of a customer belongs to another one. Returns an error. */
    int (*fail)(uint64_t customer, uint64_t other);
};

struct smallbank_call smallbank_draw(uint64_t customers, struct remo__random *random);
/* Run a transaction once, and set `is_refused` and `added`. It may run again after a conflict. Returns 0 or
 * the error of the store. */
int smallbank_execute(struct smallbank_call *call, const struct smallbank_store *store, void *tx);

struct smallbank_counts {
    uint64_t tried, refused;
    uint64_t repeated; /* attempts that ended with a conflict */
    int64_t added;
};

/* Count a transaction that has ended. */
void smallbank_count(struct smallbank_counts *counts, const struct smallbank_call *call);
void smallbank_add_counts(struct smallbank_counts *to, const struct smallbank_counts *counts);
/* Return the sum of all accounts after these transactions. */
int64_t smallbank_sum(uint64_t customers, const struct smallbank_counts *counts);
