/* test_kv_merge.c - updates of one key that a window holds together: on a network they are merged. The merged
 * updates have the result of one, and none of them takes effect before it starts. */
#include "kv_common.h"
#include "kv_internal.h"

/* A window of updates of one key takes the operations of one update on a network. All of them start before a
 * worker begins, so the last one wins. */
static int merged(struct remo_node *node, void *ctx) {
    enum { WINDOW = 8 };
    struct remo_kv *kv;
    struct remo_kv_op ops[WINDOW];
    struct remo_stats before, after;
    uint64_t key = 1, values[WINDOW], value = 0;
    (void)ctx;
    CHECK(kv_open_small(node, &kv) == 0);
    if (remo_node_rank(node) == 0)
        CHECK_OK(remo_kv_insert(kv, &key, sizeof key, &value, sizeof value));
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 1) {
        CHECK_OK(remo_kv_update(kv, &key, sizeof key, &value, sizeof value)); /* connects */
        remo_channel_stats(remo_kv_channel(kv), &before);
        for (uint32_t i = 0; i < WINDOW; i++) {
            values[i] = i + 1;
            ops[i] = kv_op_of(REMO_KV_UPDATE, &key, &values[i]);
            CHECK_OK(remo_kv_start(kv, &ops[i]));
        }
        for (uint32_t i = 0; i < WINDOW; i++)
            CHECK_OK(remo_kv_wait(kv, &ops[i]));
        remo_channel_stats(remo_kv_channel(kv), &after);
        CHECK_EQUAL(after.reads - before.reads, 1);
        CHECK(after.writes - before.writes <= 2); /* the reply to the insert may be counted only now */
        CHECK_EQUAL(after.atomics - before.atomics, 2);
        CHECK_OK(remo_kv_get(kv, &key, sizeof key, &value, sizeof value, NULL));
        CHECK_EQUAL(value, WINDOW);
    }
    CHECK_OK(cluster_meet());
    remo_kv_close(kv);
    return cluster_meet();
}

/* Merged updates of an absent key have the error of the one into which they are merged. */
static int merged_absent(struct remo_node *node, void *ctx) {
    enum { WINDOW = 4 };
    struct remo_kv *kv;
    struct remo_kv_op ops[WINDOW];
    uint64_t key = 1;
    (void)ctx;
    CHECK(kv_open_small(node, &kv) == 0);
    for (uint32_t i = 0; i < WINDOW; i++) {
        ops[i] = kv_op_of(REMO_KV_UPDATE, &key, &key);
        CHECK_OK(remo_kv_start(kv, &ops[i]));
    }
    for (uint32_t i = 0; i < WINDOW; i++)
        CHECK_SENTENCE(remo_kv_wait(kv, &ops[i]), -ENOENT, "key");
    CHECK_EQUAL(remo_kv_poll(kv), 0);
    CHECK_OK(cluster_meet());
    remo_kv_close(kv);
    return cluster_meet();
}

/* Advance an update of an absent key until its worker has found no slot, and waits for the release of the
 * lock, whose home is node 0. */
static int advance_to_release(struct remo_kv *kv, struct remo_kv_op *op) {
    struct remo_stats before, after;
    remo_channel_stats(remo_kv_channel(kv), &before);
    CHECK_OK(remo_kv_start(kv, op));
    do {
        (void)remo_kv_poll(kv);
        remo_channel_stats(remo_kv_channel(kv), &after);
    } while (after.atomics < before.atomics + 2);
    return 0;
}

/* Wait until node 1 has released the lock of the key, without a ticket: a grant would need a poll there. */
static int await_release(struct remo_kv *kv, uint64_t key) {
    int rc;
    while ((rc = remo_lock_acquire(kv->locks, kv_stripe_of(kv, key), 0)) == -ETIMEDOUT)
        cluster_sleep_ms(1);
    CHECK_OK(rc);
    CHECK_OK(remo_lock_release(kv->locks, kv_stripe_of(kv, key), REMO_FENCE_NONE));
    return 0;
}

/* An update finds no slot. While it releases the lock, node 0 inserts the key. An update that starts after
 * the insert is not merged into the first one. */
static int merged_late(struct remo_node *node, void *ctx) {
    struct remo_kv *kv;
    uint64_t key = 1;
    (void)ctx;
    CHECK(kv_open_small(node, &kv) == 0);
    while (remo_lock_home(kv->locks, kv_stripe_of(kv, key)) != 0)
        key++;
    struct remo_kv_op early = kv_op_of(REMO_KV_UPDATE, &key, &key), late = early;
    if (remo_node_rank(node) == 1) {
        CHECK_CODE(remo_kv_update(kv, &key, sizeof key, &key, sizeof key), -ENOENT); /* connects */
        CHECK(advance_to_release(kv, &early) == 0);
    }
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 0) {
        CHECK(await_release(kv, key) == 0);
        CHECK_OK(remo_kv_insert(kv, &key, sizeof key, &key, sizeof key));
    }
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 1) {
        CHECK_OK(remo_kv_start(kv, &late));
        CHECK_CODE(remo_kv_wait(kv, &early), -ENOENT);
        CHECK_OK(remo_kv_wait(kv, &late));
    }
    CHECK_OK(cluster_meet());
    remo_kv_close(kv);
    return cluster_meet();
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(merged, 2, .only_on = "ofi"),
        CLUSTER_TEST(merged_absent, 2),
        CLUSTER_TEST(merged_late, 2, .only_on = "ofi"),
        {0},
    };
    return cluster_main(argc, argv, tests, NULL);
}
