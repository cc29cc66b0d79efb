/* cut.c - versions of several owners that they had at one instant: at first by reading all versions twice; if
 * changes are too frequent, while changes are delayed, longer each time.
 * Invariant: the versions are of one instant because a second read has found the same, not because of a
 * delay, which may have ended. */
#include <string.h>

#include "systems/tree/tree.h"

#define READ_ATTEMPTS 3u /* without a freeze */
#define FREEZE_NS (REMO__NS_PER_MS)
#define FREEZE_TIMEOUT_PART 8u          /* of op_timeout_ns, for the reply to a freeze */
#define PAUSE_NS (20 * REMO__NS_PER_US) /* while an owner has not made its root yet */

static int read_versions(struct remo_tree *tree, const struct tree_cut *cut, uint64_t *ret_versions) {
    int rc = 0;
    for (uint32_t i = 0; i < cut->count && rc == 0; i++)
        rc = remo_versioned_version(tree->nodes, tree->owners[cut->first + i], &ret_versions[i]);
    return rc;
}

/* Read all versions once more. If none has changed, all owners had them in between. */
static int compare_versions(struct remo_tree *tree, struct tree_cut *cut) {
    int rc = read_versions(tree, cut, cut->again);
    cut->is_instant = cut->has_all = rc == 0;
    for (uint32_t i = 0; i < cut->count && rc == 0; i++) {
        if (cut->versions[i] != cut->again[i]) {
            remo_nodeset_add(&cut->changing, tree->owners[cut->first + i]);
            cut->is_instant = false;
        }
        cut->has_all = cut->has_all && cut->versions[i] > 0;
    }
    return rc;
}

/* Ask an owner to delay changes, and to reply with its version. */
static int call_freeze(struct remo_tree *tree, uint32_t owner, uint64_t freeze_ns, uint64_t *version) {
    if (owner == tree->node->rank)
        return remo__tree_freeze(tree, freeze_ns, version);
    int rc = remo_rpc_call(tree->rpc, owner, TREE_FREEZE, &freeze_ns, sizeof freeze_ns, version,
                           sizeof *version, NULL, tree->node->op_timeout_ns / FREEZE_TIMEOUT_PART);
    if (rc > 0)
        return remo__fail(-rc, "node %u could not delay the changes of tree %s: %s", owner,
                          remo_channel_name(tree->channel), strerror(rc));
    return rc;
}

/* Freeze the owners whose versions change. An owner that does not reply is probably paused, and its version
 * is constant: the comparison of versions decides. */
static int freeze(struct remo_tree *tree, struct tree_cut *cut, uint64_t freeze_ns) {
    int rc = 0;
    for (uint32_t i = 0; i < cut->count && rc == 0; i++) {
        uint32_t owner = tree->owners[cut->first + i];
        if (!remo_nodeset_has(&cut->changing, owner))
            continue;
        remo_nodeset_add(&cut->frozen, owner);
        rc = call_freeze(tree, owner, freeze_ns, &cut->versions[i]);
        if (rc == -ETIMEDOUT) {
            remo_nodeset_remove(&cut->changing, owner);
            remo_nodeset_remove(&cut->frozen, owner); /* a thaw could wait for room in its ring */
            rc = 0;
        }
    }
    return rc;
}

/* If a thaw is lost, the freeze ends when its time has passed. */
static void thaw(struct remo_tree *tree, struct tree_cut *cut) {
    for (uint32_t i = 0; i < cut->count; i++) {
        uint32_t owner = tree->owners[cut->first + i];
        if (!remo_nodeset_has(&cut->frozen, owner))
            continue;
        if (owner == tree->node->rank)
            remo__tree_thaw(tree);
        else
            (void)remo_rpc_post(tree->rpc, owner, TREE_THAW, NULL, 0);
    }
    cut->frozen = (struct remo_nodeset){0};
}

int remo__tree_find_cut(struct remo_tree *tree, struct tree_cut *cut, uint32_t attempt) {
    int rc = read_versions(tree, cut, cut->versions);
    if (rc != 0 || cut->count == 1) {
        cut->is_instant = true;
        cut->has_all = cut->versions[0] > 0;
        return rc;
    }
    if (attempt < READ_ATTEMPTS)
        return compare_versions(tree, cut);
    rc = freeze(tree, cut, FREEZE_NS << remo__min(attempt - READ_ATTEMPTS, 10));
    if (rc == 0)
        rc = compare_versions(tree, cut);
    thaw(tree, cut);
    return rc;
}

int remo__tree_fail_outrun(const struct remo_tree *tree) {
    return remo__fail(
        -ETIMEDOUT,
        "cannot scan tree %s: an owner has not opened it, or owners change it faster than it can be read; "
        "wait for the owners, open the tree with a larger retain, or scan less at once",
        remo_channel_name(tree->channel));
}

void remo__tree_await_roots(struct remo_tree *tree, uint64_t deadline_ns) {
    remo__pause(tree->node, remo__min(deadline_ns, remo__deadline(PAUSE_NS)));
}

int remo_tree_snapshot(struct remo_tree *tree, uint64_t *ret_versions) {
    REMO__REQUIRE(tree);
    REMO__REQUIRE(ret_versions);
    uint64_t again[REMO_NODES_MAX], deadline_ns = remo__deadline(tree->node->op_timeout_ns);
    struct tree_cut cut = {.count = tree->owner_count, .versions = ret_versions, .again = again};
    int rc = remo__tree_check_options(tree);
    for (uint32_t attempt = 0; rc == 0; attempt++) {
        rc = remo__tree_find_cut(tree, &cut, attempt);
        if (rc != 0 || (cut.is_instant && cut.has_all))
            return rc;
        if (remo__remaining_ns(deadline_ns) == 0)
            return remo__tree_fail_outrun(tree);
        if (!cut.has_all)
            remo__tree_await_roots(tree, deadline_ns);
    }
    return rc;
}

uint32_t remo_tree_owners(const struct remo_tree *tree) {
    return tree ? tree->owner_count : 0;
}
