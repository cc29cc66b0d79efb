/* test_kv_changes.c - put, fetch_add and compare_put of the map, and its cursor: results, errors, costs, many
 * nodes at once, and the failure of a node. */
#include <pthread.h>

#include "systems/kv/kv.h"
#include "kv_common.h"

static int open_small(struct remo_node *node, struct remo_kv **ret_kv) {
    struct remo_kv_options options = {.capacity = 1000, .key_bytes_max = 16, .value_bytes_max = 32};
    return kv_open(node, &options, ret_kv);
}

/* ---- results ---- */

static int check_put(struct remo_kv *kv) {
    char value[64];
    size_t bytes;
    CHECK_OK(remo_kv_put(kv, "key", 3, "value", 5));
    CHECK_OK(remo_kv_get(kv, "key", 3, value, sizeof value, &bytes));
    CHECK(bytes == 5 && memcmp(value, "value", 5) == 0);
    CHECK_OK(remo_kv_put(kv, "key", 3, "another one", 11));
    CHECK_OK(remo_kv_get(kv, "key", 3, value, sizeof value, &bytes));
    CHECK(bytes == 11 && memcmp(value, "another one", 11) == 0);
    CHECK_OK(remo_kv_delete(kv, "key", 3));
    return 0;
}

static int check_compare_put(struct remo_kv *kv) {
    char value[64];
    size_t bytes;
    CHECK_CODE(remo_kv_compare_put(kv, "key", 3, "old", 3, "new", 3), -ENOENT);
    CHECK_OK(remo_kv_insert(kv, "key", 3, "old", 3));
    CHECK_SENTENCE(remo_kv_compare_put(kv, "key", 3, "ol", 2, "new", 3), -ESTALE, "not the expected one");
    CHECK_CODE(remo_kv_compare_put(kv, "key", 3, "olD", 3, "new", 3), -ESTALE);
    CHECK_CODE(remo_kv_compare_put(kv, "key", 3, "older", 5, "new", 3), -ESTALE);
    CHECK_CODE(remo_kv_compare_put(kv, "key", 3, NULL, 0, "new", 3), -ESTALE);
    CHECK_OK(remo_kv_compare_put(kv, "key", 3, "old", 3, "newer", 5));
    CHECK_OK(remo_kv_get(kv, "key", 3, value, sizeof value, &bytes));
    CHECK(bytes == 5 && memcmp(value, "newer", 5) == 0);
    CHECK_OK(remo_kv_compare_put(kv, "key", 3, "newer", 5, NULL, 0));
    CHECK_OK(remo_kv_compare_put(kv, "key", 3, NULL, 0, "last", 4));
    CHECK_OK(remo_kv_delete(kv, "key", 3));
    return 0;
}

static int check_fetch_add(struct remo_kv *kv) {
    uint64_t value = 41, old = 77;
    CHECK_CODE(remo_kv_fetch_add(kv, "key", 3, 1, &old), -ENOENT);
    CHECK_EQUAL(old, 77);
    CHECK_OK(remo_kv_insert(kv, "key", 3, &value, 8));
    CHECK_OK(remo_kv_fetch_add(kv, "key", 3, 1, &old));
    CHECK_EQUAL(old, 41);
    CHECK_OK(remo_kv_fetch_add(kv, "key", 3, (uint64_t)-2, NULL));
    CHECK_OK(remo_kv_get(kv, "key", 3, &value, 8, NULL));
    CHECK_EQUAL(value, 40);
    CHECK_OK(remo_kv_update(kv, "key", 3, "seven..", 7));
    CHECK_SENTENCE(remo_kv_fetch_add(kv, "key", 3, 1, &old), -EINVAL, "has 7 bytes");
    CHECK_EQUAL(old, 41);
    CHECK_OK(remo_kv_delete(kv, "key", 3));
    return 0;
}

/* Each node changes a key whose slot is at the node before. */
static int results(struct remo_node *node, void *ctx) {
    (void)ctx;
    struct remo_kv *kv;
    uint32_t rank = remo_node_rank(node), size = remo_node_size(node);
    if (open_small(node, &kv) != 0)
        return 1;
    for (uint32_t turn = 0; turn < size; turn++) {
        CHECK_OK(cluster_meet());
        if (turn == rank && (check_put(kv) || check_compare_put(kv) || check_fetch_add(kv)))
            return 1;
    }
    CHECK_OK(cluster_meet());
    remo_kv_close(kv);
    return 0;
}

