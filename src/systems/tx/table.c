/* table.c - implements remo/table.h: buckets and overflow chains of a hash table, as a structure.
 * Share of a node: buckets, then the items of overflow chains. The chains themselves are private memory of
 * the owner: only it follows them.
 * Invariant: while the item of a key is in an overflow chain and valid, its bucket shows a chain. */
#include <remo/table.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "systems/tx/item.h"

#define CAPACITY_DEFAULT 65536u
#define CAPACITY_MAX (UINT64_C(1) << 32)
#define KEY_BYTES_DEFAULT 8u
#define VALUE_BYTES_DEFAULT 80u
#define SLOTS_PERCENT_DEFAULT 200u
#define OVERFLOW_PERCENT_DEFAULT 50u
#define PERCENT_MAX 10000u
#define PLACES_DEFAULT 65536u
#define PLACES_MAX (1u << 30)

#define HAS_CHAIN UINT64_C(1) /* in the first word of a bucket */
#define CHAIN_BYTES 8u        /* of a bucket, before its items: HAS_CHAIN, and a count of changes */
#define NONE UINT32_MAX

/* A remembered place: the high bits of the key's hash, and offset / 8 + 1. 0: none. Another key may have the
 * same bits, so the key of the item is compared after the read. */
#define PLACE_WAYS 4u /* entries in which the place of a key may be */
#define PLACE_BITS 40u
#define PLACE_MASK ((UINT64_C(1) << PLACE_BITS) - 1)

struct remo_table {
    struct remo_structure *structure;
    struct remo_structure_type type;
    char name[64]; /* of the type */
    struct remo_nodeset participants;
    uint16_t owners[REMO_NODES_MAX];
    uint32_t owner_count;
    uint32_t width, partition_bytes;
    uint32_t buckets, overflow_items; /* of each node */
    uint64_t item_bytes, bucket_bytes, overflow_at;
    bool calls_only;
    _Atomic uint64_t *places;
    uint32_t place_mask;

    /* At the owner. The group of a key is its bucket, so one thread at a time uses a chain. */
    char *own;
    uint32_t *first;            /* [buckets]: overflow item, or NONE */
    uint32_t *next;             /* [overflow_items]: in the chain, or in the list of free items */
    pthread_mutex_t free_mutex; /* protects free_first */
    uint32_t free_first;
};

/* ---- which node, which bucket ---- */

/* Return a number below `count`: the high bits of a 32-bit hash. */
static uint32_t scale(uint32_t hash, uint32_t count) {
    return (uint32_t)((uint64_t)hash * count >> 32);
}

static uint32_t owner_of(void *ctx, const struct remo_structure_key *key) {
    const struct remo_table *table = ctx;
    uint64_t hash = key->hash;
    if (table->partition_bytes > 0 && key->bytes > table->partition_bytes)
        hash = XXH3_64bits(key->data, table->partition_bytes);
    return table->owners[scale((uint32_t)(hash >> 32), table->owner_count)];
}

static uint32_t bucket_of(void *ctx, const struct remo_structure_key *key) {
    const struct remo_table *table = ctx;
    return scale((uint32_t)key->hash, table->buckets);
}

static uint64_t bucket_at(const struct remo_table *table, uint32_t bucket) {
    return bucket * table->bucket_bytes;
}

static uint64_t slot_at(const struct remo_table *table, uint32_t bucket, uint32_t slot) {
    return bucket_at(table, bucket) + CHAIN_BYTES + slot * table->item_bytes;
}

static uint64_t overflow_at(const struct remo_table *table, uint32_t item) {
    return table->overflow_at + item * table->item_bytes;
}

static bool is_overflow(const struct remo_table *table, uint64_t offset) {
    return offset >= table->overflow_at;
}

/* ---- lookups ---- */

/* Return the entries of the key. */
static _Atomic uint64_t *places_of(struct remo_table *table, const struct remo_structure_key *key) {
    return &table->places[(uint32_t)(key->hash >> 8) & table->place_mask & ~(PLACE_WAYS - 1)];
}

