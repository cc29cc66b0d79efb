/* node.h - a node of the tree, in a versioned object of `bytes` bytes: sorted entries, and a tail.
 *
 * Layout:  {header; low fence; high fence; index; entries of the run; tail; free space}. The run has entries
 *          in the order of keys. The index of the run has a fingerprint of each of them: a hash of the key.
 *          A get compares only the entries with the fingerprint of its key. There are two forms:
 *          - compact: all entries of the run have the sizes in the header. The run is an array of {key;
 *            value}. The index is {bits[run]; u8 fingerprints[run]}, with a bit for each removed entry.
 *          - mixed: an entry is {u16 key_bytes; u16 value_bytes; key; value}. The index is {u16 slots[run];
 *            u8 fingerprints[run]}. A slot is the offset of an entry, and marks a removed one.
 *          Packing a leaf chooses the compact form if all entries have the same sizes. Inner nodes and empty
 *          leaves are mixed. The tail has entries that were inserted after the node was packed, in the order
 *          of their insertion, TREE_TAIL_MAX at most, each as {u16 position; mixed entry}, of any sizes. The
 *          position is the number of entries of the run, with removed ones, that precede the entry in the
 *          order of keys. In the tail, key_bytes marks a removed entry.
 *          An inner node has no tail and no removed entries. There the value is the index of the child (u32),
 *          and the key of the first entry is empty: it stands for the low fence. Entries of a leaf have keys
 *          with low fence <= key < high fence.
 * Changes: a change of a leaf in private memory lists the ranges of bytes that it writes, which the owner
 *          then commits. These are short: a part of the header, a mark, and a value or an entry of the tail.
 *          Packing a node makes one run of all entries. A change of an inner node writes it again, packed.
 * Files:   node_read.c, node_walk.c, node_change.c and node_pack.c; node_parts.h is what they share.
 * Checks:  a peer's memory may contain anything. Functions that read a node verify each offset and
 *          size that they use. */
#pragma once

#include <endian.h>
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
#define TREE_RANGES_MAX 3u     /* of one change */
#define TREE_ENTRY_BYTES 4u    /* of an entry, without key and value */
#define TREE_SLOT_BYTES 3u     /* of an entry of a mixed run, besides: slot and fingerprint */
#define TREE_POSITION_BYTES 2u /* of an entry of the tail, besides: its position */
#define TREE_REMOVED 0x8000u   /* in a slot, or in key_bytes of an entry of the tail */
#define TREE_MIXED 0xffffu     /* header.key_bytes of the mixed form */
#ifdef REMO_SIM_SMALL
#define TREE_TAIL_MAX 2u  /* entries of the tail, with removed ones */
#define TREE_TAIL_PART 2u /* of the node's bytes: the maximum size of the tail */
#define TREE_RUN_ALIGN 2u /* of a compact run */
#else
#define TREE_TAIL_MAX 8u
#define TREE_TAIL_PART 4u
#define TREE_RUN_ALIGN 8u
#endif

struct tree_header {
    uint8_t level;                  /* 0: a leaf */
    uint8_t kind;                   /* TREE_... */
    uint16_t run;                   /* entries of the run, with removed ones */
    uint16_t tail;                  /* offset of the tail */
    uint16_t low_bytes, high_bytes; /* of the fences */
    uint16_t key_bytes;             /* of each entry of the run; TREE_MIXED: the form is mixed */
    uint16_t value_bytes;           /* of each entry of the run; mixed: 0 */
    /* These change with each insertion and removal: */
    uint16_t count; /* entries, without removed ones */
    uint16_t end;   /* offset of the end of the tail */
    uint16_t used;  /* bytes of the entries, if all of them were in a mixed run */
};

enum { TREE_UNUSED, TREE_NODE, TREE_LAST }; /* TREE_LAST: a node without a high fence */

struct tree_bytes {
    const void *data;
    uint32_t bytes;
};

struct tree_entry {
    struct tree_bytes key, value;
};

/* The sizes of some entries. */
struct tree_sizes {
    uint32_t count;
    uint32_t used; /* bytes in a mixed run */
    bool is_mixed; /* not all of them have the sizes below */
    uint32_t key_bytes, value_bytes;
};

