/* serve.c - handlers of calls, at the owner; freezes, which delay changes; statistics.
 * Invariant: a handler checks the complete request before it changes anything, and does not wait for the
 * network. docs/internals/tree.md describes the protocol. */
#include <string.h>

#include "systems/tree/tree.h"

/* ---- changes ---- */

/* Return whether this node can make the write. */
static bool is_valid(const struct remo_tree *tree, const struct tree_write *write) {
    return write->op < TREE_OPS && write->key.bytes <= tree->key_bytes_max
           && write->value.bytes <= tree->value_bytes_max && write->expected.bytes <= tree->value_bytes_max
           && (write->op == TREE_COMPARE_PUT || write->expected.bytes == 0)
           && tree->owners[remo__tree_position(tree, write->key)] == tree->node->rank;
}

/* The key, the value and the expected value follow each other at `data`. */
static struct tree_write write_at(uint8_t op, const char *data, uint32_t key_bytes, uint32_t value_bytes,
                                  uint32_t expected_bytes) {
    return (struct tree_write){.op = (enum tree_op)op,
                               .key = {data, key_bytes},
                               .value = {data + key_bytes, value_bytes},
                               .expected = {data + key_bytes + value_bytes, expected_bytes}};
}

/* Return false if the request is not valid. */
static bool decode(const struct remo_tree *tree, const struct remo_rpc_request *request,
                   struct tree_write *ret_write) {
    struct tree_request header;
    if (!tree->own || request->bytes < sizeof header)
        return false;
    memcpy(&header, request->data, sizeof header);
    size_t bytes = request->bytes - sizeof header, used = (size_t)header.key_bytes + header.value_bytes;
    if (bytes < used)
        return false;
    *ret_write = write_at(header.op, (const char *)request->data + sizeof header, header.key_bytes,
                          header.value_bytes, (uint32_t)(bytes - used));
    return is_valid(tree, ret_write);
}

int remo__tree_serve(void *ctx, const struct remo_rpc_request *request) {
    struct remo_tree *tree = ctx;
    struct tree_write write;
    if (!decode(tree, request, &write))
        return EPROTO;
    int rc = remo__tree_change(tree, &write);
    return rc == TREE_FROZEN ? rc : -rc;
}

uint32_t remo__tree_decode_apply(const struct remo_tree *tree, const void *data, size_t bytes,
                                 struct tree_write writes[REMO_TREE_WRITES_MAX]) {
    const char *at = data, *end = at + bytes;
    struct tree_part part;
    uint32_t count = 0;
    while (at < end) {
        if (count == REMO_TREE_WRITES_MAX || (size_t)(end - at) < sizeof part)
            return 0;
        memcpy(&part, at, sizeof part);
        at += sizeof part;
        size_t part_bytes = (size_t)part.key_bytes + part.value_bytes + part.expected_bytes;
        if ((size_t)(end - at) < part_bytes)
            return 0;
        writes[count] = write_at(part.op, at, part.key_bytes, part.value_bytes, part.expected_bytes);
        if (!is_valid(tree, &writes[count++]))
            return 0;
        at += part_bytes;
    }
    return count;
}

int remo__tree_serve_apply(void *ctx, const struct remo_rpc_request *request) {
    struct remo_tree *tree = ctx;
    struct tree_write writes[REMO_TREE_WRITES_MAX];
    uint32_t failed, count = 0;
    if (tree->own)
        count = remo__tree_decode_apply(tree, request->data, request->bytes, writes);
    if (count == 0)
        return EPROTO;
    int rc = remo__tree_apply(tree, writes, count, &failed);
    if (rc != TREE_FROZEN) /* if it cannot reply, the service replies with the status alone */
        (void)remo_rpc_reply(request, -rc, &failed, sizeof failed);
    return rc == TREE_FROZEN ? rc : -rc;
}

bool remo__tree_decode_remove(const struct remo_tree *tree, const void *data, size_t bytes,
                              struct tree_removal *ret_removal) {
    struct tree_range_request header;
    if (bytes < sizeof header)
        return false;
    memcpy(&header, data, sizeof header);
    const char *from = (const char *)data + sizeof header;
    bytes -= sizeof header;
    if (header.from_bytes > bytes || header.from_bytes > tree->key_bytes_max + 1
        || bytes - header.from_bytes > tree->key_bytes_max + 1 || header.limit == 0 || header.has_to > 1
        || (!header.has_to && bytes != header.from_bytes))
        return false;
    *ret_removal =
        (struct tree_removal){.from = {from, header.from_bytes},
                              .to = {from + header.from_bytes, (uint32_t)bytes - header.from_bytes},
                              .has_to = header.has_to != 0,
                              .limit = header.limit};
    return tree->owners[remo__tree_position(tree, ret_removal->from)] == tree->node->rank;
}

