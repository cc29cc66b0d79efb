/* test_kv_slots.c - slots and index entries that only a record removes: an insert that is not sent, a lost
 * record, the scan that reclaims slots, deferred records, and stale entries beside those of other keys. */
#include "kv_common.h"
#include "kv_internal.h"

/* ---- an insert that is not sent ---- */

/* Its slot is free at once, and its key is absent and not locked. */
static int unsent(struct remo_node *node, void *ctx) {
    struct remo_kv *kv;
    uint64_t key = 1, value = 2;
    (void)ctx;
    CHECK(kv_open_small(node, &kv) == 0);
    struct remo__kv_thread *mine = remo__kv_thread(kv);
    uint32_t free_count = remo__kv_pool_free(&kv->pool);
    struct remo_kv_op op = kv_op_of(REMO_KV_INSERT, &key, &value);
    uint64_t hash = remo__kv_hash(&key, sizeof key);
    struct remo__kv_op_state *state = remo__kv_op_state(&op);
    *state = (struct remo__kv_op_state){.owner = mine, .hash = hash};
    CHECK_OK(remo__kv_lock(kv, mine, hash, 100 * SECOND));
    CHECK_CODE(remo__kv_change(kv, mine, &op), -EINPROGRESS);
    CHECK_EQUAL(remo__kv_pool_free(&kv->pool), free_count - 1);
    mine->to_send_count--;
    state->outcome = -ETIMEDOUT;
    CHECK_CODE(remo__kv_change_finish(kv, &op), -ETIMEDOUT);
    CHECK_EQUAL(remo__kv_pool_free(&kv->pool), free_count);
    CHECK_CODE(remo_kv_get(kv, &key, sizeof key, &value, sizeof value, NULL), -ENOENT);
    CHECK_OK(remo_kv_insert(kv, &key, sizeof key, &value, sizeof value));
    remo_kv_close(kv);
    return 0;
}

/* ---- a slot whose record was lost ---- */

/* The slot is freed only with a record for all nodes, so not while there is no room to defer it. */
static int stale_slot(struct remo_node *node, void *ctx) {
    struct remo_kv *kv;
    uint64_t key = 1, value = 2, hash = remo__kv_hash(&key, sizeof key);
    (void)ctx;
    CHECK(kv_open_small(node, &kv) == 0);
    CHECK_OK(remo_kv_insert(kv, &key, sizeof key, &value, sizeof value));
    struct remo__kv_cursor cursor = remo__kv_index_seek(&kv->index, hash);
    uint64_t entry = remo__kv_index_first(&kv->index, &cursor);
    uint32_t free_count = remo__kv_pool_free(&kv->pool);
    CHECK_OK(remo__mutex_lock(kv->node, &kv->send_mutex, REMO_FOREVER));
    kv->deferred_count = REMO__KV_DEFERRED_MAX;
    CHECK(!remo__kv_free_stale(kv, hash, entry));
    CHECK_EQUAL(remo__kv_pool_free(&kv->pool), free_count);
    CHECK_EQUAL(remo_kv_count(kv), 1);
    kv->deferred_count = 0;
    CHECK(remo__kv_free_stale(kv, hash, entry));
    CHECK(!remo__kv_free_stale(kv, hash, entry));
    CHECK_EQUAL(kv->deferred_count, 1);
    CHECK_EQUAL(remo__kv_pool_free(&kv->pool), free_count + 1);
    CHECK_EQUAL(remo_kv_count(kv), 0);
    remo__kv_send_deferred(kv);
    CHECK_EQUAL(kv->deferred_count, 0);
    remo__mutex_unlock(kv->node, &kv->send_mutex);
    CHECK_EQUAL(remo__kv_pool_free(&kv->pool), free_count + 1);
    remo_kv_close(kv);
    return 0;
}

/* Make a slot of this node DELETED, with an entry that no record removes. */
static int add_deleted(struct remo_kv *kv, uint64_t key, uint32_t slot) {
    char *at = kv->own + remo__kv_slot_at(kv, slot);
    uint64_t hash = remo__kv_hash(&key, sizeof key);
    remo__store(at, remo__kv_head_make(1, sizeof key, REMO__KV_DELETED));
    remo__store(at + 8, key);
    CHECK_OK(remo__kv_index_add(&kv->index, hash, remo__kv_entry_make(hash, kv->rank, slot, 1)));
    return 0;
}

/* A scan that has no room for a record does not count as one. After a scan that finds nothing, a bounded
 * number of further ones finds a slot, without a pause. The peer opens no map, so no record is sent. */
