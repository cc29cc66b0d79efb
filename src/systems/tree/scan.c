/* scan.c - scans: the leaves of a range of keys, as of one version of each owner.
 * Invariant: all leaves that are used of an owner are of one version, and the range of each ends where that
 * of the next one in the direction of the scan begins. So no leaf is missing, and none is used twice. A
 * cached inner node only helps to find leaves. */
#include <string.h>

#include "systems/tree/tree.h"

#define COPIED_BYTES 32u /* a shorter entry is copied with the bytes after it, by few instructions */
#define WRONG_WAY 1      /* not an error if the inner nodes were cached */

/* The cursor is where the rest of the range begins: ascending, the first key that has not been copied;
 * descending, the key after it. */
struct scan {
    struct remo_tree *tree;
    struct tree_bytes from, to;
    bool has_to, is_descending, keys_only;
    uint64_t limit;
    const uint64_t *snapshot; /* NULL: find the versions */
    char *buffer;             /* NULL: count the entries */
    size_t cap;
    struct remo_tree_result result;
    bool is_full; /* the buffer or the limit has ended the scan */
    struct tree_cache *cache;

    /* the present owner */
    uint32_t position, owner;
    uint64_t version;
    bool use_cache; /* inner nodes may be of another version */
    char *nodes;    /* the parent of the leaves, and TREE_WINDOW - 1 leaves */
    char cursor[REMO_TREE_KEY_BYTES_MAX + 1];
    uint32_t cursor_bytes;
    bool has_cursor; /* false: descending from the last key of the tree */
    bool is_last;    /* no leaf follows */
};

static void set_cursor(struct scan *scan, struct tree_bytes key) {
    if (key.bytes > 0)
        memcpy(scan->cursor, key.data, key.bytes);
    scan->cursor_bytes = key.bytes;
    scan->has_cursor = true;
}

static struct tree_bytes cursor_of(const struct scan *scan) {
    return (struct tree_bytes){scan->cursor, scan->cursor_bytes};
}

static char *node_at(const struct scan *scan, uint32_t index) {
    return scan->nodes + (size_t)index * scan->tree->node_bytes;
}

/* Return whether the range has no keys from `key` on. */
static bool is_beyond(const struct scan *scan, struct tree_bytes key) {
    return scan->has_to && remo__tree_compare(key, scan->to) >= 0;
}

static int fail_damaged(const struct scan *scan) {
    return remo__fail(-EPROTO, "tree %s at node %u is damaged; start the job again",
                      remo_channel_name(scan->tree->channel), scan->owner);
}

/* ---- one leaf ---- */

/* Copy or count an entry, or end the scan. */
static void use_entry(struct scan *scan, const struct tree_entry *entry) {
    uint32_t value_bytes = scan->keys_only ? 0 : entry->value.bytes;
    size_t bytes = TREE_ENTRY_BYTES + entry->key.bytes + value_bytes;
    bool is_over = scan->limit != 0 && scan->result.entries == scan->limit;
    if (is_over || (scan->buffer && bytes > scan->cap - scan->result.bytes)) {
        scan->is_full = true;
        return;
    }
    scan->result.entries++;
    if (!scan->buffer)
        return;
    char *place = scan->buffer + scan->result.bytes;
    memcpy(place, (const char *)entry->key.data - TREE_ENTRY_BYTES, bytes); /* as in the node */
    if (scan->keys_only)
        memset(place + 2, 0, 2); /* the size of the value */
    scan->result.bytes += bytes;
}

/* Return whether the rest of the range begins in the leaf. */
static bool has_cursor(const struct scan *scan, const void *leaf) {
    uint32_t node_bytes = scan->tree->node_bytes;
    struct tree_bytes high;
    if (!remo__tree_node_is_valid(leaf, node_bytes, 0))
        return false;
    if (!scan->is_descending)
        return remo__tree_node_covers(leaf, node_bytes, cursor_of(scan));
    bool has_high = remo__tree_node_high(leaf, node_bytes, &high);
    if (!scan->has_cursor)
        return !has_high;
    return remo__tree_compare(remo__tree_node_low(leaf, node_bytes), cursor_of(scan)) < 0
           && (!has_high || remo__tree_compare(cursor_of(scan), high) <= 0);
}

/* Copy entries, up to the first one that is not valid, or for which the buffer has less room than its size or
 * COPIED_BYTES. `step` is 1 or -1. Returns the number of copied entries. */
