/* versioned_direct.h - the inner interface of versioned objects for direct reads; the layout of an extent.
 *
 * A direct read copies a few bytes of an object in mapped memory, without a private copy of the records. If a
 * commit is changing the object, or its extent is not current, the caller calls remo_versioned_visit instead.
 *
 *   begin   find the extent, if its location is known
 *   open    load the head: the read has the state of this instant. Then load the hull
 *   lead    apply the records of the lead
 *   copy    copy bytes of the object, with the changes of the other records
 *   end     load the head again: the extent was not used again since `open`
 *
 * Each step before `end` may find any bytes, because the owner may use the extent again meanwhile. So the
 * caller checks what it uses, and discards its result if `end` returns false. docs/internals/versioned.md has
 * the proof. All steps but `begin` are inline, because a call costs more than most of them.
 *
 * Layout:  {header; records; base}. Words:
 *   location  an entry of the directory, or `previous`: generation:40, extent:24
 *   head      generation:40, used:22 (words of records), superseded:1, pending:1
 *   lead      bytes:48, words:16: the lead of the object after this number of words of records; 0: none
 *   hull      high:32, low:32: the other records change bytes from `low` on and before `high`; 0: none
 *   note      the used part of a base: generation:22, extent:24, words + 1:18. 0: not known
 *   move      generation:17, extent:24, object:23: the object is not in this extent any more
 *   place     the range of a record: offset:32, ends:1, size:31. `ends` marks the last record of a commit in
 *             the object */
#pragma once

#include "channel/remote.h"

struct remo_versioned;

#define REMO__VERSIONED_EXTENT_BITS 24u
#define REMO__VERSIONED_EXTENTS_MAX (1u << REMO__VERSIONED_EXTENT_BITS)
#define REMO__VERSIONED_USED_MAX ((1u << 22) - 1) /* words of records in an extent */
#define REMO__VERSIONED_RECORD_BYTES 24u          /* of a record without its data */
/* The lead of an object: bytes that most commits change. The header of the extent has a copy of them. */
#define REMO__VERSIONED_LEAD_AT 14u
#define REMO__VERSIONED_LEAD_BYTES 6u
/* Records that end after more words are not of the lead. This is also the mask of the words in a lead. */
#ifdef REMO_SIM_SMALL
#define REMO__VERSIONED_LEAD_WORDS 31u
#else
#define REMO__VERSIONED_LEAD_WORDS UINT16_MAX
#endif

/* The first words of an extent. */
struct remo__versioned_header {
    uint64_t head;
    uint64_t lead, hull;   /* of the records that the head counts, and perhaps of some after them */
    uint64_t seal;         /* over the generation, the fields below, and the base */
    uint64_t base_version; /* the version of the object in the base */
    uint64_t previous;     /* location of the extent that the object had before; 0: none */
    uint64_t unused;       /* 0: the header is a cache line, so that the base can begin with one */
    uint32_t object, used; /* its index; words of the base without zeros at its end */
};

struct remo__versioned_record {
    uint64_t version, place, seal; /* the seal: see remo__versioned_seal_record */
};

struct remo__versioned_shape {
    uint32_t objects, extents, object_bytes;
    uint32_t base_bytes; /* object_bytes, padded to words */
    uint32_t log_words;
    uint32_t part_bits; /* a part of an object has 1 << part_bits bytes; see remo__versioned_parts */
    uint64_t extent_bytes, extents_at;
};

_Static_assert(sizeof(struct remo__versioned_header) == REMO__CACHE_LINE, "a base can begin with a line");

static inline uint64_t remo__versioned_generation(uint64_t word) {
    return word >> REMO__VERSIONED_EXTENT_BITS;
}

static inline uint32_t remo__versioned_extent(uint64_t location) {
    return location & (REMO__VERSIONED_EXTENTS_MAX - 1);
}

#define REMO__VERSIONED_NOTE_BITS 18u /* a base has up to 2^17 words */
#define REMO__VERSIONED_OBJECT_BITS 23u

