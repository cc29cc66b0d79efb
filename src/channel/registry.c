/* registry.c - the tables of channels, and the open and close of a node with its root channel.
 * Invariant: a channel stays in its slot until no peer can use its memory. */
#include "channel/registry.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "node/arena.h"
#include "node/stats.h"

static struct remo_channel **bucket_of(struct remo__registry *registry, const char *name) {
    return &registry->buckets[XXH3_64bits(name, strlen(name)) % REMO__NAME_BUCKETS];
}

struct remo_channel *remo__registry_by_name(struct remo__registry *registry, const char *name) {
    struct remo_channel *channel = *bucket_of(registry, name);
    while (channel && strcmp(channel->name, name) != 0)
        channel = channel->next_in_bucket;
    return channel;
}

struct remo_channel *remo__registry_by_id(struct remo__registry *registry, uint32_t id) {
    struct remo_channel *channel = registry->slots[id % REMO__CHANNELS_MAX];
    return channel && channel->id == id ? channel : NULL;
}

int remo__registry_insert(struct remo__registry *registry, struct remo_channel *channel) {
    for (uint32_t tried = 0; tried < REMO__CHANNELS_MAX; tried++) {
        uint32_t slot = registry->next_slot++ % REMO__CHANNELS_MAX;
        if (registry->slots[slot] || slot == 0)
            continue;
        uint32_t generation = ++registry->generations[slot];
        channel->slot = slot;
        channel->id = slot | generation << REMO__ID_SLOT_BITS;
        registry->slots[slot] = channel;
        remo__stats_of_slot(registry->node, slot, &channel->stats_at_open);
        struct remo_channel **bucket = bucket_of(registry, channel->name);
        channel->next_in_bucket = *bucket;
        *bucket = channel;
        return 0;
    }
    return remo__fail(
        -EMFILE,
        "this node has %u channels, which are open, or closed here and in use at peers; close some of them",
        REMO__CHANNELS_MAX - 1);
}

void remo__registry_unname(struct remo__registry *registry, struct remo_channel *channel) {
    for (struct remo_channel **link = bucket_of(registry, channel->name); *link;
         link = &(*link)->next_in_bucket) {
        if (*link != channel)
            continue;
        *link = channel->next_in_bucket;
        return;
    }
}

void remo__registry_destroy(struct remo__registry *registry, struct remo_channel *channel) {
    for (uint32_t i = 0; i < channel->memory_count; i++) {
        struct remo__memory *memory = &channel->memories[i];
        if (memory->own)
            remo__arena_free(registry->node->arena, memory->own_offset, memory->own_bytes);
        free(memory->offsets);
    }
    if (registry->slots[channel->slot] == channel)
        registry->slots[channel->slot] = NULL;
    free(channel->peers);
    free(channel);
}

void remo__registry_changed(struct remo__registry *registry) {
    atomic_fetch_add(&registry->changes, 1);
    remo__wake(registry->node);
}

/* ---- open and close of the node: the root channel exists before the first callback ---- */

static void attach(void *ctx, struct remo_node *node) {
    struct remo__registry *registry = ctx;
    registry->node = node;
    registry->root->node = node;
    for (uint32_t peer = 0; peer < node->size; peer++)
        remo_nodeset_add(&registry->root->participants, peer);
    node->channels = registry;
}

static void free_registry(struct remo__registry *registry) {
    if (!registry)
        return;
    free(registry->root);
    pthread_cond_destroy(&registry->leaving.changed);
    pthread_mutex_destroy(&registry->lock);
    free(registry);
}

int remo_node_open(const struct remo_config *config, struct remo_node **ret_node) {
    struct remo__registry *registry = calloc(1, sizeof *registry);
    if (registry)
        registry->root = calloc(1, sizeof *registry->root);
    if (!registry || !registry->root) {
        free(registry);
        return remo__fail(-ENOMEM, "no memory for the channels of a node");
    }
    pthread_mutex_init(&registry->lock, NULL);
    pthread_cond_init(&registry->leaving.changed, NULL);
    registry->slots[0] = registry->root;
    registry->root->joined = true;
    struct remo__node_hooks hooks = {.ctx = registry,
                                     .attach = attach,
                                     .peer_up = remo__join_peer_up,
                                     .peer_down = remo__join_peer_down,
                                     .frame = remo__join_frame,
                                     .immediate = remo__join_immediate};
    int rc = ret_node ? remo__node_open(config, &hooks, ret_node) : remo__fail(-EINVAL, "ret_node is NULL");
    if (rc != 0)
        free_registry(registry);
    return rc;
}

void remo_node_close(struct remo_node *node) {
    if (!node)
        return;
    struct remo__registry *registry = remo__registry(node);
    while (registry->root->first_child)
        remo_channel_close(registry->root->first_child);
    remo__leaving_stop(registry);
    remo__node_close_helpers(node); /* no callback runs from here on */
    for (uint32_t slot = 1; slot < REMO__CHANNELS_MAX; slot++)
        if (registry->slots[slot])
            remo__registry_destroy(registry, registry->slots[slot]);
    remo__node_close(node);
    free_registry(registry);
}

struct remo_channel *remo_node_root(struct remo_node *node) {
    return node ? remo__registry(node)->root : NULL;
}
