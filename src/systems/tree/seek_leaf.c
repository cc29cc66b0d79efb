/* seek_leaf.c - finds the entry of a key in a leaf, during its visit: the fingerprints select the entries of
 * the run that are compared, and then the tail is searched.
 * Invariant: a part of the leaf is copied to private memory before it is checked and used, because the leaf
 * may change meanwhile. The copy of the header, once checked, is not copied again. */
#include <endian.h>
#include <string.h>

#include "systems/tree/seek.h"

#ifdef REMO_SIM_SMALL
#define FIRST_BYTES 26u /* of a node: the header, and some of the index. Most changes write only this part */
#else
#define FIRST_BYTES 256u /* usually with the fences and the index: one copy */
#endif

/* Return the bytes of a word that are zero, as the highest bits of these bytes; perhaps also some bytes after
 * the first one. */
static uint64_t zero_bytes(uint64_t word) {
    return (word - UINT64_C(0x0101010101010101)) & ~word & UINT64_C(0x8080808080808080);
}

/* Load the next 8 fingerprints. If fewer are left, the bytes after them are those of `others`. */
static uint64_t load_fingerprints(const char *place, uint32_t left, uint64_t others) {
    if (remo__likely(left >= 8)) /* a copy of constant size */
        memcpy(&others, place, 8);
    else
        memcpy(&others, place, left);
    return others;
}

/* List entries of the run, from seek->index on, that probably have the fingerprint of the key, and prefetch
 * them. */
static void list_candidates(struct tree_seek *seek, const struct remo_versioned_view *view,
                            const struct tree_header *header) {
    const char *fingerprints = seek->buffer + remo__tree_fingerprints_at(header);
    uint64_t fingerprint = remo__tree_fingerprint(seek->key) * UINT64_C(0x0101010101010101);
    uint32_t run = header->run, count = 0, first;
    for (first = seek->index; first < run && count < TREE_CANDIDATES; first += 8) {
        uint64_t word = load_fingerprints(fingerprints + first, run - first, ~fingerprint);
        uint64_t zeros = zero_bytes(le64toh(word) ^ fingerprint);
        for (; remo__unlikely(zeros != 0) && count < TREE_CANDIDATES; zeros &= zeros - 1)
            seek->candidates[count++] = first + (uint32_t)__builtin_ctzll(zeros) / 8;
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
