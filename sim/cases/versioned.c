/* versioned.c - the table of versioned objects: one node commits, and others read. The changes of a commit
 * depend on its number only, so each result is compared with a replay up to its version. Versions order all
 * commits. So a history is linearizable if each read returns a version that is not lower than any returned
 * before the read began, and not higher than the number of commits that had begun when the read ended. */
#include <errno.h>
#include <remo/versioned.h>
#include <string.h>

#include "sim/case.h"
#include "sim/network/net.h"

#define OWNER 0u
#define VALUE_BYTES 152u /* of an object, at most: with the header of the extent, three cache lines */
#define RECORD_BYTES 24u /* of a record without its data */
#define OBJECTS_MAX 3u
#define RANGES_MAX 3u  /* of a commit */
#define ENTRIES_MAX 8u /* of a plan */
#define COMMITS_MAX 24u
#define RESULTS_MAX 32u
#define TURNS_MAX 1000u /* of a read, on mapped memory */
#define NO_INSTANT UINT64_MAX

struct range {
    uint8_t object, offset, size_bytes;
};

/* The changes of commit n are those of entry (n - 1) % count. A range of size 0 ends an entry. */
struct plan {
    uint32_t objects, object_bytes, retain, count;
    uint32_t log_bytes; /* 0: a record of a whole object */
    struct range entries[ENTRIES_MAX][RANGES_MAX];
};

/* Objects that are read in two steps. */
#define HALVED_BYTES 152u
#define FIRST_HALF 70u

/* The result of a read. */
struct result {
    uint32_t rank, object;
    uint64_t seen;    /* the newest version that a call had returned when the read began */
    uint64_t begun;   /* the number of commits that had begun when the read ended */
    uint64_t version; /* of the object */
    uint64_t instant; /* the version of the whole read; NO_INSTANT: it read one object */
    unsigned char value[VALUE_BYTES];
};

struct versioned_state {
    struct remo_versioned *tables[SIM_NODES_MAX];
    const struct plan *plan;
    uint64_t begun, ended;             /* the number of commits */
    uint64_t seen;                     /* the newest version that a call has returned on any node */
    uint32_t numbers[COMMITS_MAX + 1]; /* of the commit of each version; 0: unknown */
    uint32_t running[SIM_THREADS_MAX]; /* the number of the commit of each thread; 0: none */
    uint64_t instant;                  /* a version that node 1 has obtained for others */
    bool is_late;                      /* judge the results after all commits have versions */
    uint32_t results_count;
    struct result results[RESULTS_MAX];
    const struct sim_actor *reader; /* the owner commits after it has posted wanted_posts more operations */
    uint64_t seen_posts, wanted_posts; /* seen_posts: its operations before the last commit */
    bool has_read;
    uint64_t known[SIM_NODES_MAX][OBJECTS_MAX]; /* 1 + the commits before the last read without a commit */
};

/* ---- the plan ---- */

static const struct range *ranges_of(const struct plan *plan, uint32_t number) {
    return plan->entries[(number - 1) % plan->count];
}

static unsigned char byte_of(uint32_t number, uint32_t range, uint32_t at) {
    return (unsigned char)(31 * number + 7 * range + at);
}

static uint32_t log_bytes(const struct plan *plan) {
    return plan->log_bytes ? plan->log_bytes : RECORD_BYTES + (plan->object_bytes + 7) / 8 * 8;
}

/* Apply a commit to an object. Returns whether the commit changes the object. */
static bool apply(const struct plan *plan, uint32_t number, uint32_t object, unsigned char *value) {
    const struct range *ranges = ranges_of(plan, number);
    bool is_changed = false;
    for (uint32_t i = 0; i < RANGES_MAX && ranges[i].size_bytes != 0; i++) {
        uint32_t end = (uint32_t)ranges[i].offset + ranges[i].size_bytes;
        if (ranges[i].object != object)
            continue;
        is_changed = true;
        for (uint32_t at = ranges[i].offset; at < end; at++)
            value[at] = byte_of(number, i, at);
    }
    return is_changed;
}

