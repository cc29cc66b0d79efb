/* map.c - the tree of the benchmarks (map.h). Keys and values have 8 bytes. Nodes insert their own keys in
 * the order of numbers, which is a random order of keys. */
#include "bench/tree/map.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/error.h"
#include "systems/tree/tree.h"

#define KEYS_MAPPED 1000000u
#define KEYS_NETWORK 20000u
#define KEYS_SIMULATED 2000u
#define NODE_BYTES 4096u
#define ENTRY_BYTES 22u  /* of a node: key, value, their sizes and a slot */
#define FULL_PERCENT 45u /* the least average fill of a node */
#define NODES_MIN 64u    /* for inner nodes, and for uneven shares of few keys */
#define CHECK_ENTRIES 4096u
#define SCANNED_BYTES (4 + sizeof(struct tree_record)) /* of an entry in the buffer of a scan */

uint64_t tree_map_count_keys(const struct bench_options *options) {
#ifdef REMO_SIM
    uint64_t otherwise = KEYS_SIMULATED;
#else
    uint64_t otherwise = strcmp(options->fabric, "shm") == 0 ? KEYS_MAPPED : KEYS_NETWORK;
#endif
    return options->keys_count ? remo__min(options->keys_count, TREE_KEYS_MAX) : otherwise;
}

uint32_t tree_map_active(const struct bench_options *options) {
    return options->active ? bench_active(options) : options->nodes;
}

int tree_map_open(struct bench_job *job, uint32_t owners, uint64_t extra, struct tree_map **ret_map) {
    uint64_t keys = (tree_map_count_keys(job->options) + extra) / owners;
    struct tree_map *map = *ret_map = calloc(1, sizeof *map);
    if (!map)
        return remo__fail(-ENOMEM, "no memory for the benchmark");
    map->leaf_bytes = NODE_BYTES;
    map->nodes = (uint32_t)(keys * ENTRY_BYTES * 100 / (NODE_BYTES * FULL_PERCENT) + NODES_MIN);
    struct remo_tree_options options = {.nodes = map->nodes,
                                        .node_bytes = map->leaf_bytes,
                                        .key_bytes_max = sizeof(uint64_t),
                                        .value_bytes_max = sizeof(uint64_t)};
    for (uint32_t node = 0; node < owners; node++)
        remo_nodeset_add(&options.owners, node);
    return remo_tree_open(job->channel, "tree", &options, &map->tree);
}

void tree_map_close(struct tree_map *map) {
    if (!map)
        return;
    remo_tree_close(map->tree);
    tree_keys_release(&map->keys);
    free(map->own);
    free(map);
}

int tree_map_open_job(struct bench_job *job, uint64_t extra) {
    struct tree_map *map;
    int rc = tree_map_open(job, job->size, extra, &map);
    job->state = map;
    return rc;
}

void tree_map_close_job(struct bench_job *job) {
    tree_map_close(job->state);
    job->state = NULL;
}

/* ---- operations ---- */

int tree_map_get(const struct tree_map *map, uint64_t number, uint64_t *ret_value) {
    uint64_t key = tree_key(number);
    size_t bytes = 0;
    int rc = remo_tree_get(map->tree, &key, sizeof key, ret_value, sizeof *ret_value, &bytes);
    if (rc == 0 && (bytes != sizeof *ret_value || !tree_value_belongs(key, *ret_value)))
        return remo__fail(-EIO, "the benchmark is wrong: the value of %zu bytes is not one of key %016llx",
                          bytes, (unsigned long long)tree_big_endian(key));
    return rc;
}

int tree_map_update(const struct tree_map *map, uint64_t number, uint64_t version) {
    uint64_t key = tree_key(number), value = tree_value(key, version);
    return remo_tree_update(map->tree, &key, sizeof key, &value, sizeof value);
}

int tree_map_insert(const struct tree_map *map, uint64_t number) {
    uint64_t key = tree_key(number), value = tree_value(key, 0);
    return remo_tree_insert(map->tree, &key, sizeof key, &value, sizeof value);
}

int tree_map_remove(const struct tree_map *map, uint64_t number) {
    uint64_t key = tree_key(number);
    return remo_tree_remove(map->tree, &key, sizeof key);
}

/* ---- scans ---- */

int tree_scanner_open(struct tree_scanner *scanner, uint32_t entries) {
    scanner->cap = entries * SCANNED_BYTES;
    scanner->buffer = malloc(scanner->cap);
    return scanner->buffer ? 0 : remo__fail(-ENOMEM, "no memory for scans of %u entries", entries);
}

void tree_scanner_close(struct tree_scanner *scanner) {
    free(scanner->buffer);
    scanner->buffer = NULL;
}

int tree_map_scan(const struct tree_map *map, struct tree_scanner *scanner, uint64_t number,
                  uint32_t entries) {
    uint64_t key = tree_key(number);
    struct remo_tree_range range = {.from = {&key, sizeof key}, .limit = entries};
    struct remo_tree_result *first = &scanner->results[0], *rest = &scanner->results[1];
    *rest = (struct remo_tree_result){0};
    int rc = remo_tree_scan(map->tree, &range, scanner->buffer, scanner->cap, first);
    if (rc != 0 || first->entries == entries)
        return rc;
    range = (struct remo_tree_range){.limit = entries - first->entries};
    return remo_tree_scan(map->tree, &range, scanner->buffer + first->bytes, scanner->cap - first->bytes,
                          rest);
}

