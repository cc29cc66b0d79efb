/* tx_words.h - what the tests of transactions whose values are words share: one transaction at a place. */
#pragma once

#include "tx_place.h"

static inline int read_word(struct place *place, uint64_t key, uint64_t *ret_value) {
    size_t bytes = 8;
    int rc =
        remo_tx_read(place->tx, place->structure, &key, sizeof key, ret_value, sizeof *ret_value, &bytes);
    return rc == 0 && bytes != 8 ? -EBADMSG : rc;
}

static inline int insert_word(struct place *place, uint64_t key, uint64_t value) {
    return remo_tx_insert(place->tx, place->structure, &key, sizeof key, &value, sizeof value);
}

static inline int update_word(struct place *place, uint64_t key, uint64_t value) {
    return remo_tx_update(place->tx, place->structure, &key, sizeof key, &value, sizeof value);
}

static inline int put_word(struct place *place, uint64_t key, uint64_t value) {
    return remo_tx_put(place->tx, place->structure, &key, sizeof key, &value, sizeof value);
}

static inline int delete_word(struct place *place, uint64_t key) {
    return remo_tx_delete(place->tx, place->structure, &key, sizeof key);
}

static inline int expect_conflict(struct place *place, int rc, uint64_t key,
                                  enum remo_tx_conflict_kind kind) {
    struct remo_tx_conflict conflict;
    CHECK_SENTENCE(rc, -EAGAIN, "run it again");
    CHECK_OK(remo_tx_last_conflict(place->tx, &conflict));
    CHECK(conflict.structure == place->structure && conflict.kind == kind);
    CHECK(conflict.key_bytes == sizeof key && memcmp(conflict.key, &key, sizeof key) == 0);
    return 0;
}

/* Check the cost since `before`. The owner's reply to a call is a write of the owner. */
static inline int expect_cost(struct place *place, struct cost before, uint64_t reads, uint64_t writes) {
    struct cost after = cost_of(place);
    CHECK_EQUAL(after.reads - before.reads, reads);
    CHECK_EQUAL(after.writes - before.writes, writes);
    CHECK_EQUAL(after.atomics - before.atomics, 0);
    return 0;
}
