/* ring_open.c - opens and closes ring buffers (ringbuffer.h).
 * Invariant: the join follows the open of the ring, so callbacks find it complete. */
#include <stdio.h>
#include <stdlib.h>

#include "objects/region.h"
#include "objects/ringbuffer.h"

#define CAPACITY_DEFAULT (64u << 10)
#define CAPACITY_MIN 256u
#define CAPACITY_MAX (UINT64_C(1) << 32)

static void on_immediate(void *ctx, uint32_t node, uint32_t value) {
    const struct remo_ringbuffer *ring = ctx;
    (void)value;
    if (ring->on_arrival && node == ring->sender)
        ring->on_arrival(ring->ctx);
}

static int check_options(const struct remo_ringbuffer_options *options, uint64_t capacity,
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

static int open_channel(struct remo_ringbuffer *ring, struct remo_channel *parent, const char *name,
                        const struct remo_nodeset *participants) {
    const struct remo_channel_options channel = {
        .participants = *participants, .ctx = ring, .on_immediate = on_immediate};
    char type[REMO__TYPE_BYTES_MAX + 1];
    snprintf(type, sizeof type, "ringbuffer(sender %u%s)", ring->sender,
             ring->on_arrival ? ", on_arrival" : "");
    return remo_channel_open(parent, name, type, &channel, &ring->channel);
}

/* A sender that is alone provides the memory of its receivers: a channel has no memory without a provider. */
static int add_memories(struct remo_ringbuffer *ring, const struct remo_nodeset *participants) {
    uint64_t records = ring->cursor.capacity, consumed = ring->node->size * REMO__CACHE_LINE;
    struct remo_nodeset receivers = *participants, sender = {{0}};
    uint32_t memory;
    remo_nodeset_add(&sender, ring->sender);
    if (remo__nodeset_count(&receivers) > 1)
        remo_nodeset_remove(&receivers, ring->sender);
    int rc = remo_channel_add_memory(ring->channel, "ring",
                                     remo_nodeset_has(&receivers, ring->node->rank) ? records : 0, records,
                                     &receivers, &memory);
    if (rc == 0)
        rc = remo_channel_add_memory(ring->channel, "consumed", ring->is_sender ? consumed : 0, consumed,
                                     &sender, &memory);
    if (rc == 0) {
        ring->records = &ring->channel->memories[0];
        ring->consumed = &ring->channel->memories[1];
    }
    return rc;
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

/* A receiver of sealed records needs no image. Errors: -ENOMEM. */
static int open_private(struct remo_ringbuffer *ring, const struct remo_nodeset *participants) {
    bool is_sealed = ring->cursor.guard == REMO__RECORD_SEAL;
    uint64_t message_bytes_max = remo__record_message_max(ring->cursor.capacity);
    int rc = ring->is_sender ? open_receivers(ring, participants) : 0;
    if (rc == 0 && (ring->is_sender || !is_sealed)) {
        ring->image = malloc(REMO__RECORD_HEADER_BYTES + message_bytes_max);
        rc = ring->image ? 0 : -ENOMEM;
    }
    if (rc != 0)
        return remo__fail(rc, "no memory for a ring of %llu bytes",
                          (unsigned long long)ring->cursor.capacity);
    if (is_sealed && (!ring->is_sender || (ring->receiver_count == 1 && !ring->on_arrival)))
        ring->direct_bytes_end = 1 + (uint32_t)remo__min(REMO__MAPPED_WORDS_BYTES, message_bytes_max);
    return 0;
}

/* Make a ring that is not open yet; NULL: no memory. */
static struct remo_ringbuffer *make_ring(struct remo_node *node,
                                         const struct remo_ringbuffer_options *options, uint64_t capacity) {
    struct remo_ringbuffer *ring = calloc(1, sizeof *ring);
    if (!ring)
        return NULL;
    ring->node = node;
    ring->sender = options->sender;
    ring->is_sender = node->rank == options->sender;
    ring->ctx = options->ctx;
    ring->on_arrival = options->on_arrival;
    ring->cursor =
        (struct remo__ring_cursor){.capacity = capacity,
                                   .lap = 1,
                                   .guard = node->mapped                        ? REMO__RECORD_SEAL
                                            : node->fabric->caps.writes_ordered ? REMO__RECORD_CHECKSUM
                                                                                : REMO__RECORD_MASK};
    return ring;
}

int remo_ringbuffer_open(struct remo_channel *parent, const char *name,
                         const struct remo_ringbuffer_options *options, struct remo_ringbuffer **ret_ring) {
    REMO__REQUIRE(ret_ring);
    static const struct remo_ringbuffer_options all_default;
    const struct remo_ringbuffer_options *chosen = options ? options : &all_default;
    uint64_t capacity = chosen->capacity_bytes ? chosen->capacity_bytes : CAPACITY_DEFAULT;
    struct remo_nodeset participants;
    int rc = remo__select_participants(parent, &chosen->participants, &participants);
    if (rc == 0)
        rc = remo__require_coherence(parent, "a ring buffer");
    if (rc == 0)
        rc = check_options(chosen, capacity, &participants);
    if (rc != 0)
        return rc;
    struct remo_ringbuffer *ring = make_ring(remo_channel_node(parent), chosen, capacity);
    if (!ring)
        return remo__fail(-ENOMEM, "no memory for a ring");
    rc = open_channel(ring, parent, name, &participants);
    if (rc == 0)
        rc = add_memories(ring, &participants);
    if (rc == 0)
        rc = open_private(ring, &participants);
    if (rc == 0) {
        *ret_ring = ring; /* on_arrival may use it immediately */
        rc = remo_channel_join(ring->channel);
        if (rc != 0)
            *ret_ring = NULL;
    }
    if (rc != 0)
        remo_ringbuffer_close(ring);
    return rc;
}

void remo_ringbuffer_close(struct remo_ringbuffer *ring) {
    if (!ring)
        return;
    remo_channel_close(ring->channel); /* first: its callbacks use the ring */
    free(ring->receivers);
    free(ring->image);
    free(ring);
}
