#include "kv/kv_index.h"

#include <errno.h>
#include <sys/mman.h>

#include "base/error.h"

#ifdef REMO_SIM_SMALL
#define HUGE_PAGE_BYTES UINT64_C(4096) /* the simulator copies it at every start */
#else
#define HUGE_PAGE_BYTES (UINT64_C(2) << 20)
#endif

int remo__kv_index_open(struct remo__kv_index *index, uint64_t entries_max) {
    uint64_t places = entries_max / REMO__KV_FILL_PERCENT * 100 + 100;
    uint64_t lines = places / REMO__KV_LINE_ENTRIES + 1;
    if (lines > UINT32_MAX)
        return remo__fail(-ENOMEM, "an index of %llu keys is larger than one node can hold",
                          (unsigned long long)entries_max);
    uint64_t bytes = remo__align_up(lines * sizeof(struct remo__kv_line), HUGE_PAGE_BYTES);
    void *mapping = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED)
        return remo__fail(-ENOMEM, "no memory for an index of %llu keys (%llu MiB)",
                          (unsigned long long)entries_max, (unsigned long long)(bytes >> 20));
    /* A search is one cache miss; without huge pages it would be a miss of the address translation as
     * well. */
    madvise(mapping, bytes, MADV_HUGEPAGE);
    index->lines = mapping;
    index->lines_count = lines;
    index->mapping_bytes = bytes;
    atomic_init(&index->count, 0);
    return 0;
}

void remo__kv_index_close(struct remo__kv_index *index) {
    if (index->lines)
        munmap(index->lines, index->mapping_bytes);
    index->lines = NULL;
}

static uint32_t line_after(const struct remo__kv_index *index, uint32_t line) {
    return line + 1 == index->lines_count ? 0 : line + 1;
}

/* Which place of the line holds `entry` (0: which is empty); REMO__KV_LINE_ENTRIES: none. */
static uint32_t place_of(const struct remo__kv_line *line, uint64_t entry) {
    uint32_t at = 0;
    while (at < REMO__KV_LINE_ENTRIES
           && atomic_load_explicit(&line->entry[at], memory_order_relaxed) != entry)
        at++;
    return at;
}

/* All lines from `first` up to, not with, `last` have one entry more (or less) behind them. */
static void count_past(struct remo__kv_index *index, uint32_t first, uint32_t last, uint64_t change) {
    for (uint32_t i = first; i != last; i = line_after(index, i)) {
        uint64_t count = atomic_load_explicit(&index->lines[i].gone_past, memory_order_relaxed);
        atomic_store_explicit(&index->lines[i].gone_past, count + change, memory_order_release);
    }
}

static void count_entries(struct remo__kv_index *index, uint64_t change) {
    uint64_t count = atomic_load_explicit(&index->count, memory_order_relaxed);
    atomic_store_explicit(&index->count, count + change, memory_order_relaxed);
}

int remo__kv_index_add(struct remo__kv_index *index, uint64_t hash, uint64_t entry) {
    uint32_t home = remo__kv_index_line_of(index, hash), line = home, at;
    while ((at = place_of(&index->lines[line], 0)) == REMO__KV_LINE_ENTRIES) {
        line = line_after(index, line);
        if (line == home)
            return remo__fail_static(-ENOSPC, "the index of the map is full");
    }
    count_past(index, home, line, 1);
    atomic_store_explicit(&index->lines[line].entry[at], entry, memory_order_release);
    count_entries(index, 1);
    return 0;
}

bool remo__kv_index_remove(struct remo__kv_index *index, uint64_t hash, uint64_t entry) {
    uint32_t home = remo__kv_index_line_of(index, hash), line = home, at;
    while ((at = place_of(&index->lines[line], entry)) == REMO__KV_LINE_ENTRIES) {
        if (atomic_load_explicit(&index->lines[line].gone_past, memory_order_relaxed) == 0)
            return false;
        line = line_after(index, line);
        if (line == home)
            return false;
    }
    atomic_store_explicit(&index->lines[line].entry[at], 0, memory_order_release);
    count_past(index, home, line, -UINT64_C(1));
    count_entries(index, -UINT64_C(1));
    return true;
}

uint64_t remo__kv_index_next_line(const struct remo__kv_index *index, struct remo__kv_cursor *cursor) {
    while (cursor->lines_seen < index->lines_count) {
        cursor->line = line_after(index, cursor->line);
        cursor->lines_seen++;
        const struct remo__kv_line *line = &index->lines[cursor->line];
        cursor->matches = remo__kv_line_matches(line, cursor->fingerprint);
        uint64_t entry = remo__kv_cursor_take(cursor, line);
        if (entry != 0 || atomic_load_explicit(&line->gone_past, memory_order_acquire) == 0)
            return entry;
    }
    return 0;
}