static int reclaims(struct remo_node *node, void *ctx) {
    enum { CAPACITY = 1000, SCANS = 20 };
    struct remo_kv *kv;
    struct remo_kv_options options = {.capacity = CAPACITY, .key_bytes_max = 8, .value_bytes_max = 8};
    (void)ctx;
    if (remo_node_rank(node) != 0)
        return cluster_meet();
    node->op_timeout_ns = SECOND / 10; /* of the close */
    CHECK_OK(remo_kv_open(remo_node_root(node), "kv", &options, &kv));
    CHECK(kv->slots_per_node < SCANS * 64);
    CHECK_OK(remo__mutex_lock(node, &kv->index_mutex, REMO_FOREVER));
    while (remo__kv_pool_take(&kv->pool) != REMO__KV_NO_SLOT)
        ;
    remo__mutex_unlock(node, &kv->index_mutex);
    CHECK(add_deleted(kv, 1, kv->slots_per_node - 1) == 0);
    CHECK_OK(remo__mutex_lock(node, &kv->send_mutex, REMO_FOREVER));
    kv->deferred_count = REMO__KV_DEFERRED_MAX;
    remo__mutex_unlock(node, &kv->send_mutex);
    remo__kv_reclaim(kv);
    CHECK_EQUAL(remo__kv_pool_free(&kv->pool), 0);
    CHECK_OK(remo__mutex_lock(node, &kv->send_mutex, REMO_FOREVER));
    kv->deferred_count = 0;
    remo__mutex_unlock(node, &kv->send_mutex);
    remo__kv_reclaim(kv);
    CHECK_EQUAL(remo__kv_pool_free(&kv->pool), 1);
    CHECK(add_deleted(kv, 2, kv->slots_per_node - 2) == 0);
    for (uint32_t scans = 0; scans < SCANS && remo__kv_pool_free(&kv->pool) == 1; scans++)
        remo__kv_reclaim(kv);
    CHECK_EQUAL(remo__kv_pool_free(&kv->pool), 2);
    remo_kv_close(kv);
    return cluster_meet();
}

/* Inserts of a window find no free slot. On a network, workers scan the slots on their small stacks. */
static int full_window(struct remo_node *node, void *ctx) {
    enum { WINDOW = 4 };
    struct remo_kv *kv;
    struct remo_kv_options options = {.capacity = 10, .value_bytes_max = 8};
    struct remo_kv_op ops[WINDOW];
    uint64_t keys[WINDOW], key = 0;
    (void)ctx;
    if (kv_open(node, &options, &kv) != 0)
        return 1;
    for (; remo_node_rank(node) == 0 && remo__kv_pool_free(&kv->pool) > 0; key++)
        CHECK_OK(remo_kv_insert(kv, &key, sizeof key, &key, sizeof key));
    for (uint32_t i = 0; i < WINDOW && remo_node_rank(node) == 0; i++) {
        struct remo__kv_cursor cursor =
            remo__kv_index_seek(&kv->index, remo__kv_hash(&(uint64_t){i}, sizeof key));
        char *slot =
            kv->own + remo__kv_slot_at(kv, remo__kv_entry_slot(remo__kv_index_first(&kv->index, &cursor)));
        remo__store(slot, remo__kv_head_with(remo__load(slot), REMO__KV_DELETED));
        keys[i] = key + i;
        ops[i] = kv_op_of(REMO_KV_INSERT, &keys[i], &keys[i]);
        CHECK_OK(remo_kv_start(kv, &ops[i]));
    }
    for (uint32_t i = 0; i < WINDOW && remo_node_rank(node) == 0; i++)
        CHECK_OK(remo_kv_wait(kv, &ops[i]));
    CHECK_OK(cluster_meet());
    remo_kv_close(kv);
    return cluster_meet();
}

/* ---- deferred records ---- */

/* Node 1 deletes a key, and its record is deferred. It makes no further change, but its service thread sends
 * the record. */
static int deferred(struct remo_node *node, void *ctx) {
    struct remo_kv *kv;
    uint64_t key = 1, hash = remo__kv_hash(&key, sizeof key);
    (void)ctx;
    CHECK(kv_open_small(node, &kv) == 0);
    if (remo_node_rank(node) == 0)
        CHECK_OK(remo_kv_insert(kv, &key, sizeof key, &key, sizeof key));
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 1) {
        struct remo__kv_cursor cursor = remo__kv_index_seek(&kv->index, hash);
        uint64_t entry = remo__kv_index_first(&kv->index, &cursor);
        const struct remo__kv_record record = {
            .hash = hash, .entry = (entry & ~(UINT64_C(0xffff) << 48)) | REMO__KV_RECORD_REMOVE << 48};
        remo__kv_defer_record(kv, &record);
    }
    CHECK(kv_wait_for_count(kv, 0) == 0);
    CHECK_OK(cluster_meet());
    remo_kv_close(kv);
    return 0;
}

