/* lmdb_smallbank.c - the transactions of SmallBank on LMDB (lmdb_store.h). Each table is a database with
 * integer keys. Processes that change rows wait for each other: LMDB has one writer at a time. */
#include "bench/peers/lmdb_store.h"

#define CUSTOMER_BYTES 256u /* 100 are used by the population */

/* ---- rows ---- */

static void read_row(void *tx, enum smallbank_table table, uint64_t customer, struct smallbank_row *ret_row) {
    if (lmdb_read(tx, table, customer, ret_row, sizeof *ret_row) != 0)
        processes_fail("the benchmark is wrong: customer %llu has no account", (unsigned long long)customer);
}

static int read_rows(void *tx, const struct smallbank_account *accounts, uint32_t count,
                     struct smallbank_row *ret_rows) {
    for (uint32_t i = 0; i < count; i++)
        read_row(tx, accounts[i].table, accounts[i].customer, &ret_rows[i]);
    return 0;
}

static int update_row(void *tx, enum smallbank_table table, const struct smallbank_row *row) {
    lmdb_check(lmdb_put(tx, table, row->customer, row, sizeof *row, 0), "update an account");
    return 0;
}

static int fail_row(uint64_t customer, uint64_t other) {
    processes_fail("the benchmark is wrong: the account of customer %llu belongs to %llu",
                   (unsigned long long)customer, (unsigned long long)other);
}

static void insert(struct lmdb_store *store, uint64_t key) {
    const struct smallbank_row row = {key - 1, SMALLBANK_INITIAL};
    for (unsigned table = 0; table < SMALLBANK_TABLES; table++)
        lmdb_check(lmdb_put(store, table, row.customer, &row, sizeof row, MDB_APPEND), "append an account");
}

/* ---- transactions ---- */

static void run(struct lmdb_store *store) {
    static const struct smallbank_store operations = {read_rows, update_row, fail_row};
    struct smallbank_call call = smallbank_draw(store->options->keys_count, &store->random);
    lmdb_begin(store, call.only_reads);
    (void)smallbank_execute(&call, &operations, store); /* an error ends the process */
    lmdb_end(store);
    smallbank_count(&store->counts.smallbank, &call);
}

/* ---- counts ---- */

static void add_counts(union transaction_counts *to, const union transaction_counts *counts) {
    smallbank_add_counts(&to->smallbank, &counts->smallbank);
}

static void check(const struct lmdb_store *store, const union transaction_counts *all) {
    uint64_t customers = store->options->keys_count;
    int64_t sum = 0, expected = smallbank_sum(customers, &all->smallbank);
    for (uint64_t customer = 0; customer < customers; customer++)
        for (unsigned table = 0; table < SMALLBANK_TABLES; table++) {
            struct smallbank_row row;
            read_row((void *)(uintptr_t)store, table, customer, &row);
            sum += row.balance;
        }
    if (sum != expected)
        processes_fail("the benchmark is wrong: the sum of all accounts is %lld, not %lld", (long long)sum,
                       (long long)expected);
}

const struct lmdb_workload lmdb_smallbank = {
    .bench = "smallbank",
    .tables = {.names = {"savings", "checking"}, .key_bytes = CUSTOMER_BYTES},
    .insert = insert,
    .run = run,
    .add_counts = add_counts,
    .check = check,
};
