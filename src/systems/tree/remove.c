/* remove.c - removals of ranges, at the calling node: a call for some keys, until an owner has no more.
 * Invariant: the owner executes each call at one instant, and replies where the rest of the range begins.
 * Keys that are inserted before that place do not prolong the removal. docs/internals/tree.md has more. */
#include <string.h>

#include "systems/tree/tree.h"

#define LOCAL_PAUSE_NS (5 * REMO__NS_PER_US)

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
        if (owner == tree->node->rank) /* let other threads and tasks have the mutex */
            remo__pause(tree->node, remo__deadline(LOCAL_PAUSE_NS));
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
