/* versioned_calls.c - calls of the cases of versioned objects. Each call checks its cost, and lets the judge
 * compare its result (versioned_judge.c). */
#include "sim/cases/versioned.h"

#include "objects/versioned/versioned.h"
#include "sim/network/net.h"

#define TURNS_MAX 1000u /* of a read, on mapped memory */

/* ---- open ---- */

void sim_versioned_open(struct versioned_state *s, struct remo_node *node, uint32_t rank,
                        const struct plan *plan) {
    struct remo_versioned_options options = {.objects = plan->objects,
                                             .object_bytes = plan->object_bytes,
                                             .log_bytes = sim_versioned_log_bytes(plan),
                                             .retain = plan->retain};
    remo_nodeset_add(&options.owners, OWNER);
    s->plan = plan;
    sim_opened(remo_versioned_open(remo_node_root(node), "versioned", &options, &s->tables[rank]), "open");
    sim_opened(remo_channel_wait(remo_versioned_channel(s->tables[rank]), REMO_FOREVER), "wait");
}

void sim_versioned_close(void *state, uint32_t rank) {
    remo_versioned_close(((struct versioned_state *)state)->tables[rank]);
}

/* ---- bounds ---- */

struct cost {
    struct sim_bound bound;
    uint64_t ended; /* commits */
};

static struct cost cost_begin(const struct versioned_state *s) {
    return (struct cost){.bound = sim_bound_begin(), .ended = s->ended};
}

/* Return whether no commit ran during the call. */
static bool is_quiet(const struct versioned_state *s, const struct cost *cost) {
    return s->begun == cost->ended;
}

/* If no commit ran during a read, note that the node has the location of the object's current extent. */
static void note_known(struct versioned_state *s, uint32_t rank, uint32_t object, const struct cost *cost) {
    if (is_quiet(s, cost))
        s->known[rank][object] = s->begun + 1;
}

/* Check the cost of a read by node `rank`: at most `posts`; none at the owner. */
static void cost_end(const struct versioned_state *s, uint32_t rank, const struct cost *cost,
                     const char *what, uint64_t posts) {
    uint64_t again = 1 + s->begun - cost->ended;
    if (!sim_any_out()) /* otherwise operations on a lost connection are posted repeatedly */
        sim_bound_end(&cost->bound, what, rank == OWNER ? 0 : posts,
                      sim_profile->mapped ? TURNS_MAX * again : UINT64_MAX);
}

/* Return the number of operations of a read of an extent. */
static uint64_t extent_cost(void) {
    return sim_profile->mapped ? 3 : 1;
}

/* Return the maximum number of operations of a read of an object. The location is known if the node has read
 * the object and no commit has begun since. During commits, a read may also read the version or a head. It
 * starts again only if its extent was used again, after `retain` moves. */
static uint64_t object_cost(const struct versioned_state *s, uint32_t rank, uint32_t object,
                            const struct cost *cost) {
    uint64_t extent = extent_cost(), again = (s->begun - cost->ended) * s->plan->objects / s->plan->retain;
    if (!is_quiet(s, cost)) /* directory, extent, head word or version, and the extent before with its head */
        return (extent + 1) + (1 + extent + 1 + extent + 1) * (1 + again);
    bool is_known = s->known[rank][object] == s->begun + 1 && !s->is_late;
    return is_known ? extent : extent + 1 + extent;
}

/* Return whether the read of the version reports that the object has moved, if it has. Each commit since the
 * object was read has moved all objects at most. */
static bool is_listed(const struct versioned_state *s, uint32_t rank, uint32_t object,
                      const struct cost *cost) {
    uint64_t known = s->known[rank][object], commits = s->begun + 1 - known;
    return !sim_profile->mapped && is_quiet(s, cost) && !s->is_late && known > 0
           && commits * s->plan->objects <= REMO__VERSIONED_MOVES;
}