static uint32_t copy_entries(struct scan *scan, const void *leaf, uint32_t index, uint32_t count, int step) {
    uint32_t node_bytes = scan->tree->node_bytes, copied = 0;
    char *place = scan->buffer + scan->result.bytes, *end = scan->buffer + scan->cap;
    for (; copied < count; copied++, index += (uint32_t)step) {
        struct tree_entry entry;
        if (!remo__tree_node_entry(leaf, node_bytes, index, &entry))
            break;
        const char *data = (const char *)entry.key.data - TREE_ENTRY_BYTES;
        uint32_t bytes = TREE_ENTRY_BYTES + entry.key.bytes + entry.value.bytes;
        bool is_short = bytes <= COPIED_BYTES && data + COPIED_BYTES <= (const char *)leaf + node_bytes;
        if (end - place < (ptrdiff_t)remo__max(bytes, COPIED_BYTES))
            break;
        if (is_short)
            memcpy(place, data, COPIED_BYTES);
        else
            memcpy(place, data, bytes);
        place += bytes;
    }
    scan->result.entries += copied;
    scan->result.bytes = (size_t)(place - scan->buffer);
    return copied;
}

/* Use entries [first, end). `is_inside`: all of them are in the range. */
static int use_entries(struct scan *scan, const void *leaf, uint32_t first, uint32_t end, bool is_inside) {
    if (is_inside && !scan->buffer && scan->limit == 0) {
        scan->result.entries += end - first;
        return 0;
    }
    uint32_t copied = 0, count = end - first;
    if (scan->limit != 0)
        count = (uint32_t)remo__min(count, scan->limit - scan->result.entries);
    if (is_inside && scan->buffer && !scan->keys_only)
        copied = copy_entries(scan, leaf, scan->is_descending ? end - 1 : first, count,
                              scan->is_descending ? -1 : 1);
    for (uint32_t i = first + copied; i < end && !scan->is_full; i++) {
        struct tree_entry entry;
        uint32_t index = scan->is_descending ? first + end - 1 - i : i;
        if (!remo__tree_node_entry(leaf, scan->tree->node_bytes, index, &entry))
            return fail_damaged(scan);
        bool is_outside = !is_inside
                          && (scan->is_descending ? remo__tree_compare(entry.key, scan->from) < 0
                                                  : is_beyond(scan, entry.key));
        if (is_outside)
            return 0;
        use_entry(scan, &entry);
    }
    return 0;
}

/* Move the cursor to the other end of the leaf, or find that the leaf is the last one of the owner or of the
 * range. Sets *ret_inside to whether the range contains all keys of the leaf from the cursor on. */
static int leave_leaf(struct scan *scan, const void *leaf, bool *ret_inside) {
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
        is_end = !has_high || is_beyond(scan, fence)
                 || (position + 1 < tree->owner_count
                     && remo__tree_compare(fence, tree->boundaries[position]) >= 0);
    }
    if (fence.bytes > REMO_TREE_KEY_BYTES_MAX)
        return fail_damaged(scan);
    scan->is_last = is_end;
    if (!is_end)
        set_cursor(scan, fence);
    return 0;
}

/* Use the entries of a leaf from the cursor on, and move the cursor to the other end of the leaf. Returns
 * WRONG_WAY if the rest of the range does not begin in the leaf. */
static int use_leaf(struct scan *scan, const void *leaf) {
    uint32_t index;
    struct tree_header header;
    bool is_found, is_inside;
    memcpy(&header, leaf, sizeof header);
    if (!has_cursor(scan, leaf))
        return WRONG_WAY;
    if (!scan->has_cursor)
        index = header.count;
    else if (!remo__tree_node_find(leaf, scan->tree->node_bytes, cursor_of(scan), &index, &is_found))
        return fail_damaged(scan);
    scan->cache->leaf_entries = header.count;
    int rc = leave_leaf(scan, leaf, &is_inside);
    if (rc != 0)
        return rc;
    return scan->is_descending ? use_entries(scan, leaf, 0, index, is_inside)
                               : use_entries(scan, leaf, index, header.count, is_inside);
}

/* ---- one owner ---- */

