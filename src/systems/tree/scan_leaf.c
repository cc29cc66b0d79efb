/* scan_leaf.c - one leaf of a scan: copies or counts its entries, as of one visit.
 * Invariant: only scan->next, the second place of scan->nodes and the buffer beyond scan->now change, so a
 * visit can be repeated. The bytes of a leaf are checked in private memory. */
#include <string.h>

#include "systems/tree/scan.h"

/* Copied first of a leaf, by one copy: the header, and usually the fences. No node is smaller. */
#define FIRST_BYTES 64u

/* ---- the entries of a leaf ---- */

/* Copy or count an entry, or end the scan. */
static void use_entry(struct tree_scan *scan, const struct tree_entry *entry) {
    struct tree_scan_state *state = &scan->next;
    uint32_t value_bytes = scan->keys_only ? 0 : entry->value.bytes;
    uint16_t sizes[2] = {(uint16_t)entry->key.bytes, (uint16_t)value_bytes};
    size_t bytes = TREE_ENTRY_BYTES + entry->key.bytes + value_bytes;
    bool is_over = scan->limit != 0 && state->result.entries == scan->limit;
    if (is_over || (scan->buffer && bytes > scan->cap - state->result.bytes)) {
        state->is_full = true;
        return;
    }
    state->result.entries++;
    if (!scan->buffer)
        return;
    char *place = scan->buffer + state->result.bytes;
    memcpy(place, sizes, sizeof sizes);
    memcpy(place + TREE_ENTRY_BYTES, entry->key.data, entry->key.bytes + value_bytes);
    state->result.bytes += bytes;
}

/* Return whether `bytes` bytes are exactly `count` entries. */
static bool are_entries(const char *data, uint32_t count, size_t bytes) {
    uint32_t first, word, differences = 0;
    uint16_t sizes[2];
    size_t at = 0;
    if (count == 0 || bytes < (size_t)count * TREE_ENTRY_BYTES)
        return count == 0 && bytes == 0;
    memcpy(&first, data, sizeof first);
    memcpy(sizes, data, sizeof sizes);
    size_t size = TREE_ENTRY_BYTES + (size_t)sizes[0] + sizes[1];
    if (size * count == bytes) { /* usually all entries have the same sizes */
        for (uint32_t i = 0; i < count; i++) {
            memcpy(&word, data + i * size, sizeof word);
            differences |= word ^ first;
        }
        if (differences == 0)
            return true;
    }
    for (; count > 0 && bytes - at >= TREE_ENTRY_BYTES; count--) {
        memcpy(sizes, data + at, sizeof sizes);
        size = TREE_ENTRY_BYTES + (size_t)sizes[0] + sizes[1];
        if (size > bytes - at)
            return false;
        at += size;
    }
    return count == 0 && at == bytes;
}

/* Return the bytes of all entries of a leaf in the buffer. */
static uint32_t count_bytes(const struct tree_header *header) {
    return remo__tree_is_compact(header)
               ? header->run * (TREE_ENTRY_BYTES + remo__tree_stride(header)) + header->end - header->tail
               : header->end - remo__tree_run_at(header);
}

/* Return whether the scan copies entries with values, in ascending order. */
static bool copies_in_order(const struct tree_scan *scan) {
    return scan->buffer && !scan->is_descending && !scan->keys_only;
}

/* Return whether the scan copies entries in order, and the buffer and the limit have room for all entries of
 * a leaf. */
static bool fits(const struct tree_scan *scan, const struct tree_header *header) {
    const struct remo_tree_result *result = &scan->next.result;
    return copies_in_order(scan) && count_bytes(header) <= scan->cap - result->bytes
           && (scan->limit == 0 || header->run + TREE_TAIL_MAX <= scan->limit - result->entries);
}