static bool is_place_of(uint64_t place, const struct remo_structure_key *key) {
    return place != 0 && (place & ~PLACE_MASK) == (key->hash & ~PLACE_MASK);
}

/* Return the entry with the place of the key, or NULL. */
static _Atomic uint64_t *find_place(struct remo_table *table, const struct remo_structure_key *key,
                                    uint64_t *ret_place) {
    _Atomic uint64_t *places = places_of(table, key);
    for (uint32_t i = 0; i < PLACE_WAYS; i++) {
        *ret_place = atomic_load_explicit(&places[i], memory_order_relaxed);
        if (is_place_of(*ret_place, key))
            return &places[i];
    }
    return NULL;
}

static bool lookup_start(void *ctx, const struct remo_structure_key *key, uint32_t owner,
                         struct remo_structure_place *ret_place) {
    struct remo_table *table = ctx;
    (void)owner;
    if (table->calls_only)
        return false;
    uint64_t place;
    if (find_place(table, key, &place))
        *ret_place = (struct remo_structure_place){.offset = ((place & PLACE_MASK) - 1) * 8,
                                                   .bytes = table->item_bytes};
    else
        *ret_place = (struct remo_structure_place){.offset = bucket_at(table, bucket_of(table, key)),
                                                   .bytes = CHAIN_BYTES + table->width * table->item_bytes};
    return true;
}

static void learn(void *ctx, const struct remo_structure_key *key, uint32_t owner, uint64_t offset) {
    struct remo_table *table = ctx;
    (void)owner;
    if (!is_overflow(table, offset) || offset / 8 >= PLACE_MASK)
        return;
    _Atomic uint64_t *places = places_of(table, key);
    uint32_t way = (uint32_t)(offset / table->item_bytes % PLACE_WAYS); /* if all are in use */
    for (uint32_t i = 0; i < PLACE_WAYS; i++) {
        uint64_t place = atomic_load_explicit(&places[i], memory_order_relaxed);
        if (place == 0 || is_place_of(place, key)) {
            way = i;
            break;
        }
    }
    atomic_store_explicit(&places[way], (key->hash & ~PLACE_MASK) | (offset / 8 + 1), memory_order_relaxed);
}

/* The place that was remembered has another key now, or none. */
static void forget(struct remo_table *table, const struct remo_structure_key *key) {
    uint64_t place;
    _Atomic uint64_t *entry = find_place(table, key, &place);
    if (entry)
        atomic_store_explicit(entry, 0, memory_order_relaxed);
}

static enum remo_lookup_verdict judge_place(struct remo_table *table, const struct remo_structure_key *key,
                                            uint64_t offset, const void *data, struct remo_item *ret_item) {
    enum remo_item_state state = remo_item_read(table->structure, key, data, offset, ret_item);
    if (state == REMO_ITEM_MATCHES)
        return REMO_LOOKUP_FOUND;
    if (state == REMO_ITEM_TORN)
        return REMO_LOOKUP_TORN;
    forget(table, key);
    return REMO_LOOKUP_ELSEWHERE;
}

static enum remo_lookup_verdict judge_bucket(const struct remo_table *table,
                                             const struct remo_structure_key *key, uint64_t offset,
                                             const char *data, struct remo_item *ret_item) {
    bool is_torn = false;
    uint64_t chained;
    for (uint32_t slot = 0; slot < table->width; slot++) {
        uint64_t at = CHAIN_BYTES + slot * table->item_bytes;
        enum remo_item_state state = remo_item_read(table->structure, key, data + at, offset + at, ret_item);
        if (state == REMO_ITEM_MATCHES)
            return REMO_LOOKUP_FOUND;
        is_torn |= state == REMO_ITEM_TORN;
    }
    memcpy(&chained, data, sizeof chained);
    if (is_torn)
        return REMO_LOOKUP_TORN;
    return !(chained & HAS_CHAIN) ? REMO_LOOKUP_ABSENT : REMO_LOOKUP_ELSEWHERE;
}

