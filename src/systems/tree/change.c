/* change.c - changes, at the calling node: made at once if it owns the key, otherwise by a call to the
 * owner. Invariant: a change is repeated only if the owner has delayed it, and so has not made it.
 * docs/internals/tree.md describes the protocol. */
#include <string.h>

#include "systems/tree/tree.h"

#define LOCAL_PAUSE_NS (5 * REMO__NS_PER_US)

/* Return the cause of a failed change and the remedy, or NULL for other codes. */
static const char *reason_of(int rc) {
    switch (rc) {
    case -EEXIST: return "the tree has this key already; update or upsert it";
    case -ENOENT: return "the tree has no such key";
    case -ESTALE: return "the value is not the expected one; get it, and compare again";
    case -ENOSPC:
        return "the owner of the key has no free node, or its tree has 16 levels: remove keys, or open the "
               "tree with more nodes or with larger ones";
    case -EMSGSIZE:
        return "the writes change too many nodes of the tree; apply fewer writes at once, or open the tree "
               "with a larger retain";
    case -ENOMEM: return "the owner has no memory for the change; free memory there, and repeat the change";
    case -EPROTO: return "the owner refused the request, or its tree is damaged; start the job again";
    default: return NULL;
    }
}

int remo__tree_fail_change(const struct remo_tree *tree, int rc, uint32_t owner) {
    const char *reason = reason_of(rc);
    if (rc == -EEXIST || rc == -ENOENT || rc == -ESTALE || rc == -ENOSPC)
        return remo__fail_static(rc, reason);
    return remo__fail(rc, "node %u cannot change tree %s: %s%s", owner, remo_channel_name(tree->channel),
                      reason ? reason : strerror(-rc),
                      reason ? "" : "; nothing has changed: repeat the change");
}

static int check_value(const struct remo_tree *tree, const void *value, size_t value_bytes) {
    if (!value && value_bytes > 0)
        return remo__fail(-EINVAL, "the value for tree %s is NULL", remo_channel_name(tree->channel));
    if (value_bytes > tree->value_bytes_max)
        return remo__fail(-EINVAL, "a value of %zu bytes is too long for tree %s: the maximum is %u",
                          value_bytes, remo_channel_name(tree->channel), tree->value_bytes_max);
    return 0;
}

/* ---- requests ---- */

static char *put_bytes(char *to, struct tree_bytes bytes) {
    if (bytes.bytes > 0)
        memcpy(to, bytes.data, bytes.bytes);
    return to + bytes.bytes;
}

static char *put_write(char *to, const struct tree_write *write) {
    return put_bytes(put_bytes(put_bytes(to, write->key), write->value), write->expected);
}

static size_t bytes_of(const struct tree_write *write) {
    return (size_t)write->key.bytes + write->value.bytes + write->expected.bytes;
}

/* One or more writes of one owner. */
struct change {
    uint32_t owner;
    const struct tree_write *writes;
    uint32_t count;  /* 0: one write, of TREE_CHANGE */
    uint32_t failed; /* after an error of an apply: the index of the write that caused it, or `count` */
};

size_t remo__tree_encode_change(const struct tree_write *write, char *request) {
    struct tree_request header = {.op = (uint8_t)write->op,
                                  .key_bytes = (uint16_t)write->key.bytes,
                                  .value_bytes = (uint16_t)write->value.bytes};
    memcpy(request, &header, sizeof header);
    return (size_t)(put_write(request + sizeof header, write) - request);
}

/* Return the status of the handler, or a negative error of the call. */
static int call_change(struct remo_tree *tree, const struct change *change) {
    char request[REMO_RPC_BYTES_MAX];
    return remo_rpc_call(tree->rpc, change->owner, TREE_CHANGE, request,
                         remo__tree_encode_change(change->writes, request), NULL, 0, NULL,
                         tree->node->op_timeout_ns);
}

static int call_apply(struct remo_tree *tree, struct change *change) {
    char request[REMO_RPC_BYTES_MAX], *at = request;
    for (uint32_t i = 0; i < change->count; i++) {
        const struct tree_write *write = &change->writes[i];
        struct tree_part part = {.op = (uint8_t)write->op,
                                 .key_bytes = (uint16_t)write->key.bytes,
                                 .value_bytes = (uint16_t)write->value.bytes,
                                 .expected_bytes = (uint16_t)write->expected.bytes};
        memcpy(at, &part, sizeof part);
        at = put_write(at + sizeof part, write);
    }
    change->failed = change->count;
    return remo_rpc_call(tree->rpc, change->owner, TREE_APPLY, request, (size_t)(at - request),
                         &change->failed, sizeof change->failed, NULL, tree->node->op_timeout_ns);
}

