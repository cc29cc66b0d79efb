/* get.h - the read of one object, which read.c advances together with others of the same call.
 *
 *   begin          take a buffer, and the location if it is known
 *   locate         if it is not: read it from the directory, and use it
 *   copy, use      copy the extent, and find the state in the copy: it is ready, or another copy is needed
 *   visit          call the visitor
 *
 * If another copy is needed, `location` is 0 or that of an earlier extent. */
#pragma once

#include "objects/versioned/versioned.h"

/* A read of one object, in one call. */
struct remo__versioned_get {
    struct remo_versioned *versioned;
    struct remo__thread *thread;
    struct remo__versioned_peer *peer;
    uint32_t owner, object;
    uint64_t at;                          /* the requested version */
    uint64_t location;                    /* of the extent; 0: read it from the directory */
    struct remo__versioned_entry entry;   /* of the directory, as it was read */
    _Atomic uint64_t *known, *known_note; /* what this node has found of the object */
    uint32_t copied;                      /* over the network: words of the base in the copy */
    remo_versioned_visitor *prepare;      /* called before `visit`, for all gets of a round; NULL: none */
    remo_versioned_visitor *visit;
    void *ctx;
    uint64_t version; /* of the object, if is_done */
    bool is_done;
    bool wants_newest; /* the request: `at` may change */
    bool is_fresh;     /* the location came from the directory during this call */
    bool is_older;     /* the location came from a later extent of the object */
    bool is_ready;     /* the copy has `state`, and is not visited yet */
    bool is_short;     /* a copy lacked a part of the base: the next ones have all of it */
    struct remo__versioned_state state;
    struct remo__versioned_buffer *buffer;
    const char *place;        /* the extent, if it is read in order */
    struct remo_stats *stats; /* of reads in mapped memory; NULL: the memory is this node's own */
    struct remo_ack ack;
};

static inline bool remo__versioned_is_own(const struct remo__versioned_get *get) {
    return get->owner == get->versioned->region->node->rank;
}

/* Return whether extents are copied in order, so that seals are not needed. */
static inline bool remo__versioned_is_in_order(const struct remo__versioned_get *get) {
    return get->versioned->region->node->mapped || remo__versioned_is_own(get);
}

/* Find the thread and the peer. Errors: -EINVAL, -EAGAIN, -ENOMEM. */
int remo__versioned_begin(struct remo_versioned *versioned, uint32_t owner,
                          struct remo__versioned_get *ret_get);
/* Begin to read an object: take a buffer, and the location if it is known. The caller calls
 * remo__versioned_get_end, also after an error. */
int remo__versioned_get_begin(struct remo_versioned *versioned, uint32_t owner, uint32_t object,
                              uint64_t version, remo_versioned_visitor *visit, void *ctx,
                              struct remo__versioned_get *ret_get);
void remo__versioned_get_end(struct remo__versioned_get *get);
/* Return an error if the owner has not reached the version. */
int remo__versioned_get_check(const struct remo__versioned_get *get);
/* Read the version of the owner. */
int remo__versioned_get_version(const struct remo__versioned_get *get, uint64_t *ret_version);
/* The same over a network, and forget the locations of objects that have moved. */
int remo__versioned_get_front(const struct remo__versioned_get *get, uint64_t *ret_version);

/* Read the entry of the directory. With an ack, it is in place when the ack is complete. */
int remo__versioned_get_locate(struct remo__versioned_get *get, struct remo_ack *ack);
int remo__versioned_get_use_location(struct remo__versioned_get *get);
/* Copy the extent over the network, without the zeros at the end of the base if their number is known. With
 * an ack, the copy is in place when the ack is complete. */
int remo__versioned_get_copy(struct remo__versioned_get *get, struct remo_ack *ack);
/* In mapped memory, copy the header and the records, and find the state in them. Then the copy is ready, or
 * another one is needed. */
int remo__versioned_get_copy_in_order(struct remo__versioned_get *get);
/* The same, and call the visitor if the copy is ready: without the overhead of two calls. */
int remo__versioned_get_once(struct remo__versioned_get *get);
/* In mapped memory, load into the cache the beginning of the extent, for a visitor that copies most of it:
 * first the lines that can be on their way during other work, and just before the visit the rest. */
void remo__versioned_get_prefetch(const struct remo__versioned_get *get);
void remo__versioned_get_prefetch_rest(const struct remo__versioned_get *get);
/* Load parts of the extent, for a visitor that copies some of it. */
void remo__versioned_get_prefetch_parts(const struct remo__versioned_get *get);
/* Find the state in a copy over the network. Then the copy is ready, or another one is needed. */
int remo__versioned_get_use_copy(struct remo__versioned_get *get);
/* Call `prepare` for a copy that is ready. */
void remo__versioned_get_prepare(const struct remo__versioned_get *get);
/* Call the visitor for a copy that is ready. Then the get is done, or another copy is needed. */
int remo__versioned_get_visit(struct remo__versioned_get *get);
