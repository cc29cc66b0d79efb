/* index.h - the index of a map on this node: a hash table of 8-byte entries in private memory.
 *
 * Model:   a multiset of (hash, entry). An entry contains node, slot, generation of the slot, and 16 bits of
 *          the hash: its fingerprint. A search returns the entries with the fingerprint; the key in the slot
 *          decides.
 * Layout:  lines of one cache line: a count and 7 entries. An entry is in the line of its hash or, if that is
 *          full, in the next line with an empty place. Then all lines from the first to the one before count
 *          it as displaced. A search ends at the first line with a count of 0. A remove empties the place and
 *          decrements the counts; there are no tombstones.
 * Cost:    a search reads 1.6 lines on average in a full table after many adds and removes, 1.1 in a table
 *          that was only filled, and 1.0 at half of that load.
 * Threads: any number of threads search, without a lock; the caller serializes adds and removes.
 * Order:   entries never move. A search that overlaps adds and removes finds every entry that is present from
 *          its start to its end. The entry stays in its place, and each line that the search must pass has a
 *          count of at least 1 all the time: an add increments the counts before it stores the entry, and a
 *          remove decrements them after it has cleared the entry.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/bits.h"

#if defined(__SSE2__) && !defined(__SANITIZE_THREAD__)
#include <emmintrin.h>
#define REMO__KV_SSE2 1
#endif

#define REMO__KV_LINE_ENTRIES 7u
#define REMO__KV_FILL_PERCENT 60u                    /* load of the table with `entries_max` entries */
#define REMO__KV_SLOTS_MAX ((UINT32_C(1) << 30) - 1) /* of a node: an entry has 30 bits for slot + 1 */
#define REMO__KV_GENERATION_MASK 0x3ffu              /* an entry has the low 10 bits of the generation */

struct remo__kv_line {
    _Atomic uint64_t displaced_count;              /* displaced entries: in a later line, past this one */
    _Atomic uint64_t entry[REMO__KV_LINE_ENTRIES]; /* 0: empty */
} REMO__CACHE_ALIGNED;

struct remo__kv_index {
    struct remo__kv_line *lines;
    uint64_t lines_count;
    _Atomic uint64_t count;
};

/* The position of a search: set by remo__kv_index_seek, advanced by remo__kv_index_next. */
struct remo__kv_cursor {
    uint32_t line;          /* the line whose entries are in `matches` */
    uint32_t lines_visited; /* 0: not begun */
    uint32_t matches;       /* entries of the line with the fingerprint that were not returned yet */
    uint16_t fingerprint;
};

/* Create an index for `entries_max` entries. Errors: -ENOMEM. */
int remo__kv_index_open(struct remo__kv_index *index, uint64_t entries_max);
void remo__kv_index_close(struct remo__kv_index *index);
/* Add an entry. Errors: -ENOSPC (all places are in use). */
int remo__kv_index_add(struct remo__kv_index *index, uint64_t hash, uint64_t entry);
/* Remove one entry that equals `entry`. Returns false if there is none. */
bool remo__kv_index_remove(struct remo__kv_index *index, uint64_t hash, uint64_t entry);
/* Remove one entry that equals `entry`, and which a search for `hash` has found. Its own hash may differ, so
 * the lines that count it as displaced are unknown, and keep their counts: later searches may read lines
 * that have no entry for them. Returns false if there is none. */
bool remo__kv_index_discard(struct remo__kv_index *index, uint64_t hash, uint64_t entry);
/* Continue a search in the lines after the cursor's. */
uint64_t remo__kv_index_next_line(const struct remo__kv_index *index, struct remo__kv_cursor *cursor);

/* ---- entries ---- */

/* Return the low 16 bits of the hash; its high bits select the line. The result is never 0, so no entry is 0,
 * and an empty place matches no fingerprint. */
static inline uint16_t remo__kv_fingerprint(uint64_t hash) {
    uint16_t low = (uint16_t)hash;
    return low ? low : 1;
}

static inline uint64_t remo__kv_entry_make(uint64_t hash, uint32_t node, uint32_t slot, uint32_t generation) {
    return (uint64_t)remo__kv_fingerprint(hash) << 48
           | (uint64_t)(generation & REMO__KV_GENERATION_MASK) << 38 | (uint64_t)(node & 0xff) << 30
           | (slot + 1);
}

static inline uint16_t remo__kv_entry_fingerprint(uint64_t entry) {
    return (uint16_t)(entry >> 48);
}

static inline uint32_t remo__kv_entry_generation(uint64_t entry) {
    return (uint32_t)(entry >> 38) & REMO__KV_GENERATION_MASK;
}

static inline uint32_t remo__kv_entry_node(uint64_t entry) {
    return (uint32_t)(entry >> 30) & 0xff;
}

static inline uint32_t remo__kv_entry_slot(uint64_t entry) {
    return ((uint32_t)entry & (uint32_t)REMO__KV_SLOTS_MAX) - 1;
}

/* ---- search ---- */

