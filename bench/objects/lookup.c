/* lookup.c - lookups of random keys of other nodes in a hash table, in one or several tasks of each thread
 * (Storm 6.2.1). The tables have the same keys, and differ in how they find them. Each value is checked.
 * Nodes that do not operate serve calls in their thread. The limit is a read of an item with a seal at a
 * random place, or overlapping copies of buckets of several items, without a check of the value. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/error.h"
#include "bench/bench.h"

#define VALUE_BYTES 80u /* a bucket of width 1 is 128 bytes */
#define TASKS_DEFAULT 8u
#define KEYS_MAPPED 1000000u /* two shares of 64 MB */
#define KEYS_NETWORK 20000u
#define KEYS_SIMULATED 2000u
#define SERVE_NS (1 * REMO__NS_PER_MS) /* between two checks for the end */

enum { STOP }; /* the handler of the service */

/* How a table finds its keys. */
static const struct config {
    const char *name;
    struct remo_table_options options;
    bool knows_places; /* all keys in overflow chains are looked up before the measurement */
} configs[] = {
    {"calls only", {.lookups = REMO_TABLE_CALLS_ONLY}, false},
    {"oversubscribed", {.places = 1}, false},
    {"perfect", {.width = 1}, true},
    {"width 8", {.width = 8, .slots_percent = 125, .places = 1}, false},
};
#define CONFIGS (sizeof configs / sizeof configs[0])

struct state {
    struct bench_job *job;
    struct remo_table *tables[CONFIGS];
    struct remo_rpc *control;
    uint64_t keys_count;
    uint32_t *remote; /* the keys of other nodes, in random order */
    uint64_t remote_count;
    _Atomic uint32_t stopped; /* operating threads that have finished the point */
};

/* A thread that looks up keys, itself or in tasks. */
struct looker {
    struct bench_thread *thread;
    struct bench_tasks tasks;
    struct remo_structure *structure;
    uint64_t next; /* index of the next key */
};

/* ---- points ---- */

/* Return the bytes of a read of a bucket. */
static uint64_t bytes_of(const struct config *config) {
    uint32_t width = config->options.width ? config->options.width : 1;
    return sizeof(uint64_t) + width * remo_structure_item_bytes(sizeof(uint64_t), VALUE_BYTES);
}

static uint32_t lookup_list(const struct bench_options *options,
                            struct bench_point points[BENCH_POINTS_MAX]) {
    uint32_t count = 0;
    for (uint32_t config = 0; config < CONFIGS; config++)
        for (uint32_t many = 0; many < (options->window ? 1u : 2u); many++) {
            struct bench_point *point = &points[count++];
            *point = (struct bench_point)BENCH_POINT_DEFAULT;
            point->variant = configs[config].name;
            point->bytes = bytes_of(&configs[config]);
            point->window = options->window ? options->window : many ? TASKS_DEFAULT : 1;
            point->active = bench_active(options);
        }
    return count;
}

static uint32_t config_of(const struct bench_point *point) {
    uint32_t config = 0;
    while (configs[config].name != point->variant)
        config++;
    return config;
}

/* ---- the job ---- */

static int run_stop(void *ctx, const struct remo_rpc_request *request) {
    struct state *state = ctx;
    (void)request;
    atomic_fetch_add(&state->stopped, 1);
    return 0;
}

static uint64_t count_keys(const struct bench_job *job) {
#ifdef REMO_SIM
    uint64_t otherwise = KEYS_SIMULATED;
#else
    uint64_t otherwise = job->mapped ? KEYS_MAPPED : KEYS_NETWORK;
#endif
    return job->options->keys_count ? job->options->keys_count : otherwise;
}

static int lookup_open(struct bench_job *job) {
    struct state *state = calloc(1, sizeof *state);
    if (!state)
        return remo__fail(-ENOMEM, "no memory for the benchmark");
    job->state = state;
    state->job = job;
    state->keys_count = count_keys(job);
    for (uint32_t i = 0; i < CONFIGS; i++) {
        struct remo_table_options options = configs[i].options;
        options.capacity = state->keys_count;
        options.value_bytes_max = VALUE_BYTES;
        options.places = configs[i].knows_places ? (uint32_t)state->keys_count : options.places;
        char name[16];
        snprintf(name, sizeof name, "table-%u", i);
        int rc = remo_table_open(job->channel, name, &options, &state->tables[i]);
        if (rc != 0)
            return rc;
    }
    struct remo_rpc_handler handler = {.number = STOP, .run = run_stop, .ctx = state};
    struct remo_rpc_options options = {.handlers = &handler, .handler_count = 1};
    return remo_rpc_open(job->channel, "control", &options, &state->control);
}

