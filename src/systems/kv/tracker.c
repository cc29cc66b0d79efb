/* tracker.c - the trackers of a map: each node sends records of its inserts and deletes to the indices of
 * all participants through one ring buffer. Invariant: a receiver acknowledges a message after it has applied
 * its records. The protocol: docs/internals/kv.md. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "systems/kv/kv.h"

#define SENDERS_PER_POLL 8u
#define MESSAGES_PER_POLL 4u /* of a sender: a poll ends although peers send on */

/* ---- receiving ---- */

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

/* The index mutex is held. */
static void apply_locked(struct remo_kv *kv, const struct remo__kv_record *records, uint32_t count,
                         uint32_t sender) {
    for (uint32_t i = 0; i < count; i++)
        apply_record(kv, &records[i], sender);
}

static void apply_records(struct remo_kv *kv, const struct remo__kv_record *records, uint32_t count,
                          uint32_t sender) {
    for (uint32_t i = 0; i < count; i++)
        __builtin_prefetch(&kv->index.lines[remo__kv_index_line_of(&kv->index, records[i].hash)], 1);
    (void)remo__mutex_lock(kv->node, &kv->index_mutex, REMO_FOREVER);
    apply_locked(kv, records, count, sender);
    remo__mutex_unlock(kv->node, &kv->index_mutex);
}

/* Receive a message, without blocking; return whether there was one. The caller holds receive_mutex, and the
 * index mutex if `is_locked`. The message is acknowledged as soon as it is applied. Otherwise the ring, which
 * acknowledges every half of its capacity by itself, could acknowledge records before they are applied. */
static bool receive_message(struct remo__kv_tracker *tracker, bool is_locked) {
    struct remo__kv_record records[REMO__KV_BATCH_MAX];
    size_t bytes;
    int rc = remo_ringbuffer_receive(tracker->ring, records, sizeof records, &bytes, 0);
    if (rc == -EMSGSIZE)
        remo__log(&tracker->kv->node->log, REMO_LOG_ERROR,
                  "map %s: node %u sent a message that is too long; its records are no longer applied",
                  remo_channel_name(tracker->kv->channel), tracker->sender);
    if (rc != 0)
        return false;
    (is_locked ? apply_locked : apply_records)(tracker->kv, records, (uint32_t)(bytes / sizeof records[0]),
                                               tracker->sender);
    (void)remo_ringbuffer_acknowledge(tracker->ring);
    return true;
}

/* Do the same in a task, which must not park while it holds receive_mutex: its thread may then compute, and
 * the service thread would wait. So the index mutex must be free. */
static bool receive_in_task(struct remo__kv_tracker *tracker) {
    struct remo_kv *kv = tracker->kv;
    const void *message;
    size_t bytes;
    if (remo_ringbuffer_peek(tracker->ring, &message, &bytes, 0) != 0
        || !remo__mutex_try_lock(&kv->index_mutex))
        return false;
    bool has_received = receive_message(tracker, true);
    remo__mutex_unlock(kv->node, &kv->index_mutex);
    return has_received;
}

/* Runs in the service thread. It receives all messages that had arrived before the call, but at most as many
 * as the ring can hold, each with a header of the size of a record. The immediates of later messages follow.
 * So a sender that does not pause does not keep the service thread from other work. */
static void on_arrival(void *ctx) {
    struct remo__kv_tracker *tracker = ctx;
    struct remo_kv *kv = tracker->kv;
    (void)remo__mutex_lock(kv->node, &tracker->receive_mutex, REMO_FOREVER);
    for (size_t left = kv->tracker_bytes / sizeof(struct remo__kv_record); left > 0; left--)
        if (!receive_message(tracker, false))
            break;
    remo__mutex_unlock(kv->node, &tracker->receive_mutex);
}

/* Receive some messages of a sender, and leave the others to the service thread: it has not handled their
 * immediates yet, because it handles one only after it has received the message. */
static bool receive_some(struct remo__kv_tracker *tracker) {
    bool is_task = remo__scheduler_of(tracker->kv->node) != NULL;
    uint32_t count = 0;
    if (!remo__mutex_try_lock(&tracker->receive_mutex))
        return false;
    while (count < MESSAGES_PER_POLL
           && (is_task ? receive_in_task(tracker) : receive_message(tracker, false)))
        count++;
    remo__mutex_unlock(tracker->kv->node, &tracker->receive_mutex);
    return count > 0;
}

/* An empty ring is no failure of the caller. */
void remo__kv_receive_records(struct remo_kv *kv, struct remo__kv_thread *mine) {
    uint32_t size = kv->node->size;
    struct remo__last_error discarded, *before = remo__errors_discard(&discarded);
    for (uint32_t i = 0; i < SENDERS_PER_POLL && i < size; i++) {
        struct remo__kv_tracker *tracker = &kv->trackers[mine->next_sender];
        mine->next_sender = mine->next_sender + 1 < size ? mine->next_sender + 1 : 0;
        if (tracker->ring && tracker->sender != kv->rank && receive_some(tracker))
            remo__service_relieve(kv->node);
    }
    remo__errors_restore(before);
}

