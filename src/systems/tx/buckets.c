/* buckets.c - the owner's side of a hash table: slots and overflow chains of buckets, and growth (table.h).
 * Chains are private memory: only the owner follows them.
 * Invariants: while the item of a key is in an overflow chain and valid, its bucket shows a chain. The mark
 * of each slot is the level of the bucket, unless the bucket is being divided. */
#include <errno.h>
#include <stdlib.h>

#include "systems/tx/table.h"

#define NONE REMO__TABLE_NONE
/* An owner grows if it has more than 5/4 of the keys for which it has slots, so that a table with `capacity`
 * keys, which are never distributed evenly, does not grow. */
#define LOAD_FACTOR 5u
#define LOAD_DIVISOR 4u
#define RETRY_DIVISOR 16u /* a page could not be made: try again when the items have increased by 1/16 */

/* ---- where an item is ---- */

static struct remo__table_bucket bucket_of(const struct remo_table *table, uint64_t hash) {
    return remo__table_find(table, hash, atomic_load_explicit(&table->extent, memory_order_relaxed));
}

static uint64_t bucket_at(const struct remo_table *table, struct remo__table_bucket bucket) {
    return table->pages[bucket.page].origin + bucket.index * table->bucket_bytes;
}

static uint64_t slot_at(const struct remo_table *table, uint64_t bucket_at, uint32_t slot) {
    return bucket_at + REMO__BUCKET_HEADER_BYTES + slot * table->item_bytes;
}

/* Return where the first overflow item of a bucket's chain is stored. */
static uint32_t *chain_of(const struct remo_table *table, struct remo__table_bucket bucket) {
    return &table->pages[bucket.page].first[bucket.index - remo__table_before(table->buckets, bucket.page)];
}

/* Return the page of an overflow item. */
static uint32_t page_of(const struct remo_table *table, uint32_t item) {
    uint32_t r = item < table->overflow_items ? 0 : item / table->overflow_items;
    return r == 0 ? 0 : 32 - (uint32_t)__builtin_clz(r);
}

static uint32_t *next_of(const struct remo_table *table, uint32_t item) {
    uint32_t page = page_of(table, item);
    return &table->pages[page].next[item - remo__table_before(table->overflow_items, page)];
}

static uint64_t overflow_at(const struct remo_table *table, uint32_t item) {
    uint32_t page = page_of(table, item);
    return table->pages[page].items_at
           + (item - remo__table_before(table->overflow_items, page)) * table->item_bytes;
}

/* Return the overflow item at `offset`, which is not a slot. */
static uint32_t item_at(const struct remo_table *table, uint64_t offset) {
    uint32_t page = atomic_load_explicit(&table->pages_count, memory_order_acquire);
    while (page-- > 0) {
        uint32_t before = remo__table_before(table->overflow_items, page);
        uint64_t index = (offset - table->pages[page].items_at) / table->item_bytes;
        if (index < (page == 0 ? table->overflow_items : before))
            return before + (uint32_t)index;
    }
    return NONE;
}

/* ---- search and change ---- */

static uint32_t group_of(void *ctx, const struct remo_structure_key *key) {
    return remo__table_base(ctx, key->hash);
}

static uint64_t find(void *ctx, const struct remo_structure_key *key) {
    const struct remo_table *table = ctx;
    struct remo__table_bucket bucket = bucket_of(table, key->hash);
    uint64_t at = bucket_at(table, bucket);
    for (uint32_t slot = 0; slot < table->width; slot++)
        if (remo_item_state_of(table->structure, key, slot_at(table, at, slot)) == REMO_ITEM_MATCHES)
            return slot_at(table, at, slot);
    for (uint32_t item = *chain_of(table, bucket); item != NONE; item = *next_of(table, item))
        if (remo_item_state_of(table->structure, key, overflow_at(table, item)) == REMO_ITEM_MATCHES)
            return overflow_at(table, item);
    return REMO_STRUCTURE_NOWHERE;
}

