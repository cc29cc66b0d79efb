/* versioned_race.c - versioned objects that move during the operations of a read, and commits of two threads
 * of the owner. Reads end, and find no extent that is used again. */
#include "sim/cases/versioned.h"

/* The owner moves the object after each operation of a read. The read still ends. */
static const struct plan outrun_plan = {
    .objects = 1, .object_bytes = 136, .retain = 6, .count = 2, .entries = {{{0, 0, 136}}, {{0, 0, 130}}}};
#define OUTRUN_COMMITS 16u

static void open_outrun(void *state, struct remo_node *node, uint32_t rank) {
    sim_versioned_open(state, node, rank, &outrun_plan);
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
        sim_versioned_commit(s, thread, number);
    }
    if (rank == OWNER)
        return;
    s->seen_posts = sim_current()->posts;
    s->reader = sim_current();
    for (uint32_t i = 0; i < 2; i++) {
        struct sim_bound bound = sim_bound_begin();
        sim_versioned_read_one(s, rank, 0);
        sim_bound_end(&bound, "a read of an object that moves", 4, UINT64_MAX);
    }
    s->has_read = true;
}

const struct sim_case sim_case_versioned_outrun =
    VERSIONED_CASE(.name = "outrun", .about = "the object moves after each operation of a read", .nodes = 2,
                   .threads = 1, .needs_flight = true, .open = open_outrun, .body = outrun_body,
                   .after = sim_versioned_after, .has_own_fault = true);

/* During every third operation of the reads, the owner moves both objects. A read takes three operations:
 * on the superseded extent, the directory and the current extent. So the owner uses an extent again, for
 * the other object, while the extent is read. The second record of an extent is in a line of its own: a copy
 * can have it from another use of the extent than the head, the first record and the base. The lines of an
 * extent: header, first record, second record, base. */
static const struct plan overtaken_plan = {.objects = 2,
                                           .object_bytes = 64,
                                           .log_bytes = 128,
                                           .retain = 1,
                                           .count = 2,
                                           .entries = {{{0, 0, 40}, {0, 8, 40}}, {{1, 0, 40}, {1, 8, 40}}}};

static void open_overtaken(void *state, struct remo_node *node, uint32_t rank) {
    sim_versioned_open(state, node, rank, &overtaken_plan);
}

static void overtaken_body(void *state, uint32_t rank, uint32_t thread) {
    struct versioned_state *s = state;
    s->wanted_posts = 3;
    for (uint32_t number = 1; number <= OUTRUN_COMMITS && rank == OWNER; number += 2) {
        sim_until(has_posted, s, "wait for operations of a read");
        s->seen_posts = s->reader->posts;
        sim_versioned_commit(s, thread, number);
        sim_versioned_commit(s, thread, number + 1);
    }
    if (rank == OWNER)
        return;
    s->seen_posts = sim_current()->posts;
    s->reader = sim_current();
    for (uint32_t i = 0; i < 6; i++)
        sim_versioned_read_one(s, rank, i / 2 % 2);
    s->has_read = true;
}

const struct sim_case sim_case_versioned_overtaken =
    VERSIONED_CASE(.name = "overtaken", .about = "both objects move during every third operation", .nodes = 2,
                   .threads = 1, .needs_flight = true, .open = open_overtaken, .body = overtaken_body,
                   .after = sim_versioned_after, .has_own_fault = true);

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
    sim_versioned_open(state, node, rank, &writers_plan);
}

static void writers_body(void *state, uint32_t rank, uint32_t thread) {
    struct versioned_state *s = state;
    for (uint32_t i = 0; i < 3; i++) {
        if (rank == OWNER)
            sim_versioned_commit(s, thread, 4 * thread + i + 1);
        if (rank == OWNER && i == thread)
            (void)sim_versioned_read_version(s, rank);
        else if (thread == 1)
            (void)sim_versioned_read_all(s, rank);
        else
            sim_versioned_read_one(s, rank, i % 2);
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
            is_right = is_right && !sim_versioned_wrong_with(s, &s->results[i]);
        if (is_right)
            return;
    }
    for (uint32_t i = 0; i < s->results_count; i++)
        sim_versioned_require_right(s, &s->results[i]);
}

static void writers_after(void *state, uint32_t rank) {
    struct versioned_state *s = state;
    if (rank == OWNER)
        sim_versioned_commit(s, 0, (uint32_t)s->begun + 3); /* higher than all numbers in the bodies */
    for (uint32_t object = 0; object < s->plan->objects; object++)
        sim_versioned_read_one(s, rank, object);
}

const struct sim_case sim_case_versioned_writers = {
    .object = "versioned",
    .name = "writers",
    .about = "two threads of the owner commit, and two threads of another node read",
    .nodes = 2,
    .threads = 2,
    .state_bytes = sizeof(struct versioned_state),
    .open = open_writers,
    .close = sim_versioned_close,
    .body = writers_body,
    .after = writers_after,
    .check = writers_check};

/* A thread of the owner reads the version of a commit, perhaps before the commit returns. Then no peer reads
 * an older one. */
static void early_body(void *state, uint32_t rank, uint32_t thread) {
    struct versioned_state *s = state;
    for (uint32_t i = 0; i < 3; i++) {
        if (rank == OWNER && thread == 0)
            sim_versioned_commit(s, 0, i + 1);
        else
            (void)sim_versioned_read_version(s, rank);
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
    .close = sim_versioned_close,
    .body = early_body,
    .after = writers_after,
    .check = writers_check};
