/* range.c - the limits of ranges of keys.
 * Invariant: a range that has been checked is {keys k: from <= k < to}, and `from` and `to` have at most one
 * byte more than a key. */
#include <string.h>

#include "systems/tree/tree.h"

/* A key that is excluded at the beginning, or included at the end, is extended by a zero: the result is the
 * next possible key. */
static struct tree_bytes limit_of(const struct remo_tree_key *key, char *extended, bool is_extended) {
    uint32_t bytes = key->data ? (uint32_t)key->bytes : 0;
    if (!is_extended || !key->data)
        return (struct tree_bytes){key->data, bytes};
    memcpy(extended, key->data, bytes);
    extended[bytes] = 0;
    return (struct tree_bytes){extended, bytes + 1};
}

static int check(const struct remo_tree *tree, const struct remo_tree_range *range) {
    struct tree_bytes from = {range->from.data, (uint32_t)range->from.bytes},
                      to = {range->to.data, (uint32_t)range->to.bytes};
    int rc = remo__tree_check_key(tree, range->from.data, range->from.data ? range->from.bytes : 0);
    if (rc == 0)
        rc = remo__tree_check_key(tree, range->to.data, range->to.data ? range->to.bytes : 0);
    if (rc == 0 && range->flags & ~REMO_TREE_FLAGS)
        rc = remo__fail(-EINVAL, "the range of tree %s has unknown flags %#x",
                        remo_channel_name(tree->channel), range->flags);
    if (rc == 0 && from.data && to.data && remo__tree_compare(from, to) > 0)
        rc = remo__fail(-EINVAL, "the range of tree %s is wrong: `from` is after `to`",
                        remo_channel_name(tree->channel));
    return rc == 0 ? remo__tree_check_options(tree) : rc;
}

int remo__tree_limits(const struct remo_tree *tree, const struct remo_tree_range *range,
                      struct tree_limits *ret_limits) {
    int rc = check(tree, range);
    if (rc != 0)
        return rc;
    ret_limits->from =
        limit_of(&range->from, ret_limits->extended[0], range->flags & REMO_TREE_FROM_EXCLUDED);
    ret_limits->to = limit_of(&range->to, ret_limits->extended[1], range->flags & REMO_TREE_TO_INCLUDED);
    ret_limits->has_to = range->to.data != NULL;
    return 0;
}
