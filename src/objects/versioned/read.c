/* read.c - reads of objects. A read copies an extent to a private buffer (in mapped memory, only its header
 * and records), and finds the state there. Invariant: the state is used only if the location came from the
 * directory during the call, or the head does not have the superseded mark, or a record of a later version
 * follows the state. Otherwise the object may have changed in another extent. docs/internals/versioned.md
 * describes the cases. */
#include <stdlib.h>
#include <string.h>

#include "objects/versioned/versioned.h"

/* Objects that remo_versioned_read_many reads at the same time. */
#ifdef REMO_SIM_SMALL
#define WINDOW 2u
#else
#define WINDOW 16u
#endif
#define PREFETCHED_BYTES 384u
#define PREFETCHED_BYTES_MAX 2048u
#define KEPT_BYTES_MAX (64u << 10) /* larger buffers are not kept between reads */

/* A read of one object. */
struct get {
    struct remo_versioned *versioned;
    struct remo__thread *thread;
    struct remo__versioned_peer *peer;
    uint32_t owner, object;
    uint64_t at;       /* the requested version */
    uint64_t location; /* of the extent; 0: read it from the directory */
    _Atomic uint64_t *known;
    remo_versioned_visitor *visit;
    void *ctx;
    uint64_t version; /* of the object, if is_done */
    bool is_copied;   /* over the network, and not used yet */
    bool is_done;
    bool wants_newest; /* the request: `at` may change */
    bool is_fresh;     /* the location came from the directory during this call */
    bool is_older;     /* the location came from a later extent of the object */
    bool is_ready;     /* the copy has `state`, and is not visited yet */
    struct remo__versioned_state state;
    struct remo__versioned_buffer *buffer;
    const char *place;        /* the extent, if it is read in order */
    struct remo_stats *stats; /* of reads in mapped memory; NULL: the memory is this node's own */
    struct remo_ack ack;
};

/* ---- buffers ---- */

static struct remo__versioned_buffer *take_buffer(struct remo_versioned *versioned,
                                                  const struct remo__thread *thread) {
    struct remo__versioned_buffer *buffer = versioned->buffers[thread->index];
    if (remo__likely(buffer != NULL)) {
        versioned->buffers[thread->index] = buffer->next;
        return buffer;
    }
    buffer = aligned_alloc(REMO__CACHE_LINE, sizeof *buffer + versioned->shape.extent_bytes);
    if (!buffer)
        remo__fail(-ENOMEM, "no memory for a read of %s", remo_channel_name(versioned->region->channel));
    return buffer;
}

static void put_buffer(struct remo_versioned *versioned, const struct remo__thread *thread,
                       struct remo__versioned_buffer *buffer) {
    if (versioned->shape.extent_bytes > KEPT_BYTES_MAX) {
        free(buffer);
        return;
    }
    buffer->next = versioned->buffers[thread->index];
    versioned->buffers[thread->index] = buffer;
}

/* ---- facts about an owner ---- */

/* If another thread has found the version, its reads precede those of this thread after this call. */
static uint64_t known_version(const struct remo__versioned_peer *peer) {
    return atomic_load_explicit(&peer->version, memory_order_acquire);
}

static void learn_version(struct remo__versioned_peer *peer, uint64_t version) {
    uint64_t known = atomic_load_explicit(&peer->version, memory_order_relaxed);
    while (remo__unlikely(known < version)
           && !atomic_compare_exchange_weak_explicit(&peer->version, &known, version, memory_order_release,
                                                     memory_order_relaxed))
        continue;
}

/* Return the known locations of an owner's objects, or NULL with the error's sentence set. */
static _Atomic uint64_t *locations_of(struct remo_versioned *versioned, struct remo__versioned_peer *peer) {
    _Atomic uint64_t *locations = atomic_load_explicit(&peer->locations, memory_order_acquire), *none = NULL;
    if (remo__likely(locations != NULL))
        return locations;
    locations = calloc(versioned->shape.objects, sizeof locations[0]);
    if (!locations) {
        remo__fail(-ENOMEM, "no memory for the locations of %u objects of %s", versioned->shape.objects,
                   remo_channel_name(versioned->region->channel));
        return NULL;
    }
    if (atomic_compare_exchange_strong(&peer->locations, &none, locations))
        return locations;
    free(locations); /* another thread was first */
    return none;
}