/* Return the maximum number of operations of a read of all objects as of one instant. */
static uint64_t all_cost(const struct versioned_state *s, uint32_t rank, const struct cost *cost) {
    uint64_t moves = (s->begun - cost->ended) * s->plan->objects, again = moves / s->plan->retain, sum = 0;
    for (uint32_t i = 0; i < s->plan->objects; i++)
        sum += remo__min(object_cost(s, rank, i, cost),
                         is_listed(s, rank, i, cost) ? 1 + extent_cost() : UINT64_MAX)
               + moves * (extent_cost() + 1);
    return (1 + sum) * (1 + again);
}

/* ---- calls ---- */

void sim_versioned_commit(struct versioned_state *s, uint32_t thread, uint32_t number) {
    const struct range *ranges = sim_versioned_ranges_of(s->plan, number);
    struct remo_versioned_change changes[RANGES_MAX];
    unsigned char data[RANGES_MAX][VALUE_BYTES];
    uint64_t version = 0, seen = s->seen;
    uint32_t count = 0;
    for (; count < RANGES_MAX && ranges[count].size_bytes != 0; count++) {
        for (uint32_t i = 0; i < ranges[count].size_bytes; i++)
            data[count][i] = sim_versioned_byte_of(number, count, ranges[count].offset + i);
        changes[count] = (struct remo_versioned_change){.object = ranges[count].object,
                                                        .offset = ranges[count].offset,
                                                        .size_bytes = ranges[count].size_bytes,
                                                        .data = data[count]};
    }
    s->begun++;
    sim_require(s->begun <= COMMITS_MAX, "more commits than %u", COMMITS_MAX);
    if (!s->is_late) /* one thread commits */
        s->numbers[s->begun] = number;
    s->running[thread] = number;
    struct sim_bound bound = sim_bound_begin();
    int rc = remo_versioned_commit(s->tables[OWNER], changes, count, &version);
    sim_bound_end(&bound, "commit", 0, UINT64_MAX);
    if (rc != 0) {
        sim_require(sim_excused(OWNER, OWNER, rc), "commit: %d (%s)", rc, remo_last_error());
        return;
    }
    sim_require(version > seen && version <= s->begun,
                "commit: version %llu: %llu seen before, %llu commits begun", (unsigned long long)version,
                (unsigned long long)seen, (unsigned long long)s->begun);
    sim_require(s->numbers[version] == (s->is_late ? 0 : number), "two commits have version %llu",
                (unsigned long long)version);
    s->numbers[version] = number;
    s->running[thread] = 0;
    s->ended++;
    sim_versioned_note_seen(s, version);
}

/* Return whether a call succeeded. An error must be excused. */
static bool succeeded(uint32_t rank, int rc, const char *what) {
    sim_require(rc == 0 || sim_excused(rank, OWNER, rc), "%s: %d (%s)", what, rc, remo_last_error());
    return rc == 0;
}

void sim_versioned_read_one(struct versioned_state *s, uint32_t rank, uint32_t object) {
    struct result result = {
        .rank = rank, .object = object, .seen = s->seen, .version = UINT64_MAX, .instant = NO_INSTANT};
    struct cost cost = cost_begin(s);
    int rc = remo_versioned_read(s->tables[rank], OWNER, object, result.value, &result.version);
    result.begun = s->begun;
    cost_end(s, rank, &cost, "read", object_cost(s, rank, object, &cost));
    if (!succeeded(rank, rc, "read"))
        return;
    note_known(s, rank, object, &cost);
    sim_versioned_judge(s, &result);
    sim_versioned_note_seen(s, result.version);
}

#define PIECE_BYTES 8u /* that a direct read copies at once */

/* Set the version of an object to that of the last record that the head counts. */
static bool load_version(const struct remo__versioned_direct *direct, struct result *result) {
    struct remo__versioned_patch patch;
    struct remo__versioned_walk walk = remo__versioned_direct_walk(direct);
    result->version = remo__load(direct->extent + offsetof(struct remo__versioned_header, base_version));
    while (walk.left > 0) {
        if (!remo__versioned_direct_next(&walk, &patch))
            return false;
        result->version = remo__load(patch.data - sizeof(struct remo__versioned_record));
    }
    return true;
}

