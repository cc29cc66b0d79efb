/* node.h - a node of the tree: a sorted array of entries in a versioned object of `bytes` bytes.
 *
 * Layout: {header; u16 slots[count]; free space; entries; high fence; low fence}. A slot is the offset of an
 *         entry; slots are in the order of keys. An entry is {u16 key_bytes; u16 value_bytes; key; value}. In
 *         an inner node the value is the index of the child (u32), and the key of the first entry is empty:
 *         it stands for the low fence. Entries of a leaf have keys with low fence <= key < high fence.
 * Changes: a change of a node in private memory lists the ranges of bytes that it writes, which the owner
 *          then commits. The space of removed entries is garbage until the node is packed.
 * Checks:  a peer's memory may contain anything. Functions that read a node verify each offset and
 *          size that they use. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef REMO_SIM_SMALL
#define TREE_NODE_BYTES_MIN 64u
#define TREE_ENTRIES_MIN 4u /* of the largest size in a node */
#else
#define TREE_NODE_BYTES_MIN 512u
#define TREE_ENTRIES_MIN 8u
#endif
#define TREE_NODE_BYTES_MAX 32768u
#define TREE_RANGES_MAX 3u  /* of one change */
#define TREE_ENTRY_BYTES 4u /* of an entry, without key and value */

struct tree_header {
    uint8_t level;                  /* 0: a leaf */
    uint8_t kind;                   /* TREE_... */
    uint16_t count;                 /* entries */
    uint16_t entries;               /* offset of the first byte of entries */
    uint16_t garbage;               /* bytes of removed entries */
    uint16_t low_bytes, high_bytes; /* of the fences */
};

enum { TREE_UNUSED, TREE_NODE, TREE_LAST }; /* TREE_LAST: a node without a high fence */

struct tree_bytes {
    const void *data;
    uint32_t bytes;
};

struct tree_entry {
    struct tree_bytes key, value;
};

/* A range of bytes of a node that a change has written. */
struct tree_range {
    uint16_t offset, bytes;
};

struct tree_ranges {
    uint32_t count;
    struct tree_range ranges[TREE_RANGES_MAX];
};

/* Compare keys as strings of unsigned bytes; a prefix is smaller. */
int remo__tree_compare(struct tree_bytes a, struct tree_bytes b);

/* Return the first 8 bytes of a key as a number, as if zeros followed a shorter key. Of two keys with
 * different numbers, that with the smaller number is smaller. */
uint64_t remo__tree_first_bytes(struct tree_bytes key);

/* ---- read ---- */

/* Return the maximum number of children of an inner node. */
uint32_t remo__tree_node_entries_max(uint32_t bytes);

/* Return whether `node` is in use, has this level, and has valid fences. */
bool remo__tree_node_is_valid(const void *node, uint32_t bytes, uint32_t level);
/* Return whether an entry can be inserted, replaced or removed: the header is valid. */
bool remo__tree_node_is_changeable(const void *node, uint32_t bytes);
/* Return whether the node can be packed, split or merged: the header and all entries are valid. */
bool remo__tree_node_is_whole(const void *node, uint32_t bytes);
struct tree_bytes remo__tree_node_low(const void *node, uint32_t bytes);
/* Return false if the node has no high fence. */
bool remo__tree_node_high(const void *node, uint32_t bytes, struct tree_bytes *ret_high);
/* Return whether `key` is between the fences. */
bool remo__tree_node_covers(const void *node, uint32_t bytes, struct tree_bytes key);
/* Return the offset of the end of the slots. */
uint32_t remo__tree_node_slots_end(const void *node);
static inline uint32_t remo__tree_load16(const void *node, uint32_t offset) {
    uint16_t value;
    memcpy(&value, (const uint8_t *)node + offset, sizeof value);
    return value;
}

static inline uint32_t remo__tree_slot_at(uint32_t index) {
    return (uint32_t)sizeof(struct tree_header) + 2 * index;
}

