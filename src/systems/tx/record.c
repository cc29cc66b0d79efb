/* record.c - the owner's side of transactions with changes at several owners: it prepares its part, keeps a
 * record of it, and finishes it when the coordinator tells the outcome, or resolve.c has found it out.
 * Invariant: from PREPARE to the end of the record, the items of its changes are locked or reserved. */
#include <errno.h>

#include "systems/tx/steps.h"

/* ---- messages ---- */

/* Return the bytes of a PREPARE before its request, or 0 if it is malformed. */
static size_t prefix_bytes(const struct remo__tx_prepare *header, size_t bytes) {
    size_t prefix = sizeof *header + remo__align_up((size_t)header->owners * sizeof(uint16_t), 8);
    return header->owners <= REMO_TX_ITEMS_MAX && prefix <= bytes ? prefix : 0;
}

/* Decode a PREPARE. Returns false if it is malformed. */
static bool decode(const struct remo_tx_space *space, const char *message, size_t bytes,
                   struct remo__tx_prepare *ret_header, struct remo__tx_steps *ret_steps) {
    if (bytes < sizeof *ret_header || bytes > REMO_RPC_BYTES_MAX)
        return false;
    memcpy(ret_header, message, sizeof *ret_header);
    size_t prefix = prefix_bytes(ret_header, bytes);
    if (prefix == 0 || ret_header->id.number >= REMO__TX_COMMITS_MAX)
        return false;
    for (uint32_t i = 0; i < ret_header->owners; i++) {
        uint16_t owner;
        memcpy(&owner, message + sizeof *ret_header + i * sizeof owner, sizeof owner);
        if (owner >= space->node->size)
            return false;
    }
    return remo__tx_steps_decode(space, message + prefix, bytes - prefix, ret_steps)
           && ret_steps->changes > 0;
}

uint32_t remo__tx_record_owners(const struct remo__tx_record *record, uint16_t *ret_owners) {
    struct remo__tx_prepare header;
    memcpy(&header, record->message, sizeof header);
    memcpy(ret_owners, record->message + sizeof header, header.owners * sizeof *ret_owners);
    return header.owners;
}

/* ---- records ---- */

static void set_record(struct remo_tx_space *space, struct remo__tx_record *record,
                       const struct remo__tx_id *id, uint32_t coordinator, const void *message,
                       size_t bytes) {
    record->space = space;
    record->id = *id;
    record->id.coordinator = coordinator;
    memcpy(record->message, message, bytes);
    record->message_bytes = (uint32_t)bytes;
    record->asks_from = 0;
    record->state = REMO__TX_RECORD_PREPARED;
    atomic_fetch_add(&space->prepared, 1);
}

/* The number of deletes of a group proves later that a key was absent in between. */
static uint32_t count_deletes(const struct remo__tx_steps *steps, uint64_t *ret_deletes) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < steps->count; i++)
        if (steps->step[i].op == REMO__TX_CHECK)
            ret_deletes[count++] = remo__owner_group(steps->step[i].structure, &steps->step[i].key)->deletes;
    return count;
}

static enum remo__tx_answer hold(struct remo__tx_steps *steps, struct remo__tx_conflict *ret_conflict,
                                 uint64_t *ret_deletes, uint32_t *ret_count) {
    enum remo__tx_answer answer = remo__tx_steps_check(steps, ret_conflict);
    if (answer == REMO__TX_ANSWER_DONE)
        answer = remo__tx_steps_hold(steps, true);
    if (answer == REMO__TX_ANSWER_DONE)
        *ret_count = count_deletes(steps, ret_deletes);
    remo__mapped_fence(); /* place the locks before the coordinator validates what others lock */
    return answer;
}