static inline uint32_t remo__kv_index_line_of(const struct remo__kv_index *index, uint64_t hash) {
    return (uint32_t)(((unsigned __int128)hash * index->lines_count) >> 64);
}

/* Bit i * REMO__KV_MATCH_BITS of the result: entry i of the line had this fingerprint at a moment of the
 * call. */
#ifdef REMO__KV_SSE2
/* The fingerprint is the highest of the four 16-bit words of an entry, so 7 of the 32 comparisons count. */
static inline uint32_t remo__kv_line_matches(const struct remo__kv_line *line, uint16_t fingerprint) {
    const __m128i *words = (const __m128i *)line;
    __m128i sought = _mm_set1_epi16((short)fingerprint);
    __m128i low = _mm_packs_epi16(_mm_cmpeq_epi16(_mm_load_si128(words), sought),
                                  _mm_cmpeq_epi16(_mm_load_si128(words + 1), sought));
    __m128i high = _mm_packs_epi16(_mm_cmpeq_epi16(_mm_load_si128(words + 2), sought),
                                   _mm_cmpeq_epi16(_mm_load_si128(words + 3), sought));
    uint32_t equal = (uint32_t)_mm_movemask_epi8(low) | (uint32_t)_mm_movemask_epi8(high) << 16;
    return (equal & 0x88888880u) >> 7;
}
#define REMO__KV_MATCH_BITS 4u
#else
static inline uint32_t remo__kv_line_matches(const struct remo__kv_line *line, uint16_t fingerprint) {
    uint32_t matches = 0;
    for (uint32_t i = 0; i < REMO__KV_LINE_ENTRIES; i++) {
        uint64_t entry = atomic_load_explicit(&line->entry[i], memory_order_relaxed);
        matches |= (uint32_t)(remo__kv_entry_fingerprint(entry) == fingerprint) << i;
    }
    return matches;
}
#define REMO__KV_MATCH_BITS 1u
#endif

/* Begin a search: prefetch the line of the hash. */
static inline struct remo__kv_cursor remo__kv_index_seek(const struct remo__kv_index *index, uint64_t hash) {
    struct remo__kv_cursor cursor = {
        .line = remo__kv_index_line_of(index, hash),
        .fingerprint = remo__kv_fingerprint(hash),
    };
    __builtin_prefetch(&index->lines[cursor.line]);
    return cursor;
}

/* Return the next match in the cursor's line, or 0. */
static inline uint64_t remo__kv_cursor_take(struct remo__kv_cursor *cursor,
                                            const struct remo__kv_line *line) {
    while (cursor->matches != 0) {
        uint32_t at = (uint32_t)__builtin_ctz(cursor->matches) / REMO__KV_MATCH_BITS;
        cursor->matches &= cursor->matches - 1;
        /* Load it again: it may have changed. Acquire pairs with the release in remo__kv_index_add: the
         * owner filled the slot before this node added the entry. */
        uint64_t entry = atomic_load_explicit(&line->entry[at], memory_order_acquire);
        if (remo__likely(remo__kv_entry_fingerprint(entry) == cursor->fingerprint))
            return entry;
    }
    return 0;
}

/* Return the first entry with the fingerprint in the line of the hash, or 0; remo__kv_index_next goes on. */
static inline uint64_t remo__kv_index_first(const struct remo__kv_index *index,
                                            struct remo__kv_cursor *cursor) {
    const struct remo__kv_line *line = &index->lines[cursor->line];
    cursor->lines_visited = 1;
    cursor->matches = remo__kv_line_matches(line, cursor->fingerprint);
    return remo__kv_cursor_take(cursor, line);
}

/* Return the next entry with the fingerprint, or 0 at the end. */
static inline uint64_t remo__kv_index_next(const struct remo__kv_index *index,
                                           struct remo__kv_cursor *cursor) {
    const struct remo__kv_line *line = &index->lines[cursor->line];
    uint64_t entry =
        cursor->lines_visited == 0 ? remo__kv_index_first(index, cursor) : remo__kv_cursor_take(cursor, line);
    if (entry != 0 || remo__likely(atomic_load_explicit(&line->displaced_count, memory_order_acquire) == 0))
        return entry;
    return remo__kv_index_next_line(index, cursor);
}

/* Return the number of places, for iteration: place p is in line p / 7. */
static inline uint64_t remo__kv_index_places(const struct remo__kv_index *index) {
    return index->lines_count * REMO__KV_LINE_ENTRIES;
}

/* Return the entry at a place, or 0. Acquire, as in a search. */
static inline uint64_t remo__kv_index_at(const struct remo__kv_index *index, uint64_t place) {
    return atomic_load_explicit(
        &index->lines[place / REMO__KV_LINE_ENTRIES].entry[place % REMO__KV_LINE_ENTRIES],
        memory_order_acquire);
}

static inline uint64_t remo__kv_index_count(const struct remo__kv_index *index) {
    return atomic_load_explicit(&index->count, memory_order_relaxed);
}