static void lookup_close(struct bench_job *job) {
    struct state *state = job->state;
    if (!state)
        return;
    remo_rpc_close(state->control);
    for (uint32_t i = 0; i < CONFIGS; i++)
        remo_table_close(state->tables[i]);
    free(state->remote);
    free(state);
    job->state = NULL;
}

static void make_value(uint64_t value[VALUE_BYTES / 8], uint64_t key) {
    for (uint32_t i = 0; i < VALUE_BYTES / 8; i++)
        value[i] = key + i;
}

/* Each node inserts the keys that it owns. */
static int insert_own(struct bench_job *job) {
    struct state *state = job->state;
    uint64_t value[VALUE_BYTES / 8];
    for (uint64_t key = 0; key < state->keys_count; key++) {
        bench_progress(job, "inserting keys", key, state->keys_count);
        if (remo_table_owner(state->tables[0], &key, sizeof key) != job->rank)
            continue;
        make_value(value, key);
        for (uint32_t i = 0; i < CONFIGS; i++) {
            int rc = remo_structure_insert(remo_table_structure(state->tables[i]), &key, sizeof key, value,
                                           sizeof value);
            if (rc != 0)
                return rc;
        }
    }
    return 0;
}

/* ---- lookups ---- */

/* Sets *ret_key to the key, computed from a word of the value. */
static int look_up(struct remo_structure *structure, uint64_t key, uint64_t *ret_key) {
    uint64_t value[VALUE_BYTES / 8];
    size_t bytes = 0;
    int rc = remo_structure_lookup(structure, &key, sizeof key, value, sizeof value, &bytes, NULL);
    if (rc == 0 && (bytes != sizeof value || value[0] != key || value[VALUE_BYTES / 8 - 1] != key + 9))
        return remo__fail(-EIO, "the benchmark is wrong: key %llu has value %llu of %zu bytes",
                          (unsigned long long)key, (unsigned long long)value[0], bytes);
    *ret_key = rc == 0 ? value[1] - 1 : key;
    return rc;
}

/* The keys are in random order, so each thread takes them in turn, from a random one. A lookup may pause its
 * task, so the index advances before it: otherwise all tasks look up the same key. The next index
 * depends on the value, so that the processor does not begin the next lookup before this one has ended. */
static int look_up_next(struct bench_tasks *tasks, uint32_t task) {
    struct looker *looker = remo__container_of(tasks, struct looker, tasks);
    const struct state *state = looker->thread->job->state;
    if (looker->next >= state->remote_count)
        looker->next = 0;
    uint64_t key = state->remote[looker->next++], read_key;
    (void)task;
    int rc = look_up(looker->structure, key, &read_key);
    looker->next += read_key - key;
    return rc;
}

/* List the keys of other nodes, in random order. */
static int list_remote(struct bench_job *job) {
    struct state *state = job->state;
    struct remo__random random;
    state->remote = malloc(state->keys_count * sizeof *state->remote);
    if (!state->remote)
        return remo__fail(-ENOMEM, "no memory for %llu keys", (unsigned long long)state->keys_count);
    for (uint64_t key = 0; key < state->keys_count; key++)
        if (remo_table_owner(state->tables[0], &key, sizeof key) != job->rank)
            state->remote[state->remote_count++] = (uint32_t)key;
    if (state->remote_count == 0)
        return remo__fail(-EINVAL, "other nodes own none of %llu keys: give more --keys",
                          (unsigned long long)state->keys_count);
    remo__random_seed(&random, job->rank + 1);
    for (uint64_t i = state->remote_count - 1; i > 0; i--) {
        uint64_t other = remo__random_below(&random, i + 1);
        uint32_t key = state->remote[i];
        state->remote[i] = state->remote[other];
        state->remote[other] = key;
    }
    return 0;
}