/* ---- reads ---- */

static bool is_own(const struct get *get) {
    return get->owner == get->versioned->region->node->rank;
}

/* Read from the owner's memory, at the owner without a network operation. With an ack, the data is in place
 * when the ack is complete. */
static int read_bytes(const struct get *get, uint64_t offset, void *dst, size_t bytes, struct remo_ack *ack) {
    const struct remo__memory *memory = get->versioned->region->memory;
    struct remo__ref ref;
    if (is_own(get)) {
        remo__copy_from(dst, memory->own + offset, bytes);
        return 0;
    }
    int rc = remo__memory_find(memory, get->thread, get->owner, offset, &ref);
    return rc == 0 ? remo__read(ref, dst, bytes, ack) : rc;
}

static int read_word(const struct get *get, uint64_t offset, uint64_t *ret_word) {
    return read_bytes(get, offset, ret_word, sizeof *ret_word, NULL);
}

static int fail_damaged(const struct get *get) {
    return remo__fail(
        -EPROTO, "the memory of %s at node %u is damaged: it has no valid object %u; start the job again",
        remo_channel_name(get->versioned->region->channel), get->owner, get->object);
}

static int read_version(const struct get *get, uint64_t *ret_version) {
    int rc = read_word(get, 0, ret_version);
    if (rc != 0)
        return rc;
    if (*ret_version == REMO_VERSIONED_NEWEST)
        return fail_damaged(get);
    /* The thread that stored it may not have flushed it yet. A peer must not read an older version after this
     * call. */
    if (is_own(get))
        remo__flush(get->versioned->region->memory->own, sizeof *ret_version);
    learn_version(get->peer, *ret_version);
    return 0;
}

static bool is_location(const struct get *get) {
    return remo__versioned_extent(get->location) < get->versioned->shape.extents
           && remo__versioned_generation(get->location) > 0;
}

static uint64_t extent_at(const struct get *get) {
    return remo__versioned_extent_at(&get->versioned->shape, remo__versioned_extent(get->location));
}

/* Return whether extents are copied in order, so that seals are not needed. */
static bool is_in_order(const struct get *get) {
    return get->versioned->region->node->mapped || is_own(get);
}

/* Set get->place to the extent in mapped memory, and get->stats. */
static int find_place(struct get *get) {
    const struct remo__memory *memory = get->versioned->region->memory;
    struct remo__ref ref;
    uint64_t head;
    if (is_own(get)) {
        get->place = memory->own + extent_at(get);
        return 0;
    }
    int rc = remo__memory_find(memory, get->thread, get->owner, extent_at(get), &ref);
    if (rc != 0)
        return rc;
    while (remo__unlikely(!(get->place = remo__ref_mapped(ref)))) {
        rc = remo__read(ref, &head, sizeof head, NULL); /* for the error */
        if (rc != 0)
            return rc;
    }
    get->stats = ref.stats;
    return 0;
}

static void prefetch_lines(const char *place, uint64_t bytes) {
    for (uint64_t at = 0; at < bytes; at += REMO__CACHE_LINE)
        __builtin_prefetch(place + at);
}

/* Prefetch together the lines that most visitors use: the first lines of the base and of the records, and the
 * end of the base. Otherwise one load would wait for another. */
static void prefetch_parts(const struct get *get) {
    const struct remo__versioned_shape *shape = &get->versioned->shape;
    uint64_t records = sizeof(struct remo__versioned_header) + shape->base_bytes;
    prefetch_lines(get->place, remo__min(records, PREFETCHED_BYTES));
    prefetch_lines(get->place + records - 1, remo__min(UINT64_C(8) * shape->log_words, PREFETCHED_BYTES));
}

/* Prefetch the beginning of an extent, while the extent before it is visited. The CPU prefetches the rest
 * itself when the visitor reads it in order. */
static void prefetch_next(const struct get *get) {
    const struct remo__versioned_shape *shape = &get->versioned->shape;
    const struct remo__memory *memory = get->versioned->region->memory;
    if (get->is_done || get->location == 0)
        return;
    const char *place =
        is_own(get) ? memory->own + extent_at(get) : remo__memory_mapped(memory, get->owner, extent_at(get));
    uint64_t bytes = remo__min(shape->extent_bytes, shape->base_bytes + PREFETCHED_BYTES);
    if (place)
        prefetch_lines(place, remo__min(bytes, PREFETCHED_BYTES_MAX));
}

