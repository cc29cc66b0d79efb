/* test_table.c - the hash table between real nodes: values of every size, buckets of each width, the cost of
 * each operation, also while the table grows, threads and tasks, a full table, wrong arguments, the failure
 * of an owner. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../../support/cluster.h"
#include "systems/tx/structure.h"

static _Atomic uint32_t *refused; /* nodes that may not use their own share after a mismatch */

#define LONG_TIME (100 * SECOND)
#define KEYS 400u

/* ---- open, keys, values ---- */

static struct remo_structure *structure_of(struct remo_table *table) {
    return remo_table_structure(table);
}

static int open_table(struct remo_node *node, const struct remo_table_options *options,
                      struct remo_table **ret_table) {
    CHECK_OK(remo_table_open(remo_node_root(node), "table", options, ret_table));
    CHECK_OK(remo_channel_wait(remo_structure_channel(structure_of(*ret_table)), LONG_TIME));
    return 0;
}

static int close_table(struct remo_table *table) {
    CHECK_OK(cluster_meet());
    remo_table_close(table);
    CHECK_OK(cluster_meet());
    return 0;
}

/* Return the key with this index among those that `owner` owns. */
static uint64_t key_of(const struct remo_table *table, uint32_t owner, uint32_t index) {
    uint64_t key = 0;
    for (uint32_t found = 0; found <= index; found += remo_table_owner(table, &key, sizeof key) == owner)
        key++;
    return key;
}

static void fill(unsigned char *value, size_t bytes, uint64_t seed) {
    for (size_t i = 0; i < bytes; i++)
        value[i] = (unsigned char)(seed * 31 + i * 7);
}

static int expect(struct remo_table *table, uint64_t key, size_t bytes, uint64_t seed,
                  enum remo_lookup_way *ret_way) {
    unsigned char value[REMO_ITEM_BYTES_MAX], expected[REMO_ITEM_BYTES_MAX];
    size_t found_bytes = 12345;
    fill(expected, bytes, seed);
    CHECK_OK(remo_structure_lookup(structure_of(table), &key, sizeof key, value, sizeof value, &found_bytes,
                                   ret_way));
    CHECK_EQUAL(found_bytes, bytes);
    CHECK(memcmp(value, expected, bytes) == 0);
    return 0;
}

static int put(struct remo_table *table, uint64_t key, size_t bytes, uint64_t seed) {
    unsigned char value[REMO_ITEM_BYTES_MAX];
    fill(value, bytes, seed);
    CHECK_OK(remo_structure_put(structure_of(table), &key, sizeof key, value, bytes));
    return 0;
}

static int lookup_rc(struct remo_table *table, uint64_t key) {
    uint64_t value[16];
    return remo_structure_lookup(structure_of(table), &key, sizeof key, value, sizeof value, NULL, NULL);
}

/* ---- data ---- */

/* Each node changes its own keys, at every owner, in a small table; then all read all keys. */
static int change_and_read(struct remo_node *node, uint32_t width) {
    struct remo_table *table;
    const struct remo_table_options options = {
        .capacity = 2 * KEYS, .width = width, .slots_percent = 60, .overflow_percent = 200};
    uint32_t size = remo_node_size(node), rank = remo_node_rank(node);
    CHECK(open_table(node, &options, &table) == 0);
    for (uint64_t key = 1 + rank; key <= KEYS; key += size) {
        uint64_t value = key;
        CHECK_CODE(remo_structure_update(structure_of(table), &key, sizeof key, &value, sizeof value),
                   -ENOENT);
        CHECK_CODE(remo_structure_delete(structure_of(table), &key, sizeof key), -ENOENT);
        CHECK_OK(remo_structure_insert(structure_of(table), &key, sizeof key, &value, sizeof value));
        CHECK_CODE(remo_structure_insert(structure_of(table), &key, sizeof key, &value, sizeof value),
                   -EEXIST);
        if (key % 3 == 0)
            CHECK_OK(remo_structure_delete(structure_of(table), &key, sizeof key));
        else
            CHECK(put(table, key, key % 81, key) == 0);
    }
    CHECK_OK(cluster_meet());
    for (uint64_t key = 1; key <= KEYS; key++) {
        if (key % 3 == 0)
            CHECK_CODE(lookup_rc(table, key), -ENOENT);
        else
            CHECK(expect(table, key, key % 81, key, NULL) == 0);
    }
    return close_table(table);
}

