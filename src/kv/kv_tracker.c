#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mutant.h"
#include "kv/kv.h"

/* ---- applying ---- */

static uint64_t kind_of(const struct remo__kv_record *record) {
    return record->entry >> 48;
}

/* The entry that the record speaks of. */
static uint64_t entry_of(const struct remo__kv_record *record) {
    return (record->entry & ~(UINT64_C(0xffff) << 48)) | (uint64_t)remo__kv_fingerprint(record->hash) << 48;
}

/* A record from another node is not believed: a node adds slots of its own only, and of those that exist. */
static bool makes_sense(const struct remo_kv *kv, const struct remo__kv_record *record, uint32_t sender) {
    uint32_t node = remo__kv_entry_node(record->entry), slot = remo__kv_entry_slot(record->entry);
    if (slot >= kv->slots_per_node || !remo_nodeset_has(remo_channel_participants(kv->channel), node))
        return false;
    return kind_of(record) == REMO__KV_RECORD_REMOVE
           || (kind_of(record) == REMO__KV_RECORD_ADD && node == sender);
}

static void apply_one(struct remo_kv *kv, const struct remo__kv_record *record, uint32_t sender) {
    uint64_t entry = entry_of(record);
    if (!makes_sense(kv, record, sender)) {
        remo__log(&kv->node->log, REMO_LOG_ERROR,
                  "map %s: node %u sent a record that makes no sense; ignored",
                  remo_channel_name(kv->channel), sender);
    } else if (kind_of(record) == REMO__KV_RECORD_ADD) {
        if (remo__kv_index_add(&kv->index, record->hash, entry) != 0)
            remo__log(&kv->node->log, REMO_LOG_ERROR,
                      "map %s: the index is full, a key of node %u cannot be found here",
                      remo_channel_name(kv->channel), sender);
    } else if ((remo__kv_index_remove(&kv->index, record->hash, entry) || REMO__MUTANT(kv_give_once))
               && remo__kv_entry_node(entry) == kv->rank) {
        remo__kv_pool_give(&kv->pool, remo__kv_entry_slot(entry));
    }
}

static void apply(struct remo_kv *kv, const struct remo__kv_record *records, uint32_t count,
                  uint32_t sender) {
    for (uint32_t i = 0; i < count; i++)
        __builtin_prefetch(&kv->index.lines[remo__kv_index_line_of(&kv->index, records[i].hash)], 1);
    (void)remo__mutex_lock(kv->node, &kv->index_mutex, REMO_FOREVER);
    for (uint32_t i = 0; i < count; i++)
        apply_one(kv, &records[i], sender);
    remo__mutex_unlock(kv->node, &kv->index_mutex);
}

/* Service thread: something may have come from `sender`. Never waits. Each message is acknowledged once it is
 * applied, so that the ring, which by itself acknowledges at every half of it what was
 * received, never comes to that before us. */
static void on_arrival(void *ctx) {
    struct remo__kv_tracker *tracker = ctx;
    struct remo__kv_record records[REMO__KV_BATCH_MAX];
    size_t bytes;
    int rc;
    while ((rc = remo_ringbuffer_receive(tracker->ring, records, sizeof records, &bytes, 0)) == 0) {
        apply(tracker->kv, records, (uint32_t)(bytes / sizeof records[0]), tracker->sender);
        (void)remo_ringbuffer_acknowledge(tracker->ring);
    }
    if (rc == -EMSGSIZE)
        remo__log(&tracker->kv->node->log, REMO_LOG_ERROR,
                  "map %s: node %u sends messages that are too long; it is not listened to",
                  remo_channel_name(tracker->kv->channel), tracker->sender);
}

/* ---- open and close ---- */

static int open_one(struct remo_kv *kv, uint32_t sender) {
    struct remo__kv_tracker *tracker = &kv->trackers[sender];
    *tracker = (struct remo__kv_tracker){.kv = kv, .sender = sender};
    struct remo_ringbuffer_options options = {
        .sender = sender, .capacity_bytes = REMO__KV_TRACKER_BYTES, .ctx = tracker, .on_arrival = on_arrival};
    char name[32];
    snprintf(name, sizeof name, "tracker-%u", sender);
    return remo_ringbuffer_open(kv->channel, name, &options, &tracker->ring);
}

int remo__kv_trackers_open(struct remo_kv *kv) {
    const struct remo_nodeset *participants = remo_channel_participants(kv->channel);
    kv->trackers = calloc(kv->node->size, sizeof *kv->trackers);
    if (!kv->trackers)
        return remo__fail(-ENOMEM, "no memory for the trackers of a map");
    for (uint32_t node = remo__nodeset_next(participants, 0); node < kv->node->size;
         node = remo__nodeset_next(participants, node + 1)) {
        int rc = open_one(kv, node);
        if (rc != 0)
            return rc;
    }
    return 0;
}

