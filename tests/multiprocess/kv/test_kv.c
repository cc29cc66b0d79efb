/* test_kv.c - tests of the calls of the map: results, costs, sizes, keys with equal hashes, reuse of slots,
 * and slots that a failed node left. */
#include "../../support/job.h"
#include "systems/kv/kv.h"
#include "kv_common.h"

/* ---- results ---- */

static int results(struct remo_node *node, void *ctx) {
    (void)ctx;
    struct remo_kv *kv;
    struct remo_kv_options options = {.capacity = 100, .key_bytes_max = 16, .value_bytes_max = 32};
    uint32_t rank = remo_node_rank(node), size = remo_node_size(node);
    char value[64];
    size_t bytes = 77;
    if (kv_open(node, &options, &kv) != 0)
        return 1;
    /* One node after the other, so that each one changes slots of all nodes. */
    for (uint32_t turn = 0; turn < size; turn++) {
        CHECK_OK(cluster_meet());
        if (turn != rank)
            continue;
        CHECK_CODE(remo_kv_get(kv, "key", 3, value, sizeof value, &bytes), -ENOENT);
        CHECK_EQUAL(bytes, 77);
        CHECK_CODE(remo_kv_update(kv, "key", 3, "x", 1), -ENOENT);
        CHECK_CODE(remo_kv_delete(kv, "key", 3), -ENOENT);
        CHECK_OK(remo_kv_insert(kv, "key", 3, "value", 5));
        CHECK_CODE(remo_kv_insert(kv, "key", 3, "other", 5), -EEXIST);
        CHECK_OK(remo_kv_get(kv, "key", 3, value, sizeof value, &bytes));
        CHECK(bytes == 5 && memcmp(value, "value", 5) == 0);
        CHECK_OK(remo_kv_update(kv, "key", 3, "longer than before", 18));
        CHECK_OK(remo_kv_get(kv, "key", 3, value, sizeof value, &bytes));
        CHECK(bytes == 18 && memcmp(value, "longer than before", 18) == 0);
        CHECK_CODE(remo_kv_get(kv, "key", 3, value, 17, &bytes), -EMSGSIZE);
        CHECK_EQUAL(bytes, 18);
        CHECK_OK(remo_kv_update(kv, "key", 3, NULL, 0));
        CHECK_OK(remo_kv_get(kv, "key", 3, NULL, 0, &bytes));
        CHECK_EQUAL(bytes, 0);
        CHECK_CODE(remo_kv_get(kv, "ke", 2, value, sizeof value, NULL), -ENOENT);
        CHECK_CODE(remo_kv_get(kv, "key\0", 4, value, sizeof value, NULL), -ENOENT);
        CHECK_OK(remo_kv_delete(kv, "key", 3));
        CHECK_CODE(remo_kv_delete(kv, "key", 3), -ENOENT);
        CHECK_CODE(remo_kv_get(kv, "key", 3, value, sizeof value, &bytes), -ENOENT);
        CHECK_OK(remo_kv_insert(kv, "key", 3, "again", 5));
        CHECK_OK(remo_kv_delete(kv, "key", 3));
    }
    CHECK_OK(cluster_meet());
    CHECK_SENTENCE(remo_kv_get(kv, "", 0, value, 1, NULL), -EINVAL, "empty");
    CHECK_SENTENCE(remo_kv_insert(kv, NULL, 3, value, 1), -EINVAL, "empty");
    CHECK_SENTENCE(remo_kv_get(kv, "12345678901234567", 17, value, 1, NULL), -EMSGSIZE, "key_bytes_max = 16");
    CHECK_SENTENCE(remo_kv_insert(kv, "12345678901234567", 17, value, 1), -EMSGSIZE, "key_bytes_max = 16");
    CHECK_SENTENCE(remo_kv_insert(kv, "k", 1, value, 33), -EMSGSIZE, "value_bytes_max = 32");
    CHECK_SENTENCE(remo_kv_update(kv, "k", 1, value, 33), -EMSGSIZE, "value_bytes_max = 32");
    CHECK_SENTENCE(remo_kv_insert(kv, "k", 1, NULL, 3), -EINVAL, "value");
    CHECK_OK(cluster_meet());
    remo_kv_close(kv);
    return 0;
}

