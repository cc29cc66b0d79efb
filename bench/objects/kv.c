/* kv.c - LOCO 7.2: gets and updates of a map that is 80 % full, keys and values of 8 bytes; inserts and
 * deletes of further keys. Every value is checked to belong to its key. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/error.h"
#include "bench/bench.h"
#include "bench/peers/zipf.h"

#define CAPACITY_MAPPED 10000000u
#define CAPACITY_OTHER 100000u /* on a network loading would take longer than all points */
#define FILL_PERCENT 80u
#define FILL_WINDOW 64u
#define ZIPF_THETA 0.99
/* keys drawn in advance for a skewed distribution: a draw takes as long as a get */
#define DRAWS (1u << 22)
#define SLOT_BYTES 64u /* slot with a key and a value of 8 bytes: a cache line */
#define LIMIT_BATCHES 201u
#define LIMIT_BATCH 256u
#define STRIPES 4096u

struct map {
    struct remo_kv *kv;
    uint64_t keys_count;
    uint32_t *draws; /* keys by frequency; NULL if no point is skewed */
    double theta;
};

extern const struct bench bench_kv_insert;

/* One operation with its key and value. */
struct slot {
    struct remo_kv_op op;
    uint64_t key, value;
};

struct client {
    struct slot *slots;
    uint32_t started; /* slots in flight, from the first one */
    uint32_t draw;
    uint64_t ahead; /* operations done beyond the requested number */
};

static uint64_t keys_count(const struct bench_options *options) {
    uint64_t capacity = options->keys_count;
    if (capacity == 0)
        capacity = strcmp(options->fabric, "shm") == 0 ? CAPACITY_MAPPED : CAPACITY_OTHER;
    return remo__max(capacity * FILL_PERCENT / 100, 1);
}

static uint32_t list(const struct bench_options *options, struct bench_point points[BENCH_POINTS_MAX]) {
    static const double zipfs[] = {0, ZIPF_THETA};
    static const int read_percents[] = {100, 50, 0};
    static const uint32_t windows[] = {1, 3, 128};
    uint32_t count = 0;
    for (uint32_t z = 0; z < (options->zipf < 0 ? 2 : 1); z++)
        for (uint32_t r = 0; r < (options->read_percent < 0 ? 3 : 1); r++)
            for (uint32_t w = 0; w < (options->window ? 1 : 3); w++) {
                struct bench_point point = BENCH_POINT_DEFAULT;
                point.bytes = sizeof(uint64_t);
                point.active = options->active ? bench_active(options) : options->nodes;
                point.keys_count = keys_count(options);
                point.zipf = options->zipf < 0 ? zipfs[z] : options->zipf;
                point.read_percent = options->read_percent < 0 ? read_percents[r] : options->read_percent;
                point.window = options->window ? options->window : windows[w];
                points[count++] = point;
            }
    return count;
}

/* List the points of kv_insert. */
static uint32_t list_inserts(const struct bench_options *options,
                             struct bench_point points[BENCH_POINTS_MAX]) {
    static const uint32_t windows[] = {1, 16, 128};
    uint32_t count = options->window ? 1 : 3;
    for (uint32_t w = 0; w < count; w++) {
        struct bench_point point = BENCH_POINT_DEFAULT;
        point.variant = "insert, delete";
        point.bytes = sizeof(uint64_t);
        point.active = options->active ? bench_active(options) : options->nodes;
        point.keys_count = keys_count(options);
        point.window = options->window ? options->window : windows[w];
        points[w] = point;
    }
    return count;
}

/* Return the key with this number; keys look random, as in a store with random keys. */
static uint64_t key_of(uint64_t number) {
    return remo__random_mix(number);
}

/* Return a value that belongs to its key, whatever the version. */
static uint64_t value_of(uint64_t key, uint64_t version) {
    return version << 32 | (key & UINT32_MAX);
}

/* ---- setting up ---- */

static int open_map(struct bench_job *job) {
    struct map *map = calloc(1, sizeof *map);
    if (!map)
        return remo__fail(-ENOMEM, "no memory for the benchmark");
    job->state = map;
    map->keys_count = keys_count(job->options);
    struct remo_kv_options options = {.capacity = map->keys_count * 100 / FILL_PERCENT,
                                      .key_bytes_max = sizeof(uint64_t),
                                      .value_bytes_max = sizeof(uint64_t),
                                      .stripes = STRIPES};
    return remo_kv_open(job->channel, "map", &options, &map->kv);
}

