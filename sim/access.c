/* access.c - accesses of simulated CPUs to network memory (fabric/access.h).
 * Each access is a scheduling point. A store enters the actor's store buffer (world.h). */
#include "fabric/access.h"

#include <stdio.h>
#include <string.h>

#include "node/arena.h"
#include "sim/cache.h"
#include "sim/net.h"
#include "sim/world.h"

bool sim_tracing;

void sim_trace_print(const char *format, ...) {
    const struct sim_actor *actor = sim_current();
    va_list args;
    va_start(args, format);
    printf("%5llu ", (unsigned long long)sim_world->steps);
    if (format[0] != ' ' && format[0] != '*' && actor)
        printf("node %u %s%u: ", actor->node,
               actor->role == SIM_PROGRAM   ? "thread "
               : actor->role == SIM_CONTROL ? "control "
                                            : "service ",
               actor->thread);
    vprintf(format, args);
    printf("\n");
    va_end(args);
}

const char *sim_place(const void *at) {
    static char text[2][40];
    static unsigned turn;
    turn = !turn;
    for (uint32_t node = 0; node < SIM_NODES_MAX; node++) {
        const char *base = sim_world->nodes[node] ? remo__arena_base(sim_world->nodes[node]->arena) : NULL;
        if (base && (const char *)at >= base && (const char *)at < base + SIM_ARENA_BYTES) {
            snprintf(text[turn], sizeof text[turn], "node %u +0x%zx", node,
                     (size_t)((const char *)at - base));
            return text[turn];
        }
    }
    return "private memory";
}

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
