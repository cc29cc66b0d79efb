/* lmdb_tree.c - gets, changes and scans of an ordered map on LMDB (lmdb_store.h), with the keys and values of
 * the benchmarks of the tree. Each get, each scan and each change is a transaction of its own. */
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/clock.h"
#include "bench/peers/lmdb_store.h"

#define ENTRY_BYTES \
    256u /* of the file, for each entry: pages are half full at worst, and replaced pages remain */

/* ---- entries ---- */

static MDB_val name_of(const uint64_t *key) {
    return lmdb_value(key, sizeof *key);
}

static void put(struct lmdb_store *store, uint64_t number, uint64_t version, unsigned flags) {
    uint64_t key = tree_key(number), value = tree_value(key, version);
    MDB_val name = name_of(&key), data = lmdb_value(&value, sizeof value);
    lmdb_check(mdb_put(store->txn, store->tables[0], &name, &data, flags), "put an entry");
    store->has_changes = true;
}

/* Return the value. */
static uint64_t get(struct lmdb_store *store, uint64_t number) {
    uint64_t key = tree_key(number), value = 0;
    MDB_val name = name_of(&key), data;
    lmdb_begin(store, true);
    lmdb_check(mdb_get(store->txn, store->tables[0], &name, &data), "get an entry");
    if (data.mv_size == sizeof value)
        memcpy(&value, data.mv_data, sizeof value);
    lmdb_end(store);
    if (data.mv_size != sizeof value || !tree_value_belongs(key, value))
        processes_fail("the benchmark is wrong: the value of %zu bytes is not one of key %016llx",
                       data.mv_size, (unsigned long long)tree_big_endian(key));
    return value;
}

static void update(struct lmdb_store *store, uint64_t number, uint64_t version) {
    lmdb_begin(store, false);
    put(store, number, version, 0);
    lmdb_end(store);
}

static void insert_new(struct lmdb_store *store, uint64_t number) {
    lmdb_begin(store, false);
    put(store, number, 0, MDB_NOOVERWRITE);
    lmdb_end(store);
}

static void remove_new(struct lmdb_store *store, uint64_t number) {
    uint64_t key = tree_key(number);
    MDB_val name = name_of(&key);
    lmdb_begin(store, false);
    lmdb_check(mdb_del(store->txn, store->tables[0], &name, NULL), "delete an entry");
    store->has_changes = true;
    lmdb_end(store);
}

/* ---- scans ---- */

static void copy_entries(struct lmdb_store *store, uint64_t number, unsigned entries) {
    uint64_t key = tree_key(number);
    MDB_val name = name_of(&key), data;
    int rc = mdb_cursor_get(store->cursor, &name, &data, MDB_SET_RANGE);
    for (unsigned i = 0; i < entries; i++) {
        if (rc == MDB_NOTFOUND) /* continue from the beginning */
            rc = mdb_cursor_get(store->cursor, &name, &data, MDB_FIRST);
        lmdb_check(rc, "scan entries");
        memcpy(&store->records[i].key, name.mv_data, sizeof store->records[i].key);
        memcpy(&store->records[i].value, data.mv_data, sizeof store->records[i].value);
        rc = i + 1 < entries ? mdb_cursor_get(store->cursor, &name, &data, MDB_NEXT) : 0;
    }
}

/* Check the records outside the measured time. */
static void check_records(struct lmdb_store *store, uint64_t number, unsigned entries) {
    uint64_t now = remo__now_ns();
    unsigned first = 1; /* entries before the end of the map */
    while (first < entries
           && tree_big_endian(store->records[first - 1].key) < tree_big_endian(store->records[first].key))
        first++;
    if (store->records[0].key != tree_key(number) || !tree_records_are_right(store->records, first)
        || !tree_records_are_right(store->records + first, entries - first))
        processes_fail("the benchmark is wrong: a scan returned wrong entries");
    store->paused_ns += remo__now_ns() - now;
}

static void scan(struct lmdb_store *store, uint64_t number, unsigned entries) {
    lmdb_begin(store, true);
    if (!store->cursor)
        lmdb_check(mdb_cursor_open(store->txn, store->tables[0], &store->cursor), "open a cursor");
    else
        lmdb_check(mdb_cursor_renew(store->txn, store->cursor), "renew a cursor");
    copy_entries(store, number, entries);
    lmdb_end(store);
    check_records(store, number, entries);
}

/* ---- the population: in the order of numbers, as in the benchmark of the tree ---- */

static void insert(struct lmdb_store *store, uint64_t key) {
    put(store, key - 1, 0, MDB_NOOVERWRITE);
}

/* ---- points ---- */

static uint64_t draw(struct lmdb_store *store) {
    return tree_draw(&store->keys, &store->worker.drawer, true);
}

