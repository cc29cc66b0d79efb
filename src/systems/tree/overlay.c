/* overlay.c - the nodes that the writes of one apply, or removals of a range, have changed, in private memory
 * of the owner. Invariant: the nodes of the last version, with those of the overlay in place of their former
 * state, are the tree after the writes made so far. A node that has been dropped has no parent, so no write
 * loads it. */
#include <stdlib.h>
#include <string.h>

#include "systems/tree/tree.h"

struct tree_changed *remo__tree_overlay_find(struct tree_owner *own, uint32_t object) {
    for (uint32_t i = 0; i < own->overlay.count; i++)
        if (own->overlay.nodes[i].object == object)
            return &own->overlay.nodes[i];
    return NULL;
}

/* Set *ret_changed to the node in the overlay. Adds the node if necessary. */
static int add(const struct remo_tree *tree, uint32_t object, struct tree_changed **ret_changed) {
    struct tree_overlay *overlay = &tree->own->overlay;
    *ret_changed = remo__tree_overlay_find(tree->own, object);
    if (*ret_changed)
        return 0;
    if (overlay->count == TREE_OVERLAY_MAX)
        return -EMSGSIZE;
    struct tree_changed *changed = &overlay->nodes[overlay->count];
    void *image = changed->image ? changed->image : malloc(tree->node_bytes);
    if (!image)
        return -ENOMEM;
    *changed = (struct tree_changed){.object = object, .image = image};
    overlay->count++;
    *ret_changed = changed;
    return 0;
}

/* Add a range of bytes that a write has changed. Two ranges that overlap or touch become one. */
static void add_range(struct tree_changed *changed, struct tree_range range) {
    uint32_t begin = range.offset, end = begin + range.bytes;
    for (uint32_t i = 0; i < changed->range_count; i++) {
        struct tree_range *other = &changed->ranges[i];
        uint32_t other_end = (uint32_t)other->offset + other->bytes;
        if (begin > other_end || other->offset > end)
            continue;
        begin = begin < other->offset ? begin : other->offset;
        end = end > other_end ? end : other_end;
        *other = (struct tree_range){(uint16_t)begin, (uint16_t)(end - begin)};
        return;
    }
    if (changed->range_count < TREE_CHANGED_RANGES)
        changed->ranges[changed->range_count++] =
            (struct tree_range){(uint16_t)begin, (uint16_t)(end - begin)};
    else
        changed->is_whole = true;
}

/* `ranges` is NULL for a complete node. */
static int take_image(const struct remo_tree *tree, uint32_t object, const void *image,
                      const struct tree_ranges *ranges) {
    struct tree_changed *changed;
    int rc = add(tree, object, &changed);
    if (rc != 0)
        return rc;
    memcpy(changed->image, image, tree->node_bytes);
    changed->is_whole = changed->is_whole || !ranges;
    for (uint32_t i = 0; ranges && i < ranges->count; i++)
        add_range(changed, ranges->ranges[i]);
    return 0;
}

static int take_step(const struct remo_tree *tree, const struct tree_step *step) {
    int rc = 0;
    if (step->is_whole || step->ranges.count > 0)
        rc = take_image(tree, step->object, step->image, step->is_whole ? NULL : &step->ranges);
    if (rc == 0 && step->right != 0)
        rc = take_image(tree, step->right, step->right_image, NULL);
    return rc;
}

int remo__tree_overlay_take(const struct remo_tree *tree) {
    struct tree_owner *own = tree->own;
    struct tree_changed *changed;
    int rc = 0;
    for (uint32_t i = 0; i < own->depth && rc == 0; i++)
        rc = take_step(tree, &own->steps[i]);
    for (uint32_t i = 0; i < own->dropped_count && rc == 0; i++) {
        rc = add(tree, own->dropped[i], &changed);
        if (rc == 0)
            changed->is_dropped = true;
    }
    if (rc != 0)
        return rc;
    for (uint32_t i = 0; i < own->taken_count; i++) /* each is a node that was taken above */
        remo__tree_overlay_find(own, own->taken[i])->is_new = true;
    own->taken_count = 0;
    return 0;
}

uint32_t remo__tree_overlay_list(const struct remo_tree *tree) {
    static const struct tree_header unused = {.kind = TREE_UNUSED};
    struct tree_overlay *overlay = &tree->own->overlay;
    uint32_t count = 0;
    for (uint32_t i = 0; i < overlay->count; i++) {
        const struct tree_changed *changed = &overlay->nodes[i];
        struct remo_versioned_change change = {
            .object = changed->object, .size_bytes = tree->node_bytes, .data = changed->image};
        if (changed->is_dropped) {
            change.size_bytes = sizeof unused;
            change.data = &unused;
        }
        if (changed->is_dropped || changed->is_whole) {
            overlay->changes[count++] = change;
            continue;
        }
        for (uint32_t k = 0; k < changed->range_count; k++) {
            change.offset = changed->ranges[k].offset;
            change.size_bytes = changed->ranges[k].bytes;
            change.data = (const char *)changed->image + change.offset;
            overlay->changes[count++] = change;
        }
    }
    return count;
}

void remo__tree_overlay_close(struct tree_owner *own) {
    for (uint32_t i = 0; i < TREE_OVERLAY_MAX; i++)
        free(own->overlay.nodes[i].image);
}
