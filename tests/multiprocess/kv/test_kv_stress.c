/* test_kv_stress.c - the map under load: windows, threads, the same keys from all nodes, few slots, and
 * killed nodes. Every result is checked (kv_actor.h). */
#include <pthread.h>

#include "systems/kv/kv.h"
#include "kv_actor.h"

#define NODES_MAX 4u
#define THREADS_MAX 3u
#define ACTORS_MAX (NODES_MAX * THREADS_MAX)

static struct shared {
    struct actor_key keys[ACTORS_MAX * ACTOR_KEYS_MAX];
    _Atomic uint32_t stop, killed;
    _Atomic int64_t balance[256];
} * shared;

static void clear(void) {
    memset(shared, 0, sizeof *shared);
}

struct load {
    uint32_t window, threads, keys, write_percent, value_bytes_max, key_bytes, stripes, ms;
    uint64_t capacity, hash_mask;
};

static struct remo_kv_options map_options(const struct load *load) {
    return (struct remo_kv_options){.capacity = load->capacity ? load->capacity : 4000,
                                    .key_bytes_max = load->key_bytes,
                                    .value_bytes_max = load->value_bytes_max,
                                    .stripes = load->stripes};
}

static void *run_thread(void *ctx) {
    return actor_run(ctx) == 0 ? NULL : ctx;
}

static int run_actors(struct remo_node *node, struct remo_kv *kv, const struct load *load) {
    struct actor_options options = {.actors = remo_node_size(node) * load->threads,
                                    .keys = load->keys,
                                    .window = load->window,
                                    .write_percent = load->write_percent,
                                    .value_bytes_max = load->value_bytes_max,
                                    .key_bytes = load->key_bytes,
                                    .stop = &shared->stop,
                                    .killed = &shared->killed};
    struct actor *actors = calloc(load->threads, sizeof *actors);
    pthread_t threads[THREADS_MAX];
    int bad = 0;
    for (uint32_t i = 0; i < load->threads; i++) {
        actor_prepare(&actors[i], &options, kv, shared->keys, remo_node_rank(node) * load->threads + i);
        CHECK(pthread_create(&threads[i], NULL, run_thread, &actors[i]) == 0);
    }
    if (remo_node_rank(node) == 0) {
        cluster_sleep_ms(load->ms);
        atomic_store(&shared->stop, 1);
    }
    uint64_t done = 0;
    for (uint32_t i = 0; i < load->threads; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        bad |= failed != NULL;
        done += actors[i].done;
    }
    free(actors);
    CHECK(done > 0);
    return bad;
}

/* At the end all nodes read the same values, which are those of the last changes. */
static int check_all_keys(struct remo_node *node, struct remo_kv *kv, const struct load *load) {
    uint64_t keys = (uint64_t)remo_node_size(node) * load->threads * load->keys, present = 0;
    unsigned char *value = malloc(load->value_bytes_max), key[256];
    for (uint64_t id = 0; id < keys; id++) {
        struct actor_done done = actor_done_unpack(atomic_load(&shared->keys[id].done));
        uint64_t number = 0;
        size_t bytes = 0;
        memset(key, (int)id, load->key_bytes);
        memcpy(key, &id, sizeof id);
        CHECK_CODE(remo_kv_get(kv, key, load->key_bytes, value, load->value_bytes_max, &bytes),
                   done.present ? 0 : -ENOENT);
        CHECK(!done.present || (kv_value_check(value, bytes, id, &number) && number == done.number));
        present += done.present;
    }
    for (uint32_t i = 0; i < 5000 && remo_kv_count(kv) != present; i++)
        cluster_sleep_ms(1);
    CHECK_EQUAL(remo_kv_count(kv), present);
    free(value);
    return 0;
}

static int mixed(struct remo_node *node, void *ctx) {
    const struct load *load = ctx;
    struct remo_kv_options options = map_options(load);
    struct remo_kv *kv;
    if (kv_open(node, &options, &kv) != 0)
        return 1;
    if (load->hash_mask)
        remo__kv_set_hash_mask(kv, load->hash_mask);
    CHECK_OK(cluster_meet());
    int rc = run_actors(node, kv, load);
    CHECK_OK(cluster_meet());
    rc = rc ? rc : check_all_keys(node, kv, load);
    CHECK_OK(cluster_meet());
    remo_kv_close(kv);
    return rc;
}

/* ---- all nodes on the same keys ---- */

/* All nodes insert, update and delete a few keys. Of each key, successful inserts and deletes must
 * alternate. */
