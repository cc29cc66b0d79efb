/* ordered.h - the benchmarks of the ordered map (tree, scan, ycsb) on a store that several processes use, or
 * several threads of one process. All stores have the keys and values of bench/tree, the same population and
 * the same checks: each value belongs to its key, scans are in order, and no entry is missing after a point.
 * A function of a store that fails prints a sentence, and ends the process. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/random.h"
#include "bench/peers/measure.h"
#include "bench/peers/processes.h"
#include "bench/tree/mix.h"

#define ORDERED_WINDOW_MAX 16u /* operations that a process sends together */

struct ordered_store;
struct ordered_point;

/* A benchmark, as seen by one worker: a process, or a thread. */
struct ordered {
    const struct ordered_store *store;
    const struct measure_options *options;
    const struct ordered_point *point;
    struct processes processes; /* of the workers */
    struct remo__random random;
    struct tree_keys keys;
    struct mix_worker worker;
    uint64_t changes;            /* of the point, by this worker */
    struct tree_record *records; /* of the last scan */
    unsigned entries;            /* of a scan */
    uint64_t paused_ns;          /* since the last timing: time that does not count */
    void *state;                 /* of the store; of each process, or of all threads of one */
};

struct ordered_store {
    const char *name;     /* for sentences */
    bool is_pipelined;    /* gets and updates are measured in windows, too */
    bool has_one_process; /* the workers are its threads */
    /* Make the empty store. Called in process 0 before the other workers start. */
    void (*start)(struct ordered *map);
    /* Connect to the store. Called in each process, first in process 0. */
    void (*open)(struct ordered *map);
    /* Called in each process at its end, unless it has failed; may be NULL. */
    void (*close)(struct ordered *map);
    /* Put an entry, now or at the latest in `flush`. */
    void (*add)(struct ordered *map, uint64_t key, uint64_t value);
    void (*flush)(struct ordered *map);
    /* Prepare for the points. Called in each process, after the population; may be NULL. */
    void (*begin)(struct ordered *map);
    /* Set the values of `count` records from their keys: those of present keys. */
    void (*get)(struct ordered *map, struct tree_record *records, unsigned count);
    /* Change the values of `count` present keys, each by a change of its own. */
    void (*update)(struct ordered *map, const struct tree_record *records, unsigned count);
    void (*insert)(struct ordered *map, const struct tree_record *record);
    void (*remove)(struct ordered *map, uint64_t key);
    /* Copy up to `count` entries with keys from `from` on, in order and as of one instant. Returns how
     * many. */
    unsigned (*scan)(struct ordered *map, uint64_t from, struct tree_record *records, unsigned count);
    /* Return the number of entries. Called in process 0 while no operation runs. */
    uint64_t (*count)(struct ordered *map);
};

/* Return whether `bench` is a benchmark of the ordered map. */
bool ordered_has(const char *bench);
/* Run the whole program. */
int ordered_main(const struct ordered_store *store, int argc, char **argv);
