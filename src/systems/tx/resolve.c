/* resolve.c - the owner's side of transactions whose coordinator has failed: the owners find out the outcome,
 * and end their records (docs/internals/tx.md, Recovery). Here the owners are all participants but the
 * coordinator. Invariant: an owner ends a record only after it has detected the failure of the coordinator,
 * and has also detected that of all owners that precede it, or has the outcome from one of these owners. */
#include <errno.h>

#include "systems/tx/steps.h"

#define PAUSE_NS REMO__NS_PER_MS /* before a question is repeated */

/* Return the place of `node` among the owners, or `count`. */
static uint32_t place_of(const uint16_t *owners, uint32_t count, uint32_t node) {
    uint32_t place = 0;
    while (place < count && owners[place] != node)
        place++;
    return place;
}

/* Return whether all owners before `place` are cut off. */
static bool are_cut_off(const struct remo_tx_space *space, const uint16_t *owners, uint32_t place) {
    for (uint32_t i = 0; i < place; i++)
        if (!remo__tx_has_lost(space, owners[i]))
            return false;
    return true;
}

/* ---- answers ---- */

/* The record is PREPARED, and its coordinator is cut off. */
static enum remo__tx_outcome answer_prepared(struct remo__tx_record *record, uint32_t asker,
                                             bool is_decisive) {
    const struct remo_tx_space *space = record->space;
    uint16_t owners[REMO_NODES_MAX];
    uint32_t count = remo__tx_record_owners(record, owners);
    if (is_decisive) {
        if (place_of(owners, count, space->node->rank) != 0)
            return REMO__TX_PENDING; /* this owner asks the others itself */
        remo__tx_record_end(record,
                            false); /* only the decider commits, and the coordinator cannot ask it any more */
        return REMO__TX_ABORTED;
    }
    /* The answer from an earlier owner, which the asking owner regards as failed, may be about to arrive. */
    bool may_learn = record->is_asking && record->asked != asker;
    bool is_last = are_cut_off(space, owners, place_of(owners, count, asker));
    return is_last && !may_learn ? REMO__TX_UNKNOWN : REMO__TX_PENDING;
}

/* The record is COMMITTED. An owner that has only locked items does not have its changes. */
static uint32_t copy_message(const struct remo__tx_record *record, char *ret_message) {
    if (record->is_early)
        memcpy(ret_message, record->message, record->message_bytes);
    return record->is_early ? record->message_bytes : 0;
}

enum remo__tx_outcome remo__tx_answer_question(struct remo_tx_space *space, uint32_t asker,
                                               const struct remo__tx_question *question, char *ret_message,
                                               uint32_t *ret_bytes) {
    const struct remo__tx_id *id = &question->id;
    *ret_bytes = 0;
    if (id->coordinator >= space->node->size || id->number >= REMO__TX_COMMITS_MAX)
        return REMO__TX_PENDING;
    struct remo__tx_peer *peer = &space->peers[id->coordinator];
    /* Perhaps this node is no owner; but if it precedes the asking owner, it has aborted. */
    enum remo__tx_outcome outcome = question->is_for_all ? REMO__TX_UNKNOWN : REMO__TX_ABORTED;
    pthread_mutex_lock(&peer->mutex);
    struct remo__tx_record *record = &peer->records[id->number];
    bool is_this = record->id.sequence == id->sequence;
    if (is_this && record->state == REMO__TX_RECORD_COMMITTED)
        outcome = REMO__TX_COMMITTED;
    else if (!remo__tx_has_lost(space, id->coordinator))
        outcome = REMO__TX_PENDING; /* the coordinator may still prepare it here, or send the outcome */
    else if (is_this && record->state == REMO__TX_RECORD_PREPARED)
        outcome = answer_prepared(record, asker, question->is_decisive);
    if (outcome == REMO__TX_COMMITTED)
        *ret_bytes = copy_message(record, ret_message);
    pthread_mutex_unlock(&peer->mutex);
    return outcome;
}