int remo__tx_prepare(struct remo_tx_space *space, uint32_t coordinator, const void *message, size_t bytes,
                     struct remo__tx_conflict *ret_conflict, uint64_t *ret_deletes, uint32_t *ret_count) {
    struct remo__tx_prepare header;
    struct remo__tx_steps steps;
    struct remo__tx_peer *peer = &space->peers[coordinator];
    int answer = REMO__TX_ANSWER_MALFORMED;
    if (!decode(space, message, bytes, &header, &steps))
        return answer;
    pthread_mutex_lock(&peer->mutex);
    struct remo__tx_record *record = &peer->records[header.id.number];
    if (atomic_load(&peer->is_gone) || atomic_load(&space->is_closing)) {
        answer = -ENOTCONN;
    } else if (record->state != REMO__TX_RECORD_PREPARED) {
        remo__tx_steps_lock(&steps);
        answer = hold(&steps, ret_conflict, ret_deletes, ret_count);
        remo__tx_steps_unlock(&steps);
        if (answer == REMO__TX_ANSWER_DONE)
            set_record(space, record, &header.id, coordinator, message, bytes);
    }
    pthread_mutex_unlock(&peer->mutex);
    return answer;
}

void remo__tx_record_end(struct remo__tx_record *record, bool commits) {
    struct remo__tx_prepare header;
    struct remo__tx_steps steps;
    if (decode(record->space, record->message, record->message_bytes, &header, &steps)) {
        remo__tx_steps_lock(&steps);
        remo__tx_steps_finish(&steps, commits);
        remo__mapped_fence(); /* place the changes before a caller reads what others change */
        remo__tx_steps_unlock(&steps);
        remo__tx_steps_grow(&steps);
    }
    record->state = commits ? REMO__TX_RECORD_COMMITTED : REMO__TX_RECORD_NONE;
    atomic_fetch_sub(&record->space->prepared, 1);
}

/* A FINISH that is repeated finds the transaction finished. */
static enum remo__tx_answer finish_record(struct remo__tx_record *record,
                                          const struct remo__tx_finish *finish) {
    bool is_this = record->id.sequence == finish->id.sequence;
    if (is_this && record->state == REMO__TX_RECORD_PREPARED)
        remo__tx_record_end(record, finish->commits);
    else if (finish->commits && !(is_this && record->state == REMO__TX_RECORD_COMMITTED))
        return REMO__TX_ANSWER_MALFORMED;
    return REMO__TX_ANSWER_DONE;
}

enum remo__tx_answer remo__tx_finish(struct remo_tx_space *space, uint32_t coordinator,
                                     const struct remo__tx_finish *finish) {
    struct remo__tx_peer *peer = &space->peers[coordinator];
    enum remo__tx_answer answer = REMO__TX_ANSWER_MALFORMED;
    if (finish->id.number >= REMO__TX_COMMITS_MAX)
        return answer;
    pthread_mutex_lock(&peer->mutex);
    if (!atomic_load(&peer->is_gone)) /* else resolve.c ends the record */
        answer = finish_record(&peer->records[finish->id.number], finish);
    pthread_mutex_unlock(&peer->mutex);
    return answer;
}

/* ---- handlers ---- */

int remo__tx_handle_prepare(void *ctx, const struct remo_rpc_request *request) {
    char copy[REMO_RPC_BYTES_MAX]; /* the caller could change the request in its ring */
    struct remo__tx_conflict conflict = {0};
    uint64_t deletes[REMO_TX_ITEMS_MAX];
    uint32_t count = 0;
    if (request->bytes > sizeof copy)
        return REMO__TX_ANSWER_MALFORMED;
    memcpy(copy, request->data, request->bytes);
    int answer = remo__tx_prepare(ctx, request->node, copy, request->bytes, &conflict, deletes, &count);
    if (answer == REMO__TX_ANSWER_CONFLICT)
        return remo_rpc_reply(request, answer, &conflict, sizeof conflict);
    return answer == REMO__TX_ANSWER_DONE && count > 0
               ? remo_rpc_reply(request, answer, deletes, count * sizeof deletes[0])
               : answer;
}

int remo__tx_handle_finish(void *ctx, const struct remo_rpc_request *request) {
    struct remo__tx_finish finish;
    if (request->bytes != sizeof finish)
        return REMO__TX_ANSWER_MALFORMED;
    memcpy(&finish, request->data, sizeof finish);
    return remo__tx_finish(ctx, request->node, &finish);
}
