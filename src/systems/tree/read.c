/* read.c - gets: the path from the root to a leaf, by cached inner nodes.
 * Invariant: each get reads the leaf, and uses it only if the key is between its fences. Then at the instant
 * of the read, the leaf has the key if and only if the tree has it. Inner nodes only help to find the leaf.
 * docs/internals/tree.md has the proof. */
#include <stdlib.h>
#include <string.h>

#include "systems/tree/tree.h"

/* Attempts that read the newest state of each node, before those that read all nodes as of one version. */
#define ATTEMPTS 4u
#define PAUSE_NS (20 * REMO__NS_PER_US) /* between attempts at one version */

/* ---- caches ---- */

struct tree_cache *remo__tree_cache(struct remo_tree *tree) {
    struct remo__thread *thread = remo__thread(tree->node);
    if (!thread)
        return NULL;
    struct tree_cache *cache = tree->caches[thread->index];
    if (remo__likely(cache != NULL))
        return cache;
    cache = calloc(1, sizeof *cache);
    if (!cache) {
        remo__fail(-ENOMEM, "no memory for a cache of tree %s", remo_channel_name(tree->channel));
        return NULL;
    }
    tree->caches[thread->index] = cache;
    return cache;
}

void remo__tree_caches_close(struct remo_tree *tree) {
    for (uint32_t i = 0; i < REMO__THREADS_MAX; i++) {
        struct tree_cache *cache = tree->caches[i];
        if (!cache)
            continue;
        for (uint32_t j = 0; j < TREE_CACHE_SLOTS; j++)
            free(cache->slots[j].image);
        while (cache->buffers) {
            struct tree_buffer *next = cache->buffers->next;
            free(cache->buffers);
            cache->buffers = next;
        }
        free(cache);
    }
}

struct tree_buffer *remo__tree_take_buffer(struct remo_tree *tree, struct tree_cache *cache) {
    struct tree_buffer *buffer = cache->buffers;
    if (remo__likely(buffer != NULL)) {
        cache->buffers = buffer->next;
        return buffer;
    }
    buffer = malloc(sizeof *buffer + (size_t)TREE_WINDOW * tree->node_bytes);
    if (!buffer)
        remo__fail(-ENOMEM, "no memory for a read of tree %s", remo_channel_name(tree->channel));
    return buffer;
}

void remo__tree_put_buffer(struct tree_cache *cache, struct tree_buffer *buffer) {
    buffer->next = cache->buffers;
    cache->buffers = buffer;
}

static struct tree_cached *slot_of(struct tree_cache *cache, uint32_t owner, uint32_t object) {
    return &cache->slots[(object ^ owner * 2654435761u) % TREE_CACHE_SLOTS];
}

const void *remo__tree_cached(struct tree_cache *cache, uint32_t owner, uint32_t object) {
    const struct tree_cached *slot = slot_of(cache, owner, object);
    return slot->owner == owner && slot->object == object ? slot->image : NULL;
}

void remo__tree_keep(const struct remo_tree *tree, struct tree_cache *cache, uint32_t owner, uint32_t object,
                     const void *node) {
    struct tree_cached *slot = slot_of(cache, owner, object);
    bool has_node = slot->image && slot->owner == owner && slot->object == object;
    struct tree_header header;
    memcpy(&header, node, sizeof header);
    if (header.level == 0) {
        if (remo__unlikely(has_node))
            slot->object = UINT32_MAX;
        return;
    }
    if (!slot->image)
        slot->image = malloc(tree->node_bytes);
    if (!slot->image)
        return; /* without memory, the node is not cached and is read again */
    memcpy(slot->image, node, tree->node_bytes);
    slot->owner = owner;
    slot->object = object;
}

/* ---- keys ---- */

int remo__tree_check_key(const struct remo_tree *tree, const void *key, size_t key_bytes) {
    if (!key && key_bytes > 0)
        return remo__fail(-EINVAL, "the key for tree %s is NULL", remo_channel_name(tree->channel));
    if (key_bytes > tree->key_bytes_max)
        return remo__fail(-EINVAL, "a key of %zu bytes is too long for tree %s: the maximum is %u", key_bytes,
                          remo_channel_name(tree->channel), tree->key_bytes_max);
    return 0;
}

int remo__tree_check_options(const struct remo_tree *tree) {
    const struct remo_channel *channel = tree->channel;
    return remo__likely(!atomic_load(&channel->mismatched)) ? 0
                                                            : remo__fail(-EPROTO, "%s", channel->error_text);
}

