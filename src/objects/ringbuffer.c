/* ringbuffer.c - see remo/ringbuffer.h; how records lie in the ring is in objects/ring_record.h. */
#include <remo/ringbuffer.h>

#include <stdio.h>
#include <stdlib.h>

#include "base/mutant.h"
#include "objects/region.h"
#include "objects/ring_record.h"

#define CAPACITY_DEFAULT (64u << 10)
#define CAPACITY_MIN 256u
#define CAPACITY_MAX (UINT64_C(1) << 32)

struct receiver {
    uint16_t node;
    bool owed;         /* the last record could not be written there yet */
    uint64_t consumed; /* what it acknowledged last */
};

struct remo_ringbuffer {
    struct remo_channel *channel;
    struct remo_region *region; /* the ring of each receiver */
    struct remo_sst *consumed;  /* u64: positions up to which receivers are done */
    struct remo_node *node;
    uint32_t sender;
    bool is_sender, calling;
    void *ctx;
    void (*on_arrival)(void *ctx);
    struct remo__ring_cursor cursor; /* of the next record, to send or to receive */
    uint64_t *image;                 /* sender: a record; receiver: a message too long for its caller */
    /* sender */
    bool met;  /* every receiver has opened the ring, or will never */
    bool owes; /* some receiver is owed `image` */
    uint64_t image_bytes;
    struct remo__ring_cursor image_at;
    uint64_t consumed_by_all;
    uint32_t receivers_count;
    struct receiver *receivers;
    /* receiver */
    uint64_t acknowledged;
    uint32_t found_bytes; /* of the message at the cursor */
};

/* ---- open ---- */

static int check_open(const struct remo_ringbuffer_options *options,
                      const struct remo_nodeset *participants) {
    uint64_t capacity = options->capacity_bytes ? options->capacity_bytes : CAPACITY_DEFAULT;
    if (capacity % 64 != 0 || capacity < CAPACITY_MIN || capacity > CAPACITY_MAX)
        return remo__fail(-EINVAL,
                          "a ring of %llu bytes is not possible: give a multiple of 64 from %u to %llu",
                          (unsigned long long)capacity, CAPACITY_MIN, (unsigned long long)CAPACITY_MAX);
    if (!remo_nodeset_has(participants, options->sender))
        return remo__fail(-EINVAL, "the sender, node %u, is not among the participants", options->sender);
    return 0;
}

static void on_immediate(void *ctx, uint32_t node, uint32_t value) {
    const struct remo_ringbuffer *ring = ctx;
    (void)value;
    if (node == ring->sender && ring->on_arrival)
        ring->on_arrival(ring->ctx);
}

static int open_memory(struct remo_ringbuffer *ring, uint32_t nodes, const struct remo_nodeset *receivers) {
    ring->image = malloc(REMO__RECORD_HEADER_BYTES + remo__record_message_max(ring->cursor.capacity));
    ring->receivers = calloc(nodes, sizeof *ring->receivers);
    if (!ring->image || !ring->receivers)
        return remo__fail(-ENOMEM, "no memory for a ring of %llu bytes",
                          (unsigned long long)ring->cursor.capacity);
    for (uint32_t node = 0; node < nodes; node++)
        if (remo_nodeset_has(receivers, node))
            ring->receivers[ring->receivers_count++].node = (uint16_t)node;
    return 0;
}

/* The records come last: with them come callbacks, which may use all the rest. */
static int open_parts(struct remo_ringbuffer *ring, struct remo_channel *parent, const char *name,
                      const struct remo_nodeset *participants) {
    const struct remo_channel_options whole = {.participants = *participants};
    const struct remo_channel_options records = {.ctx = ring, .on_immediate = on_immediate};
    struct remo_nodeset receivers = *participants;
    char type[REMO__TYPE_BYTES_MAX + 1];
    remo_nodeset_remove(&receivers, ring->sender);
    snprintf(type, sizeof type, "ringbuffer(sender %u%s)", ring->sender, ring->calling ? ", on_arrival" : "");
    int rc = remo_channel_open(parent, name, type, &whole, &ring->channel);
    if (rc != 0)
        return rc;
    ring->node = remo_channel_node(ring->channel);
    ring->is_sender = ring->node->rank == ring->sender;
    rc = open_memory(ring, ring->node->size, &receivers);
    if (rc == 0)
        rc = remo_sst_open(ring->channel, "consumed", sizeof ring->cursor.position, NULL, &ring->consumed);
    if (rc == 0)
        rc = remo__region_open(ring->channel, "records", "records", "ring", ring->cursor.capacity, &records,
                               &receivers, &ring->region);
    return rc == 0 ? remo_channel_join(ring->channel) : rc;
}

