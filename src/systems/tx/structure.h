/* structure.h - declarations that the files of structures share.
 *
 *   table.c      a hash table, through the public interface of structures and fabric/access.h
 *   structure.c  open, close, lookups and changes
 *   owner.c      the owner's side: the handler of calls, and changes of items
 *   item.h       one item
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
#define REMO__STRUCTURE_HANDLER 0u /* its number in the service of a structure */

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
    REMO__ANSWER_MALFORMED
};

/* A request: this header, the key, the value. A reply to a lookup: the item's offset, then its value. */
struct remo__item_request {
    uint32_t op;
    uint16_t key_bytes, value_bytes;
};
#define REMO__ITEM_REPLY_BYTES 8u /* before the value */

struct remo__structure_group {
    pthread_mutex_t mutex;
} REMO__CACHE_ALIGNED;

struct remo_structure {
    struct remo_node *node;
    struct remo_region *share; /* its channel is that of the structure */
    struct remo_rpc *rpc;      /* a service below that channel */
    const struct remo_structure_type *type;
    void *ctx;
    char *own; /* this node's share */
    uint32_t rank;
    uint32_t key_bytes_max, value_bytes_max;
    uint64_t item_bytes;
    uint32_t groups_count; /* initialised */
    struct remo__structure_group groups[REMO__STRUCTURE_GROUPS];
};

/* ---- owner.c ---- */

/* Execute an operation on a key of this node. A lookup copies at most `cap` bytes of the value to `found`.
 * *ret_offset is the place of the item; *ret_found_bytes the length of its value. */
enum remo__item_answer remo__owner_execute(struct remo_structure *structure, enum remo__item_op op,
                                           const struct remo_structure_key *key, const void *value,
                                           size_t value_bytes, uint64_t *ret_offset, void *found, size_t cap,
                                           size_t *ret_found_bytes);
/* Decode a request. Returns false if it is malformed, or the key has another owner. */
bool remo__owner_decode(const struct remo_structure *structure, const void *request, size_t bytes,
                        struct remo__item_request *ret_header, struct remo_structure_key *ret_key,
                        const char **ret_value);
/* The handler of calls; `ctx` is the structure. */
int remo__owner_handle(void *ctx, const struct remo_rpc_request *request);