/* Copy `count` entries of a compact run to the buffer. Entries of 16 bytes need no call of memcpy. */
static void use_array(struct tree_scan *scan, const struct tree_header *header, const char *from,
                      uint32_t count) {
    struct remo_tree_result *result = &scan->next.result;
    uint32_t stride = remo__tree_stride(header);
    const uint16_t sizes[2] = {header->key_bytes, header->value_bytes};
    char *place = scan->buffer + result->bytes;
    if (stride == 16)
        remo__tree_spread(place, from, count, 16, sizes);
    else
        remo__tree_spread(place, from, count, stride, sizes);
    result->entries += count;
    result->bytes += (size_t)count * (TREE_ENTRY_BYTES + stride);
}

/* Copy entries of the run, from the walk's place to index `end`, none of which was removed. */
static bool copy_part(struct tree_scan *scan, struct tree_walk *walk, const struct tree_header *header,
                      uint32_t end) {
    struct remo_tree_result *result = &scan->next.result;
    uint32_t count = end - walk->index, from = remo__tree_offset(walk->node, header, walk->index),
             to = end < walk->run ? remo__tree_offset(walk->node, header, end) : header->tail;
    const char *entries = (const char *)walk->node + from;
    walk->index = end;
    if (remo__tree_is_compact(header)) {
        use_array(scan, header, entries, count);
        return true;
    }
    if (from > to || to > header->tail || to - from > scan->cap - result->bytes)
        return false;
    char *place = scan->buffer + result->bytes;
    memcpy(place, entries, to - from);
    result->entries += count;
    result->bytes += to - from;
    return are_entries(place, count, to - from);
}

/* Copy all entries from the walk's place on, none of which was removed from the run. The entries of the run
 * up to the position of an entry of the tail are copied at once. */
static int copy_merged(struct tree_scan *scan, struct tree_walk *walk, const struct tree_header *header) {
    struct tree_entry entry;
    for (;;) {
        uint32_t end = walk->tail < walk->tail_count ? walk->positions[walk->tail] : walk->run;
        if (walk->index < end && !copy_part(scan, walk, header, end))
            return -EPROTO;
        if (walk->tail == walk->tail_count)
            return 0;
        if (remo__tree_walk_next(walk, &entry) != 1)
            return -EPROTO;
        use_entry(scan, &entry);
    }
}

/* Return whether the scan merges the entries of a leaf, as far as none was removed. */
static bool merges(const struct tree_scan *scan, const struct tree_header *header) {
    return copies_in_order(scan) && remo__tree_is_compact(header)
           && remo__tree_stride(header) == TREE_MERGED_BYTES;
}

/* Return the end of the entries of the run that can be merged: they are in the range. The limit has room for
 * them and the rest of the tail; the buffer has room for them, the tail and a group. */
static uint32_t end_of_merge(const struct tree_scan *scan, const struct tree_walk *walk, bool is_inside) {
    const struct remo_tree_result *result = &scan->next.result;
    const uint32_t size = TREE_ENTRY_BYTES + TREE_MERGED_BYTES, tail = walk->tail_count - walk->tail;
    uint64_t room = scan->cap - result->bytes, left = scan->limit - result->entries,
             others = walk->header.end - walk->header.tail + TREE_MERGED_GROUP * size;
    uint64_t count = room > others ? (room - others) / size : 0;
    uint32_t end = walk->run;
    bool is_found;
    if (scan->limit != 0)
        count = remo__min(count, left > tail ? left - tail : 0);
    if (!is_inside && !remo__tree_node_find_in_run(walk->node, walk->bytes, scan->to, &end, &is_found))
        return walk->index;
    return (uint32_t)remo__min(remo__max(end, walk->index), walk->index + count);
}

/* Merge entries from the walk's place on, as many as possible. */
static void merge_some(struct tree_scan *scan, struct tree_walk *walk, bool is_inside) {
    struct remo_tree_result *result = &scan->next.result;
    uint32_t end = end_of_merge(scan, walk, is_inside);
    size_t bytes;
    if (end == walk->index)
        return;
    result->entries += remo__tree_scan_merge(walk, end, scan->buffer + result->bytes, &bytes);
    result->bytes += bytes;
}

