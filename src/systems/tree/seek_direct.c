/* seek_direct.c - finds the entry of a key in a leaf by a direct read (objects/versioned_direct.h): copies
 * of the header, the fences and the entry, with the lead and the records that overlap them.
 * Invariant: a result is used only if the extent was not used again since the head was loaded. Until then,
 * each part of the leaf is checked before its use, because it may be of another use of the extent. */
#include <string.h>

#include "systems/tree/seek.h"

#ifdef REMO_SIM_SMALL
#define FIRST_BYTES 32u /* of a node, copied at once: the header, and the fences of usual length */
#else
#define FIRST_BYTES 64u
#endif
_Static_assert(sizeof(struct tree_header) <= FIRST_BYTES && FIRST_BYTES <= TREE_NODE_BYTES_MIN,
               "the first bytes have the header, and are in the node");
_Static_assert(offsetof(struct tree_header, count) == REMO__VERSIONED_LEAD_AT
                   && sizeof(struct tree_header) == REMO__VERSIONED_LEAD_AT + REMO__VERSIONED_LEAD_BYTES,
               "the part of the header that changes alone is the lead");
#define NODE_BYTES 256u /* prefetched: of a node, and of its records */
#define RECORDS_BYTES 192u
#define SEARCH_DISTANCE 7u /* of several gets: from the prefetch of a leaf to its search, in gets */
#define FINISH_DISTANCE 3u /* from the search to the copy of the entry */

/* ---- begin ---- */

static inline void prefetch_lines(const char *place, uint64_t bytes) {
    for (uint64_t i = 0; i < bytes; i += REMO__CACHE_LINE)
        remo__mapped_prefetch(place + i);
}

static inline bool begin(struct tree_seek *seek, uint32_t object) {
    const struct remo_tree *tree = seek->tree;
    struct remo__versioned_direct *direct = &seek->direct;
    if (!remo__versioned_direct_begin(tree->nodes, remo__thread(tree->node), seek->owner, object, direct))
        return false;
    remo__mapped_prefetch(direct->extent);
    prefetch_lines(remo__versioned_direct_base(direct), NODE_BYTES);
    return true;
}

/* ---- search ---- */

/* Return which of the next fingerprints, of which `left` are of the run, are equal to that of the key, as
 * bits. */
static inline __attribute__((always_inline)) uint64_t
equal_fingerprints(const struct tree_seek *seek, uint32_t at, uint32_t left, uint8_t fingerprint) {
    const char *fingerprints = remo__versioned_direct_base(&seek->direct) + at;
    char block[REMO__EQUAL_BYTES];
    if (left >= REMO__EQUAL_BYTES)
        return remo__equal_from(fingerprints, fingerprint);
    uint64_t equal;
    if (remo__likely(at + REMO__EQUAL_BYTES <= seek->tree->node_bytes)) {
        equal = remo__equal_from(fingerprints, fingerprint);
    } else { /* a whole block would pass the end of the node */
        remo__copy_from(block, fingerprints, left);
        equal = remo__equal_bytes(block, fingerprint);
    }
    return equal & ((UINT64_C(1) << left) - 1);
}

/* Return the offset of an entry of the run. If the run is mixed, its slot is in the buffer then. */
static inline uint32_t offset_of(const struct tree_seek *seek, const struct tree_header *header,
                                 uint32_t index) {
    if (!remo__tree_is_compact(header))
        remo__tree_seek_fetch(seek, NULL, remo__tree_slot_at(header, index), 2);
    return remo__tree_offset(seek->buffer, header, index);
}

/* List entries of the run, from seek->index on, that have the fingerprint of the key, and prefetch them. */
static inline __attribute__((always_inline)) void list_candidates(struct tree_seek *seek,
                                                                  const struct tree_header header) {
    const char *node = remo__versioned_direct_base(&seek->direct);
    uint8_t fingerprint = remo__tree_fingerprint(seek->key);
    uint32_t run = header.run, at = remo__tree_fingerprints_at(&header), count = 0, first = seek->index;
    for (; first < run && count < TREE_CANDIDATES; first += REMO__EQUAL_BYTES) {
        uint64_t equal = equal_fingerprints(seek, at + first, run - first, fingerprint);
        for (; equal != 0 && count < TREE_CANDIDATES; equal &= equal - 1) {
            uint32_t index = first + (uint32_t)__builtin_ctzll(equal);
            uint32_t offset = offset_of(seek, &header, index);
            seek->candidates[count++] = (struct tree_candidate){index, offset};
            remo__mapped_prefetch(node + offset);
        }
    }
    seek->index = count == TREE_CANDIDATES ? seek->candidates[TREE_CANDIDATES - 1].index + 1 : first;
    seek->count = count;
}

