/* lmdb_store.c - transactions and rows of LMDB, for its benchmarks (lmdb_store.h). A process resets and
 * renews one read-only transaction: beginning another one takes more time. */
#include "bench/peers/lmdb_store.h"

#include <errno.h>
#include <string.h>

void lmdb_check(int rc, const char *what) {
    if (rc != 0)
        processes_fail("LMDB cannot %s: %s", what, mdb_strerror(rc));
}

/* ---- transactions ---- */

void lmdb_begin(struct lmdb_store *store, bool only_reads) {
    store->has_changes = false;
    store->txn = store->reader;
    if (only_reads)
        lmdb_check(mdb_txn_renew(store->reader), "renew a transaction");
    else
        lmdb_check(mdb_txn_begin(store->env, NULL, 0, &store->txn), "begin");
}

void lmdb_end(struct lmdb_store *store) {
    if (store->txn == store->reader)
        mdb_txn_reset(store->reader);
    else if (store->has_changes)
        lmdb_check(mdb_txn_commit(store->txn), "commit");
    else
        mdb_txn_abort(store->txn);
}

/* ---- rows ---- */

MDB_val lmdb_value(const void *data, size_t bytes) {
    return (MDB_val){.mv_size = bytes, .mv_data = (void *)(uintptr_t)data};
}

int lmdb_read(const struct lmdb_store *store, unsigned table, size_t key, void *ret_row, size_t bytes) {
    MDB_val name = lmdb_value(&key, sizeof key), row;
    int rc = mdb_get(store->txn, store->tables[table], &name, &row);
    if (rc == MDB_NOTFOUND)
        return -ENOENT;
    lmdb_check(rc, "read a row");
    if (row.mv_size != bytes)
        processes_fail("the benchmark is wrong: a row of %zu bytes instead of %zu", row.mv_size, bytes);
    memcpy(ret_row, row.mv_data, bytes);
    return 0;
}

int lmdb_put(struct lmdb_store *store, unsigned table, size_t key, const void *row, size_t bytes,
             unsigned flags) {
    MDB_val name = lmdb_value(&key, sizeof key), value = lmdb_value(row, bytes);
    int rc = mdb_put(store->txn, store->tables[table], &name, &value, flags);
    store->has_changes |= rc == 0;
    return rc;
}