static int draw_keys(struct map *map, const struct bench_options *options, uint32_t rank) {
    struct bench_point points[BENCH_POINTS_MAX];
    uint32_t count = list(options, points);
    for (uint32_t i = 0; i < count; i++)
        map->theta = points[i].zipf > map->theta ? points[i].zipf : map->theta;
    if (map->theta <= 0)
        return 0;
    struct remo__random random;
    struct zipf zipf;
    remo__random_seed(&random, UINT64_C(0x5a1bf) + rank);
    zipf_prepare(&zipf, map->keys_count, map->theta);
    map->draws = malloc(DRAWS * sizeof *map->draws);
    if (!map->draws)
        return remo__fail(-ENOMEM, "no memory for %u keys drawn beforehand", DRAWS);
    for (uint32_t i = 0; i < DRAWS; i++)
        map->draws[i] = (uint32_t)zipf_next(&zipf, &random);
    return 0;
}

static int finish_op(struct bench_job *job, const struct slot *slot) {
    if (slot->op.status != 0)
        return remo__fail(slot->op.status, "operation on key %016llx failed: %s",
                          (unsigned long long)slot->key, remo_error_text(slot->op.status));
    if (slot->op.kind == REMO_KV_GET && (slot->value & UINT32_MAX) != (slot->key & UINT32_MAX))
        return remo__fail(-EIO,
                          "the benchmark is wrong: node %u got a value that does not belong to key %016llx",
                          job->rank, (unsigned long long)slot->key);
    return 0;
}

/* Wait until no operation of this thread is in flight: its memory will be freed. */
static void drain(struct remo_kv *kv) {
    while (remo_kv_poll(kv) > 0)
        continue;
}

/* Insert this node's share of the keys, with a window. */
static int insert_keys(struct bench_job *job, struct slot *slots) {
    struct map *map = job->state;
    uint64_t next = job->rank;
    uint32_t in_flight = 0, first = 0;
    int rc = 0;
    while (rc == 0 && (next < map->keys_count || in_flight > 0)) {
        while (rc == 0 && in_flight < FILL_WINDOW && next < map->keys_count) {
            struct slot *slot = &slots[(first + in_flight) % FILL_WINDOW];
            slot->key = key_of(next);
            slot->value = value_of(slot->key, 0);
            slot->op = (struct remo_kv_op){.kind = REMO_KV_INSERT,
                                           .key = &slot->key,
                                           .key_bytes = sizeof slot->key,
                                           .value = &slot->value,
                                           .value_bytes = sizeof slot->value};
            rc = remo_kv_start(map->kv, &slot->op);
            in_flight += rc == 0;
            next += job->size;
        }
        int waited = in_flight > 0 ? remo_kv_wait(map->kv, &slots[first].op) : 0;
        rc = rc != 0 ? rc : waited;
        first = (first + 1) % FILL_WINDOW;
        in_flight -= in_flight > 0;
        bench_progress(job, "loading", remo__min(next, map->keys_count), map->keys_count);
    }
    drain(map->kv);
    return rc;
}

static int fill(struct bench_job *job) {
    struct map *map = job->state;
    struct slot *slots = calloc(FILL_WINDOW, sizeof *slots);
    int rc = slots ? insert_keys(job, slots) : remo__fail(-ENOMEM, "no memory for the benchmark");
    free(slots);
    return rc == 0 ? draw_keys(map, job->options, job->rank) : rc;
}

static void close_map(struct bench_job *job) {
    struct map *map = job->state;
    if (!map)
        return;
    remo_kv_close(map->kv);
    free(map->draws);
    free(map);
    job->state = NULL;
}

/* ---- operating ---- */

static int begin(struct bench_thread *thread) {
    struct client *client = calloc(1, sizeof *client);
    if (!client)
        return remo__fail(-ENOMEM, "no memory for the benchmark");
    thread->state = client;
    client->draw = (uint32_t)remo__random_below(&thread->random, DRAWS);
    client->slots = calloc(thread->job->point->window, sizeof *client->slots);
    return client->slots ? 0 : remo__fail(-ENOMEM, "no memory for the operations in flight");
}

