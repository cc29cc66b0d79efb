/* tree.c - opens and closes trees.
 * Invariant: the type of the tree's channel contains all options. Nodes whose options differ do not connect
 * this channel, and then calls return -EPROTO (remo__tree_check_options). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "systems/tree/tree.h"

#define NODES_DEFAULT 1024u
#define NODE_BYTES_DEFAULT 4096u
#define KEY_BYTES_DEFAULT 64u
#define VALUE_BYTES_DEFAULT 256u
#define RETAIN_MIN (2 * TREE_DEPTH_MAX + 2) /* the most nodes that one change rewrites */

/* ---- options ---- */

static void set_defaults(struct remo_tree_options *options, const struct remo_nodeset *participants) {
    options->participants = *participants;
    if (remo_nodeset_empty(&options->owners))
        options->owners = *participants;
    options->nodes = options->nodes ? options->nodes : NODES_DEFAULT;
    options->node_bytes = options->node_bytes ? options->node_bytes : NODE_BYTES_DEFAULT;
    options->key_bytes_max = options->key_bytes_max ? options->key_bytes_max : KEY_BYTES_DEFAULT;
    options->value_bytes_max = options->value_bytes_max ? options->value_bytes_max : VALUE_BYTES_DEFAULT;
    options->retain = options->retain ? options->retain : options->nodes / 2 + 64;
}

static int check_options(const struct remo_tree_options *options) {
    if (options->node_bytes < TREE_NODE_BYTES_MIN || options->node_bytes > TREE_NODE_BYTES_MAX)
        return remo__fail(-EINVAL, "cannot open a tree with node_bytes = %u: it must be from %u to %u",
                          options->node_bytes, TREE_NODE_BYTES_MIN, TREE_NODE_BYTES_MAX);
    if (options->key_bytes_max > REMO_TREE_KEY_BYTES_MAX
        || options->value_bytes_max > REMO_TREE_VALUE_BYTES_MAX
        || options->key_bytes_max + options->value_bytes_max > options->node_bytes / TREE_ENTRIES_MIN)
        return remo__fail(
            -EINVAL,
            "cannot open a tree with keys of %u and values of %u bytes in nodes of %u bytes: the "
            "maxima are %u and %u, and an eighth of node_bytes for the sum",
            options->key_bytes_max, options->value_bytes_max, options->node_bytes, REMO_TREE_KEY_BYTES_MAX,
            REMO_TREE_VALUE_BYTES_MAX);
    if (options->key_bytes_max + options->value_bytes_max > REMO_RPC_BYTES_MAX - sizeof(struct tree_request))
        return remo__fail(-EINVAL,
                          "cannot open a tree with keys of %u and values of %u bytes: the maximum sum is %zu",
                          options->key_bytes_max, options->value_bytes_max,
                          REMO_RPC_BYTES_MAX - sizeof(struct tree_request));
    if (options->retain < RETAIN_MIN)
        return remo__fail(-EINVAL, "cannot open a tree with retain = %u: the minimum is %u", options->retain,
                          RETAIN_MIN);
    return 0;
}

/* ---- boundaries ---- */

static void list_owners(struct remo_tree *tree, const struct remo_nodeset *owners) {
    for (uint32_t node = 0; node < REMO_NODES_MAX; node++)
        if (remo_nodeset_has(owners, node))
            tree->owners[tree->owner_count++] = (uint16_t)node;
}

static int set_boundary(struct remo_tree *tree, uint32_t index, const void *data, size_t bytes) {
    char *copy = malloc(bytes + 1);
    if (!copy)
        return remo__fail(-ENOMEM, "no memory for a tree");
    memcpy(copy, data, bytes);
    tree->boundaries[index] = (struct tree_bytes){copy, (uint32_t)bytes};
    return 0;
}

static int set_even_boundary(struct remo_tree *tree, uint32_t index) {
    uint64_t first = (uint64_t)(((unsigned __int128)(index + 1) << 64) / tree->owner_count);
    unsigned char bytes[8];
    size_t count = 0; /* without trailing zeros: a shorter key counts as if zeros followed */
    for (uint32_t i = 0; i < remo__min(sizeof bytes, tree->key_bytes_max); i++) {
        bytes[i] = (unsigned char)(first >> (56 - 8 * i));
        count = bytes[i] ? i + 1 : count;
    }
    return set_boundary(tree, index, bytes, count);
}

static int set_boundaries(struct remo_tree *tree, const struct remo_tree_key *boundaries) {
    tree->boundaries = calloc(tree->owner_count, sizeof tree->boundaries[0]);
    if (!tree->boundaries)
        return remo__fail(-ENOMEM, "no memory for a tree");
    for (uint32_t i = 0; i + 1 < tree->owner_count; i++) {
        int rc = 0;
        if (boundaries && (!boundaries[i].data || boundaries[i].bytes > tree->key_bytes_max))
            return remo__fail(-EINVAL, "cannot open a tree: boundary %u is NULL or longer than key_bytes_max",
                              i);
        rc = boundaries ? set_boundary(tree, i, boundaries[i].data, boundaries[i].bytes)
                        : set_even_boundary(tree, i);
        if (rc == 0 && i > 0 && remo__tree_compare(tree->boundaries[i - 1], tree->boundaries[i]) >= 0)
            rc = remo__fail(-EINVAL, "cannot open a tree: boundary %u is not above the previous one", i);
        if (rc != 0)
            return rc;
    }
    return 0;
}

