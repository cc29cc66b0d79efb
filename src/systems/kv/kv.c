/* kv.c - implements remo/kv.h: open, close, and single operations, which are windows of one operation.
 * How the map works: docs/internals/kv.md. */
#include "systems/kv/kv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define CAPACITY_DEFAULT 65536u
#define KEY_BYTES_DEFAULT 64u
#define VALUE_BYTES_DEFAULT 1024u
#define STRIPES_DEFAULT 1024u

/* ---- open ---- */

static int check_options(const struct remo_kv_options *options, uint32_t nodes) {
    if (options->key_bytes_max > REMO__KV_KEY_BYTES_MAX)
        return remo__fail(-EINVAL, "cannot open a map with key_bytes_max = %u: the maximum is %u",
                          options->key_bytes_max, REMO__KV_KEY_BYTES_MAX);
    if (options->value_bytes_max > REMO__KV_VALUE_BYTES_MAX)
        return remo__fail(-EINVAL, "cannot open a map with value_bytes_max = %u: the maximum is %u",
                          options->value_bytes_max, REMO__KV_VALUE_BYTES_MAX);
    if (options->capacity / nodes >= REMO__KV_SLOTS_MAX / 11 * 10)
        return remo__fail(
            -EINVAL,
            "cannot open a map with a capacity of %llu keys on %u nodes: the maximum is %u keys per node",
            (unsigned long long)options->capacity, nodes, REMO__KV_SLOTS_MAX / 11 * 10);
    return 0;
}

/* Return the options with a default for each field that is 0. */
static struct remo_kv_options apply_defaults(const struct remo_kv_options *given) {
    struct remo_kv_options options = given ? *given : (struct remo_kv_options){0};
    options.capacity = options.capacity ? options.capacity : CAPACITY_DEFAULT;
    options.key_bytes_max = options.key_bytes_max ? options.key_bytes_max : KEY_BYTES_DEFAULT;
    options.value_bytes_max = options.value_bytes_max ? options.value_bytes_max : VALUE_BYTES_DEFAULT;
    options.stripes = options.stripes ? options.stripes : STRIPES_DEFAULT;
    return options;
}

static int open_channel(struct remo_kv *kv, struct remo_channel *parent, const char *name,
                        const struct remo_kv_options *options) {
    struct remo_channel_options channel = {.participants = options->participants};
    char type[64]; /* contains all options that must be equal on all participants */
    snprintf(type, sizeof type, "kv(%llu of %u+%u, %u)", (unsigned long long)options->capacity,
             options->key_bytes_max, options->value_bytes_max, options->stripes);
    return remo_channel_open(parent, name, type, &channel, &kv->channel);
}

/* Each index has room for the records of all nodes, so among many nodes each node has fewer messages. */
static uint32_t messages_of(uint32_t nodes) {
    return (uint32_t)remo__min(remo__max(REMO__KV_MESSAGES_OF_ALL / nodes, REMO__KV_MESSAGES_MIN),
                               REMO__KV_MESSAGES_MAX);
}

/* Large slots leave memory for fewer workers. */
static uint32_t workers_of(const struct remo__kv_shape *shape) {
    uint64_t bytes = (2 + REMO__KV_WORKER_SPARES) * shape->slot_bytes;
    return (uint32_t)remo__min(remo__max(REMO__KV_WORKERS_BYTES / bytes, 1), REMO__KV_WORKERS_MAX);
}

/* Allocate private memory. It must be in place before the first peer can send to this node. */
static int open_private(struct remo_kv *kv, const struct remo_kv_options *options, uint32_t nodes) {
    uint64_t share = (options->capacity + nodes - 1) / nodes;
    kv->slots_per_node = (uint32_t)(share + share / 10 + 1);
    kv->shape = remo__kv_shape_of(options->key_bytes_max, options->value_bytes_max);
    kv->workers_max = workers_of(&kv->shape);
    kv->stripes = options->stripes;
    kv->hash_mask = UINT64_MAX;
    kv->messages_max = messages_of(nodes);
    kv->reclaim_key = malloc(options->key_bytes_max);
    if (!kv->reclaim_key)
        return remo__fail(-ENOMEM, "no memory for a key of %u bytes", options->key_bytes_max);
    /* Entries whose removal is in a message or deferred: "Size of the index" in docs/internals/kv.md. */
    uint64_t ended_max = kv->messages_max * REMO__KV_BATCH_MAX + REMO__KV_DEFERRED_MAX;
    int rc = remo__kv_index_open(&kv->index, nodes * (kv->slots_per_node + ended_max));
    return rc != 0 ? rc : remo__kv_pool_open(&kv->pool, kv->slots_per_node, &kv->index_mutex);
}

static int open_objects(struct remo_kv *kv) {
    struct remo_lock_options locks = {.count = kv->stripes, .homes = *remo_channel_participants(kv->channel)};
    int rc =
        remo_region_open(kv->channel, "slots", kv->slots_per_node * kv->shape.slot_bytes, NULL, &kv->slots);
    if (rc != 0)
        return rc;
    kv->own = remo_region_local(kv->slots);
    kv->memory = kv->slots->memory;
    kv->is_small = kv->node->mapped && remo__align_up(kv->shape.key_bytes_max, 8) == 8
                   && remo__align_up(kv->shape.value_bytes_max, 8) == 8;
    rc = remo_lock_open(kv->channel, "locks", &locks, &kv->locks);
    return rc != 0 ? rc : remo__kv_trackers_open(kv);
}