static int bad_arguments(struct remo_node *node, void *ctx) {
    (void)ctx;
    struct remo_kv *kv;
    struct remo_kv_cursor cursor = REMO_KV_CURSOR_INIT;
    char value[64] = {0};
    uint64_t old;
    size_t bytes;
    if (open_small(node, &kv) != 0)
        return 1;
    CHECK_SENTENCE(remo_kv_put(kv, "", 0, value, 1), -EINVAL, "empty");
    CHECK_SENTENCE(remo_kv_put(kv, "k", 1, value, 33), -EMSGSIZE, "value_bytes_max = 32");
    CHECK_SENTENCE(remo_kv_put(kv, "k", 1, NULL, 3), -EINVAL, "value");
    CHECK_SENTENCE(remo_kv_fetch_add(kv, NULL, 1, 1, &old), -EINVAL, "empty");
    CHECK_SENTENCE(remo_kv_compare_put(kv, "k", 1, "", 0, value, 33), -EMSGSIZE, "value_bytes_max = 32");
    CHECK_SENTENCE(remo_kv_compare_put(kv, "k", 1, value, 33, "", 0), -EMSGSIZE, "value_bytes_max = 32");
    CHECK_SENTENCE(remo_kv_compare_put(kv, "k", 1, NULL, 3, "", 0), -EINVAL, "expected value is NULL");
    struct remo_kv_op op = {
        .kind = REMO_KV_FETCH_ADD, .key = "k", .key_bytes = 1, .value = &old, .value_bytes = 7};
    CHECK_SENTENCE(remo_kv_start(kv, &op), -EMSGSIZE, "8 bytes");
    CHECK_CODE(op.status, -EMSGSIZE);
    op.kind = (enum remo_kv_kind)77;
    CHECK_SENTENCE(remo_kv_start(kv, &op), -EINVAL, "kind 77");
    CHECK_SENTENCE(remo_kv_next(NULL, &cursor, value, 64, &bytes, NULL, 0, NULL), -EINVAL, "NULL");
    CHECK_SENTENCE(remo_kv_next(kv, NULL, value, 64, &bytes, NULL, 0, NULL), -EINVAL, "cursor");
    CHECK_SENTENCE(remo_kv_next(kv, &cursor, NULL, 64, &bytes, NULL, 0, NULL), -EINVAL, "key");
    CHECK_SENTENCE(remo_kv_next(kv, &cursor, value, 64, NULL, NULL, 0, NULL), -EINVAL, "ret_key_bytes");
    CHECK_SENTENCE(remo_kv_next(kv, &cursor, value, 64, &bytes, NULL, 9, NULL), -EINVAL, "value_cap");
    CHECK_OK(cluster_meet());
    remo_kv_close(kv);
    return 0;
}

/* ---- costs ---- */

/* An insert returns when the replies of all peers have arrived; each peer counts its reply afterwards. */
static void await_tracker_acks(struct remo_kv *kv, uint64_t inserts) {
    struct remo_stats stats;
    remo_channel_stats(remo_kv_channel(kv), &stats);
    while (stats.writes < inserts) { /* ends at the timeout of the test */
        cluster_sleep_ms(1);
        remo_channel_stats(remo_kv_channel(kv), &stats);
    }
}