int remo__tx_handle_resolve(void *ctx, const struct remo_rpc_request *request) {
    struct remo__tx_question question;
    char message[REMO_RPC_BYTES_MAX];
    uint32_t bytes;
    if (request->bytes != sizeof question)
        return REMO__TX_PENDING;
    memcpy(&question, request->data, sizeof question);
    enum remo__tx_outcome outcome = remo__tx_answer_question(ctx, request->node, &question, message, &bytes);
    return bytes > 0 ? remo_rpc_reply(request, outcome, message, bytes) : (int)outcome;
}

/* ---- questions ---- */

/* Early locks: a node that has not opened the space has no part in the transaction. */
static bool is_in_space(const struct remo__tx_record *record, uint32_t node) {
    return !record->is_early || atomic_load(&record->space->peers[node].was_connected);
}

/* Return the index of the next owner to ask, or `count` if the outcome is known: the transaction is aborted.
 * An owner asks the first of the owners before it that is up. If there is none, the decider asks no owner,
 * and any other owner asks all owners after itself. */
static uint32_t next_to_ask(const struct remo__tx_record *record, const uint16_t *owners, uint32_t count) {
    uint32_t own = place_of(owners, count, record->space->node->rank);
    for (uint32_t i = 0; i < own && i < count; i++)
        if (!remo__tx_has_lost(record->space, owners[i]))
            return i;
    if (own == 0)
        return count;
    for (uint32_t i = remo__max(own + 1, record->asks_from); i < count; i++)
        if (!remo__tx_has_lost(record->space, owners[i]) && is_in_space(record, owners[i]))
            return i;
    return count;
}

/* The same for a record that is unsettled: an owner that has committed waits until all others have the
 * outcome or have failed, before it may close the space. */
static uint32_t next_to_settle(const struct remo__tx_record *record, const uint16_t *owners, uint32_t count) {
    uint32_t i = record->asks_from;
    while (i < count
           && (owners[i] == record->space->node->rank || remo__tx_has_lost(record->space, owners[i])))
        i++;
    return i;
}

/* The asked owner has the outcome. With early locks its answer has the changes. */
static void take_outcome(struct remo__tx_record *record, bool commits) {
    struct remo_tx_space *space = record->space;
    bool needs_changes = commits && record->is_early;
    if (needs_changes
        && remo__tx_record_commit(record, record->outcome, record->call.reply_bytes) == REMO__TX_ANSWER_DONE)
        return;
    if (needs_changes)
        remo__log(&space->node->log, REMO_LOG_WARNING,
                  "node %u has lost the changes of a transaction of %s: its memory is damaged", record->asked,
                  remo_channel_name(space->channel));
    remo__tx_record_end(record, commits && !needs_changes);
}

/* Take the answer of the asked owner. The mutex is held. */
static void take_answer(struct remo__tx_record *record, int status) {
    uint16_t owners[REMO_NODES_MAX];
    uint32_t count = remo__tx_record_owners(record, owners), place = place_of(owners, count, record->asked);
    bool has_outcome = status == REMO__TX_COMMITTED || status == REMO__TX_ABORTED;
    if (has_outcome && record->is_unsettled)
        record->asks_from = place + 1;
    else if (has_outcome)
        take_outcome(record, status == REMO__TX_COMMITTED);
    else if (!record->is_unsettled && status == REMO__TX_UNKNOWN && !record->question.is_decisive)
        record->asks_from = place + 1;
    else
        record->asks_at_ns = remo__now_ns() + PAUSE_NS;
}

/* The call has ended. If it has no answer, it is repeated, or the asked owner is cut off. */
static void on_answer(struct remo_rpc_op *call) {
    struct remo__tx_record *record = call->ctx;
    struct remo_tx_space *space = record->space;
    struct remo__tx_peer *peer = &space->peers[record->id.coordinator];
    pthread_mutex_lock(&peer->mutex);
    record->is_asking = false;
    if (record->state == REMO__TX_RECORD_PREPARED || record->is_unsettled)
        take_answer(record, call->status);
    pthread_mutex_unlock(&peer->mutex);
    remo__tx_report(space);
    remo__request_sweeps(space->node);
}