/* A range of bytes of a node that a change has written. */
struct tree_range {
    uint16_t offset, bytes;
};

struct tree_ranges {
    uint32_t count;
    struct tree_range ranges[TREE_RANGES_MAX];
};

/* Return 8 bytes as a number, in the order of memcmp. */
static inline uint64_t remo__tree_load64(const void *data) {
    uint64_t word;
    memcpy(&word, data, sizeof word);
    return be64toh(word);
}

/* Return whether two keys are equal. */
static inline bool remo__tree_is_equal(struct tree_bytes a, struct tree_bytes b) {
    if (a.bytes != b.bytes)
        return false;
    return a.bytes == 8 ? remo__tree_load64(a.data) == remo__tree_load64(b.data)
                        : a.bytes == 0 || memcmp(a.data, b.data, a.bytes) == 0;
}

/* Compare keys whose first 8 bytes are equal, or of which one is shorter. */
int remo__tree_compare_rest(struct tree_bytes a, struct tree_bytes b);

/* Compare keys as strings of unsigned bytes; a prefix is smaller. The first 8 bytes decide most comparisons,
 * without a call. */
static inline int remo__tree_compare(struct tree_bytes a, struct tree_bytes b) {
    if (a.bytes >= 8 && b.bytes >= 8) {
        uint64_t first_a = remo__tree_load64(a.data), first_b = remo__tree_load64(b.data);
        if (first_a != first_b)
            return first_a < first_b ? -1 : 1;
    }
    return remo__tree_compare_rest(a, b);
}

/* Return the first 8 bytes of a key as a number, as if zeros followed a shorter key. Of two keys with
 * different numbers, that with the smaller number is smaller. */
uint64_t remo__tree_first_bytes_short(struct tree_bytes key);
static inline uint64_t remo__tree_first_bytes(struct tree_bytes key) {
    return key.bytes >= 8 ? remo__tree_load64(key.data) : remo__tree_first_bytes_short(key);
}

/* ---- read ---- */

/* Return the maximum number of children of an inner node. */
uint32_t remo__tree_node_entries_max(uint32_t bytes);

/* Return whether `node` is in use, has this level, and has a valid header. */
bool remo__tree_node_is_valid(const void *node, uint32_t bytes, uint32_t level);
/* Return whether the node can be packed, split or merged: the header and all entries are valid. Removed
 * entries of the run are not checked. */
bool remo__tree_node_is_whole(const void *node, uint32_t bytes);
struct tree_bytes remo__tree_node_low(const void *node, uint32_t bytes);
/* Return false if the node has no high fence. */
bool remo__tree_node_high(const void *node, uint32_t bytes, struct tree_bytes *ret_high);
/* Return whether `key` is between the fences. */
bool remo__tree_node_covers(const void *node, uint32_t bytes, struct tree_bytes key);
/* Return the fingerprint of a key; of 8 bytes, without a call. */
uint8_t remo__tree_fingerprint_long(struct tree_bytes key);
static inline uint8_t remo__tree_fingerprint(struct tree_bytes key) {
    if (key.bytes != 8)
        return remo__tree_fingerprint_long(key);
    unsigned __int128 product = remo__tree_load64(key.data) ^ UINT64_C(0xbe4ba423396cfeb8);
    product *= UINT64_C(0x9e3779b97f4a7c15);
    return (uint8_t)(product >> 64 ^ product); /* the high and the low bits: keys at equal distances differ */
}

static inline uint32_t remo__tree_load16(const void *node, uint32_t offset) {
    uint16_t value;
    memcpy(&value, (const uint8_t *)node + offset, sizeof value);
    return value;
}

static inline bool remo__tree_is_compact(const struct tree_header *header) {
    return header->key_bytes != TREE_MIXED;
}

/* Return the bytes of an entry of a compact run. */
static inline uint32_t remo__tree_stride(const struct tree_header *header) {
    return (uint32_t)header->key_bytes + header->value_bytes;
}

/* Return the offset of the index of the run, which is the end of the fences. */
static inline uint32_t remo__tree_index_at(const struct tree_header *header) {
    return (uint32_t)sizeof *header + header->low_bytes + header->high_bytes;
}

