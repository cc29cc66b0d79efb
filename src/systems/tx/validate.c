/* validate.c - validation of a transaction, at the node that runs it (tx.h).
 * Invariant: each validation begins after all lookups of the transaction have ended. */
#include "systems/tx/tx.h"

#include <errno.h>

enum remo__tx_op remo__tx_op_of(const struct remo__tx_item *item) {
    enum remo__tx_op none = item->is_held ? REMO__TX_KEEP : REMO__TX_CHECK;
    if (!item->is_changed)
        return none;
    if (item->evidence.proof == REMO__PROOF_NONE)
        return REMO__TX_PUT;
    if (remo__tx_is_absence(item))
        return item->is_present ? REMO__TX_INSERT : none;
    return item->is_present ? REMO__TX_UPDATE : REMO__TX_DELETE;
}

int remo__tx_conflict(struct remo_tx *tx, uint32_t item, enum remo_tx_conflict_kind kind) {
    tx->conflict_item = item;
    tx->conflict_kind = kind;
    return remo__fail_static(-EAGAIN, "the transaction is in conflict: a key has changed, or is locked; "
                                      "run it again; remo_tx_last_conflict returns the key");
}

/* Return whether the item must be validated. All other lookups had ended when the last one began, so a
 * transaction without changes can take effect during the last one, unless another transaction was changing
 * its item. */
static bool needs_validation(const struct remo_tx *tx, uint32_t index, enum remo__tx_scope scope) {
    const struct remo__tx_item *item = &tx->items[index];
    if (item->evidence.proof == REMO__PROOF_NONE || item->is_held)
        return false;
    switch (scope) {
    case REMO__TX_ALL_BUT_LAST: return index != tx->last || item->was_locked;
    case REMO__TX_READ_ONLY: return remo__tx_op_of(item) == REMO__TX_CHECK;
    default: return true;
    }
}

/* Start to read the head of an item. If this node is its owner, the read completes at once. */
static int start_head(const struct remo_tx *tx, const struct remo__tx_item *item, uint64_t *ret_head,
                      struct remo_ack *ack) {
    struct remo_structure *structure = tx->space->structures[item->structure];
    struct remo__ref ref;
    if (item->owner == structure->rank) {
        *ret_head = remo__load(remo__own_at(structure, item->evidence.offset));
        return 0;
    }
    int rc = remo__region_find(structure->share, item->owner, item->evidence.offset, &ref);
    if (rc == 0
        && !remo__structure_contains(structure, item->owner, item->evidence.offset, sizeof *ret_head)) {
        *ret_head = ~item->evidence.word; /* not reachable yet: counts as changed */
        return 0;
    }
    return rc != 0 ? rc : remo__read(ref, ret_head, sizeof *ret_head, ack);
}

static int start_heads(const struct remo_tx *tx, enum remo__tx_scope scope, uint64_t *heads,
                       struct remo_ack *ack) {
    int rc = 0;
    for (uint32_t i = 0; i < tx->items_count && rc == 0; i++)
        if (tx->items[i].evidence.proof == REMO__PROOF_HEAD && needs_validation(tx, i, scope))
            rc = start_head(tx, &tx->items[i], &heads[i], ack);
    return rc;
}

/* Validate the items that were present: read all heads at the same time. */
static int validate_present(struct remo_tx *tx, enum remo__tx_scope scope) {
    uint64_t heads[REMO_TX_ITEMS_MAX];
    struct remo_ack ack = {0};
    struct remo__thread *thread = remo__thread(tx->space->node);
    if (!thread)
        return remo__last_code();
    remo__cork(thread);
    int rc = start_heads(tx, scope, heads, &ack);
    remo__uncork(thread);
    int settled = remo__ack_settle(&ack, tx->space->node->op_timeout_ns);
    for (uint32_t i = 0; i < tx->items_count && rc == 0 && settled == 0; i++) {
        uint64_t before = tx->items[i].evidence.word;
        if (tx->items[i].evidence.proof == REMO__PROOF_HEAD && needs_validation(tx, i, scope)
            && heads[i] != before)
            rc = remo__tx_conflict(
                tx, i, heads[i] == (before | REMO__ITEM_LOCKED) ? REMO_TX_LOCKED : REMO_TX_CHANGED);
    }
    return rc != 0 ? rc : settled;
}

