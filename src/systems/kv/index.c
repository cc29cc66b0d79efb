/* index.c - implements index.h: open and close, adds and removes, and searches beyond the first line.
 *
 * Invariant: while an entry is displaced, each line that its search must pass has a count of at least 1. */
#include "systems/kv/index.h"

#include <errno.h>

#include "base/error.h"
#include "base/pages.h"

static uint64_t index_bytes(const struct remo__kv_index *index) {
    return index->lines_count * sizeof(struct remo__kv_line);
}

int remo__kv_index_open(struct remo__kv_index *index, uint64_t entries_max) {
    uint64_t places = entries_max / REMO__KV_FILL_PERCENT * 100 + 100;
    uint64_t lines = places / REMO__KV_LINE_ENTRIES + 1;
    if (lines > UINT32_MAX)
        return remo__fail(-ENOMEM,
                          "cannot create an index of %llu entries: too large; use a smaller capacity",
                          (unsigned long long)entries_max);
    index->lines_count = lines;
    index->lines = remo__pages_map(index_bytes(index));
    if (!index->lines)
        return remo__fail(
            -ENOMEM,
            "cannot create an index of %llu entries: no memory for its %llu MiB; use a smaller capacity",
            (unsigned long long)entries_max, (unsigned long long)(index_bytes(index) >> 20));
    atomic_init(&index->count, 0);
    return 0;
}

void remo__kv_index_close(struct remo__kv_index *index) {
    remo__pages_unmap(index->lines, index_bytes(index));
    index->lines = NULL;
}

static uint32_t line_after(const struct remo__kv_index *index, uint32_t line) {
    return line + 1 == index->lines_count ? 0 : line + 1;
}

/* Return the place of `entry` in the line (0: an empty place), or REMO__KV_LINE_ENTRIES if there is none. */
static uint32_t find_place(const struct remo__kv_line *line, uint64_t entry) {
    uint32_t at = 0;
    while (at < REMO__KV_LINE_ENTRIES
           && atomic_load_explicit(&line->entry[at], memory_order_relaxed) != entry)
        at++;
    return at;
}

/* Add `change` (1 or -1) to the counts of displaced entries in the lines [first, last). */
static void change_displaced(struct remo__kv_index *index, uint32_t first, uint32_t last, uint64_t change) {
    for (uint32_t i = first; i != last; i = line_after(index, i)) {
        uint64_t count = atomic_load_explicit(&index->lines[i].displaced_count, memory_order_relaxed);
        atomic_store_explicit(&index->lines[i].displaced_count, count + change, memory_order_release);
    }
}

static void change_count(struct remo__kv_index *index, uint64_t change) {
    uint64_t count = atomic_load_explicit(&index->count, memory_order_relaxed);
    atomic_store_explicit(&index->count, count + change, memory_order_relaxed);
}

int remo__kv_index_add(struct remo__kv_index *index, uint64_t hash, uint64_t entry) {
    uint32_t home = remo__kv_index_line_of(index, hash), line = home, at;
    while ((at = find_place(&index->lines[line], 0)) == REMO__KV_LINE_ENTRIES) {
        line = line_after(index, line);
        if (line == home)
            return remo__fail_static(
                -ENOSPC,
                "cannot add an entry: the index of the map is full; open the map with a larger capacity");
    }
    change_displaced(index, home, line, 1);
    atomic_store_explicit(&index->lines[line].entry[at], entry, memory_order_release);
    change_count(index, 1);
    return 0;
}

/* Empty the place of the entry, which a search from line `home` on finds. Returns false if there is none. */
static bool empty_place(struct remo__kv_index *index, uint32_t home, uint64_t entry, uint32_t *ret_line) {
    uint32_t line = home, at;
    while ((at = find_place(&index->lines[line], entry)) == REMO__KV_LINE_ENTRIES) {
        if (atomic_load_explicit(&index->lines[line].displaced_count, memory_order_relaxed) == 0)
            return false;
        line = line_after(index, line);
        if (line == home)
            return false;
    }
    atomic_store_explicit(&index->lines[line].entry[at], 0, memory_order_release);
    change_count(index, -UINT64_C(1));
    *ret_line = line;
    return true;
}

bool remo__kv_index_remove(struct remo__kv_index *index, uint64_t hash, uint64_t entry) {
    uint32_t home = remo__kv_index_line_of(index, hash), line;
    if (!empty_place(index, home, entry, &line))
        return false;
    change_displaced(index, home, line, -UINT64_C(1));
    return true;
}

bool remo__kv_index_discard(struct remo__kv_index *index, uint64_t hash, uint64_t entry) {
    uint32_t line;
    return empty_place(index, remo__kv_index_line_of(index, hash), entry, &line);
}

uint64_t remo__kv_index_next_line(const struct remo__kv_index *index, struct remo__kv_cursor *cursor) {
    while (cursor->lines_visited < index->lines_count) {
        cursor->line = line_after(index, cursor->line);
        cursor->lines_visited++;
        const struct remo__kv_line *line = &index->lines[cursor->line];
        cursor->matches = remo__kv_line_matches(line, cursor->fingerprint);
        uint64_t entry = remo__kv_cursor_take(cursor, line);
        if (entry != 0 || atomic_load_explicit(&line->displaced_count, memory_order_acquire) == 0)
            return entry;
    }
    return 0;
}