/* Set `value` to the object as of `version`. Returns the version of the last commit that changed it. */
static uint64_t replay(const struct versioned_state *s, uint32_t object, uint64_t version,
                       unsigned char *value) {
    uint64_t last = 0;
    memset(value, 0, s->plan->object_bytes);
    for (uint64_t v = 1; v <= version && v <= COMMITS_MAX; v++)
        if (s->numbers[v] != 0 && apply(s->plan, s->numbers[v], object, value))
            last = v;
    return last;
}

static uint64_t last_change(const struct versioned_state *s, uint32_t object, uint64_t version) {
    unsigned char value[VALUE_BYTES];
    return replay(s, object, version, value);
}

/* Return the bytes of records that a commit appends to an object. */
static uint32_t record_bytes(const struct plan *plan, uint32_t number, uint32_t object) {
    const struct range *ranges = ranges_of(plan, number);
    uint32_t bytes = 0;
    for (uint32_t i = 0; i < RANGES_MAX && ranges[i].size_bytes != 0; i++)
        if (ranges[i].object == object)
            bytes += RECORD_BYTES + (ranges[i].size_bytes + 7u) / 8 * 8;
    return bytes;
}

/* Add the records of a commit to extents that have used[] bytes of records. Returns the mask of the objects
 * that the commit moves. */
static uint32_t pack(const struct versioned_state *s, uint64_t version, uint32_t *used) {
    uint32_t moved = 0;
    for (uint32_t i = 0; i < s->plan->objects; i++) {
        uint32_t bytes = record_bytes(s->plan, s->numbers[version], i);
        bool moves = used[i] + bytes > log_bytes(s->plan);
        used[i] = moves ? bytes : used[i] + bytes;
        if (used[i] > log_bytes(s->plan)) /* rewritten: the base has the changes */
            used[i] = 0;
        moved |= (uint32_t)moves << i;
    }
    return moved;
}

/* Return whether a commit changes an object by a new base, so that the extent before has all older states. */
static bool is_rewritten(const struct versioned_state *s, uint64_t version, uint32_t object) {
    return record_bytes(s->plan, s->numbers[version], object) > log_bytes(s->plan);
}

/* Return how often the object has moved since `version`. */
static uint64_t moves_since(const struct versioned_state *s, uint32_t object, uint64_t version) {
    uint32_t used[OBJECTS_MAX] = {0};
    uint64_t moves = 0;
    for (uint64_t v = 1; v <= s->begun; v++)
        moves += pack(s, v, used) >> object & (v > version);
    return moves;
}

/* Return whether the extent of an object's state at `version` may have been used again: a commit has moved
 * the object from this extent, and since then objects have moved `retain` times. */
static bool may_be_stale(const struct versioned_state *s, uint32_t object, uint64_t version) {
    uint32_t used[OBJECTS_MAX] = {0}, moves = 0;
    bool is_moved = false;
    for (uint64_t v = 1; v <= s->begun; v++) {
        uint32_t moved = pack(s, v, used);
        if (moved >> object & 1) /* the new base is of this version or of the one before */
            is_moved = is_moved || (is_rewritten(s, v, object) ? v : last_change(s, object, v - 1)) > version;
        if (is_moved) /* another object of the commit may move after this one */
            moves += (uint32_t)__builtin_popcount(moved);
    }
    return is_moved && moves >= 1 + s->plan->retain;
}

/* ---- open ---- */

static void open_with(struct versioned_state *s, struct remo_node *node, uint32_t rank,
                      const struct plan *plan) {
    struct remo_versioned_options options = {.objects = plan->objects,
                                             .object_bytes = plan->object_bytes,
                                             .log_bytes = log_bytes(plan),
                                             .retain = plan->retain};
    remo_nodeset_add(&options.owners, OWNER);
    s->plan = plan;
    sim_opened(remo_versioned_open(remo_node_root(node), "versioned", &options, &s->tables[rank]), "open");
    sim_opened(remo_channel_wait(remo_versioned_channel(s->tables[rank]), REMO_FOREVER), "wait");
}

