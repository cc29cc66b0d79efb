/* table.c - the hash table, and the structure of the tutorial: each key is a register that may be absent.
 * All keys have one owner, and its share has few buckets of width 1, so that keys meet in overflow chains. A
 * change whose call fails may have been applied; a lookup fails only if the owner has failed. */
#include <errno.h>
#include <remo/table.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/bits.h"
#include "sim/case.h"
#include "sim/cases/directory.h"
#include "sim/oracle.h"
#include "sim/scheduler.h"

#define OWNER 0u
#define VALUE_WORDS 6u /* an item is more than a cache line */
#define KEYS 4u

struct table_state {
    struct remo_table *tables[SIM_NODES_MAX];
    struct directory directories[SIM_NODES_MAX];
    struct remo_structure *structures[SIM_NODES_MAX];
    uint32_t value_words;
    uint64_t keys[KEYS + 1]; /* owned by OWNER; the last one is for lookups, where it is chosen */
    bool is_reused;
};

/* ---- open ---- */

static void choose_keys(struct table_state *s, const struct remo_table *table) {
    uint64_t key = 1;
    for (uint32_t i = 0; i < KEYS; key++)
        if (remo_table_owner(table, &key, sizeof key) == OWNER)
            s->keys[i++] = key;
}

static void open_with(struct table_state *s, struct remo_node *node, uint32_t rank,
                      const struct remo_table_options *options) {
    sim_opened(remo_table_open(remo_node_root(node), "table", options, &s->tables[rank]), "open");
    s->structures[rank] = remo_table_structure(s->tables[rank]);
    s->value_words = VALUE_WORDS;
    sim_opened(remo_channel_wait(remo_structure_channel(s->structures[rank]), REMO_FOREVER), "wait");
}

/* Each node has `slots_percent` slots per 100 keys, at least one bucket. */
static void open_table(void *state, struct remo_node *node, uint32_t rank, uint32_t width,
                       uint32_t slots_percent) {
    struct table_state *s = state;
    const struct remo_table_options options = {.capacity = 4,
                                               .capacity_max = 4,
                                               .value_bytes_max = 8 * VALUE_WORDS,
                                               .width = width,
                                               .slots_percent = slots_percent,
                                               .overflow_percent = 400,
                                               .places = 4};
    open_with(s, node, rank, &options);
    choose_keys(s, s->tables[rank]);
}

static void open_narrow(void *state, struct remo_node *node, uint32_t rank) {
    open_table(state, node, rank, 1, 1);
}

static void open_wide(void *state, struct remo_node *node, uint32_t rank) {
    open_table(state, node, rank, 2, 1);
}

static void open_buckets(void *state, struct remo_node *node, uint32_t rank) {
    open_table(state, node, rank, 1, 100);
}

/* The first division of the owner's bucket separates keys 1 and 3 from 0 and 2; later divisions separate the
 * keys of each pair. Key 4, which is absent, belongs to the buckets of key 3. */
static void choose_divided_keys(struct table_state *s, const struct remo_table *table) {
    uint64_t key = 1;
    for (uint32_t i = 0; i <= KEYS; key++)
        if (remo_table_owner(table, &key, sizeof key) == OWNER
            && (XXH3_64bits(&key, sizeof key) >> 32 & 3) == (i < KEYS ? i : 3))
            s->keys[i++] = key;
}

/* With capacity 1, the owner has one bucket at first, two with two keys, and so on. */
static void open_growing(void *state, struct remo_node *node, uint32_t rank, uint32_t width,
                         uint32_t slots_percent, uint64_t capacity) {
    struct table_state *s = state;
    const struct remo_table_options options = {.capacity = capacity,
                                               .capacity_max = 8,
                                               .value_bytes_max = 8 * VALUE_WORDS,
                                               .width = width,
                                               .slots_percent = slots_percent,
                                               .overflow_percent = 300,
                                               .places = 4};
    open_with(s, node, rank, &options);
    choose_divided_keys(s, s->tables[rank]);
}