static inline uint32_t remo__tree_slot_at(const struct tree_header *header, uint32_t index) {
    return remo__tree_index_at(header) + 2 * index;
}

/* Return the offset of the byte with the bit of a removed entry of a compact run. */
static inline uint32_t remo__tree_bit_at(const struct tree_header *header, uint32_t index) {
    return remo__tree_index_at(header) + index / 8;
}

/* Return the offset of the fingerprints. */
static inline uint32_t remo__tree_fingerprints_at(const struct tree_header *header) {
    return remo__tree_is_compact(header) ? remo__tree_bit_at(header, header->run + 7u)
                                         : remo__tree_slot_at(header, header->run);
}

/* Return the offset of the run, which is the end of the index. */
static inline uint32_t remo__tree_run_at(const struct tree_header *header) {
    uint32_t end = remo__tree_fingerprints_at(header) + header->run;
    return remo__tree_is_compact(header) ? (end + TREE_RUN_ALIGN - 1) / TREE_RUN_ALIGN * TREE_RUN_ALIGN : end;
}

/* Return whether the tail begins behind the run, and the run behind the fences. */
static inline bool remo__tree_has_valid_run(const struct tree_header *header) {
    uint32_t run_at = remo__tree_run_at(header);
    return remo__tree_is_compact(header)
               ? run_at + (uint64_t)header->run * remo__tree_stride(header) == header->tail
               : run_at <= header->tail;
}

/* Return whether a header is that of a node in use whose parts are within `bytes` bytes. */
static inline bool remo__tree_header_is_valid(const struct tree_header *header, uint32_t bytes) {
    bool is_compact = remo__tree_is_compact(header),
         is_packed = header->count == header->run && header->tail == header->end;
    return (header->kind == TREE_NODE || header->kind == TREE_LAST) && header->end <= bytes
           && header->tail <= header->end && remo__tree_has_valid_run(header)
           && (is_compact || header->used <= bytes - remo__tree_index_at(header))
           && header->count <= header->run + TREE_TAIL_MAX
           && (header->level == 0 || (is_packed && !is_compact));
}

/* Return whether `key` is between the fences of a node, whose header has been checked. */
static inline bool remo__tree_fences_cover(const void *node, const struct tree_header *header,
                                           struct tree_bytes key) {
    const uint8_t *fences = (const uint8_t *)node + sizeof *header;
    struct tree_bytes low = {fences, header->low_bytes},
                      high = {fences + header->low_bytes, header->high_bytes};
    return remo__tree_compare(low, key) <= 0
           && (header->kind == TREE_LAST || remo__tree_compare(key, high) < 0);
}

/* Return the offset of entry `index` of the run. In the mixed form it is not checked. */
static inline uint32_t remo__tree_offset(const void *node, const struct tree_header *header, uint32_t index) {
    return remo__tree_is_compact(header)
               ? remo__tree_run_at(header) + index * remo__tree_stride(header)
               : remo__tree_load16(node, remo__tree_slot_at(header, index)) & ~TREE_REMOVED;
}

static inline bool remo__tree_is_removed(const void *node, const struct tree_header *header, uint32_t index) {
    return remo__tree_is_compact(header)
               ? ((const uint8_t *)node)[remo__tree_bit_at(header, index)] >> index % 8 & 1
               : remo__tree_load16(node, remo__tree_slot_at(header, index)) & TREE_REMOVED;
}

/* Write an entry with its sizes, and return its bytes. */
uint32_t remo__tree_write_entry(void *place, struct tree_bytes key, struct tree_bytes value);

/* Load the entry with sizes at an offset. Returns false if the entry is not valid. */
static inline bool remo__tree_entry_at(const void *node, uint32_t bytes, uint32_t offset,
                                       struct tree_entry *ret_entry) {
    if (offset > bytes - TREE_ENTRY_BYTES)
        return false;
    uint32_t key_bytes = remo__tree_load16(node, offset) & ~TREE_REMOVED,
             value_bytes = remo__tree_load16(node, offset + 2);
    if (key_bytes + value_bytes > bytes - TREE_ENTRY_BYTES - offset)
        return false;
    const uint8_t *key = (const uint8_t *)node + offset + TREE_ENTRY_BYTES;
    ret_entry->key = (struct tree_bytes){key, key_bytes};
    ret_entry->value = (struct tree_bytes){key + key_bytes, value_bytes};
    return true;
}

