/* node_read.c - the checks and searches of a node (node.h).
 * Invariant: a function that reads checks each offset and size against the node's bytes before it uses them.
 * An entry of a compact run needs no check of its own: that of the header covers the run. */
#include <string.h>
#include <xxhash.h>

#include "systems/tree/node_parts.h"

static const uint8_t *at(const void *node, uint32_t offset) {
    return (const uint8_t *)node + offset;
}

uint64_t remo__tree_first_bytes_short(struct tree_bytes key) {
    uint64_t word = 0;
    if (key.bytes > 0)
        memcpy(&word, key.data, key.bytes);
    return be64toh(word);
}

int remo__tree_compare_rest(struct tree_bytes a, struct tree_bytes b) {
    uint32_t common = a.bytes < b.bytes ? a.bytes : b.bytes, compared = common >= 8 ? 8 : 0;
    for (; common < 8 && compared < common; compared++) { /* inline: a call of memcmp takes longer */
        int order = *at(a.data, compared) - *at(b.data, compared);
        if (order != 0)
            return order;
    }
    int order = common > compared ? memcmp(at(a.data, compared), at(b.data, compared), common - compared) : 0;
    return order != 0 ? order : (a.bytes > b.bytes) - (a.bytes < b.bytes);
}

/* ---- read ---- */

uint8_t remo__tree_fingerprint_long(struct tree_bytes key) {
    return (uint8_t)XXH3_64bits(key.data, key.bytes);
}

uint32_t remo__tree_node_entries_max(uint32_t bytes) {
    return (bytes - (uint32_t)sizeof(struct tree_header)) / remo__tree_entry_bytes(0, sizeof(uint32_t));
}

bool remo__tree_node_is_valid(const void *node, uint32_t bytes, uint32_t level) {
    struct tree_header header = remo__tree_header_of(node);
    return header.level == level && remo__tree_header_is_valid(&header, bytes);
}

struct tree_bytes remo__tree_node_low(const void *node, uint32_t bytes) {
    struct tree_header header = remo__tree_header_of(node);
    (void)bytes;
    return (struct tree_bytes){at(node, sizeof header), header.low_bytes};
}

bool remo__tree_node_high(const void *node, uint32_t bytes, struct tree_bytes *ret_high) {
    struct tree_header header = remo__tree_header_of(node);
    (void)bytes;
    *ret_high = (struct tree_bytes){at(node, (uint32_t)sizeof header + header.low_bytes), header.high_bytes};
    return header.kind != TREE_LAST;
}

bool remo__tree_node_covers(const void *node, uint32_t bytes, struct tree_bytes key) {
    struct tree_header header = remo__tree_header_of(node);
    (void)bytes;
    return remo__tree_fences_cover(node, &header, key);
}

/* ---- sizes ---- */

struct tree_sizes remo__tree_sizes_join(const struct tree_sizes *a, const struct tree_sizes *b) {
    const struct tree_sizes *first = a->count > 0 ? a : b, *other = a->count > 0 ? b : a;
    struct tree_sizes both = *first;
    both.count += other->count;
    both.used += other->used;
    both.is_mixed = first->is_mixed
                    || (other->count > 0
                        && (other->is_mixed || other->key_bytes != first->key_bytes
                            || other->value_bytes != first->value_bytes));
    return both;
}

void remo__tree_sizes_add(struct tree_sizes *sizes, const struct tree_entry *entry) {
    struct tree_sizes one = {.count = 1,
                             .used = TREE_SLOT_BYTES + remo__tree_entry_size(entry),
                             .key_bytes = entry->key.bytes,
                             .value_bytes = entry->value.bytes};
    *sizes = remo__tree_sizes_join(sizes, &one);
}

struct tree_sizes remo__tree_node_sizes(const void *node, uint32_t bytes) {
    struct tree_header header = remo__tree_header_of(node);
    struct tree_sizes tail = {.count = 0}, run = {.is_mixed = !remo__tree_is_compact(&header),
                                                  .key_bytes = header.key_bytes,
                                                  .value_bytes = header.value_bytes};
    uint32_t next = header.tail;
    struct tree_tail_entry entry;
    (void)bytes;
    while (remo__tree_tail_next(node, &next, &entry) == 1)
        if (!entry.is_removed)
            remo__tree_sizes_add(&tail, &entry.entry);
    run.count = header.count > tail.count ? header.count - tail.count : 0;
    run = remo__tree_sizes_join(&run, &tail);
    run.used = header.used;
    return run;
}