static void close_table(void *state, uint32_t rank) {
    remo_versioned_close(((struct versioned_state *)state)->tables[rank]);
}

/* ---- judge ---- */

static void note_seen(struct versioned_state *s, uint64_t version) {
    if (s->seen < version)
        s->seen = version;
}

/* Return the error in a result, or NULL. */
static const char *wrong_with(const struct versioned_state *s, const struct result *result) {
    unsigned char expected[VALUE_BYTES];
    uint64_t newest = result->instant == NO_INSTANT ? result->version : result->instant;
    if (newest > result->begun)
        return "a version whose commit has not begun";
    if (result->instant != NO_INSTANT && result->instant < result->seen)
        return "an instant before a version that a call had returned";
    if (result->version < last_change(s, result->object, result->seen))
        return "a version older than one that a call had returned";
    if (replay(s, result->object, newest, expected) != result->version)
        return "a version other than that of the last change";
    return memcmp(expected, result->value, s->plan->object_bytes) == 0 ? NULL : "a torn value";
}

static void require_right(const struct versioned_state *s, const struct result *result) {
    const char *wrong = wrong_with(s, result);
    sim_require(!wrong,
                "node %u, object %u: version %llu, instant %lld, %llu seen before, %llu commits begun: %s",
                result->rank, result->object, (unsigned long long)result->version, (long long)result->instant,
                (unsigned long long)result->seen, (unsigned long long)result->begun, wrong);
}

static void judge(struct versioned_state *s, const struct result *result) {
    if (!s->is_late)
        require_right(s, result);
    else if (s->results_count < RESULTS_MAX)
        s->results[s->results_count++] = *result;
    else
        sim_fail("more results than %u", RESULTS_MAX);
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

/* Return the maximum number of operations of a read of all objects as of one instant. */
static uint64_t all_cost(const struct versioned_state *s, uint32_t rank, const struct cost *cost) {
    uint64_t moves = (s->begun - cost->ended) * s->plan->objects, again = moves / s->plan->retain, sum = 0;
    for (uint32_t i = 0; i < s->plan->objects; i++)
        sum += object_cost(s, rank, i, cost) + moves * (extent_cost() + 1);
    return (1 + sum) * (1 + again);
}

/* ---- calls ---- */

static void commit(struct versioned_state *s, uint32_t thread, uint32_t number) {
    const struct range *ranges = ranges_of(s->plan, number);
    struct remo_versioned_change changes[RANGES_MAX];
    unsigned char data[RANGES_MAX][VALUE_BYTES];
    uint64_t version = 0, seen = s->seen;
    uint32_t count = 0;
    for (; count < RANGES_MAX && ranges[count].size_bytes != 0; count++) {
        for (uint32_t i = 0; i < ranges[count].size_bytes; i++)
            data[count][i] = byte_of(number, count, ranges[count].offset + i);
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
    note_seen(s, version);
}

/* Return whether a call succeeded. An error must be excused. */
static bool succeeded(uint32_t rank, int rc, const char *what) {
    sim_require(rc == 0 || sim_excused(rank, OWNER, rc), "%s: %d (%s)", what, rc, remo_last_error());
    return rc == 0;
}

static void read_one(struct versioned_state *s, uint32_t rank, uint32_t object) {
    struct result result = {
        .rank = rank, .object = object, .seen = s->seen, .version = UINT64_MAX, .instant = NO_INSTANT};
    struct cost cost = cost_begin(s);
    int rc = remo_versioned_read(s->tables[rank], OWNER, object, result.value, &result.version);
    result.begun = s->begun;
    cost_end(s, rank, &cost, "read", object_cost(s, rank, object, &cost));
    if (!succeeded(rank, rc, "read"))
        return;
    note_known(s, rank, object, &cost);
    judge(s, &result);
    note_seen(s, result.version);
}

/* Read all objects as of one instant. Returns its version, or NO_INSTANT if a fault excuses the error. */
static uint64_t read_all(struct versioned_state *s, uint32_t rank) {
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
        judge(s, &results[i]);
        note_known(s, rank, i, &cost);
    }
    note_seen(s, instant);
    return instant;
}

/* The first step of a visit copies the first half of an object, and the second step the rest. */
static void prepare_visit(void *ctx, const struct remo_versioned_view *view) {
    remo_versioned_view_copy(view, 0, ctx, FIRST_HALF);
}

static void visit_rest(void *ctx, const struct remo_versioned_view *view) {
    remo_versioned_view_copy(view, FIRST_HALF, (unsigned char *)ctx + FIRST_HALF, HALVED_BYTES - FIRST_HALF);
}

/* Read each object as of an instant of its own, in two steps. */
static void read_each(struct versioned_state *s, uint32_t rank) {
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
        judge(s, &results[i]);
        note_known(s, rank, i, &cost);
        note_seen(s, results[i].version);
    }
}

