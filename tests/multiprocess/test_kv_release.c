/* test_kv_release.c - a change whose write cannot be placed keeps its stripe locked: the write may arrive late,
 * and must not overwrite the change of another node. The node of the key is paused. */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "../support/cluster.h"
#include "kv/kv.h"

#define NODES 3u
#define PAUSED 1u /* node of the keys */
#define STRIPES 64u

static struct shared {
    _Atomic uint32_t turn; /* steps of a test that go one after the other */
    _Atomic pid_t pids[NODES];
} * shared;

/* Until `turn` is there. */
static int reach_turn(uint32_t turn) {
    while (atomic_load(&shared->turn) != turn)
        cluster_sleep_ms(1);
    return 0;
}

static uint32_t stripe_of(const struct remo_kv *kv, uint64_t key) {
    return remo__kv_stripe_of(kv, remo__kv_hash(&key, sizeof key));
}

/* A key whose stripe lives at `home`, not below `from`. */
static uint64_t key_with_home(const struct remo_kv *kv, uint32_t home, uint64_t from) {
    while (remo_lock_home(kv->locks, stripe_of(kv, from)) != home)
        from++;
    return from;
}

static int open_map(struct remo_node *node, struct remo_kv **ret_kv) {
    struct remo_kv_options options = {.capacity = 64, .value_bytes_max = 8, .stripes = STRIPES};
    CHECK_OK(remo_kv_open(remo_node_root(node), "map", &options, ret_kv));
    CHECK_OK(remo_channel_wait(remo_kv_channel(*ret_kv), 100 * SECOND));
    atomic_store(&shared->pids[remo_node_rank(node)], getpid());
    return cluster_meet();
}

/* What a change leaves that wrote and could not place it: the stripe is held, and a write is in flight. (A
 * node that pauses earlier answers no search, so the change ends before it writes.) */
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

/* The next change of the thread releases the stripe as soon as the node answers, and not before. */
static int change_in_vain(struct remo_kv *kv, uint64_t key, uint64_t other) {
    uint64_t value = 1;
    int rc;
    CHECK_OK(remo_kv_update(kv, &key, sizeof key, &value, sizeof value)); /* connects */
    CHECK_OK(remo_lock_acquire(kv->locks, stripe_of(kv, key), 100 * SECOND));
    kill(atomic_load(&shared->pids[PAUSED]), SIGSTOP);
    cluster_sleep_ms(20);
    if (keep_stripe(kv, key) != 0)
        return 1;
    CHECK_CODE(remo_kv_update(kv, &other, sizeof other, &value, sizeof value), -ETIMEDOUT);
    atomic_store(&shared->turn, 1);
    CHECK_OK(reach_turn(2));
    kill(atomic_load(&shared->pids[PAUSED]), SIGCONT);
    while ((rc = remo_kv_update(kv, &other, sizeof other, &value, sizeof value)) == -ETIMEDOUT)
        continue;
    CHECK_OK(rc);
    CHECK(!remo__kv_thread(kv)->is_kept);
    CHECK_EQUAL(remo__kv_thread(kv)->locks_held, 0);
    atomic_store(&shared->turn, 3);
    return 0;
}

/* Two keys on node PAUSED, whose stripes live at nodes 0 and 2. */
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

static int kept(struct remo_node *node, void *ctx) {
    struct remo_kv *kv;
    uint64_t key, other;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    if (open_with_keys(node, &kv, &key, &other) != 0)
        return 1;
    if (rank == 0 && change_in_vain(kv, key, other) != 0)
        return 1;
    if (rank == 2) {
        CHECK_OK(reach_turn(1));
        CHECK_CODE(remo_lock_acquire(kv->locks, stripe_of(kv, key), 0), -ETIMEDOUT);
        atomic_store(&shared->turn, 2);
        CHECK_OK(reach_turn(3));
        CHECK_OK(remo_lock_acquire(kv->locks, stripe_of(kv, key), 100 * SECOND));
        CHECK_OK(remo_lock_release(kv->locks, stripe_of(kv, key), REMO_FENCE_NONE));
    }
    CHECK_OK(cluster_meet());
    remo_kv_close(kv);
    return 0;
}

/* A thread that makes no more changes releases the stripe by another call. */
static int release_by_reads(struct remo_kv *kv, uint64_t key, uint64_t other) {
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

static int kept_then_read(struct remo_node *node, void *ctx) {
    struct remo_kv *kv;
    uint64_t key, other;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    if (open_with_keys(node, &kv, &key, &other) != 0)
        return 1;
    if (rank == 0 && release_by_reads(kv, key, other) != 0)
        return 1;
    CHECK_OK(cluster_meet());
    remo_kv_close(kv);
    return 0;
}

static void setup(void) {
    memset(shared, 0, sizeof *shared);
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(kept, NODES, .op_timeout_ns = 10 * SECOND, .only_on = "ofi"),
        CLUSTER_TEST(kept_then_read, NODES, .only_on = "ofi"),
        {0},
    };
    shared = cluster_shared(sizeof *shared);
    return cluster_main(argc, argv, tests, setup);
}