/* Without the mutex of the group: the buckets of the extent exist. */
uint64_t remo__table_prefetch_own(const struct remo_table *table, const struct remo_structure_key *key) {
    uint64_t extent = atomic_load_explicit(&table->extent, memory_order_acquire);
    struct remo__table_bucket bucket = remo__table_find(table, key->hash, extent);
    uint64_t at = bucket_at(table, bucket);
    for (uint64_t line = 0; line < table->bucket_bytes; line += REMO__CACHE_LINE)
        __builtin_prefetch(remo__own_at(table->structure, at + line));
    __builtin_prefetch(chain_of(table, bucket));
    return at;
}

static int take_overflow(struct remo_table *table, uint64_t *ret_offset) {
    pthread_mutex_lock(&table->free_mutex);
    uint32_t item = table->free_first;
    if (item != NONE)
        table->free_first = *next_of(table, item);
    pthread_mutex_unlock(&table->free_mutex);
    if (item == NONE)
        return -ENOSPC;
    *ret_offset = overflow_at(table, item);
    return 0;
}

static void release_overflow(struct remo_table *table, uint32_t item) {
    pthread_mutex_lock(&table->free_mutex);
    *next_of(table, item) = table->free_first;
    table->free_first = item;
    pthread_mutex_unlock(&table->free_mutex);
}

static bool add_items(struct remo_table *table);

static int make(void *ctx, const struct remo_structure_key *key, uint64_t *ret_offset) {
    struct remo_table *table = ctx;
    uint64_t at = bucket_at(table, bucket_of(table, key->hash));
    for (uint32_t slot = 0; slot < table->width; slot++)
        if (remo_item_state_of(table->structure, key, slot_at(table, at, slot)) == REMO_ITEM_FREE) {
            *ret_offset = slot_at(table, at, slot);
            return 0;
        }
    int rc = take_overflow(table, ret_offset);
    return rc != 0 && add_items(table) ? take_overflow(table, ret_offset) : rc;
}

/* Store in the bucket its level, whether it has an overflow chain, and the number of this change. */
static void publish(const struct remo_table *table, uint64_t at, uint64_t level, bool has_chain) {
    char *word = remo__own_at(table->structure, at);
    uint64_t changes = (remo__load(word) & ~(REMO__BUCKET_CHANGE - 1)) + REMO__BUCKET_CHANGE;
    remo__store(word, changes | level << REMO__BUCKET_LEVEL_SHIFT | (has_chain ? REMO__BUCKET_HAS_CHAIN : 0));
}

static uint64_t level_of(const struct remo_table *table, uint64_t at) {
    return (remo__load(remo__own_at(table->structure, at)) & REMO__BUCKET_LEVEL) >> REMO__BUCKET_LEVEL_SHIFT;
}

static void link_item(void *ctx, const struct remo_structure_key *key, uint64_t offset) {
    struct remo_table *table = ctx;
    struct remo__table_bucket bucket = bucket_of(table, key->hash);
    uint64_t at = bucket_at(table, bucket);
    atomic_fetch_add_explicit(&table->items, 1, memory_order_relaxed);
    if (offset - at < table->bucket_bytes)
        return;
    uint32_t item = item_at(table, offset), *first = chain_of(table, bucket);
    *next_of(table, item) = *first;
    *first = item;
    publish(table, at, level_of(table, at), true);
}

static void unlink_item(void *ctx, const struct remo_structure_key *key, uint64_t offset) {
    struct remo_table *table = ctx;
    struct remo__table_bucket bucket = bucket_of(table, key->hash);
    uint64_t at = bucket_at(table, bucket);
    atomic_fetch_sub_explicit(&table->items, 1, memory_order_relaxed);
    if (offset - at < table->bucket_bytes)
        return;
    uint32_t item = item_at(table, offset), *first = chain_of(table, bucket), *link = first;
    while (*link != item)
        link = next_of(table, *link);
    *link = *next_of(table, item);
    publish(table, at, level_of(table, at), *first != NONE);
    release_overflow(table, item);
}

