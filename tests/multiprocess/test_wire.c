/* test_wire.c - what calls cost on the wire of fabric verbs: work requests, posts (doorbells), signalled completions, inline sends.
 * Time in emulation means nothing, but these counts hold on every device. */
#include <errno.h>
#include <remo/remo.h>
#include <string.h>

#include "../support/cluster.h"
#include "kv/kv.h"
#include "node/node.h"

#define WAIT (30 * SECOND)

static struct remo__fabric_wire wire(struct remo_node *node) {
    struct remo__fabric_wire now;
    node->fabric->ops->wire(node->fabric, &now);
    return now;
}

/* What a statement of this node puts on the wire; the other threads of the node have nothing to do meanwhile. */
#define CHECK_WIRE(node, statement, requests_, posts_, signalled_, inlined_)                                 \
    do {                                                                                                     \
        struct remo__fabric_wire before_ = wire(node), after_;                                               \
        statement;                                                                                           \
        after_ = wire(node);                                                                                 \
        CHECK_EQUAL(after_.requests - before_.requests, requests_);                                          \
        CHECK_EQUAL(after_.posts - before_.posts, posts_);                                                   \
        CHECK_EQUAL(after_.signalled - before_.signalled, signalled_);                                       \
        CHECK_EQUAL(after_.inlined - before_.inlined, inlined_);                                             \
    } while (0)

static int region(struct remo_node *node, void *ctx) {
    (void)ctx;
    struct remo_region *region;
    char buffer[64] = "";
    uint64_t old;
    CHECK_OK(remo_region_open(remo_node_root(node), "region", 65536, NULL, &region));
    CHECK_OK(remo_channel_wait(remo_region_channel(region), WAIT));
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 0) {
        CHECK_OK(remo_region_read(region, 1, 0, buffer, 8, NULL)); /* connects */
        CHECK_WIRE(node, CHECK_OK(remo_region_read(region, 1, 0, buffer, 8, NULL)), 1, 1, 1, 0);
        CHECK_WIRE(node, CHECK_OK(remo_region_write(region, 1, 0, buffer, 8, 0, NULL)), 1, 1, 1, 1);
        CHECK_WIRE(node, CHECK_OK(remo_fence(node, REMO_FENCE_PAIR, 1)), 0, 0, 0, 0);
        CHECK_WIRE(node, CHECK_OK(remo_fence(node, REMO_FENCE_THREAD, 0)), 1, 1, 1, 0); /* the read behind the write */
        CHECK_WIRE(node, CHECK_OK(remo_fence(node, REMO_FENCE_THREAD, 0)), 0, 0, 0, 0);
        CHECK_WIRE(node, CHECK_OK(remo_region_write(region, 1, 0, buffer, 8, REMO_WRITE_NOTIFY, NULL)), 1, 1, 1, 1);
        CHECK_WIRE(node, CHECK_OK(remo_region_fetch_add(region, 1, 8, 1, &old, NULL)), 1, 1, 1, 0);
        CHECK_WIRE(node, CHECK_OK(remo_region_compare_swap(region, 1, 8, 1, 2, &old, NULL)), 1, 1, 1, 0);
    }
    CHECK_OK(cluster_meet());
    remo_region_close(region);
    return 0;
}

/* n - 1 inline writes, and no read while nothing is outstanding. */
static int barrier(struct remo_node *node, void *ctx) {
    (void)ctx;
    struct remo_barrier *barrier;
    uint32_t others = remo_node_size(node) - 1;
    CHECK_OK(remo_barrier_open(remo_node_root(node), "barrier", NULL, &barrier));
    CHECK_OK(remo_channel_wait(remo_barrier_channel(barrier), WAIT));
    for (uint32_t round = 0; round < 3; round++)
        CHECK_OK(remo_barrier_wait(barrier, WAIT));
    CHECK_OK(cluster_meet());
    struct remo__fabric_wire before = wire(node);
    for (uint32_t round = 0; round < 10; round++)
        CHECK_OK(remo_barrier_wait(barrier, WAIT));
    struct remo__fabric_wire after = wire(node);
    CHECK_EQUAL(after.inlined - before.inlined, 10 * others);
    CHECK_EQUAL(after.requests - before.requests, 10 * others);
    CHECK_OK(cluster_meet());
    remo_barrier_close(barrier);
    return 0;
}

