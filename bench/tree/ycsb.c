/* ycsb.c - the workloads A to F of YCSB (mix.h) on a tree whose owners are all nodes. Keys and values have 8
 * bytes. A read-modify-write is a get and an update. After a point each thread removes the keys that it has
 * inserted. Invariants are those of map.h. */
#include <errno.h>
#include <stdlib.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/error.h"
#include "bench/tree/map.h"
#include "bench/tree/mix.h"

/* Room for the keys that a thread inserts in one second: more than it can, with 5 % of inserts. */
#define INSERTS_MAPPED 250000u
#define INSERTS_NETWORK 25000u
#define WARM_UP_SECONDS 0.2

struct worker {
    struct mix_worker mix;
    struct tree_scanner scanner;
};

static double skew(const struct bench_options *options) {
    return options->zipf >= 0 ? options->zipf : TREE_ZIPF;
}

static uint32_t ycsb_list(const struct bench_options *options, struct bench_point points[BENCH_POINTS_MAX]) {
    for (uint32_t i = 0; i < MIXES; i++) {
        points[i] = (struct bench_point)BENCH_POINT_DEFAULT;
        points[i].variant = mixes[i].name;
        points[i].active = tree_map_active(options);
        points[i].keys_count = tree_map_count_keys(options);
        points[i].zipf = skew(options);
    }
    return MIXES;
}

/* ---- the job ---- */

static int ycsb_open(struct bench_job *job) {
    uint64_t threads = (uint64_t)job->size * job->options->threads,
             each_second = job->mapped ? INSERTS_MAPPED : INSERTS_NETWORK;
    double inserts = (double)(threads * each_second) * (job->options->seconds + WARM_UP_SECONDS);
    return tree_map_open_job(job, (uint64_t)inserts);
}

static int ycsb_fill(struct bench_job *job) {
    return tree_map_load(job, job->state, skew(job->options));
}

static int ycsb_check(struct bench_job *job) {
    return tree_map_check(job, job->state);
}

/* ---- operations ---- */

static int ycsb_begin(struct bench_thread *thread) {
    const struct bench_job *job = thread->job;
    const struct tree_map *map = job->state;
    struct worker *worker = calloc(1, sizeof *worker);
    if (!worker)
        return remo__fail(-ENOMEM, "no memory for the benchmark");
    thread->state = worker;
    worker->mix = (struct mix_worker){.mix = mix_find(job->point->variant),
                                      .keys = &map->keys,
                                      .workers = (uint64_t)job->size * job->options->threads,
                                      .worker = (uint64_t)job->rank * job->options->threads + thread->index};
    tree_drawer_begin(&worker->mix.drawer, &thread->random);
    return tree_scanner_open(&worker->scanner, MIX_ENTRIES_MAX);
}

/* Remove the keys that this thread has inserted. */
static int ycsb_finish(struct bench_thread *thread) {
    const struct tree_map *map = thread->job->state;
    struct worker *worker = thread->state;
    int rc = 0;
    if (!worker)
        return 0;
    for (uint64_t i = 0; i < worker->mix.inserted && rc == 0; i++)
        rc = tree_map_remove(map, mix_new_number(&worker->mix, i));
    tree_scanner_close(&worker->scanner);
    free(worker);
    thread->state = NULL;
    return rc;
}

static int run_scan(struct bench_thread *thread, const struct tree_map *map, const struct mix_call *call) {
    struct worker *worker = thread->state;
    uint32_t entries = (uint32_t)remo__min(call->entries, map->keys.count);
    int rc = tree_map_scan(map, &worker->scanner, call->number, entries);
    uint64_t now = remo__now_ns();
    rc = rc == 0 ? tree_scanner_check(&worker->scanner, call->number, entries) : rc;
    thread->paused_ns += remo__now_ns() - now;
    return rc;
}

static int run_modify(const struct tree_map *map, uint64_t number) {
    uint64_t value;
    int rc = tree_map_get(map, number, &value);
    return rc == 0 ? tree_map_update(map, number, (value >> 32) + 1) : rc;
}

static int run_one(struct bench_thread *thread, const struct tree_map *map) {
    struct worker *worker = thread->state;
    struct mix_call call = mix_draw(&worker->mix);
    uint64_t value;
    int rc;
    switch (call.op) {
    case MIX_READ: return tree_map_get(map, call.number, &value);
    case MIX_UPDATE: return tree_map_update(map, call.number, ++thread->number);
    case MIX_SCAN: return run_scan(thread, map, &call);
    case MIX_MODIFY: return run_modify(map, call.number);
    default: break;
    }
    rc = tree_map_insert(map, call.number);
    worker->mix.inserted += rc == 0;
    return rc;
}

static int ycsb_operate(struct bench_thread *thread, uint64_t operations) {
    const struct tree_map *map = thread->job->state;
    int rc = 0;
    for (uint64_t i = 0; i < operations && rc == 0; i++)
        rc = run_one(thread, map);
    return rc;
}

const struct bench bench_ycsb = {
    .name = "ycsb",
    .object = "tree",
    .description =
        "the workloads A to F of YCSB on an ordered map of 1 M keys (--keys) whose owners are all nodes; "
        "keys and values of 8 bytes, Zipf 0.99 (--zipf)",
    .list = ycsb_list,
    .open = ycsb_open,
    .fill = ycsb_fill,
    .close = tree_map_close_job,
    .begin = ycsb_begin,
    .operate = ycsb_operate,
    .finish = ycsb_finish,
    .check = ycsb_check,
};