/* ---- costs ---- */

/* Wait until this node has counted its replies to the inserts of a peer. An insert returns earlier, when they
 * have arrived. */
static void await_tracker_acks(struct remo_kv *kv, uint64_t inserts) {
    struct remo_stats stats;
    remo_channel_stats(remo_kv_channel(kv), &stats);
    while (stats.writes < inserts) { /* ends at the timeout of the test */
        cluster_sleep_ms(1);
        remo_channel_stats(remo_kv_channel(kv), &stats);
    }
}

/* Costs of a key whose slot is on the other node, and of keys whose fingerprint no other key has. */
static int costs(struct remo_node *node, void *ctx) {
    (void)ctx;
    struct remo_kv *kv;
    struct remo_kv_options options = {.capacity = 1000, .key_bytes_max = 8, .value_bytes_max = 8};
    uint32_t rank = remo_node_rank(node), others = remo_node_size(node) - 1;
    uint64_t value = 0;
    if (kv_open(node, &options, &kv) != 0)
        return 1;
    struct remo_channel *channel = remo_kv_channel(kv);
    if (rank == 1)
        CHECK_OK(remo_kv_insert(kv, "theirs", 6, "12345678", 8));
    CHECK_OK(cluster_meet());
    if (rank != 1)
        await_tracker_acks(kv, 1);
    if (rank == 0) {
        CHECK_COST(channel, CHECK_OK(remo_kv_get(kv, "theirs", 6, &value, 8, NULL)), 1, 0, 0, 0);
        CHECK_COST(channel, CHECK_CODE(remo_kv_get(kv, "nobody's", 8, &value, 8, NULL), -ENOENT), 0, 0, 0, 0);
        CHECK_COST(channel, CHECK_OK(remo_kv_update(kv, "theirs", 6, "87654321", 8)), 1, 1, 2, 0);
        CHECK_COST(channel, CHECK_CODE(remo_kv_update(kv, "nobody's", 8, "x", 1), -ENOENT), 0, 0, 2, 0);
        CHECK_COST(channel, CHECK_OK(remo_kv_insert(kv, "ours", 4, "1", 1)), 0, others, 2, others);
        CHECK_COST(channel, CHECK_CODE(remo_kv_insert(kv, "ours", 4, "1", 1), -EEXIST), 1, 0, 2, 0);
        CHECK_COST(channel, CHECK_OK(remo_kv_get(kv, "ours", 4, &value, 8, NULL)), 1, 0, 0, 0);
        CHECK_COST(channel, CHECK_OK(remo_kv_delete(kv, "theirs", 6)), 1, 1 + others, 2, others);
        CHECK_COST(channel, CHECK_OK(remo_kv_delete(kv, "ours", 4)), 1, 1 + others, 2, others);
        CHECK_COST(channel, CHECK_CODE(remo_kv_get(kv, "ours", 4, &value, 8, NULL), -ENOENT), 0, 0, 0, 0);
    }
    CHECK_OK(cluster_meet());
    remo_kv_close(kv);
    return 0;
}

/* Slots that are larger than the node's buffers. */
static int costs_of_large(struct remo_node *node, void *ctx) {
    (void)ctx;
    enum { BYTES = 20000 };
    struct remo_kv *kv;
    struct remo_kv_options options = {
        .capacity = 20, .key_bytes_max = 8, .value_bytes_max = BYTES, .stripes = 8};
    uint32_t rank = remo_node_rank(node);
    unsigned char *value = calloc(1, BYTES);
    if (kv_open(node, &options, &kv) != 0)
        return 1;
    struct remo_channel *channel = remo_kv_channel(kv);
    kv_value_make(value, BYTES, 5, 1);
    if (rank == 1)
        CHECK_OK(remo_kv_insert(kv, "theirs", 6, value, BYTES));
    CHECK_OK(cluster_meet());
    if (rank == 0) {
        uint64_t number;
        await_tracker_acks(kv, 1);
        CHECK_COST(channel, CHECK_OK(remo_kv_get(kv, "theirs", 6, value, BYTES, NULL)), 1, 0, 0, 0);
        CHECK(kv_value_check(value, BYTES, 5, &number) && number == 1);
        kv_value_make(value, BYTES, 5, 2);
        CHECK_COST(channel, CHECK_OK(remo_kv_update(kv, "theirs", 6, value, BYTES)), 1, 1, 2, 0);
        CHECK_COST(channel, CHECK_OK(remo_kv_get(kv, "theirs", 6, value, BYTES, NULL)), 1, 0, 0, 0);
        CHECK(kv_value_check(value, BYTES, 5, &number) && number == 2);
    }
    CHECK_OK(cluster_meet());
    free(value);
    remo_kv_close(kv);
    return 0;
}

