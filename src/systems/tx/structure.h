/* structure.h - declarations that the files of structures share.
 *
 *   table.c           a hash table: options, open, lookups
 *   buckets.c         its owner's side: buckets, overflow chains, growth (table.h)
 *   structure_open.c  open and close
 *   structure.c       lookups and changes
 *   owner.c           the owner's side: the handler of calls, and changes of items
 *   key_watch.c       the owner's side: transactions that wait until a key changes (key_watch.h)
 *   key_claim.c       the owner's side: transactions that precede others at a key (key_claim.h)
 *   item.h            one item
 *
 * A file uses only files below it in this list. docs/internals/structure.md has the proof that lookups and
 * changes are linearizable. */
#pragma once

#include <pthread.h>
#include <remo/rpc.h>
#include <remo/task.h>

#include "objects/region.h"
#include "systems/tx/item.h"

#ifdef REMO_SIM_SMALL
#define REMO__STRUCTURE_GROUPS 2u
#else
#define REMO__STRUCTURE_GROUPS 256u /* mutexes of the owner; a group of the type selects one */
#endif
#define REMO__ROOM_ATTEMPTS_MAX 64u /* of an insert that finds no room, while the structure grows */
#define REMO__STRUCTURE_HANDLER 0u  /* its number in the service of a structure */

enum remo__item_op {
    REMO__ITEM_LOOKUP,
    REMO__ITEM_INSERT,
    REMO__ITEM_UPDATE,
    REMO__ITEM_PUT,
    REMO__ITEM_DELETE,
    REMO__ITEM_OPS
};

/* The owner's answer, and the status of the reply to a call. Errors of rpc.h are negative. */
enum remo__item_answer {
    REMO__ANSWER_DONE,
    REMO__ANSWER_ABSENT,
    REMO__ANSWER_PRESENT,
    REMO__ANSWER_NO_ROOM,
    REMO__ANSWER_BUSY, /* a transaction has locked or reserved the item */
    REMO__ANSWER_MALFORMED
};

/* A request: this header, the key, the value. */
struct remo__item_request {
    uint32_t op;
    uint16_t key_bytes, value_bytes;
};

/* A reply to a lookup: this header, and the value if the key is present. */
struct remo__item_reply {
    uint64_t offset, head; /* of the item */
    uint64_t deletes;      /* of keys of the group, so far */
};

/* The result of the owner's search for a key. The caller sets `value` and `cap`. */
struct remo__owner_found {
    struct remo__item_reply item;
    void *value; /* at most `cap` bytes are copied */
    size_t cap, value_bytes;
};

/* The kind of evidence for a lookup's result. A transaction validates it later (docs/internals/tx.md). */
enum remo__proof {
    REMO__PROOF_NONE,
    REMO__PROOF_HEAD,   /* present: the item at `offset` has the head `word` */
    REMO__PROOF_PLACE,  /* absent: XXH3 of the `bytes` bytes at `offset` is `word` */
    REMO__PROOF_DELETES /* absent: `word` is `deletes` of the owner's reply */
};

struct remo__evidence {
    enum remo__proof proof;
    uint32_t bytes;
    uint64_t offset, word;
};

struct remo__key_watch;
struct remo__key_watch_entry;
struct remo__key_claim_entry;

struct remo__structure_group {
    pthread_mutex_t mutex;
    uint64_t deletes;                      /* so far, under the mutex */
    struct remo__key_watch_entry *watches; /* of its keys, under the mutex; NULL: none */
    struct remo__key_claim_entry *claims;  /* likewise */
} REMO__CACHE_ALIGNED;

/* Watches to report, oldest first. Apart from what each lookup loads. */
struct remo__structure_due {
    pthread_mutex_t mutex;
    _Atomic(struct remo__key_watch *) first; /* changes under the mutex */
    struct remo__key_watch *last;
} REMO__CACHE_ALIGNED;

/* Why an owner divides its share further. */
enum remo__growth_reason {
    REMO__GROWTH_LOAD,   /* the type decides by the number of items */
    REMO__GROWTH_NO_ROOM /* an insert has found no room */
};

/* How an owner divides parts of its share while they are in use. A type that grows sets `growth` of the
 * structure in `opened`. */
struct remo__structure_growth {
    /* Return whether a part of the share is to be divided, and set *ret_group to its group. Called without
     * a mutex, after an insert; may extend the share. */
    bool (*next)(void *ctx, enum remo__growth_reason reason, uint32_t *ret_group);
    /* Divide that part, if it still has this group. The group's mutex is held. Values do not change. */
    void (*divide)(void *ctx, uint32_t group);
};

