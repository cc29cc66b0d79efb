/* structure.h - data structures in network memory: any node finds a key with one read; its owner changes it.
 *
 * Model:   a structure is a channel. Each participant has a share of memory, in which it keeps items. An
 *          item has a key and a value. Each key has one owner, and its item is in the share of the owner.
 *          A lookup reads the place where the item probably is. If the bytes neither contain the key nor
 *          prove that it is absent, the lookup calls the owner, which searches. A change is a call to the
 *          owner. The owner itself searches and changes its share directly.
 * Use:     for a hash table, see table.h; for a queue, tx_queue.h. To define another structure, provide the
 *          functions of struct remo_structure_type. The first part runs at any node: it selects what a lookup
 *          reads, and judges the bytes. The second part runs at the owner: it finds, links and unlinks items.
 *          The library implements reads, calls, versions, seals and the order of stores. Example:
 *          docs/tutorial.md.
 * Layout:  item = {u64 head; u64 seal; u64 sizes; key; value}; key and value begin at multiples of 8 bytes.
 *          head = {version:56, mark:5, state:3}; sizes = {value bytes:32, key bytes:32}. The state is free,
 *          valid, locked (valid, but a transaction is changing it: tx.h), or reserved (its key is still
 *          absent). The mark is 0, except in a hash table that has grown. The seal is a checksum of version,
 *          sizes, key and value. Each change of an item increments its version. A version never decreases,
 *          even when the memory is used for another key.
 * Cost:    lookup = 1 read, and 1 more for each read of an item that is torn, locked or reserved,
 *          REMO_LOOKUP_READS_MAX reads at most. Then 1 call (rpc.h), if the reads neither find the key nor
 *          prove it absent, or if there is no place to read. Change = 1 call. Keys that this node owns: no
 *          network operation, unless a transaction has locked them. In a task (task.h), a lookup on mapped
 *          memory (shm) prefetches the place and yields before each read; in a hash table, also before a
 *          search for a key that this node owns. A lookup takes up to 24 KiB of the stack.
 * Order:   linearizable, for each key.
 * Caches:  without hardware coherence (region.h) open returns -EOPNOTSUPP.
 * Failure: if the owner has failed or left, its items are lost: -EHOSTDOWN. After -EHOSTDOWN, -ENOTCONN or
 *          -ETIMEDOUT the outcome of a change is unknown: it is applied once or not at all and, if the owner
 *          is up, perhaps later. Items of other owners are not affected.
 * Threads: any, concurrently. On shm lookups, and changes of keys that this node owns, first serve requests
 *          (remo_rpc_serve), so a call to a busy node needs no wake-up. Lookups and changes that call the
 *          owner serve on all fabrics while they wait. So all of them may run SHORT handlers and `done`
 *          functions of all services: the caller must not hold a mutex that one of these acquires.
 * Source:  Storm 5.3, Tables 2 and 3, Algorithm 1. Differs in: the owner's handler is divided into steps,
 *          so that the library implements mutexes, versions and seals; a seal detects a torn read, which is
 *          repeated or followed by a call. Transactions (5.4): tx.h.
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
    REMO_ITEM_TORN     /* the owner changed it during the read, or is inserting the key */
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
    /* Set *ret_place to what a lookup reads, and return true. Return false to call the owner instead; a place
     * outside the share has the same effect. Called before each read, so again after TORN. */
    bool (*lookup_start)(void *ctx, const struct remo_structure_key *key, uint32_t owner,
                         struct remo_structure_place *ret_place);
    /* Judge the bytes of that place by remo_item_read. If FOUND, set *ret_item. `data` has place->bytes
     * bytes, is aligned to 64, and is valid until the function returns. If ABSENT: a transaction later
     * compares the words that prove it, so they must never return to an earlier value. Heads never do. A word
     * that the type itself defines must contain a count of its changes. */
    enum remo_lookup_verdict (*lookup_end)(void *ctx, const struct remo_structure_key *key, uint32_t owner,
                                           const struct remo_structure_place *place, const void *data,
                                           struct remo_item *ret_item);
    /* A call of this thread to the owner has found the item at `offset`. Remember it for lookup_start, if
     * useful. NULL: not called. */
    void (*learn)(void *ctx, const struct remo_structure_key *key, uint32_t owner, uint64_t offset);

    /* ---- at the owner: in the calling thread, or in a thread that serves calls (rpc.h, Serving) ----
     * These must not wait for the network. The only function of this header that they may call is
     * remo_item_state_of. Change the share by release stores of 8 bytes: peers read it concurrently. */

    /* Return the group of the key. The functions below never run concurrently for keys of one group. They do
     * for different groups, so memory that groups share, such as a list of free items, needs a mutex. */
    uint32_t (*group)(void *ctx, const struct remo_structure_key *key);
    /* Return the offset of the item with the key, or REMO_STRUCTURE_NOWHERE. */
    uint64_t (*find)(void *ctx, const struct remo_structure_key *key);
    /* Set *ret_offset to a free item for the new key, which no other insert uses. After success, link always
     * follows. After any error, insert and put return -ENOSPC. */
    int (*make)(void *ctx, const struct remo_structure_key *key, uint64_t *ret_offset);
    /* Make the item that make has chosen reachable: find returns it until unlink. The library makes the item
     * valid afterwards, perhaps in a later call; functions for other keys of the group may run in between. If
     * a transaction is aborted, the library frees the item and calls unlink instead. For a read that begins
     * after this function, lookup_end must not return ABSENT while the item is valid or reserved. */
    void (*link)(void *ctx, const struct remo_structure_key *key, uint64_t offset);
    /* The item has become free: make it unreachable, and release its memory. */
    void (*unlink)(void *ctx, const struct remo_structure_key *key, uint64_t offset);
};

