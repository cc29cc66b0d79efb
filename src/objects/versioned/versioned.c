/* versioned.c - opens and closes the tables of remo/versioned.h.
 * Invariant: an owner's objects are initialized before peers can reach its memory. */
#include "objects/versioned/versioned.h"

#include <stdio.h>
#include <stdlib.h>

#define OBJECTS_DEFAULT 64u
#define OBJECT_BYTES_DEFAULT 1024u
#define LOG_BYTES_MORE 256u
#define RETAIN_DEFAULT 64u

/* ---- options ---- */

static void set_defaults(struct remo_versioned_options *options, const struct remo_nodeset *participants) {
    options->participants = *participants;
    if (remo_nodeset_empty(&options->owners))
        options->owners = *participants;
    options->objects = options->objects ? options->objects : OBJECTS_DEFAULT;
    options->object_bytes = options->object_bytes ? options->object_bytes : OBJECT_BYTES_DEFAULT;
    options->retain = options->retain ? options->retain : RETAIN_DEFAULT;
    if (options->log_bytes == 0 && options->object_bytes <= REMO_VERSIONED_BYTES_MAX)
        options->log_bytes = options->object_bytes / 4 + LOG_BYTES_MORE;
}

static int check_options(const struct remo_versioned_options *options) {
    for (uint32_t node = 0; node < REMO_NODES_MAX; node++)
        if (remo_nodeset_has(&options->owners, node) && !remo_nodeset_has(&options->participants, node))
            return remo__fail(-EINVAL, "cannot open versioned objects: node %u of `owners` is no participant",
                              node);
    if (options->objects > REMO_VERSIONED_OBJECTS_MAX)
        return remo__fail(-EINVAL, "cannot open %u versioned objects: the maximum is %u", options->objects,
                          REMO_VERSIONED_OBJECTS_MAX);
    if (options->object_bytes > REMO_VERSIONED_BYTES_MAX)
        return remo__fail(-EINVAL, "cannot open versioned objects of %u bytes: the maximum is %u",
                          options->object_bytes, REMO_VERSIONED_BYTES_MAX);
    if (options->retain > REMO__VERSIONED_EXTENTS_MAX - options->objects)
        return remo__fail(-EINVAL,
                          "cannot open versioned objects with retain = %u: the maximum for %u objects is %u",
                          options->retain, options->objects, REMO__VERSIONED_EXTENTS_MAX - options->objects);
    uint32_t least = 8 * remo__versioned_record_words(8);
    if (options->log_bytes < least || options->log_bytes > 8 * REMO__VERSIONED_USED_MAX)
        return remo__fail(-EINVAL,
                          "cannot open versioned objects of %u bytes with log_bytes = %u: it must be from %u "
                          "to %u",
                          options->object_bytes, options->log_bytes, least, 8 * REMO__VERSIONED_USED_MAX);
    return 0;
}

static struct remo__versioned_shape shape_of(const struct remo_versioned_options *options) {
    struct remo__versioned_shape shape = {
        .objects = options->objects,
        .extents = options->objects + options->retain,
        .object_bytes = options->object_bytes,
        .base_bytes = (uint32_t)remo__align_up(options->object_bytes, 8),
        .log_words = options->log_bytes / 8,
        .part_bits = remo__versioned_part_bits(options->object_bytes),
    };
    shape.extent_bytes = remo__align_up(sizeof(struct remo__versioned_header) + shape.base_bytes
                                            + UINT64_C(8) * shape.log_words,
                                        REMO__CACHE_LINE);
    shape.extents_at = remo__align_up(remo__versioned_directory_at(shape.objects), REMO__CACHE_LINE);
    return shape;
}

/* ---- open and close ---- */

static int open_tables(struct remo_versioned *versioned, struct remo_channel *parent, const char *name,
                       const struct remo_versioned_options *options) {
    const struct remo__versioned_shape *shape = &versioned->shape;
    struct remo_channel_options channel = {.participants = options->participants};
    char type[REMO__TYPE_BYTES_MAX + 1];
    /* The number is the format of the memory. It prevents that nodes of different builds share tables. */
    snprintf(type, sizeof type, "versioned3(%u of %u B, log %u, retain %u)", shape->objects,
             shape->object_bytes, 8 * shape->log_words, options->retain);
    int rc =
        remo__region_open(parent, name, type, "extents", remo__versioned_extent_at(shape, shape->extents),
                          &channel, &options->owners, &versioned->region);
    if (rc != 0)
        return rc;
    struct remo_node *node = versioned->region->node;
    versioned->peers = calloc(node->size, sizeof versioned->peers[0]);
    if (!versioned->peers)
        return remo__fail(-ENOMEM, "no memory for versioned objects");
    if (remo_nodeset_has(&options->owners, node->rank))
        rc = remo__versioned_owner_open(versioned);
    return rc == 0 ? remo_channel_join(versioned->region->channel) : rc;
}

int remo_versioned_open(struct remo_channel *parent, const char *name,
                        const struct remo_versioned_options *options, struct remo_versioned **ret_versioned) {
    REMO__REQUIRE(ret_versioned);
    struct remo_versioned_options chosen = options ? *options : (struct remo_versioned_options){0};
    struct remo_nodeset participants;
    int rc = remo__select_participants(parent, &chosen.participants, &participants);
    if (rc != 0)
        return rc;
    set_defaults(&chosen, &participants);
    rc = check_options(&chosen);
    if (rc != 0)
        return rc;
    struct remo_versioned *versioned = calloc(1, sizeof *versioned);
    if (!versioned)
        return remo__fail(-ENOMEM, "no memory for versioned objects");
    versioned->shape = shape_of(&chosen);
    versioned->owners = chosen.owners;
    rc = open_tables(versioned, parent, name, &chosen);
    if (rc != 0) {
        remo_versioned_close(versioned);
        return rc;
    }
    *ret_versioned = versioned;
    return 0;
}

static void free_buffers(struct remo__versioned_buffer *buffer) {
    while (buffer) {
        struct remo__versioned_buffer *next = buffer->next;
        free(buffer);
        buffer = next;
    }
}

void remo_versioned_close(struct remo_versioned *versioned) {
    if (!versioned)
        return;
    uint32_t nodes = versioned->region ? versioned->region->node->size : 0;
    remo_region_close(versioned->region);
    remo__versioned_owner_close(versioned);
    for (uint32_t i = 0; i < nodes && versioned->peers; i++)
        free(atomic_load(&versioned->peers[i].locations));
    free(versioned->peers);
    for (uint32_t i = 0; i < REMO__THREADS_MAX; i++)
        free_buffers(versioned->buffers[i]);
    free(versioned);
}

struct remo_channel *remo_versioned_channel(struct remo_versioned *versioned) {
    return versioned ? remo_region_channel(versioned->region) : NULL;
}
