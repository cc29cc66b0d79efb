/* seek.h - what the files of gets share. read.c finds the leaf of a key, and seek_leaf.c finds the entry in
 * the leaf. */
#pragma once

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
};

/* Copy a part of the node to the same place in the buffer. */
static inline void remo__tree_seek_fetch(const struct tree_seek *seek, const struct remo_versioned_view *view,
                                         uint32_t offset, uint32_t bytes) {
    remo_versioned_view_copy(view, offset, seek->buffer + offset, bytes);
}

/* ---- seek_leaf.c ---- */

/* The first step of a visit. Copy an inner node; of a leaf, copy the header, index and fences,
 * and prefetch what the second step needs. */
void remo__tree_seek_prepare(void *ctx, const struct remo_versioned_view *view);
/* The second step of a visit: search a leaf. It copies only some entries, and the tail. */
void remo__tree_seek_search(void *ctx, const struct remo_versioned_view *view);