uint32_t remo__tree_position(const struct remo_tree *tree, struct tree_bytes key) {
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

/* ---- get ---- */

struct seek {
    struct remo_tree *tree;
    struct tree_cache *cache;
    void *buffer; /* of a node */
    uint32_t owner;
    uint64_t version; /* REMO_VERSIONED_NEWEST: the newest state of each node */
    bool use_cache;
    struct tree_bytes key;
};

static int fail_damaged(const struct seek *seek) {
    return remo__fail(-EPROTO, "tree %s at node %u is damaged; start the job again",
                      remo_channel_name(seek->tree->channel), seek->owner);
}

/* Set *ret_node to a node: a cached inner one, or the contents of the buffer. */
static int load(const struct seek *seek, uint32_t object, const void **ret_node) {
    *ret_node = seek->use_cache ? remo__tree_cached(seek->cache, seek->owner, object) : NULL;
    if (*ret_node)
        return 0;
    *ret_node = seek->buffer;
    int rc =
        remo_versioned_read_at(seek->tree->nodes, seek->owner, object, seek->version, seek->buffer, NULL);
    if (rc == 0 && seek->version == REMO_VERSIONED_NEWEST)
        remo__tree_keep(seek->tree, seek->cache, seek->owner, object, seek->buffer);
    return rc;
}

/* Find the leaf of the key. *ret_leaf is NULL if the nodes on the path do not fit together: changes were
 * committed between their reads. */
static int find_leaf(const struct seek *seek, const void **ret_leaf) {
    uint32_t object = TREE_ROOT, bytes = seek->tree->node_bytes, child;
    struct tree_header header = {.level = TREE_DEPTH_MAX};
    uint32_t level = TREE_DEPTH_MAX;
    *ret_leaf = NULL;
    for (;;) {
        const void *node;
        int rc = load(seek, object, &node);
        if (rc != 0)
            return rc;
        memcpy(&header, node, sizeof header);
        bool is_expected = object == TREE_ROOT ? header.level < level : header.level + 1u == level;
        if (!is_expected || !remo__tree_node_is_valid(node, bytes, header.level)
            || !remo__tree_node_covers(node, bytes, seek->key))
            return 0;
        if (header.level == 0) {
            *ret_leaf = node;
            return 0;
        }
        if (!remo__tree_node_child(node, bytes, seek->key, &child, &object) || object == TREE_ROOT
            || object >= seek->tree->node_count)
            return 0;
        level = header.level;
    }
}

/* Find the leaf of a key as of a version: by cached inner nodes, or by nodes of this version. */
static int seek_leaf_at(struct seek *seek, const void **ret_leaf) {
    int rc = 0;
    *ret_leaf = NULL;
    for (uint32_t attempt = 0; attempt < 2 && rc == 0 && !*ret_leaf; attempt++) {
        seek->use_cache = attempt == 0;
        rc = find_leaf(seek, ret_leaf);
    }
    return rc == 0 && !*ret_leaf ? fail_damaged(seek) : rc;
}

/* Find the leaf of a key: first by cached inner nodes, then by the newest states of all nodes on the path,
 * then by nodes as of one version, which are a tree. */
static int seek_leaf(struct seek *seek, const void **ret_leaf) {
    uint64_t deadline_ns = 0;
    for (uint32_t attempt = 0;; attempt++) {
        int rc = 0;
        seek->use_cache = attempt == 0;
        seek->version = REMO_VERSIONED_NEWEST;
        if (attempt >= ATTEMPTS)
            rc = remo_versioned_version(seek->tree->nodes, seek->owner, &seek->version);
        if (rc == 0)
            rc = find_leaf(seek, ret_leaf);
        if ((rc != 0 && rc != -ESTALE) || (rc == 0 && *ret_leaf))
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

static int copy_value(const struct seek *seek, const void *leaf, void *value, size_t value_cap,
                      size_t *ret_value_bytes) {
    struct tree_entry entry;
    uint32_t index;
    bool is_found;
    if (!remo__tree_node_find(leaf, seek->tree->node_bytes, seek->key, &index, &is_found)
        || (is_found && !remo__tree_node_entry(leaf, seek->tree->node_bytes, index, &entry)))
        return fail_damaged(seek);
    if (!is_found)
        return remo__fail_static(-ENOENT, "the tree has no such key");
    *ret_value_bytes = entry.value.bytes;
    if (entry.value.bytes > value_cap)
        return remo__fail(-EMSGSIZE, "the value has %u bytes, but the buffer has %zu; use a larger one",
                          entry.value.bytes, value_cap);
    memcpy(value, entry.value.data, entry.value.bytes);
    return 0;
}

/* `snapshot`: NULL: the newest state. */
static int get(struct remo_tree *tree, const uint64_t *snapshot, struct tree_bytes key, void *value,
               size_t value_cap, size_t *ret_value_bytes) {
    const void *leaf;
    uint32_t position = remo__tree_position(tree, key);
    struct seek seek = {
        .tree = tree, .cache = remo__tree_cache(tree), .owner = tree->owners[position], .key = key};
    struct tree_buffer *buffer = seek.cache ? remo__tree_take_buffer(tree, seek.cache) : NULL;
    if (!buffer)
        return remo__last_code();
    seek.buffer = buffer->bytes;
    seek.version = snapshot ? snapshot[position] : REMO_VERSIONED_NEWEST;
    int rc = snapshot ? seek_leaf_at(&seek, &leaf) : seek_leaf(&seek, &leaf);
    if (rc == 0)
        rc = copy_value(&seek, leaf, value, value_cap, ret_value_bytes);
    remo__tree_put_buffer(seek.cache, buffer);
    return rc;
}

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
