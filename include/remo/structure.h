/* structure.h - data structures of items: any node looks up an item with one read, its owner changes it.
 *
 * Model:   a structure is a channel. Each participant has a share of memory, in which it keeps items. An
 *          item has a key and a value. Each key has one owner, and its item is in the share of the owner.
 *          A lookup reads the place where the item probably is. If the read does not decide, it calls
 *          the owner, which searches. A change is a call to the owner. table.h is a hash table
 *          made in this way.
 * Use:     to define a structure, provide the functions of struct remo_structure_type: the first part runs
 *          at any node, and chooses what a lookup reads and what it means; the second part runs at the
 *          owner, and finds, links and unlinks items. The library does the rest: reads, calls, versions,
 *          checksums, the order of stores.
 * Layout:  item = {u64 head; u64 seal; u64 sizes; key; value}; key and value begin at multiples of 8 bytes.
 *          head = {version, state}; sizes = {bytes of the value, bytes of the key}. The seal is a checksum
 *          over version, sizes, key and value. Each change of an item increments its version, and a version
 *          never goes back, also when the memory is used for another key.
 * Cost:    lookup = 1 read; 1 more for each torn read, at most REMO_LOOKUP_READS_MAX in total. If the reads
 *          do not decide, or the structure has no place to read: 1 call (rpc.h). A change: 1 call. At the
 *          owner: no network operation. In a task (task.h), a lookup in mapped memory prefetches the place
 *          and yields once before the read.
 * Order:   linearizable, for each key.
 * Caches:  without hardware coherence (region.h) open returns -EOPNOTSUPP.
 * Failure: if the owner has failed or left, its items are lost: -EHOSTDOWN. If a change returns -EHOSTDOWN,
 *          -ENOTCONN or -ETIMEDOUT, its outcome is unknown unless the owner is still up: then it
 *          happened, happens later, or does not happen. Items of other owners are not affected.
 * Threads: any, concurrently.
 * Source:  Storm 5.3, Tables 2 and 3, Algorithm 1. Differs in: the owner's handler is divided into steps,
 *          so that the library keeps locks, versions and checksums; the seal detects a torn read, and so a
 *          read of an item that its owner changes is repeated or becomes a call. Transactions (5.4) are not
 *          included yet.
 */
#pragma once

#include <remo/channel.h>
#include <stdbool.h>
#include <stddef.h>

REMO_BEGIN

#define REMO_LOOKUP_READS_MAX 3u          /* of one lookup */
#define REMO_PLACE_BYTES_MAX 8192u        /* of one such read */
#define REMO_ITEM_HEADER_BYTES 24u        /* before the key */
#define REMO_ITEM_BYTES_MAX 3968u         /* of key and value together */
#define REMO_STRUCTURE_NOWHERE UINT64_MAX /* an offset: no such item */

struct remo_structure;

struct remo_structure_key {
    const void *data;
    size_t bytes;
    uint64_t hash; /* XXH3 of the key */
};

/* Bytes of the owner's share. */
struct remo_structure_place {
    uint64_t offset; /* a multiple of 8 */
    size_t bytes;    /* at most REMO_PLACE_BYTES_MAX */
};

/* An item in memory that was read. Valid as long as that memory. */
struct remo_item {
    uint64_t offset; /* in the owner's share */
    uint64_t head;
    const void *key, *value;
    size_t key_bytes, value_bytes;
};

/* The state of one item in memory that was read. */
enum remo_item_state {
    REMO_ITEM_MATCHES, /* it has the key */
    REMO_ITEM_OTHER,   /* it has another key */
    REMO_ITEM_FREE,    /* there is no item */
    REMO_ITEM_TORN     /* the owner changed it during the read */
};

/* The result of a read for a key. */
enum remo_lookup_verdict {
    REMO_LOOKUP_FOUND,
    REMO_LOOKUP_ABSENT,    /* the key was in no item of the structure, at some moment of the read */
    REMO_LOOKUP_ELSEWHERE, /* call the owner */
    REMO_LOOKUP_TORN       /* read again */
};

/* The functions of a structure. `ctx` is that of the options. */
struct remo_structure_type {
    const char *name; /* at most 47 characters, with all parameters that must be equal on all nodes */

    /* ---- at any node, concurrently; these must not wait ---- */

    /* Return the owner of the key, the same on all nodes. */
    uint32_t (*owner)(void *ctx, const struct remo_structure_key *key);
    /* Set *ret_place to what a lookup reads, and return true. Return false to call the owner instead. */
    bool (*lookup_start)(void *ctx, const struct remo_structure_key *key, uint32_t owner,
                         struct remo_structure_place *ret_place);
    /* Judge the bytes of that place by remo_item_read. If FOUND, set *ret_item. */
    enum remo_lookup_verdict (*lookup_end)(void *ctx, const struct remo_structure_key *key, uint32_t owner,
                                           const struct remo_structure_place *place, const void *data,
                                           struct remo_item *ret_item);
    /* A call to the owner has found the item at `offset`. NULL: not called. */
    void (*learn)(void *ctx, const struct remo_structure_key *key, uint32_t owner, uint64_t offset);

    /* ---- at the owner; these must not wait ---- */

