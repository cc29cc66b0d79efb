/* direct.c - direct reads (objects/versioned_direct.h): the extent, and the records that change a range.
 * Invariant: each field of a record is loaded once and checked before its use, because the owner may use the
 * extent again meanwhile. docs/internals/versioned.md describes the protocol. */
#include "objects/versioned/versioned.h"

bool remo__versioned_direct_begin(const struct remo_versioned *versioned, struct remo__thread *thread,
                                  uint32_t owner, uint32_t object,
                                  struct remo__versioned_direct *ret_direct) {
    const struct remo__versioned_shape *shape = &versioned->shape;
    const struct remo__memory *memory = versioned->region->memory;
    _Atomic uint64_t *locations =
        atomic_load_explicit(&versioned->peers[owner].locations, memory_order_acquire);
    if (remo__unlikely(!locations || object >= shape->objects))
        return false;
    /* If another thread has read the location, the extent precedes it. */
    uint64_t location = atomic_load_explicit(&locations[object], memory_order_acquire),
             at = remo__versioned_extent_at(shape, remo__versioned_extent(location));
    bool is_own = owner == versioned->region->node->rank;
    ret_direct->shape = shape;
    ret_direct->stats = is_own ? NULL : remo__channel_counters(memory->channel, thread);
    ret_direct->extent = is_own ? memory->own + at : remo__memory_mapped(memory, owner, at);
    ret_direct->generation = remo__versioned_generation(location);
    return location != 0 && ret_direct->extent;
}

void remo__versioned_direct_apply(const struct remo__versioned_direct *direct, uint32_t offset, void *dst,
                                  uint32_t bytes) {
    struct remo__versioned_patch patch;
    struct remo__versioned_walk walk = remo__versioned_direct_walk(direct);
    while (walk.left > 0 && remo__versioned_direct_next(&walk, &patch)) {
        if (patch.offset >= offset + bytes || offset >= patch.offset + patch.bytes)
            continue;
        uint32_t first = remo__max(patch.offset, offset),
                 last = remo__min(patch.offset + patch.bytes, offset + bytes);
        remo__copy_from((char *)dst + (first - offset), patch.data + (first - patch.offset), last - first);
    }
}