static struct remo_ringbuffer *make(const struct remo_ringbuffer_options *options) {
    struct remo_ringbuffer *ring = calloc(1, sizeof *ring);
    if (!ring)
        return NULL;
    ring->sender = options->sender;
    ring->calling = options->on_arrival != NULL;
    ring->ctx = options->ctx;
    ring->on_arrival = options->on_arrival;
    ring->cursor.capacity = options->capacity_bytes ? options->capacity_bytes : CAPACITY_DEFAULT;
    ring->cursor.lap = 1;
    return ring;
}

int remo_ringbuffer_open(struct remo_channel *parent, const char *name,
                         const struct remo_ringbuffer_options *options, struct remo_ringbuffer **ret_ring) {
    REMO__REQUIRE(ret_ring);
    static const struct remo_ringbuffer_options all_default;
    const struct remo_ringbuffer_options *asked = options ? options : &all_default;
    struct remo_nodeset participants;
    int rc = remo__participants_of(parent, &asked->participants, &participants);
    if (rc == 0)
        rc = remo__needs_coherence(parent, "a ring buffer");
    if (rc == 0)
        rc = check_open(asked, &participants);
    if (rc != 0)
        return rc;
    struct remo_ringbuffer *ring = make(asked);
    if (!ring)
        return remo__fail(-ENOMEM, "no memory for a ring");
    rc = open_parts(ring, parent, name, &participants);
    if (rc != 0) {
        remo_ringbuffer_close(ring);
        return rc;
    }
    *ret_ring = ring; /* on_arrival may need it at once */
    rc = remo_channel_join(ring->region->channel);
    if (rc != 0) {
        *ret_ring = NULL;
        remo_ringbuffer_close(ring);
    }
    return rc;
}

void remo_ringbuffer_close(struct remo_ringbuffer *ring) {
    if (!ring)
        return;
    remo_region_close(ring->region); /* first, since its callbacks use the rest */
    remo_sst_close(ring->consumed);
    remo_channel_close(ring->channel);
    free(ring->receivers);
    free(ring->image);
    free(ring);
}

struct remo_channel *remo_ringbuffer_channel(struct remo_ringbuffer *ring) {
    return ring ? ring->channel : NULL;
}

size_t remo_ringbuffer_message_bytes_max(const struct remo_ringbuffer *ring) {
    return ring ? remo__record_message_max(ring->cursor.capacity) : 0;
}

/* ---- the sender ---- */

static bool is_gone(const struct remo_ringbuffer *ring, uint32_t node) {
    return remo_channel_peer(ring->region->channel, node) > REMO_CHANNEL_CONNECTED;
}

/* `image` to one receiver; true when that is done, or it is gone. */
static int write_image(struct remo_ringbuffer *ring, uint32_t node, bool call) {
    struct remo_region *region = ring->region;
    uint64_t offset = ring->image_at.offset;
    if (is_gone(ring, node))
        return 0;
    int rc = call ? remo_region_write_immediate(region, node, offset, ring->image, ring->image_bytes, 0, NULL)
                  : remo_region_write(region, node, offset, ring->image, ring->image_bytes, REMO_WRITE_NOTIFY,
                                      NULL);
    return rc == -EHOSTDOWN || rc == -ENOTCONN ? 0 : rc;
}

/* Write `image` to whom it is owed. A receiver gets every record: before it has this one there is no next. */
static int settle(struct remo_ringbuffer *ring) {
    bool call = ring->calling && (uint32_t)ring->image[0] != REMO__RECORD_FILLER;
    int rc = 0;
    ring->owes = false;
    for (uint32_t i = 0; i < ring->receivers_count; i++) {
        struct receiver *receiver = &ring->receivers[i];
        int one = receiver->owed ? write_image(ring, receiver->node, call) : 0;
        receiver->owed = one != 0 && !REMO__MUTANT(ringbuffer_owed);
        ring->owes |= receiver->owed;
        rc = rc ? rc : one;
    }
    return rc;
}

static int put(struct remo_ringbuffer *ring, uint32_t size, const void *payload) {
    ring->image_at = ring->cursor;
    ring->image_bytes = remo__record_encode(ring->image, &ring->cursor, size, payload);
    for (uint32_t i = 0; i < ring->receivers_count; i++)
        ring->receivers[i].owed = true;
    if (size == REMO__RECORD_FILLER)
        remo__ring_next_lap(&ring->cursor);
    else
        remo__ring_advance(&ring->cursor, remo__record_bytes(size));
    return settle(ring);
}

