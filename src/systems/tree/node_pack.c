/* node_pack.c - new nodes, and changes that write all entries of a node again (node.h): packing, splits,
 * merges, and changes of inner nodes. Invariant: the nodes are copies in private memory, which are whole. */
#include <string.h>

#include "systems/tree/node_parts.h"

/* Leaves with entries merge only if one part in this many stays free: otherwise a few insertions would split
 * the result again. */
#define MERGE_SPARE_PART 8u

/* ---- a new node ---- */

/* A node to whose run entries are added, in the order of keys. Their number, and whether they have the same
 * sizes, is known at the beginning. */
struct builder {
    uint8_t *node;
    struct tree_header header;
};

/* An inner node, and an empty leaf, are mixed. */
static void choose_form(struct tree_header *header, const struct tree_sizes *sizes) {
    bool is_compact = !sizes->is_mixed && sizes->count > 0 && header->level == 0;
    header->run = (uint16_t)sizes->count;
    header->key_bytes = is_compact ? (uint16_t)sizes->key_bytes : TREE_MIXED;
    header->value_bytes = is_compact ? (uint16_t)sizes->value_bytes : 0;
}

static struct builder begin(void *node, uint32_t bytes, uint32_t level, struct tree_bytes low,
                            const struct tree_bytes *high, const struct tree_sizes *sizes) {
    uint32_t high_bytes = high ? high->bytes : 0;
    struct tree_header header = {.level = (uint8_t)level,
                                 .kind = high ? TREE_NODE : TREE_LAST,
                                 .low_bytes = (uint16_t)low.bytes,
                                 .high_bytes = (uint16_t)high_bytes};
    uint8_t *fences = (uint8_t *)node + sizeof header;
    choose_form(&header, sizes);
    header.tail = (uint16_t)remo__tree_run_at(&header);
    memset(node, 0, bytes);
    memcpy(fences, low.data ? low.data : "", low.bytes);
    if (high)
        memcpy(fences + low.bytes, high->data ? high->data : "", high_bytes);
    return (struct builder){.node = node, .header = header};
}

/* Write key and value. */
static uint32_t write_pair(uint8_t *at, struct tree_bytes key, struct tree_bytes value) {
    memmove(at, key.data ? key.data : "", key.bytes); /* a damaged entry may overlap */
    memcpy(at + key.bytes, value.data ? value.data : "", value.bytes);
    return key.bytes + value.bytes;
}

uint32_t remo__tree_write_entry(void *place, struct tree_bytes key, struct tree_bytes value) {
    remo__tree_store16(place, 0, key.bytes);
    remo__tree_store16(place, 2, value.bytes);
    return TREE_ENTRY_BYTES + write_pair((uint8_t *)place + TREE_ENTRY_BYTES, key, value);
}

static void add(struct builder *builder, const struct tree_entry *entry, uint8_t fingerprint) {
    struct tree_header *header = &builder->header;
    uint8_t *place = builder->node + header->tail;
    builder->node[remo__tree_fingerprints_at(header) + header->count] = fingerprint;
    if (remo__tree_is_compact(header)) {
        header->tail = (uint16_t)(header->tail + write_pair(place, entry->key, entry->value));
    } else {
        remo__tree_store16(builder->node, remo__tree_slot_at(header, header->count), header->tail);
        header->tail = (uint16_t)(header->tail + remo__tree_write_entry(place, entry->key, entry->value));
    }
    header->count++;
}

static void finish(struct builder *builder) {
    struct tree_header *header = &builder->header;
    uint32_t entry = remo__tree_entry_bytes(header->key_bytes, header->value_bytes);
    header->end = header->tail;
    header->used = (uint16_t)(remo__tree_is_compact(header) ? header->count * entry
                                                            : header->tail - remo__tree_index_at(header));
    remo__tree_set_header(builder->node, header);
}

void remo__tree_node_init(void *node, uint32_t bytes, uint32_t level, struct tree_bytes low,
                          const struct tree_bytes *high) {
    struct builder builder = begin(node, bytes, level, low, high, &(struct tree_sizes){.count = 0});
    finish(&builder);
}