/* A window of gets costs one read for each get. */
static int window_costs(struct remo_node *node, void *ctx) {
    (void)ctx;
    enum { KEYS = 100 };
    struct remo_kv *kv;
    struct remo_kv_options options = {.capacity = 1000, .key_bytes_max = 8, .value_bytes_max = 8};
    struct remo_kv_op op[KEYS];
    uint64_t key[KEYS], value[KEYS];
    uint32_t rank = remo_node_rank(node);
    if (kv_open(node, &options, &kv) != 0)
        return 1;
    for (uint64_t i = 0; i < KEYS; i++) {
        key[i] = i;
        op[i] = (struct remo_kv_op){
            .kind = REMO_KV_GET, .key = &key[i], .key_bytes = 8, .value = &value[i], .value_bytes = 8};
        if (rank == 1)
            CHECK_OK(remo_kv_insert(kv, &i, 8, &i, 8));
    }
    CHECK_OK(cluster_meet());
    if (rank == 0) {
        struct remo_stats before, after;
        await_tracker_acks(kv, KEYS);
        remo_channel_stats(remo_kv_channel(kv), &before);
        for (uint32_t i = 0; i < KEYS; i++)
            CHECK_OK(remo_kv_start(kv, &op[i]));
        int left = KEYS;
        while (left > 0) {
            left = remo_kv_poll(kv);
            CHECK(left >= 0);
        }
        remo_channel_stats(remo_kv_channel(kv), &after);
        CHECK_EQUAL(after.reads - before.reads, KEYS);
        CHECK_EQUAL(after.writes - before.writes + after.atomics - before.atomics, 0);
        for (uint32_t i = 0; i < KEYS; i++) {
            CHECK_CODE(op[i].status, 0);
            CHECK_EQUAL(value[i], i);
        }
    }
    CHECK_OK(cluster_meet());
    remo_kv_close(kv);
    return 0;
}

/* ---- sizes ---- */

static uint32_t next_size(uint32_t size, uint32_t max) {
    if (size == 0)
        return 1;
    return size < max && size * 9 > max ? max : size * 9;
}

static int sizes_up_to(struct remo_node *node, uint32_t key_max, uint32_t value_max) {
    struct remo_kv *kv;
    struct remo_kv_options options = {
        .capacity = 64, .key_bytes_max = key_max, .value_bytes_max = value_max, .stripes = 16};
    uint32_t rank = remo_node_rank(node), size = remo_node_size(node);
    unsigned char *key = calloc(1, key_max), *value = malloc(value_max), *found = malloc(value_max);
    if (kv_open(node, &options, &kv) != 0)
        return 1;
    for (uint32_t k = 1; k <= key_max; k = k < key_max && k * 7 > key_max ? key_max : k * 7) {
        memset(key, (int)(k + rank), k);
        for (uint32_t v = 0; v <= value_max; v = next_size(v, value_max)) {
            size_t bytes;
            for (uint32_t i = 0; i < v; i++)
                value[i] = (unsigned char)(i * 31 + v + rank);
            CHECK_OK(remo_kv_insert(kv, key, k, value, v));
            CHECK_OK(remo_kv_get(kv, key, k, found, value_max, &bytes));
            CHECK(bytes == v && memcmp(value, found, v) == 0);
            CHECK_OK(remo_kv_update(kv, key, k, value, value_max - v));
            CHECK_OK(cluster_meet());
            unsigned char theirs = (unsigned char)(k + (rank + 1) % size);
            memset(key, theirs, k);
            CHECK_OK(remo_kv_get(kv, key, k, found, value_max, &bytes));
            CHECK_EQUAL(bytes, value_max - v);
            for (uint32_t i = 0; i < bytes && i < v; i++)
                CHECK_EQUAL(found[i], (unsigned char)(i * 31 + v + (rank + 1) % size));
            CHECK_OK(cluster_meet());
            CHECK_OK(remo_kv_delete(kv, key, k));
            memset(key, (int)(k + rank), k);
            CHECK_OK(cluster_meet());
        }
    }
    if (kv_wait_for_count(kv, 0) != 0)
        return 1;
    free(key);
    free(value);
    free(found);
    CHECK_OK(cluster_meet());
    remo_kv_close(kv);
    return cluster_meet();
}