/* Return whether the extent in mapped memory still has the generation of the location. */
static bool has_generation(const struct get *get) {
    uint64_t head;
    remo__copy_from(&head, get->place, sizeof head);
    return remo__versioned_generation(head) == remo__versioned_generation(get->location);
}

/* Copy the header and then the records that the head counts, and read the head again. The copy is whole if
 * the generation is the same, because the header was placed before the location. */
static int copy_in_order(struct get *get) {
    const struct remo__versioned_shape *shape = &get->versioned->shape;
    struct remo__versioned_image *image = &get->buffer->image;
    int rc = find_place(get);
    if (rc != 0)
        return rc;
    prefetch_parts(get);
    remo__copy_from(&image->header, get->place, sizeof image->header);
    uint64_t words = remo__min(remo__versioned_used(image->header.head), shape->log_words);
    if (words > 0)
        remo__copy_from(image->contents, get->place + sizeof image->header + shape->base_bytes, 8 * words);
    if (!has_generation(get))
        image->header.head = 0; /* the extent was used again */
    if (get->stats)
        remo__count(&get->stats->reads, 1);
    return 0;
}

/* Read the location from the directory. With an ack, the location is in place when the ack is complete. */
static int ask_directory(struct get *get, struct remo_ack *ack) {
    get->is_fresh = true;
    return read_bytes(get, remo__versioned_directory_at(get->object), &get->location, sizeof get->location,
                      ack);
}

static int use_location(struct get *get) {
    if (!is_location(get))
        return fail_damaged(get);
    atomic_store_explicit(get->known, get->location, memory_order_release);
    return 0;
}

/* Return the records in the buffer. */
static const uint64_t *records_of(const struct get *get) {
    uint32_t base_words = is_in_order(get) ? 0 : get->versioned->shape.base_bytes / 8;
    return get->buffer->image.contents + base_words;
}

/* ---- one copy ---- */

/* If another copy is needed, the functions below set get->location to 0 or to an earlier extent. */

static int restart(struct get *get) {
    get->location = 0;
    get->is_older = false;
    if (get->wants_newest)
        get->at = REMO_VERSIONED_NEWEST;
    return 0;
}

/* The extent has been used again. */
static int restart_reused(struct get *get) {
    if (!get->is_older || get->wants_newest)
        return restart(get);
    return remo__fail(
        -ESTALE,
        "cannot read version %llu of object %u of %s at node %u: it is not retained any more; read a "
        "newer version, or open the table with a larger retain",
        (unsigned long long)get->at, get->object, remo_channel_name(get->versioned->region->channel),
        get->owner);
}

/* Continue with the extent that the object had before. */
static int go_back(struct get *get) {
    get->location = get->buffer->image.header.previous;
    get->is_older = true;
    return is_location(get) ? 0 : fail_damaged(get);
}

/* A part of the copy is not whole. Read the head again, and set *ret_same to whether its generation is the
 * same. Then the extent was not used again during the copy, so the part had not been written completely. */
static int confirm(struct get *get, bool *ret_same) {
    uint64_t head;
    int rc = read_word(get, extent_at(get), &head);
    *ret_same = rc == 0 && remo__versioned_generation(head) == remo__versioned_generation(get->location);
    return rc == 0 && !*ret_same ? restart_reused(get) : rc;
}

/* The base is not whole: the extent has been used again, or the memory is damaged. */
static int explain_damage(struct get *get) {
    bool is_same = true;
    int rc = is_in_order(get) ? 0 : confirm(get, &is_same);
    return rc == 0 && is_same ? fail_damaged(get) : rc;
}

/* Remove the last commit from the state if it is not visible yet. If the base contains it, the state before
 * is in the previous extent: continue there, as of the visible version, and set *ret_again. */
static int leave_out_pending(struct get *get, struct remo__versioned_state *state, bool *ret_again) {
    uint64_t version;
    if (!state->is_pending || get->at != REMO_VERSIONED_NEWEST || state->version <= known_version(get->peer))
        return 0;
    int rc = read_version(get, &version);
    if (rc != 0 || state->version <= version)
        return rc;
    *ret_again = state->words == 0;
    if (*ret_again) {
        get->at = version;
        return go_back(get);
    }
    state->version = state->version_before;
    state->words = state->words_before;
    return 0;
}