static int widths(struct remo_node *node, void *ctx) {
    (void)ctx;
    for (uint32_t width = 1; width <= REMO_TABLE_WIDTH_MAX; width *= 2)
        CHECK(change_and_read(node, width) == 0);
    return 0;
}

/* Keys and values of every length, up to the largest. */
static int sizes(struct remo_node *node, void *ctx) {
    enum { KEY_BYTES = 31 };
    struct remo_table *table;
    const struct remo_table_options options = {
        .capacity = 200, .key_bytes_max = KEY_BYTES, .value_bytes_max = REMO_ITEM_BYTES_MAX - KEY_BYTES};
    unsigned char key[KEY_BYTES], value[REMO_ITEM_BYTES_MAX], found[REMO_ITEM_BYTES_MAX];
    (void)ctx;
    CHECK(open_table(node, &options, &table) == 0);
    for (size_t bytes = 0; bytes <= options.value_bytes_max && remo_node_rank(node) == 0;
         bytes += bytes < 70 ? 1 : 1289) {
        size_t key_bytes = 1 + bytes % KEY_BYTES, found_bytes = 0;
        fill(key, key_bytes, bytes);
        fill(value, bytes, bytes);
        CHECK_OK(remo_structure_put(structure_of(table), key, key_bytes, value, bytes));
        CHECK_OK(remo_structure_lookup(structure_of(table), key, key_bytes, found, sizeof found, &found_bytes,
                                       NULL));
        CHECK_EQUAL(found_bytes, bytes);
        CHECK(memcmp(found, value, bytes) == 0);
    }
    return close_table(table);
}

/* ---- costs ---- */

struct cost {
    uint64_t reads, writes, atomics;
};

static struct cost cost_of(struct remo_table *table) {
    struct remo_stats stats;
    remo_channel_stats(remo_structure_channel(structure_of(table)), &stats);
    return (struct cost){stats.reads, stats.writes, stats.atomics};
}

/* Look the key up; check the number of reads, and whether the owner was called: one write by this node. */
static int expect_cost(struct remo_table *table, uint64_t key, int expected_rc, uint64_t reads,
                       enum remo_lookup_way expected_way) {
    uint64_t value[16];
    enum remo_lookup_way way;
    struct cost before = cost_of(table);
    CHECK_CODE(remo_structure_lookup(structure_of(table), &key, sizeof key, value, sizeof value, NULL, &way),
               expected_rc);
    struct cost after = cost_of(table);
    CHECK_EQUAL(after.reads - before.reads, reads);
    CHECK_EQUAL(after.writes - before.writes, expected_way == REMO_LOOKUP_WAY_CALL);
    CHECK_EQUAL(after.atomics - before.atomics, 0);
    CHECK_EQUAL(way, expected_way);
    return 0;
}

/* Node 0 has one bucket of width 1. */
static int costs_of_lookups(struct remo_table *table) {
    uint64_t first = key_of(table, 0, 0), second = key_of(table, 0, 1), third = key_of(table, 0, 2);
    CHECK(expect_cost(table, first, -ENOENT, 1, REMO_LOOKUP_WAY_READ) == 0);
    CHECK(put(table, first, 8, 1) == 0);
    CHECK(expect_cost(table, first, 0, 1, REMO_LOOKUP_WAY_READ) == 0);
    CHECK(expect_cost(table, second, -ENOENT, 1, REMO_LOOKUP_WAY_READ) == 0);
    CHECK(put(table, second, 8, 2) == 0);
    CHECK(expect_cost(table, second, 0, 1, REMO_LOOKUP_WAY_CALL) == 0);
    CHECK(expect_cost(table, second, 0, 1, REMO_LOOKUP_WAY_READ) == 0); /* at its place */
    CHECK(expect_cost(table, third, -ENOENT, 1, REMO_LOOKUP_WAY_CALL) == 0);
    CHECK_OK(remo_structure_delete(structure_of(table), &second, sizeof second));
    CHECK(expect_cost(table, second, -ENOENT, 1, REMO_LOOKUP_WAY_CALL) == 0); /* the place is free */
    CHECK(expect_cost(table, second, -ENOENT, 1, REMO_LOOKUP_WAY_READ) == 0);
    CHECK(put(table, key_of(table, 1, 0), 8, 3) == 0);
    CHECK(expect_cost(table, key_of(table, 1, 0), 0, 0, REMO_LOOKUP_WAY_LOCAL) == 0);
    return 0;
}

