/* versioned.h - the layout of an owner's memory, and the state of an open object.
 * docs/internals/versioned.md describes the protocol.
 *
 * Memory of an owner: {front; directory[objects]; extents}, each in cache lines of its own.
 * objects/versioned_direct.h has the layout of an extent.
 * Seals are 0 in mapped memory, where the order of loads replaces them. */
#pragma once

#include <string.h>

#include <remo/versioned.h>

#include "objects/region.h"
#include "objects/versioned_direct.h"

/* ---- the owner's memory ---- */

/* Moves that the front lists: the front has 512 bytes. */
#ifdef REMO_SIM_SMALL
#define REMO__VERSIONED_MOVES 2u
#else
#define REMO__VERSIONED_MOVES 63u
#endif

_Static_assert(REMO_VERSIONED_OBJECTS_MAX == 1u << REMO__VERSIONED_OBJECT_BITS, "a move has the object");

/* The beginning of the memory: over a network, a read of the version copies all of it. */
struct remo__versioned_front {
    uint64_t version;
    uint64_t moves[REMO__VERSIONED_MOVES]; /* the last ones: a ring */
};

/* An entry of the directory. A reader may find the two words of different moves, and compares them. */
struct remo__versioned_entry {
    uint64_t location, note;
};

/* ---- extents (extent.c) ---- */

/* A copy of an extent in private memory: the header, log_words words of records, and the base, unless the
 * base is used in place. */
struct remo__versioned_image {
    struct remo__versioned_header header;
    uint64_t records[];
};

static inline uint64_t *remo__versioned_base(const struct remo__versioned_shape *shape,
                                             struct remo__versioned_image *image) {
    return image->records + shape->log_words;
}

/* Clear the words of a copied base after those that the header counts: the seal does not cover them. */
static inline void remo__versioned_fill(const struct remo__versioned_shape *shape,
                                        struct remo__versioned_image *image) {
    memset(remo__versioned_base(shape, image) + image->header.used, 0,
           shape->base_bytes - 8u * image->header.used);
}

/* Return the seal of a base, or of a record at word `at` of an extent's records. Each covers the generation;
 * that of a base also covers the header, that of a record `at`, version, place and data. */
uint64_t remo__versioned_seal_base(const struct remo__versioned_shape *shape,
                                   const struct remo__versioned_image *image);
uint64_t remo__versioned_seal_record(uint64_t generation, uint32_t at,
                                     const struct remo__versioned_record *record, const void *data,
                                     uint32_t size_bytes);

enum remo__versioned_verdict {
    REMO__VERSIONED_STATE,   /* `state` is set */
    REMO__VERSIONED_LATER,   /* the base is of a later version */
    REMO__VERSIONED_REUSED,  /* the extent has another generation */
    REMO__VERSIONED_DAMAGED, /* the header or base is not whole, or a record without a seal is not valid */
};

/* The state of an object in an extent: its base and the first `words` words of records. */
struct remo__versioned_state {
    uint64_t version;
    uint32_t words;
    /* A record that the head counts is not whole. The state is valid only if the extent was not used again
     * during the copy. */
    bool is_cut;
    bool has_later;  /* a record of a version above the requested one follows */
    bool is_pending; /* the last commit of the state may not be visible */
    uint64_t parts;  /* the parts of the object that records change: see remo__versioned_parts */
};

static inline uint32_t remo__versioned_part_bits(uint32_t object_bytes) {
    uint32_t bits = 0;
    while ((object_bytes - 1) >> bits > 63)
        bits++;
    return bits;
}

/* Return the parts of an object that overlap a range of at least 1 byte, as bits. An object has at most 64
 * parts of the same size. */
static inline uint64_t remo__versioned_parts(const struct remo__versioned_shape *shape, uint32_t offset,
                                             uint32_t bytes) {
    uint32_t first = offset >> shape->part_bits, last = (offset + bytes - 1) >> shape->part_bits;
    return UINT64_MAX << first & UINT64_MAX >> (63 - last);
}

/* Find the state at `version` (REMO_VERSIONED_NEWEST: with all records) in an extent of `object`, from its
 * header and its records, the words that the head counts. Checks each field before its use: the copy may be
 * torn, and a peer may have written any bytes. Without has_seals, the copy was made in order: its seals are
 * not verified, and its base is not used. */
enum remo__versioned_verdict remo__versioned_judge(const struct remo__versioned_shape *shape,
                                                   const struct remo__versioned_image *image, uint32_t object,
                                                   uint64_t generation, uint64_t version, bool has_seals,
                                                   struct remo__versioned_state *ret_state);
/* Apply the first `words` words of records, which remo__versioned_judge has checked, to a copy of the `bytes`
 * bytes at `offset` of the base. */
void remo__versioned_overlay(const uint64_t *records, uint32_t words, uint32_t offset, void *dst,
                             uint32_t bytes);

/* The state of an object during a visit: a base, and records in private memory. */
struct remo_versioned_view {
    const struct remo__versioned_shape *shape;
    const char *base;
    bool is_in_place; /* the base is in network memory */
    const uint64_t *records;
    uint32_t words; /* of records */
    uint64_t parts; /* the parts of the object that records change */
    uint64_t version;
    uint64_t *copied; /* counts the bytes that the visitor has copied */
};

/* ---- the open object ---- */

/* A private copy of an extent, for one read at a time. */
struct remo__versioned_buffer {
    struct remo__versioned_buffer *next;
    struct remo__versioned_image image REMO__CACHE_ALIGNED;
};

/* An object of this owner. */
struct remo__versioned_object {
    uint64_t location, head, lead, hull;
    uint32_t wanted, written; /* words of records: of the current commit, and those already written */
};

struct remo__versioned_owner {
    struct remo__mutex mutex;
    uint64_t version;
    struct remo__versioned_object *objects;
    uint64_t *generations; /* of each extent */
    uint32_t *spare;       /* a ring of the spare extents; the next move uses that at spare_first */
    uint32_t spare_first;
    uint32_t moved;                      /* the next move of the front */
    struct remo__versioned_image *image; /* for a move: a copy of the old extent, then the new base */
};

/* Facts about an owner that reads of this node have found. */
struct remo__versioned_peer {
    _Atomic uint64_t version; /* visible; the owner's may be higher */
    /* Of each object; 0: not known; NULL: none is known. Behind them, a note of each object. */
    _Atomic(_Atomic uint64_t *) locations;
};

struct remo_versioned {
    struct remo_region *region;
    struct remo__versioned_shape shape;
    struct remo_nodeset owners;
    struct remo__versioned_owner own;
    struct remo__versioned_peer *peers;                        /* [nodes] */
    struct remo__versioned_buffer *buffers[REMO__THREADS_MAX]; /* of each thread, not in use */
};

static inline uint64_t remo__versioned_directory_at(uint32_t object) {
    return remo__align_up(sizeof(struct remo__versioned_front), REMO__CACHE_LINE)
           + sizeof(struct remo__versioned_entry) * object;
}

static inline uint64_t remo__versioned_extent_at(const struct remo__versioned_shape *shape, uint32_t extent) {
    return shape->extents_at + extent * shape->extent_bytes;
}

/* Initialize the memory and the state of this node, an owner. Errors: -ENOMEM. */
int remo__versioned_owner_open(struct remo_versioned *versioned);
void remo__versioned_owner_close(struct remo_versioned *versioned);
