/* node.c - implements node.h.
 * Invariant: a function that reads checks each offset and size against the node's bytes before it uses them;
 * a function that changes works on a copy in private memory, whose header was checked. */
#include "systems/tree/node.h"

#include <endian.h>
#include <string.h>

/* Leaves with entries merge only if one part in this many stays free: otherwise a few insertions would split
 * the result again. */
#define MERGE_SPARE_PART 8u

static struct tree_header header_of(const void *node) {
    struct tree_header header;
    memcpy(&header, node, sizeof header);
    return header;
}

static void set_header(void *node, const struct tree_header *header) {
    memcpy(node, header, sizeof *header);
}

static const uint8_t *at(const void *node, uint32_t offset) {
    return (const uint8_t *)node + offset;
}

static void store16(void *node, uint32_t offset, uint32_t value) {
    uint16_t stored = (uint16_t)value;
    memcpy((uint8_t *)node + offset, &stored, sizeof stored);
}

/* The first 8 bytes decide most comparisons, without a call. */
static uint64_t first_bytes(const void *data) {
    uint64_t word;
    memcpy(&word, data, sizeof word);
    return be64toh(word);
}

uint64_t remo__tree_first_bytes(struct tree_bytes key) {
    uint64_t word = 0;
    if (key.bytes >= 8)
        return first_bytes(key.data);
    if (key.bytes > 0)
        memcpy(&word, key.data, key.bytes);
    return be64toh(word);
}

int remo__tree_compare(struct tree_bytes a, struct tree_bytes b) {
    uint32_t common = a.bytes < b.bytes ? a.bytes : b.bytes;
    if (common >= 8) {
        uint64_t first_a = first_bytes(a.data), first_b = first_bytes(b.data);
        if (first_a != first_b)
            return first_a < first_b ? -1 : 1;
    }
    int order = common > 0 ? memcmp(a.data, b.data, common) : 0;
    return order != 0 ? order : (a.bytes > b.bytes) - (a.bytes < b.bytes);
}

/* ---- read ---- */

uint32_t remo__tree_node_entries_max(uint32_t bytes) {
    return (bytes - (uint32_t)sizeof(struct tree_header)) / remo__tree_entry_bytes(0, sizeof(uint32_t));
}

bool remo__tree_node_is_valid(const void *node, uint32_t bytes, uint32_t level) {
    struct tree_header header = header_of(node);
    uint32_t fences = (uint32_t)header.low_bytes + header.high_bytes;
    return header.level == level && (header.kind == TREE_NODE || header.kind == TREE_LAST)
           && fences <= bytes - sizeof header && remo__tree_slot_at(header.count) <= bytes - fences;
}

struct tree_bytes remo__tree_node_low(const void *node, uint32_t bytes) {
    struct tree_header header = header_of(node);
    return (struct tree_bytes){at(node, bytes - header.low_bytes), header.low_bytes};
}

bool remo__tree_node_high(const void *node, uint32_t bytes, struct tree_bytes *ret_high) {
    struct tree_header header = header_of(node);
    *ret_high =
        (struct tree_bytes){at(node, bytes - header.low_bytes - header.high_bytes), header.high_bytes};
    return header.kind != TREE_LAST;
}

bool remo__tree_node_covers(const void *node, uint32_t bytes, struct tree_bytes key) {
    struct tree_bytes high;
    return remo__tree_compare(remo__tree_node_low(node, bytes), key) <= 0
           && (!remo__tree_node_high(node, bytes, &high) || remo__tree_compare(key, high) < 0);
}

uint32_t remo__tree_node_slots_end(const void *node) {
    return remo__tree_slot_at(header_of(node).count);
}

bool remo__tree_node_is_changeable(const void *node, uint32_t bytes) {
    struct tree_header header = header_of(node);
    return remo__tree_node_is_valid(node, bytes, header.level)
           && header.entries <= bytes - header.low_bytes - header.high_bytes
           && header.entries >= remo__tree_slot_at(header.count);
}