struct remo_structure_options {
    struct remo_nodeset participants; /* empty: the parent's */
    uint64_t share_bytes;     /* of each participant: a multiple of 8, above 0. Zero at open: free items */
    uint32_t key_bytes_max;   /* at least 1; no default */
    uint32_t value_bytes_max; /* may be 0; with key_bytes_max at most REMO_ITEM_BYTES_MAX */
    void *ctx;
    /* Called once, in the thread of remo_structure_open, before all other functions; NULL: not called.
     * `share` is this node's share. If the open fails after it, `structure` is not valid any more. */
    void (*opened)(void *ctx, struct remo_structure *structure, char *share);
};

/* Open the structure `name` below `parent`. `*type` and `ctx` must stay valid until remo_structure_close has
 * returned. All other options are the same on every participant; otherwise remo_channel_wait returns -EPROTO.
 * *ret_structure is set before the functions at the owner run. Does not wait for peers to open.
 * Errors:
 *   -EINVAL  an argument is NULL, or an option is out of range; the sentence names it
 *   -ENOMEM  no memory
 *   others   those of remo_region_open and remo_rpc_open */
REMO_API int remo_structure_open(struct remo_channel *parent, const char *name,
                                 const struct remo_structure_type *type,
                                 const struct remo_structure_options *options,
                                 struct remo_structure **ret_structure);
/* Close the structure, when no call of this node on it is in progress; not in a handler or a `done` function
 * (rpc.h). NULL has no effect. Waits until the calls of peers that run here have returned.
 * `type` and `ctx` are not used afterwards. */
REMO_API void remo_structure_close(struct remo_structure *structure);
/* Return the channel of the structure, for remo_channel_wait; NULL if `structure` is NULL. */
REMO_API struct remo_channel *remo_structure_channel(struct remo_structure *structure);
/* Return the bytes of one item, a multiple of 8: header, key and value of maximum length. */
REMO_API uint64_t remo_structure_item_bytes(uint32_t key_bytes_max, uint32_t value_bytes_max);

/* For lookup_end: read the item at `data`, which is at `offset` of the owner's share. Sets *ret_item if the
 * item has the key; its pointers refer to `data`. Accesses remo_structure_item_bytes bytes at most, which
 * `data` must have. A damaged item is REMO_ITEM_TORN. */
REMO_API enum remo_item_state remo_item_read(const struct remo_structure *structure,
                                             const struct remo_structure_key *key, const void *data,
                                             uint64_t offset, struct remo_item *ret_item);
/* For find and make: the state of the item at `offset` of this node's share; never REMO_ITEM_TORN. */
REMO_API enum remo_item_state remo_item_state_of(const struct remo_structure *structure,
                                                 const struct remo_structure_key *key, uint64_t offset);

/* ---- lookups and changes ---- */

/* How a lookup ended. */
enum remo_lookup_way {
    REMO_LOOKUP_WAY_LOCAL, /* this node is the owner */
    REMO_LOOKUP_WAY_READ,  /* one-sided */
    REMO_LOOKUP_WAY_CALL   /* by a call to the owner, perhaps after reads */
};

/* Copy the value of the key to `value`. If the value is longer than `cap` bytes, copy nothing and return
 * -EMSGSIZE; *ret_value_bytes is its length in both cases. `value` may be NULL if `cap` is 0;
 * `ret_value_bytes` and `ret_way` may be NULL. Each read, and the call, block for op_timeout_ns at most. If a
 * transaction, even one of this node, has locked the key, the owner is called again after pauses of up to
 * 1 ms, for op_timeout_ns.
 * Errors:
 *   -ENOENT     the key is absent
 *   -EMSGSIZE   the value is longer than `cap`, or the key is longer than key_bytes_max: then
 *               *ret_value_bytes is not set
 *   -EINVAL     the key is empty, an argument is NULL, or `owner` of the type returned no participant
 *   -EHOSTDOWN  the owner has failed or left
 *   -ENOTCONN   the owner has closed the structure
 *   -ETIMEDOUT  the owner does not answer, or has not opened the structure; or a transaction keeps the key
 *               locked, because its node is slow or paused
 *   -EDEADLK    a call is needed, and the caller is a SHORT handler or a `done` function (rpc.h)
 *   -EPROTO     the owner opened another object under this name, or its memory is damaged
 *   others      those of remo_region_read and remo_rpc_call */
REMO_API int remo_structure_lookup(struct remo_structure *structure, const void *key, size_t key_bytes,
                                   void *value, size_t cap, size_t *ret_value_bytes,
                                   enum remo_lookup_way *ret_way);
/* Insert an absent key (insert), replace the value of a present key (update), or do what applies (put).
 * `value` may be NULL if `value_bytes` is 0. Blocks for op_timeout_ns at most; if a transaction has locked
 * the key, as long as a lookup.
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
