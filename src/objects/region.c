/* region.c - implements remo/region.h: checks of arguments, then one network operation.
 * Invariant: no operation accesses memory outside the region, whatever its arguments. */
#include "objects/region.h"

#include <stdlib.h>

int remo__select_participants(const struct remo_channel *parent, const struct remo_nodeset *chosen,
                              struct remo_nodeset *ret_set) {
    if (!parent)
        return remo__fail(-EINVAL, "the parent is NULL; use remo_node_root, the parent of all channels");
    *ret_set = chosen && !remo_nodeset_empty(chosen) ? *chosen : *remo_channel_participants(parent);
    return 0;
}

int remo__require_coherence(const struct remo_channel *parent, const char *object) {
    if (parent->node->fabric->caps.coherent)
        return 0;
    return remo__fail(-EOPNOTSUPP,
                      "cannot open %s: fabric %s has neither atomics nor coherent caches; use regions, owned "
                      "variables, SSTs and barriers there",
                      object, parent->node->fabric->ops->name);
}

int remo__region_open(struct remo_channel *parent, const char *name, const char *type,
                      const char *memory_name, uint64_t bytes, const struct remo_channel_options *options,
                      const struct remo_nodeset *providers, struct remo_region **ret_region) {
    struct remo_region *region = calloc(1, sizeof *region);
    if (!region)
        return remo__fail(-ENOMEM, "no memory for %s %s", type, name ? name : "");
    uint32_t memory;
    int rc = remo_channel_open(parent, name, type, options, &region->channel);
    if (rc != 0)
        goto fail;
    region->node = remo_channel_node(region->channel);
    region->nodes = region->node->size;
    region->bytes = bytes;
    bool all = !providers || remo_nodeset_empty(providers);
    bool provides = all || remo_nodeset_has(providers, region->node->rank);
    rc = remo_channel_add_memory(region->channel, memory_name, provides ? bytes : 0, bytes, providers,
                                 &memory);
    if (rc != 0)
        goto fail;
    region->memory = &region->channel->memories[memory];
    *ret_region = region;
    return 0;
fail:
    remo_channel_close(region->channel);
    free(region);
    return rc;
}

static int check_open(const struct remo_region_options *options, const struct remo_nodeset *participants,
                      uint64_t bytes) {
    if (bytes == 0)
        return remo__fail(-EINVAL,
                          "cannot open a region of 0 bytes: pass the number of bytes of each provider");
    for (uint32_t node = 0; node < REMO_NODES_MAX; node++)
        if (remo_nodeset_has(&options->providers, node) && !remo_nodeset_has(participants, node))
            return remo__fail(
                -EINVAL, "cannot open a region: node %u is to provide memory and is no participant", node);
    return 0;
}

int remo_region_open(struct remo_channel *parent, const char *name, uint64_t bytes,
                     const struct remo_region_options *options, struct remo_region **ret_region) {
    REMO__REQUIRE(ret_region);
    static const struct remo_region_options all_default;
    const struct remo_region_options *chosen = options ? options : &all_default;
    struct remo_channel_options channel = {.ctx = chosen->ctx, .on_immediate = chosen->on_immediate};
    struct remo_region *region = NULL;
    int rc = remo__select_participants(parent, &chosen->participants, &channel.participants);
    if (rc == 0)
        rc = check_open(chosen, &channel.participants, bytes);
    if (rc == 0)
        rc = remo__region_open(parent, name, "region", "data", bytes, &channel, &chosen->providers, &region);
    if (rc != 0)
        return rc;
    *ret_region = region; /* a callback may use it immediately */
    rc = remo_channel_join(region->channel);
    if (rc != 0) {
        *ret_region = NULL;
        remo_region_close(region);
    }
    return rc;
}

void remo_region_close(struct remo_region *region) {
    if (!region)
        return;
    remo_channel_close(region->channel);
    free(region);
}

struct remo_channel *remo_region_channel(struct remo_region *region) {
    return region ? region->channel : NULL;
}

uint64_t remo_region_bytes(const struct remo_region *region) {
    return region ? region->bytes : 0;
}

void *remo_region_local(const struct remo_region *region) {
    return region ? region->memory->own : NULL;
}

/* ---- errors ---- */

int remo__region_refuse(const struct remo_region *region, uint32_t node, uint64_t offset, uint64_t size_bytes,
                        const char *verb) {
    const char *name = remo_channel_name(region->channel);
    if (node >= region->nodes)
        return remo__fail(-EINVAL, "cannot %s %s at node %u: the job has nodes 0 to %u", verb, name, node,
                          region->nodes - 1);
    if (size_bytes > region->bytes || offset > region->bytes - size_bytes)
        return remo__fail(-EINVAL,
                          "cannot %s %llu bytes at offset %llu of %s: it has %llu bytes on each node", verb,
                          (unsigned long long)size_bytes, (unsigned long long)offset, name,
                          (unsigned long long)region->bytes);
    if (offset % 8 != 0)
        return remo__fail(-EINVAL, "cannot %s offset %llu of %s: an atomic needs a multiple of 8", verb,
                          (unsigned long long)offset, name);
    return remo__fail(-EINVAL, "cannot %s %s: the buffer is NULL, or the flags are unknown", verb, name);
}

int remo_region_address(const struct remo_region *region, uint32_t node, uint64_t offset,
                        struct remo_addr *ret_addr) {
    REMO__REQUIRE(region);
    REMO__REQUIRE(ret_addr);
    if (!remo__region_contains(region, node, offset, 0))
        return remo__region_refuse(region, node, offset, 0, "return the address of");
    return remo__memory_address(region->memory, node, offset, ret_addr);
}

/* ---- operations ---- */

/* The most frequent read: a word of mapped memory, by an attached thread. It makes no call, so that the
 * compiler saves no register. Returns false, without effect, if the read is another one. */
