/* test_kv_release.c - a change whose write cannot be placed keeps its stripe locked, because the late write
 * could overwrite the change of another node: here the node that has the slot is paused. Other tests: if one
 * worker keeps a stripe, the window continues with others; a window continues if another one uses all shared
 * workers; a close returns the memory of the map, with the buffers that its threads have on networks. */
#include <errno.h>
#include <remo/task.h>
#include <string.h>

#include "../../support/turns.h"
#include "kv_internal.h"

#define NODES 3u
#define PAUSED 1u /* the node that holds the keys */
#define STRIPES 64u

static struct shared { struct turns turns; } * shared;

/* Return the first key from `from` on whose stripe has its lock at `home`. */
static uint64_t key_with_home(const struct remo_kv *kv, uint32_t home, uint64_t from) {
    while (remo_lock_home(kv->locks, kv_stripe_of(kv, from)) != home)
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

static void keep(struct remo_kv *kv, struct remo__kv_thread *mine, uint64_t key) {
    mine->is_kept = true;
    mine->kept_stripe = kv_stripe_of(kv, key);
    mine->kept_node = PAUSED;
    mine->kept_holder = mine->thread->holder;
    kv->kept_count++;
}

/* Produce the state after a change that timed out: the stripe is held, and a write is in flight. (A node that
 * pauses earlier does not answer the search, so the change ends before its write.) */
static int keep_stripe(struct remo_kv *kv, uint64_t key) {
    struct remo__kv_thread *mine = remo__kv_thread(kv);
    uint64_t nothing = 0, last_slot = remo__kv_slot_at(kv, kv->slots_per_node - 1);
    CHECK_OK(remo_region_write(kv->slots, PAUSED, last_slot, &nothing, sizeof nothing, 0, NULL));
    keep(kv, mine, key);
    return 0;
}

/* Changes of the thread time out until the node answers; the first one after that releases the stripe. */
static int change_while_paused(struct remo_kv *kv, uint64_t key, uint64_t other) {
    uint64_t value = 1;
    int rc;
    CHECK_OK(remo_kv_update(kv, &key, sizeof key, &value, sizeof value)); /* connects */
    CHECK_OK(remo_lock_acquire(kv->locks, kv_stripe_of(kv, key), 100 * SECOND));
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
    CHECK_EQUAL(kv->kept_count, 0);
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
        CHECK_CODE(remo_lock_acquire(kv->locks, kv_stripe_of(kv, key), 0), -ETIMEDOUT);
        begin_turn(&shared->turns, 2);
        CHECK_OK(reach_turn(&shared->turns, 3));
        CHECK_OK(remo_lock_acquire(kv->locks, kv_stripe_of(kv, key), 100 * SECOND));
        CHECK_OK(remo_lock_release(kv->locks, kv_stripe_of(kv, key), REMO_FENCE_NONE));
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
        CHECK_OK(remo_lock_acquire(kv->locks, kv_stripe_of(kv, key), 100 * SECOND));
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
        CHECK_EQUAL(kv->kept_count, 0);
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

/* ---- windows ---- */

/* A worker keeps a stripe. Other workers make the next changes, and a poll releases the stripe. */
static int change_beside_kept(struct remo_kv *kv, uint64_t key, uint64_t other) {
    uint64_t value = 1;
    struct remo_kv_op op = kv_op_of(REMO_KV_UPDATE, &other, &value);
    CHECK_OK(remo_kv_start(kv, &op));
    CHECK_OK(remo_kv_wait(kv, &op));
    struct remo__kv_thread *worker = remo__kv_thread(kv)->workers;
    CHECK(worker != NULL);
    CHECK_OK(remo_lock_acquire(kv->locks, kv_stripe_of(kv, key), 100 * SECOND));
    keep(kv, worker, key);
    worker->is_releasing = true; /* so that no poll releases the stripe yet */
    CHECK_OK(remo_kv_start(kv, &op));
    CHECK_OK(remo_kv_wait(kv, &op));
    CHECK(worker->is_kept);
    worker->is_releasing = false;
    while (worker->is_kept)
        CHECK_CODE(remo_kv_poll(kv), 0);
    CHECK_EQUAL(kv->kept_count, 0);
    return 0;
}

static int worker_keeps(struct remo_node *node, void *ctx) {
    struct remo_kv *kv;
    uint64_t key, other;
    (void)ctx;
    if (open_with_keys(node, &kv, &key, &other) != 0)
        return 1;
    if (remo_node_rank(node) == 0 && change_beside_kept(kv, key, other) != 0)
        return 1;
    CHECK_OK(cluster_meet());
    remo_kv_close(kv);
    return 0;
}

#define WINDOW (REMO__KV_WORKERS_MAX + 1)

static int insert_one(void *ctx) {
    uint64_t key = 1000000, value = 1;
    struct remo_kv_op op = kv_op_of(REMO_KV_INSERT, &key, &value);
    CHECK_OK(remo_kv_start(ctx, &op));
    CHECK_OK(remo_kv_wait(ctx, &op));
    return 0;
}

/* The thread does not poll the first window while its task waits for the second one. */
static int fill_workers(struct remo_node *node, struct remo_kv *kv) {
    static struct remo_kv_op ops[WINDOW];
    static uint64_t keys[WINDOW], value = 1;
    struct remo_scheduler *scheduler;
    remo_task_id id;
    int result = -1;
    for (uint64_t i = 0; i < WINDOW; i++) {
        keys[i] = i + 1;
        ops[i] = kv_op_of(REMO_KV_INSERT, &keys[i], &value);
        CHECK_OK(remo_kv_start(kv, &ops[i]));
    }
    CHECK(remo_kv_poll(kv) > 0);
    CHECK_OK(remo_scheduler_open(node, NULL, &scheduler));
    CHECK_OK(remo_task_spawn(scheduler, insert_one, kv, &id));
    CHECK_OK(remo_task_join(scheduler, id, REMO_FOREVER, &result));
    CHECK_CODE(result, 0);
    CHECK_OK(remo_scheduler_close(scheduler));
    for (uint64_t i = 0; i < WINDOW; i++)
        CHECK_OK(remo_kv_wait(kv, &ops[i]));
    return 0;
}

static int two_windows(struct remo_node *node, void *ctx) {
    struct remo_kv_options options = {.capacity = 1000, .value_bytes_max = 8};
    struct remo_kv *kv;
    (void)ctx;
    CHECK_OK(remo_kv_open(remo_node_root(node), "map", &options, &kv));
    CHECK_OK(remo_channel_wait(remo_kv_channel(kv), 100 * SECOND));
    if (remo_node_rank(node) == 0 && fill_workers(node, kv) != 0)
        return 1;
    CHECK_OK(cluster_meet());
    remo_kv_close(kv);
    return 0;
}

/* ---- the sentence of a change that fails while another task polls ---- */

static bool is_updated; /* the task that updates has ended */

static int update_absent(void *ctx) {
    uint64_t key = 1000000, value = 1;
    for (uint32_t i = 0; i < 300; i++) {
        struct remo_kv_op op = kv_op_of(REMO_KV_UPDATE, &key, &value);
        CHECK_OK(remo_kv_start(ctx, &op));
        CHECK_SENTENCE(remo_kv_wait(ctx, &op), -ENOENT, "key");
    }
    is_updated = true;
    return 0;
}

static int update_present(void *ctx) {
    uint64_t key = 1, value = 1;
    while (!is_updated) {
        struct remo_kv_op op = kv_op_of(REMO_KV_PUT, &key, &value);
        CHECK_OK(remo_kv_start(ctx, &op));
        CHECK_OK(remo_kv_wait(ctx, &op));
    }
    return 0;
}

static int update_beside(struct remo_node *node, struct remo_kv *kv) {
    struct remo_scheduler *scheduler;
    remo_task_id ids[2];
    int result = -1;
    CHECK_OK(remo_scheduler_open(node, NULL, &scheduler));
    CHECK_OK(remo_task_spawn(scheduler, update_absent, kv, &ids[0]));
    CHECK_OK(remo_task_spawn(scheduler, update_present, kv, &ids[1]));
    for (uint32_t i = 0; i < 2; i++) {
        CHECK_OK(remo_task_join(scheduler, ids[i], REMO_FOREVER, &result));
        is_updated = true; /* also if a check of the first has failed */
        CHECK_CODE(result, 0);
    }
    CHECK_OK(remo_scheduler_close(scheduler));
    return 0;
}

static int sentence_is_kept(struct remo_node *node, void *ctx) {
    struct remo_kv *kv;
    (void)ctx;
    if (open_map(node, &kv) != 0)
        return 1;
    if (remo_node_rank(node) == 0 && update_beside(node, kv) != 0)
        return 1;
    CHECK_OK(cluster_meet());
    remo_kv_close(kv);
    return 0;
}

/* ---- memory ---- */

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
        CLUSTER_TEST(worker_keeps, NODES, .only_on = "ofi"),
        CLUSTER_TEST(two_windows, 2, .op_timeout_ns = 100 * SECOND, .only_on = "ofi"),
        CLUSTER_TEST(sentence_is_kept, 2, .op_timeout_ns = 100 * SECOND, .only_on = "ofi"),
        CLUSTER_TEST(memory_is_returned, 1, .only_on = "ofi"),
        {0},
    };
    shared = cluster_shared(sizeof *shared);
    return cluster_main(argc, argv, tests, setup);
}
