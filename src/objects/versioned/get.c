/* get.c - the read of one object: copies an extent to a private buffer (in mapped memory, only its header and
 * records), and finds the state there. Invariant: the state is used only if the location came from the
 * directory during the call, or the head does not have the superseded mark, or a record of a later version
 * follows the state. Otherwise the object may have changed in another extent. docs/internals/versioned.md
 * describes the cases. */
#include "objects/versioned/get.h"

#include <stdlib.h>
#include <string.h>

#define BASE_BYTES 256u /* prefetched for most visitors */
#define RECORDS_BYTES 384u
/* Prefetched of the base for a visitor that copies most of it, in two steps. Only about 20 lines can be on
 * their way to a CPU, and further prefetches wait: the first step has 16 lines with the records. */
#define FIRST_BYTES 640u
#define PREFETCHED_BYTES_MAX 2048u
#define KEPT_BYTES_MAX (64u << 10) /* larger buffers are not kept between reads */

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
    locations = calloc(versioned->shape.objects, 2 * sizeof locations[0]);
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

/* Read from the owner's memory, at the owner without a network operation. With an ack, the data is in place
 * when the ack is complete. */
static int read_bytes(const struct remo__versioned_get *get, uint64_t offset, void *dst, size_t bytes,
                      struct remo_ack *ack) {
    const struct remo__memory *memory = get->versioned->region->memory;
    struct remo__ref ref;
    if (remo__versioned_is_own(get)) {
        remo__copy_from(dst, memory->own + offset, bytes);
        return 0;
    }
    int rc = remo__memory_find(memory, get->thread, get->owner, offset, &ref);
    return rc == 0 ? remo__read(ref, dst, bytes, ack) : rc;
}

static int read_word(const struct remo__versioned_get *get, uint64_t offset, uint64_t *ret_word) {
    return read_bytes(get, offset, ret_word, sizeof *ret_word, NULL);
}

static int fail_damaged(const struct remo__versioned_get *get) {
    return remo__fail(
        -EPROTO, "the memory of %s at node %u is damaged: it has no valid object %u; start the job again",
        remo_channel_name(get->versioned->region->channel), get->owner, get->object);
}

static int use_version(const struct remo__versioned_get *get, uint64_t version) {
    if (version == REMO_VERSIONED_NEWEST)
        return fail_damaged(get);
    /* The thread that stored it may not have flushed it yet. A peer must not read an older version after this
     * call. */
    if (remo__versioned_is_own(get))
        remo__flush(get->versioned->region->memory->own, sizeof version);
    learn_version(get->peer, version);
    return 0;
}

int remo__versioned_get_version(const struct remo__versioned_get *get, uint64_t *ret_version) {
    int rc = read_word(get, 0, ret_version);
    return rc == 0 ? use_version(get, *ret_version) : rc;
}

/* Forget the known locations that the moves of the front name. Another thread may have found newer ones. */
static void forget_moved(const struct remo__versioned_get *get, const struct remo__versioned_front *front) {
    _Atomic uint64_t *locations = atomic_load_explicit(&get->peer->locations, memory_order_acquire);
    for (uint32_t i = 0; i < REMO__VERSIONED_MOVES && locations; i++) {
        uint32_t object = front->moves[i] & (REMO_VERSIONED_OBJECTS_MAX - 1);
        if (object >= get->versioned->shape.objects)
            continue;
        uint64_t known = atomic_load_explicit(&locations[object], memory_order_relaxed);
        if (known != 0 && front->moves[i] == remo__versioned_move(known, object))
            atomic_compare_exchange_strong_explicit(&locations[object], &known, 0, memory_order_relaxed,
                                                    memory_order_relaxed);
    }
}

int remo__versioned_get_front(const struct remo__versioned_get *get, uint64_t *ret_version) {
    struct remo__versioned_front front;
    int rc = read_bytes(get, 0, &front, sizeof front, NULL);
    if (rc == 0)
        rc = use_version(get, front.version);
    if (rc != 0)
        return rc;
    forget_moved(get, &front);
    *ret_version = front.version;
    return 0;
}

