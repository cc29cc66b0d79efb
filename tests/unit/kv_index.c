/* kv_index.c - unit tests of the map's index and its list of free slots, without a network.
 * After any sequence of changes, exactly the present entries are found. */
#include "systems/kv/index.h"
#include "systems/kv/pool.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/random.h"
#include "unit.h"

static bool finds(const struct remo__kv_index *index, uint64_t hash, uint64_t entry) {
    struct remo__kv_cursor cursor = remo__kv_index_seek(index, hash);
    for (uint64_t found; (found = remo__kv_index_next(index, &cursor)) != 0;)
        if (found == entry)
            return true;
    return false;
}

static uint64_t sum_displaced_counts(const struct remo__kv_index *index) {
    uint64_t sum = 0;
    for (uint64_t i = 0; i < index->lines_count; i++)
        sum += index->lines[i].displaced_count;
    return sum;
}

static void test_entry(void **state) {
    (void)state;
    uint64_t entry = remo__kv_entry_make(0xabcd1234, 255, REMO__KV_SLOTS_MAX - 1, 0xfffff);
    assert_int_equal(remo__kv_entry_fingerprint(entry), 0x1234);
    assert_int_equal(remo__kv_entry_node(entry), 255);
    assert_int_equal(remo__kv_entry_slot(entry), REMO__KV_SLOTS_MAX - 1);
    assert_int_equal(remo__kv_entry_generation(entry), 0x3ff);
    entry = remo__kv_entry_make(0, 0, 0, 0);
    assert_int_not_equal(entry, 0);
    assert_int_equal(remo__kv_entry_fingerprint(entry), 1);
    assert_int_equal(remo__kv_entry_node(entry), 0);
    assert_int_equal(remo__kv_entry_slot(entry), 0);
}

static void test_add_remove(void **state) {
    (void)state;
    struct remo__kv_index index;
    assert_int_equal(remo__kv_index_open(&index, 1000), 0);
    enum { KEYS = 1000 };
    uint64_t hash[KEYS], entry[KEYS];
    for (uint32_t i = 0; i < KEYS; i++) {
        hash[i] = remo__random_mix(i);
        entry[i] = remo__kv_entry_make(hash[i], i % 4, i, i);
        assert_false(finds(&index, hash[i], entry[i]));
        assert_int_equal(remo__kv_index_add(&index, hash[i], entry[i]), 0);
    }
    assert_int_equal(remo__kv_index_count(&index), KEYS);
    for (uint32_t i = 0; i < KEYS; i++)
        assert_true(finds(&index, hash[i], entry[i]));
    for (uint32_t i = 0; i < KEYS; i += 2) {
        assert_true(remo__kv_index_remove(&index, hash[i], entry[i]));
        assert_false(remo__kv_index_remove(&index, hash[i], entry[i]));
    }
    for (uint32_t i = 0; i < KEYS; i++)
        assert_int_equal(finds(&index, hash[i], entry[i]), i % 2);
    for (uint32_t i = 1; i < KEYS; i += 2)
        assert_true(remo__kv_index_remove(&index, hash[i], entry[i]));
    assert_int_equal(remo__kv_index_count(&index), 0);
    assert_int_equal(sum_displaced_counts(&index), 0);
    remo__kv_index_close(&index);
}

/* All entries in one line and the lines after it, with duplicates, until the index is full. */
static void test_one_line_overflows(void **state) {
    (void)state;
    struct remo__kv_index index;
    assert_int_equal(remo__kv_index_open(&index, 100), 0);
    uint64_t hash = UINT64_MAX; /* the last line: searches go around the end */
    uint32_t count = 0;
    while (remo__kv_index_add(&index, hash, remo__kv_entry_make(hash, 1, count / 2, 7)) == 0)
        count++;
    assert_int_equal(count, index.lines_count * REMO__KV_LINE_ENTRIES);
    assert_true(count >= 100);
    struct remo__kv_cursor cursor = remo__kv_index_seek(&index, hash);
    uint32_t met = 0;
    while (remo__kv_index_next(&index, &cursor) != 0)
        met++;
    assert_int_equal(met, count);
    assert_int_equal(remo__kv_index_next(&index, &cursor), 0);
    assert_false(remo__kv_index_remove(&index, hash, remo__kv_entry_make(hash, 2, 0, 7)));
    for (uint32_t i = 0; i < count; i++)
        assert_true(remo__kv_index_remove(&index, hash, remo__kv_entry_make(hash, 1, i / 2, 7)));
    assert_int_equal(sum_displaced_counts(&index), 0);
    remo__kv_index_close(&index);
}

/* An entry that is discarded in a search for another hash hides no displaced entry of that hash. */
static void test_discard(void **state) {
    (void)state;
    struct remo__kv_index index;
    assert_int_equal(remo__kv_index_open(&index, 100), 0);
    uint64_t hash = 1, other = UINT64_MAX / index.lines_count + 2; /* of the next line */
    other = (other & ~UINT64_C(0xffff)) + 0x10001;                 /* the same fingerprint */
    assert_int_equal(remo__kv_index_line_of(&index, other), remo__kv_index_line_of(&index, hash) + 1);
    uint64_t stale = remo__kv_entry_make(other, 1, 1000, 7), last = 0;
    assert_int_equal(remo__kv_index_add(&index, other, stale), 0);
    for (uint32_t i = 0; i <= REMO__KV_LINE_ENTRIES; i++)
        assert_int_equal(remo__kv_index_add(&index, hash, last = remo__kv_entry_make(hash, 1, i, 7)), 0);
    assert_true(remo__kv_index_discard(&index, hash, stale));
    assert_false(remo__kv_index_discard(&index, hash, stale));
    assert_int_equal(remo__kv_index_count(&index), REMO__KV_LINE_ENTRIES + 1);
    assert_true(finds(&index, hash, last));
    assert_int_equal(sum_displaced_counts(&index), 1);
    remo__kv_index_close(&index);
}

