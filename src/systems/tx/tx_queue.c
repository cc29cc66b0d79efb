/* tx_queue.c - implements remo/tx_queue.h: a structure whose items are the elements of a queue, and two
 * counters; and the transactions that push and pop. It uses only the public interface of structures and
 * transactions.
 * Invariant: the elements in the share have the numbers from the front to the back, without gaps. Each key
 * has one slot, so a read of the slot proves that a key is absent. docs/internals/structure.md. */
#include <errno.h>
#include <remo/tx_queue.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/error.h"

#define CAPACITY_DEFAULT 1024u
#define VALUE_BYTES_DEFAULT 80u
#define COUNTERS 2u /* slots before those of the elements */
#define KEY_BYTES 8u

/* Keys of the counters. No element ever has these numbers. */
static const uint64_t front_key = UINT64_MAX, back_key = UINT64_MAX - 1;

struct remo_tx_queue {
    struct remo_structure *structure;
    struct remo_structure_type type;
    char name[48]; /* of the type */
    uint32_t owner, capacity, value_bytes_max;
    uint64_t item_bytes, slot_bytes;
    _Atomic uint64_t expected_front REMO__CACHE_ALIGNED; /* a hint */
};

/* ---- the structure ---- */

/* Return the slot of a key. A malformed key of a faulty peer has a slot too. */
static uint32_t slot_of(const struct remo_tx_queue *queue, const struct remo_structure_key *key) {
    uint64_t number = 0;
    memcpy(&number, key->data, remo__min(key->bytes, sizeof number));
    if (number >= back_key)
        return (uint32_t)(front_key - number);
    return COUNTERS + (uint32_t)(number % queue->capacity);
}

static uint64_t offset_of(const struct remo_tx_queue *queue, const struct remo_structure_key *key) {
    return slot_of(queue, key) * queue->slot_bytes;
}

static uint32_t owner_of(void *ctx, const struct remo_structure_key *key) {
    (void)key;
    return ((const struct remo_tx_queue *)ctx)->owner;
}

static bool lookup_start(void *ctx, const struct remo_structure_key *key, uint32_t owner,
                         struct remo_structure_place *ret_place) {
    const struct remo_tx_queue *queue = ctx;
    (void)owner;
    *ret_place = (struct remo_structure_place){.offset = offset_of(queue, key), .bytes = queue->item_bytes};
    return true;
}

static enum remo_lookup_verdict lookup_end(void *ctx, const struct remo_structure_key *key, uint32_t owner,
                                           const struct remo_structure_place *place, const void *data,
                                           struct remo_item *ret_item) {
    const struct remo_tx_queue *queue = ctx;
    (void)owner;
    switch (remo_item_read(queue->structure, key, data, place->offset, ret_item)) {
    case REMO_ITEM_MATCHES: return REMO_LOOKUP_FOUND;
    case REMO_ITEM_TORN: return REMO_LOOKUP_TORN;
    default: return REMO_LOOKUP_ABSENT;
    }
}

static uint32_t group_of(void *ctx, const struct remo_structure_key *key) {
    return slot_of(ctx, key);
}

static uint64_t find(void *ctx, const struct remo_structure_key *key) {
    const struct remo_tx_queue *queue = ctx;
    uint64_t offset = offset_of(queue, key);
    bool is_present = remo_item_state_of(queue->structure, key, offset) == REMO_ITEM_MATCHES;
    return is_present ? offset : REMO_STRUCTURE_NOWHERE;
}

/* If the queue is full, the slot still has the element that was pushed `capacity` elements before. */
static int make(void *ctx, const struct remo_structure_key *key, uint64_t *ret_offset) {
    const struct remo_tx_queue *queue = ctx;
    *ret_offset = offset_of(queue, key);
    return remo_item_state_of(queue->structure, key, *ret_offset) == REMO_ITEM_FREE ? 0 : -ENOSPC;
}

/* An item is reachable as long as it is in its slot. */
static void link_item(void *ctx, const struct remo_structure_key *key, uint64_t offset) {
    (void)ctx, (void)key, (void)offset;
}

static void opened(void *ctx, struct remo_structure *structure, char *share) {
    ((struct remo_tx_queue *)ctx)->structure = structure;
    (void)share;
}

/* ---- open ---- */