struct remo_structure {
    struct remo_node *node;
    struct remo_region *share; /* its channel is that of the structure */
    struct remo_rpc *rpc;      /* a service below that channel */
    const struct remo_structure_type *type;
    void *ctx;
    char *own;                                   /* this node's share */
    const struct remo__structure_growth *growth; /* NULL: the share is not extended */
    /* Prefetch what a lookup of the key loads first: at the owner `find`, elsewhere lookup_start and the
     * read. Returns the offset of the place that the read will probably have, or REMO_STRUCTURE_NOWHERE:
     * nothing was prefetched. Called only if this node can load the memory directly: on mapped fabrics, and
     * at the owner on all fabrics. A type sets it in `opened`; NULL: lookup_start selects the place. */
    uint64_t (*prefetch)(void *ctx, const struct remo_structure_key *key, uint32_t owner);
    uint32_t rank;
    uint32_t key_bytes_max, value_bytes_max;
    uint64_t item_bytes;
    uint32_t groups_count; /* initialised */
    struct remo__structure_due due;
    struct remo__structure_group groups[REMO__STRUCTURE_GROUPS];
};

/* Return the CPU address of `offset` in this node's share or its extensions. */
static inline char *remo__own_at(const struct remo_structure *structure, uint64_t offset) {
    return (char *)((uintptr_t)structure->own + offset); /* an offset is modulo 2^64 */
}

/* Return whether [offset, offset + bytes) is in the share of `node`. For an extension of the share, return
 * only whether the range is in memory that objects of that node use: lookup_end judges its contents. */
static inline bool remo__structure_contains(const struct remo_structure *structure, uint32_t node,
                                            uint64_t offset, uint64_t bytes) {
    return remo__likely(remo__region_contains(structure->share, node, offset, bytes))
           || (structure->growth && node < structure->share->nodes
               && remo__memory_reaches(structure->share->memory, node, offset, bytes));
}

/* ---- owner.c ---- */

/* Execute an operation on a key of this node. */
enum remo__item_answer remo__owner_execute(struct remo_structure *structure, enum remo__item_op op,
                                           const struct remo_structure_key *key, const void *value,
                                           size_t value_bytes, struct remo__owner_found *ret_found);
/* Decode a request. Returns false if it is malformed, or the key has another owner. */
bool remo__owner_decode(const struct remo_structure *structure, const void *request, size_t bytes,
                        struct remo__item_request *ret_header, struct remo_structure_key *ret_key,
                        const char **ret_value);
/* The handler of calls; `ctx` is the structure. */
int remo__owner_handle(void *ctx, const struct remo_rpc_request *request);

/* After an insert, without a mutex: divide parts of the share, if the structure grows. A part whose mutex is
 * not free now is divided after a later insert. */
void remo__owner_grow(struct remo_structure *structure);
/* The same, after an insert that found no room, whatever the load. Waits for the mutexes. Returns whether to
 * try the insert again. */
bool remo__owner_make_room(struct remo_structure *structure);
/* Copy key and value of the item at `from`, which is not free, to the item at `to`, which may have another
 * key or be free. The item at `to` gets its next version, the mark `mark`, and the lock or reservation of
 * the item at `from`. The copy of a damaged item has a wrong seal too. The group's mutex is held. */
void remo__owner_copy(struct remo_structure *structure, uint64_t from, uint64_t to, uint64_t mark);
/* Free an item that was copied: it gets its next version and the mark `mark`. */
void remo__owner_clear(struct remo_structure *structure, uint64_t offset, uint64_t mark);
/* Change the mark of an item, not its version. */
void remo__owner_mark(struct remo_structure *structure, uint64_t offset, uint64_t mark);
/* Return the hash of the key of an item that is not free. */
uint64_t remo__owner_hash(const struct remo_structure *structure, uint64_t offset);

/* The steps of a change that is part of a transaction, while the mutex of the key's group is held. */
struct remo__structure_group *remo__owner_group(struct remo_structure *structure,
                                                const struct remo_structure_key *key);
/* Search for the key: *ret_offset is its item, even if it is reserved, or REMO_STRUCTURE_NOWHERE. Returns
 * false if the type returned a wrong offset. */
bool remo__owner_search(struct remo_structure *structure, const struct remo_structure_key *key,
                        uint64_t *ret_offset);
/* Find the head and the value of the item at found->item.offset, which has the key. Returns DONE or
 * MALFORMED. */
enum remo__item_answer remo__owner_read(const struct remo_structure *structure,
                                        const struct remo_structure_key *key,
                                        struct remo__owner_found *found);
/* Lock a valid item, or unlock it. Reads still find the value of a locked item. */
void remo__owner_lock(struct remo_structure *structure, uint64_t offset);
void remo__owner_unlock(struct remo_structure *structure, uint64_t offset);
/* Reserve an item for an absent key: it becomes reachable, and the key remains absent. Returns DONE, NO_ROOM
 * or MALFORMED. */
enum remo__item_answer remo__owner_reserve(struct remo_structure *structure,
                                           const struct remo_structure_key *key, const void *value,
                                           size_t value_bytes, uint64_t *ret_offset);
/* Make a reserved item valid, or free it. */
void remo__owner_complete(struct remo_structure *structure, uint64_t offset);
void remo__owner_release(struct remo_structure *structure, const struct remo_structure_key *key,
                         uint64_t offset);
