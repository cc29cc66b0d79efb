/* commit.c - the owner's memory: commits, and moves of objects to other extents.
 * Invariant: the records that a head counts, and the base of an extent that a location names with its
 * generation, do not change. So records are written after those that the head counts, and a new generation is
 * stored before a base. Each step is placed before the next one. */
#include <stdlib.h>
#include <string.h>

#include "objects/versioned/versioned.h"

static char *place_of(struct remo_versioned *versioned, uint64_t offset) {
    return versioned->region->memory->own + offset;
}

static char *extent_of(struct remo_versioned *versioned, uint64_t location) {
    return place_of(versioned,
                    remo__versioned_extent_at(&versioned->shape, remo__versioned_extent(location)));
}

static void store_word(char *place, uint64_t value) {
    remo__store(place, value);
    remo__flush(place, sizeof value);
}

static void store_bytes(char *place, const void *data, size_t bytes) {
    remo__copy_to(place, data, bytes);
    remo__flush(place, bytes);
}

static bool has_seals(const struct remo_versioned *versioned) {
    return !versioned->region->node->mapped;
}

/* ---- extents ---- */

/* Return the words of the base without zeros at its end. */
static uint32_t count_used(const struct remo__versioned_shape *shape, struct remo__versioned_image *image) {
    const uint64_t *base = remo__versioned_base(shape, image);
    uint32_t used = shape->base_bytes / 8;
    while (used > 0 && base[used - 1] == 0)
        used--;
    return used;
}

/* Write the header without the head, and the base with all its zeros: readers in mapped memory read it in
 * place. */
static void store_base(char *place, const struct remo__versioned_shape *shape,
                       struct remo__versioned_image *image) {
    store_bytes(place + sizeof image->header.head, &image->header.lead,
                sizeof image->header - sizeof image->header.head);
    store_bytes(place + remo__versioned_base_at(shape), remo__versioned_base(shape, image),
                shape->base_bytes);
}

/* Write the base in own.image to `extent`, which is spare, and store its location in the directory. The new
 * generation is placed first: a reader that is still copying the extent detects that it is used again. */
static void place_base(struct remo_versioned *versioned, uint32_t object, uint32_t extent, uint64_t previous,
                       uint64_t base_version, uint64_t flags) {
    struct remo__versioned_owner *own = &versioned->own;
    struct remo__versioned_image *image = own->image;
    const struct remo__versioned_shape *shape = &versioned->shape;
    uint64_t generation = ++own->generations[extent];
    uint64_t location = generation << REMO__VERSIONED_EXTENT_BITS | extent;
    char *place = extent_of(versioned, location);
    image->header = (struct remo__versioned_header){.head = remo__versioned_head(generation, 0, flags),
                                                    .base_version = base_version,
                                                    .previous = previous,
                                                    .object = object,
                                                    .used = count_used(shape, image)};
    if (has_seals(versioned))
        image->header.seal = remo__versioned_seal_base(shape, image);
    store_word(place, image->header.head);
    store_base(place, shape, image);
    char *entry = place_of(versioned, remo__versioned_directory_at(object));
    store_word(entry + offsetof(struct remo__versioned_entry, note),
               remo__versioned_note(location, image->header.used));
    store_word(entry, location);
    own->objects[object].location = location;
    own->objects[object].head = remo__versioned_head(generation, 0, 0);
    own->objects[object].lead = 0;
    own->objects[object].hull = 0;
}

/* Take the extent that is spare for the longest time, and put `used` at the end of the queue. */
static uint32_t exchange_extent(struct remo_versioned *versioned, uint32_t used) {
    struct remo__versioned_owner *own = &versioned->own;
    uint32_t extent = own->spare[own->spare_first];
    own->spare[own->spare_first] = used;
    own->spare_first = (own->spare_first + 1) % (versioned->shape.extents - versioned->shape.objects);
    return extent;
}

/* Set the base in own.image to the contents of the object. Returns the version of the last commit that
 * changed it. */
