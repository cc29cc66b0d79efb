/* read.c - gets: the path from the root to a leaf, by cached inner nodes.
 * Invariant: each get reads the leaf, and uses it only if the key is between its fences. Then at the instant
 * of the read, the leaf has the key if and only if the tree has it. Inner nodes only help to find the leaf.
 * docs/internals/tree.md has the proof. */
#include <string.h>

#include "systems/tree/seek.h"

/* Attempts that read the newest state of each node, before those that read all nodes as of one version. */
#define ATTEMPTS 4u
#define PAUSE_NS (20 * REMO__NS_PER_US) /* between attempts at one version */

/* ---- keys ---- */

int remo__tree_fail_key(const struct remo_tree *tree, const void *key, size_t key_bytes) {
    if (!key && key_bytes > 0)
        return remo__fail(-EINVAL, "the key for tree %s is NULL", remo_channel_name(tree->channel));
    return remo__fail(-EINVAL, "a key of %zu bytes is too long for tree %s: the maximum is %u", key_bytes,
                      remo_channel_name(tree->channel), tree->key_bytes_max);
}

int remo__tree_fail_options(const struct remo_tree *tree) {
    return remo__fail(-EPROTO, "%s", tree->channel->error_text);
}

uint32_t remo__tree_search_position(const struct remo_tree *tree, struct tree_bytes key) {
    uint32_t low = 0, high = tree->owner_count - 1;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (remo__tree_compare(tree->boundaries[middle], key) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

uint32_t remo_tree_owner(const struct remo_tree *tree, const void *key, size_t key_bytes) {
    return tree ? tree->owners[remo__tree_position(tree, (struct tree_bytes){key, (uint32_t)key_bytes})] : 0;
}

/* ---- one node ---- */

/* Begin to seek a key as of a version. Sets the members that are read before they are written: to clear all
 * of them takes longer. */
static void begin_seek(struct tree_seek *seek, struct remo_tree *tree, struct tree_cache *cache,
                       uint32_t position, struct tree_bytes key, uint64_t version) {
    seek->tree = tree;
    seek->cache = cache;
    seek->owner = tree->owners[position];
    seek->version = version;
    seek->key = key;
    seek->result = SEEK_WRONG_WAY;
    seek->failure = 0;
}

static int fail_damaged(const struct tree_seek *seek) {
    return remo__fail(-EPROTO, "tree %s at node %u is damaged; start the job again",
                      remo_channel_name(seek->tree->channel), seek->owner);
}

/* The visitor of one node. */
static void visit(void *ctx, const struct remo_versioned_view *view) {
    remo__tree_seek_prepare(ctx, view);
    remo__tree_seek_search(ctx, view);
}

/* Read a node, which is not cached if seek->use_cache is set. Caches it if it is an inner node. */
static inline int read_node(struct tree_seek *seek, uint32_t object) {
    int rc = remo_versioned_visit(seek->tree->nodes, seek->owner, object, seek->version, visit, seek, NULL);
    bool is_cached = seek->result == SEEK_INNER || !seek->use_cache; /* else a leaf replaces no cached node */
    if (rc == 0 && is_cached && seek->version == REMO_VERSIONED_NEWEST)
        remo__tree_cache_node(seek->tree, seek->cache, seek->owner, object, seek->buffer);
    return rc;
}

/* ---- the path to a leaf ---- */

/* Find the child of the inner node in the buffer. */
static bool find_child(const struct tree_seek *seek, uint32_t *ret_child) {
    uint32_t index, node_bytes = seek->tree->node_bytes;
    return remo__tree_node_covers(seek->buffer, node_bytes, seek->key)
           && remo__tree_node_child(seek->buffer, node_bytes, seek->key, &index, ret_child)
           && *ret_child != TREE_ROOT && *ret_child < seek->tree->node_count;
}

/* Set *level and *object to those of the child of an inner node. Before, *object is the node, and *level is
 * its level, or for the root the maximum level. Returns false if the node does not fit, or has no such
 * child. */
static bool descend(const struct tree_seek *seek, const struct tree_cached *cached, uint32_t *level,
                    uint32_t *object) {
    struct tree_header header;
    uint32_t node_level = cached ? cached->level : 0;
    if (!cached) {
        memcpy(&header, seek->buffer, sizeof header);
        node_level = header.level;
    }
    if (*object == TREE_ROOT ? node_level > *level : node_level != *level)
        return false;
    *level = node_level - 1;
    return cached ? remo__tree_cached_child(cached, seek->tree->node_bytes, seek->key, object)
                  : find_child(seek, object);
}

/* Find the entry of the key in a leaf, to which cached inner nodes have led. */
static inline int read_leaf(struct tree_seek *seek, uint32_t object) {
    if (remo__likely(seek->version == REMO_VERSIONED_NEWEST && remo__tree_direct_get(seek, object)))
        return 0;
    int rc = read_node(seek, object);
    if (rc == 0 && seek->result == SEEK_INNER)
        seek->result = SEEK_WRONG_WAY;
    return rc;
}

/* Find the entry of the key. The result is SEEK_WRONG_WAY if the nodes on the path do not fit together:
 * changes were committed between their reads. */
static inline int find_key(struct tree_seek *seek) {
    uint32_t object = TREE_ROOT, level = TREE_DEPTH_MAX - 1;
    if (seek->use_cache
        && remo__tree_cached_leaf(seek->cache, seek->tree->node_bytes, seek->owner, seek->key, &object))
        return read_leaf(seek, object);
    for (;;) {
        const struct tree_cached *cached =
            seek->use_cache ? remo__tree_cached(seek->cache, seek->owner, object) : NULL;
        int rc = cached ? 0 : read_node(seek, object);
        if (rc != 0)
            return rc;
        if (!cached && seek->result != SEEK_INNER) {
            if (object != TREE_ROOT && level != 0)
                seek->result = SEEK_WRONG_WAY;
            return 0;
        }
        if (!descend(seek, cached, &level, &object)) {
            seek->result = SEEK_WRONG_WAY;
            return 0;
        }
    }
}

/* Find a key as of a version: by cached inner nodes, or by nodes of this version. */
static int seek_at(struct tree_seek *seek) {
    int rc = 0;
    seek->result = SEEK_WRONG_WAY;
    for (uint32_t attempt = 0; attempt < 2 && rc == 0 && seek->result == SEEK_WRONG_WAY; attempt++) {
        seek->use_cache = attempt == 0;
        rc = find_key(seek);
    }
    return rc == 0 && seek->result == SEEK_WRONG_WAY ? fail_damaged(seek) : rc;
}

/* Return whether an attempt with this code has ended the search. */
static inline bool is_ended(const struct tree_seek *seek, int rc) {
    return rc == 0 ? seek->result != SEEK_WRONG_WAY : rc != -ESTALE;
}

/* Cached inner nodes have not led to the leaf. Find the key by the newest states of all nodes on the path,
 * then by nodes as of one version, which are a tree. */
static __attribute__((noinline)) int seek_again(struct tree_seek *seek) {
    uint64_t deadline_ns = 0;
    seek->use_cache = false;
    for (uint32_t attempt = 1;; attempt++) {
        int rc = 0;
        if (attempt >= ATTEMPTS)
            rc = remo_versioned_version(seek->tree->nodes, seek->owner, &seek->version);
        if (rc == 0)
            rc = find_key(seek);
        if (is_ended(seek, rc))
            return rc;
        if (attempt < ATTEMPTS)
            continue;
        if (deadline_ns == 0)
            deadline_ns = remo__deadline(seek->tree->node->op_timeout_ns);
        else if (remo__remaining_ns(deadline_ns) == 0)
            return remo__fail(
                -ETIMEDOUT,
                "cannot read tree %s at node %u: the owner has not opened it, or changes it faster than it "
                "can be read; wait for the owner, or open the tree with a larger retain",
                remo_channel_name(seek->tree->channel), seek->owner);
        remo__pause(seek->tree->node, remo__min(deadline_ns, remo__deadline(PAUSE_NS)));
    }
}

/* Find a key: first by cached inner nodes. */
static inline int seek_newest(struct tree_seek *seek) {
    seek->use_cache = true;
    seek->version = REMO_VERSIONED_NEWEST;
    int rc = find_key(seek);
    return remo__likely(is_ended(seek, rc)) ? rc : seek_again(seek);
}

/* ---- get ---- */

static __attribute__((noinline)) int copy_other(const struct tree_seek *seek, void *value, size_t value_cap,
                                                size_t *ret_value_bytes) {
    struct tree_bytes found = seek->entry.value;
    if (seek->result == SEEK_ABSENT)
        return remo__fail_static(-ENOENT, "the tree has no such key");
    if (seek->result != SEEK_FOUND)
        return fail_damaged(seek);
    *ret_value_bytes = found.bytes;
    if (found.bytes > value_cap)
        return remo__fail(-EMSGSIZE, "the value has %u bytes, but the buffer has %zu; use a larger one",
                          found.bytes, value_cap);
    if (found.bytes > 0) /* without capacity, `value` may be NULL */
        memcpy(value, found.data, found.bytes);
    return 0;
}

/* Copy the value, if the key was found. Inline for a value of 8 bytes. */
static inline int copy_value(const struct tree_seek *seek, void *value, size_t value_cap,
                             size_t *ret_value_bytes) {
    uint32_t bytes = sizeof(uint64_t);
    if (seek->result != SEEK_FOUND || seek->entry.value.bytes != bytes || value_cap < bytes)
        return copy_other(seek, value, value_cap, ret_value_bytes);
    memcpy(value, seek->entry.value.data, bytes);
    *ret_value_bytes = bytes;
    return 0;
}

/* `snapshot`: NULL: the newest state. */
static int get(struct remo_tree *tree, const uint64_t *snapshot, struct tree_bytes key, void *value,
               size_t value_cap, size_t *ret_value_bytes) {
    uint32_t position = remo__tree_position(tree, key);
    struct tree_cache *cache = remo__tree_cache(tree);
    struct tree_buffer *buffer = cache ? remo__tree_take_buffer(tree, cache) : NULL;
    struct tree_seek seek;
    if (!buffer)
        return remo__last_code();
    begin_seek(&seek, tree, cache, position, key, snapshot ? snapshot[position] : REMO_VERSIONED_NEWEST);
    seek.buffer = (char *)buffer->bytes;
    int rc = snapshot ? seek_at(&seek) : seek_newest(&seek);
    if (rc == 0)
        rc = copy_value(&seek, value, value_cap, ret_value_bytes);
    remo__tree_put_buffer(cache, buffer);
    remo__tree_serve_now(tree);
    return rc;
}

/* ---- several gets ---- */

/* Up to TREE_WINDOW gets, of items or of operations in a window. */
struct gets {
    struct remo_tree *tree;
    struct remo_tree_item *items;
    struct remo_tree_op *const *ops; /* if `items` is NULL */
    int *statuses;                   /* of the operations */
    uint32_t count;
    struct tree_seek seeks[TREE_WINDOW];
};

/* Sets the members before the seeks: to clear these takes longer. */
static inline void begin_gets(struct gets *gets, struct remo_tree *tree, struct remo_tree_item *items,
                              struct remo_tree_op *const *ops, int *statuses, uint32_t count) {
    gets->tree = tree;
    gets->items = items;
    gets->ops = ops;
    gets->statuses = statuses;
    gets->count = count;
}

static inline struct tree_bytes key_of(const struct gets *gets, uint32_t index) {
    if (!gets->items)
        return (struct tree_bytes){gets->ops[index]->key, (uint32_t)gets->ops[index]->key_bytes};
    return (struct tree_bytes){gets->items[index].key.data, (uint32_t)gets->items[index].key.bytes};
}

static bool has_result(const struct tree_seek *seek) {
    return seek->result == SEEK_FOUND || seek->result == SEEK_ABSENT;
}

/* Read the leaves of the keys of one owner at the same time, as far as cached inner nodes lead to them. After
 * an error none of them has a result: the visits may have stored results of objects that were to be visited
 * again. */
static int seek_together(struct gets *gets, uint32_t owner) {
    struct remo_versioned_item leaves[TREE_WINDOW];
    uint32_t count = 0;
    for (uint32_t i = 0; i < gets->count; i++) {
        struct tree_seek *seek = &gets->seeks[i];
        uint32_t object;
        if (seek->owner == owner && !has_result(seek)
            && remo__tree_cached_leaf(seek->cache, seek->tree->node_bytes, owner, seek->key, &object))
            leaves[count++] = (struct remo_versioned_item){.object = object, .value = seek};
    }
    int rc = count > 0 ? remo_versioned_visit_each(gets->tree->nodes, owner, remo__tree_seek_prepare,
                                                   remo__tree_seek_search, leaves, count)
                       : 0;
    for (uint32_t i = 0; i < count && rc != 0; i++)
        ((struct tree_seek *)leaves[i].value)->result = SEEK_WRONG_WAY;
    return rc;
}

/* A read from an owner has failed. If the owner does not answer, gets from index `first` on that need further
 * reads from it fail too, instead of waiting one after another. */
static void fail_rest(struct gets *gets, uint32_t first, uint32_t owner, int rc) {
    if (rc != -ETIMEDOUT && !remo__is_departure(rc))
        return;
    for (uint32_t i = first; i < gets->count; i++)
        if (gets->seeks[i].owner == owner && !has_result(&gets->seeks[i]))
            gets->seeks[i].failure = rc;
}

/* Seek the key, if it has no result yet, and copy the value. Returns 0, or a code. *ret_value_bytes is set
 * after 0 and -EMSGSIZE. */
static inline int finish_seek(struct tree_seek *seek, void *value, size_t value_cap,
                              size_t *ret_value_bytes) {
    int rc = 0;
    if (seek->failure != 0)
        rc = remo__fail(seek->failure, "cannot get a key of tree %s: another read from node %u has failed",
                        remo_channel_name(seek->tree->channel), seek->owner);
    else if (!has_result(seek))
        rc = seek_newest(seek);
    return rc == 0 ? copy_value(seek, value, value_cap, ret_value_bytes) : rc;
}

/* Set the results of an item, or of an operation. Returns its status. */
static inline int finish_get(struct gets *gets, uint32_t index) {
    struct tree_seek *seek = &gets->seeks[index];
    if (!gets->items) {
        struct remo_tree_op *op = gets->ops[index];
        return gets->statuses[index] = finish_seek(seek, op->value, op->value_bytes, &op->value_bytes);
    }
    struct remo_tree_item *item = &gets->items[index];
    item->value_bytes = 0;
    return item->status = finish_seek(seek, item->value, item->value_cap, &item->value_bytes);
}

static bool is_result(int status) {
    return status == 0 || status == -ENOENT || status == -EMSGSIZE;
}

/* Make all gets of operations, or those of items up to the first error, which is returned. */
static int run_gets(struct gets *gets, struct tree_cache *cache, struct tree_buffer *buffer) {
    const struct remo_tree *tree = gets->tree;
    bool is_each = !gets->items;
    uint32_t first = REMO_NODES_MAX, last = 0; /* positions of owners */
    for (uint32_t i = 0; i < gets->count; i++) {
        struct tree_bytes key = key_of(gets, i);
        uint32_t position = remo__tree_position(tree, key);
        begin_seek(&gets->seeks[i], gets->tree, cache, position, key, REMO_VERSIONED_NEWEST);
        gets->seeks[i].buffer = (char *)buffer->bytes + (size_t)i * tree->node_bytes;
        first = remo__min(first, position);
        last = remo__max(last, position);
    }
    bool must_visit = !remo__tree_direct_get_each(gets->seeks, gets->count);
    for (uint32_t position = first; position <= last && must_visit; position++) {
        int rc = seek_together(gets, tree->owners[position]);
        if (rc != 0 && !is_each)
            return rc;
        if (rc != 0)
            fail_rest(gets, 0, tree->owners[position], rc);
    }
    for (uint32_t i = 0; i < gets->count; i++) {
        int status = finish_get(gets, i);
        if (remo__likely(is_result(status)))
            continue;
        if (!is_each)
            return status;
        fail_rest(gets, i + 1, gets->seeks[i].owner, status);
    }
    return 0;
}

int remo__tree_get_each(struct remo_tree *tree, struct remo_tree_op *const *ops, int *statuses,
                        uint32_t count) {
    struct tree_cache *cache = remo__tree_cache(tree);
    struct tree_buffer *buffer = cache ? remo__tree_take_buffer(tree, cache) : NULL;
    if (!buffer)
        return remo__last_code();
    struct gets gets;
    begin_gets(&gets, tree, NULL, ops, statuses, count);
    (void)run_gets(&gets, cache, buffer);
    remo__tree_put_buffer(cache, buffer);
    remo__tree_serve_now(tree);
    return 0;
}

static int check_items(const struct remo_tree *tree, const struct remo_tree_item *items, uint32_t count) {
    int rc = remo__tree_check_options(tree);
    for (uint32_t i = 0; i < count && rc == 0; i++) {
        rc = remo__tree_check_key(tree, items[i].key.data, items[i].key.bytes);
        if (rc == 0 && !items[i].value)
            rc = remo__fail(-EINVAL, "the value of item %u of a get from tree %s is NULL", i,
                            remo_channel_name(tree->channel));
    }
    return rc;
}

int remo_tree_get_many(struct remo_tree *tree, struct remo_tree_item *items, uint32_t count) {
    REMO__REQUIRE(tree);
    REMO__REQUIRE(items);
    int rc = check_items(tree, items, count);
    struct tree_cache *cache = rc == 0 ? remo__tree_cache(tree) : NULL;
    struct tree_buffer *buffer = cache ? remo__tree_take_buffer(tree, cache) : NULL;
    if (!buffer)
        return remo__last_code();
    for (uint64_t i = 0; i < count && rc == 0; i += TREE_WINDOW) {
        struct gets gets;
        begin_gets(&gets, tree, items + i, NULL, NULL, (uint32_t)remo__min(TREE_WINDOW, count - i));
        rc = run_gets(&gets, cache, buffer);
        remo__tree_serve_now(tree);
    }
    remo__tree_put_buffer(cache, buffer);
    return rc;
}

/* ---- the calls ---- */

static int check_get(const struct remo_tree *tree, const void *key, size_t key_bytes) {
    int rc = remo__tree_check_key(tree, key, key_bytes);
    return rc == 0 ? remo__tree_check_options(tree) : rc;
}

int remo_tree_get(struct remo_tree *tree, const void *key, size_t key_bytes, void *value, size_t value_cap,
                  size_t *ret_value_bytes) {
    REMO__REQUIRE(tree);
    REMO__REQUIRE(value);
    REMO__REQUIRE(ret_value_bytes);
    int rc = check_get(tree, key, key_bytes);
    if (rc != 0)
        return rc;
    return get(tree, NULL, (struct tree_bytes){key, (uint32_t)key_bytes}, value, value_cap, ret_value_bytes);
}

int remo_tree_get_at(struct remo_tree *tree, const uint64_t *snapshot, const void *key, size_t key_bytes,
                     void *value, size_t value_cap, size_t *ret_value_bytes) {
    REMO__REQUIRE(tree);
    REMO__REQUIRE(snapshot);
    REMO__REQUIRE(value);
    REMO__REQUIRE(ret_value_bytes);
    int rc = check_get(tree, key, key_bytes);
    if (rc != 0)
        return rc;
    struct tree_bytes the_key = {key, (uint32_t)key_bytes};
    if (snapshot[remo__tree_position(tree, the_key)] == 0)
        return remo__fail(-EINVAL, "cannot read tree %s: the snapshot is not from remo_tree_snapshot",
                          remo_channel_name(tree->channel));
    return get(tree, snapshot, the_key, value, value_cap, ret_value_bytes);
}
