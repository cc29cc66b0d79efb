/* lmdb_store.c - the environment, transactions and rows of LMDB, for its benchmarks (lmdb_store.h). The file
 * is not synchronised: a commit makes no system call for durability, as with Remo. A process resets and
 * renews one read-only transaction: beginning another one takes more time. */
#include "bench/peers/lmdb_store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"

#define FOLDER "/dev/shm"
#define FILE_BYTES_MIN (64ull << 20) /* room for old versions of pages that transactions replace */

void lmdb_check(int rc, const char *what) {
    if (rc != 0)
        processes_fail("LMDB cannot %s: %s", what, mdb_strerror(rc));
}

/* ---- the environment ---- */

static char folder[] = FOLDER "/remo-peer-lmdb-XXXXXX";
static pid_t folder_owner; /* 0: the folder has been removed */

void lmdb_remove_folder(void) {
    static const char *const files[] = {"data.mdb", "lock.mdb"};
    char file[sizeof folder + 16];
    if (folder_owner != getpid())
        return;
    for (size_t i = 0; i < REMO__ARRAY_COUNT(files); i++) {
        snprintf(file, sizeof file, "%s/%s", folder, files[i]);
        unlink(file);
    }
    rmdir(folder);
    folder_owner = 0;
}

static size_t file_bytes(const struct lmdb_store *store) {
    return FILE_BYTES_MIN + store->options->keys_count * store->tables->key_bytes;
}

void lmdb_make_folder(const struct lmdb_store *store) {
    processes_check_room(FOLDER, file_bytes(store), "the file of LMDB");
    if (!mkdtemp(folder))
        processes_fail("cannot make the folder %s: %s", folder, strerror(errno));
    folder_owner = getpid();
    atexit(lmdb_remove_folder);
}

void lmdb_open(struct lmdb_store *store) {
    unsigned flags = MDB_NOSYNC | MDB_NOMETASYNC | MDB_WRITEMAP | MDB_NOTLS;
    lmdb_check(mdb_env_create(&store->env), "create an environment");
    lmdb_check(mdb_env_set_maxdbs(store->env, LMDB_TABLES_MAX), "set the number of databases");
    lmdb_check(mdb_env_set_mapsize(store->env, file_bytes(store)), "set the size of the map");
    lmdb_check(mdb_env_open(store->env, folder, flags, 0600), "open the environment");
}

void lmdb_open_tables(struct lmdb_store *store, unsigned flags) {
    const struct lmdb_tables *tables = store->tables;
    MDB_txn *txn;
    lmdb_check(mdb_txn_begin(store->env, NULL, flags & MDB_CREATE ? 0 : MDB_RDONLY, &txn), "begin");
    for (unsigned i = 0; tables->names[i]; i++) {
        unsigned kind = tables->text_keys >> i & 1 ? 0 : MDB_INTEGERKEY;
        lmdb_check(mdb_dbi_open(txn, tables->names[i], flags | kind, &store->dbis[i]), "open a table");
    }
    lmdb_check(mdb_txn_commit(txn), "commit");
}

void lmdb_open_reader(struct lmdb_store *store) {
    MDB_cursor *cursor;
    MDB_val key, row;
    lmdb_check(mdb_txn_begin(store->env, NULL, MDB_RDONLY, &store->reader), "begin");
    for (unsigned i = 0; store->tables->names[i]; i++) {
        lmdb_check(mdb_cursor_open(store->reader, store->dbis[i], &cursor), "open a cursor");
        while (mdb_cursor_get(cursor, &key, &row, MDB_NEXT) == 0)
            (void)*(const volatile char *)row.mv_data;
        mdb_cursor_close(cursor);
    }
    mdb_txn_reset(store->reader);
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
    int rc = mdb_get(store->txn, store->dbis[table], &name, &row);
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
    int rc = mdb_put(store->txn, store->dbis[table], &name, &value, flags);
    store->has_changes |= rc == 0;
    return rc;
}