/* Use entries one by one, up to the end of the leaf or of the range. */
static int use_each(struct tree_scan *scan, struct tree_walk *walk, bool is_inside) {
    struct tree_entry entry;
    while (!scan->next.is_full) {
        int found =
            scan->is_descending ? remo__tree_walk_previous(walk, &entry) : remo__tree_walk_next(walk, &entry);
        if (found != 1)
            return found == 0 ? 0 : -EPROTO;
        if (!is_inside
            && (scan->is_descending ? remo__tree_compare(entry.key, scan->from) < 0
                                    : remo__tree_scan_is_beyond(scan, entry.key)))
            return 0;
        use_entry(scan, &entry);
    }
    return 0;
}

/* Use the entries of a leaf from the cursor on. `is_inside`: all of them are in the range. `is_whole`: these
 * are all entries of the leaf. */
static int use_entries(struct tree_scan *scan, const char *image, const struct tree_header *header,
                       bool is_inside, bool is_whole) {
    struct tree_bytes cursor = is_whole ? (struct tree_bytes){NULL, 0} : remo__tree_scan_cursor(scan);
    struct tree_walk walk;
    bool from_end = scan->is_descending && (is_whole || !scan->now.has_cursor);
    if (!remo__tree_walk_begin(&walk, image, scan->tree->node_bytes, from_end ? NULL : &cursor))
        return -EPROTO;
    bool has_removed = header->count != walk.run + walk.tail_count;
    if (!has_removed && merges(scan, header))
        merge_some(scan, &walk, is_inside);
    return is_inside && !has_removed && fits(scan, header) ? copy_merged(scan, &walk, header)
                                                           : use_each(scan, &walk, is_inside);
}

/* ---- one leaf ---- */

static void fetch(const struct tree_source *source, uint32_t offset, void *dst, uint32_t bytes) {
    if (source->view)
        remo_versioned_view_copy(source->view, offset, dst, bytes);
    else
        memcpy(dst, source->copy + offset, bytes);
}

/* Return whether the rest of the range begins in the leaf. */
static bool has_cursor(const struct tree_scan *scan, const void *leaf) {
    uint32_t node_bytes = scan->tree->node_bytes;
    struct tree_bytes high;
    if (!remo__tree_node_is_valid(leaf, node_bytes, 0))
        return false;
    if (!scan->is_descending)
        return remo__tree_node_covers(leaf, node_bytes, remo__tree_scan_cursor(scan));
    bool has_high = remo__tree_node_high(leaf, node_bytes, &high);
    if (!scan->now.has_cursor)
        return !has_high;
    return remo__tree_compare(remo__tree_node_low(leaf, node_bytes), remo__tree_scan_cursor(scan)) < 0
           && (!has_high || remo__tree_compare(remo__tree_scan_cursor(scan), high) <= 0);
}

/* Return whether the cursor is the fence at which the scan enters the leaf. Then the range contains all keys
 * of the leaf if it contains the last one in the direction of the scan. */
static bool begins_at_end(const struct tree_scan *scan, const void *leaf) {
    struct tree_bytes fence;
    if (!scan->is_descending)
        return remo__tree_compare(remo__tree_node_low(leaf, scan->tree->node_bytes),
                                  remo__tree_scan_cursor(scan))
               == 0;
    return !remo__tree_node_high(leaf, scan->tree->node_bytes, &fence)
               ? !scan->now.has_cursor
               : remo__tree_compare(fence, remo__tree_scan_cursor(scan)) == 0;
}

/* Move the cursor to the other end of the leaf, or find that the leaf is the last one of the owner or of the
 * range. Sets *ret_inside to whether the range contains all keys of the leaf from the cursor on. */