static void open_growing_narrow(void *state, struct remo_node *node, uint32_t rank) {
    open_growing(state, node, rank, 1, 100, 1);
}

static void open_growing_twice(void *state, struct remo_node *node, uint32_t rank) {
    open_growing(state, node, rank, 2, 200, 1);
}

static void open_growing_once(void *state, struct remo_node *node, uint32_t rank) {
    open_growing(state, node, rank, 2, 100, 6);
}

static void open_growing_chain(void *state, struct remo_node *node, uint32_t rank) {
    open_growing(state, node, rank, 1, 50, 6);
}

static void open_growing_wide(void *state, struct remo_node *node, uint32_t rank) {
    open_growing(state, node, rank, 2, 200, 4);
}

/* Two buckets and one overflow item. Keys with an even number belong to the first bucket. */
static void open_growing_full(void *state, struct remo_node *node, uint32_t rank) {
    struct table_state *s = state;
    const struct remo_table_options options = {.capacity = 4,
                                               .capacity_max = 8,
                                               .value_bytes_max = 8 * VALUE_WORDS,
                                               .slots_percent = 100,
                                               .overflow_percent = 50,
                                               .places = 4};
    open_with(s, node, rank, &options);
    uint64_t key = 1;
    for (uint32_t i = 0; i <= KEYS; key++)
        if (remo_table_owner(s->tables[rank], &key, sizeof key) == OWNER
            && (uint32_t)XXH3_64bits(&key, sizeof key) >> 31 == i % 2)
            s->keys[i++] = key;
}

static void close_table(void *state, uint32_t rank) {
    remo_table_close(((struct table_state *)state)->tables[rank]);
}

/* Keys 0 to 2 have the same own slot. The first of them that is moved is in the own slot of key 3. */
static void open_directory(void *state, struct remo_node *node, uint32_t rank) {
    struct table_state *s = state;
    struct directory *d = &s->directories[rank];
    sim_opened(directory_open(remo_node_root(node), "directory", d), "open");
    s->structures[rank] = d->structure;
    s->value_words = DIRECTORY_VALUE_WORDS;
    sim_opened(remo_channel_wait(remo_structure_channel(d->structure), REMO_FOREVER), "wait");
    for (uint32_t i = 0; i < KEYS; i++)
        s->keys[i] = directory_key_after(i == 0 || i == 3 ? 0 : s->keys[i - 1], OWNER, i == 3 ? 4 : 5);
}

static void close_directory(void *state, uint32_t rank) {
    remo_structure_close(((struct table_state *)state)->structures[rank]);
}

/* ---- calls ---- */

static bool is_answer(uint32_t function, int rc) {
    if (rc == 0 || function == MAP_PUT)
        return rc == 0;
    return function == MAP_INSERT ? rc == -EEXIST : rc == -ENOENT;
}

static int do_call(struct remo_structure *structure, uint32_t function, uint64_t key, uint64_t *value,
                   uint32_t words) {
    size_t size = words * 8, bytes = size;
    int rc;
    switch (function) {
    case MAP_INSERT: return remo_structure_insert(structure, &key, sizeof key, value, size);
    case MAP_UPDATE: return remo_structure_update(structure, &key, sizeof key, value, size);
    case MAP_PUT: return remo_structure_put(structure, &key, sizeof key, value, size);
    case MAP_DELETE: return remo_structure_delete(structure, &key, sizeof key);
    default: rc = remo_structure_lookup(structure, &key, sizeof key, value, size, &bytes, NULL); break;
    }
    sim_require(rc != 0 || bytes == size, "a lookup returns a value of %zu bytes", bytes);
    for (uint32_t i = 1; i < words && rc == 0; i++)
        sim_require(value[i] == value[0], "a lookup returns a torn value");
    return rc;
}

