/* tracker.c - the trackers of a map: each node sends records of its inserts and deletes to the indices of
 * all participants, by leaf calls of a service. Invariant: a receiver replies after it has applied the
 * records of a message; a message counts as acknowledged only after all earlier ones. The protocol:
 * docs/internals/kv.md. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "systems/kv/kv.h"

#define HANDLER 0u /* number of the handler that applies records */

/* ---- records ---- */

static uint64_t record_kind(const struct remo__kv_record *record) {
    return record->entry >> 48;
}

/* Return the entry that the record adds or removes. */
static uint64_t record_entry(const struct remo__kv_record *record) {
    return (record->entry & ~(UINT64_C(0xffff) << 48)) | (uint64_t)remo__kv_fingerprint(record->hash) << 48;
}

/* Return whether the record, which a peer wrote, is valid: the slot exists, and a node adds only its own
 * slots. */
static bool is_valid_record(const struct remo_kv *kv, const struct remo__kv_record *record, uint32_t sender) {
    uint32_t node = remo__kv_entry_node(record->entry), slot = remo__kv_entry_slot(record->entry);
    if (slot >= kv->slots_per_node || !remo_nodeset_has(remo_channel_participants(kv->channel), node))
        return false;
    return record_kind(record) == REMO__KV_RECORD_REMOVE
           || (record_kind(record) == REMO__KV_RECORD_ADD && node == sender);
}

static void apply_record(struct remo_kv *kv, const struct remo__kv_record *record, uint32_t sender) {
    uint64_t entry = record_entry(record);
    if (!is_valid_record(kv, record, sender)) {
        remo__log(&kv->node->log, REMO_LOG_ERROR, "map %s: dropped an invalid record from node %u",
                  remo_channel_name(kv->channel), sender);
    } else if (record_kind(record) == REMO__KV_RECORD_ADD) {
        if (remo__kv_index_add(&kv->index, record->hash, entry) != 0)
            remo__log(&kv->node->log, REMO_LOG_ERROR,
                      "map %s: the index is full; gets on this node do not find a key of node %u",
                      remo_channel_name(kv->channel), sender);
    } else if (remo__kv_index_remove(&kv->index, record->hash, entry)
               && remo__kv_entry_node(entry) == kv->rank) {
        remo__kv_pool_give(&kv->pool, remo__kv_entry_slot(entry));
    }
}

/* Acquire the index mutex. Blocks the thread, not only its task, which may hold send_mutex or run a handler:
 * other threads would wait for a task that does not run. The holder neither waits nor parks. */
static void lock_index(struct remo_kv *kv) {
    if (remo__likely(remo__mutex_try_lock(&kv->index_mutex)))
        return;
    struct remo__scheduler *scheduler = remo__scheduler;
    remo__scheduler = NULL;
    (void)remo__mutex_lock(kv->node, &kv->index_mutex, REMO_FOREVER);
    remo__scheduler = scheduler;
}

static void apply_records(struct remo_kv *kv, const struct remo__kv_record *records, uint32_t count,
                          uint32_t sender) {
    for (uint32_t i = 0; i < count; i++)
        __builtin_prefetch(&kv->index.lines[remo__kv_index_line_of(&kv->index, records[i].hash)], 1);
    lock_index(kv);
    for (uint32_t i = 0; i < count; i++)
        apply_record(kv, &records[i], sender);
    remo__mutex_unlock(kv->node, &kv->index_mutex);
}

/* The handler. It is SHORT: the index mutex is held only for sections that do not wait. The records are
 * copied before they are checked, because the sender can write them. */
static int on_message(void *ctx, const struct remo_rpc_request *request) {
    struct remo__kv_record records[REMO__KV_BATCH_MAX];
    struct remo_kv *kv = ctx;
    if (request->bytes > sizeof records)
        return -EMSGSIZE;
    if (!remo_nodeset_has(remo_channel_participants(kv->channel), request->node))
        return -EINVAL;
    remo__copy_from(records, request->data, request->bytes);
    apply_records(kv, records, (uint32_t)(request->bytes / sizeof records[0]), request->node);
    return 0;
}