/* Copy an object by a direct read. Returns false if the call must visit the object instead. */
static bool copy_directly(const struct remo_versioned *table, uint32_t object, struct result *result) {
    struct remo__versioned_direct direct;
    if (!remo__versioned_direct_begin(table, remo__thread(table->region->node), OWNER, object, &direct)
        || !remo__versioned_direct_open(&direct) || !load_version(&direct, result))
        return false;
    for (uint32_t at = 0; at < table->shape.object_bytes; at += PIECE_BYTES)
        remo__versioned_direct_copy(&direct, at, result->value + at, PIECE_BYTES);
    if (remo__versioned_direct_may_change(&direct, REMO__VERSIONED_LEAD_AT, REMO__VERSIONED_LEAD_BYTES)
        || !remo__versioned_direct_lead(&direct, result->value + REMO__VERSIONED_LEAD_AT))
        return false;
    return remo__versioned_direct_end(&direct, table->shape.object_bytes);
}

void sim_versioned_read_directly(struct versioned_state *s, uint32_t rank, uint32_t object) {
    struct result result = {
        .rank = rank, .object = object, .seen = s->seen, .version = UINT64_MAX, .instant = NO_INSTANT};
    if (!copy_directly(s->tables[rank], object, &result)) {
        sim_versioned_read_one(s, rank, object);
        return;
    }
    result.begun = s->begun;
    sim_versioned_judge(s, &result);
    sim_versioned_note_seen(s, result.version);
}

uint64_t sim_versioned_read_all(struct versioned_state *s, uint32_t rank) {
    struct result results[OBJECTS_MAX];
    struct remo_versioned_item items[OBJECTS_MAX];
    uint64_t seen = s->seen, instant = UINT64_MAX;
    uint32_t count = s->plan->objects;
    for (uint32_t i = 0; i < count; i++)
        items[i] =
            (struct remo_versioned_item){.object = i, .value = results[i].value, .version = UINT64_MAX};
    struct cost cost = cost_begin(s);
    int rc = remo_versioned_read_many(s->tables[rank], OWNER, items, count, &instant);
    uint64_t begun = s->begun;
    cost_end(s, rank, &cost, "read_many", all_cost(s, rank, &cost));
    if (!succeeded(rank, rc, "read_many"))
        return NO_INSTANT;
    for (uint32_t i = 0; i < count; i++) {
        results[i].rank = rank;
        results[i].object = i;
        results[i].seen = seen;
        results[i].begun = begun;
        results[i].version = items[i].version;
        results[i].instant = instant;
        sim_versioned_judge(s, &results[i]);
        note_known(s, rank, i, &cost);
    }
    sim_versioned_note_seen(s, instant);
    return instant;
}

/* The first step of a visit copies the first half of an object, and the second step the rest. */
static void prepare_visit(void *ctx, const struct remo_versioned_view *view) {
    remo_versioned_view_copy(view, 0, ctx, FIRST_HALF);
}

static void visit_rest(void *ctx, const struct remo_versioned_view *view) {
    remo_versioned_view_copy(view, FIRST_HALF, (unsigned char *)ctx + FIRST_HALF, HALVED_BYTES - FIRST_HALF);
}

void sim_versioned_read_each(struct versioned_state *s, uint32_t rank) {
    struct result results[OBJECTS_MAX];
    struct remo_versioned_item items[OBJECTS_MAX];
    uint32_t count = s->plan->objects;
    uint64_t posts = 0;
    sim_require(s->plan->object_bytes == HALVED_BYTES, "the objects have other sizes");
    for (uint32_t i = 0; i < count; i++) {
        results[i] = (struct result){.rank = rank, .object = i, .seen = s->seen, .instant = NO_INSTANT};
        items[i] =
            (struct remo_versioned_item){.object = i, .value = results[i].value, .version = UINT64_MAX};
    }
    struct cost cost = cost_begin(s);
    int rc = remo_versioned_visit_each(s->tables[rank], OWNER, prepare_visit, visit_rest, items, count);
    uint64_t begun = s->begun;
    for (uint32_t i = 0; i < count; i++)
        posts += object_cost(s, rank, i, &cost);
    cost_end(s, rank, &cost, "visit_each", posts);
    if (!succeeded(rank, rc, "visit_each"))
        return;
    for (uint32_t i = 0; i < count; i++) {
        results[i].begun = begun;
        results[i].version = items[i].version;
        sim_versioned_judge(s, &results[i]);
        note_known(s, rank, i, &cost);
        sim_versioned_note_seen(s, results[i].version);
    }
}