static int costs(struct remo_node *node, void *ctx) {
    struct remo_table_options options = {
        .capacity = 2, .capacity_max = 2, .slots_percent = 1, .overflow_percent = 400};
    struct remo_table *table;
    (void)ctx;
    CHECK(open_table(node, &options, &table) == 0);
    if (remo_node_rank(node) == 1) {
        struct cost before = cost_of(table);
        uint64_t key = key_of(table, 0, 0);
        CHECK(put(table, key, 8, 1) == 0);
        CHECK_OK(remo_structure_delete(structure_of(table), &key, sizeof key));
        struct cost after = cost_of(table);
        CHECK_EQUAL(after.writes - before.writes, 2); /* the requests; the owner writes the replies */
        CHECK_EQUAL(after.reads - before.reads + after.atomics - before.atomics, 0);
        CHECK(costs_of_lookups(table) == 0);
    }
    CHECK(close_table(table) == 0);
    options.lookups = REMO_TABLE_CALLS_ONLY;
    CHECK(open_table(node, &options, &table) == 0);
    if (remo_node_rank(node) == 1) {
        CHECK(put(table, key_of(table, 0, 0), 8, 1) == 0);
        CHECK(expect_cost(table, key_of(table, 0, 0), 0, 0, REMO_LOOKUP_WAY_CALL) == 0);
    }
    return close_table(table);
}

/* Return a key of node 0 in bucket i % 2 of two, and later in that of the next two bits i / 2 % 4. */
static uint64_t divided_key(const struct remo_table *table, uint32_t i) {
    uint64_t key = 0;
    for (uint32_t found = 0; found <= i / 8;) {
        uint64_t hash = XXH3_64bits(&(uint64_t){++key}, sizeof key);
        found += remo_table_owner(table, &key, sizeof key) == 0 && (uint32_t)hash >> 31 == i % 2
                 && (hash >> 32 & 3) == i / 2 % 4;
    }
    return key;
}

/* Put the keys from `begin` to `end`. The last one divides a bucket. */
static int put_keys(struct remo_table *table, uint32_t begin, uint32_t end) {
    for (uint32_t i = begin; i < end; i++)
        CHECK(put(table, divided_key(table, i), 8, i) == 0);
    return 0;
}

static int expect_reads(struct remo_table *table, uint32_t i, uint64_t reads) {
    return expect_cost(table, divided_key(table, i), 0, reads, REMO_LOOKUP_WAY_READ);
}

/* Node 0 has two buckets at first, is for 8 keys, and divides a bucket after 10, 15 and 20. Only this node
 * uses the table, so it is the only one that divides them, by its calls. No bucket has a chain. */
static int costs_while_growing(struct remo_table *table) {
    CHECK(put_keys(table, 0, 10) == 0);
    for (uint32_t i = 0; i < 10; i++)
        CHECK(expect_reads(table, i, 1) == 0);
    CHECK(put_keys(table, 10, 11) == 0); /* bucket 0 is divided into 0 and 2, which is the first of page 1 */
    CHECK(expect_reads(table, 0, 1) == 0);
    CHECK(expect_reads(table, 1, 1) == 0);
    CHECK(expect_reads(table, 2, 3) == 0); /* bucket 0, the page list, bucket 2 */
    CHECK(put_keys(table, 11, 16) == 0);   /* bucket 1 into 1 and 3 */
    CHECK(expect_reads(table, 3, 2) == 0); /* buckets 1 and 3 */
    for (uint32_t i = 0; i < 16; i++)
        CHECK(expect_reads(table, i, 1) == 0);
    CHECK(expect_cost(table, divided_key(table, 31), -ENOENT, 1, REMO_LOOKUP_WAY_READ) == 0);
    CHECK(put_keys(table, 16, 21) == 0); /* bucket 0 into 0 and 4, which is the first of page 2 */
    CHECK(expect_reads(table, 4, 3) == 0);
    for (uint32_t i = 0; i < 21; i++)
        CHECK(expect_reads(table, i, 1) == 0);
    return 0;
}