static int call(struct table_state *s, uint32_t rank, uint32_t function, uint32_t key, uint64_t number) {
    uint64_t value[VALUE_WORDS];
    for (uint32_t i = 0; i < VALUE_WORDS; i++)
        value[i] = number;
    uint32_t index = sim_begin(function, key, number, 0);
    int rc = do_call(s->structures[rank], function, s->keys[key], value, s->value_words);
    if (is_answer(function, rc) && !sim_out(rank)) {
        sim_end(index, rc, value[0]);
        return rc;
    }
    sim_require(sim_out(rank) || sim_excused(rank, OWNER, rc) || is_answer(function, rc),
                "function %u of the table: %d (%s)", function, rc, remo_last_error());
    if (function == MAP_GET)
        sim_forget(index);
    return rc;
}

/* The surviving nodes can make all calls, unless the owner has failed. */
static void after(void *state, uint32_t rank) {
    for (uint32_t key = 0; key < 2; key++) {
        (void)call(state, rank, MAP_GET, key, 0);
        (void)call(state, rank, MAP_PUT, key, 1000 + rank);
        (void)call(state, rank, MAP_DELETE, key, 0);
        (void)call(state, rank, MAP_GET, key, 0);
    }
}

/* ---- cases ---- */

/* Each node changes one of two keys of a bucket, and looks up both. */
static void changes_body(void *state, uint32_t rank, uint32_t thread) {
    uint32_t key = (rank + thread) % 2;
    (void)call(state, rank, MAP_PUT, key, 10 * rank + 1);
    (void)call(state, rank, MAP_GET, 1 - key, 0);
    (void)call(state, rank, rank == 1 ? MAP_DELETE : MAP_UPDATE, key, 10 * rank + 2);
    (void)call(state, rank, MAP_GET, key, 0);
    (void)call(state, rank, MAP_GET, 1 - key, 0);
}

const struct sim_case sim_case_table_changes = {
    .object = "table",
    .name = "changes",
    .about = "three nodes put, update, delete and look up two keys of one bucket",
    .nodes = 3,
    .threads = 1,
    .state_bytes = sizeof(struct table_state),
    .open = open_narrow,
    .close = close_table,
    .body = changes_body,
    .after = after,
    .oracle = &oracle_map};

static void updates_body(void *state, uint32_t rank, uint32_t thread) {
    (void)thread;
    if (rank == 0)
        (void)call(state, rank, MAP_INSERT, 0, 1);
    for (uint32_t i = 0; i < 3; i++)
        (void)call(state, rank, rank == 2 ? MAP_GET : MAP_UPDATE, 0, 10 * (rank + 1) + i);
}

const struct sim_case sim_case_table_updates = {
    .object = "table",
    .name = "updates",
    .about = "the owner and a peer update one key, and another peer looks it up",
    .nodes = 3,
    .threads = 1,
    .state_bytes = sizeof(struct table_state),
    .open = open_narrow,
    .close = close_table,
    .body = updates_body,
    .after = after,
    .oracle = &oracle_map};

static bool is_reused(void *ctx) {
    return ((const struct table_state *)ctx)->is_reused || sim_out(0) || sim_out(1);
}

/* Node 1 remembers the place of key 1, in the overflow chain. The owner uses the place for key 2, and
 * inserts key 1 again. */
static void reuse_body(void *state, uint32_t rank, uint32_t thread) {
    struct table_state *s = state;
    (void)thread;
    if (rank == 1) {
        (void)call(s, rank, MAP_PUT, 0, 1);
        (void)call(s, rank, MAP_PUT, 1, 2);
        (void)call(s, rank, MAP_GET, 1, 0);
        s->is_reused = true;
        (void)call(s, rank, MAP_GET, 1, 0);
        (void)call(s, rank, MAP_GET, 2, 0);
        (void)call(s, rank, MAP_GET, 1, 0);
        return;
    }
    sim_until(is_reused, s, "wait until the place is known");
    if (rank == 0) {
        (void)call(s, rank, MAP_DELETE, 1, 0);
        (void)call(s, rank, MAP_INSERT, 2, 3);
        (void)call(s, rank, MAP_INSERT, 1, 4);
    } else {
        (void)call(s, rank, MAP_GET, 1, 0);
        (void)call(s, rank, MAP_GET, 2, 0);
        (void)call(s, rank, MAP_GET, 1, 0);
    }
}

