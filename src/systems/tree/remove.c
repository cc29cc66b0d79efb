/* remove.c - removals of ranges: the calling node calls an owner for some keys, until the owner has no more.
 * Invariant: the owner executes each call at one instant, and replies where the rest of the range begins.
 * Keys that are inserted before that place do not prolong the removal. docs/internals/tree.md has more. */
#include <string.h>

#include "systems/tree/tree.h"

/* ---- at the owner ---- */

static void set_next(struct tree_removed *removed, struct tree_bytes key) {
    if (key.bytes > 0)
        memmove(removed->next, key.data, key.bytes);
    removed->next_bytes = key.bytes;
}

/* Return whether the keys from removed->next on are not in the range, or not of this owner. */
static bool is_after(const struct remo_tree *tree, const struct tree_removal *removal,
                     const struct tree_removed *removed) {
    struct tree_bytes next = {removed->next, removed->next_bytes};
    return (removal->has_to && remo__tree_compare(next, removal->to) >= 0)
           || tree->owners[remo__tree_position(tree, next)] != tree->node->rank;
}

/* Set removed->next to the first key of the range from there on. If there is none, set removed->is_done. */
static int find_next(struct remo_tree *tree, const struct tree_removal *removal,
                     struct tree_removed *removed) {
    uint32_t node_bytes = tree->node_bytes;
    while (!is_after(tree, removal, removed)) {
        struct tree_bytes next = {removed->next, removed->next_bytes}, high;
        struct tree_entry entry;
        struct tree_walk walk;
        int rc = remo__tree_descend(tree, next);
        if (rc != 0)
            return rc;
        const void *leaf = tree->own->steps[tree->own->depth - 1].image;
        int found =
            remo__tree_walk_begin(&walk, leaf, node_bytes, &next) ? remo__tree_walk_next(&walk, &entry) : -1;
        if (found < 0)
            return remo__tree_fail_damaged(tree);
        if (found > 0) {
            if (entry.key.bytes > tree->key_bytes_max || !remo__tree_node_covers(leaf, node_bytes, entry.key))
                return remo__tree_fail_damaged(tree);
            set_next(removed, entry.key);
            removed->is_done = is_after(tree, removal, removed);
            return 0;
        }
        if (!remo__tree_node_high(leaf, node_bytes, &high))
            break;
        if (high.bytes > tree->key_bytes_max || remo__tree_compare(high, next) <= 0)
            return remo__tree_fail_damaged(tree);
        set_next(removed, high);
    }
    removed->is_done = true;
    return 0;
}

/* Remove up to `limit` keys in one commit. */
static int remove_batch(struct remo_tree *tree, const struct tree_removal *removal, uint32_t limit,
                        struct tree_removed *removed) {
    int rc = 0;
    *removed = (struct tree_removed){.count = 0};
    set_next(removed, removal->from);
    while (rc == 0 && removed->count < limit) {
        rc = find_next(tree, removal, removed);
        if (rc != 0 || removed->is_done)
            break;
        struct tree_write write = {.op = TREE_REMOVE, .key = {removed->next, removed->next_bytes}};
        rc = remo__tree_change_in_overlay(tree, &write);
        removed->next[removed->next_bytes++] = 0; /* the next possible key */
        removed->count += rc == 0;
    }
    rc = remo__tree_end_overlay(tree, rc);
    /* Each key was found, so -ENOENT shows damage. */
    return rc == -ENOENT ? remo__tree_fail_damaged(tree) : rc;
}

int remo__tree_remove_some(struct remo_tree *tree, const struct tree_removal *removal,
                           struct tree_removed *ret_removed) {
    struct tree_owner *own = tree->own;
    uint32_t limit = (uint32_t)remo__min(removal->limit, REMO_TREE_WRITES_MAX);
    int rc = remo__mutex_lock(tree->node, &own->mutex, REMO_FOREVER); /* held for copies only */
    if (rc != 0)
        return rc;
    rc = TREE_FROZEN;
    if (remo__remaining_ns(own->frozen_until_ns) == 0)
        while ((rc = remove_batch(tree, removal, limit, ret_removed)) == -EMSGSIZE && limit > 1)
            limit /= 2; /* a commit has a limit of nodes */
    remo__mutex_unlock(tree->node, &own->mutex);
    return rc;
}

/* ---- at the calling node ---- */

struct removing {
    uint32_t owner;
    struct tree_removal removal;
    struct tree_removed removed; /* by the last call */
};

static int fail_reply(const struct remo_tree *tree, uint32_t owner) {
    return remo__fail(-EPROTO, "node %u has sent a wrong reply for tree %s; start the job again", owner,
                      remo_channel_name(tree->channel));
}