int remo__tree_serve_remove(void *ctx, const struct remo_rpc_request *request) {
    struct remo_tree *tree = ctx;
    struct tree_removal removal;
    struct tree_removed removed;
    char data[sizeof(struct tree_range_reply) + sizeof removed.next];
    if (!tree->own || !remo__tree_decode_remove(tree, request->data, request->bytes, &removal))
        return EPROTO;
    int rc = remo__tree_remove_some(tree, &removal, &removed);
    if (rc != 0)
        return rc == TREE_FROZEN ? rc : -rc;
    struct tree_range_reply reply = {.count = removed.count, .is_done = removed.is_done};
    memcpy(data, &reply, sizeof reply);
    memcpy(data + sizeof reply, removed.next, removed.next_bytes);
    rc = remo_rpc_reply(request, 0, data, sizeof reply + removed.next_bytes);
    return rc == 0 ? 0 : ENOMEM;
}

/* ---- freeze ---- */

int remo__tree_freeze(struct remo_tree *tree, uint64_t freeze_ns, uint64_t *ret_version) {
    struct tree_owner *own = tree->own;
    int rc = remo__mutex_lock(tree->node, &own->mutex, REMO_FOREVER); /* held for copies only */
    if (rc != 0)
        return rc;
    if (remo__remaining_ns(own->frozen_until_ns) == 0)
        own->freezes = 0; /* their time has passed without a thaw */
    own->freezes++;
    own->frozen_until_ns =
        remo__max(own->frozen_until_ns, remo__deadline(remo__min(freeze_ns, TREE_FREEZE_NS_MAX)));
    rc = remo_versioned_version(tree->nodes, tree->node->rank, ret_version);
    remo__mutex_unlock(tree->node, &own->mutex);
    return rc;
}

void remo__tree_thaw(struct remo_tree *tree) {
    struct tree_owner *own = tree->own;
    if (remo__mutex_lock(tree->node, &own->mutex, REMO_FOREVER) != 0)
        return;
    if (own->freezes > 0 && --own->freezes == 0)
        own->frozen_until_ns = 0;
    remo__mutex_unlock(tree->node, &own->mutex);
}

int remo__tree_serve_freeze(void *ctx, const struct remo_rpc_request *request) {
    struct remo_tree *tree = ctx;
    uint64_t freeze_ns, version;
    if (!tree->own || request->bytes != sizeof freeze_ns)
        return EPROTO;
    memcpy(&freeze_ns, request->data, sizeof freeze_ns);
    int rc = remo__tree_freeze(tree, freeze_ns, &version);
    return rc == 0 ? remo_rpc_reply(request, 0, &version, sizeof version) : -rc;
}

int remo__tree_serve_thaw(void *ctx, const struct remo_rpc_request *request) {
    struct remo_tree *tree = ctx;
    (void)request;
    if (tree->own)
        remo__tree_thaw(tree);
    return 0;
}

/* ---- statistics ---- */

int remo_tree_stats(struct remo_tree *tree, struct remo_tree_owner_stats *ret_stats) {
    REMO__REQUIRE(tree);
    REMO__REQUIRE(ret_stats);
    struct tree_owner *own = tree->own;
    struct remo_tree_owner_stats stats = {.nodes_max = tree->node_count};
    struct tree_header root;
    if (!own)
        return remo__fail(-EPERM, "this node is not an owner of tree %s", remo_channel_name(tree->channel));
    int rc = remo__mutex_lock(tree->node, &own->mutex, REMO_FOREVER); /* held for copies only */
    if (rc != 0)
        return rc;
    stats.nodes = tree->node_count - own->free_count;
    rc = remo_versioned_read(tree->nodes, tree->node->rank, TREE_ROOT, own->scratch, NULL);
    memcpy(&root, own->scratch, sizeof root);
    stats.levels = root.level + 1u;
    if (rc == 0)
        rc = remo_versioned_version(tree->nodes, tree->node->rank, &stats.version);
    remo__mutex_unlock(tree->node, &own->mutex);
    if (rc == 0)
        *ret_stats = stats;
    return rc;
}
