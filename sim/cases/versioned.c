/* versioned.c - the table of versioned objects: one thread of a node commits, and other nodes read.
 * Each case has a plan of commits, which decides when objects move and extents are used again. */
#include "sim/cases/versioned.h"

/* Small and large changes of two objects: an extent is full after one to four commits. Two commits change two
 * ranges of an object, which overlap. If the records of commit 2 are the first ones of an extent, the second
 * one begins in the last word of a line: a copy can have its version from before the commit, and its seal
 * from after it. */
static const struct plan changes_plan = {.objects = 2,
                                         .object_bytes = 152,
                                         .retain = 2,
                                         .count = 7,
                                         .entries = {{{0, 0, 152}},
                                                     {{1, 90, 32}, {1, 120, 32}},
                                                     {{0, 60, 30}},
                                                     {{0, 3, 90}, {1, 0, 8}},
                                                     {{1, 1, 151}},
                                                     {{0, 90, 40}, {0, 56, 50}},
                                                     {{0, 0, 152}}}};

static void open_changes(void *state, struct remo_node *node, uint32_t rank) {
    sim_versioned_open(state, node, rank, &changes_plan);
}

static void changes_body(void *state, uint32_t rank, uint32_t thread) {
    struct versioned_state *s = state;
    for (uint32_t number = 1; number <= 7 && rank == OWNER; number++)
        sim_versioned_commit(s, thread, number);
    for (uint32_t i = 0; i < 6 && rank != OWNER; i++)
        sim_versioned_read_one(s, rank, (i + rank) % 2);
}

const struct sim_case sim_case_versioned_changes =
    VERSIONED_CASE(.name = "changes", .about = "the owner changes two objects, and two nodes read them",
                   .nodes = 3, .threads = 1, .open = open_changes, .body = changes_body,
                   .after = sim_versioned_after);

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
    sim_versioned_open(state, node, rank, &pairs_plan);
}

static void pairs_body(void *state, uint32_t rank, uint32_t thread) {
    struct versioned_state *s = state;
    for (uint32_t number = 1; number <= 5 && rank == OWNER; number++)
        sim_versioned_commit(s, thread, number);
    for (uint32_t i = 0; i < 3 && rank != OWNER; i++) {
        if (rank == 2)
            sim_versioned_read_one(s, rank, i % 2);
        (void)sim_versioned_read_all(s, rank);
    }
}

const struct sim_case sim_case_versioned_pairs =
    VERSIONED_CASE(.name = "pairs",
                   .about = "commits of two objects; two nodes read both, and one of them each object",
                   .nodes = 3, .threads = 1, .open = open_pairs, .body = pairs_body,
                   .after = sim_versioned_after);

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
    sim_versioned_open(state, node, rank, &rewrites_plan);
}

static void rewrites_body(void *state, uint32_t rank, uint32_t thread) {
    struct versioned_state *s = state;
    for (uint32_t number = 1; number <= 7 && rank == OWNER; number++)
        sim_versioned_commit(s, thread, number);
    for (uint32_t i = 0; i < 4 && rank != OWNER; i++) {
        sim_versioned_read_one(s, rank, i % 2);
        if (rank == 2)
            (void)sim_versioned_read_all(s, rank);
        else
            sim_versioned_read_at(s, rank, i / 2, s->seen);
    }
}

const struct sim_case sim_case_versioned_rewrites =
    VERSIONED_CASE(.name = "rewrites", .about = "most commits need more records than an extent has",
                   .nodes = 3, .threads = 1, .open = open_rewrites, .body = rewrites_body,
                   .after = sim_versioned_after);

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
    sim_versioned_open(state, node, rank, &instants_plan);
}

static void instants_body(void *state, uint32_t rank, uint32_t thread) {
    struct versioned_state *s = state;
    unsigned char value[VALUE_BYTES];
    for (uint32_t number = 1; number <= 6 && rank == OWNER; number++)
        sim_versioned_commit(s, thread, number);
    for (uint32_t i = 0; i < 3 && rank == 1; i++) {
        uint64_t instant = i == 1 ? sim_versioned_read_all(s, rank) : sim_versioned_read_version(s, rank);
        if (instant != NO_INSTANT)
            s->instant = instant;
        sim_versioned_read_at(s, rank, i % 3, s->instant);
    }
    for (uint32_t i = 0; i < 4 && rank == 2; i++)
        sim_versioned_read_at(s, rank, i / 2 % 3, s->instant);
    if (rank != 2)
        return;
    sim_versioned_read_all_at(s, rank, s->instant);
    int rc = remo_versioned_read_at(s->tables[rank], OWNER, 0, COMMITS_MAX + 1, value, NULL);
    sim_require(rc == -EINVAL || sim_excused(rank, OWNER, rc), "read_at a later version: %d (%s)", rc,
                remo_last_error());
}