/* ---- messages in flight ---- */

/* Return the calls of message `number`, one for each receiver. */
static struct remo_rpc_op *calls_of(const struct remo_kv *kv, uint64_t number) {
    return kv->calls + number % kv->messages_max * kv->receiver_count;
}

/* Check all calls of a message. Returns the number of those that have not ended. */
static uint32_t check_message(const struct remo_kv *kv, uint64_t number, bool *ret_is_queued) {
    struct remo_rpc_op *calls = calls_of(kv, number);
    uint32_t count = 0;
    for (uint32_t i = 0; i < kv->receiver_count; i++) {
        bool has_ended = remo__rpc_leaf_has_ended(&calls[i]);
        count += !has_ended;
        *ret_is_queued |= !has_ended && remo__rpc_leaf_is_queued(&calls[i]);
    }
    return count;
}

/* Find the messages that have ended at all receivers. The others are checked only if a call waits for a reply
 * slot, which a later message may have, or if `all` are to be checked. send_mutex is held. */
static void check_messages(struct remo_kv *kv, bool all) {
    uint64_t acked = atomic_load_explicit(&kv->acked_number, memory_order_relaxed);
    bool is_queued = all;
    while (acked < kv->sent_number && check_message(kv, acked + 1, &is_queued) == 0)
        acked++;
    atomic_store_explicit(&kv->acked_number, acked, memory_order_release);
    for (uint64_t number = acked + 2; is_queued && number <= kv->sent_number; number++)
        (void)check_message(kv, number, &is_queued);
}

/* ---- open ---- */

/* Make the messages, and their calls. */
static int open_messages(struct remo_kv *kv) {
    const struct remo_nodeset *participants = remo_channel_participants(kv->channel);
    kv->receiver_count = remo__nodeset_count(participants) - 1;
    size_t calls_count = (size_t)kv->messages_max * kv->receiver_count;
    kv->messages = calloc(kv->messages_max, sizeof *kv->messages);
    kv->calls = calloc(remo__max(calls_count, 1), sizeof *kv->calls);
    if (!kv->messages || !kv->calls)
        return remo__fail(-ENOMEM, "cannot open the map: no memory for messages to %u nodes",
                          kv->receiver_count);
    struct remo_rpc_op *call = kv->calls;
    for (uint32_t i = 0; i < kv->messages_max; i++)
        for (uint32_t node = remo__nodeset_next(participants, 0); node < kv->node->size;
             node = remo__nodeset_next(participants, node + 1))
            if (node != kv->rank)
                *call++ =
                    (struct remo_rpc_op){.node = node, .number = HANDLER, .request = kv->messages[i].records};
    return 0;
}

/* ---- sending ---- */

void remo__kv_defer_record(struct remo_kv *kv, const struct remo__kv_record *record) {
    (void)remo__mutex_lock(kv->node, &kv->send_mutex, REMO_FOREVER);
    bool has_room = kv->deferred_count < REMO__KV_DEFERRED_MAX;
    if (has_room)
        kv->deferred[kv->deferred_count++] = *record;
    remo__mutex_unlock(kv->node, &kv->send_mutex);
    remo__request_sweeps(kv->node); /* one of them sends the record, if no later message does */
    if (!has_room)
        remo__log(&kv->node->log, REMO_LOG_WARNING,
                  "map %s: dropped the removal of a key: no message is free, because a peer does not reply; "
                  "the slot of the key stays in use until its node needs a free slot",
                  remo_channel_name(kv->channel));
}

/* Fill a message with deferred records, and with as many of `records` as fit. Returns the number of these. */
static uint32_t fill_message(struct remo_kv *kv, struct remo__kv_message *message,
                             const struct remo__kv_record *records, uint32_t count) {
    uint32_t deferred_count = remo__min(kv->deferred_count, REMO__KV_BATCH_MAX / 2);
    count = remo__min(count, REMO__KV_BATCH_MAX - deferred_count);
    memcpy(message->records, kv->deferred, deferred_count * sizeof records[0]);
    memcpy(message->records + deferred_count, records, count * sizeof records[0]);
    message->count = deferred_count + count;
    kv->deferred_count -= deferred_count;
    memmove(kv->deferred, kv->deferred + deferred_count, kv->deferred_count * sizeof kv->deferred[0]);
    return count;
}

