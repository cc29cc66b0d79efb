/* test_versioned_cost.c - the cost of each call of versioned objects, counted exactly: at the owner, at the
 * first read and later ones, after moves, and of earlier versions. */
#include "objects/versioned/versioned.h"
#include "versioned_common.h"

#define COST_OBJECTS 6u

/* As old_options: each commit to an object, except the first, moves it. */
static const struct remo_versioned_options cost_options = {
    .objects = COST_OBJECTS, .object_bytes = VALUE_BYTES, .log_bytes = VALUE_BYTES + 24, .retain = 8};

/* Commit to each object, without a network operation. */
static int commit_to_all(struct remo_versioned *versioned, uint64_t number) {
    struct remo_channel *channel = remo_versioned_channel(versioned);
    for (uint32_t i = 0; i < COST_OBJECTS; i++)
        CHECK_COST(channel, CHECK_OK(commit_value(versioned, i, number, NULL)), 0, 0, 0, 0);
    return 0;
}

/* Read all objects at the same time, at this cost. */
static int read_all_at_cost(struct remo_versioned *versioned, uint64_t reads, uint64_t number) {
    unsigned char values[COST_OBJECTS][VALUE_BYTES];
    struct remo_versioned_item items[COST_OBJECTS];
    for (uint32_t i = 0; i < COST_OBJECTS; i++)
        items[i] = (struct remo_versioned_item){.object = i, .value = values[i]};
    CHECK_COST(remo_versioned_channel(versioned),
               CHECK_OK(remo_versioned_read_many(versioned, 0, items, COST_OBJECTS, NULL)), reads, 0, 0, 0);
    for (uint32_t i = 0; i < COST_OBJECTS; i++)
        CHECK(is_value(values[i], i, number));
    return 0;
}

static int read_at_cost(struct remo_versioned *versioned, uint32_t object, uint64_t reads, uint64_t number) {
    unsigned char value[VALUE_BYTES];
    CHECK_COST(remo_versioned_channel(versioned),
               CHECK_OK(remo_versioned_read(versioned, 0, object, value, NULL)), reads, 0, 0, 0);
    CHECK(is_value(value, object, number));
    return 0;
}

static int costs_of_owner(struct remo_versioned *versioned) {
    struct remo_channel *channel = remo_versioned_channel(versioned);
    unsigned char value[VALUE_BYTES];
    uint64_t version = 0;
    CHECK(commit_to_all(versioned, 1) == 0);
    CHECK_COST(channel, CHECK_OK(remo_versioned_version(versioned, 0, &version)), 0, 0, 0, 0);
    CHECK_EQUAL(version, COST_OBJECTS);
    CHECK(read_at_cost(versioned, 0, 0, 1) == 0);
    CHECK(read_all_at_cost(versioned, 0, 1) == 0);
    CHECK_COST(channel, CHECK_OK(remo_versioned_read_at(versioned, 0, 0, 0, value, NULL)), 0, 0, 0, 0);
    CHECK(is_value(value, 0, 0));
    return 0;
}

/* A call with a wrong argument costs no operation. */
static int costs_of_errors(struct remo_versioned *versioned) {
    struct remo_channel *channel = remo_versioned_channel(versioned);
    unsigned char value[VALUE_BYTES];
    CHECK_COST(channel, CHECK_CODE(remo_versioned_read(versioned, 0, COST_OBJECTS, value, NULL), -EINVAL), 0,
               0, 0, 0);
    CHECK_COST(channel, CHECK_CODE(remo_versioned_read(versioned, 9, 0, value, NULL), -EINVAL), 0, 0, 0, 0);
    CHECK_COST(channel, CHECK_CODE(remo_versioned_read(versioned, 0, 0, NULL, NULL), -EINVAL), 0, 0, 0, 0);
    return 0;
}

/* Node 1 reads. The steps of both nodes are the same. */
static int costs(struct remo_node *node, void *ctx) {
    struct remo_versioned *versioned;
    uint64_t version = 0;
    bool is_owner = remo_node_rank(node) == 0;
    (void)ctx;
    CHECK(open_versioned(node, &cost_options, &versioned) == 0);
    struct remo_channel *channel = remo_versioned_channel(versioned);
    CHECK(!is_owner || costs_of_owner(versioned) == 0);
    CHECK_OK(cluster_meet());
    if (!is_owner) {
        CHECK(read_at_cost(versioned, 0, 2, 1) == 0); /* the first time */
        CHECK(read_at_cost(versioned, 0, 1, 1) == 0);
        CHECK_COST(channel, CHECK_OK(remo_versioned_version(versioned, 0, &version)), 1, 0, 0, 0);
        CHECK_EQUAL(version, COST_OBJECTS);
        CHECK(read_all_at_cost(versioned, 1 + 1 + (COST_OBJECTS - 1) * 2, 1) == 0);
        CHECK(read_all_at_cost(versioned, 1 + COST_OBJECTS, 1) == 0);
        CHECK(costs_of_errors(versioned) == 0);
    }
    CHECK_OK(cluster_meet());
    CHECK(!is_owner || commit_to_all(versioned, 2) == 0); /* each commit moves an object */
    CHECK_OK(cluster_meet());
    if (!is_owner) {
        CHECK(read_at_cost(versioned, 0, 3, 2) == 0);
        CHECK(read_at_cost(versioned, 0, 1, 2) == 0);
        /* Over a network, the read of the version reports the moves. */
        CHECK(read_all_at_cost(versioned, 1 + 1 + (COST_OBJECTS - 1) * (is_mapped(node) ? 3 : 2), 2) == 0);
    }
    CHECK_OK(cluster_meet());
    return close_versioned(versioned);
}

