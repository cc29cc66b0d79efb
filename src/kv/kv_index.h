/* kv_index.h - where each key is, as known on this node: a table of 8-byte entries in private memory.
 *
 * Model:   a multiset of (hash, entry). An entry says node, slot, generation of the slot, and 16 bits of the
 *          hash (its fingerprint), so that a search meets few entries of other keys; the key in the slot
 *          decides.
 * Layout:  lines of one cache line: a count and 7 entries. An entry lives in the line of its hash or, when
 *          that is full, in the next line that is not; the count of a line says how many entries have gone
 *          past it. A search ends at the first line that nothing has gone past. A removed entry leaves an
 *          empty place and takes back its counts: there are no tombstones. While as many entries come and go
 *          as there is room for, for ever, a search looks at 1.6 lines on average (1.1 in a table that was
 *          only filled, 1.0 at half of that load).
 * Threads: any number search, without a lock; one at a time adds and removes (the caller sees to that).
 * Order:   entries never move. So a search that overlaps adds and removes still meets every entry that was
 *          there from its start to its end: the entry's place holds it all the time, and every line that a
 *          search must go past has a count of at least one all the time, because an add counts before it
 *          places and a remove counts after it clears.
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
#define REMO__KV_FILL_PERCENT 60u                    /* how full the table is when it holds `entries_max` */
#define REMO__KV_SLOTS_MAX ((UINT32_C(1) << 30) - 1) /* of a node: an entry has 30 bits for slot + 1 */
#define REMO__KV_GENERATION_MASK 0x3ffu              /* an entry has 10 bits of it */

struct remo__kv_line {
    _Atomic uint64_t gone_past; /* entries whose search comes past this line and which live behind it */
    _Atomic uint64_t entry[REMO__KV_LINE_ENTRIES]; /* 0: empty */
} REMO__CACHE_ALIGNED;

struct remo__kv_index {
    struct remo__kv_line *lines;
    uint64_t lines_count;
    uint64_t mapping_bytes;
    _Atomic uint64_t count;
};

/* A search. Filled by remo__kv_index_seek; each remo__kv_index_next goes on where the last one stopped. */
struct remo__kv_cursor {
    uint32_t line;       /* the line whose entries are in `matches` */
    uint32_t lines_seen; /* 0: not begun */
    uint32_t matches;    /* entries of the line that had the fingerprint, and are still to be given */
    uint16_t fingerprint;
};

/* Room for `entries_max` entries at a time. Errors: -ENOMEM. */
int remo__kv_index_open(struct remo__kv_index *index, uint64_t entries_max);
void remo__kv_index_close(struct remo__kv_index *index);
/* Errors: -ENOSPC: every place is taken. */
int remo__kv_index_add(struct remo__kv_index *index, uint64_t hash, uint64_t entry);
/* Take out one entry that equals `entry`; false when there is none. */
bool remo__kv_index_remove(struct remo__kv_index *index, uint64_t hash, uint64_t entry);
/* The rest of a search, once the line of the hash is through. */
uint64_t remo__kv_index_next_line(const struct remo__kv_index *index, struct remo__kv_cursor *cursor);

/* ---- entries ---- */

/* Never 0, so that no entry is 0 and an empty place matches nothing. The low bits: the high ones choose the
 * line. */
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

/* Bit i * REMO__KV_MATCH_BITS: entry i of the line had this fingerprint, at some moment of the call. */
#ifdef REMO__KV_SSE2
/* The fingerprint is the highest of the four 16-bit words of an entry: of 32 comparisons, 7 are of
 * interest. */
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

/* Begin a search; asks for the cache line and returns without waiting for it. */
static inline struct remo__kv_cursor remo__kv_index_seek(const struct remo__kv_index *index, uint64_t hash) {
    struct remo__kv_cursor cursor = {
        .line = remo__kv_index_line_of(index, hash),
        .fingerprint = remo__kv_fingerprint(hash),
    };
    __builtin_prefetch(&index->lines[cursor.line]);
    return cursor;
}

/* The next of the matches in the cursor's line, or 0. */
static inline uint64_t remo__kv_cursor_take(struct remo__kv_cursor *cursor,
                                            const struct remo__kv_line *line) {
    while (cursor->matches != 0) {
        uint32_t at = (uint32_t)__builtin_ctz(cursor->matches) / REMO__KV_MATCH_BITS;
        cursor->matches &= cursor->matches - 1;
        /* Loaded again: it may be another by now. Acquire: what its owner wrote before it told us is seen. */
        uint64_t entry = atomic_load_explicit(&line->entry[at], memory_order_acquire);
        if (remo__likely(remo__kv_entry_fingerprint(entry) == cursor->fingerprint))
            return entry;
    }
    return 0;
}

/* Begin a search: the first entry with the fingerprint in the line of the hash, or 0. Then go on with
 * remo__kv_index_next. */
static inline uint64_t remo__kv_index_first(const struct remo__kv_index *index,
                                            struct remo__kv_cursor *cursor) {
    const struct remo__kv_line *line = &index->lines[cursor->line];
    cursor->lines_seen = 1;
    cursor->matches = remo__kv_line_matches(line, cursor->fingerprint);
    return remo__kv_cursor_take(cursor, line);
}

/* The next entry with the fingerprint, or 0 when there are no more. */
static inline uint64_t remo__kv_index_next(const struct remo__kv_index *index,
                                           struct remo__kv_cursor *cursor) {
    const struct remo__kv_line *line = &index->lines[cursor->line];
    uint64_t entry =
        cursor->lines_seen == 0 ? remo__kv_index_first(index, cursor) : remo__kv_cursor_take(cursor, line);
    if (entry != 0 || remo__likely(atomic_load_explicit(&line->gone_past, memory_order_acquire) == 0))
        return entry;
    return remo__kv_index_next_line(index, cursor);
}

/* Places of the table: entry `place` is in line place / 7, for a walk over all. */
static inline uint64_t remo__kv_index_places(const struct remo__kv_index *index) {
    return index->lines_count * REMO__KV_LINE_ENTRIES;
}

/* The entry at a place, or 0. Acquire, as in a search. */
static inline uint64_t remo__kv_index_at(const struct remo__kv_index *index, uint64_t place) {
    return atomic_load_explicit(
        &index->lines[place / REMO__KV_LINE_ENTRIES].entry[place % REMO__KV_LINE_ENTRIES],
        memory_order_acquire);
}

static inline uint64_t remo__kv_index_count(const struct remo__kv_index *index) {
    return atomic_load_explicit(&index->count, memory_order_relaxed);
}