static inline bool read_word(const struct remo_region *region, uint32_t node, uint64_t offset, void *dst) {
    if (remo__unlikely(!region || !dst || !remo__region_contains(region, node, offset, 8)))
        return false;
    if (remo__unlikely(remo__tls.node_id != region->node->id))
        return false;
    const char *place = remo__memory_mapped(region->memory, node, offset);
    if (remo__unlikely(!place))
        return false;
    struct remo_stats *stats = remo__channel_counters(region->channel, remo__tls.thread);
    remo__mapped_copy_from(dst, place, 8);
    remo__count(&stats->reads, 1);
    remo__count(&stats->bytes, 8);
    return true;
}

static __attribute__((noinline)) int read_any(struct remo_region *region, uint32_t node, uint64_t offset,
                                              void *dst, size_t size_bytes, struct remo_ack *ack) {
    REMO__REQUIRE(region);
    struct remo__ref ref;
    if (remo__unlikely(!remo__region_contains(region, node, offset, size_bytes) || !dst))
        return remo__region_refuse(region, node, offset, size_bytes, "read");
    int rc = remo__region_find(region, node, offset, &ref);
    if (remo__unlikely(rc != 0))
        return rc;
    return remo__read(ref, dst, size_bytes, ack);
}

int remo_region_read(struct remo_region *region, uint32_t node, uint64_t offset, void *dst, size_t size_bytes,
                     struct remo_ack *ack) {
    if (size_bytes == 8 && remo__likely(read_word(region, node, offset, dst)))
        return 0;
    return read_any(region, node, offset, dst, size_bytes, ack);
}

int remo_region_write(struct remo_region *region, uint32_t node, uint64_t offset, const void *src,
                      size_t size_bytes, uint32_t flags, struct remo_ack *ack) {
    REMO__REQUIRE(region);
    struct remo__ref ref;
    if (remo__unlikely(!remo__region_contains(region, node, offset, size_bytes) || !src
                       || flags > REMO_WRITE_NOTIFY))
        return remo__region_refuse(region, node, offset, size_bytes, "write");
    int rc = remo__region_find(region, node, offset, &ref);
    if (remo__unlikely(rc != 0))
        return rc;
    return remo__write(ref, src, size_bytes, flags, ack);
}

int remo_region_write_immediate(struct remo_region *region, uint32_t node, uint64_t offset, const void *src,
                                size_t size_bytes, uint32_t value, struct remo_ack *ack) {
    REMO__REQUIRE(region);
    if (!remo__region_contains(region, node, offset, size_bytes) || !src)
        return remo__region_refuse(region, node, offset, size_bytes, "write");
    if (value > REMO_CHANNEL_IMMEDIATE_MAX)
        return remo__fail(-EINVAL, "cannot write with the immediate value %u: the maximum is %u", value,
                          REMO_CHANNEL_IMMEDIATE_MAX);
    struct remo__ref ref;
    int rc = remo__region_find(region, node, offset, &ref);
    if (rc != 0)
        return rc;
    return remo__channel_write_immediate(region->channel, ref, src, size_bytes, value, ack);
}

/* Prefetch the lines of a range of mapped memory. For writing, the processor of the last writer loses its
 * copy; for x86-64, compilers emit the instruction for reading in both cases, unless a compiler option
 * permits PREFETCHW. */
static inline void prefetch_lines(const struct remo_region *region, uint32_t node, uint64_t offset,
                                  size_t size_bytes, bool writes) {
    const char *place = remo__memory_mapped(region->memory, node, offset);
    uint64_t before = (uintptr_t)place % REMO__CACHE_LINE; /* bytes of the first line before the place */
    for (uint64_t line = 0; place && line < before + size_bytes; line += REMO__CACHE_LINE)
        if (writes)
            __builtin_prefetch(place - before + line, 1);
        else
            __builtin_prefetch(place - before + line, 0);
}

void remo_region_prefetch(const struct remo_region *region, uint32_t node, uint64_t offset,
                          size_t size_bytes) {
    if (remo__likely(region && remo__region_contains(region, node, offset, size_bytes)))
        prefetch_lines(region, node, offset, size_bytes, true);
}

void remo__region_prefetch_read(const struct remo_region *region, uint32_t node, uint64_t offset,
                                size_t size_bytes) {
    prefetch_lines(region, node, offset, size_bytes, false);
}

static inline bool holds_word(const struct remo_region *region, uint32_t node, uint64_t offset) {
    return remo__region_contains(region, node, offset, 8) && offset % 8 == 0;
}

int remo_region_fetch_add(struct remo_region *region, uint32_t node, uint64_t offset, uint64_t addend,
                          uint64_t *ret_old, struct remo_ack *ack) {
    REMO__REQUIRE(region);
    struct remo__ref ref;
    if (remo__unlikely(!holds_word(region, node, offset)))
        return remo__region_refuse(region, node, offset, 8, "add to");
    int rc = remo__region_find(region, node, offset, &ref);
    if (remo__unlikely(rc != 0))
        return rc;
    return remo__fetch_add(ref, addend, ret_old, ack);
}

int remo_region_compare_swap(struct remo_region *region, uint32_t node, uint64_t offset, uint64_t expected,
                             uint64_t desired, uint64_t *ret_old, struct remo_ack *ack) {
    REMO__REQUIRE(region);
    struct remo__ref ref;
    if (remo__unlikely(!holds_word(region, node, offset)))
        return remo__region_refuse(region, node, offset, 8, "compare and swap in");
    int rc = remo__region_find(region, node, offset, &ref);
    if (remo__unlikely(rc != 0))
        return rc;
    return remo__compare_swap(ref, expected, desired, ret_old, ack);
}
