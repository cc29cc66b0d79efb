/* ring_set.c - opens and closes ring buffers: one, or the map's set with one ring of each sender
 * (ringbuffer.h).
 * Invariant: the join follows the open of all rings, so callbacks find them complete. */
#include <stdio.h>
#include <stdlib.h>

#include "objects/region.h"
#include "objects/ringbuffer.h"

#define CAPACITY_DEFAULT (64u << 10)
#define CAPACITY_MIN 256u
#define CAPACITY_MAX (UINT64_C(1) << 32)

/* ---- the rings ---- */

static void on_immediate(void *ctx, uint32_t node, uint32_t value) {
    const struct remo__ring_set *set = ctx;
    (void)value;
    const struct remo_ringbuffer *ring = set->rings[node];
    if (ring && ring->on_arrival)
        ring->on_arrival(ring->ctx);
}

static void free_ring(struct remo_ringbuffer *ring) {
    if (!ring)
        return;
    free(ring->receivers);
    free(ring->image);
    free(ring);
}

static int open_receivers(struct remo_ringbuffer *ring, const struct remo_nodeset *participants) {
    uint32_t nodes = ring->node->size;
    ring->receivers = calloc(nodes, sizeof *ring->receivers);
    if (!ring->receivers)
        return -ENOMEM;
    for (uint32_t node = remo__nodeset_next(participants, 0); node < nodes;
         node = remo__nodeset_next(participants, node + 1))
        if (node != ring->sender)
            ring->receivers[ring->receiver_count++].node = (uint16_t)node;
    return 0;
}

/* A receiver of sealed records needs no image. Errors: -ENOMEM, without a sentence. */
static int open_ring(struct remo__ring_set *set, uint32_t sender,
                     const struct remo__ring_set_options *options, uint64_t records_at) {
    struct remo_ringbuffer *ring = calloc(1, sizeof *ring);
    if (!ring)
        return -ENOMEM;
    set->rings[sender] = ring;
    ring->set = set;
    ring->channel = set->channel;
    ring->node = remo_channel_node(set->channel);
    ring->records = &set->channel->memories[0];
    ring->consumed = &set->channel->memories[1];
    ring->records_at = records_at;
    ring->sender = sender;
    ring->is_sender = ring->node->rank == sender;
    ring->ctx = (char *)options->ctx + sender * options->ctx_bytes;
    ring->on_arrival = options->on_arrival;
    ring->cursor =
        (struct remo__ring_cursor){.capacity = options->capacity_bytes,
                                   .lap = 1,
                                   .guard = ring->node->mapped                        ? REMO__RECORD_SEAL
                                            : ring->node->fabric->caps.writes_ordered ? REMO__RECORD_CHECKSUM
                                                                                      : REMO__RECORD_MASK};
    if (ring->is_sender || ring->cursor.guard != REMO__RECORD_SEAL) {
        ring->image = malloc(REMO__RECORD_HEADER_BYTES + remo__record_message_max(ring->cursor.capacity));
        if (!ring->image)
            return -ENOMEM;
    }
    int rc = ring->is_sender ? open_receivers(ring, &options->participants) : 0;
    bool is_direct = ring->cursor.guard == REMO__RECORD_SEAL
                     && (!ring->is_sender || (ring->receiver_count == 1 && !ring->on_arrival));
    if (is_direct)
        ring->direct_bytes_end =
            1
            + (uint32_t)remo__min(REMO__MAPPED_WORDS_BYTES, remo__record_message_max(ring->cursor.capacity));
    return rc;
}

/* ---- the set ---- */

/* A sender that is alone provides the memory of its receivers: a channel has no memory without a provider. */
static int add_memories(struct remo_channel *channel, const struct remo__ring_set_options *options) {
    const struct remo_node *node = remo_channel_node(channel);
    uint32_t senders = remo__nodeset_count(&options->senders),
             first = remo__nodeset_next(&options->senders, 0);
    uint64_t records = senders * options->capacity_bytes, consumed = node->size * REMO__CACHE_LINE;
    struct remo_nodeset receivers = options->participants;
    uint32_t memory;
    if (senders == 1 && remo__nodeset_count(&receivers) > 1)
        remo_nodeset_remove(&receivers, first);
    int rc = remo_channel_add_memory(channel, "ring", remo_nodeset_has(&receivers, node->rank) ? records : 0,
                                     records, &receivers, &memory);
    if (rc != 0)
        return rc;
    return remo_channel_add_memory(channel, "consumed",
                                   remo_nodeset_has(&options->senders, node->rank) ? consumed : 0, consumed,
                                   &options->senders, &memory);
}

