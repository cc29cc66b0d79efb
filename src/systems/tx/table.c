/* table.c - implements remo/table.h: options of a hash table, and lookups at any node (table.h).
 * Invariant: the buckets and pages of an owner that this node has detected still exist, because they are only
 * added. If there are more, a lookup detects by the level of the bucket that the key has moved. */
#include "systems/tx/table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/pages.h"

#define CAPACITY_DEFAULT 65536u
#define CAPACITY_MAX (UINT64_C(1) << 32)
#define GROWTH_DEFAULT 1024u
#define KEY_BYTES_DEFAULT 8u
#define VALUE_BYTES_DEFAULT 80u
#define SLOTS_PERCENT_DEFAULT 200u
#define OVERFLOW_PERCENT_DEFAULT 50u
#define PERCENT_MAX 10000u
#define PLACES_DEFAULT 65536u
#define PLACES_MAX (1u << 30)

#define NONE REMO__TABLE_NONE

/* A remembered place: the high bits of the key's hash, and offset / 8 + 1, modulo 2^43. 0: none. Another key
 * may have the same bits, so the key of the item is compared after the read. An offset in an extension may be
 * negative; it has 45 bits with its sign (address.h). */
#define PLACE_WAYS 4u /* entries in which the place of a key may be */
#define PLACE_BITS 43u
#define PLACE_MASK ((UINT64_C(1) << PLACE_BITS) - 1)

/* ---- which node ---- */

static uint32_t owner_of(void *ctx, const struct remo_structure_key *key) {
    const struct remo_table *table = ctx;
    uint64_t hash = key->hash;
    if (table->partition_bytes > 0 && key->bytes > table->partition_bytes)
        hash = XXH3_64bits(key->data, table->partition_bytes);
    return table->owners[remo__table_scale((uint32_t)(hash >> 32), table->owner_count)];
}

/* ---- the buckets that this node has detected ---- */

/* Remember that the owner has at least `buckets` buckets. */
static void raise_extent(struct remo_table *table, struct remo__table_seen *seen, uint64_t buckets) {
    uint64_t was = atomic_load_explicit(&seen->extent, memory_order_relaxed);
    uint64_t extent = remo__table_extent(table, (uint32_t)buckets);
    while ((uint32_t)was < buckets
           && !atomic_compare_exchange_weak_explicit(&seen->extent, &was, extent, memory_order_release,
                                                     memory_order_relaxed)) {
    }
    atomic_store_explicit(&table->has_grown, true, memory_order_relaxed);
}

/* Remember the pages of the owner, and the number of its buckets. */
static void read_page_list(struct remo_table *table, struct remo__table_seen *seen, const uint64_t *words) {
    uint64_t known = table->buckets;
    for (uint32_t page = 1; page <= table->levels && words[page] != 0 && words[page] % 8 == 0; page++) {
        atomic_store_explicit(&seen->origins[page], remo__table_origin(table, page, words[page]),
                              memory_order_relaxed);
        known *= 2;
    }
    atomic_store_explicit(&seen->is_stale, false, memory_order_relaxed);
    raise_extent(table, seen, remo__max(remo__min(words[0], known), table->buckets));
}

/* Return where a bucket is. If its page is unknown, this is no multiple of 8, so no place. */
static uint64_t seen_at(const struct remo_table *table, struct remo__table_seen *seen,
                        struct remo__table_bucket bucket) {
    return atomic_load_explicit(&seen->origins[bucket.page], memory_order_relaxed)
           + bucket.index * table->bucket_bytes;
}

/* Return whether the bucket at `offset`, which has this level, is the bucket of the key. If not, remember
 * what to read next: the page list, or a bucket that exists. The bucket of the key in the page of this level
 * exists if the bucket at `offset` was divided into it. If another bucket is divided into it, perhaps later,
 * this node reads that other bucket. */
