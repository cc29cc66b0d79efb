/* cache.c - the inner nodes that a thread has read, and buffers for its reads.
 * Invariant: a cached node has been checked, so a search of it checks nothing. It may be of an earlier
 * version: it only helps to find a leaf. */
#include <stdlib.h>
#include <string.h>

#include "systems/tree/tree.h"

/* ---- a cache of each thread ---- */

struct tree_cache *remo__tree_make_cache(struct remo_tree *tree, const struct remo__thread *thread) {
    struct tree_cache *cache = calloc(1, sizeof *cache);
    if (cache)
        tree->caches[thread->index] = cache;
    else
        remo__fail(-ENOMEM, "no memory for a cache of tree %s", remo_channel_name(tree->channel));
    return cache;
}

static void free_windows(struct tree_cache *cache) {
    while (cache->windows) {
        struct tree_window *next = cache->windows->next;
        free(cache->windows);
        cache->windows = next;
    }
    while (cache->calls) {
        struct tree_call *next = cache->calls->next;
        free(cache->calls);
        cache->calls = next;
    }
}

void remo__tree_caches_close(struct remo_tree *tree) {
    for (uint32_t i = 0; i < REMO__THREADS_MAX; i++) {
        struct tree_cache *cache = tree->caches[i];
        if (!cache)
            continue;
        for (uint32_t j = 0; j < TREE_CACHE_SLOTS; j++)
            free(cache->slots[j].firsts);
        while (cache->buffers) {
            struct tree_buffer *next = cache->buffers->next;
            free(cache->buffers);
            cache->buffers = next;
        }
        free_windows(cache);
        free(cache);
    }
}

/* ---- buffers ---- */

struct tree_buffer *remo__tree_take_buffer(struct remo_tree *tree, struct tree_cache *cache) {
    struct tree_buffer *buffer = cache->buffers;
    if (remo__likely(buffer != NULL)) {
        cache->buffers = buffer->next;
        return buffer;
    }
    buffer = malloc(sizeof *buffer + (size_t)TREE_WINDOW * tree->node_bytes + TREE_BUFFER_SPARE);
    if (!buffer)
        remo__fail(-ENOMEM, "no memory for a read of tree %s", remo_channel_name(tree->channel));
    return buffer;
}

void remo__tree_put_buffer(struct tree_cache *cache, struct tree_buffer *buffer) {
    buffer->next = cache->buffers;
    cache->buffers = buffer;
}

/* ---- inner nodes ---- */

/* The slots where a node may be: this one, and those after it. */
static uint32_t first_slot(uint32_t owner, uint32_t object) {
    return object ^ owner * 2654435761u;
}

static struct tree_cached *find_slot(struct tree_cache *cache, uint32_t owner, uint32_t object) {
    uint32_t first = first_slot(owner, object);
    for (uint32_t i = 0; i < TREE_CACHE_WAYS; i++) {
        struct tree_cached *slot = &cache->slots[(first + i) % TREE_CACHE_SLOTS];
        if (slot->owner == owner && slot->object == object && slot->count > 0)
            return slot;
    }
    return NULL;
}

/* Return a slot for a node that is not cached: an empty one, or that of another node. */
static struct tree_cached *choose_slot(struct tree_cache *cache, uint32_t owner, uint32_t object) {
    uint32_t first = first_slot(owner, object);
    for (uint32_t i = 0; i < TREE_CACHE_WAYS; i++) {
        struct tree_cached *slot = &cache->slots[(first + i) % TREE_CACHE_SLOTS];
        if (slot->count == 0)
            return slot;
    }
    return &cache->slots[first % TREE_CACHE_SLOTS];
}

const struct tree_cached *remo__tree_cached(struct tree_cache *cache, uint32_t owner, uint32_t object) {
    return find_slot(cache, owner, object);
}

/* Allocate memory for one node, if the slot has none: the first bytes of the keys, the children, and a
 * copy. */
static bool alloc_slot(const struct remo_tree *tree, struct tree_cached *slot) {
    uint32_t count = remo__tree_node_entries_max(tree->node_bytes);
    if (slot->firsts)
        return true;
    slot->firsts = malloc(count * (sizeof slot->firsts[0] + sizeof slot->children[0]) + tree->node_bytes);
    if (!slot->firsts)
        return false;
    slot->children = (uint32_t *)(slot->firsts + count);
    slot->image = slot->children + count;
    return true;
}

/* Choose the samples of a node, so that as few entries as possible are between two of them. */
static void sample_keys(struct tree_cached *slot) {
    slot->stride = slot->count / (TREE_SAMPLES + 1) + 1;
    slot->sample_count = 0;
    for (uint32_t i = 0; i < TREE_SAMPLES; i++) {
        uint32_t index = (i + 1) * slot->stride;
        slot->samples[i] = index < slot->count ? slot->firsts[index] : UINT64_MAX;
        slot->sample_count += index < slot->count;
    }
}