/* ---- pages ---- */

/* Allocate the private memory of a page, and link its overflow items to a list. */
static int fill_page(struct remo_table *table, uint32_t page) {
    struct remo__table_page *made = &table->pages[page];
    uint32_t before = remo__table_before(table->overflow_items, page);
    uint64_t buckets = page == 0 ? table->buckets : remo__table_before(table->buckets, page);
    uint64_t items = page == 0 ? table->overflow_items : before;
    made->first = malloc(buckets * sizeof *made->first);
    made->next = malloc((items + 1) * sizeof *made->next);
    if (!made->first || !made->next)
        return remo__fail(-ENOMEM, "no memory for a table of %llu buckets", (unsigned long long)buckets);
    for (uint64_t i = 0; i < buckets; i++)
        made->first[i] = NONE;
    for (uint64_t i = 0; i < items; i++)
        made->next[i] = i + 1 < items ? before + (uint32_t)i + 1 : NONE;
    return 0;
}

static void clear_page(struct remo__table_page *page) {
    free(page->first);
    free(page->next);
    *page = (struct remo__table_page){0};
}

/* Make a page usable. Its number is published after its contents: to this node, then to the others. */
static void publish_page(struct remo_table *table, uint32_t page, uint64_t offset) {
    struct remo__table_page *made = &table->pages[page];
    uint32_t items = remo__table_before(table->overflow_items, page);
    made->origin = remo__table_origin(table, page, offset);
    made->items_at = offset + remo__table_before(table->buckets, page) * table->bucket_bytes;
    atomic_store_explicit(&table->pages_count, page + 1, memory_order_release);
    remo__store(remo__own_at(table->structure, table->page_list_at) + UINT64_C(8) * page, offset);
    pthread_mutex_lock(&table->free_mutex);
    if (items > 0) {
        made->next[items - 1] = table->free_first;
        table->free_first = items;
    }
    pthread_mutex_unlock(&table->free_mutex);
}

/* Add the next page. The page mutex is held. */
static int add_page(struct remo_table *table) {
    uint32_t page = atomic_load_explicit(&table->pages_count, memory_order_relaxed);
    uint64_t offset = 0, bytes = remo__table_before(table->buckets, page) * table->bucket_bytes
                                 + remo__table_before(table->overflow_items, page) * table->item_bytes;
    int rc = page > table->levels ? -ENOSPC : fill_page(table, page);
    if (rc == 0)
        rc = remo__memory_extend(table->structure->share->memory, bytes, &offset);
    if (rc == 0)
        publish_page(table, page, offset);
    else if (page <= table->levels)
        clear_page(&table->pages[page]);
    return rc;
}

/* ---- growth ---- */

/* Return the highest level of which an extent has all buckets. */
static uint32_t extent_level(uint64_t extent) {
    return 63 - (uint32_t)__builtin_clzll(extent) - 32;
}

static bool is_loaded(const struct remo_table *table, uint64_t extent) {
    uint64_t items = atomic_load_explicit(&table->items, memory_order_relaxed);
    uint64_t slots = (uint64_t)(uint32_t)extent * table->width;
    return items * table->slots_percent * LOAD_DIVISOR > slots * 100 * LOAD_FACTOR;
}

/* Return the bucket that is divided next. */
static uint32_t next_bucket(const struct remo_table *table, uint64_t extent) {
    return (uint32_t)extent - (table->buckets << extent_level(extent));
}

static bool has_page(const struct remo_table *table, uint32_t page) {
    return page < atomic_load_explicit(&table->pages_count, memory_order_acquire);
}

/* Lock the page mutex. If the table is loaded, a later insert may add the page. */
static bool lock_pages(struct remo_table *table, enum remo__growth_reason reason) {
    return (reason == REMO__GROWTH_LOAD ? pthread_mutex_trylock(&table->page_mutex)
                                        : pthread_mutex_lock(&table->page_mutex))
           == 0;
}