bool remo__tree_node_fill(void *node, uint32_t bytes, struct tree_bytes low, const struct tree_bytes *high,
                          const void *entries, uint32_t size, const struct tree_sizes *sizes) {
    struct tree_entry entry = {.key.bytes = 0};
    uint32_t offset = 0, fences = low.bytes + (high ? high->bytes : 0) + (uint32_t)sizeof(struct tree_header);
    if (fences > bytes || !remo__tree_sizes_fit(sizes, bytes, bytes - fences))
        return false;
    struct builder builder = begin(node, bytes, 0, low, high, sizes);
    for (uint32_t i = 0; i < sizes->count && remo__tree_entry_at(entries, size, offset, &entry); i++) {
        add(&builder, &entry, remo__tree_fingerprint(entry.key));
        offset += remo__tree_entry_size(&entry);
    }
    finish(&builder);
    return true;
}

/* Move the index, the run and the tail to their places behind fences of another size. */
static void move_run(void *node, const struct tree_header *from, struct tree_header *to) {
    char *bytes = node;
    uint32_t run_at = remo__tree_run_at(from), index_at = remo__tree_index_at(from),
             index_bytes = remo__tree_fingerprints_at(from) + from->run - index_at,
             to_run = remo__tree_run_at(to), run_bytes = from->end - run_at;
    bool is_down = to_run > run_at; /* the run first: the index moves to its place */
    if (is_down)
        memmove(bytes + to_run, bytes + run_at, run_bytes);
    memmove(bytes + remo__tree_index_at(to), bytes + index_at, index_bytes);
    if (!is_down)
        memmove(bytes + to_run, bytes + run_at, run_bytes);
    for (uint32_t i = 0; i < from->run && !remo__tree_is_compact(from); i++) {
        uint32_t slot = remo__tree_slot_at(to, i);
        remo__tree_store16(node, slot, remo__tree_load16(node, slot) + to_run - run_at);
    }
    to->tail = (uint16_t)(from->tail + to_run - run_at);
    to->end = (uint16_t)(from->end + to_run - run_at);
}

bool remo__tree_node_set_high(void *node, uint32_t bytes, struct tree_bytes high) {
    struct tree_header header = remo__tree_header_of(node), before = header;
    struct tree_sizes sizes = remo__tree_node_sizes(node, bytes);
    header.kind = TREE_NODE;
    header.high_bytes = (uint16_t)high.bytes;
    uint32_t index_at = remo__tree_index_at(&header);
    if (header.end - remo__tree_run_at(&before) + remo__tree_run_at(&header) > bytes
        || !remo__tree_sizes_fit(&sizes, bytes, bytes - index_at))
        return false;
    move_run(node, &before, &header);
    memset((char *)node + header.end, 0, bytes - header.end);
    remo__tree_set_header(node, &header);
    memcpy((uint8_t *)node + index_at - high.bytes, high.data, high.bytes);
    return true;
}

static uint8_t fingerprint_at(const void *node, uint32_t index) {
    struct tree_header header = remo__tree_header_of(node);
    return ((const uint8_t *)node)[remo__tree_fingerprints_at(&header) + index];
}

/* Return the exact sizes of the entries of a whole node: those of a mixed run may have become equal. */
static struct tree_sizes measure(const void *node, uint32_t bytes) {
    struct tree_sizes sizes = remo__tree_node_sizes(node, bytes);
    struct tree_bytes lowest = {NULL, 0};
    struct tree_entry entry;
    struct tree_walk walk;
    if (remo__tree_header_of(node).level > 0 || !sizes.is_mixed
        || !remo__tree_walk_begin(&walk, node, bytes, &lowest))
        return sizes;
    sizes = (struct tree_sizes){.count = 0};
    while (remo__tree_walk_next(&walk, &entry) == 1)
        remo__tree_sizes_add(&sizes, &entry);
    return sizes;
}

bool remo__tree_node_has_room(const void *node, uint32_t bytes, uint32_t key_bytes, uint32_t value_bytes) {
    struct tree_sizes sizes = measure(node, bytes);
    struct tree_entry entry = {{NULL, key_bytes}, {NULL, value_bytes}};
    remo__tree_sizes_add(&sizes, &entry);
    return remo__tree_sizes_fit(&sizes, bytes, remo__tree_node_room(node, bytes));
}