/* Set *ret_is_same to whether the place in which a read did not find the key has the same bytes. */
static int check_place(const struct remo_tx *tx, const struct remo__tx_item *item, bool *ret_is_same) {
    char data[REMO_PLACE_BYTES_MAX] __attribute__((aligned(REMO__CACHE_LINE)));
    const struct remo_structure *structure = tx->space->structures[item->structure];
    struct remo__ref ref;
    int rc = remo__region_find(structure->share, item->owner, item->evidence.offset, &ref);
    *ret_is_same = false;
    if (rc == 0
        && !remo__structure_contains(structure, item->owner, item->evidence.offset, item->evidence.bytes))
        return 0; /* a later incarnation of the owner */
    if (rc == 0)
        rc = remo__read(ref, data, item->evidence.bytes, NULL);
    if (rc == 0)
        *ret_is_same = XXH3_64bits(data, item->evidence.bytes) == item->evidence.word;
    return rc;
}

/* Set *ret_is_same to whether a key that the owner did not find is still absent, and no key of its group was
 * deleted since: then the key has been absent in between. */
static int check_deletes(const struct remo_tx *tx, const struct remo__tx_item *item, bool *ret_is_same) {
    struct remo_structure *structure = tx->space->structures[item->structure];
    struct remo__evidence now = {0};
    int rc = remo__structure_find_by_owner(structure, item->owner, &item->key, &now);
    *ret_is_same = rc == -ENOENT && now.word == item->evidence.word;
    return rc == -ENOENT || rc == -EMSGSIZE || rc == -EBUSY ? 0 : rc;
}

static int validate_absent(struct remo_tx *tx, enum remo__tx_scope scope) {
    for (uint32_t i = 0; i < tx->items_count; i++) {
        const struct remo__tx_item *item = &tx->items[i];
        bool is_same;
        if (!remo__tx_is_absence(item) || !needs_validation(tx, i, scope))
            continue;
        int rc = item->evidence.proof == REMO__PROOF_PLACE ? check_place(tx, item, &is_same)
                                                           : check_deletes(tx, item, &is_same);
        if (rc != 0)
            return rc;
        if (!is_same)
            return remo__tx_conflict(tx, i, REMO_TX_APPEARED);
    }
    return 0;
}

static bool has_lock_at(const struct remo_tx *tx, uint32_t owner) {
    for (uint32_t i = 0; i < tx->items_count; i++)
        if (tx->items[i].is_held && tx->items[i].owner == owner)
            return true;
    return false;
}

/* The transaction's own locks and reservations may have changed the places in which reads did not find keys:
 * let the owners find these keys absent. This precedes the first validation. */
static int renew_absences(struct remo_tx *tx) {
    for (uint32_t i = 0; i < tx->items_count; i++) {
        struct remo__tx_item *item = &tx->items[i];
        if (item->evidence.proof != REMO__PROOF_PLACE || item->is_held || !has_lock_at(tx, item->owner))
            continue;
        struct remo__evidence now = {0};
        int rc = remo__structure_find_by_owner(tx->space->structures[item->structure], item->owner,
                                               &item->key, &now);
        if (rc == 0 || rc == -EMSGSIZE || rc == -EBUSY)
            return remo__tx_conflict(tx, i, REMO_TX_APPEARED);
        if (rc != -ENOENT)
            return rc;
        item->evidence = now;
        tx->last = REMO__TX_NONE; /* the key that was looked up last was looked up before */
    }
    return 0;
}

int remo__tx_validate(struct remo_tx *tx, enum remo__tx_scope scope) {
    int rc = tx->held ? renew_absences(tx) : 0;
    if (rc == 0)
        rc = validate_present(tx, scope);
    return rc != 0 ? rc : validate_absent(tx, scope);
}
