/* access.c - accesses of simulated CPUs to network memory (fabric/access.h).
 * Each access is a scheduling point. A store enters the actor's store buffer (world.h). */
#include "fabric/access.h"

#include <string.h>

#include "sim/world/actor.h"
#include "sim/memory/cache.h"
#include "sim/network/net.h"

void remo__sim_turn(const char *what) {
    sim_point(what);
}

void remo__sim_atomic(const void *word) {
    const struct sim_actor *actor = sim_current();
    sim_point("atomic");
    sim_drain(sim_current());
    sim_memory_changed(actor ? actor->node : 0);
    sim_trace("atomic on %s = 0x%llx", sim_place(word), (unsigned long long)*(const uint64_t *)word);
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
    if (actor && actor->stores_count > 0)
        sim_forward(actor, &value, word, sizeof value);
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
    sim_linger(actor, word, &value, sizeof value);
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

/* ---- copies from and to mapped memory: the order of their pieces is undefined (fabric/mapped.h) ---- */

#define WORDS_BYTES_MAX 32u /* a copy of this size has pieces of one word, a larger one of 32 bytes */

struct pieces {
    const char *at;
    size_t bytes, piece_bytes, done;
    bool is_descending;
};

static struct pieces pieces_of(const void *at, size_t bytes) {
    struct pieces pieces = {
        .at = at, .bytes = bytes, .piece_bytes = bytes <= WORDS_BYTES_MAX ? 8 : SIM_STORE_BYTES_MAX};
    pieces.is_descending =
        ((uintptr_t)at & ~(pieces.piece_bytes - 1)) + pieces.piece_bytes < (uintptr_t)at + bytes
        && sim_choose(2) == 1;
    return pieces;
}

/* Return the size of the next piece, and its offset; 0 at the end. */
static size_t next_piece(struct pieces *pieces, size_t *ret_offset) {
    size_t left = pieces->bytes - pieces->done, mask = pieces->piece_bytes - 1;
    uintptr_t first = (uintptr_t)pieces->at + pieces->done, end = (uintptr_t)pieces->at + left;
    size_t piece = pieces->is_descending ? ((end - 1) & mask) + 1 : pieces->piece_bytes - (first & mask);
    piece = piece < left ? piece : left;
    *ret_offset = pieces->is_descending ? left - piece : pieces->done;
    pieces->done += piece;
    return piece;
}

static void copy_from_mapped(void *dst, const void *network, size_t bytes) {
    struct pieces pieces = pieces_of(network, bytes);
    struct sim_actor *actor = sim_current();
    if (actor && sim_stores_overlap(actor, dst, bytes)) /* they precede this copy */
        sim_drain(actor);
    for (size_t offset, piece; pieces.done < bytes;) {
        const char *from = network;
        piece = next_piece(&pieces, &offset);
        sim_point("copy from network memory");
        memcpy((char *)dst + offset, from + offset, piece);
        if (actor)
            sim_forward(actor, (char *)dst + offset, from + offset, piece);
        sim_trace("load %zu bytes from %s", piece, sim_place(from + offset));
    }
}

static void copy_to_mapped(void *network, const void *src, size_t bytes) {
    struct pieces pieces = pieces_of(network, bytes);
    struct sim_actor *actor = sim_current();
    for (size_t offset, piece; pieces.done < bytes;) {
        char *to = network, data[SIM_STORE_BYTES_MAX];
        piece = next_piece(&pieces, &offset);
        sim_point("copy to network memory");
        memcpy(data, (const char *)src + offset, piece);
        if (actor) /* the source may be network memory too */
            sim_forward(actor, data, (const char *)src + offset, piece);
        sim_trace("store %zu bytes to %s", piece, sim_place(to + offset));
        if (actor)
            sim_linger(actor, to + offset, data, piece);
        else
            memcpy(to + offset, data, piece);
    }
}

/* ---- copies on other networks ---- */

/* Copy line by line; another writer may run between two lines. */
void remo__copy_from(void *dst, const void *network, size_t bytes) {
    if (sim_profile->mapped) {
        copy_from_mapped(dst, network, bytes);
        return;
    }
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
    if (sim_profile->mapped) {
        copy_to_mapped(network, src, bytes);
        return;
    }
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