/* Allocate what the points share. */
static void prepare(struct lmdb_store *store) {
    const struct measure_options *options = store->options;
    store->entries = options->window ? options->window : TREE_SCAN_ENTRIES;
    store->entries = (unsigned)remo__min(store->entries, options->keys_count);
    store->records = calloc(remo__max(store->entries, MIX_ENTRIES_MAX), sizeof store->records[0]);
    if (!store->records
        || tree_keys_prepare(&store->keys, options->keys_count, options->zipf, store->processes.index) != 0)
        processes_fail("no memory for keys drawn in advance");
}

static void begin(struct lmdb_store *store) {
    if (!store->records)
        prepare(store);
    store->worker = (struct mix_worker){
        .keys = &store->keys, .workers = store->processes.count, .worker = store->processes.index};
    tree_drawer_begin(&store->worker.drawer, &store->random);
    store->changes = 0;
}

static void run_get(struct lmdb_store *store) {
    (void)get(store, draw(store));
}

static void run_update(struct lmdb_store *store) {
    update(store, draw(store), ++store->changes);
}

static void run_insert_remove(struct lmdb_store *store) {
    uint64_t number = mix_new_number(&store->worker, store->changes++);
    insert_new(store, number);
    remove_new(store, number);
}

static void run_scan(struct lmdb_store *store) {
    scan(store, draw(store), store->entries);
}

/* Before the second point of scans, process 0 updates as many random keys as there are. */
static void begin_scan(struct lmdb_store *store) {
    begin(store);
    if (store->point == lmdb_scan.points || store->processes.index != 0)
        return;
    for (uint64_t i = 0; i < store->keys.count; i += store->entries) {
        lmdb_begin(store, false);
        for (unsigned k = 0; k < store->entries; k++)
            put(store, remo__random_below(&store->random, store->keys.count), i, 0);
        lmdb_end(store);
    }
}

static void begin_mix(struct lmdb_store *store) {
    begin(store);
    store->worker.mix = mix_find(store->point->variant);
}

static void run_mix(struct lmdb_store *store) {
    struct mix_call call = mix_draw(&store->worker);
    switch (call.op) {
    case MIX_READ: (void)get(store, call.number); break;
    case MIX_UPDATE: update(store, call.number, ++store->changes); break;
    case MIX_SCAN: scan(store, call.number, (unsigned)remo__min(call.entries, store->keys.count)); break;
    case MIX_MODIFY: update(store, call.number, (get(store, call.number) >> 32) + 1); break;
    default: insert_new(store, call.number); store->worker.inserted++;
    }
}

/* Remove the keys that this process has inserted. */
static void finish_mix(struct lmdb_store *store) {
    for (uint64_t i = 0; i < store->worker.inserted; i++)
        remove_new(store, mix_new_number(&store->worker, i));
}

/* ---- check ---- */

static void check(const struct lmdb_store *store, const union transaction_counts *all) {
    MDB_stat stat;
    (void)all;
    lmdb_check(mdb_stat(store->txn, store->tables[0], &stat), "count the entries");
    if (stat.ms_entries != store->options->keys_count)
        processes_fail("the benchmark is wrong: the map has %zu entries instead of %llu", stat.ms_entries,
                       (unsigned long long)store->options->keys_count);
}

const struct lmdb_workload lmdb_tree = {
    .bench = "tree",
    .object = "tree",
    .tables = {"map"},
    .text_keys = 1,
    .key_bytes = ENTRY_BYTES,
    .has_distribution = true,
    .insert = insert,
    .begin = begin,
    .points = {{"get", run_get, false, false},
               {"update", run_update, false, false},
               {"insert, remove", run_insert_remove, true, false}},
    .check = check,
};

const struct lmdb_workload lmdb_scan = {
    .bench = "scan",
    .object = "tree",
    .tables = {"map"},
    .text_keys = 1,
    .key_bytes = ENTRY_BYTES,
    .has_distribution = true,
    .insert = insert,
    .begin = begin_scan,
    .points = {{"after load", run_scan, false, true}, {"after updates", run_scan, false, true}},
    .check = check,
};

const struct lmdb_workload lmdb_ycsb = {
    .bench = "ycsb",
    .object = "tree",
    .tables = {"map"},
    .text_keys = 1,
    .key_bytes = ENTRY_BYTES,
    .has_distribution = true,
    .insert = insert,
    .begin = begin_mix,
    .finish = finish_mix,
    .points = {{"a", run_mix, false, false},
               {"b", run_mix, false, false},
               {"c", run_mix, false, false},
               {"d", run_mix, false, false},
               {"e", run_mix, false, false},
               {"f", run_mix, false, false}},
    .check = check,
};