/* What every receiver that lives is done with. A position that cannot be is not believed. */
static void look_at_consumed(struct remo_ringbuffer *ring) {
    uint64_t least = ring->cursor.position;
    for (uint32_t i = 0; i < ring->receivers_count; i++) {
        struct receiver *receiver = &ring->receivers[i];
        uint64_t said = 0;
        if (is_gone(ring, receiver->node) && !REMO__MUTANT(ringbuffer_gone))
            continue;
        if (remo_sst_load(ring->consumed, receiver->node, &said) == 0 && said > receiver->consumed
            && said <= ring->cursor.position)
            receiver->consumed = said;
        least = remo__min(least, receiver->consumed);
    }
    ring->consumed_by_all = least;
}

struct room {
    struct remo_ringbuffer *ring;
    uint64_t bytes;
    uint32_t late;
};

static int everybody_is_here(struct room *room) {
    struct remo_ringbuffer *ring = room->ring;
    for (; room->late < ring->receivers_count; room->late++) {
        uint32_t node = ring->receivers[room->late].node;
        if (remo_channel_peer(remo_sst_channel(ring->consumed), node) == REMO_CHANNEL_WAITING
            || remo_channel_peer(ring->region->channel, node) == REMO_CHANNEL_WAITING)
            return 0;
    }
    ring->met = true;
    return 1;
}

static int has_room(void *ctx) {
    struct room *room = ctx;
    struct remo_ringbuffer *ring = room->ring;
    if (!ring->met) {
        int rc = remo__channel_check_match(ring->channel);
        if (rc == 0)
            rc = remo__channel_check_match(ring->region->channel);
        if (rc != 0 || !everybody_is_here(room))
            return rc;
    }
    look_at_consumed(ring);
    return ring->cursor.position + room->bytes - ring->consumed_by_all <= ring->cursor.capacity
           || REMO__MUTANT(ringbuffer_room);
}

/* Wait until `bytes` may be overwritten at every receiver. */
static int make_room(struct remo_ringbuffer *ring, uint64_t bytes, uint64_t timeout_ns) {
    struct room room = {.ring = ring, .bytes = bytes};
    const char *name = remo_channel_name(ring->channel);
    if (remo__likely(ring->met
                     && ring->cursor.position + bytes - ring->consumed_by_all <= ring->cursor.capacity))
        return 0;
    int rc = remo__wait(ring->node, has_room, &room, remo__deadline(timeout_ns));
    if (rc != -ETIMEDOUT)
        return rc;
    if (!ring->met)
        return remo__fail(rc, "node %u has not opened ring %s yet; nothing was sent",
                          ring->receivers[room.late].node, name);
    return remo__fail(rc, "ring %s is full: the slowest receiver has %llu bytes before it; nothing was sent",
                      name, (unsigned long long)(ring->cursor.position - ring->consumed_by_all));
}

static int check_send(const struct remo_ringbuffer *ring, const void *message, size_t size_bytes) {
    const char *name = remo_channel_name(ring->channel);
    if (!ring->is_sender)
        return remo__fail(-EPERM, "node %u is the sender of ring %s, this node receives", ring->sender, name);
    if (size_bytes > remo_ringbuffer_message_bytes_max(ring))
        return remo__fail(-EMSGSIZE, "a message of %zu bytes is too long for ring %s: it takes %zu at most",
                          size_bytes, name, remo_ringbuffer_message_bytes_max(ring));
    if (!message && size_bytes > 0)
        return remo__fail(-EINVAL, "the message is NULL");
    return 0;
}

int remo_ringbuffer_send(struct remo_ringbuffer *ring, const void *message, size_t size_bytes,
                         uint64_t timeout_ns, uint64_t *ret_position) {
    REMO__REQUIRE(ring);
    int rc = check_send(ring, message, size_bytes);
    if (rc == 0 && remo__unlikely(ring->owes))
        rc = settle(ring);
    if (rc != 0)
        return rc;
    uint64_t bytes = remo__record_bytes((uint32_t)size_bytes);
    uint64_t left = ring->cursor.capacity - ring->cursor.offset;
    uint64_t filler = bytes > left ? left : 0;
    rc = make_room(ring, filler + bytes, timeout_ns);
    if (rc == 0 && filler > 0)
        rc = put(ring, REMO__RECORD_FILLER, NULL);
    if (rc != 0)
        return rc;
    (void)put(ring, (uint32_t)size_bytes, message); /* it is sent: the next call mends or tells what failed */
    if (ret_position)
        *ret_position = ring->cursor.position;
    return 0;
}