static int open_rings(struct remo__ring_set *set, const struct remo__ring_set_options *options) {
    uint64_t records_at = 0;
    for (uint32_t node = remo__nodeset_next(&options->senders, 0); node < REMO_NODES_MAX;
         node = remo__nodeset_next(&options->senders, node + 1)) {
        if (open_ring(set, node, options, records_at) != 0)
            return remo__fail(-ENOMEM, "no memory for a ring of %llu bytes",
                              (unsigned long long)options->capacity_bytes);
        records_at += options->capacity_bytes;
    }
    return 0;
}

int remo__ring_set_open(struct remo_channel *parent, const char *name, const char *type,
                        const struct remo__ring_set_options *options, struct remo__ring_set **ret_set) {
    uint32_t nodes = remo_channel_node(parent)->size;
    struct remo__ring_set *set = calloc(1, sizeof *set + nodes * sizeof set->rings[0]);
    if (!set)
        return remo__fail(-ENOMEM, "no memory for a ring");
    const struct remo_channel_options channel = {
        .participants = options->participants, .ctx = set, .on_immediate = on_immediate};
    int rc = remo_channel_open(parent, name, type, &channel, &set->channel);
    if (rc == 0)
        rc = add_memories(set->channel, options);
    if (rc == 0)
        rc = open_rings(set, options);
    if (rc != 0) {
        remo__ring_set_close(set);
        return rc;
    }
    *ret_set = set;
    return 0;
}

void remo__ring_set_close(struct remo__ring_set *set) {
    if (!set)
        return;
    uint32_t nodes = set->channel ? remo_channel_node(set->channel)->size : 0;
    remo_channel_close(set->channel); /* first: its callbacks use the rings */
    for (uint32_t node = 0; node < nodes; node++)
        free_ring(set->rings[node]);
    free(set);
}

/* ---- one ring ---- */

static int check_open(const struct remo_ringbuffer_options *options, uint64_t capacity,
                      const struct remo_nodeset *participants) {
    if (capacity % 64 != 0 || capacity < CAPACITY_MIN || capacity > CAPACITY_MAX)
        return remo__fail(
            -EINVAL,
            "cannot open a ring of %llu bytes: the capacity must be a multiple of 64 from %u to %llu",
            (unsigned long long)capacity, CAPACITY_MIN, (unsigned long long)CAPACITY_MAX);
    if (!remo_nodeset_has(participants, options->sender))
        return remo__fail(-EINVAL,
                          "cannot open a ring with node %u as its sender: the node is no participant",
                          options->sender);
    return 0;
}

int remo_ringbuffer_open(struct remo_channel *parent, const char *name,
                         const struct remo_ringbuffer_options *options, struct remo_ringbuffer **ret_ring) {
    REMO__REQUIRE(ret_ring);
    static const struct remo_ringbuffer_options all_default;
    const struct remo_ringbuffer_options *chosen = options ? options : &all_default;
    struct remo__ring_set_options one = {.capacity_bytes = chosen->capacity_bytes ? chosen->capacity_bytes
                                                                                  : CAPACITY_DEFAULT,
                                         .on_arrival = chosen->on_arrival,
                                         .ctx = chosen->ctx};
    struct remo__ring_set *set;
    char type[REMO__TYPE_BYTES_MAX + 1];
    int rc = remo__select_participants(parent, &chosen->participants, &one.participants);
    if (rc == 0)
        rc = remo__require_coherence(parent, "a ring buffer");
    if (rc == 0)
        rc = check_open(chosen, one.capacity_bytes, &one.participants);
    if (rc != 0)
        return rc;
    remo_nodeset_add(&one.senders, chosen->sender);
    snprintf(type, sizeof type, "ringbuffer(sender %u%s)", chosen->sender,
             chosen->on_arrival ? ", on_arrival" : "");
    rc = remo__ring_set_open(parent, name, type, &one, &set);
    if (rc != 0)
        return rc;
    *ret_ring = set->rings[chosen->sender]; /* on_arrival may use it immediately */
    rc = remo_channel_join(set->channel);
    if (rc != 0) {
        *ret_ring = NULL;
        remo__ring_set_close(set);
    }
    return rc;
}

void remo_ringbuffer_close(struct remo_ringbuffer *ring) {
    if (ring)
        remo__ring_set_close(ring->set);
}