static int costs(struct remo_node *node, void *ctx) {
    (void)ctx;
    struct remo_kv *kv;
    uint32_t rank = remo_node_rank(node), others = remo_node_size(node) - 1;
    uint64_t zero = 0, old;
    if (open_small(node, &kv) != 0)
        return 1;
    struct remo_channel *channel = remo_kv_channel(kv);
    if (rank == 1)
        CHECK_OK(remo_kv_insert(kv, "theirs", 6, &zero, 8));
    CHECK_OK(cluster_meet());
    if (rank != 1)
        await_tracker_acks(kv, 1);
    if (rank == 0) {
        CHECK_COST(channel, CHECK_OK(remo_kv_fetch_add(kv, "theirs", 6, 5, &old)), 1, 1, 2, 0);
        CHECK_COST(channel, CHECK_CODE(remo_kv_fetch_add(kv, "absent", 6, 5, &old), -ENOENT), 0, 0, 2, 0);
        CHECK_COST(channel, CHECK_CODE(remo_kv_compare_put(kv, "theirs", 6, "x", 1, "y", 1), -ESTALE), 1, 0,
                   2, 0);
        CHECK_COST(channel, CHECK_OK(remo_kv_compare_put(kv, "theirs", 6, "\5\0\0\0\0\0\0", 8, "y", 1)), 1, 1,
                   2, 0);
        CHECK_COST(channel, CHECK_CODE(remo_kv_fetch_add(kv, "theirs", 6, 5, &old), -EINVAL), 1, 0, 2, 0);
        CHECK_COST(channel, CHECK_OK(remo_kv_put(kv, "theirs", 6, "z", 1)), 1, 1, 2, 0);
        CHECK_COST(channel, CHECK_OK(remo_kv_put(kv, "ours", 4, "z", 1)), 0, others, 2, others);
    }
    CHECK_OK(cluster_meet());
    struct remo_kv_cursor cursor = REMO_KV_CURSOR_INIT;
    char key[16];
    size_t bytes;
    if (rank == 0) {
        CHECK_COST(channel, CHECK_OK(remo_kv_next(kv, &cursor, key, 16, &bytes, NULL, 0, NULL)), 1, 0, 0, 0);
        CHECK_COST(channel, CHECK_OK(remo_kv_next(kv, &cursor, key, 16, &bytes, NULL, 0, NULL)), 1, 0, 0, 0);
        CHECK_COST(channel, CHECK_CODE(remo_kv_next(kv, &cursor, key, 16, &bytes, NULL, 0, NULL), -ENOENT), 0,
                   0, 0, 0);
    }
    CHECK_OK(cluster_meet());
    remo_kv_close(kv);
    return 0;
}

/* ---- a window of each kind ---- */

static int windows(struct remo_node *node, void *ctx) {
    (void)ctx;
    enum { KEYS = 90 };
    struct remo_kv *kv;
    static struct remo_kv_op ops[KEYS];
    uint64_t key[KEYS], value[KEYS], found;
    if (open_small(node, &kv) != 0)
        return 1;
    if (remo_node_rank(node) == 0) {
        for (uint32_t lap = 0; lap < 2; lap++) { /* in the first lap puts insert, in the second they update */
            for (uint64_t i = 0; i < KEYS; i++) {
                key[i] = i;
                value[i] = lap == 0 ? 7 : i;
                ops[i] = (struct remo_kv_op){.kind = REMO_KV_PUT,
                                             .key = &key[i],
                                             .key_bytes = 8,
                                             .value = &value[i],
                                             .value_bytes = 8};
                CHECK_OK(remo_kv_start(kv, &ops[i]));
            }
            for (uint32_t i = 0; i < KEYS; i++)
                CHECK_OK(remo_kv_wait(kv, &ops[i]));
        }
        CHECK_EQUAL(remo_kv_count(kv), KEYS);
    }
    CHECK_OK(cluster_meet());
    uint64_t rank = remo_node_rank(node), size = remo_node_size(node), old[KEYS], new[KEYS];
    for (uint64_t i = rank; i < KEYS; i += size) {
        bool adds = i % 2 == 0;
        key[i] = value[i] = old[i] = i;
        new[i] = i + 100;
        ops[i] = (struct remo_kv_op){.kind = adds ? REMO_KV_FETCH_ADD : REMO_KV_COMPARE_PUT,
                                     .key = &key[i],
                                     .key_bytes = 8,
                                     .value = adds ? &old[i] : &new[i],
                                     .value_bytes = 8,
                                     .expected = &value[i],
                                     .expected_bytes = 8,
                                     .delta = 100};
        CHECK_OK(remo_kv_start(kv, &ops[i]));
    }
    for (uint64_t i = rank; i < KEYS; i += size) {
        CHECK_OK(remo_kv_wait(kv, &ops[i]));
        CHECK_EQUAL(old[i], i);
        CHECK_EQUAL(ops[i].value_bytes, 8);
    }
    CHECK_OK(cluster_meet());
    for (uint64_t i = 0; i < KEYS; i++) {
        CHECK_OK(remo_kv_get(kv, &i, 8, &found, 8, NULL));
        CHECK_EQUAL(found, i + 100);
    }
    CHECK_OK(cluster_meet());
    remo_kv_close(kv);
    return 0;
}