bool remo__tree_node_is_whole(const void *node, uint32_t bytes) {
    struct tree_header header = header_of(node);
    uint32_t used = 0;
    if (!remo__tree_node_is_changeable(node, bytes))
        return false;
    for (uint32_t i = 0; i < header.count; i++) {
        struct tree_entry entry;
        if (!remo__tree_node_entry(node, bytes, i, &entry))
            return false;
        used += TREE_ENTRY_BYTES + entry.key.bytes + entry.value.bytes;
    }
    return used + header.garbage == bytes - header.low_bytes - header.high_bytes - header.entries;
}

bool remo__tree_node_find(const void *node, uint32_t bytes, struct tree_bytes key, uint32_t *ret_index,
                          bool *ret_found) {
    uint32_t low = 0, high = header_of(node).count;
    *ret_found = false;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        struct tree_entry entry;
        if (!remo__tree_node_entry(node, bytes, middle, &entry))
            return false;
        int order = remo__tree_compare(entry.key, key);
        *ret_found |= order == 0;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *ret_index = low;
    return true;
}

bool remo__tree_child_of(const struct tree_entry *entry, uint32_t node_count, uint32_t *ret_child) {
    if (entry->value.bytes != sizeof *ret_child)
        return false;
    memcpy(ret_child, entry->value.data, sizeof *ret_child);
    return *ret_child != 0 && *ret_child < node_count;
}

bool remo__tree_node_child(const void *node, uint32_t bytes, struct tree_bytes key, uint32_t *ret_index,
                           uint32_t *ret_child) {
    struct tree_entry entry;
    bool is_found;
    if (header_of(node).count == 0 || !remo__tree_node_find(node, bytes, key, ret_index, &is_found))
        return false;
    if (!is_found && *ret_index > 0)
        --*ret_index;
    if (!remo__tree_node_entry(node, bytes, *ret_index, &entry) || entry.value.bytes != sizeof *ret_child)
        return false;
    memcpy(ret_child, entry.value.data, sizeof *ret_child);
    return true;
}

/* ---- change ---- */

uint32_t remo__tree_entry_bytes(uint32_t key_bytes, uint32_t value_bytes) {
    return 2 + TREE_ENTRY_BYTES + key_bytes + value_bytes;
}

static void add_range(struct tree_ranges *ranges, uint32_t offset, uint32_t bytes) {
    ranges->ranges[ranges->count++] = (struct tree_range){(uint16_t)offset, (uint16_t)bytes};
}

void remo__tree_node_init(void *node, uint32_t bytes, uint32_t level, struct tree_bytes low,
                          const struct tree_bytes *high) {
    uint32_t high_bytes = high ? high->bytes : 0;
    struct tree_header header = {.level = (uint8_t)level,
                                 .kind = high ? TREE_NODE : TREE_LAST,
                                 .low_bytes = (uint16_t)low.bytes,
                                 .high_bytes = (uint16_t)high_bytes,
                                 .entries = (uint16_t)(bytes - low.bytes - high_bytes)};
    memset(node, 0, bytes);
    memcpy((uint8_t *)node + bytes - low.bytes, low.data ? low.data : "", low.bytes);
    if (high)
        memcpy((uint8_t *)node + header.entries, high->data ? high->data : "", high_bytes);
    set_header(node, &header);
}

/* Return the bytes between the slots and the entries. */
static uint32_t gap_of(const struct tree_header *header) {
    return header->entries - remo__tree_slot_at(header->count);
}

/* Write an entry below the others. Returns its offset. */
static uint32_t write_entry(void *node, struct tree_header *header, struct tree_bytes key,
                            struct tree_bytes value) {
    header->entries = (uint16_t)(header->entries - TREE_ENTRY_BYTES - key.bytes - value.bytes);
    uint8_t *entry = (uint8_t *)node + header->entries;
    store16(node, header->entries, key.bytes);
    store16(node, header->entries + 2u, value.bytes);
    memcpy(entry + TREE_ENTRY_BYTES, key.data ? key.data : "", key.bytes);
    memcpy(entry + TREE_ENTRY_BYTES + key.bytes, value.data ? value.data : "", value.bytes);
    return header->entries;
}