/* Add the page that the next division needs, unless that has failed with about as many items. */
static bool prepare_page(struct remo_table *table, enum remo__growth_reason reason, uint32_t page) {
    uint64_t items = atomic_load_explicit(&table->items, memory_order_relaxed);
    if (page > table->levels || items < atomic_load_explicit(&table->retry_at, memory_order_relaxed)
        || !lock_pages(table, reason))
        return false;
    bool is_made = has_page(table, page) || add_page(table) == 0;
    pthread_mutex_unlock(&table->page_mutex);
    if (!is_made)
        atomic_store_explicit(&table->retry_at, items + items / RETRY_DIVISOR + 1, memory_order_relaxed);
    return is_made;
}

/* No overflow item was free: add the next page now, unless it exists. Another thread may have added it while
 * this one waited for the mutex; then its items are free. Returns whether it exists. */
static bool add_items(struct remo_table *table) {
    uint32_t page = extent_level(atomic_load_explicit(&table->extent, memory_order_relaxed)) + 1;
    pthread_mutex_lock(&table->page_mutex);
    bool exists = page <= table->levels && (has_page(table, page) || add_page(table) == 0);
    pthread_mutex_unlock(&table->page_mutex);
    return exists;
}

static bool next_division(void *ctx, enum remo__growth_reason reason, uint32_t *ret_group) {
    struct remo_table *table = ctx;
    uint64_t extent = atomic_load_explicit(&table->extent, memory_order_acquire);
    uint32_t page = extent_level(extent) + 1;
    if ((reason == REMO__GROWTH_LOAD && !is_loaded(table, extent))
        || (!has_page(table, page) && !prepare_page(table, reason, page)))
        return false;
    *ret_group = next_bucket(table, extent) % table->buckets;
    return true;
}

/* A bucket that is divided. The items of its chain become three lists: those that stay in it, those that move
 * to the new chain, and those that were copied to a slot. */
struct division {
    struct remo_table *table;
    struct remo__table_bucket from, to;
    uint64_t from_at, to_at;
    uint32_t level;    /* of both buckets afterwards */
    uint32_t to_slots; /* in use */
    bool is_moved[REMO_TABLE_WIDTH_MAX];
    uint32_t staying, moving, copied;
};

static void push(const struct remo_table *table, uint32_t *list, uint32_t item) {
    *next_of(table, item) = *list;
    *list = item;
}

static bool moves(const struct division *division, uint64_t offset) {
    uint64_t hash = remo__owner_hash(division->table->structure, offset);
    return (hash >> 32 >> (division->level - 1) & 1) != 0;
}

static void copy_to_new(struct division *division, uint64_t from) {
    remo__owner_copy(division->table->structure, from,
                     slot_at(division->table, division->to_at, division->to_slots++), division->level);
}

/* Write the new bucket, which no node reads yet. If no slot is left for a moving item of the chain, it stays
 * where it is, in the new chain. */
static void fill_new(struct division *division) {
    struct remo_table *table = division->table;
    for (uint32_t slot = 0; slot < table->width; slot++) {
        uint64_t at = slot_at(table, division->from_at, slot);
        bool is_free = remo__item_is_free(remo__load(remo__own_at(table->structure, at)));
        division->is_moved[slot] = !is_free && moves(division, at);
        if (division->is_moved[slot])
            copy_to_new(division, at);
    }
    for (uint32_t item = *chain_of(table, division->from), next; item != NONE; item = next) {
        next = *next_of(table, item);
        if (!moves(division, overflow_at(table, item))) {
            push(table, &division->staying, item);
        } else if (division->to_slots == table->width) {
            push(table, &division->moving, item);
        } else {
            copy_to_new(division, overflow_at(table, item));
            push(table, &division->copied, item);
        }
    }
    for (uint32_t slot = division->to_slots; slot < table->width; slot++)
        remo__owner_mark(table->structure, slot_at(table, division->to_at, slot), division->level);
    *chain_of(table, division->to) = division->moving;
    publish(table, division->to_at, division->level, division->moving != NONE);
}