/* The header is checked in a copy of its own, so that the compiler keeps it in registers. */
static inline bool search(struct tree_seek *seek) {
    struct remo__versioned_direct *direct = &seek->direct;
    const char *node = remo__versioned_direct_base(direct);
    struct tree_header header;
    if (!remo__versioned_direct_open(direct))
        return false;
    remo__copy_from(seek->buffer, node, FIRST_BYTES);
    memcpy(&header, seek->buffer, sizeof header);
    if (!remo__versioned_direct_lead(direct, (char *)&header + REMO__VERSIONED_LEAD_AT))
        return false;
    uint32_t index_at = remo__tree_index_at(&header);
    if (!remo__tree_header_is_valid(&header, seek->tree->node_bytes) || header.level > 0
        || remo__versioned_direct_may_change(direct, 0, index_at))
        return false; /* records change only the entries and the bits, unless they write the complete node */
    if (index_at > FIRST_BYTES)
        remo__copy_from(seek->buffer + FIRST_BYTES, node + FIRST_BYTES, index_at - FIRST_BYTES);
    if (!remo__tree_fences_cover(seek->buffer, &header, seek->key))
        return false;
    seek->header = header;
    seek->index = 0;
    list_candidates(seek, header);
    return true;
}

/* ---- finish ---- */

/* Copy the byte with the bit of an entry to the buffer. The first bytes of the base are there. */
static inline void fetch_bit(const struct tree_seek *seek, uint32_t at) {
    if (at >= FIRST_BYTES || remo__versioned_direct_may_change(&seek->direct, at, 1))
        remo__tree_seek_fetch(seek, NULL, at, 1);
}

/* Rare, and so of its own: search has the other copy of list_candidates. */
static __attribute__((noinline)) void list_more(struct tree_seek *seek) {
    list_candidates(seek, seek->header);
}

/* Find the key in the run. A result of the first entry that is not SEEK_ABSENT ends the search. */
static inline enum tree_seek_result find_in_run(struct tree_seek *seek) {
    const struct tree_header *header = &seek->header;
    for (;;) {
        for (uint32_t i = 0; i < seek->count; i++) {
            const struct tree_candidate *candidate = &seek->candidates[i];
            if (remo__tree_is_compact(header)) /* the slot of a mixed run is in the buffer */
                fetch_bit(seek, remo__tree_bit_at(header, candidate->index));
            enum tree_seek_result result = remo__tree_seek_compare(seek, NULL, header, candidate);
            if (result != SEEK_ABSENT)
                return result;
        }
        if (remo__likely(seek->index >= header->run))
            return SEEK_ABSENT;
        list_more(seek);
    }
}

static enum tree_seek_result find_in_tail(struct tree_seek *seek) {
    const struct tree_header *header = &seek->header;
    if (header->end == header->tail)
        return SEEK_ABSENT;
    remo__tree_seek_fetch(seek, NULL, header->tail, (uint32_t)header->end - header->tail);
    return remo__tree_seek_tail(seek, header);
}

/* Return the bytes of the leaf that a get with this result in the run has read, for statistics. */
static inline uint64_t count_bytes(const struct tree_seek *seek, enum tree_seek_result in_run) {
    const struct tree_header *header = &seek->header;
    return remo__tree_run_at(header)
           + (in_run == SEEK_FOUND ? seek->entry.key.bytes + seek->entry.value.bytes
                                   : (uint32_t)header->end - header->tail);
}

static inline bool finish(struct tree_seek *seek) {
    enum tree_seek_result result = find_in_run(seek);
    uint64_t bytes = count_bytes(seek, result);
    if (result == SEEK_ABSENT)
        result = find_in_tail(seek);
    if (result == SEEK_DAMAGED || !remo__versioned_direct_end(&seek->direct, bytes))
        return false;
    seek->result = result;
    return true;
}

/* ---- the calls ---- */

bool remo__tree_direct_search(struct tree_seek *seek) {
    return search(seek) && finish(seek);
}

bool remo__tree_direct_get(struct tree_seek *seek, uint32_t object) {
    if (!begin(seek, object))
        return false;
    /* for an entry of the tail; of several gets this takes longer than it saves */
    prefetch_lines(remo__versioned_direct_records(&seek->direct), RECORDS_BYTES);
    return remo__tree_direct_search(seek);
}

/* Prefetch the leaf, search it and prefetch the entry, copy the entry: each step of a get is between those of
 * others. */
bool remo__tree_direct_get_each(struct tree_seek *seeks, uint32_t count) {
    uint32_t finished_count = 0;
    bool is_begun[TREE_WINDOW], is_searched[TREE_WINDOW];
    for (uint32_t i = 0; i < count + SEARCH_DISTANCE + FINISH_DISTANCE; i++) {
        /* these wrap around at first: then they are large */
        uint32_t searched = i - SEARCH_DISTANCE, finished = searched - FINISH_DISTANCE, object;
        if (i < count) {
            struct tree_seek *seek = &seeks[i];
            is_begun[i] =
                remo__tree_cached_leaf(seek->cache, seek->tree->node_bytes, seek->owner, seek->key, &object)
                && begin(seek, object);
        }
        if (searched < count)
            is_searched[searched] = is_begun[searched] && search(&seeks[searched]);
        if (finished < count && is_searched[finished])
            finished_count += finish(&seeks[finished]);
    }
    return finished_count == count;
}