static enum remo_lookup_verdict lookup_end(void *ctx, const struct remo_structure_key *key, uint32_t owner,
                                           const struct remo_structure_place *place, const void *data,
                                           struct remo_item *ret_item) {
    struct remo_table *table = ctx;
    (void)owner;
    return is_overflow(table, place->offset) ? judge_place(table, key, place->offset, data, ret_item)
                                             : judge_bucket(table, key, place->offset, data, ret_item);
}

/* ---- at the owner ---- */

static uint64_t find(void *ctx, const struct remo_structure_key *key) {
    const struct remo_table *table = ctx;
    uint32_t bucket = bucket_of(ctx, key);
    for (uint32_t slot = 0; slot < table->width; slot++)
        if (remo_item_state_of(table->structure, key, slot_at(table, bucket, slot)) == REMO_ITEM_MATCHES)
            return slot_at(table, bucket, slot);
    for (uint32_t item = table->first[bucket]; item != NONE; item = table->next[item])
        if (remo_item_state_of(table->structure, key, overflow_at(table, item)) == REMO_ITEM_MATCHES)
            return overflow_at(table, item);
    return REMO_STRUCTURE_NOWHERE;
}

static int make(void *ctx, const struct remo_structure_key *key, uint64_t *ret_offset) {
    struct remo_table *table = ctx;
    uint32_t bucket = bucket_of(ctx, key);
    for (uint32_t slot = 0; slot < table->width; slot++)
        if (remo_item_state_of(table->structure, key, slot_at(table, bucket, slot)) == REMO_ITEM_FREE) {
            *ret_offset = slot_at(table, bucket, slot);
            return 0;
        }
    pthread_mutex_lock(&table->free_mutex);
    uint32_t item = table->free_first;
    if (item != NONE)
        table->free_first = table->next[item];
    pthread_mutex_unlock(&table->free_mutex);
    if (item == NONE)
        return -ENOSPC;
    *ret_offset = overflow_at(table, item);
    return 0;
}

static uint32_t overflow_item(const struct remo_table *table, uint64_t offset) {
    return (uint32_t)((offset - table->overflow_at) / table->item_bytes);
}

/* Store in the bucket whether it has an overflow chain, and the number of this change. */
static void publish_chain(const struct remo_table *table, uint32_t bucket) {
    char *at = table->own + bucket_at(table, bucket);
    uint64_t changes = (remo__load(at) | HAS_CHAIN) + 1;
    remo__store(at, changes | (table->first[bucket] != NONE ? HAS_CHAIN : 0));
}

static void link_item(void *ctx, const struct remo_structure_key *key, uint64_t offset) {
    struct remo_table *table = ctx;
    if (!is_overflow(table, offset))
        return;
    uint32_t bucket = bucket_of(ctx, key), item = overflow_item(table, offset);
    table->next[item] = table->first[bucket];
    table->first[bucket] = item;
    publish_chain(table, bucket);
}

static void unlink_item(void *ctx, const struct remo_structure_key *key, uint64_t offset) {
    struct remo_table *table = ctx;
    if (!is_overflow(table, offset))
        return;
    uint32_t bucket = bucket_of(ctx, key), item = overflow_item(table, offset);
    uint32_t *link = &table->first[bucket];
    while (*link != item)
        link = &table->next[*link];
    *link = table->next[item];
    publish_chain(table, bucket);
    pthread_mutex_lock(&table->free_mutex);
    table->next[item] = table->free_first;
    table->free_first = item;
    pthread_mutex_unlock(&table->free_mutex);
}

/* ---- open ---- */

static uint32_t or_default(uint32_t given, uint32_t otherwise) {
    return given ? given : otherwise;
}

static struct remo_table_options apply_defaults(const struct remo_table_options *given) {
    struct remo_table_options options = given ? *given : (struct remo_table_options){0};
    options.capacity = options.capacity ? options.capacity : CAPACITY_DEFAULT;
    options.key_bytes_max = or_default(options.key_bytes_max, KEY_BYTES_DEFAULT);
    options.value_bytes_max = or_default(options.value_bytes_max, VALUE_BYTES_DEFAULT);
    options.width = or_default(options.width, 1);
    options.slots_percent = or_default(options.slots_percent, SLOTS_PERCENT_DEFAULT);
    options.overflow_percent = or_default(options.overflow_percent, OVERFLOW_PERCENT_DEFAULT);
    options.places = or_default(options.places, PLACES_DEFAULT);
    return options;
}