/* Return the sizes of entries [first, end) of a packed node. */
static struct tree_sizes measure_some(const void *node, uint32_t bytes, uint32_t first, uint32_t end) {
    struct tree_header header = remo__tree_header_of(node);
    struct tree_sizes sizes = {.count = 0};
    for (uint32_t i = first; i < end; i++) {
        struct tree_entry entry = {.key.bytes = 0};
        (void)remo__tree_entry_of(node, bytes, &header, i, &entry);
        remo__tree_sizes_add(&sizes, &entry);
    }
    sizes.is_mixed = sizes.is_mixed || header.level > 0;
    return sizes;
}

/* Add the entries of a whole node. In an inner node the first of them gets the key `first_key`. */
static void add_all(struct builder *builder, const void *from, uint32_t bytes, struct tree_bytes first_key) {
    struct tree_bytes lowest = {NULL, 0};
    struct tree_entry entry;
    struct tree_walk walk;
    uint32_t level = remo__tree_header_of(from).level;
    if (!remo__tree_walk_begin(&walk, from, bytes, &lowest))
        return;
    for (bool is_first = true; remo__tree_walk_next(&walk, &entry) == 1; is_first = false) {
        if (is_first && level > 0)
            entry.key = first_key;
        add(builder, &entry,
            walk.at == UINT32_MAX ? remo__tree_fingerprint(entry.key) : fingerprint_at(from, walk.at));
    }
}

/* Add entries [first, end) of a packed node. In an inner node the first of them gets an empty key. */
static void add_some(struct builder *builder, const void *from, uint32_t bytes, uint32_t first,
                     uint32_t end) {
    for (uint32_t i = first; i < end; i++) {
        struct tree_entry entry = {.key.bytes = 0};
        (void)remo__tree_node_entry(from, bytes, i, &entry);
        if (i == first && builder->header.level > 0)
            entry.key = (struct tree_bytes){NULL, 0};
        add(builder, &entry, fingerprint_at(from, i));
    }
}

/* ---- changes of an inner node ---- */

/* Make the inner node in `from` again, with a new entry before `index`, or without entry `index`. */
static void make_inner(void *node, const void *from, uint32_t bytes, uint32_t index,
                       const struct tree_entry *entry) {
    struct tree_bytes high;
    bool has_high = remo__tree_node_high(from, bytes, &high);
    uint32_t count = remo__tree_header_of(from).run;
    struct tree_sizes sizes = {.count = entry ? count + 1 : count - 1, .is_mixed = true};
    struct builder builder = begin(node, bytes, remo__tree_header_of(from).level,
                                   remo__tree_node_low(from, bytes), has_high ? &high : NULL, &sizes);
    add_some(&builder, from, bytes, 0, index);
    if (entry)
        add(&builder, entry, remo__tree_fingerprint(entry->key));
    for (uint32_t i = entry ? index : index + 1; i < count; i++) {
        struct tree_entry other = {.key.bytes = 0};
        (void)remo__tree_node_entry(from, bytes, i, &other);
        add(&builder, &other, fingerprint_at(from, i));
    }
    finish(&builder);
}

bool remo__tree_node_insert_child(void *node, uint32_t bytes, uint32_t index, struct tree_bytes key,
                                  uint32_t child, void *scratch) {
    struct tree_entry entry = {key, {&child, sizeof child}};
    if (remo__tree_node_free(node, bytes) < remo__tree_entry_bytes(key.bytes, sizeof child))
        return false;
    memcpy(scratch, node, bytes);
    make_inner(node, scratch, bytes, index, &entry);
    return true;
}

void remo__tree_node_remove_child(void *node, uint32_t bytes, uint32_t index, void *scratch) {
    memcpy(scratch, node, bytes);
    make_inner(node, scratch, bytes, index, NULL);
}

/* ---- changes of all entries ---- */

void remo__tree_node_pack(void *node, uint32_t bytes, void *scratch) {
    struct tree_bytes high;
    memcpy(scratch, node, bytes);
    struct tree_sizes sizes = measure(scratch, bytes);
    bool has_high = remo__tree_node_high(scratch, bytes, &high);
    struct builder builder = begin(node, bytes, remo__tree_header_of(scratch).level,
                                   remo__tree_node_low(scratch, bytes), has_high ? &high : NULL, &sizes);
    add_all(&builder, scratch, bytes, (struct tree_bytes){NULL, 0});
    finish(&builder);
}