static bool is_in_bucket(struct remo_table *table, const struct remo_structure_key *key, uint32_t owner,
                         uint64_t offset, uint32_t level) {
    struct remo__table_seen *seen = &table->seen[owner];
    struct remo__table_bucket bucket = remo__table_bucket_at(table, key->hash, level),
                              divided = remo__table_bucket_at(table, key->hash, level - 1);
    if (atomic_load_explicit(&seen->origins[bucket.page], memory_order_relaxed) == REMO__TABLE_UNKNOWN) {
        atomic_store_explicit(&seen->is_stale, true, memory_order_relaxed);
        atomic_store_explicit(&table->has_grown, true, memory_order_relaxed);
        return false;
    }
    if (seen_at(table, seen, bucket) == offset)
        return true;
    if (bucket.page == level && seen_at(table, seen, divided) != offset)
        bucket = divided;
    raise_extent(table, seen, bucket.index + UINT64_C(1));
    return false; /* that bucket exists, and is complete */
}

/* Return the offset of the key's bucket at an owner whose buckets have been divided. */
static uint64_t find_grown(const struct remo_table *table, const struct remo_structure_key *key,
                           uint32_t owner) {
    struct remo__table_seen *seen = &table->seen[owner];
    uint64_t extent = atomic_load_explicit(&seen->extent, memory_order_acquire);
    return seen_at(table, seen, remo__table_find(table, key->hash, extent));
}

/* Return the offset of the key's bucket at an owner whose buckets have not been divided. */
static inline uint64_t find_first(const struct remo_table *table, const struct remo_structure_key *key) {
    return remo__table_base(table, key->hash) * table->bucket_bytes;
}

/* ---- remembered places ---- */

/* Return the number of a key among the places and the hints. */
static uint32_t number_of(const struct remo_table *table, const struct remo_structure_key *key) {
    return (uint32_t)(key->hash >> 8) & table->place_mask;
}

/* Return the PLACE_WAYS entries in which the place of the key may be. */
static _Atomic uint64_t *places_of(const struct remo_table *table, const struct remo_structure_key *key) {
    return &table->places[number_of(table, key) & ~(PLACE_WAYS - 1)];
}

/* A hint is set if a place of its keys was remembered before. Most keys are in their bucket and have none.
 * For these, a lookup loads only the hint, which is in the CPU's cache. The places are 64 times as large. No
 * hint is ever cleared. */
static bool has_hint(const struct remo_table *table, const struct remo_structure_key *key) {
    uint32_t number = number_of(table, key);
    return atomic_load_explicit(&table->hints[number / 64], memory_order_relaxed) >> number % 64 & 1;
}

static void set_hint(struct remo_table *table, const struct remo_structure_key *key) {
    uint32_t number = number_of(table, key);
    if (!has_hint(table, key))
        atomic_fetch_or_explicit(&table->hints[number / 64], UINT64_C(1) << number % 64,
                                 memory_order_relaxed);
}

static bool is_place_of(uint64_t place, const struct remo_structure_key *key) {
    return place != 0 && (place & ~PLACE_MASK) == (key->hash & ~PLACE_MASK);
}

/* Return the entry with the place of the key, or NULL. */
static _Atomic uint64_t *find_place(struct remo_table *table, const struct remo_structure_key *key,
                                    uint64_t *ret_place) {
    _Atomic uint64_t *places = places_of(table, key);
    if (!has_hint(table, key))
        return NULL;
    for (uint32_t i = 0; i < PLACE_WAYS; i++) {
        *ret_place = atomic_load_explicit(&places[i], memory_order_relaxed);
        if (is_place_of(*ret_place, key))
            return &places[i];
    }
    return NULL;
}

/* Return the offset of a remembered place. */
static uint64_t offset_of(uint64_t place) {
    const uint32_t sign = 64 - PLACE_BITS;
    return (uint64_t)((int64_t)(place << sign) >> sign) * 8 - 8;
}

/* ---- lookups ---- */

static __attribute__((noinline)) void start_grown(const struct remo_table *table,
                                                  const struct remo_structure_key *key, uint32_t owner,
                                                  struct remo_structure_place *ret_place) {
    if (remo__unlikely(atomic_load_explicit(&table->seen[owner].is_stale, memory_order_relaxed)))
        *ret_place =
            (struct remo_structure_place){.offset = table->page_list_at, .bytes = table->page_list_bytes};
    else
        *ret_place = (struct remo_structure_place){.offset = find_grown(table, key, owner),
                                                   .bytes = table->read_bytes};
}