static bool has_right_entries(const char *buffer, const struct remo_tree_result *result) {
    struct tree_record record = {0}, last;
    struct remo_tree_entry entry;
    size_t offset = 0;
    bool is_right = true;
    for (uint64_t i = 0; is_right && remo_tree_result_next(buffer, result, &offset, &entry); i++) {
        last = record;
        is_right = entry.key.bytes == sizeof record.key && entry.value.bytes == sizeof record.value;
        if (!is_right)
            break;
        memcpy(&record.key, entry.key.data, sizeof record.key);
        memcpy(&record.value, entry.value.data, sizeof record.value);
        is_right = tree_value_belongs(record.key, record.value)
                   && (i == 0 || tree_big_endian(last.key) < tree_big_endian(record.key));
    }
    return is_right;
}

int tree_scanner_check(const struct tree_scanner *scanner, uint64_t number, uint32_t entries) {
    const struct remo_tree_result *first = &scanner->results[0], *rest = &scanner->results[1];
    uint64_t key = tree_key(number);
    struct remo_tree_entry entry;
    size_t offset = 0;
    bool is_right = first->entries + rest->entries == entries
                    && remo_tree_result_next(scanner->buffer, first, &offset, &entry)
                    && entry.key.bytes == sizeof key && memcmp(entry.key.data, &key, sizeof key) == 0
                    && has_right_entries(scanner->buffer, first)
                    && has_right_entries(scanner->buffer + first->bytes, rest);
    return is_right ? 0
                    : remo__fail(-EIO,
                                 "the benchmark is wrong: a scan from key %016llx on returned %llu entries, "
                                 "or wrong ones, instead of %u",
                                 (unsigned long long)tree_big_endian(key),
                                 (unsigned long long)(first->entries + rest->entries), entries);
}

/* ---- the population ---- */

static int insert_own(struct bench_job *job, struct tree_map *map) {
    uint64_t count = map->keys.count;
    int rc = 0;
    map->own = malloc(count * sizeof map->own[0]);
    if (!map->own)
        return remo__fail(-ENOMEM, "no memory for %llu keys", (unsigned long long)count);
    for (uint64_t number = 0; number < count && rc == 0; number++) {
        uint64_t key = tree_key(number);
        bench_progress(job, "inserting keys", number, count);
        if (remo_tree_owner(map->tree, &key, sizeof key) != job->rank)
            continue;
        map->own[map->own_count++] = (uint32_t)number;
        rc = tree_map_insert(map, number);
    }
    if (rc == 0 && map->tree->own && map->own_count == 0)
        rc = remo__fail(-EINVAL, "node %u owns none of %llu keys: give more --keys", job->rank,
                        (unsigned long long)count);
    return rc;
}

int tree_map_load(struct bench_job *job, struct tree_map *map, double theta) {
    int rc = tree_keys_prepare(&map->keys, tree_map_count_keys(job->options), theta, job->rank);
    if (rc != 0)
        return remo__fail(rc, "no memory for keys drawn in advance");
    rc = insert_own(job, map);
    if (rc == 0)
        rc = remo_barrier_wait(job->barrier, REMO_FOREVER);
    if (rc == 0)
        bench_touch(job);
    return rc;
}

/* ---- check ---- */

struct checker {
    uint64_t entries;
    uint64_t next; /* the least key that has not been read, as a number */
    bool is_done;
};

/* Check the entries of one scan. */
static int check_some(const struct tree_map *map, struct checker *checker, void *buffer, size_t cap) {
    uint64_t from = tree_big_endian(checker->next);
    struct remo_tree_range range = {.from = {&from, sizeof from}};
    struct remo_tree_result result;
    struct remo_tree_entry entry;
    size_t offset = 0;
    int rc = remo_tree_scan(map->tree, &range, buffer, cap, &result);
    while (rc == 0 && remo_tree_result_next(buffer, &result, &offset, &entry)) {
        struct tree_record record;
        memcpy(&record.key, entry.key.data, sizeof record.key);
        memcpy(&record.value, entry.value.data, sizeof record.value);
        uint64_t key = tree_big_endian(record.key);
        if (key < checker->next || !tree_value_belongs(record.key, record.value))
            rc = remo__fail(-EIO, "the benchmark is wrong: key %016llx has value %016llx",
                            (unsigned long long)key, (unsigned long long)record.value);
        checker->next = key + 1;
        checker->entries++;
    }
    checker->is_done = rc != 0 || result.is_complete;
    return rc;
}

int tree_map_check(struct bench_job *job, const struct tree_map *map) {
    struct checker checker = {0};
    size_t cap = CHECK_ENTRIES * SCANNED_BYTES;
    int rc = 0;
    if (job->rank != 0)
        return 0;
    void *buffer = malloc(cap);
    if (!buffer)
        return remo__fail(-ENOMEM, "no memory for the check");
    while (rc == 0 && !checker.is_done)
        rc = check_some(map, &checker, buffer, cap);
    free(buffer);
    if (rc == 0 && checker.entries != map->keys.count)
        rc = remo__fail(-EIO, "the benchmark is wrong: the tree has %llu entries instead of %llu",
                        (unsigned long long)checker.entries, (unsigned long long)map->keys.count);
    return rc;
}
