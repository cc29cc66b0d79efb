/* node_parts.h - what the files of nodes share. */
#pragma once

#include "systems/tree/node.h"

static inline struct tree_header remo__tree_header_of(const void *node) {
    struct tree_header header;
    memcpy(&header, node, sizeof header);
    return header;
}

static inline void remo__tree_set_header(void *node, const struct tree_header *header) {
    memcpy(node, header, sizeof *header);
}

static inline void remo__tree_store16(void *node, uint32_t offset, uint32_t value) {
    uint16_t stored = (uint16_t)value;
    memcpy((uint8_t *)node + offset, &stored, sizeof stored);
}

/* An entry of the tail. */
struct tree_tail_entry {
    struct tree_entry entry;
    uint32_t offset, position; /* of {key_bytes; ...}; the number of entries of the run before this one */
    bool is_removed;
};

/* Load the entry of the tail whose position is at *next, and set *next to the offset after the entry. Returns
 * 1, 0 at the end of the tail, or -1 if the entry is not valid. */
int remo__tree_tail_next(const void *node, uint32_t *next, struct tree_tail_entry *ret_tail);

/* Add an entry to the sizes of others. */
void remo__tree_sizes_add(struct tree_sizes *sizes, const struct tree_entry *entry);
