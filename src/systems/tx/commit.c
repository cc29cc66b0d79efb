/* commit.c - commit of a transaction, at the node that runs it (tx.h): without changes by validation alone;
 * with changes, if all keys have one owner, by one call to it, otherwise by coordinate.c. */
#include "systems/tx/tx.h"

#include <errno.h>

static bool has_changes(const struct remo_tx *tx) {
    for (uint32_t i = 0; i < tx->items_count; i++)
        if (remo__tx_op_of(&tx->items[i]) != REMO__TX_CHECK)
            return true;
    return false;
}

/* Return whether all items have one owner, and set *ret_owner to it. */
static bool has_one_owner(const struct remo_tx *tx, uint32_t *ret_owner) {
    *ret_owner = REMO__TX_NONE;
    for (uint32_t i = 0; i < tx->items_count; i++) {
        if (!remo__tx_is_used(&tx->items[i]))
            continue;
        if (*ret_owner != REMO__TX_NONE && tx->items[i].owner != *ret_owner)
            return false;
        *ret_owner = tx->items[i].owner;
    }
    return true;
}

static int execute_here(struct remo_tx *tx, const char *request, size_t bytes,
                        struct remo__tx_conflict *ret_conflict, enum remo__tx_answer *ret_answer) {
    int rc = remo__tx_check_shares(tx);
    if (rc == 0)
        *ret_answer = remo__tx_execute(tx->space, request, bytes, ret_conflict);
    return rc;
}

static int execute_there(struct remo_tx *tx, uint32_t owner, const char *request, size_t bytes,
                         struct remo__tx_conflict *ret_conflict, enum remo__tx_answer *ret_answer) {
    size_t reply_bytes = 0;
    int rc = remo_rpc_call(tx->space->rpc, owner, REMO__TX_EXECUTE, request, bytes, ret_conflict,
                           sizeof *ret_conflict, &reply_bytes, tx->space->node->op_timeout_ns);
    if (rc < 0 && rc != -EMSGSIZE)
        return remo__fail_more(rc, "%s", remo_channel_name(tx->space->channel));
    bool is_whole = rc != REMO__TX_ANSWER_CONFLICT || reply_bytes == sizeof *ret_conflict;
    *ret_answer = rc >= 0 && is_whole ? (enum remo__tx_answer)rc : REMO__TX_ANSWER_MALFORMED;
    return 0;
}

static int execute(struct remo_tx *tx, uint32_t owner) {
    char request[REMO_RPC_BYTES_MAX];
    uint8_t items[REMO_TX_ITEMS_MAX] = {0};
    struct remo__tx_conflict found = {0};
    enum remo__tx_answer answer = REMO__TX_ANSWER_MALFORMED;
    size_t bytes = 0;
    int rc = remo__tx_request(tx, owner, true, request, sizeof request, &bytes, items);
    if (rc == 0)
        rc = owner == tx->space->node->rank ? execute_here(tx, request, bytes, &found, &answer)
                                            : execute_there(tx, owner, request, bytes, &found, &answer);
    return rc != 0 ? rc : remo__tx_result(tx, answer, &found, items);
}

int remo__tx_apply(struct remo_tx *tx) {
    uint32_t owner;
    if (!has_changes(tx))
        return remo__tx_validate(tx, REMO__TX_ALL_BUT_LAST);
    return has_one_owner(tx, &owner) ? execute(tx, owner) : remo__tx_coordinate(tx);
}
