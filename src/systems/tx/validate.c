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
    uint64_t heads[REMO__TX_ITEMS_MAX];
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

/* Choose places in which reads did not find keys, from item *next on, as far as there is room, and advance
 * *next. */
static int choose_places(struct remo_tx *tx, enum remo__tx_scope scope, uint32_t *next,
                         struct remo__tx_reads *reads) {
    reads->count = 0;
    reads->bytes = 0;
    for (; *next < tx->items_count; (*next)++) {
        struct remo__tx_item *item = &tx->items[*next];
        const struct remo_structure *structure = tx->space->structures[item->structure];
        const struct remo_structure_place place = {.offset = item->evidence.offset,
                                                   .bytes = item->evidence.bytes};
        if (item->evidence.proof != REMO__PROOF_PLACE || !needs_validation(tx, *next, scope))
            continue;
        if (!remo__structure_contains(structure, item->owner, place.offset, place.bytes))
            return remo__tx_conflict(tx, *next, REMO_TX_APPEARED); /* a later incarnation of the owner */
        if (!remo__tx_add_read(reads, item, &place))
            break;
    }
    return 0;
}

static bool is_same_place(const struct remo__tx_read *read) {
    return XXH3_64bits(read->data, read->place.bytes) == read->item->evidence.word;
}

/* Validate that the places in which reads did not find keys have the same bytes: read them at the same
 * time. */
static __attribute__((noinline)) int validate_places(struct remo_tx *tx, enum remo__tx_scope scope) {
    struct remo__tx_reads reads;
    int rc = 0;
    for (uint32_t next = 0; next < tx->items_count && rc == 0;) {
        rc = choose_places(tx, scope, &next, &reads);
        if (rc == 0)
            rc = remo__tx_read_all(tx, &reads);
        for (uint32_t i = 0; i < reads.count && rc == 0; i++)
            if (!is_same_place(&reads.reads[i]))
                rc = remo__tx_conflict(tx, (uint32_t)(reads.reads[i].item - tx->items), REMO_TX_APPEARED);
    }
    return rc;
}

/* A key that the owner did not find is still absent, and no key of its group was deleted since: then the key
 * has been absent in between. */
static int end_check(struct remo_tx *tx, struct remo__tx_item *item, const struct remo__tx_found *found,
                     void *ctx) {
    (void)ctx;
    bool is_same = found->rc == -ENOENT && found->evidence.word == item->evidence.word;
    if (found->rc != 0 && found->rc != -ENOENT && found->rc != -EBUSY)
        return found->rc;
    return is_same ? 0 : remo__tx_conflict(tx, (uint32_t)(item - tx->items), REMO_TX_APPEARED);
}

static int validate_absent(struct remo_tx *tx, enum remo__tx_scope scope) {
    uint64_t calls = 0;
    bool has_places = false;
    for (uint32_t i = 0; i < tx->items_count; i++) {
        if (!remo__tx_is_absence(&tx->items[i]) || !needs_validation(tx, i, scope))
            continue;
        has_places |= tx->items[i].evidence.proof == REMO__PROOF_PLACE;
        calls |= tx->items[i].evidence.proof == REMO__PROOF_DELETES ? UINT64_C(1) << i : 0;
    }
    int rc = has_places ? validate_places(tx, scope) : 0;
    return rc == 0 && calls != 0 ? remo__tx_find_by_owners(tx, calls, end_check, NULL) : rc;
}

static bool has_lock_at(const struct remo_tx *tx, uint32_t owner) {
    for (uint32_t i = 0; i < tx->items_count; i++)
        if (tx->items[i].is_held && tx->items[i].owner == owner)
            return true;
    return false;
}

/* An owner has looked up a key that a read did not find. */
static int end_renew(struct remo_tx *tx, struct remo__tx_item *item, const struct remo__tx_found *found,
                     void *ctx) {
    (void)ctx;
    if (found->rc == 0 || found->rc == -EBUSY)
        return remo__tx_conflict(tx, (uint32_t)(item - tx->items), REMO_TX_APPEARED);
    if (found->rc != -ENOENT)
        return found->rc;
    item->evidence = found->evidence;
    tx->last = REMO__TX_NONE; /* the key that was looked up last was looked up before */
    return 0;
}

/* The transaction's own locks and reservations may have changed the places in which reads did not find keys:
 * let the owners find these keys absent. This precedes the first validation. */
static int renew_absences(struct remo_tx *tx) {
    uint64_t calls = 0;
    for (uint32_t i = 0; i < tx->items_count; i++) {
        const struct remo__tx_item *item = &tx->items[i];
        if (item->evidence.proof == REMO__PROOF_PLACE && !item->is_held && has_lock_at(tx, item->owner))
            calls |= UINT64_C(1) << i;
    }
    return remo__tx_find_by_owners(tx, calls, end_renew, NULL);
}

int remo__tx_validate(struct remo_tx *tx, enum remo__tx_scope scope) {
    int rc = tx->held ? renew_absences(tx) : 0;
    if (rc == 0)
        rc = validate_present(tx, scope);
    return rc != 0 ? rc : validate_absent(tx, scope);
}
