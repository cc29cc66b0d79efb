/* owner.c - changes at the owner of a key.
 * Invariant: a change works on private copies of nodes, and commits all of them at one instant. So each
 * version of the owner is a complete tree, and a change that fails has no effect. docs/internals/tree.md
 * describes splits, merges and their commits. The writes of an apply leave their copies in the overlay, where
 * later writes of it find them; one commit then takes all copies. */
#include <stdlib.h>
#include <string.h>

#include "systems/tree/owner.h"

#define CHANGES_MAX (2 * TREE_DEPTH_MAX * TREE_RANGES_MAX)

/* ---- indices ---- */

static void put_index(struct tree_owner *own, uint32_t index) {
    own->free[own->free_count++] = index;
}

/* ---- nodes that are kept ---- */

static void forget(struct tree_owner *own, uint32_t object) {
    free(own->kept[object]);
    own->kept[object] = NULL;
}

/* Keep a node that has been committed, if it is an inner node. */
static void keep(const struct remo_tree *tree, uint32_t object, const void *image) {
    void **kept = &tree->own->kept[object];
    if (remo__tree_header_of(image).level == 0) {
        forget(tree->own, object);
        return;
    }
    if (!*kept)
        *kept = malloc(tree->node_bytes);
    if (*kept)
        memcpy(*kept, image, tree->node_bytes);
}

/* ---- commit ---- */

struct batch {
    struct remo_versioned_change changes[CHANGES_MAX];
    uint32_t count;
};

static void add_bytes(struct batch *batch, uint32_t object, const void *image, uint32_t offset,
                      uint32_t bytes) {
    batch->changes[batch->count++] = (struct remo_versioned_change){
        .object = object, .offset = offset, .size_bytes = bytes, .data = (const char *)image + offset};
}

static void add_step(const struct remo_tree *tree, struct batch *batch, const struct tree_step *step) {
    if (step->is_whole)
        add_bytes(batch, step->object, step->image, 0, tree->node_bytes);
    for (uint32_t i = 0; i < step->ranges.count && !step->is_whole; i++)
        add_bytes(batch, step->object, step->image, step->ranges.ranges[i].offset,
                  step->ranges.ranges[i].bytes);
    if (step->right != 0)
        add_bytes(batch, step->right, step->right_image, 0, tree->node_bytes);
}

static void keep_nodes(const struct remo_tree *tree) {
    struct tree_owner *own = tree->own;
    for (uint32_t i = 0; i < own->depth; i++) {
        const struct tree_step *step = &own->steps[i];
        if (step->is_whole || step->ranges.count > 0)
            keep(tree, step->object, step->image);
        if (step->right != 0)
            keep(tree, step->right, step->right_image);
    }
    for (uint32_t i = 0; i < own->dropped_count; i++) {
        forget(own, own->dropped[i]);
        put_index(own, own->dropped[i]);
    }
}

static int commit(struct remo_tree *tree) {
    static const struct tree_header unused = {.kind = TREE_UNUSED};
    struct tree_owner *own = tree->own;
    struct batch batch = {.count = 0};
    for (uint32_t i = 0; i < own->depth; i++)
        add_step(tree, &batch, &own->steps[i]);
    for (uint32_t i = 0; i < own->dropped_count; i++)
        add_bytes(&batch, own->dropped[i], &unused, 0, sizeof unused);
    int rc = batch.count > 0 ? remo_versioned_commit(tree->nodes, batch.changes, batch.count, NULL) : 0;
    if (rc == 0)
        keep_nodes(tree);
    return rc;
}

/* Free the indices that a failed change has taken. Returns `rc`. */
static int abandon(struct tree_owner *own, int rc) {
    while (own->taken_count > 0)
        put_index(own, own->taken[--own->taken_count]);
    return rc;
}

/* ---- the change of a leaf ---- */

