/* request.c - the requests of a commit to the owners of its items, and the results of their answers (tx.h).
 * Invariant: the owner that executes a request owns all its keys. */
#include "systems/tx/tx.h"

#include <errno.h>

/* ---- requests ---- */

/* A held item is locked or reserved for the transaction. */
static enum remo__tx_condition condition_of(const struct remo__tx_item *item) {
    if (item->evidence.proof == REMO__PROOF_HEAD || item->is_held)
        return REMO__TX_SAME;
    return remo__tx_is_absence(item) ? REMO__TX_ABSENT : REMO__TX_ALWAYS;
}

bool remo__tx_append(const struct remo_tx *tx, const struct remo__tx_item *item, enum remo__tx_op op,
                     char *request, size_t capacity, size_t *bytes) {
    bool has_value = op != REMO__TX_CHECK && op != REMO__TX_DELETE && op != REMO__TX_KEEP;
    struct remo__tx_item_request header = {.op = (uint8_t)op,
                                           .condition = (uint8_t)condition_of(item),
                                           .structure = (uint8_t)item->structure,
                                           .key_bytes = (uint16_t)item->key.bytes,
                                           .value_bytes = has_value ? item->value_bytes : 0};
    if (header.condition == REMO__TX_SAME) {
        header.offset = item->evidence.offset;
        header.head = item->evidence.word;
    }
    if (sizeof header + header.key_bytes + header.value_bytes > capacity - *bytes)
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

/* The value of a new key is stored in the item that was reserved for it. */
static enum remo__tx_op op_of(const struct remo__tx_item *item) {
    enum remo__tx_op op = remo__tx_op_of(item);
    return item->is_held && op == REMO__TX_INSERT ? REMO__TX_UPDATE : op;
}

/* Return whether the owner must know the item. If several owners have items that change, the coordinator
 * validates items that were present, after all owners have prepared. */
static bool belongs(const struct remo_tx *tx, const struct remo__tx_item *item, uint32_t owner,
                    bool is_single) {
    if (item->owner != owner || !remo__tx_is_used(item))
        return false;
    if (tx->held)
        return item->is_held;
    return is_single || item->evidence.proof != REMO__PROOF_HEAD || remo__tx_op_of(item) != REMO__TX_CHECK;
}

int remo__tx_request(const struct remo_tx *tx, uint32_t owner, bool is_single, char *request, size_t capacity,
                     size_t *bytes, uint8_t *ret_items) {
    struct remo__tx_request header = {.claimant = tx->claimant};
    size_t at = *bytes;
    bool has_room = sizeof header <= capacity - at;
    *bytes += has_room ? sizeof header : 0;
    for (uint32_t i = 0; i < tx->items_count && has_room; i++) {
        if (!belongs(tx, &tx->items[i], owner, is_single))
            continue;
        has_room = remo__tx_append(tx, &tx->items[i], op_of(&tx->items[i]), request, capacity, bytes);
        ret_items[header.items++] = (uint8_t)i;
    }
    if (!has_room)
        return remo__fail(-EMSGSIZE,
                          "cannot commit a transaction with changes whose keys and new values need more "
                          "than %u bytes at node %u: divide it",
                          REMO_RPC_BYTES_MAX, owner);
    memcpy(request + at, &header, sizeof header);
    return 0;
}

int remo__tx_check_shares(const struct remo_tx *tx) {
    for (uint32_t i = 0; i < tx->items_count; i++) {
        int rc = remo__structure_check_share(tx->space->structures[tx->items[i].structure]);
        if (rc != 0)
            return rc;
    }
    return 0;
}

/* ---- results ---- */

int remo__tx_result(struct remo_tx *tx, enum remo__tx_answer answer, const struct remo__tx_conflict *found,
                    const uint8_t *items) {
    const char *name = remo_channel_name(tx->space->channel);
    switch (answer) {
    case REMO__TX_ANSWER_DONE: return 0;
    case REMO__TX_ANSWER_CONFLICT:
        return remo__tx_conflict(tx, items[remo__min(found->item, REMO__TX_ITEMS_MAX - 1)],
                                 found->kind == REMO_TX_APPEARED || found->kind == REMO_TX_LOCKED
                                     ? (enum remo_tx_conflict_kind)found->kind
                                     : REMO_TX_CHANGED);
    case REMO__TX_ANSWER_NO_ROOM:
        return remo__fail(-ENOSPC,
                          "no room for a new key of a transaction of %s at its owner: delete keys, pop "
                          "elements of a queue, or open the structure with more memory",
                          name);
    default:
        return remo__fail(
            -EPROTO,
            "the owner cannot execute a transaction of %s: its memory is damaged, or the "
            "functions of a structure differ between nodes; start all nodes from the same build",
            name);
    }
}

int remo__tx_check_waits(const struct remo_tx_space *space) {
    const struct remo__thread *thread = remo__thread(space->node);
    if (!thread)
        return remo__last_code();
    if (thread->handling)
        return remo__fail(-EDEADLK, "cannot commit at other nodes in a SHORT handler or a `done` function");
    return 0;
}
