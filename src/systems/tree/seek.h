/* seek.h - what the files of gets share. read.c finds the leaf of a key; seek_direct.c and seek_leaf.c find
 * the entry in the leaf. */
#pragma once

#include "objects/versioned_direct.h"
#include "systems/tree/tree.h"

#ifdef REMO_SIM_SMALL
#define TREE_CANDIDATES 2u /* entries that are prefetched together */
#else
#define TREE_CANDIDATES 8u
#endif

/* The entry of a leaf for a key, or an inner node. */
enum tree_seek_result {
    SEEK_WRONG_WAY, /* the nodes on the path do not fit together */
    SEEK_INNER,     /* the buffer has an inner node */
    SEEK_LEAF,      /* the leaf has been prepared */
    SEEK_FOUND,     /* `entry` is in the buffer */
    SEEK_ABSENT,
    SEEK_DAMAGED,
};

/* An entry of the run that has the fingerprint of the key. In a mixed run the offset is not checked. */
struct tree_candidate {
    uint32_t index, offset;
};

struct tree_seek {
    struct remo_tree *tree;
    struct tree_cache *cache;
    char *buffer; /* of a node: the parts of it that have been copied */
    uint32_t owner;
    uint64_t version; /* REMO_VERSIONED_NEWEST: the newest state of each node */
    bool use_cache;
    struct tree_bytes key;
    enum tree_seek_result result;
    struct tree_entry entry;
    uint32_t index, count; /* of a leaf: the search of the run continues at `index`; its candidates */
    struct tree_candidate candidates[TREE_CANDIDATES];
    int failure; /* of several gets: the error of an earlier read from the owner; 0: none */
    struct remo__versioned_direct direct;
    struct tree_header header; /* of a leaf that is read directly */
};

/* Copy a part of the node to the same place in the buffer. `view`: NULL: the node is read directly. */
static inline __attribute__((always_inline)) void
remo__tree_seek_fetch(const struct tree_seek *seek, const struct remo_versioned_view *view, uint32_t offset,
                      uint32_t bytes) {
    if (view)
        remo_versioned_view_copy(view, offset, seek->buffer + offset, bytes);
    else if (bytes == 16) /* without a call: an entry of two words */
        remo__versioned_direct_copy(&seek->direct, offset, seek->buffer + offset, 16);
    else
        remo__versioned_direct_copy(&seek->direct, offset, seek->buffer + offset, bytes);
}

/* Load an entry of a compact run: copy it to the buffer. The header was checked, so the entry is in the
 * node. */
static inline __attribute__((always_inline)) void
remo__tree_seek_compact(struct tree_seek *seek, const struct remo_versioned_view *view,
                        const struct tree_header *header, uint32_t offset) {
    const char *key = seek->buffer + offset;
    remo__tree_seek_fetch(seek, view, offset, remo__tree_stride(header));
    seek->entry.key = (struct tree_bytes){key, header->key_bytes};
    seek->entry.value = (struct tree_bytes){key + header->key_bytes, header->value_bytes};
}

/* Load an entry of a mixed run whose key probably has the size of the searched one; copy it up to the end of
 * that key to the buffer. Returns false if the entry is not in the node. */
static inline __attribute__((always_inline)) bool
remo__tree_seek_mixed(struct tree_seek *seek, const struct remo_versioned_view *view, uint32_t offset) {
    uint32_t node_bytes = seek->tree->node_bytes;
    if (offset > node_bytes)
        return false;
    remo__tree_seek_fetch(seek, view, offset,
                          remo__min(TREE_ENTRY_BYTES + seek->key.bytes, node_bytes - offset));
    return remo__tree_entry_at(seek->buffer, node_bytes, offset, &seek->entry);
}

/* Compare the key of an entry of the run, whose mark is in the buffer. If it is equal, copy the value. */
static inline __attribute__((always_inline)) enum tree_seek_result
remo__tree_seek_compare(struct tree_seek *seek, const struct remo_versioned_view *view,
                        const struct tree_header *header, const struct tree_candidate *candidate) {
    bool is_compact = remo__tree_is_compact(header);
    if (remo__tree_is_removed(seek->buffer, header, candidate->index))
        return SEEK_ABSENT;
    if (is_compact)
        remo__tree_seek_compact(seek, view, header, candidate->offset);
    else if (!remo__tree_seek_mixed(seek, view, candidate->offset))
        return SEEK_DAMAGED;
    if (!remo__tree_is_equal(seek->entry.key, seek->key))
        return SEEK_ABSENT;
    if (!is_compact)
        remo__tree_seek_fetch(seek, view, (uint32_t)((const char *)seek->entry.value.data - seek->buffer),
                              seek->entry.value.bytes);
    return SEEK_FOUND;
}

/* ---- seek_leaf.c ---- */

/* The first step of a visit. Copy an inner node; of a leaf, copy the header, index and fences,
 * and prefetch what the second step needs. */
void remo__tree_seek_prepare(void *ctx, const struct remo_versioned_view *view);
/* The second step of a visit: search a leaf. It copies only some entries, and the tail. */
void remo__tree_seek_search(void *ctx, const struct remo_versioned_view *view);
/* Find the key in the tail of a leaf, which is in the buffer. */
enum tree_seek_result remo__tree_seek_tail(struct tree_seek *seek, const struct tree_header *header);

/* ---- seek_direct.c ---- */

/* Read a leaf directly in mapped memory, as most gets do. Sets the result: SEEK_FOUND or SEEK_ABSENT. Returns
 * false if the get must visit the node instead. */
bool remo__tree_direct_get(struct tree_seek *seek, uint32_t object);
/* Complete a direct read that has begun: the steps after the prefetch. Returns as above. */
bool remo__tree_direct_search(struct tree_seek *seek);
/* As remo__tree_direct_get for several gets, in steps, so that the CPU waits for the memory of several leaves
 * at the same time. Finds the leaves by cached inner nodes. Returns whether all have a result. */
bool remo__tree_direct_get_each(struct tree_seek *seeks, uint32_t count);
