/* owned_var.c - implements remo/owned_var.h: the owner's value and all copies are a cell (objects/cell.h).
 * Invariant: a pulled value goes to a second cell, in private memory, which only this node writes. In the
 * pushed cell it could overwrite a newer push that arrives at the same time, or tear it.
 * A load returns the newer value of both cells. */
#include <remo/owned_var.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "objects/cell.h"

static_assert(REMO_OWNED_VAR_RETRIES == REMO__CELL_ATTEMPTS,
              "the number in the header equals the number of attempts");

#define STACK_BYTES 1024u /* values up to this size are verified on the stack */

struct remo_owned_var {
    struct remo_region *region;
    struct remo__cell_shape shape;
    uint32_t owner;
    bool is_owner;
    struct remo__cell own; /* at the owner */
    char *pulled;          /* at other nodes: a cell with the pulled value */
    uint32_t next_pulled;  /* its slot for the next value; protected by pull_lock */
    char *fetched;         /* the last read of the owner's cell; protected by pull_lock */
    char *scratch;         /* for values too large for the stack; protected by scratch_lock */
    struct remo__mutex pull_lock, scratch_lock;
};

/* ---- open ---- */

static int check_open(size_t value_bytes, uint32_t owner, const struct remo_nodeset *participants) {
    if (value_bytes == 0 || value_bytes > REMO_OWNED_VAR_BYTES_MAX)
        return remo__fail(-EINVAL, "cannot open a variable of %zu bytes: the size must be from 1 to %u",
                          value_bytes, REMO_OWNED_VAR_BYTES_MAX);
    if (!remo_nodeset_has(participants, owner))
        return remo__fail(
            -EINVAL, "cannot open a variable with node %u as its owner: the node is no participant", owner);
    return 0;
}

static char *alloc_lines(size_t bytes) {
    char *lines = aligned_alloc(REMO__CACHE_LINE, remo__align_up(bytes, REMO__CACHE_LINE));
    return lines ? memset(lines, 0, bytes) : NULL;
}

static int open_private(struct remo_owned_var *var) {
    const struct remo__cell_shape *shape = &var->shape;
    bool large = shape->value_bytes > STACK_BYTES;
    if (large)
        var->scratch = malloc(shape->value_bytes);
    if (!var->is_owner) {
        var->pulled = alloc_lines(shape->bytes);
        var->fetched = alloc_lines(shape->bytes);
    }
    if ((large && !var->scratch) || (!var->is_owner && (!var->pulled || !var->fetched)))
        return remo__fail(-ENOMEM, "no memory for a variable of %zu bytes", shape->value_bytes);
    return var->is_owner ? remo__cell_open(&var->own, var->region, shape, 0) : 0;
}

static int open_var(struct remo_owned_var *var, struct remo_channel *parent, const char *name,
                    const struct remo_channel_options *channel) {
    char type[REMO__TYPE_BYTES_MAX + 1];
    snprintf(type, sizeof type, "owned_var(%zu bytes of node %u)", var->shape.value_bytes, var->owner);
    int rc = remo__region_open(parent, name, type, "value", var->shape.bytes, channel, NULL, &var->region);
    if (rc != 0)
        return rc;
    var->is_owner = var->owner == var->region->node->rank;
    rc = open_private(var);
    return rc == 0 ? remo_channel_join(var->region->channel) : rc;
}

int remo_owned_var_open(struct remo_channel *parent, const char *name, size_t value_bytes,
                        const struct remo_owned_var_options *options, struct remo_owned_var **ret_var) {
    REMO__REQUIRE(ret_var);
    struct remo_channel_options channel = {0};
    uint32_t owner = options ? options->owner : 0;
    int rc =
        remo__select_participants(parent, options ? &options->participants : NULL, &channel.participants);
    if (rc == 0)
        rc = check_open(value_bytes, owner, &channel.participants);
    if (rc != 0)
        return rc;
    struct remo_owned_var *var = calloc(1, sizeof *var);
    if (!var)
        return remo__fail(-ENOMEM, "no memory for a variable");
    var->owner = owner;
    var->shape = remo__cell_shape(value_bytes, false);
    rc = open_var(var, parent, name, &channel);
    if (rc != 0) {
        remo_owned_var_close(var);
        return rc;
    }
    *ret_var = var;
    return 0;
}