static uint64_t load_base(struct remo_versioned *versioned, uint32_t object) {
    struct remo__versioned_owner *own = &versioned->own;
    const struct remo__versioned_shape *shape = &versioned->shape;
    struct remo__versioned_object before = own->objects[object];
    struct remo__versioned_state state = {0};
    uint32_t used = remo__versioned_used(before.head);
    const char *extent = extent_of(versioned, before.location);
    uint64_t *base = remo__versioned_base(shape, own->image);
    remo__copy_from(own->image, extent, sizeof own->image->header + UINT64_C(8) * used);
    remo__copy_from(base, extent + remo__versioned_base_at(shape), shape->base_bytes);
    (void)remo__versioned_judge(shape, own->image, object, remo__versioned_generation(before.location),
                                REMO_VERSIONED_NEWEST, false, &state);
    remo__versioned_overlay(own->image->records, state.words, 0, base, shape->object_bytes);
    return state.version;
}

/* List a move in the front: a reader of the version then reads the directory, and not the former extent. */
static void list_move(struct remo_versioned *versioned, uint32_t object, uint64_t former) {
    struct remo__versioned_owner *own = &versioned->own;
    uint64_t at = offsetof(struct remo__versioned_front, moves) + sizeof former * own->moved;
    store_word(place_of(versioned, at), remo__versioned_move(former, object));
    own->moved = (own->moved + 1) % REMO__VERSIONED_MOVES;
}

/* Move an object to another extent, with the base in own.image. */
static void move(struct remo_versioned *versioned, uint32_t object, uint64_t base_version, uint64_t flags) {
    struct remo__versioned_object before = versioned->own.objects[object];
    uint32_t extent = exchange_extent(versioned, remo__versioned_extent(before.location));
    place_base(versioned, object, extent, before.location, base_version, flags);
    /* after the directory: a reader that finds this mark finds the new location there */
    store_word(extent_of(versioned, before.location), before.head | REMO__VERSIONED_SUPERSEDED);
    list_move(versioned, object, before.location);
}

/* ---- open and close ---- */

void remo__versioned_owner_close(struct remo_versioned *versioned) {
    struct remo__versioned_owner *own = &versioned->own;
    free(own->objects);
    free(own->generations);
    free(own->spare);
    free(own->image);
}

int remo__versioned_owner_open(struct remo_versioned *versioned) {
    struct remo__versioned_owner *own = &versioned->own;
    const struct remo__versioned_shape *shape = &versioned->shape;
    own->objects = calloc(shape->objects, sizeof own->objects[0]);
    own->generations = calloc(shape->extents, sizeof own->generations[0]);
    own->spare = calloc(shape->extents - shape->objects, sizeof own->spare[0]);
    own->image = calloc(1, shape->extent_bytes);
    if (!own->objects || !own->generations || !own->spare || !own->image)
        return remo__fail(-ENOMEM, "no memory for %u versioned objects", shape->objects);
    for (uint32_t i = shape->objects; i < shape->extents; i++)
        own->spare[i - shape->objects] = i;
    for (uint32_t object = 0; object < shape->objects; object++)
        place_base(versioned, object, object, 0, 0, 0);
    return 0;
}

/* ---- commit ---- */

static int check_change(const struct remo_versioned *versioned, const struct remo_versioned_change *change) {
    const struct remo__versioned_shape *shape = &versioned->shape;
    if (change->object >= shape->objects)
        return remo__fail(-EINVAL, "cannot change object %u of %s: the last object is %u", change->object,
                          remo_channel_name(versioned->region->channel), shape->objects - 1);
    if (!change->data || change->size_bytes == 0)
        return remo__fail(-EINVAL, "cannot change object %u of %s: data is NULL, or size_bytes is 0",
                          change->object, remo_channel_name(versioned->region->channel));
    if (change->size_bytes > shape->object_bytes || change->offset > shape->object_bytes - change->size_bytes)
        return remo__fail(-EINVAL, "cannot change %u bytes at %u of object %u of %s: an object has %u bytes",
                          change->size_bytes, change->offset, change->object,
                          remo_channel_name(versioned->region->channel), shape->object_bytes);
    return 0;
}

