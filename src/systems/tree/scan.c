/* scan.c - scans: the leaves of a range of keys, as of one version of each owner.
 * Invariant: a scan copies the leaves of an owner as of one version, and the range of each leaf begins where
 * that of the previous leaf ends. So no leaf is missing, and none is copied twice. Inner nodes only help to
 * find leaves. docs/internals/tree.md has the proof. */
#include <string.h>

#include "systems/tree/tree.h"

#define PAUSE_NS (20 * REMO__NS_PER_US) /* while an owner has not made its root yet */
#define READ_ATTEMPTS 3u                /* to find versions of one instant without a freeze */
#define FREEZE_NS (REMO__NS_PER_MS)
#define FREEZE_TIMEOUT_PART 8u /* of op_timeout_ns, for the reply to a freeze */
#define WRONG_WAY 1            /* not an error if the inner nodes were cached */
#define ENTRY_BYTES 4u         /* of an entry in the result, without key and value */

struct scan {
    struct remo_tree *tree;
    const struct remo_tree_range *range;
    char *buffer;
    size_t cap;
    struct remo_tree_result result;
    bool is_full; /* the buffer or the limit has ended the scan */

    struct tree_cache *cache;

    /* the current owner */
    uint32_t position, owner;
    uint64_t version;
    bool use_cache;                       /* use cached inner nodes, perhaps of other versions */
    char *nodes;                          /* the parent of the leaves, and TREE_WINDOW - 1 leaves */
    char cursor[REMO_TREE_KEY_BYTES_MAX]; /* the lower limit of the keys that remain to be copied */
    uint32_t cursor_bytes;
    bool is_last; /* no leaf follows */
};

static struct tree_bytes bytes_of(const struct remo_tree_key *key) {
    return (struct tree_bytes){key->data, key->data ? (uint32_t)key->bytes : 0};
}

static void set_cursor(struct scan *scan, struct tree_bytes key) {
    if (key.bytes > 0)
        memcpy(scan->cursor, key.data, key.bytes);
    scan->cursor_bytes = key.bytes;
}

static struct tree_bytes cursor_of(const struct scan *scan) {
    return (struct tree_bytes){scan->cursor, scan->cursor_bytes};
}

static char *node_at(const struct scan *scan, uint32_t index) {
    return scan->nodes + (size_t)index * scan->tree->node_bytes;
}

static bool is_beyond(const struct scan *scan, struct tree_bytes key) {
    return scan->range->to.data && remo__tree_compare(key, bytes_of(&scan->range->to)) >= 0;
}

/* Return whether the current owner has no keys from `key` on. */
static bool is_end_of_owner(const struct scan *scan, struct tree_bytes key) {
    return scan->position + 1 < scan->tree->owner_count
           && remo__tree_compare(key, scan->tree->boundaries[scan->position]) >= 0;
}

static int fail_damaged(const struct scan *scan) {
    return remo__fail(-EPROTO, "tree %s at node %u is damaged; start the job again",
                      remo_channel_name(scan->tree->channel), scan->owner);
}

/* ---- one leaf ---- */

/* Copy an entry to the result, or end the scan. */
static void copy_entry(struct scan *scan, const struct tree_entry *entry) {
    size_t bytes = ENTRY_BYTES + entry->key.bytes + entry->value.bytes;
    uint16_t sizes[2] = {(uint16_t)entry->key.bytes, (uint16_t)entry->value.bytes};
    bool is_over = scan->range->limit != 0 && scan->result.entries == scan->range->limit;
    if (is_over || bytes > scan->cap - scan->result.bytes) {
        scan->is_full = true;
        return;
    }
    char *place = scan->buffer + scan->result.bytes;
    memcpy(place, sizes, sizeof sizes);
    memcpy(place + ENTRY_BYTES, entry->key.data, entry->key.bytes);
    memcpy(place + ENTRY_BYTES + entry->key.bytes, entry->value.data, entry->value.bytes);
    scan->result.bytes += bytes;
    scan->result.entries++;
}

