/* owner_path.c - the path of a change from the root to a leaf, at the owner: private copies of its nodes, and
 * unused indices. Invariant: each node was checked when it was loaded. */
#include <string.h>

#include "systems/tree/owner.h"

uint32_t remo__tree_take_index(struct tree_owner *own) {
    if (own->free_count == 0)
        return 0;
    own->taken[own->taken_count++] = own->free[--own->free_count];
    return own->taken[own->taken_count - 1];
}

int remo__tree_fail_damaged(const struct remo_tree *tree) {
    return remo__fail(-EPROTO, "tree %s is damaged at this node; start the job again",
                      remo_channel_name(tree->channel));
}

int remo__tree_load(const struct remo_tree *tree, uint32_t object, void *image) {
    const struct tree_changed *changed = remo__tree_overlay_find(tree->own, object);
    int rc = 0;
    if (object >= tree->node_count)
        return remo__tree_fail_damaged(tree);
    if (changed) /* a change of a damaged node may have changed the header, too */
        memcpy(image, changed->image, tree->node_bytes);
    else
        rc = remo_versioned_read(tree->nodes, tree->node->rank, object, image, NULL);
    return rc == 0 && !remo__tree_node_is_valid(image, tree->node_bytes, remo__tree_header_of(image).level)
               ? remo__tree_fail_damaged(tree)
               : rc;
}

/* Set the image of a step. Inner nodes are kept, so that few nodes are read. An apply may have changed the
 * node since the last commit. */
static int load_step(const struct remo_tree *tree, struct tree_step *step) {
    const struct tree_changed *changed = remo__tree_overlay_find(tree->own, step->object);
    void *kept = changed ? NULL : tree->own->kept[step->object];
    step->image = kept ? kept : step->buffer;
    return kept ? 0 : remo__tree_load(tree, step->object, step->buffer);
}

void remo__tree_own_copy(const struct remo_tree *tree, struct tree_step *step) {
    if (step->image == step->buffer)
        return;
    memcpy(step->buffer, step->image, tree->node_bytes);
    step->image = step->buffer;
}

int remo__tree_descend(struct remo_tree *tree, struct tree_bytes key) {
    struct tree_owner *own = tree->own;
    uint32_t object = TREE_ROOT;
    own->dropped_count = 0;
    own->taken_count = 0;
    for (own->depth = 0; own->depth < TREE_DEPTH_MAX; own->depth++) {
        struct tree_step *step = &own->steps[own->depth];
        step->object = object;
        step->right = 0;
        step->is_whole = false;
        step->ranges.count = 0;
        int rc = load_step(tree, step);
        if (rc != 0)
            return rc;
        if (remo__tree_header_of(step->image).level == 0) {
            own->depth++;
            return 0;
        }
        if (!remo__tree_node_child(step->image, tree->node_bytes, key, &step->child, &object)
            || object == TREE_ROOT || object >= tree->node_count)
            break;
    }
    return remo__tree_fail_damaged(tree);
}
