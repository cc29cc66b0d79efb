/* record.c - the owner's side of transactions with changes and several owners: it prepares its part, keeps a
 * record of it, and finishes it when the coordinator sends the outcome, or resolve.c has found it.
 * Invariant: from PREPARE to the end of the record, the items of its changes are locked or reserved. */
#include <errno.h>

#include "systems/tx/steps.h"

/* ---- messages ---- */

/* Return the bytes of a message before its requests, or 0 if it is malformed. */
static size_t prefix_bytes(const struct remo__tx_prepare *header, size_t bytes) {
    size_t prefix = sizeof *header + remo__align_up((size_t)header->owners * sizeof(uint16_t), 8)
                    + remo__align_up((size_t)header->parts * sizeof(uint16_t), 8);
    bool is_valid = header->owners <= REMO__TX_ITEMS_MAX && prefix <= bytes
                    && (header->parts == 0 || header->parts == header->owners);
    return is_valid ? prefix : 0;
}

/* Return whether the coordinator and the owners are different participants of the space, and this node is
 * one of them. *ret_place: its place among the owners. A node that is no participant is never cut off, so the
 * record would never end. */
static bool are_participants(const struct remo_tx_space *space, uint32_t coordinator, const char *ranks,
                             uint32_t count, uint32_t *ret_place) {
    const struct remo_nodeset *participants = remo_channel_participants(space->channel);
    struct remo_nodeset others = *participants; /* that no rank has named yet */
    uint32_t own = coordinator == space->node->rank;
    *ret_place = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint16_t owner;
        memcpy(&owner, ranks + i * sizeof owner, sizeof owner);
        if (owner == coordinator || !remo_nodeset_has(&others, owner))
            return false;
        remo_nodeset_remove(&others, owner);
        own += owner == space->node->rank;
        *ret_place = owner == space->node->rank ? i : *ret_place;
    }
    return own == 1 && remo_nodeset_has(participants, coordinator);
}

/* Find the request of the owner at `place` in a COMMIT. `sizes` precede the requests. */
static bool find_part(const char *sizes, uint32_t place, const char *end, struct remo__tx_part *part) {
    for (uint32_t i = 0; i <= place; i++) {
        uint16_t size;
        memcpy(&size, sizes + i * sizeof size, sizeof size);
        part->request += i == 0 ? 0 : part->bytes;
        part->bytes = size;
        if (size > (size_t)(end - part->request))
            return false;
    }
    return true;
}

bool remo__tx_decode(const struct remo_tx_space *space, uint32_t coordinator, const char *message,
                     size_t bytes, struct remo__tx_part *ret_part) {
    struct remo__tx_prepare *header = &ret_part->header;
    uint32_t place;
    if (bytes < sizeof *header || bytes > REMO_RPC_BYTES_MAX)
        return false;
    memcpy(header, message, sizeof *header);
    size_t prefix = prefix_bytes(header, bytes);
    if (prefix == 0 || header->id.number >= REMO__TX_COMMITS_MAX
        || !are_participants(space, coordinator, message + sizeof *header, header->owners, &place))
        return false;
    ret_part->request = message + prefix;
    ret_part->bytes = bytes - prefix;
    const char *sizes = message + sizeof *header + remo__align_up(header->owners * sizeof(uint16_t), 8);
    return header->parts == 0 || find_part(sizes, place, message + bytes, ret_part);
}

/* Append all other nodes of the space. */
static uint32_t append_others(const struct remo__tx_record *record, uint16_t *owners, uint32_t count) {
    const struct remo_tx_space *space = record->space;
    struct remo_nodeset others = *remo_channel_participants(space->channel);
    remo_nodeset_remove(&others, record->id.coordinator);
    for (uint32_t i = 0; i < count; i++)
        remo_nodeset_remove(&others, owners[i]);
    for (uint32_t node = 0; node < space->node->size; node++)
        if (remo_nodeset_has(&others, node))
            owners[count++] = (uint16_t)node;
    return count;
}

uint32_t remo__tx_record_owners(const struct remo__tx_record *record, uint16_t *ret_owners) {
    struct remo__tx_prepare header;
    memcpy(&header, record->message, sizeof header);
    memcpy(ret_owners, record->message + sizeof header, header.owners * sizeof *ret_owners);
    bool has_all = !record->is_early || record->state == REMO__TX_RECORD_COMMITTED;
    return has_all ? header.owners : append_others(record, ret_owners, header.owners);
}

/* ---- records ---- */

