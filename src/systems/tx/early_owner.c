/* early_owner.c - the owner's side of early locks (docs/internals/tx.md, Early locks): LOCK begins or extends
 * a record, and COMMIT ends it. Invariant: while a record is PREPARED, its message has each item that the
 * transaction has locked or reserved here, so the end of the record unlocks all of them. */
#include "systems/tx/steps.h"

/* ---- LOCK ---- */

/* Find the value of the item, if the key is present. */
static enum remo__tx_answer find(const struct remo__tx_step *step, struct remo__owner_found *found) {
    found->item = (struct remo__item_reply){.offset = step->offset, .deletes = step->group->deletes};
    found->value_bytes = 0;
    if (step->offset == REMO_STRUCTURE_NOWHERE)
        return REMO__TX_ANSWER_DONE;
    return remo__owner_read(step->structure, &step->key, found) == REMO__ANSWER_DONE
               ? REMO__TX_ANSWER_DONE
               : REMO__TX_ANSWER_MALFORMED;
}

static enum remo__tx_answer lock(struct remo__tx_steps *steps, void *ctx) {
    struct remo__tx_locked *locked = ctx;
    if (steps->count != 1 || steps->step[0].op != REMO__TX_KEEP)
        return REMO__TX_ANSWER_MALFORMED;
    enum remo__tx_answer answer = remo__tx_steps_check(steps, &locked->conflict);
    if (answer == REMO__TX_ANSWER_DONE)
        answer = find(&steps->step[0], &locked->found);
    if (answer == REMO__TX_ANSWER_DONE)
        answer = remo__tx_steps_hold(steps, true);
    remo__mapped_fence(); /* place the lock before the coordinator validates what others lock */
    return answer;
}

/* Decode the message of a record, and the header of its request. Returns false if the memory is damaged: it
 * was decoded when the record began. */
static bool decode_held(const struct remo__tx_record *record, struct remo__tx_part *ret_held,
                        struct remo__tx_request *ret_header) {
    if (!remo__tx_decode(record->space, record->id.coordinator, record->message, record->message_bytes,
                         ret_held)
        || ret_held->bytes < sizeof *ret_header)
        return false;
    memcpy(ret_header, ret_held->request, sizeof *ret_header);
    return true;
}

/* Return whether a LOCK belongs to the record, and there is room for its item. */
static bool can_extend(const struct remo__tx_record *record, const struct remo__tx_part *part) {
    struct remo__tx_part held;
    struct remo__tx_request header;
    return record->is_early && record->id.sequence == part->header.id.sequence
           && part->bytes <= REMO_RPC_BYTES_MAX - record->message_bytes && decode_held(record, &held, &header)
           && header.items < REMO__TX_ITEMS_MAX;
}

/* Add the item of a LOCK to a record that can be extended. */
static void extend(struct remo__tx_record *record, const struct remo__tx_part *part) {
    struct remo__tx_part held;
    struct remo__tx_request header;
    const size_t item_bytes = part->bytes - sizeof header;
    if (!decode_held(record, &held, &header))
        return;
    header.items++;
    memcpy(record->message + (held.request - record->message), &header, sizeof header);
    memcpy(record->message + record->message_bytes, part->request + sizeof header, item_bytes);
    record->message_bytes += (uint32_t)item_bytes;
}

static void begin(struct remo_tx_space *space, struct remo__tx_record *record, uint32_t coordinator,
                  const struct remo__tx_part *part, const void *message, size_t bytes) {
    remo__tx_record_begin(space, record, &part->header.id, coordinator, message, bytes);
    record->is_early = true;
}

