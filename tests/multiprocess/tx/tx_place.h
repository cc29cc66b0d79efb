/* tx_place.h - what the tests of transactions that wait open on each node, and watches of keys. */
#pragma once

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "../../support/cluster.h"
#include "systems/tx/tx.h"

#define LONG_TIME (100 * SECOND)

struct place {
    struct remo_node *node;
    uint32_t rank, size;
    struct remo_table *table;
    struct remo_tx_queue *queue;
    struct remo_structure *structure; /* of the table */
    struct remo_tx_space *space;
    struct remo_tx *tx;
};

/* ---- open, keys ---- */

static inline int open_place(struct remo_node *node, const struct remo_table_options *table,
                             struct place *ret_place) {
    const struct remo_tx_queue_options queue = {.owner = 0, .capacity = 4, .value_bytes_max = 8};
    struct remo_structure *structures[2];
    *ret_place = (struct place){.node = node, .rank = remo_node_rank(node), .size = remo_node_size(node)};
    CHECK_OK(remo_table_open(remo_node_root(node), "table", table, &ret_place->table));
    CHECK_OK(remo_tx_queue_open(remo_node_root(node), "queue", &queue, &ret_place->queue));
    ret_place->structure = structures[0] = remo_table_structure(ret_place->table);
    structures[1] = remo_tx_queue_structure(ret_place->queue);
    const struct remo_tx_space_options space = {.structures = structures, .structure_count = 2};
    CHECK_OK(remo_tx_space_open(remo_node_root(node), "tx", &space, &ret_place->space));
    CHECK_OK(remo_tx_open(ret_place->space, &ret_place->tx));
    CHECK_OK(remo_channel_wait(remo_node_root(node), LONG_TIME));
    CHECK_OK(cluster_meet());
    return 0;
}

static inline int close_place(struct place *place) {
    CHECK_OK(cluster_meet());
    remo_tx_close(place->tx);
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

static inline int read_word(struct place *place, struct remo_tx *tx, uint64_t key, uint64_t *ret_value) {
    return remo_tx_read(tx, place->structure, &key, sizeof key, ret_value, sizeof *ret_value, NULL);
}

static inline int put_word(struct place *place, struct remo_tx *tx, uint64_t key, uint64_t value) {
    return remo_tx_put(tx, place->structure, &key, sizeof key, &value, sizeof value);
}

static inline int plain_put(struct place *place, uint64_t key, uint64_t value) {
    return remo_structure_put(place->structure, &key, sizeof key, &value, sizeof value);
}

/* Return the number of watches that are set at this node, in several spaces. */
static inline uint32_t watches_in(struct remo_tx_space *const *spaces, uint32_t count) {
    uint32_t watches = 0;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t node = 0; node < spaces[i]->node->size; node++) {
            struct remo__tx_peer *peer = &spaces[i]->peers[node];
            pthread_mutex_lock(&peer->mutex);
            watches += peer->watches_count;
            pthread_mutex_unlock(&peer->mutex);
        }
    return watches;
}

static inline uint32_t watches_of(struct place *place) {
    return watches_in(&place->space, 1);
}

/* Wait until so many watches are set at this node: the transactions sleep, or are about to. */
static inline int await_watches_in(struct remo_tx_space *const *spaces, uint32_t count, uint32_t expected) {
    uint32_t watches = 0;
    CHECK_REACHES(watches = watches_in(spaces, count), watches, expected);
    return 0;
}

static inline int await_watches(struct place *place, uint32_t expected) {
    return await_watches_in(&place->space, 1, expected);
}

/* Wait until no watch is set any more. */
static inline int await_no_watch(struct place *place) {
    for (uint32_t i = 0; watches_of(place) > 0; i++) {
        CHECK(i < 50000);
        cluster_sleep_ms(1);
    }
    return 0;
}