static bool inserts(const struct bench_job *job) {
    return job->bench == &bench_kv_insert;
}

/* Choose a key that no thread has inserted. */
static void choose_new(struct bench_thread *thread, struct slot *slot) {
    const struct bench_job *job = thread->job;
    const struct map *map = job->state;
    uint64_t threads = (uint64_t)job->size * job->options->threads,
             own = (uint64_t)job->rank * job->options->threads + thread->index;
    slot->key = key_of(map->keys_count + thread->number++ * threads + own);
    slot->value = value_of(slot->key, 0);
    slot->op.kind = REMO_KV_INSERT;
}

static void choose(struct bench_thread *thread, struct client *client, struct slot *slot) {
    const struct bench_point *point = thread->job->point;
    const struct map *map = thread->job->state;
    if (inserts(thread->job)) {
        choose_new(thread, slot);
        return;
    }
    uint64_t number = point->zipf > 0 ? map->draws[client->draw++ % DRAWS]
                                      : remo__random_below(&thread->random, map->keys_count);
    bool gets = point->read_percent == 100
                || (point->read_percent > 0
                    && remo__random_below(&thread->random, 100) < (uint64_t)point->read_percent);
    slot->key = key_of(number);
    slot->op.kind = gets ? REMO_KV_GET : REMO_KV_UPDATE;
    slot->value = gets ? 0 : value_of(slot->key, ++thread->number);
}

static int insert_one_by_one(struct bench_thread *thread, struct slot *slot, uint64_t operations) {
    struct map *map = thread->job->state;
    for (uint64_t i = 0; i < operations; i++) {
        choose_new(thread, slot);
        slot->op.status =
            remo_kv_insert(map->kv, &slot->key, sizeof slot->key, &slot->value, sizeof slot->value);
        if (slot->op.status == 0)
            slot->op.status = remo_kv_delete(map->kv, &slot->key, sizeof slot->key);
        int rc = finish_op(thread->job, slot);
        if (rc != 0)
            return rc;
    }
    return 0;
}

static int operate_one_by_one(struct bench_thread *thread, struct client *client, uint64_t operations) {
    struct map *map = thread->job->state;
    struct slot *slot = &client->slots[0];
    size_t bytes;
    for (uint64_t i = 0; i < operations; i++) {
        choose(thread, client, slot);
        slot->op.status =
            slot->op.kind == REMO_KV_GET
                ? remo_kv_get(map->kv, &slot->key, sizeof slot->key, &slot->value, sizeof slot->value, &bytes)
                : remo_kv_update(map->kv, &slot->key, sizeof slot->key, &slot->value, sizeof slot->value);
        int rc = finish_op(thread->job, slot);
        if (rc != 0)
            return rc;
    }
    return 0;
}

static int start(struct bench_thread *thread, struct client *client, struct slot *slot) {
    const struct map *map = thread->job->state;
    choose(thread, client, slot);
    slot->op.key = &slot->key;
    slot->op.key_bytes = sizeof slot->key;
    slot->op.value = &slot->value;
    slot->op.value_bytes = sizeof slot->value;
    return remo_kv_start(map->kv, &slot->op);
}

/* The operation of the slot is complete. Delete the key that it has inserted, or start a new operation. */
static int replace_op(struct bench_thread *thread, struct client *client, struct slot *slot, uint64_t *done) {
    struct map *map = thread->job->state;
    int rc = finish_op(thread->job, slot);
    if (rc != 0)
        return rc;
    if (slot->op.kind == REMO_KV_INSERT) {
        slot->op.kind = REMO_KV_DELETE;
        return remo_kv_start(map->kv, &slot->op);
    }
    ++*done;
    return start(thread, client, slot);
}

/* Replace each completed operation by a new one. */
static int sweep(struct bench_thread *thread, struct client *client, uint64_t *ret_done) {
    struct map *map = thread->job->state;
    int left = remo_kv_poll(map->kv);
    *ret_done = 0;
    if (left < 0)
        return left;
    for (uint32_t i = 0; i < client->started; i++) {
        struct slot *slot = &client->slots[i];
        if (slot->op.status == -EINPROGRESS)
            continue;
        int rc = replace_op(thread, client, slot, ret_done);
        if (rc != 0)
            return rc;
    }
    return 0;
}

/* The window stays full from one call to the next; operations beyond the requested number count for
 * the next call. */
