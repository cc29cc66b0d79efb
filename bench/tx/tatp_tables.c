/* tatp_tables.c - the tables of TATP on Remo, and its transactions in them. All rows of a subscriber have the
 * same owner, so each transaction with changes is committed by one call. The commit also validates that rows
 * that the transaction did not find are still absent. */
#include <errno.h>
#include <stdio.h>

#include "base/error.h"
#include "bench/tx/tatp.h"

static struct remo_structure *structure_of(const struct tatp_tables *tables, enum tatp_table table) {
    return remo_table_structure(tables->of[table]);
}

static size_t key_bytes_of(enum tatp_table table) {
    const struct tatp_key *key = NULL;
    return table == TATP_NUMBERS       ? TATP_NUMBER_DIGITS
           : table == TATP_SUBSCRIBERS ? sizeof key->subscriber
                                       : sizeof *key;
}

/* ---- open and close ---- */

static int open_spaces(struct remo_channel *parent, const char *name, struct remo_structure **structures,
                       struct tatp_tables *ret_tables) {
    struct remo_tx_space_options options = {.structures = structures, .structure_count = TATP_NUMBERS};
    char early[40];
    int rc = remo_tx_space_open(parent, name, &options, &ret_tables->space);
    options.locks = REMO_TX_EARLY;
    snprintf(early, sizeof early, "%s-early", name);
    return rc == 0 ? remo_tx_space_open(parent, early, &options, &ret_tables->early) : rc;
}

int tatp_open(struct remo_channel *parent, const char *name, uint64_t subscribers,
              enum remo_table_lookups lookups, struct tatp_tables *ret_tables) {
    static const struct {
        const char *name;
        uint32_t rows; /* the mean for each subscriber, rounded up */
    } kinds[TATP_TABLES] = {
        {"subscribers", 1}, {"access", 3}, {"facilities", 3}, {"forwardings", 4}, {"numbers", 1}};
    struct remo_structure *structures[TATP_TABLES];
    int rc = 0;
    ret_tables->subscribers = subscribers;
    for (uint32_t i = 0; i < TATP_TABLES && rc == 0; i++) {
        char table[40];
        snprintf(table, sizeof table, "%s-%s", name, kinds[i].name);
        struct remo_table_options options = {.capacity = subscribers * kinds[i].rows,
                                             .key_bytes_max = (uint32_t)key_bytes_of(i),
                                             .value_bytes_max = (uint32_t)tatp_row_bytes(i),
                                             .partition_bytes = i == TATP_NUMBERS ? 0 : sizeof(uint64_t),
                                             .lookups = lookups};
        rc = remo_table_open(parent, table, &options, &ret_tables->of[i]);
        structures[i] = structure_of(ret_tables, i);
    }
    return rc == 0 ? open_spaces(parent, name, structures, ret_tables) : rc;
}

void tatp_close(struct tatp_tables *tables) {
    remo_tx_space_close(tables->space);
    remo_tx_space_close(tables->early);
    for (uint32_t i = 0; i < TATP_TABLES; i++)
        remo_table_close(tables->of[i]);
}

static int insert_row(void *ctx, enum tatp_table table, const struct tatp_key *key, const void *row,
                      size_t bytes) {
    return remo_structure_insert(structure_of(ctx, table), key, key_bytes_of(table), row, bytes);
}

int tatp_insert(struct tatp_tables *tables, uint32_t rank, uint64_t subscriber) {
    char digits[TATP_NUMBER_DIGITS + 1];
    int rc = 0;
    tatp_make_number(digits, subscriber);
    if (remo_table_owner(tables->of[TATP_NUMBERS], digits, TATP_NUMBER_DIGITS) == rank)
        rc = remo_structure_insert(structure_of(tables, TATP_NUMBERS), digits, TATP_NUMBER_DIGITS,
                                   &subscriber, sizeof subscriber);
    if (rc == 0 && remo_table_owner(tables->of[TATP_SUBSCRIBERS], &subscriber, sizeof subscriber) == rank)
        rc = tatp_populate(subscriber, insert_row, tables);
    return rc;
}

/* ---- transactions ---- */

/* A transaction, until it is committed. */
struct run {
    const struct tatp_tables *tables;
    struct remo_tx *tx;
    struct tatp_call call;
    uint64_t attempts;
};

static int tx_read(void *tx, enum tatp_table table, const struct tatp_key *key, void *ret_row, size_t bytes) {
    const struct run *run = tx;
    size_t row_bytes = 0;
    /* the only kind that changes a row which it reads; with late locks the two functions are the same */
    bool changes = run->call.kind == TATP_UPDATE_SUBSCRIBER;
    int rc = (changes ? remo_tx_read_for_update : remo_tx_read)(
        run->tx, structure_of(run->tables, table), key, key_bytes_of(table), ret_row, bytes, &row_bytes);
    if (rc == 0 && row_bytes != bytes)
        return remo__fail(-EIO, "the benchmark is wrong: a row of %zu bytes instead of %zu", row_bytes,
                          bytes);
    return rc;
}

static int tx_update(void *tx, enum tatp_table table, const struct tatp_key *key, const void *row,
                     size_t bytes) {
    const struct run *run = tx;
    return remo_tx_update(run->tx, structure_of(run->tables, table), key, key_bytes_of(table), row, bytes);
}

static int tx_insert(void *tx, enum tatp_table table, const struct tatp_key *key, const void *row,
                     size_t bytes) {
    const struct run *run = tx;
    return remo_tx_insert(run->tx, structure_of(run->tables, table), key, key_bytes_of(table), row, bytes);
}

static int tx_remove(void *tx, enum tatp_table table, const struct tatp_key *key) {
    const struct run *run = tx;
    return remo_tx_delete(run->tx, structure_of(run->tables, table), key, key_bytes_of(table));
}

static int fail_row(uint64_t subscriber, uint64_t other) {
    return remo__fail(-EIO, "the benchmark is wrong: the row of subscriber %llu belongs to %llu",
                      (unsigned long long)subscriber, (unsigned long long)other);
}

static const struct tatp_store store = {tx_read, tx_update, tx_insert, tx_remove, fail_row};

static int run_attempt(void *ctx, struct remo_tx *tx) {
    struct run *run = ctx;
    run->tx = tx;
    run->attempts++;
    return tatp_execute(&run->call, &store, run);
}

/* Numbers never change, so this lookup is not part of the transaction. */
static int find_by_number(const struct tatp_tables *tables, uint64_t subscriber) {
    char digits[TATP_NUMBER_DIGITS + 1];
    uint64_t found = 0;
    tatp_make_number(digits, subscriber);
    int rc = remo_structure_lookup(structure_of(tables, TATP_NUMBERS), digits, TATP_NUMBER_DIGITS, &found,
                                   sizeof found, NULL, NULL);
    return rc == 0 && found != subscriber ? fail_row(subscriber, found) : rc;
}

int tatp_run(const struct tatp_tables *tables, struct remo_tx *tx, struct remo__random *random,
             struct tatp_counts *counts) {
    struct run run = {.tables = tables, .call = tatp_draw(tables->subscribers, random)};
    int rc = run.call.has_number ? find_by_number(tables, run.call.key.subscriber) : 0;
    if (rc == 0)
        rc = remo_tx_run(tx, run_attempt, &run, REMO_FOREVER);
    if (rc != 0)
        return rc;
    tatp_count(counts, &run.call);
    counts->repeated += run.attempts - 1;
    return 0;
}