/* Count the words of records that the commit needs in each object. Returns -EMSGSIZE if too many objects need
 * more than an empty extent has. */
static int count_words(struct remo_versioned *versioned, const struct remo_versioned_change *changes,
                       uint32_t count) {
    const struct remo__versioned_shape *shape = &versioned->shape;
    uint32_t rewritten = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct remo__versioned_object *object = &versioned->own.objects[changes[i].object];
        if (object->wanted > shape->log_words)
            continue;
        object->wanted += remo__versioned_record_words(changes[i].size_bytes);
        rewritten += object->wanted > shape->log_words;
    }
    if (rewritten <= shape->extents - shape->objects)
        return 0;
    return remo__fail(-EMSGSIZE,
                      "cannot commit to %s: the changes of %u objects need more than log_bytes, more than "
                      "retain = %u; open it with a larger log_bytes or retain, or commit less at once",
                      remo_channel_name(versioned->region->channel), rewritten,
                      shape->extents - shape->objects);
}

/* Add a record, before word `end` of the records, to the summary. */
static void summarize(struct remo__versioned_object *object, const struct remo_versioned_change *change,
                      uint32_t end) {
    uint32_t low = (uint32_t)object->hull, high = (uint32_t)(object->hull >> 32);
    if (change->offset == REMO__VERSIONED_LEAD_AT && change->size_bytes == REMO__VERSIONED_LEAD_BYTES
        && end <= REMO__VERSIONED_LEAD_WORDS) {
        object->lead = remo__versioned_lead(change->data, end);
        return;
    }
    low = high == 0 ? change->offset : (uint32_t)remo__min(low, change->offset);
    object->hull = remo__versioned_hull(low, (uint32_t)remo__max(high, change->offset + change->size_bytes));
}

/* Write the record of a change after those that the head counts. */
static void write_record(struct remo_versioned *versioned, const struct remo_versioned_change *change) {
    struct remo__versioned_object *object = &versioned->own.objects[change->object];
    uint32_t words = remo__versioned_record_words(change->size_bytes);
    uint32_t at = remo__versioned_used(object->head) + object->written;
    char *place =
        extent_of(versioned, object->location) + sizeof(struct remo__versioned_header) + UINT64_C(8) * at;
    struct remo__versioned_record record = {.version = versioned->own.version + 1,
                                            .place = (uint64_t)change->offset << 32 | change->size_bytes};
    object->written += words;
    if (object->written == object->wanted)
        record.place |= REMO__VERSIONED_ENDS;
    if (has_seals(versioned))
        record.seal = remo__versioned_seal_record(remo__versioned_generation(object->location), at, &record,
                                                  change->data, change->size_bytes);
    summarize(object, change, at + words);
    store_bytes(place, &record, sizeof record);
    store_bytes(place + sizeof record, change->data, change->size_bytes);
}

/* Store the head that counts the records of the commit, with the pending mark. The summary precedes it: a
 * direct read that finds the head finds a summary of all records that it counts. */
static void publish(struct remo_versioned *versioned, uint32_t index) {
    struct remo__versioned_object *object = &versioned->own.objects[index];
    if (object->written == 0)
        return; /* the records were published with an earlier change of this object */
    object->head = remo__versioned_head(remo__versioned_generation(object->location),
                                        remo__versioned_used(object->head) + object->written, 0);
    object->written = 0;
    object->wanted = 0;
    char *extent = extent_of(versioned, object->location);
    store_word(extent + offsetof(struct remo__versioned_header, lead), object->lead);
    store_word(extent + offsetof(struct remo__versioned_header, hull), object->hull);
    store_word(extent, object->head | REMO__VERSIONED_PENDING);
}

