/* table.h - a distributed hash table: a lookup is one read of a bucket, or a call to the bucket's owner.
 *
 * Model:   a structure (structure.h). The hash of a key, or of its first bytes, selects the owner and a
 *          bucket of its share. A bucket has `width` slots for items. If all are in use, a further item of
 *          the bucket goes to its overflow chain. A lookup reads the bucket. If the bucket does not have the
 *          key, and has no overflow chain, the key is absent. Otherwise the lookup calls the owner. If the
 *          item is in the overflow chain, this node remembers its place, and the next lookup of the key
 *          reads that place.
 *          The map of kv.h differs: there the node that inserts a key stores it, each node has an index of
 *          all keys, and a change takes a lock instead of a call.
 * Use:     remo_table_open, then remo_channel_wait on remo_structure_channel(remo_table_structure(table)).
 *          Then remo_structure_put, remo_structure_lookup and so on, on remo_table_structure(table).
 * Growth:  each owner adds buckets independently, while the table is in use. To divide a bucket is to move
 *          about half of its keys to a new bucket. If the owner has more than 5/4 of the keys for which
 *          it has slots (`slots_percent`), inserts divide its buckets one after another. When all are
 *          divided, a doubling is complete, and the next one begins with the first bucket. The memory comes
 *          from the node's arena, at the start of each doubling: as much as the owner has so far. Keys remain
 *          present while their bucket is divided. An insert divides 4 buckets at most. One that finds no free
 *          overflow item divides up to 4 more, and tries again, 64 times at most. If the arena has no
 *          room, the owner does not grow, and tries again when it has 1/16 more keys.
 * Layout:  bucket = {u64 word; `width` items}, rounded up to 64 bytes. In the word, bit 0 is 1 if the bucket
 *          has an overflow chain; bits 3 to 7 are the level of the bucket: the doubling in which it was made
 *          or last divided, or 0; bits 8 to 63 count changes. The mark of each item in a bucket
 *          (structure.h) is the level too.
 * Cost:    lookup = 1 read of a bucket, or of one item whose place this node remembers. Then 1 call if the
 *          key is in an overflow chain and its place is not remembered, if a remembered place no longer has
 *          the key, or if the key is absent and its bucket has an overflow chain. While an owner grows: 1
 *          more read if the bucket was divided and this node has not detected that yet; once for each
 *          doubling, 1 more read to find the new memory. Changes: those of structure.h. An insert that
 *          doubles an owner's memory takes as long as the arena needs to clear it, or to make a segment. If
 *          it is a call, later requests of the calling node wait for it (rpc.h, SHORT). Other inserts and
 *          lookups do not wait for it, unless they need an overflow item and none is free; then so do calls
 *          for keys of the same group (structure.h). With `slots_percent` = 200, `width` = 1 and `capacity`
 *          keys, 79 % of the keys are in buckets.
 *          Memory of each node: its share, which has its slots and overflow items. Private memory: 8 bytes
 *          and a bit for each of `places`, which is rounded up to a power of two, at least 4 (1 MiB or more
 *          is rounded up to a multiple of 2 MiB); 4 bytes for each bucket and for each overflow item;
 *          192 bytes for each node of the job, if the table may grow.
 * Order:   linearizable, for each key.
 * Caches:  see structure.h.
 * Failure: see structure.h. -ENOSPC: the bucket of the key is full, its owner has no free overflow item, and
 *          it cannot grow. Keys are not distributed evenly, so this can happen in a table that may not grow
 *          before it has `capacity` keys.
 * Threads: any, concurrently.
 * Source:  Storm 5.5, 6.2.1: MICA's table with buckets of configurable width. "Oversubscribed" is `width` 1
 *          and many slots; "perfect" is that, with all places remembered; FaRM's table is emulated by
 *          `width` 8. Growth (4.5): linear hashing (Litwin, VLDB 1980); each bucket contains its level.
 *          Differs in: the load starts the growth, not the number of calls.
 */
#pragma once

#include <remo/structure.h>

REMO_BEGIN

#define REMO_TABLE_WIDTH_MAX 8u

struct remo_table;

enum remo_table_lookups {
    REMO_TABLE_READS_FIRST, /* the default */
    REMO_TABLE_CALLS_ONLY   /* each lookup calls the owner */
};

struct remo_table_options {           /* 0 selects the default of each number */
    struct remo_nodeset participants; /* empty: the parent's */
    uint64_t capacity;                /* expected keys on all nodes together, at most 2^32; default 65536 */
    /* The number of keys up to which the table can grow, rounded up to `capacity` times a power of two, which
     * is at most 2^20. From `capacity` (the table does not grow) to 2^32; default 1024 * capacity, or 2^32 if
     * that is less. */
    uint64_t capacity_max;
    uint32_t key_bytes_max;    /* default 8 */
    uint32_t value_bytes_max;  /* default 80; structure.h has the limits */
    uint32_t width;            /* slots of a bucket: 1, 2, 4 or 8; default 1; see REMO_PLACE_BYTES_MAX */
    uint32_t slots_percent;    /* slots in buckets per 100 keys of `capacity`, at most 10000; default 200 */
    uint32_t overflow_percent; /* overflow items per 100 keys of `capacity`, at most 10000; default 50 */
    uint32_t places;           /* overflow places that this node remembers, at most 2^30; default 65536 */
    uint32_t partition_bytes;  /* only these first bytes of a key select its owner; 0: all bytes */
    enum remo_table_lookups lookups;
};

/* Open the table `name` below `parent`; `options` may be NULL. All options but `places` and `lookups` are the
 * same on every participant; otherwise remo_channel_wait on the structure's channel returns -EPROTO. Does not
 * wait for peers to open.
 * Errors:
 *   -EINVAL  an option is out of range; the sentence names it
 *   others   those of remo_structure_open */
REMO_API int remo_table_open(struct remo_channel *parent, const char *name,
                             const struct remo_table_options *options, struct remo_table **ret_table);
/* Close the table and its structure; NULL has no effect. Waits as remo_structure_close does. */
REMO_API void remo_table_close(struct remo_table *table);
/* Return the structure of the table, for lookups and changes; NULL if `table` is NULL. remo_table_close
 * closes it: do not call remo_structure_close. */
REMO_API struct remo_structure *remo_table_structure(struct remo_table *table);
/* Return the owner of a key, or UINT32_MAX if `table` or `key` is NULL. Does not block. */
REMO_API uint32_t remo_table_owner(const struct remo_table *table, const void *key, size_t key_bytes);

REMO_END
