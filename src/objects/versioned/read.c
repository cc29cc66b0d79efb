/* read.c - reads of one or several objects of an owner, in rounds (get.h). Invariant: without a `prepare`
 * visitor, objects are visited in their order: the first object that needs another round ends the visits of
 * the round. With `prepare`, the order is undefined. docs/internals/versioned.md describes the rounds. */
#include <string.h>

#include "objects/versioned/get.h"

/* In a round in stages: the distance from the prefetch of an extent to its copy, and from the copy to the
 * visit, in objects. With larger distances, prefetched lines leave the first-level cache before their use. */
#define COPY_DISTANCE 2u
#define VISIT_DISTANCE 1u

/* Objects that remo_versioned_read_many reads at the same time. */
#ifdef REMO_SIM_SMALL
#define WINDOW 2u
#else
#define WINDOW 16u
#endif

/* ---- rounds: of one or several objects of an owner ---- */

/* Wait for the operations of all gets. After an error cancel them, because they use the caller's stack. */
static int settle(struct remo__versioned_get *gets, uint32_t count, int rc) {
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
static struct remo_ack *ack_of(struct remo__versioned_get *get, uint32_t count) {
    return count > 1 ? &get->ack : NULL;
}

/* Return whether all gets that are not done know where to read. */
static inline bool are_located(const struct remo__versioned_get *gets, uint32_t count) {
    uint32_t located = 0;
    for (uint32_t i = 0; i < count; i++)
        located += gets[i].is_done || gets[i].location != 0;
    return located == count;
}

/* Read all locations that are not known from the directory. */
static int locate(struct remo__versioned_get *gets, uint32_t count) {
    bool asked[WINDOW] = {false};
    int rc = 0;
    if (are_located(gets, count))
        return 0;
    remo__cork(gets[0].thread);
    for (uint32_t i = 0; i < count && rc == 0; i++) {
        asked[i] = !gets[i].is_done && gets[i].location == 0;
        if (asked[i])
            rc = remo__versioned_get_locate(&gets[i], ack_of(&gets[i], count));
    }
    remo__uncork(gets[0].thread);
    rc = settle(gets, count, rc);
    for (uint32_t i = 0; i < count && rc == 0; i++)
        if (asked[i])
            rc = remo__versioned_get_use_location(&gets[i]);
    return rc;
}

/* Over the network: copy and use the extents of all gets whose copies are not ready. */
static int copy_all(struct remo__versioned_get *gets, uint32_t count) {
    int rc = 0;
    remo__cork(gets[0].thread);
    for (uint32_t i = 0; i < count && rc == 0; i++)
        if (!gets[i].is_done && !gets[i].is_ready)
            rc = remo__versioned_get_copy(&gets[i], ack_of(&gets[i], count));
    remo__uncork(gets[0].thread);
    rc = settle(gets, count, rc);
    for (uint32_t i = 0; i < count && rc == 0; i++)
        if (!gets[i].is_done && !gets[i].is_ready)
            rc = remo__versioned_get_use_copy(&gets[i]);
    return rc;
}

/* Visit the objects of all gets that are not done, in order, up to the first one that needs another round. In
 * mapped memory, prefetch the next extent before and after each visit. Sets *ret_done to whether all are done
 * then. */
static int visit_in_order(struct remo__versioned_get *gets, uint32_t count, bool *ret_done) {
    bool in_order = remo__versioned_is_in_order(&gets[0]);
    int rc = 0;
    *ret_done = true;
    for (uint32_t i = 0; i < count && rc == 0 && *ret_done; i++) {
        if (gets[i].is_done)
            continue;
        const struct remo__versioned_get *next = in_order && i + 1 < count ? &gets[i + 1] : NULL;
        if (next)
            remo__versioned_get_prefetch(next);
        if (in_order)
            rc = remo__versioned_get_once(&gets[i]);
        else if (gets[i].is_ready)
            rc = remo__versioned_get_visit(&gets[i]);
        if (next)
            remo__versioned_get_prefetch_rest(next);
        *ret_done = gets[i].is_done;
    }
    return rc;
}

/* Copy an extent in mapped memory, and prepare the visit. */
static int prepare_one(struct remo__versioned_get *get) {
    int rc = !get->is_done && remo__versioned_is_in_order(get) ? remo__versioned_get_copy_in_order(get) : 0;
    if (rc == 0 && get->is_ready)
        remo__versioned_get_prepare(get);
    return rc;
}

/* Visit the objects of all gets that are not done, in stages: prefetch the extent, copy it and prepare the
 * visit, and visit. Each stage of an object is between those of others, so that the CPU waits for the memory
 * of several objects at the same time. */
static int visit_in_stages(struct remo__versioned_get *gets, uint32_t count, bool *ret_done) {
    int rc = 0;
    *ret_done = true;
    for (uint32_t i = 0; i < count + COPY_DISTANCE + VISIT_DISTANCE && rc == 0; i++) {
        uint32_t copied = i - COPY_DISTANCE, visited = copied - VISIT_DISTANCE; /* too large: none */
        if (i < count)
            remo__versioned_get_prefetch_parts(&gets[i]);
        if (copied < count)
            rc = prepare_one(&gets[copied]);
        if (visited >= count)
            continue;
        if (rc == 0 && gets[visited].is_ready)
            rc = remo__versioned_get_visit(&gets[visited]);
        *ret_done &= gets[visited].is_done;
    }
    return rc;
}

/* Read the extents of all gets that are not done, and visit the objects. Sets *ret_done to whether all are
 * done then. */
static int run_round(struct remo__versioned_get *gets, uint32_t count, bool *ret_done) {
    int rc = locate(gets, count);
    if (rc == 0 && !remo__versioned_is_in_order(&gets[0]))
        rc = copy_all(gets, count);
    if (rc != 0)
        return rc;
    return gets[0].prepare ? visit_in_stages(gets, count, ret_done) : visit_in_order(gets, count, ret_done);
}

static int fail_outrun(const struct remo__versioned_get *get) {
    return remo__fail(
        -ETIMEDOUT,
        "cannot read from node %u: it moves the objects of %s faster than a read completes; open "
        "the table with a larger retain or log_bytes",
        get->owner, remo_channel_name(get->versioned->region->channel));
}

/* Read the objects of up to WINDOW gets. */
static int run_gets(struct remo__versioned_get *gets, uint32_t count) {
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

/* Read one object. In mapped memory, with a known location, usually without a round. */
static inline int run_get(struct remo__versioned_get *get) {
    int rc = get->location != 0 && remo__versioned_is_in_order(get) ? remo__versioned_get_once(get) : 0;
    return rc != 0 || get->is_done ? rc : run_gets(get, 1);
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
        remo__mapped_prefetch(view->base + remo__min(offset, view->shape->object_bytes));
}

uint64_t remo_versioned_view_version(const struct remo_versioned_view *view) {
    return view->version;
}

/* ---- the calls ---- */

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

/* Visit an object, whose number is valid. */
static inline __attribute__((always_inline)) int visit_object(struct remo_versioned *versioned,
                                                              uint32_t owner, uint32_t object,
                                                              uint64_t version, remo_versioned_visitor *visit,
                                                              void *ctx, uint64_t *ret_version) {
    struct remo__versioned_get get;
    int rc = remo__versioned_get_begin(versioned, owner, object, version, visit, ctx, &get);
    if (rc == 0 && version != REMO_VERSIONED_NEWEST)
        rc = remo__versioned_get_check(&get);
    if (rc == 0)
        rc = run_get(&get);
    remo__versioned_get_end(&get);
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
    struct remo__versioned_get get;
    int rc = remo__versioned_begin(versioned, owner, &get);
    if (rc != 0)
        return rc;
    return remo__versioned_is_in_order(&get) ? remo__versioned_get_version(&get, ret_version)
                                             : remo__versioned_get_front(&get, ret_version);
}

/* A visit of several objects: visitors, and the version. */
struct visits {
    remo_versioned_visitor *prepare, *visit; /* no `prepare`: in the order of the objects */
    uint64_t version;
};

/* Visit up to WINDOW objects. */
static int visit_window(struct remo_versioned *versioned, uint32_t owner, const struct visits *visits,
                        struct remo_versioned_item *items, uint32_t count) {
    struct remo__versioned_get gets[WINDOW];
    uint32_t begun = 0;
    int rc = 0;
    for (uint32_t i = 0; i < count && rc == 0; i++, begun++) {
        rc = remo__versioned_get_begin(versioned, owner, items[i].object, visits->version, visits->visit,
                                       items[i].value, &gets[i]);
        gets[i].prepare = visits->prepare;
    }
    if (rc == 0)
        rc = run_gets(gets, count);
    for (uint32_t i = 0; i < begun; i++) {
        items[i].version = gets[i].version;
        remo__versioned_get_end(&gets[i]);
    }
    return rc;
}

static int visit_all(struct remo_versioned *versioned, uint32_t owner, const struct visits *visits,
                     struct remo_versioned_item *items, uint32_t count) {
    int rc = 0;
    for (uint64_t i = 0; i < count && rc == 0; i += WINDOW)
        rc = visit_window(versioned, owner, visits, items + i, (uint32_t)remo__min(WINDOW, count - i));
    return rc;
}

/* Copy the objects as of a version. */
static int read_all(struct remo_versioned *versioned, uint32_t owner, uint64_t version,
                    struct remo_versioned_item *items, uint32_t count) {
    const struct visits visits = {.visit = copy_value, .version = version};
    return visit_all(versioned, owner, &visits, items, count);
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
    struct remo__versioned_get get;
    int rc = 0;
    for (uint32_t i = 0; i < count && rc == 0; i++)
        rc = check_object(versioned, items[i].object);
    if (rc == 0)
        rc = remo__versioned_begin(versioned, owner, &get);
    if (rc != 0)
        return rc;
    get.at = version;
    return remo__versioned_get_check(&get);
}

int remo_versioned_visit_many(struct remo_versioned *versioned, uint32_t owner, uint64_t version,
                              remo_versioned_visitor *visit, struct remo_versioned_item *items,
                              uint32_t count) {
    REMO__REQUIRE(versioned);
    REMO__REQUIRE(visit);
    REMO__REQUIRE(items);
    const struct visits visits = {.visit = visit, .version = version};
    int rc = begin_many(versioned, owner, version, items, count);
    return rc == 0 ? visit_all(versioned, owner, &visits, items, count) : rc;
}

int remo_versioned_visit_each(struct remo_versioned *versioned, uint32_t owner,
                              remo_versioned_visitor *prepare, remo_versioned_visitor *visit,
                              struct remo_versioned_item *items, uint32_t count) {
    REMO__REQUIRE(versioned);
    REMO__REQUIRE(prepare);
    REMO__REQUIRE(visit);
    REMO__REQUIRE(items);
    const struct visits visits = {.prepare = prepare, .visit = visit, .version = REMO_VERSIONED_NEWEST};
    int rc = begin_many(versioned, owner, REMO_VERSIONED_NEWEST, items, count);
    return rc == 0 ? visit_all(versioned, owner, &visits, items, count) : rc;
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
    return rc == 0 ? read_all(versioned, owner, version, items, count) : rc;
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
            return fail_outrun(&(struct remo__versioned_get){.versioned = versioned, .owner = owner});
        rc = remo_versioned_version(versioned, owner, &version);
        if (rc == 0)
            rc = read_all(versioned, owner, version, items, count);
        if (rc == -ESTALE && deadline_ns == 0)
            deadline_ns = remo__deadline(versioned->region->node->op_timeout_ns);
    } while (rc == -ESTALE);
    if (rc == 0 && ret_version)
        *ret_version = version;
    return rc;
}