/* Read the version. Returns the version, or NO_INSTANT if a fault excuses the error. */
static uint64_t read_version(struct versioned_state *s, uint32_t rank) {
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
    note_seen(s, version);
    return version;
}

/* Read an object as of a version that a call has returned. */
static void read_at(struct versioned_state *s, uint32_t rank, uint32_t object, uint64_t instant) {
    struct result result = {.rank = rank, .object = object, .version = UINT64_MAX, .instant = instant};
    struct cost cost = cost_begin(s);
    int rc = remo_versioned_read_at(s->tables[rank], OWNER, object, instant, result.value, &result.version);
    result.begun = s->begun;
    uint64_t steps = moves_since(s, object, instant); /* to previous extents */
    cost_end(s, rank, &cost, "read_at",
             1 + object_cost(s, rank, object, &cost) + steps * (extent_cost() + 1));
    if (rc == -ESTALE)
        sim_require(may_be_stale(s, object, instant),
                    "read_at: object %u at version %llu is not stale after %llu commits (%s)", object,
                    (unsigned long long)instant, (unsigned long long)s->begun, remo_last_error());
    else if (succeeded(rank, rc, "read_at"))
        judge(s, &result);
}

/* Read all objects as of a version that a call has returned. */
static void read_all_at(struct versioned_state *s, uint32_t rank, uint64_t instant) {
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
        is_stale = is_stale || may_be_stale(s, i, instant);
    if (rc == -ESTALE)
        sim_require(is_stale, "read_many_at: version %llu is not stale after %llu commits (%s)",
                    (unsigned long long)instant, (unsigned long long)s->begun, remo_last_error());
    else if (succeeded(rank, rc, "read_many_at"))
        for (uint32_t i = 0; i < count; i++) {
            results[i].begun = s->begun;
            results[i].version = items[i].version;
            judge(s, &results[i]);
        }
}

/* The nodes that have not failed read. The owner makes further commits, which move objects. */
static void after(void *state, uint32_t rank) {
    struct versioned_state *s = state;
    for (uint32_t i = 0; i < 2; i++) {
        if (rank == OWNER)
            commit(s, 0, (uint32_t)s->begun + 1);
        for (uint32_t object = 0; object < s->plan->objects; object++)
            read_one(s, rank, object);
        (void)read_all(s, rank);
    }
}

/* ---- cases ---- */

/* A case of the table. The arguments are members of struct sim_case. */
#define VERSIONED_CASE(...)                                                                         \
    {                                                                                               \
        .object = "versioned", .state_bytes = sizeof(struct versioned_state), .close = close_table, \
        __VA_ARGS__                                                                                 \
    }

/* Small and large changes of two objects: an extent is full after one to four commits. Two commits change two
 * ranges of an object, which overlap. */
