/* scan.c - scans: the leaves of a range of keys, as of one version of each owner.
 * Invariant: all leaves that are used of an owner are of one version, and the range of each ends where that
 * of the next one in the direction of the scan begins. So no leaf is missing, and none is used twice. A
 * cached inner node only helps to find leaves. The visit of a leaf may be repeated, so its results are in
 * scan->next until the visit of the next leaf. */
#include "systems/tree/scan.h"

/* Use the results of the visited leaf, if there is one. */
static void accept(struct tree_scan *scan) {
    if (scan->visited)
        scan->now = scan->next;
    scan->visited = NULL;
}

static int fail_damaged(const struct tree_scan *scan) {
    return remo__fail(-EPROTO, "tree %s at node %u is damaged; start the job again",
                      remo_channel_name(scan->tree->channel), scan->owner);
}

/* ---- one leaf ---- */

/* Use a leaf, unless the scan has ended. Repeated for the same leaf, only the last call counts. */
static void visit_leaf(struct tree_scan *scan, const struct tree_scan_leaf *leaf,
                       const struct tree_source *source) {
    if (scan->visited != leaf)
        accept(scan);
    scan->visited = leaf;
    scan->next = scan->now;
    if (scan->now.rc == 0 && !scan->now.is_full && !scan->now.is_last)
        scan->next.rc = remo__tree_scan_use_leaf(scan, source);
}

/* The visitor of leaves. The visits are in the order of the leaves. */
static void visit(void *ctx, const struct remo_versioned_view *view) {
    const struct tree_scan_leaf *leaf = ctx;
    visit_leaf(leaf->scan, leaf, &(struct tree_source){.view = view});
}

/* ---- one owner ---- */

/* Set *ret_node to a cached inner node, or read the node into the first place. */
static int load(struct tree_scan *scan, uint32_t object, const void **ret_node) {
    const struct tree_cached *cached =
        scan->use_cache ? remo__tree_cached(scan->cache, scan->owner, object) : NULL;
    *ret_node = cached ? cached->image : NULL;
    if (cached)
        return 0;
    *ret_node = remo__tree_scan_node(scan, 0);
    int rc = remo_versioned_read_at(scan->tree->nodes, scan->owner, object, scan->version,
                                    remo__tree_scan_node(scan, 0), NULL);
    bool is_newer = scan->snapshot && remo__tree_cached(scan->cache, scan->owner, object);
    if (rc == 0 && !is_newer) /* a node of an old version does not replace a cached one, which gets use */
        remo__tree_cache_node(scan->tree, scan->cache, scan->owner, object, *ret_node);
    return rc;
}

/* Find the child of an inner node in which the rest of the range begins. Returns false if there is none. */
static bool find_child(const struct tree_scan *scan, const void *node, uint32_t *ret_index,
                       uint32_t *ret_child) {
    uint32_t node_bytes = scan->tree->node_bytes;
    struct tree_header header;
    struct tree_entry entry;
    bool is_found, is_child;
    memcpy(&header, node, sizeof header);
    if (!scan->is_descending) {
        is_child =
            remo__tree_node_child(node, node_bytes, remo__tree_scan_cursor(scan), ret_index, ret_child);
    } else {
        *ret_index = header.count;
        is_child = header.count > 0
                   && (!scan->now.has_cursor
                       || remo__tree_node_find_in_run(node, node_bytes, remo__tree_scan_cursor(scan),
                                                      ret_index, &is_found));
        *ret_index -= is_child && *ret_index > 0;
        is_child = is_child && remo__tree_node_entry(node, node_bytes, *ret_index, &entry)
                   && entry.value.bytes == sizeof *ret_child;
        if (is_child)
            memcpy(ret_child, entry.value.data, sizeof *ret_child);
    }
    return is_child && *ret_child < scan->tree->node_count;
}

/* Set the first place to the node above the leaves on the way to the cursor, or to the root if it is one. */
static int descend(struct tree_scan *scan, struct tree_header *ret_header) {
    uint32_t object = TREE_ROOT, index, node_bytes = scan->tree->node_bytes;
    for (uint32_t depth = 0; depth < TREE_DEPTH_MAX; depth++) {
        const void *node;
        int rc = load(scan, object, &node);
        if (rc != 0)
            return rc;
        memcpy(ret_header, node, sizeof *ret_header);
        if (!remo__tree_node_is_valid(node, node_bytes, ret_header->level))
            return TREE_WRONG_WAY;
        if (ret_header->level <= 1) {
            memmove(remo__tree_scan_node(scan, 0), node,
                    node_bytes); /* a cached one may be replaced meanwhile */
            return 0;
        }
        if (!find_child(scan, node, &index, &object))
            return TREE_WRONG_WAY;
    }
    return TREE_WRONG_WAY;
}