/* Copy the entries of a leaf from the cursor on, and move the cursor to the high fence. Returns WRONG_WAY if
 * the cursor is not between the fences. */
static int copy_leaf(struct scan *scan, const void *leaf) {
    uint32_t node_bytes = scan->tree->node_bytes, index;
    struct tree_header header;
    struct tree_bytes high;
    bool is_found;
    if (!remo__tree_node_is_valid(leaf, node_bytes, 0)
        || !remo__tree_node_covers(leaf, node_bytes, cursor_of(scan))
        || !remo__tree_node_find(leaf, node_bytes, cursor_of(scan), &index, &is_found))
        return WRONG_WAY;
    memcpy(&header, leaf, sizeof header);
    scan->cache->leaf_entries = header.count;
    for (; index < header.count && !scan->is_full; index++) {
        struct tree_entry entry;
        if (!remo__tree_node_entry(leaf, node_bytes, index, &entry))
            return fail_damaged(scan);
        scan->is_last = is_beyond(scan, entry.key);
        if (scan->is_last)
            return 0;
        copy_entry(scan, &entry);
    }
    scan->is_last = !remo__tree_node_high(leaf, node_bytes, &high) || is_beyond(scan, high)
                    || is_end_of_owner(scan, high);
    if (high.bytes > sizeof scan->cursor)
        return fail_damaged(scan);
    if (!scan->is_last)
        set_cursor(scan, high);
    return 0;
}

/* ---- one owner ---- */

/* Set *ret_node to a cached inner node, or read the node into the first node of the buffer. */
static int load(struct scan *scan, uint32_t object, const void **ret_node) {
    *ret_node = scan->use_cache ? remo__tree_cached(scan->cache, scan->owner, object) : NULL;
    if (*ret_node)
        return 0;
    *ret_node = node_at(scan, 0);
    int rc =
        remo_versioned_read_at(scan->tree->nodes, scan->owner, object, scan->version, node_at(scan, 0), NULL);
    if (rc == 0)
        remo__tree_keep(scan->tree, scan->cache, scan->owner, object, *ret_node);
    return rc;
}

/* Copy the parent of the leaf of the cursor to the first node of the buffer, or the root if it is a leaf. */
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
            memmove(node_at(scan, 0), node, node_bytes); /* the cache may replace it later */
            return 0;
        }
        if (!remo__tree_node_child(node, node_bytes, cursor_of(scan), &index, &object)
            || object >= scan->tree->node_count)
            return WRONG_WAY;
    }
    return WRONG_WAY;
}

/* Return how many leaves to read at the same time: no more than the rest of the scan probably needs. */
static uint32_t window_of(const struct scan *scan) {
    uint64_t entries = remo__max(scan->cache->leaf_entries, 1);
    uint64_t for_limit =
        scan->range->limit != 0 ? (scan->range->limit - scan->result.entries) / entries + 1 : TREE_WINDOW - 1;
    uint64_t for_buffer = 2 * (scan->cap - scan->result.bytes) / scan->tree->node_bytes + 1;
    return (uint32_t)remo__min(remo__min(for_limit, for_buffer), TREE_WINDOW - 1);
}

/* Read up to a window of leaves below the parent, from child `first` on. */
static int read_leaves(struct scan *scan, uint32_t first, uint32_t count, uint32_t *ret_read) {
    struct remo_versioned_item items[TREE_WINDOW];
    uint32_t node_bytes = scan->tree->node_bytes, window = window_of(scan), read = 0;
    for (; first + read < count && read < window; read++) {
        struct tree_entry entry;
        uint32_t child;
        if (!remo__tree_node_entry(node_at(scan, 0), node_bytes, first + read, &entry)
            || entry.value.bytes != sizeof child)
            return WRONG_WAY;
        if (read > 0 && is_beyond(scan, entry.key))
            break;
        memcpy(&child, entry.value.data, sizeof child);
        if (child >= scan->tree->node_count)
            return WRONG_WAY;
        items[read] = (struct remo_versioned_item){.object = child, .value = node_at(scan, read + 1)};
    }
    *ret_read = read;
    return remo_versioned_read_many_at(scan->tree->nodes, scan->owner, scan->version, items, read);
}