void remo__tx_record_begin(struct remo_tx_space *space, struct remo__tx_record *record,
                           const struct remo__tx_id *id, uint32_t coordinator, const void *message,
                           size_t bytes) {
    record->space = space;
    record->id = *id;
    record->id.coordinator = coordinator;
    memcpy(record->message, message, bytes);
    record->message_bytes = (uint32_t)bytes;
    record->asks_from = 0;
    record->asks_at_ns = 0;
    record->is_early = false;
    record->state = REMO__TX_RECORD_PREPARED;
    atomic_fetch_add(&space->unsettled, 1);
}

/* The number of deletes of a group proves later that a key was absent in between. */
static uint32_t count_deletes(const struct remo__tx_steps *steps, uint64_t *ret_deletes) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < steps->count; i++)
        if (steps->step[i].op == REMO__TX_CHECK)
            ret_deletes[count++] = remo__owner_group(steps->step[i].structure, &steps->step[i].key)->deletes;
    return count;
}

/* The result of a PREPARE. */
struct prepared {
    struct remo__tx_conflict *conflict;
    uint64_t *deletes;
    uint32_t *count;
};

static enum remo__tx_answer hold(struct remo__tx_steps *steps, void *ctx) {
    struct prepared *prepared = ctx;
    enum remo__tx_answer answer =
        steps->changes > 0 ? remo__tx_steps_check(steps, prepared->conflict) : REMO__TX_ANSWER_MALFORMED;
    if (answer == REMO__TX_ANSWER_DONE)
        answer = remo__tx_steps_hold(steps, true);
    if (answer == REMO__TX_ANSWER_DONE)
        *prepared->count = count_deletes(steps, prepared->deletes);
    remo__mapped_fence(); /* place the locks before the coordinator validates what others lock */
    return answer;
}

int remo__tx_record_refuse(const struct remo_tx_space *space, uint32_t coordinator,
                           const struct remo__tx_record *record, struct remo__tx_conflict *ret_conflict) {
    if (atomic_load(&space->peers[coordinator].is_cut_off) || atomic_load(&space->is_closing))
        return -ENOTCONN;
    if (!record->is_unsettled && !record->is_asking)
        return REMO__TX_ANSWER_DONE;
    *ret_conflict = (struct remo__tx_conflict){.kind = REMO_TX_LOCKED}; /* of an earlier endpoint */
    return REMO__TX_ANSWER_CONFLICT;
}

int remo__tx_prepare(struct remo_tx_space *space, uint32_t coordinator, const void *message, size_t bytes,
                     struct remo__tx_conflict *ret_conflict, uint64_t *ret_deletes, uint32_t *ret_count) {
    struct remo__tx_part part;
    struct remo__tx_steps steps;
    struct remo__tx_peer *peer = &space->peers[coordinator];
    struct prepared prepared = {ret_conflict, ret_deletes, ret_count};
    if (!remo__tx_decode(space, coordinator, message, bytes, &part))
        return REMO__TX_ANSWER_MALFORMED;
    pthread_mutex_lock(&peer->mutex);
    struct remo__tx_record *record = &peer->records[part.header.id.number];
    int answer = remo__tx_record_refuse(space, coordinator, record, ret_conflict);
    if (answer == REMO__TX_ANSWER_DONE)
        answer = record->state == REMO__TX_RECORD_PREPARED
                     ? REMO__TX_ANSWER_MALFORMED
                     : (int)remo__tx_steps_run(space, part.request, part.bytes, hold, &prepared, &steps);
    if (answer == REMO__TX_ANSWER_DONE)
        remo__tx_record_begin(space, record, &part.header.id, coordinator, message, bytes);
    pthread_mutex_unlock(&peer->mutex);
    return answer;
}

static enum remo__tx_answer finish(struct remo__tx_steps *steps, void *ctx) {
    const bool *commits = ctx;
    remo__tx_steps_finish(steps, *commits);
    remo__mapped_fence(); /* place the changes before a caller reads what others change */
    return REMO__TX_ANSWER_DONE;
}

/* The outcome of the record has been applied. */
static void set_outcome(struct remo__tx_record *record, bool commits) {
    record->state = commits ? REMO__TX_RECORD_COMMITTED : REMO__TX_RECORD_NONE;
    record->asks_from = 0;
    record->is_unsettled = commits && atomic_load(&record->space->peers[record->id.coordinator].is_cut_off);
    if (!record->is_unsettled)
        atomic_fetch_sub(&record->space->unsettled, 1);
}