int remo_kv_open(struct remo_channel *parent, const char *name, const struct remo_kv_options *options,
                 struct remo_kv **ret_kv) {
    if (!parent || !ret_kv)
        return remo__fail(-EINVAL, "cannot open a map: parent or ret_kv is NULL");
    struct remo_kv_options all = apply_defaults(options);
    int rc = remo__require_coherence(parent, "a map");
    if (rc != 0)
        return rc;
    struct remo_kv *kv = aligned_alloc(REMO__CACHE_LINE, remo__align_up(sizeof *kv, REMO__CACHE_LINE));
    if (!kv)
        return remo__fail(-ENOMEM, "no memory for a map");
    memset(kv, 0, sizeof *kv);
    rc = open_channel(kv, parent, name, &all);
    if (rc != 0)
        goto fail;
    kv->node = remo_channel_node(kv->channel);
    kv->rank = kv->node->rank;
    uint32_t nodes = remo__nodeset_count(remo_channel_participants(kv->channel));
    rc = check_options(&all, nodes);
    if (rc == 0)
        rc = open_private(kv, &all, nodes);
    if (rc == 0)
        rc = open_objects(kv);
    if (rc == 0)
        rc = remo_channel_join(kv->channel);
    if (rc != 0)
        goto fail;
    *ret_kv = kv;
    return 0;
fail:
    remo_kv_close(kv);
    return remo__fail_more(rc, "map %s", name ? name : "");
}

void remo_kv_close(struct remo_kv *kv) {
    if (!kv)
        return;
    remo__kv_trackers_close(kv);
    remo_lock_close(kv->locks);
    remo_region_close(kv->slots); /* waits for operations in flight */
    remo_channel_close(kv->channel);
    if (kv->node)
        remo__kv_threads_close(kv);
    remo__kv_pool_close(&kv->pool);
    remo__kv_index_close(&kv->index);
    free(kv->reclaim_key);
    free(kv);
}

struct remo_channel *remo_kv_channel(struct remo_kv *kv) {
    return kv ? kv->channel : NULL;
}

uint64_t remo_kv_count(const struct remo_kv *kv) {
    return kv ? remo__kv_index_count(&kv->index) : 0;
}

void remo__kv_set_hash_mask(struct remo_kv *kv, uint64_t mask) {
    kv->hash_mask = mask;
}

/* ---- single operations ---- */

static int change_now(struct remo_kv *kv, enum remo_kv_kind kind, const void *key, size_t key_bytes,
                      const void *value, size_t value_bytes) {
    struct remo_kv_op op = {.kind = kind,
                            .key = key,
                            .key_bytes = key_bytes,
                            .value = (void *)(uintptr_t)value,
                            .value_bytes = value_bytes};
    return remo__kv_run(kv, &op);
}

int remo_kv_insert(struct remo_kv *kv, const void *key, size_t key_bytes, const void *value,
                   size_t value_bytes) {
    REMO__REQUIRE(kv);
    return change_now(kv, REMO_KV_INSERT, key, key_bytes, value, value_bytes);
}

int remo_kv_update(struct remo_kv *kv, const void *key, size_t key_bytes, const void *value,
                   size_t value_bytes) {
    REMO__REQUIRE(kv);
    return change_now(kv, REMO_KV_UPDATE, key, key_bytes, value, value_bytes);
}

int remo_kv_put(struct remo_kv *kv, const void *key, size_t key_bytes, const void *value,
                size_t value_bytes) {
    REMO__REQUIRE(kv);
    return change_now(kv, REMO_KV_PUT, key, key_bytes, value, value_bytes);
}

int remo_kv_fetch_add(struct remo_kv *kv, const void *key, size_t key_bytes, uint64_t delta,
                      uint64_t *ret_old) {
    REMO__REQUIRE(kv);
    struct remo_kv_op op = {.kind = REMO_KV_FETCH_ADD,
                            .key = key,
                            .key_bytes = key_bytes,
                            .value = ret_old,
                            .value_bytes = ret_old ? sizeof *ret_old : 0,
                            .delta = delta};
    return remo__kv_run(kv, &op);
}

int remo_kv_compare_put(struct remo_kv *kv, const void *key, size_t key_bytes, const void *expected,
                        size_t expected_bytes, const void *value, size_t value_bytes) {
    REMO__REQUIRE(kv);
    struct remo_kv_op op = {.kind = REMO_KV_COMPARE_PUT,
                            .key = key,
                            .key_bytes = key_bytes,
                            .value = (void *)(uintptr_t)value,
                            .value_bytes = value_bytes,
                            .expected = expected,
                            .expected_bytes = expected_bytes};
    return remo__kv_run(kv, &op);
}

int remo_kv_delete(struct remo_kv *kv, const void *key, size_t key_bytes) {
    REMO__REQUIRE(kv);
    return change_now(kv, REMO_KV_DELETE, key, key_bytes, NULL, 0);
}