/* Copy all leaves below one parent, from the cursor on. */
static int copy_leaves(struct scan *scan, const struct tree_header *parent) {
    uint32_t child, object, read = 0;
    if (!remo__tree_node_child(node_at(scan, 0), scan->tree->node_bytes, cursor_of(scan), &child, &object))
        return WRONG_WAY;
    for (; child < parent->count && !scan->is_full && !scan->is_last; child += read) {
        int rc = read_leaves(scan, child, parent->count, &read);
        for (uint32_t i = 0; i < read && rc == 0 && !scan->is_full && !scan->is_last; i++)
            rc = copy_leaf(scan, node_at(scan, i + 1));
        if (rc != 0)
            return rc;
    }
    return 0;
}

/* Copy the entries of the owner as of scan->version, from the cursor on: by cached inner nodes, and after a
 * wrong way by the inner nodes of that version. */
static int copy_owner(struct scan *scan) {
    scan->is_last = false;
    scan->use_cache = true;
    while (!scan->is_full && !scan->is_last) {
        struct tree_header header;
        int rc = descend(scan, &header);
        if (rc == 0)
            rc = header.level == 0 ? copy_leaf(scan, node_at(scan, 0)) : copy_leaves(scan, &header);
        if (rc == WRONG_WAY && !scan->use_cache)
            return fail_damaged(scan);
        if (rc != 0 && rc != WRONG_WAY)
            return rc;
        scan->use_cache = rc == 0;
    }
    return 0;
}

/* Scan an owner as of its version. */
static int scan_owner(struct scan *scan, uint32_t position, uint64_t version) {
    struct tree_bytes from = bytes_of(&scan->range->from);
    scan->position = position;
    scan->owner = scan->tree->owners[position];
    scan->version = version;
    if (position > 0 && remo__tree_compare(scan->tree->boundaries[position - 1], from) > 0)
        set_cursor(scan, scan->tree->boundaries[position - 1]);
    else
        set_cursor(scan, from);
    return copy_owner(scan);
}

/* ---- the versions of several owners ---- */

/* Versions of `count` owners from `first` on. If is_instant, the owners had them at one instant. */
struct cut {
    uint32_t first, count;
    uint64_t *versions, *again;   /* [count] */
    struct remo_nodeset changing; /* owners whose versions have changed between two reads */
    struct remo_nodeset frozen;   /* owners that this scan has frozen */
    bool has_all;                 /* each owner has made its root */
    bool is_instant;
};

static int read_versions(const struct scan *scan, const struct cut *cut, uint64_t *ret_versions) {
    int rc = 0;
    for (uint32_t i = 0; i < cut->count && rc == 0; i++)
        rc = remo_versioned_version(scan->tree->nodes, scan->tree->owners[cut->first + i], &ret_versions[i]);
    return rc;
}

/* Read all versions again. If none has changed, all owners had them between the two rounds of reads. */
static int compare_versions(const struct scan *scan, struct cut *cut) {
    int rc = read_versions(scan, cut, cut->again);
    cut->is_instant = cut->has_all = rc == 0;
    for (uint32_t i = 0; i < cut->count && rc == 0; i++) {
        if (cut->versions[i] != cut->again[i]) {
            remo_nodeset_add(&cut->changing, scan->tree->owners[cut->first + i]);
            cut->is_instant = false;
        }
        cut->has_all = cut->has_all && cut->versions[i] > 0;
    }
    return rc;
}