static int same_keys(struct remo_node *node, void *ctx) {
    (void)ctx;
    enum { KEYS = 8, BYTES = 300 };
    struct remo_kv *kv;
    struct remo_kv_options options = {
        .capacity = 400, .key_bytes_max = 8, .value_bytes_max = BYTES, .stripes = 4};
    struct remo__random random;
    unsigned char value[BYTES];
    uint64_t found, number = (uint64_t)remo_node_rank(node) << 32, until = cluster_now_ns() + SECOND / 2;
    if (kv_open(node, &options, &kv) != 0)
        return 1;
    remo__random_seed(&random, remo_node_rank(node));
    while (cluster_now_ns() < until) {
        uint64_t key = remo__random_below(&random, KEYS);
        size_t bytes = 16 + remo__random_below(&random, BYTES - 15);
        kv_value_make(value, bytes, key, ++number);
        int rc;
        switch (remo__random_below(&random, 8)) {
        case 0:
            rc = remo_kv_insert(kv, &key, 8, value, bytes);
            CHECK(rc == 0 || rc == -EEXIST);
            atomic_fetch_add(&shared->balance[key], rc == 0);
            break;
        case 1:
            rc = remo_kv_delete(kv, &key, 8);
            CHECK(rc == 0 || rc == -ENOENT);
            atomic_fetch_sub(&shared->balance[key], rc == 0);
            break;
        case 2:
        case 3:
            rc = remo_kv_update(kv, &key, 8, value, bytes);
            CHECK(rc == 0 || rc == -ENOENT);
            break;
        default:
            rc = remo_kv_get(kv, &key, 8, value, BYTES, &bytes);
            CHECK(rc == 0 || rc == -ENOENT);
            CHECK(rc != 0 || kv_value_check(value, bytes, key, &found));
        }
    }
    CHECK_OK(cluster_meet());
    for (uint64_t key = 0; key < KEYS; key++)
        CHECK_CODE(remo_kv_get(kv, &key, 8, value, BYTES, NULL),
                   atomic_load(&shared->balance[key]) == 1 ? 0 : -ENOENT);
    CHECK_OK(cluster_meet());
    remo_kv_close(kv);
    return 0;
}

/* ---- nodes that are killed ---- */

/* The keys of a failed writer have a value that it wrote, from its last complete change or a later one. */
static int check_orphaned_keys(struct remo_kv *kv, const struct load *load, uint64_t first) {
    unsigned char *value = malloc(load->value_bytes_max), key[256];
    for (uint64_t id = first; id < first + load->threads * load->keys; id++) {
        struct actor_key *record = &shared->keys[id];
        struct actor_done done = actor_done_unpack(atomic_load(&record->done));
        uint64_t begun = atomic_load(&record->begun), number;
        size_t bytes;
        memset(key, (int)id, load->key_bytes);
        memcpy(key, &id, sizeof id);
        int rc = remo_kv_get(kv, key, load->key_bytes, value, load->value_bytes_max, &bytes);
        CHECK(rc == 0 || rc == -ENOENT || rc == -EHOSTDOWN);
        CHECK(rc != 0 || kv_value_check(value, bytes, id, &number));
        CHECK(rc != 0 || (number >= done.number && number <= begun));
        CHECK(rc != -ENOENT || !done.present || begun > done.number);
    }
    free(value);
    return 0;
}

/* They can be changed again, unless the key or its lock was on the failed node. One surviving node changes
 * each of them. */
static int change_orphaned_keys(struct remo_node *node, struct remo_kv *kv, const struct load *load,
                                uint64_t first) {
    unsigned char value[16], found[16], key[256];
    for (uint64_t id = first; id < first + load->threads * load->keys; id++) {
        uint64_t number;
        size_t bytes;
        if (id % (remo_node_size(node) - 1) != remo_node_rank(node))
            continue;
        memset(key, (int)id, load->key_bytes);
        memcpy(key, &id, sizeof id);
        kv_value_make(value, sizeof value, id, 1);
        int rc = remo_kv_update(kv, key, load->key_bytes, value, sizeof value);
        CHECK(rc == 0 || rc == -ENOENT || rc == -EHOSTDOWN);
        rc = rc == 0 ? remo_kv_delete(kv, key, load->key_bytes) : rc;
        CHECK(rc == 0 || rc == -ENOENT || rc == -EHOSTDOWN);
        if (rc == -EHOSTDOWN)
            continue;
        CHECK_OK(remo_kv_insert(kv, key, load->key_bytes, value, sizeof value));
        CHECK_OK(remo_kv_get(kv, key, load->key_bytes, found, sizeof found, &bytes));
        CHECK(bytes == sizeof found && kv_value_check(found, bytes, id, &number) && number == 1);
        CHECK_OK(remo_kv_delete(kv, key, load->key_bytes));
    }
    return 0;
}

