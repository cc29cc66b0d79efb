/* lmdb_tatp.c - the transactions of TATP on LMDB (lmdb_store.h). Each table is a database with integer keys,
 * except the index. Keeping cursors at their rows for the next read or update was tried: it saves no time. */
#include "bench/peers/lmdb_store.h"

#include <errno.h>
#include <string.h>

#define SUBSCRIBER_BYTES 1024u /* 420 are used by the population */
#define TYPE_BITS 4            /* of a type and of a start in an integer key */

/* ---- rows ---- */

/* Return the integer key. The keys of a subscriber are adjacent. */
static size_t integer_of(enum tatp_table table, const struct tatp_key *key) {
    if (table == TATP_SUBSCRIBERS)
        return key->subscriber;
    return (key->subscriber << TYPE_BITS | key->type) << TYPE_BITS | key->start;
}

static int read_row(void *tx, enum tatp_table table, const struct tatp_key *key, void *ret_row,
                    size_t bytes) {
    return lmdb_read(tx, table, integer_of(table, key), ret_row, bytes);
}

static int update_row(void *tx, enum tatp_table table, const struct tatp_key *key, const void *row,
                      size_t bytes) {
    lmdb_check(lmdb_put(tx, table, integer_of(table, key), row, bytes, 0), "update a row");
    return 0;
}

static int insert_row(void *tx, enum tatp_table table, const struct tatp_key *key, const void *row,
                      size_t bytes) {
    int rc = lmdb_put(tx, table, integer_of(table, key), row, bytes, MDB_NOOVERWRITE);
    if (rc == MDB_KEYEXIST)
        return -EEXIST;
    lmdb_check(rc, "insert a row");
    return 0;
}

static int remove_row(void *tx, enum tatp_table table, const struct tatp_key *key) {
    struct lmdb_store *store = tx;
    size_t integer = integer_of(table, key);
    MDB_val name = lmdb_value(&integer, sizeof integer);
    int rc = mdb_del(store->txn, store->dbis[table], &name, NULL);
    if (rc == MDB_NOTFOUND)
        return -ENOENT;
    lmdb_check(rc, "delete a row");
    store->has_changes = true;
    return 0;
}

static int fail_row(uint64_t subscriber, uint64_t other) {
    processes_fail("the benchmark is wrong: the row of subscriber %llu belongs to %llu",
                   (unsigned long long)subscriber, (unsigned long long)other);
}

/* ---- the population: keys ascend, so rows are appended ---- */

static int append_row(void *ctx, enum tatp_table table, const struct tatp_key *key, const void *row,
                      size_t bytes) {
    lmdb_check(lmdb_put(ctx, table, integer_of(table, key), row, bytes, MDB_APPEND), "append a row");
    return 0;
}

static void insert(struct lmdb_store *store, uint64_t subscriber) {
    char digits[TATP_NUMBER_DIGITS + 1];
    tatp_make_number(digits, subscriber);
    MDB_val name = lmdb_value(digits, TATP_NUMBER_DIGITS), value = lmdb_value(&subscriber, sizeof subscriber);
    lmdb_check(mdb_put(store->txn, store->dbis[TATP_NUMBERS], &name, &value, MDB_APPEND), "append a number");
    (void)tatp_populate(subscriber, append_row, store); /* an error ends the process */
}

/* ---- transactions ---- */

/* Find a subscriber in the same transaction: another one for the index would take more time. */
static void find_by_number(const struct lmdb_store *store, uint64_t subscriber) {
    char digits[TATP_NUMBER_DIGITS + 1];
    tatp_make_number(digits, subscriber);
    MDB_val name = lmdb_value(digits, TATP_NUMBER_DIGITS), value;
    lmdb_check(mdb_get(store->txn, store->dbis[TATP_NUMBERS], &name, &value), "find a number");
    if (value.mv_size != sizeof subscriber || memcmp(value.mv_data, &subscriber, sizeof subscriber) != 0)
        processes_fail("the benchmark is wrong: the number of subscriber %llu has another row",
                       (unsigned long long)subscriber);
}

static void run(struct lmdb_store *store) {
    static const struct tatp_store operations = {read_row, update_row, insert_row, remove_row, fail_row};
    struct tatp_call call = tatp_draw(store->options->keys_count, &store->random);
    lmdb_begin(store, call.only_reads);
    if (call.has_number)
        find_by_number(store, call.key.subscriber);
    (void)tatp_execute(&call, &operations, store); /* an error ends the process */
    lmdb_end(store);
    tatp_count(&store->counts.tatp, &call);
}

/* ---- counts ---- */

static void add_counts(union transaction_counts *to, const union transaction_counts *counts) {
    tatp_add_counts(&to->tatp, &counts->tatp);
}

static void check(const struct lmdb_store *store, const union transaction_counts *all) {
    char sentence[TATP_SENTENCE_BYTES];
    if (!tatp_check_shares(&all->tatp, store->options->keys_count, sentence))
        processes_fail("%s", sentence);
}

const struct lmdb_workload lmdb_tatp = {
    .bench = "tatp",
    .tables = {.names = {"subscribers", "access", "facilities", "forwardings", "numbers"},
               .text_keys = 1u << TATP_NUMBERS,
               .key_bytes = SUBSCRIBER_BYTES},
    .insert = insert,
    .run = run,
    .add_counts = add_counts,
    .check = check,
};