static const struct plan changes_plan = {.objects = 2,
                                         .object_bytes = 152,
                                         .retain = 2,
                                         .count = 7,
                                         .entries = {{{0, 0, 152}},
                                                     {{1, 100, 30}, {1, 110, 42}},
                                                     {{0, 60, 30}},
                                                     {{0, 3, 90}, {1, 0, 8}},
                                                     {{1, 1, 151}},
                                                     {{0, 90, 40}, {0, 56, 50}},
                                                     {{0, 0, 152}}}};

static void open_changes(void *state, struct remo_node *node, uint32_t rank) {
    open_with(state, node, rank, &changes_plan);
}

static void changes_body(void *state, uint32_t rank, uint32_t thread) {
    struct versioned_state *s = state;
    for (uint32_t number = 1; number <= 7 && rank == OWNER; number++)
        commit(s, thread, number);
    for (uint32_t i = 0; i < 6 && rank != OWNER; i++)
        read_one(s, rank, (i + rank) % 2);
}

const struct sim_case sim_case_versioned_changes =
    VERSIONED_CASE(.name = "changes", .about = "the owner changes two objects, and two nodes read them",
                   .nodes = 3, .threads = 1, .open = open_changes, .body = changes_body, .after = after);

/* Most commits change both objects. */
static const struct plan pairs_plan = {.objects = 2,
                                       .object_bytes = 136,
                                       .retain = 2,
                                       .count = 5,
                                       .entries = {{{0, 0, 40}, {1, 40, 40}},
                                                   {{0, 32, 80}, {1, 0, 8}},
                                                   {{1, 50, 86}},
                                                   {{1, 0, 24}, {0, 100, 36}},
                                                   {{0, 16, 8}, {1, 64, 72}, {0, 20, 8}}}};

static void open_pairs(void *state, struct remo_node *node, uint32_t rank) {
    open_with(state, node, rank, &pairs_plan);
}

static void pairs_body(void *state, uint32_t rank, uint32_t thread) {
    struct versioned_state *s = state;
    for (uint32_t number = 1; number <= 5 && rank == OWNER; number++)
        commit(s, thread, number);
    for (uint32_t i = 0; i < 3 && rank != OWNER; i++) {
        if (rank == 2)
            read_one(s, rank, i % 2);
        (void)read_all(s, rank);
    }
}

const struct sim_case sim_case_versioned_pairs =
    VERSIONED_CASE(.name = "pairs",
                   .about = "commits of two objects; two nodes read both, and one of them each object",
                   .nodes = 3, .threads = 1, .open = open_pairs, .body = pairs_body, .after = after);

/* An extent has room for 40 bytes of one record; larger changes rewrite objects. */
static const struct plan rewrites_plan = {.objects = 2,
                                          .object_bytes = 152,
                                          .log_bytes = 64,
                                          .retain = 2,
                                          .count = 7,
                                          .entries = {{{0, 0, 152}},
                                                      {{0, 8, 30}, {1, 0, 100}},
                                                      {{1, 100, 40}},
                                                      {{0, 0, 100}, {1, 50, 100}},
                                                      {{0, 10, 20}, {0, 20, 30}},
                                                      {{1, 0, 8}, {0, 0, 60}},
                                                      {{0, 100, 50}}}};

static void open_rewrites(void *state, struct remo_node *node, uint32_t rank) {
    open_with(state, node, rank, &rewrites_plan);
}

static void rewrites_body(void *state, uint32_t rank, uint32_t thread) {
    struct versioned_state *s = state;
    for (uint32_t number = 1; number <= 7 && rank == OWNER; number++)
        commit(s, thread, number);
    for (uint32_t i = 0; i < 4 && rank != OWNER; i++) {
        read_one(s, rank, i % 2);
        if (rank == 2)
            (void)read_all(s, rank);
        else
            read_at(s, rank, i / 2, s->seen);
    }
}

const struct sim_case sim_case_versioned_rewrites =
    VERSIONED_CASE(.name = "rewrites", .about = "most commits need more records than an extent has",
                   .nodes = 3, .threads = 1, .open = open_rewrites, .body = rewrites_body, .after = after);