/* Load entry `index` of the run, which may have been removed. Returns false if the entry is not valid. */
static inline bool remo__tree_entry_of(const void *node, uint32_t bytes, const struct tree_header *header,
                                       uint32_t index, struct tree_entry *ret_entry) {
    uint32_t offset = remo__tree_offset(node, header, index);
    const uint8_t *key = (const uint8_t *)node + offset;
    if (!remo__tree_is_compact(header))
        return remo__tree_entry_at(node, bytes, offset, ret_entry);
    ret_entry->key = (struct tree_bytes){key, header->key_bytes};
    ret_entry->value = (struct tree_bytes){key + header->key_bytes, header->value_bytes};
    return true; /* the header was checked: it covers all entries */
}

/* The same, of a node whose header is in place. */
static inline bool remo__tree_node_entry(const void *node, uint32_t bytes, uint32_t index,
                                         struct tree_entry *ret_entry) {
    struct tree_header header;
    memcpy(&header, node, sizeof header);
    return remo__tree_entry_of(node, bytes, &header, index, ret_entry);
}

/* Return the bytes of an entry with its sizes, without slot and fingerprint, or position. */
static inline uint32_t remo__tree_entry_size(const struct tree_entry *entry) {
    return TREE_ENTRY_BYTES + entry->key.bytes + entry->value.bytes;
}

/* Find the first entry of the run whose key is not less than `key`, removed or not; *ret_found: whether it is
 * equal. Returns false if an entry is not valid. */
bool remo__tree_node_find_in_run(const void *node, uint32_t bytes, struct tree_bytes key, uint32_t *ret_index,
                                 bool *ret_found);

/* An entry of a leaf. */
struct tree_place {
    uint32_t offset; /* of the entry; 0: none */
    uint32_t index;  /* in the run; UINT32_MAX: the entry is in the tail */
};

/* Load the entry at a place that remo__tree_node_find has set. */
bool remo__tree_place_entry(const void *node, uint32_t bytes, const struct tree_place *place,
                            struct tree_entry *ret_entry);

/* Find the entry of a key in a leaf. Returns false if an entry is not valid. */
bool remo__tree_node_find(const void *node, uint32_t bytes, struct tree_bytes key,
                          struct tree_place *ret_place);

/* A walk over the entries of a node, in the order of keys, forwards or backwards. */
struct tree_walk {
    const void *node;
    struct tree_header header;
    uint32_t bytes, run;
    uint32_t index, tail; /* entries of the run, and of `offsets`, before this place */
    uint32_t at;          /* of the last entry: its index in the run; UINT32_MAX: it is in the tail */
    uint32_t tail_count;
    uint16_t offsets[TREE_TAIL_MAX];   /* of the tail's entries, in the order of keys, without removed ones */
    uint16_t positions[TREE_TAIL_MAX]; /* of each: how many entries of the run are before it */
};

/* Begin before the first entry whose key is not less than `key`; NULL: after the last entry. The header is
 * valid. Returns false if an entry is not valid. */
bool remo__tree_walk_begin(struct tree_walk *walk, const void *node, uint32_t bytes,
                           const struct tree_bytes *key);
/* Load the next entry, or the one before. Returns 1, 0 if there is none, or -1 if it is not valid. */
int remo__tree_walk_next(struct tree_walk *walk, struct tree_entry *ret_entry);
int remo__tree_walk_previous(struct tree_walk *walk, struct tree_entry *ret_entry);

/* Set *ret_child to the child of an entry of an inner node. Returns false if the value of the entry is not
 * the index of a child; the root is never a child. */
bool remo__tree_child_of(const struct tree_entry *entry, uint32_t node_count, uint32_t *ret_child);
/* Find the child of an inner node whose range contains `key`. */
bool remo__tree_node_child(const void *node, uint32_t bytes, struct tree_bytes key, uint32_t *ret_index,
                           uint32_t *ret_child);

/* ---- change, in private memory ---- */

