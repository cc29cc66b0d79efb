/* versioned_common.h - functions that the tests of versioned objects share: open and close, values that
 * reveal torn reads, commits, and the memory that all nodes share. */
#pragma once

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../../support/turns.h"

#define VALUE_BYTES 256u /* of an object, in tests whose values contain a number */
#define RETAIN 8u        /* of old_options */

/* A commit to the object fills its extent, so each commit but the first moves the object. */
static const struct remo_versioned_options old_options = {
    .objects = 1, .object_bytes = VALUE_BYTES, .log_bytes = VALUE_BYTES + 24, .retain = RETAIN};

struct versioned_shared {
    _Atomic uint64_t committing, committed; /* the last commit that has begun; that has returned */
    _Atomic uint64_t version;               /* a version that a node passes to others */
    _Atomic uint32_t done, reads[TURNS_NODES_MAX];
    unsigned char values[16 * VALUE_BYTES]; /* as of `version` */
    struct turns turns;
};

static struct versioned_shared *shared;

static inline int open_versioned(struct remo_node *node, const struct remo_versioned_options *options,
                                 struct remo_versioned **ret_versioned) {
    CHECK_OK(remo_versioned_open(remo_node_root(node), "objects", options, ret_versioned));
    CHECK_OK(remo_channel_wait(remo_versioned_channel(*ret_versioned), 100 * SECOND));
    return 0;
}

static inline int close_versioned(struct remo_versioned *versioned) {
    CHECK_OK(cluster_meet());
    remo_versioned_close(versioned);
    CHECK_OK(cluster_meet());
    return 0;
}

static inline bool is_mapped(const struct remo_node *node) {
    return strcmp(remo_node_fabric(node), "shm") == 0;
}

/* A value of VALUE_BYTES: its number, and bytes that depend on the number and the object. */
static inline void make_value(unsigned char *value, uint32_t object, uint64_t number) {
    memcpy(value, &number, sizeof number);
    for (uint32_t i = sizeof number; i < VALUE_BYTES; i++)
        value[i] = (unsigned char)(number * 31 + object * 7 + i);
}

static inline uint64_t number_of(const unsigned char *value) {
    uint64_t number;
    memcpy(&number, value, sizeof number);
    return number;
}

/* Return whether the value is whole; the initial one is zero. */
static inline bool is_value(const unsigned char *value, uint32_t object, uint64_t number) {
    unsigned char expected[VALUE_BYTES] = {0};
    if (number > 0)
        make_value(expected, object, number);
    return memcmp(value, expected, sizeof expected) == 0;
}

/* Commit the value with this number to one object. */
static inline int commit_value(struct remo_versioned *versioned, uint32_t object, uint64_t number,
                               uint64_t *ret_version) {
    unsigned char value[VALUE_BYTES];
    const struct remo_versioned_change change = {.object = object, .size_bytes = sizeof value, .data = value};
    make_value(value, object, number);
    return remo_versioned_commit(versioned, &change, 1, ret_version);
}

static inline void clear_shared(void) {
    memset((void *)shared, 0, sizeof *shared);
}

static inline int versioned_main(int argc, char **argv, const struct cluster_test *tests) {
    shared = cluster_shared(sizeof *shared);
    return cluster_main(argc, argv, tests, clear_shared);
}