/* Node 1 obtains versions, and both nodes read objects as of these versions. */
static const struct plan instants_plan = {.objects = 3,
                                          .object_bytes = 136,
                                          .retain = 2,
                                          .count = 6,
                                          .entries = {{{0, 0, 40}, {1, 40, 40}, {2, 0, 8}},
                                                      {{0, 32, 80}},
                                                      {{1, 0, 136}, {2, 8, 90}},
                                                      {{0, 8, 64}, {1, 100, 8}},
                                                      {{0, 100, 8}},
                                                      {{0, 0, 136}, {1, 16, 100}, {2, 64, 72}}}};

static void open_instants(void *state, struct remo_node *node, uint32_t rank) {
    open_with(state, node, rank, &instants_plan);
}

static void instants_body(void *state, uint32_t rank, uint32_t thread) {
    struct versioned_state *s = state;
    unsigned char value[VALUE_BYTES];
    for (uint32_t number = 1; number <= 6 && rank == OWNER; number++)
        commit(s, thread, number);
    for (uint32_t i = 0; i < 3 && rank == 1; i++) {
        uint64_t instant = i == 1 ? read_all(s, rank) : read_version(s, rank);
        if (instant != NO_INSTANT)
            s->instant = instant;
        read_at(s, rank, i % 3, s->instant);
    }
    for (uint32_t i = 0; i < 4 && rank == 2; i++)
        read_at(s, rank, i / 2 % 3, s->instant);
    if (rank != 2)
        return;
    read_all_at(s, rank, s->instant);
    int rc = remo_versioned_read_at(s->tables[rank], OWNER, 0, COMMITS_MAX + 1, value, NULL);
    sim_require(rc == -EINVAL || sim_excused(rank, OWNER, rc), "read_at a later version: %d (%s)", rc,
                remo_last_error());
}

static void instants_after(void *state, uint32_t rank) {
    struct versioned_state *s = state;
    after(s, rank);
    for (uint32_t object = 0; object < s->plan->objects; object++) {
        read_at(s, rank, object, s->instant);
        read_at(s, rank, object, s->seen);
        read_at(s, rank, object, s->seen > 2 ? s->seen - 2 : 0);
    }
}

const struct sim_case sim_case_versioned_instants =
    VERSIONED_CASE(.name = "instants", .about = "two nodes read objects as of versions that one obtained",
                   .nodes = 3, .threads = 1, .open = open_instants, .body = instants_body,
                   .after = instants_after);

/* Each commit moves an object, except the first of each object. There is one spare extent. */
static const struct plan reuse_plan = {.objects = 2,
                                       .object_bytes = 152,
                                       .retain = 1,
                                       .count = 8,
                                       .entries = {{{0, 0, 152}},
                                                   {{1, 0, 152}},
                                                   {{0, 0, 146}},
                                                   {{0, 0, 152}},
                                                   {{1, 0, 148}},
                                                   {{0, 0, 152}, {1, 7, 145}},
                                                   {{0, 0, 152}},
                                                   {{0, 5, 147}}}};

static void open_reuse(void *state, struct remo_node *node, uint32_t rank) {
    open_with(state, node, rank, &reuse_plan);
}

static void reuse_body(void *state, uint32_t rank, uint32_t thread) {
    struct versioned_state *s = state;
    for (uint32_t number = 1; number <= 8 && rank == OWNER; number++)
        commit(s, thread, number);
    for (uint32_t i = 0; i < 4 && rank != OWNER; i++) {
        read_one(s, rank, i / 2 % 2);
        if (rank == 2)
            (void)read_all(s, rank);
    }
}

const struct sim_case sim_case_versioned_reuse =
    VERSIONED_CASE(.name = "reuse", .about = "each commit moves an object to the only spare extent",
                   .nodes = 3, .threads = 1, .open = open_reuse, .body = reuse_body, .after = after);