static bool is_location(const struct remo__versioned_get *get) {
    return remo__versioned_extent(get->location) < get->versioned->shape.extents
           && remo__versioned_generation(get->location) > 0;
}

static uint64_t extent_at(const struct remo__versioned_get *get) {
    return remo__versioned_extent_at(&get->versioned->shape, remo__versioned_extent(get->location));
}

/* Set get->place to the extent in mapped memory, and get->stats. */
static inline __attribute__((always_inline)) int find_place(struct remo__versioned_get *get) {
    const struct remo__memory *memory = get->versioned->region->memory;
    struct remo__ref ref;
    uint64_t head;
    if (remo__versioned_is_own(get)) {
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
    const char *end = place + bytes;
    for (place -= (uintptr_t)place % REMO__CACHE_LINE; place < end; place += REMO__CACHE_LINE)
        remo__mapped_prefetch(place);
}

/* Prefetch the first lines of the records and of the base. */
static void prefetch_extent(const struct remo__versioned_get *get, const char *place, uint32_t base_bytes) {
    const struct remo__versioned_shape *shape = &get->versioned->shape;
    uint64_t base_at = remo__versioned_base_at(shape);
    prefetch_lines(place, remo__min(base_at, RECORDS_BYTES));
    prefetch_lines(place + base_at, remo__min(shape->base_bytes, base_bytes));
}

/* Prefetch together the lines that most visitors use: the first lines of the records and of the base.
 * Otherwise one load would wait for another. */
static void prefetch_parts(const struct remo__versioned_get *get, const char *place) {
    prefetch_extent(get, place, BASE_BYTES);
}

/* Return the probable place of the extent, for a prefetch, or NULL. */
static const char *probable_place(const struct remo__versioned_get *get) {
    const struct remo__memory *memory = get->versioned->region->memory;
    if (get->is_done || get->location == 0)
        return NULL;
    return remo__versioned_is_own(get) ? memory->own + extent_at(get)
                                       : remo__memory_mapped(memory, get->owner, extent_at(get));
}

void remo__versioned_get_prefetch_parts(const struct remo__versioned_get *get) {
    const char *place = probable_place(get);
    if (place)
        prefetch_parts(get, place);
}

void remo__versioned_get_prefetch(const struct remo__versioned_get *get) {
    const char *place = probable_place(get);
    if (place)
        prefetch_extent(get, place, FIRST_BYTES);
}

/* The CPU prefetches the end of a long base itself when the visitor reads it in order. */
void remo__versioned_get_prefetch_rest(const struct remo__versioned_get *get) {
    const struct remo__versioned_shape *shape = &get->versioned->shape;
    const char *place = probable_place(get);
    if (place && shape->base_bytes > FIRST_BYTES)
        prefetch_lines(place + remo__versioned_base_at(shape) + FIRST_BYTES,
                       remo__min(shape->base_bytes, PREFETCHED_BYTES_MAX) - FIRST_BYTES);
}

/* Return whether the extent in mapped memory still has the generation of the location. */
static bool has_generation(const struct remo__versioned_get *get) {
    uint64_t head;
    remo__copy_from(&head, get->place, sizeof head);
    return remo__versioned_generation(head) == remo__versioned_generation(get->location);
}

/* Copy the header and then the records that the head counts, and read the head again. The copy is whole if
 * the generation is the same, because the header was placed before the location. */
static inline __attribute__((always_inline)) int copy_in_order(struct remo__versioned_get *get) {
    const struct remo__versioned_shape *shape = &get->versioned->shape;
    struct remo__versioned_image *image = &get->buffer->image;
    int rc = find_place(get);
    if (rc != 0)
        return rc;
    if (!get->prepare) /* else the round has prefetched them */
        prefetch_parts(get, get->place);
    remo__copy_from(&image->header, get->place, sizeof image->header);
    uint64_t words = remo__min(remo__versioned_used(image->header.head), shape->log_words);
    if (words > 0)
        remo__copy_from(image->records, get->place + sizeof image->header, 8 * words);
    if (!has_generation(get))
        image->header.head = 0; /* the extent was used again */
    if (get->stats)
        remo__count(&get->stats->reads, 1);
    return 0;
}

/* Return the words of the base to copy: those that are used, if there is a note of this extent. */
static uint32_t words_to_copy(const struct remo__versioned_get *get) {
    uint64_t note = atomic_load_explicit(get->known_note, memory_order_relaxed);
    uint32_t used = (uint32_t)(note & ((1u << REMO__VERSIONED_NOTE_BITS) - 1)) - 1, /* too large: not known */
        all = get->versioned->shape.base_bytes / 8;
    return get->is_short || used > all || note != remo__versioned_note(get->location, used) ? all : used;
}

int remo__versioned_get_copy(struct remo__versioned_get *get, struct remo_ack *ack) {
    get->copied = words_to_copy(get);
    return read_bytes(get, extent_at(get), &get->buffer->image,
                      remo__versioned_base_at(&get->versioned->shape) + UINT64_C(8) * get->copied, ack);
}

/* Note how much of the extent is used, unless it is an earlier one of the object. */
static void learn_used(const struct remo__versioned_get *get) {
    if (!get->is_older)
        atomic_store_explicit(get->known_note,
                              remo__versioned_note(get->location, get->buffer->image.header.used),
                              memory_order_relaxed);
}

int remo__versioned_get_locate(struct remo__versioned_get *get, struct remo_ack *ack) {
    get->is_fresh = true;
    return read_bytes(get, remo__versioned_directory_at(get->object), &get->entry, sizeof get->entry, ack);
}

int remo__versioned_get_use_location(struct remo__versioned_get *get) {
    get->location = get->entry.location;
    if (!is_location(get))
        return fail_damaged(get);
    atomic_store_explicit(get->known_note, get->entry.note, memory_order_relaxed);
    atomic_store_explicit(get->known, get->location, memory_order_release);
    return 0;
}

/* ---- one copy ---- */

/* If another copy is needed, the functions below set get->location to 0 or to an earlier extent. */

static int restart(struct remo__versioned_get *get) {
    get->location = 0;
    get->is_older = false;
    if (get->wants_newest)
        get->at = REMO_VERSIONED_NEWEST;
    return 0;
}

/* The extent has been used again. */
static int restart_reused(struct remo__versioned_get *get) {
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
static int go_back(struct remo__versioned_get *get) {
    get->location = get->buffer->image.header.previous;
    get->is_older = true;
    return is_location(get) ? 0 : fail_damaged(get);
}

/* A part of the copy is not whole. Read the head again, and set *ret_same to whether its generation is the
 * same. Then the extent was not used again during the copy, so the part had not been written completely. */
static int confirm(struct remo__versioned_get *get, bool *ret_same) {
    uint64_t head;
    int rc = read_word(get, extent_at(get), &head);
    *ret_same = rc == 0 && remo__versioned_generation(head) == remo__versioned_generation(get->location);
    return rc == 0 && !*ret_same ? restart_reused(get) : rc;
}

/* The base is not whole: the extent has been used again, or the memory is damaged. */
static int explain_damage(struct remo__versioned_get *get) {
    bool is_same = true;
    int rc = remo__versioned_is_in_order(get) ? 0 : confirm(get, &is_same);
    return rc == 0 && is_same ? fail_damaged(get) : rc;
}

/* Find the state at a version in the copy. */
static inline __attribute__((always_inline)) enum remo__versioned_verdict
find_state(struct remo__versioned_get *get, uint64_t version) {
    return remo__versioned_judge(&get->versioned->shape, &get->buffer->image, get->object,
                                 remo__versioned_generation(get->location), version,
                                 !remo__versioned_is_in_order(get), &get->state);
}

/* Remove the last commit from the state if it is not visible yet. If the base contains it, the state before
 * is in the previous extent: continue there, as of the visible version, and set *ret_again. */
static int leave_out_pending(struct remo__versioned_get *get, bool *ret_again) {
    const struct remo__versioned_state *state = &get->state;
    uint64_t version;
    if (!state->is_pending || get->at != REMO_VERSIONED_NEWEST || state->version <= known_version(get->peer))
        return 0;
    int rc = remo__versioned_get_version(get, &version);
    if (rc != 0 || state->version <= version)
        return rc;
    *ret_again = state->words == 0;
    if (*ret_again) {
        get->at = version;
        return go_back(get);
    }
    return find_state(get, state->version - 1) == REMO__VERSIONED_STATE ? 0 : fail_damaged(get);
}

/* Call a visitor of the state. In mapped memory the visitor reads the base in place. Count the bytes that it
 * copies, and `bytes` more. */
static inline void call(const struct remo__versioned_get *get, remo_versioned_visitor *visitor,
                        uint64_t bytes) {
    const struct remo__versioned_shape *shape = &get->versioned->shape;
    bool is_in_place = remo__versioned_is_in_order(get);
    uint64_t copied = 0;
    struct remo_versioned_view view = {.shape = shape,
                                       .base = (is_in_place ? get->place : (const char *)&get->buffer->image)
                                               + remo__versioned_base_at(shape),
                                       .is_in_place = is_in_place,
                                       .records = get->buffer->image.records,
                                       .words = get->state.words,
                                       .parts = get->state.parts,
                                       .version = get->state.version,
                                       .copied = &copied};
    visitor(get->ctx, &view);
    if (is_in_place && get->stats)
        remo__count(&get->stats->bytes, bytes + copied);
}

void remo__versioned_get_prepare(const struct remo__versioned_get *get) {
    call(get, get->prepare, 0);
}

/* If the extent in mapped memory was used again meanwhile, the visitor may have read any bytes. */
static inline __attribute__((always_inline)) int visit_ready(struct remo__versioned_get *get) {
    bool is_in_place = remo__versioned_is_in_order(get);
    get->is_ready = false;
    call(get, get->visit, sizeof get->buffer->image.header + UINT64_C(8) * get->state.words);
    if (is_in_place && !has_generation(get))
        return restart_reused(get);
    learn_version(get->peer, get->state.version);
    get->version = get->state.version;
    get->is_done = true;
    return 0;
}

int remo__versioned_get_visit(struct remo__versioned_get *get) {
    return visit_ready(get);
}

/* Decide whether the state is that of the request. */
static inline __attribute__((always_inline)) int check_state(struct remo__versioned_get *get) {
    const struct remo__versioned_image *image = &get->buffer->image;
    bool is_same = true, again = false;
    if (image->header.head & REMO__VERSIONED_SUPERSEDED && !get->is_fresh && !get->is_older
        && !get->state.has_later)
        return restart(get);
    int rc = get->state.is_cut ? confirm(get, &is_same) : 0;
    if (rc == 0 && is_same)
        rc = leave_out_pending(get, &again);
    get->is_ready = rc == 0 && is_same && !again;
    return rc;
}

/* Return whether a copy over the network lacks words of the base, because the noted used part is out of date.
 * */
static bool lacks_base(const struct remo__versioned_get *get) {
    const struct remo__versioned_header *header = &get->buffer->image.header;
    return header->used > get->copied && get->copied < get->versioned->shape.base_bytes / 8
           && remo__versioned_generation(header->head) == remo__versioned_generation(get->location);
}

/* Find the state of the request in the copy. Then the copy is ready, or another one is needed. */
static inline __attribute__((always_inline)) int judge(struct remo__versioned_get *get, bool has_seals) {
    switch (find_state(get, get->at)) {
    case REMO__VERSIONED_REUSED: return restart_reused(get);
    case REMO__VERSIONED_LATER: return go_back(get);
    case REMO__VERSIONED_DAMAGED: return explain_damage(get);
    case REMO__VERSIONED_STATE: break;
    }
    if (has_seals) { /* the words of a valid base that were not copied are zero */
        remo__versioned_fill(&get->versioned->shape, &get->buffer->image);
        learn_used(get);
    }
    return check_state(get);
}

int remo__versioned_get_use_copy(struct remo__versioned_get *get) {
    bool is_short = lacks_base(get);
    get->is_short = get->is_short || is_short;
    return is_short ? 0 : judge(get, true);
}

int remo__versioned_get_copy_in_order(struct remo__versioned_get *get) {
    int rc = copy_in_order(get);
    return rc == 0 ? judge(get, false) : rc;
}

int remo__versioned_get_once(struct remo__versioned_get *get) {
    int rc = copy_in_order(get);
    if (rc == 0)
        rc = judge(get, false);
    return rc == 0 && get->is_ready ? visit_ready(get) : rc;
}

/* ---- begin and end ---- */

/* Set the members that are read before they are written: to clear all of them takes longer. */
static void clear(struct remo__versioned_get *get) {
    get->location = 0;
    get->object = 0;
    get->copied = 0;
    get->prepare = NULL;
    get->version = 0;
    get->is_done = get->wants_newest = get->is_fresh = get->is_older = get->is_ready = get->is_short = false;
    get->buffer = NULL;
    get->stats = NULL;
    get->ack = (struct remo_ack)REMO_ACK_INIT;
}

static inline __attribute__((always_inline)) int begin(struct remo_versioned *versioned, uint32_t owner,
                                                       struct remo__versioned_get *ret_get) {
    ret_get->versioned = versioned;
    ret_get->owner = owner;
    clear(ret_get);
    if (owner >= versioned->region->nodes || !remo_nodeset_has(&versioned->owners, owner))
        return remo__fail(-EINVAL, "cannot read from node %u: it is not an owner of %s", owner,
                          remo_channel_name(versioned->region->channel));
    ret_get->thread = remo__thread(versioned->region->node);
    ret_get->peer = &versioned->peers[owner];
    return ret_get->thread ? 0 : remo__last_code();
}

int remo__versioned_begin(struct remo_versioned *versioned, uint32_t owner,
                          struct remo__versioned_get *ret_get) {
    return begin(versioned, owner, ret_get);
}

int remo__versioned_get_begin(struct remo_versioned *versioned, uint32_t owner, uint32_t object,
                              uint64_t version, remo_versioned_visitor *visit, void *ctx,
                              struct remo__versioned_get *ret_get) {
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
    ret_get->known_note = &locations[versioned->shape.objects + object];
    /* If another thread has read the location, the extent precedes it. */
    ret_get->location = atomic_load_explicit(ret_get->known, memory_order_acquire);
    ret_get->buffer = take_buffer(versioned, ret_get->thread);
    return ret_get->buffer ? 0 : remo__last_code();
}

void remo__versioned_get_end(struct remo__versioned_get *get) {
    if (get->buffer)
        put_buffer(get->versioned, get->thread, get->buffer);
}

int remo__versioned_get_check(const struct remo__versioned_get *get) {
    uint64_t version = known_version(get->peer);
    if (get->at <= version || get->at == REMO_VERSIONED_NEWEST)
        return 0;
    int rc = remo__versioned_get_version(get, &version);
    if (rc == 0 && get->at > version)
        rc = remo__fail(
            -EINVAL, "cannot read version %llu of %s at node %u: the newest version is %llu; try again later",
            (unsigned long long)get->at, remo_channel_name(get->versioned->region->channel), get->owner,
            (unsigned long long)version);
    return rc;
}