static int fail_apply(const struct remo_tree *tree, int rc, const struct change *change) {
    const char *reason = reason_of(rc);
    if (change->failed >= change->count)
        return remo__tree_fail_change(tree, rc, change->owner);
    return remo__fail(rc, "cannot apply %u writes to tree %s, none was made: write %u failed: %s",
                      change->count, remo_channel_name(tree->channel), change->failed,
                      reason ? reason : strerror(-rc));
}

int remo__tree_end_call(const struct remo_tree *tree, int rc, uint32_t owner) {
    return rc <= 0 || rc == TREE_FROZEN ? rc : remo__tree_fail_change(tree, -rc, owner);
}

int remo__tree_change_own(struct remo_tree *tree, const struct tree_write *write) {
    int rc = remo__tree_change(tree, write);
    remo__tree_serve_now(tree);
    return rc == -EEXIST || rc == -ENOENT || rc == -ESTALE || rc == -ENOSPC
               ? remo__tree_fail_change(tree, rc, tree->node->rank)
               : rc;
}

/* Try all writes of an apply once. Returns TREE_FROZEN if scans delay changes. */
static int try_apply(struct remo_tree *tree, struct change *change) {
    int rc;
    if (change->owner != tree->node->rank) {
        rc = call_apply(tree, change);
        return rc <= 0 || rc == TREE_FROZEN ? rc : fail_apply(tree, -rc, change);
    }
    rc = remo__tree_apply(tree, change->writes, change->count, &change->failed);
    remo__tree_serve_now(tree);
    return rc < 0 && rc != -EPROTO ? fail_apply(tree, rc, change) : rc;
}

/* Try the change once. Returns TREE_FROZEN if scans delay changes. */
static int try_change(struct remo_tree *tree, void *ctx) {
    struct change *change = ctx;
    if (change->count > 0)
        return try_apply(tree, change);
    return change->owner == tree->node->rank
               ? remo__tree_change_own(tree, change->writes)
               : remo__tree_end_call(tree, call_change(tree, change), change->owner);
}

int remo__tree_fail_frozen(const struct remo_tree *tree, uint32_t owner) {
    return remo__fail(-EBUSY, "cannot change tree %s: scans delay changes at node %u; retry the change",
                      remo_channel_name(tree->channel), owner);
}

int remo__tree_until_thawed(struct remo_tree *tree, uint32_t owner,
                            int (*attempt)(struct remo_tree *, void *ctx), void *ctx) {
    uint64_t deadline_ns = 0;
    for (;;) {
        int rc = attempt(tree, ctx);
        if (rc != TREE_FROZEN)
            return rc;
        if (deadline_ns == 0)
            deadline_ns = remo__deadline(tree->node->op_timeout_ns);
        else if (remo__remaining_ns(deadline_ns) == 0)
            return remo__tree_fail_frozen(tree, owner);
        remo__pause(tree->node, remo__min(deadline_ns, remo__deadline(TREE_FROZEN_PAUSE_NS)));
    }
}

void remo__tree_let_others(const struct remo_tree *tree) {
    remo__tree_serve_now(tree);
    remo__pause(tree->node, remo__deadline(LOCAL_PAUSE_NS));
}

static int make_change(struct remo_tree *tree, struct change *change) {
    return remo__tree_until_thawed(tree, change->owner, try_change, change);
}

/* ---- one write ---- */

int remo__tree_take_write(const struct remo_tree *tree, const struct remo_tree_write *from,
                          struct tree_write *ret_write) {
    bool has_value = from->kind != REMO_TREE_REMOVE, has_expected = from->kind == REMO_TREE_COMPARE_PUT;
    if ((uint32_t)from->kind >= TREE_OPS)
        return remo__fail(-EINVAL, "a write for tree %s has the unknown kind %u; use a kind of remo/tree.h",
                          remo_channel_name(tree->channel), (uint32_t)from->kind);
    int rc = remo__tree_check_key(tree, from->key.data, from->key.bytes);
    if (rc == 0 && has_value)
        rc = check_value(tree, from->value.data, from->value.bytes);
    if (rc == 0 && has_expected)
        rc = check_value(tree, from->expected.data, from->expected.bytes);
    if (rc != 0)
        return rc;
    *ret_write = (struct tree_write){.op = (enum tree_op)from->kind,
                                     .key = {from->key.data, (uint32_t)from->key.bytes}};
    if (has_value)
        ret_write->value = (struct tree_bytes){from->value.data, (uint32_t)from->value.bytes};
    if (has_expected)
        ret_write->expected = (struct tree_bytes){from->expected.data, (uint32_t)from->expected.bytes};
    return 0;
}

int remo__tree_take_change(const struct remo_tree *tree, const struct remo_tree_write *from,
                           struct tree_write *ret_write) {
    int rc = remo__tree_take_write(tree, from, ret_write);
    if (rc == 0 && remo__unlikely(sizeof(struct tree_request) + bytes_of(ret_write) > REMO_RPC_BYTES_MAX))
        rc = remo__fail(-EMSGSIZE,
                        "cannot compare and put in tree %s: the key and both values have %zu bytes, and the "
                        "maximum is %zu; use shorter values",
                        remo_channel_name(tree->channel), bytes_of(ret_write),
                        REMO_RPC_BYTES_MAX - sizeof(struct tree_request));
    return rc == 0 ? remo__tree_check_options(tree) : rc;
}