bool remo__tree_node_insert(void *node, uint32_t bytes, uint32_t index, struct tree_bytes key,
                            struct tree_bytes value, struct tree_ranges *ret_ranges) {
    struct tree_header header = header_of(node);
    (void)bytes;
    ret_ranges->count = 0;
    if (gap_of(&header) < remo__tree_entry_bytes(key.bytes, value.bytes))
        return false;
    uint32_t offset = write_entry(node, &header, key, value), slot = remo__tree_slot_at(index);
    memmove((uint8_t *)node + slot + 2, at(node, slot), 2u * (header.count - index));
    store16(node, slot, offset);
    header.count++;
    set_header(node, &header);
    add_range(ret_ranges, 0, sizeof header);
    add_range(ret_ranges, slot, remo__tree_slot_at(header.count) - slot);
    add_range(ret_ranges, offset, TREE_ENTRY_BYTES + key.bytes + value.bytes);
    return true;
}

static uint32_t entry_size(const void *node, uint32_t offset) {
    return TREE_ENTRY_BYTES + remo__tree_load16(node, offset) + remo__tree_load16(node, offset + 2u);
}

/* A value of the same size is overwritten in place. Any other value gets a new entry. */
bool remo__tree_node_replace(void *node, uint32_t bytes, uint32_t index, struct tree_bytes value,
                             struct tree_ranges *ret_ranges) {
    struct tree_header header = header_of(node);
    struct tree_entry entry = {.key.bytes = 0};
    uint32_t offset = remo__tree_load16(node, remo__tree_slot_at(index));
    ret_ranges->count = 0;
    (void)remo__tree_node_entry(node, bytes, index, &entry);
    if (entry.value.bytes == value.bytes) {
        uint32_t place = offset + TREE_ENTRY_BYTES + entry.key.bytes;
        memcpy((uint8_t *)node + place, value.data ? value.data : "", value.bytes);
        if (value.bytes > 0)
            add_range(ret_ranges, place, value.bytes);
        return true;
    }
    if (gap_of(&header) < TREE_ENTRY_BYTES + entry.key.bytes + value.bytes)
        return false;
    header.garbage = (uint16_t)(header.garbage + entry_size(node, offset));
    offset = write_entry(node, &header, entry.key, value);
    store16(node, remo__tree_slot_at(index), offset);
    set_header(node, &header);
    add_range(ret_ranges, 0, sizeof header);
    add_range(ret_ranges, remo__tree_slot_at(index), 2);
    add_range(ret_ranges, offset, entry_size(node, offset));
    return true;
}

void remo__tree_node_remove(void *node, uint32_t bytes, uint32_t index, struct tree_ranges *ret_ranges) {
    struct tree_header header = header_of(node);
    uint32_t slot = remo__tree_slot_at(index);
    (void)bytes;
    ret_ranges->count = 0;
    header.garbage = (uint16_t)(header.garbage + entry_size(node, remo__tree_load16(node, slot)));
    header.count--;
    memmove((uint8_t *)node + slot, at(node, slot + 2), 2u * (header.count - index));
    set_header(node, &header);
    add_range(ret_ranges, 0, sizeof header);
    if (index < header.count)
        add_range(ret_ranges, slot, 2u * (header.count - index));
}

uint32_t remo__tree_node_free(const void *node, uint32_t bytes) {
    struct tree_header header = header_of(node);
    (void)bytes;
    return gap_of(&header) + header.garbage;
}

uint32_t remo__tree_node_room(const void *node, uint32_t bytes) {
    struct tree_header header = header_of(node);
    return bytes - (uint32_t)sizeof header - header.low_bytes - header.high_bytes;
}