static bool lookup_start(void *ctx, const struct remo_structure_key *key, uint32_t owner,
                         struct remo_structure_place *ret_place) {
    struct remo_table *table = ctx;
    if (table->calls_only)
        return false;
    uint64_t place;
    if (find_place(table, key, &place))
        *ret_place = (struct remo_structure_place){.offset = offset_of(place), .bytes = table->item_bytes};
    else if (remo__likely(!atomic_load_explicit(&table->has_grown, memory_order_relaxed)))
        *ret_place =
            (struct remo_structure_place){.offset = find_first(table, key), .bytes = table->read_bytes};
    else
        start_grown(table, key, owner, ret_place);
    return true;
}

/* Elsewhere than at the owner the key is in its bucket, or in a remembered place: prefetch the bucket, and
 * where the place is remembered. */
static uint64_t prefetch(void *ctx, const struct remo_structure_key *key, uint32_t owner) {
    struct remo_table *table = ctx;
    const struct remo_structure *structure = table->structure;
    if (owner == structure->rank)
        return remo__table_prefetch_own(table, key);
    if (table->calls_only)
        return REMO_STRUCTURE_NOWHERE;
    uint64_t bucket = atomic_load_explicit(&table->has_grown, memory_order_relaxed)
                          ? find_grown(table, key, owner)
                          : find_first(table, key);
    if (has_hint(table, key))
        __builtin_prefetch((const void *)places_of(table, key));
    if (remo__structure_contains(structure, owner, bucket, table->read_bytes))
        remo__region_prefetch_read(structure->share, owner, bucket, table->read_bytes);
    return bucket;
}

static uint64_t place_of(uint64_t offset) {
    return (offset / 8 + 1) & PLACE_MASK;
}

static void learn(void *ctx, const struct remo_structure_key *key, uint32_t owner, uint64_t offset) {
    struct remo_table *table = ctx;
    uint64_t bucket = table->levels == 0 ? find_first(table, key) : find_grown(table, key, owner);
    if (offset - bucket < table->bucket_bytes)
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
    atomic_store_explicit(&places[way], (key->hash & ~PLACE_MASK) | place_of(offset), memory_order_relaxed);
    set_hint(table, key);
}

/* Forget the place of the key: it has another key now, or none. */
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

/* Return whether all slots have the level of the bucket. */
static bool is_consistent(const struct remo_table *table, const char *data, uint64_t word) {
    uint64_t different = 0;
    for (uint32_t slot = 0; slot < table->width; slot++) {
        uint64_t head;
        memcpy(&head, data + REMO__BUCKET_HEADER_BYTES + slot * table->item_bytes, sizeof head);
        different |= head ^ word;
    }
    return (different & REMO__BUCKET_LEVEL) == 0;
}

/* Judge a bucket in which no slot has the key. */
static enum remo_lookup_verdict judge_absent(struct remo_table *table, const struct remo_structure_key *key,
                                             uint32_t owner, uint64_t offset, const char *data,
                                             bool is_torn) {
    uint64_t word;
    memcpy(&word, data, sizeof word);
    uint32_t level = (uint32_t)(word & REMO__BUCKET_LEVEL) >> REMO__BUCKET_LEVEL_SHIFT;
    if (remo__unlikely(level > table->levels))
        return REMO_LOOKUP_ELSEWHERE; /* damaged */
    if (level > 0 && !is_in_bucket(table, key, owner, offset, level))
        return REMO_LOOKUP_TORN;
    if (is_torn || (table->levels > 0 && !is_consistent(table, data, word)))
        return REMO_LOOKUP_TORN;
    return !(word & REMO__BUCKET_HAS_CHAIN) ? REMO_LOOKUP_ABSENT : REMO_LOOKUP_ELSEWHERE;
}

static enum remo_lookup_verdict judge_bucket(struct remo_table *table, const struct remo_structure_key *key,
                                             uint32_t owner, uint64_t offset, const char *data,
                                             struct remo_item *ret_item) {
    bool is_torn = false;
    for (uint32_t slot = 0; slot < table->width; slot++) {
        uint64_t at = REMO__BUCKET_HEADER_BYTES + slot * table->item_bytes;
        enum remo_item_state state = remo_item_read(table->structure, key, data + at, offset + at, ret_item);
        if (state == REMO_ITEM_MATCHES)
            return REMO_LOOKUP_FOUND;
        is_torn |= state == REMO_ITEM_TORN;
    }
    return judge_absent(table, key, owner, offset, data, is_torn);
}

