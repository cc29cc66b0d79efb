/* commit.c - commit of a transaction, at the node that runs it (tx.h): without changes by validation alone;
 * with changes, if all keys have one owner, by one call to it, otherwise by coordinate.c. */
#include "systems/tx/finish.h"

#include <errno.h>

static bool has_changes(const struct remo_tx *tx) {
    for (uint32_t i = 0; i < tx->items_count; i++)
        if (remo__tx_op_of(&tx->items[i]) != REMO__TX_CHECK && remo__tx_op_of(&tx->items[i]) != REMO__TX_KEEP)
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

/* Start the call again until the owner has opened the space. */
static __attribute__((noinline)) int start_later(struct remo_tx *tx) {
    uint64_t deadline_ns = remo__deadline(tx->call.timeout_ns);
    int rc;
    do {
        tx->call.timeout_ns = remo__remaining_ns(deadline_ns);
        if (tx->call.timeout_ns == 0)
            return remo__fail(-ETIMEDOUT, "node %u has not opened the space: nothing has changed",
                              tx->call.node);
        rc = remo__tx_serve(tx->space);
        if (rc == 0)
            rc = remo_rpc_start(tx->space->rpc, &tx->call);
    } while (rc == -EAGAIN);
    return rc;
}

static int start(struct remo_tx *tx, uint32_t owner, size_t bytes) {
    struct remo_tx_space *space = tx->space;
    tx->call = (struct remo_rpc_op){.node = owner,
                                    .number = REMO__TX_EXECUTE,
                                    .request = tx->request,
                                    .request_bytes = bytes,
                                    .reply = &tx->found,
                                    .reply_cap = sizeof tx->found,
                                    .timeout_ns = space->node->op_timeout_ns,
                                    .waits = true,
                                    .fate = REMO_RPC_NOT_SENT};
    int rc = remo__tx_check_waits(space);
    if (rc == 0)
        rc = remo_rpc_start(space->rpc, &tx->call);
    return remo__unlikely(rc == -EAGAIN) ? start_later(tx) : rc;
}

static enum remo_tx_fate fate_of(const struct remo_rpc_op *call) {
    switch (call->fate) {
    case REMO_RPC_IN_FLIGHT: return REMO_TX_PENDING;
    case REMO_RPC_NOT_SENT: return REMO_TX_NOT_COMMITTED;
    case REMO_RPC_DONE:
        if (call->status == REMO__TX_ANSWER_DONE)
            return REMO_TX_COMMITTED;
        return call->status > REMO__TX_ANSWER_MALFORMED || call->status == -EMSGSIZE ? REMO_TX_UNKNOWN
                                                                                     : REMO_TX_NOT_COMMITTED;
    default: return REMO_TX_UNKNOWN;
    }
}

static int execute_there(struct remo_tx *tx, uint32_t owner, size_t bytes, enum remo__tx_answer *ret_answer) {
    int rc = start(tx, owner, bytes);
    if (rc == 0)
        rc = remo_rpc_wait_for(&tx->call, tx->call.timeout_ns);
    tx->fate = fate_of(&tx->call);
    if (rc == -EINPROGRESS)
        return remo__fail(-ETIMEDOUT,
                          "node %u does not answer; remo_tx_settle waits for the outcome of the "
                          "transaction",
                          owner);
    if (rc < 0 && rc != -EMSGSIZE)
        return remo__fail_more(rc, "%s", remo_channel_name(tx->space->channel));
    bool is_whole = rc != REMO__TX_ANSWER_CONFLICT || tx->call.reply_bytes == sizeof tx->found;
    *ret_answer = rc >= 0 && is_whole ? (enum remo__tx_answer)rc : REMO__TX_ANSWER_MALFORMED;
    return 0;
}

static int execute(struct remo_tx *tx, uint32_t owner) {
    uint8_t items[REMO__TX_ITEMS_MAX] = {0};
    enum remo__tx_answer answer = REMO__TX_ANSWER_MALFORMED;
    size_t bytes = 0;
    tx->found = (struct remo__tx_conflict){0};
    int rc = remo__tx_request(tx, owner, true, tx->request, sizeof tx->request, &bytes, items);
    if (rc == 0)
        rc = owner == tx->space->node->rank ? execute_here(tx, tx->request, bytes, &tx->found, &answer)
                                            : execute_there(tx, owner, bytes, &answer);
    return rc != 0 ? rc : remo__tx_result(tx, answer, &tx->found, items);
}

int remo__tx_settle(struct remo_tx *tx, uint64_t timeout_ns) {
    if (tx->pending)
        return remo__tx_await_outcome(tx, remo__deadline(timeout_ns));
    int rc = remo_rpc_wait_for(&tx->call, timeout_ns);
    tx->fate = fate_of(&tx->call);
    if (tx->fate != REMO_TX_PENDING)
        return 0;
    return rc == -EINPROGRESS
               ? remo__fail(-ETIMEDOUT, "the outcome is not known: node %u does not answer", tx->call.node)
               : rc;
}

void remo__tx_forget(struct remo_tx *tx) {
    if (tx->pending)
        remo__tx_drop(tx->pending);
    else
        remo_rpc_cancel(&tx->call);
    tx->pending = NULL;
    tx->fate = REMO_TX_UNKNOWN;
}

int remo__tx_apply(struct remo_tx *tx) {
    uint32_t owner;
    if (tx->held || tx->lock_error != 0)
        return remo__tx_commit_held(tx, has_changes(tx));
    if (!has_changes(tx))
        return remo__tx_validate(tx, REMO__TX_ALL_BUT_LAST);
    return has_one_owner(tx, &owner) ? execute(tx, owner) : remo__tx_coordinate(tx);
}