/* As reuse, with reads in two steps. */
static void stages_body(void *state, uint32_t rank, uint32_t thread) {
    struct versioned_state *s = state;
    for (uint32_t number = 1; number <= 8 && rank == OWNER; number++)
        commit(s, thread, number);
    for (uint32_t i = 0; i < 4 && rank != OWNER; i++)
        read_each(s, rank);
}

const struct sim_case sim_case_versioned_stages =
    VERSIONED_CASE(.name = "stages",
                   .about = "two nodes visit objects in two steps, and each commit moves an object",
                   .nodes = 3, .threads = 1, .open = open_reuse, .body = stages_body, .after = after);

/* The owner moves the object after each operation of a read. The read still ends. */
static const struct plan outrun_plan = {
    .objects = 1, .object_bytes = 136, .retain = 6, .count = 2, .entries = {{{0, 0, 136}}, {{0, 0, 130}}}};
#define OUTRUN_COMMITS 16u

static void open_outrun(void *state, struct remo_node *node, uint32_t rank) {
    open_with(state, node, rank, &outrun_plan);
}

static bool has_posted(void *ctx) {
    const struct versioned_state *s = ctx;
    return (s->reader && s->reader->posts >= s->seen_posts + s->wanted_posts) || s->has_read;
}

static void outrun_body(void *state, uint32_t rank, uint32_t thread) {
    struct versioned_state *s = state;
    s->wanted_posts = 1;
    for (uint32_t number = 1; number <= OUTRUN_COMMITS && rank == OWNER; number++) {
        sim_until(has_posted, s, "wait for an operation of the read");
        if (s->has_read)
            return;
        s->seen_posts = s->reader->posts;
        commit(s, thread, number);
    }
    if (rank == OWNER)
        return;
    s->seen_posts = sim_current()->posts;
    s->reader = sim_current();
    for (uint32_t i = 0; i < 2; i++) {
        struct sim_bound bound = sim_bound_begin();
        read_one(s, rank, 0);
        sim_bound_end(&bound, "a read of an object that moves", 4, UINT64_MAX);
    }
    s->has_read = true;
}

const struct sim_case sim_case_versioned_outrun =
    VERSIONED_CASE(.name = "outrun", .about = "the object moves after each operation of a read", .nodes = 2,
                   .threads = 1, .needs_flight = true, .open = open_outrun, .body = outrun_body,
                   .after = after, .has_own_fault = true);

/* During every third operation of the reads, the owner moves both objects. A read takes three operations:
 * on the superseded extent, the directory and the current extent. So the owner uses an extent again, for
 * the other object, while the extent is read. An extent has two lines: the header and the base, and one
 * record. */
static const struct plan overtaken_plan = {
    .objects = 2, .object_bytes = 24, .retain = 1, .count = 2, .entries = {{{0, 0, 24}}, {{1, 0, 24}}}};

static void open_overtaken(void *state, struct remo_node *node, uint32_t rank) {
    open_with(state, node, rank, &overtaken_plan);
}

static void overtaken_body(void *state, uint32_t rank, uint32_t thread) {
    struct versioned_state *s = state;
    s->wanted_posts = 3;
    for (uint32_t number = 1; number <= OUTRUN_COMMITS && rank == OWNER; number += 2) {
        sim_until(has_posted, s, "wait for operations of a read");
        s->seen_posts = s->reader->posts;
        commit(s, thread, number);
        commit(s, thread, number + 1);
    }
    if (rank == OWNER)
        return;
    s->seen_posts = sim_current()->posts;
    s->reader = sim_current();
    for (uint32_t i = 0; i < 6; i++)
        read_one(s, rank, i / 2 % 2);
    s->has_read = true;
}

const struct sim_case sim_case_versioned_overtaken =
    VERSIONED_CASE(.name = "overtaken", .about = "both objects move during every third operation", .nodes = 2,
                   .threads = 1, .needs_flight = true, .open = open_overtaken, .body = overtaken_body,
                   .after = after, .has_own_fault = true);