/* Return the offset of entry `index`, which is not checked. */
static inline uint32_t remo__tree_node_offset(const void *node, uint32_t index) {
    return remo__tree_load16(node, remo__tree_slot_at(index));
}

/* Return false if the entry is not valid. */
static inline bool remo__tree_node_entry(const void *node, uint32_t bytes, uint32_t index,
                                         struct tree_entry *ret_entry) {
    uint32_t offset = remo__tree_node_offset(node, index);
    if (offset > bytes - TREE_ENTRY_BYTES)
        return false;
    uint32_t key_bytes = remo__tree_load16(node, offset), value_bytes = remo__tree_load16(node, offset + 2);
    if (key_bytes + value_bytes > bytes - TREE_ENTRY_BYTES - offset)
        return false;
    const uint8_t *key = (const uint8_t *)node + offset + TREE_ENTRY_BYTES;
    ret_entry->key = (struct tree_bytes){key, key_bytes};
    ret_entry->value = (struct tree_bytes){key + key_bytes, value_bytes};
    return true;
}

/* Find the first entry whose key is not less than `key`; *ret_found: whether it is equal. Returns false
 * if an entry is not valid. */
bool remo__tree_node_find(const void *node, uint32_t bytes, struct tree_bytes key, uint32_t *ret_index,
                          bool *ret_found);
/* Set *ret_child to the child of an entry of an inner node. Returns false if the value of the entry is not
 * the index of a child; the root is never a child. */
bool remo__tree_child_of(const struct tree_entry *entry, uint32_t node_count, uint32_t *ret_child);
/* Find the child of an inner node whose range contains `key`. */
bool remo__tree_node_child(const void *node, uint32_t bytes, struct tree_bytes key, uint32_t *ret_index,
                           uint32_t *ret_child);

/* ---- change, in private memory ---- */

/* Return the bytes that the entry of a key and a value needs, with its slot. */
uint32_t remo__tree_entry_bytes(uint32_t key_bytes, uint32_t value_bytes);
/* Make an empty node. `high` may be NULL. */
void remo__tree_node_init(void *node, uint32_t bytes, uint32_t level, struct tree_bytes low,
                          const struct tree_bytes *high);
/* Insert an entry before `index`. Returns false if there is no room; then pack or split. */
bool remo__tree_node_insert(void *node, uint32_t bytes, uint32_t index, struct tree_bytes key,
                            struct tree_bytes value, struct tree_ranges *ret_ranges);
/* Replace the value of an entry. Returns false if there is no room. */
bool remo__tree_node_replace(void *node, uint32_t bytes, uint32_t index, struct tree_bytes value,
                             struct tree_ranges *ret_ranges);
void remo__tree_node_remove(void *node, uint32_t bytes, uint32_t index, struct tree_ranges *ret_ranges);
/* Return the free bytes, with those of garbage. */
uint32_t remo__tree_node_free(const void *node, uint32_t bytes);
/* Return the bytes that a node with these fences has for entries and their slots. */
uint32_t remo__tree_node_room(const void *node, uint32_t bytes);
/* Remove the garbage. `scratch` has `bytes` bytes. */
void remo__tree_node_pack(void *node, uint32_t bytes, void *scratch);
/* Make `right`, and move the upper entries to it: about half of the bytes, or only the last entry if `index`,
 * the position of the next insertion, is after all entries. The separator is the low fence of `right`.
 * `scratch` has `bytes` bytes. The node has at least two entries. */
void remo__tree_node_split(void *node, void *right, uint32_t bytes, uint32_t index, void *scratch);
/* Append the entries of `right`, the next node of the same level, and take over its high fence. Returns
 * false, without effect, if they do not fit, or if both are leaves with entries and would nearly fill one. */
bool remo__tree_node_merge(void *node, const void *right, uint32_t bytes, void *scratch);