/* Return how many leaves to read at the same time: no more than the rest of the scan probably needs. */
static uint32_t window_of(const struct tree_scan *scan) {
    const struct tree_cache *cache = scan->cache;
    uint64_t entries = remo__max(cache->entries / remo__max(cache->leaves, 1), 1), window = TREE_WINDOW - 1;
    if (scan->limit != 0)
        window = remo__min(window, (scan->limit - scan->now.result.entries) / entries + 1);
    if (scan->buffer)
        window = remo__min(window, 2 * (scan->cap - scan->now.result.bytes) / scan->tree->node_bytes + 1);
    return (uint32_t)window;
}

/* Return whether the range ends before the child that follows entry `index` of the parent. */
static bool ends_before(const struct tree_scan *scan, uint32_t index) {
    struct tree_entry entry; /* ascending, of the next child; descending, of this one */
    uint32_t limit = scan->is_descending ? index : index + 1;
    if (!remo__tree_node_entry(remo__tree_scan_node(scan, 0), scan->tree->node_bytes, limit, &entry))
        return true;
    return scan->is_descending ? remo__tree_compare(entry.key, scan->from) <= 0
                               : remo__tree_scan_is_beyond(scan, entry.key);
}

/* Use up to `count` leaves below the parent from the child `first` on, in the direction of the scan. */
static int use_window(struct tree_scan *scan, uint32_t first, uint32_t count, uint32_t *ret_used) {
    struct remo_versioned_item items[TREE_WINDOW];
    struct tree_scan_leaf leaves[TREE_WINDOW];
    uint32_t node_bytes = scan->tree->node_bytes, used = 0;
    count = remo__min(count, window_of(scan));
    do {
        struct tree_entry entry;
        uint32_t child, index = scan->is_descending ? first - used : first + used;
        if (!remo__tree_node_entry(remo__tree_scan_node(scan, 0), node_bytes, index, &entry)
            || !remo__tree_child_of(&entry, scan->tree->node_count, &child))
            return TREE_WRONG_WAY;
        leaves[used].scan = scan;
        items[used] = (struct remo_versioned_item){.object = child, .value = &leaves[used]};
        used++;
        if (used < count && ends_before(scan, index))
            break;
    } while (used < count);
    *ret_used = used;
    int rc = remo_versioned_visit_many(scan->tree->nodes, scan->owner, scan->version, visit, items, used);
    if (rc != 0) { /* what the last visit found does not count */
        scan->visited = NULL;
        return rc;
    }
    accept(scan);
    remo__tree_serve_now(scan->tree);
    return scan->now.rc;
}

/* Use all leaves below one parent, from the cursor on. */
static int use_leaves(struct tree_scan *scan, const struct tree_header *parent) {
    uint32_t child, object, used = 0;
    if (!find_child(scan, remo__tree_scan_node(scan, 0), &child, &object))
        return TREE_WRONG_WAY;
    uint32_t left = scan->is_descending ? child + 1 : parent->count - child;
    for (; left > 0 && !scan->now.is_full && !scan->now.is_last; left -= used) {
        int rc = use_window(scan, child, left, &used);
        if (rc != 0)
            return rc;
        child = scan->is_descending ? child - used : child + used;
    }
    return 0;
}

/* Use a root that is a leaf, which is in the first place. */
static int use_root(struct tree_scan *scan) {
    const struct tree_scan_leaf root = {scan};
    visit_leaf(scan, &root, &(struct tree_source){.copy = remo__tree_scan_node(scan, 0)});
    accept(scan);
    return scan->now.rc;
}

/* Use the entries of the owner as of scan->version, from the cursor on: by cached inner nodes, and after a
 * wrong way by those of the version. */
static int use_owner(struct tree_scan *scan) {
    scan->now.is_last = false;
    scan->use_cache = true;
    while (!scan->now.is_full && !scan->now.is_last) {
        struct tree_header header;
        scan->now.rc = 0;
        int rc = descend(scan, &header);
        if (rc == 0)
            rc = header.level == 0 ? use_root(scan) : use_leaves(scan, &header);
        if ((rc == TREE_WRONG_WAY && !scan->use_cache) || (rc == -EPROTO && scan->now.rc == rc))
            return fail_damaged(scan);
        if (rc != 0 && rc != TREE_WRONG_WAY)
            return rc;
        scan->use_cache = rc == 0;
    }
    return 0;
}

