/* owner.h - what the files of changes at the owner share. The caller holds the mutex.
 *
 *   owner.c         make a change, and commit; the calls
 *   owner_insert.c  insert into the nodes of the path: split and grow
 *   owner_remove.c  nodes that have lost entries: merge and shrink
 *   owner_path.c    find the nodes of a change
 *
 * A file uses only files below it in this list. */
#pragma once

#include "systems/tree/node_parts.h"
#include "systems/tree/tree.h"

/* ---- owner_insert.c ---- */

/* Insert an entry into the leaf of the path, and the new nodes of splits into the nodes above. Errors:
 * -ENOSPC without a sentence; -EPROTO: the tree is damaged. */
int remo__tree_insert(struct remo_tree *tree, struct tree_bytes key, struct tree_bytes value);

/* ---- owner_remove.c ---- */

/* Merge the leaf of the path if it is small, and then the nodes above that have lost a child and are small.
 * Errors: -EPROTO, and those of remo_versioned_read. */
int remo__tree_merge(struct remo_tree *tree);
/* If the root has a single child after merges, it takes over the contents of the child. */
void remo__tree_shrink(struct remo_tree *tree);

/* ---- owner_path.c ---- */

/* Return an unused index, or 0, the index of the root, if there is none. */
uint32_t remo__tree_take_index(struct tree_owner *own);
/* Read a node and check it: peers can write to its memory. Errors: -EPROTO, and those of
 * remo_versioned_read. */
int remo__tree_load(const struct remo_tree *tree, uint32_t object, void *image);
/* Before a change, copy a kept inner node into the buffer of the step. */
void remo__tree_own_copy(const struct remo_tree *tree, struct tree_step *step);