static int sizes(struct remo_node *node, void *ctx) {
    (void)ctx;
    int rc = sizes_up_to(node, 8, 8);
    rc = rc ? rc : sizes_up_to(node, 1, 1);
    rc = rc ? rc : sizes_up_to(node, 100, 1000);
    return rc ? rc : sizes_up_to(node, 65535, 100000);
}

/* ---- keys with equal hashes ---- */

/* All keys have the same hash in the index, so only the key in the slot distinguishes them. */
static int collisions(struct remo_node *node, void *ctx) {
    (void)ctx;
    enum { KEYS = 60 };
    struct remo_kv *kv;
    struct remo_kv_options options = {.capacity = 1000, .key_bytes_max = 8, .value_bytes_max = 8};
    uint32_t rank = remo_node_rank(node), size = remo_node_size(node);
    if (kv_open(node, &options, &kv) != 0)
        return 1;
    remo__kv_set_hash_mask(kv, 0);
    CHECK_OK(cluster_meet());
    for (uint64_t i = rank; i < KEYS; i += size)
        CHECK_OK(remo_kv_insert(kv, &i, 8, &i, 8));
    CHECK_OK(cluster_meet());
    for (uint64_t i = rank; i < KEYS; i += size)
        CHECK_CODE(remo_kv_insert(kv, &i, 8, &i, 8), -EEXIST);
    for (uint64_t i = 0; i < KEYS; i++) {
        uint64_t value = 0, absent = KEYS + i;
        CHECK_OK(remo_kv_get(kv, &i, 8, &value, 8, NULL));
        CHECK_EQUAL(value, i);
        CHECK_CODE(remo_kv_get(kv, &absent, 8, &value, 8, NULL), -ENOENT);
    }
    CHECK_OK(cluster_meet());
    for (uint64_t i = (rank + 1) % size; i < KEYS; i += 2 * size)
        CHECK_OK(remo_kv_delete(kv, &i, 8));
    for (uint64_t i = (rank + 1) % size + size; i < KEYS; i += 2 * size) {
        uint64_t value = ~i;
        CHECK_OK(remo_kv_update(kv, &i, 8, &value, 8));
    }
    CHECK_OK(cluster_meet());
    for (uint64_t i = 0; i < KEYS; i++) {
        uint64_t value = 0;
        bool deleted = i / size % 2 == 0;
        CHECK_CODE(remo_kv_get(kv, &i, 8, &value, 8, NULL), deleted ? -ENOENT : 0);
        CHECK(deleted || value == ~i);
    }
    CHECK_OK(cluster_meet());
    remo_kv_close(kv);
    return 0;
}

/* ---- reuse of slots ---- */