static int growth_costs(struct remo_node *node, void *ctx) {
    const struct remo_table_options options = {.capacity = 16, .capacity_max = 64, .width = 8};
    struct remo_table *table;
    (void)ctx;
    CHECK(open_table(node, &options, &table) == 0);
    CHECK(remo_node_rank(node) != 1 || costs_while_growing(table) == 0);
    return close_table(table);
}

/* ---- threads and tasks ---- */

#define ROUNDS 3000u
#define THREADS 3u

struct worker {
    struct remo_table *table;
    uint64_t number;
    int result;
};

/* Put a value made of one number, and check that lookups of the common keys return one number each. */
static int work(struct worker *worker) {
    uint64_t found_count = 0;
    for (uint64_t i = 0; i < ROUNDS; i++) {
        uint64_t key = 1 + (i * 7 + i / 16 + worker->number) % 16, value[10], found[10];
        size_t bytes = 0;
        for (uint32_t j = 0; j < 10; j++)
            value[j] = worker->number << 32 | i;
        if (i % 4 == 0)
            CHECK_OK(remo_structure_put(structure_of(worker->table), &key, sizeof key, value, sizeof value));
        else if (i % 31 == 1)
            (void)remo_structure_delete(structure_of(worker->table), &key, sizeof key);
        int rc = remo_structure_lookup(structure_of(worker->table), &key, sizeof key, found, sizeof found,
                                       &bytes, NULL);
        CHECK(rc == 0 || rc == -ENOENT);
        for (uint32_t j = 1; j < 10 && rc == 0; j++)
            CHECK_EQUAL(found[j], found[0]);
        CHECK(rc != 0 || bytes == sizeof found);
        found_count += rc == 0;
    }
    CHECK(found_count > ROUNDS / 4);
    return 0;
}

static void *run_thread(void *ctx) {
    struct worker *worker = ctx;
    worker->result = work(worker);
    return NULL;
}

static int threads(struct remo_node *node, void *ctx) {
    const struct remo_table_options options = {.capacity = 16, .slots_percent = 50, .overflow_percent = 200};
    struct remo_table *table;
    struct worker workers[THREADS];
    pthread_t ids[THREADS];
    int wrong = 0;
    (void)ctx;
    CHECK(open_table(node, &options, &table) == 0);
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.table = table, .number = remo_node_rank(node) * THREADS + i};
        CHECK_EQUAL(pthread_create(&ids[i], NULL, run_thread, &workers[i]), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        pthread_join(ids[i], NULL);
        wrong |= workers[i].result;
    }
    CHECK_EQUAL(wrong, 0);
    return close_table(table);
}

static int run_task(void *ctx) {
    return work(ctx);
}

static int tasks(struct remo_node *node, void *ctx) {
    const struct remo_table_options options = {.capacity = 16, .slots_percent = 50, .overflow_percent = 200};
    struct remo_table *table;
    struct remo_scheduler *scheduler;
    struct worker workers[THREADS];
    remo_task_id ids[THREADS];
    (void)ctx;
    CHECK(open_table(node, &options, &table) == 0);
    CHECK_OK(remo_scheduler_open(node, NULL, &scheduler));
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.table = table, .number = remo_node_rank(node) * THREADS + i};
        CHECK_OK(remo_task_spawn(scheduler, run_task, &workers[i], &ids[i]));
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        int result = 1;
        CHECK_OK(remo_task_join(scheduler, ids[i], LONG_TIME, &result));
        CHECK_EQUAL(result, 0);
    }
    CHECK_OK(remo_scheduler_close(scheduler));
    return close_table(table);
}

struct turns {
    struct remo_table *table;
    uint64_t key;
    bool has_other_run, has_yielded;
};

static int look_up_in_task(void *ctx) {
    struct turns *turns = ctx;
    uint64_t found;
    int rc = remo_structure_lookup(structure_of(turns->table), &turns->key, sizeof turns->key, &found,
                                   sizeof found, NULL, NULL);
    turns->has_yielded = turns->has_other_run;
    return rc;
}