int remo__tx_execute_lock(struct remo_tx_space *space, uint32_t coordinator, const void *message,
                          size_t bytes, struct remo__tx_locked *ret_locked) {
    struct remo__tx_part part;
    struct remo__tx_steps steps;
    struct remo__tx_peer *peer = &space->peers[coordinator];
    if (!remo__tx_decode(space, coordinator, message, bytes, &part) || part.header.parts != 0)
        return REMO__TX_ANSWER_MALFORMED;
    pthread_mutex_lock(&peer->mutex);
    struct remo__tx_record *record = &peer->records[part.header.id.number];
    bool extends = record->state == REMO__TX_RECORD_PREPARED;
    int answer = remo__tx_record_refuse(space, coordinator, record, &ret_locked->conflict);
    if (answer == REMO__TX_ANSWER_DONE)
        answer = extends && !can_extend(record, &part)
                     ? REMO__TX_ANSWER_MALFORMED
                     : (int)remo__tx_steps_run(space, part.request, part.bytes, lock, ret_locked, &steps);
    if (answer == REMO__TX_ANSWER_DONE && extends)
        extend(record, &part);
    else if (answer == REMO__TX_ANSWER_DONE)
        begin(space, record, coordinator, &part, message, bytes);
    pthread_mutex_unlock(&peer->mutex);
    if (answer == REMO__TX_ANSWER_DONE)
        remo__tx_steps_grow(&steps);
    return answer;
}

/* ---- COMMIT ---- */

static enum remo__tx_answer commit(struct remo__tx_record *record, const struct remo__tx_part *part,
                                   const void *message, size_t bytes) {
    bool is_this = record->id.sequence == part->header.id.sequence;
    if (is_this && record->state == REMO__TX_RECORD_COMMITTED)
        return REMO__TX_ANSWER_DONE;
    return record->state == REMO__TX_RECORD_PREPARED && record->is_early
               ? remo__tx_record_commit(record, message, bytes)
               : REMO__TX_ANSWER_MALFORMED;
}

enum remo__tx_answer remo__tx_execute_commit(struct remo_tx_space *space, uint32_t coordinator,
                                             const void *message, size_t bytes) {
    struct remo__tx_part part;
    struct remo__tx_peer *peer = &space->peers[coordinator];
    enum remo__tx_answer answer = REMO__TX_ANSWER_MALFORMED;
    if (!remo__tx_decode(space, coordinator, message, bytes, &part))
        return answer;
    pthread_mutex_lock(&peer->mutex);
    if (!atomic_load(&peer->is_cut_off)) /* else resolve.c ends the record */
        answer = commit(&peer->records[part.header.id.number], &part, message, bytes);
    pthread_mutex_unlock(&peer->mutex);
    remo__tx_report(space);
    return answer;
}

/* ---- handlers ---- */

int remo__tx_handle_lock(void *ctx, const struct remo_rpc_request *request) {
    char copy[REMO_RPC_BYTES_MAX]; /* the caller could change the request in its ring */
    char reply[sizeof(struct remo__item_reply) + REMO_ITEM_BYTES_MAX];
    struct remo__tx_locked locked = {
        .found = {.value = reply + sizeof locked.found.item, .cap = REMO_ITEM_BYTES_MAX}};
    if (request->bytes > sizeof copy)
        return REMO__TX_ANSWER_MALFORMED;
    memcpy(copy, request->data, request->bytes);
    int answer = remo__tx_execute_lock(ctx, request->node, copy, request->bytes, &locked);
    if (answer == REMO__TX_ANSWER_CONFLICT)
        return remo_rpc_reply(request, answer, &locked.conflict, sizeof locked.conflict);
    if (answer != REMO__TX_ANSWER_DONE)
        return answer;
    memcpy(reply, &locked.found.item, sizeof locked.found.item);
    return remo_rpc_reply(request, answer, reply, sizeof locked.found.item + locked.found.value_bytes);
}

int remo__tx_handle_commit(void *ctx, const struct remo_rpc_request *request) {
    char copy[REMO_RPC_BYTES_MAX]; /* as above */
    if (request->bytes > sizeof copy)
        return REMO__TX_ANSWER_MALFORMED;
    memcpy(copy, request->data, request->bytes);
    return remo__tx_execute_commit(ctx, request->node, copy, request->bytes);
}