/* Fill a slot from the node in its image. Leaves the slot empty if the node is not valid. */
static void fill_slot(const struct remo_tree *tree, struct tree_cached *slot) {
    uint32_t bytes = tree->node_bytes, count;
    struct tree_bytes low, high;
    struct tree_header header;
    memcpy(&header, slot->image, sizeof header);
    if (!remo__tree_node_is_valid(slot->image, bytes, header.level)
        || header.count > remo__tree_node_entries_max(bytes))
        return;
    for (count = 0; count < header.count; count++) {
        struct tree_entry entry;
        if (!remo__tree_node_entry(slot->image, bytes, count, &entry)
            || !remo__tree_child_of(&entry, tree->node_count, &slot->children[count]))
            return;
        slot->firsts[count] = remo__tree_first_bytes(entry.key);
    }
    low = remo__tree_node_low(slot->image, bytes);
    slot->has_high = remo__tree_node_high(slot->image, bytes, &high);
    slot->low_first = remo__tree_first_bytes(low);
    slot->high_first = remo__tree_first_bytes(high);
    slot->level = header.level;
    slot->count = count;
    sample_keys(slot);
}

void remo__tree_cache_node(const struct remo_tree *tree, struct tree_cache *cache, uint32_t owner,
                           uint32_t object, const void *node) {
    struct tree_cached *slot = find_slot(cache, owner, object);
    struct tree_header header;
    memcpy(&header, node, sizeof header);
    if (header.level == 0) {
        if (slot)
            slot->count = 0;
        return;
    }
    slot = slot ? slot : choose_slot(cache, owner, object);
    if (!alloc_slot(tree, slot))
        return; /* without memory, the node is not cached and is read again */
    slot->owner = owner;
    slot->object = object;
    slot->count = 0;
    memcpy(slot->image, node, tree->node_bytes);
    fill_slot(tree, slot);
}

/* Return whether the key, whose first bytes are `first`, is between the fences of the node. */
static inline bool covers(const struct tree_cached *node, uint32_t bytes, struct tree_bytes key,
                          uint64_t first) {
    if (remo__likely(node->low_first < first && (first < node->high_first || !node->has_high)))
        return true;
    return remo__tree_node_covers(node->image, bytes, key);
}

/* Return the index of the last key whose first bytes are not above `first`, or 0. The loads of the samples do
 * not depend on each other, so most of the search waits for the cache once. */
static inline uint32_t search_firsts(const struct tree_cached *node, uint64_t first) {
    uint32_t sample = 0;
#pragma GCC unroll 15
    for (uint32_t i = 0; i < TREE_SAMPLES; i++)
        sample += node->samples[i] <= first;
    uint32_t index = (uint32_t)remo__min(sample, node->sample_count) * node->stride;
    const uint64_t *firsts = node->firsts + index;
    for (uint32_t left = (uint32_t)remo__min(node->stride, node->count - index); left > 1;) {
        uint32_t half = left / 2;
        firsts += firsts[half] <= first ? half : 0;
        left -= half;
    }
    return (uint32_t)(firsts - node->firsts);
}

/* Find the child of a node whose range contains the key. Returns false if the node does not cover the key. */
static inline bool find_child(const struct tree_cached *node, uint32_t bytes, struct tree_bytes key,
                              uint64_t first, uint32_t *ret_child) {
    if (!covers(node, bytes, key, first))
        return false;
    uint32_t index = search_firsts(node, first);
    if (remo__unlikely(node->firsts[index] == first) && index > 0)
        return remo__tree_node_child(node->image, bytes, key, &index, ret_child);
    *ret_child = node->children[index];
    return true;
}

bool remo__tree_cached_child(const struct tree_cached *node, uint32_t bytes, struct tree_bytes key,
                             uint32_t *ret_child) {
    return find_child(node, bytes, key, remo__tree_first_bytes(key), ret_child);
}

bool remo__tree_cached_leaf(struct tree_cache *cache, uint32_t bytes, uint32_t owner, struct tree_bytes key,
                            uint32_t *ret_leaf) {
    uint64_t first = remo__tree_first_bytes(key);
    uint32_t level = TREE_DEPTH_MAX, object = TREE_ROOT;
    do {
        const struct tree_cached *node = find_slot(cache, owner, object);
        if (!node || (object == TREE_ROOT ? node->level >= level : node->level != level - 1)
            || !find_child(node, bytes, key, first, &object))
            return false;
        level = node->level;
    } while (level > 1);
    *ret_leaf = object;
    return true;
}