/* Lines per search, times 100, over a sample of hashes. */
static uint64_t search_length(const struct remo__kv_index *index) {
    uint64_t lines = 0;
    for (uint64_t i = 0; i < 10000; i++) {
        struct remo__kv_cursor cursor = remo__kv_index_seek(index, remo__random_mix(~i));
        while (remo__kv_index_next(index, &cursor) != 0)
            ;
        lines += cursor.lines_visited;
    }
    return lines / 100;
}

/* Long sequences of insert and delete in a full table: searches stay short, and all counts return to 0. */
static void test_no_tombstones(void **state) {
    (void)state;
    enum { KEYS = 20000, ROUNDS = 2000000 };
    struct remo__kv_index index;
    assert_int_equal(remo__kv_index_open(&index, KEYS), 0);
    uint64_t *hash = calloc(KEYS, sizeof *hash);
    for (uint32_t i = 0; i < KEYS; i++) {
        hash[i] = remo__random_mix(i);
        assert_int_equal(remo__kv_index_add(&index, hash[i], remo__kv_entry_make(hash[i], 0, i, 0)), 0);
    }
    assert_true(search_length(&index) < 130);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        uint32_t slot = i % KEYS;
        assert_true(remo__kv_index_remove(&index, hash[slot], remo__kv_entry_make(hash[slot], 0, slot, 0)));
        hash[slot] = remo__random_mix(KEYS + i);
        assert_int_equal(remo__kv_index_add(&index, hash[slot], remo__kv_entry_make(hash[slot], 0, slot, 0)),
                         0);
    }
    assert_int_equal(remo__kv_index_count(&index), KEYS);
    assert_true(search_length(&index) < 200);
    for (uint32_t i = 0; i < KEYS; i++)
        assert_true(remo__kv_index_remove(&index, hash[i], remo__kv_entry_make(hash[i], 0, i, 0)));
    assert_int_equal(sum_displaced_counts(&index), 0);
    free(hash);
    remo__kv_index_close(&index);
}

struct churn {
    struct remo__kv_index index;
    _Atomic bool stop;
};

static void *churn_thread(void *arg) {
    struct churn *churn = arg;
    struct remo__random random;
    remo__random_seed(&random, 1);
    enum { SLOTS = 64 };
    uint64_t hash[SLOTS] = {0};
    while (!churn->stop) {
        uint32_t slot = (uint32_t)remo__random_below(&random, SLOTS);
        if (hash[slot] != 0) {
            remo__kv_index_remove(&churn->index, hash[slot], remo__kv_entry_make(hash[slot], 1, slot, 0));
            hash[slot] = 0;
        } else {
            hash[slot] = remo__random_next(&random);
            remo__kv_index_add(&churn->index, hash[slot], remo__kv_entry_make(hash[slot], 1, slot, 0));
        }
    }
    return NULL;
}

/* While other entries of the same lines are inserted and deleted, a permanent entry is always found. */
static void test_search_beside_changes(void **state) {
    (void)state;
    struct churn churn = {0};
    enum { STAY = 64 };
    assert_int_equal(remo__kv_index_open(&churn.index, 2 * STAY), 0);
    for (uint32_t i = 0; i < STAY; i++)
        remo__kv_index_add(&churn.index, remo__random_mix(i),
                           remo__kv_entry_make(remo__random_mix(i), 0, i, 0));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, churn_thread, &churn), 0);
    for (uint32_t round = 0; round < 20000; round++)
        for (uint32_t i = 0; i < STAY; i++)
            if (!finds(&churn.index, remo__random_mix(i), remo__kv_entry_make(remo__random_mix(i), 0, i, 0)))
                fail_msg("entry %u was not found in round %u", i, round);
    churn.stop = true;
    pthread_join(thread, NULL);
    remo__kv_index_close(&churn.index);
}

static void test_pool(void **state) {
    (void)state;
    struct remo__kv_pool pool;
    assert_int_equal(remo__kv_pool_open(&pool, 4, NULL), 0);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(remo__kv_pool_free(&pool), 4 - i);
        assert_int_equal(remo__kv_pool_take(&pool), i);
    }
    assert_int_equal(remo__kv_pool_take(&pool), REMO__KV_NO_SLOT);
    remo__kv_pool_give(&pool, 2);
    remo__kv_pool_give(&pool, 0);
    assert_int_equal(remo__kv_pool_free(&pool), 2);
    assert_int_equal(remo__kv_pool_take(&pool), 2);
    assert_int_equal(remo__kv_pool_take(&pool), 0);
    assert_int_equal(remo__kv_pool_take(&pool), REMO__KV_NO_SLOT);
    for (uint32_t i = 0; i < 100; i++) {
        remo__kv_pool_give(&pool, i % 4);
        remo__kv_pool_give(&pool, (i + 1) % 4);
        assert_int_equal(remo__kv_pool_take(&pool), i % 4);
        assert_int_equal(remo__kv_pool_take(&pool), (i + 1) % 4);
    }
    remo__kv_pool_close(&pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_entry),
        cmocka_unit_test(test_add_remove),
        cmocka_unit_test(test_one_line_overflows),
        cmocka_unit_test(test_discard),
        cmocka_unit_test(test_no_tombstones),
        cmocka_unit_test(test_search_beside_changes),
        cmocka_unit_test(test_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
