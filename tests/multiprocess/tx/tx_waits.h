/* tx_waits.h - what the tests of transactions that wait share: a place with a queue, and watches of keys. */
#pragma once

#include "systems/tx/tx.h"
#include "tx_place.h"

static inline int open_place(struct remo_node *node, const struct remo_table_options *table,
                             struct place *ret_place) {
    const struct remo_tx_queue_options queue = {.owner = 0, .capacity = 4, .value_bytes_max = 8};
    return open_objects(node, table, &queue, ret_place);
}

static inline int read_word(struct place *place, struct remo_tx *tx, uint64_t key, uint64_t *ret_value) {
    return remo_tx_read(tx, place->structure, &key, sizeof key, ret_value, sizeof *ret_value, NULL);
}

static inline int put_word(struct place *place, struct remo_tx *tx, uint64_t key, uint64_t value) {
    return remo_tx_put(tx, place->structure, &key, sizeof key, &value, sizeof value);
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