static int operate(struct bench_thread *thread, uint64_t operations) {
    struct client *client = thread->state;
    uint32_t window = thread->job->point->window;
    int rc = 0;
    if (window == 1)
        return inserts(thread->job) ? insert_one_by_one(thread, &client->slots[0], operations)
                                    : operate_one_by_one(thread, client, operations);
    while (client->started < window && rc == 0)
        rc = start(thread, client, &client->slots[client->started++]);
    while (client->ahead < operations && rc == 0) {
        uint64_t done;
        rc = sweep(thread, client, &done);
        client->ahead += done;
    }
    client->ahead -= remo__min(client->ahead, operations);
    return rc;
}

static int finish(struct bench_thread *thread) {
    struct map *map = thread->job->state;
    struct client *client = thread->state;
    if (client)
        drain(map->kv);
    for (uint32_t i = 0; client && inserts(thread->job) && i < client->started; i++)
        if (client->slots[i].op.kind == REMO_KV_INSERT) /* it may have failed: then there is no such key */
            (void)remo_kv_delete(map->kv, &client->slots[i].key, sizeof client->slots[i].key);
    if (client)
        free(client->slots);
    free(client);
    thread->state = NULL;
    return 0;
}

/* ---- the limit: copies of slots at the offsets of the keys, one after the other ---- */

static uint64_t draw_slot(const struct map *map, const struct bench_point *point, struct remo__random *random,
                          uint64_t count) {
    uint64_t number = point->zipf > 0 ? map->draws[remo__random_below(random, DRAWS)]
                                      : remo__random_below(random, map->keys_count);
    return (uint64_t)(((unsigned __int128)key_of(number) * count) >> 64);
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double limit_copy_ns(struct bench_job *job) {
    const struct map *map = job->state;
    uint64_t arena_bytes, places[LIMIT_BATCH], sink[SLOT_BYTES / 8];
    const char *arena = bench_arena(job, &arena_bytes);
    double samples[LIMIT_BATCHES];
    struct remo__random random;
    if (!arena || arena_bytes < SLOT_BYTES)
        return 0;
    remo__random_seed(&random, 1);
    for (uint32_t b = 0; b < LIMIT_BATCHES; b++) {
        for (uint32_t i = 0; i < LIMIT_BATCH; i++)
            places[i] = draw_slot(map, job->point, &random, arena_bytes / SLOT_BYTES) * SLOT_BYTES;
        uint64_t start_ns = remo__now_ns();
        for (uint32_t i = 0; i < LIMIT_BATCH; i++) {
            memcpy(sink, arena + places[i], SLOT_BYTES);
            __asm__ volatile("" : : "r"(sink) : "memory");
        }
        samples[b] = (double)(remo__now_ns() - start_ns) / LIMIT_BATCH;
    }
    qsort(samples, LIMIT_BATCHES, sizeof *samples, compare_doubles);
    return samples[LIMIT_BATCHES / 2];
}

static double limit(struct bench_job *job, char ret_name[LIMIT_NAME_BYTES]) {
    const struct bench_point *point = job->point;
    double copy_ns = limit_copy_ns(job), updates = 1 - point->read_percent / 100.0;
    snprintf(ret_name, LIMIT_NAME_BYTES, "memcpy %u B at %s offsets of the same mapping%s", SLOT_BYTES,
             point->zipf > 0 ? "Zipf" : "random", updates > 0 ? ", lock and unlock" : "");
    return copy_ns + (updates > 0 ? updates * limit_lock_ns(bench_scratch(job)) : 0);
}

const struct bench bench_kv = {
    .name = "kv",
    .object = "kv",
    .description =
        "LOCO 7.2: gets and updates of a map for 10 M keys (--keys), 80 % full; uniform and Zipf 0.99",
    .list = list,
    .open = open_map,
    .fill = fill,
    .close = close_map,
    .begin = begin,
    .finish = finish,
    .operate = operate,
    .limit = limit,
};

const struct bench bench_kv_insert = {
    .name = "kv_insert",
    .object = "kv",
    .description = "inserts into the map of kv; an operation is the insert of a new key and its delete",
    .list = list_inserts,
    .open = open_map,
    .fill = fill,
    .close = close_map,
    .begin = begin,
    .finish = finish,
    .operate = operate,
};