/* The slots are full; another node deletes one key, and this node inserts one, hundreds of times. */
static int reuse(struct remo_node *node, void *ctx) {
    (void)ctx;
    enum { KEYS = 40, LAPS = 400 };
    struct remo_kv *kv;
    struct remo_kv_options options = {
        .capacity = KEYS, .key_bytes_max = 8, .value_bytes_max = 8, .stripes = 8};
    uint32_t rank = remo_node_rank(node), size = remo_node_size(node);
    uint64_t share = (KEYS + size - 1) / size, slots = share + share / 10 + 1, first = (uint64_t)rank << 32,
             count = slots;
    if (kv_open(node, &options, &kv) != 0)
        return 1;
    for (uint64_t i = 0; i < slots; i++) {
        uint64_t key = first + i;
        CHECK_OK(remo_kv_insert(kv, &key, 8, &key, 8));
    }
    uint64_t one_more = first + slots;
    CHECK_SENTENCE(remo_kv_insert(kv, &one_more, 8, &one_more, 8), -ENOSPC, "capacity");
    CHECK_OK(cluster_meet());
    CHECK_EQUAL(remo_kv_count(kv), slots * size);
    CHECK_OK(cluster_meet());
    for (uint64_t lap = 0; lap < LAPS; lap++, count++) {
        uint64_t victim = ((uint64_t)((rank + 1) % size) << 32) + lap, fresh = first + count, value;
        CHECK_OK(remo_kv_delete(kv, &victim, 8));
        CHECK_CODE(remo_kv_get(kv, &victim, 8, &value, 8, NULL), -ENOENT);
        CHECK_OK(cluster_meet());
        int rc = remo_kv_insert(kv, &fresh, 8, &fresh, 8);
        /* The owner of the slot may not have applied the delete yet. */
        for (uint32_t i = 0; i < 1000 && rc == -ENOSPC; i++) {
            cluster_sleep_ms(1);
            rc = remo_kv_insert(kv, &fresh, 8, &fresh, 8);
        }
        CHECK_OK(rc);
        CHECK_OK(cluster_meet());
        uint64_t theirs = ((uint64_t)((rank + 1) % size) << 32) + count;
        CHECK_OK(remo_kv_get(kv, &theirs, 8, &value, 8, NULL));
        CHECK_EQUAL(value, theirs);
    }
    if (kv_wait_for_count(kv, slots * size) != 0)
        return 1;
    CHECK_OK(cluster_meet());
    remo_kv_close(kv);
    return 0;
}

/* ---- changes that a failed node left unfinished ---- */

/* Lock the stripe of a key and find the key, as a change does. */
static int lock_and_find(struct remo_kv *kv, uint64_t key, struct remo__kv_location *ret_place,
                         uint32_t *ret_stripe) {
    struct remo__kv_key wanted_key = {.bytes = &key, .bytes_count = 8, .hash = remo__kv_hash(&key, 8)};
    *ret_stripe = remo__kv_stripe_of(kv, wanted_key.hash);
    CHECK_OK(remo_lock_acquire(kv->locks, *ret_stripe, 100 * SECOND));
    CHECK_OK(remo__kv_find_locked(kv, remo__kv_thread(kv), &wanted_key, ret_place));
    return 0;
}

static uint64_t slot_offset(const struct remo_kv *kv, const struct remo__kv_location *place) {
    return remo__kv_slot_at(kv, remo__kv_entry_slot(place->entry));
}

/* A delete has marked the slot, and sent no record: the key is absent on all nodes, and the owner of the slot
 * reclaims it when it needs one. */
static int unfinished_delete(struct remo_node *node, void *ctx) {
    (void)ctx;
    enum { SLOTS = 12 };
    struct remo_kv *kv;
    struct remo_kv_options options = {.capacity = 30, .key_bytes_max = 8, .value_bytes_max = 8, .stripes = 8};
    uint32_t rank = remo_node_rank(node), stripe;
    uint64_t value;
    if (kv_open(node, &options, &kv) != 0)
        return 1;
    for (uint64_t key = 0; rank == 0 && key < SLOTS; key++)
        CHECK_OK(remo_kv_insert(kv, &key, 8, &key, 8));
    CHECK_OK(cluster_meet());
    uint64_t victim = 3, more[] = {100, 101};
    if (rank == 1) {
        struct remo__kv_location place;
        if (lock_and_find(kv, victim, &place, &stripe) != 0)
            return 1;
        uint64_t head = remo__kv_head_with(place.snapshot.head, REMO__KV_DELETED);
        CHECK_OK(remo_region_write(kv->slots, 0, slot_offset(kv, &place), &head, 8, 0, NULL));
        CHECK_OK(remo_lock_release(kv->locks, stripe, REMO_FENCE_THREAD));
    }
    CHECK_OK(cluster_meet());
    CHECK_CODE(remo_kv_get(kv, &victim, 8, &value, 8, NULL), -ENOENT);
    if (rank == 0) {
        CHECK_OK(remo_kv_insert(kv, &more[0], 8, &more[0], 8));
        CHECK_CODE(remo_kv_insert(kv, &more[1], 8, &more[1], 8), -ENOSPC);
    }
    CHECK_OK(cluster_meet());
    if (rank == 2) {
        CHECK_CODE(remo_kv_update(kv, &victim, 8, &value, 8), -ENOENT);
        CHECK_CODE(remo_kv_delete(kv, &victim, 8), -ENOENT);
        CHECK_OK(remo_kv_insert(kv, &victim, 8, &victim, 8));
        CHECK_EQUAL(remo_kv_count(kv), SLOTS + 1);
    }
    CHECK_OK(cluster_meet());
    CHECK_OK(remo_kv_get(kv, &victim, 8, &value, 8, NULL));
    CHECK_EQUAL(value, victim);
    CHECK_OK(remo_kv_get(kv, &more[0], 8, &value, 8, NULL));
    CHECK_EQUAL(value, more[0]);
    CHECK_OK(cluster_meet());
    remo_kv_close(kv);
    return 0;
}

