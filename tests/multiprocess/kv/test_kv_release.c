/* test_kv_release.c - a change whose write cannot be placed keeps its stripe locked, because the late write
 * could overwrite the change of another node. The node that holds the key is paused. And: a close returns
 * the memory of the map, with the buffers of its threads, which exist on this fabric only. */
#include <errno.h>
#include <string.h>

#include "systems/kv/kv.h"
#include "../../support/turns.h"

#define NODES 3u
#define PAUSED 1u /* the node that holds the keys */
#define STRIPES 64u

static struct shared { struct turns turns; } * shared;

static uint32_t stripe_of(const struct remo_kv *kv, uint64_t key) {
    return remo__kv_stripe_of(kv, remo__kv_hash(&key, sizeof key));
}

/* Return the first key from `from` on whose stripe has its lock at `home`. */
static uint64_t key_with_home(const struct remo_kv *kv, uint32_t home, uint64_t from) {
    while (remo_lock_home(kv->locks, stripe_of(kv, from)) != home)
        from++;
    return from;
}

static int open_map(struct remo_node *node, struct remo_kv **ret_kv) {
    struct remo_kv_options options = {.capacity = 64, .value_bytes_max = 8, .stripes = STRIPES};
    CHECK_OK(remo_kv_open(remo_node_root(node), "map", &options, ret_kv));
    CHECK_OK(remo_channel_wait(remo_kv_channel(*ret_kv), 100 * SECOND));
    record_process(&shared->turns, remo_node_rank(node));
    return cluster_meet();
}

/* Produce the state after a change that timed out: the stripe is held, and a write is in flight. (A node that
 * pauses earlier does not answer the search, so the change ends before its write.) */
static int keep_stripe(struct remo_kv *kv, uint64_t key) {
    struct remo__kv_thread *mine = remo__kv_thread(kv);
    uint64_t nothing = 0, last_slot = remo__kv_slot_at(kv, kv->slots_per_node - 1);
    CHECK_OK(remo_region_write(kv->slots, PAUSED, last_slot, &nothing, sizeof nothing, 0, NULL));
    mine->is_kept = true;
    mine->kept_stripe = stripe_of(kv, key);
    mine->kept_node = PAUSED;
    mine->locks_held++;
    return 0;
}

/* Changes of the thread time out until the node answers; the first one after that releases the stripe. */
static int change_while_paused(struct remo_kv *kv, uint64_t key, uint64_t other) {
    uint64_t value = 1;
    int rc;
    CHECK_OK(remo_kv_update(kv, &key, sizeof key, &value, sizeof value)); /* connects */
    CHECK_OK(remo_lock_acquire(kv->locks, stripe_of(kv, key), 100 * SECOND));
    pause_node(&shared->turns, PAUSED);
    if (keep_stripe(kv, key) != 0)
        return 1;
    CHECK_CODE(remo_kv_update(kv, &other, sizeof other, &value, sizeof value), -ETIMEDOUT);
    begin_turn(&shared->turns, 1);
    CHECK_OK(reach_turn(&shared->turns, 2));
    resume_node(&shared->turns, PAUSED);
    while ((rc = remo_kv_update(kv, &other, sizeof other, &value, sizeof value)) == -ETIMEDOUT)
        continue;
    CHECK_OK(rc);
    CHECK(!remo__kv_thread(kv)->is_kept);
    CHECK_EQUAL(remo__kv_thread(kv)->locks_held, 0);
    begin_turn(&shared->turns, 3);
    return 0;
}

/* Insert two keys on node PAUSED, whose stripes have their locks at nodes 0 and 2. */
static int open_with_keys(struct remo_node *node, struct remo_kv **ret_kv, uint64_t *ret_key,
                          uint64_t *ret_other) {
    uint64_t value = 0;
    if (open_map(node, ret_kv) != 0)
        return 1;
    *ret_key = key_with_home(*ret_kv, 0, 1);
    *ret_other = key_with_home(*ret_kv, 2, 1);
    if (remo_node_rank(node) == PAUSED) {
        CHECK_OK(remo_kv_insert(*ret_kv, ret_key, sizeof *ret_key, &value, sizeof value));
        CHECK_OK(remo_kv_insert(*ret_kv, ret_other, sizeof *ret_other, &value, sizeof value));
    }
    return cluster_meet();
}

