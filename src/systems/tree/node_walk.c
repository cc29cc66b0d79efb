/* node_walk.c - a walk over the entries of a node (node.h): merges run and tail in the order of keys, by the
 * positions of the tail's entries. Invariant: walk->offsets lists the tail's entries in this order, and those
 * before walk->tail, with the entries of the run before walk->index, are before the place of the walk. */
#include "systems/tree/node_parts.h"

/* Return whether an entry of the tail is before another one in the order of keys. Different positions decide,
 * without a comparison of keys. */
static bool is_before(const struct tree_walk *walk, uint32_t place, const struct tree_tail_entry *tail) {
    struct tree_entry entry;
    if (walk->positions[place] != tail->position)
        return walk->positions[place] < tail->position;
    (void)remo__tree_entry_at(walk->node, walk->bytes, walk->offsets[place], &entry);
    return remo__tree_compare(entry.key, tail->entry.key) < 0;
}

/* Add an entry of the tail, after those with smaller keys. */
static void add_to_walk(struct tree_walk *walk, const struct tree_tail_entry *tail) {
    uint32_t place = walk->tail_count++;
    for (; place > 0 && !is_before(walk, place - 1, tail); place--) {
        walk->offsets[place] = walk->offsets[place - 1];
        walk->positions[place] = walk->positions[place - 1];
    }
    walk->offsets[place] = (uint16_t)tail->offset;
    walk->positions[place] = (uint16_t)tail->position;
}

static bool list_tail(struct tree_walk *walk) {
    uint32_t next = remo__tree_header_of(walk->node).tail;
    struct tree_tail_entry tail;
    int found;
    while ((found = remo__tree_tail_next(walk->node, &next, &tail)) == 1) {
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
    walk->header = remo__tree_header_of(node);
    walk->run = walk->index = walk->header.run;
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
    if (remo__tree_is_removed(walk->node, &walk->header, index))
        return 0;
    return remo__tree_entry_of(walk->node, walk->bytes, &walk->header, index, ret_entry) ? 1 : -1;
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

bool remo__tree_node_is_whole(const void *node, uint32_t bytes) {
    struct tree_header header = remo__tree_header_of(node);
    struct tree_bytes low = {NULL, 0};
    struct tree_walk walk;
    struct tree_entry entry;
    struct tree_sizes sizes = {.count = 0};
    int found = 0;
    if (!remo__tree_node_is_valid(node, bytes, header.level)
        || !remo__tree_walk_begin(&walk, node, bytes, &low))
        return false;
    while (sizes.used <= header.used && (found = remo__tree_walk_next(&walk, &entry)) == 1)
        remo__tree_sizes_add(&sizes, &entry);
    return found == 0 && sizes.used == header.used && sizes.count == header.count
           && remo__tree_sizes_packed(&sizes) <= remo__tree_node_room(node, bytes);
}