static int check_options(const struct remo_table_options *options) {
    uint32_t width = options->width;
    if (options->capacity > CAPACITY_MAX)
        return remo__fail(-EINVAL, "cannot open a table for %llu keys: the maximum is %llu",
                          (unsigned long long)options->capacity, (unsigned long long)CAPACITY_MAX);
    if (width > REMO_TABLE_WIDTH_MAX || (width & (width - 1)) != 0)
        return remo__fail(-EINVAL, "cannot open a table with buckets of width %u: give 1, 2, 4 or 8", width);
    if (options->slots_percent > PERCENT_MAX || options->overflow_percent > PERCENT_MAX)
        return remo__fail(
            -EINVAL,
            "cannot open a table with slots_percent = %u and overflow_percent = %u: the maximum "
            "is %u",
            options->slots_percent, options->overflow_percent, PERCENT_MAX);
    if ((uint32_t)options->lookups > REMO_TABLE_CALLS_ONLY)
        return remo__fail(-EINVAL, "cannot open a table with lookups = %d: give a value of the enum",
                          (int)options->lookups);
    if (options->places > PLACES_MAX)
        return remo__fail(-EINVAL, "cannot open a table that remembers %u places: the maximum is %u",
                          options->places, PLACES_MAX);
    if (options->key_bytes_max > REMO_ITEM_BYTES_MAX || options->value_bytes_max > REMO_ITEM_BYTES_MAX)
        return 0; /* the structure refuses it */
    uint64_t bytes =
        CHAIN_BYTES + width * remo_structure_item_bytes(options->key_bytes_max, options->value_bytes_max);
    if (bytes > REMO_PLACE_BYTES_MAX)
        return remo__fail(-EINVAL,
                          "cannot open a table with buckets of %llu bytes: the maximum is %u; give a smaller "
                          "width",
                          (unsigned long long)bytes, REMO_PLACE_BYTES_MAX);
    return 0;
}

static void set_owners(struct remo_table *table) {
    for (uint32_t node = 0; node < REMO_NODES_MAX; node++)
        if (remo_nodeset_has(&table->participants, node))
            table->owners[table->owner_count++] = (uint16_t)node;
}

static int set_layout(struct remo_table *table, const struct remo_table_options *options) {
    uint64_t keys = (options->capacity + table->owner_count - 1) / table->owner_count;
    uint64_t slots = keys * options->slots_percent / 100;
    uint64_t buckets = (slots + options->width - 1) / options->width;
    uint64_t overflow = keys * options->overflow_percent / 100;
    if (buckets >= NONE || overflow >= NONE)
        return remo__fail(-EINVAL,
                          "cannot open a table with %llu buckets and %llu overflow items on a node: "
                          "the maximum is %u each",
                          (unsigned long long)buckets, (unsigned long long)overflow, NONE - 1);
    table->width = options->width;
    table->partition_bytes = options->partition_bytes;
    table->calls_only = options->lookups == REMO_TABLE_CALLS_ONLY;
    table->buckets = (uint32_t)remo__max(buckets, 1);
    table->overflow_items = (uint32_t)overflow;
    table->item_bytes = remo_structure_item_bytes(options->key_bytes_max, options->value_bytes_max);
    table->bucket_bytes = remo__align_up(CHAIN_BYTES + table->width * table->item_bytes, REMO__CACHE_LINE);
    table->overflow_at = table->buckets * table->bucket_bytes;
    return 0;
}

