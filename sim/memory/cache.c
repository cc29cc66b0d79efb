/* cache.c - the caches of cache.h: at most LINES_MAX lines per node; a full cache evicts one.
 * A line is written back whole, so it overwrites concurrent changes by other nodes to its other bytes. */
#include "sim/memory/cache.h"

#include <string.h>

#include "base/bits.h"
#include "node/arena.h"
#include "sim/memory/heap.h"
#include "sim/network/net.h"
#include "sim/world/world.h"

#define LINE_BYTES 64u
#define LINES_MAX 48u /* per node; a further line evicts one */

struct line {
    char *at; /* its address in memory */
    bool dirty;
    char bytes[LINE_BYTES];
};

struct sim_cache {
    struct line lines[LINES_MAX];
    uint32_t count;
};

void sim_cache_open(void) {
    if (sim_profile->cached) /* without caches, nothing must be copied at each restore */
        sim_world->caches = sim_calloc(SIM_NODES_MAX, sizeof *sim_world->caches);
}

static bool is_cached(const void *at) {
    if (!sim_profile->cached)
        return false;
    for (uint32_t node = 0; node < SIM_NODES_MAX; node++) {
        const char *base = sim_world->nodes[node] ? remo__arena_base(sim_world->nodes[node]->arena) : NULL;
        if (base && (const char *)at >= base && (const char *)at < base + SIM_ARENA_BYTES)
            return true;
    }
    return false;
}

static char *line_at(const void *at) {
    return (char *)((uintptr_t)at & ~(uintptr_t)(LINE_BYTES - 1));
}

static struct line *find(struct sim_cache *cache, const void *at) {
    for (uint32_t i = 0; i < cache->count; i++)
        if (cache->lines[i].at == line_at(at))
            return &cache->lines[i];
    return NULL;
}

static void write_back(uint32_t node, struct line *line) {
    if (!line->dirty)
        return;
    memcpy(line->at, line->bytes, LINE_BYTES);
    line->dirty = false;
    for (uint32_t i = 0; i < SIM_NODES_MAX; i++)
        sim_changed(i);
    sim_trace("  a line of node %u's cache is written back to %s", node, sim_place(line->at));
}

static void drop(struct sim_cache *cache, struct line *line) {
    *line = cache->lines[--cache->count];
}

uint32_t sim_cache_lines(uint32_t node) {
    return sim_profile->cached ? sim_world->caches[node].count : 0;
}

void sim_cache_lose_one(uint32_t node) {
    struct sim_cache *cache = &sim_world->caches[node];
    struct line *line = &cache->lines[sim_choose(cache->count)];
    bool was_dirty = line->dirty;
    write_back(node, line);
    if (was_dirty && sim_choose(2) == 0)
        return;
    sim_trace("  node %u's cache drops %s", node, sim_place(line->at));
    drop(cache, line);
    sim_changed(node);
}

/* Return the line as this node's CPU sees it. */
static struct line *fetch(uint32_t node, const void *at) {
    struct sim_cache *cache = &sim_world->caches[node];
    struct line *line = find(cache, at);
    if (line)
        return line;
    if (cache->count == LINES_MAX)
        sim_cache_lose_one(node);
    if (cache->count == LINES_MAX) { /* it was written back, but not dropped */
        write_back(node, &cache->lines[0]);
        drop(cache, &cache->lines[0]);
    }
    line = &cache->lines[cache->count++];
    *line = (struct line){.at = line_at(at)};
    memcpy(line->bytes, line->at, LINE_BYTES);
    return line;
}

/* Return how many bytes of [at, at + bytes) lie in the line of `at`. */
static size_t in_line(const void *at, size_t bytes) {
    return remo__min(bytes, LINE_BYTES - ((uintptr_t)at & (LINE_BYTES - 1)));
}

void sim_cache_read(uint32_t node, void *dst, const void *at, size_t bytes) {
    if (!is_cached(at)) {
        memcpy(dst, at, bytes);
        return;
    }
    for (size_t done = 0, piece; done < bytes; done += piece) {
        const char *from = (const char *)at + done;
        piece = in_line(from, bytes - done);
        const struct line *line = fetch(node, from);
        memcpy((char *)dst + done, line->bytes + (from - line->at), piece);
    }
}

void sim_cache_source(uint32_t node, void *dst, const void *at, size_t bytes) {
    bool cached = is_cached(at);
    for (size_t done = 0, piece; done < bytes; done += piece) {
        const char *from = (const char *)at + done;
        piece = in_line(from, bytes - done);
        const struct line *line = cached ? find(&sim_world->caches[node], from) : NULL;
        memcpy((char *)dst + done, line && line->dirty ? line->bytes + (from - line->at) : from, piece);
    }
}

void sim_cache_write(uint32_t node, void *at, const void *src, size_t bytes) {
    if (!is_cached(at)) {
        memcpy(at, src, bytes);
        return;
    }
    for (size_t done = 0, piece; done < bytes; done += piece) {
        char *to = (char *)at + done;
        piece = in_line(to, bytes - done);
        struct line *line = fetch(node, to);
        memcpy(line->bytes + (to - line->at), (const char *)src + done, piece);
        line->dirty = true;
    }
}

uint64_t sim_cache_load(uint32_t node, const void *word) {
    uint64_t value;
    if (!is_cached(word))
        return __atomic_load_n((const uint64_t *)word, __ATOMIC_ACQUIRE);
    sim_cache_read(node, &value, word, sizeof value);
    return value;
}

static void expel(uint32_t node, const void *at, size_t bytes, bool keep) {
    if (!is_cached(at))
        return;
    for (size_t done = 0, piece; done < bytes; done += piece) {
        const char *from = (const char *)at + done;
        piece = in_line(from, bytes - done);
        struct line *line = find(&sim_world->caches[node], from);
        if (!line)
            continue;
        write_back(node, line);
        if (!keep)
            drop(&sim_world->caches[node], line);
    }
}

void sim_cache_flush(uint32_t node, const void *at, size_t bytes) {
    expel(node, at, bytes, true);
}

void sim_cache_invalidate(uint32_t node, const void *at, size_t bytes) {
    expel(node, at, bytes, false);
}
