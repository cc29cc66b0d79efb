/* lmdb_tree.c - the ordered map on LMDB (ordered.h): a database with the keys and values of the benchmarks of
 * the tree. Each get, each scan and each change is a transaction of its own. */
#include <string.h>

#include "bench/peers/lmdb_store.h"

#define ENTRY_BYTES \
    256u /* of the file, for each entry: pages are half full at worst, and replaced pages remain */
#define COMMIT_KEYS 10000u /* of a transaction of the population */

static const struct lmdb_tables tables = {.names = {"map"}, .text_keys = 1, .key_bytes = ENTRY_BYTES};

/* Of this process. */
static struct lmdb_store store;
static unsigned added; /* entries of the transaction of `add` */

static void start(struct ordered *map) {
    store = (struct lmdb_store){.tables = &tables, .options = map->options};
    lmdb_make_folder(&store);
}

static void open_store(struct ordered *map) {
    lmdb_open(&store);
    lmdb_open_tables(&store, map->processes.index == 0 ? MDB_CREATE : 0);
}

/* ---- the population ---- */

static void put(uint64_t key, uint64_t value, unsigned flags) {
    MDB_val name = lmdb_value(&key, sizeof key), data = lmdb_value(&value, sizeof value);
    lmdb_check(mdb_put(store.txn, store.dbis[0], &name, &data, flags), "put an entry");
    store.has_changes = true;
}

static void flush(struct ordered *map) {
    (void)map;
    if (added > 0)
        lmdb_end(&store);
    added = 0;
}

static void add(struct ordered *map, uint64_t key, uint64_t value) {
    if (added == 0) {
        lmdb_remove_folder(); /* all processes have opened the file */
        lmdb_begin(&store, false);
    }
    put(key, value, 0);
    if (++added == COMMIT_KEYS)
        flush(map);
}

static void begin(struct ordered *map) {
    (void)map;
    lmdb_open_reader(&store);
}

/* ---- operations ---- */

static void get(struct ordered *map, struct tree_record *records, unsigned count) {
    (void)map;
    for (unsigned i = 0; i < count; i++) {
        MDB_val name = lmdb_value(&records[i].key, sizeof records[i].key), data;
        lmdb_begin(&store, true);
        lmdb_check(mdb_get(store.txn, store.dbis[0], &name, &data), "get an entry");
        if (data.mv_size != sizeof records[i].value)
            processes_fail("the benchmark is wrong: a value has %zu bytes", data.mv_size);
        memcpy(&records[i].value, data.mv_data, sizeof records[i].value);
        lmdb_end(&store);
    }
}

static void change(const struct tree_record *record, unsigned flags) {
    lmdb_begin(&store, false);
    put(record->key, record->value, flags);
    lmdb_end(&store);
}

static void update(struct ordered *map, const struct tree_record *records, unsigned count) {
    (void)map;
    for (unsigned i = 0; i < count; i++)
        change(&records[i], 0);
}

static void insert(struct ordered *map, const struct tree_record *record) {
    (void)map;
    change(record, MDB_NOOVERWRITE);
}

static void remove_key(struct ordered *map, uint64_t key) {
    MDB_val name = lmdb_value(&key, sizeof key);
    (void)map;
    lmdb_begin(&store, false);
    lmdb_check(mdb_del(store.txn, store.dbis[0], &name, NULL), "delete an entry");
    store.has_changes = true;
    lmdb_end(&store);
}

static unsigned scan(struct ordered *map, uint64_t from, struct tree_record *records, unsigned count) {
    MDB_val name = lmdb_value(&from, sizeof from), data;
    unsigned found = 0;
    int rc;
    (void)map;
    lmdb_begin(&store, true);
    if (!store.cursor)
        lmdb_check(mdb_cursor_open(store.txn, store.dbis[0], &store.cursor), "open a cursor");
    else
        lmdb_check(mdb_cursor_renew(store.txn, store.cursor), "renew a cursor");
    for (rc = mdb_cursor_get(store.cursor, &name, &data, MDB_SET_RANGE); rc == 0;
         rc = mdb_cursor_get(store.cursor, &name, &data, MDB_NEXT)) {
        memcpy(&records[found].key, name.mv_data, sizeof records[found].key);
        memcpy(&records[found].value, data.mv_data, sizeof records[found].value);
        if (++found == count)
            break;
    }
    if (rc != MDB_NOTFOUND)
        lmdb_check(rc, "scan entries");
    lmdb_end(&store);
    return found;
}

static uint64_t count_entries(struct ordered *map) {
    MDB_stat stat;
    (void)map;
    lmdb_begin(&store, true);
    lmdb_check(mdb_stat(store.txn, store.dbis[0], &stat), "count the entries");
    lmdb_end(&store);
    return stat.ms_entries;
}

const struct ordered_store lmdb_ordered = {.name = "LMDB",
                                           .start = start,
                                           .open = open_store,
                                           .add = add,
                                           .flush = flush,
                                           .begin = begin,
                                           .get = get,
                                           .update = update,
                                           .insert = insert,
                                           .remove = remove_key,
                                           .scan = scan,
                                           .count = count_entries};