/* Mark each slot of the old bucket with the new level. A free slot receives an item of the chain. */
static void clean_old(struct division *division) {
    struct remo_table *table = division->table;
    for (uint32_t slot = 0; slot < table->width; slot++) {
        uint64_t at = slot_at(table, division->from_at, slot);
        bool is_free =
            division->is_moved[slot] || remo__item_is_free(remo__load(remo__own_at(table->structure, at)));
        uint32_t item = division->staying;
        if (is_free && item != NONE) {
            division->staying = *next_of(table, item);
            remo__owner_copy(table->structure, overflow_at(table, item), at, division->level);
            push(table, &division->copied, item);
        } else if (division->is_moved[slot]) {
            remo__owner_clear(table->structure, at, division->level);
        } else {
            remo__owner_mark(table->structure, at, division->level);
        }
    }
}

static void release_copied(struct division *division) {
    struct remo_table *table = division->table;
    for (uint32_t item = division->copied, next; item != NONE; item = next) {
        next = *next_of(table, item);
        remo__owner_clear(table->structure, overflow_at(table, item), 0);
    }
    *chain_of(table, division->from) = division->staying;
    publish(table, division->from_at, division->level, division->staying != NONE);
    for (uint32_t item = division->copied, next; item != NONE; item = next) {
        next = *next_of(table, item);
        release_overflow(table, item);
    }
}

/* The order of the stores is that of the proof in docs/internals/structure.md. */
static void divide(void *ctx, uint32_t group) {
    struct remo_table *table = ctx;
    uint64_t extent = atomic_load_explicit(&table->extent, memory_order_relaxed);
    uint32_t level = extent_level(extent) + 1, from = next_bucket(table, extent),
             base = from % table->buckets;
    if (base != group || !has_page(table, level))
        return; /* another thread has divided the bucket */
    struct division division = {
        .table = table, .level = level, .staying = NONE, .moving = NONE, .copied = NONE};
    division.from = remo__table_bucket(table, base, from / table->buckets);
    division.to = remo__table_bucket(table, base, (uint32_t)extent / table->buckets);
    division.from_at = bucket_at(table, division.from);
    division.to_at = bucket_at(table, division.to);
    bool has_chain = *chain_of(table, division.from) != NONE;
    fill_new(&division);
    publish(table, division.from_at, level, has_chain);
    clean_old(&division);
    release_copied(&division);
    remo__store(remo__own_at(table->structure, table->page_list_at), (uint32_t)extent + 1);
    atomic_store_explicit(&table->extent, remo__table_extent(table, (uint32_t)extent + 1),
                          memory_order_release);
}

/* ---- open ---- */

void remo__table_set_owner(struct remo_structure_type *type) {
    type->group = group_of;
    type->find = find;
    type->make = make;
    type->link = link_item;
    type->unlink = unlink_item;
}

int remo__table_open_owner(struct remo_table *table) {
    table->growth = (struct remo__structure_growth){.next = next_division, .divide = divide};
    atomic_init(&table->extent, remo__table_extent(table, table->buckets));
    atomic_init(&table->pages_count, 1);
    table->free_first = table->overflow_items > 0 ? 0 : NONE;
    table->pages[0].items_at = table->overflow_at;
    return fill_page(table, 0);
}

void remo__table_start_owner(struct remo_table *table) {
    if (table->levels == 0)
        return;
    table->structure->growth = &table->growth;
    remo__store(remo__own_at(table->structure, table->page_list_at), table->buckets);
}

void remo__table_close_owner(struct remo_table *table) {
    for (uint32_t page = 0; page < REMO__TABLE_PAGES_MAX; page++)
        clear_page(&table->pages[page]);
}