/* ---- open and close ---- */

int remo__kv_trackers_open(struct remo_kv *kv) {
    const struct remo_nodeset *participants = remo_channel_participants(kv->channel);
    kv->trackers = calloc(kv->node->size, sizeof *kv->trackers);
    if (!kv->trackers)
        return remo__fail(-ENOMEM, "no memory for the trackers of a map");
    struct remo__ring_set_options options = {.participants = *participants,
                                             .senders = *participants,
                                             .capacity_bytes = kv->tracker_bytes,
                                             .on_arrival = on_arrival,
                                             .ctx = kv->trackers,
                                             .ctx_bytes = sizeof *kv->trackers};
    int rc = remo__ring_set_open(kv->channel, "trackers", "trackers", &options, &kv->tracker_rings);
    if (rc != 0)
        return rc;
    for (uint32_t node = remo__nodeset_next(participants, 0); node < kv->node->size;
         node = remo__nodeset_next(participants, node + 1))
        kv->trackers[node] =
            (struct remo__kv_tracker){.kv = kv, .sender = node, .ring = kv->tracker_rings->rings[node]};
    return remo_channel_join(kv->tracker_rings->channel);
}

void remo__kv_trackers_close(struct remo_kv *kv) {
    remo__ring_set_close(kv->tracker_rings);
    free(kv->trackers);
    kv->tracker_rings = NULL;
    kv->trackers = NULL;
}

/* ---- sending ---- */

void remo__kv_defer_record(struct remo_kv *kv, const struct remo__kv_record *record) {
    (void)remo__mutex_lock(kv->node, &kv->send_mutex, REMO_FOREVER);
    bool has_room = kv->deferred_count < REMO__KV_DEFERRED_MAX;
    if (has_room)
        kv->deferred[kv->deferred_count++] = *record;
    remo__mutex_unlock(kv->node, &kv->send_mutex);
    if (!has_room)
        remo__log(
            &kv->node->log, REMO_LOG_WARNING,
            "map %s: dropped a record, because a peer does not read its tracker; peers keep a stale entry",
            remo_channel_name(kv->channel));
}

struct message {
    struct remo__kv_record records[REMO__KV_BATCH_MAX];
    uint32_t count, deferred_count; /* the first deferred_count are of aborted operations */
};

/* Fill the message with deferred records, and as many of `records` as fit. */
static void fill_message(const struct remo_kv *kv, struct message *message,
                         const struct remo__kv_record *records, uint32_t count) {
    uint32_t deferred_count = remo__min(kv->deferred_count, kv->batch_max / 2);
    count = remo__min(count, kv->batch_max - deferred_count);
    memcpy(message->records, kv->deferred, deferred_count * sizeof records[0]);
    memcpy(message->records + deferred_count, records, count * sizeof records[0]);
    message->deferred_count = deferred_count;
    message->count = deferred_count + count;
}

int remo__kv_send_records(struct remo_kv *kv, const struct remo__kv_record *records, uint32_t count,
                          uint32_t *ret_sent_count, uint64_t *ret_position) {
    struct message message;
    (void)remo__mutex_lock(kv->node, &kv->send_mutex, REMO_FOREVER);
    fill_message(kv, &message, records, count);
    int rc = remo_ringbuffer_send(kv->trackers[kv->rank].ring, message.records,
                                  message.count * sizeof message.records[0], 0, ret_position);
    if (rc == 0 && message.deferred_count > 0) {
        kv->deferred_count -= message.deferred_count;
        memmove(kv->deferred, kv->deferred + message.deferred_count,
                kv->deferred_count * sizeof kv->deferred[0]);
    }
    remo__mutex_unlock(kv->node, &kv->send_mutex);
    if (rc != 0)
        return rc;
    apply_records(kv, message.records, message.count, kv->rank);
    *ret_sent_count = message.count - message.deferred_count;
    return 0;
}

bool remo__kv_is_acked(struct remo_kv *kv, struct remo__kv_thread *mine, uint64_t position) {
    if (position <= mine->acked_position)
        return true;
    if (mine->is_ack_missing)
        return false;
    struct remo__sentence before = remo__sentence_get();
    (void)remo__mutex_lock(kv->node, &kv->send_mutex, REMO_FOREVER);
    int rc = remo_ringbuffer_wait_received(kv->trackers[kv->rank].ring, position, 0);
    remo__mutex_unlock(kv->node, &kv->send_mutex);
    if (rc == -ETIMEDOUT)
        remo__sentence_put(before); /* it may explain an operation that this poll has completed */
    if (rc == 0)
        mine->acked_position = position;
    mine->is_ack_missing = rc != 0;
    return rc == 0;
}