static int check_options(const struct remo_tx_queue_options *options) {
    if (options->capacity > REMO_TX_QUEUE_CAPACITY_MAX)
        return remo__fail(-EINVAL, "cannot open a queue for %u elements: the maximum is %u",
                          options->capacity, REMO_TX_QUEUE_CAPACITY_MAX);
    if (options->value_bytes_max > REMO_TX_QUEUE_VALUE_BYTES_MAX)
        return remo__fail(-EINVAL, "cannot open a queue with value_bytes_max = %u: the maximum is %u",
                          options->value_bytes_max, REMO_TX_QUEUE_VALUE_BYTES_MAX);
    if (options->owner != 0
        && (options->owner >= REMO_NODES_MAX || !remo_nodeset_has(&options->participants, options->owner)))
        return remo__fail(-EINVAL, "cannot open a queue with owner = %u: give the rank of a participant",
                          options->owner);
    return 0;
}

static uint32_t first_of(const struct remo_nodeset *set) {
    uint32_t node = 0;
    while (node < REMO_NODES_MAX - 1 && !remo_nodeset_has(set, node))
        node++;
    return node;
}

static struct remo_tx_queue_options apply_defaults(const struct remo_tx_queue_options *given,
                                                   const struct remo_channel *parent) {
    struct remo_tx_queue_options options = given ? *given : (struct remo_tx_queue_options){0};
    if (remo_nodeset_empty(&options.participants))
        options.participants = *remo_channel_participants(parent);
    options.capacity = options.capacity ? options.capacity : CAPACITY_DEFAULT;
    options.value_bytes_max = options.value_bytes_max ? options.value_bytes_max : VALUE_BYTES_DEFAULT;
    return options;
}

static void set_type(struct remo_tx_queue *queue) {
    snprintf(queue->name, sizeof queue->name, "tx_queue %u,%u,%u", queue->capacity, queue->owner,
             queue->value_bytes_max);
    queue->type = (struct remo_structure_type){.name = queue->name,
                                               .owner = owner_of,
                                               .lookup_start = lookup_start,
                                               .lookup_end = lookup_end,
                                               .group = group_of,
                                               .find = find,
                                               .make = make,
                                               .link = link_item,
                                               .unlink = link_item};
}

static struct remo_tx_queue *new_queue(const struct remo_tx_queue_options *options) {
    struct remo_tx_queue *queue = aligned_alloc(REMO__CACHE_LINE, sizeof *queue);
    if (!queue)
        return NULL;
    uint32_t value_bytes = remo__max(options->value_bytes_max, sizeof(uint64_t)); /* or that of a counter */
    uint64_t item_bytes = remo_structure_item_bytes(KEY_BYTES, value_bytes);
    *queue =
        (struct remo_tx_queue){.owner = options->owner ? options->owner : first_of(&options->participants),
                               .capacity = options->capacity,
                               .value_bytes_max = options->value_bytes_max,
                               .item_bytes = item_bytes,
                               .slot_bytes = remo__align_up(item_bytes, REMO__CACHE_LINE)};
    set_type(queue);
    return queue;
}

static int open_structure(struct remo_tx_queue *queue, struct remo_channel *parent, const char *name,
                          const struct remo_tx_queue_options *options) {
    const struct remo_structure_options structure = {
        .participants = options->participants,
        .share_bytes = (COUNTERS + (uint64_t)queue->capacity) * queue->slot_bytes,
        .key_bytes_max = KEY_BYTES,
        .value_bytes_max = remo__max(queue->value_bytes_max, sizeof(uint64_t)),
        .ctx = queue,
        .opened = opened};
    struct remo_structure *ignored;
    return remo_structure_open(parent, name, &queue->type, &structure, &ignored);
}

int remo_tx_queue_open(struct remo_channel *parent, const char *name,
                       const struct remo_tx_queue_options *options, struct remo_tx_queue **ret_queue) {
    if (!parent || !ret_queue)
        return remo__fail(-EINVAL, "cannot open a queue: parent or ret_queue is NULL");
    struct remo_tx_queue_options all = apply_defaults(options, parent);
    int rc = check_options(&all);
    if (rc != 0)
        return rc;
    struct remo_tx_queue *queue = new_queue(&all);
    if (!queue)
        return remo__fail(-ENOMEM, "no memory for a queue");
    rc = open_structure(queue, parent, name, &all);
    if (rc != 0) {
        free(queue);
        return rc;
    }
    *ret_queue = queue;
    return 0;
}

void remo_tx_queue_close(struct remo_tx_queue *queue) {
    if (!queue)
        return;
    remo_structure_close(queue->structure);
    free(queue);
}

struct remo_structure *remo_tx_queue_structure(struct remo_tx_queue *queue) {
    return queue ? queue->structure : NULL;
}

/* ---- in a transaction ---- */

static int check_queue(const struct remo_tx_queue *queue) {
    return queue ? 0 : remo__fail(-EINVAL, "cannot use a queue: it is NULL");
}

