/* tree.h - the state of the tree's cases, and what their files share.
 *
 *   tree.c         the calls with their checks, and cases of most calls
 *   tree_cursor.c  cursors beside changes
 *   tree_load.c    a load beside reads and changes
 *   tree_window.c  operations in flight together */
#pragma once

#include <remo/tree.h>

#include "sim/case.h"
#include "sim/oracle.h"

/* Steps of sim_tree_run: a step of a transaction with one key, or one of the next four. */
#define STEP(step, key, value) ((uint64_t)(step) << 12 | (uint64_t)(key) << 8 | (uint64_t)(value))
#define SCAN UINT64_C(0)
#define SCAN_MIDDLE UINT64_C(1) /* keys 1 and 2 */
#define READ_FIXED UINT64_C(2)  /* get all fixed keys, which the history does not contain */
#define GET_MANY UINT64_C(3)    /* all four keys by one call; for the checker, four calls */
#define BY_SNAPSHOT 1           /* of a read */
#define BY_RANGE 1              /* of a delete */
#define OWNER 0u
#define VALUE_BYTES_MAX 28u

struct tree_state {
    struct remo_tree *trees[SIM_NODES_MAX];
    size_t value_bytes; /* if has_sizes, values of odd numbers have one byte less, so that sizes differ */
    bool has_sizes;
    const char *fixed;             /* keys that do not change */
    bool by_snapshot;              /* of scans of node 2 */
    uint32_t scans[SIM_NODES_MAX]; /* each second one is descending */
};

/* Open the tree, which is empty; close it. */
void sim_tree_open(struct tree_state *s, struct remo_node *node, uint32_t rank,
                   const struct remo_tree_options *options);
void sim_tree_close(void *state, uint32_t rank);
/* Open a tree with two owners, whose keys begin with a letter below `boundary`, or from it on. Insert two
 * fixed keys of each. */
void sim_tree_open_halves(struct tree_state *s, struct remo_node *node, uint32_t rank, const char *boundary,
                          uint32_t node_bytes, uint32_t value_bytes_max);
/* Insert those of the fixed keys that the node owns. */
void sim_tree_insert_fixed(const struct tree_state *s, uint32_t rank);
/* Return the number of a value, which consists of equal bytes. */
size_t sim_tree_value_bytes(const struct tree_state *s, uint64_t number);
uint64_t sim_tree_number(const struct tree_state *s, const unsigned char *value, size_t bytes);
/* Execute, check and record calls. */
void sim_tree_run(struct tree_state *s, uint32_t rank, const uint64_t *steps, uint32_t count);
/* For the end of a case: make calls that must succeed. */
void sim_tree_after(void *state, uint32_t rank);
