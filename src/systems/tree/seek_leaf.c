/* seek_leaf.c - finds the entry of a key in a leaf, during its visit: the fingerprints select the entries of
 * the run that are compared, and then the tail is searched.
 * Invariant: a part of the leaf is copied to private memory before it is checked and used, because the leaf
 * may change meanwhile. The copy of the header, once checked, is not copied again. */
#include <string.h>

#include "base/equal.h"
#include "systems/tree/seek.h"

#define BLOCK REMO__EQUAL_BYTES /* fingerprints that are compared at once */
_Static_assert(BLOCK <= TREE_BUFFER_SPARE, "a load of fingerprints would pass the end of the buffer");

#ifdef REMO_SIM_SMALL
#define FIRST_BYTES 26u /* of a node: the header, and some of the index. Most changes write only this part */
#else
#define FIRST_BYTES 256u /* usually with the fences and the index: one copy */
#endif

/* List entries of the run, from seek->index on, that have the fingerprint of the key, and prefetch them. */
static void list_candidates(struct tree_seek *seek, const struct remo_versioned_view *view,
                            const struct tree_header *header) {
    const uint8_t *fingerprints = (const uint8_t *)seek->buffer + remo__tree_fingerprints_at(header);
    uint8_t fingerprint = remo__tree_fingerprint(seek->key);
    uint32_t run = header->run, count = 0, first;
    for (first = seek->index; first < run && count < TREE_CANDIDATES; first += BLOCK) {
        uint64_t equal = remo__equal_bytes(fingerprints + first, fingerprint); /* stays in the buffer */
        if (run - first < BLOCK) /* the block has bytes after the fingerprints */
            equal &= (UINT64_C(1) << (run - first)) - 1;
        for (; equal != 0 && count < TREE_CANDIDATES; equal &= equal - 1)
            seek->candidates[count++].index = first + (uint32_t)__builtin_ctzll(equal);
    }
    seek->index = count == TREE_CANDIDATES ? seek->candidates[TREE_CANDIDATES - 1].index + 1 : first;
    seek->count = count;
    for (uint32_t i = 0; i < count; i++) {
        struct tree_candidate *candidate = &seek->candidates[i];
        candidate->offset = remo__tree_offset(seek->buffer, header, candidate->index);
        remo_versioned_view_prefetch(view, candidate->offset);
    }
}

/* Find the key in the run of a leaf whose first candidates have been listed. */
static enum tree_seek_result find_in_run(struct tree_seek *seek, const struct remo_versioned_view *view,
                                         const struct tree_header *header) {
    for (;;) {
        for (uint32_t i = 0; i < seek->count; i++) {
            enum tree_seek_result result = remo__tree_seek_compare(seek, view, header, &seek->candidates[i]);
            if (result != SEEK_ABSENT)
                return result;
        }
        if (seek->index >= header->run)
            return SEEK_ABSENT;
        list_candidates(seek, view, header);
    }
}

enum tree_seek_result remo__tree_seek_tail(struct tree_seek *seek, const struct tree_header *header) {
    uint32_t offset = header->tail;
    while (offset < header->end) {
        offset += TREE_POSITION_BYTES;
        if (!remo__tree_entry_at(seek->buffer, header->end, offset, &seek->entry))
            return SEEK_DAMAGED;
        bool is_removed = remo__tree_load16(seek->buffer, offset) & TREE_REMOVED;
        if (!is_removed && remo__tree_is_equal(seek->entry.key, seek->key))
            return SEEK_FOUND;
        offset += remo__tree_entry_size(&seek->entry);
    }
    return SEEK_ABSENT;
}

void remo__tree_seek_prepare(void *ctx, const struct remo_versioned_view *view) {
    struct tree_seek *seek = ctx;
    uint32_t node_bytes = seek->tree->node_bytes, first_bytes = remo__min(FIRST_BYTES, node_bytes);
    struct tree_header header;
    remo__tree_seek_fetch(seek, view, 0, first_bytes);
    memcpy(&header, seek->buffer, sizeof header);
    seek->result = SEEK_WRONG_WAY;
    if (!remo__tree_header_is_valid(&header, node_bytes))
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
    if (!remo__tree_fences_cover(seek->buffer, &header, seek->key))
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
    if (seek->result == SEEK_ABSENT && header.end > header.tail) {
        remo__tree_seek_fetch(seek, view, header.tail, (uint32_t)header.end - header.tail);
        seek->result = remo__tree_seek_tail(seek, &header);
    }
}