/* Replace the value of an item, or delete it; in both cases unlock it. A reserved item gets its value, and
 * becomes valid. */
void remo__owner_replace(struct remo_structure *structure, const struct remo_structure_key *key,
                         uint64_t offset, const void *value, size_t value_bytes);
void remo__owner_delete(struct remo_structure *structure, const struct remo_structure_key *key,
                        uint64_t offset);

/* ---- structure.c ---- */

/* Serve what has arrived: on shm a call to this node first waits for its busy threads (remo_rpc_serve). */
static inline void remo__structure_serve_now(const struct remo_structure *structure) {
    if (structure->node->mapped)
        (void)remo_rpc_serve(structure->rpc, 0);
}
/* Check a key, and set *ret_key and *ret_owner. Errors: -EINVAL and -EMSGSIZE, as remo_structure_lookup. */
int remo__structure_key(const struct remo_structure *structure, const void *key, size_t key_bytes,
                        struct remo_structure_key *ret_key, uint32_t *ret_owner);
/* Errors: -EINVAL and -EMSGSIZE, as remo_structure_put. */
int remo__structure_check_value(const struct remo_structure *structure, const void *value,
                                size_t value_bytes);
/* Return 0 if this node may use its share; an error if a peer has opened another object under the name. */
int remo__structure_check_share(const struct remo_structure *structure);
/* Return whether lookups of the caller yield after a prefetch: it is a task, and memory is mapped. */
static inline bool remo__lookup_yields(const struct remo_node *node) {
    return node->mapped && remo__unlikely(remo__scheduler != NULL) && remo__is_in_task(remo__scheduler);
}
/* Prefetch what a lookup of the key loads first. On mapped fabrics only. Returns as `prefetch`. */
uint64_t remo__lookup_prefetch(const struct remo_structure *structure, uint32_t owner,
                               const struct remo_structure_key *key);
/* The same, in a task: other tasks run during the cache misses. Elsewhere no effect. */
uint64_t remo__lookup_prepare(const struct remo_structure *structure, uint32_t owner,
                              const struct remo_structure_key *key);
/* Look a key up, as remo_structure_lookup, but do not serve first. `prefetched` is the result of
 * remo__lookup_prepare, or REMO_STRUCTURE_NOWHERE. If the owner finds its item locked or reserved: wait if
 * `waits`, otherwise return -EBUSY. *ret_evidence (may be NULL) is set if the result is 0, -ENOENT, or
 * -EMSGSIZE. */
int remo__structure_find(struct remo_structure *structure, uint32_t owner,
                         const struct remo_structure_key *key, uint64_t prefetched, void *value, size_t cap,
                         size_t *ret_value_bytes, bool waits, enum remo_lookup_way *ret_way,
                         struct remo__evidence *ret_evidence);
/* The parts of a lookup by one read, for several lookups at the same time. Return false if there is no place
 * to read. */
bool remo__lookup_start(const struct remo_structure *structure, uint32_t owner,
                        const struct remo_structure_key *key, struct remo_structure_place *ret_place);
/* Start to read the place, for a caller that waits for `ack`; NULL: waits. */
int remo__lookup_read(const struct remo_structure *structure, uint32_t owner,
                      const struct remo_structure_place *place, void *data, struct remo_ack *ack);
/* If a lookup has not ended after a read: its next step. */
enum { REMO__CALL_OWNER = 1, REMO__READ_AGAIN = 2 };
/* Judge what was read, for a transaction. Results: as remo__structure_find, or the next step. */
int remo__lookup_end(struct remo_structure *structure, uint32_t owner, const struct remo_structure_key *key,
                     const struct remo_structure_place *place, const void *data, void *value, size_t cap,
                     size_t *ret_value_bytes, struct remo__evidence *ret_evidence);
/* Let the owner look a key up: -EBUSY if its item is locked or reserved. Otherwise as
 * remo__structure_find. */
int remo__structure_find_by_owner(struct remo_structure *structure, uint32_t owner,
                                  const struct remo_structure_key *key, void *value, size_t cap,
                                  size_t *ret_value_bytes, struct remo__evidence *ret_evidence);
/* The same, for several lookups at the same time. Another node is the owner. Return the bytes of the buffer
 * for request and reply. */
size_t remo__lookup_call_bytes(const struct remo_structure *structure, const struct remo_structure_key *key);
/* Start the call. Errors: those of remo_rpc_start. */
int remo__lookup_call_start(struct remo_structure *structure, uint32_t owner,
                            const struct remo_structure_key *key, char *buffer, struct remo_rpc_op *call);
/* Wait for the call. If the result is 0, the value is in the buffer. */
int remo__lookup_call_end(struct remo_structure *structure, const struct remo_structure_key *key,
                          struct remo_rpc_op *call, const void **ret_value, size_t *ret_value_bytes,
                          struct remo__evidence *ret_evidence);
