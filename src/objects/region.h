/* region.h - the inner interface of regions, through which objects access the memory of other nodes.
 *
 * An object whose memory is one region (a variable, a table) has no channel of its own: it opens a region
 * with its own type. The functions here are inline because a call costs more than the operation: the check of
 * the range, the state of the calling thread, the offset of the peer's memory. One function out of line
 * reports all wrong arguments. */
#pragma once

#include <remo/region.h>

#include "channel/remote.h"

struct remo_region {
    struct remo_node *node;
    struct remo_channel *channel;
    struct remo__memory *memory;
    uint64_t bytes; /* of each provider's share */
    uint32_t nodes;
};

/* Open a region whose channel has the type `type` (at most 63 characters). The caller calls remo_channel_join
 * when its object is complete, because callbacks begin then. Errors: those of remo_channel_open and
 * remo_channel_add_memory. */
int remo__region_open(struct remo_channel *parent, const char *name, const char *type,
                      const char *memory_name, uint64_t bytes, const struct remo_channel_options *options,
                      const struct remo_nodeset *providers, struct remo_region **ret_region);

/* Return the participants of a channel: `chosen`, or those of `parent` if `chosen` is NULL or empty.
 * Errors: -EINVAL: `parent` is NULL. */
int remo__select_participants(const struct remo_channel *parent, const struct remo_nodeset *chosen,
                              struct remo_nodeset *ret_set);

/* Check that the fabric has hardware coherence, for an object that uses atomics, or memory that several nodes
 * write. `object`: its name in the sentence, such as "a lock". Errors: -EOPNOTSUPP. */
int remo__require_coherence(const struct remo_channel *parent, const char *object);

/* For wait conditions: return -EPROTO if a peer opened another object under this name, else 0. */
static inline int remo__channel_check_match(const struct remo_channel *channel) {
    return atomic_load(&channel->mismatched) ? remo__fail(-EPROTO, "%s", channel->error_text) : 0;
}

/* Return -EINVAL with a sentence that names the wrong node, range or alignment: "cannot <verb> ...". */
int remo__region_refuse(const struct remo_region *region, uint32_t node, uint64_t offset, uint64_t size_bytes,
                        const char *verb) __attribute__((cold));

/* Set *ret_ref to `offset` in the share of `node`, for the calling thread of the node `self`. The caller has
 * checked the range. Errors: those of remo__thread and remo__memory_find. */
static inline __attribute__((always_inline)) int remo__find_for_caller(const struct remo__memory *memory,
                                                                       struct remo_node *self, uint32_t node,
                                                                       uint64_t offset,
                                                                       struct remo__ref *ret_ref) {
    struct remo__thread *thread = remo__thread(self);
    if (remo__unlikely(!thread))
        return remo__last_code();
    return remo__memory_find(memory, thread, node, offset, ret_ref);
}

/* The same, for the memory of a region. */
static inline __attribute__((always_inline)) int remo__region_find(const struct remo_region *region,
                                                                   uint32_t node, uint64_t offset,
                                                                   struct remo__ref *ret_ref) {
    return remo__find_for_caller(region->memory, region->node, node, offset, ret_ref);
}

/* Ensure that the next write of `thread` to `node` is placed after the last one of `last` (NULL: none).
 * Writes of one thread are placed in order if the fabric orders writes. Writes of two threads need a fence,
 * which leaves losses to later fences of the program. On mapped memory stores are never reordered. */
static inline int remo__order_writes(struct remo__thread *thread, struct remo__thread *last, uint32_t node) {
    if (thread->node->mapped || !last || (last == thread && thread->node->fabric->caps.writes_ordered))
        return 0;
    return remo__fence_writer(thread, last, node);
}

/* Return whether [offset, offset + size_bytes) is in the share of `node`. The checks cannot wrap around. */
static inline bool remo__region_contains(const struct remo_region *region, uint32_t node, uint64_t offset,
                                         uint64_t size_bytes) {
    return node < region->nodes && size_bytes <= region->bytes && offset <= region->bytes - size_bytes;
}

/* Hint that this thread will soon read these bytes. The caller has checked the range, or it is in an
 * extension of the memory. The owner keeps its copies of the lines. */
void remo__region_prefetch_read(const struct remo_region *region, uint32_t node, uint64_t offset,
                                size_t size_bytes);