static int killed(struct remo_node *node, void *ctx) {
    struct load load = *(const struct load *)ctx;
    struct remo_kv_options options = map_options(&load);
    struct remo_kv *kv;
    uint32_t rank = remo_node_rank(node), failed_rank = remo_node_size(node) - 1;
    struct remo__random random;
    if (kv_open(node, &options, &kv) != 0)
        return 1;
    if (rank == 0) {
        remo__random_seed(&random, cluster_now_ns());
        load.ms = 100 + (uint32_t)remo__random_below(&random, 100);
    }
    struct actor_options actor_options = {.actors = (failed_rank + 1) * load.threads,
                                          .keys = load.keys,
                                          .window = load.window,
                                          .write_percent = load.write_percent,
                                          .value_bytes_max = load.value_bytes_max,
                                          .key_bytes = load.key_bytes,
                                          .stop = &shared->stop,
                                          .killed = &shared->killed};
    struct actor *actor = malloc(sizeof *actor);
    actor_prepare(actor, &actor_options, kv, shared->keys, rank);
    CHECK_OK(cluster_meet());
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, run_thread, actor) == 0);
    if (rank == 0) {
        cluster_sleep_ms(load.ms);
        atomic_store(&shared->killed, 1);
        CHECK_OK(cluster_kill(failed_rank));
        cluster_sleep_ms(300);
        atomic_store(&shared->stop, 1);
    }
    void *failed;
    pthread_join(thread, &failed);
    CHECK(failed == NULL);
    CHECK(rank != failed_rank);
    CHECK_OK(cluster_meet());
    uint64_t first = (uint64_t)failed_rank * load.threads * load.keys;
    int rc = check_orphaned_keys(kv, &load, first);
    CHECK_OK(cluster_meet());
    rc = rc ? rc : change_orphaned_keys(node, kv, &load, first);
    CHECK_OK(cluster_meet());
    remo_kv_close(kv);
    free(actor);
    return rc;
}

int main(int argc, char **argv) {
    static struct load one = {.window = 1,
                              .threads = 1,
                              .keys = 16,
                              .write_percent = 50,
                              .value_bytes_max = 100,
                              .key_bytes = 8,
                              .stripes = 64,
                              .ms = 400};
    static struct load three = {.window = 3,
                                .threads = 1,
                                .keys = 16,
                                .write_percent = 50,
                                .value_bytes_max = 16,
                                .key_bytes = 8,
                                .stripes = 64,
                                .ms = 400};
    static struct load wide = {.window = 128,
                               .threads = 1,
                               .keys = 64,
                               .write_percent = 50,
                               .value_bytes_max = 1000,
                               .key_bytes = 40,
                               .stripes = 256,
                               .ms = 500};
    static struct load threads = {.window = 16,
                                  .threads = 3,
                                  .keys = 32,
                                  .write_percent = 50,
                                  .value_bytes_max = 64,
                                  .key_bytes = 8,
                                  .stripes = 64,
                                  .ms = 500};
    static struct load alike = {.window = 16,
                                .threads = 1,
                                .keys = 32,
                                .write_percent = 60,
                                .value_bytes_max = 64,
                                .key_bytes = 8,
                                .stripes = 16,
                                .ms = 400,
                                .hash_mask = UINT64_C(3) << 62 | 1};
    static struct load tight = {.window = 16,
                                .threads = 1,
                                .keys = 16,
                                .write_percent = 90,
                                .value_bytes_max = 64,
                                .key_bytes = 8,
                                .stripes = 3,
                                .ms = 400};
    static struct load death = {.window = 8,
                                .threads = 1,
                                .keys = 32,
                                .write_percent = 70,
                                .value_bytes_max = 600,
                                .key_bytes = 8,
                                .stripes = 64};
    static const struct cluster_test tests[] = {
        CLUSTER_TEST_NAMED("window 1", mixed, 3, .ctx = &one),
        CLUSTER_TEST_NAMED("window 3", mixed, 3, .ctx = &three),
        CLUSTER_TEST_NAMED("window 128", mixed, 3, .ctx = &wide),
        CLUSTER_TEST_NAMED("threads", mixed, 2, .ctx = &threads),
        CLUSTER_TEST_NAMED("equal fingerprints", mixed, 3, .ctx = &alike),
        CLUSTER_TEST_NAMED("few stripes", mixed, 3, .ctx = &tight),
        CLUSTER_TEST(same_keys, 3),
        CLUSTER_TEST_NAMED("killed", killed, 4, .ctx = &death),
        {0},
    };
    shared = cluster_shared(sizeof *shared);
    return cluster_main(argc, argv, tests, clear);
}
