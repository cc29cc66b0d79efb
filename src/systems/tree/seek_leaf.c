/* seek_leaf.c - finds the entry of a key in a leaf, during its visit: the fingerprints select the entries of
 * the run that are compared, and then the tail is searched.
 * Invariant: a part of the leaf is copied to private memory before it is checked and used, because the leaf
 * may change meanwhile. The copy of the header, once checked, is not copied again. */
#include <string.h>

#include "systems/tree/seek.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define BLOCK 16u /* fingerprints that are compared at once */
_Static_assert(BLOCK <= TREE_BUFFER_SPARE, "a load of fingerprints would pass the end of the buffer");

#ifdef REMO_SIM_SMALL
#define FIRST_BYTES 26u /* of a node: the header, and some of the index. Most changes write only this part */
#else
#define FIRST_BYTES 256u /* usually with the fences and the index: one copy */
#endif

/* Return which of the next BLOCK fingerprints are equal to `fingerprint`, as bits. The buffer has
 * TREE_BUFFER_SPARE bytes after the node, so the load stays in the buffer. */
static inline uint32_t equal_fingerprints(const uint8_t *place, uint8_t fingerprint) {
#ifdef __SSE2__
    __m128i block = _mm_loadu_si128((const __m128i *)place);
    return (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(block, _mm_set1_epi8((char)fingerprint)));
#else
    uint32_t equal = 0;
    for (uint32_t i = 0; i < BLOCK; i++)
        equal |= (uint32_t)(place[i] == fingerprint) << i;
    return equal;
#endif
}

/* List entries of the run, from seek->index on, that have the fingerprint of the key, and prefetch them. */
static void list_candidates(struct tree_seek *seek, const struct remo_versioned_view *view,
                            const struct tree_header *header) {
    const uint8_t *fingerprints = (const uint8_t *)seek->buffer + remo__tree_fingerprints_at(header);
    uint8_t fingerprint = remo__tree_fingerprint(seek->key);
    uint32_t run = header->run, count = 0, first;
    for (first = seek->index; first < run && count < TREE_CANDIDATES; first += BLOCK) {
        uint32_t equal = equal_fingerprints(fingerprints + first, fingerprint);
        if (run - first < BLOCK) /* the block has bytes after the fingerprints */
            equal &= (UINT32_C(1) << (run - first)) - 1;
        if (remo__likely(equal == 0))
            continue;
        for (; equal != 0 && count < TREE_CANDIDATES; equal &= equal - 1)
            seek->candidates[count++] = first + (uint32_t)__builtin_ctz(equal);
    }
    seek->index = count == TREE_CANDIDATES ? seek->candidates[TREE_CANDIDATES - 1] + 1 : first;
    seek->count = count;
    for (uint32_t i = 0; i < count; i++)
        remo_versioned_view_prefetch(view, remo__tree_offset(seek->buffer, header, seek->candidates[i]));
}

/* Copy the key of an entry of the run, or all of a small entry, to the buffer. Returns false if the entry is
 * not in the node. */
static bool fetch_entry(const struct tree_seek *seek, const struct remo_versioned_view *view,
                        const struct tree_header *header, uint32_t index) {
    uint32_t node_bytes = seek->tree->node_bytes, offset = remo__tree_offset(seek->buffer, header, index);
    bool is_compact = remo__tree_is_compact(header);
    if (offset > node_bytes)
        return false;
    remo__tree_seek_fetch(seek, view, offset,
                          is_compact ? remo__tree_stride(header)
                                     : remo__min(TREE_ENTRY_BYTES + seek->key.bytes, node_bytes - offset));
    return true;
}

/* Compare the key of an entry of the run. If it is equal, copy the value. */
static enum tree_seek_result compare_entry(struct tree_seek *seek, const struct remo_versioned_view *view,
                                           const struct tree_header *header, uint32_t index) {
    if (remo__tree_is_removed(seek->buffer, header, index))
        return SEEK_ABSENT;
    if (!fetch_entry(seek, view, header, index)
        || !remo__tree_entry_of(seek->buffer, seek->tree->node_bytes, header, index, &seek->entry))
        return SEEK_DAMAGED;
    if (remo__tree_compare(seek->entry.key, seek->key) != 0)
        return SEEK_ABSENT;
    if (!remo__tree_is_compact(header))
        remo__tree_seek_fetch(seek, view, (uint32_t)((const char *)seek->entry.value.data - seek->buffer),
                              seek->entry.value.bytes);
    return SEEK_FOUND;
}

/* Find the key in the run of a leaf whose first candidates have been listed. */
static enum tree_seek_result find_in_run(struct tree_seek *seek, const struct remo_versioned_view *view,
                                         const struct tree_header *header) {
    for (;;) {
        for (uint32_t i = 0; i < seek->count; i++) {
            enum tree_seek_result result = compare_entry(seek, view, header, seek->candidates[i]);
            if (result != SEEK_ABSENT)
                return result;
        }
        if (seek->index >= header->run)
            return SEEK_ABSENT;
        list_candidates(seek, view, header);
    }
}

/* Find the key in the tail of a leaf. */
static enum tree_seek_result find_in_tail(struct tree_seek *seek, const struct remo_versioned_view *view,
                                          const struct tree_header *header) {
    uint32_t offset = header->tail;
    remo__tree_seek_fetch(seek, view, offset, (uint32_t)header->end - offset);
    while (offset < header->end) {
        offset += TREE_POSITION_BYTES;
        if (!remo__tree_entry_at(seek->buffer, header->end, offset, &seek->entry))
            return SEEK_DAMAGED;
        bool is_removed = remo__tree_load16(seek->buffer, offset) & TREE_REMOVED;
        if (!is_removed && remo__tree_compare(seek->entry.key, seek->key) == 0)
            return SEEK_FOUND;
        offset += remo__tree_entry_size(&seek->entry);
    }
    return SEEK_ABSENT;
}

void remo__tree_seek_prepare(void *ctx, const struct remo_versioned_view *view) {
    struct tree_seek *seek = ctx;
    uint32_t node_bytes = seek->tree->node_bytes;
    struct tree_header header;
    uint32_t first_bytes = remo__min(FIRST_BYTES, node_bytes);
    remo__tree_seek_fetch(seek, view, 0, first_bytes);
    memcpy(&header, seek->buffer, sizeof header);
    seek->result = SEEK_WRONG_WAY;
    if (!remo__tree_node_is_valid(seek->buffer, node_bytes, header.level))
        return;
    if (header.level > 0) {
        remo__tree_seek_fetch(seek, view, first_bytes,
                              node_bytes - first_bytes); /* the checked header stays */
        seek->result = SEEK_INNER;
        return;
    }
    if (header.end > header.tail)
        remo_versioned_view_prefetch(view, header.tail);
    uint32_t run_at = remo__tree_run_at(&header);
    if (run_at > first_bytes) /* fences and index */
        remo__tree_seek_fetch(seek, view, first_bytes, run_at - first_bytes);
    if (!remo__tree_node_covers(seek->buffer, node_bytes, seek->key))
        return;
    seek->index = 0;
    list_candidates(seek, view, &header);
    seek->result = SEEK_LEAF;
}

void remo__tree_seek_search(void *ctx, const struct remo_versioned_view *view) {
    struct tree_seek *seek = ctx;
    struct tree_header header;
    if (seek->result != SEEK_LEAF)
        return;
    memcpy(&header, seek->buffer, sizeof header);
    seek->result = find_in_run(seek, view, &header);
    if (seek->result == SEEK_ABSENT && header.end > header.tail)
        seek->result = find_in_tail(seek, view, &header);
}