/* A commit that does not move the object does not change the cost. Initially there is no record. */
static int costs_without_move(struct remo_node *node, void *ctx) {
    const struct remo_versioned_options options = {
        .objects = 1, .object_bytes = VALUE_BYTES, .log_bytes = 4 * (VALUE_BYTES + 24)};
    struct remo_versioned *versioned;
    (void)ctx;
    CHECK(open_versioned(node, &options, &versioned) == 0);
    for (uint64_t i = 0; i <= 4; i++) {
        if (remo_node_rank(node) == 0 && i > 0)
            CHECK_OK(commit_value(versioned, 0, i, NULL));
        CHECK_OK(cluster_meet());
        if (remo_node_rank(node) == 1 && i == 0)
            CHECK(read_at_cost(versioned, 0, 2, i) == 0);
        if (remo_node_rank(node) == 1)
            CHECK(read_at_cost(versioned, 0, 1, i) == 0);
        CHECK_OK(cluster_meet());
    }
    return close_versioned(versioned);
}

/* The read of the version reports the last moves. After more moves, a read of the object itself finds its
 * move. */
static int costs_after_moves(struct remo_node *node, void *ctx) {
    struct remo_versioned *versioned;
    uint64_t version = 0, number = 1;
    (void)ctx;
    CHECK(open_versioned(node, &cost_options, &versioned) == 0);
    struct remo_channel *channel = remo_versioned_channel(versioned);
    for (uint64_t moves = 0; moves <= REMO__VERSIONED_MOVES; moves++) {
        CHECK_OK(cluster_meet());
        if (remo_node_rank(node) == 0) {
            CHECK_OK(commit_value(versioned, 1, number, NULL));
            for (uint64_t i = 0; i < moves; i++)
                CHECK_OK(commit_value(versioned, 0, number, NULL));
        }
        CHECK_OK(cluster_meet());
        bool is_reported = !is_mapped(node) && moves < REMO__VERSIONED_MOVES;
        if (remo_node_rank(node) == 1) {
            CHECK_COST(channel, CHECK_OK(remo_versioned_version(versioned, 0, &version)), 1, 0, 0, 0);
            CHECK(read_at_cost(versioned, 1, is_reported || number == 1 ? 2 : 3, number) == 0);
            CHECK_COST(channel, CHECK_OK(remo_versioned_version(versioned, 0, &version)), 1, 0, 0, 0);
            CHECK(read_at_cost(versioned, 1, 1, number) == 0);
        }
        number++;
    }
    return close_versioned(versioned);
}

/* The directory, or an earlier read, has the used part of the base: the zeros behind it are not read. */
static int costs_of_zeros(struct remo_node *node, void *ctx) {
    const struct remo_versioned_options options = {
        .objects = 1, .object_bytes = 4096, .log_bytes = 32, .retain = 1};
    unsigned char expected[4096] = "", value[4096];
    struct remo_versioned *versioned;
    struct remo_stats before, after;
    (void)ctx;
    memset(expected, 1, 100);
    CHECK(open_versioned(node, &options, &versioned) == 0);
    const struct remo_versioned_change change = {.size_bytes = sizeof expected, .data = expected};
    if (remo_node_rank(node) == 0)
        CHECK_OK(remo_versioned_commit(versioned, &change, 1, NULL));
    CHECK_OK(cluster_meet());
    for (uint32_t i = 0; i < 2 && remo_node_rank(node) == 1; i++) { /* i == 0: the location is not known */
        remo_channel_stats(remo_versioned_channel(versioned), &before);
        CHECK_OK(remo_versioned_read(versioned, 0, 0, value, NULL));
        remo_channel_stats(remo_versioned_channel(versioned), &after);
        CHECK(memcmp(value, expected, sizeof expected) == 0);
        CHECK(is_mapped(node) || after.bytes - before.bytes == (i == 0 ? 16 : 0) + 64 + 32 + 104);
    }
    return close_versioned(versioned);
}

/* Read a version of an object of old_options. */
static int version_at_cost(struct remo_versioned *versioned, uint64_t version, uint64_t reads) {
    unsigned char value[VALUE_BYTES];
    CHECK_COST(remo_versioned_channel(versioned),
               CHECK_OK(remo_versioned_read_at(versioned, 0, 0, version, value, NULL)), reads, 0, 0, 0);
    CHECK(is_value(value, 0, version));
    return 0;
}

static int costs_of_versions(struct remo_node *node, void *ctx) {
    struct remo_versioned *versioned;
    uint64_t last = 5, version = 0;
    (void)ctx;
    CHECK(open_versioned(node, &old_options, &versioned) == 0);
    for (uint64_t i = 1; i <= last && remo_node_rank(node) == 0; i++)
        CHECK_OK(commit_value(versioned, 0, i, NULL));
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 1) {
        CHECK(version_at_cost(versioned, last, 3) == 0); /* version, directory, extent */
        for (version = 0; version <= last; version++) {
            uint64_t moves = version == last ? 0 : last - 1 - version;
            CHECK(version_at_cost(versioned, version, 1 + moves) == 0);
        }
        CHECK(version_at_cost(versioned, last, 1) == 0);
    }
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 0)
        CHECK_OK(commit_value(versioned, 0, last + 1, NULL));
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 1) {
        /* The known extent has all records of this version, although the object has moved since. */
        CHECK(version_at_cost(versioned, last - 1, 1) == 0);
        CHECK(version_at_cost(versioned, last, 3) == 0);
    }
    return close_versioned(versioned);
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(costs, 2),
        CLUSTER_TEST(costs_without_move, 2),
        CLUSTER_TEST(costs_after_moves, 2),
        CLUSTER_TEST(costs_of_zeros, 2),
        CLUSTER_TEST(costs_of_versions, 2),
        {0},
    };
    return versioned_main(argc, argv, tests);
}