/* ---- stale entries of other keys with the same fingerprint ---- */

#define NEIGHBOUR_KEYS (REMO__KV_LINE_ENTRIES + 1)

/* Return key number `n` whose entry belongs into the line. */
static uint64_t key_of_line(const struct remo_kv *kv, uint32_t line, uint32_t n) {
    for (uint64_t key = 1;; key++) {
        uint64_t hash = remo__kv_index_hash(kv, remo__kv_hash(&key, sizeof key));
        if (remo__kv_index_line_of(&kv->index, hash) == line && n-- == 0)
            return key;
    }
}

/* Set the head of the slot of `key`, which is on this node. */
static int set_head(struct remo_kv *kv, uint64_t key, uint32_t generation, enum remo__kv_state state) {
    struct remo__kv_cursor cursor =
        remo__kv_index_seek(&kv->index, remo__kv_index_hash(kv, remo__kv_hash(&key, sizeof key)));
    for (uint64_t entry; (entry = remo__kv_index_next(&kv->index, &cursor)) != 0;) {
        char *slot = kv->own + remo__kv_slot_at(kv, remo__kv_entry_slot(entry));
        if (remo__load(slot + 8) != key)
            continue;
        remo__store(slot, remo__kv_head_make(generation, sizeof key, state));
        return 0;
    }
    return 1;
}

/* All fingerprints are equal. A line is full, and one of its keys is in the next line. There a search for an
 * absent key of the first line meets the entry of a neighbour, whose slot is deleted, or has another
 * generation. Afterwards all keys of the line are still found. */
static int neighbour(struct remo_node *node, uint32_t searcher, uint32_t generation) {
    struct remo_kv *kv;
    uint32_t rank = remo_node_rank(node);
    uint64_t value;
    if (kv_open_small(node, &kv) != 0)
        return 1;
    remo__kv_set_hash_mask(kv, ~UINT64_C(0xffff));
    CHECK_OK(cluster_meet());
    uint64_t stale = key_of_line(kv, 2, 0), absent = key_of_line(kv, 1, NEIGHBOUR_KEYS);
    if (rank == 0) {
        CHECK_OK(remo_kv_insert(kv, &stale, sizeof stale, &stale, sizeof stale));
        for (uint32_t i = 0; i < NEIGHBOUR_KEYS; i++) {
            uint64_t key = key_of_line(kv, 1, i);
            CHECK_OK(remo_kv_insert(kv, &key, sizeof key, &key, sizeof key));
        }
        CHECK(set_head(kv, stale, generation, REMO__KV_DELETED) == 0);
    }
    CHECK_OK(cluster_meet());
    if (rank == searcher)
        CHECK_CODE(remo_kv_delete(kv, &absent, sizeof absent), -ENOENT);
    for (uint32_t i = 0; i < NEIGHBOUR_KEYS; i++) {
        uint64_t key = key_of_line(kv, 1, i);
        CHECK_OK(remo_kv_get(kv, &key, sizeof key, &value, sizeof value, NULL));
    }
    if (rank == searcher) /* a record of the node of the slot removes the entry */
        CHECK_EQUAL(remo_kv_count(kv), NEIGHBOUR_KEYS + (searcher != 0));
    CHECK_OK(cluster_meet());
    if (rank == 0)
        CHECK_OK(remo_kv_insert(kv, &absent, sizeof absent, &value, sizeof value));
    CHECK_OK(cluster_meet());
    for (uint32_t i = 0; i <= NEIGHBOUR_KEYS; i++) {
        uint64_t key = key_of_line(kv, 1, i);
        CHECK_OK(remo_kv_get(kv, &key, sizeof key, &value, sizeof value, NULL));
    }
    CHECK_OK(cluster_meet());
    remo_kv_close(kv);
    return cluster_meet();
}

static int neighbours(struct remo_node *node, void *ctx) {
    (void)ctx;
    int rc = neighbour(node, 0, 1);
    rc = rc ? rc : neighbour(node, 1, 1);
    return rc ? rc : neighbour(node, 1, 2);
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(unsent, 1),
        CLUSTER_TEST(stale_slot, 1),
        CLUSTER_TEST(reclaims, 2),
        CLUSTER_TEST(full_window, 2),
        CLUSTER_TEST(deferred, 2),
        CLUSTER_TEST(neighbours, 2),
        {0},
    };
    return cluster_main(argc, argv, tests, NULL);
}