/* Scan one owner as of a version. */
static int scan_owner(struct tree_scan *scan, uint32_t position, uint64_t version) {
    const struct remo_tree *tree = scan->tree;
    bool has_end = position + 1 < tree->owner_count;
    scan->position = position;
    scan->owner = tree->owners[position];
    scan->version = version;
    scan->now.has_cursor = false;
    if (scan->is_descending) {
        if (has_end)
            remo__tree_scan_set_cursor(&scan->now, tree->boundaries[position]);
        if (scan->has_to && (!has_end || remo__tree_compare(scan->to, tree->boundaries[position]) < 0))
            remo__tree_scan_set_cursor(&scan->now, scan->to);
    } else if (position > 0 && remo__tree_compare(tree->boundaries[position - 1], scan->from) > 0) {
        remo__tree_scan_set_cursor(&scan->now, tree->boundaries[position - 1]);
    } else {
        remo__tree_scan_set_cursor(&scan->now, scan->from);
    }
    return use_owner(scan);
}

/* ---- all owners of the range ---- */

/* Scan the owners at their versions. */
static int scan_cut(struct tree_scan *scan, const struct tree_cut *cut) {
    int rc = 0;
    scan->now = (struct tree_scan_state){.cursor = scan->cursors[0]};
    scan->visited = NULL;
    for (uint32_t i = 0; i < cut->count && rc == 0 && !scan->now.is_full; i++) {
        uint32_t index = scan->is_descending ? cut->count - 1 - i : i;
        rc = scan_owner(scan, cut->first + index, cut->versions[index]);
    }
    return rc;
}

/* Scan the owners as of one instant, again if a version is not retained. */
static int scan_newest(struct tree_scan *scan, struct tree_cut *cut) {
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
static int scan_positions(struct tree_scan *scan, uint32_t first, uint32_t end) {
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
        if (rc != 0 || scan->now.is_full)
            return rc;
    }
    return scan_newest(scan, &all);
}

static int scan_range(struct tree_scan *scan) {
    const struct remo_tree *tree = scan->tree;
    uint32_t first = remo__tree_position(tree, scan->from), end = first + 1;
    if (scan->has_to && remo__tree_compare(scan->from, scan->to) >= 0)
        return 0; /* an empty range */
    while (end < tree->owner_count && !remo__tree_scan_is_beyond(scan, tree->boundaries[end - 1]))
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

int remo__tree_check_snapshot(const struct remo_tree *tree, const uint64_t *snapshot) {
    for (uint32_t i = 0; snapshot && i < tree->owner_count; i++)
        if (snapshot[i] == 0)
            return remo__fail(-EINVAL, "cannot scan tree %s: its snapshot is not from remo_tree_snapshot",
                              remo_channel_name(tree->channel));
    return 0;
}

static int run(struct remo_tree *tree, const struct remo_tree_range *range, struct tree_scan *scan) {
    static const struct remo_tree_range everything;
    struct tree_limits limits;
    range = range ? range : &everything;
    int rc = remo__tree_limits(tree, range, &limits);
    if (rc == 0)
        rc = remo__tree_check_snapshot(tree, range->snapshot);
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
    struct tree_scan scan = {.buffer = buffer, .cap = cap};
    int rc = run(tree, range, &scan);
    scan.now.result.is_complete = !scan.now.is_full;
    if (rc == 0 && scan.now.is_full && scan.now.result.entries == 0)
        rc = remo__fail(-EMSGSIZE,
                        "the first entry of the range does not fit into a buffer of %zu bytes; enlarge it",
                        cap);
    if (rc == 0)
        *ret_result = scan.now.result;
    return rc;
}

int remo_tree_count(struct remo_tree *tree, const struct remo_tree_range *range, uint64_t *ret_count) {
    REMO__REQUIRE(tree);
    REMO__REQUIRE(ret_count);
    struct tree_scan scan = {.buffer = NULL};
    int rc = run(tree, range, &scan);
    if (rc == 0)
        *ret_count = scan.now.result.entries;
    return rc;
}

int remo_tree_result_next(const void *buffer, const struct remo_tree_result *result, size_t *offset,
                          struct remo_tree_entry *ret_entry) {
    if (!buffer || !result || !offset || !ret_entry || *offset + TREE_ENTRY_BYTES > result->bytes)
        return 0;
    *offset += remo__tree_result_entry((const char *)buffer + *offset, ret_entry);
    return 1;
}