static int replace(struct remo_tree *tree, struct tree_step *leaf, const struct tree_place *place,
                   const struct tree_write *write) {
    struct tree_ranges ranges;
    if (remo__tree_node_replace(leaf->image, tree->node_bytes, place, write->value, &leaf->ranges))
        return 0;
    remo__tree_node_remove(leaf->image, tree->node_bytes, place, &ranges);
    if (!remo__tree_node_is_whole(leaf->image, tree->node_bytes))
        return remo__tree_fail_damaged(tree);
    remo__tree_node_pack(leaf->image, tree->node_bytes, tree->own->scratch);
    leaf->is_whole = true;
    return remo__tree_insert(tree, write->key, write->value);
}

static bool has_value(const struct remo_tree *tree, const struct tree_step *leaf,
                      const struct tree_place *place, struct tree_bytes value) {
    struct tree_entry entry;
    return remo__tree_place_entry(leaf->image, tree->node_bytes, place, &entry)
           && remo__tree_compare(entry.value, value) == 0;
}

static int change_leaf(struct remo_tree *tree, const struct tree_write *write) {
    enum tree_op op = write->op;
    struct tree_step *leaf = &tree->own->steps[tree->own->depth - 1];
    struct tree_place place;
    if (!remo__tree_node_find(leaf->image, tree->node_bytes, write->key, &place))
        return remo__tree_fail_damaged(tree);
    bool is_found = place.offset != 0;
    if (is_found && op == TREE_INSERT)
        return -EEXIST;
    if (!is_found && op != TREE_INSERT && op != TREE_UPSERT)
        return -ENOENT;
    if (op == TREE_COMPARE_PUT && !has_value(tree, leaf, &place, write->expected))
        return -ESTALE;
    if (!is_found)
        return remo__tree_insert(tree, write->key, write->value);
    if (op != TREE_REMOVE)
        return replace(tree, leaf, &place, write);
    remo__tree_node_remove(leaf->image, tree->node_bytes, &place, &leaf->ranges);
    return remo__tree_merge(tree);
}

/* ---- one change, and several ---- */

/* Make a change in private memory. After an error the caller abandons it. */
static int prepare(struct remo_tree *tree, const struct tree_write *write) {
    int rc = remo__tree_descend(tree, write->key);
    if (rc == 0)
        rc = change_leaf(tree, write);
    if (rc == 0)
        remo__tree_shrink(tree);
    return rc;
}

static int change(struct remo_tree *tree, const struct tree_write *write) {
    int rc = prepare(tree, write);
    if (rc == 0)
        rc = commit(tree);
    return rc == 0 ? 0 : abandon(tree->own, rc);
}

static int commit_overlay(struct remo_tree *tree) {
    struct tree_owner *own = tree->own;
    uint32_t count = remo__tree_overlay_list(tree);
    int rc = count > 0 ? remo_versioned_commit(tree->nodes, own->overlay.changes, count, NULL) : 0;
    for (uint32_t i = 0; i < own->overlay.count && rc == 0; i++) {
        const struct tree_changed *changed = &own->overlay.nodes[i];
        if (changed->is_dropped) {
            forget(own, changed->object);
            put_index(own, changed->object);
        } else {
            keep(tree, changed->object, changed->image);
        }
    }
    return rc;
}

/* Free the indices that the writes of a failed apply have taken. */
static void abandon_overlay(struct tree_owner *own) {
    for (uint32_t i = 0; i < own->overlay.count; i++)
        if (own->overlay.nodes[i].is_new)
            put_index(own, own->overlay.nodes[i].object);
}

int remo__tree_end_overlay(struct remo_tree *tree, int rc) {
    struct tree_owner *own = tree->own;
    if (rc == 0)
        rc = commit_overlay(tree);
    if (rc != 0)
        abandon_overlay(own);
    own->overlay.count = 0;
    return rc;
}

int remo__tree_to_overlay(struct remo_tree *tree, int rc) {
    if (rc == 0)
        rc = remo__tree_overlay_take(tree);
    return rc == 0 ? 0 : abandon(tree->own, rc);
}

int remo__tree_change_in_overlay(struct remo_tree *tree, const struct tree_write *write) {
    return remo__tree_to_overlay(tree, prepare(tree, write));
}