/* Append entries [first, end) of `from` to `node`, which has room. In an inner node the first of them gets
 * the key `first_key`. */
static void append(void *node, const void *from, uint32_t bytes, uint32_t first, uint32_t end,
                   struct tree_bytes first_key) {
    struct tree_header header = header_of(node);
    for (uint32_t i = first; i < end; i++) {
        struct tree_entry entry = {.key.bytes = 0};
        (void)remo__tree_node_entry(from, bytes, i, &entry);
        if (i == first && header.level > 0)
            entry.key = first_key;
        uint32_t offset = write_entry(node, &header, entry.key, entry.value);
        store16(node, remo__tree_slot_at(header.count++), offset);
    }
    set_header(node, &header);
}

/* Make `node` from entries [first, end) of `from`, with these fences. */
static void make(void *node, const void *from, uint32_t bytes, uint32_t first, uint32_t end,
                 struct tree_bytes low, const struct tree_bytes *high) {
    remo__tree_node_init(node, bytes, header_of(from).level, low, high);
    append(node, from, bytes, first, end, (struct tree_bytes){NULL, 0});
}

void remo__tree_node_pack(void *node, uint32_t bytes, void *scratch) {
    struct tree_bytes high;
    memcpy(scratch, node, bytes);
    bool has_high = remo__tree_node_high(scratch, bytes, &high);
    make(node, scratch, bytes, 0, header_of(scratch).count, remo__tree_node_low(scratch, bytes),
         has_high ? &high : NULL);
}

/* Return the number of entries that stay. An insertion at the end suggests ascending keys: then all entries
 * but one stay, so that nodes are full. */
static uint32_t choose_split(const void *node, uint32_t index) {
    struct tree_header header = header_of(node);
    uint32_t all = 0, below = 0, stay = 0;
    if (index == header.count)
        return header.count - 1u;
    for (uint32_t i = 0; i < header.count; i++)
        all += 2 + entry_size(node, remo__tree_load16(node, remo__tree_slot_at(i)));
    while (stay < header.count - 1u && below < all / 2)
        below += 2 + entry_size(node, remo__tree_load16(node, remo__tree_slot_at(stay++)));
    return stay > 0 ? stay : 1;
}

void remo__tree_node_split(void *node, void *right, uint32_t bytes, uint32_t index, void *scratch) {
    struct tree_bytes high;
    struct tree_entry first = {.key.bytes = 0};
    memcpy(scratch, node, bytes);
    uint32_t count = header_of(scratch).count, stay = choose_split(scratch, index);
    bool has_high = remo__tree_node_high(scratch, bytes, &high);
    (void)remo__tree_node_entry(scratch, bytes, stay, &first);
    make(right, scratch, bytes, stay, count, first.key, has_high ? &high : NULL);
    make(node, scratch, bytes, 0, stay, remo__tree_node_low(scratch, bytes), &first.key);
}

bool remo__tree_node_merge(void *node, const void *right, uint32_t bytes, void *scratch) {
    struct tree_header mine = header_of(node), other = header_of(right);
    struct tree_bytes high, low = remo__tree_node_low(right, bytes);
    /* in an inner node, the empty key of the first entry becomes the low fence */
    uint32_t used = remo__tree_node_room(right, bytes) - remo__tree_node_free(right, bytes),
             key = mine.level > 0 ? other.low_bytes : 0,
             spare = mine.level == 0 && mine.count > 0 && other.count > 0 ? bytes / MERGE_SPARE_PART : 0;
    if (used + key + other.high_bytes + spare > remo__tree_node_free(node, bytes) + mine.high_bytes)
        return false;
    memcpy(scratch, node, bytes);
    bool has_high = remo__tree_node_high(right, bytes, &high);
    make(node, scratch, bytes, 0, mine.count, remo__tree_node_low(scratch, bytes), has_high ? &high : NULL);
    append(node, right, bytes, 0, other.count, low);
    return true;
}