static inline uint64_t remo__versioned_note(uint64_t location, uint32_t used) {
    return location << REMO__VERSIONED_NOTE_BITS | (used + UINT64_C(1));
}

static inline uint64_t remo__versioned_move(uint64_t location, uint32_t object) {
    return location << REMO__VERSIONED_OBJECT_BITS | object;
}

#define REMO__VERSIONED_PENDING UINT64_C(1)
#define REMO__VERSIONED_SUPERSEDED UINT64_C(2)
#define REMO__VERSIONED_ENDS UINT64_C(0x80000000) /* in a place */

static inline uint32_t remo__versioned_used(uint64_t head) {
    return (uint32_t)(head >> 2) & REMO__VERSIONED_USED_MAX;
}

static inline uint64_t remo__versioned_head(uint64_t generation, uint32_t used, uint64_t flags) {
    return generation << REMO__VERSIONED_EXTENT_BITS | (uint64_t)used << 2 | flags;
}

/* Return the word of a lead that ends before word `words` of the records. */
static inline uint64_t remo__versioned_lead(const void *bytes, uint32_t words) {
    uint64_t lead = 0;
    uint16_t stored = (uint16_t)(words & REMO__VERSIONED_LEAD_WORDS);
    memcpy(&lead, bytes, REMO__VERSIONED_LEAD_BYTES);
    memcpy((char *)&lead + REMO__VERSIONED_LEAD_BYTES, &stored, sizeof stored);
    return lead;
}

static inline uint32_t remo__versioned_lead_words(uint64_t lead) {
    uint16_t words;
    memcpy(&words, (const char *)&lead + REMO__VERSIONED_LEAD_BYTES, sizeof words);
    return words;
}

static inline uint64_t remo__versioned_hull(uint32_t low, uint32_t high) {
    return (uint64_t)high << 32 | low;
}

/* Return the number of words of a record with `size_bytes` bytes of data. */
static inline uint32_t remo__versioned_record_words(uint32_t size_bytes) {
    return REMO__VERSIONED_RECORD_BYTES / 8 + (size_bytes + 7) / 8;
}

/* Return the offset of the base in an extent. */
static inline uint64_t remo__versioned_base_at(const struct remo__versioned_shape *shape) {
    return sizeof(struct remo__versioned_header) + UINT64_C(8) * shape->log_words;
}

/* ---- direct reads (direct.c) ---- */

struct remo__versioned_direct {
    const struct remo__versioned_shape *shape;
    struct remo_stats *stats; /* NULL: the memory is this node's own */
    const char *extent;
    uint64_t generation;
    uint32_t record_bytes; /* of all records */
    uint32_t low, high;    /* of the hull */
};

/* A change of a range of the object: a record in network memory. */
struct remo__versioned_patch {
    uint32_t offset, bytes;
    const char *data;
};

static inline const char *remo__versioned_direct_base(const struct remo__versioned_direct *direct) {
    return direct->extent + remo__versioned_base_at(direct->shape);
}

static inline const char *remo__versioned_direct_records(const struct remo__versioned_direct *direct) {
    return direct->extent + sizeof(struct remo__versioned_header);
}

/* Find the extent of an object. Returns false if its location is not known, or its memory is not mapped. */
bool remo__versioned_direct_begin(const struct remo_versioned *versioned, struct remo__thread *thread,
                                  uint32_t owner, uint32_t object, struct remo__versioned_direct *ret_direct);

/* Load the head. Returns false if the extent is not current, or if the last commit may not be visible. `end`
 * compares the generation. */
static inline bool remo__versioned_direct_open(struct remo__versioned_direct *direct) {
    uint64_t head = remo__load(direct->extent);
    uint32_t words = remo__versioned_used(head);
    direct->record_bytes = 8 * words;
    uint64_t hull = remo__load(direct->extent + offsetof(struct remo__versioned_header, hull));
    direct->low = (uint32_t)hull;
    direct->high = (uint32_t)(hull >> 32);
    return !(head & (REMO__VERSIONED_PENDING | REMO__VERSIONED_SUPERSEDED))
           && words <= direct->shape->log_words;
}