static int change_all(struct remo_tree *tree, const struct tree_write *writes, uint32_t count,
                      uint32_t *ret_failed) {
    int rc = 0;
    for (uint32_t i = 0; i < count && rc == 0; i++) {
        rc = remo__tree_change_in_overlay(tree, &writes[i]);
        if (rc != 0)
            *ret_failed = i;
    }
    return remo__tree_end_overlay(tree, rc);
}

int remo__tree_change(struct remo_tree *tree, const struct tree_write *write) {
    struct tree_owner *own = tree->own;
    int rc = remo__mutex_lock(tree->node, &own->mutex, REMO_FOREVER); /* held for copies only */
    if (rc != 0)
        return rc;
    rc = remo__remaining_ns(own->frozen_until_ns) > 0 ? TREE_FROZEN : change(tree, write);
    remo__mutex_unlock(tree->node, &own->mutex);
    return rc;
}

int remo__tree_apply(struct remo_tree *tree, const struct tree_write *writes, uint32_t count,
                     uint32_t *ret_failed) {
    struct tree_owner *own = tree->own;
    *ret_failed = count;
    int rc = remo__mutex_lock(tree->node, &own->mutex, REMO_FOREVER); /* held for copies only */
    if (rc != 0)
        return rc;
    rc = remo__remaining_ns(own->frozen_until_ns) > 0 ? TREE_FROZEN
                                                      : change_all(tree, writes, count, ret_failed);
    remo__mutex_unlock(tree->node, &own->mutex);
    return rc;
}

/* ---- open and close ---- */

static bool alloc_steps(const struct remo_tree *tree, struct tree_owner *own) {
    for (uint32_t i = 0; i < TREE_DEPTH_MAX; i++) {
        own->steps[i].buffer = malloc(tree->node_bytes);
        own->steps[i].right_image = malloc(tree->node_bytes);
        if (!own->steps[i].buffer || !own->steps[i].right_image)
            return false;
    }
    own->sibling = malloc(tree->node_bytes);
    own->scratch = malloc(tree->node_bytes);
    own->free = calloc(tree->node_count, sizeof own->free[0]);
    own->kept = calloc(tree->node_count, sizeof own->kept[0]);
    return own->sibling && own->scratch && own->free && own->kept;
}

/* Commit the first root: an empty leaf with the owner's range of keys. */
static int commit_root(struct remo_tree *tree, uint32_t position) {
    struct tree_bytes low = {NULL, 0};
    if (position > 0)
        low = tree->boundaries[position - 1];
    remo__tree_node_init(tree->own->scratch, tree->node_bytes, 0, low,
                         position + 1 < tree->owner_count ? &tree->boundaries[position] : NULL);
    struct remo_versioned_change change = {
        .object = TREE_ROOT, .size_bytes = tree->node_bytes, .data = tree->own->scratch};
    int rc = remo_versioned_commit(tree->nodes, &change, 1, NULL);
    return rc == -EPROTO ? 0 : rc; /* as for other objects, the first call reports it instead of open */
}

int remo__tree_owner_open(struct remo_tree *tree, uint32_t position) {
    struct tree_owner *own = calloc(1, sizeof *own);
    if (!own)
        return remo__fail(-ENOMEM, "no memory for a tree");
    tree->own = own;
    if (!alloc_steps(tree, own))
        return remo__fail(-ENOMEM, "no memory for a tree");
    for (uint32_t i = tree->node_count - 1; i > TREE_ROOT; i--)
        put_index(own, i);
    return commit_root(tree, position);
}

void remo__tree_owner_close(struct remo_tree *tree) {
    struct tree_owner *own = tree->own;
    if (!own)
        return;
    for (uint32_t i = 0; i < TREE_DEPTH_MAX; i++) {
        free(own->steps[i].buffer);
        free(own->steps[i].right_image);
    }
    remo__tree_overlay_close(own);
    for (uint32_t i = 0; i < tree->node_count && own->kept; i++)
        free(own->kept[i]);
    free(own->kept);
    free(own->sibling);
    free(own->scratch);
    free(own->free);
    free(own);
    tree->own = NULL;
}
