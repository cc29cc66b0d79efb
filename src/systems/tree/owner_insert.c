/* owner_insert.c - insertions at the owner, into the nodes of the path (owner.h): a node without room splits,
 * and the root grows. Invariant: the path in own->steps, with the new right nodes, is a tree after each
 * function that returns 0. docs/internals/tree.md describes splits and growth. */
#include <string.h>

#include "systems/tree/owner.h"

/* Insert into a leaf, as a change of some ranges if possible, otherwise after packing. */
static int insert_in_leaf(const struct remo_tree *tree, struct tree_step *step,
                          const struct tree_entry *entry) {
    struct tree_ranges ranges;
    if (remo__tree_node_insert(step->image, tree->node_bytes, entry->key, entry->value, &ranges)) {
        step->ranges = ranges;
        return 0;
    }
    if (!remo__tree_node_is_whole(step->image, tree->node_bytes))
        return remo__tree_fail_damaged(tree);
    if (!remo__tree_node_has_room(step->image, tree->node_bytes, entry->key.bytes, entry->value.bytes))
        return 1;
    remo__tree_node_pack(step->image, tree->node_bytes, tree->own->scratch);
    step->is_whole = true;
    return remo__tree_node_insert(step->image, tree->node_bytes, entry->key, entry->value, &ranges) ? 0 : 1;
}

/* Insert into an inner node behind the child of the path, which has been split. */
static int insert_in_inner(const struct remo_tree *tree, struct tree_step *step,
                           const struct tree_entry *entry) {
    uint32_t child;
    memcpy(&child, entry->value.data, sizeof child);
    remo__tree_own_copy(tree, step);
    if (!remo__tree_node_is_whole(step->image, tree->node_bytes))
        return remo__tree_fail_damaged(tree);
    if (!remo__tree_node_insert_child(step->image, tree->node_bytes, step->child + 1, entry->key, child,
                                      tree->own->scratch))
        return 1;
    step->is_whole = true;
    return 0;
}

/* Insert into the node of a step. Returns 1 if there is no room. Then the node is whole. */
static int insert_in_place(const struct remo_tree *tree, struct tree_step *step,
                           const struct tree_entry *entry) {
    return remo__tree_header_of(step->image).level == 0 ? insert_in_leaf(tree, step, entry)
                                                        : insert_in_inner(tree, step, entry);
}

/* Put a new root above the present one, whose contents move to another index. */
static int grow(struct remo_tree *tree) {
    struct tree_owner *own = tree->own;
    uint32_t moved = own->depth < TREE_DEPTH_MAX ? remo__tree_take_index(own) : 0, bytes = tree->node_bytes;
    if (moved == 0)
        return -ENOSPC;
    struct tree_step last = own->steps[own->depth];
    memmove(&own->steps[1], &own->steps[0], own->depth * sizeof own->steps[0]);
    own->depth++;
    own->steps[0] = last; /* for its buffers */
    own->steps[0].object = TREE_ROOT;
    own->steps[0].image = own->steps[0].buffer;
    own->steps[0].child = 0;
    own->steps[0].right = 0;
    own->steps[0].is_whole = true;
    own->steps[0].ranges.count = 0;
    own->steps[1].object = moved;
    own->steps[1].is_whole = true;
    struct tree_bytes high, low = remo__tree_node_low(own->steps[1].image, bytes);
    bool has_high = remo__tree_node_high(own->steps[1].image, bytes, &high);
    remo__tree_node_init(own->steps[0].image, bytes, remo__tree_header_of(own->steps[1].image).level + 1u,
                         low, has_high ? &high : NULL);
    (void)remo__tree_node_insert_child(own->steps[0].image, bytes, 0, (struct tree_bytes){NULL, 0}, moved,
                                       own->scratch);
    return 0;
}

