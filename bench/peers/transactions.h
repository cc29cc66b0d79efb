/* transactions.h - TATP and SmallBank on a store that several processes use: an embedded database, or a
 * server. All stores run the transactions of bench/tx, with the same population and the same checks: the
 * shares of transactions that find their rows, and the sum of all accounts.
 * A function of a store that fails prints a sentence, and ends the process. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/random.h"
#include "bench/peers/measure.h"
#include "bench/peers/processes.h"

#define TRANSACTIONS_WINDOW_MAX 1024u
#define TRANSACTIONS_WINDOWS_MAX 4u

struct transactions_store;

union transaction_call {
    struct tatp_call tatp;
    struct smallbank_call smallbank;
};

/* A benchmark, as seen by one process. */
struct transactions {
    const struct transactions_store *store;
    const struct measure_options *options;
    bool is_tatp;    /* not SmallBank */
    uint64_t keys;   /* subscribers or customers */
    unsigned window; /* of the point: transactions for each call of `run` */
    struct processes processes;
    struct remo__random random;
    union transaction_counts counts;                       /* of this process, of all points so far */
    union transaction_call calls[TRANSACTIONS_WINDOW_MAX]; /* in flight, for a store that needs it */
    void *state;                                           /* of the store */
};

struct transactions_store {
    const char *name; /* for sentences */
    /* The default windows, up to a zero: transactions that a process sends together. All zero: the store
     * runs one at a time, and the output has no window. */
    unsigned windows[TRANSACTIONS_WINDOWS_MAX];
    /* Make the empty store. Called in process 0 before it starts the others. */
    void (*start)(struct transactions *bench);
    /* Connect to the store. Called in each process, first in process 0, which may make the tables. */
    void (*open)(struct transactions *bench);
    /* Insert all rows, and make tables that `open` has not made. Called in process 0 when all processes are
     * connected. */
    void (*fill)(struct transactions *bench);
    /* Prepare for the points. Called in each process, after `fill`; may be NULL. */
    void (*begin)(struct transactions *bench);
    /* Draw, run and count `window` transactions. */
    void (*run)(struct transactions *bench);
    /* Return the sum of all accounts. Called in process 0 while no transaction runs. */
    int64_t (*sum)(struct transactions *bench);
};

/* Run the whole program. */
int transactions_main(const struct transactions_store *store, int argc, char **argv);
