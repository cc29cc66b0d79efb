/* registry.c - the tables of channels, by name and by id.
 * Invariant: a channel stays in its slot until no peer can use its memory. */
#include "channel/registry.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "node/arena.h"
#include "remote/stats.h"

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
        for (uint32_t j = 0; j < memory->extensions_count; j++)
            remo__arena_free(registry->node->arena, memory->extensions[j].offset,
                             memory->extensions[j].bytes);
        free(memory->extensions);
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

void remo__registry_log_malformed(const struct remo__registry *registry, uint32_t peer, const char *what) {
    remo__log(&registry->node->log, REMO_LOG_ERROR,
              "node %u sent a malformed %s; it was discarded; start all nodes from the same build", peer,
              what);
}