/* Call the visitor. In mapped memory the visitor reads the base in place. If the extent was used again
 * meanwhile, the visitor may have read any bytes. */
static int call_visitor(struct get *get) {
    const struct remo__versioned_image *image = &get->buffer->image;
    const struct remo__versioned_state *state = &get->state;
    bool is_in_place = is_in_order(get);
    uint64_t copied = 0;
    struct remo_versioned_view view = {.shape = &get->versioned->shape,
                                       .base = is_in_place ? get->place + sizeof image->header
                                                           : (const char *)image->contents,
                                       .is_in_place = is_in_place,
                                       .records = records_of(get),
                                       .words = state->words,
                                       .parts = state->parts,
                                       .version = state->version,
                                       .copied = &copied};
    get->is_ready = false;
    get->visit(get->ctx, &view);
    if (is_in_place && get->stats)
        remo__count(&get->stats->bytes, sizeof image->header + UINT64_C(8) * state->words + copied);
    if (is_in_place && !has_generation(get))
        return restart_reused(get);
    learn_version(get->peer, state->version);
    get->version = state->version;
    get->is_done = true;
    return 0;
}

/* Decide whether the state is that of the request. */
static int check_state(struct get *get) {
    const struct remo__versioned_image *image = &get->buffer->image;
    bool is_same = true, again = false;
    if (image->header.head & REMO__VERSIONED_SUPERSEDED && !get->is_fresh && !get->is_older
        && !get->state.has_later)
        return restart(get);
    int rc = get->state.is_cut ? confirm(get, &is_same) : 0;
    if (rc == 0 && is_same)
        rc = leave_out_pending(get, &get->state, &again);
    get->is_ready = rc == 0 && is_same && !again;
    return rc;
}

/* Find the state in the copy. Then the copy is ready, or another one is needed. */
static int use_copy(struct get *get) {
    switch (remo__versioned_judge(&get->versioned->shape, &get->buffer->image, records_of(get), get->object,
                                  remo__versioned_generation(get->location), get->at, !is_in_order(get),
                                  &get->state)) {
    case REMO__VERSIONED_REUSED: return restart_reused(get);
    case REMO__VERSIONED_LATER: return go_back(get);
    case REMO__VERSIONED_STATE: return check_state(get);
    default: return explain_damage(get);
    }
}

/* ---- rounds: of one or several objects of an owner ---- */

/* Wait for the operations of all gets. After an error cancel them, because they use the caller's stack. */
static int settle(struct get *gets, uint32_t count, int rc) {
    for (uint32_t i = 0; i < count; i++) {
        struct remo_node *node = gets[i].versioned->region->node;
        struct remo_ack *ack = &gets[i].ack;
        if (rc != 0) {
            remo_ack_cancel(ack);
        } else if (remo__ack_pending(ack) || ack->status != 0) {
            rc = remo__ack_settle(ack, node->op_timeout_ns);
            if (rc == -ETIMEDOUT)
                rc = remo__peer_timeout(node, gets[i].owner, "read from");
        }
        *ack = (struct remo_ack)REMO_ACK_INIT;
    }
    return rc;
}

/* A single read needs no ack. */
static struct remo_ack *ack_of(struct get *get, uint32_t count) {
    return count > 1 ? &get->ack : NULL;
}

/* Read all locations that are not known from the directory. */
static int locate(struct get *gets, uint32_t count) {
    bool asked[WINDOW] = {false};
    int rc = 0;
    remo__cork(gets[0].thread);
    for (uint32_t i = 0; i < count && rc == 0; i++) {
        asked[i] = !gets[i].is_done && gets[i].location == 0;
        if (asked[i])
            rc = ask_directory(&gets[i], ack_of(&gets[i], count));
    }
    remo__uncork(gets[0].thread);
    rc = settle(gets, count, rc);
    for (uint32_t i = 0; i < count && rc == 0; i++)
        if (asked[i])
            rc = use_location(&gets[i]);
    return rc;
}

