/* commit.c - validation and commit of a transaction, at the node that runs it (tx.h).
 * Invariant: each validation begins after all lookups of the transaction have ended. */
#include "systems/tx/tx.h"

#include <errno.h>

/* ---- validation ---- */

static bool is_absence(const struct remo__tx_item *item) {
    return item->evidence.proof == REMO__PROOF_PLACE || item->evidence.proof == REMO__PROOF_DELETES;
}

static int conflict(struct remo_tx *tx, uint32_t item, enum remo_tx_conflict_kind kind) {
    tx->conflict_item = item;
    tx->conflict_kind = kind;
    return remo__fail_static(-EAGAIN, "the transaction is in conflict: a key has changed, or is locked; "
                                      "run it again; remo_tx_last_conflict returns the key");
}

/* Return whether the item must be validated. All other lookups had ended when the last one began, so the
 * transaction can take effect during the last one, unless another transaction was changing its item. */
static bool needs_validation(const struct remo_tx *tx, uint32_t item, bool with_last) {
    return tx->items[item].evidence.proof != REMO__PROOF_NONE
           && (with_last || item != tx->last || tx->items[item].was_locked);
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

static int start_heads(const struct remo_tx *tx, bool with_last, uint64_t *heads, struct remo_ack *ack) {
    int rc = 0;
    for (uint32_t i = 0; i < tx->items_count && rc == 0; i++)
        if (tx->items[i].evidence.proof == REMO__PROOF_HEAD && needs_validation(tx, i, with_last))
            rc = start_head(tx, &tx->items[i], &heads[i], ack);
    return rc;
}

/* Validate the items that were present: read all heads at the same time. */
static int validate_present(struct remo_tx *tx, bool with_last) {
    uint64_t heads[REMO_TX_ITEMS_MAX];
    struct remo_ack ack = {0};
    struct remo__thread *thread = remo__thread(tx->space->node);
    if (!thread)
        return remo__last_code();
    remo__cork(thread);
    int rc = start_heads(tx, with_last, heads, &ack);
    remo__uncork(thread);
    int settled = remo__ack_settle(&ack, tx->space->node->op_timeout_ns);
    for (uint32_t i = 0; i < tx->items_count && rc == 0 && settled == 0; i++) {
        uint64_t before = tx->items[i].evidence.word;
        if (tx->items[i].evidence.proof == REMO__PROOF_HEAD && needs_validation(tx, i, with_last)
            && heads[i] != before)
            rc = conflict(tx, i, heads[i] == (before | REMO__ITEM_LOCKED) ? REMO_TX_LOCKED : REMO_TX_CHANGED);
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
    return rc == -ENOENT || rc == -EMSGSIZE ? 0 : rc;
}

static int validate_absent(struct remo_tx *tx, bool with_last) {
    for (uint32_t i = 0; i < tx->items_count; i++) {
        const struct remo__tx_item *item = &tx->items[i];
        bool is_same;
        if (!is_absence(item) || !needs_validation(tx, i, with_last))
            continue;
        int rc = item->evidence.proof == REMO__PROOF_PLACE ? check_place(tx, item, &is_same)
                                                           : check_deletes(tx, item, &is_same);
        if (rc != 0)
            return rc;
        if (!is_same)
            return conflict(tx, i, REMO_TX_APPEARED);
    }
    return 0;
}

int remo__tx_validate(struct remo_tx *tx, bool with_last) {
    int rc = validate_present(tx, with_last);
    return rc != 0 ? rc : validate_absent(tx, with_last);
}

/* ---- changes ---- */

static enum remo__tx_op op_of(const struct remo__tx_item *item) {
    if (!item->is_changed)
        return REMO__TX_CHECK;
    if (item->evidence.proof == REMO__PROOF_NONE)
        return REMO__TX_PUT;
    if (is_absence(item))
        return item->is_present ? REMO__TX_INSERT : REMO__TX_CHECK;
    return item->is_present ? REMO__TX_UPDATE : REMO__TX_DELETE;
}

static enum remo__tx_condition condition_of(const struct remo__tx_item *item) {
    if (item->evidence.proof == REMO__PROOF_HEAD)
        return REMO__TX_SAME;
    return is_absence(item) ? REMO__TX_ABSENT : REMO__TX_ALWAYS;
}

/* Return whether the item belongs to the transaction: it was changed, or a lookup has succeeded. */
static bool is_used(const struct remo__tx_item *item) {
    return item->is_changed || item->evidence.proof != REMO__PROOF_NONE;
}

static bool has_changes(const struct remo_tx *tx) {
    for (uint32_t i = 0; i < tx->items_count; i++)
        if (op_of(&tx->items[i]) != REMO__TX_CHECK)
            return true;
    return false;
}

/* Set *ret_owner to the owner of all items. */
static int find_owner(const struct remo_tx *tx, uint32_t *ret_owner) {
    bool is_found = false;
    for (uint32_t i = 0; i < tx->items_count; i++) {
        if (!is_used(&tx->items[i]))
            continue;
        if (is_found && tx->items[i].owner != *ret_owner)
            return remo__fail(-EXDEV,
                              "cannot commit a transaction that changes items and uses keys of two owners, "
                              "nodes %u and %u: use keys of one owner, or change nothing",
                              *ret_owner, tx->items[i].owner);
        *ret_owner = tx->items[i].owner;
        is_found = true;
    }
    return 0;
}

/* Append an item to a request. Returns false if it has no room. */
static bool append(const struct remo_tx *tx, const struct remo__tx_item *item, char *request, size_t *bytes) {
    enum remo__tx_op op = op_of(item);
    bool has_value = op != REMO__TX_CHECK && op != REMO__TX_DELETE;
    struct remo__tx_item_request header = {.op = (uint8_t)op,
                                           .condition = (uint8_t)condition_of(item),
                                           .structure = (uint8_t)item->structure,
                                           .key_bytes = (uint16_t)item->key.bytes,
                                           .value_bytes = has_value ? item->value_bytes : 0};
    if (header.condition == REMO__TX_SAME) {
        header.offset = item->evidence.offset;
        header.head = item->evidence.word;
    }
    if (sizeof header + header.key_bytes + header.value_bytes > REMO_RPC_BYTES_MAX - *bytes)
        return false;
    memcpy(request + *bytes, &header, sizeof header);
    *bytes += sizeof header;
    memcpy(request + *bytes, item->key.data, header.key_bytes);
    *bytes += header.key_bytes;
    if (header.value_bytes > 0)
        memcpy(request + *bytes, tx->bytes + item->value_at, header.value_bytes);
    *bytes += header.value_bytes;
    return true;
}

/* Make the request of a commit. items[i] is the item of the transaction that is item i of the request. */
static int make_request(const struct remo_tx *tx, char *request, size_t *ret_bytes, uint8_t *ret_items) {
    struct remo__tx_request header = {0};
    *ret_bytes = sizeof header;
    for (uint32_t i = 0; i < tx->items_count; i++) {
        if (!is_used(&tx->items[i]))
            continue;
        if (!append(tx, &tx->items[i], request, ret_bytes))
            return remo__fail(-EMSGSIZE,
                              "cannot commit a transaction with changes whose keys and new values need more "
                              "than %u bytes: divide it",
                              REMO_RPC_BYTES_MAX);
        ret_items[header.items++] = (uint8_t)i;
    }
    memcpy(request, &header, sizeof header);
    return 0;
}

static int execute_here(struct remo_tx *tx, const char *request, size_t bytes,
                        struct remo__tx_conflict *ret_conflict, enum remo__tx_answer *ret_answer) {
    for (uint32_t i = 0; i < tx->items_count; i++) {
        int rc = remo__structure_check_share(tx->space->structures[tx->items[i].structure]);
        if (rc != 0)
            return rc;
    }
    *ret_answer = remo__tx_execute(tx->space, request, bytes, ret_conflict);
    return 0;
}

static int execute_there(struct remo_tx *tx, uint32_t owner, const char *request, size_t bytes,
                         struct remo__tx_conflict *ret_conflict, enum remo__tx_answer *ret_answer) {
    size_t reply_bytes = 0;
    int rc = remo_rpc_call(tx->space->rpc, owner, REMO__TX_HANDLER, request, bytes, ret_conflict,
                           sizeof *ret_conflict, &reply_bytes, tx->space->node->op_timeout_ns);
    if (rc < 0 && rc != -EMSGSIZE)
        return remo__fail_more(rc, "%s", remo_channel_name(tx->space->channel));
    bool is_whole = rc != REMO__TX_ANSWER_CONFLICT || reply_bytes == sizeof *ret_conflict;
    *ret_answer = rc >= 0 && is_whole ? (enum remo__tx_answer)rc : REMO__TX_ANSWER_MALFORMED;
    return 0;
}

static int result_of(struct remo_tx *tx, enum remo__tx_answer answer, const struct remo__tx_conflict *found,
                     const uint8_t *items) {
    const char *name = remo_channel_name(tx->space->channel);
    switch (answer) {
    case REMO__TX_ANSWER_DONE: return 0;
    case REMO__TX_ANSWER_CONFLICT:
        return conflict(tx, items[remo__min(found->item, REMO_TX_ITEMS_MAX - 1)],
                        found->kind == REMO_TX_APPEARED ? REMO_TX_APPEARED : REMO_TX_CHANGED);
    case REMO__TX_ANSWER_NO_ROOM:
        return remo__fail(-ENOSPC,
                          "no room for a new key of a transaction of %s at its owner: delete keys, or open "
                          "the structure with more memory",
                          name);
    default:
        return remo__fail(
            -EPROTO,
            "the owner cannot execute a transaction of %s: its memory is damaged, or the "
            "functions of a structure differ between nodes; start all nodes from the same build",
            name);
    }
}

int remo__tx_apply(struct remo_tx *tx) {
    char request[REMO_RPC_BYTES_MAX];
    uint8_t items[REMO_TX_ITEMS_MAX] = {0};
    struct remo__tx_conflict found = {0};
    enum remo__tx_answer answer = REMO__TX_ANSWER_MALFORMED;
    size_t bytes = 0;
    uint32_t owner = 0;
    if (!has_changes(tx))
        return remo__tx_validate(tx, false);
    int rc = find_owner(tx, &owner);
    if (rc == 0)
        rc = make_request(tx, request, &bytes, items);
    if (rc != 0)
        return rc;
    rc = owner == tx->space->node->rank ? execute_here(tx, request, bytes, &found, &answer)
                                        : execute_there(tx, owner, request, bytes, &found, &answer);
    return rc != 0 ? rc : result_of(tx, answer, &found, items);
}
