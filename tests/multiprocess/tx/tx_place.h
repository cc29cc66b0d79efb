/* tx_place.h - what the tests of transactions open on each node: a table, perhaps a queue, and a space. */
#pragma once

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "../../support/cluster.h"

#define LONG_TIME (100 * SECOND)

struct place {
    struct remo_node *node;
    uint32_t rank, size;
    struct remo_table *table;
    struct remo_tx_queue *queue;      /* NULL: none */
    struct remo_structure *structure; /* of the table */
    struct remo_tx_space *space;
    struct remo_tx *tx, *other; /* `other` NULL: none */
};

/* ---- open, keys ---- */

/* Open a table and, unless `queue` is NULL, a queue; then a space with them, and a transaction. */
static inline int open_locking(struct remo_node *node, const struct remo_table_options *table,
                               const struct remo_tx_queue_options *queue, enum remo_tx_locks locks,
                               struct place *ret_place) {
    struct remo_channel *root = remo_node_root(node);
    struct remo_structure *structures[2];
    *ret_place = (struct place){.node = node, .rank = remo_node_rank(node), .size = remo_node_size(node)};
    CHECK_OK(remo_table_open(root, "table", table, &ret_place->table));
    ret_place->structure = structures[0] = remo_table_structure(ret_place->table);
    if (queue) {
        CHECK_OK(remo_tx_queue_open(root, "queue", queue, &ret_place->queue));
        structures[1] = remo_tx_queue_structure(ret_place->queue);
    }
    const struct remo_tx_space_options space = {
        .structures = structures, .structure_count = queue ? 2 : 1, .locks = locks};
    CHECK_OK(remo_tx_space_open(root, "tx", &space, &ret_place->space));
    CHECK_OK(remo_tx_open(ret_place->space, &ret_place->tx));
    CHECK_OK(remo_channel_wait(root, LONG_TIME));
    CHECK_OK(cluster_meet());
    return 0;
}

static inline int open_objects(struct remo_node *node, const struct remo_table_options *table,
                               const struct remo_tx_queue_options *queue, struct place *ret_place) {
    return open_locking(node, table, queue, REMO_TX_LATE, ret_place);
}

static inline int close_place(struct place *place) {
    CHECK_OK(cluster_meet());
    remo_tx_close(place->tx);
    remo_tx_close(place->other);
    remo_tx_space_close(place->space);
    remo_tx_queue_close(place->queue);
    remo_table_close(place->table);
    CHECK_OK(cluster_meet());
    return 0;
}

/* Return the key with this index among those that `owner` owns. */
static inline uint64_t key_of(const struct place *place, uint32_t owner, uint32_t index) {
    uint64_t key = 0;
    for (uint32_t found = 0; found <= index;
         found += remo_table_owner(place->table, &key, sizeof key) == owner)
        key++;
    return key;
}

static inline int plain_put(struct place *place, uint64_t key, uint64_t value) {
    return remo_structure_put(place->structure, &key, sizeof key, &value, sizeof value);
}

static inline int plain_read(struct place *place, uint64_t key, uint64_t *ret_value) {
    return remo_structure_lookup(place->structure, &key, sizeof key, ret_value, sizeof *ret_value, NULL,
                                 NULL);
}

/* ---- costs ---- */

/* Operations that this node has started, of all that the place has open. */
struct cost {
    uint64_t reads, writes, atomics;
};

static inline struct cost cost_of(const struct place *place) {
    struct remo_channel *channels[] = {remo_structure_channel(place->structure),
                                       remo_tx_space_channel(place->space),
                                       remo_structure_channel(remo_tx_queue_structure(place->queue))};
    struct cost cost = {0, 0, 0};
    for (uint32_t i = 0; i < (place->queue ? 3u : 2u); i++) {
        struct remo_stats stats;
        remo_channel_stats(channels[i], &stats);
        cost.reads += stats.reads;
        cost.writes += stats.writes;
        cost.atomics += stats.atomics;
    }
    return cost;
}