/* Over the network: copy and use the extents of all gets whose copies are not ready. */
static int copy_all(struct get *gets, uint32_t count) {
    int rc = 0;
    remo__cork(gets[0].thread);
    for (uint32_t i = 0; i < count && rc == 0; i++)
        if (!gets[i].is_done && !gets[i].is_ready)
            rc = read_bytes(&gets[i], extent_at(&gets[i]), &gets[i].buffer->image,
                            gets[i].versioned->shape.extent_bytes, ack_of(&gets[i], count));
    remo__uncork(gets[0].thread);
    rc = settle(gets, count, rc);
    for (uint32_t i = 0; i < count && rc == 0; i++)
        if (!gets[i].is_done && !gets[i].is_ready)
            rc = use_copy(&gets[i]);
    return rc;
}

/* In mapped memory: use an extent, and prefetch the next one. */
static int copy_one(struct get *get, const struct get *next) {
    if (next)
        prefetch_next(next);
    int rc = copy_in_order(get);
    return rc == 0 ? use_copy(get) : rc;
}

/* Read the extents of all gets that are not done, and visit them in order, up to the first one that needs
 * another round. Sets *ret_done to whether all are done then. */
static int run_round(struct get *gets, uint32_t count, bool *ret_done) {
    bool in_order = is_in_order(&gets[0]);
    int rc = locate(gets, count);
    if (rc == 0 && !in_order)
        rc = copy_all(gets, count);
    *ret_done = true;
    for (uint32_t i = 0; i < count && rc == 0 && *ret_done; i++) {
        if (gets[i].is_done)
            continue;
        if (in_order)
            rc = copy_one(&gets[i], i + 1 < count ? &gets[i + 1] : NULL);
        if (rc == 0 && gets[i].is_ready)
            rc = call_visitor(&gets[i]);
        *ret_done = gets[i].is_done;
    }
    return rc;
}

static int fail_outrun(const struct get *get) {
    return remo__fail(
        -ETIMEDOUT,
        "cannot read from node %u: it moves the objects of %s faster than a read completes; open "
        "the table with a larger retain or log_bytes",
        get->owner, remo_channel_name(get->versioned->region->channel));
}

/* Read the objects of up to WINDOW gets. */
static int run_gets(struct get *gets, uint32_t count) {
    uint64_t deadline_ns = 0;
    bool is_done;
    int rc;
    while ((rc = run_round(gets, count, &is_done)) == 0 && !is_done) {
        if (deadline_ns == 0)
            deadline_ns = remo__deadline(gets[0].versioned->region->node->op_timeout_ns);
        else if (remo__remaining_ns(deadline_ns) == 0)
            return fail_outrun(&gets[0]);
    }
    return rc;
}

/* ---- views ---- */

void remo_versioned_view_copy(const struct remo_versioned_view *view, uint32_t offset, void *dst,
                              size_t bytes) {
    uint32_t object_bytes = view->shape->object_bytes;
    if (remo__unlikely(bytes == 0 || offset > object_bytes || bytes > object_bytes - offset))
        return;
    if (view->is_in_place)
        remo__copy_from(dst, view->base + offset, bytes);
    else
        memcpy(dst, view->base + offset, bytes);
    *view->copied += bytes;
    if (view->parts & remo__versioned_parts(view->shape, offset, (uint32_t)bytes))
        remo__versioned_overlay(view->records, view->words, offset, dst, (uint32_t)bytes);
}

void remo_versioned_view_prefetch(const struct remo_versioned_view *view, uint32_t offset) {
    if (view->is_in_place)
        __builtin_prefetch(view->base + remo__min(offset, view->shape->object_bytes));
}

uint64_t remo_versioned_view_version(const struct remo_versioned_view *view) {
    return view->version;
}

/* ---- the calls ---- */

static int begin(struct remo_versioned *versioned, uint32_t owner, struct get *ret_get) {
    *ret_get = (struct get){.versioned = versioned, .owner = owner, .ack = REMO_ACK_INIT};
    if (owner >= versioned->region->nodes || !remo_nodeset_has(&versioned->owners, owner))
        return remo__fail(-EINVAL, "cannot read from node %u: it is not an owner of %s", owner,
                          remo_channel_name(versioned->region->channel));
    ret_get->thread = remo__thread(versioned->region->node);
    ret_get->peer = &versioned->peers[owner];
    return ret_get->thread ? 0 : remo__last_code();
}

