/* test_tutorial.c - the object and the structure of docs/tutorial.md: the costs that they state, and lookups
 * of keys that collide, are moved, and are deleted. The tutorial shows parts of this file. */
#include <assert.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "../../support/cluster.h"

int dispenser_main(int argc, char **argv);
#define main dispenser_main
#include "../../../examples/dispenser.c"
#undef main
#include "../../../examples/directory.h"

#define WAIT_NS (100 * SECOND)
#define OWNER 1u
#define NAMES 10u

/* ---- the object ---- */

static void expect_next(struct dispenser d) {
    uint64_t first, end;
    struct remo_stats before, after;
    remo_channel_stats(d.channel, &before);
    dispenser_next(&d, 10, &first, &end);
    remo_channel_stats(d.channel, &after);
    assert(after.atomics - before.atomics == 1 && after.reads == before.reads
           && after.writes == before.writes);
}

static int object(struct remo_node *node, void *ctx) {
    struct dispenser d = {0};
    (void)ctx;
    CHECK_OK(dispenser_open(remo_node_root(node), "loop", 1000, &d));
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == OWNER)
        expect_next(d);
    CHECK_OK(cluster_meet());
    dispenser_close(&d);
    return 0;
}

/* ---- the structure ---- */

/* Look up a key. Require the result, and the number of reads and calls: a call is one write of this node. */
static void expect(struct directory *d, const char *key, int result, uint64_t reads, uint64_t calls) {
    struct remo_stats before, after;
    uint64_t value;
    remo_channel_stats(remo_structure_channel(d->structure), &before);
    int rc = remo_structure_lookup(d->structure, key, strlen(key), &value, sizeof value, NULL, NULL);
    remo_channel_stats(remo_structure_channel(d->structure), &after);
    assert(rc == result && after.reads - before.reads == reads && after.writes - before.writes == calls);
}

/* Set keys of OWNER whose own slot is the same, one after another. */
static void choose_names(char names[NAMES][KEY_BYTES_MAX + 1]) {
    for (uint32_t i = 0, number = 0; i < NAMES; number++) {
        int bytes = snprintf(names[i], sizeof names[i], "%u/%u", OWNER, number);
        i += XXH3_64bits(names[i], (size_t)bytes) % SLOTS == 77;
    }
}

static int insert(struct directory *d, const char *key) {
    return remo_structure_insert(d->structure, key, strlen(key), "value", 5);
}

static int erase(struct directory *d, const char *key) {
    return remo_structure_delete(d->structure, key, strlen(key));
}

/* The keys own, moved and other have the same own slot. */
static int check_costs(struct directory *d, const char *own, const char *moved, const char *other) {
    expect(d, own, -ENOENT, 1, 0);
    CHECK_OK(insert(d, own));
    expect(d, own, 0, 1, 0);
    expect(d, other, -ENOENT, 1, 0); /* the own slot has no moved keys */
    CHECK_OK(insert(d, moved));
    expect(d, own, 0, 1, 0);
    expect(d, moved, 0, 1, 1); /* learns the place */
    expect(d, moved, 0, 1, 0);
    expect(d, other, -ENOENT, 1, 1); /* only the owner can prove it */
    CHECK_OK(erase(d, moved));
    CHECK_OK(insert(d, other));      /* in the same place */
    expect(d, moved, -ENOENT, 1, 1); /* the place was reused: forget it */
    expect(d, other, 0, 1, 1);
    CHECK_OK(erase(d, other));
    expect(d, moved, -ENOENT, 1, 0); /* the own slot has no moved keys again */
    return 0;
}

/* A group has room for GROUP keys. */
static int check_full(struct directory *d, char names[NAMES][KEY_BYTES_MAX + 1]) {
    for (uint32_t i = 1; i < GROUP; i++)
        CHECK_OK(insert(d, names[i]));
    CHECK_CODE(insert(d, names[GROUP]), -ENOSPC);
    CHECK_OK(erase(d, names[3]));
    CHECK_OK(insert(d, names[GROUP]));
    for (uint32_t i = 0; i <= GROUP; i++) {
        enum remo_lookup_way way;
        CHECK_CODE(remo_structure_lookup(d->structure, names[i], strlen(names[i]), NULL, 0, NULL, &way),
                   i == 3 ? -ENOENT : -EMSGSIZE);
    }
    CHECK_CODE(insert(d, "9/no such node"), -EINVAL);
    return 0;
}

static int structure(struct remo_node *node, void *ctx) {
    static struct directory d;
    char names[NAMES][KEY_BYTES_MAX + 1];
    (void)ctx;
    choose_names(names);
    CHECK_OK(directory_open(remo_node_root(node), "directory", &d));
    CHECK_OK(remo_channel_wait(remo_structure_channel(d.structure), WAIT_NS));
    if (remo_node_rank(node) != OWNER) {
        CHECK(check_costs(&d, names[0], names[1], names[2]) == 0);
        CHECK(check_full(&d, names) == 0);
    }
    CHECK_OK(cluster_meet());
    remo_structure_close(d.structure);
    CHECK_OK(cluster_meet());
    return 0;
}

static const struct cluster_test tests[] = {CLUSTER_TEST(object, 2), CLUSTER_TEST(structure, 2), {0}};

int main(int argc, char **argv) {
    return cluster_main(argc, argv, tests, NULL);
}
