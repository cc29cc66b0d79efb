/* change.c - changes, at the calling node: applied at once if it owns the key, otherwise by a call to the
 * owner. Invariant: a change is repeated only if the owner has delayed it, and so has not made it.
 * docs/internals/tree.md describes the protocol. */
#include <string.h>

#include "systems/tree/tree.h"

#define FROZEN_PAUSE_NS (20 * REMO__NS_PER_US)

static int fail_change(const struct remo_tree *tree, int rc, uint32_t owner) {
    switch (rc) {
    case -EEXIST: return remo__fail_static(rc, "the tree has this key already; update or upsert it");
    case -ENOENT: return remo__fail_static(rc, "the tree has no such key");
    case -ENOSPC:
        return remo__fail_static(
            rc, "the owner of the key has no free node: open the tree with more nodes, or remove keys");
    default:
        return remo__fail(rc, "node %u could not change tree %s: %s", owner, remo_channel_name(tree->channel),
                          strerror(-rc));
    }
}

static int check_value(const struct remo_tree *tree, const void *value, size_t value_bytes) {
    if (!value && value_bytes > 0)
        return remo__fail(-EINVAL, "the value for tree %s is NULL", remo_channel_name(tree->channel));
    if (value_bytes > tree->value_bytes_max)
        return remo__fail(-EINVAL, "a value of %zu bytes is too long for tree %s: the maximum is %u",
                          value_bytes, remo_channel_name(tree->channel), tree->value_bytes_max);
    return 0;
}

/* Return the status of the handler, or a negative error of the call. */
static int call(struct remo_tree *tree, uint32_t owner, enum tree_op op, struct tree_bytes key,
                struct tree_bytes value) {
    char request[REMO_RPC_BYTES_MAX];
    struct tree_request header = {
        .op = (uint8_t)op, .key_bytes = (uint16_t)key.bytes, .value_bytes = (uint16_t)value.bytes};
    memcpy(request, &header, sizeof header);
    if (key.bytes > 0)
        memcpy(request + sizeof header, key.data, key.bytes);
    if (value.bytes > 0)
        memcpy(request + sizeof header + key.bytes, value.data, value.bytes);
    return remo_rpc_call(tree->rpc, owner, TREE_CHANGE, request, sizeof header + key.bytes + value.bytes,
                         NULL, 0, NULL, tree->node->op_timeout_ns);
}

/* Try the change once. Returns TREE_FROZEN if scans delay changes. */
static int try_change(struct remo_tree *tree, uint32_t owner, enum tree_op op, struct tree_bytes key,
                      struct tree_bytes value) {
    int rc = 0;
    if (owner != tree->node->rank) {
        rc = call(tree, owner, op, key, value);
        return rc > 0 && rc != TREE_FROZEN ? fail_change(tree, -rc, owner) : rc;
    }
    rc = remo__tree_apply(tree, op, key, value);
    return rc == -EEXIST || rc == -ENOENT || rc == -ENOSPC ? fail_change(tree, rc, owner) : rc;
}

static int change(struct remo_tree *tree, enum tree_op op, const void *key, size_t key_bytes,
                  const void *value, size_t value_bytes) {
    REMO__REQUIRE(tree);
    int rc = remo__tree_check_key(tree, key, key_bytes);
    if (rc == 0)
        rc = check_value(tree, value, value_bytes);
    if (rc == 0)
        rc = remo__tree_check_options(tree);
    if (rc != 0)
        return rc;
    struct tree_bytes the_key = {key, (uint32_t)key_bytes}, the_value = {value, (uint32_t)value_bytes};
    uint32_t owner = remo_tree_owner(tree, key, key_bytes);
    uint64_t deadline_ns = 0;
    for (;;) {
        rc = try_change(tree, owner, op, the_key, the_value);
        if (rc != TREE_FROZEN)
            return rc;
        if (deadline_ns == 0)
            deadline_ns = remo__deadline(tree->node->op_timeout_ns);
        else if (remo__remaining_ns(deadline_ns) == 0)
            return remo__fail(-EBUSY,
                              "cannot change tree %s: scans delay changes at node %u; retry the change",
                              remo_channel_name(tree->channel), owner);
        remo__pause(tree->node, remo__min(deadline_ns, remo__deadline(FROZEN_PAUSE_NS)));
    }
}

int remo_tree_insert(struct remo_tree *tree, const void *key, size_t key_bytes, const void *value,
                     size_t value_bytes) {
    return change(tree, TREE_INSERT, key, key_bytes, value, value_bytes);
}

int remo_tree_update(struct remo_tree *tree, const void *key, size_t key_bytes, const void *value,
                     size_t value_bytes) {
    return change(tree, TREE_UPDATE, key, key_bytes, value, value_bytes);
}

int remo_tree_upsert(struct remo_tree *tree, const void *key, size_t key_bytes, const void *value,
                     size_t value_bytes) {
    return change(tree, TREE_UPSERT, key, key_bytes, value, value_bytes);
}

int remo_tree_remove(struct remo_tree *tree, const void *key, size_t key_bytes) {
    return change(tree, TREE_REMOVE, key, key_bytes, NULL, 0);
}
