/* steps.h - the steps of a request: the owner checks their conditions, and changes their items (steps.c). */
#pragma once

#include "systems/tx/tx.h"

/* An item of a request, while the owner executes it. */
struct remo__tx_step {
    struct remo_structure *structure;
    struct remo__structure_group *group; /* of the key, once its mutex is held */
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
    const struct remo_tx_space *space;
    uint32_t claimant; /* of the request */
    struct remo__tx_step step[REMO__TX_ITEMS_MAX];
    struct remo_structure *full; /* after the answer NO_ROOM: the structure that has no room */
    bool is_watched;             /* the changes may have made watches due */
    uint32_t mutexes_count;
    pthread_mutex_t *mutexes[REMO__TX_ITEMS_MAX]; /* ascending, without duplicates */
};

/* Decode a request, and run `run(steps, ctx)` under the mutexes of all groups; again while it finds no room
 * and the structure that has none grows. Returns its answer, or MALFORMED. */
enum remo__tx_answer remo__tx_steps_run(const struct remo_tx_space *space, const char *request, size_t bytes,
                                        enum remo__tx_answer (*run)(struct remo__tx_steps *steps, void *ctx),
                                        void *ctx, struct remo__tx_steps *ret_steps);

/* ---- in `run` ---- */

/* Search for all items, and check all conditions. *ret_conflict is set if the answer is CONFLICT. */
enum remo__tx_answer remo__tx_steps_check(struct remo__tx_steps *steps,
                                          struct remo__tx_conflict *ret_conflict);
/* Reserve the items of new keys, and lock the other items that change if `locks`. An answer other than DONE
 * has changed nothing. */
enum remo__tx_answer remo__tx_steps_hold(struct remo__tx_steps *steps, bool locks);
/* Apply the changes; this also unlocks the items. */
void remo__tx_steps_apply(struct remo__tx_steps *steps);
/* Return whether all items are locked or reserved, by any transaction. */
bool remo__tx_steps_are_held(struct remo__tx_steps *steps);
/* After remo__tx_steps_hold in an earlier call: search for all items, and apply the changes, or undo the
 * reservations and locks. */
void remo__tx_steps_finish(struct remo__tx_steps *steps, bool applies);

/* ---- afterwards ---- */

/* Report the watches that are due. No mutex is held. */
void remo__tx_steps_report(const struct remo__tx_steps *steps);
/* Let structures with new keys grow. */
void remo__tx_steps_grow(const struct remo__tx_steps *steps);