uint32_t remo__tree_sizes_packed(const struct tree_sizes *sizes) {
    struct tree_header header = {.run = (uint16_t)sizes->count,
                                 .key_bytes = (uint16_t)sizes->key_bytes,
                                 .value_bytes = (uint16_t)sizes->value_bytes};
    if (sizes->is_mixed || sizes->count == 0)
        return sizes->used;
    return remo__tree_fingerprints_at(&header) - (uint32_t)sizeof header + sizes->count + TREE_RUN_ALIGN - 1
           + sizes->count * remo__tree_stride(&header);
}

/* Half of the entries, and one entry more for an uneven split, must fit beside the entry of another size and
 * a separator, which is a key of the others. */
bool remo__tree_sizes_fit(const struct tree_sizes *sizes, uint32_t bytes, uint32_t room) {
    uint32_t entry = remo__tree_entry_bytes(sizes->key_bytes, sizes->value_bytes),
             other = remo__tree_entry_bytes(0, bytes / TREE_ENTRIES_MIN), spare = other + 2 * entry;
    if (remo__tree_sizes_packed(sizes) > room)
        return false;
    return sizes->used <= room || (room > spare && sizes->used <= 2 * (room - spare));
}

uint32_t remo__tree_node_room(const void *node, uint32_t bytes) {
    struct tree_header header = remo__tree_header_of(node);
    return bytes - remo__tree_index_at(&header);
}

uint32_t remo__tree_node_free(const void *node, uint32_t bytes) {
    struct tree_sizes sizes = remo__tree_node_sizes(node, bytes);
    uint32_t room = remo__tree_node_room(node, bytes), packed = remo__tree_sizes_packed(&sizes);
    return packed < room ? room - packed : 0;
}

/* ---- searches ---- */

bool remo__tree_node_find_in_run(const void *node, uint32_t bytes, struct tree_bytes key, uint32_t *ret_index,
                                 bool *ret_found) {
    struct tree_header header = remo__tree_header_of(node);
    uint32_t low = 0, high = header.run, equal = UINT32_MAX;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        struct tree_entry entry;
        if (!remo__tree_entry_of(node, bytes, &header, middle, &entry))
            return false;
        int order = remo__tree_compare(entry.key, key);
        equal = order == 0 ? middle : equal;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *ret_index = low;
    *ret_found = equal == low; /* in a damaged node, keys may not be in order */
    return true;
}

int remo__tree_tail_next(const void *node, uint32_t *next, struct tree_tail_entry *ret_tail) {
    struct tree_header header = remo__tree_header_of(node);
    if (*next == header.end)
        return 0;
    ret_tail->offset = *next + TREE_POSITION_BYTES;
    if (!remo__tree_entry_at(node, header.end, ret_tail->offset, &ret_tail->entry))
        return -1;
    ret_tail->position = remo__tree_load16(node, *next);
    ret_tail->is_removed = remo__tree_load16(node, ret_tail->offset) & TREE_REMOVED;
    *next = ret_tail->offset + remo__tree_entry_size(&ret_tail->entry);
    return ret_tail->position <= header.run ? 1 : -1;
}

bool remo__tree_place_entry(const void *node, uint32_t bytes, const struct tree_place *place,
                            struct tree_entry *ret_entry) {
    return place->index == UINT32_MAX ? remo__tree_entry_at(node, bytes, place->offset, ret_entry)
                                      : remo__tree_node_entry(node, bytes, place->index, ret_entry);
}

bool remo__tree_node_find(const void *node, uint32_t bytes, struct tree_bytes key,
                          struct tree_place *ret_place) {
    struct tree_header header = remo__tree_header_of(node);
    uint32_t index, next = header.tail;
    struct tree_tail_entry tail;
    bool is_found;
    int found;
    *ret_place = (struct tree_place){.index = UINT32_MAX};
    if (!remo__tree_node_find_in_run(node, bytes, key, &index, &is_found))
        return false;
    if (is_found && !remo__tree_is_removed(node, &header, index)) {
        *ret_place = (struct tree_place){.offset = remo__tree_offset(node, &header, index), .index = index};
        return true;
    }
    while ((found = remo__tree_tail_next(node, &next, &tail)) == 1)
        if (!tail.is_removed && remo__tree_compare(tail.entry.key, key) == 0)
            ret_place->offset = tail.offset;
    return found == 0;
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
    if (remo__tree_header_of(node).run == 0
        || !remo__tree_node_find_in_run(node, bytes, key, ret_index, &is_found))
        return false;
    if (!is_found && *ret_index > 0)
        --*ret_index;
    if (!remo__tree_node_entry(node, bytes, *ret_index, &entry) || entry.value.bytes != sizeof *ret_child)
        return false;
    memcpy(ret_child, entry.value.data, sizeof *ret_child);
    return true;
}