const struct sim_case sim_case_table_reuse = {
    .object = "table",
    .name = "reuse",
    .about = "the place of a key that a node remembers is used for another key, and for the key again",
    .nodes = 3,
    .threads = 1,
    .state_bytes = sizeof(struct table_state),
    .open = open_narrow,
    .close = close_table,
    .body = reuse_body,
    .after = after,
    .oracle = &oracle_map};

/* Node 1 reads the remembered place of key 1, and node 2 its bucket: both see its changes in one order. */
static void relinked_body(void *state, uint32_t rank, uint32_t thread) {
    struct table_state *s = state;
    (void)thread;
    if (rank == 1) {
        (void)call(s, rank, MAP_PUT, 0, 1);
        (void)call(s, rank, MAP_PUT, 1, 2);
        (void)call(s, rank, MAP_GET, 1, 0);
        s->is_reused = true;
    }
    sim_until(is_reused, s, "wait until the place is known");
    for (uint32_t i = 0; i < 2; i++) {
        if (rank == 0)
            (void)call(s, rank, MAP_DELETE, 1, 0);
        (void)call(s, rank, rank == 0 ? MAP_INSERT : MAP_GET, 1, 3 + i);
    }
}

const struct sim_case sim_case_table_relinked = {
    .object = "table",
    .name = "relinked",
    .about = "a node that remembers the place of a key, and one that does not, see it deleted and inserted",
    .nodes = 3,
    .threads = 1,
    .state_bytes = sizeof(struct table_state),
    .open = open_narrow,
    .close = close_table,
    .body = relinked_body,
    .after = after,
    .oracle = &oracle_map};

/* The owner uses the slot of one key for another one, which two nodes look up. */
static void slots_body(void *state, uint32_t rank, uint32_t thread) {
    (void)thread;
    for (uint32_t i = 0; i < 2; i++) {
        if (rank == OWNER) {
            (void)call(state, rank, MAP_INSERT, i, 1 + i);
            (void)call(state, rank, MAP_DELETE, i, 0);
            (void)call(state, rank, MAP_INSERT, 1 - i, 3 + i);
            (void)call(state, rank, MAP_DELETE, 1 - i, 0);
        } else {
            (void)call(state, rank, MAP_GET, 1, 0);
            (void)call(state, rank, MAP_GET, 1, 0);
        }
    }
}

const struct sim_case sim_case_table_slots = {
    .object = "table",
    .name = "slots",
    .about = "two keys use one slot in turn, while two nodes look up one of them",
    .nodes = 3,
    .threads = 1,
    .state_bytes = sizeof(struct table_state),
    .open = open_narrow,
    .close = close_table,
    .body = slots_body,
    .after = after,
    .oracle = &oracle_map};

/* Two threads of each node, and keys of two buckets, which share the items of overflow chains. */
static void buckets_body(void *state, uint32_t rank, uint32_t thread) {
    for (uint32_t i = 0; i < 4; i++)
        (void)call(state, rank, i == 2 ? MAP_DELETE : MAP_PUT, (2 * thread + rank + i) % KEYS,
                   100 * rank + 10 * thread + i);
    for (uint32_t key = 0; key < KEYS; key++)
        (void)call(state, rank, MAP_GET, key, 0);
}

const struct sim_case sim_case_table_buckets = {
    .object = "table",
    .name = "buckets",
    .about = "two threads of each node change the keys of two buckets, which share overflow items",
    .nodes = 2,
    .threads = 2,
    .state_bytes = sizeof(struct table_state),
    .open = open_buckets,
    .close = close_table,
    .body = buckets_body,
    .after = after,
    .oracle = &oracle_map};

/* Two threads of each node; two slots in a bucket, so the third key overflows. */
static void threads_body(void *state, uint32_t rank, uint32_t thread) {
    for (uint32_t i = 0; i < 3; i++)
        (void)call(state, rank, i == 1 ? MAP_DELETE : MAP_PUT, (thread + i) % 3,
                   100 * rank + 10 * thread + i);
    for (uint32_t key = 0; key < 3; key++)
        (void)call(state, rank, MAP_GET, key, 0);
}