/* Freeze an owner, and set *version to its version. */
static int call_freeze(struct remo_tree *tree, uint32_t owner, uint64_t freeze_ns, uint64_t *version) {
    if (owner == tree->node->rank)
        return remo__tree_freeze(tree, freeze_ns, version);
    int rc = remo_rpc_call(tree->rpc, owner, TREE_FREEZE, &freeze_ns, sizeof freeze_ns, version,
                           sizeof *version, NULL, tree->node->op_timeout_ns / FREEZE_TIMEOUT_PART);
    if (rc > 0)
        return remo__fail(-rc, "node %u could not delay the changes of tree %s: %s", owner,
                          remo_channel_name(tree->channel), strerror(rc));
    return rc;
}

/* Freeze the owners whose versions change. An owner that does not reply is probably paused, and its version
 * is constant: the comparison of versions decides. */
static int freeze(const struct scan *scan, struct cut *cut, uint64_t freeze_ns) {
    int rc = 0;
    for (uint32_t i = 0; i < cut->count && rc == 0; i++) {
        uint32_t owner = scan->tree->owners[cut->first + i];
        if (!remo_nodeset_has(&cut->changing, owner))
            continue;
        remo_nodeset_add(&cut->frozen, owner);
        rc = call_freeze(scan->tree, owner, freeze_ns, &cut->versions[i]);
        if (rc == -ETIMEDOUT) {
            remo_nodeset_remove(&cut->changing, owner);
            remo_nodeset_remove(&cut->frozen, owner); /* a thaw could wait for room in its ring */
            rc = 0;
        }
    }
    return rc;
}

/* If a thaw is lost, the freeze ends when its time has passed. */
static void thaw(const struct scan *scan, struct cut *cut) {
    struct remo_tree *tree = scan->tree;
    for (uint32_t i = 0; i < cut->count; i++) {
        uint32_t owner = tree->owners[cut->first + i];
        if (!remo_nodeset_has(&cut->frozen, owner))
            continue;
        if (owner == tree->node->rank)
            remo__tree_thaw(tree);
        else
            (void)remo_rpc_post(tree->rpc, owner, TREE_THAW, NULL, 0);
    }
    cut->frozen = (struct remo_nodeset){0};
}

/* Find versions of one instant: read all versions twice. If they change too often, freeze the owners in
 * between, longer each time. */
static int find_cut(const struct scan *scan, struct cut *cut, uint32_t attempt) {
    int rc = read_versions(scan, cut, cut->versions);
    if (rc != 0 || cut->count == 1) {
        cut->is_instant = true;
        cut->has_all = cut->versions[0] > 0;
        return rc;
    }
    if (attempt < READ_ATTEMPTS)
        return compare_versions(scan, cut);
    rc = freeze(scan, cut, FREEZE_NS << remo__min(attempt - READ_ATTEMPTS, 10));
    if (rc == 0)
        rc = compare_versions(scan, cut);
    thaw(scan, cut);
    return rc;
}

static int fail_outrun(const struct scan *scan) {
    return remo__fail(
        -ETIMEDOUT,
        "cannot scan tree %s: an owner has not opened it, or owners change it faster than it can be read; "
        "wait for the owners, open the tree with a larger retain, or scan less at once",
        remo_channel_name(scan->tree->channel));
}

/* Scan the owners of the cut as of one instant. Starts again if a version is not retained any more. */
static int scan_owners(struct scan *scan, struct cut *cut) {
    uint64_t deadline_ns = remo__deadline(scan->tree->node->op_timeout_ns);
    for (uint32_t attempt = 0;; attempt++) {
        scan->result = (struct remo_tree_result){0};
        scan->is_full = false;
        int rc = find_cut(scan, cut, attempt);
        bool can_scan = rc == 0 && cut->is_instant && cut->has_all;
        for (uint32_t i = 0; i < cut->count && can_scan && rc == 0 && !scan->is_full; i++)
            rc = scan_owner(scan, cut->first + i, cut->versions[i]);
        if (rc != 0 ? rc != -ESTALE : can_scan)
            return rc;
        if (remo__remaining_ns(deadline_ns) == 0)
            return fail_outrun(scan);
        if (rc == 0 && !cut->has_all)
            remo__pause(scan->tree->node, remo__min(deadline_ns, remo__deadline(PAUSE_NS)));
    }
}

