/* owner_remove.c - nodes of the path that have lost entries, at the owner (owner.h): a small node merges
 * with a neighbour below the same parent, and the root shrinks. Invariant: a dropped node has no entry in
 * a parent. docs/internals/tree.md describes merges. */
#include <string.h>

#include "systems/tree/owner.h"

/* Return whether less than a quarter of the room for entries is used. */
static bool is_small(const struct remo_tree *tree, const void *image) {
    return remo__tree_node_free(image, tree->node_bytes)
           > remo__tree_node_room(image, tree->node_bytes) / 4 * 3;
}

/* Remove entry `index` of the inner node of a step, which is whole. */
static void remove_child(const struct remo_tree *tree, struct tree_step *step, uint32_t index) {
    remo__tree_own_copy(tree, step);
    remo__tree_node_remove_child(step->image, tree->node_bytes, index, tree->own->scratch);
    step->is_whole = true;
}

static uint32_t child_at(const struct remo_tree *tree, const struct tree_step *step, uint32_t index) {
    struct tree_entry entry;
    uint32_t child = 0;
    if (remo__tree_node_entry(step->image, tree->node_bytes, index, &entry)
        && entry.value.bytes == sizeof child)
        memcpy(&child, entry.value.data, sizeof child);
    return child;
}

/* Merge the node of step `at` with the one before or after it below the same parent. Returns 1 if they fit
 * into one node. Otherwise returns 0, and nothing changes. */
static int merge_with(struct remo_tree *tree, uint32_t at, bool is_before) {
    struct tree_owner *own = tree->own;
    struct tree_step *step = &own->steps[at], *parent = &own->steps[at - 1];
    uint32_t other = child_at(tree, parent, is_before ? parent->child - 1 : parent->child + 1);
    int rc = remo__tree_load(tree, other, own->sibling);
    if (rc != 0)
        return rc;
    remo__tree_own_copy(tree, step);
    if (!remo__tree_node_is_whole(own->sibling, tree->node_bytes)
        || !remo__tree_node_is_whole(step->image, tree->node_bytes)
        || !remo__tree_node_is_whole(parent->image, tree->node_bytes))
        return remo__tree_fail_damaged(tree);
    void *left = is_before ? own->sibling : step->image;
    const void *right = is_before ? step->image : own->sibling;
    if (!remo__tree_node_merge(left, right, tree->node_bytes, own->scratch))
        return 0;
    own->dropped[own->dropped_count++] = is_before ? step->object : other;
    if (is_before) {
        memcpy(step->image, own->sibling, tree->node_bytes);
        step->object = other;
    }
    step->is_whole = true;
    remove_child(tree, parent, is_before ? parent->child : parent->child + 1);
    return 1;
}

static int merge_at(struct remo_tree *tree, uint32_t at) {
    const struct tree_step *parent = &tree->own->steps[at - 1];
    int rc = 0;
    if (parent->child + 1 < remo__tree_header_of(parent->image).count)
        rc = merge_with(tree, at, false);
    if (rc == 0 && parent->child > 0)
        rc = merge_with(tree, at, true);
    return rc < 0 ? rc : 0;
}

int remo__tree_merge(struct remo_tree *tree) {
    struct tree_owner *own = tree->own;
    int rc = 0;
    for (uint32_t at = own->depth - 1; at > 0 && rc == 0; at--) {
        uint32_t dropped = own->dropped_count;
        if (is_small(tree, own->steps[at].image))
            rc = merge_at(tree, at);
        if (own->dropped_count == dropped)
            break;
    }
    return rc;
}

void remo__tree_shrink(struct remo_tree *tree) {
    struct tree_owner *own = tree->own;
    struct tree_step *root = &own->steps[0], *child = &own->steps[1];
    if (own->dropped_count == 0 || remo__tree_header_of(root->image).count != 1)
        return;
    own->dropped[own->dropped_count++] = child->object;
    remo__tree_own_copy(tree, root);
    memcpy(root->image, child->image, tree->node_bytes);
    root->is_whole = true;
    child->is_whole = false;
    child->ranges.count = 0;
}