static int check_object(const struct remo_versioned *versioned, uint32_t object) {
    return object < versioned->shape.objects
               ? 0
               : remo__fail(-EINVAL, "cannot read object %u of %s: the last object is %u", object,
                            remo_channel_name(versioned->region->channel), versioned->shape.objects - 1);
}

static int check_value(const struct remo_versioned *versioned, uint32_t object, const void *value) {
    int rc = check_object(versioned, object);
    return rc != 0 || value ? rc
                            : remo__fail(-EINVAL, "cannot read object %u of %s: value is NULL", object,
                                         remo_channel_name(versioned->region->channel));
}

/* Begin to read an object: take a buffer, and the location if it is known. The caller calls end_get, also
 * after an error. */
static int begin_get(struct remo_versioned *versioned, uint32_t owner, uint32_t object, uint64_t version,
                     remo_versioned_visitor *visit, void *ctx, struct get *ret_get) {
    int rc = begin(versioned, owner, ret_get);
    if (rc != 0)
        return rc;
    _Atomic uint64_t *locations = locations_of(versioned, ret_get->peer);
    if (!locations)
        return remo__last_code();
    ret_get->object = object;
    ret_get->at = version;
    ret_get->wants_newest = version == REMO_VERSIONED_NEWEST;
    ret_get->visit = visit;
    ret_get->ctx = ctx;
    ret_get->known = &locations[object];
    /* If another thread has read the location, the extent precedes it. */
    ret_get->location = atomic_load_explicit(ret_get->known, memory_order_acquire);
    ret_get->buffer = take_buffer(versioned, ret_get->thread);
    return ret_get->buffer ? 0 : remo__last_code();
}

static void end_get(struct get *get) {
    if (get->buffer)
        put_buffer(get->versioned, get->thread, get->buffer);
}

/* Return an error if the owner has not reached the version. */
static int check_version(const struct get *get) {
    uint64_t version = known_version(get->peer);
    if (get->at <= version || get->at == REMO_VERSIONED_NEWEST)
        return 0;
    int rc = read_version(get, &version);
    if (rc == 0 && get->at > version)
        rc = remo__fail(
            -EINVAL, "cannot read version %llu of %s at node %u: the newest version is %llu; try again later",
            (unsigned long long)get->at, remo_channel_name(get->versioned->region->channel), get->owner,
            (unsigned long long)version);
    return rc;
}

/* Visit an object, whose number is valid. */
static int visit_object(struct remo_versioned *versioned, uint32_t owner, uint32_t object, uint64_t version,
                        remo_versioned_visitor *visit, void *ctx, uint64_t *ret_version) {
    struct get get = {0};
    int rc = begin_get(versioned, owner, object, version, visit, ctx, &get);
    if (rc == 0)
        rc = check_version(&get);
    if (rc == 0)
        rc = run_gets(&get, 1);
    end_get(&get);
    if (rc == 0 && ret_version)
        *ret_version = get.version;
    return rc;
}

int remo_versioned_visit(struct remo_versioned *versioned, uint32_t owner, uint32_t object, uint64_t version,
                         remo_versioned_visitor *visit, void *ctx, uint64_t *ret_version) {
    REMO__REQUIRE(versioned);
    REMO__REQUIRE(visit);
    int rc = check_object(versioned, object);
    return rc == 0 ? visit_object(versioned, owner, object, version, visit, ctx, ret_version) : rc;
}

/* The visitor of reads. */
static void copy_value(void *value, const struct remo_versioned_view *view) {
    remo_versioned_view_copy(view, 0, value, view->shape->object_bytes);
}

int remo_versioned_read_at(struct remo_versioned *versioned, uint32_t owner, uint32_t object,
                           uint64_t version, void *value, uint64_t *ret_version) {
    REMO__REQUIRE(versioned);
    int rc = check_value(versioned, object, value);
    return rc == 0 ? visit_object(versioned, owner, object, version, copy_value, value, ret_version) : rc;
}

int remo_versioned_read(struct remo_versioned *versioned, uint32_t owner, uint32_t object, void *value,
                        uint64_t *ret_version) {
    return remo_versioned_read_at(versioned, owner, object, REMO_VERSIONED_NEWEST, value, ret_version);
}