/* ---- all nodes at once ---- */

enum { LAPS = 300, THREADS = 2 };

struct adder {
    struct remo_kv *kv;
    int rc;
};

/* Add to one counter with fetch_add, and to the other with get and compare_put. */
static void *add(void *ctx) {
    struct adder *adder = ctx;
    for (uint32_t lap = 0; lap < LAPS && adder->rc == 0; lap++) {
        adder->rc = remo_kv_fetch_add(adder->kv, "added", 5, 1, NULL);
        for (int rc = -ESTALE; adder->rc == 0 && rc == -ESTALE;) {
            uint64_t old, next;
            rc = remo_kv_get(adder->kv, "compared", 8, &old, 8, NULL);
            next = old + 1;
            if (rc == 0)
                rc = remo_kv_compare_put(adder->kv, "compared", 8, &old, 8, &next, 8);
            adder->rc = rc == -ESTALE ? 0 : rc;
        }
    }
    return NULL;
}

static int counters(struct remo_node *node, void *ctx) {
    (void)ctx;
    struct remo_kv *kv;
    uint64_t value = 0;
    pthread_t threads[THREADS];
    struct adder adders[THREADS];
    if (open_small(node, &kv) != 0)
        return 1;
    /* One node inserts it, on the others it is present. */
    int rc = remo_kv_insert(kv, "added", 5, &value, 8);
    CHECK(rc == 0 || rc == -EEXIST);
    rc = remo_kv_insert(kv, "compared", 8, &value, 8);
    CHECK(rc == 0 || rc == -EEXIST);
    for (uint32_t i = 0; i < THREADS; i++) {
        adders[i] = (struct adder){.kv = kv};
        CHECK(pthread_create(&threads[i], NULL, add, &adders[i]) == 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
        CHECK_OK(adders[i].rc);
    }
    CHECK_OK(cluster_meet());
    CHECK_OK(remo_kv_get(kv, "added", 5, &value, 8, NULL));
    CHECK_EQUAL(value, (uint64_t)LAPS * THREADS * remo_node_size(node));
    CHECK_OK(remo_kv_get(kv, "compared", 8, &value, 8, NULL));
    CHECK_EQUAL(value, (uint64_t)LAPS * THREADS * remo_node_size(node));
    CHECK_OK(cluster_meet());
    remo_kv_close(kv);
    return 0;
}

/* ---- the cursor ---- */

/* Keys of 1 to 16 bytes and values of 0 to 32 bytes are computed from the number. */
static size_t make_key(unsigned char *key, uint64_t number) {
    size_t bytes = 2 + number % 15;
    memset(key, (int)(number * 7 + 1), bytes);
    key[0] = (unsigned char)number;
    key[1] = (unsigned char)(number >> 8);
    return bytes;
}

static size_t make_value(unsigned char *value, uint64_t number) {
    size_t bytes = number * 5 % 33;
    memset(value, (int)(number * 3 + 1), bytes);
    return bytes;
}

/* Visit all keys. Each of the numbers below `stay` is returned once, with its value; all others are in [stay,
 * below). */
static int visit_all(struct remo_kv *kv, uint32_t stay, uint32_t below, uint8_t *visits) {
    struct remo_kv_cursor cursor = REMO_KV_CURSOR_INIT;
    unsigned char key[16], value[32], expected_key[16], expected_value[32];
    size_t key_bytes, value_bytes;
    int rc;
    memset(visits, 0, below);
    while ((rc = remo_kv_next(kv, &cursor, key, sizeof key, &key_bytes, value, sizeof value, &value_bytes))
           == 0) {
        CHECK(key_bytes >= 2);
        uint64_t number = key[0] | (uint64_t)key[1] << 8;
        CHECK(number < below);
        CHECK(make_key(expected_key, number) == key_bytes && memcmp(key, expected_key, key_bytes) == 0);
        CHECK(make_value(expected_value, number) == value_bytes
              && memcmp(value, expected_value, value_bytes) == 0);
        CHECK(number >= stay || visits[number] == 0);
        visits[number] = 1;
    }
    CHECK_CODE(rc, -ENOENT);
    for (uint32_t number = 0; number < stay; number++)
        CHECK(visits[number]);
    CHECK_CODE(remo_kv_next(kv, &cursor, key, sizeof key, &key_bytes, NULL, 0, NULL), -ENOENT);
    return 0;
}

static int cursor_keys(struct remo_node *node, void *ctx) {
    (void)ctx;
    enum { KEYS = 400 };
    struct remo_kv *kv;
    static uint8_t visits[KEYS];
    unsigned char key[16], value[32];
    uint32_t rank = remo_node_rank(node), size = remo_node_size(node);
    if (open_small(node, &kv) != 0)
        return 1;
    if (visit_all(kv, 0, 0, visits))
        return 1;
    CHECK_OK(cluster_meet());
    for (uint64_t i = rank; i < KEYS; i += size)
        CHECK_OK(remo_kv_insert(kv, key, make_key(key, i), value, make_value(value, i)));
    CHECK_OK(cluster_meet());
    if (visit_all(kv, KEYS, KEYS, visits))
        return 1;
    CHECK_OK(cluster_meet());
    for (uint64_t i = KEYS / 2 + (rank + 1) % size; i < KEYS; i += size)
        CHECK_OK(remo_kv_delete(kv, key, make_key(key, i)));
    CHECK_OK(cluster_meet());
    /* No deleted key is returned, although this node may not have applied all deletes. */
    if (visit_all(kv, KEYS / 2, KEYS / 2, visits))
        return 1;
    CHECK_OK(cluster_meet());
    remo_kv_close(kv);
    return 0;
}

/* Buffers that are too small: the cursor stays at its place, and the error states the required length. */
static int cursor_small_buffers(struct remo_node *node, void *ctx) {
    (void)ctx;
    struct remo_kv *kv;
    struct remo_kv_cursor cursor = REMO_KV_CURSOR_INIT;
    char key[16], value[32];
    size_t key_bytes = 0, value_bytes = 0;
    if (open_small(node, &kv) != 0)
        return 1;
    if (remo_node_rank(node) == 0)
        CHECK_OK(remo_kv_insert(kv, "a longer key", 12, "a value", 7));
    CHECK_OK(cluster_meet());
    CHECK_SENTENCE(remo_kv_next(kv, &cursor, key, 11, &key_bytes, value, 32, &value_bytes), -EMSGSIZE, "12");
    CHECK_EQUAL(key_bytes, 12);
    CHECK_SENTENCE(remo_kv_next(kv, &cursor, key, 16, &key_bytes, value, 6, &value_bytes), -EMSGSIZE, "7");
    CHECK_EQUAL(value_bytes, 7);
    struct remo_kv_cursor keys_only = cursor;
    CHECK_OK(remo_kv_next(kv, &keys_only, key, 16, &key_bytes, NULL, 0, NULL));
    CHECK(key_bytes == 12 && memcmp(key, "a longer key", 12) == 0);
    CHECK_OK(remo_kv_next(kv, &cursor, key, 16, &key_bytes, value, 32, NULL));
    CHECK(memcmp(value, "a value", 7) == 0);
    CHECK_CODE(remo_kv_next(kv, &cursor, key, 16, &key_bytes, value, 32, &value_bytes), -ENOENT);
    CHECK_OK(cluster_meet());
    remo_kv_close(kv);
    return 0;
}

/* Mark the slot of a key DELETED, as a delete does whose node fails before it sends its record. */
static int mark_deleted(struct remo_kv *kv, uint64_t key) {
    struct remo__kv_key sought = {.bytes = &key, .bytes_count = 8, .hash = remo__kv_hash(&key, 8)};
    struct remo__kv_location place;
    uint32_t stripe = remo__kv_stripe_of(kv, sought.hash);
    CHECK_OK(remo_lock_acquire(kv->locks, stripe, 100 * SECOND));
    CHECK_OK(remo__kv_find_locked(kv, remo__kv_thread(kv), &sought, &place));
    uint64_t head = remo__kv_head_with(place.snapshot.head, REMO__KV_DELETED);
    CHECK_OK(remo_region_write(kv->slots, remo__kv_entry_node(place.entry),
                               remo__kv_slot_at(kv, remo__kv_entry_slot(place.entry)), &head, 8, 0, NULL));
    CHECK_OK(remo_lock_release(kv->locks, stripe, REMO_FENCE_THREAD));
    return 0;
}

/* Return the entry of a key. */
static uint64_t entry_of(const struct remo_kv *kv, uint64_t key) {
    struct remo__kv_cursor cursor = remo__kv_index_seek(&kv->index, remo__kv_hash(&key, 8));
    return remo__kv_index_first(&kv->index, &cursor);
}

/* A slot has a new key, although the record of the old key was lost. Its node has sent another record. Before
 * this record arrives, nodes have an entry of the old key: their cursors return the new key once. */
static int cursor_stale(struct remo_node *node, void *ctx) {
    (void)ctx;
    enum { SLOTS = 12 };
    struct remo_kv *kv;
    struct remo_kv_options options = {.capacity = 30, .key_bytes_max = 8, .value_bytes_max = 8, .stripes = 8};
    struct remo_kv_cursor cursor = REMO_KV_CURSOR_INIT;
    uint32_t rank = remo_node_rank(node), count = 0;
    uint64_t fresh = 100, lost = 3, key, visits = 0;
    size_t bytes;
    if (kv_open(node, &options, &kv) != 0)
        return 1;
    for (key = 0; rank == 0 && key < SLOTS; key++)
        CHECK_OK(remo_kv_insert(kv, &key, 8, &key, 8));
    CHECK_OK(cluster_meet());
    uint64_t stale = entry_of(kv, lost);
    if (rank == 1 && mark_deleted(kv, lost))
        return 1;
    CHECK_OK(cluster_meet());
    if (rank == 0)
        CHECK_OK(remo_kv_insert(kv, &fresh, 8, &fresh, 8));
    CHECK_OK(cluster_meet());
    CHECK_EQUAL(remo_kv_count(kv), SLOTS);
    if (rank != 0)
        CHECK_OK(remo__kv_index_add(&kv->index, remo__kv_hash(&lost, 8), stale));
    for (; remo_kv_next(kv, &cursor, &key, 8, &bytes, NULL, 0, NULL) == 0; count++)
        visits |= UINT64_C(1) << (key == fresh ? lost : key);
    CHECK_EQUAL(count, SLOTS);
    CHECK_EQUAL(visits, (UINT64_C(1) << SLOTS) - 1);
    CHECK_OK(cluster_meet());
    remo_kv_close(kv);
    return 0;
}

struct changes {
    _Atomic uint32_t cursors_running;  /* number of nodes with a running cursor */
    _Atomic bool is_held, is_released; /* the service thread of node 1 */
};
static struct changes *changes;

/* While two nodes visit all keys, other nodes insert and delete keys, whose slots are reused. No key that
 * stays is missed or returned twice. */
static int cursor_while_changing(struct remo_node *node, void *ctx) {
    (void)ctx;
    enum { STAY = 100, KEYS = 200, WALKS = 60 };
    struct remo_kv *kv;
    static uint8_t visits[KEYS];
    unsigned char key[16], value[32];
    uint32_t rank = remo_node_rank(node), size = remo_node_size(node);
    struct remo_kv_options options = {.capacity = KEYS, .key_bytes_max = 16, .value_bytes_max = 32};
    if (kv_open(node, &options, &kv) != 0)
        return 1;
    for (uint64_t i = rank; i < STAY; i += size)
        CHECK_OK(remo_kv_insert(kv, key, make_key(key, i), value, make_value(value, i)));
    if (rank < 2)
        atomic_fetch_add(&changes->cursors_running, 1);
    CHECK_OK(cluster_meet());
    for (uint32_t i = 0; rank < 2 && i < WALKS; i++)
        if (visit_all(kv, STAY, KEYS, visits))
            return 1;
    if (rank < 2)
        atomic_fetch_sub(&changes->cursors_running, 1);
    for (uint64_t lap = 0; rank >= 2 && atomic_load(&changes->cursors_running) > 0; lap++) {
        uint64_t i = STAY + lap % (KEYS - STAY);
        if (i % (size - 2) != rank - 2)
            continue;
        int rc = remo_kv_insert(kv, key, make_key(key, i), value, make_value(value, i));
        CHECK(rc == 0 || rc == -EEXIST || rc == -ENOSPC);
        uint64_t other = i >= STAY + 20 ? i - 20 : i + KEYS - STAY - 20;
        rc = remo_kv_delete(kv, key, make_key(key, other));
        CHECK(rc == 0 || rc == -ENOENT);
    }
    CHECK_OK(cluster_meet());
    remo_kv_close(kv);
    return 0;
}

/* The cursor returns an error for each key of the failed node, and all other keys. */
static int cursor_survivors(struct remo_node *node, void *ctx) {
    (void)ctx;
    enum { EACH = 40 };
    struct remo_kv *kv;
    struct remo_kv_cursor cursor = REMO_KV_CURSOR_INIT;
    uint64_t key, value, visits = 0, lost = 0;
    uint32_t rank = remo_node_rank(node);
    size_t bytes;
    int rc;
    if (open_small(node, &kv) != 0)
        return 1;
    for (uint64_t id = rank * EACH; id < (rank + 1) * EACH; id++)
        CHECK_OK(remo_kv_insert(kv, &id, 8, &id, 8));
    CHECK_OK(cluster_meet());
    if (rank == 2) {
        cluster_expect_death();
        cluster_meet(); /* does not return: the node is killed */
        return 1;
    }
    if (rank == 0)
        CHECK_OK(cluster_kill(2));
    cluster_await_cut_off(node, 2);
    while ((rc = remo_kv_next(kv, &cursor, &key, 8, &bytes, &value, 8, NULL)) != -ENOENT) {
        CHECK(rc == 0 || rc == -EHOSTDOWN);
        CHECK(rc != 0 || (bytes == 8 && key == value && key < 2 * EACH));
        visits += rc == 0;
        lost += rc != 0;
    }
    CHECK_EQUAL(visits, 2 * EACH);
    CHECK_EQUAL(lost, EACH);
    CHECK_OK(cluster_meet());
    remo_kv_close(kv);
    return 0;
}

/* ---- a thread that waits for acknowledgements serves peers ---- */

/* Hold the service thread. */
static void hold(void *ctx) {
    (void)ctx;
    atomic_store(&changes->is_held, true);
    while (!atomic_load(&changes->is_released))
        cluster_sleep_ms(1);
}

/* The service thread of node 1 is held. Its other thread acknowledges the inserts of node 0 while it waits
 * itself. */
static int waiters_acknowledge(struct remo_node *node, void *ctx) {
    (void)ctx;
    struct remo_kv *kv;
    struct remo_ringbuffer *ring;
    struct remo_ringbuffer_options options = {.on_arrival = hold};
    uint64_t rank = remo_node_rank(node);
    if (open_small(node, &kv) != 0)
        return 1;
    CHECK_OK(remo_ringbuffer_open(remo_node_root(node), "ring", &options, &ring));
    CHECK_OK(remo_channel_wait(remo_ringbuffer_channel(ring), 20 * SECOND));
    if (rank == 0)
        CHECK_OK(remo_ringbuffer_send(ring, "", 1, 20 * SECOND, NULL));
    while (!atomic_load(&changes->is_held))
        cluster_sleep_ms(1);
    CHECK_OK(cluster_meet());
    for (uint64_t id = 2; rank == 0 && id < 100; id++)
        CHECK_OK(remo_kv_insert(kv, &id, 8, &id, 8));
    if (rank == 0)
        atomic_store(&changes->is_released, true);
    while (!atomic_load(&changes->is_released)) {
        CHECK_OK(remo_kv_insert(kv, &rank, 8, &rank, 8));
        CHECK_OK(remo_kv_delete(kv, &rank, 8));
    }
    CHECK_OK(cluster_meet());
    remo_ringbuffer_close(ring);
    remo_kv_close(kv);
    return 0;
}

static void setup(void) {
    atomic_store(&changes->cursors_running, 0);
    atomic_store(&changes->is_held, false);
    atomic_store(&changes->is_released, false);
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(results, 3),
        CLUSTER_TEST(bad_arguments, 1),
        CLUSTER_TEST(costs, 2),
        CLUSTER_TEST_NAMED("costs of four", costs, 4),
        CLUSTER_TEST(windows, 3),
        CLUSTER_TEST(counters, 3),
        CLUSTER_TEST(cursor_keys, 3),
        CLUSTER_TEST(cursor_small_buffers, 2),
        CLUSTER_TEST(cursor_stale, 3),
        CLUSTER_TEST(cursor_while_changing, 4),
        CLUSTER_TEST(cursor_survivors, 3),
        CLUSTER_TEST(waiters_acknowledge, 2, .only_on = "shm"),
        {0},
    };
    changes = cluster_shared(sizeof *changes);
    return cluster_main(argc, argv, tests, setup);
}