/* Set *ret_node to a cached inner node, or read the node into the first place. */
static int load(struct scan *scan, uint32_t object, const void **ret_node) {
    const struct tree_cached *cached =
        scan->use_cache ? remo__tree_cached(scan->cache, scan->owner, object) : NULL;
    *ret_node = cached ? cached->image : NULL;
    if (cached)
        return 0;
    *ret_node = node_at(scan, 0);
    int rc =
        remo_versioned_read_at(scan->tree->nodes, scan->owner, object, scan->version, node_at(scan, 0), NULL);
    bool is_newer = scan->snapshot && remo__tree_cached(scan->cache, scan->owner, object);
    if (rc == 0 && !is_newer) /* a node of an old version does not replace a cached one, which gets use */
        remo__tree_cache_node(scan->tree, scan->cache, scan->owner, object, *ret_node);
    return rc;
}

/* Find the child of an inner node in which the rest of the range begins. Returns false if there is none. */
static bool find_child(const struct scan *scan, const void *node, uint32_t *ret_index, uint32_t *ret_child) {
    uint32_t node_bytes = scan->tree->node_bytes;
    struct tree_header header;
    struct tree_entry entry;
    bool is_found, is_child;
    memcpy(&header, node, sizeof header);
    if (!scan->is_descending) {
        is_child = remo__tree_node_child(node, node_bytes, cursor_of(scan), ret_index, ret_child);
    } else {
        *ret_index = header.count;
        is_child = header.count > 0
                   && (!scan->has_cursor
                       || remo__tree_node_find(node, node_bytes, cursor_of(scan), ret_index, &is_found));
        *ret_index -= is_child && *ret_index > 0;
        is_child = is_child && remo__tree_node_entry(node, node_bytes, *ret_index, &entry)
                   && entry.value.bytes == sizeof *ret_child;
        if (is_child)
            memcpy(ret_child, entry.value.data, sizeof *ret_child);
    }
    return is_child && *ret_child < scan->tree->node_count;
}

/* Set the first place to the node above the leaves on the way to the cursor, or to the root if it is one. */
static int descend(struct scan *scan, struct tree_header *ret_header) {
    uint32_t object = TREE_ROOT, index, node_bytes = scan->tree->node_bytes;
    for (uint32_t depth = 0; depth < TREE_DEPTH_MAX; depth++) {
        const void *node;
        int rc = load(scan, object, &node);
        if (rc != 0)
            return rc;
        memcpy(ret_header, node, sizeof *ret_header);
        if (!remo__tree_node_is_valid(node, node_bytes, ret_header->level))
            return WRONG_WAY;
        if (ret_header->level <= 1) {
            memmove(node_at(scan, 0), node, node_bytes); /* a cached one may be replaced meanwhile */
            return 0;
        }
        if (!find_child(scan, node, &index, &object))
            return WRONG_WAY;
    }
    return WRONG_WAY;
}

/* Return how many leaves to read at the same time: no more than the rest of the scan probably needs. */
static uint32_t window_of(const struct scan *scan) {
    uint64_t entries = remo__max(scan->cache->leaf_entries, 1), window = TREE_WINDOW - 1;
    if (scan->limit != 0)
        window = remo__min(window, (scan->limit - scan->result.entries) / entries + 1);
    if (scan->buffer)
        window = remo__min(window, 2 * (scan->cap - scan->result.bytes) / scan->tree->node_bytes + 1);
    return (uint32_t)window;
}

/* Return whether the range ends before the child that follows entry `index` of the parent. */
static bool ends_before(const struct scan *scan, uint32_t index) {
    struct tree_entry entry; /* ascending, of the next child; descending, of this one */
    uint32_t limit = scan->is_descending ? index : index + 1;
    if (!remo__tree_node_entry(node_at(scan, 0), scan->tree->node_bytes, limit, &entry))
        return true;
    return scan->is_descending ? remo__tree_compare(entry.key, scan->from) <= 0 : is_beyond(scan, entry.key);
}

/* Read up to `count` leaves below the parent from the child `first` on, in the direction of the scan. */
static int read_leaves(struct scan *scan, uint32_t first, uint32_t count, uint32_t *ret_read) {
    struct remo_versioned_item items[TREE_WINDOW];
    uint32_t node_bytes = scan->tree->node_bytes, read = 0;
    count = remo__min(count, window_of(scan));
    do {
        struct tree_entry entry;
        uint32_t child, index = scan->is_descending ? first - read : first + read;
        if (!remo__tree_node_entry(node_at(scan, 0), node_bytes, index, &entry)
            || entry.value.bytes != sizeof child)
            return WRONG_WAY;
        memcpy(&child, entry.value.data, sizeof child);
        if (child >= scan->tree->node_count)
            return WRONG_WAY;
        items[read] = (struct remo_versioned_item){.object = child, .value = node_at(scan, read + 1)};
        read++;
        if (read < count && ends_before(scan, index))
            break;
    } while (read < count);
    *ret_read = read;
    return remo_versioned_read_many_at(scan->tree->nodes, scan->owner, scan->version, items, read);
}