static int leave_leaf(struct tree_scan *scan, const void *leaf, bool *ret_inside) {
    const struct remo_tree *tree = scan->tree;
    uint32_t position = scan->position;
    struct tree_bytes fence = remo__tree_node_low(leaf, tree->node_bytes);
    bool is_end = fence.bytes == 0;
    if (scan->is_descending) {
        *ret_inside = remo__tree_compare(fence, scan->from) >= 0;
        is_end = is_end || remo__tree_compare(fence, scan->from) <= 0
                 || (position > 0 && remo__tree_compare(fence, tree->boundaries[position - 1]) <= 0);
    } else {
        bool has_high = remo__tree_node_high(leaf, tree->node_bytes, &fence);
        *ret_inside = !scan->has_to || (has_high && remo__tree_compare(fence, scan->to) <= 0);
        is_end = !has_high || remo__tree_scan_is_beyond(scan, fence)
                 || (position + 1 < tree->owner_count
                     && remo__tree_compare(fence, tree->boundaries[position]) >= 0);
    }
    if (fence.bytes > REMO_TREE_KEY_BYTES_MAX)
        return -EPROTO;
    scan->next.is_last = is_end;
    if (!is_end) {
        scan->next.cursor = scan->cursors[scan->now.cursor == scan->cursors[0]]; /* the other one */
        remo__tree_scan_set_cursor(&scan->next, fence);
    }
    return 0;
}

/* Copy a packed leaf to the caller's buffer at once: a mixed run without another copy. */
static int copy_run(struct tree_scan *scan, const struct tree_source *source,
                    const struct tree_header *header) {
    struct remo_tree_result *result = &scan->next.result;
    uint32_t run_at = remo__tree_run_at(header), bytes = header->tail - run_at;
    char *place = scan->buffer + result->bytes, *run = remo__tree_scan_node(scan, 1) + run_at;
    if (remo__tree_is_compact(header)) {
        fetch(source, run_at, run, bytes);
        use_array(scan, header, run, header->run);
        return 0;
    }
    fetch(source, run_at, place, bytes);
    result->entries += header->run;
    result->bytes += bytes;
    return are_entries(place, header->run, bytes) ? 0 : -EPROTO;
}

/* Add a leaf to the average, by which a scan reads no more leaves at a time than it probably needs: the mean
 * of the first leaves, and then a moving average. */
static void note_entries(struct tree_cache *cache, uint32_t count) {
    if (cache->leaves == TREE_AVERAGED)
        cache->entries -= cache->entries / TREE_AVERAGED;
    else
        cache->leaves++;
    cache->entries += count;
}

int remo__tree_scan_use_leaf(struct tree_scan *scan, const struct tree_source *source) {
    uint32_t node_bytes = scan->tree->node_bytes, index_at;
    char *image = remo__tree_scan_node(scan, 1);
    struct tree_header header;
    bool is_inside;
    int rc = 0;
    fetch(source, 0, image, FIRST_BYTES);
    memcpy(&header, image, sizeof header);
    if (!remo__tree_node_is_valid(image, node_bytes, 0))
        return TREE_WRONG_WAY;
    index_at = remo__tree_index_at(&header);
    if (index_at > FIRST_BYTES)
        fetch(source, FIRST_BYTES, image + FIRST_BYTES, index_at - FIRST_BYTES);
    if (!has_cursor(scan, image))
        return TREE_WRONG_WAY;
    rc = leave_leaf(scan, image, &is_inside);
    if (rc != 0)
        return rc;
    note_entries(scan->cache, header.count);
    bool is_whole = is_inside && begins_at_end(scan, image);
    if (is_whole && !scan->buffer && scan->limit == 0) {
        scan->next.result.entries += header.count;
        return 0;
    }
    if (is_whole && header.count == header.run && header.end == header.tail && fits(scan, &header))
        return copy_run(scan, source, &header);
    /* The fences that were checked stay. */
    fetch(source, index_at, image + index_at, header.end - index_at);
    return use_entries(scan, image, &header, is_inside, is_whole);
}
