/* node.c - implements node.h.
 * Invariant: a function that reads checks each offset and size against the node's bytes before it uses them;
 * a function that changes works on a copy in private memory, whose header was checked. */
#include "systems/tree/node.h"

#include <endian.h>
#include <string.h>
#include <xxhash.h>

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
    uint32_t common = a.bytes < b.bytes ? a.bytes : b.bytes, compared = 0;
    if (common >= 8) {
        uint64_t first_a = first_bytes(a.data), first_b = first_bytes(b.data);
        if (first_a != first_b)
            return first_a < first_b ? -1 : 1;
        compared = 8;
    }
    int order = common > compared ? memcmp(at(a.data, compared), at(b.data, compared), common - compared) : 0;
    return order != 0 ? order : (a.bytes > b.bytes) - (a.bytes < b.bytes);
}

/* ---- read ---- */

uint8_t remo__tree_fingerprint(struct tree_bytes key) {
    return (uint8_t)XXH3_64bits(key.data, key.bytes);
}

uint32_t remo__tree_node_entries_max(uint32_t bytes) {
    return (bytes - (uint32_t)sizeof(struct tree_header)) / remo__tree_entry_bytes(0, sizeof(uint32_t));
}

bool remo__tree_node_is_valid(const void *node, uint32_t bytes, uint32_t level) {
    struct tree_header header = header_of(node);
    uint32_t fences = (uint32_t)header.low_bytes + header.high_bytes;
    bool is_packed = header.count == header.run && header.tail == header.end;
    return header.level == level && (header.kind == TREE_NODE || header.kind == TREE_LAST)
           && fences <= bytes - sizeof header && header.end <= bytes - fences && header.tail <= header.end
           && remo__tree_run_at(header.run) <= header.tail && header.used <= bytes - sizeof header - fences
           && header.count <= header.run + TREE_TAIL_MAX && (level == 0 || is_packed);
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

bool remo__tree_node_is_whole(const void *node, uint32_t bytes) {
    struct tree_header header = header_of(node);
    struct tree_bytes low = {NULL, 0};
    struct tree_walk walk;
    struct tree_entry entry;
    uint32_t used = 0, count = 0;
    int found = 0;
    if (!remo__tree_node_is_valid(node, bytes, header.level)
        || !remo__tree_walk_begin(&walk, node, bytes, &low))
        return false;
    while (used <= header.used && (found = remo__tree_walk_next(&walk, &entry)) == 1) {
        used += TREE_SLOT_BYTES + remo__tree_entry_size(&entry);
        count++;
    }
    return found == 0 && used == header.used && count == header.count;
}

bool remo__tree_node_find_in_run(const void *node, uint32_t bytes, struct tree_bytes key, uint32_t *ret_index,
                                 bool *ret_found) {
    uint32_t low = 0, high = header_of(node).run, equal = UINT32_MAX;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        struct tree_entry entry;
        if (!remo__tree_node_entry(node, bytes, middle, &entry))
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

/* An entry of the tail. */
struct tail_entry {
    struct tree_entry entry;
    uint32_t offset, position; /* of {key_bytes; ...}; the number of entries of the run before this one */
    bool is_removed;
};

/* Load the entry of the tail whose position is at *next, and set *next to the offset after the entry. Returns
 * 1, 0 at the end of the tail, or -1 if the entry is not valid. */
static int next_of_tail(const void *node, uint32_t *next, struct tail_entry *ret_tail) {
    struct tree_header header = header_of(node);
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

bool remo__tree_node_find(const void *node, uint32_t bytes, struct tree_bytes key,
                          struct tree_place *ret_place) {
    uint32_t index, next = header_of(node).tail;
    struct tail_entry tail;
    bool is_found;
    int found;
    *ret_place = (struct tree_place){.index = UINT32_MAX};
    if (!remo__tree_node_find_in_run(node, bytes, key, &index, &is_found))
        return false;
    if (is_found && !(remo__tree_slot(node, index) & TREE_REMOVED)) {
        *ret_place = (struct tree_place){.offset = remo__tree_slot(node, index), .index = index};
        return true;
    }
    while ((found = next_of_tail(node, &next, &tail)) == 1)
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
    if (header_of(node).run == 0 || !remo__tree_node_find_in_run(node, bytes, key, ret_index, &is_found))
        return false;
    if (!is_found && *ret_index > 0)
        --*ret_index;
    if (!remo__tree_node_entry(node, bytes, *ret_index, &entry) || entry.value.bytes != sizeof *ret_child)
        return false;
    memcpy(ret_child, entry.value.data, sizeof *ret_child);
    return true;
}

/* ---- walk ---- */

/* Return whether an entry of the tail is before another one in the order of keys. Different positions decide,
 * without a comparison of keys. */
static bool is_before(const struct tree_walk *walk, uint32_t place, const struct tail_entry *tail) {
    struct tree_entry entry;
    if (walk->positions[place] != tail->position)
        return walk->positions[place] < tail->position;
    (void)remo__tree_entry_at(walk->node, walk->bytes, walk->offsets[place], &entry);
    return remo__tree_compare(entry.key, tail->entry.key) < 0;
}

/* Add an entry of the tail, after those with smaller keys. */
static void add_to_walk(struct tree_walk *walk, const struct tail_entry *tail) {
    uint32_t place = walk->tail_count++;
    for (; place > 0 && !is_before(walk, place - 1, tail); place--) {
        walk->offsets[place] = walk->offsets[place - 1];
        walk->positions[place] = walk->positions[place - 1];
    }
    walk->offsets[place] = (uint16_t)tail->offset;
    walk->positions[place] = (uint16_t)tail->position;
}

static bool list_tail(struct tree_walk *walk) {
    uint32_t next = header_of(walk->node).tail;
    struct tail_entry tail;
    int found;
    while ((found = next_of_tail(walk->node, &next, &tail)) == 1) {
        if (tail.is_removed)
            continue;
        if (walk->tail_count == TREE_TAIL_MAX)
            return false;
        add_to_walk(walk, &tail);
    }
    return found == 0;
}

bool remo__tree_walk_begin(struct tree_walk *walk, const void *node, uint32_t bytes,
                           const struct tree_bytes *key) {
    struct tree_entry entry;
    bool is_found;
    walk->node = node;
    walk->bytes = bytes;
    walk->run = walk->index = header_of(node).run;
    walk->tail_count = 0;
    if (!list_tail(walk))
        return false;
    walk->tail = walk->tail_count;
    if (!key)
        return true;
    if (key->bytes == 0) {
        walk->index = walk->tail = 0;
        return true;
    }
    for (; walk->tail > 0; walk->tail--) {
        (void)remo__tree_entry_at(node, bytes, walk->offsets[walk->tail - 1], &entry);
        if (remo__tree_compare(entry.key, *key) < 0)
            break;
    }
    return remo__tree_node_find_in_run(node, bytes, *key, &walk->index, &is_found);
}

static int load_of_tail(struct tree_walk *walk, uint32_t index, struct tree_entry *ret_entry) {
    walk->at = UINT32_MAX;
    return remo__tree_entry_at(walk->node, walk->bytes, walk->offsets[index], ret_entry) ? 1 : -1;
}

/* Load an entry of the run. Returns 0 if it was removed. */
static int load_of_run(struct tree_walk *walk, uint32_t index, struct tree_entry *ret_entry) {
    walk->at = index;
    if (remo__tree_slot(walk->node, index) & TREE_REMOVED)
        return 0;
    return remo__tree_node_entry(walk->node, walk->bytes, index, ret_entry) ? 1 : -1;
}

int remo__tree_walk_next(struct tree_walk *walk, struct tree_entry *ret_entry) {
    int found = 0;
    while (found == 0) {
        if (walk->tail < walk->tail_count && walk->positions[walk->tail] <= walk->index)
            return load_of_tail(walk, walk->tail++, ret_entry);
        if (walk->index == walk->run)
            return 0;
        found = load_of_run(walk, walk->index++, ret_entry);
    }
    return found;
}

int remo__tree_walk_previous(struct tree_walk *walk, struct tree_entry *ret_entry) {
    int found = 0;
    while (found == 0) {
        if (walk->tail > 0 && walk->positions[walk->tail - 1] >= walk->index)
            return load_of_tail(walk, --walk->tail, ret_entry);
        if (walk->index == 0)
            return 0;
        found = load_of_run(walk, --walk->index, ret_entry);
    }
    return found;
}

/* ---- a new node ---- */

uint32_t remo__tree_entry_bytes(uint32_t key_bytes, uint32_t value_bytes) {
    return TREE_SLOT_BYTES + TREE_ENTRY_BYTES + key_bytes + value_bytes;
}

uint32_t remo__tree_node_room(const void *node, uint32_t bytes) {
    struct tree_header header = header_of(node);
    return bytes - (uint32_t)sizeof header - header.low_bytes - header.high_bytes;
}

uint32_t remo__tree_node_free(const void *node, uint32_t bytes) {
    return remo__tree_node_room(node, bytes) - header_of(node).used;
}

/* A node to whose run entries are added, in the order of keys. Their number is known at the beginning. */
struct builder {
    uint8_t *node;
    struct tree_header header;
};

static struct builder begin(void *node, uint32_t bytes, uint32_t level, struct tree_bytes low,
                            const struct tree_bytes *high, uint32_t run) {
    uint32_t high_bytes = high ? high->bytes : 0, run_at = remo__tree_run_at(run);
    struct tree_header header = {.level = (uint8_t)level,
                                 .kind = high ? TREE_NODE : TREE_LAST,
                                 .run = (uint16_t)run,
                                 .tail = (uint16_t)run_at,
                                 .low_bytes = (uint16_t)low.bytes,
                                 .high_bytes = (uint16_t)high_bytes};
    uint8_t *fences = (uint8_t *)node + bytes - low.bytes - high_bytes;
    memset(node, 0, bytes);
    if (high)
        memcpy(fences, high->data ? high->data : "", high_bytes);
    memcpy(fences + high_bytes, low.data ? low.data : "", low.bytes);
    return (struct builder){.node = node, .header = header};
}

uint32_t remo__tree_write_entry(void *place, struct tree_bytes key, struct tree_bytes value) {
    uint8_t *at = (uint8_t *)place + TREE_ENTRY_BYTES;
    store16(place, 0, key.bytes);
    store16(place, 2, value.bytes);
    memmove(at, key.data ? key.data : "", key.bytes); /* a damaged entry may overlap */
    memcpy(at + key.bytes, value.data ? value.data : "", value.bytes);
    return TREE_ENTRY_BYTES + key.bytes + value.bytes;
}

static void add(struct builder *builder, const struct tree_entry *entry, uint8_t fingerprint) {
    struct tree_header *header = &builder->header;
    store16(builder->node, remo__tree_slot_at(header->count), header->tail);
    builder->node[remo__tree_fingerprints_at(header->run) + header->count] = fingerprint;
    header->tail =
        (uint16_t)(header->tail
                   + remo__tree_write_entry(builder->node + header->tail, entry->key, entry->value));
    header->count++;
}

static void finish(struct builder *builder) {
    builder->header.end = builder->header.tail;
    builder->header.used = (uint16_t)(builder->header.tail - sizeof builder->header);
    set_header(builder->node, &builder->header);
}

void remo__tree_node_init(void *node, uint32_t bytes, uint32_t level, struct tree_bytes low,
                          const struct tree_bytes *high) {
    struct builder builder = begin(node, bytes, level, low, high, 0);
    finish(&builder);
}

bool remo__tree_node_fill(void *node, uint32_t bytes, struct tree_bytes low, const struct tree_bytes *high,
                          const void *entries, uint32_t size, uint32_t count) {
    struct tree_entry entry = {.key.bytes = 0};
    uint32_t offset = 0;
    if (remo__tree_run_at(count) + size + low.bytes + (high ? high->bytes : 0) > bytes)
        return false;
    struct builder builder = begin(node, bytes, 0, low, high, count);
    for (uint32_t i = 0; i < count && remo__tree_entry_at(entries, size, offset, &entry); i++) {
        add(&builder, &entry, remo__tree_fingerprint(entry.key));
        offset += remo__tree_entry_size(&entry);
    }
    finish(&builder);
    return true;
}

bool remo__tree_node_set_high(void *node, uint32_t bytes, struct tree_bytes high) {
    struct tree_header header = header_of(node);
    uint32_t packed_end = (uint32_t)sizeof header + header.used,
             end = header.end > packed_end ? header.end : packed_end, fences = header.low_bytes + high.bytes;
    if (end + fences > bytes)
        return false;
    header.kind = TREE_NODE;
    header.high_bytes = (uint16_t)high.bytes;
    set_header(node, &header);
    memcpy((uint8_t *)node + bytes - fences, high.data, high.bytes);
    return true;
}

static uint8_t fingerprint_at(const void *node, uint32_t index) {
    return *at(node, remo__tree_fingerprints_at(header_of(node).run) + index);
}

/* Add the entries of a whole node. In an inner node the first of them gets the key `first_key`. */
static void add_all(struct builder *builder, const void *from, uint32_t bytes, struct tree_bytes first_key) {
    struct tree_bytes lowest = {NULL, 0};
    struct tree_entry entry;
    struct tree_walk walk;
    uint32_t level = header_of(from).level;
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

/* ---- changes of a leaf ---- */

static void add_range(struct tree_ranges *ranges, uint32_t offset, uint32_t bytes) {
    ranges->ranges[ranges->count++] = (struct tree_range){(uint16_t)offset, (uint16_t)bytes};
}

static void change_header(void *node, const struct tree_header *header, struct tree_ranges *ranges) {
    uint32_t offset = offsetof(struct tree_header, count);
    set_header(node, header);
    add_range(ranges, offset, (uint32_t)sizeof *header - offset);
}

/* Return the number of entries of the tail, with removed ones. */
static uint32_t count_tail(const void *node) {
    uint32_t next = header_of(node).tail, count = 0;
    struct tail_entry tail;
    while (next_of_tail(node, &next, &tail) == 1)
        count++;
    return count;
}

/* Return whether the tail has room for an entry of `size` bytes, and a packed node for all entries. */
static bool has_room(const void *node, uint32_t bytes, const struct tree_header *header, uint32_t size) {
    uint32_t limit = bytes - header->low_bytes - header->high_bytes;
    return header->end + TREE_POSITION_BYTES + size <= limit
           && header->used + TREE_SLOT_BYTES + size <= limit - (uint32_t)sizeof *header
           && header->end + TREE_POSITION_BYTES + size - header->tail <= bytes / TREE_TAIL_PART
           && count_tail(node) < TREE_TAIL_MAX;
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
    store16(node, header->end, position);
    remo__tree_write_entry((uint8_t *)node + header->end + TREE_POSITION_BYTES, key, value);
    add_range(ranges, header->end, size);
    header->end = (uint16_t)(header->end + size);
    header->used = (uint16_t)(header->used + TREE_SLOT_BYTES + remo__tree_entry_size(&entry));
    header->count++;
    return true;
}

bool remo__tree_node_insert(void *node, uint32_t bytes, struct tree_bytes key, struct tree_bytes value,
                            struct tree_ranges *ret_ranges) {
    struct tree_header header = header_of(node);
    ret_ranges->count = 0;
    if (!has_room(node, bytes, &header, TREE_ENTRY_BYTES + key.bytes + value.bytes))
        return false;
    if (!append(node, bytes, &header, key, value, ret_ranges))
        return false;
    change_header(node, &header, ret_ranges);
    return true;
}

/* Mark an entry as removed. */
static void mark(void *node, uint32_t bytes, const struct tree_place *place, struct tree_header *header,
                 struct tree_ranges *ranges) {
    struct tree_entry entry = {.key.bytes = 0};
    uint32_t offset = place->index == UINT32_MAX ? place->offset : remo__tree_slot_at(place->index);
    (void)remo__tree_entry_at(node, bytes, place->offset, &entry);
    store16(node, offset, remo__tree_load16(node, offset) | TREE_REMOVED);
    add_range(ranges, offset, 2);
    header->used = (uint16_t)(header->used - TREE_SLOT_BYTES - remo__tree_entry_size(&entry));
    header->count--;
}

/* A value of the same size is overwritten in place. Any other value gets a new entry. */
bool remo__tree_node_replace(void *node, uint32_t bytes, const struct tree_place *place,
                             struct tree_bytes value, struct tree_ranges *ret_ranges) {
    struct tree_header header = header_of(node);
    struct tree_entry entry = {.key.bytes = 0};
    ret_ranges->count = 0;
    (void)remo__tree_entry_at(node, bytes, place->offset, &entry);
    if (entry.value.bytes == value.bytes) {
        uint32_t offset = place->offset + TREE_ENTRY_BYTES + entry.key.bytes;
        memcpy((uint8_t *)node + offset, value.data ? value.data : "", value.bytes);
        if (value.bytes > 0)
            add_range(ret_ranges, offset, value.bytes);
        return true;
    }
    struct tree_header without = header;
    without.used = (uint16_t)(without.used - TREE_SLOT_BYTES - remo__tree_entry_size(&entry));
    if (!has_room(node, bytes, &without, TREE_ENTRY_BYTES + entry.key.bytes + value.bytes))
        return false;
    if (!append(node, bytes, &header, entry.key, value, ret_ranges))
        return false;
    mark(node, bytes, place, &header, ret_ranges);
    change_header(node, &header, ret_ranges);
    return true;
}

void remo__tree_node_remove(void *node, uint32_t bytes, const struct tree_place *place,
                            struct tree_ranges *ret_ranges) {
    struct tree_header header = header_of(node);
    ret_ranges->count = 0;
    mark(node, bytes, place, &header, ret_ranges);
    change_header(node, &header, ret_ranges);
}

/* ---- changes of an inner node ---- */

/* Make the inner node in `from` again, with a new entry before `index`, or without entry `index`. */
static void make_inner(void *node, const void *from, uint32_t bytes, uint32_t index,
                       const struct tree_entry *entry) {
    struct tree_bytes high;
    bool has_high = remo__tree_node_high(from, bytes, &high);
    uint32_t count = header_of(from).run;
    struct builder builder = begin(node, bytes, header_of(from).level, remo__tree_node_low(from, bytes),
                                   has_high ? &high : NULL, entry ? count + 1 : count - 1);
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
    bool has_high = remo__tree_node_high(scratch, bytes, &high);
    struct builder builder = begin(node, bytes, header_of(scratch).level, remo__tree_node_low(scratch, bytes),
                                   has_high ? &high : NULL, header_of(scratch).count);
    add_all(&builder, scratch, bytes, (struct tree_bytes){NULL, 0});
    finish(&builder);
}

/* Return the number of entries of a packed node that stay. An insertion at the end suggests ascending keys:
 * then all entries but one stay, so that nodes are full. */
static uint32_t choose_split(const void *node, uint32_t bytes, struct tree_bytes key) {
    struct tree_header header = header_of(node);
    uint32_t index = 0, stay = 0, middle = header.used / 2;
    bool is_found;
    (void)remo__tree_node_find_in_run(node, bytes, key, &index, &is_found);
    if (index == header.run)
        return header.run - 1u;
    uint32_t run_at = remo__tree_run_at(header.run);
    while (stay < header.run - 1u && remo__tree_slot(node, stay) - run_at + TREE_SLOT_BYTES * stay < middle)
        stay++;
    return stay > 0 ? stay : 1;
}

void remo__tree_node_split(void *node, void *right, uint32_t bytes, struct tree_bytes key, void *scratch) {
    struct tree_bytes high;
    struct tree_entry first = {.key.bytes = 0};
    struct builder builder;
    remo__tree_node_pack(node, bytes, scratch);
    memcpy(scratch, node, bytes);
    struct tree_header header = header_of(scratch);
    uint32_t stay = choose_split(scratch, bytes, key);
    bool has_high = remo__tree_node_high(scratch, bytes, &high);
    (void)remo__tree_node_entry(scratch, bytes, stay, &first);
    builder = begin(right, bytes, header.level, first.key, has_high ? &high : NULL, header.run - stay);
    add_some(&builder, scratch, bytes, stay, header.run);
    finish(&builder);
    builder = begin(node, bytes, header.level, remo__tree_node_low(scratch, bytes), &first.key, stay);
    add_some(&builder, scratch, bytes, 0, stay);
    finish(&builder);
}

bool remo__tree_node_merge(void *node, const void *right, uint32_t bytes, void *scratch) {
    struct tree_header mine = header_of(node), other = header_of(right);
    struct tree_bytes high, low = remo__tree_node_low(right, bytes);
    /* in an inner node, the empty key of the first entry becomes the low fence */
    uint32_t key = mine.level > 0 ? other.low_bytes : 0u,
             spare = mine.level == 0 && mine.count > 0 && other.count > 0 ? bytes / MERGE_SPARE_PART : 0;
    if (other.used + key + other.high_bytes + spare > remo__tree_node_free(node, bytes) + mine.high_bytes)
        return false;
    memcpy(scratch, node, bytes);
    bool has_high = remo__tree_node_high(right, bytes, &high);
    struct builder builder = begin(node, bytes, mine.level, remo__tree_node_low(scratch, bytes),
                                   has_high ? &high : NULL, mine.count + other.count);
    add_all(&builder, scratch, bytes, (struct tree_bytes){NULL, 0});
    add_all(&builder, right, bytes, low);
    finish(&builder);
    return true;
}
