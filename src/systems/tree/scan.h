/* scan.h - what the files of scans share. scan.c finds the leaves, scan_leaf.c uses them, and scan_merge.c
 * merges their entries. */
#pragma once

#include <string.h>

#include "systems/tree/tree.h"

#define TREE_WRONG_WAY 1 /* not an error if the inner nodes were cached */

/* The progress of a scan. The cursor is the limit at which the rest of the range begins: ascending, its first
 * key; descending, the key after it. */
struct tree_scan_state {
    struct remo_tree_result result;
    bool is_full;    /* the buffer or the limit has ended the scan */
    bool is_last;    /* no leaf of the owner follows */
    int rc;          /* of the last leaf */
    bool has_cursor; /* false: descending from the last key of the tree */
    uint32_t cursor_bytes;
    char *cursor;
};

struct tree_scan {
    struct remo_tree *tree;
    struct tree_bytes from, to;
    bool has_to, is_descending, keys_only;
    uint64_t limit;
    const uint64_t *snapshot; /* NULL: find the versions */
    char *buffer;             /* NULL: count the entries */
    size_t cap;
    struct tree_cache *cache;
    struct tree_scan_state now, next; /* before and after the leaf that is visited */
    char cursors[2][REMO_TREE_KEY_BYTES_MAX + 1];

    /* the present owner */
    uint32_t position, owner;
    uint64_t version;
    bool use_cache;                       /* inner nodes may be of another version */
    char *nodes;                          /* the parent of the leaves, and a leaf */
    const struct tree_scan_leaf *visited; /* whose results are in `next`; NULL: none */
};

/* A leaf that is visited. */
struct tree_scan_leaf {
    struct tree_scan *scan;
};

/* The contents of a leaf: those of a visit, or a copy. */
struct tree_source {
    const struct remo_versioned_view *view;
    const char *copy;
};

static inline void remo__tree_scan_set_cursor(struct tree_scan_state *state, struct tree_bytes key) {
    if (key.bytes > 0)
        memcpy(state->cursor, key.data, key.bytes);
    state->cursor_bytes = key.bytes;
    state->has_cursor = true;
}

static inline struct tree_bytes remo__tree_scan_cursor(const struct tree_scan *scan) {
    return (struct tree_bytes){scan->now.cursor, scan->now.cursor_bytes};
}

static inline char *remo__tree_scan_node(const struct tree_scan *scan, uint32_t index) {
    return scan->nodes + (size_t)index * scan->tree->node_bytes;
}

/* Return whether the range has no keys from `key` on. */
static inline bool remo__tree_scan_is_beyond(const struct tree_scan *scan, struct tree_bytes key) {
    return scan->has_to && remo__tree_compare(key, scan->to) >= 0;
}

/* Copy `count` adjacent entries of `stride` bytes, each behind its sizes. */
static inline __attribute__((always_inline)) void
remo__tree_spread(char *place, const char *from, uint32_t count, uint32_t stride, const uint16_t sizes[2]) {
    uint32_t word;
    memcpy(&word, sizes, sizeof word);
    for (uint32_t i = 0; i < count; i++) {
        memcpy(place, &word, sizeof word);
        memcpy(place + TREE_ENTRY_BYTES, from, stride);
        place += TREE_ENTRY_BYTES + stride;
        from += stride;
    }
}

/* ---- scan_leaf.c ---- */

/* Use the entries of a leaf from the cursor on, and move the cursor to the other end of the leaf: from
 * scan->now to scan->next. Returns TREE_WRONG_WAY if the rest of the range does not begin in the leaf, and
 * -EPROTO without a sentence if the leaf is damaged. */
int remo__tree_scan_use_leaf(struct tree_scan *scan, const struct tree_source *source);

/* ---- scan_merge.c ---- */

/* The size of the entries that a scan merges in groups, and the entries of a group. */
#ifdef REMO_SIM_SMALL
#define TREE_MERGED_BYTES 9u
#define TREE_MERGED_GROUP 2u
#else
#define TREE_MERGED_BYTES 16u
#define TREE_MERGED_GROUP 8u
#endif

/* Copy entries of a compact leaf to `place`, as in a result, and move the walk behind them: those of the run
 * before index `end`, none of which was removed, and those of the tail with positions before `end`. All
 * entries of the run have TREE_MERGED_BYTES. May read the memory of a group behind the leaf, and write that
 * of a group behind the last entry. Sets *ret_bytes to the bytes of the entries, and returns their number. */
uint32_t remo__tree_scan_merge(struct tree_walk *walk, uint32_t end, char *place, size_t *ret_bytes);