uint64_t sim_versioned_read_version(struct versioned_state *s, uint32_t rank) {
    uint64_t seen = s->seen, version = UINT64_MAX;
    struct sim_bound bound = sim_bound_begin();
    int rc = remo_versioned_version(s->tables[rank], OWNER, &version);
    if (!sim_any_out())
        sim_bound_end(&bound, "version", rank == OWNER ? 0 : 1, UINT64_MAX);
    if (!succeeded(rank, rc, "version"))
        return NO_INSTANT;
    sim_require(version >= seen && version <= s->begun,
                "node %u reads version %llu: %llu seen before, %llu commits begun", rank,
                (unsigned long long)version, (unsigned long long)seen, (unsigned long long)s->begun);
    sim_versioned_note_seen(s, version);
    return version;
}

void sim_versioned_read_at(struct versioned_state *s, uint32_t rank, uint32_t object, uint64_t instant) {
    struct result result = {.rank = rank, .object = object, .version = UINT64_MAX, .instant = instant};
    struct cost cost = cost_begin(s);
    int rc = remo_versioned_read_at(s->tables[rank], OWNER, object, instant, result.value, &result.version);
    result.begun = s->begun;
    uint64_t steps = sim_versioned_moves_since(s, object, instant); /* to previous extents */
    cost_end(s, rank, &cost, "read_at",
             1 + object_cost(s, rank, object, &cost) + steps * (extent_cost() + 1));
    if (rc == -ESTALE)
        sim_require(sim_versioned_may_be_stale(s, object, instant),
                    "read_at: object %u at version %llu is not stale after %llu commits (%s)", object,
                    (unsigned long long)instant, (unsigned long long)s->begun, remo_last_error());
    else if (succeeded(rank, rc, "read_at"))
        sim_versioned_judge(s, &result);
}

void sim_versioned_read_all_at(struct versioned_state *s, uint32_t rank, uint64_t instant) {
    struct result results[OBJECTS_MAX];
    struct remo_versioned_item items[OBJECTS_MAX];
    uint32_t count = s->plan->objects;
    bool is_stale = false;
    for (uint32_t i = 0; i < count; i++) {
        results[i] = (struct result){.rank = rank, .object = i, .instant = instant};
        items[i] =
            (struct remo_versioned_item){.object = i, .value = results[i].value, .version = UINT64_MAX};
    }
    int rc = remo_versioned_read_many_at(s->tables[rank], OWNER, instant, items, count);
    for (uint32_t i = 0; i < count; i++)
        is_stale = is_stale || sim_versioned_may_be_stale(s, i, instant);
    if (rc == -ESTALE)
        sim_require(is_stale, "read_many_at: version %llu is not stale after %llu commits (%s)",
                    (unsigned long long)instant, (unsigned long long)s->begun, remo_last_error());
    else if (succeeded(rank, rc, "read_many_at"))
        for (uint32_t i = 0; i < count; i++) {
            results[i].begun = s->begun;
            results[i].version = items[i].version;
            sim_versioned_judge(s, &results[i]);
        }
}

void sim_versioned_after(void *state, uint32_t rank) {
    struct versioned_state *s = state;
    if (rank != OWNER) /* several objects may have moved since this node read them */
        (void)sim_versioned_read_all(s, rank);
    for (uint32_t i = 0; i < 2; i++) {
        if (rank == OWNER)
            sim_versioned_commit(s, 0, (uint32_t)s->begun + 1);
        for (uint32_t object = 0; object < s->plan->objects; object++)
            sim_versioned_read_one(s, rank, object);
        (void)sim_versioned_read_all(s, rank);
    }
}
