/* redis_tx.h - the parts of TATP and SmallBank that redis_tx.c runs. */
#pragma once

#include "bench/peers/redis_client.h"
#include "bench/peers/transactions.h"

#define REDIS_SCRIPTS_MAX 8u

/* The connection of a process. */
struct redis_state {
    struct redis_client *client;
    char scripts[REDIS_SCRIPTS_MAX][REDIS_SHA_BYTES]; /* by kind; "": the transaction is one command */
};

/* A benchmark. */
struct redis_workload {
    const char *const *scripts; /* by kind; NULL: the transaction is one command */
    unsigned kinds;
    /* Add the commands that insert the rows of a key, from 0. Returns their number. */
    unsigned (*insert)(struct redis_client *client, uint64_t key);
    /* Draw transaction `i` of the window, and add its command. */
    void (*send)(struct transactions *bench, struct redis_state *state, unsigned i);
    /* Receive its reply, and count it. */
    void (*receive)(struct transactions *bench, struct redis_state *state, unsigned i);
};

extern const struct redis_workload redis_tatp, redis_smallbank;
extern const struct transactions_store redis_transactions;

/* Add the command that reads both accounts of a customer. */
void redis_smallbank_add_balance(struct redis_client *client, uint64_t customer);