static int note_run(void *ctx) {
    ((struct turns *)ctx)->has_other_run = true;
    return 0;
}

/* On mapped memory a task that looks up a key of this node lets another task run meanwhile. */
static int yields(struct remo_node *node, void *ctx) {
    struct turns turns = {.key = 0};
    struct remo_scheduler *scheduler;
    remo_task_id id;
    int result = 1;
    (void)ctx;
    CHECK(open_table(node, NULL, &turns.table) == 0);
    while (remo_table_owner(turns.table, &turns.key, sizeof turns.key) != remo_node_rank(node))
        turns.key++;
    CHECK_OK(remo_structure_put(structure_of(turns.table), &turns.key, sizeof turns.key, &turns.key,
                                sizeof turns.key));
    CHECK_OK(remo_scheduler_open(node, NULL, &scheduler));
    CHECK_OK(remo_task_spawn(scheduler, look_up_in_task, &turns, &id));
    CHECK_OK(remo_task_spawn(scheduler, note_run, &turns, NULL));
    CHECK_OK(remo_task_join(scheduler, id, LONG_TIME, &result));
    CHECK_EQUAL(result, 0);
    CHECK_EQUAL(turns.has_yielded, strcmp(remo_node_fabric(node), "shm") == 0);
    CHECK_OK(remo_scheduler_close(scheduler));
    return close_table(turns.table);
}

/* ---- a full table, partitions, wrong arguments ---- */

static int full(struct remo_node *node, void *ctx) {
    const struct remo_table_options options = {
        .capacity = 20, .capacity_max = 20, .slots_percent = 100, .overflow_percent = 20};
    struct remo_table *table;
    (void)ctx;
    CHECK(open_table(node, &options, &table) == 0);
    if (remo_node_rank(node) == 1) {
        uint64_t key, value = 5, room = 0;
        int rc = 0;
        for (; rc == 0; room += rc == 0) {
            key = key_of(table, 0, (uint32_t)room);
            rc = remo_structure_insert(structure_of(table), &key, sizeof key, &value, sizeof value);
        }
        CHECK_SENTENCE(rc, -ENOSPC, "delete keys");
        CHECK(room > 2 && room <= 12);
        for (uint32_t i = 0; i < room; i++) {
            uint64_t other = key_of(table, 0, i);
            CHECK_OK(remo_structure_delete(structure_of(table), &other, sizeof other));
        }
        for (uint32_t i = 0; i < room; i++)
            CHECK(put(table, key_of(table, 0, i), 8, i) == 0);
        for (uint32_t i = 0; i < room; i++)
            CHECK(expect(table, key_of(table, 0, i), 8, i, NULL) == 0);
    }
    return close_table(table);
}

static int partitions(struct remo_node *node, void *ctx) {
    const struct remo_table_options options = {.key_bytes_max = 12, .partition_bytes = 4};
    struct remo_table *table;
    uint32_t owners_seen = 0;
    (void)ctx;
    CHECK(open_table(node, &options, &table) == 0);
    for (uint32_t group = 0; group < 64; group++) {
        uint32_t key[3] = {group, 0, 7}, owner = remo_table_owner(table, key, sizeof key);
        owners_seen |= 1u << owner;
        for (key[1] = 1; key[1] < 8; key[1]++)
            CHECK_EQUAL(remo_table_owner(table, key, sizeof key), owner);
    }
    CHECK_EQUAL(owners_seen, (1u << remo_node_size(node)) - 1);
    return close_table(table);
}