const struct sim_case sim_case_table_threads = {
    .object = "table",
    .name = "threads",
    .about = "two threads of each node, and three keys of a bucket of width 2",
    .nodes = 2,
    .threads = 2,
    .state_bytes = sizeof(struct table_state),
    .open = open_wide,
    .close = close_table,
    .body = threads_body,
    .after = after,
    .oracle = &oracle_map};

/* The owner inserts keys, and its bucket is divided three times, while two nodes look up and change keys. */
static void growth_body(void *state, uint32_t rank, uint32_t thread) {
    static const uint32_t order[KEYS] = {0, 2, 1, 3};
    (void)thread;
    for (uint32_t i = 0; i < KEYS && rank == OWNER; i++)
        (void)call(state, rank, MAP_PUT, order[i], 1 + i);
    if (rank == OWNER)
        (void)call(state, rank, MAP_DELETE, 1, 0);
    for (uint32_t i = 0; i < 5 && rank == 1; i++)
        (void)call(state, rank, MAP_GET, i % 3, 0);
    if (rank == 2) {
        (void)call(state, rank, MAP_PUT, 1, 21);
        (void)call(state, rank, MAP_GET, 0, 0);
        (void)call(state, rank, MAP_GET, 2, 0);
        (void)call(state, rank, MAP_UPDATE, 0, 22);
    }
    (void)call(state, rank, MAP_GET, 0, 0);
    (void)call(state, rank, MAP_GET, 2, 0);
}

const struct sim_case sim_case_table_growth = {
    .object = "table",
    .name = "growth",
    .about = "the bucket of an owner is divided, while two nodes look up and change its keys",
    .nodes = 3,
    .threads = 1,
    .state_bytes = sizeof(struct table_state),
    .open = open_growing_narrow,
    .close = close_table,
    .body = growth_body,
    .after = after,
    .oracle = &oracle_map};

static bool has_two(void *ctx) {
    return ((const struct table_state *)ctx)->is_reused || sim_out(0) || sim_out(1);
}

/* Keys 0 and 2 are in one bucket. A division after the insert of key 3 moves key 2, and one after the insert
 * of key 1 moves key 3. */
static void divided_body(void *state, uint32_t rank, uint32_t thread) {
    struct table_state *s = state;
    (void)thread;
    if (rank == 1) {
        (void)call(s, rank, MAP_PUT, 0, 1);
        (void)call(s, rank, MAP_PUT, 2, 2);
        s->is_reused = true;
    }
    sim_until(has_two, s, "wait until two keys are present");
    if (rank == OWNER) {
        (void)call(s, rank, MAP_PUT, 3, 3);
        (void)call(s, rank, MAP_PUT, 1, 4);
        (void)call(s, rank, MAP_UPDATE, 2, 5);
        return;
    }
    for (uint32_t i = 0; i < 6; i++)
        (void)call(s, rank, MAP_GET, i < 2 ? 2 : 4 - i % 2, 0);
}

const struct sim_case sim_case_table_divided = {
    .object = "table",
    .name = "divided",
    .about = "two divisions move keys to new buckets while nodes look them up",
    .nodes = 3,
    .threads = 1,
    .state_bytes = sizeof(struct table_state),
    .open = open_growing_twice,
    .close = close_table,
    .body = divided_body,
    .after = after,
    .oracle = &oracle_map};

/* Keys 0 and 1 are in slots of a bucket. Key 2 is inserted in its chain. Then a division moves key 1, and key
 * 2 to the slot of key 1. */
