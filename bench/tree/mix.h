/* mix.h - the workloads A to F of YCSB, the same for Remo and its peers.
 * Source: Cooper et al., "Benchmarking Cloud Serving Systems with YCSB", SoCC 2010. Differs in: the latest
 * keys of a worker in D are those that it has inserted, and then the last ones of the population. */
#pragma once

#include "bench/tree/keys.h"

#define MIXES 6u
#define MIX_ENTRIES_MAX 100u /* of a scan */

enum mix_op { MIX_READ, MIX_UPDATE, MIX_INSERT, MIX_SCAN, MIX_MODIFY, MIX_OPS };

struct mix {
    const char *name;
    uint8_t percents[MIX_OPS];
    bool reads_latest; /* reads prefer the keys that were inserted last */
};

extern const struct mix mixes[MIXES];

/* A thread or a process that runs operations of a mix. */
struct mix_worker {
    const struct mix *mix;
    const struct tree_keys *keys;
    struct tree_drawer drawer;
    uint64_t workers, worker; /* how many there are, and the number of this one */
    uint64_t inserted;        /* keys that this worker has inserted in the point */
};

struct mix_call {
    enum mix_op op;
    uint64_t number;  /* of the key */
    uint32_t entries; /* of a scan */
};

/* Return the mix of a name. */
const struct mix *mix_find(const char *name);
/* Draw an operation. After an insert, the caller increments `inserted`. */
struct mix_call mix_draw(struct mix_worker *worker);
/* Return the number of the `index`-th key that this worker inserts. */
uint64_t mix_new_number(const struct mix_worker *worker, uint64_t index);