static int bad_options(struct remo_channel *root) {
    struct remo_table *table;
    struct remo_table_options options = {.width = 3};
    CHECK_SENTENCE(remo_table_open(root, "x", &options, &table), -EINVAL, "give 1, 2, 4 or 8");
    options = (struct remo_table_options){.width = 16};
    CHECK_CODE(remo_table_open(root, "x", &options, &table), -EINVAL);
    options = (struct remo_table_options){.value_bytes_max = REMO_ITEM_BYTES_MAX};
    CHECK_SENTENCE(remo_table_open(root, "x", &options, &table), -EINVAL, "together at most");
    options = (struct remo_table_options){.width = 8, .value_bytes_max = 2000};
    CHECK_SENTENCE(remo_table_open(root, "x", &options, &table), -EINVAL, "smaller width");
    options = (struct remo_table_options){.slots_percent = 10001};
    CHECK_SENTENCE(remo_table_open(root, "x", &options, &table), -EINVAL, "the maximum is 10000");
    options = (struct remo_table_options){.capacity = 1ull << 33};
    CHECK_CODE(remo_table_open(root, "x", &options, &table), -EINVAL);
    options = (struct remo_table_options){.capacity = 100, .capacity_max = 99};
    CHECK_SENTENCE(remo_table_open(root, "x", &options, &table), -EINVAL, "from capacity to");
    options = (struct remo_table_options){.capacity_max = 1ull << 33};
    CHECK_CODE(remo_table_open(root, "x", &options, &table), -EINVAL);
    options = (struct remo_table_options){.places = UINT32_MAX};
    CHECK_CODE(remo_table_open(root, "x", &options, &table), -EINVAL);
    return 0;
}

static int bad_input(struct remo_node *node, void *ctx) {
    struct remo_table *table;
    char key[16] = {0}, value[100] = {0};
    size_t bytes = 0;
    (void)ctx;
    CHECK(bad_options(remo_node_root(node)) == 0);
    CHECK(open_table(node, NULL, &table) == 0);
    struct remo_structure *structure = structure_of(table);
    CHECK_SENTENCE(remo_structure_lookup(structure, key, 0, value, 8, NULL, NULL), -EINVAL, "empty");
    CHECK_SENTENCE(remo_structure_lookup(structure, key, 9, value, 8, NULL, NULL), -EMSGSIZE,
                   "key_bytes_max = 8");
    CHECK_SENTENCE(remo_structure_insert(structure, key, 8, value, 81), -EMSGSIZE, "value_bytes_max = 80");
    CHECK_SENTENCE(remo_structure_insert(structure, key, 8, NULL, 1), -EINVAL, "NULL");
    CHECK_OK(remo_structure_put(structure, key, 8, value, 80));
    CHECK_SENTENCE(remo_structure_lookup(structure, key, 8, value, 79, &bytes, NULL), -EMSGSIZE,
                   "room for 79");
    CHECK_EQUAL(bytes, 80);
    CHECK_OK(remo_structure_lookup(structure, key, 8, value, 80, NULL, NULL));
    return close_table(table);
}

/* Damage the value of a key of this node, and divide its bucket. The copy of the item is still damaged. */
static int damaged(struct remo_node *node, void *ctx) {
    const struct remo_table_options options = {.capacity = 1, .capacity_max = 1024, .width = 8};
    struct remo_table *table;
    uint64_t key = 1, value = 5;
    (void)ctx;
    CHECK(open_table(node, &options, &table) == 0);
    struct remo_structure *structure = structure_of(table);
    while ((XXH3_64bits(&key, sizeof key) >> 32 & 1) == 0) /* the first division moves the key */
        key++;
    struct remo_structure_key wanted = {
        .data = &key, .bytes = sizeof key, .hash = XXH3_64bits(&key, sizeof key)};
    CHECK_OK(remo_structure_insert(structure, &key, sizeof key, &value, sizeof value));
    uint64_t offset = structure->type->find(structure->ctx, &wanted);
    *(uint64_t *)(structure->own + offset + REMO_ITEM_HEADER_BYTES + sizeof key) ^= 1;
    CHECK_CODE(lookup_rc(table, key), -EPROTO);
    for (uint64_t other = key + 1; structure->type->find(structure->ctx, &wanted) == offset; other++)
        CHECK_OK(remo_structure_insert(structure, &other, sizeof other, &value, sizeof value));
    CHECK_CODE(lookup_rc(table, key), -EPROTO);
    return close_table(table);
}