/* Return the bytes that an entry needs in a mixed run, with its slot and fingerprint. */
static inline uint32_t remo__tree_entry_bytes(uint32_t key_bytes, uint32_t value_bytes) {
    return TREE_SLOT_BYTES + TREE_ENTRY_BYTES + key_bytes + value_bytes;
}

/* Return the sizes of both groups of entries together. */
struct tree_sizes remo__tree_sizes_join(const struct tree_sizes *a, const struct tree_sizes *b);
/* Return the sizes of the entries of a node. Those of a mixed run count as mixed, even if they are equal. */
struct tree_sizes remo__tree_node_sizes(const void *node, uint32_t bytes);
/* Return the bytes that these entries need in a packed leaf, for the index and the run. */
uint32_t remo__tree_sizes_packed(const struct tree_sizes *sizes);
/* Return whether a leaf that has `room` bytes for the index and the run has room for these entries. The
 * number of compact entries is limited, so that the leaf can be split when an entry of another size arrives:
 * half of the entries, in the mixed form, and this entry fit into a node. */
bool remo__tree_sizes_fit(const struct tree_sizes *sizes, uint32_t bytes, uint32_t room);
/* Return the bytes that are free in a packed node with these entries. */
uint32_t remo__tree_node_free(const void *node, uint32_t bytes);
/* Return the bytes that a node with these fences has for the index and the run. */
uint32_t remo__tree_node_room(const void *node, uint32_t bytes);
/* Return whether a leaf, which is whole, has room for one more entry of these sizes when it is packed. */
bool remo__tree_node_has_room(const void *node, uint32_t bytes, uint32_t key_bytes, uint32_t value_bytes);
/* Make an empty node. `high` may be NULL. */
void remo__tree_node_init(void *node, uint32_t bytes, uint32_t level, struct tree_bytes low,
                          const struct tree_bytes *high);

/* Make a packed leaf of entries with sizes, in the order of keys, without gaps: `size` bytes. `high` may be
 * NULL. Returns false if they do not fit. */
bool remo__tree_node_fill(void *node, uint32_t bytes, struct tree_bytes low, const struct tree_bytes *high,
                          const void *entries, uint32_t size, const struct tree_sizes *sizes);
/* Replace the high fence of a leaf, or add one. Returns false, without effect, if there is no room. */
bool remo__tree_node_set_high(void *node, uint32_t bytes, struct tree_bytes high);

/* Leaves. Insert an entry, whose key is absent. Returns false if there is no room, or an entry of the run is
 * not valid; then check, and pack or split. The tail may lack room for an entry for which a packed leaf has
 * room (remo__tree_node_has_room). */
bool remo__tree_node_insert(void *node, uint32_t bytes, struct tree_bytes key, struct tree_bytes value,
                            struct tree_ranges *ret_ranges);
/* Replace the value of an entry. Returns false if there is no room, or an entry of the run is not valid. */
bool remo__tree_node_replace(void *node, uint32_t bytes, const struct tree_place *place,
                             struct tree_bytes value, struct tree_ranges *ret_ranges);
void remo__tree_node_remove(void *node, uint32_t bytes, const struct tree_place *place,
                            struct tree_ranges *ret_ranges);

/* Inner nodes. Insert a child before `index`, or remove one. Insertion returns false if there is no room;
 * then split. */
bool remo__tree_node_insert_child(void *node, uint32_t bytes, uint32_t index, struct tree_bytes key,
                                  uint32_t child, void *scratch);
void remo__tree_node_remove_child(void *node, uint32_t bytes, uint32_t index, void *scratch);

/* All nodes, which are whole. `scratch` has `bytes` bytes. */

/* Make one run of all entries. */
void remo__tree_node_pack(void *node, uint32_t bytes, void *scratch);
/* Make `right`, and move the upper entries to it: about half of the bytes, or only the last entry if `key`,
 * which will be inserted, is above all others. The separator is the low fence of `right`. The node has at
 * least two entries. Both nodes are packed. */
void remo__tree_node_split(void *node, void *right, uint32_t bytes, struct tree_bytes key, void *scratch);
/* Append the entries of `right`, the next node of the same level, and take over its high fence. Returns
 * false, without effect, if they do not fit, or if both are leaves with entries and would nearly fill one. */
bool remo__tree_node_merge(void *node, const void *right, uint32_t bytes, void *scratch);