void remo__kv_trackers_close(struct remo_kv *kv) {
    for (uint32_t node = 0; kv->trackers && node < kv->node->size; node++)
        remo_ringbuffer_close(kv->trackers[node].ring);
    free(kv->trackers);
    kv->trackers = NULL;
}

/* ---- sending ---- */

void remo__kv_send_later(struct remo_kv *kv, const struct remo__kv_record *record) {
    (void)remo__mutex_lock(kv->node, &kv->send_mutex, REMO_FOREVER);
    bool room = kv->unsent_count < REMO__KV_UNSENT_MAX;
    if (room)
        kv->unsent[kv->unsent_count++] = *record;
    remo__mutex_unlock(kv->node, &kv->send_mutex);
    if (!room)
        remo__log(&kv->node->log, REMO_LOG_WARNING,
                  "map %s: a node does not read its tracker; others keep an entry too many",
                  remo_channel_name(kv->channel));
}

/* What an operation whose record was sent does next. */
static void go_on(struct remo_kv *kv, struct remo__kv_thread *mine, struct remo_kv_op *op,
                  uint64_t position) {
    mine->to_send--;
    if (op->kind == REMO_KV_DELETE) {
        remo__kv_delete_finish(kv, mine, op);
        return;
    }
    remo__kv_run(op)->step = REMO__KV_STEP_ACK;
    remo__kv_run(op)->position = position;
}

struct message {
    struct remo__kv_record records[REMO__KV_BATCH_MAX];
    uint32_t count, old; /* the first `old` are of operations that gave up */
};

static void fill_message(struct remo_kv *kv, struct remo__kv_thread *mine, struct message *message) {
    message->old = kv->unsent_count < REMO__KV_BATCH_MAX / 2 ? kv->unsent_count : REMO__KV_BATCH_MAX / 2;
    message->count = message->old;
    memcpy(message->records, kv->unsent, message->old * sizeof kv->unsent[0]);
    for (struct remo_kv_op *op = mine->first; op && message->count < REMO__KV_BATCH_MAX;
         op = remo__kv_run(op)->next)
        if (remo__kv_run(op)->step == REMO__KV_STEP_SEND)
            message->records[message->count++] = remo__kv_record_of(kv, op);
}

/* One message with as many records as fit; tells how many of them are of this thread's operations. */
static int send_message(struct remo_kv *kv, struct remo__kv_thread *mine, uint32_t *ret_count,
                        uint64_t *ret_position) {
    struct message message;
    (void)remo__mutex_lock(kv->node, &kv->send_mutex, REMO_FOREVER);
    fill_message(kv, mine, &message);
    int rc = remo_ringbuffer_send(kv->trackers[kv->rank].ring, message.records,
                                  message.count * sizeof message.records[0], 0, ret_position);
    if (rc == 0 && message.old > 0) {
        kv->unsent_count -= message.old;
        memmove(kv->unsent, kv->unsent + message.old, kv->unsent_count * sizeof kv->unsent[0]);
    }
    remo__mutex_unlock(kv->node, &kv->send_mutex);
    if (rc != 0)
        return rc;
    apply(kv, message.records, message.count, kv->rank);
    *ret_count = message.count - message.old;
    return 0;
}

int remo__kv_flush(struct remo_kv *kv, struct remo__kv_thread *mine) {
    while (mine->to_send > 0) {
        uint32_t count;
        uint64_t position;
        int rc = send_message(kv, mine, &count, &position);
        if (rc != 0)
            return rc;
        struct remo_kv_op *op = mine->first;
        while (count > 0) {
            struct remo_kv_op *next = remo__kv_run(op)->next;
            if (remo__kv_run(op)->step == REMO__KV_STEP_SEND) {
                go_on(kv, mine, op, position);
                count--;
            }
            op = next;
        }
    }
    return 0;
}

bool remo__kv_acked(struct remo_kv *kv, struct remo__kv_thread *mine, uint64_t position) {
    if (position <= mine->acked)
        return true;
    if (mine->acks_missing)
        return false;
    (void)remo__mutex_lock(kv->node, &kv->send_mutex, REMO_FOREVER);
    int rc = remo_ringbuffer_wait_received(kv->trackers[kv->rank].ring, position, 0);
    remo__mutex_unlock(kv->node, &kv->send_mutex);
    if (rc == 0)
        mine->acked = position;
    mine->acks_missing = rc != 0;
    return rc == 0;
}