/* An update has written two of the three words of a copy: gets return the old value, at the cost of a second
 * read. The next update overwrites the torn copy. */
static int unfinished_update(struct remo_node *node, void *ctx) {
    (void)ctx;
    struct remo_kv *kv;
    struct remo_kv_options options = {.capacity = 30, .key_bytes_max = 8, .value_bytes_max = 8, .stripes = 8};
    uint32_t rank = remo_node_rank(node), stripe;
    uint64_t key = 7, value = 0, old = 41, new = 42;
    if (kv_open(node, &options, &kv) != 0)
        return 1;
    struct remo_channel *channel = remo_kv_channel(kv);
    if (rank == 0)
        CHECK_OK(remo_kv_insert(kv, &key, 8, &old, 8));
    CHECK_OK(cluster_meet());
    if (rank == 1) {
        struct remo__kv_location place;
        char image[64];
        if (lock_and_find(kv, key, &place, &stripe) != 0)
            return 1;
        uint64_t meta = remo__kv_meta_make(remo__kv_meta_version(place.snapshot.meta) + 1, 8);
        remo__kv_copy_build(image, place.snapshot.head, remo__kv_hash(&key, 8), meta, &new);
        uint64_t at = slot_offset(kv, &place) + remo__kv_copy_at(&kv->shape, place.snapshot.copy ^ 1);
        CHECK_OK(remo_region_write(kv->slots, 0, at, image, 16, 0, NULL));
        CHECK_OK(remo_lock_release(kv->locks, stripe, REMO_FENCE_THREAD));
    }
    CHECK_OK(cluster_meet());
    CHECK_COST(channel, CHECK_OK(remo_kv_get(kv, &key, 8, &value, 8, NULL)), 2, 0, 0, 0);
    CHECK_EQUAL(value, old);
    struct remo_kv_op op = {
        .kind = REMO_KV_GET, .key = &key, .key_bytes = 8, .value = &value, .value_bytes = 8};
    CHECK_OK(remo_kv_start(kv, &op));
    CHECK_COST(channel, CHECK_OK(remo_kv_wait(kv, &op)), 2, 0, 0, 0);
    CHECK_EQUAL(value, old);
    CHECK_OK(cluster_meet());
    if (rank == 2)
        CHECK_COST(channel, CHECK_OK(remo_kv_update(kv, &key, 8, &new, 8)), 1, 1, 2, 0);
    CHECK_OK(cluster_meet());
    CHECK_COST(channel, CHECK_OK(remo_kv_get(kv, &key, 8, &value, 8, NULL)), 1, 0, 0, 0);
    CHECK_EQUAL(value, new);
    CHECK_OK(cluster_meet());
    remo_kv_close(kv);
    return 0;
}

/* ---- opening ---- */

