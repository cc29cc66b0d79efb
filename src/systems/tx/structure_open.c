/* structure_open.c - implements remo/structure.h: open and close of a structure.
 * Invariant: peers may call the owner's side as soon as the service is open, so it is opened last. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "systems/tx/structure.h"

#define NAME_CHARACTERS_MAX 47u

static int check_type(const struct remo_structure_type *type) {
    bool is_complete = type->name && type->owner && type->lookup_start && type->lookup_end && type->group
                       && type->find && type->make && type->link && type->unlink;
    if (!is_complete)
        return remo__fail(-EINVAL, "cannot open a structure: its type lacks a function or a name; only "
                                   "`learn` may be NULL");
    if (strlen(type->name) > NAME_CHARACTERS_MAX)
        return remo__fail(-EINVAL, "cannot open a structure of type %s: the name has more than %u characters",
                          type->name, NAME_CHARACTERS_MAX);
    return 0;
}

static int check_options(const struct remo_structure_options *options) {
    if (options->key_bytes_max == 0 || options->key_bytes_max > REMO_ITEM_BYTES_MAX
        || options->value_bytes_max > REMO_ITEM_BYTES_MAX - options->key_bytes_max)
        return remo__fail(-EINVAL,
                          "cannot open a structure with key_bytes_max = %u and value_bytes_max = %u: give a "
                          "key_bytes_max of at least 1, and together at most %u",
                          options->key_bytes_max, options->value_bytes_max, REMO_ITEM_BYTES_MAX);
    if (options->share_bytes == 0 || options->share_bytes % 8 != 0)
        return remo__fail(-EINVAL,
                          "cannot open a structure with share_bytes = %llu: give a multiple of 8 above 0",
                          (unsigned long long)options->share_bytes);
    return 0;
}

static int open_share(struct remo_structure *structure, struct remo_channel *parent, const char *name,
                      const struct remo_structure_options *options) {
    struct remo_channel_options channel = {.ctx = structure};
    char type[REMO__TYPE_BYTES_MAX + 1]; /* contains all options that must be equal on all participants */
    snprintf(type, sizeof type, "%s, %u+%u B", structure->type->name, options->key_bytes_max,
             options->value_bytes_max);
    int rc = remo__select_participants(parent, &options->participants, &channel.participants);
    if (rc == 0)
        rc = remo__region_open(parent, name, type, "share", options->share_bytes, &channel, NULL,
                               &structure->share);
    if (rc != 0)
        return rc;
    structure->node = remo_channel_node(structure->share->channel);
    structure->rank = structure->node->rank;
    structure->own = remo_region_local(structure->share);
    return 0;
}

static int open_groups(struct remo_structure *structure) {
    for (uint32_t i = 0; i < REMO__STRUCTURE_GROUPS; i++) {
        int rc = pthread_mutex_init(&structure->groups[i].mutex, NULL);
        if (rc != 0)
            return remo__fail(-rc, "no mutex for a structure");
        structure->groups_count = i + 1;
    }
    return 0;
}

/* Open the service last: as soon as it is open, a peer may call. */
static int open_service(struct remo_structure *structure, struct remo_structure **ret_structure) {
    struct remo_rpc_handler handler = {
        .number = REMO__STRUCTURE_HANDLER, .run = remo__owner_handle, .ctx = structure};
    struct remo_rpc_options options = {.participants = *remo_channel_participants(structure->share->channel),
                                       .handlers = &handler,
                                       .handler_count = 1};
    *ret_structure = structure;
    int rc = remo_channel_join(structure->share->channel);
    if (rc == 0)
        rc = remo_rpc_open(structure->share->channel, "calls", &options, &structure->rpc);
    if (rc != 0)
        *ret_structure = NULL;
    return rc;
}

int remo_structure_open(struct remo_channel *parent, const char *name, const struct remo_structure_type *type,
                        const struct remo_structure_options *options, struct remo_structure **ret_structure) {
    if (!parent || !type || !options || !ret_structure)
        return remo__fail(-EINVAL, "cannot open a structure: an argument is NULL");
    int rc = remo__require_coherence(parent, "a structure");
    if (rc == 0)
        rc = check_type(type);
    if (rc == 0)
        rc = check_options(options);
    if (rc != 0)
        return rc;
    struct remo_structure *structure = aligned_alloc(REMO__CACHE_LINE, sizeof *structure);
    if (!structure)
        return remo__fail(-ENOMEM, "no memory for a structure");
    memset(structure, 0, sizeof *structure);
    pthread_mutex_init(&structure->due.mutex, NULL);
    structure->type = type;
    structure->ctx = options->ctx;
    structure->key_bytes_max = options->key_bytes_max;
    structure->value_bytes_max = options->value_bytes_max;
    structure->item_bytes = remo_structure_item_bytes(options->key_bytes_max, options->value_bytes_max);
    rc = open_share(structure, parent, name, options);
    if (rc == 0)
        rc = open_groups(structure);
    if (rc == 0 && options->opened)
        options->opened(options->ctx, structure, structure->own);
    if (rc == 0)
        rc = open_service(structure, ret_structure);
    if (rc == 0)
        return 0;
    remo_structure_close(structure);
    return remo__fail_more(rc, "structure %s", name ? name : "");
}

void remo_structure_close(struct remo_structure *structure) {
    if (!structure)
        return;
    remo_rpc_close(structure->rpc); /* no function of the type runs from here on */
    remo_region_close(structure->share);
    for (uint32_t i = 0; i < structure->groups_count; i++)
        pthread_mutex_destroy(&structure->groups[i].mutex);
    pthread_mutex_destroy(&structure->due.mutex);
    free(structure);
}

struct remo_channel *remo_structure_channel(struct remo_structure *structure) {
    return structure ? structure->share->channel : NULL;
}

uint64_t remo_structure_item_bytes(uint32_t key_bytes_max, uint32_t value_bytes_max) {
    return remo__item_value_at(key_bytes_max) + remo__align_up(value_bytes_max, 8);
}
