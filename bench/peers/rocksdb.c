/* rocksdb.c - the ordered map on RocksDB (ordered.h), whose files one process opens: the workers are its
 * threads. The files are on a tmpfs, without a log: a change makes no system call for durability, as with
 * Remo. Reads use the mapped files, without a cache and without compression, and the population is compacted:
 * otherwise reads take longer. */
#include <rocksdb/c.h>

#include <stdlib.h>
#include <string.h>

#include "bench/peers/ordered.h"
#include "bench/peers/server.h"

#define FOLDER "/dev/shm"
#define FILE_BYTES_MIN (256ull << 20)
#define ENTRY_BYTES 128u /* of the files, for each entry: while they are compacted, both versions remain */
#define BATCH_ENTRIES 10000u /* of the population */
#define BLOOM_BITS 10        /* for each key */
#define BLOCK_BYTES 4096u

/* Of this process. The functions of RocksDB may be called by several threads. */
static rocksdb_t *db;
static rocksdb_writeoptions_t *writes;
static rocksdb_readoptions_t *reads;
static const char *folder;

static void check(char *error, const char *what) {
    if (error)
        processes_fail("RocksDB cannot %s: %s", what, error);
}

static void start(struct ordered *map) {
    processes_check_room(FOLDER, FILE_BYTES_MIN + map->options->keys_count * ENTRY_BYTES,
                         "the files of RocksDB");
    folder = server_make_folder(FOLDER);
    if (!folder)
        exit(1);
}

static rocksdb_options_t *make_options(void) {
    rocksdb_options_t *options = rocksdb_options_create();
    rocksdb_block_based_table_options_t *table = rocksdb_block_based_options_create();
    rocksdb_block_based_options_set_no_block_cache(table, 1);
    rocksdb_block_based_options_set_block_size(table, BLOCK_BYTES);
    rocksdb_block_based_options_set_filter_policy(table, rocksdb_filterpolicy_create_bloom_full(BLOOM_BITS));
    rocksdb_block_based_options_set_data_block_index_type(
        table, rocksdb_block_based_table_data_block_index_type_binary_search_and_hash);
    rocksdb_options_set_block_based_table_factory(options, table);
    rocksdb_options_set_create_if_missing(options, 1);
    rocksdb_options_set_compression(options, rocksdb_no_compression);
    rocksdb_options_set_allow_mmap_reads(options, 1);
    rocksdb_options_set_max_open_files(options, -1);
    return options;
}

/* Its background threads may use all processors of the benchmark. */
static void open_db(struct ordered *map) {
    char *error = NULL;
    server_share_processors(map->options);
    db = rocksdb_open(make_options(), folder, &error);
    check(error, "open its files");
    writes = rocksdb_writeoptions_create();
    rocksdb_writeoptions_disable_WAL(writes, 1);
    reads = rocksdb_readoptions_create();
    rocksdb_readoptions_set_verify_checksums(reads, 0);
    map->state = rocksdb_writebatch_create();
}

static void close_db(struct ordered *map) {
    rocksdb_writebatch_destroy(map->state);
    rocksdb_close(db);
}

/* ---- the population ---- */

static void write_batch(struct ordered *map) {
    char *error = NULL;
    rocksdb_write(db, writes, map->state, &error);
    check(error, "write entries");
    rocksdb_writebatch_clear(map->state);
}

static void add(struct ordered *map, uint64_t key, uint64_t value) {
    rocksdb_writebatch_put(map->state, (const char *)&key, sizeof key, (const char *)&value, sizeof value);
    if (rocksdb_writebatch_count(map->state) == BATCH_ENTRIES)
        write_batch(map);
}

static void flush(struct ordered *map) {
    if (rocksdb_writebatch_count(map->state) > 0)
        write_batch(map);
}

static void begin(struct ordered *map) {
    (void)map;
    rocksdb_compact_range(db, NULL, 0, NULL, 0);
}

/* ---- operations ---- */

static void get(struct ordered *map, struct tree_record *records, unsigned count) {
    (void)map;
    for (unsigned i = 0; i < count; i++) {
        char *error = NULL;
        size_t bytes = 0;
        rocksdb_pinnableslice_t *slice =
            rocksdb_get_pinned(db, reads, (const char *)&records[i].key, sizeof records[i].key, &error);
        check(error, "get an entry");
        const char *value = slice ? rocksdb_pinnableslice_value(slice, &bytes) : NULL;
        if (!value || bytes != sizeof records[i].value)
            processes_fail("the benchmark is wrong: RocksDB has no value of 8 bytes for a key");
        memcpy(&records[i].value, value, sizeof records[i].value);
        rocksdb_pinnableslice_destroy(slice);
    }
}

static void put(const struct tree_record *record) {
    char *error = NULL;
    rocksdb_put(db, writes, (const char *)&record->key, sizeof record->key, (const char *)&record->value,
                sizeof record->value, &error);
    check(error, "put an entry");
}

static void update(struct ordered *map, const struct tree_record *records, unsigned count) {
    (void)map;
    for (unsigned i = 0; i < count; i++)
        put(&records[i]);
}

static void insert(struct ordered *map, const struct tree_record *record) {
    (void)map;
    put(record);
}

static void remove_key(struct ordered *map, uint64_t key) {
    char *error = NULL;
    (void)map;
    rocksdb_delete(db, writes, (const char *)&key, sizeof key, &error);
    check(error, "delete an entry");
}

/* Copy entries from where the iterator is. */
static unsigned copy_entries(rocksdb_iterator_t *iterator, struct tree_record *records, unsigned count) {
    unsigned found = 0;
    for (; found < count && rocksdb_iter_valid(iterator); rocksdb_iter_next(iterator)) {
        size_t bytes;
        memcpy(&records[found].key, rocksdb_iter_key(iterator, &bytes), sizeof records[found].key);
        memcpy(&records[found].value, rocksdb_iter_value(iterator, &bytes), sizeof records[found].value);
        found++;
    }
    return found;
}

/* An iterator has the entries of the moment at which it is created. */
static unsigned scan(struct ordered *map, uint64_t from, struct tree_record *records, unsigned count) {
    rocksdb_iterator_t *iterator = rocksdb_create_iterator(db, reads);
    char *error = NULL;
    (void)map;
    rocksdb_iter_seek(iterator, (const char *)&from, sizeof from);
    unsigned found = copy_entries(iterator, records, count);
    rocksdb_iter_get_error(iterator, &error);
    check(error, "scan entries");
    rocksdb_iter_destroy(iterator);
    return found;
}

static uint64_t count_entries(struct ordered *map) {
    rocksdb_iterator_t *iterator = rocksdb_create_iterator(db, reads);
    uint64_t count = 0;
    (void)map;
    for (rocksdb_iter_seek_to_first(iterator); rocksdb_iter_valid(iterator); rocksdb_iter_next(iterator))
        count++;
    rocksdb_iter_destroy(iterator);
    return count;
}

static const struct ordered_store rocksdb = {.name = "RocksDB",
                                             .has_one_process = true,
                                             .start = start,
                                             .open = open_db,
                                             .close = close_db,
                                             .add = add,
                                             .flush = flush,
                                             .begin = begin,
                                             .get = get,
                                             .update = update,
                                             .insert = insert,
                                             .remove = remove_key,
                                             .scan = scan,
                                             .count = count_entries};

int main(int argc, char **argv) {
    return ordered_main(&rocksdb, argc, argv);
}