static int put(struct remo_tx *tx, const struct remo_tx_queue *queue, uint64_t key, const void *value,
               size_t value_bytes) {
    return remo_tx_put(tx, queue->structure, &key, sizeof key, value, value_bytes);
}

/* A push or pop that has used the transaction has this result. After an error, no part of it takes effect. */
static int complete(struct remo_tx *tx, int rc) {
    if (rc != 0 && rc != -EINVAL)
        remo_tx_abort(tx);
    return rc;
}

static struct remo_tx_lookup lookup(const struct remo_tx_queue *queue, const uint64_t *key, void *value,
                                    size_t cap) {
    return (struct remo_tx_lookup){
        .structure = queue->structure, .key = key, .key_bytes = sizeof *key, .value = value, .cap = cap};
}

int remo_tx_queue_push(struct remo_tx *tx, struct remo_tx_queue *queue, const void *value,
                       size_t value_bytes) {
    int rc = check_queue(queue);
    if (rc != 0)
        return rc;
    if (!value && value_bytes > 0)
        return remo__fail(-EINVAL, "cannot push an element of %zu bytes: `value` is NULL", value_bytes);
    if (value_bytes > queue->value_bytes_max)
        return remo__fail(-EMSGSIZE,
                          "cannot push an element of %zu bytes: the queue has value_bytes_max = %u",
                          value_bytes, queue->value_bytes_max);
    uint64_t back = 0;
    rc = remo_tx_read(tx, queue->structure, &back_key, sizeof back_key, &back, sizeof back, NULL);
    uint64_t next = back + 1;
    if (rc == 0 || rc == -ENOENT)
        rc = put(tx, queue, back, value, value_bytes);
    if (rc == 0)
        rc = put(tx, queue, back_key, &next, sizeof next);
    return complete(tx, rc);
}

/* Read the front, and the element that it refers to; at the same time, if that is the expected one. */
static int read_first(struct remo_tx *tx, struct remo_tx_queue *queue, void *value, size_t cap,
                      uint64_t *ret_front, size_t *ret_value_bytes) {
    uint64_t front = 0, expected = atomic_load_explicit(&queue->expected_front, memory_order_relaxed);
    struct remo_tx_lookup lookups[] = {lookup(queue, &front_key, &front, sizeof front),
                                       lookup(queue, &expected, value, cap)};
    int rc = remo_tx_read_many(tx, lookups, 2);
    if (lookups[0].status != 0 && lookups[0].status != -ENOENT)
        return rc;
    *ret_front = front;
    if (front == expected) {
        *ret_value_bytes = lookups[1].value_bytes;
        return lookups[1].status;
    }
    atomic_store_explicit(&queue->expected_front, front, memory_order_relaxed);
    return remo_tx_read(tx, queue->structure, &front, sizeof front, value, cap, ret_value_bytes);
}

int remo_tx_queue_pop(struct remo_tx *tx, struct remo_tx_queue *queue, void *value, size_t cap,
                      size_t *ret_value_bytes) {
    uint64_t front = 0;
    size_t bytes = 0;
    int rc = check_queue(queue);
    if (rc == 0)
        rc = read_first(tx, queue, value, cap, &front, &bytes);
    if (rc == -ENOENT)
        return remo__fail_static(-ENOENT, "the queue is empty");
    if (ret_value_bytes && (rc == 0 || bytes > cap))
        *ret_value_bytes = bytes;
    if (bytes > cap)
        return remo__fail(-EMSGSIZE, "the first element has %zu bytes, and there is room for %zu", bytes,
                          cap);
    uint64_t next = front + 1;
    if (rc == 0)
        rc = put(tx, queue, front_key, &next, sizeof next);
    if (rc == 0)
        rc = remo_tx_delete(tx, queue->structure, &front, sizeof front);
    if (rc == 0)
        atomic_store_explicit(&queue->expected_front, next, memory_order_relaxed);
    return complete(tx, rc);
}

int remo_tx_queue_count(struct remo_tx *tx, struct remo_tx_queue *queue, uint64_t *ret_count) {
    int rc = check_queue(queue);
    if (rc == 0 && !ret_count)
        rc = remo__fail(-EINVAL, "cannot count the elements of a queue: ret_count is NULL");
    if (rc != 0)
        return rc;
    uint64_t front = 0, back = 0;
    struct remo_tx_lookup lookups[] = {lookup(queue, &front_key, &front, sizeof front),
                                       lookup(queue, &back_key, &back, sizeof back)};
    rc = remo_tx_read_many(tx, lookups, 2);
    if (rc == 0)
        *ret_count = back > front ? back - front : 0; /* of different moments: the commit detects that */
    return rc;
}