/* Two threads of the owner commit and read. Two threads of another node read. The version of a commit is
 * known only after the commit returns, so results are judged at the end. */
static const struct plan writers_plan = {.objects = 2,
                                         .object_bytes = 136,
                                         .retain = 2,
                                         .count = 8,
                                         .entries = {{{0, 0, 40}, {1, 40, 40}},
                                                     {{0, 32, 80}, {1, 0, 8}},
                                                     {{1, 50, 86}},
                                                     {{0, 0, 24}},
                                                     {{1, 0, 24}, {0, 100, 36}},
                                                     {{0, 16, 8}, {1, 64, 72}, {0, 20, 8}},
                                                     {{0, 0, 136}},
                                                     {{1, 8, 16}}}};

static void open_writers(void *state, struct remo_node *node, uint32_t rank) {
    ((struct versioned_state *)state)->is_late = true;
    open_with(state, node, rank, &writers_plan);
}

static void writers_body(void *state, uint32_t rank, uint32_t thread) {
    struct versioned_state *s = state;
    for (uint32_t i = 0; i < 3; i++) {
        if (rank == OWNER)
            commit(s, thread, 4 * thread + i + 1);
        if (rank == OWNER && i == thread)
            (void)read_version(s, rank);
        else if (thread == 1)
            (void)read_all(s, rank);
        else
            read_one(s, rank, i % 2);
    }
}

/* Assign the versions that are not known to the commits that have not returned, in one of two orders. Each
 * thread of a failed owner may have such a commit. */
static void assign(struct versioned_state *s, bool is_second_first) {
    uint32_t numbers[2] = {s->running[is_second_first], s->running[!is_second_first]}, next = 0;
    for (uint64_t v = 1; v <= s->begun; v++)
        for (; s->numbers[v] == 0 && next < 2; next++)
            s->numbers[v] = numbers[next];
}

static void writers_check(void *state) {
    struct versioned_state *s = state;
    uint32_t numbers[COMMITS_MAX + 1];
    memcpy(numbers, s->numbers, sizeof numbers);
    for (uint32_t order = 0; order < 2; order++) {
        bool is_right = true;
        memcpy(s->numbers, numbers, sizeof numbers);
        assign(s, order == 1);
        for (uint32_t i = 0; i < s->results_count; i++)
            is_right = is_right && !wrong_with(s, &s->results[i]);
        if (is_right)
            return;
    }
    for (uint32_t i = 0; i < s->results_count; i++)
        require_right(s, &s->results[i]);
}

static void writers_after(void *state, uint32_t rank) {
    struct versioned_state *s = state;
    if (rank == OWNER)
        commit(s, 0, (uint32_t)s->begun + 3); /* higher than all numbers in the bodies */
    for (uint32_t object = 0; object < s->plan->objects; object++)
        read_one(s, rank, object);
}

const struct sim_case sim_case_versioned_writers = {
    .object = "versioned",
    .name = "writers",
    .about = "two threads of the owner commit, and two threads of another node read",
    .nodes = 2,
    .threads = 2,
    .state_bytes = sizeof(struct versioned_state),
    .open = open_writers,
    .close = close_table,
    .body = writers_body,
    .after = writers_after,
    .check = writers_check};

/* A thread of the owner reads the version of a commit, perhaps before the commit returns. Then no peer reads
 * an older one. */
static void early_body(void *state, uint32_t rank, uint32_t thread) {
    struct versioned_state *s = state;
    for (uint32_t i = 0; i < 3; i++) {
        if (rank == OWNER && thread == 0)
            commit(s, 0, i + 1);
        else
            (void)read_version(s, rank);
    }
}

const struct sim_case sim_case_versioned_early = {
    .object = "versioned",
    .name = "early",
    .about = "a thread of the owner reads the version of a commit that has not returned",
    .nodes = 2,
    .threads = 2,
    .state_bytes = sizeof(struct versioned_state),
    .open = open_writers,
    .close = close_table,
    .body = early_body,
    .after = writers_after,
    .check = writers_check};