int remo_versioned_version(struct remo_versioned *versioned, uint32_t owner, uint64_t *ret_version) {
    REMO__REQUIRE(versioned);
    REMO__REQUIRE(ret_version);
    struct get get;
    int rc = begin(versioned, owner, &get);
    return rc == 0 ? read_version(&get, ret_version) : rc;
}

/* Visit up to WINDOW objects as of `version`. */
static int visit_window(struct remo_versioned *versioned, uint32_t owner, uint64_t version,
                        remo_versioned_visitor *visit, struct remo_versioned_item *items, uint32_t count) {
    struct get gets[WINDOW] = {0};
    int rc = 0;
    for (uint32_t i = 0; i < count && rc == 0; i++)
        rc = begin_get(versioned, owner, items[i].object, version, visit, items[i].value, &gets[i]);
    if (rc == 0)
        rc = run_gets(gets, count);
    for (uint32_t i = 0; i < count; i++) {
        items[i].version = gets[i].version;
        end_get(&gets[i]);
    }
    return rc;
}

static int visit_all(struct remo_versioned *versioned, uint32_t owner, uint64_t version,
                     remo_versioned_visitor *visit, struct remo_versioned_item *items, uint32_t count) {
    int rc = 0;
    for (uint64_t i = 0; i < count && rc == 0; i += WINDOW)
        rc =
            visit_window(versioned, owner, version, visit, items + i, (uint32_t)remo__min(WINDOW, count - i));
    return rc;
}

static int check_items(const struct remo_versioned *versioned, const struct remo_versioned_item *items,
                       uint32_t count) {
    int rc = 0;
    for (uint32_t i = 0; i < count && rc == 0; i++)
        rc = check_value(versioned, items[i].object, items[i].value);
    return rc;
}

/* Check the arguments of a read of several objects, and that the owner has reached the version. */
static int begin_many(struct remo_versioned *versioned, uint32_t owner, uint64_t version,
                      const struct remo_versioned_item *items, uint32_t count) {
    struct get get;
    int rc = 0;
    for (uint32_t i = 0; i < count && rc == 0; i++)
        rc = check_object(versioned, items[i].object);
    if (rc == 0)
        rc = begin(versioned, owner, &get);
    if (rc != 0)
        return rc;
    get.at = version;
    return check_version(&get);
}

int remo_versioned_visit_many(struct remo_versioned *versioned, uint32_t owner, uint64_t version,
                              remo_versioned_visitor *visit, struct remo_versioned_item *items,
                              uint32_t count) {
    REMO__REQUIRE(versioned);
    REMO__REQUIRE(visit);
    REMO__REQUIRE(items);
    int rc = begin_many(versioned, owner, version, items, count);
    return rc == 0 ? visit_all(versioned, owner, version, visit, items, count) : rc;
}

int remo_versioned_read_many_at(struct remo_versioned *versioned, uint32_t owner, uint64_t version,
                                struct remo_versioned_item *items, uint32_t count) {
    REMO__REQUIRE(versioned);
    REMO__REQUIRE(items);
    int rc = check_items(versioned, items, count);
    if (rc == 0 && version == REMO_VERSIONED_NEWEST)
        rc = remo__fail(-EINVAL, "cannot read objects as of no version: use remo_versioned_read_many");
    if (rc == 0)
        rc = begin_many(versioned, owner, version, items, count);
    return rc == 0 ? visit_all(versioned, owner, version, copy_value, items, count) : rc;
}

int remo_versioned_read_many(struct remo_versioned *versioned, uint32_t owner,
                             struct remo_versioned_item *items, uint32_t count, uint64_t *ret_version) {
    REMO__REQUIRE(versioned);
    REMO__REQUIRE(items);
    uint64_t version = 0, deadline_ns = 0;
    int rc = check_items(versioned, items, count);
    if (rc != 0)
        return rc;
    do {
        if (deadline_ns != 0 && remo__remaining_ns(deadline_ns) == 0)
            return fail_outrun(&(struct get){.versioned = versioned, .owner = owner});
        rc = remo_versioned_version(versioned, owner, &version);
        if (rc == 0)
            rc = visit_all(versioned, owner, version, copy_value, items, count);
        if (rc == -ESTALE && deadline_ns == 0)
            deadline_ns = remo__deadline(versioned->region->node->op_timeout_ns);
    } while (rc == -ESTALE);
    if (rc == 0 && ret_version)
        *ret_version = version;
    return rc;
}