static int decode(const struct remo_tree *tree, struct removing *removing, const char *data, size_t bytes) {
    struct tree_range_reply reply;
    struct tree_removed *removed = &removing->removed;
    if (bytes < sizeof reply || bytes - sizeof reply > tree->key_bytes_max + 1)
        return fail_reply(tree, removing->owner);
    memcpy(&reply, data, sizeof reply);
    removed->count = reply.count;
    removed->is_done = reply.is_done != 0;
    removed->next_bytes = (uint32_t)(bytes - sizeof reply);
    memcpy(removed->next, data + sizeof reply, removed->next_bytes);
    struct tree_bytes next = {removed->next, removed->next_bytes};
    bool has_progress =
        removed->is_done || (removed->count > 0 && remo__tree_compare(removing->removal.from, next) < 0);
    return removed->count <= removing->removal.limit && has_progress ? 0 : fail_reply(tree, removing->owner);
}

/* Returns TREE_FROZEN if scans delay changes. */
static int call(struct remo_tree *tree, struct removing *removing) {
    const struct tree_removal *removal = &removing->removal;
    char request[sizeof(struct tree_range_request) + 2 * (REMO_TREE_KEY_BYTES_MAX + 1)],
        reply[sizeof(struct tree_range_reply) + sizeof removing->removed.next];
    struct tree_range_request header = {.limit = (uint16_t)removal->limit,
                                        .from_bytes = (uint16_t)removal->from.bytes,
                                        .has_to = removal->has_to};
    size_t bytes = sizeof header, reply_bytes = 0;
    memcpy(request, &header, sizeof header);
    if (removal->from.bytes > 0)
        memcpy(request + bytes, removal->from.data, removal->from.bytes);
    bytes += removal->from.bytes;
    if (removal->has_to && removal->to.bytes > 0)
        memcpy(request + bytes, removal->to.data, removal->to.bytes);
    bytes += removal->has_to ? removal->to.bytes : 0;
    int rc = remo_rpc_call(tree->rpc, removing->owner, TREE_REMOVE_RANGE, request, bytes, reply, sizeof reply,
                           &reply_bytes, tree->node->op_timeout_ns);
    if (rc > 0 && rc != TREE_FROZEN)
        return remo__tree_fail_change(tree, -rc, removing->owner);
    return rc == 0 ? decode(tree, removing, reply, reply_bytes) : rc;
}

static int attempt(struct remo_tree *tree, void *ctx) {
    struct removing *removing = ctx;
    if (removing->owner != tree->node->rank)
        return call(tree, removing);
    int rc = remo__tree_remove_some(tree, &removing->removal, &removing->removed);
    return rc == -ENOMEM || rc == -EMSGSIZE ? remo__tree_fail_change(tree, rc, removing->owner) : rc;
}

/* Remove up to `limit` keys of an owner, and add their number to *count. */
static int remove_of_owner(struct remo_tree *tree, uint32_t owner, const struct tree_limits *limits,
                           uint64_t limit, uint64_t *count) {
    struct removing removing = {.owner = owner};
    char from[sizeof limits->extended[0]];
    struct tree_bytes next = limits->from;
    uint64_t end = *count + limit;
    do {
        removing.removal = (struct tree_removal){.from = next,
                                                 .to = limits->to,
                                                 .has_to = limits->has_to,
                                                 .limit = remo__min(end - *count, REMO_TREE_WRITES_MAX)};
        int rc = remo__tree_until_thawed(tree, owner, attempt, &removing);
        if (rc != 0)
            return rc;
        *count += removing.removed.count;
        if (owner == tree->node->rank)
            remo__tree_let_others(tree);
        memcpy(from, removing.removed.next, removing.removed.next_bytes);
        next = (struct tree_bytes){from, removing.removed.next_bytes};
    } while (!removing.removed.is_done && *count < end);
    return 0;
}

static int remove_range(struct remo_tree *tree, const struct remo_tree_range *range, uint64_t *count) {
    struct tree_limits limits = {.has_to = false};
    int rc = remo__tree_limits(tree, range, &limits);
    if (rc == 0 && (range->snapshot || range->flags & (REMO_TREE_DESCENDING | REMO_TREE_KEYS_ONLY)))
        rc = remo__fail(-EINVAL,
                        "cannot remove a range of tree %s as of a snapshot, descending, or keys only: unset "
                        "these fields of the range",
                        remo_channel_name(tree->channel));
    if (rc != 0 || (limits.has_to && remo__tree_compare(limits.from, limits.to) >= 0))
        return rc;
    uint64_t limit = range->limit ? range->limit : UINT64_MAX;
    uint32_t first = remo__tree_position(tree, limits.from);
    for (uint32_t i = first; i < tree->owner_count && *count < limit && rc == 0; i++) {
        if (i > first)
            limits.from = tree->boundaries[i - 1];
        if (limits.has_to && remo__tree_compare(limits.from, limits.to) >= 0)
            break;
        rc = remove_of_owner(tree, tree->owners[i], &limits, limit - *count, count);
    }
    return rc;
}

int remo_tree_remove_range(struct remo_tree *tree, const struct remo_tree_range *range, uint64_t *ret_count) {
    uint64_t count = 0;
    if (ret_count)
        *ret_count = 0;
    REMO__REQUIRE(tree);
    REMO__REQUIRE(range);
    int rc = remove_range(tree, range, &count);
    if (ret_count)
        *ret_count = count;
    return rc;
}