/* Nodes that open different tables get an error. `ctx`: the option that differs. */
static int mismatch(struct remo_node *node, void *ctx) {
    struct remo_table_options options = {.capacity = 100, .capacity_max = 1000};
    struct remo_table *table;
    if (strcmp(ctx, "capacity") == 0)
        options.capacity += remo_node_rank(node);
    else
        options.capacity_max <<= remo_node_rank(node);
    CHECK_OK(remo_table_open(remo_node_root(node), "table", &options, &table));
    CHECK_SENTENCE(remo_channel_wait(remo_structure_channel(structure_of(table)), LONG_TIME), -EPROTO,
                   "table 10");
    /* The node that has joined later may not use its own share either (channel.h, Match). */
    uint64_t own = key_of(table, remo_node_rank(node), 0);
    int rc = lookup_rc(table, own);
    CHECK(rc == -EPROTO || rc == -ENOENT);
    CHECK_CODE(remo_structure_put(structure_of(table), &own, sizeof own, &own, sizeof own),
               rc == -EPROTO ? -EPROTO : 0);
    atomic_fetch_add(refused, rc == -EPROTO);
    CHECK_OK(cluster_meet());
    CHECK(atomic_load(refused) > 0);
    return close_table(table);
}

/* ---- the failure of an owner ---- */

static int failing(struct remo_node *node, void *ctx) {
    struct remo_table *table;
    (void)ctx;
    CHECK(open_table(node, NULL, &table) == 0);
    uint64_t lost = key_of(table, 1, 0), kept = key_of(table, 0, 0), own = key_of(table, 2, 0);
    if (remo_node_rank(node) == 2) {
        CHECK(put(table, lost, 8, 1) == 0);
        CHECK(put(table, kept, 8, 2) == 0);
        CHECK(put(table, own, 8, 3) == 0);
    }
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 1) {
        cluster_sleep_ms(60000);
        return 1;
    }
    if (remo_node_rank(node) == 0)
        CHECK_OK(cluster_kill(1));
    cluster_await_cut_off(node, 1);
    CHECK_CODE(lookup_rc(table, lost), -EHOSTDOWN);
    CHECK_CODE(remo_structure_delete(structure_of(table), &lost, sizeof lost), -EHOSTDOWN);
    CHECK(expect(table, kept, 8, 2, NULL) == 0);
    CHECK(expect(table, own, 8, 3, NULL) == 0);
    CHECK_OK(cluster_meet());
    CHECK(put(table, own, 8, 4) == 0);
    return close_table(table);
}

/* An owner closes the table. */
static int closing(struct remo_node *node, void *ctx) {
    struct remo_table *table;
    (void)ctx;
    CHECK(open_table(node, NULL, &table) == 0);
    uint64_t lost = key_of(table, 1, 0), own = key_of(table, 0, 0);
    CHECK(put(table, lost, 8, 1) == 0);
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 1)
        remo_table_close(table);
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 0) {
        int rc = 0;
        while (rc == 0) /* until the close has arrived; ends at the timeout of the test */
            rc = lookup_rc(table, lost);
        CHECK_EQUAL(rc, -ENOTCONN);
        CHECK_CODE(remo_structure_delete(structure_of(table), &lost, sizeof lost), -ENOTCONN);
        CHECK(put(table, own, 8, 2) == 0);
        remo_table_close(table);
    }
    CHECK_OK(cluster_meet());
    return 0;
}

static const struct cluster_test tests[] = {
    CLUSTER_TEST(widths, 3),
    CLUSTER_TEST(sizes, 2),
    CLUSTER_TEST(costs, 2),
    CLUSTER_TEST_NAMED("costs of growth", growth_costs, 2),
    CLUSTER_TEST(threads, 2),
    CLUSTER_TEST(tasks, 2),
    CLUSTER_TEST(yields, 2),
    CLUSTER_TEST(full, 2),
    CLUSTER_TEST(partitions, 3),
    CLUSTER_TEST(bad_input, 1),
    CLUSTER_TEST(damaged, 1),
    CLUSTER_TEST_NAMED("mismatch of capacity", mismatch, 2, .ctx = "capacity"),
    CLUSTER_TEST_NAMED("mismatch of capacity_max", mismatch, 2, .ctx = "capacity_max"),
    CLUSTER_TEST(failing, 3),
    CLUSTER_TEST(closing, 2),
    {0},
};

static void clear_refused(void) {
    atomic_store(refused, 0);
}

int main(int argc, char **argv) {
    refused = cluster_shared(sizeof *refused);
    return cluster_main(argc, argv, tests, clear_refused);
}