static int make_private(struct remo_table *table, const struct remo_table_options *options) {
    uint64_t places = remo__power_of_two_from(remo__max(options->places, PLACE_WAYS));
    table->place_mask = (uint32_t)(places - 1);
    table->places =
        aligned_alloc(REMO__CACHE_LINE, remo__align_up(places * sizeof *table->places, REMO__CACHE_LINE));
    table->first = malloc(table->buckets * sizeof *table->first);
    table->next = malloc((table->overflow_items + UINT64_C(1)) * sizeof *table->next);
    if (!table->places || !table->first || !table->next)
        return remo__fail(-ENOMEM, "no memory for a table of %u buckets", table->buckets);
    memset((void *)table->places, 0, places * sizeof *table->places);
    for (uint32_t i = 0; i < table->buckets; i++)
        table->first[i] = NONE;
    for (uint32_t i = 0; i < table->overflow_items; i++)
        table->next[i] = i + 1 < table->overflow_items ? i + 1 : NONE;
    table->free_first = table->overflow_items > 0 ? 0 : NONE;
    return 0;
}

static void set_type(struct remo_table *table, const struct remo_table_options *options) {
    snprintf(table->name, sizeof table->name, "table %llu,%u,%u,%u,%u", (unsigned long long)options->capacity,
             options->width, options->slots_percent, options->overflow_percent, options->partition_bytes);
    table->type = (struct remo_structure_type){.name = table->name,
                                               .owner = owner_of,
                                               .lookup_start = lookup_start,
                                               .lookup_end = lookup_end,
                                               .learn = learn,
                                               .group = bucket_of,
                                               .find = find,
                                               .make = make,
                                               .link = link_item,
                                               .unlink = unlink_item};
}

static void opened(void *ctx, struct remo_structure *structure, char *share) {
    struct remo_table *table = ctx;
    table->structure = structure;
    table->own = share;
}

static int open_structure(struct remo_table *table, struct remo_channel *parent, const char *name,
                          const struct remo_table_options *options) {
    struct remo_structure_options structure = {.participants = table->participants,
                                               .share_bytes = table->overflow_at
                                                              + table->overflow_items * table->item_bytes,
                                               .key_bytes_max = options->key_bytes_max,
                                               .value_bytes_max = options->value_bytes_max,
                                               .ctx = table,
                                               .opened = opened};
    struct remo_structure *ignored;
    set_type(table, options);
    return remo_structure_open(parent, name, &table->type, &structure, &ignored);
}

static void free_table(struct remo_table *table) {
    pthread_mutex_destroy(&table->free_mutex);
    free((void *)table->places);
    free(table->first);
    free(table->next);
    free(table);
}

int remo_table_open(struct remo_channel *parent, const char *name, const struct remo_table_options *options,
                    struct remo_table **ret_table) {
    if (!parent || !ret_table)
        return remo__fail(-EINVAL, "cannot open a table: parent or ret_table is NULL");
    struct remo_table_options all = apply_defaults(options);
    int rc = check_options(&all);
    if (rc != 0)
        return rc;
    struct remo_table *table = calloc(1, sizeof *table);
    if (!table || pthread_mutex_init(&table->free_mutex, NULL) != 0) {
        free(table);
        return remo__fail(-ENOMEM, "no memory for a table");
    }
    table->participants =
        remo_nodeset_empty(&all.participants) ? *remo_channel_participants(parent) : all.participants;
    set_owners(table);
    rc = set_layout(table, &all);
    if (rc == 0)
        rc = make_private(table, &all);
    if (rc == 0)
        rc = open_structure(table, parent, name, &all);
    if (rc != 0) {
        free_table(table);
        return rc;
    }
    *ret_table = table;
    return 0;
}

void remo_table_close(struct remo_table *table) {
    if (!table)
        return;
    remo_structure_close(table->structure);
    free_table(table);
}

struct remo_structure *remo_table_structure(struct remo_table *table) {
    return table ? table->structure : NULL;
}

uint32_t remo_table_owner(const struct remo_table *table, const void *key, size_t key_bytes) {
    if (!table || !key)
        return UINT32_MAX;
    struct remo_structure_key wanted = {.data = key, .bytes = key_bytes, .hash = XXH3_64bits(key, key_bytes)};
    return owner_of((void *)(uintptr_t)table, &wanted);
}