/* Check that all participants have opened the map, or have departed.
 * Errors: -ETIMEDOUT (not yet; without a sentence), -EPROTO. */
static int check_opened(struct remo_kv *kv) {
    for (uint32_t i = 0; !kv->all_opened && i < kv->receiver_count; i++) {
        int rc = remo__rpc_leaf_is_ready(kv->trackers, kv->calls[i].node);
        if (rc <= 0)
            return rc == 0 ? -ETIMEDOUT : rc;
    }
    kv->all_opened = true;
    return 0;
}

/* Return 0 if a message is free. Replies are read here although a message may be free: until then they keep
 * slots, of which all maps together have few for each node. send_mutex is held.
 * Errors: -ETIMEDOUT (without a sentence), -EPROTO. */
static int make_room(struct remo_kv *kv) {
    int rc = remo__likely(kv->all_opened) ? 0 : check_opened(kv);
    if (rc == 0 && kv->sent_number != atomic_load(&kv->acked_number)) {
        check_messages(kv, false);
        if (kv->sent_number - atomic_load(&kv->acked_number) == kv->messages_max)
            rc = -ETIMEDOUT;
    }
    return rc;
}

/* Start the calls of the next message. A receiver to which no call can start has departed. */
static void send_message(struct remo_kv *kv, const struct remo__kv_message *message) {
    struct remo_rpc_op *calls = calls_of(kv, ++kv->sent_number);
    struct remo__last_error discarded, *before = remo__errors_discard(&discarded);
    for (uint32_t i = 0; i < kv->receiver_count; i++) {
        calls[i].request_bytes = message->count * sizeof message->records[0];
        (void)remo__rpc_start_leaf(kv->trackers, &calls[i]);
    }
    remo__errors_restore(before);
}

/* Send the next message. *ret_sent_count of `records` are in it. send_mutex is held.
 * Errors: those of make_room. */
static int send_next(struct remo_kv *kv, const struct remo__kv_record *records, uint32_t count,
                     uint32_t *ret_sent_count) {
    int rc = make_room(kv);
    if (rc != 0)
        return rc;
    struct remo__kv_message *message = &kv->messages[(kv->sent_number + 1) % kv->messages_max];
    *ret_sent_count = fill_message(kv, message, records, count);
    send_message(kv, message);
    apply_records(kv, message->records, message->count, kv->rank); /* before the message is used again */
    return 0;
}

void remo__kv_send_deferred(struct remo_kv *kv) {
    uint32_t none;
    while (kv->deferred_count > 0 && send_next(kv, kv->deferred, 0, &none) == 0)
        remo__request_sweeps(kv->node);
}

int remo__kv_send_records(struct remo_kv *kv, const struct remo__kv_record *records, uint32_t count,
                          uint32_t *ret_sent_count, uint64_t *ret_number) {
    (void)remo__mutex_lock(kv->node, &kv->send_mutex, REMO_FOREVER);
    int rc = send_next(kv, records, count, ret_sent_count);
    if (rc == 0)
        *ret_number = kv->sent_number;
    remo__mutex_unlock(kv->node, &kv->send_mutex);
    if (rc == 0 && kv->receiver_count > 0)
        remo__request_sweeps(kv->node);
    return rc;
}

/* Remove an entry of this node, and give back its slot. Returns whether the entry was there. */
static bool free_slot(struct remo_kv *kv, uint64_t hash, uint64_t entry) {
    lock_index(kv);
    bool was_there = remo__kv_index_remove(&kv->index, hash, entry);
    if (was_there)
        remo__kv_pool_give(&kv->pool, remo__kv_entry_slot(entry));
    remo__mutex_unlock(kv->node, &kv->index_mutex);
    return was_there;
}