/* Of the nodes. A change of it prevents that nodes of different builds share a tree. */
#define FORMAT UINT64_C(2)

/* Return a hash of the format, and of the options that the type of the channel does not list. */
static uint32_t hash_options(const struct remo_tree *tree, const struct remo_tree_options *options) {
    uint64_t hash = XXH3_64bits_withSeed(tree->owners, tree->owner_count * sizeof tree->owners[0],
                                         options->retain ^ FORMAT << 56);
    for (uint32_t i = 0; i + 1 < tree->owner_count; i++)
        hash = XXH3_64bits_withSeed(tree->boundaries[i].data, tree->boundaries[i].bytes,
                                    hash + tree->boundaries[i].bytes);
    return (uint32_t)(hash ^ hash >> 32);
}

/* ---- open and close ---- */

/* Over a network, each read of a leaf copies all of its log. In nodes of 4096 bytes the smaller log has room
 * for an insertion of an entry of the default maximum sizes. Small nodes need the larger one. */
static uint32_t log_bytes_of(const struct remo_tree *tree, uint32_t node_bytes) {
    return tree->node->mapped || node_bytes < 4096 ? node_bytes / 8 : node_bytes / 32 * 3;
}

static int open_nodes(struct remo_tree *tree, const struct remo_tree_options *options) {
    struct remo_versioned_options nodes = {.owners = options->owners,
                                           .objects = options->nodes,
                                           .object_bytes = options->node_bytes,
                                           .log_bytes = log_bytes_of(tree, options->node_bytes),
                                           .retain = options->retain};
#ifdef REMO_SIM_SMALL
    nodes.log_bytes = 96; /* an insertion fits, and the next change moves the node */
#endif
    int rc = remo_versioned_open(tree->channel, "nodes", &nodes, &tree->nodes);
    for (uint32_t i = 0; i < tree->owner_count && rc == 0; i++)
        if (tree->owners[i] == tree->node->rank)
            rc = remo__tree_owner_open(tree, i);
    return rc;
}

static int open_tree(struct remo_tree *tree, struct remo_channel *parent, const char *name,
                     const struct remo_tree_options *options) {
    char type[96]; /* REMO__TYPE_BYTES_MAX suffices for the values that check_options accepts */
    struct remo_channel_options channel = {.participants = options->participants};
    struct remo_rpc_handler handlers[] = {
        {.number = TREE_CHANGE, .run = remo__tree_serve, .ctx = tree},
        {.number = TREE_FREEZE, .run = remo__tree_serve_freeze, .ctx = tree},
        {.number = TREE_THAW, .run = remo__tree_serve_thaw, .ctx = tree},
        {.number = TREE_REMOVE_RANGE, .run = remo__tree_serve_remove, .ctx = tree},
        {.number = TREE_APPLY, .run = remo__tree_serve_apply, .ctx = tree},
    };
    struct remo_rpc_options rpc = {.handlers = handlers, .handler_count = TREE_HANDLERS};
    snprintf(type, sizeof type, "tree(%u nodes of %u B, %u+%u B, options %08x)", options->nodes,
             options->node_bytes, options->key_bytes_max, options->value_bytes_max,
             hash_options(tree, options));
    int rc = remo_channel_open(parent, name, type, &channel, &tree->channel);
    if (rc != 0)
        return rc;
    tree->node = remo_channel_node(tree->channel);
    rc = remo_channel_join(tree->channel);
    if (rc == 0)
        rc = open_nodes(tree, options);
    return rc == 0 ? remo_rpc_open(tree->channel, "calls", &rpc, &tree->rpc) : rc;
}

int remo_tree_open(struct remo_channel *parent, const char *name, const struct remo_tree_options *options,
                   struct remo_tree **ret_tree) {
    REMO__REQUIRE(parent);
    REMO__REQUIRE(ret_tree);
    struct remo_tree_options chosen = options ? *options : (struct remo_tree_options){0};
    bool has_participants = !remo_nodeset_empty(&chosen.participants);
    struct remo_nodeset participants =
        has_participants ? chosen.participants : *remo_channel_participants(parent);
    set_defaults(&chosen, &participants);
    int rc = check_options(&chosen);
    if (rc != 0)
        return rc;
    struct remo_tree *tree = calloc(1, sizeof *tree);
    if (!tree)
        return remo__fail(-ENOMEM, "no memory for a tree");
    tree->node_bytes = chosen.node_bytes;
    tree->node_count = chosen.nodes;
    tree->key_bytes_max = chosen.key_bytes_max;
    tree->value_bytes_max = chosen.value_bytes_max;
    list_owners(tree, &chosen.owners);
    rc = set_boundaries(tree, chosen.boundaries);
    if (rc == 0)
        rc = open_tree(tree, parent, name, &chosen);
    if (rc != 0) {
        remo_tree_close(tree);
        return rc;
    }
    *ret_tree = tree;
    return 0;
}

void remo_tree_close(struct remo_tree *tree) {
    if (!tree)
        return;
    remo_rpc_close(tree->rpc);
    remo_versioned_close(tree->nodes);
    remo_channel_close(tree->channel);
    remo__tree_owner_close(tree);
    remo__tree_caches_close(tree);
    for (uint32_t i = 0; i + 1 < tree->owner_count && tree->boundaries; i++)
        free((void *)tree->boundaries[i].data);
    free(tree->boundaries);
    free(tree);
}

struct remo_channel *remo_tree_channel(struct remo_tree *tree) {
    return tree ? tree->channel : NULL;
}