/* Move the objects whose extents have no room for the records. */
static void make_room(struct remo_versioned *versioned, const struct remo_versioned_change *changes,
                      uint32_t count) {
    uint32_t log_words = versioned->shape.log_words;
    for (uint32_t i = 0; i < count; i++) {
        struct remo__versioned_object *object = &versioned->own.objects[changes[i].object];
        if (object->wanted <= log_words && remo__versioned_used(object->head) + object->wanted > log_words)
            move(versioned, changes[i].object, load_base(versioned, changes[i].object), 0);
    }
}

/* Rewrite the object of changes[first] if its records do not fit into an empty extent: move it, with the
 * changes in the base, which is pending. The commit rewrites at most as many objects as extents are retained,
 * so it does not use the superseded extents again. */
static void rewrite(struct remo_versioned *versioned, const struct remo_versioned_change *changes,
                    uint32_t first, uint32_t count) {
    struct remo__versioned_owner *own = &versioned->own;
    uint32_t index = changes[first].object;
    if (own->objects[index].wanted <= versioned->shape.log_words)
        return;
    if (changes[first].size_bytes < versioned->shape.object_bytes)
        (void)load_base(versioned, index);
    for (uint32_t i = first; i < count; i++)
        if (changes[i].object == index)
            memcpy((char *)remo__versioned_base(&versioned->shape, own->image) + changes[i].offset,
                   changes[i].data, changes[i].size_bytes);
    own->objects[index].wanted = 0;
    move(versioned, index, own->version + 1, REMO__VERSIONED_PENDING);
}

/* The caller holds the mutex. The commit takes effect with the store of the version word: a reader that finds
 * the pending mark compares the commit's version with that word. */
static void write_commit(struct remo_versioned *versioned, const struct remo_versioned_change *changes,
                         uint32_t count) {
    struct remo__versioned_owner *own = &versioned->own;
    make_room(versioned, changes, count);
    for (uint32_t i = 0; i < count; i++)
        rewrite(versioned, changes, i, count);
    for (uint32_t i = 0; i < count; i++)
        if (own->objects[changes[i].object].wanted > 0)
            write_record(versioned, &changes[i]);
    for (uint32_t i = 0; i < count; i++)
        publish(versioned, changes[i].object);
    store_word(place_of(versioned, 0), ++own->version);
    for (uint32_t i = 0; i < count; i++)
        store_word(extent_of(versioned, own->objects[changes[i].object].location),
                   own->objects[changes[i].object].head);
    remo__mapped_fence(); /* visible to reads that begin after the return */
}

static int commit(struct remo_versioned *versioned, const struct remo_versioned_change *changes,
                  uint32_t count) {
    int rc = count_words(versioned, changes, count);
    if (rc == 0) {
        write_commit(versioned, changes, count);
        return 0;
    }
    for (uint32_t i = 0; i < count; i++)
        versioned->own.objects[changes[i].object].wanted = 0;
    return rc;
}

int remo_versioned_commit(struct remo_versioned *versioned, const struct remo_versioned_change *changes,
                          uint32_t count, uint64_t *ret_version) {
    REMO__REQUIRE(versioned);
    REMO__REQUIRE(changes);
    struct remo_node *node = versioned->region->node;
    if (!versioned->own.objects)
        return remo__fail(-EPERM, "cannot commit to %s: node %u is not one of its owners; commit on an owner",
                          remo_channel_name(versioned->region->channel), node->rank);
    if (count == 0)
        return remo__fail(-EINVAL, "cannot commit to %s: count is 0; pass at least one change",
                          remo_channel_name(versioned->region->channel));
    for (uint32_t i = 0; i < count; i++) {
        int rc = check_change(versioned, &changes[i]);
        if (rc != 0)
            return rc;
    }
    int rc = remo__channel_check_match(versioned->region->channel);
    if (rc == 0)
        rc = remo__mutex_lock(node, &versioned->own.mutex, REMO_FOREVER); /* held for copies only */
    if (rc != 0)
        return rc;
    rc = commit(versioned, changes, count);
    if (rc == 0 && ret_version)
        *ret_version = versioned->own.version;
    remo__mutex_unlock(node, &versioned->own.mutex);
    return rc;
}