static int lock(struct remo_node *node, void *ctx) {
    (void)ctx;
    struct remo_lock *lock;
    struct remo_lock_options options = {.count = 1, .homes.word[0] = 2}; /* node 1 */
    CHECK_OK(remo_lock_open(remo_node_root(node), "lock", &options, &lock));
    CHECK_OK(remo_channel_wait(remo_lock_channel(lock), WAIT));
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 0) {
        CHECK_OK(remo_lock_acquire(lock, 0, WAIT));
        CHECK_OK(remo_lock_release(lock, 0, REMO_FENCE_NONE));
        CHECK_WIRE(node, CHECK_OK(remo_lock_acquire(lock, 0, WAIT)), 1, 1, 1, 0);
        CHECK_WIRE(node, CHECK_OK(remo_lock_release(lock, 0, REMO_FENCE_PAIR)), 1, 1, 1, 0);
    }
    CHECK_OK(cluster_meet());
    remo_lock_close(lock);
    return 0;
}

static int window_of_gets(struct remo_node *node, struct remo_kv *kv) {
    enum { WINDOW = 16 };
    struct remo_kv_op ops[WINDOW];
    uint64_t values[WINDOW];
    for (uint32_t i = 0; i < WINDOW; i++) {
        ops[i] = (struct remo_kv_op){.kind = REMO_KV_GET, .key = "theirs", .key_bytes = 6, .value = &values[i], .value_bytes = 8};
        CHECK_OK(remo_kv_start(kv, &ops[i]));
    }
    CHECK_WIRE(node, for (uint32_t i = 0; i < WINDOW; i++) CHECK_OK(remo_kv_wait(kv, &ops[i])), WINDOW, 1, 1, 0);
    return 0;
}

static int map(struct remo_node *node, void *ctx) {
    (void)ctx;
    struct remo_kv *kv;
    struct remo_kv_options options = {.capacity = 1000, .key_bytes_max = 8, .value_bytes_max = 8};
    char key[8] = "theirs";
    uint64_t value;
    CHECK_OK(remo_kv_open(remo_node_root(node), "map", &options, &kv));
    CHECK_OK(remo_channel_wait(remo_kv_channel(kv), WAIT));
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 1) {
        CHECK_OK(remo_kv_insert(kv, key, 6, "12345678", 8));
        for (char last = 'a'; last <= 'z'; last++) { /* one of them has its lock where its slot is */
            char more[] = {'k', last};
            CHECK_OK(remo_kv_insert(kv, more, 2, "12345678", 8));
        }
    }
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 0) {
        char same[] = {'k', 'a'};
        while (remo_lock_home(kv->locks, remo__kv_stripe_of(kv, remo__kv_hash(same, 2))) != 1 && same[1] < 'z')
            same[1]++;
        CHECK_OK(remo_kv_get(kv, key, 6, &value, 8, NULL));
        CHECK_OK(remo_kv_update(kv, same, 2, "87654321", 8));
        CHECK_WIRE(node, CHECK_OK(remo_kv_get(kv, key, 6, &value, 8, NULL)), 1, 1, 1, 0);
        /* Lock; read; write and, behind it in the same post, unlock: three round trips. */
        struct remo__fabric_wire before = wire(node);
        CHECK_OK(remo_kv_update(kv, same, 2, "12345678", 8));
        struct remo__fabric_wire after = wire(node);
        CHECK_EQUAL(after.requests - before.requests, 4);
        CHECK(after.posts - before.posts <= 4);
        CHECK_OK(window_of_gets(node, kv));
    }
    CHECK_OK(cluster_meet());
    remo_kv_close(kv);
    return 0;
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(region, 2, .only_on = "verbs"),
        CLUSTER_TEST(barrier, 3, .only_on = "verbs"),
        CLUSTER_TEST(lock, 2, .only_on = "verbs"),
        CLUSTER_TEST(map, 2, .only_on = "verbs"),
        {0},
    };
    return cluster_main(argc, argv, tests, NULL);
}