static int released_by_change(struct remo_node *node, void *ctx) {
    struct remo_kv *kv;
    uint64_t key, other;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    if (open_with_keys(node, &kv, &key, &other) != 0)
        return 1;
    if (rank == 0 && change_while_paused(kv, key, other) != 0)
        return 1;
    if (rank == 2) {
        CHECK_OK(reach_turn(&shared->turns, 1));
        CHECK_CODE(remo_lock_acquire(kv->locks, stripe_of(kv, key), 0), -ETIMEDOUT);
        begin_turn(&shared->turns, 2);
        CHECK_OK(reach_turn(&shared->turns, 3));
        CHECK_OK(remo_lock_acquire(kv->locks, stripe_of(kv, key), 100 * SECOND));
        CHECK_OK(remo_lock_release(kv->locks, stripe_of(kv, key), REMO_FENCE_NONE));
    }
    CHECK_OK(cluster_meet());
    remo_kv_close(kv);
    return 0;
}

/* If the thread makes no more changes, its other calls release the stripe. */
static int release_by_other_calls(struct remo_kv *kv, uint64_t key, uint64_t other) {
    uint64_t value = 1, deadline = cluster_now_ns() + 100 * SECOND;
    struct remo_kv_cursor cursor = REMO_KV_CURSOR_INIT;
    size_t bytes;
    CHECK_OK(remo_kv_update(kv, &key, sizeof key, &value, sizeof value)); /* connects */
    for (uint32_t turn = 0; turn < 3; turn++) {
        CHECK_OK(remo_lock_acquire(kv->locks, stripe_of(kv, key), 100 * SECOND));
        if (keep_stripe(kv, key) != 0)
            return 1;
        while (remo__kv_thread(kv)->is_kept && cluster_now_ns() < deadline) {
            if (turn == 0)
                CHECK_OK(remo_kv_get(kv, &other, sizeof other, &value, sizeof value, NULL));
            else if (turn == 1)
                CHECK_CODE(remo_kv_poll(kv), 0);
            else if (remo_kv_next(kv, &cursor, &key, sizeof key, &bytes, NULL, 0, NULL) == -ENOENT)
                cursor = (struct remo_kv_cursor)REMO_KV_CURSOR_INIT;
        }
        CHECK(!remo__kv_thread(kv)->is_kept);
        CHECK_EQUAL(remo__kv_thread(kv)->locks_held, 0);
    }
    return 0;
}

static int released_by_other_calls(struct remo_node *node, void *ctx) {
    struct remo_kv *kv;
    uint64_t key, other;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    if (open_with_keys(node, &kv, &key, &other) != 0)
        return 1;
    if (rank == 0 && release_by_other_calls(kv, key, other) != 0)
        return 1;
    CHECK_OK(cluster_meet());
    remo_kv_close(kv);
    return 0;
}

/* Open a map, change it, and close it. *ret_offset is the place of this thread's buffers. */
static int use_map(struct remo_node *node, uint64_t *ret_offset) {
    struct remo_kv *kv;
    uint64_t key = 1, value = 2;
    if (open_map(node, &kv) != 0)
        return 1;
    CHECK_OK(remo_kv_insert(kv, &key, sizeof key, &value, sizeof value));
    CHECK(remo__kv_thread(kv)->buffers != NULL);
    *ret_offset = remo__kv_thread(kv)->buffers_offset;
    remo_kv_close(kv);
    return 0;
}

/* The allocator finds the lowest free range. So the buffers of each map have the same place, if all earlier
 * maps have returned their memory. In a job of one node no peer delays the return. */
static int memory_is_returned(struct remo_node *node, void *ctx) {
    uint64_t first = 0, offset = 0;
    (void)ctx;
    for (uint32_t i = 0; i < 3; i++) {
        if (use_map(node, &offset) != 0)
            return 1;
        first = i == 0 ? offset : first;
        CHECK_EQUAL(offset, first);
    }
    return 0;
}

static void setup(void) {
    memset(shared, 0, sizeof *shared);
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(released_by_change, NODES, .op_timeout_ns = 10 * SECOND, .only_on = "ofi"),
        CLUSTER_TEST(released_by_other_calls, NODES, .only_on = "ofi"),
        CLUSTER_TEST(memory_is_returned, 1, .only_on = "ofi"),
        {0},
    };
    shared = cluster_shared(sizeof *shared);
    return cluster_main(argc, argv, tests, setup);
}