/* All others have the outcome, or have failed. */
static void settle(struct remo__tx_record *record) {
    record->is_unsettled = false;
    atomic_fetch_sub(&record->space->unsettled, 1);
}

/* Decide what to do for a record; the mutex is held. Returns whether to start its call. */
static bool advance(struct remo__tx_record *record) {
    uint16_t owners[REMO_NODES_MAX];
    bool is_prepared = record->state == REMO__TX_RECORD_PREPARED;
    if ((!is_prepared && !record->is_unsettled) || record->is_asking || remo__now_ns() < record->asks_at_ns)
        return false;
    uint32_t count = remo__tx_record_owners(record, owners);
    uint32_t own = place_of(owners, count, record->space->node->rank);
    uint32_t next = is_prepared ? next_to_ask(record, owners, count) : next_to_settle(record, owners, count);
    if (next == count && is_prepared)
        remo__tx_record_end(record, false);
    else if (next == count)
        settle(record);
    if (next == count)
        return false;
    record->is_asking = true;
    record->asked = owners[next];
    record->question =
        (struct remo__tx_question){.id = record->id,
                                   .is_decisive = is_prepared && next < own,
                                   .is_for_all = is_prepared && next > own && record->is_early};
    return true;
}

/* Only the caller and `on_answer` use the call while is_asking is set. */
static void ask(struct remo__tx_record *record, struct remo__tx_peer *peer) {
    record->call = (struct remo_rpc_op){.node = record->asked,
                                        .number = REMO__TX_RESOLVE,
                                        .request = &record->question,
                                        .request_bytes = sizeof record->question,
                                        .reply = record->outcome,
                                        .reply_cap = sizeof record->outcome,
                                        .timeout_ns = REMO_FOREVER,
                                        .done = on_answer,
                                        .ctx = record};
    if (remo_rpc_start(record->space->rpc, &record->call) == 0)
        return;
    pthread_mutex_lock(&peer->mutex);
    record->is_asking = false;
    pthread_mutex_unlock(&peer->mutex);
}

/* Returns whether the record must still be resolved. */
static bool resolve(struct remo__tx_peer *peer, uint32_t number) {
    pthread_mutex_lock(&peer->mutex);
    struct remo__tx_record *record = &peer->records[number];
    bool asks = advance(record);
    bool is_left = record->state == REMO__TX_RECORD_PREPARED || record->is_unsettled;
    pthread_mutex_unlock(&peer->mutex);
    if (asks)
        ask(record, peer);
    return is_left;
}

void remo__tx_unsettle(struct remo_tx_space *space, uint32_t coordinator) {
    for (uint32_t number = 0; number < REMO__TX_COMMITS_MAX; number++) {
        struct remo__tx_record *record = &space->peers[coordinator].records[number];
        if (record->state != REMO__TX_RECORD_COMMITTED || record->is_unsettled)
            continue;
        record->is_unsettled = true;
        record->asks_from = 0;
        atomic_fetch_add(&space->unsettled, 1);
    }
}

bool remo__tx_resolve_all(struct remo_tx_space *space) {
    bool is_left = false;
    if (atomic_load(&space->unsettled) == 0)
        return false;
    for (uint32_t node = 0; node < space->node->size; node++)
        for (uint32_t number = 0; number < REMO__TX_COMMITS_MAX && remo__tx_has_lost(space, node); number++)
            is_left |= resolve(&space->peers[node], number);
    return is_left;
}

void remo__tx_resolve_stop(struct remo_tx_space *space) {
    for (uint32_t node = 0; node < space->node->size; node++)
        for (uint32_t number = 0; number < REMO__TX_COMMITS_MAX; number++)
            remo_rpc_cancel(&space->peers[node].records[number].call);
}