void remo__tx_record_end(struct remo__tx_record *record, bool commits) {
    struct remo__tx_part part;
    struct remo__tx_steps steps;
    if (remo__tx_decode(record->space, record->id.coordinator, record->message, record->message_bytes, &part)
        && remo__tx_steps_run(record->space, part.request, part.bytes, finish, &commits, &steps)
               == REMO__TX_ANSWER_DONE)
        remo__tx_steps_grow(&steps);
    set_outcome(record, commits);
}

/* Return the number of items of a request. */
static uint32_t count_items(const struct remo__tx_part *part) {
    struct remo__tx_request header = {0};
    memcpy(&header, part->request, remo__min(sizeof header, part->bytes));
    return header.items;
}

/* A COMMIT from damaged memory changes no item that is not locked. */
static enum remo__tx_answer apply(struct remo__tx_steps *steps, void *ctx) {
    bool commits = true;
    (void)ctx;
    return remo__tx_steps_are_held(steps) ? finish(steps, &commits) : REMO__TX_ANSWER_MALFORMED;
}

enum remo__tx_answer remo__tx_record_commit(struct remo__tx_record *record, const void *message,
                                            size_t bytes) {
    struct remo__tx_part held, part;
    struct remo__tx_steps steps;
    if (!remo__tx_decode(record->space, record->id.coordinator, record->message, record->message_bytes, &held)
        || !remo__tx_decode(record->space, record->id.coordinator, message, bytes, &part)
        || part.header.id.sequence != record->id.sequence || count_items(&held) != count_items(&part)
        || remo__tx_steps_run(record->space, part.request, part.bytes, apply, NULL, &steps)
               != REMO__TX_ANSWER_DONE)
        return REMO__TX_ANSWER_MALFORMED;
    memcpy(record->message, message, bytes);
    record->message_bytes = (uint32_t)bytes;
    set_outcome(record, true);
    return REMO__TX_ANSWER_DONE;
}

/* A FINISH that is repeated finds the transaction finished. */
static enum remo__tx_answer finish_record(struct remo__tx_record *record,
                                          const struct remo__tx_finish *message) {
    bool is_this = record->id.sequence == message->id.sequence;
    if (is_this && record->state == REMO__TX_RECORD_PREPARED)
        remo__tx_record_end(record, message->commits);
    else if (message->commits && !(is_this && record->state == REMO__TX_RECORD_COMMITTED))
        return REMO__TX_ANSWER_MALFORMED;
    return REMO__TX_ANSWER_DONE;
}

enum remo__tx_answer remo__tx_finish(struct remo_tx_space *space, uint32_t coordinator,
                                     const struct remo__tx_finish *message) {
    struct remo__tx_peer *peer = &space->peers[coordinator];
    enum remo__tx_answer answer = REMO__TX_ANSWER_MALFORMED;
    if (message->id.number >= REMO__TX_COMMITS_MAX)
        return answer;
    pthread_mutex_lock(&peer->mutex);
    if (!atomic_load(&peer->is_cut_off)) /* else resolve.c ends the record */
        answer = finish_record(&peer->records[message->id.number], message);
    pthread_mutex_unlock(&peer->mutex);
    remo__tx_report(space);
    return answer;
}

/* A node that never connected is not cut off when it departs. */
bool remo__tx_has_lost(const struct remo_tx_space *space, uint32_t node) {
    const struct remo__tx_peer *peer = &space->peers[node];
    return atomic_load(&peer->is_cut_off)
           || (!atomic_load(&peer->was_connected)
               && remo_channel_peer(space->channel, node) >= REMO_CHANNEL_LEFT);
}

/* ---- handlers ---- */

int remo__tx_handle_prepare(void *ctx, const struct remo_rpc_request *request) {
    char copy[REMO_RPC_BYTES_MAX]; /* the caller could change the request in its ring */
    struct remo__tx_conflict conflict = {0};
    uint64_t deletes[REMO__TX_ITEMS_MAX];
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
    struct remo__tx_finish message;
    if (request->bytes != sizeof message)
        return REMO__TX_ANSWER_MALFORMED;
    memcpy(&message, request->data, sizeof message);
    return remo__tx_finish(ctx, request->node, &message);
}

int remo__tx_handle_confirm(void *ctx, const struct remo_rpc_request *request) {
    const struct remo_tx_space *space = ctx;
    struct remo__tx_loss message;
    if (request->bytes != sizeof message)
        return REMO__TX_ANSWER_MALFORMED;
    memcpy(&message, request->data, sizeof message);
    if (message.node >= space->node->size)
        return REMO__TX_ANSWER_MALFORMED;
    return remo__tx_has_lost(space, message.node) ? REMO__TX_ANSWER_DONE : REMO__TX_ANSWER_AGAIN;
}