static int is_received(void *ctx) {
    const struct room *room = ctx;
    look_at_consumed(room->ring);
    return room->ring->consumed_by_all >= room->bytes;
}

int remo_ringbuffer_wait_received(struct remo_ringbuffer *ring, uint64_t position, uint64_t timeout_ns) {
    REMO__REQUIRE(ring);
    struct room room = {.ring = ring, .bytes = position};
    int rc = check_send(ring, NULL, 0);
    if (rc != 0)
        return rc;
    if (position > ring->cursor.position)
        return remo__fail(-EINVAL, "position %llu has not been sent yet, ring %s is at %llu",
                          (unsigned long long)position, remo_channel_name(ring->channel),
                          (unsigned long long)ring->cursor.position);
    if (ring->owes)
        rc = settle(ring);
    return rc != 0 ? rc : remo__wait(ring->node, is_received, &room, remo__deadline(timeout_ns));
}

/* ---- a receiver ---- */

struct arrival {
    struct remo_ringbuffer *ring;
    void *buffer;
    size_t buffer_bytes;
};

/* 1: a message is there, in the buffer or in `image`. An honest sender puts no filler behind a filler. */
static int look(const struct arrival *arrival) {
    struct remo_ringbuffer *ring = arrival->ring;
    const char *memory = ring->region->memory->own;
    for (uint32_t record = 0; record < 2; record++) {
        enum remo__record_kind kind = remo__record_decode(
            memory, &ring->cursor, arrival->buffer, arrival->buffer_bytes, ring->image, &ring->found_bytes);
        if (kind != REMO__RECORD_FILLING)
            return kind == REMO__RECORD_MESSAGE;
        remo__ring_next_lap(&ring->cursor);
    }
    return 0;
}

static int has_arrived(void *ctx) {
    const struct arrival *arrival = ctx;
    if (look(arrival))
        return 1;
    int rc = remo__channel_check_peer(arrival->ring->region->channel, arrival->ring->sender);
    /* What it sent before it went is received first. */
    return rc != 0 && !REMO__MUTANT(ringbuffer_last_look) && look(arrival) ? 1 : rc;
}

int remo_ringbuffer_receive(struct remo_ringbuffer *ring, void *buffer, size_t buffer_bytes,
                            size_t *ret_size_bytes, uint64_t timeout_ns) {
    REMO__REQUIRE(ring);
    struct arrival arrival = {.ring = ring, .buffer = buffer, .buffer_bytes = buffer ? buffer_bytes : 0};
    const char *name = remo_channel_name(ring->channel);
    if (remo__unlikely(ring->is_sender))
        return remo__fail(-EPERM, "this node is the sender of ring %s and cannot receive from it", name);
    if (remo__unlikely(!ret_size_bytes))
        return remo__fail(-EINVAL, "there is nowhere to return the size of the message");
    if (!look(&arrival)) {
        int rc = remo__wait(ring->node, has_arrived, &arrival, remo__deadline(timeout_ns));
        if (rc != 0)
            return rc;
    }
    *ret_size_bytes = ring->found_bytes;
    if (ring->found_bytes > arrival.buffer_bytes)
        return remo__fail(-EMSGSIZE, "the message in ring %s has %u bytes, the buffer %zu; it stays", name,
                          ring->found_bytes, arrival.buffer_bytes);
    remo__ring_advance(&ring->cursor, remo__record_bytes(ring->found_bytes));
    if (ring->cursor.position - ring->acknowledged >= ring->cursor.capacity / 2)
        (void)remo_ringbuffer_acknowledge(ring); /* to a sender that is gone it does not matter */
    return 0;
}

int remo_ringbuffer_acknowledge(struct remo_ringbuffer *ring) {
    REMO__REQUIRE(ring);
    if (ring->is_sender)
        return remo__fail(-EPERM, "the sender of ring %s has nothing to acknowledge",
                          remo_channel_name(ring->channel));
    if (ring->acknowledged == ring->cursor.position)
        return 0;
    int rc = remo_sst_store(ring->consumed, &ring->cursor.position);
    if (rc == 0)
        rc = remo_sst_push(ring->consumed, ring->sender, NULL);
    if (rc == 0)
        ring->acknowledged = ring->cursor.position;
    return rc;
}
