/* map.h - what the benchmarks of the tree share: a tree, its population, operations that check what they
 * read, and the check of all entries. */
#pragma once

#include <remo/tree.h>

#include "bench/bench.h"
#include "bench/tree/keys.h"

struct tree_map {
    struct remo_tree *tree;
    struct tree_keys keys;
    uint32_t *own; /* numbers of the keys that this node owns */
    uint64_t own_count;
    uint32_t leaf_bytes; /* of a node of the tree */
    uint32_t nodes;      /* of the tree of each owner */
};

/* Return the number of keys: --keys, or the default of the fabric. */
uint64_t tree_map_count_keys(const struct bench_options *options);
/* Return how many nodes operate: all, or --active. */
uint32_t tree_map_active(const struct bench_options *options);

/* Open a tree, with room for `extra` keys beside those of the population. Its owners are the first `owners`
 * nodes. Errors: those of remo_tree_open, and -ENOMEM; then *ret_map may be NULL. Close it in any case. */
int tree_map_open(struct bench_job *job, uint32_t owners, uint64_t extra, struct tree_map **ret_map);
void tree_map_close(struct tree_map *map);
/* The same for a job whose state is the tree, and whose nodes are its owners. */
int tree_map_open_job(struct bench_job *job, uint64_t extra);
void tree_map_close_job(struct bench_job *job);
/* Each owner inserts its keys. `theta`: the skew of skewed draws, 0 if there are none. */
int tree_map_load(struct bench_job *job, struct tree_map *map, double theta);
/* At node 0, check all entries: the tree has the keys of the population and no others. */
int tree_map_check(struct bench_job *job, const struct tree_map *map);

/* Operations on the key of a number. Errors: those of the tree; -EIO: a value does not belong to its key. */
int tree_map_get(const struct tree_map *map, uint64_t number, uint64_t *ret_value);
int tree_map_update(const struct tree_map *map, uint64_t number, uint64_t version);
int tree_map_insert(const struct tree_map *map, uint64_t number);
int tree_map_remove(const struct tree_map *map, uint64_t number);

/* The buffer of a thread's scans, and the result of the last scan. */
struct tree_scanner {
    char *buffer;
    size_t cap;
    struct remo_tree_result results[2]; /* up to the end of the tree, and from its beginning */
};

/* Allocate the buffer for scans of up to `entries` entries. Returns 0 or -ENOMEM. */
int tree_scanner_open(struct tree_scanner *scanner, uint32_t entries);
void tree_scanner_close(struct tree_scanner *scanner);
/* Copy `entries` entries from the key of a number on. At the end of the tree, continue from its beginning. */
int tree_map_scan(const struct tree_map *map, struct tree_scanner *scanner, uint64_t number,
                  uint32_t entries);
/* Check that the scan has found the key of `number` and `entries` entries in ascending order, and that values
 * belong to their keys. Errors: -EIO. */
int tree_scanner_check(const struct tree_scanner *scanner, uint64_t number, uint32_t entries);