bool remo__kv_free_stale(struct remo_kv *kv, uint64_t hash, uint64_t entry) {
    const struct remo__kv_record record = {
        .hash = hash, .entry = (entry & ~(UINT64_C(0xffff) << 48)) | REMO__KV_RECORD_REMOVE << 48};
    if (kv->deferred_count == REMO__KV_DEFERRED_MAX || !free_slot(kv, hash, entry))
        return false;
    kv->deferred[kv->deferred_count++] = record;
    remo__request_sweeps(kv->node);
    return true;
}

bool remo__kv_is_acked(struct remo_kv *kv, struct remo__kv_thread *mine, uint64_t number) {
    if (number <= atomic_load_explicit(&kv->acked_number, memory_order_acquire))
        return true;
    if (mine->is_ack_missing)
        return false;
    (void)remo__mutex_lock(kv->node, &kv->send_mutex, REMO_FOREVER);
    check_messages(kv, false);
    remo__mutex_unlock(kv->node, &kv->send_mutex);
    mine->is_ack_missing = number > atomic_load_explicit(&kv->acked_number, memory_order_relaxed);
    return !mine->is_ack_missing;
}

/* ---- sweeps ---- */

/* After a delete, or an insert that has timed out, a thread perhaps never polls again. So the service thread,
 * which must not wait, frees the reply slots of its messages, and sends the deferred records. */
static bool on_swept(struct remo__thread_observer *observer) {
    struct remo_kv *kv = remo__container_of(observer, struct remo_kv, observer);
    if (!remo__mutex_try_lock(&kv->send_mutex))
        return true;
    check_messages(kv, true);
    remo__kv_send_deferred(kv);
    bool more = kv->deferred_count > 0
                || atomic_load_explicit(&kv->acked_number, memory_order_relaxed) < kv->sent_number;
    remo__mutex_unlock(kv->node, &kv->send_mutex);
    return more;
}

int remo__kv_trackers_open(struct remo_kv *kv) {
    const struct remo_rpc_handler handler = {.number = HANDLER, .run = on_message, .ctx = kv};
    const struct remo_rpc_options options = {
        .participants = *remo_channel_participants(kv->channel), .handlers = &handler, .handler_count = 1};
    int rc = open_messages(kv);
    if (rc == 0)
        rc = remo_rpc_open(kv->channel, "trackers", &options, &kv->trackers);
    if (rc != 0)
        return rc;
    kv->observer.swept = on_swept;
    remo__thread_observe(kv->node, &kv->observer);
    return 0;
}

/* ---- close ---- */

/* An attempt: no record is deferred, and no call of a message is queued. */
static int is_all_sent(void *ctx) {
    struct remo_kv *kv = ctx;
    bool is_queued = false;
    (void)remo__mutex_lock(kv->node, &kv->send_mutex, REMO_FOREVER);
    remo__kv_send_deferred(kv);
    for (uint64_t number = atomic_load(&kv->acked_number) + 1; number <= kv->sent_number; number++)
        (void)check_message(kv, number, &is_queued);
    bool is_over = !is_queued && kv->deferred_count == 0;
    remo__mutex_unlock(kv->node, &kv->send_mutex);
    if (!is_over)
        remo__rpc_leaf_serve(kv->trackers);
    return is_over;
}

void remo__kv_trackers_close(struct remo_kv *kv) {
    if (kv->trackers) {
        (void)remo__wait_attempt(kv->node, is_all_sent, kv, remo__deadline(kv->node->op_timeout_ns));
        remo__thread_unobserve(kv->node, &kv->observer);
        for (uint32_t i = 0; i < kv->messages_max * kv->receiver_count; i++)
            remo_rpc_cancel(&kv->calls[i]);
        remo_rpc_close(kv->trackers);
    }
    free(kv->calls);
    free(kv->messages);
    kv->trackers = NULL;
    kv->calls = NULL;
    kv->messages = NULL;
}