void remo_owned_var_close(struct remo_owned_var *var) {
    if (!var)
        return;
    remo_region_close(var->region);
    remo__cell_close(&var->own);
    free(var->pulled);
    free(var->fetched);
    free(var->scratch);
    free(var);
}

struct remo_channel *remo_owned_var_channel(struct remo_owned_var *var) {
    return var ? remo_region_channel(var->region) : NULL;
}

/* ---- the owner ---- */

static int fail_not_owner(const struct remo_owned_var *var) {
    return remo__fail(-EPERM, "%s belongs to node %u; only its owner can store and push",
                      remo_channel_name(var->region->channel), var->owner);
}

int remo_owned_var_store(struct remo_owned_var *var, const void *value) {
    REMO__REQUIRE(var);
    if (!var->is_owner)
        return fail_not_owner(var);
    if (!value)
        return remo__fail(-EINVAL, "cannot store: the value is NULL");
    remo__cell_store(&var->own, value);
    return 0;
}

int remo_owned_var_push(struct remo_owned_var *var, uint32_t node, struct remo_ack *ack) {
    REMO__REQUIRE(var);
    return var->is_owner ? remo__cell_push(&var->own, node, ack) : fail_not_owner(var);
}

int remo_owned_var_push_all(struct remo_owned_var *var, struct remo_ack *ack) {
    REMO__REQUIRE(var);
    return var->is_owner ? remo__cell_push_all(&var->own, ack) : fail_not_owner(var);
}

/* ---- load ---- */

static int fail_torn(void) {
    return remo__fail_static(-EAGAIN, "the value is being written faster than it can be read; try again");
}

/* Copy the newer of the pushed and the pulled value to `scratch`. Neither returns to an older value, so the
 * newer of both does not either. If the newer pulled slot is torn, the load may return an older value,
 * because no load has returned the newer one yet. */
static int load_newest(const struct remo_owned_var *var, void *scratch) {
    const struct remo__cell_shape *shape = &var->shape;
    const char *pushed = var->region->memory->own;
    uint64_t sequence, pulled_sequence;
    int rc = remo__cell_load(shape, pushed, scratch, &sequence);
    if (rc != 0)
        return fail_torn();
    if (var->is_owner || remo__likely(remo__cell_peek(shape, var->pulled) <= sequence))
        return 0;
    rc = remo__cell_load(shape, var->pulled, scratch, &pulled_sequence);
    if (rc == 0 && pulled_sequence < sequence)
        rc = remo__cell_load(shape, pushed, scratch, &sequence);
    return rc != 0 ? fail_torn() : 0;
}

/* The use of a verified value. */
struct use {
    struct remo_owned_var *var;
    const void *than; /* use the value only if it differs from this; NULL: always */
    void *ret_value;
};

static int use_value(const struct use *use, const void *value) {
    size_t bytes = use->var->shape.value_bytes;
    if (use->than && memcmp(use->than, value, bytes) == 0)
        return 0;
    if (use->ret_value)
        memcpy(use->ret_value, value, bytes);
    return 1;
}

/* Load the value and use it. 1: used; 0: it equals `than`; or -EAGAIN. Only verified values reach the
 * caller's memory. */
static int load_and_use(const struct use *use) {
    struct remo_owned_var *var = use->var;
    char small[STACK_BYTES];
    if (!var->scratch) {
        int rc = load_newest(var, small);
        return rc == 0 ? use_value(use, small) : rc;
    }
    int rc = remo__mutex_lock(var->region->node, &var->scratch_lock, REMO_FOREVER); /* held for a copy only */
    if (rc != 0)
        return rc;
    rc = load_newest(var, var->scratch);
    rc = rc == 0 ? use_value(use, var->scratch) : rc;
    remo__mutex_unlock(var->region->node, &var->scratch_lock);
    return rc;
}

