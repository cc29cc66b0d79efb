/* node_change.c - insertions, replacements and removals in a leaf (node.h), and the ranges of bytes that they
 * change. Invariant: the leaf is a copy in private memory, whose header was checked. No entry moves, and a
 * packed leaf has room for all entries. */
#include "systems/tree/node_parts.h"

static void add_range(struct tree_ranges *ranges, uint32_t offset, uint32_t bytes) {
    ranges->ranges[ranges->count++] = (struct tree_range){(uint16_t)offset, (uint16_t)bytes};
}

static void change_header(void *node, const struct tree_header *header, struct tree_ranges *ranges) {
    uint32_t offset = offsetof(struct tree_header, count);
    remo__tree_set_header(node, header);
    add_range(ranges, offset, (uint32_t)sizeof *header - offset);
}

/* Return the number of entries of the tail, with removed ones. */
static uint32_t count_tail(const void *node) {
    uint32_t next = remo__tree_header_of(node).tail, count = 0;
    struct tree_tail_entry tail;
    while (remo__tree_tail_next(node, &next, &tail) == 1)
        count++;
    return count;
}

/* Return whether the tail has room for an entry. `sizes` are those of all entries, with this one: a packed
 * leaf must have room for them. */
static bool has_room(const void *node, uint32_t bytes, const struct tree_sizes *sizes,
                     const struct tree_entry *entry) {
    struct tree_header header = remo__tree_header_of(node);
    uint32_t size = TREE_POSITION_BYTES + remo__tree_entry_size(entry);
    return header.end + size <= bytes && header.end + size - header.tail <= bytes / TREE_TAIL_PART
           && count_tail(node) < TREE_TAIL_MAX
           && remo__tree_sizes_fit(sizes, bytes, remo__tree_node_room(node, bytes));
}

/* Find the position of a new entry, and add the entry to the tail. Returns false if an entry of the run is
 * not valid. */
static bool append(void *node, uint32_t bytes, struct tree_header *header, struct tree_bytes key,
                   struct tree_bytes value, struct tree_ranges *ranges) {
    struct tree_entry entry = {key, value};
    uint32_t position, size = TREE_POSITION_BYTES + remo__tree_entry_size(&entry);
    bool is_found;
    if (!remo__tree_node_find_in_run(node, bytes, key, &position, &is_found))
        return false;
    remo__tree_store16(node, header->end, position);
    remo__tree_write_entry((uint8_t *)node + header->end + TREE_POSITION_BYTES, key, value);
    add_range(ranges, header->end, size);
    header->end = (uint16_t)(header->end + size);
    header->used = (uint16_t)(header->used + TREE_SLOT_BYTES + remo__tree_entry_size(&entry));
    header->count++;
    return true;
}

bool remo__tree_node_insert(void *node, uint32_t bytes, struct tree_bytes key, struct tree_bytes value,
                            struct tree_ranges *ret_ranges) {
    struct tree_header header = remo__tree_header_of(node);
    struct tree_sizes sizes = remo__tree_node_sizes(node, bytes);
    struct tree_entry entry = {key, value};
    ret_ranges->count = 0;
    remo__tree_sizes_add(&sizes, &entry);
    if (!has_room(node, bytes, &sizes, &entry))
        return false;
    if (!append(node, bytes, &header, key, value, ret_ranges))
        return false;
    change_header(node, &header, ret_ranges);
    return true;
}

/* Mark an entry as removed: in the slot or the bit of an entry of the run, or in the key_bytes of an entry of
 * the tail. */
static void mark(void *node, uint32_t bytes, const struct tree_place *place, struct tree_header *header,
                 struct tree_ranges *ranges) {
    struct tree_entry entry = {.key.bytes = 0};
    bool is_of_run = place->index != UINT32_MAX, is_bit = is_of_run && remo__tree_is_compact(header);
    uint32_t offset = is_bit      ? remo__tree_bit_at(header, place->index)
                      : is_of_run ? remo__tree_slot_at(header, place->index)
                                  : place->offset;
    (void)remo__tree_place_entry(node, bytes, place, &entry);
    if (is_bit)
        ((uint8_t *)node)[offset] |= (uint8_t)(1u << place->index % 8);
    else
        remo__tree_store16(node, offset, remo__tree_load16(node, offset) | TREE_REMOVED);
    add_range(ranges, offset, is_bit ? 1 : 2);
    header->used = (uint16_t)(header->used - TREE_SLOT_BYTES - remo__tree_entry_size(&entry));
    header->count--;
}

/* A value of the same size is overwritten in place. Any other value gets a new entry, and the leaf has
 * entries of different sizes. */
bool remo__tree_node_replace(void *node, uint32_t bytes, const struct tree_place *place,
                             struct tree_bytes value, struct tree_ranges *ret_ranges) {
    struct tree_header header = remo__tree_header_of(node);
    struct tree_entry entry = {.key.bytes = 0};
    ret_ranges->count = 0;
    (void)remo__tree_place_entry(node, bytes, place, &entry);
    if (entry.value.bytes == value.bytes) {
        uint32_t offset = (uint32_t)((const uint8_t *)entry.value.data - (const uint8_t *)node);
        memcpy((uint8_t *)node + offset, value.data ? value.data : "", value.bytes);
        if (value.bytes > 0)
            add_range(ret_ranges, offset, value.bytes);
        return true;
    }
    struct tree_entry other = {entry.key, value};
    struct tree_sizes sizes = remo__tree_node_sizes(node, bytes);
    sizes.count--;
    sizes.used -= TREE_SLOT_BYTES + remo__tree_entry_size(&entry);
    remo__tree_sizes_add(&sizes, &other);
    if (!has_room(node, bytes, &sizes, &other))
        return false;
    if (!append(node, bytes, &header, entry.key, value, ret_ranges))
        return false;
    mark(node, bytes, place, &header, ret_ranges);
    change_header(node, &header, ret_ranges);
    return true;
}

void remo__tree_node_remove(void *node, uint32_t bytes, const struct tree_place *place,
                            struct tree_ranges *ret_ranges) {
    struct tree_header header = remo__tree_header_of(node);
    ret_ranges->count = 0;
    mark(node, bytes, place, &header, ret_ranges);
    change_header(node, &header, ret_ranges);
}