/* With a limit, first scan the first owner alone: it may have enough entries. */
static int scan_range(struct scan *scan, struct cut *cut) {
    struct cut first = *cut;
    first.count = 1;
    if (scan->range->limit == 0 || cut->count == 1)
        return scan_owners(scan, cut);
    int rc = scan_owners(scan, &first);
    return rc != 0 || scan->is_full ? rc : scan_owners(scan, cut);
}

/* ---- the call ---- */

static int check_range(const struct remo_tree *tree, const struct remo_tree_range *range) {
    int rc = remo__tree_check_key(tree, range->from.data, range->from.data ? range->from.bytes : 0);
    if (rc == 0)
        rc = remo__tree_check_key(tree, range->to.data, range->to.data ? range->to.bytes : 0);
    if (rc == 0 && range->to.data && remo__tree_compare(bytes_of(&range->from), bytes_of(&range->to)) > 0)
        rc = remo__fail(-EINVAL, "cannot scan tree %s: `from` is after `to`",
                        remo_channel_name(tree->channel));
    return rc;
}

int remo_tree_scan(struct remo_tree *tree, const struct remo_tree_range *range, void *buffer, size_t cap,
                   struct remo_tree_result *ret_result) {
    REMO__REQUIRE(tree);
    REMO__REQUIRE(buffer);
    REMO__REQUIRE(ret_result);
    static const struct remo_tree_range everything;
    struct scan scan = {.tree = tree, .range = range ? range : &everything, .buffer = buffer, .cap = cap};
    int rc = check_range(tree, scan.range);
    if (rc == 0)
        rc = remo__tree_check_options(tree);
    if (rc != 0)
        return rc;
    struct tree_cache *cache = remo__tree_cache(tree);
    struct tree_buffer *nodes = cache ? remo__tree_take_buffer(tree, cache) : NULL;
    if (!nodes)
        return remo__last_code();
    scan.nodes = (char *)nodes->bytes;
    scan.cache = cache;
    uint64_t versions[2][REMO_NODES_MAX];
    struct cut cut = {.first = remo__tree_position(tree, bytes_of(&scan.range->from)),
                      .count = 1,
                      .versions = versions[0],
                      .again = versions[1]};
    while (cut.first + cut.count < tree->owner_count
           && !is_beyond(&scan, tree->boundaries[cut.first + cut.count - 1]))
        cut.count++;
    rc = scan_range(&scan, &cut);
    remo__tree_put_buffer(cache, nodes);
    scan.result.is_complete = !scan.is_full;
    if (rc == 0 && scan.is_full && scan.result.entries == 0)
        rc = remo__fail(-EMSGSIZE,
                        "the first entry of the range does not fit into a buffer of %zu bytes; enlarge it",
                        cap);
    if (rc == 0)
        *ret_result = scan.result;
    return rc;
}

int remo_tree_result_next(const void *buffer, const struct remo_tree_result *result, size_t *offset,
                          struct remo_tree_entry *ret_entry) {
    uint16_t sizes[2];
    if (!buffer || !result || !offset || !ret_entry || *offset + ENTRY_BYTES > result->bytes)
        return 0;
    const char *place = (const char *)buffer + *offset;
    memcpy(sizes, place, sizeof sizes);
    ret_entry->key = (struct remo_tree_key){place + ENTRY_BYTES, sizes[0]};
    ret_entry->value = (struct remo_tree_key){place + ENTRY_BYTES + sizes[0], sizes[1]};
    *offset += ENTRY_BYTES + sizes[0] + sizes[1];
    return 1;
}
