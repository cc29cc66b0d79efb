/* steps.h - the steps of a request: the owner checks their conditions, and changes their items (steps.c). */
#pragma once

#include "systems/tx/tx.h"

/* An item of a request, while the owner executes it. */
struct remo__tx_step {
    struct remo_structure *structure;
    struct remo_structure_key key;
    const char *value;
    uint64_t offset; /* of its item, or REMO_STRUCTURE_NOWHERE */
    uint64_t was_at; /* if the condition is SAME */
    uint64_t had_head;
    uint16_t value_bytes;
    uint8_t op, condition;
};

struct remo__tx_steps {
    uint32_t count, changes;
    struct remo__tx_step step[REMO_TX_ITEMS_MAX];
    uint32_t mutexes_count;
    pthread_mutex_t *mutexes[REMO_TX_ITEMS_MAX]; /* ascending, without duplicates */
};

/* Decode a request. Returns false if it is malformed, or a key has another owner. */
bool remo__tx_steps_decode(const struct remo_tx_space *space, const char *request, size_t bytes,
                           struct remo__tx_steps *ret_steps);
/* Lock the mutexes of all groups; unlock them. All functions below are called in between. */
void remo__tx_steps_lock(struct remo__tx_steps *steps);
void remo__tx_steps_unlock(const struct remo__tx_steps *steps);
/* Search all items, and check all conditions. *ret_conflict is set if the answer is CONFLICT. */
enum remo__tx_answer remo__tx_steps_check(struct remo__tx_steps *steps,
                                          struct remo__tx_conflict *ret_conflict);
/* Reserve the items of new keys, and lock the other items that change if `locks`. An answer other than DONE
 * has changed nothing. */
enum remo__tx_answer remo__tx_steps_hold(struct remo__tx_steps *steps, bool locks);
/* Apply the changes; this also unlocks the items. */
void remo__tx_steps_apply(const struct remo__tx_steps *steps);
/* After remo__tx_steps_hold in an earlier call: search all items, and apply the changes, or undo the
 * reservations and locks. */
void remo__tx_steps_finish(struct remo__tx_steps *steps, bool applies);
/* After the mutexes have been unlocked: let structures with new keys grow. */
void remo__tx_steps_grow(const struct remo__tx_steps *steps);