/* Use all leaves below one parent, from the cursor on. */
static int use_leaves(struct scan *scan, const struct tree_header *parent) {
    uint32_t child, object, read = 0;
    if (!find_child(scan, node_at(scan, 0), &child, &object))
        return WRONG_WAY;
    uint32_t left = scan->is_descending ? child + 1 : parent->count - child;
    for (; left > 0 && !scan->is_full && !scan->is_last; left -= read) {
        int rc = read_leaves(scan, child, left, &read);
        for (uint32_t i = 0; i < read && rc == 0 && !scan->is_full && !scan->is_last; i++)
            rc = use_leaf(scan, node_at(scan, i + 1));
        if (rc != 0)
            return rc;
        child = scan->is_descending ? child - read : child + read;
    }
    return 0;
}

/* Use the entries of the owner as of scan->version, from the cursor on: by cached inner nodes, and after a
 * wrong way by those of the version. */
static int use_owner(struct scan *scan) {
    scan->is_last = false;
    scan->use_cache = true;
    while (!scan->is_full && !scan->is_last) {
        struct tree_header header;
        int rc = descend(scan, &header);
        if (rc == 0)
            rc = header.level == 0 ? use_leaf(scan, node_at(scan, 0)) : use_leaves(scan, &header);
        if (rc == WRONG_WAY && !scan->use_cache)
            return fail_damaged(scan);
        if (rc != 0 && rc != WRONG_WAY)
            return rc;
        scan->use_cache = rc == 0;
    }
    return 0;
}

/* Scan one owner as of a version. */
static int scan_owner(struct scan *scan, uint32_t position, uint64_t version) {
    const struct remo_tree *tree = scan->tree;
    bool has_end = position + 1 < tree->owner_count;
    scan->position = position;
    scan->owner = tree->owners[position];
    scan->version = version;
    scan->has_cursor = false;
    if (scan->is_descending) {
        if (has_end)
            set_cursor(scan, tree->boundaries[position]);
        if (scan->has_to && (!has_end || remo__tree_compare(scan->to, tree->boundaries[position]) < 0))
            set_cursor(scan, scan->to);
    } else if (position > 0 && remo__tree_compare(tree->boundaries[position - 1], scan->from) > 0) {
        set_cursor(scan, tree->boundaries[position - 1]);
    } else {
        set_cursor(scan, scan->from);
    }
    return use_owner(scan);
}

/* ---- all owners of the range ---- */

/* Scan the owners at their versions. */
static int scan_cut(struct scan *scan, const struct tree_cut *cut) {
    int rc = 0;
    scan->result = (struct remo_tree_result){0};
    scan->is_full = false;
    for (uint32_t i = 0; i < cut->count && rc == 0 && !scan->is_full; i++) {
        uint32_t index = scan->is_descending ? cut->count - 1 - i : i;
        rc = scan_owner(scan, cut->first + index, cut->versions[index]);
    }
    return rc;
}

/* Scan the owners as of one instant, again if a version is not retained. */
static int scan_newest(struct scan *scan, struct tree_cut *cut) {
    uint64_t deadline_ns = remo__deadline(scan->tree->node->op_timeout_ns);
    for (uint32_t attempt = 0;; attempt++) {
        int rc = remo__tree_find_cut(scan->tree, cut, attempt);
        bool can_scan = rc == 0 && cut->is_instant && cut->has_all;
        if (can_scan)
            rc = scan_cut(scan, cut);
        if (rc != 0 ? rc != -ESTALE : can_scan)
            return rc;
        if (remo__remaining_ns(deadline_ns) == 0)
            return remo__tree_fail_outrun(scan->tree);
        if (rc == 0 && !cut->has_all)
            remo__tree_await_roots(scan->tree, deadline_ns);
    }
}

/* Scan the owners at positions [first, end). If the limit is low, the first one in the direction of the scan
 * may have all entries. */