/* Return the number of entries of a packed node that stay. An insertion at the end suggests ascending keys:
 * then all entries but one stay, so that nodes are full. */
static uint32_t choose_split(const void *node, uint32_t bytes, struct tree_bytes key) {
    struct tree_header header = remo__tree_header_of(node);
    uint32_t index = 0, stay = 0, middle = header.used / 2, run_at = remo__tree_run_at(&header);
    bool is_found;
    (void)remo__tree_node_find_in_run(node, bytes, key, &index, &is_found);
    if (index == header.run)
        return header.run - 1u;
    if (remo__tree_is_compact(&header))
        return header.run / 2u;
    while (stay < header.run - 1u
           && remo__tree_offset(node, &header, stay) - run_at + TREE_SLOT_BYTES * stay < middle)
        stay++;
    return stay > 0 ? stay : 1;
}

/* Make one half of a split, of entries [first, end) of a packed node. If they do not fit, the node was
 * damaged, and so is the half: it is unused. */
static void make_half(void *half, const void *from, uint32_t bytes, uint32_t first, uint32_t end,
                      struct tree_bytes low, const struct tree_bytes *high) {
    struct tree_sizes sizes = measure_some(from, bytes, first, end);
    uint32_t taken = (uint32_t)sizeof(struct tree_header) + low.bytes + (high ? high->bytes : 0)
                     + remo__tree_sizes_packed(&sizes);
    if (taken > bytes) {
        memset(half, 0, bytes);
        return;
    }
    struct builder builder = begin(half, bytes, remo__tree_header_of(from).level, low, high, &sizes);
    add_some(&builder, from, bytes, first, end);
    finish(&builder);
}

void remo__tree_node_split(void *node, void *right, uint32_t bytes, struct tree_bytes key, void *scratch) {
    struct tree_bytes high;
    struct tree_entry first = {.key.bytes = 0};
    remo__tree_node_pack(node, bytes, scratch);
    memcpy(scratch, node, bytes);
    uint32_t count = remo__tree_header_of(scratch).run, stay = choose_split(scratch, bytes, key);
    bool has_high = remo__tree_node_high(scratch, bytes, &high);
    (void)remo__tree_node_entry(scratch, bytes, stay, &first);
    make_half(right, scratch, bytes, stay, count, first.key, has_high ? &high : NULL);
    make_half(node, scratch, bytes, 0, stay, remo__tree_node_low(scratch, bytes), &first.key);
}

/* Return whether the entries of both nodes, and the fences of the merged node, fit into one node. */
static bool can_merge(const void *node, const void *right, uint32_t bytes, const struct tree_sizes *sizes) {
    struct tree_header mine = remo__tree_header_of(node), other = remo__tree_header_of(right);
    uint32_t taken = (uint32_t)sizeof mine + mine.low_bytes + other.high_bytes;
    /* in an inner node, the empty key of the first entry becomes the low fence */
    if (mine.level > 0)
        taken += other.low_bytes;
    else if (mine.count > 0 && other.count > 0)
        taken += bytes / MERGE_SPARE_PART;
    return taken <= bytes && remo__tree_sizes_fit(sizes, bytes, bytes - taken);
}

bool remo__tree_node_merge(void *node, const void *right, uint32_t bytes, void *scratch) {
    struct tree_bytes high, low = remo__tree_node_low(right, bytes);
    struct tree_sizes sizes = measure(node, bytes), other = measure(right, bytes);
    sizes = remo__tree_sizes_join(&sizes, &other);
    if (!can_merge(node, right, bytes, &sizes))
        return false;
    memcpy(scratch, node, bytes);
    bool has_high = remo__tree_node_high(right, bytes, &high);
    struct builder builder = begin(node, bytes, remo__tree_header_of(scratch).level,
                                   remo__tree_node_low(scratch, bytes), has_high ? &high : NULL, &sizes);
    add_all(&builder, scratch, bytes, (struct tree_bytes){NULL, 0});
    add_all(&builder, right, bytes, low);
    finish(&builder);
    return true;
}