static int change(struct remo_tree *tree, const struct remo_tree_write *from) {
    struct tree_write write;
    REMO__REQUIRE(tree);
    int rc = remo__tree_take_change(tree, from, &write);
    if (rc != 0)
        return rc;
    struct change change = {.owner = remo_tree_owner(tree, from->key.data, from->key.bytes),
                            .writes = &write};
    return make_change(tree, &change);
}

int remo_tree_insert(struct remo_tree *tree, const void *key, size_t key_bytes, const void *value,
                     size_t value_bytes) {
    return change(tree,
                  &(struct remo_tree_write){REMO_TREE_INSERT, {key, key_bytes}, {value, value_bytes}, {0}});
}

int remo_tree_update(struct remo_tree *tree, const void *key, size_t key_bytes, const void *value,
                     size_t value_bytes) {
    return change(tree,
                  &(struct remo_tree_write){REMO_TREE_UPDATE, {key, key_bytes}, {value, value_bytes}, {0}});
}

int remo_tree_upsert(struct remo_tree *tree, const void *key, size_t key_bytes, const void *value,
                     size_t value_bytes) {
    return change(tree,
                  &(struct remo_tree_write){REMO_TREE_UPSERT, {key, key_bytes}, {value, value_bytes}, {0}});
}

int remo_tree_remove(struct remo_tree *tree, const void *key, size_t key_bytes) {
    return change(tree, &(struct remo_tree_write){REMO_TREE_REMOVE, {key, key_bytes}, {0}, {0}});
}

int remo_tree_compare_put(struct remo_tree *tree, const void *key, size_t key_bytes, const void *expected,
                          size_t expected_bytes, const void *value, size_t value_bytes) {
    return change(
        tree, &(struct remo_tree_write){
                  REMO_TREE_COMPARE_PUT, {key, key_bytes}, {value, value_bytes}, {expected, expected_bytes}});
}

/* ---- several writes ---- */

/* Check all writes. After an error change->failed is the index of the write that caused it, or `count`. */
static int take_writes(const struct remo_tree *tree, const struct remo_tree_write *from,
                       struct tree_write *writes, struct change *change) {
    size_t bytes = 0;
    for (uint32_t i = 0; i < change->count; i++) {
        change->failed = i;
        int rc = remo__tree_take_write(tree, &from[i], &writes[i]);
        if (rc != 0)
            return rc;
        uint32_t owner = remo_tree_owner(tree, from[i].key.data, from[i].key.bytes);
        if (i == 0)
            change->owner = owner;
        if (owner != change->owner)
            return remo__fail(
                -EXDEV,
                "cannot apply writes to tree %s: node %u owns the key of write %u, node %u that of "
                "write 0; apply the writes of each owner separately",
                remo_channel_name(tree->channel), owner, i, change->owner);
        bytes += sizeof(struct tree_part) + bytes_of(&writes[i]);
    }
    change->failed = change->count;
    if (bytes > REMO_RPC_BYTES_MAX)
        return remo__fail(
            -EMSGSIZE,
            "cannot apply %u writes to tree %s: they have %zu bytes, including %zu for each write, and the "
            "maximum is %u; apply fewer at once",
            change->count, remo_channel_name(tree->channel), bytes, sizeof(struct tree_part),
            REMO_RPC_BYTES_MAX);
    return 0;
}

static int apply(struct remo_tree *tree, const struct remo_tree_write *from, struct change *change) {
    struct tree_write writes[REMO_TREE_WRITES_MAX];
    if (change->count == 0 || change->count > REMO_TREE_WRITES_MAX)
        return remo__fail(-EINVAL, "cannot apply %u writes to tree %s: the count must be from 1 to %u",
                          change->count, remo_channel_name(tree->channel), REMO_TREE_WRITES_MAX);
    change->writes = writes;
    int rc = take_writes(tree, from, writes, change);
    if (rc == 0)
        rc = remo__tree_check_options(tree);
    return rc == 0 ? make_change(tree, change) : rc;
}

int remo_tree_apply(struct remo_tree *tree, const struct remo_tree_write *writes, uint32_t count,
                    uint32_t *ret_failed) {
    if (ret_failed)
        *ret_failed = count;
    REMO__REQUIRE(tree);
    REMO__REQUIRE(writes);
    struct change change = {.count = count, .failed = count};
    int rc = apply(tree, writes, &change);
    if (ret_failed && rc != 0)
        *ret_failed = (uint32_t)remo__min(change.failed, count);
    return rc;
}
