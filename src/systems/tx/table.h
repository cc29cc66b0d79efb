/* table.h - declarations that the files of the hash table share: its memory, and where a key is.
 *
 *   table.c    options, open, lookups at any node
 *   buckets.c  the owner's side: chains, growth
 *
 * Share:     buckets, then items of overflow chains, then the page list if the table grows. Each doubling
 *            adds a page with as many buckets and overflow items as there were: an extension of the share.
 * Page list: {u64 buckets; u64 offset of page 1, 2, ...}. 0: no such page yet.
 * Growth:    linear hashing: bucket b + n r is divided into itself and b + n (r + 2^level). Buckets are
 *            divided in the order of their numbers. n is the number of buckets at first, b the bucket at
 *            level 0, r bits of the hash. Each bucket contains its level. docs/internals/structure.md has
 *            the proof. */
#pragma once

#include <remo/table.h>

#include "systems/tx/structure.h"

#define REMO__TABLE_LEVELS_MAX 20u /* doublings */
#define REMO__TABLE_PAGES_MAX (REMO__TABLE_LEVELS_MAX + 1)
#define REMO__TABLE_NONE UINT32_MAX
#define REMO__TABLE_UNKNOWN UINT64_MAX /* in place of an offset */

/* The first word of a bucket: {changes:56, level:5, unused:2, has a chain:1}. The mark of each slot's head
 * has the same bits as the level, and equals it. */
#define REMO__BUCKET_HAS_CHAIN UINT64_C(1)
#define REMO__BUCKET_CHANGE UINT64_C(0x100)
#define REMO__BUCKET_LEVEL REMO__ITEM_MARK
#define REMO__BUCKET_LEVEL_SHIFT REMO__ITEM_MARK_SHIFT
#define REMO__BUCKET_HEADER_BYTES 8u

/* The buckets and pages of an owner that this node has detected. None is ever removed. */
struct remo__table_seen {
    _Atomic uint64_t extent; /* remo__table_extent of a number of buckets that exist */
    _Atomic bool is_stale;   /* the owner has a page that is missing in `origins`: read the page list next */
    _Atomic uint64_t origins[REMO__TABLE_PAGES_MAX]; /* as in struct remo__table_page, or UNKNOWN */
} REMO__CACHE_ALIGNED;

/* The owner's description of a page. Page 0 is the share. */
struct remo__table_page {
    uint64_t origin;   /* bucket i of the page is at origin + i * bucket_bytes */
    uint64_t items_at; /* of the first overflow item */
    uint32_t *first;   /* [buckets of the page]: the number of the chain's first overflow item, or NONE */
    uint32_t *next;    /* [items of the page]: the next item of the chain, or of the list of free items */
};

struct remo_table {
    struct remo_structure *structure;
    struct remo_structure_type type;
    char name[64]; /* of the type */
    struct remo_nodeset participants;
    uint16_t owners[REMO_NODES_MAX];
    uint32_t owner_count;
    uint32_t width, partition_bytes;
    uint32_t buckets, overflow_items; /* of each node, at first */
    uint64_t item_bytes, bucket_bytes, read_bytes, overflow_at;
    bool calls_only;
    _Atomic bool has_grown; /* `seen` differs from the state at open */
    _Atomic uint64_t *places;
    _Atomic uint64_t *hints; /* behind the places: a bit for each */
    uint32_t place_mask;
    uint32_t levels; /* maximum; 0: the table does not grow */
    uint64_t page_list_at, page_list_bytes;
    struct remo__table_seen *seen; /* [nodes of the job]; NULL if the table does not grow */

    /* At the owner. The group of a key is its bucket at level 0, so one thread at a time uses all buckets
     * in which the key may be. */
    struct remo__structure_growth growth;
    uint32_t slots_percent;
    _Atomic uint64_t extent;
    _Atomic uint64_t items;    /* in use */
    _Atomic uint64_t retry_at; /* items; with fewer, no page is added, because the last attempt failed */
    struct remo__table_page pages[REMO__TABLE_PAGES_MAX];
    _Atomic uint32_t pages_count;
    pthread_mutex_t page_mutex; /* one thread at a time adds a page */
    pthread_mutex_t free_mutex; /* protects free_first */
    uint32_t free_first;
};

/* A bucket: its index, and the page that it is in. */
struct remo__table_bucket {
    uint32_t index, page;
};

/* Scale a 32-bit hash to a number below `count`. */
static inline uint32_t remo__table_scale(uint32_t hash, uint32_t count) {
    return (uint32_t)((uint64_t)hash * count >> 32);
}

/* Return the bucket of a key at level 0. */
static inline uint32_t remo__table_base(const struct remo_table *table, uint64_t hash) {
    return remo__table_scale((uint32_t)hash, table->buckets);
}

/* Return the bucket b + n r of a base b. */
static inline struct remo__table_bucket remo__table_bucket(const struct remo_table *table, uint32_t base,
                                                           uint32_t r) {
    return (struct remo__table_bucket){.index = base + table->buckets * r,
                                       .page = r == 0 ? 0 : 32 - (uint32_t)__builtin_clz(r)};
}

/* Return the bucket of a hash at this level. */
static inline struct remo__table_bucket remo__table_bucket_at(const struct remo_table *table, uint64_t hash,
                                                              uint32_t level) {
    uint32_t mask = (uint32_t)((UINT64_C(1) << level) - 1);
    return remo__table_bucket(table, remo__table_base(table, hash), (uint32_t)(hash >> 32) & mask);
}

/* An extent: a number of buckets, and the mask of r for the buckets of the next level. */
static inline uint64_t remo__table_extent(const struct remo_table *table, uint32_t buckets) {
    uint32_t level = 31 - (uint32_t)__builtin_clz(buckets / table->buckets);
    return ((UINT64_C(2) << level) - 1) << 32 | buckets;
}

/* Return the bucket of a hash in an extent. */
static inline struct remo__table_bucket remo__table_find(const struct remo_table *table, uint64_t hash,
                                                         uint64_t extent) {
    uint32_t base = remo__table_base(table, hash), mask = (uint32_t)(extent >> 32);
    uint32_t r = (uint32_t)(hash >> 32) & mask;
    if (base + (uint64_t)table->buckets * r >= (uint32_t)extent)
        r &= mask >> 1;
    return remo__table_bucket(table, base, r);
}

/* Return the number of buckets, or of overflow items, in the pages before this one, if page 0 has `first`. */
static inline uint32_t remo__table_before(uint32_t first, uint32_t page) {
    return page == 0 ? 0 : first << (page - 1);
}

/* Return the `origin` of a page that begins at `offset`. */
static inline uint64_t remo__table_origin(const struct remo_table *table, uint32_t page, uint64_t offset) {
    return offset - remo__table_before(table->buckets, page) * table->bucket_bytes;
}

/* ---- buckets.c ---- */

/* Prefetch what the search for a key of this node loads first. Returns the offset of its bucket. */
uint64_t remo__table_prefetch_own(const struct remo_table *table, const struct remo_structure_key *key);

/* Set the functions of the owner's part. */
void remo__table_set_owner(struct remo_structure_type *type);
/* Allocate the owner's private memory, for the first page. */
int remo__table_open_owner(struct remo_table *table);
void remo__table_close_owner(struct remo_table *table);
/* Store the page list, and let the owner grow. The share is open. No effect if the table does not grow. */
void remo__table_start_owner(struct remo_table *table);
