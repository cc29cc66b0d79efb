/* region.h - the region from inside: the one way in which objects reach memory of other nodes.
 *
 * A variable or a table is a region under a type of its own: its channel has the region's memory, and
 * no channel more. What follows is inline because a call costs more than the operation: the check of the
 * range, the calling thread's part of the node, where the memory of the peer starts. Whatever goes wrong
 * there is told by one function out of line.
 */
#pragma once

#include <remo/region.h>

#include "channel/channel.h"

struct remo_region {
    struct remo_node *node;
    struct remo_channel *channel;
    struct remo__memory *memory;
    uint64_t bytes; /* of each provider's share */
    uint32_t nodes;
};

/* Open a region that is called `type` when peers compare (at most 63 characters); remo_channel_join is still
 * to come, when the object is complete and a callback may use it. */
int remo__region_open(struct remo_channel *parent, const char *name, const char *type,
                      const char *memory_name, uint64_t bytes, const struct remo_channel_options *options,
                      const struct remo_nodeset *providers, struct remo_region **ret_region);

/* Who takes part in a channel opened with `asked` (NULL, empty: the parent's). -EINVAL: no parent. */
int remo__participants_of(const struct remo_channel *parent, const struct remo_nodeset *asked,
                          struct remo_nodeset *ret_set);

/* Refuse an object that is made of atomics, or of memory that several nodes write, where no hardware keeps
 * the caches of CPUs coherent. `object`: "a lock". Errors: -EOPNOTSUPP. */
int remo__needs_coherence(const struct remo_channel *parent, const char *object);

/* In a wait condition: -EPROTO with the sentence when a peer opened something else under this name. */
static inline int remo__channel_check_match(const struct remo_channel *channel) {
    return atomic_load(&channel->mismatched) ? remo__fail(-EPROTO, "%s", channel->error_text) : 0;
}

/* The sentence for a range, a node or an alignment that is wrong; -EINVAL. */
int remo__region_refuse(const struct remo_region *region, uint32_t node, uint64_t offset, uint64_t size_bytes,
                        const char *verb);

/* Where the memory of a node starts that could not be reached at once: waits while it may still connect. */
int remo__region_reach(struct remo_region *region, uint32_t node, uint64_t offset, uint64_t *ret_at);

/* An operation about to start: by whom, and where. */
struct remo__region_spot {
    struct remo__thread *thread;
    struct remo_stats *stats;
    uint64_t at;
};

/* The range has been checked. */
static inline __attribute__((always_inline)) int remo__region_find(struct remo_region *region, uint32_t node,
                                                                   uint64_t offset,
                                                                   struct remo__region_spot *ret_spot) {
    struct remo__thread *thread = remo__thread(region->node);
    if (remo__unlikely(!thread))
        return -EAGAIN;
    uint64_t at = remo__memory_at(region->memory, node, offset);
    if (remo__unlikely(at == REMO__NO_OFFSET)) {
        uint64_t found = at; /* of its own, so that `at` stays in a register */
        int rc = remo__region_reach(region, node, offset, &found);
        if (rc != 0)
            return rc;
        at = found;
    }
    *ret_spot = (struct remo__region_spot){
        .thread = thread, .stats = remo__channel_counters(region->channel, thread), .at = at};
    return 0;
}

/* May [offset, offset + size_bytes) of `node` be accessed? Numbers that wrap around cannot make it true. */
static inline bool remo__region_holds(const struct remo_region *region, uint32_t node, uint64_t offset,
                                      uint64_t size_bytes) {
    return node < region->nodes && size_bytes <= region->bytes && offset <= region->bytes - size_bytes;
}