/* When all nodes have inserted their keys, look up all remote keys of the tables that remember places. */
static int lookup_fill(struct bench_job *job) {
    struct state *state = job->state;
    int rc = insert_own(job);
    if (rc == 0)
        rc = list_remote(job);
    if (rc == 0)
        rc = remo_barrier_wait(job->barrier, REMO_FOREVER);
    for (uint32_t config = 0; config < CONFIGS; config++)
        for (uint64_t i = 0, key; i < state->remote_count && rc == 0 && configs[config].knows_places; i++) {
            bench_progress(job, "looking up keys", i, state->remote_count);
            rc = look_up(remo_table_structure(state->tables[config]), state->remote[i], &key);
        }
    return rc;
}

static int lookup_begin(struct bench_thread *thread) {
    struct state *state = thread->job->state;
    const struct bench_point *point = thread->job->point;
    uint32_t config = config_of(point);
    bool operates = thread->job->rank < point->active; /* the others serve, without tasks */
    struct looker *looker = calloc(1, sizeof *looker);
    if (!looker)
        return remo__fail(-ENOMEM, "no memory for the benchmark");
    thread->state = looker;
    looker->thread = thread;
    looker->structure = remo_table_structure(state->tables[config]);
    looker->next = remo__random_below(&thread->random, state->remote_count);
    return bench_tasks_open(&looker->tasks, thread->job->node, operates ? point->window : 1, look_up_next);
}

static int lookup_operate(struct bench_thread *thread, uint64_t operations) {
    struct looker *looker = thread->state;
    return bench_tasks_operate(&looker->tasks, operations);
}

/* Notify the nodes that serve that this thread has finished. */
static int report_stop(const struct bench_thread *thread) {
    const struct state *state = thread->job->state;
    int rc = 0;
    for (uint32_t node = thread->job->point->active; node < thread->job->size && rc == 0; node++)
        rc = remo_rpc_call(state->control, node, STOP, NULL, 0, NULL, 0, NULL, REMO_FOREVER);
    return rc;
}

static int lookup_finish(struct bench_thread *thread) {
    struct looker *looker = thread->state;
    int rc = looker ? bench_tasks_close(&looker->tasks) : 0;
    free(looker);
    thread->state = NULL;
    if (rc == 0 && thread->job->rank < thread->job->point->active)
        rc = report_stop(thread);
    return rc;
}

/* Serve until every operating thread has stopped. */
static int lookup_attend(struct bench_thread *thread) {
    struct state *state = thread->job->state;
    uint32_t threads = thread->job->point->active * thread->job->options->threads;
    int rc = 0;
    while (rc == 0 && atomic_load(&state->stopped) < threads)
        rc = remo_rpc_serve(state->control, SERVE_NS);
    atomic_fetch_sub(&state->stopped, threads);
    return rc;
}

/* As much memory as the remote keys of the table take. In a bucket of several slots only the found item has a
 * seal that is compared. */
static double lookup_limit(struct bench_job *job, char ret_name[LIMIT_NAME_BYTES]) {
    uint64_t bytes;
    const struct state *state = job->state;
    const struct bench_point *point = job->point;
    const void *arena = bench_arena(job, &bytes);
    size_t in_flight = remo__min(point->window, LIMIT_IN_FLIGHT_MAX);
    bool is_sealed = configs[config_of(point)].options.width <= 1;
    bytes = remo__min(bytes, remo__max(state->remote_count, 1) * point->bytes);
    if (is_sealed)
        limit_read_sealed_name(point->bytes, in_flight, ret_name);
    else
        limit_memcpy_random_name(point->bytes, ret_name);
    if (!arena)
        return 0;
    return is_sealed ? limit_read_sealed_ns(arena, bytes, point->bytes, in_flight)
                     : limit_memcpy_random_ns(arena, bytes, point->bytes);
}

const struct bench bench_lookup = {
    .name = "lookup",
    .object = "table",
    .description =
        "Storm 6.2.1: look up random keys of other nodes, in 1 and 8 tasks (--window): by calls only, "
        "oversubscribed, perfect, buckets of width 8",
    .list = lookup_list,
    .open = lookup_open,
    .fill = lookup_fill,
    .close = lookup_close,
    .begin = lookup_begin,
    .operate = lookup_operate,
    .finish = lookup_finish,
    .attend = lookup_attend,
    .network = BENCH_NETWORK_READ,
    .limit = lookup_limit,
};