static int mismatch(struct remo_node *node, void *ctx) {
    (void)ctx;
    struct remo_kv *kv;
    struct remo_kv_options options = {.capacity = 100, .value_bytes_max = remo_node_rank(node) == 0 ? 8 : 16};
    CHECK_OK(remo_kv_open(remo_node_root(node), "map", &options, &kv));
    CHECK_SENTENCE(remo_channel_wait(remo_kv_channel(kv), 100 * SECOND), -EPROTO, "map");
    CHECK_OK(cluster_meet());
    remo_kv_close(kv);
    options = (struct remo_kv_options){.key_bytes_max = 70000};
    CHECK_SENTENCE(remo_kv_open(remo_node_root(node), "keys", &options, &kv), -EINVAL, "key_bytes_max");
    options = (struct remo_kv_options){.value_bytes_max = 1u << 24};
    CHECK_SENTENCE(remo_kv_open(remo_node_root(node), "values", &options, &kv), -EINVAL, "value_bytes_max");
    options = (struct remo_kv_options){.capacity = 1ull << 50};
    CHECK_SENTENCE(remo_kv_open(remo_node_root(node), "many", &options, &kv), -EINVAL, "capacity");
    CHECK_SENTENCE(remo_kv_open(remo_node_root(node), "no/name", NULL, &kv), -EINVAL, "no/name");
    CHECK_OK(cluster_meet());
    return 0;
}

/* The arena has room for the 5 slots of the map, 4 MiB each, but not for the buffers of a thread. A mapped
 * fabric needs no buffers. */
static int full_arena(struct remo_node *node, void *ctx) {
    const struct remo_config config = {.arena_bytes = 32u << 20};
    const struct remo_kv_options options = {.capacity = 4, .value_bytes_max = 2u << 20};
    bool is_mapped = strcmp(remo_node_fabric(node), "shm") == 0;
    struct remo_node *small;
    struct remo_kv *kv;
    struct job job;
    (void)ctx;
    CHECK_OK(job_make(&job, 1));
    CHECK_OK(job_open(&job, 0, remo_node_fabric(node), &config, &small));
    CHECK_OK(remo_kv_open(remo_node_root(small), "map", &options, &kv));
    CHECK_SENTENCE(remo_kv_get(kv, "key", 3, NULL, 0, NULL), is_mapped ? -ENOENT : -ENOSPC,
                   is_mapped ? "key" : "raise arena_bytes");
    remo_kv_close(kv);
    remo_node_close(small);
    job_remove(&job);
    return 0;
}

/* A single node, with default options. */
static int alone(struct remo_node *node, void *ctx) {
    (void)ctx;
    struct remo_kv *kv;
    if (kv_open(node, NULL, &kv) != 0)
        return 1;
    for (uint64_t i = 0; i < 10000; i++)
        CHECK_OK(remo_kv_insert(kv, &i, 8, &i, 8));
    CHECK_EQUAL(remo_kv_count(kv), 10000);
    for (uint64_t i = 0; i < 10000; i++) {
        uint64_t value;
        CHECK_OK(remo_kv_get(kv, &i, 8, &value, 8, NULL));
        CHECK_EQUAL(value, i);
        CHECK_OK(remo_kv_delete(kv, &i, 8));
    }
    CHECK_EQUAL(remo_kv_count(kv), 0);
    remo_kv_close(kv);
    return 0;
}

/* ---- after the failure of a node ---- */

enum { KEYS_EACH = 60 };

/* Change a key that is not on the failed node 2: the change fails if the key's lock is there. */
static int change_survivor(struct remo_kv *kv, uint64_t id) {
    uint32_t stripe = remo__kv_stripe_of(kv, remo__kv_hash(&id, sizeof id));
    uint64_t value = 0, fresh = id;
    if (remo_lock_home(kv->locks, stripe) != 2) {
        CHECK_OK(remo_kv_update(kv, &id, sizeof id, &fresh, sizeof fresh));
        CHECK_OK(remo_kv_delete(kv, &id, sizeof id));
        CHECK_CODE(remo_kv_get(kv, &id, sizeof id, &value, sizeof value, NULL), -ENOENT);
        CHECK_OK(remo_kv_insert(kv, &id, sizeof id, &fresh, sizeof fresh));
    } else {
        CHECK_SENTENCE(remo_kv_update(kv, &id, sizeof id, &fresh, sizeof fresh), -EHOSTDOWN, "node 2");
        CHECK_CODE(remo_kv_delete(kv, &id, sizeof id), -EHOSTDOWN);
        CHECK_CODE(remo_kv_insert(kv, &id, sizeof id, &fresh, sizeof fresh), -EHOSTDOWN);
    }
    CHECK_OK(remo_kv_get(kv, &id, sizeof id, &value, sizeof value, NULL));
    CHECK_EQUAL(value, id);
    return 0;
}