/* A walk over the records: a local variable of the caller, so that the compiler keeps it in registers. */
struct remo__versioned_walk {
    const char *next;
    uint32_t left; /* bytes of records */
    uint32_t object_bytes;
};

static inline struct remo__versioned_walk
remo__versioned_direct_walk(const struct remo__versioned_direct *direct) {
    return (struct remo__versioned_walk){.next = remo__versioned_direct_records(direct),
                                         .left = direct->record_bytes,
                                         .object_bytes = direct->shape->object_bytes};
}

/* Load the next record, of which at least a part is left. Returns false if it is not valid. The load stays in
 * the extent even if the record has no room: the base follows the records. */
static inline bool remo__versioned_direct_next(struct remo__versioned_walk *walk,
                                               struct remo__versioned_patch *ret_patch) {
    uint64_t place = remo__load(walk->next + offsetof(struct remo__versioned_record, place)),
             offset = place >> 32, bytes = place & (REMO__VERSIONED_ENDS - 1),
             size = REMO__VERSIONED_RECORD_BYTES + (bytes + 7) / 8 * 8;
    if (remo__unlikely(offset + bytes > walk->object_bytes || size > walk->left))
        return false;
    ret_patch->offset = (uint32_t)offset;
    ret_patch->bytes = (uint32_t)bytes;
    ret_patch->data = walk->next + REMO__VERSIONED_RECORD_BYTES;
    walk->next += size;
    walk->left -= (uint32_t)size;
    return true;
}

/* Apply the records of the lead to a copy of it. Returns false if the head does not count the last one yet:
 * then the bytes before it are not known. */
static inline __attribute__((always_inline)) bool
remo__versioned_direct_lead(const struct remo__versioned_direct *direct, void *dst) {
    uint64_t lead = remo__load(direct->extent + offsetof(struct remo__versioned_header, lead));
    if (remo__unlikely(8 * remo__versioned_lead_words(lead) > direct->record_bytes))
        return false;
    if (lead != 0)
        memcpy(dst, &lead, REMO__VERSIONED_LEAD_BYTES);
    return true;
}

/* Return whether records other than those of the lead may change a range. */
static inline bool remo__versioned_direct_may_change(const struct remo__versioned_direct *direct,
                                                     uint32_t offset, uint32_t bytes) {
    return direct->low < offset + bytes && offset < direct->high;
}

/* Apply the records to a copy of a range. */
void remo__versioned_direct_apply(const struct remo__versioned_direct *direct, uint32_t offset, void *dst,
                                  uint32_t bytes);

/* Copy a range, which is within the object, with the changes of all records but those of the lead. */
static inline __attribute__((always_inline)) void
remo__versioned_direct_copy(const struct remo__versioned_direct *direct, uint32_t offset, void *dst,
                            uint32_t bytes) {
    remo__copy_from(dst, remo__versioned_direct_base(direct) + offset, bytes);
    if (remo__unlikely(remo__versioned_direct_may_change(direct, offset, bytes)))
        remo__versioned_direct_apply(direct, offset, dst, bytes);
}

/* Return whether the extent was not used again since `open`. Counts the read, of `bytes` bytes besides header
 * and records. */
static inline bool remo__versioned_direct_end(const struct remo__versioned_direct *direct, uint64_t bytes) {
    if (remo__unlikely(remo__versioned_generation(remo__load(direct->extent)) != direct->generation))
        return false;
    if (direct->stats) {
        remo__count(&direct->stats->reads, 1);
        remo__count(&direct->stats->bytes,
                    sizeof(struct remo__versioned_header) + direct->record_bytes + bytes);
    }
    return true;
}