/* Insert into one half of a node that was split. */
static bool insert_in_half(const struct remo_tree *tree, void *half, const struct tree_entry *entry) {
    uint32_t index, child, bytes = tree->node_bytes;
    struct tree_ranges ranges;
    bool is_found;
    if (remo__tree_header_of(half).level == 0)
        return remo__tree_node_insert(half, bytes, entry->key, entry->value, &ranges);
    memcpy(&child, entry->value.data, sizeof child);
    return remo__tree_node_find_in_run(half, bytes, entry->key, &index, &is_found)
           && remo__tree_node_insert_child(half, bytes, index, entry->key, child, tree->own->scratch);
}

/* Split the node of a step, and insert the entry into one of the halves. A node without room for one more
 * entry has several, unless it is damaged. */
static int split(struct remo_tree *tree, struct tree_step *step, const struct tree_entry *entry) {
    uint32_t bytes = tree->node_bytes, level = remo__tree_header_of(step->image).level;
    if (remo__tree_header_of(step->image).count < 2)
        return remo__tree_fail_damaged(tree);
    step->right = remo__tree_take_index(tree->own);
    if (step->right == 0)
        return -ENOSPC;
    remo__tree_node_split(step->image, step->right_image, bytes, entry->key, tree->own->scratch);
    if (!remo__tree_node_is_valid(step->image, bytes, level)
        || !remo__tree_node_is_valid(step->right_image, bytes, level))
        return remo__tree_fail_damaged(tree);
    step->is_whole = true;
    bool is_right = remo__tree_compare(entry->key, remo__tree_node_low(step->right_image, bytes)) >= 0;
    void *half = is_right ? step->right_image : step->image;
    return insert_in_half(tree, half, entry) ? 0 : -ENOSPC;
}

/* Make room for an entry in the path: grow if step *at is the root, and split the node. */
static int make_room(struct remo_tree *tree, uint32_t *at, const struct tree_entry *entry) {
    int rc = *at == 0 ? grow(tree) : 0;
    if (rc != 0)
        return rc;
    *at = *at == 0 ? 1 : *at;
    return split(tree, &tree->own->steps[*at], entry);
}

/* Insert the new right node of step `at` into the node above, and those of further splits. */
static int insert_right(struct remo_tree *tree, uint32_t at) {
    struct tree_step *steps = tree->own->steps;
    int rc = 0;
    while (rc == 0) {
        const struct tree_step *step = &steps[at--];
        uint32_t new_child = step->right;
        struct tree_entry entry = {remo__tree_node_low(step->right_image, tree->node_bytes),
                                   {&new_child, sizeof new_child}};
        rc = insert_in_place(tree, &steps[at], &entry);
        if (rc <= 0)
            return rc;
        rc = make_room(tree, &at, &entry);
    }
    return rc;
}

int remo__tree_insert(struct remo_tree *tree, struct tree_bytes key, struct tree_bytes value) {
    struct tree_entry entry = {key, value};
    uint32_t at = tree->own->depth - 1;
    int rc = insert_in_place(tree, &tree->own->steps[at], &entry);
    if (rc <= 0)
        return rc;
    rc = make_room(tree, &at, &entry);
    return rc == 0 ? insert_right(tree, at) : rc;
}

int remo__tree_insert_leaf(struct remo_tree *tree) {
    struct tree_owner *own = tree->own;
    int rc = own->depth == 1 ? grow(tree) : 0;
    if (rc != 0)
        return rc;
    struct tree_step *leaf = &own->steps[own->depth - 1];
    void *image = leaf->right_image;
    leaf->right = remo__tree_take_index(own);
    if (leaf->right == 0)
        return -ENOSPC;
    leaf->right_image = own->sibling;
    own->sibling = image;
    leaf->is_whole = true;
    if (!remo__tree_node_set_high(leaf->image, tree->node_bytes,
                                  remo__tree_node_low(leaf->right_image, tree->node_bytes)))
        return 1;
    return insert_right(tree, own->depth - 1);
}