/* All keys on surviving nodes can be read. All can be changed, except those whose lock was on the failed
 * node. */
static int survivors(struct remo_node *node, void *ctx) {
    (void)ctx;
    struct remo_kv *kv;
    uint32_t rank = remo_node_rank(node);
    uint64_t lost_key = 2 * KEYS_EACH, value;
    int rc = 0;
    if (kv_open(node, NULL, &kv) != 0)
        return 1;
    for (uint64_t id = rank * KEYS_EACH; id < (rank + 1) * KEYS_EACH; id++)
        CHECK_OK(remo_kv_insert(kv, &id, sizeof id, &id, sizeof id));
    CHECK_OK(cluster_meet());
    if (rank == 2) {
        cluster_expect_death();
        cluster_meet(); /* does not return: the node is killed */
        return 1;
    }
    if (rank == 0)
        CHECK_OK(cluster_kill(2));
    while ((rc = remo_kv_get(kv, &lost_key, sizeof lost_key, &value, sizeof value, NULL)) == 0)
        CHECK_EQUAL(value, lost_key);
    CHECK_CODE(rc, -EHOSTDOWN);
    for (uint64_t id = rank * KEYS_EACH; id < (rank + 1) * KEYS_EACH; id++)
        if (change_survivor(kv, id) != 0)
            return 1;
    CHECK_OK(cluster_meet());
    for (uint64_t id = 0; id < 2 * KEYS_EACH; id++) {
        CHECK_OK(remo_kv_get(kv, &id, sizeof id, &value, sizeof value, NULL));
        CHECK_EQUAL(value, id);
    }
    CHECK_OK(cluster_meet());
    remo_kv_close(kv);
    return 0;
}

/* ---- many nodes ---- */

static uint32_t count_channels(const struct remo_channel *channel) {
    uint32_t count = 1;
    for (const struct remo_channel *child = channel->first_child; child; child = child->next_sibling)
        count += count_channels(child);
    return count;
}

/* The channels of a map and the room for records of peers do not grow with the number of nodes. */
static int channels(struct remo_node *node, void *ctx) {
    struct remo_kv *kv;
    struct remo_kv_options options = {.capacity = 100, .key_bytes_max = 8, .value_bytes_max = 8};
    (void)ctx;
    if (kv_open(node, &options, &kv) != 0)
        return 1;
    CHECK_EQUAL(count_channels(kv->channel), 4); /* itself, slots, locks, trackers */
    CHECK_EQUAL(count_channels(remo_rpc_channel(kv->trackers)), 1);
    CHECK(kv->messages_max * remo_node_size(node) <= REMO__KV_MESSAGES_OF_ALL);
    CHECK_OK(cluster_meet());
    remo_kv_close(kv);
    return 0;
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(alone, 1),
        CLUSTER_TEST(channels, 3),
        CLUSTER_TEST_NAMED("channels of 12 threads", channels, 12, .as_threads = 1),
        CLUSTER_TEST(results, 3),
        CLUSTER_TEST(costs, 2),
        CLUSTER_TEST_NAMED("costs of four", costs, 4),
        CLUSTER_TEST(costs_of_large, 2),
        CLUSTER_TEST(window_costs, 2),
        CLUSTER_TEST(sizes, 2),
        CLUSTER_TEST(collisions, 3),
        CLUSTER_TEST(reuse, 3),
        CLUSTER_TEST(unfinished_delete, 3),
        CLUSTER_TEST(unfinished_update, 3),
        CLUSTER_TEST(mismatch, 2),
        CLUSTER_TEST(full_arena, 1),
        CLUSTER_TEST(survivors, 3),
        {0},
    };
    return cluster_main(argc, argv, tests, NULL);
}
