/* access.c - accesses of simulated CPUs to network memory (fabric/access.h).
 * Each access is a scheduling point. A store enters the actor's store buffer (world.h). */
#include "fabric/access.h"

#include "sim/world/actor.h"
#include "sim/memory/cache.h"
#include "sim/network/net.h"

void remo__sim_turn(const char *what) {
    sim_point(what);
}

void remo__sim_fence(void) {
    struct sim_actor *actor = sim_current();
    sim_drain(actor);
    if (actor)
        sim_changed(actor->node);
}

uint64_t remo__load(const void *word) {
    const struct sim_actor *actor = sim_current();
    sim_point("load");
    uint64_t value =
        actor ? sim_cache_load(actor->node, word) : __atomic_load_n((const uint64_t *)word, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; actor && i < actor->stores_count; i++)
        if (actor->stores[i].word == word)
            value = actor->stores[i].value;
    sim_trace("load %s = 0x%llx", sim_place(word), (unsigned long long)value);
    return value;
}

void remo__store(void *word, uint64_t value) {
    struct sim_actor *actor = sim_current();
    sim_point("store");
    sim_trace("store %s = 0x%llx", sim_place(word), (unsigned long long)value);
    if (!actor) {
        *(uint64_t *)word = value;
        return;
    }
    sim_linger(actor, word, value);
}

/* A check runs outside all nodes and uses the cache of node 0. */
static uint32_t node_here(void) {
    return sim_current() ? sim_current()->node : 0;
}

void remo__flush(const void *network, size_t bytes) {
    if (!sim_profile->cached)
        return;
    sim_point("flush");
    sim_drain(sim_current());
    sim_cache_flush(node_here(), network, bytes);
    sim_trace("flush %zu bytes at %s", bytes, sim_place(network));
}

void remo__invalidate(const void *network, size_t bytes) {
    if (!sim_profile->cached)
        return;
    sim_point("invalidate");
    sim_cache_invalidate(node_here(), network, bytes);
    sim_trace("invalidate %zu bytes at %s", bytes, sim_place(network));
}

/* Copy line by line; another writer may run between two lines. */
void remo__copy_from(void *dst, const void *network, size_t bytes) {
    sim_drain(sim_current());
    for (size_t done = 0; done < bytes;) {
        size_t to_end = 64 - (((uintptr_t)network + done) & 63),
               piece = to_end < bytes - done ? to_end : bytes - done;
        sim_point("copy from network memory");
        sim_cache_read(node_here(), (char *)dst + done, (const char *)network + done, piece);
        sim_trace("load %zu bytes from %s", piece, sim_place((const char *)network + done));
        done += piece;
    }
}

/* Copy half a line at a time; a reader may see part of a line. */
void remo__copy_to(void *network, const void *src, size_t bytes) {
    sim_drain(sim_current());
    for (size_t done = 0; done < bytes;) {
        size_t to_end = 32 - (((uintptr_t)network + done) & 31),
               piece = to_end < bytes - done ? to_end : bytes - done;
        sim_point("copy to network memory");
        sim_cache_write(node_here(), (char *)network + done, (const char *)src + done, piece);
        sim_trace("store %zu bytes to %s", piece, sim_place((char *)network + done));
        done += piece;
    }
}