static enum remo_lookup_verdict lookup_end(void *ctx, const struct remo_structure_key *key, uint32_t owner,
                                           const struct remo_structure_place *place, const void *data,
                                           struct remo_item *ret_item) {
    struct remo_table *table = ctx;
    if (place->bytes == table->read_bytes)
        return judge_bucket(table, key, owner, place->offset, data, ret_item);
    if (remo__likely(place->bytes == table->item_bytes))
        return judge_place(table, key, place->offset, data, ret_item);
    read_page_list(table, &table->seen[owner], data);
    return REMO_LOOKUP_TORN; /* the bucket is read next */
}

/* ---- open ---- */

static uint32_t or_default(uint32_t given, uint32_t otherwise) {
    return given ? given : otherwise;
}

static struct remo_table_options apply_defaults(const struct remo_table_options *given) {
    struct remo_table_options options = given ? *given : (struct remo_table_options){0};
    options.capacity = options.capacity ? options.capacity : CAPACITY_DEFAULT;
    if (options.capacity_max == 0 && options.capacity <= CAPACITY_MAX)
        options.capacity_max = remo__min(options.capacity * GROWTH_DEFAULT, CAPACITY_MAX);
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
    if (options->capacity_max < options->capacity || options->capacity_max > CAPACITY_MAX)
        return remo__fail(
            -EINVAL,
            "cannot open a table for %llu keys with capacity_max = %llu: give 0, or a number from "
            "capacity to %llu",
            (unsigned long long)options->capacity, (unsigned long long)options->capacity_max,
            (unsigned long long)CAPACITY_MAX);
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
    uint64_t bytes = REMO__BUCKET_HEADER_BYTES
                     + width * remo_structure_item_bytes(options->key_bytes_max, options->value_bytes_max);
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

/* Set the number of doublings. The buckets and overflow items of all pages have 32-bit numbers. */
static void set_growth(struct remo_table *table, const struct remo_table_options *options) {
    uint64_t most = remo__max(table->buckets, table->overflow_items);
    while (options->capacity << table->levels < options->capacity_max
           && table->levels < REMO__TABLE_LEVELS_MAX && most << (table->levels + 1) < NONE)
        table->levels++;
    if (table->levels == 0)
        return;
    table->overflow_items = remo__max(table->overflow_items, 1);
    table->page_list_bytes = 8 * (UINT64_C(1) + table->levels);
    while (table->page_list_bytes == table->read_bytes || table->page_list_bytes == table->item_bytes)
        table->page_list_bytes += 8; /* lookup_end distinguishes places by their bytes */
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
    table->slots_percent = options->slots_percent;
    table->partition_bytes = options->partition_bytes;
    table->calls_only = options->lookups == REMO_TABLE_CALLS_ONLY;
    table->buckets = (uint32_t)remo__max(buckets, 1);
    table->overflow_items = (uint32_t)overflow;
    table->item_bytes = remo_structure_item_bytes(options->key_bytes_max, options->value_bytes_max);
    table->read_bytes = REMO__BUCKET_HEADER_BYTES + table->width * table->item_bytes;
    table->bucket_bytes = remo__align_up(table->read_bytes, REMO__CACHE_LINE);
    set_growth(table, options);
    table->overflow_at = table->buckets * table->bucket_bytes;
    table->page_list_at = table->overflow_at + table->overflow_items * table->item_bytes;
    return 0;
}

static uint64_t places_bytes(const struct remo_table *table) {
    uint64_t places = table->place_mask + UINT64_C(1);
    return (places + (places + 63) / 64) * sizeof table->places[0];
}

static int make_places(struct remo_table *table, const struct remo_table_options *options) {
    uint64_t places = remo__power_of_two_from(remo__max(options->places, PLACE_WAYS));
    table->place_mask = (uint32_t)(places - 1);
    table->places = remo__pages_map(places_bytes(table));
    if (!table->places)
        return remo__fail(-ENOMEM, "no memory for %llu places of a table", (unsigned long long)places);
    table->hints = table->places + places;
    return 0;
}

static int make_seen(struct remo_table *table, uint32_t nodes) {
    if (table->levels == 0)
        return 0;
    table->seen = aligned_alloc(REMO__CACHE_LINE, nodes * sizeof *table->seen);
    if (!table->seen)
        return remo__fail(-ENOMEM, "no memory for a table that grows");
    for (uint32_t node = 0; node < nodes; node++) {
        struct remo__table_seen *seen = &table->seen[node];
        atomic_init(&seen->extent, remo__table_extent(table, table->buckets));
        atomic_init(&seen->is_stale, false);
        for (uint32_t page = 0; page < REMO__TABLE_PAGES_MAX; page++)
            atomic_init(&seen->origins[page], page == 0 ? 0 : REMO__TABLE_UNKNOWN);
    }
    return 0;
}

static int make_private(struct remo_table *table, const struct remo_table_options *options, uint32_t nodes) {
    int rc = make_places(table, options);
    if (rc == 0)
        rc = make_seen(table, nodes);
    return rc != 0 ? rc : remo__table_open_owner(table);
}

static void set_type(struct remo_table *table, const struct remo_table_options *options) {
    snprintf(table->name, sizeof table->name, "table %llu,%u,%u,%u,%u,%u",
             (unsigned long long)options->capacity, table->levels, options->width, options->slots_percent,
             options->overflow_percent, options->partition_bytes);
    table->type = (struct remo_structure_type){.name = table->name,
                                               .owner = owner_of,
                                               .lookup_start = lookup_start,
                                               .lookup_end = lookup_end,
                                               .learn = learn};
    remo__table_set_owner(&table->type);
}

static void opened(void *ctx, struct remo_structure *structure, char *share) {
    struct remo_table *table = ctx;
    table->structure = structure;
    structure->prefetch = prefetch;
    (void)share;
    remo__table_start_owner(table);
}

static int open_structure(struct remo_table *table, struct remo_channel *parent, const char *name,
                          const struct remo_table_options *options) {
    struct remo_structure_options structure = {.participants = table->participants,
                                               .share_bytes = table->page_list_at + table->page_list_bytes,
                                               .key_bytes_max = options->key_bytes_max,
                                               .value_bytes_max = options->value_bytes_max,
                                               .ctx = table,
                                               .opened = opened};
    struct remo_structure *ignored;
    set_type(table, options);
    return remo_structure_open(parent, name, &table->type, &structure, &ignored);
}

static void free_table(struct remo_table *table) {
    remo__table_close_owner(table);
    pthread_mutex_destroy(&table->page_mutex);
    pthread_mutex_destroy(&table->free_mutex);
    remo__pages_unmap((void *)table->places, places_bytes(table));
    free(table->seen);
    free(table);
}

static struct remo_table *new_table(void) {
    struct remo_table *table =
        aligned_alloc(REMO__CACHE_LINE, remo__align_up(sizeof *table, REMO__CACHE_LINE));
    if (!table)
        return NULL;
    memset(table, 0, sizeof *table);
    int rc = pthread_mutex_init(&table->free_mutex, NULL);
    if (rc == 0 && pthread_mutex_init(&table->page_mutex, NULL) == 0)
        return table;
    if (rc == 0)
        pthread_mutex_destroy(&table->free_mutex);
    free(table);
    return NULL;
}

int remo_table_open(struct remo_channel *parent, const char *name, const struct remo_table_options *options,
                    struct remo_table **ret_table) {
    if (!parent || !ret_table)
        return remo__fail(-EINVAL, "cannot open a table: parent or ret_table is NULL");
    struct remo_table_options all = apply_defaults(options);
    int rc = check_options(&all);
    if (rc != 0)
        return rc;
    struct remo_table *table = new_table();
    if (!table)
        return remo__fail(-ENOMEM, "no memory for a table");
    table->participants =
        remo_nodeset_empty(&all.participants) ? *remo_channel_participants(parent) : all.participants;
    set_owners(table);
    rc = set_layout(table, &all);
    if (rc == 0)
        rc = make_private(table, &all, remo_node_size(remo_channel_node(parent)));
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