static void refilled_body(void *state, uint32_t rank, uint32_t thread) {
    struct table_state *s = state;
    (void)thread;
    if (rank == 1) {
        (void)call(s, rank, MAP_PUT, 0, 1);
        (void)call(s, rank, MAP_PUT, 1, 2);
        s->is_reused = true;
    }
    sim_until(has_two, s, "wait until two keys are present");
    if (rank == OWNER) {
        (void)call(s, rank, MAP_PUT, 2, 3);
        (void)call(s, rank, MAP_DELETE, 0, 0);
        return;
    }
    for (uint32_t i = 0; i < 4; i++)
        (void)call(s, rank, MAP_GET, 1 + i / 3, 0);
}

const struct sim_case sim_case_table_refilled = {
    .object = "table",
    .name = "refilled",
    .about = "a division moves a key, and a key of the chain to its slot, while nodes look them up",
    .nodes = 3,
    .threads = 1,
    .state_bytes = sizeof(struct table_state),
    .open = open_growing_once,
    .close = close_table,
    .body = refilled_body,
    .after = after,
    .oracle = &oracle_map};

/* Key 2 is in the chain of a bucket. Key 1 is inserted, and a division moves it to a new bucket; key 2 stays
 * in the chain. */
static void kept_body(void *state, uint32_t rank, uint32_t thread) {
    struct table_state *s = state;
    (void)thread;
    if (rank == 1) {
        (void)call(s, rank, MAP_PUT, 0, 1);
        (void)call(s, rank, MAP_PUT, 2, 2);
        s->is_reused = true;
    }
    sim_until(has_two, s, "wait until two keys are present");
    (void)call(s, rank, rank == OWNER ? MAP_PUT : MAP_GET, rank == OWNER ? 1 : 2, 3);
    (void)call(s, rank, MAP_GET, 1, 0);
}

const struct sim_case sim_case_table_kept = {
    .object = "table",
    .name = "kept",
    .about = "a bucket is divided, and a key of its chain stays there, while nodes look it up",
    .nodes = 3,
    .threads = 1,
    .state_bytes = sizeof(struct table_state),
    .open = open_growing_chain,
    .close = close_table,
    .body = kept_body,
    .after = after,
    .oracle = &oracle_map};

/* The owner has three buckets of levels 2, 1 and 2, which node 1 has not read yet. Key 3 is in the second
 * one; at level 2 it belongs to the fourth one, which does not exist yet. */
static void late_body(void *state, uint32_t rank, uint32_t thread) {
    static const uint32_t order[] = {0, 2, 3};
    struct table_state *s = state;
    for (uint32_t i = 0; i < 3 && rank == OWNER && thread == 0; i++)
        (void)call(s, rank, MAP_PUT, order[i], 1 + i);
    s->is_reused |= rank == OWNER && thread == 0;
    sim_until(has_two, s, "wait until the buckets are divided");
    for (uint32_t i = 0; i < 3 && rank != OWNER; i++)
        (void)call(s, rank, MAP_GET, thread == 0 ? 2 : 3, 0);
}

const struct sim_case sim_case_table_late = {
    .object = "table",
    .name = "late",
    .about = "two threads look up keys for the first time, after buckets were divided twice",
    .nodes = 2,
    .threads = 2,
    .state_bytes = sizeof(struct table_state),
    .open = open_growing_narrow,
    .close = close_table,
    .body = late_body,
    .after = after,
    .oracle = &oracle_map};

/* Key 1 is in the chain of a bucket, and moves to a new one. Node 1 remembers its place in the chain. */
static void moved_body(void *state, uint32_t rank, uint32_t thread) {
    struct table_state *s = state;
    (void)thread;
    if (rank == 1) {
        (void)call(s, rank, MAP_PUT, 0, 1);
        (void)call(s, rank, MAP_PUT, 1, 2);
        (void)call(s, rank, MAP_GET, 1, 0);
        s->is_reused = true;
    }
    sim_until(has_two, s, "wait until the place is known");
    if (rank == OWNER)
        (void)call(s, rank, MAP_PUT, 2, 3);
    for (uint32_t i = 0; i < 2; i++)
        (void)call(s, rank, rank == OWNER ? MAP_UPDATE : MAP_GET, 1, 4 + i);
}