static int scan_positions(struct scan *scan, uint32_t first, uint32_t end) {
    uint64_t versions[2][REMO_NODES_MAX];
    struct tree_cut all = {.first = first,
                           .count = end - first,
                           .versions = versions[0],
                           .again = versions[1]},
                    one = all;
    if (scan->snapshot) {
        memcpy(versions[0], scan->snapshot + first, all.count * sizeof versions[0][0]);
        return scan_cut(scan, &all);
    }
    if (scan->limit != 0 && all.count > 1) {
        one.count = 1;
        one.first = scan->is_descending ? end - 1 : first;
        int rc = scan_newest(scan, &one);
        if (rc != 0 || scan->is_full)
            return rc;
    }
    return scan_newest(scan, &all);
}

static int scan_range(struct scan *scan) {
    const struct remo_tree *tree = scan->tree;
    uint32_t first = remo__tree_position(tree, scan->from), end = first + 1;
    if (scan->has_to && remo__tree_compare(scan->from, scan->to) >= 0)
        return 0; /* an empty range */
    while (end < tree->owner_count && !is_beyond(scan, tree->boundaries[end - 1]))
        end++;
    scan->cache = remo__tree_cache(scan->tree);
    struct tree_buffer *nodes = scan->cache ? remo__tree_take_buffer(scan->tree, scan->cache) : NULL;
    if (!nodes)
        return remo__last_code();
    scan->nodes = (char *)nodes->bytes;
    int rc = scan_positions(scan, first, end);
    remo__tree_put_buffer(scan->cache, nodes);
    return rc;
}

/* ---- the calls ---- */

static int check_snapshot(const struct remo_tree *tree, const uint64_t *snapshot) {
    for (uint32_t i = 0; snapshot && i < tree->owner_count; i++)
        if (snapshot[i] == 0)
            return remo__fail(-EINVAL, "cannot scan tree %s: its snapshot is not from remo_tree_snapshot",
                              remo_channel_name(tree->channel));
    return 0;
}

static int run(struct remo_tree *tree, const struct remo_tree_range *range, struct scan *scan) {
    static const struct remo_tree_range everything;
    struct tree_limits limits;
    range = range ? range : &everything;
    int rc = remo__tree_limits(tree, range, &limits);
    if (rc == 0)
        rc = check_snapshot(tree, range->snapshot);
    if (rc != 0)
        return rc;
    scan->tree = tree;
    scan->from = limits.from;
    scan->to = limits.to;
    scan->has_to = limits.has_to;
    scan->limit = range->limit;
    scan->snapshot = range->snapshot;
    scan->is_descending = range->flags & REMO_TREE_DESCENDING;
    scan->keys_only = range->flags & REMO_TREE_KEYS_ONLY;
    return scan_range(scan);
}

int remo_tree_scan(struct remo_tree *tree, const struct remo_tree_range *range, void *buffer, size_t cap,
                   struct remo_tree_result *ret_result) {
    REMO__REQUIRE(tree);
    REMO__REQUIRE(buffer);
    REMO__REQUIRE(ret_result);
    struct scan scan = {.buffer = buffer, .cap = cap};
    int rc = run(tree, range, &scan);
    scan.result.is_complete = !scan.is_full;
    if (rc == 0 && scan.is_full && scan.result.entries == 0)
        rc = remo__fail(-EMSGSIZE,
                        "the first entry of the range does not fit into a buffer of %zu bytes; enlarge it",
                        cap);
    if (rc == 0)
        *ret_result = scan.result;
    return rc;
}

int remo_tree_count(struct remo_tree *tree, const struct remo_tree_range *range, uint64_t *ret_count) {
    REMO__REQUIRE(tree);
    REMO__REQUIRE(ret_count);
    struct scan scan = {.buffer = NULL};
    int rc = run(tree, range, &scan);
    if (rc == 0)
        *ret_count = scan.result.entries;
    return rc;
}

int remo_tree_result_next(const void *buffer, const struct remo_tree_result *result, size_t *offset,
                          struct remo_tree_entry *ret_entry) {
    uint16_t sizes[2];
    if (!buffer || !result || !offset || !ret_entry || *offset + TREE_ENTRY_BYTES > result->bytes)
        return 0;
    const char *place = (const char *)buffer + *offset;
    memcpy(sizes, place, sizeof sizes);
    ret_entry->key = (struct remo_tree_key){place + TREE_ENTRY_BYTES, sizes[0]};
    ret_entry->value = (struct remo_tree_key){place + TREE_ENTRY_BYTES + sizes[0], sizes[1]};
    *offset += TREE_ENTRY_BYTES + sizes[0] + sizes[1];
    return 1;
}