int remo_owned_var_load(struct remo_owned_var *var, void *ret_value) {
    REMO__REQUIRE(var);
    struct use use = {.var = var, .ret_value = ret_value};
    if (!ret_value)
        return remo__fail(-EINVAL, "cannot load: ret_value is NULL");
    int rc = load_and_use(&use);
    return rc < 0 ? rc : 0;
}

static int has_changed(void *ctx) {
    const struct use *use = ctx;
    struct remo_owned_var *var = use->var;
    int rc = load_and_use(use);
    if (rc > 0)
        return rc;
    rc = remo__channel_check_peer(var->region->channel, var->owner);
    /* The owner may have pushed a last value before it failed or left. */
    return rc != 0 && load_and_use(use) > 0 ? 1 : rc;
}

int remo_owned_var_wait(struct remo_owned_var *var, const void *old, void *ret_value, uint64_t timeout_ns) {
    REMO__REQUIRE(var);
    struct use use = {.var = var, .than = old, .ret_value = ret_value};
    if (!old)
        return remo__fail(-EINVAL, "cannot wait for a change: the value to compare with is NULL");
    /* A push and a pull notify; a store at the owner does not. */
    return (var->is_owner ? remo__wait_polling : remo__wait)(var->region->node, has_changed, &use,
                                                             remo__deadline(timeout_ns));
}

/* ---- pull ---- */

enum { FIRST = 1, SECOND = 2, BOTH = 3 }; /* slots */

/* Choose a slot of the fetched cell; 0: none. If both are whole, it is the newer one. A single whole slot may
 * be stale: the other slot may have been newer when this one was read, and was overwritten before it was read
 * itself. But if an earlier read found the other slot torn, this slot holds the value that precedes that
 * write, or a newer one. */
static uint32_t choose_slot(const struct remo_owned_var *var, uint32_t whole, uint32_t torn_before) {
    if (whole == BOTH)
        return remo__load(var->fetched) > remo__load(var->fetched + var->shape.slot_bytes) ? FIRST : SECOND;
    return (torn_before & ~whole) != 0 ? whole : 0;
}

/* Read the owner's cell until one of its slots can be used. The caller holds pull_lock. */
static int fetch(struct remo_owned_var *var, const char **ret_slot) {
    uint32_t torn = 0;
    for (uint32_t attempt = 0; attempt < REMO_OWNED_VAR_RETRIES; attempt++) {
        int rc = remo_region_read(var->region, var->owner, 0, var->fetched, var->shape.bytes, NULL);
        if (rc != 0)
            return rc;
        uint32_t whole = remo__cell_whole(&var->shape, var->fetched);
        uint32_t chosen = choose_slot(var, whole, torn);
        if (chosen != 0) {
            *ret_slot = var->fetched + (chosen == SECOND ? var->shape.slot_bytes : 0);
            return 0;
        }
        torn |= BOTH & ~whole;
    }
    return fail_torn();
}

/* Store a pulled value in the private cell if it is newer. The other slot retains the previous one. */
static void store_pulled(struct remo_owned_var *var, const char *slot) {
    const struct remo__cell_shape *shape = &var->shape;
    if (remo__load(slot) <= remo__cell_peek(shape, var->pulled))
        return;
    remo__copy_to(var->pulled + var->next_pulled * shape->slot_bytes, slot,
                  REMO__CELL_HEADER_BYTES + shape->value_bytes);
    var->next_pulled ^= 1;
    remo__wake(var->region->node);
}

int remo_owned_var_pull(struct remo_owned_var *var, void *ret_value) {
    REMO__REQUIRE(var);
    struct remo_node *node = var->region->node;
    const char *slot = NULL;
    if (var->is_owner)
        return ret_value ? remo_owned_var_load(var, ret_value) : 0;
    /* The holder of the mutex blocks for op_timeout_ns in each of its reads, at most. */
    int rc = remo__mutex_lock(node, &var->pull_lock, REMO_FOREVER);
    if (rc != 0)
        return rc;
    rc = fetch(var, &slot);
    if (rc == 0)
        store_pulled(var, slot);
    if (rc == 0 && ret_value)
        memcpy(ret_value, slot + REMO__CELL_HEADER_BYTES, var->shape.value_bytes);
    remo__mutex_unlock(node, &var->pull_lock);
    return rc;
}