const struct sim_case sim_case_table_moved = {
    .object = "table",
    .name = "moved",
    .about = "a division moves a key of the chain to a new bucket, while a node remembers its place",
    .nodes = 3,
    .threads = 1,
    .state_bytes = sizeof(struct table_state),
    .open = open_growing_chain,
    .close = close_table,
    .body = moved_body,
    .after = after,
    .oracle = &oracle_map};

/* Keys 0 and 1 are in slots. Two threads insert keys that need an overflow item, and the owner has one. The
 * thread that gets it begins to divide a bucket. */
static void full_body(void *state, uint32_t rank, uint32_t thread) {
    struct table_state *s = state;
    for (uint32_t i = 0; i < 2 && rank == OWNER && thread == 0; i++)
        (void)call(s, rank, MAP_PUT, i, 1 + i);
    s->is_reused |= rank == OWNER && thread == 0;
    sim_until(has_two, s, "wait until the slots are in use");
    (void)call(s, rank, rank == OWNER ? MAP_PUT : MAP_GET, 2 + thread, 10 + thread);
}

const struct sim_case sim_case_table_full = {
    .object = "table",
    .name = "full",
    .about = "two threads insert keys in two buckets, and the owner has one overflow item",
    .nodes = 2,
    .threads = 2,
    .state_bytes = sizeof(struct table_state),
    .open = open_growing_full,
    .close = close_table,
    .body = full_body,
    .after = after,
    .oracle = &oracle_map};

/* Two threads of each node insert, delete and look up keys, in buckets of width 2. */
static void crowd_body(void *state, uint32_t rank, uint32_t thread) {
    for (uint32_t i = 0; i < 4; i++)
        (void)call(state, rank, i == 2 ? MAP_DELETE : MAP_PUT, (2 * thread + rank + i) % KEYS,
                   100 * rank + 10 * thread + i);
    for (uint32_t key = 0; key < KEYS; key++)
        (void)call(state, rank, MAP_GET, key, 0);
}

const struct sim_case sim_case_table_crowd = {
    .object = "table",
    .name = "crowd",
    .about = "two threads of each node change keys of a table that grows, in buckets of width 2",
    .nodes = 2,
    .threads = 2,
    .state_bytes = sizeof(struct table_state),
    .open = open_growing_wide,
    .close = close_table,
    .body = crowd_body,
    .after = after,
    .oracle = &oracle_map};

/* ---- the structure of the tutorial ---- */

const struct sim_case sim_case_structure_changes = {
    .object = "structure",
    .name = "changes",
    .about = "three nodes put, update, delete and look up two keys of one slot",
    .nodes = 3,
    .threads = 1,
    .state_bytes = sizeof(struct table_state),
    .open = open_directory,
    .close = close_directory,
    .body = changes_body,
    .after = after,
    .oracle = &oracle_map};

const struct sim_case sim_case_structure_reuse = {
    .object = "structure",
    .name = "reuse",
    .about = "the slot of a key that a node remembers is used for another key, and for the key again",
    .nodes = 3,
    .threads = 1,
    .state_bytes = sizeof(struct table_state),
    .open = open_directory,
    .close = close_directory,
    .body = reuse_body,
    .after = after,
    .oracle = &oracle_map};

const struct sim_case sim_case_structure_relinked = {
    .object = "structure",
    .name = "relinked",
    .about = "a node that remembers the slot of a key, and one that does not, see it deleted and inserted",
    .nodes = 3,
    .threads = 1,
    .state_bytes = sizeof(struct table_state),
    .open = open_directory,
    .close = close_directory,
    .body = relinked_body,
    .after = after,
    .oracle = &oracle_map};

const struct sim_case sim_case_structure_threads = {
    .object = "structure",
    .name = "threads",
    .about = "two threads of each node, and four keys of one group",
    .nodes = 2,
    .threads = 2,
    .state_bytes = sizeof(struct table_state),
    .open = open_directory,
    .close = close_directory,
    .body = buckets_body,
    .after = after,
    .oracle = &oracle_map};