static void instants_after(void *state, uint32_t rank) {
    struct versioned_state *s = state;
    sim_versioned_after(s, rank);
    for (uint32_t object = 0; object < s->plan->objects; object++) {
        sim_versioned_read_at(s, rank, object, s->instant);
        sim_versioned_read_at(s, rank, object, s->seen);
        sim_versioned_read_at(s, rank, object, s->seen > 2 ? s->seen - 2 : 0);
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
    sim_versioned_open(state, node, rank, &reuse_plan);
}

static void reuse_body(void *state, uint32_t rank, uint32_t thread) {
    struct versioned_state *s = state;
    for (uint32_t number = 1; number <= 8 && rank == OWNER; number++)
        sim_versioned_commit(s, thread, number);
    for (uint32_t i = 0; i < 4 && rank != OWNER; i++) {
        sim_versioned_read_one(s, rank, i / 2 % 2);
        if (rank == 2)
            (void)sim_versioned_read_all(s, rank);
    }
}

const struct sim_case sim_case_versioned_reuse =
    VERSIONED_CASE(.name = "reuse", .about = "each commit moves an object to the only spare extent",
                   .nodes = 3, .threads = 1, .open = open_reuse, .body = reuse_body,
                   .after = sim_versioned_after);

/* As reuse, with reads in two steps. */
static void stages_body(void *state, uint32_t rank, uint32_t thread) {
    struct versioned_state *s = state;
    for (uint32_t number = 1; number <= 8 && rank == OWNER; number++)
        sim_versioned_commit(s, thread, number);
    for (uint32_t i = 0; i < 4 && rank != OWNER; i++)
        sim_versioned_read_each(s, rank);
}

const struct sim_case sim_case_versioned_stages =
    VERSIONED_CASE(.name = "stages",
                   .about = "two nodes visit objects in two steps, and each commit moves an object",
                   .nodes = 3, .threads = 1, .open = open_reuse, .body = stages_body,
                   .after = sim_versioned_after);

/* Direct reads take the lead of an object, bytes 14 to 19, from the header, and other bytes from the base
 * unless they are in the hull of the other changes. Commit 7 changes the lead of object 1 with other bytes,
 * and that of object 0 after more records than a lead can count. The last two commits move the objects. The
 * last one does not change the leads, which the commit before has changed as a part of the objects. */
static const struct plan direct_plan = {.objects = 2,
                                        .object_bytes = 152,
                                        .log_bytes = 272,
                                        .retain = 2,
                                        .count = 9,
                                        .entries = {{{0, 14, 6}, {1, 14, 6}},
                                                    {{0, 40, 6}, {0, 14, 6}},
                                                    {{0, 100, 40}, {0, 14, 6}},
                                                    {{1, 140, 8}, {1, 14, 6}},
                                                    {{1, 60, 24}, {1, 14, 6}},
                                                    {{0, 14, 6}, {1, 14, 6}},
                                                    {{1, 14, 8}, {0, 14, 6}},
                                                    {{0, 0, 152}, {1, 0, 152}},
                                                    {{0, 22, 130}, {1, 40, 96}}}};

static void open_direct(void *state, struct remo_node *node, uint32_t rank) {
    sim_versioned_open(state, node, rank, &direct_plan);
}

static void direct_body(void *state, uint32_t rank, uint32_t thread) {
    struct versioned_state *s = state;
    for (uint32_t number = 1; number <= 18 && rank == OWNER; number++)
        sim_versioned_commit(s, thread, number);
    for (uint32_t i = 0; i < 12 && rank != OWNER; i++) {
        sim_versioned_read_directly(s, rank, i / 3 % 2);
        if (rank == 2 && i % 4 == 3)
            (void)sim_versioned_read_all(s, rank);
    }
}

const struct sim_case sim_case_versioned_direct =
    VERSIONED_CASE(.name = "direct", .about = "two nodes read objects without a private copy", .nodes = 3,
                   .threads = 1, .open = open_direct, .body = direct_body, .after = sim_versioned_after);