    /* Return the group of the key. Functions below never run concurrently for keys of one group. */
    uint32_t (*group)(void *ctx, const struct remo_structure_key *key);
    /* Return the offset of the item with the key, or REMO_STRUCTURE_NOWHERE. */
    uint64_t (*find)(void *ctx, const struct remo_structure_key *key);
    /* Set *ret_offset to memory for a new item with the key: no item, and not in use by others.
     * Errors: -ENOSPC. */
    int (*make)(void *ctx, const struct remo_structure_key *key, uint64_t *ret_offset);
    /* Make the item that make has chosen reachable. It becomes valid only after this function: a read that
     * shows it valid also shows, from then on, that the key may be present. */
    void (*link)(void *ctx, const struct remo_structure_key *key, uint64_t offset);
    /* The item has become free: make it unreachable, and release its memory. */
    void (*unlink)(void *ctx, const struct remo_structure_key *key, uint64_t offset);
};

struct remo_structure_options {
    struct remo_nodeset participants;        /* empty: the parent's */
    uint64_t share_bytes;                    /* of each participant; its memory is zero at open: free items */
    uint32_t key_bytes_max, value_bytes_max; /* together at most REMO_ITEM_BYTES_MAX */
    void *ctx;
    /* Called once before any other function, with this node's share: the memory of its items. NULL: no. */
    void (*opened)(void *ctx, struct remo_structure *structure, char *share);
};

/* Open the structure `name` below `parent`. Keep `type` in place until the close. *ret_structure is set
 * before the functions at the owner run. Does not wait for peers to open.
 * Errors:
 *   -EINVAL  an argument is NULL, or an option is out of range; the sentence names it
 *   -ENOMEM  no memory
 *   others   those of remo_region_open and remo_rpc_open */
REMO_API int remo_structure_open(struct remo_channel *parent, const char *name,
                                 const struct remo_structure_type *type,
                                 const struct remo_structure_options *options,
                                 struct remo_structure **ret_structure);
/* Close the structure; NULL has no effect. Waits until calls of peers that run here have ended. */
REMO_API void remo_structure_close(struct remo_structure *structure);
REMO_API struct remo_channel *remo_structure_channel(struct remo_structure *structure);
/* Return the bytes of one item, a multiple of 8: header, key and value of maximum length. */
REMO_API uint64_t remo_structure_item_bytes(uint32_t key_bytes_max, uint32_t value_bytes_max);

/* For lookup_end: read the item at `data`, which is at `offset` of the owner's share. Sets *ret_item if
 * the item has the key. At most remo_structure_item_bytes are accessed. */
REMO_API enum remo_item_state remo_item_read(const struct remo_structure *structure,
                                             const struct remo_structure_key *key, const void *data,
                                             uint64_t offset, struct remo_item *ret_item);
/* For find and make: the state of the item at `offset` of this node's share; never REMO_ITEM_TORN. */
REMO_API enum remo_item_state remo_item_state_of(const struct remo_structure *structure,
                                                 const struct remo_structure_key *key, uint64_t offset);

/* ---- lookups and changes ---- */

/* How a lookup ended. */
enum remo_lookup_way {
    REMO_LOOKUP_LOCAL,   /* this node is the owner */
    REMO_LOOKUP_BY_READ, /* one-sided */
    REMO_LOOKUP_BY_CALL  /* by a call to the owner, perhaps after reads */
};

/* Copy the value of the key to `value`, at most `cap` bytes; *ret_value_bytes is its length, also after
 * -EMSGSIZE. `ret_value_bytes` and `ret_way` may be NULL. Each operation blocks for op_timeout_ns at most.
 * Errors:
 *   -ENOENT     the key is absent
 *   -EMSGSIZE   the value is longer than `cap`, or the key is longer than key_bytes_max
 *   -EINVAL     the key is empty, or an argument is NULL
 *   -EHOSTDOWN  the owner has failed or left
 *   -ENOTCONN   the owner has closed the structure
 *   -ETIMEDOUT  the owner does not answer, or has not opened the structure
 *   -EDEADLK    in a handler of rpc.h: the lookup needs a call
 *   -EPROTO     the owner opened another object under this name, or its memory is damaged */
REMO_API int remo_structure_lookup(struct remo_structure *structure, const void *key, size_t key_bytes,
                                   void *value, size_t cap, size_t *ret_value_bytes,
                                   enum remo_lookup_way *ret_way);
/* Insert the key; or update it; or either (put). Blocks for op_timeout_ns at most.
 * Errors: those of remo_structure_lookup, and
 *   -EEXIST    insert: the key is present
 *   -ENOENT    update: the key is absent
 *   -ENOSPC    insert, put: the owner has no room
 *   -EMSGSIZE  the key or the value is longer than its maximum */
REMO_API int remo_structure_insert(struct remo_structure *structure, const void *key, size_t key_bytes,
                                   const void *value, size_t value_bytes);
REMO_API int remo_structure_update(struct remo_structure *structure, const void *key, size_t key_bytes,
                                   const void *value, size_t value_bytes);
REMO_API int remo_structure_put(struct remo_structure *structure, const void *key, size_t key_bytes,
                                const void *value, size_t value_bytes);
/* Delete the key. Errors: those of remo_structure_lookup. */
REMO_API int remo_structure_delete(struct remo_structure *structure, const void *key, size_t key_bytes);

REMO_END
